// test_layout.c: the order of memory. A map's result lies as its largest input does; channels last
// flows through a network; and nothing but the order changes.
#include "check.h"
#include "rules_kit.h"

#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// N images, C channels, H by W places.
enum { N = 2, C = 3, H = 4, W = 5, ALL = N * C * H * W, MOST = 1 << 14 };

static tn_tensor *draw(tn_ctx *cx, int rank, const int64_t *size)
{
    return tn_add_s(tn_mul_s(tn_rand(cx, TN_F32, rank, size), 3), 0.25);
}

static tn_tensor *images(tn_ctx *cx)
{
    return draw(cx, TN_SHAPE(N, C, H, W));
}

static bool lies(const tn_tensor *t, int64_t s0, int64_t s1, int64_t s2, int64_t s3)
{
    int64_t want[] = { s0, s1, s2, s3 };
    bool    ok     = t && tn_rank(t) == 4;
    for (int i = 0; ok && i < 4; i++) ok = tn_stride(t, i) == want[i];
    return ok;
}

static bool lies_last(const tn_tensor *t)
{
    int64_t c = tn_size(t, 1), h = tn_size(t, 2), w = tn_size(t, 3);
    return lies(t, c * h * w, 1, w * c, c) && !tn_is_view(t);
}

// Whether a and b, of one shape, have the same elements, to within tol of their size.
static bool same(tn_tensor *a, tn_tensor *b, double tol)
{
    static double x[MOST], y[MOST];
    int64_t       n = tn_count(a);
    if (!a || !b || n != tn_count(b) || n > MOST || tn_rank(a) != tn_rank(b)) return false;
    for (int i = 0; i < tn_rank(a); i++)
        if (tn_size(a, i) != tn_size(b, i)) return false;
    if (tn_read(a, TN_F64, x, n) != TN_OK || tn_read(b, TN_F64, y, n) != TN_OK) return false;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(x[i] - y[i]) <= tol * (1 + fabs(y[i])))) return false;
    return true;
}

// ---- channels last

static void channels_last_lays_the_same_values_with_channels_side_by_side(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = images(cx), *y = tn_channels_last(x);
        CHECK(lies_last(y));
        CHECK(!tn_is_contiguous(y) && tn_offset(y) == 0);
        CHECK(same(y, x, 0));
        CHECK(tn_is_contiguous(tn_contiguous(y)) && same(tn_contiguous(y), x, 0));
        // It is the memory of (N, H, W, C), row by row.
        CHECK(tn_is_contiguous(tn_permute(y, TN_AXES(0, 2, 3, 1))));
        // A store of its own.
        tn_tensor *old = tn_contiguous(x);
        tn_fill_(y, 7);
        CHECK(same(x, old, 0));
        CHECK(tn_channels_last(tn_zeros(cx, TN_F32, TN_SHAPE(2, 3))) == NULL);
        CHECK_FAILED2(cx, TN_ESHAPE, "channels_last: x (2, 3)", "(N, C, H, W)");
    }
}

static void what_lies_so_already_is_not_copied(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *y = tn_channels_last(images(cx));
        CHECK_STATUS(tn_eval_of(y), TN_OK);
        int64_t    launches = tn_ctx_stats(cx).launches, bytes = tn_ctx_stats(cx).bytes;
        tn_tensor *z[] = { tn_channels_last(y), tn_clone(y), tn_cast(y, TN_F32),
                           tn_dropout(y, 0.5, false) };
        for (int i = 0; i < 4; i++) {
            CHECK(lies_last(z[i]));
            CHECK_STATUS(tn_eval_of(z[i]), TN_OK);
        }
        CHECK_INT(tn_ctx_stats(cx).launches, launches);
        CHECK_INT(tn_ctx_stats(cx).bytes, bytes);
        // Each is a store of its own all the same.
        tn_zero_(z[0]);
        CHECK(tn_item(tn_sum_all(y)) > 1 && same(z[1], y, 0));
        CHECK(tn_item(tn_sum_all(z[0])) == 0);
    }
}

static void one_channel_is_told_by_its_strides(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = draw(cx, TN_SHAPE(N, 1, H, W)), *w = draw(cx, TN_SHAPE(C, 1, 3, 3));
        tn_tensor *y = tn_channels_last(x);
        CHECK(lies(y, H * W, 1, W, 1));
        CHECK(same(y, x, 0));
        tn_tensor *first = tn_conv2d(x, w, NULL, (tn_conv_opts){ .padding = { 1 } });
        tn_tensor *last  = tn_conv2d(y, w, NULL, (tn_conv_opts){ .padding = { 1 } });
        CHECK(tn_is_contiguous(first) && lies_last(last) && same(last, first, 1e-6));
    }
}

// ---- maps

typedef tn_tensor *formula(tn_tensor *x, tn_tensor *p);

