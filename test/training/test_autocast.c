// test_autocast.c: mixed precision. What dtype each op has under autocast, that gradients and
// weights stay f32, and that the copy of a weight in 16 bits is made once and follows the weight.
#include "rules_kit.h"
#include "scratch.h"
#include "table.h"

#include "optim/optim.h"
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tn_dtype modes[] = { TN_BF16, TN_F16 };

// ---- the mode ----------------------------------------------------------------------------------

static void the_mode_is_scoped_like_that_of_gradients(void)
{
    tn_ctx *cx = rules_open("cpu");
    CHECK_INT(tn_autocast(cx, TN_BF16), TN_F32);
    tn_scope *outer = tn_begin(cx);
    CHECK_INT(tn_autocast(cx, TN_F16), TN_BF16);
    tn_scope *inner = tn_begin(cx);
    CHECK_INT(tn_autocast(cx, TN_F32), TN_F16);
    tn_end(inner);
    CHECK_INT(tn_autocast(cx, TN_F16), TN_F16);
    tn_end(outer);
    CHECK_INT(tn_autocast(cx, TN_F32), TN_BF16);
    CHECK(!tn_error(cx));
    CHECK_INT(tn_autocast(cx, TN_F64), TN_F32);
    CHECK_STR(tn_error_text(cx), "autocast: f64 is not a mode: give bf16, f16, or f32 for off");
    tn_error_clear(cx);
    CHECK_INT(tn_autocast(cx, (tn_dtype)99), TN_F32);
    CHECK_STR(tn_error_text(cx), "autocast: 99 is not a dtype");
    tn_error_clear(cx);
    CHECK_INT(tn_autocast(cx, TN_F32), TN_F32);
    tn_close(cx);
}

// ---- every op ----------------------------------------------------------------------------------

// PyTorch's lists, by the first words of a form's name; what is in neither keeps the dtype of its
// inputs.
// clang-format off
static const char *const low[]  = {
    "matmul", "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "attention", "tensordot", "rnn", NULL };
static const char *const wide[] = {
    "rsqrt", "reciprocal", "exp", "square", "expm1", "log", "log2", "log1p", "tan", "pow",
    "pow_s", "rdiv_s", "softplus", "sum", "sum_keep", "sum_all", "sum_axes", "prod", "prod_keep",
    "prod_all", "prod_axes", "norm", "norm_keep", "norm_all", "norm_axes", "logsumexp",
    "logsumexp_keep", "logsumexp_all", "logsumexp_axes", "cumsum", "cumprod", "softmax",
    "acos", "asin", "cosh", "erfinv", "log10", "sinh", "trace",
    "log_softmax", "layer_norm", "rms_norm", "group_norm", "cross_entropy", "nll", "mse", "l1", "huber",
    "bce", "bce_logits", "kl", "margin_ranking", "cosine_embedding", "triplet_margin", "multi_margin",
    "gaussian_nll", "focal", "ctc_loss", NULL
};
// clang-format on

// Forms of several ops, each with a rule of its own.
static const char *const several[] = { "assign", "fill_", "einsum", "cholesky", "qr",
                                       "eigh",   "svd",   "scan",   "complex",  "fft",
                                       "ifft",   "rfft",  "irfft",  "hfft",     "ihfft",
                                       "fft2",   "rfftn", "irfft2", "fftn",     "fftshift",
                                       "stft",   "istft", NULL };

static bool is_listed(const char *const *list, const char *name)
{
    size_t n = strcspn(name, " ,");
    for (; *list; list++)
        if (strlen(*list) == n && !strncmp(*list, name, n)) return true;
    return false;
}

// f with its inputs cast to dt first.
static tn_tensor *call_form(const form *f, tn_tensor *const *x, tn_dtype dt)
{
    tn_tensor *y[INPUTS];
    for (int i = 0; i < f->nin; i++) y[i] = tn_cast(x[i], dt);
    return f->f(y, NULL);
}

// The form under autocast has the value and the dtype of the same form of inputs that were cast by
// hand. What the form itself computes on the way (steps) may be rounded otherwise.
static void check_form(tn_ctx *cx, const form *f, tn_dtype dt, tn_dtype mode)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x[INPUTS];
    table_seed(7);
    for (int i = 0; i < f->nin; i++) {
        input in = input_make(dt, PLAIN, f->in[i].rank, f->in[i].size, f->in[i].m);
        x[i]     = input_put(&in, cx);
        input_free(&in);
    }
    tn_dtype   as   = dt == TN_F64               ? dt
                      : is_listed(low, f->name)  ? mode
                      : is_listed(wide, f->name) ? TN_F32
                                                 : dt;
    tn_tensor *want = call_form(f, x, as);
    tn_autocast(cx, mode);
    tn_tensor *have = f->f(x, NULL);
    tn_autocast(cx, TN_F32);
    bool   ok = want && have && tn_dtype_of(want) == tn_dtype_of(have);
    double a[4096], b[4096];
    if (ok) ok = tn_count(want) == tn_count(have) && tn_count(have) <= 4096;
    if (ok) ok = tn_read(want, TN_F64, a, tn_count(want)) == TN_OK;
    if (ok) ok = tn_read(have, TN_F64, b, tn_count(have)) == TN_OK;
    for (int64_t i = 0; ok && i < tn_count(have); i++) {
        double slack = f->steps > 1 || as != dt ? 0.02 * fmax(1, fabs(a[i])) : 0;
        ok           = a[i] == b[i] || (a[i] != a[i] && b[i] != b[i]) || fabs(a[i] - b[i]) <= slack;
    }
    test_case_result(ok, "%s of %s under %s: %s, not %s", f->name, tn_dtype_name(dt),
                     tn_dtype_name(mode), have ? tn_dtype_name(tn_dtype_of(have)) : "none",
                     want ? tn_dtype_name(tn_dtype_of(want)) : "none");
    tn_end(s);
}

