// test_cpu.c: the cpu device op by op and call by call against the reference device, over random
// shapes, strides and dtypes; and against itself for other numbers of threads, bit by bit.
#include "check.h"
#include "base/heap.h"
#include "device/device.h"
#include "device_table.h"
#include "host.h"
#include "rules_kit.h"
#include "kernel/prelude.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tni_device *const cpu = &tni_device_cpu, *const ref = &tni_device_ref;

static const tn_dtype dtypes[] = { TN_BOOL, TN_U8,  TN_I8,  TN_I32, TN_I64, TN_F16, TN_BF16,
                                   TN_F32,  TN_F64, TN_I16, TN_U16, TN_U32, TN_U64 };
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

// ---- random numbers, shapes, strides -----------------------------------------------------------

static uint64_t drawn;  // numbers drawn by this test

static uint32_t draw(void)
{
    return m_rand_bits(20260, 0, drawn++);
}

static int64_t below(int64_t n)
{
    return (int64_t)(draw() % (uint32_t)n);
}

// An operand in both devices' memory, in the same layout. The elements outside of the view are
// random too.
typedef struct {
    tni_arg arg, other;  // cpu, ref
    int64_t room;        // elements of the memory
    void   *mem, *cells;
} value;

static void value_free(value *v)
{
    free(v->mem);
    free(v->cells);
}

// Kinds of random values.
typedef enum { TAME, WILD, SMALL } mood;

static double draw_float(mood m)
{
    static const double odd[] = { 0.0, -0.0, 1.0, -1.0, 0.5, 1e6, -3e9, 1e20, -1e30, 1e-8, 300 };
    uint32_t            pick  = draw() % 64;
    if (m == WILD && pick < 11) return odd[pick];
    if (m == WILD && pick < 14) return pick == 11 ? NAN : pick == 12 ? INFINITY : -INFINITY;
    if (m == SMALL) return (double)(below(9) - 4) / 4;
    return ((double)draw() / 4294967296.0 - 0.5) * 8;
}

static int64_t draw_int(mood m)
{
    if (m == WILD && draw() % 4 == 0) return (int64_t)((uint64_t)draw() << 32 | draw());
    return m == SMALL ? below(7) - 3 : below(40) - 20;
}

static void fill(value *v, tn_dtype dt, int64_t room, mood m)
{
    v->room  = room > 0 ? room : 1;
    v->mem   = malloc((size_t)v->room * 8);
    v->cells = malloc((size_t)v->room * 8);
    for (int64_t i = 0; i < v->room; i++) host_put(dt, v->mem, i, draw_float(m), draw_int(m));
    ref->memory->upload(NULL, v->cells, dt, v->mem, v->room, &(tni_text){ 0 });
}

static void place(value *v, int64_t offset)
{
    v->other      = v->arg;
    v->arg.data   = (char *)v->mem + offset * (int64_t)tni_dtype_size(v->arg.dtype);
    v->other.data = (char *)v->cells + offset * 8;
}

