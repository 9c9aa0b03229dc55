# SPDX-License-Identifier: MIT
"""Gradients around a capture: what is remembered, put back and given to a graph's parameters."""

import gc
import types
import unittest
import weakref
from unittest import mock

from fake_gradients import ADDRESS, Gradient, fake_torch, names, param
from reprise._grad import gradients

try:
    import torch
except ImportError:
    torch = None


class Remembered(unittest.TestCase):
    def test_what_changed(self):
        held = [Gradient() for _ in range(2)]
        _, other, _, made, dropped, gone = params = [
            param(held[0]), param(held[1]), param(), param(), param(Gradient()), param(Gradient())]
        before = gradients.Gradients(params)
        self.assertEqual(before.changed(), [])
        other.grad, made.grad, dropped.grad = Gradient(), Gradient(), None
        gone.grad = Gradient()
        self.assertEqual([id(p) for p in before.changed()],
                         [id(p) for p in (other, made, dropped, gone)])
        before.restore()
        self.assertEqual([p.grad for p in params], held + [None] * 4)

    def test_what_is_missing(self):
        kept, made, never, dropped = params = [param(Gradient()), param(), param(), param(Gradient())]
        before = gradients.Gradients(params)
        made.grad, dropped.grad = Gradient(), None
        missing, = before.missing()
        self.assertIs(missing, never)


@unittest.skipIf(torch is None, "needs PyTorch")
class OfPyTorch(unittest.TestCase):
    """Whose gradients are objects of Python for as long as somebody looks, and live on without."""

    def setUp(self):
        self.net = torch.nn.Linear(3, 3)
        self.params = list(self.net.parameters())
        self.step()

    def step(self, drops=True):
        if drops:
            self.net.zero_grad(set_to_none=True)
        self.net(torch.ones(2, 3)).sum().backward()

    def test_the_same_is_no_other(self):
        before = gradients.Gradients(self.params)
        self.assertEqual(before.used(), [])
        gc.collect()
        self.step(drops=False)
        self.assertEqual(before.changed(), [])
        self.assertEqual(list(map(id, before.used())), list(map(id, self.params)))
        before.restore()
        self.assertNotIn(None, [p.grad for p in self.params])

    def hold(self):
        return gradients.Gradients(self.params).hold()

    def test_each_run_of_a_capture_begins_with_them(self):
        """And the eager call behind one that was refused. A run may read them or add to them, and
        drop them then: the next one would do nothing of that."""
        for drops in (False, True):
            for there in (False, True):
                with self.subTest(drops=drops, there=there):
                    self.step()
                    if not there:
                        self.net.zero_grad(set_to_none=True)
                    given = [p.grad for p in self.params]
                    before = self.hold()
                    for _ in range(3):
                        before.restore()
                        self.assertTrue(all(p.grad is g for p, g in zip(self.params, given)))
                        self.step(drops=drops)
                        self.net.zero_grad(set_to_none=drops)
                    before.restore()
                    self.assertTrue(all(p.grad is g for p, g in zip(self.params, given)))

    def test_a_run_begins_with_them_where_they_were(self):
        held, after = [p.grad for p in self.params], torch.tensor([1., 2., 3.])
        weight, bias = [grad.clone() for grad in held]
        at = held[1].data_ptr()
        before = self.hold()
        for _ in range(2):
            held[1].data = after
            self.assertEqual(list(map(id, before.changed())), [id(self.params[1])])
            self.assertIs(self.params[1].grad, held[1])
            graph = types.SimpleNamespace(names=names(at, after.data_ptr()))
            self.assertEqual(before.named_by(torch, graph), ((self.params[1], at),))
            before.restore()
            self.assertEqual(before.changed(), [])
            self.assertEqual([p.grad.data_ptr() for p in self.params], [held[0].data_ptr(), at])
        self.assertTrue(torch.equal(self.params[0].grad, weight))
        self.assertTrue(torch.equal(self.params[1].grad, bias))

    def test_those_that_nodes_name(self):
        weight, bias = self.params
        at = weight.grad.data_ptr()
        graph = types.SimpleNamespace(names=names(at + weight.grad.nbytes - 4))
        self.assertEqual(self.hold().named_by(torch, graph), ((weight, at),))
        graph.names = names(at, bits=3)
        with self.assertRaisesRegex(gradients._C.Error, "adds to gradients that another graph"):
            self.hold().named_by(torch, graph)
        graph.names = names(bias.grad.data_ptr(), at - 1)
        weight.grad = None
        self.assertEqual(self.hold().named_by(torch, graph), ((bias, bias.grad.data_ptr()),))

    def test_sparse_ones_are_held(self):
        table = torch.nn.Embedding(4, 3, sparse=True)
        self.params = list(table.parameters())
        table(torch.tensor([1])).sum().backward()
        before = self.hold()
        table.zero_grad(set_to_none=True)
        before.restore()
        self.assertTrue(table.weight.grad.is_sparse)

    def sparse(self):
        """Parameters with a sparse gradient, and a function that makes it or adds to it."""
        table = torch.nn.Embedding(4, 3, sparse=True)
        self.params = list(table.parameters())

        def step():
            table(torch.tensor([1])).sum().backward()
        step()
        return table.weight, step

    def test_a_run_adds_to_a_sparse_one_in_other_memory(self):
        """PyTorch gives the same tensor other elements then, which were never made."""
        weight, step = self.sparse()
        grad, before = weight.grad, self.hold()
        at = grad._values().data_ptr()
        for _ in range(2):
            step()
            self.assertEqual(([id(p) for p in before.changed()], grad._nnz()), ([id(weight)], 2))
            before.restore()
            self.assertIs(weight.grad, grad)
            self.assertEqual((grad._nnz(), grad._values().data_ptr()), (1, at))
        self.assertEqual(before.changed(), [])

    def test_an_optimizer_uses_those_that_are_there(self):
        for foreach in (False, True):
            before = gradients.Gradients(self.params)
            self.net(torch.ones(2, 3))
            self.assertEqual(before.used(), [])
            torch.optim.Adam(self.params[:1], foreach=foreach).step()
            self.assertEqual(list(map(id, before.used())), [id(self.params[0])])
        self.step(drops=False)
        self.assertEqual(list(map(id, before.used())), list(map(id, self.params)))
        self.step()
        self.assertEqual(before.used(), [])

    def test_dropped_ones_are_gone(self):
        before = gradients.Gradients(self.params)
        self.step()
        self.assertEqual(list(map(id, before.changed())), list(map(id, self.params)))
        self.assertTrue(before.replaced())
        before.restore()
        self.assertEqual([p.grad for p in self.params], [None] * 2)
        before = gradients.Gradients(self.params)
        self.step(drops=False)
        self.assertEqual(len(before.changed()), 2)
        self.assertFalse(before.replaced())

    def test_held_ones_come_back(self):
        held = [p.grad for p in self.params]
        before = gradients.Gradients(self.params)
        self.step()
        before.restore()
        self.assertTrue(all(p.grad is grad for p, grad in zip(self.params, held)))


