# SPDX-License-Identifier: MIT
"""What an estimate is of: FILE:FUNCTION, and shapes as the command line gives them."""

import ast
import difflib
import importlib.util
import inspect
import os
import re
import sys

_DTYPES = {name: name for name in (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128",
    "int64", "int32", "int16", "int8", "uint8", "bool")}
_DTYPES.update(double="float64", float="float32", half="float16", long="int64", int="int32", f64="float64",
               f32="float32", f16="float16", bf16="bfloat16", i64="int64", i32="int32")
_SIZES = re.compile(r"\d+(x\d+)*")
HOW = "a shape is 8x1024, 8x128:int64, scalar, or 8x1024,8x1024:float16 for two arguments"


class Wrong(Exception):
    """What the user has to put right, in a sentence."""


def split(text):
    """The path and the function's name of FILE:FUNCTION."""
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name:
        raise Wrong(f"'{text}' is no FILE:FUNCTION: name a file and a function in it, as in model.py:build")
    if not os.path.isfile(path):
        raise Wrong(f"there is no file '{path}'")
    return path, name


def _argument(text):
    """One argument: ("tensor", sizes, type), or ("value", a Python literal)."""
    if text.startswith("="):
        try:
            return "value", ast.literal_eval(text[1:])
        except (ValueError, SyntaxError):
            raise Wrong(f"'{text}' is no Python literal, as =8 or =None would be") from None
    sizes, _, name = text.partition(":")
    if sizes != "scalar" and not _SIZES.fullmatch(sizes):
        raise Wrong(f"'{text}' is no shape: {HOW}")
    if name and name not in _DTYPES:
        near = difflib.get_close_matches(name, _DTYPES, 1)
        raise Wrong(f"'{name}' is no type of a tensor{': did you mean ' + near[0] + '?' if near else ''}")
    sizes = [] if sizes == "scalar" else [int(n) for n in sizes.split("x")]
    return "tensor", sizes, _DTYPES[name or "float32"]


def shape(text):
    """The arguments of one call, for example of 8x1024,8x128:int64."""
    return [_argument(part.strip()) for part in text.split(",")]


def tensors(torch, arguments):
    """A call's arguments of what shape() gave; tensors without memory."""
    return tuple(words[0] if kind == "value" else
                 torch.empty(words[0], dtype=getattr(torch, words[1]), device="meta")
                 for kind, *words in arguments)


# ---- The function ----


def load(path, name):
    """The function called name that a file defines. The file is run as a module would be."""
    module_name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None:
        raise Wrong(f"'{path}' is no Python file: its name has to end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if callable(found):
        return found
    if found is not None:
        raise Wrong(f"'{name}' in {path} is no function but of type {type(found).__name__}")
    others = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    near = difflib.get_close_matches(name, others, 1)
    raise Wrong(f"{path} has no function '{name}'{': did you mean ' + near[0] + '?' if near else ''}")


def takes_arguments(fn):
    """Has a callable to be called with arguments? One that cannot be asked has."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
               for p in parameters) or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _as_calls(torch, name, shapes):
    """A list of tuples of arguments, as the function gave it; one tensor alone is one argument."""
    if isinstance(shapes, torch.Tensor) or not hasattr(shapes, "__iter__"):
        raise Wrong(f"what {name}() returns second has to be a list of tuples of arguments, and is of type "
                    f"{type(shapes).__name__}")
    calls = [given if isinstance(given, tuple) else (given,) for given in shapes]
    if not calls:
        raise Wrong(f"{name}() returned no shapes")
    return calls


def resolve(torch, fn, name, shapes):
    """The callable to estimate and its calls' arguments.

    A function that takes arguments is what is captured, and shapes are the command line's. One that
    takes none makes it: it returns a callable, and a list of tuples of arguments unless there are
    shapes."""
    calls = [tensors(torch, arguments) for arguments in shapes]
    is_module = isinstance(fn, torch.nn.Module)
    if is_module or takes_arguments(fn):
        if not calls:
            raise Wrong(f"{name} takes arguments, and none are known: add --shape ({HOW}), or name a "
                        "function without parameters that returns a callable and a list of tuples of "
                        "arguments")
        return fn, calls
    made = fn()
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        return made[0], calls or _as_calls(torch, name, made[1])
    if not callable(made):
        raise Wrong(f"{name}() has to return a callable, or a callable and a list of tuples of arguments, "
                    f"and returned {type(made).__name__}")
    if not calls:
        raise Wrong(f"{name}() returned a callable without shapes: add --shape ({HOW})")
    return made, calls
