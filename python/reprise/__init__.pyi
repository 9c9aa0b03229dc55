# SPDX-License-Identifier: MIT
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any, Literal, TypeVar, overload

import torch

from ._C import Error as Error

__version__: str
_F = TypeVar("_F", bound=Callable[..., Any])

class Pool:
    kind: str
    name: str
    device: int
    parent: Pool | None
    def __init__(self, kind: Literal["alternatives", "sequence", "concurrent"] = ..., *,
                 parent: Pool | None = ..., name: str | None = ...,
                 device: torch.device | int | None = ..., limit_bytes: int = ...,
                 plan_budget_ms: int = ...) -> None: ...
    def info(self) -> dict[str, Any]: ...
    def trim(self) -> int: ...
    def write(self, path: str | PathLike[str]) -> None: ...
    def draw(self, path: str | PathLike[str]) -> None: ...

class _Graphed:
    name: str
    @property
    def pool(self) -> Pool | None: ...
    def shapes(self) -> list[dict[str, Any]]: ...
    def failures(self) -> list[str]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@overload
def graphed(fn: Callable[..., Any], *, shapes: Iterable[tuple[Any, ...]] | None = ...,
            warmup: int = ..., pool: Pool | None = ..., name: str | None = ...,
            copy_args: bool = ..., strict: bool = ...,
            watch: Iterable[torch.nn.Module | torch.Tensor] = ...,
            generators: Iterable[torch.Generator] = ...,
            grad: Literal["auto", "split", "whole"] = ..., frozen: bool = ...) -> _Graphed: ...
@overload
def graphed(fn: None = ..., *, shapes: Iterable[tuple[Any, ...]] | None = ..., warmup: int = ...,
            pool: Pool | None = ..., name: str | None = ..., copy_args: bool = ...,
            strict: bool = ..., watch: Iterable[torch.nn.Module | torch.Tensor] = ...,
            generators: Iterable[torch.Generator] = ...,
            grad: Literal["auto", "split", "whole"] = ...,
            frozen: bool = ...) -> Callable[[Callable[..., Any]], _Graphed]: ...
def install(*, memory_fraction: float | None = ..., record_history: int = ...) -> None: ...
def is_installed() -> bool: ...
def make_graphed_callables(callables: Any, sample_args: Any, num_warmup_iters: int = ...,
                           allow_unused_input: bool = ..., pool: Pool | None = ...) -> Any: ...
def report(path: str | PathLike[str] | None = ...) -> str | None: ...
