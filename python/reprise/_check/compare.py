# SPDX-License-Identifier: MIT
"""What two observed runs of a callable did differently, and what results of two runs differ in."""

from itertools import zip_longest

from .observe import storage_of


def difference(before, after):
    """The first operator in which two runs differ: (kind, Op, what), or None. Operators and their
    order come first, then sizes, then numbers."""
    for one, other in zip_longest(before.ops, after.ops):
        if one is None or other is None or one.name != other.name:
            return ("control-flow", other or one, _other_operator(one, other))
        if one.outputs != other.outputs:
            return ("changing-shapes", other, f"{other.name} gave {_sizes(one)} in one call and "
                                              f"{_sizes(other)} in the next, with the same arguments")
        if one.values != other.values:
            old, new = next((a, b) for a, b in zip_longest(one.values, other.values) if a != b)
            return ("frozen-value", other, f"{other.name} was given {old} in one call and {new} in "
                                           "the next: a graph keeps the one of the capture")
    return None


def _other_operator(one, other):
    if one is None or other is None:
        return f"one call ran {(one or other).name} where another call had ended"
    return f"one call ran {one.name} where the next ran {other.name}"


def _sizes(op):
    return " and ".join("x".join(map(str, shape)) or "a scalar" for shape, _ in op.outputs)


def moved(before, after):
    """Operators that read memory in the second run which lies elsewhere than in the first:
    (kind, Op). before and after ran with arguments at different addresses."""
    seen = set()
    for one, other in zip(before.ops, after.ops):
        for a, b in zip(one.sources, other.sources):
            kind = None
            if a[0] == "argument" and b[0] == "outside":
                kind = "kept-address"  # what was an argument is read again, and is none now
            elif a[0] == b[0] == "outside" and a[2] != b[2]:
                kind = "moved-tensor"
            if kind and (kind, other.frames[:1]) not in seen:
                seen.add((kind, other.frames[:1]))
                yield kind, other


def tensors_of(torch, tree):
    """The tensors in any nesting of containers."""
    from .._base.tree import flatten
    return [leaf for leaf in flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def copies(tensors):
    """Their contents, apart from them; those that share memory share it no more."""
    return [t.detach().clone() for t in tensors]


def is_close(torch, got, want):
    """Are two tensors the same but for rounding?"""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if torch.equal(got, want):
        return True
    if not (got.is_floating_point() or got.is_complex()):
        return False
    tolerance = 16 * torch.finfo(got.dtype).eps ** 0.75
    scale = want.abs().nan_to_num(0, 0, 0).max() if want.numel() else 0
    return torch.allclose(got, want, rtol=tolerance, atol=float(tolerance * scale), equal_nan=True)


def first_other(torch, got, want):
    """The index of the first tensor that differs; None: none does."""
    if len(got) != len(want):
        return min(len(got), len(want))
    for i, (a, b) in enumerate(zip(got, want)):
        if not is_close(torch, a.to(b.device), b):
            return i
    return None


def elsewhere(torch, args, roll=False):
    """Arguments at other addresses: each storage is copied, so that views go on sharing. roll: floating
    values are moved on by one, so that they are others of the same kind."""
    copied = {}

    def other(tensor):
        storage = storage_of(tensor)
        if storage is None:
            return tensor
        if storage._cdata not in copied:
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage).clone()
            if roll and tensor.is_floating_point() and whole.numel() % tensor.element_size() == 0:
                whole = whole.roll(tensor.element_size())
            copied[storage._cdata] = whole.untyped_storage()
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        made.set_(copied[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())
        return made.requires_grad_(tensor.requires_grad)

    return [other(a) if type(a) in (torch.Tensor, torch.nn.Parameter) else a for a in args]
