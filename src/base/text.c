// Short texts for messages.
#include "base/text.h"

#include <stdio.h>
#include <string.h>

void tni_text_add(tni_text *t, const char *fmt, ...)
{
    size_t  n = strlen(t->s);
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->s + n, sizeof t->s - n, fmt, args);
    va_end(args);
}

tni_text tni_shape_text(int rank, const int64_t *size)
{
    tni_text t = { "(" };
    for (int i = 0; i < rank; i++) tni_text_add(&t, "%s%lld", i ? ", " : "", (long long)size[i]);
    tni_text_add(&t, rank == 1 ? ",)" : ")");
    return t;
}
