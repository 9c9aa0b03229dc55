# SPDX-License-Identifier: MIT
"""FP8 of Transformer Engine in graphs of single callables (make_graphed_callables(enabled=True, recipe=...)).

What a captured pass reads lies on the device: scales, amax histories, and a flag that says whether cached weights
are good for another microbatch. So one graph serves all microbatches, and scales are updated between replays, as
they are between eager calls: forward ones as the program's autocast ends, backward ones behind the backward pass
of its first module. What that takes is done here in Python around each replay.

Nothing of it is imported unless low precision is asked for; newer versions have it in another module.
"""

import contextlib
import importlib

HOMES = ("transformer_engine.pytorch.quantization", "transformer_engine.pytorch.fp8")
GRAPH = "transformer_engine.pytorch.graph"
MISSING = ("enabled=True asks for FP8 by Transformer Engine, and {}. Install it, or capture the whole step, "
           "reprise.graphed(step, grad=\"whole\"), whose low precision is the program's own")
OUTSIDE = ("'{}' was captured for FP8, and is called outside of autocast, where its scales would not be updated. "
           "Call it within te.autocast(enabled=True, recipe=...)")
STALE = ("'{}' was captured for other memory than `{}` has now: its graphs would go on with a stale scale. Make the "
         "callable anew behind what replaced it (another recipe, a history of another length)")
OTHER = ("'{}' was captured for the recipe {}, and is called in an autocast of {}: its graphs have the first one's. "
         "Call it in an autocast of that, or make the callable anew")
_KEYS, _NAMES = ("scaling_fwd", "scaling_bwd"), ("scale", "amax_history")


class Engine:
    """Transformer Engine, as far as it is needed here."""

    def __init__(self):
        home = _first_that_is_there(HOMES)
        self.graph = _imported(GRAPH)
        self.manager = home.FP8GlobalStateManager
        self.autocast = getattr(home, "autocast", None) or home.fp8_autocast
        self._is_new = hasattr(home, "autocast")
        self.default_recipe = home.get_default_fp8_recipe

    def within(self, enabled, calibrating, recipe, group):
        """The autocast of a pass that is captured: nothing is updated as it ends."""
        names = ("enabled", "calibrating", "recipe", "amax_reduction_group") if self._is_new else (
            "enabled", "calibrating", "fp8_recipe", "fp8_group")
        return self.autocast(**dict(zip(names, (enabled, calibrating, recipe, group))), _graph=True)

    def state(self):
        """What holds autocast's state: it is another at each call, and no graph reads it."""
        return [one for one in (self.manager, getattr(self.manager, "quantization_state", None)) if one is not None]


