# SPDX-License-Identifier: MIT
"""FP8 with delayed scaling by hand, under the names of Transformer Engine: what of it make_graphed_callables asks
for, and a linear layer. Values are rounded to a grid in full precision, or multiplied by torch._scaled_mm."""

import contextlib
import dataclasses
import sys
import types

import torch

MOST = {"scaling_fwd": 448.0, "scaling_bwd": 57344.0}


@dataclasses.dataclass
class DelayedScaling:
    amax_history_len: int = 4
    margin: int = 0


class State:
    """Scales and histories of the operands of one pass."""

    def __init__(self, operands, length):
        self.scale = torch.ones(operands, device="cuda")
        self.amax_history = torch.zeros(length, operands, device="cuda")


class _Global:
    def __init__(self):
        self.enabled = self.calibrating = self.capturing = self.first = False
        self.recipe = self.group = self.skip = None
        self.depth, self.buffers, self.updates = 0, {}, 0


class FP8GlobalStateManager:
    quantization_state = _Global()

    @classmethod
    def reset(cls):
        cls.quantization_state = _Global()

    @classmethod
    def is_fp8_enabled(cls):
        return cls.quantization_state.enabled

    @classmethod
    def get_fp8_recipe(cls):
        return cls.quantization_state.recipe or DelayedScaling()

    @classmethod
    def get_fp8_group(cls):
        return cls.quantization_state.group

    @classmethod
    def is_first_fp8_module(cls):
        first, cls.quantization_state.first = cls.quantization_state.first, False
        return first

    @classmethod
    def set_skip_fp8_weight_update_tensor(cls, skip):
        if cls.quantization_state.skip is None:
            cls.quantization_state.skip = torch.empty(1, device="cuda")
        cls.quantization_state.skip.fill_(float(skip))

    @classmethod
    def add_fp8_tensors_to_global_buffer(cls, meta):
        if "index" in meta:
            return
        meta["index"] = len(cls.quantization_state.buffers)
        cls.quantization_state.buffers[meta["index"]] = meta

    @classmethod
    def reduce_and_update_fp8_tensors(cls, forward=True):
        key = "scaling_fwd" if forward else "scaling_bwd"
        cls.quantization_state.updates += 1
        for meta in cls.quantization_state.buffers.values():
            state = meta[key]
            amax = state.amax_history.amax(0)
            scale = MOST[key] / amax.clamp_min(1e-12)
            state.scale.copy_(torch.where(amax > 0, scale, state.scale))
            state.amax_history.copy_(torch.cat([torch.zeros_like(state.amax_history[:1]), state.amax_history[:-1]]))


@contextlib.contextmanager
def autocast(enabled=True, calibrating=False, recipe=None, amax_reduction_group=None, _graph=False):
    state = FP8GlobalStateManager.quantization_state
    before = state.enabled, state.calibrating, state.recipe, state.group, state.first, state.capturing
    state.enabled, state.calibrating, state.recipe, state.group = enabled, calibrating, recipe, amax_reduction_group
    state.capturing = _graph
    if state.depth == 0:
        state.first = True
    state.depth += 1
    try:
        yield
    finally:
        state.depth -= 1
        if enabled and state.depth == 0 and not _graph and torch.is_grad_enabled():
            FP8GlobalStateManager.reduce_and_update_fp8_tensors(forward=True)
        state.enabled, state.calibrating, state.recipe, state.group, state.first, state.capturing = before


def rounded(x, scale, most):
    """On the grid that eight bits and this scale have."""
    return (x * scale).clamp(-most, most).bfloat16().to(x.dtype) / scale


