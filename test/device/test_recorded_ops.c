// test_recorded_ops.c: functions of tenon/arrays.h beside values of PyTorch, which tools/record.py
// wrote.
#include "check.h"
#include "rules_kit.h"

#include <math.h>
#include <stdlib.h>

// Everything of a recording by this name, as doubles. Free it.
static double *recorded(tn_ctx *cx, const char *file, const char *name, int64_t *n)
{
    tn_file   *f = tn_file_open(cx, file);
    tn_tensor *t = tn_file_tensor(f, name);
    double    *v = NULL;
    *n           = t ? tn_count(t) : 0;
    if (t) v = malloc((size_t)*n * sizeof *v);
    if (v && tn_read(t, TN_F64, v, *n) != TN_OK) *n = 0;
    tn_file_free(f);
    return v;
}

// ---- maps --------------------------------------------------------------------------------------

typedef struct {
    const char *name;
    tn_tensor *(*one)(tn_tensor *x);
    tn_tensor *(*two)(tn_tensor *a, tn_tensor *b);
    double least;  // smaller results are differences of numbers of this size
} map_case;

// clang-format off
static const map_case maps[] = {
    { "asin",         tn_asin,    NULL,            0 },
    { "acos",         tn_acos,    NULL,            0 },
    { "sinh",         tn_sinh,    NULL,            0 },
    { "cosh",         tn_cosh,    NULL,            0 },
    { "asinh",        tn_asinh,   NULL,            0 },
    { "acosh",        tn_acosh,   NULL,            0 },
    { "atanh",        tn_atanh,   NULL,            0 },
    { "log10",        tn_log10,   NULL,            0 },
    { "erfinv",       tn_erfinv,  NULL,            0 },
    { "lgamma",       tn_lgamma,  NULL,            8 },
    { "digamma",      tn_digamma, NULL,            8 },
    { "signbit",      tn_signbit, NULL,            0 },
    { "atan2",        NULL,       tn_atan2,        0 },
    { "hypot",        NULL,       tn_hypot,        0 },
    { "logaddexp",    NULL,       tn_logaddexp,    1 },
    { "copysign",     NULL,       tn_copysign,     0 },
    { "nextafter",    NULL,       tn_nextafter,    0 },
    { "fmod",         NULL,       tn_fmod,         0 },
    { "trunc_divide", NULL,       tn_trunc_divide, 0 },
};
// clang-format on

// Zeros, infinities and NaN exactly, other numbers within 4 units in the last place.
static bool is_recorded(tn_dtype dt, double y, double want, double least)
{
    if (isnan(want)) return isnan(y);
    if (dt == TN_F32) want = (double)(float)want, y = (double)(float)y;  // ref has more digits
    if (isinf(want) || isinf(y)) return y == want;
    if (want == 0) return least > 0 ? fabs(y) < 1e-6 : y == 0 && !signbit(y) == !signbit(want);
    int e;
    frexp(fmax(fabs(want), least), &e);
    double unit = dt == TN_F32 ? ldexp(1, e < -125 ? -149 : e - 24) : ldexp(1, e - 53);
    return fabs(y - want) <= 4 * unit;
}

static void check_map(tn_ctx *cx, const map_case *m, tn_dtype dt)
{
    const char *file = TN_SOURCE_DIR "/test/recordings/maps.safetensors";
    tn_scope   *s    = tn_begin(cx);
    int64_t     n, count;
    double     *x = recorded(cx, file, "x", &n), *want = recorded(cx, file, m->name, &count);
    double     *y = malloc((size_t)(n * n) * sizeof *y);
    tn_tensor  *t = tn_cast(tn_from(cx, TN_F64, TN_SHAPE(n), x), dt);
    tn_tensor  *r = m->one ? m->one(t) : m->two(tn_unsqueeze(t, 1), t);
    CHECK_INT(count, m->one ? n : n * n);
    CHECK_STATUS(tn_read(r, TN_F64, y, count), TN_OK);
    for (int64_t i = 0; i < count; i++)
        test_case_result(is_recorded(tn_dtype_of(r), y[i], want[i], m->least),
                         "%s of %g, %g: %.9g, PyTorch %.9g", m->name, x[m->one ? i : i / n],
                         x[m->one ? 0 : i % n], y[i], want[i]);
    free(x), free(want), free(y);
    tn_end(s);
}

// PyTorch computed them in f64, and nextafter, of which the dtype is the point, in f32.
static void maps_are_pytorchs_at_every_end(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
            check_map(cx, &maps[i], TN_F32);
            if (maps[i].two != tn_nextafter) check_map(cx, &maps[i], TN_F64);
        }
}

// Integers become f32, but for divisions, which keep them.
static void maps_promote_integers_as_pytorch(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x   = tn_from(cx, TN_I32, TN_SHAPE(2), (int32_t[]){ -7, 7 });
        tn_tensor *two = tn_full_i64(cx, TN_I32, 0, NULL, 2);
        CHECK(tn_dtype_of(tn_asinh(x)) == TN_F32 && tn_dtype_of(tn_atan2(x, x)) == TN_F32);
        CHECK(tn_dtype_of(tn_copysign(x, x)) == TN_F32);
        CHECK(tn_dtype_of(tn_nextafter(x, x)) == TN_F32 && tn_dtype_of(tn_signbit(x)) == TN_BOOL);
        CHECK(tn_dtype_of(tn_fmod(x, x)) == TN_I32);
        CHECK_VALUES(tn_trunc_divide(x, two), -3, 3);
        CHECK_VALUES(tn_fmod(x, two), -1, 1);
        CHECK_VALUES(tn_signbit(x), 1, 0);
    }
}

