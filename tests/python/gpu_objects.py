# SPDX-License-Identifier: MIT
"""Objects among the arguments bring their tensors: beside an eager twin, on a GPU, under install() and
without it: usage: gpu_objects.py [--install] ..."""

import collections
import copy
import dataclasses
import gc
import importlib
import sys
import types
import unittest
import warnings
import weakref
from unittest import mock

import torch

import reprise
from training_steps import need_transformers

if "--install" in sys.argv:
    sys.argv.remove("--install")
    reprise.install()

CALLS = 4


def full(value, *shape):
    return torch.full(shape or (4, 16), float(value), device="cuda")


def inputs(count=CALLS):
    maker = torch.Generator().manual_seed(3)
    return [torch.randn(4, 16, generator=maker).cuda() for _ in range(count)]


class Cache:
    """As a decoder's of fixed length: layers that are written in place."""

    def __init__(self, value=0.0, layers=2):
        self.layers = [types.SimpleNamespace(total=full(value + i)) for i in range(layers)]
        self.seen = {"count": full(0, 1)}

    def update(self, y):
        for layer in self.layers:
            y = y + layer.total
            layer.total.add_(y)
        self.seen["count"].add_(1)
        return y * self.seen["count"]

    def state(self):
        return [layer.total for layer in self.layers] + [self.seen["count"]]


@dataclasses.dataclass
class Batch:
    hidden: torch.Tensor
    scale: float = 1.0


class Slots:
    __slots__ = ("hidden", "scale", "__weakref__")

    def __init__(self, hidden, scale=1.0):
        self.hidden, self.scale = hidden, scale


class Table(dict):
    """A dict with attributes."""


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.net = torch.nn.Linear(16, 16).cuda()

    def same(self, got, want):
        for a, b in zip(got, want, strict=True):
            self.assertTrue(torch.equal(a, b), (a, b))

    def replays(self, made):
        return sum(s["replays"] for s in made.shapes())


class Kinds(Case):
    """Another object at each call, of each kind: one graph."""

    def check(self, make, read):
        def fn(x, held):
            return self.net(x) * read(held)
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for i, x in enumerate(inputs(6)):
                self.assertTrue(torch.equal(made(x, make(full(i))), fn(x, make(full(i)))), i)
        self.assertEqual((len(made.shapes()), self.replays(made)), (1, 5))

    def test_dataclass(self):
        self.check(lambda t: Batch(t, 2.0), lambda held: held.hidden * held.scale)

    def test_namespace(self):
        self.check(lambda t: types.SimpleNamespace(hidden=t), lambda held: held.hidden)

    def test_slots(self):
        self.check(lambda t: Slots(t, 3.0), lambda held: held.hidden * held.scale)

    def test_elements_of_a_list_in_an_object(self):
        self.check(lambda t: types.SimpleNamespace(some=[t, 2.0]), lambda held: held.some[0] * held.some[1])

    def test_items_of_a_dict_in_an_object(self):
        self.check(lambda t: types.SimpleNamespace(some={"t": t}), lambda held: held.some["t"])

    def test_dicts_of_other_classes(self):
        self.check(lambda t: Table(t=t), lambda held: held["t"])
        self.check(lambda t: collections.OrderedDict(t=t), lambda held: held["t"])
        self.check(lambda t: collections.UserDict(t=t), lambda held: held["t"])

    def test_attribute_of_a_dict(self):
        def make(t):
            made = Table()
            made.extra = t
            return made
        self.check(make, lambda held: held.extra)

    def test_objects_in_objects(self):
        self.check(lambda t: Batch(types.SimpleNamespace(inner=Slots(t))),
                   lambda held: held.hidden.inner.hidden)

    def test_in_a_tree_of_arguments(self):
        self.check(lambda t: {"batch": (Batch(t), 3.0)},
                   lambda held: held["batch"][0].hidden * held["batch"][1])

    def test_views(self):
        def make(t):
            whole = torch.cat([t, t + 1])
            return types.SimpleNamespace(low=whole[:4], high=whole[4:])
        self.check(make, lambda held: held.low - held.high.t().contiguous().t())

    def test_attributes_of_a_tensor(self):
        def make(t):
            t.factor = 3.0
            return Batch(t)
        self.check(make, lambda held: held.hidden * held.hidden.factor)


