# SPDX-License-Identifier: MIT
"""What a run changes of Python state: recorded, put back, or refused."""
