# SPDX-License-Identifier: MIT
"""The guard of the fast path: what it notices, and what it learns of PyTorch for that."""

import functools
import gc
import sys
import unittest
import weakref

try:
    import torch
except ImportError:
    torch = None

from no_memory import exhaust, needs_it
from reprise import _C


@unittest.skipIf(torch is None, "needs PyTorch")
class Guard(unittest.TestCase):
    def setUp(self):
        from reprise._call.watch import Watch
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4),
                                       torch.nn.Sequential(torch.nn.Linear(4, 2)))
        self.other = torch.nn.Linear(2, 2)
        self.watch = Watch(torch, [self.net])
        self.hot = _C.FastCall(torch.Tensor, torch.empty_strided, None, torch.is_grad_enabled,
                          torch.is_inference_mode_enabled, torch.is_autocast_enabled,
                          torch.cuda.current_device)
        self.assertFalse(self.hot.is_guarded(), "nothing was set")
        self.set()

    def set(self):
        self.hot.set_guard(tuple(self.watch.tensors),
                           tuple(m.__dict__ for m in self.watch.modules), self.watch.handle,
                           True, False, tuple(self.watch.params))
        self.assertTrue(self.hot.is_guarded())
        self.assertTrue(self.hot.is_guarded())

    def notices(self, change):
        change()
        self.assertFalse(self.hot.is_guarded())
        self.set()

    def test_members_are_those_that_the_class_lists(self):
        from reprise._call.watch import Watch

        class Few(torch.nn.Linear):
            def parameters(self, recurse=True):
                return iter([self.bias])

        self.net[0].weight = self.net[2][0].bias = torch.nn.Parameter(torch.zeros(4, 4))  # in two places
        few = Few(2, 2)
        watch = Watch(torch, [self.net, few])
        for found, wanted in ((watch.modules, (*self.net.modules(), few)),
                              (watch.params, (*self.net.parameters(), few.bias)),
                              (watch.tensors, (*self.net.parameters(), few.bias, *self.net.buffers()))):
            self.assertEqual(list(map(id, found)), list(map(id, wanted)))
        self.assertFalse(watch.find([self.net[2], few]))
        self.net.append(torch.nn.ReLU())
        self.assertFalse(watch.find([self.net[3]]))
        self.assertTrue(watch.find([self.other]))

    def test_hooks_and_modules_of_others(self):
        """They come and go in any program, and calls stay on the fast path."""
        self.hot.set_guard((), tuple(m.__dict__ for m in self.watch.modules), self.watch.handle, True, False,
                           (), None, self.watch.members)
        for change in (lambda: self.other.register_forward_hook(lambda *_: None),
                       lambda: torch.nn.Linear(2, 2), lambda: self.other.weight.register_hook(abs).remove()):
            change()
            self.assertTrue(self.hot.is_guarded())
            self.assertFalse(self.watch.has_changed_members())
        for change in (lambda: self.net[2].register_forward_hook(lambda *_: None),
                       lambda: self.net[0].register_full_backward_hook(lambda *_: None),
                       lambda: self.net[2].append(torch.nn.ReLU()),
                       lambda: self.net[0].weight.register_hook(abs),
                       lambda: self.net[0].register_buffer("late", torch.zeros(1)),
                       lambda: self.net.register_module("1", torch.nn.Identity())):
            change()
            self.assertFalse(self.hot.is_guarded())
            self.assertTrue(self.watch.has_changed_members())
            self.hot.set_guard((), tuple(m.__dict__ for m in self.watch.modules), self.watch.handle, True,
                               False, (), None, self.watch.members)
            self.assertTrue(self.hot.is_guarded())

    def test_values_may_change(self):
        with torch.no_grad():
            for p in self.net.parameters():
                p.mul_(2).add_(1)
        self.net[0].weight.grad = torch.zeros(4, 4)
        self.net[1].running_mean.fill_(3)
        self.assertTrue(self.hot.is_guarded())

    def test_memory_that_moves(self):
        weight = self.net[0].weight
        kept = weight.data

        def swap():
            torch.utils.swap_tensors(self.net[0].weight, torch.nn.Parameter(torch.zeros(4, 4)))

        def to_view():
            weight.data = torch.zeros(5, 4)[1:]

        def along_the_storage():
            weight.data = weight.data.new_empty(0).set_(weight.untyped_storage(), 0, (4, 4), (4, 1))

        def back():
            weight.data = kept

        def resize():
            self.net[1].running_mean.resize_(1 << 16)

        def storage():
            self.net[1].running_var.untyped_storage().resize_(1 << 20)

        for change in (to_view, along_the_storage, back, resize, storage, swap):
            with self.subTest(change.__name__):
                self.notices(change)

    def test_other_dtype_moves(self):
        self.notices(self.net.double)

    def test_wishes_for_gradients(self):
        """As where a layer is frozen in the midst of training."""
        weight, running = self.net[0].weight, self.net[1].running_mean
        self.notices(lambda: weight.requires_grad_(False))
        self.notices(lambda: setattr(weight, "requires_grad", True))
        self.notices(lambda: self.net[2].requires_grad_(False))
        running.requires_grad_(True)
        self.assertTrue(self.hot.is_guarded(), "it is no parameter")

    def test_modes(self):
        self.notices(self.net.eval)
        self.notices(lambda: self.net[2][0].train())
        self.notices(lambda: setattr(self.net[1], "training", True))
        self.notices(lambda: self.net[1].__dict__.update(training=False))
        self.notices(lambda: self.net[1].__dict__.pop("training"))

    def test_modes_beside_attributes_that_are_set(self):
        """A dict that has a tag has another one then."""
        for i in range(3):
            for module in self.net.modules():
                module.note = i
            self.assertTrue(self.hot.is_guarded())
        self.net[1].note = 4
        self.notices(self.net[1].eval)

    def test_modes_that_change_back(self):
        before = self.net.training
        self.net.train(not before)
        self.assertFalse(self.hot.is_guarded())
        self.net.train(before)
        self.assertTrue(self.hot.is_guarded())
        self.assertTrue(self.hot.is_guarded())

    def test_other_modules_modes_do_not_matter(self):
        self.other.eval()
        self.net[0].note = "something else"
        self.assertTrue(self.hot.is_guarded())

    def test_members_and_hooks(self):
        self.notices(lambda: self.net[0].register_buffer("more", torch.zeros(1)))
        self.notices(lambda: setattr(self.net[0], "weight", torch.nn.Parameter(torch.ones(4, 4))))
        self.notices(lambda: self.net[2].append(torch.nn.ReLU()))
        self.notices(lambda: self.net[0].register_forward_hook(lambda *_: None))
        self.notices(_C.count_registration)

    def test_misses_what_was_not_added(self):
        for args in ((), (torch.ones(2),), (1, 2)):
            self.assertIs(self.hot.call(args, {}), _C.miss)
            self.assertIs(self.hot.call(args, {"scale": None}), _C.miss)
        with self.assertRaises(TypeError):
            self.hot.call((1,))

    def test_shapes_with_neither_graph_nor_choice_are_eager(self):
        hot = _C.FastCall(torch.Tensor, torch.empty_strided, None, torch.is_grad_enabled,
                     torch.is_inference_mode_enabled, torch.is_autocast_enabled, lambda: 0)
        self.hot = hot
        self.set()
        self.assertTrue(hot.add(0, (1,), {"scale": None}, None, (), None))
        self.assertFalse(hot.add(0, (1,), {"scale": None}, None, (), None), "it has it")
        self.assertTrue(hot.add(1, (2,), {}, None, (), None))
        self.assertIs(hot.call((1,), {"scale": None}), _C.eager)
        self.assertIs(hot.call((1,), {}), _C.miss)
        self.assertIs(hot.call((2,), {}), _C.miss, "another device is current")
        with torch.no_grad():
            self.assertIs(hot.call((1,), {"scale": None}), _C.miss)
        self.net[0].weight.data = torch.zeros(5, 4)[1:]
        self.assertIs(hot.call((1,), {"scale": None}), _C.miss)
        for wrong in (1, _C.miss):
            with self.assertRaises(TypeError):
                hot.add(0, (3,), {}, wrong, (), None)
            with self.assertRaises(TypeError):
                hot.add(0, (3,), {}, None, (), None, wrong)

    def test_floats_are_the_same_to_the_bit(self):
        hot = _C.FastCall(torch.Tensor, torch.empty_strided, None, torch.is_grad_enabled,
                     torch.is_inference_mode_enabled, torch.is_autocast_enabled, lambda: 0)
        hot.set_guard((), (), self.watch.handle, True, False, ())
        for value, same, other in ((0.0, float("0"), -0.0), (-1.5, float("-1.5"), 1.5),
                                   (2.0, float("2"), 2), (1, 1, True)):
            self.assertTrue(hot.add(0, (value,), {}, None, (), None))
            self.assertIs(hot.call((same,), {}), _C.eager)
            self.assertIs(hot.call((other,), {}), _C.miss)

    @needs_it
    def test_memory_that_runs_out(self):
        make = functools.partial(_C.FastCall, torch.Tensor, torch.empty_strided, None,
                                 torch.is_grad_enabled, torch.is_inference_mode_enabled,
                                 torch.is_autocast_enabled, lambda: 0)
        hot = exhaust(self, make)
        exhaust(self, hot.set_guard, tuple(self.watch.tensors),
                tuple(m.__dict__ for m in self.watch.modules), self.watch.handle, True, False,
                tuple(self.watch.params))
        self.assertTrue(hot.is_guarded())
        for i in range(20):  # some make the table grow
            self.assertTrue(exhaust(self, hot.add, 0, (i, "name"), {"scale": 0.5}, None, (), None))
        for i in range(20):
            self.assertIs(hot.call((i, "name"), {"scale": 0.5}), _C.eager)

    def test_clearing_ends_the_guard(self):
        self.hot.clear()
        self.assertFalse(self.hot.is_guarded())

    def test_dead_dicts_are_survived(self):
        for _ in range(3):
            module = torch.nn.Linear(2, 2)
            hot = _C.FastCall(torch.Tensor, torch.empty_strided, None, torch.is_grad_enabled,
                         torch.is_inference_mode_enabled, torch.is_autocast_enabled,
                         torch.cuda.current_device)
            hot.set_guard((module.weight,), (module.__dict__,), self.watch.handle, True, False, ())
            del hot, module
        self.assertFalse(self.hot.is_guarded(), "modules were made")
        self.set()

    def test_a_module_that_has_its_own_is_collected(self):
        """A method of a module that is graphed and kept there: the guard has the module's dict."""
        module = torch.nn.Linear(2, 2)
        module.fast = _C.FastCall(torch.Tensor, torch.empty_strided, None, torch.is_grad_enabled,
                             torch.is_inference_mode_enabled, torch.is_autocast_enabled,
                             torch.cuda.current_device)
        watch = type(self.watch)(torch, [module])
        module.fast.set_guard((module.weight,), (module.__dict__,), watch.handle, True, False, (), None,
                              watch.members)
        gone = weakref.ref(module.weight)
        del module, watch
        gc.collect()
        self.assertIsNone(gone())

    def test_a_mode_that_cannot_be_asked_fits_nothing(self):
        def ask():
            raise KeyError("mine")
        hot = _C.FastCall(torch.Tensor, torch.empty_strided, None, ask, torch.is_inference_mode_enabled,
                     torch.is_autocast_enabled, lambda: 0)
        hot.set_guard((), (), self.watch.handle, True, False, ())
        self.assertTrue(hot.add(0, (1,), {}, None, (), None))
        self.assertIs(hot.call((1,), {}), _C.miss)

    def test_modes_are_watched_where_they_can_be(self):
        self.assertEqual(_C.watches_dicts(), sys.version_info >= (3, 12))

    def test_layout_was_learned(self):
        """Of the versions that are tested; with others DLPack and attributes are asked."""
        from reprise._call import address
        self.assertTrue(address.learn(torch))
        self.assertTrue(address.learn_gradients(torch))

    def test_gradients_are_those_of_attributes(self):
        """After all that changes one: shapes of every pattern, and those that use it where it lies."""
        self.hot = _C.FastCall(torch.Tensor, torch.empty_strided, None, torch.is_grad_enabled,
                          torch.is_inference_mode_enabled, torch.is_autocast_enabled, lambda: 0)
        net = torch.nn.Linear(3, 3)
        plain = torch.zeros(3, requires_grad=True)
        other = torch.nn.Linear(3, 3).weight
        net.weight.grad, other.grad = torch.ones(3, 3), torch.zeros(3, 3)

        def backward():
            (net(torch.ones(2, 3)) * plain).sum().backward()

        def steps():
            backward()
            torch.optim.SGD([*net.parameters(), plain], lr=0.1).step()

        def move():
            net.weight.grad.data = torch.zeros(4, 3)[1:]

        def shift():
            grad = net.weight.grad
            net.weight.grad = torch.empty(0).set_(grad.untyped_storage(), 0, (3, 3), (3, 1))

        def freeze():
            net.requires_grad_(False)

        def swap():
            torch.utils.swap_tensors(net.weight, other)

        def sparse():
            other.grad = torch.zeros(3, 3).to_sparse()

        def drop():
            net.zero_grad(set_to_none=True)

        def copied():
            plain.grad = net.bias.grad.clone() if net.bias.grad is not None else None
        for change in (backward, backward, move, shift, steps, copied, freeze, drop, swap, backward, swap,
                       sparse, copied):
            change()
            for param in (net.weight, net.bias, plain, other):
                self.check_gradient(param)

    def check_gradient(self, param):
        """Looks of the fast path at a gradient that stays, moves, comes and goes."""
        grad = param.grad
        usable = grad is not None and not grad.is_sparse
        for then in (grad, None, torch.zeros_like(param.detach())):
            self.set()
            for missing in (False, True):
                param.grad = grad if missing == (grad is None) else None if missing else then
                self.assertTrue(self.hot.add(0, (missing,), {}, None, (), None, None,
                                             ((param, missing, None),)))
            param.grad = grad
            self.assertEqual(usable, self.hot.add(0, ("used",), {}, None, (), None, None, (
                (param, None, grad.data_ptr() if usable else 0),)))
            param.grad = then
            told = [self.hot.call((which,), {}) is _C.eager for which in (False, True, "used")]
            self.assertEqual(told, [then is not None, then is None, usable and then is grad])
        param.grad = grad


if __name__ == "__main__":
    unittest.main()
