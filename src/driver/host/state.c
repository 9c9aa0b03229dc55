/* SPDX-License-Identifier: MIT
 *
 * The host driver's one state, its options and what it counts.
 */
#include "driver/host/state.h"
#include "base/log.h"

static const struct rpi_host_options default_options = RPI_HOST_OPTIONS_INIT;

struct rpi_host_state rpi_host = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .work = PTHREAD_COND_INITIALIZER,
    .progress = PTHREAD_COND_INITIALIZER,
    .options = RPI_HOST_OPTIONS_INIT,
    .engine = {.random = 1},
    .memory = {.fd = -1, .generation = 1},
    .epoch = 1,
};

void rpi_host_lock(void)
{
    pthread_mutex_lock(&rpi_host.lock);
}

void rpi_host_unlock(void)
{
    struct rpi_host_race race;
    while (rpi_host_race_untold(&race)) {
        pthread_mutex_unlock(&rpi_host.lock);
        rpi_log(RP_LOG_WARNING,
                "race: '%s' %s and '%s' %s %llu bytes at 0x%llx, and nothing orders the two",
                race.first, race.first_writes ? "writes" : "reads", race.second,
                race.second_writes ? "writes" : "reads", (unsigned long long)race.bytes,
                (unsigned long long)race.address);
        pthread_mutex_lock(&rpi_host.lock);
    }
    pthread_mutex_unlock(&rpi_host.lock);
}

void rpi_host_configure(const struct rpi_host_options *options)
{
    rpi_host_lock();
    rpi_host.options = options ? *options : default_options;
    if (rpi_host.options.threads == 0)
        rpi_host.options.threads = 1;
    rpi_host.engine.random = rpi_host.options.seed;
    rpi_host_unlock();
}

void rpi_host_options(struct rpi_host_options *out_options)
{
    rpi_host_lock();
    *out_options = rpi_host.options;
    rpi_host_unlock();
}

void rpi_host_statistics(struct rpi_host_statistics *out_statistics)
{
    rpi_host_lock();
    const struct rpi_host_memory *memory = &rpi_host.memory;
    *out_statistics = (struct rpi_host_statistics){
        .physical_bytes = memory->physical,
        .peak_physical_bytes = memory->peak,
        .reserved_bytes = memory->reserved,
        .pinned_bytes = memory->pinned,
        .allocations = memory->allocations,
        .chunks = memory->created,
        .mappings = memory->mapped,
        .reservations = memory->reservations.count,
        .streams = rpi_host.stream_count,
        .events = rpi_host.event_count,
        .modules = rpi_host.module_count,
        .graphs = rpi_host.graph_count,
        .execs = rpi_host.exec_count,
        .captures = rpi_host.capture_count,
        .pending = rpi_host.engine.unfinished,
        .operations = rpi_host.engine.operations,
        .graph_launches = rpi_host.graph_launches,
        .races = rpi_host.races.count,
    };
    rpi_host_unlock();
}

void rpi_host_peak_reset(void)
{
    rpi_host_lock();
    rpi_host.memory.peak = rpi_host.memory.physical;
    rpi_host_unlock();
}

void rpi_host_reset(void)
{
    rpi_host_lock();
    rpi_host_engine_drain();
    for (int i = 0; i < RPI_HOST_CONTEXTS; i++)
        rpi_host_captures_finish(&rpi_host.contexts[i]);
    rpi_host_execs_finish();
    rpi_host_graphs_finish();
    for (int i = 0; i < RPI_HOST_CONTEXTS; i++)
        rpi_host_context_finish(&rpi_host.contexts[i]);
    rpi_host_race_forget();
    rpi_host_libraries_finish();
    rpi_host_memory_finish();
    memset(rpi_host.lane_positions, 0, sizeof rpi_host.lane_positions);
    rpi_host.races.kept_count = 0;
    rpi_host.races.count = 0;
    rpi_host.races.pair_count = rpi_host.races.told = 0;
    rpi_host_engine_stop();
    rpi_host_handles_finish();
    rpi_host.engine.operations = 0;
    rpi_host.engine.random = rpi_host.options.seed;
    rpi_host.graph_launches = 0;
    rpi_host.initialised = false;
    rpi_host.epoch++;
    rpi_host_unlock();
}
