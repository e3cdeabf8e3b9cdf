// Tensors from nothing: constants, sequences, random numbers. They are nodes like others and take
// no memory until they are needed; kernels compute them where they are read.
//
// Random numbers are counter-based (Philox): the bits of a number depend only on the seed and its
// counter, not on the device, on threads or on what is fused.
#include "ops/complex.h"

#include <math.h>

// The checks that every function here begins with.
bool tni_can_make(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size)
{
    if (!tni_ctx_ok(cx, op)) return false;
    if (tni_dtype_ok(dt)) return tni_shape_ok(cx, op, rank, size);
    if (tni_is_complex(dt))
        tni_fail(cx, TN_EDTYPE, "%s: %s is not a dtype that it makes", op, tn_dtype_name(dt));
    else tni_fail(cx, TN_EDTYPE, "%s: %d is not a dtype", op, (int)dt);
    return false;
}

// One number everywhere. The value is no part of the plan: tensors of other fills share kernels.
// A complex number is v and an imaginary part of 0.
static tn_tensor *record_full(tn_ctx *cx, const char *op, tn_dtype dt, int rank,
                              const int64_t *size, tni_num v)
{
    if (tni_is_complex(dt)) {
        tn_dtype part = tni_part_dtype(dt);
        int64_t  pairs[TN_MAX_RANK];
        if (!v.f && tni_ctx_ok(cx, op) && tni_rank_ok_of(cx, op, true, rank, size)) {
            for (int i = 0; i < rank; i++) pairs[i] = size[i];
            pairs[rank] = 2;
            return tni_as_complex(record_full(cx, op, part, rank + 1, pairs, v));
        }
        tn_tensor *re = record_full(cx, op, part, rank, size, v);
        tn_tensor *im = re ? record_full(cx, op, part, rank, size, tni_num_i64(0)) : NULL;
        return tni_join_parts(re, im);
    }
    if (!tni_can_make(cx, op, dt, rank, size)) return NULL;
    v = tni_num_as(dt, v);
    return tni_record(cx, TNI_full, dt, rank, size, 0, NULL, &(tni_attr){ .num = v });
}

tn_tensor *tn_full(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, double v)
{
    return record_full(cx, "full", dt, rank, size, tni_num_of(v));
}

tn_tensor *tn_full_i64(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, int64_t v)
{
    return record_full(cx, "full_i64", dt, rank, size, tni_num_i64(v));
}

tn_tensor *tn_zeros(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size)
{
    return record_full(cx, "zeros", dt, rank, size, tni_num_i64(0));
}

tn_tensor *tn_ones(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size)
{
    return record_full(cx, "ones", dt, rank, size, tni_num_i64(1));
}

// The fill for the shape and dtype of x; x itself is not used.
static tn_tensor *record_like(tn_tensor *x, const char *op, tni_num v)
{
    tn_ctx *cx = tni_arg1_any(op, x, "x");
    if (!cx) return NULL;
    tni_view shape = tni_layout(x);
    return record_full(cx, op, tn_dtype_of(x), tni_rank(x), shape.size, v);
}

tn_tensor *tn_full_like(tn_tensor *x, double v)
{
    return record_like(x, "full_like", tni_num_of(v));
}

tn_tensor *tn_full_like_i64(tn_tensor *x, int64_t v)
{
    return record_like(x, "full_like_i64", tni_num_i64(v));
}

tn_tensor *tn_zeros_like(tn_tensor *x)
{
    return record_like(x, "zeros_like", tni_num_i64(0));
}

tn_tensor *tn_ones_like(tn_tensor *x)
{
    return record_like(x, "ones_like", tni_num_i64(1));
}

// A plain number: it takes the dtype of the tensor it meets, which a 0-d tensor of tn_full does
// not.
tn_tensor *tn_scalar(tn_ctx *cx, double v)
{
    return tni_ctx_ok(cx, "scalar") ? tni_number(cx, TN_F32, tni_num_of(v)) : NULL;
}

tn_tensor *tn_scalar_i64(tn_ctx *cx, int64_t v)
{
    return tni_ctx_ok(cx, "scalar_i64") ? tni_number(cx, TN_I64, tni_num_i64(v)) : NULL;
}

// Whether a sequence can have this dtype: bool and storage-only dtypes cannot.
static bool can_count(tn_ctx *cx, const char *op, tn_dtype dt)
{
    if (!tni_can_make(cx, op, dt, 0, NULL) || !tni_want_math_dtype(cx, op, dt)) return false;
    if (dt == TN_BOOL) tni_fail(cx, TN_EDTYPE, "%s: bool is not a supported dtype", op);
    return dt != TN_BOOL;
}

// start + i step. Integers have exact integers of their own beside the doubles.
static tn_tensor *record_iota(tn_ctx *cx, const char *op, tn_dtype dt, int64_t size, tni_num start,
                              tni_num step)
{
    tni_attr a = { .iota = { start.f, step.f, tni_num_as(dt, start).i, step.i } };
    if (!tni_shape_ok(cx, op, 1, &size)) return NULL;
    return tni_record(cx, TNI_iota, dt, 1, &size, 0, NULL, &a);
}

