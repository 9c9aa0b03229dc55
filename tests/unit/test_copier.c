/* SPDX-License-Identifier: MIT
 *
 * Many copies in one launch: every byte and no other, whatever lengths and alignments; when a
 * launch is made and when single copies are; what is left where the driver does not load the
 * kernel.
 */
#include "graph_fixture.h"

#include "graph/ground/copier.h"

static struct rpt_fixture fixture;
static struct rpi_copier copier;

static const struct rpi_copy_prices launches_are_cheap = {.launch = 1, .entry = 0.01, .single = 1};

static int open_fixture(void **state)
{
    rpt_open_on(&fixture, rpi_driver_fault(rpi_driver_host()), NULL);
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    RPT_OK(&fixture, rpi_copier_init(&copier, fixture.driver, 4, &fixture.err));
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    rpi_copier_finish(&copier);
    rpt_close(*state);
    return 0;
}

static CUresult run(const struct rpi_copy *copies, size_t count, bool in_order)
{
    struct rpi_copy_failure failure;
    return rpi_copier_run(&copier, copies, count, in_order, fixture.streams[0], &failure);
}

static unsigned char byte_at(uint64_t i)
{
    return (unsigned char)(i * 31 + i / 251 * 7 + 1);
}

/* Two buffers: what is copied from holds other bytes everywhere, what is copied to holds 0xee. */
struct buffers {
    CUdeviceptr from, to;
    unsigned char *read, *expected;
    size_t bytes;
};

static void fill(struct buffers *b)
{
    memset(b->expected, 0xee, b->bytes);
    assert_int_equal(fixture.driver->cuMemsetD8(b->to, 0xee, b->bytes), 0);
    assert_int_equal(fixture.driver->cuCtxSynchronize(), 0);
}

static void buffers_init(struct buffers *b, size_t bytes)
{
    b->bytes = bytes;
    b->read = malloc(bytes);
    b->expected = malloc(bytes);
    assert_true(b->read && b->expected);
    assert_int_equal(fixture.driver->cuMemAlloc(&b->from, bytes), 0);
    assert_int_equal(fixture.driver->cuMemAlloc(&b->to, bytes), 0);
    for (size_t i = 0; i < bytes; i++)
        b->read[i] = byte_at(i);
    assert_int_equal(fixture.driver->cuMemcpyHtoD(b->from, b->read, bytes), 0);
    fill(b);
}

static struct rpi_copy expect(struct buffers *b, size_t to, size_t from, size_t bytes)
{
    assert_true(to + bytes <= b->bytes && from + bytes <= b->bytes);
    for (size_t i = 0; i < bytes; i++)
        b->expected[to + i] = byte_at(from + i);
    return (struct rpi_copy){b->to + to, b->from + from, bytes};
}

static void check(struct buffers *b)
{
    assert_int_equal(fixture.driver->cuCtxSynchronize(), 0);
    assert_int_equal(fixture.driver->cuMemcpyDtoH(b->read, b->to, b->bytes), 0);
    assert_memory_equal(b->read, b->expected, b->bytes);
    fill(b);
}

static void buffers_finish(struct buffers *b)
{
    fixture.driver->cuMemFree(b->from);
    fixture.driver->cuMemFree(b->to);
    free(b->read);
    free(b->expected);
}

static void all_lengths_and_alignments(void **state)
{
    (void)state;
    enum { MOST_BYTES = 80, APART = 128, MANY = RPI_COPY_MOST };
    struct rpi_copy copies[MANY];
    struct buffers b;
    size_t count = 0;
    buffers_init(&b, MANY * APART);
    rpi_copier_fix_prices(&copier, &launches_are_cheap);
    rpi_copier_load(&copier);
    for (size_t bytes = 1; bytes <= MOST_BYTES; bytes++)
        for (size_t to = 0; to < 16; to++)
            for (size_t from = 0; from < 16; from++) {
                copies[count] = expect(&b, count * APART + to, count * APART + from, bytes);
                if (++count < MANY)
                    continue;
                assert_int_equal(run(copies, count, false), 0);
                check(&b);
                count = 0;
            }
    assert_int_equal(copier.launches, MOST_BYTES * 256 / MANY);
    buffers_finish(&b);
}

