// test_slices.c: parts of values. The gradients of views, against places counted by hand; what is
// padded, joined or sliced is computed where it is read, and in how many kernels.
#include "check.h"
#include "rules_kit.h"

#include "device/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

enum { ROOM = 1 << 16, MOST = 4096, CASES = 150 };

static char page[ROOM];  // what was explained last

// What is pending in cx, into `page`; its number of kernels, -1 on error.
static int kernels(tn_ctx *cx)
{
    char  *text = NULL;
    size_t size = 0;
    int    n    = -1;
    FILE  *f    = open_memstream(&text, &size);
    if (!CHECK(f != NULL)) return -1;
    CHECK_STATUS(tn_explain_with(cx, f, (tn_explain_opts){ .source = false }), TN_OK);
    fclose(f);
    snprintf(page, sizeof page, "%s", text);
    free(text);
    return sscanf(page, "%d kernel", &n) == 1 ? n : -1;
}

static bool fuses(const tni_device *d)
{
    const char *eager = getenv("TN_EAGER");
    return d->kernels && !(eager && *eager && strcmp(eager, "0"));
}

// n values in memory; small whole numbers and a half, so that sums of them are exact.
static tn_tensor *there(tn_ctx *cx, int rank, const int64_t *size)
{
    static float data[MOST];
    int64_t      n = 1;
    for (int i = 0; i < rank; i++) n *= size[i];
    for (int64_t i = 0; i < n; i++) data[i] = (float)(i * 7 % 23) / 2 - 3;
    return tn_from(cx, TN_F32, rank, size, data);
}

static int64_t read(tn_tensor *t, double *x)
{
    int64_t n = tn_count(t);
    return t && n <= MOST && tn_read(t, TN_F64, x, n) == TN_OK ? n : -1;
}

// ---- gradients of views

static uint32_t pick(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

// One more view of x, by the numbers of state.
static tn_tensor *look(tn_tensor *x, uint32_t *state)
{
    int rank = tn_rank(x), axis = rank ? (int)pick(state, (uint32_t)rank) : 0;
    if (rank == 0) return tn_reshape(x, TN_SHAPE(1, 1));
    int64_t n = tn_size(x, axis), from = pick(state, (uint32_t)n);
    switch (pick(state, 6)) {
    case 0: return tn_slice(x, axis, from, from + 1 + pick(state, (uint32_t)(n - from)), 1);
    case 1: return tn_slice(x, axis, from, TN_TO_END, 1 + pick(state, 3));
    case 2: return tn_flip(x, axis);
    case 3: return tn_transpose(x, axis, (int)pick(state, (uint32_t)rank));
    case 4: return tn_select(x, axis, from);
    default: return n % 2 || rank > 5 ? tn_unsqueeze(x, axis) : tn_reshape(x, TN_SHAPE(2, -1));
    }
}

// f(x) = sum over k of w[k] x[at[k]]^2, so its gradient is 2 w[k] x[at[k]] there, and the gradient
// of the sum of u times that is 2 w[k] u[at[k]].
static bool view_has_its_gradients(tn_ctx *cx, uint32_t seed)
{
    static double at[MOST], w[MOST], xs[MOST], us[MOST], g1[MOST], g2[MOST], w1[MOST], w2[MOST];
    static const int64_t shapes[5][4] = {
        { 4, 6, 5, 2 }, { 3, 8, 10, 1 }, { 24, 1, 9, 2 }, { 1, 30, 4, 4 }, { 2, 2, 2, 12 }
    };
    uint32_t       state = seed, again;
    int            ops   = 1 + (int)pick(&state, 5);
    const int64_t *size  = shapes[pick(&state, 5)];
    tn_tensor     *x = there(cx, 4, size), *u = tn_sub_s(tn_flip(there(cx, 4, size), 0), 1);
    tn_tensor     *v     = tn_requires_grad(x, true);
    tn_tensor     *place = tn_reshape(tn_arange(cx, TN_F32, 0, (double)tn_count(x), 1), 4, size);
    again                = state;
    for (int i = 0; i < ops; i++) v = look(v, &state);
    for (int i = 0; i < ops; i++) place = look(place, &again);
    tn_tensor *c = tn_add_s(tn_mul_s(place, 0.25), 1), *y = tn_sum_all(tn_mul(c, tn_square(v)));
    tn_tensor *g = NULL, *gg = NULL;
    if (tn_grad(1, &y, 1, &x, NULL, &g) != TN_OK) return false;
    tn_tensor *s = tn_sum_all(tn_mul(g, u));
    if (tn_grad(1, &s, 1, &x, NULL, &gg) != TN_OK) return false;
    int64_t n = read(x, xs), m = read(place, at);
    if (n < 0 || m < 0 || read(c, w) != m || read(u, us) != n) return false;
    if (read(g, g1) != n || read(gg, g2) != n) return false;
    memset(w1, 0, sizeof w1);
    memset(w2, 0, sizeof w2);
    for (int64_t k = 0; k < m; k++) {
        w1[(int)at[k]] += 2 * w[k] * xs[(int)at[k]];
        w2[(int)at[k]] += 2 * w[k] * us[(int)at[k]];
    }
    bool ok = true;
    for (int64_t k = 0; k < n; k++) ok &= g1[k] == w1[k] && g2[k] == w2[k];
    return ok;
}

static void a_view_of_views_has_its_gradients_of_both_orders(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        for (uint32_t i = 0; i < CASES; i++) {
            tn_scope *s  = tn_begin(cx);
            bool      ok = view_has_its_gradients(cx, i * 77 + 5);
            test_case_result(ok, "view %d: %s", (int)i, tn_error_text(cx));
            tn_end(s);
        }
    }
}