static tn_tensor *f_neg(tn_tensor *x, tn_tensor *p)
{
    return (void)p, tn_neg(x);
}
static tn_tensor *f_exp(tn_tensor *x, tn_tensor *p)
{
    return (void)p, tn_exp(x);
}
static tn_tensor *f_isnan(tn_tensor *x, tn_tensor *p)
{
    return (void)p, tn_isnan(x);
}
static tn_tensor *f_number(tn_tensor *x, tn_tensor *p)
{
    return (void)p, tn_rsub_s(x, 2);
}
static tn_tensor *f_cast(tn_tensor *x, tn_tensor *p)
{
    return (void)p, tn_cast(x, TN_F64);
}
static tn_tensor *f_floor_of_integers(tn_tensor *x, tn_tensor *p)
{
    return (void)p, tn_floor(tn_cast(x, TN_I32));
}
static tn_tensor *f_add(tn_tensor *x, tn_tensor *p)
{
    return tn_add(x, p);
}
static tn_tensor *f_swapped(tn_tensor *x, tn_tensor *p)
{
    return tn_rank(p) == 4 && tn_size(p, 0) == N && tn_size(p, 1) == C ? tn_sub(x, p)
                                                                       : tn_sub(p, x);
}
static tn_tensor *f_mixed(tn_tensor *x, tn_tensor *p)
{
    return tn_mul(x, tn_cast(p, TN_F64));
}
static tn_tensor *f_less(tn_tensor *x, tn_tensor *p)
{
    return tn_lt(x, p);
}
static tn_tensor *f_where(tn_tensor *x, tn_tensor *p)
{
    return tn_where(tn_gt(p, x), x, tn_mul_s(x, 0.5));
}
static tn_tensor *f_choose(tn_tensor *x, tn_tensor *p)
{
    return tn_where(tn_gt_s(p, 1), tn_zeros_like(x), x);
}
static tn_tensor *f_composed(tn_tensor *x, tn_tensor *p)
{
    return tn_gelu(tn_clamp(tn_add(tn_relu(x), p), -2, 2));
}

static const struct {
    const char *name;
    formula    *f;
} formulas[] = {
    { "neg", f_neg },           { "exp", f_exp },
    { "isnan", f_isnan },       { "number", f_number },
    { "cast", f_cast },         { "floor of integers", f_floor_of_integers },
    { "add", f_add },           { "swapped", f_swapped },
    { "mixed", f_mixed },       { "less", f_less },
    { "where", f_where },       { "choose", f_choose },
    { "composed", f_composed },
};

enum { PARTNERS = 8 };

// Partners of an x (N, C, H, W): of its order and of others, broadcast, sliced, 0-d.
static tn_tensor *partner(tn_ctx *cx, int i)
{
    switch (i) {
    case 0: return images(cx);
    case 1: return tn_channels_last(images(cx));
    case 2: return tn_permute(draw(cx, TN_SHAPE(W, H, C, N)), TN_AXES(3, 2, 1, 0));
    case 3: return draw(cx, TN_SHAPE(C, 1, 1));
    case 4: return draw(cx, TN_SHAPE(W));
    case 5: return tn_transpose(draw(cx, TN_SHAPE(W, H)), 0, 1);
    case 6: return tn_slice(tn_channels_last(draw(cx, TN_SHAPE(N, 2 * C, H, W))), 1, 1, 2 * C, 2);
    default: return draw(cx, TN_0D);
    }
}

static void maps_lie_as_their_largest_input(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (size_t k = 0; k < sizeof formulas / sizeof *formulas; k++)
            for (int i = 0; i < PARTNERS; i++) {
                tn_scope  *s = tn_begin(cx);
                tn_tensor *x = images(cx), *p = partner(cx, i);
                tn_tensor *want = formulas[k].f(x, tn_contiguous(p));
                tn_tensor *have = formulas[k].f(tn_channels_last(x), p);
                test_case_result(lies_last(have) && tn_dtype_of(have) == tn_dtype_of(want) &&
                                     same(have, want, 1e-6),
                                 "%s, partner %d", formulas[k].name, i);
                tn_end(s);
            }
}

static void the_first_of_equal_inputs_decides(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = images(cx), *y = tn_channels_last(x);
        CHECK(lies_last(tn_add(y, x)) && tn_is_contiguous(tn_add(x, y)));
        CHECK(same(tn_add(y, x), tn_add(x, y), 0));
        // A broadcast input is smaller than it looks; a constant has no order; a choice comes last.
        tn_tensor *wide = tn_expand(draw(cx, TN_SHAPE(C, 1, 1)), TN_SHAPE(N, C, H, W));
        CHECK(lies_last(tn_mul(wide, y)));
        CHECK(lies_last(tn_mul(tn_ones_like(x), y)));
        CHECK(lies_last(tn_where(tn_gt_s(x, 1), y, y)));
        CHECK(lies_last(tn_dropout(y, 0.5, true)));
        // Rows, flips and windows give row-major results.
        CHECK(tn_is_contiguous(tn_neg(tn_slice(x, 3, 0, 2, 1))));
        CHECK(tn_is_contiguous(tn_neg(tn_flip(y, 1))));
        CHECK(tn_is_contiguous(tn_neg(tn_window(y, 2, 2, 1))));
    }
}

