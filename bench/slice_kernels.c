// slice_kernels.c: the cases' kernels written by hand in the IR, as the planner would write them.
#include "slice_kernels.h"

#include <string.h>

// ---- writing a kernel --------------------------------------------------------------------------

// A kernel in the making, with the launch that fits it.
typedef struct {
    tni_kernel *k;
    tni_launch *l;
} maker;

static int add(maker m, tni_ins x)
{
    m.k->ins[m.k->nins] = x;
    return m.k->nins++;
}

// An access of buffer b: 'e' by row and column, 'r' by row, 'c' by column, '1' neither.
static int16_t access_of(maker m, int b, char how)
{
    tni_kernel *k   = m.k;
    int         at  = k->naccess++;
    int64_t     row = how == 'e' || how == 'r', col = how == 'e' || how == 'c';
    tni_access *x      = &k->access[at];
    int64_t     n      = how == 'e' && k->nr ? m.l->size[1] : 1;
    x->buffer          = (int16_t)b;
    x->stride[0]       = !row ? TNI_STRIDE_0 : n == 1 ? TNI_STRIDE_1 : TNI_STRIDE_N;
    m.l->stride[at][0] = row * n;
    if (k->nr) {
        x->stride[1]       = col ? TNI_STRIDE_1 : TNI_STRIDE_0;
        m.l->stride[at][1] = col;
    }
    return (int16_t)at;
}

static int load(maker m, int b, char how)
{
    return add(m, (tni_ins){ .code   = TNI_I_LOAD,
                             .dtype  = m.k->buffer[b].dtype,
                             .a      = -1,
                             .b      = -1,
                             .c      = -1,
                             .access = access_of(m, b, how) });
}

static int cast(maker m, int a, tn_dtype dt)
{
    if (m.k->ins[a].dtype == dt) return a;
    return add(m,
               (tni_ins){
                   .code = TNI_I_CAST, .dtype = (uint8_t)dt, .a = (int16_t)a, .b = -1, .c = -1 });
}

// A value of a buffer as f32.
static int wide(maker m, int b, char how)
{
    return cast(m, load(m, b, how), TN_F32);
}

static void store(maker m, int a, int b, char how)
{
    a                      = cast(m, a, (tn_dtype)m.k->buffer[b].dtype);
    m.k->buffer[b].written = 1;
    add(m, (tni_ins){ .code   = TNI_I_STORE,
                      .dtype  = m.k->buffer[b].dtype,
                      .a      = (int16_t)a,
                      .b      = -1,
                      .c      = -1,
                      .access = access_of(m, b, how) });
}

static int map3(maker m, int op, int a, int b, int c)
{
    bool    compares = tni_op_table[op].rule == TNI_TO_BOOL;
    uint8_t dt       = compares ? TN_BOOL : m.k->ins[op == TNI_where ? b : a].dtype;
    return add(m, (tni_ins){ .code  = TNI_I_MAP,
                             .op    = (uint8_t)op,
                             .dtype = dt,
                             .a     = (int16_t)a,
                             .b     = (int16_t)b,
                             .c     = (int16_t)c });
}

static int map2(maker m, int op, int a, int b)
{
    return map3(m, op, a, b, TNI_NO_VALUE);
}

static int map1(maker m, int op, int a)
{
    return map3(m, op, a, TNI_NO_VALUE, TNI_NO_VALUE);
}

static int fold(maker m, int op, int a, bool over_p)
{
    return add(m, (tni_ins){ .code   = TNI_I_REDUCE,
                             .op     = (uint8_t)op,
                             .dtype  = m.k->ins[a].dtype,
                             .over_p = over_p,
                             .a      = (int16_t)a,
                             .b      = -1,
                             .c      = -1 });
}

static int number(maker m, double v)
{
    int n            = m.k->nnumber++;
    m.k->number[n]   = TN_F32;
    m.l->number[n].u = 0;
    m.l->number[n].f = (float)v;
    return add(m, (tni_ins){ .code   = TNI_I_NUMBER,
                             .dtype  = TN_F32,
                             .a      = -1,
                             .b      = -1,
                             .c      = -1,
                             .number = (int16_t)n });
}

static maker begin(tni_kernel *k, tni_launch *l, int nr)
{
    k->np        = 1;
    k->nr        = (uint8_t)nr;
    k->lane_in_r = nr > 0;
    return (maker){ k, l };
}

// ---- the kernels -------------------------------------------------------------------------------

void slice_build_relu(int which, tni_kernel *k, tni_launch *l)
{
    (void)which;
    maker m = begin(k, l, 0);
    int   x = load(m, 0, 'e'), zero = number(m, 0);
    int   y = map3(m, TNI_where, map2(m, TNI_le, x, zero), zero, x);
    y       = map2(m, TNI_add, map2(m, TNI_mul, y, number(m, 0.5)), number(m, 1));
    store(m, y, 1, 'e');
}

void slice_build_softmax(int which, tni_kernel *k, tni_launch *l)
{
    (void)which;
    maker m = begin(k, l, 1);
    int   x = load(m, 0, 'e');
    int   e = map1(m, TNI_exp, map2(m, TNI_sub, x, fold(m, TNI_max, x, false)));
    store(m, map2(m, TNI_div, e, fold(m, TNI_sum, e, false)), 1, 'e');
}

