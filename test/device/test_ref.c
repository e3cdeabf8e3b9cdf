// test_ref.c: the reference device, call by call, against values worked out by hand.
#include "check.h"
#include "base/heap.h"
#include "device/device.h"
#include "kernel/prelude.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

enum { ROOM = 256 };  // elements, the most that a value here has

// A row-major value in the memory of the device.
typedef struct {
    tni_arg arg;
    int64_t mem[ROOM];
} value;

static const tni_device *const ref = &tni_device_ref;
static tni_text                why;  // of the last call

static void make(value *v, tn_dtype dt, int rank, const int64_t *size)
{
    v->arg = (tni_arg){ .dtype = dt, .rank = rank, .data = (char *)v->mem };
    if (rank) memcpy(v->arg.size, size, (size_t)rank * sizeof *size);
    tni_shape_strides(rank, v->arg.size, v->arg.stride);
    memset(v->mem, 0x5a, sizeof v->mem);
}

// A value of numbers given as doubles.
static void put(value *v, tn_dtype dt, int rank, const int64_t *size, const double *x)
{
    int64_t n = tni_shape_count(rank, size);
    make(v, dt, rank, size);
    for (int64_t i = 0; i < n; i++) {
        double  f = x[i];
        int64_t k = tni_is_float(dt) ? 0 : (int64_t)f;
        ref->memory->upload(NULL, &v->mem[i], tni_is_float(dt) ? TN_F64 : TN_I64,
                            tni_is_float(dt) ? (void *)&f : (void *)&k, 1, &(tni_text){ 0 });
    }
}

#define LIST(...)    \
    (const double[]) \
    {                \
        __VA_ARGS__  \
    }
#define PUT1(v, dt, ...) \
    put(v, dt, 1, (int64_t[]){ sizeof LIST(__VA_ARGS__) / 8 }, LIST(__VA_ARGS__))

static double get(const value *v, int64_t i)
{
    double  f;
    int64_t k;
    if (tni_is_float(v->arg.dtype)) {
        ref->memory->download(NULL, &f, TN_F64, &v->mem[i], 1, &(tni_text){ 0 });
        return f;
    }
    ref->memory->download(NULL, &k, TN_I64, &v->mem[i], 1, &(tni_text){ 0 });
    return (double)k;
}

// Whether v holds these numbers; NaN equals NaN.
static bool holds(const value *v, int64_t n, const double *x)
{
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        double y = get(v, i);
        ok &= test_that(y == x[i] || (isnan(y) && isnan(x[i])), "element %lld is %.17g, not %.17g",
                        (long long)i, y, x[i]);
    }
    return ok;
}

#define HOLDS(v, ...) holds(v, sizeof LIST(__VA_ARGS__) / 8, LIST(__VA_ARGS__))

static tn_status run(int op, value *out, int nin, value *const *in, const tni_attr *attr)
{
    static int64_t scratch[1024];
    tni_arg        args[4];
    for (int i = 0; i < nin; i++) args[i] = in[i]->arg;
    tni_call c = { .device  = ref,
                   .op      = op,
                   .nin     = nin,
                   .in      = args,
                   .out     = out->arg,
                   .attr    = attr,
                   .threads = 1,
                   .scratch = scratch,
                   .why     = &why };
    CHECK(tni_call_scratch(&c) <= sizeof scratch);
    return tni_call_run(&c);
}

#define RUN(op, out, attr, ...)                                                     \
    run(TNI_##op, out, (int)(sizeof((value *[]){ __VA_ARGS__ }) / sizeof(value *)), \
        (value *[]){ __VA_ARGS__ }, attr)

#define MAKE(op, out, attr) run(TNI_##op, out, 0, NULL, attr)

// Attributes of ops along one axis, and of reductions over the axes of a mask; good until the next.
static const tni_attr *along(int axis)
{
    static tni_attr a;
    a = (tni_attr){ .axis = { axis, false } };
    return &a;
}

static const tni_attr *over(uint32_t axes)
{
    static tni_attr a;
    a = (tni_attr){ .reduce = { .axes = axes } };
    return &a;
}

// ---- memory and numbers

static void memory_is_aligned_to_64(void)
{
    tni_heap heap = tni_heap_default();
    for (size_t n = 1; n < 1000; n += 111) {
        char *p = ref->memory->alloc(&heap, n);
        if (!CHECK(p != NULL)) return;
        CHECK((uintptr_t)p % 64 == 0);
        memset(p, 1, n);
        ref->memory->free(&heap, p);
    }
    CHECK(ref->memory->alloc(&heap, SIZE_MAX - 8) == NULL);
    ref->memory->free(&heap, NULL);
}

