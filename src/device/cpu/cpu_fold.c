// fold, the adjoint of a view: elements are added up, in row-major order, at the places of the
// base they were read from. Leading axes whose steps reach past everything behind them cannot
// collide, so tasks divide those. f16 and bf16 are added up in float, in scratch. A view that
// visits no place twice is only copied back.
#include "base/pool.h"
#include "device/cpu/cpu_walk.h"

#include <string.h>

enum { TASK = 1 << 14 };

typedef struct {
    const tni_tiles *tiles;
    tn_dtype         dtype;                  // the sums are of
    tni_arg          x, to;                  // the elements and their places, of one shape
    int              leading;                // axes that tasks divide
    int64_t          parts, part, per_task;  // pieces of the leading axes and their elements
} job;

// The places as a layout of the base.
static tni_view places(const tni_call *call)
{
    tni_view v = { .rank = call->in[0].rank, .offset = call->attr->view.offset };
    for (int i = 0; i < v.rank; i++) {
        v.size[i]   = call->in[0].size[i];
        v.stride[i] = call->attr->view.stride[i];
    }
    return v;
}

// Where no two elements meet there is nothing to add up.
static bool is_copy(const tni_call *call)
{
    tni_view v = places(call);
    return tni_view_injective(&v);
}

static bool in_float(const tni_call *call)
{
    return tni_is_rounded(call->out.dtype) && !is_copy(call);
}

size_t tni_cpu_fold_scratch(const tni_call *call)
{
    return in_float(call) ? (size_t)tni_arg_count(&call->out) * sizeof(float) : 0;
}

// How many leading axes step past all that lies behind them.
static int apart(const tni_arg *to)
{
    int     n    = to->rank;
    int64_t span = 0;
    for (int i = to->rank - 1; i >= 0; i--) {
        if (tni_reach(to->stride[i]) <= span) n = i;
        span += tni_reach(to->stride[i]) * (to->size[i] - 1);
    }
    return n;
}

// Where a walk over the places is: the index along each axis, and the place.
typedef struct {
    int64_t at[TN_MAX_RANK], place;
} cursor;

static cursor cursor_at(const tni_arg *to, int64_t first)
{
    cursor w = { .place = tni_arg_place(to, first) };
    for (int i = to->rank - 1; i >= 0; i--) {
        w.at[i] = first % to->size[i];
        first /= to->size[i];
    }
    return w;
}

// Goes to the beginning of the next run of the last axis.
static void next_run(const tni_arg *to, cursor *w)
{
    for (int i = to->rank - 1; i >= 0; i--) {
        w->place += to->stride[i];
        if (++w->at[i] < to->size[i]) return;
        w->place -= w->at[i] * to->stride[i];
        w->at[i] = 0;
    }
}

// Adds n elements, all in one tile, from where the cursor is, and moves it past them.
static void add_tile(const job *j, int64_t first, int64_t n, cursor *w, tni_room *room)
{
    int64_t     bytes = (int64_t)tni_dtype_size(j->dtype);
    const char *x     = tni_tile_of(j->tiles, &j->x, j->dtype, first, n, room);
    int         last  = j->to.rank - 1;
    if (last < 0) tni_add_run(j->dtype, j->to.data, x, 1, 1);
    while (last >= 0 && n > 0) {
        int64_t run = tni_min_i64(n, j->to.size[last] - w->at[last]);
        tni_add_run(j->dtype, j->to.data + w->place * bytes, x, j->to.stride[last], run);
        x += run * bytes;
        n -= run;
        w->at[last] += run - 1;
        w->place += (run - 1) * j->to.stride[last];
        next_run(&j->to, w);
    }
}

static void fold_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const job *j = arg;
    tni_room   room;
    int64_t    first = item * j->per_task * j->part;
    int64_t    end   = tni_min_i64(j->parts, (item + 1) * j->per_task) * j->part;
    cursor     w     = cursor_at(&j->to, first);
    for (; first < end; first += TNI_TILE)
        add_tile(j, first, tni_min_i64(TNI_TILE, end - first), &w, &room);
}

void tni_cpu_fold(const tni_call *call)
{
    bool   floats = in_float(call);
    size_t es     = floats ? sizeof(float) : tni_dtype_size(call->out.dtype);
    char  *sums   = floats ? call->scratch : call->out.data;
    job    j      = { .tiles = tni_tiles_get(), .x = call->in[0], .to = call->in[0] };
    j.dtype       = floats ? TN_F32 : call->out.dtype;
    memset(sums, 0, (size_t)tni_arg_count(&call->out) * es);
    for (int i = 0; i < j.to.rank; i++) j.to.stride[i] = call->attr->view.stride[i];
    j.to.data = sums + call->attr->view.offset * (int64_t)es;

    int64_t count = tni_arg_count(&j.x);
    if (is_copy(call)) {
        tni_copy_arg(call->threads, &j.x, &j.to);
    } else if (count > 0) {
        tni_arg *both[2] = { &j.to, &j.x }, *one[1] = { &j.x };
        tni_merge(2, both);
        j.leading = apart(&j.to);
        j.parts   = 1;
        for (int i = 0; i < j.leading; i++) j.parts *= j.to.size[i];
        j.part     = count / j.parts;
        j.per_task = tni_ceil_div(TASK, j.part);
        tni_merge(1, one);
        tni_parallel(tni_threads_for(call->threads, count), tni_ceil_div(j.parts, j.per_task),
                     fold_task, &j);
    }
    tni_arg made = tni_arg_rows(TN_F32, call->out.rank, call->out.size, sums);
    if (floats) tni_copy_arg(call->threads, &made, &call->out);
}
