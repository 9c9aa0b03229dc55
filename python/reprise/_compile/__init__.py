# SPDX-License-Identifier: MIT
"""What torch.compile makes, by graphs of ours."""