class Value(Gradient):
    """One with an address of its own."""
    last = ADDRESS

    def __init__(self, value, lent=False):
        self.value, self.is_lent_by_reprise = value, lent
        Value.last += 64
        self.address = Value.last

    def data_ptr(self):
        return self.address

    def clone(self):
        return Value(self.value)

    def copy_(self, other):
        self.value = other.value
        return self

    def set_(self, other):
        self.value, self.address = other.value, other.address


class Sparse(Gradient):
    """Of indices and values, which a tensor that is detached has too."""
    layout, is_sparse = "sparse", True

    def __init__(self, *parts):
        self.parts = parts or (Value(0), Value(1))

    def _indices(self):
        return self.parts[0]

    def _values(self):
        return self.parts[1]

    def detach(self):
        return Sparse(*self.parts)

    def set_data(self, other):
        self.parts = other.parts

    data = property(None, set_data)


class OfTwoParts(unittest.TestCase):
    """Sparse gradients, which are not for graphs."""
    torch = types.SimpleNamespace(strided="strided")

    def hold(self, *params):
        return gradients.Gradients(params).hold()

    def test_those_that_a_run_added_to_are_put_back(self):
        tensor = param(Sparse())
        grad, parts = tensor.grad, tensor.grad.parts
        before = self.hold(tensor)
        for _ in range(2):
            grad.parts = (Value(2), Value(3))
            self.assertEqual(list(map(id, before.changed())), [id(tensor)])
            before.restore()
            self.assertEqual((tensor.grad is grad, grad.parts == parts), (True, True))
        self.assertEqual(before.changed(), [])

    def test_a_graph_that_reads_them_is_refused(self):
        tensor = param(Sparse())
        for part in tensor.grad.parts:
            graph = types.SimpleNamespace(names=names(part.address))
            with self.assertRaisesRegex(gradients._C.Error, "sparse gradients or reads them"):
                self.hold(tensor).named_by(self.torch, graph)
        graph.names = names(ADDRESS)
        self.assertEqual(self.hold(tensor).named_by(self.torch, graph), ())

    def test_a_graph_that_leaves_them_is_refused(self):
        with self.assertRaisesRegex(gradients._C.Error, "sparse gradients .*sparse=False"):
            gradients.to_give(self.torch, [param(), param(Sparse())], None)