// NaN keeps being one; everything else keeps its bits.
static void every_16_bit_float_survives_the_way_in_and_out(void)
{
    static const tn_dtype dtypes[] = { TN_F16, TN_BF16 };
    for (int d = 0; d < 2; d++)
        for (uint32_t b = 0; b < 0x10000; b++) {
            uint16_t in = (uint16_t)b, out;
            double   v;
            ref->memory->upload(NULL, &v, dtypes[d], &in, 1, &(tni_text){ 0 });
            ref->memory->download(NULL, &out, dtypes[d], &v, 1, &(tni_text){ 0 });
            float f = d ? m_bf16_to_float(in) : m_half_to_float(in);
            if (isnan(f)) ref->memory->upload(NULL, &v, dtypes[d], &out, 1, &(tni_text){ 0 });
            test_that(isnan(f) ? isnan(v) : v == f && in == out, "%s %04x",
                      tn_dtype_name(dtypes[d]), b);
        }
}

static void casts_to_16_bits_round_once_to_even(void)
{
    value x, y;
    PUT1(&x, TN_F64, 1 + 0x1p-11, 1 + 0x3p-11, 1 + 0x1p-11 + 0x1p-40, 65519.99, 65520, -65520,
         0x1p-25, 0x3p-25, 0x1.8p-25, -0.0, NAN);
    make(&y, TN_F16, 1, x.arg.size);
    RUN(cast, &y, NULL, &x);
    HOLDS(&y, 1, 1 + 0x1p-9, 1 + 0x1p-10, 65504, INFINITY, -INFINITY, 0, 0x1p-23, 0x1p-24, 0, NAN);
    PUT1(&x, TN_F64, 1 + 0x1p-8, 1 + 0x3p-8, 1 + 0x1p-8 + 0x1p-40, 0x1.ffp127, 0x1.fep127, 0x1p-134,
         0x1p-133);
    make(&y, TN_BF16, 1, x.arg.size);
    RUN(cast, &y, NULL, &x);
    HOLDS(&y, 1, 1 + 0x1p-6, 1 + 0x1p-7, INFINITY, 0x1.fep127, 0, 0x1p-133);
}

static void the_prelude_rounds_as_ref_does(void)
{
    for (uint64_t i = 0; i < 200000; i++) {
        uint32_t r = m_rand_bits(1, 0, i);
        double   v = ldexp((double)r, (int)(m_rand_bits(2, 0, i) % 300) - 190);
        uint16_t half, bf16;
        ref->memory->download(NULL, &half, TN_F16, &v, 1, &(tni_text){ 0 });
        ref->memory->download(NULL, &bf16, TN_BF16, &v, 1, &(tni_text){ 0 });
        test_that(half == m_double_to_half(v) && bf16 == m_double_to_bf16(v), "%a", v);
    }
}

static void only_narrowing_casts_round(void)
{
    value x, y;
    PUT1(&x, TN_F16, 1 / 3.0);
    make(&y, TN_F32, 1, x.arg.size);
    RUN(cast, &y, NULL, &x);
    HOLDS(&y, 1 / 3.0);
    PUT1(&x, TN_F64, 1 / 3.0);
    RUN(cast, &y, NULL, &x);
    HOLDS(&y, (float)(1 / 3.0));
    float out;
    PUT1(&x, TN_F32, 1 / 3.0);
    ref->memory->download(NULL, &out, TN_F32, x.mem, 1, &(tni_text){ 0 });
    CHECK(out == (float)(1 / 3.0));
}

static void floats_cast_to_integers_saturate(void)
{
    value x, y;
    PUT1(&x, TN_F32, 1.9, -1.9, 300, -300, NAN, INFINITY, 0.5);
    make(&y, TN_U8, 1, x.arg.size);
    RUN(cast, &y, NULL, &x);
    HOLDS(&y, 1, 0, 255, 0, 0, 255, 0);
    y.arg.dtype = TN_I8;
    RUN(cast, &y, NULL, &x);
    HOLDS(&y, 1, -1, 127, -128, 0, 127, 0);
    y.arg.dtype = TN_BOOL;
    RUN(cast, &y, NULL, &x);
    HOLDS(&y, 1, 1, 1, 1, 1, 1, 1);
    PUT1(&x, TN_F64, 1e300, -1e300, 0x1p62, -0x1p63);
    make(&y, TN_I64, 1, x.arg.size);
    RUN(cast, &y, NULL, &x);
    CHECK_INT(y.mem[0], INT64_MAX);
    CHECK_INT(y.mem[1], INT64_MIN);
    CHECK_INT(y.mem[2], INT64_C(1) << 62);
    CHECK_INT(y.mem[3], INT64_MIN);
}

