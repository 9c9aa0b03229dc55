/* SPDX-License-Identifier: MIT
 *
 * What the library learns of a chip that it does not know: the prices of execs in device memory as
 * it measures them (src/graph/ground/byte_probe.h), beside those that were fitted on an NVIDIA
 * H200. Each run has a context of its own, as a driver keeps the memory of destroyed execs for the
 * next ones. Nothing else may run on the device.
 *
 * Prints JSON; exits with 77 where the driver is not there. Execs of the host driver are given
 * other prices, a path half as dear and a node twice, so that there is something to measure.
 *
 * usage: bench_prices [--driver cuda|host] [--runs N]
 */
#include "driver/host/host.h"
#include "graph/ground/byte_probe.h"
#include "graph/objects/objects.h"
#include "memory/range/arena.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what)
{
    fprintf(stderr, "bench_prices: %s\n", what);
    exit(1);
}

static struct rp_device *open_device(const char *driver)
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_device *device;
    struct rp_error err;
    options.driver = driver;
    if (rp_device_open(&options, &device, &err) != RP_OK) {
        fprintf(stderr, "bench_prices: %s\n", err.message);
        exit(77);
    }
    if (rp_device_push(device, &err) != RP_OK)
        fail(err.message);
    return device;
}

static void close_device(struct rp_device *device)
{
    rp_device_pop(device);
    rp_device_destroy(device);
}

static void print_price(const char *name, uint64_t measured, uint64_t fitted)
{
    printf(",\"%s\":{\"fitted\":%" PRIu64 ",\"measured\":%" PRIu64 ",\"difference\":%.4f}", name,
           fitted, measured, (double)measured / (double)fitted - 1);
}

static void run(const char *driver, bool first)
{
    struct rp_device *device = open_device(driver);
    struct rpi_byte_probe probe;
    int mode = rpi_relax_begin(device->driver);
    rpi_byte_probe(device->driver, device->handle, &rpi_h200_byte_prices, &probe);
    rpi_relax_end(device->driver, mode);
    printf("%s\n  {\"execs\":%zu,\"taken_bytes\":%" PRIu64 ",\"ms\":%.1f", first ? "" : ",",
           probe.execs, probe.taken, probe.ms);
    if (probe.reason) {
        printf(",\"reason\":\"%s\"}", probe.reason);
    } else {
        print_price("path_bytes", probe.prices.path, rpi_h200_byte_prices.path);
        print_price("node_bytes", probe.prices.node, rpi_h200_byte_prices.node);
        printf("}");
    }
    close_device(device);
}

static void give_host_execs_prices(void)
{
    struct rpi_host_options host = RPI_HOST_OPTIONS_INIT;
    host.exec_path_bytes = rpi_h200_byte_prices.path / 2;
    host.exec_node_bytes = rpi_h200_byte_prices.node * 2;
    host.exec_step_bytes = (uint64_t)2 << 20;
    rpi_host_configure(&host);
}

int main(int argc, char **argv)
{
    const char *driver = "cuda";
    int runs = 5;
    struct rp_device_info info = {.size = sizeof info};
    struct rp_device_exec_info execs = {.size = sizeof execs};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--driver") == 0 && i + 1 < argc)
            driver = argv[++i];
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0)
            runs = atoi(argv[++i]);
        else
            fail("usage: bench_prices [--driver cuda|host] [--runs N]");
    }
    if (strcmp(driver, "host") == 0)
        give_host_execs_prices();
    struct rp_device *device = open_device(driver);
    rp_device_info(device, &info);
    rp_device_exec_info(device, &execs);
    printf("{\"driver\":\"%s\",\"device\":\"%s\",\"prices_without_measuring\":\"%s\",\"runs\":[",
           info.driver, info.name, execs.price_text);
    close_device(device);
    for (int i = 0; i < runs; i++)
        run(driver, i == 0);
    printf("]}\n");
    return 0;
}
