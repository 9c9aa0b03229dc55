# SPDX-License-Identifier: MIT
"""What Python does while a callable runs: which code it executes, and what no replay would do again.

Code that ran is where names are followed from (_reads/walk.py). What a replay would leave out (a line printed,
a random number of Python's drawn, an iterator moved on, the time looked at) is refused in a capture,
before it happens, so that it happens once, in the eager call that follows.

From CPython 3.12 on the interpreter tells by sys.monitoring, of all threads; before that by sys.setprofile,
of the thread that calls, and with NumPy's generators compared instead. While torch.compile compiles, calls are
not told: that would take as long again as the compiler does.
"""

import builtins
import contextlib
import inspect
import logging
import os
import sys
import threading
import types
from builtins import getattr, hasattr, id  # Python's own, also where functions of _Askers stand for them

from .. import _C
from .._base import generators, torch_private
from .._base.interrupts import is_of_handler
from .._base.lines import Frame
from .._base.warn import warn
from .code import asks_by_made_names, is_foreign_file, is_quiet_file, named
from .draws import is_draw

ID = "id()"  # among the names that code makes
GRADIENT = ".grad"  # likewise: code of PyTorch's asks what it is given for its gradient
STREAM = "the current stream"  # likewise: it compares that with another one
_TOOL = "reprise"
_FREE_TOOLS = (4, 3)
_TIMES = frozenset(("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns",
                    "process_time", "process_time_ns", "thread_time", "thread_time_ns", "localtime", "gmtime", "ctime",
                    "asctime", "strftime", "clock_gettime", "clock_gettime_ns"))
_IO = {"print": "prints", "input": "reads from the terminal", "open": "opens a file"}
_FILE_METHODS = frozenset(("write", "writelines", "read", "readline", "readlines", "readinto", "send",
                           "sendall", "recv", "sendto", "sendmsg", "recv_into", "recvfrom", "recvmsg"))
_SYSTEM = frozenset(("write", "read", "open", "urandom", "getrandom", "system", "remove", "unlink", "replace", "truncate",
                     "rename", "mkdir", "rmdir", "stat", "lstat", "listdir", "scandir", "access", "kill", "posix_spawn",
                     "times"))
# Functions of C that work on files: by name, the modules that have them; and methods, the modules of their classes.
_DUMPS = {"dump": ("_pickle", "marshal"), "load": ("_pickle", "marshal"), "fromfile": ("numpy",),
          "serialize_file": ("safetensors._safetensors_rust",)}
_DUMPERS = {"writerow": ("_csv",), "writerows": ("_csv",), "dump": ("_pickle",), "load": ("_pickle",),
            "tofile": ("numpy", "array"), "execute": ("sqlite3",), "executemany": ("sqlite3",),
            "executescript": ("sqlite3",), "commit": ("sqlite3",)}
# Those of PyTorch, NumPy and Python's library that do.
_NPY = ("numpy.lib._npyio_impl", "numpy.lib.npyio")
_SAVERS = {"save": ("torch.serialization", "torch.jit._serialization", *_NPY), "savez": _NPY, "savez_compressed": _NPY,
           "savetxt": _NPY, "loadtxt": _NPY, "genfromtxt": _NPY,
           "load": ("torch.serialization", "torch.jit._serialization", *_NPY),
           "safe_open": ("builtins", "safetensors")}  # a class
_CLOCKS_AND_PROCESSES = {"fork_exec": ("starts a process", "io"),
                         "getrusage": ("asks for the time, resource.getrusage", "time"),
                         "generate_time_safe": ("draws a number from the time, uuid.uuid1", "time")}
_QUEUE = ("_queue", frozenset(("get_nowait", "put_nowait", "qsize")))  # in C, with methods that are rare elsewhere
_ANSWERS = frozenset(("set_result", "set_exception", "cancel"))  # of a future that others wait for
_SEEDS = frozenset(("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all"))
# torch.get_rng_state is none: Megatron's trackers compare with it that a draw on the GPU left the CPU's alone.
_LOOKS = frozenset(("initial_seed",))  # functions that tell of a generator's state
_LOOKING = frozenset(("get_state", "clone_state", "initial_seed", "get_offset"))  # and methods of a generator
_SETTING = frozenset(("manual_seed", "seed", "set_offset", "set_state"))  # and those that set it
_MEASURES = frozenset((  # functions that tell how much memory there is
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
    "max_memory_cached", "memory_stats", "memory_stats_as_nested_dict", "host_memory_stats", "memory_snapshot",
    "memory_summary", "mem_get_info", "get_memory_info", "device_memory_used", "memory_usage"))
_MEASURED_IN = frozenset(("torch.cuda", "torch.cuda.memory", "torch.accelerator", "torch.accelerator.memory"))
_STREAMS = "torch.cuda.streams"
_LOGS = frozenset(("isEnabledFor", "getEffectiveLevel", "hasHandlers"))  # of Python's loggers, which many share
_CAPTURING = ("is_current_stream_capturing", "torch.cuda.graphs")
_BACKWARD = ("_engine_run_backward", "torch.autograd.graph")  # which each backward pass goes through
# Functions of Python's library that hand work to other threads, or wait for them: their work is in no capture.
_THREADS = {"start": "threading", "join": "threading", "wait": "threading", "put": "queue",
            "submit": "concurrent.futures.thread", "run_coroutine_threadsafe": "asyncio.tasks", **dict.fromkeys((
                "call_soon", "call_soon_threadsafe", "call_later", "call_at", "create_task", "run_in_executor"),
                "asyncio.base_events")}
