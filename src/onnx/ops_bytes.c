// Products and convolutions of bytes with scales and zero points. Sums are those of integers, in
// i32, and exact:
//
//   sum (a - p) (b - q) = sum a b - p sum b - q sum a + K p q        over K products
//
// so that bytes are multiplied as they are. The sums of weights, with what is added anyway, are
// kept from run to run.
//
// Operators say so in three ways, which all come here: with i32 as the result (ConvInteger), with
// bytes (QLinearConv), and with real numbers between a DequantizeLinear and a QuantizeLinear
// (Q/DQ):
//
//   DequantizeLinear --+                                   The product finds bytes behind its inputs, multiplies
//   DequantizeLinear --+-- Conv -- QuantizeLinear          those, and leaves its sum and the factor that makes it
//   DequantizeLinear --+   bias                            real with its result: what quantizes it takes these.
#include "onnx/onnx_ops.h"

#include <math.h>

// ---- operands ----------------------------------------------------------------------------------

// The inputs of a node itself, with its bytes, scale and zero point.
tni_onnx_operand tni_onnx_operand_of(const tni_onnx_call *c, int bytes, int scale, int zero)
{
    return (tni_onnx_operand){ *c, bytes, scale, zero };
}

// An input may be left out by its operator, by an index of -1, or by the file.
static bool has(const tni_onnx_operand *o, int i)
{
    return i >= 0 && tni_onnx_has(&o->call, i);
}

static bool is_fixed(const tni_onnx_operand *o, int i)
{
    return i < 0 || tni_onnx_is_fixed(&o->call, i, i + 1);
}

// How many numbers an input has, without a tensor for a single one of the host.
static int64_t count_of(const tni_onnx_operand *o, int i)
{
    const tni_onnx_value *v = tni_onnx_value_in(&o->call, i);
    return v && v->host ? tn_count(v->host) : v && v->t ? tn_count(v->t) : 0;
}

// Its numbers are read once: what they were is noted with the value.
bool tni_onnx_is_zero(tni_onnx_operand *o)
{
    int64_t         v[TNI_ONNX_SMALL];
    int             n = 0, some = 0;
    tni_onnx_value *z = has(o, o->zero) ? tni_onnx_value_in(&o->call, o->zero) : NULL;
    if (!z || z->is_zero) return !z || z->is_zero > 0;
    if (!tni_onnx_is_constant(&o->call, o->zero) || count_of(o, o->zero) > TNI_ONNX_SMALL ||
        !tni_onnx_ints(&o->call, o->zero, TNI_ONNX_SMALL, v, &n))
        return false;
    for (int k = 0; k < n; k++) some |= v[k] != 0;
    if (is_fixed(o, o->zero)) z->is_zero = some ? -1 : 1;
    return !some;
}

tn_tensor *tni_onnx_zero_point(tni_onnx_operand *o, tn_tensor *x, int axis)
{
    if (!x || tni_onnx_is_zero(o)) return NULL;
    tn_tensor *z = tni_onnx_along(&o->call, x, tni_onnx_in(&o->call, o->zero), axis, 0);
    return z ? tn_cast(z, TN_I32) : NULL;
}

// x minus its zero point, in i32.
static tn_tensor *centered(tn_tensor *x, tn_tensor *zero)
{
    tn_tensor *y = tn_cast(x, TN_I32);
    return y && zero ? tn_sub(y, zero) : y;
}

// Whether both have elements of one byte, which products of bytes take.
static bool is_bytes(tn_tensor *a, tn_tensor *b)
{
    return tni_dtype_size(tn_dtype_of(a)) == 1 && tni_dtype_size(tn_dtype_of(b)) == 1;
}

// The product of two scales, of which that of b may differ along an axis of the sum. Kept in slot 1
// where both are of the file, divided by that of y if there is one. *fixed: it was.
static tn_tensor *joined_scale(tni_onnx_call *c, tn_tensor *sum, tni_onnx_operand *a, int a_axis,
                               tni_onnx_operand *b, int b_axis, int y_at, bool *fixed)
{
    tn_tensor *s = tni_onnx_kept(c, 1), *sa, *sb;
    *fixed       = s != NULL;
    if (s || !sum) return s;
    sa = tni_onnx_along(&a->call, sum, tni_onnx_in(&a->call, a->scale), a_axis, 0);
    sb = tni_onnx_along(&b->call, sum, tni_onnx_in(&b->call, b->scale), b_axis, 0);
    s  = tn_mul(tn_cast(sa, TN_F32), tn_cast(sb, TN_F32));
    if (y_at >= 0) s = tn_div(s, tn_cast(tn_reshape(tni_onnx_in(c, y_at), 0, NULL), TN_F32));
    *fixed = is_fixed(a, a->scale) && is_fixed(b, b->scale) &&
             (y_at < 0 || tni_onnx_is_fixed(c, y_at, y_at + 1));
    return *fixed ? tni_onnx_keep(c, 1, s) : s;
}

