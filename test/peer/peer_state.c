// peer_state.c: what may be a step of a program. A step runs on ref, its values are measured, and
// it is refused where two right implementations may differ by more than rounding: next to a limit,
// a pole or the end of a dtype's range.
//
// Kept out on purpose, because Tenon means to differ from PyTorch there:
// - a float outside an integer's range, cast to it: Tenon saturates, C leaves it open
// - an integer divided by 0: Tenon gives 0, PyTorch an error
// - a write under no-grad, or through a detached handle, to a value with history: Tenon cuts the
//   history
// - the gradient of clamp at a bound: bounds lie between the multiples of 1/4 that data is made of
// - the gradient of a view that has places twice, by way of a product with its matrices:
//   peer_index.c
// and because PyTorch refuses it, or leaves it open:
// - a write to what a gradient still needs: Tenon's values keep what they were made from
// - the order of equal elements in topk, and which of several values at one index scatter keeps
// - the order in which a product takes its factors, where that shows: see any_order_ok
#include "peer.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

bool peer_refuse(peer_state *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(s->why, sizeof s->why, fmt, args);
    va_end(args);
    return false;
}

bool peer_open_state(peer_state *s, tn_ctx *cx)
{
    memset(s, 0, sizeof *s);
    s->cx = cx;
    return cx != NULL;
}

// ---- what a step needs

static double most(const peer_value *v)
{
    return fmax(fabs(v->lo), fabs(v->hi));
}

static bool is_kind(const peer_step *st, const peer_value *v)
{
    unsigned needs = st->row->needs;
    if ((needs & NEEDS_FLOAT) && !peer_is_float(v->dtype)) return false;
    if ((needs & NEEDS_INT) && peer_is_float(v->dtype)) return false;
    return !((needs & NO_BOOL) && v->dtype == TN_BOOL);
}

static bool has_name(const peer_step *st, const char *name)
{
    return !strcmp(st->row->name, name);
}

// Powers and shifts: PyTorch leaves integers to negative powers, and shifts past the width, open.
static bool exponent_ok(const peer_step *st, const peer_value *b)
{
    if (has_name(st, "pow")) return b->lo >= (peer_is_float(b->dtype) ? -3 : 0) && b->hi <= 4;
    if (has_name(st, "shl") || has_name(st, "shr")) return b->lo >= 0 && b->hi <= 6;
    return true;
}

// A float becomes an integer only where it is known to all, and within the range.
static bool cast_ok(const peer_value *x, tn_dtype dt)
{
    if (!peer_is_float(x->dtype) || peer_is_float(dt)) return true;
    return x->exact && !x->odd && most(x) <= 100 && (dt != TN_U8 || x->lo >= 0);
}

// PyTorch's x ** 0.5 is the square root, NaN for -infinity, where a power is infinity. Whether
// poles do not matter: in a program of NaN and infinities, which takes no gradients, for data,
// where the sign of a zero is sure.
static bool may_be_odd(const peer_program *p, const peer_value *v)
{
    return p->odd && peer_is_float(v->dtype) && p->step[v->store / PEER_OUTS].row == &peer_data_row;
}

// Of what is divided by, the last input counts.
static bool in_domain(peer_state *s, const peer_program *p, const peer_step *st,
                      const peer_value *const *v)
{
    const peer_value *first = v[0], *last = v[0];
    unsigned          needs = st->row->needs;
    for (int i = 1; i < st->nin; i++)
        if (v[i]) last = v[i];
    bool power = has_name(st, "pow") || has_name(st, "pow_s");
    bool real  = peer_is_float(first->dtype) || (power && peer_is_float(last->dtype));
    if ((needs & NEEDS_POSITIVE) && real && first->lo < 0.05 && (power || !may_be_odd(p, first)))
        return peer_refuse(s, "not positive");
    if ((needs & NEEDS_NONZERO) && last->least < 0.1 && !may_be_odd(p, last))
        return peer_refuse(s, "near 0");
    if ((needs & NEEDS_SMALL) && most(first) > 5) return peer_refuse(s, "large");
    // PyTorch's first gradient of elu at 0 is that from below, its second that from above.
    if (has_name(st, "elu") && first->least == 0) return peer_refuse(s, "0");
    if (has_name(st, "tan") && most(first) > 1.3) return peer_refuse(s, "near a pole");
    if ((needs & NEEDS_SHARE) && (first->lo < 0.02 || first->hi > 0.98))
        return peer_refuse(s, "no share");
    if ((needs & NEEDS_DISTINCT) && !first->distinct) return peer_refuse(s, "not distinct");
    if (st->row->form == &form_cast && !cast_ok(first, st->dtype)) return peer_refuse(s, "cast");
    return exponent_ok(st, last) ? true : peer_refuse(s, "exponent");
}

