/* SPDX-License-Identifier: MIT
 *
 * The advice as one page that needs nothing else: no network, no fonts, no
 * libraries.
 */
#include "report/advice_writer.h"

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n"
    "<link rel=\"icon\" href=\"data:,\">\n"
    "<style>\n"
    "body{font:15px/1.5 "
    "system-ui,sans-serif;color:#1f2830;background:#fff;max-width:1180px;"
    "margin:28px auto;padding:0 20px}\n"
    "h1{font-size:22px;line-height:1.35;margin:0 0 "
    "6px}h2{font-size:17px;margin:30px 0 8px}\n"
    ".file{color:#5b6670;font-size:13px;margin:0 0 "
    "14px;overflow-wrap:anywhere}\n"
    ".facts{display:flex;flex-wrap:wrap;gap:10px;margin:18px 0}\n"
    ".facts div{border:1px solid #dfe3e7;border-radius:6px;padding:8px "
    "14px;min-width:110px}\n"
    ".facts b{display:block;font-size:19px}.facts "
    "span{color:#5b6670;font-size:13px}\n"
    ".bar{display:grid;grid-template-columns:290px 1fr "
    "90px;gap:10px;align-items:center;"
    "margin:5px 0;font-size:14px}\n"
    ".bar i{display:block;height:17px;border-radius:3px;min-width:2px}.bar "
    ".n{color:#5b6670}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px}\n"
    "td,th{text-align:left;vertical-align:top;padding:6px 12px 6px "
    "0;border-bottom:1px solid "
    "#e6e9ec}th{color:#5b6670;font-weight:600}\n"
    "code{font:13px "
    "ui-monospace,monospace;overflow-wrap:anywhere}td.r,th.r{text-align:right}"
    "\n"
    "canvas{width:100%;display:block;border:1px solid "
    "#dfe3e7;border-radius:6px;cursor:grab}\n"
    "button{font:13px system-ui,sans-serif;padding:2px 10px;border:1px solid "
    "#c9cfd5;background:"
    "#f6f7f8;border-radius:4px}\n"
    ".legend{color:#5b6670;font-size:13px;margin:6px 0}.legend "
    "i{display:inline-block;width:11px;"
    "height:11px;border-radius:2px;margin:0 4px 0 12px}\n"
    "#tip{position:absolute;background:#1f2830;color:#fff;font-size:12px;"
    "padding:3px 8px;"
    "border-radius:4px;pointer-events:none;max-width:640px}\n"
    ".legend i.cut{width:2px;background:#1f2830}\n"
    ".note{color:#5b6670;font-size:13px}\n"
    "</style>\n";

/* A time is drawn in the colour of text, and idle time that nobody is to blame for is hatched:
 * neither is a thing of the timeline. */
#define TIME "#56616b"
#define IDLE "repeating-linear-gradient(135deg,#c9cfd5 0 3px,#fff 3px 6px)"

enum colour {
#define X(name, colour, what) name,
#include "report/advice_colours.def"
#undef X
};

static const char *const colours[] = {
#define X(name, colour, what) colour,
#include "report/advice_colours.def"
#undef X
};

static void write_fact(struct rpi_writer *w, const char *value, const char *label)
{
    rpi_write(w, "<div><b>%s</b><span>%s</span></div>", value, label);
}

static void write_number(struct rpi_writer *w, double value, const char *format, const char *label)
{
    struct rpi_writer text = {0};
    rpi_write(&text, format, value);
    w->failed |= text.failed;
    write_fact(w, text.failed ? "" : text.data, label);
    rpi_vec_finish(&text);
}

/* "2.5 x", as the model predicts it. */
static void write_factor(struct rpi_writer *w, double factor, const char *label)
{
    struct rpi_writer text = {0};
    rpi_write_model(&text, factor);
    rpi_write(&text, " x");
    w->failed |= text.failed;
    write_fact(w, text.failed ? "" : text.data, label);
    rpi_vec_finish(&text);
}

static void write_facts(struct rpi_writer *w, const struct rp_advice *a)
{
    const struct rpi_iteration *i = rpi_typical(a);
    rpi_write(w, "<div class=\"facts\">");
    write_number(w, (double)a->iterations.count, "%.0f", "iterations");
    write_number(w, (double)i->kernels, "%.0f", "kernels in each");
    write_number(w, (double)i->short_kernels, "%.0f", "shorter than 50 us");
    write_number(w, i->span_ns ? 100.0 * (double)i->busy_ns / (double)i->span_ns : 100, "%.0f %%",
                 "device busy in the trace");
    write_factor(w, a->eager_us / a->graph_us, "with graphs, as it is");
    if (rpi_gains_by_mending(a))
        write_factor(w, a->eager_us / a->mended_us, "once fixed");
    rpi_write(w, "</div>\n");
}

