// MPI by dlopen. A handle (of a communicator, a datatype, an operation) is an int in MPICH, the
// address of an exported object in Open MPI, and a small number in a pointer in the standard
// interface; so every call that takes one exists twice here (mpi_calls.h), and the values are in
// tables.
//
// Collectives are the blocking ones: the algorithms of the others are poor. By Open MPI 4.1, 26 MB
// between 8 processes of an x86 machine take 34 ms instead of 13.
#include "dist/dist_engine.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// A handle of either type.
typedef union {
    void *p;
    int   i;
} tni_mpi_handle;

typedef enum { OPEN_MPI, MPICH, STANDARD } interface;

// An MPI library in the process. type and op: by tn_dtype and tni_reduction.
typedef struct {
    interface      kind;
    void          *lib;
    char           file[PATH_MAX];
    tni_mpi_handle world, errors_return, comm, type[TNI_DTYPES], op[TNI_REDUCTIONS];
    bool           has_type[TNI_DTYPES];
    void          *in_place;
    int            serialized;  // the thread level that we need
} mpi_library;

// Copies the address of a symbol into a function pointer, which ISO C does not allow by assignment.
static bool find_symbol(void *lib, const char *name, void *to, size_t size)
{
    void *p = dlsym(lib, name);
    memcpy(to, &p, size);
    return p != NULL;
}

typedef void *pointer;
#define HANDLE   pointer
#define NAMED(x) ptr_##x
#define OF(h)    (h).p
#include "dist/mpi_calls.h"

#define HANDLE   int
#define NAMED(x) int_##x
#define OF(h)    (h).i
#include "dist/mpi_calls.h"

// MPI is of the process, not of a context: it starts once and ends once. `dead` says why it cannot
// be used any more, "" while it can.
static struct {
    pthread_mutex_t lock;
    mpi_library     m;
    ptr_calls       ptr;
    int_calls       ints;
    bool            loaded, started, ours, in_use;
    tni_text        dead;
    int (*error_string)(int, char *, int *);
} mpi = { .lock = PTHREAD_MUTEX_INITIALIZER };

// ---- finding the library -----------------------------------------------------------------------

// The files of each launcher's own library come first: processes that Open MPI's launcher started
// cannot be connected by MPICH. Debian's name of MPICH is libmpich.so.12.
static const char *const of_open_mpi[] = { "libmpi.so.40", "libmpi_abi.so.1", NULL };
static const char *const of_mpich[] = { "libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1", NULL };
static const char *const of_any[]   = { "libmpi.so.40", "libmpi.so.12", "libmpich.so.12",
                                        "libmpi_abi.so.1", NULL };

static const char *const *names_for(const char *launcher)
{
    if (launcher && !strcmp(launcher, "Open MPI")) return of_open_mpi;
    return launcher && !strcmp(launcher, "MPICH") ? of_mpich : of_any;
}

// Opens a library for all others to see, since the plugins of Open MPI look for its symbols so.
static void *open_library(const char *file, int flags)
{
    void *lib = dlopen(file, RTLD_NOW | RTLD_GLOBAL | flags);
    if (lib) snprintf(mpi.m.file, sizeof mpi.m.file, "%s", file);
    return lib;
}

// Looks in the lib folder beside the bin folder of the first mpiexec of PATH: an MPI outside of the
// loader's path is put into PATH by whoever uses it.
static void *open_beside_mpiexec(const char *const *names)
{
    const char *path = getenv("PATH");
    for (const char *end; path && *path; path = *end ? end + 1 : end) {
        char file[PATH_MAX];
        end   = path + strcspn(path, ":");
        int n = snprintf(file, sizeof file, "%.*s/mpiexec", (int)(end - path), path);
        if (n < 0 || (size_t)n >= sizeof file - 32 || access(file, X_OK) != 0) continue;
        for (; *names; names++) {
            snprintf(file + (end - path), sizeof file - (size_t)(end - path), "/../lib/%s", *names);
            void *lib = access(file, R_OK) == 0 ? open_library(file, 0) : NULL;
            if (lib) return lib;
        }
        return NULL;
    }
    return NULL;
}