static void tiles_and_tables_of_all_sizes(void **state)
{
    (void)state;
    enum { BYTES = 24 * RPI_COPY_TILE, MOST = 300 };
    static const size_t counts[] = {2, 7, 8, 9, 32, 33, 143, 144, 145, MOST};
    static struct rpi_copy copies[MOST];
    struct buffers b;
    uint64_t launches = 0;
    buffers_init(&b, BYTES);
    rpi_copier_fix_prices(&copier, &launches_are_cheap);
    rpi_copier_load(&copier);
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        size_t at = 0;
        for (size_t i = 0; i < counts[n]; i++) {
            /* Just below, at and above whole tiles, and small ones in between. */
            size_t bytes = i % 40 == 5 ? RPI_COPY_TILE + i % 3 - 1 : 1 + i * 37 % 200;
            bytes = counts[n] <= 9 && i == 1 ? 5 * RPI_COPY_TILE + 13 : bytes;
            copies[i] = expect(&b, at + i % 5, at + i % 7, bytes);
            at += bytes + 16;
        }
        assert_int_equal(run(copies, counts[n], false), 0);
        check(&b);
        launches += (counts[n] + RPI_COPY_MOST - 1) / RPI_COPY_MOST;
        assert_int_equal(copier.launches, launches);
    }
    buffers_finish(&b);
}

static void what_overlaps_is_copied_in_order(void **state)
{
    (void)state;
    struct rpi_copy copies[5];
    struct buffers b;
    buffers_init(&b, 4096);
    rpi_copier_fix_prices(&copier, &launches_are_cheap);
    rpi_copier_load(&copier);
    for (size_t i = 0; i < 5; i++)
        copies[i] = expect(&b, 100 + 40 * i, 1000 * i % 3000, 90);
    assert_int_equal(run(copies, 5, true), 0);
    check(&b);
    assert_int_equal(copier.launches, 0);
    buffers_finish(&b);
}

static void the_kernel_is_loaded_once_it_may_pay(void **state)
{
    struct rpt_fixture *f = *state;
    struct rpi_copy copies[8];
    struct buffers b;
    buffers_init(&b, 4096);
    for (size_t i = 0; i < 8; i++)
        copies[i] = expect(&b, 64 * i, 64 * i, 64);
    for (int i = 0; i < 100; i++)
        assert_int_equal(run(copies, 1, false), 0); /* for one there is nothing to gain */
    assert_int_equal(copier.missed, 0);
    unsigned runs = 0;
    for (; !copier.launches; runs++)
        assert_int_equal(run(copies, 8, false), 0);
    assert_in_range(runs, 10, 100);
    struct rpi_copy_prices prices;
    for (int i = 0; i < 100 && !rpi_copier_prices(&copier, &prices);
         i++) { /* measured on the way */
        assert_int_equal(run(copies, 8, false), 0);
        f->driver->cuCtxSynchronize();
    }
    assert_true(rpi_copier_prices(&copier, &prices));
    rpi_copier_fix_prices(&copier, &launches_are_cheap);
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    uint64_t launches = copier.launches;
    assert_int_equal(run(copies, 8, false), 0);
    assert_int_equal(rpi_driver_fault_calls(), 1);
    assert_int_equal(run(copies, 1, false), 0);
    assert_int_equal(copier.launches, launches + 1);
    check(&b);
    buffers_finish(&b);
}

static void without_the_kernel_copies_are_single(void **state)
{
    (void)state;
    struct rpi_copy copies[8];
    struct buffers b;
    buffers_init(&b, 4096);
    rpi_copier_fix_prices(&copier, &launches_are_cheap);
    for (size_t i = 0; i < 8; i++)
        copies[i] = expect(&b, 64 * i, 64 * i, 64);
    for (int attempt = 0; attempt < 3; attempt++) {
        assert_int_equal(copier.state, RPI_COPIER_IDLE);
        rpi_driver_fault_at(1, CUDA_ERROR_NO_BINARY_FOR_GPU); /* after the capture mode's */
        rpi_copier_load(&copier);
        assert_string_equal(rpi_driver_fault_hit(), "cuModuleLoadData");
    }
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    assert_int_equal(copier.state, RPI_COPIER_REFUSED);
    assert_int_equal(run(copies, 8, false), 0);
    assert_int_equal(rpi_driver_fault_calls(), 8);
    check(&b);
    struct rpi_copy_prices prices;
    assert_true(rpi_copier_prices(&copier, &prices));
    assert_true(prices.no_launches);
    buffers_finish(&b);
}

static unsigned images_refused;

