# SPDX-License-Identifier: MIT
"""Generators that training frameworks keep. Usage: gpu_trackers.py [--install] ..."""

import contextlib
import sys
import types
import unittest

import torch

import reprise
from layer_case import WIDTH, Case, Layer, numbers, pair

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()


class Tracker:
    """What Megatron has: states by name, which it puts in the place of the device's generator."""

    def __init__(self, safe=True):
        self.states_, self.safe = {}, safe

    def add(self, name, seed):
        generator = torch.cuda.default_generators[0]
        if self.safe:
            self.states_[name] = generator.clone_state()
            self.states_[name].manual_seed(seed)
        else:
            self.states_[name] = torch.Generator("cuda").manual_seed(seed).get_state()

    @contextlib.contextmanager
    def fork(self, name="model-parallel-rng"):
        generator = torch.cuda.default_generators[0]
        if self.safe:
            get, put = generator.graphsafe_get_state, generator.graphsafe_set_state
        else:
            get, put = generator.get_state, generator.set_state
        before = get()
        put(self.states_[name])
        try:
            yield
        finally:
            self.states_[name] = get()
            put(before)


class Dropped(Layer):
    """Draws from the device's generator and from a tracker's."""

    def __init__(self, tracker):
        super().__init__(0.3)
        self.tracker = (tracker,)  # no submodule, and shared by copies

    def forward(self, hidden):
        hidden = super().forward(hidden)[0]
        with self.tracker[0].fork():
            return torch.nn.functional.dropout(hidden, 0.5), None


class Trackers(Case):
    """Generators of frameworks."""

    NAME = "megatron.core.tensor_parallel.random"

    def tracker(self, safe=True):
        torch.cuda.init()
        tracker = Tracker(safe)
        tracker.add("model-parallel-rng", 77)
        tracker.add("expert-parallel-rng", 78)
        sys.modules[self.NAME] = types.SimpleNamespace(_CUDA_RNG_STATE_TRACKER=tracker)
        self.addCleanup(sys.modules.pop, self.NAME)
        return tracker

    def trained(self, call, net, tracker, order):
        """Losses and gradients of passes in an order."""
        torch.manual_seed(4)
        for state in tracker.states_.values():
            state.manual_seed(11)
        net.zero_grad()
        waiting, seen = [], []
        for number in order * 3:
            if number > 0:
                x = numbers(8, WIDTH, grad=True)
                waiting.append((x, call(x)[0]))
            else:
                x, y = waiting.pop(0)
                y.square().sum().backward()
                seen += [y.detach(), x.grad]
        return seen + [p.grad for p in net.parameters()] + [torch.rand(3, device="cuda")] + [
            torch.rand(3, device="cuda", generator=state) for state in tracker.states_.values()]

    def check(self, order, make):
        tracker = self.tracker()
        net, twin = pair(lambda: Dropped(tracker))
        made = make(net)
        for a, b in zip(self.trained(made, net, tracker, order), self.trained(twin, twin, tracker, order)):
            self.assertTrue(torch.equal(a, b))

    def test_callables(self):
        self.check([1, -1], lambda net: reprise.make_graphed_callables(net, (numbers(8, WIDTH, grad=True),)))

    def test_pipelines(self):
        order = [1, 1, -1, 1, -1, -1]
        self.check(order, lambda net: reprise.make_graphed_callables(
            net, (numbers(8, WIDTH, grad=True),), order=order))

    def test_given_generators(self):
        tracker = self.tracker()
        del sys.modules[self.NAME]
        self.addCleanup(sys.modules.__setitem__, self.NAME, None)
        net, twin = pair(lambda: Dropped(tracker))
        made = reprise.make_graphed_callables(net, (numbers(8, WIDTH, grad=True),),
                                              generators=tracker.states_.values())
        for a, b in zip(self.trained(made, net, tracker, [1, -1]), self.trained(twin, twin, tracker, [1, -1])):
            self.assertTrue(torch.equal(a, b))

    def test_modules(self):
        def graphed(net):
            made = reprise.graphed(net, strict=True)
            for _ in range(2):
                made(numbers(8, WIDTH, grad=True))[0].sum().backward()
            return made
        self.check([1, -1], graphed)

    def test_eager_use_of_a_tracker_costs_no_capture(self):
        tracker = self.tracker()
        net = reprise.graphed(Dropped(tracker).cuda(), strict=True)
        for _ in range(5):
            net(numbers(8, WIDTH, grad=True))[0].sum().backward()
            with tracker.fork():
                torch.rand(3, device="cuda")
        self.assertEqual(len(net.shapes()), 2)  # forward and backward

    def test_the_warm_up_leaves_no_trace(self):
        tracker = self.tracker()

        def drawn():
            return [torch.rand(1).item(), torch.rand(1, device="cuda").item(),
                    *[torch.rand(1, device="cuda", generator=g).item() for g in tracker.states_.values()]]
        seen = []
        for _ in range(2):
            torch.manual_seed(4)
            for state in tracker.states_.values():
                state.manual_seed(11)
            with torch.random.fork_rng(devices=[0]):  # of what is made here
                sample = numbers(8, WIDTH, grad=True)
                net = Dropped(tracker).cuda()
            if seen:
                reprise.make_graphed_callables(net, (sample,))
            seen.append(drawn())
        self.assertEqual(*seen)

    def test_states_as_tensors_are_refused(self):
        tracker = self.tracker(safe=False)
        before = {name: state.clone() for name, state in tracker.states_.items()}
        with self.assertRaisesRegex(RuntimeError, "'Dropped' draws from 'model-parallel-rng' of a tracker.*"
                                                  "use_cudagraphable_rng=True"):
            reprise.make_graphed_callables(Dropped(tracker).cuda(), (numbers(8, WIDTH, grad=True),))
        for name, state in tracker.states_.items():
            self.assertTrue(torch.equal(state, before[name]))
        net = Dropped(tracker).cuda().eval()
        net.forward = lambda x: Layer.forward(net, x)
        reprise.make_graphed_callables(net, (numbers(8, WIDTH),))


if __name__ == "__main__":
    unittest.main()
