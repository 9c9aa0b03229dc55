# SPDX-License-Identifier: MIT
"""reprise.report: what was captured, what it takes, and what runs without a graph."""

import html
import tempfile
from pathlib import Path

from ._graphed import all_graphed
from ._policy import verdict

_COLUMNS = ("graph", "calls", "nodes", "planned", "bound", "bound args", "copied", "capture ms")


def _mib(size):
    return f"{size / 2**20:.1f}"


def _rows(graphed):
    for facts in graphed.shapes():
        took = sum(facts[k] for k in ("rehearse_ms", "plan_ms", "record_ms", "instantiate_ms"))
        yield (facts["name"], str(facts["calls"]), str(facts["nodes"]),
               _mib(facts["planned_bytes"]), _mib(facts["lower_bound_bytes"]),
               str(facts["bound_args"]), str(facts["copied_args"]), f"{took:.1f}")


def _tables():
    for graphed in sorted(all_graphed, key=lambda g: g.name):
        rows = list(_rows(graphed))
        info = graphed.pool.info() if graphed.pool else None
        yield graphed, rows, info


def _reasons(graphed):
    """Why arguments are copied, why calls run without a graph, and how a policy chose."""
    seen = {}
    for facts in graphed.shapes():
        for i, arg in enumerate(facts["arguments"]):
            if arg["reason"] and not arg["bound"]:
                seen.setdefault(f"argument {i} ({arg['role']}) is copied: {arg['reason']}",
                                facts["name"])
    return [f"{name}: {text}" for text, name in seen.items()] + [
        f"without a graph: {text.splitlines()[0]}" for text in graphed.failures()] + [
        verdict(fact) for fact in graphed.choices()]


def _text(title, rows, info, reasons):
    lines = [title]
    if rows:
        widths = [max(len(c), *(len(r[i]) for r in rows)) for i, c in enumerate(_COLUMNS)]
        for row in (_COLUMNS, *rows):
            cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
            lines.append("  " + "  ".join(cells))
    if info:
        lines.append(f"  pool: {_mib(info['planned_bytes'])} MiB planned for {info['graphs']} "
                     f"graphs, {_mib(info['mapped_bytes'])} MiB taken; no layout takes less than "
                     f"{_mib(info['lower_bound_bytes'])} MiB"
                     + ("" if info["bound_exact"] else " (a bound that may be low)"))
    lines += [f"  {reason}" for reason in reasons]
    return "\n".join(lines)


def _page(tables):
    parts = ["<!doctype html><meta charset=utf-8><title>Reprise</title><style>"
             "body{font:14px system-ui,sans-serif;margin:2em;max-width:70em}"
             "td,th{padding:.15em .8em;text-align:right}td:first-child,th:first-child"
             "{text-align:left}svg{max-width:100%;height:auto}</style><h1>Captured graphs</h1>"]
    for graphed, rows, info in tables:
        parts.append(f"<h2>{html.escape(graphed.name)}</h2>")
        if rows:
            parts.append("<table><tr>" + "".join(f"<th>{c}</th>" for c in _COLUMNS) + "</tr>")
            for row in rows:
                parts.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>")
            parts.append("</table><p>Sizes in MiB.</p>")
        if info:
            parts.append(f"<p>Pool: {_mib(info['planned_bytes'])} MiB planned for "
                         f"{info['graphs']} graphs, {_mib(info['mapped_bytes'])} MiB taken; no "
                         f"layout takes less than {_mib(info['lower_bound_bytes'])} MiB.</p>")
            with tempfile.TemporaryDirectory() as folder:
                drawing = Path(folder) / "pool.svg"
                graphed.pool.draw(drawing)
                svg = drawing.read_text(encoding="utf-8")
            parts.append(svg[svg.index("<svg"):])
        parts += [f"<p>{html.escape(reason)}</p>" for reason in _reasons(graphed)]
    return "\n".join(parts)


def report(path=None):
    """What was captured so far in this process.

    Arguments:
        path (str or Path, optional): Write an HTML page there, with a drawing of who lies where in
            each pool, instead of returning text.

    Returns:
        str: A table for each graphed callable: its graphs, calls, nodes, memory in MiB beside the
        proved lower bound, and how many arguments the last call bound and copied, with the reasons;
        with ``policy="auto"`` for each shape how its calls go, the measured times and why;
        or None when a page was written.
    """
    tables = list(_tables())
    if path is None:
        return "\n\n".join(_text(g.name, rows, info, _reasons(g)) for g, rows, info in tables) or (
            "nothing was captured yet")
    Path(path).write_text(_page(tables), encoding="utf-8")
    return None
