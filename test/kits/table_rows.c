// table_rows.c: how each row of ops.def is tested.
#include "table.h"

#include "ops/ops.h"

#include <math.h>
#include <string.h>

// ---- which dtypes a row takes, by hand ---------------------------------------------------------

bool row_dtype(int op, tn_dtype promoted, tn_dtype *result)
{
    bool real = tni_is_float(promoted), boolean = promoted == TN_BOOL;
    *result = promoted;
    switch (tni_op_table[op].rule) {
    case TNI_NUMBER:
    case TNI_REAL: return !boolean;
    case TNI_FLOAT:
        if (tni_op_table[op].class == TNI_SOURCE || tni_op_table[op].class == TNI_LIBRARY)
            return real;
        if (!real) *result = TN_F32;
        return true;
    case TNI_FULL:
        if (!real) *result = TN_F32;
        return true;
    case TNI_INTEGER: return !real && !boolean;
    case TNI_BITS: return !real;
    case TNI_TO_BOOL: *result = TN_BOOL; return true;
    case TNI_TO_I64: *result = TN_I64; return true;
    case TNI_ACCUM:
        if (!real) *result = promoted == TN_U64 ? TN_U64 : TN_I64;
        return true;
    case TNI_WIDE: return promoted == TN_I64;
    case TNI_BYTES: *result = TN_I32; return promoted == TN_I8 || promoted == TN_U8;
    default: return true;
    }
}

// ---- inputs ------------------------------------------------------------------------------------

static void add_input(sample *s, tn_dtype dt, layout lay, int rank, const int64_t *size, mood m)
{
    s->in[s->nin++] = input_make(dt, lay, rank, size, m);
}

// The shape of a map: past the size of a tile where elements lie in a row.
static void map_shape(const sample *s, int64_t size[2])
{
    size[0] = s->lay == PLAIN ? 3 : 13;
    size[1] = s->lay == PLAIN ? 700 : 37;
}

static void one_input(sample *s)
{
    int64_t size[2];
    map_shape(s, size);
    add_input(s, s->dt, s->lay, 2, size, WILD);
}

// Of the gamma function and its kin above 0: below, they cross 0 between poles, and an error is
// relative to the terms that cancel. test_math.c has those.
static void positive_input(sample *s)
{
    int64_t size[2];
    map_shape(s, size);
    s->depth = 1;
    add_input(s, s->dt, s->lay, 2, size, POSITIVE);
}

// Two of a shape; or a matrix and a row of another layout; or a matrix and one number.
static void two_inputs(sample *s)
{
    int64_t size[2];
    mood    m = s->op == TNI_shl || s->op == TNI_shr ? SHIFTS : WILD;
    map_shape(s, size);
    s->depth = 1;
    add_input(s, s->dt, s->lay, 2, size, WILD);
    if (s->variant == 0) add_input(s, s->dt, s->lay, 2, size, m);
    else if (s->variant == 1) add_input(s, s->dt, s->lay == EMPTY ? PLAIN : s->lay, 1, size + 1, m);
    else add_input(s, s->dt, ZERO_D, 0, NULL, m);
}

static void three_inputs(sample *s)
{
    int64_t size[2];
    map_shape(s, size);
    add_input(s, TN_BOOL, s->lay, 2, size, TAME);
    add_input(s, s->dt, s->lay, 2, size, WILD);
    add_input(s, s->dt, s->variant ? ZERO_D : s->lay, 2, size, WILD);
}

static void reduce_input(sample *s)
{
    bool picks = s->op == TNI_max || s->op == TNI_min || s->op == TNI_argmax || s->op == TNI_argmin;
    mood products    = s->variant == 1 || s->variant == 2 ? TAME : POSITIVE;
    int64_t  small[] = { 6, 11, 9 }, large[] = { 6, 110, 87 };
    bool     is_large = s->lay == PLAIN && s->op != TNI_prod;
    int64_t *size     = is_large ? large : small;
    int64_t  depths[] = { size[0], size[1], size[2], size[0] * size[1] * size[2],
                          size[0] * size[2] };
    s->depth          = (double)depths[s->variant];
    add_input(s, s->dt, s->lay, 3, size, picks ? WILD : s->op == TNI_prod ? products : ODD);
}

static void scan_input(sample *s)
{
    bool sum = s->op == TNI_cumsum, large = sum && s->lay == PLAIN;
    s->depth = large ? 3000 : 40;
    add_input(s, s->dt, s->lay, 2, (int64_t[]){ 13, large ? 3000 : 40 }, sum ? ODD : POSITIVE);
}

// Indices within n of both signs, in place of an input's elements.
static void draw_indices(input *in, int64_t n)
{
    int64_t count = 1;
    for (int i = 0; i < in->base_rank; i++) count *= in->base[i];
    for (int64_t i = 0; i < count; i++) host_put(in->dtype, in->data, i, 0, draw_below(2 * n) - n);
}

// Variants: axis 0 or 1, indices of i64 or i32. A scatter's values have the shape of its index.
static void index_inputs(sample *s)
{
    int axis = s->variant & 1;
    if (s->lay == ZERO_D) return;
    add_input(s, s->dt, s->lay == EMPTY ? PLAIN : s->lay, 2, (int64_t[]){ 9, 12 },
              s->op == TNI_scatter_add ? TAME : WILD);
    add_input(s, s->variant < 2 ? TN_I64 : TN_I32, s->lay, 2,
              axis ? (int64_t[]){ 9, 20 } : (int64_t[]){ 21, 12 }, TAME);
    draw_indices(&s->in[1], axis ? 12 : 9);
    s->depth = 64;
    if (s->op != TNI_gather)
        add_input(s, s->dt, s->lay, 2, s->in[1].size, s->op == TNI_scatter ? WILD : TAME);
    if (s->op != TNI_gather && s->lay == EMPTY) s->in[2].size[0] = 0;
}