// ---- sums --------------------------------------------------------------------------------------

// Ends the scope that t was computed in. The weights in i32, of which sums were made, go with it:
// four times what they take in bytes.
static tn_tensor *leave(tn_scope *scope, tn_tensor *t)
{
    if (t && t->scope == scope && !t->owners) t = tn_keep(t);
    tn_end(scope);
    return t;
}

// -p times the sums of b's columns, minus K q. Sums of weights are kept in slot 0; the product too,
// with what else is added to it, if p is of the file.
static tn_tensor *zero_part(tni_onnx_call *c, tni_onnx_left *a, tni_onnx_operand *b, tn_tensor *w,
                            tn_tensor *q, tni_onnx_operand *bias)
{
    tn_tensor *sum = tni_onnx_kept(c, 0), *more = NULL;
    bool       fixed = is_fixed(b, b->bytes) && is_fixed(b, b->zero),
         all         = fixed && a->fixed && (!bias || is_fixed(bias, bias->bytes));
    if (all && sum) return sum;
    tn_scope *scope = tn_begin(c->cx);
    if (a->zero && !sum) {
        sum = tn_sum_keep(tn_cast(w, TN_I32), -2);
        if (q) sum = tn_sub(sum, tn_mul_i64(q, tn_size(w, -2)));
        sum = tn_cast(sum, TN_I32);
        if (fixed && !all) sum = tni_onnx_keep(c, 0, sum);
    }
    if (a->zero) more = tn_neg(tn_mul(a->zero, sum));
    tn_tensor *t = bias ? tni_onnx_in(&bias->call, bias->bytes) : NULL;
    if (t) more = more ? tn_add(more, t) : t;
    return leave(scope, all && more ? tni_onnx_keep(c, 0, more) : more);
}

// b is (K, N), usually a weight, with its axes exchanged if it is turned.
tn_tensor *tni_onnx_byte_product(tni_onnx_call *c, tni_onnx_left *a, tni_onnx_operand *b,
                                 tni_onnx_operand *bias, bool turned)
{
    tn_tensor *w = tni_onnx_in(&b->call, b->bytes), *x = a->bytes, *y;
    if (!x || !w) return NULL;
    if (turned) w = tn_transpose(w, -2, -1);
    tn_tensor *q = tni_onnx_zero_point(b, w, -1);
    if (!is_bytes(x, w) || tn_rank(x) < 2 || tn_rank(w) < 2) {
        y = tn_matmul(centered(x, a->zero), centered(w, q));
        return bias ? tn_add(y, tni_onnx_in(&bias->call, bias->bytes)) : y;
    }
    y = tn_matmul_i32(x, w);
    if (a->zero || bias) y = tn_add(y, zero_part(c, a, b, w, q, bias));
    if (q) y = tn_sub(y, tn_mul(tn_cast(tn_sum_keep(tn_cast(x, TN_I32), -1), TN_I32), q));
    return y;
}

// What is added to the sums of each channel: the bias, and minus the zero point of x times the sum
// of the weights. NULL: nothing. Kept in slot 0.
static tn_tensor *channel_part(tni_onnx_call *c, tn_tensor *y, tn_tensor *w, int64_t pad,
                               tn_tensor *bias, bool fixed)
{
    tn_tensor *more = tni_onnx_kept(c, 0);
    int        axes[TN_MAX_RANK];
    if (more || (!pad && !bias)) return more;
    tn_scope *scope = tn_begin(c->cx);
    for (int i = 1; i < tn_rank(w); i++) axes[i - 1] = i;
    if (pad) {
        more = tn_sum_axes(tn_cast(w, TN_I32), tn_rank(w) - 1, axes, false);
        more = tn_mul_i64(tn_cast(more, TN_I32), -pad);
    }
    if (bias) more = more ? tn_add(more, bias) : bias;
    more = tni_onnx_along(c, y, tn_cast(more, TN_I32), 1, 0);
    return leave(scope, fixed ? tni_onnx_keep(c, 0, more) : more);
}

