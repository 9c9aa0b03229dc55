# SPDX-License-Identifier: MIT
"""What all rooms stand on: warnings, versions and private names of PyTorch, trees of values, lines of the program."""