static void gaps_and_other_ranks_keep_their_order_too(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = draw(cx, TN_SHAPE(6, 4)), *t = tn_neg(tn_transpose(x, 0, 1));
        CHECK(tn_stride(t, 0) == 1 && tn_stride(t, 1) == 4 && !tn_is_view(t));
        CHECK(same(tn_transpose(t, 0, 1), tn_neg(x), 0));
        tn_tensor *part = tn_neg(tn_transpose(tn_slice(x, 1, 1, 3, 1), 0, 1));
        CHECK(tn_stride(part, 0) == 1 && tn_stride(part, 1) == 2);
        CHECK(same(part, tn_neg(tn_contiguous(tn_transpose(tn_slice(x, 1, 1, 3, 1), 0, 1))), 0));
        tn_tensor *p = tn_exp(tn_permute(draw(cx, TN_SHAPE(2, 3, 4)), TN_AXES(2, 0, 1)));
        CHECK(tn_stride(p, 0) == 1 && tn_stride(p, 1) == 12 && tn_stride(p, 2) == 4);
    }
}

// ---- folds

static void folds_of_any_axes_agree_in_every_order(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x   = images(cx);
        tn_tensor *y[] = { tn_channels_last(x),
                           tn_permute(tn_contiguous(tn_permute(x, TN_AXES(3, 1, 0, 2))),
                                      TN_AXES(2, 1, 3, 0)) };
        for (int mask = 1; mask < 16; mask++)
            for (int k = 0; k < 4; k++) {
                int axes[4], n = 0;
                for (int i = 0; i < 4; i++)
                    if (mask >> i & 1) axes[n++] = i;
                bool keep = k / 2;
                test_case_result(same(tn_sum_axes(y[k % 2], n, axes, keep),
                                      tn_sum_axes(x, n, axes, keep), 1e-5) &&
                                     same(tn_max_axes(y[k % 2], n, axes, keep),
                                          tn_max_axes(x, n, axes, keep), 0),
                                 "axes %d, form %d", mask, k);
            }
        for (int i = 0; i < 4; i++) {
            CHECK(same(tn_argmax(y[i % 2], i), tn_argmax(x, i), 0));
            CHECK(same(tn_cumsum(y[i % 2], i), tn_cumsum(x, i), 1e-6));
        }
        CHECK(same(tn_argmax_all(y[0]), tn_argmax_all(x), 0));
        // What is left lies as it did.
        tn_tensor *z = tn_sum(y[0], 0);  // (C, H, W) of (H, W, C)
        CHECK(tn_stride(z, 0) == 1 && tn_stride(z, 1) == W * C && tn_stride(z, 2) == C);
    }
}

// ---- stores

static void a_result_in_another_order_is_a_store_of_its_own(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_reshape(rules_ramp(cx, 6), TN_SHAPE(2, 3));
        tn_tensor *y = tn_add_s(tn_transpose(x, 0, 1), 0);  // (3, 2): 1 4 2 5 3 6
        CHECK(!tn_is_view(y));
        // Its views share it, and a reshape that it cannot express is a copy.
        tn_tensor *view = tn_reshape(tn_transpose(y, 0, 1), TN_SHAPE(6));
        tn_tensor *copy = tn_reshape(y, TN_SHAPE(6));
        CHECK(tn_is_view(view) && !tn_is_view(copy));
        CHECK(tn_view(y, TN_SHAPE(6)) == NULL);
        CHECK_FAILED(cx, TN_ESHAPE, "view: the strides of x (3, 2)");
        tn_fill_(tn_select(y, 0, 1), 9);
        CHECK_VALUES(y, 1, 4, 9, 9, 3, 6);
        CHECK_VALUES(view, 1, 9, 3, 4, 9, 6);
        CHECK_VALUES(copy, 1, 4, 2, 5, 3, 6);
        CHECK_VALUES(x, 1, 2, 3, 4, 5, 6);
        // All of it, by another order, by a number, by itself.
        tn_assign(y, tn_reshape(rules_ramp(cx, 6), TN_SHAPE(3, 2)));
        CHECK_VALUES(y, 1, 2, 3, 4, 5, 6);
        CHECK_VALUES(view, 1, 3, 5, 2, 4, 6);
        CHECK(tn_add_(y, tn_mul_s(y, 10)) == y);
        CHECK_VALUES(y, 11, 22, 33, 44, 55, 66);
        tn_mul_(y, tn_reshape(rules_ramp(cx, 2), TN_SHAPE(2)));
        CHECK_VALUES(y, 11, 44, 33, 88, 55, 132);
        CHECK(tn_stride(y, 0) == 1 && tn_stride(y, 1) == 3);
        tn_fill_(view, 1);
        CHECK_VALUES(y, 1, 1, 1, 1, 1, 1);
        CHECK_VALUES(x, 1, 2, 3, 4, 5, 6);
    }
}

