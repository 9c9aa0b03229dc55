# SPDX-License-Identifier: MIT
"""torch.compile with graphs of Reprise: by the backend "reprise", or by mode="reduce-overhead" under install().

Results are fresh tensors, so nothing is cloned and no step is marked. Inductor rounds otherwise than eager
kernels do, so results are close, not equal.

Run:      python examples/torch/torch_compile.py
          python examples/torch/torch_compile.py --reduce-overhead
Expected: 20 compiled training steps went by graphs, losses as in eager mode
"""

import copy
import sys

import torch

import reprise

STEPS, WIDTH = 20, 128


def main():
    if "--reduce-overhead" in sys.argv:
        reprise.install()  # ahead of CUDA: the program's own mode takes graphs of Reprise
        options = {"mode": "reduce-overhead"}
    else:
        options = {"backend": "reprise"}

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.LayerNorm(4 * WIDTH),
                                torch.nn.Linear(4 * WIDTH, WIDTH)).cuda()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, **options)
    losses = {}
    for name, call, params in (("compiled", compiled, model), ("eager", twin, twin)):
        optimizer = torch.optim.SGD(params.parameters(), lr=0.05, momentum=0.9)
        torch.manual_seed(1)
        losses[name] = []
        for _ in range(STEPS):
            x = torch.randn(32, WIDTH, device="cuda")
            loss = torch.nn.functional.mse_loss(call(x), x.roll(1, dims=1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[name].append(loss.detach())  # stays as it is, whatever runs next

    text = reprise.report()
    print(text)
    close = torch.allclose(torch.stack(losses["compiled"]), torch.stack(losses["eager"]), rtol=2e-3, atol=2e-3)
    graphs = sum(line.lstrip().startswith("compiled") for line in text.splitlines())
    if not close or graphs < 2 or "without a graph" in text:
        sys.exit(f"not as expected: losses close: {close}")
    print(f"{STEPS} compiled training steps went by graphs, losses as in eager mode")


if __name__ == "__main__":
    main()
