/* SPDX-License-Identifier: MIT */
#include "graph/exec/exec_prices.h"

#include "base/held.h"

#include <assert.h>

/* What was seen on an H200, until this device has shown its own. */
static const double MAKE_US = 40, MAKE_NODE_US = 2.1, UPDATE_US = 3, UPDATE_NODE_US = 0.2;
static const double REPLAY_NODE_US = 2.5;

enum {
    ENOUGH = 4,      /* samples of the device's time of one kind */
    PLAIN = 8,       /* samples of launches without an update */
    AGAIN_EVERY = 64 /* replays by a changed exec, one of which is measured */
};

void rpi_exec_time_add(struct rpi_exec_time *time, double us)
{
    assert(us >= 0 && time->us >= 0);
    if (time->samples > 1 && us > 4 * time->us)
        us = 4 * time->us;
    time->us += (us - time->us) * (time->samples ? 0.25 : 1);
    time->samples += time->samples < UINT32_MAX;
}

/* ---- Prices -------------------------------------------------------------------------------- */

static double known(const struct rpi_exec_time *time, double otherwise)
{
    return time->samples ? time->us : otherwise;
}

/* Of a class that was not measured yet. */
static double expected_make(const struct rpi_exec_cache *cache, const struct rpi_exec_class *class)
{
    return MAKE_US + (double)class->topology.nodes * known(&cache->make_node, MAKE_NODE_US);
}

static double expected_update(const struct rpi_exec_cache *cache,
                              const struct rpi_exec_class *class)
{
    return UPDATE_US + (double)class->topology.nodes * known(&cache->update_node, UPDATE_NODE_US);
}

void rpi_exec_price_class(struct rpi_exec_cache *cache, struct rpi_exec_class *class)
{
    rpi_assert_held(&cache->lock);
    double make = expected_make(cache, class), update = expected_update(cache, class), more = 0;
    if (class->launch_updated.samples && class->launch_plain.samples)
        more = class->launch_updated.us - class->launch_plain.us;
    class->rent.make_us = known(&class->make, make);
    class->rent.update_us = known(&class->update, update) + (more > 0 ? more : 0);
}

void rpi_exec_price_client(struct rpi_exec_cache *cache, struct rpi_exec_client *client)
{
    rpi_assert_held(&cache->lock);
    double share = cache->slow_share;
    const struct rpi_exec_time *fresh = &client->fresh, *changed = &client->changed;
    double slow = share * REPLAY_NODE_US * (double)client->source->topology.nodes;
    if (fresh->samples > 1 && changed->samples > 1)
        slow = changed->us - fresh->us;
    else if (fresh->samples)
        slow = share * fresh->us;
    else if (changed->samples)
        slow = share / (1 + share) * changed->us;
    client->rent.slow_us = slow > 0 ? slow : 0;
}

/* ---- Learning ------------------------------------------------------------------------------ */

/* Beside what was expected until now: the first exec of a process may take ten times as long as the
 * ones after it, and would keep graphs from having their own. */
static void learn(struct rpi_exec_time *time, double us, double expected)
{
    if (!time->samples)
        *time = (struct rpi_exec_time){expected, 2};
    rpi_exec_time_add(time, us);
}

/* us: without what is taken once. */
static void learn_node(struct rpi_exec_time *node, double us, size_t nodes, double expected)
{
    if (nodes)
        learn(node, us > 0 ? us / (double)nodes : 0, expected);
}

void rpi_exec_learn_make(struct rpi_exec_cache *cache, struct rpi_exec_class *class, double us)
{
    rpi_assert_held(&cache->lock);
    learn(&class->make, us, expected_make(cache, class));
    learn_node(&cache->make_node, us - MAKE_US, class->topology.nodes, MAKE_NODE_US);
    rpi_exec_price_class(cache, class);
}

void rpi_exec_learn_update(struct rpi_exec_cache *cache, struct rpi_exec_class *class, double us)
{
    rpi_assert_held(&cache->lock);
    learn(&class->update, us, expected_update(cache, class));
    learn_node(&cache->update_node, us - UPDATE_US, class->topology.nodes, UPDATE_NODE_US);
    rpi_exec_price_class(cache, class);
}

void rpi_exec_learn_launch(struct rpi_exec_cache *cache, struct rpi_exec_client *client, double us)
{
    rpi_assert_held(&cache->lock);
    struct rpi_exec_class *class = (struct rpi_exec_class *)client->rent.class;
    rpi_exec_time_add(client->updated ? &class->launch_updated : &class->launch_plain, us);
    rpi_exec_price_class(cache, class);
}

void rpi_exec_learn_replay(struct rpi_exec_cache *cache, struct rpi_exec_client *client,
                           bool changed, double us)
{
    rpi_assert_held(&cache->lock);
    rpi_exec_time_add(changed ? &client->changed : &client->fresh, us);
    const struct rpi_exec_time *fresh = &client->fresh;
    if (fresh->samples > 1 && client->changed.samples > 1 && fresh->us > 0) {
        double share = (client->changed.us - fresh->us) / fresh->us;
        share = share < 0 ? 0 : (share > 0.5 ? 0.5 : share);
        cache->slow_share += (share - cache->slow_share) * (cache->slow_samples ? 0.125 : 0.5);
        cache->slow_samples++;
    }
    rpi_exec_price_client(cache, client);
}

/* ---- Sampling ------------------------------------------------------------------------------ */

void rpi_exec_choose_samples(struct rpi_exec_cache *cache, struct rpi_exec_client *client)
{
    rpi_assert_held(&cache->lock);
    const struct rpi_rent_exec *taken = client->taken;
    assert(taken && taken->pins);
    const struct rpi_exec_class *class = (const struct rpi_exec_class *)taken->class;
    bool shared = class->rent.graphs > 1;
    client->timed = shared && (client->updated || class->launch_plain.samples < PLAIN);
    client->probed = false;
    if (!shared || cache->rent.budget == RPI_RENT_ONE_EACH)
        return;
    if (taken->changed)
        client->probed = client->changed.samples < ENOUGH || cache->rent.turns % AGAIN_EVERY == 0;
    else
        client->probed = !client->updated && client->hits && client->fresh.samples < ENOUGH;
}
