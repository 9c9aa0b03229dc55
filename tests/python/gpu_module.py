# SPDX-License-Identifier: MIT
"""A graphed module on a GPU, under install() and without it: usage: gpu_module.py [--install] ..."""

import copy
import functools
import gc
import pickle
import sys
import unittest
import warnings
import weakref
from unittest import mock

import torch

import reprise
from reprise._reads.values import Values
from module_case import ModuleCase, Scaled, Shadowed

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()


class Modules(ModuleCase, unittest.TestCase):
    device = "cuda"

    def test_calls_go_by_the_graph(self):
        in_place = reprise.graphed_(Shadowed().cuda())
        method = copy.deepcopy(self.net)
        method.forward = reprise.graphed(method.forward)
        for call, facts in ((self.made, self.made), (in_place, in_place), (method, method.forward)):
            with torch.no_grad():
                for _ in range(5):
                    call(self.x)
            self.assertEqual([s["replays"] for s in facts.shapes()], [4], facts.failures())

    def test_a_bound_forward_follows_the_gradients_of_its_owner(self):
        net, twin = (torch.nn.Linear(8, 8).cuda() for _ in range(2))
        twin.load_state_dict(net.state_dict())
        net.forward = reprise.graphed(net.forward)
        for _ in range(4):
            for one in (net, twin):
                one.zero_grad()
                one(self.x).square().sum().backward()
            self.assertTrue(torch.equal(net.weight.grad.cpu(), twin.weight.grad.cpu()))
        self.assertEqual([s["replays"] for s in net.forward.shapes()], [3, 3], net.forward.failures())

    def test_a_module_that_is_watched_twice_gets_its_gradients_once(self):
        """It is the method's owner too, or a part of another module that the callable closes over."""
        def owner(net):
            return reprise.graphed(net.forward, watch=[net])

        def watched_twice(net):
            return reprise.graphed(net, watch=[net, net[0]])

        def parts(net):
            first, whole = net[0], net
            return reprise.graphed(lambda x: whole(x) + first(x).sum(), grad="split")

        for make in (owner, watched_twice, parts):
            with self.subTest(make.__name__):
                net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)).cuda()
                twin = copy.deepcopy(net)
                made = make(net)
                call = twin if make is not parts else lambda x, twin=twin: twin(x) + twin[0](x).sum()
                for _ in range(4):
                    for one in (net, twin):
                        one.zero_grad()
                    for one in (made, call):
                        one(self.x).square().sum().backward()
                    for a, b in zip(net.parameters(), twin.parameters()):
                        self.assertTrue(torch.equal(a.grad, b.grad))
                self.assertTrue(reprise.graphed_of(made).shapes() if make is watched_twice else made.shapes())

    def test_another_method_of_a_module_is_whole(self):
        class Stepping(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(8, 8)

            def step(self, x):
                loss = self.inner(x).square().mean()
                loss.backward()
                return loss.detach()
        made = reprise.graphed(Stepping().cuda().step, strict=True)
        for _ in range(4):
            made(self.x)
        self.assertEqual(len(made.shapes()), 1)

    def test_tensors_on_the_cpu_go_eagerly_with_one_warning(self):
        net = torch.nn.Linear(8, 8)
        made = reprise.graphed(net)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                self.assertTrue(torch.equal(made(self.x.cpu()), net(self.x.cpu())))
        self.assertEqual(len(said), 1)
        self.assertIn("tensor on the CPU", str(said[0].message))

    def test_a_parent_that_is_graphed_has_it_in_its_graph(self):
        parent = reprise.graphed(torch.nn.Sequential(self.made, torch.nn.Linear(8, 8)).cuda().eval())
        plain = torch.nn.Sequential(self.net, parent[1])
        self.same(parent, plain, 5)
        self.assertEqual([s["replays"] for s in parent.shapes()], [4], parent.failures())

    def penalty(self, call, net, x):
        x = x.clone().requires_grad_()
        net.zero_grad()
        out = call(x)
        grad, = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = out.square().mean() + (grad.norm(dim=1) - 1).square().mean()
        loss.backward()
        return [t.detach().cpu() for t in (loss, x.grad, *(p.grad for p in net.parameters()))]

    def test_gradients_of_gradients_are_eager_by_name(self):
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).cuda()
        twin = copy.deepcopy(net)
        made = reprise.graphed(net)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for i in range(1, 5):
                pairs = zip(self.penalty(made, net, self.x * i), self.penalty(twin, twin, self.x * i))
                for got, want in pairs:
                    torch.testing.assert_close(got, want)
        self.assertEqual(len(said), 1)
        self.assertIn("gradients of gradients of 'Sequential' run eagerly", str(said[0].message))

    def test_gradients_of_gradients_leave_buffers_as_one_call_does(self):
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), Scaled(), torch.nn.Tanh()).cuda()
        twin = copy.deepcopy(net)
        made = reprise.graphed(net)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i in range(1, 4):
                self.penalty(made, net, self.x * i)
                self.penalty(twin, twin, self.x * i)
        self.assertEqual(net[1].calls.item(), twin[1].calls.item())


