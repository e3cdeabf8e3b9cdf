// Calls as kernels of one op: maps, casts, copies, sources, reductions, pad, concat and gather go
// the same way as what the planner fuses.
#include "device/simt/groups.h"

#include "tensor/dtype.h"

#include <string.h>

// A kernel being written, and its launch.
typedef struct {
    tni_kernel k;
    tni_launch l;
} writing;

// ---- writing -----------------------------------------------------------------------------------

static int buffer(writing *w, const tni_arg *x, bool written)
{
    int b          = w->k.nbuffer++;
    w->k.buffer[b] = (tni_kernel_buffer){ (uint8_t)x->dtype, written };
    w->l.buffer[b] = x->data;
    return b;
}

static int number(writing *w, tn_dtype dt, tni_word v)
{
    int n          = w->k.nnumber++;
    w->k.number[n] = (uint8_t)dt;
    w->l.number[n] = v;
    return n;
}

// A place: strides along the axes of the domain, from `first` on.
static int place(writing *w, int buf, int64_t offset, int first, int n, const int64_t *stride)
{
    int         a  = w->k.naccess++;
    tni_access *x  = &w->k.access[a];
    *x             = (tni_access){ .buffer = (int16_t)buf };
    w->l.offset[a] = offset;
    for (int i = 0; i < n; i++) {
        w->l.stride[a][first + i] = stride[i];
        x->stride[first + i]      = stride[i] == 0   ? TNI_STRIDE_0
                                    : stride[i] == 1 ? TNI_STRIDE_1
                                                     : TNI_STRIDE_N;
    }
    return a;
}

static int16_t add(writing *w, tni_code code, int op, tn_dtype dt, int a, int b, int c)
{
    w->k.ins[w->k.nins] = (tni_ins){ .code   = (uint8_t)code,
                                     .op     = (uint8_t)op,
                                     .dtype  = (uint8_t)dt,
                                     .a      = (int16_t)a,
                                     .b      = (int16_t)b,
                                     .c      = (int16_t)c,
                                     .access = -1,
                                     .number = -1 };
    return w->k.nins++;
}

static int16_t load(writing *w, tn_dtype dt, int access, int index, int guard)
{
    int16_t i          = add(w, TNI_I_LOAD, 0, dt, index, guard, -1);
    w->k.ins[i].access = (int16_t)access;
    return i;
}

static int16_t at_place(writing *w, int access)
{
    int16_t i          = add(w, TNI_I_PLACE, 0, TN_I64, -1, -1, -1);
    w->k.ins[i].access = (int16_t)access;
    return i;
}

static int16_t given(writing *w, tn_dtype dt, tni_word v)
{
    int16_t i          = add(w, TNI_I_NUMBER, 0, dt, -1, -1, -1);
    w->k.ins[i].number = (int16_t)number(w, dt, v);
    return i;
}

static int16_t cast(writing *w, tn_dtype to, int16_t v)
{
    return w->k.ins[v].dtype == to ? v : add(w, TNI_I_CAST, 0, to, v, -1, -1);
}

static void store(writing *w, tn_dtype dt, int access, int16_t v)
{
    int16_t i          = add(w, TNI_I_STORE, 0, dt, v, -1, -1);
    w->k.ins[i].access = (int16_t)access;
}

// The axes of a domain: P, then R. A domain without P has one axis of size 1.
static void domain(writing *w, const tni_axes *p, const tni_axes *r)
{
    w->k.np = (uint8_t)(p->rank ? p->rank : 1);
    w->k.nr = (uint8_t)(r ? r->rank : 0);
    for (int i = 0; i < w->k.np; i++) w->l.size[i] = p->rank ? p->size[i] : 1;
    for (int i = 0; i < w->k.nr; i++) w->l.size[w->k.np + i] = r->size[i];
}

// ---- running -----------------------------------------------------------------------------------

