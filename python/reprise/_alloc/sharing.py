# SPDX-License-Identifier: MIT
"""CUDA tensors that are sent to other processes under install(), with torch.multiprocessing.

PyTorch's way of sending them stays, from the checks of a tensor to the cache of what arrived: answered
are the three methods of storages that it calls. The memory of a heap is mapped in chunks, which other
processes get as file descriptors (lending.py) and map again (borrowing.py), whatever their allocator. The
storage lives until the last of them is done. Where that cannot be, an object arrives that says why, at
its first use: an error of PyTorch's would be lost on the thread that writes to a queue, and the receiver
would wait for ever.
"""

import pickle
from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing import reductions

from .. import _C
from .._base import torch_private
from .._base.warn import warn
from . import borrowing, lending

_MARK = b"reprise\0"  # what handles of ours begin with

_told = False
_lends = False   # is the memory of this process the heap's?
_pytorchs: dict[str, object] = {}  # what was answered, by name


class _Cannot(RuntimeError):
    """Why a tensor is not sent."""


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


def _share(storage, *rest):
    """torch.UntypedStorage._share_cuda_: what PyTorch sends of a storage."""
    device, size = storage.device.index, storage.nbytes()
    if not size:
        return device, None, 0, 0, None, 0, None, False
    if not _lends and not borrowing.holds(storage.data_ptr()):
        return _pytorchs["_share_cuda_"](storage, *rest)
    if torch.cuda.is_current_stream_capturing():
        raise _Cannot("its memory is what a capture gives it. Send it after the capture")
    try:
        if _C.share_memory(storage.data_ptr(), size, False) is None:
            raise _Cannot("its memory is not of Reprise's heap: it is a graph's own, or came from another "
                          "process, or from another library. Send a copy, tensor.clone()")
    except _C.Error as error:
        raise _Cannot(f"{error}. Send a copy on the CPU, tensor.cpu()") from None
    lender = lending.lender()
    loan, message = lender.lend(storage)
    handle = _MARK + pickle.dumps((lender.address, loan))
    return device, handle, size, 0, handle, message, b"", False


def _open(device, handle, *rest):
    """torch.UntypedStorage._new_shared_cuda: the storage again, in the process that receives it."""
    if not handle.startswith(_MARK):
        if not _lends:
            return _pytorchs["_new_shared_cuda"](device, handle, *rest)
        _pytorchs["_release_ipc_counter_cuda"](*rest[2:4])
        raise RuntimeError("the process that sent it has PyTorch's own allocator, and this one Reprise's. "
                           "Call reprise.install() there too, or send a copy on the CPU, tensor.cpu()")
    size, _, _, message = rest[:4]
    return borrowing.borrow(*pickle.loads(handle[len(_MARK):]), message, device, size)


def _release(counter, message, *rest):
    """torch.UntypedStorage._release_ipc_counter_cuda: a message of a storage that is here."""
    if not counter.startswith(_MARK):
        return _pytorchs["_release_ipc_counter_cuda"](counter, message, *rest)
    return borrowing.receive(*pickle.loads(counter[len(_MARK):]), message)


def arrive(tensor_cls, tensor_size, *sent, **named):
    """reductions.rebuild_cuda_tensor, whose arguments these are; or what says why there is no tensor."""
    answer(lends=_lends)
    try:
        return _pytorchs["rebuild_cuda_tensor"](tensor_cls, tensor_size, *sent, **named)
    except (RuntimeError, OSError, EOFError) as error:
        why = str(error) if isinstance(error, RuntimeError) else "the process that sent it is gone"
        return Unshared(f"a CUDA tensor of shape {tuple(tensor_size)} could not be received: {why}")


def _send(tensor):
    """reductions.reduce_tensor, of what cannot be sent too."""
    global _told
    try:
        rebuild, sent = _pytorchs["reduce_tensor"](tensor)
    except _Cannot as cannot:
        why = f"a CUDA tensor of shape {tuple(tensor.shape)} cannot be sent to another process: {cannot}"
        if not _told:
            _told = True
            warn(f"reprise: {why}")
        return Unshared, (why,)
    ours = rebuild in (arrive, _pytorchs["rebuild_cuda_tensor"]) and sent[7] and sent[7].startswith(_MARK)
    return arrive if ours else rebuild, sent


def answer(lends):
    """Has PyTorch send tensors so, and take them. lends: is Reprise's heap PyTorch's allocator?"""
    global _lends
    _lends = lends
    if not _pytorchs:
        _take_over()
    if lends:  # what comes from a process without install() arrives so too
        reductions.rebuild_cuda_tensor = arrive


def _take_over():
    _pytorchs["rebuild_cuda_tensor"] = reductions.rebuild_cuda_tensor
    for name, function in zip(torch_private.SHARING_NAMES, (_share, _open, _release)):
        _pytorchs[name] = getattr(torch.UntypedStorage, name)
        setattr(torch.UntypedStorage, name, function if function is _share else staticmethod(function))
    _pytorchs["reduce_tensor"] = reductions.reduce_tensor
    reductions.reduce_tensor = _send
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _send)
