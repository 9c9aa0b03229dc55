# SPDX-License-Identifier: MIT
"""Options of the heap as PyTorch's users write them."""

import unittest
import warnings

from reprise import _C
from reprise._alloc.options import divisions, from_environment, heap_options, parse


class Settings(unittest.TestCase):
    def test_are_read_as_pytorch_reads_them(self):
        self.assertEqual(parse("a:1, b:[256:1,>:8] ,c:True"),
                         {"a": "1", "b": "[256:1,>:8]", "c": "True"})
        for text in ("a", "a:1;b:2", ":3", "a:[1"):
            with self.assertRaisesRegex(ValueError, "is not a list of settings"):
                parse(text)

    def test_the_newer_variable_goes_first(self):
        both = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64",
                "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}
        self.assertEqual(from_environment(both), {"max_split_size_mb": "64"})
        both["PYTORCH_ALLOC_CONF"] = ""
        self.assertEqual(from_environment(both), {"max_split_size_mb": "128"})
        self.assertEqual(from_environment({}), {})

    def test_what_cannot_be_had_is_warned_of(self):
        with self.assertWarnsRegex(UserWarning, "PYTORCH_ALLOC_CONF sets throw_on_x, which"):
            from_environment({"PYTORCH_ALLOC_CONF": "throw_on_x:1,max_split_size_mb:64"})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(from_environment({"PYTORCH_CUDA_ALLOC_CONF":
                "expandable_segments:True,backend:native,pinned_use_cuda_host_register:True"}), {})

    def test_become_the_librarys(self):
        given = {"garbage_collection_threshold": "0.8", "max_split_size_mb": 128,
                 "roundup_power2_divisions": "4"}
        self.assertEqual(heap_options(given), (0.8, 128 << 20, 0, (4,) * 16))
        self.assertEqual(heap_options({}), (0.0, 0, 0, ()))
        _C.heap_configure(*heap_options(given))
        _C.heap_configure(*heap_options({}))

    def test_wrong_ones_are_refused(self):
        for name, value, why in (("garbage_collection_threshold", 1.5, "below 1"),
                                 ("garbage_collection_threshold", "much", "a number"),
                                 ("max_split_size_mb", 20, "above 20"),
                                 ("max_non_split_rounding_mb", "x", "a number"),
                                 ("roundup_power2_divisions", 3, "power of two"),
                                 ("roundup_power2_divisions", {3: 2}, "interval of 3 MiB")):
            with self.assertRaisesRegex(ValueError, why):
                heap_options({name: value})


class Divisions(unittest.TestCase):
    def test_one_number_holds_everywhere(self):
        self.assertEqual(divisions(8), (8,) * 16)

    def test_intervals(self):
        wanted = (1,) * 9 + (2, 4) + (8,) * 5
        self.assertEqual(divisions("[256:1,512:2,1024:4,>:8]"), wanted)
        self.assertEqual(divisions({256: 1, 512: 2, 1024: 4, ">": 8}), wanted)
        self.assertEqual(divisions("[64:8,>:0]"), (8,) * 7 + (0,) * 9)
        self.assertEqual(divisions("[2:4]"), (4, 4) + (0,) * 14)
        self.assertEqual(divisions({1 << 20: 2}), (2,) * 16)
        self.assertEqual(divisions({">": 2}), (2,) * 16)


if __name__ == "__main__":
    unittest.main()
