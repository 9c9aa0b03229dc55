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

    def test_sharded_modules_are_refused(self):
        """With all modules in them, and with twins of those."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        net, other = (torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())) for _ in "ab")
        fully_shard(net[0], mesh=init_device_mesh("cpu", (1,)))
        twin = torch.nn.Linear.__new__(torch.nn.Linear)
        twin.__dict__ = net[0][0].__dict__
        for modules, name in (([net[0][0]], "'Linear' in "), ([twin], "'Linear' in "), (list(net.modules()), "")):
            with self.assertRaisesRegex(RuntimeError, f"^{name}'FSDPSequential' is sharded by fully_shard.*"
                                                      "reprise.graphed\\(function\\)\\(x, \\*parameters\\)"):
                _distributed.check_modules(torch, modules, True)
        _distributed.check_modules(torch, list(other.modules()), True)
        _distributed.check_modules(torch, [net[0][1]], True)  # it has no parameters

    def test_tensors_of_several_ranks_are_refused(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import distribute_module
        net = distribute_module(torch.nn.Linear(2, 2), init_device_mesh("cpu", (1,)))
        with self.assertRaisesRegex(RuntimeError, r"parameters of 'Linear' are tensors of several ranks.*to_local\(\)"):
            _distributed.check_modules(torch, [torch.nn.Linear(2, 2), net], False)


class Without(unittest.TestCase):
    @unittest.skipIf(torch is None, "needs PyTorch")
    def test_a_program_without_groups_is_left_alone(self):
        with mock.patch.object(_distributed, "_module", lambda: None):
            _distributed.begin(torch)
            _distributed.end()


if __name__ == "__main__":
    unittest.main()
