# SPDX-License-Identifier: MIT
"""Reprise: CUDA graphs that cost nothing but the launch, for PyTorch.

    import torch, reprise
    reprise.install()                 # optional: planned memory for captures

    model = reprise.graphed(model)    # captured once a shape; inputs bound, outputs fresh

The package imports without PyTorch and without a GPU; what needs them says so when it is called.
"""

import atexit as _atexit

from ._namesake import warn_of_namesake as _warn_of_namesake
_warn_of_namesake()  # before what it may have broken

from . import _C, mends
from ._C import Error
from ._callables import make_graphed_callables
from ._check import check
from ._estimate import Estimate, estimate
from ._execs import exec_info, restore_pace, set_exec_budget
from ._findings import Findings
from ._graphed import Graphed, graphed, graphed_
from ._install import install, is_installed
from ._module import graphed_of
from ._once import graph
from ._pool import Pool
from ._report import report

__version__ = _C.version
__all__ = ["Error", "Estimate", "Findings", "Graphed", "Pool", "check", "estimate", "exec_info", "graph",
           "graphed", "graphed_", "graphed_of", "install", "is_installed", "make_graphed_callables", "mends",
           "report", "restore_pace", "set_exec_budget"]

_atexit.register(_C.leave)
