// Random graphs: drawing, building, listing.
//
// Values stay small and functions smooth, so that a rounding cannot grow into a difference: each
// value carries a bound of its size and the rounding of its coarsest dtype. What jumps
// (comparisons, casts to integers) is only done to exact values, which every device has alike.
#include "graphs.h"

#include "check.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// A value: its size is at most `bound`, it is exact, or right within eps times the bound.
typedef struct {
    tn_tensor *t;
    double     bound, eps;
    bool       exact, output;
} value;

typedef struct {
    tn_ctx           *cx;
    FILE             *listing;
    const graph_step *at;
    value             v[GRAPH_VALUES];
    int               count;
    uint64_t          fill;  // of input data
} builder;

static uint64_t next(uint64_t *s)
{
    uint64_t z = (*s += 0x9e3779b97f4a7c15u);
    z          = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z          = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void graph_draw(graph *g, uint64_t seed)
{
    uint64_t s = seed;
    *g         = (graph){ .seed = seed };
    g->count   = 4 + (int)(next(&s) % (GRAPH_STEPS - 3));
    for (int i = 0; i < g->count; i++) {
        g->step[i].kind = (uint32_t)(next(&s) >> 32);
        for (int k = 0; k < GRAPH_ARGS; k++) g->step[i].r[k] = (uint32_t)(next(&s) >> 32);
    }
}

static uint32_t arg(const builder *b, int i)
{
    return b->at->r[i];
}

static void say(const builder *b, const char *format, ...) TEST_PRINTF(2, 3);
static void say(const builder *b, const char *format, ...)
{
    va_list ap;
    if (!b->listing) return;
    va_start(ap, format);
    fprintf(b->listing, "    ");
    vfprintf(b->listing, format, ap);
    fprintf(b->listing, "\n");
    va_end(ap);
}

static double rounding(tn_dtype dt)
{
    return dt == TN_F16 ? 0x1p-10 : dt == TN_BF16 ? 0x1p-7 : dt == TN_F32 ? 0x1p-21 : 0x1p-48;
}

static bool is_float(const value *x)
{
    return tni_is_float(tn_dtype_of(x->t));
}

// ---- values ------------------------------------------------------------------------------------

// Adds a value made from a and b (either may be NULL); drops what is NULL or too large.
static value *put(builder *b, tn_tensor *t, const value *a, const value *c, double bound,
                  bool exact)
{
    if (!t || b->count == GRAPH_VALUES || tn_count(t) > GRAPH_MOST) return NULL;
    double eps = rounding(tn_dtype_of(t));
    if (a && a->eps > eps) eps = a->eps;
    if (c && c->eps > eps) eps = c->eps;
    if (bound > 64 && tni_is_float(tn_dtype_of(t))) {
        t = tn_mul_s(tn_tanh(tn_mul_s(t, 1 / bound)), 4);
        say(b, "t%d = tn_mul_s(tn_tanh(tn_mul_s(t%d, %.17g)), 4);  // tamed", b->count, b->count,
            1 / bound);
        bound = 4;
        exact = false;
    }
    b->v[b->count] = (value){ .t = t, .bound = bound, .eps = eps * 2, .exact = exact };
    return &b->v[b->count++];
}

static int number(const builder *b, const value *x)
{
    return (int)(x - b->v);
}

typedef bool fits(const value *x);

// A random value that fits, NULL if none does; the last ones rather than the first.
static value *pick(builder *b, uint32_t r, fits *f)
{
    for (int k = 0; k < b->count; k++) {
        int i = b->count - 1 -
                (int)((r % (r & 1024 ? 4u : 64u) + (uint32_t)k) % (uint32_t)b->count);
        if (!f || f(&b->v[i])) return &b->v[i];
    }
    return NULL;
}

static bool is_exact_int(const value *x)
{
    return !is_float(x) && tn_dtype_of(x->t) != TN_BOOL;
}
static bool is_bool(const value *x)
{
    return tn_dtype_of(x->t) == TN_BOOL;
}
static bool has_axes(const value *x)
{
    return tn_rank(x->t) > 0;
}
static bool float_axes(const value *x)
{
    return is_float(x) && tn_rank(x->t) > 0;
}
static bool can_view(const value *x)
{
    return tn_rank(x->t) > 0 && tn_rank(x->t) < 5;
}

// Multiples of 1/4 from -3 to 3, or small integers: exact in every dtype.
static void make_input(builder *b)
{
    static const int64_t     sizes[] = { 1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 40, 3, 5, 64, 2, 9 };
    static const tn_dtype    kinds[] = { TN_F32,  TN_F32, TN_F32, TN_F64, TN_BF16, TN_F16,
                                         TN_BOOL, TN_U8,  TN_I8,  TN_I32, TN_I64 };
    int                      rank    = (int)(arg(b, 0) % 5);
    int64_t                  size[5], n = 1;
    tn_dtype                 dt        = kinds[arg(b, 1) % 11];
    static const char *const name[]    = { "TN_BOOL", "TN_U8",   "TN_I8",  "TN_I32", "TN_I64",
                                           "TN_F16",  "TN_BF16", "TN_F32", "TN_F64" };
    char                     shape[80] = "";
    for (int i = 0; i < rank; i++) {
        size[i] = sizes[(arg(b, 2) >> 4 * i) & 15];
        if (rank == 2 && i == 1 && arg(b, 3) % 9 == 0) size[i] = 1000 + arg(b, 4) % 60;
        n *= size[i];
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", i ? ", " : "",
                 (long long)size[i]);
    }
    if (n > GRAPH_MOST) return;
    double *data = malloc((size_t)(n ? n : 1) * sizeof *data);
    for (int64_t i = 0; data && i < n; i++) {
        int64_t k = (int64_t)(next(&b->fill) % 25) - 12;
        data[i]   = tni_is_float(dt) ? (double)k / 4
                    : dt == TN_BOOL  ? k > 0
                    : dt == TN_U8    ? k + 12
                                     : k;
    }
    tn_tensor *t = data ? tn_cast(tn_from(b->cx, TN_F64, rank, size, data), dt) : NULL;
    free(data);
    if (t && tn_eval_of(t) != TN_OK) return;
    say(b, "t%d = input(%s, %d, (int64_t[]){ %s });", b->count, name[dt], rank, rank ? shape : "0");
    put(b, t, NULL, NULL, tni_is_float(dt) ? 3 : 24, true);
}

