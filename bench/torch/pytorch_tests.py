# SPDX-License-Identifier: MIT
"""PyTorch's tests of its allocator, and the tests of Reprise that ask the same: do these hold with
install(), and with PyTorch's own allocator?

usage: pytorch_tests.py [--list]

Runs the programs of tests/python that TESTS names, once with --install and once without, and prints JSON:
for each of PyTorch's tests (test/test_cuda.py, which test_cuda_expandable_segments.py runs once more, and
test/test_multiprocessing.py) the counterpart, written anew from what the test is for, and whether it held
both ways; null: it was skipped there. A test without a counterpart has the reason why it would differ.
--list prints the table alone, and needs no GPU.
"""

import argparse
import json
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ALLOCATOR, SHARED = "gpu_allocator.py", "gpu_shared.py"
OWN_ALLOCATOR = "pools with an allocator of their own are refused with a sentence: pools lie in Reprise's heap"
STRETCH = "a pool's memory grows in one stretch, so it has one segment where PyTorch has several"

# PyTorch's test, the program and the test of ours, or the reason why it differs.
TESTS = (
    # Histories, snapshots and their plots
    ("TestCudaMallocAsync.test_memory_snapshot", ALLOCATOR, "History.test_stacks_are_pythons"),
    ("TestCudaMallocAsync.test_memory_snapshot_with_cpp", ALLOCATOR, "History.test_stacks_of_cpp_and_of_scripts"),
    ("TestCudaMallocAsync.test_memory_snapshot_script", ALLOCATOR, "History.test_stacks_of_cpp_and_of_scripts"),
    ("TestCudaMallocAsync.test_memory_plots", ALLOCATOR, "History.test_pytorchs_tools_read_it"),
    ("TestCudaMallocAsync.test_memory_plots_free_stack", ALLOCATOR, "History.test_context_says_whose_stacks"),
    ("TestCudaMallocAsync.test_memory_plots_free_segment_stack", ALLOCATOR,
     "History.test_context_says_whose_stacks"),
    ("TestCudaMallocAsync.test_memory_plots_history_context", ALLOCATOR,
     "History.test_goes_on_where_it_is_changed"),
    ("TestCudaMallocAsync.test_memory_plots_metadata", ALLOCATOR, "History.test_metadata"),
    ("TestCudaMallocAsync.test_memory_snapshot_skip_actions", ALLOCATOR, "History.test_skips_actions"),
    ("TestCudaMallocAsync.test_memory_compile_regions", None,
     "compile_context of histories is PyTorch's allocator's alone, and warned of"),
    ("TestCudaMallocAsync.test_cpp_memory_snapshot_pickle", None,
     "C++ asks PyTorch's object for a snapshot, whose form no other language can make"),
    # Settings, limits, shortage
    ("TestCudaMallocAsync.test_allocator_settings", ALLOCATOR, "Settings.test_rounding_holds_until_the_next"),
    ("TestCudaMallocAsync.test_max_split_expandable", ALLOCATOR, "Settings.test_sizes_that_are_not_split"),
    ("TestCudaMallocAsync.test_allocator_memory_fraction_setting", ALLOCATOR, "Statistics.test_fractions"),
    ("TestCudaMallocAsync.test_cachingAllocator_raw_alloc", None,
     "caching cannot be switched off: caching_allocator_enable(False) warns"),
    ("TestCudaMallocAsync.test_raises_oom", ALLOCATOR, "Shortage.test_text_has_the_parts_that_are_matched"),
    ("TestCudaMallocAsync.test_notifies_oom", ALLOCATOR, "Shortage.test_observers_are_told"),
    # Graphs
    ("TestCuda.test_cuda_graph_allocator_propagates_stream", None, STRETCH),
    ("TestBlockStateAbsorption.test_simple", ALLOCATOR, "Checkpoints.test_what_is_as_it_was_stays"),
    ("TestBlockStateAbsorption.test_allocated_in_middle_of_segment", ALLOCATOR,
     "Checkpoints.test_blocks_between_others"),
    ("TestBlockStateAbsorption.test_multiple_middle_allocations", ALLOCATOR,
     "Checkpoints.test_blocks_between_others"),
    ("TestBlockStateAbsorption.test_middle_allocations_contiguous", ALLOCATOR,
     "Checkpoints.test_blocks_between_others"),
    ("TestBlockStateAbsorption.test_additional_free_following_checkpoint", ALLOCATOR,
     "Checkpoints.test_what_came_later_is_freed"),
    ("TestBlockStateAbsorption.test_tensor_dies_after_checkpoint", ALLOCATOR,
     "Checkpoints.test_what_was_freed_is_there_again"),
    ("TestBlockStateAbsorption.test_assigning_back_deleter_fns_to_tensor", ALLOCATOR,
     "Checkpoints.test_storages_free_their_blocks_again"),
    ("TestBlockStateAbsorption.test_resnet", ALLOCATOR, "Checkpoints.test_a_net_of_convolutions"),
    ("TestBlockStateAbsorption.test_check_pool_live_allocations", ALLOCATOR,
     "Checkpoints.test_the_blocks_that_are_alive"),
    ("TestBlockStateAbsorption.test_allocate_in_thread_to_pool", ALLOCATOR,
     "Trees.test_a_thread_in_a_pool_of_graphs_beside_another"),
    # Pools
    ("TestMemPool.test_mempool_id", ALLOCATOR, "Pools.test_ids_are_of_their_own"),
    ("TestMemPool.test_mempool_empty_cache", ALLOCATOR, "Pools.test_is_kept_until_the_pool_goes"),
    ("TestMemPool.test_mempool_empty_cache_inactive", None, OWN_ALLOCATOR),
    ("TestMemPool.test_mempool_with_allocator", None, OWN_ALLOCATOR),
    ("TestMemPool.test_tensor_delete_after_allocator_delete", None, OWN_ALLOCATOR),
    ("TestMemPool.test_mempool_limited_memory_with_allocator", None, OWN_ALLOCATOR),
    ("TestMemPool.test_deleted_mempool_not_used_on_oom", None, OWN_ALLOCATOR),
    ("TestMemPool.test_mempool_expandable", None, OWN_ALLOCATOR),
    ("TestMemPool.test_mempool_no_split", ALLOCATOR, "Pools.test_blocks_that_are_not_cut"),
    ("TestMemPool.test_mempool_multithread", ALLOCATOR, "Pools.test_several_threads"),
    ("TestMemPool.test_mempool_emptycache_multithread", ALLOCATOR, "Pools.test_several_threads"),
    ("TestMemPool.test_nested_mempool", ALLOCATOR, "Pools.test_within_each_other"),
    ("TestMemPool.test_mempool_ctx_multithread", ALLOCATOR, "Pools.test_is_of_one_thread"),
    # Other processes
    ("TestMultiprocessing.test_cuda_simple", SHARED, "Spawned.test_memory_is_the_same"),
    ("TestMultiprocessing.test_cuda_memory_allocation", SHARED, "Spawned.test_the_other_process_sends"),
    ("TestMultiprocessing.test_cuda_send_many", SHARED, "Spawned.test_many"),
    ("TestMultiprocessing.test_cuda_small_tensors", SHARED, "Spawned.test_a_module_of_hundreds_of_tensors"),
    ("TestMultiprocessing.test_cuda_variable_sharing", SHARED, "Spawned.test_kinds_of_tensors"),
    ("TestMultiprocessing.test_cuda_parameter_sharing", SHARED, "Spawned.test_kinds_of_tensors"),
    ("TestMultiprocessing.test_mixed_types_cuda_sharing", SHARED, "Spawned.test_values_arrive"),
    ("TestMultiprocessing.test_rebuild_cuda_tensor", SHARED, "Spawned.test_parts_that_were_sent_by_a_way_of_its_own"),
    ("TestMultiprocessing.test_empty_tensor_sharing_cuda", SHARED, "Spawned.test_a_queue_of_this_process"),
)