// A row of nearly equal elements divides its rounding by the root of a small eps.
static bool norm_ok(const peer_step *st, const peer_value *x)
{
    const peer_form *f = st->row->form;
    bool is_norm       = f == &form_layer_norm || f == &form_rms_norm || f == &form_group_norm ||
                   f == &form_batch_norm;
    return !is_norm || st->num[0] >= 0.01 || x->distinct;
}

// PyTorch's products leave 0 times infinity to the BLAS, which may give 0; its attention adds the
// infinities of a mask to those of the scores.
static bool odd_ok(const peer_step *st, const peer_value *const *v)
{
    const peer_form *f = st->row->form;
    bool open = ((st->row->needs & MULTIPLIES) && f != &form_binary) || f == &form_attention;
    for (int i = 0; i < st->nin; i++)
        if (open && v[i] && v[i]->odd) return false;
    return true;
}

// PyTorch has i16 for what is made of u8 and i8; no gradient of floor_divide; and 1e-12 in the
// second gradient of bce, which shows in f64.
static bool peer_has_it(const peer_step *st, const peer_value *const *v)
{
    bool u8 = false, i8 = false, needs = false;
    for (int i = 0; i < st->nin; i++) {
        if (!v[i]) continue;
        u8 |= v[i]->dtype == TN_U8;
        i8 |= v[i]->dtype == TN_I8;
        needs |= tn_needs_grad(v[i]->t);
    }
    if (has_name(st, "bce") && v[0]->dtype == TN_F64) return false;
    return !(u8 && i8) && !(needs && has_name(st, "floor_divide"));
}

static bool has_inputs(peer_state *s, const peer_program *p, const peer_step *st,
                       const peer_value *const *v)
{
    for (int i = 0; i < st->nin; i++) {
        if (!v[i]) continue;
        if (!is_kind(st, v[i]) && (i == 0 || st->row->form == &form_binary))
            return peer_refuse(s, "dtype");
        if ((st->row->needs & NEEDS_EXACT) && !v[i]->exact) return peer_refuse(s, "not exact");
    }
    if (st->nin == 0) return true;
    if (!odd_ok(st, v) || !peer_has_it(st, v) || !norm_ok(st, v[0])) return peer_refuse(s, "open");
    return in_domain(s, p, st, v);
}

// ---- writes

static bool is_same_or_wider(tn_dtype x, tn_dtype v)
{
    return x == v || (peer_is_float(x) && !peer_is_float(v));
}

static bool may_write(peer_state *s, const peer_step *st, const peer_value *const *v)
{
    const peer_value *x = v[0];
    if (s->frozen[x->store] || x->overlaps) return peer_refuse(s, "not to be written");
    if (st->no_grad && tn_needs_grad(s->value[x->store / PEER_OUTS][x->store % PEER_OUTS].t))
        return peer_refuse(s, "history would be cut");
    if (v[1] && v[1]->store == x->store) return peer_refuse(s, "reads what it writes");
    if (v[1] && v[1]->dtype == TN_BOOL) return peer_refuse(s, "dtype");
    return !v[1] || is_same_or_wider(x->dtype, v[1]->dtype) ? true : peer_refuse(s, "dtype");
}

// ---- measuring

static void measure_elements(peer_value *v, const double *x)
{
    v->lo = v->hi = 0;
    v->least = v->smallest = INFINITY;
    v->odd                 = false;
    for (int64_t i = 0; i < v->count; i++) {
        if (!isfinite(x[i])) {
            v->odd = true;
            continue;
        }
        if (x[i] < v->lo) v->lo = x[i];
        if (x[i] > v->hi) v->hi = x[i];
        if (fabs(x[i]) < v->least) v->least = fabs(x[i]);
        if (x[i] != 0 && fabs(x[i]) < v->smallest) v->smallest = fabs(x[i]);
    }
    double lo = INFINITY, hi = -INFINITY;
    for (int64_t i = 0; i < v->count; i++)
        if (isfinite(x[i])) lo = fmin(lo, x[i]), hi = fmax(hi, x[i]);
    if (lo <= hi) v->lo = lo, v->hi = hi;
}

static bool measure(peer_state *s, peer_value *v)
{
    double x[PEER_MOST];
    v->dtype = tn_dtype_of(v->t);
    v->rank  = tn_rank(v->t);
    v->count = tn_count(v->t);
    for (int i = 0; i < v->rank; i++) v->size[i] = tn_size(v->t, i);
    if (v->count > PEER_MOST) return peer_refuse(s, "many elements");
    if (tn_read(v->t, TN_F64, x, v->count) != TN_OK) {
        s->error = true;
        return peer_refuse(s, "%s", tn_error_text(s->cx));
    }
    measure_elements(v, x);
    return true;
}