_OF_GRADIENTS = tuple(os.path.join("torch", *names) for names in (
    ("optim", ""), ("nn", "utils", ""), ("nn", "modules", "module.py"), ("amp", "")))  # files, or folders of them
_OF_STATES = frozenset().union(_SEEDS, _LOOKS, _MEASURES, _THREADS, _LOGS, _SAVERS, _ANSWERS, (
    "__eq__", _CAPTURING[0], _BACKWARD[0]))
_FORK = "fork_rng"
# Of what is implemented in C nothing else has an effect, but for methods of NumPy's generators.
_WORDS = frozenset().union(
    _TIMES, _IO, _FILE_METHODS, _SYSTEM, _DUMPS, _DUMPERS, _CLOCKS_AND_PROCESSES, _QUEUE[1], _ANSWERS, _SEEDS, _LOOKS,
    _LOOKING, _SETTING, _MEASURES,
    ("isenabled", "next", "globals", "setattr", "delattr", "safe_open", "random", "getrandbits", "seed", "now", "utcnow",
     "today"))
_NUMPYS = ("numpy.random.mtrand", "numpy.random._generator")
_SEEDED = ("seeds PyTorch's random numbers", "seed")
_LOOKED = ("looks at the state of PyTorch's random numbers", "state")
_MEASURED = ("asks how much memory there is", "state")
_HANDED = ("hands work to another thread, or waits for one", "thread")
_ANSWERED = ("answers a future, which somebody waits for", "answer")
_FILED = ("writes to a file or reads from one", "io")
_NAMED = ("sets globals by names that nobody tells of", "names")
_COMPARED = ("asks whether the current stream is the one that it is", "state")
_FORKED = ("draws random numbers on the CPU within torch.random.fork_rng", "random")
_KEEP_OUT = ("torch._compile", "torch._dynamo.")
_SEEDED_IN = frozenset(("torch.random", "torch.cuda.random"))
_OF_LIBRARIES = ("site-packages", "dist-packages")
_GLOBALS = (globals, setattr, delattr)  # by which code sets globals without their names
_ABSENT = object()
_warned: set[tuple] = set()  # lines
_monitored: dict[int, list] = {}  # by thread, of each run that it is in: (pauses, goes on)
_asking: dict[int, list] = {}     # likewise, of those in which functions stand for getattr and hasattr
_MENDS = {
    "seed": "Seed them before the call",
    "state": "Look at it outside of the call",
    "random": "Draw on the GPU (torch.rand), or draw before the call and pass a tensor",
    "iterator": "Take from it before the call, and pass what it gave",
    "time": "Look at the time outside of the call",
    "io": "Do that outside of the call",
    "answer": "Answer it behind the call",
    "names": "Name them in the code, or keep them in a dict or an object",
    "thread": "Do that work on this thread, or outside of the call",
}


class Effect(_C.Error):
    """What the callable does besides computing would take place once, and in no replay. is_draw, is_print:
    replays can do it, where they are told to (draws.py, prints.py)."""

    is_draw = is_print = False


def describe(what, kind, line):
    place = f" (at {line})" if line else ""
    return f"it {what}{place}, which a replay would not do again. {_MENDS[kind]}"


def effect_at(what, kind, frame):
    """The error of something that happens there."""
    return Effect(describe(what, kind, _program_line(frame)))


def effect_of(function, first=None, iterators=()):
    """(what, kind) of a call of something that is implemented in C; None: a replay needs not do it.
    first: its first argument, where that is known."""
    name = getattr(function, "__name__", None)
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None)
    if name == "next" and module == "builtins":
        if iterators and (first is None or any(first is it for it, _ in iterators)):
            path = next((p for it, p in iterators if it is first), iterators[0][1])
            return f"moves the iterator `{path}` on", "iterator"
        return None
    if module == "builtins" and name in _IO and (owner is None or isinstance(owner, types.ModuleType)):
        return _IO[name], "io"
    if name == "open" and module in ("io", "_io"):
        return _IO["open"], "io"
    if module == "time" and name in _TIMES:
        return f"asks for the time, time.{name}", "time"
    if module == "gc" and name == "isenabled":  # captures are taken without collections
        return "asks whether garbage is collected, gc.isenabled", "state"
    if module in _DUMPS.get(name, ()):
        return _FILED
    if name in _CLOCKS_AND_PROCESSES:
        return _CLOCKS_AND_PROCESSES[name]
    if module in ("posix", "nt") and name in _SYSTEM:
        return f"calls os.{name}", "random" if "random" in name else "io"
    if owner is None and type(function) is types.MethodDescriptorType:
        owner = first
    return _effect_of_method(name, owner) if owner is not None else None


