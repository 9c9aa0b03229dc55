/* SPDX-License-Identifier: MIT
 *
 * PyTorch: what a Python says of it, and whether it and the driver go together. What concerns
 * Python alone (versions, the package, the allocator) that Python judges, in
 * python/reprise/_base/versions.py.
 */
#include "doctor.h"

#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void doctor_say(struct doctor_sentences *to, const char *format, ...)
{
    if (to->count == sizeof to->text / sizeof *to->text)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(to->text[to->count++], sizeof *to->text, format, args);
    va_end(args);
}

/* ---- Asking -------------------------------------------------------------------------------- */

/* Keeps a fact, or adds a sentence. Unknown keys are of a later script, and passed over. */
static void take(void *into, const char *key, const char *text)
{
    struct doctor_torch *torch = into;
    const struct {
        const char *key;
        char *place;
        size_t bytes;
    } facts[] = {{"python", torch->python, sizeof torch->python},
                 {"torch", torch->version, sizeof torch->version},
                 {"cuda", torch->cuda, sizeof torch->cuda},
                 {"hip", torch->hip, sizeof torch->hip},
                 {"allocator", torch->allocator, sizeof torch->allocator},
                 {"reprise", torch->reprise, sizeof torch->reprise},
                 {"absent", torch->why, sizeof torch->why},
                 {"reason", torch->reason, sizeof torch->reason}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (strcmp(key, facts[i].key) == 0 && text[0])
            snprintf(facts[i].place, facts[i].bytes, "%s", text);
    if (strcmp(key, "available") == 0)
        torch->available = strcmp(text, "yes") == 0;
    else if (strcmp(key, "problem") == 0)
        doctor_say(&torch->problems, "%s", text);
    else if (strcmp(key, "warning") == 0)
        doctor_say(&torch->warnings, "%s", text);
}

void doctor_torch_ask(const char *python, struct doctor_torch *out_torch)
{
    char why[320];
    const char *asked = python ? python : "python3";
    memset(out_torch, 0, sizeof *out_torch);
    snprintf(out_torch->python, sizeof out_torch->python, "%s", asked);
    enum doctor_answer answer = doctor_python(asked, take, out_torch, why, sizeof why);
    /* That there is no python3 at all is no fault; one that was named has to answer. */
    if (answer == DOCTOR_BROKE_OFF || (answer == DOCTOR_NOT_FOUND && python))
        doctor_say(&out_torch->problems, "%s", why);
    if (answer != DOCTOR_ANSWERED) { /* half an answer is none */
        snprintf(out_torch->why, sizeof out_torch->why, "%s", why);
        out_torch->version[0] = '\0';
    }
    out_torch->judged = out_torch->version[0] || out_torch->problems.count;
}

/* ---- The GPU ------------------------------------------------------------------------------- */

static bool is_container(void)
{
    return access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
           getenv("KUBERNETES_SERVICE_HOST") || getenv("container");
}

/* Does the system show any GPU of NVIDIA's? Under WSL it is another file. */
static bool has_device_files(void)
{
    glob_t found;
    bool has = glob("/dev/nvidia[0-9]*", GLOB_NOSORT, NULL, &found) == 0;
    if (has)
        globfree(&found);
    return has || access("/dev/dxg", F_OK) == 0;
}

static bool hides_all(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && (!visible[0] || strcmp(visible, "-1") == 0);
}

/* PyTorch sees no GPU, and neither does Reprise. */
static void tell_no_gpu(const struct doctor_driver *driver, struct doctor_torch *torch)
{
    const char *said = torch->reason[0] ? torch->reason : "nothing";
    bool files = has_device_files();
    if (!driver->no_library && files)
        doctor_say(&torch->problems, "no GPU can be used: %s (PyTorch says: %s)", driver->message,
                   said);
    else if (is_container() && files)
        doctor_say(&torch->problems,
                   "no GPU can be used: this container has the device, and not NVIDIA's driver "
                   "library: start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility");
    else if (is_container())
        doctor_say(
            &torch->problems,
            "no GPU is seen: this container has %s: start it with the GPU (docker run --gpus "
            "all, or a GPU in the pod's limits)",
            driver->no_library ? "neither /dev/nvidia* nor NVIDIA's driver library"
                               : "no /dev/nvidia*");
    else if (driver->no_library)
        doctor_say(&torch->problems, "no GPU is seen: %s", driver->message);
    else
        doctor_say(&torch->problems,
                   "no GPU is seen: there is no /dev/nvidia*: `nvidia-smi` should list a GPU; load "
                   "the driver's kernel module, or install the driver again");
}

/* Built for no CUDA at all; says which one to install. */
static void tell_not_built(const struct doctor_driver *driver, struct doctor_torch *torch)
{
    bool hip = torch->hip[0] && strcmp(torch->hip, "none") != 0;
    const char *built = hip ? "is built for ROCm, not for CUDA" : "is built without CUDA";
    if (driver->works)
        doctor_say(&torch->problems, "PyTorch %s %s: install one that is built for CUDA %d",
                   torch->version, built, driver->version / 1000);
    else
        doctor_say(&torch->problems,
                   "PyTorch %s %s: Reprise needs an NVIDIA GPU and a PyTorch for CUDA "
                   "(https://pytorch.org/get-started)",
                   torch->version, built);
}

void doctor_torch_judge(const struct doctor_driver *driver, struct doctor_torch *torch)
{
    int cuda = 0;
    if (!torch->version[0])
        return;
    if (!torch->cuda[0] || sscanf(torch->cuda, "%d", &cuda) != 1)
        tell_not_built(driver, torch);
    else if (!torch->available && hides_all())
        doctor_say(&torch->problems, "CUDA_VISIBLE_DEVICES hides every GPU: unset it");
    else if (!torch->available && !driver->works)
        tell_no_gpu(driver, torch);
    else if (!driver->works)
        doctor_say(&torch->problems, "PyTorch sees a GPU that Reprise cannot use: %s",
                   driver->message);
    else if (cuda > driver->version / 1000)
        doctor_say(
            &torch->problems,
            "PyTorch %s is built for CUDA %s and the driver is for %d.%d: update the driver, "
            "or install a PyTorch for CUDA %d",
            torch->version, torch->cuda, driver->version / 1000, driver->version % 1000 / 10,
            driver->version / 1000);
    else if (!torch->available)
        doctor_say(&torch->problems,
                   "torch.cuda.is_available() is false, though the driver for CUDA %d.%d works; "
                   "PyTorch says: %s",
                   driver->version / 1000, driver->version % 1000 / 10,
                   torch->reason[0] ? torch->reason : "nothing");
}
