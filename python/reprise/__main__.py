# SPDX-License-Identifier: MIT
"""python -m reprise run SCRIPT [ARGUMENT...]: installs Reprise, then runs the unchanged program."""

import runpy
import sys

USAGE = """usage: python -m reprise run SCRIPT [ARGUMENT...]
       python -m reprise run -m MODULE [ARGUMENT...]

Puts Reprise's heap in the place of PyTorch's CUDA allocator and runs the program as Python would."""


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    module = arguments[:2] == ["run", "-m"]
    rest = arguments[2 if module else 1:]
    if arguments[0] != "run" or not rest:
        print(USAGE, file=sys.stderr)
        return 2
    from . import install
    try:
        install()
    except (ImportError, RuntimeError, ValueError) as error:
        print(f"reprise: {error}", file=sys.stderr)
        return 1
    sys.argv = rest
    if module:
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        import os
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))
        runpy.run_path(rest[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
