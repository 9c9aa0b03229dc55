#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Graphs of a GPT of Megatron-core's layers in its DistributedDataParallel: Megatron's own, PyTorch's and Reprise's.

usage: megatron.py OUT.json [--sets NAME,...] [--modes NAME,...] [--rounds N] [--budget S] [--limit S] [--tiny]
                            [--commit NAME]
       megatron.py --merge OUT.json FROM.json...

Sets:

    quick   8 layers of width 1024, bf16, no dropout, one microbatch
    pipe    the same layers as two chunks of the first of two pipeline stages, four microbatches, interleaved
    drop    dropout 0.1 from Megatron's tracker (use_cudagraphable_rng=True), two microbatches
    large   16 layers

Modes:

    eager, eager-again   the second tells whether eager repeats itself
    torch                torch.cuda.make_graphed_callables of the layers; it knows neither orders nor trackers
    manager              CudaGraphManager, cuda_graph_impl="local"
    manager-weak         the same, given what it takes from Transformer Engine to let go of memory
    manager-kept         the same, whose buffers are never given to another: it tells whether CudaGraphManager's losses
                         differ because the first layer's input lies in a buffer that backward passes write to, ahead
                         of that layer's own
    wrapper              FullCudaGraphWrapper
    layers[-install]     reprise.megatron.capture_layers
    iteration[-install]  reprise.megatron.full_iteration

Each mode of a set runs in a process of its own, in rounds whose order alternates. It trains some steps, begins
again, trains 20 steps whose losses are kept, and then takes times. OUT.json is written after each process. It has a
row for each set and mode, with medians over the rounds:

    step_ms, host_ms   a step that the device is idle before: until it is done, and until the call returns
    throughput_ms      a step where nobody waits in between
    memory_mib         device memory in use, the context's and libraries' too
    reserved_mib       of it what PyTorch's allocator has; peak_mib: most of that; allocated_peak_mib: most in tensors
    equal              losses of 20 steps and the weights behind them are those of the first eager run, to the bit;
                       equal_waiting: losses are, where the device is waited for behind each step
    differs_at         the first loss that differs; gradients_differ: parameters whose gradients of the first
                       step do; same_start: whether the weights were the same ahead of it
"""

import functools
import os
import sys
import time
from types import SimpleNamespace

import modes

sys.path = [p for p in sys.path if os.path.abspath(p) != modes.HERE]  # this file is no package

BASE = {"layers": 8, "hidden": 1024, "heads": 16, "sequence": 512, "batch": 2, "vocabulary": 32000, "dropout": 0.0,
        "microbatches": 1, "chunks": 1}
TINY = {"layers": 4, "hidden": 32, "heads": 4, "sequence": 8, "batch": 2, "vocabulary": 64}
SETS = {"quick": {}, "pipe": {"chunks": 2, "microbatches": 4}, "drop": {"dropout": 0.1, "microbatches": 2},
        "large": {"layers": 16}}
GRAPHS = ["manager", "manager-weak", "wrapper", "layers", "layers-install", "iteration", "iteration-install"]
MODES = {name: ["eager", "eager-again", *([] if name == "pipe" else ["torch"]), *GRAPHS,
                *(["manager-kept"] if name in ("quick", "pipe") else [])] for name in SETS}

WARMUP, STEPS, BATCHES = 6, 20, 4
WRAPPER_WARMUP = 2


# ---- In the process of one mode -----------------------------------------------------------------------------


class Stand:
    """What a mode is tried on: model, optimizer, data, and the function of the schedule."""

    def __init__(self, torch, mode, size):
        self.torch, self.mode, self.size = torch, mode, size
        self.graphs = dict  # tells of the graphs of ours
        begin_megatron(torch, size)
        self.config = config_of(torch, mode, size)
        self.seed(1234)
        self.chunks = [chunk_of(torch, self.config, size, which) for which in range(size.chunks)]
        self.named = {f"{which}.{name}": p for which, chunk in enumerate(self.chunks)
                      for name, p in chunk.module.module.named_parameters()}
        self.params = list(self.named.values())
        self.masters = [p.detach().float().clone() for p in self.params]
        for master, param in zip(self.masters, self.params):
            master.grad = param.main_grad
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-4, weight_decay=0.01, fused=True, capturable=True)
        self.began = [p.detach().clone() for p in self.params]
        self.data, self.turn = batches_of(torch, size), 0
        self.passes = self.schedule()

    def schedule(self):
        if self.size.chunks > 1:
            return functools.partial(interleaved, self.config)
        from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
        return get_forward_backward_func()

    def seed(self, value):
        """Of all generators, in place, as graphs know them."""
        from megatron.core.tensor_parallel.random import get_all_rng_states
        self.torch.manual_seed(value)
        for i, state in enumerate(get_all_rng_states().values()):
            state.manual_seed(value + 1 + i)

    def start_again(self):
        torch = self.torch
        with torch.no_grad():
            torch._foreach_copy_(self.params, self.began)
            torch._foreach_copy_(self.masters, self.began)
            for state in self.optimizer.state.values():
                for kept in state.values():
                    kept.zero_()
        self.turn = 0
        self.seed(4321)

    def forward_and_backward(self):
        """The losses of a step's microbatches."""
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        batches = self.data[self.turn % len(self.data)]
        self.turn += 1
        iterators = [iter(batches) for _ in self.chunks]
        found = self.passes(
            forward_step_func=forward_step, data_iterator=iterators if len(iterators) > 1 else iterators[0],
            model=self.chunks, num_microbatches=self.size.microbatches, seq_length=self.size.sequence,
            micro_batch_size=self.size.batch, forward_only=False)
        return [f["loss"] for f in found]

    def step(self):
        losses = self.forward_and_backward()
        self.optimizer.step()
        with self.torch.no_grad():
            self.torch._foreach_copy_(self.params, self.masters)
        return losses

    def layers(self):
        """The layers of each chunk, and where they stand."""
        return [gpt_of(chunk).decoder.layers for chunk in self.chunks]


