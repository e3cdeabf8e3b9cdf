// Profiling: every step of every plan is timed while a profile is on, and added to what is known of
// its kernel or call.
#include "inspect/profile.h"

#include "base/hash.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- moments -----------------------------------------------------------------------------------

static double clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Without stamps the device is waited for: then nothing of it runs beside the next step. What went
// wrong there is told by whoever waits for the values.
tni_moment tni_moment_now(const tni_engine *e)
{
    tni_text why = { "" };
    if (e->events->event_record)
        return (tni_moment){ .stamp = e->events->event_record(e->session) };
    if (e->events->wait) e->events->wait(e->session, &why);
    return (tni_moment){ .clock = clock_now() };
}

double tni_moments_apart(const tni_engine *e, tni_moment from, tni_moment to)
{
    if (!e->events->event_record) return to.clock - from.clock;
    return from.stamp && to.stamp ? e->events->event_elapsed(e->session, from.stamp, to.stamp)
                                  : NAN;
}

// ---- rows --------------------------------------------------------------------------------------

static uint64_t mix_site(uint64_t h, const tni_node *n, bool layers)
{
    if (layers) h = tni_hash_mix(h, (uint64_t)(uintptr_t)n->site.layer);
    h = tni_hash_mix(h, (uint64_t)(uintptr_t)n->site.file);
    h = tni_hash_mix(h, (uint64_t)(uintptr_t)n->site.op);
    return tni_hash_mix(h, (uint64_t)n->site.line << 16 | n->op);
}

// Equal steps of equal lines and layers are one row, whichever plan they are in. Two that differ and have one
// hash would be shown as one: nothing depends on it.
static uint64_t step_hash(const tni_graph *g, const tni_plan *p, tni_plan_step step, bool layers)
{
    const tni_planned_kernel *k    = step < 0 ? &p->kernel[~step] : NULL;
    int32_t                   item = k ? k->call_item : step;
    uint64_t                  h    = tni_hash_mix(k != NULL, (uint64_t)tni_step_bytes(g, p, step));
    if (item >= 0) h = mix_site(h, g->item[item].n, layers);
    if (!k) return tni_hash_mix(h, tni_hash(g->item[item].n->size, 8u * g->item[item].n->rank));
    for (int i = 0; i < k->kernel->np + k->kernel->nr; i++)
        h = tni_hash_mix(h, (uint64_t)k->launch.size[i]);
    for (int i = 0; i < k->kernel->nins; i++) {
        h = tni_hash_mix(h, (uint64_t)k->kernel->ins[i].code << 8 | k->kernel->ins[i].op);
        if (k->origin[i] >= 0) h = mix_site(h, g->item[k->origin[i]].n, layers);
    }
    return h;
}

static void put_slot(tni_profile *p, size_t row)
{
    size_t at = p->row[row].hash & (p->slots - 1);
    while (p->slot[at]) at = (at + 1) & (p->slots - 1);
    p->slot[at] = (uint32_t)row + 1;
}

// Room for one more row: the slots are at most half full.
static bool make_room(tni_heap *h, tni_profile *p)
{
    if (!tni_grow(h, (void **)&p->row, &p->rows_cap, p->rows + 1, sizeof *p->row)) return false;
    if (2 * (p->rows + 1) <= p->slots) return true;
    size_t    slots = p->slots ? 2 * p->slots : 64;
    uint32_t *slot  = tni_zalloc(h, slots * sizeof *slot);
    if (!slot) return false;
    tni_free(h, p->slot);
    p->slot  = slot;
    p->slots = slots;
    for (size_t i = 0; i < p->rows; i++) put_slot(p, i);
    return true;
}

static bool note_sites(const tni_run *r, tni_plan_step step, tni_profile_row *row)
{
    const tni_node *n;
    int             at = 0, count = 0;
    while (tni_step_origin(r->g, r->plan, step, &at)) count++;
    row->site = tni_alloc(&r->cx->heap, (size_t)count * sizeof *row->site);
    if (!row->site) return false;
    for (at = 0; (n = tni_step_origin(r->g, r->plan, step, &at)) != NULL;) {
        tni_site s = n->site;
        if (!s.op) s.op = tni_op_table[n->op].name;
        row->site[row->sites++] = s;
    }
    return true;
}

static tni_registers registers_of(const tni_run *r, tni_plan_step step)
{
    const tni_planned_kernel *k = step < 0 ? &r->plan->kernel[~step] : NULL;
    if (!k || !r->e->kernels->registers) return (tni_registers){ 0 };
    return r->e->kernels->registers(r->e->session, k->entry, &k->launch);
}

