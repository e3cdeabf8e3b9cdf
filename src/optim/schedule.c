// The learning rate as a function of the updates done. A schedule only gives a factor, so that
// tn_optim_set_lr and groups keep working beside it.
#include "optim/optim.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

// Returns the height of half a cosine between two values.
static double half_cosine(double from, double to, double part)
{
    return to + (from - to) * 0.5 * (1 + cos(pi * part));
}

// Falls from 1 at the end of the warm-up to floor at total, along half a cosine or a line.
static double decay_factor(const tn_schedule *s, int64_t t, double floor)
{
    if (t >= s->total) return floor;
    double part = (double)(t - s->warmup) / (double)(s->total - s->warmup);
    return s->kind == TN_LR_COSINE ? half_cosine(1, floor, part) : 1 - (1 - floor) * part;
}

// PyTorch's numbers: it rises from 1/25, to 1 at update `warmup`, and ends at a ten-thousandth of
// that.
static double one_cycle_factor(const tn_schedule *s, int64_t t, double floor)
{
    const double low  = 1.0 / 25;
    double       last = (double)(s->total - 1),
           top        = s->warmup ? (double)s->warmup : 0.3 * (double)s->total - 1;
    double at = fmin((double)t, last), end = fmax(floor, low / 1e4);
    if (at <= top) return half_cosine(low, 1, top > 0 ? at / top : 1);
    return half_cosine(1, end, (at - top) / (last - top));
}

// Returns how far the current round has come, 0 .. 1. Rounds last every, every * factor, every *
// factor^2 ...
static double part_of_round(const tn_schedule *s, int64_t t)
{
    double at = (double)t, round = (double)s->every, longer = tni_option(s->factor, 1);
    if (longer <= 1) return fmod(at, round) / round;
    while (at >= round) at -= round, round *= longer;
    return at / round;
}

// The warm-up rises linearly and ends with 1 at its last update, so that the first update already
// has a learning rate above 0.
double tni_schedule_factor(const tn_schedule *s, int64_t updates)
{
    double floor = tni_decimal(s->floor);
    if (s->kind == TN_LR_ONE_CYCLE) return one_cycle_factor(s, updates, floor);
    if (updates < s->warmup) return (double)(updates + 1) / (double)s->warmup;
    switch (s->kind) {
    case TN_LR_STEP:
        return fmax(floor, pow(tni_option(s->factor, 0.1), (double)(updates / s->every)));
    case TN_LR_COSINE:
    case TN_LR_LINEAR: return decay_factor(s, updates, floor);
    case TN_LR_EXPONENTIAL:
        return fmax(floor, pow(tni_option(s->factor, 0.1), (double)(updates - s->warmup)));
    case TN_LR_RESTARTS: return half_cosine(1, floor, part_of_round(s, updates - s->warmup));
    default: return 1;
    }
}

// Returns the first fault found. Comparisons are written so that NaN fails them.
const char *tni_schedule_wrong(const tn_schedule *s)
{
    bool falls = s->kind == TN_LR_COSINE || s->kind == TN_LR_LINEAR || s->kind == TN_LR_ONE_CYCLE;
    bool steps = s->kind == TN_LR_STEP || s->kind == TN_LR_RESTARTS;
    if ((unsigned)s->kind > TN_LR_RESTARTS) return "the kind is none of tn_lr_kind";
    if (s->warmup < 0) return "warmup is negative";
    if (falls && s->total <= s->warmup) return "total is not above warmup";
    if (steps && s->every <= 0) return "every is not above 0";
    if (s->kind == TN_LR_RESTARTS && s->factor != 0 && !(s->factor >= 1))
        return "factor is below 1";
    if (!(s->floor >= 0 && s->floor <= 1)) return "floor is not in 0 .. 1";
    if (!(s->factor >= 0 && s->factor < INFINITY)) return "factor is not a number >= 0";
    return NULL;
}

// ---- plateaus ----------------------------------------------------------------------------------

// The first number is better than nothing; a NaN is never.
static bool is_better(const tn_plateau *p, double value)
{
    double share = tni_option(p->threshold, 1e-4);
    if (!p->seen || value != value) return value == value;
    return p->rises ? value > p->best * (1 + share) : value < p->best * (1 - share);
}

// As PyTorch counts: the rate falls at the first value beyond `patience` that were no better, and
// values right after that do not count.
bool tn_plateau_step(tn_plateau *p, tn_optim *o, double value)
{
    tn_ctx *cx = tni_owned_ok("plateau_step", o, TNI_OPTIM);
    if (!cx) return false;
    if (!p) return tni_refuse(cx, TN_EARG, "plateau_step: the plateau is NULL");
    double factor = tni_option(p->factor, 0.1), lr = o->lr;
    if (!(factor > 0 && factor < 1) || p->patience < 0 || p->cooldown < 0 || !(p->least >= 0) ||
        !(p->threshold >= 0))
        return tni_refuse(
            cx, TN_EARG,
            "plateau_step: factor %g is not in 0 .. 1, or patience, cooldown, threshold or least is "
            "negative",
            factor);
    if (is_better(p, value)) {
        p->best = value;
        p->seen = true;
        p->bad  = 0;
    } else {
        p->bad++;
    }
    if (p->resting > 0) {
        p->resting--;
        p->bad = 0;
    }
    if (p->bad <= (p->patience ? p->patience : 10)) return false;
    p->bad     = 0;
    p->resting = p->cooldown;
    o->lr      = fmax(lr * factor, p->least);
    if (lr - o->lr <= 1e-8) o->lr = lr;  // PyTorch's: so small a change is none
    return o->lr != lr;
}
