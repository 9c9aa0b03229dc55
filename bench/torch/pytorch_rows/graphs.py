# SPDX-License-Identifier: MIT
"""Captures: test_cuda.py's tests of CUDA graphs."""

import contextlib
import copy
import ctypes
import gc
import itertools
import os
import tempfile
import threading
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from . import COMPUTES, CUDNN, ON_HOST, WAITS, busy, captured, clean, row, script, segments, stats


def add_often(x, times):
    for _ in range(times):
        x = x + 1
    return x


@contextlib.contextmanager
def capturing(graph, *pool, stream=None):
    """A capture by the graph's own functions."""
    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(*pool)
        yield stream
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)


@row("TestCuda.test_graph_is_current_stream_capturing")
def graph_is_current_stream_capturing(t):
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    t.assertFalse(torch.cuda.is_current_stream_capturing())
    with torch.cuda.stream(stream):
        t.assertFalse(torch.cuda.is_current_stream_capturing())
        graph.capture_begin()
        t.assertTrue(torch.cuda.is_current_stream_capturing())
        graph.capture_end()
        t.assertFalse(torch.cuda.is_current_stream_capturing())


@row("TestCuda.test_graph_capture_simple")
def graph_capture_simple(t):
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        x = torch.ones(1000, device="cuda")
        torch.cuda.empty_cache()
    with capturing(graph, stream=stream):
        y = add_often(x, 10)
    graph.replay()
    t.assertEqual(y.sum().item(), 11 * 1000)


@row("TestCuda.test_graphsafe_set_get_rng_state")
def graphsafe_set_get_rng_state(t):
    def states(generator):
        torch.rand(1, device="cuda")
        generator.manual_seed(0)
        return generator, generator.graphsafe_get_state(), generator.clone_state()

    def draw(generator, first, second):
        drawn = []
        for state, count in ((second, 1), (first, 2)):
            generator.graphsafe_set_state(state)
            drawn += [torch.rand(5, device="cuda", generator=generator) for _ in range(count)]
        return drawn

    eager = states(torch.Generator(device="cuda"))
    inside = states(torch.cuda.default_generators[0])
    graph = torch.cuda.CUDAGraph()
    for state in inside[1:]:
        graph.register_generator_state(state)
    with capturing(graph):
        drawn = draw(*inside)
    for _ in range(3):
        expected = draw(*eager)
        graph.replay()
        t.same(drawn, expected)
        t.assertEqual([s.get_offset() for s in eager[1:]], [s.get_offset() for s in inside[1:]])


@row("TestCuda.test_memory_stats_of_multiple_generators_and_graphs")
def memory_stats_of_multiple_generators_and_graphs(t):
    def blocks():
        return stats("active.all.current"), stats("active_bytes.all.current")

    def held(graphs, generators):
        before, made = blocks(), [torch.cuda.CUDAGraph() for _ in range(graphs)]
        default = torch.cuda.default_generators[0]
        known = [default.graphsafe_get_state()] + [default.clone_state() for _ in range(generators - 1)]
        for graph in made:
            for state in known:
                graph.register_generator_state(state)
            with capturing(graph):
                torch.rand(1, device="cuda")
            graph.replay()
        # Each generator has a seed and an offset in memory, one block each, for all graphs together.
        t.assertEqual(blocks(), (before[0] + 2 * generators, before[1] + 1024 * generators))
        made.clear()
        del graph
        clean()
        t.assertEqual(blocks(), before)

    for graphs, generators in ((1, 1), (3, 2), (10, 20)):
        held(graphs, generators)


@row("TestCuda.test_graph_capture_reset_recapture")
def graph_capture_reset_recapture(t):
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        x = torch.ones(1000, device="cuda")
    with capturing(graph, stream=stream):
        y = add_often(x, 10)
    graph.replay()
    t.assertEqual(y.sum().item(), 11 * 1000)
    graph.reset()
    with capturing(graph, stream=stream):
        y.fill_(2)
        z = add_often(add_often(y, 10), 10)
    graph.replay()
    t.assertEqual(z.sum().item(), 22 * 1000)
    graph.reset()