// Every number of 16 bits, up and down: floats of one sign are ordered as their bits are, so the
// neighbour has the bits plus or minus 1, but around zero and at infinity.
static void neighbours_in_16_bits_differ_by_a_bit(void)
{
    enum { N = 1 << 16 };
    static uint16_t       bits[N], up[N], down[N];
    static const tn_dtype dtypes[] = { TN_F16, TN_BF16 };
    for (int i = 0; i < N; i++) bits[i] = (uint16_t)i;
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int k = 0; k < 2; k++) {
            tn_tensor *x   = tn_from(cx, dtypes[k], TN_SHAPE(N), bits),
                      *two = tn_full(cx, dtypes[k], TN_0D, INFINITY);
            tn_read(tn_nextafter(x, two), dtypes[k], up, N);
            tn_read(tn_nextafter(x, tn_neg(two)), dtypes[k], down, N);
            int end = k ? 0x7f80 : 0x7c00, wrong = 0;  // the bits of infinity
            for (int i = 0; i <= end; i++) {
                int most = i < end ? i + 1 : end, least = i ? i - 1 : 0x8001;
                wrong += up[i] != most || down[i] != least;
                // The negative number of the same size.
                wrong += down[i | 0x8000] != (most | 0x8000) ||
                         up[i | 0x8000] != (i ? least | 0x8000 : 1);
            }
            for (int i = end + 1; i < 0x8000; i++)
                wrong += (up[i] & 0x7fff) <= end || (down[i] & 0x7fff) <= end;
            test_that(wrong == 0, "%s: %d neighbours are wrong", tn_dtype_name(dtypes[k]), wrong);
        }
}

// The bits of numbers, of the same size and of others, there and back, and of NaN's own.
static void bits_are_viewed_as_other_dtypes(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(2, 2), (float[]){ 1, -2, 0.5f, INFINITY });
        tn_tensor *b = tn_bitcast(tn_mul_s(x, 1), TN_I32);
        CHECK_VALUES(tn_shr(b, tn_full_i64(cx, TN_I32, TN_0D, 23)), 127, -256 + 128, 126, 255);
        CHECK_VALUES(tn_bitcast(tn_add_i64(b, 1 << 23), TN_F32), 2, -4, 1, -0.0);
        tn_tensor *h = tn_bitcast(tn_transpose(x, 0, 1),
                                  TN_U16);  // little-endian: the low half first
        CHECK(tn_size(h, 0) == 2 && tn_size(h, 1) == 4);
        CHECK_VALUES(h, 0, 0x3f80, 0, 0x3f00, 0, 0xc000, 0, 0x7f80);
        CHECK_VALUES(tn_bitcast(h, TN_F32), 1, 0.5, -2, INFINITY);
        CHECK_VALUES(tn_bitcast(tn_select(h, 1, 1), TN_BF16), 1, -2);
        CHECK_VALUES(tn_bitcast(tn_full(cx, TN_F64, TN_SHAPE(1), 1), TN_I64), 0x3ff0000000000000);
        CHECK(!tn_bitcast(tn_slice(h, 1, 0, 3, 1), TN_F32));
        CHECK_FAILED(cx, TN_ESHAPE,
                     "bitcast: the last axis of (2, 3) u16 is not a whole number of f32");
        CHECK(!tn_bitcast(b, TN_BOOL));
        CHECK_FAILED(cx, TN_EDTYPE, "bitcast: i32 to bool");
    }
}

// ---- other functions ---------------------------------------------------------------------------

// Multiples of 1/16 as tools/record.py has them: numbers().
static tn_tensor *numbers(tn_ctx *cx, int rank, const int64_t *size)
{
    double  v[256];
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= size[i];
    for (int64_t i = 0; i < n; i++) v[i] = (double)(i * 37 % 101 - 50) / 16;
    return tn_from(cx, TN_F64, rank, size, v);
}

// x (2, 3, 4), y (2, 4, 3) and z (3, 3).
typedef tn_tensor *array_call(tn_ctx *cx, tn_tensor *x, tn_tensor *y, tn_tensor *z);
#define ARRAY(name, ...)                                                         \
    static tn_tensor *name(tn_ctx *cx, tn_tensor *x, tn_tensor *y, tn_tensor *z) \
    {                                                                            \
        (void)cx, (void)x, (void)y, (void)z;                                     \
        return (__VA_ARGS__);                                                    \
    }
#define LIST(...)                                               \
    sizeof((tn_tensor *[]){ __VA_ARGS__ }) / 8, (tn_tensor *[]) \
    {                                                           \
        __VA_ARGS__                                             \
    }
#define PART(x) tn_select(x, 0, 0)

ARRAY(einsum_0, tn_einsum("bij,bjk->bik", LIST(x, y)))
ARRAY(einsum_1, tn_einsum("bij,bjk", LIST(x, y)))
ARRAY(einsum_2, tn_einsum("...ij,...ji->...", LIST(x, y)))
ARRAY(einsum_3, tn_einsum("ii->i", LIST(z)))
ARRAY(einsum_4, tn_einsum("bij,cji,ij->cb", LIST(x, y, PART(x))))
ARRAY(einsum_5, tn_einsum("bij->j", LIST(x)))
ARRAY(einsum_6, tn_einsum("i...,i...->...i", LIST(x, x)))
ARRAY(einsum_7, tn_einsum(" bij, j -> ib", LIST(x, tn_select(PART(y), 1, 0))))
ARRAY(tensordot, tn_tensordot(x, y, 2, (int[]){ 2, 0 }, (int[]){ 1, 0 }))
ARRAY(outer, tn_outer(PART(z), tn_select(z, 0, 1)))
ARRAY(cross, tn_cross(z, tn_slice(PART(y), 0, 0, 3, 1), 1))
ARRAY(trace, tn_trace(z))
ARRAY(kron, tn_kron(z, tn_slice(tn_slice(PART(y), 0, 0, 2, 1), 1, 0, 2, 1)))
ARRAY(cosine, tn_cosine_similarity(x, tn_flip(x, 0), 2, 1e-8))
ARRAY(tile, tn_tile(z, 3, (int64_t[]){ 2, 1, 2 }))
ARRAY(interleave, tn_repeat_interleave(z, 3, (int64_t[]){ 2, 0, 1 }, 1))
ARRAY(isclose, tn_isclose(x, tn_add_s(x, 0.0625), 0.05, 0, false))

