// scatter and scatter_add. An index says a place along one axis; on the other axes an element keeps its
// place. Axes behind that axis along which the index stands still make up rows that move as one: that is
// the gradient of an embedding.
#include "base/pool.h"
#include "device/cpu/cpu_walk.h"

#include <stdatomic.h>
#include <string.h>

enum { TASK = 1 << 14, STRIP = 64 };

// Reads an index of i32 or i64.
static int64_t index_at(const tni_arg *index, int64_t place)
{
    if (index->dtype == TN_I32) return ((const int32_t *)index->data)[place];
    return ((const int64_t *)index->data)[place];
}

// A negative index counts from the end. -1 when it is out of range.
static int64_t resolve(int64_t i, int64_t size)
{
    if (i < 0) i += size;
    return i >= 0 && i < size ? i : -1;
}

// Says which index is wrong: number `at` of those in row-major order.
static tn_status out_of_range(const tni_call *call, const tni_arg *index, int64_t at)
{
    int axis   = call->attr->axis.axis;
    *call->why = (tni_text){ 0 };
    tni_text_add(call->why, "%s: index %lld is out of range for size %lld along axis %d",
                 tni_op_table[call->op].name, (long long)index_at(index, tni_arg_place(index, at)),
                 (long long)call->in[0].size[axis], axis);
    return TN_EARG;
}

// Keeps the least.
static void note(_Atomic int64_t *bad, int64_t at)
{
    int64_t now = atomic_load(bad);
    while (at < now && !atomic_compare_exchange_weak(bad, &now, at)) continue;
}

// The axes first .. last-1 of x.
static tni_arg axes_of(const tni_arg *x, int first, int last)
{
    tni_arg y = *x;
    y.rank    = last - first;
    for (int i = first; i < last; i++) {
        y.size[i - first]   = x->size[i];
        y.stride[i - first] = x->stride[i];
    }
    return y;
}

// Whether merged axes are one run without gaps.
static bool dense(const tni_arg *x)
{
    return x->rank == 0 || (x->rank == 1 && x->stride[0] == 1);
}

static void put_element(size_t bytes, char *y, const char *x)
{
    if (bytes == 4) memcpy(y, x, 4);
    else if (bytes == 8) memcpy(y, x, 8);
    else if (bytes == 2) memcpy(y, x, 2);
    else *y = *x;
}

// Two elements can meet only if they differ along the indexed axis alone, so tasks divide the
// axes before it (outer) and those behind it (inner, in strips) and each goes along that axis in
// order. f16 and bf16 are added up in float, in scratch, and rounded once.
typedef struct {
    const tni_call  *call;
    const tni_tiles *tiles;
    tni_arg          y;                      // what is written: out, or the sums in scratch
    tni_arg          index[2], v[2], to[2];  // outer and inner axes, of the index's sizes
    int64_t          length, size;           // of the indexed axis, in the index and in y
    int64_t          index_step, v_step, y_step;
    int64_t          inner, strips;
    bool             rows;  // inner is dense in v and y, and the index stands still along it
    _Atomic int64_t  bad;
} scattering;

static void add_element(tn_dtype dt, char *y, const char *v)
{
    tni_add_run(dt, y, v, 1, 1);
}

// n elements of v onto y, both dense; v may be of a narrower dtype than the sums.
static void write_run(const scattering *s, char *y, const char *v, int64_t n, tni_room *room)
{
    tn_dtype dt = s->y.dtype, vt = s->v[0].dtype;
    if (s->call->op == TNI_scatter) {
        if (n == 1) put_element(tni_dtype_size(dt), y, v);
        else memcpy(y, v, (size_t)n * tni_dtype_size(dt));
        return;
    }
    const tni_type_tiles *type = s->tiles->of[dt];
    if (vt != dt) tni_converter(s->tiles, vt, dt)(room->ready, v, n);
    const char *x = vt != dt ? room->ready : v;
    if (n > 1 && type) {
        type->fold[TNI_sum](y, x, 0, 1, n);
        return;
    }
    int64_t bytes = (int64_t)tni_dtype_size(dt);
    for (int64_t i = 0; i < n; i++) add_element(dt, y + i * bytes, x + i * bytes);
}

