# SPDX-License-Identifier: MIT
"""Results as text: a table for each workload, and Reprise's best beside PyTorch's and the limit."""

import json


def read(path):
    """A result, from a file of bench_torch.py or of scripts/record_result.py."""
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    found = found.get("result", found)
    if "group" not in found or "workloads" not in found:
        raise ValueError(f"{path} is no result of bench_torch.py in its present form")
    return found


def look_up(figures, path):
    """figures["a"]["b"] for "a.b"; None where there is none. Names may have spaces and points: the
    longest name that fits is taken."""
    if path in figures:
        return figures[path]
    for name, inner in figures.items():
        if isinstance(inner, dict) and path.startswith(name + "."):
            found = look_up(inner, path[len(name) + 1:])
            if found is not None:
                return found
    return None


def is_ours(side):
    return side.startswith("reprise")


def shown(value, digits):
    if value is None:
        return "-"
    return f"{value:,.{digits}f}" if isinstance(value, (int, float)) else str(value)


def table(title, header, rows):
    """Lines: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = [title]
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def best(sides, path, ours):
    """The lowest figure of Reprise's sides or of PyTorch's, and whose it is; None where none has."""
    found = [(look_up(facts["median"], path), side) for side, facts in sides.items()
             if is_ours(side) == ours]
    found = [(value, side) for value, side in found
             if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return min(found, default=None)


def told(sides, found, path, digits):
    """A figure, whose it is, and how far its rounds lie apart."""
    value, side = found
    apart = look_up(sides[side].get("spread", {}), path)
    rounds = f", {shown(apart[0], digits)} to {shown(apart[1], digits)}" if apart else ""
    return f"{shown(value, digits)} ({side}{rounds})"


def compared(sides, columns, limits):
    """Of each column that both have: ours by the best of PyTorch's, and by the limit."""
    lines = []
    for path, title, digits in columns:
        ours, theirs = best(sides, path, True), best(sides, path, False)
        limit = limits.get(path)
        ideal = limit and (best(sides, limit, True) or best(sides, limit, False))
        if ours is None or theirs is None or not theirs[0]:
            continue
        text = (f"  {title}: {told(sides, ours, path, digits)} beside "
                f"{told(sides, theirs, path, digits)}: {ours[0] / theirs[0]:.3f}")
        if ideal and ideal[0]:
            text += f"; to the limit of {shown(ideal[0], digits)}: {ours[0] / ideal[0]:.3f}"
        lines.append(text)
    return lines


def equality(sides):
    """Which sides did not compute what eager runs do."""
    lines = []
    for side, facts in sides.items():
        figures = facts["median"]
        if figures.get("equal") is False:
            lines.append(f"  {side}: differs from eager by {figures['max_difference']:.3g} at most")
        lines += [f"  {side}: {error}" for error in facts.get("errors", ())]
    return lines


def summary(result, columns, limits):
    """All workloads of a result as text."""
    lines = []
    for workload, sides in result["workloads"].items():
        present = [c for c in columns
                   if any(look_up(f["median"], c[0]) is not None for f in sides.values())]
        rows = [[side, *(shown(look_up(facts["median"], path), digits)
                         for path, _, digits in present)] for side, facts in sides.items()]
        lines += table(f"{result['group']} {workload}", ["", *(t for _, t, _ in present)], rows)
        lines += compared(sides, present, limits) + equality(sides) + [""]
    return "\n".join(lines)
