// Profiling: while a profile is on, every step of every plan is timed and added to the row of its
// kernel or call.
//
// On a device with timing events nothing waits while a plan runs: an event is recorded behind each
// step, and the times are read when the plan is done or the events are used up. On other devices
// each step is waited for. Either way kernels are timed one by one, without overlap.
#include "inspect/profile.h"

#include "base/hash.h"
#include "base/page.h"
#include "base/slots.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- time --------------------------------------------------------------------------------------

double tni_clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Without timing events, waits for the device, so that nothing of it overlaps with the next step.
// An error of that work is reported to whoever waits for its values.
tni_time_point tni_time_now(const tni_engine *e)
{
    tni_text why = { "" };
    if (e->events->event_record)
        return (tni_time_point){ .event = e->events->event_record(e->session) };
    if (e->events->wait) e->events->wait(e->session, &why);
    return (tni_time_point){ .clock = tni_clock_now() };
}

double tni_seconds_between(const tni_engine *e, tni_time_point from, tni_time_point to)
{
    if (!e->events->event_record) return to.clock - from.clock;
    return from.event && to.event ? e->events->event_elapsed(e->session, from.event, to.event)
                                  : NAN;
}

// ---- rows --------------------------------------------------------------------------------------

// Call sites are compared by address: their texts are constants of the program.
static uint64_t mix_site(uint64_t h, const tni_node *n, bool layers)
{
    if (layers) h = tni_hash_mix(h, (uint64_t)(uintptr_t)n->site.layer);
    h = tni_hash_mix(h, (uint64_t)(uintptr_t)n->site.file);
    h = tni_hash_mix(h, (uint64_t)(uintptr_t)n->site.op);
    return tni_hash_mix(h, (uint64_t)n->site.line << 16 | n->op);
}

// Hashes what a step is. Equal steps of equal lines and layers are one row, whichever plan they are
// in. Two different ones with the same hash would be shown as one, which does no harm.
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

// Enters a row in the hash table.
static void put_slot(tni_profile *p, size_t row)
{
    tni_slots_put(p->slot, p->slots, p->row[row].hash, row);
}

// Makes space for one more row; the hash table stays at most half full.
static bool grow_rows(tni_heap *h, tni_profile *p)
{
    if (!tni_grow(h, (void **)&p->row, &p->rows_cap, p->rows + 1, sizeof *p->row)) return false;
    if (2 * (p->rows + 1) <= p->slots) return true;
    if (!tni_slots_double(h, &p->slot, &p->slots)) return false;
    for (size_t i = 0; i < p->rows; i++) put_slot(p, i);
    return true;
}

// Copies the call sites of a step: the plan may be gone when the profile is written.
static bool list_sites(const tni_run *r, tni_plan_step step, tni_profile_row *row)
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

// Asked once for each row, when it is added.
static tni_registers registers_of(const tni_run *r, tni_plan_step step)
{
    const tni_planned_kernel *k = step < 0 ? &r->plan->kernel[~step] : NULL;
    if (!k || !r->e->kernels->registers) return (tni_registers){ 0 };
    return r->e->kernels->registers(r->e->session, k->entry, &k->launch);
}

// Returns the row of a step that has run, so that it is known what ran: found or added; NULL if
// memory is out.
static tni_profile_row *row_of(const tni_run *r, tni_profile *p, tni_plan_step step)
{
    uint64_t hash = step_hash(r->g, r->plan, step, true);
    for (size_t at = hash & (p->slots - 1); p->slots && p->slot[at]; at = (at + 1) & (p->slots - 1))
        if (p->row[p->slot[at] - 1].hash == hash) return &p->row[p->slot[at] - 1];
    if (!grow_rows(&r->cx->heap, p)) return NULL;
    tni_profile_row *row = &p->row[p->rows];
    *row                 = (tni_profile_row){ .hash      = hash,
                                              .kind      = step_hash(r->g, r->plan, step, false),
                                              .bytes     = tni_step_bytes(r->g, r->plan, step),
                                              .effort    = tni_step_effort(r->g, r->plan, step),
                                              .registers = registers_of(r, step) };
    row->name            = tni_step_name(r->g, r->plan, step);
    tni_text_add(&row->name, " %s", tni_step_sizes(r->g, r->plan, step).s);
    const char *by = tni_step_method(r->e, r->g, r->plan, step);
    if (by) tni_text_add(&row->name, " by %s", by);
    if (!list_sites(r, step, row)) return NULL;
    put_slot(p, p->rows++);
    return row;
}

