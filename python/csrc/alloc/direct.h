/* SPDX-License-Identifier: MIT
 *
 * torch.cuda.caching_allocator_enable(False): until it is on again each allocation outside of
 * captures is one of the driver's, and in no statistics, as with PyTorch's own allocator. Tools that
 * look for errors of memory see each by itself then.
 */
#ifndef REPRISE_PYTHON_ALLOC_DIRECT_H
#define REPRISE_PYTHON_ALLOC_DIRECT_H

#include "base/state.h"

/* Are allocations the driver's from here on? */
void rpp_direct_switch(bool on);
/* False: they are not. */
bool rpp_direct_alloc(uint64_t bytes, int ordinal, uint64_t *out_address, rp_status *out_status,
                      struct rp_error *err);
/* Of an address that no heap knows; nothing where it did not come from here. */
void rpp_direct_free(uint64_t address, int ordinal);

#endif
