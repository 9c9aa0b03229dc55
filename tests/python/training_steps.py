# SPDX-License-Identifier: MIT
"""Nets and training steps that the tests on a GPU share."""

import torch


def mlp(width=256, depth=4, dropout=0.0, device="cuda"):
    layers = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
        if dropout:
            layers.append(torch.nn.Dropout(dropout))
    return torch.nn.Sequential(*layers).to(device)


def whole_step(net, optimizer, before=lambda: None, moves=True):
    """A step with all that belongs to it: what is captured as one graph. before: called first; moves:
    does the optimizer step in it?"""
    def step(x, y):
        before()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        if moves:
            optimizer.step()
        return loss.detach()
    return step
