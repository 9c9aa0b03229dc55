/* SPDX-License-Identifier: MIT
 *
 * Out of memory, as PyTorch's users catch it. PyTorch's allocator interface has no way for a hook
 * to fail but a C++ exception. This throws c10::OutOfMemoryError, which PyTorch turns into
 * torch.OutOfMemoryError, without being linked to PyTorch or to a C++ runtime: constructor, vtable
 * and type are looked up by name in the libraries that PyTorch has loaded.
 */
#ifndef REPRISE_PYTHON_RAISE_H
#define REPRISE_PYTHON_RAISE_H

/* Looks the names up, while nothing is in need. Returns what cannot be thrown, NULL when all is
 * there. Static text. */
const char *rpp_raise_prepare(void);

/* Throws. Without c10::OutOfMemoryError a c10::Error, which becomes RuntimeError; without that
 * either, the process ends with the message, as it would by the next use of the tensor. Callers are
 * built with -fexceptions and hold no lock. */
_Noreturn void rpp_raise_out_of_memory(const char *message);
/* The same for what is no lack of memory: becomes RuntimeError. */
_Noreturn void rpp_raise_error(const char *message);

#endif
