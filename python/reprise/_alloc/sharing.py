# SPDX-License-Identifier: MIT
"""CUDA tensors that are sent to other processes under install(), with torch.multiprocessing.

CUDA shares memory between processes by handles of whole allocations of cudaMalloc, and the heap's
memory is mapped in chunks. PyTorch would fail on the thread that writes to a queue, and the receiver
would wait for ever. So what arrives instead is an object that says why, at its first use.
"""

from .._base.warn import warn

_told = False


def _reason(tensor):
    return (f"a CUDA tensor of shape {tuple(tensor.shape)} was sent from a process under reprise.install(), "
            "whose memory other processes cannot open. Send a copy on the CPU, tensor.cpu(), or leave "
            "install() out in the process that sends")


class Unshared:
    """What arrives in the place of such a tensor. Any use raises RuntimeError."""

    def __init__(self, why):
        self.__dict__["_why"] = why

    def __reduce__(self):
        return Unshared, (self.__dict__["_why"],)

    def __repr__(self):
        return f"<no tensor: {self.__dict__['_why']}>"

    def __getattr__(self, name):
        raise RuntimeError(self.__dict__["_why"])

    def __setattr__(self, name, value):
        raise RuntimeError(self.__dict__["_why"])

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        for value in (*args, *(kwargs or {}).values()):
            if isinstance(value, cls):
                raise RuntimeError(value.__dict__["_why"])
        return NotImplemented


def _refusing(name):
    def refuse(self, *_):
        raise RuntimeError(self.__dict__["_why"])
    refuse.__name__ = name
    return refuse


for _operation in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "matmul", "rmatmul", "pow",
                   "rpow", "neg", "abs", "lt", "le", "gt", "ge", "getitem", "setitem", "len", "iter", "bool",
                   "int", "float", "index", "contains", "iadd", "isub", "imul", "itruediv"):
    setattr(Unshared, f"__{_operation}__", _refusing(f"__{_operation}__"))


def answer(torch):
    """Has such tensors sent as what says why they could not be."""
    from multiprocessing.reduction import ForkingPickler
    reductions = torch.multiprocessing.reductions
    pytorchs = reductions.reduce_tensor

    def reduce_tensor(tensor):
        global _told
        if not tensor.is_cuda:
            return pytorchs(tensor)
        why = _reason(tensor)
        if not _told:
            _told = True
            warn(f"reprise: {why}")
        return Unshared, (why,)

    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, reduce_tensor)