static void every_op_has_the_dtype_of_pytorchs_lists(void)
{
    static const tn_dtype in[] = { TN_F32, TN_BF16, TN_F16, TN_F64 };
    tn_ctx               *cx   = rules_open("ref");
    for (int t = 0; form_tables[t]; t++)
        for (const form *f = form_tables[t]; f->name; f++)
            for (int m = 0; m < 2; m++)
                for (int d = 0; d < 4 && !is_listed(several, f->name); d++)
                    check_form(cx, f, in[d], modes[m]);
    CHECK(!tn_error(cx));
    tn_close(cx);
}

// Beside f32, as promotion has it; and of an f32 value added to 16 bits, where autocast takes the
// wider.
static void operands_of_two_dtypes_meet_as_in_pytorch(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x  = tn_ones(cx, TN_F32, TN_SHAPE(2, 2)),
                  *h  = tn_ones(cx, TN_BF16, TN_SHAPE(2, 2));
        tn_tensor *d  = tn_ones(cx, TN_F64, TN_SHAPE(2, 2)),
                  *i  = tn_ones(cx, TN_I64, TN_SHAPE(2, 2));
        tn_tensor *at = tn_zeros(cx, TN_I64, TN_SHAPE(2, 2));
        CHECK_INT(tn_dtype_of(tn_scatter_add(h, 0, at, x)), TN_BF16);
        tn_autocast(cx, TN_F16);
        CHECK_INT(tn_dtype_of(tn_matmul(x, h)), TN_F16);
        CHECK_INT(tn_dtype_of(tn_matmul(x, d)), TN_F64);
        CHECK_INT(tn_dtype_of(tn_matmul(x, i)), TN_F16);
        CHECK_INT(tn_dtype_of(tn_matmul(i, i)), TN_I64);
        CHECK_INT(tn_dtype_of(tn_add(x, h)), TN_F32);
        CHECK_INT(tn_dtype_of(tn_pow(h, d)), TN_F64);
        CHECK_INT(tn_dtype_of(tn_scatter_add(h, 0, at, x)), TN_F32);
        CHECK_INT(tn_dtype_of(tn_scatter_add(h, 0, at, h)), TN_BF16);
        CHECK_INT(tn_dtype_of(tn_mul_(tn_clone(h), x)), TN_BF16);
        CHECK_INT(tn_dtype_of(tn_cast(x, TN_BF16)), TN_BF16);
    }
}

