# SPDX-License-Identifier: MIT
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, overload

import torch

from . import megatron as megatron
from . import mends as mends
from ._C import Error as Error

__version__: str
_P = ParamSpec("_P")
_R = TypeVar("_R")
_M = TypeVar("_M", bound=torch.nn.Module)
_Fill = Literal["zeros", "last"] | float

class Pool:
    kind: str
    name: str
    device: int
    parent: Pool | None
    def __init__(self, kind: Literal["alternatives", "sequence", "concurrent"] = ..., *,
                 parent: Pool | None = ..., name: str | None = ...,
                 device: torch.device | int | None = ..., limit_bytes: int = ...,
                 plan_budget_ms: int = ...) -> None: ...
    @property
    def handle(self) -> tuple[int, int]: ...
    def bind(self) -> None: ...
    def info(self) -> dict[str, Any]: ...
    def trim(self) -> int: ...
    def write(self, path: str | PathLike[str]) -> None: ...
    def draw(self, path: str | PathLike[str]) -> None: ...

class _Frame(NamedTuple):
    file: str
    line: int
    function: str
    @property
    def source(self) -> str: ...

class _Finding:
    kind: str
    operation: str
    what: str
    mend: str
    frames: tuple[_Frame, ...]
    fix: Callable[[Callable[..., Any]], Callable[..., Any]] | None
    options: dict[str, Any]
    count: int
    @property
    def is_caution(self) -> bool: ...
    @property
    def where(self) -> tuple[str, int] | None: ...

class Findings:
    name: str
    captured: bool
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_Finding]: ...
    def __getitem__(self, index: int) -> _Finding: ...
    @property
    def obstacles(self) -> list[_Finding]: ...
    def json(self) -> str: ...
    def raise_for_obstacles(self) -> None: ...
    def mended(self) -> Callable[..., Any]: ...
    def graphed(self, **options: Any) -> Graphed[..., Any]: ...

def check(fn: Callable[..., Any], *args: Any, generators: Iterable[torch.Generator] = ...,
          **kwargs: Any) -> Findings: ...

class Graphed(Generic[_P, _R]):
    name: str
    @property
    def pool(self) -> Pool | None: ...
    @property
    def pools(self) -> dict[int, Pool]: ...
    def shapes(self) -> list[dict[str, Any]]: ...
    def failures(self) -> list[str]: ...
    def choices(self) -> list[dict[str, Any]]: ...
    def hyperparameters(self) -> list[dict[str, Any]]: ...
    def parts(self) -> list[dict[str, Any]]: ...
    def tune(self, *args: Any, places: int = ..., **kwargs: Any) -> dict[str, Any]: ...
    def buckets(self) -> list[dict[str, Any]]: ...
    def reset(self) -> None: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...

class _Decorator(Protocol):
    @overload  # a module comes first
    def __call__(self, fn: _M, /) -> _M: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[_P, _R], /) -> Graphed[_P, _R]: ...

@overload
def graphed(  # type: ignore[overload-overlap]
            fn: _M, *, shapes: Iterable[tuple[Any, ...]] | None = ...,
            warmup: int = ..., pool: Pool | None = ..., name: str | None = ...,
            copy_args: bool = ..., strict: bool = ...,
            watch: Iterable[torch.nn.Module | torch.Tensor] = ...,
            generators: Iterable[torch.Generator] = ...,
            grad: Literal["auto", "split", "whole"] = ..., frozen: bool = ...,
            progress: bool | Callable[[int, int, dict[str, Any]], object] = ...,
            policy: Literal["always", "auto", "never"] = ...,
            verify: Literal["capture", "run"] | None = ..., max_shapes: int = ..., parts: bool = ...,
            buckets: Mapping[str, Sequence[int] | int | Literal["powers of two"]] | None = ...,
            axes: Mapping[str, Mapping[Any, int]] | None = ...,
            fill: _Fill | Mapping[Any, _Fill] = ...) -> _M: ...
@overload
def graphed(fn: Callable[_P, _R], *, shapes: Iterable[tuple[Any, ...]] | None = ...,
            warmup: int = ..., pool: Pool | None = ..., name: str | None = ...,
            copy_args: bool = ..., strict: bool = ...,
            watch: Iterable[torch.nn.Module | torch.Tensor] = ...,
            generators: Iterable[torch.Generator] = ...,
            grad: Literal["auto", "split", "whole"] = ..., frozen: bool = ...,
            progress: bool | Callable[[int, int, dict[str, Any]], object] = ...,
            policy: Literal["always", "auto", "never"] = ...,
            verify: Literal["capture", "run"] | None = ..., max_shapes: int = ..., parts: bool = ...,
            buckets: Mapping[str, Sequence[int] | int | Literal["powers of two"]] | None = ...,
            axes: Mapping[str, Mapping[Any, int]] | None = ...,
            fill: _Fill | Mapping[Any, _Fill] = ...) -> Graphed[_P, _R]: ...
@overload
def graphed(fn: None = ..., *, shapes: Iterable[tuple[Any, ...]] | None = ...,
            warmup: int = ..., pool: Pool | None = ..., name: str | None = ...,
            copy_args: bool = ..., strict: bool = ...,
            watch: Iterable[torch.nn.Module | torch.Tensor] = ...,
            generators: Iterable[torch.Generator] = ...,
            grad: Literal["auto", "split", "whole"] = ..., frozen: bool = ...,
            progress: bool | Callable[[int, int, dict[str, Any]], object] = ...,
            policy: Literal["always", "auto", "never"] = ...,
            verify: Literal["capture", "run"] | None = ..., max_shapes: int = ..., parts: bool = ...,
            buckets: Mapping[str, Sequence[int] | int | Literal["powers of two"]] | None = ...,
            axes: Mapping[str, Mapping[Any, int]] | None = ...,
            fill: _Fill | Mapping[Any, _Fill] = ...) -> _Decorator: ...
