# SPDX-License-Identifier: MIT
"""reprise.Pool: memory that several captured graphs share."""

import weakref

from .. import _C
from .._base.need import need_gpu
from .install import is_installed

KINDS = ("alternatives", "sequence", "concurrent")
# Pools whose handles were asked for, by handle and device.
_by_handle: weakref.WeakValueDictionary[tuple, object] = weakref.WeakValueDictionary()


class Pool:
    """Memory for captured graphs, and for pools within it.

    Arguments:
        kind (str): How what is captured in it relates in time.

            * ``"alternatives"``: no two run at the same time, and none reads what another wrote
              (one graph a batch size, say): they lie over each other, and the pool grows only to
              the largest of them.
            * ``"sequence"``: they run one after the other: what one frees is free for all later
              ones, and what one keeps stays for all later ones.
            * ``"concurrent"``: they may run at the same time: they never lie over each other.
        parent (Pool, optional): The pool that it lies in.
        name (str, optional): For reports and errors.
        device (torch.device or int, optional): Default: the current device.
        limit_bytes (int): Most device memory it may map; 0: no limit. Of an outermost pool only.
        plan_budget_ms (int): Time the planner may search for a better layout; 0: steps that take
            some 50 ms on an idle core, and give the same layout on every machine.

    Replays of graphs that are not concurrent are put in order, whatever their streams.
    """

    def __init__(self, kind="alternatives", *, parent=None, name=None, device=None, limit_bytes=0,
                 plan_budget_ms=0):
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}, but has to be one of {', '.join(KINDS)}")
        torch = need_gpu()
        torch.cuda.init()
        if parent is not None:
            ordinal = parent.device
        elif device is None:
            ordinal = torch.cuda.current_device()
        else:
            device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
            ordinal = torch.cuda.current_device() if device.index is None else device.index
        self.kind = kind
        self.name = name or "pool"
        self.parent = parent
        self._handle = None
        self.device = ordinal
        self.native = _C.Pool(KINDS.index(kind), self.name, ordinal,
                             None if parent is None else parent.native, limit_bytes, plan_budget_ms)

    @property
    def handle(self):
        """PyTorch's name for this pool: what :class:`torch.cuda.graph` and
        ``torch.cuda.CUDAGraph.capture_begin`` take as ``pool``. Under :func:`reprise.install` graphs
        that are captured with it lie here; without it in a pool of PyTorch's that they share."""
        if self._handle is None:
            self._handle = need_gpu().cuda.graph_pool_handle()
            self.bind()
            _by_handle[tuple(self._handle), self.device] = self
        return self._handle

    def bind(self):
        """Makes graphs that PyTorch captures with the handle lie here. The allocator forgets it when
        all of them are gone."""
        if is_installed():
            _C.bind_pool(*self.handle, self.native)

    def info(self):
        """A dict: ``planned_bytes`` (height of the layout), ``mapped_bytes`` (device memory taken),
        ``lower_bound_bytes`` (no layout of these graphs takes less), ``bound_exact``,
        ``rehearsal_bytes`` (the chunk behind all rehearsals of the device) and ``graphs``."""
        return self.native.info()

    def trim(self):
        """Gives back to the device what no graph needs, and what rehearsals keep; returns how many
        bytes."""
        return self.native.trim()

    def write(self, path):
        """Writes who lies where, from when to when, as JSON (``reprise-pool/1``)."""
        self.native.write(str(path))

    def draw(self, path):
        """Draws who lies where as SVG: address upwards, order to the right."""
        self.native.draw(str(path))

    def __repr__(self):
        return f"reprise.Pool({self.kind!r}, name={self.name!r}, device={self.device})"


def pool_of(handle, device, name):
    """The pool with this handle on a device, given by its index: a :class:`Pool`'s own, or for a handle of
    PyTorch's a sequence, as graphs that share one have to be replayed in the order of their captures
    there. That lives as long as anything that was captured into it."""
    key = (tuple(handle), device)
    found = _by_handle.get(key)
    if found is None:
        found = _by_handle[key] = Pool("sequence", name=name, device=device)
    return found