static void concat_inputs(sample *s)
{
    int64_t size[] = { 5, 6 };
    for (int i = 0; i < 3; i++) {
        add_input(s, s->dt, s->lay, 2, size, WILD);
        size[s->variant] += 7;
    }
}

// What is written: the target's elements and the value's.
static void write_inputs(sample *s)
{
    int64_t size[] = { 7, 10 };
    add_input(s, s->dt, s->lay, 2, size, WILD);
    add_input(s, s->dt, s->variant == 1 ? ZERO_D : s->lay, 2, size, WILD);
}

// The dtype of the second factor: of products of bytes, in every other variant the other one.
static tn_dtype factor_dtype(const sample *s)
{
    bool bytes = tni_op_table[s->op].rule == TNI_BYTES && s->variant & 1;
    return bytes && s->dt == TN_I8 ? TN_U8 : bytes && s->dt == TN_U8 ? TN_I8 : s->dt;
}

static void matmul_inputs(sample *s)
{
    tn_dtype             dt     = factor_dtype(s);
    static const int64_t a[][4] = {
        { 0, 13, 37 }, { 3, 7, 21 }, { 0, 0, 19 }, { 0, 5, 300 }, { 0, 65, 130 }
    };
    static const int64_t b[][4] = {
        { 0, 37, 11 }, { 3, 21, 9 }, { 0, 19, 8 }, { 0, 300, 1 }, { 0, 130, 33 }
    };
    layout lay_b = s->lay == EMPTY ? PLAIN : s->lay;
    int    v     = s->variant;
    mood   m     = !tni_is_float(s->dt) ? WILD : TAME;
    s->depth     = (double)a[v][2];
    if (v == 1) {
        add_input(s, s->dt, s->lay, 3, a[v], m);
        add_input(s, dt, s->lay == EMPTY ? EMPTY : lay_b, 3, b[v], m);
    } else if (v == 2) {
        add_input(s, s->dt, lay_b, 1, a[v] + 2, m);
        add_input(s, dt, lay_b, 2, b[v] + 1, m);
    } else {
        add_input(s, s->dt, s->lay, 2, a[v] + 1, m);
        add_input(s, dt, lay_b, v == 3 ? 1 : 2, b[v] + 1, m);
    }
}

// ---- convolution -------------------------------------------------------------------------------

// Sizes beyond the rank are 0.
typedef struct {
    int64_t      x[5], w[5], y[5];
    tn_conv_opts o;
} conv_case;

static const conv_case convs[] = {
    { { 2, 4, 9, 8 }, { 6, 4, 3, 3 }, { 2, 6, 7, 6 }, { .groups = 1 } },
    { { 2, 4, 9, 8 }, { 6, 4, 3, 2 }, { 2, 6, 6, 5 }, { .stride = { 2, 2 }, .padding = { 2, 1 } } },
    { { 2, 4, 9, 8 }, { 6, 2, 3, 3 }, { 2, 6, 5, 4 }, { .dilation = { 2, 2 }, .groups = 2 } },
    { { 2, 4, 6, 7 }, { 4, 1, 3, 3 }, { 2, 4, 6, 7 }, { .padding = { 1, 1 }, .groups = 4 } },
    { { 2, 4, 5, 5 }, { 3, 4, 1, 1 }, { 2, 3, 5, 5 }, { .groups = 1 } },
    { { 1, 16, 12, 13 },
      { 24, 16, 3, 3 },
      { 1, 24, 6, 8 },
      { .stride = { 2, 2 }, .padding = { 1, 2 } } },
    { { 2, 6, 19 },
      { 8, 3, 4 },
      { 2, 8, 10 },
      { .stride = { 2 }, .padding = { 2 }, .groups = 2, .dilation = { 1 } } },
    { { 2, 4, 5, 6, 7 },
      { 6, 4, 2, 3, 3 },
      { 2, 6, 5, 3, 4 },
      { .stride = { 1, 2, 2 }, .padding = { 1, 1, 2 }, .dilation = { 2, 1, 2 } } },
    { { 2, 5, 4, 5, 4 }, { 10, 1, 2, 2, 3 }, { 2, 10, 3, 4, 2 }, { .groups = 5 } },
};

static int conv_rank(const conv_case *c)
{
    return c->x[3] == 0 ? 3 : c->x[4] == 0 ? 4 : 5;
}

static tni_attr conv_attr(const conv_case *c)
{
    tni_attr a = { .conv = { .groups = c->o.groups ? c->o.groups : 1 } };
    for (int i = 0; i < conv_rank(c) - 2; i++) {
        a.conv.stride[i]   = c->o.stride[i] ? c->o.stride[i] : 1;
        a.conv.padding[i]  = c->o.padding[i];
        a.conv.dilation[i] = c->o.dilation[i] ? c->o.dilation[i] : 1;
    }
    return a;
}

static void conv_inputs(sample *s)
{
    const conv_case *c = &convs[s->variant];
    layout           w = s->lay == EMPTY ? PLAIN : s->lay;
    int              r = conv_rank(c);
    s->depth = s->op == TNI_conv_wgrad ? (double)(c->y[0] * tni_shape_count(r - 2, c->y + 2))
                                       : (double)tni_shape_count(r - 1, c->w + 1);
    mood m   = s->op == TNI_conv_i32 ? WILD : TAME;
    add_input(s, s->dt, s->lay, r, tni_is_conv(s->op) ? c->x : c->y, m);
    if (s->op == TNI_conv_wgrad) add_input(s, s->dt, s->lay, r, c->x, TAME);
    else add_input(s, factor_dtype(s), w, r, c->w, m);
}

