// test_dtypes.c: dtypes by their table. Integers compute on every device as on the reference,
// fused, compiled and op by op; 8-bit floats are what PyTorch has, and refuse arithmetic.
#include "rules_kit.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 40 };

static const tn_dtype integers[] = { TN_I16, TN_U16, TN_U32, TN_U64 };

static void every_row_says_what_its_dtype_is(void)
{
    for (int dt = 0; dt < TNI_DTYPES; dt++) {
        const tni_dtype_facts *f = &tni_dtype_table[dt];
        if (!CHECK(f->name && f->kernel)) continue;
        CHECK_STR(tn_dtype_name((tn_dtype)dt), f->name);
        CHECK(tni_dtype_holds((tn_dtype)dt, (tn_dtype)dt));
        CHECK(tni_dtype_holds(tni_compute_dtype((tn_dtype)dt), (tn_dtype)dt));
        if (tni_is_int((tn_dtype)dt)) {
            CHECK_INT(f->digits + tni_is_signed((tn_dtype)dt), 8 * f->bytes);
            CHECK(f->past == ldexp(1, f->digits) &&
                  f->high == (double)(f->past - (f->digits < 54)));
            CHECK(f->low == (tni_is_signed((tn_dtype)dt) ? -f->past : 0));
        }
    }
    // Complex numbers have names and no row: what computes sees pairs.
    CHECK_STR(tn_dtype_name(TN_C64), "c64");
    CHECK_STR(tn_dtype_name(TN_C128), "c128");
    CHECK_STR(tn_dtype_name((tn_dtype)(TN_C128 + 1)), "?");
}

// ---- integers ----------------------------------------------------------------------------------

typedef struct {
    const char *name;
    tn_tensor *(*make)(tn_tensor *a, tn_tensor *b);
} form;

static tn_tensor *sums(tn_tensor *a, tn_tensor *b)
{
    return tn_add(tn_mul(a, b), tn_sub(a, tn_neg(b)));
}

static tn_tensor *quotients(tn_tensor *a, tn_tensor *b)
{
    return tn_add(tn_floor_divide(a, b), tn_mul_s(tn_remainder(a, b), 3));
}

static tn_tensor *choices(tn_tensor *a, tn_tensor *b)
{
    return tn_where(tn_lt(a, b), tn_maximum(a, tn_add_s(b, 1)), tn_minimum(tn_abs(b), tn_relu(a)));
}

static tn_tensor *bits(tn_tensor *a, tn_tensor *b)
{
    tn_tensor *by = tn_bit_and(b, tn_full_like(b, 71));
    return tn_bit_xor(tn_shl(a, by), tn_bit_or(tn_shr(b, tn_sign(a)), tn_bit_not(tn_shr(a, by))));
}

static tn_tensor *powers(tn_tensor *a, tn_tensor *b)
{
    return tn_pow(a, tn_remainder(b, tn_full_like(b, 5)));
}

static tn_tensor *compared(tn_tensor *a, tn_tensor *b)
{
    tn_tensor *y = tn_add(tn_cast(tn_gt(a, b), TN_I8), tn_cast(tn_le_s(a, 100), TN_I8));
    return tn_add(y, tn_cast(tn_eq(a, tn_remainder(a, b)), TN_I8));
}

static tn_tensor *reals(tn_tensor *a, tn_tensor *b)
{
    return tn_concat(3,
                     (tn_tensor *[]){ tn_cast(a, TN_F64), tn_cast(tn_cast(b, TN_BF16), TN_F64),
                                      tn_cast(tn_cast(a, TN_F16), TN_F64) },
                     0);
}

static tn_tensor *by_way_of_floats(tn_tensor *a, tn_tensor *b)
{
    tn_dtype   dt = tn_dtype_of(a);
    tn_tensor *x = tn_mul_s(tn_cast(a, TN_F64), 1.75), *y = tn_mul_s(tn_cast(b, TN_F32), -0.5);
    return tn_add(tn_cast(x, dt), tn_cast(y, dt));
}

