// Initializers: each draws a value of t's shape and writes it to t with no history. Half precision
// is drawn in f32 and rounded once.
#include "nn/layer.h"
#include "ops/composite.h"

#include <math.h>

// ---- drawing and writing -----------------------------------------------------------------------

// Returns the context of a tensor that can be filled with random numbers; NULL, reported, if t
// cannot.
static tn_ctx *check_target(const char *op, tn_tensor *t)
{
    tn_ctx *cx = tni_arg1(op, t, "t");
    return cx && tni_want_float(t, op) ? cx : NULL;
}

static bool finite_args(tn_ctx *cx, const char *op, double a, double b)
{
    if (isfinite(a) && isfinite(b)) return true;
    return tni_refuse(cx, TN_EARG, "%s: %g is not a finite number", op, isfinite(a) ? b : a);
}

// Draws random numbers of t's shape: uniform in 0 .. 1, or normal.
static tn_tensor *draw_values(tn_tensor *t, bool normal)
{
    tni_view v  = tni_layout(t);
    tn_dtype dt = tn_dtype_of(t) == TN_F64 ? TN_F64 : TN_F32;
    return normal ? tn_randn(t->cx, dt, v.rank, v.size) : tn_rand(t->cx, dt, v.rank, v.size);
}

// Writes t = a x + b without recording a gradient. x may be NULL, already reported.
static tn_tensor *write_values(tn_tensor *t, tn_tensor *x, double a, double b)
{
    if (!x) return NULL;
    tn_ctx *cx   = x->cx;
    bool    mode = tn_grad_mode(cx, false);
    t            = tn_assign(t, tn_add_s(tn_mul_s(x, a), b));
    tn_grad_mode(cx, mode);
    return t;
}

tn_tensor *tn_init_constant(tn_tensor *t, double v)
{
    tn_ctx *cx = tni_arg1("init_constant", t, "t");
    if (!cx) return NULL;
    bool mode = tn_grad_mode(cx, false);
    t         = tn_fill_(t, v);
    tn_grad_mode(cx, mode);
    return t;
}

tn_tensor *tn_init_uniform(tn_tensor *t, double lo, double hi)
{
    tn_ctx *cx = check_target("init_uniform", t);
    if (!cx || !finite_args(cx, "init_uniform", lo, hi)) return NULL;
    if (lo > hi) return tni_fail(cx, TN_EARG, "init_uniform: lo %g is above hi %g", lo, hi);
    return write_values(t, draw_values(t, false), hi - lo, lo);
}

static bool std_ok(tn_ctx *cx, const char *op, double mean, double std)
{
    if (!finite_args(cx, op, mean, std)) return false;
    return std >= 0 || tni_refuse(cx, TN_EARG, "%s: std %g is not 0 or more", op, std);
}

tn_tensor *tn_init_normal(tn_tensor *t, double mean, double std)
{
    tn_ctx *cx = check_target("init_normal", t);
    if (!cx || !std_ok(cx, "init_normal", mean, std)) return NULL;
    return write_values(t, draw_values(t, true), std, mean);
}

// ---- truncated ---------------------------------------------------------------------------------

// Returns y with erf(y) = x, for |x| up to erf(sqrt 2), by Newton's method. The start is between 0
// and y, and since erf is concave there no step overshoots; seven of them reach the precision of
// f64.
static tn_tensor *inverse_erf(tn_tensor *x)
{
    const double half_root_pi = 0.88622692545275801365;
    tn_tensor   *y            = tn_mul_s(x, half_root_pi);
    for (int i = 0; i < 7; i++) {
        tn_tensor *miss = tn_sub(x, tn_erf(y));
        y               = tn_add(y, tn_mul(miss, tn_mul_s(tn_exp(tn_square(y)), half_root_pi)));
    }
    return y;
}