// Lays the axes out in a random order, some with gaps, some backwards, and, if `spread`, some with
// stride 0.
static void lay(value *v, tn_dtype dt, int rank, const int64_t *size, mood m, bool spread)
{
    int     order[TN_MAX_RANK];
    int64_t step = 1, offset = 0, kind = below(3);
    v->arg = (tni_arg){ .dtype = dt, .rank = rank };
    for (int i = 0; i < rank; i++) order[i] = rank - 1 - i;
    for (int i = 0; kind == 1 && i < rank; i++) {
        int k = (int)below(rank), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    for (int i = 0; i < rank; i++) {
        int     axis      = order[i];
        int64_t n         = size[axis] > 0 ? size[axis] : 1;
        v->arg.size[axis] = size[axis];
        if (kind > 0 && spread && below(4) == 0) continue;
        if (kind > 0 && below(4) == 0) step += below(3);
        bool back           = kind > 0 && below(5) == 0;
        v->arg.stride[axis] = back ? -step : step;
        if (back) offset += step * (n - 1);
        step *= n;
    }
    fill(v, dt, step + 8, m);
    place(v, offset);
}

static void rows(value *v, tn_dtype dt, int rank, const int64_t *size, mood m)
{
    v->arg = (tni_arg){ .dtype = dt, .rank = rank };
    if (rank) memcpy(v->arg.size, size, (size_t)rank * sizeof *size);
    tni_shape_strides(rank, v->arg.size, v->arg.stride);
    fill(v, dt, tni_shape_count(rank, v->arg.size), m);
    place(v, 0);
}

static int draw_shape(int64_t *size, int least, int64_t most)
{
    int rank = least + (int)below(5 - least);
    for (int i = 0; i < rank; i++) size[i] = 1 + below(most);
    if (rank > 0 && below(6) == 0) size[below(rank)] = 130 + below(1200);
    return rank;
}

// ---- running and comparing ---------------------------------------------------------------------

typedef struct {
    double f16, bf16, f32, f64;  // relative
    double scale;                // of the terms that were added up
} bound;

static const bound exact    = { 0, 0, 0, 0, 0 };
static const bound close_by = { 1.1e-3, 8e-3, 2e-6, 1e-12, 0 };

static bool near_enough(tn_dtype dt, double a, double b, bound e)
{
    double r    = dt == TN_F16 ? e.f16 : dt == TN_BF16 ? e.bf16 : dt == TN_F32 ? e.f32 : e.f64;
    double tiny = dt == TN_F16 ? 6e-8 : dt == TN_BF16 ? 1e-40 : dt == TN_F32 ? 3e-45 : 0;
    if (!tni_is_float(dt)) return a == b;
    if (a != a || b != b) return a != a && b != b;
    if (isinf(a) || isinf(b))
        return a == b || fabs(isinf(a) ? b : a) > (dt == TN_F16 ? 65000 : 3e38);
    double of_sum = (dt == TN_F64 ? 1e-12 : 2e-6) * e.scale;
    return fabs(a - b) <= r * fabs(b) + of_sum + (r > 0 ? tiny : 0);
}

static void *scratch_for(const tni_call *c)
{
    size_t n = tni_call_scratch(c);
    void  *p = NULL;
    return n > 0 && posix_memalign(&p, 64, n) == 0 ? memset(p, 0x77, n) : NULL;
}

static tn_status run_on(const tni_device *d, int threads, tni_call c)
{
    tni_text why = { 0 };
    c.device     = d;
    c.threads    = threads;
    c.scratch    = scratch_for(&c);
    c.why        = &why;
    tn_status s  = tni_call_run(&c);
    free(c.scratch);
    return s;
}

static const char *describe(const tni_call *c, tni_text *t)
{
    *t = (tni_text){ 0 };
    tni_text_add(t, "%s %s", tni_op_table[c->op].name, tn_dtype_name(c->out.dtype));
    for (int k = 0; k < c->nin && k < 3; k++)
        tni_text_add(t, " %s %s", tn_dtype_name(c->in[k].dtype),
                     tni_shape_text(c->in[k].rank, c->in[k].size).s);
    return t->s;
}

// Runs one call on both devices. out: the result's memory, of which out->arg says the layout.
static bool agree(int op, int nin, const value *in, value *out, const tni_attr *attr, bound e)
{
    static const int threads[] = { 2, 4 };
    tni_arg          a[8], b[8];
    tni_text         text;
    for (int k = 0; k < nin; k++) a[k] = in[k].arg, b[k] = in[k].other;
    tni_attr none = { 0 };
    tni_call c    = { .op = op, .nin = nin, .in = a, .out = out->arg, .attr = attr ? attr : &none };
    tni_call r    = c;
    r.in          = b;
    r.out         = out->other;
    size_t bytes  = (size_t)out->room * tni_dtype_size(out->arg.dtype);
    char  *before = malloc(bytes), *first = malloc(bytes);
    memcpy(before, out->mem, bytes);

    bool ok = run_on(ref, 1, r) == TN_OK && run_on(cpu, 1, c) == TN_OK;
    memcpy(first, out->mem, bytes);
    for (int k = 0; ok && k < 2; k++) {
        memcpy(out->mem, before, bytes);
        run_on(cpu, threads[k], c);
        ok = test_case_result(memcmp(first, out->mem, bytes) == 0, "%s: bits on %d threads",
                              describe(&c, &text), threads[k]);
    }
    void *want = malloc((size_t)out->room * 8);
    ref->memory->download(NULL, want, out->arg.dtype, out->cells, out->room, &(tni_text){ 0 });
    for (int64_t i = 0; ok && i < out->room; i++) {
        double x = host_get(out->arg.dtype, out->mem, i), y = host_get(out->arg.dtype, want, i);
        ok = near_enough(out->arg.dtype, x, y, e) ||
             test_case_result(false, "%s: element %lld is %.9g, not %.9g", describe(&c, &text),
                              (long long)i, x, y);
    }
    free(want);
    free(before);
    free(first);
    return test_case_result(ok, "%s", describe(&c, &text));
}

// ---- op by op ----------------------------------------------------------------------------------

// A kernel of one op for each row of the table, over all dtypes and layouts.
static void ops_one_by_one_agree_with_the_reference(void)
{
    int ops[TNI_OPS];
    setenv("TN_CC", "none", 1);
    for (int class = 0; class <= TNI_LIBRARY; class ++)
        device_table("cpu", true, COMPLETE, device_table_ops((tni_class) class, ops), ops);
    unsetenv("TN_CC");
}

enum { ROWS = 301, COLS = 1777 };

// So many windows that threads have blocks of their own.
static tn_tensor *big_conv(tn_ctx *cx)
{
    tn_tensor *x = tn_randn(cx, TN_F32, TN_SHAPE(12, 16, 48, 48));
    tn_tensor *w = tn_randn(cx, TN_F32, TN_SHAPE(16, 16, 3, 3));
    return tn_conv2d(x, w, NULL, (tn_conv_opts){ .padding = { 1 } });
}

// Ops over more elements than a thread does alone, each evaluated by itself.
static tn_tensor *big_op(tn_tensor *x, int which)
{
    switch (which) {
    case 0: return tn_exp(x);
    case 1: return tn_where(tn_gt_s(x, 0), x, tn_neg(x));
    case 2: return tn_sum(x, 0);
    case 3: return tn_sum(x, 1);
    case 4: return tn_sum_all(x);
    case 5: return tn_max(x, 0);
    case 6: return tn_cast(tn_transpose(x, 0, 1), TN_F16);
    case 7: return tn_randn(tn_ctx_of(x), TN_F32, TN_SHAPE(ROWS, COLS));
    case 8: return big_conv(tn_ctx_of(x));
    default: return NULL;
    }
}

static void big_ops_are_the_same_on_any_threads(void)
{
    static float y[2][ROWS * COLS];
    for (int which = 0, all = 9; which < all; which++)
        for (int threads = 1; threads <= 4; threads *= 2) {
            setenv("TN_EAGER", "1", 1);
            tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cpu", .threads = threads });
            unsetenv("TN_EAGER");
            tn_seed(cx, 3);
            tn_tensor *r = big_op(tn_randn(cx, TN_F32, TN_SHAPE(ROWS, COLS)), which);
            int64_t    n = tn_count(r);
            CHECK_STATUS(tn_read(r, TN_F32, y[threads > 1], n), TN_OK);
            test_case_result(!memcmp(y[0], y[threads > 1], (size_t)n * sizeof **y),
                             "op %d: bits on %d threads", which, threads);
            tn_close(cx);
        }
}

static void sums_are_accurate(void)
{
    static const int64_t shape[][2] = { { 1, 3000000 }, { 3000000, 1 }, { 40000, 64 } };
    float               *x          = malloc(3000000 * sizeof *x);
    for (int64_t i = 0; x && i < 3000000; i++) x[i] = 0.1f + (float)(i % 7);
    for (int s = 0; x && s < 3; s++) {
        tn_ctx    *cx  = open_eager("cpu", true);
        int64_t    n   = shape[s][0] * shape[s][1];
        tn_tensor *t   = tn_from(cx, TN_F32, 2, shape[s], x);
        tn_tensor *y   = s == 2 ? tn_slice(tn_sum(t, 0), 0, 0, 1, 1) : tn_sum_all(t);
        double     sum = 0;
        for (int64_t i = 0; i < n; i += s == 2 ? 64 : 1) sum += x[i];
        CHECK_NEAR(tn_item(y), sum, 1e-6 * sum);
        tn_close(cx);
    }
    free(x);
}

// What has no kernel of its own to run by: nothing folded, the same folded over and over, an index
// into what is the same everywhere.
static void what_reads_nothing_by_place_is_right(void)
{
    for (int eager = 0; eager < 2; eager++) {
        tn_ctx    *cx   = open_eager("cpu", eager);
        tn_tensor *none = tn_zeros(cx, TN_F32, TN_SHAPE(0, 3)),
                  *two  = tn_full(cx, TN_F32, TN_SHAPE(4, 3), 2);
        tn_tensor *row  = tn_from(cx, TN_F32, TN_SHAPE(1, 3), (float[]){ 1, -2, 3 });
        tn_tensor *wide = tn_expand(row, TN_SHAPE(5, 3));
        CHECK_VALUES(tn_sum(none, 0), 0, 0, 0);
        CHECK_VALUES(tn_prod(none, 0), 1, 1, 1);
        CHECK_VALUES(tn_sum(two, 0), 8, 8, 8);
        CHECK_VALUES(tn_prod(two, 1), 8, 8, 8, 8);
        CHECK_VALUES(tn_sum(wide, 0), 5, -10, 15);
        CHECK_VALUES(tn_prod(wide, 0), 1, -32, 243);
        CHECK_VALUES(tn_max(wide, 0), 1, -2, 3);
        CHECK_VALUES(tn_pad(none, (int64_t[]){ 1, 0 }, (int64_t[]){ 0, 0 }, 7), 7, 7, 7);
        int64_t    at[2] = { 3, -1 }, past[2] = { 0, 4 };
        tn_tensor *index = tn_from(cx, TN_I64, TN_SHAPE(2), at);
        CHECK_VALUES(tn_embed(index, two), 2, 2, 2, 2, 2, 2);
        CHECK_STATUS(tn_eval_of(tn_embed(tn_from(cx, TN_I64, TN_SHAPE(2), past), two)), TN_EARG);
        test_that(strstr(tn_error_text(cx), "index 4 is out of range for size 4 along axis 0") !=
                      NULL,
                  "%s", tn_error_text(cx));
        tn_error_clear(cx);
        CHECK_STATUS(tn_eval_of(tn_embed(index, none)), TN_EARG);
        tn_close(cx);
    }
}

// ---- copies ------------------------------------------------------------------------------------

static void casts_and_copies_agree_with_the_reference(void)
{
    for (int from = 0; from < TNI_DTYPES; from++)
        for (int to = 0; to < TNI_DTYPES; to++)
            for (int n = 0; n < 4; n++) {
                int64_t size[TN_MAX_RANK];
                int     rank = draw_shape(size, 0, n == 3 ? 24 : 7);
                value   in, out;
                lay(&in, (tn_dtype)from, rank, size, WILD, true);
                if (n < 2) rows(&out, (tn_dtype)to, rank, size, TAME);
                else lay(&out, (tn_dtype)to, rank, size, TAME, false);
                agree(n < 2 ? TNI_cast : TNI_copy, 1, &in, &out, NULL, exact);
                value_free(&in);
                value_free(&out);
            }
}

static void casts_saturate_and_wrap(void)
{
    static const float x[]  = { 300.7f, -5.5f, NAN, 1e20f, -1e20f, 2.9f };
    static const int   u8[] = { 255, 0, 0, 255, 0, 2 }, i8[] = { 127, -5, 0, 127, -128, 2 };
    uint8_t            a[6];
    int8_t             b[6];
    int32_t            c[6], wide = 0x12345;
    tni_arg            in   = { TN_F32, 1, { 6 }, { 1 }, (char *)x };
    tni_call           call = { .device = cpu, .op = TNI_cast, .nin = 1, .in = &in, .threads = 1 };
    call.out                = (tni_arg){ TN_U8, 1, { 6 }, { 1 }, (char *)a };
    tni_call_run(&call);
    call.out = (tni_arg){ TN_I8, 1, { 6 }, { 1 }, (char *)b };
    tni_call_run(&call);
    call.out = (tni_arg){ TN_I32, 1, { 6 }, { 1 }, (char *)c };
    tni_call_run(&call);
    for (int i = 0; i < 6; i++) CHECK_INT(a[i], u8[i]);
    for (int i = 0; i < 6; i++) CHECK_INT(b[i], i8[i]);
    CHECK_INT(c[2], 0);
    CHECK_INT(c[3], INT32_MAX);
    CHECK_INT(c[4], INT32_MIN);
    in       = (tni_arg){ TN_I32, 0, { 0 }, { 0 }, (char *)&wide };
    call.out = (tni_arg){ TN_U8, 0, { 0 }, { 0 }, (char *)a };
    tni_call_run(&call);
    CHECK_INT(a[0], 0x45);
}

// ---- folds -------------------------------------------------------------------------------------

static void check_best(int op, tn_dtype dt, int rank, const int64_t *size, uint32_t axes, mood m)
{
    value    in, out;
    int64_t  left[TN_MAX_RANK];
    tni_attr attr = { .reduce = { .axes = axes } };
    for (int i = 0; i < rank; i++) left[i] = axes >> i & 1 ? 1 : size[i];
    lay(&in, dt, rank, size, m, true);
    rows(&out, TN_I64, rank, left, TAME);
    agree(op, 1, &in, &out, &attr, exact);
    value_free(&in);
    value_free(&out);
}

static void places_of_extrema_agree_with_the_reference(void)
{
    for (int op = TNI_argmax; op <= TNI_argmin; op++)
        for (int d = 0; d < DTYPES; d++)
            for (int n = 0; n < 6; n++) {
                int64_t size[TN_MAX_RANK];
                int     rank = draw_shape(size, 1, 9);
                check_best(op, dtypes[d], rank, size, draw() % (1u << rank), n < 3 ? SMALL : WILD);
            }
}

static void places_of_extrema_of_much_agree_with_the_reference(void)
{
    static const int64_t shapes[][3] = {
        { 1, 1, 200000 }, { 3, 300, 400 }, { 7000, 5, 4 }, { 3000, 1, 70 }, { 2, 90000, 1 },
    };
    for (int s = 0; s < 5; s++)
        for (uint32_t axes = 1; axes < 8; axes++)
            for (int op = TNI_argmax; op <= TNI_argmin; op++)
                check_best(op, dtypes[below(DTYPES)], 3, shapes[s], axes, TAME);
}

static void scans_agree_with_the_reference(void)
{
    for (int op = TNI_cumsum; op <= TNI_cumprod; op++)
        for (int d = 0; d < DTYPES; d++)
            for (int n = 0; n < 6; n++) {
                int64_t  size[TN_MAX_RANK];
                int      rank = draw_shape(size, 1, op == TNI_cumsum ? 24 : 6);
                tni_attr attr = { .axis = { .axis = (int)below(rank) } };
                value    in, out;
                bound    e = close_by;
                e.scale    = op == TNI_cumsum ? 4 : 0;
                lay(&in, dtypes[d], rank, size, op == TNI_cumsum ? TAME : SMALL, true);
                rows(&out, tni_is_float(dtypes[d]) || dtypes[d] == TN_U64 ? dtypes[d] : TN_I64,
                     rank, size, TAME);
                agree(op, 1, &in, &out, &attr, e);
                value_free(&in);
                value_free(&out);
            }
}

// ---- movement ----------------------------------------------------------------------------------

static void concats_agree_with_the_reference(void)
{
    for (int d = 0; d < DTYPES; d++)
        for (int n = 0; n < 6; n++) {
            int64_t  size[TN_MAX_RANK], total = 0;
            int      rank = draw_shape(size, 1, 9), axis = (int)below(rank);
            tni_attr attr = { .axis = { .axis = axis } };
            value    in[4], out;
            for (int k = 0; k < 4; k++) {
                size[axis] = below(5) + (k == 0);
                total += size[axis];
                lay(&in[k], dtypes[d], rank, size, TAME, true);
            }
            size[axis] = total;
            rows(&out, dtypes[d], rank, size, TAME);
            agree(TNI_concat, 4, in, &out, &attr, exact);
            for (int k = 0; k < 4; k++) value_free(&in[k]);
            value_free(&out);
        }
}

// An index of places along an axis of n; `broad` lets it stand still behind the axis.
static void lay_index(value *v, int rank, const int64_t *size, int axis, int64_t n, bool broad)
{
    tn_dtype dt = below(2) ? TN_I32 : TN_I64;
    lay(v, dt, rank, size, TAME, false);
    for (int64_t i = 0; i < v->room; i++) host_put(dt, v->mem, i, 0, below(2 * n) - n);
    ref->memory->upload(NULL, v->cells, dt, v->mem, v->room, &(tni_text){ 0 });
    for (int i = axis + 1; broad && i < rank; i++) v->arg.stride[i] = v->other.stride[i] = 0;
}

static void indexing_agrees_with_the_reference(void)
{
    for (int d = 0; d < DTYPES; d++)
        for (int n = 0; n < 24; n++) {
            int64_t  size[TN_MAX_RANK], index[TN_MAX_RANK];
            int      rank = draw_shape(size, 1, 9), axis = (int)below(rank);
            int      op    = n % 2 ? TNI_scatter : TNI_scatter_add;
            bool     broad = below(2);
            tni_attr attr  = { .axis = { .axis = axis } };
            value    in[3], out;
            bound    e = close_by;
            e.scale    = 16;
            for (int i = 0; i < rank; i++)
                index[i] = broad && i > axis ? size[i] : 1 + below(size[i]);
            index[axis] = 1 + below(30);
            if (below(2)) rows(&in[0], dtypes[d], rank, size, TAME);
            else lay(&in[0], dtypes[d], rank, size, TAME, true);
            lay_index(&in[1], rank, index, axis, size[axis], broad);
            if (below(2)) rows(&in[2], dtypes[d], rank, index, TAME);
            else lay(&in[2], dtypes[d], rank, index, TAME, true);
            rows(&out, dtypes[d], rank, size, TAME);
            agree(op, 3, in, &out, &attr, op == TNI_scatter_add ? e : exact);
            for (int k = 0; k < 3; k++) value_free(&in[k]);
            value_free(&out);
        }
}

static void an_index_out_of_range_is_named(void)
{
    float    x[10] = { 0 }, y[6] = { 0 };
    int64_t  index[6] = { 0, 1, -5, 4, 7, 9 };
    tni_attr attr     = { .axis = { .axis = 1 } };
    tni_text why      = { "stale" };
    tni_arg  in[3]    = { { TN_F32, 2, { 2, 5 }, { 5, 1 }, (char *)x },
                          { TN_I64, 2, { 2, 3 }, { 3, 1 }, (char *)index },
                          { TN_F32, 2, { 2, 3 }, { 3, 1 }, (char *)y } };
    tni_call c        = { .device  = cpu,
                          .op      = TNI_scatter,
                          .nin     = 3,
                          .in      = in,
                          .attr    = &attr,
                          .threads = 2,
                          .why     = &why };
    float    z[10];
    c.out = (tni_arg){ TN_F32, 2, { 2, 5 }, { 5, 1 }, (char *)z };
    CHECK_STATUS(tni_call_run(&c), TN_EARG);
    CHECK_STR(why.s, "scatter: index 7 is out of range for size 5 along axis 1");
}

static void folds_agree_with_the_reference(void)
{
    for (int d = 0; d < DTYPES; d++)
        for (int n = 0; n < 10; n++) {
            // Windows of k, `step` apart, of each row of a base.
            int64_t  count = 1 + below(90), windows = 1 + below(n == 0 ? 900 : 9), k = 1 + below(5);
            int64_t  step = 1 + below(7), wide = (windows - 1) * step + k + 2;
            int64_t  base[2] = { count, wide }, size[3] = { count, windows, k };
            tni_attr attr = { .view = { .offset = 1, .stride = { wide, step, 1 } } };
            if (below(3) == 0)
                attr.view = (__typeof__(attr.view)){ .offset = wide - 1,
                                                     .stride = { wide, -step, -1 } };
            value in, out;
            bound e = close_by;
            e.scale = 16;
            lay(&in, dtypes[d], 3, size, TAME, true);
            rows(&out, dtypes[d], 2, base, TAME);
            agree(TNI_fold, 1, &in, &out, &attr, e);
            value_free(&in);
            value_free(&out);
        }
}

// ---- products ----------------------------------------------------------------------------------

static void products_agree_with_the_reference(void)
{
    for (int d = TN_U8; d < DTYPES; d++)
        for (int n = 0; n < 10; n++) {
            int64_t size[TN_MAX_RANK], a[TN_MAX_RANK], b[TN_MAX_RANK];
            int     rank = 2 + (int)below(3);
            value   in[2], out;
            bound   e = close_by;
            for (int i = 0; i < rank; i++) size[i] = a[i] = b[i] = 1 + below(i < rank - 2 ? 4 : 30);
            a[rank - 1] = b[rank - 2] = n == 0 ? 0 : 1 + below(60);
            e.scale                   = 16 * sqrt((double)a[rank - 1]);
            lay(&in[0], dtypes[d], rank, a, TAME, true);
            lay(&in[1], dtypes[d], rank, b, TAME, true);
            rows(&out, dtypes[d], rank, size, TAME);
            agree(TNI_matmul, 2, in, &out, NULL, e);
            value_free(&in[0]);
            value_free(&in[1]);
            value_free(&out);
        }
}

// Sizes of a convolution, drawn at random.
typedef struct {
    int      rank;
    int64_t  x[5], w[5], y[5];
    tni_attr attr;
} shapes;

// Draws the sizes along the axes for a window of up to `most` elements (least of them 1), and what
// follows from them.
static void draw_sides(shapes *s, int64_t least, int64_t most, int64_t steps, const int64_t *hw)
{
    for (int i = 0; i < s->rank - 2; i++) {
        int64_t k = least + below(most - least + 1), step = 1 + below(steps);
        int64_t dilation = steps == 1 ? 1 : 1 + below(2), span = (k - 1) * dilation + 1;
        int64_t pad = most == 1 ? 0 : below(3), side = hw[i] + 2 * pad < span ? span : hw[i];
        s->x[2 + i] = side, s->w[2 + i] = k;
        s->y[2 + i]              = (side + 2 * pad - span) / step + 1;
        s->attr.conv.stride[i]   = step;
        s->attr.conv.padding[i]  = pad;
        s->attr.conv.dilation[i] = dilation;
    }
}

// Sizes of a convolution with g groups of cg and og channels, without those along the axes.
static shapes conv_shapes(int rank, int64_t images, int64_t g, int64_t cg, int64_t og)
{
    shapes s           = { .x = { images, g * cg }, .w = { g * og, cg }, .y = { images, g * og } };
    s.rank             = rank;
    s.attr.conv.groups = g;
    return s;
}

static shapes draw_conv(int n)
{
    int64_t g = n % 4 == 3 ? 1 + below(3) : 1, cg = 1 + below(5), og = 1 + below(5);
    int64_t hw[3] = { 1 + below(14), n % 5 == 0 ? 60 + below(60) : 1 + below(14), 1 + below(6) };
    int     rank  = n % 4 == 1 ? 5 : n % 12 == 10 ? 3 : 4;
    shapes  s     = conv_shapes(rank, n == 1 ? 0 : n % 8 == 2 ? 30 : 1 + below(4), g, cg, og);
    draw_sides(&s, 1, n % 6 == 0 ? 1 : 4, n % 6 == 0 ? 1 : 3, hw);
    return s;
}

static void check_conv(int op, tn_dtype dt, const shapes *s)
{
    value          in[2], out;
    bound          e = close_by;
    const int64_t *a = op == TNI_conv ? s->x : s->y, *b = op == TNI_conv_wgrad ? s->x : s->w;
    const int64_t *y = op == TNI_conv ? s->y : op == TNI_conv_dgrad ? s->x : s->w;
    e.scale          = 16 * sqrt((double)tni_shape_count(s->rank, s->y));
    lay(&in[0], dt, s->rank, a, TAME, true);
    lay(&in[1], dt, s->rank, b, TAME, true);
    rows(&out, dt, s->rank, y, TAME);
    agree(op, 2, in, &out, &s->attr, e);
    value_free(&in[0]);
    value_free(&in[1]);
    value_free(&out);
}

static void convolutions_agree_with_the_reference(void)
{
    drawn = 0;  // the same numbers whichever tests ran before
    for (int d = TN_F16; d <= TN_F64; d++)
        for (int op = TNI_conv; op <= TNI_conv_wgrad; op++)
            for (int n = 0; n < 24; n++) {
                shapes s = draw_conv(n == 1 && op != TNI_conv_wgrad ? 2 : n);
                check_conv(op, dtypes[d], &s);
            }
}

// Windows of 3 x 3 with stride 1 and many channels, and windows of one channel each, have ways of
// their own.
static void convolutions_of_special_forms_agree_with_the_reference(void)
{
    drawn = 0;
    for (int op = TNI_conv; op <= TNI_conv_wgrad; op++)
        for (int n = 0; n < 12; n++) {
            int64_t hw[2]  = { 3 + below(n % 4 == 0 ? 40 : 15), 3 + below(15) };
            shapes  square = conv_shapes(4, 1 + below(3), 1, 16 + below(20), 16 + below(20));
            shapes  each   = conv_shapes(4, 1 + below(3), 1 + below(9), 1, 1);
            draw_sides(&square, 3, 3, 1, hw);
            draw_sides(&each, 1, 5, 3, hw);
            check_conv(op, n % 4 == 3 ? TN_BF16 : TN_F32, &square);
            check_conv(op, n % 4 == 3 ? TN_BF16 : TN_F32, &each);
        }
    shapes  far  = { .rank = 4, .x = { 1, 4, 4, 4 }, .w = { 4, 1, 3, 3 }, .y = { 1, 4, 3, 3 } };
    int64_t by[] = { 60000, INT64_C(1)
                                << 40 };  // planes of gigabytes, and of more than can be counted
    for (int i = 0; i < 2; i++) {
        far.attr.conv.groups = 4;
        for (int k = 0; k < 2; k++) {
            far.attr.conv.stride[k] = far.attr.conv.padding[k] = by[i];
            far.attr.conv.dilation[k]                          = 1;
        }
        for (int op = TNI_conv; op <= TNI_conv_wgrad; op++) check_conv(op, TN_F32, &far);
    }
}

enum { SPIKE_C = 40, SPIKE_SIDE = 21, SPIKE_PLANE = SPIKE_SIDE * SPIKE_SIDE };
enum { SPIKE_COUNT = 2 * SPIKE_C * SPIKE_PLANE };

// A convolution of x (form 0), its gradient for x, with x as the gradient of its result (1), a
// transposed one (2).
static void run_spiked(int form, const float *data, float *y)
{
    tn_ctx      *cx = tn_open_with((tn_open_opts){ .device = "cpu", .seed = 7 });
    tn_tensor   *w = tn_randn(cx, TN_F32, TN_SHAPE(SPIKE_C, SPIKE_C, 3, 3)), *out = NULL;
    tn_tensor   *x = tn_from(cx, TN_F32, TN_SHAPE(2, SPIKE_C, SPIKE_SIDE, SPIKE_SIDE), data);
    tn_conv_opts o = { .padding = { 1 } };
    if (form == 0) out = tn_conv2d(x, w, NULL, o);
    if (form == 2) out = tn_conv_transpose2d(x, w, NULL, o);
    if (form == 1) {
        tn_tensor *of = tn_requires_grad(tn_zeros_like(x), true), *z = tn_conv2d(of, w, NULL, o);
        tn_grad(1, &z, 1, &of, &x, &out);
    }
    CHECK_STATUS(tn_read(out, TN_F32, y, SPIKE_COUNT), TN_OK);
    tn_close(cx);
}

// One element that is much larger than all others changes nothing where no window has it, not even
// a last bit: the transforms of Winograd's algorithm must not carry its rounding errors there.
static void large_elements_stay_in_their_windows(void)
{
    static const int at[][2] = {
        { 0, 0 }, { 9, 10 }, { 10, 11 }, { 11, 8 }, { 12, 13 }, { 20, 20 }
    };
    static float x[SPIKE_COUNT], plain[SPIKE_COUNT], y[SPIKE_COUNT];
    for (int i = 0; i < SPIKE_COUNT; i++) x[i] = (float)m_rand_normal_f(7, 0, (uint64_t)i);
    for (int form = 0; form < 3; form++) {
        run_spiked(form, x, plain);
        for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
            int    row = at[k][0], col = at[k][1], changed = 0, wrong = 0;
            float *spike = x + 5 * SPIKE_PLANE + row * SPIKE_SIDE + col, before = *spike;
            *spike = 1e7f;
            run_spiked(form, x, y);
            *spike = before;
            for (int i = 0; i < SPIKE_COUNT; i++) {
                int  h = i / SPIKE_SIDE % SPIKE_SIDE, v = i % SPIKE_SIDE;
                bool in = i < SPIKE_C * SPIKE_PLANE && abs(h - row) < 2 && abs(v - col) < 2;
                changed += in && y[i] != plain[i];
                wrong += !in && y[i] != plain[i];
            }
            test_case_result(changed > 0 && wrong == 0, "form %d, element %d, %d: %d wrong", form,
                             row, col, wrong);
        }
    }
}

