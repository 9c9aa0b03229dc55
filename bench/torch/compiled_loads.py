# SPDX-License-Identifier: MIT
"""Workloads under torch.compile, in a fixed order. `_t`: a training step; others are inference.

    FIRST    15 kinds that reports of graphs under a compiler name, and the project was first measured by
    GRACE    four more of that table: a generator of pictures, a small GPT's training, mT5, an ocean's energy
    BENCH    ten of TorchBench in alphabetical order of its names: all from hf_Albert on that transformers has
             and that are not above (hf_Bert, hf_T5), with random weights

GRACE and BENCH were fixed ahead of the first run of any of them here; GPU_BOUND are those of them whose batch
keeps the GPU busy in eager calls, 5 of 14. A list that is run again in part keeps its order."""

import torch

LOADS = {}  # by name: makes (function, arguments by seed, trains) from "is it quick?"


def load(name):
    def keep(build):
        LOADS[name] = build
        return build
    return keep


def rows_of(many, few, quick):
    """A function that tells the rows of a batch: those asked for, or else the workload's own."""
    own = few if quick else many
    return lambda rows: own if rows is None else rows


def draw(seed, *shape):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cuda")


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
        less = {**(SMALL if small is None else small), "vocab_size": 1000} if quick else {}
        made = getattr(transformers, config)(**{**options, **less})
        made.use_cache = False
        net = getattr(transformers, kind)(made).cuda().train(train)
        rows, columns = rows_of(batch, 2, quick), min(length, 64) if quick else length
        if train:
            call = step_of(net, lambda net, ids: net(input_ids=ids, labels=ids).loss)
        elif decodes:
            def call(ids):
                return net(input_ids=ids, decoder_input_ids=ids).logits
        else:
            def call(ids):
                return net(input_ids=ids)[0]
        return call, lambda seed, n=None: (tokens(seed, rows(n), columns),), train
    LOADS[name] = build


def pictures(name, kind, batch, train=False):
    def build(quick):
        import torchvision
        net = getattr(torchvision.models, kind)(weights=None).cuda().train(train)
        rows, side = rows_of(batch, 2, quick), 64 if quick else 224
        call = step_of(net, lambda net, x: net(x).square().mean()) if train else net
        return call, lambda seed, n=None: (draw(seed, rows(n), 3, side, side),), train
    LOADS[name] = build


LAYERS = {"encoder_layers": 2, "decoder_layers": 2}


# ---- FIRST ----------------------------------------------------------------------------------------------

language("xlnet", "XLNetLMHeadModel", "XLNetConfig", 1, 128, small={"n_layer": 2}, n_layer=12)
language("mobilebert", "MobileBertModel", "MobileBertConfig", 32, 128)
language("blenderbot_t", "BlenderbotSmallForConditionalGeneration", "BlenderbotSmallConfig", 16, 64,
         small=LAYERS, train=True)
language("bert", "BertForMaskedLM", "BertConfig", 8, 128, num_hidden_layers=6)
language("t5_small", "T5ForConditionalGeneration", "T5Config", 4, 64, small={"num_layers": 2}, decodes=True)


@load("lcnet")
def _(quick):
    import timm
    net = timm.create_model("lcnet_050").cuda().eval()
    rows, side = rows_of(256, 2, quick), 64 if quick else 224
    return net, lambda seed, n=None: (draw(seed, rows(n), 3, side, side),), False


pictures("densenet", "densenet121", 64)
pictures("alexnet", "alexnet", 2)


@load("recommender")
def _(quick):
    items, nn = 1000 if quick else 197951, torch.nn
    sizes, layers = (items, 512, 512, 1024, 512, 512, items), []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.SELU()]
    net, rows = nn.Sequential(*layers).cuda().eval(), rows_of(1024, 4, quick)
    return net, lambda seed, n=None: (draw(seed, rows(n), items),), False


@load("elementwise")
def _(quick):
    def fn(s, t, p):
        r = s * 0.7 + t * t * 0.01 - p * 0.002
        for k in range(12):
            r = r * 0.99 + s * t * 1e-3 * k + torch.sqrt(s.abs() + k) * p
        return r
    return fn, lambda seed: tuple(draw(seed + i, 4096 if quick else 1 << 20) for i in range(3)), False


def ocean(quick):
    return (16, 16, 8) if quick else (104, 104, 26)


