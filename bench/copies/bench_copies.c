/* SPDX-License-Identifier: MIT
 *
 * The copies of replays, in one launch and in a call each (graph/ground/copier.h), on either
 * driver.
 *
 * First they are checked: launches of copies of all lengths up to 80 bytes at all 16 x 16
 * alignments, of tables of all sizes, of lengths around whole tiles and of large ones at odd
 * addresses; every byte of both buffers is compared. Then timed: host time of so many copies of
 * 4 KiB, and the time until they are done; bytes a microsecond of one large copy. Prints JSON;
 * exits with 1 where a byte is wrong, with 77 where the driver is not there.
 *
 * usage: bench_copies [--driver cuda|host] [--quick]
 */
#include "base/clock.h"
#include "graph/objects/objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNTS = 7, SIZES = 5, MOST_COPIES = 300 };
static const size_t counts[COUNTS] = {1, 2, 3, 4, 8, 32, 144};
static const uint64_t sizes[SIZES] = {1, 8, 64, 256, 1024}; /* MiB */

/* Which of both ways is taken is a matter of prices. */
static const struct rpi_copy_prices launched = {.single = 1}, single = {.launch = 1, .entry = 1};

struct bench {
    struct rp_device *device;
    const struct rp_driver *driver;
    CUstream stream;
    CUdeviceptr from, to;
    unsigned char *source, *expected, *found;
    size_t bytes; /* of both buffers, while copies are checked */
    struct rpi_copy copies[MOST_COPIES];
    size_t count;
    uint64_t checked;
};

static void fail(const char *what, int code)
{
    fprintf(stderr, "bench_copies: %s (%d)\n", what, code);
    exit(1);
}

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS)
        fail(what, (int)result);
}

/* ---- Checks -------------------------------------------------------------------------------- */

static void buffers_init(struct bench *b, size_t bytes)
{
    b->bytes = bytes;
    b->source = malloc(bytes);
    b->expected = malloc(bytes);
    b->found = malloc(bytes);
    if (!b->source || !b->expected || !b->found)
        fail("out of host memory", 0);
    for (size_t i = 0; i < bytes; i++)
        b->source[i] = (unsigned char)(i * 31 + i / 251 * 7 + 1);
    must(b->driver->cuMemAlloc(&b->from, bytes), "cuMemAlloc");
    must(b->driver->cuMemAlloc(&b->to, bytes), "cuMemAlloc");
    must(b->driver->cuMemcpyHtoD(b->from, b->source, bytes), "cuMemcpyHtoD");
    must(b->driver->cuMemsetD8Async(b->to, 0xee, bytes, b->stream), "cuMemsetD8Async");
    memset(b->expected, 0xee, bytes);
}

static void buffers_finish(struct bench *b)
{
    must(b->driver->cuMemFree(b->from), "cuMemFree");
    must(b->driver->cuMemFree(b->to), "cuMemFree");
    free(b->source);
    free(b->expected);
    free(b->found);
}

static void run(struct bench *b)
{
    struct rpi_copy_failure failure = {0};
    CUresult result =
        rpi_copier_run(&b->device->copier, b->copies, b->count, false, b->stream, &failure);
    if (result != CUDA_SUCCESS)
        fail(failure.function, (int)result);
}

/* Runs what was added, and compares all of both buffers. */
static void check(struct bench *b)
{
    run(b);
    must(b->driver->cuStreamSynchronize(b->stream), "cuStreamSynchronize");
    must(b->driver->cuMemcpyDtoH(b->found, b->to, b->bytes), "cuMemcpyDtoH");
    for (size_t i = 0; i < b->bytes; i++)
        if (b->found[i] != b->expected[i])
            fail("a byte is wrong, at", (int)i);
    must(b->driver->cuMemcpyDtoH(b->found, b->from, b->bytes), "cuMemcpyDtoH");
    if (memcmp(b->found, b->source, b->bytes) != 0)
        fail("what was copied from was written", 0);
    must(b->driver->cuMemsetD8Async(b->to, 0xee, b->bytes, b->stream), "cuMemsetD8Async");
    memset(b->expected, 0xee, b->bytes);
    b->checked += b->count;
    b->count = 0;
}

