// Muon: a matrix moves in the direction of its momentum with all singular values made equal, so
// that no direction of the gradient drowns the others. Weights of convolutions count as matrices of
// (out, rest). What is no matrix, and what the program names (embeddings, heads), is updated by
// AdamW.
#include "optim/optim.h"

#include <math.h>

// Returns x, whose singular values are at most 1, with all of them near 1, by five turns of a
// polynomial in x that moves each singular value s to 3.4445 s - 4.775 s^3 + 2.0315 s^5. It rises
// steeply at 0, and need not be exact above: values end in 0.7 .. 1.2, which is enough, and bf16 is
// enough for that, unless parameters are f64. Products are with the smaller side.
static tn_tensor *orthogonalized(tn_tensor *x, double eps)
{
    enum { TURNS = 5 };
    const double a = 3.4445, b = -4.775, c = 2.0315;
    bool         tall = tn_size(x, 0) > tn_size(x, 1);
    tn_dtype     dt = tn_dtype_of(x), low = dt == TN_F64 ? TN_F64 : TN_BF16;
    if (tall) x = tn_transpose(x, 0, 1);
    tn_tensor *norm = tn_maximum_s(tn_sqrt(tn_sum_all(tn_square(x))), eps);
    x               = tn_cast(tn_div(x, norm), low);
    for (int i = 0; i < TURNS; i++) {
        tn_tensor *gram = tn_matmul(x, tn_transpose(x, 0, 1));
        tn_tensor *poly = tn_add(tn_mul_s(gram, b), tn_mul_s(tn_matmul(gram, gram), c));
        x               = tn_add(tn_mul_s(x, a), tn_matmul(poly, x));
    }
    if (tall) x = tn_transpose(x, 0, 1);
    return tn_cast(x, dt);
}

// Returns the factor of the learning rate for a matrix: one that lets a step change each output by
// as much whatever the sizes are, or (match_rms) one that gives steps AdamW's usual root mean
// square, so that its learning rates fit.
static double size_factor(const tn_optim *o, int64_t rows, int64_t cols)
{
    double r = (double)rows, c = (double)cols;
    return o->match_rms ? 0.2 * sqrt(fmax(r, c)) : sqrt(fmax(1, r / c));
}

enum { MOMENTUM, MOMENTS };  // states: of matrices; the first of the two of AdamW's

static tn_tensor *update_muon(tn_optim *o, tni_update *u)
{
    if (u->vector) return tni_update_adamw(o, u, MOMENTS);
    int64_t    size[2] = { tn_size(u->p, 0), tn_count(u->p) / tn_size(u->p, 0) };
    tn_tensor *m = u->next[MOMENTUM] = tni_average(u->state[MOMENTUM], u->g, o->momentum);
    tn_tensor *d                     = o->nesterov ? tni_average(m, u->g, o->momentum) : m;
    d                                = orthogonalized(tn_reshape(d, 2, size), 1e-7);
    d                                = tn_reshape(d, tni_rank(u->p), tni_sizes(u->p));
    return tn_sub(tni_shrunk(u), tn_mul_s(d, u->lr * size_factor(o, size[0], size[1])));
}

static bool has_state(const tn_optim *o, const tni_trained *s, int k)
{
    (void)o;
    return s->vector == (k != MOMENTUM);
}

static const tni_update_rule rule = { .name     = "muon",
                                      .state    = { "momentum_buffer", "exp_avg", "exp_avg_sq" },
                                      .update   = update_muon,
                                      .has      = has_state,
                                      .settings = { "momentum", "beta1", "beta2" },
                                      .whole    = true };

// Which parameters are matrices is decided here, before the first update makes their state.
tn_optim *tn_muon(tn_layer *net, tn_muon_opts o)
{
    tn_optim *made = tni_optim_make("muon", net,
                                    &(tn_optim){ .rule         = &rule,
                                                 .lr           = tni_option(o.lr, 1e-3),
                                                 .momentum     = tni_option(o.momentum, 0.95),
                                                 .beta1        = tni_option(o.beta1, 0.9),
                                                 .beta2        = tni_option(o.beta2, 0.999),
                                                 .eps          = tni_option(o.eps, 1e-8),
                                                 .weight_decay = tni_option(o.weight_decay, 0.1),
                                                 .nesterov     = !o.no_nesterov,
                                                 .match_rms    = o.match_rms,
                                                 TNI_COMMON_OF(o) });
    for (size_t i = 0; made && i < made->slots; i++) {
        tni_trained *s = &made->slot[i];
        s->vector      = tni_rank(s->p) < 2 || (o.adamw && tni_glob(o.adamw, s->name));
    }
    return made;
}