// Transformed weights are kept from the second run on, as long as the weights are the same value.
// Doubled weights double the result, without rounding.
static void kept_weights_follow_their_values(void)
{
    enum { C = 16, SIDE = 20, COUNT = C * SIDE * SIDE };
    static float first[COUNT], now[COUNT];
    tn_ctx      *cx    = tn_open_with((tn_open_opts){ .device = "cpu" });
    tn_tensor   *x     = tn_randn(cx, TN_F32, TN_SHAPE(1, C, SIDE, SIDE));
    tn_tensor   *w     = tn_randn(cx, TN_F32, TN_SHAPE(C, C, 3, 3));
    double       times = 1;
    CHECK_STATUS(tn_eval_of(x), TN_OK);
    for (int run = 0; run < 12; run++) {
        if (run % 4 == 3) {
            tn_assign(w, tn_mul_s(w, 2));
            times *= 2;
        }
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y = tn_conv2d(x, w, NULL, (tn_conv_opts){ .padding = { 1 } });
        CHECK_STATUS(tn_read(y, TN_F32, run ? now : first, COUNT), TN_OK);
        for (int i = 0; run && i < COUNT; i++)
            if (!CHECK_NEAR(now[i], times * first[i], 0)) break;
        tn_end(s);
    }
    tn_close(cx);
}