def _effect_of_method(name, owner):
    kind = owner if isinstance(owner, type) else type(owner)
    above = {base.__module__ for base in kind.__mro__}
    if "_random" in above and name in ("random", "getrandbits", "seed"):
        return "draws random numbers of Python's", "random"
    if kind.__module__ in _NUMPYS:
        return "draws random numbers of NumPy's", "random"
    if kind.__module__ == "torch._C" and kind.__name__ == "Generator":
        return _effect_on_generator(name, owner)
    if kind.__module__ == "datetime" and name in ("now", "utcnow", "today"):
        return f"asks for the time, {kind.__name__}.{name}", "time"
    if above & {"_io", "io", "_socket"} and name in _FILE_METHODS:
        return _FILED
    if not above.isdisjoint(_DUMPERS.get(name, ())):
        return _FILED
    if name in _ANSWERS and kind.__name__ in ("Future", "Task") and (above & {"_asyncio", "torch._C"}):
        return _ANSWERED
    if _QUEUE[0] in above and name in _QUEUE[1]:
        return _HANDED
    if name in _THREADS and any(module.startswith("uvloop") for module in above):
        return _HANDED
    return None


def _effect_on_generator(name, generator):
    """One of the CPU's that a run makes, or whose state effects look at, may be seeded. What the state of one of a
    device tells is told in captures."""
    is_default = generator is getattr(sys.modules.get("torch"), "default_generator", None)
    on_cpu = isinstance(generator, type) or generator.device.type == "cpu"
    if name in _LOOKING and (on_cpu or name == "initial_seed"):
        return _LOOKED
    if name in _SETTING and (is_default or not on_cpu) and (on_cpu or name != "set_state"):
        return _SEEDED
    return None


def _effect_of_library(name, module):
    """Of a function in Python, of PyTorch's own or of Python's library."""
    if _THREADS.get(name, "") == module:
        return _HANDED
    if module in _SAVERS.get(name, ()):
        return _FILED
    if name in _ANSWERS and module == "torch.futures":
        return _ANSWERED
    if name in _MEASURES:
        return _MEASURED if module in _MEASURED_IN else None
    if module not in _SEEDED_IN:
        return None
    if name in _SEEDS:
        return _SEEDED
    return _LOOKED if name in _LOOKS else None


