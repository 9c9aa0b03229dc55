# SPDX-License-Identifier: MIT
"""The names that a code object reads by: globals, attributes, modules that it imports; those of functions
within it are its own. Whose code is the program's, and whose is Python's, PyTorch's or ours.
"""

import _string
import collections
import dis
import functools
import os
import string
import sys
import sysconfig
import types
from typing import NamedTuple

from .. import _C

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # the package's folder
# Packages whose code is not followed: they change nothing of what they read, or tell of it.
FOREIGN = frozenset(("torch", "numpy", "triton", "functorch", "reprise", "builtins", "_thread",
                     *sys.stdlib_module_names)) - {"__main__"}
_ASKERS = frozenset(("getattr", "hasattr", "attrgetter", "__getattribute__", "getattr_static"))
_EVERYTHING = frozenset(("vars", "dir", "__dict__", "asdict", "astuple"))
_LACKS = frozenset(("AttributeError", "Exception", "BaseException"))  # by which code finds that it has none
_MAKERS = frozenset(("str", "format", "chr"))
_ASKED_AROUND = _ASKERS | _EVERYTHING
_UNTOLD = _EVERYTHING | {"attrgetter", "__getattribute__", "getattr_static"}
_SETTERS = frozenset(("setattr", "__setattr__"))
_FORMATS = frozenset(("format", "format_map", "vformat"))  # by which strings ask for attributes
_IMPORTS = frozenset(("import_module", "__import__", "modules"))  # and for modules
MATCHED = "__match_args__"
VERSION = "_version"
OF_FUNCTIONS = ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__")  # beside a dict
_DESCRIBED = frozenset((VERSION, *OF_FUNCTIONS))
_GLOBAL, _ATTRIBUTE, _IMPORT, _CONST, _CALL, _MAKE, _STORE, _FAST, _PAIR, _REBIND, _JUMP, _MATCH = range(12)
_MOST_CODE = 4096  # code objects of which is kept what was found


class Named(NamedTuple):
    """What code reads by name."""

    globals: frozenset
    attributes: frozenset
    maybe: frozenset    # attributes that it asks for as strings: they need not be there
    imports: frozenset
    dynamic: bool       # it asks for attributes by names that it makes
    by_calls: bool      # by calls of getattr and hasattr alone, which tell of what (runs.Executed)
    by_text: frozenset  # globals that it may ask for as strings
    compares: bool      # it asks of objects other than its constants whether they are the same one
    ahead: frozenset    # (name, attribute) of values that it asks for a version, or what functions say of themselves
    stored: frozenset   # attributes and globals that it sets
    looked: frozenset   # attributes, globals and closed variables with which it does more than to raise them


