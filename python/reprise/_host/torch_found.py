# SPDX-License-Identifier: MIT
"""Which PyTorch this interpreter has, without importing it: one without NVIDIA's libraries can be
imported only once the host driver's are loaded."""

import importlib.util
import os
import runpy
import sys
from typing import NamedTuple

from .libraries import CUDAS, PYTORCH


class Found(NamedTuple):
    """A PyTorch that is installed. cuda and hip are versions, "" where it is not built for them."""

    version: str
    cuda: str
    hip: str

    @property
    def cuda_major(self):
        """The version of CUDA as the libraries' names have it; 0: none."""
        digits = self.cuda.split(".")[0]
        return int(digits) if digits.isdigit() else 0


def find():
    """What is installed; None: nothing is."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        return None
    try:
        said = runpy.run_path(os.path.join(os.path.dirname(spec.origin), "version.py"))
    except Exception:  # whatever is in another's file
        said = {}
    return Found(str(said.get("__version__", "of an unknown version")), str(said.get("cuda") or ""),
                 str(said.get("hip") or ""))


def _served():
    return "{}.{}".format(*PYTORCH)


def _cudas():
    return " or ".join(map(str, CUDAS))


def _install():
    return f"`{sys.executable} -m pip install --no-deps torch=={_served()}.0` brings one, and needs no GPU"


def problem(found):
    """Why this PyTorch cannot run on the host driver, and what to do, in a sentence; None: it can."""
    if found is None:
        return f"PyTorch is not installed for {sys.executable}: {_install()}"
    if not found.cuda:
        kind = "is built for AMD GPUs" if found.hip else "is built for CPUs alone"
        return (f"PyTorch {found.version} {kind}, and graphs are CUDA's: install one that is built for CUDA "
                f"{_cudas()}; {_install()}")
    if found.cuda_major not in CUDAS:
        return (f"PyTorch {found.version} is built for CUDA {found.cuda}, and the host driver's libraries "
                f"are those of CUDA {_cudas()}: they serve PyTorch {_served()}; {_install()}")
    return None


def import_problem(version, error):
    """What is to be said where this PyTorch could not be imported: a library of it was not loaded, or it
    lacks a module."""
    if not isinstance(error, ModuleNotFoundError):
        return (f"PyTorch {version} asks the CUDA libraries for more than the host driver's have ({error}): "
                f"they serve PyTorch {_served()}; {_install()}")
    return f"PyTorch {version} cannot be imported here: {error}"