// ---- gradients ---------------------------------------------------------------------------------

// A weight (3, 4) and an input (2, 4) with numbers that 16 bits round.
static tn_tensor *numbers(tn_ctx *cx, int64_t rows, double from)
{
    return tn_reshape(tn_linspace(cx, TN_F32, from, from + 1.3, rows * 4), TN_SHAPE(rows, 4));
}

static void check_equal(tn_tensor *have, tn_tensor *want, const char *what)
{
    double  a[64], b[64];
    int64_t n = tn_count(want);
    test_that(have && tn_dtype_of(have) == tn_dtype_of(want) && tn_count(have) == n, "%s: form",
              what);
    if (!have || n > 64 || tn_count(have) != n) return;
    CHECK_STATUS(tn_read(have, TN_F64, a, n), TN_OK);
    CHECK_STATUS(tn_read(want, TN_F64, b, n), TN_OK);
    for (int64_t i = 0; i < n; i++)
        test_that(a[i] == b[i], "%s: [%d] is %.9g, not %.9g", what, (int)i, a[i], b[i]);
}

// The same graph with casts by hand.
static tn_tensor *by_hand(tn_tensor *x, tn_tensor *w, tn_dtype dt)
{
    tn_tensor *y = tn_matmul(tn_cast(x, dt), tn_transpose(tn_cast(w, dt), 0, 1));
    return tn_sum_all(tn_exp(tn_cast(tn_relu(y), TN_F32)));
}

static tn_tensor *cast_by_mode(tn_tensor *x, tn_tensor *w)
{
    return tn_sum_all(tn_exp(tn_relu(tn_linear(x, w, NULL))));
}

static void gradients_are_those_of_casts_by_hand(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int m = 0; m < 2; m++) {
            tn_tensor *x  = tn_requires_grad(numbers(cx, 2, -0.4), true);
            tn_tensor *w  = tn_requires_grad(numbers(cx, 3, -0.7), true);
            tn_tensor *x1 = tn_requires_grad(tn_clone(tn_detach(x)), true), *g[2];
            tn_tensor *w1 = tn_requires_grad(tn_clone(tn_detach(w)), true);
            CHECK_STATUS(tn_backward(by_hand(x1, w1, modes[m]), NULL), TN_OK);
            tn_autocast(cx, modes[m]);
            tn_tensor *y = cast_by_mode(x, w);
            CHECK_STATUS(tn_grad(1, &y, 2, (tn_tensor *const[]){ x, w }, NULL, g), TN_OK);
            CHECK_STATUS(tn_backward(y, NULL), TN_OK);
            tn_autocast(cx, TN_F32);
            check_equal(tn_grad_of(x), tn_grad_of(x1), "backward to x");
            check_equal(tn_grad_of(w), tn_grad_of(w1), "backward to w");
            check_equal(g[0], tn_grad_of(x1), "gradient of x");
            check_equal(g[1], tn_grad_of(w1), "gradient of w");
        }
}