def begin_megatron(torch, size):
    from megatron.core import jit, parallel_state
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    jit.disable_jit_fuser()  # compiling small functions takes minutes, and is not what is compared
    distributed = torch.distributed
    torch.cuda.set_device(0)
    distributed.init_process_group("nccl", rank=0, world_size=1, store=distributed.HashStore())
    distributed.all_reduce(torch.ones(1, device="cuda"))
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    init_num_microbatches_calculator(0, None, size.batch * size.microbatches, size.batch, 1)
    model_parallel_cuda_manual_seed(12, use_cudagraphable_rng=True)


def config_of(torch, mode, size):
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.transformer.transformer_config import TransformerConfig
    own = {"wrapper": {"cuda_graph_impl": "local", "cuda_graph_scope": ["full_iteration"]}}
    if mode.startswith("manager"):
        own[mode] = {"cuda_graph_impl": "local"}
    return TransformerConfig(
        num_layers=size.layers // size.chunks, hidden_size=size.hidden, num_attention_heads=size.heads,
        hidden_dropout=size.dropout, attention_dropout=size.dropout, bf16=True, params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16, bias_dropout_fusion=False, bias_activation_fusion=False,
        masked_softmax_fusion=False, gradient_accumulation_fusion=False, apply_rope_fusion=False,
        persist_layer_norm=False, cross_entropy_loss_fusion=False, finalize_model_grads_func=finalize_model_grads,
        **own.get(mode, {}))


