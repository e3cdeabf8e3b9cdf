// Moves elements: copies and casts between any strides, and concat. A copy is memory-bound, so all
// that matters is to read and write whole cache lines.
#include "base/pool.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/strided.h"

#include <string.h>

enum {
    LINE  = 16384,  // most elements of a block if both sides are densest along the same axis
    BLOCK = 64,     // side of a transposed block: 64 lines of up to 512 bytes stay in the L1 cache
    TASK  = 16384   // least elements of a task, so that it outweighs starting it
};

// A copy as planes of rows and columns. The last axis is the one along which out is densest; the
// one before it is the axis along which in is densest, if that is another. Blocks of a plane are
// small enough for their cache lines to stay in the cache until they are used up.
typedef struct {
    const tni_tiles *tiles;
    tni_arg          in, out;  // merged and permuted alike
    int64_t          rows, cols, row_step, col_step;
    int64_t          down, across, blocks, per_task;
} copy_plan;

// Moves the axis along which in is densest next to the last one; returns false if it is the last,
// in which case the copy is no transpose.
static bool bring_dense_axis_next(copy_plan *c)
{
    int last = c->in.rank - 1, dense = last, perm[TN_MAX_RANK], n = 0;
    for (int i = 0; i <= last; i++)
        if (c->in.stride[i] != 0 &&
            tni_abs_stride(c->in.stride[i]) < tni_abs_stride(c->in.stride[dense]))
            dense = i;
    if (dense == last || c->in.stride[last] == 0) return false;
    for (int i = 0; i < last; i++)
        if (i != dense) perm[n++] = i;
    perm[n++] = dense;
    perm[n++] = last;
    tni_permute_axes(&c->in, n, perm);
    tni_permute_axes(&c->out, n, perm);
    return true;
}

// Brings both sides to the fewest axes, in the order of out's strides, and chooses the blocks.
static copy_plan plan_copy(const tni_arg *in, const tni_arg *out)
{
    copy_plan c       = { .tiles = tni_tiles_get(), .in = *in, .out = *out };
    tni_arg  *both[2] = { &c.out, &c.in };
    tni_merge_axes(2, both);
    tni_sort_axes(2, both);
    tni_merge_axes(2, both);
    int  rank       = c.out.rank;
    bool transposed = rank >= 2 && bring_dense_axis_next(&c);
    c.cols          = rank >= 1 ? c.out.size[rank - 1] : 1;
    c.rows          = rank >= 2 ? c.out.size[rank - 2] : 1;
    c.col_step      = tni_min_i64(c.cols, transposed ? BLOCK : LINE);
    c.row_step      = tni_min_i64(c.rows, transposed ? BLOCK : LINE / c.col_step);
    c.down          = tni_ceil_div(c.rows, c.row_step);
    c.across        = tni_ceil_div(c.cols, c.col_step);
    c.blocks        = c.down * c.across;
    for (int i = 0; i < rank - 2; i++) c.blocks *= c.out.size[i];
    c.per_task = tni_ceil_div(TASK, c.row_step * c.col_step);
    return c;
}

enum { LINE_ROWS = 16 };  // f32 elements of a cache line

// Copies n elements of each of `cols` lines of x to a small square, transposed. The square makes it
// possible to read every cache line of x as a whole and to write every row of y in one go, even if
// their strides map to the same cache sets.
static inline void transpose_lines(size_t bytes, char *square, const char *x, int64_t x_col,
                                   int64_t n, int64_t cols)
{
    for (int64_t j = 0; j < cols; j++, x += x_col * (int64_t)bytes)
        for (int64_t i = 0; i < n; i++)
            memcpy(square + (size_t)(i * BLOCK + j) * bytes, x + i * (int64_t)bytes, bytes);
}

// Transposes a block by way of the square, LINE_ROWS rows at a time. Inlined with a constant size.
static inline void transpose_block(size_t bytes, char *y, int64_t y_row, const char *x,
                                   int64_t x_col, int64_t rows, int64_t cols)
{
    char square[LINE_ROWS * BLOCK * 8];
    for (int64_t i0 = 0; i0 < rows; i0 += LINE_ROWS) {
        int64_t     n    = tni_min_i64(LINE_ROWS, rows - i0);
        const char *from = x + i0 * (int64_t)bytes;
        if (n == LINE_ROWS) transpose_lines(bytes, square, from, x_col, LINE_ROWS, cols);
        else transpose_lines(bytes, square, from, x_col, n, cols);
        for (int64_t i = 0; i < n; i++)
            memcpy(y + (i0 + i) * y_row * (int64_t)bytes, square + (size_t)(i * BLOCK) * bytes,
                   (size_t)cols * bytes);
    }
}

static void transpose_rows(size_t bytes, char *y, int64_t y_row, const char *x, int64_t x_col,
                           int64_t rows, int64_t cols)
{
    if (bytes == 4) transpose_block(4, y, y_row, x, x_col, rows, cols);
    else if (bytes == 2) transpose_block(2, y, y_row, x, x_col, rows, cols);
    else if (bytes == 8) transpose_block(8, y, y_row, x, x_col, rows, cols);
    else transpose_block(1, y, y_row, x, x_col, rows, cols);
}