static tn_tensor *build_conv(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    const conv_case *c = &convs[s->variant];
    tni_attr         a = conv_attr(c);
    int64_t          size[5];
    (void)cx;
    if (s->op == TNI_conv_i32) return tn_conv_i32(x[0], x[1], s->variant & 2 ? 0 : 101, c->o);
    if (s->op == TNI_conv && conv_rank(c) == 3) return tn_conv1d(x[0], x[1], NULL, c->o);
    if (s->op == TNI_conv && conv_rank(c) == 5) return tn_conv3d(x[0], x[1], NULL, c->o);
    if (s->op == TNI_conv) return tn_conv2d(x[0], x[1], NULL, c->o);
    memcpy(size, s->op == TNI_conv_dgrad ? c->x : c->w, sizeof size);
    if (s->lay == EMPTY && s->op == TNI_conv_dgrad) size[0] = 0;
    return s->op == TNI_conv_dgrad ? tni_conv_dgrad(x[0], x[1], size, &a)
                                   : tni_conv_wgrad(x[0], x[1], size, &a);
}

static tn_tensor *size_of(tn_tensor *x)
{
    return tn_abs(tn_cast(x, TN_F64));
}

static tn_tensor *bound_conv(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    return build_conv(s, cx, (tn_tensor *const[]){ size_of(x[0]), size_of(x[1]) });
}

// The gradients are recorded by conv's rule alone, which has floats of rank 4.
static tn_status conv_refuses(const sample *s)
{
    if (s->op == TNI_conv && s->lay == ZERO_D) return TN_ESHAPE;
    if (s->op == TNI_conv && !tni_is_float(s->dt)) return TN_EDTYPE;
    return TN_OK;
}

// ---- attention ---------------------------------------------------------------------------------

// The last sizes are (T, D), (S, D) and (S, E); the mask is 1 of bools, 2 of numbers.
typedef struct {
    int     rank;
    int64_t q[4], k[4], v[4];
    int     mask;
    bool    causal;
    double  scale;
} attention_case;

static const attention_case attentions[] = {
    { 4, { 2, 3, 9, 8 }, { 2, 3, 11, 8 }, { 2, 3, 11, 5 }, 0, false, 0 },
    { 3, { 3, 70, 16 }, { 3, 65, 16 }, { 3, 65, 24 }, 0, true, 0.3 },
    { 4, { 2, 3, 9, 8 }, { 2, 3, 7, 8 }, { 2, 3, 7, 8 }, 1, false, 0 },
    { 4, { 2, 1, 7, 4 }, { 2, 1, 9, 4 }, { 2, 1, 9, 6 }, 2, true, -0.5 },
    { 2, { 6, 12 }, { 130, 12 }, { 130, 3 }, 0, false, 0 },
};

static void attention_inputs(sample *s)
{
    const attention_case *c = &attentions[s->variant];
    layout                k = s->lay == EMPTY && c->rank == 2 ? PLAIN : s->lay;
    int64_t               y[4];
    s->depth = (double)(c->k[c->rank - 2] + c->k[c->rank - 1]);
    add_input(s, s->dt, s->lay, c->rank, c->q, TAME);
    add_input(s, s->dt, k, c->rank, c->k, TAME);
    add_input(s, s->dt, k, c->rank, c->v, TAME);
    memcpy(y, c->q, sizeof y);
    y[c->rank - 1] = c->v[c->rank - 1];
    if (s->op == TNI_attention_grad) add_input(s, s->dt, s->lay, c->rank, y, TAME);
}

// Some keys are hidden, and from one query all; numbers go up and down.
static tn_tensor *attention_mask(const attention_case *c, tn_ctx *cx, tn_dtype dt)
{
    int64_t    T = c->q[c->rank - 2], S = c->k[c->rank - 2];
    tn_tensor *at = tn_reshape(tn_arange(cx, TN_F32, 0, (double)(T * S), 1), TN_SHAPE(T, S));
    if (c->mask == 0) return NULL;
    if (c->mask == 2) return tn_cast(tn_mul_s(tn_remainder(at, tn_scalar(cx, 7)), 0.25), dt);
    return tn_logical_and(tn_gt_s(at, (double)S), tn_ne_s(tn_remainder(at, tn_scalar(cx, 3)), 1));
}

static tn_attention_opts attention_opts(const attention_case *c, tn_ctx *cx, tn_dtype dt)
{
    return (tn_attention_opts){ .scale  = c->scale,
                                .causal = c->causal,
                                .mask   = attention_mask(c, cx, dt) };
}

// As attention_grad gives them, heads inside, one after the other.
static tn_tensor *joined(tn_tensor *const *x)
{
    tn_tensor *flat[3];
    for (int i = 0; i < 3; i++)
        flat[i] = tn_reshape(tn_rank(x[i]) == 4 ? tn_transpose(x[i], 1, 2) : x[i], TN_SHAPE(-1));
    return tn_concat(3, flat, 0);
}

// Recorded as the rule does, for inputs that no gradient could be asked for. Of empty ones there is
// nothing to record.
static tn_tensor *attention_grad(const sample *s, tn_ctx *cx, tn_tensor *y, tn_tensor *g)
{
    if (!y || s->lay == EMPTY) return y ? tn_zeros(cx, s->dt, TN_SHAPE(0)) : NULL;
    tni_node *n = y->store->node;
    while (n->op == TNI_view) n = n->src[0];
    tn_tensor *gx[TNI_ATTENTION_GRADS];
    g = tn_reshape(g, TN_SHAPE(n->size[0], n->size[2], n->size[1], n->size[3]));
    if (!tni_attention_grad(cx, n, tn_transpose(g, 1, 2), 0, gx)) return NULL;
    for (int i = 0; i < 3; i++) gx[i] = tn_reshape(gx[i], TN_SHAPE(-1));
    return tn_concat(3, gx, 0);
}