@row("TestCuda.test_graph_debugdump")
def graph_debugdump(t):
    x = torch.randn(1 << 20, device="cuda")
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    graph.enable_debug_mode()
    with capturing(graph) as stream:
        y = x + x
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            z = y + x
        stream.wait_stream(side)
    torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.dot")
        graph.debug_dump(path)
        if not ON_HOST:  # whose driver draws none
            t.assertGreater(os.path.getsize(path), 0)
    del z


@row("TestCuda.test_graph_timing", gpu=WAITS)
def graph_timing(t):
    x = torch.randn(10 << 20, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        begin.record()
        y = x + x
        end.record()
    graph.replay()
    torch.cuda.synchronize()
    t.assertGreater(begin.elapsed_time(end), 0)
    del y


@row("TestCuda.test_graph_error")
def graph_error(t):
    told = script(t, """
import torch
try:
    torch.cuda.CUDAGraph().capture_begin()
except RuntimeError as error:
    print(error)
""").stdout
    t.assertIn("CUDA graphs must be captured on a non-default stream", told)


@row("TestCuda.test_graph_warn_if_has_zero_nodes")
def graph_warn_if_has_zero_nodes(t):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with capturing(torch.cuda.CUDAGraph()):
            pass
    t.assertTrue([w for w in caught if "The CUDA Graph is empty" in str(w.message)])


@row("TestCuda.test_graph_capture_oom")
def graph_capture_oom(t):
    with t.assertRaisesRegex(RuntimeError, "out of memory"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1 << 40, device="cuda")


@row("TestCuda.test_repeat_graph_capture_cublas_workspace_memory", alone=True)
def repeat_graph_capture_cublas_workspace_memory(t):
    a, b = torch.rand(1024, 512, device="cuda"), torch.rand(512, 64, device="cuda")
    a @ b
    free = torch.cuda.mem_get_info()[0]
    for _ in range(100):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # on PyTorch's stream for captures
            a @ b
        graph.replay()
    t.assertLessEqual(free - torch.cuda.mem_get_info()[0], 100e6)


@row("TestCuda.test_graph_rng_functional")
def graph_rng_functional(t):
    for op, options in ((F.dropout, {"p": 0.1}), (F.rrelu, {"training": True}))[:1 if ON_HOST else 2]:
        x = torch.randn(10000, device="cuda")

        def often(value, times, op=op, options=options):
            for _ in range(times):
                value = op(value, **options)
            return value

        torch.cuda.manual_seed(5)
        expected = often(x, 6)
        given, graph = x.clone(), torch.cuda.CUDAGraph()
        torch.cuda.manual_seed(5)
        with capturing(graph):
            out = often(given, 2)
        graph.replay()
        given.copy_(often(out, 2))
        graph.replay()
        t.same(out, expected)
        for seed in (6, 128, 9999):
            torch.cuda.manual_seed(seed)
            given.copy_(x)
            for _ in range(3):
                graph.replay()
            t.differ(out, expected)
            torch.cuda.manual_seed(seed)
            for _ in range(3):
                expected = often(x, 2)
            t.same(out, expected)
        torch.cuda.synchronize()


@row("TestCuda.test_graph_rng_distributions", gpu=COMPUTES)
def graph_rng_distributions(t):
    size = 10000
    p, memory = torch.rand(size, device="cuda"), torch.empty(size, device="cuda")
    makers = {"bernoulli": lambda: torch.bernoulli(p), "normal": lambda: torch.normal(p + 1, 1.0),
              "poisson": lambda: torch.poisson(p), "rand": lambda: torch.rand(size, device="cuda"),
              "randint": lambda: torch.randint(0, 3, (size,), device="cuda", dtype=torch.float),
              "randn": lambda: torch.randn(size, device="cuda")}
    fillers = {"bernoulli_": (p,), "cauchy_": (), "exponential_": (), "geometric_": (0.3,),
               "log_normal_": (), "normal_": (), "random_": (), "uniform_": ()}

    def held(name, make, put):
        torch.cuda.manual_seed(5)
        make()  # so that the capture does not begin with a fresh generator
        first, second = make(), make()
        graph, places = torch.cuda.CUDAGraph(), [torch.zeros(size, device="cuda") for _ in range(2)]
        torch.cuda.manual_seed(5)
        with capturing(graph):
            made = [put(place) for place in places]
        t.assertFalse(torch.equal(first, made[0]), name)
        t.assertFalse(torch.equal(second, made[1]), name)
        for seed in (6, 314, 271):
            torch.cuda.manual_seed(seed)
            make()
            expected = [make(), make()]
            torch.cuda.manual_seed(seed)
            make()
            for tensor in made:
                tensor.fill_(-7)
            graph.replay()
            t.same(made, expected, msg=lambda text: f"{name}: {text}")
        torch.cuda.synchronize()

    for name, make in makers.items():
        held(name, make, lambda place, make=make: make())
    for name, arguments in fillers.items():
        held(name, lambda name=name, arguments=arguments: getattr(memory.clone(), name)(*arguments),
             lambda place, name=name, arguments=arguments: getattr(place, name)(*arguments))


def with_temporaries(x, value):
    return (x.clone() + value) + (x.clone() + value)


SHARING = ("none", "the first graph's", "a handle")


def pools(sharing, first=None):
    """What capture_begin gets: nothing, the first graph's pool, or a pool of a handle."""
    if sharing == "none" or (sharing == SHARING[1] and first is None):
        return ()
    return (first.pool(),) if sharing == SHARING[1] else (torch.cuda.graph_pool_handle(),)


def two_graphs(sharing, one, other):
    """Two graphs of the functions, of which the second gets what the first returns."""
    graphs, made, stream = [torch.cuda.CUDAGraph() for _ in range(2)], [], torch.cuda.Stream()
    pool = pools(sharing)
    with capturing(graphs[0], *pool, stream=stream):
        made.append(one())
    with capturing(graphs[1], *(pools(sharing, graphs[0]) if sharing == SHARING[1] else pool), stream=stream):
        made.append(other(made[0]))
    return graphs, made


def often(function, x, times, value):
    for _ in range(times):
        x = function(x, value)
    return x


@row("TestCuda.test_graph_two_successive")
def graph_two_successive(t):
    size, reserved = 1000, {}
    for sharing in SHARING:
        clean()
        x = torch.ones(size, device="cuda")
        graphs, made = two_graphs(sharing, lambda x=x: often(with_temporaries, x.clone(), 5, 1),
                                  lambda b: often(with_temporaries, b, 5, 1))
        c = x.clone()
        for graph in (*graphs, None):
            c = often(with_temporaries, c, 2, 3)
            if graph:
                graph.replay()
        t.assertEqual(made[1].sum().item(), size * 3070)
        t.assertEqual(c.sum().item(), size * 442)
        reserved[sharing] = stats("reserved_bytes.all.current")
        del x, graphs, graph, made, c
    # Two pools take a segment of small blocks each, one that is shared takes one.
    for sharing in SHARING[1:]:
        t.assertEqual(reserved["none"] - reserved[sharing], 2 << 20)


@row("TestCuda.test_graph_concurrent_replay", gpu=WAITS)
def graph_concurrent_replay(t):
    size = 1000000
    for sharing in SHARING:
        clean()
        x = torch.ones(size, device="cuda")
        graphs, made = two_graphs(sharing, lambda x=x: often(with_temporaries, x.clone(), 5, 1),
                                  lambda _, x=x: often(with_temporaries, x.clone(), 5, 2))
        streams = [torch.cuda.Stream() for _ in range(2)]
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[0]):
            torch.cuda._sleep(1000000)
            streams[1].wait_stream(streams[0])
            graphs[0].replay()
        with torch.cuda.stream(streams[1]):
            graphs[1].replay()
        torch.cuda.synchronize()
        # Graphs that share memory and run at once spoil each other's: that is what sharing means.
        sums = [m.sum().item() for m in made]
        if sharing == "none":
            t.assertEqual(sums, [94 * size, 156 * size])
        else:
            t.assertNotEqual(sums[0], 94 * size)
            t.assertNotEqual(sums[1], 156 * size)
        del x, graphs, made


