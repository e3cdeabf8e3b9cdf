// A library with the functions of NCCL that Tenon calls, for tests: its ranks are processes of one
// machine, which exchange what they send through shared memory, in pieces. It moves host memory,
// when the stream is NULL, and memory of a GPU: a copy to the host, a function of the stream that
// exchanges, and a copy back, so that it runs beside other work.
//
// It records the calls of each rank, as text, into the file NCCL_STANDIN_LOG with the rank's number
// behind it, and behaves badly where it is asked to:
//
//   NCCL_STANDIN_FAIL=n   call n of a rank, counted from 1, fails
//   NCCL_STANDIN_SLOW=ms  each exchange takes that much longer
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 8, PIECE = 1 << 18 };  // bytes that a rank shows to the others at once
enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, BAD_ARGUMENT, BAD_USAGE, REMOTE_ERROR };
enum { I8, U8, I32, U32, I64, U64, F16, F32, F64 };
enum { SUM, PROD, MAX, MIN };
enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST };

typedef struct {
    char name[128];
} unique_id;

// What all ranks see. A rank writes its piece, arrives, reads the others' pieces, and arrives
// again.
typedef struct {
    atomic_int  joined, left, aborted;
    atomic_uint arrived;
    long        call[RANKS][5];  // what each rank is about to do
    char        piece[RANKS][PIECE];
} shared;

// What a rank has. staging is pinned memory, of a GPU's.
typedef struct {
    shared    *s;
    int        rank, size;
    unsigned   rounds;  // of arriving, so far
    int        calls, fail_at, slow;
    FILE      *log;
    char       name[128];
    char      *staging;
    size_t     staging_bytes;
    atomic_int error;
} comm;

// One exchange, as a function of a stream gets it.
typedef struct {
    comm  *c;
    int    kind, type, op, root;
    size_t count;
    char  *in, *out;
    int    in_stream;
} job;

int ncclTakesHostMemory = 1;

// ---- the driver, for memory of a GPU -----------------------------------------------------------

static struct {
    int (*host_alloc)(void **, size_t, unsigned);
    int (*host_free)(void *);
    int (*copy_out)(void *, uint64_t, size_t, void *);
    int (*copy_in)(uint64_t, const void *, size_t, void *);
    int (*call)(void *, void (*)(void *), void *);
    int (*wait)(void *);
} cu;

static int find_driver(void)
{
    static const char *const names[] = { "cuMemHostAlloc",       "cuMemFreeHost",
                                         "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2",
                                         "cuLaunchHostFunc",     "cuStreamSynchronize" };
    void                    *lib     = dlopen("libcuda.so.1", RTLD_NOW);
    for (int i = 0; i < 6; i++) {
        void *p = lib ? dlsym(lib, names[i]) : NULL;
        if (!p) return 0;
        memcpy((char *)&cu + (size_t)i * sizeof p, &p, sizeof p);
    }
    return 1;
}

// ---- exchanging --------------------------------------------------------------------------------

static void pause_ns(long ns)
{
    nanosleep(&(struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 }, NULL);
}

// Waits until all ranks are here; 0: they were given up.
static int arrive(comm *c)
{
    unsigned target = ++c->rounds * (unsigned)c->size;
    atomic_fetch_add(&c->s->arrived, 1);
    for (int i = 0; (int)(atomic_load(&c->s->arrived) - target) < 0; i++) {
        if (atomic_load(&c->s->aborted)) return 0;
        if (i > 100) pause_ns(20000);
    }
    return !atomic_load(&c->s->aborted);
}

static size_t size_of(int type)
{
    static const size_t size[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8 };
    return size[type];
}

#define REDUCE(T)                                                                              \
    for (size_t i = 0; i < n; i++) {                                                           \
        T a = ((T *)to)[i], b = ((const T *)from)[i];                                          \
        ((T *)to)[i] = op == SUM ? (T)(a + b) : op == MAX ? (a > b ? a : b) : (a < b ? a : b); \
    }                                                                                          \
    break

static void reduce(void *to, const void *from, size_t n, int type, int op)
{
    switch (type) {
    case I8: REDUCE(int8_t);
    case U8: REDUCE(uint8_t);
    case I32: REDUCE(int32_t);
    case U32: REDUCE(uint32_t);
    case I64: REDUCE(int64_t);
    case U64: REDUCE(uint64_t);
    case F32: REDUCE(float);
    case F64: REDUCE(double);
    default: abort();
    }
}

// Shows n bytes to all ranks, has `use` look at them, and waits until all have.
static int exchange(comm *c, const char *from, size_t n,
                    void (*use)(void *arg, int rank, const char *piece), void *arg)
{
    memcpy(c->s->piece[c->rank], from, n);
    if (!arrive(c)) return 0;
    for (int r = 0; r < c->size; r++) use(arg, r, c->s->piece[r]);
    return arrive(c);
}

