# SPDX-License-Identifier: MIT
"""Where reprise.Pool lay before the package had rooms. Programs that import it by this name find it."""

from ._alloc.pool import Pool

__all__ = ["Pool"]
