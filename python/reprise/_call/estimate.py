# SPDX-License-Identifier: MIT
"""reprise.estimate: what graphs will take, before any is captured.

Each shape is rehearsed and planned in C as its capture would be (rp_estimate_add); here is what
PyTorch needs around it: arguments that have no memory, and a table.
"""

from .. import _C
from .._alloc.execs import budget_of
from .._alloc.install import empty_cache, is_installed
from .._base.need import need_gpu
from .._base.tree import flatten, unflatten
from .._capture.record import span, tensor_at
from .graphed import Graphed
from .make import by_size, graphed
from .module import graphed_of

_COLUMNS = ("graph", "nodes", "planned", "least", "exec", "ms")


class StandIns:
    """Tensors at addresses of their own with no memory behind them: nothing ever runs on them."""

    def __init__(self, torch, device):
        self.torch = torch
        self.device = device
        self.cursor = 1 << 40

    def __call__(self, shape, stride, dtype):
        return self.like(self.torch.empty_strided(shape, stride, dtype=dtype, device="meta"))

    def like(self, tensor):
        nbytes = span(tensor)
        made = tensor_at(self.torch, self.cursor, nbytes, self.device, tensor)
        self.cursor += (nbytes + 511) // 512 * 512 + 512
        return made.requires_grad_(tensor.requires_grad)

    def fill(self, args):
        """The leaves of a shape's arguments, those on the meta device at stand-ins, and the spec."""
        leaves, spec = flatten(args)
        return [self.like(x) if isinstance(x, self.torch.Tensor) and x.is_meta else x
                for x in leaves], spec


class Estimate:
    """What :func:`reprise.estimate` returns; printed, it is a table.

    Attributes:
        planned_bytes (int): What ``pool.info()["planned_bytes"]`` will be.
        mapped_bytes (int): Device memory of the pool: that, rounded up to pages.
        lower_bound_bytes (int): No layout of these graphs takes less.
        exec_bytes (int): Of an executable graph for each shape.
        exec_budget_bytes (int): Most that executable graphs take together
            (:func:`reprise.set_exec_budget`).
        rehearsal_bytes (int): Device memory behind rehearsals, which is kept for the next ones.
        device_bytes (int): All device memory to expect: of the pool, of executable graphs within
            their budget, and of rehearsals. Not arguments and results, which are the program's, nor
            arguments that a call has to copy.
        exact (bool): Are these the captures' own figures, to the byte? Under
            :func:`reprise.install` they are; without it as far as PyTorch places tensors alike
            twice.
        ms (float): What the estimate took.
        shapes (list of dict): For each graph ``name``, ``nodes``, ``planned_bytes``,
            ``lower_bound_bytes``, ``exec_bytes`` and ``ms``.
        failures (list of (str, str)): Shapes that could not be rehearsed, and why: they will run
            without a graph.
    """

    def __init__(self, info, shapes, failures, budget, exact):
        for name, value in info.items():
            if name != "shapes":
                setattr(self, name, value)
        self.shapes = shapes
        self.failures = failures
        self.exact = exact
        self.exec_budget_bytes = budget
        largest = max((s["exec_bytes"] for s in shapes), default=0)
        execs = min(self.exec_bytes, max(budget, largest))
        self.device_bytes = self.mapped_bytes + execs + self.rehearsal_bytes

    def __repr__(self):
        return (f"<reprise.Estimate: {_mib(self.planned_bytes)} MiB planned for "
                f"{len(self.shapes)} graphs, {_mib(self.device_bytes)} MiB of device memory>")

    def __str__(self):
        rows = [(s["name"], str(s["nodes"]), _mib(s["planned_bytes"]),
                 _mib(s["lower_bound_bytes"]), _mib(s["exec_bytes"]), f"{s['ms']:.1f}")
                for s in self.shapes]
        lines = table(_COLUMNS, rows) if rows else []
        lines += [f"{name}: no graph: {why.splitlines()[0]}" for name, why in self.failures]
        about = "" if self.exact else " or so: PyTorch places it"
        lines.append(f"pool: {_mib(self.planned_bytes)} MiB planned{about}, "
                     f"{_mib(self.mapped_bytes)} MiB taken; no layout takes less than "
                     f"{_mib(self.lower_bound_bytes)} MiB")
        lines.append(f"device: {_mib(self.device_bytes)} MiB with {_mib(self.rehearsal_bytes)} MiB "
                     f"for rehearsals and executable graphs of {_mib(self.exec_bytes)} MiB within "
                     f"a budget of {_budget(self.exec_budget_bytes)}")
        return "\n".join(lines)


