# SPDX-License-Identifier: MIT
"""reprise.graphed: a callable whose GPU work is captured once for each shape and then replayed."""

import contextlib
import copy
import functools
import gc
import itertools
import threading
import types
import weakref

from .. import _C
from .._alloc.install import drop_segment_pools
from .._alloc.pool import Pool
from .._base import torch_private
from .._base.collector import clear_frames, uncollected
from .._base.interrupts import let_through
from .._base.lines import line_of, tell_mend
from .._base.made_objects import taking_apart
from .._base.need import need_gpu
from .._base.texts import plain
from .._base.tree import argument_names, containers_in, flatten, has_containers
from .._base.warn import warn
from .._capture import distributed, draws
from .._capture.record import Work, extents, is_alone, span
from .._effects.containers import Regiven
from .._effects.effects import Before, Changed, Effects, Unobserved, records_of
from .._effects.kept import MOST_CALLS
from .._effects.refusals import Refusals, traced_call
from .._grad.gradients import Gradients, Shared, for_fast_path, homes, is_lent
from .._grad.nodes import Aliases, Nodes
from .._grad.reached import ANEW, TRAINED, TURNED, USES, Found, Open
from .._grad.twice import Again
from .._reads.behind import Noted
from .._reads.hyperparameters import Hyperparameters, Unfollowed, is_diverged
from .._reads.news import News, names_of_leaves
from .._reads.numbers import MOST_KNOWN, Numbers
from .._reads.prints import Prints, print_again
from .._reads.reads import Reads, Unreadable
from .._reads.walk import is_plain, plain_token
from .._shapes.assigned import WHY, read_by
from .._shapes.shape import Shape, replayed
from .._shapes.split import Refused, Split
from .answers import ELSEWHERE, Answers, Asked, Told, Written, written
from .body import Joined, body_of, brings_home, cause_of, firsts_of, form_of, is_on_cpu, \
    keeps_containers, keeps_wishes, marks_given, refusal_in, refuses_gradients, spread, tells_hooks, tells_open, with_given
from .buckets import version_of
from .cpu_run import VALUE, Wanted
from .cpu_values import MOST_BYTES, CpuValues, Pair, is_taken
from .fast_path import FastPath
from .methods import method_of
from .module import pickled
from .params import find_params, is_forward
from .rests import Rests
from .shortage import Shortages, is_short, make_room
from .tune import least_us, other_leads
from .waiting import MOST_BESIDE, SHARED, Waiting
from .watch import Watch, find_modules

MOST_COMPILING = 3  # captures of a shape in which torch.compile compiles, in a row
MOST_REACHING = 4  # runs of a capture that each find further tensors to go back to
TRANSFORMED = ("it is called within a transformation of torch.func (vmap, grad, jvp, ..) or a level of forward "
               "differentiation, which a graph knows nothing of. Graph the function that calls torch.func instead")
HOOKED = ("it is called under hooks of saved tensors (torch.autograd.graph.saved_tensors_hooks, save_on_cpu, or a "
          "checkpoint around the call), which see nothing of what a graph keeps for its backward pass. Graph the "
          "function that calls it under them instead")
MODED = ("it is called under modes of PyTorch's (a TorchFunctionMode or TorchDispatchMode, as FlopCounterMode is one), "
         "which see each operator of an eager call and none of a graph. Enter them within the function")
ATTEMPTS = 2  # captures of a shape that may fail before it stays eager
MOST_COLD = 8  # and beside these on threads that never ran the callable
MOST_MISFITS = 8  # calls that find other Python state than a graph is right for, before it goes
MOST_FRESH = 256  # captures of new shapes, where graphs are hardly called again
MOST_SHAPES = 1024  # that are kept, unless told
MOST_STALE = 4  # graphs of a shape whose memory was freed before it does
all_graphed: weakref.WeakSet[object] = weakref.WeakSet()


def every_graphed():
    """Those that there are; other threads may make some meanwhile."""
    while True:
        try:
            return list(all_graphed)
        except RuntimeError:  # its size changed
            pass


class Uncapturable(_C.Error):
    """A call that graphs are not for; the reason is its text."""


class Answered(Unfollowed):
    """A value of the device is known by now that a run reads on the host, so that calls have other keys."""


class NewValues(Uncapturable):
    """One whose values are new at each call. Calls of other arguments may be captured."""


def _missing(params):
    """Of which parameters gradients are missing; None where there are no parameters."""
    return tuple([p.grad is None for p in params]) or None


def settle(torch, params):
    """Gives the parameters whose gradients lie in memory of graphs, or were set aside from there, homes for
    them, and drops the graphs that leave them elsewhere. False where none did."""
    moved = set(map(id, homes.move(torch, params)))
    for graphed in every_graphed() if moved else ():
        graphed.drop_giving(moved)
    return bool(moved)