// Numbers of which some are equal, and with NaN in place of the larger ones; places in z.
#define TIES               tn_div_s(tn_floor(tn_mul_s(x, 2)), 4)
#define HOLES              tn_masked_fill(TIES, tn_gt_s(x, 2), NAN)
#define AT                 tn_from(cx, TN_I64, TN_SHAPE(3, 3), (int64_t[]){ 0, 2, 1, 2, 2, 0, 1, 0, 0 })
#define V                  tn_slice(PART(y), 0, 0, 3, 1)
#define I2(a, b)           tn_from(cx, TN_I64, TN_SHAPE(2), (int64_t[]){ a, b })
#define FOLDED(fold, self) tn_scatter_reduce(z, 0, AT, V, TN_FOLD_##fold, self)

// One of the results of tn_unique.
static tn_tensor *unique_part(tn_tensor *x, int which)
{
    tn_tensor *y[3] = { 0 };
    tn_unique(x, &y[0], &y[1], &y[2]);
    return y[which];
}

ARRAY(max, tn_max_indexed(TIES, 2).values)
ARRAY(max_at, tn_max_indexed(TIES, 2).indices)
ARRAY(cummax, tn_cummax(HOLES, 2).values)
ARRAY(cummax_at, tn_cummax(HOLES, 2).indices)
ARRAY(cummin, tn_cummin(TIES, 1).values)
ARRAY(cummin_at, tn_cummin(TIES, 1).indices)
ARRAY(median, tn_median(HOLES, 2).values)
ARRAY(kthvalue, tn_kthvalue(TIES, 2, 1).values)
ARRAY(mode, tn_mode(TIES, 2).values)
ARRAY(mode_at, tn_mode(TIES, 2).indices)
ARRAY(sum_1, FOLDED(SUM, true))
ARRAY(sum_0, FOLDED(SUM, false))
ARRAY(mean_1, FOLDED(MEAN, true))
ARRAY(mean_0, FOLDED(MEAN, false))
ARRAY(prod_1, FOLDED(PROD, true))
ARRAY(prod_0, FOLDED(PROD, false))
ARRAY(amax_1, FOLDED(MAX, true))
ARRAY(amax_0, FOLDED(MAX, false))
ARRAY(amin_1, FOLDED(MIN, true))
ARRAY(amin_0, FOLDED(MIN, false))
ARRAY(quantile, tn_quantile(x, 0.3, 2))
ARRAY(quantile_nan, tn_quantile(HOLES, 0.5, 1))
ARRAY(searched, tn_searchsorted(tn_sort(x, 2, false).values, TIES, false))
ARRAY(searched_right,
      tn_searchsorted(tn_sort(tn_flatten(TIES, 0, -1), 0, false).values, TIES, true))
ARRAY(bincount, tn_bincount(tn_flatten(AT, 0, -1), NULL, 5))
ARRAY(weighed, tn_bincount(tn_flatten(AT, 0, -1), tn_flatten(z, 0, -1), 0))
ARRAY(histogram, tn_histogram(x, 7, -2, 2))
ARRAY(histogram_all, tn_histogram(x, 5, 0, 0))
ARRAY(nonzero, tn_nonzero(TIES))
ARRAY(selected, tn_masked_select(x, tn_gt_s(tn_slice(z, 1, 0, 1, 1), 0)))
ARRAY(unique, unique_part(TIES, 0))
ARRAY(unique_inverse, unique_part(TIES, 1))
ARRAY(unique_counts, unique_part(TIES, 2))
ARRAY(index_add, tn_index_add(z, 1, tn_from(cx, TN_I64, TN_SHAPE(3), (int64_t[]){ 2, 0, 2 }), V))
ARRAY(index_put,
      tn_index_put(x, LIST(I2(1, 0), I2(0, -1)), tn_slice(PART(PART(y)), 0, 0, 1, 1), false))
ARRAY(index_put_add, tn_index_put(z, LIST(AT), V, true))

#define U_IMAGE   numbers(cx, TN_SHAPE(1, 2, 5, 4))
#define THETA     tn_mul_s(numbers(cx, TN_SHAPE(1, 2, 3)), 0.25)
#define ENDS(how) tn_pad_##how(U_IMAGE, (int64_t[]){ 0, 0, 0, 2 }, (int64_t[]){ 0, 0, 3, 1 })
#define SIZED(h, w, ...) \
    tn_interpolate(U_IMAGE, TN_SHAPE(h, w), (tn_interpolate_opts){ __VA_ARGS__ })
#define SAMPLED(...)                                                           \
    tn_grid_sample(U_IMAGE, tn_mul_s(tn_affine_grid(THETA, 3, 4, false), 1.3), \
                   (tn_grid_opts){ __VA_ARGS__ })

