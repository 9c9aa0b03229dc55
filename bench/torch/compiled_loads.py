# SPDX-License-Identifier: MIT
"""Workloads under torch.compile, in a fixed order: kinds that reports of graphs under a compiler name, then
models of TorchBench in alphabetical order, as far as transformers and torchvision have them with random
weights. A third of the latter is GPU-bound by its batch. `_t`: a training step; others are inference."""

import torch

LOADS = {}  # by name: makes (function, arguments by seed, trains) from "is it quick?"


def load(name):
    def keep(build):
        LOADS[name] = build
        return build
    return keep


def draw(seed, *shape):
    generator = torch.Generator(device="cpu").manual_seed(seed)
    return torch.randn(*shape, generator=generator).cuda()


def tokens(seed, *shape, most=1000):
    generator = torch.Generator(device="cpu").manual_seed(seed)
    return torch.randint(5, most, shape, generator=generator).cuda()


def step_of(net, loss_of):
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)

    def step(*args):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(net, *args)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


SMALL = {"num_hidden_layers": 2}


def language(name, kind, config, batch, length, small=None, train=False, decodes=False, **options):
    """A model of transformers; small: what of its configuration is changed for a quick run."""
    def build(quick):
        import transformers
        made = getattr(transformers, config)(**{**options, **((SMALL if small is None else small) if quick
                                                              else {})})
        made.use_cache = False
        net = getattr(transformers, kind)(made).cuda().train(train)
        rows, columns = (2, min(length, 64)) if quick else (batch, length)
        if train:
            call = step_of(net, lambda net, ids: net(input_ids=ids, labels=ids).loss)
        elif decodes:
            def call(ids):
                return net(input_ids=ids, decoder_input_ids=ids).logits
        else:
            def call(ids):
                return net(input_ids=ids)[0]
        return call, lambda seed: (tokens(seed, rows, columns),), train
    LOADS[name] = build


def pictures(name, kind, batch, train=False):
    def build(quick):
        import torchvision
        net = getattr(torchvision.models, kind)(weights=None).cuda().train(train)
        shape = (2, 3, 64, 64) if quick else (batch, 3, 224, 224)
        call = step_of(net, lambda net, x: net(x).square().mean()) if train else net
        return call, lambda seed: (draw(seed, *shape),), train
    LOADS[name] = build


LAYERS = {"encoder_layers": 2, "decoder_layers": 2}
language("xlnet", "XLNetLMHeadModel", "XLNetConfig", 1, 128, small={"n_layer": 2}, n_layer=12)
language("mobilebert", "MobileBertModel", "MobileBertConfig", 32, 128)
language("blenderbot_t", "BlenderbotSmallForConditionalGeneration", "BlenderbotSmallConfig", 16, 64,
         small=LAYERS, train=True)
language("bert", "BertForMaskedLM", "BertConfig", 8, 128, num_hidden_layers=6)
language("t5_small", "T5ForConditionalGeneration", "T5Config", 4, 64, small={"num_layers": 2}, decodes=True)
language("mt5", "MT5ForConditionalGeneration", "MT5Config", 4, 64, small={"num_layers": 2}, decodes=True)
language("distilgpt2_t", "GPT2LMHeadModel", "GPT2Config", 8, 128, small={"n_layer": 2}, train=True, n_layer=6)
pictures("densenet", "densenet121", 64)
pictures("alexnet", "alexnet", 2)


@load("lcnet")
def _(quick):
    import timm
    net = timm.create_model("lcnet_050").cuda().eval()
    shape = (2, 3, 64, 64) if quick else (256, 3, 224, 224)
    return net, lambda seed: (draw(seed, *shape),), False


@load("recommender")
def _(quick):
    items, nn = 1000 if quick else 197951, torch.nn
    sizes, layers = (items, 512, 512, 1024, 512, 512, items), []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.SELU()]
    net = nn.Sequential(*layers).cuda().eval()
    return net, lambda seed: (draw(seed, 4 if quick else 1024, items),), False