// TN_MPI, what the process has already, beside mpiexec, the loader's path.
static void *find_library(const char *launcher, tni_text *why)
{
    const char *const *names = names_for(launcher), *set = getenv("TN_MPI");
    void              *lib = NULL;
    if (set && *set) {
        lib                = strcmp(set, "none") ? open_library(set, 0) : NULL;
        const char *reason = lib || !strcmp(set, "none") ? NULL : dlerror();
        if (!lib) *why = tni_text_of("TN_MPI=%.100s cannot be loaded", set);
        if (reason) tni_text_add(why, ": %.100s", reason);
        return lib;
    }
    for (int i = 0; !lib && names[i]; i++) lib = open_library(names[i], RTLD_NOLOAD);
    if (!lib) lib = open_beside_mpiexec(names);
    for (int i = 0; !lib && names[i]; i++) lib = open_library(names[i], 0);
    if (!lib)
        *why = tni_text_of("no MPI library was found (%s); on Debian or Ubuntu: apt install "
                           "%s; TN_MPI names a file",
                           names[0], names == of_mpich ? "mpich" : "openmpi-bin");
    return lib;
}

// ---- the three interfaces ----------------------------------------------------------------------

// The datatypes that MPI has, with the end of Open MPI's symbol, MPICH's number and the standard's.
// A bool is a byte of 0 or 1; 16-bit floats have no type.
static const struct {
    tn_dtype    dtype;
    const char *open_mpi;
    int         mpich, standard;
} types[] = {
    { TN_BOOL, "uint8_t", 0x4c00013b, 0x241 }, { TN_U8, "uint8_t", 0x4c00013b, 0x241 },
    { TN_I8, "int8_t", 0x4c000137, 0x240 },    { TN_I16, "int16_t", 0x4c000238, 0x248 },
    { TN_U16, "uint16_t", 0x4c00023c, 0x249 }, { TN_I32, "int32_t", 0x4c000439, 0x250 },
    { TN_U32, "uint32_t", 0x4c00043d, 0x251 }, { TN_I64, "int64_t", 0x4c00083a, 0x258 },
    { TN_U64, "uint64_t", 0x4c00083e, 0x259 }, { TN_F32, "float", 0x4c00040a, 0x210 },
    { TN_F64, "double", 0x4c00080b, 0x214 },
};

static const struct {
    const char *open_mpi;
    int         mpich, standard;
} ops[TNI_REDUCTIONS] = {
    [TNI_REDUCE_SUM] = { "sum", 0x58000003, 0x21 },
    [TNI_REDUCE_MAX] = { "max", 0x58000001, 0x23 },
    [TNI_REDUCE_MIN] = { "min", 0x58000002, 0x22 },
};

enum { TYPES = sizeof types / sizeof *types };

// Returns a handle by the interface of the library; Open MPI's is the address of a symbol, `name`
// with the beginning that all have.
static tni_mpi_handle handle_of(const mpi_library *m, const char *name, int mpich, int standard)
{
    char symbol[64];
    if (m->kind == MPICH) return (tni_mpi_handle){ .i = mpich };
    if (m->kind == STANDARD) return (tni_mpi_handle){ .p = (void *)(intptr_t)standard };
    snprintf(symbol, sizeof symbol, "ompi_mpi_%s", name);
    return (tni_mpi_handle){ .p = dlsym(m->lib, symbol) };
}

// Open MPI exports its objects; a library with the standard interface says which version of it it
// has, as does MPICH's own, which answers -1.
static interface interface_of(void *lib)
{
    int (*version)(int *, int *), major = -1, minor;
    if (dlsym(lib, "ompi_mpi_comm_world")) return OPEN_MPI;
    if (!find_symbol(lib, "MPI_Abi_get_version", &version, sizeof version)) return MPICH;
    return version(&major, &minor) == 0 && major > 0 ? STANDARD : MPICH;
}

static void fill_handles(mpi_library *m)
{
    char name[16];
    m->world         = handle_of(m, "comm_world", 0x44000000, 0x101);
    m->errors_return = handle_of(m, "errors_return", 0x54000001, 0x143);
    m->in_place      = m->kind == MPICH ? (void *)-1 : (void *)1;
    m->serialized    = m->kind == STANDARD ? 2048 : 2;
    for (int i = 0; i < TYPES; i++) {
        m->type[types[i].dtype]     = handle_of(m, types[i].open_mpi, types[i].mpich,
                                                types[i].standard);
        m->has_type[types[i].dtype] = true;
    }
    for (int i = 0; i < TNI_REDUCTIONS; i++) {
        snprintf(name, sizeof name, "op_%s", ops[i].open_mpi);
        m->op[i] = handle_of(m, name, ops[i].mpich, ops[i].standard);
    }
}