/* write_value: rpi_write_us for what was measured, rpi_write_model_us for what is predicted. */
static void write_bar(struct rpi_writer *w, const char *label, double value, double whole,
                      const char *colour, void (*write_value)(struct rpi_writer *, double))
{
    rpi_write(w,
              "<div class=\"bar\"><span>%s</span><span><i "
              "style=\"width:%.1f%%;background:%s\">"
              "</i></span><span class=\"n\">",
              label, whole > 0 ? 100 * value / whole : 0, colour);
    write_value(w, value);
    rpi_write(w, "</span></div>\n");
}

static void write_times(struct rpi_writer *w, const struct rp_advice *a)
{
    double whole = a->eager_us > a->graph_us ? a->eager_us : a->graph_us;
    rpi_write(w, "<h2>An iteration takes</h2>\n");
    write_bar(w, a->given_eager_us > 0 ? "eagerly, as given" : "eagerly, estimated", a->eager_us,
              whole, TIME, a->given_eager_us > 0 ? rpi_write_us : rpi_write_model_us);
    write_bar(w, "with graphs, as it is", a->graph_us, whole, TIME, rpi_write_model_us);
    if (rpi_gains_by_mending(a))
        write_bar(w, "with graphs, once fixed", a->mended_us, whole, TIME, rpi_write_model_us);
    write_bar(w, "the device's own work", a->device_us, whole, TIME, rpi_write_us);
}

/* The colour of what the CPU did. */
static const char *gap_colour(enum rpi_gap_class class)
{
    return class == RPI_GAP_PYTHON    ? colours[PYTHON]
           : class == RPI_GAP_OP      ? colours[OP]
           : class == RPI_GAP_RUNTIME ? colours[CALL]
           : class == RPI_GAP_WAIT    ? colours[WAIT]
                                      : IDLE;
}

static void write_gaps(struct rpi_writer *w, const struct rp_advice *a)
{
    double idle = 0, count = (double)a->iterations.count;
    for (size_t g = 0; g < RPI_GAP_CLASSES; g++)
        idle += (double)a->gap_ns[g] / 1000 / count;
    if (idle <= 0)
        return;
    rpi_write(w, "<h2>Why the device stood idle: ");
    rpi_write_us(w, idle);
    rpi_write(w, " an iteration under the profiler</h2>\n");
    for (size_t g = 0; g < RPI_GAP_CLASSES; g++)
        if (a->gap_ns[g])
            write_bar(w, rpi_gap_text((enum rpi_gap_class)g), (double)a->gap_ns[g] / 1000 / count,
                      idle, gap_colour((enum rpi_gap_class)g), rpi_write_us);
}

static void write_code(struct rpi_writer *w, const struct rp_advice *a, uint32_t name)
{
    rpi_write(w, "<code>");
    rpi_write_html(w, rpi_name(&a->trace, name));
    rpi_write(w, "</code>");
}

static void write_obstacle(struct rpi_writer *w, const struct rp_advice *a,
                           const struct rpi_obstacle *o)
{
    rpi_write(w, "<tr><td>%s<br>", rpi_obstacle_text(o->class));
    write_code(w, a, o->op ? o->op : o->call);
    rpi_write(w, "</td><td>");
    if (o->python)
        write_code(w, a, o->python);
    if (o->caller) {
        rpi_write(w, "<br>from ");
        write_code(w, a, o->caller);
    }
    if (o->module) {
        rpi_write(w, "<br>in ");
        write_code(w, a, o->module);
    }
    if (o->modules > 1)
        rpi_write(w, " and %zu more", o->modules - 1);
    rpi_write(w, "</td><td class=\"r\">%zu</td><td>%s</td><td>", o->count,
              o->within   ? "between kernels"
              : o->before ? "before the first"
                          : "after the last");
    rpi_write_html(w, o->mend);
    rpi_write(w, "</td></tr>\n");
}

static void write_obstacles(struct rpi_writer *w, const struct rp_advice *a)
{
    rpi_write(w, "<h2>In the way of a capture</h2>\n");
    if (a->measuring_waits) {
        rpi_write(w, "<p class=\"note\">Not counted: ");
        write_code(w, a, a->measuring_call);
        rpi_write(w, " before the first or after the last iteration, which belongs to the "
                     "measurement.</p>\n");
    }
    if (!a->obstacles.count) {
        rpi_write(w, "<p>Nothing was seen that would break one.</p>\n");
        return;
    }
    rpi_write(w, "<table><tr><th>what</th><th>where</th><th "
                 "class=\"r\">times</th><th>when</th>"
                 "<th>what to do</th></tr>\n");
    for (size_t i = 0; i < a->obstacles.count; i++)
        write_obstacle(w, a, &a->obstacles.data[i]);
    rpi_write(w, "</table>\n");
    if (!a->trace.has_python)
        rpi_write(w, "<p class=\"note\">Profile with <code>with_stack=True</code> "
                     "to see the Python "
                     "functions.</p>\n");
}