// Launches of a few writes to all of y.
static int64_t write_all(tn_ctx *cx, tn_tensor *y)
{
    CHECK_STATUS(tn_eval_of(y), TN_OK);
    int64_t launches = tn_ctx_stats(cx).launches;
    tn_add_(tn_mul_(y, y), y);
    CHECK_STATUS(tn_eval_of(y), TN_OK);
    return tn_ctx_stats(cx).launches - launches;
}

static void writing_all_of_it_takes_no_more_launches_than_rows(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x = images(cx), *y = tn_channels_last(x);
    CHECK_INT(write_all(cx, y), write_all(cx, x));
    CHECK(lies_last(y) && same(y, x, 0));
    tn_close(cx);
}

static void it_is_printed_and_pointed_to_as_it_is(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *y  = tn_neg(tn_transpose(tn_reshape(rules_ramp(cx, 6), TN_SHAPE(2, 3)), 0, 1));
    char      *a = NULL, *b = NULL;
    size_t     na = 0, nb = 0;
    FILE      *fa = open_memstream(&a, &na), *fb = open_memstream(&b, &nb);
    tn_print(y, fa);
    tn_print(tn_contiguous(y), fb);
    fclose(fa);
    fclose(fb);
    CHECK_STR(a, b);
    free(a);
    free(b);
    const float *p = tn_ptr(y);
    CHECK(p && p[0] == -1 && p[1] == -2 && p[tn_stride(y, 1)] == -4);
    CHECK_NEAR(tn_item(tn_select(tn_select(y, 0, 2), 0, 1)), -6, 0);
    tn_close(cx);
}

static tn_tensor *as_it_is(tn_layer *l, tn_tensor *x)
{
    return (void)l, x;
}

static void a_layer_owns_a_row_major_parameter(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_layer  *l  = tn_layer_new(cx, as_it_is, NULL, NULL);
    tn_tensor *w  = tn_layer_param(l, "w",
                                   tn_mul_s(tn_transpose(draw(cx, TN_SHAPE(2, 3)), 0, 1), 2));
    CHECK(w && tn_is_contiguous(w) && tn_size(w, 0) == 3);
    CHECK_STATUS(tn_layer_cast(l, TN_F64), TN_OK);
    tn_close(cx);
}

// ---- gradients

static tn_tensor *g_maps(tn_tensor *const *x, void *user)
{
    tn_tensor *y = tn_channels_last(x[0]);
    (void)user;
    return tn_sum_all(tn_tanh(tn_mul(tn_add(y, x[1]), tn_add(x[2], tn_exp(y)))));
}

static tn_tensor *g_orders(tn_tensor *const *x, void *user)
{
    tn_tensor *t = tn_permute(tn_transpose(x[0], 0, 2), TN_AXES(1, 0, 3, 2));
    tn_tensor *m = tn_maximum(tn_mul(t, t), tn_permute(x[2], TN_AXES(1, 3, 0, 2)));
    (void)user;
    return tn_sum_all(tn_where(tn_gt_s(m, 1), tn_mul_s(m, 2), tn_pow_s(m, 3)));
}

static tn_tensor *g_net(tn_tensor *const *x, void *user)
{
    tn_tensor *y = tn_conv2d(tn_channels_last(x[0]), x[3], NULL,
                             (tn_conv_opts){ .padding = { 1 } });
    (void)user;
    y = tn_batch_norm(y, NULL, NULL, NULL, NULL, (tn_batch_norm_opts){ .training = true });
    y = tn_avg_pool2d(tn_silu(y), 2, 2, (tn_pool_opts){ .stride = { 1 } });
    y = tn_max_pool2d(y, 2, 2, (tn_pool_opts){ .padding = { 1 } });
    return tn_sum_all(tn_mul(y, y));
}

static void gradients_pass_through_every_order(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x[] = { images(cx), draw(cx, TN_SHAPE(C, 1, 1)), images(cx),
                           draw(cx, TN_SHAPE(2, C, 3, 3)) };
        for (int i = 0; i < 4; i++) {
            x[i] = tn_cast(x[i], TN_F64);
            CHECK_STATUS(tn_eval_of(x[i]), TN_OK);
        }
        CHECK_STATUS(tn_gradcheck(g_maps, 3, x, NULL), TN_OK);
        tn_tensor *z[] = { x[0], x[1], tn_cast(draw(cx, TN_SHAPE(W, C, N, H)), TN_F64) };
        CHECK_STATUS(tn_gradcheck(g_orders, 3, z, NULL), TN_OK);
        CHECK_STATUS(tn_gradgradcheck(g_maps, 3, x, NULL), TN_OK);
        CHECK_STATUS(tn_gradcheck(g_net, 4, x, NULL), TN_OK);
        CHECK_STR(tn_error_text(cx), "");
    }
}

