# SPDX-License-Identifier: MIT
"""What tests/torch_on_host/run.py expects: for each run of a program how many tests pass at least, and for
each program the tests that are known to fail on the host driver, with the reason."""

RUNS = {
}

_CUPTI = "CUPTI, a stand-in here, names the first call that a library makes in a capture"
_TIMES = "goes by how long calls take, which means nothing here"
_SORTED = "coalescing sparse gradients sorts, and sorting kernels do nothing here"

KNOWN = {
    "gpu_check.py": {
        "test_libraries_that_wait_unseen": _CUPTI,
        "test_operators_that_wait_unseen": _CUPTI,
    },
    "gpu_gradients.py": {"test_sparse_gradients_stay_eager": _SORTED},
    "gpu_graphed.py": {
        "test_compiled": "torch.compile needs Triton's compiler",
        "test_convolution_and_attention": "the fused attention kernels do nothing here",
    },
    "gpu_homes.py": {"test_sparse_gradients_beside_dense_ones_of_a_graph": _SORTED},
}

# Programs that are not run at all.
LEFT_OUT = {
    "gpu_devices.py": "needs two devices that copy to each other",
}