class Graphed:
    """What :func:`reprise.graphed` makes of a function. Of a module it makes another module, whose calls
    go through one of these (:func:`reprise.graphed_of`)."""

    __class_getitem__: classmethod = classmethod(types.GenericAlias)
    is_eager = False  # does it never capture?
    captures = 0  # that were begun, of all callables
    follows_numbers = True  # may its replays follow floats that are new at every call?
    _need = staticmethod(need_gpu)
    _given = None  # what it was made with
    _lent = None   # by id: parameters whose gradients lay in memory of its graphs
    _fresh = 0     # captures since graphs were seen to be called again
    _uses = 0      # of graphs, when that was looked at
    _opens = False  # were results found to go back to tensors, though nothing told of it ahead?
    _patience = 0  # captures beyond MOST_FRESH
    _calls_kept = 0  # through Python until what is kept for another capture is let go
    _steps_aside = True  # do other graphs take calls that come while one waits for its backward pass?
    _beside = None  # the one that does
    _depth = 1      # calls that wait then, this one's among them
    _told_waiting = _told_shared = False

    def __new__(cls, *given):
        made = super().__new__(cls)
        made._given = given
        return made

    def __init__(self, fn, pool, name, warmup, copy_args, strict, watch, generators, grad,
                 frozen, verify, max_shapes=MOST_SHAPES):
        self._torch = self._need()
        self._fn = fn
        self._given_pool = pool
        self._pools = {}  # by the index of the device
        self._name = name
        self._warmup = warmup
        self._copy_args = copy_args
        self._strict = strict
        self._grad = grad
        self._frozen = frozen
        self._verify = verify
        self._generators = tuple(generators)
        torch = self._torch
        modules = find_modules(torch, fn) + [w for w in watch if isinstance(w, torch.nn.Module)]
        self._watch = Watch(torch, modules, [w for w in watch if isinstance(w, torch.Tensor)])
        self._addresses = self._watch.addresses()
        self._reads = Reads(torch, fn, self._watch, modules)
        self._hyperparameters = Hyperparameters(torch, self._reads, verify is None)
        self._numbers = Numbers(self._reads, self.follows_numbers and verify is None)
        self._answers = Answers(torch, self._watch, self._reads)
        self._cpu = CpuValues(torch, self._reads.is_compiled, self._answers)
        self._prints = False  # do replays print?
        self._news = News()
        self._used = {}  # by family, that has values on the CPU: replays until its last new ones
        self._max_shapes = max_shapes
        self._shapes = {}
        self._failures = {}
        self._shortages = Shortages(torch)
        self._stale = {}  # by key: how many graphs were dropped, as memory that they used was freed
        self._strange = {}  # likewise, as scalars were not what they were captured for
        self._eager_runs = 0
        self._here = threading.local()  # did this thread run the callable eagerly?
        self._excused = {}  # by key: captures that failed on threads that did not
        self._fast_path = FastPath(torch, self._watch, self._reads, frozen, self._answers)
        self._fast_call = self._fast_path.call  # by this name csrc/reads/reach.c tells our attributes
        self._draws = True  # until a run drew no random numbers
        self._trained = ()  # parameters, once a call was seen to touch gradients
        self._leads = {}  # by key, but for gradients: where a layout begins, if it was tuned
        self._drops = {}  # by key, but for gradients, of calls that drop those first: other parameters
        self._told_own = set()  # families of calls that were found to be others, as _check_own has it
        self._refusals = Refusals()
        self._regiven = Regiven()
        self._waiting = Waiting()
        self._rests = Rests(torch)
        self._lock = threading.RLock()
        functools.update_wrapper(self, fn if not isinstance(fn, torch.nn.Module) else fn.forward,
                                 updated=())
        all_graphed.add(self)

    # ---- Copies ----

    def __deepcopy__(self, memo):
        """One of a copy of the callable, which has captured nothing. It is made when it is first needed:
        the owner of a bound method is copied around it, and is not whole yet."""
        made = memo[id(self)] = object.__new__(type(self))
        made._given = (copy.deepcopy(self._fn, memo), *self._given[1:])
        return made

    def __getattr__(self, name):
        if self._given and "_torch" not in self.__dict__:
            self.__init__(*self._given)
            return getattr(self, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __reduce_ex__(self, protocol):
        """What is pickled is the callable."""
        return pickled(self._fn)

    # ---- Calls ----

    def __call__(self, *args, **kwargs):
        if self._waiting.owner is not None and (turn := self._turn(args, kwargs)) is not None:
            return turn()
        result = self._fast_call(args, kwargs)
        if result is not _C.miss:
            return self._fn(*args, **kwargs) if result is _C.eager else result
        return self._call_missed(args, kwargs)

    def __get__(self, owner, kind=None):
        """In the body of a class a function is a method: that of one object is a graphed callable of its own."""
        if owner is None or type(self._fn) is not types.FunctionType:
            return self

        def made(method):
            _, name, *options = self._given
            return type(self)(method, name, *options)
        return method_of(self, owner, made)

    def _turn(self, args, kwargs):
        """What makes a call that may not be made by the graphs of two passes: those are another thread's, or a call
        waits for its backward pass. None: it may."""
        if self._torch.is_grad_enabled() and self._waiting.is_anothers():
            return functools.partial(self._call_of_another_thread, args, kwargs)
        if self._waiting.latest is not None and self._waiting.is_one():
            return functools.partial(self._call_beside, args, kwargs)
        return None

    def _call_of_another_thread(self, args, kwargs):
        if self._torch.cuda.is_current_stream_capturing() or is_alone():
            return self._fn(*args, **kwargs)  # a part of somebody else's capture
        if not self._told_shared:
            self._told_shared = True
            self._tell_eager(f"reprise: '{self.name}' runs without a graph in some threads: {SHARED}", SHARED)
        with self._lock:  # in a capture modules have other parameters
            return self._may_go_back(self._eager_here(args, kwargs))

    def _may_go_back(self, result):
        """Notes that this thread may go back through the result of an eager call."""
        if any(getattr(leaf, "requires_grad", False) for leaf in flatten(result)[0]):
            self._waiting.meet()
        return result

    def _call_beside(self, args, kwargs):
        """A call that comes while an earlier one waits for its backward pass: by graphs that lie elsewhere, where a
        backward pass may come."""
        if self._torch.cuda.is_current_stream_capturing() or is_alone():
            return self._fn(*args, **kwargs)  # a part of somebody else's capture
        if not self._waiting.went_back:
            if not self._waiting.may_go_on():
                return self._eager_here(args, kwargs)
            self._waiting.latest = None
            return self(*args, **kwargs)
        if self._beside is None:
            if self._depth == MOST_BESIDE:
                self._tell_waiting()
                return self._eager_here(args, kwargs)
            fn, _, *options = self._given
            self._beside = type(self)(fn, None, *options)
            self._beside._depth = self._depth + 1
        return self._beside(*args, **kwargs)

    def _tell_waiting(self):
        if not self._told_waiting:
            self._told_waiting = True
            text = (f"{MOST_BESIDE} calls wait for their backward passes, and more graphs would be needed for each "
                    "further one. Run backward passes earlier, or call it under torch.no_grad() where none will come")
            self._tell_eager(f"reprise: '{self.name}' runs some calls without a graph: {text}", text)

    def _call_missed(self, args, kwargs):
        """A call that the fast path does not take."""
        torch = self._torch
        why = self._why_aside()
        if why is not None:
            return self._eager_aside(args, kwargs, why)
        leaves, spec = flatten((args, kwargs)) if kwargs else flatten(args)
        if self._refusals.has_object_of(leaves) or (self._rests.holds and self._rests.take(leaves, spec)):
            return self._fn(*args, **kwargs)
        try:
            tensors, key = self._key(leaves, self._form(spec, args, kwargs))
            if self._notice_new(key, leaves, args, kwargs):
                tensors, key = self._key(leaves, self._form(spec, args, kwargs))
        except Uncapturable as why:
            self._rests.note(leaves, spec, any_values=True)
            return self._eager(args, kwargs, str(why))
        if torch.cuda.is_current_stream_capturing() or is_alone():
            return self._fn(*args, **kwargs)  # a part of somebody else's capture
        return self._by_graph(key, leaves, tensors, spec, args, kwargs)

    def _why_aside(self):
        """Why a call is not for a graph, whatever its arguments; None: it may be."""
        private = torch_private.of(self._torch)
        if private.transforms():
            return TRANSFORMED
        if self._reads.switches.sees_operators():
            return MODED
        return HOOKED if self._torch.is_grad_enabled() and private.saves_elsewhere() else None

    def _eager_aside(self, args, kwargs, why):
        if self._torch.cuda.is_current_stream_capturing() or is_alone():
            return self._fn(*args, **kwargs)  # a part of somebody else's capture
        return self._eager(args, kwargs, why)

    def look_ahead(self):
        """Ahead of a call where what is read has other objects of the same values by now: the fast path takes it
        all the same."""
        try:
            self._reads.state()
        except Unreadable:
            return  # the call tells
        if not self._reads.found_more:
            self._fast_path.accept_reads()

    def _by_graph(self, key, leaves, tensors, spec, args, kwargs):
        shape = self._known(key)
        if shape is not None:
            self._tire()
            if self._rests.holds:
                self._rests.replayed(leaves, spec)
            self._shorten(shape, key, args, kwargs, tensors)
            return self._replay(key, shape, tensors, args, kwargs)
        with self._lock:
            shape = self._known(key)
            while shape is None:  # what a capture put back may have freed what it used
                shape = self._first_call(key, leaves, tensors, spec, args, kwargs)
                if isinstance(shape, tuple):
                    return shape[0]
                if shape is None:  # numbers that it reads count by their values from now on
                    tensors, key = self._key(leaves, self._form(spec, args, kwargs))
                key = self._stored(key)
                shape = self._known(key)
        if isinstance(shape, Split) and self._waiting.is_anothers():  # which captured it while this one waited
            return self._call_of_another_thread(args, kwargs)
        return self._replay(key, shape, tensors, args, kwargs)

    def _tire(self):
        """A call of a known shape comes this way: before long what is kept for another capture is let go."""
        if self._calls_kept:
            self._calls_kept -= 1
            if not self._calls_kept:
                self._fast_path.hold(None)

    def _replay(self, key, shape, tensors, args, kwargs):
        """The call by its graph, where that is right for what the places hold which it assigns."""
        if shape.seat is None:
            return self._replay_seated(key, shape, tensors, args, kwargs)
        with shape.turns:
            shape.take_seat(self._others(flatten((args, kwargs))[0]))
            return self._replay_seated(key, shape, tensors, args, kwargs)

    def _replay_seated(self, key, shape, tensors, args, kwargs):
        """The same, behind what the call does on the CPU. One at a time where its graph has numbers of the
        call in kernels' parameters."""
        if shape.cpu is None:
            return self._replay_told(key, shape, tensors, args, kwargs)
        leaves = flatten((args, kwargs))[0]
        on_cpu = [leaf for leaf in leaves if is_on_cpu(self._torch, leaf)]
        with shape.cpu.lock or contextlib.nullcontext():
            tensors = [*tensors, *shape.cpu.prepare(on_cpu)]
            return self._replay_told(key, shape, tensors, args, kwargs)

    def _replay_told(self, key, shape, tensors, args, kwargs):
        """The same, where its graph can be told the numbers that hold."""
        if not shape.has_its_scalars():
            with shape.drawn_again():
                if shape.scalars.special():  # of this call alone
                    return self._fn(*args, **kwargs)
                return self._drop_strange(key, shape, args, kwargs)
        return self._replay_fitting(key, shape, tensors, args, kwargs)

    def _replay_fitting(self, key, shape, tensors, args, kwargs):
        if shape.effects is None and not shape.has_given:
            print_again(shape.lines)
            return shape.replay(tensors)
        others = self._others(flatten((args, kwargs))[0])
        fills = shape.effects is not None and shape.effects.fills
        containers = containers_in((args, kwargs)) if fills else []
        if shape.effects is None or shape.effects.fit(others + containers):
            lengths = list(map(len, containers))
            print_again(shape.lines)
            made = shape.replay(tensors, others=others + containers)
            if fills:
                self._regiven.note(containers, lengths)
            return with_given(made, others) if shape.has_given else made
        shape.effects.misfits += 1
        if shape.effects.misfits == MOST_MISFITS:
            self._drop_misfit(key, shape)
        with shape.drawn_again():
            return self._fn(*args, **kwargs)

    def _run_regiven(self, args, kwargs):
        """An eager call with a container that earlier ones added to."""
        containers = containers_in((args, kwargs))
        lengths = list(map(len, containers))
        result = self._fn(*args, **kwargs)
        self._regiven.note(containers, lengths)
        return result

    def _drop_strange(self, key, shape, args, kwargs):
        """An eager call, as the step counts that the shape was captured for are apart by now, or an
        optimizer would get numbers that are not finite. The shape is captured anew, but not for ever."""
        with self._lock:
            self._drop(key)
            settled = self._settled(key)
            self._strange[settled] = self._strange.get(settled, 0) + 1
            if self._strange[settled] == MOST_STALE:
                text = ("an optimizer's hyperparameters and step counts were not what a graph was captured "
                        f"for behind {MOST_STALE} captures")
                self._failures[settled] = (text, ATTEMPTS)
                self._tell_eager(f"reprise: '{self.name}' runs without a graph for these arguments from now "
                                 f"on: {text}", text)
        return self._fn(*args, **kwargs)

    def _others(self, leaves):
        """Those of the leaves of a call's arguments that are no tensors."""
        return [leaf for leaf in leaves if not isinstance(leaf, self._torch.Tensor)]

    def _drop_misfit(self, key, shape):
        """The callable assigns to places that hold something else than they did before its capture."""
        with self._lock:
            if self._shapes.get(key) is not shape:
                return
            self._drop(key)
        text = f"{shape.effects} held something else in {MOST_MISFITS} calls than before the capture"
        self._failures[key] = (text, ATTEMPTS)
        self._tell_eager(f"reprise: '{self.name}' runs without a graph for these arguments from now on: "
                         f"{text}", text)

    def _stored(self, key):
        """The key that a shape is stored with, now that it was captured."""
        return (key[0], self._pattern(key[0])) if key[0] in self._drops else key

    def _looked(self, key):
        """The parameters whose gradients decide which shape calls of such a key are of."""
        return self._drops.get(key, self._trained)

    def _pattern(self, key):
        """Which gradients are missing, of those that calls of such a key look at."""
        return _missing(self._looked(key))

    def _known(self, key):
        """The captured shape of this key, where all memory that it uses is there."""
        shape = self._shapes.get(key)
        if shape is None or not shape.is_stale():
            return shape
        with self._lock:
            if self._shapes.get(key) is shape:
                self._drop_stale(key, shape)
        return None

    def drop_giving(self, params):
        """Drops the shapes that leave gradients of some of these parameters, told by their ids. Calls
        that are under way on other threads keep theirs."""
        for key, shape in list(self._shapes.items()):
            if isinstance(shape, Shape) and any(
                    id(param) in params for param, _ in (*shape.given, *shape.returned)):
                self._drop(key)

    def _drop(self, key):
        """What was captured for a key is not called any more."""
        self._shapes.pop(key, None)
        self._fast_path.clear()

    @staticmethod
    def _group(key):
        """What the keys of calls have in common that differ by what the callable reads."""
        family, values, modes = key[0]
        return family, values, modes[1:]

    @staticmethod
    def _family(key):
        """What the keys of calls have in common that differ by values only, also by those that are read."""
        return key[0][0]

    def _settled(self, key):
        return self._group(key), key[1]

    def _drop_freed(self, key):
        """Drops what was captured for like calls with tensors that were freed since."""
        settled = self._settled(key)
        for other, shape in list(self._shapes.items()):
            if other != key and self._settled(other) == settled and shape.is_stale():
                self._drop_stale(other, shape)

    def _drop_stale(self, key, shape):
        """The callable uses other memory by now than the shape, which is captured anew; but not for
        ever, as captures cost more than they bring."""
        self._drop(key)
        if any(part.graph.left_others() for part in shape.parts()):
            self._tell_elsewhere(key)
            return
        if isinstance(shape, Shape):
            settle(self._torch, [p for p, _ in shape.used])
        settled = self._settled(key)
        self._stale[settled] = self._stale.get(settled, 0) + 1
        if self._stale[settled] < MOST_STALE:
            return
        lost, graph = max(((part.graph.info()["lost_bytes"], part.graph) for part in shape.parts()),
                          key=lambda found: found[0])
        if shape.assigned.have_moved():
            text = WHY.format(MOST_STALE)
        elif shape.reads_other_values():
            text = (f"a tensor on the CPU that it reads had other values after each of {MOST_STALE} captures. Keep it on "
                    "the GPU, or pass it as an argument")
        elif isinstance(shape, Split) and shape.found is not None and shape.found.are_gone():
            text = (f"a tensor that its results go back to was another one after each of {MOST_STALE} captures. Pass "
                    "it as an argument, or write into it instead of replacing it")
        else:
            text = self._why_stale(lost, graph.where_lost() if lost else "")
        self._failures[settled] = (text, ATTEMPTS)
        self._tell_eager(f"reprise: '{self.name}' runs without a graph for these arguments from now on: "
                         f"{text}", text)

    def _tell_elsewhere(self, key):
        """A value that the runs of a capture were told ahead was another one in a replay."""
        family = self._cpu_family(key)
        lines = ", ".join(dict.fromkeys(filter(None, self._answers.lines(family))))
        self._answers.refuse(family)
        text = f"{ELSEWHERE} (at {lines})"
        self._failures[self._settled(key)] = (text, ATTEMPTS)
        self._tell_eager(f"reprise: '{self.name}' runs without a graph for these arguments from now on: {text}", text)

    def _asked_teller(self, key):
        """What is called where the backward graph of this key's shape was not enough."""
        graphed = weakref.ref(self)

        def tell(why):
            made = graphed()
            if made is not None and key is not None:
                made.give_up_asked(key, why)
        return tell

    def give_up_asked(self, key, why):
        """Calls of a shape are eager from now on, as a program asks for what its backward graph cannot give."""
        settled, is_new = self._settled(key), self._settled(key) not in self._failures
        self._failures[settled] = (why, ATTEMPTS)
        self._drop(self._stored(key))
        if is_new:
            self._tell_eager(f"reprise: '{self.name}' runs without a graph for these arguments from now on: {why}", why)

    @staticmethod
    def _why_stale(lost, where):
        return (f"memory that it uses beside its arguments, {lost} bytes{where and f' ({where})'}, was freed after each "
                f"of {MOST_STALE} captures. Give that tensor as an argument, or write into it instead "
                "of replacing it") if lost else (
            f"gradients that it uses lay elsewhere after each of {MOST_STALE} captures. Let the "
            "optimizer keep them, zero_grad(set_to_none=False), and write into them instead of "
            "assigning to p.grad.data")

    def _shorten_eager(self, args, kwargs, tensors):
        """Lets the fast path tell that calls of a shape which cannot be captured are eager ones, where
        it need not forget shapes for that which have graphs. It would take those that share no memory
        for the same as those that do. Where gradients decide, all such calls come here: next to what
        an eager training step costs, that is little."""
        fast_path = self._fast_path
        guarded = fast_path.is_guarded()
        if (guarded or not self._shapes) and fast_path.takes_calls() and not self._trained and (
                self._aliasing(tensors) is None):
            fast_path.guard(guarded).add(self._device(tensors).index, args, kwargs, None, (), None)

    def _shorten(self, shape, key, args, kwargs, tensors):
        """Lets the fast path have calls of this shape, where it can take them."""
        fast_path = self._fast_path
        if not isinstance(shape, (Shape, Split)) or not fast_path.takes_calls():
            return
        if not self._answers.holds(self._cpu_family(key)):
            return  # another thread wrote to what it reads
        guarded = fast_path.is_guarded()
        if guarded and shape.offered == fast_path.guards:
            fast_path.know((*args, *kwargs.values()))
            return
        if isinstance(shape, Split) or shape.cpu is not None:
            self._add_replayed(guarded, shape, key, tensors, args, kwargs, None)
        else:
            short = self._short(shape, key, tensors, args, kwargs)
            if short is not None:
                self._add(guarded, shape, key, shape.device.index, args, kwargs, None, short)
        shape.offered = fast_path.guards

    def _add_replayed(self, guarded, shape, key, tensors, args, kwargs, choice):
        """Adds one that Python replays to the fast path, which takes it if that is True: its forward and backward
        passes are a graph each, or it does something on the CPU. Where gradients tell calls apart, which the
        backward pass makes, they are not taken."""
        if not shape.is_short(tensors) or self._looked(key[0]):
            return False
        taker = self._fast_path.guard(guarded)
        self._fast_path.know((*args, *kwargs.values()))
        forward, *behind = [part.graph for part in shape.parts()]
        return taker.add_split(shape.device.index, args, kwargs, forward, behind[0] if behind else None,
                               self._replayer(shape), self._told_on_cpu(key, args, kwargs), choice)

    def _replayer(self, shape):
        """What the fast path makes a call of such a shape with, of its tensors and those on the CPU."""
        return lambda tensors, on_cpu=(): replayed(shape, tensors, shape.replay, on_cpu)

    def _add(self, guarded, shape, key, device, args, kwargs, choice, short):
        """Adds the shape of a call to the fast path, which takes it if that is True; key: the call's; device: its
        index; short: as _short returned it."""
        made, build, gradients = short
        taker = self._fast_path.guard(guarded)
        self._fast_path.looks_again |= shape.effects is not None and shape.effects.are_found()
        self._fast_path.know((*args, *kwargs.values()))
        return taker.add(device, args, kwargs, shape.graph, made, build, choice, gradients,
                         self._told_on_cpu(key, args, kwargs), shape.sets())

    def _told_on_cpu(self, key, args, kwargs):
        """What the key of a call has of each argument on the CPU. Not what that holds now: another thread may have
        written to it since."""
        torch = self._torch
        of_values = [leaf for leaf in flatten((args, kwargs))[0]
                     if not isinstance(leaf, torch.Tensor) or is_on_cpu(torch, leaf)]
        return tuple(token for leaf, token in zip(of_values, key[0][1]) if isinstance(leaf, torch.Tensor))

    def _ways(self, args, kwargs):
        """Of each argument of a call that is no tensor its place among args, or its name; there are no
        trees among those that the fast path takes."""
        named = (*enumerate(args), *kwargs.items())
        return [at for at, value in named if value is not None and not isinstance(value, self._torch.Tensor)]

    def _tensor_ways(self, args, kwargs):
        """The same of each that is a tensor on the device."""
        torch, named = self._torch, (*enumerate(args), *kwargs.items())
        return [at for at, value in named if isinstance(value, torch.Tensor) and not is_on_cpu(torch, value)]

    def _short(self, shape, key, tensors, args, kwargs):
        """How the fast path makes the results of a shape, for a call that is about to be made, and what
        it has to know of gradients; or None."""
        looked = self._looked(key[0])
        missing = _missing(looked)
        if self._shapes.get((key[0], missing)) is not shape:
            return None  # another thread has made or dropped gradients since
        short = shape.short(tensors, self._ways(args, kwargs) if shape.has_given else (),
                            self._tensor_ways(args, kwargs) if shape.hands_on else ())
        return short and (*short, for_fast_path(looked, missing or (), shape.used, shape.given))

    def _first_call(self, key, leaves, tensors, spec, args, kwargs):
        """The captured shape, or a tuple that holds an eager call's result; None: the call has another key
        from now on."""
        if key in self._shortages and not self._shortages.is_over(key):
            self._rests.note_for(leaves, spec, self._shortages.rest(key))
            return (self._fn(*args, **kwargs),)
        if self._has_failed(key):
            self._rests.note(leaves, spec)
            self._shorten_eager(args, kwargs, tensors)
            return (self._fn(*args, **kwargs),)
        if self._torch.is_grad_enabled() and self._waiting.has_company():
            return (self._call_of_another_thread(args, kwargs),)
        if self._eager_runs < self._warmup:
            self._tries(key)
            return (self._warm_up(args, kwargs),)
        if self._tries(key):
            return (self._eager_here(args, kwargs),)
        group = self._group(key)
        if self._refusals.covers(group, leaves):
            self._rests.note(leaves, spec)
            if not self._refusals.is_final(group):
                self._refusals.skip(self._rests.rest_all(self._refusals.rest()))
            return (self._fn(*args, **kwargs),)
        if self._regiven.is_met(args, kwargs):
            self._tell_regiven()
            return (self._run_regiven(args, kwargs),)
        if self._is_fresh():
            return (self._fn(*args, **kwargs),)
        if self._adopts(leaves, spec, kwargs):
            return None
        self._drop_freed(key)
        if self._has_failed(key):
            return (self._fn(*args, **kwargs),)
        try:
            shape = self._capture(key, leaves, tensors, spec, bool(kwargs), self._verify)
        except Unfollowed as why:
            gathers = isinstance(why, Answered) and self._answers.may_gather(self._cpu_family(key))
            if gathers and self._refusals.tried():  # what was learned is forgotten at each call, as parameters lie elsewhere
                self._tell_refused(why, next(iter(self._answers.lines(self._cpu_family(key))), None))
            return (self._run_gathering(key, tensors, args, kwargs),) if gathers else None
        except Uncapturable as why:
            self._rests.note(leaves, spec, any_values=True)
            return (self._eager(args, kwargs, str(why)),)
        except Changed as error:
            return (self._run_changing(group, error, args, kwargs),)
        except Unobserved as error:
            return (self._run_observed(group, error, args, kwargs),)
        except Exception as error:  # whatever the callable raises in a capture
            let_through(error)
            if self._excuse(key, error):
                return (self._eager_here(args, kwargs),)
            if self._strict:
                tell_mend(error, self.name)
                raise
            if self._fell_short(key, error, tensors):
                return (self._fn(*args, **kwargs),)
            error = refusal_in(error)
            # The keys of objects that bring all their tensors are met again.
            apart = [leaf for leaf in self._others(leaves)
                     if is_plain(leaf) or not self._reads.binds_all(leaf)]
            if isinstance(error, Written):
                key = self._settled(key)  # whatever the value is
            self._failed(self._refusals.failed(apart) or key, error,
                         ATTEMPTS if isinstance(error, (Refused, Written)) else 1)
            return (self._fn(*args, **kwargs),)
        self._shortages.end(key)
        self._failures.pop(key, None)
        self._refusals.worked(group, leaves)
        self._rests.captured(leaves, spec)
        self._fresh += 1
        self._keep(self._stored(key), shape)
        return shape

    def _adopts(self, leaves, spec, kwargs):
        """Are objects among the arguments the callable's own from now on, and were not? Optimizers are: their numbers are
        followed, and their counters on the CPU. So are modules that it trains, and what has one: a graph gives
        gradients to the parameters that its capture knew."""
        adopts = self._adopts_those(leaves, spec, kwargs, lambda leaf: isinstance(leaf, self._torch.optim.Optimizer))
        if self._adopts_those(leaves, spec, kwargs, self._trains):
            self._trained = ()  # its parameters are among them from the next capture on
            self._fast_path.clear()
            return True
        return adopts

    def _adopts_those(self, leaves, spec, kwargs, which):
        at = [i for i, leaf in enumerate(leaves) if which(leaf)]
        names = argument_names(spec, bool(kwargs)) if at else ()
        adopted = [self._reads.adopt(leaves[i], names[i]) for i in at]
        return any(adopted)

    def _trains(self, leaf):
        """Is it an object among the arguments with parameters that the callable may give gradients, and does not know?"""
        if is_plain(leaf) or isinstance(leaf, self._torch.Tensor):
            return False
        found = self._reads.trained(leaf)
        return bool(found) and not {id(p) for p in found} <= {id(p) for p in self._gradients().params}

    def _tell_regiven(self):
        if not self._regiven.is_told:
            self._regiven.is_told = True
            text = ("a list or dict among the arguments comes again with what earlier calls put there, so each call is of "
                    "a new shape. Give each call an empty one, or keep it outside of the call")
            self._tell_eager(f"reprise: '{self.name}' runs without a graph for these arguments: {text}", text)

    def _is_fresh(self):
        """Are shapes captured one after the other, and their graphs hardly called again? Then calls of new
        ones are eager, and now and then one is captured."""
        if self._fresh < MOST_FRESH + self._patience or len(self._shapes) < MOST_FRESH:
            return False
        uses = sum(part.graph.info()["replays"] for shape in list(self._shapes.values())
                   for part in shape.parts()[:1])
        if uses - self._uses >= 2 * self._fresh:  # its own call is a use of each
            self._fresh, self._uses, self._patience = 0, uses, 0
            return False
        if self._patience == 0:
            warn(f"reprise: '{self.name}' runs without a graph for most arguments of new shapes from now on: "
                 f"{self._fresh} shapes were captured in a row, and their graphs were hardly called again. Pad "
                 "sizes to some buckets, reprise.graphed(fn, buckets={...}), or capture those that come "
                 "often ahead of time")
        self._patience += 1
        self._rests.rest_all()
        return True

    def _excuse(self, key, error):
        """May a capture have failed as this thread never ran the callable eagerly? Libraries make things
        for each thread by their first use there (cuBLAS its handle), which a capture does not allow. Then
        the call is eager, and the next one is captured. Some times for each key: many threads may be new
        at once, and threads may come and go. Where it never ran eagerly at all, and errors are to be
        raised, this one is."""
        never = self._strict and not self._eager_runs
        count = self._excused.get(key, 0)
        if never or getattr(self._here, "is_warm", False) or isinstance(error, Refused) or count == MOST_COLD:
            return False
        self._excused[key] = count + 1
        clear_frames(error)
        return True

    def _eager_here(self, args, kwargs):
        """An eager call, which makes what this thread lacks."""
        self._here.is_warm = True
        return self._reads.eager_call(self._fn, args, kwargs)

    def _tries(self, key):
        """Does this eager call of a shape make trials that no capture can? cuDNN's benchmark times its
        kernels where it meets other sizes, for each thread."""
        if not (self._torch.backends.cudnn.enabled and self._torch.backends.cudnn.benchmark):
            return False
        tried = self._here.__dict__.setdefault("tried", set())
        if key in tried:
            return False
        tried.add(key)
        return True

    def _has_failed(self, key):
        return any(self._failures.get(k, ("", 0))[1] >= ATTEMPTS for k in (key, self._settled(key)))

    def _run_changing(self, group, error, args, kwargs):
        """An eager call, behind an attempt that found it to change Python state. Once there will be no
        further one, the warning tells the line that does."""
        if not self._refusals.note(group, error):
            return self._fn(*args, **kwargs)
        if self._strict:
            tell_mend(error, self.name)
            raise error
        records = error.records or records_of(args, kwargs)
        result, line = traced_call(self._fn, args, kwargs, records)
        self._reads.forget_arguments()
        told = tuple(dict.fromkeys(error.kinds)) or group  # calls with other objects of these types are other groups
        self._failures[told] = (f"{type(error).__name__}: {error}", ATTEMPTS)
        if self._refusals.is_new(error):
            self._tell_refused(error, line)
        return result

    def _run_gathering(self, key, tensors, args, kwargs):
        """An eager call, which tells all that it reads on the host."""
        with self._cpu.without_compilers():
            return self._answers.gathering(self._device(tensors), self._cpu_family(key), tensors,
                                           lambda: self._fn(*args, **kwargs))

    def _run_observed(self, group, error, args, kwargs):
        """An eager call, which tells whether calls take iterators forward: nothing would put them back."""
        result, line = traced_call(self._fn, args, kwargs, error.records)
        self._refusals.observed.add(group)
        changed = error.changed()
        if changed is not None:
            if self._strict:
                raise changed
            self._refusals.note(group, changed)
            self._failures[group] = (f"{type(changed).__name__}: {changed}", ATTEMPTS)
            self._tell_refused(changed, line)
        return result

    def _keep(self, key, shape):
        """Keeps a shape, and lets the one go that was not used for longest where there are too many."""
        self._shapes[key] = shape
        self._spare_gradients()
        for other, old in list(self._shapes.items()) if len(self._shapes) > self._max_shapes else ():
            used = sum(part.graph.info()["replays"] for part in old.parts())
            if old is shape or used != old.used_before:
                old.used_before = used
                self._shapes[other] = self._shapes.pop(other)  # the latest now
                continue
            self._drop(other)
            break
        while len(self._shapes) > self._max_shapes:
            self._drop(next(iter(self._shapes)))

    def _spare_gradients(self):
        """Calls of a shape set the gradients aside that others of the callable left in the memory of its graphs, also
        such as are dropped by now, and that it does not leave itself."""
        shapes = list(self._shapes.values())
        given = {id(p): p for shape in shapes for p, grad in shape.given if is_lent(grad)}
        self._lent = weakref.WeakValueDictionary({**(self._lent or {}), **given}) if given else self._lent
        lent = [p for p in (self._lent or {}).values() if homes.of(p) is None]
        for shape in shapes if lent else ():
            own = {id(p) for p, _ in (*shape.given, *shape.used)}
            spares = tuple(p for p in lent if id(p) not in own)
            if list(map(id, spares)) != list(map(id, shape.spares)):
                shape.spares = spares
                self._fast_path.clear()  # which replays it without Python

    def finish_warmup(self, args, kwargs):
        """Runs the callable with these arguments as often as it still has to run eagerly."""
        while self._eager_runs < self._warmup:
            self._warm_up(args, kwargs)

    def _warm_up(self, args, kwargs):
        """An eager call, which tells whether calls touch gradients."""
        self._eager_runs += 1
        before, watched = self._gradients(), draws.Watched(self._torch, self._generators)
        result = self._may_go_back(self._eager_here(args, kwargs))
        self._notice_gradients(before, before.changed() or before.used())
        self._draws = watched.may_draw() or (self._draws and self._eager_runs > 1)
        return result

    def _gradients(self):
        """The gradients of what the callable may train."""
        watch = self._watch
        fresh = () if self._frozen else watch.modules  # looked at by each call
        reaches = self._reads.asks_for_gradients() or self._reads.has_adopted()  # more than is watched
        known = [*watch.params, *self._reads.leaves()] if reaches else watch.params
        return Gradients(find_params(self._torch, self._fn, known, fresh, self._reads.optimizers))

    def _notice_gradients(self, before, touched):
        """Calls that touch gradients, or ask for them, do not do the same where there are none yet."""
        if (touched or self._reads.asks_for_gradients()) and before.params and not self._trained:
            self._trained = tuple(before.params)
            self._fast_path.clear()

    def _failed(self, key, error, attempts=1):
        count = self._failures.get(key, ("", 0))[1] + attempts
        self._failures[key] = (f"{type(error).__name__}: {error}", count)
        if self._refusals.tried() or count >= ATTEMPTS:
            self._tell_refused(error, line_of(error))

    def _tell_refused(self, error, line):
        known = _C.explain(str(error))
        mend = f" {known[2]}." if known and known[2] and known[2] not in str(error) else ""
        text = (str(error) or type(error).__name__).splitlines()[0]
        place = f" (at {line})" if line else ""
        self._tell_eager(f"reprise: '{self.name}' runs without a graph for these arguments, because "
                         f"it could not be captured: {text}{place}.{mend} "
                         "reprise.check names everything that stands in the way; strict=True raises "
                         "the error itself", text, line)

    def _tell_eager(self, warning, why, line=None):
        """Tells that calls are eager from now on, and why (a line of the program, where that is known)."""
        warn(warning)

    def _fell_short(self, key, error, tensors):
        """Did memory run out in a capture? Then it is tried again once there is more."""
        if not is_short(self._torch, error):
            return False
        clear_frames(error)
        text = f"{type(error).__name__}: {error}"
        if self._shortages.note(key, self._device(tensors), text):
            warn(f"reprise: '{self.name}' runs without a graph for these arguments until more memory is "
                 f"free: {str(error).splitlines()[0]}")
        return True

    def _eager(self, args, kwargs, why):
        if self._strict:
            raise _C.Error(f"'{self.name}' cannot be captured for these arguments: {why}")
        if why not in self._failures:
            self._failures[why] = (why, ATTEMPTS)
            self._tell_eager(f"reprise: '{self.name}' runs without a graph for these arguments: {why}", why)
        return self._fn(*args, **kwargs)

    # ---- Keys ----

    def _key(self, leaves, spec):
        """The tensors among the leaves, and what a captured graph depends on. The first part of that is
        what calls have in common that differ by values only."""
        tensors, likes, values, on_cpu = self._sort(leaves)
        for (at, _), token in zip(on_cpu, self._cpu.tokens((spec, likes), [t for _, t in on_cpu])):
            values[at] = token
        values = tuple(values)
        device = self._device(tensors)
        overlap = self._aliasing(tensors) if len(tensors) > 1 else None
        others = [leaf for leaf in leaves if not is_plain(leaf) and not (
            isinstance(leaf, self._torch.Tensor) and leaf.is_cuda)]
        same = firsts_of([*tensors, *others])
        if same is not None:
            overlap = (overlap, *same)
        modes = self._modes(device, (spec, likes))
        family = (spec, likes, overlap, self._own_among(leaves))  # of what is read now
        why = self._news.why(family)
        if why is not None:
            raise NewValues(why)
        key = (family, self._numbers.values(family, values), modes)
        self._check_asked(leaves, tensors)
        try:
            return tensors, (key, self._pattern(key))
        except TypeError:
            raise Uncapturable("an argument holds what cannot be hashed, so that a change of it would go unseen") from None

    def _own_among(self, leaves):
        """(number, id) of each leaf that is a tensor which the callable reads beside its arguments."""
        own = self._reads.own_tensors()
        return tuple((i, id(leaf)) for i, leaf in enumerate(leaves) if id(leaf) in own)

    def _again_in(self, family):
        """Of calls of a family the numbers of leaves that are tensors which the callable reads beside them, and what
        joins containers (as body_of takes it)."""
        return tuple(i for i, _ in family[3]), self._joining(*family[0][2:])

    def _joining(self, identity=None):
        if identity is None:
            return None
        return Joined(identity, {i: self._reads.container_at(place) for i, place in identity.own})

    def _form(self, spec, args, kwargs):
        self._reads.begin()
        is_plain_form = not has_containers(spec)
        return (spec, bool(kwargs)) if is_plain_form else form_of(spec, args, kwargs, *self._reads.identities())

    def _check_asked(self, leaves, tensors):
        """Raises Uncapturable where code asks of an argument what its stand-in in a capture would not answer
        alike."""
        asked = self._reads.asked()
        for tensor in (*tensors, *(leaf for leaf in leaves if is_on_cpu(self._torch, leaf))):
            if asked.is_nothing and not tensor.__dict__:
                continue
            is_split = self._torch.is_grad_enabled() and self._grad != "whole"
            is_whole = any(leaf is tensor for leaf in leaves)
            why = self._reads.refusal(asked, tensor, is_split, is_whole)
            if why is not None:
                raise Uncapturable(why)

    def _sort(self, leaves):
        """The tensors on the device among the leaves; what each leaf is; the values of the others; and
        (place among those, tensor) of each on the CPU."""
        torch = self._torch
        tensors, likes, values, on_cpu = [], [], [], []
        for leaf in leaves:
            kind = type(leaf)
            if kind is torch.Tensor and leaf.device.type == "cpu":
                self._check_on_cpu(leaf)
                likes.append(self._like(leaf))
                on_cpu.append((len(values), leaf))
                values.append(None)
            elif kind is torch.Tensor or kind is torch.nn.Parameter:
                self._check_tensor(leaf)
                tensors.append(leaf)
                likes.append(self._like(leaf))
            elif isinstance(leaf, torch.Tensor):
                raise Uncapturable(f"an argument is a {kind.__name__}, a subclass of Tensor")
            else:
                likes.append(kind)
                token, brought = (plain_token(leaf), ()) if is_plain(leaf) else self._object(leaf)
                values.append(token)
                tensors += (tensor for tensor, _ in brought)
                likes += (self._like(tensor) for tensor, _ in brought)
        return tensors, tuple(likes), values, on_cpu

    @staticmethod
    def _like(tensor):
        return (tensor.shape, tensor.stride(), tensor.dtype, tensor.device.index, tensor.requires_grad)

    def _check_on_cpu(self, tensor):
        if self._cpu.can_follow and is_taken(self._torch, tensor):
            return
        nbytes = tensor.numel() * tensor.element_size()
        what = f" of {nbytes} bytes, more than {MOST_BYTES}" if nbytes > MOST_BYTES else ""
        raise Uncapturable(f"an argument is a tensor on the CPU{what}, which a graph would not see change. "
                           "Move it to the GPU before the call")

    def _check_tensor(self, tensor):
        if not tensor.is_cuda:
            raise Uncapturable("an argument is a tensor on the CPU, which a graph would "
                               "not see change. Move it to the GPU before the call")
        if tensor.layout is not self._torch.strided or tensor.is_nested or tensor.is_conj() or tensor.is_neg():
            raise Uncapturable("an argument is a sparse or nested tensor, or a lazy view")
        if torch_private.of(self._torch).has_names(tensor):
            raise Uncapturable("an argument has named dimensions, which results of a graph have not. Pass "
                               "x.rename(None)")

    def _object(self, leaf):
        """What a call depends on of an argument that is an object, and (tensor, places) of each tensor that
        it brings."""
        if type(leaf) is set and all(map(is_plain, leaf)):
            return frozenset(map(plain_token, leaf)), ()
        if type(leaf).__hash__ is None and type(leaf).__module__ == "builtins":
            raise Uncapturable(f"an argument is a {type(leaf).__name__}, whose changes would go unseen. Pass a list, a dict "
                               "or a tuple of what is in it")
        try:
            return self._reads.argument(leaf)
        except Unreadable as why:
            raise Uncapturable(str(why)) from None

    def _notice_new(self, key, leaves, args, kwargs):
        """Calls whose values were never met before, time after time, are not for graphs, unless replays can
        follow them: True where they do from now on, so that the call has another key."""
        family, values, modes = key[0]
        is_known = key in self._shapes or key in self._failures or key in self._shortages
        on_cpu = not is_known and VALUE in self._cpu.levels(family[:2], 0)
        if on_cpu and self._came_back(family) and self._news.count(family):
            self._news.begin_again(family)
        self._news.notice(family, (values, modes), is_known, values, Told(self._reads, self._answers, family[:2]),
                          lambda: self._names_of_values(leaves, args, kwargs))
        if self._news.count(family) > MOST_KNOWN and self._follow(family, leaves, args, kwargs):
            return True
        why = self._news.why(family)
        if why is not None:
            raise NewValues(why)
        return False

    def _came_back(self, family):
        """Did values of a family come back since its last new ones, in calls that the fast path took? It tells
        nothing of those."""
        uses = sum(shape.parts()[0].graph.info()["replays"] for key, shape in list(self._shapes.items())
                   if self._family(key) == family)
        before, self._used[family] = self._used.get(family, uses), uses
        return uses > before + 1  # the new ones have a replay of their own

    def _follow(self, family, leaves, args, kwargs):
        """Has replays follow the floats that alone are new at each call, and drops the graphs for single
        values."""
        with self._lock:
            had = self._numbers.key()
            if not self._numbers.follow(family, self._news.latest(family),
                                        lambda: self._names_of_values(leaves, args, kwargs)):
                return False
            for key in list(self._shapes):
                if self._family(key) == family or self._numbers.key() != had:
                    self._drop(key)
            self._news.begin_again(family)
        return True

    def _names_of_values(self, leaves, args, kwargs):
        names = names_of_leaves(self._fn, args, kwargs)
        torch = self._torch
        return [name for name, leaf in zip(names, leaves)
                if not isinstance(leaf, torch.Tensor) or is_on_cpu(torch, leaf)]

    @staticmethod
    def _aliasing(tensors):
        """Which of them overlap, and how; None when none do."""
        found = extents(tensors)
        if len(found) == len(tensors):
            return None
        return tuple((e.bytes, tuple(e.members)) for e in found)

    def _modes(self, device, cpu_family):
        torch, watch = self._torch, self._watch
        if not self._frozen:
            self._notice_changes()
        try:
            read = self._reads.state()
            followed = (self._hyperparameters.key(), self._numbers.key(), self._answers.key(cpu_family, read))
            if self._hyperparameters.has_moved:  # others are looked at from now on
                read, self._hyperparameters.has_moved = self._reads.state(), False
        except Unreadable as why:
            raise Uncapturable(str(why)) from None
        if self._reads.found_more:
            self._addresses, self._reads.found_more = watch.addresses(), False
        autocast = torch.is_autocast_enabled("cuda")
        return ((read, followed), self._reads.switches.key(),
                torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
                autocast and torch.get_autocast_dtype("cuda"),
                device.index,
                not self._frozen and (watch.modes(), self._reads.looks_at_wishes() and watch.grads()))

    def _notice_changes(self):
        watch = self._watch
        if watch.has_changed_members():
            self._forget()
            self._reads.look_anew()
        addresses = watch.addresses()
        if addresses != self._addresses:
            self._note_elsewhere()
            self._forget()
            self._addresses = addresses

    def _note_elsewhere(self):
        """Parameters or buffers lie elsewhere than where its graphs read them."""
        shapes = list(self._shapes.values())
        uses = sum(part.graph.info()["replays"] for shape in shapes for part in shape.parts()[:1])
        if shapes and self._refusals.forgotten(uses, len(shapes)):
            text = ("parameters or buffers were elsewhere behind each of its last captures. Write into them, copy_(), "
                    "where the program replaces their memory (`p.data = `)")
            self._tell_eager(f"reprise: '{self.name}' runs without a graph for most calls from now on: {text}", text)

    def _forget(self):
        """Drops all that was captured: it reads memory that the modules left."""
        self._shapes.clear()
        self._failures.clear()
        self._excused.clear()
        self._shortages.clear()
        self._stale.clear()
        self._strange.clear()
        self._drops.clear()
        self._refusals.clear()
        self._told_own.clear()
        self._rests.clear()
        self._answers.clear()
        self._fresh = self._uses = self._patience = 0
        if self._trained:
            self._trained = tuple(self._gradients().params)
        self._fast_path.clear()

    # ---- Captures ----

    def _device(self, tensors):
        """The GPU of a call with these arguments."""
        torch = self._torch
        indices = {t.device.index for t in tensors} or {torch.cuda.current_device()}
        if len(indices) > 1:
            named = " and ".join(f"cuda:{i}" for i in sorted(indices))
            raise Uncapturable(f"arguments lie on {named}, and a graph is of one GPU. Move them to one "
                               "before the call")
        index = indices.pop()
        pool = self._given_pool
        if pool is not None and pool.device != index:
            raise Uncapturable(f"the pool '{pool.name}' is of cuda:{pool.device}, and the arguments lie "
                               f"on cuda:{index}. Leave the pool out, or give the calls of each GPU a "
                               "graphed callable with a pool of that GPU")
        return torch.device("cuda", index)

    def _own_pool(self, device, is_split):
        """The pool of alternatives that the shapes on this device lie in; within one of another kind
        that it was given: shapes of one callable never run at the same time there. is_split: are forward
        and backward two graphs?"""
        pool = self._pools.get(device.index)
        if pool is None:
            pool = self._given_pool
            if pool is None or pool.kind != "alternatives":
                pool = Pool("alternatives", parent=pool, name=self.name, device=device)
            self._pools[device.index] = pool
        return pool

    def _capture(self, key, *call):
        """A shape, captured (as for _take). Gradients are afterwards what they were before, but where
        it uses some that lay in memory of graphs: those have moved. Where memory runs out it is taken once
        more behind what nobody uses is given back. Where torch.compile compiled in it, which no capture
        survives, it is taken again with what it made."""
        Graphed.captures += 1
        with uncollected():
            made = self._capture_again(key, *call)
        leaves, tensors = call[:2]
        self._reads.learn([leaf for leaf in self._others(leaves) if not is_plain(leaf)])
        self._look_behind(made)
        self._check_own(self._family(key), self._own_among(leaves))
        self._check_asked(leaves, tensors)  # what the runs executed is known now
        return made

    def _check_own(self, family, own):
        """Raises Unfollowed where the capture told that other arguments are tensors which the callable reads too: the
        call has another key."""
        if own == family[3]:
            return
        if (family, own) in self._told_own:
            raise Refused("it reads other tensors beside its arguments behind each capture")
        self._told_own.add((family, own))
        raise Unfollowed("it reads one of its arguments beside them too")

    def _look_behind(self, made):
        """Where code of the program's runs in the backward pass: what it reads is compared ahead of each."""
        noted, places = (isinstance(made, Split) and made.noted) or (None, ())
        if noted is None or not noted.codes:
            return
        made.noted, made.behind = None, self._reads.behind(noted)
        path = made.behind.reads_any(places)
        if path is not None:
            raise Refused(f"its backward pass reads `{path}`, which the call changes, and a capture puts back ahead of its "
                          "backward runs. Capture the whole step, reprise.graphed(step), with the backward pass in it")

    def _capture_again(self, key, *call):
        compiled = torch_private.frames_compiled()
        for _ in range(MOST_COMPILING):
            try:
                return self._capture_settling(key, *call)
            except Exception as error:
                let_through(error)
                before, compiled = compiled, torch_private.frames_compiled()
                if is_short(self._torch, error):
                    clear_frames(error)
                    if not make_room(self._torch, self._device(call[1])):
                        raise
                    break
                if compiled == before or isinstance(error, (Unfollowed, Changed, Unobserved, Refused)):
                    raise
                clear_frames(error)
        return self._capture_settling(key, *call)

    def _capture_settling(self, key, *call):
        try:
            return self._capture_following(key, *call)
        except Shared:
            if not settle(self._torch, self._gradients().params):
                raise
        return self._capture_following(key, *call)

    def _capture_following(self, key, *call):
        """Raises Unfollowed, which changes the key, where replays cannot follow hyperparameters, or
        arguments on the CPU. Where numbers are followed and runs differed, they may have met rubbish in
        padding that could not be told from a number: they are taken once more."""
        for last in (False, True):
            try:
                return self._cpu.moving(lambda: self._capture_here(key, *call))
            except Wanted as wanted:
                self._cpu.learn(self._cpu_family(key), len(self._on_cpu(call[0])), wanted)
                self._fast_path.clear()  # it has shapes of what are other keys from now on
                raise Unfollowed(str(wanted)) from None
            except Asked as asked:
                self._answers.learn(self._cpu_family(key), asked)
                raise Answered(str(asked)) from None
            except Written:
                self._answers.refuse(self._cpu_family(key))
                raise
            except Exception as error:  # whatever the callable raises
                let_through(error)
                if last or not is_diverged(error) or not self._follows(self._family(key)):
                    self._judge(key, call, error)
                    raise
                clear_frames(error)

    def _follows(self, family):
        return self._hyperparameters.places or self._numbers.follows(family)

    def _judge(self, key, call, error):
        """Raises Unfollowed where a capture failed for what was followed."""
        self._judge_lines(error)
        if is_diverged(error) and self._cpu.give_up_numbers(self._cpu_family(key), self._on_cpu(call[0])):
            self._fast_path.clear()
            raise Unfollowed(str(error)) from None
        self._numbers.judge(self._family(key), error)
        self._hyperparameters.judge(error)

    @staticmethod
    def _cpu_family(key):
        return key[0][0][:2]

    def _on_cpu(self, leaves):
        return [leaf for leaf in leaves if is_on_cpu(self._torch, leaf)]

    def _judge_lines(self, error):
        """Raises Unfollowed where a capture was refused for a line that its replays can print."""
        if getattr(error, "is_print", False) and not self._prints and self.follows_numbers:
            self._prints = True
            raise Unfollowed(str(error))

    def _capture_here(self, key, *call):
        before = self._before(key, *call)
        outside = self._answers.outside()
        versions = list(map(version_of, outside))
        if self._group(key) not in self._refusals.observed and before.effects.iterators():
            raise Unobserved(before.effects.iterators())
        try:
            made = self._take(before, key, *call)
            if isinstance(made, Shape):
                self._keep_gradients(key, made, before.gradients)
            elif isinstance(made, Split):
                self._keep_drops(key, made, before.gradients)
            if before.effects.may_mislead:
                raise Unfollowed("it executed code that no call did before")
            made.effects = before.effects.replayed(made)
        except BaseException as error:
            clear_frames(error)
            raise
        finally:
            before.finish()
        self._fast_path.hold(before.effects.keep(lambda: self._watch.tensors))
        self._calls_kept = MOST_CALLS
        if self._reads.leave_out(before.effects.left()):
            for shape in [one for one in self._shapes.values() if isinstance(one, (Shape, Split))]:
                shape.assigned = read_by(shape.parts(), self._reads.left_out(), shape.assigns)
            self._fast_path.clear()
        made.assigns = tuple(before.effects.places)
        made.assigned = read_by(made.parts(), self._reads.left_out(), made.assigns)
        if isinstance(made, Split):
            made.noted = (before.noted, before.effects.places)
        moved = [t for t, version in zip(outside, versions) if version_of(t) != version]
        if moved:
            written.note(moved)
            for part in made.parts():
                part.graph.set_writes()
        return made

    def captured(self, args, kwargs):
        """The shape of these arguments, captured where it was not; its key, and what _capture takes of the
        call."""
        with self._lock:
            was_cold = self._eager_runs < self._warmup
            self.finish_warmup(args, kwargs)
            leaves, spec = flatten((args, kwargs)) if kwargs else flatten(args)
            tensors, key = self._key(leaves, self._form(spec, args, kwargs))
            if self._tries(key) and not was_cold and self._known(key) is None:
                self._eager_here(args, kwargs)
            call = (leaves, tensors, spec, bool(kwargs), self._verify and "capture")
            while self._known(key) is None:
                try:
                    shape = self._captured_ahead(key, call, args, kwargs)
                except Unfollowed:  # numbers count by their values from now on
                    tensors, key = self._key(leaves, self._form(spec, args, kwargs))
                    call = (leaves, tensors, *call[2:])
                    continue
                key = self._stored(key)
                self._keep(key, shape)
            return self._shapes[key], key, call

    def _captured_ahead(self, key, call, args, kwargs):
        """A shape, captured; behind an eager call where what is made lazily was not there."""
        try:
            return self._capture(key, *call)
        except (Changed, Unobserved) as error:
            if isinstance(error, Changed) and self._refusals.note(self._group(key), error):
                raise
            self._fn(*args, **kwargs)
            self._refusals.observed.add(self._group(key))
        return self._capture(key, *call)

    def _before(self, key, leaves, tensors, spec, has_kwargs, *_):
        """What a capture for a call with these arguments has to leave as it is."""
        if any(map(self._trains, leaves)):
            raise Refused(TRAINED)
        gradients = self._gradients().hold()
        kept = [(name, leaf) for name, leaf in zip(argument_names(spec, has_kwargs), leaves)
                if not isinstance(leaf, self._torch.Tensor)]
        return Before(gradients, Effects(self._torch, self._fn, kept,
                                          self._refusals.known.get(key and self._group(key)), keeps=True,
                                          reads=self._reads))

    def _take(self, before, key, *call):
        return self._by_reach(call[1], lambda params, found: self._take_as(params, found, before, key, *call))

    def _by_reach(self, tensors, take):
        """What take(params, found) returns: the parameters of two graphs, None: of one, and those among them that
        results were found to go back to, though no module has them."""
        params, found = self._watch.params if self._is_split(tensors) else None, []
        for attempt in itertools.count():
            try:
                return take(params, found)
            except Exception as error:
                opened = cause_of(error, Open)
                if opened is None:
                    raise
                known = set(map(id, (*self._watch.params, *found)))
                more = [leaf for leaf in opened.leaves if id(leaf) not in known]
                if params is not None and not more:
                    raise Refused(TURNED) from None
                if attempt == MOST_REACHING:
                    raise Refused(ANEW.format(tuple(more[0].shape))) from None
                clear_frames(error)
            self._opens = True
            found = found + more
            params = [*self._watch.params, *found]

    def _take_as(self, params, found, before, key, leaves, tensors, spec, has_kwargs, verify):
        torch = self._torch
        device = self._device(tensors)
        split = params is not None
        family = self._family(key)
        if split:
            self._numbers.refuse(family, "forward and backward are two graphs")
            self._hyperparameters.refuse("forward and backward are two graphs")
        seat = self._numbers.seat(family, self._others(leaves))
        given, drawing = self._numbers.bind(family, seat), self._numbers.draws(seat)
        bound = self._hyperparameters.bind(given, drawing)
        distributed.check_modules(torch, self._watch.modules, split)
        pool = self._own_pool(device, split)
        aliases = Aliases(torch, self._watch.modules, params, keeps_nodes=self._depth > 1) if split else None
        cpu = self._cpu.attempt(device, self._cpu_family(key), self._on_cpu(leaves),
                                not split and bound is None, tensors)
        numbered = tuple(seat or ())
        prints = Prints() if self._prints and not split else None
        name = self._shape_name(tensors)
        if cpu is not None:
            tensors, verify = tensors + cpu.packed, verify and "capture"
        numbers, once = firsts_of(tensors), None
        if split and numbers is not None:  # autograd has one gradient of a tensor that is two arguments
            once = sorted(set(numbers))
            tensors, numbers = [tensors[i] for i in once], [once.index(i) for i in numbers]
        own, joined = self._again_in(family)
        body = self._body(before, bound, aliases, leaves, spec, has_kwargs, seat, cpu, prints, numbers, own, joined)
        own = self._numbers_of([leaves[i] for i in own], tensors)
        with torch.cuda.device(device):
            if split:
                pair = Pair(self._cpu, device, cpu)
                made = Split(torch, device, body, tensors, aliases, self._generators, values=pair,
                             draws=self._draws, watched=self._backward_watched(before),
                             restore=before.gradients.restore, own=own)
                made.capture(Pool("sequence", parent=pool, name=name), name,
                             verify and "capture")  # a step must not be taken twice
                self._check_brought(made, leaves)
                brings = cpu is not None or bool(own) or any(self._brought(leaf) for leaf in self._others(leaves))
                made.waiting = self._waiting if self._steps_aside else None
                self._waiting.owner = threading.get_ident()
                made.once = once
                made.again = None if self._strict or brings else self._called_again(leaves, spec, has_kwargs, numbers,
                                                                                        joined)
                made.tell_asked = self._asked_teller(key)
                made.let_go(Found(self._reads, found) if found else None)
                pair.give(made, self._reads.compares)
            else:
                if self._grad == "whole" and any(tensor.requires_grad for tensor in tensors):
                    body = refuses_gradients(body, tensors)
                work = self._work(before, device, body, tensors, own)
                if bound is not None:
                    work.begins_anew = bound.forget
                lead = self._leads.get(key[0], 0)
                made = Shape(work, work.capture(pool.native, name, self._copy_args, verify, lead))
                made.lead = lead
                made.scalars = bound and bound.give(made.graph)
                made.seat, made.given_numbers, made.turns = seat, numbered, threading.RLock()
                made.draws = drawing.count if drawing else 0
                made.lines = prints.lines if prints else ()
                self._draws = work.draws
                if cpu is not None:
                    cpu.give(made, made.graph, self._reads.compares)
                    cpu.close()
        for part in made.parts():
            part.stale = self._stale.get(self._settled(key), 0)
        return made

    @staticmethod
    def _numbers_of(some, tensors):
        """Of these, which are some of the tensors, their numbers there."""
        ids = set(map(id, some))
        return [k for k, tensor in enumerate(tensors) if id(tensor) in ids]

    def _work(self, before, device, body, tensors, own=()):
        """All that a call does as one graph. Its backward passes have nodes of their own."""
        torch = self._torch
        nodes = Nodes(torch, before.gradients.params if torch.is_grad_enabled() else ())
        nodes.renew()
        if nodes.hooked:
            body = tells_hooks(body, self._watch.modules, nodes.hooked)
        return Work(torch, device, body, tensors, self._generators, draws=self._draws,
                    put_back=before.gradients.restore, own=own)

    def estimate_into(self, into, args, stand_ins, kept):
        """Rehearses and plans a shape as a capture would, for an estimate (_call/estimate.py), unless it
        is captured. stand_ins fills in tensors; kept: pools that have to outlive the estimate. Returns
        None, or of what cannot be captured its name and why."""
        text = self.name
        try:
            leaves, spec = stand_ins.fill(args)
            tensors, key = self._key(leaves, (spec, False))
            text = self._shape_name(tensors)
            if key not in self._shapes:
                self._cpu.moving(lambda: self._estimate_here(key, into, leaves, tensors, spec, stand_ins,
                                                             kept))
        except Wanted as wanted:
            self._cpu.learn(self._cpu_family(key), len(self._on_cpu(leaves)), wanted)
            return self.estimate_into(into, args, stand_ins, kept)
        except Asked as asked:
            self._answers.learn(self._cpu_family(key), asked)
            return self.estimate_into(into, args, stand_ins, kept)
        except Exception as error:  # whatever the callable raises in a capture
            let_through(error)
            return text, str(error) or type(error).__name__
        return None

    def _estimate_here(self, key, into, leaves, tensors, spec, stand_ins, kept):
        before = self._before(None, leaves, tensors, spec, False)
        try:
            self._rehearse(before, key, into, leaves, tensors, spec, stand_ins, kept)
        finally:
            before.finish()

    def _rehearse(self, before, key, into, leaves, tensors, spec, stand_ins, kept):
        self._by_reach(tensors, lambda params, _: self._rehearse_as(params, before, key, into, leaves, tensors, spec,
                                                                    stand_ins, kept))

    def _rehearse_as(self, params, before, key, into, leaves, tensors, spec, stand_ins, kept):
        torch, device = self._torch, self._device(tensors)
        split = params is not None
        pool, name = self._own_pool(device, split), self._shape_name(tensors)
        aliases = Aliases(torch, self._watch.modules, params, keeps_nodes=self._depth > 1) if split else None
        cpu = self._cpu.attempt(device, self._cpu_family(key), self._on_cpu(leaves), not split, tensors)
        own, joined = self._again_in(self._family(key))
        body = self._body(before, None, aliases, leaves, spec, False, cpu=cpu, own=own, joined=joined)
        own = self._numbers_of([leaves[i] for i in own], tensors)
        tensors = tensors + cpu.packed if cpu is not None else tensors
        with torch.cuda.device(device):
            if split:
                inner = Pool("sequence", parent=pool, name=name)
                kept.append(inner)
                made = Split(torch, device, body, tensors, aliases, self._generators,
                             values=Pair(self._cpu, device, cpu), own=own)
                made.estimate(into, inner, name, stand_ins)
            else:
                self._work(before, device, body, tensors, own).estimate(into, pool.native, name)

    def _called_again(self, leaves, spec, has_kwargs, numbers, joined):
        """How gradients of gradients call it; of the arguments it keeps those that are no tensors. numbers: as of
        spread."""
        torch, watch = self._torch, self._watch
        which = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        stand_ins = [torch.empty(0) if is_tensor else leaf for is_tensor, leaf in zip(which, leaves)]
        body = spread(body_of(torch, self._fn, stand_ins, spec, has_kwargs, joined=joined), numbers)
        return Again(torch, self.name, body, lambda: watch.tensors, lambda: Effects(torch, self._fn))

    def _body(self, before, bound, aliases, leaves, spec, has_kwargs, seat=None, cpu=None, prints=None, numbers=None,
              own=(), joined=None):
        """What the runs of a capture call; before: as _before returned it; aliases: of two graphs; seat, cpu:
        own, joined: as for body_of; prints: a Prints, or None; numbers: as of spread."""
        fn = self._fn if aliases is None else aliases.around(self._fn)
        if cpu is not None:
            before.effects.follows_draws = cpu.follows_draws
        body = body_of(self._torch, fn, leaves, spec, has_kwargs, before.effects.filling, self._brought, seat, cpu, own, joined)
        body = spread(body, numbers)
        body = keeps_containers(self._torch, body, before.effects.containers)
        body = taking_apart(self._torch, body)
        if prints is not None:
            body = prints.body(body)
        body = marks_given(body, self._others(leaves), before.effects.is_part)
        if bound is not None:
            body = bound.body(body)
        body = brings_home(self._torch, body, before.gradients.params)
        body = keeps_wishes(self._reads.refusing(body, before.effects.watched), before.gradients.params)
        return body if aliases is not None or self._grad == "whole" else tells_open(self._torch, body)

    def _backward_watched(self, before):
        """As of Split: hooks and functions of the program's run in backward passes."""
        before.noted = Noted(self._torch)
        return lambda body, results: self._reads.refusing(body, before.effects.unchanging, results, before.noted)

    def _brought(self, leaf):
        return () if is_plain(leaf) else self._object(leaf)[1]

    def _check_brought(self, made, leaves):
        """Raises where a backward graph reads a tensor of an object among the arguments: it would be the first
        call's for ever, as a run has others in the object during the forward pass alone."""
        brought = [tensor for leaf in self._others(leaves) for tensor, _ in self._brought(leaf)]
        places = tuple((tensor.data_ptr(), span(tensor)) for tensor in brought)
        if places and made.backward is not None and any(made.backward.graph.names(places)):
            raise Refused("its backward pass reads a tensor of an object among its arguments, as where a checkpoint "
                          "recomputes with the object: pass it the tensor itself")

    def _keep_gradients(self, key, shape, before):
        """What the capture did to gradients, for the shape's calls."""
        torch, changed = self._torch, before.changed()
        shape.used = before.named_by(torch, shape.graph)
        if changed:
            shape.keep_gradients(changed)
        self._notice_gradients(before, changed or shape.used)
        if key[0] in self._drops or (changed and not shape.used and before.replaced()):
            self._drops[key[0]] = before.missing()

    def _keep_drops(self, key, split, before):
        """The same of two graphs, whose calls may drop gradients and do nothing else to them."""
        changed = before.changed()
        if any(p.grad is not None for p in changed) or before.named_by(self._torch, split.forward.graph):
            raise Refused(USES)
        split.given = tuple((p, None) for p in changed)
        self._notice_gradients(before, changed)
        if changed and before.replaced():
            self._drops[key[0]] = before.missing()

    def _is_split(self, tensors):
        """Is the caller going to ask for gradients through the result?"""
        torch = self._torch
        if not torch.is_grad_enabled() or self._grad == "whole":
            return False
        if any(t.requires_grad for t in tensors):
            return True
        return (self._grad == "split" or is_forward(torch, self._fn)) and self._watch.trains()

    def _shape_name(self, tensors):
        shapes = ", ".join("x".join(map(str, t.shape)) or "scalar" for t in tensors[:3])
        return f"{self.name}({shapes})"

    # ---- Facts ----

    @property
    def name(self):
        return plain(self._name or getattr(self._fn, "__name__", None) or type(self._fn).__name__)

    @property
    def pool(self):
        """The :class:`reprise.Pool` that the graphs lie in, of the current device or else of the first
        that any were captured on; None before the first capture."""
        pools = self._pools
        here = pools.get(self._torch.cuda.current_device()) if len(pools) > 1 else None
        return here or next(iter(pools.values()), self._given_pool)

    @property
    def pools(self):
        """A dict: by the index of each GPU that anything was captured on, the pool of its graphs."""
        return dict(self._pools)

    def shapes(self):
        """What was captured: for each graph a dict of its facts, ``calls`` and
        ``arguments`` (each with ``bound``, ``bindable`` and the ``reason`` why not) among them, and
        how it was ``verified``, with how many ``unverified_args`` are copied for it. With ``buckets``
        also its ``bucket``, ``padded_calls`` and ``waste``, as buckets() has them."""
        facts = []
        for made in list(self._shapes.values()):
            for shape in made.parts():
                facts.append(shape.facts())
        return facts + (self._beside.shapes() if self._beside is not None else [])

    def tune(self, *args, places=8, **kwargs):
        """Chooses by the clock where the memory of a graph lies.

        The parts of a GPU's cache are near to some multiprocessors and far from others, and which part
        4 KiB of memory belong to hangs on their address. So graphs of many small kernels take more or
        less time by where their layout begins in the pool (``bench/torch/places.py``). This captures
        ``fn`` for these arguments at several places, 4 KiB apart, and keeps the graph that was
        quickest; where it has to be captured anew, it lies there again.

        Arguments:
            args, kwargs: As for a call. They are captured first where they were not.
            places (int): How many to try. Default: 8, of which the last begins 28 KiB into the pool.

        Returns:
            A dict: ``us``, a dict of the microseconds of a call at each place, by the bytes that lie
            before it, and ``lead_bytes``, where the graph lies from now on.

        ``fn`` is captured at each place and its graph is called some 50 times there: for callables that
        may be called so often with these arguments. The current stream is synchronised. Raises what
        keeps ``fn`` from being captured, and :class:`reprise.Error` where forward and backward are two
        graphs. The pool may grow by 4 KiB for each place."""
        if places < 1:
            raise ValueError(f"places is {places}, but one has to be tried at least")
        with self._lock:
            first, key, call = self.captured(args, kwargs)
            if not isinstance(first, Shape):
                raise _C.Error(f"forward and backward of '{self.name}' are two graphs for these arguments, "
                               "and only a graph by itself is tuned: call it without gradients")
            chosen, us = self._tuned(first, key, call, places)
            self._drop(key)
            self._shapes[key] = chosen
        return {"us": us, "lead_bytes": chosen.lead}

    def _tuned(self, first, key, call, places):
        """Of graphs of this call at so many places the one that was quickest, where it lies from now on,
        and what a call of each took. A capture that fails leaves the place as it was."""
        torch, lead = self._torch, first.lead
        try:
            tried = [first] + [self._captured_at(key, call, other) for other in other_leads(lead, places)]
            tensors = self._complete(tried, call)
            with torch.cuda.device(first.device):
                us = least_us(torch, tried, tensors)
            chosen = tried[us.index(min(us))]
            lead = chosen.lead
        finally:
            self._leads[key[0]] = lead
        return chosen, {shape.lead: round(u, 3) for shape, u in zip(tried, us)}

    def _complete(self, shapes, call):
        """The arguments of the graphs of these shapes, for a call as for _take. It draws no random numbers of
        the program's."""
        tensors = call[1]
        for shape in shapes:
            if isinstance(shape, Shape) and shape.cpu is not None:
                tensors = [*call[1], *shape.cpu.prepare(self._on_cpu(call[0]))]
                shape.cpu.take_back()
        return tensors

    def _captured_at(self, key, call, lead):
        self._leads[key[0]] = lead
        return self._capture(key, *call)

    def parts(self):
        """What became of the modules in the callable, where it was made with ``parts=True`` and calls of it
        are not captured whole: for each a dict with ``name``, where it is; ``kind``, its class; ``way``:
        ``"graph"``, ``"segments"``, graphs between marked functions (:func:`reprise.eager`), ``"parts"``,
        its own modules are parts in its place, ``"eager"``, or ``"untried"``, as its calls did not come so
        far; ``graphs``, how many it has; ``lanes``, how many of its calls may wait for their backward passes
        at once; ``reason``, why a shape or all of it is not captured, and ``line``, a text, or None."""
        return []

    def buckets(self):
        """What padding costs, where it was made with ``buckets``: for each bucket that was called a dict with
        ``sizes``, a dict of the named dimensions; ``calls``, and ``padded_calls`` of these; and ``waste``,
        the share of the padded sizes, multiplied, that is no true size, from 0 to 1."""
        return []

    def reset(self):
        """Drops all graphs, gives the memory that they lie in back to the device, and makes modules that became
        parts what they were before.

        Results of earlier calls stay as they are. Gradients that graphs left lie in their memory, which goes
        when the last of them does. What is cached for results is PyTorch's: ``torch.cuda.empty_cache()``.
        Calls on other threads that are under way end first; the device is waited for where graphs still run.
        Later calls capture anew."""
        with self._lock:
            if self._beside is not None:
                self._beside.reset()
                self._beside = None
            self._forget()
            self._leads.clear()
            pools = [*self._pools.values(), *([self._given_pool] if self._given_pool else [])]
            self._pools.clear()
            gc.collect()  # what graphs were captured for may lead back to them
            drop_segment_pools()
            _C.sweep()
            for pool in pools:
                pool.trim()

    def failures(self):
        """Why some calls run without a graph: texts."""
        beside = self._beside.failures() if self._beside is not None else []
        return [text for text, _ in self._failures.values()] + self._shortages.texts() + beside

    def hyperparameters(self):
        """Which way the hyperparameters of optimizers go that calls use: for each optimizer a dict with
        ``optimizer``, where it was found; ``kind``, its class; ``way``: ``"patched"``, replays write them
        into kernels' parameters as they are then, so that no value is captured anew, ``"key"``, each value
        has a graph of its own, or ``"eager"``, no call that uses it has a graph; ``patched``, the names of
        those that kernels were found to hold, of the latest capture; ``counted``, how many step counts on
        the CPU each replay moves on; and ``reason``, why the way is no other one, or None."""
        facts = self._hyperparameters.facts()
        if not self._shapes and self._failures:
            for fact in facts:
                fact.update(way="eager", patched=(), counted=0, reason=fact["reason"] or self.failures()[0])
        return facts

    def choices(self):
        """How the calls of each shape go where ``policy`` is ``"auto"``: for each a dict with
        ``shape``, ``choice`` and its ``reason``, ``eager_us`` and ``graph_us``, the counts of calls
        that were judged and measured, and what it took to know: ``capture_ms`` of captures, and
        ``trial_ms`` of calls that went the slower way to be compared."""
        return []