class Loops(Case):
    def graphed(self):
        def fn(x, cache):
            return cache.update(self.net(x))
        return fn, reprise.graphed(fn, strict=True)

    def test_a_cache_for_each_loop(self):
        fn, made = self.graphed()
        with torch.no_grad():
            for n in range(4):
                cache, twin = Cache(n), Cache(n)
                for x in inputs():
                    self.assertTrue(torch.equal(made(x, cache), fn(x, twin)))
                    self.same(cache.state(), twin.state())
        self.assertEqual((len(made.shapes()), self.replays(made)), (1, 4 * CALLS - 1))

    def test_caches_in_turn(self):
        fn, made = self.graphed()
        caches, twins = [Cache(n) for n in range(3)], [Cache(n) for n in range(3)]
        with torch.no_grad():
            for x in inputs(3):
                for cache, twin in zip(caches, twins):
                    self.assertTrue(torch.equal(made(x, cache=cache), fn(x, twin)))
                    self.same(cache.state(), twin.state())
        self.assertEqual((len(made.shapes()), self.replays(made)), (1, 8))

    def test_structures_are_told_apart(self):
        fn, made = self.graphed()
        with torch.no_grad():
            for layers in (2, 3, 2, 3):
                for x in inputs(2):
                    cache, twin = Cache(1, layers), Cache(1, layers)
                    self.assertTrue(torch.equal(made(x, cache), fn(x, twin)))
        self.assertEqual(len(made.shapes()), 2)

    def test_a_structure_that_changes(self):
        """In an object that calls were made with: another tensor, another shape, another number."""
        def fn(x, batch):
            return self.net(x) * batch.hidden * batch.scale
        made = reprise.graphed(fn, strict=True)
        batch = Batch(full(1))
        with torch.no_grad():
            for change in (lambda: None, lambda: setattr(batch, "hidden", full(2)),
                           lambda: setattr(batch, "scale", 3.0), lambda: setattr(batch, "hidden", full(5, 16)),
                           lambda: setattr(batch, "hidden", full(1).t().contiguous().t()),
                           lambda: setattr(batch.hidden, "data", full(4).t().contiguous().t()),
                           lambda: batch.hidden.fill_(6)):
                change()
                for x in inputs(2):
                    self.assertTrue(torch.equal(made(x, batch), fn(x, batch)))
        self.assertEqual(len(made.shapes()), 4)

    def test_a_state_that_is_read_and_replaced(self):
        """What calls assign goes to the object of the call."""
        def fn(x, state):
            state.hidden = torch.tanh(self.net(x) + state.hidden)
            return state.hidden * 2
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for n in range(3):
                state, twin = Batch(full(n)), Batch(full(n))
                for x in inputs():
                    out = made(x, state)
                    self.assertTrue(torch.equal(out, fn(x, twin)))
                    self.assertTrue(torch.equal(state.hidden, twin.hidden))
        self.assertEqual((len(made.shapes()), self.replays(made)), (1, 3 * CALLS - 1))

    def test_tensors_that_change_places(self):
        def fn(x, state):
            state.old, state.new = state.new, self.net(x) + state.old
            return state.new * 2

        def state_of(n):
            return types.SimpleNamespace(old=full(n), new=full(n + 1))
        made = reprise.graphed(fn)
        with torch.no_grad():
            for n in range(3):
                state, twin = state_of(n), state_of(n)
                for x in inputs():
                    self.assertTrue(torch.equal(made(x, state), fn(x, twin)))
                    self.same((state.old, state.new), (twin.old, twin.new))

    def test_made_lazily(self):
        """The first call with each object fills it."""
        def fn(x, cache):
            if cache.hidden is None:
                cache.hidden, cache.scale = x * 0, 2.0
            cache.hidden.add_(self.net(x))
            return cache.hidden * cache.scale
        made = reprise.graphed(fn)
        with torch.no_grad():
            for n in range(6):
                cache, twin = Batch(None), Batch(None)
                for x in inputs():
                    self.assertTrue(torch.equal(made(x, cache), fn(x, twin)))
                    self.assertTrue(torch.equal(cache.hidden, twin.hidden))
                    self.assertEqual(cache.scale, twin.scale)
                if n == 3:
                    count = len(made.shapes())
        self.assertEqual((len(made.shapes()), count), (2, 2), made.failures())

    def test_counters(self):
        """A number that each call changes: such calls are eager, with one warning."""
        def fn(x, batch):
            batch.scale += 1
            return self.net(x) * batch.hidden
        made = reprise.graphed(fn)
        with torch.no_grad(), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for n in range(2):
                batch, twin = Batch(full(n)), Batch(full(n))
                for x in inputs():
                    self.assertTrue(torch.equal(made(x, batch), fn(x, twin)))
                    self.assertEqual(batch.scale, twin.scale)
        told = [str(w.message) for w in said if "reprise" in str(w.message)]
        self.assertEqual(len(told), 1)
        self.assertIn("batch.scale" if "batch.scale" in told[0] else "'argument 2.scale'", told[0])

    def test_code_that_runs_late(self):
        """What a method reads is looked at though it first ran within the module's first call."""
        class Inner(torch.nn.Module):
            def forward(self, x, batch):
                return x * batch.scale + batch.hidden

        class Outer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Inner()

            def forward(self, x, batch):
                return self.inner(x, batch)
        net, batch = Outer(), Batch(full(1))
        made = reprise.graphed(net, strict=True)
        with torch.no_grad():
            for scale in (1.0, 1.0, 2.0, 1.0, 3.0):
                batch.scale = scale
                for x in inputs(1):
                    self.assertTrue(torch.equal(made(x, batch), net(x, batch)))


