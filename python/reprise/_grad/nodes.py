# SPDX-License-Identifier: MIT
"""The nodes of autograd that add gradients up, and captures.

Autograd makes a node for each parameter when a forward pass first uses it (AccumulateGrad), on the stream
that is current then, and finds the same one as long as somebody holds it: the loss of the last step, a
wrapper with hooks on it. Gradients wait for that stream. The default stream cannot be captured, so one
kept loss breaks each capture of a backward pass. There are two ways around such a node:

    renew    the parameter forgets it, and the capture's forward pass makes another one. Who holds the
             old one still goes back through it: it adds to the same gradient
    aliases  for forward and backward as two graphs: their runs use tensors in the parameters' places,
             in the same memory, with nodes of their own. Gradients reach the parameters, their nodes
             and their hooks in each call, through autograd's function around the graphs

A parameter's own hooks run on its gradient inside a backward pass, so they would be captured and run once
more in each call: two graphs use aliases there too. For one graph of a whole step hooks on a node stay
where they are, as a new node would not have them. So does a node that Python holds: a hook of several gradients
(register_multi_grad_hook) waits for those that it found, for ever where a parameter has others.
"""

import contextlib
import gc
import sys
import weakref

_LISTS = ("_flat_weights", "_flat_weight_refs")  # of a torch.nn.RNNBase
_MARK = "reprise: is it the same node?"
_alone: list[int] = []  # references to a node that C++ alone holds, and a list, once they were counted


_functions: list[type] = []  # autograd's, made when PyTorch is there


def _nodes(torch, params):
    """Of all of them in one go: those that there are, or new ones."""
    if not _functions:
        class Seen(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *given):
                return torch.empty(0, device="cpu")
        _functions.append(Seen)
    with torch.enable_grad():
        seen = _functions[0].apply(*params)
    return [node for node, _ in seen.grad_fn.next_functions]


def _is_plain(torch, param):
    return type(param) in (torch.nn.Parameter, torch.Tensor) and param.is_cuda and param.is_leaf and (
        param.requires_grad and not param.is_inference())


def _references_alone(torch):
    """How many references there are to a node that C++ alone holds, and a list. Some versions of PyTorch keep Python's
    object of a node as long as it has metadata."""
    if not _alone:
        with torch.enable_grad(), torch.inference_mode(False):
            param = torch.ones((), device="cpu", requires_grad=True)
            held = param.view_as(param)
        _nodes(torch, [param])[0].metadata[_MARK] = True
        nodes = _nodes(torch, [param])
        _alone.append(sys.getrefcount(nodes[0]))
        nodes[0].metadata.pop(_MARK, None)
        del held
    return _alone[0]


def _held_of(torch, params):
    """(parameter, node, does Python hold the node?) of those whose nodes somebody holds. A node that nobody holds is
    another one the next time."""
    for node in _nodes(torch, params):
        node.metadata[_MARK] = True
    del node
    nodes, alone = _nodes(torch, params), _references_alone(torch)
    are_pythons = [sys.getrefcount(nodes[i]) > alone for i in range(len(nodes))]
    return [found for found in zip(params, nodes, are_pythons) if found[1].metadata.pop(_MARK, False)]


def _has_hooks_of_python(node):
    """Has somebody registered hooks on it? Autograd tells as it registers one more."""
    for register in (node.register_hook, node.register_prehook):
        handle = register(_nothing)
        found = len(handle.hooks_dict_ref()) > 1
        handle.remove()
        if found:
            return True
    return False


def _nothing(*_):
    return None