static tn_tensor *row_sums(tn_tensor *a, tn_tensor *b)
{
    return tn_add(tn_sum(tn_mul(a, b), 1), tn_prod(tn_add_s(a, 1), 0));
}

static tn_tensor *row_extremes(tn_tensor *a, tn_tensor *b)
{
    return tn_sub(tn_max(a, 1), tn_min(tn_maximum(a, b), 0));
}

static tn_tensor *places(tn_tensor *a, tn_tensor *b)
{
    return tn_add(tn_argmax(a, 1), tn_argmin(tn_add(a, b), 1));
}

static tn_tensor *scans(tn_tensor *a, tn_tensor *b)
{
    return tn_add(tn_cumsum(a, 1), tn_cumprod(b, 0));
}

static tn_tensor *products(tn_tensor *a, tn_tensor *b)
{
    return tn_matmul(a, tn_transpose(b, 0, 1));
}

static tn_tensor *orders(tn_tensor *a, tn_tensor *b)
{
    return tn_add(tn_argsort(a, 1, TN_ASCENDING), tn_argsort(b, 0, TN_DESCENDING));
}

// Lines that a work group does not hold, so that lists of keys are merged.
static tn_tensor *long_orders(tn_tensor *a, tn_tensor *b)
{
    tn_tensor *line = tn_reshape(tn_add(a, b), TN_SHAPE(-1));
    tn_tensor *many = tn_reshape(tn_repeat(line, 1, (int64_t[]){ 5000 / tn_count(line) + 1 }),
                                 TN_SHAPE(-1));
    return tn_slice(tn_argsort(many, 0, TN_ASCENDING), 0, 0, TN_TO_END, 97);
}

static tn_tensor *filled(tn_tensor *a, tn_tensor *b)
{
    tn_tensor *y = tn_masked_fill(a, tn_gt(a, b), 1.5e19);
    return tn_pad(y, (int64_t[]){ 1, 0 }, (int64_t[]){ 0, 0 }, -1);
}

static tn_tensor *moves(tn_tensor *a, tn_tensor *b)
{
    tn_tensor *i = tn_remainder(tn_argsort(b, 1, TN_ASCENDING),
                                tn_full(tn_ctx_of(a), TN_I64, TN_0D, 7));
    tn_tensor *y = tn_scatter_add(a, 1, i, b);
    return tn_gather(tn_pad(tn_flip(y, 1), (int64_t[]){ 0, 2 }, (int64_t[]){ 0, 0 }, 9), 1, i);
}

static const form forms[] = {
    { "sums", sums },         { "quotients", quotients },
    { "choices", choices },   { "bits", bits },
    { "powers", powers },     { "compared", compared },
    { "reals", reals },       { "floats", by_way_of_floats },
    { "row sums", row_sums }, { "extremes", row_extremes },
    { "places", places },     { "scans", scans },
    { "products", products }, { "orders", orders },
    { "moves", moves },       { "long orders", long_orders },
    { "filled", filled },
};

// A way to run: the device, and what is set in the environment.
typedef struct {
    const char *device, *variable, *value;
} way;

static const way ways[] = { { "cpu", "TN_COMPILE", "never" },
                            { "cpu", "TN_COMPILE", "wait" },
                            { "cpu", "TN_EAGER", "1" },
                            { "opencl", "TN_EAGER", "0" } };

static void ignore(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

static tn_ctx *open_way(const way *w)
{
    setenv(w->variable, w->value, 1);
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = w->device, .handler = ignore });
    unsetenv(w->variable);
    return cx;
}

