# SPDX-License-Identifier: MIT
"""Hugging Face generate: with a static cache each decoding step replays a graph, for every sequence.

The weights are random, so nothing is downloaded: from_pretrained takes their place.

Run:      python examples/torch/generate.py
Expected: 4 generations with graphs equal eager's, and all decoding steps of the last 2 were replays
"""

import sys

import torch

import reprise

try:
    import transformers
except ImportError as error:
    print(f"skipped: transformers is not installed ({error})")
    sys.exit(77)

NEW = 24


def main():
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=1000, max_position_embeddings=256)).cuda().eval()
    prompts = [torch.randint(1000, (2, 16), device="cuda") for _ in range(4)]

    def generate(ids):
        # disable_compile: generate would compile the model itself for this cache.
        return model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, do_sample=False,
                              min_new_tokens=NEW, max_new_tokens=NEW, cache_implementation="static",
                              disable_compile=True)

    wanted = [generate(ids) for ids in prompts]
    forward = model.forward = reprise.graphed(model.forward, name="forward")
    equal, replays = True, []
    for ids, want in zip(prompts, wanted):
        equal &= torch.equal(generate(ids), want)
        replays.append(sum(graph["replays"] for graph in forward.shapes()))

    print(reprise.report())
    # A generation calls the model once for the prompt and once for each further token.
    steps = [later - earlier for earlier, later in zip(replays, replays[1:])]
    if not equal or min(steps[-2:]) < NEW - 1:
        sys.exit(f"not as expected: results equal: {equal}, replays {replays}, {forward.failures()}")
    print(f"{len(prompts)} generations with graphs equal eager's, and all decoding steps of the last 2 were replays")


if __name__ == "__main__":
    main()
