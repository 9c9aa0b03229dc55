/* SPDX-License-Identifier: MIT
 *
 * Upper halves of the addresses that rpi_reserve_addresses chooses. The thread sanitizer has its own
 * memory there, so that any address does.
 */
#ifndef REPRISE_TESTS_RARE_ADDRESSES_H
#define REPRISE_TESTS_RARE_ADDRESSES_H

#ifdef __SANITIZE_THREAD__
enum { RPT_LOWEST = 0, RPT_HIGHEST = 0x7fff };
#else
enum { RPT_LOWEST = 0x4e9d, RPT_HIGHEST = 0x7e9d };
#endif

#endif
