# SPDX-License-Identifier: MIT
"""A GPT of Megatron-core's layers: graphs of layers, or of whole iterations.

By layers it takes the place of cuda_graph_impl="local" (CudaGraphManager), whole that of FullCudaGraphWrapper.
Build the model with cuda_graph_impl="none", which is Megatron's default.

Run:      python examples/torch/megatron_gpt.py
          python examples/torch/megatron_gpt.py --full-iteration
Expected: Megatron: 6 steps of 2 microbatches by graphs gave eager's losses to the bit
"""

import os
import sys

import torch
from torch import distributed

import reprise
import reprise.megatron

try:
    from megatron.core import jit, parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
    from megatron.core.tensor_parallel.random import get_all_rng_states, model_parallel_cuda_manual_seed
    from megatron.core.transformer.transformer_config import TransformerConfig
except ImportError as error:
    print(f"skipped: megatron-core is not installed ({error})")
    sys.exit(77)

reprise.install()

STEPS, MICROBATCHES, BATCH, LENGTH, VOCAB, LAYERS = 6, 2, 2, 16, 64, 2


def seed():
    """Megatron's generators too, which dropout draws from."""
    torch.manual_seed(21)
    for number, state in enumerate(get_all_rng_states().values()):
        state.manual_seed(22 + number)


def build():
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=64, num_attention_heads=4, hidden_dropout=0.1, attention_dropout=0.1,
        bias_dropout_fusion=False, bias_activation_fusion=False, masked_softmax_fusion=False,
        gradient_accumulation_fusion=False, apply_rope_fusion=False, persist_layer_norm=False,
        cross_entropy_loss_fusion=False)
    seed()
    gpt = GPTModel(config=config, transformer_layer_spec=get_gpt_layer_local_spec(), vocab_size=VOCAB,
                   max_sequence_length=LENGTH, position_embedding_type="rope").cuda()
    with torch.cuda.stream(torch.cuda.Stream()):  # so a whole iteration can be captured with its hooks
        model = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True), gpt)
    torch.cuda.synchronize()
    return model.train()


def forward_step(iterator, model):
    tokens = next(iterator)["tokens"]
    places = torch.arange(LENGTH, device="cuda").expand(BATCH, -1).contiguous()
    out = model(tokens[:, :-1].contiguous(), places, None, labels=tokens[:, 1:].contiguous())

    def loss_of(out):
        loss = out.float().mean()
        return loss, {"loss": loss.detach()}
    return out, loss_of


def train(model, forward_backward):
    """The loss of each microbatch."""
    seed()
    losses = []
    for _ in range(STEPS):
        model.zero_grad_buffer()
        data = iter([{"tokens": torch.randint(VOCAB, (BATCH, LENGTH + 1), device="cuda")}
                     for _ in range(MICROBATCHES)])
        losses += forward_backward(
            forward_step_func=forward_step, data_iterator=data, model=[model], num_microbatches=MICROBATCHES,
            seq_length=LENGTH, micro_batch_size=BATCH, forward_only=False)
        with torch.no_grad():
            for param in model.parameters():
                param.add_(param.main_grad.to(param.dtype), alpha=-0.1)
    return torch.stack([found["loss"] for found in losses])


def main():
    jit.disable_jit_fuser()  # small functions need no compiler here
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    init_num_microbatches_calculator(0, None, MICROBATCHES * BATCH, BATCH, 1)
    model_parallel_cuda_manual_seed(12, use_cudagraphable_rng=True)
    try:
        eager = get_forward_backward_func()
        wanted = train(build(), eager)
        model = build()
        if "--full-iteration" in sys.argv:
            function = reprise.megatron.full_iteration(eager)
            losses = train(model, function)
            used = [len(graphed.shapes()) for graphed in function.graphs()] == [1]
        else:
            graphs = reprise.megatron.capture_layers([model])
            losses = train(model, eager)
            used = [layer["way"] for layer in graphs.layers()] == ["graph"] * LAYERS
        print(reprise.report())
    finally:
        torch.cuda.synchronize()
        distributed.destroy_process_group()
    if not used or not torch.equal(losses, wanted):
        sys.exit(f"not as expected: graphs used: {used}, losses equal: {torch.equal(losses, wanted)}")
    print(f"Megatron: {STEPS} steps of {MICROBATCHES} microbatches by graphs gave eager's losses to the bit")


if __name__ == "__main__":
    main()
