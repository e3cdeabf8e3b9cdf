// old_spellings.cpp: every spelling of tenon/old.h beside the new one, in what C and C++ share.
// test_spellings.c compiles it as both, with the call forms and with TN_PLAIN, and runs it.
#include <stdio.h>
#include <string.h>
#include <tenon.h>

enum { MOST = 64 };

#ifdef __cplusplus
#define ZEROS(type) type()
#else
#define ZEROS(type) \
    (type)          \
    {               \
        0           \
    }
#endif

static int failed;

static void is_true(int ok, const char *what, int line)
{
    if (ok) return;
    printf("line %d: not so: %s\n", line, what);
    failed = 1;
}

#define CHECK(c) is_true((c) ? 1 : 0, #c, __LINE__)

// Whether two tensors have the same shape and elements.
static int same(tn_tensor *a, tn_tensor *b)
{
    double x[MOST], y[MOST];
    if (!a || !b || tn_rank(a) != tn_rank(b) || tn_count(a) > MOST) return 0;
    for (int i = 0; i < tn_rank(a); i++)
        if (tn_size(a, i) != tn_size(b, i)) return 0;
    int64_t n = tn_count(a);
    return tn_read(a, TN_F64, x, n) == TN_OK && tn_read(b, TN_F64, y, n) == TN_OK &&
           !memcmp(x, y, (size_t)n * sizeof *x);
}

static tn_tensor *image(tn_ctx *cx)
{
    return tn_reshape(tn_arange(cx, TN_F32, 0, 32, 1), TN_SHAPE(1, 2, 4, 4));
}

// ---- ops and layers ----------------------------------------------------------------------------

static void ops(tn_ctx *cx)
{
    int64_t    at[2]  = { 1, 0 };
    tn_tensor *weight = tn_reshape(tn_arange(cx, TN_F32, 0, 6, 1), TN_SHAPE(2, 3));
    tn_tensor *index  = tn_from(cx, TN_I64, TN_SHAPE(2), at);
    CHECK(same(tn_embedding(weight, index), tn_embed(index, weight)));
    CHECK(same(tn_window_with(weight, 1, 2, 1, 2), tn_window_dilated(weight, 1, 2, 1, 2)));

    tn_tensor *(*embed)(tn_tensor *, tn_tensor *)                     = tn_embedding;
    tn_tensor *(*window)(tn_tensor *, int, int64_t, int64_t, int64_t) = tn_window_with;
    CHECK(same(embed(weight, index), tn_embed(index, weight)));
    CHECK(same(window(weight, 1, 2, 1, 2), tn_window_dilated(weight, 1, 2, 1, 2)));
}

static void losses(tn_ctx *cx)
{
    tn_reduce    old[] = { TN_MEAN, TN_SUM, TN_NONE };
    tn_reduction now[] = { TN_REDUCTION_MEAN, TN_REDUCTION_SUM, TN_REDUCTION_NONE };
    tn_tensor   *x = tn_arange(cx, TN_F32, 0, 4, 1), *y = tn_ones_like(x);
    tn_loss_opts old_opts = ZEROS(tn_loss_opts), opts = ZEROS(tn_loss_opts);
    for (int i = 0; i < 3; i++) {
        old_opts.reduce = old[i];
        opts.reduce     = now[i];
        CHECK(old[i] == now[i]);
        CHECK(same(tn_mse_with(x, y, old_opts), tn_mse_with(x, y, opts)));
    }
}

// Both layers draw the same initial weights.
#define SAME_LAYER(x, old, now)                                       \
    do {                                                              \
        tn_seed(cx, 7);                                               \
        tn_layer *before = old;                                       \
        tn_seed(cx, 7);                                               \
        tn_layer *after = now;                                        \
        CHECK(same(tn_forward(before, (x)), tn_forward(after, (x)))); \
    } while (0)

static void layers(tn_ctx *cx)
{
    tn_nn_conv_opts        conv = ZEROS(tn_nn_conv_opts);
    tn_pool_opts           pool = ZEROS(tn_pool_opts);
    tn_nn_norm_opts        norm = ZEROS(tn_nn_norm_opts);
    tn_nn_standardize_opts std  = ZEROS(tn_nn_standardize_opts);
    tn_tensor             *x    = image(cx);
    conv.padding[0]             = 1;
    SAME_LAYER(x, tn_nn_conv2d_with(cx, 2, 2, 3, 1, conv), tn_nn_conv2d_hw(cx, 2, 2, 3, 1, conv));
    SAME_LAYER(x, tn_nn_max_pool2d_with(cx, 2, 1, pool), tn_nn_max_pool2d_hw(cx, 2, 1, pool));
    SAME_LAYER(x, tn_nn_avg_pool2d_with(cx, 2, 1, pool), tn_nn_avg_pool2d_hw(cx, 2, 1, pool));
    SAME_LAYER(x, tn_nn_layer_norm_with(cx, TN_SHAPE(4, 4), norm),
               tn_nn_layer_norm_nd(cx, TN_SHAPE(4, 4), norm));
    SAME_LAYER(x, tn_nn_rms_norm_with(cx, TN_SHAPE(4, 4), norm),
               tn_nn_rms_norm_nd(cx, TN_SHAPE(4, 4), norm));
    SAME_LAYER(x, tn_nn_standardize_with(cx, TN_SHAPE(2, 1, 1), tn_nn_flatten(cx), std),
               tn_nn_standardize_nd(cx, TN_SHAPE(2, 1, 1), tn_nn_flatten(cx), std));
    tn_layer *(*make)(tn_ctx *, int64_t, int64_t, int64_t, int64_t,
                      tn_nn_conv_opts) = tn_nn_conv2d_with;
    SAME_LAYER(x, make(cx, 2, 2, 3, 1, conv), tn_nn_conv2d_hw(cx, 2, 2, 3, 1, conv));
}