static void integers_cast_to_floats_round_once(void)
{
    value x, y;
    PUT1(&x, TN_I64, 0, 0, 0);
    x.mem[0] = (INT64_C(1) << 62) + (INT64_C(1) << 54) + 1;  // just above halfway for bf16
    x.mem[1] = -x.mem[0];
    x.mem[2] = (INT64_C(1) << 62) + (INT64_C(1) << 54);  // halfway
    make(&y, TN_BF16, 1, x.arg.size);
    RUN(cast, &y, NULL, &x);
    HOLDS(&y, 0x1.02p62, -0x1.02p62, 0x1p62);
}

static void integers_cast_to_narrower_ones_wrap(void)
{
    value x, y;
    PUT1(&x, TN_I32, 257, -1, 128, 256);
    make(&y, TN_U8, 1, x.arg.size);
    RUN(cast, &y, NULL, &x);
    HOLDS(&y, 1, 255, 128, 0);
    y.arg.dtype = TN_I8;
    RUN(cast, &y, NULL, &x);
    HOLDS(&y, 1, -1, -128, 0);
    y.arg.dtype = TN_BOOL;
    RUN(cast, &y, NULL, &x);
    HOLDS(&y, 1, 1, 1, 1);
}

// ---- maps

static void maps_broadcast_and_follow_strides(void)
{
    value a, b, y;
    put(&a, TN_F32, 2, (int64_t[]){ 3, 2 }, LIST(1, 2, 3, 4, 5, 6));
    PUT1(&b, TN_F32, 10, 20, 30);
    a.arg.size[0] = 2, a.arg.size[1] = 3;  // transposed
    a.arg.stride[0] = 1, a.arg.stride[1] = 2;
    b.arg = (tni_arg){ TN_F32, 2, { 2, 3 }, { 0, 1 }, (char *)b.mem };
    make(&y, TN_F32, 2, a.arg.size);
    CHECK_STATUS(RUN(add, &y, NULL, &a, &b), TN_OK);
    HOLDS(&y, 11, 23, 35, 12, 24, 36);
}

static void float_maps_are_those_of_libm_in_double(void)
{
    value x, y;
    PUT1(&x, TN_F32, 0.5, 2);
    make(&y, TN_F32, 1, x.arg.size);
    RUN(exp, &y, NULL, &x);
    HOLDS(&y, exp(0.5), exp(2));
    RUN(erf, &y, NULL, &x);
    HOLDS(&y, erf(0.5), erf(2));
    RUN(rsqrt, &y, NULL, &x);
    HOLDS(&y, 1 / sqrt(0.5), 1 / sqrt(2));
    PUT1(&x, TN_F32, 0.5, 1.5, -2.5, NAN);
    make(&y, TN_F32, 1, x.arg.size);
    RUN(round, &y, NULL, &x);
    HOLDS(&y, 0, 2, -2, NAN);
    RUN(sign, &y, NULL, &x);
    HOLDS(&y, 1, 1, -1, 0);
}

static void maximum_and_minimum_propagate_nan(void)
{
    value a, b, y;
    PUT1(&a, TN_F32, 1, NAN, 3, NAN);
    PUT1(&b, TN_F32, 2, 2, NAN, NAN);
    make(&y, TN_F32, 1, a.arg.size);
    RUN(maximum, &y, NULL, &a, &b);
    HOLDS(&y, 2, NAN, NAN, NAN);
    RUN(minimum, &y, NULL, &a, &b);
    HOLDS(&y, 1, NAN, NAN, NAN);
}