// The elements first .. first+n-1 of the inner axes at one place of the outer ones and along the
// axis. False at an index out of range, with its number among the inner ones in *wrong.
static bool scatter_inner(const scattering *s, int64_t index_at_, int64_t v_at, int64_t y_at,
                          int64_t first, int64_t n, tni_room *room, int64_t *wrong)
{
    int64_t bytes   = (int64_t)tni_dtype_size(s->y.dtype);
    int64_t v_bytes = (int64_t)tni_dtype_size(s->v[0].dtype);
    char   *y = s->y.data, *v = s->v[0].data;
    if (s->rows) {
        int64_t k = resolve(index_at(&s->index[0], index_at_), s->size);
        *wrong    = first;
        if (k < 0) return false;
        write_run(s, y + (y_at + k * s->y_step + first) * bytes, v + (v_at + first) * v_bytes, n,
                  room);
        return true;
    }
    for (int64_t i = first; i < first + n; i++) {
        int64_t at = index_at_ + tni_arg_place(&s->index[1], i);
        int64_t k  = resolve(index_at(&s->index[0], at), s->size);
        *wrong     = i;
        if (k < 0) return false;
        write_run(s, y + (y_at + k * s->y_step + tni_arg_place(&s->to[1], i)) * bytes,
                  v + (v_at + tni_arg_place(&s->v[1], i)) * v_bytes, 1, room);
    }
    return true;
}

static void scatter_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    scattering *s = arg;
    tni_room    room;
    int64_t     outer = item / s->strips, strip = tni_ceil_div(s->inner, s->strips);
    int64_t     first = item % s->strips * strip, n = tni_min_i64(strip, s->inner - first), wrong;
    int64_t index_at_ = tni_arg_place(&s->index[0], outer), v_at = tni_arg_place(&s->v[0], outer);
    int64_t y_at = tni_arg_place(&s->to[0], outer);
    for (int64_t k = 0; k < s->length; k++, index_at_ += s->index_step, v_at += s->v_step)
        for (int64_t at = first; at < first + n; at += TNI_TILE) {
            int64_t m = tni_min_i64(TNI_TILE, first + n - at);
            if (scatter_inner(s, index_at_, v_at, y_at, at, m, &room, &wrong)) continue;
            note(&s->bad, (outer * s->length + k) * s->inner + wrong);
            return;
        }
}

static bool in_float(const tni_call *call)
{
    return tni_is_rounded(call->out.dtype);
}

size_t tni_cpu_scatter_scratch(const tni_call *call)
{
    if (call->op != TNI_scatter_add || !in_float(call)) return 0;
    return (size_t)tni_arg_count(&call->out) * sizeof(float);
}

static void split(scattering *s, const tni_arg *index, const tni_arg *v, int axis)
{
    tni_arg to = s->y;
    for (int i = 0; i < index->rank; i++) to.size[i] = index->size[i];
    for (int part = 0; part < 2; part++) {
        int first = part == 0 ? 0 : axis + 1, last = part == 0 ? axis : index->rank;
        s->index[part]  = axes_of(index, first, last);
        s->v[part]      = axes_of(v, first, last);
        s->to[part]     = axes_of(&to, first, last);
        tni_arg *all[3] = { &s->index[part], &s->v[part], &s->to[part] };
        tni_merge(3, all);
    }
    s->length     = index->size[axis];
    s->size       = s->y.size[axis];
    s->index_step = index->stride[axis];
    s->v_step     = v->stride[axis];
    s->y_step     = s->y.stride[axis];
    s->inner      = tni_arg_count(&s->index[1]);
    s->rows       = tni_arg_is_still(&s->index[1]) && dense(&s->v[1]) && dense(&s->to[1]);
}

tn_status tni_cpu_scatter(const tni_call *call)
{
    bool           floats = call->op == TNI_scatter_add && in_float(call);
    const tni_arg *index  = &call->in[1];
    scattering     s = { .call = call, .tiles = tni_tiles_get(), .y = call->out, .bad = INT64_MAX };
    if (floats) s.y = tni_arg_rows(TN_F32, call->out.rank, call->out.size, call->scratch);
    tni_copy_arg(call->threads, &call->in[0], &s.y);
    int64_t count = tni_arg_count(index);
    if (count > 0) {
        split(&s, index, &call->in[2], call->attr->axis.axis);
        s.strips      = tni_min_i64(TASK / 1024, tni_ceil_div(s.inner, STRIP));
        s.strips      = tni_ceil_div(s.inner, tni_ceil_div(s.inner, s.strips));
        int64_t outer = tni_arg_count(&s.index[0]);
        if (outer >= TASK / 1024) s.strips = 1;
        tni_parallel(tni_threads_for(call->threads, count), outer * s.strips, scatter_task, &s);
    }
    if (s.bad != INT64_MAX) return out_of_range(call, index, s.bad);
    if (floats) tni_copy_arg(call->threads, &s.y, &call->out);
    return TN_OK;
}
