// How far from ref a device may be, element by element. Errors of inputs become errors of the
// result, and every op that rounds adds its own:
//
//   maps, max, min   the op again with inputs moved up and down by their errors: what changes
//   sums, products   the op over magnitudes, and over magnitudes made larger by their errors and by
//   and the like     what adding them up in any order may take: the difference
//   attention        by the lengths of the vectors it multiplies
//   movement         the errors, moved in the same way
//   places           (argmax, argsort) unknown as soon as an input has an error
//
// The first is no strict bound, since an op may turn between the two ends, but such ops are rare
// and the allowance for rounding is generous.
#include "inspect/error_bound.h"

#include "device/attention.h"
#include "device/ref/ref.h"

#include <math.h>

// Ops with a bound have at most three inputs. ULPS is how many units in the last place an op's own
// rounding may take: math functions of GPUs are within 4, and a result is rounded again to its
// dtype.
enum { MOST_IN = 3, ULPS = 8 };

// The call, and the work on its bound. twin is the same call with changed inputs and another
// result.
typedef struct {
    tni_heap       *heap;
    const tni_call *c;
    const tni_arg  *error;
    int             k;  // the output, and its place
    const tni_arg  *out;
    int64_t         count;  // its elements
    tni_call        twin;
    tni_arg         in[MOST_IN];
    double         *bound;
} bounding;

// ---- the dtypes --------------------------------------------------------------------------------

static double ulp(tn_dtype dt)
{
    return tni_dtype_epsilon(dt);
}

static double largest(tn_dtype dt)
{
    return tni_dtype_table[dt].high;
}

double tni_error_of_rounding(tn_dtype dt, double v)
{
    return tni_is_float(dt) ? ulp(dt) * fmax(fabs(v), tni_dtype_table[dt].low) : 0;
}

// ---- elements ----------------------------------------------------------------------------------

static double number(tn_dtype dt, tni_cell v)
{
    return tni_is_float(dt) ? v.f : (double)v.i;
}

// Returns the distance of two values; infinite if one is NaN and the other is not.
static double distance(tn_dtype dt, tni_cell a, tni_cell b)
{
    double x = number(dt, a), y = number(dt, b);
    if (x == y || (isnan(x) && isnan(y))) return 0;
    double d = fabs(x - y);
    return isnan(d) ? INFINITY : d;
}

// Moves a value by an error; integers by whole steps, rounded away from zero and clipped so that
// they do not overflow.
static tni_cell move_value(tn_dtype dt, tni_cell v, double by)
{
    static const double far = 0x1p61;
    if (tni_is_float(dt)) return (tni_cell){ .f = v.f + by };
    by = by < 0 ? floor(by) : ceil(by);
    return (tni_cell){ .i = v.i + (int64_t)fmax(-far, fmin(far, by)) };
}

static tni_cell *alloc_cells(tni_heap *h, const tni_arg *x)
{
    return tni_alloc(h, (size_t)tni_shape_count(x->rank, x->size) * sizeof(tni_cell));
}

// Makes the cells, row-major, input k of the twin, as dtype dt.
static void set_input(bounding *w, int k, tni_cell *cell, tn_dtype dt)
{
    w->in[k].dtype = dt;
    w->in[k].data  = (char *)cell;
    tni_shape_strides(w->in[k].rank, w->in[k].size, w->in[k].stride);
}

static tni_error_kind way_of(const bounding *w)
{
    return tni_op_table[w->c->op].error;
}

static bool any_error(const bounding *w)
{
    for (int k = 0; k < w->c->nin; k++)
        if (w->error[k].data) return true;
    return false;
}

static bool alloc_bound(bounding *w)
{
    w->bound = tni_zalloc(w->heap, (size_t)w->count * sizeof *w->bound);
    return w->bound != NULL;
}

// An infinite bound: every value is accepted.
static void set_unknown(bounding *w)
{
    for (int64_t i = 0; i < w->count; i++) w->bound[i] = INFINITY;
}

// ---- maps, max, min ----------------------------------------------------------------------------

// Moves input k of the twin by its errors, up or down; sign 0 leaves it as it was.
static void move_input(bounding *w, int k, int sign, tni_cell *cells)
{
    const tni_arg *x = &w->c->in[k], *e = &w->error[k];
    tni_cell      *to = cells;
    w->in[k]          = *x;
    if (!sign) return;
    for (tni_ref_walk a = tni_ref_walk_over(x->rank, x->size); a.left; tni_ref_walk_next(&a))
        *to++ = move_value(x->dtype, tni_cells(x)[tni_ref_offset(x, a.at)],
                           sign * tni_cells(e)[tni_ref_offset(e, a.at)].f);
    set_input(w, k, cells, x->dtype);
}