static void the_gradient_of_a_result_in_another_order_is_its_own(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = tn_requires_grad(tn_reshape(rules_ramp(cx, 6), TN_SHAPE(2, 3)), true);
        tn_tensor *y = tn_mul_s(tn_transpose(x, 0, 1), 2), *gx[2];
        tn_tensor *l = tn_sum_all(tn_add(tn_mul(y, y), tn_contiguous(y)));
        CHECK_STATUS(tn_grad(1, &l, 2, (tn_tensor *const[]){ y, x }, NULL, gx), TN_OK);
        CHECK_VALUES(gx[0], 5, 17, 9, 21, 13, 25);
        CHECK_VALUES(gx[1], 10, 18, 26, 34, 42, 50);
        // As a leaf.
        tn_tensor *w = tn_requires_grad(tn_detach(y), true);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(w, w)), NULL), TN_OK);
        CHECK_VALUES(tn_grad_of(w), 4, 16, 8, 20, 12, 24);
        CHECK_STATUS(tn_backward(tn_sum_all(tn_mul_s(w, 3)), NULL), TN_OK);
        CHECK_VALUES(tn_grad_of(w), 7, 19, 11, 23, 15, 27);
    }
}

// ---- networks

typedef struct {
    tn_tensor *conv1, *conv2, *down, *gain, *bias, *mean, *var;
} weights;

static weights draw_weights(tn_ctx *cx)
{
    weights    p   = { draw(cx, TN_SHAPE(6, C, 3, 3)),  draw(cx, TN_SHAPE(6, 3, 3, 3)),
                       draw(cx, TN_SHAPE(4, 6, 1, 1)),  draw(cx, TN_SHAPE(6)),
                       draw(cx, TN_SHAPE(6)),           tn_zeros(cx, TN_F32, TN_SHAPE(6)),
                       tn_ones(cx, TN_F32, TN_SHAPE(6)) };
    tn_tensor *t[] = { p.conv1, p.conv2, p.down, p.gain, p.bias, p.mean, p.var };
    for (int i = 0; i < 7; i++) {
        CHECK_STATUS(tn_eval_of(t[i]), TN_OK);
        if (i < 5) tn_requires_grad(t[i], true);
    }
    return p;
}

// Convolution, batch norm, activation, residual, pool, convolution; each step of it in y.
static int network(const weights *p, tn_tensor *x, tn_tensor **y)
{
    int n  = 0;
    y[n++] = tn_conv2d(x, p->conv1, p->bias, (tn_conv_opts){ .padding = { 1 } });
    y[n++] = tn_batch_norm(y[0], p->mean, p->var, p->gain, p->bias,
                           (tn_batch_norm_opts){ .training = true });
    y[n++] = tn_relu(y[1]);
    y[n++] = tn_conv2d(y[2], p->conv2, NULL, (tn_conv_opts){ .padding = { 1 }, .groups = 2 });
    y[n++] = tn_add(y[3], y[2]);
    y[n++] = tn_max_pool2d(y[4], 2, 2, (tn_pool_opts){ .stride = { 1 } });
    y[n++] = tn_conv2d(y[5], p->down, NULL, (tn_conv_opts){ .stride = { 2 } });
    y[n++] = tn_avg_pool2d(y[6], 2, 2, (tn_pool_opts){ .padding = { 1 }, .exclude_padding = true });
    y[n++] = tn_adaptive_max_pool2d(y[7], 1, 2);
    return n;
}

static void channels_last_flows_through_a_network(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        weights    p = draw_weights(cx);
        tn_tensor *x = images(cx), *first[16], *last[16];
        int        n = network(&p, x, first);
        network(&p, tn_channels_last(x), last);
        for (int i = 0; i < n; i++)
            test_case_result(lies_last(last[i]) && tn_is_contiguous(first[i]) &&
                                 same(last[i], first[i], 1e-4),
                             "step %d of the network", i);
    }
}

// y and the gradients of x and w for a sum of squares.
static void conv_step(tn_tensor *x, tn_tensor *w, tn_conv_opts o, tn_tensor **y)
{
    x            = tn_requires_grad(x, true);
    w            = tn_requires_grad(tn_clone(w), true);
    y[0]         = tn_conv2d(x, w, NULL, o);
    tn_tensor *l = tn_sum_all(tn_mul(y[0], tn_cast(y[0], tn_dtype_of(w))));
    CHECK_STATUS(tn_grad(1, &l, 2, (tn_tensor *const[]){ x, w }, NULL, y + 1), TN_OK);
}