static bool finish_writing(writing *w)
{
    w->l.kernel = &w->k;
    return tni_kernel_seal(&w->k);
}

// Runs what was written; if room is given, only says how many bytes of scratch that takes.
static tn_status launch(writing *w, const tni_call *c, size_t *room)
{
    const tni_device *d     = c->device;
    const tni_launch *l     = &w->l;
    void             *entry = NULL;
    if (!finish_writing(w)) {
        tni_text_add(c->why, "%s: %s: the kernel is not in order", tni_op_table[c->op].name,
                     d->name);
        return TN_EDEVICE;
    }
    if (room) {
        *room = d->kernels->room ? d->kernels->room(c->seat, NULL, l) : 0;
        return TN_OK;
    }
    w->l.scratch = c->scratch;
    w->l.waits   = c->waits;
    tn_status s  = d->kernels->prepare(c->seat, 1, &l, &entry, c->waits, c->why);
    return s == TN_OK && !c->ahead ? d->kernels->launch(c->seat, entry, &w->l, c->why) : s;
}

// ---- numbers -----------------------------------------------------------------------------------

// ---- maps, casts and copies --------------------------------------------------------------------

// The axes of out with the strides of out (0) and of the inputs (1 to 3), densest in out last.
static tni_axes map_axes(const tni_arg *out, int nin, const tni_arg *in)
{
    tni_axes a = { .rank = out->rank };
    memcpy(a.size, out->size, sizeof a.size);
    memcpy(a.stride[0], out->stride, sizeof a.stride[0]);
    for (int k = 0; k < nin; k++) memcpy(a.stride[k + 1], in[k].stride, sizeof a.stride[0]);
    tni_axes_sort(&a, 0);
    tni_axes_merge(&a, nin + 1);
    if (a.rank == 0) {
        a.rank         = 1;
        a.size[0]      = 1;
        a.stride[0][0] = 1;
        for (int k = 1; k < 4; k++) a.stride[k][0] = 0;
    }
    return a;
}

// What a call's op is as a MAP; -1: its value as it is, converted.
static int map_op(const tni_call *c)
{
    tn_dtype dt = c->in[c->nin - 1].dtype;
    if (c->op == TNI_cast || c->op == TNI_copy) return -1;
    if (c->op == TNI_bit_not && dt == TN_BOOL) return TNI_logical_not;
    if (tni_op_table[c->op].rule == TNI_REAL && !tni_is_float(dt)) return -1;
    return c->op;
}

static void write_map(writing *w, const tni_call *c)
{
    tni_axes a    = map_axes(&c->out, c->nin, c->in);
    int      x[3] = { -1, -1, -1 }, op = map_op(c);
    domain(w, &a, NULL);
    for (int k = 0; k < c->nin; k++) {
        int b = buffer(w, &c->in[k], false);
        x[k]  = load(w, c->in[k].dtype, place(w, b, 0, 0, a.rank, a.stride[k + 1]), -1, -1);
    }
    int16_t y = op < 0 ? cast(w, c->out.dtype, (int16_t)x[0])
                       : add(w, TNI_I_MAP, op, c->out.dtype, x[0], x[1], x[2]);
    store(w, c->out.dtype, place(w, buffer(w, &c->out, true), 0, 0, a.rank, a.stride[0]), y);
}

// ---- sources -----------------------------------------------------------------------------------

// start + i step, floats in double where there is one.
static int16_t write_iota(writing *w, const tni_call *c, int16_t i)
{
    tn_dtype dt      = TN_I64;
    bool     doubles = tni_compiled_has_doubles(c->device->calls->groups->compiled(c->seat));
    if (tni_is_float(c->out.dtype)) dt = doubles ? TN_F64 : TN_F32;
    int16_t start = given(w, dt, tni_word_of(dt, c->attr->iota.start, c->attr->iota.istart));
    int16_t step  = given(w, dt, tni_word_of(dt, c->attr->iota.step, c->attr->iota.istep));
    int16_t v     = add(w, TNI_I_MAP, TNI_mul, dt, cast(w, dt, i), step, -1);
    return cast(w, c->out.dtype, add(w, TNI_I_MAP, TNI_add, dt, start, v, -1));
}