// Runs the twin, and raises the bound to the distance of its results.
static void run_moved(bounding *w, tni_cell *result)
{
    w->twin.out.data = (char *)result;
    tni_call_run(&w->twin);
    for (int64_t i = 0; i < w->count; i++)
        w->bound[i] = fmax(w->bound[i],
                           distance(w->c->out.dtype, result[i], tni_cells(&w->c->out)[i]));
}

// Tries every combination of inputs moved down, left and moved up: case i is a number with one
// ternary digit for each input that has an error.
static bool by_moving(bounding *w)
{
    tni_cell *cells[MOST_IN] = { 0 }, *result = alloc_cells(w->heap, &w->c->out);
    bool      ok    = result != NULL;
    int       cases = 1;
    for (int k = 0; k < w->c->nin && ok; k++) {
        if (!w->error[k].data) continue;
        cases *= 3;
        ok = (cells[k] = alloc_cells(w->heap, &w->c->in[k])) != NULL;
    }
    for (int i = 1; i < cases && ok; i++) {
        for (int k = 0, digits = i; k < w->c->nin; k++) {
            if (!cells[k]) continue;
            move_input(w, k, digits % 3 == 2 ? -1 : digits % 3, cells[k]);
            digits /= 3;
        }
        run_moved(w, result);
    }
    for (int k = 0; k < MOST_IN; k++) tni_free(w->heap, cells[k]);
    tni_free(w->heap, result);
    return ok;
}

static double error_at(const bounding *w, int k, const int64_t *at)
{
    const tni_arg *e = &w->error[k];
    return e->data ? tni_cells(e)[tni_ref_offset(e, at)].f : 0;
}

// A comparison may go either way if its two operands are as near as their errors.
static void by_nearness(bounding *w)
{
    const tni_arg *a = &w->c->in[0], *b = &w->c->in[1];
    double        *to = w->bound;
    for (tni_ref_walk x = tni_ref_walk_over(a->rank, a->size); x.left; tni_ref_walk_next(&x)) {
        double error = error_at(w, 0, x.at) + error_at(w, 1, x.at);
        double apart = distance(a->dtype, tni_cells(a)[tni_ref_offset(a, x.at)],
                                tni_cells(b)[tni_ref_offset(b, x.at)]);
        *to++        = error > 0 && apart <= error;
    }
}

// ---- sums, products and the like ---------------------------------------------------------------

// Returns how many numbers are added up for one element of the result.
static double length(const tni_call *c)
{
    double in = (double)tni_shape_count(c->in[0].rank, c->in[0].size);
    switch (tni_op_table[c->op].flops) {
    case TNI_FLOPS_MATMUL: return (double)c->in[0].size[c->in[0].rank - 1];
    case TNI_FLOPS_CONV:
        if (c->op == TNI_conv_wgrad) return in / (double)c->in[0].size[1];
        return (double)tni_shape_count(c->in[1].rank, c->in[1].size) /
               (double)c->in[1].size[!tni_is_conv(c->op)];
    case TNI_FLOPS_SPARSE: return (double)(c->op == TNI_spmm ? c->in[1].size[0] : c->in[1].size[1]);
    case TNI_FLOPS_EACH: return (double)c->in[0].size[c->attr->axis.axis];  // scans
    case TNI_FLOPS_FOLD: return in / (double)tni_shape_count(c->out.rank, c->out.size);
    default: return in;
    }
}

// Returns the relative error that adding up may cause. Sums are computed in f32 or wider, except
// those that are added to in memory. Errors of n roundings grow like the square root of n if they
// are independent; 4 is a generous margin.
static double loss(const tni_call *c)
{
    bool     kept = tni_op_table[c->op].class == TNI_MOVE;
    tn_dtype dt   = kept ? c->out.dtype : tni_compute_dtype(c->out.dtype);
    return tni_is_float(dt) ? ulp(dt) * 4 * (1 + sqrt(length(c))) : 0;
}

// Returns whether input k is a value, not an index.
static bool is_value(int op, int k)
{
    if (tni_op_table[op].attr == TNI_ATTR_sparse) return k < 2;
    return k != 1 || tni_op_table[op].fails != TNI_FAILS_INDEX;
}

