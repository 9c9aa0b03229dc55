/* SPDX-License-Identifier: MIT
 *
 * PyTorch, asked through `python3`: which version, for which CUDA, with which allocator.
 */
#include "doctor.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* The name of the allocator is read without starting CUDA. */
static const char command[] =
    "timeout 60 python3 -c '\n"
    "import sys\n"
    "try:\n"
    "    import torch\n"
    "except Exception as e:\n"
    "    print(\"none\"); print(\" \".join(str(e).split())[:150]); sys.exit(0)\n"
    "print(torch.__version__); print(torch.version.cuda or \"none\")\n"
    "try:\n"
    "    print(torch.cuda.get_allocator_backend())\n"
    "except Exception:\n"
    "    print(\"unknown\")\n"
    "' 2>/dev/null";

/* The next line, without its end, cut to what fits; false: there is none. */
static bool read_line(FILE *from, char *to, size_t bytes)
{
    char line[256];
    if (!fgets(line, sizeof line, from))
        return false;
    line[strcspn(line, "\n")] = '\0';
    snprintf(to, bytes, "%.*s", (int)bytes - 1, line);
    return true;
}

void doctor_torch(struct doctor_torch *out_torch)
{
    memset(out_torch, 0, sizeof *out_torch);
    snprintf(out_torch->why, sizeof out_torch->why, "python3 did not answer");
    FILE *pipe = popen(command, "r");
    if (!pipe)
        return;
    bool answered = read_line(pipe, out_torch->version, sizeof out_torch->version);
    if (answered && strcmp(out_torch->version, "none") == 0)
        read_line(pipe, out_torch->why, sizeof out_torch->why);
    else if (answered)
        out_torch->torch = read_line(pipe, out_torch->cuda, sizeof out_torch->cuda) &&
                           read_line(pipe, out_torch->allocator, sizeof out_torch->allocator);
    pclose(pipe);
    out_torch->python = answered;
}