ARRAY(reflect, ENDS(reflect))
ARRAY(replicate, ENDS(replicate))
ARRAY(circular, ENDS(circular))
ARRAY(resized_0, SIZED(7, 3, .mode = TN_INTERPOLATE_NEAREST))
ARRAY(resized_1, SIZED(8, 3, .mode = TN_INTERPOLATE_LINEAR))
ARRAY(resized_2, SIZED(8, 3, .mode = TN_INTERPOLATE_LINEAR, .align_corners = true))
ARRAY(resized_3, SIZED(9, 7, .mode = TN_INTERPOLATE_CUBIC))
ARRAY(resized_4, SIZED(3, 6, .mode = TN_INTERPOLATE_CUBIC, .align_corners = true))
ARRAY(resized_5, SIZED(3, 2, .mode = TN_INTERPOLATE_AREA))
ARRAY(resized_6, SIZED(3, 2, .mode = TN_INTERPOLATE_LINEAR, .antialias = true))
ARRAY(resized_7, SIZED(3, 7, .mode = TN_INTERPOLATE_CUBIC, .antialias = true))
ARRAY(scaled, SIZED(6, 2, .mode = TN_INTERPOLATE_LINEAR, .scale = { 1.3, 0.7 }))
ARRAY(resized_line, tn_interpolate(tn_select(U_IMAGE, 0, 0), TN_SHAPE(9),
                                   (tn_interpolate_opts){ .mode = TN_INTERPOLATE_LINEAR }))
ARRAY(affine, tn_affine_grid(THETA, 3, 4, false))
ARRAY(affine_corners, tn_affine_grid(THETA, 3, 4, true))
ARRAY(sampled_0, SAMPLED(.border = TN_BORDER_ZEROS))
ARRAY(sampled_1, SAMPLED(.align_corners = true))
ARRAY(sampled_2, SAMPLED(.border = TN_BORDER_REPLICATE))
ARRAY(sampled_3, SAMPLED(.border = TN_BORDER_REFLECT))
ARRAY(sampled_4, SAMPLED(.border = TN_BORDER_REFLECT, .align_corners = true))
ARRAY(sampled_5, SAMPLED(.nearest = true))
ARRAY(sampled_6, SAMPLED(.cubic = true))
ARRAY(sampled_7, SAMPLED(.cubic = true, .align_corners = true, .border = TN_BORDER_REPLICATE))
ARRAY(sampled_8, SAMPLED(.cubic = true, .border = TN_BORDER_REFLECT))
#define SOLID(...)                                                                             \
    tn_grid_sample(numbers(cx, TN_SHAPE(1, 2, 2, 3, 2)), numbers(cx, TN_SHAPE(1, 2, 1, 3, 3)), \
                   (tn_grid_opts){ __VA_ARGS__ })
ARRAY(solid_0, SOLID(0))
ARRAY(solid_1, SOLID(.border = TN_BORDER_REFLECT, .align_corners = true))
ARRAY(solid_2, SOLID(.nearest = true, .border = TN_BORDER_REPLICATE))
ARRAY(resized_solid, tn_interpolate(numbers(cx, TN_SHAPE(1, 2, 2, 3, 2)), TN_SHAPE(3, 2, 5),
                                    (tn_interpolate_opts){ .mode = TN_INTERPOLATE_LINEAR }))
#define POOL(f, kh, kw, ...) f(U_IMAGE, kh, kw, (tn_pool_opts){ __VA_ARGS__, .ceil_mode = true })
ARRAY(pooled_0, POOL(tn_max_pool2d, 2, 3, .stride = { 2, 2 }))
ARRAY(pooled_1, POOL(tn_max_pool2d, 3, 2, .stride = { 3 }, .padding = { 1 }))
ARRAY(pooled_2, POOL(tn_avg_pool2d, 2, 3, .stride = { 2, 2 }))
ARRAY(pooled_3, POOL(tn_avg_pool2d, 3, 2, .stride = { 3 }, .padding = { 1 }))
ARRAY(pooled_4,
      POOL(tn_avg_pool2d, 3, 2, .stride = { 3 }, .padding = { 1 }, .exclude_padding = true))
ARRAY(pooled_5, POOL(tn_avg_pool2d, 6, 5, .stride = { 2 }))
ARRAY(shuffled, tn_pixel_shuffle(numbers(cx, TN_SHAPE(1, 8, 2, 3)), 2))
ARRAY(unshuffled, tn_pixel_unshuffle(numbers(cx, TN_SHAPE(1, 2, 4, 6)), 2))
ARRAY(unfolded,
      tn_unfold(U_IMAGE, 2, 3,
                (tn_conv_opts){
                    .dilation = { 2, 1 }, .padding = { 1, TN_NO_PADDING }, .stride = { 1, 2 } }))
ARRAY(folded, tn_fold_windows(numbers(cx, TN_SHAPE(1, 12, 6)), 5, 4, 2, 3,
                              (tn_conv_opts){
                                  .dilation = { 2, 1 }, .padding = { 0, 1 }, .stride = { 1, 2 } }))

// ---- losses

