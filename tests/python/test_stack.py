# SPDX-License-Identifier: MIT
"""Cleaning the stack of the thread that backward passes run on."""

import unittest
from unittest import mock

try:
    import torch
except ImportError:
    torch = None

from reprise import _C
from reprise._capture import stack


@unittest.skipIf(torch is None, "needs PyTorch")
class Cleaning(unittest.TestCase):
    def setUp(self):
        self.device = torch.device("cpu")
        stack.prepare(torch, self.device)

    def cleanings(self):
        with mock.patch.object(stack._C, "clean_stack", mock.Mock(return_value=None)) as cleaned:
            stack.clean(torch, self.device)
        return cleaned.call_count

    def test_happens_within_a_backward_pass(self):
        self.assertEqual(self.cleanings(), 1)
        with torch.no_grad():
            self.assertEqual(self.cleanings(), 0)
        with torch.inference_mode():
            self.assertEqual(self.cleanings(), 0)

    def test_leaves_nothing(self):
        for _ in range(2):
            stack.clean(torch, self.device)
        leaf, grad = stack._leaves[self.device]
        self.assertIsNone(leaf.grad)
        self.assertFalse(leaf.requires_grad)
        self.assertEqual(grad.item(), 0)
        self.assertIsNone(_C.clean_stack(None))


if __name__ == "__main__":
    unittest.main()