// ---- what is computed where it is read

enum { R = 12, K = 10 };

// x is (R, K), y is (R, K), i is R indices of rows.
static tn_tensor *pad_of_computed(tn_tensor *x, tn_tensor *y, tn_tensor *i)
{
    (void)i;
    tn_tensor *v = tn_mul(tn_square(x), y);
    return tn_add_s(tn_pad(v, (int64_t[]){ 2, 0 }, (int64_t[]){ 1, 3 }, 0.5), 1);
}
static tn_tensor *pad_of_a_slice_of_computed(tn_tensor *x, tn_tensor *y, tn_tensor *i)
{
    (void)i;
    tn_tensor *v = tn_slice(tn_mul(x, y), 1, 1, TN_TO_END, 2);
    return tn_pad(tn_flip(v, 1), (int64_t[]){ 1, 2 }, (int64_t[]){ 0, -1 }, 2);
}
static tn_tensor *pads_in_pads(tn_tensor *x, tn_tensor *y, tn_tensor *i)
{
    (void)i;
    int64_t    one[] = { 1, 1 }, less[] = { -1, 0 };
    tn_tensor *v = tn_pad(tn_abs(x), one, one, 3);
    return tn_pad(tn_add(v, tn_pad(y, one, one, 0)), less, one, -1);
}
static tn_tensor *reciprocals_beside_ones(tn_tensor *x, tn_tensor *y, tn_tensor *i)
{
    (void)y, (void)i;
    tn_tensor *v = tn_reciprocal(tn_square(x));
    return tn_sum(tn_pad(v, (int64_t[]){ 0, 4 }, (int64_t[]){ 0, 0 }, 1), 1);
}
static tn_tensor *quotients_beside_nothing(tn_tensor *x, tn_tensor *y, tn_tensor *i)
{
    (void)x, (void)y;
    tn_tensor *v = tn_floor_divide(tn_add_s(i, 7), tn_add_s(i, 1));
    return tn_pad(v, (int64_t[]){ 3 }, (int64_t[]){ 3 }, 9);
}
static tn_tensor *two_joined(tn_tensor *x, tn_tensor *y, tn_tensor *i)
{
    (void)i;
    tn_tensor *part[] = { tn_square(x), tn_neg(y) };
    return tn_relu(tn_concat(2, part, 1));
}
static tn_tensor *four_joined_and_summed(tn_tensor *x, tn_tensor *y, tn_tensor *i)
{
    (void)i;
    tn_tensor *part[] = { x, tn_ones_like(tn_slice(x, 1, 0, 1, 1)), tn_abs(y), tn_flip(x, 1) };
    return tn_softmax(tn_concat(4, part, 1), 1);
}
static tn_tensor *rows_joined(tn_tensor *x, tn_tensor *y, tn_tensor *i)
{
    (void)i;
    tn_tensor *part[] = { tn_mul(x, y), tn_slice(y, 0, 2, 5, 1), tn_sub(x, y) };
    return tn_concat(3, part, 0);
}
static tn_tensor *a_slice_of_joined(tn_tensor *x, tn_tensor *y, tn_tensor *i)
{
    (void)i;
    tn_tensor *part[] = { tn_square(x), tn_neg(y) };
    return tn_mul_s(tn_slice(tn_concat(2, part, 1), 1, K - 2, K + 3, 1), 2);
}
static tn_tensor *joined_turned(tn_tensor *x, tn_tensor *y, tn_tensor *i)
{
    (void)i;
    tn_tensor *part[] = { tn_square(x), tn_neg(y) };
    return tn_add_s(tn_transpose(tn_concat(2, part, 0), 0, 1), 1);
}
static tn_tensor *rotary(tn_tensor *x, tn_tensor *y, tn_tensor *i)
{
    (void)i;
    tn_tensor *a = tn_slice(x, 1, 0, K / 2, 1), *b = tn_slice(x, 1, K / 2, K, 1);
    tn_tensor *turned = tn_concat(2, (tn_tensor *const[]){ tn_neg(b), a }, 1);
    return tn_add(tn_mul(x, tn_cos(y)), tn_mul(turned, tn_sin(y)));
}

