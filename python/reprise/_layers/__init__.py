# SPDX-License-Identifier: MIT
"""Graphs of layers, as training frameworks want them: ahead of time in the order of a pipeline, and by themselves."""
