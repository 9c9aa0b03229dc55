/* SPDX-License-Identifier: MIT
 *
 * NCCL of one rank. Every collective is then a copy from what is sent to what is received, or
 * nothing where they are one, as it is with NVIDIA's. More ranks are refused.
 */
#include "libcuda/libcuda.h"

#include <stdlib.h>

enum {
    SUCCESS,
    UNHANDLED_CUDA_ERROR,
    SYSTEM_ERROR,
    INTERNAL_ERROR,
    INVALID_ARGUMENT,
    INVALID_USAGE
};

struct unique_id {
    char bytes[128];
};
struct communicator {
    int device;
};

static size_t type_bytes(int type)
{
    /* int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16, two of 8 bits
     */
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < (int)sizeof bytes ? bytes[type] : 0;
}

static int move(const void *from, void *to, size_t count, int type, CUstream stream)
{
    size_t bytes = count * type_bytes(type);
    if (!type_bytes(type))
        return INVALID_ARGUMENT;
    if (!bytes || from == to)
        return SUCCESS;
    return cuMemcpyDtoDAsync((uintptr_t)to, (uintptr_t)from, bytes, stream) ? UNHANDLED_CUDA_ERROR
                                                                            : SUCCESS;
}

RPI_EXPORT int ncclGetUniqueId(struct unique_id *id);
int ncclGetUniqueId(struct unique_id *id)
{
    memset(id, 0, sizeof *id);
    id->bytes[0] = 1;
    return SUCCESS;
}

RPI_EXPORT int ncclCommInitRank(struct communicator **out, int ranks, struct unique_id id,
                                int rank);
int ncclCommInitRank(struct communicator **out, int ranks, struct unique_id id, int rank)
{
    (void)id;
    if (ranks != 1 || rank != 0)
        return INVALID_USAGE;
    struct communicator *made = calloc(1, sizeof *made);
    if (!made)
        return SYSTEM_ERROR;
    if (cuCtxGetDevice(&made->device))
        made->device = 0;
    *out = made;
    return SUCCESS;
}

RPI_EXPORT int ncclCommInitRankConfig(struct communicator **out, int ranks, struct unique_id id,
                                      int rank, void *config);
int ncclCommInitRankConfig(struct communicator **out, int ranks, struct unique_id id, int rank,
                           void *config)
{
    (void)config;
    return ncclCommInitRank(out, ranks, id, rank);
}

RPI_EXPORT int ncclCommInitRankScalable(struct communicator **out, int ranks, int rank, int ids,
                                        struct unique_id *id, void *config);
int ncclCommInitRankScalable(struct communicator **out, int ranks, int rank, int ids,
                             struct unique_id *id, void *config)
{
    (void)ids, (void)config;
    return ncclCommInitRank(out, ranks, *id, rank);
}

RPI_EXPORT int ncclCommSplit(struct communicator *of, int color, int key, struct communicator **out,
                             void *config);
int ncclCommSplit(struct communicator *of, int color, int key, struct communicator **out,
                  void *config)
{
    (void)key, (void)config;
    *out = NULL;
    if (color < 0) /* takes no part */
        return SUCCESS;
    struct communicator *made = malloc(sizeof *made);
    if (!made)
        return SYSTEM_ERROR;
    *made = *of;
    *out = made;
    return SUCCESS;
}

#define ENDS(name)                                                                                 \
    RPI_EXPORT int name(struct communicator *communicator);                                        \
    int name(struct communicator *communicator)                                                    \
    {                                                                                              \
        free(communicator);                                                                        \
        return SUCCESS;                                                                            \
    }
ENDS(ncclCommDestroy)
ENDS(ncclCommAbort)
#undef ENDS

RPI_EXPORT int ncclCommFinalize(struct communicator *communicator);
int ncclCommFinalize(struct communicator *communicator)
{
    (void)communicator;
    return SUCCESS;
}

#define GIVES(name, value)                                                                         \
    RPI_EXPORT int name(const struct communicator *communicator, int *out);                        \
    int name(const struct communicator *communicator, int *out)                                    \
    {                                                                                              \
        (void)communicator;                                                                        \
        *out = (value);                                                                            \
        return SUCCESS;                                                                            \
    }
GIVES(ncclCommCount, 1)
GIVES(ncclCommUserRank, 0)
GIVES(ncclCommGetAsyncError, SUCCESS)
#undef GIVES

RPI_EXPORT int ncclGroupStart(void);
int ncclGroupStart(void)
{
    return SUCCESS;
}

RPI_EXPORT int ncclGroupEnd(void);
int ncclGroupEnd(void)
{
    return SUCCESS;
}

RPI_EXPORT const char *ncclGetErrorString(int error);
const char *ncclGetErrorString(int error)
{
    return error == INVALID_USAGE ? "the host driver has NCCL of one rank only"
                                  : "a call of NCCL failed";
}

RPI_EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
                             struct communicator *communicator, CUstream stream);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op,
                  struct communicator *communicator, CUstream stream)
{
    (void)op, (void)communicator;
    return move(from, to, count, type, stream);
}

RPI_EXPORT int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root,
                          struct communicator *communicator, CUstream stream);
int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root,
               struct communicator *communicator, CUstream stream)
{
    (void)op, (void)root, (void)communicator;
    return move(from, to, count, type, stream);
}

RPI_EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                             struct communicator *communicator, CUstream stream);
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                  struct communicator *communicator, CUstream stream)
{
    (void)root, (void)communicator;
    return move(from, to, count, type, stream);
}

RPI_EXPORT int ncclBcast(void *data, size_t count, int type, int root,
                         struct communicator *communicator, CUstream stream);
int ncclBcast(void *data, size_t count, int type, int root, struct communicator *communicator,
              CUstream stream)
{
    (void)data, (void)count, (void)type, (void)root, (void)communicator, (void)stream;
    return SUCCESS;
}

RPI_EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type,
                             struct communicator *communicator, CUstream stream);
int ncclAllGather(const void *from, void *to, size_t count, int type,
                  struct communicator *communicator, CUstream stream)
{
    (void)communicator;
    return move(from, to, count, type, stream);
}

RPI_EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op,
                                 struct communicator *communicator, CUstream stream);
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op,
                      struct communicator *communicator, CUstream stream)
{
    (void)op, (void)communicator;
    return move(from, to, count, type, stream);
}