// ---- maps --------------------------------------------------------------------------------------

static void make_unary(builder *b)
{
    static tn_tensor *(*const f[])(tn_tensor *) = { tn_tanh, tn_neg,     tn_abs, tn_relu,
                                                    tn_gelu, tn_sigmoid, tn_sin, tn_square };
    static const char *const name[]             = { "tanh", "neg",     "abs", "relu",
                                                    "gelu", "sigmoid", "sin", "square" };
    value                   *x                  = pick(b, arg(b, 0), is_float);
    int                      k                  = (int)(arg(b, 1) % 8);
    if (!x) return;
    say(b, "t%d = tn_%s(t%d);", b->count, name[k], number(b, x));
    bool exact = x->exact && k >= 1 && k <= 3;
    put(b, f[k](x->t), x, NULL, k == 7 ? x->bound * x->bound : x->bound + (k == 5), exact);
}

static void make_exp(builder *b)
{
    value *x = pick(b, arg(b, 0), is_float);
    if (!x) return;
    say(b, "t%d = tn_exp(tn_neg(tn_abs(t%d)));", b->count, number(b, x));
    put(b, tn_exp(tn_neg(tn_abs(x->t))), x, NULL, 1 + x->bound, false);
}

// Whether b's shape goes with a's.
static bool pairs(tn_tensor *x, tn_tensor *y)
{
    for (int i = 1; i <= tn_rank(x) && i <= tn_rank(y); i++) {
        int64_t p = tn_size(x, -i), q = tn_size(y, -i);
        if (p != q && p != 1 && q != 1) return false;
    }
    return true;
}

static value *partner(builder *b, const value *x, uint32_t r, bool floats)
{
    for (int k = 0; k < b->count; k++) {
        value *y = &b->v[(r + (uint32_t)k) % (uint32_t)b->count];
        if (pairs(x->t, y->t) && is_float(y) == floats && !is_bool(y)) return y;
    }
    return NULL;
}