def chunk_of(torch, config, size, which):
    """A chunk as get_model makes one: of the first stage, so the last chunk of several computes no loss."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.module import Float16Module
    gpt = GPTModel(config=config, transformer_layer_spec=get_gpt_layer_local_spec(), vocab_size=size.vocabulary,
                   max_sequence_length=size.sequence, position_embedding_type="rope", pre_process=which == 0,
                   post_process=size.chunks == 1, share_embeddings_and_output_weights=False).cuda()
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):  # a graph of a whole iteration needs hooks that name another stream
        parallel = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True),
                                           Float16Module(config, gpt))
    torch.cuda.current_stream().wait_stream(beside)
    return parallel.train()


def gpt_of(chunk):
    return chunk.module.module


def batches_of(torch, size):
    """Of each step, of each microbatch."""
    make = torch.Generator().manual_seed(7)
    where = torch.arange(size.sequence, device="cuda").expand(size.batch, -1).contiguous()

    def hidden(scale):
        values = torch.randn(size.sequence, size.batch, size.hidden, generator=make) * scale
        return values.bfloat16().cuda()

    def batch():
        tokens = torch.randint(size.vocabulary, (size.batch, size.sequence + 1), generator=make).cuda()
        found = {"tokens": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous(), "position_ids": where}
        if size.chunks > 1:  # what other stages send
            found.update(hidden=hidden(0.5), gradient_0=hidden(1e-2), gradient_1=hidden(1e-2))
        return found
    return [[batch() for _ in range(size.microbatches)] for _ in range(BATCHES)]


def forward_step(iterator, model):
    """Megatron's callback: the output of a microbatch, and the function of its loss."""
    batch, gpt = next(iterator), gpt_of(model)
    if gpt.post_process:
        out = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])

        def loss_of(out):
            loss = out.float().mean()
            return loss, {"loss": loss.detach()}
        return out, loss_of
    if not gpt.pre_process:
        gpt.set_input_tensor(batch["hidden"].detach().requires_grad_())
    gradient = batch["gradient_0" if gpt.pre_process else "gradient_1"]
    out = model(batch["tokens"], batch["position_ids"], None)

    def product_of(out):
        """A loss whose gradient is what the next stage would send."""
        loss = (out.float() * gradient.float()).sum()
        return loss, {"loss": loss.detach()}
    return out, product_of


def order_of(microbatches, chunks, stages=2):
    """The passes of the first stage as Megatron's interleaved schedule has them."""
    from megatron.core.pipeline_parallel.schedules import get_schedule_table
    from megatron.core.transformer.cuda_graphs import convert_schedule_table_to_order
    ahead = (stages - 1) * 2 + (chunks - 1) * stages
    return convert_schedule_table_to_order(ahead, chunks, get_schedule_table(microbatches, chunks, stages))


def interleaved(config, *, forward_step_func, data_iterator, model, num_microbatches, forward_only, **unused):
    """A schedule of Megatron's signature that plays the first of two stages, with nobody to send to."""
    waiting, losses = [[] for _ in model], []
    for number in order_of(num_microbatches, len(model)):
        which = abs(number) - 1
        if number > 0:
            out, loss_of = forward_step_func(data_iterator[which], model[which])
            loss, told = loss_of(out)
            waiting[which].append(loss)
            losses.append(told)
        elif not forward_only:
            waiting[which].pop(0).backward()
    config.finalize_model_grads_func(model, None)
    if config.cuda_graph_impl == "local" and not config.cuda_graph_scope:
        from megatron.core.transformer.cuda_graphs import create_cudagraphs
        create_cudagraphs()  # as Megatron's schedules do at their end
    return losses


# ---- Ways of making graphs ---------------------------------------------------------------------------------


def by_torch(stand):
    """PyTorch's takes tensors by position; Megatron calls layers by name."""
    torch, size = stand.torch, stand.size

    class Core(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, hidden, rotary):
            return self.layer(hidden_states=hidden, attention_mask=None, rotary_pos_emb=rotary)[0]

    class Named(torch.nn.Module):
        def __init__(self, core, number):
            super().__init__()
            self.core, self.layer_number = core, number

        def forward(self, hidden_states, rotary_pos_emb=None, **unused):
            return self.core(hidden_states, rotary_pos_emb), None

    gpt = gpt_of(stand.chunks[0])
    layers = gpt.decoder.layers
    samples = tuple((torch.zeros(size.sequence, size.batch, size.hidden, dtype=torch.bfloat16, device="cuda",
                                 requires_grad=True), gpt.rotary_pos_emb(size.sequence)) for _ in layers)
    made = torch.cuda.make_graphed_callables(tuple(map(Core, layers)), samples)
    gpt.decoder.layers = torch.nn.ModuleList(Named(core, layer.layer_number) for core, layer in zip(made, layers))


def by_manager(stand):
    """The model has it by its configuration. Of a pipeline it makes graphs for each microbatch, which it would see
    by the number of stages."""
    if stand.size.chunks > 1:
        for layers in stand.layers():
            for layer in layers:
                layer.cudagraph_manager.reuse_cudagraphs = False


def keep_buffers(stand):
    from megatron.core.transformer import cuda_graphs
    cuda_graphs.TensorReusePool.insert = lambda pool, tensor: None
    by_manager(stand)


