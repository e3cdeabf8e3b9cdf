// Finds a BLAS on this machine, once, and keeps it until the process ends: libraries with threads
// of their own do not survive being unloaded.
//
// Its routines are called from our thread pool, so the library has to use one thread while they
// run: two pools competing for the same cores would cost more. That is a setting of the whole
// process: a program that calls the same BLAS from another thread meanwhile gets one thread there,
// too; afterwards it has its own number again.
//
// A BLAS packs its operands into buffers of its own, one for each concurrent call, which it maps
// when it first needs them. OpenBLAS retries until it gets one (later versions end the process), so
// a call with too little address space (ulimit -v) never returns. Therefore a library is loaded,
// and called by that many threads at a time, only if there is address space for all that it may ask
// for, and OpenBLAS is made to map its buffers before the first call.
#include "device/cpu/blas.h"
#include "base/pool.h"
#include "device/cpu/gemm.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// What a library may ask for, in bytes. The largest buffer that OpenBLAS is built with by default
// is 128 MiB, on x86-64; a thread has a stack of 8 MiB by default.
static const size_t BUFFER = (size_t)128 << 20, STACK = (size_t)8 << 20, LIBRARY = (size_t)64 << 20;

enum { MOST_THREADS = 128 };  // assumed at most to be started by a library when it is loaded

// Filled in by find_blas_once, read-only from then on.
static struct {
    tni_blas      calls;
    tni_lapack    lapack;
    bool          has_lapack;
    tni_blas_info info;
    char          path[1024], name[256], detail[512];
    int (*get_threads)(void);  // NULL if the library has no such setting
    void (*set_threads)(int);
    void *(*take_buffer)(int);  // OpenBLAS's own: NULL elsewhere
    void (*give_buffer)(void *);
} blas;

// The users between enter and leave, and the program's own number of threads. There is memory for
// `ready` calls at a time; it grows under the lock until more cannot be had (`full`).
static struct {
    pthread_mutex_t lock;
    pthread_cond_t  left;
    int             users, threads, running;
    atomic_int      ready;
    bool            full, wide;
} calls = { .lock = PTHREAD_MUTEX_INITIALIZER, .left = PTHREAD_COND_INITIALIZER };

static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *const candidates[] = {
    "libopenblas.so.0", "libopenblas.so", "libblis.so.4", "libblis.so",
    "libmkl_rt.so",     "libmkl_rt.so.2", "libblas.so.3",
};

