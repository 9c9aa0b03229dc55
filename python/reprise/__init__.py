# SPDX-License-Identifier: MIT
"""Reprise: CUDA graphs that cost nothing but the launch, for PyTorch.

    import torch, reprise
    reprise.install()                 # optional: planned memory for captures

    model = reprise.graphed(model)    # captured once a shape; inputs bound, outputs fresh

The package imports without PyTorch and without a GPU; what needs them says so when it is called.
"""

import atexit as _atexit

from ._base.namesake import warn_of_namesake as _warn_of_namesake
_warn_of_namesake()  # before what it may have broken

from . import _C, megatron, mends
from ._C import Error
from ._check.check import check
from ._call.estimate import Estimate, estimate
from ._alloc.execs import exec_info, restore_pace, set_exec_budget
from ._check.findings import Findings
from ._call.graphed import Graphed
from ._call.make import graphed, graphed_
from ._alloc.install import install, is_installed
from ._call.module import graphed_of
from ._compile.backend import compile
from ._parts import parts as _by_modules
from ._layers.callables import make_graphed_callables
from ._layers.layers import LayerGraphs, capture_layers
from ._parts.eager import eager
from ._capture.once import graph
from ._alloc.pool import Pool
from ._capture.recording import Recording, record
from ._report.report import report

__version__ = _C.version
__all__ = ["Error", "Estimate", "Findings", "Graphed", "LayerGraphs", "Pool", "Recording", "capture_layers", "check",
           "compile", "eager", "estimate", "exec_info", "graph", "graphed", "graphed_", "graphed_of", "install",
           "is_installed", "make_graphed_callables", "megatron", "mends", "record", "report", "restore_pace", "set_exec_budget"]

_atexit.register(_C.leave)