// The same in f32, by a polynomial in w = -log(1 - x^2) with an error of at most 2e-8. Devices have
// their own erf and exp, but share the ops used here, so that weights have the same bits on every
// device.
static tn_tensor *inverse_erf_f32(tn_tensor *x)
{
    static const double c[] = { -4.49552728e-06, 6.4102176e-05, -0.000152387964, -0.00231729145,
                                0.0115430819,    0.232014489,   0.886226908 };
    tn_tensor          *w   = tn_neg(tn_log(tn_rsub_s(tn_square(x), 1)));
    tn_tensor          *p   = tn_add_s(tn_mul_s(w, c[0]), c[1]);
    for (int i = 2; i < 7; i++) p = tn_add_s(tn_mul(p, w), c[i]);
    return tn_mul(p, x);
}

// Inverts the distribution function at uniform points between its values at -2 and 2, which needs
// no rejection and so one draw per element, whatever the values are.
tn_tensor *tn_init_trunc_normal(tn_tensor *t, double mean, double std)
{
    const double root2 = 1.41421356237309504880, erf_root2 = 0.95449973610364158560;
    tn_ctx      *cx = check_target("init_trunc_normal", t);
    if (!cx || !std_ok(cx, "init_trunc_normal", mean, std)) return NULL;
    tn_tensor *u = tn_add_s(tn_mul_s(draw_values(t, false), 2 * erf_root2), -erf_root2);
    tn_tensor *y = u && tn_dtype_of(u) == TN_F64 ? inverse_erf(u) : inverse_erf_f32(u);
    return write_values(t, tn_clamp(tn_mul_s(y, root2), -2, 2), std, mean);
}

// ---- by fans -----------------------------------------------------------------------------------

// What feeds one output, and what one input feeds, of a weight (out, in, ...). At least 1.
typedef struct {
    double in, out;
} fans;

// Of a weight (out, in, ...), a convolution's window counts for both fans.
static bool find_fans(const char *op, tn_tensor *t, fans *f)
{
    if (!check_target(op, t)) return false;
    if (tn_rank(t) < 2)
        return tni_refuse(t->cx, TN_ESHAPE, "%s: t %s is not a weight (out, in, ...)", op,
                          tni_shape_of(t).s);
    const int64_t *size   = tni_sizes(t);
    double         window = 1;
    for (int i = 2; i < tn_rank(t); i++) window *= (double)size[i];
    f->in  = fmax((double)size[1] * window, 1);
    f->out = fmax((double)size[0] * window, 1);
    return true;
}

// Fills t with standard deviation std, uniformly or normally: a uniform distribution in -b .. b has
// the deviation b / sqrt 3.
static tn_tensor *fill_with_std(const char *op, tn_tensor *t, double std, bool normal)
{
    if (!std_ok(t->cx, op, 0, std)) return NULL;
    double bound = sqrt(3.0) * std;
    return normal ? tn_init_normal(t, 0, std) : tn_init_uniform(t, -bound, bound);
}

static tn_tensor *xavier(const char *op, tn_tensor *t, double gain, bool normal)
{
    fans f;
    if (!find_fans(op, t, &f)) return NULL;
    return fill_with_std(op, t, gain * sqrt(2 / (f.in + f.out)), normal);
}

// std = gain / sqrt(fan); the default gain, sqrt 2, is that of relu.
static tn_tensor *kaiming(const char *op, tn_tensor *t, tn_init_opts o, bool normal)
{
    fans f;
    if (!find_fans(op, t, &f)) return NULL;
    return fill_with_std(op, t, tni_or_default(o.gain, sqrt(2.0)) / sqrt(o.fan_out ? f.out : f.in),
                         normal);
}

tn_tensor *tn_init_xavier_uniform(tn_tensor *t, double gain)
{
    return xavier("init_xavier_uniform", t, gain, false);
}

tn_tensor *tn_init_xavier_normal(tn_tensor *t, double gain)
{
    return xavier("init_xavier_normal", t, gain, true);
}

tn_tensor *tn_init_kaiming_uniform(tn_tensor *t, tn_init_opts o)
{
    return kaiming("init_kaiming_uniform", t, o, false);
}

tn_tensor *tn_init_kaiming_normal(tn_tensor *t, tn_init_opts o)
{
    return kaiming("init_kaiming_normal", t, o, true);
}
