# SPDX-License-Identifier: MIT
"""The versions of PyTorch that Reprise supports, and what a Python has of PyTorch and Reprise.

TABLE is the one list of versions; scripts/check_docs.py keeps the README's equal to it.

`reprise doctor` carries the text of this file and runs it with the Python that it asks. The package
may be missing there, or be another project's. So this file imports only the standard library, and
the package where it asks about that. `python -m reprise._base.versions` prints the same lines.
"""

import functools
import importlib.util
import os
import sys
import warnings
from typing import NamedTuple

WHOLE, SOME, NOT_RUN = "all passed", "not all passed", "not run"
_H200 = "bench/results/h200/versions.json"


class Version(NamedTuple):
    """A release of PyTorch, and which of the tests that need a GPU passed with it."""

    version: str
    python: str   # the CPython versions that PyTorch has wheels for
    state: str    # WHOLE, SOME or NOT_RUN
    gpu: str      # on which; empty where nothing was run
    results: str  # the file that keeps the results


TABLE = (
    Version("2.9.1", "3.10 to 3.14", WHOLE, "H200", _H200),
    Version("2.10.0", "3.10 to 3.14", WHOLE, "H200", _H200),
    Version("2.11.0", "3.10 to 3.14", WHOLE, "H200", _H200),
    Version("2.12.1", "3.10 to 3.14", WHOLE, "H200", _H200),
    Version("2.13.0", "3.10 to 3.14", WHOLE, "H200", _H200),
    Version("2.14.1", "3.10 to 3.14", WHOLE, "H200", _H200),
    Version("2.15.0", "3.11 to 3.14", WHOLE, "H200", _H200),
)


def numbers(version):
    """(2, 11) of "2.11.0+cu130"; () of what is no version."""
    return _numbers(str(version))


@functools.lru_cache(maxsize=64)
def _numbers(version):
    parts = version.split("+")[0].split(".")[:2]
    digits = ["".join(c for c in part if c.isdigit()) for part in parts]
    return tuple(map(int, digits)) if len(digits) == 2 and all(digits) else ()


TESTED = frozenset(numbers(row.version) for row in TABLE if row.state != NOT_RUN)
FAILING = frozenset(numbers(row.version) for row in TABLE if row.state == SOME)
OLDEST = numbers(TABLE[0].version)
NEWEST = max(TESTED)  # the newest that was tested


def is_too_old(version):
    return () < numbers(version) < OLDEST


def judge(version):
    """What is to be said of a version of PyTorch, in one sentence; None: nothing."""
    found = numbers(version)
    newest = "{}.{}".format(*NEWEST)
    rest = "what can be proved at import works, the rest is refused by name"
    if not found:
        return f"PyTorch's version {version!r} cannot be read: {rest}"
    if is_too_old(version):
        return "PyTorch {} is too old: Reprise needs {}.{} or later".format(version, *OLDEST)
    if found > NEWEST:
        return f"PyTorch {version} is newer than {newest}, which is the newest that was tested: {rest}"
    if found not in TESTED:
        return f"PyTorch {version} was not tested: {rest}"
    if found in FAILING:
        return (f"not all tests of Reprise passed with PyTorch {version}: docs/status.md says which, and "
                "what to do")
    return None


# ---- What `reprise doctor` asks ----
#
# Each line is a key and a text: facts (python, torch, cuda, ...), `problem` (this PyTorch cannot use
# Reprise, and what to do) and `warning`.


def _said(error):
    """The first line of what an exception says, or its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _find(name):
    """Where a package would be imported from; None: there is none, or a folder of that name alone."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    return spec if spec is not None and spec.origin is not None else None