class Decoders(Case):
    """transformers' static cache, which makes another object for each sequence."""

    def setUp(self):
        need_transformers(self)
        from transformers import LlamaConfig, LlamaForCausalLM
        torch.manual_seed(0)
        self.net = LlamaForCausalLM(LlamaConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=6, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=200, max_position_embeddings=128,
            attn_implementation="eager")).cuda().eval()
        # The cache does without it where a device has no such kernel, as this one may.
        def missing(*args):
            raise NotImplementedError
        patcher = mock.patch.object(torch.Tensor, "index_copy_", missing)
        patcher.start()
        self.addCleanup(patcher.stop)

    def test_generate(self):
        def generate(n):
            ids = (torch.arange(16).remainder(7) + n).view(2, 8).cuda()
            return self.net.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, min_new_tokens=8,
                                     max_new_tokens=8, do_sample=False, cache_implementation="static",
                                     disable_compile=True).cpu()
        want = [generate(n) for n in range(5)]
        made = self.net.forward = reprise.graphed(self.net.forward)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for n, replays in enumerate((7, 14, 22, 30, 38)):  # the first step, too, behind two that fill a cache
                self.assertTrue(torch.equal(generate(n), want[n]))
                self.assertEqual(self.replays(made), replays, made.failures())

    def test_prefill_and_decoding(self):
        """Of a cache that was made ahead: a graph for each of both, and none for another sequence."""
        from transformers import StaticCache

        def tokens(forward, n):
            cache, found = StaticCache(config=self.net.config, max_cache_len=16), []
            cache.early_initialization(2, 2, 16, torch.float32, torch.device("cuda"))
            ids = (torch.arange(16).remainder(7) + n).view(2, 8).cuda()
            at = torch.arange(8, device="cuda")
            for _ in range(6):
                out = forward(input_ids=ids, position_ids=at.expand(2, -1).contiguous(), past_key_values=cache)
                self.assertIs(out.past_key_values, cache)
                found.append(out.logits[:, -1].clone())
                ids, at = out.logits[:, -1:].argmax(-1), at[-1:] + 1
            return torch.stack(found)
        made = reprise.graphed(self.net.forward, strict=True)
        with torch.no_grad():
            for n in range(4):
                self.assertTrue(torch.equal(tokens(made, n), tokens(self.net.forward, n)))
                if n == 1:
                    count = len(made.shapes())
        self.assertEqual((count, len(made.shapes())), (2, 2))


class Aliasing(Case):
    def check(self, fn, make, shapes=1, calls=CALLS):
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for n in range(3):
                args, twins = make(n), make(n)
                for x in inputs(calls):
                    self.assertTrue(torch.equal(made(x, *args), fn(x, *twins)))
        self.assertEqual(len(made.shapes()), shapes)
        return made

    def test_one_tensor_twice_in_an_object(self):
        def make(n):
            t = full(n)
            return (types.SimpleNamespace(a=t, b=t),)

        def fn(x, some):
            some.a.add_(1)
            return self.net(x) * some.b + float(some.a is some.b)
        self.check(fn, make)

    def test_one_tensor_in_two_objects(self):
        def make(n):
            t = full(n)
            return Batch(t), Batch(t)

        def fn(x, a, b):
            a.hidden.add_(1)
            return self.net(x) * b.hidden
        self.check(fn, make)

    def test_whether_two_are_one_tells_calls_apart(self):
        def fn(x, a, b):
            a.hidden.add_(1)
            return self.net(x) * b.hidden

        def make(n):
            t = full(n)
            return Batch(t), Batch(t if n % 2 else full(n))
        self.check(fn, make, shapes=2)

    def test_an_argument_that_an_object_has_too(self):
        def fn(x, batch):
            batch.hidden.add_(1)
            return self.net(x) * batch.hidden
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for x in inputs(6):
                y = x.clone()
                self.assertTrue(torch.equal(made(x, Batch(x)), fn(y, Batch(y))))
        self.assertEqual(len(made.shapes()), 1)

    def test_a_view_of_another(self):
        def fn(x, some):
            some.row.add_(1)
            return self.net(x) * some.whole

        def make(n):
            whole = full(n)
            return (types.SimpleNamespace(whole=whole, row=whole[1]),)
        self.check(fn, make)

    def test_what_the_function_has_too_is_told_by_identity(self):
        shared = [full(1), full(2)]

        def fn(x, batch):
            batch.hidden.add_(1)
            return self.net(x) * shared[0] + shared[1]
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for which in (0, 1, 0, 1):
                for x in inputs(2):
                    twin = [t.clone() for t in shared]
                    got = made(x, Batch(shared[which]))
                    twin[which].add_(1)
                    self.assertTrue(torch.equal(got, self.net(x) * twin[0] + twin[1]))
        self.assertEqual(len(made.shapes()), 2)

    def test_an_object_twice(self):
        def fn(x, a, b):
            a.hidden.add_(1)
            return self.net(x) * b.hidden * (2.0 if a is b else 1.0)

        def make(n):
            batch = Batch(full(n))
            return batch, batch
        self.check(fn, make)


