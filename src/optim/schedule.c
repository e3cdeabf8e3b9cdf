// The learning rate as a function of the updates done. A schedule only gives a factor, so that tn_optim_set_lr
// and groups keep working beside it.
#include "optim/optim.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

// Falls from 1 at the end of the warm-up to floor at total, along half a cosine or a line.
static double decay_factor(const tn_schedule *s, int64_t t, double floor)
{
    if (t >= s->total) return floor;
    double part = (double)(t - s->warmup) / (double)(s->total - s->warmup);
    double high = s->kind == TN_LR_COSINE ? 0.5 * (1 + cos(pi * part)) : 1 - part;
    return floor + (1 - floor) * high;
}

// The warm-up rises linearly and ends with 1 at its last update, so that the first update already has a
// learning rate above 0.
double tni_schedule_factor(const tn_schedule *s, int64_t updates)
{
    double floor = tni_decimal(s->floor);
    if (updates < s->warmup) return (double)(updates + 1) / (double)s->warmup;
    switch (s->kind) {
    case TN_LR_STEP:
        return fmax(floor, pow(tni_option(s->factor, 0.1), (double)(updates / s->every)));
    case TN_LR_COSINE:
    case TN_LR_LINEAR: return decay_factor(s, updates, floor);
    default: return 1;
    }
}

// Returns the first fault found. Comparisons are written so that NaN fails them.
const char *tni_schedule_wrong(const tn_schedule *s)
{
    bool falls = s->kind == TN_LR_COSINE || s->kind == TN_LR_LINEAR;
    if ((unsigned)s->kind > TN_LR_LINEAR) return "the kind is none of tn_lr_kind";
    if (s->warmup < 0) return "warmup is negative";
    if (falls && s->total <= s->warmup) return "total is not above warmup";
    if (s->kind == TN_LR_STEP && s->every <= 0) return "every is not above 0";
    if (!(s->floor >= 0 && s->floor <= 1)) return "floor is not in 0 .. 1";
    if (!(s->factor >= 0 && s->factor < INFINITY)) return "factor is not a number >= 0";
    return NULL;
}
