# SPDX-License-Identifier: MIT
"""An inference server: threads answer requests of several batch sizes by one graphed model.

All sizes are captured ahead of the first request, and share one pool. Each thread has a stream of its own.

Run:      python examples/torch/inference_server.py
Expected: 4 threads answered 200 requests of 5 batch sizes by 5 graphs, to the bit as eager
"""

import queue
import sys
import threading

import torch

import reprise

THREADS, REQUESTS, SIZES, WIDTH = 4, 200, (32, 16, 8, 4, 1), 256


class Ranker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.blocks = torch.nn.ModuleList(torch.nn.Sequential(
            torch.nn.LayerNorm(4 * WIDTH), torch.nn.Linear(4 * WIDTH, 4 * WIDTH), torch.nn.GELU())
            for _ in range(4))
        self.score = torch.nn.Linear(4 * WIDTH, 1)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x)
        return self.score(x).squeeze(-1)


def serve(model, requests, answers):
    """What each thread does until a None comes."""
    with torch.inference_mode(), torch.cuda.stream(torch.cuda.Stream()):
        while (request := requests.get()) is not None:
            number, rows = request
            answers[number] = model(rows.cuda(non_blocking=True)).cpu()  # the result is the thread's own


def main():
    torch.manual_seed(0)
    net = Ranker().cuda().eval()
    work = [torch.randn(SIZES[i % len(SIZES)], WIDTH).pin_memory() for i in range(REQUESTS)]
    with torch.inference_mode():
        wanted = [net(rows.cuda()).cpu() for rows in work]
        # The largest first: the others then lie in its memory.
        model = reprise.graphed(net, name="ranker",
                                shapes=[(torch.empty(n, WIDTH, device="cuda"),) for n in SIZES])

    requests, answers = queue.Queue(), [None] * REQUESTS
    threads = [threading.Thread(target=serve, args=(model, requests, answers)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for request in [*enumerate(work), *[None] * THREADS]:
        requests.put(request)
    for thread in threads:
        thread.join()

    print(reprise.report())
    graphs = reprise.graphed_of(model).shapes()
    replays = sum(graph["replays"] for graph in graphs)
    equal = all(got is not None and torch.equal(got, want) for got, want in zip(answers, wanted))
    if not equal or replays != REQUESTS or len(graphs) != len(SIZES):
        sys.exit(f"not as expected: {len(graphs)} graphs, {replays} replays, answers equal: {equal}")
    print(f"{THREADS} threads answered {REQUESTS} requests of {len(SIZES)} batch sizes by {len(graphs)} graphs, "
          "to the bit as eager")


if __name__ == "__main__":
    main()