static void add(struct bench *b, size_t to, size_t from, size_t bytes)
{
    if (to + bytes > b->bytes || from + bytes > b->bytes)
        fail("a copy does not fit its buffer", (int)bytes);
    b->copies[b->count++] = (struct rpi_copy){b->to + to, b->from + from, bytes};
    memcpy(b->expected + to, b->source + from, bytes);
}

static void check_alignments(struct bench *b, size_t most_bytes)
{
    enum { APART = 128 };
    buffers_init(b, (size_t)RPI_COPY_MOST * APART);
    for (size_t bytes = 1; bytes <= most_bytes; bytes++)
        for (size_t to = 0; to < 16; to++)
            for (size_t from = 0; from < 16; from++) {
                add(b, b->count * APART + to, b->count * APART + from, bytes);
                if (b->count == RPI_COPY_MOST)
                    check(b);
            }
    check(b);
    buffers_finish(b);
}

static void check_tables(struct bench *b)
{
    static const size_t tables[] = {1, 2, 7, 8, 9, 31, 32, 33, 143, 144, 145, MOST_COPIES};
    buffers_init(b, (size_t)MOST_COPIES * (RPI_COPY_TILE + 64));
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        size_t at = 0;
        for (size_t i = 0; i < tables[t]; i++) {
            size_t bytes = i % 5 == 3 ? RPI_COPY_TILE + i % 3 - 1 : 1 + i * 977 % 9000;
            add(b, at + i % 5, at + i % 7, bytes);
            at += bytes + 16;
        }
        check(b);
    }
    buffers_finish(b);
}

static void check_large(struct bench *b, size_t bytes)
{
    static const size_t shifts[][2] = {{0, 0}, {5, 5}, {4, 8}, {3, 4}};
    buffers_init(b, bytes + 64);
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        add(b, shifts[i][0], shifts[i][1], bytes);
        check(b);
    }
    buffers_finish(b);
}

/* ---- Times --------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Medians of the host's time and of the time until the device, idle before, is done. */
static void time_copies(struct bench *b, const struct rpi_copy_prices *way, size_t times,
                        double *out_host_us, double *out_done_us)
{
    enum { MOST_TIMES = 200 };
    double host[MOST_TIMES] = {0}, done[MOST_TIMES] = {0};
    rpi_copier_fix_prices(&b->device->copier, way);
    times = times < MOST_TIMES ? times : MOST_TIMES;
    run(b); /* so that all memory was there once */
    for (size_t i = 0; i < times; i++) {
        must(b->driver->cuStreamSynchronize(b->stream), "cuStreamSynchronize");
        uint64_t start = rpi_clock_ns();
        run(b);
        host[i] = (double)(rpi_clock_ns() - start) * 1e-3;
        must(b->driver->cuStreamSynchronize(b->stream), "cuStreamSynchronize");
        done[i] = (double)(rpi_clock_ns() - start) * 1e-3;
    }
    qsort(host, times, sizeof *host, by_size);
    qsort(done, times, sizeof *done, by_size);
    *out_host_us = host[times / 2];
    *out_done_us = done[times / 2];
}

static void time_counts(struct bench *b, size_t times)
{
    enum { BYTES = 4096 };
    must(b->driver->cuMemAlloc(&b->from, (size_t)2 * MOST_COPIES * BYTES), "cuMemAlloc");
    printf("\"copies\":[");
    for (size_t c = 0; c < COUNTS; c++) {
        double host[2], done[2];
        for (b->count = 0; b->count < counts[c]; b->count++)
            b->copies[b->count] = (struct rpi_copy){b->from + 2 * b->count * BYTES,
                                                    b->from + (2 * b->count + 1) * BYTES, BYTES};
        time_copies(b, &launched, times, &host[0], &done[0]);
        time_copies(b, &single, times, &host[1], &done[1]);
        printf("%s\n {\"count\":%zu,\"bytes\":%d,\"launch_host_us\":%.2f,\"single_host_us\":%.2f,"
               "\"launch_done_us\":%.2f,\"single_done_us\":%.2f}",
               c ? "," : "", counts[c], BYTES, host[0], host[1], done[0], done[1]);
    }
    must(b->driver->cuMemFree(b->from), "cuMemFree");
    b->count = 0;
}