def _of_parallel(torch):
    """The ids of the parameters that a DistributedDataParallel has hooks of C++ on, which nothing tells."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized():
        return ()
    kind = torch.nn.parallel.DistributedDataParallel
    found = [m for m in gc.get_objects() if issubclass(type(m), kind)]  # captures are few
    return {id(p) for m in found for p in m.parameters()}


class Nodes:
    """Those of some parameters that somebody holds, as a capture begins."""

    def __init__(self, torch, params):
        self._torch = torch
        plain = [] if torch.is_inference_mode_enabled() else [p for p in params if _is_plain(torch, p)]
        held = _held_of(torch, plain) if plain else []
        parallel = _of_parallel(torch) if held else ()
        self.held = [p for p, _, _ in held]
        self.hooked = [p for p, node, is_pythons in held
                       if is_pythons or id(p) in parallel or _has_hooks_of_python(node)]

    def renew(self, but=()):
        """Lets the parameters forget the nodes that have no hooks, of all parameters but these. No other
        thread may use them meanwhile."""
        kept = {id(p) for p in (*self.hooked, *but)}
        for param in self.held:
            if id(param) not in kept:
                _forget_node(self._torch, param)


def _forget_node(torch, param):
    """PyTorch drops the node of a parameter whose data becomes that of another kind."""
    data = param.data
    other = torch.float16 if data.dtype is torch.float32 else torch.float32
    try:
        param.data = data.new_empty(0, dtype=other)
    finally:
        param.data = data


def _names_of(modules, params):
    """The first of these parameters, and how many there are more, for a message."""
    wanted = {id(p) for p in params}
    names = [name for m in modules for name, p in m.named_parameters() if id(p) in wanted]
    more = len(params) - 1
    first = f"'{names[0]}'" if names else "a parameter"
    return f"{first} and {more} more" if more else first


def hooked_refusal(modules, params):
    """Why a step whose parameters have these hooks could not be captured."""
    return (f"gradients of {_names_of(modules, params)} are added up by nodes with hooks of their own "
            "(DistributedDataParallel, register_multi_grad_hook, a wrapper of grad_fn.next_functions), which were made "
            "on a stream that cannot be captured. Make that wrapper, and run the first backward pass, within `with "
            "torch.cuda.stream(torch.cuda.Stream())`, or use post-accumulate hooks")


# ---- Aliases ---------------------------------------------------------------------------------------


class Aliases:
    """Tensors that stand for some parameters in the runs of two graphs. modules: those that hold them."""

    def __init__(self, torch, modules, params, keeps_nodes=False):
        """keeps_nodes: earlier calls wait for their backward passes. Parameters of modules keep the nodes that
        those hold: gradients that went to two nodes would be added up in another order."""
        self._torch = torch
        self._modules = modules
        self._keeps_nodes = keeps_nodes
        self.all = [p for p in params if p.requires_grad]
        self.finish()

    def finish(self):
        """No parameter has one any more."""
        self.params = []
        self._of, self._places = {}, []

    def prepare(self):
        """Makes them for the parameters that need them, ahead of a forward run; the other parameters get
        new nodes in it."""
        nodes = Nodes(self._torch, self.all)
        held, hooked = ({id(p) for p in some} for some in (nodes.held, nodes.hooked))
        if self._keeps_nodes:
            hooked |= held.intersection(id(p) for m in self._modules for p in m._parameters.values())
        self.params = [p for p in self.all if _is_plain(self._torch, p) and (
            p._backward_hooks or id(p) in hooked or (id(p) in held and p._post_accumulate_grad_hooks))]
        self._of = {id(p): _alias(self._torch, p) for p in self.params}
        self._places = [(m, name, p) for m in (self._modules if self._of else ())
                        for name, p in m._parameters.items() if id(p) in self._of]
        nodes.renew(but=self.params)

    def around(self, fn):
        """The function, which finds them in the modules."""
        def call(*args, **kwargs):
            with self.in_place():
                return fn(*args, **kwargs)
        return call

    def of(self, param):
        """What stands for it: itself, or its alias."""
        return self._of.get(id(param), param)

    def whose(self, tensor):
        """The parameter that a tensor is, or stands for; any other tensor itself."""
        return next((p for p in self.params if self.of(p) is tensor), tensor)

    @contextlib.contextmanager
    def in_place(self):
        """The modules have the aliases meanwhile."""
        lists = _lists_of(m for m, _, _ in self._places)
        try:
            for module, name, param in self._places:
                module._parameters[name] = self.of(param)
            for module, _ in lists:
                self._put_in_lists(module)
            yield
        finally:
            for module, name, param in self._places:
                module._parameters[name] = param
            for module, before in lists:
                module.__dict__.update(before)

    def _put_in_lists(self, module):
        """A torch.nn.RNNBase has its parameters in a list too, and looks whether they are still those."""
        flat, refs = _LISTS
        module.__dict__[flat] = [self.of(p) for p in module.__dict__[flat]]
        module.__dict__[refs] = [p if p is None else weakref.ref(p) for p in module.__dict__[flat]]


def _lists_of(modules):
    """Of each recurrent one of these modules the attributes that are lists of its parameters."""
    found = {id(m): m for m in modules if _LISTS[0] in m.__dict__}
    return [(m, {name: m.__dict__.get(name) for name in _LISTS}) for m in found.values()]


def _alias(torch, param):
    """The same memory, class and attributes, and no hooks."""
    made = param.detach()
    if type(param) is torch.nn.Parameter:
        made = torch.nn.Parameter(made)
    made.requires_grad_()
    made.__dict__.update(param.__dict__)
    return made