// ---- sorting, memory ---------------------------------------------------------------------------

static void sorts_agree_with_the_reference(void)
{
    for (int d = 0; d < DTYPES; d++)
        for (int n = 0; n < 12; n++) {
            int64_t  size[TN_MAX_RANK];
            int      rank = draw_shape(size, 1, 20);
            tni_attr attr = { .axis = { .axis = (int)below(rank), .descending = n % 2 } };
            value    in, out;
            lay(&in, dtypes[d], rank, size, n < 4 ? SMALL : WILD, true);
            rows(&out, TN_I64, rank, size, TAME);
            agree(TNI_argsort, 1, &in, &out, &attr, exact);
            value_free(&in);
            value_free(&out);
        }
}

// ---- convolutions that are cut into much -------------------------------------------------------

typedef struct {
    int64_t N, C, O, side, stride;
} cut_conv;

enum {
    CUT_ROOM    = 4 * 24 * 60 * 60,
    CUT_WEIGHTS = 140 * 128 * 9,
    CUT_ALL     = 2 * CUT_ROOM + CUT_WEIGHTS
};

// y, and the gradients of its sum of squares with respect to x and to the weights behind it, of one
// context.
static bool run_cut(const cut_conv *c, const char *device, int threads, float *y)
{
    tn_ctx    *cx = tn_open_with((tn_open_opts){ .device = device, .threads = threads, .seed = 5 });
    tn_tensor *x  = tn_rand(cx, TN_F32, TN_SHAPE(c->N, c->C, c->side, c->side));
    tn_tensor *w  = tn_rand(cx, TN_F32, TN_SHAPE(c->O, c->C, 3, 3));
    tn_tensor *of[] = { tn_requires_grad(x, true), tn_requires_grad(w, true) }, *g[2] = { NULL };
    tn_conv_opts o = { .padding = { 1 }, .stride = { c->stride } };
    tn_tensor *out = tn_conv2d(tn_sub_s(x, 0.5f), w, NULL, o), *sum = tn_sum_all(tn_mul(out, out));
    tn_grad(1, &sum, 2, of, NULL, g);
    bool ok = tn_read(out, TN_F32, y, tn_count(out)) == TN_OK &&
              tn_read(g[0], TN_F32, y + CUT_ROOM, tn_count(g[0])) == TN_OK &&
              tn_read(g[1], TN_F32, y + 2 * CUT_ROOM, tn_count(g[1])) == TN_OK;
    tn_close(cx);
    return ok;
}

