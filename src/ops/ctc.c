// Connectionist temporal classification: the negative logarithm of the probability of a target,
// over all ways to spread its labels over the steps with blanks and repetitions between them. With
// PyTorch's meaning.
//
// T steps, N sequences, C classes, S labels of a target, L = 2 S + 1 states: blank, label, blank,
// ..., label, blank
//
// alpha[s] is the logarithm of the probability of having come to state s. A step stays, goes to the
// next state, or over a blank to the next label if that is another one:
//
//   alpha'[s] = log(e^alpha[s] + e^alpha[s - 1] + e^alpha[s - 2]) + log_probs[t][label of s]
//
// Of the target "aab" the states and the ways into each are
//
//   s        0      1      2      3      4      5      6
//   label    -      a      -      a      -      b      -
//   from     0      0 1    1 2    2 3    3 4    3 4 5  5 6       state 5 also over the blank from 3, as b is no a
//
// and the loss is that of having come to 5 or 6. Its states are along the last axis, so that a step
// is a few shifted reads of alpha and one kernel, for all sequences of the batch.
//
// It is a scan over t, and its gradient the gradient of that. What cannot be is NEVER instead of
// -inf, of which differences and so gradients would be NaN: it stays below any real value through
// all steps, and is far from the end of f32.
#include "ops/composite.h"

#define NEVER -1e30

// The arguments, checked. labels (N, L), skips (N, L): whether a state can be reached over a blank.
typedef struct {
    tn_ctx     *cx;
    tn_tensor  *log_probs, *targets, *input_lengths, *target_lengths;
    tn_ctc_opts o;
    int64_t     T, N, C, S, L;
    tn_tensor  *labels, *skips;
} ctc;

static bool is_lengths(const ctc *c, tn_tensor *x, const char *name)
{
    if (!x || (tni_is_int(tni_dtype(x)) && tni_rank(x) == 1 && tni_sizes(x)[0] == c->N))
        return true;
    return tni_refuse(c->cx, TN_ESHAPE, "ctc_loss: %s is %s %s, expected integers (%lld,)", name,
                      tn_dtype_name(tni_dtype(x)), tni_shape_of(x).s, (long long)c->N);
}

// Everything that can be wrong but the numbers in the tensors.
static bool ctc_ok(ctc *c)
{
    tn_tensor *x = c->log_probs, *t = c->targets;
    if (!tni_want_float(x, "ctc_loss")) return false;
    if (tni_rank(x) != 3 || tni_sizes(x)[0] < 1)
        return tni_refuse(c->cx, TN_ESHAPE, "ctc_loss: log_probs is %s, expected (T, N, C)",
                          tni_shape_of(x).s);
    c->T = tni_sizes(x)[0], c->N = tni_sizes(x)[1], c->C = tni_sizes(x)[2];
    if (!tni_is_int(tni_dtype(t)) || tni_rank(t) != 2 || tni_sizes(t)[0] != c->N)
        return tni_refuse(c->cx, TN_ESHAPE,
                          "ctc_loss: targets is %s %s, expected integers (%lld, S)",
                          tn_dtype_name(tni_dtype(t)), tni_shape_of(t).s, (long long)c->N);
    c->S = tni_sizes(t)[1];
    c->L = 2 * c->S + 1;
    if (c->o.blank < 0 || c->o.blank >= c->C)
        return tni_refuse(c->cx, TN_EARG, "ctc_loss: blank %lld is no class of %lld",
                          (long long)c->o.blank, (long long)c->C);
    if (c->o.reduce < TN_REDUCTION_MEAN || c->o.reduce > TN_REDUCTION_NONE)
        return tni_refuse(c->cx, TN_EARG, "ctc_loss: %d is not a way to reduce", (int)c->o.reduce);
    return is_lengths(c, c->input_lengths, "input_lengths") &&
           is_lengths(c, c->target_lengths, "target_lengths");
}

// Lengths as i64 (N, 1), those that are not given from the shape.
static tn_tensor *lengths(const ctc *c, tn_tensor *x, int64_t all)
{
    if (!x) return tn_full_i64(c->cx, TN_I64, TN_SHAPE(c->N, 1), all);
    return tn_unsqueeze(tn_cast(x, TN_I64), 1);
}

static tn_tensor *count_to(const ctc *c, int64_t n)
{
    return tn_arange_i64(c->cx, TN_I64, 0, n, 1);
}

// The labels of all states, blanks behind the end of a target; and which of them can be reached
// over a blank.
static bool find_labels(ctc *c)
{
    tn_tensor *blank = tn_full_i64(c->cx, TN_I64, TN_SHAPE(c->N, 1), c->o.blank);
    c->labels        = blank;
    if (!c->S) return blank != NULL;
    tn_tensor *t      = tn_where(tn_lt(count_to(c, c->S), c->target_lengths),
                                 tn_cast(c->targets, TN_I64), blank);
    tn_tensor *pair[] = { tn_expand(blank, TN_SHAPE(c->N, c->S)), t };
    if (!t) return false;
    tn_tensor *both = tn_reshape(tn_stack(2, pair, 2), TN_SHAPE(c->N, 2 * c->S));
    c->labels       = tn_concat(2, (tn_tensor *const[]){ both, blank }, 1);
    if (c->L < 3 || !c->labels) return c->labels != NULL;
    tn_tensor *now   = tn_slice(c->labels, 1, 2, c->L, 1),
              *was   = tn_slice(c->labels, 1, 0, c->L - 2, 1);
    tn_tensor *other = tn_logical_and(tn_ne(now, was), tn_ne(now, blank));
    c->skips         = tn_pad(other, (int64_t[]){ 0, 2 }, (int64_t[]){ 0, 0 }, 0);
    return c->skips != NULL;
}