static void write_kernels(struct rpi_writer *w, const struct rp_advice *a)
{
    char name[100];
    double count = (double)a->iterations.count;
    rpi_write(w, "<h2>Kernels with the most "
                 "time</h2>\n<table><tr><th>kernel</th><th class=\"r\">"
                 "an iteration</th><th class=\"r\">times</th></tr>\n");
    for (size_t i = 0; i < RPI_MOST_SHARES && a->kernels[i].ns; i++) {
        rpi_write(w, "<tr><td><code title=\"");
        rpi_write_html(w, rpi_name(&a->trace, a->kernels[i].name));
        rpi_write(w, "\">");
        rpi_write_html(w, rpi_short_name(rpi_name(&a->trace, a->kernels[i].name), name, 96));
        rpi_write(w, "</code></td><td class=\"r\">");
        rpi_write_us(w, (double)a->kernels[i].ns / 1000 / count);
        rpi_write(w, "</td><td class=\"r\">%.0f</td></tr>\n", (double)a->kernels[i].count / count);
    }
    rpi_write(w, "</table>\n");
}

static void write_canvas(struct rpi_writer *w, const struct rp_advice *a)
{
    rpi_write(w, "<h2>One iteration (number %zu of %zu)</h2>\n", a->typical + 1,
              a->iterations.count);
    rpi_write(w, "<p><button id=\"in\">zoom in</button> <button id=\"out\">zoom "
                 "out</button> "
                 "<button id=\"all\">all</button> <span class=\"note\">drag to "
                 "move, Ctrl or Shift "
                 "and the wheel to zoom</span></p>\n"
                 "<canvas id=\"timeline\" role=\"img\" aria-label=\"timeline\"></canvas><div "
                 "id=\"tip\" hidden></div>\n"
                 "<p class=\"legend\">"
#define X(name, colour, what) "<i style=\"background:" colour "\"></i>" what
#include "report/advice_colours.def"
#undef X
    );
    if (a->cuts.count)
        rpi_write(w, "<i class=\"cut\"></i>here a capture is cut");
    rpi_write(w, "</p>\n");
}

static void write_model(struct rpi_writer *w)
{
    const struct rpi_model *m = &rpi_advice_model;
    rpi_write(
        w,
        "<h2>The model</h2>\n<p class=\"note\">With graphs: the longest chain of the "
        "device's work, %.2f us a node, %.1f us a replay, %.0f us wherever the host waits. "
        "Without: the CPU's time in the trace less what the profiler adds (%.2f us an "
        "operator, %.2f a call, %.2f a Python function), or the device's with %.2f us a node, "
        "the larger. Fitted on an NVIDIA H200 with torch 2.11; on workloads that it was not "
        "fitted on speed-ups were within %.0f %%. On another machine, give a measured "
        "iteration with <code>--eager-us</code>.</p>\n",
        m->graph_gap_us, m->replay_us, m->resume_us, m->op_us, m->call_us, m->python_us,
        m->eager_gap_us, 100 * m->error);
}

void rpi_advice_write_html(struct rpi_writer *w, const struct rp_advice *a)
{
    struct rpi_writer way = {0};
    rpi_write(w, "%s<title>", head);
    rpi_write_html(w, a->file);
    rpi_write(w, "</title></head><body>\n<p class=\"file\">reprise advise: ");
    rpi_write_html(w, a->file);
    rpi_write(w, a->trace.device_name[0] ? ", on " : "");
    rpi_write_html(w, a->trace.device_name);
    rpi_write(w, "</p>\n<h1>");
    rpi_write_verdict(w, a);
    rpi_write(w, ".</h1>\n");
    if (rpi_has_way(a)) {
        rpi_write_way(&way, a);
        rpi_write(w, "<p>What to do: ");
        rpi_write_html(w, way.failed ? "" : way.data);
        rpi_write(w, ".</p>\n");
        w->failed |= way.failed;
        rpi_vec_finish(&way);
    }
    write_facts(w, a);
    write_times(w, a);
    write_canvas(w, a);
    write_gaps(w, a);
    write_obstacles(w, a);
    write_kernels(w, a);
    write_model(w);
    rpi_advice_write_timeline(w, a);
    rpi_write(w, "</body></html>\n");
}