#define P      numbers(cx, TN_SHAPE(2, 3))
#define SIGNS  tn_from(cx, TN_F64, TN_SHAPE(2), (double[]){ 1, -1 })
#define CHOSEN tn_from(cx, TN_I64, TN_SHAPE(3), (int64_t[]){ 2, 0, 1 })
#define RIGHT  tn_from(cx, TN_F64, TN_SHAPE(2, 3), (double[]){ 1, 0, 0.25, 0, 1, 1 })
#define SCORES numbers(cx, TN_SHAPE(3, 4))
#define REDUCED(name, by)                                                                       \
    ARRAY(ranking_##name, tn_margin_ranking(P, tn_flip(P, 1), tn_unsqueeze(SIGNS, 1),           \
                                            (tn_margin_opts){ .margin = 0.5, .reduce = by }))   \
    ARRAY(cosines_##name, tn_cosine_embedding(P, tn_flip(P, 1), SIGNS,                          \
                                              (tn_margin_opts){ .margin = 0.1, .reduce = by })) \
    ARRAY(triplet_##name,                                                                       \
          tn_triplet_margin(P, tn_flip(P, 1), tn_flip(P, 0), (tn_margin_opts){ .reduce = by })) \
    ARRAY(margins_##name,                                                                       \
          tn_multi_margin(SCORES, CHOSEN,                                                       \
                          (tn_margin_opts){ .margin = 0.7, .p = 2, .reduce = by }))             \
    ARRAY(gaussian_##name,                                                                      \
          tn_gaussian_nll(P, tn_flip(P, 1), tn_square(tn_flip(P, 0)),                           \
                          (tn_gaussian_opts){ .full = true, .eps = 0.3, .reduce = by }))
REDUCED(mean, TN_REDUCTION_MEAN)
REDUCED(sum, TN_REDUCTION_SUM)
REDUCED(none, TN_REDUCTION_NONE)
ARRAY(triplet_swap, tn_triplet_margin(P, tn_flip(P, 1), tn_flip(P, 0),
                                      (tn_margin_opts){ .margin = 0.4, .p = 3, .swap = true }))
ARRAY(margins_1, tn_multi_margin(SCORES, CHOSEN, (tn_margin_opts){ 0 }))
ARRAY(focal, tn_focal(P, RIGHT, (tn_focal_opts){ 0 }))
ARRAY(focal_1,
      tn_focal(P, RIGHT, (tn_focal_opts){ .alpha = -1, .gamma = 1.5, .reduce = TN_REDUCTION_SUM }))

// Complex numbers of x and y, shown as pairs.
#define CX_X                tn_view_as_complex(tn_reshape(x, TN_SHAPE(4, 3, 2)))
#define CX_Y                tn_view_as_complex(tn_flip(tn_reshape(tn_mul_s(y, 2), TN_SHAPE(3, 4, 2)), 2))
#define OF_COMPLEX(name, f) ARRAY(complex_##name, tn_view_as_real(f))
OF_COMPLEX(exp, tn_exp(CX_X))
OF_COMPLEX(log, tn_log(CX_X))
OF_COMPLEX(sqrt, tn_sqrt(CX_X))
OF_COMPLEX(sin, tn_sin(CX_X))
OF_COMPLEX(cos, tn_cos(CX_X))
OF_COMPLEX(sinh, tn_sinh(CX_X))
OF_COMPLEX(cosh, tn_cosh(CX_X))
OF_COMPLEX(tanh, tn_tanh(CX_X))
OF_COMPLEX(reciprocal, tn_reciprocal(CX_X))
OF_COMPLEX(matmul, tn_matmul(CX_X, CX_Y))
OF_COMPLEX(pow, tn_pow(CX_X, tn_conj(CX_X)))
OF_COMPLEX(pow_s, tn_pow_s(CX_X, 1.5))
OF_COMPLEX(quotient, tn_div(CX_X, tn_transpose(CX_Y, 0, 1)))
OF_COMPLEX(mean, tn_mean(CX_X, 0))
OF_COMPLEX(sum, tn_sum_all(CX_X))
#define SIGNAL           numbers(cx, TN_SHAPE(2, 24))
#define FOURIER(name, f) ARRAY(fourier_##name, tn_view_as_real(f))
FOURIER(stft, tn_stft(SIGNAL, 8,
                      (tn_stft_opts){
                          .hop = 3, .win = 6, .window = tn_hann_window(cx, TN_F64, 6, false) }))
FOURIER(stft_two,
        tn_stft(SIGNAL, 8,
                (tn_stft_opts){ .no_center = true, .normalized = true, .two_sided = true }))
FOURIER(fftn, tn_fftn(CX_X, 2, (int64_t[]){ 6, 2 }, NULL, TN_FFT_ORTHO))
FOURIER(ifft, tn_ifft(CX_X, 7, 0, TN_FFT_BACKWARD))
FOURIER(ihfft, tn_ihfft(SIGNAL, 9, -1, TN_FFT_BACKWARD))
FOURIER(rfft2, tn_rfft2(SIGNAL, NULL, TN_FFT_FORWARD))
FOURIER(shift, tn_fftshift(tn_ifftshift(CX_X, 1, (int[]){ 0 }), 0, NULL))
ARRAY(fourier_hfft, tn_hfft(CX_X, 7, 1, TN_FFT_BACKWARD))
ARRAY(fourier_irfft2, tn_irfft2(CX_X, (int64_t[]){ 4, 5 }, TN_FFT_BACKWARD))
ARRAY(fourier_freq, tn_fftfreq(cx, TN_F64, 7, 0.5))
ARRAY(fourier_rfreq, tn_rfftfreq(cx, TN_F64, 8, 1))
ARRAY(fourier_hamming, tn_hamming_window(cx, TN_F64, 5, false))
ARRAY(fourier_istft,
      tn_istft(tn_view_as_complex(numbers(cx, TN_SHAPE(5, 8, 2))), 8,
               (tn_stft_opts){ .hop = 2, .window = tn_hann_window(cx, TN_F64, 8, false) }))
ARRAY(complex_angle, tn_angle(CX_X))
ARRAY(complex_equal, tn_eq(CX_X, tn_flip(CX_X, 0)))
// ---- linear algebra

