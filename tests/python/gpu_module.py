# SPDX-License-Identifier: MIT
"""A graphed module on a GPU, under install() and without it: usage: gpu_module.py [--install] ..."""

import copy
import sys
import unittest
import warnings

import torch

import reprise
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


if __name__ == "__main__":
    unittest.main()
