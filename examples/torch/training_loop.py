# SPDX-License-Identifier: MIT
"""A small GPT, trained in the manner of nanoGPT: a whole step is one graph, optimizer included.

Dropout draws new numbers at each replay, and the learning rate changes at each step.

Run:      python examples/torch/training_loop.py
Expected: 30 steps by one graph gave the losses of eager steps to the bit
"""

import math
import sys

import torch
from torch.nn import functional

import reprise

STEPS, BATCH, BLOCK, VOCAB, WIDTH, HEADS, LAYERS = 30, 8, 32, 96, 64, 4, 3


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.dropout = torch.nn.Dropout(0.1)
        self.register_buffer("hidden", torch.ones(BLOCK, BLOCK, dtype=torch.bool).triu(1))

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in self.qkv(x).split(WIDTH, dim=-1))
        scores = (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).masked_fill(self.hidden, -1e9)
        return self.out((self.dropout(scores.softmax(dim=-1)) @ v).transpose(1, 2).flatten(2))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.Sequential(torch.nn.LayerNorm(WIDTH), Attention(), torch.nn.Dropout(0.1))
        self.mlp = torch.nn.Sequential(
            torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(),
            torch.nn.Linear(4 * WIDTH, WIDTH), torch.nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(VOCAB, WIDTH), torch.nn.Embedding(BLOCK, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = torch.nn.Sequential(torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, VOCAB, bias=False))

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(BLOCK, device=ids.device))
        return self.head(self.blocks(x))


def learning_rate(step):
    """Up for five steps, then down along a cosine."""
    return 1e-3 * min((step + 1) / 5, 0.5 + 0.5 * math.cos(math.pi * step / STEPS))


def train(graphed):
    """Losses of all steps, and the graphed step."""
    torch.manual_seed(1337)
    model = GPT().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
    text = torch.arange(10_000).square() % VOCAB  # the data: something to learn

    def step(ids, targets):
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    if graphed:
        step = reprise.graphed(step, name="step")
    losses = []
    for number in range(STEPS):
        starts = torch.randint(len(text) - BLOCK - 1, (BATCH,)).tolist()
        ids, targets = (torch.stack([text[i + shift:i + shift + BLOCK] for i in starts]).cuda() for shift in (0, 1))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(number)
        losses.append(step(ids, targets))
    return torch.stack(losses), step


def main():
    wanted, _ = train(graphed=False)
    losses, step = train(graphed=True)
    print(reprise.report())
    print(f"loss: {losses[0].item():.3f} at first, {losses[-1].item():.3f} at last")
    graphs, equal = step.shapes(), torch.equal(losses, wanted)
    if not equal or len(graphs) != 1 or graphs[0]["replays"] < STEPS - 2 or losses[-1] >= losses[0]:
        sys.exit(f"not as expected: {len(graphs)} graphs, losses equal: {equal}, {step.failures()}")
    print(f"{STEPS} steps by one graph gave the losses of eager steps to the bit")


if __name__ == "__main__":
    main()