static bool is_near_all(const float *a, const float *b, int n)
{
    float most = 0, off = 0;
    for (int i = 0; i < n; i++)
        most = fmaxf(most, fabsf(a[i])), off = fmaxf(off, fabsf(a[i] - b[i]));
    return off <= 2e-6f * most;
}

// More blocks of tiles than threads share; weight gradients by larger tiles, cut at both edges,
// with sums of their own for each split, and such as are too large for that; windows of a single
// image, which are one product.
static void convolutions_cut_into_much_are_the_same_on_any_threads(void)
{
    static const cut_conv cases[] = {
        { 4, 16, 24, 60, 1 },  { 5, 9, 21, 37, 1 },  { 3, 33, 47, 13, 1 },
        { 8, 128, 137, 6, 1 }, { 1, 25, 41, 27, 2 },
    };
    static const int threads[] = { 1, 2, 5 };
    static float     y[3][CUT_ALL];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(y, 0, sizeof y);
        CHECK(run_cut(&cases[i], "ref", 1, y[0]));
        for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
            CHECK(run_cut(&cases[i], "cpu", threads[k], y[k ? 2 : 1]));
            test_case_result(is_near_all(y[0], y[1], CUT_ROOM), "y of case %zu", i);
            test_case_result(is_near_all(y[0] + CUT_ROOM, y[1] + CUT_ROOM, CUT_ROOM),
                             "gx of case %zu", i);
            test_case_result(is_near_all(y[0] + 2 * CUT_ROOM, y[1] + 2 * CUT_ROOM, CUT_WEIGHTS),
                             "gw of case %zu", i);
            test_case_result(k == 0 || !memcmp(y[1], y[2], sizeof *y),
                             "bits of case %zu, %d threads", i, threads[k]);
        }
    }
}