// Sets input k of the twin to its magnitudes; `larger` adds what errors and rounding may add.
static void give_magnitudes(bounding *w, int k, tni_cell *cells, bool larger)
{
    const tni_arg *x     = &w->c->in[k];
    tni_cell      *to    = cells;
    double         share = larger ? loss(w->c) : 0;
    for (tni_ref_walk a = tni_ref_walk_over(x->rank, x->size); a.left; tni_ref_walk_next(&a)) {
        double v  = fabs(number(x->dtype, tni_cells(x)[tni_ref_offset(x, a.at)]));
        (to++)->f = v + share * v + (larger ? error_at(w, k, a.at) : 0);
    }
    set_input(w, k, cells, TN_F64);
}

// Runs the op over magnitudes twice, with and without errors added: the difference bounds the
// error, since cancellation cannot hide anything among magnitudes.
static bool by_magnitude(bounding *w)
{
    const tni_call *c              = w->c;
    tni_cell       *cells[MOST_IN] = { 0 }, *small = alloc_cells(w->heap, &c->out);
    bool            ok = small != NULL;
    w->twin.out.dtype  = TN_F64;
    for (int k = 0; k < c->nin && ok; k++)
        ok = !is_value(c->op, k) || (cells[k] = alloc_cells(w->heap, &c->in[k]));
    for (int larger = 0; ok && larger < 2; larger++) {
        for (int k = 0; k < c->nin; k++)
            if (cells[k]) give_magnitudes(w, k, cells[k], larger);
        w->twin.out.data = larger ? (char *)w->bound : (char *)small;
        tni_call_run(&w->twin);
    }
    for (int64_t i = 0; ok && i < w->count; i++) w->bound[i] = fabs(w->bound[i] - small[i].f);
    for (int k = 0; k < MOST_IN; k++) tni_free(w->heap, cells[k]);
    tni_free(w->heap, small);
    return ok;
}

// ---- attention ---------------------------------------------------------------------------------

// Returns the largest finite magnitude in x and the length of its longest row.
static void measure_rows(const tni_arg *x, double *most, double *longest)
{
    int64_t n = x->size[x->rank - 1], step = x->stride[x->rank - 1];
    *most = *longest = 0;
    for (tni_ref_walk a = tni_ref_walk_over(x->rank - 1, x->size); a.left; tni_ref_walk_next(&a)) {
        double  sum = 0;
        int64_t at  = 0;
        for (int k = 0; k < x->rank - 1; k++) at += a.at[k] * x->stride[k];
        for (int64_t i = 0; i < n; i++) {
            double v = fabs(number(x->dtype, tni_cells(x)[at + i * step]));
            if (isfinite(v)) *most = fmax(*most, v);
            sum += v * v;
        }
        if (isfinite(sum)) *longest = fmax(*longest, sqrt(sum));
    }
}

// An error in a score is a relative error of the weights and an absolute one of the logarithm of
// their sum; weights add up to 1. Gradients of keys and values add up over all queries, that of a
// mask over the scores that each element serves. By the Cauchy-Schwarz inequality a score is at
// most the product of two rows' lengths.
//
// The tensor cores take operands of 16 bits, so weights are rounded before they multiply the
// values, and in the gradient so are the slopes w (dw - delta) before they multiply keys and
// queries: each by half an ulp of itself at most. That is a part of the weights, however small the
// result is in which values of both signs cancel, so that the result's own rounding does not cover
// it. With |dw| and |delta| at most |g| |v|, and delta of a result that was rounded too, a slope is
// off by 3/2 ulp w |g| |v|; `slope` has 4. The logarithm is of sums in f32.
static void by_lengths(bounding *w)
{
    tni_attention a = tni_attention_of(w->c);
    double        q, k, v, g = 0, m = 0, long_q, long_k, long_v, long_g = 0, skip;
    double        unit = 4 * ulp(tni_compute_dtype(w->c->out.dtype)), by = fabs(a.scale);
    measure_rows(a.q, &q, &long_q);
    measure_rows(a.k, &k, &long_k);
    measure_rows(a.v, &v, &long_v);
    if (a.extras && !a.score) measure_rows(a.extra[0].arg, &m, &skip);
    if (a.g) measure_rows(a.g, &g, &long_g);
    double parts = unit * (4 + m + (2 + sqrt((double)a.D)) * by * long_q * long_k);
    parts += unit * (2 + sqrt((double)a.S) + sqrt((double)a.E) + sqrt((double)a.T));
    double sums = parts;
    parts += tni_compute_dtype(a.q->dtype) == a.q->dtype ? 0 : ulp(a.q->dtype);
    double slope = 4 * parts * long_g * long_v, queries = (double)(a.T * (a.H / a.Hk));
    if (a.drops) parts /= 1 - a.dropout, slope /= 1 - a.dropout;
    double scores      = (double)(a.B * a.H * a.T) * (double)a.S / (double)w->count;
    double bound[2][4] = { { parts * v, sums },
                           { slope * by * k, slope * by * q * queries, parts * g * queries,
                             slope * fmax(scores, 1) } };
    for (int64_t i = 0; i < w->count; i++) w->bound[i] = bound[a.g != NULL][w->k < 3 ? w->k : 3];
}