// ---- steps -------------------------------------------------------------------------------------

// Remembers one run for the trace. A long program keeps its first million, in bounded memory.
static void add_event(tni_heap *h, tni_profile *p, tni_profile_event e)
{
    if (p->events == TNI_PROFILE_EVENTS) return;
    if (!tni_grow(h, (void **)&p->event, &p->events_cap, p->events + 1, sizeof *p->event)) {
        p->lost++;
        return;
    }
    p->event[p->events++] = e;
}

// Moves the profile's time to a point; returns by how much, at least 0, or -1 if that is not known.
static int64_t advance_to(const tni_engine *e, tni_profile *p, tni_time_point to)
{
    double s  = tni_seconds_between(e, p->last, to);
    p->last   = to;
    int64_t d = isnan(s) ? -1 : s < 0 ? 0 : (int64_t)(s * 1e9 + 0.5);
    if (d > 0) p->now += d;
    return d;
}

// Adds the time of one pending step to its row.
static void time_step(const tni_run *r, tni_profile *p, int pending)
{
    int64_t          from = p->now, ns = advance_to(r->e, p, p->step[pending].end);
    tni_profile_row *row = ns < 0 ? NULL : row_of(r, p, p->step[pending].step);
    p->launches++;
    if (!row) {
        p->lost++;
        return;
    }
    if (!row->count++ || ns < row->best) row->best = ns;
    row->ns += ns;
    p->ns += ns;
    add_event(&r->cx->heap, p,
              (tni_profile_event){ .ns   = ns,
                                   .from = from,
                                   .live = p->step[pending].live,
                                   .row  = (uint32_t)(row - p->row),
                                   .run  = (uint32_t)p->runs_kept });
}

// Releases the device's queue and reads the times of all steps recorded so far.
static void time_pending(const tni_run *r, tni_profile *p)
{
    if (r->e->events->hold_queue) r->e->events->hold_queue(r->e->session, false);
    advance_to(r->e, p, p->first);
    if (p->runs_kept && p->run[p->runs_kept - 1].from < 0) p->run[p->runs_kept - 1].from = p->now;
    for (int i = 0; i < p->pending; i++) time_step(r, p, i);
    p->pending = 0;
}

// A plan's first run may wait for the device, because products are timed then. Later runs hold the
// device's queue until everything is submitted, so that times do not include waiting for the host.
static void begin_batch(const tni_run *r, tni_profile *p)
{
    if (r->e->events->hold_queue && r->plan->runs) r->e->events->hold_queue(r->e->session, true);
    p->first = tni_time_now(r->e);
}

// Remembers an evaluation with its memory, which is all taken by now. Without memory for that, it
// has none.
static void add_run(const tni_run *r, tni_profile *p)
{
    tni_heap       *h   = &r->cx->heap;
    tni_profile_run run = { .from = -1, .arena = r->plan->arena, .held = r->cx->buffers.bytes };
    if (p->runs_kept == TNI_PROFILE_EVENTS ||
        !tni_grow(h, (void **)&p->run, &p->runs_cap, p->runs_kept + 1, sizeof *p->run))
        return;
    int64_t work = r->scratch ? (int64_t)r->scratch->bytes : 0;
    if (!tni_memory_by_owner(r->g, r->plan, work, &run.memory)) run.memory = (tn_plan_memory){ 0 };
    p->run[p->runs_kept++] = run;
}

// Finds how much of the arena each step uses, for the memory over time. It follows from the plan
// alone, and is found before the first step so that nothing is computed between steps that are
// timed.
static void find_live(const tni_run *r, tni_profile *p)
{
    size_t n  = r->plan->steps;
    bool   ok = tni_grow(&r->cx->heap, (void **)&p->live, &p->live_cap, n + 1, sizeof *p->live) &&
              tni_arena_use(r->g, r->plan, p->live);
    for (size_t i = 0; !ok && i < p->live_cap; i++) p->live[i] = 0;
    p->at = 0;
}

void tni_profile_start(const tni_run *r)
{
    tni_profile *p = r->e->inspect->profile;
    p->pending     = 0;
    p->runs++;
    find_live(r, p);
    begin_batch(r, p);
    add_run(r, p);
}

