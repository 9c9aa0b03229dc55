# SPDX-License-Identifier: MIT
"""Cleaning the stack of the thread that backward passes run on."""

import threading
import unittest
from unittest import mock

try:
    import torch
except ImportError:
    torch = None

from reprise import _C
from reprise._base import torch_private
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


@unittest.skipIf(torch is None, "needs PyTorch")
class Draining(unittest.TestCase):
    def test_goes_back_on_each_device_in_use_and_on_a_thread_of_its_own(self):
        gone, here = [], threading.get_ident()
        cuda = mock.Mock(**{"is_initialized.return_value": True, "device_count.return_value": 3})
        with mock.patch.multiple(torch, cuda=cuda, device=lambda *at: gone.append(at) or "cpu"), \
             mock.patch.object(torch._C, "_cuda_hasPrimaryContext", lambda index: index != 1), \
             mock.patch.object(stack.torch_private, "go_back",
                               lambda *_: gone.append(threading.get_ident() == here)):
            stack.drain()
        self.assertEqual(gone, [("cuda", 0), False, ("cuda", 2), False])

    def test_waits_for_so_long(self):
        free = threading.Event()
        threading.Timer(5.0, free.set).start()
        self.assertFalse(_C.run_aside(free.wait, 0.01))
        free.set()
        self.assertTrue(_C.run_aside(lambda: 1 / 0, 60.0))

    def test_passes_hold_nothing_of_the_caller(self):
        leaf = torch.zeros(0, requires_grad=True)
        with mock.patch.object(torch.autograd.graph, "contextvars", mock.Mock(), create=True) as asked:
            torch_private.go_back(torch, leaf * 2, torch.zeros(0))
        self.assertEqual(asked.mock_calls, [])
        self.assertEqual(leaf.grad.shape, (0,))

    def test_later_passes_are_followed(self):
        leaf, seen = torch.zeros(1, requires_grad=True), []
        with mock.patch.object(torch.autograd, "_engine_run_backward", torch.autograd._engine_run_backward):
            torch_private.after_each_pass(torch, lambda: seen.append(leaf.grad.item()))
            leaf.sum().backward()
            self.assertEqual(seen, [1])
            inner = torch.zeros(1, requires_grad=True).sum()
            leaf.register_hook(lambda _: inner.backward())  # within the other, and not followed
            leaf.sum().backward()
        self.assertEqual(seen, [1, 2])


if __name__ == "__main__":
    unittest.main()
