/* SPDX-License-Identifier: MIT */
#include "graph/template/scalars.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct rpi_scalar_entry {
    uint64_t before, after;
    uint32_t bytes, scalar;
    enum rpi_scalar_form form;
};

uint32_t rpi_scalar_bytes(enum rpi_scalar_form form)
{
    assert(form < RPI_SCALAR_FORM_COUNT);
    static const uint32_t bytes[] = {
#define X(name, bytes, type, value) bytes,
        RPI_SCALAR_FORMS(X)
#undef X
    };
    return bytes[form];
}

uint64_t rpi_scalar_bits(double x, enum rpi_scalar_form form)
{
    assert(form < RPI_SCALAR_FORM_COUNT);
    uint64_t bits = 0;
    switch (form) {
#define X(name, bytes, type, value)                                                                \
    case name: {                                                                                   \
        type held = value;                                                                         \
        memcpy(&bits, &held, sizeof held);                                                         \
        break;                                                                                     \
    }
        RPI_SCALAR_FORMS(X)
#undef X
    case RPI_SCALAR_FORM_COUNT:
        break;
    }
    return bits;
}

/* By width, then by word; of equal words the plainest form of the first scalar comes first. */
static int order_entries(const void *left, const void *right)
{
    const struct rpi_scalar_entry *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    if (a->before != b->before)
        return a->before < b->before ? -1 : 1;
    if (a->form != b->form)
        return a->form < b->form ? -1 : 1;
    return (a->scalar > b->scalar) - (a->scalar < b->scalar);
}

/* Are both roundings of the inverse the same in both captures? */
static bool is_ambiguous(double before, double after, enum rpi_scalar_form form)
{
    enum rpi_scalar_form one = RPI_SCALAR_INVERSE_ROUNDED, other = RPI_SCALAR_INVERSE_FLOAT;
    return (form == one || form == other) &&
           rpi_scalar_bits(before, one) == rpi_scalar_bits(before, other) &&
           rpi_scalar_bits(after, one) == rpi_scalar_bits(after, other);
}

rp_status rpi_scalar_table_init(struct rpi_scalar_table *table, const struct rpi_scalars *before,
                                const struct rpi_scalars *after, struct rp_error *err)
{
    assert(before->count == after->count);
    size_t most = before->count * RPI_SCALAR_FORM_COUNT;
    *table = (struct rpi_scalar_table){0};
    if (!most)
        return RP_OK;
    table->entries = rpi_calloc(most, sizeof *table->entries);
    if (!table->entries)
        return rpi_error_host_memory(err, "rp_graph_capture", most * sizeof *table->entries);
    for (uint32_t k = 0; k < before->count; k++)
        for (enum rpi_scalar_form form = 0; form < RPI_SCALAR_FORM_COUNT; form++)
            if (!is_ambiguous(before->data[k], after->data[k], form))
                table->entries[table->count++] = (struct rpi_scalar_entry){
                    rpi_scalar_bits(before->data[k], form), rpi_scalar_bits(after->data[k], form),
                    rpi_scalar_bytes(form), k, form};
    qsort(table->entries, table->count, sizeof *table->entries, order_entries);
    return RP_OK;
}

void rpi_scalar_table_finish(struct rpi_scalar_table *table)
{
    rpi_free(table->entries);
    *table = (struct rpi_scalar_table){0};
}

/* The first entry of this width whose word is no less. */
static size_t find_first(const struct rpi_scalar_table *table, uint32_t bytes, uint64_t before)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct rpi_scalar_entry *entry = &table->entries[middle];
        if (entry->bytes < bytes || (entry->bytes == bytes && entry->before < before))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool rpi_scalar_table_find(const struct rpi_scalar_table *table, uint32_t bytes, uint64_t before,
                           uint64_t after, uint32_t *out_scalar, enum rpi_scalar_form *out_form)
{
    assert(bytes == sizeof(float) || bytes == sizeof(double));
    if (before == after)
        return false;
    for (size_t i = find_first(table, bytes, before); i < table->count; i++) {
        const struct rpi_scalar_entry *entry = &table->entries[i];
        if (entry->bytes != bytes || entry->before != before)
            return false;
        if (entry->after != after)
            continue;
        *out_scalar = entry->scalar;
        *out_form = entry->form;
        return true;
    }
    return false;
}
