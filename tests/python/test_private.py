# SPDX-License-Identifier: MIT
"""What is private of PyTorch, as a PyTorch that is played here has it or lacks it."""

import ast
import os
import pathlib
import types
import unittest
from unittest import mock

import reprise
from reprise import _C
from reprise._alloc import install
from reprise._base import torch_private

PACKAGE = pathlib.Path(reprise.__file__).parent
NAMES = (torch_private._NAMES + torch_private._RECORDING_NAMES + torch_private._HISTORY_NAMES +
         torch_private._COMPILE_NAMES)


class Allocator:
    """As torch.cuda.memory.CUDAPluggableAllocator's own, with all its hooks."""


for _method, _ in torch_private.ALLOCATOR_HOOKS:
    setattr(Allocator, _method, lambda self, hook: None)


def played(version="2.14.1+cu130"):
    """A torch that has every name."""
    torch = types.SimpleNamespace(__version__=version, cuda=types.SimpleNamespace())
    for _, path, _ in NAMES:
        owner, (*parents, last) = torch, path.split(".")
        for name in parents:
            if not hasattr(owner, name):
                setattr(owner, name, types.SimpleNamespace())
            owner = getattr(owner, name)
        setattr(owner, last, lambda *_: None)
    torch._C._cuda_customAllocator = lambda *_: Allocator()
    for name in torch_private.STATISTICS_NAMES + torch_private.HISTORY_NAMES:
        setattr(torch._C, name, lambda *_: None)
    parametrize = types.SimpleNamespace(_cache_enabled=0)
    torch.nn = types.SimpleNamespace(utils=types.SimpleNamespace(parametrize=parametrize))
    return torch


def with_groups(version, has, registered):
    """What is found where torch.distributed has these names, and "nccl" was registered with this."""
    torch = played(version)
    c10d = types.SimpleNamespace(**dict.fromkeys(has, "newer"))
    plugins = {} if registered is None else {"NCCL": types.SimpleNamespace(creator_fn=registered)}
    c10d.Backend = types.SimpleNamespace(_plugins=plugins)
    torch.distributed = types.SimpleNamespace(distributed_c10d=c10d)
    return torch_private.Private(torch)