// Copies a block of rows and columns from x to y. From fastest to slowest: a transpose in cache,
// runs without conversion, contiguous conversions, tiles that are gathered, converted and
// scattered.
static void copy_block(const copy_plan *c, char *y, const char *x, int64_t rows, int64_t cols)
{
    int     last     = c->out.rank - 1;
    int64_t in_bytes = (int64_t)tni_dtype_size(c->in.dtype);
    int64_t bytes    = (int64_t)tni_dtype_size(c->out.dtype);
    int64_t xc = last >= 0 ? c->in.stride[last] : 1, yc = last >= 0 ? c->out.stride[last] : 1;
    int64_t xr = last >= 1 ? c->in.stride[last - 1] : 0,
            yr = last >= 1 ? c->out.stride[last - 1] : 0;
    bool same  = c->in.dtype == c->out.dtype;
    // Tiles convert to and from compute types only: between two others, elements take two steps.
    bool             direct = same || c->tiles->as[c->in.dtype] || c->tiles->as[c->out.dtype];
    tn_dtype         by     = direct ? c->out.dtype : tni_compute_dtype(c->in.dtype);
    tni_tile_scratch scratch;

    if (same && yc == 1 && xr == 1 && xc != 1 && rows > 1 && cols <= BLOCK) {
        transpose_rows((size_t)bytes, y, yr, x, xc, rows, cols);
        return;
    }
    for (int64_t i = 0; i < rows; i++, x += xr * in_bytes, y += yr * bytes) {
        if (same && (yc == 1 || xc == 1)) {
            if (yc == 1) tni_gather_run((size_t)bytes, y, x, xc, cols);
            else tni_scatter_run((size_t)bytes, y, x, yc, cols);
            continue;
        }
        for (int64_t j = 0; j < cols; j += TNI_TILE) {
            int64_t     n    = tni_min_i64(TNI_TILE, cols - j);
            const char *from = x + j * xc * in_bytes;
            char       *to   = y + j * yc * bytes;
            if (!same && xc == 1 && yc == 1 && by == c->out.dtype) {
                tni_converter(c->tiles, c->in.dtype, by)(to, from, n);
                continue;
            }
            const void *v = tni_tile_load_run(c->tiles, from, c->in.dtype, xc, by, n, &scratch);
            if (by != c->out.dtype) {
                tni_converter(c->tiles, by, c->out.dtype)(scratch.raw, v, n);
                v = scratch.raw;
            }
            tni_scatter_run((size_t)bytes, to, v, yc, n);
        }
    }
}

// Copies per_task blocks. Blocks are numbered through all planes.
static void copy_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const copy_plan *c     = arg;
    int64_t          end   = tni_min_i64(c->blocks, (item + 1) * c->per_task);
    tni_arg          outer = c->in, outer_out = c->out;
    outer.rank = outer_out.rank = c->out.rank > 2 ? c->out.rank - 2 : 0;
    for (int64_t b = item * c->per_task; b < end; b++) {
        int64_t plane = b / (c->down * c->across), block = b % (c->down * c->across);
        int64_t i0 = block / c->across * c->row_step, j0 = block % c->across * c->col_step;
        int64_t at = tni_arg_offset(&outer, plane), to = tni_arg_offset(&outer_out, plane);
        int     last = c->out.rank - 1;
        if (last >= 0) at += j0 * c->in.stride[last], to += j0 * c->out.stride[last];
        if (last >= 1) at += i0 * c->in.stride[last - 1], to += i0 * c->out.stride[last - 1];
        copy_block(c, c->out.data + to * (int64_t)tni_dtype_size(c->out.dtype),
                   c->in.data + at * (int64_t)tni_dtype_size(c->in.dtype),
                   tni_min_i64(c->row_step, c->rows - i0), tni_min_i64(c->col_step, c->cols - j0));
    }
}

void tni_copy_arg(int threads, const tni_arg *in, const tni_arg *out)
{
    int64_t count = tni_arg_count(out);
    if (count == 0) return;
    copy_plan c = plan_copy(in, out);
    tni_parallel(tni_threads_for(threads, count), tni_ceil_div(c.blocks, c.per_task), copy_task,
                 &c);
}

void tni_cpu_copy(const tni_call *call)
{
    tni_copy_arg(call->threads, &call->in[0], &call->out);
}

// An input that the planner had computed in its slice of the output is there already.
void tni_cpu_concat(const tni_call *call)
{
    int     axis  = call->attr->axis.axis;
    tni_arg slice = call->out;
    for (int k = 0; k < call->nin; k++) {
        slice.size[axis] = call->in[k].size[axis];
        if (call->in[k].data != slice.data) tni_copy_arg(call->threads, &call->in[k], &slice);
        slice.data += slice.size[axis] * slice.stride[axis] * (int64_t)tni_dtype_size(slice.dtype);
    }
}