// Two tensors of random bits, with zeros, small numbers and the ends of the range among them.
static void make_inputs(tn_ctx *cx, tn_dtype dt, tn_tensor *in[2])
{
    static int64_t       data[2][N][N];
    static const int64_t odd[] = { 0,     1,      -1,        2,         3,        255,
                                   32767, -32768, INT32_MAX, INT64_MAX, INT64_MIN };
    uint64_t             u     = 88172645463325252u;
    for (int64_t i = 0; i < 2 * N * N; i++) {
        u ^= u << 13, u ^= u >> 7, u ^= u << 17;
        int64_t v = u >> 60 < 6 ? odd[u % 11] : u >> 60 < 11 ? (int64_t)(u % 50) : (int64_t)u;
        (&data[0][0][0])[i] = v;
    }
    for (int k = 0; k < 2; k++)
        in[k] = tn_clone(tn_cast(tn_from(cx, TN_I64, TN_SHAPE(N, N), data[k]), dt));
}

enum { FORMS = sizeof forms / sizeof *forms, ROOM = 3 * 8 * N * N };

// The results of all forms, computed by one plan, so that its kernels are compiled together.
static void compute(tn_ctx *cx, tn_dtype dt, char bits[FORMS][ROOM], size_t bytes[FORMS])
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *in[2], *y[FORMS];
    make_inputs(cx, dt, in);
    for (int i = 0; i < FORMS; i++) y[i] = forms[i].make(in[0], in[1]);
    tn_eval(cx);
    for (int i = 0; i < FORMS; i++) {
        tn_dtype as = y[i] ? tn_dtype_of(y[i]) : dt;
        bytes[i]    = y[i] ? (size_t)tn_count(y[i]) * tni_dtype_size(as) : 0;
        if (bytes[i] > ROOM || !y[i] || tn_read(y[i], as, bits[i], tn_count(y[i])) != TN_OK)
            bytes[i] = 0;
    }
    tn_end(s);
}

static void integers_compute_as_on_the_reference(void)
{
    static char want[FORMS][ROOM], have[FORMS][ROOM];
    size_t      n[FORMS], m[FORMS];
    tn_ctx     *ref = rules_open("ref");
    for (size_t d = 0; d < sizeof integers / sizeof *integers; d++) {
        compute(ref, integers[d], want, n);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            tn_ctx *cx = open_way(&ways[w]);
            CHECK(cx || !strcmp(ways[w].device, "opencl"));
            if (cx) compute(cx, integers[d], have, m);
            for (int i = 0; cx && i < FORMS; i++)
                test_case_result(n[i] && m[i] == n[i] && !memcmp(have[i], want[i], n[i]),
                                 "%s of %s on %s with %s=%s: %s", forms[i].name,
                                 tn_dtype_name(integers[d]), ways[w].device, ways[w].variable,
                                 ways[w].value, tn_error_text(cx));
            tn_close(cx);
        }
    }
    tn_close(ref);
}

static void integers_promote_as_in_numpy(void)
{
    static const struct {
        tn_dtype a, b, y;
    } pairs[] = {
        { TN_U8, TN_I8, TN_I16 },   { TN_U8, TN_I16, TN_I16 },    { TN_U16, TN_I16, TN_I32 },
        { TN_U16, TN_I8, TN_I32 },  { TN_U16, TN_I32, TN_I32 },   { TN_U32, TN_I32, TN_I64 },
        { TN_U32, TN_I16, TN_I64 }, { TN_U32, TN_I64, TN_I64 },   { TN_U8, TN_U16, TN_U16 },
        { TN_U16, TN_U32, TN_U32 }, { TN_U32, TN_U64, TN_U64 },   { TN_U64, TN_I8, TN_F64 },
        { TN_U64, TN_I64, TN_F64 }, { TN_BOOL, TN_U64, TN_U64 },  { TN_I16, TN_I32, TN_I32 },
        { TN_U64, TN_F16, TN_F16 }, { TN_I16, TN_BF16, TN_BF16 }, { TN_U32, TN_F32, TN_F32 },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        CHECK_STR(tn_dtype_name(tni_promote(pairs[i].a, pairs[i].b)), tn_dtype_name(pairs[i].y));
        CHECK_STR(tn_dtype_name(tni_promote(pairs[i].b, pairs[i].a)), tn_dtype_name(pairs[i].y));
    }
}

