# SPDX-License-Identifier: MIT
"""A graphed module is a module: what holds with a GPU and without one."""

import copy
import gc
import io
import pickle
import warnings
import weakref

import torch

import reprise


class Scaled(torch.nn.Module):
    """With buffers, one of which counts calls in training."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.full((8,), 1.5))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        if self.training:
            self.calls.add_(1)
        return x * self.scale


class Shadowed(torch.nn.Module):
    """Whose attributes have names of methods, and of what a graphed module tells."""

    def __init__(self):
        super().__init__()
        self.pool = torch.nn.MaxPool1d(2)
        self.name = "mine"
        self.buffers = [1, 2]
        self.parameters = None
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(x) * 2

    def sibling(self):
        return type(self)()


class Parent(torch.nn.Module):
    def __init__(self, inner, *more):
        super().__init__()
        self.inner = inner
        self.more = torch.nn.ModuleList(more)

    def forward(self, x):
        return self.inner(x)


class ModuleCase:
    device = "cpu"

    def setUp(self):
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 8), Scaled()).to(self.device).eval()
        self.x = torch.linspace(-1, 1, 32).reshape(4, 8).to(self.device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where there is no GPU
            self.made = reprise.graphed(self.net)

    def same(self, call, want, calls=3):
        for _ in range(calls):
            with torch.no_grad():
                self.assertTrue(torch.equal(call(self.x).cpu(), want(self.x).cpu()))

    def test_it_is_the_module(self):
        made, net = self.made, self.net
        self.assertIsInstance(made, torch.nn.Module)
        self.assertIsInstance(made, torch.nn.Sequential)
        self.assertIsNot(made, net)
        self.assertIs(type(net), torch.nn.Sequential)
        self.assertEqual(list(made.state_dict()), list(net.state_dict()))
        self.assertEqual([id(p) for p in made.parameters()], [id(p) for p in net.parameters()])
        self.assertEqual([n for n, _ in made.named_modules()], ["", "0", "1"])
        self.assertIs(made[0], net[0])
        self.assertEqual(len(made), 2)
        self.assertIsInstance(reprise.graphed_of(made), reprise.Graphed)
        self.same(made, net)

    def test_modes_types_and_values(self):
        made, net = self.made, self.net
        self.same(made, net)
        made.train()
        self.assertTrue(net.training and net[1].training and made.training)
        net.eval()
        self.assertFalse(made.training)
        made.double()
        self.assertIs(net[0].weight.dtype, torch.float64)
        made.float()
        self.same(made, net)
        other = copy.deepcopy(net)
        with torch.no_grad():
            other[0].weight.copy_(torch.eye(8))
        made.load_state_dict(other.state_dict())
        self.same(made, other)
        made.extra = torch.nn.Linear(1, 1)
        self.assertIs(net.extra, made.extra)
        made.requires_grad_(False)
        self.assertFalse(any(p.requires_grad for p in net.parameters()))

    def test_hooks(self):
        self.same(self.made, self.net)
        self.made.register_forward_hook(lambda module, args, out: out * 0)
        with torch.no_grad():
            for _ in range(3):
                self.assertEqual(self.made(self.x).abs().max().item(), 0)

    def test_copies_are_graphed_by_themselves(self):
        self.same(self.made, self.net)
        made = copy.deepcopy(self.made)
        self.assertIsInstance(made, torch.nn.Sequential)
        self.assertIsNot(reprise.graphed_of(made), reprise.graphed_of(self.made))
        self.assertEqual(made.shapes(), [])
        with torch.no_grad():
            made[0].weight.zero_()
        self.same(made, copy.deepcopy(self.made) if made is self.made else reprise.graphed_of(made)._fn)
        self.assertGreater(self.net[0].weight.abs().sum().item(), 0)

    def test_what_is_pickled_is_the_module(self):
        self.same(self.made, self.net)
        loaded = pickle.loads(pickle.dumps(self.made))
        self.assertIs(type(loaded), torch.nn.Sequential)
        self.assertNotIn(b"reprise", pickle.dumps(self.made))
        self.same(loaded, self.net)
        file = io.BytesIO()
        torch.save(Parent(self.made, self.made), file)
        file.seek(0)
        parent = torch.load(file, weights_only=False)
        self.assertIs(type(parent.inner), torch.nn.Sequential)
        self.assertIs(parent.inner, parent.more[0])

    def test_as_a_submodule(self):
        parent, plain = Parent(self.made, self.made), Parent(self.net, self.net)
        self.assertEqual(list(parent.state_dict()), list(plain.state_dict()))
        self.same(parent, plain)
        twin = copy.deepcopy(parent)
        self.assertIs(twin.inner, twin.more[0])
        self.same(twin, plain)
        row = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Identity())
        row[0] = self.made
        self.same(row, self.net)

    def test_names_of_its_own_come_first(self):
        made = reprise.graphed(Shadowed().to(self.device))
        self.assertEqual((made.name, made.buffers), ("mine", [1, 2]))
        self.assertIsInstance(made.pool, torch.nn.MaxPool1d)
        self.same(made, reprise.graphed_of(made)._fn)
        self.assertEqual(self.made.name, "Sequential")
        self.assertIs(type(made.sibling()), Shadowed)
        with self.assertRaisesRegex(AttributeError, "nothing"):
            print(made.nothing)

    def test_in_place(self):
        net = Shadowed().to(self.device)
        want = copy.deepcopy(net)
        parent = Parent(net)
        self.assertIs(reprise.graphed_(net), net)
        self.same(net, want)
        self.same(parent, want)
        self.assertIsInstance(net, Shadowed)
        self.assertIs(type(pickle.loads(pickle.dumps(net))), Shadowed)
        twin = copy.deepcopy(net)
        self.assertIs(type(twin).__mro__[1], type(net).__mro__[1])
        self.same(twin, want)
        with self.assertRaisesRegex(ValueError, "graphed already"):
            reprise.graphed_(net)
        with self.assertRaisesRegex(TypeError, "no torch.nn.Module"):
            reprise.graphed_(len)

    def test_a_bound_method(self):
        net = copy.deepcopy(self.net)
        net.forward = reprise.graphed(net.forward)
        self.same(net, self.net)
        twin = copy.deepcopy(net)
        self.assertIs(twin.forward._fn.__self__, twin)
        self.same(twin, self.net)
        loaded = pickle.loads(pickle.dumps(net))
        self.assertNotIsInstance(loaded.forward, reprise.Graphed)
        self.same(loaded, self.net)

    def test_it_goes_with_its_last_reference(self):
        gc.collect()
        gc.disable()
        try:
            for make in (reprise.graphed, reprise.graphed_):
                made = make(torch.nn.Linear(8, 8).to(self.device))
                gone = weakref.ref(reprise.graphed_of(made))
                del made
                self.assertIsNone(gone(), make)
        finally:
            gc.enable()

    def test_a_graphed_one_is_not_graphed_twice(self):
        again = reprise.graphed(self.made)
        self.assertIs(reprise.graphed_of(again)._fn, self.net)
        self.same(again, self.net)
