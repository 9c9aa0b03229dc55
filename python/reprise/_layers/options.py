# SPDX-License-Identifier: MIT
"""What callers of Transformer Engine's make_graphed_callables pass, by its names of then and now."""

import inspect

_OLD = {"fp8_enabled": "enabled", "fp8_calibrating": "calibrating", "fp8_recipe": "recipe",
        "fp8_group": "amax_reduction_group", "fp8_weight_caching": "cache_quantized_params",
        "_num_layers_per_chunk": "num_layers_per_chunk"}
# What has no meaning here, as nothing is static: inputs are bound, results and gradients fresh.
_MOOT = ("_reuse_graph_input_output_buffers", "clone_param_grads_on_return", "retain_graph_in_backward")
_KNOWN = (*_OLD.values(), *_MOOT, "_order")
HOOKS = ("forward_pre_hooks", "forward_hooks", "backward_pre_hooks", "backward_hooks")


def renamed(given):
    """The options by their names of now. Raises TypeError for those that nobody has."""
    made = {}
    for name, value in given.items():
        now = _OLD.get(name, name)
        if now not in _KNOWN:
            raise TypeError(f"make_graphed_callables() got an unexpected keyword argument '{name}'")
        if value is None and now not in _MOOT:
            continue
        if now in made:
            raise ValueError(f"{name} is the old name of {now}, and both are given: pass {now} alone")
        made[now] = value
    return made


class Hooks:
    """Those that run around warm-up runs and captures, and never in one (capture_time_hooks)."""

    def __init__(self, given, callables):
        given = [None] * len(callables) if given is None else list(given)
        if len(given) != len(callables):
            raise ValueError(f"capture_time_hooks has {len(given)} entries, and there are {len(callables)} callables")
        self._given = [hooks or {} for hooks in given]
        self._callables = callables
        for hooks in self._given:
            unknown = sorted(set(hooks) - set(HOOKS))
            if unknown:
                raise ValueError(f"capture_time_hooks has {unknown[0]!r}, but may have {', '.join(HOOKS)} alone")

    def run(self, which, name):
        for hook in self._given[which].get(name, {}).values():
            if hook(self._callables[which]) is not None:
                raise RuntimeError(f"a hook of capture_time_hooks ({name}) returned a value, and must not")


_OF_CALLS = ("cuda_graph_stream", "cuda_graph_event")


def names_of_calls(fn, takes_flag):
    """What calls may be given by name that is for their replay, and no argument of the callable."""
    try:
        own = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        own = ()
    return tuple(name for name in _OF_CALLS if name not in own) + (("is_first_microbatch",) if takes_flag else ())


def taken_out(kwargs, names):
    """The stream and event of a call, and its is_first_microbatch, taken out of its arguments by name."""
    is_first = None
    if "is_first_microbatch" in names:
        is_first = kwargs.pop("is_first_microbatch", None)
        if not isinstance(is_first, bool):
            raise ValueError("is_first_microbatch has to be given, True or False, as cache_quantized_params is True")
    return (*(kwargs.pop(name, None) if name in names else None for name in _OF_CALLS), is_first)


def on_stream(torch, stream, event, replay, tensors, leaves_of):
    """Replays on a stream, behind what the current one was given; that waits for it, or for the event behind
    it. Autograd goes back on the same stream."""
    current = torch.cuda.current_stream()
    if stream is None or stream == current:
        result = replay(tensors)
        if event is not None:
            event.record(current)
        return result
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        result = replay(tensors)
    if event is None:
        current.wait_stream(stream)
    else:
        event.record(stream)
        current.wait_event(event)
    for tensor in tensors:
        tensor.record_stream(stream)
    for tensor in leaves_of(result):
        tensor.record_stream(current)
    return result