def _mib(size):
    return f"{size / 2**20:.1f}"


def _budget(size):
    return "one each" if size == 2**64 - 1 else f"{_mib(size)} MiB"


def table(columns, rows):
    """Lines: the first column to the left, all others to the right."""
    widths = [max(len(c), *(len(r[i]) for r in rows)) for i, c in enumerate(columns)]
    return ["  ".join([row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])])
            for row in (columns, *rows)]


def estimate(fn, shapes, *, warmup=1, pool=None, name=None, watch=(), generators=(), grad="auto"):
    """How much memory captures of a callable at these shapes will take.

    Each shape is captured once on a chunk of 2 to 32 MiB that stands for all memory, and planned;
    nothing is kept but the plan. No other device memory is taken than that chunk, and what the
    warm-up needs, which runs at the smallest shape.

    Arguments:
        fn (callable, torch.nn.Module, or what reprise.graphed returned): With the latter the
            captures to come find these plans, and take what was estimated to the byte as long as
            nothing else is captured into their pool before.
        shapes (iterable of tuples): Arguments, as for :func:`reprise.graphed`. The warm-up calls ``fn``
            with the smallest: what that trains, counts or draws stays as it leaves it. Tensors on the
            ``meta`` device stand for ones on the device of the others, or else the current one, and take
            no memory.
        warmup (int): How often ``fn`` runs eagerly first, unless it has, so that what it creates
            lazily exists. Default: 1.
        pool (reprise.Pool, optional): The pool that the captures will go into, with what it holds.
            Default: one of alternatives. Not with what :func:`reprise.graphed` returned, which has
            its own.
        name, watch, generators, grad: As for :func:`reprise.graphed`.

    Returns:
        reprise.Estimate: Sizes in bytes, one entry for each graph, and what to expect of the device.
        Under :func:`reprise.install` ``planned_bytes`` is what ``pool.info()["planned_bytes"]``
        will be, to the byte; without it blocks are PyTorch's, and it is only as good as PyTorch's
        placement. A shape that cannot be captured is in ``failures``.

    Example::

        shapes = [(torch.empty(n, 1024, device="meta"),) for n in (1, 8, 64)]
        print(reprise.estimate(model, shapes))
    """
    torch = need_gpu()
    fn = graphed_of(fn)
    if not isinstance(fn, Graphed):
        fn = graphed_of(graphed(fn, warmup=warmup, pool=pool, name=name, watch=watch,
                                generators=generators, grad=grad))
    elif pool is not None:
        raise ValueError(f"'{fn.name}' has a pool already: leave out the argument pool")
    wanted = by_size(torch, shapes)
    into, kept, failures = _C.Estimate(), [], []
    device = _device_of(torch, wanted)
    stand_ins = StandIns(torch, device)
    if wanted:
        _warm_up(torch, fn, wanted[-1], device)
    for args in wanted:
        why = fn.estimate_into(into, args, stand_ins, kept)
        if why is not None:
            failures.append(why)
    found = Estimate(into.info(), into.shapes(), failures, budget_of(device.index), is_installed())
    del into  # before the pools
    empty_cache(torch)  # of what the warm-up left there
    return found


def _device_of(torch, shapes):
    """The GPU that the shapes' tensors lie on, or else the current one."""
    for args in shapes:
        for leaf in flatten(args)[0]:
            if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
                return leaf.device
    return torch.device("cuda", torch.cuda.current_device())


def _warm_up(torch, fn, args, device):
    """Runs the callable with these arguments as often as it has to run eagerly."""
    leaves, spec = flatten(args)
    leaves = [torch.zeros_like(x, device=device, requires_grad=x.requires_grad)
              if isinstance(x, torch.Tensor) and x.is_meta else x for x in leaves]
    fn.finish_warmup(unflatten(spec, leaves), {})