// ISO C knows no cast from an object pointer to a function pointer; POSIX promises that the copy
// of the bits works.
static bool find_symbol(void *lib, const char *name, void *function)
{
    void *found = dlsym(lib, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

// Returns whether that many bytes of address space can be had now. Nothing is touched: a limit of
// the process, or a system that does not overcommit, refuses the mapping itself.
static bool can_map(size_t bytes)
{
    int   flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *p     = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return p != MAP_FAILED && munmap(p, bytes) == 0;
}

// Loading a library starts its threads, each with a stack and a buffer; returns whether there is
// address space for them.
static bool can_load(void)
{
    int cores = tni_cores();
    cores     = cores > MOST_THREADS ? MOST_THREADS : cores;
    return can_map(LIBRARY + (size_t)cores * (BUFFER + STACK));
}

static void set_library_name(const char *kind, const char *text)
{
    snprintf(blas.name, sizeof blas.name, "%s%s", kind, text ? text : "");
}

// Recognizes OpenBLAS and finds its settings. Its allocator functions are not part of its
// interface; without them the buffers are not mapped ahead.
static bool is_openblas(void *lib)
{
    char *(*config)(void);
    char *(*core)(void);
    if (!find_symbol(lib, "openblas_get_config", &config)) return false;

    set_library_name("", config());
    if (find_symbol(lib, "openblas_get_corename", &core) && !strstr(blas.name, core()))
        snprintf(blas.name, sizeof blas.name, "%s %s", config(), core());
    if (!find_symbol(lib, "openblas_get_num_threads", &blas.get_threads) ||
        !find_symbol(lib, "openblas_set_num_threads", &blas.set_threads))
        blas.get_threads = NULL;
    if (!find_symbol(lib, "blas_memory_alloc", &blas.take_buffer) ||
        !find_symbol(lib, "blas_memory_free", &blas.give_buffer))
        blas.take_buffer = NULL;
    return true;
}

// Recognizes BLIS, whose number of threads is set once: it has no way to ask for the program's own.
static bool is_blis(void *lib)
{
    const char *(*version)(void);
    void (*set_threads)(int64_t);
    if (!find_symbol(lib, "bli_info_get_version_str", &version)) return false;

    set_library_name("BLIS ", version());
    if (find_symbol(lib, "bli_thread_set_num_threads", &set_threads)) set_threads(1);
    return true;
}

static bool is_mkl(void *lib)
{
    void (*version)(char *, int);
    if (!find_symbol(lib, "MKL_Set_Num_Threads", &blas.set_threads)) return false;
    find_symbol(lib, "MKL_Get_Max_Threads", &blas.get_threads);

    char text[200] = "MKL";
    if (find_symbol(lib, "MKL_Get_Version_String", &version)) version(text, (int)sizeof text - 1);
    set_library_name("", text);
    return true;
}

static bool is_atlas(void *lib)
{
    if (!dlsym(lib, "ATL_buildinfo")) return false;
    set_library_name("ATLAS", NULL);
    return true;
}

// Finds the file of the library that contains sgemm, which may differ from the name that was asked
// for.
static void set_library_path(const char *asked)
{
    Dl_info where;
    void   *address;
    memcpy(&address, &blas.calls.sgemm, sizeof address);
    bool known = dladdr(address, &where) && where.dli_fname;
    snprintf(blas.path, sizeof blas.path, "%s", known ? where.dli_fname : asked);
}

// Finds the routines of a LAPACK in the library that has the BLAS: all of them or none.
static bool find_lapack(void *lib)
{
    static const char *const names[] = { "potrf_", "getrf_", "trsm_", "geqrf_",
                                         "orgqr_", "syevd_", "gesdd_" };
    void *routine[] = { blas.lapack.potrf, blas.lapack.getrf, blas.lapack.trsm, blas.lapack.geqrf,
                        blas.lapack.orgqr, blas.lapack.syevd, blas.lapack.gesdd };
    char  name[16];
    for (int i = 0; i < 14; i++) {
        snprintf(name, sizeof name, "%c%s", "sd"[i & 1], names[i / 2]);
        if (!find_symbol(lib, name, (char *)routine[i / 2] + (size_t)(i & 1) * sizeof(void *)))
            return false;
    }
    return true;
}

// Loads a library. Returns NULL if it is now in use, else why it cannot be. The plain reference
// BLAS has no symbol to recognize it by; it is slower than our product, so it is used only if
// TN_BLAS names it.
static const char *try_library(const char *file, bool named)
{
    void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!lib) return named ? dlerror() : "is not installed";
    if (!find_symbol(lib, "cblas_sgemm", &blas.calls.sgemm) ||
        !find_symbol(lib, "cblas_dgemm", &blas.calls.dgemm))
        return "has no cblas_sgemm and cblas_dgemm";

    if (is_openblas(lib)) {
        if (strstr(blas.name, "USE64BITINT")) return "takes 64-bit sizes, and we pass 32-bit ones";
    } else if (is_mkl(lib)) {
        blas.calls.leads = true;
    } else if (!is_blis(lib) && !is_atlas(lib)) {
        if (!named) return "is the reference BLAS, slower than our own product";
        set_library_name(file, NULL);
    }
    blas.has_lapack = find_lapack(lib);
    set_library_path(file);
    return NULL;
}

static void note_found(void)
{
    blas.info = (tni_blas_info){ .found = true, .path = blas.path, .name = blas.name };
}

static void find_named(const char *file)
{
    const char *why = try_library(file, true);
    if (!why) {
        blas.calls.leads = true;
        note_found();
        return;
    }
    snprintf(blas.detail, sizeof blas.detail, "TN_BLAS names %s, which cannot be used: %s", file,
             why);
}

// Tries the usual libraries in order; the reason names those that are installed and were refused.
static void find_any(void)
{
    size_t used = 0;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        const char *why = try_library(candidates[i], false);
        if (!why) {
            note_found();
            return;
        }
        if (strcmp(why, "is not installed") != 0 && used < sizeof blas.detail)
            used += (size_t)snprintf(blas.detail + used, sizeof blas.detail - used, "%s%s %s",
                                     used ? "; " : "", candidates[i], why);
    }
    if (used == 0)
        snprintf(blas.detail, sizeof blas.detail,
                 "no OpenBLAS, BLIS, MKL or libblas.so.3 is installed");
}

