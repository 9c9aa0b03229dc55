# SPDX-License-Identifier: MIT
"""Mends for obstacles that :func:`reprise.check` finds.

Most take a callable and return one that does the same without the obstacle; a finding offers them as
its ``fix``, and ``findings.mended()`` applies all of them::

    step = reprise.graphed(reprise.mends.constants(step))

They hold for the code that runs within the callable. Each is what a program could do by hand.
"""

import functools
import inspect

from ._base.aside import aside, tensors_in
from ._base.need import need_torch

__all__ = ["capturable", "checkpointed", "clip_grad_norm_", "clipped", "constants", "joined",
           "masked", "unwaited", "without_anomaly_checks"]


def _around(fn, context):
    """fn within a context that is made anew for each call."""
    def mended(*args, **kwargs):
        with context():
            return fn(*args, **kwargs)

    inner = fn.forward if hasattr(fn, "forward") and not hasattr(fn, "__name__") else fn
    functools.update_wrapper(mended, inner)
    mended.__wrapped__ = fn
    return mended


class _replaced:
    """While it is entered, owner.name is another object, for each (owner, name, object)."""

    def __init__(self, *places):
        self.places = places

    def __enter__(self):
        self.before = [(owner, name, getattr(owner, name), name in vars(owner))
                       for owner, name, _ in self.places]
        for owner, name, value in self.places:
            setattr(owner, name, value)

    def __exit__(self, *_):
        for owner, name, value, own in reversed(self.before):
            if own:
                setattr(owner, name, value)
            else:
                delattr(owner, name)


# ---- Memory of the host ----------------------------------------------------------------------------


