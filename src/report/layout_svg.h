/* SPDX-License-Identifier: MIT
 *
 * A layout drawn: address upwards, the capture's order to the right, one rectangle a block, the
 * captures of a pool side by side over the same addresses. One self-contained SVG: no scripts, no
 * fonts to fetch.
 */
#ifndef REPRISE_REPORT_LAYOUT_SVG_H
#define REPRISE_REPORT_LAYOUT_SVG_H

#include <stdio.h>

/* Writes the picture of a const struct rpi_drawing *. For rpi_output_file. */
void rpi_layout_svg_write(FILE *out, const void *drawing);

#endif