@load("dcgan")
def _(quick):
    nn, layers = torch.nn, []
    for a, b, stride, padding in ((100, 512, 1, 0), (512, 256, 2, 1), (256, 128, 2, 1), (128, 64, 2, 1)):
        layers += [nn.ConvTranspose2d(a, b, 4, stride, padding, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    net = nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).cuda().eval()
    return net, lambda seed: (draw(seed, 2 if quick else 32, 100, 1, 1),), False


@load("elementwise")
def _(quick):
    def fn(s, t, p):
        r = s * 0.7 + t * t * 0.01 - p * 0.002
        for k in range(12):
            r = r * 0.99 + s * t * 1e-3 * k + torch.sqrt(s.abs() + k) * p
        return r
    return fn, lambda seed: tuple(draw(seed + i, 4096 if quick else 1 << 20) for i in range(3)), False


@load("cpu_scalar")
def _(quick):
    """A number on the CPU among the arguments."""
    shape = (16, 16, 8) if quick else (104, 104, 26)

    def fn(a, t, p, gravity):
        k = 19652.0 + t * (148.4 + t * (-2.33 + t * 1.36e-2)) + p * (3.24 + t * 1.4e-3)
        density = 999.84 + t * (6.79e-2 - 9.1e-3 * t) + a.abs().sqrt() * a
        return density / (1.0 - p / k) * gravity
    return fn, lambda seed: (*(draw(seed + i, *shape) for i in range(3)), torch.tensor(9.81)), False


@load("lengths_on_cpu")
def _(quick):
    """A transformer for speech whose lengths come on the CPU."""
    width, depth, frames = (64, 1, 40) if quick else (320, 4, 200)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(width, 4, width * 4, batch_first=True, dropout=0.0)
            self.front = torch.nn.Linear(80, width)
            self.encode = torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

        def forward(self, x, lengths):
            pad = torch.arange(x.shape[1], device=x.device)[None] >= lengths.to(x.device)[:, None]
            return self.encode(self.front(x), src_key_padding_mask=pad)
    net = Net().cuda().eval()
    return net, lambda seed: (draw(seed, 4, frames, 80), torch.tensor([frames - 7 * k for k in range(4)])), False


@load("detection")
def _(quick):
    import torchvision
    size = 64 if quick else 256
    net = torchvision.models.detection.maskrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=5, min_size=size, max_size=size).cuda().eval()
    return (lambda x: net([x])[0]["boxes"]), lambda seed: (draw(seed, 3, size, size).sigmoid(),), False


KINDS = tuple(LOADS)

# TorchBench's, in alphabetical order, but for those above.
language("albert", "AlbertForMaskedLM", "AlbertConfig", 16, 512, hidden_size=768, intermediate_size=3072,
         num_attention_heads=12)  # GPU-bound
language("bart_t", "BartForConditionalGeneration", "BartConfig", 4, 256, small=LAYERS, train=True)  # GPU-bound
language("bert_large", "BertForMaskedLM", "BertConfig", 16, 512, hidden_size=1024, num_hidden_layers=24,
         num_attention_heads=16, intermediate_size=4096)  # GPU-bound
language("bigbird", "BigBirdForMaskedLM", "BigBirdConfig", 2, 1024)
language("distilbert", "DistilBertForMaskedLM", "DistilBertConfig", 8, 128, small={"n_layers": 2})
language("gpt2", "GPT2LMHeadModel", "GPT2Config", 4, 256, small={"n_layer": 2})
language("longformer", "LongformerForMaskedLM", "LongformerConfig", 2, 1024, attention_window=512)
language("roberta", "RobertaForMaskedLM", "RobertaConfig", 8, 128)
pictures("mnasnet1_0", "mnasnet1_0", 32)
pictures("mobilenet_v2", "mobilenet_v2", 96)  # GPU-bound
pictures("mobilenet_v3_large", "mobilenet_v3_large", 32)
pictures("resnet152", "resnet152", 64)  # GPU-bound
pictures("resnet18_t", "resnet18", 16, train=True)
pictures("resnet50", "resnet50", 32)


def made(name, quick):
    torch.manual_seed(0)
    return LOADS[name](quick)