static void make_binary(builder *b)
{
    static tn_tensor *(*const f[])(tn_tensor *, tn_tensor *) = { tn_add, tn_sub, tn_mul, tn_maximum,
                                                                 tn_minimum };
    static const char *const name[] = { "add", "sub", "mul", "maximum", "minimum" };
    value                   *x      = pick(b, arg(b, 0), is_float);
    value                   *y      = x ? partner(b, x, arg(b, 1), true) : NULL;
    int                      k      = (int)(arg(b, 2) % 6);
    if (!y) return;
    if (k == 5) {
        say(b, "t%d = tn_div(t%d, tn_add_s(tn_abs(t%d), 1));", b->count, number(b, x),
            number(b, y));
        put(b, tn_div(x->t, tn_add_s(tn_abs(y->t), 1)), x, y, x->bound * (1 + y->bound), false);
        return;
    }
    say(b, "t%d = tn_%s(t%d, t%d);", b->count, name[k], number(b, x), number(b, y));
    double bound = k < 2    ? x->bound + y->bound
                   : k == 2 ? x->bound * y->bound
                            : fmax(x->bound, y->bound);
    put(b, f[k](x->t, y->t), x, y, bound, x->exact && y->exact && k > 2);
}

static void make_integer(builder *b)
{
    static tn_tensor *(*const f[])(tn_tensor *, tn_tensor *) = {
        tn_add, tn_sub, tn_mul, tn_maximum, tn_remainder, tn_floor_divide, tn_bit_xor
    };
    static const char *const name[] = { "add",       "sub",          "mul",    "maximum",
                                        "remainder", "floor_divide", "bit_xor" };
    value                   *x      = pick(b, arg(b, 0), is_exact_int);
    value                   *y      = x ? partner(b, x, arg(b, 1), false) : NULL;
    int                      k      = (int)(arg(b, 2) % 7);
    if (!y || !is_exact_int(y)) return;
    say(b, "t%d = tn_%s(t%d, t%d);", b->count, name[k], number(b, x), number(b, y));
    put(b, f[k](x->t, y->t), x, y, 64, true);
}

static void make_comparison(builder *b)
{
    value *x = pick(b, arg(b, 0), NULL);
    value *y = x && x->exact ? partner(b, x, arg(b, 1), is_float(x)) : NULL;
    if (!y || !y->exact) return;
    bool less = arg(b, 2) & 1;
    say(b, "t%d = tn_%s(t%d, t%d);", b->count, less ? "lt" : "eq", number(b, x), number(b, y));
    put(b, less ? tn_lt(x->t, y->t) : tn_eq(x->t, y->t), NULL, NULL, 1, true);
}

static void make_where(builder *b)
{
    value *c = pick(b, arg(b, 0), is_bool), *x = pick(b, arg(b, 1), is_float);
    value *y = x ? partner(b, x, arg(b, 2), true) : NULL;
    if (!c || !y || !pairs(c->t, x->t) || !pairs(c->t, y->t)) return;
    say(b, "t%d = tn_where(t%d, t%d, t%d);", b->count, number(b, c), number(b, x), number(b, y));
    put(b, tn_where(c->t, x->t, y->t), x, y, fmax(x->bound, y->bound), x->exact && y->exact);
}

// Floats to floats; exact values to anything.
static void make_cast(builder *b)
{
    static const tn_dtype    kinds[] = { TN_F32, TN_F64, TN_BF16, TN_F16, TN_I32, TN_I64, TN_U8 };
    static const char *const name[]  = { "TN_F32", "TN_F64", "TN_BF16", "TN_F16",
                                         "TN_I32", "TN_I64", "TN_U8" };
    value                   *x       = pick(b, arg(b, 0), NULL);
    int                      k       = (int)(arg(b, 1) % 7);
    if (!x || (k > 3 && !x->exact) || (k == 6 && is_float(x)) || (is_exact_int(x) && k > 1)) return;
    say(b, "t%d = tn_cast(t%d, %s);", b->count, number(b, x), name[k]);
    put(b, tn_cast(x->t, kinds[k]), x, NULL, x->bound, x->exact && k != 2);
}

