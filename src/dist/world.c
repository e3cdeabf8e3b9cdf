// tn_dist: opening, asking, closing. Tenon moves no tensors between ranks itself: an engine does.
#include "dist/world.h"
#include "dist/place.h"
#include "dist/worker.h"
#include "base/hash.h"
#include "tensor/context.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// What the worker opens an engine with, and rank 0's address, which MPI may carry.
typedef struct {
    const tni_dist_engine *engine;
    tni_engine_open        o;
    tni_line_address       address;
} opening;

// A world, owned by its context. With no engine it is one rank, and every call does nothing. An
// engine whose collectives are in flight when a call returns has a watcher: a thread that looks
// whether a rank is gone, and ends them then. lock guards what both threads use: from `number` on.
// The worker is a third one, which calls the engine.
struct tn_dist {
    tni_owned              owned;
    tni_world_place        place;
    const tni_dist_engine *engine;    // NULL: none
    bool                   carrier;   // MPI was opened, perhaps only to carry an address
    bool                   streams;   // NCCL was opened
    bool                   leaves;    // this rank has told the others so
    bool                   closed;    // and left
    bool                   failed;    // and said so to the others, who are about to leave
    bool                   compares;  // each collective is compared with the other ranks'
    bool                   overlaps;  // collectives may run beside other work
    tni_dist_worker       *worker;    // what runs them
    opening        *opening;   // of the C library: a worker that was given up may still use it
    tni_text        broken;    // why the worker runs nothing any more; "": it does
    tni_line       *line;      // NULL for one rank
    double          timeout;   // seconds
    double          deadline;  // of what this thread waits for
    tn_tensor      *token;     // owned; see tni_dist_token
    uint64_t        asked;     // the collective of tni_dist_ask; 0: its answer has come
    uint64_t       *agreed;    // hashes of lists that all ranks agreed on
    size_t          agreed_count, agreed_cap;
    bool            watched;
    bool            on_device;  // collectives go into a stream
    atomic_bool     stop, lost;
    pthread_t       watcher;
    pthread_mutex_t lock;
    uint64_t        number;     // collectives begun
    double          begun_at;   // the last of them
    uint64_t        announced;  // number of the last one that others were told of
    tni_line_item   what;       // it is
    uint64_t        history;    // a hash of all so far
    tni_dist_busy  *busy;
    void           *busy_arg;
    tni_text        why;  // lost
};

// Long enough for the slowest rank to compile its kernels, and for a file system to answer.
static const double USUAL_TIMEOUT = 300;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- collectives -------------------------------------------------------------------------------

// A rank that waits that long tells the others what for, so that ranks that differ find out; in
// seconds.
static const double LONG_WAIT = 1;

// Tells the others what this rank has waited in for a while, once. For whoever holds the lock.
static void announce(tn_dist *d)
{
    if (!d->line || d->announced == d->number || now() - d->begun_at < LONG_WAIT) return;
    d->announced = d->number;
    tni_line_ask(d->line, d->number, &d->what);
}

// Says that time is out, and for whom a collective has waited. Number 0 is the engine's start.
static tni_text waited_too_long(tn_dist *d, uint64_t number)
{
    tni_text who = { "" }, why = tni_text_of("collective %llu", (unsigned long long)number);
    if (!number) why = tni_text_of("its start");
    tni_text_add(&why, " has waited for %g seconds: ", d->timeout);
    if (d->line && number) who = tni_line_missing(d->line, number);
    if (*who.s) tni_text_add(&why, "missing are %s", who.s);
    else if (number) tni_text_add(&why, "the ranks differ, or one hangs");
    else tni_text_add(&why, "not all of %d processes have come to it, or it hangs", d->place.size);
    return why;
}

// Whether a collective may go on waiting: all ranks are there, and time is left. A rank that is
// gone after it has done its part of this one does not matter at first; but what it sent may still
// have been on its side, since MPI moves messages only while it is called. Ranks that leave meet
// once more: then only one that has died or failed matters.
static bool may_wait(void *user, tni_text *why)
{
    tn_dist *d = user;
    pthread_mutex_lock(&d->lock);
    announce(d);
    uint64_t number = now() - d->begun_at < LONG_WAIT ? d->number : UINT64_MAX;
    pthread_mutex_unlock(&d->lock);
    if (d->leaves && !tni_line_in_order(d->line)) return false;
    if (d->line && !d->leaves && !tni_line_up(d->line, number, why)) return false;
    if (now() < d->deadline) return true;
    *why = waited_too_long(d, d->number);
    return false;
}

