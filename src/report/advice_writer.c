/* SPDX-License-Identifier: MIT */
#include "report/advice_writer.h"

#include "base/refuse.h"
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the template's or the function's arguments begin; NULL: there are none. */
static const char *arguments_of(const char *name)
{
    static const char unnamed[] = "(anonymous namespace)";
    const char *cut = name;
    while ((cut = strpbrk(cut, "<(")) && !strncmp(cut, unnamed, sizeof unnamed - 1))
        cut += sizeof unnamed - 1;
    return cut;
}

const char *rpi_short_name(const char *name, char *to, size_t most)
{
    static const char lead[] = "void ";
    name += !strncmp(name, lead, sizeof lead - 1) ? sizeof lead - 1 : 0;
    size_t bytes = strlen(name);
    const char *cut = arguments_of(name);
    if (bytes > most && cut && cut > name + 8 && name[0] != '<')
        bytes = (size_t)(cut - name);
    if (bytes <= most) {
        memcpy(to, name, bytes);
        to[bytes] = '\0';
        return to;
    }
    size_t head = (most - 2) / 2, tail = most - 2 - head;
    memcpy(to, name, head);
    memcpy(to + head, "..", 2);
    memcpy(to + head + 2, name + bytes - tail, tail);
    to[most] = '\0';
    return to;
}

void rpi_write_us(struct rpi_writer *w, double us)
{
    if (us >= 10000)
        rpi_write(w, "%.1f ms", us / 1000);
    else if (us >= 1000)
        rpi_write(w, "%.2f ms", us / 1000);
    else
        rpi_write(w, us >= 100 ? "%.0f us" : "%.1f us", us);
}

/* To two significant digits; out_decimals: how many of them stand after the point. */
static double two_digits(double value, int *out_decimals)
{
    char text[32];
    snprintf(text, sizeof text, "%.1e", value);
    double rounded = strtod(text, NULL);
    *out_decimals = rounded >= 10 ? 0 : rounded >= 1 ? 1 : 2;
    return rounded;
}

void rpi_write_model(struct rpi_writer *w, double value)
{
    int decimals;
    double rounded = two_digits(value, &decimals);
    rpi_write(w, "%.*f", decimals, rounded);
}

void rpi_write_model_us(struct rpi_writer *w, double us)
{
    int decimals;
    bool is_ms = two_digits(us, &decimals) >= 1000;
    rpi_write_model(w, is_ms ? us / 1000 : us);
    rpi_write(w, is_ms ? " ms" : " us");
}

/* ---- Words --------------------------------------------------------------------------------- */

const char *rpi_source_text(const struct rp_advice *advice)
{
    return advice->source == RPI_ITERATIONS_STEPS ? "marked by profiler.step()"
           : advice->source == RPI_ITERATIONS_REPETITION
               ? "found by the repetition of its kernels"
               : "none found: the whole trace is taken as one";
}

static const struct {
    const char *key, *text;
} gaps[RPI_GAP_CLASSES] = {
    [RPI_GAP_QUEUED] = {"queued", "the next kernel was queued already"},
    [RPI_GAP_PYTHON] = {"python", "the CPU was in Python"},
    [RPI_GAP_OP] = {"operator", "the CPU was in PyTorch's operators"},
    [RPI_GAP_RUNTIME] = {"runtime", "the CPU was in the CUDA runtime, launching"},
    [RPI_GAP_WAIT] = {"wait", "the CPU waited for the device"},
};

const char *rpi_gap_text(enum rpi_gap_class class)
{
    return gaps[class].text;
}

const char *rpi_gap_key(enum rpi_gap_class class)
{
    return gaps[class].key;
}

const char *rpi_verdict_key(enum rp_advice_verdict verdict)
{
    static const char *const keys[] = {"worth", "little", "not", "already"};
    return keys[verdict];
}

const char *rpi_way_key(enum rp_advice_way way)
{
    static const char *const keys[] = {"iteration", "model", "layers", "parts"};
    return keys[way];
}

/* ---- Sentences ----------------------------------------------------------------------------- */

/* "give or take 15 %": what is known of the model's error. */
static void write_error(struct rpi_writer *w, const struct rp_advice *a)
{
    double error = rpi_advice_error(a);
    if (error > 0)
        rpi_write(w, "give or take %.0f %%", 100 * error);
    else
        rpi_write(w, "by a model that was not fitted on this profiler: give --eager-us");
}

static void write_gain(struct rpi_writer *w, const struct rp_advice *a)
{
    bool mend = rpi_gains_by_mending(a);
    double graph_us = mend ? a->mended_us : a->graph_us, gain = a->eager_us / graph_us;
    if (gain < rpi_advice_model.worth) {
        rpi_write(w, "about %.0f %% less time (", 100 * (1 - 1 / gain));
    } else {
        rpi_write(w, "about ");
        rpi_write_model(w, gain);
        rpi_write(w, " times as fast (");
    }
    rpi_write_model_us(w, a->eager_us);
    rpi_write(w, " to ");
    rpi_write_model_us(w, graph_us);
    rpi_write(w, " an iteration, ");
    write_error(w, a);
    rpi_write(w, ")");
    if (mend) {
        rpi_write(w, " once what cuts the iteration is fixed; as it is, ");
        if (a->eager_us / a->graph_us >= rpi_advice_model.little) {
            rpi_write_model(w, a->eager_us / a->graph_us);
            rpi_write(w, " times");
        } else {
            rpi_write(w, "nothing");
        }
    }
    if (gain * (1 - rpi_advice_error(a)) < 1)
        rpi_write(w, "; the model may be off by as much as that: measure it");
}

