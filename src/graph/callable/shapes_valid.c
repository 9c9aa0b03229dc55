/* SPDX-License-Identifier: MIT
 *
 * The walker of a callable's shapes: the chains of equal hashes, and state against graph.
 */
#include "graph/callable/shapes.h"

static bool is_shape_valid(const struct rpi_shape *shape, size_t index)
{
    if (shape->next != RPI_ABSENT && shape->next >= index)
        return false;
    if (!shape->text || (shape->key_bytes && !shape->key))
        return false;
    for (size_t k = 0; k < shape->arg_count; k++)
        if (shape->roles[k] < RP_ARG_IN || shape->roles[k] > RP_ARG_INOUT ||
            shape->places[k].storage >= shape->arg_count)
            return false;
    return (shape->state == RP_SHAPE_GRAPH) == (shape->graph != NULL);
}

/* Each hash has one shape that no other leads to, the latest: so many chains, so many hashes. */
bool rpi_shapes_are_valid(const struct rpi_shapes *shapes)
{
    size_t led_to = 0;
    for (size_t i = 0; i < shapes->all.count; i++) {
        const struct rpi_shape *shape = shapes->all.data[i];
        if (!is_shape_valid(shape, i))
            return false;
        led_to += shape->next != RPI_ABSENT;
        for (size_t j = 0; shape->next != RPI_ABSENT && j < i; j++)
            if (shapes->all.data[j]->next == shape->next)
                return false;
    }
    return shapes->all.count - led_to == shapes->by_hash.count;
}