// Large values overflow in some dtypes, and lose what is added to them. f16 ends at 65504.
static bool in_range(peer_state *s, const peer_program *p, const peer_value *v)
{
    bool   half = v->dtype == TN_F16 || v->dtype == TN_BF16;
    double end  = half ? 300 : peer_is_float(v->dtype) ? 1e5 : 1e9;
    if (v->odd && !p->odd) return peer_refuse(s, "not finite");
    return most(v) <= end ? true : peer_refuse(s, "large");
}

// ---- exactness

// How many terms are added up for one element, at most.
static double terms(const peer_step *st, const peer_value *const *v, const peer_value *y)
{
    if (st->row->needs & MULTIPLIES)
        return st->row->form == &form_binary ? 1 : (double)v[1]->count + 1;
    double n = 1;
    for (int i = 0; i < st->nin; i++)
        if (v[i]) n = fmax(n, (double)v[i]->count / fmax((double)y->count, 1));
    return st->row->form == &form_scan || st->row->form == &form_scatter_add
               ? (double)v[0]->count + (double)v[st->nin - 1]->count
               : n;
}

static void find_exact(const peer_step *st, const peer_value *const *v, peer_value *y)
{
    double   bound = 0, product = 1;
    int      quantum = 0, added = 0;
    unsigned needs = st->row->needs;
    y->exact       = false;
    y->quantum     = 0;
    if (!peer_is_float(y->dtype)) {
        y->exact = true;
        return;
    }
    if (!(needs & (KEEPS_EXACT | SUMS | MULTIPLIES))) return;
    for (int i = 0; i < st->nin; i++) {
        if (!v[i]) continue;
        if (!v[i]->exact || v[i]->odd) return;
        if (v[i]->quantum > quantum) quantum = v[i]->quantum;
        added += v[i]->quantum;
        bound += fmax(most(v[i]), 1);
        product *= fmax(most(v[i]), 1);
    }
    bound = (needs & MULTIPLIES ? product : bound) * (needs & KEEPS_EXACT ? 1 : terms(st, v, y));
    y->quantum = needs & MULTIPLIES ? added : quantum;
    y->exact   = log2(bound) + y->quantum <= peer_digits(y->dtype);
}

// ---- admission

int peer_call_step(const peer_step *st, tn_ctx *cx, tn_tensor *const *x, tn_tensor **y)
{
    bool mode = tn_grad_mode(cx, !st->no_grad);
    int  n    = 1;
    if (st->row == &peer_data_row) n = (y[0] = peer_tensor(st, cx)) ? 1 : -1;
    else n = st->row->form->call(st, x, y);
    tn_grad_mode(cx, mode);
    return n;
}

// What a write changed: all values of the store.
static bool measure_again(peer_state *s, const peer_program *p, int step, const peer_step *st,
                          const peer_value *const *v)
{
    int        store = v[0]->store;
    peer_value made  = *v[0];
    find_exact(st, v, &made);
    for (int i = 0; i < step; i++)
        for (int k = 0; k < p->step[i].outs; k++) {
            peer_value *w = &s->value[i][k];
            if (w->store != store) continue;
            if (!measure(s, w) || !in_range(s, p, w)) return false;
            w->distinct = false;
            w->exact    = w->exact && made.exact;
            if (made.quantum > w->quantum) w->quantum = made.quantum;
        }
    return true;
}

// PyTorch refuses to write to what a gradient still needs, to one of several views made at once,
// and to views made without gradients.
static void freeze(peer_state *s, const peer_program *p, int step, const peer_value *const *v)
{
    const peer_step *st    = &p->step[step];
    bool             needs = false, view = (st->row->needs & IS_VIEW) != 0;
    for (int i = 0; i < st->nin; i++) needs |= v[i] && tn_needs_grad(v[i]->t);
    for (int i = 0; i < st->nin; i++)
        if (v[i] && ((st->row->needs & FREEZES) || (needs && !view && i > 0) ||
                     (view && st->no_grad) || (needs && !view && !(st->row->needs & WRITES))))
            s->frozen[v[i]->store] = true;
    if (needs && !view && !(st->row->needs & SAVES_NOTHING))
        for (int k = 0; k < PEER_OUTS; k++) s->frozen[step * PEER_OUTS + k] = true;
    // Whether a reshape copies follows from the order of memory, which is only sure to be the same
    // for data that lies as it was given.
    if ((st->row->form == &form_reshape || st->row->form == &form_flatten) &&
        !(tn_is_contiguous(v[0]->t) && p->step[v[0]->store / PEER_OUTS].row == &peer_data_row))
        s->frozen[v[0]->store] = s->frozen[step * PEER_OUTS] = true;
    if (st->leaf) s->frozen[step * PEER_OUTS] = true;
}

