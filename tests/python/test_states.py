# SPDX-License-Identifier: MIT
"""Random states in captures, with generators and captures that are played here."""

import struct
import types
import unittest
from unittest import mock

try:
    import torch
except ImportError:
    torch = None

from reprise._base import torch_private
from reprise._capture import states as _states

SEED = 0x1122334455667788


class Generator:
    """As PyTorch's tells and sets its state while a capture is on."""

    def __init__(self):
        self.count = 0

    def get_state(self):
        return torch.tensor(list(struct.pack("QQ", SEED, self.count)), dtype=torch.uint8)

    def set_state(self, state):
        seed, self.count = struct.unpack("QQ", bytes(state.tolist()))
        assert seed == SEED, "another seed cannot be set in a capture"

    def draw(self, count=4):
        self.count += count


@unittest.skipIf(torch is None, "needs PyTorch")
class Played(unittest.TestCase):
    """Runs whose draws are counted here."""

    def setUp(self):
        for name, value in (("_keeps", True), ("_wanted", False), ("_why", ""), ("_is_unreadable", False)):
            patcher = mock.patch.object(_states, name, value)
            patcher.start()
            self.addCleanup(patcher.stop)
        self.generator = Generator()
        self.device = types.SimpleNamespace(index=0)

    def run_of(self, generator="own", base=None):
        """The states of a run that begins; its generator counts from 0."""
        generator = self.generator if generator == "own" else generator
        if generator is not None:
            generator.count = 0
        return _states.States(torch, self.device, generator, base)

    @property
    def count(self):
        return self.generator.count

    def test_a_pytorch_that_tells_no_state_in_a_capture(self):
        def refuse(why):
            raise RuntimeError(why)
        self.generator.get_state = lambda: refuse("an earlier error of the capture")
        with self.assertRaises(RuntimeError):
            _states.read(self.generator)
        self.assertFalse(_states.is_unreadable())
        self.generator.get_state = lambda: refuse("Cannot call current_seed during CUDA graph capture.")
        with self.assertRaises(_states.Unreadable):
            _states.read(self.generator)
        self.assertTrue(_states.is_unreadable())

    def test_what_is_recomputed_draws_the_same_again(self):
        states = self.run_of()
        self.generator.draw(8)
        before = states.save()
        self.generator.draw(12)
        after = states.save()  # as fork_rng does around what is recomputed
        states.set(before)
        self.assertEqual(self.count, 8)
        self.generator.draw(12)
        states.set(after)
        self.assertEqual(self.count, 20)
        states.finish()
        self.assertEqual(states.result(self.count), (20, True))
        self.assertFalse(states.borrows)

    def test_a_run_that_goes_back_to_its_start_draws_and_moves_nothing_on(self):
        states = self.run_of()
        start = states.save()
        self.generator.draw(8)
        states.set(start)
        states.finish()
        self.assertEqual(states.result(self.count), (0, True))

    def test_a_run_without_saves_is_left_alone(self):
        states = self.run_of()
        self.generator.draw(8)
        states.finish()
        self.assertEqual(states.result(self.count), (8, True))
        self.generator.count = 0
        self.assertEqual(states.result(self.count), (0, False))

    def forward(self):
        states = self.run_of()
        self.generator.draw(8)
        token = states.save()
        self.generator.draw(4)
        states.finish()
        return states, token

    def test_a_backward_run_borrows_from_the_forward(self):
        forward, token = self.forward()
        states = self.run_of(base=forward)
        for _ in range(2):
            own = states.save()
            states.set(token)
            self.assertEqual(self.count, 8)
            self.generator.draw(4)
            nested = states.save()  # a checkpoint within a checkpoint
            self.generator.draw(4)
            states.set(nested)
            self.assertEqual(self.count, 12)
            states.set(own)
            self.assertEqual(self.count, 0)
        states.finish()
        self.assertTrue(states.borrows)
        self.assertEqual(states.result(self.count), (0, True))

    def borrow_nothing(self, forward, token):
        """Goes over to the forward run's state and back, with no number drawn between."""
        states = self.run_of(base=forward)
        own = states.save()
        states.set(token)
        states.set(own)
        states.finish()
        self.assertFalse(states.borrows)
        self.assertEqual(states.result(self.count), (0, False))

    def test_borrowing_without_drawing_is_none(self):
        forward, token = self.forward()
        self.borrow_nothing(forward, token)
        self.assertEqual(self.count, 0)

    def test_own_draws_beside_borrowed_ones_are_refused(self):
        for first in (True, False):
            forward, token = self.forward()
            states = self.run_of(base=forward)
            self.generator.draw(4 * first)
            own = states.save()
            states.set(token)
            self.generator.draw(4)
            states.set(own)
            self.generator.draw(4 * (not first))
            with self.assertRaisesRegex(RuntimeError, "of its own beside"):
                states.finish()

    def test_foreign_states_are_refused(self):
        _, token = self.forward()
        states = self.run_of()
        with self.assertRaisesRegex(RuntimeError, "of another capture is set in this one"):
            states.set(token)
        with self.assertRaisesRegex(RuntimeError, "saved outside of it"):
            states.set(torch.zeros(16, dtype=torch.uint8))

    def test_foreign_states_where_nothing_is_drawn(self):
        """As a checkpoint sets them that recomputes nothing random, behind a forward run that drew."""
        _, token = self.forward()
        states = self.run_of(None)
        own = states.save()
        states.set(token)
        self.assertTrue(torch.equal(states.save(), token))
        states.set(own)
        states.finish()
        self.assertEqual(states.result(0), (0, False))
        states.set(token)
        with self.assertRaisesRegex(RuntimeError, "is left by one that draws no random"):
            states.finish()

    def test_where_nothing_is_drawn_states_are_nothing(self):
        forward = self.run_of(None)
        token = forward.save()
        forward.set(token)
        forward.finish()
        self.borrow_nothing(forward, token)

    def test_the_proof_is_asked_for_when_it_is_needed(self):
        with mock.patch.object(_states, "_keeps", None):
            self.run_of(None).save()
            self.assertFalse(_states.is_wanted())
            states = self.run_of()
            states.finish()
            with self.assertRaises(_states.Unknown):
                states.save()
            self.assertTrue(_states.is_wanted())
            self.assertFalse(_states.is_wanted())

    def test_another_pytorch_is_refused_by_name(self):
        with mock.patch.object(_states, "_keeps", None):
            for _ in range(2):
                with self.assertRaisesRegex(torch_private.Missing, "random numbers in captures: off"):
                    _states.learn(torch, torch.device("meta"))

    def test_pytorchs_functions_are_there_again(self):
        get, put = torch.cuda.get_rng_state, torch.cuda.random.set_rng_state
        states, other = self.run_of(), _states.States(torch, types.SimpleNamespace(index=1), None)
        with mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True):
            _states.begin(states)
            _states.begin(other)
            self.generator.draw(4)
            token = torch.cuda.get_rng_state(0)
            self.generator.draw(4)
            torch.cuda.set_rng_state(token, torch.device("cuda", 0))
            self.assertEqual(self.count, 4)
            _states.end(states)
            self.assertEqual(torch.cuda.get_rng_state("cuda:1").numel(), 24)
            _states.end(other)
        self.assertIs(torch.cuda.get_rng_state, get)
        self.assertIs(torch.cuda.random.set_rng_state, put)

    def test_outside_of_captures_they_are_pytorchs(self):
        with mock.patch.object(torch.cuda, "get_rng_state", lambda device="cuda": "theirs"), \
                mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: False):
            states = self.run_of()
            _states.begin(states)
            self.addCleanup(_states.end, states)
            self.assertEqual(torch.cuda.get_rng_state(), "theirs")


if __name__ == "__main__":
    unittest.main()
