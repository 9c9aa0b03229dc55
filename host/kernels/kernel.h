/* SPDX-License-Identifier: MIT
 *
 * Kernels of PyTorch as C functions. Which one a kernel is, its mangled name says:
 *
 *   family     how its elements are found: by index, by strides, in lists of tensors, reduced
 *   functor    what it computes of them: "add", with its types and the numbers of its closure
 *
 * so that a functor serves in every family. Layouts of parameters are those of PyTorch 2.11; a
 * kernel whose parameters have not the size that such a layout has is left to do nothing. An
 * element is computed in double and rounded to its type.
 */
#ifndef HOST_KERNELS_KERNEL_H
#define HOST_KERNELS_KERNEL_H

#include "kernels/number.h"
#include "reprise.h"
#include "reprise_tools.h"

#include <stdbool.h>
#include <stddef.h>

enum { RPI_ARGS = 5, RPI_SCALARS = 4, RPI_LANES = 256 };

struct rpi_functor;

typedef void (*rpi_run)(const struct rp_host_launch *launch);

/* A kernel's parameters, and what was read out of its name. */
struct rpi_kernel {
    const struct rpi_functor *functor; /* NULL: the family computes by itself */
    int wrapper;                       /* whose closure holds the first or second operand */
    int types[RPI_ARGS];               /* the result's, then those of the operands in memory */
    int operand_types[2];              /* of a wrapped functor's two */
    int variant, depth, result;        /* by the family */
    struct rp_host_param params[];
};

static inline struct rpi_kernel *rpi_kernel_of(const struct rp_host_kernel *kernel)
{
    return (struct rpi_kernel *)((char *)(uintptr_t)kernel->params -
                                 offsetof(struct rpi_kernel, params));
}

/* The C function of the kernel with that mangled name, its details in *kernel, whose parameters are
 * filled in; NULL: none. */
rpi_run rpi_kernel_find(const char *name, struct rpi_kernel *kernel, uint32_t param_count);

/* ---- Names ---------------------------------------------------------------------------------- */

/* Reads a type at *at and moves on; *type is one of number.h, or is left as it is where the name
 * refers back to a type: give the one before. false: not a type that is known. */
bool rpi_name_type(const char **at, int *type);
/* Behind the first `key` in the name, or NULL. */
const char *rpi_name_after(const char *name, const char *key);

/* ---- Functors ------------------------------------------------------------------------------- */

/* Some elements on their way through a functor. */
struct rpi_lanes {
    int count;
    double in[RPI_ARGS - 1][RPI_LANES], out[RPI_LANES];
    int64_t whole_in[RPI_ARGS - 1][RPI_LANES], whole_out[RPI_LANES];
    double scalars[RPI_SCALARS]; /* of the closure */
    int64_t whole_scalars[RPI_SCALARS];
};

struct rpi_functor {
    const char *key;     /* a part of the name; where it ends with I, its type follows */
    int arity;           /* operands in memory */
    const char *closure; /* a letter a member: m the functor's type or float for a shorter one, t
                            its type, i an int, f a float */
    void (*apply)(struct rpi_lanes *lanes);
    void (*apply_whole)(struct rpi_lanes *lanes); /* for integers of all widths; NULL: apply */
    char result; /* b: bool, h: half, w: bfloat16, l: the last operand's, else the first's */
};

/* The functor that the text from `name` on names, and in *kernel its types and those of what it
 * lies in; NULL: none that is known. */
const struct rpi_functor *rpi_functor_find(const char *name, struct rpi_kernel *kernel);
/* How many operands the kernel has in memory. */
int rpi_functor_arity(const struct rpi_kernel *kernel);
/* Bytes of the closure. */
size_t rpi_functor_bytes(const struct rpi_kernel *kernel, size_t *out_alignment);
/* Reads the closure; once before the elements. */
void rpi_functor_begin(const struct rpi_kernel *kernel, const void *closure,
                       struct rpi_lanes *lanes);
/* Whether elements go through the lanes of integers. */
bool rpi_functor_is_whole(const struct rpi_kernel *kernel);
/* Computes lanes->out of lanes->in, count elements. */
void rpi_functor_apply(const struct rpi_kernel *kernel, struct rpi_lanes *lanes);

/* ---- Families: whether the name is one of theirs, and then its function ---------------------- */

rpi_run rpi_elementwise_find(const char *name, struct rpi_kernel *kernel, uint32_t count);
rpi_run rpi_reduce_find(const char *name, struct rpi_kernel *kernel, uint32_t count);
rpi_run rpi_multi_tensor_find(const char *name, struct rpi_kernel *kernel, uint32_t count);
rpi_run rpi_random_find(const char *name, struct rpi_kernel *kernel, uint32_t count);
rpi_run rpi_nets_find(const char *name, struct rpi_kernel *kernel, uint32_t count);
rpi_run rpi_movement_find(const char *name, struct rpi_kernel *kernel, uint32_t count);

/* ---- Offset calculators --------------------------------------------------------------------- */

enum { RPI_DIMS = 25 };
/* Bytes of at::OffsetCalculator<args>. */
static inline size_t rpi_offsets_bytes(int args)
{
    return 4 + RPI_DIMS * 12 + (size_t)RPI_DIMS * 4 * (size_t)args;
}
/* The offsets of element `index` by the calculator at `at`. */
void rpi_offsets(const void *at, int args, uint32_t index, uint32_t *out);

#endif