_LINE = re.compile(r"^(test_\w+) \(\w+\.(\w+)(?:\.\1)?\)")
_END = re.compile(r"(?:^|\.\.\. .*?)\b(ok|FAIL|ERROR|skipped\b.*)$")


def outcomes(text):
    """Whether the tests of a program held, by Class.test; None: skipped. What a test prints may lie between
    its name and its outcome."""
    found, name = {}, None
    for line in text.splitlines():
        head = _LINE.match(line)
        if head:
            name = f"{head[2]}.{head[1]}"
        end = _END.search(line)
        if name and end:
            found[name] = None if end[1].startswith("skipped") else end[1] == "ok"
            name = None
    return found


def run(program, wanted, install):
    classes = sorted({test.split(".")[0] for test in wanted})
    done = subprocess.run([sys.executable, os.path.join(TOP, "tests", "python", program),
                           *(["--install"] if install else []), *classes],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = outcomes(done.stdout)
    if not found:
        sys.exit(f"pytorch_tests.py: {program} ran no test:\n{done.stdout[-2000:]}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the table, and run nothing")
    chosen = parser.parse_args()
    held = {}
    for program in () if chosen.list else (ALLOCATOR, SHARED):
        wanted = [ours for _, where, ours in TESTS if where == program]
        for install in (True, False):
            print(f"{program} {'with' if install else 'without'} install()", file=sys.stderr)
            held[program, install] = run(program, wanted, install)
    rows = []
    for theirs, program, ours in TESTS:
        row = {"test": theirs, "counterpart": program and f"{program} {ours}"}
        if program is None:
            row["reason"] = ours
        for key, install in (("install", True), ("c10", False)):
            row[key] = held.get((program, install), {}).get(ours, "not run") if program else None
        rows.append(row)
    differ = [row["test"] for row in rows if row["counterpart"] is None or row["install"] is False]
    print(json.dumps({"tests": len(rows), "differ": differ, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
