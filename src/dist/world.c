// tn_dist: opening, asking, closing. Tenon moves no tensors between ranks itself: an engine does.
#include "dist/world.h"
#include "dist/line.h"
#include "base/hash.h"
#include "dist/place.h"
#include "tensor/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// A world, owned by its context. With no engine it is one rank, and every call does nothing.
struct tn_dist {
    tni_owned       owned;
    tni_world_place place;
    bool            mpi;       // the engine; false: none
    bool            closed;    // this rank has left
    tni_line       *line;      // NULL for one rank
    uint64_t        number;    // collectives begun
    double          timeout;   // seconds
    double          deadline;  // of the collective in progress
    tn_tensor      *token;     // owned; see tni_dist_token
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

// Whether a collective may go on waiting: all ranks are there, and time is left.
static bool may_wait(void *user, tni_text *why)
{
    tn_dist *d = user;
    if (d->line && !tni_line_up(d->line, d->number, why)) return false;
    if (now() < d->deadline) return true;
    *why = tni_text_of("collective %llu has waited for %g seconds: the ranks differ, or one hangs",
                       (unsigned long long)d->number, d->timeout);
    return false;
}

// Says which ranks are about to do something else. Every rank sends its text, and names the first whose text
// differs from its own.
static void compare_texts(tn_dist *d, const char *what, tni_text *why)
{
    enum { ROOM = 80 };  // two of them fit into a message
    int   size = d->place.size;
    char *all = calloc((size_t)size + 1, ROOM), *mine = all + (size_t)size * ROOM;
    if (!all) {
        *why = tni_text_of("the ranks differ");
        return;
    }
    snprintf(mine, ROOM, "%s", what);
    tni_collective c = {
        .kind = TNI_ALL_GATHER, .dtype = TN_U8, .count = ROOM, .in = mine, .out = all
    };
    bool ok = tni_mpi_run(&c, may_wait, d, why);
    for (int i = 0; ok && i < size; i++) {
        const char *other = all + (size_t)i * ROOM;
        if (!strcmp(other, mine)) continue;
        *why = tni_text_of("collective %llu differs: %s here, %s on rank %d",
                           (unsigned long long)d->number, mine, other, i);
        break;
    }
    free(all);
}

// Two numbers of 8 bytes, the largest and the least of all ranks' hashes, come before each collective: ranks that
// differ would otherwise wait for ever, or mix what they send.
static bool ranks_agree(tn_dist *d, const tni_collective *c, const char *what, tni_text *why)
{
    const int64_t  fact[] = { c->kind, c->dtype, c->op, c->root, c->count };
    int64_t        h = (int64_t)(tni_hash(fact, sizeof fact) >> 1), range[2] = { h, -h };
    tni_collective ask = { .kind  = TNI_ALL_REDUCE,
                           .dtype = TN_I64,
                           .op    = TNI_REDUCE_MAX,
                           .count = 2,
                           .in    = range,
                           .out   = range };
    if (d->place.size == 1) return true;
    if (!tni_mpi_run(&ask, may_wait, d, why)) return false;
    if (range[0] == -range[1]) return true;
    compare_texts(d, what, why);
    return false;
}

tn_status tni_dist_run(tn_dist *d, const tni_collective *c, const char *what, tni_text *why)
{
    if (!d->mpi) {
        if (c->in && c->in != c->out)
            memcpy(c->out, c->in, (size_t)c->count * tni_dtype_size(c->dtype));
        return TN_OK;
    }
    if (d->closed) {
        *why = tni_text_of("the world was closed before this was computed");
        return TN_EDEVICE;
    }
    d->number++;
    d->deadline = now() + d->timeout;
    return may_wait(d, why) && ranks_agree(d, c, what, why) && tni_mpi_run(c, may_wait, d, why)
               ? TN_OK
               : TN_EDEVICE;
}

// The least rank that failed is found first; then it sends its reason.
bool tni_dist_agree(tn_dist *d, const char *what, const char *failure, tni_text *why)
{
    if (failure) *why = tni_text_of("%s", failure);
    if (!tni_dist_is_real(d) || d->place.size == 1) return !failure;
    int64_t        first = failure ? d->place.rank : d->place.size;
    tni_collective least = { .kind  = TNI_ALL_REDUCE,
                             .dtype = TN_I64,
                             .op    = TNI_REDUCE_MIN,
                             .count = 1,
                             .in    = &first,
                             .out   = &first };
    if (tni_dist_run(d, &least, what, why) != TN_OK) return false;
    if (first == d->place.size) return true;
    tni_text       reason = { "" };
    tni_collective tell   = { .kind  = TNI_BROADCAST,
                              .dtype = TN_U8,
                              .root  = (int)first,
                              .count = sizeof reason.s,
                              .in    = reason.s,
                              .out   = reason.s };
    if (failure) reason = tni_text_of("%s", failure);
    if (tni_dist_run(d, &tell, what, why) != TN_OK || failure) return false;
    *why = tni_line_name(d->line, (int)first);
    tni_text_add(why, " failed: %s", reason.s);
    return false;
}

tn_tensor **tni_dist_token(tn_dist *d)
{
    return &d->token;
}

bool tni_dist_is_real(const tn_dist *d)
{
    return d && d->mpi;
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

// Refuses a world that no engine can connect, with the command that starts one.
static bool may_start(tn_ctx *cx, const tni_world_place *p)
{
    const char *device = tn_ctx_device(cx);
    if (p->size > 1 && strcmp(device, "cpu") != 0 && strcmp(device, "ref") != 0)
        return tni_refuse(cx, TN_EDEVICE,
                          "dist_open: %d ranks on %s: only cpu can have several ranks so far",
                          p->size, device);
    if (p->size == 1 || p->mpi) return true;
    if (p->launcher && !strcmp(p->launcher, "Slurm"))
        return tni_refuse(cx, TN_EDEVICE,
                          "dist_open: %d ranks on cpu need MPI, for which srun has to open a "
                          "connection: srun --mpi=pmix -n %d PROGRAM",
                          p->size, p->size);
    return tni_refuse(cx, TN_EDEVICE,
                      "dist_open: %d ranks on cpu need MPI, and %s started no MPI processes: "
                      "tenon launch -n %d PROGRAM, or mpiexec -n %d PROGRAM",
                      p->size, p->launcher ? p->launcher : "the program's arguments", p->size,
                      p->size);
}

// Starts MPI and checks that it sees the world that the launcher announced. A library that does not belong to
// the launcher sees each process alone.
static bool open_mpi(tn_dist *d)
{
    tni_text why;
    tn_ctx  *cx   = d->owned.cx;
    int      rank = 0, size = 1;
    if (!tni_mpi_open(d->place.launcher, &rank, &size, &why))
        return tni_refuse(cx, TN_EDEVICE, "dist_open: MPI: %s", why.s);
    d->mpi = true;
    if (rank == d->place.rank && size == d->place.size) return true;
    tni_mpi_describe(d->place.launcher, &why);
    return tni_refuse(cx, TN_EDEVICE,
                      "dist_open: %s: it takes this process for rank %d of %d, which is %d of %d: "
                      "another MPI started it; TN_MPI names the library of that one",
                      why.s, rank, size, d->place.rank, d->place.size);
}

// Opens the line. Rank 0 listens, and MPI carries the address.
static bool open_line(tn_dist *d)
{
    tni_line_address       a         = { .port = 0 };
    tni_text               why       = { "" };
    const tni_world_place *p         = &d->place;
    int                    listening = -1;
    if (p->size == 1) return true;
    if (p->rank == 0) listening = tni_line_listen(p->local_size == p->size, 0, &a, &why);
    tni_collective c = {
        .kind = TNI_BROADCAST, .dtype = TN_U8, .count = sizeof a, .in = &a, .out = &a
    };
    bool ok = (p->rank != 0 || listening >= 0);
    // Rank 0 takes part also if it cannot listen: the others would wait for it.
    ok = tni_dist_run(d, &c, "dist_open", &why) == TN_OK && ok;
    if (ok && !a.port) why = tni_text_of("rank 0 cannot listen");
    if (ok && a.port) d->line = tni_line_open(p->rank, p->size, &a, listening, d->timeout, &why);
    d->number = 0;
    return d->line || tni_refuse(d->owned.cx, TN_EDEVICE, "dist_open: %s", why.s);
}

// ---- closing -----------------------------------------------------------------------------------

// Leaves the world. A context that failed says why, so that the other ranks can report it instead of waiting.
static void leave(tn_dist *d)
{
    tni_fault *f        = &d->owned.cx->fault;
    bool       in_order = d->place.size == 1;
    if (d->line)
        in_order = tni_line_close(d->line, d->number, f->code ? f->text : NULL, d->timeout);
    if (d->mpi) tni_mpi_close(in_order);
    if (d->token) tni_tensor_disown(d->token);
    d->line   = NULL;
    d->token  = NULL;
    d->closed = true;
}

static void free_dist(tni_owned *t)
{
    tn_dist *d = (tn_dist *)t;
    if (!d->closed) leave(d);
    tni_free(&t->cx->heap, d);
}

// The world is in the context's list before anything is connected, so that one way closes it.
tn_dist *tn_dist_open(tn_ctx *cx, tn_dist_opts o)
{
    tni_world_place p;
    if (!tni_ctx_ok(cx, "dist_open") || !find_place(cx, &o, &p)) return NULL;
    bool named = o.engine && *o.engine;
    if (named && strcmp(o.engine, "mpi") != 0)
        return tni_fail(cx, TN_EARG, "dist_open: there is no engine %s; mpi is one",
                        tni_quoted(o.engine).s);
    if (!(o.timeout >= 0) || isinf(o.timeout))
        return tni_fail(cx, TN_EARG, "dist_open: timeout %g is no number of seconds", o.timeout);
    if (!may_start(cx, &p)) return NULL;
    tn_dist *d = tni_zalloc(&cx->heap, sizeof *d);
    if (!d) return tni_fail_memory(cx, "dist_open");
    tni_owned_add(cx, &d->owned, TNI_DIST, free_dist);
    d->place   = p;
    d->timeout = o.timeout > 0 ? o.timeout : USUAL_TIMEOUT;
    if ((p.size == 1 && !named) || (open_mpi(d) && open_line(d))) return d;
    tn_dist_close(d);
    return NULL;
}

// What was recorded runs first, as it may on other ranks. The world itself stays until its context closes, since
// recorded collectives may still name it: they fail.
void tn_dist_close(tn_dist *d)
{
    tn_ctx *cx = d ? tni_owned_ok("dist_close", d, TNI_DIST) : NULL;
    if (!cx || d->closed) return;
    bool pending = d->token && d->token->store->node->state == TNI_PENDING;
    if (pending && !cx->busy && !cx->fault.code) cx->flush(cx);
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
    return d && d->mpi ? "mpi" : "none";
}

tn_status tn_dist_barrier(tn_dist *d)
{
    tni_text       why;
    tni_collective c  = { .kind = TNI_BARRIER };
    tn_ctx        *cx = d ? tni_owned_ok("dist_barrier", d, TNI_DIST) : NULL;
    if (!d) return TN_OK;
    if (!cx) return tni_failed();
    tn_status status = tni_dist_run(d, &c, "dist_barrier", &why);
    return status == TN_OK ? status : tni_fail_status(cx, status, "dist_barrier: %s", why.s);
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
    ok        = tni_mpi_describe(p.launcher, &what);
    line[n++] = tni_text_of("mpi  %s%s", ok ? "" : "none: ", what.s);
    return n;
}
