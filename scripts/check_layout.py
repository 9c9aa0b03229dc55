#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks a layout against the recording that it was made from.

    check_layout.py [--align N] INPUT LAYOUT

INPUT is reprise-capture/1 (gzip or not) or CSV, LAYOUT what `reprise plan --out` wrote for it. Both
are read here anew, by the definitions in docs/formats.md and with nothing of the library's code:
every block of the input must have exactly one offset, every offset must be a multiple of the
alignment, and no two blocks that may be alive together may overlap. Every pair counts: blocks are
swept by address, and each pair that overlaps is asked whether it may.

Exit: 0 the layout is right, 1 it is not (the first faults are printed), 2 usage or unreadable files.
"""

import argparse
import csv
import gzip
import io
import json
import sys

MOST_FAULTS = 10


class Unreadable(Exception):
    """A file that is not what it should be."""


class Faults:
    """What is wrong with the layout."""

    def __init__(self):
        self.count = 0

    def add(self, text):
        self.count += 1
        if self.count <= MOST_FAULTS:
            print(f"wrong: {text}")


def read_text(path):
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return data.decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path}: {error}") from error


def overlapping(blocks):
    """Every pair of (offset, end, key) that overlaps, once, as keys."""
    active = []
    for offset, end, key in sorted(blocks):
        active = [one for one in active if one[0] > offset]
        for _, other in active:
            yield other, key
        active.append((end, key))


# ---- reprise-capture/1 -----------------------------------------------------------------------


class Capture:
    """The blocks of a capture and who may take whose memory."""

    def __init__(self, raw):
        self.name = raw["name"]
        self.bytes = {}
        self.alloc = {}  # id -> (event, nodes)
        self.freed = {}
        for index, event in enumerate(raw["events"]):
            if event[0] == "alloc":
                self.bytes[event[1]] = event[2]
                self.alloc[event[1]] = (index, event[4])
            elif event[0] == "free":
                self.freed[event[1]] = (index, event[3])
        self.before = ancestors(len(raw["nodes"]), [edge[:2] for edge in raw["edges"]])
        self.seen = {}  # id -> all nodes before or among those of its alloc, as bits
        for name, (_, nodes) in self.alloc.items():
            self.seen[name] = 0
            for node in nodes:
                self.seen[name] |= self.before[node]
        self.needs = {
            name: sum(1 << node for node in set(nodes)) for name, (_, nodes) in self.freed.items()
        }

    def gives(self, a, b):
        """Block b may take the memory of block a."""
        if a not in self.freed or self.freed[a][0] > self.alloc[b][0]:
            return False
        needs = self.needs[a]
        return needs != 0 and needs & ~self.seen[b] == 0


def ancestors(count, edges):
    """For each node the bits of all nodes before it and its own."""
    after = [[] for _ in range(count)]
    waiting = [0] * count
    for u, v in edges:
        after[u].append(v)
        waiting[v] += 1
    bits = [1 << node for node in range(count)]
    ready = [node for node in range(count) if not waiting[node]]
    for u in ready:
        for v in after[u]:
            bits[v] |= bits[u]
            waiting[v] -= 1
            if not waiting[v]:
                ready.append(v)
    if len(ready) != count:
        raise Unreadable("the graph has a cycle")
    return bits


def paths_of(compose, path=()):
    """capture -> the way to it: (kind, index of the part) at each level."""
    if isinstance(compose, str):
        return {compose: path}
    ((kind, parts),) = compose.items()
    found = {}
    for index, part in enumerate(parts):
        found.update(paths_of(part, path + ((kind, index),)))
    return found


def relation(a, b):
    """Kind of the composition where two ways part, and whether a's comes first."""
    for (kind, i), (_, j) in zip(a, b):
        if i != j:
            return kind, i < j
    raise Unreadable("compose names a capture twice")


def offsets_by_name(layout, captures, faults):
    """name -> {id: offset}, as far as the layout has what it should."""
    found = {}
    for entry in layout["captures"]:
        if entry["name"] in found or entry["name"] not in captures:
            faults.add(f"capture '{entry['name']}' is unknown or there twice")
            continue
        offsets = found[entry["name"]] = {}
        for block, offset in entry["offsets"]:
            if block in offsets or block not in captures[entry["name"]].bytes:
                faults.add(f"{entry['name']}: block {block} is unknown or there twice")
            elif not isinstance(offset, int) or offset < 0:
                faults.add(f"{entry['name']}: block {block}: offset {offset!r} is no address")
            else:
                offsets[block] = offset
    for name, capture in captures.items():
        missing = [str(block) for block in capture.bytes if block not in found.get(name, {})]
        if missing or name not in found:
            faults.add(f"{name}: {len(missing)} blocks have no offset: {' '.join(missing[:5])}")
    return found