static void remainders_have_the_sign_of_the_divisor(void)
{
    value a, b, y;
    PUT1(&a, TN_F64, 7, -7, 7, -7, 1, 5.5);
    PUT1(&b, TN_F64, 3, 3, -3, -3, 0, INFINITY);
    make(&y, TN_F64, 1, a.arg.size);
    RUN(remainder, &y, NULL, &a, &b);
    HOLDS(&y, 1, 2, -2, -1, NAN, 5.5);
    RUN(floor_divide, &y, NULL, &a, &b);
    HOLDS(&y, 2, -3, -3, 2, INFINITY, 0);
    a.arg.dtype = b.arg.dtype = y.arg.dtype = TN_I32;
    PUT1(&a, TN_I32, 7, -7, 7, -7, 1, INT32_MIN);
    PUT1(&b, TN_I32, 3, 3, -3, -3, 0, -1);
    RUN(remainder, &y, NULL, &a, &b);
    HOLDS(&y, 1, 2, -2, -1, 0, 0);
    RUN(floor_divide, &y, NULL, &a, &b);
    HOLDS(&y, 2, -3, -3, 2, 0, INT32_MIN);
}

static void integers_wrap_after_every_op(void)
{
    value a, b, y;
    PUT1(&a, TN_U8, 200, 255, 0);
    PUT1(&b, TN_U8, 100, 255, 1);
    make(&y, TN_U8, 1, a.arg.size);
    RUN(add, &y, NULL, &a, &b);
    HOLDS(&y, 44, 254, 1);
    RUN(sub, &y, NULL, &a, &b);
    HOLDS(&y, 100, 0, 255);
    RUN(mul, &y, NULL, &a, &b);
    HOLDS(&y, 32, 1, 0);
    RUN(bit_not, &y, NULL, &a);
    HOLDS(&y, 55, 0, 255);
    PUT1(&a, TN_I8, -128, 127);
    make(&y, TN_I8, 1, a.arg.size);
    RUN(abs, &y, NULL, &a);
    HOLDS(&y, -128, 127);
}

static void powers_of_integers_wrap(void)
{
    value a, b, y;
    PUT1(&a, TN_I32, 3, 2, 2, 1, -1, -1, 0, 5);
    PUT1(&b, TN_I32, 4, 31, 32, -3, -3, -2, -1, 0);
    make(&y, TN_I32, 1, a.arg.size);
    RUN(pow, &y, NULL, &a, &b);
    HOLDS(&y, 81, INT32_MIN, 0, 1, -1, 1, 0, 1);
}

static void shifts_take_any_count(void)
{
    value a, b, y;
    PUT1(&a, TN_I32, 1, 1, 1, -8, -8, -8, 1);
    PUT1(&b, TN_I32, 31, 32, 40, 1, 32, -1, -1);
    make(&y, TN_I32, 1, a.arg.size);
    RUN(shl, &y, NULL, &a, &b);
    HOLDS(&y, INT32_MIN, 0, 0, -16, 0, 0, 0);
    RUN(shr, &y, NULL, &a, &b);
    HOLDS(&y, 0, 0, 0, -4, -1, -1, 0);
    PUT1(&a, TN_U8, 255, 255, 255);
    PUT1(&b, TN_U8, 4, 8, 40);
    make(&y, TN_U8, 1, a.arg.size);
    RUN(shl, &y, NULL, &a, &b);
    HOLDS(&y, 240, 0, 0);
    RUN(shr, &y, NULL, &a, &b);
    HOLDS(&y, 15, 0, 0);
    PUT1(&a, TN_I64, 1, 1, -1);
    PUT1(&b, TN_I64, 40, 64, 64);
    make(&y, TN_I64, 1, a.arg.size);
    RUN(shl, &y, NULL, &a, &b);
    HOLDS(&y, 0x1p40, 0, 0);
    RUN(shr, &y, NULL, &a, &b);
    HOLDS(&y, 0, 0, -1);
}

static void bools_stay_bools(void)
{
    value a, b, y;
    PUT1(&a, TN_BOOL, 0, 0, 1, 1);
    PUT1(&b, TN_BOOL, 0, 1, 0, 1);
    make(&y, TN_BOOL, 1, a.arg.size);
    RUN(add, &y, NULL, &a, &b);
    HOLDS(&y, 0, 1, 1, 1);
    RUN(mul, &y, NULL, &a, &b);
    HOLDS(&y, 0, 0, 0, 1);
    RUN(bit_not, &y, NULL, &a);
    HOLDS(&y, 1, 1, 0, 0);
    RUN(bit_xor, &y, NULL, &a, &b);
    HOLDS(&y, 0, 1, 1, 0);
}

