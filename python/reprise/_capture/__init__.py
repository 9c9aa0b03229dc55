# SPDX-License-Identifier: MIT
"""Captures: a run in a capture, its random numbers, streams and stack, and PyTorch's own captures."""