class Names(unittest.TestCase):
    def test_with_all_of_them_nothing_is_off(self):
        self.assertEqual(torch_private.Private(played()).off, {})

    def test_each_that_is_gone_turns_off_what_it_is_for(self):
        for _, path, feature in NAMES:
            torch = played()
            owner, (*parents, last) = torch, path.split(".")
            for name in parents:
                owner = getattr(owner, name)
            delattr(owner, last)
            private = torch_private.Private(torch)
            self.assertIn(feature, private.off, path)
            with self.assertRaisesRegex(torch_private.Missing, f"{last}$") as caught:
                private.need(feature)
            self.assertIsInstance(caught.exception, _C.Error)
            self.assertRegex(str(caught.exception), r"^\S.*: off, as PyTorch 2\.14\.1\+cu130 has no torch\.")

    def test_a_hook_that_is_gone_turns_off_install(self):
        for method, _ in torch_private.ALLOCATOR_HOOKS:
            with mock.patch.object(Allocator, method, None):
                delattr(Allocator, method)
                torch = played()
                off = torch_private.Private(torch).off
                self.assertEqual(list(off), [torch_private.INSTALL])
                self.assertIn(method, off[torch_private.INSTALL])
                setattr(Allocator, method, None)

    def test_a_statistic_that_is_gone_is_told(self):
        torch = played()
        del torch._C._cuda_memorySnapshot
        self.assertEqual(list(torch_private.Private(torch).off), [torch_private.STATISTICS])

    def test_a_cache_of_parametrizations_that_cannot_be_told_is_told_of(self):
        torch = played()
        del torch.nn.utils.parametrize._cache_enabled
        private = torch_private.Private(torch)
        self.assertIsNone(private.parametrize)
        self.assertEqual(list(private.off), [torch_private.PARAMETRIZED])

    def test_the_earlier_process_group_is_looked_for_where_a_newer_is_in_its_place(self):
        register = "_register_builtin_nccl_as_legacy"
        for has, registered, off in (((), "", []), ((register, "_create_nccl2_process_group"), "newer", []),
                                     (("_create_nccl2_process_group",), "newer", [torch_private.NCCL]),
                                     (("_create_nccl2_process_group",), "earlier", [])):
            private = with_groups("2.15.0", has, registered)
            self.assertEqual(list(private.off), off)
            self.assertEqual(private.register_earlier_nccl, "newer" if register in has else None)

    def test_the_environment_decides_before_a_process_group_is_registered(self):
        register, newer = "_register_builtin_nccl_as_legacy", "_create_nccl2_process_group"
        for version, asked, has, taken in (
                ("2.15.0", None, (register, newer), "newer"), ("2.15.0", "0", (register, newer), None),
                ("2.15.0", None, (), None), ("2.14.1", None, (newer,), None)):
            with mock.patch.dict(os.environ, TORCH_DIST_USE_NCCL2=asked or ""):
                private = with_groups(version, has, None)
            self.assertEqual((private.register_earlier_nccl, list(private.off)), (taken, []))
        with mock.patch.dict(os.environ, {"TORCH_DIST_USE_NCCL2": "1"}):
            private = with_groups("2.14.1", (newer,), None)
        self.assertEqual(list(private.off), [torch_private.NCCL])

    def test_install_takes_the_earlier_process_group(self):
        taken = mock.Mock()
        install._take_earlier_nccl(types.SimpleNamespace(off={}, register_earlier_nccl=taken))
        taken.assert_called_once_with()
        install._take_earlier_nccl(types.SimpleNamespace(off={}, register_earlier_nccl=None))
        with self.assertWarnsRegex(UserWarning, "^a sentence. Set TORCH_DIST_USE_NCCL2=0 "):
            install._take_earlier_nccl(types.SimpleNamespace(
                off={torch_private.NCCL: "a sentence"}, register_earlier_nccl=None))

    def test_all_that_is_off_is_listed(self):
        torch = played()
        del torch._C._functions.DelayedError, torch._C._cuda_memorySnapshot
        with mock.patch.dict("sys.modules", torch=torch), mock.patch.object(torch_private, "_found", None):
            off = torch_private.missing()
        self.assertEqual([feature for feature, _ in off], [torch_private.TWICE, torch_private.STATISTICS])

    def test_versions_tell_how_captures_and_generators_are_tied(self):
        for version, begins, registers, resets in (
                ("2.9.1", False, True, False), ("2.11.0+cu130", False, True, False),
                ("2.12.1", True, True, False), ("2.13.0", True, True, False),
                ("2.14.1", True, False, True), ("2.99.0", True, False, True)):
            private = torch_private.Private(played(version))
            self.assertEqual((private.begins_captures, private.registers_generators,
                              private.resets_failed), (begins, registers, resets), version)

    def test_dynamo_compiles_in_captures(self):
        dynamo = types.SimpleNamespace(_in_hop_compile=lambda: False)
        captures = mock.Mock(side_effect=[False, True, False])
        with mock.patch.dict("sys.modules", {"torch._dynamo.convert_frame": dynamo}):
            for _ in range(2):
                torch_private.let_captures_compile(captures)
        self.assertEqual([dynamo._in_hop_compile() for _ in range(3)], [False, True, False])
        older = types.SimpleNamespace()
        for module in (older, None):
            with mock.patch.dict("sys.modules", {"torch._dynamo.convert_frame": module}):
                torch_private.let_captures_compile(captures)
        self.assertEqual(vars(older), {})

    def test_a_version_that_cannot_be_read_is_taken_for_the_newest(self):
        newest = "{}.{}.0".format(*torch_private.NEWEST)
        self.assertEqual(torch_private.Private(played("git")).begins_captures,
                         torch_private.Private(played(newest)).begins_captures)


class OneModule(unittest.TestCase):
    """Nothing private of PyTorch's is named elsewhere, but for what is learned by looking at it."""

    ALLOWED = {"_base/torch_private.py", "_call/address.py", "_alloc/install.py"}  # the last answers for it

    def test_no_other_module_names_torch_C(self):
        for file in PACKAGE.rglob("*.py"):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            named = {node.lineno for node in ast.walk(tree)
                     if isinstance(node, ast.Attribute) and node.attr == "_C"
                     and not (isinstance(node.value, ast.Name) and node.value.id == "reprise")}
            name = file.relative_to(PACKAGE).as_posix()
            self.assertFalse(named and name not in self.ALLOWED, f"{name}: torch._C in lines {sorted(named)}")

    def test_no_decision_hangs_on_the_text_of_an_error(self):
        for file in PACKAGE.rglob("*.py"):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if not isinstance(node, ast.Compare) or not isinstance(node.left, ast.Constant):
                    continue
                asked = ast.dump(node.comparators[0])
                self.assertFalse("id='str'" in asked and "error" in asked,
                                 f"{file.name}: line {node.lineno} looks for a word in an error")


if __name__ == "__main__":
    unittest.main()