bool rpi_gains_by_mending(const struct rp_advice *a)
{
    return a->mended_us < 0.97 * a->graph_us;
}

void rpi_write_verdict(struct rpi_writer *w, const struct rp_advice *a)
{
    switch (a->verdict) {
    case RP_ADVICE_WORTH:
        rpi_write(w, "CUDA graphs are worth it here: ");
        write_gain(w, a);
        break;
    case RP_ADVICE_LITTLE:
        rpi_write(w, "CUDA graphs gain little here: ");
        write_gain(w, a);
        break;
    case RP_ADVICE_ALREADY:
        rpi_write(w, "This already runs as CUDA graphs: %zu launched in an iteration",
                  rpi_typical(a)->graph_launches);
        break;
    default:
        rpi_write(w, "CUDA graphs are not worth it here: an iteration takes about ");
        rpi_write_model_us(w, a->eager_us);
        rpi_write(w, " without them and ");
        rpi_write_model_us(w, a->graph_us < a->mended_us ? a->graph_us : a->mended_us);
        rpi_write(w, " with them, and the device alone needs ");
        rpi_write_model_us(w, a->device_us);
    }
}

static void write_region(struct rpi_writer *w, const struct rp_advice *a)
{
    if (!a->region_first)
        return;
    char first[64], last[64];
    rpi_write(w, ", from %s to %s", rpi_short_name(rpi_name(&a->trace, a->region_first), first, 60),
              rpi_short_name(rpi_name(&a->trace, a->region_last), last, 60));
}

/* Several graphs, where something between the kernels cannot be captured. */
static void write_parts(struct rpi_writer *w, const struct rp_advice *a)
{
    if (!a->region_count)
        rpi_write(w, "mend what is listed below first: as it is, no run of kernels is long enough "
                     "for a graph of its own");
    else if (a->way == RP_ADVICE_WAY_LAYERS)
        rpi_write(w, "as it is, capture layer by layer, %zu graph%s", a->region_count,
                  a->region_count == 1 ? "" : "s");
    else {
        rpi_write(w,
                  "as it is, capture in parts, %zu graph%s around what can't be captured; the "
                  "largest has %zu kernels",
                  a->region_count, a->region_count == 1 ? "" : "s", a->region_kernels);
        write_region(w, a);
    }
}

/* One graph; what it says of obstacles is what the list of them has. */
static void write_whole(struct rpi_writer *w, const struct rp_advice *a)
{
    size_t within = 0;
    for (size_t i = 0; i < a->obstacles.count; i++)
        within += a->obstacles.data[i].within != 0;
    if (a->way == RP_ADVICE_WAY_MODEL)
        rpi_write(w,
                  "capture all %zu kernels of the iteration as one graph; leave outside what "
                  "waits for it, reads from it or copies to it",
                  rpi_typical(a)->kernels);
    else
        rpi_write(w, "capture the whole iteration as one graph");
    if (!a->obstacles.count)
        rpi_write(w, ": nothing in it stands in the way");
    else if (within)
        rpi_write(w, "; see first to what is listed below as between kernels");
    else if (a->way == RP_ADVICE_WAY_ITERATION)
        rpi_write(w, "; what is listed below is no part of most iterations, or lies outside the "
                     "kernels: leave it out");
}

void rpi_write_way(struct rpi_writer *w, const struct rp_advice *a)
{
    if (a->way == RP_ADVICE_WAY_ITERATION || a->way == RP_ADVICE_WAY_MODEL)
        write_whole(w, a);
    else
        write_parts(w, a);
    if (!a->same_sequence)
        rpi_write(w, "; the iterations differ in their kernels: one graph for each shape, or "
                     "shapes padded to a few sizes");
}

bool rpi_has_way(const struct rp_advice *a)
{
    return a->verdict == RP_ADVICE_WORTH || a->verdict == RP_ADVICE_LITTLE;
}

/* ---- The forms
 * ----------------------------------------------------------------------- */

rp_status rp_advice_render(struct rp_advice *advice, enum rp_advice_format format,
                           const char **out_text, struct rp_error *err)
{
    if (!advice || !out_text)
        return rpi_refuse(err, "rp_advice_render", !advice ? "advice" : "out_text");
    struct rpi_writer writer = {0};
    if (format == RP_ADVICE_TEXT)
        rpi_advice_write_text(&writer, advice);
    else if (format == RP_ADVICE_JSON)
        rpi_advice_write_json(&writer, advice);
    else if (format == RP_ADVICE_HTML)
        rpi_advice_write_html(&writer, advice);
    else
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_advice_render", "no format %d",
                         (int)format);
    if (writer.failed) {
        rpi_vec_finish(&writer);
        return rpi_error_host_memory(err, "rp_advice_render", writer.count);
    }
    rpi_free(advice->rendered);
    *out_text = advice->rendered = writer.data;
    return RP_OK;
}