class Results(Case):
    def test_the_object_of_the_call(self):
        def fn(x, batch):
            return {"out": self.net(x) * batch.hidden, "batch": batch}
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for n in range(4):
                batch = Batch(full(n))
                for x in inputs(2):
                    got = made(x, batch)
                    self.assertIs(got["batch"], batch)
                    self.assertTrue(torch.equal(got["out"], fn(x, batch)["out"]))
        self.assertEqual((len(made.shapes()), self.replays(made)), (1, 7))

    def test_a_tensor_of_the_object(self):
        def fn(x, batch):
            batch.hidden.add_(self.net(x))
            return batch.hidden
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for n in range(3):
                batch, twin = Batch(full(n)), Batch(full(n))
                for x in inputs():
                    got = made(x, batch)
                    self.assertEqual(got.data_ptr(), batch.hidden.data_ptr())
                    self.assertTrue(torch.equal(got, fn(x, twin)))

    def test_a_part_of_the_object_is_refused(self):
        def fn(x, batch):
            return self.net(x), batch.hidden

        def batch_of(n):
            return Batch(types.SimpleNamespace(scale=n))
        made = reprise.graphed(fn)
        with torch.no_grad(), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(4):
                batch = batch_of(1)
                self.assertIs(made(inputs(1)[0], batch)[1], batch.hidden)
        self.assertIn("returns a part of an object", str(said[-1].message))