class AtHome(unittest.TestCase):
    """Gradients that graphs read or add to, where no other graph is."""

    def setUp(self):
        self.homes = gradients.Homes()
        self.params = [param() for _ in range(3)]
        self.made = set()  # addresses of what a run made
        self.waits = []  # for the stream: where the gradients lay meanwhile
        self.torch = fake_torch(
            lambda: self.waits.append([p.grad and p.grad.address for p in self.params]),
            _foreach_copy_=lambda to, of: [a.copy_(b) for a, b in zip(to, of)])
        patcher = mock.patch.object(gradients._C, "call_block",
                                    lambda at: (0, 64, at) if at in self.made else None)
        self.addCleanup(patcher.stop)
        patcher.start()

    def grad(self, param, value, lent=False, made=False):
        grad = param.grad = Value(value, lent)
        if made:
            self.made.add(grad.address)
        return grad

    def home(self, param, value):
        self.grad(param, value, lent=True)
        self.assertEqual(list(map(id, self.homes.move(self.torch, [param]))), [id(param)])
        return param.grad

    def test_they_move_from_graphs_alone(self):
        lent, plain, none = self.params
        from_graph, own = self.grad(lent, 1, lent=True), self.grad(plain, 2)
        before = from_graph.address
        self.assertEqual(list(map(id, self.homes.move(self.torch, self.params))), [id(lent)])
        home = lent.grad
        self.assertNotEqual(home.address, before)
        self.assertEqual(self.waits, [[before, own.address, None]])  # its memory may go with it
        self.assertEqual((home.value, plain.grad is own, none.grad), (1, True, None))
        self.assertIs(self.homes.of(lent), home)
        self.assertEqual([self.homes.of(plain), self.homes.of(none)], [None, None])
        self.assertEqual(self.homes.move(self.torch, self.params), [])
        again = self.grad(lent, 3, lent=True)
        self.homes.move(self.torch, [lent])
        self.assertIs(lent.grad, home)
        self.assertEqual(home.value, 3)
        for held in (from_graph, again):  # who has it sees what becomes of the gradient
            self.assertEqual((held.address, held.is_lent_by_reprise), (home.address, False))

    def test_one_that_was_pointed_elsewhere_is_none(self):
        param = self.params[0]
        home = self.home(param, 1)
        was, home.address = home.address, 0
        self.assertIsNone(self.homes.of(param))
        self.assertIsNot(self.home(param, 2), home)
        home.address = was
        self.assertIsNot(self.homes.of(param), home)

    def test_a_run_brings_what_it_made(self):
        first, second, third = self.params
        homes = [self.home(p, 0) for p in (first, second)]
        for value in (1, 2):
            self.grad(first, value, made=True)
            self.grad(second, 10 * value, made=True)
            left = self.grad(third, 5, made=True)  # has no home
            self.homes.bring(self.torch, self.params)
            self.assertTrue(all(p.grad is h for p, h in zip(self.params, homes)))
            self.assertEqual([h.value for h in homes], [value, 10 * value])
            self.assertIs(third.grad, left)

    def test_a_run_leaves_what_it_did_not_make(self):
        first, second, third = self.params
        home, other = self.home(first, 7), self.home(second, 8)
        elsewhere, second.grad = self.grad(second, 9), None
        self.homes.bring(self.torch, self.params)
        self.assertIs(first.grad, home)  # as it was: the run added to it
        self.assertIsNone(second.grad)   # the run dropped it
        second.grad = elsewhere
        self.homes.bring(self.torch, self.params)
        self.assertIs(second.grad, elsewhere)
        self.assertEqual([home.value, other.value], [7, 8])

    def test_sparse_ones_have_none(self):
        first = self.params[0]
        self.home(first, 1)
        sparse = self.grad(first, 2, made=True)
        sparse.layout = "sparse"
        self.homes.bring(self.torch, self.params)
        self.assertIs(first.grad, sparse)

    def test_for_as_long_as_the_parameter_is_there_and_of_its_kind(self):
        kept = weakref.ref(self.home(self.params[1], 1))
        first = self.params[0]
        home = self.home(first, 1)
        first.grad = None
        first.dtype = "double"
        self.assertIsNone(self.homes.of(first))
        del first.dtype
        first.stride = lambda: (2,)
        self.assertIsNone(self.homes.of(first))
        del first.stride
        self.assertIs(self.homes.of(first), home)
        del first, home, self.params
        gc.collect()
        self.assertIsNone(kept())
        self.assertEqual(self.homes._homes, {})