class WithOthers(torch.nn.Module):
    """It has a tensor of an uncommon kind."""

    def __init__(self, other, is_buffer=True):
        super().__init__()
        self.net = torch.nn.Linear(8, 8, device="cuda")
        if is_buffer:
            self.register_buffer("other", other)
        else:
            self.other = other

    def forward(self, x):
        return self.net(x) * self.other.dim()


class OthersInMemory(unittest.TestCase):
    """Modules whose tensors lie where nobody can look."""

    def check(self, net, calls=6, change=lambda i: None, replays=2):
        made, x = reprise.graphed(net), torch.randn(4, 8, device="cuda")
        for i in range(calls):
            change(i)
            with torch.set_grad_enabled(i % 2 == 0):
                want, got = type(net).forward(net, x), made(x)
            self.assertTrue(torch.equal(got, want), i)
            self.assertEqual(got.requires_grad, want.requires_grad)
        self.assertGreaterEqual(sum(s["replays"] for s in reprise.graphed_of(made).shapes()), replays)

    def test_buffers(self):
        eye = torch.eye(8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of these are young in PyTorch
            some = {"meta": torch.empty(3, device="meta"), "sparse": eye.to_sparse().cuda(),
                    "rows": eye.to_sparse_csr().cuda(), "columns": eye.to_sparse_csc().cuda(),
                    "nested": torch.nested.nested_tensor([eye[:2], eye[:3]]).cuda(),
                    "quantized": torch.quantize_per_tensor(eye, 0.1, 0, torch.quint8)}
        for name, other in some.items():
            for is_buffer in (True, False):
                with self.subTest(name, is_buffer=is_buffer):
                    self.check(WithOthers(other, is_buffer))

    def test_a_sparse_tensor_whose_parts_move(self):
        def diagonal(value):
            at = torch.arange(8)
            return torch.sparse_coo_tensor(torch.stack([at, at]), at * value, (8, 8), check_invariants=True).cuda()

        class Net(WithOthers):
            def forward(self, x):
                return self.net(x) * self.other._values()

        for is_buffer in (True, False):
            kept = []

            def change(i, kept=kept):
                if i % 3 == 2:
                    net.other.copy_(diagonal(float(i)))
                    kept += [torch.full((8,), 7.0, device="cuda") for _ in range(4)]
            net = Net(diagonal(1.0), is_buffer)
            self.check(net, 9, change)

    def test_a_frozen_module_of_torchscript(self):
        """It has no attribute `training`."""
        frozen = torch.jit.freeze(torch.jit.script(torch.nn.Linear(8, 8).cuda().eval()))
        x = torch.randn(4, 8, device="cuda")
        for fn in (frozen, torch.nn.Sequential(frozen), lambda x: frozen(x) + 1):
            made = reprise.graphed(fn, strict=True)
            with torch.no_grad():
                for _ in range(4):
                    self.assertTrue(torch.equal(made(x), fn(x)))
            self.assertEqual([s["replays"] for s in reprise.graphed_of(made).shapes()], [3])

    def test_a_lazy_module(self):
        net = torch.nn.Sequential(torch.nn.LazyLinear(8), torch.nn.ReLU(), torch.nn.LazyLinear(4)).cuda()
        made, x = reprise.graphed(net), torch.randn(4, 8, device="cuda")
        with torch.no_grad():
            for i in range(6):
                if i == 3:
                    net[0].weight.data = net[0].weight * 2
                got = made(x)
                self.assertTrue(torch.equal(got, net[2](net[1](net[0](x)))), i)
        self.assertGreaterEqual(sum(s["replays"] for s in reprise.graphed_of(made).shapes()), 2)

    def test_nested_arguments(self):
        made, x = reprise.graphed(lambda x, y: x * y.dim()), torch.ones(4, device="cuda")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).cuda()
            for _ in range(4):
                self.assertTrue(torch.equal(made(x, nested), x * 2))
        self.assertIn("a sparse or nested tensor", " ".join(str(w.message) for w in said))