@load("cpu_scalar")
def _(quick):
    """An equation of state of sea water, with a number on the CPU among the arguments."""
    shape = ocean(quick)

    def polynomial(x, *factors):
        result = factors[-1]
        for factor in factors[-2::-1]:
            result = factor + x * result
        return result

    def fn(salt, heat, depth, gravity):
        density = polynomial(heat, 999.84, 6.79e-2, -9.1e-3, 1e-4, -1.12e-6) + salt * polynomial(
            heat, 0.8245, -4.09e-3, 7.64e-5) + salt.sqrt() * salt * polynomial(heat, -5.72e-3, 1.02e-4)
        stiffness = polynomial(heat, 19652.0, 148.4, -2.33, 1.36e-2) + depth * polynomial(heat, 3.24, 1.4e-3)
        density = density / (1.0 - depth / stiffness)
        return density * gravity, density
    return fn, lambda seed: (*(draw(seed + i, *shape).abs() for i in range(3)), torch.tensor(9.81)), False


@load("detection")
def _(quick):
    import torchvision
    size = 64 if quick else 256
    net = torchvision.models.detection.maskrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=5, min_size=size, max_size=size).cuda().eval()
    return (lambda x: net([x])[0]["boxes"]), lambda seed: (draw(seed, 3, size, size).sigmoid(),), False


@load("dlrm")
def _(quick):
    """Clicks: bags of categories beside numbers, and products of each two of their vectors."""
    nn, width, bags, items = torch.nn, 64, 8, 100 if quick else 10000

    def layers(*sizes):
        return nn.Sequential(*(layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU())))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(items, width, mode="sum") for _ in range(bags))
            self.numbers = layers(13, 512, 256, width)
            self.last = nn.Sequential(layers(width + bags * (bags + 1) // 2, 512, 256), nn.Linear(256, 1))
            self.register_buffer("pairs", torch.tril_indices(bags + 1, bags + 1, -1))

        def forward(self, numbers, chosen):
            x = self.numbers(numbers)
            vectors = torch.stack([x, *(table(chosen[:, i]) for i, table in enumerate(self.tables))], dim=1)
            products = vectors @ vectors.transpose(1, 2)
            return self.last(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], dim=1)).sigmoid()
    net, rows = Net().cuda().eval(), rows_of(512, 4, quick)
    return net, lambda seed, n=None: (draw(seed, rows(n), 13), tokens(seed + 1, rows(n), bags, 4, most=items)), False


@load("speech")
def _(quick):
    """A transformer for speech: lengths come on the CPU, and a mask is made there."""
    nn, (width, depth, frames, letters) = torch.nn, (64, 1, 40, 100) if quick else (320, 4, 200, 2000)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            like = {"d_model": width, "nhead": 4, "dim_feedforward": width * 4, "batch_first": True, "dropout": 0.0}
            self.front, self.embed, self.last = nn.Linear(80, width), nn.Embedding(letters, width), nn.Linear(
                width, letters)
            self.hear = nn.ModuleList(nn.TransformerEncoderLayer(**like) for _ in range(depth))
            self.write = nn.ModuleList(nn.TransformerDecoderLayer(**like) for _ in range(depth))

        def forward(self, sound, lengths, text):
            pad = torch.arange(sound.shape[1], device=sound.device)[None] >= lengths.to(sound.device)[:, None]
            later = torch.ones(text.shape[1], text.shape[1], dtype=torch.bool).triu(1).to(sound.device)
            heard, written = self.front(sound), self.embed(text)
            for layer in self.hear:
                heard = layer(heard, src_key_padding_mask=pad)
            for layer in self.write:
                written = layer(written, heard, tgt_mask=later, memory_key_padding_mask=pad)
            return self.last(written)
    net = Net().cuda().eval()

    def make(seed):
        lengths = torch.tensor([frames - 7 * k for k in range(4)])
        return draw(seed, 4, frames, 80), lengths, tokens(seed, 4, 22, most=letters)
    return net, make, False


@load("clip")
def _(quick):
    """Pictures beside texts, in two towers; the scale of their products stays on the CPU."""
    nn, (width, depth) = torch.nn, (48, 1) if quick else (384, 6)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            like = {"d_model": width, "nhead": 6, "dim_feedforward": width * 4, "batch_first": True, "dropout": 0.0}
            self.patches, self.embed = nn.Conv2d(3, width, 32, 32), nn.Embedding(8192, width)
            self.see, self.read = (nn.ModuleList(nn.TransformerEncoderLayer(**like) for _ in range(depth))
                                   for _ in range(2))
            self.scale = torch.tensor(2.6592)  # no buffer, so cuda() leaves it

        def forward(self, picture, text):
            seen, read = self.patches(picture).flatten(2).transpose(1, 2), self.embed(text)
            for layer in self.see:
                seen = layer(seen)
            for layer in self.read:
                read = layer(read)
            normal = torch.nn.functional.normalize
            return normal(seen.mean(1), dim=-1) @ normal(read.mean(1), dim=-1).T * self.scale.exp()
    net, rows = Net().cuda().eval(), rows_of(8, 2, quick)
    return net, lambda seed, n=None: (draw(seed, rows(n), 3, 224, 224), tokens(seed + 1, rows(n), 32)), False


