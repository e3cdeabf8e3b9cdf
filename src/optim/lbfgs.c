// L-BFGS: a quasi-Newton method over all parameters as one vector, with PyTorch's steps and line
// search.
//
// An update evaluates the loss several times and decides by numbers on the host, so it takes a
// function instead of a loss. Its direction is the gradient times an inverse Hessian that follows
// from the last moves s and changes y of the gradient. PyTorch goes twice through their list, each
// time with vectors; here the list is one matrix on the device, the products of its rows are kept
// on the host, and the two passes are numbers:
//
//   rows (2 cap, n)    s of 0 .. cap - 1, then y of them; a ring once it is full
//   dot  (2 cap)^2     rows times rows, on the host
//   direction          rows^T c + e g, with c and e from the two passes over dot
//
// The matrix grows by doubling, so that an iteration has one of few plans whatever its number.
//
// n elements of all parameters
#include "optim/update.h"

#include <string.h>

enum { GRADIENTS = 4 };  // at the start, and of up to three places of a line search

// What an optimizer of this kind has beside its slots. The vectors are owned by it and written in
// place, so that their memory and the plans that read them stay the same from iteration to
// iteration. dot is NULL and cap 0 until the second iteration. The kept changes are rows 0 .. count
// - 1 while there is room, and from then on all of them, the newest at `newest`.
struct tni_lbfgs {
    int64_t    n;
    tn_dtype   dtype;  // of the vectors: f64 if a parameter is
    int        max_iter, max_eval, most;
    double     tolerance_grad, tolerance_change;
    bool       wolfe;
    tn_tensor *x, *d, *g[GRADIENTS];  // owned: the parameters, the direction, gradients
    tn_tensor *rows;                  // owned; NULL before the first change is kept
    double    *dot;
    int        cap, count, newest;
    int        before;      // the gradient that the next change counts from
    double     t, scale;    // length of the last move; of the first inverse Hessian
    int64_t    iterations;  // of all updates
};

// A call of tn_minimize.
typedef struct {
    tn_optim   *o;
    tni_lbfgs  *b;
    tn_loss_fn *f;
    void       *user;
    double      d_max;  // the largest element of the direction
    int         evals;
} run;

// A place on the line x + t d: the loss, its slope and where its gradient is.
typedef struct {
    double t, f, slope, max, sum, square;
    int    g;
} point;

// ---- vectors -----------------------------------------------------------------------------------

// Lets go of a vector, if there is one.
static void free_vector(tn_tensor **t)
{
    if (*t) tni_tensor_disown(*t);
    *t = NULL;
}

// The history goes with the optimizer: a network keeps nothing of it.
void tni_lbfgs_free(tn_optim *o)
{
    tni_lbfgs *b = o->lbfgs;
    if (!b) return;
    free_vector(&b->x);
    free_vector(&b->d);
    free_vector(&b->rows);
    for (int i = 0; i < GRADIENTS; i++) free_vector(&b->g[i]);
    tni_free(&o->owned.cx->heap, b->dot);
    tni_free(&o->owned.cx->heap, b);
    o->lbfgs = NULL;
}

// Makes zeros that outlive the call.
static bool new_vector(const tn_optim *o, tn_tensor **t, int rank, const int64_t *size)
{
    tn_tensor *made = tn_zeros(o->owned.cx, o->lbfgs->dtype, rank, size);
    if (!made) return false;
    tni_tensor_own(made);
    free_vector(t);
    *t = made;
    return true;
}

// Joins tensors of the parameters' shapes into one vector; NULL among them stands for zeros.
static tn_tensor *join(const run *r, tn_tensor *const *part)
{
    tn_optim *o = r->o;
    for (size_t i = 0; i < o->slots; i++) {
        tn_tensor *p = part[i] ? part[i] : tn_zeros_like(tn_detach(o->slot[i].p));
        if (p && tn_dtype_of(p) != r->b->dtype) p = tn_cast(p, r->b->dtype);
        if (!(o->list[i] = p ? tn_reshape(p, TN_SHAPE(-1)) : NULL)) return NULL;
    }
    return o->slots == 1 ? o->list[0] : tn_concat((int)o->slots, o->list, 0);
}

