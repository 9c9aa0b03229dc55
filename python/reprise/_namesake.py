# SPDX-License-Identifier: MIT
"""The program `reprise` that pip makes. It starts where the package's first file is another project's, too."""

import sys

from ._base.namesake import find_namesake, sentence, site_folder


def command():
    """The program `reprise`: says so where the package's first file is the other distribution's. The
    command is a file of its own, and runs all the same."""
    folder = site_folder()
    if not hasattr(sys.modules[__package__], "graphed") and find_namesake(folder):
        print(f"reprise: {sentence(folder)}", file=sys.stderr)
    from .__main__ import command as run
    run()
