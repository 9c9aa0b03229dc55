# SPDX-License-Identifier: MIT
"""Nodes that add gradients up, with a PyTorch that is played here: who is found to hold one, which of them
are renewed, and which tensors stand for parameters while two graphs are captured."""

import contextlib
import sys
import types
import unittest
import weakref
from unittest import mock

from reprise._grad import nodes
from reprise._grad.nodes import Aliases, Nodes


class Handle:
    def __init__(self, hooks, key):
        self.hooks, self.key = hooks, key

    def hooks_dict_ref(self):
        return self.hooks

    def remove(self):
        del self.hooks[self.key]


class Held:
    """A node that adds gradients up, as C++ has it: alive as long as somebody holds it."""

    def __init__(self):
        self.metadata, self.behind, self.ahead = {}, {}, {}
        self.node = lambda: None


class Node:
    """The same for Python, which holds it."""

    def __init__(self, held):
        self.held = held
        self.metadata, self.behind, self.ahead = held.metadata, held.behind, held.ahead

    def _register(self, hooks, hook):
        key = object()
        hooks[key] = hook
        return Handle(hooks, key)

    def register_hook(self, hook):
        return self._register(self.behind, hook)

    def register_prehook(self, hook):
        return self._register(self.ahead, hook)


class Data:
    """What lies behind a tensor, of a kind."""

    def __init__(self, dtype):
        self.dtype = dtype

    def new_empty(self, count, dtype):
        return Data(dtype)


class Tensor:
    """What PyTorch keeps of a tensor is not in its __dict__."""

    __slots__ = ("__weakref__", "_data", "_node", "is_cuda", "is_leaf", "requires_grad", "_backward_hooks",
                 "_post_accumulate_grad_hooks")

    def __init__(self, data=None):
        self.is_cuda = self.is_leaf = True
        self._data = data or Data("float32")
        self._node = lambda: None
        self.requires_grad = True
        self._backward_hooks = self._post_accumulate_grad_hooks = None

    @property
    def data(self):
        return self._data

    @data.setter
    def data(self, data):
        if data.dtype != self._data.dtype:
            self._node = lambda: None  # as PyTorch does
        self._data = data

    def is_inference(self):
        return False

    def detach(self):
        return type(self)(self._data)

    def requires_grad_(self):
        return self

    def held(self):
        made = self._node()
        if made is None:
            made = Held()
            self._node = weakref.ref(made)
        return made

    def node(self):
        held = self.held()
        made = held.node()
        if made is None:
            made = Node(held)
            held.node = weakref.ref(made)
        return made


class Parameter(Tensor):
    def __init__(self, given=None):
        super().__init__(given.data if isinstance(given, Tensor) else given)


class Function:
    """One whose result knows what it was made of."""

    @classmethod
    def apply(cls, *params):
        return types.SimpleNamespace(grad_fn=types.SimpleNamespace(
            next_functions=[(p.node(), 0) for p in params]))


ONE = [object()]
nodes._alone.append(sys.getrefcount(ONE[0]))  # a node that is played here is held by a list alone
TORCH = types.SimpleNamespace(
    is_inference_mode_enabled=lambda: False, Tensor=Tensor, nn=types.SimpleNamespace(Parameter=Parameter), float16="float16", float32="float32",
    autograd=types.SimpleNamespace(Function=Function), enable_grad=contextlib.nullcontext)


class Module:
    def __init__(self, **params):
        self._parameters = params