// Writes a vector into the parameters, each in its dtype.
static bool write_params(const run *r, tn_tensor *v)
{
    int64_t at = 0;
    for (size_t i = 0; i < r->o->slots; i++) {
        tn_tensor *p = r->o->slot[i].p;
        tni_view   s = tni_layout(p);
        tn_tensor *y = v ? tn_slice(v, 0, at, at + tn_count(p), 1) : NULL;
        if (!y || !tn_assign(p, tn_reshape(y, s.rank, s.size))) return false;
        at += tn_count(p);
    }
    return true;
}

// x + t d. t is a number of the kernel and not part of the plan, so that every place on the line is
// computed by one plan.
static tn_tensor *moved(const run *r, double t)
{
    return tn_add(r->b->x, tn_mul_s(r->b->d, t));
}

// ---- evaluating --------------------------------------------------------------------------------

// The gradients after the user's function: those of a backward pass that it made, else those of its
// loss.
static tn_tensor *gradient(const run *r, tn_tensor *loss)
{
    tn_optim  *o   = r->o;
    tn_ctx    *cx  = o->owned.cx;
    bool       own = false, ok = true;
    tn_tensor *flat = NULL, **all = tni_zalloc(&cx->heap, (o->slots + 1) * 2 * sizeof *all);
    if (!all) return tni_fail_memory(cx, "minimize");
    for (size_t i = 0; i < o->slots; i++) {
        all[i]            = tni_trained_grad(&o->slot[i]);
        own               = own || all[i];
        all[o->slots + i] = o->slot[i].p;
    }
    if (!own) ok = tn_grad(1, &loss, (int)o->slots, all + o->slots, NULL, all) == TN_OK;
    if (ok) flat = join(r, all);
    tni_free(&cx->heap, all);
    return flat;
}

// Each read waits for the device, which is why an evaluation has only this one.
// The numbers that decisions need, read at once: loss, slope, largest and summed element of the
// gradient, its square, and the largest element of the direction.
static bool read_point(const run *r, tn_tensor *loss, tn_tensor *g, double *v)
{
    tni_lbfgs *b   = r->b;
    tn_tensor *one = tn_cast(tn_reshape(tn_detach(loss), TN_0D), b->dtype), *size = tn_abs(g);
    tn_tensor *w[6] = { one,
                        tn_sum_all(tn_mul(g, b->d)),
                        tn_max_all(size),
                        tn_sum_all(size),
                        tn_sum_all(tn_square(g)),
                        tn_max_all(tn_abs(b->d)) };
    for (int i = 0; i < 6; i++)
        if (!w[i]) return false;
    tn_tensor *all = tn_stack(6, w, 0);
    return all && tn_read(all, TN_F64, v, 6) == TN_OK;
}

// Calls the user's function at x + t d (here: where the parameters are now) and keeps the gradient
// in g[into].
static bool evaluate(run *r, const double *t, int into, point *y)
{
    tn_ctx   *cx = r->o->owned.cx;
    tn_scope *s  = tn_begin(cx);
    double    v[6];
    if (!s) return false;
    uint64_t failures = cx->failures;
    cx->grad_mode     = false;
    bool ok           = !t || write_params(r, moved(r, *t));
    if (ok) tn_optim_zero_grad(r->o);
    cx->grad_mode   = true;
    tn_tensor *loss = ok ? r->f(r->user) : NULL;
    if (ok && !loss && cx->failures == failures)
        tni_fail(cx, TN_EUSER, "minimize: the function returned no loss");
    if (loss && (!tni_arg1("minimize", loss, "loss") || tn_count(loss) != 1)) {
        tni_fail(cx, TN_ESHAPE, "minimize: the loss %s is not one element", tni_shape_of(loss).s);
        loss = NULL;
    }
    tn_tensor *g  = loss ? gradient(r, loss) : NULL;
    cx->grad_mode = false;
    ok            = g && tn_assign(r->b->g[into], g) && read_point(r, loss, r->b->g[into], v);
    tni_scope_close(s);
    if (!ok) return false;
    *y       = (point){ .t      = t ? *t : 0,
                        .f      = v[0],
                        .slope  = v[1],
                        .max    = v[2],
                        .sum    = v[3],
                        .square = v[4],
                        .g      = into };
    r->d_max = v[5];
    r->evals++;
    return true;
}