def _program_line(frame):
    """The program's line that a frame was called from, innermost; None where PyTorch or a warning of
    Python's did it."""
    while frame is not None:
        code = frame.f_code
        name = frame.f_globals.get("__name__", "")
        if name == "warnings" or name.startswith(("torch.", "triton.", "reprise.", "numpy.")) or (
                name in ("torch", "reprise", "linecache", "importlib._bootstrap")):
            return None
        if not is_foreign_file(code.co_filename):
            return Frame(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


def place_of(code):
    """What tells code apart from other code, in all the versions of it that compilers make."""
    return (code.co_filename, code.co_firstlineno, code.co_name)


class Executed(set):
    """Places of code that ran.

    Attributes:
        asked: The qualified names of classes of whose objects runs asked for attributes by names that they made;
            None: runs do not tell.
        loose: Code that is no function's, as eval executes it, with its globals where those are a module's.
        made: The names that they made; ID, where a capture's asked for that of an argument; GRADIENT.
        loggers: Those of Python's that they asked whether they log, by name.
        stored: The names by which code that ran sets attributes and globals.
        read: The names by which it reads them.
        untold: Places of code that reads by names that nobody tells of.
    """

    def __init__(self, *places):
        super().__init__(*places)
        self.asked = set() if hasattr(sys, "monitoring") else None
        self.loose = {}
        self.loggers = {}
        self.made = set()
        self.stored, self.read, self.untold = set(), set(), set()

    @property
    def size(self):
        """Another number wherever there is more."""
        return len(self) + len(self.made) + len(self.loggers) + self.size_untold

    @property
    def size_untold(self):
        """Another number wherever there is more that may read by any name."""
        return len(self.loose) + len(self.untold) + (1 << 40 if self.asked is None else len(self.asked))

    def reads_any(self, names):
        """Does it read by one of these names, as far as that is told?"""
        return not (self.read.isdisjoint(names) and self.made.isdisjoint(names))

    def start(self, code):
        """Code that is followed begins."""
        found, place = named(code), place_of(code)
        self.add(place)
        self.stored |= found.stored
        self.read |= found.attributes | found.globals
        if found.dynamic and not found.by_calls:
            self.untold.add(place)

    def add_all(self, other):
        """Takes what another one has."""
        self.update(other)
        self.asked = None if other.asked is None else set(other.asked)
        self.loose.update(other.loose)
        self.loggers.update(other.loggers)
        for mine, its in ((self.made, other.made), (self.stored, other.stored), (self.read, other.read),
                          (self.untold, other.untold)):
            mine |= its

    def copy(self):
        made = Executed()
        made.add_all(self)
        return made

    def note_id(self, frame):
        """Code asks for the id of an argument, or finds something by it in a dict or set."""
        if frame.f_code.co_name == "__hash__":
            frame = frame.f_back
        if not is_foreign_file(frame.f_code.co_filename):
            self.made.add(ID)

    def note_name(self, code, ask, asked, name):
        """The program's code asks for an attribute of this name, by `ask`: getattr or hasattr."""
        self.note(code, ask, asked)
        if name not in named(code).attributes:
            self.made.add(name)

    def note(self, code, function, first):
        """Code calls something that is implemented in C."""
        if self.asked is None or is_foreign_file(code.co_filename):
            return
        if _is_asker(first):  # map(getattr, ..): nobody tells of what
            self.asked = None
        elif _is_asker(function) and asks_by_made_names(code):
            self.asked.add((first if isinstance(first, type) else type(first)).__qualname__)


def _is_of_module(names):
    """Are these the globals of a module?"""
    name = names.get("__name__")
    return type(name) is str and getattr(sys.modules.get(name), "__dict__", None) is names


def _is_importing(frame):
    return frame.f_back is not None and frame.f_back.f_code.co_filename.startswith("<frozen importlib")


def _is_asker(value):
    """Is it what the program finds by these names now?"""
    return value is builtins.getattr or value is builtins.hasattr


class _ToldElsewhere:
    """The profile of a thread of autograd's, until the first event behind the run that set it. It stays in
    _told_elsewhere until another one takes its place there: freed while it is called, it would take what the
    interpreter still uses along (seen with CPython 3.11, as a segmentation fault)."""

    __slots__ = ("_run",)

    def __init__(self, run):
        self._run = run

    def __call__(self, frame, event, argument):
        run = self._run
        if run is None or run.is_over:
            self._run = None
            sys.setprofile(None)
        elif event == "call":
            run.started(frame.f_code, frame)
            run.notes(frame.f_code, frame)
        elif event == "c_call":
            run.called_behind(argument, None, frame)


_told_elsewhere: dict[int, _ToldElsewhere] = {}  # by number of a thread of autograd's: the latest there


class Run:
    """One run, recorded: `with Run(executed, iterators, refuses) as run`.

    executed: an Executed that it adds to. refuses: an effect raises before it takes place;
    otherwise `effects` has them. iterators: (iterator, path) of those that were there before. hears: is it told of
    what is executed? Otherwise it compares what it finds behind the run. noted: of a backward run, a
    behind.Noted. stream: of a run in a capture, the caller's, a number."""

    def __init__(self, executed, iterators=(), refuses=False, hears=True, noted=None, stream=None):
        self.executed = executed
        self._stream = stream
        self.noted = noted
        self.iterators = tuple(iterators)
        self.refuses = refuses
        self.hears = hears
        self.effects = []
        self.unseen = []  # those of them that were not seen before they took place
        self.refused = None
        self.capturing = None  # a line that asks whether the stream captures
        self.thread = threading.get_ident()
        self._generators = {id(it.gi_code): (it, path) for it, path in iterators
                            if isinstance(it, types.GeneratorType)}
        self.given = frozenset()  # ids of what stands in for arguments
        self._pass = None  # the number of a backward pass that is the run's
        self._end = self._put_back = None
        self._globals = {}  # by id: those of a module that code asks for whole, what they were, and the line

    def __enter__(self):
        self._numpy, self._mark = _numpy_state(), generators.mark(_numpys())
        self._counts = [_position(it) for it, _ in self.iterators]
        if not self.hears:
            return self
        if self.refuses or torch_private.has_compiler():  # one that an eager call imports would meet what stands in there
            self._put_back = _askers_told(self)
        self._end = _monitor(self) if hasattr(sys, "monitoring") else None
        if self._end is None:
            self.executed.asked = None
            self._end = _profile(self)
        return self

    def ending(self, body):
        """The same body; once it ends, nobody tells of what is executed."""
        def run(placed):
            try:
                return body(placed)
            finally:
                self._end_events()
        return run

    def on_threads_of(self, body, results):
        """The body of a backward run, which is told of on autograd's threads too. Those of a device begin with the
        hooks of what it goes back from, ahead of the program's own."""
        def run(placed):
            if hasattr(sys, "monitoring"):
                return body(placed)
            hooks = [_first_hook(result, self._begin_here) for result in results()]
            try:
                return body(placed)
            finally:
                for hook in hooks:
                    hook.remove()
        return run

    def _begin_here(self, grads):
        here = threading.get_ident()
        if here != self.thread and sys.getprofile() is None:
            _told_elsewhere[here] = told = _ToldElsewhere(self)
            sys.setprofile(told)

    def goes_back(self, code, frame):
        """Is it what begins a backward pass? On the run's thread the next one is the run's, so that effects in it are
        refused. A profile tells of its own thread alone: the device's thread of autograd is told of too."""
        if (code.co_name, frame.f_globals.get("__name__")) != _BACKWARD:
            return False
        if threading.get_ident() == self.thread:
            torch_private.call_behind(sys.modules["torch"], self._begins_behind)
        return True

    def _begins_behind(self, grad):
        self._pass = torch_private.pass_here() + 1
        if not hasattr(sys, "monitoring"):
            self._begin_here(grad)

    @property
    def is_over(self):
        return self._end is None

    def _end_events(self):
        """May be interrupted anywhere, and called again then."""
        if self._put_back is not None:
            self._put_back()
            self._put_back = None
        if self._end is not None:
            self._end()
            self._end = None

    def __exit__(self, kind, error, trace):
        self._end_events()
        self._compare()
        if self.capturing is not None and self.refuses and self.capturing[:2] not in _warned:
            _warned.add(self.capturing[:2])
            warn(f"reprise: it asks whether the current stream captures (at {self.capturing}). In a graph it does, so "
                 "that replays go the way of captures, also where eager calls go another one")
        if self.refused is not None and not (isinstance(error, KeyboardInterrupt) or error is not None and is_of_handler(error)):
            raise self.refused from (None if error is self.refused else error)

    def _compare(self):
        """What was not seen to happen, but has."""
        if self._has_drawn_numpys():
            self._happened("draws random numbers of NumPy's", "random")
        for (iterator, path), before in zip(self.iterators, self._counts):
            if before is not None and _position(iterator) != before:
                self._happened(f"moves the iterator `{path}` on", "iterator")

        for names, before, line in self._globals.values():
            self._compare_globals(names, before, line)

    def _compare_globals(self, names, before, line):
        """Did the run set some that no code says the names of? Then they are put back, but behind an eager call."""
        changed = {name for name in (*names, *before) if names.get(name, _ABSENT) is not before.get(name, _ABSENT)}
        changed -= self.executed.stored
        if not changed:
            return
        self.unseen.append(describe(*_NAMED, line))
        self._noted(*_NAMED, line)
        for name in changed if self.refuses else ():
            if name in before:
                names[name] = before[name]
            else:
                del names[name]

    def _has_drawn_numpys(self):
        """Where the run imported the generator nobody knows. Behind an eager run a capture will."""
        if self._numpy is None:
            return self.refuses and _numpy_random() is not None
        return not self._has_numpys_mark() and _numpy_state() != self._numpy

    def _has_numpys_mark(self):
        return self._mark is not None and generators.mark(_numpys()) == self._mark

    def _happened(self, what, kind):
        known = next((text for text in self.effects if text.startswith(f"it {what}")), None)
        self.unseen.append(known or describe(what, kind, None))
        if known is None:
            self._noted(what, kind, None)

    def _noted(self, what, kind, line):
        text = describe(what, kind, line)
        if all(text != known for known in self.effects):
            self.effects.append(text)
        if self.refuses and self.refused is None:
            self.refused = Effect(text)
        return self.refused

    # ---- Events ----

    def started(self, code, frame):
        if not is_foreign_file(code.co_filename):  # those are not followed, whether they run or not
            self.executed.start(code)
            if code.co_name == "<module>" and not code.co_flags & inspect.CO_OPTIMIZED and not _is_importing(frame):
                self.executed.loose[code] = frame.f_globals if _is_of_module(frame.f_globals) else {}
        elif _asks_for_gradients(code):
            self.executed.made.add(GRADIENT)

    def notes(self, code, frame):
        """Code begins in this frame; is it noted each time?"""
        if self.noted is None or not self.noted.wants(code):
            return False
        self.noted.begins(frame)
        return True

    def looks_at(self, code):
        """Is it to know each time that code goes on?"""
        return id(code) in self._generators

    def looks_at_some(self):
        return bool(self._generators)

    def resumed(self, code):
        found = self._generators.get(id(code))
        if found is not None:
            self._happened(f"moves the iterator `{found[1]}` on", "iterator")

    def called(self, function, first, frame):
        """Raises where that has an effect and such are refused."""
        if type(function) not in _IN_C:
            found = _effect_of_library(getattr(function, "__name__", ""), getattr(function, "__module__", None))
            if found is not None:
                self.seeded(found, frame, first)
            if not hasattr(function, "__self__") or isinstance(function, types.MethodType):
                return
        if any(function is one for one in _GLOBALS):
            self._asks_for_globals(frame.f_globals if function is _GLOBALS[0] else first, frame)
            return
        found = effect_of(function, first, self.iterators)
        if found is None:
            return
        line = _program_line(frame)
        if line is None:
            return
        refused = self._noted(*found, line)
        if refused is not None:
            refused.is_draw, refused.is_print = is_draw(function), function is print
            raise refused

    def _asks_for_globals(self, module, frame):
        names, line = vars(module) if isinstance(module, types.ModuleType) else module, _program_line(frame)
        if line is not None and type(names) is dict and id(names) not in self._globals:  # compilers set some, too
            self._globals[id(names)] = (names, dict(names), line)

    def called_behind(self, function, first, frame):
        """Likewise on a thread of autograd's, in a backward pass. Where that may be another thread's, nothing is
        raised, and the run is refused as it ends."""
        found = effect_of(function, first, self.iterators) if type(function) in _IN_C else None
        line = _program_line(frame) if found is not None else None
        refused = self._noted(*found, line) if line is not None else None
        if refused is not None and torch_private.pass_here() == self._pass:
            raise refused

    def told_of_streams(self, code, frame):
        """Is this code of PyTorch's that compares streams, or tells whether one captures, or a logger's that tells
        whether it logs? Then what it is called for counts, on the run's thread."""
        if _is_of_streams(code):
            tell = self._compares_streams
        elif _asks_for_capture(code, frame):
            tell = self._asks_for_capture
        elif code.co_name in _LOGS and frame.f_globals.get("__name__") == "logging":
            tell = self._asks_logger
        else:
            return False
        if threading.get_ident() == self.thread:
            tell(frame)
        return True

    def _compares_streams(self, frame):
        """One of PyTorch's streams is compared with another one. In a capture the current one is the capture's."""
        line = _program_line(_caller(frame))
        if line is None:
            return
        one, other = (getattr(frame.f_locals.get(name), "cuda_stream", None) for name in ("self", "o"))
        here = current_stream()
        if None in (one, other) or here not in (one, other):
            return
        self.executed.made.add(STREAM)
        if self._stream is not None and {one, other} == {here, self._stream} and here != self._stream:
            refused = self._noted(*_COMPARED, line)
            if refused is not None:
                raise refused

    def _asks_for_capture(self, frame):
        """Code asks whether the current stream captures. Libraries that do know what they do in captures."""
        line = _program_line(_caller(frame))
        if line is not None and not any(folder in line.file for folder in _OF_LIBRARIES):
            self.capturing = line

    def _asks_logger(self, frame):
        """A logger is asked whether it logs, wherever code has it from."""
        logger = frame.f_locals.get("self")
        if isinstance(logger, logging.Logger) and _program_line(_caller(frame)) is not None:
            self.executed.loggers[logger.name] = logger

    def seeded(self, found, frame, state):
        """A function of PyTorch's is called that seeds, sets a state, or tells of one, or one of Python's that hands work
        to threads. found: what it does; frame: its caller; state: what it is given."""
        if frame.f_code.co_name == _FORK and frame.f_globals.get("__name__") == "torch.random":
            frame = frame.f_back  # who ends with it
            found = None if _is_state(state) else _FORKED
        line = _program_line(frame) if found is not None else None
        refused = self._noted(*found, line) if line is not None else None
        if refused is not None:
            raise refused


def current_stream():
    """A number of this thread's, on the current device; 0 where CUDA does not run yet."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda.current_stream().cuda_stream if cuda is not None and cuda.is_initialized() else 0


def _is_of_streams(code):
    """Does it compare streams?"""
    kind = getattr(sys.modules.get(_STREAMS), "Stream", None)
    return code.co_name == "__eq__" and code is getattr(getattr(kind, "__eq__", None), "__code__", None)


def _asks_for_capture(code, frame):
    return (code.co_name, frame.f_globals.get("__name__")) == _CAPTURING


def _first_hook(tensor, hook):
    """The handle of a hook that is called ahead of those that the tensor has: in the order of the dict that an
    OrderedDict is."""
    handle = tensor.register_hook(hook)
    hooks = tensor._backward_hooks
    for key in [key for key in hooks if key != handle.id]:
        hooks[key] = hooks.pop(key)
    return handle


def _is_state(state):
    """Is the CPU's generator where it was in this state?"""
    torch = sys.modules["torch"]
    return not isinstance(state, torch.Tensor) or state.numpy().tobytes() == (
        torch.default_generator.get_state().numpy().tobytes())


_IN_C = (types.BuiltinFunctionType, types.MethodWrapperType, types.ClassMethodDescriptorType,
         types.MethodDescriptorType)
_KINDS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodDescriptorType,
          types.MethodWrapperType)