// Finds a library and its functions. For whoever holds the lock.
static bool load_library(const char *launcher, tni_text *why)
{
    if (mpi.loaded) return true;
    mpi_library *m = &mpi.m;
    m->lib         = find_library(launcher, why);
    if (!m->lib) return false;
    m->kind             = interface_of(m->lib);
    const char *missing = m->kind == MPICH ? int_find_calls(&mpi.ints, m->lib)
                                           : ptr_find_calls(&mpi.ptr, m->lib);
    fill_handles(m);
    if (!missing &&
        !find_symbol(m->lib, "MPI_Error_string", &mpi.error_string, sizeof mpi.error_string))
        missing = "MPI_Error_string";
    if (missing) *why = tni_text_of("%.100s lacks %s, of MPI 3", m->file, missing);
    return mpi.loaded = !missing;
}

// A version has many lines in some libraries; the first says what it is.
static bool describe(const char *launcher, tni_text *what)
{
    char version[8192] = "";  // what the standard asks for
    int  n             = 0;
    int (*get_version)(char *, int *);
    pthread_mutex_lock(&mpi.lock);
    bool ok = load_library(launcher, what);
    if (ok && find_symbol(mpi.m.lib, "MPI_Get_library_version", &get_version, sizeof get_version))
        get_version(version, &n);
    version[strcspn(version, ",\n")] =
        0;  // Open MPI goes on with its package, MPICH with its build
    for (char *c = version; *c; c++)
        if (*c == '\t') *c = ' ';
    if (ok)
        *what = tni_text_of("%.60s%s (%.100s)", version,
                            mpi.m.kind == STANDARD ? ", standard interface" : "", mpi.m.file);
    pthread_mutex_unlock(&mpi.lock);
    return ok;
}

// ---- starting and ending -----------------------------------------------------------------------

static bool mpi_fails(int error, const char *call, tni_text *why)
{
    char text[8192] = "";
    int  n;
    if (!error) return false;
    mpi.error_string(error, text, &n);
    *why = tni_text_of("%s: %.120s", call, text);
    return true;
}

// Ends MPI with the process. All ranks closed their worlds in order, or `dead` says otherwise: then
// the launcher ends the others.
static void finalize(void)
{
    int (*end)(void), (*ended)(int *), is = 0;
    if (*mpi.dead.s || mpi.in_use || !mpi.ours ||
        !find_symbol(mpi.m.lib, "MPI_Finalized", &ended, sizeof ended) || ended(&is) || is)
        return;
    if (find_symbol(mpi.m.lib, "MPI_Finalize", &end, sizeof end)) end();
}

// Starts MPI unless the program did. Calls come from one thread at a time.
static bool start_mpi(tni_text *why)
{
    int (*init)(int *, char ***, int, int *), (*asked)(int *), is = 0, level = 0;
    if (mpi.started) return true;
    if (!find_symbol(mpi.m.lib, "MPI_Init_thread", &init, sizeof init) ||
        !find_symbol(mpi.m.lib, "MPI_Initialized", &asked, sizeof asked)) {
        *why = tni_text_of("%.100s lacks MPI_Init_thread", mpi.m.file);
        return false;
    }
    asked(&is);
    if (!is && mpi_fails(init(NULL, NULL, mpi.m.serialized, &level), "MPI_Init_thread", why))
        return false;
    mpi.ours = !is;
    if (mpi.ours) atexit(finalize);
    return mpi.started = true;
}

static bool open_world(int *rank, int *size, tni_text *why)
{
    int error = mpi.m.kind == MPICH ? int_open(&mpi.ints, &mpi.m, rank, size)
                                    : ptr_open(&mpi.ptr, &mpi.m, rank, size);
    return !mpi_fails(error, "MPI_Comm_dup", why);
}

// Takes MPI for a world, if no other one has it.
static bool claim(const char *launcher, tni_text *why)
{
    pthread_mutex_lock(&mpi.lock);
    bool ok = !mpi.in_use && !*mpi.dead.s;
    if (mpi.in_use) *why = tni_text_of("a world of this process is open already");
    else if (!ok) *why = tni_text_of("MPI cannot be used again: %.120s", mpi.dead.s);
    ok         = ok && load_library(launcher, why);
    mpi.in_use = mpi.in_use || ok;
    pthread_mutex_unlock(&mpi.lock);
    return ok;
}