// A view of a weight counts where autocast takes it from the weight's copy; a detached one passes
// nothing.
static void views_of_a_weight_have_their_gradients(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = numbers(cx, 2, -0.4), *w = tn_requires_grad(numbers(cx, 3, -0.7), true);
        tn_tensor *v = tn_transpose(w, 0, 1), *part = tn_slice(v, 1, 0, 2, 1), *g[3], *want[3];
        tn_tensor *y    = tn_sum_all(tn_matmul(x, part));
        tn_tensor *of[] = { w, v, part };
        CHECK_STATUS(tn_grad(1, &y, 3, of, NULL, want), TN_OK);
        tn_autocast(cx, TN_BF16);
        y = tn_sum_all(tn_matmul(x, part));
        CHECK_STATUS(tn_grad(1, &y, 3, of, NULL, g), TN_OK);
        CHECK(w->store->low != NULL);
        CHECK(!tn_needs_grad(tn_matmul(x, tn_detach(v))));
        tn_autocast(cx, TN_F32);
        for (int i = 0; i < 3; i++) {
            double a[12], b[12];
            CHECK_INT(tn_dtype_of(g[i]), TN_F32);
            CHECK_STATUS(tn_read(g[i], TN_F64, a, tn_count(want[i])), TN_OK);
            CHECK_STATUS(tn_read(want[i], TN_F64, b, tn_count(want[i])), TN_OK);
            for (int64_t k = 0; k < tn_count(want[i]); k++) CHECK_NEAR(a[k], b[k], 0.02);
        }
    }
}

// A copy made without gradients serves a pass with them, and one of another leaf is not mistaken
// for it.
static void a_copy_serves_every_gradient_mode(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = numbers(cx, 2, -0.4), *w = tn_requires_grad(numbers(cx, 3, -0.7), true);
        tn_autocast(cx, TN_BF16);
        tn_grad_mode(cx, false);
        CHECK(!tn_needs_grad(tn_linear(x, w, NULL)));
        tn_grad_mode(cx, true);
        const tn_tensor *copy = w->store->low;
        CHECK_STATUS(tn_backward(tn_sum_all(tn_linear(x, w, NULL)), NULL), TN_OK);
        CHECK(copy && w->store->low == copy && tn_has_grad(w));
        tn_requires_grad(w, false);
        CHECK(!tn_needs_grad(tn_linear(x, w, NULL)));
        tn_requires_grad(w, true);
        CHECK(!tn_has_grad(w));
        CHECK_STATUS(tn_backward(tn_sum_all(tn_linear(x, w, NULL)), NULL), TN_OK);
        CHECK(w->store->low == copy && tn_has_grad(w) && tn_item(tn_norm_all(tn_grad_of(w))) > 0);
    }
}

// ---- copies of weights -------------------------------------------------------------------------

static void a_write_to_a_weight_makes_its_copy_again(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = numbers(cx, 2, -0.4), *w = tn_requires_grad(numbers(cx, 3, -0.7), true);
        tn_autocast(cx, TN_BF16);
        tn_scope *s = tn_begin(cx);
        check_equal(tn_linear(x, w, NULL),
                    tn_linear(tn_cast(x, TN_BF16), tn_cast(w, TN_BF16), NULL), "before");
        tn_tensor *copy = w->store->low;
        CHECK(copy && tni_low_is_valid(w->store));
        CHECK(tn_linear(x, w, NULL) && w->store->low == copy);
        tn_grad_mode(cx, false);
        tn_tensor *before = tn_linear(x, w, NULL);
        double     old[6], kept[6];
        CHECK_STATUS(tn_read(tn_linear(x, w, NULL), TN_F64, old, 6), TN_OK);
        tn_mul_(tn_slice(w, 0, 1, 2, 1), tn_scalar(cx, 3));
        CHECK(!tni_low_is_valid(w->store));
        check_equal(tn_linear(x, w, NULL),
                    tn_linear(tn_cast(x, TN_BF16), tn_cast(w, TN_BF16), NULL), "written in part");
        tn_assign(w, tn_mul_s(w, 1.7));
        check_equal(tn_linear(x, w, NULL),
                    tn_linear(tn_cast(x, TN_BF16), tn_cast(w, TN_BF16), NULL), "written");
        CHECK_STATUS(tn_read(before, TN_F64, kept, 6), TN_OK);
        CHECK(!memcmp(old, kept, sizeof old));
        tn_autocast(cx, TN_F16);
        CHECK_INT(tn_dtype_of(tn_linear(x, w, NULL)), TN_F16);
        CHECK_INT(tn_dtype_of(w->store->low), TN_F16);
        tn_end(s);
    }
}