// A plan with more steps than timing events is read in batches.
void tni_profile_step(const tni_run *r, tni_plan_step step)
{
    tni_profile *p    = r->e->inspect->profile;
    int64_t      live = p->at < p->live_cap ? p->live[p->at] : 0;
    p->at++;
    if (!tni_step_runs(r->g, r->plan, step)) return;
    p->step[p->pending].step  = step;
    p->step[p->pending].live  = live;
    p->step[p->pending++].end = tni_time_now(r->e);
    if (p->pending < TNI_PROFILE_BATCH) return;
    time_pending(r, p);
    begin_batch(r, p);
}

void tni_profile_stop(const tni_run *r)
{
    tni_profile *p = r->e->inspect->profile;
    time_pending(r, p);
    if (p->runs_kept) p->run[p->runs_kept - 1].until = p->now;
}

// ---- the host ----------------------------------------------------------------------------------

// Remembers work of the host, which began and ended by its own clock. Losing some of it loses no
// kernel.
static void add_host(tni_heap *h, tni_profile *p, tni_host_work what, int64_t bytes, double from,
                     double to)
{
    if (to <= from || from < p->begun) return;
    p->hosts_in_all++;
    if (p->hosts == TNI_PROFILE_EVENTS ||
        !tni_grow(h, (void **)&p->host, &p->hosts_cap, p->hosts + 1, sizeof *p->host))
        return;
    p->host[p->hosts++] = (tni_profile_host_event){ .from  = (int64_t)(1e9 * (from - p->begun)),
                                                    .ns    = (int64_t)(1e9 * (to - from)),
                                                    .bytes = bytes,
                                                    .what  = what };
}

// What lies before a plan since the work before is recording: nothing else reports to the profile.
void tni_profile_host(tn_ctx *cx, tni_host_work what, int64_t bytes, double since)
{
    tni_profile *p   = cx->engine->inspect->profile;
    double       now = tni_clock_now();
    if (what == TNI_HOST_PLAN) add_host(&cx->heap, p, TNI_HOST_RECORD, 0, p->host_free, since);
    add_host(&cx->heap, p, what, bytes, since, now);
    p->host_free = now;
}

// ---- the calls ---------------------------------------------------------------------------------

// Clears everything except the rooflines, which do not change.
static void clear_profile(tni_heap *h, tni_profile *p)
{
    for (size_t i = 0; i < p->rows; i++) tni_free(h, p->row[i].site);
    tni_free(h, p->row);
    tni_free(h, p->slot);
    tni_free(h, p->event);
    tni_free(h, p->run);
    tni_free(h, p->host);
    tni_free(h, p->live);
    tni_free(h, p->to);
    tni_profile fresh = { .copy = p->copy };
    memcpy(fresh.product, p->product, sizeof fresh.product);
    *p = fresh;
}

// Returns the context's profile, empty; NULL if memory is out.
static tni_profile *fresh_profile(tn_ctx *cx)
{
    tni_engine *e = cx->engine;
    if (!e->inspect->profile)
        e->inspect->profile = tni_zalloc(&cx->heap, sizeof *e->inspect->profile);
    if (!e->inspect->profile) return NULL;
    clear_profile(&cx->heap, e->inspect->profile);
    return e->inspect->profile;
}

static tn_status begin_profile(tn_ctx *cx, const char *call)
{
    tni_engine  *e = cx->engine;
    tni_profile *p = fresh_profile(cx);
    if (!p) {
        tni_fail_memory(cx, call);
        return tni_failed();
    }
    p->last  = tni_time_now(e);
    p->begun = p->host_free = tni_clock_now();
    e->watch |= TNI_WATCH_TIMES;
    return TN_OK;
}

// Whether a call can be; the reason is reported.
static bool profile_ok(tn_ctx *cx, const char *call)
{
    if (!tni_ctx_ok(cx, call)) return false;
    if (cx->busy) tni_fail(cx, TN_EARG, "%s: a tn_ call is in progress", call);
    return !cx->busy;
}

// While TN_PROFILE is on, calls of a program are accepted and change nothing.
tn_status tn_profile_begin(tn_ctx *cx)
{
    if (!profile_ok(cx, "profile_begin")) return tni_failed();
    if (!(cx->engine->watch & TNI_WATCH_TIMES)) return begin_profile(cx, "profile_begin");
    if (cx->engine->inspect->profile->to) return TN_OK;
    return tni_fail_status(cx, TN_EARG, "profile_begin: a profile is already on");
}

