// Keeping the first error, and what this thread is doing.
#include "base/fault.h"

#include <stdio.h>
#include <string.h>

__thread tni_thread       tni_self  = { .site = { .file = "" } };
static __thread tni_fault own_fault = { .site = { .file = "" } };

tni_fault *tni_thread_fault(void)
{
    return &own_fault;
}

uint64_t tni_thread_id(void)
{
    return (uint64_t)(uintptr_t)&tni_self;  // each living thread has its own
}

bool tni_fault_set(tni_fault *f, int code, const char *fmt, va_list args)
{
    if (f->code) return false;
    f->code = code;
    f->told = false;
    f->site = tni_self.site;
    vsnprintf(f->text, sizeof f->text, fmt, args);
    return true;
}

void tni_fault_clear(tni_fault *f)
{
    f->code    = 0;
    f->told    = false;
    f->site    = (tni_site){ .file = "" };
    f->text[0] = 0;
}

void tni_thread_fail(int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    tni_self.latest = code;
    tni_fault_clear(&own_fault);
    tni_fault_set(&own_fault, code, fmt, args);
    va_end(args);
}