// Of a table that is used in parts, and of what is written, only what is used is cast.
static void only_weights_have_copies(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = tn_requires_grad(numbers(cx, 3, -0.7), true), *table = numbers(cx, 8, 0);
        tn_tensor *cache = numbers(cx, 2, 0.3), *fixed = numbers(cx, 2, 0.1);
        tn_assign(tn_slice(cache, 0, 0, 1, 1), tn_slice(table, 0, 0, 1, 1));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_STATUS(tn_eval_of(fixed), TN_OK);
        tn_scope *s = tn_begin(cx);
        tn_autocast(cx, TN_BF16);
        CHECK_INT(tn_dtype_of(tn_linear(tn_slice(table, 0, 2, 4, 1), w, NULL)), TN_BF16);
        CHECK_INT(tn_dtype_of(tn_linear(cache, w, NULL)), TN_BF16);
        CHECK_INT(tn_dtype_of(tn_linear(fixed, w, NULL)), TN_BF16);
        CHECK(w->store->low && fixed->store->low && !table->store->low && !cache->store->low);
        tn_end(s);
    }
}

// Products of one value share its cast, which is gone with the last of them.
static void products_of_one_value_share_its_cast(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *w = tn_requires_grad(numbers(cx, 3, -0.7), true),
                  *x = tn_tanh(numbers(cx, 2, 0));
        tn_autocast(cx, TN_BF16);
        tn_tensor *a = tn_linear(x, w, NULL), *b = tn_linear(x, tn_relu(w), NULL);
        CHECK(a->store->node->src[0] == b->store->node->src[0]);
        tn_drop(a);
        tn_drop(b);
        CHECK(!x->store->node->low);
        check_equal(tn_linear(x, w, NULL),
                    tn_linear(tn_cast(x, TN_BF16), tn_cast(w, TN_BF16), NULL), "after");
        tn_end(s);
    }
}

// ---- training ----------------------------------------------------------------------------------

typedef struct {
    tn_layer *net;
    tn_optim *opt;
} trained;

static trained open_net(tn_ctx *cx)
{
    tn_seed(cx, 5);
    trained t = { .net = tn_nn_seq(cx, tn_nn_linear(cx, 8, 16), tn_nn_layer_norm(cx, 16),
                                   tn_nn_act(cx, tn_gelu_tanh), tn_nn_linear(cx, 16, 4)) };
    t.opt     = tn_adamw(t.net, (tn_adamw_opts){ .lr = 0.01f, .clip_norm = 1 });
    return t;
}

static double train(tn_ctx *cx, trained t, tn_dtype mode, int steps)
{
    double loss = 0;
    for (int i = 0; i < steps; i++) {
        tn_scope *s = tn_begin(cx);
        tn_autocast(cx, mode);
        tn_seed(cx, 100 + (uint64_t)i % 4);
        tn_tensor *x = tn_randn(cx, TN_F32, TN_SHAPE(16, 8));
        tn_tensor *y = tn_argmax(tn_slice(x, 1, 0, 4, 1), 1);
        tn_tensor *l = tn_cross_entropy(tn_forward(t.net, x), y);
        CHECK_INT(tn_dtype_of(l), TN_F32);
        CHECK_STATUS(tn_step(t.opt, l), TN_OK);
        loss = tn_item(l);
        tn_end(s);
    }
    return loss;
}

// Parameters that products take have a copy, and it is the rounding of the parameter.
static int count_copies(const trained *t, tn_dtype mode)
{
    int       n = 0;
    tn_scope *s = tn_begin(tn_layer_ctx(t->net));
    for (size_t i = 0; i < t->opt->slots; i++) {
        tn_tensor *p = t->opt->slot[i].p;
        if (!tni_low_is_valid(p->store)) continue;
        check_equal(p->store->low, tn_cast(p, mode), t->opt->slot[i].name);
        n++;
    }
    tn_end(s);
    return n;
}

