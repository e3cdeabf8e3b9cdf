// Rotary position embedding: pairs of elements turn by angles that grow with the position.
//
// Pair i of h turns by p f[i] at position p, where f[i] = theta^(-i / h); a scaling changes f for
// contexts longer than the one a network was trained with. The rotation is recorded as maps over
// views: x is seen as (..., 2, h), interleaved as (..., h, 2), and the partner of each element is
// the same view flipped along the axis of 2:
//
//   y = x cos + flip(x) sin (-1, 1)
//
// so nothing is moved, and the gradient has the same form. Angles are computed in f32 (for f64 in
// f64), by the formulas of Hugging Face's transformers in their order of roundings. They
// follow from positions that are a tensor, so one plan serves every position.
//
// B batch, T tokens, D size of the last axis of x, w how much of it turns, h = w / 2
#include "ops/composite.h"

static const double TWO_PI = 6.28318530717958647693;

// ---- options -----------------------------------------------------------------------------------

static tn_rope_opts with_defaults(tn_rope_opts o)
{
    o.theta     = tni_or_default(o.theta, 10000);
    o.factor    = tni_or_default(o.factor, 1);
    o.low_freq  = tni_or_default(o.low_freq, 1);
    o.high_freq = tni_or_default(o.high_freq, 4);
    o.beta_fast = tni_or_default(o.beta_fast, 32);
    o.beta_slow = tni_or_default(o.beta_slow, 1);
    // Longer contexts flatten the softmax; YaRN's authors found this to balance it.
    double balance = o.factor > 1 ? 0.1 * log(o.factor) + 1 : 1;
    if (o.dtype != TN_F64) o.dtype = TN_F32;
    o.attention = o.scaling == TN_ROPE_YARN ? tni_or_default(o.attention, balance) : 1;
    return o;
}

// Whether options with their defaults are valid. Reports the first wrong one otherwise.
static bool options_ok(tn_ctx *cx, const tn_rope_opts *o)
{
    bool scales = o->scaling == TN_ROPE_DYNAMIC || o->scaling == TN_ROPE_LLAMA3 ||
                  o->scaling == TN_ROPE_YARN;
    if (o->width < 2 || o->width % 2)
        return tni_refuse(cx, TN_EARG, "rope: width %lld is not an even number above 0",
                          (long long)o->width);
    if (!(o->theta > 1) || isinf(o->theta))
        return tni_refuse(cx, TN_EARG, "rope: theta %g is not above 1", o->theta);
    if (!(o->factor > 0) || isinf(o->factor))
        return tni_refuse(cx, TN_EARG, "rope: factor %g is not above 0", o->factor);
    if (o->scaling < TN_ROPE_PLAIN || o->scaling > TN_ROPE_YARN)
        return tni_refuse(cx, TN_EARG, "rope: %d is not a scaling", (int)o->scaling);
    if (scales && o->trained < 1)
        return tni_refuse(cx, TN_EARG,
                          "rope: this scaling needs .trained, the context of the training");
    if (o->scaling == TN_ROPE_DYNAMIC && o->width < 4)
        return tni_refuse(cx, TN_EARG, "rope: dynamic scaling needs a width of at least 4");
    if (o->scaling == TN_ROPE_LLAMA3 && !(o->high_freq > o->low_freq))
        return tni_refuse(cx, TN_EARG, "rope: high_freq %g is not above low_freq %g", o->high_freq,
                          o->low_freq);
    if (o->scaling == TN_ROPE_YARN && !(o->beta_fast > 0 && o->beta_slow > 0))
        return tni_refuse(cx, TN_EARG, "rope: beta_fast %g and beta_slow %g are not above 0",
                          o->beta_fast, o->beta_slow);
    return true;
}

// ---- frequencies (h) ---------------------------------------------------------------------------

// theta; by dynamic scaling it grows with the largest position, once that is beyond the training.
static tn_tensor *base_of(tn_tensor *positions, const tn_rope_opts *o)
{
    if (o->scaling != TN_ROPE_DYNAMIC) return tn_scalar(positions->cx, o->theta);
    double     w = (double)o->width, n = (double)o->trained;
    tn_tensor *length = tn_add_s(tn_cast(tn_max_all(positions), o->dtype), 1);
    tn_tensor *grown  = tn_div_s(tn_mul_s(tn_maximum_s(length, n), o->factor), n);
    return tn_mul_s(tn_pow_s(tn_sub_s(grown, o->factor - 1), w / (w - 2)), o->theta);
}

