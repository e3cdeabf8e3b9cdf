// Finds libcusolver and the libcublas that belongs to it, once, and keeps them: they do not survive
// being unloaded.
#include "device/cuda/cusolver.h"

#include "base/find_libraries.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

static const tni_symbol solver_symbols[] = {
#define CALL(field, name) { offsetof(tni_cusolver, field), #name },
#define BLAS(field, name)
#include "device/cuda/cusolver.def"
};

static const tni_symbol blas_symbols[] = {
#define CALL(field, name)
#define BLAS(field, name) { offsetof(tni_cusolver, field), #name },
#include "device/cuda/cusolver.def"
};

enum {
    SOLVER_CALLS = sizeof solver_symbols / sizeof *solver_symbols,
    BLAS_CALLS   = sizeof blas_symbols / sizeof *blas_symbols
};
_Static_assert(sizeof(tni_cusolver) == (SOLVER_CALLS + BLAS_CALLS) * sizeof(void (*)(void)),
               "a row a field");

// Newest first. CUDA 13 has cuSOLVER 12 and cuBLAS 13, CUDA 12 has cuSOLVER 11 and cuBLAS 12.
static const char *const names[] = { "libcusolver.so.12", "libcusolver.so.11", NULL };

// Filled once by find_cusolver, read-only from then on.
static struct {
    pthread_once_t once;
    tni_cusolver   table;
    bool           there;
    tni_text       where, missing;
} found = { .once = PTHREAD_ONCE_INIT };

// The cuBLAS that this cuSOLVER was built with, which it has opened itself, or which lies beside
// it.
static void *open_blas(void)
{
    bool              old    = strstr(found.where.s, "libcusolver.so.11") != NULL;
    const char *const blas[] = { old ? "libcublas.so.12" : "libcublas.so.13", NULL };
    return tni_nvidia_open_for(found.where.s, blas);
}

// One without the other is of no use: factors without triangles would have to be copied to the host
// in every solution. What is missing is said by name, so that a half installed toolkit can be told
// from none.
static void find_cusolver(void)
{
    void       *lib = tni_nvidia_open(names, &found.where), *blas = lib ? open_blas() : NULL;
    const char *missing = NULL;
    if (!lib) tni_text_add(&found.missing, "there is no cuSOLVER (libcusolver.so)");
    else if (!blas)
        tni_text_add(&found.missing, "cuSOLVER (%s) has no cuBLAS beside it", found.where.s);
    if (blas) missing = tni_symbols_fill(lib, &found.table, solver_symbols, SOLVER_CALLS);
    if (blas && !missing) missing = tni_symbols_fill(blas, &found.table, blas_symbols, BLAS_CALLS);
    if (missing) tni_text_add(&found.missing, "cuSOLVER (%s) has no %s", found.where.s, missing);
    found.there = blas && !missing;
    if (!found.there) found.where = (tni_text){ "" };
}

// Threads may call it at once: the first one searches, the others wait for it.
const tni_cusolver *tni_cusolver_get(tni_text *why)
{
    pthread_once(&found.once, find_cusolver);
    if (!found.there) tni_text_add(why, "%s", found.missing.s);
    return found.there ? &found.table : NULL;
}

const char *tni_cusolver_where(void)
{
    return found.where.s;
}
