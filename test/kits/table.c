// table.c: random inputs in all layouts, and what it means that two devices agree.
#include "skeleton.h"
#include "table.h"

#include "kernel/prelude.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const layout_names[LAYOUTS] = { "plain",     "transposed", "stepped", "flipped",
                                            "broadcast", "windowed",   "empty",   "0-d" };

// ---- dtypes ------------------------------------------------------------------------------------

#define PUT_MATH(id) TN_##id,
#define PUT_STORE(id)
#define FLOAT_BOOL(put)
#define FLOAT_UNSIGNED(put)
#define FLOAT_SIGNED(put)
#define FLOAT_FLOAT(put) put
const tn_dtype all_dtypes[DTYPES] = {
// clang-format off
#define DTYPE(id, name, class, held, in, host, kernel, stem, digits, low, past, high, user, \
              safetensors, npy, use) PUT_##use(id)
#include "tensor/dtype.def"
    // clang-format on
};
const tn_dtype all_floats[FLOATS] = {
// clang-format off
#define DTYPE(id, name, class, held, in, host, kernel, stem, digits, low, past, high, user, \
              safetensors, npy, use) FLOAT_##class(PUT_##use(id))
#include "tensor/dtype.def"
    // clang-format on
};

// ---- random elements ---------------------------------------------------------------------------

static uint64_t sequence, drawn;

void table_seed(uint32_t seed)
{
    sequence = seed;
    drawn    = 0;
}

uint32_t draw(void)
{
    return m_rand_bits(sequence, 0, drawn++);
}

int64_t draw_below(int64_t n)
{
    return (int64_t)(draw() % (uint32_t)n);
}

// From 0 up to below 1.
static double draw_unit(void)
{
    return (double)draw() / 4294967296.0;
}

static double draw_wild(void)
{
    static const double odd[] = { 0.0,    -0.0, 1.0,   -1.0,    0.5,      2.0,     -3.0,
                                  6e4,    -3e4, 1e-7,  -6e-8,   3e-5,     1e-40,   -2e-45,
                                  1e-310, 3e38, -1e38, 1e300,   -1e-300,  255,     -128,
                                  65504,  0.1,  88.7,  -103.97, 16777216, 0.99999, 32768 };
    int64_t             pick  = draw_below(96);
    if (pick < (int64_t)(sizeof odd / sizeof *odd)) return odd[pick];
    if (pick < 32) return pick == 28 ? NAN : pick == 30 ? -INFINITY : INFINITY;
    double v = (draw_unit() - 0.5) * (pick < 60 ? 8 : 60);
    return pick > 90 ? v * 1000 : v;
}

static double draw_float(mood m, int64_t i)
{
    switch (m) {
    case WILD: return draw_wild();
    case ODD: {
        int64_t pick = draw_below(400);
        if (pick < 3) return pick == 0 ? NAN : pick == 1 ? INFINITY : -INFINITY;
        break;
    }
    case POSITIVE: return 0.3 + 1.7 * draw_unit();
    case UNIT: return 0.1 + 0.8 * draw_unit();
    case ZEROS:
        if (i % 3 == 1) return 0;
        // fall through
    case APART: {
        // Steps of 0.019 in a scrambled order, moved a little each.
        double v = (double)((i * 37 + 11) % 97) * 0.019 + 0.12 + 0.004 * draw_unit();
        return draw() & 1 ? v : -v;
    }
    default: break;
    }
    return (draw_unit() - 0.5) * 8;
}

static int64_t draw_int(mood m)
{
    static const int64_t odd[] = { 0,   1,    -1,        2,         127,       128,      255,
                                   256, -128, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN };
    if (m == SHIFTS) return draw_below(73) - 2;
    if (m != WILD) return draw_below(41) - 20;
    uint32_t pick = draw() % 32;
    if (pick < sizeof odd / sizeof *odd) return odd[pick];
    if (pick < 20) return (int64_t)((uint64_t)draw() << 32 | draw());
    return draw_below(41) - 20;
}

// ---- inputs ------------------------------------------------------------------------------------

// The shape of the store that the layout needs.
static void lay_base(input *in)
{
    int r         = in->rank;
    in->base_rank = r;
    memcpy(in->base, in->size, sizeof in->base);
    if (in->lay == TRANSPOSED && r >= 2) {
        in->base[r - 1] = in->size[r - 2];
        in->base[r - 2] = in->size[r - 1];
    } else if (in->lay == STEPPED && r >= 1) {
        in->base[r - 1] = 2 * in->size[r - 1] + 1;
        in->base[0] += 2;
    } else if (in->lay == BROADCAST && r >= 1) {
        in->base[0] = 1;
    } else if (in->lay == WINDOWED && r >= 2) {
        in->base_rank   = r - 1;
        in->base[r - 2] = in->size[r - 2] + in->size[r - 1] - 1;
    }
}

