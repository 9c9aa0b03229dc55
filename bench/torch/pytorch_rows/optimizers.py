# SPDX-License-Identifier: MIT
"""Optimizers' steps and gradient scalers in captures: TestCudaOptims."""

import torch

from . import COMPUTES, row

CAPTURABLE = {  # with the options that change which kernels a step has
    "ASGD": ({}, {"foreach": True}, {"maximize": True}, {"weight_decay": 0.1}),
    "Adadelta": ({}, {"foreach": True}, {"rho": 0.95, "weight_decay": 0.9}, {"maximize": True}),
    "Adam": ({}, {"foreach": True}, {"fused": True}, {"amsgrad": True}, {"weight_decay": 0.1, "maximize": True}),
    "AdamW": ({}, {"foreach": True}, {"fused": True}, {"amsgrad": True}, {"weight_decay": 0.1}),
    "Adamax": ({}, {"foreach": True}, {"weight_decay": 0.1}, {"maximize": True}),
    "NAdam": ({}, {"foreach": True}, {"momentum_decay": 6e-3}, {"decoupled_weight_decay": True,
                                                               "weight_decay": 0.1}),
    "RAdam": ({}, {"foreach": True}, {"weight_decay": 0.1}, {"maximize": True}),
    "RMSprop": ({}, {"foreach": True}, {"centered": True}, {"momentum": 0.1, "weight_decay": 0.1}),
    "Rprop": ({}, {"foreach": True}, {"etas": (0.2, 1.2)}, {"step_sizes": (2e-4, 5e-3)}),
}


def pairs(sizes):
    """Equal parameters, twice."""
    given = [torch.randn(size, device="cuda") for size in sizes]
    return [[x.clone().requires_grad_() for x in given] for _ in range(2)]


def step(optimizer, params, grads, scaler=None):
    for p, grad in zip(params, grads):
        p.grad = grad.clone()
    if scaler:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()


def graph_optims(t, name):
    for options, graphed in ((o, g) for o in CAPTURABLE[name] for g in (True, False)):
        ours, theirs = pairs(((5, 5), (6, 6), ()))
        kind, drawn = getattr(torch.optim, name), [[torch.randn_like(p) for p in ours] for _ in range(5)]
        eager = kind(theirs, lr=0.1, capturable=False, **options)
        for grads in drawn:
            step(eager, theirs, grads)
        inside = kind(ours, lr=0.1, capturable=True, **options)
        for grads in drawn[:3]:
            step(inside, ours, grads)
        graph = torch.cuda.CUDAGraph()
        if graphed:
            with torch.cuda.graph(graph):
                inside.step()
        for grads in drawn[3:]:
            if not graphed:
                step(inside, ours, grads)
                continue
            for p, grad in zip(ours, grads):
                p.grad.copy_(grad)
            graph.replay()
        t.same(ours, theirs)


for _name in CAPTURABLE:
    row(f"TestCudaOptimsCUDA.test_graph_optims_{_name}_cuda_float32", _name, seconds=120,
        gpu=COMPUTES if _name == "NAdam" else None)(graph_optims)


@row("TestCudaOptimsCUDA.test_graph_scaling_fused_optimizers_Adam_cuda_float32", "Adam")
@row("TestCudaOptimsCUDA.test_graph_scaling_fused_optimizers_AdamW_cuda_float32", "AdamW")
@row("TestCudaOptimsCUDA.test_graph_scaling_fused_optimizers_SGD_cuda_float32", "SGD")
def graph_scaling_fused_optimizers(t, name):
    kind, captures = getattr(torch.optim, name), name != "SGD"
    ours, theirs = pairs(((5, 5), (6, 6)))
    drawn = [[torch.randn_like(p) for p in ours] for _ in range(5)]
    scalers = [torch.amp.GradScaler("cuda", init_scale=128.0) for _ in range(2)]
    for scaler in scalers:
        scaler.scale(torch.ones(1, device="cuda"))
    eager = kind(theirs, lr=0.1, fused=True)
    for grads in drawn:
        step(eager, theirs, grads, scalers[0])
    inside = kind(ours, lr=0.1, fused=True, **({"capturable": True} if captures else {}))
    for grads in drawn[:3]:
        step(inside, ours, grads, scalers[1])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scalers[1].step(inside)
        scalers[1].update()
    for grads in drawn[3:]:
        for p, grad in zip(ours, grads):
            p.grad.copy_(grad)
        graph.replay()
    t.same(ours, theirs)


def graph_grad_scaling(t, name, options):
    weight = torch.ones(100, device="cuda", requires_grad=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
    optimizer = getattr(torch.optim, name)([weight], lr=0.1, **options)
    given, stream = torch.ones_like(weight), torch.cuda.Stream()

    def work():
        scaler.scale((weight.half() * given).sum()).backward()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        work()
        graph.capture_end()
    # The scale goes down after each overflow of half precision, and the count begins anew.
    for value, scale, tracker, grad in ((5, 4, 1, 20.0), (20000, 2, 0, float("inf")), (5, 2, 1, 10.0),
                                        (40000, 1, 0, float("inf"))):
        given.fill_(value)
        graph.replay()
        t.same(weight.grad, torch.full_like(weight, grad))
        scaler.step(optimizer)
        scaler.update()
        t.assertEqual((scaler._scale.item(), scaler._growth_tracker.item()), (scale, tracker))


for _name in ("Adam", "AdamW", "SGD"):
    for _options in ({"foreach": False, "fused": False}, {"foreach": True, "fused": False},
                     {"foreach": False, "fused": True}):
        row(f"TestCudaOptimsCUDA.test_graph_grad_scaling_foreach_{_options['foreach']}_fused_"
            f"{_options['fused']}_{_name}_cuda_float32", _name, _options)(graph_grad_scaling)