// ---- folds -------------------------------------------------------------------------------------

static void make_reduce(builder *b)
{
    static tn_tensor *(*const f[])(tn_tensor *, int, const int *,
                                   bool) = { tn_sum_axes, tn_mean_axes, tn_max_axes, tn_min_axes };
    static const char *const name[]      = { "sum", "mean", "max", "min" };
    value                   *x           = pick(b, arg(b, 0), float_axes);
    int                      axes[8], n = 0, k = (int)(arg(b, 1) % 4);
    if (!x || tn_count(x->t) == 0) return;
    double folded   = 1;
    char   text[40] = "";
    for (int i = 0; i < tn_rank(x->t); i++)
        if (arg(b, 2) >> i & 1) {
            axes[n++] = i;
            folded *= (double)tn_size(x->t, i);
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", n > 1 ? ", " : "", i);
        }
    if (n == 0) return;
    bool keep = arg(b, 3) & 1;
    say(b, "t%d = tn_%s_axes(t%d, %d, (int[]){ %s }, %d);", b->count, name[k], number(b, x), n,
        text, keep);
    put(b, f[k](x->t, n, axes, keep), x, NULL, k == 0 ? x->bound * folded : x->bound,
        x->exact && k > 1);
}

static void make_rows(builder *b)
{
    value *x = pick(b, arg(b, 0), float_axes);
    if (!x || tn_count(x->t) == 0) return;
    int axis = (int)(arg(b, 1) % (uint32_t)tn_rank(x->t)), k = (int)(arg(b, 2) % 3);
    if (k == 2) {
        say(b, "t%d = tn_sub(t%d, tn_mean_keep(t%d, %d));", b->count, number(b, x), number(b, x),
            axis);
        put(b, tn_sub(x->t, tn_mean_keep(x->t, axis)), x, NULL, 2 * x->bound, false);
        return;
    }
    say(b, "t%d = tn_%s(t%d, %d);", b->count, k ? "log_softmax" : "softmax", number(b, x), axis);
    put(b, k ? tn_log_softmax(x->t, axis) : tn_softmax(x->t, axis), x, NULL, 8 + 2 * x->bound,
        false);
}

static void make_norm(builder *b)
{
    value *x = pick(b, arg(b, 0), float_axes);
    if (!x || tn_count(x->t) == 0) return;
    say(b, "t%d = tn_layer_norm(t%d, 1, NULL, NULL, 1.0);", b->count, number(b, x));
    put(b, tn_layer_norm(x->t, 1, NULL, NULL, 1.0), x, NULL, 8 + 2 * x->bound, false);
}

// ---- views and movement ------------------------------------------------------------------------

static void make_view(builder *b)
{
    value *x = pick(b, arg(b, 0), can_view);
    if (!x) return;
    int        rank = tn_rank(x->t), axis = (int)(arg(b, 1) % (uint32_t)rank);
    int64_t    n = tn_size(x->t, axis), from = (int64_t)(arg(b, 2) % (uint32_t)(n ? n : 1));
    int        me = b->count, it = number(b, x), other = (int)(arg(b, 3) % (uint32_t)rank);
    tn_tensor *t = NULL;
    switch (arg(b, 4) % 6) {
    case 0:
        say(b, "t%d = tn_transpose(t%d, %d, %d);", me, it, axis, other);
        t = tn_transpose(x->t, axis, other);
        break;
    case 1:
        say(b, "t%d = tn_slice(t%d, %d, %lld, TN_TO_END, %d);", me, it, axis, (long long)from,
            1 + (int)(arg(b, 3) % 2));
        t = tn_slice(x->t, axis, from, TN_TO_END, 1 + (int)(arg(b, 3) % 2));
        break;
    case 2:
        say(b, "t%d = tn_flip(t%d, %d);", me, it, axis);
        t = tn_flip(x->t, axis);
        break;
    case 3:
        say(b, "t%d = tn_unsqueeze(t%d, %d);", me, it, axis);
        t = tn_unsqueeze(x->t, axis);
        break;
    case 4:
        if (n == 0) return;
        say(b, "t%d = tn_select(t%d, %d, %lld);", me, it, axis, (long long)from);
        t = tn_select(x->t, axis, from);
        break;
    default:
        say(b, "t%d = tn_reshape(t%d, 1, (int64_t[]){ -1 });", me, it);
        t = tn_count(x->t) ? tn_reshape(x->t, 1, (int64_t[]){ -1 }) : NULL;
    }
    if (t && tn_count(t) > 0) put(b, t, x, NULL, x->bound, x->exact);
}