static void comparisons_give_bools_and_where_chooses(void)
{
    value a, b, c, y;
    PUT1(&a, TN_F32, 1, 2, NAN);
    PUT1(&b, TN_F32, 2, 2, 2);
    make(&c, TN_BOOL, 1, a.arg.size);
    RUN(lt, &c, NULL, &a, &b);
    HOLDS(&c, 1, 0, 0);
    make(&y, TN_F32, 1, a.arg.size);
    RUN(where, &y, NULL, &c, &a, &b);
    HOLDS(&y, 1, 2, 2);
    RUN(isnan, &c, NULL, &a);
    HOLDS(&c, 0, 0, 1);
    PUT1(&a, TN_I64, 0, 0, 0);
    PUT1(&b, TN_I64, 0, 0, 0);
    a.mem[0] = INT64_MAX, b.mem[0] = INT64_MAX - 1;  // equal as doubles
    RUN(gt, &c, NULL, &a, &b);
    HOLDS(&c, 1, 0, 0);
}

// ---- sources

static void sources_count_in_row_major_order(void)
{
    value    y;
    tni_attr a = { .iota = { 0.1, 0.2, 250, 3 } };
    make(&y, TN_F32, 2, (int64_t[]){ 2, 2 });
    MAKE(iota, &y, &a);
    HOLDS(&y, 0.1f, (float)(0.1 + 0.2), (float)(0.1 + 2 * 0.2), (float)(0.1 + 3 * 0.2));
    y.arg.dtype = TN_U8;
    MAKE(iota, &y, &a);
    HOLDS(&y, 250, 253, 0, 3);
    a = (tni_attr){ .num = { .f = 0.1, .i = 7 } };
    make(&y, TN_F16, 0, NULL);
    MAKE(full, &y, &a);
    HOLDS(&y, 0x1.998p-4);
    MAKE(scalar, &y, &a);
    HOLDS(&y, 0x1.998p-4);
    y.arg.dtype = TN_I32;
    MAKE(full, &y, &a);
    HOLDS(&y, 7);
}

static void random_numbers_are_those_of_the_prelude(void)
{
    value    y;
    tni_attr a = { .random = { 42, 1000 } };
    make(&y, TN_F64, 2, (int64_t[]){ 5, 7 });
    MAKE(normal, &y, &a);
    for (int i = 0; i < 35; i++) CHECK(get(&y, i) == m_rand_normal_d(42, 1000, (uint64_t)i));
    y.arg.dtype = TN_F32;
    MAKE(uniform, &y, &a);
    for (int i = 0; i < 35; i++) CHECK(get(&y, i) == m_rand_uniform_f(42, 1000, (uint64_t)i));
    y.arg.dtype = TN_BF16;
    MAKE(normal, &y, &a);
    for (int i = 0; i < 35; i++) {
        float f = m_rand_normal_f(42, 1000, (uint64_t)i);
        CHECK(get(&y, i) == m_bf16_to_float(m_float_to_bf16(f)));
    }
    y.arg.dtype = TN_I64;
    MAKE(random_bits, &y, &a);
    for (int i = 0; i < 35; i++) CHECK_INT(y.mem[i], m_rand_bits(42, 1000, (uint64_t)i));
}

// ---- reductions and scans

