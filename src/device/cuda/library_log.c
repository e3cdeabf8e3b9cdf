// Lines on stderr about NVIDIA's libraries, for TN_LOG.
#include "device/cuda/library_log.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

// The variable is read each time: lines are rare, and whoever sets it expects them.
void tni_library_log(const char *fmt, ...)
{
    char    line[512];
    va_list args;
    if (!tni_has_word(getenv("TN_LOG"), "library")) return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    fprintf(stderr, "tenon: library: %s\n", line);
}
