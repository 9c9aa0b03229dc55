# SPDX-License-Identifier: MIT
"""Reference pages for scripts/docs.py: the Python package by its docstrings, the C library by its headers.

Both are read as text: neither the package nor the library has to be built.
"""

import ast
import re
import textwrap

SECTION = re.compile(r"^/\* ---- (?:\d+\. )?(.+?) -+ \*/$", re.MULTILINE)
DECLARED = re.compile(r"\b(?:struct|enum|union)\s+(rp_\w+)\s*[{;]|\(\*(rp_\w+)\)|\b(rp_\w+)\s*\((?!\*)|"
                      r"#define\s+(RP_\w+)|^\}\s*(rp_\w+);", re.MULTILINE)
PART = re.compile(r"^(Arguments|Returns|Raises|Yields|Attributes|Note|Notes|Example|Examples):(:?)$")
ENTRY = re.compile(r"^(\*{0,2}\w[\w, *]*?)(?: \(([^)]*(?:\([^)]*\)[^)]*)*)\))?: (.*)$")


# ---- Python ----

def inline(text):
    """The roles and literals of docstrings, as Markdown."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return re.sub(r"``([^`]+)``", r"`\1`", text).replace("\\ ", "")


def entries(lines):
    """A list of arguments: each begins at the outermost indentation, and goes on further in."""
    for entry in re.split(r"\n(?=\S)", textwrap.dedent("\n".join(lines)).strip()):
        text = " ".join(entry.split())
        match = ENTRY.match(text)
        if match:
            name, kind, rest = match.groups()
            yield f"- `{name}`" + (f" ({inline(kind)})" if kind else "") + f": {inline(rest)}"
        else:
            yield "- " + inline(text)


def prose(lines):
    """Paragraphs, lists, and the code behind a double colon."""
    out, code = [], False
    for line in lines:
        if code and line and not line.startswith("    "):
            out += ["```", ""]
            code = False
        if code:
            out.append(line[4:])
        elif line.endswith("::"):
            out += [inline(line[:-1]), "", "```python"]
            code = True
        else:
            out.append(inline(line))
    text = re.sub(r"```python\n+", "```python\n", "\n".join(out + ["```"] * code))
    return re.sub(r"\n+```$", "\n```", text)


def markdown(docstring):
    """A docstring with the parts that Google's style names."""
    out, rest = [], docstring.splitlines()
    while rest:
        match = PART.match(rest[0])
        size = next((i for i, line in enumerate(rest[1:], 1) if PART.match(line) or
                     (match and line and not line.startswith(" "))), len(rest))
        here, rest = rest[:size], rest[size:]
        if not match:
            out.append(prose(here))
        elif match[2]:
            out.append(prose(here))
        elif match[1] in ("Arguments", "Raises", "Attributes"):
            out += [f"**{match[1]}**", "", *entries(here[1:]), ""]
        else:
            out += [f"**{match[1]}**", "", prose(textwrap.dedent("\n".join(here[1:])).splitlines()), ""]
    return "\n".join(out).strip() + "\n"


def signature(name, node, method):
    arguments = node.args
    if method:
        everything = arguments.posonlyargs or arguments.args
        everything[:1] = []
    text = f"{name}({ast.unparse(arguments)})"
    return text if len(text) < 90 else text.replace(", ", ",\n    ").replace("(", "(\n    ", 1)


def decorated(node, name):
    return any(getattr(mark, "id", getattr(mark, "attr", "")) == name for mark in node.decorator_list)


def function_page(title, node, level, method=False):
    """A function's heading, signature and text, or nothing where it has no docstring."""
    text = ast.get_docstring(node)
    if not text:
        return ""
    if decorated(node, "property"):
        return f"{'#' * level} `{title}`\n\n{markdown(text)}\n"
    shown = signature(title, node, method and not decorated(node, "staticmethod"))
    return f"{'#' * level} `{title}`\n\n```python\n{shown}\n```\n\n{markdown(text)}\n"


def class_page(title, node, public):
    """A class and those of its methods that the stubs name: others are for the package itself."""
    out = [f"## `{title}`\n\n{markdown(ast.get_docstring(node) or '')}\n"]
    short = title.rsplit(".", 1)[-1].lower()
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and (node.name, item.name) in public:
            out.append(function_page(f"{short}.{item.name}", item, 3, True))
    return "".join(out)


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def definition(package, module, name):
    """The node of a name, followed through the modules that pass it on."""
    path = package / (module.replace(".", "/") + ".py")
    path = path if path.exists() else package / module.replace(".", "/") / "__init__.py"
    for node in parsed(path).body if path.exists() else ():
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node
    return None


def exported(package):
    """Names of __all__, in order, with the module that each is imported from."""
    tree, homes, names = parsed(package / "__init__.py"), {}, []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            homes.update({alias.asname or alias.name: (node.module or alias.name, alias.name)
                          for alias in node.names})
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
    return [(name, *homes[name]) for name in names]


def stubbed(package):
    """The methods, by class, that the stubs of the package name."""
    tree = ast.parse((package / "__init__.pyi").read_text(encoding="utf-8"))
    return {(node.name, item.name) for node in tree.body if isinstance(node, ast.ClassDef)
            for item in node.body if isinstance(item, ast.FunctionDef) and not item.name.startswith("_")}


def module_page(package, name):
    tree = parsed(package / f"{name}.py")
    out = [f"## `reprise.{name}`\n\n{markdown(ast.get_docstring(tree) or '')}\n"]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            out.append(function_page(f"reprise.{name}.{node.name}", node, 3))
    return "".join(out)