static void updates_write_the_copies(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx))
        for (int m = 0; m < 2; m++) {
            trained t = open_net(cx);
            train(cx, t, modes[m], 3);
            CHECK_INT(count_copies(&t, modes[m]), 4);  // not those of the norm
            CHECK(!tni_low_is_valid(t.opt->slot[2].p->store));
            const tni_buffer *buf   = t.opt->slot[0].p->store->low->store->node->buf;
            int64_t           plans = tn_ctx_stats(cx).plans;
            train(cx, t, modes[m], 4);
            CHECK_INT(tn_ctx_stats(cx).plans, plans);
            CHECK_INT(count_copies(&t, modes[m]), 4);
            // In one buffer, which the kernels of the cpu update in place.
            bool in_place = !strcmp(cx->engine->device->name, "cpu");
            for (int i = 0; i < 6 && in_place; i++)
                if (i != 2 && i != 3) CHECK(t.opt->slot[i].p->store->low->store->node->buf == buf);
            train(cx, t, TN_F32, 2);  // nothing took the copies: they are given up
            for (size_t i = 0; i < t.opt->slots; i++) CHECK(!t.opt->slot[i].p->store->low);
            tn_optim_free(t.opt);
            tn_layer_free(t.net);
        }
}

// Returns the value that a product reads, behind views.
static const tni_node *operand(const tn_tensor *y, int i)
{
    int64_t skip;
    return tni_node_base(y->store->node->src[i], &skip);
}

// After the first update the weight of a product is a value that is there: only its input is cast.
static void a_steady_step_casts_no_weight(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *net = tn_nn_linear_with(cx, 4, 3, (tn_nn_linear_opts){ .no_bias = true });
        tn_optim  *opt = tn_adamw(net, (tn_adamw_opts){ .lr = 0.01f });
        tn_tensor *x   = numbers(cx, 2, -0.4);
        for (int i = 0; i < 3; i++) {
            tn_scope *s = tn_begin(cx);
            tn_autocast(cx, TN_BF16);
            tn_tensor *y = tn_forward(net, tn_tanh(x));
            CHECK_INT(operand(y, 0)->op, TNI_cast);
            CHECK((operand(y, 1)->state == TNI_DONE) == (i > 0));
            CHECK(i > 0 || operand(y, 1)->op == TNI_cast);
            CHECK_STATUS(tn_step(opt, tn_sum_all(y)), TN_OK);
            tn_end(s);
        }
    }
}

// A step whose labels are out of range fails when it is computed.
// Writes the kernels with products of each plan in a file of TN_EXPLAIN, without their numbers;
// returns the number of plans that have any.
static int products_of_plans(char *text, char product[][800], int most)
{
    int n = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *at = strstr(line, "matmul");
        if (!strncmp(line, "plan ", 5) && (!n || *product[n - 1]) && n < most) *product[n++] = 0;
        if (n && at && strlen(product[n - 1]) + strlen(at) < 790)
            strcat(strcat(product[n - 1], at), "\n");
    }
    return n;
}

// The step that makes the copies computes all else by the kernels of a step that finds them: if a
// kernel that adds a bias cast it too, a library could not add it, and would round once more.
static void making_copies_changes_no_kernel(void)
{
    char   product[4][800];
    size_t bytes;
    if (!CHECK(scratch_open())) return;
    setenv("TN_EXPLAIN", scratch_path("plans"), 1);
    tn_ctx *cx = rules_open("cpu");
    train(cx, open_net(cx), TN_BF16, 3);
    tn_close(cx);
    unsetenv("TN_EXPLAIN");
    char *text = scratch_read(scratch_path("plans"), &bytes);
    int   n    = text ? products_of_plans(text, product, 4) : 0;
    if (CHECK(n >= 2)) {
        CHECK(strstr(product[0], "matmul + ") != NULL);
        for (int i = 1; i < n; i++) CHECK_STR(product[i], product[0]);
    }
    free(text);
    scratch_close();
}