// The row of a step, found or added; NULL when memory is out.
static tni_profile_row *row_of(const tni_run *r, tni_profile *p, tni_plan_step step)
{
    uint64_t hash = step_hash(r->g, r->plan, step, true);
    for (size_t at = hash & (p->slots - 1); p->slots && p->slot[at]; at = (at + 1) & (p->slots - 1))
        if (p->row[p->slot[at] - 1].hash == hash) return &p->row[p->slot[at] - 1];
    if (!make_room(&r->cx->heap, p)) return NULL;
    tni_profile_row *row = &p->row[p->rows];
    *row                 = (tni_profile_row){ .hash      = hash,
                                              .kind      = step_hash(r->g, r->plan, step, false),
                                              .bytes     = tni_step_bytes(r->g, r->plan, step),
                                              .effort    = tni_step_effort(r->g, r->plan, step),
                                              .registers = registers_of(r, step) };
    row->name            = tni_step_name(r->g, r->plan, step);
    tni_text_add(&row->name, " %s", tni_step_sizes(r->g, r->plan, step).s);
    if (!note_sites(r, step, row)) return NULL;
    put_slot(p, p->rows++);
    return row;
}

// ---- steps -------------------------------------------------------------------------------------

static void note_event(tni_heap *h, tni_profile *p, uint32_t row, int64_t from, int64_t ns)
{
    if (p->events == TNI_PROFILE_EVENTS) return;
    if (!tni_grow(h, (void **)&p->event, &p->events_cap, p->events + 1, sizeof *p->event)) {
        p->lost++;
        return;
    }
    p->event[p->events++] = (tni_profile_event){ .ns = ns, .from = from, .row = row };
}

// Time goes on to a moment: by how much, at least 0; -1 if that is not known.
static int64_t advance(const tni_engine *e, tni_profile *p, tni_moment to)
{
    double s  = tni_moments_apart(e, p->last, to);
    p->last   = to;
    int64_t d = isnan(s) ? -1 : s < 0 ? 0 : (int64_t)(s * 1e9 + 0.5);
    if (d > 0) p->now += d;
    return d;
}

static void settle_step(const tni_run *r, tni_profile *p, tni_plan_step step, tni_moment end)
{
    int64_t          from = p->now, ns = advance(r->e, p, end);
    tni_profile_row *row = ns < 0 ? NULL : row_of(r, p, step);
    p->launches++;
    if (!row) {
        p->lost++;
        return;
    }
    if (!row->count++ || ns < row->best) row->best = ns;
    row->ns += ns;
    p->ns += ns;
    note_event(&r->cx->heap, p, (uint32_t)(row - p->row), from, ns);
}

// What was stamped so far gets its times.
static void settle(const tni_run *r, tni_profile *p)
{
    if (r->e->events->hold_queue) r->e->events->hold_queue(r->e->session, false);
    advance(r->e, p, p->first);
    for (int i = 0; i < p->pending; i++) settle_step(r, p, p->step[i].step, p->step[i].end);
    p->pending = 0;
}

// What a plan does for the first time may wait for the device: products are tried out. Later the
// device is held until all is given to it, so that its times have no waiting for the host in them.
static void begin_batch(const tni_run *r, tni_profile *p)
{
    if (r->e->events->hold_queue && r->plan->runs) r->e->events->hold_queue(r->e->session, true);
    p->first = tni_moment_now(r->e);
}

void tni_profile_start(const tni_run *r)
{
    tni_profile *p = r->e->inspect->profile;
    p->pending     = 0;
    p->runs++;
    begin_batch(r, p);
}

void tni_profile_step(const tni_run *r, tni_plan_step step)
{
    tni_profile *p = r->e->inspect->profile;
    if (!tni_step_runs(r->g, r->plan, step)) return;
    if (p->pending == TNI_PROFILE_BATCH) {
        settle(r, p);
        begin_batch(r, p);
    }
    p->step[p->pending].step  = step;
    p->step[p->pending++].end = tni_moment_now(r->e);
}

void tni_profile_stop(const tni_run *r)
{
    settle(r, r->e->inspect->profile);
}

// ---- the calls ---------------------------------------------------------------------------------

// As new, but for the ceilings, which stay what they are.
static void clear(tni_heap *h, tni_profile *p)
{
    for (size_t i = 0; i < p->rows; i++) tni_free(h, p->row[i].site);
    tni_free(h, p->row);
    tni_free(h, p->slot);
    tni_free(h, p->event);
    tni_free(h, p->to);
    tni_profile fresh = { .copy = p->copy };
    memcpy(fresh.product, p->product, sizeof fresh.product);
    *p = fresh;
}

// The profile of a context that is ready to begin; NULL when memory is out.
static tni_profile *fresh_profile(tn_ctx *cx)
{
    tni_engine *e = cx->engine;
    if (!e->inspect->profile)
        e->inspect->profile = tni_zalloc(&cx->heap, sizeof *e->inspect->profile);
    if (!e->inspect->profile) return NULL;
    clear(&cx->heap, e->inspect->profile);
    return e->inspect->profile;
}