// There are four places, so that one is always free.
// A place for a gradient that is none of three that are needed.
static int free_place(int a, int b, int c)
{
    int i = 0;
    while (i == a || i == b || i == c) i++;
    return i;
}

// ---- the direction -----------------------------------------------------------------------------

// Makes room for one more change, twice as much as before. Rows are copied on the device and their
// products on the host; with a most of 100 that happens five times in the life of an optimizer. On
// failure everything is as it was.
static bool grow_rows(const run *r)
{
    tni_lbfgs *b   = r->b;
    tn_ctx    *cx  = r->o->owned.cx;
    int        was = b->cap, now = was ? 2 * was : 4;
    if (was && (b->count < was || was == b->most)) return true;
    if (now > b->most) now = b->most;
    double    *dot = tni_zalloc(&cx->heap, (size_t)(4 * now * now) * sizeof *dot);
    tn_tensor *old = b->rows;
    b->rows        = NULL;
    bool ok        = dot && new_vector(r->o, &b->rows, TN_SHAPE(2 * now, b->n));
    for (int half = 0; half < 2 && ok && was; half++)
        ok = tn_assign(tn_slice(b->rows, 0, half * now, half * now + was, 1),
                       tn_slice(old, 0, half * was, (half + 1) * was, 1)) != NULL;
    if (!ok) {
        if (!dot) tni_fail_memory(cx, "minimize");
        free_vector(&b->rows);
        b->rows = old;
        tni_free(&cx->heap, dot);
        return false;
    }
    for (int i = 0; i < 2 * was; i++)
        for (int j = 0; j < 2 * was; j++)
            dot[(i < was ? i : i - was + now) * 2 * now + (j < was ? j : j - was + now)] =
                b->dot[i * 2 * was + j];
    free_vector(&old);
    tni_free(&cx->heap, b->dot);
    b->dot = dot;
    b->cap = now;
    return true;
}

// Overwrites the oldest change, or a free row, by a move and its change; their products with the
// others are known already, so that nothing is computed for them again. The scale of the first
// inverse Hessian is that of the newest change, as PyTorch has it. Keeps a move and its change: m
// has the products of s, y and g with all rows and then with s, y and g.
static bool keep_change(const run *r, tn_tensor *s, tn_tensor *y, double *m, int width)
{
    tni_lbfgs *b = r->b;
    int        i = b->count < b->cap ? b->count : (b->newest + 1) % b->cap, N = 2 * b->cap;
    tn_tensor *new[] = { s, y };
    for (int k = 0; k < 2; k++) {
        tn_tensor *row = tn_slice(b->rows, 0, k * b->cap + i, k * b->cap + i + 1, 1);
        if (!row || !tn_assign(row, tn_reshape(new[k], TN_SHAPE(1, b->n)))) return false;
    }
    // The products with the rows that were overwritten are those with the new ones.
    for (int k = 0; k < 3; k++) {
        m[k * width + i]          = m[k * width + N];
        m[k * width + b->cap + i] = m[k * width + N + 1];
    }
    for (int k = 0; k < 2; k++)
        for (int j = 0; j < N; j++)
            b->dot[(k * b->cap + i) * N + j] = b->dot[j * N + k * b->cap + i] = m[k * width + j];
    b->newest = i;
    if (b->count < b->cap) b->count++;
    b->scale = m[N + 1] / m[width + N + 1];
    return true;
}

