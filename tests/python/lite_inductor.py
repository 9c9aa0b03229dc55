# SPDX-License-Identifier: MIT
"""Inductor where Triton is missing: it calls PyTorch's operators in place of kernels that it writes (its own mode
"lite" does). Partitions, caches and requests for graphs are its own still."""

import importlib


def begin():
    """False where this PyTorch has no mode for that (2.9). CUDA is not used."""
    from torch._inductor import config, scheduler
    options = getattr(importlib.import_module("torch._inductor"), "lite_mode_options", None)
    if options is None:
        return False
    config.load_config(config.save_config())  # fails where a name is gone, before anything is changed
    for name, value in options.items():
        at, _, last = name.rpartition(".")
        setattr(getattr(config, at) if at else config, last, value)
    config.compile_threads = 1  # there are no kernels for workers, which would hold this process's output open
    scheduler.has_triton = lambda *_: True
    return True
