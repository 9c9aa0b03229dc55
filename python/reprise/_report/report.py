# SPDX-License-Identifier: MIT
"""reprise.report: what was captured, what it takes, and what runs without a graph."""

import tempfile
from pathlib import Path

from .. import _C
from .._base.outfile import write_file
from .._base.texts import plain
from .._call.graphed import MOST_STALE, every_graphed
from .._call.policy import verdict
from .._compile.padded import every_padded
from . import page


def _reasons(shapes, failures, choices=()):
    """Why arguments are copied, why calls run without a graph, and how a policy chose."""
    seen = {}
    for facts in shapes:
        for i, arg in enumerate(facts["arguments"]):
            if arg["reason"] and not arg["bound"]:
                seen.setdefault(f"argument {i} ({arg['role']}) is copied: {arg['reason']}",
                                facts["name"])
        if facts["stale_graphs"]:
            seen["memory that it uses beside its arguments was freed, and it was captured anew: "
                 f"{facts['stale_graphs']} of at most {MOST_STALE - 1} times"] = facts["name"]
    return [f"{name}: {text}" for text, name in seen.items()] + [
        f"without a graph: {text.splitlines()[0]}" for text in failures] + [
        verdict(fact) for fact in choices]


def _ways(graphed):
    """Which way the hyperparameters of each optimizer go."""
    for fact in graphed.hyperparameters():
        name = f"{fact['kind']} '{fact['optimizer']}'"
        why = f", as {fact['reason'].splitlines()[0]}" if fact["reason"] else ""
        if fact["way"] == "eager":
            yield f"{name}: no call that uses it has a graph{why}"
            continue
        if fact["way"] == "key":
            yield f"{name}: each value of its hyperparameters has a graph of its own{why}"
            continue
        counted = f", and move its {fact['counted']} step counts on the CPU on" if fact["counted"] else ""
        yield f"{name}: replays write its hyperparameters into kernels' parameters{counted}"


def _parts(graphed):
    """What became of the modules of a callable in parts."""
    for fact in graphed.parts():
        line = f" (at {fact['line']})" if fact["line"] else ""
        why = f": {fact['reason']}{line}" if fact["reason"] else ""
        yield f"{fact['name']}: {fact['way']}{why}"


def _padding(graphed):
    """What padding up to buckets costs."""
    for fact in graphed.buckets():
        sizes = ", ".join(f"{name} {n}" for name, n in fact["sizes"].items())
        yield (f"bucket of {sizes}: {fact['padded_calls']} of {fact['calls']} calls were padded, "
               f"{100 * fact['waste']:.0f} % of it is padding")


def _drawing(draw):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pool.svg"
        draw(str(path))
        return path.read_text(encoding="utf-8")


def _of_callable(graphed, draws):
    """What it captured, for each GPU; what it could not is told once."""
    shapes, pools = graphed.shapes(), graphed.pools
    shared = [*_reasons((), graphed.failures(), graphed.choices()), *_ways(graphed),
              *_parts(graphed), *_padding(graphed)]
    for device, pool in sorted(pools.items()) or ((None, graphed.pool),):
        graphs = [s for s in shapes if s["device"] == device]
        yield {"name": graphed.name if len(pools) < 2 else f"{graphed.name} on cuda:{device}",
               "graphs": graphs, "pool": pool.info() if pool else None,
               "svg": _drawing(pool.draw) if pool and draws else None,
               "reasons": _reasons(graphs, ()) + shared}
        shared = []


def _of_padded():
    """What was compiled of a frame, whose pieces have their graphs told each."""
    for frame in sorted(every_padded(), key=lambda frame: frame.name):
        yield {"name": frame.name, "graphs": [], "pool": None, "svg": None, "reasons": list(_padding(frame))}


def _of_leases(draws):
    """Graphs that PyTorch replays itself, by pool."""
    pools = {}
    for facts in _C.leases():
        if not facts["under_way"]:
            pools.setdefault((facts["device"], *facts["handle"]), []).append(facts)
    for (device, first, second), graphs in pools.items():
        svg = _drawing(lambda path: _C.draw_lease(device, first, second, path)) if draws else None
        yield {"name": "torch.cuda.graph", "graphs": graphs[::-1], "pool": graphs[0]["pool"],
               "svg": svg, "reasons": []}


def _facts(draws):
    made = sorted(every_graphed(), key=lambda g: g.name)
    callables = [part for g in made for part in _of_callable(g, draws)] + list(_of_padded())
    pools = list(_of_leases(draws))
    devices = sorted({p.device for g in made for p in (*g.pools.values(), g.pool) if p} |
                     {p["graphs"][0]["device"] for p in pools})
    return {"callables": callables, "pools": pools,
            "execs": [{"device": d, **_C.exec_info(d)} for d in devices]}


def report(path=None):
    """What was captured so far in this process.

    Arguments:
        path (str or Path, optional): Write an HTML page there, with a drawing of who lies where in
            each pool, instead of returning text. It needs no network.

    Returns:
        str: A table for each graphed callable: its graphs, calls, nodes, memory in MiB beside the
        proved lower bound, what an executable graph of its own would take, how many arguments the
        last call bound and copied, with the reasons, and what the capture took; the same of graphs
        that PyTorch replays itself, as far as that is known, and of each device's executable graphs;
        which way the hyperparameters of optimizers go; what became of each module of a callable in parts;
        what padding up to buckets costs; with ``policy="auto"`` for each shape how its calls go, the measured
        times and why.
        None when a page was written.
    """
    if path is None:
        return plain(page.text(_facts(False)))
    write_file(path, plain(page.page(_facts(True))).encode())
    return None