#define TALL         tn_mul_s(numbers(cx, TN_SHAPE(2, 4, 3)), 0.5)
#define SQUARE       tn_add(numbers(cx, TN_SHAPE(3, 3)), tn_mul_s(tn_eye(cx, TN_F64, 3, 3), 2))
#define ONES         tn_ones(cx, TN_F64, TN_SHAPE(3, 3))
#define RIGHTS       numbers(cx, TN_SHAPE(2, 3, 4))
#define EACH(n, ...) tn_stack(n, (tn_tensor *const[]){ __VA_ARGS__ }, 0)

// x' x + 1 of TALL.
static tn_tensor *symmetric(tn_ctx *cx)
{
    tn_tensor *x = TALL;
    return tn_add(tn_matmul(tn_transpose(x, 1, 2), x), tn_eye(cx, TN_F64, 3, 3));
}
// Vectors with the largest element of each positive, along an axis.
static tn_tensor *signs(tn_tensor *v, int axis)
{
    return tn_mul(v, tn_sign(tn_gather(v, axis, tn_argmax_keep(tn_abs(v), axis))));
}
// One of several tensors that a function writes; the others are left.
static tn_tensor *written(tn_status s, tn_tensor *y)
{
    return s == TN_OK ? y : NULL;
}
#define WRITTEN(name, which, ...)                                                \
    static tn_tensor *name(tn_ctx *cx, tn_tensor *x, tn_tensor *y, tn_tensor *z) \
    {                                                                            \
        tn_tensor *r[3] = { NULL };                                              \
        tn_status  s    = __VA_ARGS__;                                           \
        (void)cx, (void)x, (void)y, (void)z;                                     \
        return written(s, which);                                                \
    }
// The first of x' x + 1, and a diagonal with a negative element.
static tn_tensor *indefinite(tn_ctx *cx)
{
    tn_tensor *d = tn_mul(tn_eye(cx, TN_F64, 3, 3),
                          tn_from(cx, TN_F64, TN_SHAPE(3), (double[]){ 1, -2, 3 }));
    return EACH(2, tn_select(symmetric(cx), 0, 0), d);
}
ARRAY(cholesky, tn_cholesky(symmetric(cx), false))
ARRAY(cholesky_upper, tn_cholesky(symmetric(cx), true))
WRITTEN(cholesky_info, r[1], tn_cholesky_ex(indefinite(cx), false, &r[0], &r[1]))
ARRAY(solve, tn_solve(symmetric(cx), RIGHTS))
ARRAY(solve_vector, tn_solve(SQUARE, tn_select(tn_select(RIGHTS, 0, 0), 1, 0)))
WRITTEN(solve_info, r[1], tn_solve_ex(ONES, ONES, &r[0], &r[1]))
ARRAY(solve_triangle, tn_solve_triangular(symmetric(cx), RIGHTS, true, false))
ARRAY(inverse, tn_inv(symmetric(cx)))
ARRAY(det, tn_det(symmetric(cx)))
ARRAY(det_0, tn_det(ONES))
WRITTEN(slogdet, tn_stack(2, r, 0), tn_slogdet(tn_neg(symmetric(cx)), &r[0], &r[1]))
WRITTEN(slogdet_0, tn_stack(2, r, 0),
        tn_slogdet(tn_zeros(cx, TN_F64, TN_SHAPE(3, 3)), &r[0], &r[1]))
WRITTEN(qr_q, r[0], tn_qr(TALL, false, &r[0], &r[1]))
WRITTEN(qr_r, r[1], tn_qr(TALL, false, &r[0], &r[1]))
WRITTEN(qr_complete, r[1], tn_qr(TALL, true, &r[0], &r[1]))
WRITTEN(qr_wide, r[1], tn_qr(RIGHTS, false, &r[0], &r[1]))
WRITTEN(eigh, r[0], tn_eigh(symmetric(cx), false, &r[0], &r[1]))
WRITTEN(eigh_v, signs(r[1], -2), tn_eigh(symmetric(cx), false, &r[0], &r[1]))
WRITTEN(svd, r[1], tn_svd(TALL, false, &r[0], &r[1], &r[2]))
WRITTEN(svd_u, signs(r[0], -2), tn_svd(TALL, false, &r[0], &r[1], &r[2]))
WRITTEN(svd_v, signs(r[2], -1), tn_svd(TALL, false, &r[0], &r[1], &r[2]))
ARRAY(svdvals, tn_svdvals(RIGHTS))
ARRAY(lstsq, tn_lstsq(TALL, tn_slice(tn_transpose(RIGHTS, 1, 2), 2, 0, 2, 1)))
ARRAY(pinv, tn_pinv(TALL, 0))
ARRAY(pinv_1, tn_pinv(ONES, 0))
ARRAY(rank, tn_matrix_rank(EACH(3, SQUARE, ONES, tn_zeros(cx, TN_F64, TN_SHAPE(3, 3))), 0))
ARRAY(power, tn_matrix_power(SQUARE, -2))
#define NORM(kind) tn_matrix_norm(SQUARE, TN_NORM_##kind)
ARRAY(norms, EACH(8, NORM(FRO), NORM(NUC), NORM(1), NORM(INF), NORM(2), NORM(MINUS_1),
                  NORM(MINUS_INF), NORM(MINUS_2)))
#define LENGTH(p) tn_vector_norm(tn_select(TALL, 0, 0), p, 0, NULL, false)
ARRAY(vector_norms, EACH(5, LENGTH(0), LENGTH(1), LENGTH(3), LENGTH(INFINITY), LENGTH(-INFINITY)))
ARRAY(cond,
      EACH(3, tn_cond(SQUARE, TN_NORM_2), tn_cond(SQUARE, TN_NORM_FRO), tn_cond(SQUARE, TN_NORM_1)))