bool tni_dist_knows(const tn_dist *d, uint64_t hash)
{
    if (!d->line) return true;
    for (size_t i = d->agreed_count; i-- > 0;)
        if (d->agreed[i] == hash) return true;
    return false;
}

tn_status tni_dist_learn(tn_dist *d, uint64_t hash, tni_text *why)
{
    tni_heap *h = &d->owned.cx->heap;
    if (tni_dist_knows(d, hash)) return TN_OK;
    if (!tni_grow(h, (void **)&d->agreed, &d->agreed_cap, d->agreed_count + 1, sizeof *d->agreed)) {
        *why = tni_text_of("out of memory");
        return TN_EMEM;
    }
    d->agreed[d->agreed_count++] = hash;
    return TN_OK;
}

void tni_dist_compare(tn_dist *d, bool compare)
{
    d->compares = compare;
}

void tni_dist_ask(tn_dist *d)
{
    if (!d->line || !d->on_device || !d->number) return;
    d->asked = d->number;
    tni_line_ask(d->line, d->number, &d->what);
}

// Waits for the answer, which came long ago if the last evaluation took a while.
static bool answered(tn_dist *d, tni_text *why)
{
    uint64_t asked = d->asked;
    d->asked       = 0;
    return !asked || tni_line_agreed(d->line, asked, d->timeout, why);
}

// Begins a collective: its number, and how long it may take. The hash that others see is that of
// all so far, so that ranks that differed before are found, too.
static bool begin_collective(tn_dist *d, const tni_line_item *what, tni_text *why)
{
    if (d->closed) {
        *why = tni_text_of("the world was closed before this was computed");
        return false;
    }
    if (d->failed) {
        *why = tni_text_of("this rank failed before, which ended the world");
        return false;
    }
    if (!answered(d, why)) return false;
    pthread_mutex_lock(&d->lock);
    d->number++;
    d->begun_at  = now();
    d->deadline  = d->begun_at + d->timeout;
    d->what      = *what;
    d->history   = tni_hash_mix(d->history, what->hash);
    d->what.hash = d->history ? d->history : 1;
    if (d->line) tni_line_begins(d->line, d->number, &d->what);
    pthread_mutex_unlock(&d->lock);
    return true;
}

// Begins one that all ranks compare over the line before it goes on.
static bool begin_compared(tn_dist *d, const tni_line_item *what, tni_text *why)
{
    return !tni_dist_lost(d->owned.cx, why) && begin_collective(d, what, why) &&
           (!d->line || tni_line_agree(d->line, d->number, &d->what, d->timeout, why));
}

// ---- by the worker -----------------------------------------------------------------------------

// A collective as the worker has it.
typedef struct {
    const tni_dist_engine *engine;
    tni_collective         c;
    tni_line_item          what;
    uint64_t               number;  // 0: it is not compared with the other ranks'
    uint64_t               pair[2];
    bool                   differs;  // the ranks do
} call;

// Compares what all ranks are about to do, by the engine: of ranks that differ one would get more
// than its buffer holds, and all would get what is no result. The minimum of (hash, ~hash) is the
// least hash and the complement of the largest, on all ranks alike.
static bool same_on_all(call *k, tni_text *why)
{
    tni_collective least = { .kind  = TNI_ALL_REDUCE,
                             .dtype = TN_U64,
                             .op    = TNI_REDUCE_MIN,
                             .count = 2,
                             .in    = k->pair,
                             .out   = k->pair };
    if (!k->number) return true;
    k->pair[0] = k->what.hash;
    k->pair[1] = ~k->pair[0];
    if (!k->engine->run(&least, why)) return false;
    k->differs = k->pair[0] != ~k->pair[1];
    if (k->differs) *why = tni_text_of("the ranks differ");
    return !k->differs;
}