static const struct {
    const char *name;
    tn_tensor *(*record)(tn_tensor *x, tn_tensor *y, tn_tensor *i);
} forms[] = {
    { "a pad of something computed", pad_of_computed },
    { "a pad of a slice of something computed", pad_of_a_slice_of_computed },
    { "pads in pads", pads_in_pads },
    { "reciprocals beside ones", reciprocals_beside_ones },
    { "whole quotients beside nothing", quotients_beside_nothing },
    { "two values joined", two_joined },
    { "four values joined and normed", four_joined_and_summed },
    { "rows joined", rows_joined },
    { "a slice of what is joined", a_slice_of_joined },
    { "a transpose of what is joined", joined_turned },
    { "a rotation of halves", rotary },
};

// The value of form f on the device of cx; how many kernels it takes.
static int run_form(tn_ctx *cx, size_t f, double *value, int64_t *n)
{
    int64_t    row[R];
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x = there(cx, TN_SHAPE(R, K)), *y = tn_sub_s(tn_flip(x, 0), 0.25);
    for (int k = 0; k < R; k++) row[k] = k * 5 % R;
    tn_tensor *i = tn_from(cx, TN_I64, TN_SHAPE(R), row);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_tensor *t     = forms[f].record(x, y, i);
    int        count = kernels(cx);
    *n               = read(t, value);
    tn_end(s);
    return count;
}

static bool alike(int64_t n, const double *a, const double *b)
{
    for (int64_t k = 0; k < n; k++)
        if (!(fabs(a[k] - b[k]) <= 1e-5 * (1 + fabs(b[k]))) && !(isnan(a[k]) && isnan(b[k])) &&
            a[k] != b[k])
            return false;
    return true;
}

static void run_forms(const tni_device *d)
{
    static double value[MOST], want[MOST];
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        int64_t n, m;
        tn_ctx *ref = rules_open("ref"), *cx = rules_open(d->name);
        run_form(ref, f, want, &m);
        int count = run_form(cx, f, value, &n);
        test_case_result(n >= 0 && n == m && alike(n, value, want), "%s: values", forms[f].name);
        test_case_result(!fuses(d) || count == 1, "%s: %.600s", forms[f].name, page);
        tn_close(cx);
        tn_close(ref);
    }
}