static int16_t write_random(writing *w, const tni_call *c, int16_t i)
{
    int16_t v          = add(w, TNI_I_RANDOM, c->op, c->out.dtype, i, -1, -1);
    w->k.ins[v].number = (int16_t)number(w, TN_I64, (tni_word){ .u = c->attr->random.key });
    number(w, TN_I64, (tni_word){ .u = c->attr->random.counter });
    return v;
}

static void write_source(writing *w, const tni_call *c)
{
    tni_axes a  = map_axes(&c->out, 0, NULL);
    tn_dtype dt = c->out.dtype;
    int16_t  v;
    domain(w, &a, NULL);
    if (c->op == TNI_full || c->op == TNI_scalar) {
        v = given(w, dt, tni_word_of(dt, c->attr->num.f, c->attr->num.i));
    } else {
        int16_t i = at_place(w, place(w, -1, 0, 0, a.rank, a.stride[0]));
        v         = c->op == TNI_iota ? write_iota(w, c, i) : write_random(w, c, i);
    }
    store(w, dt, place(w, buffer(w, &c->out, true), 0, 0, a.rank, a.stride[0]), v);
}

// One number everywhere, in place of an op that reads nothing.
static void write_number(writing *w, const tni_call *c, double f, int64_t i)
{
    tni_attr attr = { .num = { .f = f, .i = i } };
    tni_call call = *c;
    call.op       = TNI_full;
    call.attr     = &attr;
    write_source(w, &call);
}

// ---- reductions --------------------------------------------------------------------------------

// The axes that stay, or that are folded, with the strides of in (0) and out (1), densest in `in`
// last.
static tni_axes reduce_axes(const tni_call *c, bool folded)
{
    tni_axes a = { .rank = c->in->rank };
    for (int i = 0; i < a.rank; i++) {
        bool gone      = c->attr->reduce.axes >> i & 1;
        a.size[i]      = gone == folded ? c->in->size[i] : 1;
        a.stride[0][i] = c->in->stride[i];
        a.stride[1][i] = gone ? 0 : c->out.stride[i];
    }
    tni_axes_merge(&a, 2);
    tni_axes_sort(&a, 0);
    tni_axes_merge(&a, 2);
    return a;
}

static int64_t last_stride(const tni_axes *a)
{
    int64_t s = a->rank ? a->stride[0][a->rank - 1] : INT64_MAX;
    return s < 0 ? -s : s;
}

// Over P and R axes: the place of the input and of the result.
static int two_places(writing *w, int buf, const tni_axes *p, const tni_axes *r, int argument)
{
    int64_t stride[TNI_AXES] = { 0 };
    int     np               = w->k.np;
    for (int i = 0; i < p->rank; i++) stride[i] = p->stride[argument][i];
    for (int i = 0; r && i < r->rank; i++) stride[np + i] = r->stride[argument][i];
    return place(w, buf, 0, 0, np + w->k.nr, stride);
}

// What is folded counts as moving along the axes it is folded over, by steps of 0 where it is
// broadcast.
static void moves(writing *w, bool over_p)
{
    int from = over_p ? 0 : w->k.np, to = over_p ? w->k.np : w->k.np + w->k.nr;
    for (int i = from; i < to; i++)
        if (w->k.access[0].stride[i] == TNI_STRIDE_0) w->k.access[0].stride[i] = TNI_STRIDE_N;
}