def _availability(torch):
    """Does PyTorch see a GPU, and if not, its own reason."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            if torch.cuda.is_available():
                return "yes", ""
            torch.cuda.init()
        except Exception as error:
            return "no", _said(error)
    return "no", _said(heard[0].message) if heard else ""


def _allocator(torch):
    try:
        return str(torch.cuda.get_allocator_backend())
    except Exception:  # a PyTorch without CUDA has none
        return "unknown"


def _about_torch(torch):
    version = str(getattr(torch, "__version__", "unknown"))
    built = getattr(torch, "version", None)
    yield "torch", version
    yield "cuda", str(getattr(built, "cuda", None) or "none")
    yield "hip", str(getattr(built, "hip", None) or "none")
    judged = judge(version)
    if judged:
        yield "problem" if is_too_old(version) else "warning", judged
    allocator = _allocator(torch)
    yield "allocator", allocator
    if allocator == "cudaMallocAsync":
        yield "problem", ("PyTorch's allocator is cudaMallocAsync, whose memory cannot be planned: set "
                          "backend:native in PYTORCH_ALLOC_CONF, or leave it out")
    elif allocator == "pluggable":
        yield "problem", ("another allocator took the place of PyTorch's as Python started, and "
                          "reprise.install() cannot replace it: look for a sitecustomize.py or .pth file "
                          "that calls torch.cuda.memory.change_current_allocator")
    started = getattr(torch.cuda, "is_initialized", None)
    if started is not None and started():
        yield "problem", ("CUDA is in use right after `import torch`, so reprise.install() always comes "
                          "too late: look for a sitecustomize.py or .pth file that uses the GPU")
    available, reason = _availability(torch)
    yield "available", available
    if reason:
        yield "reason", reason


def _is_ours(folders):
    """Do these folders of a package called reprise hold this project's?"""
    return any(name.startswith("_C.") for folder in folders if os.path.isdir(folder)
               for name in os.listdir(folder))


def _about_package(command):
    """What there is of the package; `command` is the version of the command that asks, or None."""
    python = sys.executable
    found = _find("reprise")
    if found is None:
        yield "reprise", "none"
        yield "problem", (f"the package reprise is not installed for {python}: install it with the pip of "
                          f"that Python, `{python} -m pip install .` in a clone of Reprise")
        return
    if not _is_ours(found.submodule_search_locations or ()):
        yield "reprise", "another project"
        yield "problem", (f"{found.origin} is another project that is called reprise: run "
                          f"`{python} -m pip uninstall reprise`, then install this one")
        return
    try:
        import reprise
        version = reprise.__version__
    except Exception as error:
        yield "reprise", "cannot be imported"
        yield "problem", (f"the package reprise in {os.path.dirname(found.origin)} cannot be imported, "
                          f"install it again: {_said(error)}")
        return
    yield "reprise", version
    if command not in (None, version):
        yield "problem", (f"the package reprise is version {version}, and this command is {command}: "
                          "install both from the same version")
    yield from _about_install()
    yield from _about_features()


def _about_install():
    """Does reprise.install() take the settings of the environment?"""
    try:
        from reprise._alloc.options import from_environment, heap_options
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            heap_options(from_environment())
    except ImportError:
        return
    except ValueError as error:
        yield "problem", f"reprise.install() refuses a setting of PYTORCH_ALLOC_CONF: {_said(error)}"


def _about_features():
    """What is turned off, as this PyTorch lacks something that it needs."""
    try:
        from reprise._base.torch_private import missing
    except ImportError:
        return
    for feature, sentence in missing():
        yield "warning", f"{feature} is turned off on this PyTorch: {sentence}"


def lines(command=None):
    """All that is known of this Python's PyTorch and Reprise, as (key, text)."""
    yield "python", sys.executable
    if _find("torch") is None:
        yield "absent", f"it is not installed for {sys.executable}"
        return
    try:
        import torch
    except Exception as error:
        yield "problem", f"PyTorch is installed and cannot be imported: {_said(error)}"
        return
    yield from _about_torch(torch)
    yield from _about_package(command)


def main(arguments):
    """Prints the lines. What modules print as they are imported goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    with out:
        for key, text in lines(*arguments[:1]):
            print(key, " ".join(text.split()), file=out, flush=True)
        print("end", file=out)


if __name__ == "__main__":
    main(sys.argv[1:])