static void pads_and_joins_are_one_kernel_and_right(void)
{
    run_forms(&tni_device_cpu);
}

static void pads_and_joins_are_the_same_on_opencl(void)
{
    tni_text why = { "" };
    if (!tni_device_opencl.probe(&why)) SKIP("%s", why.s);
    run_forms(&tni_device_opencl);
}

// What is not looked at of a joined value is not read.
static void a_slice_of_one_joined_value_reads_that_one(void)
{
    if (!fuses(&tni_device_cpu)) SKIP("the cpu device runs ops one by one");
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x = there(cx, TN_SHAPE(R, K)), *y = there(cx, TN_SHAPE(R, K));
    long long  moved;
    tn_begin(cx);
    tn_tensor *both = tn_concat(2, (tn_tensor *const[]){ tn_square(x), tn_neg(y) }, 1);
    tn_add_s(tn_slice(both, 1, K, 2 * K, 1), 1);
    CHECK_INT(kernels(cx), 1);
    CHECK(sscanf(page, "1 kernel, %lld bytes moved", &moved) == 1);
    CHECK_INT(moved, 2 * 4 * R * K);
    tn_close(cx);
}

// Products write straight into what they are joined to.
static void joined_products_take_no_kernel_more(void)
{
    if (!fuses(&tni_device_cpu)) SKIP("the cpu device runs ops one by one");
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x = there(cx, TN_SHAPE(K, K)), *y = there(cx, TN_SHAPE(K, K));
    tn_begin(cx);
    tn_concat(2, (tn_tensor *const[]){ tn_matmul(x, y), tn_matmul(y, x) }, 0);
    CHECK_INT(kernels(cx), 2);
    tn_close(cx);
}

// ---- gradients together

// q, k and v, of heads, are slices of one product's columns; their gradients and that of the bias
// are computed without zeros that are written into.
static void gradients_of_three_slices_need_no_updates(void)
{
    enum { B = 2, T = 6, H = 2, D = 4 };
    if (!fuses(&tni_device_cpu)) SKIP("the cpu device runs ops one by one");
    tn_ctx    *cx   = rules_open("cpu");
    tn_tensor *x    = tn_requires_grad(there(cx, TN_SHAPE(B, T, 3 * H * D)), true);
    tn_tensor *bias = tn_requires_grad(there(cx, TN_SHAPE(3 * H * D)), true);
    tn_tensor *g[3];
    for (int i = 0; i < 3; i++) g[i] = there(cx, TN_SHAPE(B, H, T, D));
    tn_begin(cx);
    tn_tensor *all = tn_add(x, bias), *loss = NULL;
    for (int i = 0; i < 3; i++) {
        tn_tensor *part  = tn_slice(all, 2, i * H * D, (i + 1) * H * D, 1);
        tn_tensor *heads = tn_permute(tn_reshape(part, TN_SHAPE(B, T, H, D)), TN_AXES(0, 2, 1, 3));
        tn_tensor *term  = tn_sum_all(tn_mul(tn_mul_s(heads, i + 1), g[i]));
        loss             = loss ? tn_add(loss, term) : term;
    }
    tn_tensor *gx[2];
    CHECK_STATUS(tn_grad(1, &loss, 2, (tn_tensor *const[]){ x, bias }, NULL, gx), TN_OK);
    tn_detach(loss);
    kernels(cx);
    CHECK(strstr(page, "update") == NULL && strstr(page, "full") == NULL);
    static double row[MOST], down[MOST], want[MOST];
    static double part[3][MOST];
    for (int i = 0; i < 3; i++) read(g[i], part[i]);
    CHECK_INT(read(gx[0], row), B * T * 3 * H * D);
    CHECK_INT(read(gx[1], down), 3 * H * D);
    bool ok = true;
    memset(want, 0, sizeof want);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            for (int c = 0; c < 3 * H * D; c++) {
                int    i = c / (H * D), h = c / D % H, d = c % D;
                double e = (i + 1) * part[i][((b * H + h) * T + t) * D + d];
                ok &= row[(b * T + t) * 3 * H * D + c] == e;
                want[c] += e;
            }
    for (int c = 0; c < 3 * H * D; c++) ok &= fabs(down[c] - want[c]) < 1e-4;
    CHECK(ok);
    tn_close(cx);
}

