# SPDX-License-Identifier: MIT
"""PyTorch on a machine without a GPU: the host driver's libraries, processes that load them ahead of
PyTorch, and `python -m reprise estimate`, which runs in one."""
