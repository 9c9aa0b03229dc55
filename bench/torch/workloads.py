# SPDX-License-Identifier: MIT
"""Models for the benchmarks, with random weights and inputs from a seed.

Everything is made on the device: filling it on the host would take longer than what is measured.
DEVICE is changed by tests that only look at shapes.
"""

import contextlib
import importlib

import torch

DEVICE = "cuda"


@contextlib.contextmanager
def on_device():
    """What modules make in here lies on the device."""
    with torch.device(DEVICE):
        yield


def preload(names):
    """Imports what workloads need ahead, so that each process that is forked has it already."""
    for name in names:
        module, _, member = name.partition(":")
        found = importlib.import_module(module)
        if member:
            getattr(found, member)  # transformers imports its models when they are first asked for


def randn(*shape):
    return torch.randn(*shape, device=DEVICE)


def whole_numbers(most, *shape):
    return torch.randint(0, most, shape, device=DEVICE)


def mlp(width, depth):
    layers = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width, device=DEVICE), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


class Member(torch.nn.Module):
    """A model that takes one tensor of token numbers and gives one member of its output."""

    def __init__(self, model, member, **options):
        super().__init__()
        self.model = model
        self.member = member
        self.options = options

    def forward(self, ids):
        return getattr(self.model(input_ids=ids, **self.options), self.member)


# ---- Inference: a model, and eight sets of arguments ----------------------------------------


def small_mlp():
    """Three small layers, one input, one output: what a call costs on the host."""
    return mlp(64, 3).eval(), [(randn(8, 64),) for _ in range(8)]


def bert():
    """12 layers of 768, one sequence of 64."""
    from transformers import BertConfig, BertModel
    with on_device():
        model = BertModel(BertConfig(num_hidden_layers=12, hidden_dropout_prob=0.0,
                                     attention_probs_dropout_prob=0.0)).half().eval()
    return Member(model, "last_hidden_state"), [(whole_numbers(30000, 1, 64),) for _ in range(8)]


def vit():
    """ViT-S/16, one image."""
    import timm
    with on_device():
        net = timm.create_model("vit_small_patch16_224").half().eval()
    return net, [(randn(1, 3, 224, 224).half(),) for _ in range(8)]


INFERENCE = {"mlp": small_mlp, "bert": bert, "vit": vit}


# ---- Many shapes ----------------------------------------------------------------------------


def forum_mlp():
    """Three layers of 1,024, and an input of any number of rows."""
    net = torch.nn.Sequential(
        torch.nn.Linear(1024, 1024, device=DEVICE), torch.nn.ReLU(),
        torch.nn.Linear(1024, 1024, device=DEVICE), torch.nn.ReLU(),
        torch.nn.Linear(1024, 1024, device=DEVICE)).eval()
    return net, lambda rows: randn(rows, 1024)


class Decoder:
    """A Llama's step by one token with a static cache, at any batch size up to the largest.

    step(ids, position) writes keys and values at the position and gives the logits: calling it again
    gives the same. All batch sizes write to the same cache, the small ones to a part of it.
    """

    def __init__(self, most, length=256, layers=16, hidden=512, vocabulary=32000):
        from transformers import LlamaConfig, LlamaForCausalLM
        config = LlamaConfig(
            hidden_size=hidden, intermediate_size=hidden * 11 // 4, num_hidden_layers=layers,
            num_attention_heads=hidden // 64, num_key_value_heads=hidden // 64,
            vocab_size=vocabulary, max_position_embeddings=length)
        with on_device():
            model = LlamaForCausalLM(config).half().eval()
        shape = (2, layers, most, hidden // 64, length, 64)
        kept = torch.randn(shape, device=DEVICE, dtype=torch.float16)
        caches = {rows: _shared_cache(config, kept[:, :, :rows]) for rows in range(1, most + 1)}
        places = torch.arange(length, device=DEVICE)

        class Step(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, ids, position):
                rows = ids.shape[0]
                cache = caches[rows]
                for layer in cache.layers:
                    layer.position = position
                mask = (places <= position).view(1, 1, 1, -1).expand(rows, 1, 1, -1)
                out = self.model(input_ids=ids, attention_mask=mask, past_key_values=cache,
                                 position_ids=position.view(1, 1), use_cache=True).logits
                for layer in cache.layers:
                    layer.position = None
                return out

        self.step = Step()
        self.vocabulary = vocabulary
        self.length = length

    def arguments(self, rows, position=100):
        return (whole_numbers(self.vocabulary, rows, 1),
                torch.full((1,), position, dtype=torch.int64, device=DEVICE))


def _shared_cache(config, kept):
    """A static cache of transformers over memory that others share: [2, layers, rows, heads,
    length, size]. It writes where it is told to, and counts nothing."""
    from transformers.cache_utils import StaticCache, StaticLayer

    class Layer(StaticLayer):
        def update(self, key_states, value_states, *_, **__):
            self.keys.index_copy_(2, self.position, key_states)
            self.values.index_copy_(2, self.position, value_states)
            return self.keys, self.values

    cache = StaticCache(config, max_cache_len=kept.shape[4])
    for index in range(len(cache.layers)):
        layer = cache.layers[index] = Layer(max_cache_len=kept.shape[4])
        layer.keys, layer.values = kept[0, index], kept[1, index]
        layer.is_initialized = True
    return cache


# ---- Training: a model, a function that makes a batch, and the loss -------------------------


def train_mlp():
    """Eight layers of 1,024, 64 rows."""
    return mlp(1024, 8), lambda: (randn(64, 1024), randn(64, 1024)), torch.nn.functional.mse_loss


def train_resnet50():
    """ResNet-50, 16 images of 128 x 128."""
    import timm
    with on_device():
        net = timm.create_model("resnet50", num_classes=100)
    return net, lambda: (randn(16, 3, 128, 128), whole_numbers(100, 16)), \
        torch.nn.functional.cross_entropy


def train_gpt2():
    """GPT-2 of 6 layers of 512, 8 sequences of 128, dropout on."""
    from transformers import GPT2Config, GPT2LMHeadModel
    with on_device():
        model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=512, n_head=8, vocab_size=8000,
                                           n_positions=128, use_cache=False, bos_token_id=0,
                                           eos_token_id=0))

    def loss(logits, ids):
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    def batch():
        ids = whole_numbers(8000, 8, 128)
        return ids, ids
    return Member(model, "logits", use_cache=False), batch, loss


TRAINING = {"mlp": train_mlp, "resnet50": train_resnet50, "gpt2": train_gpt2}
