/* SPDX-License-Identifier: MIT */
#include "graph/objects/wait.h"

#include "memory/range/arena.h"

void rpi_wait_for_member(const struct rp_driver *driver, const struct rpi_pool_member *member)
{
    if (!member->turn)
        return;
    int mode = rpi_relax_begin(driver);
    if (member->unmarked || driver->cuEventSynchronize(member->done) != CUDA_SUCCESS)
        if (driver->cuStreamSynchronize(member->stream) != CUDA_SUCCESS)
            driver->cuStreamSynchronize(member->stream);
    rpi_relax_end(driver, mode);
}