// The sum of coefficients times a row of products; e is that of g, whose products are in gd.
static double times(const double *c, const double *row, int n, double e, double g)
{
    double sum = e * g;
    for (int i = 0; i < n; i++) sum += c[i] * row[i];
    return sum;
}

// The two passes of L-BFGS over the kept changes, in coefficients: c of the rows, the result is
// that of g. gd are the products of g with the rows.
static double two_passes(const tni_lbfgs *b, const double *gd, double *c, double *alpha)
{
    int    N = 2 * b->cap, cap = b->cap, first = b->count < cap ? 0 : (b->newest + 1) % cap;
    double e = -1;
    memset(c, 0, (size_t)N * sizeof *c);
    for (int k = b->count - 1; k >= 0; k--) {
        int i    = (first + k) % cap;
        alpha[i] = times(c, b->dot + i * N, N, e, gd[i]) / b->dot[i * N + cap + i];
        c[cap + i] -= alpha[i];
    }
    for (int j = 0; j < N; j++) c[j] *= b->scale;
    e *= b->scale;
    for (int k = 0; k < b->count; k++) {
        int    i    = (first + k) % cap;
        double beta = times(c, b->dot + (cap + i) * N, N, e, gd[cap + i]) / b->dot[i * N + cap + i];
        c[i] += alpha[i] - beta;
    }
    return e;
}

// All products that the two passes need come from one read: of s, y and the gradient with every
// kept row and with each other. A change with s y near 0 or below would make the matrix indefinite,
// and is left out; the limit is PyTorch's. Sets the direction from the gradient at x, and *slope:
// gradient times direction. work has room for 9 cap + 9 numbers.
static bool set_direction(const run *r, int at, double *work, double *slope)
{
    tni_lbfgs *b = r->b;
    int        N = 2 * b->cap, width = N + 3;
    double    *m = work, *c = m + 3 * width, *alpha = c + N;
    tn_tensor *s = tn_mul_s(b->d, b->t), *y = tn_sub(b->g[at], b->g[b->before]);
    tn_tensor *v[] = { s, y, b->g[at] }, *w = s && y ? tn_stack(3, v, 0) : NULL;
    tn_tensor *all[] = { w ? tn_matmul(w, tn_transpose(b->rows, 0, 1)) : NULL,
                         w ? tn_matmul(w, tn_transpose(w, 0, 1)) : NULL };
    tn_tensor *read = all[0] && all[1] ? tn_concat(2, all, 1) : NULL;
    if (!read || tn_read(read, TN_F64, m, 3 * width) != TN_OK) return false;
    if (m[N + 1] > 1e-10 && !keep_change(r, s, y, m, width)) return false;
    const double *gd = m + 2 * width;
    double        e  = two_passes(b, gd, c, alpha);
    *slope           = times(c, gd, N, e, gd[N + 2]);
    tn_tensor *k     = tn_from(r->o->owned.cx, TN_F64, TN_SHAPE(1, N), c);
    tn_tensor *sum   = k ? tn_matmul(tn_cast(k, b->dtype), b->rows) : NULL;
    sum              = sum ? tn_reshape(sum, TN_SHAPE(-1)) : NULL;
    return sum && tn_assign(b->d, tn_add(sum, tn_mul_s(b->g[at], e)));
}

// The same for the first iteration of all, which goes down the gradient.
static bool set_first_direction(const run *r, const point *p, double *slope)
{
    r->b->count = 0;
    r->b->scale = 1;
    *slope      = -p->square;
    return tn_assign(r->b->d, tn_neg(r->b->g[p->g])) != NULL;
}

// Temporaries die with the scope; the direction is a vector that stays.
static bool next_direction(const run *r, const point *p, double *slope)
{
    tn_ctx   *cx = r->o->owned.cx;
    tn_scope *s  = tn_begin(cx);
    if (!s) return false;
    cx->grad_mode = false;
    bool ok       = true;
    if (r->b->iterations == 1) {
        ok = set_first_direction(r, p, slope);
    } else if ((ok = grow_rows(r))) {
        double *work = tni_alloc(&cx->heap, (size_t)(9 * r->b->cap + 9) * sizeof *work);
        ok           = work ? set_direction(r, p->g, work, slope) : tni_no_memory(cx, "minimize");
        tni_free(&cx->heap, work);
    }
    tni_scope_close(s);
    return ok;
}