def python_page(package):
    functions, classes, modules, public = [], [], [], stubbed(package)
    for name, module, original in exported(package):
        node = definition(package, module, original)
        if isinstance(node, ast.ClassDef):
            classes.append(class_page(f"reprise.{name}", node, public))
        elif node:
            functions.append(function_page(f"reprise.{name}", node, 2))
        elif (package / f"{module}.py").exists():
            modules.append(module_page(package, name))
    error = ("## `reprise.Error`\n\nRaised where a call of Reprise fails. The message is one sentence: what "
             "failed, with the figures, and what to do.\n")
    opening = "# Python\n\nMade from the docstrings of the package, which `help` shows too.\n"
    return "\n".join([opening, *functions, *classes, error, *modules])


# ---- C ----

def pieces(section):
    """What blank lines divide outside of comments and braces."""
    piece, depth, comment = [], 0, False
    for line in section.splitlines():
        if not line.strip() and not depth and not comment:
            if piece:
                yield "\n".join(piece)
            piece = []
            continue
        piece.append(line)
        comment = line.rfind("/*") > line.rfind("*/") or (comment and "*/" not in line)
        bare = re.sub(r"/\*.*?\*/", "", line)
        depth += bare.count("{") - bare.count("}") if not comment else 0
    if piece:
        yield "\n".join(piece)


def split_comment(piece):
    """The comment ahead of a declaration as text, and the rest as code."""
    match = re.match(r"/\*(?!\*)(.*?)\*/\n?", piece, re.DOTALL)
    if not match:
        return "", piece
    lines = [re.sub(r"^ ?\* ?", "", line.strip()) for line in match[1].strip().splitlines()]
    return "\n".join(lines).replace("<", "&lt;"), piece[match.end():]


def declared(code):
    """The public names that a piece of the header declares, as a heading: of many the first and the last."""
    bare = re.sub(r"/\*.*?\*/|RP_API|\\\n", "", code, flags=re.DOTALL)
    outer = re.sub(r"\{[^{}]*\}", "{}", re.sub(r"\{[^{}]*\}", "{}", bare))
    names = list(dict.fromkeys(next(filter(None, match)) for match in DECLARED.findall(outer)))
    functions = [name for name in names if not name.endswith("_sized")]
    some = functions or names
    shown = [f"`{name}`" for name in some]
    return [shown[0], "...", shown[-1]] if len(shown) > 4 else shown


def c_section(title, section):
    out = [f"## {title}\n"]
    for piece in pieces(section):
        text, code = split_comment(piece)
        if not text and not declared(code):
            continue
        if code and declared(code):
            out.append("### " + ", ".join(declared(code)) + "\n")
        if text:
            out.append(text + "\n")
        if code:
            out.append(f"```c\n{code.strip()}\n```\n")
    return "\n".join(out)


def c_page(headers):
    """All sections of the public headers, in the order in which they stand."""
    out = ["# C\n\nMade from the public headers, in their order. Types and functions begin with `rp_`.\n"]
    for header in headers:
        text = header.read_text(encoding="utf-8")
        found = list(SECTION.finditer(text))
        opening = re.search(r"/\* SPDX[^\n]*\n(.*?)\*/", text, re.DOTALL)
        if opening:
            lines = [re.sub(r"^ \* ?", "", line) for line in opening[1].rstrip().splitlines()]
            out.append(f"## {header.name}\n\n```text\n" + "\n".join(lines).strip("\n *") + "\n```\n")
        for match, after in zip(found, [*found[1:], None]):
            out.append(c_section(match[1], text[match.end():after.start() if after else len(text)]))
    return "\n".join(out)


def self_test():
    text = markdown("Does it.\n\nArguments:\n    one (int): The\n        first.\n    two: The ``second``.\n\n"
                    "Returns:\n    A :class:`reprise.Pool`.\n\nExample::\n\n    f(1)\n\n    f(2)\n")
    assert "- `one` (int): The first.\n- `two`: The `second`." in text, text
    assert "A `reprise.Pool`." in text and "```python\nf(1)\n\nf(2)\n```" in text, text
    section = ("\n/* Makes\n * one. */\nRP_API int rp_make(int a, /* b\n c */\n int d);\n\n"
               "struct rp_s {\n    int a;\n\n    int b;\n};\n")
    page = c_section("Things", section)
    assert "### `rp_make`\n\nMakes\none.\n" in page and "### `rp_s`" in page and page.count("```c") == 2, page
    node = ast.parse("def f(self, a, *, b=2):\n    'Does.'").body[0]
    assert declared("typedef rp_status (*rp_work)(int rp_a);") == ["`rp_work`"]
    code = "RP_API rp_status rp_a(struct rp_b *b);\nRP_API int rp_c(void); /* rp_d() */"
    assert declared(code) == ["`rp_a`", "`rp_c`"]
    assert declared("typedef enum rp_e {\n    RP_E = 1,\n} rp_e;") == ["`rp_e`"]
    text = "class C:\n    'It is.'\n    def a(self):\n        'One.'\n    def b(self):\n        'Two.'"
    page = class_page("r.C", ast.parse(text).body[0], {("C", "a")})
    assert "`c.a`" in page and "Two" not in page, page
    assert "```python\nx.f(a, *, b=2)\n```" in function_page("x.f", node, 3, True)
