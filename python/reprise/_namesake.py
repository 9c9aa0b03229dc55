# SPDX-License-Identifier: MIT
"""Warns of the other distribution: PyPI's `reprise` installs into the same folder as this package.

What runs here is this package, so its files were installed last, or at least its first one: a
warning, not an error. Imports that the other distribution broke fail right after it, by themselves.
"""

import os
import warnings

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


def warn_of_namesake(package_file):
    folder = os.path.dirname(os.path.dirname(os.path.abspath(package_file)))
    if find_namesake(folder):
        warnings.warn(
            f"another distribution named 'reprise' is installed in {folder}, and its files share the "
            f"folder reprise/ with those of reprise-cuda: run `{FIX}`", RuntimeWarning, stacklevel=3)