// ---- the line search ---------------------------------------------------------------------------

// The lowest place, between lo and hi, of the cubic that has the losses and slopes of two points.
static double cubic(const point *a, const point *b, double lo, double hi)
{
    double d1 = a->slope + b->slope - 3 * (a->f - b->f) / (a->t - b->t);
    double sq = d1 * d1 - a->slope * b->slope;
    if (!(sq >= 0)) return (lo + hi) / 2;
    if (a->t > b->t) {
        const point *swap = a;
        a                 = b;
        b                 = swap;
    }
    double d2 = sqrt(sq);
    double t  = b->t - (b->t - a->t) * ((b->slope + d2 - d1) / (b->slope - a->slope + 2 * d2));
    return fmin(fmax(t, lo), hi);
}

// The constants of Armijo's condition and of the slope's, which are PyTorch's.
static const double ENOUGH = 1e-4, FLAT = 0.9;

// The first phase: t grows, by the cubic through the last two places but by a hundredth at least
// and tenfold at most. Goes on along the line until a place fulfils the conditions (*done; in
// b[0]), or two places have one between them.
static bool find_bracket(run *r, const point *start, double t, int most, point *b, int *tries,
                         bool *done)
{
    point last = *start, now;
    if (!evaluate(r, &t, free_place(start->g, -1, -1), &now)) return false;
    for (*tries = 0; *tries < most; ++*tries) {
        if (fabs(now.slope) <= -FLAT * start->slope &&
            now.f <= start->f + ENOUGH * now.t * start->slope && !(*tries > 1 && now.f >= last.f)) {
            b[0] = b[1] = now;
            *done       = true;
            return true;
        }
        if (now.f > start->f + ENOUGH * now.t * start->slope || (*tries > 1 && now.f >= last.f) ||
            now.slope >= 0) {
            b[0] = last;
            b[1] = now;
            return true;
        }
        t    = cubic(&last, &now, now.t + 0.01 * (now.t - last.t), now.t * 10);
        last = now;
        if (!evaluate(r, &t, free_place(start->g, last.g, -1), &now)) return false;
    }
    b[0] = *start;
    b[1] = now;
    return true;
}

// The next place to try in a bracket. If it comes out near an end twice, or at one, it is moved a
// tenth of the width inwards.
static double inside(const point *b, bool *near)
{
    double lo = fmin(b[0].t, b[1].t), hi = fmax(b[0].t, b[1].t), eps = 0.1 * (hi - lo);
    double t    = cubic(&b[0], &b[1], lo, hi);
    bool   edge = fmin(hi - t, t - lo) < eps, move = edge && (*near || t >= hi || t <= lo);
    if (move) t = fabs(t - hi) < fabs(t - lo) ? hi - eps : lo + eps;
    *near = edge && !move;
    return t;
}

// The second phase narrows the bracket: its low end is the place with the lower loss, and the high
// end is whichever other place has a lower one between them.
// A line search for the strong Wolfe conditions: enough progress, and a slope flat enough. start
// has the slope at x, most is how many times the function may be called.
static bool strong_wolfe(run *r, const point *start, double t, int most, point *found)
{
    point b[2];
    bool  done = false, near = false;
    int   tries;
    if (!find_bracket(r, start, t, most, b, &tries, &done)) return false;
    int low = b[0].f <= b[1].f ? 0 : 1;
    while (!done && tries < most) {
        point *lo = &b[low], *hi = &b[!low], now;
        if (fabs(b[1].t - b[0].t) * r->d_max < r->b->tolerance_change) break;
        t = inside(b, &near);
        if (!evaluate(r, &t, free_place(start->g, b[0].g, b[1].g), &now)) return false;
        tries++;
        if (now.f > start->f + ENOUGH * t * start->slope || now.f >= lo->f) {
            *hi = now;
            low = b[0].f <= b[1].f ? 0 : 1;
            continue;
        }
        done = fabs(now.slope) <= -FLAT * start->slope;
        if (!done && now.slope * (hi->t - lo->t) >= 0) *hi = *lo;
        *lo = now;
    }
    *found = b[low];
    return true;
}

