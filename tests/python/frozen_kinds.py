# SPDX-License-Identifier: MIT
"""Programs that read something beside their arguments which changes between calls: one function a kind.

Each makes a program anew and returns (fn, change): change(i) is called before call i, and may return more
arguments for it. What fn reads keeps still for three calls, or else the kind says so.
"""

import abc
import argparse
import asyncio
import builtins
import collections
import collections.abc
import concurrent.futures
import configparser
import contextlib
import contextvars
import ctypes
import dataclasses
import datetime
import decimal
import enum
import functools
import gc
import importlib
import importlib.util
import inspect
import io
import itertools
import json
import logging
import multiprocessing
import multiprocessing.sharedctypes
import operator
import os
import queue
import random
import sys
import threading
import time
import types
import typing
import weakref

import torch
import torch.utils._python_dispatch

import reprise
from torch.nn import Parameter

KINDS = {}
SIZE = 16
SCALE = 1.0
LATEST = None
FLAGS = {"scale": 1.0, "deep": {"list": [1.0, 2.0]}}
COUNT = itertools.count()  # for names that are used once
LOCAL = threading.local()
VARIABLE = contextvars.ContextVar("scale", default=1.0)
settings = types.ModuleType("settings")


def kind(refused=None, grad=False, leaps=3, since=(2, 9), needs=None):
    """refused: what the warning says; None: calls are right, and at least half of them replays.
    leaps: for how many calls the value keeps still. since: the first PyTorch that can do it in a capture. needs: a
    module without which there is no such kind."""
    def add(make):
        if needs is not None and importlib.util.find_spec(needs.partition(".")[0]) is None:
            return make
        make.refused, make.grad, make.leaps, make.since = refused, grad, leaps, since
        KINDS[make.__name__] = make
        return make
    return add


def net():
    return torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.ReLU(),
                               torch.nn.Linear(SIZE, SIZE)).cuda()


