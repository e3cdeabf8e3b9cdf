// Keeping the first error, and what this thread is doing.
#include "base/fault.h"

#include <stdio.h>
#include <string.h>

TNI_TLS tni_thread tni_self = { .site = { "", 0 }, .fault = { .site = { "", 0 } } };

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
    f->site    = (tni_site){ "", 0 };
    f->text[0] = 0;
}

void tni_thread_fail(int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    tni_fault_clear(&tni_self.fault);
    tni_fault_set(&tni_self.fault, code, fmt, args);
    va_end(args);
}