static void convolutions_in_channels_last_agree(void)
{
    // Images, channels in and out, groups, height, width, window, then stride, padding, dilation.
    static const int64_t cases[][12] = {
        { 2, 3, 4, 1, 5, 6, 3, 3, 1, 1, 1, 1 },   { 2, 4, 6, 2, 6, 5, 3, 2, 2, 1, 1, 1 },
        { 1, 5, 2, 1, 7, 7, 1, 1, 1, 0, 1, 1 },   { 3, 6, 6, 6, 5, 5, 3, 3, 1, 2, 2, 2 },
        { 2, 2, 3, 1, 4, 9, 2, 3, 3, 1, 1, 2 },   { 4, 1, 2, 1, 6, 6, 5, 5, 1, 0, 1, 1 },
        { 2, 4, 4, 2, 3, 3, 1, 1, 1, 0, 1, 1 },   { 3, 2, 5, 1, 3, 4, 1, 1, 2, 0, 1, 1 },
        { 9, 3, 7, 1, 12, 11, 3, 3, 1, 1, 1, 1 }, { 0, 3, 2, 1, 4, 4, 3, 3, 1, 1, 1, 1 },
    };
    static const tn_dtype types[] = { TN_F32, TN_F64, TN_BF16 };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (size_t k = 0; k < 3 * sizeof cases / sizeof *cases; k++) {
            const int64_t *c   = cases[k / 3];
            tn_dtype       dt  = types[k % 3];
            double         tol = dt == TN_BF16 ? 0.05 : 1e-4;
            tn_conv_opts   o   = { { c[8], c[8] }, { c[9], c[9] }, { c[10], c[11] }, c[3], { 0 } };
            tn_scope      *s   = tn_begin(cx);
            tn_tensor     *x = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(c[0], c[1], c[4], c[5])), dt);
            tn_tensor *w = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(c[2], c[1] / c[3], c[6], c[7])),
                                   dt);
            tn_tensor *first[3], *last[3];
            conv_step(tn_clone(x), w, o, first);
            conv_step(tn_channels_last(x), w, o, last);
            test_case_result(lies_last(last[0]) && same(last[0], first[0], tol) &&
                                 same(last[1], first[1], tol) && same(last[2], first[2], tol),
                             "convolution %d", (int)k);
            tn_end(s);
        }
}

// Kernels and calls of a step over the network, and their bytes; its gradients into g.
static int steps(tn_ctx *cx, const weights *p, tn_tensor *x, long long *bytes, tn_tensor **g)
{
    tn_tensor *leaf[]  = { p->conv1, p->conv2, p->down, p->gain, p->bias, x }, *y[16];
    char      *text    = NULL;
    size_t     size    = 0;
    int        kernels = -1;
    int        n       = network(p, x, y);
    tn_tensor *loss    = tn_sum_all(tn_mul(y[n - 1], y[n - 1]));
    CHECK_STATUS(tn_grad(1, &loss, 6, leaf, NULL, g), TN_OK);
    for (int i = 0; i < n; i++) tn_drop(y[i]);
    FILE *f = open_memstream(&text, &size);
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    fclose(f);
    CHECK(sscanf(text, "%d kernels, %lld bytes", &kernels, bytes) == 2);
    free(text);
    return kernels;
}

static void a_step_in_channels_last_takes_no_more_kernels(void)
{
    tn_ctx    *cx = rules_open("cpu");
    weights    p  = draw_weights(cx);
    tn_tensor *x = images(cx), *y = tn_channels_last(x), *g[6], *h[6];
    long long  bytes[2];
    tn_want(x);
    tn_want(y);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    int first = steps(cx, &p, tn_requires_grad(x, true), &bytes[0], g);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    int last = steps(cx, &p, tn_requires_grad(y, true), &bytes[1], h);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_INT(last, first);
    test_that(bytes[1] <= bytes[0], "%lld bytes moved, %lld in NCHW", bytes[1], bytes[0]);
    for (int i = 0; i < 6; i++) CHECK(same(h[i], g[i], 1e-3));
    CHECK(lies_last(h[5]));
    tn_close(cx);
}

// What a device says that is faster with channels last, for weights too.
static int all_last(tn_ctx *cx, tn_dtype dt, int64_t from, int64_t to, bool last)
{
    (void)cx, (void)dt, (void)from, (void)to, (void)last;
    return TNI_WEIGHTS_LAST;
}

// A step over images in NCHW, whose convolutions the context stores as the hook says.
static void step_in_order(tn_ctx *cx, const weights *p, tn_tensor *x, bool last, tn_tensor **y,
                          tn_tensor **g)
{
    tn_tensor *leaf[] = { p->conv1, p->conv2, p->down, p->gain, p->bias, x };
    cx->conv_order    = last ? all_last : NULL;
    int        n      = network(p, x, y);
    tn_tensor *loss   = tn_sum_all(tn_mul(y[n - 1], y[n - 1]));
    CHECK_STATUS(tn_grad(1, &loss, 6, leaf, NULL, g), TN_OK);
}

static void a_device_may_store_convolutions_channels_last(void)
{
    tn_ctx    *cx = rules_open("ref");
    weights    p  = draw_weights(cx);
    tn_tensor *x  = tn_requires_grad(tn_want(images(cx)), true), *y[2][16], *g[2][6];
    step_in_order(cx, &p, x, false, y[0], g[0]);
    step_in_order(cx, &p, x, true, y[1], g[1]);
    for (int i = 0; i < 9; i++)
        test_case_result(lies_last(y[1][i]) && tn_is_contiguous(y[0][i]) &&
                             same(y[1][i], y[0][i], 1e-4),
                         "step %d of the network", i);
    for (int i = 0; i < 6; i++) test_case_result(same(g[1][i], g[0][i], 1e-3), "gradient %d", i);
    tn_close(cx);
}

