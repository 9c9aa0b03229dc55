# SPDX-License-Identifier: MIT
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

import torch

from . import Graphed, LayerGraphs, Pool

class Iteration:
    def __call__(self, **given: Any) -> Any: ...
    def graphs(self) -> list[Graphed[..., Any]]: ...
    def reset(self) -> None: ...

def capture_layers(model: torch.nn.Module | Sequence[torch.nn.Module],
                   layers: Iterable[torch.nn.Module] | type | tuple[type, ...] |
                   Callable[[torch.nn.Module], bool] | None = ..., *,
                   microbatches: int = ..., pool: Pool | None = ..., generators: Iterable[torch.Generator] = ...,
                   strict: bool = ..., max_shapes: int = ...,
                   ranks: torch.distributed.ProcessGroup | bool | None = ...,
                   scope: str | Enum | Iterable[str | Enum] | None = ...) -> LayerGraphs: ...
def full_iteration(forward_backward_func: Callable[..., Any], cuda_graph_warmup_steps: int = ..., *,
                   update: Callable[[], object] | None = ...,
                   pool: Pool | None = ..., generators: Iterable[torch.Generator] = ..., strict: bool = ...,
                   watch: Iterable[torch.nn.Module | torch.Tensor] = ...,
                   ranks: torch.distributed.ProcessGroup | bool | None = ...) -> Iteration: ...
