# SPDX-License-Identifier: MIT
"""Collectives that no capture can hold are refused before they begin."""

import unittest
from unittest import mock

try:
    import torch
    from torch import distributed
except ImportError:
    torch = None

from reprise._capture import distributed as _distributed


@unittest.skipIf(torch is None or not distributed.is_available() or not distributed.is_gloo_available(),
                 "needs PyTorch with gloo")
class Gloo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)

    @classmethod
    def tearDownClass(cls):
        distributed.destroy_process_group()

    def capturing(self, on):
        return mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: on)

    def test_collectives_are_refused_in_captures_only(self):
        x = torch.ones(3)
        with self.capturing(True):
            distributed.all_reduce(x)  # of somebody else's capture
            _distributed.begin(torch)
            _distributed.begin(torch)
            with self.assertRaisesRegex(RuntimeError, "backend 'gloo'.*use NCCL"):
                distributed.all_reduce(x)
            _distributed.end()
            with self.assertRaisesRegex(RuntimeError, "cannot be captured"):
                distributed.broadcast(x, 0)
            with self.capturing(False):
                distributed.all_reduce(x)
            _distributed.end()
            distributed.all_reduce(x)
        self.assertEqual(x.tolist(), [1, 1, 1])

    def test_questions_about_the_group_are_none(self):
        with self.capturing(True):
            _distributed.begin(torch)
            try:
                self.assertEqual((distributed.get_rank(), distributed.get_world_size()), (0, 1))
                self.assertEqual(distributed.get_backend(), "gloo")
            finally:
                _distributed.end()

    def test_modules_are_refused(self):
        net = torch.nn.Linear(2, 2)
        parallel = torch.nn.parallel.DistributedDataParallel(net)
        modules = list(parallel.modules())
        self.assertEqual(_distributed.find_parallel(torch, modules), [parallel])
        with self.assertRaisesRegex(RuntimeError, "backend 'gloo'"):
            _distributed.check_modules(torch, modules, False)
        with self.assertRaisesRegex(RuntimeError, "leave its reduction out"):
            _distributed.check_modules(torch, modules, True)
        _distributed.check_modules(torch, list(net.modules()), True)


class Without(unittest.TestCase):
    @unittest.skipIf(torch is None, "needs PyTorch")
    def test_a_program_without_groups_is_left_alone(self):
        with mock.patch.object(_distributed, "_module", lambda: None):
            _distributed.begin(torch)
            _distributed.end()


if __name__ == "__main__":
    unittest.main()
