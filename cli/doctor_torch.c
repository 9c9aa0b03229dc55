/* SPDX-License-Identifier: MIT
 *
 * PyTorch, asked through `python3`: which version, for which CUDA, with which allocator, and
 * whether it and the driver and the package go together.
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
    "try:\n"
    "    import reprise; print(reprise.__version__)\n"
    "except ModuleNotFoundError:\n"
    "    print(\"none\")\n"
    "except Exception as e:\n"
    "    print(\" \".join(str(e).split())[:60])\n"
    "' 2>/dev/null";

enum { OLDEST_MAJOR = 2, OLDEST_MINOR = 9 };

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

/* The first reason for which no capture of this PyTorch works with this driver. */
static void find_problem(int driver_cuda, struct doctor_torch *torch)
{
    int major = 0, minor = 0, cuda = 0;
    if (sscanf(torch->version, "%d.%d", &major, &minor) == 2 &&
        (major < OLDEST_MAJOR || (major == OLDEST_MAJOR && minor < OLDEST_MINOR)))
        snprintf(torch->problem, sizeof torch->problem,
                 "the package needs PyTorch %d.%d or later, and this is %s: update it",
                 OLDEST_MAJOR, OLDEST_MINOR, torch->version);
    else if (driver_cuda && strcmp(torch->cuda, "none") == 0)
        snprintf(torch->problem, sizeof torch->problem,
                 "PyTorch %s is built without CUDA: install one that is built for CUDA %d",
                 torch->version, driver_cuda / 1000);
    else if (driver_cuda && sscanf(torch->cuda, "%d", &cuda) == 1 && cuda > driver_cuda / 1000)
        snprintf(torch->problem, sizeof torch->problem,
                 "PyTorch %s is built for CUDA %s and the driver is for %d.%d: update the driver, "
                 "or install a PyTorch for CUDA %d",
                 torch->version, torch->cuda, driver_cuda / 1000, driver_cuda % 1000 / 10,
                 driver_cuda / 1000);
    else if (strcmp(torch->allocator, "cudaMallocAsync") == 0)
        snprintf(torch->problem, sizeof torch->problem,
                 "PyTorch's allocator is cudaMallocAsync, whose memory cannot be planned: set "
                 "backend:native in PYTORCH_ALLOC_CONF, or leave it out");
}

void doctor_torch(int driver_cuda, struct doctor_torch *out_torch)
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
                           read_line(pipe, out_torch->allocator, sizeof out_torch->allocator) &&
                           read_line(pipe, out_torch->reprise, sizeof out_torch->reprise);
    pclose(pipe);
    if (out_torch->torch)
        find_problem(driver_cuda, out_torch);
    out_torch->python = answered;
}
