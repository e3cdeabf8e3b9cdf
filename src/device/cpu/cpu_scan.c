// Running sums and products along an axis, in double or i64 whatever the dtype, so that a long sum
// does not lose the digits of its small terms. Strips of neighbouring lines are scanned side by
// side, which vectorizes; a line alone goes one element after the other, as each result needs the
// one before.
#include "base/pool.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/strided.h"

#include <string.h>

// Lines scanned side by side: their totals, 2 KiB, stay in the first-level cache. Least elements of
// a task.
enum { STRIP = 256, TASK = 1 << 14 };

// A scan: the axes other than the scanned one, of in and out, and that axis.
typedef struct {
    const tni_tiles *tiles;
    int              op;
    tn_dtype         acc;
    tni_arg          in, out;
    int64_t          n, step, out_step;  // of the scanned axis
    int64_t          lines, per_task;
} scan_job;

// Takes the scanned axis out of both arguments and merges the others.
static scan_job plan_scan_lines(const tni_call *call)
{
    int      axis = call->attr->axis.axis, perm[TN_MAX_RANK], n = 0;
    scan_job j = { .tiles = tni_tiles_get(), .op = call->op, .in = call->in[0], .out = call->out };
    j.acc      = tni_total_dtype(call->out.dtype);
    j.n        = call->out.rank > 0 ? call->out.size[axis] : 1;
    if (call->out.rank > 0) j.step = j.in.stride[axis], j.out_step = j.out.stride[axis];
    for (int i = 0; i < call->out.rank; i++)
        if (i != axis) perm[n++] = i;
    tni_permute_axes(&j.in, n, perm);
    tni_permute_axes(&j.out, n, perm);
    tni_arg *both[2] = { &j.out, &j.in };
    tni_merge_axes(2, both);
    j.lines    = tni_arg_count(&j.out);
    j.per_task = tni_ceil_div(TASK, j.n);
    return j;
}

// Scans one line tile by tile; the total is carried from tile to tile.
static void scan_line(const scan_job *j, const char *x, char *y, tni_tile_scratch *scratch)
{
    int64_t     in_bytes = (int64_t)tni_dtype_size(j->in.dtype);
    int64_t     bytes    = (int64_t)tni_dtype_size(j->out.dtype);
    const void *v;
    tni_total   acc = { 0 };
    if (j->op == TNI_cumprod && tni_is_float(j->acc)) acc.d = 1;
    else if (j->op == TNI_cumprod) acc.l = 1;
    // A zero added to -0 would be 0, so sums begin at -0.
    else if (tni_is_float(j->acc)) acc.d = -0.0;
    for (int64_t at = 0; at < j->n; at += TNI_TILE) {
        int64_t n = tni_min_i64(TNI_TILE, j->n - at);
        v = tni_tile_load_run(j->tiles, x + at * j->step * in_bytes, j->in.dtype, j->step, j->acc,
                              n, scratch);
        if (v != scratch->ready) memcpy(scratch->ready, v, (size_t)n * 8);
        j->tiles->of[j->acc]->scan[j->op](scratch->ready, &acc, n);
        tni_converter(j->tiles, j->acc, j->out.dtype)(scratch->raw, scratch->ready, n);
        tni_scatter_run((size_t)bytes, y + at * j->out_step * bytes, scratch->raw, j->out_step, n);
    }
}

// Scans lines one by one.
static void scan_lines_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const scan_job  *j = arg;
    tni_tile_scratch scratch;
    int64_t          end = tni_min_i64(j->lines, (item + 1) * j->per_task);
    for (int64_t i = item * j->per_task; i < end; i++)
        scan_line(j, j->in.data + tni_arg_offset(&j->in, i) * (int64_t)tni_dtype_size(j->in.dtype),
                  j->out.data + tni_arg_offset(&j->out, i) * (int64_t)tni_dtype_size(j->out.dtype),
                  &scratch);
}

// Scans a strip of neighbouring lines, one element of all of them after the other.
static void scan_strip_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const scan_job   *j = arg;
    tni_tile_scratch  scratch;
    _Alignas(64) char acc[STRIP * 8];
    int               last = j->out.rank - 1;
    int64_t           cols = j->out.size[last], across = tni_ceil_div(cols, STRIP);
    int64_t           col = item % across * STRIP, n = tni_min_i64(STRIP, cols - col);
    int64_t           first    = item / across * cols + col;
    int64_t           in_bytes = (int64_t)tni_dtype_size(j->in.dtype);
    int64_t           bytes    = (int64_t)tni_dtype_size(j->out.dtype);
    const char       *x        = j->in.data + tni_arg_offset(&j->in, first) * in_bytes;
    char             *y        = j->out.data + tni_arg_offset(&j->out, first) * bytes;
    for (int64_t i = 0; i < j->n; i++, x += j->step * in_bytes, y += j->out_step * bytes) {
        const void *v = tni_tile_load_run(j->tiles, x, j->in.dtype, j->in.stride[last], j->acc, n,
                                          &scratch);
        if (i == 0) memcpy(acc, v, (size_t)n * 8);
        else j->tiles->of[j->acc]->fold[j->op](acc, v, 0, 1, n);
        tni_converter(j->tiles, j->acc, j->out.dtype)(y, acc, n);
    }
}

// Strips need contiguous outputs, and 8 lines to be worth their overhead.
void tni_cpu_scan(const tni_call *call)
{
    scan_job j       = plan_scan_lines(call);
    int      threads = tni_threads_for(call->threads, j.lines * j.n), last = j.out.rank - 1;
    if (last >= 0 && j.out.stride[last] == 1 && j.out.size[last] >= 8) {
        int64_t cols = j.out.size[last];
        tni_parallel(threads, j.lines / cols * tni_ceil_div(cols, STRIP), scan_strip_task, &j);
    } else {
        tni_parallel(threads, tni_ceil_div(j.lines, j.per_task), scan_lines_task, &j);
    }
}
