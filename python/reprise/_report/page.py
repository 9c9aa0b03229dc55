# SPDX-License-Identifier: MIT
"""What reprise.report tells, made of plain facts: as text, and as a page that needs no network.

    {"callables": [{"name", "graphs": [facts of each], "pool": info or None, "svg": drawing or None,
                    "reasons": [texts]}],
     "pools":     the same of graphs that PyTorch replays itself, without calls
     "execs":     [{"device", and what reprise.exec_info tells}]}
"""

import html

COLUMNS = ("graph", "calls", "nodes", "planned", "least", "exec", "bound args", "copied",
           "capture ms")
STEPS = ("rehearse_ms", "plan_ms", "record_ms", "instantiate_ms")
ONE_EACH = 2**64 - 1
STYLE = """body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;
color:#1c2733}h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2em;border-bottom:1px solid #d5dbe1}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{padding:.15em .8em;text-align:right}td:first-child,th:first-child{text-align:left}
tr:nth-child(even){background:#f4f6f8}th{border-bottom:1px solid #b8c1ca;font-weight:600}
figure{margin:1em 0;overflow-x:auto}svg{max-width:100%;height:auto}.why{color:#8a4b00}"""


def mib(size):
    return f"{size / 2**20:.1f}"


def row(facts):
    """The cells of a graph; what is not known of it is left empty."""
    took = facts["capture_ms"] if "capture_ms" in facts else sum(facts[k] for k in STEPS)

    def cell(name, show=str):
        return show(facts[name]) if name in facts else ""

    return (facts["name"], cell("calls"), cell("nodes"), mib(facts["planned_bytes"]),
            mib(facts["lower_bound_bytes"]), cell("exec_bytes", mib), cell("bound_args"),
            cell("copied_args"), f"{took:.1f}")


def counted(number, one, many=None):
    return f"{number} {one if number == 1 else many or one + 's'}"


def pool_line(info):
    about = "" if info["bound_exact"] else " (a bound that may be low)"
    return (f"pool: {mib(info['planned_bytes'])} MiB planned for {counted(info['graphs'], 'graph')}, "
            f"{mib(info['mapped_bytes'])} MiB taken; no layout takes less than "
            f"{mib(info['lower_bound_bytes'])} MiB{about}")


def exec_line(info):
    budget = "one each" if info["budget_bytes"] == ONE_EACH else f"{mib(info['budget_bytes'])} MiB"
    reason = f" ({info['price_reason']})" if info["price_reason"] else ""
    return (f"device {info['device']}: {counted(info['execs'], 'executable graph')} for "
            f"{counted(info['graphs'], 'graph')} of "
            f"{counted(info['topologies'], 'topology', 'topologies')}, an estimated "
            f"{mib(info['bytes'])} MiB of a budget of {budget}; {info['instantiated']} made, "
            f"{counted(info['updates'], 'update')} from graph to graph; "
            f"{info['path_bytes'] / 1024:.1f} KiB a path and {info['node_bytes'] / 1024:.2f} a node, "
            f"{info['price_source']}{reason}")


def _sentence(line):
    return line[0].upper() + line[1:] + "."


def _parts(facts):
    return [*facts["callables"], *facts["pools"]]


def table(rows):
    """Lines: the first column to the left, all others to the right."""
    widths = [max(len(c), *(len(r[i]) for r in rows)) for i, c in enumerate(COLUMNS)]
    return ["  ".join([cells[0].ljust(widths[0])] +
                      [c.rjust(w) for c, w in zip(cells[1:], widths[1:])]).rstrip()
            for cells in (COLUMNS, *rows)]


def text(facts):
    """A table for each callable and pool; None when nothing was captured or tried."""
    parts = []
    for part in _parts(facts):
        lines = [part["name"]]
        if part["graphs"]:
            lines += table([row(graph) for graph in part["graphs"]])
        if part["pool"]:
            lines.append(pool_line(part["pool"]))
        parts.append("\n  ".join(lines + part["reasons"]))
    if not parts:
        return "nothing was captured yet"
    return "\n\n".join(parts + ["\n".join(map(exec_line, facts["execs"]))]).rstrip()


def page(facts):
    """The same as HTML, with a drawing of who lies where."""
    made = ["<!doctype html><html lang=en><meta charset=utf-8><title>Reprise</title>"
            f"<style>{STYLE}</style><h1>Captured graphs</h1>"]
    for part in _parts(facts):
        made.append(f"<h2>{html.escape(part['name'])}</h2>")
        if part["graphs"]:
            made.append("<table><thead><tr>" + "".join(f"<th>{c}</th>" for c in COLUMNS) +
                        "</tr></thead><tbody>")
            for graph in part["graphs"]:
                cells = "".join(f"<td>{html.escape(c)}</td>" for c in row(graph))
                made.append(f"<tr>{cells}</tr>")
            made.append("</tbody></table><p>Sizes in MiB.</p>")
        if part["pool"]:
            made.append(f"<p>{html.escape(_sentence(pool_line(part['pool'])))}</p>")
        if part["svg"]:
            made.append("<figure>" + part["svg"][part["svg"].index("<svg"):] + "</figure>")
        made += [f"<p class=why>{html.escape(reason)}</p>" for reason in part["reasons"]]
    if not _parts(facts):
        made.append("<p>Nothing was captured yet.</p>")
    elif facts["execs"]:
        made.append("<h2>Executable graphs</h2>")
        made += [f"<p>{html.escape(_sentence(exec_line(e)))}</p>" for e in facts["execs"]]
    return "\n".join(made) + "\n"
