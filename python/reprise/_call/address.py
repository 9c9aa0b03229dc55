# SPDX-License-Identifier: MIT
"""Shows the C extension where PyTorch keeps a tensor's address and its kind
(python/csrc/base/tensor_address.h), and its gradient (python/csrc/base/gradient_address.h)."""

from .. import _C

_known = None
_known_gradients = None
# PyTorch's numbers of dtypes, c10::ScalarType.
_TYPES = {"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6, "float64": 7,
          "complex64": 9, "complex128": 10, "bool": 11, "bfloat16": 15}


def _tensors(torch):
    """Tensors on the CPU of several kinds, and after everything that moves one; each is seen as it is
    then."""
    size = 64
    base, other = torch.arange(size), torch.zeros(size)
    yield base
    yield base[5:]
    yield base.view(4, 16).t()
    yield base.view(2, 4, 8)[:, 1:]
    yield torch.frombuffer(bytearray(512), dtype=torch.uint8, offset=24)
    # An offset that is no other word of the tensor; without elements it needs no memory.
    yield other.as_strided((0,), (1,), 0x0123_4567_89ab)
    parameter = torch.nn.Parameter(other.clone())
    yield parameter
    parameter.data = other[7:]
    yield parameter
    moved = torch.zeros(3)
    moved.set_(other.untyped_storage(), 11, (9,), (2,))
    yield moved
    moved = torch.zeros(3)
    moved.resize_(100 * size)
    yield moved
    moved.untyped_storage().resize_(1600 * size)
    yield moved
    first, second = torch.zeros(5), torch.zeros(50)[3:]
    torch.utils.swap_tensors(first, second)
    yield first
    yield second
    for name in _TYPES:
        if hasattr(torch, name):
            yield torch.zeros(5, dtype=getattr(torch, name))
    conjugate = torch.zeros(7, dtype=torch.complex64).conj()
    yield conjugate
    yield conjugate.imag
    with torch.inference_mode():
        yield torch.zeros(6)


def learn(torch):
    """Does the extension know? Finds it out once."""
    global _known
    if _known is None:
        try:
            with torch.no_grad():
                numbers = {getattr(torch, name, None): number for name, number in _TYPES.items()}
                for tensor in _tensors(torch):
                    storage = tensor.untyped_storage()
                    _C.see_tensor(tensor, torch.Tensor.__basicsize__, tensor._cdata,
                                  storage._cdata, storage.data_ptr(), tensor.storage_offset(),
                                  torch._C._dispatch_keys(tensor).raw_repr(), tuple(tensor.shape),
                                  tensor.stride(), numbers[tensor.dtype])
            _known = _C.settle_layout()
        except (AttributeError, RuntimeError, TypeError):  # a PyTorch without one of these
            _known = False
    return _known


def _leaves(torch):
    """Tensors on the CPU that autograd keeps something of, with gradients and without, and after what
    changes that; no backward pass, which would start autograd's threads."""
    for make in (torch.nn.Parameter, lambda tensor: tensor.requires_grad_()):
        leaf = make(torch.zeros(3, device="cpu"))
        yield leaf
        leaf.grad = torch.ones(3, device="cpu")
        yield leaf
        leaf.requires_grad_(False)
        yield leaf
        leaf.grad = torch.ones(3, device="cpu")
        yield leaf
        leaf.grad = None
        yield leaf
        leaf.requires_grad_(True)
        yield leaf
        leaf.grad = torch.zeros(5, device="cpu")[2:]
        yield leaf
        leaf.data = torch.zeros(7, device="cpu")[4:]
        yield leaf


def learn_gradients(torch):
    """Does the extension know gradients? Finds it out once."""
    global _known_gradients
    if _known_gradients is None:
        try:
            with torch.inference_mode(False), torch.no_grad():
                for leaf in _leaves(torch):
                    grad = leaf.grad
                    _C.see_gradient(leaf, leaf._cdata, 0 if grad is None else grad._cdata,
                                    leaf.requires_grad)
            _known_gradients = learn(torch) and _C.settle_gradients()
        except (AttributeError, OSError, RuntimeError, TypeError):  # a PyTorch without one of these
            _known_gradients = False
    return _known_gradients