class Settings:
    def __init__(self, flag, left, right):
        self.flag, self.left, self.right = flag, left, right


def left_of(settings):
    return settings.left


def right_of(settings):
    return settings.right


def scaled_by(settings):
    def scaled(x):
        return x * (left_of(settings) if settings.flag else right_of(settings))
    return scaled


class Decorated(torch.nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.inner, self.scale = torch.nn.Linear(4, 4), scale

    @reprise.graphed
    def forward(self, x):
        return self.inner(x) * self.scale


class Methods(unittest.TestCase):
    """Functions that are graphed in the bodies of classes."""

    def setUp(self):
        self.x = torch.ones(2, 4, device="cuda")

    @staticmethod
    def want(net, x):
        return net.inner(x) * net.scale

    def check(self, net, calls=4):
        for _ in range(calls):
            torch.testing.assert_close(net(self.x), self.want(net, self.x))
        return sum(shape["replays"] for shape in net.forward.shapes())

    def test_each_object_has_its_own(self):
        nets = [Decorated(scale).cuda() for scale in (1.0, 2.0)]
        with torch.no_grad():
            for net in nets * 2:
                self.check(net)
        self.assertEqual([len(net.forward.shapes()) for net in nets], [1, 1])
        self.assertIs(nets[0].forward, nets[0].forward)
        self.assertIsNot(nets[0].forward, nets[1].forward)
        self.assertIs(type(Decorated.forward), reprise.Graphed)
        with torch.no_grad():
            nets[0].scale = 5.0
            self.check(nets[0])
            self.check(nets[1])

    def test_trains(self):
        net, twin = Decorated().cuda(), torch.nn.Linear(4, 4).cuda()
        twin.load_state_dict(net.inner.state_dict())
        optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (net, twin)]
        for _ in range(5):
            for one, optimizer in zip((net, twin), optimizers):
                optimizer.zero_grad()
                one(self.x).square().sum().backward()
                optimizer.step()
        torch.testing.assert_close(net.inner.weight, twin.weight)
        self.assertGreaterEqual(sum(shape["replays"] for shape in net.forward.shapes()), 4)

    def test_copies_and_pickles_have_none_yet(self):
        net = Decorated().cuda()
        with torch.no_grad():
            self.assertGreater(self.check(net), 1)
            for made in (copy.deepcopy(net), copy.copy(net), pickle.loads(pickle.dumps(net))):
                self.assertEqual(made.forward.shapes(), [])
                made.scale = 3.0
                self.assertGreater(self.check(made), 1)
            self.check(net)
        self.assertEqual(list(net.state_dict()), ["inner.weight", "inner.bias"])

    def test_goes_with_the_object(self):
        net = Decorated().cuda()
        with torch.no_grad():
            self.check(net)
        gone = weakref.ref(net)
        del net
        gc.collect()
        self.assertIsNone(gone())

    def test_other_methods(self):
        class Some:
            scale = 2.0

            @reprise.graphed
            def scaled(self, x, by=1.0):
                return x * self.scale * by

            @staticmethod
            @reprise.graphed
            def doubled(x):
                return x * 2

            @classmethod
            @reprise.graphed
            def by_class(cls, x):
                return x * cls.scale

            tripled = reprise.graphed(functools.partial(torch.mul, other=3.0))

        class Slotted:
            __slots__ = ("scale",)

            @reprise.graphed
            def scaled(self, x):
                return x * self.scale
        some, slotted = Some(), Slotted()
        slotted.scale = 4.0
        with torch.no_grad():
            for call, factor in ((some.scaled, 2.0), (functools.partial(some.scaled, by=3.0), 6.0), (some.doubled, 2.0),
                                 (Some.doubled, 2.0), (some.tripled, 3.0), (slotted.scaled, 4.0), (Some.by_class, 2.0)):
                for _ in range(4):
                    torch.testing.assert_close(call(self.x), self.x * factor)
            some.scale = 7.0
            torch.testing.assert_close(some.scaled(self.x), self.x * 7)
        self.assertGreater(sum(shape["replays"] for shape in some.scaled.shapes()), 3)