// TN_BLAS decides: "none", a library, or, if it is not set, the first that is found.
static void find_blas_once(void)
{
    const char *named = getenv("TN_BLAS");
    if (named && strcmp(named, "none") == 0)
        snprintf(blas.detail, sizeof blas.detail, "TN_BLAS=none asks for our own product");
    else if (!can_load())
        snprintf(blas.detail, sizeof blas.detail,
                 "there is too little address space for a BLAS (ulimit -v)");
    else if (named && *named) find_named(named);
    else find_any();
    if (!blas.info.found) blas.info.detail = blas.detail;
}

// MKL is for x86 alone.
#if defined(__x86_64__) || defined(__i386__)
enum { MKL_RUNS = true };
#else
enum { MKL_RUNS = false };
#endif

bool tni_blas_may_lead(void)
{
    const char *named = getenv("TN_BLAS");
    return named && *named ? strcmp(named, "none") != 0 : MKL_RUNS;
}

tni_blas_info tni_blas_find(void)
{
    pthread_once(&once, find_blas_once);
    return blas.info;
}

// ---- memory and calls --------------------------------------------------------------------------

// Makes OpenBLAS map buffers for `count` concurrent calls, which it then keeps: takes them all at
// once and returns them. It has slots for about twice its threads, usually 64, its own among them,
// and complains beyond that; so calls past 64, and other libraries, only get the check for address
// space.
static bool map_buffers(int count)
{
    enum { MOST = 64 };
    void *buffer[MOST];
    bool  ok = true;
    int   n  = 0;
    for (; ok && n < count && n < MOST; n++) ok = (buffer[n] = blas.take_buffer(0)) != NULL;
    while (n-- > 0)
        if (buffer[n]) blas.give_buffer(buffer[n]);
    return ok;
}

// Returns whether there is memory for `count` concurrent calls. One buffer more than needed must
// fit, to leave space for what other threads allocate meanwhile. Under the lock.
static bool make_ready(int count)
{
    int ready = atomic_load_explicit(&calls.ready, memory_order_relaxed);
    if (count <= ready) return true;
    if (calls.full) return false;
    calls.full = !can_map((size_t)(count - ready + 1) * BUFFER) ||
                 (blas.take_buffer && !map_buffers(count));
    if (!calls.full) atomic_store_explicit(&calls.ready, count, memory_order_release);
    return !calls.full;
}

const tni_blas *tni_blas_get(int count)
{
    pthread_once(&once, find_blas_once);
    if (!blas.info.found) return NULL;
    if (count <= atomic_load_explicit(&calls.ready, memory_order_acquire)) return &blas.calls;
    pthread_mutex_lock(&calls.lock);
    bool ok = make_ready(count);
    pthread_mutex_unlock(&calls.lock);
    return ok ? &blas.calls : NULL;
}

const tni_lapack *tni_lapack_get(int count)
{
    return tni_blas_get(count) && blas.has_lapack ? &blas.lapack : NULL;
}

// If another user is there, its calls and ours share the cores already.
void tni_blas_widen(int threads)
{
    pthread_mutex_lock(&calls.lock);
    if (calls.users == 1 && blas.get_threads && threads > 1) {
        blas.set_threads(threads);
        calls.wide = true;
    }
    pthread_mutex_unlock(&calls.lock);
}

// Several contexts may call at a time: if there is no memory for the calls of all of them, one
// waits until another leaves.
void tni_blas_enter(int count)
{
    pthread_mutex_lock(&calls.lock);
    while (calls.users && !make_ready(calls.running + count))
        pthread_cond_wait(&calls.left, &calls.lock);
    calls.running += count;
    if (calls.users++ == 0 && blas.get_threads) {
        calls.threads = blas.get_threads();
        if (calls.threads != 1) blas.set_threads(1);
    }
    pthread_mutex_unlock(&calls.lock);
}

void tni_blas_leave(int count)
{
    pthread_mutex_lock(&calls.lock);
    calls.running -= count;
    if (--calls.users == 0 && blas.get_threads && (calls.threads != 1 || calls.wide)) {
        blas.set_threads(calls.threads);
        calls.wide = false;
    }
    if (calls.full) pthread_cond_broadcast(&calls.left);
    pthread_mutex_unlock(&calls.lock);
}