_STANDS_IN = frozenset(("__getattr__", "__getattribute__"))


def _is_harmless(kind, is_called):
    """Has no method of its objects an effect, but by one of _WORDS? is_called: has no call of the class or of its
    objects one? Those that stand for others may, and methods that are called as they are."""
    if not is_called:
        return kind.__module__ not in _NUMPYS
    if kind in _IN_C or _effect_of_library(kind.__name__, kind.__module__) is not None or (
            hasattr(kind, "__self__") and kind is not super):
        return False
    module = getattr(sys.modules.get("torch.nn"), "Module", None)
    if kind.__getattribute__ is object.__getattribute__ and getattr(kind, "__getattr__", None) in (
            None, getattr(module, "__getattr__", None)):
        return True  # so no class of its own has either
    return all(one is module or one.__module__ == "builtins" or _STANDS_IN.isdisjoint(vars(one))
               for one in kind.__mro__)


def _told(ask, answer=None, begins=None):
    """The same, but for events of no interest (csrc/reads/told.c)."""
    return _C.Told(ask, _WORDS, answer, begins, (_is_quiet, _is_idle, _makes_names), _is_harmless, _KINDS,
                   (builtins.getattr, builtins.hasattr))


def _is_quiet(code):
    return is_quiet_file(code.co_filename)


