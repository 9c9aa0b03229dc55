/* SPDX-License-Identifier: MIT
 *
 * Writing layouts: `reprise-layout/1`, or the CSV rows with an `offset` column.
 */
#include "base/outfile.h"
#include "base/refuse.h"
#include "base/text.h"
#include "recording/layout.h"
#include "report/layout_svg.h"

#include <inttypes.h>

static void write_csv(FILE *out, const struct rp_layout *layout)
{
    const struct rpi_intervals *rows = &layout->intervals;
    fputs("id,lower,upper,size,offset\n", out);
    for (uint32_t i = 0; i < rows->count; i++)
        fprintf(out, "%s,%" PRId64 ",%" PRId64 ",%" PRIu64 ",%" PRIu64 "\n",
                rows->text + rows->id[i], rows->lower[i], rows->upper[i], rows->bytes[i],
                layout->captures[0].offsets[i]);
}

static void write_json(FILE *out, const struct rp_layout *layout)
{
    fprintf(out,
            "{\"format\":\"reprise-layout/1\",\"alignment\":%" PRIu64 ",\"pool_bytes\":%" PRIu64
            ",\"captures\":[",
            layout->alignment, layout->info.pool_bytes);
    for (size_t c = 0; c < layout->capture_count; c++) {
        const struct rpi_layout_capture *capture = &layout->captures[c];
        fprintf(out, "%s\n{\"name\":", c ? "," : "");
        rpi_text_json(out, capture->name);
        fputs(",\"offsets\":[", out);
        for (size_t i = 0; i < capture->info.blocks; i++)
            fprintf(out, "%s[%" PRId64 ",%" PRIu64 "]", i ? "," : "", capture->ids[i],
                    capture->offsets[i]);
        fputs("]}", out);
    }
    fputs("\n]}\n", out);
}

static void write_layout(FILE *out, const void *user)
{
    const struct rp_layout *layout = user;
    if (layout->csv)
        write_csv(out, layout);
    else
        write_json(out, layout);
}

rp_status rp_layout_write(const struct rp_layout *layout, const char *path, struct rp_error *err)
{
    if (!layout || !path)
        return rpi_refuse(err, "rp_layout_write", !layout ? "layout" : "path");
    return rpi_output_file(path, "rp_layout_write", write_layout, layout, err);
}

rp_status rp_layout_draw(const struct rp_layout *layout, const char *path, struct rp_error *err)
{
    if (!layout || !path)
        return rpi_refuse(err, "rp_layout_draw", !layout ? "layout" : "path");
    return rpi_output_file(path, "rp_layout_draw", rpi_layout_svg_write, &layout->drawing, err);
}
