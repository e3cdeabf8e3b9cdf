// test_numerics.c: results that are easily lost to rounding, and rules of ties, held on every way
// to compute them: ref, kernels interpreted and compiled on the cpu, and opencl.
#include "check.h"
#include "tenon.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void body(tn_ctx *cx);

static void run_on(const char *device, body *f)
{
    tn_ctx *cx = tn_open(device);
    if (!test_that(cx != NULL, "no context: %s", tn_error_text(NULL))) return;
    f(cx);
    test_that(!tn_error(cx), "%s: %s", device, tn_error_text(cx));
    tn_close(cx);
}

// In a process of its own, since a compiler is looked for once.
static void run_apart(const char *variable, const char *setting, const char *device, body *f)
{
    pid_t pid = fork();
    if (pid == 0) {
        setenv("TN_CACHE_DIR", "none", 1);
        setenv(variable, setting, 1);
        run_on(device, f);
        _exit(0);
    }
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

static void on_the_host(body *f)
{
    run_on("ref", f);
    run_apart("TN_CC", "none", "cpu", f);
    run_apart("TN_COMPILE", "wait", "cpu", f);
}

#define ON_OPENCL(f)                                                   \
    do {                                                               \
        tn_ctx *there = tn_open("opencl");                             \
        if (!there) SKIP("no opencl device: %s", tn_error_text(NULL)); \
        tn_close(there);                                               \
        setenv("TN_CACHE_DIR", "none", 1);                             \
        run_on("opencl", f);                                           \
    } while (0)

// ---- expectations ------------------------------------------------------------------------------

enum { MOST = 4000, EXPECTED = 32 };

// What a tensor of n elements should be, and how far off it may be, as a part of its largest; of
// every element where `each` is set.
typedef struct {
    tn_tensor  *y;
    const char *what;
    double      tol;
    bool        each;
    int         n;
    double      want[MOST];
} expectation;

static expectation expected[EXPECTED];
static int         expectations;

static double *expect(tn_tensor *y, int n, double tol, bool each, const char *what)
{
    expectation *e = &expected[expectations++];
    e->y = y, e->n = n, e->tol = tol, e->each = each, e->what = what;
    return e->want;
}

static void expect_copy(tn_tensor *y, const double *want, int n, double tol, const char *what)
{
    memcpy(expect(y, n, tol, false, what), want, (size_t)n * sizeof *want);
}

static double off_by(const expectation *e)
{
    static double have[MOST];
    double        worst = 0, most = 0;
    if (!e->y || tn_count(e->y) != e->n || tn_read(e->y, TN_F64, have, e->n) != TN_OK)
        return INFINITY;
    for (int i = 0; i < e->n; i++) {
        double off = fabs(have[i] - e->want[i]) / (e->each ? fabs(e->want[i]) : 1);
        if (!(off <= worst)) worst = off;
        most = fmax(most, fabs(e->want[i]));
    }
    return e->each ? worst : worst / most;
}

// Looks at all that is expected, computed one by one, or together: in one plan, whose kernels are
// compiled at once.
static void check_expected(tn_ctx *cx, bool together)
{
    tn_tensor *all = tn_zeros(cx, TN_F64, TN_0D);
    for (int i = 0; i < expectations; i++)
        all = tn_add(all, tn_sum_all(tn_cast(expected[i].y, TN_F64)));
    if (together) tn_item(all);
    for (int i = 0; i < expectations; i++) {
        double off = off_by(&expected[i]);
        test_case_result(off <= expected[i].tol, "%s, %s: %g off", expected[i].what,
                         tn_dtype_name(tn_dtype_of(expected[i].y)), off);
    }
    expectations = 0;
}

// ---- circular functions ------------------------------------------------------------------------

enum { EXPONENTS = 128, EACH = 8, ANGLES = EXPONENTS * EACH };

// Numbers of every exponent from 1 up to the largest f32, of both signs.
static void draw_angles(double *x)
{
    uint32_t s = 1;
    for (int i = 0; i < ANGLES; i++) {
        s           = s * 1664525u + 1013904223u;
        double unit = 1 + (double)(s >> 9) / (double)(1 << 23);
        x[i]        = ldexp(i & 1 ? -unit : unit, i / EACH);
    }
}

static void expect_angles(tn_ctx *cx, tn_dtype dt, double tol)
{
    double x[ANGLES];
    draw_angles(x);
    tn_tensor *t = tn_cast(tn_from(cx, TN_F64, TN_SHAPE(ANGLES), x), dt);
    if (!CHECK(tn_read(t, TN_F64, x, ANGLES) == TN_OK)) return;
    double *s = expect(tn_sin(t), ANGLES, tol, true, "sin");
    double *c = expect(tn_cos(t), ANGLES, tol, true, "cos");
    double *u = expect(tn_tan(t), ANGLES, tol, true, "tan");
    for (int k = 0; k < ANGLES; k++) s[k] = sin(x[k]), c[k] = cos(x[k]), u[k] = tan(x[k]);
}

static void circular_functions_on(tn_ctx *cx)
{
    expect_angles(cx, TN_BF16, 0x1p-8);
    expect_angles(cx, TN_F32, 0x1.4p-23);
    expect_angles(cx, TN_F64, 0x1p-50);
    check_expected(cx, true);
}

// PoCL takes a second for a kernel, and much longer for a large one.
static void circular_floats_on(tn_ctx *cx)
{
    expect_angles(cx, TN_F32, 0x1.4p-23);
    check_expected(cx, false);
}

static void circular_functions_of_large_numbers_are_right(void)
{
    on_the_host(circular_functions_on);
}

static void circular_functions_of_large_numbers_are_right_on_opencl(void)
{
    ON_OPENCL(circular_floats_on);
}

// ---- statistics of numbers far from 0 ----------------------------------------------------------

// ROWS rows, or images of C channels.
enum { ROWS = 4, COLUMNS = 1000, C = 2, COUNT = ROWS * COLUMNS, LINES = ROWS * C };

// Numbers about a mean; a tolerance for results of a dtype, as a part of the largest.
typedef struct {
    tn_dtype dt;
    double   mean, deviation, tol;
} far_off;

static const far_off far_offs[] = {
    { TN_F32, 1e6, 1, 1e-6 },      { TN_F32, -3e7, 20, 1e-6 }, { TN_F32, 0, 1, 1e-6 },
    { TN_F64, 1e6, 1, 1e-12 },     { TN_F64, 1e13, 1, 1e-12 }, { TN_F16, 3000, 16, 0x1p-10 },
    { TN_BF16, 1000, 16, 0x1p-7 },
};

static tn_tensor *draw_far(tn_ctx *cx, const far_off *f, double *x)
{
    uint32_t s = 7;
    for (int i = 0; i < COUNT; i++) {
        double sum = 0;  // of 12 uniform numbers: about normal
        for (int k = 0; k < 12; k++)
            s = s * 1664525u + 1013904223u, sum += (double)s / 4294967296.0;
        x[i] = f->mean + f->deviation * (sum - 6);
    }
    tn_tensor *t = tn_cast(tn_from(cx, TN_F64, TN_SHAPE(ROWS, COLUMNS), x), f->dt);
    CHECK(tn_read(t, TN_F64, x, COUNT) == TN_OK);
    return t;
}

// n numbers: runs of `run` side by side, each `each` behind the one before.
typedef struct {
    const double *x;
    int           n, run, each;
} line;

static int place(const line *l, int i)
{
    return i / l->run * l->each + i % l->run;
}

// Their distances from the mean d, which is returned, and their sum of squares. Differences of
// neighbours are exact.
static double measure(const line *l, double *d, double *squares)
{
    double base = l->x[0], rest = 0;
    *squares = 0;
    for (int i = 0; i < l->n; i++) rest += (l->x[place(l, i)] - base) / l->n;
    for (int i = 0; i < l->n; i++) {
        d[i] = l->x[place(l, i)] - base - rest;
        *squares += d[i] * d[i];
    }
    return base + rest;
}

static void expect_variances(tn_ctx *cx, const far_off *f)
{
    static double x[COUNT], d[COLUMNS];
    tn_tensor    *t = tn_requires_grad(draw_far(cx, f, x), true), *g = NULL, *h = NULL;
    tn_tensor    *v = tn_var(t, 1), *s = tn_std(t, 1), *one = tn_sum_all(v), *two = tn_sum_all(s);
    CHECK(tn_grad(1, &one, 1, &t, NULL, &g) == TN_OK && tn_grad(1, &two, 1, &t, NULL, &h) == TN_OK);
    double *var = expect(v, ROWS, f->tol, false, "var"),
           *gv  = expect(g, COUNT, f->tol, false, "its gradient");
    double *std = expect(s, ROWS, f->tol, false, "std"),
           *gs  = expect(h, COUNT, f->tol, false, "its gradient");
    for (int r = 0; r < ROWS; r++) {
        double squares, n = COLUMNS - 1;
        measure(&(line){ x + r * COLUMNS, COLUMNS, COLUMNS, 0 }, d, &squares);
        var[r] = squares / n;
        std[r] = sqrt(var[r]);
        for (int i = 0; i < COLUMNS; i++) {
            gv[r * COLUMNS + i] = 2 * d[i] / n;
            gs[r * COLUMNS + i] = d[i] / n / std[r];
        }
    }
}

// What normalizing lines gives, `apart` from one to the next, and the gradient of its sum weighed
// by w.
typedef struct {
    double y[COUNT], g[COUNT], mean[LINES], var[LINES];
} normalized;

static void normalize(normalized *o, line l, int lines, int apart, const double *w)
{
    static double d[COUNT];
    for (int k = 0; k < lines; k++, l.x += apart) {
        double squares, sum = 0, dot = 0;
        o->mean[k] = measure(&l, d, &squares);
        o->var[k]  = squares / l.n;
        double r   = 1 / sqrt(o->var[k] + 1e-5);
        for (int i = 0; i < l.n; i++) {
            double gy = w[k * apart + place(&l, i)];
            sum += gy / l.n;
            dot += gy * d[i] * r / l.n;
        }
        for (int i = 0; i < l.n; i++) {
            int at   = k * apart + place(&l, i);
            o->y[at] = d[i] * r;
            o->g[at] = r * (w[at] - sum - d[i] * r * dot);
        }
    }
}

static void expect_norm(tn_tensor *y, tn_tensor *x, tn_tensor *w, const normalized *o, double tol,
                        const char *what)
{
    tn_tensor *g = NULL, *sum = tn_sum_all(tn_mul(tn_reshape(y, TN_SHAPE(ROWS, COLUMNS)), w));
    CHECK(tn_grad(1, &sum, 1, &x, NULL, &g) == TN_OK);
    expect_copy(y, o->y, COUNT, tol, what);
    expect_copy(g, o->g, COUNT, 2 * tol, "its gradient");
}

static void expect_norms(tn_ctx *cx, const far_off *f)
{
    static double     x[COUNT], w[COUNT];
    static normalized o;
    const int         half = COLUMNS / C, n = ROWS * half;
    tn_tensor        *t = tn_requires_grad(draw_far(cx, f, x), true);
    for (int i = 0; i < COUNT; i++) w[i] = (double)(i * 7 % 13 - 6) / 8;
    tn_tensor *weigh = tn_cast(tn_from(cx, TN_F64, TN_SHAPE(ROWS, COLUMNS), w), f->dt);
    tn_tensor *image = tn_reshape(t, TN_SHAPE(ROWS, C, half));
    tn_dtype   wide  = f->dt == TN_F64 ? TN_F64 : TN_F32;
    tn_tensor *m = tn_zeros(cx, wide, TN_SHAPE(C)), *v = tn_ones(cx, wide, TN_SHAPE(C));

    normalize(&o, (line){ x, COLUMNS, COLUMNS, 0 }, ROWS, COLUMNS, w);
    expect_norm(tn_layer_norm(t, 1, NULL, NULL, 0), t, weigh, &o, f->tol, "layer_norm");
    normalize(&o, (line){ x, half, half, 0 }, LINES, half, w);
    expect_norm(tn_group_norm(image, C, NULL, NULL, 0), t, weigh, &o, f->tol, "group_norm");
    normalize(&o, (line){ x, n, half, COLUMNS }, C, half, w);
    tn_batch_norm_opts opts = { .training = true, .momentum = 1 };
    expect_norm(tn_batch_norm(image, m, v, NULL, NULL, opts), t, weigh, &o, f->tol, "batch_norm");
    for (int c = 0; c < C; c++) o.var[c] *= n / (n - 1.0);
    expect_copy(m, o.mean, C, f->mean != 0 ? f->tol : 1e-5, "its mean");
    expect_copy(v, o.var, C, f->tol, "its variance");
}

static void far_numbers_on(tn_ctx *cx)
{
    for (size_t i = 0; i < sizeof far_offs / sizeof *far_offs; i++) {
        expect_variances(cx, &far_offs[i]);
        expect_norms(cx, &far_offs[i]);
        check_expected(cx, true);
    }
}

static void far_floats_on(tn_ctx *cx)
{
    expect_norms(cx, &far_offs[0]);
    check_expected(cx, false);
}

static void statistics_of_numbers_far_from_zero_keep_their_digits(void)
{
    on_the_host(far_numbers_on);
}

static void statistics_of_numbers_far_from_zero_keep_their_digits_on_opencl(void)
{
    ON_OPENCL(far_floats_on);
}

// Where all numbers are equal, what rounding leaves of the mean must not become a negative
// variance.
static void equal_numbers_on(tn_ctx *cx)
{
    static const double values[] = { 0.1, 1e6 + 0.5, 3e8, -7e15, 1e-30 };
    double              v, s, y[COLUMNS];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        tn_tensor *t = tn_full(cx, TN_F32, TN_SHAPE(COLUMNS), values[i]);
        CHECK(tn_read(tn_var_all(t), TN_F64, &v, 1) == TN_OK && v >= 0 &&
              v < 1e-10 * values[i] * values[i]);
        CHECK(tn_read(tn_std_all(t), TN_F64, &s, 1) == TN_OK && s >= 0);
        CHECK(tn_read(tn_layer_norm(t, 1, NULL, NULL, 0), TN_F64, y, COLUMNS) == TN_OK);
        for (int k = 0; k < COLUMNS; k++)
            if (!CHECK(fabs(y[k]) < 2)) return;
    }
}

