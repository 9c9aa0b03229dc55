# SPDX-License-Identifier: MIT
"""reprise.report: what was captured, as text, JSON or a page."""
