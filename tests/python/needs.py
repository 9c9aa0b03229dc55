# SPDX-License-Identifier: MIT
"""What tests need of PyTorch that an older one has not: they are skipped there, by name."""

import unittest

import torch

fast_path = unittest.skipUnless(hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
                                "this PyTorch tells nothing of tensors in C, so no call takes the fast path")
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
draws_in_captures = unittest.skipUnless(VERSION >= (2, 10), "this PyTorch does not tell a generator's state in a capture, "
                                        "so that nothing is drawn there")
