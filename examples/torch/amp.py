# SPDX-License-Identifier: MIT
"""Mixed precision: whole steps in bfloat16, and in float16 with a GradScaler.

A fused optimizer reads on the device whether gradients overflowed, so the scaled step is one graph too. One
batch is made to overflow: its step is left out and the scale halved, as in eager mode.

Run:      python examples/torch/amp.py
Expected: bfloat16 and float16 with a GradScaler: 12 steps each by one graph, to the bit as eager
"""

import sys

import torch

import reprise

STEPS, OVERFLOW = 12, 7


def train(graphed, dtype):
    """Losses, the scale behind each step, parameters, and the step."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, enabled=dtype == torch.float16)

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=dtype):
            loss = torch.nn.functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    if graphed:
        step = reprise.graphed(step, name=f"step in {dtype}")
    losses, scales = [], []
    for number in range(STEPS):
        x, y = torch.randn(32, 64, device="cuda"), torch.randn(32, 64, device="cuda")
        losses.append(step(x * 1e6 if number == OVERFLOW and scaler.is_enabled() else x, y))
        scales.append(scaler.get_scale())
    return torch.stack(losses), scales, [p.detach() for p in model.parameters()], step


def main():
    for dtype in (torch.bfloat16, torch.float16):
        wanted, scales_wanted, params_wanted, _ = train(False, dtype)
        losses, scales, params, step = train(True, dtype)
        equal = all(torch.equal(a, b) for a, b in zip(params, params_wanted))
        equal = equal and torch.equal(losses.nan_to_num(), wanted.nan_to_num()) and scales == scales_wanted
        halved = dtype == torch.bfloat16 or scales[OVERFLOW] == scales[OVERFLOW - 1] / 2
        graphs = step.shapes()
        if not equal or not halved or len(graphs) != 1 or graphs[0]["replays"] < STEPS - 2:
            sys.exit(f"not as expected, {dtype}: {len(graphs)} graphs, equal: {equal}, scale halved: {halved}, "
                     f"{step.failures()}")
    print(reprise.report())
    print(f"bfloat16 and float16 with a GradScaler: {STEPS} steps each by one graph, to the bit as eager")


if __name__ == "__main__":
    main()