static void u64_has_all_its_bits(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        static const uint64_t x[] = { UINT64_MAX, UINT64_MAX - 1, 1, UINT64_C(1) << 63 };
        tn_tensor            *t   = tn_from(cx, TN_U64, TN_SHAPE(4), x);
        uint64_t              y[4];
        CHECK_STATUS(tn_read(tn_max(t, 0), TN_U64, y, 1), TN_OK);
        CHECK(y[0] == UINT64_MAX);
        CHECK(tn_dtype_of(tn_sum(t, 0)) == TN_U64);
        CHECK_STATUS(tn_read(tn_sum(t, 0), TN_U64, y, 1), TN_OK);
        CHECK(y[0] == (UINT64_C(1) << 63) - 2);
        CHECK_STATUS(tn_read(tn_floor_divide(t, tn_full_like(t, 10)), TN_U64, y, 4), TN_OK);
        CHECK(y[0] == UINT64_MAX / 10 && y[3] == (UINT64_C(1) << 63) / 10);
        CHECK_STATUS(tn_read(tn_full(cx, TN_U64, TN_SHAPE(1), 0x1p63), TN_U64, y, 1), TN_OK);
        CHECK(y[0] == UINT64_C(1) << 63);
        CHECK_STATUS(tn_read(tn_cast(tn_full(cx, TN_F64, TN_SHAPE(1), 1e30), TN_U64), TN_U64, y, 1),
                     TN_OK);
        CHECK(y[0] == UINT64_MAX);
        CHECK_VALUES(tn_cast(t, TN_F64), 0x1p64, 0x1p64, 1, 0x1p63);
        CHECK_VALUES(tn_lt_s(t, 2), 0, 0, 1, 0);
    }
}

// ---- to 16-bit floats --------------------------------------------------------------------------

// The nearest float of so many digits, of two the even one, by integers alone; past the largest
// infinite.
static double nearest(uint64_t v, int digits, double high)
{
    int over = -digits;
    for (uint64_t u = v; u; u >>= 1) over++;
    if (over <= 0) return (double)v;
    uint64_t kept = v >> over, rest = v & ((UINT64_C(1) << over) - 1),
             half = UINT64_C(1) << (over - 1);
    kept += rest > half || (rest == half && (kept & 1));
    double y = ldexp((double)kept, over);
    return y > high ? INFINITY : y;
}

enum { TIES = 64 * 4 };

// Halfway between two bf16, one more, one less, and what a double makes a tie of, of every size.
static void make_ties(uint64_t *v)
{
    for (int i = 0; i < TIES; i++) {
        int      bits = i / 4, below = bits > 8 ? bits - 8 : 0;
        uint64_t one = UINT64_C(1) << bits, tie = one | (below ? UINT64_C(1) << (below - 1) : 0);
        v[i] = i % 4 == 0 ? tie : i % 4 == 1 ? tie + 1 : i % 4 == 2 ? tie - 1 : tie | one >> 7 | 1;
    }
}

static void check_ties(tn_ctx *cx, tn_dtype from, tn_dtype to, const char *what)
{
    uint64_t     ties[TIES];
    double       have[TIES];
    tn_scope    *s    = tn_begin(cx);
    int          bits = tni_dtype_table[from].digits, wrong = -1;
    const double high = tni_dtype_table[to].high;
    make_ties(ties);
    tn_tensor *x = tn_cast(tn_from(cx, TN_U64, TN_SHAPE(TIES), ties), from);
    if (tni_is_signed(from)) x = tn_neg(x);
    x       = tn_cast(tn_cast(tn_add_s(tn_clone(x), 0), to), TN_F64);
    bool ok = tn_read(x, TN_F64, have, TIES) == TN_OK;
    for (int i = 0; ok && i < TIES; i++) {
        uint64_t v    = bits < 64 ? ties[i] & ((UINT64_C(1) << bits) - 1) : ties[i];
        double   want = nearest(v, tni_dtype_table[to].digits, high);
        if (bits > i / 4 && fabs(have[i]) != want && wrong < 0) wrong = i;
    }
    test_case_result(ok && wrong < 0, "%s to %s on %s: %.17g of %llu %s", tn_dtype_name(from),
                     tn_dtype_name(to), what, have[wrong < 0 ? 0 : wrong],
                     (unsigned long long)ties[wrong < 0 ? 0 : wrong], tn_error_text(cx));
    tn_error_clear(cx);
    tn_end(s);
}