// Rows are what stays and R what is folded; or, as a tail, the other way round: where all is folded
// into one, or where what stays is dense and there is less of it than of what is folded.
static void write_reduce(writing *w, const tni_call *c)
{
    tni_axes stay = reduce_axes(c, false), gone = reduce_axes(c, true);
    bool     dense    = last_stride(&gone) < last_stride(&stay);
    bool     tail     = stay.rank == 0 || (!dense && tni_axes_count(&gone) > tni_axes_count(&stay));
    const tni_axes *p = tail ? &gone : &stay, *r = tail ? &stay : &gone;
    domain(w, p, r);
    w->k.lane_in_r = tail ? stay.rank > 0 : dense;
    int     b      = buffer(w, c->in, false);
    int16_t x = cast(w, c->out.dtype, load(w, c->in->dtype, two_places(w, b, p, r, 0), -1, -1));
    moves(w, tail);
    int16_t y          = add(w, TNI_I_REDUCE, c->op, c->out.dtype, x, -1, -1);
    w->k.ins[y].over_p = tail;
    store(w, c->out.dtype, two_places(w, buffer(w, &c->out, true), p, r, 1), y);
}

// Nothing to fold, or one element each: a number, or a cast.
static void write_reduction(writing *w, const tni_call *c)
{
    int64_t n    = tni_shape_count(c->in->rank, c->in->size);
    int64_t made = tni_shape_count(c->out.rank, c->out.size);
    if (n == 0) {
        write_number(w, c, c->op == TNI_prod, c->op == TNI_prod);
    } else if (n == made) {
        tni_call call = *c;
        call.op       = TNI_cast;
        write_map(w, &call);
    } else {
        write_reduce(w, c);
    }
}

// ---- movement ----------------------------------------------------------------------------------

// Whether place i along an axis is inside of x: 0 <= i < n.
static int16_t inside(writing *w, int16_t i, int64_t n, int16_t so_far)
{
    int16_t zero = given(w, TN_I64, (tni_word){ .l = 0 });
    int16_t end  = given(w, TN_I64, (tni_word){ .l = n });
    int16_t low  = add(w, TNI_I_MAP, TNI_ge, TN_BOOL, i, zero, -1);
    int16_t high = add(w, TNI_I_MAP, TNI_lt, TN_BOOL, i, end, -1);
    int16_t both = add(w, TNI_I_MAP, TNI_logical_and, TN_BOOL, low, high, -1);
    return so_far < 0 ? both : add(w, TNI_I_MAP, TNI_logical_and, TN_BOOL, so_far, both, -1);
}

// Axes of out of size 1 are left out. False where one of them lies outside of x.
static bool pad_axes(const tni_call *c, tni_axes *a, int axis[TN_MAX_RANK], int64_t *offset)
{
    const tni_arg *x = &c->in[0];
    *a               = (tni_axes){ .rank = 0 };
    *offset          = 0;
    for (int i = 0; i < c->out.rank; i++) {
        int64_t before = c->attr->pad.before[i];
        *offset -= before * x->stride[i];
        if (c->out.size[i] == 1) {
            if (before > 0 || -before >= x->size[i]) return false;
            continue;
        }
        axis[a->rank]         = i;
        a->size[a->rank]      = c->out.size[i];
        a->stride[0][a->rank] = c->out.stride[i];
        a->stride[1][a->rank] = x->stride[i];
        a->rank++;
    }
    return true;
}

static void write_pad(writing *w, const tni_call *c)
{
    const tni_arg *x  = &c->in[0];
    tn_dtype       dt = c->out.dtype;
    tni_axes       a;
    int            axis[TN_MAX_RANK];
    int64_t        offset, count = tni_shape_count(x->rank, x->size);
    double         fill  = c->attr->pad.value;
    int64_t        whole = c->attr->pad.ivalue;
    if (!pad_axes(c, &a, axis, &offset) || count == 0) {
        write_number(w, c, fill, whole);
        return;
    }
    int16_t guard = -1;
    domain(w, &a, NULL);
    for (int k = 0; k < a.rank; k++) {
        int64_t before = c->attr->pad.before[axis[k]], one = 1, n = x->size[axis[k]];
        if (before <= 0 && a.size[k] - before <= n) continue;
        guard = inside(w, at_place(w, place(w, -1, -before, k, 1, &one)), n, guard);
    }
    if (a.rank == 0) a = map_axes(&c->out, 0, NULL);
    int16_t v = load(w, dt, place(w, buffer(w, x, false), offset, 0, a.rank, a.stride[1]), -1,
                     guard);
    if (guard >= 0) {
        int16_t other = given(w, dt, tni_word_of(dt, fill, whole));
        v             = add(w, TNI_I_MAP, TNI_where, dt, guard, v, other);
    }
    store(w, dt, place(w, buffer(w, &c->out, true), 0, 0, a.rank, a.stride[0]), v);
}