class Case(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.object(nodes, "_functions", [])
        patch.start()
        self.addCleanup(patch.stop)


class TestNodes(Case):
    def setUp(self):
        super().setUp()
        self.params = [Parameter() for _ in range(4)]

    def test_which_are_held(self):
        kept = self.params[1].held()
        self.assertEqual(Nodes(TORCH, self.params).held, [self.params[1]])
        self.assertEqual(kept.metadata, {})

    def test_held_ones_are_renewed_and_data_stays(self):
        kept, data = self.params[2].held(), self.params[2].data
        Nodes(TORCH, self.params).renew()
        self.assertIsNot(self.params[2].held(), kept)
        self.assertIs(self.params[2].data, data)

    def test_those_that_python_holds_stay(self):
        kept = [self.params[1].node(), self.params[2].held()]
        found = Nodes(TORCH, self.params)
        self.assertEqual((found.held, found.hooked), (self.params[1:3], self.params[1:2]))
        found.renew()
        self.assertIs(self.params[1].node(), kept[0])
        self.assertIsNot(self.params[2].held(), kept[1])

    def test_nodes_with_hooks_stay(self):
        kept = [p.held() for p in self.params[:3]]
        self.params[0].node().register_hook(print)
        self.params[1].node().register_prehook(print)
        found = Nodes(TORCH, self.params)
        self.assertEqual(found.hooked, self.params[:2])
        found.renew()
        self.assertEqual([p.held() is n for p, n in zip(self.params, kept)], [True, True, False])
        self.assertEqual([len(n.behind) + len(n.ahead) for n in kept], [1, 1, 0])

    def test_what_is_no_plain_parameter_is_left_alone(self):
        class Other(Tensor):
            pass
        others = [Other(), *(Parameter() for _ in range(3))]
        others[1].is_cuda, others[2].requires_grad, others[3].is_leaf = False, False, False
        kept = [p.node() for p in others]
        self.assertEqual(Nodes(TORCH, others).held, [])
        del kept


class TestAliases(Case):
    def setUp(self):
        super().setUp()
        self.params = [Parameter() for _ in range(5)]
        names = ("plain", "hooked", "held", "behind", "twice")
        self.module = Module(**dict(zip(names, self.params)))
        self.other = Module(tied=self.params[4])
        self.params[1]._backward_hooks = {0: print}
        self.params[3]._post_accumulate_grad_hooks = {0: print}
        self.kept = [p.held() for p in self.params[2:]]
        self.params[4].node().register_hook(print)
        self.params[4].main_grad = "somewhere"
        self.aliases = Aliases(TORCH, [self.module, self.other], self.params)
        self.aliases.prepare()

    def test_who_has_one(self):
        """Hooks of a parameter, on its node, or behind one that is held; a node that is merely held is
        renewed."""
        self.assertEqual(self.aliases.params, [self.params[i] for i in (1, 3, 4)])
        self.assertIsNot(self.params[2].held(), self.kept[0])
        self.assertIs(self.params[3].held(), self.kept[1])

    def test_they_share_memory_and_attributes_and_no_hooks(self):
        made = self.aliases.of(self.params[4])
        self.assertIs(made.data, self.params[4].data)
        self.assertEqual((type(made), made.main_grad), (Parameter, "somewhere"))
        self.assertIsNone(self.aliases.of(self.params[1])._backward_hooks)
        self.assertIs(self.aliases.of(self.params[0]), self.params[0])

    def test_modules_have_them_while_the_callable_runs(self):
        seen = []

        def fn():
            seen.append((dict(self.module._parameters), self.other._parameters["tied"]))
            raise ValueError
        before = dict(self.module._parameters)
        with self.assertRaises(ValueError):
            self.aliases.around(fn)()
        inside, tied = seen[0]
        self.assertEqual(inside, {name: self.aliases.of(p) for name, p in before.items()})
        self.assertIs(tied, inside["twice"])
        self.assertEqual(self.module._parameters, before)
        self.assertIs(self.other._parameters["tied"], self.params[4])

    def test_lists_of_recurrent_modules_have_them_too(self):
        flat, refs = [self.params[1], self.params[0], None], []
        self.module._flat_weights, self.module._flat_weight_refs = flat, refs
        with self.aliases.in_place():
            inside = self.module._flat_weights
            self.assertEqual(inside, [self.aliases.of(self.params[1]), self.params[0], None])
            self.assertEqual([r and r() for r in self.module._flat_weight_refs], inside)
        self.assertIs(self.module._flat_weights, flat)
        self.assertIs(self.module._flat_weight_refs, refs)

    def test_nothing_is_left(self):
        self.aliases.finish()
        with self.aliases.in_place():
            self.assertIs(self.module._parameters["hooked"], self.params[1])


if __name__ == "__main__":
    unittest.main()
