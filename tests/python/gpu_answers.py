# SPDX-License-Identifier: MIT
"""Values of the GPU that a callable reads on the host, on a GPU: where they hang on no argument calls are replays,
with eager's results to the bit. Usage: gpu_answers.py [--install] ..."""

import sys
import unittest
import warnings

import torch

import reprise

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

WIDE, CALLS = 16, 5


def x_of(seed):
    return torch.randn(4, WIDE, generator=torch.Generator().manual_seed(seed)).cuda()


def bits(value):
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


class Net(torch.nn.Module):
    """Reads values of its buffers on the host, in the way that it is told."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.register_buffer("scale", torch.full((), 2.0).cuda())
        self.register_buffer("mask", torch.ones(WIDE, dtype=torch.bool).cuda())
        self.register_buffer("count", torch.full((), 3).cuda())
        self.register_buffer("table", torch.arange(8.0).cuda())
        self.register_buffer("other", torch.arange(8.0).cuda())

    def forward(self, x):
        return getattr(self, self.way)(x)

    def item(self, x):
        return x * self.scale.item()

    def any(self, x):
        return x * 2 if self.mask.any() else x - 1

    def count_of(self, x):
        for _ in range(int(self.count)):
            x = x + 1
        return x

    def listed(self, x):
        return x * sum(self.table.tolist())

    def on_cpu(self, x):
        return x * float(self.table.cpu()[3])

    def equal(self, x):
        return x * 3 if torch.equal(self.table, self.other) else x * 5

    def computed(self, x):
        window = torch.zeros(WIDE, device="cuda")
        window[2:10] += self.table * self.scale
        return x / 2 if window.abs().max().item() > 3 else x * 4

    def several(self, x):
        if self.mask.any() and float(self.scale) > 1:
            return self.count_of(x) * self.table[1].item()
        return x * self.table.sum().item()

    def made(self, x):
        steps = torch.arange(4, device="cuda") * 2
        return x * steps.max().item() + torch.tensor([5.0, 6.0], device="cuda").max().item()

    def envelope(self, x):
        """As torch.istft asks it of a window."""
        window = torch.ones(WIDE, device="cuda").pow(2).expand(1, 3, WIDE)[:, :, :8] * self.table
        lowest = window.abs().min().lt(1e-11)
        return x / 2 if torch.equal(lowest, lowest.new_ones(())) else x * window[0, 0].sum()

    def masked(self, x):
        return x[:, self.mask] * 2 + x[:, self.table.repeat(2) > 2].sum()

    def indices(self, x):
        return x[:, self.mask.nonzero()[:, 0]] + self.table[self.count:].sum()

    def copied(self, x):
        table = torch.empty(8)
        table.copy_(self.table)
        return x * float(table[2])


WAYS = ("item", "any", "count_of", "listed", "on_cpu", "equal", "computed", "several", "envelope", "masked", "indices",
        "copied", "made")


class Answers(unittest.TestCase):
    def check(self, net, graphed, calls=CALLS, seed=0):
        for i in range(calls):
            x = x_of(seed + i)
            self.assertEqual(bits(graphed(x)), bits(net(x)))

    def replays(self, graphed):
        return sum(shape["replays"] for shape in graphed.shapes())

    def test_ways(self):
        for way in WAYS:
            with self.subTest(way), torch.no_grad():
                net = Net(way)
                graphed = reprise.graphed(net.forward)
                self.check(net, graphed)
                self.assertEqual(graphed.failures(), [])
                self.assertGreaterEqual(self.replays(graphed), CALLS - 2)

    def test_buffers_that_change(self):
        for way in WAYS[:-1]:
            with self.subTest(way), torch.no_grad():
                net = Net(way)
                graphed = reprise.graphed(net.forward)
                self.check(net, graphed)
                net.scale.fill_(0.5)
                net.table[:4] = 0.25
                net.count.fill_(2)
                self.check(net, graphed)
                net.mask[3:].zero_()
                self.check(net, graphed)
                net.mask.zero_()
                self.check(net, graphed)
                net.scale = torch.full((), 4.0).cuda()
                net.mask = torch.ones(WIDE, dtype=torch.bool).cuda()
                net.table = torch.arange(8.0).cuda() / 2
                self.check(net, graphed)
                net.load_state_dict(Net(way).state_dict())
                self.check(net, graphed)
                self.assertEqual(graphed.failures(), [])

    def test_values_that_come_back(self):
        """Another version of the same value is no other graph, nor is a value that was met before."""
        with torch.no_grad():
            net = Net("item")
            graphed = reprise.graphed(net.forward)
            self.check(net, graphed)
            for value in (2.0, 0.5, 2.0, 0.5, 2.0):
                net.scale.fill_(value)
                self.check(net, graphed, 2)
            self.assertEqual(len(graphed.shapes()), 2)
            self.assertEqual(graphed.failures(), [])

    def test_fast_path(self):
        """A call where no source changed takes the fast path, and one where one did does not."""
        with torch.no_grad():
            net = Net("item")
            graphed = reprise.graphed(net.forward)
            self.check(net, graphed)
            x = x_of(9)
            slow = []
            missed = graphed._call_missed
            graphed._call_missed = lambda *given: slow.append(given) or missed(*given)
            graphed(x)
            self.assertEqual(len(slow), 0)
            net.scale.mul_(2)
            self.assertEqual(bits(graphed(x)), bits(net(x)))
            self.assertEqual(len(slow), 1)
            for _ in range(3):
                self.assertEqual(bits(graphed(x)), bits(net(x)))
            self.assertLessEqual(len(slow), 2)

    def test_calls_that_are_judged(self):
        with torch.no_grad():
            net = Net("several")
            graphed = reprise.graphed(net.forward, policy="auto")
            for value in (2.0, 0.5, 4.0):
                net.scale.fill_(value)
                self.check(net, graphed, 20)

    def test_many_reads_take_few_captures(self):
        with torch.no_grad():
            nets = [Net("item") for _ in range(12)]

            def fn(x):
                for net in nets:
                    x = net(x)
                return x
            graphed = reprise.graphed(fn)
            before = type(graphed).captures
            for i in range(CALLS):
                self.assertEqual(bits(graphed(x_of(i))), bits(fn(x_of(i))))
            self.assertEqual(type(graphed).captures - before, 2)

    def test_istft(self):
        """Its window is looked at on the host."""
        try:
            torch.fft.rfft(torch.ones(8, device="cuda"))
        except RuntimeError:
            self.skipTest("there is no FFT here")

        class Filter(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("window", torch.hann_window(64).cuda())
                self.conv = torch.nn.Conv1d(33, 33, 1, device="cuda")

            def forward(self, x):
                spec = torch.stft(x, 64, 16, window=self.window, return_complex=True)
                spec = spec * torch.sigmoid(self.conv(spec.abs()))
                return torch.istft(spec, 64, 16, window=self.window)

        net = Filter()
        for grad in (False, True):
            with self.subTest(grad=grad), torch.set_grad_enabled(grad):
                graphed = reprise.graphed(net.forward)
                for i in range(CALLS):
                    x = torch.randn(2, 1024, generator=torch.Generator().manual_seed(i)).cuda()
                    self.assertEqual(bits(graphed(x)), bits(net(x)))
                self.assertEqual(graphed.failures(), [])

    def warned(self, call):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call()
        return [str(w.message) for w in found]

    def test_writes_that_no_version_tells(self):
        """The next call but one knows, and says so."""
        with torch.no_grad():
            net = Net("item")
            graphed = reprise.graphed(net.forward)
            self.check(net, graphed)
            x = x_of(3)
            net.scale.data.fill_(0.5)
            graphed(x)
            torch.cuda.synchronize()
            told = self.warned(lambda: self.assertEqual(bits(graphed(x)), bits(net(x))))
            self.assertEqual(len(told), 1)
            self.assertIn("gpu_answers.py", told[0])
            self.assertIn("self.scale.item()", told[0])
            self.assertIn("may be wrong", told[0])
            self.check(net, graphed)

    def test_values_that_are_new_at_every_call(self):
        with torch.no_grad():
            net = Net("item")
            graphed = reprise.graphed(net.forward)

            def calls():
                for i in range(14):
                    net.scale.add_(0.125)
                    self.check(net, graphed, 1, i)
            told = self.warned(calls)
            self.assertEqual(len(told), 1, told)
            self.assertIn("self.scale.item()", told[0])
            self.assertIn("new at each", told[0])
            self.assertLessEqual(len(graphed.shapes()), 9)

    def refused(self, fn, *why, calls=4, of=None, is_made_up=False):
        """Calls of fn are eager, and one warning says why."""
        of = of or (lambda i: (x_of(i),))
        graphed = reprise.graphed(fn)
        equal = []
        told = self.warned(lambda: [equal.append(bits(graphed(*of(i))) == bits(fn(*of(i)))) for i in range(calls)])
        self.assertTrue(is_made_up or all(equal))
        self.assertEqual(self.replays(graphed), 0)
        self.assertEqual(len(told), 1, told)
        for text in why:
            self.assertIn(text, told[0])

    def test_what_hangs_on_an_argument_is_refused(self):
        def read(x):
            return x * x.sum().item()

        def mixed(x):
            found = torch.zeros(WIDE, device="cuda")
            found += x[0]
            return x * found.sum().item()

        def part(x):
            found = torch.zeros(WIDE, device="cuda")
            found[2:3].copy_(x[0, :1])
            return x * found[2].item()
        for fn in (read, mixed, part):
            with self.subTest(fn.__name__), torch.no_grad():
                self.refused(fn, "gpu_answers.py", ".item()")
                self.refused(fn, "gpu_answers.py", ".item()", calls=6, of=lambda i: (x_of(i) * (i > 2),))

    def test_what_code_of_the_programs_writes_is_refused(self):
        """It has the address, or nothing that was seen wrote there."""
        def lent(x):
            found = torch.zeros(WIDE, device="cuda")
            found.data_ptr()
            return x * found.sum().item()

        def unwritten(x):
            return x * torch.empty(WIDE, device="cuda").sum().item()

        def unseen(x):
            found, stream = torch.zeros(WIDE, device="cuda"), torch.cuda.current_stream().cuda_stream
            at = [tensor.untyped_storage().data_ptr() for tensor in (found, x)]
            reprise._C.copy(0, stream, [(*at, 4 * WIDE)])
            return x * found.sum().item()
        for fn in (lent, unwritten, unseen):
            with self.subTest(fn.__name__), torch.no_grad():
                self.refused(fn, "gpu_answers.py", ".item()", is_made_up=fn is unwritten)

    def test_random_numbers_are_refused(self):
        def drawn(x):
            return x * torch.rand(4, device="cuda").lt(2).sum().item()

        def drawn_like(x):
            return x * torch.rand_like(torch.zeros(4, device="cuda")).lt(2).sum().item()
        for fn in (drawn, drawn_like):
            with self.subTest(fn.__name__):
                self.refused(fn, ".item()")

    def test_what_the_run_writes_is_refused(self):
        class Counts(Net):
            def ahead(self, x):
                self.scale += 1
                return x * self.scale.item()

            def behind(self, x):
                x = x * self.scale.item()
                self.scale += 1
                return x
        for way in ("ahead", "behind"):
            with self.subTest(way), torch.no_grad():
                net, other = Counts(way), Counts(way)
                graphed = reprise.graphed(net.forward)
                for i in range(4):
                    self.assertEqual(bits(graphed(x_of(i))), bits(other(x_of(i))))
                self.assertEqual(self.replays(graphed), 0)
                self.assertEqual(len(graphed.failures()), 1)

    def test_an_argument_that_is_a_buffer(self):
        """Its stand-in is written to, and not what the run reads."""
        with torch.no_grad():
            net, other = Net("item"), Net("item")

            def fn(of, x, scale):
                scale.add_(1)
                return of(x)
            graphed = reprise.graphed(lambda x, scale: fn(net, x, scale))
            for i in range(4):
                self.assertEqual(bits(graphed(x_of(i), net.scale)), bits(fn(other, x_of(i), other.scale)))

    def test_replays_that_write(self):
        """Another graph writes to a buffer, before and behind the capture that reads it."""
        with torch.no_grad():
            net = Net("item")

            def write(x):
                net.scale.add_(x.mean() * 0 + 0.5)
                return x * 1
            for first in (True, False):
                writing, reading = reprise.graphed(write), reprise.graphed(net.forward)
                order = (writing, reading) if first else (reading, writing)
                for one in order:
                    for i in range(4):
                        one(x_of(i))
                for i in range(3):
                    before = net.scale.item()
                    writing(x_of(i))
                    self.assertEqual(net.scale.item(), before + 0.5)
                    self.assertEqual(bits(reading(x_of(i))), bits(net(x_of(i))))
                    self.assertEqual(bits(reading(x_of(i))), bits(net(x_of(i))))
                self.assertGreater(self.replays(writing), 3)

    def test_training(self):
        """Forward and backward are two graphs, with reads in either of them and in a checkpoint."""
        from torch.utils.checkpoint import checkpoint

        class Deep(Net):
            def __init__(self):
                super().__init__("item")
                torch.manual_seed(3)
                self.first = torch.nn.Linear(WIDE, WIDE, device="cuda")

            def inner(self, x):
                x = x * self.scale.item()
                return torch.relu(x) if self.mask.any() else x

            def forward(self, x):
                x = self.inner(self.first(x))
                return checkpoint(self.inner, x, use_reentrant=False) * float(self.scale)

        net, other = Deep(), Deep()
        graphed = reprise.graphed(net)
        for i in range(6):
            if i == 4:
                net.scale.fill_(0.5)
                other.scale.fill_(0.5)
            found = []
            for one, call in ((net, graphed), (other, other)):
                one.zero_grad()
                result = call(x_of(i))
                result.sum().backward()
                found.append((bits(result), bits(one.first.weight.grad)))
            self.assertEqual(*found)
        self.assertEqual(reprise.graphed_of(graphed).failures(), [])
        self.assertGreater(self.replays(reprise.graphed_of(graphed)), 2)

    def test_parameters_that_an_optimizer_changes(self):
        class Tempered(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(3)
                self.first = torch.nn.Linear(WIDE, WIDE, device="cuda")
                self.temperature = torch.nn.Parameter(torch.ones(()).cuda())

            def forward(self, x):
                return self.first(x) * self.temperature * (1 + self.temperature.item())

        net, other = Tempered(), Tempered()
        graphed = reprise.graphed(net)
        steps = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (net, other)]

        def train():
            for i in range(14):
                for call, step in zip((graphed, other), steps):
                    step.zero_grad()
                    call(x_of(i)).square().mean().backward()
                    step.step()
                self.assertEqual(bits(net.temperature), bits(other.temperature))
        told = self.warned(train)
        self.assertEqual(len(told), 1, told)
        self.assertIn("self.temperature.item()", told[0])

    def test_whole_step_that_reads_what_it_trains(self):
        scale = torch.nn.Parameter(torch.ones(()).cuda())
        step = torch.optim.SGD([scale], lr=0.1)

        def train(x):
            step.zero_grad()
            (x * scale * scale.item()).mean().backward()
            step.step()
            return scale * 1
        graphed = reprise.graphed(train)
        told = self.warned(lambda: [graphed(x_of(i)) for i in range(5)])
        self.assertEqual(self.replays(graphed), 0)
        self.assertEqual(len(told), 1, told)


class Forgotten(unittest.TestCase):
    def test_parameters_that_lie_elsewhere_at_each_call(self):
        """What captures learn of the reads is forgotten with what was captured: calls are eager, which is told once."""
        class Momentum(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.mean = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8).requires_grad_(False)
                self.register_buffer("at", torch.zeros(1, dtype=torch.long))

            def forward(self, x):
                with torch.no_grad():
                    for p, mean in zip(self.net.parameters(), self.mean.parameters()):
                        mean.data = mean.data * 0.9 + p.data * 0.1
                    at = int(self.at)
                    self.at[0] = (at + 1) % 3
                return self.net(x) + self.mean(x) * at

        found = []
        for graphed in (False, True):
            torch.manual_seed(0)
            net = Momentum().cuda()
            made = reprise.graphed(net) if graphed else net
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found.append([made(torch.full((2, 8), float(i), device="cuda")).tolist() for i in range(30)])
        self.assertTrue(found[0] == found[1])
        told, = [str(w.message) for w in said if "reprise" in str(w.message)]
        self.assertIn("at = int(self.at)", told)

    def test_parameters_that_are_replaced_between_calls(self):
        """Captures that no call uses again come to an end, and begin anew where the program stops."""
        for stops in (False, True):
            net = torch.nn.Linear(8, 8).cuda()
            made = reprise.graphed(net)
            with warnings.catch_warnings(record=True) as said, torch.no_grad():
                warnings.simplefilter("always")
                for i in range(700 if stops else 40):
                    x = torch.full((2, 8), float(i), device="cuda")
                    self.assertTrue(torch.equal(made(x), torch.nn.functional.linear(x, net.weight, net.bias)))
                    if i < 40:
                        net.weight.data = net.weight.data * 0.9
            told, = [str(w.message) for w in said if "reprise" in str(w.message)]
            self.assertIn("elsewhere behind each of its last captures", told)
            calls = sum(shape["replays"] for shape in made.shapes())
            self.assertEqual(calls > 100, stops, calls)
            self.assertEqual(bool(made.shapes()), stops)  # the last call captured nothing


if __name__ == "__main__":
    unittest.main()