FIRST = tuple(LOADS)


# ---- GRACE ----------------------------------------------------------------------------------------------

@load("dcgan")
def _(quick):
    nn, layers = torch.nn, []
    for a, b, stride, padding in ((100, 512, 1, 0), (512, 256, 2, 1), (256, 128, 2, 1), (128, 64, 2, 1)):
        layers += [nn.ConvTranspose2d(a, b, 4, stride, padding, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    net, rows = nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).cuda().eval(), rows_of(
        32, 2, quick)
    return net, lambda seed, n=None: (draw(seed, rows(n), 100, 1, 1),), False


language("distilgpt2_t", "GPT2LMHeadModel", "GPT2Config", 8, 128, small={"n_layer": 2}, train=True, n_layer=6)
language("mt5", "MT5ForConditionalGeneration", "MT5Config", 4, 64, small={"num_layers": 2}, decodes=True)


@load("energy")
def _(quick):
    """Turbulence of an ocean, mixed over the depth: a system of three diagonals, solved level by level. The
    length of a step is a number on the CPU."""
    shape = ocean(quick)
    levels = shape[-1]

    def fn(energy, speed, mixing, step):
        shear = torch.zeros_like(speed)
        shear[..., 1:] = (speed[..., 1:] - speed[..., :-1]).square()
        across = step * 0.5 * (mixing[..., 1:] + mixing[..., :-1])
        loss = 0.7 * step * energy.clamp(min=1e-8).sqrt()
        right = energy + step * mixing * shear
        above, below = [], []
        for k in range(levels):
            up = across[..., k - 1] if k else torch.zeros_like(step)
            down = across[..., k] if k < levels - 1 else torch.zeros_like(step)
            pivot = 1.0 + loss[..., k] + up + down
            if k:
                pivot, value = pivot - up * above[-1], right[..., k] + up * below[-1]
            else:
                value = right[..., k]
            above.append(down / pivot)
            below.append(value / pivot)
        solved = [below[-1]]
        for k in range(levels - 2, -1, -1):
            solved.append(below[k] + above[k] * solved[-1])
        return torch.stack(solved[::-1], dim=-1), shear
    return fn, lambda seed: (*(draw(seed + i, *shape).abs() for i in range(3)), torch.tensor(0.01)), False


# ---- BENCH ----------------------------------------------------------------------------------------------

language("albert", "AlbertForMaskedLM", "AlbertConfig", 16, 512, hidden_size=768, intermediate_size=3072,
         num_attention_heads=12)
language("bart_t", "BartForConditionalGeneration", "BartConfig", 4, 512, small=LAYERS, train=True)
language("bert_large", "BertForMaskedLM", "BertConfig", 16, 512, hidden_size=1024, num_hidden_layers=24,
         num_attention_heads=16, intermediate_size=4096)
language("bigbird", "BigBirdForMaskedLM", "BigBirdConfig", 2, 1024)
language("distilbert", "DistilBertForMaskedLM", "DistilBertConfig", 8, 128, small={"n_layers": 2})
language("gpt2", "GPT2LMHeadModel", "GPT2Config", 4, 256, small={"n_layer": 2})
language("gpt2_large", "GPT2LMHeadModel", "GPT2Config", 4, 512, small={"n_layer": 2}, n_layer=36, n_embd=1280,
         n_head=20)
# Positions of these two begin at 2, and by default there are 512.
language("longformer", "LongformerForMaskedLM", "LongformerConfig", 2, 1024, attention_window=512,
         max_position_embeddings=4098)
language("reformer", "ReformerModelWithLMHead", "ReformerConfig", 2, 4096, small={"attn_layers": ["local", "lsh"]},
         is_decoder=True, vocab_size=32000)
language("roberta", "RobertaForMaskedLM", "RobertaConfig", 16, 512, max_position_embeddings=514)

FURTHER = tuple(LOADS)[len(FIRST):]
GPU_BOUND = ("albert", "bart_t", "bert_large", "gpt2_large", "roberta")


def made(name, quick):
    torch.manual_seed(0)
    return LOADS[name](quick)
