# SPDX-License-Identifier: MIT
"""Streams, events, and memory that several streams use: test_cuda.py."""

import torch

from . import WAITS, busy, row


@row("TestCuda.test_streams")
def streams(t):
    default, own = torch.cuda.current_stream(), torch.cuda.Stream()
    t.assertNotEqual(default, own)
    t.assertEqual(default.cuda_stream, 0)
    t.assertNotEqual(own.cuda_stream, 0)
    with torch.cuda.stream(own):
        t.assertEqual(torch.cuda.current_stream(), own)
    t.assertEqual(torch.cuda.current_stream(), default)
    t.assertTrue(own.query())
    torch.ByteTensor(5).pin_memory()
    default.synchronize()
    t.assertTrue(default.query())


@row("TestCuda.test_events", gpu=WAITS)
def events(t):
    stream = torch.cuda.current_stream()
    first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    t.assertTrue(second.query())
    stream.record_event(first)
    busy(50)
    stream.record_event(second)
    t.assertFalse(second.query())
    second.synchronize()
    t.assertTrue(second.query())
    t.assertGreater(first.elapsed_time(second), 0)
    event = torch.cuda.Event(enable_timing=True)
    t.assertEqual(event.cuda_event, 0)
    event.record()
    t.assertNotEqual(event.cuda_event, 0)


@row("TestCuda.test_generic_stream_event")
def generic_stream_event(t):
    stream = torch.Stream("cuda")
    t.assertEqual(stream.device_index, torch.cuda.current_device())
    same = torch.cuda.Stream(stream_id=stream.stream_id, device_index=stream.device_index,
                             device_type=stream.device_type)
    t.assertIsInstance(same, torch.Stream)
    t.assertEqual(same.stream_id, stream.stream_id)
    t.assertNotEqual(stream.stream_id, torch.cuda.current_stream().stream_id)
    before, after = (torch.Event("cuda", enable_timing=True) for _ in range(2))
    a, b = torch.randn(1000), torch.randn(1000)
    with torch.cuda.stream(same):
        there = a.to("cuda", non_blocking=True), b.to("cuda", non_blocking=True)
        t.assertEqual(torch.cuda.current_stream().stream_id, stream.stream_id)
    before.record(stream)
    before.synchronize()
    t.assertTrue(before.query())
    c = there[0] + there[1]
    after.record()
    after.synchronize()
    t.assertTrue(after.query())
    t.same(c.cpu(), a + b)
    t.assertNotEqual(before.event_id, after.event_id)
    t.assertGreater(before.elapsed_time(after), 0)
    t.assertIsInstance(torch.cuda.Event(), torch.Event)


@row("TestCuda.test_stream_compatibility")
def stream_compatibility(t):
    for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
        torch.accelerator.set_stream(stream)
        t.assertEqual(torch.accelerator.current_stream().stream_id, stream.stream_id)
    with t.assertRaisesRegex(RuntimeError, "Device index value .* is out of index range"):
        torch.accelerator.current_stream(torch.accelerator.device_count())


@row("TestCuda.test_record_stream", gpu=WAITS)
def record_stream(t):
    values, stream = torch.tensor([1.0, 2, 3, 4]).pin_memory(), torch.cuda.Stream()
    result = torch.empty(4, device="cuda")
    with torch.cuda.stream(stream):
        x = values.cuda(non_blocking=True)
    place = x.data_ptr()
    torch.cuda.current_stream().wait_stream(stream)
    x.record_stream(torch.cuda.current_stream())
    busy(50)
    result.copy_(x)
    del x
    with torch.cuda.stream(stream):
        y = torch.empty(4, device="cuda").zero_()
        t.assertNotEqual(y.data_ptr(), place)
    t.assertEqual(result.tolist(), [1, 2, 3, 4])
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(stream):
        t.assertEqual(torch.empty(4, device="cuda").data_ptr(), place)


@row("TestCuda.test_record_stream_on_shifted_view", gpu=WAITS)
def record_stream_on_shifted_view(t):
    own, other = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(own):
        base = torch.empty(10, 10, device="cuda")
    view, place = base[5:], base.data_ptr()
    with torch.cuda.stream(other):
        busy(50)
    view.record_stream(other)
    del base, view
    own.synchronize()
    with torch.cuda.stream(own):
        t.assertNotEqual(torch.empty(10, 10, device="cuda").data_ptr(), place)