static tn_tensor *sparse(tn_ctx *cx, tn_tensor *x, tn_tensor *y, tn_tensor *z)
{
    tn_sparse a;
    (void)x, (void)y, (void)z;
    if (tn_sparse_from_dense(tn_select(TALL, 0, 0), &a) != TN_OK) return NULL;
    return tn_sparse_matmul(a, tn_select(RIGHTS, 0, 0));
}

static const struct {
    const char *name;
    array_call *call;
} arrays[] = {
    { "cholesky", cholesky },
    { "cholesky upper", cholesky_upper },
    { "cholesky info", cholesky_info },
    { "solve", solve },
    { "solve vector", solve_vector },
    { "solve info", solve_info },
    { "solve triangle", solve_triangle },
    { "inverse", inverse },
    { "det", det },
    { "det 0", det_0 },
    { "slogdet", slogdet },
    { "slogdet 0", slogdet_0 },
    { "qr q", qr_q },
    { "qr r", qr_r },
    { "qr complete", qr_complete },
    { "qr wide", qr_wide },
    { "eigh", eigh },
    { "eigh v", eigh_v },
    { "svd", svd },
    { "svd u", svd_u },
    { "svd v", svd_v },
    { "svdvals", svdvals },
    { "lstsq", lstsq },
    { "pinv", pinv },
    { "pinv 1", pinv_1 },
    { "rank", rank },
    { "power", power },
    { "norms", norms },
    { "vector norms", vector_norms },
    { "cond", cond },
    { "sparse", sparse },
    { "ranking mean", ranking_mean },
    { "ranking sum", ranking_sum },
    { "ranking none", ranking_none },
    { "cosines mean", cosines_mean },
    { "cosines sum", cosines_sum },
    { "cosines none", cosines_none },
    { "triplet mean", triplet_mean },
    { "triplet sum", triplet_sum },
    { "triplet none", triplet_none },
    { "margins mean", margins_mean },
    { "margins sum", margins_sum },
    { "margins none", margins_none },
    { "gaussian mean", gaussian_mean },
    { "gaussian sum", gaussian_sum },
    { "gaussian none", gaussian_none },
    { "triplet swap", triplet_swap },
    { "margins 1", margins_1 },
    { "focal", focal },
    { "focal 1.5", focal_1 },
    { "reflect", reflect },
    { "replicate", replicate },
    { "circular", circular },
    { "resized 0", resized_0 },
    { "resized 1", resized_1 },
    { "resized 2", resized_2 },
    { "resized 3", resized_3 },
    { "resized 4", resized_4 },
    { "resized 5", resized_5 },
    { "resized 6", resized_6 },
    { "resized 7", resized_7 },
    { "scaled", scaled },
    { "resized line", resized_line },
    { "affine", affine },
    { "affine corners", affine_corners },
    { "sampled 0", sampled_0 },
    { "sampled 1", sampled_1 },
    { "sampled 2", sampled_2 },
    { "sampled 3", sampled_3 },
    { "sampled 4", sampled_4 },
    { "sampled 5", sampled_5 },
    { "sampled 6", sampled_6 },
    { "sampled 7", sampled_7 },
    { "sampled 8", sampled_8 },
    { "solid 0", solid_0 },
    { "solid 1", solid_1 },
    { "solid 2", solid_2 },
    { "resized solid", resized_solid },
    { "pooled 0", pooled_0 },
    { "pooled 1", pooled_1 },
    { "pooled 2", pooled_2 },
    { "pooled 3", pooled_3 },
    { "pooled 4", pooled_4 },
    { "pooled 5", pooled_5 },
    { "shuffled", shuffled },
    { "unshuffled", unshuffled },
    { "unfolded", unfolded },
    { "folded", folded },
    { "max", max },
    { "max at", max_at },
    { "cummax", cummax },
    { "cummax at", cummax_at },
    { "cummin", cummin },
    { "cummin at", cummin_at },
    { "median", median },
    { "kthvalue", kthvalue },
    { "mode", mode },
    { "mode at", mode_at },
    { "sum 1", sum_1 },
    { "sum 0", sum_0 },
    { "mean 1", mean_1 },
    { "mean 0", mean_0 },
    { "prod 1", prod_1 },
    { "prod 0", prod_0 },
    { "amax 1", amax_1 },
    { "amax 0", amax_0 },
    { "amin 1", amin_1 },
    { "amin 0", amin_0 },
    { "quantile", quantile },
    { "quantile nan", quantile_nan },
    { "searched", searched },
    { "searched right", searched_right },
    { "bincount", bincount },
    { "weighed", weighed },
    { "histogram", histogram },
    { "histogram all", histogram_all },
    { "nonzero", nonzero },
    { "selected", selected },
    { "unique", unique },
    { "unique inverse", unique_inverse },
    { "unique counts", unique_counts },
    { "index_add", index_add },
    { "index_put", index_put },
    { "index_put add", index_put_add },
    { "einsum 0", einsum_0 },
    { "einsum 1", einsum_1 },
    { "einsum 2", einsum_2 },
    { "einsum 3", einsum_3 },
    { "einsum 4", einsum_4 },
    { "einsum 5", einsum_5 },
    { "einsum 6", einsum_6 },
    { "einsum 7", einsum_7 },
    { "tensordot", tensordot },
    { "outer", outer },
    { "cross", cross },
    { "trace", trace },
    { "kron", kron },
    { "cosine", cosine },
    { "tile", tile },
    { "isclose", isclose },
    { "interleave", interleave },
    { "complex exp", complex_exp },
    { "complex log", complex_log },
    { "complex sqrt", complex_sqrt },
    { "complex sin", complex_sin },
    { "complex cos", complex_cos },
    { "complex sinh", complex_sinh },
    { "complex cosh", complex_cosh },
    { "complex tanh", complex_tanh },
    { "complex reciprocal", complex_reciprocal },
    { "complex matmul", complex_matmul },
    { "complex pow", complex_pow },
    { "complex pow 1.5", complex_pow_s },
    { "complex quotient", complex_quotient },
    { "complex mean", complex_mean },
    { "complex sum", complex_sum },
    { "complex angle", complex_angle },
    { "complex equal", complex_equal },
    { "fourier stft", fourier_stft },
    { "fourier stft two-sided", fourier_stft_two },
    { "fourier istft", fourier_istft },
    { "fourier fftn", fourier_fftn },
    { "fourier ifft", fourier_ifft },
    { "fourier ihfft", fourier_ihfft },
    { "fourier hfft", fourier_hfft },
    { "fourier rfft2", fourier_rfft2 },
    { "fourier irfft2", fourier_irfft2 },
    { "fourier fftshift", fourier_shift },
    { "fourier freq", fourier_freq },
    { "fourier rfreq", fourier_rfreq },
    { "fourier hamming", fourier_hamming },
};