static void write_gather(writing *w, const tni_call *c)
{
    int     axis       = c->attr->axis.axis;
    tni_arg in[]       = { c->in[1],
                           c->in[0] };  // x has the index's shape and stands still along the axis
    in[1].stride[axis] = 0;
    tni_axes a         = map_axes(&c->out, 2, in);
    domain(w, &a, NULL);
    int     at            = place(w, buffer(w, &in[0], false), 0, 0, a.rank, a.stride[1]);
    int16_t index         = cast(w, TN_I64, load(w, in[0].dtype, at, -1, -1));
    int16_t sure          = add(w, TNI_I_CHECK, 0, TN_I64, index, -1, -1);
    w->k.ins[sure].number = (int16_t)number(w, TN_I64, (tni_word){ .l = c->in[0].size[axis] });
    int from              = place(w, buffer(w, &in[1], false), 0, 0, a.rank, a.stride[2]);
    w->l.stride[from][TNI_AXES] = c->in[0].stride[axis];
    int16_t v                   = load(w, in[1].dtype, from, sure, -1);
    store(w, c->out.dtype, place(w, buffer(w, &c->out, true), 0, 0, a.rank, a.stride[0]), v);
}

tn_status tni_groups_gather(const tni_call *c)
{
    writing w    = { 0 };
    int     axis = c->attr->axis.axis;
    write_gather(&w, c);
    tn_status s = launch(&w, c, NULL);
    if (s != TN_OK || !w.l.fail[0]) return s;
    *c->why = (tni_text){ 0 };
    tni_text_add(c->why, "gather: index %lld is out of range for size %lld along axis %d",
                 (long long)w.l.fail[1], (long long)c->in[0].size[axis], axis);
    return TN_EARG;
}

// Each input is copied to where it belongs, unless it lies there.
tn_status tni_groups_concat(const tni_call *c)
{
    int       axis = c->attr->axis.axis;
    tni_call  call = *c;
    tn_status s    = TN_OK;
    call.op        = TNI_copy;
    call.nin       = 1;
    for (int k = 0; s == TN_OK && k < c->nin; k++) {
        call.in             = &c->in[k];
        call.out.size[axis] = c->in[k].size[axis];
        if (call.in->data != call.out.data && tni_shape_count(call.out.rank, call.out.size) > 0)
            s = tni_call_run(&call);
        call.out.data += call.out.size[axis] * call.out.stride[axis] *
                         (int64_t)tni_dtype_size(call.out.dtype);
    }
    return s;
}

// ---- which op is which -------------------------------------------------------------------------

static void write_op(writing *w, const tni_call *c)
{
    tni_class class = tni_op_table[c->op].class;
    if (c->op == TNI_pad) write_pad(w, c);
    else if (class == TNI_SOURCE) write_source(w, c);
    else if (class == TNI_REDUCE) write_reduction(w, c);
    else write_map(w, c);
}

size_t tni_one_op_scratch(const tni_call *c)
{
    size_t  room = 0;
    writing w    = { 0 };
    write_op(&w, c);
    launch(&w, c, &room);
    return room;
}

tn_status tni_one_op(const tni_call *c)
{
    writing w = { 0 };
    write_op(&w, c);
    return launch(&w, c, NULL);
}