// Convolutions over three axes and transposed ones, whose weights have the channels of x first.
static tn_tensor *other_conv(int which, tn_tensor *x, tn_tensor *w)
{
    tn_conv_opts o = { .stride = { 2 }, .padding = { 1 }, .groups = 2 };
    if (which == 0) return tn_conv3d(x, w, NULL, o);
    return which == 1 ? tn_conv_transpose3d(x, w, NULL, o) : tn_conv_transpose1d(x, w, NULL, o);
}

static void other_convolutions_may_be_stored_channels_last_too(void)
{
    static const int64_t sizes[3][2][5] = { { { 2, 4, 5, 4, 3 }, { 6, 2, 3, 2, 3 } },
                                            { { 2, 4, 2, 3, 2 }, { 4, 3, 3, 2, 3 } },
                                            { { 2, 4, 5 }, { 4, 3, 4 } } };
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int k = 0; k < 3; k++) {
            tn_tensor *y[2], *g[2][2], *x = draw(cx, k < 2 ? 5 : 3, sizes[k][0]);
            tn_tensor *w = tn_requires_grad(draw(cx, k < 2 ? 5 : 3, sizes[k][1]), true);
            x            = tn_requires_grad(x, true);
            for (int last = 0; last < 2; last++) {
                int (*own)(tn_ctx *, tn_dtype, int64_t, int64_t, bool) = cx->conv_order;
                cx->conv_order                                         = last ? all_last : NULL;
                y[last]                                                = other_conv(k, x, w);
                tn_tensor *sum = tn_sum_all(tn_mul(y[last], y[last]));
                CHECK_STATUS(tn_grad(1, &sum, 2, (tn_tensor *const[]){ x, w }, NULL, g[last]),
                             TN_OK);
                cx->conv_order = own;
            }
            test_case_result(!tn_is_contiguous(y[1]) && same(y[1], y[0], 1e-4) &&
                                 same(g[1][0], g[0][0], 1e-3) && same(g[1][1], g[0][1], 1e-3),
                             "convolution %d", k);
        }
}

// A first convolution of few channels is one of squares; what it computes is the same.
static void convolutions_of_squares_agree(void)
{
    // Images, channels in and out, height, width, window, padding.
    static const int64_t cases[][9] = {
        { 2, 3, 8, 9, 10, 7, 7, 3, 3 }, { 1, 1, 2, 8, 8, 3, 5, 1, 2 },
        { 2, 2, 3, 7, 6, 4, 3, 0, 0 },  { 1, 4, 2, 5, 9, 5, 3, 4, 1 },
        { 2, 3, 2, 6, 3, 3, 3, 2, 0 },
    };
    tn_ctx *cx = rules_open("ref");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int64_t *c = cases[k];
        tn_conv_opts   o = { .stride = { 2, 2 }, .padding = { c[7], c[8] } };
        tn_tensor     *x = tn_want(draw(cx, TN_SHAPE(c[0], c[1], c[3], c[4])));
        tn_tensor     *w = tn_want(draw(cx, TN_SHAPE(c[2], c[1], c[5], c[6])));
        tn_tensor     *y[2][3];
        for (int last = 0; last < 2; last++) {
            cx->conv_order = last ? all_last : NULL;
            conv_step(tn_clone(x), w, o, y[last]);
        }
        test_case_result(lies_last(y[1][0]) && same(y[1][0], y[0][0], 1e-5) &&
                             same(y[1][1], y[0][1], 1e-5) && same(y[1][2], y[0][2], 1e-5),
                         "convolution %d", (int)k);
    }
    tn_close(cx);
}

// Batch norm over 4096 places of 4 channels that are side by side, on a device that this many lanes
// keep busy. Returns whether its sums are those of columns.
static bool norm_by_columns(int lanes, float y[MOST])
{
    tn_ctx            *cx   = rules_open("cpu");
    tni_device_kernels k    = *cx->engine->kernels;
    char              *text = NULL;
    size_t             size = 0;
    k.lanes                 = lanes;
    cx->engine->kernels     = &k;
    tn_tensor *x            = tn_want(tn_channels_last(draw(cx, TN_SHAPE(4, 4, 32, 32))));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    x       = tn_batch_norm(x, NULL, NULL, NULL, NULL, (tn_batch_norm_opts){ .training = true });
    FILE *f = open_memstream(&text, &size);
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    fclose(f);
    bool columns = strstr(text, "COL ") != NULL;
    free(text);
    CHECK_STATUS(tn_read(x, TN_F32, y, MOST), TN_OK);
    tn_close(cx);
    return columns;
}

// A few channels would keep few of a GPU's threads busy: all of them add up, and another kernel
// goes on.
static void long_rows_side_by_side_are_summed_by_columns(void)
{
    static float few[MOST], many[MOST];
    CHECK(!norm_by_columns(0, few));
    CHECK(norm_by_columns(1 << 14, many));
    for (int i = 0; i < MOST; i++)
        if (!CHECK_NEAR(few[i], many[i], 1e-5)) break;
}