// ---- movement ----------------------------------------------------------------------------------

// Moves the errors in the same way as the values; padding has none.
static bool by_movement(bounding *w)
{
    const tni_call *c              = w->c;
    tni_cell       *cells[MOST_IN] = { 0 };
    tni_attr        attr           = *c->attr;
    bool            ok             = true;
    if (c->op == TNI_pad) attr.pad.value = 0, attr.pad.ivalue = 0;
    w->twin.attr = &attr;
    for (int k = 0; k < c->nin && ok; k++) {
        const tni_arg *x = &c->in[k];
        if (!is_value(c->op, k)) continue;
        tni_cell *to = cells[k] = alloc_cells(w->heap, x);
        ok                      = to != NULL;
        for (tni_ref_walk a = tni_ref_walk_over(x->rank, x->size); ok && a.left;
             tni_ref_walk_next(&a))
            (to++)->f = error_at(w, k, a.at);
        set_input(w, k, cells[k], TN_F64);
    }
    w->twin.out.dtype = TN_F64;
    w->twin.out.data  = (char *)w->bound;
    if (ok) tni_call_run(&w->twin);
    for (int k = 0; k < MOST_IN; k++) tni_free(w->heap, cells[k]);
    return ok;
}

// ---- the whole ---------------------------------------------------------------------------------

// Returns whether there is anything to bound: an input has an error, or the op makes one.
static bool has_bound(const bounding *w)
{
    tni_error_kind way = way_of(w);
    bool makes = way == TNI_ERROR_ROUNDS || way == TNI_ERROR_ADDS || way == TNI_ERROR_ATTENDS;
    return any_error(w) || (makes && tni_is_float(w->out->dtype));
}

// Chooses the way from the op's row in the table. An index with an error, or more inputs than are
// handled, leaves the result unknown.
static bool propagate_errors(bounding *w)
{
    tni_error_kind way    = way_of(w);
    bool           moving = way == TNI_ERROR_EXACT || way == TNI_ERROR_ROUNDS;
    bool           lost   = w->c->nin > MOST_IN || way == TNI_ERROR_UNKNOWN || w->k > 0 ||
                (w->c->nin > 1 && !is_value(w->c->op, 1) && w->error[1].data);
    if (lost && any_error(w)) set_unknown(w);
    else if (way == TNI_ERROR_COMPARES) by_nearness(w);
    else if (way == TNI_ERROR_ATTENDS && (any_error(w) || w->c->attr->attention.score))
        set_unknown(w);
    else if (way == TNI_ERROR_ATTENDS) by_lengths(w);
    else if (moving) return by_moving(w);
    else if (way == TNI_ERROR_ADDS) return by_magnitude(w);
    else return !any_error(w) || by_movement(w);
    return true;
}

// Adds the op's own rounding. A number that its dtype may not hold is unknown: ref computes it in a
// wider type.
static void add_rounding(bounding *w)
{
    tn_dtype dt     = w->out->dtype;
    bool     rounds = way_of(w) != TNI_ERROR_EXACT && way_of(w) != TNI_ERROR_MOVES;
    for (int64_t i = 0; i < w->count; i++) {
        double *b = &w->bound[i], y = number(dt, tni_cells(w->out)[i]);
        if (rounds) *b += ULPS * tni_error_of_rounding(dt, y);
        bool over = tni_is_float(dt) && isfinite(y) && fabs(y) > largest(dt);
        if (over || isnan(*b)) *b = INFINITY;
    }
}

// All memory of the way is freed here or by the caller through *bound.
bool tni_error_bound(tni_heap *h, const tni_call *c, int k, const tni_arg *error, double **bound)
{
    bounding w = { .heap = h, .c = c, .error = error, .k = k, .twin = *c };
    w.out      = k ? &c->more[k - 1] : &c->out;
    *bound     = NULL;
    if (!has_bound(&w)) return true;
    w.count   = tni_shape_count(w.out->rank, w.out->size);
    w.twin.in = w.in;
    for (int i = 0; i < c->nin && i < MOST_IN; i++) w.in[i] = c->in[i];
    bool ok = alloc_bound(&w) && propagate_errors(&w);
    if (ok) add_rounding(&w);
    else tni_free(h, w.bound);
    if (ok) *bound = w.bound;
    return ok;
}
