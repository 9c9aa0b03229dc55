/* SPDX-License-Identifier: MIT
 *
 * The pluggable allocator is a C++ object, whose methods without a hook raise "not supported".
 * cuDNN's benchmark asks for the largest block before its trials. So the object is given a table of
 * methods of its own: PyTorch's, with those that are answered here in the place of its own. Where
 * each stands is not assumed: it is where PyTorch's table has the function of that name.
 */
#include "alloc/methods.h"

#include "alloc/regions.h"
#include "base/symbol.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#define CLASS "N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"

enum { HEADER = 2 }; /* offset and type lie before the first method */

/* ---- Answers -------------------------------------------------------------------------------- */

/* cacheInfo: what a workspace may take. What the device has, and what the heap would give back. */
static void cache_info(void *allocator, int8_t ordinal, size_t *out_largest)
{
    (void)allocator;
    struct rpp_device *slot;
    struct rp_error err = {0};
    size_t available = 0, total = 0;
    int64_t reserved = 0, active = 0;
    if (rpp_device_get(ordinal, &slot, &err) == RP_OK &&
        rp_device_push(slot->device, &err) == RP_OK) {
        if (slot->mem_info)
            slot->mem_info(&available, &total);
        rp_device_pop(slot->device);
        uint64_t allowed = atomic_load(&slot->allowed_bytes);
        struct rp_heap *heap = rpp_heap_made(ordinal);
        if (heap) {
            rp_heap_stat(heap, "reserved_bytes.all.current", &reserved, NULL);
            rp_heap_stat(heap, "active_bytes.all.current", &active, NULL);
        }
        available += (size_t)(reserved > active ? reserved - active : 0);
        uint64_t left = allowed > (uint64_t)active ? allowed - (uint64_t)active : 0;
        if (allowed && available > left)
            available = left;
    }
    *out_largest = available;
}

/* ---- Regions -------------------------------------------------------------------------------- */

#define RECORD "_Z" CLASS "13recordHistory"
#define ATTACH "_Z" CLASS "25attachOutOfMemoryObserverESt8functionIFvlmmmEE"

/* Where the table has the function; 0: nowhere, or in several places. */
static size_t place_of(void *const *table, size_t words, const void *function)
{
    size_t place = 0, found = 0;
    for (size_t i = HEADER; function && i < words; i++)
        if (table[i] == function) {
            place = i;
            found++;
        }
    return found == 1 ? place : 0;
}

/* Where the table has the one function whose name begins so, of the first `words`; 0: nowhere. */
static size_t place_of_named(void *const *table, size_t words, const char *name)
{
    size_t place = 0, found = 0;
    for (size_t i = HEADER; i < words; i++) {
        Dl_info info;
        if (dladdr(table[i], &info) && info.dli_sname &&
            strncmp(info.dli_sname, name, strlen(name)) == 0) {
            place = i;
            found++;
        }
    }
    return found == 1 ? place : 0;
}

/* Has PyTorch's header as many methods between recordHistory and attachOutOfMemoryObserver as one of
 * those that were read? */
static bool is_known_distance(size_t distance)
{
    enum { UNTIL_2_13 = 6, SINCE_2_14 = 8 };
    return distance == UNTIL_2_13 || distance == SINCE_2_14;
}

/* The methods that are told of regions have no names in the library. In each header that was read they
 * are the second and the third behind recordHistory. */
static void answer_regions(void **table, size_t words)
{
    enum { PUSH = 2, POP = 3 };
    size_t attach = place_of(table, words, rpp_torch_symbol("libtorch_cuda.so", ATTACH));
    size_t record = place_of_named(table, attach, RECORD);
    if (!record || !is_known_distance(attach - record))
        return;
    void (*records)(void) = rpp_region_record;
    void (*push)(void *, void *) = rpp_region_push;
    void (*pop)(void *) = rpp_region_pop;
    memcpy(&table[record], &records, sizeof records);
    memcpy(&table[record + PUSH], &push, sizeof push);
    memcpy(&table[record + POP], &pop, sizeof pop);
    rpp_regions_answer = true;
}

/* ---- Their place ---------------------------------------------------------------------------- */

/* Words of the class's table; 0: not known. */
static size_t table_words(void *table)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    if (!table || !dladdr1(table, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
        return 0;
    return symbol->st_size / sizeof(void *);
}

static const char *answer(void)
{
    void **allocator =
        rpp_torch_symbol("libc10_cuda.so", "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
    void **table = rpp_torch_symbol("libtorch_cuda.so", "_ZTV" CLASS "E");
    void *asked = rpp_torch_symbol("libtorch_cuda.so", "_Z" CLASS "9cacheInfoEaPm");
    size_t words = table_words(table);
    if (!allocator || !*allocator || words <= HEADER || !asked)
        return "c10::cuda::CUDACachingAllocator";
    void ***object = *allocator;
    if (*object != table + HEADER)
        return "CUDAPluggableAllocator";
    void **ours = malloc(words * sizeof *ours); /* for good, as the allocator */
    if (!ours)
        return "host memory";
    memcpy(ours, table, words * sizeof *ours);
    void (*function)(void *, int8_t, size_t *) = cache_info;
    size_t place = place_of(ours, words, asked);
    if (!place) {
        free(ours);
        return "CUDAPluggableAllocator::cacheInfo";
    }
    memcpy(&ours[place], &function, sizeof function);
    answer_regions(ours, words);
    *object = ours + HEADER;
    return NULL;
}

PyObject *rpp_answer_methods(PyObject *module, PyObject *unused)
{
    rpp_assert_gil();
    (void)module, (void)unused;
    const char *missing = answer();
    return missing ? PyUnicode_FromString(missing) : Py_NewRef(Py_None);
}