// ---- an update ---------------------------------------------------------------------------------

// Writes x + t d into x and the parameters.
static bool move_to(const run *r, double t)
{
    tn_ctx   *cx = r->o->owned.cx;
    tn_scope *s  = tn_begin(cx);
    if (!s) return false;
    cx->grad_mode = false;
    bool ok       = tn_assign(r->b->x, moved(r, t)) && write_params(r, r->b->x);
    tni_scope_close(s);
    return ok;
}

// The gradient at the start stays in its place until the next direction was set from the change
// since. One iteration from the point p, the n-th of this update; sets *end if it is the last.
// Conditions stand in PyTorch's order.
static bool iterate(run *r, point *p, int n, bool *end)
{
    tni_lbfgs *b     = r->b;
    point      start = *p;
    double     lr = tn_optim_lr(r->o), before = p->f;
    bool       first = ++b->iterations == 1;
    if (!next_direction(r, p, &start.slope)) return false;
    b->before = p->g;
    b->t      = first ? fmin(1, 1 / p->sum) * lr : lr;
    start.t   = 0;
    *end      = true;
    if (start.slope > -b->tolerance_change) return true;
    int  evals = r->evals;
    bool ok    = true;
    if (b->wolfe) {
        if (!strong_wolfe(r, &start, b->t, b->max_eval - evals, p)) return false;
        b->t = p->t;
    }
    ok = move_to(r, b->t);
    if (ok && !b->wolfe && n < b->max_iter) ok = evaluate(r, NULL, free_place(start.g, -1, -1), p);
    *end = n == b->max_iter || r->evals >= b->max_eval || p->max <= b->tolerance_grad ||
           b->t * r->d_max <= b->tolerance_change || fabs(p->f - before) < b->tolerance_change;
    return ok;
}

// They may be of several dtypes: the vector is in the widest, f32 at least, and writing it back
// rounds. Reads the parameters, which the program may have written since the last update.
static bool read_params(const run *r)
{
    tn_ctx     *cx  = r->o->owned.cx;
    tn_scope   *s   = tn_begin(cx);
    tn_tensor **all = tni_alloc(&cx->heap, r->o->slots * sizeof *all);
    bool        ok  = s && (all || tni_no_memory(cx, "minimize"));
    if (s) cx->grad_mode = false;
    for (size_t i = 0; i < r->o->slots && ok; i++) all[i] = r->o->slot[i].p;
    if (ok) ok = tn_assign(r->b->x, join(r, all)) != NULL;
    if (s) tni_scope_close(s);
    tni_free(&cx->heap, all);
    return ok;
}

// The first call is where the parameters are, with whatever batch the function now has: the change
// of the gradient since the last update counts as if it were of the same function, as in PyTorch.
// If the function fails on the way, parameters are those of the last iteration.
static bool run_update(run *r, double *loss)
{
    tni_lbfgs *b = r->b;
    point      p;
    bool       end = false, ok = true;
    if (!read_params(r) || !evaluate(r, NULL, free_place(b->before, -1, -1), &p)) return false;
    if (loss) *loss = p.f;
    if (p.max <= b->tolerance_grad) return true;
    for (int n = 1; ok && !end && n <= b->max_iter; n++) ok = iterate(r, &p, n, &end);
    if (!ok) move_to(r, 0);
    return ok;
}

