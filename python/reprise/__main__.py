# SPDX-License-Identifier: MIT
"""python -m reprise run SCRIPT [ARGUMENT...]: installs Reprise, then runs the unchanged program.
python -m reprise estimate FILE:FUNCTION: the memory of its graphs, on a machine without a GPU.
python -m reprise COMMAND [ARGUMENT...]: the command line of the C library."""

import os
import runpy
import sys
from pathlib import Path

USAGE = """usage: python -m reprise run SCRIPT [ARGUMENT...]
       python -m reprise run -m MODULE [ARGUMENT...]
       python -m reprise estimate FILE:FUNCTION [--gpu h200] [--shape ARGUMENTS]...

run puts Reprise's heap in the place of PyTorch's CUDA allocator and runs the program as Python would.
estimate says what memory the graphs of a function will take on a GPU, and needs none.
"""
NAME = "reprise of Python"  # under which the C library's command knows `run`, which is done here
PROGRAM = str(Path(__file__).resolve().with_name("bin") / "reprise")


def _become_program(arguments):
    """Goes on as the C library's command. Its doctor asks this interpreter for PyTorch, unless it is
    told to ask another."""
    if arguments[:1] == ["doctor"] and sys.executable:
        arguments = ["doctor", "--python", sys.executable, *arguments[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(PROGRAM, [NAME, *arguments])
    except OSError as error:
        print(f"reprise: {PROGRAM} could not be started ({error.strerror}): install the package again "
              "with `pip install .`", file=sys.stderr)
        return 2


def _run(arguments):
    """Installs, then runs a script or a module as Python would."""
    module = arguments[:1] == ["-m"]
    rest = arguments[1:] if module else arguments
    if not rest or arguments[0] in ("-h", "--help"):
        print(USAGE, end="", file=sys.stdout if rest else sys.stderr)
        return 0 if rest else 2
    if not module and not os.path.exists(rest[0]):
        print(f"reprise: there is no file '{rest[0]}' to run", file=sys.stderr)
        return 2
    from . import install
    try:
        install()
    except (ImportError, RuntimeError, ValueError) as error:
        text = str(error)
        print(text if text.startswith("reprise") else f"reprise: {text}", file=sys.stderr)
        return 1
    sys.argv = rest
    if module:
        sys.path[0] = os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
        runpy.run_path(rest[0], run_name="__main__")
    return 0


def main(arguments):
    if arguments[:1] == ["run"]:
        return _run(arguments[1:])
    if arguments[:1] == ["estimate"] or arguments == ["help", "estimate"]:
        from ._host.estimate import main as estimate
        return estimate(["--help"] if arguments[0] == "help" else arguments[1:])
    if arguments == ["help", "run"]:
        return _run(["--help"])
    return _become_program(arguments)


def command():
    """The program `reprise` that pip puts beside python."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    command()
