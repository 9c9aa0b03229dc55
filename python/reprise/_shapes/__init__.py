# SPDX-License-Identifier: MIT
"""What was captured for one key: one graph, or forward and backward as two."""