// The target as an index that was looked at, and the logit there.
static int logit_at(maker m, int target)
{
    int16_t at                = access_of(m, 0, 'r');
    int16_t size              = (int16_t)m.k->nnumber++;
    m.k->number[size]         = TN_I64;
    m.l->number[size].l       = m.l->size[1];
    m.k->access[at].stride[0] = TNI_STRIDE_N;
    m.l->stride[at][0]        = m.l->size[1];
    m.l->stride[at][TNI_AXES] = 1;
    int index                 = add(m, (tni_ins){ .code   = TNI_I_CHECK,
                                                  .dtype  = TN_I64,
                                                  .a      = (int16_t)target,
                                                  .b      = -1,
                                                  .c      = -1,
                                                  .number = size });
    int v                     = add(m, (tni_ins){ .code   = TNI_I_LOAD,
                                                  .dtype  = m.k->buffer[0].dtype,
                                                  .a      = (int16_t)index,
                                                  .b      = -1,
                                                  .c      = -1,
                                                  .access = at });
    return cast(m, v, TN_F32);
}

// Logits 0, targets 1; the mean loss 2 and the logits' gradient 3.
void slice_build_cross_entropy(int which, tni_kernel *k, tni_launch *l)
{
    (void)which;
    maker  m = begin(k, l, 1);
    double n = (double)l->size[0];
    int    x = wide(m, 0, 'e'), top = fold(m, TNI_max, x, false);
    int    z = map2(m, TNI_sub, x, top), e = map1(m, TNI_exp, z);
    int    s     = fold(m, TNI_sum, e, false);
    int    t     = load(m, 1, 'r');
    int    zt    = map2(m, TNI_sub, logit_at(m, t), top);
    int    loss  = map2(m, TNI_sub, map1(m, TNI_log, s), zt);
    int    total = fold(m, TNI_sum, loss, true);
    int    share = number(m, 1 / n), place;
    store(m, map2(m, TNI_mul, total, share), 2, '1');
    place   = add(m, (tni_ins){ .code   = TNI_I_PLACE,
                                .dtype  = TN_I64,
                                .a      = -1,
                                .b      = -1,
                                .c      = -1,
                                .access = access_of(m, -1, 'c') });
    int hot = map3(m, TNI_where, map2(m, TNI_eq, place, t), number(m, -1 / n), number(m, 0));
    int g   = map2(m, TNI_add, map2(m, TNI_mul, e, map2(m, TNI_div, share, s)), hot);
    store(m, g, 3, 'e');
}

// Parameters 0, gradients 1, the two averages 2 and 3: the tenth update.
void slice_build_adamw(int which, tni_kernel *k, tni_launch *l)
{
    (void)which;
    maker m = begin(k, l, 0);
    int   p = load(m, 0, 'e'), g = load(m, 1, 'e'), a = load(m, 2, 'e'), v = load(m, 3, 'e');
    a = map2(m, TNI_add, map2(m, TNI_mul, a, number(m, 0.9)), map2(m, TNI_mul, g, number(m, 0.1)));
    v = map2(m, TNI_add, map2(m, TNI_mul, v, number(m, 0.999)),
             map2(m, TNI_mul, map2(m, TNI_mul, g, g), number(m, 0.001)));
    p = map2(m, TNI_mul, p, number(m, SLICE_DECAY));
    int d = map2(m, TNI_div, a, map2(m, TNI_add, map1(m, TNI_sqrt, v), number(m, SLICE_EPS)));
    store(m, a, 2, 'e');
    store(m, v, 3, 'e');
    store(m, map2(m, TNI_sub, p, map2(m, TNI_mul, d, number(m, SLICE_RATE))), 0, 'e');
}

// x, less its mean, over its deviation; *inverse: one over the deviation.
static int normal(maker m, int x, int *inverse)
{
    int each = number(m, 1 / (double)m.l->size[1]);
    int d    = map2(m, TNI_sub, x, map2(m, TNI_mul, fold(m, TNI_sum, x, false), each));
    int var  = map2(m, TNI_mul, fold(m, TNI_sum, map2(m, TNI_mul, d, d), false), each);
    *inverse = map1(m, TNI_rsqrt, map2(m, TNI_add, var, number(m, 1e-5)));
    return map2(m, TNI_mul, d, *inverse);
}

// x 0, weight 1, bias 2, gradient of y 3; y 4, and the gradients of x 5, weight 6 and bias 7.
void slice_build_layer_norm(int which, tni_kernel *k, tni_launch *l)
{
    maker m = begin(k, l, 1);
    int   inverse, h = normal(m, wide(m, 0, 'e'), &inverse), w = wide(m, 1, 'c');
    if (which == 0) {
        store(m, map2(m, TNI_add, map2(m, TNI_mul, h, w), wide(m, 2, 'c')), 4, 'e');
        return;
    }
    int gy = wide(m, 3, 'e'), g = map2(m, TNI_mul, gy, w), gh = map2(m, TNI_mul, g, h);
    int each = number(m, 1 / (double)l->size[1]);
    int s1   = map2(m, TNI_mul, fold(m, TNI_sum, g, false), each);
    int s2   = map2(m, TNI_mul, fold(m, TNI_sum, gh, false), each);
    int dx   = map2(m, TNI_sub, map2(m, TNI_sub, g, s1), map2(m, TNI_mul, h, s2));
    store(m, map2(m, TNI_mul, dx, inverse), 5, 'e');
    store(m, fold(m, TNI_sum, map2(m, TNI_mul, gy, h), true), 6, 'c');
    store(m, fold(m, TNI_sum, gy, true), 7, 'c');
}

void slice_build_sum(int which, tni_kernel *k, tni_launch *l)
{
    (void)which;
    maker m = begin(k, l, 0);
    store(m, fold(m, TNI_sum, load(m, 0, 'e'), true), 1, '1');
}

void slice_build_column_sum(int which, tni_kernel *k, tni_launch *l)
{
    (void)which;
    maker m = begin(k, l, 1);
    store(m, fold(m, TNI_sum, load(m, 0, 'e'), true), 1, 'c');
}
