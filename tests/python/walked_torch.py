# SPDX-License-Identifier: MIT
"""A PyTorch for _reads/walk.py where there is none: its classes, without what they do."""

import types


class Tensor:
    pass


class Module:
    def __init__(self):
        self.training = True
        self._parameters, self._buffers, self._modules = {}, {}, {}
        self._forward_hooks, self._forward_pre_hooks = {}, {}


class Optimizer:
    pass


class Function:
    pass


class FunctionMeta(type):
    pass


for _kind in (Module, Optimizer, Function):
    _kind.__module__ = "torch.nn.modules.module"

torch = types.SimpleNamespace(
    Tensor=Tensor, nn=types.SimpleNamespace(Module=Module), dtype=type("dtype", (), {}),
    optim=types.SimpleNamespace(Optimizer=Optimizer), device=type("device", (), {}),
    autograd=types.SimpleNamespace(Function=Function,
                                   function=types.SimpleNamespace(FunctionMeta=FunctionMeta)))
