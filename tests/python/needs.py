# SPDX-License-Identifier: MIT
"""What tests need of PyTorch that an older one has not: they are skipped there, by name."""

import functools
import importlib.util
import unittest

import torch

fast_path = unittest.skipUnless(hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
                                "this PyTorch tells nothing of tensors in C, so no call takes the fast path")
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
draws_in_captures = unittest.skipUnless(VERSION >= (2, 10), "this PyTorch does not tell a generator's state in a capture, "
                                        "so that nothing is drawn there")
triton = unittest.skipUnless(importlib.util.find_spec("triton"), "torch.compile for the GPU needs Triton")



def recurrent_nets(test):
    """A test of nets that cuDNN computes: PyTorch refuses one that it was not built for."""
    @functools.wraps(test)
    def run(self):
        try:
            torch.nn.RNN(8, 16).cuda()(torch.ones(1, 4, 8, device="cuda"))
        except RuntimeError as error:
            self.skipTest(f"PyTorch computes no recurrent net here: {error}")
        test(self)
    return run