// Whether the zero point of x, which pads count as, is known before anything runs; 0 if there is
// none.
static bool known_pad(tni_onnx_operand *x, int64_t *pad)
{
    int n;
    *pad = 0;
    return !has(x, x->zero) || (tni_onnx_is_constant(&x->call, x->zero) &&
                                tni_onnx_ints(&x->call, x->zero, 1, pad, &n));
}

// The sums of a convolution of bytes, exact, plus a bias. Weights with a zero point, and elements
// wider than bytes, are centered and added up in f64.
static tn_tensor *conv_sums(tni_onnx_call *c, tni_onnx_operand *x, tni_onnx_operand *w,
                            tni_onnx_operand *b)
{
    tn_tensor *a = tni_onnx_in(&x->call, x->bytes), *k = tni_onnx_in(&w->call, w->bytes), *y;
    int64_t    pad;
    if (!a || !k || tn_rank(a) < 3) return NULL;
    tn_tensor *wz   = tni_onnx_zero_point(w, k, 0),
              *bias = b ? tni_onnx_in(&b->call, b->bytes) : NULL;
    if (wz || !known_pad(x, &pad) || !is_bytes(a, k)) {
        a = tn_cast(centered(a, tni_onnx_zero_point(x, a, 1)), TN_F64);
        y = tn_cast(tni_onnx_convolve(c, a, tn_cast(centered(k, wz), TN_F64), NULL), TN_I32);
        return y && bias ? tn_add(y, tni_onnx_along(c, y, bias, 1, 0)) : y;
    }
    bool fixed = is_fixed(w, w->bytes) && is_fixed(x, x->zero) && (!b || is_fixed(b, b->bytes));
    y          = tni_onnx_convolve_bytes(c, a, k, pad);
    if (!y) return NULL;
    tn_tensor *more = channel_part(c, y, k, pad, bias, fixed);
    return more ? tn_add(y, more) : y;
}

// ---- results in integers and bytes -------------------------------------------------------------

// The left operand as a node has it.
static tni_onnx_left left_of(tni_onnx_operand *a)
{
    tn_tensor *x = tni_onnx_in(&a->call, a->bytes);
    return (tni_onnx_left){ x, tni_onnx_zero_point(a, x, -2),
                            is_fixed(a, a->zero) && (a->zero < 0 || count_of(a, a->zero) <= 1) };
}

// MatMulInteger(a, b, zero of a, zero of b): i32.
bool tni_onnx_mat_mul_integer(tni_onnx_call *c)
{
    tni_onnx_operand a = tni_onnx_operand_of(c, 0, -1, 2), b = tni_onnx_operand_of(c, 1, -1, 3);
    tni_onnx_left    x = left_of(&a);
    return tni_onnx_out(c, 0, tni_onnx_byte_product(c, &x, &b, NULL, false));
}

// A cast has what is beyond the limits of dt at them.
tn_tensor *tni_onnx_scaled(tn_tensor *sum, tn_tensor *scale, tn_tensor *zero, tn_dtype dt)
{
    if (!sum || !scale) return NULL;
    tn_tensor *y = tn_round(tn_mul(tn_cast(sum, TN_F32), scale));
    if (zero) y = tn_add(y, tn_cast(tn_reshape(zero, 0, NULL), TN_F32));
    return tn_cast(y, dt);
}

// The sum as bytes, by the zero point that input i is.
static bool scaled_out(tni_onnx_call *c, tn_tensor *sum, tn_tensor *scale, int i)
{
    tni_onnx_operand y    = tni_onnx_operand_of(c, -1, -1, i);
    tn_tensor       *zero = tni_onnx_in(c, i);
    if (!zero) return false;
    tn_dtype dt = tn_dtype_of(zero);
    return tni_onnx_out(c, 0, tni_onnx_scaled(sum, scale, tni_onnx_is_zero(&y) ? NULL : zero, dt));
}

// QLinearMatMul(a, scale, zero, b, scale, zero, scale of y, zero of y). The sum is scaled by one
// float.
bool tni_onnx_q_linear_mat_mul(tni_onnx_call *c)
{
    tni_onnx_operand a = tni_onnx_operand_of(c, 0, 1, 2), b = tni_onnx_operand_of(c, 3, 4, 5);
    tni_onnx_left    x = left_of(&a);
    bool             fixed;
    tn_tensor       *sum = tni_onnx_byte_product(c, &x, &b, NULL, false);
    return scaled_out(c, sum, joined_scale(c, sum, &a, -2, &b, -1, 6, &fixed), 7);
}