// Where the device declines the op, and other ops are recorded in its place, the gradients are
// theirs.
static tn_tensor *composed_grad(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    tn_tensor *leaf[3], *gx[3];
    for (int i = 0; i < 3; i++) leaf[i] = tn_requires_grad(tn_clone(x[i]), true);
    tn_tensor *y = tn_attention(leaf[0], leaf[1], leaf[2],
                                attention_opts(&attentions[s->variant], cx, s->dt));
    return tn_grad(1, &y, 3, leaf, &x[3], gx) == TN_OK ? joined(gx) : NULL;
}

static bool is_attention(const tn_tensor *y)
{
    const tni_node *n = y->store->node;
    while (n->op == TNI_view) n = n->src[0];
    return n->op == TNI_attention;
}

static tn_tensor *build_attention(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    tn_attention_opts o = attention_opts(&attentions[s->variant], cx, s->dt);
    uint64_t          lacks[4];
    if (s->op == TNI_attention) return tn_attention(x[0], x[1], x[2], o);
    memcpy(lacks, cx->lacks, sizeof lacks);
    memset(cx->lacks, 0,
           sizeof lacks);  // the node is not computed, also where the device could not
    tn_tensor *y = tn_attention(x[0], x[1], x[2], o);
    memcpy(cx->lacks, lacks, sizeof lacks);
    bool       composed = y && s->lay != EMPTY && !is_attention(y);
    tn_tensor *g        = composed ? composed_grad(s, cx, x) : attention_grad(s, cx, y, x[3]);
    if (y) tn_drop(y);
    return g;
}

// What is added up, without signs; larger where an error of the scores makes itself felt in the
// weights.
static tn_tensor *bound_attention(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    const attention_case *c     = &attentions[s->variant];
    tn_attention_opts     o     = attention_opts(c, cx, TN_F64);
    double                scale = c->scale != 0 ? c->scale : 1 / sqrt((double)c->q[c->rank - 1]);
    tn_tensor            *q = tn_cast(x[0], TN_F64), *k = tn_cast(x[1], TN_F64);
    tn_tensor            *v = size_of(x[2]), *aq = tn_abs(q), *ak = tn_abs(k);
    if (s->lay == EMPTY || s->lay == ZERO_D) return NULL;
    tni_attr   attr = { .attention = { .scale = scale, .causal = o.causal } };
    tn_tensor *w = tni_attention_weights(&(tni_attention_args){ q, k, v, { o.mask }, NULL, &attr });
    tn_tensor *most = tn_max_all(tn_matmul(aq, tn_transpose(ak, -1, -2)));
    most            = tn_add_s(tn_mul_s(most, fabs(scale)), 1);
    if (s->op == TNI_attention) return tn_mul(tn_matmul(w, v), most);
    tn_tensor *g = size_of(x[3]), *dw = tn_matmul(g, tn_transpose(v, -1, -2));
    tn_tensor *ds   = tn_mul(w, tn_add(dw, tn_sum_keep(tn_mul(w, dw), -1)));
    tn_tensor *gx[] = { tn_matmul(ds, ak), tn_matmul(tn_transpose(ds, -1, -2), aq),
                        tn_div_s(tn_matmul(tn_transpose(w, -1, -2), g), fabs(scale)) };
    return tn_mul(joined(gx), tn_mul_s(most, fabs(scale)));
}

static tn_status attention_refuses(const sample *s)
{
    if (s->lay == ZERO_D) return TN_ESHAPE;
    return !tni_is_float(s->dt) ? TN_EDTYPE : TN_OK;
}

// ---- recording ---------------------------------------------------------------------------------

static tn_tensor *build_unary(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    return tni_unary(s->op, x[0]);
}

static tn_tensor *build_binary(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    return tni_binary(s->op, x[0], x[1]);
}

static tn_tensor *build_where(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)s, (void)cx;
    return tn_where(x[0], x[1], x[2]);
}

static tn_tensor *build_cast(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    return tn_cast(x[0], all_dtypes[s->variant]);
}

// Variants 0 to 2: one axis; 3: all; 4: the first and the last.
static uint32_t reduced_axes(const sample *s)
{
    static const uint32_t masks[] = { 1, 2, 4, 7, 5 };
    return s->lay == ZERO_D ? 0 : masks[s->variant];
}

static tn_tensor *reduce(int op, const sample *s, tn_tensor *x)
{
    return x ? tni_reduce(op, tni_op_table[op].name, x, reduced_axes(s), s->variant & 1) : NULL;
}

static tn_tensor *build_reduce(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    return reduce(s->op, s, x[0]);
}

static tn_tensor *bound_reduce(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    return reduce(s->op, s, size_of(x[0]));
}

// An extremum of nothing.
static tn_status reduce_refuses(const sample *s)
{
    bool picks = s->op != TNI_sum && s->op != TNI_prod;
    return picks && s->lay == EMPTY && (reduced_axes(s) & 1) ? TN_ESHAPE : TN_OK;
}

static tn_tensor *scan(const sample *s, tn_tensor *x)
{
    int axis = s->lay == ZERO_D ? 0 : s->variant;
    return s->op == TNI_cumsum ? tn_cumsum(x, axis) : tn_cumprod(x, axis);
}

static tn_tensor *build_scan(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    return scan(s, x[0]);
}

static tn_tensor *bound_scan(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    return scan(s, size_of(x[0]));
}

static tn_tensor *build_leaf(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)s, (void)cx;
    return x[0];
}