static void make_gather(builder *b)
{
    value *x = pick(b, arg(b, 0), has_axes);
    if (!x || tn_count(x->t) == 0) return;
    int     axis = (int)(arg(b, 1) % (uint32_t)tn_rank(x->t));
    int64_t n = tn_size(x->t, axis), most = 1 + (int64_t)(arg(b, 2) % 9);
    int64_t at[9];
    for (int64_t i = 0; i < most; i++) at[i] = (int64_t)((arg(b, 3) >> i) % (uint32_t)n);
    tn_tensor *index = tn_from(b->cx, TN_I64, 1, &most, at);
    say(b, "t%d = tn_index_select(t%d, %d, index(%lld, %u, %lld));", b->count, number(b, x), axis,
        (long long)most, arg(b, 3), (long long)n);
    put(b, tn_index_select(x->t, axis, index), x, NULL, x->bound, x->exact);
}

static void make_pad(builder *b)
{
    value  *x         = pick(b, arg(b, 0), float_axes);
    int64_t before[8] = { 0 }, after[8] = { 0 };
    if (!x) return;
    int axis     = (int)(arg(b, 1) % (uint32_t)tn_rank(x->t));
    before[axis] = arg(b, 2) % 3;
    after[axis]  = arg(b, 3) % 3;
    say(b, "t%d = pad(t%d, %d, %lld, %lld);", b->count, number(b, x), axis, (long long)before[axis],
        (long long)after[axis]);
    put(b, tn_pad(x->t, before, after, 0.5), x, NULL, fmax(x->bound, 1), x->exact);
}

static void make_concat(builder *b)
{
    value *x = pick(b, arg(b, 0), has_axes);
    if (!x) return;
    int        axis = (int)(arg(b, 1) % (uint32_t)tn_rank(x->t));
    tn_tensor *y    = is_float(x) ? tn_mul_s(x->t, 0.5) : x->t;
    say(b, "t%d = tn_concat(2, (tn_tensor *[]){ t%d, %st%d%s }, %d);", b->count, number(b, x),
        is_float(x) ? "tn_mul_s(" : "", number(b, x), is_float(x) ? ", 0.5)" : "", axis);
    put(b, tn_concat(2, (tn_tensor *const[]){ x->t, y }, axis), x, NULL, x->bound, false);
}

static bool is_matrix(const value *x)
{
    return is_float(x) && tn_rank(x->t) == 2;
}

static void make_product(builder *b)
{
    value *x = pick(b, arg(b, 0), is_matrix);
    if (!x || tn_count(x->t) == 0 || tn_size(x->t, 0) > 64) return;
    say(b, "t%d = tn_matmul(t%d, tn_transpose(t%d, 0, 1));", b->count, number(b, x), number(b, x));
    put(b, tn_matmul(x->t, tn_transpose(x->t, 0, 1)), x, NULL,
        x->bound * x->bound * (double)tn_size(x->t, 1), false);
}

static void make_random(builder *b)
{
    value *x = pick(b, arg(b, 0), is_float);
    if (!x) return;
    say(b, "t%d = tn_dropout(t%d, 0.5, true);", b->count, number(b, x));
    put(b, tn_dropout(x->t, 0.5, true), x, NULL, 2 * x->bound, false);
}

