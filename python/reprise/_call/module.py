# SPDX-License-Identifier: MIT
"""A graphed module, which is a module still.

It is an object of a class made for it, below GraphedModule and the module's own class, and shares the
module's ``__dict__``. So parameters, buffers, children, mode, hooks and the module's own attributes and
methods are the same for both, whichever is asked or told. The class's ``__call__`` is the Graphed itself:
torch.nn.Module's own ``__call__``, and what Python does for it, stay off the way of a replay.

    graphed(net)     leaves net as it was, and returns another object
    graphed_(net)    gives net that class; what runs eagerly is a twin of the former class, which shares
                     the __dict__ too

A copy is graphed and has captured nothing; what is pickled is the module.
"""

import copy
import operator
import weakref

_ASIDE = ("__call__", "__reprise__")

GraphedModule = None  # the class, made once torch is there


class Twins:
    """What a class knows of its one object. plain: the module that runs eagerly; made: its Graphed;
    again: makes another of a module; gone: tells the object's end."""

    def __init__(self, plain, made, again):
        self.plain = plain
        self.made = made
        self.again = again
        self.gone = None


def _prepare(torch):
    """Makes GraphedModule."""
    global GraphedModule
    if GraphedModule is not None:
        return

    class Made(torch.nn.Module):
        """A module whose calls are replayed: what :func:`reprise.graphed` makes of a module. Facts of the
        graphs are attributes, as of :class:`reprise.Graphed`, where the module has none of that name."""

        def __init_subclass__(cls, **kwargs):
            """The module's class is not told of a subclass, which is nobody's but ours."""

        def __new__(cls, *args, **kwargs):
            """What type(self)(...) makes is a module of the former class."""
            return type(cls.__reprise__.plain)(*args, **kwargs)

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                twins = type(self).__dict__.get("__reprise__")
                if twins is None or name not in FACTS:
                    raise
            return getattr(twins.made, name)

        def __deepcopy__(self, memo):
            twins = type(self).__reprise__
            made = memo[id(self)] = twins.again(copy.deepcopy(twins.plain, memo))
            return made

        def __reduce_ex__(self, protocol):
            return pickled(type(self).__reprise__.plain)

        def __dir__(self):
            return sorted({*super().__dir__(), *FACTS})

    Made.__name__ = Made.__qualname__ = "GraphedModule"
    GraphedModule = Made


def pickled(value):
    """How an object is pickled as another one, and loaded where there is no Reprise."""
    return operator.getitem, ((value,), 0)


FACTS = ("buckets", "choices", "failures", "hyperparameters", "name", "parts", "pool", "pools", "reset", "shapes", "tune")


def can_be(torch, module):
    """Can another object share the module's attributes? Those of TorchScript are C++'s."""
    return not isinstance(module, torch.jit.ScriptModule) and type(module.__dict__) is dict


def _new_class(torch, plain, made, again):
    _prepare(torch)
    kind = type(plain)
    return type(kind)(f"Graphed{kind.__name__}", (GraphedModule, kind), {
        "__module__": kind.__module__, "__doc__": kind.__doc__, "__call__": made,
        "__reprise__": Twins(plain, made, again)})


def _bind(module, cls):
    """Lets what the class holds go with the module: a class itself goes when Python collects garbage."""
    cls.__reprise__.gone = weakref.ref(module, lambda _: _let_go(cls))
    return module


def _let_go(cls):
    for name in _ASIDE:
        if name in cls.__dict__:
            delattr(cls, name)


def wrap(torch, plain, made, again):
    """The graphed module beside a module."""
    cls = _new_class(torch, plain, made, again)
    module = object.__new__(cls)
    module.__dict__ = plain.__dict__
    return _bind(module, cls)


def twin_of(module):
    """An object of the module's class that shares its attributes."""
    twin = object.__new__(type(module))
    twin.__dict__ = module.__dict__
    return twin


def change(torch, module, plain, made, again):
    """Makes the module itself the graphed one; plain: its twin."""
    cls = _new_class(torch, plain, made, again)
    module.__class__ = cls
    return _bind(module, cls)


def restore(module):
    """Makes a module that was graphed in place what it was before."""
    if is_module(module):
        cls = type(module)
        module.__class__ = type(plain_of(module))
        _let_go(cls)


def is_module(value):
    return GraphedModule is not None and isinstance(value, GraphedModule)


def graphed_of(value):
    """The Graphed of what :func:`reprise.graphed` returned."""
    return type(value).__reprise__.made if is_module(value) else value


def plain_of(value):
    """The module that a graphed one runs eagerly; anything else is itself."""
    return type(value).__reprise__.plain if is_module(value) else value