// Reports kernels that are missing from the profile, if any.
static tn_status report_lost(tn_ctx *cx, const tni_profile *p, const char *call)
{
    if (!p->lost) return TN_OK;
    return tni_fail_status(
        cx, TN_EMEM,
        "%s: %lld of %lld kernels are missing: there was no memory to note them, "
        "or the device did not time them",
        call, (long long)p->lost, (long long)p->launches);
}

// Times of running work are read at the end of each evaluation, so nothing is pending here.
tn_status tn_profile_end(tn_ctx *cx)
{
    if (!profile_ok(cx, "profile_end")) return tni_failed();
    tni_engine *e = cx->engine;
    if (!(e->watch & TNI_WATCH_TIMES))
        return tni_fail_status(cx, TN_EARG, "profile_end: no profile is on");
    if (e->inspect->profile->to) return TN_OK;
    e->watch &= ~(unsigned)TNI_WATCH_TIMES;
    e->inspect->profile->ended = tni_clock_now();
    return report_lost(cx, e->inspect->profile, "profile_end");
}

static bool ends_in(const char *path, const char *end)
{
    size_t n = path ? strlen(path) : 0, m = strlen(end);
    return n >= m && !strcmp(path + n - m, end);
}

// Writes a trace, if the path ends in .json, a page for .html, else a table. at_close: tables of
// several contexts follow one another in a file, and the others have files of their own.
static tn_status write_file(tn_ctx *cx, const char *path, bool at_close)
{
    tni_profile *p     = cx->engine->inspect->profile;
    bool         trace = ends_in(path, ".json"), html = ends_in(path, ".html"), kept = true;
    FILE        *f = !path           ? stdout
                     : !at_close     ? fopen(path, "w")
                     : trace || html ? tni_page_open_next(path)
                                     : fopen(path, "a");
    if (f && trace) kept = tni_profile_trace(cx, p, f);
    else if (f && html) kept = tni_profile_html(cx, p, f);
    else if (f) tni_profile_table(cx, p, f);
    bool ok = f && fflush(f) == 0 && !ferror(f);
    int  no = errno;
    if (f && f != stdout && fclose(f)) ok = false;
    if (!kept) tni_fail_memory(cx, "profile_write");
    if (!kept) return tni_failed();
    if (ok) return report_lost(cx, p, "profile_write");
    return tni_fail_status(cx, TN_EIO, "profile_write: %s could not be written: %s",
                           path ? tni_quoted(path).s : "it", strerror(no));
}

tn_status tn_profile_write(tn_ctx *cx, const char *path)
{
    if (!profile_ok(cx, "profile_write")) return tni_failed();
    tni_engine *e = cx->engine;
    if (!e->inspect->profile)
        return tni_fail_status(cx, TN_EARG,
                               "profile_write: there is no profile; call tn_profile_begin");
    if ((e->watch & TNI_WATCH_TIMES)) e->inspect->profile->ended = tni_clock_now();
    return write_file(cx, path, false);
}

// ---- TN_PROFILE --------------------------------------------------------------------------------

// TN_PROFILE: a profile from open to close, written to a file or, for "1", to stderr.
void tni_profile_open(tn_ctx *cx)
{
    const char *to = getenv("TN_PROFILE");
    if (!to || !*to || !strcmp(to, "0") || begin_profile(cx, "open") != TN_OK) return;
    cx->engine->inspect->profile->to = tni_strdup(&cx->heap, to);
    if (cx->engine->inspect->profile->to) return;
    tni_fail_memory(cx, "open");
    cx->engine->watch &= ~(unsigned)TNI_WATCH_TIMES;
}

// A context that ran nothing writes nothing.
static void write_at_close(tn_ctx *cx)
{
    tni_profile *p = cx->engine->inspect->profile;
    if (!p->launches) return;
    p->ended = tni_clock_now();
    if (strcmp(p->to, "1")) write_file(cx, p->to, true);
    else tni_profile_table(cx, p, stderr);
}

void tni_profile_close(tn_ctx *cx)
{
    tni_engine *e = cx->engine;
    if (!e->inspect->profile) return;
    if (e->inspect->profile->to) write_at_close(cx);
    e->watch &= ~(unsigned)TNI_WATCH_TIMES;
    clear_profile(&cx->heap, e->inspect->profile);
    tni_free(&cx->heap, e->inspect->profile);
    e->inspect->profile = NULL;
}