// Writes half of a copy of a value, or all of it.
static void make_write(builder *b)
{
    value *x = pick(b, arg(b, 0), float_axes);
    if (!x || tn_count(x->t) == 0 || b->count == GRAPH_VALUES) return;
    int        axis = (int)(arg(b, 1) % (uint32_t)tn_rank(x->t)), me = b->count;
    int64_t    n = tn_size(x->t, axis);
    tn_tensor *t = tn_clone(x->t), *part = tn_slice(t, axis, 0, (n + 1) / 2, 1);
    say(b, "t%d = tn_clone(t%d); tn_add_(tn_slice(t%d, %d, 0, %lld, 1), one);", me, number(b, x),
        me, axis, (long long)((n + 1) / 2));
    if (!tn_add_(part, tn_scalar(b->cx, 1))) return;
    if (arg(b, 2) & 1) {
        say(b, "tn_mul_(t%d, half);", me);
        tn_mul_(t, tn_scalar(b->cx, 0.5));
    }
    put(b, t, x, NULL, x->bound + 1, false);
}

static void make_output(builder *b)
{
    value *x = pick(b, arg(b, 0), NULL);
    if (!x) return;
    say(b, "tn_want(t%d);", number(b, x));
    x->output = true;
}

typedef void        maker(builder *b);
static maker *const makers[] = {
    make_input,  make_input,      make_unary,  make_unary,   make_exp,    make_binary, make_binary,
    make_binary, make_integer,    make_reduce, make_reduce,  make_reduce, make_rows,   make_rows,
    make_norm,   make_comparison, make_where,  make_cast,    make_view,   make_view,   make_view,
    make_gather, make_pad,        make_concat, make_product, make_random, make_write,  make_output
};

// ---- running -----------------------------------------------------------------------------------

static bool read_value(const value *x, graph_result *out)
{
    int64_t n = tn_count(x->t);
    if (out->count + n > out->cap) {
        int64_t cap  = 2 * (out->count + n);
        double *data = realloc(out->x, (size_t)cap * sizeof *data);
        if (data) out->x = data;
        double *near = realloc(out->near, (size_t)cap * sizeof *near);
        if (near) out->near = near;
        if (!data || !near) return false;
        out->cap = cap;
    }
    if (tn_read(x->t, TN_F64, out->x + out->count, n) != TN_OK) return false;
    double near = x->exact ? 0 : 16 * x->eps * (x->bound + 1);
    for (int64_t i = 0; i < n; i++) out->near[out->count + i] = near;
    out->count += n;
    out->outputs++;
    return true;
}

bool graph_run(const graph *g, tn_ctx *cx, graph_result *out, FILE *listing)
{
    tn_scope *s = tn_begin(cx);
    builder   b = { .cx = cx, .listing = listing, .fill = g->seed };
    tn_seed(cx, g->seed);
    b.at = &(graph_step){ .r = { 2, (uint32_t)g->seed, (uint32_t)(g->seed >> 8), 1, 1, 1 } };
    make_input(&b);
    for (int i = 0; i < g->count; i++) {
        b.at = &g->step[i];
        makers[b.at->kind % (sizeof makers / sizeof *makers)](&b);
    }
    for (int i = 0; i < b.count; i++) {
        b.v[i].output |= i >= b.count - 2;
        if (b.v[i].output) tn_want(b.v[i].t);
    }
    bool ok    = tn_error(cx) == TN_OK && tn_eval(cx) == TN_OK;
    out->count = 0, out->outputs = 0;
    for (int i = 0; ok && i < b.count; i++)
        if (b.v[i].output) ok = read_value(&b.v[i], out);
    snprintf(out->error, sizeof out->error, "%.250s", tn_error_text(cx));
    tn_error_clear(cx);
    tn_end(s);
    return ok;
}

bool graph_agree(const graph_result *want, const graph_result *have, char *text)
{
    if (want->count != have->count) {
        snprintf(text, 256, "%lld elements, not %lld", (long long)have->count,
                 (long long)want->count);
        return false;
    }
    for (int64_t i = 0; i < want->count; i++) {
        double p = want->x[i], q = have->x[i];
        if (p == q || (p != p && q != q) || fabs(p - q) <= want->near[i]) continue;
        snprintf(text, 256, "element %lld of the outputs is %.9g, not %.9g (within %.2g)",
                 (long long)i, q, p, want->near[i]);
        return false;
    }
    return true;
}

void graph_result_free(graph_result *r)
{
    free(r->x);
    free(r->near);
    *r = (graph_result){ 0 };
}