def placed_blocks(capture, offsets):
    return [
        (offset, offset + capture.bytes[block], block)
        for block, offset in offsets.items()
    ]


def check_within(capture, offsets, faults):
    for a, b in overlapping(placed_blocks(capture, offsets)):
        if not capture.gives(a, b) and not capture.gives(b, a):
            faults.add(f"{capture.name}: blocks {a} and {b} may be alive together and overlap")


def check_between(first, second, offsets, in_sequence, faults):
    """Captures that may not overlay freely; in a sequence `first` comes first."""
    blocks = [
        (start, end, (capture.name, block))
        for capture in (first, second)
        for start, end, block in placed_blocks(capture, offsets[capture.name])
        if capture is second or not in_sequence or block not in capture.freed
    ]
    for a, b in overlapping(blocks):
        if a[0] != b[0]:
            faults.add(f"block {a[1]} of {a[0]} and block {b[1]} of {b[0]} overlap")


def check_captures(text, layout_text, alignment, faults):
    raw = json.loads(text)
    layout = json.loads(layout_text)
    captures = {entry["name"]: Capture(entry) for entry in raw["captures"]}
    offsets = offsets_by_name(layout, captures, faults)
    alignment = alignment or layout.get("alignment", 512)
    height = 0
    for name, blocks in offsets.items():
        for block, offset in blocks.items():
            height = max(height, offset + -(-captures[name].bytes[block] // alignment) * alignment)
            if offset % alignment:
                faults.add(f"{name}: block {block}: {offset} is no multiple of {alignment}")
        check_within(captures[name], blocks, faults)
    paths = paths_of(raw.get("compose", {"alternatives": list(captures)}))
    names = [name for name in captures if name in offsets]
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            kind, a_first = relation(paths[a], paths[b])
            first, second = (a, b) if a_first else (b, a)
            if kind != "alternatives":
                check_between(
                    captures[first], captures[second], offsets, kind == "sequence", faults
                )
    if layout.get("pool_bytes", height) != height:
        faults.add(f"pool_bytes is {layout['pool_bytes']}, but the highest end {height}")
    return sum(len(blocks) for blocks in offsets.values()), height


# ---- CSV -------------------------------------------------------------------------------------


def read_rows(text, columns):
    rows = list(csv.reader(io.StringIO(text)))
    if not rows or sorted(rows[0]) != sorted(columns):
        raise Unreadable(f"the header must have the columns {','.join(columns)}")
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def check_csv(text, layout_text, alignment, faults):
    columns = ["id", "lower", "upper", "size"]
    wanted = read_rows(text, columns)
    rows = read_rows(layout_text, columns + ["offset"])
    if [[row[c] for c in columns] for row in rows] != [[row[c] for c in columns] for row in wanted]:
        faults.add("the rows are not those of the input")
        return len(rows), 0
    blocks = []
    height = 0
    for row in rows:
        offset, size = int(row["offset"]), int(row["size"])
        if offset < 0 or offset % (alignment or 1):
            faults.add(f"block {row['id']}: offset {offset}")
        life = (int(row["lower"]), int(row["upper"]))
        height = max(height, offset + size)
        blocks.append((offset, offset + size, (row["id"], life)))
    for (a, (a_from, a_to)), (b, (b_from, b_to)) in overlapping(blocks):
        if a_from < b_to and b_from < a_to:
            faults.add(f"blocks {a} and {b} are alive together and overlap")
    return len(rows), height


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--align", type=int, help="offsets must be multiples of it")
    parser.add_argument("input")
    parser.add_argument("layout")
    args = parser.parse_args()
    faults = Faults()
    try:
        text, layout = read_text(args.input), read_text(args.layout)
        check = check_captures if text.lstrip()[:1] == "{" else check_csv
        blocks, height = check(text, layout, args.align, faults)
    except Unreadable as error:
        print(error, file=sys.stderr)
        return 2
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        print(f"{args.input}, {args.layout}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    if faults.count:
        print(f"{args.layout}: {faults.count} faults")
        return 1
    print(f"{args.layout}: right: {blocks} blocks, {height} bytes high")
    return 0


if __name__ == "__main__":
    sys.exit(main())
