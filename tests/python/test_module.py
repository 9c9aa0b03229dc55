# SPDX-License-Identifier: MIT
"""A graphed module where there is no GPU: it is the module, with one warning."""

import unittest
import warnings
from unittest import mock

try:
    import torch
    from module_case import ModuleCase
except ImportError:
    torch, ModuleCase = None, type("ModuleCase", (), {})

import reprise
from reprise._call import make


@unittest.skipIf(torch is None or torch.cuda.is_available(), "needs PyTorch, and no GPU")
class Modules(ModuleCase, unittest.TestCase):
    def test_one_warning_says_why(self):
        with mock.patch.object(make, "_warned", False), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            made = [reprise.graphed(torch.nn.Linear(8, 8)), reprise.graphed(lambda x: x + 1)]
        self.assertEqual(len(said), 1)
        self.assertIn("PyTorch finds no GPU", str(said[0].message))
        self.assertEqual(said[0].filename, __file__)
        self.assertTrue(torch.equal(made[1](self.x), self.x + 1))
        self.assertIn("no GPU", made[0].failures()[0])
        self.assertEqual((made[0].shapes(), made[0].pool), ([], None))

    def test_strict_raises(self):
        with self.assertRaisesRegex(RuntimeError, "needs an NVIDIA GPU"):
            reprise.graphed(self.net, strict=True)

    def test_torchscript_is_called_through_a_function(self):
        scripted = torch.jit.script(torch.nn.Linear(8, 8))
        made = reprise.graphed(scripted)
        self.assertIsInstance(made, reprise.Graphed)
        self.same(made, scripted)
        with self.assertRaisesRegex(TypeError, "TorchScript"):
            reprise.graphed_(scripted)


if __name__ == "__main__":
    unittest.main()
