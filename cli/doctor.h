/* SPDX-License-Identifier: MIT
 *
 * What `reprise doctor` looks at outside the driver: the environment and PyTorch.
 */
#ifndef REPRISE_CLI_DOCTOR_H
#define REPRISE_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

/* One thing that was seen: a variable, an allocator's setting. */
struct doctor_fact {
    char name[64], value[128];
    char says[160]; /* what it does to graphs; or what it may have been meant to be */
    bool misspelled;
    bool stops; /* no capture works with this value */
};

struct doctor_facts {
    struct doctor_fact fact[96];
    size_t count;
};

/* The variables of the environment that matter to graphs, or are spelled like one that does. */
void doctor_environment(struct doctor_facts *facts);
/* The settings in PYTORCH_ALLOC_CONF or, where that is not set, PYTORCH_CUDA_ALLOC_CONF. */
void doctor_alloc_conf(struct doctor_facts *facts);

/* Sentences; what does not fit is left out. */
struct doctor_sentences {
    char text[16][512];
    size_t count;
};
void doctor_say(struct doctor_sentences *to, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The text of python/reprise/_base/versions.py, which answers with lines of a key and a text. */
extern const char doctor_script[];

enum doctor_answer { DOCTOR_ANSWERED, DOCTOR_NOT_FOUND, DOCTOR_BROKE_OFF };
/* Runs the script with this Python (a path, or a name in PATH), which has a minute, and gives each
 * line to take. out_why: why there was no whole answer. */
enum doctor_answer doctor_python(const char *python,
                                 void (*take)(void *into, const char *key, const char *text),
                                 void *into, char *out_why, size_t bytes);

struct doctor_torch {
    bool judged;      /* there is a PyTorch, or the Python that was to tell did not */
    bool available;   /* PyTorch sees a GPU */
    char python[256]; /* the one that answered, or was to */
    char version[64]; /* "": it could not be imported */
    char cuda[32];    /* what it is built for, or "none" */
    char hip[32];     /* the same */
    char allocator[32];
    char reprise[64]; /* version of the package; "none", or why it cannot be imported */
    char why[320];    /* why there is no PyTorch */
    char reason[320]; /* why there is no GPU, in PyTorch's words; "": it does not say */
    struct doctor_sentences problems; /* what keeps it from using Reprise, and what to do */
    struct doctor_sentences warnings;
};

/* What was seen of NVIDIA's driver. */
struct doctor_driver {
    bool works;
    bool no_library;     /* its library could not be loaded */
    int version;         /* 13000; 0 where it does not work */
    const char *message; /* why it does not; unowned */
};

/* Asks a Python. python: NULL for `python3`. */
void doctor_torch_ask(const char *python, struct doctor_torch *out_torch);
/* Notes why an installed PyTorch and the driver do not go together. */
void doctor_torch_judge(const struct doctor_driver *driver, struct doctor_torch *torch);

#endif
