# SPDX-License-Identifier: MIT
"""Leaves of a result that autograd made of others: an argument itself, another leaf once more, or a view of either.

A graph of a forward pass hands each tensor that it makes over as a result of its own, and autograd knows of none that
it shares memory with another. Who then changes one in place would change the other's elements, and not what autograd
knows of it. So such leaves are no results of the graph: each call makes them of the others, as an eager call does.
"""

OVERLAP = ("two of its results share some of their memory, as slices that overlap do, and neither is a view of the other: "
           "a change of one in place would be none of the other's for autograd. Return what they are slices of")

MOST_TRIED = 8  # times of one stride
PLACE = object()  # stands where such a leaf comes


class Derived:
    """How the leaf `of` a result is made: from the leaf or argument number `source`, as it is or as a view.

    Attributes:
        like: (shape, stride, offset) of a view; None: it is the source itself.
        is_detached: Does no gradient go through it to an argument?
    """

    __slots__ = ("is_argument", "is_detached", "like", "of", "source")

    def __init__(self, of, source, is_argument, like=None, is_detached=False):
        self.of, self.source, self.is_argument = of, source, is_argument
        self.like, self.is_detached = like, is_detached

    def make(self, leaves, arguments):
        source = (arguments if self.is_argument else leaves)[self.source]
        if self.like is None:
            return source
        if self.is_detached:
            source = source.detach()
        shape, stride, offset = self.like
        return source.as_strided(shape, stride, offset + source.storage_offset())


def of_arguments(leaves, arguments, is_tensor):
    """Those of the leaves that are one of the arguments, or a view of one that autograd knows as such."""
    found = []
    for k, leaf in enumerate(leaves):
        if is_tensor(leaf):
            made = next((d for i, x in enumerate(arguments) if (d := _of_argument(k, leaf, i, x)) is not None), None)
            if made is not None:
                found.append(made)
    return found


def _of_argument(k, leaf, i, argument):
    if argument.grad_fn is not None or leaf.dtype != argument.dtype or not _share_storage(leaf, argument):
        return None
    if leaf is argument:
        return Derived(k, i, True)
    is_view = not leaf.requires_grad or _root(leaf) is argument
    if not is_view or leaf.is_conj() != argument.is_conj() or leaf.is_neg() != argument.is_neg() or (
            not _is_within(leaf, argument)):
        return None
    return Derived(k, i, True, _like(leaf, argument), argument.requires_grad and not leaf.requires_grad)


def of_others(leaves, left_out, is_tensor):
    """Those of the leaves that are another one, or a view of one. left_out: which are neither looked at nor the
    source of any. Raises ValueError where two overlap and neither holds the other."""
    found, roots = [], {}
    own = [k for k, leaf in enumerate(leaves) if k not in left_out and is_tensor(leaf)]
    first = {}
    for k in own:
        j = first.setdefault(id(leaves[k]), k)
        if j != k:
            found.append(Derived(k, j, False))
        elif leaves[k].grad_fn is not None:
            roots.setdefault(id(_root(leaves[k])), []).append(k)
    for together in roots.values():
        if len(together) > 1:
            found += _views_among(leaves, together)
    return found


def _views_among(leaves, numbers):
    """Of leaves that are views of one tensor, those within another one: the largest are the sources."""
    found, sources = [], []
    for k in sorted(numbers, key=lambda k: (-_extent(leaves[k])[1] + _extent(leaves[k])[0], k)):
        leaf = leaves[k]
        over = [j for j in sources if _overlap(leaf, leaves[j])]
        if not over:
            sources.append(k)
        elif len(over) == 1 and leaf.dtype == leaves[over[0]].dtype and _is_within(leaf, leaves[over[0]]):
            found.append(Derived(k, over[0], False, _like(leaf, leaves[over[0]])))
        else:
            raise ValueError(OVERLAP)
    return found


def _root(tensor):
    return tensor if tensor._base is None else tensor._base


def _share_storage(one, other):
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _extent(tensor):
    """Its bytes in its storage, from the first element to behind the last."""
    start, size = tensor.storage_offset(), tensor.element_size()
    if tensor.numel() == 0:
        return start * size, start * size
    last = start + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return start * size, (last + 1) * size


def _overlap(one, other):
    """Have they an element in common? Chunks of the last dimension lie between one another, and have none."""
    (a, b), (c, d) = _extent(one), _extent(other)
    if max(a, c) >= min(b, d):
        return False
    if one.element_size() != other.element_size():
        return True
    times = {}  # by stride: the least and the most that it is taken
    for tensor, sign in ((one, 1), (other, -1)):
        for n, stride in zip(tensor.shape, tensor.stride()):
            if n > 1 and stride:
                ends = times.setdefault(stride, [0, 0])
                ends[sign > 0] += sign * (n - 1)
    dims = [(stride, *times[stride]) for stride in sorted(times, reverse=True)]
    return _reaches(other.storage_offset() - one.storage_offset(), dims)


def _reaches(distance, dims):
    """Is a distance the sum of strides, each taken a whole number of times? dims: (stride, least times, most times) of
    each, the longest stride first. True, too, where that takes long to tell."""
    if not dims:
        return distance == 0
    (stride, least, most), rest = dims[0], dims[1:]
    low, high = sum(s * n for s, n, _ in rest), sum(s * n for s, _, n in rest)
    first, last = max(least, -((high - distance) // stride)), min(most, (distance - low) // stride)
    return last - first > MOST_TRIED or any(_reaches(distance - n * stride, rest) for n in range(first, last + 1))


def _is_within(view, source):
    """Are its elements the source's? That of a source with holes is not told."""
    if (view.shape, view.stride(), view.storage_offset()) == (source.shape, source.stride(), source.storage_offset()):
        return True
    (a, b), (c, d) = _extent(view), _extent(source)
    return c <= a and b <= d and d - c == source.numel() * source.element_size()


def _like(view, source):
    return tuple(view.shape), view.stride(), view.storage_offset() - source.storage_offset()
