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
    ".bar{display:grid;grid-template-columns:190px 1fr "
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
    ".note{color:#5b6670;font-size:13px}\n"
    "</style>\n";

static void write_fact(struct rpi_writer *w, const char *value, const char *label)
{
    rpi_write(w, "<div><b>%s</b><span>%s</span></div>", value, label);
}

static void write_number(struct rpi_writer *w, double value, const char *format, const char *label)
{
    struct rpi_writer text = {0};
    if (format)
        rpi_write(&text, format, value);
    else
        rpi_write_us(&text, value);
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
    write_number(w, a->eager_us / a->graph_us, "%.2f x", "with graphs, as it is");
    if (a->mended_us < 0.97 * a->graph_us)
        write_number(w, a->eager_us / a->mended_us, "%.2f x", "once mended");
    rpi_write(w, "</div>\n");
}

static void write_bar(struct rpi_writer *w, const char *label, double value, double whole,
                      const char *colour)
{
    rpi_write(w,
              "<div class=\"bar\"><span>%s</span><span><i "
              "style=\"width:%.1f%%;background:%s\">"
              "</i></span><span class=\"n\">",
              label, whole > 0 ? 100 * value / whole : 0, colour);
    rpi_write_us(w, value);
    rpi_write(w, "</span></div>\n");
}

static void write_times(struct rpi_writer *w, const struct rp_advice *a)
{
    double whole = a->eager_us > a->graph_us ? a->eager_us : a->graph_us;
    rpi_write(w, "<h2>An iteration takes</h2>\n");
    write_bar(w, a->given_eager_us > 0 ? "eagerly, as given" : "eagerly, estimated", a->eager_us,
              whole, "#3a78c9");
    write_bar(w, "with graphs, as it is", a->graph_us, whole, "#2f8f5b");
    if (a->mended_us < 0.97 * a->graph_us)
        write_bar(w, "with graphs, once mended", a->mended_us, whole, "#2f8f5b");
    write_bar(w, "the device's own work", a->device_us, whole, "#9aa3ab");
}

static void write_gaps(struct rpi_writer *w, const struct rp_advice *a)
{
    static const char *const colours[RPI_GAP_CLASSES] = {"#9aa3ab", "#8fa3b8", "#3a78c9", "#e08a1e",
                                                         "#d43d3d"};
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
                      idle, colours[g]);
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
                 "<p class=\"legend\"><i style=\"background:#2f8f5b\"></i>kernel"
                 "<i style=\"background:#8a5fc7\"></i>copy<i "
                 "style=\"background:#9aa3ab\"></i>fill"
                 "<i style=\"background:#e08a1e\"></i>CUDA call"
                 "<i style=\"background:#d43d3d\"></i>synchronisation, or what cuts "
                 "a capture"
                 "<i style=\"background:#3a78c9\"></i>operator"
                 "<i style=\"background:#8fa3b8\"></i>Python</p>\n");
}

static void write_model(struct rpi_writer *w)
{
    const struct rpi_model *m = &rpi_advice_model;
    rpi_write(w,
              "<h2>The model</h2>\n<p class=\"note\">With graphs: the longest "
              "chain of the device's "
              "work, %.2f us a node, %.0f us a replay, %.0f us wherever the host "
              "waits. Without: "
              "the CPU's time in the trace less what the profiler adds (%.2f us "
              "an operator, %.2f "
              "a call, %.2f a Python function), or the device's with %.2f us a "
              "node, the larger. "
              "The constants were fitted on an NVIDIA H200 with torch 2.11; give "
              "a measured "
              "iteration with <code>--eager-us</code>.</p>\n",
              m->graph_gap_us, m->replay_us, m->resume_us, m->op_us, m->call_us, m->python_us,
              m->eager_gap_us);
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
    if (a->verdict != RP_ADVICE_NOT) {
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