static void time_sizes(struct bench *b, size_t most, size_t times)
{
    printf("],\n\"large\":[");
    for (size_t s = 0; s < SIZES && sizes[s] <= most; s++) {
        uint64_t bytes = sizes[s] << 20;
        double host, done[2];
        must(b->driver->cuMemAlloc(&b->from, 2 * bytes), "cuMemAlloc");
        b->copies[0] = (struct rpi_copy){b->from + bytes, b->from, bytes};
        b->count = 1;
        time_copies(b, &launched, times, &host, &done[0]);
        time_copies(b, &single, times, &host, &done[1]);
        must(b->driver->cuMemFree(b->from), "cuMemFree");
        printf("%s\n {\"mib\":%zu,\"launch_done_us\":%.1f,\"single_done_us\":%.1f,"
               "\"launch_bytes_a_us\":%.0f,\"single_bytes_a_us\":%.0f}",
               s ? "," : "", (size_t)sizes[s], done[0], done[1], (double)bytes / done[0],
               (double)bytes / done[1]);
    }
    b->count = 0;
}

/* What the copier itself measures. */
static void print_prices(struct rp_device *device)
{
    struct rpi_copy_prices prices;
    for (int i = 0; i < 1000 && !rpi_copier_prices(&device->copier, &prices); i++) {
        rpi_copier_learn(&device->copier, NULL);
        device->driver->cuCtxSynchronize();
    }
    rpi_copier_prices(&device->copier, &prices);
    printf("\"prices\":{\"launch_us\":%.3f,\"entry_us\":%.4f,\"single_us\":%.3f},\n", prices.launch,
           prices.entry, prices.single);
}

static struct rp_device *open_device(const char *driver)
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_device *device;
    struct rp_error err;
    options.driver = driver;
    if (rp_device_open(&options, &device, &err) == RP_OK)
        return device;
    fprintf(stderr, "bench_copies: %s\n", err.message);
    exit(77);
}

int main(int argc, char **argv)
{
    const char *driver = "cuda";
    bool quick = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else if (strcmp(argv[i], "--driver") == 0 && i + 1 < argc)
            driver = argv[++i];
        else
            fail("usage: bench_copies [--driver cuda|host] [--quick]", argc);
    }
    static struct bench bench;
    struct rp_device_info info = {.size = sizeof info};
    bench.device = open_device(driver);
    bench.driver = bench.device->driver;
    rp_device_info(bench.device, &info);
    if (rp_device_push(bench.device, NULL) != RP_OK)
        fail("no context", 0);
    must(bench.driver->cuStreamCreate(&bench.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    printf("{\"driver\":\"%s\",\"device\":\"%s\",\n", info.driver, info.name);
    print_prices(bench.device);
    if (bench.device->copier.state != RPI_COPIER_LOADED)
        fail("the driver did not load the kernel", 0);
    rpi_copier_fix_prices(&bench.device->copier, &launched);
    check_alignments(&bench, quick ? 20 : 80);
    check_tables(&bench);
    check_large(&bench, quick ? 200001 : 50000001);
    printf("\"checked_copies\":%llu,\n", (unsigned long long)bench.checked);
    time_counts(&bench, quick ? 10 : 200);
    time_sizes(&bench, quick ? 1 : 1024, quick ? 2 : 20);
    puts("]}");
    must(bench.driver->cuStreamDestroy(bench.stream), "cuStreamDestroy");
    rp_device_pop(bench.device);
    rp_device_destroy(bench.device);
    return 0;
}