// The gradient of a convolution's weight through batch norm and relu, of 4096 places of 8 channels.
// Returns the bytes of the kernel of column sums that moves most.
static int64_t sum_gradients(int lanes, float gw[64])
{
    tn_ctx            *cx   = rules_open("cpu");
    tni_device_kernels k    = *cx->engine->kernels;
    char              *text = NULL;
    size_t             size = 0;
    int64_t            most = 0;
    k.lanes                 = lanes;
    cx->engine->kernels     = &k;
    tn_tensor *x            = tn_want(tn_channels_last(draw(cx, TN_SHAPE(4, 8, 32, 32))));
    tn_tensor *w            = tn_want(draw(cx, TN_SHAPE(8, 8, 1, 1)));
    tn_tensor *v            = tn_want(draw(cx, TN_SHAPE(8, 8, 1, 1)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_scope *scope      = tn_begin(cx);
    w                    = tn_requires_grad(w, true);
    tn_batch_norm_opts o = { .training = true };
    tn_tensor         *y = tn_conv2d(x, w, NULL, (tn_conv_opts){ 0 });
    y                    = tn_relu(tn_batch_norm(y, NULL, NULL, NULL, NULL, o));
    y                    = tn_conv2d(y, v, NULL, (tn_conv_opts){ 0 });
    CHECK_STATUS(tn_backward(tn_mean_all(tn_square(y)), NULL), TN_OK);
    FILE *f = open_memstream(&text, &size);
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    fclose(f);
    for (const char *at = text;
         (at = strstr(at, "COL ")) != NULL && (at = strchr(at, ')')) != NULL;)
        if (most < strtoll(at + 1, NULL, 10)) most = strtoll(at + 1, NULL, 10);
    free(text);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_STATUS(tn_read(tn_grad_of(w), TN_F32, gw, 64), TN_OK);
    tn_end(scope);
    tn_close(cx);
    return most;
}

// Where relu let values through follows from what the norm read, so that a GPU need not load it.
static void what_a_relu_let_through_is_computed_again(void)
{
    enum { LAYER = 4 * 8 * 32 * 32 * 4 };
    float few[64], many[64];
    CHECK(sum_gradients(0, few) == 0);
    int64_t bytes = sum_gradients(1 << 14, many);
    CHECK(bytes >= 2 * LAYER && bytes < 7 * LAYER / 2);
    for (int i = 0; i < 64; i++)
        if (!CHECK_NEAR(few[i], many[i], 1e-3)) break;
}

// Sums over the places of each channel of what is padded, which the cpu reads as rows of 121 if it
// is stored.
static void a_pad_of_short_rows_is_stored_for_sums_of_many(void)
{
    tn_ctx *cx = rules_open("cpu"), *ref = rules_open("ref");
    char   *text = NULL;
    size_t  size = 0;
    float   have[3], want[3];
    for (int k = 0; k < 2; k++) {
        tn_ctx    *at  = k ? ref : cx;
        tn_tensor *x   = tn_exp(draw(at, TN_SHAPE(6, 3, 10, 10)));
        x              = tn_pad(x, (int64_t[]){ 0, 0, 0, 0 }, (int64_t[]){ 0, 0, 1, 1 }, 0);
        tn_tensor *sum = tn_sum_axes(tn_square(x), TN_AXES(0, 2, 3), false);
        if (!k) {
            FILE *f = open_memstream(&text, &size);
            CHECK_STATUS(tn_explain(cx, f), TN_OK);
            fclose(f);
        }
        CHECK_STATUS(tn_read(sum, TN_F32, k ? want : have, 3), TN_OK);
    }
    CHECK(strstr(text, "(3 | 6, 121)") && !strstr(text, "COL "));
    for (int i = 0; i < 3; i++) CHECK_NEAR(have[i], want[i], 1e-4 * want[i]);
    free(text);
    tn_close(cx);
    tn_close(ref);
}

const test_case tests_layout[] = {
    TEST(channels_last_lays_the_same_values_with_channels_side_by_side),
    TEST(what_lies_so_already_is_not_copied),
    TEST(one_channel_is_told_by_its_strides),
    TEST(maps_lie_as_their_largest_input),
    TEST(the_first_of_equal_inputs_decides),
    TEST(gaps_and_other_ranks_keep_their_order_too),
    TEST(folds_of_any_axes_agree_in_every_order),
    TEST(a_result_in_another_order_is_a_store_of_its_own),
    TEST(writing_all_of_it_takes_no_more_launches_than_rows),
    TEST(it_is_printed_and_pointed_to_as_it_is),
    TEST(a_layer_owns_a_row_major_parameter),
    TEST(gradients_pass_through_every_order),
    TEST(the_gradient_of_a_result_in_another_order_is_its_own),
    TEST(channels_last_flows_through_a_network),
    TEST(convolutions_in_channels_last_agree),
    TEST(a_step_in_channels_last_takes_no_more_kernels),
    TEST(a_device_may_store_convolutions_channels_last),
    TEST(other_convolutions_may_be_stored_channels_last_too),
    TEST(convolutions_of_squares_agree),
    TEST(long_rows_side_by_side_are_summed_by_columns),
    TEST(what_a_relu_let_through_is_computed_again),
    TEST(a_pad_of_short_rows_is_stored_for_sums_of_many),
    TEST_END,
};
