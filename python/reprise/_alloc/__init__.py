# SPDX-License-Identifier: MIT
"""Memory: install(), its options, pools and the executable graphs of a device."""