def graphed_(module: _M, *, shapes: Iterable[tuple[Any, ...]] | None = ...,
             warmup: int = ..., pool: Pool | None = ..., name: str | None = ...,
             copy_args: bool = ..., strict: bool = ...,
             watch: Iterable[torch.nn.Module | torch.Tensor] = ...,
             generators: Iterable[torch.Generator] = ...,
             grad: Literal["auto", "split", "whole"] = ..., frozen: bool = ...,
             progress: bool | Callable[[int, int, dict[str, Any]], object] = ...,
             policy: Literal["always", "auto", "never"] = ...,
             verify: Literal["capture", "run"] | None = ..., max_shapes: int = ..., parts: bool = ...,
             buckets: Mapping[str, Sequence[int] | int | Literal["powers of two"]] | None = ...,
             axes: Mapping[str, Mapping[Any, int]] | None = ...,
             fill: _Fill | Mapping[Any, _Fill] = ...) -> _M: ...
def compile(fn: Callable[_P, _R] | None = ..., *, fullgraph: bool = ..., dynamic: bool | None = ...,
            mode: str | None = ..., options: dict[str, Any] | None = ...,
            disable: bool = ...,
            buckets: Mapping[str, Sequence[int] | int | Literal["powers of two"]] | None = ...,
            axes: Mapping[str, Mapping[Any, int]] | None = ...,
            fill: _Fill | Mapping[Any, _Fill] = ...) -> Callable[_P, _R]: ...
def graphed_of(value: object) -> Graphed[..., Any]: ...
@overload
def eager(fn: None = ...) -> AbstractContextManager[None, bool]: ...
@overload
def eager(fn: _M) -> _M: ...  # type: ignore[overload-overlap]
@overload
def eager(fn: Callable[_P, _R]) -> Callable[_P, _R]: ...
class Estimate:
    planned_bytes: int
    mapped_bytes: int
    lower_bound_bytes: int
    exec_bytes: int
    exec_budget_bytes: int
    rehearsal_bytes: int
    device_bytes: int
    exact: bool
    ms: float
    shapes: list[dict[str, Any]]
    failures: list[tuple[str, str]]

def estimate(fn: Callable[..., Any], shapes: Iterable[tuple[Any, ...]], *, warmup: int = ...,
             pool: Pool | None = ..., name: str | None = ...,
             watch: Iterable[torch.nn.Module | torch.Tensor] = ...,
             generators: Iterable[torch.Generator] = ...,
             grad: Literal["auto", "split", "whole"] = ...) -> Estimate: ...
class Recording:
    captures: list[dict[str, Any]]
    def add(self, fn: Callable[..., Any], *args: Any, name: str | None = ...,
            warmup: int = ...) -> Recording: ...
    def write(self, path: str | PathLike[str]) -> None: ...

def record(fn: Callable[..., Any], *args: Any, name: str | None = ...,
           warmup: int = ...) -> Recording: ...
def exec_info(device: torch.device | int | None = ...) -> dict[str, Any]: ...
def restore_pace(device: torch.device | int | None = ...) -> dict[str, Any]: ...
def set_exec_budget(budget: int | Literal["one each"],
                    device: torch.device | int | None = ...) -> None: ...
class graph:
    cuda_graph: torch.cuda.CUDAGraph
    capture_stream: torch.cuda.Stream
    def __init__(self, cuda_graph: torch.cuda.CUDAGraph,
                 pool: Pool | tuple[int, int] | None = ..., stream: torch.cuda.Stream | None = ...,
                 capture_error_mode: Literal["global", "thread_local", "relaxed"] = ...) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *args: object) -> None: ...

def install(*, memory_fraction: float | None = ..., record_history: int = ...,
            exec_budget_bytes: int | Literal["one each"] | None = ...,
            garbage_collection_threshold: float | None = ..., max_split_size_mb: int | None = ...,
            max_non_split_rounding_mb: int | None = ...,
            roundup_power2_divisions: int | dict[int | str, int] | str | None = ...) -> None: ...
def is_installed() -> bool: ...
def make_graphed_callables(callables: Any = ..., sample_args: Any = ..., num_warmup_iters: int = ...,
                           allow_unused_input: bool = ..., pool: Pool | tuple[int, int] | None = ..., *,
                           order: Iterable[float] | None = ..., sample_kwargs: Any = ...,
                           num_layers_per_chunk: int | Sequence[int] | None = ...,
                           generators: Iterable[torch.Generator] = ...,
                           pre_warmup_hook: Callable[[], object] | None = ...,
                           post_warmup_hook: Callable[[], object] | None = ...,
                           capture_time_hooks: Sequence[Mapping[str, Mapping[Any, Callable[[Any], None]]] | None] |
                           None = ..., **options: Any) -> Any: ...
_Layers = Iterable[torch.nn.Module] | type | tuple[type, ...] | Callable[[torch.nn.Module], bool] | None
class LayerGraphs:
    def layers(self) -> list[dict[str, Any]]: ...
    def release(self) -> None: ...

def capture_layers(model: torch.nn.Module | Sequence[torch.nn.Module], layers: _Layers = ..., *,
                   microbatches: int = ..., pool: Pool | None = ..., generators: Iterable[torch.Generator] = ...,
                   strict: bool = ..., max_shapes: int = ...,
                   ranks: torch.distributed.ProcessGroup | bool | None = ...) -> LayerGraphs: ...
def report(path: str | PathLike[str] | None = ...) -> str | None: ...
