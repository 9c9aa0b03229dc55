# SPDX-License-Identifier: MIT
"""Tensors on the CPU, among arguments and in a callable, on a GPU: calls are replays, with eager's results to
the bit. Usage: gpu_cpu_values.py [--install] ..."""

import subprocess
import sys
import threading
import unittest
import warnings
import weakref
from unittest import mock

import torch

import reprise
from reprise._call import cpu_values

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

WIDE = 16


def x_of(seed):
    return torch.randn(4, WIDE, generator=torch.Generator().manual_seed(seed)).cuda()


def bits(value):
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.weight = torch.nn.Parameter(torch.randn(WIDE, WIDE).cuda())
        self.table = torch.arange(float(WIDE))  # on the CPU, and no buffer

    def forward(self, x):
        return x @ self.weight * self.table.to(x.device)


class Buffered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(float(WIDE)))

    def forward(self, x):
        return x * (self.table * 2).to(x.device)


class Scaled(torch.autograd.Function):
    """Multiplies gradients alone, by a tensor on the CPU that its backward pass moves, or takes as it is."""

    @staticmethod
    def forward(ctx, x, scale, moves=True):
        ctx.scale, ctx.moves = scale, moves
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        if not ctx.moves:
            return grad * ctx.scale, None, None
        return grad * ctx.scale.to(grad.device) + torch.tensor(0.25, device=grad.device), None, None


class Counts(torch.nn.Module):
    """Counts its calls on the CPU."""

    def __init__(self):
        super().__init__()
        self.count = torch.zeros(1)

    def forward(self, x):
        self.count += 1
        return x * self.count.to(x.device)


CALLS = 6