// ---- values computed where they are written

// Row `at` of x becomes a + b, in steps that write in place. What else reads x or the new row:
// `old` the sum of x before, `new` of x after, `twice` the row times two.
static void write_row(tn_ctx *cx, tn_tensor *x, tn_tensor *a, tn_tensor *b, int at, double out[3])
{
    tn_scope  *scope = tn_begin(cx);
    tn_tensor *old   = at % 2 ? tn_want(tn_sum_all(x)) : NULL;
    tn_tensor *row   = tn_add(a, b);
    tn_tensor *after = at % 3 ? NULL : tn_want(tn_sum_all(tn_mul(x, row)));
    tn_assign(tn_select(x, 0, at), row);
    tn_tensor *twice = tn_want(tn_sum_all(tn_mul_s(row, 2)));
    tn_tensor *all   = tn_want(tn_sum_all(x));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    out[0] = old ? tn_item(old) : after ? tn_item(after) : 0;
    out[1] = tn_item(twice);
    out[2] = tn_item(all);
    tn_end(scope);
}

// A value that is computed into its place is there for what reads it, and not yet for what reads
// the old one.
static void a_row_is_written_where_nothing_reads_the_old_one(void)
{
    enum { ROWS = 8 };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = there(cx, TN_SHAPE(ROWS, K)), *a = there(cx, TN_SHAPE(K)),
                  *b = there(cx, TN_SHAPE(K));
        double v[ROWS * K], p[K], q[K];
        read(x, v), read(a, p), read(b, q);
        for (int at = 0; at < ROWS; at++) {
            double out[3], sum = 0, product = 0, row = 0;
            for (int i = 0; i < ROWS * K; i++) sum += v[i], product += v[i] * (p[i % K] + q[i % K]);
            for (int i = 0; i < K; i++) row += v[at * K + i] = p[i] + q[i];
            write_row(cx, x, a, b, at, out);
            double all = 0;
            for (int i = 0; i < ROWS * K; i++) all += v[i];
            CHECK_NEAR(out[0], at % 2 ? sum : at % 3 ? 0 : product, 1e-6);
            CHECK_NEAR(out[1], 2 * row, 1e-6);
            CHECK_NEAR(out[2], all, 1e-6);
        }
    }
}

// ---- indices beside nothing

static void an_index_is_checked_where_it_is_one(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x       = there(cx, TN_SHAPE(K));
        tn_tensor *in      = tn_from(cx, TN_I64, TN_SHAPE(2), (int64_t[]){ 3, 0 });
        int64_t    three[] = { 3 };
        // 3 - i at the places of the pad would be no index.
        tn_tensor *y = tn_pad(tn_gather(x, 0, tn_rsub_s(in, 3)), three, three, 8);
        CHECK_VALUES(y, 8, 8, 8, -3, 7.5, 8, 8, 8);
        tn_tensor *bad  = tn_gather(x, 0, tn_add_s(in, 20));
        tn_tensor *pair = tn_concat(2, (tn_tensor *const[]){ bad, x }, 0);
        double     value[MOST];
        CHECK(read(pair, value) < 0);
        CHECK_FAILED(cx, TN_EARG, "gather");
    }
}

const test_case tests_slices[] = {
    TEST(a_view_of_views_has_its_gradients_of_both_orders),
    TEST(pads_and_joins_are_one_kernel_and_right),
    TEST(pads_and_joins_are_the_same_on_opencl),
    TEST(a_slice_of_one_joined_value_reads_that_one),
    TEST(joined_products_take_no_kernel_more),
    TEST(gradients_of_three_slices_need_no_updates),
    TEST(a_row_is_written_where_nothing_reads_the_old_one),
    TEST(an_index_is_checked_where_it_is_one),
    TEST_END,
};