// So that a program can take any optimizer by one call, and change it by one line.
// Other optimizers take the loss of one call.
static tn_status step_once(tn_optim *o, tn_loss_fn *f, void *user, double *loss)
{
    tn_ctx   *cx       = o->owned.cx;
    uint64_t  failures = cx->failures;
    tn_scope *s        = tn_begin(cx);
    if (!s) return tni_failed();
    cx->grad_mode     = true;
    tn_tensor *y      = f(user);
    tn_status  status = TN_OK;
    if (!y && cx->failures == failures)
        status = tni_fail_status(cx, TN_EUSER, "minimize: the function returned no loss");
    else status = y ? tn_step(o, y) : tni_failed();
    if (status == TN_OK && loss) *loss = tn_item(y);
    tni_scope_close(s);
    return status;
}

// The function is the program's, and may read tensors or evaluate: nothing of this is one
// recording, as other updates are.
tn_status tn_minimize(tn_optim *o, tn_loss_fn *f, void *user, double *loss)
{
    tn_ctx *cx = tni_record_ready("minimize", o);
    if (!cx) return tni_failed();
    if (!f) return tni_fail_status(cx, TN_EARG, "minimize: the function is NULL");
    if (!o->lbfgs) return step_once(o, f, user, loss);
    run r = { .o = o, .b = o->lbfgs, .f = f, .user = user };
    if (!run_update(&r, loss)) return tni_failed();
    o->updates++;
    return TN_OK;
}

// ---- making ------------------------------------------------------------------------------------

// The name alone: there is no update by one gradient, and no state that checkpoints would know.
static const tni_update_rule lbfgs = { .name = "lbfgs" };

// Six vectors beside the history: x, d and four gradients.
// Makes the vectors of an optimizer whose parameters are known.
static bool make_vectors(tn_optim *o)
{
    tni_lbfgs *b = o->lbfgs;
    b->dtype     = TN_F32;
    for (size_t i = 0; i < o->slots; i++) {
        b->n += tn_count(o->slot[i].p);
        if (tn_dtype_of(o->slot[i].p) == TN_F64) b->dtype = TN_F64;
    }
    bool ok = new_vector(o, &b->x, 1, &b->n) && new_vector(o, &b->d, 1, &b->n);
    for (int i = 0; i < GRADIENTS && ok; i++) ok = new_vector(o, &b->g[i], 1, &b->n);
    return ok;
}

// What is wrong with the options that are only its own, as a phrase; NULL if nothing is.
static const char *wrong_options(const tn_lbfgs_opts *o)
{
    if (o->max_iter < 0 || o->max_eval < 0) return "max_iter or max_eval is negative";
    if (o->history_size < 0 || o->history_size > 10000) return "history_size is not in 0 .. 10000";
    if (!tni_not_negative(o->tolerance_grad) || !tni_not_negative(o->tolerance_change))
        return "a tolerance is not a number >= 0";
    return NULL;
}

// An optimizer as others for names, learning rate, schedule and counts; what it keeps beside
// parameters is made here.
tn_optim *tn_lbfgs(tn_layer *net, tn_lbfgs_opts o)
{
    const char *op = "lbfgs", *wrong = wrong_options(&o);
    tn_ctx     *cx = tni_owned_ok(op, net, TNI_LAYER);
    if (!cx) return NULL;
    if (wrong) return tni_fail(cx, TN_EARG, "%s: %s", op, wrong);
    tn_optim *made = tni_optim_make(
        op, net, &(tn_optim){ .rule = &lbfgs, .lr = tni_option(o.lr, 1), .no_master = true });
    if (!made) return NULL;
    tni_lbfgs *b = made->lbfgs = tni_zalloc(&cx->heap, sizeof *b);
    if (b) {
        b->max_iter         = o.max_iter ? o.max_iter : 20;
        b->max_eval         = o.max_eval ? o.max_eval : b->max_iter * 5 / 4;
        b->most             = o.history_size ? o.history_size : 100;
        b->tolerance_grad   = tni_option(o.tolerance_grad, 1e-7);
        b->tolerance_change = tni_option(o.tolerance_change, 1e-9);
        b->wolfe            = o.strong_wolfe;
        b->before           = -1;
        if (make_vectors(made)) return made;
    } else {
        tni_fail_memory(cx, op);
    }
    tn_optim_free(made);
    return NULL;
}
