// Reductions over any set of axes, and scans along one.
#include "ref.h"

#include <math.h>

// A sum with its accumulated rounding errors (Neumaier), so that its error does not grow with its
// length.
typedef struct {
    double sum, rest;
} long_sum;

static void sum_add(long_sum *s, double v)
{
    double t = s->sum + v;
    s->rest += fabs(s->sum) >= fabs(v) ? s->sum - t + v : v - t + s->sum;
    s->sum = t;
}

// If the sum is infinite or NaN, the rounding errors mean nothing.
static double sum_value(long_sum s)
{
    return isfinite(s.sum) ? s.sum + s.rest : s.sum;
}

// ---- reductions: x is the first of the elements that w walks over ------------------------------

static double float_sum(const tni_arg *in, const tni_cell *x, tni_ref_walk w)
{
    long_sum s = { 0 };
    for (; w.left; tni_ref_walk_next(&w)) sum_add(&s, x[tni_ref_offset(in, w.at)].f);
    return sum_value(s);
}

static double float_product(const tni_arg *in, const tni_cell *x, tni_ref_walk w)
{
    double y = 1;
    for (; w.left; tni_ref_walk_next(&w)) y *= x[tni_ref_offset(in, w.at)].f;
    return y;
}

static int64_t int_sum(const tni_arg *in, const tni_cell *x, tni_ref_walk w)
{
    uint64_t y = 0;
    for (; w.left; tni_ref_walk_next(&w)) y += (uint64_t)x[tni_ref_offset(in, w.at)].i;
    return (int64_t)y;
}

static int64_t int_product(const tni_arg *in, const tni_cell *x, tni_ref_walk w)
{
    uint64_t y = 1;
    for (; w.left; tni_ref_walk_next(&w)) y *= (uint64_t)x[tni_ref_offset(in, w.at)].i;
    return (int64_t)y;
}

// Returns whether a is a better extremum than b. NaN is both the largest and the smallest.
static bool is_better_extremum(tn_dtype dt, bool least, tni_cell a, tni_cell b)
{
    bool nan = tni_is_float(dt) && (isnan(a.f) || isnan(b.f));
    return least && !nan ? tni_ref_above(dt, b, a) : tni_ref_above(dt, a, b);
}

// Returns the first extremum, or its number in the order of the walk.
static tni_cell find_extremum(int op, const tni_arg *in, const tni_cell *x, tni_ref_walk w)
{
    bool     least = op == TNI_min || op == TNI_argmin;
    tni_cell best  = *x;
    int64_t  at    = 0;
    for (int64_t k = 0; w.left; tni_ref_walk_next(&w), k++) {
        tni_cell v = x[tni_ref_offset(in, w.at)];
        if (!is_better_extremum(in->dtype, least, v, best)) continue;
        best = v;
        at   = k;
    }
    return op == TNI_max || op == TNI_min ? best : (tni_cell){ .i = at };
}

// Reduces the elements that w walks over. Integers are summed in 64 bits and wrapped to the
// result's dtype.
static tni_cell reduce_elements(const tni_call *c, const tni_cell *x, tni_ref_walk w)
{
    if (c->op != TNI_sum && c->op != TNI_prod) return find_extremum(c->op, c->in, x, w);
    if (tni_is_float(c->in->dtype))
        return (tni_cell){ .f = c->op == TNI_sum ? float_sum(c->in, x, w)
                                                 : float_product(c->in, x, w) };
    int64_t v = c->op == TNI_sum ? int_sum(c->in, x, w) : int_product(c->in, x, w);
    return (tni_cell){ .i = tni_ref_wrap(c->out.dtype, v) };
}

// Each element of the result reduces a box of the input: the input's size along reduced axes, 1
// along the others.
void tni_ref_reduce(const tni_call *c)
{
    const tni_arg *in = c->in;
    tni_cell      *y  = tni_cells(&c->out);
    int64_t        size[TN_MAX_RANK];  // of what becomes one element
    for (int i = 0; i < in->rank; i++) size[i] = (c->attr->reduce.axes >> i & 1) ? in->size[i] : 1;

    for (tni_ref_walk w = tni_ref_walk_over(c->out.rank, c->out.size); w.left;
         tni_ref_walk_next(&w), y++)
        *y = reduce_elements(c, tni_cells(in) + tni_ref_offset(in, w.at),
                             tni_ref_walk_over(in->rank, size));
}

// ---- scans -------------------------------------------------------------------------------------

// Both sum and product are carried along, for brevity; one is written.
static void scan_floats(bool sum, int64_t n, const tni_cell *x, int64_t step, tni_cell *y,
                        int64_t step_y)
{
    long_sum s = { 0 };
    double   p = 1;
    for (int64_t i = 0; i < n; i++) {
        sum_add(&s, x[i * step].f);
        p *= x[i * step].f;
        y[i * step_y].f = sum ? sum_value(s) : p;
    }
}

static void scan_ints(bool sum, tn_dtype dt, int64_t n, const tni_cell *x, int64_t step,
                      tni_cell *y, int64_t step_y)
{
    uint64_t s = 0, p = 1;
    for (int64_t i = 0; i < n; i++) {
        s += (uint64_t)x[i * step].i;
        p *= (uint64_t)x[i * step].i;
        y[i * step_y].i = tni_ref_wrap(dt, (int64_t)(sum ? s : p));
    }
}

// Scans every line along the axis on its own.
void tni_ref_scan(const tni_call *c)
{
    const tni_arg *in   = c->in;
    int            axis = c->attr->axis.axis;
    int64_t        n = in->size[axis], step = in->stride[axis], step_y = c->out.stride[axis];
    tni_arg        first = c->out;  // the first elements of all lines
    first.size[axis]     = 1;
    for (tni_ref_walk w = tni_ref_walk_over(first.rank, first.size); w.left;
         tni_ref_walk_next(&w)) {
        const tni_cell *x = tni_cells(in) + tni_ref_offset(in, w.at);
        tni_cell       *y = tni_cells(&c->out) + tni_ref_offset(&c->out, w.at);
        if (tni_is_float(in->dtype)) scan_floats(c->op == TNI_cumsum, n, x, step, y, step_y);
        else scan_ints(c->op == TNI_cumsum, c->out.dtype, n, x, step, y, step_y);
    }
}