static tn_status begin(tn_ctx *cx, const char *call)
{
    tni_engine  *e = cx->engine;
    tni_profile *p = fresh_profile(cx);
    if (!p) {
        tni_fail_memory(cx, call);
        return tni_failed();
    }
    p->last  = tni_moment_now(e);
    p->begun = clock_now();
    e->watch |= TNI_WATCH_TIMES;
    return TN_OK;
}

// Whether a call can be; the reason is reported.
static bool usable(tn_ctx *cx, const char *call)
{
    if (!tni_ctx_ok(cx, call)) return false;
    if (cx->busy) tni_fail(cx, TN_EARG, "%s: a tn_ call is in progress", call);
    return !cx->busy;
}

tn_status tn_profile_begin(tn_ctx *cx)
{
    if (!usable(cx, "profile_begin")) return tni_failed();
    if (!(cx->engine->watch & TNI_WATCH_TIMES)) return begin(cx, "profile_begin");
    if (cx->engine->inspect->profile->to) return TN_OK;
    return tni_fail_status(cx, TN_EARG, "profile_begin: a profile is on already");
}

static tn_status complete(tn_ctx *cx, const tni_profile *p, const char *call)
{
    if (!p->lost) return TN_OK;
    return tni_fail_status(
        cx, TN_EMEM,
        "%s: %lld of %lld kernels are missing: there was no memory to note them, "
        "or the device did not time them",
        call, (long long)p->lost, (long long)p->launches);
}

tn_status tn_profile_end(tn_ctx *cx)
{
    if (!usable(cx, "profile_end")) return tni_failed();
    tni_engine *e = cx->engine;
    if (!(e->watch & TNI_WATCH_TIMES))
        return tni_fail_status(cx, TN_EARG, "profile_end: no profile is on");
    if (e->inspect->profile->to) return TN_OK;
    e->watch &= ~(unsigned)TNI_WATCH_TIMES;
    e->inspect->profile->ended = clock_now();
    return complete(cx, e->inspect->profile, "profile_end");
}

static bool is_json(const char *path)
{
    size_t n = strlen(path);
    return n >= 5 && !strcmp(path + n - 5, ".json");
}

// mode: of fopen, for a table; a trace begins its file.
static tn_status write_file(tn_ctx *cx, const char *path, const char *mode)
{
    tni_profile *p     = cx->engine->inspect->profile;
    bool         trace = path && is_json(path), kept = true;
    FILE        *f = path ? fopen(path, trace ? "w" : mode) : stdout;
    if (f && trace) kept = tni_profile_trace(cx, p, f);
    else if (f) tni_profile_table(cx, p, f);
    bool ok = f && fflush(f) == 0 && !ferror(f);
    int  no = errno;
    if (f && f != stdout && fclose(f)) ok = false;
    if (!kept) tni_fail_memory(cx, "profile_write");
    if (!kept) return tni_failed();
    if (ok) return complete(cx, p, "profile_write");
    return tni_fail_status(cx, TN_EIO, "profile_write: %s could not be written: %s",
                           path ? tni_quoted(path).s : "it", strerror(no));
}

tn_status tn_profile_write(tn_ctx *cx, const char *path)
{
    if (!usable(cx, "profile_write")) return tni_failed();
    tni_engine *e = cx->engine;
    if (!e->inspect->profile)
        return tni_fail_status(cx, TN_EARG, "profile_write: there is no profile: begin one");
    if ((e->watch & TNI_WATCH_TIMES)) e->inspect->profile->ended = clock_now();
    return write_file(cx, path, "w");
}

// ---- TN_PROFILE --------------------------------------------------------------------------------

void tni_profile_open(tn_ctx *cx)
{
    const char *to = getenv("TN_PROFILE");
    if (!to || !*to || !strcmp(to, "0") || begin(cx, "open") != TN_OK) return;
    cx->engine->inspect->profile->to = tni_strdup(&cx->heap, to);
    if (cx->engine->inspect->profile->to) return;
    tni_fail_memory(cx, "open");
    cx->engine->watch &= ~(unsigned)TNI_WATCH_TIMES;
}

// "1" is stderr. A context that ran nothing leaves no page.
static void write_whole(tn_ctx *cx)
{
    tni_profile *p = cx->engine->inspect->profile;
    if (!p->launches) return;
    p->ended = clock_now();
    if (strcmp(p->to, "1")) write_file(cx, p->to, "a");
    else tni_profile_table(cx, p, stderr);
}

void tni_profile_close(tn_ctx *cx)
{
    tni_engine *e = cx->engine;
    if (!e->inspect->profile) return;
    if (e->inspect->profile->to) write_whole(cx);
    e->watch &= ~(unsigned)TNI_WATCH_TIMES;
    clear(&cx->heap, e->inspect->profile);
    tni_free(&cx->heap, e->inspect->profile);
    e->inspect->profile = NULL;
}
