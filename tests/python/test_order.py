# SPDX-License-Identifier: MIT
"""Orders of pipelines: what they say, and where a program is in them."""

import unittest

from reprise._grad.order import Pass, Schedule, parse


class Orders(unittest.TestCase):
    def test_microbatches_go_back_in_the_order_in_which_they_came(self):
        self.assertEqual(parse([1, 2, 1, -2, -1, 2, -2, -1], 2), [
            Pass(0, 0, False), Pass(1, 0, False), Pass(0, 1, False), Pass(1, 0, True),
            Pass(0, 0, True), Pass(1, 1, False), Pass(1, 1, True), Pass(0, 1, True)])

    def test_what_cannot_be_is_refused(self):
        for order, said in (([1, 0, -1], r"order\[1\] is 0"), ([1, 3, -3, -1], "from 1 to 2"),
                            ([True, -1], "is True"), ([1, "2"], "is '2'"), ([1, 1.0], "is 1.0"),
                            ([1, 2, -1, -1, -2], r"order\[3\] is -1: no forward pass"),
                            ([-1, 1, 2, -2], r"order\[0\] is -1"),
                            ([1, 2, 1, -2, -1], "2 forward and 1 backward passes of callable 1"),
                            ([1, -1], "0 forward and 0 backward passes of callable 2"),
                            ([1, -1.5, -1], r"order\[1\] is -1.5: no backward pass of callable 1"),
                            ([1, 2, -2, -2.5, -2.5, -1], r"order\[4\] is -2.5: no backward pass of callable 2"),
                            ([1, 2, 1.5], r"order\[2\] is 1.5, but"), ([1, 2, -1.25], r"is -1.25, but"),
                            ([1, -1, -3.5], r"is -3.5, but"), ([1, -1, float("inf")], "is inf, but"),
                            ([1, 2, 1, -2, -1, -1.5, -1], "2 backward passes of callable 1, and the weight "
                                                          "gradients of 1: give -1.5 for each"),
                            ([], "of callable 1")):
            with self.assertRaisesRegex(ValueError, said):
                parse(order, 2)


    def test_halves_are_weight_gradients(self):
        self.assertEqual(parse([1, 1, -1, -1, -1.5, -1.5], 1)[3:], [
            Pass(0, 1, True), Pass(0, 0, True, True), Pass(0, 1, True, True)])


class Halves(unittest.TestCase):
    def test_they_are_due(self):
        schedule = Schedule(parse([1, 1, -1, -1.5, -1, -1.5], 1), ["stage"])

        def go():
            self.assertEqual([schedule.forward(0), schedule.forward(0)], [0, 1])
            schedule.backward(0, 0)
            self.assertEqual(schedule.weights(0), 0)
            schedule.backward(0, 1)
            self.assertEqual(schedule.weights(0, 1), 1)
        go()
        with self.assertRaisesRegex(RuntimeError, r"backward_dw\(\) of 'stage' \(-1.5\) is out of order: the forward "
                                                  r"pass of microbatch 0 of 'stage' \(1\) is due"):
            schedule.weights(0)
        schedule.forward(0)
        schedule.forward(0)
        schedule.backward(0, 0)
        with self.assertRaisesRegex(RuntimeError, r"the weight gradients of microbatch 1 of 'stage' \(-1.5\) is out of "
                                                  r"order: the weight gradients of microbatch 0 of 'stage' \(-1.5\)"):
            schedule.weights(0, 1)
        go()


class Schedules(unittest.TestCase):
    def setUp(self):
        self.schedule = Schedule(parse([1, 2, 1, -2, -1, 2, -2, -1], 2), ["head", "tail"])

    def go(self):
        self.assertEqual(self.schedule.forward(0), 0)
        self.assertEqual(self.schedule.forward(1), 0)
        self.assertEqual(self.schedule.forward(0), 1)
        self.schedule.backward(1, 0)
        self.schedule.backward(0, 0)
        self.assertEqual(self.schedule.forward(1), 1)
        self.schedule.backward(1, 1)
        self.schedule.backward(0, 1)

    def test_goes_round(self):
        self.go()
        self.go()

    def test_refuses_by_name_and_begins_anew(self):
        self.schedule.forward(0)
        with self.assertRaisesRegex(RuntimeError, r"a forward pass of 'head' \(1\) is out of order: the "
                                                  r"forward pass of microbatch 0 of 'tail' \(2\) is due"):
            self.schedule.forward(0)
        self.go()
        self.schedule.forward(0)
        self.schedule.forward(1)
        self.schedule.forward(0)
        with self.assertRaisesRegex(RuntimeError, r"microbatch 1 of 'head' \(-1\) is out of order: the "
                                                  r"backward pass of microbatch 0 of 'tail' \(-2\)"):
            self.schedule.backward(0, 1)
        with self.assertRaisesRegex(RuntimeError, "is due"):
            self.schedule.backward(1, 0)  # of what was begun before
        self.go()


if __name__ == "__main__":
    unittest.main()
