# SPDX-License-Identifier: MIT
"""The table in docs/benchmarks.md of Reprise beside PyTorch's own ways, made of the kept results of
bench/torch/bench_torch.py, for scripts/check_docs.py."""

import json
from typing import NamedTuple

RESULTS = "bench/results/h200"
HEADER = ("", "`torch.cuda.graph`", "with reuse flag", "`reduce-overhead`", "Reprise", "file")
REUSE = ("graph-reuse", "graph-reuse-expandable")
INSTALLED = ("reprise-install",)


class Row(NamedTuple):
    """What is shown of a file: the same figures of each column's sides, of which the lowest counts."""

    title: str  # {eager} is that of eager runs
    file: str
    figures: tuple  # of (workload, path in its medians)
    digits: int = 0
    divide_by: float = 1
    sides: tuple = (("graph",), REUSE, ("reduce-overhead",), INSTALLED)


ROWS = (
    Row("MLP, 3 layers of 1,024, at 128 and 512 batch sizes: device memory, MiB", "torch-forum",
        (("mlp", "after_128.device_mib"), ("mlp", "after_512.device_mib"))),
    Row("the same, 128 sizes from cold to ready, s", "torch-forum",
        (("mlp", "after_128.seconds"),), 3),
    Row("`a ** 2 + b * 2` from pinned memory, 512 sizes, MiB", "torch-forum",
        (("pinned", "after_512.device_mib"),)),
    Row("Llama's step, 16 layers of 512, 256 positions, at 64 batch sizes: device memory, MiB", "torch-decode",
        (("llama", "device_mib"),)),
    Row("the same: a step at batch size 1, until done, us", "torch-decode",
        (("llama", "b1.wall_us"),)),
    Row("the same by a process that has the GPU to itself", "torch-alone",
        (("llama", "b1.wall_us"),), sides=(("graph", "graph-current"), REUSE, ("reduce-overhead",), INSTALLED)),
    Row("12 programs on 2 to 8 streams with `record_stream`, MiB", "torch-streams",
        (("500 steps", "total.pool_mib"),)),
    Row("MLP, 3 layers of 64, a call with a new tensor: host time, us", "torch-inference",
        (("mlp", "host_us"),), 1,
        sides=(("graph", "callables"), REUSE, ("reduce-overhead",), INSTALLED)),
    Row("BERT of 12 layers, a sequence of 64; ViT-S, an image: until done, us", "torch-inference",
        (("bert", "wall_us"), ("vit", "wall_us")), sides=(("graph",), REUSE, (), INSTALLED)),
    Row("the same of `torch.compile`, us", "torch-inference",
        (("bert", "wall_us"), ("vit", "wall_us")),
        sides=((), (), ("reduce-overhead",), ("reprise-install-compiled",))),
    Row("ResNet-50, a training step of 16 images of 128 x 128, ms (eager: {eager})", "torch-training",
        (("resnet50", "wall_us"),), 2, 1e3, (("graph",), REUSE, (), ("reprise-install-whole",))),
    Row("GPT-2, 6 layers of 512, a training step without graphs, the allocator alone, ms", "torch-allocator",
        (("gpt2", "wall_us"),), 1, 1e3, (("eager",), (), (), ("reprise-eager",))),
)


def read(root, file):
    found = json.loads((root / RESULTS / f"{file}.json").read_text(encoding="utf-8"))
    return found.get("result", found)["workloads"]


def look_up(sides, names, path):
    """The lowest figure that the named sides have at a path; None where none has."""
    found = []
    for name in names:
        place = sides.get(name, {}).get("median", {})
        for key in path.split("."):
            place = place.get(key) if isinstance(place, dict) else None
        if place is not None:
            found.append(place)
    return min(found, default=None)


def shown(row, numbers):
    if None in numbers:
        return ""
    return ", ".join(f"{number / row.divide_by:,.{row.digits}f}" for number in numbers)


def cells(row, workloads):
    columns = [[look_up(workloads[workload], names, path) for workload, path in row.figures]
               for names in row.sides]
    *peers, ours = columns
    if None in ours:
        raise ValueError(f"{row.file}.json has no figure of Reprise for '{row.title}'")
    texts = [shown(row, numbers) for numbers in columns]
    if all(own < other for peer in peers if None not in peer for own, other in zip(ours, peer)):
        texts[-1] = f"**{texts[-1]}**"
    eager = [look_up(workloads[workload], ["eager"], path) for workload, path in row.figures]
    title = row.title.replace("{eager}", shown(row._replace(digits=1), eager))
    return (title, *texts, f"[{row.file.removeprefix('torch-')}](../{RESULTS}/{row.file}.json)")


def table(root):
    """The table's lines, and what is said below it."""
    kept = {file: read(root, file) for file in {row.file for row in ROWS}}
    lines = [HEADER, ("---",) * len(HEADER)]
    lines += [cells(row, kept[row.file]) for row in ROWS]
    alone = look_up(kept["torch-forum"]["mlp"], ["reprise"], "after_512.device_mib")
    return ["| " + " | ".join(line) + " |" for line in lines] + [
        "",
        "The lowest figure of each column counts. `torch.cuda.graph` takes inputs by copy, and its "
        "results are cloned: what a call with new tensors needs there. The MLP's call is that of "
        "`make_graphed_callables` where that took less. A process that has the GPU to itself warms "
        "PyTorch's graph up on a stream beside or on the current one. The reuse flag is "
        "`graph_capture_record_stream_reuse:True`, alone or with `expandable_segments:True`, "
        "whichever was better. Reprise is with `install()`; without it the MLP's 512 sizes took "
        f"{alone:.0f} MiB. The lowest figure of a row is in bold where it is Reprise's."]


def self_test():
    row = Row("a, b (eager: {eager})", "torch-x", (("w", "a.b"), ("w", "c")), 1, 10)
    sides = {"graph": {"median": {"a": {"b": 50}, "c": 70}},
             "graph-reuse": {"median": {"a": {"b": 40}, "c": 30}},
             "graph-reuse-expandable": {"median": {"a": {"b": 60}, "c": 20}},
             "reduce-overhead": {"median": {"c": 1}}, "eager": {"median": {"a": {"b": 1}, "c": 2}},
             "reprise-install": {"median": {"a": {"b": 39}, "c": 19}}}
    made = cells(row, {"w": sides})
    assert made == ("a, b (eager: 0.1, 0.2)", "5.0, 7.0", "4.0, 2.0", "", "**3.9, 1.9**",
                    f"[x](../{RESULTS}/torch-x.json)"), made
    sides["reprise-install"]["median"]["c"] = 20
    assert cells(row, {"w": sides})[4] == "3.9, 2.0"
    del sides["reprise-install"]
    try:
        cells(row, {"w": sides})
    except ValueError as error:
        assert "torch-x.json" in str(error)
    else:
        raise AssertionError("a result without Reprise was shown")