static void memory_is_aligned_and_the_device_says_what_it_is(void)
{
    tni_heap heap   = tni_heap_default();
    tni_text detail = { 0 };
    for (size_t n = 0; n < 300; n += 7) {
        char *p = cpu->memory->alloc(&heap, n);
        if (!CHECK(p != NULL)) return;
        CHECK_INT((uintptr_t)p % 64, 0);
        memset(p, 1, n);
        cpu->memory->free(&heap, p);
    }
    cpu->memory->free(&heap, NULL);
    CHECK(cpu->memory->alloc(&heap, SIZE_MAX - 8) == NULL);
    CHECK(cpu->probe(&detail));
    CHECK(strstr(detail.s, "threads") != NULL);
    CHECK(cpu->memory->element_size(TN_F16) == 2 && cpu->memory->host);
}

const test_case tests_cpu[] = {
    TEST(ops_one_by_one_agree_with_the_reference),
    TEST(big_ops_are_the_same_on_any_threads),
    TEST(sums_are_accurate),
    TEST(what_reads_nothing_by_place_is_right),
    TEST(casts_and_copies_agree_with_the_reference),
    TEST(casts_saturate_and_wrap),
    TEST(places_of_extrema_agree_with_the_reference),
    TEST(places_of_extrema_of_much_agree_with_the_reference),
    TEST(scans_agree_with_the_reference),
    TEST(concats_agree_with_the_reference),
    TEST(indexing_agrees_with_the_reference),
    TEST(an_index_out_of_range_is_named),
    TEST(folds_agree_with_the_reference),
    TEST(products_agree_with_the_reference),
    TEST(convolutions_agree_with_the_reference),
    TEST(convolutions_of_special_forms_agree_with_the_reference),
    TEST(large_elements_stay_in_their_windows),
    TEST(kept_weights_follow_their_values),
    TEST(convolutions_cut_into_much_are_the_same_on_any_threads),
    TEST(sorts_agree_with_the_reference),
    TEST(memory_is_aligned_and_the_device_says_what_it_is),
    TEST_END,
};
