# SPDX-License-Identifier: MIT
"""What a callable reads beside its arguments: found by following names, and compared at each call."""