input input_make(tn_dtype dt, layout lay, int rank, const int64_t *size, mood m)
{
    input in = { .dtype = dt, .lay = lay, .rank = lay == ZERO_D ? 0 : rank };
    if (in.rank) memcpy(in.size, size, (size_t)rank * sizeof *size);
    if (lay == EMPTY && in.rank) in.size[0] = 0;
    lay_base(&in);
    int64_t count = 1;
    for (int i = 0; i < in.base_rank; i++) count *= in.base[i];
    in.data = malloc((size_t)(count + 1) * 8);
    for (int64_t i = 0; in.data && i < count; i++)
        host_put(dt, in.data, i, draw_float(m, i), draw_int(m));
    return in;
}

void input_free(input *in)
{
    free(in->data);
    in->data = NULL;
}

tn_tensor *input_base(const input *in, tn_ctx *cx)
{
    return tn_from(cx, in->dtype, in->base_rank, in->base, in->data);
}

tn_tensor *input_put(const input *in, tn_ctx *cx)
{
    return input_view(in, input_base(in, cx));
}

tn_tensor *input_view(const input *in, tn_tensor *x)
{
    int r = in->rank;
    if (in->lay == TRANSPOSED && r >= 2) return tn_transpose(x, -1, -2);
    if (in->lay == BROADCAST && r >= 1) return tn_expand(x, r, in->size);
    if (in->lay == WINDOWED && r >= 2) return tn_window(x, -1, in->size[r - 1], 1);
    if (in->lay == STEPPED && r == 1) return tn_slice(x, 0, 3, 3 + 2 * in->size[0], 2);
    if (in->lay == STEPPED && r >= 2)
        return tn_slice(tn_slice(x, -1, 1, TN_TO_END, 2), 0, 1, 1 + in->size[0], 1);
    for (int i = 0; in->lay == FLIPPED && i < r; i++) x = tn_flip(x, i);
    return x;
}

// ---- comparing ---------------------------------------------------------------------------------

typedef struct {
    int digits, lowest, highest;  // of the fraction; exponents of the normal numbers
} float_format;

static float_format format_of(tn_dtype dt)
{
    switch (dt) {
    case TN_F16: return (float_format){ 10, -14, 15 };
    case TN_BF16: return (float_format){ 7, -126, 127 };
    case TN_F32: return (float_format){ 23, -126, 127 };
    default: return (float_format){ 52, -1022, 1023 };
    }
}

double dtype_ulp(tn_dtype dt, double v)
{
    float_format f = format_of(dt);
    int          e = f.lowest;
    if (v != 0 && isfinite(v)) {
        frexp(v, &e);
        e--;
    }
    if (e < f.lowest) e = f.lowest;
    if (e > f.highest) e = f.highest;
    return ldexp(1, e - f.digits);
}

// Infinity stands for the number after the largest.
static double finite_of(tn_dtype dt, double v)
{
    return isinf(v) ? copysign(ldexp(1, format_of(dt).highest), v) * 2 : v;
}

static bool within_ulps(tn_dtype dt, double y, double want, double ulps)
{
    if (y == want || dt == TN_F64) {
        if (y == want || isinf(y) || isinf(want)) return y == want;
        return fabs(y - want) <= ulps * dtype_ulp(dt, want);
    }
    double top = ldexp(1, format_of(dt).highest) * 2;
    if (fabs(want) > top) want = copysign(top, want);
    return fabs(finite_of(dt, y) - want) <= ulps * dtype_ulp(dt, want);
}

double close_tolerance(tn_dtype dt, double v, double most, int steps)
{
    double rtol = dt == TN_F64 ? 1e-12 : dt == TN_F32 ? 1.3e-6 : dt == TN_F16 ? 1e-3 : 1.6e-2;
    double atol = dt == TN_F64 ? 1e-12 : 1e-5;
    bool   half = dt == TN_F16 || dt == TN_BF16;
    double more = half && steps > 1 ? (steps - 1) * dtype_ulp(dt, most) : 0;
    return rtol * fabs(v) + atol + more;
}

static bool is_half(tn_dtype dt)
{
    return dt == TN_F16 || dt == TN_BF16;
}