def note(history, column, x, skip=None):
    amax = history[0, column:column + 1]
    noted = torch.maximum(amax, x.detach().abs().amax().float().reshape(1))
    amax.copy_(noted if skip is None else torch.where(skip > 0, amax, noted))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, rounded_weight, meta, updates):
        state = meta["scaling_fwd"]
        note(state.amax_history, 0, x)
        x = rounded(x, state.scale[0], MOST["scaling_fwd"])
        ctx.save_for_backward(x, rounded_weight)
        ctx.meta, ctx.updates = meta, updates
        return x @ rounded_weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        state = ctx.meta["scaling_bwd"]
        note(state.amax_history, 0, grad)
        grad = rounded(grad, state.scale[0], MOST["scaling_bwd"])
        found = grad @ weight, grad.t() @ x
        if ctx.updates:
            FP8GlobalStateManager.reduce_and_update_fp8_tensors(forward=False)
        return (*found, None, None, None)


class Linear(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, width) / width ** 0.5)
        self.fp8_meta = {}
        self.cached = None

    def forward(self, x, is_first_microbatch=None):
        state = FP8GlobalStateManager.quantization_state
        if not state.enabled:
            return x @ self.weight.t()
        meta = self.fp8_meta
        if "scaling_fwd" not in meta:
            meta["scaling_fwd"] = State(2, state.recipe.amax_history_len)
            meta["scaling_bwd"] = State(1, state.recipe.amax_history_len)
        meta["recipe"], meta["fp8_group"] = state.recipe, state.group
        if not state.capturing:
            FP8GlobalStateManager.add_fp8_tensors_to_global_buffer(meta)
        weight = self.quantized(state, meta["scaling_fwd"], is_first_microbatch)
        first = FP8GlobalStateManager.is_first_fp8_module()
        return _Product.apply(x, self.weight, weight, meta, first and not state.capturing)

    def quantized(self, state, scaling, is_first):
        """The weight in eight bits; of another microbatch than the first that of the first, which a graph finds out
        on the device."""
        weight = self.weight.detach()
        skip = state.skip if state.capturing else None
        if skip is None and is_first is False:
            return self.cached
        note(scaling.amax_history, 1, weight, skip)
        made = rounded(weight, scaling.scale[1], MOST["scaling_fwd"])
        if skip is None and is_first is None:
            return made
        if self.cached is None:
            self.cached = torch.zeros_like(weight)
        self.cached.copy_(made if skip is None else torch.where(skip > 0, self.cached, made))
        return self.cached


def _states(modules):
    return [state for module in modules for m in module.modules() if isinstance(m, Linear)
            for key, state in m.fp8_meta.items() if key in MOST]


def save_fp8_tensors(modules, recipe):
    return [(state, state.scale.clone(), state.amax_history.clone()) for state in _states(modules)]


def restore_fp8_tensors(modules, saved):
    known = {id(state) for state, _, _ in saved}
    for state, scale, history in saved:
        state.scale.copy_(scale)
        state.amax_history.copy_(history)
    for state in _states(modules):
        if id(state) not in known:
            state.scale.fill_(1)
            state.amax_history.zero_()


captures = []


def set_capture_start():
    captures.append(True)


def set_capture_end():
    captures.append(False)


def install(old=False):
    """Puts it where Transformer Engine is looked for; old: by the names of earlier versions."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformer_engine"]:
        del sys.modules[name]
    FP8GlobalStateManager.reset()
    captures.clear()
    if old:
        def fp8_autocast(enabled=True, calibrating=False, fp8_recipe=None, fp8_group=None, _graph=False):
            return autocast(enabled, calibrating, fp8_recipe, fp8_group, _graph)
        names = {"fp8_autocast": fp8_autocast}
    else:
        names = {"autocast": autocast}
    made = {"transformer_engine": {}, "transformer_engine.pytorch": {},
            f"transformer_engine.pytorch.{'fp8' if old else 'quantization'}": dict(
                names, FP8GlobalStateManager=FP8GlobalStateManager, get_default_fp8_recipe=DelayedScaling),
            "transformer_engine.pytorch.graph": dict(
                save_fp8_tensors=save_fp8_tensors, restore_fp8_tensors=restore_fp8_tensors,
                set_capture_start=set_capture_start, set_capture_end=set_capture_end)}
    for name, members in made.items():
        module = types.ModuleType(name)
        module.__path__ = []
        vars(module).update(members)
        sys.modules[name] = module


def uninstall():
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformer_engine"]:
        del sys.modules[name]