// QGemm(a, scale, zero, b, scale, zero, bias, scale of y, zero of y; alpha, transA, transB):
// without a scale of y real numbers.
bool tni_onnx_q_gemm(tni_onnx_call *c)
{
    tni_onnx_operand a = tni_onnx_operand_of(c, 0, 1, 2), b = tni_onnx_operand_of(c, 3, 4, 5),
                     bias = tni_onnx_operand_of(c, 6, -1, -1);
    tni_onnx_left x       = left_of(&a);
    tn_tensor    *sa = tni_onnx_in(c, 1), *sb = tni_onnx_in(c, 4);
    double        alpha = tni_onnx_attr_real(c, "alpha", 1);
    if (!x.bytes || !sa || !sb) return false;
    if (tni_onnx_attr_int(c, "transA", 0)) x.bytes = tn_transpose(x.bytes, 0, 1);
    tn_tensor *sum = tni_onnx_byte_product(c, &x, &b, tni_onnx_has(c, 6) ? &bias : NULL,
                                           tni_onnx_attr_int(c, "transB", 0) != 0);
    if (!sum) return false;
    tn_tensor *scale = tn_mul(tn_reshape(sa, 0, NULL), tni_onnx_along(c, sum, sb, -1, 0));
    scale            = tn_mul_s(scale, alpha);
    if (!tni_onnx_has(c, 7)) return tni_onnx_out(c, 0, tn_mul(tn_cast(sum, TN_F32), scale));
    return scaled_out(c, sum, tn_div(scale, tn_reshape(tni_onnx_in(c, 7), 0, NULL)), 8);
}

// ConvInteger(x, w, zero of x, zero of w): i32.
bool tni_onnx_conv_integer(tni_onnx_call *c)
{
    tni_onnx_operand x = tni_onnx_operand_of(c, 0, -1, 2), w = tni_onnx_operand_of(c, 1, -1, 3);
    return tni_onnx_out(c, 0, conv_sums(c, &x, &w, NULL));
}

// QLinearConv(x, scale, zero, w, scale, zero, scale of y, zero of y, bias). Scales of w may differ
// by channel; the bias is i32, in units of the sum.
bool tni_onnx_q_linear_conv(tni_onnx_call *c)
{
    tni_onnx_operand x = tni_onnx_operand_of(c, 0, 1, 2), w = tni_onnx_operand_of(c, 3, 4, 5),
                     bias = tni_onnx_operand_of(c, 8, -1, -1);
    bool       fixed;
    tn_tensor *sum = conv_sums(c, &x, &w, tni_onnx_has(c, 8) ? &bias : NULL);
    return scaled_out(c, sum, joined_scale(c, sum, &x, 1, &w, 1, 6, &fixed), 7);
}

// ---- results in real numbers -------------------------------------------------------------------

// Whether input i is what a DequantizeLinear gives of bytes, with one scale for all, or one for
// each place of `axis`, if that is not negative. Not in training: the path in real numbers has
// gradients.
static bool dequantized(tni_onnx_call *c, int i, int axis, tni_onnx_operand *o)
{
    if (c->cx != c->r->cx || c->r->training || !tni_onnx_dequantizes(c, i, &o->call)) return false;
    o->bytes = 0, o->scale = 1, o->zero = 2;
    const tni_onnx_value *x = tni_onnx_value_in(&o->call, 0);
    tn_tensor            *t = x->t ? x->t : x->host;
    if (!t || tni_dtype_size(tn_dtype_of(t)) != 1) return false;
    if (count_of(o, 1) == 1 && (!has(o, 2) || count_of(o, 2) == 1)) return true;
    int64_t along = tni_onnx_attr_int(&o->call, "axis", 1);
    return axis >= 0 && (along == axis || along == axis - tn_rank(t));
}