def _is_idle(code):
    """Does its beginning tell nothing?"""
    return is_foreign_file(code.co_filename) and not _asks_for_gradients(code) and (
        code.co_name not in _OF_STATES or (code.co_name == "__eq__" and not _is_of_streams(code)))


def _asks_for_gradients(code):
    """Is it code of PyTorch's that works on the gradients of what it is given, as clip_grad_norm_() and optimizers do?"""
    return "grad" in code.co_names and any(part in code.co_filename for part in _OF_GRADIENTS)


def _makes_names(code):
    """Are the names that it asks for to be noted, as of Executed?"""
    return not is_foreign_file(code.co_filename) and asks_by_made_names(code)


def _position(iterator):
    """Where an iterator stands, as a value; None: it does not tell."""
    if isinstance(iterator, types.GeneratorType):
        frame = iterator.gi_frame
        return None if frame is None else (frame.f_lasti, frame.f_lineno, _locals(frame))
    try:
        return repr(iterator.__reduce__()) if type(iterator).__module__ in ("builtins", "itertools") else None
    except Exception:  # it holds what cannot be taken apart
        return None


def _locals(frame):
    return tuple((name, id(value)) for name, value in frame.f_locals.items())


def _numpys():
    """NumPy's own generator; None where nobody knows."""
    return getattr(getattr(_numpy_random(), "get_state", None), "__self__", None)


