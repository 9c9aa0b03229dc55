/* SPDX-License-Identifier: MIT */
#ifndef REPRISE_PYTHON_SYMBOL_H
#define REPRISE_PYTHON_SYMBOL_H

/* What a library of PyTorch's exports by this name; NULL where it does not, or is not loaded. */
void *rpp_torch_symbol(const char *library, const char *name);

#endif
