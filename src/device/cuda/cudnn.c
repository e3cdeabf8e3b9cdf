// Finds libcudnn, once, and keeps it: it does not survive being unloaded.
//
// libcudnn.so.9 is a small library that opens its parts, NVRTC and cuBLASLt by name when it first
// needs them. In the wheels of CUDA 13 it looks for the latter two in the wrong folder, and some
// versions end the process if there is no cuBLASLt. So both are opened here by their path, before
// cuDNN is asked for anything, for the version of CUDA that this cuDNN was built for.
#include "device/cuda/cudnn.h"

#include "base/find_libraries.h"
#include "device/cuda/library_log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tni_symbol symbols[] = {
#define CALL(field, name) { offsetof(tni_cudnn, field), #name },
#include "device/cuda/cudnn.def"
};

enum { CALLS = sizeof symbols / sizeof *symbols };
_Static_assert(sizeof(tni_cudnn) == CALLS * sizeof(void (*)(void)), "a row a field");

// Filled once by find_cudnn, read-only from then on.
static struct {
    pthread_once_t once;
    tni_cudnn      table;
    bool           there;
    tni_text       where, missing;
} found = { .once = PTHREAD_ONCE_INIT };

static bool fill_cudnn(void *lib)
{
    const char *missing = tni_symbols_fill(lib, &found.table, symbols, CALLS);
    if (missing) tni_text_add(&found.missing, "cuDNN (%s) has no %s", found.where.s, missing);
    return !missing;
}

bool tni_cudnn_version_is_used(size_t version)
{
    return version >= 90600 && version < 100000 && version != 91000 && version != 91001;
}

// The version comes from the library's own code, which opens its part for graphs: a file whose
// parts do not fit together reports it here.
static bool version_fits(void)
{
    size_t v = found.table.version();
    if (tni_cudnn_version_is_used(v)) return true;
    tni_text_add(&found.missing, "cuDNN %zu.%zu.%zu (%s) is not used: %s", v / 10000, v / 100 % 100,
                 v % 100, found.where.s,
                 v / 100 == 910 ? "it has known mistakes" : "9.6 or a later 9 is needed");
    return false;
}

// Opens a library that cuDNN opens by name later on.
static bool open_companion(const char *name, size_t major)
{
    char              file[64];
    const char *const names[] = { file, NULL };
    snprintf(file, sizeof file, "%s.so.%zu", name, major);
    if (tni_nvidia_open_for(found.where.s, names)) return true;
    tni_text_add(&found.missing, "cuDNN (%s) needs %s, which was not found", found.where.s, file);
    return false;
}

// Opens what TN_CUDNN names, or what is installed. "0" and "none" turn it off.
static void *open_cudnn(void)
{
    static const char *const names[] = { "libcudnn.so.9", NULL };

    const char *named = getenv("TN_CUDNN");
    if (!named || !*named) {
        void *lib = tni_nvidia_open(names, &found.where);
        if (!lib) tni_text_add(&found.missing, "there is no cuDNN (libcudnn.so.9)");
        return lib;
    }
    if (!strcmp(named, "0") || !strcmp(named, "none")) {
        tni_text_add(&found.missing, "TN_CUDNN=%s", named);
        return NULL;
    }
    void *lib = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    tni_text_add(&found.where, "%s", named);
    if (!lib) tni_text_add(&found.missing, "TN_CUDNN cannot be opened: %s", dlerror());
    return lib;
}

// What is wrong is logged once here, and said by `tenon doctor`; all else goes on without the
// library.
static void find_cudnn(void)
{
    void  *lib  = open_cudnn();
    bool   ok   = lib && fill_cudnn(lib) && version_fits();
    size_t cuda = ok ? found.table.cuda_version() / 1000 : 0;
    ok          = ok && open_companion("libnvrtc", cuda) && open_companion("libcublasLt", cuda);
    found.there = ok;
    if (ok) return;
    found.where = (tni_text){ "" };
    tni_library_log("%s: attention in 16 bits and convolution are by Tenon's own kernels",
                    found.missing.s);
}

// Threads may call it at once: the first one searches, the others wait for it.
const tni_cudnn *tni_cudnn_get(tni_text *why)
{
    pthread_once(&found.once, find_cudnn);
    if (!found.there) tni_text_add(why, "%s", found.missing.s);
    return found.there ? &found.table : NULL;
}

const char *tni_cudnn_where(void)
{
    return found.where.s;
}