static void reductions_take_any_axes(void)
{
    value x, y;
    put(&x, TN_F32, 3, (int64_t[]){ 2, 2, 3 }, LIST(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
    make(&y, TN_F32, 3, (int64_t[]){ 1, 2, 1 });
    RUN(sum, &y, over(5), &x);
    HOLDS(&y, 30, 48);
    RUN(max, &y, over(5), &x);
    HOLDS(&y, 9, 12);
    y.arg.dtype = TN_I64;
    RUN(argmax, &y, over(5), &x);
    HOLDS(&y, 5, 5);
    make(&y, TN_F32, 3, (int64_t[]){ 2, 1, 3 });
    RUN(prod, &y, over(2), &x);
    HOLDS(&y, 4, 10, 18, 70, 88, 108);
    make(&y, TN_F32, 3, x.arg.size);
    RUN(sum, &y, over(0), &x);
    HOLDS(&y, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
}

static void sums_lose_nothing_and_keep_infinities(void)
{
    value    x, y;
    tni_attr all = { .reduce = { .axes = 1 } };
    PUT1(&x, TN_F64, 1, 1e100, 1, -1e100);
    make(&y, TN_F64, 1, (int64_t[]){ 1 });
    RUN(sum, &y, &all, &x);
    HOLDS(&y, 2);
    PUT1(&x, TN_F64, 1, INFINITY, 1);
    RUN(sum, &y, &all, &x);
    HOLDS(&y, INFINITY);
    PUT1(&x, TN_F64, 1, INFINITY, -INFINITY);
    RUN(sum, &y, &all, &x);
    HOLDS(&y, NAN);
    PUT1(&x, TN_U8, 200, 200);
    y.arg.dtype = TN_I64;
    RUN(sum, &y, &all, &x);
    HOLDS(&y, 400);
}

static void an_empty_sum_is_0_and_an_empty_product_1(void)
{
    value x, y;
    make(&x, TN_F32, 2, (int64_t[]){ 2, 0 });
    make(&y, TN_F32, 2, (int64_t[]){ 2, 1 });
    RUN(sum, &y, over(2), &x);
    HOLDS(&y, 0, 0);
    RUN(prod, &y, over(2), &x);
    HOLDS(&y, 1, 1);
}

static void the_first_extremum_counts_and_nan_is_one(void)
{
    value    x, y, i;
    tni_attr a = { .reduce = { .axes = 2 } };
    put(&x, TN_F32, 2, (int64_t[]){ 2, 4 }, LIST(3, 1, 3, 1, 2, NAN, 9, NAN));
    make(&y, TN_F32, 2, (int64_t[]){ 2, 1 });
    make(&i, TN_I64, 2, (int64_t[]){ 2, 1 });
    RUN(max, &y, &a, &x);
    HOLDS(&y, 3, NAN);
    RUN(min, &y, &a, &x);
    HOLDS(&y, 1, NAN);
    RUN(argmax, &i, &a, &x);
    HOLDS(&i, 0, 1);
    RUN(argmin, &i, &a, &x);
    HOLDS(&i, 1, 1);
}

static void scans_run_along_one_axis(void)
{
    value x, y;
    put(&x, TN_F32, 2, (int64_t[]){ 2, 3 }, LIST(1, 2, 3, 4, 5, 6));
    make(&y, TN_F32, 2, x.arg.size);
    RUN(cumsum, &y, along(1), &x);
    HOLDS(&y, 1, 3, 6, 4, 9, 15);
    RUN(cumprod, &y, along(0), &x);
    HOLDS(&y, 1, 2, 3, 4, 10, 18);
    PUT1(&x, TN_BOOL, 1, 1, 0, 1);
    make(&y, TN_I64, 1, x.arg.size);
    RUN(cumsum, &y, along(0), &x);
    HOLDS(&y, 1, 2, 2, 3);
}

// ---- movement

static void copies_write_into_strides(void)
{
    value x, y;
    PUT1(&x, TN_I32, 1, 2, 3);
    put(&y, TN_F32, 1, (int64_t[]){ 6 }, LIST(0, 0, 0, 0, 0, 0));
    y.arg = (tni_arg){ TN_F32, 1, { 3 }, { -2 }, (char *)&y.mem[5] };
    RUN(copy, &y, NULL, &x);
    HOLDS(&y, 0, 3, 0, 2, 0, 1);
}

static void pads_may_crop(void)
{
    value    x, y;
    tni_attr a = { .pad = { .before = { 1, -1 }, .value = 0.5 } };
    put(&x, TN_F32, 2, (int64_t[]){ 2, 3 }, LIST(1, 2, 3, 4, 5, 6));
    make(&y, TN_F32, 2, (int64_t[]){ 3, 3 });
    RUN(pad, &y, &a, &x);
    HOLDS(&y, 0.5, 0.5, 0.5, 2, 3, 0.5, 5, 6, 0.5);
}

static void concat_joins_along_an_axis(void)
{
    value a, b, c, y;
    put(&a, TN_I32, 2, (int64_t[]){ 2, 1 }, LIST(1, 2));
    put(&b, TN_I32, 2, (int64_t[]){ 2, 2 }, LIST(3, 4, 5, 6));
    make(&c, TN_I32, 2, (int64_t[]){ 2, 0 });
    make(&y, TN_I32, 2, (int64_t[]){ 2, 3 });
    RUN(concat, &y, along(1), &a, &c, &b);
    HOLDS(&y, 1, 3, 4, 2, 5, 6);
}

static void gather_counts_negative_indices_from_the_end(void)
{
    value x, i, y;
    put(&x, TN_F32, 2, (int64_t[]){ 2, 3 }, LIST(1, 2, 3, 4, 5, 6));
    put(&i, TN_I64, 2, (int64_t[]){ 2, 2 }, LIST(2, -3, -1, 1));
    make(&y, TN_F32, 2, i.arg.size);
    CHECK_STATUS(RUN(gather, &y, along(1), &x, &i), TN_OK);
    HOLDS(&y, 3, 1, 6, 5);
    put(&i, TN_I32, 2, (int64_t[]){ 1, 3 }, LIST(1, 0, 1));
    make(&y, TN_F32, 2, i.arg.size);
    CHECK_STATUS(RUN(gather, &y, along(0), &x, &i), TN_OK);
    HOLDS(&y, 4, 2, 6);
}

static void an_index_out_of_range_is_an_error(void)
{
    value x, i, v, y;
    put(&x, TN_F32, 2, (int64_t[]){ 1, 5 }, LIST(1, 2, 3, 4, 5));
    put(&i, TN_I64, 2, (int64_t[]){ 1, 1 }, LIST(7));
    put(&v, TN_F32, 2, (int64_t[]){ 1, 1 }, LIST(0));
    make(&y, TN_F32, 2, i.arg.size);
    CHECK_STATUS(RUN(gather, &y, along(1), &x, &i), TN_EARG);
    CHECK_STR(why.s, "gather: index 7 is out of range for size 5 along axis 1");
    i.mem[0] = -6;
    make(&y, TN_F32, 2, x.arg.size);
    CHECK_STATUS(RUN(scatter_add, &y, along(1), &x, &i, &v), TN_EARG);
    CHECK_STR(why.s, "scatter_add: index -6 is out of range for size 5 along axis 1");
}

static void scatter_keeps_the_last_and_scatter_add_adds(void)
{
    value x, i, v, y;
    PUT1(&x, TN_F32, 1, 1, 1);
    PUT1(&i, TN_I64, 2, 0, -1);
    PUT1(&v, TN_F32, 5, 6, 7);
    make(&y, TN_F32, 1, x.arg.size);
    RUN(scatter, &y, along(0), &x, &i, &v);
    HOLDS(&y, 6, 1, 7);
    RUN(scatter_add, &y, along(0), &x, &i, &v);
    HOLDS(&y, 7, 1, 13);
}

static void fold_adds_overlapping_windows(void)
{
    value    x, y;
    tni_attr a = { .view = { .offset = 1, .stride = { 1, 1 } } };
    put(&x, TN_F32, 2, (int64_t[]){ 3, 2 }, LIST(1, 2, 3, 4, 5, 6));
    make(&y, TN_F32, 1, (int64_t[]){ 5 });
    RUN(fold, &y, &a, &x);
    HOLDS(&y, 0, 1, 5, 9, 6);
}

// ---- products, sorting, users' ops

static void matmul_takes_batches_and_strides(void)
{
    value a, b, y;
    put(&a, TN_F32, 3, (int64_t[]){ 2, 1, 2 }, LIST(1, 2, 3, 4));
    put(&b, TN_F32, 2, (int64_t[]){ 2, 2 }, LIST(1, 2, 3, 4));
    b.arg = (tni_arg){ TN_F32, 3, { 2, 2, 2 }, { 0, 1, 2 }, (char *)b.mem };  // both: b transposed
    make(&y, TN_F32, 3, (int64_t[]){ 2, 1, 2 });
    RUN(matmul, &y, NULL, &a, &b);
    HOLDS(&y, 5, 11, 11, 25);
    put(&a, TN_U8, 2, (int64_t[]){ 1, 2 }, LIST(20, 20));
    put(&b, TN_U8, 2, (int64_t[]){ 2, 1 }, LIST(10, 10));
    make(&y, TN_U8, 2, (int64_t[]){ 1, 1 });
    RUN(matmul, &y, NULL, &a, &b);
    HOLDS(&y, 400 - 256);
}

static void convolution_and_its_gradients(void)
{
    value    x, w, y, g;
    tni_attr a = { .conv = { { 2, 1 }, { 1, 0 }, { 1, 1 }, 1, false } };
    put(&x, TN_F32, 4, (int64_t[]){ 1, 1, 3, 3 }, LIST(1, 2, 3, 4, 5, 6, 7, 8, 9));
    put(&w, TN_F32, 4, (int64_t[]){ 1, 1, 2, 2 }, LIST(1, 10, 100, 1000));
    make(&y, TN_F32, 4, (int64_t[]){ 1, 1, 2, 2 });
    RUN(conv, &y, &a, &x, &w);
    HOLDS(&y, 2100, 3200, 8754, 9865);
    put(&y, TN_F32, 4, (int64_t[]){ 1, 1, 2, 2 }, LIST(1, 2, 3, 4));
    make(&g, TN_F32, 4, x.arg.size);
    RUN(conv_dgrad, &g, &a, &y, &w);
    HOLDS(&g, 100, 1200, 2000, 3, 34, 40, 300, 3400, 4000);
    make(&g, TN_F32, 4, w.arg.size);
    RUN(conv_wgrad, &g, &a, &y, &x);
    HOLDS(&g, 32, 39, 5 + 53, 8 + 60);
}

static void convolution_in_groups_and_dilated(void)
{
    value    x, w, y;
    tni_attr a = { .conv = { { 1, 1 }, { 0, 0 }, { 1, 2 }, 2, false } };
    put(&x, TN_F32, 4, (int64_t[]){ 1, 2, 1, 3 }, LIST(1, 2, 3, 4, 5, 6));
    put(&w, TN_F32, 4, (int64_t[]){ 4, 1, 1, 2 }, LIST(1, 0, 0, 1, 1, 1, 2, 0));
    make(&y, TN_F32, 4, (int64_t[]){ 1, 4, 1, 1 });
    RUN(conv, &y, &a, &x, &w);
    HOLDS(&y, 1, 3, 10, 8);
}

static void argsort_is_stable_and_nan_is_the_largest(void)
{
    value    x, y;
    tni_attr up = { .axis = { 0, false } }, down = { .axis = { 0, true } };
    PUT1(&x, TN_F32, 2, NAN, 1, 2, -INFINITY, NAN, 1);
    make(&y, TN_I64, 1, x.arg.size);
    RUN(argsort, &y, &up, &x);
    HOLDS(&y, 4, 2, 6, 0, 3, 1, 5);
    RUN(argsort, &y, &down, &x);
    HOLDS(&y, 1, 5, 0, 3, 2, 6, 4);
    put(&x, TN_I32, 2, (int64_t[]){ 3, 2 }, LIST(3, 1, 1, 2, 2, 3));
    make(&y, TN_I64, 2, x.arg.size);
    RUN(argsort, &y, &up, &x);
    HOLDS(&y, 1, 0, 2, 1, 0, 2);
}

const test_case tests_ref[] = {
    TEST(memory_is_aligned_to_64),
    TEST(every_16_bit_float_survives_the_way_in_and_out),
    TEST(casts_to_16_bits_round_once_to_even),
    TEST(the_prelude_rounds_as_ref_does),
    TEST(only_narrowing_casts_round),
    TEST(floats_cast_to_integers_saturate),
    TEST(integers_cast_to_floats_round_once),
    TEST(integers_cast_to_narrower_ones_wrap),
    TEST(maps_broadcast_and_follow_strides),
    TEST(float_maps_are_those_of_libm_in_double),
    TEST(maximum_and_minimum_propagate_nan),
    TEST(remainders_have_the_sign_of_the_divisor),
    TEST(integers_wrap_after_every_op),
    TEST(powers_of_integers_wrap),
    TEST(shifts_take_any_count),
    TEST(bools_stay_bools),
    TEST(comparisons_give_bools_and_where_chooses),
    TEST(sources_count_in_row_major_order),
    TEST(random_numbers_are_those_of_the_prelude),
    TEST(reductions_take_any_axes),
    TEST(sums_lose_nothing_and_keep_infinities),
    TEST(an_empty_sum_is_0_and_an_empty_product_1),
    TEST(the_first_extremum_counts_and_nan_is_one),
    TEST(scans_run_along_one_axis),
    TEST(copies_write_into_strides),
    TEST(pads_may_crop),
    TEST(concat_joins_along_an_axis),
    TEST(gather_counts_negative_indices_from_the_end),
    TEST(an_index_out_of_range_is_an_error),
    TEST(scatter_keeps_the_last_and_scatter_add_adds),
    TEST(fold_adds_overlapping_windows),
    TEST(matmul_takes_batches_and_strides),
    TEST(convolution_and_its_gradients),
    TEST(convolution_in_groups_and_dilated),
    TEST(argsort_is_stable_and_nan_is_the_largest),
    TEST_END,
};