// a (1 - share) + b share.
static tn_tensor *mix(tn_tensor *a, tn_tensor *b, tn_tensor *share)
{
    return tn_add(tn_mul(a, tn_rsub_s(share, 1)), tn_mul(b, share));
}

// Llama 3: what turns often during the training stays, what turns seldom is divided by the factor,
// and between the two it is a mixture.
static tn_tensor *scale_llama3(tn_tensor *f, const tn_rope_opts *o)
{
    tn_tensor *turns = tn_mul_s(f, (double)o->trained / TWO_PI);
    tn_tensor *share = tn_div_s(tn_sub_s(turns, o->low_freq), o->high_freq - o->low_freq);
    return mix(tn_div_s(f, o->factor), f, tn_clamp(share, 0, 1));
}

// The place among w at which a pair turns this often during the training.
static double place_of(const tn_rope_opts *o, double turns)
{
    return (double)o->width * log((double)o->trained / (turns * TWO_PI)) / (2 * log(o->theta));
}

// YaRN: the same by the place of a pair instead of its frequency.
static tn_tensor *scale_yarn(tn_tensor *f, const tn_rope_opts *o)
{
    double from = floor(place_of(o, o->beta_fast)), to = ceil(place_of(o, o->beta_slow));
    from = from > 0 ? from : 0;
    to   = to < (double)o->width - 1 ? to : (double)o->width - 1;
    if (from == to) to += 0.001;
    tn_tensor *place = tn_arange(f->cx, o->dtype, 0, (double)o->width / 2, 1);
    tn_tensor *share = tn_clamp(tn_div_s(tn_sub_s(place, from), to - from), 0, 1);
    return mix(f, tn_div_s(f, o->factor), share);
}

// By a power and not by an exponential, whose argument would lose digits: these are multiplied by
// positions.
static tn_tensor *frequencies(tn_tensor *positions, const tn_rope_opts *o)
{
    tn_tensor *i = tn_arange(positions->cx, o->dtype, 0, (double)o->width, 2);
    tn_tensor *f = tn_reciprocal(tn_pow(base_of(positions, o), tn_div_s(i, (double)o->width)));
    if (!f) return NULL;
    switch (o->scaling) {
    case TN_ROPE_LINEAR: return tn_div_s(f, o->factor);
    case TN_ROPE_LLAMA3: return scale_llama3(f, o);
    case TN_ROPE_YARN: return scale_yarn(f, o);
    default: return f;
    }
}

// ---- the table ---------------------------------------------------------------------------------

// Stacked along a first axis, so that each half is computed straight into its place.
tn_tensor *tn_rope_table(tn_tensor *positions, tn_rope_opts o)
{
    tn_ctx *cx = tni_arg1("rope_table", positions, "positions");
    if (!cx) return NULL;
    tn_dtype dt = tn_dtype_of(positions);
    int      n  = tn_rank(positions);
    if (dt != TN_I64 && dt != TN_I32)
        return tni_fail(cx, TN_EDTYPE, "rope: positions are %s, not i64 or i32", tn_dtype_name(dt));
    if (n != 1 && n != 2)
        return tni_fail(cx, TN_ESHAPE, "rope: positions %s are not (T) or (B, T)",
                        tni_shape_of(positions).s);
    o = with_defaults(o);
    if (!options_ok(cx, &o)) return NULL;
    tn_tensor *p     = tn_unsqueeze(tn_cast(positions, o.dtype), -1);
    tn_tensor *angle = tn_mul(p, frequencies(positions, &o));
    tn_tensor *y     = tn_stack(2, (tn_tensor *const[]){ tn_cos(angle), tn_sin(angle) }, 0);
    return o.attention == 1 ? y : tn_mul_s(y, o.attention);
}

// ---- the rotation ------------------------------------------------------------------------------

// Cosines (0) or sines (1) of a table (2, T, h) or (2, B, T, h), in the dtype of x and so that they
// broadcast to x seen as pairs.
static tn_tensor *part_of(tn_tensor *table, int which, tn_tensor *x, bool interleaved)
{
    tn_tensor *t = tn_select(table, 0, which);
    if (t && tn_rank(t) == 3)
        for (int i = tn_rank(x); i > 3; i--) t = tn_unsqueeze(t, 1);
    return tn_unsqueeze(tn_cast(t, tn_dtype_of(x)), interleaved ? -1 : -2);
}

