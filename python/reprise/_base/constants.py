# SPDX-License-Identifier: MIT
"""Which values that a callable returns are the same at every call, though each call makes them anew."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented), slice, range)
# Of these modules objects do not change.
_WRITTEN = frozenset(("decimal", "fractions", "datetime", "uuid", "pathlib"))
_OF_TORCH = frozenset(("device", "dtype", "layout", "memory_format", "Size", "finfo", "iinfo"))


def are_constant(a, b):
    """Are a and b, which two runs returned, values that nobody can change, and alike? Numbers of runs may
    differ where replays follow them."""
    kind = type(a)
    if kind is not type(b):
        return isinstance(a, float) and isinstance(b, float)
    module = kind.__module__
    if kind in _PLAIN or isinstance(a, (int, float)) or module.partition(".")[0] == "reprise":
        return True
    if kind is frozenset or module in _WRITTEN or (module == "torch" and kind.__name__ in _OF_TORCH):
        return a == b
    return module == "numpy" and kind.__name__ != "ndarray" and hasattr(a, "tobytes") and (
        a.tobytes() == b.tobytes())
