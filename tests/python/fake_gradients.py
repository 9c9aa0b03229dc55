# SPDX-License-Identifier: MIT
"""Parameters and gradients without PyTorch, for what only looks at where they lie."""

import contextlib
import types

from reprise._effects.effects import Before
from reprise._effects.refusals import Refusals

ADDRESS = 4096


class Gradient:
    """Four bytes at ADDRESS, that weak references can tell of."""
    layout, dtype, device, shape, _version = "strided", "float", "cuda:0", (), 0
    is_sparse = False

    def untyped_storage(self):
        return self

    def data_ptr(self):
        return ADDRESS

    def numel(self):
        return 1

    def stride(self):
        return ()

    def element_size(self):
        return 4

    def detach(self):
        return self

    def set_(self, other):
        self.data_ptr = other.data_ptr


class Param:
    dtype, device, shape, _version = "float", "cuda:0", (), 0
    requires_grad = True

    def __init__(self, grad=None):
        self.grad = grad

    def stride(self):
        return ()


def fake_torch(waited=lambda: None, **more):
    """What of PyTorch it takes to move gradients; waited() is called where their stream is waited for."""
    cuda = types.SimpleNamespace(
        current_stream=lambda device: types.SimpleNamespace(synchronize=waited))
    cudnn = types.SimpleNamespace(enabled=True, benchmark=False)
    return types.SimpleNamespace(strided="strided", cuda=cuda, backends=types.SimpleNamespace(cudnn=cudnn),
                                 no_grad=contextlib.nullcontext, inference_mode=contextlib.nullcontext,
                                 OutOfMemoryError=MemoryError, **{"is_grad_enabled": lambda: False, **more})


def param(grad=None):
    return Param(grad)


class NoEffects:
    """The state of a program without any."""

    places, may_mislead = (), False
    left = staticmethod(tuple)
    is_part = staticmethod(lambda value: False)
    containers = staticmethod(dict)
    filling = staticmethod(lambda args, kwargs: contextlib.nullcontext())

    def iterators(self):
        return []

    def restore(self):
        pass

    finish = restore

    def keep(self, watched):
        return None

    def watched(self, body):
        return body

    def replayed(self, shape):
        return None


def without_effects(graphed):
    """Lets a callable be captured without a look at Python state."""
    graphed._refusals = Refusals()
    graphed._group = lambda key: key
    graphed._before = lambda *call: Before(graphed._gradients().hold(), NoEffects())


def names(*addresses, bits=1):
    """What a graph says whose nodes name these addresses."""
    def names_of(ranges):
        return tuple(bits * any(start <= a < start + size for a in addresses)
                     for start, size in ranges)
    return names_of
