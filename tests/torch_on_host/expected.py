# SPDX-License-Identifier: MIT
"""What tests/torch_on_host/run.py expects: for each run of a program how many tests pass at least, and for
each program the tests that are known to fail on the host driver, with the reason."""

# The longest first.
RUNS = {
    "gpu_check.py": 58,
    "gpu_check.py --install": 58,
    "gpu_refused.py": 103,
    "gpu_refused.py --install": 103,
    "gpu_schedules.py": 20,
    "gpu_schedules.py --install": 20,
    "gpu_training.py": 59,
    "gpu_training.py --install": 59,
    "gpu_numbers.py": 26,
    "gpu_numbers.py --install": 26,
    "gpu_private.py": 27,
    "gpu_private.py --install": 27,
    "models.py": 32,
    "models.py --install": 32,
    "gpu_examples.py": 11,  # and five where Accelerate, Lightning and Megatron-core are installed
    "gpu_documents.py": 11,  # and five programs of pages need Triton or CUPTI
    "gpu_compose.py": 38,
    "gpu_compose.py --install": 38,
    "gpu_stale.py": 22,
    "gpu_exit.py": 4,
    "gpu_graphed.py": 84,
    "gpu_graphed.py --install": 85,
    "gpu_gradients.py": 44,
    "gpu_gradients.py --install": 44,
    "gpu_reached.py": 44,
    "gpu_reached.py --install": 44,
    "gpu_behind.py": 26,
    "gpu_behind.py --install": 26,
    "gpu_sets.py": 38,
    "gpu_sets.py --install": 38,
    "gpu_asked.py": 22,
    "gpu_asked.py --install": 22,
    "gpu_homes.py": 16,
    "gpu_homes.py --install": 17,
    "gpu_trainers.py": 0,  # and four where Accelerate and Lightning are installed
    "gpu_versions.py": 8,
    "gpu_effects.py": 71,
    "gpu_effects.py --install": 71,
    "gpu_serving.py": 28,
    "gpu_serving.py --install": 28,
    "gpu_rests.py": 17,
    "gpu_rests.py --install": 17,
    "gpu_objects.py": 70,
    "gpu_objects.py --install": 70,
    "gpu_compile.py": 32,  # and one from Python 3.12
    "gpu_compile.py --install": 30,  # likewise
    "gpu_compile_modes.py": 22,
    "gpu_compile_modes.py --install": 20,
    "gpu_compile_sizes.py": 22,
    "gpu_compile_sizes.py --install": 22,
    "gpu_compile_trees.py": 13,
    "gpu_compile_trees.py --install": 13,
    "gpu_cpu_values.py": 88,
    "gpu_cpu_values.py --install": 88,
    "gpu_answers.py": 17,  # and one needs cuFFT
    "gpu_answers.py --install": 17,
    "gpu_module.py": 32,
    "gpu_module.py --install": 32,
    "gpu_parts.py": 55,
    "gpu_parts.py --install": 55,
    "gpu_graph.py": 13,
    "gpu_graph.py --install": 16,
    "gpu_capture_layers.py": 23,
    "gpu_capture_layers.py --install": 23,
    "gpu_layers.py": 20,
    "gpu_layers.py --install": 20,
    "gpu_trackers.py": 7,
    "gpu_trackers.py --install": 7,
    "gpu_delayed.py": 19,
    "gpu_delayed.py --install": 19,
    "gpu_quantized.py": 12,
    "gpu_quantized.py --install": 12,
    "gpu_megatron.py": 19,  # and one from Python 3.12, and eight where Megatron-core is installed
    "gpu_megatron.py --install": 19,
    "gpu_two.py": 11,  # and one with NCCL and two GPUs
    "gpu_two.py --install": 11,
    "gpu_ranks.py": 4,
    "gpu_ranks.py --install": 4,
    "gpu_random.py": 25,
    "gpu_random.py --install": 25,
    "gpu_estimate.py": 12,
    "gpu_estimate.py --install": 12,
    "gpu_install.py": 13,
    "gpu_shared.py --install": 31,
    "gpu_allocator.py": 68,
    "gpu_allocator.py --install": 86,
    "gpu_recording.py": 8,
    "gpu_recording.py --install": 7,
    "kernels.py": 126,
    "memory.py": 10,
    "memory.py --install": 10,  # and five with --all
    "estimate.py": 7,
    "gpu_frozen.py": 311,
    "gpu_frozen.py --install": 311,
    "kinds.py": 13,
    "kinds.py --install": 13,
    "gpu_report.py": 3,
    "gpu_report.py --install": 5,
    "gpu_pace.py": 2,
    "gpu_pace.py --install": 2,
}

_CUPTI = "CUPTI, a stand-in here, names the first call that a library makes in a capture"
_SORTED = "coalescing sparse gradients sorts, and sorting kernels do nothing here"

KNOWN = {
    "gpu_check.py": {
        "test_libraries_that_wait_unseen": _CUPTI,
        "test_operators_that_wait_unseen": _CUPTI,
    },
    "gpu_gradients.py": {"test_sparse_gradients_stay_eager": _SORTED},
    "gpu_graphed.py": {
        "test_convolution_and_attention": "the fused attention kernels do nothing here",
    },
    "gpu_homes.py": {"test_sparse_gradients_beside_dense_ones_of_a_graph": _SORTED},
}

# Of other versions: how many tests pass at least. Kernels compute as 2.11 has them, so that tests of numbers
# may fail, and are not named.
OTHERS = {
    "2.9": {
        "gpu_stale.py": 19,
        "gpu_versions.py": 7,
        "gpu_module.py": 19,
        "gpu_graph.py": 13,
        "gpu_estimate.py --install": 12,
        "gpu_report.py --install": 5,
    },
    "2.15": {
        "gpu_module.py": 19,
        "gpu_graph.py": 13,
        "gpu_random.py": 15,
        "gpu_exit.py": 4,
        "gpu_estimate.py --install": 12,
        "gpu_report.py --install": 5,
    },
}

# Programs that are not run at all.
LEFT_OUT = {
    "gpu_devices.py": "needs several devices that copy to each other",
    "gpu_policy.py": "goes by how long calls take, which means nothing here",
}
