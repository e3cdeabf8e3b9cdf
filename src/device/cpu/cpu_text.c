// The kernels of this process for people to look at: how many were compiled, and their text.
#include "device/cpu/cpu_kernels.h"

// Kernels loaded from disk are counted apart from those that this process compiled.
void tni_cpu_compile_counts(int64_t *compiled, int64_t *found)
{
    tni_cpu_counts c = tni_cpu_kernels_counts();
    *compiled        = c.compiled;
    *found           = c.found;
}

// Prints the kernel alone, without the prelude, under the settings that won; a kernel that has no C
// text has nothing to show.
char *tni_cpu_text(void *session, tni_heap *h, const tni_launch *l)
{
    tni_out       o;
    tni_tuned     won;
    tni_emit_item item = { .kernel = l->kernel, .name = "kernel", .opts = l->tuning };
    const char   *why;
    if (!l->tuning && tni_tuned_find(tni_cpu_chip(session, l->threads), l, &won))
        item.opts = &won.settings;
    if (!tni_can_emit(l->kernel, &why)) return NULL;
    tni_out_open(&o, h);
    tni_dialect d = tni_cpu_dialect();
    tni_emit_c(&o, &d, &item);
    return tni_out_take(&o);
}
