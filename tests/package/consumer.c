/* SPDX-License-Identifier: MIT
 *
 * A program of somebody who installed the library: it sees nothing of this tree. Compiled and run
 * against an installation by run.sh.
 */
#include <reprise.h>

#include <stdio.h>
#include <string.h>

#define TEXT_OF(x)     #x
#define TEXT(x)        TEXT_OF(x)
#define HEADER_VERSION TEXT(RP_VERSION_MAJOR) "." TEXT(RP_VERSION_MINOR) "." TEXT(RP_VERSION_PATCH)

int main(void)
{
    if (strcmp(rp_version(), HEADER_VERSION)) {
        fprintf(stderr, "library %s, header %s\n", rp_version(), HEADER_VERSION);
        return 1;
    }
    printf("%s\n", rp_version());
    return 0;
}