// A part of a job: bytes [at, at + n) of what each rank sends.
typedef struct {
    const job *j;
    size_t     at, n, chunk;
} part;

static void use_piece(void *arg, int rank, const char *piece)
{
    const part *p = arg;
    const job  *j = p->j;
    switch (j->kind) {
    case ALL_REDUCE:
        if (rank == 0) memcpy(j->out + p->at, piece, p->n);
        else reduce(j->out + p->at, piece, p->n / size_of(j->type), j->type, j->op);
        break;
    case ALL_GATHER: memcpy(j->out + (size_t)rank * p->chunk + p->at, piece, p->n); break;
    case BROADCAST:
        if (rank == j->root) memcpy(j->out + p->at, piece, p->n);
        break;
    }
}

// Each rank's chunk in turn is reduced by all, and kept by the one that it is for.
static int scatter(const job *j, size_t chunk)
{
    comm *c    = j->c;
    char *keep = malloc(PIECE);
    int   ok   = keep != NULL;
    for (int r = 0; ok && r < c->size; r++)
        for (size_t at = 0; ok && at < chunk; at += PIECE) {
            size_t n     = chunk - at < PIECE ? chunk - at : PIECE;
            job    whole = *j;
            whole.kind   = ALL_REDUCE;
            whole.out    = keep;
            part p       = { &whole, 0, n, 0 };
            ok           = exchange(c, j->in + (size_t)r * chunk + at, n, use_piece, &p);
            if (ok && r == c->rank) memcpy(j->out + at, keep, n);
        }
    free(keep);
    return ok;
}

// Whether all ranks call the same. Ranks that do not wait for ever, as those of NCCL would.
static int all_call_alike(const job *j)
{
    comm *c       = j->c;
    long  call[5] = { j->kind, j->type, j->op, j->root, (long)j->count };
    int   alike   = 1;
    memcpy(c->s->call[c->rank], call, sizeof call);
    if (!arrive(c)) return 0;
    for (int r = 0; r < c->size; r++) alike &= !memcmp(c->s->call[r], call, sizeof call);
    while (!alike && !atomic_load(&c->s->aborted)) pause_ns(1000000);
    return alike && arrive(c);
}

// A result may overlap what is sent, as a piece is shown before it is overwritten.
static void run_job(void *arg)
{
    job   *j     = arg;
    comm  *c     = j->c;
    size_t bytes = j->count * size_of(j->type);
    int    ok    = !atomic_load(&c->error);
    if (c->slow) pause_ns(c->slow * 1000000L);
    ok = ok && all_call_alike(j);
    if (ok && j->kind == REDUCE_SCATTER) ok = scatter(j, bytes);
    else
        for (size_t at = 0; ok && at < bytes; at += PIECE) {
            part p = { j, at, bytes - at < PIECE ? bytes - at : PIECE, bytes };
            ok     = exchange(c, j->in + at, p.n, use_piece, &p);
        }
    if (!ok) atomic_store(&c->error, REMOTE_ERROR);
    if (j->in_stream) free(j);
}

// ---- calls -------------------------------------------------------------------------------------

static int log_call(comm *c, const job *j)
{
    static const char *const name[] = { "all_reduce", "all_gather", "reduce_scatter", "broadcast" };
    if (c->log) {
        fprintf(c->log, "%s type %d op %d root %d count %zu\n", name[j->kind], j->type, j->op,
                j->root, j->count);
        fflush(c->log);
    }
    return ++c->calls != c->fail_at;
}

// Puts a job of a GPU's memory into its stream. What is copied to the host and back lies in pinned
// memory, which the next job uses when this one is done, as the stream is in order.
static int put_into_stream(job *j, void *stream)
{
    comm  *c = j->c;
    size_t n = j->count * size_of(j->type), all = n * (size_t)c->size;
    size_t in = j->kind == REDUCE_SCATTER ? all : n, out = j->kind == ALL_GATHER ? all : n;
    if (!cu.wait && !find_driver()) return CUDA_ERROR;
    if (in + out > c->staging_bytes) {
        if (c->staging && (cu.wait(stream) || cu.host_free(c->staging))) return CUDA_ERROR;
        c->staging_bytes = 0;
        if (cu.host_alloc((void **)&c->staging, in + out, 1)) return CUDA_ERROR;
        c->staging_bytes = in + out;
    }
    job *k = malloc(sizeof *k);
    if (!k) return SYSTEM_ERROR;
    uint64_t from = (uint64_t)(uintptr_t)j->in, to = (uint64_t)(uintptr_t)j->out;
    *k           = *j;
    k->in        = c->staging;
    k->out       = c->staging + in;
    k->in_stream = 1;
    if (cu.copy_out(k->in, from, in, stream) || cu.call(stream, run_job, k) ||
        cu.copy_in(to, c->staging + in, out, stream))
        return CUDA_ERROR;
    return SUCCESS;
}

