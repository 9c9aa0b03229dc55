/* SPDX-License-Identifier: MIT
 *
 * An exception object is made as the C++ ABI (Itanium) has it: memory from
 * __cxa_allocate_exception, in it a c10::Error made by its own constructor, over it the vtable of
 * c10::OutOfMemoryError, which adds no members, and thrown with that class's type. A std::string
 * argument that is passed by value is an object of the caller's, given by address.
 */
#include "alloc/raise.h"

#include "base/symbol.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libstdc++'s std::string since GCC 5. */
struct string {
    char *data;
    size_t length;
    union {
        char local[16];
        size_t capacity;
    } space;
};

struct shared_ptr {
    void *pointer, *control;
};

#define STRING     "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#define ERROR_INIT "_ZN3c105ErrorC1E" STRING "St10shared_ptrIKNS_9LazyValueIS6_EEEPKv"
#define CHECK_FAIL "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"

enum { EXCEPTION_BYTES = 512 }; /* a c10::Error has 136 in PyTorch 2.11 */

static struct {
    void *(*allocate)(size_t bytes);
    void (*throw_it)(void *object, void *type, void (*destroy)(void *));
    void *(*operator_new)(size_t bytes);
    void (*init)(void *error, struct string *message, struct shared_ptr *backtrace,
                 const void *caller);
    void **vtable; /* of c10::OutOfMemoryError: offset, type, then the functions */
    void *type;
    void (*check_fail)(const char *function, const char *file, uint32_t line, const char *message);
} names;

/* Until PyTorch 2.12 it is compiled into who throws it, from 2.13 on where it is defined. */
static void *find_class(const char *name)
{
    void *found = rpp_torch_symbol("libc10.so", name);
    return found ? found : rpp_torch_symbol("libc10_cuda.so", name);
}

/* A pointer that dlsym gave, as one to a function. */
#define FIND_FUNCTION(field, library, name)                                                        \
    do {                                                                                           \
        void *found = rpp_torch_symbol(library, name);                                             \
        memcpy(&names.field, &found, sizeof found);                                                \
    } while (0)

const char *rpp_raise_prepare(void)
{
    FIND_FUNCTION(check_fail, "libc10.so", CHECK_FAIL);
    FIND_FUNCTION(init, "libc10.so", ERROR_INIT);
    FIND_FUNCTION(allocate, "libstdc++.so.6", "__cxa_allocate_exception");
    FIND_FUNCTION(throw_it, "libstdc++.so.6", "__cxa_throw");
    FIND_FUNCTION(operator_new, "libstdc++.so.6", "_Znwm");
    names.vtable = find_class("_ZTVN3c1016OutOfMemoryErrorE");
    names.type = find_class("_ZTIN3c1016OutOfMemoryErrorE");
    if (!names.check_fail)
        return "c10::detail::torchCheckFail";
    if (!names.init)
        return "c10::Error";
    if (!names.allocate || !names.throw_it || !names.operator_new)
        return "the C++ runtime";
    return names.vtable && names.type ? NULL : "c10::OutOfMemoryError";
}

_Noreturn void rpp_raise_error(const char *message)
{
    if (names.check_fail)
        names.check_fail("allocate", "reprise", 0, message);
    fprintf(stderr, "reprise: %s\n", message);
    abort();
}

_Noreturn void rpp_raise_out_of_memory(const char *message)
{
    if (!names.vtable || !names.type || !names.init || !names.allocate || !names.throw_it ||
        !names.operator_new)
        rpp_raise_error(message);
    struct string text = {.length = strlen(message)};
    text.space.capacity = text.length < 16 ? 16 : text.length;
    text.data = names.operator_new(text.space.capacity + 1);
    memcpy(text.data, message, text.length + 1);
    struct shared_ptr backtrace = {NULL, NULL};
    void *object = names.allocate(EXCEPTION_BYTES);
    memset(object, 0, EXCEPTION_BYTES);
    names.init(object, &text, &backtrace, NULL); /* moves the text out */
    void **functions = names.vtable + 2;
    memcpy(object, &functions, sizeof functions);
    void (*destroy)(void *);
    memcpy(&destroy, functions, sizeof destroy); /* the first: the complete destructor */
    names.throw_it(object, names.type, destroy);
    abort();
}