def constants(fn):
    """Moves from the CPU become constants on the device.

    What ``fn`` moves (``torch.tensor(3.0, device="cuda")``, ``cpu_tensor.cuda()``) is moved by its
    first call, kept, and copied on the device from then on. It is known by its contents: other
    contents are moved again, which a capture refuses; make such a value an argument.
    """
    torch = need_torch()
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
    made = {}
    methods = (torch.Tensor.new_tensor,)
    makers = (torch.tensor, torch.as_tensor, torch.asarray, *methods)

    def device_of(func, args, kwargs):
        """Where what a maker moves from the CPU is going to lie; None: it moves nothing."""
        if any(t.device.type != "cpu" for t in tensors_in(torch, args[func in methods:], kwargs)):
            return None
        if kwargs.get("device") is not None:
            return _indexed(torch, kwargs["device"])
        if func in methods:
            return args[0].device
        data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        return None if isinstance(data, torch.Tensor) else \
            _indexed(torch, torch.get_default_device())

    def is_move(name, args, kwargs):
        source = args[0] if name == "aten::_to_copy" else args[1]
        target = kwargs.get("device") if name == "aten::_to_copy" else args[0].device
        return source.device.type == "cpu" and target is not None and \
            target.type not in ("cpu", "meta")

    def moved(source, device, dtype):
        with aside, _disable_current_modes(), torch.no_grad():
            plain = source.detach().contiguous()
            contents = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
            key = (contents, source.shape, source.stride(), source.dtype, device, dtype)
            if key not in made:
                made[key] = source.detach().to(device, dtype)
            return made[key]

    class Moves(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs, name = kwargs or {}, func._schema.name
            if name not in ("aten::_to_copy", "aten::copy_") or not is_move(name, args, kwargs):
                return func(*args, **kwargs)
            if name == "aten::copy_":
                return func(args[0], moved(args[1], args[0].device, args[0].dtype))
            return moved(args[0], kwargs["device"], kwargs.get("dtype") or args[0].dtype).clone()

    class Makers(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            device = device_of(func, args, kwargs) if func in makers else None
            if device is None or device.type in ("cpu", "meta"):
                return func(*args, **kwargs)
            grad = kwargs.pop("requires_grad", False)
            value = func(*args, **{**kwargs, "device": "cpu"}).to(device)
            return value.requires_grad_(grad)

    class Both:
        def __enter__(self):
            self.modes = (Makers(), Moves())
            for mode in self.modes:
                mode.__enter__()

        def __exit__(self, *error):
            for mode in reversed(self.modes):
                mode.__exit__(*error)

    return _around(fn, Both)


def _indexed(torch, device):
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def masked(fn):
    """``x[mask] = value`` with a boolean mask and one value on the device, without counting."""
    torch = need_torch()
    from torch.utils._python_dispatch import TorchDispatchMode

    class Masks(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func._schema.name == "aten::index_put_" and is_fill(torch, *args):
                target, (mask,), value = args[:3]
                mask = mask.reshape(mask.shape + (1,) * (target.dim() - mask.dim()))
                return target.copy_(torch.where(mask, value.to(target.dtype), target))
            return func(*args, **(kwargs or {}))

    return _around(fn, Masks)


def is_fill(torch, target, indices, value, accumulate=False):
    """Do these arguments of index_put_ fill one value in by one mask?"""
    return (not accumulate and len(indices) == 1 and indices[0] is not None and
            indices[0].dtype == torch.bool and value.numel() == 1)


# ---- Waiting ---------------------------------------------------------------------------------------


def unwaited(fn):
    """``synchronize`` of device, streams and events does nothing within ``fn``: on the device its
    work is ordered by streams, and the caller may wait after it."""
    torch = need_torch()

    def nothing(*_, **__):
        return None

    cuda = torch.cuda
    places = ((cuda, "synchronize", nothing), (cuda.Stream, "synchronize", nothing),
              (cuda.Event, "synchronize", nothing))
    return _around(fn, lambda: _replaced(*places))


def joined(fn):
    """At its end the current stream waits for every stream that was made current within ``fn``."""
    torch = need_torch()

    class Join:
        def __enter__(self):
            self.used = {}
            original = torch.cuda.set_stream

            def set_stream(stream):
                original(stream)
                if stream is not None:
                    self.used[stream.cuda_stream] = stream

            # torch.cuda.stream(...) calls the function of its own module
            self.replaced = _replaced((torch.cuda, "set_stream", set_stream))
            self.replaced.__enter__()

        def __exit__(self, *error):
            self.replaced.__exit__()
            current = torch.cuda.current_stream()
            for raw, stream in self.used.items():
                if raw != current.cuda_stream and error[0] is None:
                    current.wait_stream(stream)

    return _around(fn, Join)


# ---- Training --------------------------------------------------------------------------------------


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """``torch.nn.utils.clip_grad_norm_`` that never reads a value.

    Returns the norm, as that does. With ``error_if_nonfinite`` nothing is raised: look at the norm
    after the replay (``norm.isfinite()``).
    """
    torch = need_torch()
    del error_if_nonfinite
    clip = torch.nn.utils.clip_grad.clip_grad_norm_
    return getattr(clip, "__wrapped_by_reprise__", clip)(parameters, max_norm, norm_type, False,
                                                         foreach)


def clipped(fn):
    """:func:`clip_grad_norm_` in the place of PyTorch's within ``fn``, also where the program has
    imported it by name into the module of ``fn``."""
    torch = need_torch()
    original = torch.nn.utils.clip_grad.clip_grad_norm_

    def clip(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
        return clip_grad_norm_(parameters, max_norm, norm_type, foreach=foreach)

    clip.__wrapped_by_reprise__ = original
    places = [(torch.nn.utils, "clip_grad_norm_", clip),
              (torch.nn.utils.clip_grad, "clip_grad_norm_", clip)]
    places += _imported(fn, original, clip)
    return _around(fn, lambda: _replaced(*places))


class _Globals:
    """A module's globals as attributes."""

    def __init__(self, names):
        object.__setattr__(self, "__dict__", names)


def _imported(fn, original, instead):
    """Where the module of fn has a function by name."""
    fn = inspect.unwrap(fn)
    fn = getattr(fn, "__func__", None) or getattr(type(fn), "forward", fn)
    names = getattr(fn, "__globals__", {})
    return [(_Globals(names), name, instead) for name, value in names.items() if value is original]


def checkpointed(fn):
    """``torch.utils.checkpoint`` without the random state within ``fn``: right where nothing random
    is recomputed."""
    torch = need_torch()
    module = torch.utils.checkpoint
    original = module.checkpoint

    @functools.wraps(original)
    def checkpoint(*args, **kwargs):
        return original(*args, **{**kwargs, "preserve_rng_state": False})

    places = [(module, "checkpoint", checkpoint), *_imported(fn, original, checkpoint)]
    return _around(fn, lambda: _replaced(*places))


def without_anomaly_checks(fn):
    """Anomaly detection is off within ``fn``, and cannot be switched on there."""
    torch = need_torch()

    class Off:
        def __enter__(self):
            self.before = (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
            torch.set_anomaly_enabled(False, False)
            self.replaced = _replaced((torch, "set_anomaly_enabled", lambda *_, **__: None))
            self.replaced.__enter__()

        def __exit__(self, *_):
            self.replaced.__exit__()
            torch.set_anomaly_enabled(*self.before)

    return _around(fn, Off)


def capturable(optimizer):
    """Makes an optimizer capturable: its groups, and step counts that lie on the CPU."""
    for group in optimizer.param_groups:
        if "capturable" not in group:
            continue
        group["capturable"] = True
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if hasattr(state.get("step"), "to"):
                state["step"] = state["step"].to(parameter.device)
    return optimizer


def capturable_fix(optimizer):
    """The mend of one optimizer, as a function of the callable that steps it."""
    def capturable_optimizer(fn):
        capturable(optimizer)
        return fn
    return capturable_optimizer