// By way of f32, as in PyTorch, or of f64 some would round twice.
static void integers_are_rounded_once(void)
{
    static const tn_dtype from[] = { TN_I16, TN_I32, TN_U32, TN_I64, TN_U64 };
    static const tn_dtype to[]   = { TN_BF16, TN_F16 };
    for (int w = -1; w < (int)(sizeof ways / sizeof *ways); w++) {
        tn_ctx *cx = w < 0 ? rules_open("ref") : open_way(&ways[w]);
        for (int i = 0; cx && i < 5; i++)
            for (int k = 0; k < 2; k++)
                check_ties(cx, from[i], to[k], w < 0 ? "ref" : ways[w].device);
        tn_close(cx);
    }
}

// ---- numbers beside u64 ------------------------------------------------------------------------

// A number without a fraction is an integer, also one that only u64 holds.
static void check_large_numbers(tn_ctx *cx)
{
    static const uint64_t top = UINT64_C(1) << 63, large = UINT64_C(18000000000000000000);
    static const uint64_t x[] = { 0, 1, UINT64_C(1) << 63, 18000000000000000000u, UINT64_MAX };
    tn_tensor            *t = tn_from(cx, TN_U64, TN_SHAPE(5), x), *s = tn_scalar(cx, 1.8e19);
    uint64_t              y[6][5];
    tn_tensor            *r[] = { tn_add_s(t, 1.8e19),  tn_maximum_s(t, 0x1p63),
                                  tn_rsub_s(t, 1.8e19), tn_clamp(t, 2, 1.8e19),
                                  tn_mul(t, s),         tn_masked_fill(t, tn_lt_s(t, 0x1p63), 1.8e19) };
    for (int i = 0; i < 6; i++) {
        CHECK(r[i] && tn_dtype_of(r[i]) == TN_U64);
        CHECK_STATUS(tn_read(r[i], TN_U64, y[i], 5), TN_OK);
    }
    for (int i = 0; i < 5; i++) {
        CHECK(y[0][i] == x[i] + large && y[1][i] == (x[i] > top ? x[i] : top));
        CHECK(y[2][i] == large - x[i] && y[4][i] == x[i] * large);
        CHECK(y[3][i] == (x[i] < 2 ? 2 : x[i] > large ? large : x[i]));
        CHECK(y[5][i] == (x[i] < top ? large : x[i]));
    }
    CHECK_VALUES(tn_eq_s(t, 1.8e19), 0, 0, 0, 1, 0);
    CHECK_VALUES(tn_lt_s(t, 1.8e19), 1, 1, 1, 0, 0);
    CHECK_VALUES(tn_ge_s(t, 0x1p63), 0, 0, 1, 1, 1);
}

static void numbers_past_the_largest_i64_are_integers(void)
{
    for (int w = -1; w < (int)(sizeof ways / sizeof *ways); w++) {
        tn_ctx *cx = w < 0 ? rules_open("ref") : open_way(&ways[w]);
        if (cx) check_large_numbers(cx);
        tn_close(cx);
    }
}

