# SPDX-License-Identifier: MIT
"""Histories, snapshots and their plots, and the callbacks of the GPU trace: TestCudaMallocAsync,
TestFXMemoryProfiler, test_cuda_trace.py."""

import gc
import json
import pickle
import random
from unittest import mock

import torch
from torch import nn
from torch.cuda import _gpu_trace, _memory_viz

from . import row, segments

SIZE = 311 * 411 * 4


def record(*arguments, **options):
    torch.cuda.memory.empty_cache()
    torch.cuda.memory._record_memory_history(*arguments, **options)


def blocks(size=SIZE):
    return [b for s in segments() for b in s["blocks"] if b.get("requested_size") == size]


@row("TestCudaMallocAsync.test_memory_snapshot")
def memory_snapshot(t):
    record("state", stacks="python")
    torch.rand(2 * 311, 411, device="cuda")
    unused, x = torch.rand(310, 410, device="cuda"), torch.rand(311, 411, device="cuda")
    many = [torch.rand(128, device="cuda") for _ in range(1000)]
    while many:
        del many[random.randrange(len(many))]
    torch.rand(640, device="cuda")
    t.assertTrue(all("frames" in s for s in segments()))
    found = blocks()
    t.assertEqual([b["address"] for b in found], [x.untyped_storage().data_ptr()])
    t.assertIn("histories.py", found[0]["frames"][0]["filename"])
    # PyTorch's makes a picture of these lines, for which it gets a program from the network.
    t.assertIn("histories.py", _memory_viz.segments(torch.cuda.memory._snapshot(), format_flamegraph=str))
    del unused, x
    torch.cuda.empty_cache()
    last = torch.cuda.memory._snapshot()["device_traces"][0][-1]
    t.assertIn(last["action"], ("segment_free", "segment_unmap"))


@row("TestCudaMallocAsync.test_direct_traceback")
def direct_traceback(t):
    from torch._C._profiler import gather_traceback, symbolize_tracebacks
    text = str(symbolize_tracebacks([gather_traceback(True, True, True)])[0])
    t.assertIn("histories.py", text)
    t.assertIn("unwind", text)


@row("TestCudaMallocAsync.test_memory_snapshot_with_cpp")
def memory_snapshot_with_cpp(t):
    record("state", stacks="all")
    x = torch.rand(311, 411, device="cuda")
    found = blocks()
    t.assertTrue(found)
    t.assertIn("::rand", str(found[0]["frames"]))
    del x


@row("TestCudaMallocAsync.test_memory_profiler_viz", gpu="CUPTI, which the host driver has not")
def memory_profiler_viz(t):
    with torch.profiler.profile(with_stack=True, profile_memory=True, record_shapes=True) as profile:
        x = torch.rand(128, 128, device="cuda")
        x * x + x * x
    _memory_viz.profile_plot(profile)
    text = json.dumps(_memory_viz._profile_to_snapshot(profile))
    for part in ("histories.py", "memory_profiler_viz", "category"):
        t.assertIn(part, text)


@row("TestCudaMallocAsync.test_cycles")
def cycles(t):
    from torch.utils.viz._cycles import observe_tensor_cycles
    seen = []
    disarm = observe_tensor_cycles(seen.append)

    def cycle():
        x = torch.empty(3, 4, device="cuda")

        def again(p):
            return again(not p) if p else x
        return again

    def nothing():
        pass
    try:
        cycle()
        gc.collect()
        nothing()  # observers are called with the next Python call
        t.assertTrue(seen)
        for part in ("torch.Tensor", "histories.py", "cell_contents"):
            t.assertIn(part, seen[0])
    finally:
        disarm()


@row("TestCudaMallocAsync.test_memory_plots")
def memory_plots(t):
    for context, stacks in (("all", "all"), ("all", "python"), (None, "python")):
        record("all", context=context, stacks=stacks)

        def told_of_by_name():
            x = torch.rand(128, 128, device="cuda")
            x * x + x * x
        told_of_by_name()
        found = torch.cuda.memory._snapshot()
        text = json.dumps(found)  # the second plot takes events out
        _memory_viz.trace_plot(found)
        _memory_viz.trace_plot(found, filter_freed=True)
        _memory_viz.segment_plot(found)
        t.assertEqual("told_of_by_name" in text, context is not None)
        t.assertEqual("::rand" in text, stacks == "all")
        t.assertIn(str(128 * 128 * 4), text)
        torch.cuda.memory._record_memory_history(None)


@row("TestCudaMallocAsync.test_memory_plots_free_stack")
def memory_plots_free_stack(t):
    for context in ("alloc", "all", "state"):
        record(context=context)
        kept = []

        def takes(kept=kept):
            kept.append(torch.rand(3, 4, device="cuda"))

        def gives(kept=kept):
            kept.clear()
        takes()
        gives()
        text = json.dumps(torch.cuda.memory._snapshot())
        t.assertEqual('"gives"' in text, context == "all")
        t.assertEqual('"takes"' in text, context != "state")
        torch.cuda.memory._record_memory_history(None)