// What waits for other processes is called without the lock: the world may have to give it up.
static bool open_mpi(tni_engine_open *o, tni_text *why)
{
    if (!claim(o->launcher, why)) return false;
    if (start_mpi(why) && open_world(&o->rank, &o->size, why)) return true;
    pthread_mutex_lock(&mpi.lock);
    mpi.in_use = false;
    pthread_mutex_unlock(&mpi.lock);
    return false;
}

static void close_mpi(bool in_order)
{
    pthread_mutex_lock(&mpi.lock);
    if (!in_order && !*mpi.dead.s) mpi.dead = tni_text_of("a world did not end in order");
    if (in_order && !*mpi.dead.s)
        (void)(mpi.m.kind == MPICH ? int_close(&mpi.ints, &mpi.m) : ptr_close(&mpi.ptr, &mpi.m));
    mpi.in_use = false;
    pthread_mutex_unlock(&mpi.lock);
}

// ---- collectives -------------------------------------------------------------------------------

// The part of a collective that begins with element `at`, for one that can be cut.
static tni_collective part_at(const tni_collective *c, int64_t at)
{
    size_t         skip = (size_t)at * tni_dtype_size(c->dtype);
    tni_collective part = *c;
    part.in             = c->in ? (const char *)c->in + skip : NULL;
    part.out            = c->out ? (char *)c->out + skip : NULL;
    return part;
}

static bool can_be_cut(const tni_collective *c)
{
    return c->kind == TNI_BROADCAST || c->kind == TNI_ALL_REDUCE;
}

// An all-reduce of little, asleep: the blocking calls spin until the last rank has come, on a core
// that the computation may need. So ranks wait here, where they compare what follows, and then are
// all there.
static bool run_asleep(const tni_collective *c, tni_text *why)
{
    enum { SPINS = 10 };  // about as long as it takes if all are there
    const struct timespec pause   = { .tv_nsec = 20000 };
    tni_mpi_handle        request = { 0 };
    int                   done    = 0;
    int                   error   = mpi.m.kind == MPICH ? int_start(&mpi.ints, &mpi.m, c, &request)
                                                        : ptr_start(&mpi.ptr, &mpi.m, c, &request);
    for (int i = 0; !error && !done; i++) {
        if (i > SPINS) nanosleep(&pause, NULL);
        error = mpi.m.kind == MPICH ? int_test(&mpi.ints, &request, &done)
                                    : ptr_test(&mpi.ptr, &request, &done);
    }
    return !mpi_fails(error, "MPI", why);
}

// Counts of MPI are ints: a large broadcast or all-reduce is done in pieces. The others would have
// to be cut between ranks, and are refused. Sums of a mebibyte stay in the caches of the cores that
// exchange them: by 8 processes 26 MB are reduced in 13 ms so, and in 15 to 16 at once.
static bool run(const tni_collective *c, tni_text *why)
{
    enum { MEBI = 1 << 20, LITTLE = 16 };
    bool    cut   = can_be_cut(c);
    int64_t piece = cut ? MEBI / (int64_t)tni_dtype_size(c->dtype) : INT_MAX;
    if (!mpi.m.has_type[c->dtype] || (c->count > INT_MAX && !cut)) {
        *why = tni_text_of("%lld elements of %s are no collective of MPI", (long long)c->count,
                           tni_dtype_table[c->dtype].name);
        return false;
    }
    if (c->kind == TNI_ALL_REDUCE && c->in == c->out && c->count <= LITTLE)
        return run_asleep(c, why);
    int64_t at = 0;
    do {
        tni_collective part  = part_at(c, at);
        int            n     = (int)(c->count - at < piece ? c->count - at : piece);
        int            error = mpi.m.kind == MPICH ? int_run(&mpi.ints, &mpi.m, &part, n)
                                                   : ptr_run(&mpi.ptr, &mpi.m, &part, n);
        if (mpi_fails(error, "MPI", why)) return false;
        at += n;
    } while (at < c->count);
    return true;
}

static bool yes(void)
{
    return true;
}

const tni_dist_engine tni_mpi = { .name     = "mpi",
                                  .describe = describe,
                                  .open     = open_mpi,
                                  .on_host  = yes,
                                  .run      = run,
                                  .close    = close_mpi };
