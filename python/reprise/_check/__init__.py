# SPDX-License-Identifier: MIT
"""reprise.check: what keeps a callable from being captured, by line."""
