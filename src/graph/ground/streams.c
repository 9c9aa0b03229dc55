/* SPDX-License-Identifier: MIT */
#include "graph/ground/streams.h"

#include "base/held.h"

#include <assert.h>

rp_status rpi_streams_init(struct rpi_streams *streams, struct rp_error *err)
{
    if (pthread_mutex_init(&streams->lock, NULL) == 0)
        return RP_OK;
    return rpi_error_host_memory(err, "rp_device_open", sizeof streams->lock);
}

void rpi_streams_finish(struct rpi_streams *streams, const struct rp_driver *driver)
{
    for (size_t i = 0; i < streams->free.count; i++)
        driver->cuStreamDestroy(streams->free.data[i]);
    if (streams->beside)
        driver->cuStreamDestroy(streams->beside);
    rpi_vec_finish(&streams->free);
    pthread_mutex_destroy(&streams->lock);
}

/* With the lock held. */
static rp_status make(struct rpi_streams *streams, const struct rp_driver *driver,
                      CUstream *out_stream, struct rp_error *err)
{
    rpi_assert_held(&streams->lock);
    if (!rpi_vec_reserve(&streams->free, streams->made + 1)) /* so that giving back cannot fail */
        return rpi_error_host_memory(err, "rp_pool_create", sizeof *streams->free.data);
    CUresult result = driver->cuStreamCreate(out_stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamCreate", "making a stream for captures");
    streams->made++;
    return RP_OK;
}

rp_status rpi_streams_take(struct rpi_streams *streams, const struct rp_driver *driver,
                           CUstream *out_stream, struct rp_error *err)
{
    rp_status status = RP_OK;
    pthread_mutex_lock(&streams->lock);
    if (streams->free.count)
        *out_stream = streams->free.data[--streams->free.count];
    else
        status = make(streams, driver, out_stream, err);
    pthread_mutex_unlock(&streams->lock);
    return status;
}

rp_status rpi_streams_beside(struct rpi_streams *streams, const struct rp_driver *driver,
                             CUstream *out_stream, struct rp_error *err)
{
    rp_status status = RP_OK;
    pthread_mutex_lock(&streams->lock);
    if (!streams->beside)
        status = make(streams, driver, &streams->beside, err);
    *out_stream = streams->beside;
    pthread_mutex_unlock(&streams->lock);
    assert((status == RP_OK) == (*out_stream != NULL));
    return status;
}

void rpi_streams_give(struct rpi_streams *streams, CUstream stream)
{
    pthread_mutex_lock(&streams->lock);
    streams->free.data[streams->free.count++] = stream;
    pthread_mutex_unlock(&streams->lock);
}
