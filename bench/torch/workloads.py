# SPDX-License-Identifier: MIT
"""Models for the benchmarks, with random weights and inputs from a seed."""

import torch


def mlp(width, depth, device="cuda"):
    layers = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers).to(device)


def small_mlp():
    """Three small layers, one input, one output: what a call costs on the host."""
    net = mlp(64, 3).eval()
    return net, [(torch.randn(8, 64, device="cuda"),) for _ in range(8)]


def forum_mlp():
    net = torch.nn.Sequential(
        torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024),
        torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda().eval()
    return net, lambda size: torch.randn(size, 1024, device="cuda")


def bert():
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig(num_hidden_layers=12, hidden_dropout_prob=0.0,
                                 attention_probs_dropout_prob=0.0)).cuda().half().eval()

    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids).last_hidden_state
    return Last(), [(torch.randint(0, 30000, (1, 64), device="cuda"),) for _ in range(8)]


def vit():
    import timm
    net = timm.create_model("vit_small_patch16_224").cuda().half().eval()
    return net, [(torch.randn(1, 3, 224, 224, device="cuda").half(),) for _ in range(8)]


def llama():
    """A prefill of 32 tokens through 16 layers."""
    from transformers import LlamaConfig, LlamaForCausalLM
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=512, intermediate_size=1408, num_hidden_layers=16, num_attention_heads=8,
        num_key_value_heads=8, vocab_size=32000)).cuda().half().eval()

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids, use_cache=False).logits
    return Logits(), [(torch.randint(0, 32000, (1, 32), device="cuda"),) for _ in range(8)]


INFERENCE = {"mlp": small_mlp, "bert": bert, "vit": vit, "llama": llama}


def train_mlp():
    net = mlp(1024, 8)
    return net, lambda: (torch.randn(64, 1024, device="cuda"),
                         torch.randn(64, 1024, device="cuda")), torch.nn.functional.mse_loss


def train_resnet50():
    import timm
    net = timm.create_model("resnet50", num_classes=100).cuda()
    return net, lambda: (torch.randn(16, 3, 128, 128, device="cuda"),
                         torch.randint(0, 100, (16,), device="cuda")), \
        torch.nn.functional.cross_entropy


def train_gpt2():
    """With dropout on."""
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=512, n_head=8, vocab_size=8000,
                                       n_positions=128, use_cache=False)).cuda()

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(input_ids=ids, use_cache=False).logits

    def loss(logits, ids):
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    def batch():
        ids = torch.randint(0, 8000, (8, 128), device="cuda")
        return ids, ids
    return Logits(), batch, loss


TRAINING = {"mlp": train_mlp, "resnet50": train_resnet50, "gpt2": train_gpt2}