@unittest.skipIf(torch is None, "needs PyTorch")
class AtHomeInPyTorch(unittest.TestCase):
    def setUp(self):
        self.homes = gradients.Homes()
        self.param = torch.nn.Parameter(torch.tensor([2., 3.]))
        for patcher in (mock.patch.object(torch.cuda, "current_stream"),
                        mock.patch.object(gradients._C, "call_block", lambda at: (0, 8, at))):
            self.addCleanup(patcher.stop)
            patcher.start()

    def move(self, inference=False):
        lent = self.param.grad = torch.ones(2)
        lent.is_lent_by_reprise = True
        with torch.inference_mode(inference):
            self.homes.move(torch, [self.param])
        return lent

    def test_tensors_that_the_program_has_go_along(self):
        held = [self.move()]
        (self.param * 2).sum().backward()
        self.param.grad = None
        (self.param * 5).sum().backward()
        self.homes.bring(torch, [self.param])
        held.append(self.move())
        (self.param * 3).sum().backward()
        for grad in (*held, self.param.grad, self.homes.of(self.param)):
            self.assertEqual(grad.tolist(), [4, 4])

    def test_for_eager_use_in_whatever_mode_they_moved(self):
        self.move(inference=True)
        (self.param * 2).sum().backward()
        self.assertEqual(self.param.grad.tolist(), [3, 3])

    def test_autograd_keeps_nothing_of_a_run(self):
        self.move()
        grad, = torch.autograd.grad((self.param ** 3).sum(), self.param, create_graph=True)
        self.param.grad = grad
        self.homes.bring(torch, [self.param])
        self.assertIs(self.param.grad, self.homes.of(self.param))
        self.assertEqual(self.param.grad.tolist(), [12, 27])
        self.assertFalse(self.param.grad.requires_grad)


class Storage:
    def __init__(self, address, nbytes):
        self.data_ptr, self.nbytes = lambda: address, lambda: nbytes


class Tensor:
    """Ten elements behind the second of a storage, in the memory of a capture or elsewhere."""
    device, dtype, shape, layout = "cuda:0", "half", (5, 2), "strided"
    is_conj = is_neg = lambda self: False

    def __init__(self, address):
        self.untyped_storage = lambda: Storage(address, 24)

    def storage_offset(self):
        return 2

    def stride(self):
        return (2, 1)


class Twins(unittest.TestCase):
    def setUp(self):
        self.asked = []

        def as_tensor(memory, device):
            self.asked.append((memory, device))
            return types.SimpleNamespace(untyped_storage=lambda: memory)

        def empty(count, dtype, device):
            self.asked.append((count, dtype, device))
            return types.SimpleNamespace(set_=lambda *how: types.SimpleNamespace(how=how))
        self.torch = types.SimpleNamespace(as_tensor=as_tensor, empty=empty, strided="strided")
        patcher = mock.patch.object(gradients._C, "is_captured", lambda address: address == ADDRESS)
        self.addCleanup(patcher.stop)
        patcher.start()

    def test_memory_of_a_capture_has_the_graph_for_its_owner(self):
        lent = []
        owner = types.SimpleNamespace(lend=lambda: lent.append(True))
        twin = gradients.twin(self.torch, Tensor(ADDRESS), owner)
        memory, *how = twin.how
        self.assertTrue(twin.is_lent_by_reprise)
        self.assertEqual(lent, [True])
        self.assertEqual(how, [2, (5, 2), (2, 1)])
        self.assertIs(memory.owner, owner)
        self.assertEqual(self.asked, [(memory, "cuda:0"), (0, "half", "cuda:0")])
        self.assertEqual(memory.__cuda_array_interface__, {
            "shape": (24,), "typestr": "|u1", "data": (ADDRESS, False), "version": 3})

    def test_what_lies_elsewhere_stays_itself(self):
        tensor = Tensor(8192)
        self.assertIs(gradients.twin(self.torch, tensor, None), tensor)
        self.assertEqual(self.asked, [])

    def test_what_the_fast_path_is_told(self):
        """A parameter once, whatever is known of it."""
        a, b, c, d = (param() for _ in range(4))
        told = gradients.for_fast_path([a, b], (True, False), ((b, 64), (c, 128)),
                                        ((a, "mine"), (d, None)))
        self.assertEqual([(id(t[0]), *t[1:]) for t in told],
                         [(id(a), True, None, "mine"), (id(b), False, 64), (id(c), None, 128),
                          (id(d), None, None, None)])
        self.assertEqual(gradients.for_fast_path([], (), (), ()), ())

    def test_given_as_they_were(self):
        tensor = Tensor(8192)
        first, second = param(tensor), param()
        pairs = gradients.to_give(self.torch, [first, second], None)
        first.grad, second.grad = None, Tensor(1)
        gradients.give(pairs)
        self.assertEqual((first.grad, second.grad), (tensor, None))


if __name__ == "__main__":
    unittest.main()
