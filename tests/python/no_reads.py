# SPDX-License-Identifier: MIT
"""A callable that reads nothing beside its arguments, for tests that make parts of one."""

import types

from reprise._call.shortage import Shortages
from reprise._call.waiting import Waiting
from reprise._effects.containers import Regiven
from reprise._reads.asks import NOTHING
from reprise._reads.hyperparameters import Hyperparameters
from reprise._reads.news import News
from reprise._reads.numbers import Numbers


class NoReads:
    optimizers = ()

    @staticmethod
    def begin():
        pass

    @staticmethod
    def has_adopted():
        return False

    @staticmethod
    def trained(value):
        return []

    @staticmethod
    def eager_call(fn, args, kwargs):
        return fn(*args, **kwargs)

    @staticmethod
    def refusing(body, around):
        return around(body)

    @staticmethod
    def leave_out(places):
        assert not places
        return False

    @staticmethod
    def left_out():
        return []

    @staticmethod
    def argument(leaf):
        return ("object", type(leaf)), ()

    @staticmethod
    def short(leaf):
        return None

    @staticmethod
    def binds_all(leaf):
        return False

    @staticmethod
    def learn(values):
        pass

    @staticmethod
    def looks_at_wishes():
        return True

    @staticmethod
    def asked():
        return NOTHING

    @staticmethod
    def refusal(asked, tensor, is_split, is_whole):
        return None

    @staticmethod
    def own_tensors():
        return {}

    @staticmethod
    def asks_for_gradients():
        return False

    @staticmethod
    def snapshot():
        return [], []


class NoCpu:
    """Of a callable that is called with nothing on the CPU, and moves nothing from there."""

    tokens = staticmethod(lambda family, tensors: [])
    moving = staticmethod(lambda capture: capture())
    attempt = staticmethod(lambda *call: None)
    give_up_numbers = staticmethod(lambda family, tensors: False)


class NoRests:
    """Each call is looked at."""

    holds = False
    take = staticmethod(lambda *call: False)
    note = note_for = captured = replayed = rest_all = stir = clear = staticmethod(lambda *call, **how: None)


class NoAnswers:
    """Nothing is read on the host."""

    holds = staticmethod(lambda family: True)
    key = clear = staticmethod(lambda *given: None)
    outside = staticmethod(lambda: [])


def give_none(made):
    """What Graphed.__init__ would make of such a callable."""
    made._reads, made._news, made._max_shapes = NoReads(), News(), 1024
    made._hyperparameters, made._strange = Hyperparameters(None, NoReads()), {}
    made._numbers, made._prints = Numbers(NoReads(), False), False
    made._cpu, made._shortages, made._rests = NoCpu(), Shortages(None), NoRests()
    made._regiven, made._waiting, made._answers = Regiven(), Waiting(), NoAnswers()
    made._here, made._excused = types.SimpleNamespace(is_warm=True), {}
    made._cpu_family = lambda key: None
    made._settled = made._family = lambda key: key
    made._told_own = set()
    made._check_own, made._again_in = lambda family, own: None, lambda family: ((), None)
    made._notice_new = lambda *call: None  # keys of these tests are no keys of Graphed's