def _numpy_random():
    """NumPy's module, where anybody imported it: NumPy does so itself when it is first asked for, which takes 5 ms
    and makes the generator."""
    return sys.modules.get("numpy.random")


def _numpy_state():
    """NumPy's own generator's state, as bytes; None where it is not there."""
    random = _numpy_random()
    if random is None or not hasattr(random, "get_state"):  # or it is being imported
        return None
    name, keys, position, *rest = generators.state_of(_numpys(), random.get_state)[0]
    return (name, keys.tobytes(), position, *rest)


def _monitor(run):
    """Events by sys.monitoring; a function that ends them, or None where others have all tools."""
    monitoring = sys.monitoring
    tool = next((t for t in _FREE_TOOLS if monitoring.get_tool(t) is None), None)
    if tool is None:
        return None
    events = monitoring.events

    def start(code, offset):
        frame = sys._getframe(1)
        run.started(code, frame)
        if not run.notes(code, frame) and code.co_name not in _OF_STATES:
            return monitoring.DISABLE  # once is enough; compilers call millions of functions
        if run.told_of_streams(code, frame) or run.goes_back(code, frame):
            return None
        found = _effect_of_library(code.co_name, frame.f_globals.get("__name__"))
        if found is not None and threading.get_ident() == run.thread:  # PyTorch's own calls are told nowhere else
            run.seeded(found, _caller(frame), frame.f_locals.get("new_state"))
        return None

    def resume(code, offset):
        run.resumed(code)

    def call(code, offset, function, first):
        first = None if first is monitoring.MISSING else first
        run.executed.note(code, function, first)
        if threading.get_ident() == run.thread:
            run.called(function, first, sys._getframe(1))
        elif torch_private.pass_here() >= 0:
            run.called_behind(function, first, sys._getframe(1))
        return None

    def tell(which):
        if monitoring.get_tool(tool) == _TOOL:
            monitoring.set_events(tool, which)

    all_events = events.PY_START | events.CALL | (events.PY_RESUME if run.looks_at_some() else 0)
    pauses = (lambda: tell(events.PY_START), lambda: tell(all_events))
    monitoring.use_tool_id(tool, _TOOL)
    told = _told(call, monitoring.DISABLE, start)
    wanted = ((events.PY_START, told.start), (events.PY_RESUME, resume), (events.CALL, told.call))
    for event, function in wanted:
        monitoring.register_callback(tool, event, function)
    monitoring.set_events(tool, all_events)
    monitoring.restart_events()
    _monitored.setdefault(run.thread, []).append(pauses)
    torch_private.around_compilations(_paused)
    put_back = _numpys_state_told(run)

    def end():
        put_back()
        if monitoring.get_tool(tool) != _TOOL:
            return
        others = [other for other in _monitored.pop(run.thread, ()) if other is not pauses]
        if others:
            _monitored[run.thread] = others
        monitoring.set_events(tool, 0)
        for event, _ in wanted:
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
    return end


@contextlib.contextmanager
def _paused():
    """A compilation on this thread: what it calls is no run's. Of what it executes runs are told."""
    found = [(of, of.pop(threading.get_ident(), [])) for of in (_monitored, _asking)]
    for pause in (pause for _, pauses in found for pause, _ in reversed(pauses)):
        pause()
    try:
        yield
    finally:
        for go_on in (go_on for _, pauses in found for _, go_on in pauses):
            go_on()
        for of, pauses in found:
            if pauses:
                of[threading.get_ident()] = pauses


def _caller(frame):
    """Who called a function of PyTorch's, behind what keeps compilers out of it."""
    frame = frame.f_back
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_KEEP_OUT):
        frame = frame.f_back
    return frame


def _can_go_on(profiler):
    """Can what getprofile told of be stopped, and go on? A profiler in C is told of by an object of its own, which
    setprofile would call: cProfile's stops and begins by itself, of others nobody knows how."""
    return profiler is None or callable(profiler) or (hasattr(profiler, "enable") and hasattr(profiler, "disable"))


