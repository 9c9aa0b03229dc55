#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models of torchvision, timm and transformers, built small and random, captured and replayed: whether a
call is served by a graph, and where all kernels of a model compute, that it gives what the model gives
on the CPU. --install: with Reprise's allocator. Skipped where the packages are missing."""

import importlib
import sys
import unittest
import warnings

import torch

import reprise

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()

IMAGE = 64


def image(*_):
    return torch.randn(2, 3, IMAGE, IMAGE)


def tokens(*_):
    return torch.randint(0, 99, (2, 16))


def vision(name, **options):
    def build():
        return getattr(importlib.import_module("torchvision.models"), name)(weights=None, **options)
    return "torchvision", build, image


def timm(name, **options):
    def build():
        return importlib.import_module("timm").create_model(name, pretrained=False, **options)
    return "timm", build, image


def language(config, model, **options):
    """A transformer of two small layers; it is called with tokens and gives its first tensor."""
    def build():
        package = importlib.import_module("transformers")
        small = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                 "intermediate_size": 64, "max_position_embeddings": 64, **options}
        net = getattr(package, model)._from_config(getattr(package, config)(**small),
                                                   attn_implementation="eager")
        return First(net)
    return "transformers", build, tokens


class First(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, ids):
        return self.net(ids, use_cache=False, return_dict=False)[0] if self.takes_cache() else \
            self.net(ids, return_dict=False)[0]

    def takes_cache(self):
        return "use_cache" in type(self.net).forward.__code__.co_varnames


MODELS = {
    "alexnet": vision("alexnet"),
    "vgg11": vision("vgg11"),
    "resnet18": vision("resnet18"),
    "resnext50": vision("resnext50_32x4d"),
    "densenet121": vision("densenet121"),
    "squeezenet": vision("squeezenet1_1"),
    "shufflenet": vision("shufflenet_v2_x0_5"),
    "mobilenet_v2": vision("mobilenet_v2"),
    "mobilenet_v3": vision("mobilenet_v3_small"),
    "mnasnet": vision("mnasnet0_5"),
    "efficientnet": vision("efficientnet_b0"),
    "googlenet": vision("googlenet", init_weights=False),
    "regnet": vision("regnet_y_400mf"),
    "vit_b": vision("vit_b_16", image_size=IMAGE),
    "swin": vision("swin_t"),
    "timm_resnet10": timm("resnet10t"),
    "timm_convnext": timm("convnext_atto"),
    "timm_vit": timm("vit_tiny_patch16_224", img_size=IMAGE),
    "timm_mixer": timm("mixer_s32_224", img_size=IMAGE),
    "timm_deit": timm("deit_tiny_patch16_224", img_size=IMAGE),
    "timm_ghostnet": timm("ghostnet_050"),
    "timm_poolformer": timm("poolformer_s12"),
    "bert": language("BertConfig", "BertModel"),
    "roberta": language("RobertaConfig", "RobertaModel"),
    "distilbert": language("DistilBertConfig", "DistilBertModel", dim=32, n_layers=2, n_heads=4,
                           hidden_dim=64),
    "albert": language("AlbertConfig", "AlbertModel", embedding_size=16),
    "gpt2": language("GPT2Config", "GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=4,
                     bos_token_id=0, eos_token_id=0),
    "opt": language("OPTConfig", "OPTForCausalLM", ffn_dim=64, word_embed_proj_dim=32),
    "llama": language("LlamaConfig", "LlamaForCausalLM"),
    "mistral": language("MistralConfig", "MistralForCausalLM", num_key_value_heads=2),
    "qwen2": language("Qwen2Config", "Qwen2ForCausalLM", num_key_value_heads=2),
    "gpt_neox": language("GPTNeoXConfig", "GPTNeoXForCausalLM"),
}
# Whose kernels all compute here, so that their values are the CPU's.
COMPUTED = {
    "albert", "bert", "distilbert", "googlenet", "gpt2", "gpt_neox", "llama", "opt", "qwen2",
    "regnet", "resnet18", "resnext50", "roberta", "squeezenet", "swin", "timm_convnext",
    "timm_mixer", "vit_b"
}


class Models(unittest.TestCase):
    def serve(self, name):
        package, build, make = MODELS[name]
        try:
            importlib.import_module(package)
        except ImportError:
            self.skipTest(f"there is no {package}")
        torch.manual_seed(0)
        net = build().eval()
        inputs = [make() for _ in range(3)]
        with torch.no_grad():
            want = [net(x) for x in inputs]
            made = reprise.graphed(net.cuda(), strict=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                shown = [made(x.cuda()).cpu() for x in inputs]
        self.assertEqual(len(made.shapes()), 1)
        for one, other in zip(shown, want):
            self.assertEqual(one.shape, other.shape)
            if name in COMPUTED:
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def _add(name):
    setattr(Models, f"test_{name}", lambda self: self.serve(name))


for _name in MODELS:
    _add(_name)

if __name__ == "__main__":
    unittest.main(verbosity=2)
