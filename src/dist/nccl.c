// NCCL by dlopen, version 2.19 or later. Its collectives are put into a stream of the GPU, and
// errors of other ranks come later, if at all: whoever has the world asks for them while it waits,
// and gives up by abort, which ends the kernels that wait for a rank that is gone.
//
// The communicator is a blocking one: a nonblocking one would start a thread for every collective.
#include "dist/dist_engine.h"
#include "base/find_libraries.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// What is an enum in NCCL is an int here, a stream and a communicator are pointers.
typedef struct {
    char bytes[TNI_ENGINE_ID];
} nccl_id;

// The beginning of ncclConfig_t as of 2.18: a library takes `size` bytes of it and ignores what is
// newer than `version`. A number that is not set is INT_MIN.
typedef struct {
    size_t      size;
    unsigned    magic, version;
    int         blocking, cluster, min_ctas, max_ctas;
    const char *net;
    int         split_share;
} nccl_config;

// The functions of the library. CALL: the field, its name and its parameters.
#define CALLS                                                                                     \
    CALL(version, ncclGetVersion, (int *version))                                                 \
    CALL(get_id, ncclGetUniqueId, (nccl_id * id))                                                 \
    CALL(init, ncclCommInitRankConfig,                                                            \
         (void **comm, int size, nccl_id id, int rank, nccl_config *config))                      \
    CALL(all_reduce, ncclAllReduce,                                                               \
         (const void *in, void *out, size_t count, int type, int op, void *comm, void *stream))   \
    CALL(all_gather, ncclAllGather,                                                               \
         (const void *in, void *out, size_t count, int type, void *comm, void *stream))           \
    CALL(reduce_scatter, ncclReduceScatter,                                                       \
         (const void *in, void *out, size_t count, int type, int op, void *comm, void *stream))   \
    CALL(broadcast, ncclBroadcast,                                                                \
         (const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)) \
    CALL(async_error, ncclCommGetAsyncError, (void *comm, int *error))                            \
    CALL(abort, ncclCommAbort, (void *comm))                                                      \
    CALL(destroy, ncclCommDestroy, (void *comm))

typedef struct {
#define CALL(field, name, params) int(*field) params;
    CALLS
#undef CALL
} nccl_calls;

static const tni_symbol symbols[] = {
#define CALL(field, name, params) { offsetof(nccl_calls, field), #name },
    CALLS
#undef CALL
};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };

enum { OLDEST = 21900, SUCCESS = 0, IN_PROGRESS = 7, MAGIC = (int)0xcafebeef };

// NCCL as this process uses it. The lock guards what is loaded, the communicator, which is made,
// used and ended by different threads, and `dead`. It is not held in a call that uses the
// communicator, since one that waits is ended by abort: `users` counts these. `dead` says why it
// cannot be used any more, "" while it can.
static struct {
    pthread_mutex_t lock;
    nccl_calls      f;
    const char *(*error_string)(int);
    const char *(*last_error)(void *);  // NULL: the library has none
    bool       loaded, in_use, on_host;
    atomic_int users;
    int        version;
    void      *comm;
    tni_text   file, dead;
} nccl = { .lock = PTHREAD_MUTEX_INITIALIZER };

// ---- the library -------------------------------------------------------------------------------

