# SPDX-License-Identifier: MIT
"""Facts as reprise.report gathers them, for tests of what is made of them without a GPU."""

INFO = {"planned_bytes": 3 << 20, "mapped_bytes": 4 << 20, "lower_bound_bytes": 3 << 20,
        "bound_exact": True, "rehearsal_bytes": 2 << 20, "graphs": 2, "staging_bytes": 0}
EXECS = {"device": 0, "budget_bytes": 64 << 20, "bytes": 3 << 19, "most_bytes": 3 << 19,
         "measured_bytes": 2 << 20, "execs": 1, "graphs": 2, "topologies": 1, "hits": 5,
         "updates": 4, "refused": 0, "instantiated": 1, "evicted": 0, "path_bytes": 113664, "node_bytes": 2458,
         "price_source": "fitted on NVIDIA H200, driver 580", "price_reason": None}


def graph(name, rows, reason=None):
    """Facts of a graph of an MLP at so many rows."""
    return {"name": name, "nodes": 8, "edges": 7, "blocks": 5, "calls": 12, "random": False,
            "planned_bytes": rows << 16, "lower_bound_bytes": rows << 16, "exec_bytes": 3 << 19,
            "own_exec": True, "stale_graphs": 0, "bound_args": 2, "copied_args": 0, "rehearse_ms": 1.0,
            "plan_ms": 0.5, "record_ms": 1.25, "instantiate_ms": 0.5,
            "arguments": [{"sites": 1, "bindable": not reason, "bound": not reason,
                           "reason": reason, "role": "in"}]}


def facts(svg=None):
    """A callable of two shapes with an odd name, and a graph that PyTorch replays."""
    name = "net</h2><script>console.error(1)</script>"
    lease = {"name": "graph 1", "device": 0, "handle": (0, 1), "planned_bytes": 1 << 20,
             "lower_bound_bytes": 1 << 20, "capture_ms": 2.5, "blocks": 3}
    return {"callables": [{"name": name, "graphs": [graph(f"{name}(48x64)", 48),
                                                    graph("net(16x64)", 16)],
                           "pool": dict(INFO), "svg": svg,
                           "reasons": ["net: argument 0 (in) is copied: a & b"]}],
            "pools": [{"name": "torch.cuda.graph", "graphs": [lease],
                       "pool": {**INFO, "graphs": 1, "bound_exact": False}, "svg": svg,
                       "reasons": []}],
            "execs": [dict(EXECS)]}
