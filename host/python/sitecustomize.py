# SPDX-License-Identifier: MIT
"""What PyTorch is told on the host driver, in each Python process that has this folder in its path: cuDNN
is a stand-in, so it is off, and PyTorch's own kernels do its work."""

import atexit
import importlib.machinery
import importlib.util
import sys
import time


# PyTorch's autograd threads let go of a step's last tensors after backward() has returned. One that
# wants the interpreter for it while that ends takes the process with it: here, where all is slower,
# more often than on a GPU.
_SETTLE_S = 0.05


def _switch_off(torch):
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)


class _AfterTorch:
    """Finds torch as the other finders do, and changes its switches once it is loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(_AfterTorch)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_switch(module):
            load(module)
            _switch_off(module)
            atexit.register(time.sleep, _SETTLE_S)

        spec.loader.exec_module = load_and_switch
        return spec


def _next_of_this_name():
    """The environment may have a sitecustomize of its own, which this one hides."""
    here = __file__.rpartition("/")[0]
    others = [entry for entry in sys.path if entry and entry.rstrip("/") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _AfterTorch)
_next_of_this_name()