static bool take_values(peer_state *s, const peer_program *p, int step, tn_tensor *const *y,
                        const peer_value *const *v)
{
    const peer_step *st = &p->step[step];
    for (int k = 0; k < st->outs; k++) {
        peer_value *o = &s->value[step][k];
        *o            = (peer_value){ .t = y[k], .store = step * PEER_OUTS + k };
        if (!measure(s, o) || !in_range(s, p, o)) return false;
        find_exact(st, v, o);
        o->distinct = (st->row->needs & KEEPS_DISTINCT) && v[0]->distinct;
        if ((st->row->needs & IS_VIEW) && tn_is_view(y[k]))
            o->store = v[0]->store, o->overlaps = v[0]->overlaps || st->row->form == &form_expand ||
                                                  st->row->form == &form_window;
        if (st->row == &peer_data_row) {
            o->exact    = st->law != LAW_SMOOTH && st->law != LAW_POSITIVE && st->law != LAW_SHARE;
            o->quantum  = peer_is_float(o->dtype) ? 2 : 0;
            o->exact    = o->exact || !peer_is_float(o->dtype);
            o->distinct = st->law == LAW_DISTINCT;
        }
    }
    return true;
}

// Roots have no gradient at 0, or one by convention, and none of that.
static bool is_root(const peer_step *st)
{
    return has_name(st, "norm") || has_name(st, "std");
}

// Whether the factors of a product may be taken in any order: no product of some of them leaves the
// range of the dtype. Past its end comes infinity, and that times a 0 is NaN, where the 0 first is
// 0; below it comes 0, and that times an infinite factor is NaN, where the infinity first is
// infinity.
static bool any_order_ok(const peer_step *st, const peer_value *x, const peer_value *y)
{
    if (!has_name(st, "prod") && !has_name(st, "cumprod")) return true;
    if (!peer_is_float(x->dtype) || x->count == 0) return true;
    int    axis    = st->axis < 0 ? st->axis + x->rank : st->axis;
    double factors = has_name(st, "prod") ? (double)x->count / (double)y->count
                     : x->rank            ? (double)x->size[axis]
                                          : 1;
    double end     = x->dtype == TN_F16 ? 14 : x->dtype == TN_F64 ? 1022 : 126;  // as a power of 2
    if (factors * log2(fmax(most(x), 1)) > end) return false;
    return !x->odd || factors * -log2(fmin(x->smallest, 1)) <= end;
}

bool peer_admit(peer_state *s, const peer_program *p, int step)
{
    const peer_step  *st           = &p->step[step];
    const peer_value *v[PEER_INS]  = { NULL };
    tn_tensor        *x[PEER_INS]  = { NULL };
    tn_tensor        *y[PEER_OUTS] = { NULL };
    s->error                       = false;
    for (int i = 0; i < st->nin; i++) {
        if (st->in[i].step == -1) continue;
        if (st->in[i].step < 0) return peer_refuse(s, "nothing there");
        v[i] = &s->value[st->in[i].step][st->in[i].out];
        x[i] = v[i]->t;
        if (!x[i]) return peer_refuse(s, "nothing there");
    }
    if (!has_inputs(s, p, st, v)) return false;
    if ((st->row->needs & WRITES) && !may_write(s, st, v)) return false;
    if (peer_call_step(st, s->cx, x, y) != st->outs) {
        s->error = tn_error(s->cx) != TN_OK;
        peer_refuse(s, "%s", s->error ? tn_error_text(s->cx) : "another number of results");
        tn_error_clear(s->cx);
        return false;
    }
    if ((st->row->needs & WRITES) && !measure_again(s, p, step, st, v)) return false;
    if (!take_values(s, p, step, y, v)) return false;
    if (is_root(st) && s->value[step][0].least < 0.05) return peer_refuse(s, "near 0");
    if (st->outs == 1 && v[0] && !any_order_ok(st, v[0], &s->value[step][0]))
        return peer_refuse(s, "a product that depends on its order");
    freeze(s, p, step, v);
    return true;
}

bool peer_admit_all(tn_ctx *ref, const peer_program *p, char *why)
{
    peer_state s;
    tn_scope  *scope = tn_begin(ref);
    bool       ok    = peer_open_state(&s, ref);
    for (int i = 0; ok && i < p->count; i++) ok = peer_admit(&s, p, i);
    if (!ok && why) snprintf(why, PEER_TEXT, "%s", s.why);
    tn_end(scope);
    tn_error_clear(ref);
    return ok;
}