// TN_NCCL, else what the process has, wheels, the loader's path.
static void *find_library(tni_text *why)
{
    static const char *const names[] = { "libnccl.so.2", NULL };
    const char              *set     = getenv("TN_NCCL");
    void                    *lib;
    nccl.file = (tni_text){ "" };
    if (set && *set) {
        lib = strcmp(set, "none") ? dlopen(set, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (lib) nccl.file = tni_text_of("%s", set);
        else *why = tni_text_of("TN_NCCL=%.100s cannot be loaded", set);
        const char *reason = lib || !strcmp(set, "none") ? NULL : dlerror();
        if (reason) tni_text_add(why, ": %.100s", reason);
        return lib;
    }
    lib = tni_nvidia_open(names, &nccl.file);
    if (!lib)
        *why = tni_text_of(
            "no NCCL library was found (libnccl.so.2): pip install nvidia-nccl-cu13, or "
            "apt install libnccl2; TN_NCCL names a file");
    return lib;
}

// Opens the library and finds its functions, once.
static bool load_library(tni_text *why)
{
    if (nccl.loaded) return true;
    void *lib = find_library(why);
    if (!lib) return false;
    const char *missing = tni_symbols_fill(lib, &nccl.f, symbols, SYMBOLS);
    void       *text = dlsym(lib, "ncclGetErrorString"), *last = dlsym(lib, "ncclGetLastError");
    memcpy(&nccl.error_string, &text, sizeof text);
    memcpy(&nccl.last_error, &last, sizeof last);
    if (!text && !missing) missing = "ncclGetErrorString";
    bool ok = !missing && nccl.f.version(&nccl.version) == SUCCESS && nccl.version >= OLDEST;
    if (missing) *why = tni_text_of("%.100s lacks %s", nccl.file.s, missing);
    else if (!ok)
        *why = tni_text_of("%.80s is NCCL %d.%d.%d; 2.19 or later is needed", nccl.file.s,
                           nccl.version / 10000, nccl.version / 100 % 100, nccl.version % 100);
    // A library of the same functions for host memory, such as the tests have, says so.
    nccl.on_host       = dlsym(lib, "ncclTakesHostMemory") != NULL;
    return nccl.loaded = ok;
}

static bool describe(const char *launcher, tni_text *what)
{
    (void)launcher;
    pthread_mutex_lock(&nccl.lock);
    bool ok = load_library(what);
    if (ok)
        *what = tni_text_of("%d.%d.%d (%.120s)", nccl.version / 10000, nccl.version / 100 % 100,
                            nccl.version % 100, nccl.file.s);
    pthread_mutex_unlock(&nccl.lock);
    return ok;
}

static bool on_host(void)
{
    return nccl.on_host;
}

static bool fails(int error, const char *call, tni_text *why)
{
    if (error == SUCCESS) return false;
    const char *last = nccl.last_error ? nccl.last_error(NULL) : NULL;
    *why             = tni_text_of("%s: %.60s", call, nccl.error_string(error));
    if (last && *last) tni_text_add(why, ": %.80s", last);
    for (char *c = why->s; *c; c++)
        if (*c == '\n') *c = ' ';
    return true;
}

// ---- opening and closing -----------------------------------------------------------------------

static bool make_id(uint8_t id[TNI_ENGINE_ID], tni_text *why)
{
    nccl_id made;
    pthread_mutex_lock(&nccl.lock);
    bool ok = load_library(why) && !fails(nccl.f.get_id(&made), "ncclGetUniqueId", why);
    pthread_mutex_unlock(&nccl.lock);
    if (ok) memcpy(id, made.bytes, sizeof made.bytes);
    return ok;
}

// Takes NCCL for a world, if no other one has it.
static bool claim(tni_text *why)
{
    pthread_mutex_lock(&nccl.lock);
    bool ok = !nccl.in_use && !*nccl.dead.s;
    if (nccl.in_use) *why = tni_text_of("a world of this process is open already");
    else if (!ok) *why = tni_text_of("NCCL cannot be used again: %.120s", nccl.dead.s);
    ok          = ok && load_library(why);
    nccl.in_use = nccl.in_use || ok;
    pthread_mutex_unlock(&nccl.lock);
    return ok;
}

// The communicator is made without the lock, since that waits for other ranks: the world may give
// it up meanwhile.
static bool open_nccl(tni_engine_open *o, tni_text *why)
{
    nccl_config config = { .size        = sizeof config,
                           .magic       = (unsigned)MAGIC,
                           .version     = 21800,
                           .blocking    = 1,
                           .cluster     = INT_MIN,
                           .min_ctas    = INT_MIN,
                           .max_ctas    = INT_MIN,
                           .split_share = INT_MIN };
    nccl_id     id;
    void       *comm = NULL;
    if (!claim(why)) return false;
    memcpy(id.bytes, o->id, sizeof id.bytes);
    if (o->enter) o->enter(o->user);
    int error = nccl.f.init(&comm, o->size, id, o->rank, &config);
    pthread_mutex_lock(&nccl.lock);
    bool ok     = !fails(error, "ncclCommInitRankConfig", why) && !*nccl.dead.s;
    nccl.comm   = ok ? comm : NULL;
    nccl.in_use = ok;
    pthread_mutex_unlock(&nccl.lock);
    return ok;
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

// Ending can wait for other ranks, or for ever: a thread does it.
typedef struct {
    void      *comm;
    bool       abort;
    atomic_int state;
} ending;

static void *end_comm(void *arg)
{
    ending *e = arg;
    (void)(e->abort ? nccl.f.abort(e->comm) : nccl.f.destroy(e->comm));
    if (atomic_fetch_add(&e->state, 1) == 1) free(e);
    return NULL;
}

// Takes the communicator away from whoever would use it from now on.
static void *take_comm(void)
{
    void *comm = nccl.comm;
    nccl.comm  = NULL;
    return comm;
}

// Ends a communicator within five seconds, or leaves it to its thread. Without the lock.
static void end_with_limit(void *comm, bool abort)
{
    enum { LIMIT = 5000, LOOK = 1 };  // ms
    pthread_t thread;
    ending   *e = comm ? calloc(1, sizeof *e) : NULL;
    if (!e) return;
    e->comm  = comm;
    e->abort = abort;
    if (pthread_create(&thread, NULL, end_comm, e) != 0) {
        free(e);
        return;
    }
    pthread_detach(thread);
    for (int ms = 0; ms < LIMIT && !atomic_load(&e->state); ms += LOOK) sleep_ms(LOOK);
    if (atomic_fetch_add(&e->state, 1) == 1) free(e);
}

// A call that puts a collective into a stream returns soon, and is waited for; one that waits for
// other ranks ends by this.
static void abort_nccl(void)
{
    enum { LIMIT = 100 };  // ms
    pthread_mutex_lock(&nccl.lock);
    void *comm = take_comm();
    if (comm && !*nccl.dead.s) nccl.dead = tni_text_of("a collective was given up");
    pthread_mutex_unlock(&nccl.lock);
    for (int ms = 0; comm && ms < LIMIT && atomic_load(&nccl.users); ms++) sleep_ms(1);
    end_with_limit(comm, true);
}

static void close_nccl(bool in_order)
{
    pthread_mutex_lock(&nccl.lock);
    if (!in_order && !*nccl.dead.s) nccl.dead = tni_text_of("a world did not end in order");
    void *comm  = take_comm();
    bool  abort = *nccl.dead.s;
    pthread_mutex_unlock(&nccl.lock);
    end_with_limit(comm, abort);
    pthread_mutex_lock(&nccl.lock);
    nccl.in_use = false;
    pthread_mutex_unlock(&nccl.lock);
}

// ---- collectives -------------------------------------------------------------------------------

// The numbers of types; -1: NCCL has no such type. Bytes of a type without one are moved as bytes.
static int type_of(tn_dtype dt)
{
    switch (dt) {
    case TN_I8: return 0;
    case TN_U8:
    case TN_BOOL: return 1;
    case TN_I32: return 2;
    case TN_U32: return 3;
    case TN_I64: return 4;
    case TN_U64: return 5;
    case TN_F32: return 7;
    case TN_F64: return 8;
    default: return -1;
    }
}

// Returns the communicator for a call, until done_with_comm; NULL, with the reason, if there is
// none.
static void *use_comm(tni_text *why)
{
    pthread_mutex_lock(&nccl.lock);
    void *comm = *nccl.dead.s ? NULL : nccl.comm;
    if (comm) atomic_fetch_add(&nccl.users, 1);
    else *why = nccl.dead;
    pthread_mutex_unlock(&nccl.lock);
    return comm;
}

static void done_with_comm(void)
{
    atomic_fetch_sub(&nccl.users, 1);
}

static int start_call(const tni_collective *c, int type, size_t count, void *comm, void *stream)
{
    static const int ops[] = { [TNI_REDUCE_SUM] = 0, [TNI_REDUCE_MAX] = 2, [TNI_REDUCE_MIN] = 3 };
    switch (c->kind) {
    case TNI_BROADCAST: return nccl.f.broadcast(c->in, c->out, count, type, c->root, comm, stream);
    case TNI_ALL_REDUCE:
        return nccl.f.all_reduce(c->in, c->out, count, type, ops[c->op], comm, stream);
    case TNI_ALL_GATHER: return nccl.f.all_gather(c->in, c->out, count, type, comm, stream);
    case TNI_REDUCE_SCATTER:
        return nccl.f.reduce_scatter(c->in, c->out, count, type, ops[c->op], comm, stream);
    case TNI_BARRIER: break;
    }
    return SUCCESS;
}

// Puts a collective into a stream. The call returns before it runs.
static bool start(const tni_collective *c, void *stream, tni_text *why)
{
    int    type  = type_of(c->dtype);
    size_t count = (size_t)c->count;
    bool   moves = c->kind == TNI_BROADCAST || c->kind == TNI_ALL_GATHER;
    if (type < 0 && moves) {
        count *= tni_dtype_size(c->dtype);
        type = 1;
    }
    if (type < 0) {
        *why = tni_text_of("NCCL has no %s", tni_dtype_table[c->dtype].name);
        return false;
    }
    void *comm = use_comm(why);
    if (!comm) return false;
    int error = start_call(c, type, count, comm, stream);
    done_with_comm();
    if (!fails(error, "NCCL", why)) return true;
    pthread_mutex_lock(&nccl.lock);
    if (!*nccl.dead.s) nccl.dead = *why;
    pthread_mutex_unlock(&nccl.lock);
    return false;
}

// In host memory a collective is done when its call returns.
static bool run(const tni_collective *c, tni_text *why)
{
    return start(c, NULL, why);
}

static bool failed(tni_text *why)
{
    tni_text none;
    int      error = SUCCESS;
    void    *comm  = use_comm(&none);
    if (!comm) return false;
    int asked = nccl.f.async_error(comm, &error);
    done_with_comm();
    if (asked == SUCCESS && (error == SUCCESS || error == IN_PROGRESS)) return false;
    return fails(asked ? asked : error, "NCCL", why);
}

const tni_dist_engine tni_nccl = { .name     = "nccl",
                                   .describe = describe,
                                   .make_id  = make_id,
                                   .open     = open_nccl,
                                   .on_host  = on_host,
                                   .run      = run,
                                   .start    = start,
                                   .failed   = failed,
                                   .abort    = abort_nccl,
                                   .close    = close_nccl };
