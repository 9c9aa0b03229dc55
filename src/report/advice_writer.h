/* SPDX-License-Identifier: MIT
 *
 * Writing the advice: what its forms share.
 */
#ifndef REPRISE_REPORT_ADVICE_WRITER_H
#define REPRISE_REPORT_ADVICE_WRITER_H

#include "profile/advice.h"
#include "report/writer.h"

/* At most `most` bytes of a name, the middle left out; templates and arguments
 * of kernels go first. Returns `to`. */
const char *rpi_short_name(const char *name, char *to, size_t most);

/* "Worth it: ..." in one sentence. */
void rpi_write_verdict(struct rpi_writer *writer, const struct rp_advice *advice);
/* What to capture and how, in one sentence. */
void rpi_write_way(struct rpi_writer *writer, const struct rp_advice *advice);
/* Whether a way is worth telling: graphs gain something, and are not there yet. */
bool rpi_has_way(const struct rp_advice *advice);
/* Whether graphs gain more once what cuts the iteration is fixed. */
bool rpi_gains_by_mending(const struct rp_advice *advice);
/* A measured time: "12.4 us", "124 us", "1.24 ms", "12.4 ms". */
void rpi_write_us(struct rpi_writer *writer, double us);
/* What the model predicts, to the two digits that it is good for: "2.5", "140 us", "1.4 ms". */
void rpi_write_model(struct rpi_writer *writer, double value);
void rpi_write_model_us(struct rpi_writer *writer, double us);

void rpi_advice_write_text(struct rpi_writer *writer, const struct rp_advice *advice);
void rpi_advice_write_html(struct rpi_writer *writer, const struct rp_advice *advice);
/* The data and the script of the timeline; the page has its elements. */
void rpi_advice_write_timeline(struct rpi_writer *writer, const struct rp_advice *advice);
void rpi_advice_write_json(struct rpi_writer *writer, const struct rp_advice *advice);

static inline const struct rpi_iteration *rpi_typical(const struct rp_advice *advice)
{
    return &advice->iterations.data[advice->typical];
}

/* "ProfilerStep# marks", "repetition of the kernels", "the whole trace".
 * Static. */
const char *rpi_source_text(const struct rp_advice *advice);
const char *rpi_gap_text(enum rpi_gap_class class);
const char *rpi_gap_key(enum rpi_gap_class class);
/* Keys for JSON. Static. */
const char *rpi_verdict_key(enum rp_advice_verdict verdict);
const char *rpi_way_key(enum rp_advice_way way);

#endif