class CpuValues(unittest.TestCase):
    def check(self, fn, calls, graphs=1, replays=None, told=(), grad=False, **options):
        """Calls of fn and its graphed version give the same; so many graphs, replays and warnings."""
        graphed = reprise.graphed(fn, **options)
        with warnings.catch_warnings(record=True) as said, torch.set_grad_enabled(grad):
            warnings.simplefilter("always")
            for i, args in enumerate(calls):
                eager, ours = fn(*args), graphed(*args)
                self.assertEqual((eager.dtype, eager.shape, eager.stride()),
                                 (ours.dtype, ours.shape, ours.stride()))
                self.assertEqual(bits(eager), bits(ours), i)
        told_us = [str(w.message) for w in said if "reprise" in str(w.message)]
        self.assertEqual(len(told_us), len(told), told_us)
        for text, wanted in zip(told_us, told):
            self.assertRegex(text, wanted)
        facts = graphed.shapes()
        self.assertEqual(len(facts), graphs, facts)
        self.assertEqual(sum(f["calls"] for f in facts),
                         len(calls) - 1 if replays is None else replays)
        return graphed

    def test_a_table_that_changes_is_named(self):
        """By its size, not with all that it holds; gradients have no part in it."""
        table = torch.ones(3000)
        made = reprise.graphed(lambda x: x * table.to(x.device).sum())
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for i in range(13):
                table[i] = i
                x = torch.ones(3, device="cuda", requires_grad=True)
                y = made(x)
                y.sum().backward()
                self.assertEqual(x.grad.tolist(), [table.sum().item()] * 3)
        text = " ".join(str(one.message) for one in said)
        self.assertIn("a tensor on the CPU that it reads had other values", text)
        self.assertIn("(now 12000 bytes)", text)
        self.assertNotIn("gradients", text)

    # ---- Arguments ----

    def test_an_argument_that_is_moved(self):
        calls = [(x_of(i), torch.arange(float(WIDE)) + i) for i in range(12)]
        self.check(lambda x, t: x * t.cuda(), calls)
        self.check(lambda x, t: x * t.to(x.device, non_blocking=True), calls)
        self.check(lambda x, t: x + t.to("cuda", torch.half), calls)
        self.check(lambda x, t: x + torch.as_tensor(t, device="cuda"), calls)

    def test_an_argument_of_each_type(self):
        for dtype in (torch.bool, torch.uint8, torch.int32, torch.int64, torch.half, torch.bfloat16,
                      torch.double):
            calls = [(x_of(i), (torch.arange(WIDE) % (i + 2)).to(dtype)) for i in range(4)]
            self.check(lambda x, t: x * t.cuda(), calls)
        calls = [(x_of(i), torch.complex(torch.arange(float(WIDE)), torch.ones(WIDE) * i)) for i in range(4)]
        self.check(lambda x, t: torch.view_as_real(t.cuda()) * 2, calls)

    def test_what_is_computed_of_an_argument_on_the_cpu(self):
        def fn(x, lengths):
            mask = torch.arange(WIDE)[None, :] < lengths[:, None]
            return x.masked_fill(~mask.to(x.device), -1.0)
        self.check(fn, [(x_of(i), torch.tensor([1, 3, i, 9])) for i in range(12)])

    def test_changes_in_place_of_what_is_the_runs(self):
        def fn(x, t):
            doubled = t * 2
            doubled += 1
            first = doubled.cuda()
            doubled[2:5].mul_(3)
            return x * first + doubled.cuda()
        self.check(fn, [(x_of(i), torch.arange(float(WIDE)) - i) for i in range(8)])

    def test_an_argument_that_lies_otherwise(self):
        base = torch.arange(4.0 * WIDE)
        self.check(lambda x, t: x * t.cuda(), [(x_of(i), base[i:i + WIDE]) for i in range(6)])
        grid = base.view(WIDE, 4).t()
        self.check(lambda x, t: x * t.cuda(), [(x_of(i), grid + i) for i in range(6)])
        self.check(lambda x, t: x * t.cuda(), [(x_of(i), (grid + i)[:, ::2].repeat(1, 2)) for i in range(6)])
        self.check(lambda x, t: x * t.cuda(),
                   [(x_of(i), torch.tensor(1.5 + i).expand(WIDE)) for i in range(6)])

    def test_a_number_that_kernels_take(self):
        values = [0.04 * i + 0.11 for i in range(10)]
        for fn in (lambda x, s: x * s, lambda x, s: x / s, lambda x, s: x - s, lambda x, s: s - x,
                   lambda x, s: torch.relu(x + s) * 2):
            self.check(fn, [(x_of(i), torch.tensor(v)) for i, v in enumerate(values)])

    def test_numbers_of_another_sign_or_size_or_of_a_special_value_have_graphs_of_their_own(self):
        values = [0.3, -0.3, 1.0, 0.3, 1.7, -8.0, 1.0]
        self.check(lambda x, s: x * s, [(x_of(i), torch.tensor(v)) for i, v in enumerate(values)], graphs=5)

    def test_a_number_in_double_precision(self):
        self.check(lambda x, s: x * s, [(x_of(i), torch.tensor(0.1 * i + 0.15, dtype=torch.double))
                                        for i in range(6)])

    def test_a_number_that_is_written_to_while_a_call_is_under_way(self):
        prepare, number = cpu_values.Program.prepare, torch.tensor(0.3)
        graphed = self.check(lambda x, s: x * s, [(x_of(i), number) for i in range(4)])

        def late(program, tensors, **options):
            number.fill_(-8.0)  # as another thread would, which a graph of its own is for
            return prepare(program, tensors, **options)
        x, wanted = x_of(1), bits(x_of(1) * number)
        with mock.patch.object(cpu_values.Program, "prepare", late), torch.no_grad():
            self.assertEqual(bits(graphed(x, number)), wanted)

    def test_a_number_within_an_argument(self):
        for fn in (lambda x, s: x * s[0], lambda x, s: x * s.reshape(()), lambda x, s: x * s.squeeze() + s[0]):
            self.check(fn, [(x_of(i), torch.tensor([0.04 * i + 0.11])) for i in range(6)])
        self.check(lambda x, s: x * s[1], [(x_of(i), torch.tensor([0.3, 1.5 + i % 2])) for i in range(6)], graphs=2)

    def test_a_tensor_that_is_two_arguments_beside_one_on_the_cpu(self):
        def fn(x, y, t):
            return x * y * t.cuda()
        graphed = reprise.graphed(fn)
        for i in range(6):
            x, t = x_of(i).requires_grad_(), torch.arange(float(WIDE)) + i
            made = [call(x, x, t) for call in (fn, graphed)]
            self.assertEqual(*map(bits, made))
            self.assertEqual(*(bits(*torch.autograd.grad(one.sum(), x)) for one in made))
        self.assertEqual(graphed.failures(), [])

    def test_two_numbers_and_a_move(self):
        self.check(lambda x, a, b, t: (x * a + b) * t.cuda() + b,
                   [(x_of(i), torch.tensor(0.3 + i), torch.tensor(7.3 - i / 8), torch.full((WIDE,), float(i)))
                    for i in range(6)])

    def test_a_number_of_whole_type_is_part_of_the_key(self):
        self.check(lambda x, s: x * s, [(x_of(i), torch.tensor(i % 2 + 3)) for i in range(6)], graphs=2)

    def test_what_decides_is_part_of_the_key(self):
        def branch(x, t):
            return x * 2 if t.sum() > 3 else x * t.cuda()

        def listed(x, t):
            return torch.cat([x[:n] for n in t.tolist()])

        def counted(x, t):
            return x[:int(t[0])] * 1

        def counted_by_numpy(x, t):
            return x[:int(t.numpy()[0])] * 1
        for fn in (branch, listed, counted, counted_by_numpy):
            calls = [(x_of(i), torch.tensor([1, 3 - i % 2])) if fn is not branch else
                     (x_of(i), torch.tensor([1.0, 1.0 + i % 2]).repeat(WIDE // 2)) for i in range(6)]
            calls = [(x, t + i % 2) for i, (x, t) in enumerate(calls)]
            self.check(fn, calls, graphs=2)

    def test_a_number_that_is_computed_is_part_of_the_key(self):
        self.check(lambda x, s: x * (1 / s), [(x_of(i), torch.tensor(1.5 + i % 2)) for i in range(6)],
                   graphs=2)

    def test_indices(self):
        self.check(lambda x, i: x[i] * 2, [(x_of(i), torch.tensor([i % 4, 1])) for i in range(6)])
        self.check(lambda x, i: x[:, i] * 2, [(x_of(i), torch.tensor([i % 4, 1])) for i in range(6)])

    def test_values_that_are_new_at_each_call_are_named(self):
        calls = [(x_of(i), torch.tensor([i, 1])) for i in range(14)]
        graphed = self.check(lambda x, t: x * t.tolist()[0], calls, graphs=9, replays=9,
                             told=["argument `t`.*new at each of 8 calls"])
        self.assertIn("new at each", graphed.failures()[0])

    def test_an_argument_that_is_written_to_stays_eager(self):
        def fn(x, t):
            y = x * t.cuda()
            t.add_(1)
            return y
        graphed = reprise.graphed(fn)
        with warnings.catch_warnings(record=True) as said, torch.no_grad():
            warnings.simplefilter("always")
            ours, eager = torch.zeros(WIDE), torch.zeros(WIDE)
            for i in range(5):
                self.assertEqual(bits(graphed(x_of(i), ours)), bits(fn(x_of(i), eager)))
        self.assertEqual(bits(ours), bits(eager))
        self.assertIn("it writes to an argument on the CPU", str(said[0].message))

    def test_an_argument_that_is_returned_stays_eager(self):
        graphed = reprise.graphed(lambda x, t: (x * 2, t + 1))
        with warnings.catch_warnings(record=True) as said, torch.no_grad():
            warnings.simplefilter("always")
            for i in range(5):
                self.assertEqual(graphed(x_of(i), torch.tensor([i]))[1].item(), i + 1)
        self.assertIn("returns a tensor on the CPU", str(said[0].message))

    def test_a_large_argument_stays_eager(self):
        self.check(lambda x, t: x * t.cuda()[:WIDE], [(x_of(i), torch.zeros(1 << 15)) for i in range(3)],
                   graphs=0, replays=0, told=["an argument is a tensor on the CPU of 131072 bytes"])

    def test_calls_that_follow_one_another_at_once(self):
        """No call takes the memory of one that is still to run."""
        graphed = reprise.graphed(lambda x, t: x * 0 + t.cuda())
        with torch.no_grad():
            x = x_of(0)
            found = [graphed(x, torch.full((WIDE,), float(i))) for i in range(50)]
        self.assertEqual([f[0, 0].item() for f in found], [float(i) for i in range(50)])

    def test_threads(self):
        graphed = reprise.graphed(lambda x, s, t: x * 0 + s + t.cuda())
        wrong, x = [], x_of(0)
        with torch.no_grad():
            graphed(x, torch.tensor(10.3), torch.zeros(WIDE))
            graphed(x, torch.tensor(10.3), torch.zeros(WIDE))

        def work(number):
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for i in range(40):
                    s, t = 10.25 + number, torch.full((WIDE,), float(i))
                    if graphed(x, torch.tensor(s), t)[0, 0].item() != s + i:
                        wrong.append((number, i))
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(len(graphed.shapes()), 1)

    def test_captures_at_once_leave_torch_compile_as_it_was(self):
        """The first of two threads to begin is the first to end."""
        compiled = []

        def backend(module, inputs):
            compiled.append(module)
            return module.forward

        def compiles():
            del compiled[:]
            torch._dynamo.reset()
            torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
            return bool(compiled)
        self.assertTrue(compiles())
        first, second = cpu_values._eagerly(torch), cpu_values._eagerly(torch)
        first.__enter__()
        self.assertFalse(compiles())
        second.__enter__()
        first.__exit__(None, None, None)
        self.assertFalse(compiles())
        second.__exit__(None, None, None)
        self.assertTrue(compiles())

    def test_forward_and_backward(self):
        results = []
        for wrap in (lambda fn: fn, reprise.graphed):
            net = Net()
            call = wrap(lambda x, t, s: (net(x) * t.cuda() * s).square().mean())
            called = call if call.__class__.__name__ == "function" else call
            for i in range(6):
                x = x_of(i).requires_grad_()
                called(x, torch.arange(float(WIDE)) + i, torch.tensor(2.5 + i % 2)).backward()
                results.append((bits(x.grad), bits(net.weight.grad)))
        self.assertEqual(results[:6], results[6:])
        self.assertEqual(len(call.shapes()), 4)  # two values of the number, each a pair

    def test_an_argument_that_the_backward_pass_alone_uses_is_part_of_the_key(self):
        for moves, scale in ((True, torch.tensor(2.5)), (False, torch.tensor(2.5)),
                             (True, torch.arange(float(WIDE)))):
            with self.subTest(moves=moves, scale=scale):
                graphed = reprise.graphed(lambda x, t: Scaled.apply(x, t, moves).sum())
                for i in range(6):
                    t = scale + i % 2
                    x, same = x_of(i).requires_grad_(), x_of(i).requires_grad_()
                    graphed(x, t).backward()
                    Scaled.apply(same, t, moves).sum().backward()
                    self.assertEqual(bits(x.grad), bits(same.grad))
                self.assertEqual(len(graphed.shapes()), 4, graphed.failures())  # two values, each a pair

    def test_a_training_step(self):
        losses = []
        for wrap in (lambda fn: fn, lambda fn: reprise.graphed(fn)):
            net = Net()
            optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)

            def step(x, t):
                optimizer.zero_grad(set_to_none=True)
                loss = (net(x) - t.cuda()).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()
            call = wrap(step)
            losses.append([bits(call(x_of(i), torch.full((WIDE,), float(i)))) for i in range(8)])
        self.assertEqual(*losses)
        self.assertEqual(len(call.shapes()), 1, call.failures())

    def test_tuned_and_judged(self):
        def fn(x, t, s):
            return x * t.cuda() * s
        args = (x_of(0), torch.arange(float(WIDE)), torch.tensor(2.5))
        with torch.no_grad():
            graphed = reprise.graphed(fn)
            self.assertEqual(len(graphed.tune(*args, places=2)["us"]), 2)
            self.assertEqual(bits(graphed(*args)), bits(fn(*args)))
            judged = reprise.graphed(fn, policy="auto")
            for i in range(60):
                args = (x_of(i), torch.arange(float(WIDE)) + i, torch.tensor(2.5 + i))
                self.assertEqual(bits(judged(*args)), bits(fn(*args)))
        self.assertEqual(judged.failures(), [])

    def test_ahead_of_time_and_estimated(self):
        def fn(x, t):
            return x * t.cuda()
        args = (x_of(0), torch.arange(float(WIDE)))
        found = reprise.estimate(fn, [args])
        self.assertEqual(found.failures, [])
        graphed = reprise.graphed(fn, shapes=[args])
        with torch.no_grad():
            made = graphed(*args)
        self.assertEqual(bits(made), bits(fn(*args)))

    # ---- In the callable ----

    def test_constants(self):
        weight = torch.randn(WIDE, WIDE).cuda()
        for fn in (lambda x: x @ weight * torch.tensor(2.0).to(x.device),
                   lambda x: x @ weight * torch.arange(WIDE).cuda(),
                   lambda x: (x @ weight).masked_fill((torch.arange(WIDE) > 3).cuda(), 0.0),
                   lambda x: x * torch.tensor([1.0, 2.0] * 8, device="cuda"),
                   lambda x: x * torch.tensor(3.0, device="cuda"),
                   lambda x: x * x.new_tensor([2.0]),
                   lambda x: x[torch.tensor([0, 2])] * 2,
                   lambda x: x[[0, 2]] * 2,
                   lambda x: x[:, torch.tensor([True, False] * 8)] * 2,
                   lambda x: x * torch.tensor([[1.0, 2.0] * 8] * 4).t().cuda().t()):
            self.check(fn, [(x_of(i),) for i in range(5)])

    def test_constants_that_are_written_in(self):
        def fn(x):
            y = x * 2
            y[0] = torch.arange(float(WIDE))
            y[1] = torch.tensor(7.0)
            fresh = torch.arange(float(WIDE)).cuda()
            fresh += 1
            return y + fresh + torch.arange(float(WIDE)).cuda()
        self.check(fn, [(x_of(i),) for i in range(5)])

    def test_many_constants(self):
        def fn(x):
            for i in range(40):
                x = x * torch.full((WIDE,), 1.0 + i / 64).cuda()
            return x + torch.zeros(100_000).cuda()[:WIDE]
        self.check(fn, [(x_of(i),) for i in range(4)])

    def test_a_constant_takes_the_fast_path(self):
        graphed = reprise.graphed(lambda x: x * torch.arange(WIDE).cuda())
        with torch.no_grad():
            for i in range(3):
                graphed(x_of(i))
            made = graphed._fast_call((x_of(3),), {})
        self.assertEqual(bits(made), bits(x_of(3) * torch.arange(WIDE).cuda()))

    def test_a_value_of_the_program_is_compared(self):
        net = Net()
        calls = [(x_of(i),) for i in range(3)]
        graphed = self.check(net, calls)
        with torch.no_grad():
            for table in (torch.ones(WIDE), torch.arange(float(WIDE))):
                net.table.copy_(table)
                self.assertEqual(bits(graphed(x_of(9))), bits(net(x_of(9))))
            net.table = torch.full((WIDE,), 5.0)
            self.assertEqual(bits(graphed(x_of(9))), bits(net(x_of(9))))

    def test_a_buffer_on_the_cpu_is_compared(self):
        net = Buffered()
        graphed = self.check(net, [(x_of(i),) for i in range(3)])
        with torch.no_grad():
            for i in range(3):
                net.table.numpy()[3] = i * 10.0
                self.assertEqual(bits(graphed(x_of(9))), bits(net(x_of(9))))

    def test_a_number_in_a_buffer_on_the_cpu_is_compared(self):
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.tensor(1.5))

            def forward(self, x):
                return x * self.scale
        net = Scaled()
        graphed = reprise.graphed(net)
        with torch.no_grad():
            for i in range(9):
                net.scale.fill_(1.5 + i // 3)
                self.assertEqual(bits(graphed(x_of(i))), bits(net(x_of(i))))
        self.assertEqual(len(graphed.shapes()), 3)

    def test_a_value_that_no_name_leads_to_is_compared(self):
        hidden = torch.arange(float(WIDE))
        find = weakref.ref(hidden)
        graphed = reprise.graphed(lambda x: x * find().cuda())
        with torch.no_grad():
            for i in range(9):
                if i % 3 == 0:
                    hidden.mul_(-1.5)
                self.assertEqual(bits(graphed(x_of(i))), bits(x_of(i) * hidden.cuda()))

    def test_what_a_call_counts_on_the_cpu_stays_eager(self):
        one, other = Counts(), Counts()
        graphed = reprise.graphed(one)
        with warnings.catch_warnings(record=True) as said, torch.no_grad():
            warnings.simplefilter("always")
            for i in range(5):
                self.assertEqual(bits(graphed(x_of(i))), bits(other(x_of(i))))
        self.assertIn("count", str(said[0].message))
        self.assertIn("lies on the CPU, and a call writes to it", str(said[0].message))

    def test_what_cannot_be_captured_is_told_as_before(self):
        def fn(x):
            return x * float(x.sum())
        graphed = reprise.graphed(fn)
        with warnings.catch_warnings(record=True) as said, torch.no_grad():
            warnings.simplefilter("always")
            for i in range(4):
                self.assertEqual(bits(graphed(x_of(i))), bits(fn(x_of(i))))
        self.assertEqual(len(said), 1)
        self.assertIn("gpu_cpu_values.py", str(said[0].message))

    def test_a_step_with_constants(self):
        losses = []
        for wrap in (lambda fn: fn, reprise.graphed):
            net = Net()
            optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

            def step(x):
                optimizer.zero_grad(set_to_none=True)
                loss = (net(x) * torch.tensor([0.5] * WIDE, device="cuda")).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()
            call = wrap(step)
            losses.append([bits(call(x_of(i))) for i in range(8)])
        self.assertEqual(*losses)
        self.assertEqual(len(call.shapes()), 1, call.failures())

    def test_a_module_with_constants_forward_and_backward(self):
        grads = []
        for wrap in (lambda net: net, reprise.graphed):
            net = Net()
            call = wrap(net)
            for i in range(5):
                net.weight.grad = None
                call(x_of(i)).square().mean().backward()
                grads.append(bits(net.weight.grad))
        self.assertEqual(grads[:5], grads[5:])
        self.assertEqual(len(call.shapes()), 2)

    def test_constants_of_a_backward_pass(self):
        for split in (True, False):
            with self.subTest(split=split):
                grads = []
                for wrap in (lambda fn: fn, reprise.graphed):
                    net = Net()

                    def step(x, net=net):
                        loss = Scaled.apply(net(x), net.table).square().mean()
                        if not split:
                            loss.backward()
                        return loss
                    call = wrap(step)
                    for i in range(6):
                        net.weight.grad = None
                        loss = call(x_of(i).requires_grad_(split))
                        if split:
                            loss.backward()
                        if i == 3:
                            net.table.mul_(-1.5)
                        grads.append(bits(net.weight.grad))
                self.assertEqual(grads[:6], grads[6:])
                self.assertEqual(len(call.shapes()), 4 if split else 2, call.failures())

    def test_verified(self):
        for verify in ("capture", "run"):
            self.check(lambda x, t: x * t.cuda() * torch.arange(WIDE).cuda(),
                       [(x_of(i), torch.full((WIDE,), float(i))) for i in range(4)], verify=verify)


ANOTHER_ATTEMPT = """
import gc, torch, torch._dynamo, reprise  # which PyTorch imports where a mode is first used
if {install}:
    reprise.install()
full = []
gc.callbacks.append(lambda phase, info: full.append(info["generation"]) if info["generation"] == 2 else None)

def fn(x):
    more = x + 1
    return more * torch.tensor([2.0, 3.0], device="cuda")
made = reprise.graphed(fn)
with torch.no_grad():
    for i in range(4):
        x = torch.full((2,), float(i), device="cuda")
        assert torch.equal(made(x), fn(x))
shape, = made.shapes()
assert shape["replays"] > 1 and not made.failures(), made.failures()
print(len(full))
"""


class AnotherAttempt(unittest.TestCase):
    def test_it_is_soon_there(self):
        """The first attempt fails, as it copies from pageable memory. What it made is gone ahead of the next one,
        without a look at all objects."""
        for install in (False, True):
            done = subprocess.run([sys.executable, "-c", ANOTHER_ATTEMPT.format(install=install)], capture_output=True,
                                  text=True, check=False)
            with self.subTest(install=install):
                self.assertEqual(done.returncode, 0, done.stderr[-2000:])
                self.assertEqual(done.stdout.split()[:1], ["0"], done.stdout)


class OnTheFastPath(unittest.TestCase):
    """Arguments on the CPU leave calls on the fast path, which compares what Python would."""

    def calling(self, fn, *calls, grad=False, **options):
        """A graphed fn behind some calls, whose results are eager's."""
        graphed = reprise.graphed(fn, **options)
        with torch.set_grad_enabled(grad):
            for _ in range(3):
                for args in calls:
                    self.assertEqual(bits(graphed(*args)), bits(fn(*args)))
        return graphed

    def takes(self, graphed, fn, *args, **kwargs):
        """Does the fast path take such a call? Then its result is eager's."""
        made = graphed._fast_call(args, kwargs)
        if made is not reprise._C.miss:
            self.assertEqual(bits(made), bits(fn(*args, **kwargs)))
        return made is not reprise._C.miss

    @torch.no_grad()
    def test_one_that_is_another_argument(self):
        def fn(x, a, b):
            return x + (a.sum() if a is b else (a * b).sum() * 2)
        a, b = torch.ones(3), torch.ones(3)
        for others, same in (((a, b), (a, a)), ((a, a), (a, b))):
            graphed = self.calling(fn, (x_of(0), *others))
            self.assertTrue(self.takes(graphed, fn, x_of(1), *others))
            self.assertFalse(self.takes(graphed, fn, x_of(1), *same))
            self.assertEqual(bits(graphed(x_of(1), *same)), bits(fn(x_of(1), *same)))

    @torch.no_grad()
    def test_one_that_has_an_attribute(self):
        def fn(x, t):
            return x * t if getattr(t, "twice", None) is None else x * t * 2
        graphed, t = self.calling(fn, (x_of(0), torch.tensor(0.5))), torch.tensor(0.5)
        self.assertTrue(self.takes(graphed, fn, x_of(1), t))
        t.twice = True
        self.assertFalse(self.takes(graphed, fn, x_of(1), t))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual(bits(graphed(x_of(1), t)), bits(fn(x_of(1), t)))

    @torch.no_grad()
    def test_one_that_is_a_view(self):
        def fn(x, t):
            return x * t.sum() * (t.storage_offset() + 1)
        graphed, t = self.calling(fn, (x_of(0), torch.ones(3))), torch.ones(6)[3:]
        self.assertFalse(self.takes(graphed, fn, x_of(1), t))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.assertEqual(bits(graphed(x_of(1), t)), bits(fn(x_of(1), t)))

    @torch.no_grad()
    def test_a_value(self):
        def by_item(x, t):
            return x * t.item()

        def by_kernel(x, t):
            return x * t

        def by_list(x, t):
            return x * t.tolist()[-1] + 1
        for fn, t, other in ((by_item, torch.tensor(0.3), torch.tensor(0.4)),
                             (by_item, torch.tensor(0.0), torch.tensor(-0.0)),
                             (by_item, torch.tensor(True), torch.tensor(False)),
                             (by_kernel, torch.tensor(3), torch.tensor(4)),
                             (by_list, torch.arange(5), torch.tensor([0, 1, 2, 3, 5])),
                             (by_list, torch.arange(5.0), torch.tensor([0.0, 1.0, 2.0, 3.5, 4.0])),
                             (by_item, torch.tensor(float("nan")), torch.tensor(float("inf")))):
            with self.subTest(fn=fn.__name__, t=t):
                graphed, t = self.calling(fn, (x_of(0), t)), t.clone()
                self.assertTrue(self.takes(graphed, fn, x_of(1), t))
                self.assertFalse(self.takes(graphed, fn, x_of(1), other))
                before = t.clone()
                t.copy_(other)
                self.assertFalse(self.takes(graphed, fn, x_of(1), t))
                for _ in range(2):
                    self.assertEqual(bits(graphed(x_of(1), t)), bits(fn(x_of(1), t)))
                self.assertTrue(self.takes(graphed, fn, x_of(2), other))
                self.assertTrue(self.takes(graphed, fn, x_of(2), before))
                self.assertEqual(len(graphed.shapes()), 2)

    @torch.no_grad()
    def test_a_number(self):
        def fn(x, s):
            return x * s
        for dtype in (torch.float, torch.double):
            graphed = self.calling(fn, (x_of(0), torch.tensor(0.3, dtype=dtype)))
            for value, is_taken in ((0.3, True), (0.7, True), (-0.3, False), (1.7, False), (1.0, False), (0.0, False),
                                    (float("nan"), False), (0.2, True)):
                self.assertEqual(self.takes(graphed, fn, x_of(1), torch.tensor(value, dtype=dtype)), is_taken, value)
            self.assertEqual(len(graphed.shapes()), 1)

    @torch.no_grad()
    def test_what_is_moved(self):
        def fn(x, t, scale, more=None):
            return x * (t * 2).cuda() * scale.item() + more.cuda() + t.cuda()
        graphed = reprise.graphed(fn)
        for i in range(4):
            call = (x_of(i), torch.arange(float(WIDE)) + i, torch.tensor(2.5))
            self.assertEqual(bits(graphed(*call, more=torch.tensor(i))), bits(fn(*call, more=torch.tensor(i))))
        for i in range(4):
            call = (x_of(i), torch.arange(float(WIDE)) - i, torch.tensor(2.5))
            self.assertTrue(self.takes(graphed, fn, *call, more=torch.tensor(i + 7)))
        self.assertFalse(self.takes(graphed, fn, *call[:2], torch.tensor(2.25), more=torch.tensor(7)))
        grid = torch.arange(4.0 * WIDE).view(WIDE, 4)
        graphed = self.calling(lambda x, t: x * t.cuda(), (x_of(0), grid[:, 0]))
        for i in range(4):
            self.assertTrue(self.takes(graphed, lambda x, t: x * t.cuda(), x_of(i), grid[:, i]))
        self.assertEqual(len(graphed.shapes()), 1)

    @torch.no_grad()
    def test_one_whose_way_is_measured(self):
        def by_number(x, s):
            return x * s

        def by_move(x, s):
            return x * s.cuda()
        for fn in (by_number, by_move):
            graphed, taken, ways = reprise.graphed(fn, policy="auto"), 0, set()
            for i in range(400):
                call = (x_of(i), torch.tensor(0.25 + i / 1000))
                made = graphed._fast_call(call, {})
                taken += made is not reprise._C.miss
                if isinstance(made, torch.Tensor):
                    self.assertEqual(bits(made), bits(fn(*call)))
                    ways.add("graph")
                elif type(made) is reprise._C.Choice:
                    made.end(made.turn(), False)
                else:
                    self.assertEqual(bits(graphed(*call)), bits(fn(*call)))
            with self.subTest(fn=fn.__name__):
                self.assertGreater(taken, 200)
                self.assertEqual(ways, {"graph"})
                self.assertEqual(len(graphed.shapes()), 1)

    @torch.no_grad()
    def test_one_that_is_eager_though_it_is_measured(self):
        def fn(x, s):
            return x * s * x.sum().item()
        graphed, x, s = reprise.graphed(fn, policy="auto"), x_of(0), torch.tensor(0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(20):
                graphed(x, s)
        self.assertFalse(graphed.shapes())
        self.assertIs(graphed._fast_call((x, s), {}), reprise._C.eager)

    @torch.no_grad()
    def test_a_part_of_what_is_moved(self):
        for part in (lambda t: t[WIDE:], lambda t: t[::2], lambda t: t[:WIDE], lambda t: t.view(WIDE, 2).t()[1],
                     lambda t: t.view(2, WIDE).t()[:, 1]):
            def fn(x, t):
                return x * part(t).cuda() + t.cuda()[3]
            calls = [(x_of(i), torch.arange(2.0 * WIDE) + i) for i in range(3)]
            graphed = self.calling(fn, *calls)
            self.assertTrue(self.takes(graphed, fn, x_of(5), torch.ones(2 * WIDE)))

    @torch.no_grad()
    def test_another_form_is_for_python(self):
        def fn(x, t):
            return x * t.cuda()
        t = torch.arange(float(WIDE))
        graphed = self.calling(fn, (x_of(0), t))
        self.assertTrue(self.takes(graphed, fn, x_of(0), t))
        for other in (t.int(), t.double(), t[None], t[:1], torch.arange(2.0 * WIDE)[::2], t.clone().requires_grad_(),
                      torch.nn.Parameter(t), torch.nn.Parameter(t, requires_grad=False),
                      torch.complex(t, t).conj().imag, t.cuda()):
            with self.subTest(other=other):
                self.assertFalse(self.takes(graphed, fn, x_of(0), other))
        self.assertFalse(self.takes(graphed, fn, t, x_of(0)))
        empty = t.clone()
        empty.untyped_storage().resize_(0)
        self.assertIs(graphed._fast_call((x_of(0), empty), {}), reprise._C.miss)
        with torch.inference_mode():
            made = torch.arange(float(WIDE))
        self.assertFalse(self.takes(graphed, fn, x_of(0), made))
        both = self.calling(lambda x, y: x * y.cuda() if x.is_cuda else x.cuda() - y, (t, t.cuda()), (t.cuda(), t))
        self.assertEqual(len(both.shapes()), 2)
        self.assertEqual(bits(both(t, t.cuda())), bits(t.cuda() * 0))
        self.assertEqual(bits(both(t.cuda(), t)), bits(t.cuda() * t.cuda()))

    @torch.no_grad()
    def test_one_that_wants_a_gradient_is_told_as_before(self):
        graphed = self.calling(lambda x, t: x * t.cuda(), (x_of(0), torch.arange(float(WIDE))))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            graphed(x_of(0), torch.arange(float(WIDE)).requires_grad_())
        self.assertIn("an argument is a tensor on the CPU", str(said[0].message))

    @torch.no_grad()
    def test_values_that_do_not_lie_in_a_row_are_for_python(self):
        def fn(x, t):
            return x * t.tolist()[1]
        base = torch.arange(8.0)
        graphed = self.calling(fn, (x_of(0), base[::2]))
        self.assertFalse(self.takes(graphed, fn, x_of(0), base[::2]))
        self.assertEqual(bits(graphed(x_of(0), base[1::2])), bits(fn(x_of(0), base[1::2])))
        grid, memory = torch.arange(4.0).view(2, 2), torch.tensor([[0.0, 2.0], [1.0, 3.0]])
        graphed = self.calling(lambda x, t: x * t.tolist()[0][1], (x_of(0), grid.t()))
        self.assertEqual(bits(graphed(x_of(0), memory.t())), bits(x_of(0) * 1.0))

    @torch.no_grad()
    def test_a_value_that_another_thread_writes_behind_the_look_at_the_key(self):
        def fn(x, t):
            return x * t.item()
        t = torch.tensor(2.0)
        graphed = self.calling(fn, (x_of(0), torch.tensor(5.0)))
        shorten = graphed._shorten

        def late(*args):
            t.fill_(3.0)
            return shorten(*args)
        graphed(x_of(0), t)
        graphed._shorten = late
        graphed(x_of(0), t)
        del graphed._shorten
        self.assertEqual(t.item(), 3.0)
        self.assertEqual(bits(graphed(x_of(0), t)), bits(fn(x_of(0), t)))

    @torch.no_grad()
    def test_a_number_that_another_thread_writes_behind_the_comparison(self):
        def fn(x, s):
            return x * s
        graphed, s = self.calling(fn, (x_of(0), torch.tensor(0.3))), torch.tensor(0.4)
        cpu = next(iter(graphed._shapes.values())).cpu
        place = cpu.place

        def late(tensors):
            cpu.place = place
            s.neg_()
            return place(tensors)
        cpu.place = late
        self.assertEqual(bits(graphed(x_of(0), s)), bits(fn(x_of(0), torch.tensor(-0.4))))

    @torch.no_grad()
    def test_a_number_that_another_thread_gives_ahead_of_the_launch(self):
        graphed, x = self.calling(lambda x, s: x * 0 + s, (x_of(0), torch.tensor(10.25))), x_of(0)
        cpu, found = next(iter(graphed._shapes.values())).cpu, []
        prepare = cpu.prepare

        def work():
            with torch.no_grad():
                found.append(graphed(x, torch.tensor(7.25))[0, 0].item())
        other = threading.Thread(target=work)

        def late(*args, **options):
            cpu.prepare = prepare
            made = prepare(*args, **options)
            other.start()
            other.join(0.5)
            return made
        cpu.prepare = late
        self.assertEqual(graphed(x, torch.tensor(8.25))[0, 0].item(), 8.25)
        other.join()
        self.assertEqual(found, [7.25])

    @torch.no_grad()
    def test_what_a_further_capture_learns(self):
        def fn(x, t, is_moved):
            return x * t.cuda() if is_moved else x * t.tolist()[0]
        t, u = torch.arange(float(WIDE)), torch.ones(WIDE)
        graphed = self.calling(fn, (x_of(0), t, True))
        self.assertTrue(self.takes(graphed, fn, x_of(0), u, True))
        self.assertEqual(bits(graphed(x_of(0), t, False)), bits(fn(x_of(0), t, False)))
        self.assertFalse(self.takes(graphed, fn, x_of(0), u, True))
        for _ in range(2):
            self.assertEqual(bits(graphed(x_of(0), u, True)), bits(fn(x_of(0), u, True)))
        self.assertEqual(len(graphed.shapes()), 3)

    @torch.no_grad()
    def test_values_that_come_back_between_new_ones(self):
        graphed = reprise.graphed(lambda x, t: x * t.item())
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for i in range(14):
                for value in (0.0, 0.0, i + 1.0):
                    self.assertEqual(bits(graphed(x_of(0), torch.tensor(value))), bits(x_of(0) * value))
        self.assertEqual([str(w.message) for w in said if "reprise" in str(w.message)], [])
        self.assertEqual(len(graphed.shapes()), 15)

    @torch.no_grad()
    def test_a_changed_table_is_not_for_the_fast_path(self):
        table = torch.ones(WIDE)
        find = weakref.ref(table)  # no name leads there

        def fn(x, t):
            return x * (t * find()).cuda()
        graphed = self.calling(fn, (x_of(0), torch.arange(float(WIDE))))
        self.assertTrue(self.takes(graphed, fn, x_of(0), torch.ones(WIDE)))
        table.fill_(2.0)
        self.assertFalse(self.takes(graphed, fn, x_of(0), torch.ones(WIDE)))
        self.assertEqual(bits(graphed(x_of(0), torch.ones(WIDE))), bits(fn(x_of(0), torch.ones(WIDE))))

    @torch.no_grad()
    def test_an_argument_that_is_a_result(self):
        def fn(t, x, y):
            return x, y * t.item(), y
        graphed, t, x, y = reprise.graphed(fn), torch.tensor(2.0), x_of(0), x_of(1)
        for _ in range(3):
            graphed(t, x, y)
        made = graphed._fast_call((t, x, y), {})
        self.assertIs(made[0], x)
        self.assertIs(made[2], y)
        self.assertEqual(bits(made[1]), bits(y * 2))

    def test_forward_and_backward(self):
        found = []
        for wrap in (lambda fn: fn, reprise.graphed):
            net = Net()
            call = wrap(lambda x, t, s: (net(x) * t.cuda() * s.item()).square().mean())
            for i in range(6):
                x = x_of(i).requires_grad_()
                args = x, torch.arange(float(WIDE)) + i, torch.tensor(2.5)
                if i > 3 and wrap is reprise.graphed:
                    loss = call._fast_call(args, {})
                    self.assertIsNot(loss, reprise._C.miss)
                else:
                    loss = call(*args)
                loss.backward()
                found.append((bits(x.grad), bits(net.weight.grad)))
        self.assertEqual(found[:6], found[6:])

    @torch.no_grad()
    def test_judged(self):
        def fn(x, t):
            for _ in range(20):
                x = (x * t.item()).sin()
            return x
        judged, x = reprise.graphed(fn, policy="auto"), x_of(0)
        for i in range(400):
            t = torch.tensor(0.5 + i % 2)
            self.assertEqual(bits(judged(x, t)), bits(fn(x, t)))
        self.assertIsNot(judged._fast_call((x, t), {}), reprise._C.miss)

    @torch.no_grad()
    def test_transformations_are_for_python(self):
        def fn(x, t):
            return x * t.item()
        graphed, args = self.calling(fn, (x_of(0), torch.tensor(2.5))), (x_of(0), torch.tensor(2.5))
        found = []

        def within(z):
            found.append(graphed._fast_call(args, {}))
            return z
        torch.func.vmap(within)(torch.ones(3).cuda())
        with torch.autograd.forward_ad.dual_level():
            within(None)
        self.assertEqual(found, [reprise._C.miss] * 2)
        self.assertTrue(self.takes(graphed, fn, *args))

    @torch.no_grad()
    def test_many_arguments(self):
        def fn(x, *ts):
            return x * sum(ts).cuda()
        for count, is_taken in ((16, True), (17, False)):
            args = [torch.arange(float(WIDE)) + i for i in range(count)]
            graphed = self.calling(fn, (x_of(0), *args))
            self.assertEqual(self.takes(graphed, fn, x_of(1), *args), is_taken)
            self.assertEqual(len(graphed.shapes()), 1)


class Twofold(torch.nn.Module):
    """Moves from the CPU in forward, in backward, or in both."""

    def __init__(self, where, scale=None):
        super().__init__()
        torch.manual_seed(5)
        self.linear = torch.nn.Linear(WIDE, WIDE, device="cuda")
        self.register_buffer("scale", torch.arange(float(WIDE)) if scale is None else scale)
        self.where = where

    def forward(self, x):
        y = self.linear(x)
        if self.where != "backward":
            y = (y + torch.tensor(0.5, device=x.device, dtype=y.dtype)) * self.scale.to(x.device)
        return y if self.where == "forward" else Scaled.apply(y, self.scale)


class Callables(unittest.TestCase):
    """What reprise.make_graphed_callables captures."""

    def passes(self, net, order):
        """Results and gradients of rounds of these passes."""
        found = []
        for i in range(3):
            given, made = [], []
            for which in order:
                if which > 0:
                    given.append(x_of(10 * i + len(given)).requires_grad_())
                    made.append(net(given[-1]))
                    found.append(bits(made[-1]))
                else:
                    made.pop(0).square().sum().backward()
            found += [bits(t.grad) for t in (*given, *net.parameters())]
        return found

    def test_constants(self):
        for where in ("forward", "backward", "both"):
            for order in (None, [1, -1], [1, 1, -1, 1, -1, -1]):
                with self.subTest(where=where, order=order):
                    made = reprise.make_graphed_callables(Twofold(where), (x_of(0).requires_grad_(),),
                                                          order=order)
                    order = order or [1, -1]
                    self.assertEqual(self.passes(made, order), self.passes(Twofold(where), order))

    def test_constants_of_several(self):
        nets = tuple(Twofold(where) for where in ("forward", "none", "backward"))
        made = reprise.make_graphed_callables(nets, tuple((x_of(i).requires_grad_(),) for i in range(3)))
        for net, same in zip(made, ("forward", "none", "backward")):
            self.assertEqual(self.passes(net, [1, -1]), self.passes(Twofold(same), [1, -1]))

    def test_constants_without_gradients(self):
        made = reprise.make_graphed_callables(Twofold("forward"), (x_of(0),))
        with torch.no_grad():
            self.assertEqual(bits(made(x_of(3))), bits(Twofold("forward")(x_of(3))))

    def test_many_constants(self):
        scale = torch.arange(4.0 * WIDE).reshape(4, WIDE)
        made = reprise.make_graphed_callables(Twofold("both", scale), (x_of(0).requires_grad_(),))
        self.assertEqual(self.passes(made, [1, -1]), self.passes(Twofold("both", scale), [1, -1]))

    def test_a_value_that_has_changed_is_an_error(self):
        for where in ("forward", "backward"):
            for order in (None, [1, -1]):
                with self.subTest(where=where, order=order):
                    net = reprise.make_graphed_callables(Twofold(where), (x_of(0).requires_grad_(),),
                                                         order=order)
                    net(x_of(1).requires_grad_()).sum().backward()
                    net.scale[3] = 7.0
                    with self.assertRaisesRegex(RuntimeError, "'Twofold' was captured for other values of a "
                                                              "tensor on the CPU"):
                        net(x_of(1).requires_grad_())

    def test_what_a_call_counts_on_the_cpu_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "it writes to a tensor on the CPU that lies outside"):
            reprise.make_graphed_callables(Counts(), (x_of(0),))

    def test_what_cannot_be_captured_is_told_as_before(self):
        with self.assertRaisesRegex(RuntimeError, "not permitted when stream is capturing|captur"):
            reprise.make_graphed_callables(lambda x: x * float(x.sum()), (x_of(0),))

    def test_arguments_on_the_cpu_are_refused(self):
        with self.assertRaisesRegex(TypeError, "a tensor on the CPU: only tensors on the GPU"):
            reprise.make_graphed_callables(lambda x, t: x * t.cuda(), (x_of(0), torch.ones(WIDE)))


class Drawn(unittest.TestCase):
    """Random numbers that PyTorch draws on the CPU: calls draw them again."""

    def setUp(self):
        torch.manual_seed(0)
        self.net = torch.nn.Linear(16, 16).cuda()

    def outputs(self, fn, args, grad, between):
        torch.manual_seed(7)
        found = []
        for i in range(CALLS):
            x = torch.full((8, 16), 0.1 * i, device="cuda")
            with torch.set_grad_enabled(grad):
                made = fn(x, *(a(i) for a in args))
            found += [t.detach().clone() for t in made if isinstance(t, torch.Tensor)]
            if grad:
                self.net.zero_grad()
                made[0].square().sum().backward()  # an expanded gradient would meet another kernel in eager calls
                found.append(self.net.weight.grad.clone())
            found.append(torch.get_rng_state())
            between(i)
        return found

    def check(self, fn, args=(), graphs=1, told="", between=lambda i: None):
        """Are results, gradients and the generator's state eager's?"""
        for grad in (False, True):
            with self.subTest(grad=grad), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                want = self.outputs(fn, args, grad, between)
                made = reprise.graphed(fn)
                got = self.outputs(made, args, grad, between)
                self.assertEqual(len(want), len(got))
                self.assertTrue(all(map(torch.equal, want, got)))
                self.assertEqual(len(made.shapes()), graphs * (1 + grad), made.failures())
                said = [str(w.message) for w in said if "reprise" in str(w.message)]
                self.assertEqual(len(said), int(graphs == 0), said)
                self.assertIn(told, "".join(said))

    def test_numbers_that_nothing_uses(self):
        def fn(x):
            for _ in range(12):
                torch.rand([])  # as a Wav2Vec2 does for each layer, in eval mode too
            return (self.net(x),)
        self.check(fn)

    def test_numbers_that_are_moved(self):
        def fn(x):
            noise = torch.randn(8, 16).cuda() + torch.randint(0, 5, (8, 1)).to(x.device)
            return (self.net(x) + noise, noise + torch.normal(0.0, 1.0, (16,)).to("cuda"))
        self.check(fn)
        self.check(fn, between=lambda i: torch.rand(3) if i % 2 else torch.manual_seed(i))

    def test_numbers_that_fill_a_tensor(self):
        def fn(x):
            return (self.net(x) + torch.empty(8, 16).uniform_(0, 2).cuda(),)
        self.check(fn)

    def test_what_is_computed_of_them(self):
        def fn(x, scale):
            keep = (torch.rand(8, 1) + 0.9).floor_() / 0.9  # stochastic depth
            more = torch.cat([torch.rand(8) * scale, torch.zeros(8)])
            return (self.net(x) * keep.to(x.device) + more.cuda(),)
        self.check(fn, [lambda i: torch.tensor(1.0 + i)])

    def test_indices_and_dropout(self):
        def fn(x):
            kept = torch.nn.functional.dropout(torch.ones(16), 0.5)
            return (self.net(x[torch.randperm(8).cuda()]) * kept.cuda(),)
        self.check(fn)

    def test_answers_that_all_draws_give(self):
        """As encoders and decoders of BART's kind ask in training, whose layerdrop is mostly 0."""
        def fn(x):
            for layer in range(3):
                if torch.rand([]) < 0.0 or torch.rand(1) >= 1:
                    continue
                if torch.rand([]) >= 0 and torch.rand([]) <= 1.5 and not torch.rand(()) > 1:
                    x = self.net(x)
            return (x,)
        self.check(fn)

    def test_answers_beside_draws_on_the_gpu(self):
        def fn(x):
            if torch.rand([]) < 0:
                return (x,)
            return (self.net(x) + torch.rand(16, device="cuda") + torch.randn_like(torch.ones(16), device="cuda"),)
        self.check(fn)

    def test_other_uses_stay_eager(self):
        part, own = torch.zeros(16), torch.Generator().manual_seed(3)

        def partly(x):
            filled = torch.zeros(16)
            filled[:4].uniform_()
            return (self.net(x) + filled.cuda(),)

        def put_back(x):
            state = torch.get_rng_state()
            noise = torch.rand(16).cuda()
            torch.set_rng_state(state)
            return (self.net(x) + noise,)

        fixed = torch.get_rng_state()

        def set_between(x):
            torch.rand(16)
            torch.default_generator.set_state(fixed)
            return (self.net(x) + torch.rand(16).cuda(),)

        def outside(x):
            return (self.net(x) + part.uniform_().cuda(),)
        uses = {"decides": lambda x: (self.net(x) * (2 if torch.rand([]) < 0.5 else 3),),
                "zero decides": lambda x: (self.net(x) * (2 if torch.rand([]) <= 0 else 3),),
                "written to": lambda x: (self.net(x) * (2 if torch.rand([]).sub_(0.5) < 0 else 3),),
                "normal": lambda x: (self.net(x) * (2 if torch.randn([]) < 0 else 3),),
                "number": lambda x: (self.net(x) * torch.rand(1).item(),),
                "operand": lambda x: (self.net(x) * torch.rand([]),),
                "returned": lambda x: (self.net(x), torch.rand(4)),
                "numpy": lambda x: (self.net(x) + torch.from_numpy(torch.rand(16).numpy()).cuda(),),
                "listed": lambda x: (self.net(x) + torch.tensor(torch.rand(16).tolist(), device="cuda"),),
                "partly": partly, "put back": put_back, "set between": set_between,
                "outside": outside}
        for name, fn in uses.items():
            with self.subTest(use=name):
                self.check(fn, graphs=0)
        own_before = own.get_state()
        made = reprise.graphed(lambda x: self.net(x) + torch.rand(16, generator=own).cuda())
        x = torch.ones(8, 16, device="cuda")
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = [made(x) for _ in range(CALLS)]
            own.set_state(own_before)
            self.assertTrue(all(torch.equal(g, self.net(x) + torch.rand(16, generator=own).cuda()) for g in got))

    def test_calls_that_draw_take_the_fast_path(self):
        def fn(x):
            torch.rand(3)
            return self.net(x) + torch.rand(16).cuda()
        x = torch.ones(8, 16, device="cuda")
        for grad in (False, True):
            with self.subTest(grad=grad), torch.set_grad_enabled(grad):
                made = reprise.graphed(fn)
                for _ in range(CALLS):
                    result = made(x)
                    if grad:
                        result.sum().backward()
                torch.manual_seed(4)
                got = made._fast_call((x,), {})
                torch.manual_seed(4)
                self.assertTrue(torch.equal(got, fn(x)))

    def test_a_changed_table_is_not_for_the_fast_path(self):
        table = torch.ones(16)
        find = weakref.ref(table)  # no name leads there
        made = reprise.graphed(lambda x: self.net(x) + (find() * torch.rand(16)).cuda())
        x = torch.ones(8, 16, device="cuda")
        with torch.no_grad():
            for scale in (1.0, 3.0):
                table.fill_(scale)
                for _ in range(CALLS):
                    torch.manual_seed(4)
                    got = made(x)
                torch.manual_seed(4)
                self.assertTrue(torch.equal(got, self.net(x) + (table * torch.rand(16)).cuda()))

    def test_an_eager_call_in_place_of_a_replay_draws_once(self):
        class Kept(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.aux = torch.nn.Linear(16, 16), None

            def forward(self, x):
                y = self.net(x) + torch.rand(16).to(x.device)
                self.aux = y * 2
                return y

        def steps(grad, graph):
            torch.manual_seed(5)
            net, found = Kept().cuda(), []
            fn = reprise.graphed(net) if graph else net
            for i in range(CALLS + 3):
                if i in (CALLS, CALLS + 1):
                    net.aux = "of another kind"
                with torch.set_grad_enabled(grad):
                    y = fn(torch.full((8, 16), float(i), device="cuda"))
                if grad:
                    y.sum().backward()
                found += [y.detach().clone(), net.aux.detach().clone(), torch.get_rng_state()]
            if graph:
                self.assertEqual(len(fn.shapes()), 1 + grad)
            return found
        for grad in (False, True):
            with self.subTest(grad=grad):
                self.assertTrue(all(map(torch.equal, steps(grad, False), steps(grad, True))))

    def test_the_backward_pass_needs_none_of_them(self):
        x, counts = torch.ones(8, 16, device="cuda"), []
        for fn in (lambda x: self.net(x) + torch.rand(16).cuda(), lambda x: self.net(x) + torch.ones(16).cuda()):
            made = reprise.graphed(fn)
            for _ in range(CALLS):
                made(x).sum().backward()
            counts.append([len(shape["arguments"]) for shape in made.shapes() if "backward" in shape["name"]])
        self.assertEqual(len(counts[0]), 1)
        self.assertEqual(*counts)

    def test_judging_draws_nothing(self):
        x = torch.ones(8, 16, device="cuda")
        torch.manual_seed(3)
        with torch.no_grad():
            made = reprise.graphed(lambda x: self.net(x) + torch.rand(16).cuda(), policy="auto")
            for _ in range(40):
                made(x)
        state = torch.get_rng_state()
        torch.manual_seed(3)
        for _ in range(40):
            torch.rand(16)
        self.assertTrue(torch.equal(state, torch.get_rng_state()))

    def test_a_training_step(self):
        def losses(graph):
            torch.manual_seed(0)
            net = torch.nn.Linear(16, 16).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

            def step(x):
                optimizer.zero_grad()
                loss = (net(x + torch.randn(8, 16).cuda()) ** 2).mean()
                loss.backward()
                optimizer.step()
                return loss.detach()
            fn = reprise.graphed(step) if graph else step
            torch.manual_seed(1)
            found = []
            for i in range(CALLS):
                optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)
                found += [fn(torch.ones(8, 16, device="cuda")).clone(), net.weight.detach().clone()]
            if graph:
                self.assertEqual(len(fn.shapes()), 1, fn.failures())
            return [*found, torch.get_rng_state()]
        self.assertTrue(all(map(torch.equal, losses(False), losses(True))))


if __name__ == "__main__":
    unittest.main()