class Further(unittest.TestCase):
    """Callables that begin with what others found, of the same code or made of the same object."""

    def setUp(self):
        self.x = torch.ones(4, 4, device="cuda")
        self.addCleanup(torch.set_grad_enabled, torch.is_grad_enabled())
        torch.set_grad_enabled(False)

    def gives(self, made, factor):
        for _ in range(3):
            self.assertEqual(made(self.x).cpu()[0, 0].item(), factor)

    def test_callables_alike_read_values_of_their_own(self):
        self.gives(reprise.graphed(scaled_by(Settings(True, 2.0, 3.0))), 2.0)
        settings = Settings(False, 2.0, 3.0)
        made = reprise.graphed(scaled_by(settings))
        self.assertEqual(made(self.x).cpu()[0, 0].item(), 3.0)
        settings.right = 5.0  # ahead of its capture
        self.gives(made, 5.0)
        settings.right = 7.0
        self.gives(made, 7.0)
        settings.flag, settings.left = True, 11.0
        self.gives(made, 11.0)

    def test_each_of_one_object_follows_it(self):
        settings = Settings(True, 2.0, 3.0)
        scaled, made = scaled_by(settings), []
        for value in (2.0, 4.0, 2.0, 9.0):
            settings.left = value
            made.append(reprise.graphed(scaled))
            for one in made:
                self.gives(one, value)
        fresh = reprise.graphed(scaled)
        fresh(self.x)
        settings.left = 5.0
        for one in (fresh, *made):
            self.gives(one, 5.0)

    def test_each_of_one_module_follows_it(self):
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)).cuda().eval()
        hooks, made = [], []
        changes = (lambda: None, lambda: setattr(net[0], "weight", torch.nn.Parameter(self.x + 1)),
                   lambda: net.append(torch.nn.Linear(4, 4).cuda()),
                   lambda: hooks.append(net[1].register_forward_hook(lambda module, args, out: out * 2)),
                   lambda: hooks.pop().remove(), lambda: setattr(net[0].weight, "data", self.x + 2),
                   lambda: net.__delitem__(2), net.train)
        for number, change in enumerate(changes):
            change()
            made.append(reprise.graphed(net))
            for one in reversed(made):  # the others do not know yet
                for _ in range(3):
                    self.assertTrue(torch.equal(one(self.x).cpu(), net(self.x).cpu()), number)

    def walks_of(self, fn, net):
        """How often a callable looks through all that it reads, and what it finds, until it has a graph."""
        looks, look_again = [], Values.look_again

        def counted(values, foresees=False):
            looks.append(values)
            look_again(values, foresees)
        with mock.patch.object(Values, "look_again", counted):
            made = reprise.graphed(fn)
            for _ in range(3):
                self.assertTrue(torch.equal(made(self.x), net(self.x)))
        self.assertEqual(len(made.shapes()), 1)
        return made, len(looks)

    def test_a_module_that_is_met_on_the_way_takes_one_look(self):
        class Buffered(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.full((4,), 2.0))
                self.register_buffer("none", None)

            def forward(self, x):
                return x * self.scale
        net = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), Buffered()).cuda().eval()
        held = {"net": net}
        fn = lambda x: held["net"](x)  # noqa: E731: no module is seen from outside
        made, count = self.walks_of(fn, net)
        self.assertEqual(count, 1)
        other, count = self.walks_of(fn, net)
        self.assertEqual(count, 0, "it takes what the first one found")
        for change in (lambda: setattr(net[0], "weight", torch.nn.Parameter(self.x + 1)),
                       lambda: setattr(net[1].scale, "data", self.x[0] + 2),
                       lambda: held.update(net=net[0])):
            change()
            for one in (made, other):
                for _ in range(3):
                    self.assertTrue(torch.equal(one(self.x), held["net"](self.x)))

    def check_changes(self, make, changes):
        """Of a net that is graphed itself, and of one that a closure has."""
        for reach in (lambda net: net, lambda net: lambda x: net(x)):
            net = make()
            made = reprise.graphed(reach(net))
            for number, change in enumerate((lambda net: None, *changes)):
                change(net)
                for _ in range(3):
                    self.assertTrue(torch.equal(made(self.x), net(self.x)), number)
            self.assertTrue(reprise.graphed_of(made).shapes())

    def test_other_sizes_and_strides_at_the_same_place(self):
        def turned(net):
            net.weight.data = net.weight.data.t()
        self.check_changes(lambda: torch.nn.Linear(4, 4, device="cuda"), (turned, turned))

        class Growing(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.held = torch.arange(8.0, device="cuda")
                self.register_buffer("seen", self.held[:2])

            def forward(self, x):
                return x * self.seen.sum()
        self.check_changes(Growing, [lambda net, n=n: setattr(net.seen, "data", net.held[:n]) for n in (4, 8, 3)])

    def test_another_dtype_at_the_same_place(self):
        class Some(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.full((4,), 2.0, device="cuda"))

            def forward(self, x):
                return x * self.scale.to(torch.float32)
        dtypes = torch.int32, torch.float32, torch.uint32
        self.check_changes(Some, [lambda net, to=to: setattr(net.scale, "data", net.scale.data.view(to)) for to in dtypes])

    def test_another_dict_of_parameters_or_buffers(self):
        def another(name):
            def change(net):
                setattr(net, name, {key: held.detach() + 1 if name == "_buffers" else torch.nn.Parameter(held.detach() + 1)
                                    for key, held in getattr(net, name).items()})
            return change

        class Some(torch.nn.Linear):
            def __init__(self):
                super().__init__(4, 4, device="cuda")
                self.register_buffer("scale", torch.full((4,), 2.0, device="cuda"))

            def forward(self, x):
                return super().forward(x) * self.scale
        self.check_changes(Some, [another("_parameters"), another("_buffers"),
                                  lambda net: net.__setstate__(dict(Some().__dict__))])

    def test_what_is_put_into_the_dict_of_buffers_behind_data(self):
        """The new tensor gets the place of the first one, which the second one left."""
        class Some(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.full((4,), 2.0, device="cuda"))

            def forward(self, x):
                return x * self.scale

        def moved(net):
            net.scale.data = torch.full((4,), 3.0, device="cuda")
        for value in (4.0, 5.0):
            self.check_changes(Some, [moved, lambda net: net._buffers.update(
                scale=torch.full((4,), value, device="cuda")), moved, lambda net: net._apply(lambda t: t * 2)])

    def test_attributes_that_have_names_of_methods(self):
        net = torch.nn.Linear(4, 4, device="cuda")
        net.__dict__["modules"] = [1]
        self.check_changes(lambda: net, [])

    def test_tensors_that_a_module_does_not_list_are_looked_at(self):
        class Some(torch.nn.Linear):
            def parameters(self, recurse=True):
                return iter(())
        net = Some(4, 4, device="cuda")
        held = {"net": net}
        made, _ = self.walks_of(lambda x: held["net"](x), net)
        for value in (2.0, 3.0):
            net.weight.data = self.x * value
            for _ in range(3):
                self.assertTrue(torch.equal(made(self.x), net(self.x)))


if __name__ == "__main__":
    unittest.main()