class Containers(Case):
    def test_a_list_that_the_program_has(self):
        """Each call returns it, whatever is in it by then."""
        names, weight = ["first"], torch.ones(4, device="cuda")
        table = {"weight": weight, "more": [1]}

        def fn(x):
            return x * 2, names, {"table": table, "here": [x + 1]}
        call, x = reprise.graphed(fn, strict=True), torch.ones(4, device="cuda")
        for i in range(6):
            if i == 4:
                names.append("second")
            doubled, first, rest = call(x)
            self.assertIs(first, names)
            self.assertIs(rest["table"], table)
            self.assertIs(table["weight"], weight)
            self.assertEqual((doubled.tolist(), rest["here"][0].tolist()), ([2.0] * 4, [2.0] * 4))
        self.assertGreater(sum(shape["replays"] for shape in call.shapes()), 3)

    def test_a_list_of_the_program_that_a_call_fills(self):
        kept = [None]

        def fn(x):
            kept[0] = x * 2
            return kept
        call = reprise.graphed(fn, strict=True)
        for i in range(9):
            self.assertIs(call(torch.full((4 + i // 5,), float(i), device="cuda")), kept)
            self.assertEqual(kept[0].tolist(), [2.0 * i] * (4 + i // 5))
        self.assertGreater(sum(shape["replays"] for shape in call.shapes()), 4)

    def test_an_ordered_dict_of_the_program_that_a_call_fills(self):
        kept = collections.OrderedDict(last=None)

        def fn(x):
            kept["last"] = x * 2
            return x, kept
        call = reprise.graphed(fn, strict=True)
        for i in range(6):
            self.assertIs(call(torch.full((4,), float(i), device="cuda"))[1], kept)
            self.assertEqual(kept["last"].tolist(), [2.0 * i] * 4)

    def test_containers_in_two_places(self):
        def twice(x):
            made = [x * 2]
            return {"one": made, "other": (made,)}

        def within(x):
            made = {"y": x * 2}
            return made, [made]
        for fn, kind in ((twice, "list"), (within, "dict")):
            call, x = reprise.graphed(fn), torch.ones(4, device="cuda")
            with self.subTest(kind), self.assertWarnsRegex(UserWarning, f"returns the same {kind} in two places"):
                for _ in range(4):
                    found = call(x)
                    first, second = (found["one"], found["other"][0]) if fn is twice else (found[0], found[1][0])
                    self.assertIs(first, second)

    def test_containers_that_are_alike(self):
        call = reprise.graphed(lambda x: ([x * 2], [x * 2], [], []), strict=True)
        for _ in range(4):
            self.assertEqual(len(call(torch.ones(4, device="cuda"))), 4)
        self.assertGreater(sum(shape["replays"] for shape in call.shapes()), 2)


class Node:
    """Refers to others of its kind."""

    def __init__(self, hidden, other=None):
        self.hidden, self.other = hidden, other


class Finalized(Node):
    """Does something as it goes."""

    def __del__(self):
        pass


class Made(Case):
    """Objects that a call makes and returns, as a decoder's cache is: each replay makes one."""

    def check(self, make, tensors, calls=5, captured=True):
        """tensors: those in a result, in an order."""
        made, results = reprise.graphed(make), []
        with torch.no_grad(), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for x in inputs(calls):
                got = made(x)
                self.same(tensors(got), tensors(make(x)))
                results.append((got, [t.clone() for t in tensors(got)]))
        for got, before in results:  # later calls leave them alone
            self.same(tensors(got), before)
        self.assertEqual(len({id(got) for got, _ in results}), calls)
        self.assertEqual(self.replays(made), calls - 1 if captured else 0, made.failures())
        self.assertEqual(bool(said), not captured)
        return [got for got, _ in results]

    def test_an_object(self):
        one, *_, last = self.check(lambda x: Batch(self.net(x), 2.0), lambda got: [got.hidden * got.scale])
        self.assertIs(type(last), Batch)
        last.scale = 3.0
        self.assertEqual(one.scale, 2.0)

    def test_an_object_that_is_frozen(self):
        @dataclasses.dataclass(frozen=True)
        class Frozen:
            hidden: torch.Tensor
            name: str = "one"

        *_, last = self.check(lambda x: Frozen(self.net(x)), lambda got: [got.hidden])
        self.assertEqual(last.name, "one")
        with self.assertRaises(dataclasses.FrozenInstanceError):
            last.name = "another"

    def test_objects_in_objects_and_containers(self):
        def make(x):
            y = self.net(x)
            return {"caches": [Node(y, Node(y + 1)), Node([y * 2, {"z": y.relu()}], 3)]}

        *_, one, last = self.check(make, lambda got: [got["caches"][0].hidden, got["caches"][0].other.hidden,
                                                      got["caches"][1].hidden[0], got["caches"][1].hidden[1]["z"]])
        self.assertEqual(last["caches"][1].other, 3)
        self.assertIsNot(one["caches"][1].hidden, last["caches"][1].hidden)

    def test_an_object_that_is_there_twice(self):
        def make(x):
            inner = Node(self.net(x))
            return Node(inner, inner), inner

        for got, inner in self.check(make, lambda got: [got[0].hidden.hidden]):
            self.assertIs(got.hidden, got.other)
            self.assertIs(got.hidden, inner)

    def test_a_distribution(self):
        def policy(x):
            return torch.distributions.Normal(self.net(x), self.net(x).exp(), validate_args=False)
        *_, last = self.check(policy, lambda got: [got.loc, got.scale, got.mean])
        self.assertEqual(last.batch_shape, torch.Size((4, 16)))

    def test_goes_the_fast_path(self):
        made, x = reprise.graphed(lambda x: Batch(self.net(x))), inputs(1)[0]
        with torch.no_grad():
            for _ in range(3):
                made(x)
            with mock.patch.object(type(made), "_by_graph", side_effect=AssertionError):
                self.same([made(x).hidden], [self.net(x)])

    def test_what_a_program_keeps_is_not_made_anew(self):
        kept = Node(None)

        def make(x):
            kept.hidden = self.net(x)
            return kept
        made = reprise.graphed(make)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for x in inputs(4):
                got = made(x)
                self.assertIs(got, kept)
                self.same([got.hidden], [self.net(x)])

    def test_what_a_program_keeps_of_each_call_is_refused(self):
        all_of_them = []

        def make(x):
            all_of_them.append(Node(self.net(x)))
            return all_of_them[-1]
        self.check(make, lambda got: [got.hidden], captured=False)
        self.assertEqual(len({id(one) for one in all_of_them}), 10)

    def test_what_has_ways_of_its_own_is_refused(self):
        self.check(lambda x: Finalized(self.net(x)), lambda got: [got.hidden], captured=False)
        self.check(lambda x: Slots(self.net(x)), lambda got: [got.hidden], captured=False)
        self.check(lambda x: types.SimpleNamespace(hidden=self.net(x)), lambda got: [got.hidden], captured=False)

    def test_gradients(self):
        class Model(torch.nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, x):
                hidden = self.net(x)
                return Batch(hidden.tanh()), Node(hidden, x.shape[0])
        net = Model(self.net)
        made = reprise.graphed(net)
        for x in inputs(4):
            found = []
            for call in (made, net):
                self.net.zero_grad()
                batch, node = call(x)
                (batch.hidden.sum() + node.hidden.square().mean() * node.other).backward()
                found.append([batch.hidden.detach(), *(p.grad for p in self.net.parameters())])
            self.same(*found)
        self.assertEqual(self.replays(reprise.graphed_of(made)), 2 * 3)

    def test_a_decoder_that_returns_its_cache(self):
        need_transformers(self)
        from transformers import LlamaConfig, LlamaForCausalLM
        net = LlamaForCausalLM(LlamaConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=200, max_position_embeddings=128)).cuda().eval()

        def tensors(out):
            cache = out["cache"] if "cache" in out else out["past_key_values"]
            self.assertEqual(cache.get_seq_length(), 8)
            return [out.logits, *(t for layer in cache.layers for t in (layer.keys, layer.values))]
        made = reprise.graphed(net)
        with torch.no_grad():
            for i in range(4):
                ids = torch.arange(16).add(i).remainder(7).view(2, 8).cuda()
                torch.testing.assert_close(tensors(made(ids)), tensors(net(ids)))  # a capture has its mask written out
        self.assertEqual(self.replays(reprise.graphed_of(made)), 3)

    def test_results_in_cycles_that_are_refused_are_freed_in_peace(self):
        """Those of two records that failed would lie at one address, and PyTorch end the process."""
        def fn(x):
            made = types.SimpleNamespace(a=x + 1)
            made.itself = made
            return made
        made = reprise.graphed(fn)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for x in inputs():
                self.assertTrue(torch.equal(made(x).a, x + 1))
        gc.collect()

    def test_a_cache_of_many_layers_goes_the_fast_path(self):
        """What the call returns is as the model makes it, and nobody's but the call's."""
        need_transformers(self)
        from transformers import LlamaConfig, LlamaForCausalLM
        net = LlamaForCausalLM(LlamaConfig(
            hidden_size=64, intermediate_size=128, num_hidden_layers=6, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=200, max_position_embeddings=128)).cuda().eval()
        ids = torch.arange(16, device="cuda").view(2, 8)
        made = reprise.graphed(net)
        with torch.no_grad():
            kept = [made(ids) for _ in range(4)]
            with mock.patch.object(type(reprise.graphed_of(made)), "_by_graph", side_effect=AssertionError):
                kept += [made(ids) for _ in range(2)]
            twin = net(ids)
        for got in kept[2:]:
            self.assertIs(type(got), type(twin))
            self.assertEqual(list(got.keys()), list(twin.keys()))
            self.assertEqual(list(vars(got)), list(vars(twin)))
            self.assertEqual([type(value) for value in vars(got).values()],
                             [type(value) for value in vars(twin).values()])
            self.assertTrue(all(got[name] is vars(got)[name] for name in got.keys()))
            self.assertEqual([t.shape for t in got.to_tuple()[:1]], [twin.logits.shape])
            cache, eager = got.to_tuple()[1], twin.to_tuple()[1]
            self.assertEqual(list(vars(cache)), list(vars(eager)))
            self.assertEqual(len(cache.layers), 6)
            self.assertEqual([list(vars(layer)) for layer in cache.layers], [list(vars(layer)) for layer in eager.layers])
            got.loss = got.logits  # as a program may
            self.assertEqual(list(got.keys())[-1], "loss")
        places = {t.data_ptr() for got in kept for layer in got.to_tuple()[1].layers for t in (layer.keys, layer.values)}
        self.assertEqual(len(places), 6 * 2 * len(kept))


class Lives(Case):
    def test_dropped_objects(self):
        """Neither they nor their tensors are kept, nor is what was captured with them."""
        def fn(x, cache):
            return cache.update(self.net(x))
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for _ in range(3):
                cache = Cache()
                for x in inputs():
                    made(x, cache)
                left = [weakref.ref(cache)] + [weakref.ref(t) for t in cache.state()]
                del cache
                self.assertEqual([ref() for ref in left], [None] * len(left))

    def test_an_object_that_leads_to_itself(self):
        def fn(x, batch):
            return self.net(x) * batch.hidden.total
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for n in range(3):
                batch = Batch(types.SimpleNamespace(total=full(n)))
                batch.hidden.back = batch
                for x in inputs():
                    self.assertTrue(torch.equal(made(x, batch), fn(x, batch)))
                left = weakref.ref(batch.hidden.total)
                del batch
                gc.collect()
                self.assertIsNone(left())
        self.assertEqual(len(made.shapes()), 1)

    def test_a_new_object_at_the_place_of_one_that_is_gone(self):
        def fn(x, batch):
            return self.net(x) * batch.hidden * batch.scale
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for n in range(12):
                batch = Batch(full(n), float(n % 3))
                x = inputs(1)[0]
                self.assertTrue(torch.equal(made(x, batch), fn(x, batch)))
                del batch
        self.assertEqual(len(made.shapes()), 3)

    def test_no_more_graphs_than_told(self):
        def fn(x, batch):
            return self.net(x) * batch.hidden * batch.scale
        made = reprise.graphed(fn, strict=True, max_shapes=2)
        with torch.no_grad():
            for n in range(12):
                batch = Batch(full(n), float(n // 2 % 3))
                x = inputs(1)[0]
                self.assertTrue(torch.equal(made(x, batch), fn(x, batch)))
        self.assertEqual(len(made.shapes()), 2)


class Failures(Case):
    def check(self, spoil, kind):
        """A run that fails leaves the object as it was."""
        bad = True

        def fn(x, cache):
            y = cache.update(self.net(x))
            if bad and torch.cuda.is_current_stream_capturing():
                spoil(cache)
            return y
        made = reprise.graphed(fn)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cache, twin = Cache(), Cache()
            made(inputs(1)[0], cache), fn(inputs(1)[0], twin)
            held = cache.state()
            try:
                made(inputs(1)[0], cache)
            except kind:
                made._fn(inputs(1)[0], cache)
            fn(inputs(1)[0], twin)
            for a, b in zip(cache.state(), held):
                self.assertIs(a, b)
            self.same(cache.state(), twin.state())
            bad = False
            for x in inputs():
                self.assertTrue(torch.equal(made(x, cache), fn(x, twin)))
                self.same(cache.state(), twin.state())

    def test_an_exception(self):
        def spoil(cache):
            raise ValueError("in the midst")
        self.check(spoil, ValueError)

    def test_a_synchronisation(self):
        self.check(lambda cache: cache.layers[0].total.sum().item(), RuntimeError)

    def test_an_object_that_is_taken_apart(self):
        def spoil(cache):
            cache.layers.reverse()
            cache.seen.clear()
            raise ValueError("in the midst")
        self.check(spoil, ValueError)

    def test_ctrl_c(self):
        def spoil(cache):
            import os
            import signal
            os.kill(os.getpid(), signal.SIGINT)
        self.check(spoil, KeyboardInterrupt)


class Gradients(Case):
    def check(self, make, fn):
        made = reprise.graphed(fn, strict=True)
        params = list(self.net.parameters())
        for n in range(4):
            for x in inputs(2):
                found = []
                for call in (made, fn):
                    batch, leaf = make(n)
                    for p in params:
                        p.grad = None
                    call(x, batch).square().sum().backward()
                    found.append([p.grad.clone() for p in params] + [leaf.grad.clone()])
                self.same(*found)
        self.assertGreater(self.replays(made), 7)

    def test_of_a_leaf(self):
        def make(n):
            leaf = full(n + 1).requires_grad_()
            return Batch(leaf), leaf
        self.check(make, self.forward())

    def forward(self):
        net = self.net

        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = net

            def forward(self, x, batch):
                return self.net(x) * batch.hidden
        return Scaled()

    def test_of_what_was_computed(self):
        def make(n):
            leaf = full(n + 1).requires_grad_()
            return Batch(leaf * 2), leaf
        self.check(make, self.forward())


class Tagged(torch.Tensor):
    pass


class MoreThanNumbers(Case):
    """Results that are more than numbers in memory."""

    def check(self, fn, warns=None, calls=None):
        made, said = reprise.graphed(fn), []
        with torch.no_grad(), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for args in calls or [(x,) for x in inputs(5)]:
                want, got = fn(*args), made(*args)
                self.assertIs(type(got), type(want))
                for a, b in zip(*(one if isinstance(one, tuple) else (one,) for one in (got, want)), strict=True):
                    self.assertIs(type(a), type(b))
                    self.assertEqual(getattr(a, "__dict__", None), getattr(b, "__dict__", None))
                    if isinstance(a, torch.Tensor):
                        self.assertEqual((a.shape, a.stride()), (b.shape, b.stride()))
                        self.assertTrue(torch.equal(a.cpu(), b.cpu()))
                    else:
                        self.assertEqual(a, b)
            said += [str(w.message) for w in told if "reprise" in str(w.message)]
        if warns is None:
            self.assertEqual((said, self.replays(made)), ([], 4))
        else:
            self.assertRegex(" ".join(said), warns)

    def test_a_subclass_of_tensors(self):
        self.check(lambda x: (self.net(x).as_subclass(Tagged), x * 2), warns="returns a Tagged, a subclass of Tensor")

    def test_a_subclass_that_is_there(self):
        kept = full(3).as_subclass(Tagged)
        self.check(lambda x: (self.net(x), kept))

    def test_attributes_of_a_result(self):
        def fn(x):
            y = self.net(x)
            y.scale = 2.0
            return y
        self.check(fn, warns=r"attributes of its own \(scale\)")

    def test_attributes_of_an_argument(self):
        def fn(x):
            x.seen = True
            return self.net(x)
        made = reprise.graphed(fn)
        with torch.no_grad(), self.assertWarnsRegex(UserWarning, r"sets an attribute of an argument \(seen\)"):
            for x in inputs():
                made(x)
                self.assertTrue(x.seen)

    def test_sizes(self):
        importlib.import_module("torch.fx")  # has PyTorch's pytree know sizes
        self.check(lambda x: (self.net(x), x.shape, x[0].shape))

    def test_lazy_views(self):
        def negated(x):
            return torch.view_as_complex(x.view(4, 8, 2)).conj().imag
        self.check(lambda x: (negated(self.net(x)), negated(x * 2)[1:]))
        self.check(lambda x: (self.net(x), negated(x)), warns="returns a lazy view of an argument")
        kept = negated(full(3, 4, 16))
        self.check(lambda x: (self.net(x), kept))


class Trained(unittest.TestCase):
    """Modules among the arguments, whose gradients the callable leaves to the program."""

    def follow(self, step, count, given=lambda net: net):
        """step(given, x), beside eager calls, of so many modules in turn. What was graphed."""
        found = []
        for wrap in (lambda fn: fn, reprise.graphed):
            torch.manual_seed(0)
            nets = [torch.nn.Linear(4, 4).cuda() for _ in range(count)]
            held, call = [given(net) for net in nets], wrap(step)
            values = []
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for i in range(12 * count):
                    net = nets[i % count]
                    values.append(call(held[i % count], torch.full((2, 4), i + 1.0, device="cuda")).item())
                    values.append(None if net.weight.grad is None else net.weight.grad.tolist())
                    if i % 5 == 4:
                        net.zero_grad()
            found.append(values)
        self.assertEqual(*found)
        return call, " ".join(str(one.message) for one in said)

    @staticmethod
    def step(net, x):
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()

    def test_backward_passes(self):
        for count in (1, 3):
            call, said = self.follow(self.step, count)
            self.assertEqual(said, "")
            self.assertGreaterEqual(sum(shape["replays"] for shape in call.shapes()), 6)

    def test_what_holds_one(self):
        call, _ = self.follow(lambda held, x: self.step(held.net, x), 1, lambda net: types.SimpleNamespace(net=net))
        self.assertGreaterEqual(sum(shape["replays"] for shape in call.shapes()), 6)

    def test_what_leads_to_one(self):
        holds = types.SimpleNamespace
        for given, find in ((lambda net: holds(inner=holds(net=net)), lambda held: held.inner.net),
                            (lambda net: holds(nets=[net]), lambda held: held.nets[0]),
                            (lambda net: holds(nets={"one": net}), lambda held: held.nets["one"]),
                            (lambda net: holds(call=net.forward), lambda held: held.call)):
            call, _ = self.follow(lambda held, x, find=find: self.step(find(held), x), 1, given)
            self.assertGreaterEqual(sum(shape["replays"] for shape in call.shapes()), 6)

    def test_too_many(self):
        _, said = self.follow(self.step, 6)
        self.assertIn("too many such objects", said)

    def test_gradients_that_are_dropped(self):
        net = torch.nn.Linear(4, 4).cuda()

        def fn(module, x):
            y = module(x).sum().detach()
            module.zero_grad()
            return y
        call = reprise.graphed(fn)
        for i in range(6):
            net(torch.ones(2, 4, device="cuda")).sum().backward()
            call(net, torch.ones(2, 4, device="cuda"))
            self.assertIsNone(net.weight.grad)
        self.assertGreaterEqual(sum(shape["replays"] for shape in call.shapes()), 3)


class Optimizers(unittest.TestCase):
    """train_step(model, optimizer, batch)"""

    def trained(self, call_of, made):
        """Losses and weights. call_of(step): a generator's next() is a call of the step with pairs that it makes."""
        torch.manual_seed(0)
        pairs, losses = [], []

        def pair(kind=torch.optim.AdamW, **options):
            net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).cuda()
            pairs.append((net, kind(net.parameters(), lr=0.01, **options)))
            return pairs[-1]

        def step(net, optimizer, x, clip=None):
            optimizer.zero_grad()
            loss = (net(x) - x).square().mean()
            loss.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
            return loss.detach()
        step = reprise.graphed(step) if made else step
        for one in call_of(pair):
            losses.append(step(*one, torch.randn(4, 8, device="cuda")).item())
        self.made = step
        return losses, [p.tolist() for net, _ in pairs for p in net.parameters()]

    def check(self, call_of, shapes, replays):
        want = self.trained(call_of, False)
        self.assertEqual(self.trained(call_of, True), want)
        found = [shape["replays"] for shape in self.made.shapes()]
        self.assertLessEqual(len(found), shapes, self.made.failures())
        self.assertGreaterEqual(sum(found), replays)

    def test_one_with_a_schedule(self):
        for kind, options in ((torch.optim.AdamW, {}), (torch.optim.SGD, {"momentum": 0.9})):
            def call_of(pair, kind=kind, options=options):
                net, optimizer = pair(kind, **options)
                schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9 ** epoch)
                for _ in range(12):
                    yield net, optimizer
                    schedule.step()
            with self.subTest(kind.__name__):
                self.check(call_of, 1, 10)

    def test_two_by_turns(self):
        def call_of(pair):
            pairs = pair(), pair(torch.optim.SGD, momentum=0.9)
            for i in range(12):
                yield pairs[i % 2]
        self.check(call_of, 2, 9)

    def test_another_for_the_same_net(self):
        def call_of(pair):
            net, optimizer = pair()
            for i in range(12):
                if i == 6:
                    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, weight_decay=0.3)
                yield net, optimizer
        self.check(call_of, 2, 5)

    def test_a_checkpoint_in_between(self):
        def call_of(pair):
            net, optimizer = pair()
            for i in range(14):
                if i == 4:
                    kept = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
                if i == 8:
                    net.load_state_dict(kept[0])
                    optimizer.load_state_dict(kept[1])
                yield net, optimizer
        self.check(call_of, 2, 11)

    def test_numbers_that_change(self):
        def call_of(pair):
            net, optimizer = pair()
            for i in range(12):
                if i == 4:
                    optimizer.param_groups[0]["weight_decay"] = 0.5
                if i == 8:
                    optimizer.param_groups[0]["betas"] = 0.5, 0.9
                yield net, optimizer
        self.check(call_of, 3, 7)

    def test_more_than_it_keeps(self):
        def call_of(pair):
            for _ in range(7):
                one = pair()
                yield from [one] * 4
        with self.assertWarnsRegex(UserWarning, "runs without a graph"):
            self.check(call_of, 4, 8)


if __name__ == "__main__":
    unittest.main()