/* As a driver that is older than what made the device code. */
static CUresult take_ptx(CUmodule *module, const void *image)
{
    if (image == rpi_copy_ptx)
        return rpi_driver_host()->cuModuleLoadData(module, &rpi_copy_host_image);
    images_refused += image == rpi_copy_code;
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static void where_the_code_is_refused_ptx_is_compiled(void **state)
{
    (void)state;
    struct rp_driver table = *rpi_driver_host();
    table.provider = "cuda";
    table.cuModuleLoadData = take_ptx;
    images_refused = 0;
    copier.driver = &table;
    rpi_copier_load(&copier);
    assert_int_equal(images_refused, 1);
    assert_int_equal(copier.state, RPI_COPIER_LOADED);
    copier.driver = fixture.driver;
}

static void learn(void)
{
    struct rpi_copy_prices prices;
    for (int i = 0; i < 1000 && !rpi_copier_prices(&copier, &prices); i++) {
        rpi_copier_learn(&copier, fixture.streams[0]);
        fixture.driver->cuCtxSynchronize();
    }
    assert_true(rpi_copier_prices(&copier, &prices));
    assert_true(prices.launch > 0 && prices.entry > 0 && prices.single > 0 && prices.byte > 0);
}

static void prices_are_measured_once_in_few_calls(void **state)
{
    (void)state;
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    learn();
    assert_in_range(rpi_driver_fault_calls(), 30, 100);
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    learn();
    assert_int_equal(rpi_driver_fault_calls(), 0);
}

static void large_copies_tell_what_a_byte_takes(void **state)
{
    (void)state;
    enum { LARGE = 33 << 20 };
    struct rpi_copy_prices before, after;
    struct rpi_copy copy;
    struct buffers b;
    buffers_init(&b, LARGE);
    rpi_copier_load(&copier);
    rpi_copier_prices(&copier, &before);
    copy = expect(&b, 0, 0, LARGE);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(run(&copy, 1, false), 0);
        assert_int_equal(fixture.driver->cuCtxSynchronize(), 0);
    }
    check(&b);
    rpi_copier_prices(&copier, &after);
    assert_int_equal(copier.probe.samples[0], 4);
    assert_int_equal(copier.probe.samples[1], 4);
    assert_true(after.byte > 0 && after.byte != before.byte);
    assert_true(after.single_byte > 0 && after.single_byte != before.single_byte);
    buffers_finish(&b);
}

static void large_copies_among_small_ones_are_made_by_calls(void **state)
{
    (void)state;
    const struct rpi_copy_prices prices = {
        .launch = 1, .entry = 0.01, .single = 1, .byte = 2e-3, .single_byte = 1e-3};
    static const size_t bytes[] = {100, 200, 50000, 60000, 300, 400, 70000};
    enum { COUNT = sizeof bytes / sizeof *bytes };
    struct rpi_copy copies[COUNT];
    struct buffers b;
    size_t at = 0;
    buffers_init(&b, 1 << 18);
    rpi_copier_fix_prices(&copier, &prices);
    rpi_copier_load(&copier);
    for (size_t i = 0; i < COUNT; i++) {
        copies[i] = expect(&b, at, at + 3, bytes[i]);
        at += bytes[i] + 5;
    }
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    assert_int_equal(run(copies, COUNT, false), 0);
    assert_int_equal(rpi_driver_fault_calls(), 5);
    assert_int_equal(copier.launches, 2);
    check(&b);
    /* The call that fails is told by what it was to copy. */
    struct rpi_copy_failure failure;
    rpi_driver_fault_at(3, CUDA_ERROR_UNKNOWN);
    assert_int_equal(rpi_copier_run(&copier, copies, COUNT, false, NULL, &failure),
                     CUDA_ERROR_UNKNOWN);
    assert_string_equal(failure.function, "cuLaunchKernel");
    assert_int_equal(failure.first, 4);
    assert_int_equal(failure.count, 2);
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    buffers_finish(&b);
}

static void any_call_may_fail_while_prices_are_measured(void **state)
{
    struct rpt_fixture *f = *state;
    bool more = true;
    for (uint64_t call = 0; more; call++) {
        rpi_driver_fault_at(call, CUDA_ERROR_OUT_OF_MEMORY);
        learn();
        more = rpi_driver_fault_hit() != NULL;
        rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
        rpi_copier_finish(&copier);
        RPT_OK(f, rpi_copier_init(&copier, f->driver, 4, &f->err));
        assert_in_range(call, 0, 200);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_lengths_and_alignments),
        TEST(tiles_and_tables_of_all_sizes),
        TEST(what_overlaps_is_copied_in_order),
        TEST(the_kernel_is_loaded_once_it_may_pay),
        TEST(without_the_kernel_copies_are_single),
        TEST(where_the_code_is_refused_ptx_is_compiled),
        TEST(prices_are_measured_once_in_few_calls),
        TEST(large_copies_tell_what_a_byte_takes),
        TEST(large_copies_among_small_ones_are_made_by_calls),
        TEST(any_call_may_fail_while_prices_are_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