static void a_failed_step_leaves_weights_and_copies_together(void)
{
    tn_ctx *cx = rules_open("cpu");
    trained t  = open_net(cx);
    train(cx, t, TN_BF16, 3);
    tn_scope *s = tn_begin(cx);
    tn_autocast(cx, TN_BF16);
    tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(2, 8));
    double     before[8], after[8];
    CHECK_STATUS(tn_read(tn_forward(t.net, x), TN_F64, before, 8), TN_OK);
    tn_tensor *bad  = tn_full(cx, TN_I64, TN_SHAPE(2), 9);
    tn_tensor *loss = tn_cross_entropy(tn_forward(t.net, x), bad);
    bool       ok   = tn_step(t.opt, loss) == TN_OK && tn_sync(cx) == TN_OK;
    CHECK(!ok && tn_error(cx));
    tn_error_clear(cx);
    tn_end(s);
    s = tn_begin(cx);
    tn_autocast(cx, TN_BF16);
    x = tn_ones(cx, TN_F32, TN_SHAPE(2, 8));
    CHECK_STATUS(tn_read(tn_forward(t.net, x), TN_F64, after, 8), TN_OK);
    CHECK(!memcmp(before, after, sizeof before));
    tn_end(s);
    train(cx, t, TN_BF16, 2);
    CHECK_INT(count_copies(&t, TN_BF16), 4);
    tn_close(cx);
}

static void training_in_16_bits_reaches_the_loss_of_f32(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        double loss[3];
        for (int m = 0; m < 3; m++)
            loss[m] = train(cx, open_net(cx), m < 2 ? modes[m] : TN_F32, 60);
        CHECK(loss[2] < 0.7);
        CHECK_NEAR(loss[0], loss[2], 0.03 * loss[2]);
        CHECK_NEAR(loss[1], loss[2], 0.02 * loss[2]);
    }
}

// The logits are summed, exponentiated and read by an index, here in one kernel and there from
// memory: as one value.
static void the_loss_of_a_sure_prediction_is_not_negative(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_scope *s = tn_begin(cx);
        tn_autocast(cx, TN_BF16);
        tn_tensor *x = tn_randn(cx, TN_F32, TN_SHAPE(32, 64));
        tn_tensor *w = tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(10, 64)), 6);
        tn_tensor *y = tn_linear(x, w, tn_randn(cx, TN_F32, TN_SHAPE(10)));
        tn_tensor *l = tn_cross_entropy_with(y, tn_argmax(y, 1),
                                             (tn_class_opts){ .reduce = TN_REDUCTION_NONE });
        CHECK(tn_item(tn_min_all(l)) >= 0);
        tn_end(s);
    }
}

// clang-format off
const test_case tests_autocast[] = {
    TEST(the_mode_is_scoped_like_that_of_gradients),
    TEST(every_op_has_the_dtype_of_pytorchs_lists),
    TEST(operands_of_two_dtypes_meet_as_in_pytorch),
    TEST(gradients_are_those_of_casts_by_hand),
    TEST(views_of_a_weight_have_their_gradients),
    TEST(a_copy_serves_every_gradient_mode),
    TEST(a_write_to_a_weight_makes_its_copy_again),
    TEST(only_weights_have_copies),
    TEST(products_of_one_value_share_its_cast),
    TEST(updates_write_the_copies),
    TEST(a_steady_step_casts_no_weight),
    TEST(making_copies_changes_no_kernel),
    TEST(a_failed_step_leaves_weights_and_copies_together),
    TEST(training_in_16_bits_reaches_the_loss_of_f32),
    TEST(the_loss_of_a_sure_prediction_is_not_negative),
    TEST_END
};
// clang-format on