// Whether the bias, input i, is integers whose scale is the product of the two others, so that it
// is added to the sums as it is. Scales of files are rounded, by as much as a product of them is.
static bool is_integer_bias(tni_onnx_call *c, int i, tni_onnx_operand *a, tni_onnx_operand *b,
                            tni_onnx_operand *bias)
{
    double v[TNI_ONNX_SMALL], w[TNI_ONNX_SMALL], s;
    int    n, m;
    if (!tni_onnx_dequantizes(c, i, &bias->call)) return false;
    bias->bytes = 0, bias->scale = 1, bias->zero = 2;
    const tni_onnx_value *x = tni_onnx_value_in(&bias->call, 0);
    if (!x->t || tn_dtype_of(x->t) != TN_I32 || tn_rank(x->t) != 1) return false;
    if (tni_onnx_kept(c, 0)) return true;  // it was looked at
    if (count_of(bias, 1) > TNI_ONNX_SMALL || count_of(b, b->scale) > TNI_ONNX_SMALL ||
        !tni_onnx_is_fixed(&bias->call, 0, 3) || !is_fixed(a, a->scale) || !is_fixed(b, b->scale) ||
        !tni_onnx_is_zero(bias))
        return false;
    if (!tni_onnx_reals(&a->call, a->scale, 1, &s, &n) ||
        !tni_onnx_reals(&b->call, b->scale, TNI_ONNX_SMALL, v, &n) ||
        !tni_onnx_reals(&bias->call, 1, TNI_ONNX_SMALL, w, &m))
        return false;
    for (int k = 0; k < m || k < n; k++) {
        double want = s * v[n > 1 ? k : 0];
        if ((m > 1 && n > 1 && m != n) || !(fabs(w[m > 1 ? k : 0] - want) <= 1e-6 * want))
            return false;
    }
    return true;
}

// Gives output 0 a sum times its factor, and the two with it for a QuantizeLinear, unless more is
// added.
static bool real_out(tni_onnx_call *c, tn_tensor *sum, tn_tensor *factor, bool fixed,
                     tn_tensor *more)
{
    tn_tensor *y = sum && factor ? tn_mul(tn_cast(sum, TN_F32), factor) : NULL;
    if (more) y = tn_add(y, more);
    if (!tni_onnx_out(c, 0, y)) return false;
    if (!more) tni_onnx_sum_out(c, sum, factor, fixed);
    return true;
}

bool tni_onnx_is_byte_conv(tni_onnx_call *c, tni_onnx_operand *x, tni_onnx_operand *w)
{
    int64_t pad;
    return dequantized(c, 0, -1, x) && dequantized(c, 1, 0, w) && known_pad(x, &pad) &&
           tni_onnx_is_zero(w);
}

// A bias in other units than the sums is added to the real numbers.
bool tni_onnx_byte_conv(tni_onnx_call *c, tni_onnx_operand *x, tni_onnx_operand *w)
{
    tni_onnx_operand bias;
    tn_tensor       *more = NULL;
    bool             fixed, adds = tni_onnx_has(c, 2) && is_integer_bias(c, 2, x, w, &bias);
    tn_tensor       *sum    = conv_sums(c, x, w, adds ? &bias : NULL);
    tn_tensor       *factor = joined_scale(c, sum, x, 1, w, 1, -1, &fixed);
    if (sum && tni_onnx_has(c, 2) && !adds) {
        more = tni_onnx_along(c, sum, tni_onnx_in(c, 2), 1, 0);
        if (!more) return false;
    }
    return real_out(c, sum, factor, fixed, more);
}

bool tni_onnx_is_byte_matmul(tni_onnx_call *c, bool turned, tni_onnx_operand *a,
                             tni_onnx_operand *b)
{
    if (!dequantized(c, 0, -1, a) || !dequantized(c, 1, turned ? 0 : 1, b)) return false;
    const tni_onnx_value *x = tni_onnx_value_in(&a->call, 0), *w = tni_onnx_value_in(&b->call, 0);
    int                   m = tn_rank(x->t ? x->t : x->host), n = tn_rank(w->t ? w->t : w->host);
    return m > 1 && n > 1 && (n == 2 || count_of(b, 1) == 1);
}

// Input i is a bias, or -1.
bool tni_onnx_byte_matmul(tni_onnx_call *c, tni_onnx_operand *a, tni_onnx_operand *b, bool turned,
                          int i)
{
    tni_onnx_operand bias;
    tni_onnx_left    x = left_of(a);
    bool             fixed, some = i >= 0 && tni_onnx_has(c, i);
    bool             adds   = some && is_integer_bias(c, i, a, b, &bias);
    tn_tensor       *sum    = tni_onnx_byte_product(c, &x, b, adds ? &bias : NULL, turned);
    tn_tensor       *factor = joined_scale(c, sum, a, -2, b, -1, -1, &fixed);
    tn_tensor       *more   = some && !adds ? tni_onnx_in(c, i) : NULL;
    if (some && !adds && !more) return false;
    return real_out(c, sum, factor, fixed, more);
}
