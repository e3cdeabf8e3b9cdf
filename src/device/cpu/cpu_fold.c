// fold, the adjoint of a view: elements are added up, in row-major order, at the places of the base
// that the view reads them from. Leading axes whose strides reach past everything after them cannot
// collide, so that tasks divide those. f16 and bf16 are summed in f32, in scratch, and rounded
// once. If the view visits no place twice, it is only copied back.
#include "base/pool.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/strided.h"

#include <string.h>

enum { TASK = 1 << 14 };  // least elements of a task

// A fold. Invariant: slices never touch the same place of the base, so that tasks may run at once.
typedef struct {
    const tni_tiles *tiles;
    tn_dtype         dtype;    // of the sums
    tni_arg          x, to;    // the elements and where they are added, of one shape
    int              leading;  // axes that tasks divide
    // Indices of the leading axes, elements of each, and slices of a task.
    int64_t slices, slice, per_task;
} fold_job;

// Returns the places as a view of the base.
static tni_view view_of_places(const tni_call *call)
{
    tni_view v = { .rank = call->in[0].rank, .offset = call->attr->view.offset };
    for (int i = 0; i < v.rank; i++) {
        v.size[i]   = call->in[0].size[i];
        v.stride[i] = call->attr->view.stride[i];
    }
    return v;
}

// Returns whether no two elements meet, so that there is nothing to add up.
static bool fold_is_copy(const tni_call *call)
{
    tni_view v = view_of_places(call);
    return tni_view_injective(&v);
}

static bool fold_in_float(const tni_call *call)
{
    return tni_is_rounded(call->out.dtype) && !fold_is_copy(call);
}

size_t tni_cpu_fold_scratch(const tni_call *call)
{
    return fold_in_float(call) ? (size_t)tni_arg_count(&call->out) * sizeof(float) : 0;
}

// Returns how many leading axes step past everything that the axes after them reach: different
// indices along them never touch the same place.
static int disjoint_axes(const tni_arg *to)
{
    int     n    = to->rank;
    int64_t span = 0;
    for (int i = to->rank - 1; i >= 0; i--) {
        if (tni_abs_stride(to->stride[i]) <= span) n = i;
        span += tni_abs_stride(to->stride[i]) * (to->size[i] - 1);
    }
    return n;
}

// Where a walk over the places is: the index along each axis, and the place.
typedef struct {
    int64_t at[TN_MAX_RANK], place;
} cursor;

// Returns the cursor at element number `first`.
static cursor cursor_at(const tni_arg *to, int64_t first)
{
    cursor w = { .place = tni_arg_offset(to, first) };
    for (int i = to->rank - 1; i >= 0; i--) {
        w.at[i] = first % to->size[i];
        first /= to->size[i];
    }
    return w;
}

// Advances to the beginning of the next run of the last axis.
static void next_run(const tni_arg *to, cursor *w)
{
    for (int i = to->rank - 1; i >= 0; i--) {
        w->place += to->stride[i];
        if (++w->at[i] < to->size[i]) return;
        w->place -= w->at[i] * to->stride[i];
        w->at[i] = 0;
    }
}

// Adds n elements, all in one tile, at the cursor and moves it past them, one run of the last axis
// at a time. Within a run of stride 0 elements add to one place, in order.
static void add_tile(const fold_job *j, int64_t first, int64_t n, cursor *w,
                     tni_tile_scratch *scratch)
{
    int64_t     bytes = (int64_t)tni_dtype_size(j->dtype);
    const char *x     = tni_tile_load(j->tiles, &j->x, j->dtype, first, n, scratch);
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

// Adds the elements of per_task slices, in order.
static void fold_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const fold_job  *j = arg;
    tni_tile_scratch scratch;
    int64_t          first = item * j->per_task * j->slice;
    int64_t          end   = tni_min_i64(j->slices, (item + 1) * j->per_task) * j->slice;
    cursor           w     = cursor_at(&j->to, first);
    for (; first < end; first += TNI_TILE)
        add_tile(j, first, tni_min_i64(TNI_TILE, end - first), &w, &scratch);
}

// After the axes are merged for the places, the elements may merge further: their order is all that
// matters.
void tni_cpu_fold(const tni_call *call)
{
    bool     floats = fold_in_float(call);
    size_t   es     = floats ? sizeof(float) : tni_dtype_size(call->out.dtype);
    char    *sums   = floats ? call->scratch : call->out.data;
    fold_job j      = { .tiles = tni_tiles_get(), .x = call->in[0], .to = call->in[0] };
    j.dtype         = floats ? TN_F32 : call->out.dtype;
    memset(sums, 0, (size_t)tni_arg_count(&call->out) * es);
    for (int i = 0; i < j.to.rank; i++) j.to.stride[i] = call->attr->view.stride[i];
    j.to.data = sums + call->attr->view.offset * (int64_t)es;

    int64_t count = tni_arg_count(&j.x);
    if (fold_is_copy(call)) {
        tni_copy_arg(call->threads, &j.x, &j.to);
    } else if (count > 0) {
        tni_arg *both[2] = { &j.to, &j.x }, *one[1] = { &j.x };
        tni_merge_axes(2, both);
        j.leading = disjoint_axes(&j.to);
        j.slices  = 1;
        for (int i = 0; i < j.leading; i++) j.slices *= j.to.size[i];
        j.slice    = count / j.slices;
        j.per_task = tni_ceil_div(TASK, j.slice);
        tni_merge_axes(1, one);
        tni_parallel(tni_threads_for(call->threads, count), tni_ceil_div(j.slices, j.per_task),
                     fold_task, &j);
    }
    tni_arg made = tni_arg_row_major(TN_F32, call->out.rank, call->out.size, sums);
    if (floats) tni_copy_arg(call->threads, &made, &call->out);
}
