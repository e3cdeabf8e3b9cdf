// Finds libcublasLt, once, and keeps it: it does not survive being unloaded.
#include "device/cuda/blaslt.h"

#include "base/find_libraries.h"

#include <pthread.h>

static const tni_symbol symbols[] = {
#define CALL(field, name) { offsetof(tni_blaslt, field), #name },
#include "device/cuda/blaslt.def"
};

enum { CALLS = sizeof symbols / sizeof *symbols };
_Static_assert(sizeof(tni_blaslt) == CALLS * sizeof(void (*)(void)), "a row a field");

// Newest first; 12 and 13 have the same interface as far as it is used.
static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                     NULL };

// Filled once by find_blaslt, read-only from then on.
static struct {
    pthread_once_t once;
    tni_blaslt     table;
    bool           there;
    tni_text       where, missing;
} found = { .once = PTHREAD_ONCE_INIT };

static void find_blaslt(void)
{
    void       *lib     = tni_nvidia_open(names, &found.where);
    const char *missing = lib ? tni_symbols_fill(lib, &found.table, symbols, CALLS) : NULL;
    if (!lib) tni_text_add(&found.missing, "there is no cuBLASLt (libcublasLt.so)");
    if (missing) tni_text_add(&found.missing, "libcublasLt has no %s", missing);
    found.there = lib && !missing;
    if (!found.there) found.where = (tni_text){ "" };
}

// Threads may call it at once: the first one searches, the others wait for it.
const tni_blaslt *tni_blaslt_get(tni_text *why)
{
    pthread_once(&found.once, find_blaslt);
    if (!found.there) tni_text_add(why, "%s", found.missing.s);
    return found.there ? &found.table : NULL;
}

const char *tni_blaslt_where(void)
{
    return found.where.s;
}