@row("TestCuda.test_graph_three_successive")
def graph_three_successive(t):
    size, stream = 1000, torch.cuda.Stream()
    for sharing in SHARING:
        clean()
        x = torch.ones(size, device="cuda")
        graphs, pool = [torch.cuda.CUDAGraph() for _ in range(3)], pools(sharing)
        with capturing(graphs[0], *pool, stream=stream):
            b = x.clone()
            c, d = b + 1, b + 2
        pool = pools(sharing, graphs[0]) if sharing == SHARING[1] else pool
        with capturing(graphs[1], *pool, stream=stream):
            e = c + 3
            del c
        with capturing(graphs[2], *pool, stream=stream):
            f = d + 4
        for graph in graphs:
            graph.replay()
        t.assertEqual((e.sum().item(), f.sum().item()), (5 * size, 7 * size))
        for which in (0, 2, 1):
            graphs[which].replay()
        # Where they share memory, f lies where c did: in another order the second graph reads f for c.
        t.assertEqual((e.sum().item(), f.sum().item()),
                      ((5 if sharing == "none" else 10) * size, 7 * size))
        del x, b, d, e, f, graphs, graph


@row("TestCuda.test_graph_memory_stats_and_use_result_after_destroy_graph")
def graph_memory_stats_and_use_result_after_destroy_graph(t):
    mib, stream = 1 << 20, torch.cuda.Stream()
    past = 12 * mib  # 10 MiB and a block, in steps of 2 MiB
    cases = ((512, 1, 2 * mib, 2 * mib, "small_pool"), (mib, 2, 4 * mib, 2 * mib, "small_pool"),
             (mib + 512, 1, 20 * mib, 20 * mib, "large_pool"),
             (10 * mib - 512, 2, 40 * mib, 20 * mib, "large_pool"),
             (10 * mib + 512, 3, 3 * past, past, "large_pool"))
    clean()
    for size, count, taken, left, kind in cases:
        def now(kind=kind):
            return [stats(f"{key}.{kind}.current")
                    for key in ("segment", "reserved_bytes", "active", "active_bytes")]

        def more(before, now=now):
            return [after - then for after, then in zip(now(), before)]

        graph, seeds = torch.cuda.CUDAGraph(), 2 if kind == "small_pool" else 0
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            a = torch.ones(size // 4, device="cuda")
            before = now()
            graph.capture_begin()
            b = a.clone()
            for _ in range(5):
                b = b.clone() + 1
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        gc.collect()
        after = more(before)
        for emptied in (False, True):
            t.assertEqual(after, [count, taken, 1 + seeds, size + 512 * seeds], size)
            graph.replay()
            t.assertEqual(b.sum().item(), 6 * (size // 4))
            if not emptied:
                torch.cuda.empty_cache()
        del graph
        gc.collect()
        torch.cuda.empty_cache()
        now_left = more(before)  # before the sum, whose result has a segment of its own
        t.assertEqual(b.sum().item(), 6 * (size // 4))
        t.assertEqual(now_left, [1, left, 1, size], size)
        del a, b
        clean()


@row("TestCuda.test_graph_record_stream")
def graph_record_stream(t):
    clean()
    streams, graph = [torch.cuda.Stream() for _ in range(3)], torch.cuda.CUDAGraph()
    late, a = torch.zeros(3, device="cuda"), torch.zeros(3, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(streams[0]):
        late.record_stream(streams[0])
        busy(25)
        late.fill_(1)
    del late  # asking for its end would spoil the capture
    with torch.cuda.stream(streams[1]):
        graph.capture_begin()
        b = a.clone()
        streams[2].wait_stream(streams[1])
        with torch.cuda.stream(streams[2]):
            b.fill_(1)
            b.record_stream(streams[2])
            del b
        streams[1].wait_stream(streams[2])
        graph.capture_end()
    torch.cuda.synchronize()
    t.same(torch.zeros(3, device="cuda"), a)


@row("TestCuda.test_graph_cudnn_dropout", gpu=CUDNN)
def graph_cudnn_dropout(t):
    model, x = nn.LSTM(512, 512, 2, dropout=0.5).cuda(), torch.ones(100, 192, 512, device="cuda")
    model(x)
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        model(x)
    graph.replay()
    t.assertEqual(model(x)[0].shape, (100, 192, 512))


@row("TestCuda.test_graph_checkpoint_preserve_rng_state")
def graph_checkpoint_preserve_rng_state(t):
    def scaled(x):
        return x * torch.sigmoid(torch.randn(1, device="cuda"))

    def gradient():
        x = torch.ones(1, device="cuda", requires_grad=True)
        out = checkpoint(scaled, x, use_reentrant=False, preserve_rng_state=True)
        return torch.autograd.grad(out, x)[0]

    torch.cuda.manual_seed(42)
    scaled(torch.ones(1, device="cuda"))
    torch.cuda.manual_seed(42)
    expected, graph = gradient(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = gradient()
    torch.cuda.manual_seed(42)
    graph.replay()
    t.same(made, expected, rtol=0, atol=0)


@row("TestCuda.test_graph_manual_seed_mismatch_raises")
def graph_manual_seed_mismatch_raises(t):
    torch.cuda.manual_seed(0)
    with t.assertRaisesRegex(RuntimeError, "set_current_seed can be called during stream capture only if new "
                                           "seed is the same"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.cuda.manual_seed(1)


class OfADict(nn.Module):
    """Layers over what a dictionary has."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, given):
        return self.layers(given["x"])


class Picks(nn.Module):
    """Without parameters."""

    def forward(self, given):
        x = given["x"] if isinstance(given, dict) else given
        return {"output": x.gather(0, torch.arange(x.size(0), device=x.device)[:, None].expand_as(x))}


def layered(rows):
    def pair(one, two):
        return (nn.Sequential(nn.Linear(one, two), nn.Dropout(0.1)),
                nn.Sequential(nn.Linear(two, two), nn.Dropout(0.2)))
    return nn.Sequential(OfADict(*pair(64, 32)), nn.Sequential(*pair(32, 16)), Picks()).cuda()


# PyTorch expects these two to fail: a graph can't take a dictionary with inputs that it does not use without
# allow_unused_input, nor hold what autocast keeps in its cache.
@row("TestCuda.test_graph_make_graphed_callables_with_amp_cache_enabled_allow_unused_input", True, True, True)
@row("TestCuda.test_graph_make_graphed_callables_without_amp_not_allow_unused_input", False, False, False)
def graph_make_graphed_callables(t, amp, cache, unused):
    torch.manual_seed(5)
    n = 64
    models = [layered(n) for _ in range(2)]
    models[0].load_state_dict(models[1].state_dict())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    x, y = torch.randn(n, 64, device="cuda"), torch.randn(n, 16, device="cuda")
    h, h2, spare, predicted = (torch.randn(n, width, device="cuda", requires_grad=True)
                               for width in (32, 16, 32, 16))
    held = True
    try:
        with torch.amp.autocast("cuda", enabled=amp, cache_enabled=cache):
            models[0][0], models[0][1], models[0][2], relu, loss_of = torch.cuda.make_graphed_callables(
                (models[0][0], models[0][1], models[0][2], F.relu, F.mse_loss),
                (({"x": x, "unused_input": spare},), (h,), (h2,), (predicted,), (predicted, y)),
                allow_unused_input=unused)
        data = [(torch.rand_like(x), torch.rand_like(y)) for _ in range(10)]
        for m, optimizer, act, measure in zip(models, optimizers, (relu, F.relu), (loss_of, F.mse_loss)):
            torch.manual_seed(5)
            torch.cuda.manual_seed(5)
            for given, target in data:
                optimizer.zero_grad(set_to_none=True)
                with torch.amp.autocast("cuda", enabled=amp, cache_enabled=cache):
                    measure(act(m({"x": given, "unused_input": spare})["output"]), target).backward()
                optimizer.step()
        for one, other in zip(models[0].parameters(), models[1].parameters()):
            t.same(one, other)
    except (RuntimeError, AssertionError, TypeError):
        held = False
    t.assertFalse(held)


@row("TestCuda.test_graph_make_graphed_callables_parameterless_nograd_module_without_amp_allow_unused_input",
     False, False, True)
@row("TestCuda.test_graph_make_graphed_callables_parameterless_nograd_module_with_amp_cache_disabled_"
     "allow_unused_input", True, False, True)
@row("TestCuda.test_graph_make_graphed_callables_parameterless_nograd_module_without_amp_not_"
     "allow_unused_input", False, False, False)
def graph_make_graphed_callables_parameterless_nograd_module(t, amp, cache, unused):
    x, spare = torch.randn(64, 64, device="cuda"), torch.randn(64, 32, device="cuda")
    control = nn.Sequential(Picks())
    with torch.amp.autocast("cuda", enabled=amp, cache_enabled=cache):
        graphed = nn.Sequential(torch.cuda.make_graphed_callables(
            Picks(), ({"x": x, "unused_input": spare},), allow_unused_input=unused))
        for _ in range(10):
            given = {"x": torch.rand_like(x, requires_grad=True), "unused_input": spare}
            t.same(graphed(given)["output"], control(given)["output"])
    graphed.eval()
    control.eval()
    t.same(graphed({"x": x})["output"], control({"x": x})["output"])


@row("TestCuda.test_graph_make_graphed_callables_same_pool")
def graph_make_graphed_callables_same_pool(t):
    pool, pairs = torch.cuda.graph_pool_handle(), []
    for _ in range(3):
        model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128)).cuda()
        given = torch.randn(64, 32, device="cuda")
        pairs.append((model, torch.cuda.make_graphed_callables(copy.deepcopy(model), (given,), pool=pool)))
    for model, graphed in pairs:
        x = torch.randn(64, 32, device="cuda")
        outs = [m(x) for m in (model, graphed)]
        norms = [out.norm() for out in outs]
        for norm in norms:
            norm.backward()
        t.same(*outs)
        t.same(*norms)
        for one, other in zip(model.parameters(), graphed.parameters()):
            t.same(one, other)
            t.same(one.grad, other.grad)
            t.assertNotEqual(one.data_ptr(), other.data_ptr())
            t.assertNotEqual(one.grad.data_ptr(), other.grad.data_ptr())


@row("TestCuda.test_cuda_graph_error_options")
def cuda_graph_error_options(t):
    def ask():
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(1024))

    def work():
        x = torch.zeros(2000, device="cuda")
        return x + x + x

    for mode in ("thread_local", "relaxed"):
        def both():
            made, thread = work(), threading.Thread(target=ask)
            thread.start()
            thread.join()
            return made
        work()
        graph, _ = captured(both, capture_error_mode=mode)
        graph.replay()
    torch.cuda.synchronize()


def raw(keep):
    x, y = torch.zeros(2000, device="cuda"), torch.ones(2000, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=keep)
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        z = x + y
    return graph, z


@row("TestCuda.test_cuda_graph_raw_graph_keep_graph_false")
def cuda_graph_raw_graph_keep_graph_false(t):
    graph, _ = raw(False)
    with t.assertRaisesRegex(RuntimeError, "intended to be called by the user only when keep_graph=true"):
        graph.instantiate()
    with t.assertRaisesRegex(RuntimeError, "You cannot access the raw cudaGraph_t instance unless"):
        graph.raw_cuda_graph()


@row("TestCuda.test_cuda_graph_raw_graph")
def cuda_graph_raw_graph(t):
    graph, z = raw(True)
    driver = ctypes.CDLL("libcuda.so.1")
    count, handle = ctypes.c_size_t(), ctypes.c_void_p(graph.raw_cuda_graph())
    t.assertEqual(driver.cuGraphGetNodes(handle, None, ctypes.byref(count)), 0)
    nodes, kind = (ctypes.c_void_p * count.value)(), ctypes.c_int()
    t.assertEqual(driver.cuGraphGetNodes(handle, nodes, ctypes.byref(count)), 0)
    t.assertGreaterEqual(count.value, 1)
    for node in nodes:
        t.assertEqual(driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)), 0)
    graph.replay()
    t.same(z, torch.ones_like(z))


@row("TestCuda.test_cuda_graph_raw_graph_exec_keep_graph_False", False)
@row("TestCuda.test_cuda_graph_raw_graph_exec_keep_graph_True", True)
def cuda_graph_raw_graph_exec(t, keep):
    graph, z = raw(keep)
    if keep:
        with t.assertRaisesRegex(RuntimeError, "You cannot access the raw cudaGraphExec_t instance until"):
            graph.raw_cuda_graph_exec()
        graph.instantiate()
    flags, handle = ctypes.c_uint64(), ctypes.c_void_p(graph.raw_cuda_graph_exec())
    t.assertTrue(handle.value)
    if not ON_HOST:  # whose driver has no such function
        t.assertEqual(ctypes.CDLL("libcuda.so.1").cuGraphExecGetFlags(handle, ctypes.byref(flags)), 0)
    graph.replay()
    t.same(z, torch.ones_like(z))


@row("TestCuda.test_cuda_graph_raw_graph_reset_and_recapture")
def cuda_graph_raw_graph_reset_and_recapture(t):
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    for step in (1.0, 2.0):
        x = torch.zeros(2000, device="cuda")
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            x += step
        for times, instantiates in ((1, True), (2, True), (3, False)):
            if instantiates:
                graph.instantiate()
            graph.replay()
            t.same(x, torch.full_like(x, times * step))
        graph.reset()


@row("TestCuda.test_cuda_graph_allocator_propagates_stream")
def cuda_graph_allocator_propagates_stream(t):
    before = {tuple(s["segment_pool_id"]) for s in segments()} | {(0, 0)}
    x = torch.randn(10 * 1000 * 1024, device="cuda")
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with capturing(graph) as stream:
        y = x + x
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            z = y + x
        stream.wait_stream(side)
    pools_of = [tuple(s["segment_pool_id"]) for s in segments() if tuple(s["segment_pool_id"]) not in before]
    # One segment for each stream's block, both of the graph's pool.
    t.assertEqual((len(pools_of), len(set(pools_of))), (2, 1))
    del z


@row("TestCuda.test_cuda_graph_tensor_item_not_allowed")
def cuda_graph_tensor_item_not_allowed(t):
    done = script(t, """
import torch
x, which = torch.rand(500, device="cuda"), torch.randint(0, 500, (500,), device="cuda")
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    x[0] *= x[which[0].item()]
""", check=False)
    t.assertNotEqual(done.returncode, 0)
    t.assertRegex(done.stderr, "operation (is )?not permitted w(hen|hile a) stream is capturing")


@row("TestCuda.test_graph_optims_with_explicitly_capturable_param_groups", seconds=120)
def graph_optims_with_explicitly_capturable_param_groups(t):
    kinds = [getattr(torch.optim, name) for name in ("Adam", "AdamW", "ASGD", "Adamax", "NAdam", "RAdam",
                                                     "Adadelta", "RMSprop", "Rprop")
             if not (ON_HOST and name == "NAdam")]  # whose steps the host driver does not compute
    for kind, capturable in itertools.product(kinds, (True, False)):
        def parameters():
            return [nn.Parameter(torch.ones(1, device="cuda")) for _ in range(2)]
        ours, theirs = parameters(), parameters()
        gradients = [[torch.randn(1, device="cuda") for _ in range(2)] for _ in range(5)]

        def step(optimizer, params, given):
            for p, grad in zip(params, given):
                p.grad = grad.clone()
            optimizer.step()

        graphed = kind([{"params": [ours[0]], "capturable": True},
                        {"params": [ours[1]], "capturable": capturable}])
        eager = kind([{"params": [p], "capturable": False} for p in theirs])
        for given in gradients:
            step(eager, theirs, given)
        for given in gradients[:3]:
            step(graphed, ours, given)
        graph = torch.cuda.CUDAGraph()
        if not capturable:
            with t.assertRaisesRegex(RuntimeError, "Attempting CUDA graph"), torch.cuda.graph(graph):
                graphed.step()
            continue
        with torch.cuda.graph(graph):
            graphed.step()
        for given in gradients[3:]:
            for p, grad in zip(ours, given):
                p.grad.copy_(grad)
            graph.replay()
        t.same(ours, theirs)


SPIN = r"""
__global__ void wait_for(int *flag)
{
    int seen;
    do
        asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    while (!seen);
}
"""


@row("TestCudaDeviceParametrizedCUDA.test_graph_external_wait_and_record_cuda", gpu=WAITS)
def graph_external_wait_and_record(t):
    wait_for = torch.cuda._compile_kernel(SPIN, "wait_for")
    x, there = torch.ones(4, device="cuda"), torch.zeros(4).pin_memory()
    flag = torch.zeros(1, dtype=torch.int32).pin_memory()
    begun, done = (torch.cuda.Event(external=True) for _ in range(2))
    signals, works = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(signals, capture_error_mode="relaxed"):
        wait_for(grid=(1, 1, 1), block=(1, 1, 1), args=[flag])
        begun.record()
    t.assertTrue(begun.query())  # a captured record is none yet
    with torch.cuda.graph(works, capture_error_mode="relaxed"):
        begun.wait()
        there.copy_(x, non_blocking=True)
        done.record()
    try:
        for graph in (signals, works):
            with torch.cuda.stream(torch.cuda.Stream()):
                graph.replay()
        t.assertFalse(done.query())
        t.assertEqual(there.tolist(), [0] * 4)
    finally:
        flag[0] = 1
    done.synchronize()
    t.assertEqual(there.tolist(), [1] * 4)


