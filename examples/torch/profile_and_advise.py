# SPDX-License-Identifier: MIT
"""Is it worth it? A profile of a training step, `reprise advise` on the trace, and what it advises, done.

Run:      python examples/torch/profile_and_advise.py
Expected: advise says that graphs are worth it, and the step went by one graph, to the bit as eager
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile, schedule

import reprise

WIDTH, LAYERS = 64, 24


def make_step():
    """A step of many small kernels: launching them takes longer than running them."""
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())]
    net = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, capturable=True)

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def losses_of(step, count=8, profiler=None):
    torch.manual_seed(1)
    losses = []
    for _ in range(count):
        losses.append(step(torch.randn(16, WIDTH, device="cuda"), torch.randn(16, WIDTH, device="cuda")))
        if profiler is not None:
            profiler.step()
    return torch.stack(losses)


def main():
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder, "trace.json.gz")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True,
                     schedule=schedule(wait=1, warmup=2, active=5, repeat=1)) as profiler:
            wanted = losses_of(make_step(), profiler=profiler)
        profiler.export_chrome_trace(str(trace))
        advice = subprocess.run([sys.executable, "-m", "reprise", "advise", str(trace)], capture_output=True,
                                text=True, check=True).stdout
    print(advice)

    step = reprise.graphed(make_step(), name="step")  # what it advises: the iteration as one graph
    losses = losses_of(step)
    print(reprise.report())
    graphs = step.shapes()
    if "CUDA graphs are worth it here" not in advice or len(graphs) != 1 or not torch.equal(losses, wanted):
        sys.exit(f"not as expected: {len(graphs)} graphs, losses equal: {torch.equal(losses, wanted)}")
    print("advise says that graphs are worth it, and the step went by one graph, to the bit as eager")


if __name__ == "__main__":
    main()