static tn_tensor *view_of_matrix(int variant, tn_tensor *x)
{
    int64_t rows = tn_size(x, 0), cols = tn_size(x, 1);
    switch (variant) {
    case 0: return tn_slice(x, 1, -2, TN_TO_END, -3);
    case 1: return tn_select(x, 1, -2);
    case 2: return tn_squeeze(tn_unsqueeze(tn_unsqueeze(x, 0), -1), 0);
    case 3: return tn_transpose(x, 0, 1);
    case 4: return tn_permute(tn_unsqueeze(x, 0), TN_AXES(2, 0, 1));
    case 5: return tn_expand(x, TN_SHAPE(3, -1, -1));
    case 6: return tn_flip(x, 1);
    case 7: return tn_diagonal(x, 2, 0, 1);
    case 8: return tn_window_dilated(x, 1, 3, 2, 2);
    default: return tn_reshape(tn_transpose(x, 0, 1), TN_SHAPE(rows * cols));
    }
}

static tn_tensor *build_view(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    if (s->lay == ZERO_D) return tn_expand(x[0], TN_SHAPE(1 + s->variant, 2));
    return view_of_matrix(s->variant, x[0]);
}

static tn_tensor *build_copy(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    return s->variant ? tn_clone(tn_flip(tn_unsqueeze(x[0], 0), -1)) : tn_contiguous(x[0]);
}

static tn_tensor *build_pad(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    static const int64_t before[][2] = { { 1, 2 }, { -1, 3 }, { 0, -2 } };
    static const int64_t after[][2]  = { { 0, 5 }, { 2, -4 }, { 0, -3 } };
    static const double  value[]     = { 0, 1, 5 };
    bool                 crops       = s->lay == EMPTY && s->variant == 1;
    (void)cx;
    return tn_pad(x[0], crops ? before[0] : before[s->variant], after[s->variant],
                  s->variant == 1 && tni_is_float(s->dt) ? 0.1 : value[s->variant]);
}

static tn_tensor *build_concat(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    return tn_concat(3, x, s->variant);
}

static tn_status needs_axis(const sample *s)
{
    return s->lay == ZERO_D ? TN_EARG : TN_OK;
}

static tn_tensor *build_index(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    int axis = s->variant & 1;
    if (s->lay == ZERO_D) {
        tn_tensor *zero = tn_zeros(cx, TN_I64, TN_0D), *one = tn_ones(cx, s->dt, TN_0D);
        return s->op == TNI_gather ? tn_gather(one, 0, zero) : tn_scatter(one, 0, zero, one);
    }
    if (s->op == TNI_gather) return tn_gather(x[0], axis, x[1]);
    return s->op == TNI_scatter ? tn_scatter(x[0], axis, x[1], x[2])
                                : tn_scatter_add(x[0], axis, x[1], x[2]);
}

static tn_tensor *bound_index(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    return build_index(s, cx, (tn_tensor *const[]){ size_of(x[0]), x[1], size_of(x[2]) });
}

// Windows 1 or 2 apart, added up where they overlap: recorded as the gradient of a window is.
static tn_tensor *fold(const sample *s, tn_ctx *cx, tn_tensor *x)
{
    int64_t   step = 1 + s->variant, size = s->lay == ZERO_D ? 3 : 12 * step + 37 + 1;
    tni_attr  a = { .view = { .offset = 1, .stride = { step, 1 } } };
    tni_node *n = x ? tni_resolve(x, "fold") : NULL;
    return n ? tni_record(cx, TNI_fold, (tn_dtype)n->dtype, 1, &size, 1, &n, &a) : NULL;
}

static tn_tensor *build_fold(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    return fold(s, cx, x[0]);
}

static tn_tensor *bound_fold(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    return fold(s, cx, size_of(x[0]));
}

static void fold_input(sample *s)
{
    s->depth = 13;
    add_input(s, s->dt, s->lay, 2, (int64_t[]){ 13, 37 }, TAME);
}

// A write through the view that a layout is; the result is all of the store. Variant 2 reads what
// it writes: the target itself, backwards.
static tn_tensor *build_write(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    tn_tensor *base = input_base(&s->in[0], cx), *to = input_view(&s->in[0], base);
    tn_tensor *v = s->variant == 2 && s->lay != ZERO_D ? tn_flip(to, 0) : x[1];
    return tn_assign(to, v) ? base : NULL;
}

// The whole store: assign. Variant 2 makes a write of an expression of the old state.
static tn_tensor *build_assign(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    tn_tensor *to = tn_contiguous(x[0]), *v = x[1];
    (void)cx;
    if (s->variant == 2) v = tn_where(tn_eq(to, x[1]), x[1], to);
    return tn_assign(to, v);
}

static tn_status write_refuses(const sample *s)
{
    return s->lay == BROADCAST || s->lay == WINDOWED ? TN_EARG : TN_OK;
}

static tn_tensor *build_matmul(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    return s->op == TNI_matmul ? tn_matmul(x[0], x[1]) : tn_matmul_i32(x[0], x[1]);
}

static tn_tensor *bound_matmul(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)s, (void)cx;
    return tn_matmul(size_of(x[0]), size_of(x[1]));
}

static tn_status matmul_refuses(const sample *s)
{
    if (s->lay == ZERO_D) return TN_ESHAPE;
    return s->dt == TN_BOOL ? TN_EDTYPE : TN_OK;
}

static tn_status bytes_refuse(const sample *s)
{
    if (s->lay == ZERO_D) return TN_ESHAPE;
    return s->dt == TN_I8 || s->dt == TN_U8 ? TN_OK : TN_EDTYPE;
}

