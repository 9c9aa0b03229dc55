/* SPDX-License-Identifier: MIT
 *
 * The benchmarks of `reprise bench`. argv[0] is the subcommand's name, and the benchmark's stands
 * among the rest.
 */
#ifndef REPRISE_CLI_CMD_BENCH_H
#define REPRISE_CLI_CMD_BENCH_H

int cmd_bench_replay(int argc, char **argv);

#endif