@row("TestCudaMallocAsync.test_memory_plots_history_context")
def memory_plots_history_context(t):
    def first():
        return torch.rand(4, 4, device="cuda")

    def without():
        return torch.rand(3, 4, device="cuda")

    def third():
        return torch.rand(4, 4, device="cuda")
    kept = []
    for context, take in (("all", first), (None, without), ("all", third)):
        torch.cuda.memory._record_memory_history(context=context, stacks="python")
        kept.append(take())
    text = json.dumps(torch.cuda.memory._snapshot())
    t.assertEqual([f'"{name}"' in text for name in ("first", "without", "third")], [True, False, True])


def emptied(context, metadata=""):
    """The snapshot after a block came and went, and its segment with it."""
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.memory.empty_cache()
    torch.cuda.memory._set_memory_metadata(metadata)
    torch.cuda.memory._record_memory_history(context=context)
    x = torch.rand(3, 4, device="cuda")
    del x
    torch.cuda.memory.empty_cache()
    torch.cuda.memory._set_memory_metadata("")
    found = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(None)
    return found


@row("TestCudaMallocAsync.test_memory_plots_free_segment_stack")
def memory_plots_free_segment_stack(t):
    for context in ("alloc", "all", "state"):
        t.assertEqual("empty_cache" in json.dumps(emptied(context)), context == "all", context)


@row("TestCudaMallocAsync.test_memory_plots_metadata")
def memory_plots_metadata(t):
    for context in ("alloc", "all", "state"):
        told = emptied(context, "metadata test")["device_traces"][0]
        t.assertTrue(told)
        t.assertEqual({event["user_metadata"] for event in told}, {"metadata test"})


@row("TestCudaMallocAsync.test_memory_snapshot_script")
def memory_snapshot_script(t):
    torch._C._cuda_clearCublasWorkspaces()
    record("state", stacks="python")
    x = torch.jit.CompilationUnit("def foo(a: int, b: int):\n    return torch.rand([a, b], device='cuda')\n"
                                  ).foo(311, 411)
    found = blocks()
    t.assertTrue(found)
    t.assertEqual(found[0]["frames"][0]["name"], "foo")
    del x


@row("TestCudaMallocAsync.test_memory_snapshot_skip_actions")
def memory_snapshot_skip_actions(t):
    for skipped in (["free_requested"], ["free_requested", "free_completed"], ["alloc"],
                    ["segment_alloc", "segment_free"], [], None):
        record(context="all", stacks="python", skip_actions=skipped)
        x = torch.rand(128, 128, device="cuda")
        del x
        torch.cuda.synchronize()
        actions = {event["action"] for event in torch.cuda.memory._snapshot()["device_traces"][0]}
        t.assertFalse(actions & set(skipped or ()))
        t.assertTrue(actions - set(skipped or ()))
        torch.cuda.memory._record_memory_history(None)


@row("TestCudaMallocAsync.test_memory_compile_regions")
def memory_compile_regions(t):
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(10, 10), nn.Linear(10, 10)

        def forward(self, x):
            x = self.one(x)
            x = x + 1 if x.sum() > 0 else x - 1
            return self.other(x)
    x, model = torch.randn(1, 10, device="cuda"), Broken().cuda()
    record(context="all", compile_context=True)
    torch.compile(model, backend="eager")(x)
    told = []
    for event in torch.cuda.memory._snapshot()["device_traces"][0]:
        name = event["compile_context"]
        if name != "N/A" and told[-1:] != [name]:
            told.append(name)
    # PyTorch's backend has a region of its own after the break; whichever has some, they are named.
    t.assertTrue(told)
    t.assertTrue(all(name.startswith("Torch-Compiled Region: ") for name in told), told)


@row("TestCudaMallocAsync.test_cpp_memory_snapshot_pickle", gpu="a C++ compiler and Python's headers",
     seconds=200)
def cpp_memory_snapshot_pickle(t):
    from torch.utils.cpp_extension import load_inline
    module = load_inline("reprise_rows_snapshot", """
#include <torch/csrc/cuda/memory_snapshot.h>
py::bytes taken() { return py::bytes(torch::cuda::_memory_snapshot_pickled()); }
void history(bool on, bool context)
{
    torch::cuda::_record_memory_history(on, context, 10, context, context);
}
""", functions=["taken", "history"])
    for context in (False, True):
        module.history(True, context)
        x = torch.rand(311, 411, device="cuda")
        found = pickle.loads(module.taken())
        live = [b for s in found["segments"] for b in s["blocks"]
                if b["state"] == "active_allocated" and b["requested_size"] == SIZE]
        t.assertTrue(live)
        if context:
            t.assertIn("::rand", str(live[-1]["frames"]))
        last = found["device_traces"][0][-1]
        t.assertEqual((last["action"], last["size"]), ("alloc", SIZE))
        module.history(False, False)
        del x


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1, self.relu, self.net2 = nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 10)

    def forward(self, x):
        a = self.net1(x)
        b = self.relu(a)
        c = self.net2(b)
        return c


