// scatter and scatter_add. An index names a place along one axis; along the other axes an element
// keeps its place. Axes behind that axis along which the index is constant make up rows that move
// as one: the gradient of an embedding.
#include "base/pool.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/strided.h"

#include <stdatomic.h>
#include <string.h>

// Up to TASK / 1024 = 16 strips share the inner axes, each of at least STRIP elements, so that
// tasks rarely share a cache line.
enum { TASK = 1 << 14, STRIP = 64 };

// Reads an index of i32 or i64.
static int64_t read_index(const tni_arg *index, int64_t place)
{
    if (index->dtype == TN_I32) return ((const int32_t *)index->data)[place];
    return ((const int64_t *)index->data)[place];
}

// Returns an index counted from the end if it is negative; -1 if it is out of range.
static int64_t resolve_index(int64_t i, int64_t size)
{
    if (i < 0) i += size;
    return i >= 0 && i < size ? i : -1;
}

// Reports the index that is out of range: number `at` of the index in row-major order.
static tn_status report_bad_index(const tni_call *call, const tni_arg *index, int64_t at)
{
    int axis   = call->attr->axis.axis;
    *call->why = (tni_text){ 0 };
    tni_text_add(call->why, "%s: index %lld is out of range for size %lld along axis %d",
                 tni_op_table[call->op].name,
                 (long long)read_index(index, tni_arg_offset(index, at)),
                 (long long)call->in[0].size[axis], axis);
    return TN_EARG;
}

// Keeps the smallest number, so that the error names the same index whatever the threads.
static void note_bad_index(_Atomic int64_t *bad, int64_t at)
{
    int64_t now = atomic_load(bad);
    while (at < now && !atomic_compare_exchange_weak(bad, &now, at)) continue;
}

// Returns the axes first .. last-1 of x.
static tni_arg scatter_axes(const tni_arg *x, int first, int last)
{
    tni_arg y = *x;
    y.rank    = last - first;
    for (int i = first; i < last; i++) {
        y.size[i - first]   = x->size[i];
        y.stride[i - first] = x->stride[i];
    }
    return y;
}

// Returns whether merged axes are one run without gaps.
static bool is_dense(const tni_arg *x)
{
    return x->rank == 0 || (x->rank == 1 && x->stride[0] == 1);
}

static void copy_element(size_t bytes, char *y, const char *x)
{
    if (bytes == 4) memcpy(y, x, 4);
    else if (bytes == 8) memcpy(y, x, 8);
    else if (bytes == 2) memcpy(y, x, 2);
    else *y = *x;
}

// Two elements can meet only if they differ along the indexed axis alone. So tasks divide the axes
// before it (outer) and those after it (inner, in strips), and each walks along that axis in order:
// the last of several writes wins, and sums have a fixed order, without atomics. f16 and bf16 are
// summed in f32, in scratch, and rounded once.
typedef struct {
    const tni_call  *call;
    const tni_tiles *tiles;
    tni_arg          y;                      // the result: out, or the sums in scratch
    tni_arg          index[2], v[2], to[2];  // outer and inner axes, of the index's sizes
    int64_t          length, size;           // of the indexed axis, in the index and in y
    int64_t          index_step, v_step, y_step;
    int64_t          inner, strips;
    bool             rows;  // inner is dense in v and y, and the index is constant along it
    _Atomic int64_t  bad;
} scattering;

static void add_element(tn_dtype dt, char *y, const char *v)
{
    tni_add_run(dt, y, v, 1, 1);
}

// Writes or adds n elements of v to y, both dense; v may have a narrower dtype than the sums.
static void write_run(const scattering *s, char *y, const char *v, int64_t n,
                      tni_tile_scratch *scratch)
{
    tn_dtype dt = s->y.dtype, vt = s->v[0].dtype;
    if (s->call->op == TNI_scatter) {
        if (n == 1) copy_element(tni_dtype_size(dt), y, v);
        else memcpy(y, v, (size_t)n * tni_dtype_size(dt));
        return;
    }
    const tni_type_tiles *type = s->tiles->of[dt];
    if (vt != dt) tni_converter(s->tiles, vt, dt)(scratch->ready, v, n);
    const char *x = vt != dt ? scratch->ready : v;
    if (n > 1 && type) {
        type->fold[TNI_sum](y, x, 0, 1, n);
        return;
    }
    int64_t bytes = (int64_t)tni_dtype_size(dt);
    for (int64_t i = 0; i < n; i++) add_element(dt, y + i * bytes, x + i * bytes);
}