static void numbers_that_no_integer_dtype_holds_are_refused(void)
{
    static const struct {
        tn_dtype dtype;
        double   v;
    } cases[]  = { { TN_U64, 0x1p64 }, { TN_U64, 1e30 }, { TN_I64, 0x1p63 },  { TN_I64, -1e19 },
                   { TN_I32, 1e19 },   { TN_U8, 1e30 },  { TN_BOOL, 0x1p63 }, { TN_U32, -0x1p32 } };
    tn_ctx *cx = rules_open("cpu");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_tensor *x = tn_ones(cx, cases[i].dtype, TN_SHAPE(2));
        CHECK(tn_add_s(x, cases[i].v) == NULL);
        CHECK_STATUS(tn_error(cx), TN_EARG);
        test_that(strstr(tn_error_text(cx), "does not fit") != NULL, "%s", tn_error_text(cx));
        tn_error_clear(cx);
        CHECK(tn_lt(x, tn_scalar(cx, cases[i].v)) == NULL);
        tn_error_clear(cx);
    }
    tn_tensor *x = tn_ones(cx, TN_I64, TN_SHAPE(1));
    CHECK_INT(tn_item_i64(tn_maximum_i64(x, INT64_MAX)), INT64_MAX);
    CHECK_INT(tn_item_i64(
                  tn_clamp_i64(tn_full_i64(cx, TN_I64, TN_0D, INT64_MAX), 0, INT64_MAX - 5)),
              INT64_MAX - 5);
    CHECK_INT(tn_item_i64(tn_full(cx, TN_I64, TN_0D, 1e19)), INT64_MAX);
    CHECK(tn_dtype_of(tn_add_s(x, INFINITY)) == TN_F32);
    tn_close(cx);
}

static void printed_integers_have_no_sign_that_they_lack(void)
{
    char    text[256] = "";
    tn_ctx *cx        = rules_open("cpu");
    FILE   *f         = fmemopen(text, sizeof text - 1, "w");
    if (f) tn_print(tn_from(cx, TN_U64, TN_SHAPE(2), (uint64_t[]){ UINT64_MAX, 7 }), f);
    if (f) tn_print(tn_from(cx, TN_U16, TN_SHAPE(2), (uint16_t[]){ 65535, 7 }), f);
    if (f) fclose(f);
    CHECK(strstr(text, "18446744073709551615") && strstr(text, "65535"));
    tn_close(cx);
}

// ---- 8-bit floats ------------------------------------------------------------------------------

static const struct {
    const char *name;
    tn_dtype    dtype;
} eight[] = { { "e4m3", TN_F8_E4M3 }, { "e5m2", TN_F8_E5M2 } };

static bool same(double a, double b)
{
    return a == b ? signbit(a) == signbit(b) : isnan(a) && isnan(b);
}

// The 256 codes as f32, fused and op by op, against PyTorch's values.
static void check_values(tn_ctx *cx, tn_file *f, int which)
{
    char    name[32];
    uint8_t codes[256];
    double  have[256], want[256];
    for (int i = 0; i < 256; i++) codes[i] = (uint8_t)i;
    snprintf(name, sizeof name, "%s.values", eight[which].name);
    CHECK_STATUS(tn_read(tn_file_tensor(f, name), TN_F64, want, 256), TN_OK);
    tn_tensor *t = tn_from(cx, eight[which].dtype, TN_SHAPE(256), codes);
    CHECK_STATUS(tn_read(tn_cast(tn_mul_s(tn_cast(t, TN_F32), 1), TN_F64), TN_F64, have, 256),
                 TN_OK);
    for (int i = 0; i < 256; i++)
        test_case_result(same(have[i], want[i]), "%s %d is %.9g, not %.9g", eight[which].name, i,
                         have[i], want[i]);
}

// Numbers around every boundary, from f32 and from f64, against PyTorch's codes; a NaN has its sign
// open.
static void check_codes(tn_file *f, int which, tn_dtype from)
{
    char       name[32];
    tn_tensor *x    = tn_file_tensor(f, "x");
    int64_t    n    = tn_count(x);
    uint8_t   *have = malloc((size_t)n);
    double    *want = malloc((size_t)n * sizeof *want);
    snprintf(name, sizeof name, "x.%s", eight[which].name);
    CHECK_STATUS(tn_read(tn_file_tensor(f, name), TN_F64, want, n), TN_OK);
    CHECK_STATUS(
        tn_read(tn_cast(tn_cast(x, from), eight[which].dtype), eight[which].dtype, have, n), TN_OK);
    for (int64_t i = 0; i < n; i++) {
        int a = have[i], b = (int)want[i];
        test_case_result(a == b || (a & b & 127) == 127, "%s of number %lld of %s is %d, not %d",
                         eight[which].name, (long long)i, tn_dtype_name(from), a, b);
    }
    free(have);
    free(want);
}

