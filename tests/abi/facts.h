/* SPDX-License-Identifier: MIT
 *
 * The facts of facts.def as one header sees them. ours.c and theirs.c fill one array each, in the
 * same order.
 */
#ifndef TESTS_ABI_FACTS_H
#define TESTS_ABI_FACTS_H

#include <stddef.h>

struct fact {
    const char *what;
    unsigned long long first, second; /* size and alignment, offset and size, or value and 0 */
};

struct facts {
    const struct fact *facts;
    size_t count;
};

/* A function whose prototype was compared. */
struct prototype {
    const char *name;
    int version; /* the form that symbols.def asks for */
    int same;
};

struct facts abi_ours(void);
struct facts abi_theirs(void);
/* symbols.def against cuda.h's declarations; *out_count of them. */
const struct prototype *abi_prototypes(size_t *out_count);
int abi_cuda_version(void); /* CUDA_VERSION of the cuda.h that was found */

#ifdef FACTS_HEADER_INCLUDED
/* For ours.c and theirs.c, after they have included their header. */
static const struct fact fact_table[] = {
#define HANDLE(type) {"type " #type, sizeof(type), _Alignof(type)},
#define STRUCT(type) {"struct " #type, sizeof(type), _Alignof(type)},
#define FIELD(type, field)                                                                         \
    {"field " #type "." #field, offsetof(type, field), sizeof(((type *)0)->field)},
#define VALUE(constant) {"constant " #constant, (unsigned long long)(size_t)(constant), 0},
#include "facts.def"
#undef HANDLE
#undef STRUCT
#undef FIELD
#undef VALUE
/* Last, as cuda.h before CUDA 13 lacks some. */
#if !defined(CUDA_VERSION) || CUDA_VERSION >= 13000
#define X(name, value, meaning) {"result " #name, (unsigned long long)(name), 0},
#include "driver/results.def"
#undef X
#endif
};
#endif

#endif