// ---- the recursion -----------------------------------------------------------------------------

// alpha moved by n states.
static tn_tensor *moved(const ctc *c, tn_tensor *alpha, int64_t n)
{
    return tn_pad(tn_slice(alpha, 1, 0, c->L - n, 1), (int64_t[]){ 0, n }, (int64_t[]){ 0, 0 },
                  NEVER);
}

// The logarithm of a sum of exponentials, c NULL or not. By the largest, so that no exponential
// overflows: gradients of any order are finite, also where a state cannot be.
static tn_tensor *log_sum(tn_tensor *a, tn_tensor *b, tn_tensor *c)
{
    tn_tensor *m = tn_maximum(a, b);
    m            = tn_detach(c ? tn_maximum(m, c) : m);
    tn_tensor *e = tn_add(tn_exp(tn_sub(a, m)), tn_exp(tn_sub(b, m)));
    if (c) e = tn_add(e, tn_exp(tn_sub(c, m)));
    return tn_add(tn_log(e), m);
}

// x: log-probabilities of the states, and which sequences have this step.
static void ctc_step(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    const ctc *c     = user;
    tn_tensor *alpha = carry[0], *sum = alpha;
    (void)y;
    tn_tensor *over = NULL;
    if (c->skips) over = tn_where(c->skips, moved(c, alpha, 2), tni_number_like(alpha, NEVER));
    if (c->L > 1) sum = log_sum(alpha, moved(c, alpha, 1), over);
    carry[0] = tn_where(x[1], tn_add(sum, x[0]), alpha);
}

// alpha before the first step: in front of the first blank.
static tn_tensor *first_alpha(const ctc *c, tn_dtype dt)
{
    tn_tensor *first = tn_eq_s(count_to(c, c->L), 0);
    tn_tensor *zero  = tn_zeros(c->cx, dt, TN_SHAPE(c->N, c->L));
    return tn_where(first, zero, tni_number_like(zero, NEVER));
}

// The loss of each sequence: all ways end in the last label or in the blank behind it.
static tn_tensor *losses(ctc *c)
{
    tn_tensor *x     = tni_widen(c->log_probs),
              *step  = tn_reshape(count_to(c, c->T), TN_SHAPE(c->T, 1, 1));
    tn_tensor *index = tn_expand(tn_unsqueeze(c->labels, 0), TN_SHAPE(c->T, c->N, c->L));
    tn_tensor *in[]  = { tn_gather(x, 2, index), tn_lt(step, c->input_lengths) };
    in[0]            = in[0] ? tn_maximum(in[0], tni_number_like(in[0], NEVER)) : NULL;
    if (!in[0] || !in[1]) return NULL;
    tn_tensor *alpha = first_alpha(c, tni_dtype(in[0])), *end = tn_mul_s(c->target_lengths, 2);
    if (!alpha || tn_scan(ctc_step, c, 1, &alpha, 2, in, 0, NULL, (tn_scan_opts){ 0 }) != TN_OK)
        return NULL;
    tn_tensor *last  = tn_gather(alpha, 1, end);
    tn_tensor *label = tn_gather(alpha, 1, tn_clamp(tn_sub_s(end, 1), 0, (double)c->L));
    label            = tn_where(tn_gt_s(end, 0), label, tni_number_like(alpha, NEVER));
    return tn_neg(tn_squeeze(log_sum(last, label, NULL), 1));
}

// Impossible targets have an infinite loss, or none, and no gradient. The mean is that of losses by
// their targets' lengths.
tn_tensor *tn_ctc_loss(tn_tensor *log_probs, tn_tensor *targets, tn_tensor *input_lengths,
                       tn_tensor *target_lengths, tn_ctc_opts o)
{
    static const char *const names[] = { "log_probs", "targets" };
    if (!tni_args("ctc_loss", 2, (tn_tensor *const[]){ log_probs, targets }, names)) return NULL;
    ctc        c       = { log_probs->cx,
                           tni_autocast_wide(log_probs),
                           targets,
                           input_lengths,
                           target_lengths,
                           o,
                           0,
                           0,
                           0,
                           0,
                           0,
                           NULL,
                           NULL };
    tn_tensor *given[] = { log_probs, input_lengths ? input_lengths : log_probs,
                           target_lengths ? target_lengths : log_probs };
    if (!c.log_probs || !tni_args("ctc_loss", 3, given, NULL) || !ctc_ok(&c)) return NULL;
    c.input_lengths  = lengths(&c, input_lengths, c.T);
    c.target_lengths = lengths(&c, target_lengths, c.S);
    tn_tensor *y     = c.input_lengths && c.target_lengths && find_labels(&c) ? losses(&c) : NULL;
    if (!y) return NULL;
    y = tn_where(tn_gt_s(y, -NEVER / 2), tni_number_like(y, o.zero_infinity ? 0 : INFINITY), y);
    if (o.reduce == TN_REDUCTION_MEAN) {
        tn_tensor *n = tn_cast(tn_squeeze(c.target_lengths, 1), tni_dtype(y));
        y            = tn_mean_all(tn_div(y, tn_maximum(n, tni_number_like(n, 1))));
    }
    if (o.reduce == TN_REDUCTION_SUM) y = tn_sum_all(y);
    return tni_narrow(y, tni_dtype(c.log_probs));
}