// PyTorch's is infinite too.
static void infinite_batch_on(tn_ctx *cx)
{
    tn_tensor *x    = tn_from(cx, TN_F32, TN_SHAPE(3, 1), (float[]){ 0.5f, 1.25f, -INFINITY });
    tn_tensor *mean = tn_zeros(cx, TN_F32, TN_SHAPE(1)), *var = tn_ones(cx, TN_F32, TN_SHAPE(1));
    tn_batch_norm(x, mean, var, NULL, NULL, (tn_batch_norm_opts){ .training = true });
    CHECK(tn_item(mean) == -INFINITY);
    CHECK(isnan(tn_item(var)));
}

static void a_running_mean_takes_an_infinity(void)
{
    on_the_host(infinite_batch_on);
}

static void equal_numbers_have_no_negative_variance(void)
{
    on_the_host(equal_numbers_on);
}

// ---- the gradient of a maximum that several elements have --------------------------------------

// A pool of images: kernel (of adaptive pools, the sizes of the result), stride, padding, dilation.
// `lies` is the order of memory of x: row-major, channels last, or with its last axes exchanged.
typedef struct {
    const char *what;
    tn_dtype    dt;
    enum { WINDOWS, LINE, REGIONS } kind;
    enum { FEW, WITH_NAN, WITH_LEAST } values;
    enum { ROWS_FIRST, CHANNELS_LAST, COLUMNS_FIRST } lies;
    int64_t kernel[2], stride[2], padding[2], dilation[2];
} tied_pool;

