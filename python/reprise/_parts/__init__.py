# SPDX-License-Identifier: MIT
"""Graphs in parts: of a callable that cannot be captured whole, by module and by mark."""