// Variants: the axis, and which way.
static tn_tensor *build_argsort(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    return tn_argsort(x[0], s->lay == ZERO_D ? -1 : s->variant & 1, s->variant & 2);
}

// ---- linear algebra ----------------------------------------------------------------------------

// Matrices as large as one tile of a kernel, and some more; every kind whose result has one value.
static void linalg_inputs(sample *s)
{
    int64_t n = s->lay == PLAIN ? 70 : 9;
    s->depth  = (double)(n * n);  // factorizations err by n times what one sum of n does, at most
    add_input(s, s->dt, s->lay, 3, (int64_t[]){ 3, n, n }, UNIT);
}

// x far from singular matrices: n on its diagonal. Symmetric: the lower triangle is read alone.
static tn_tensor *build_linalg(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    if (s->lay == ZERO_D) return tn_inv(x[0]);
    if (!tni_is_float(s->dt)) return tn_inv(x[0]);
    // What is factored is exact: the sum is not rounded to 16 bits.
    int64_t    n = tn_size(x[0], -1);
    tn_tensor *b = s->dt == TN_F64 ? x[0] : tn_cast(x[0], TN_F32), *y[2];
    tn_tensor *a = tn_add(b, tn_mul_s(tn_eye(cx, tn_dtype_of(b), n, n), (double)n));
    switch (s->variant) {
    case 0: a = tn_cholesky(a, false); break;
    case 1: a = tn_inv(a); break;
    case 2: a = tn_solve_triangular(a, b, true, false); break;
    case 3: a = tn_qr(a, false, &y[0], &y[1]) == TN_OK ? y[1] : NULL; break;
    default: a = tn_eigvalsh(a, false); break;
    }
    return tn_cast(a, s->dt);
}

// The norm of what is factored, 2 n at most, or of what solves by it, 1. Both devices round to 16
// bits at the end, which may go either way between two numbers: half a unit more.
static tn_tensor *bound_linalg(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    bool       solves = s->variant == 1 || s->variant == 2;
    tn_tensor *y      = tn_abs(tn_cast(build_linalg(s, cx, x), TN_F64));
    double     half   = s->dt == TN_F16 ? 0x1p-11 : s->dt == TN_BF16 ? 0x1p-8 : 0;
    y                 = tn_mul_s(y, half / (1e-6 * sqrt(s->depth)));
    return tn_add_s(y, solves ? 1 : 2 * sqrt(s->depth));
}

static tn_status linalg_refuses(const sample *s)
{
    if (!tni_is_float(s->dt)) return TN_EDTYPE;
    return s->lay == ZERO_D ? TN_ESHAPE : TN_OK;
}

// ---- sparse matrices ---------------------------------------------------------------------------

// Values and a dense matrix of a width by variant: whole strips of a kernel and some columns more,
// few columns, one; or two dense matrices.
static void sparse_inputs(sample *s)
{
    static const int64_t widths[] = { 150, 150, 5, 1, 24, 64 };
    int64_t              n        = widths[s->variant];
    if (s->op == TNI_spmm) add_input(s, s->dt, s->lay, 1, (int64_t[]){ 400 }, TAME);
    else add_input(s, s->dt, s->lay, 2, (int64_t[]){ 23, n }, TAME);
    add_input(s, s->dt, s->lay, 2, (int64_t[]){ 41, n }, TAME);
    s->depth = s->op == TNI_spmm ? 41 : (double)n;
}

// A matrix with values at places that are in no order, of which some come twice and some rows have
// none.
static tn_sparse sparse_of(tn_ctx *cx, tn_tensor *values, int64_t rows, int64_t cols)
{
    int64_t   at[2 * 400], n = tn_size(values, 0);
    tn_sparse a = { 0 };
    for (int64_t i = 0; i < n && rows && cols; i++) {
        int64_t place = i * 7919 % (rows * cols - rows * cols / 5);
        at[i] = place / cols, at[n + i] = place % cols;
    }
    if (!rows || !cols) n = 0, values = tn_slice(values, 0, 0, 0, 1);
    tn_sparse_coo(tn_from(cx, TN_I64, TN_SHAPE(2, n), at), values, rows, cols, &a);
    return a;
}

static tn_tensor *build_sparse(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    bool turned = s->variant & 1;
    if (s->lay == ZERO_D) return tn_sparse_matmul((tn_sparse){ x[0], x[0], 1, 1, false }, x[1]);
    if (s->op == TNI_spmm) {
        tn_sparse a  = sparse_of(cx, x[0], turned ? tn_size(x[1], 0) : 29,
                                turned ? 29 : tn_size(x[1], 0));
        a.transposed = turned;
        return a.values ? tn_sparse_matmul(a, x[1]) : NULL;
    }
    tn_tensor *one = tn_ones(cx, tn_dtype_of(x[0]), TN_SHAPE(s->lay == EMPTY ? 0 : 400));
    tn_sparse  a   = sparse_of(cx, one, tn_size(x[0], 0), tn_size(x[1], 0));
    a.transposed   = turned;
    if (!a.values) return NULL;
    return turned ? tn_sparse_sampled(a, x[1], tn_transpose(x[0], 0, 1))
                  : tn_sparse_sampled(a, x[0], tn_transpose(x[1], 0, 1));
}

// Values that come twice are rounded when they are added up: what is added may be off by half a
// unit.
static tn_tensor *bound_sparse(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    double half = s->op != TNI_spmm ? 0 : s->dt == TN_F16 ? 0x1p-11 : s->dt == TN_BF16 ? 0x1p-8 : 0;
    return tn_mul_s(build_sparse(s, cx, (tn_tensor *const[]){ size_of(x[0]), size_of(x[1]) }),
                    1 + half / (1e-6 * sqrt(s->depth)));
}