static void tokenizers(tn_ctx *cx)
{
    tn_bpe *(*open)(tn_ctx *, const char *, const char *) = tn_bpe_open;
    tn_text_opts  text                                   = ZEROS(tn_text_opts);
    tn_tokenizer *t                                      = open(cx, "none", "none");
    CHECK(!t && tn_bpe_count(t) == tn_tokenizer_count(t));
    CHECK(tn_bpe_encode(t, "", 0, NULL, 0) == -1 && tn_bpe_decode(t, NULL, 0, NULL, 0) == -1);
    text.bpe = t;
    CHECK(!tn_text(cx, "none", text));
    tn_bpe_free(t);
    tn_error_clear(cx);
    tn_error_clear(NULL);
}

// ---- training and getters ----------------------------------------------------------------------

// The weights after an update of a network whose bias learns at a tenth of the rate.
static tn_tensor *trained(tn_ctx *cx, int how)
{
    tn_status (*group)(tn_optim *, const char *, float, float) = tn_optim_group;
    tn_adamw_opts o                                            = ZEROS(tn_adamw_opts);
    tn_seed(cx, 3);
    tn_layer *net = tn_nn_linear(cx, 2, 2);
    o.lr          = 0.1f;  // as 0.1 below
    if (how) o.lr = 0.1;
    tn_optim *opt = tn_adamw(net, o);
    if (how == 0) CHECK(tn_optim_group(opt, "*bias", 0.1f, 0.01f) == TN_OK);
    if (how == 1) CHECK(group(opt, "*bias", 0.1f, 0.01f) == TN_OK);
    if (how == 2) CHECK(tn_optim_add_group(opt, "*bias", 0.1, 0.01) == TN_OK);
    CHECK(tn_step(opt, tn_sum_all(tn_forward(net, tn_ones(cx, TN_F32, TN_SHAPE(3, 2))))) == TN_OK);
    return tn_layer_find(net, "bias");
}

static void optimizers(tn_ctx *cx)
{
    tn_tensor *now = trained(cx, 2);
    CHECK(same(trained(cx, 0), now));
    CHECK(same(trained(cx, 1), now));
}

static void getters(tn_ctx *cx)
{
    tn_digits_opts o                   = ZEROS(tn_digits_opts);
    tn_data       *digits              = tn_digits(cx, o);
    int (*count)(void)                 = tn_devices;
    tn_stats (*stats)(const tn_ctx *)  = tn_stats_get;
    tn_plan_memory (*memory)(tn_ctx *) = tn_plan_bytes;
    tn_stats       a = tn_stats_get(cx), b = tn_ctx_stats(cx), c = stats(cx);
    tn_plan_memory p = tn_plan_bytes(cx), q = tn_ctx_plan_memory(cx), r = memory(cx);
    CHECK(tn_devices() == tn_device_count() && count() == tn_device_count());
    CHECK(!memcmp(&a, &b, sizeof a) && !memcmp(&a, &c, sizeof a));
    CHECK(!memcmp(&p, &q, sizeof p) && !memcmp(&p, &r, sizeof p));
    CHECK(tn_data_class(digits, 3) == tn_data_class_name(digits, 3));
}

// ---- errors ------------------------------------------------------------------------------------

static int told;

static void remember(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx;
    (void)user;
    told = f->line;
}

// An old spelling names the line of its call, as the new one does; with TN_PLAIN neither has one.
static void lines(tn_ctx *cx)
{
    tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(2, 2));
    tn_on_error(cx, remember, NULL);
    int here = __LINE__ + 1;
    CHECK(tn_embedding(x, x) == NULL);
#ifdef TN_PLAIN
    here = 0;
#endif
    CHECK(told == here);
    tn_error_clear(cx);
    tn_on_error(cx, NULL, NULL);
}

int main(void)
{
    tn_ctx *cx = tn_open("cpu");
    if (!cx) return 3;
    ops(cx);
    losses(cx);
    layers(cx);
    tokenizers(cx);
    optimizers(cx);
    getters(cx);
    lines(cx);
    CHECK(tn_error(cx) == TN_OK);
    tn_close(cx);
    if (!failed) printf("all of them\n");
    return failed;
}
