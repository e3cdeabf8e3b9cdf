// Finds a BLAS on this machine, once, and keeps it until the process ends: libraries with threads
// of their own do not survive being unloaded.
//
// Its calls are made from our pool, so the library is told to use one thread while they run: two
// pools fighting for the same cores would cost more. That is a setting of the whole process, so a
// program that calls the same BLAS from another thread meanwhile gets one thread there too; in
// between it has its own number.
#include "device/cpu/blas.h"
#include "device/cpu/gemm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Filled by find_once, read-only from then on.
static struct {
    tni_blas      calls;
    tni_blas_info info;
    char          path[1024], name[256], detail[512];
    int (*get_threads)(void);  // NULL where the library has no such setting
    void (*set_threads)(int);
} blas;

// Who is between enter and leave, and what the program's own number of threads was.
static struct {
    pthread_mutex_t lock;
    int             users, threads;
} calls = { .lock = PTHREAD_MUTEX_INITIALIZER };

static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *const candidates[] = {
    "libopenblas.so.0", "libopenblas.so", "libblis.so.4", "libblis.so",
    "libmkl_rt.so",     "libmkl_rt.so.2", "libblas.so.3",
};

// ISO C knows no cast from an object pointer to a function pointer; POSIX promises that the copy
// of the bits works.
static bool symbol(void *lib, const char *name, void *function)
{
    void *found = dlsym(lib, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static void set_name(const char *kind, const char *text)
{
    snprintf(blas.name, sizeof blas.name, "%s%s", kind, text ? text : "");
}

static bool is_openblas(void *lib)
{
    char *(*config)(void);
    char *(*core)(void);
    if (!symbol(lib, "openblas_get_config", &config)) return false;

    set_name("", config());
    if (symbol(lib, "openblas_get_corename", &core) && !strstr(blas.name, core()))
        snprintf(blas.name, sizeof blas.name, "%s %s", config(), core());
    if (!symbol(lib, "openblas_get_num_threads", &blas.get_threads) ||
        !symbol(lib, "openblas_set_num_threads", &blas.set_threads))
        blas.get_threads = NULL;
    return true;
}

static bool is_blis(void *lib)
{
    const char *(*version)(void);
    void (*set_threads)(int64_t);
    if (!symbol(lib, "bli_info_get_version_str", &version)) return false;

    set_name("BLIS ", version());
    if (symbol(lib, "bli_thread_set_num_threads", &set_threads)) set_threads(1);
    return true;
}

static bool is_mkl(void *lib)
{
    void (*version)(char *, int);
    if (!symbol(lib, "MKL_Set_Num_Threads", &blas.set_threads)) return false;
    symbol(lib, "MKL_Get_Max_Threads", &blas.get_threads);

    char text[200] = "MKL";
    if (symbol(lib, "MKL_Get_Version_String", &version)) version(text, (int)sizeof text - 1);
    set_name("", text);
    return true;
}

static bool is_atlas(void *lib)
{
    if (!dlsym(lib, "ATL_buildinfo")) return false;
    set_name("ATLAS", NULL);
    return true;
}

// Where the loader found the library that holds sgemm.
static void set_path(const char *asked)
{
    Dl_info where;
    void   *address;
    memcpy(&address, &blas.calls.sgemm, sizeof address);
    bool known = dladdr(address, &where) && where.dli_fname;
    snprintf(blas.path, sizeof blas.path, "%s", known ? where.dli_fname : asked);
}

// Why this library cannot be used, or NULL and it is in use. The plain reference BLAS has no sign
// of its own; it is slower than our product, so only a user who names it gets it.
static const char *try_library(const char *file, bool named)
{
    void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!lib) return named ? dlerror() : "is not there";
    if (!symbol(lib, "cblas_sgemm", &blas.calls.sgemm) ||
        !symbol(lib, "cblas_dgemm", &blas.calls.dgemm))
        return "has no cblas_sgemm and cblas_dgemm";

    if (is_openblas(lib)) {
        if (strstr(blas.name, "USE64BITINT")) return "takes 64-bit sizes, and we pass 32-bit ones";
    } else if (!is_blis(lib) && !is_mkl(lib) && !is_atlas(lib)) {
        if (!named) return "is the reference BLAS, slower than our own product";
        set_name(file, NULL);
    }
    set_path(file);
    return NULL;
}

static void found(void)
{
    blas.info = (tni_blas_info){ .found = true, .path = blas.path, .name = blas.name };
}

static void find_named(const char *file)
{
    const char *why = try_library(file, true);
    if (!why) {
        found();
        return;
    }
    snprintf(blas.detail, sizeof blas.detail, "TN_BLAS names %s, which cannot be used: %s", file,
             why);
}

// The sentence names the libraries that are there and were refused.
static void find_any(void)
{
    size_t used = 0;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        const char *why = try_library(candidates[i], false);
        if (!why) {
            found();
            return;
        }
        if (strcmp(why, "is not there") != 0 && used < sizeof blas.detail)
            used += (size_t)snprintf(blas.detail + used, sizeof blas.detail - used, "%s%s %s",
                                     used ? "; " : "", candidates[i], why);
    }
    if (used == 0)
        snprintf(blas.detail, sizeof blas.detail,
                 "no OpenBLAS, BLIS, MKL or libblas.so.3 is installed");
}

static void find_once(void)
{
    const char *named = getenv("TN_BLAS");
    if (named && strcmp(named, "none") == 0)
        snprintf(blas.detail, sizeof blas.detail, "TN_BLAS=none asks for our own product");
    else if (named && *named) find_named(named);
    else find_any();
    if (!blas.info.found) blas.info.detail = blas.detail;
}

tni_blas_info tni_blas_find(void)
{
    pthread_once(&once, find_once);
    return blas.info;
}

const tni_blas *tni_blas_get(void)
{
    pthread_once(&once, find_once);
    return blas.info.found ? &blas.calls : NULL;
}

void tni_blas_enter(void)
{
    if (!blas.get_threads) return;
    pthread_mutex_lock(&calls.lock);
    if (calls.users++ == 0) {
        calls.threads = blas.get_threads();
        if (calls.threads != 1) blas.set_threads(1);
    }
    pthread_mutex_unlock(&calls.lock);
}

void tni_blas_leave(void)
{
    if (!blas.get_threads) return;
    pthread_mutex_lock(&calls.lock);
    if (--calls.users == 0 && calls.threads != 1) blas.set_threads(calls.threads);
    pthread_mutex_unlock(&calls.lock);
}
