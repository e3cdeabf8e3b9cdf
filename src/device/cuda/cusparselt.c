// Finds libcusparseLt, once, and keeps it: it does not survive being unloaded.
#include "device/cuda/cusparselt.h"

#include "base/find_libraries.h"

#include <pthread.h>

static const tni_symbol symbols[] = {
#define CALL(field, name) { offsetof(tni_cusparselt, field), #name },
#include "device/cuda/cusparselt.def"
};

enum { CALLS = sizeof symbols / sizeof *symbols };
_Static_assert(sizeof(tni_cusparselt) == CALLS * sizeof(void (*)(void)), "a row a field");

// Versions 0.x have one name.
static const char *const names[] = { "libcusparseLt.so.0", NULL };

// Filled once by find_cusparselt, read-only from then on.
static struct {
    pthread_once_t once;
    tni_cusparselt table;
    bool           there;
    tni_text       where, missing;
} found = { .once = PTHREAD_ONCE_INIT };

size_t tni_cusparselt_version(const tni_cusparselt *lt)
{
    static const size_t unit[] = {
        [TNI_SPARSELT_MAJOR] = 10000, [TNI_SPARSELT_MINOR] = 100, [TNI_SPARSELT_PATCH] = 1
    };
    size_t sum = 0;
    for (int i = 0; i < 3; i++) {
        int part = 0;
        if (!lt->property(i, &part)) sum += (size_t)part * unit[i];
    }
    return sum;
}

// Before version 0.8 its numbers and arguments were others now and then, as those of a library
// below 1.0 may be.
static void find_cusparselt(void)
{
    enum { OLDEST = 800 };
    void       *lib     = tni_nvidia_open(names, &found.where);
    const char *missing = lib ? tni_symbols_fill(lib, &found.table, symbols, CALLS) : NULL;
    bool        old     = lib && !missing && tni_cusparselt_version(&found.table) < OLDEST;
    if (!lib) tni_text_add(&found.missing, "there is no cuSPARSELt (libcusparseLt.so)");
    if (missing) tni_text_add(&found.missing, "libcusparseLt has no %s", missing);
    if (old) tni_text_add(&found.missing, "cuSPARSELt (%s) is older than 0.8", found.where.s);
    found.there = lib && !missing && !old;
    if (!found.there) found.where = (tni_text){ "" };
}

// Threads may call it at once: the first one searches, the others wait for it.
const tni_cusparselt *tni_cusparselt_get(tni_text *why)
{
    pthread_once(&found.once, find_cusparselt);
    if (!found.there) tni_text_add(why, "%s", found.missing.s);
    return found.there ? &found.table : NULL;
}

const char *tni_cusparselt_where(void)
{
    return found.where.s;
}