@row("TestFXMemoryProfiler.test_fx_memory_profiler_augmentation", seconds=120)
def fx_memory_profiler_augmentation(t):
    import torch.fx.experimental._config as config
    lines = {"addmm": "a = self.net1(x)", "relu": "b = self.relu(a)", "addmm_1": "c = self.net2(b)"}
    with config.patch("enrich_profiler_metadata", True):
        model = Layers().cuda()
        record()
        torch.compile(model, backend="aot_eager", fullgraph=True)(torch.randn(10, 10, device="cuda"))
        found = torch.cuda.memory._snapshot(augment_with_fx_traces=True)
        torch.cuda.memory._record_memory_history(enabled=None, clear_history=True)
    frames = [frame for events in (*found["device_traces"], *(s["blocks"] for s in found["segments"]))
              for event in events for frame in event.get("frames", ()) if "fx_node_name" in frame]
    t.assertGreater(len(frames), 2)
    for frame in frames:
        for key in ("fx_node_op", "fx_node_target"):
            t.assertIn(key, frame)
        t.assertIn(lines[frame["fx_node_name"]], frame["fx_original_trace"])


# test_cuda_trace.py: each callback is told once, with the handle.

def traced(what):
    torch._C._activate_gpu_trace()
    told = mock.MagicMock()
    getattr(_gpu_trace, f"register_callback_for_{what}")(told)
    return told


def recorded():
    event = torch.cuda.Event()
    event.record()
    return event


@row("TestCudaTrace.test_event_creation_callback")
def event_creation_callback(t):
    told, event = traced("event_creation"), recorded()
    told.assert_called_once_with(event._as_parameter_.value)


@row("TestCudaTrace.test_event_deletion_callback")
def event_deletion_callback(t):
    told, event = traced("event_deletion"), recorded()
    handle = event._as_parameter_.value
    del event
    told.assert_called_once_with(handle)


@row("TestCudaTrace.test_event_record_callback")
def event_record_callback(t):
    told, event = traced("event_record"), recorded()
    told.assert_called_once_with(event._as_parameter_.value, torch.cuda.default_stream().cuda_stream)


@row("TestCudaTrace.test_event_wait_callback")
def event_wait_callback(t):
    told, event = traced("event_wait"), recorded()
    event.wait()
    told.assert_called_once_with(event._as_parameter_.value, torch.cuda.default_stream().cuda_stream)


@row("TestCudaTrace.test_memory_allocation_callback")
def memory_allocation_callback(t):
    told, x = traced("memory_allocation"), torch.empty(10, 4, device="cuda")
    told.assert_called_once_with(x.data_ptr())


@row("TestCudaTrace.test_memory_deallocation_callback")
def memory_deallocation_callback(t):
    told, x = traced("memory_deallocation"), torch.empty(3, 8, device="cuda")
    place = x.data_ptr()
    del x
    told.assert_called_once_with(place)


@row("TestCudaTrace.test_stream_creation_callback")
def stream_creation_callback(t):
    told = traced("stream_creation")
    torch.cuda.Stream()
    told.assert_called()


@row("TestCudaTrace.test_device_synchronization_callback")
def device_synchronization_callback(t):
    told = traced("device_synchronization")
    torch.cuda.synchronize()
    told.assert_called()


@row("TestCudaTrace.test_stream_synchronization_callback")
def stream_synchronization_callback(t):
    told, stream = traced("stream_synchronization"), torch.cuda.Stream()
    stream.synchronize()
    told.assert_called_once_with(stream.cuda_stream)


@row("TestCudaTrace.test_event_synchronization_callback")
def event_synchronization_callback(t):
    told, event = traced("event_synchronization"), recorded()
    event.synchronize()
    told.assert_called_once_with(event._as_parameter_.value)


@row("TestCudaTrace.test_memcpy_synchronization")
def memcpy_synchronization(t):
    told = traced("stream_synchronization")
    torch.rand(5, device="cuda").nonzero()
    told.assert_called_once_with(torch.cuda.default_stream().cuda_stream)


@row("TestCudaTrace.test_all_trace_callbacks_called")
def all_trace_callbacks_called(t):
    told, other = traced("memory_allocation"), mock.MagicMock()
    _gpu_trace.register_callback_for_memory_allocation(other)
    x = torch.empty(10, 4, device="cuda")
    told.assert_called_once_with(x.data_ptr())
    other.assert_called_once_with(x.data_ptr())