// Whether one float agrees with the reference.
static bool float_agrees(tn_dtype dt, double y, double want, const tolerance *t, double bound,
                         double most)
{
    if (isnan(y) || isnan(want)) return isnan(y) && isnan(want);
    switch (t->how) {
    case EXACT: return y == want && (y != 0 || !signbit(y) == !signbit(want));
    case VALUE: return y == want;
    case ULPS:
        if (want == 0 && y == 0) return !signbit(y) == !signbit(want);
        return within_ulps(dt, y, want, is_half(dt) ? 0.51 : 4);
    case SUMS: {
        double unit = dt == TN_F64 ? 1e-15 : 1e-6;
        double tol  = unit * sqrt(t->depth) * bound + (is_half(dt) ? 0.5 * dtype_ulp(dt, want) : 0);
        double top  = ldexp(1, format_of(dt).highest) * 2;
        tol += t->coarse * bound;
        // Each that is added is rounded by at least half the distance between the smallest numbers.
        if (t->narrow)
            tol += ldexp(bound, -1 - format_of(dt).digits) +
                   0.5 * sqrt(t->depth) * dtype_ulp(dt, 0);
        if (y == want) return true;
        if (isinf(want) || (dt == TN_F64 && isinf(y))) return false;
        if (dt != TN_F64 && fabs(want) > top) want = copysign(top, want);
        return fabs(finite_of(dt, y) - want) <= tol;
    }
    case CLOSELY:
        return y == want || (isfinite(want) && fabs(finite_of(dt, y) - want) <=
                                                   close_tolerance(dt, want, most, t->steps));
    }
    return false;
}

static bool floats_agree(tn_tensor *y, tn_tensor *ref, const tolerance *t, int64_t n, char *text)
{
    tn_dtype dt   = tn_dtype_of(y);
    double  *have = malloc((size_t)n * 3 * 8), *want = have + n, *bound = want + n, most = t->reach;
    bool     ok = tn_read(y, TN_F64, have, n) == TN_OK && tn_read(ref, TN_F64, want, n) == TN_OK;
    for (int64_t i = 0; i < n; i++) bound[i] = 1;
    if (ok && t->bound) ok = tn_read(t->bound, TN_F64, bound, n) == TN_OK;
    if (!ok)
        snprintf(text, 256, "it cannot be read: %s%s", tn_error_text(tn_ctx_of(y)),
                 tn_error_text(tn_ctx_of(ref)));
    for (int64_t i = 0; ok && i < n; i++)
        if (isfinite(want[i]) && fabs(want[i]) > most) most = fabs(want[i]);
    for (int64_t i = 0; ok && i < n; i++) {
        ok = float_agrees(dt, have[i], want[i], t, bound[i], most);
        if (!ok)
            snprintf(text, 256, "[%lld] of %lld is %.17g, not %.17g (%.3g units)", (long long)i,
                     (long long)n, have[i], want[i], (have[i] - want[i]) / dtype_ulp(dt, want[i]));
    }
    free(have);
    return ok;
}

static bool ints_agree(tn_tensor *y, tn_tensor *ref, int64_t n, char *text)
{
    int64_t *have = malloc((size_t)n * 2 * 8), *want = have + n;
    bool     ok = tn_read(y, TN_I64, have, n) == TN_OK && tn_read(ref, TN_I64, want, n) == TN_OK;
    if (!ok)
        snprintf(text, 256, "it cannot be read: %s%s", tn_error_text(tn_ctx_of(y)),
                 tn_error_text(tn_ctx_of(ref)));
    for (int64_t i = 0; ok && i < n; i++) {
        ok = have[i] == want[i];
        if (!ok)
            snprintf(text, 256, "[%lld] of %lld is %lld, not %lld", (long long)i, (long long)n,
                     (long long)have[i], (long long)want[i]);
    }
    free(have);
    return ok;
}

bool agrees(tn_tensor *y, tn_tensor *ref, tolerance t, char text[256])
{
    text[0] = '\0';
    if (!y || !ref) {
        snprintf(text, 256, "there is no result%s", y ? " on ref" : "");
        return false;
    }
    bool same = tn_dtype_of(y) == tn_dtype_of(ref) && tn_rank(y) == tn_rank(ref);
    for (int i = 0; same && i < tn_rank(y); i++) same = tn_size(y, i) == tn_size(ref, i);
    if (!same) {
        snprintf(text, 256, "shape or dtype differ");
        return false;
    }
    int64_t n = tn_count(y);
    if (n == 0) return tn_eval_of(y) == TN_OK && tn_eval_of(ref) == TN_OK;
    return tni_is_float(tn_dtype_of(y)) ? floats_agree(y, ref, &t, n, text)
                                        : ints_agree(y, ref, n, text);
}

tn_ctx *open_quiet(const char *device, int threads)
{
    tn_ctx *cx = skeleton_open((tn_open_opts){ .device = device, .threads = threads, .seed = 7 });
    if (cx) tn_on_error(cx, NULL, NULL);
    return cx;
}