static void check_array(tn_ctx *cx, const char *name, array_call *call)
{
    const char *file = TN_SOURCE_DIR "/test/recordings/arrays.safetensors";
    tn_scope   *s    = tn_begin(cx);
    tn_tensor  *x = numbers(cx, TN_SHAPE(2, 3, 4)), *y = numbers(cx, TN_SHAPE(2, 4, 3));
    tn_tensor  *r = call(cx, x, tn_mul_s(y, 0.5), numbers(cx, TN_SHAPE(3, 3)));
    int64_t     n;
    double     *want = recorded(cx, file, name, &n), *have = malloc((size_t)(n + 1) * sizeof *have);
    if (CHECK_INT(tn_count(r), n) && CHECK_STATUS(tn_read(r, TN_F64, have, n), TN_OK))
        for (int64_t i = 0; i < n; i++)
            test_case_result(fabs(have[i] - want[i]) <= 1e-12 * fmax(1, fabs(want[i])) ||
                                 (isnan(have[i]) && isnan(want[i])) || have[i] == want[i],
                             "%s [%d]: %.9g, PyTorch %.9g", name, (int)i, have[i], want[i]);
    free(want), free(have);
    tn_end(s);
}

static void functions_of_arrays_are_pytorchs(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
            check_array(cx, arrays[i].name, arrays[i].call);
}

// One of NumPy's results for numbers whose parts are 0, infinite, NaN, or too large to be squared.
static void check_ends(tn_ctx *cx, const char *name, tn_tensor *y)
{
    int64_t n, count = tn_count(y);
    double *want = recorded(cx, TN_SOURCE_DIR "/test/recordings/arrays.safetensors", name, &n);
    double *have = malloc((size_t)(n + 1) * sizeof *have);
    if (CHECK_INT(count, n) && CHECK_STATUS(tn_read(y, TN_F64, have, n), TN_OK))
        for (int64_t i = 0; i < n; i++)
            test_case_result(isnan(want[i])   ? isnan(have[i])
                             : isinf(want[i]) ? have[i] == want[i]
                                              : fabs(have[i] - want[i]) <= 1e-15 * fabs(want[i]),
                             "%s [%d]: %.9g, NumPy %.9g", name, (int)i, have[i], want[i]);
    free(want), free(have);
}

static void complex_arithmetic_is_numpys_at_every_end(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        int64_t    n;
        double    *at = recorded(cx, TN_SOURCE_DIR "/test/recordings/arrays.safetensors",
                                 "complex grid", &n);
        tn_tensor *b = tn_from(cx, TN_C128, TN_SHAPE(n / 2), at), *a = tn_unsqueeze(b, 1);
        free(at);
        check_ends(cx, "complex mul", tn_view_as_real(tn_mul(a, b)));
        check_ends(cx, "complex div", tn_view_as_real(tn_div(a, b)));
        check_ends(cx, "complex abs", tn_abs(b));
    }
}

static void einsum_says_what_is_wrong(void)
{
    static const struct {
        const char *equation, *says;
    } cases[] = {
        { "ij,jk->il", "names an axis of no operand" },
        { "ij,jk->ii", "names an axis twice" },
        { "ij->i", "more operands than terms" },
        { "ij,jk,kl->il", "more terms than operands" },
        { "ijk,jk->i", "an operand (2, 3) has 3 labels" },
        { "ij,ij->i", "an axis has 2 and, in (3, 4), 3 elements" },
        { "i1,jk->i", "labels are letters" },
        { "ij,jk->i,k", "behind it no comma" },
    };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            tn_tensor *x[] = { tn_zeros(cx, TN_F32, TN_SHAPE(2, 3)),
                               tn_zeros(cx, TN_F32, TN_SHAPE(3, 4)) };
            CHECK(!tn_einsum(cases[i].equation, 2, x));
            CHECK_FAILED2(cx, tn_error(cx), cases[i].equation, cases[i].says);
        }
}

const test_case tests_recorded_ops[] = {
    TEST(functions_of_arrays_are_pytorchs),
    TEST(complex_arithmetic_is_numpys_at_every_end),
    TEST(einsum_says_what_is_wrong),
    TEST(maps_are_pytorchs_at_every_end),
    TEST(maps_promote_integers_as_pytorch),
    TEST(bits_are_viewed_as_other_dtypes),
    TEST(neighbours_in_16_bits_differ_by_a_bit),
    TEST_END,
};