def without_engine(torch):
    """Gives CudaGraphManager what it takes from Transformer Engine: tensors that do not own their memory, so that
    graphs may share it. Without, it warns that it needs more."""
    from megatron.core.transformer import cuda_graphs
    if cuda_graphs.HAVE_TE_GRAPHS:
        return

    def borrowed(tensor):
        storage = tensor.untyped_storage()
        same = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), tensor.device, storage.nbytes())
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            same, tensor.storage_offset(), tensor.shape, tensor.stride())

    class OfEngine:
        """No module is of Transformer Engine's."""

    cuda_graphs.make_weak_ref = borrowed
    cuda_graphs.TransformerEngineBaseModule = OfEngine
    cuda_graphs.FP8GlobalStateManager = SimpleNamespace(is_fp8_enabled=lambda: False)
    cuda_graphs.is_fp8_activation_recompute_enabled = lambda: False
    from megatron.core.extensions import transformer_engine
    transformer_engine.TECudaRNGStatesTracker = OfEngine
    cuda_graphs.HAVE_TE_GRAPHS = True


def by_wrapper(stand):
    from megatron.core.full_cuda_graph import FullCudaGraphWrapper
    stand.passes = FullCudaGraphWrapper(stand.passes, cuda_graph_warmup_steps=WRAPPER_WARMUP)


def by_layers(stand):
    import reprise.megatron
    graphs = reprise.megatron.capture_layers(stand.chunks, strict=True)

    def facts():
        found = graphs.layers()
        ways = [f["way"] for f in found]
        return {"ways": {way: ways.count(way) for way in ways}, "graphs": sum(f["graphs"] for f in found),
                "reasons": sorted({f["reason"] for f in found if f["reason"]})}
    stand.graphs = facts


def by_iteration(stand):
    import reprise.megatron
    made = reprise.megatron.full_iteration(stand.passes, strict=True)
    stand.passes = made

    def facts():
        shapes = [shape for one in made.graphs() for shape in one.shapes()]
        return {"graphs": len(shapes), "replays": sum(shape["replays"] for shape in shapes)}
    stand.graphs = facts


WAYS = {"torch": by_torch, "manager": by_manager, "manager-weak": by_manager, "manager-kept": keep_buffers,
        "wrapper": by_wrapper, "layers": by_layers, "layers-install": by_layers, "iteration": by_iteration,
        "iteration-install": by_iteration}


# ---- What is measured --------------------------------------------------------------------------------------


def measure(torch, mode, size, count):
    stand = Stand(torch, mode, size)
    result = {"parameters": sum(p.numel() for p in stand.params), "start": modes.checksum(torch, stand.params)}
    torch.cuda.synchronize()
    began = time.perf_counter()
    WAYS.get(mode, lambda _: None)(stand)
    for _ in range(WARMUP):
        stand.step()
    torch.cuda.synchronize()
    result["ready_s"] = round(time.perf_counter() - began, 3)
    stand.start_again()
    losses = [loss.detach().clone() for _ in range(STEPS) for loss in stand.step()]
    result["losses"] = [loss.item().hex() for loss in losses]
    result["weights"] = modes.checksum(torch, stand.params)
    result.update(modes.memory(torch))
    result.update(modes.times(torch, stand.step, count))
    stand.start_again()
    waited = []
    for _ in range(STEPS):
        waited += [loss.detach().clone() for loss in stand.step()]
        torch.cuda.synchronize()
    result["waited"] = [loss.item().hex() for loss in waited]
    stand.start_again()
    stand.forward_and_backward()
    torch.cuda.synchronize()
    result["gradients"] = {name: modes.checksum(torch, [p.main_grad]) for name, p in stand.named.items()}
    return {**result, **stand.graphs()}


def began(mode, torch):
    """Ahead of the first use of the GPU."""
    if mode.endswith("-install"):
        import reprise
        reprise.install()
    if mode == "manager-weak":
        without_engine(torch)


VERSIONS = ("import json, sys, torch, megatron.core as core; print(json.dumps({'python': sys.version.split()[0], "
            "'torch': torch.__version__, 'megatron-core': core.__version__}))")

if __name__ == "__main__":
    sizes = {name: {**BASE, **own} for name, own in SETS.items()}
    sys.exit(modes.main(modes.Bench(__file__, __doc__, sizes, TINY, MODES, began, measure, VERSIONS)))