// Beyond 9e15 elements (about 2^53) the count itself would not be exact in double.
tn_tensor *tn_arange(tn_ctx *cx, tn_dtype dt, double start, double stop, double step)
{
    if (!can_count(cx, "arange", dt)) return NULL;
    double n = ceil((stop - start) / step);
    // A NaN among the arguments fails this comparison as well.
    if (step == 0 || !(fabs(n) < 9e15))
        return tni_fail(cx, TN_EARG, "arange: no sequence from %g to %g by %g", start, stop, step);
    return record_iota(cx, "arange", dt, n > 0 ? (int64_t)n : 0, tni_num_of(start),
                       tni_num_of(step));
}

// Differences are taken unsigned, since that of two i64 need not be one.
tn_tensor *tn_arange_i64(tn_ctx *cx, tn_dtype dt, int64_t start, int64_t stop, int64_t step)
{
    if (!can_count(cx, "arange_i64", dt)) return NULL;
    bool     up   = step > 0;
    uint64_t by   = up ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t span = up ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    if (up ? stop <= start : stop >= start) span = 0;
    uint64_t n = step == 0 ? UINT64_MAX : span / by + (span % by != 0);
    if (n > INT64_MAX)
        return tni_fail(cx, TN_EARG, "arange_i64: no sequence from %lld to %lld by %lld",
                        (long long)start, (long long)stop, (long long)step);
    return record_iota(cx, "arange_i64", dt, (int64_t)n, tni_num_i64(start), tni_num_i64(step));
}

// ---- random ------------------------------------------------------------------------------------

// A counter stands for 128 random bits: four 32-bit numbers, or two for doubles. Reserving when
// recording fixes the numbers of each tensor, in whatever order they are computed later.
uint64_t tni_random_reserve(tn_ctx *cx, tn_dtype dt, int64_t count)
{
    uint64_t at = cx->counter, each = dt == TN_F64 ? 2 : 4;
    cx->counter += ((uint64_t)count + each - 1) / each;
    return at;
}

// A tensor whose first axis is no multiple of the items, as a parameter's, is drawn whole, the same
// on all ranks.
uint64_t tni_random_reserve_items(tn_ctx *cx, tn_dtype dt, int64_t count, int64_t rows,
                                  int64_t *shift)
{
    int64_t mine = cx->items.count, each = dt == TN_F64 ? 2 : 4;
    *shift = 0;
    if (!cx->items.total || !mine || rows % mine) return tni_random_reserve(cx, dt, count);
    int64_t  skip = count / mine * cx->items.first;
    uint64_t at   = tni_random_reserve(cx, dt, count / mine * cx->items.total);
    *shift        = skip % each;
    return at + (uint64_t)(skip / each);
}

// Reserves counters and records the op; `op` says which distribution.
static tn_tensor *record_random(tn_ctx *cx, const char *name, int op, tn_dtype dt, int rank,
                                const int64_t *size)
{
    if (!tni_can_make(cx, name, dt, rank, size) || !tni_want_math_dtype(cx, name, dt)) return NULL;
    if (op != TNI_random_bits && !tni_is_float(dt))
        return tni_fail(cx, TN_EDTYPE, "%s: %s is not a float type", name, tn_dtype_name(dt));
    // The seed of the moment: tn_seed afterwards does not change what is recorded.
    tni_attr a = { .random = { cx->seed,
                               tni_random_reserve(cx, dt, tni_shape_count(rank, size)) } };
    return tni_record(cx, op, dt, rank, size, 0, NULL, &a);
}

// The same for a tensor of items. Numbers that begin inside a counter are cut from a longer list.
static tn_tensor *record_items(tn_ctx *cx, const char *name, int op, tn_dtype dt, int rank,
                               const int64_t *size)
{
    if (!cx->items.total || !rank) return record_random(cx, name, op, dt, rank, size);
    if (!tni_can_make(cx, name, dt, rank, size) || !tni_want_math_dtype(cx, name, dt)) return NULL;
    if (!tni_is_float(dt))
        return tni_fail(cx, TN_EDTYPE, "%s: %s is not a float type", name, tn_dtype_name(dt));
    int64_t  count = tni_shape_count(rank, size), shift;
    uint64_t at    = tni_random_reserve_items(cx, dt, count, size[0], &shift);
    tni_attr a     = { .random = { cx->seed, at } };
    if (!shift) return tni_record(cx, op, dt, rank, size, 0, NULL, &a);
    tn_tensor *y = tni_record(cx, op, dt, TN_SHAPE(count + shift), 0, NULL, &a);
    y            = y ? tn_slice(y, 0, shift, count + shift, 1) : NULL;
    return y ? tn_reshape(y, rank, size) : NULL;
}

tn_tensor *tni_rand_items(tn_ctx *cx, const char *op, tn_dtype dt, int rank, const int64_t *size)
{
    return record_items(cx, op, TNI_uniform, dt, rank, size);
}