static bool make_call(void *arg, tni_text *why)
{
    call *k = arg;
    return same_on_all(k, why) && k->engine->run(&k->c, why);
}

static bool open_engine(void *arg, tni_text *why)
{
    opening *o = *(opening **)arg;
    return o->engine->open(&o->o, why);
}

// An engine that failed may have done so because of what another rank did or became: asks, and
// waits a moment for the answer; where ranks differ, until it has come.
static void find_reason(tn_dist *d, const call *k, tni_text *why)
{
    double end = now() + (k->differs ? d->timeout : LONG_WAIT);
    if (!d->line || !k->number) return;
    tni_line_ask(d->line, k->number, &k->what);
    while (tni_line_up(d->line, k->number, why) && now() < end)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

// Puts the name of a collective, the first of its words, before the reason why it failed.
static bool fails(const tni_line_item *what, tni_text *why)
{
    tni_text reason = *why;
    *why            = tni_text_of("%.*s: %s", (int)strcspn(what->what, " "), what->what, reason.s);
    return false;
}

// Waits for the worker, up to the last in_flight calls.
static bool await_worker(tn_dist *d, size_t in_flight, tni_text *why)
{
    if (!*d->broken.s && tni_worker_wait(d->worker, in_flight, may_wait, d, why)) return true;
    const call *k = tni_worker_failed(d->worker);
    if (!*d->broken.s) {
        find_reason(d, k, why);
        if (k->number) fails(&k->what, why);
        d->broken = *why;
    }
    *why = d->broken;
    return false;
}

// Runs a collective that has no number, of MPI, in memory that outlives it.
static bool run_alone(tn_dist *d, const tni_collective *c, tni_text *why)
{
    call k      = { .engine = &tni_mpi, .c = *c };
    d->begun_at = now();
    d->deadline = d->begun_at + d->timeout;
    tni_worker_give(d->worker, make_call, &k, sizeof k);
    return await_worker(d, 0, why);
}

void tni_dist_overlap(tn_dist *d, bool overlap)
{
    d->overlaps = overlap && d->line && !d->on_device;
}

tn_status tni_dist_run(tn_dist *d, const tni_collective *c, const tni_line_item *what,
                       tni_text *why)
{
    if (!d->engine) {
        if (c->in && c->in != c->out)
            memcpy(c->out, c->in, (size_t)c->count * tni_dtype_size(c->dtype));
        return TN_OK;
    }
    if (tni_dist_lost(d->owned.cx, why) || !begin_collective(d, what, why) || !may_wait(d, why)) {
        fails(what, why);
        return TN_EDEVICE;
    }
    if (!d->line) return d->engine->run(c, why) || fails(what, why) ? TN_OK : TN_EDEVICE;
    if (!await_worker(d, TNI_WORKER_ROOM - 1, why)) return TN_EDEVICE;
    call k = { .engine = d->engine, .c = *c, .what = d->what, .number = d->number };
    tni_worker_give(d->worker, make_call, &k, sizeof k);
    return d->overlaps || await_worker(d, 0, why) ? TN_OK : TN_EDEVICE;
}

tn_status tni_dist_collected(tn_dist *d, size_t in_flight, tni_text *why)
{
    return !d->worker || await_worker(d, in_flight, why) ? TN_OK : TN_EDEVICE;
}

// ---- collectives in streams --------------------------------------------------------------------

// Returns whether the world can still be used, as far as the watcher sees; the reason if it cannot.
static bool is_well(tn_dist *d, tni_text *why)
{
    pthread_mutex_lock(&d->lock);
    tni_dist_busy *busy   = d->busy;
    void          *arg    = d->busy_arg;
    uint64_t       number = d->number;
    bool           waits  = d->worker && tni_worker_left(d->worker);
    double         since  = now() - d->begun_at;
    pthread_mutex_unlock(&d->lock);
    waits = since > LONG_WAIT && (waits || (busy && busy(arg)));
    if (waits) {
        pthread_mutex_lock(&d->lock);
        if (d->number == number && number) announce(d);
        pthread_mutex_unlock(&d->lock);
    }
    if (d->engine->failed && d->engine->failed(why)) {
        tni_text who;  // a rank that is gone is the better reason
        if (d->line && !tni_line_up(d->line, number, &who)) *why = who;
        return false;
    }
    if (d->line && !tni_line_up(d->line, number, why)) return false;
    if (!waits || since < d->timeout) return true;
    *why = waited_too_long(d, number);
    return false;
}

// The watcher: whoever waits for a stream, or in a call of the engine, is freed by the end of what
// it waits for.
static void *watch(void *arg)
{
    tn_dist *d = arg;
    while (!atomic_load(&d->stop)) {
        tni_text why = { "" };
        if (is_well(d, &why)) {
            nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
            continue;
        }
        pthread_mutex_lock(&d->lock);
        d->why = why;
        pthread_mutex_unlock(&d->lock);
        atomic_store(&d->lost, true);
        d->engine->abort();
        break;
    }
    return NULL;
}

bool tni_dist_lost(const tn_ctx *cx, tni_text *why)
{
    tn_dist *d = cx->world;
    if (!d || !atomic_load(&d->lost)) return false;
    pthread_mutex_lock(&d->lock);
    *why = d->why;
    pthread_mutex_unlock(&d->lock);
    return true;
}

bool tni_dist_streams(const tn_dist *d)
{
    return d->engine && d->engine->start && d->on_device;
}

tn_status tni_dist_start(tn_dist *d, const tni_collective *c, void *stream,
                         const tni_line_item *what, tni_dist_busy *busy, void *arg, tni_text *why)
{
    bool ok = !tni_dist_lost(d->owned.cx, why) &&
              (d->compares ? begin_compared : begin_collective)(d, what, why);
    pthread_mutex_lock(&d->lock);
    if (ok) d->busy = busy;
    if (ok) d->busy_arg = arg;
    pthread_mutex_unlock(&d->lock);
    return (ok && d->engine->start(c, stream, why)) || fails(what, why) ? TN_OK : TN_EDEVICE;
}

// Runs what is recorded, as other ranks, which read some of it, may have done. Not on a rank that
// failed: what the others wait for, they will not get.
static bool flush(tn_dist *d)
{
    tn_ctx *cx = d->owned.cx;
    return !tni_dist_pending(d) || cx->busy || cx->fault.code || cx->flush(cx) == TN_OK;
}

// Both go over the line, which every engine has.
static bool vote(tn_dist *d, const char *what, const char *failure, uint64_t sum[2], tni_text *why)
{
    if (failure) *why = tni_text_of("%s", failure);
    if (!tni_dist_is_real(d) || !d->line) return !failure;
    if (!flush(d)) {
        *why = tni_text_of("%s", tn_error_text(d->owned.cx));
        return false;
    }
    tni_line_item item = { .hash = tni_hash(what, strlen(what)) };
    tni_text      reason;
    int           first = -1;
    snprintf(item.what, sizeof item.what, "%s", what);
    if (!begin_compared(d, &item, why) ||
        !tni_line_vote(d->line, d->number, failure, sum, d->timeout, &first, &reason, why))
        return false;
    if (first < 0) return true;
    if (failure) *why = tni_text_of("%s", failure);
    else {
        *why = tni_line_name(d->line, first);
        tni_text_add(why, " failed: %s", reason.s);
    }
    return false;
}

bool tni_dist_agree(tn_dist *d, const char *what, const char *failure, tni_text *why)
{
    return vote(d, what, failure, NULL, why);
}

bool tni_dist_sum(tn_dist *d, const char *what, uint64_t sum[2], tni_text *why)
{
    return vote(d, what, NULL, sum, why);
}

// The error of a context with its line: "add: (2, 3) + (4,): shapes do not broadcast (train.c:31)";
// NULL if there is none.
static const char *failure_of(const tni_fault *f, tni_text *text)
{
    if (!f->code) return NULL;
    tni_text line = { "" };
    if (f->site.line && !strstr(f->text, "(recorded at "))
        tni_text_add(&line, " (%s)", tni_site_text(&f->site).s);
    int room = (int)(sizeof text->s - 1 - strlen(line.s));
    *text    = tni_text_of("%.*s%s", room < 80 ? 80 : room, f->text, line.s);
    return text->s;
}

// How many collectives this rank has done: those that the worker still has are not.
static uint64_t completed(const tn_dist *d)
{
    return d->number - (d->worker ? tni_worker_left(d->worker) : 0);
}

void tni_dist_fail(tn_dist *d)
{
    tni_text    text;
    const char *why = failure_of(&d->owned.cx->fault, &text);
    if (!d->line || d->failed || d->closed) return;
    d->failed = true;
    tni_line_leave(d->line, completed(d), why ? why : "a step failed");
}

bool tni_dist_pending(const tn_dist *d)
{
    return d->token && d->token->store->node->state == TNI_PENDING;
}

tn_tensor **tni_dist_token(tn_dist *d)
{
    return &d->token;
}

bool tni_dist_closed(const tn_dist *d)
{
    return d && d->engine && d->closed;
}

bool tni_dist_is_real(const tn_dist *d)
{
    return d && d->engine;
}

// ---- opening -----------------------------------------------------------------------------------

// Takes the place from the arguments, where they say one, else from the launcher's variables.
static bool find_place(tn_ctx *cx, const tn_dist_opts *o, tni_world_place *p)
{
    tni_text why;
    if (o->size < 0 || o->rank < 0 || (o->rank && o->rank >= o->size))
        return tni_refuse(cx, TN_EARG, "dist_open: rank %d of a world of %d", o->rank, o->size);
    if (!tni_world_place_find(p, &why)) return tni_refuse(cx, TN_EARG, "dist_open: %s", why.s);
    if (!o->size) return true;
    // The engine still has to know the launcher, if that started as many.
    bool same = p->rank == o->rank && p->size == o->size;
    if (!same) *p = (tni_world_place){ .local_rank = -1, .local_size = -1 };
    p->rank = o->rank;
    p->size = o->size;
    return true;
}

static bool is_host(const tn_ctx *cx)
{
    const char *device = tn_ctx_device(cx);
    return !strcmp(device, "cpu") || !strcmp(device, "ref");
}

// Returns the engine by its name, or by the device: NCCL for GPUs, MPI for all else. NULL,
// reported, if there is none.
static const tni_dist_engine *choose_engine(tn_ctx *cx, const char *name)
{
    bool gpu = !strncmp(tn_ctx_device(cx), "cuda", 4);
    if (!name || !*name) return gpu ? &tni_nccl : &tni_mpi;
    if (!strcmp(name, tni_mpi.name)) return &tni_mpi;
    if (!strcmp(name, tni_nccl.name)) return &tni_nccl;
    return tni_fail(cx, TN_EARG, "dist_open: there is no engine %s; mpi and nccl are",
                    tni_quoted(name).s);
}

// Refuses a world that the engine cannot connect, with the command that starts one.
static bool may_start(tn_ctx *cx, const tni_world_place *p, const tni_dist_engine *e)
{
    tni_text    why;
    const char *device = tn_ctx_device(cx);
    if (e == &tni_nccl) {
        if (!e->describe(p->launcher, &why))
            return tni_refuse(cx, TN_EDEVICE, "dist_open: NCCL: %s", why.s);
        bool gpu = !strncmp(device, "cuda", 4);
        if (!gpu && !(is_host(cx) && e->on_host()))
            return tni_refuse(
                cx, TN_EDEVICE,
                "dist_open: NCCL moves memory of GPUs, and this is %s: the engine is mpi", device);
        return true;
    }
    if (p->size > 1 && !is_host(cx) && strncmp(device, "cuda", 4) != 0)
        return tni_refuse(cx, TN_EDEVICE,
                          "dist_open: %d ranks on %s: only cpu and cuda can have several ranks",
                          p->size, device);
    if (p->size == 1 || p->mpi) return true;
    if (p->launcher && !strcmp(p->launcher, "Slurm"))
        return tni_refuse(cx, TN_EDEVICE,
                          "dist_open: %d ranks on cpu need MPI, for which srun has to open a "
                          "connection: srun --mpi=pmix -n %d PROGRAM",
                          p->size, p->size);
    // tenon launch sets the variables of torchrun, for NCCL.
    const char *by = getenv("TN_LAUNCHED") ? "tenon launch --engine nccl" : p->launcher;
    return tni_refuse(cx, TN_EDEVICE,
                      "dist_open: %d ranks on cpu need MPI, and %s started no MPI processes: "
                      "tenon launch -n %d PROGRAM, or mpiexec -n %d PROGRAM",
                      p->size, by ? by : "the program's arguments", p->size, p->size);
}

// Has the worker open an engine. One that was given up, or does not belong to the others', is
// closed with the world.
static bool start_engine(tn_dist *d, const tni_dist_engine *e, tni_text *why)
{
    d->opening->engine = e;
    d->begun_at        = now();
    d->deadline        = d->begun_at + d->timeout;
    tni_worker_give(d->worker, open_engine, &d->opening, sizeof d->opening);
    bool ok = tni_worker_wait(d->worker, 0, may_wait, d, why);
    if (ok || tni_worker_stuck(d->worker)) *(e == &tni_mpi ? &d->carrier : &d->streams) = true;
    return ok;
}

// Starts MPI and checks that it sees the world that the launcher announced. A library that does not
// belong to the launcher sees each process alone.
static bool open_mpi(tn_dist *d)
{
    tni_text         why;
    tn_ctx          *cx = d->owned.cx;
    tni_engine_open *o  = &d->opening->o;
    *o                  = (tni_engine_open){ .launcher = d->place.launcher, .size = 1 };
    if (!start_engine(d, &tni_mpi, &why))
        return tni_refuse(cx, TN_EDEVICE, "dist_open: MPI: %s", why.s);
    if (o->rank == d->place.rank && o->size == d->place.size) return true;
    tni_mpi.describe(d->place.launcher, &why);
    return tni_refuse(cx, TN_EDEVICE,
                      "dist_open: %s: it takes this process for rank %d of %d, which is %d of %d: "
                      "another MPI started it; TN_MPI names the library of that one",
                      why.s, o->rank, o->size, d->place.rank, d->place.size);
}

// Lets MPI carry rank 0's address to the others. Rank 0 takes part also if it cannot listen: the
// others would wait for it.
static bool carry_address(tn_dist *d, tni_line_address *a, int *listening, tni_text *why)
{
    const tni_world_place *p = &d->place;
    tni_collective         c = {
                .kind = TNI_BROADCAST, .dtype = TN_U8, .count = sizeof *a, .in = a, .out = a
    };
    if (p->rank == 0) *listening = tni_line_listen(p->local_size == p->size, 0, a, why);
    bool ok = p->rank != 0 || *listening >= 0;
    ok      = run_alone(d, &c, why) && ok;
    if (ok && !a->port) *why = tni_text_of("rank 0 cannot listen");
    return ok && a->port;
}

// Takes the address from the launcher's variables: every rank knows it.
static bool meet(tn_dist *d, tni_line_address *a, int *listening, tni_text *why)
{
    tni_meeting_place m;
    if (!tni_meeting_place_find(&d->place, &m, why)) return false;
    bool local = !strcmp(m.host, "127.0.0.1") || !strcmp(m.host, "localhost");
    if (d->place.rank == 0) {
        *listening = tni_line_listen(local, m.port, a, why);
        if (*listening < 0) return false;
    }
    snprintf(a->host, sizeof a->host, "%s", m.host);
    a->port = m.port;
    tni_line_token(a, m.run.s);
    return true;
}

// Opens the line. Rank 0 listens; MPI carries the address where it connects the ranks or nothing
// else is known, else the launcher's variables say it.
static bool open_line(tn_dist *d)
{
    tni_line_address      *a         = &d->opening->address;
    tni_text               why       = { "" };
    const tni_world_place *p         = &d->place;
    int                    listening = -1;
    if (p->size == 1) return true;
    bool ok = d->carrier ? carry_address(d, a, &listening, &why) : meet(d, a, &listening, &why);
    if (ok) d->line = tni_line_open(p->rank, p->size, a, listening, d->timeout, &why);
    return d->line || tni_refuse(d->owned.cx, TN_EDEVICE, "dist_open: %s", why.s);
}

// While an engine is opened by a thread of its own: the device is that of the context.
static void enter_device(void *user)
{
    tn_ctx *cx = ((tn_dist *)user)->owned.cx;
    if (cx->enter) cx->enter(cx);
}

// Opens NCCL with an id that rank 0 made and the line carries, and starts the watcher.
static bool open_nccl(tn_dist *d)
{
    tni_text               why = { "" };
    const tni_world_place *p   = &d->place;
    tni_engine_open       *o   = &d->opening->o;
    *o = (tni_engine_open){ .rank = p->rank, .size = p->size, .enter = enter_device, .user = d };
    bool ok = p->rank != 0 || tni_nccl.make_id(o->id, &why);
    if (ok && d->line) ok = tni_line_share(d->line, o->id, sizeof o->id, d->timeout, &why);
    ok = ok && start_engine(d, &tni_nccl, &why);
    if (ok) d->engine = &tni_nccl;
    if (ok) d->on_device = !is_host(d->owned.cx);
    if (ok) ok = d->watched = pthread_create(&d->watcher, NULL, watch, d) == 0;
    if (ok) return true;
    if (d->engine) why = tni_text_of("no thread can be started");
    return tni_refuse(d->owned.cx, TN_EDEVICE, "dist_open: NCCL: %s", why.s);
}

// Connects the ranks. The launcher of MPI alone may know where to meet: then MPI carries the
// address. Under tenon launch the line comes first, so that a rank that dies while MPI starts is
// named.
static bool connect_world(tn_dist *d, const tni_dist_engine *e)
{
    tni_meeting_place m;
    tni_text          why;
    bool              mpi   = e == &tni_mpi;
    bool              known = d->place.size > 1 && tni_meeting_place_find(&d->place, &m, &why);
    bool              first = known && mpi && getenv("TN_LAUNCHED");
    bool              carry = mpi || (d->place.size > 1 && d->place.mpi && !known);
    d->worker               = tni_worker_open();
    d->opening              = calloc(1, sizeof *d->opening);
    if (!d->worker || !d->opening)
        return tni_refuse(d->owned.cx, TN_EMEM, "dist_open: no thread can be started");
    if (first && !open_line(d)) return false;
    if (carry && !open_mpi(d)) return false;
    if (mpi) d->engine = &tni_mpi;
    return (first || open_line(d)) && (mpi || open_nccl(d));
}

// ---- closing -----------------------------------------------------------------------------------

// Waits for all ranks by MPI itself, so that it has delivered everything before this rank stops to
// call it.
static void finish_mpi(tn_dist *d)
{
    tni_text       why;
    tni_collective all = { .kind = TNI_BARRIER };
    run_alone(d, &all, &why);
}

// Ends the engines and the threads, after the line.
static void close_engines(tn_dist *d, bool in_order)
{
    bool well = !d->worker || !tni_worker_failed(d->worker);
    if (tni_worker_close(d->worker)) free(d->opening);
    if (d->streams) tni_nccl.close(in_order && well && !atomic_load(&d->lost));
    if (d->carrier) tni_mpi.close(in_order && well);
    d->carrier = d->streams = false;
    d->worker               = NULL;
    d->opening              = NULL;
}

// Tells the others that this rank leaves, and waits for them. A context that failed says why, so
// that they can report it instead of waiting.
static bool leave_line(tn_dist *d)
{
    tni_text    text;
    const char *failure = failure_of(&d->owned.cx->fault, &text);
    if (!d->line) return d->place.size == 1;
    tni_line_leave(d->line, completed(d), failure);
    d->leaves = true;
    if (d->engine == &tni_mpi && !failure && !*d->broken.s) finish_mpi(d);
    return tni_line_close(d->line, !failure, d->timeout);
}

// Leaves the world, after what is in flight.
static void leave(tn_dist *d)
{
    tn_ctx  *cx = d->owned.cx;
    tni_text why;
    while (d->watched && d->busy && d->busy(d->busy_arg) && !atomic_load(&d->lost))
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    if (d->worker && d->line) await_worker(d, 0, &why);
    if (d->watched) {
        atomic_store(&d->stop, true);
        pthread_join(d->watcher, NULL);
        d->watched = false;
    }
    close_engines(d, leave_line(d));
    if (cx->world == d) cx->world = NULL;
    if (d->token) tni_tensor_disown(d->token);
    d->line   = NULL;
    d->token  = NULL;
    d->closed = true;
}

static void free_dist(tni_owned *t)
{
    tn_dist *d = (tn_dist *)t;
    if (!d->closed) leave(d);
    pthread_mutex_destroy(&d->lock);
    tni_free(&t->cx->heap, d->agreed);
    tni_free(&t->cx->heap, d);
}

// The world is in the context's list before anything is connected, so that one way closes it.
tn_dist *tn_dist_open(tn_ctx *cx, tn_dist_opts o)
{
    tni_world_place p;
    if (!tni_ctx_ok(cx, "dist_open") || !find_place(cx, &o, &p)) return NULL;
    bool                   named = o.engine && *o.engine;
    const tni_dist_engine *e     = choose_engine(cx, o.engine);
    if (!e) return NULL;
    if (!(o.timeout >= 0) || isinf(o.timeout))
        return tni_fail(cx, TN_EARG, "dist_open: timeout %g is no number of seconds", o.timeout);
    bool real = p.size > 1 || named;
    if (real && !may_start(cx, &p, e)) return NULL;
    tn_dist *d = tni_zalloc(&cx->heap, sizeof *d);
    if (!d) return tni_fail_memory(cx, "dist_open");
    pthread_mutex_init(&d->lock, NULL);
    tni_owned_add(cx, &d->owned, TNI_DIST, free_dist);
    d->place   = p;
    d->timeout = o.timeout > 0 ? o.timeout : USUAL_TIMEOUT;
    bool ok    = !real || connect_world(d, e);
    if (ok && real) cx->world = d;
    if (ok) return d;
    tn_dist_close(d);
    return NULL;
}

// What was recorded runs first, as it may on other ranks. The world itself stays until its context
// closes, since recorded collectives may still name it: they fail.
void tn_dist_close(tn_dist *d)
{
    tn_ctx *cx = d ? tni_owned_ok("dist_close", d, TNI_DIST) : NULL;
    if (!cx || d->closed) return;
    flush(d);
    leave(d);
}

// ---- asking ------------------------------------------------------------------------------------

int tn_dist_rank(const tn_dist *d)
{
    return d ? d->place.rank : 0;
}

int tn_dist_size(const tn_dist *d)
{
    return d ? d->place.size : 1;
}

int tn_dist_local_rank(const tn_dist *d)
{
    return d && d->place.local_rank > 0 ? d->place.local_rank : 0;
}

const char *tn_dist_engine(const tn_dist *d)
{
    return d && d->engine ? d->engine->name : "none";
}

// The line is enough to wait for all: it needs no engine.
tn_status tn_dist_barrier(tn_dist *d)
{
    static const tni_line_item what = { .hash = 1, .what = "dist_barrier" };
    tni_text                   why  = { "" };
    tn_ctx                    *cx   = d ? tni_owned_ok("dist_barrier", d, TNI_DIST) : NULL;
    if (!d) return TN_OK;
    if (!cx) return tni_failed();
    if (!d->engine) return TN_OK;
    if (!flush(d)) return tni_failed();
    return begin_compared(d, &what, &why)
               ? TN_OK
               : tni_fail_status(cx, TN_EDEVICE, "dist_barrier: %s", why.s);
}

int tni_dist_report(tni_text line[TNI_DIST_LINES])
{
    tni_world_place p;
    int             n  = 0;
    bool            ok = tni_world_place_find(&p, &line[0]);
    if (!ok) line[n++] = tni_text_of("launcher: %s", tni_text_of("%s", line[0].s).s);
    else if (!p.launcher) line[n++] = tni_text_of("no launcher: one rank");
    else
        line[n++] = tni_text_of("%s: rank %d of %d%s", p.launcher, p.rank, p.size,
                                p.mpi ? "" : ", without MPI");
    tni_text what;
    ok        = tni_mpi.describe(p.launcher, &what);
    line[n++] = tni_text_of("mpi  %s%s", ok ? "" : "none: ", what.s);
    ok        = tni_nccl.describe(p.launcher, &what);
    line[n++] = tni_text_of("nccl %s%s", ok ? "" : "none: ", what.s);
    return n;
}