@row("TestCuda.test_stream_context_manager")
def stream_context_manager(t):
    before = torch.cuda.current_stream()
    with torch.cuda.Stream() as stream:
        t.assertEqual(torch.cuda.current_stream(), stream)
    t.assertEqual(torch.cuda.current_stream(), before)


def scaled_in_stream(t):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, by):
            ctx.by, ctx.stream = by, torch.cuda.current_stream()
            return x * by

        @staticmethod
        def backward(ctx, grad):
            t.assertEqual(torch.cuda.current_stream(), ctx.stream)
            torch.cuda._sleep(5000000)
            return grad * ctx.by, None
    return Scaled.apply


@row("TestCuda.test_streaming_backwards_sync")
def streaming_backwards_sync(t):
    scaled, default = scaled_in_stream(t), torch.cuda.current_stream()
    stream, around = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.randn(5, 5, device="cuda", requires_grad=True)
    stream.wait_stream(default)
    with torch.cuda.stream(stream):
        scaled(x, 2).sum().backward()
    default.wait_stream(stream)
    t.same(x.grad, torch.full_like(x, 2))
    t.assertEqual(torch.cuda.current_stream(), default)
    x = torch.randn(5, 5, device="cuda", requires_grad=True)
    stream.wait_stream(default)
    with torch.cuda.stream(stream):
        out = scaled(x, 3)
    with torch.cuda.stream(around):
        around.wait_stream(stream)
        out.sum().backward()
        t.same(x.grad, torch.full_like(x, 3))  # backward() has waited for the stream x was first used on


@row("TestCuda.test_streaming_backwards_multiple_streams")
def streaming_backwards_multiple_streams(t):
    scaled, sides, event = scaled_in_stream(t), [torch.cuda.Stream() for _ in range(2)], torch.cuda.Event()
    around = torch.cuda.Stream()

    def forward(x, here):
        first = x.clone() if here else None
        for side in sides:
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(sides[0]):
            one = scaled(x.clone() if first is None else first, 2)
            event.record()
        with torch.cuda.stream(sides[1]):
            other = scaled(x, 3)
            sides[1].wait_event(event)
            return one + other

    for here in (True, False):
        for apart, times in ((True, 1), (False, 1), (False, 5)):
            with torch.cuda.stream(around):
                x = torch.randn(5, 5, device="cuda", requires_grad=True)
                for _ in range(times):
                    loss = forward(x, here).sum()
                    if apart:
                        grad = torch.autograd.grad(loss, x)[0]
                    else:
                        loss.backward()
                        grad = x.grad
            torch.cuda.current_stream().wait_stream(around)
            t.same(grad, torch.full_like(x, 5 * times))


@row("TestCuda.test_streaming_backwards_sync_graph_root")
def streaming_backwards_sync_graph_root(t):
    works, around = torch.cuda.Stream(), torch.cuda.Stream()
    a, b = (torch.full((1000,), value, device="cuda", requires_grad=True) for value in (2.0, 3.0))
    for trial in range(5):
        torch.cuda.synchronize()
        a.grad = b.grad = None
        with torch.cuda.stream(works):
            c = a * b
        with torch.cuda.stream(around):
            torch.cuda.synchronize()
            busy(25)
            grad = torch.full((1000,), trial + 1.0, device="cuda")
            torch.autograd.backward(c, grad)
            torch.cuda.synchronize()
            t.same(a.grad, (grad * b).detach())
            t.same(b.grad, (grad * a).detach())


@row("TestCuda.test_streaming_backwards_callback")
def streaming_backwards_callback(t):
    scaled, kept = scaled_in_stream(t), []
    a, b = (torch.ones(1000, device="cuda", requires_grad=True) for _ in range(2))
    first, second, third = (torch.cuda.Stream() for _ in range(3))
    first.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(first):
        c = scaled(a, 2)
    second.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(second):
        d = scaled(b, 3)
        second.wait_stream(first)
        e = c * d
        e.register_hook(lambda grad: torch.autograd.Variable._execution_engine.queue_callback(
            lambda: kept.extend((a.grad.clone(), b.grad.clone()))))
    third.wait_stream(second)
    with torch.cuda.stream(third):
        e.sum().backward()
        for grad in kept:
            t.same(grad, torch.full_like(grad, 6))
    t.assertEqual(len(kept), 2)