def values(i):
    """What a value is at call i: it changes twice and comes back."""
    return (1.0, 2.5, 1.0)[i // 3]


class Net(torch.nn.Module):
    """A module that scales what its net makes."""

    factor = 1.0

    def __init__(self):
        super().__init__()
        self.net = net()
        self.scale = 1.0

    def scaled(self, x):
        return x * self.scale

    def forward(self, x):
        return self.scaled(self.net(x)) * self.factor


# ---- Functions ---------------------------------------------------------------------------------------

@kind()
def closure_number():
    n, t = net(), 1.0

    def change(i):
        nonlocal t
        t = values(i)
    return lambda x: n(x) * t, change


@kind()
def attributes_of_a_function_replaced():
    n = net()

    def scaled(x):
        return x * scaled.factor
    scaled.factor = 1.0

    def change(i):
        scaled.__dict__ = {"factor": values(i)}
    return lambda x: scaled(n(x)), change


@kind()
def partial_with_another_state():
    n, scaled = net(), functools.partial(lambda factor, x: x * factor, 1.0)
    return lambda x: scaled(n(x)), lambda i: scaled.__setstate__((scaled.func, (values(i),), {}, {}))


@kind()
def bytes_of_a_subclass():
    class Some(bytearray):
        pass
    n, some = net(), Some(b"\x01\x02")

    def change(i):
        some[0] = int(2 * values(i))
    return lambda x: n(x) * some[0], change


@kind(refused=r"changes 'some' \(is a bytearray, and a call writes to it\)")
def bytes_that_a_call_writes():
    n, some = net(), bytearray(b"\x01\x02")

    def fn(x):
        some[0] += 1
        return n(x) * some[0]
    return fn, lambda i: None


@kind(refused=r"changes 'take' \(has \d+ elements behind a call that began with \d+\)")
def a_bound_method_that_takes_out():
    n, take = net(), [float(i) for i in range(40)].pop
    return lambda x: n(x) * take(), lambda i: None


@kind(refused=r"changes 'take' \(is an iterator that each call takes forward\)")
def a_bound_next():
    n, take = net(), iter([float(i) for i in range(40)]).__next__
    return lambda x: n(x) * take(), lambda i: None


@kind()
def closure_sign_of_zero():
    n, t = net(), 0.0

    def change(i):
        nonlocal t
        t = (0.0, -0.0, 0.0)[i // 3]
    return lambda x: n(x).abs() * t, change


@kind()
def closure_branch():
    n, doubled = net(), False

    def change(i):
        nonlocal doubled
        doubled = bool(i // 3 % 2)

    def fn(x):
        return n(x) * 2 if doubled else n(x)
    return fn, change


@kind()
def closure_string():
    n, name = net(), "mul"

    def change(i):
        nonlocal name
        name = ("mul", "add", "mul")[i // 3]
    return lambda x: getattr(torch, name)(n(x), 3.0), change


@kind()
def closure_none_or_tensor():
    n, bias = net(), None

    def change(i):
        nonlocal bias
        if i % 3 == 0:
            bias = None if i != 3 else torch.full((SIZE,), 2.0, device="cuda")

    def fn(x):
        return n(x) if bias is None else n(x) + bias
    return fn, change


@kind()
def closure_function():
    n, act = net(), torch.neg

    def change(i):
        nonlocal act
        act = (torch.neg, lambda x: x * 4, torch.neg)[i // 3]
    return lambda x: act(n(x)), change


@kind()
def closure_of_a_function_that_is_called():
    n, t = net(), 1.0

    def helper(x):
        return x * t

    def change(i):
        nonlocal t
        t = values(i)
    return lambda x: helper(n(x)), change


@kind()
def default_of_an_argument():
    n = net()

    def fn(x, scale=1.0):
        return n(x) * scale

    def change(i):
        fn.__defaults__ = (values(i),)
    return fn, change


@kind()
def default_of_a_named_argument():
    n = net()

    def fn(x, *, scale=1.0):
        return n(x) * scale

    def change(i):
        fn.__kwdefaults__["scale"] = values(i)
    return fn, change


@kind()
def code_of_a_function():
    n = net()

    def helper(x):
        return x * 2
    first = helper.__code__

    def change(i):
        helper.__code__ = (lambda x: x * 3).__code__ if i // 3 == 1 else first
    return lambda x: helper(n(x)), change


@kind()
def attribute_of_a_function():
    n = net()

    def fn(x):
        return n(x) * fn.scale
    fn.scale = 1.0

    def change(i):
        fn.scale = values(i)
    return fn, change


@kind()
def partial_keyword():
    n = net()

    def scaled(x, scale):
        return n(x) * scale
    fn = functools.partial(scaled, scale=1.0)

    def change(i):
        fn.keywords["scale"] = values(i)
    return fn, change


@kind()
def wrapped_by_a_decorator():
    n, t = net(), 1.0

    def decorate(fn):
        @functools.wraps(fn)
        def inner(x):
            return fn(x) * t
        return inner

    def change(i):
        nonlocal t
        t = values(i)
    return decorate(torch.no_grad()(lambda x: n(x))), change


@kind()
def decorated_by_torch():
    n, t = net(), 1.0

    @torch.no_grad()
    def fn(x):
        return n(x) * t

    def change(i):
        nonlocal t
        t = values(i)
    return fn, change


# ---- Globals -----------------------------------------------------------------------------------------

@kind()
def global_number():
    n = net()

    def change(i):
        global SCALE
        SCALE = values(i)
    return lambda x: n(x) * SCALE, change


def helper_of_globals(x):
    return x * 1


@kind()
def global_function():
    n, first = net(), globals()["helper_of_globals"]

    def change(i):
        globals()["helper_of_globals"] = (lambda x: x * 7) if i // 3 == 1 else first
    return lambda x: helper_of_globals(n(x)), change


@kind()
def global_dict():
    n = net()

    def change(i):
        FLAGS["scale"] = values(i)
    return lambda x: n(x) * FLAGS["scale"], change


@kind()
def global_list_in_a_dict():
    n = net()

    def change(i):
        FLAGS["deep"]["list"][1] = values(i)
    return lambda x: n(x) * FLAGS["deep"]["list"][1], change


@kind()
def builtin_that_is_shadowed():
    n = net()

    def change(i):
        globals().pop("abs", None)
        if i // 3 == 1:
            globals()["abs"] = lambda x: x * 5
    return lambda x: abs(n(x)), change


@kind()
def attribute_of_a_python_module():
    n = net()
    settings.scale = 1.0

    def change(i):
        settings.scale = values(i)
    return lambda x: n(x) * settings.scale, change


@kind()
def function_of_torch_that_is_patched():
    n, first = net(), torch.neg

    def change(i):
        torch.neg = (lambda x: first(x) * 2) if i // 3 == 1 else first
    return lambda x: torch.neg(n(x)), change


# ---- Containers and objects ----------------------------------------------------------------------------

@kind()
def dict_of_a_closure():
    n, cfg = net(), {"t": 1.0}

    def change(i):
        cfg["t"] = values(i)
    return lambda x: n(x) * cfg["t"], change


@kind()
def dict_that_is_replaced_by_an_equal_one():
    n, cfg = net(), {"t": 1.0}

    def change(i):
        nonlocal cfg
        cfg = {"t": values(i)}
    return lambda x: n(x) * cfg["t"], change


@kind()
def key_that_appears():
    n, cfg = net(), {}

    def change(i):
        cfg.clear()
        if i // 3 == 1:
            cfg["t"] = 4.0
    return lambda x: n(x) * cfg.get("t", 1.0), change


@kind()
def key_that_appears_beside_what_calls_make():
    n, cfg, made = net(), {}, {}

    def fn(x):
        return n(x) * made.setdefault("factor", 2.0) * cfg.get("t", 1.0)

    def change(i):
        made.clear()
        cfg.clear()
        if i // 3 == 1:
            cfg["t"] = 4.0
    return fn, change


@kind()
def length_of_a_list():
    n, some = net(), [1.0]

    def change(i):
        if i in (3, 6):
            some.append(2.0)
    return lambda x: n(x) * sum(some), change


@kind()
def list_whose_members_come_to_lie_elsewhere():
    n, some = net(), [1.0, 2.0]

    def change(i):
        some.extend([0.0] * 10_000)  # larger than its memory, which another list gets
        twins.append([1.0, 2.0])
        del some[2:]
        some[1] = values(i)
    twins = []
    return lambda x: n(x) * some[0] * some[1], change


@kind()
def member_of_a_set():
    n, some = net(), {"plain"}

    def change(i):
        some.discard("double")
        if i // 3 == 1:
            some.add("double")
    return lambda x: n(x) * (2.0 if "double" in some else 1.0), change


@kind()
def element_of_a_deque():
    n, some = net(), collections.deque([1.0], maxlen=2)

    def change(i):
        some.append(values(i))
    return lambda x: n(x) * some[-1], change


@kind()
def tuple_in_a_list():
    n, some = net(), [(1.0, 2.0)]

    def change(i):
        some[0] = (values(i), 2.0)
    return lambda x: n(x) * some[0][0], change


@dataclasses.dataclass
class Config:
    scale: float = 1.0
    other: int = 0


@kind()
def dataclass_field():
    n, cfg = net(), Config()

    def change(i):
        cfg.scale = values(i)
        cfg.other = i  # nobody reads it
    return lambda x: n(x) * cfg.scale, change


@kind()
def namespace():
    n, cfg = net(), types.SimpleNamespace(scale=1.0)

    def change(i):
        cfg.scale = values(i)
    return lambda x: n(x) * cfg.scale, change


@kind()
def parsed_arguments():
    n, cfg = net(), argparse.Namespace(scale=1.0)

    def change(i):
        cfg.scale = values(i)
    return lambda x: n(x) * cfg.scale, change


class Slotted:
    __slots__ = ("scale",)


@kind()
def slot_of_an_object():
    n, cfg = net(), Slotted()
    cfg.scale = 1.0

    def change(i):
        cfg.scale = values(i)
    return lambda x: n(x) * cfg.scale, change


class Choice(enum.Enum):
    ONCE = 1.0
    TWICE = 2.0


@kind()
def member_of_an_enum():
    n, cfg = net(), types.SimpleNamespace(choice=Choice.ONCE)

    def change(i):
        cfg.choice = (Choice.ONCE, Choice.TWICE, Choice.ONCE)[i // 3]
    return lambda x: n(x) * cfg.choice.value, change


class Indirect:
    """What it gives is found by special methods."""

    def __init__(self):
        self.held = {"t": 1.0}

    def __getitem__(self, name):
        return self.held[name]

    def __call__(self, x):
        return x * self.held["t"]


@kind()
def object_by_special_methods():
    n, some = net(), Indirect()

    def change(i):
        some.held["t"] = values(i)
    return lambda x: some(n(x)) * some["t"], change


class Callable:
    def __init__(self):
        self.net, self.scale = net(), 1.0

    def __call__(self, x):
        return self.net(x) * self.scale


@kind()
def callable_object():
    some = Callable()

    def change(i):
        some.scale = values(i)
    return some, change


class Owner:
    shared = 1.0

    def __init__(self):
        self.net, self._scale = net(), 1.0

    @property
    def scale(self):
        return self._scale * SCALE

    def step(self, x):
        return self.net(x) * self.scale * self.shared


@kind()
def bound_method_and_property():
    some = Owner()

    def change(i):
        some._scale = values(i)
    return some.step, change


@kind()
def class_attribute():
    some = type("Own", (Owner,), {})()

    def change(i):
        type(some).shared = values(i)
    return some.step, change


@kind()
def attribute_that_hides_one_of_the_class():
    some = Owner()

    def change(i):
        some.__dict__.pop("shared", None)
        if i // 3 == 1:
            some.shared = 3.0
    return some.step, change


@kind()
def attribute_asked_for_by_string():
    n, cfg = net(), types.SimpleNamespace()

    def change(i):
        cfg.__dict__.clear()
        if i // 3 == 1:
            cfg.scale = 2.0
    return lambda x: n(x) * getattr(cfg, "scale", 1.0), change


@kind()
def attribute_by_a_name_that_is_made():
    n, cfg = net(), Config()

    def change(i):
        cfg.scale = values(i)
    return lambda x: n(x) * getattr(cfg, f"sc{'ale'}"), change


@kind()
def class_of_an_object():
    some = Owner()
    doubling = type("Doubling", (Owner,), {"step": None, "scale": property(lambda self: 2.0)})

    def change(i):
        some.__class__ = doubling if i // 3 == 1 else Owner
    return lambda x: some.net(x) * some.scale, change


@kind()
def dict_of_an_object_by_a_base_of_two():
    class First:
        pass

    class Second:
        pass

    class Both(First, Second):
        pass
    n, both = net(), Both()
    both.scale = 1.0
    kept = [vars(both)]

    def change(i):
        kept.append({"scale": values(i)})
        vars(Second)["__dict__"].__set__(both, kept[-1])
    return lambda x: n(x) * both.scale, change


@kind()
def dict_of_an_exception():
    n, error = net(), type("Odd", (ValueError,), {})()
    error.scale = 1.0
    kept = [vars(error)]

    def change(i):
        kept.append({"scale": values(i)})
        error.__dict__ = kept[-1]
    return lambda x: n(x) * error.scale, change


@kind()
def class_of_an_object_by_its_descriptor():
    some = Owner()
    doubling = type("Doubling", (Owner,), {"step": None, "scale": property(lambda self: 2.0)})

    def change(i):
        vars(object)["__class__"].__set__(some, doubling if i // 3 == 1 else Owner)
    return lambda x: some.net(x) * some.scale, change


@kind()
def context_variable():
    n = net()

    def change(i):
        VARIABLE.set(values(i))
    return lambda x: n(x) * VARIABLE.get(), change


@kind()
def environment_variable():
    n = net()

    def change(i):
        os.environ["FROZEN_KINDS"] = str(values(i))
    return lambda x: n(x) * float(os.environ["FROZEN_KINDS"]), change


@kind()
def environment_by_function():
    n = net()

    def change(i):
        os.environ.pop("FROZEN_KINDS", None)
        if i // 3 == 1:
            os.environ["FROZEN_KINDS"] = "2.0"
    return lambda x: n(x) * float(os.getenv("FROZEN_KINDS", "1.0")), change


@kind()
def value_of_a_thread():
    n = net()

    def change(i):
        LOCAL.scale = values(i)
    return lambda x: n(x) * LOCAL.scale, change


@kind()
def dict_of_an_object():
    n, cfg = net(), Config()

    def change(i):
        cfg.__dict__ = {"scale": values(i), "other": 0}
    return lambda x: n(x) * cfg.scale, change


@kind()
def bytes_that_are_written():
    n, some = net(), bytearray(b"123")

    def change(i):
        some[1] = int(values(i))
    return lambda x: n(x) * float(some[1]), change


@kind()
def base_class_that_is_patched():
    class Base:
        def scaled(self, x):
            return x

    class Own(Base):
        pass
    n, some = net(), Own()

    def change(i):
        Base.scaled = (lambda self, x: x * 6) if i // 3 == 1 else (lambda self, x: x)
    return lambda x: some.scaled(n(x)), change


class Double(torch.autograd.Function):
    by = 1.0

    @staticmethod
    def forward(ctx, x):
        return x * Double.by

    @staticmethod
    def backward(ctx, grad):
        return grad * Double.by


@kind()
def function_of_autograd():
    n = net()

    def change(i):
        Double.by = values(i)
    return lambda x: Double.apply(n(x)), change


# ---- By way of Python's own machinery ------------------------------------------------------------------

@kind()
def attribute_of_a_metaclass():
    class Meta(type):
        scale = 1.0

    class Own(metaclass=Meta):
        pass
    n = net()

    def change(i):
        Meta.scale = values(i)
    return lambda x: n(x) * Own.scale, change


@kind()
def attribute_by_getattribute():
    class Own:
        def __init__(self):
            self.hidden = 1.0

        def __getattribute__(self, name):
            return object.__getattribute__(self, "hidden" if name == "scale" else name)
    n, some = net(), Own()

    def change(i):
        some.hidden = values(i)
    return lambda x: n(x) * some.scale, change


@kind()
def object_behind_a_weak_reference():
    n, some = net(), Config()
    found = weakref.ref(some)

    def change(i, kept=some):
        kept.scale = values(i)
    del some
    return lambda x: n(x) * found().scale, change


@kind()
def object_behind_a_proxy():
    n, some = net(), Config()
    found = weakref.proxy(some)

    def change(i, kept=some):
        kept.scale = values(i)
    return lambda x: n(x) * found.scale, change


@kind()
def weak_reference_that_dies():
    n, kept = net(), [Config()]
    found = weakref.ref(kept[0])

    def change(i):
        if i == 4:
            kept.clear()
    return lambda x: n(x) * (2.0 if found() is None else 1.0), change


class Slotless:
    """It takes weak references, and can be in a set."""


@kind()
def size_of_a_weak_set():
    n, kept, some = net(), [], weakref.WeakSet()

    def change(i):
        if i in (0, 4):
            kept.append(Slotless())
            some.add(kept[-1])
    return lambda x: n(x) * len(some), change


@kind()
def order_of_an_ordered_dict():
    n, some = net(), collections.OrderedDict(double=lambda x: x * 2, more=lambda x: x + 1)

    def fn(x):
        for act in some.values():
            x = act(x)
        return n(x)

    def change(i):
        if i in (3, 6):
            some.move_to_end(next(iter(some)))
    return fn, change


@kind()
def factory_of_a_default_dict():
    n, t = net(), 1.0
    some = collections.defaultdict(lambda: t)

    def change(i):
        nonlocal t
        t = values(i)
        some.pop("t", None)
    return lambda x: n(x) * some["t"], change


@kind()
def cached_property_that_is_dropped():
    class Own:
        base = 1.0

        @functools.cached_property
        def scale(self):
            return self.base * 2
    n, some = net(), Own()

    def change(i):
        some.base = values(i)
        some.__dict__.pop("scale", None)
    return lambda x: n(x) * some.scale, change


@kind()
def cache_that_is_emptied():
    class Own:
        base = 1.0

        @functools.lru_cache
        def scale(self):
            return self.base * 2
    n, some = net(), Own()

    def change(i):
        some.base = 1.0 if i < 3 else 2.5
        if i == 5:
            Own.scale.cache_clear()
    return lambda x: n(x) * some.scale(), change


@kind()
def cache_whose_results_are_drawn():
    n, which = net(), 1.0

    @functools.lru_cache(maxsize=None)
    def drawn(which):
        return torch.rand(SIZE, device="cuda")

    def change(i):
        nonlocal which
        which = values(i)
    return lambda x: n(x) * drawn(which), change


@kind()
def cache_whose_results_are_of_before():
    n, which, base = net(), 1.0, 1.0

    @functools.cache
    def scale(which):
        return which * base

    def change(i):
        nonlocal which, base
        which, base = values(i), (1.0, 1.0, 4.0)[i // 3]
    return lambda x: n(x) * scale(which), change


@kind()
def cache_that_makes_room():
    n = net()

    @functools.lru_cache(maxsize=2)
    def drawn(which):
        return torch.rand(SIZE, device="cuda")

    def change(i):
        if i == 4:
            drawn(2.0), drawn(3.0)
    return lambda x: n(x) * drawn(1.0), change


@kind(refused=r"changes 'drawn' \(is a cache of a function's results, and a call adds to it\)")
def cache_that_each_call_adds_to():
    n = net()

    @functools.lru_cache(maxsize=4)
    def drawn(which):
        return torch.rand(SIZE, device="cuda")
    return lambda x: n(x) * drawn(object()), lambda i: None


@kind()
def function_of_single_dispatch():
    n = net()

    @functools.singledispatch
    def scale(value):
        return 1.0

    def change(i):
        if i == 4:
            scale.register(int, lambda value: 2.0)
    return lambda x: n(x) * scale(3), change


@kind()
def attribute_that_a_module_makes():
    n, made, held = net(), types.ModuleType("made"), {"t": 1.0}
    made.__getattr__ = lambda name: held[name]

    def change(i):
        held["t"] = values(i)
    return lambda x: n(x) * made.t, change


@kind()
def global_that_is_asked_for_by_string():
    n = net()

    def change(i):
        globals()["ASKED"] = values(i)
    return lambda x: n(x) * globals()["ASKED"], change


@kind()
def arguments_of_the_program():
    n = net()

    def change(i):
        sys.argv[:] = [a for a in sys.argv if a != "twice"] + ["twice"] * (i // 3 == 1)
    return lambda x: n(x) * (2.0 if "twice" in sys.argv else 1.0), change


@kind()
def name_of_the_thread():
    n, first = net(), threading.current_thread().name

    def change(i):
        threading.current_thread().name = "other" if i // 3 == 1 else first
    return lambda x: n(x) * (2.0 if threading.current_thread().name == "other" else 1.0), change


def scaled_by(event):
    n = net()

    def change(i):
        (event.set if i // 3 == 1 else event.clear)()
    return lambda x: n(x) * (2.0 if event.is_set() else 1.0), change


@kind()
def event_of_threading():
    return scaled_by(threading.Event())


@kind()
def event_of_asyncio():
    n, event, queued = net(), asyncio.Event(), asyncio.Queue()

    def change(i):
        (event.set if i // 3 == 1 else event.clear)()
        if i == 6:
            queued.put_nowait(i)
    return lambda x: n(x) * (2.0 if event.is_set() else 1.0) * (1 + queued.qsize()), change


@kind()
def event_of_processes():
    return scaled_by(multiprocessing.Event())


@kind()
def bytes_in_memory():
    n, held = net(), io.BytesIO(b"\1")

    def change(i):
        held.seek(0)
        held.write(bytes((int(2 * values(i)),)))
    return lambda x: n(x) * held.getvalue()[0], change


@kind(needs="PIL.Image")
def image_that_is_replaced():
    import numpy as np
    from PIL import Image
    n = net()

    def fn(x):
        return n(x) * torch.from_numpy(np.array(n.image)).cuda().float().mean()
    return fn, lambda i: setattr(n, "image", Image.new("L", (2, 2), int(10 * values(i))) if i % 3 == 0 else n.image)


@kind()
def number_of_a_class_of_the_programs():
    class Metres(float):
        pass
    n, held = net(), types.SimpleNamespace()

    def change(i):
        held.height = Metres(values(i))
        return (Metres(2 * values(i)),)
    return lambda x, width: n(x) * width * held.height, change


@kind(needs="regex")
def pattern_of_an_extension():
    import regex
    n, held = net(), types.SimpleNamespace()
    patterns = [regex.compile("a"), regex.compile("b")]

    def fn(x, pattern):
        return n(x) * (2.0 if pattern.match("a") else 1.0) * (3.0 if held.pattern.match("b") else 1.0)

    def change(i):
        held.pattern = patterns[i // 3 == 1]
        return (patterns[i // 3 != 1],)
    return fn, change


@kind()
def set_that_is_an_argument():
    n, stops = net(), {3, 5}

    def change(i):
        (stops.add if i // 3 == 1 else stops.discard)(7)
        return (stops,)
    return lambda x, stops: n(x) * len(stops) * (2.0 if 7 in stops else 1.0), change


@kind()
def argument_that_raises_where_it_is_asked_for_more():
    class Keyed(dict):
        def __getattr__(self, name):
            return self[name]  # KeyError
    n = net()
    return lambda x, held: n(x) * held.scale, lambda i: (Keyed(scale=values(i)),)


@kind()
def classes_that_raise_where_they_are_asked_for_more():
    class Asked(type):
        def __getattr__(cls, name):
            raise RuntimeError(name)

    class Held(metaclass=Asked):
        def __getattr__(self, name):
            raise RuntimeError(name)
    class Slotted(Held):
        __slots__ = ("scale",)

    class Bare(metaclass=Asked):
        __slots__ = ("scale",)

        def __getattr__(self, name):
            raise RuntimeError(name)
    n, held, bare = net(), Slotted(), Bare()
    held.scale = 1.0

    def change(i):
        bare.scale = held.scale = values(i)
    return lambda x: n(x) * held.scale * bare.scale, change


@kind()
def interpreter_of_a_traced_module():
    made = torch.fx.symbolic_trace(net())

    def change(i):
        if i % 3 == 0:
            getattr(made, "0").weight = Parameter(torch.full((SIZE, SIZE), values(i), device="cuda"))
    return torch.fx.Interpreter(made).run, change


@kind()
def type_that_autocast_casts_to():
    n = net()

    def fn(x):
        with torch.autocast("cuda"):
            return n(x).float()
    return fn, lambda i: torch.set_autocast_dtype("cuda", torch.bfloat16 if i // 3 == 1 else torch.float16)


@kind()
def fast_path_of_attention():
    n, mha = net(), torch.backends.mha
    return (lambda x: n(x) * (2.0 if mha.get_fastpath_enabled() else 1.0)), lambda i: mha.set_fastpath_enabled(i // 3 != 1)


@kind()
def precision_of_products_by_name():
    n = net()

    def fn(x):
        return n(x) * {"highest": 1.0, "high": 2.0, "medium": 3.0}[torch.get_float32_matmul_precision()]
    return fn, lambda i: torch.set_float32_matmul_precision(("high", "medium", "highest")[i // 3])


@kind()
def lock_that_is_held():
    n, lock = net(), threading.Lock()

    def change(i):
        if i in (3, 6):
            (lock.release if lock.locked() else lock.acquire)()
    return lambda x: n(x) * (2.0 if lock.locked() else 1.0), change


@kind()
def size_of_a_queue():
    n, some = net(), queue.Queue()

    def change(i):
        if i in (3, 6):
            some.put(i)
    return lambda x: n(x) * (1.0 + some.qsize()), change


@kind()
def value_of_a_parser_of_settings():
    n, some = net(), configparser.ConfigParser()

    def change(i):
        some["net"] = {"scale": str(values(i))}
    some["net"] = {"scale": "1.0"}
    return lambda x: n(x) * some.getfloat("net", "scale"), change


@kind()
def value_of_ctypes():
    n, some = net(), ctypes.c_double(1.0)

    def change(i):
        some.value = values(i)
    return lambda x: n(x) * some.value, change


@kind()
def value_that_processes_share():
    n, some = net(), multiprocessing.sharedctypes.Value("d", 1.0)

    def change(i):
        some.value = values(i)
    return lambda x: n(x) * some.value, change


@kind()
def precision_of_decimals():
    n, context = net(), decimal.getcontext()
    first = context.prec

    def change(i):
        context.prec = 3 if i // 3 == 1 else first
    return lambda x: n(x) * float(decimal.Decimal(1) / decimal.Decimal(3)), change


@kind()
def folder_that_is_current():
    n, first = net(), os.getcwd()

    def change(i):
        os.chdir(os.sep if i // 3 == 1 else first)
    return lambda x: n(x) * (2.0 if os.getcwd() == os.sep else 1.0), change


@kind()
def array_of_records():
    n, some = net(), numpy().rec.array([(1.0, 2)], dtype=[("s", "f8"), ("t", "i4")])

    def change(i):
        some.s[0] = values(i)
    return lambda x: n(x) * float(some[0].s), change


@kind()
def array_of_objects():
    n, some = net(), numpy().array([1.0, None], dtype=object)

    def change(i):
        some[0] = values(i)
    return lambda x: n(x) * some[0], change


@kind()
def function_that_a_layer_of_torch_calls():
    m, functional = Net(), torch.nn.functional
    first = functional.relu

    def change(i):
        functional.relu = (lambda x, inplace=False: first(x) * 3) if i // 3 == 1 else first
    return m, change


@kind()
def method_of_tensors_that_is_patched():
    n, first = net(), torch.Tensor.abs

    def change(i):
        torch.Tensor.abs = (lambda self: first(self) * 2) if i // 3 == 1 else first
    return lambda x: n(x).abs(), change


# ---- Arguments -----------------------------------------------------------------------------------------

@kind()
def number_as_an_argument():
    n = net()
    return lambda x, t: n(x) * t, lambda i: (values(i),)


@kind()
def object_as_an_argument():
    n, cfg = net(), Config()

    def change(i):
        cfg.scale = values(i)
        return (cfg,)
    return lambda x, cfg: n(x) * cfg.scale, change


@kind()
def equal_objects_as_arguments():
    n = net()
    return lambda x, cfg: n(x) * cfg.scale, lambda i: (Config(values(i)),)


@kind()
def dict_in_an_object_as_an_argument():
    n, cfg = net(), types.SimpleNamespace(held={"t": 1.0})

    def change(i):
        cfg.held["t"] = values(i)
        return (cfg,)
    return lambda x, cfg: n(x) * cfg.held["t"], change


@kind()
def function_as_an_argument():
    n = net()

    def change(i):
        t = values(i)
        return (lambda x: x * t,)
    return lambda x, act: act(n(x)), change


@kind()
def array_as_an_argument():
    n = net()
    return lambda x, some: n(x) * float(some[0]), lambda i: (numpy().full(3, values(i)),)


@kind(leaps=1)
def number_that_is_new_at_every_call():
    n = net()
    return lambda x, t: n(x) * t, lambda i: (i + 0.5,)


@kind(refused="an argument is an iterator")
def iterator_as_an_argument():
    n, some = net(), iter(range(1, 100))
    return lambda x, it: n(x) * next(it), lambda i: (some,)


# ---- Modules -------------------------------------------------------------------------------------------

@kind()
def wishes_for_gradients_without_any():
    n = net()

    def change(i):
        n.requires_grad_(i // 3 % 2 == 0)
    return lambda x: n(x) * (2.0 if n[0].weight.requires_grad else 1.0), change


@kind()
def wish_of_a_tensor_without_any():
    n, weight = net(), torch.ones(SIZE, device="cuda")

    def change(i):
        weight.requires_grad_(i // 3 % 2 == 0)
    return lambda x: n(x) * (weight * (2.0 if weight.requires_grad else 1.0)), change


if sys.version_info >= (3, 12):  # whose dicts tell of what is put into them
    @kind()
    def hooks_that_are_put_there_by_hand():
        n = net()

        def change(i):
            n[0]._forward_hooks.clear()
            n[2]._forward_pre_hooks.clear()
            if i // 3 == 1:
                n[0]._forward_hooks[7] = lambda module, args, result: result * 2
                n[2]._forward_pre_hooks[8] = lambda module, args: (args[0] + 1,)
        return n, change


@kind()
def buffers_that_are_put_there_by_hand():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()
            self.register_buffer("factor", torch.ones(1, device="cuda"))

        def forward(self, x):
            return self.net(x) * self.factor
    m, made = Scaled(), {}

    def change(i):
        if values(i) not in made:
            made[values(i)] = torch.full((1,), values(i), device="cuda")
        m._buffers.update(factor=made[values(i)])
    return m, change


@kind()
def module_attribute():
    m = Net()

    def change(i):
        m.scale = values(i)
        m.calls = i  # nobody reads it
    return m, change


@kind()
def module_by_its_method():
    m = Net()

    def change(i):
        m.scale = values(i)
    return m.forward, change


@kind()
def module_of_a_closure():
    m = Net()

    def change(i):
        m.scale = values(i)
    return lambda x: m(x) + 1, change


MODULE = None


@kind()
def module_of_a_global():
    global MODULE
    MODULE = m = Net()

    def change(i):
        m.scale = values(i)
        with torch.no_grad():
            if i == 6:
                m.net[0].weight.data = m.net[0].weight.data.clone()
    return lambda x: m(x) + 1, change


@kind()
def module_class_attribute():
    m = type("Own", (Net,), {})()

    def change(i):
        type(m).factor = values(i)
    return m, change


@kind()
def method_of_an_instance():
    m = Net()

    def change(i):
        m.__dict__.pop("scaled", None)
        if i // 3 == 1:
            m.scaled = lambda x: x * 9
    return m, change


@kind()
def method_of_a_class():
    own = type("Own", (Net,), {})
    m = own()

    def change(i):
        own.scaled = (lambda self, x: x * 9) if i // 3 == 1 else Net.scaled
    return m, change


@kind()
def forward_of_a_child():
    m = Net()
    child = m.net[1]

    def change(i):
        child.__dict__.pop("forward", None)
        if i // 3 == 1:
            child.forward = lambda x: x * 3
    return m, change


@kind()
def forward_of_a_class_of_torch():
    m, first = Net(), torch.nn.ReLU.forward

    def change(i):
        torch.nn.ReLU.forward = (lambda self, x: x * 3) if i // 3 == 1 else first
    return m, change


@kind()
def layer_that_is_replaced():
    m = Net()
    first = m.net[1]

    def change(i):
        m.net[1] = torch.nn.Identity() if i // 3 == 1 else first
    return m, change


@kind()
def layer_that_is_appended():
    m = Net()

    def change(i):
        if i == 3:
            m.net.append(torch.nn.Linear(SIZE, SIZE).cuda())
    return m, change


@kind()
def layer_that_is_removed():
    m = Net()

    def change(i):
        if i == 3:
            del m.net[1]
    return m, change


@kind()
def layer_that_is_put_past_registration():
    m = Net()
    first, other = m.net[1], torch.nn.Identity()

    def change(i):
        m.net._modules["1"] = other if i // 3 == 1 else first
    return m, change


@kind()
def buffer_that_is_put_past_registration():
    m = Net()
    m.register_buffer("mask", torch.ones(SIZE, device="cuda"))
    kept = []

    def change(i):
        if i % 3 == 0:
            kept.append(m.mask)
            m._buffers["mask"] = torch.full((SIZE,), values(i), device="cuda")
    return lambda x: m(x) * m.mask, change


@kind()
def negative_slope():
    m = torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.LeakyReLU(0.1)).cuda()

    def change(i):
        m[1].negative_slope = values(i)
    return m, change


@kind()
def probability_of_dropout():
    m = torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.Dropout(0.0)).cuda()

    def change(i):
        m[1].p = (0.0, 1.0, 0.0)[i // 3]
    return m, change


@kind()
def hook_that_is_registered():
    m = Net()

    def change(i):
        if i == 3:
            m.net.register_forward_hook(lambda module, args, out: out * 2)
    return m, change


@kind()
def hook_that_is_removed():
    m = Net()
    handle = m.net.register_forward_hook(lambda module, args, out: out * 2)

    def change(i):
        if i == 3:
            handle.remove()
    return m, change


@kind()
def what_a_hook_reads():
    m, t = Net(), 1.0
    m.net.register_forward_hook(lambda module, args, out: out * t)

    def change(i):
        nonlocal t
        t = values(i)
    return m, change



@kind()
def hook_that_comes_and_goes():
    m, handles = Net(), []

    def change(i):
        if i == 2:
            handles.append(m.net.register_forward_hook(lambda module, args, out: out * 2))
        if i == 5:
            handles.pop().remove()
    return m, change


@kind()
def hook_of_all_modules():
    m, handles = Net(), []

    def change(i):
        if i == 3:
            handles.append(torch.nn.modules.module.register_module_forward_hook(
                lambda module, args, out: out * 2 if module is m.net else None))
        if i == 6:
            handles.pop().remove()
    return m, change


@kind()
def buffer_that_comes_and_goes():
    class Own(Net):
        def forward(self, x):
            return super().forward(x) * getattr(self, "mask", 1.0)
    m = Own()

    def change(i):
        if i == 2:
            m.register_buffer("mask", torch.full((SIZE,), 3.0, device="cuda"))
        if i == 5:
            del m.mask
    return m, change


@kind()
def graphed_callable_within():
    n, t = net(), 1.0
    inner = reprise.graphed(lambda x: n(x) * t)

    def change(i):
        nonlocal t
        t = values(i)
    return lambda x: inner(x) + 1, change


# ---- Tensors and arrays --------------------------------------------------------------------------------

@kind()
def tensor_that_is_replaced_and_kept():
    n, kept, mask = net(), [], torch.ones(SIZE, device="cuda")

    def change(i):
        nonlocal mask
        if i % 3 == 0:
            kept.append(mask)
            mask = torch.full((SIZE,), values(i), device="cuda")
    return lambda x: n(x) * mask, change


@kind()
def tensor_in_a_dict():
    n, kept, st = net(), [], {"m": torch.ones(SIZE, device="cuda")}

    def change(i):
        if i % 3 == 0:
            kept.append(st["m"])
            st["m"] = torch.full((SIZE,), values(i), device="cuda")
    return lambda x: n(x) * st["m"], change


@kind()
def tensor_whose_memory_is_replaced():
    n, kept, mask = net(), [], torch.ones(SIZE, device="cuda")

    def change(i):
        if i % 3 == 0:
            kept.append(mask.data)
            mask.data = torch.full((SIZE,), values(i), device="cuda")
    return lambda x: n(x) * mask, change


@kind()
def tensor_that_is_written():
    """No value of Python's: replays see it."""
    n, mask = net(), torch.ones(SIZE, device="cuda")

    def change(i):
        mask.fill_(values(i))
    return lambda x: n(x) * mask, change


@kind()
def scalar_on_the_cpu():
    n, t = net(), torch.tensor(1.0)

    def change(i):
        t.fill_(values(i))
    return lambda x: n(x) * t, change


@kind()
def value_of_a_tensor_on_the_cpu():
    n, t = net(), torch.tensor([1.0, 2.0])

    def change(i):
        t[0] = values(i)
    return lambda x: n(x) * t[0].item(), change


def numpy():
    import numpy as found
    return found


@kind()
def array_of_numpy():
    n, some = net(), numpy().ones(4)

    def change(i):
        some[2] = values(i)
    return lambda x: n(x) * float(some[2]), change


@kind()
def scalar_of_numpy():
    n, cfg = net(), {"t": numpy().float64(1.0)}

    def change(i):
        cfg["t"] = numpy().float64(values(i))
    return lambda x: n(x) * float(cfg["t"]), change



@kind()
def tensor_that_is_transposed_in_place():
    n = net()
    square = torch.arange(256.0, device="cuda").view(SIZE, SIZE)

    def change(i):
        if i in (3, 6):
            square.t_()
    return lambda x: n(x) * square[:4], change


@kind()
def tensor_that_shrinks_in_place():
    n, mask = net(), torch.arange(4.0 * SIZE, device="cuda").view(4, SIZE)

    def change(i):
        if i in (3, 6):
            mask.resize_((1, SIZE) if i == 3 else (4, SIZE))
    return lambda x: n(x) * mask, change


# ---- Switches ------------------------------------------------------------------------------------------

@kind()
def default_dtype():
    n = net()

    def change(i):
        torch.set_default_dtype(torch.float64 if i // 3 == 1 else torch.float32)
    return lambda x: n(x) + torch.ones(SIZE, device="cuda"), change


@kind(since=(2, 10))
def default_device():
    n = net()

    def change(i):
        torch.set_default_device("cuda" if i // 3 == 1 else None)
        FLAGS["scale"] = 1.0
    return lambda x: n(x) * (2.0 if torch.get_default_device().type == "cuda" else 1.0), change


@kind()
def switch_that_is_asked():
    n = net()

    def change(i):
        torch.use_deterministic_algorithms(i // 3 == 1, warn_only=True)
    return lambda x: n(x) * (2.0 if torch.are_deterministic_algorithms_enabled() else 1.0), change


@kind()
def back_ends_of_attention():
    n = net()

    def change(i):
        torch.backends.cuda.enable_flash_sdp(i // 3 != 1)
    return lambda x: n(x) * (1.0 if torch.backends.cuda.flash_sdp_enabled() else 2.0), change


@kind()
def precision_of_products():
    n = net()

    def change(i):
        torch.backends.cuda.matmul.allow_tf32 = i // 3 == 1
    return lambda x: n(x) * (2.0 if torch.backends.cuda.matmul.allow_tf32 else 1.0), change


# ---- Training ------------------------------------------------------------------------------------------

def training(make, change_of):
    n = net()
    optimizer = make(n.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = (n(x) * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def change(i):
        if i % 3 == 0:
            change_of(optimizer, i // 3)
    return step, change


@kind(grad=True)
def learning_rate():
    def change(optimizer, turn):
        optimizer.param_groups[0]["lr"] = (0.01, 0.02, 0.01)[turn]
    return training(lambda p: torch.optim.SGD(p, lr=0.01), change)


@kind(grad=True)
def learning_rate_with_momentum():
    def change(optimizer, turn):
        optimizer.param_groups[0]["lr"] = (0.01, 0.02, 0.01)[turn]
    return training(lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.5), change)


@kind(grad=True)
def weight_decay():
    def change(optimizer, turn):
        optimizer.param_groups[0]["weight_decay"] = (0.0, 0.125, 0.0)[turn]
    return training(lambda p: torch.optim.SGD(p, lr=0.01), change)


@kind(grad=True)
def number_of_groups():
    def change(optimizer, turn):
        if turn == 1:
            optimizer.param_groups.append(dict(optimizer.param_groups[0], params=[
                optimizer.param_groups[0]["params"].pop()], lr=0.25))
    return training(lambda p: torch.optim.SGD(p, lr=0.01), change)



def trained_by(hook):
    """A step; hook(net, optimizer) is registered for calls 4 to 6."""
    n = net()
    optimizer, handles = torch.optim.SGD(n.parameters(), lr=0.01), []

    def step(x):
        optimizer.zero_grad()
        loss = (n(x) * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def change(i):
        if i == 4:
            handles.append(hook(n, optimizer))
        if i == 7:
            handles.pop().remove()
    return step, change


@kind(grad=True)
def hook_of_an_optimizer():
    def double(optimizer, args, kwargs):
        for param in optimizer.param_groups[0]["params"]:
            param.grad.mul_(2)
    return trained_by(lambda n, optimizer: optimizer.register_step_pre_hook(double))


@kind(grad=True)
def hook_of_a_parameter():
    return trained_by(lambda n, optimizer: n[0].weight.register_hook(lambda grad: grad * 2))


def doubled(param):
    param.grad.mul_(2)


@kind(grad=True)
def hook_behind_accumulation():
    return trained_by(lambda n, optimizer: n[0].weight.register_post_accumulate_grad_hook(
        doubled))


def trained_with(register):
    """A step whose backward pass calls what register(net, factor) registers; factor: a list of a number."""
    n, factor = net(), [1.0]
    optimizer = torch.optim.SGD(n.parameters(), lr=0.01)
    register(n, factor)

    def step(x):
        optimizer.zero_grad()
        loss = (n(x) * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def change(i):
        factor[0] = values(i)
    return step, change


@kind(grad=True)
def what_a_hook_of_a_gradient_reads():
    def scaled(grad, factor):
        return grad * factor[0]
    return trained_with(lambda n, factor: n[0].weight.register_hook(lambda grad: scaled(grad, factor)))


@kind(grad=True)
def what_a_hook_of_a_result_reads():
    n, factor = net(), 1.0
    optimizer = torch.optim.SGD(n.parameters(), lr=0.01)

    def scaled(grad):
        return grad * factor

    def step(x):
        optimizer.zero_grad()
        y = n(x)
        y.register_hook(lambda grad: scaled(grad))
        loss = (y * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def change(i):
        nonlocal factor
        factor = values(i)
    return step, change


@kind(grad=True)
def what_a_hook_behind_accumulation_reads():
    """A step of an optimizer within the backward pass."""
    n = net()
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in n.parameters()}

    def trained(param):
        optimizers[param].step()
        optimizers[param].zero_grad()
    for p in n.parameters():
        p.register_post_accumulate_grad_hook(trained)

    def step(x):
        loss = (n(x) * x).sum()
        loss.backward()
        return loss.detach()

    def change(i):
        for optimizer in optimizers.values():
            optimizer.param_groups[0]["lr"] = 0.01 * values(i)
    return step, change


@kind(grad=True, refused=r"draws random numbers of Python's \(at .*frozen_kinds.py")
def random_number_in_a_hook():
    return trained_with(lambda n, factor: n[0].weight.register_hook(lambda grad: grad * random.random()))


@kind(grad=True, refused=r"changes 'factor\[0\]' \(from")
def counter_in_a_hook():
    n, factor = net(), [1.0]
    optimizer = torch.optim.SGD(n.parameters(), lr=0.01)

    def counted(grad):
        factor[0] += 1.0
        return grad * factor[0]
    n[0].weight.register_hook(counted)

    def step(x):
        optimizer.zero_grad()
        loss = (n(x) * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach() + optimizer.param_groups[0]["lr"]
    return step, lambda i: None


@kind(grad=True, refused="are added up by nodes with hooks of their own|AccumulateGrad.* stale reference")
def hook_of_several_gradients():
    n, factor = net(), torch.zeros((), device="cuda")

    def added(grads):
        factor.add_(grads[0].abs().sum())
    kept = torch.autograd.graph.register_multi_grad_hook(tuple(n.parameters()), added)

    def step(x):
        assert kept
        n.zero_grad()
        (n(x) * x).sum().backward()
        return factor * 1.0
    return step, lambda i: None


# ---- What is refused -----------------------------------------------------------------------------------

@kind(leaps=1)
def value_that_is_new_at_every_call():
    n, t = net(), 0.0

    def change(i):
        nonlocal t
        t = 0.5 + i
    return lambda x: n(x) * t, change


@kind(leaps=1)
def item_that_is_new_at_every_call():
    n, cfg = net(), {"t": 0.0}

    def change(i):
        cfg["t"] = 0.5 + i
    return lambda x: n(x) * cfg["t"], change


@kind(leaps=1)
def attribute_that_is_new_at_every_call():
    m = Net()

    def change(i):
        m.scale = 0.5 + i
    return m, change


@kind()
def random_number():
    n = net()
    return lambda x: n(x) * random.random(), lambda i: None


@kind(refused=r"random numbers of Python's \(at .*frozen_kinds.py")
def random_integer_of_an_own_generator():
    n, own = net(), random.Random(3)
    return lambda x: n(x) * own.randint(1, 100), lambda i: None


@kind(refused="random numbers of NumPy's")
def random_number_of_numpy():
    n = net()
    return lambda x: n(x) * numpy().random.rand(), lambda i: None


@kind(refused=r"seeds PyTorch's random numbers \(at .*frozen_kinds.py")
def random_numbers_that_are_seeded():
    n = net()

    def fn(x):
        torch.manual_seed(3)
        return n(x) + torch.rand_like(x)
    return fn, lambda i: None


@kind()
def names_that_a_getter_holds():
    class Own:
        pass
    n, own, get = net(), Own(), operator.attrgetter("inner.held")
    own.inner = Own()
    own.inner.held = 1.0
    return lambda x: n(x) * get(own), lambda i: setattr(own.inner, "held", values(i))


@kind()
def method_that_a_caller_holds():
    class Scaled:
        scale = 1.0

        def scaled(self, x):
            return x * self.scale
    n, own, call = net(), Scaled(), operator.methodcaller("scaled", 2.0)
    return lambda x: n(x) * call(own), lambda i: setattr(own, "scale", values(i))


@kind()
def level_of_a_logger():
    n, log = net(), logging.getLogger("reprise.frozen")

    def fn(x):
        return n(x) * (2.0 if log.isEnabledFor(logging.DEBUG) else 1.0)
    return fn, lambda i: log.setLevel(logging.DEBUG if values(i) > 1 else logging.INFO)


@kind()
def level_of_a_logger_above():
    n, above, log = net(), logging.getLogger("reprise.above"), logging.getLogger("reprise.above.frozen")
    adapter = logging.LoggerAdapter(log, {})

    def fn(x):
        return n(x) * (2.0 if adapter.isEnabledFor(logging.DEBUG) else 1.0)
    return fn, lambda i: above.setLevel(logging.DEBUG if values(i) > 1 else logging.INFO)


@kind()
def a_logger_that_is_found_by_its_name():
    n = net()

    def fn(x):
        log = logging.getLogger("reprise.found.frozen")
        return n(x) * (3.0 if log.isEnabledFor(logging.DEBUG) else 1.0) * log.getEffectiveLevel()
    return fn, lambda i: logging.getLogger("reprise.found").setLevel(logging.DEBUG if values(i) > 1 else logging.INFO)


@kind()
def a_logger_above_that_comes_later():
    n, name = net(), f"reprise.later{next(COUNT)}"
    log = logging.getLogger(f"{name}.frozen")

    def fn(x):
        return n(x) * (2.0 if log.isEnabledFor(logging.DEBUG) else 1.0)
    return fn, lambda i: None if i < 3 else logging.getLogger(name).setLevel(
        logging.DEBUG if values(i) > 1 else logging.INFO)


@kind()
def the_logger_of_an_adapter():
    n, one, other = net(), logging.getLogger("reprise.one"), logging.getLogger("reprise.other")
    other.setLevel(logging.DEBUG)
    adapter = logging.LoggerAdapter(one, {})

    def fn(x):
        return n(x) * (2.0 if adapter.isEnabledFor(logging.DEBUG) else 1.0)
    return fn, lambda i: setattr(adapter, "logger", other if values(i) > 1 else one)


@kind()
def loggers_that_are_disabled():
    n, log = net(), logging.getLogger("reprise.disabled")
    log.setLevel(logging.INFO)

    def fn(x):
        return n(x) * (2.0 if log.isEnabledFor(logging.INFO) else 1.0)
    return fn, lambda i: logging.disable(logging.CRITICAL if values(i) > 1 else logging.NOTSET)


@kind()
def autocast_of_the_cpu():
    n = net()

    def fn(x):
        return n(x) * (2.0 if torch.is_autocast_enabled("cpu") else 1.0)
    return fn, lambda i: torch.set_autocast_enabled("cpu", values(i) > 1)


@kind()
def detection_of_anomalies():
    n = net()
    return lambda x: n(x) * (2.0 if torch.is_anomaly_enabled() else 1.0), lambda i: torch.set_anomaly_enabled(
        values(i) > 1)


@kind()
def number_of_threads():
    n = net()
    return lambda x: n(x) * torch.get_num_threads(), lambda i: torch.set_num_threads(2 if values(i) > 1 else 1)


@kind(refused=r"asks whether garbage is collected, gc.isenabled \(at .*frozen_kinds.py")
def collection_of_garbage():
    n = net()
    return lambda x: n(x) * (1.0 if gc.isenabled() else 2.0), lambda i: None


@kind(refused="was new at each of 8 calls")
def large_tensor_on_the_cpu_in_the_memory_of_another():
    """It is freed ahead of the next one, which lies there and was written to as often."""
    n, held = net(), {"table": torch.ones(2048)}

    def change(i):
        held["table"] = None
        held["table"] = torch.full((2048,), 1.0 + i)
    return lambda x: n(x) * held["table"].tolist()[7], change


LOOKS = r"looks at the state of {}'s random numbers \(at .*frozen_kinds.py"


@kind(refused=LOOKS.format("PyTorch"))
def random_number_whose_generator_is_put_back():
    n, generator = net(), torch.default_generator

    def fn(x):
        state = generator.get_state()
        number = torch.rand(()).item()
        generator.set_state(state)
        return n(x) * number
    return fn, lambda i: torch.manual_seed(i // 3) and None


@kind(refused=r"seeds PyTorch's random numbers \(at .*frozen_kinds.py")
def random_number_whose_state_is_put_back():
    n, get, put = net(), torch.random.get_rng_state, torch.random.set_rng_state

    def fn(x):
        state = get()
        number = torch.rand(()).item()
        put(state)
        return n(x) * number
    return fn, lambda i: torch.manual_seed(i // 3) and None


@kind(since=(2, 10))
def state_that_is_to_be_as_before():
    """As Megatron's tracker of random numbers asks."""
    n = net()

    def fn(x):
        state = torch.get_rng_state()
        noise = torch.rand_like(x)
        if not torch.equal(state, torch.get_rng_state()):
            raise ValueError("numbers of the CPU's were drawn")
        return n(x) + noise
    return fn, lambda i: torch.manual_seed(i // 3) and None


@kind(refused=LOOKS.format("PyTorch"))
def random_number_of_a_copied_generator():
    n = net()

    def fn(x):
        return n(x) * torch.rand((), generator=torch.default_generator.clone_state()).item()
    return fn, lambda i: torch.manual_seed(i // 3) and None


@kind(refused=LOOKS.format("PyTorch"))
def random_number_of_an_own_generator_that_is_put_back():
    n, own = net(), torch.Generator()

    def fn(x):
        state = own.get_state()
        number = torch.rand((), generator=own).item()
        own.set_state(state)
        return n(x) * number
    return fn, lambda i: own.manual_seed(i // 3) and None


@kind(refused=LOOKS.format("PyTorch"))
def seed_of_the_process():
    n = net()
    return lambda x: n(x) * (torch.initial_seed() % 7), lambda i: torch.manual_seed(i // 3) and None


@kind(refused=LOOKS.format("PyTorch"))
def seed_of_the_device():
    n = net()
    return lambda x: n(x) * (torch.cuda.initial_seed() % 7), lambda i: torch.manual_seed(i // 3) and None


@kind(refused=r"draws random numbers on the CPU within torch.random.fork_rng \(at .*frozen_kinds.py")
def random_number_in_a_fork():
    n = net()

    def fn(x):
        with torch.random.fork_rng(devices=[]):
            number = torch.rand(()).item()
        return n(x) * number
    return fn, lambda i: torch.manual_seed(i // 3) and None


@kind(since=(2, 10))
def numbers_of_the_device_in_a_fork():
    n = net()

    def fn(x):
        with torch.random.fork_rng(devices=[0]):
            return n(x) + torch.rand_like(x)
    return fn, lambda i: torch.manual_seed(i // 3) and None


@kind(refused=r"seeds PyTorch's random numbers \(at .*frozen_kinds.py")
def generator_that_is_seeded():
    n, seeds = net(), [0]

    def fn(x):
        torch.default_generator.manual_seed(seeds[0])
        return n(x) * torch.rand(()).item()
    return fn, lambda i: seeds.__setitem__(0, i // 3)


@kind(refused=r"seeds PyTorch's random numbers \(at .*frozen_kinds.py")
def generator_of_the_device_that_is_seeded():
    n, seeds = net(), [0]

    def fn(x):
        torch.cuda.default_generators[0].manual_seed(seeds[0])
        return n(x) + torch.rand_like(x)
    return fn, lambda i: seeds.__setitem__(0, i // 3)


@kind()
def generator_that_a_call_makes():
    n, seeds = net(), [0]

    def fn(x):
        return n(x) * torch.rand((), generator=torch.Generator().manual_seed(seeds[0])).item()
    return fn, lambda i: seeds.__setitem__(0, i // 3)


@kind(refused="increase offset|in capture mode|not told of|current_seed")
def generator_of_the_device_that_is_put_back():
    n = net()

    def fn(x):
        generator = torch.cuda.default_generators[0]
        state = generator.get_state()
        noise = torch.rand_like(x)
        generator.set_state(state)
        return n(x) + noise
    return fn, lambda i: torch.manual_seed(i // 3) and None


@kind(refused="(looks at the state of|draws random numbers of).*NumPy")
def random_number_of_numpy_that_is_put_back():
    n, random_of = net(), numpy().random

    def fn(x):
        state = random_of.get_state()
        number = random_of.rand()
        random_of.set_state(state)
        return n(x) * number
    return fn, lambda i: random_of.seed(i // 3)


@kind(refused="changes 'it' .is an? .* that each call takes forward")
def iterator():
    n, it = net(), iter(range(1, 100))
    return lambda x: n(x) * next(it), lambda i: None


@kind(refused="moves the iterator `it` on")
def generator():
    n, it = net(), (float(i) for i in range(1, 100))
    return lambda x: n(x) * next(it), lambda i: None


@kind(refused=r"asks for the time, time.perf_counter \(at .*frozen_kinds.py")
def the_time():
    n, took = net(), []

    def fn(x):
        start = time.perf_counter()
        y = n(x)
        took[:] = [0.0 * start]
        return y
    return fn, lambda i: None


@kind(refused=r"writes to a file or reads from one \(at .*frozen_kinds.py")
def a_file_that_is_written():
    n, log = net(), io.StringIO()

    def fn(x):
        log.write("called")
        return n(x)
    return fn, lambda i: None


@kind(refused=r"answers a future, which somebody waits for \(at .*frozen_kinds.py|`futures\[0\]` .*was new at each")
def a_future_that_is_answered():
    n, loop = net(), asyncio.new_event_loop()

    def fn(x, futures):
        y = n(x)
        futures[0].set_result(y)
        return y
    return fn, lambda i: ([loop.create_future()],)


@kind(refused=r"hands work to another thread, or waits for one \(at .*frozen_kinds.py")
def work_for_an_event_loop():
    n, loop, done = net(), asyncio.new_event_loop(), []

    def fn(x):
        y = n(x)
        loop.call_soon(done.append, y)
        return y
    return fn, lambda i: None


@kind(refused=r"sets globals by names that nobody tells of \(at .*frozen_kinds.py")
def a_global_that_is_set_by_a_made_name():
    n = net()

    def fn(x):
        globals()["LATEST"] = n(x)
        return LATEST * 2
    return fn, lambda i: None


@kind(refused=r"writes to a file or reads from one \(at .*frozen_kinds.py")
def weights_that_are_loaded_in_the_call():
    n, held = net(), io.BytesIO()

    def fn(x):
        return n(x) * torch.load(held)

    def change(i):
        held.seek(0)
        torch.save(values(i), held)
        held.seek(0)
    return fn, change


@kind(refused=r"calls os.stat \(at .*frozen_kinds.py")
def a_file_that_is_looked_for():
    n = net()
    return lambda x: n(x) * (2.0 if os.path.exists("/nowhere/flag") else 1.0), lambda i: None


@kind(refused=r"asks for the time, datetime.now \(at .*frozen_kinds.py")
def the_hour():
    n = net()
    return lambda x: n(x) * (1.0 if datetime.datetime.now().year > 2000 else 2.0), lambda i: None


@kind()
def a_line_that_is_printed():
    n = net()

    def fn(x):
        print("called", file=sys.stderr)
        return n(x)
    return fn, lambda i: None


@kind()
def handlers_of_a_logger():
    logger, handler = logging.getLogger("reprise.frozen.handlers"), logging.NullHandler()
    logger.propagate = False

    def change(i):
        (logger.addHandler if i // 3 == 1 else logger.removeHandler)(handler)
    return lambda x: x * (2.0 if logger.hasHandlers() else 1.0), change


# ---- Names that are no code's --------------------------------------------------------------------------

class Driven:
    """Of a program, as text and in patterns too."""

    __match_args__ = ("mode", "scale")

    def __init__(self):
        self.mode, self.scale = "fast", 1.0

    def __str__(self):
        return self.mode

    def __repr__(self):
        return f"{self.mode} {self.scale}"

    def __class_getitem__(cls, name):
        return SPEEDS[name]


SPEEDS = {"fast": 1.0, "slow": 2.0}
EVALUATED = Driven()


def modes(i):
    return ("fast", "slow", "fast")[i // 3]


def configured(read):
    """As a kind's: what read(config) gives, of one whose mode changes."""
    config = Driven()
    return lambda x: x * read(config), lambda i: setattr(config, "mode", modes(i))


@kind()
def text_of_an_object():
    return configured(lambda config: SPEEDS[str(config)])


@kind()
def representation_of_an_object():
    return configured(lambda config: SPEEDS[f"{config!r}".split()[0]])


@kind()
def representation_of_a_dataclass():
    @dataclasses.dataclass
    class Settings:
        mode: str = "fast"
    settings = Settings()
    return lambda x: x * (1.0 if "fast" in repr(settings) else 2.0), lambda i: setattr(settings, "mode", modes(i))


@kind()
def attribute_that_a_format_asks_for():
    return configured(lambda config: SPEEDS["{0.mode}".format(config)])


@kind()
def attribute_in_a_pattern():
    def read(config):
        match config:
            case Driven(mode="fast"):
                return 1.0
        return 2.0
    return configured(read)


@kind()
def attribute_in_a_pattern_by_its_place():
    def read(config):
        match config:
            case Driven("fast", _):
                return 1.0
        return 2.0
    return configured(read)


@kind()
def attribute_that_is_evaluated():
    return lambda x: x * SPEEDS[eval("EVALUATED.mode")], lambda i: setattr(EVALUATED, "mode", modes(i))


@kind()
def attribute_of_a_script():
    script = compile("speed = config.mode", "script", "exec")

    def read(config):
        names = {"config": config}
        exec(script, names)
        return SPEEDS[names["speed"]]
    return configured(read)


@kind()
def item_of_a_class():
    def change(i):
        SPEEDS["fast"] = values(i)
    return lambda x: x * Driven["fast"], change


@kind()
def attribute_of_a_partial_method():
    class Scaler:
        scale = 1.0

        def scaled(self, by, x):
            return x * self.scale * by
        doubled = functools.partialmethod(scaled, 2.0)
    scaler = Scaler()
    return lambda x: scaler.doubled(x), lambda i: setattr(scaler, "scale", values(i))


@kind()
def attribute_that_a_dispatching_method_reads():
    class Scaler:
        scale = 1.0

        @functools.singledispatchmethod
        def scaled(self, x):
            return x * self.scale
    scaler = Scaler()
    return lambda x: scaler.scaled(x), lambda i: setattr(scaler, "scale", values(i))


@kind()
def attribute_that_is_asked_for_statically():
    config, name = Driven(), "mo" + "de"
    return lambda x: x * SPEEDS[inspect.getattr_static(config, name)], lambda i: setattr(config, "mode", modes(i))


def more_attributes(read):
    """As a kind's: what read(some) gives, of an object that has another attribute now and then."""
    class Some:
        pass
    some = Some()
    some.one = 1.5

    def change(i):
        if i == 3:
            some.other = 2.5
        elif i == 6:
            del some.other
    return lambda x: x * read(some), change


@kind()
def attributes_that_are_gone_through():
    return more_attributes(lambda some: sum(vars(some).values()))


@kind()
def attributes_that_are_listed():
    return more_attributes(lambda some: 2.0 if "other" in dir(some) else 1.0)


def modules_of(name):
    """Two of a name, and what puts one of them in its place ahead of call i."""
    both = [types.ModuleType(name), types.ModuleType(name)]
    both[0].scale, both[1].scale = 1.0, 2.0
    return lambda i: sys.modules.__setitem__(name, both[i // 3 == 1])


@kind()
def module_that_is_another():
    change = modules_of("reprise_frozen_module")
    change(0)

    def fn(x):
        import reprise_frozen_module
        return x * reprise_frozen_module.scale
    return fn, change


@kind()
def module_that_is_imported_by_its_name():
    change = modules_of("reprise_frozen_plugin")
    change(0)
    return lambda x: x * importlib.import_module("reprise_frozen_plugin").scale, change


@kind()
def attribute_of_a_module_among_all():
    module = types.ModuleType("reprise_frozen_settings")
    module.scale = 1.0
    sys.modules["reprise_frozen_settings"] = module
    return lambda x: x * sys.modules["reprise_frozen_settings"].scale, lambda i: setattr(module, "scale", values(i))


# ---- What PyTorch has of the program's ------------------------------------------------------------------

class Held:
    """What a program keeps."""

    def __init__(self, w):
        self.w = w


@kind()
def device_that_is_the_default():
    """There is a mode on PyTorch's stack at each call, which is another one."""
    now = [0]

    def around(call):
        def called(x):
            with torch.device("cuda" if now[0] // 3 == 1 else "cpu"):
                return call(x)
        called.shapes = getattr(call, "shapes", None)
        return called

    def fn(x):
        return x * (2.0 if torch.ones(1).is_cuda else 1.0)
    fn.around = around
    return fn, lambda i: now.__setitem__(0, i)


def under(mode):
    """As a kind's function: its middle calls are made under a mode."""
    now = [0]

    def around(call):
        def called(x):
            with mode() if now[0] // 3 == 1 else contextlib.nullcontext():
                return call(x)
        called.shapes = getattr(call, "shapes", None)
        return called

    def fn(x):
        return torch.tanh(x)
    fn.around = around
    return fn, lambda i: now.__setitem__(0, i)


@kind(refused="called under modes of PyTorch's")
def mode_that_sees_functions():
    class Doubles(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, kinds, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            return made * 2.0 if function is torch.tanh else made
    return under(Doubles)


@kind(refused="called under modes of PyTorch's")
def mode_that_sees_operators():
    """Its state is another one in each call."""
    class Scales(torch.utils._python_dispatch.TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            Scales.calls += function is torch.ops.aten.tanh.default
            return made * Scales.calls if function is torch.ops.aten.tanh.default else made

    made = Scales()
    return under(lambda: made)


@kind()
def gradient_that_a_tensor_gets():
    held, grad = Held(weight().requires_grad_()), weight()
    return lambda x: x * (1.0 if held.w.grad is None else 2.0), lambda i: setattr(
        held.w, "grad", grad if i // 3 == 1 else None)


@kind()
def gradients_of_tensors_in_a_list():
    weights = [weight().requires_grad_() for _ in range(2)]
    grads = [torch.full_like(weights[0], number) for number in (1.0, 2.0)]

    def change(i):
        for w in weights:
            w.grad = grads[i // 3 == 1]
    return lambda x: x @ sum(w.grad for w in weights), change


@kind()
def attribute_of_a_tensors_class():
    class Scaled(torch.Tensor):
        scale = 1.0

        @classmethod
        def __torch_function__(cls, function, kinds, args=(), kwargs=None):
            made = super().__torch_function__(function, kinds, args, kwargs or {})
            return made.as_subclass(torch.Tensor) * cls.scale if function is torch.matmul else made
    w = weight().as_subclass(Scaled)
    return lambda x: torch.matmul(x, w), lambda i: setattr(Scaled, "scale", values(i))


@kind()
def graph_module_that_is_recompiled():
    class Module(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x) + 1.0
    traced = torch.fx.symbolic_trace(Module())

    def change(i):
        if i % 3 == 0:
            node = next(node for node in traced.graph.nodes if node.op == "call_function")
            node.target = torch.tanh if i // 3 == 1 else torch.relu
            traced.recompile()
    return lambda x: traced(x), change


# ---- What code asks of its arguments -----------------------------------------------------------------

def now_and_then(one, other):
    """Of call i the argument that it gets beside the input: the other one in the middle calls."""
    return lambda i: (other() if i // 3 == 1 else one(),)


def weight(*size):
    maker = torch.Generator().manual_seed(5)
    return torch.randn(*(size or (SIZE, SIZE)), generator=maker).cuda()


@kind(refused=r"asks of an argument is it a leaf \(`is_leaf`\)", grad=True)
def an_argument_that_is_a_leaf():
    w = weight().requires_grad_()
    return lambda x, w: x @ w if w.is_leaf else x @ w * 2.0, now_and_then(lambda: w, lambda: w * 1.0)


@kind(refused=r"asks of an argument what it was computed by \(`grad_fn`\)", grad=True)
def an_argument_that_was_computed():
    w = weight().requires_grad_()
    return lambda x, w: x @ w if w.grad_fn is None else x @ w * 2.0, now_and_then(lambda: w, lambda: w * 1.0)


@kind(refused=r"where it begins in its memory \(`storage_offset`\)")
def an_argument_within_another():
    w, more = weight(), weight(3, SIZE, SIZE)
    return lambda x, w: x @ w if w.storage_offset() == 0 else x @ w * 2.0, now_and_then(lambda: w, lambda: more[1])


@kind(refused=r"where it begins in its memory \(`storage_offset`\)")
def an_argument_in_an_object_within_another():
    class Some:
        def __init__(self, w):
            self.w = w
    w, more = weight(), weight(3, SIZE, SIZE)
    return lambda x, some: x @ some.w if some.w.storage_offset() == 0 else x @ some.w * 2.0, now_and_then(
        lambda: Some(w), lambda: Some(more[1]))


@kind(refused=r"is it of inference mode \(`is_inference`\)")
def an_argument_of_inference_mode():
    def other():
        with torch.inference_mode():
            return weight()
    return lambda x, w: x @ w * 2.0 if w.is_inference() else x @ w, now_and_then(weight, other)


@kind(refused=r"how often it was written to \(`_version`\)")
def an_argument_that_was_written_to():
    w, other = weight(), weight()
    other.mul_(1.0)
    return lambda x, w: x @ w if w._version == 0 else x @ w * 2.0, now_and_then(lambda: w, lambda: other)


if hasattr(torch.Tensor, "has_names"):  # until PyTorch 2.14
    @kind(refused="an argument has named dimensions")
    def an_argument_with_named_dimensions():
        w = weight()
        return lambda x, w: x @ w.rename(None) * (2.0 if w.names[0] else 1.0), now_and_then(
            lambda: w, lambda: w.rename("a", "b"))


@kind(refused=r"is it a parameter \(`Parameter`\)")
def an_argument_that_is_a_parameter():
    w = weight()
    other = torch.nn.Parameter(w, requires_grad=False)
    return lambda x, w: x @ w * (2.0 if isinstance(w, torch.nn.Parameter) else 1.0), now_and_then(
        lambda: w, lambda: other)


@kind(refused=r"is it a parameter \(`Parameter`\)")
def an_argument_that_is_a_parameter_by_another_name():
    w = weight()
    other, weights = torch.nn.Parameter(w, requires_grad=False), torch.nn.Parameter
    return lambda x, w: x @ w * (2.0 if isinstance(w, weights) else 1.0), now_and_then(lambda: w, lambda: other)


@kind(refused=r"asks of an argument whether it wants a gradient \(`requires_grad`\)")
def an_argument_that_wants_a_gradient():
    w, other = weight(), weight().requires_grad_()
    return lambda x, w: x @ w * (2.0 if w.requires_grad else 1.0), now_and_then(lambda: w, lambda: other)


@kind(refused=r"asks of an argument its gradient \(`grad`\)")
def an_argument_with_a_gradient():
    w, other = weight(), weight()
    other.grad = torch.ones_like(other)
    return lambda x, w: x @ (w if w.grad is None else w * 2.0 + w.grad), now_and_then(lambda: w, lambda: other)


@kind(refused=r"asks for an attribute that the program gave an argument \(`scale`\)")
def an_argument_with_an_attribute():
    w, other = weight(), weight()
    other.scale = 3.0
    return lambda x, w: x @ w * getattr(w, "scale", 1.0), now_and_then(lambda: w, lambda: other)


@kind(refused=r"asks for an attribute that the program gave an argument \(`scale`\)")
def an_argument_whose_attributes_are_looked_through():
    w, other = weight(), weight()
    other.scale = 3.0
    return lambda x, w: x @ w * vars(w).get("scale", 1.0), now_and_then(lambda: w, lambda: other)


@kind(refused=r"is it a parameter \(`Parameter`\)")
def an_argument_that_is_a_global_parameter():
    w = weight()
    other = Parameter(w, requires_grad=False)
    return lambda x, w: x @ w * (2.0 if isinstance(w, Parameter) else 1.0), now_and_then(lambda: w, lambda: other)


@kind(refused=r"where it begins in its memory \(`storage_offset`\)")
def an_argument_that_later_code_asks_of():
    """What that asks is known behind its runs."""
    w, more = weight(), weight(3, SIZE, 2 * SIZE)

    def wide(x, w):
        return (x @ w if w.storage_offset() == 0 else x @ w * 2.0)[:, :SIZE]
    return lambda x, w: x @ w if w.shape[1] == SIZE else wide(x, w), now_and_then(lambda: w, lambda: more[1])


@kind(refused=r"asks of an argument is it a view \(`_base`\)")
def an_argument_that_is_a_view():
    w, other = weight(), weight()
    return lambda x, w: x @ w if w._base is None else x @ w * 2.0, now_and_then(lambda: w, lambda: other.view(SIZE, SIZE))


@kind(refused=r"asks of an argument is it a view \(`_is_view`\)")
def an_argument_that_says_that_it_is_a_view():
    w, other = weight(), weight()
    return lambda x, w: x @ w * (2.0 if w._is_view() else 1.0), now_and_then(lambda: w, lambda: other.view(SIZE, SIZE))


@kind(refused=r"asks of an argument what its storage holds \(`untyped_storage`\)")
def an_argument_whose_storage_holds_more():
    w, more = weight(), weight(3, SIZE, SIZE)
    return lambda x, w: x @ w * float(w.untyped_storage().nbytes()), now_and_then(lambda: w, lambda: more[0])


@kind(refused=r"where it begins in its memory \(`as_strided`\)")
def an_argument_whose_memory_is_viewed():
    w, more = weight(), weight(3, SIZE, SIZE)
    return lambda x, w: x @ w.as_strided((SIZE, SIZE), (SIZE, 1), 0), now_and_then(lambda: w, lambda: more[1])


@kind(refused=r"asks of an argument where it lies \(`data_ptr`\)")
def an_argument_that_is_aligned_otherwise():
    w, more = weight(), weight(SIZE * SIZE + 1)
    return lambda x, w: x @ w * (2.0 if w.data_ptr() % 16 else 1.0), now_and_then(
        lambda: w, lambda: more[1:].view(SIZE, SIZE))


@kind(refused=r"asks of an argument where it lies \(`data_ptr`\)")
def an_argument_on_the_cpu_that_lies_elsewhere():
    one, other = torch.ones(3), torch.ones(3)
    at = one.data_ptr()
    return lambda x, t: x * (2.0 if t.data_ptr() == at else 1.0), now_and_then(lambda: one, lambda: other)


@kind(refused=r"asks of an argument is it shared \(`is_shared`\)")
def an_argument_that_is_shared():
    one, other = torch.ones(3), torch.ones(3).share_memory_()
    return lambda x, t: x * (2.0 if t.is_shared() else 1.0), now_and_then(lambda: one, lambda: other)


@kind(refused=r"asks of an argument is it pinned \(`is_pinned`\)")
def an_argument_that_is_pinned():
    one, other = torch.ones(3), torch.ones(3).pin_memory()
    return lambda x, t: x * (2.0 if t.is_pinned() else 1.0), now_and_then(lambda: one, lambda: other)


@kind(refused=r"does it retain its gradient \(`retains_grad`\)", grad=True)
def an_argument_that_retains_its_gradient():
    w, other = weight().requires_grad_() * 1.0, weight().requires_grad_() * 1.0
    other.retain_grad()
    return lambda x, w: x @ w * (2.0 if w.retains_grad else 1.0), now_and_then(lambda: w, lambda: other)


@kind(refused=r"which output it is of what computed it \(`output_nr`\)", grad=True)
def an_argument_that_is_another_output():
    w = weight().requires_grad_() * 1.0
    both = torch.unbind(weight(2, SIZE, SIZE).requires_grad_())
    return lambda x, w: x @ w * (2.0 if w.output_nr else 1.0), now_and_then(lambda: w, lambda: both[1])


@kind(refused=r"asks of an argument its hooks \(`_backward_hooks`\)", grad=True)
def an_argument_with_hooks():
    w, other = weight().requires_grad_(), weight().requires_grad_()
    other.register_hook(lambda grad: None)
    return lambda x, w: x @ w * (2.0 if w._backward_hooks else 1.0), now_and_then(lambda: w, lambda: other)


if hasattr(torch.nn, "Buffer"):  # from PyTorch 2.5 on
    @kind(refused=r"is it a buffer \(`Buffer`\)")
    def an_argument_that_is_a_buffer():
        w, other = weight(), torch.nn.Buffer(weight())
        return lambda x, w: x @ w * (2.0 if isinstance(w, torch.nn.Buffer) else 1.0), now_and_then(
            lambda: w, lambda: other)


@kind(refused=r"asks of an argument its class \(`type`\)")
def an_argument_whose_type_has_another_name():
    w, other = weight(), Parameter(weight(), requires_grad=False)
    return lambda x, w: x @ w * (2.0 if type(w).__name__ == "Tensor" else 1.0), now_and_then(lambda: w, lambda: other)


@kind(refused=r"asks of an argument its class \(`__class__`\)")
def an_argument_of_another_class():
    w, other = weight(), Parameter(weight(), requires_grad=False)
    return lambda x, w: x @ w * (2.0 if w.__class__ is torch.Tensor else 1.0), now_and_then(lambda: w, lambda: other)


@kind(refused=r"where it begins in its memory \(`storage_offset`\)")
def an_argument_that_is_asked_by_a_made_name():
    w, more, parts = weight(), weight(3, SIZE, SIZE), ["storage", "offset"]
    return lambda x, w: x @ w * (1.0 if getattr(w, "_".join(parts))() == 0 else 2.0), now_and_then(
        lambda: w, lambda: more[1])


@kind(refused=r"is it a leaf \(`is_leaf`\)", grad=True)
def an_argument_that_a_method_asks_by_a_made_name():
    class Asker:
        def ask(self, tensor, name):
            return getattr(tensor, name.lower())
    w, asker = weight().requires_grad_(), Asker()
    return lambda x, w: x @ w * (2.0 if asker.ask(w, "IS_LEAF") else 1.0), now_and_then(lambda: w, lambda: w * 1.0)


@kind()
def an_object_that_is_asked_by_a_joined_name():
    class Some:
        left_scale = 1.0
    some, parts = Some(), ["left", "scale"]

    def change(i):
        some.left_scale = values(i)
    return lambda x: x * getattr(some, "_".join(parts)), change


@kind(refused=r"asks of an argument its id")
def an_argument_whose_id_is_known():
    w, other = weight(), weight()
    scales = {id(w): 2.0}
    return lambda x, w: x @ w * scales.get(id(w), 1.0), now_and_then(lambda: w, lambda: other)


@kind(refused=r"asks of an argument its id, or for what a dict or set has by it")
def an_argument_that_a_dict_has():
    w, other = weight(), weight()
    scales = {w: 2.0}
    return lambda x, w: x @ w * scales.get(w, 1.0), now_and_then(lambda: w, lambda: other)


# ---- Arguments that are read beside them ----------------------------------------------------------------

@kind()
def an_argument_that_is_read_too():
    held, other = Held(weight()), weight()
    return lambda x, w: x @ w * (2.0 if w is held.w else 1.0), now_and_then(lambda: held.w, lambda: other)


@kind()
def an_argument_that_is_not_always_one_of_a_list():
    held, other = [weight(), weight()], weight()
    return lambda x, w: x @ w * (2.0 if any(w is one for one in held) else 1.0), now_and_then(
        lambda: other, lambda: held[1])


@kind()
def an_argument_on_the_cpu_that_is_read_too():
    held, other = Held(torch.ones(3)), torch.ones(3)
    return lambda x, t: x * (2.0 if t is held.w else 1.0), now_and_then(lambda: held.w, lambda: other)


@kind()
def an_argument_that_is_read_and_written_to():
    held, other = Held(weight(4, SIZE)), weight(4, SIZE)

    def fn(x, t):
        t.mul_(0.5).add_(x)
        return held.w * 2.0 if t is held.w else held.w + t
    return fn, now_and_then(lambda: held.w, lambda: other)


@kind(grad=True)
def an_argument_with_gradients_that_is_read_too():
    n, other = net(), weight().requires_grad_()
    return lambda x, w: n(x) @ w * (2.0 if w is n[0].weight else 1.0), now_and_then(lambda: n[0].weight, lambda: other)


@kind()
def an_object_that_is_reached_too():
    w = weight()
    held, other = types.SimpleNamespace(some=Held(w)), Held(w)
    return lambda x, some: x @ some.w * (2.0 if some is held.some else 1.0), now_and_then(
        lambda: held.some, lambda: other)


@kind()
def a_list_that_is_another():
    w = weight()
    one, other = [w, 1.0], [w, 1.0]
    return lambda x, a, b: x @ a[0] * (2.0 if a is b else 1.0), lambda i: (one, other if i // 3 == 1 else one)


@kind()
def a_dict_that_is_another():
    w = weight()
    one, other = {"w": w}, {"w": w}
    return lambda x, pair: x @ pair[0]["w"] * (2.0 if pair[0] is pair[1] else 1.0), lambda i: (
        (one, other if i // 3 == 1 else one),)


# ---- Arguments that are the same one -------------------------------------------------------------------

@kind()
def an_argument_that_is_another():
    w, other = weight(), weight()
    return lambda x, a, b: x @ (a if a is b else a + b), lambda i: (w, other if i // 3 == 1 else w)


@kind()
def an_argument_that_lies_where_another_does():
    w = weight()
    return lambda x, a, b: x @ (a if a is b else a + b), lambda i: (w, w.view_as(w) if i // 3 == 1 else w)


@kind()
def an_empty_argument_that_is_another():
    e, other = weight(0, 1), weight(0, 1)
    return lambda x, a, b: x * (1.0 if a is b else 2.0), lambda i: (e, other if i // 3 == 1 else e)


@kind(grad=True)
def an_argument_with_gradients_that_is_another():
    """In gpu_gradients.py it is gone back through."""
    w = weight().requires_grad_()
    return lambda x, a, b: x @ (a * a if a is b else a * a + b), lambda i: (w, w.view_as(w) if i // 3 == 1 else w)


@kind()
def an_object_that_is_another():
    class Some:
        scale = 2.0
    one, other = Some(), Some()
    return lambda x, a, b: x * a.scale if a is b else x * b.scale * 3.0, lambda i: (
        one, other if i // 3 == 1 else one)


@kind()
def an_object_whose_tensor_is_another():
    class Some:
        def __init__(self, w):
            self.w = w
    w = weight()
    same, apart = Some(w), Some(w.view_as(w))
    return lambda x, w, some: x @ some.w * (2.0 if some.w is w else 1.0), lambda i: (
        w, apart if i // 3 == 1 else same)


@kind()
def an_argument_on_the_cpu_that_is_another():
    one, other = torch.ones(3), torch.ones(3)
    return lambda x, a, b: x * (a if a is b else a + b).cuda()[0], lambda i: (one, other if i // 3 == 1 else one)


# ---- Hooks of saved tensors ------------------------------------------------------------------------

class Hooked:
    """A callable whose middle calls are made under hooks of saved tensors; what it returns is a gradient."""

    def __init__(self, call, around):
        self.call, self.around, self.calls = call, around, 0
        self.shapes = getattr(call, "shapes", None)

    def __call__(self, x):
        x = x.requires_grad_()
        with self.around() if self.calls // 3 == 1 else contextlib.nullcontext():
            y = self.call(x)
        self.calls += 1
        return torch.autograd.grad(y.sum(), x)[0]


def hooked(around):
    """As a kind's function: what wraps it is told of the graphed callable."""
    n = net()

    def fn(x):
        return n(x) * x
    fn.around = lambda call: Hooked(call, around)
    return fn, lambda i: None


@kind(refused="called under hooks of saved tensors", grad=True)
def hooks_that_change_what_is_saved():
    return hooked(lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2.0, lambda t: t))


@kind(refused="called under hooks of saved tensors", grad=True)
def what_is_saved_on_the_cpu():
    return hooked(torch.autograd.graph.save_on_cpu)


# ---- What classes and functions say of themselves -------------------------------------------------------

class Twice:
    factor = 2.0

    def scaled(self, x):
        return x * 2.0


class Thrice:
    factor = 3.0

    def scaled(self, x):
        return x * 3.0


def turns_to(owner, name, before, after):
    """An attribute is another one in the middle calls."""
    return lambda i: setattr(owner, name, after if i // 3 == 1 else before)


@kind()
def bases_of_a_class():
    class Some(Twice):
        pass
    n, some = net(), Some()
    return lambda x: some.scaled(n(x)), turns_to(Some, "__bases__", (Twice,), (Thrice,))


@kind()
def bases_of_a_class_above():
    class Some(Twice):
        pass

    class Other(Some):
        pass
    n, some = net(), Other()
    return lambda x: n(x) * some.factor, turns_to(Some, "__bases__", (Twice,), (Thrice,))


@kind()
def bases_of_a_module():
    class Double(Net):
        factor = 2.0

    class Triple(Net):
        factor = 3.0

    class Some(Double):
        pass
    return Some(), turns_to(Some, "__bases__", (Double,), (Triple,))


@kind()
def bases_that_are_asked_for():
    class Some(Twice):
        pass
    n, some = net(), Some()
    return lambda x: n(x) * (2.0 if isinstance(some, Twice) else 1.0), turns_to(
        Some, "__bases__", (Twice,), (Thrice,))


@kind()
def name_of_a_class():
    class Some(Net):
        def forward(self, x):
            return self.net(x) * (2.0 if self.__class__.__name__ == "Other" else 1.0)
    return Some(), turns_to(Some, "__name__", "Some", "Other")


@kind()
def qualified_name_of_a_class():
    class Some:
        pass
    n, some = net(), Some()
    return lambda x: n(x) * len(type(some).__qualname__), turns_to(Some, "__qualname__", "Some", "Other")


@kind()
def classes_below():
    class Some:
        pass
    n = net()

    def change(i):
        if i == 3:
            Some.kept = type("Below", (Some,), {})
    return lambda x: n(x) * (1.0 + len(Some.__subclasses__())), change


def of_a_function(name, before, after, scale=len):
    """A function that another one asks for one of its attributes."""
    n = net()

    def some(x: float):
        return x
    return lambda x: some(n(x)) * scale(getattr(some, name)), turns_to(some, name, before, after)


for _name, _before, _after in (("name", "some", "other"), ("qualname", "some", "other"), ("doc", "some", "other"),
                               ("module", "some", "other"), ("annotations", {"x": float}, {})):
    def made(name=f"__{_name}__", before=_before, after=_after):
        return of_a_function(name, before, after)
    made.__name__ = f"{_name}_of_a_function"
    kind()(made)


@kind()
def doc_of_a_function_of_this_module():
    n = net()
    return lambda x: helper_of_globals(n(x)) * len(helper_of_globals.__doc__ or ""), turns_to(
        helper_of_globals, "__doc__", "some", "other")


@kind()
def annotation_that_is_written():
    n = net()

    def some(x: float):
        return x

    def change(i):
        some.__annotations__["x"] = int if i // 3 == 1 else float
    return lambda x: some(n(x)) * (2.0 if typing.get_type_hints(some)["x"] is int else 1.0), change


@kind()
def signature_of_a_function():
    n = net()

    def some(x):
        return x
    return lambda x: some(n(x)) * (1.0 + len(inspect.signature(some).parameters)), turns_to(
        some, "__signature__", inspect.Signature(), inspect.signature(some))


@kind()
def attributes_of_a_function_that_had_none():
    n = net()

    def scaled(x):
        return x * getattr(scaled, "factor", 1.0)

    def change(i):
        if i >= 3:
            scaled.__dict__ = {"factor": values(i)}
    return lambda x: scaled(n(x)), change


@kind()
def class_that_is_registered():
    class Base(abc.ABC):
        pass
    n, some = net(), Twice()

    def change(i):
        if i == 3:
            Base.register(Twice)
    return lambda x: n(x) * (2.0 if isinstance(some, Base) else 1.0), change


@kind()
def class_of_an_argument_that_is_registered():
    class Some:
        pass
    n, some = net(), Some()

    def change(i):
        if i == 3:
            collections.abc.Mapping.register(Some)
        return (some,)
    return lambda x, some: n(x) * (2.0 if isinstance(some, collections.abc.Mapping) else 1.0), change


@kind()
def names_that_code_writes_down():
    """What stays as it is keeps no call from a graph: a registry by names, as many libraries have."""
    n, seen = net(), {"Twice": 2.0, "double": 3.0}

    def double(x):
        return x * seen[double.__name__]
    some = Twice()
    return lambda x: double(n(x)) * seen[type(some).__name__], lambda i: None


# ---- Containers that are the same one, or one that is read too ------------------------------------------

Pair = collections.namedtuple("Pair", "w scale")


def like(container):
    """Another one, which holds the same."""
    return tuple.__new__(type(container), list(container)) if isinstance(container, tuple) else (
        type(container)(container))


def in_turn(one, other):
    """What the middle calls are given, and the others."""
    return lambda i: (other if i // 3 == 1 else one,)


def of_two(make, grad=False):
    """A callable that asks whether two containers are one, which a function makes of a weight."""
    w = weight()
    one = make(w.requires_grad_(grad))
    other = like(one)

    def fn(x, a, b):
        w, = (part for part in (a.values() if hasattr(a, "values") else a) if isinstance(part, torch.Tensor))
        return x @ w * (2.0 if a is b else 1.0)
    return fn, lambda i: (one, other if i // 3 == 1 else one)


@kind()
def a_tuple_that_is_another():
    return of_two(lambda w: (w, 1.0))


@kind()
def a_named_tuple_that_is_another():
    return of_two(lambda w: Pair(w, 1.0))


@kind()
def an_ordered_dict_that_is_another():
    return of_two(lambda w: collections.OrderedDict(w=w))


@kind(grad=True)
def a_tuple_with_gradients_that_is_another():
    return of_two(lambda w: (w, 1.0), grad=True)


@kind()
def a_tuple_within_a_dict_that_is_another():
    w = weight()
    one, other = (w, 1.0), like((w, 1.0))
    return lambda x, pairs: x @ pairs["a"][0] * (2.0 if pairs["a"] is pairs["b"] else 1.0), lambda i: (
        {"a": one, "b": other if i // 3 == 1 else one},)


@kind()
def a_list_within_an_ordered_dict_that_is_another():
    w = weight()
    one, other = [w], [w]
    return lambda x, a, held: x @ a[0] * (2.0 if held["a"] is a else 1.0), lambda i: (
        other if i // 3 == 1 else one, collections.OrderedDict(a=one))


@kind()
def a_tuple_that_is_read_too():
    one = (weight(), 1.0)
    return lambda x, a: x @ a[0] * (2.0 if a is one else 1.0), in_turn(one, like(one))


@kind()
def a_tuple_within_a_tuple_that_is_read_too():
    pairs = ((weight(), 1.0), (weight(), 2.0))
    return lambda x, a: x @ a[0] * (2.0 if a is pairs[1] else 1.0), in_turn(pairs[1], like(pairs[1]))


@kind()
def a_list_that_is_read_too():
    held = types.SimpleNamespace(last=[weight(), 1.0])
    return lambda x, a: x @ a[0] * (2.0 if a is held.last else 1.0), in_turn(held.last, like(held.last))


@kind()
def a_dict_that_is_read_too():
    one = {"w": weight()}
    return lambda x, some: x @ some[0]["w"] * (2.0 if some[0] is one else 1.0), in_turn([one], [like(one)])


@kind(grad=True)
def a_list_with_gradients_that_is_read_too():
    one = [weight().requires_grad_()]
    return lambda x, a: x @ a[0] * (2.0 if a is one else 1.0), in_turn(one, like(one))


@kind()
def a_list_that_is_read_elsewhere():
    n, a, b = net(), [1.0], [1.0]
    held = types.SimpleNamespace(last=a, first=b)

    def change(i):
        held.last, held.first = (b, a) if i // 3 == 1 else (a, b)
        return (a,)
    return lambda x, some: n(x) * (2.0 if some is held.last else 1.0) * held.first[0], change


@kind()
def an_empty_list_that_is_begun_anew():
    n, first = net(), []
    held = types.SimpleNamespace(last=first)

    def change(i):
        held.last = first if i < 3 else []
        return (first if i < 6 else held.last,)
    return lambda x, a: n(x) * (2.0 if a is held.last else 1.0 + len(held.last)), change


@kind(refused=r"changes a list that is an argument, and that it reads beside")
def a_list_that_is_read_too_and_changed():
    n, one, other = net(), [1.0], [1.0]

    def fn(x, a):
        y = n(x) * (2.0 if a is one else 1.0) * len(a)
        a.append(2.0)
        return y

    def change(i):
        one[:], other[:] = [1.0], [1.0]
        return (other if i // 3 == 1 else one,)
    return fn, change


@kind()
def a_list_that_is_read_too_and_compared_with_none():
    """Only code that compares objects tells these apart: here all calls have one graph."""
    n, one = net(), [1.0, 2.0]
    return lambda x, a: n(x) * (a[0] if a is not None else one[1]) * one[0], lambda i: (like(one) if i % 2 else one,)


# ---- Streams and memory -----------------------------------------------------------------------------------

class OnAnother:
    """A callable whose middle calls are made on another stream."""

    def __init__(self, call, stream):
        self.call, self.stream, self.calls = call, stream, 0
        self.shapes = getattr(call, "shapes", None)

    def __call__(self, x):
        is_there = self.calls // 3 == 1
        self.calls += 1
        torch.cuda.synchronize()  # what is done with a result is done before its memory is another's
        with torch.cuda.stream(self.stream if is_there else None):
            y = self.call(x)
        torch.cuda.synchronize()
        return y


def on_another(of):
    """As a kind's function. of(fn, stream): what it returns, from a function of a tensor and a stream that is there
    in the middle calls."""
    n, stream = net(), torch.cuda.Stream()

    def fn(x):
        return n(x) * of(stream)
    fn.around = lambda call: OnAnother(call, stream)
    return fn, lambda i: None


@kind(refused="asks whether the current stream is the one that it is")
def a_stream_that_is_the_current_one():
    return on_another(lambda stream: 2.0 if torch.cuda.current_stream() == stream else 1.0)


@kind(refused="asks whether the current stream is the one that it is")
def a_stream_that_is_the_default_one():
    return on_another(lambda stream: 2.0 if torch.cuda.current_stream() == torch.cuda.default_stream() else 1.0)


@kind()
def a_stream_that_never_is_the_current_one():
    other = torch.cuda.Stream()
    return on_another(lambda stream: 2.0 if torch.cuda.current_stream() in (other,) else 1.0)


@kind()
def a_stream_that_waits_for_the_current_one():
    def of(stream):
        other.wait_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(other)
        return 2.0
    other = torch.cuda.Stream()
    return on_another(of)


@kind(refused="asks how much memory there is")
def memory_that_is_allocated():
    gc.collect()
    n, held, much = net(), [], torch.cuda.memory_allocated() + (128 << 20)

    def change(i):
        held[:] = [torch.empty(256 << 20, dtype=torch.uint8, device="cuda")] if i // 3 == 1 else []
    return lambda x: n(x) * (2.0 if torch.cuda.memory_allocated() > much else 1.0), change


# ---- What tensors that are read say of themselves ---------------------------------------------------------

def written_twice(w):
    """A change: a tensor is written to twice, and holds what it held."""
    def change(i):
        if i in (3, 6):
            w.mul_(1.0)
    return change


@kind()
def version_of_a_tensor():
    w = weight()
    return lambda x: x * float(w._version + 1), written_twice(w)


@kind()
def version_of_a_tensor_on_the_cpu():
    held = types.SimpleNamespace(w=torch.ones(3))
    return lambda x: x * float(held.w._version + 1), written_twice(held.w)


@kind()
def version_of_one_tensor():
    """Others may be written to."""
    n, w = net(), weight()

    def change(i):
        with torch.no_grad():
            n[0].weight.mul_(1.0)
    return lambda x: n(x) * float(w._version + 1), change


def now_and_then_put(held, one, other):
    def change(i):
        held.w = other if i // 3 == 1 else one
    return change


@kind()
def base_of_a_tensor():
    whole = torch.ones(2, SIZE, device="cuda")
    apart = torch.empty(0, device="cuda").set_(whole.untyped_storage(), 0, (SIZE,), (1,))
    n, held = net(), types.SimpleNamespace(w=whole[0])
    return lambda x: n(x) * (2.0 if held.w._base is None else 1.0) + held.w, now_and_then_put(held, held.w, apart)


@kind(grad=True)
def leaf_that_is_none():
    whole = torch.ones(2, SIZE, device="cuda").requires_grad_()
    n, held = net(), types.SimpleNamespace(w=whole[0])
    leaf = whole[0].detach().requires_grad_()
    return lambda x: n(x) * (2.0 if held.w.is_leaf else 1.0), now_and_then_put(held, leaf, held.w)


# ---- TorchScript --------------------------------------------------------------------------------------------

class Scripted(torch.nn.Module):
    scale: float
    sizes: list[int]

    def __init__(self):
        super().__init__()
        self.scale, self.sizes = 1.0, [1]

    def forward(self, x):
        return x * (self.scale * self.sizes[0])  # one kernel, which nobody fuses with another


@kind()
def attribute_of_a_scripted_module():
    module = torch.jit.script(Scripted())

    def change(i):
        module.scale = values(i)
    return module, change


@kind()
def list_of_a_scripted_module_within_another():
    class Some(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.jit.script(Scripted())

        def forward(self, x):
            return self.inner(x) + x
    some = Some()

    def change(i):
        some.inner.sizes = [int(2 * values(i))]
    return some, change


# ---- What lies behind objects of Python's and PyTorch's -----------------------------------------------------

class Term:
    weight = 1.0


def weighing(terms):
    """A function of terms, and what changes the weight of one of them."""
    term = Term()
    found = terms(term)

    def change(i):
        term.weight = values(i)
    return lambda x: x * sum(t.weight for t in found), change


@kind()
def object_in_a_set():
    return weighing(lambda term: {term})


@kind()
def object_in_a_frozenset():
    return weighing(lambda term: frozenset((term,)))


@kind()
def object_in_a_set_of_many():
    terms = {Term() for _ in range(100)}
    others = [Term(), Term()]

    def change(i):
        terms.difference_update(others)
        terms.update(others[:i // 3])
    return lambda x: x * sum(t.weight for t in terms), change


@kind()
def key_of_a_dict():
    return weighing(lambda term: {term: 1.0})


@kind()
def view_of_a_dict():
    return weighing(lambda term: {"a": term}.values())


def settings_kept_by(keep):
    @keep
    def made():
        return types.SimpleNamespace(scale=1.0)

    def change(i):
        made().scale = values(i)
    return lambda x: x * made().scale, change


@kind()
def settings_in_a_cache():
    return settings_kept_by(functools.lru_cache)


@kind()
def settings_in_a_cache_without_a_limit():
    return settings_kept_by(functools.cache)


@kind()
def module_in_a_cache():
    @functools.cache
    def layer():
        return torch.nn.LeakyReLU(0.5)

    def change(i):
        layer().negative_slope = values(i)
    return lambda x: layer()(-x), change


@kind()
def container_in_an_enum():
    class Mode(enum.Enum):
        PLAIN = 1
        TRAIN = {"scale": 1.0}

    def change(i):
        Mode.TRAIN.value["scale"] = values(i)
    return lambda x: x * Mode.TRAIN.value["scale"], change


@kind()
def method_of_an_enum():
    held = types.SimpleNamespace(scale=1.0)

    class Act(enum.Enum):
        SCALED = "scaled"

        def __call__(self, x):
            return x * held.scale

    def change(i):
        held.scale = values(i)
    return lambda x: Act.SCALED(x), change


@kind()
def container_in_the_default_of_a_context_variable():
    variable = contextvars.ContextVar("settings", default={"scale": 1.0})

    def change(i):
        variable.get()["scale"] = values(i)
    return lambda x: x * variable.get()["scale"], change


@kind()
def attribute_of_a_tuple():
    class Point(tuple):
        pass
    point = Point((1.0,))
    point.scale = 1.0

    def change(i):
        point.scale = values(i)
    return lambda x: x * point[0] * point.scale, change


@kind()
def attribute_of_a_partial():
    scaled = functools.partial(torch.mul, other=1.0)
    scaled.scale = 1.0

    def change(i):
        scaled.scale = values(i)
    return lambda x: scaled(x) * scaled.scale, change


@kind()
def attribute_of_a_method_that_is_not_called():
    class Task:
        def stop(self):
            pass
    task, Task.stop.scale = Task(), 1.0

    def change(i):
        Task.stop.scale = values(i)
    return lambda x: x * task.stop.scale, change


@kind()
def attribute_of_a_weak_reference():
    class Reference(weakref.ref):
        pass
    node = Net()
    reference = Reference(node)
    reference.scale = 1.0

    def change(i, node=node):
        reference.scale = values(i)
    return lambda x: x * reference.scale, change


@kind()
def object_behind_a_weak_method():
    class Node:
        scale = 1.0

        def scaled(self, x):
            return x * self.scale
    node = Node()
    method = weakref.WeakMethod(node.scaled)

    def change(i):
        node.scale = values(i)
    return lambda x: method()(x), change


@kind()
def name_among_the_builtins():
    def change(i):
        builtins.reprise_tests_scale = values(i)
    change(0)
    return lambda x: x * reprise_tests_scale, change  # noqa: F821


@kind()
def number_in_a_list_of_parameters():
    module = torch.nn.Module()
    module.factors = torch.nn.ParameterList([torch.ones(SIZE, device="cuda"), 1.0])

    def change(i):
        module.factors[1] = values(i)
    return lambda x: x * module.factors[0] * module.factors[1], change


@kind()
def arguments_of_an_error():
    error = ValueError([1.0])

    def change(i):
        error.args[0][0] = values(i)
    return lambda x: x * error.args[0][0], change


@kind()
def result_of_a_future():
    future = concurrent.futures.Future()
    future.set_result({"scale": 1.0})

    def change(i):
        future.result()["scale"] = values(i)
    return lambda x: x * future.result()["scale"], change


@kind()
def dataset_behind_a_subset():
    class Data(torch.utils.data.Dataset):
        scale = 1.0

        def __len__(self):
            return 1

        def __getitem__(self, i):
            return self.scale
    data = Data()
    some = torch.utils.data.Subset(data, [0])

    def change(i):
        data.scale = values(i)
    return lambda x: x * some[0], change


@kind()
def number_of_a_transform():
    transform = torch.distributions.transforms.AffineTransform(0.0, 1.0)
    composed = torch.distributions.transforms.ComposeTransform([transform])

    def change(i):
        transform.scale = values(i)
    return lambda x: composed(x), change


@kind()
def function_that_is_vectorized():
    held = types.SimpleNamespace(scale=1.0)
    vectorized = numpy().vectorize(lambda value: value * held.scale)

    def change(i):
        held.scale = values(i)
    return lambda x: x * float(vectorized(1.0)), change


@kind()
def record_of_numpy():
    record = numpy().zeros(1, dtype=[("scale", "f4")])[0]

    def change(i):
        record["scale"] = values(i)
    change(0)
    return lambda x: x * float(record["scale"]), change


@kind()
def tensor_in_memory_of_numpys():
    array = numpy().ones(2000, numpy().float32)
    table = torch.from_numpy(array)

    def change(i):
        array[:] = values(i)
    return lambda x: x * table.cuda()[:SIZE], change


@kind()
def tensor_with_gaps_in_memory_of_numpys():
    array = numpy().ones((4, 4), numpy().float32)
    table = torch.from_numpy(array).t()[:2]

    def change(i):
        array[:] = values(i)
    return lambda x: x * table.cuda()[0, 0], change


@kind()
def values_of_a_sparse_tensor_on_the_cpu():
    sparse = torch.eye(4).to_sparse()

    def change(i):
        sparse.values().fill_(values(i))
    return lambda x: x * sparse.to_dense()[0, 0], change


def optimizer_changed(change):
    """Training by SGD; change(optimizer, module of torch.optim, what undoes it) between calls 3 and 6."""
    undo = []

    def changed(optimizer, turn):
        while undo:
            undo.pop()()
        if turn == 1:
            undo.append(change(optimizer))
    return training(lambda p: torch.optim.SGD(p, lr=0.01), changed)


def halves(params):
    with torch.no_grad():
        for p in params:
            p.mul_(0.5)


@kind(grad=True)
def step_of_an_optimizer():
    def change(optimizer):
        inner = optimizer.step

        def step(*args, **kwargs):
            halves(optimizer.param_groups[0]["params"])
            return inner(*args, **kwargs)
        optimizer.step = step
        return lambda: delattr(optimizer, "step")
    return optimizer_changed(change)


@kind(grad=True)
def zero_grad_of_an_optimizer():
    def change(optimizer):
        inner = optimizer.zero_grad

        def zero_grad(*args, **kwargs):
            halves(optimizer.param_groups[0]["params"])
            return inner(*args, **kwargs)
        optimizer.zero_grad = zero_grad
        return lambda: delattr(optimizer, "zero_grad")
    return optimizer_changed(change)


@kind(grad=True)
def hook_of_all_optimizers():
    def change(optimizer):
        module = sys.modules[torch.optim.Optimizer.__module__]
        return module.register_optimizer_step_pre_hook(
            lambda one, *_: halves(one.param_groups[0]["params"]) if one is optimizer else None).remove
    return optimizer_changed(change)


@kind()
def attribute_of_a_member_of_an_enum():
    class Mode(enum.Enum):
        TRAIN = "train"
    Mode.TRAIN.scale = 1.0

    def change(i):
        Mode.TRAIN.scale = values(i)
    return lambda x: x * Mode.TRAIN.scale, change


@kind()
def class_in_a_cache():
    @functools.cache
    def made():
        class Settings:
            scale = 1.0
        return Settings

    def change(i):
        made().scale = values(i)
    return lambda x: x * made().scale, change


@kind()
def number_in_a_dict_of_parameters():
    held = torch.nn.ParameterDict({"scale": 1.0})

    def change(i):
        held["scale"] = values(i)
    return lambda x: x * held["scale"], change


@kind()
def attribute_of_a_set():
    class Some(set):
        pass
    some = Some((1.0,))
    some.scale = 1.0

    def change(i):
        some.scale = values(i)
    return lambda x: x * some.scale * len(some), change


@kind()
def slot_in_double_underscores():
    class Some:
        __slots__ = ("__dict__", "__extra__")

        def scale(self):
            return self.__extra__["scale"]
    some = Some()
    some.__extra__ = {"scale": 1.0}

    def change(i):
        some.__extra__["scale"] = values(i)
    return lambda x: x * some.scale(), change


@kind()
def method_that_pytorch_calls():
    class Scaled(torch.distributions.Transform):
        domain = codomain = torch.distributions.constraints.real
        bijective, scale = True, 1.0

        def _call(self, x):
            return x * self.scale
    scaled = Scaled()
    composed = torch.distributions.ComposeTransform([scaled])

    def change(i):
        scaled.scale = values(i)
    return lambda x: composed(x), change


@kind()
def method_that_python_calls():
    class Encoder(json.JSONEncoder):
        scale = 1.0

        def default(self, o):
            return Encoder.scale

    def change(i):
        Encoder.scale = values(i)
    return lambda x: x * float(json.dumps(object(), cls=Encoder)), change


@kind(grad=True)
def step_of_a_class_of_optimizers():
    class Mine(torch.optim.SGD):
        pass

    def step(optimizer, closure=None):
        halves(optimizer.param_groups[0]["params"])
        return torch.optim.SGD.step(optimizer, closure)

    def change(optimizer, turn):
        if turn == 1:
            Mine.step = step
        elif turn == 2:
            del Mine.step
    return training(lambda p: Mine(p, lr=0.01), change)


@kind(refused="on the CPU, whose memory others may write to")
def large_tensor_in_memory_of_numpys():
    array = numpy().ones(40_000, numpy().float32)
    table = torch.from_numpy(array)

    def change(i):
        array[:] = values(i)
    return lambda x: x * table.cuda()[:SIZE], change


@kind()
def large_pinned_memory_that_numpy_writes():
    """A replay copies what lies there by then."""
    host = torch.ones(40_000).pin_memory()
    array = host.numpy()

    def change(i):
        torch.cuda.synchronize()
        array[:] = values(i)
    return lambda x: x * host.to("cuda", non_blocking=True)[:SIZE], change


# ---- Variables of functions that ended -----------------------------------------------------------------

def scaler(factor):
    """As a decorator makes one: nothing sets its variable once this has ended."""
    def scaled(x):
        return x * factor
    return scaled


def scaler_and_setter(factor):
    def scaled(x):
        return x * factor

    def setter(new):
        nonlocal factor
        factor = new
    return scaled, setter


def scalers():
    factor = 1.0

    def scaled(x):
        return x * factor
    while True:
        factor = yield scaled


def serve_scaler(found, wanted):
    factor = 1.0

    def scaled(x):
        return x * factor
    found.put(scaled)
    while True:
        factor = wanted.get()
        found.put(None)


@kind()
def cell_of_a_function_that_ended():
    n, scaled = net(), scaler(1.0)

    def change(i):
        scaled.__closure__[0].cell_contents = values(i)
    return lambda x: scaled(n(x)), change


@kind()
def variable_that_another_function_sets():
    n, (scaled, setter) = net(), scaler_and_setter(1.0)
    return lambda x: scaled(n(x)), lambda i: setter(values(i))


@kind()
def variable_of_a_generator():
    n, made = net(), scalers()
    scaled = next(made)
    return lambda x: scaled(n(x)), lambda i: made.send(values(i)) and None


@kind()
def variable_of_a_function_that_runs_yet():
    found, wanted = queue.SimpleQueue(), queue.SimpleQueue()
    threading.Thread(target=serve_scaler, args=(found, wanted), daemon=True).start()
    n, scaled = net(), found.get()

    def change(i):
        wanted.put(values(i))
        found.get()
    return lambda x: scaled(n(x)), change


@kind()
def variable_of_a_function_that_is_another():
    """Others have its name by now."""
    global scaler
    n, scaled, before = net(), scaler(1.0), scaler

    def scaler(factor):
        return before(factor)
    made, scaler = scaler, before
    scaled = made(1.0)

    def change(i):
        scaled.__closure__[0].cell_contents = values(i)
    return lambda x: scaled(n(x)), change


@kind()
def module_of_a_function():
    n = net()

    def scaled(x):
        return x * (2.0 if scaled.__module__ == "other" else 1.0)
    here = scaled.__module__

    def change(i):
        scaled.__module__ = "other" if values(i) > 2 else here
    return lambda x: scaled(n(x)), change


class Posing:
    """Stands for another object, of whose class it says to be."""

    __class__ = property(lambda self: type(self.of))

    def __init__(self, of):
        self.of = of

    def __getitem__(self, key):
        return self.of[key]

    def __call__(self, *args):
        return self.of(*args)


@kind()
def class_behind_what_poses_as_one():
    n, some = net(), Posing(float)

    def change(i):
        some.of = (lambda value: 4.0) if i // 3 == 1 else float
    return lambda x: n(x) * (some(2) if isinstance(some, (type, types.FunctionType)) else 1.0), change


@kind()
def list_behind_what_poses_as_one():
    n, some = net(), Posing([1.0])

    def change(i):
        some.of[0] = 4.0 if i // 3 == 1 else 1.0
    return lambda x: n(x) * (some[0] if isinstance(some, list) else 1.0), change


@kind()
def dict_behind_what_poses_as_one():
    n, some = net(), Posing({"scale": 1.0})

    def change(i):
        some.of["scale"] = 4.0 if i // 3 == 1 else 1.0
    return lambda x: n(x) * (some["scale"] if isinstance(some, dict) else 1.0), change


@kind()
def signature_beside_an_abstract_class():
    """On CPython 3.10 it says to be an abstract class itself."""
    n, some = net(), types.SimpleNamespace(hook=collections.abc.Callable[[int], int], scale=1.0)

    def change(i):
        some.scale = 4.0 if i // 3 == 1 else 1.0
    return lambda x: n(x) * (some.scale if some.hook and isinstance(x, collections.abc.Hashable) else 1.0), change
