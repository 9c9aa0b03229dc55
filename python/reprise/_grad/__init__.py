# SPDX-License-Identifier: MIT
"""Gradients: those that graphs leave, gradients of gradients, the order of a pipeline's passes."""