// All of x, whose last axis is as wide as the table.
static tn_tensor *turn(tn_tensor *x, tn_tensor *table, bool interleaved)
{
    tni_view   s    = tni_layout(x);
    int        axis = interleaved ? s.rank : s.rank - 1;
    tn_tensor *wide = tni_widen(x), *cos = part_of(table, 0, wide, interleaved),
              *sin = part_of(table, 1, wide, interleaved);
    if (!sin) return NULL;
    int64_t pairs[TN_MAX_RANK];
    for (int i = 0; i + 1 < s.rank; i++) pairs[i] = s.size[i];
    pairs[axis]                  = 2;
    pairs[2 * s.rank - 1 - axis] = s.size[s.rank - 1] / 2;
    tn_tensor *v                 = tn_reshape(wide, s.rank + 1, pairs);
    tn_tensor *sign              = tn_arange(x->cx, tn_dtype_of(sin), -1, 3, 2);
    if (!interleaved) sign = tn_unsqueeze(sign, 1);
    tn_tensor *straight = tn_mul(v, cos);
    tn_tensor *crossed  = tn_mul(tn_flip(v, axis), tn_mul(sin, sign));
    tn_tensor *y        = tni_narrow(tn_add(straight, crossed), tn_dtype_of(x));
    return tn_reshape(y, s.rank, s.size);
}

// Whether a table fits x (..., T, D): one row for each token. at: what the caller gave, the table
// or the positions that it was made of.
static bool table_fits(tn_tensor *x, tn_tensor *at, tn_tensor *table)
{
    int     n = tn_rank(table), r = tn_rank(x);
    int64_t B  = n == 4 ? tn_size(table, 1) : 1;
    bool    ok = (n == 3 || n == 4) && tn_size(table, 0) == 2 &&
              tn_size(table, -2) == tn_size(x, -2) && 2 * tn_size(table, -1) <= tn_size(x, -1) &&
              (B == 1 || (r > 2 && B == tn_size(x, 0)));
    if (!ok && at != table)
        tni_fail(x->cx, TN_ESHAPE,
                 "rope: positions %s are not (T) or (B, T) for x %s, which is (B, ..., T, D)",
                 tni_shape_of(at).s, tni_shape_of(x).s);
    else if (!ok)
        tni_fail(x->cx, TN_ESHAPE,
                 "rope: x %s, and a table %s: not (2, T, w / 2) or (2, B, T, w / 2) for x "
                 "(B, ..., T, D), w up to D",
                 tni_shape_of(x).s, tni_shape_of(table).s);
    return ok;
}

// The table that the second argument of tn_rope is or stands for. Floats of fewer axes than a table
// has are meant as positions, and refused as such.
static tn_tensor *table_for(tn_tensor *x, tn_tensor *at, const tn_rope_opts *o)
{
    tn_rope_opts own = *o;
    if (at && tni_is_float(tn_dtype_of(at)) && tn_rank(at) > 2) return at;
    own.dtype = tn_dtype_of(x);
    if (!own.width) own.width = tn_size(x, -1);
    if (own.width > tn_size(x, -1))
        return tni_fail(x->cx, TN_EARG, "rope: width %lld is beyond the last axis of x %s",
                        (long long)own.width, tni_shape_of(x).s);
    if (!at) at = tn_arange_i64(x->cx, TN_I64, o->start, o->start + tn_size(x, -2), 1);
    return tn_rope_table(at, own);
}

tn_tensor *tn_rope(tn_tensor *x, tn_tensor *positions, tn_rope_opts o)
{
    static const char *const names[] = { "x", "positions" };
    tn_tensor *const         in[]    = { x, positions };
    tn_ctx                  *cx      = tni_args("rope", positions ? 2 : 1, in, names);
    if (!cx || !tni_want_float(x, "rope")) return NULL;
    int r = tn_rank(x);
    if (r < 2 || r == TN_MAX_RANK)
        return tni_fail(cx, TN_ESHAPE, "rope: x %s is not (..., T, D) of at most %d axes",
                        tni_shape_of(x).s, TN_MAX_RANK - 1);
    tn_tensor *table = table_for(x, positions, &o);
    if (!table || !table_fits(x, positions, table)) return NULL;
    int64_t w = 2 * tn_size(table, -1);
    if (w == tn_size(x, -1)) return turn(x, table, o.interleaved);
    tn_tensor *turned = turn(tn_slice(x, -1, 0, w, 1), table, o.interleaved);
    tn_tensor *rest   = tn_slice(x, -1, w, TN_TO_END, 1);
    return tn_concat(2, (tn_tensor *const[]){ turned, rest }, -1);
}