// Writes elements first .. first+n-1 of the inner axes, at one index of the outer axes and of the
// indexed one. Returns false at an index out of range, with its number among the inner elements in
// *wrong.
static bool scatter_inner(const scattering *s, int64_t index_offset, int64_t v_offset,
                          int64_t y_offset, int64_t first, int64_t n, tni_tile_scratch *scratch,
                          int64_t *wrong)
{
    int64_t bytes   = (int64_t)tni_dtype_size(s->y.dtype);
    int64_t v_bytes = (int64_t)tni_dtype_size(s->v[0].dtype);
    char   *y = s->y.data, *v = s->v[0].data;
    if (s->rows) {
        int64_t k = resolve_index(read_index(&s->index[0], index_offset), s->size);
        *wrong    = first;
        if (k < 0) return false;
        write_run(s, y + (y_offset + k * s->y_step + first) * bytes,
                  v + (v_offset + first) * v_bytes, n, scratch);
        return true;
    }
    for (int64_t i = first; i < first + n; i++) {
        int64_t at = index_offset + tni_arg_offset(&s->index[1], i);
        int64_t k  = resolve_index(read_index(&s->index[0], at), s->size);
        *wrong     = i;
        if (k < 0) return false;
        write_run(s, y + (y_offset + k * s->y_step + tni_arg_offset(&s->to[1], i)) * bytes,
                  v + (v_offset + tni_arg_offset(&s->v[1], i)) * v_bytes, 1, scratch);
    }
    return true;
}

// Writes one strip of the inner axes at one index of the outer ones, along the whole indexed axis.
// A task ends at its first bad index.
static void scatter_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    scattering      *s = arg;
    tni_tile_scratch scratch;
    int64_t          outer = item / s->strips, strip = tni_ceil_div(s->inner, s->strips);
    int64_t first = item % s->strips * strip, n = tni_min_i64(strip, s->inner - first), wrong;
    int64_t index_offset = tni_arg_offset(&s->index[0], outer),
            v_offset     = tni_arg_offset(&s->v[0], outer);
    int64_t y_offset     = tni_arg_offset(&s->to[0], outer);
    for (int64_t k = 0; k < s->length; k++, index_offset += s->index_step, v_offset += s->v_step)
        for (int64_t at = first; at < first + n; at += TNI_TILE) {
            int64_t m = tni_min_i64(TNI_TILE, first + n - at);
            if (scatter_inner(s, index_offset, v_offset, y_offset, at, m, &scratch, &wrong))
                continue;
            note_bad_index(&s->bad, (outer * s->length + k) * s->inner + wrong);
            return;
        }
}

static bool scatter_in_float(const tni_call *call)
{
    return tni_is_rounded(call->out.dtype);
}

size_t tni_cpu_scatter_scratch(const tni_call *call)
{
    if (call->op != TNI_scatter_add || !scatter_in_float(call)) return 0;
    return (size_t)tni_arg_count(&call->out) * sizeof(float);
}

// Splits the axes of index, v and result at the indexed one, and merges each half.
static void split_scatter_axes(scattering *s, const tni_arg *index, const tni_arg *v, int axis)
{
    tni_arg to = s->y;
    for (int i = 0; i < index->rank; i++) to.size[i] = index->size[i];
    for (int part = 0; part < 2; part++) {
        int first = part == 0 ? 0 : axis + 1, last = part == 0 ? axis : index->rank;
        s->index[part]  = scatter_axes(index, first, last);
        s->v[part]      = scatter_axes(v, first, last);
        s->to[part]     = scatter_axes(&to, first, last);
        tni_arg *all[3] = { &s->index[part], &s->v[part], &s->to[part] };
        tni_merge_axes(3, all);
    }
    s->length     = index->size[axis];
    s->size       = s->y.size[axis];
    s->index_step = index->stride[axis];
    s->v_step     = v->stride[axis];
    s->y_step     = s->y.stride[axis];
    s->inner      = tni_arg_count(&s->index[1]);
    s->rows       = tni_arg_is_broadcast(&s->index[1]) && is_dense(&s->v[1]) && is_dense(&s->to[1]);
}

// Starts from a copy of x. The number of strips depends on sizes alone; with many outer indices one
// strip is enough.
tn_status tni_cpu_scatter(const tni_call *call)
{
    bool           floats = call->op == TNI_scatter_add && scatter_in_float(call);
    const tni_arg *index  = &call->in[1];
    scattering     s = { .call = call, .tiles = tni_tiles_get(), .y = call->out, .bad = INT64_MAX };
    if (floats) s.y = tni_arg_row_major(TN_F32, call->out.rank, call->out.size, call->scratch);
    tni_copy_arg(call->threads, &call->in[0], &s.y);
    int64_t count = tni_arg_count(index);
    if (count > 0) {
        split_scatter_axes(&s, index, &call->in[2], call->attr->axis.axis);
        s.strips      = tni_min_i64(TASK / 1024, tni_ceil_div(s.inner, STRIP));
        s.strips      = tni_ceil_div(s.inner, tni_ceil_div(s.inner, s.strips));
        int64_t outer = tni_arg_count(&s.index[0]);
        if (outer >= TASK / 1024) s.strips = 1;
        tni_parallel(tni_threads_for(call->threads, count), outer * s.strips, scatter_task, &s);
    }
    if (s.bad != INT64_MAX) return report_bad_index(call, index, s.bad);
    if (floats) tni_copy_arg(call->threads, &s.y, &call->out);
    return TN_OK;
}
