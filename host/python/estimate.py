#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How much memory the graphs of a program will take on a GPU, asked where there is none:

    scripts/torch_on_host.sh PYTHON host/python/estimate.py FILE.py:FUNCTION [--without-install]

FUNCTION takes nothing and returns a callable, such as a module on the device, and a list of tuples of
arguments, one for each shape. Prints reprise.estimate's answer; with Reprise's allocator, unless it is
left out. What libraries that are stand-ins here would take on a GPU is not in it: cuDNN's workspaces."""

import argparse
import runpy
import sys

import reprise


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", metavar="FILE.py:FUNCTION")
    parser.add_argument("--without-install", action="store_true")
    args = parser.parse_args()
    path, colon, name = args.subject.rpartition(":")
    if not colon or not path:
        parser.error("name a file and a function in it: model.py:build")
    if not args.without_install:
        reprise.install()
    try:
        build = runpy.run_path(path)[name]
    except FileNotFoundError:
        parser.error(f"there is no file {path}")
    except KeyError:
        parser.error(f"{path} has no function {name}")
    made = build()
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]):
        parser.error(f"{name} has to return a callable and a list of tuples of arguments")
    import torch
    with torch.no_grad():
        found = reprise.estimate(*made)
    print(found)
    for shape, reason in dict(found.failures).items():
        print(f"not captured: {shape}: {reason}", file=sys.stderr)
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