tn_status tn_random_shard(tn_ctx *cx, int64_t first, int64_t count, int64_t total)
{
    if (!tni_ctx_ok(cx, "random_shard")) return tni_failed();
    if (first < 0 || count < 0 || total < 0 || count > total || first > total - count)
        return tni_fail_status(cx, TN_EARG, "random_shard: items %lld to %lld of %lld",
                               (long long)first, (long long)(first + count), (long long)total);
    cx->items.first = first;
    cx->items.count = count;
    cx->items.total = total;
    return TN_OK;
}

tn_tensor *tn_rand(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size)
{
    return record_random(cx, "rand", TNI_uniform, dt, rank, size);
}

tn_tensor *tn_randn(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size)
{
    return record_random(cx, "randn", TNI_normal, dt, rank, size);
}

// The numbers are new; only shape and dtype are x's.
tn_tensor *tn_rand_like(tn_tensor *x)
{
    if (!tni_arg1("rand_like", x, "x")) return NULL;
    tni_view v = tni_layout(x);
    return record_items(x->cx, "rand_like", TNI_uniform, tn_dtype_of(x), v.rank, v.size);
}

tn_tensor *tn_randn_like(tn_tensor *x)
{
    if (!tni_arg1("randn_like", x, "x")) return NULL;
    tni_view v = tni_layout(x);
    return record_items(x->cx, "randn_like", TNI_normal, tn_dtype_of(x), v.rank, v.size);
}

// An i64 number, exactly; not weak, so that the arithmetic stays in i64.
static tn_tensor *i64_number(tn_ctx *cx, int64_t v)
{
    return tni_record(cx, TNI_scalar, TN_I64, 0, NULL, 0, NULL,
                      &(tni_attr){ .num = tni_num_i64(v) });
}

// 32 random bits times the width of the range, without the low 32 bits: every device's integers
// agree, and the bias is below 2^-32 times the width. Wider ranges take 63 bits and a remainder.
tn_tensor *tn_randint(tn_ctx *cx, tn_dtype dt, int64_t lo, int64_t hi, int rank,
                      const int64_t *size)
{
    if (!tni_can_make(cx, "randint", dt, rank, size)) return NULL;
    if (hi <= lo)
        return tni_fail(cx, TN_EARG, "randint: no integers from %lld to below %lld", (long long)lo,
                        (long long)hi);
    uint64_t   width = (uint64_t)hi - (uint64_t)lo;
    tn_tensor *bits  = record_random(cx, "randint", TNI_random_bits, TN_I64, rank, size);
    tn_tensor *y;
    // Below 2^31 the product of 32 bits and the width stays below 2^63.
    if (width <= UINT32_MAX >> 1) {
        y = tn_shr(tn_mul(bits, i64_number(cx, (int64_t)width)), i64_number(cx, 32));
    } else {
        tn_tensor *high = record_random(cx, "randint", TNI_random_bits, TN_I64, rank, size);
        tn_tensor *top  = tn_shl(tn_shr(high, i64_number(cx, 1)), i64_number(cx, 32));
        tn_tensor *wide = tn_bit_or(top, bits);
        y = width > INT64_MAX ? wide : tn_remainder(wide, i64_number(cx, (int64_t)width));
    }
    return tn_cast(tn_add(y, i64_number(cx, lo)), dt);
}

// The order that sorts 63 random bits each. Equal keys, of which there are none in practice, keep
// their order, so the result is always a permutation.
tn_tensor *tn_randperm(tn_ctx *cx, int64_t n)
{
    if (!tni_can_make(cx, "randperm", TN_I64, 1, &n)) return NULL;
    tn_tensor *low  = record_random(cx, "randperm", TNI_random_bits, TN_I64, 1, &n);
    tn_tensor *high = record_random(cx, "randperm", TNI_random_bits, TN_I64, 1, &n);
    tn_tensor *top  = tn_shl(tn_shr(high, i64_number(cx, 1)), i64_number(cx, 32));
    return tn_argsort(tn_bit_or(top, low), 0, false);
}

// 1 with probability p. No gradient flows to p.
tn_tensor *tn_bernoulli(tn_tensor *p)
{
    tn_ctx *cx = tni_arg1("bernoulli", p, "p");
    if (!cx) return NULL;
    if (!tni_is_float(tn_dtype_of(p)))
        return tni_fail(cx, TN_EDTYPE, "bernoulli: p is %s, not a float type",
                        tn_dtype_name(tn_dtype_of(p)));
    // Drawn in f32 at least, so that small probabilities of 16-bit floats come out right.
    tni_view   v    = tni_layout(p);
    tn_dtype   wide = tn_dtype_of(p) == TN_F64 ? TN_F64 : TN_F32;
    tn_tensor *u    = record_items(cx, "bernoulli", TNI_uniform, wide, v.rank, v.size);
    return tn_cast(tn_lt(u, tn_detach(p)), tn_dtype_of(p));
}
