# SPDX-License-Identifier: MIT
"""Warns of the other distribution: PyPI's `reprise` installs into the same folder as this package.

Where the import gets as far as this, this package's files were installed last, or at least its first
one: a warning, not an error. Imports that the other distribution broke fail right after it, by
themselves. Where the other's first file was installed last, only the program `reprise` can tell.
"""

import os

from .warn import warn

FIX = "pip uninstall -y reprise && pip install --force-reinstall --no-deps reprise-cuda"


def find_namesake(folder):
    """The entry of the other distribution in a folder of packages; None where there is none.

    One look at the folder: importlib.metadata would take longer than the rest of the import."""
    try:
        names = os.listdir(folder)
    except OSError:  # imported from an archive
        return None
    return next((name for name in names
                 if name.startswith("reprise-") and name.endswith((".dist-info", ".egg-info"))), None)


def sentence(folder):
    return (f"another distribution named 'reprise' is installed in {folder}, and its files share the "
            f"folder reprise/ with those of reprise-cuda: run `{FIX}`")


def site_folder():
    """The folder of packages that this one lies in."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def warn_of_namesake():
    """For the package's first file, of whose importer the warning is."""
    folder = site_folder()
    if find_namesake(folder):
        warn(sentence(folder), RuntimeWarning)
