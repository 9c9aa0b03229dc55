/* SPDX-License-Identifier: MIT
 *
 * The parameters of a graph node as bytes. Kernel parameters come as an array of pointers, whose
 * sizes cuFuncGetParamInfo tells, or as one packed buffer (`extra`); both become the packed image.
 * The image of a memcpy or memset node is the driver's parameter struct.
 *
 *     image    | param 0 | padding | param 1 | ...
 *     fields   the parts of the image that mean something, in order. What lies between them is
 *              whatever the launching code's stack held.
 */
#ifndef REPRISE_GRAPH_TEMPLATE_PARAMS_H
#define REPRISE_GRAPH_TEMPLATE_PARAMS_H

#include "base/vec.h"
#include "driver/driver.h"

#include <stdbool.h>
#include <string.h>

enum rpi_field_kind {
    RPI_FIELD_VALUE,  /* must be the same in both captures, or an address of a block */
    RPI_FIELD_STRUCT, /* may hold padding, so a word may differ and mean nothing */
    RPI_FIELD_HOST    /* a host pointer: each capture may have its own */
};

struct rpi_field {
    uint32_t offset, bytes;
    enum rpi_field_kind kind;
};

struct rpi_params {
    CUgraphNodeType type;
    CUDA_KERNEL_NODE_PARAMS kernel; /* of a kernel node; its pointers are the driver's */
    CUgraph child;                  /* of a child graph node */
    size_t packed_bytes;            /* length of a kernel's packed buffer; 0: array of pointers */
    bool hidden;                    /* there may be addresses that cannot be read here */
    struct {
        RPI_VEC(unsigned char);
    } image;
    struct {
        RPI_VEC(struct rpi_field);
    } fields;
};

/* The function of a kernel node. Drivers tell it beside `kern`, a library's kernel; one that names
 * the kernel alone is asked. NULL: it is not known. The context is current. */
CUfunction rpi_kernel_function(const struct rp_driver *driver,
                               const CUDA_KERNEL_NODE_PARAMS *kernel);

/* Reads a node's parameters; params is zeroed or was read before, its memory is used again. */
rp_status rpi_params_read(struct rpi_params *params, const struct rp_driver *driver,
                          CUgraphNode node, struct rp_error *err);
void rpi_params_finish(struct rpi_params *params);

/* A node's parameters to write to and give to execs: an image and the driver's struct around it, in
 * one piece of memory, so that giving many nodes walks through memory in one direction. Only
 * kernel, memcpy and memset nodes have one.
 *
 *     | this struct | pointers | image |
 */
struct rpi_node_image {
    CUDA_KERNEL_NODE_PARAMS kernel; /* of a kernel node; its pointers lead to the image */
    CUgraphNodeType type;
    unsigned char *bytes; /* a multiple of 16 from the start, as a parameter may want */
    size_t packed_bytes;
    void *pointers[]; /* of a kernel node: kernelParams, or the five of extra */
};

/* Memory that the image takes: a multiple of 16. */
size_t rpi_node_image_bytes(const struct rpi_params *params);
/* Copies what rpi_params_read has read into memory of that size, aligned to 16, where it stays. */
struct rpi_node_image *rpi_node_image_make(void *memory, const struct rpi_params *params);

static inline void rpi_node_image_write(struct rpi_node_image *image, uint32_t offset,
                                        uint64_t word)
{
    memcpy(image->bytes + offset, &word, sizeof word);
}

/* For memcpy and memset nodes, what rpi_node_image_set does. */
CUresult rpi_node_image_set_other(const struct rpi_node_image *image,
                                  const struct rp_driver *driver, CUgraphExec exec,
                                  CUgraphNode node, CUcontext context, const char **out_function);

/* Gives the image to the exec, for its next launches; node is one of the graph that the exec was
 * instantiated from. *out_function is the driver's function that was called. */
static inline CUresult rpi_node_image_set(const struct rpi_node_image *image,
                                          const struct rp_driver *driver, CUgraphExec exec,
                                          CUgraphNode node, CUcontext context,
                                          const char **out_function)
{
    if (image->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return rpi_node_image_set_other(image, driver, exec, node, context, out_function);
    *out_function = "cuGraphExecKernelNodeSetParams";
    return driver->cuGraphExecKernelNodeSetParams(exec, node, &image->kernel);
}

/* "attention_kernel" or "memcpy", for messages, into text. */
void rpi_params_describe(const struct rpi_params *params, const struct rp_driver *driver,
                         char *text, size_t bytes);

#endif