def _operations():
    """By opcode: what it reads, and how far its argument is shifted."""
    calls_have_flag = sys.version_info >= (3, 11)
    methods_are_attributes = sys.version_info >= (3, 12)
    table = {"LOAD_GLOBAL": (_GLOBAL, int(calls_have_flag)), "LOAD_NAME": (_GLOBAL, 0),
             "LOAD_FROM_DICT_OR_GLOBALS": (_GLOBAL, 0),
             "LOAD_ATTR": (_ATTRIBUTE, int(methods_are_attributes)), "LOAD_METHOD": (_ATTRIBUTE, 0),
             "LOAD_SUPER_ATTR": (_ATTRIBUTE, 2), "IMPORT_FROM": (_ATTRIBUTE, 0),
             "IMPORT_NAME": (_IMPORT, 0), "LOAD_CONST": (_CONST, 0)}
    table.update((name, (_CALL, 0)) for name in dis.opmap if name.startswith("CALL"))
    table.update((name, (_MAKE, 0)) for name in ("BUILD_STRING", "BINARY_OP", "BINARY_ADD"))
    table["STORE_ATTR"] = (_STORE, 0)
    table["MATCH_CLASS"] = (_MATCH, 0)
    table.update((name, (_FAST, 0)) for name in ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"))
    table.update((name, (_PAIR, 0)) for name in ("LOAD_FAST_LOAD_FAST",
                                                 "LOAD_FAST_BORROW_LOAD_FAST_BORROW"))
    table.update((name, (_REBIND, 0)) for name in dis.opmap if name.startswith(("STORE_FAST", "DELETE_FAST")))
    jumps = {dis.opname[op] for op in (*dis.hasjrel, *dis.hasjabs)}
    table.update((name, (_JUMP, 0)) for name in jumps | {"YIELD_VALUE"})
    # Instructions that the specialising interpreter puts in have numbers of their own, and code
    # objects tell none of them.
    return {dis.opmap[name]: what for name, what in table.items() if name in dis.opmap}


_TABLE = _operations()
_IS = dis.opmap["IS_OP"]
_NEITHER = (None, 0)
_PASSED = frozenset((dis.EXTENDED_ARG, dis.opmap.get("CACHE", dis.EXTENDED_ARG)))
_STORES = frozenset(op for name, op in dis.opmap.items() if name in ("STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF"))
_DEREFS = frozenset(op for name, op in dis.opmap.items() if name == "LOAD_DEREF")
_STORE_DEREF = dis.opmap["STORE_DEREF"]
_BINARY, _FIRST_IN_PLACE = dis.opmap.get("BINARY_OP"), 13  # from which on its arguments work in place
_IN_PLACE = frozenset(op for name, op in dis.opmap.items() if name in ("INPLACE_ADD", "INPLACE_SUBTRACT"))
_ADDS = frozenset(op for name, op in dis.opmap.items() if name in ("BINARY_ADD", "BINARY_SUBTRACT"))
_SWAPS = frozenset(op for name, op in dis.opmap.items() if name in ("SWAP", "ROT_TWO"))
_SUBSCRIPTS = frozenset(op for name, op in dis.opmap.items() if name in ("BINARY_SUBSCR", "BINARY_OP"))
_CONSTANTS = frozenset(op for name, op in dis.opmap.items() if name.startswith(("LOAD_CONST", "LOAD_COMMON_CONST")))


def _teach():
    """Tells the extension, which goes through instructions (csrc/reads/code.h)."""
    what, shifts = bytearray(256), bytearray(256)
    for operation, (does, shift) in _TABLE.items():
        if operation < 256:  # others are none that code objects tell of
            what[operation], shifts[operation] = does + 1, shift
    _C.learn_operations(bytes(what), bytes(shifts), dis.EXTENDED_ARG, _ASKERS, _EVERYTHING, _MAKERS, MATCHED)


_teach()


class _Found:
    """What was found so far; as of Named."""

    def __init__(self):
        self.globals, self.attributes, self.imports = set(), set(), set()
        self.maybe, self.by_text, self.ahead = set(), set(), set()
        self.stored, self.looked = set(), set()
        self.dynamic = self.untold = self.compares = False


def _scan(code, found):
    names, consts = code.co_names, code.co_consts
    of_globals, attributes = set(), set()
    found.dynamic |= _C.read_instructions(code, of_globals, attributes, found.imports)
    found.globals |= of_globals
    found.attributes |= attributes
    texts = [c for c in consts if type(c) is str]
    if not _ASKED_AROUND.isdisjoint(names):
        found.maybe.update(filter(str.isidentifier, texts))
    if not _LACKS.isdisjoint(names) and getattr(code, "co_exceptiontable", True):
        found.maybe.update(found.attributes.intersection(names))
    if not _FORMATS.isdisjoint(names):
        found.attributes.update(name for c in texts for name in _asked_by_format(c))
    if not _IMPORTS.isdisjoint(names):
        found.imports.update(c for c in texts if c.replace(".", "a").isidentifier())
    if "globals" in names:
        found.by_text.update(filter(str.isidentifier, texts))
    found.compares |= _compares(code)
    read = of_globals | attributes | set(code.co_freevars)
    if not _STORES.isdisjoint(code.co_code[::2]):
        stores, raises, loads = _changes(code)
        found.stored.update(stores)
        found.looked.update(name for name, count in stores.items() if raises[name] < count)
        read -= {name for name, count in raises.items() if loads[name] <= count}
    found.looked |= read
    if not _SETTERS.isdisjoint(names):
        found.stored.update(filter(str.isidentifier, texts))
        found.stored.update(c for row in consts if type(row) is tuple for c in row if type(c) is str)
    if not _DESCRIBED.isdisjoint(names):
        found.ahead.update(_ahead(code))
    found.untold |= not _UNTOLD.isdisjoint(names)
    for inner in consts:
        if type(inner) is types.CodeType:
            _scan(inner, found)


def _instructions(code):
    """(opcode, argument) of each instruction."""
    raw, extended = code.co_code, 0
    for at in range(0, len(raw), 2):
        op, argument = raw[at], raw[at + 1] | extended
        extended = argument << 8 if op == dis.EXTENDED_ARG else 0
        if op not in _PASSED:
            yield op, argument


def _changes(code):
    """How often it sets by each name of an attribute, a global or a closed variable, how often it raises what has that
    name by an amount, and how often it reads it."""
    stores: collections.Counter = collections.Counter()
    raises: collections.Counter = collections.Counter()
    loads: collections.Counter = collections.Counter()
    past = [(None, None, None)] * 4  # what each of the last instructions does: a word, its name and its opcode
    for op, argument in _instructions(code):
        what, shift = _TABLE.get(op, _NEITHER)
        if op in _STORES:
            name = _free_name(code, argument) if op == _STORE_DEREF else code.co_names[argument]
            stores[name] += 1
            raises[name] += _is_raised(past, name)
            past.append(("sets", name, op))
        elif what in (_ATTRIBUTE, _GLOBAL) or op in _DEREFS:
            name = _free_name(code, argument) if op in _DEREFS else code.co_names[argument >> shift]
            loads[name] += 1
            past.append(("reads", name, op))
        elif op in _IN_PLACE or (op == _BINARY and argument >= _FIRST_IN_PLACE):
            past.append(("adds in place", None, op))
        else:
            past.append(("adds" if op in _ADDS or op == _BINARY else None, None, op))
        del past[0]
    return stores, raises, loads


def _is_raised(past, name):
    """Do instructions end with adding to what has this name, as `self.n += 1` and `self.n = self.n + 1` do?"""
    if past[-1][2] in _SWAPS:
        return past[-2][0] == "adds in place"
    if past[-1][0] == "adds in place":
        return True
    which = -1 if past[-1][0] == "adds" else -2  # of an attribute its object is loaded behind that
    return past[which][0] == "adds" and past[which - 2][:2] == ("reads", name)


def _compares(code):
    raw = code.co_code
    return _IS in raw and any(raw[at] == _IS and raw[at - 2] not in _CONSTANTS for at in range(2, len(raw), 2))


def _ahead(code):
    """As of Named.ahead."""
    names: tuple = (None,)  # of what was loaded last
    for op, argument in _instructions(code):
        what, shift = _TABLE.get(op, _NEITHER)
        if what == _ATTRIBUTE and code.co_names[argument >> shift] in _DESCRIBED:
            yield from ((name, code.co_names[argument >> shift]) for name in names if type(name) is str)
        if what in (_ATTRIBUTE, _GLOBAL):
            names = (code.co_names[argument >> shift],)
        elif what == _CONST:
            names = (code.co_consts[argument],)
        elif op in _DEREFS:
            names = (_free_name(code, argument),)
        else:
            names = names[-1:] if op in _SUBSCRIPTS else (None,)


def _free_name(code, argument):
    """The name of a variable in a cell, by an instruction's argument."""
    if hasattr(code, "_varname_from_oparg"):
        return code._varname_from_oparg(argument)
    return (*code.co_cellvars, *code.co_freevars)[argument]


def _asked_by_format(text):
    """The attributes that a format asks for, as "{0.scale}" does."""
    try:
        for _, field, _, _ in string.Formatter().parse(text):
            if field and "." in field:
                yield from (name for is_name, name in _string.formatter_field_name_split(field)[1] if is_name)
    except ValueError:
        return  # it is none


def once_for_code(function):
    """Keeps what it says of code objects, by their identity: to hash one takes as long as it has instructions."""
    known = {}

    @functools.wraps(function)
    def told(code):
        found = known.get(id(code))
        if found is None:
            if len(known) >= _MOST_CODE:
                known.clear()
            found = known[id(code)] = (code, function(code))  # which so keeps its id
        return found[1]
    return told


@once_for_code
def named(code):
    """What a code object and those within it read by name."""
    found = _Found()
    _scan(code, found)
    return Named(frozenset(found.globals | found.by_text), frozenset(found.attributes | found.maybe),
                 frozenset(found.maybe), frozenset(found.imports), found.dynamic, not found.untold,
                 frozenset(found.by_text), found.compares, frozenset(found.ahead), frozenset(found.stored),
                 frozenset(found.looked | found.maybe))


def asks_by_made_names(code):
    """Of a call of getattr that it makes: is the name another than those that it has as constants?"""
    return named(code).dynamic or _ASKERS.isdisjoint(code.co_names)


@functools.lru_cache(maxsize=None)
def _folders():
    found = [_HERE]
    for name in ("torch", "numpy", "triton", "functorch", "sympy"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            found.append(os.path.dirname(os.path.abspath(file)) + os.sep)
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def is_quiet_file(file):
    """Is what code there does besides computing PyTorch's affair, or ours?"""
    return file.startswith(_folders())


_STDLIB = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})


@functools.lru_cache(maxsize=4096)
def is_foreign_file(file):
    """Is it Python's, PyTorch's, NumPy's or ours?"""
    if file.startswith(("<frozen", *_folders())):
        return True
    return file.startswith(_STDLIB) and "site-packages" not in file and "dist-packages" not in file


def is_foreign_module(name):
    """Does a module or class of this name belong to one of those?"""
    return type(name) is not str or name.partition(".")[0] in FOREIGN
