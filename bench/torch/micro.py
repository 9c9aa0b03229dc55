# SPDX-License-Identifier: MIT
"""Training with micro-batches: 200 steps from one seed, of four backward passes each whose gradients add
up, an update, and gradients dropped behind it, as optimizers do unless told otherwise.

PyTorch's graph ("graph") has all of a step in it. Ours ("micro") are the backward pass of a micro-batch,
called four times, and the update.
"""

import training

OURS = ["reprise-micro", "reprise-install-micro"]
SIDES = {"mlp": ["eager", "graph", *OURS], "gpt2": ["eager", "graph", *OURS]}
FRESH = False
IMPORTS = ("transformers:GPT2LMHeadModel",)
COLUMNS = training.COLUMNS
LIMITS = training.LIMITS

MICRO_BATCHES = 4


class Job(training.Job):
    def __init__(self, torch, workload):
        super().__init__(torch, workload)
        self.backward = self.backward_eagerly  # may be a graph of it, as may be the update
        self.update = self.optimizer.step

    def step(self, x, y):
        losses = [self.backward(*part) for part in zip(x.chunk(MICRO_BATCHES), y.chunk(MICRO_BATCHES))]
        self.update()
        self.optimizer.zero_grad(set_to_none=True)
        return sum(losses)

    def backward_eagerly(self, x, y):
        loss = self.loss_of(self.net(x), y) / MICRO_BATCHES
        loss.backward()
        return loss.detach()

    def by_graphs(self, reprise):
        """The step by graphs of ours, and the callable whose pool is told of."""
        self.backward = reprise.graphed(self.backward, grad="whole", strict=True, watch=(self.net,))
        self.update = reprise.graphed(self.update, strict=True, watch=(self.net,))
        return self.step, self.backward


def prepare(torch, side, workload):
    return training.train(torch, side, Job(torch, workload))
