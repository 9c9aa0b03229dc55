# SPDX-License-Identifier: MIT
"""What of a call's arguments a captured graph depends on, where they are no tensors."""

import types
import unittest

try:
    import torch
except ImportError:
    torch = None

from fake_fast_path import give_fast_path
from no_reads import give_none
from reprise._call import graphed
from reprise._reads import reads


class Keys(unittest.TestCase):
    def setUp(self):
        made = self.made = graphed.Graphed.__new__(graphed.Graphed)
        made._torch = types.SimpleNamespace(
            Tensor=type("Tensor", (), {}),
            nn=types.SimpleNamespace(Parameter=type("Parameter", (), {})))
        made._device = lambda tensors: "cuda:0"
        made._modes = lambda *given: ()
        made._trained, made._drops = (), {}
        give_none(made)

    def key(self, *leaves):
        return self.made._key(leaves, "spec")[1]

    def test_equal_values_are_not_always_the_same(self):
        for a, b in ((1, True), (1, 1.0), (0.0, -0.0), (1.0, 1 + 0j), (complex(0, 0.0), complex(0, -0.0))):
            self.assertNotEqual(self.key(a), self.key(b), (a, b))

    def test_the_same_value_is_one_key(self):
        for a, b in ((0.1, float("0.1")), (float("nan"), float("nan")), ("a", "a"), (None, None)):
            self.assertEqual(self.key(a), self.key(b), (a, b))
            self.assertEqual(hash(self.key(a)), hash(self.key(b)), (a, b))

    def test_gradients_of_calls_that_touch_them(self):
        """Whether there are any, unless the callable drops them first."""
        param = types.SimpleNamespace(grad=None)
        without = self.key(3)
        param.grad = "a gradient"
        self.assertEqual(self.key(3), without)
        self.made._trained = (param,)
        there = self.key(3)
        param.grad = None
        self.assertNotEqual(self.key(3), there)
        self.assertEqual(self.made._stored(there), there)
        self.made._drops[there[0]] = ()
        self.assertEqual(self.key(3), self.made._stored(there))
        param.grad = "another"
        self.assertEqual(self.key(3), self.made._stored(there))
        self.assertEqual(self.key(4)[1], (False,), "another key")

    def test_gradients_that_a_call_which_drops_them_had_none_of(self):
        """Those of another head, say: had there been any, it might have dropped them too."""
        here, other = (types.SimpleNamespace(grad=None) for _ in range(2))
        self.made._trained = (here, other)
        here.grad = "a gradient"
        captured = self.key(3)
        self.made._drops[captured[0]] = (other,)
        stored = self.made._stored(captured)
        self.assertEqual(self.key(3), stored)
        here.grad = None
        self.assertEqual(self.key(3), stored)
        other.grad = "that of another call"
        self.assertNotEqual(self.key(3), stored)

    @unittest.skipIf(torch is None, "needs PyTorch")
    def test_the_fast_path_has_no_eager_calls_of_arguments_that_share_memory(self):
        made, added = self.made, []
        made._shapes = {}
        made._device = lambda tensors: types.SimpleNamespace(index=0)
        give_fast_path(made, takes=True, add=lambda *call: added.append(call[1]))
        whole = torch.zeros(8)
        apart = (torch.zeros(8), torch.zeros(8))
        for args in ((whole, whole), (whole[1:], whole[:-1]), apart):
            made._shorten_eager(args, {}, args)
        self.assertEqual(list(map(id, added)), [id(apart)])
        made._trained = (types.SimpleNamespace(grad=None),)
        made._shorten_eager(apart, {}, apart)
        self.assertEqual(len(added), 1, "another call might have a graph")

    def test_the_fast_path_is_told_of_gradients(self):
        made = self.made
        param, dropped = (types.SimpleNamespace(grad=None) for _ in range(2))
        made._trained = (param, dropped)
        shape = types.SimpleNamespace(has_given=False, hands_on=False, short=lambda *_: (("made",), None), used=((param, 64),),
                                      given=((dropped, "given"),))
        stored = self.key(3)
        made._shapes = {stored: shape}
        want = (("made",), None, ((param, True, 64), (dropped, True, None, "given")))
        self.assertEqual(made._short(shape, stored, [], (), {}), want)
        param.grad = "made meanwhile"
        self.assertIsNone(made._short(shape, stored, [], (), {}))
        made._drops[stored[0]] = ()
        made._shapes = {made._stored(stored): shape}
        want = (("made",), None, ((param, None, 64), (dropped, None, None, "given")))
        self.assertEqual(made._short(shape, stored, [], (), {}), want)
        shape.short = lambda *_: None
        self.assertIsNone(made._short(shape, stored, [], (), {}))

    def test_what_is_read_and_switches_are_parts_of_keys(self):
        made = self.made
        del made._modes
        made._watch = types.SimpleNamespace(modes=lambda: (), grads=lambda: ())
        made._notice_changes, made._frozen = (lambda: None), False
        for name in ("is_grad_enabled", "is_inference_mode_enabled"):
            setattr(made._torch, name, lambda: False)
        made._torch.is_autocast_enabled = lambda device: False
        made._device = lambda tensors: types.SimpleNamespace(index=0)
        now = types.SimpleNamespace(read=0, switches=())
        made._reads.state, made._reads.found_more = (lambda: now.read), False
        made._reads.switches = types.SimpleNamespace(key=lambda: now.switches)
        first = self.key(3)
        now.read = 1
        second = self.key(3)
        now.read, now.switches = 0, (True,)
        self.assertEqual(len({first, second, self.key(3)}), 3)

        def refuse():
            raise reads.Unreadable("it reads too much")
        made._reads.state = refuse
        with self.assertRaisesRegex(graphed.Uncapturable, "reads too much"):
            self.key(3)

    def test_what_has_no_hash_is_refused(self):
        with self.assertRaisesRegex(graphed.Uncapturable, "a bytearray, whose changes would go unseen"):
            self.key(bytearray(b"x"))


if __name__ == "__main__":
    unittest.main()