static int begin(job j, void *stream)
{
    if (!log_call(j.c, &j)) return INTERNAL_ERROR;
    if (atomic_load(&j.c->error)) return atomic_load(&j.c->error);
    if (stream) return put_into_stream(&j, stream);
    run_job(&j);
    return atomic_load(&j.c->error);
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, void *c, void *stream);
int ncclAllGather(const void *in, void *out, size_t count, int type, void *c, void *stream);
int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op, void *c,
                      void *stream);
int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *c,
                  void *stream);
int ncclGetVersion(int *version);
int ncclGetUniqueId(unique_id *id);
int ncclCommInitRankConfig(void **made, int size, unique_id id, int rank, void *config);
int ncclCommGetAsyncError(void *made, int *error);
int ncclCommAbort(void *made);
int ncclCommDestroy(void *made);
const char *ncclGetErrorString(int error);

static job job_of(void *c, int kind, const void *in, void *out, size_t count, int type, int op,
                  int root)
{
    return (job){ .c     = c,
                  .kind  = kind,
                  .in    = (char *)(uintptr_t)in,
                  .out   = out,
                  .count = count,
                  .type  = type,
                  .op    = op,
                  .root  = root };
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, void *c, void *stream)
{
    return begin(job_of(c, ALL_REDUCE, in, out, count, type, op, 0), stream);
}

int ncclAllGather(const void *in, void *out, size_t count, int type, void *c, void *stream)
{
    return begin(job_of(c, ALL_GATHER, in, out, count, type, 0, 0), stream);
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op, void *c,
                      void *stream)
{
    return begin(job_of(c, REDUCE_SCATTER, in, out, count, type, op, 0), stream);
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *c,
                  void *stream)
{
    return begin(job_of(c, BROADCAST, in, out, count, type, 0, root), stream);
}

// ---- opening and closing -----------------------------------------------------------------------

int ncclGetVersion(int *version)
{
    *version = 22703;
    return SUCCESS;
}

int ncclGetUniqueId(unique_id *id)
{
    memset(id, 0, sizeof *id);
    snprintf(id->name, sizeof id->name, "/nccl_standin_%d_%ld", (int)getpid(), (long)time(NULL));
    return SUCCESS;
}

static int number_in(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

int ncclCommInitRankConfig(void **made, int size, unique_id id, int rank, void *config)
{
    (void)config;
    if (size > RANKS) return BAD_ARGUMENT;
    comm *c  = calloc(1, sizeof *c);
    int   fd = c ? shm_open(id.name, O_CREAT | O_RDWR, 0600) : -1;
    if (fd < 0 || ftruncate(fd, sizeof(shared)) != 0) return SYSTEM_ERROR;
    c->s = mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (c->s == MAP_FAILED) return SYSTEM_ERROR;
    c->rank    = rank;
    c->size    = size;
    c->fail_at = number_in("NCCL_STANDIN_FAIL");
    c->slow    = number_in("NCCL_STANDIN_SLOW");
    memcpy(c->name, id.name, sizeof c->name);
    const char *log = getenv("NCCL_STANDIN_LOG");
    char        file[4096];
    if (log) snprintf(file, sizeof file, "%s%d", log, rank);
    if (log) c->log = fopen(file, "w");
    *made = c;
    atomic_fetch_add(&c->s->joined, 1);
    while (atomic_load(&c->s->joined) < size && !atomic_load(&c->s->aborted)) pause_ns(1000000);
    if (rank == 0) shm_unlink(c->name);
    return atomic_load(&c->s->aborted) ? REMOTE_ERROR : SUCCESS;
}

int ncclCommGetAsyncError(void *made, int *error)
{
    *error = atomic_load(&((comm *)made)->error);
    return SUCCESS;
}

// What is in flight ends; the memory stays, since a stream may still use it.
int ncclCommAbort(void *made)
{
    comm *c = made;
    atomic_store(&c->s->aborted, 1);
    atomic_store(&c->error, REMOTE_ERROR);
    return SUCCESS;
}

int ncclCommDestroy(void *made)
{
    comm *c = made;
    if (c->log) fclose(c->log);
    if (c->staging) cu.host_free(c->staging);
    munmap(c->s, sizeof *c->s);
    free(c);
    return SUCCESS;
}

const char *ncclGetErrorString(int error)
{
    static const char *const text[] = { "no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error" };
    return error >= 0 && error <= REMOTE_ERROR ? text[error] : "unknown error";
}