// ---- users' ops --------------------------------------------------------------------------------

static int64_t array_count(const tn_array *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->rank; i++) n *= a->size[i];
    return n;
}

static tn_status same_shape(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = in[0];
    return TN_OK;
}

static tn_status reverse(const void *attr, const tn_array *in, tn_array *out)
{
    size_t  size = tni_dtype_size(in->dtype);
    int64_t n    = array_count(in);
    (void)attr;
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)out->data + (size_t)i * size, (char *)in->data + (size_t)(n - 1 - i) * size,
               size);
    return TN_OK;
}

// The elements backwards, and how many there are, which is an i64.
static tn_status two_shapes(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = in[0];
    out[1] = (tn_array){ .dtype = TN_I64, .rank = 1, .size = { 3 } };
    return TN_OK;
}

static tn_status reverse_and_count(const void *attr, const tn_array *in, tn_array *out)
{
    for (int i = 0; i < 3; i++) ((int64_t *)out[1].data)[i] = array_count(in) + i;
    return reverse(attr, in, out);
}

static tn_tensor *build_custom(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    static const tn_op_def one = {
        .name = "reverse", .nin = 1, .shape = same_shape, .compute = reverse
    };
    static const tn_op_def two = { .name    = "reverse_and_count",
                                   .nin     = 1,
                                   .nout    = 2,
                                   .shape   = two_shapes,
                                   .compute = reverse_and_count };
    tn_tensor             *y[2];
    (void)cx;
    if (s->op == TNI_custom) return tn_custom(&one, x, NULL, 0);
    return tn_custom_n(&two, x, NULL, 0, y) == TN_OK ? y[s->variant] : NULL;
}

// ---- sources -----------------------------------------------------------------------------------

static const int64_t source_size[] = { 5, 300 };

static int source_shape(const sample *s, int64_t size[2])
{
    size[0] = s->lay == EMPTY ? 0 : source_size[0];
    size[1] = source_size[1];
    return s->lay == ZERO_D ? 0 : 2;
}

static const double numbers[] = { 0, -0.0, 1, -3, 100, 0.1, 1e6, 3e9 };

static tn_tensor *build_source(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    int64_t size[2];
    int     rank = source_shape(s, size);
    double  n    = s->lay == EMPTY ? 0 : 1000;
    double  v    = numbers[s->variant % 8];
    (void)x;
    tn_seed(cx, 11 + (uint64_t)s->variant);
    switch (s->op) {
    case TNI_full: return tn_full(cx, s->dt, rank, size, v);
    case TNI_scalar:
        // Beside f16 and bf16 a number is f32 until the sum is rounded, which ref never does: of
        // those that they do not hold, test_numbers.c tells.
        if (s->dt == TN_F16 || s->dt == TN_BF16) v = numbers[s->variant % 5];
        return tn_add(tn_zeros(cx, s->dt, rank, size),
                      tn_scalar(cx, !tni_is_float(s->dt) ? trunc(v) : v));
    case TNI_iota:
        if (s->variant == 1) return tn_arange(cx, s->dt, n, 0, -3);
        if (s->variant == 2) return tn_arange(cx, s->dt, 0, n * 0.25, 0.25);
        return tn_arange(cx, s->dt, 0, n, 1);
    case TNI_random_bits: return tn_randint(cx, s->dt, 0, 100, rank, size);
    case TNI_uniform: return tn_rand(cx, s->dt, rank, size);
    default: return tn_randn(cx, s->dt, rank, size);
    }
}

// randint, the way to random_bits, casts to any dtype; iota takes all but bool.
static tn_status source_refuses(const sample *s)
{
    bool real = tni_is_float(s->dt);
    if (s->op == TNI_iota && s->dt == TN_BOOL) return TN_EDTYPE;
    if ((s->op == TNI_uniform || s->op == TNI_normal) && !real) return TN_EDTYPE;
    return TN_OK;
}

// A number that an integer dtype does not hold.
static tn_status scalar_refuses(const sample *s)
{
    static const double most[] = { [TN_U8] = 255,    [TN_I8] = 127,        [TN_I16] = INT16_MAX,
                                   [TN_U16] = 65535, [TN_I32] = INT32_MAX, [TN_U32] = UINT32_MAX };
    bool                ends   = tni_is_int(s->dt) && tni_dtype_size(s->dt) < 8;
    return ends && numbers[s->variant % 8] > most[s->dt] ? TN_EARG : TN_OK;
}

// full casts its number; randint casts its integers.
static tn_status never(const sample *s)
{
    (void)s;
    return TN_OK;
}

// What the op adds up: log(y) and 1 / y of digamma, the larger operand of logaddexp and a
// logarithm.
static tn_tensor *bound_map(const sample *s, tn_ctx *cx, tn_tensor *const *x)
{
    (void)cx;
    if (s->op == TNI_digamma) return tn_add_s(tn_reciprocal(size_of(x[0])), 3);
    return tn_add_s(tn_maximum(size_of(x[0]), size_of(x[1])), 1);
}

// ---- the table ---------------------------------------------------------------------------------