def _imported(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotImplementedError(MISSING.format(f"{name} cannot be imported ({error})")) from error


def _first_that_is_there(names):
    for name in names[:-1]:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return _imported(names[-1])


class Quantized:
    """Of the callables of one call of make_graphed_callables. enabled: of each; caches: do calls have
    is_first_microbatch?"""

    def __init__(self, torch, callables, enabled, calibrating, recipe, group, caches):
        self._torch, self._callables, self.enabled = torch, callables, enabled
        self._calibrating, self._group, self.caches = calibrating, group, caches
        self._engine = Engine()
        self._recipe = recipe if recipe is not None or not any(enabled) else self._engine.default_recipe()
        self._ran = [[] for _ in callables]  # modules that have scales, in the order in which they ran
        self._scales = [()] * len(callables)  # of each: (path, table, key, name, address)

    def functions(self, functions):
        """These, each in an autocast of its own."""
        return [self._in_autocast(which, function) for which, function in enumerate(functions)]

    def _in_autocast(self, which, function):
        def quantized(*args, **kwargs):
            with self._engine.within(self.enabled[which], self._calibrating, self._recipe, self._group):
                return function(*args, **kwargs)
        return quantized

    def left_out(self):
        return [(one, None) for one in self._engine.state()]

    @contextlib.contextmanager
    def around(self):
        """Warm-up and captures. Scales and histories are behind it as they were, also those that the first run
        made."""
        engine = self._engine
        modules = [fn for fn in self._callables if isinstance(fn, self._torch.nn.Module)]
        if self.caches:
            engine.manager.set_skip_fp8_weight_update_tensor(False)
        saved = engine.graph.save_fp8_tensors(modules, self._recipe)
        engine.graph.set_capture_start()
        try:
            yield
        finally:
            engine.graph.set_capture_end()
            engine.graph.restore_fp8_tensors(modules, saved)

    @contextlib.contextmanager
    def noted(self, which):
        """A warm-up run: which modules in it have scales."""
        fn, ran = self._callables[which], self._ran[which]

        def note(module, *_):
            if any(hasattr(module, name) for name in ("fp8_meta", "_fp8_metas")) and (
                    all(module is not one for one in ran)):
                ran.append(module)
        inner = list(fn.modules()) if isinstance(fn, self._torch.nn.Module) else []
        handles = [module.register_forward_hook(note) for module in inner]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def settle(self, which):
        """Behind the captures: where the scales lie that they read. The tables that name them, which are looked at
        here in each call."""
        fn = self._callables[which]
        names = {id(module): name for name, module in fn.named_modules()} if self._ran[which] else {}
        tables = [(names[id(module)], meta) for module in self._ran[which] for meta in _metas_of(module, self._recipe)]
        self._scales[which] = tuple(
            (f"{path}.{key}.{name}".lstrip("."), meta, key, name, getattr(state, name).data_ptr())
            for path, meta in tables for key, state in meta.items() if key in _KEYS
            for name in _NAMES if isinstance(getattr(state, name, None), self._torch.Tensor))
        return [(meta, None) for _, meta in tables]

    # ---- Calls ----

    def refuse(self, which, name):
        """Raises RuntimeError for a call that graphs in low precision are not for."""
        if not self.enabled[which]:
            return
        manager = self._engine.manager
        if not manager.is_fp8_enabled():
            raise RuntimeError(OUTSIDE.format(name))
        recipe = manager.get_fp8_recipe()
        if recipe is not self._recipe and recipe != self._recipe:
            raise RuntimeError(OTHER.format(name, self._recipe, recipe))
        for path, meta, key, attribute, address in self._scales[which]:
            tensor = getattr(meta.get(key), attribute, None)
            if tensor is None or tensor.data_ptr() != address:
                raise RuntimeError(STALE.format(name, path))

    def ahead(self, which, is_first):
        """Ahead of a replay; is_first: of is_first_microbatch. Returns what goes behind its backward pass, or None."""
        if not self.enabled[which]:
            return None
        manager = self._engine.manager
        group, recipe = manager.get_fp8_group(), manager.get_fp8_recipe()
        for meta in (meta for module in self._ran[which] for meta in _metas_of(module, recipe)):
            meta["fp8_group"], meta["recipe"] = group, recipe
            manager.add_fp8_tensors_to_global_buffer(meta)
        if not manager.is_first_fp8_module():
            return None
        if is_first is not None:
            manager.set_skip_fp8_weight_update_tensor(not is_first)
        return self._updated

    def _updated(self):
        self._engine.manager.reduce_and_update_fp8_tensors(forward=False)


def _metas_of(module, recipe):
    """The tables of a module that name its scales."""
    if type(module).__name__ == "DotProductAttention" and not (
            getattr(recipe, "fp8_dpa", False) or getattr(recipe, "fp8_mha", False)):
        return ()  # it computes in full precision
    if hasattr(module, "fp8_meta"):
        return (module.fp8_meta,)
    return [module._fp8_metas[mode] for mode in ("forward", "backward") if module.num_quantizers(mode)]


def quantized_of(torch, callables, options):
    """What the options ask for; None: full precision."""
    enabled = options.get("enabled", False)
    if not isinstance(enabled, (tuple, list)):
        enabled = (bool(enabled),) * len(callables)
    if len(enabled) != len(callables):
        raise ValueError(f"enabled has {len(enabled)} values, and there are {len(callables)} callables")
    calibrating = bool(options.get("calibrating"))
    if not any(enabled) and not calibrating:
        return None
    for fn, is_on in zip(callables, enabled):
        if is_on and not isinstance(fn, torch.nn.Module):
            raise TypeError(f"enabled=True is for modules, and {fn!r} is none")
    return Quantized(torch, callables, tuple(enabled), calibrating, options.get("recipe"),
                     options.get("amax_reduction_group"), bool(options.get("cache_quantized_params")))