def _stopped(profiler):
    """Stops it; what has it go on."""
    if profiler is None or callable(profiler):
        return lambda: sys.setprofile(profiler)
    profiler.disable()
    return profiler.enable


def _profile(run):
    before = sys.getprofile()
    if not _can_go_on(before):
        if not run.refuses:  # an eager call, whose capture is refused later
            return None
        raise _C.Error(f"a profiler of type {type(before).__qualname__} listens to this thread, which nobody can have "
                       "go on behind a capture. Begin it after the captures, or use CPython 3.12")
    go_on = _stopped(before)

    def profile(frame, event, argument):
        """Is that all there is to this code?"""
        if event == "c_call":
            run.called(argument, None, frame)
            return False
        code = frame.f_code
        run.started(code, frame)
        is_noted = run.notes(code, frame)
        if frame.f_lasti > 0:  # or it begins: CPython 3.11 tells no difference
            run.resumed(code)
        if run.told_of_streams(code, frame) or run.goes_back(code, frame):
            return False
        found = _effect_of_library(code.co_name, frame.f_globals.get("__name__"))
        if found is not None:
            run.seeded(found, _caller(frame), frame.f_locals.get("new_state"))
        return found is None and not is_noted and not run.looks_at(code)

    sys.setprofile(_told(profile).profile)
    put_back = _numpys_state_told(run)

    def end():
        sys.setprofile(None)  # or what goes on takes its place alone
        go_on()
        put_back()
    return end


class _Askers:
    """What interpreters tell of a call is its first argument at most. While runs last, functions stand for
    getattr and hasattr that note names which code makes, and one for id that notes what stands in for an argument.
    They are the same for all runs, of which several threads may have some at once."""

    NAMES = ("getattr", "hasattr", "id")

    def __init__(self):
        self._lock = threading.RLock()  # the end of a run that garbage is may come while another begins
        self._runs = []  # replaced, never changed: whoever is asked goes through it
        self._noting = set()  # threads: what a note asks for itself is none of a run's
        self._found = {}  # what they stand for
        self._ours = {}

    def _told(self, ask):
        def asking(*args):
            if len(args) > 1 and type(args[1]) is str and not is_foreign_file(sys._getframe(1).f_code.co_filename):
                self._note(lambda run, frame: run.executed.note_name(frame.f_code, ask, args[0], args[1]))
            return ask(*args)
        return asking

    def _id_told(self, find):
        def id_told(*args):
            number = find(*args)
            if any(number in run.given for run in self._runs):
                self._note(lambda run, frame: number in run.given and run.executed.note_id(frame))
            return number
        return id_told

    def _note(self, note):
        here = threading.get_ident()
        if here in self._noting:
            return
        self._noting.add(here)
        try:
            for run in self._runs:
                if run.thread == here:
                    note(run, sys._getframe(2))
        finally:
            self._noting.discard(here)

    def begin(self, run):
        with self._lock:
            if not self._runs:
                is_foreign_file(__file__)  # finds out what that takes, and asks nobody from now on
                self._stand_in()
            self._runs = [*self._runs, run]

    def _stand_in(self):
        self._found = {name: getattr(builtins, name) for name in self.NAMES}
        self._ours = {name: (self._id_told if name == "id" else self._told)(self._found[name]) for name in self.NAMES}
        self._replace(self._found, self._ours)

    def end(self, run):
        """Does nothing where it ended before."""
        with self._lock:
            if run in self._runs:
                left = self._runs.copy()
                left.remove(run)
                self._runs = left
                if not left:
                    self._replace(self._ours, self._found)

    def _replace(self, before, after):
        for name in self.NAMES:
            if vars(builtins)[name] is before[name]:
                setattr(builtins, name, after[name])


_askers = _Askers()


def _askers_told(run):
    """Notes what a run asks for, as _Askers has it, until code was compiled, which would be compiled anew for its
    functions; returns what ends that. Compilers on its thread, who would take them in, find Python's own."""
    def begin():
        if not torch_private.frames_compiled():
            _askers.begin(run)

    pauses = (lambda: _askers.end(run), begin)
    begin()
    _asking.setdefault(run.thread, []).append(pauses)
    torch_private.around_compilations(_paused)

    def end():
        _asking[run.thread] = [other for other in _asking.get(run.thread, ()) if other is not pauses]
        _askers.end(run)
    return end


def _numpys_state_told(run):
    """Methods of NumPy's generators are none that a profile is told of: while the run lasts, a function stands for
    the one that tells of its own generator's state. Returns what ends that."""
    random = _numpy_random()  # or the look would import it
    get_state = getattr(random, "get_state", None)
    if get_state is None:
        return lambda: None

    def told(*args, **kwargs):
        line = _program_line(sys._getframe(1)) if threading.get_ident() == run.thread else None
        refused = run._noted("looks at the state of NumPy's random numbers", "state", line) if line else None
        if refused is not None:
            raise refused
        return get_state(*args, **kwargs)

    def end():
        if vars(random).get("get_state") is told:
            random.get_state = get_state
    random.get_state = told
    return end