static const row rows[TNI_OPS] = {
    [TNI_leaf]        = { build_leaf, one_input, 1, EXACT, .why = NULL },
    [TNI_view]        = { build_view, one_input, 10, EXACT, .why = NULL },
    [TNI_full]        = { build_source, NULL, 8, EXACT, .refuses = never, .source = true },
    [TNI_scalar]      = { build_source, NULL, 8, EXACT, .refuses = scalar_refuses, .source = true },
    [TNI_iota]        = { build_source, NULL, 3, ULPS, .refuses = source_refuses, .source = true },
    [TNI_random_bits] = { build_source, NULL, 3, EXACT, .refuses = never, .source = true },
    [TNI_uniform]     = { build_source, NULL, 3, EXACT, .refuses = source_refuses, .source = true },
    [TNI_normal]      = { build_source, NULL, 3, EXACT, .refuses = source_refuses, .source = true },
    [TNI_cast]        = { build_cast, one_input, DTYPES, EXACT, .why = NULL },
    [TNI_maximum]     = { build_binary, two_inputs, 3, VALUE, .why = NULL },  // of zeros, either
    [TNI_minimum]     = { build_binary, two_inputs, 3, VALUE, .why = NULL },
    [TNI_lgamma]      = { build_unary, positive_input, 1, ULPS, .why = NULL },
    [TNI_digamma]     = { build_unary, positive_input, 1, SUMS, bound_map, .why = NULL },
    [TNI_trigamma]    = { build_unary, positive_input, 1, ULPS, .why = NULL },
    [TNI_tetragamma]  = { build_unary, positive_input, 1, ULPS, .why = NULL },
    [TNI_logaddexp]   = { build_binary, two_inputs, 3, SUMS, bound_map, .why = NULL },
    [TNI_where]       = { build_where, three_inputs, 2, EXACT, .why = NULL },
    [TNI_sum]  = { build_reduce, reduce_input, 5, SUMS, bound_reduce, reduce_refuses, .why = NULL },
    [TNI_prod] = { build_reduce, reduce_input, 5, SUMS, bound_reduce, reduce_refuses, .why = NULL },
    [TNI_max]  = { build_reduce, reduce_input, 5, VALUE, .refuses = reduce_refuses },
    [TNI_min]  = { build_reduce, reduce_input, 5, VALUE, .refuses = reduce_refuses },
    [TNI_argmax]      = { build_reduce, reduce_input, 5, EXACT, .refuses = reduce_refuses },
    [TNI_argmin]      = { build_reduce, reduce_input, 5, EXACT, .refuses = reduce_refuses },
    [TNI_cumsum]      = { build_scan, scan_input, 2, SUMS, bound_scan, .why = NULL },
    [TNI_cumprod]     = { build_scan, scan_input, 2, SUMS, bound_scan, .why = NULL },
    [TNI_copy]        = { build_copy, one_input, 2, EXACT, .why = NULL },
    [TNI_pad]         = { build_pad, one_input, 3, EXACT, .why = NULL },
    [TNI_concat]      = { build_concat, concat_inputs, 2, EXACT, .refuses = needs_axis },
    [TNI_gather]      = { build_index, index_inputs, 4, EXACT, .refuses = needs_axis },
    [TNI_scatter]     = { build_index, index_inputs, 4, EXACT, .refuses = needs_axis },
    [TNI_scatter_add] = { build_index, index_inputs, 4, SUMS, bound_index, needs_axis,
                          .why = NULL },
    [TNI_fold]        = { build_fold, fold_input, 2, SUMS, bound_fold, .why = NULL },
    [TNI_assign]      = { build_assign, write_inputs, 3, EXACT, .why = NULL },
    [TNI_update]      = { build_write, write_inputs, 3, EXACT, .refuses = write_refuses },
    [TNI_matmul]      = { build_matmul, matmul_inputs, 5, SUMS, bound_matmul, matmul_refuses,
                          .why = NULL },
    [TNI_conv]        = { build_conv, conv_inputs, 9, SUMS, bound_conv, conv_refuses, .why = NULL },
    [TNI_conv_dgrad]  = { build_conv, conv_inputs, 9, SUMS, bound_conv, conv_refuses, .why = NULL },
    [TNI_conv_wgrad]  = { build_conv, conv_inputs, 9, SUMS, bound_conv, conv_refuses, .why = NULL },
    [TNI_matmul_i32]  = { build_matmul, matmul_inputs, 5, EXACT, .refuses = bytes_refuse },
    [TNI_conv_i32]    = { build_conv, conv_inputs, 9, EXACT, .refuses = bytes_refuse },
    [TNI_argsort]     = { build_argsort, one_input, 4, EXACT, .why = NULL },
    [TNI_attention]   = { build_attention, attention_inputs, 5, SUMS, bound_attention,
                          attention_refuses, .why = NULL },
    [TNI_attention_grad] = { build_attention, attention_inputs, 5, SUMS, bound_attention,
                             attention_refuses, .why = NULL },
    [TNI_linalg]         = { build_linalg, linalg_inputs, 5, SUMS, bound_linalg, linalg_refuses,
                             .why = NULL },
    [TNI_spmm]           = { build_sparse, sparse_inputs, 6, SUMS, bound_sparse, linalg_refuses,
                             .why = NULL },
    [TNI_sddmm]          = { build_sparse, sparse_inputs, 6, SUMS, bound_sparse, linalg_refuses,
                             .why = NULL },
    [TNI_fft]            = { .why =
                                 "test_fft.c has every kind of length beside the definition, the forms every function" },
    [TNI_loop]   = { .why = "its body is a plan of its own: the forms of scan and rnn run it" },
    [TNI_custom] = { build_custom, one_input, 1, EXACT, .why = NULL },
    [TNI_output] = { build_custom, one_input, 2, EXACT, .why = NULL },
};

// Maps by expression are tested alike.
row row_of(int op)
{
    static const row unary = {
        .build = build_unary, .inputs = one_input, .variants = 1, .how = ULPS
    };
    static const row binary = {
        .build = build_binary, .inputs = two_inputs, .variants = 3, .how = ULPS
    };
    if (rows[op].build || rows[op].why) return rows[op];
    if (tni_op_table[op].class == TNI_UNARY) return unary;
    if (tni_op_table[op].class == TNI_BINARY) return binary;
    return rows[op];
}
