# SPDX-License-Identifier: MIT
"""What a mend and the observer of a check agree on: which work is not the program's."""


class _Aside:
    """What a mend prepares once, at its first call, is not of the callable: meanwhile nothing that
    happens is noted."""

    depth = 0

    def __enter__(self):
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1


aside = _Aside()


def tensors_in(torch, args, kwargs):
    # No inner function that calls itself: such a cycle would keep tensors until it is collected.
    found = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += tensors_in(torch, value, {})
    return found