// clang-format off
static const tied_pool tied_pools[] = {
    { "windows side by side",    TN_F32,  WINDOWS, FEW,        ROWS_FIRST,    { 2, 2 }, { 2, 2 }, { 0, 0 }, { 1, 1 } },
    { "windows that overlap",    TN_F32,  WINDOWS, FEW,        ROWS_FIRST,    { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 } },
    { "dilated windows",         TN_F32,  WINDOWS, WITH_LEAST, ROWS_FIRST,    { 3, 2 }, { 1, 2 }, { 2, 1 }, { 2, 3 } },
    { "windows with NaN",        TN_F32,  WINDOWS, WITH_NAN,   ROWS_FIRST,    { 3, 2 }, { 1, 2 }, { 1, 1 }, { 1, 1 } },
    { "windows of -inf",         TN_F32,  WINDOWS, WITH_LEAST, ROWS_FIRST,    { 3, 3 }, { 2, 1 }, { 1, 1 }, { 1, 1 } },
    { "channels last",           TN_F16,  WINDOWS, WITH_LEAST, CHANNELS_LAST, { 3, 3 }, { 2, 2 }, { 1, 1 }, { 1, 1 } },
    { "columns first",           TN_BF16, WINDOWS, WITH_NAN,   COLUMNS_FIRST, { 3, 2 }, { 2, 1 }, { 1, 1 }, { 1, 1 } },
    { "doubles",                 TN_F64,  WINDOWS, FEW,        ROWS_FIRST,    { 2, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    { "a line",                  TN_F32,  LINE,    WITH_LEAST, ROWS_FIRST,    { 4, 1 }, { 3, 1 }, { 2, 1 }, { 1, 1 } },
    { "a line of f16",           TN_F16,  LINE,    WITH_NAN,   ROWS_FIRST,    { 3, 1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    { "equal regions",           TN_F32,  REGIONS, FEW,        ROWS_FIRST,    { 4, 3 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { "regions that overlap",    TN_F32,  REGIONS, WITH_NAN,   CHANNELS_LAST, { 3, 4 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
    { "regions of f16",          TN_F16,  REGIONS, FEW,        COLUMNS_FIRST, { 5, 2 }, { 0, 0 }, { 0, 0 }, { 0, 0 } },
};
// clang-format on

// Images of 2 channels, 8 by 9; as lines, 72 long.
enum { PLANES = 4, TALL = 8, WIDE = 9, PIXELS = PLANES * TALL * WIDE };

static void draw_tied(const tied_pool *p, double *x)
{
    uint32_t s = 11;
    for (int i = 0; i < PIXELS; i++) {
        s    = s * 1664525u + 1013904223u;
        x[i] = (double)(s >> 28) / 4 - 2;
        if (p->values == WITH_NAN && (s >> 20) % 5 == 0) x[i] = NAN;
        if (p->values == WITH_LEAST && (s >> 20) % 8 < 5) x[i] = -INFINITY;
    }
}

// Elements from start up to below stop, every d of them.
typedef struct {
    int start, stop, d;
} span;

static span span_of(const tied_pool *p, int axis, int i, int size)
{
    int k = (int)p->kernel[axis];
    if (p->kind == REGIONS) return (span){ i * size / k, ((i + 1) * size + k - 1) / k, 1 };
    int d = (int)p->dilation[axis], start = i * (int)p->stride[axis] - (int)p->padding[axis];
    int stop = start + (k - 1) * d + 1;
    while (start < 0) start += d;
    return (span){ start, stop < size ? stop : size, d };
}

static int spans(const tied_pool *p, int axis, int size)
{
    int k = (int)p->kernel[axis], d = (int)p->dilation[axis];
    if (p->kind == REGIONS) return k;
    return (size + 2 * (int)p->padding[axis] - (k - 1) * d - 1) / (int)p->stride[axis] + 1;
}

// Where PyTorch's pools find the maximum of a plane's window: the first of equals, the last NaN.
static int chosen(const double *x, span h, span w, int wide)
{
    int at = h.start * wide + w.start;
    for (int i = h.start; i < h.stop; i += h.d)
        for (int j = w.start; j < w.stop; j += w.d) {
            double v = x[i * wide + j];
            if (v > x[at] || v != v) at = i * wide + j;
        }
    return at;
}

// The places in x that the results come from; how many results there are.
static int find_chosen(const tied_pool *p, const double *x, int *at)
{
    bool flat = p->kind == LINE;
    int  tall = flat ? 1 : TALL, wide = flat ? TALL * WIDE : WIDE, n = 0;
    int  rows = flat ? 1 : spans(p, 0, tall), columns = spans(p, flat ? 0 : 1, wide);
    for (int k = 0; k < PLANES; k++)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++) {
                span h  = flat ? (span){ 0, 1, 1 } : span_of(p, 0, i, tall);
                span w  = span_of(p, flat ? 0 : 1, j, wide);
                at[n++] = k * TALL * WIDE + chosen(x + k * TALL * WIDE, h, w, wide);
            }
    return n;
}

static tn_tensor *pool_of(const tied_pool *p, tn_tensor *x)
{
    tn_pool_opts o = { 0 };
    memcpy(o.stride, p->stride, sizeof p->stride);
    memcpy(o.padding, p->padding, sizeof p->padding);
    memcpy(o.dilation, p->dilation, sizeof p->dilation);
    if (p->lies == CHANNELS_LAST) x = tn_channels_last(x);
    if (p->lies == COLUMNS_FIRST) x = tn_transpose(tn_contiguous(tn_transpose(x, 2, 3)), 2, 3);
    if (p->kind == REGIONS) return tn_adaptive_max_pool2d(x, p->kernel[0], p->kernel[1]);
    if (p->kind == LINE) return tn_max_pool1d(tn_reshape(x, TN_SHAPE(2, 2, -1)), p->kernel[0], o);
    return tn_max_pool2d(x, p->kernel[0], p->kernel[1], o);
}

// The gradient of x is that of all results that came from it; and the gradient of that, weighed by
// v, with respect to the result's is v where the result came from.
static void expect_pool(tn_ctx *cx, const tied_pool *p)
{
    double x[PIXELS], ones[MOST], v[PIXELS];
    int    at[MOST];
    draw_tied(p, x);
    int n = find_chosen(p, x, at);
    for (int i = 0; i < n; i++) ones[i] = 1 + i % 7;
    for (int i = 0; i < PIXELS; i++) v[i] = i % 5 - 2;
    const int64_t shape[] = { 2, 2, TALL, WIDE };
    tn_tensor    *t = tn_requires_grad(tn_cast(tn_from(cx, TN_F64, 4, shape, x), p->dt), true);
    tn_tensor    *y = pool_of(p, t), *gx = NULL, *gg = NULL;
    int64_t       size[TN_MAX_RANK] = { 0 };
    for (int i = 0; y && i < tn_rank(y); i++) size[i] = tn_size(y, i);
    if (!test_that(tn_count(y) == n, "%s: %lld results, not %d", p->what, (long long)tn_count(y),
                   n))
        return;
    tn_tensor *gy = tn_requires_grad(tn_cast(tn_from(cx, TN_F64, tn_rank(y), size, ones), p->dt),
                                     true);
    CHECK(tn_grad(1, &y, 1, &t, &gy, &gx) == TN_OK);
    tn_tensor *sum = tn_sum_all(tn_mul(gx, tn_cast(tn_from(cx, TN_F64, 4, shape, v), p->dt)));
    CHECK(tn_grad(1, &sum, 1, &gy, NULL, &gg) == TN_OK);
    double *want = expect(gx, PIXELS, 0, false, p->what), *twice = expect(gg, n, 0, false, p->what);
    memset(want, 0, sizeof x);
    for (int i = 0; i < n; i++) want[at[i]] += ones[i], twice[i] = v[at[i]];
}

static void tied_pools_on(tn_ctx *cx)
{
    for (size_t i = 0; i < sizeof tied_pools / sizeof *tied_pools; i++)
        expect_pool(cx, &tied_pools[i]);
    check_expected(cx, true);
}

static void some_tied_pools_on(tn_ctx *cx)
{
    expect_pool(cx, &tied_pools[4]);
    expect_pool(cx, &tied_pools[11]);
    check_expected(cx, false);
}

// A pool of x[i] = i + 1, whose windows may reach past its ends: the largest element that a window
// meets is its last.
static bool pool_is_right(tn_ctx *cx, int n, int k, int d, int pad, int s)
{
    double     have[8];
    int        windows = (n + 2 * pad - (k - 1) * d - 1) / s + 1;
    tn_tensor *x       = tn_view(tn_arange(cx, TN_F64, 1, n + 1, 1), TN_SHAPE(1, n));
    tn_tensor *y       = tn_max_pool1d(x, k, (tn_pool_opts){ { s }, { pad }, { d }, false, false });
    if (!y || tn_count(y) != windows || tn_read(y, TN_F64, have, windows) != TN_OK) return false;
    for (int w = 0; w < windows; w++) {
        double most = -INFINITY;
        for (int t = 0, i = w * s - pad; t < k; t++, i += d)
            if (i >= 0 && i < n) most = i + 1;
        if (have[w] != most) return false;
    }
    return true;
}

static void windows_past_the_ends_meet_what_lies_inside(void)
{
    tn_ctx       *cx    = tn_open("ref");
    const int64_t far   = (INT64_C(1) << 40) + 1;
    int           tried = 0, wrong = 0;
    for (int n = 1; n <= 5; n++)
        for (int k = 1; k <= 7; k++)
            for (int d = 1; d <= 3; d++)
                for (int pad = 0; pad <= ((k - 1) * d + 1) / 2; pad++)
                    for (int s = 1; s <= 4 && n + 2 * pad > (k - 1) * d; s++, tried++)
                        wrong += !pool_is_right(cx, n, k, d, pad, s);
    test_that(tried > 700 && wrong == 0, "%d of %d pools are wrong", wrong, tried);
    CHECK(tn_item(tn_max_pool1d(tn_ones(cx, TN_F32, TN_SHAPE(1, 1)), far,
                                (tn_pool_opts){ { 1 }, { far / 2 }, { 1 }, false, false })) == 1);
    tn_close(cx);
}

static void the_first_of_equal_maxima_gets_the_gradient_of_a_pool(void)
{
    on_the_host(tied_pools_on);
}

static void the_first_of_equal_maxima_gets_the_gradient_of_a_pool_on_opencl(void)
{
    ON_OPENCL(some_tied_pools_on);
}

const test_case tests_numerics[] = {
    TEST(circular_functions_of_large_numbers_are_right),
    TEST(circular_functions_of_large_numbers_are_right_on_opencl),
    TEST(statistics_of_numbers_far_from_zero_keep_their_digits),
    TEST(statistics_of_numbers_far_from_zero_keep_their_digits_on_opencl),
    TEST(equal_numbers_have_no_negative_variance),
    TEST(a_running_mean_takes_an_infinity),
    TEST(windows_past_the_ends_meet_what_lies_inside),
    TEST(the_first_of_equal_maxima_gets_the_gradient_of_a_pool),
    TEST(the_first_of_equal_maxima_gets_the_gradient_of_a_pool_on_opencl),
    TEST_END,
};
