# SPDX-License-Identifier: MIT
"""Options of the heap under the names that PyTorch's allocator has for them.

They are read where PyTorch's own are, from PYTORCH_ALLOC_CONF and, where that is not set,
PYTORCH_CUDA_ALLOC_CONF, so that an unchanged program keeps its settings; what is passed to install()
goes before. A setting that Reprise's heap has no use for is left alone, one that it does not
have is warned of.
"""

import os
import re

from .. import _C
from .._base.warn import warn

VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
OURS = ("garbage_collection_threshold", "max_split_size_mb", "max_non_split_rounding_mb",
        "roundup_power2_divisions", "per_process_memory_fraction")
# The heap maps memory late and in any order as it is; a graph's memory is Reprise's pools'; the rest
# is of pinned host memory, which stays PyTorch's.
NEEDLESS = ("backend", "expandable_segments", "graph_capture_record_stream_reuse",
            "release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "large_segment_size_mb")
ROUNDINGS = 16  # as many as the library and PyTorch have
MIB = 1 << 20
_SETTING = re.compile(r"\s*(\w+)\s*:\s*(\[[^\]]*\]|[^,:;\[\]]*)\s*(?:,|$)")


def parse(text):
    """"a:1,b:[2:3]" as {"a": "1", "b": "[2:3]"}."""
    found, at = {}, 0
    while at < len(text):
        match = _SETTING.match(text, at)
        if match is None:
            raise ValueError(f"{text!r} is not a list of settings as in 'max_split_size_mb:128,"
                             "garbage_collection_threshold:0.8'")
        found[match[1]] = match[2].strip()
        at = match.end()
    return found


def _ours(found, who):
    """Those that the heap has, warning of what cannot be had."""
    missing = [name for name in found
               if name not in OURS and name not in NEEDLESS and not name.startswith("pinned_")]
    if missing:
        warn(f"{who} sets {', '.join(missing)}, which Reprise's heap does not have: "
             "it goes without")
    return {name: found[name] for name in OURS if name in found}


def _variable(environment):
    return next((v for v in VARIABLES if environment.get(v)), None)


def from_environment(environment=None):
    """What the program's environment says, warning of what cannot be had."""
    environment = os.environ if environment is None else environment
    variable = _variable(environment)
    return {} if variable is None else _ours(parse(environment[variable]), variable)


def _number(name, value, kind):
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}, but has to be a number") from None


def threshold(value):
    number = _number("garbage_collection_threshold", value, float)
    if not 0 < number < 1:
        raise ValueError(f"garbage_collection_threshold is {value}, but has to be above 0 and below "
                         "1")
    return number


def fraction_of(chosen):
    """The share of the device's memory that settings by name allow; None: they name none."""
    value = chosen.get("per_process_memory_fraction")
    if value is None:
        return None
    number = _number("per_process_memory_fraction", value, float)
    if not 0 <= number <= 1:
        raise ValueError(f"per_process_memory_fraction is invalid: it is {value}, but has to be at least 0 "
                         "and at most 1")
    return number


def size_of(name, value):
    """MiB as bytes."""
    number = _number(name, value, int)
    if number <= 20:
        raise ValueError(f"{name} is {value}, but has to be above 20")
    return number * MIB


def _is_power_of_two(number):
    return number > 0 and number & (number - 1) == 0


def divisions(value):
    """For each interval the number of divisions: of one number, or of "[256:1,512:2,>:8]" or a dict
    {256: 1, 512: 2, ">": 8} by the interval's MiB. Below the first interval that is named its number
    holds."""
    name = "roundup_power2_divisions"
    if isinstance(value, str) and value.startswith("["):
        pairs = [part.partition(":") for part in value[1:-1].split(",") if part.strip()]
        value = {key.strip(): count.strip() for key, _, count in pairs}
    if not isinstance(value, dict):
        value = {1: value, ">": value}
    made, last = [0] * ROUNDINGS, None
    for interval, count in value.items():
        count = _number(name, count, int)
        if count and not _is_power_of_two(count):
            raise ValueError(f"{name} has {count} divisions, but they have to be a power of two, or "
                             "0")
        if interval == ">":
            rest = 0 if last is None else last + 1
            made[rest:] = [count] * (ROUNDINGS - rest)
            continue
        interval = _number(name, interval, int)
        if not _is_power_of_two(interval):
            raise ValueError(f"{name} names an interval of {interval} MiB, but it has to be a power "
                             "of two")
        index = min(interval.bit_length() - 1, ROUNDINGS - 1)
        if last is None:
            made[:index] = [count] * index
        made[index] = count
        last = index
    return tuple(made)


def heap_options(given):
    """The arguments of _C.heap_configure for settings by name."""
    def of(name, read, otherwise):
        value = given.get(name)
        return otherwise if value is None else read(value)

    return (of("garbage_collection_threshold", threshold, 0.0),
            of("max_split_size_mb", lambda v: size_of("max_split_size_mb", v), 0),
            of("max_non_split_rounding_mb", lambda v: size_of("max_non_split_rounding_mb", v), 0),
            of("roundup_power2_divisions", divisions, ()))


class Settings:
    """What holds for all heaps of the process, from install() on: what that was given, until the program
    sets others.

    text: the program's, as PyTorch reads it. chosen: the heap's, by name."""

    def __init__(self, chosen):
        self.text = os.environ.get(_variable(os.environ) or "", "")
        self.chosen = chosen
        _C.heap_configure(*heap_options(chosen))

    def setter(self, pytorchs):
        """Answers torch._C._accelerator_setAllocatorSettings. PyTorch's own comes first: it checks the text,
        and takes what is of pinned memory. Settings that the text does not name have their defaults
        again, as there."""
        def set_settings(text):
            found = parse(text)
            backend = found.pop("backend", None)
            if backend not in (None, "native"):
                raise RuntimeError(f"backend:{backend} needs PyTorch's own allocator, and reprise.install() "
                                   "has put another in its place: leave the setting out")
            pytorchs(",".join(f"{name}:{value}" for name, value in found.items()))
            chosen = _ours(found, repr(text))
            _C.heap_configure(*heap_options(chosen))
            self.text, self.chosen = text, chosen
        return set_settings

    def shown_of_pinned(self):
        """Of PyTorch's allocator of pinned memory, which stays: in bytes, -1 without a limit."""
        found = parse(self.text)
        limits = {name: found.get(f"pinned_{name}_mb") for name in ("max_round_threshold", "max_cached_size")}
        return {name: -1 if limit is None else int(limit) << 20 for name, limit in limits.items()}

    def shown(self):
        """As snapshots of PyTorch's allocator show them."""
        found = parse(self.text)
        collect, split, _, rounding = heap_options(self.chosen)

        def is_on(name):
            return found.get(name) == "True"

        return {
            "PYTORCH_CUDA_ALLOC_CONF": self.text,
            "max_split_size": split or -1,
            "garbage_collection_threshold": collect,
            "expandable_segments": True,
            "pinned_num_register_threads": int(found.get("pinned_num_register_threads", 1)),
            "release_lock_on_cudamalloc": is_on("release_lock_on_cudamalloc"),
            "pinned_use_cuda_host_register": is_on("pinned_use_cuda_host_register"),
            "graph_capture_record_stream_reuse": is_on("graph_capture_record_stream_reuse"),
            "roundup_power2_divisions": {str(1 << i): divided for i, divided in
                                         enumerate(rounding or [0] * ROUNDINGS)},
        }
