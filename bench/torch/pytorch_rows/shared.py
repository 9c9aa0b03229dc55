# SPDX-License-Identifier: MIT
"""Tensors and events that other processes get: test_multiprocessing.py."""

import gc

import torch
import torch.multiprocessing as mp

from . import IPC, ON_HOST, row, script

WAIT = 60  # seconds, of a process that starts


def begin(installed):
    """In a process that was started: PyTorch's allocator is that of its parent."""
    if installed:
        import reprise
        reprise.install()


class Child:
    """A process that runs the function with two queues."""

    def __init__(self, t, function, *arguments):
        context = mp.get_context("spawn")
        self.sent, self.answers, self.done = context.Queue(), context.Queue(), context.Event()
        self.process = context.Process(target=function, daemon=True, args=(
            t.installed, self.sent, self.answers, self.done, *arguments))
        self.process.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        gc.collect()
        self.done.set()
        self.process.join(WAIT)
        self.process.kill()

    def get(self):
        return self.answers.get(timeout=WAIT)


def adds_one(installed, sent, answers, done):
    begin(installed)
    for tensor in sent.get():
        with torch.no_grad():
            tensor.add_(1)
    torch.cuda.synchronize()
    answers.put("done")
    done.wait(WAIT)


def sends(installed, sent, answers, done, count, size):
    begin(installed)
    for number in range(count):
        answers.put(torch.full((size,), number, dtype=torch.int, device="cuda"))
    done.wait(WAIT)


def sums(installed, sent, answers, done, count):
    begin(installed)
    total = 0
    for _ in range(count):
        tensor = sent.get()
        total += tensor[0].item()
        del tensor
    answers.put(total)
    done.wait(WAIT)


def looks(installed, sent, answers, done):
    begin(installed)
    answers.put([(x.sum().item(), x.get_device(), x.numel(), x.requires_grad, type(x).__name__)
                 for x in sent.get()])
    done.wait(WAIT)


def shared(name, **options):
    return row(f"TestMultiprocessing.{name}", gpu=IPC if ON_HOST else None, seconds=120, **options)


@shared("test_cuda_simple")
def cuda_simple(t):
    x = torch.zeros(5, 5, device="cuda")
    with Child(t, adds_one) as child:
        child.sent.put([x])
        t.assertEqual(child.get(), "done")
        t.same(x, torch.ones_like(x))


@shared("test_cuda_memory_allocation")
def cuda_memory_allocation(t):
    with Child(t, sends, 5, 5) as child:
        got = [child.get() for _ in range(5)]
        t.same(got[0], torch.zeros(5, dtype=torch.int, device="cuda"))
        del got


@shared("test_cuda_ipc_deadlock")
def cuda_ipc_deadlock(t):
    with Child(t, sends, 60, 100) as child:
        for number in range(60):
            t.assertEqual(child.get()[0].item(), number)


@shared("test_cuda_send_many")
def cuda_send_many(t):
    count = 2000
    with Child(t, sends, count, 5) as sender, Child(t, sums, count) as summer:
        for _ in range(count):
            tensor = sender.get()
            summer.sent.put(tensor + 0)
            del tensor
        t.assertEqual(summer.get(), count * (count - 1) // 2)


@shared("test_cuda_small_tensors")
def cuda_small_tensors(t):
    given = [torch.arange(i * 5.0, (i + 1) * 5, device="cuda") for i in range(5)]
    with Child(t, looks) as child:
        child.sent.put(given)
        for tensor, told in zip(given, child.get()):
            t.assertEqual(told[:3], (tensor.sum().item(), 0, 5))


def of_kinds(t, made):
    with Child(t, looks) as child:
        child.sent.put(made)
        for tensor, told in zip(made, child.get()):
            t.assertEqual(told[3:], (tensor.requires_grad, type(tensor).__name__))


@shared("test_cuda_variable_sharing")
def cuda_variable_sharing(t):
    of_kinds(t, [torch.arange(1.0, 26, device="cuda").view(5, 5).requires_grad_(on) for on in (True, False)])


@shared("test_cuda_parameter_sharing")
def cuda_parameter_sharing(t):
    of_kinds(t, [torch.nn.Parameter(torch.arange(1.0, 26, device="cuda").view(5, 5))])


@shared("test_mixed_types_cuda_sharing")
def mixed_types_cuda_sharing(t):
    of_kinds(t, [torch.ones(2, 2, device="cuda"), torch.zeros(2, 2), torch.ones(2, device="cuda")])


def sends_specs(installed, sent, answers, done):
    """What a tensor is sent as, by hand: memory of one storage, twice."""
    begin(installed)
    from torch.multiprocessing import reductions
    kept = torch.ones(2, device="cuda")
    function, arguments = reductions.reduce_tensor(kept)
    answers.put((function, arguments))
    done.wait(WAIT)


@shared("test_rebuild_cuda_tensor")
def rebuild_cuda_tensor(t):
    with Child(t, sends_specs) as child:
        function, arguments = child.get()
        tensor = function(*arguments)
        t.assertEqual(tensor.tolist(), [1, 1])
        del tensor


@row("TestMultiprocessing.test_empty_tensor_sharing_cuda")
def empty_tensor_sharing_cuda(t):
    for dtype in (torch.float, torch.int64):
        queue, empty = mp.Queue(), torch.tensor([], dtype=dtype, device="cuda")
        queue.put(empty)
        t.same(queue.get(timeout=WAIT), empty)


@row("TestMultiprocessing.test_wrong_cuda_fork")
def wrong_cuda_fork(t):
    done = script(t, """
import torch
from torch.multiprocessing import get_context
def child():
    torch.cuda.set_device(0)
torch.rand(20, 2, device="cuda")
process = get_context("fork").Process(target=child)
process.start()
process.join()
""")
    t.assertIn("Cannot re-initialize CUDA in forked subprocess", done.stderr)


def waits(installed, event, sent, answers, done):
    begin(installed)
    answers.put("ready")
    sent.get()
    event.synchronize()
    answers.put("done")
    done.wait(WAIT)


def waits_for_handle(installed, sent, answers, done, handle):
    waits(installed, torch.cuda.Event.from_ipc_handle(0, handle), sent, answers, done)


@shared("test_event_handle_importer")
def event_handle_importer(t):
    event = torch.cuda.Event(interprocess=True)
    t.assertTrue(event.query())
    with Child(t, waits_for_handle, event.ipc_handle()) as child:
        t.assertEqual(child.get(), "ready")
        torch.cuda._sleep(200000000)
        event.record()
        child.sent.put(0)
        t.assertEqual(child.get(), "done")
        t.assertTrue(event.query())