static void eight_bit_floats_are_those_of_pytorch(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_file *f = tn_file_open(cx, TN_SOURCE_DIR "/test/recordings/float8.safetensors");
        if (!CHECK(f != NULL)) continue;
        for (int which = 0; which < 2; which++) {
            check_values(cx, f, which);
            check_codes(f, which, TN_F32);
            check_codes(f, which, TN_F64);
        }
    }
}

static void eight_bit_floats_move_and_refuse_arithmetic(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *t = tn_cast(tn_from(cx, TN_F32, TN_SHAPE(4), (float[]){ 1, -2.25f, 500, 0.1f }),
                               TN_F8_E4M3);
        tn_tensor *i = tn_from(cx, TN_I64, TN_SHAPE(2), (int64_t[]){ 3, 1 });
        CHECK_VALUES(t, 1, -2.25, 448, 0.1015625);
        CHECK_VALUES(tn_flip(t, 0), 0.1015625, 448, -2.25, 1);
        CHECK_VALUES(tn_gather(t, 0, i), 0.1015625, -2.25);
        CHECK_VALUES(tn_concat(2, (tn_tensor *[]){ t, t }, 0), 1, -2.25, 448, 0.1015625, 1, -2.25,
                     448, 0.1015625);
        CHECK_VALUES(tn_full(cx, TN_F8_E5M2, TN_SHAPE(2), 3.3), 3.5, 3.5);
        CHECK(!tn_add(t, t));
        CHECK_FAILED2(cx, TN_EDTYPE, "add: f8_e4m3 only stores", "cast it");
        CHECK(!tn_mul(t, tn_cast(t, TN_F32)));
        CHECK_FAILED(cx, TN_EDTYPE, "mul: f8_e4m3 only stores");
        CHECK(!tn_sum(t, 0));
        CHECK_FAILED(cx, TN_EDTYPE, "sum: f8_e4m3 only stores");
        CHECK(!tn_softmax(t, 0));
        CHECK_FAILED(cx, TN_EDTYPE, "softmax: f8_e4m3 only stores");
        CHECK(!tn_matmul(tn_unsqueeze(t, 0), tn_unsqueeze(t, 1)));
        CHECK_FAILED(cx, TN_EDTYPE, "matmul: f8_e4m3 only stores");
        CHECK(!tn_rand(cx, TN_F8_E5M2, TN_SHAPE(2)));
        CHECK_FAILED(cx, TN_EDTYPE, "rand: f8_e5m2 only stores");
        CHECK(!tn_concat(2, (tn_tensor *[]){ t, tn_cast(t, TN_F16) }, 0));
        CHECK_FAILED(cx, TN_EDTYPE, "concat: f8_e4m3 only stores");
    }
}

const test_case tests_dtypes[] = { TEST(every_row_says_what_its_dtype_is),
                                   TEST(integers_promote_as_in_numpy),
                                   TEST(integers_compute_as_on_the_reference),
                                   TEST(u64_has_all_its_bits),
                                   TEST(integers_are_rounded_once),
                                   TEST(numbers_past_the_largest_i64_are_integers),
                                   TEST(numbers_that_no_integer_dtype_holds_are_refused),
                                   TEST(printed_integers_have_no_sign_that_they_lack),
                                   TEST(eight_bit_floats_are_those_of_pytorch),
                                   TEST(eight_bit_floats_move_and_refuse_arithmetic),
                                   TEST_END };
