# SPDX-License-Identifier: MIT
"""The allocator alone: Reprise's heap under an eager program, beside PyTorch's own.

pairs: torch.empty and the free that follows, of several sizes, one by one and with 64 alive, eagerly
and while a graph is captured. mlp, resnet50, gpt2: training steps without graphs.
"""

import time

import common
import training

BOTH = ["eager", "reprise-eager"]
SIDES = {"pairs": BOTH, "resnet50": BOTH, "gpt2": BOTH, "mlp": BOTH}
FRESH = False
TURNS = 4  # many short turns, as a hundredth is to be told apart
IMPORTS = ("transformers:GPT2LMHeadModel", "timm")
COLUMNS = (("one.1KiB_ns", "1 KiB ns", 0), ("one.1MiB_ns", "1 MiB ns", 0),
           ("one.8MiB_ns", "8 MiB ns", 0), ("alive.1KiB_ns", "64 of 1 KiB", 0),
           ("alive.mixed_ns", "64 mixed", 0), ("captured.one.1KiB_ns", "captured 1 KiB", 0),
           ("captured.alive.mixed_ns", "captured mixed", 0), ("wall_us", "step us", 1),
           ("reserved_mib", "reserved MiB", 1), ("device_mib", "device MiB", 1),
           ("loss_bits", "losses", 0))
LIMITS = {}

SIZES = {"1KiB": 1 << 10, "64KiB": 1 << 16, "1MiB": 1 << 20, "8MiB": 1 << 23}
ALIVE = 64


def prepare(torch, side, workload):
    if workload == "pairs":
        return {}, lambda: pairs(torch, side)
    return trained(torch, workload)


# ---- Pairs ----------------------------------------------------------------------------------


def pairs(torch, side):
    return {**patterns(torch, 2000), "captured": captured(torch, side)}


def patterns(torch, count):
    """Nanoseconds for an allocation and its free, in each pattern."""
    mixed = [list(SIZES.values())[i % len(SIZES)] >> (i % 3) for i in range(ALIVE)]
    with common.no_collection():
        return {"one": {f"{name}_ns": one_by_one(torch, size, count)
                        for name, size in SIZES.items()},
                "alive": {"1KiB_ns": alive(torch, [1 << 10] * ALIVE, count),
                          "mixed_ns": alive(torch, mixed, count)}}


def one_by_one(torch, size, count):
    empty, kind, device = torch.empty, torch.uint8, torch.device("cuda", 0)
    for _ in range(16):
        empty(size, dtype=kind, device=device)
    start = time.perf_counter_ns()
    for _ in range(count):
        empty(size, dtype=kind, device=device)
    return round((time.perf_counter_ns() - start) / count, 1)


def alive(torch, sizes, count):
    """So many blocks at once, freed in the order in which they came."""
    empty, kind, device = torch.empty, torch.uint8, torch.device("cuda", 0)
    rounds = max(1, count // len(sizes))
    kept = [empty(size, dtype=kind, device=device) for size in sizes]
    start = time.perf_counter_ns()
    for _ in range(rounds):
        for i, size in enumerate(sizes):
            kept[i] = None
            kept[i] = empty(size, dtype=kind, device=device)
    return round((time.perf_counter_ns() - start) / rounds / len(sizes), 1)


def captured(torch, side):
    """The same while a graph is captured: of Reprise's captures the last, which is recorded."""
    found = []
    x = torch.zeros(1024, device="cuda")

    def work():
        found.append(patterns(torch, 300))
        x.add_(1)

    if not side.install:
        common.capture(torch, work, warmup=0)
    else:
        import reprise
        reprise.graphed(work, warmup=0, strict=True)()
    return found[-1]


# ---- Training -------------------------------------------------------------------------------


def trained(torch, workload):
    """50 steps, their losses and the most memory that was held; then a few more at each turn."""
    before = common.free_bytes(torch)
    job = training.Job(torch, workload)
    torch.manual_seed(1)
    torch.cuda.reset_peak_memory_stats()
    losses = [job.step(*job.batches[i % training.BATCHES]) for i in range(50)]
    losses = torch.stack([loss.float() for loss in losses]).cpu().tolist()
    torch.cuda.synchronize()
    facts = {"loss_bits": training.bits(losses),
             "reserved_mib": common.mib(torch.cuda.max_memory_reserved()),
             "allocated_mib": common.mib(torch.cuda.max_memory_allocated()),
             "device_mib": common.mib(before - torch.cuda.mem_get_info()[0])}
    following = common.turns(job.batches)
    return facts, lambda: common.timed(torch, lambda: job.step(*following()), 16, warmup=4)
