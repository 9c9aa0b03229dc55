# SPDX-License-Identifier: MIT
"""The calls of a graphed callable: keys, guards, policies, and the functions that make one."""
