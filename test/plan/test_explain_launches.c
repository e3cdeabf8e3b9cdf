// test_explain_launches.c: what tn_explain lists is what the next tn_eval gives to the device, step
// by step and by name. The device is watched from outside: every function of it that runs a kernel
// or a call is one of this file, which writes down what was asked for and passes it on; or, where
// it is mute, does not, so that nothing is compiled.
#include "check.h"
#include "rules_kit.h"
#include "skeleton.h"

#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/models.h>

enum { MOST = 4096, NAME = 48 };

// ---- a device that is watched ------------------------------------------------------------------

// What was run since it was emptied, in order, as explain names it.
static struct {
    const tni_device  *real;
    tni_device         device;
    tni_device_calls   calls;
    tni_device_kernels kernels;
    bool               mute;
    int                count;
    char               ran[MOST][NAME];
} watched;

static void note(const char *op, const tni_launch *l)
{
    if (watched.count < MOST)
        snprintf(watched.ran[watched.count], NAME, "%s%s%s", op ? op : "", op && l ? " + " : "",
                 l ? tni_kernel_kind(l->kernel) : "");
    watched.count++;
}

static tn_status watch_call(const tni_call *call)
{
    tni_call c = *call;
    c.device   = watched.real;
    if (!c.compile_only) note(tni_op_table[c.op].name, NULL);
    return watched.mute ? TN_OK : tni_call_run(&c);
}

static tn_status watch_epilogue(const tni_call *call, void *entry, tni_launch *l, tni_text *why)
{
    tni_call c = *call;
    c.device   = watched.real;
    note(tni_op_table[c.op].name, l);
    return watched.real->calls->run_with_epilogue(&c, entry, l, why);
}

static tn_status watch_launch(void *session, void *entry, tni_launch *l, tni_text *why)
{
    note(NULL, l);
    return watched.mute ? TN_OK : watched.real->kernels->launch(session, entry, l, why);
}

static tn_status mute_prepare(void *session, int n, const tni_launch *const *first, void **entry,
                              bool wait, tni_text *why)
{
    (void)session, (void)first, (void)wait, (void)why;
    for (int i = 0; i < n; i++) entry[i] = NULL;
    return TN_OK;
}

static void watch_impls(tni_op_impl *impl, int n)
{
    for (int i = 0; i < n; i++) {
        if (!impl[i].run_nofail && !impl[i].run) continue;
        impl[i].run_nofail = NULL;
        impl[i].run        = watch_call;
    }
}

static tn_ctx *open_watched(const char *name, bool eager)
{
    setenv("TN_EAGER", eager ? "1" : "0", 1);
    tn_ctx *cx = skeleton_open((tn_open_opts){ .device = name, .threads = 2, .seed = 5 });
    unsetenv("TN_EAGER");
    if (!cx) return NULL;
    tn_on_error(cx, NULL, NULL);
    watched.real   = cx->engine->device;
    watched.device = *watched.real;
    watched.calls  = *watched.real->calls;
    watch_impls(watched.calls.of_op, TNI_OPS);
    watch_impls(watched.calls.of_class, TNI_CLASSES);
    if (watched.calls.run_with_epilogue) watched.calls.run_with_epilogue = watch_epilogue;
    if (watched.real->kernels) {
        watched.kernels        = *watched.real->kernels;
        watched.kernels.launch = watch_launch;
        watched.device.kernels = &watched.kernels;
        if (watched.mute) watched.kernels.prepare = mute_prepare, watched.kernels.scratch = NULL;
    }
    watched.device.calls = &watched.calls;
    tni_engine_use(cx, &watched.device);
    return cx;
}

// ---- graphs ------------------------------------------------------------------------------------

// B batch, T time, C features
enum { B = 4, T = 6, C = 12 };

// What a graph is made of: it is opened once and recorded for every step.
typedef struct {
    tn_ctx    *cx;
    tn_layer  *net;
    tn_optim  *opt;
    tn_tensor *x, *y, *w;
} kit;

static void open_rows(kit *k)
{
    k->x = rules_there(k->cx, TN_SHAPE(B, T, C));
    k->y = rules_there(k->cx, TN_SHAPE(B, T, C));
    k->w = tn_requires_grad(rules_there(k->cx, TN_SHAPE(C, C)), true);
}

static void open_mlp(kit *k)
{
    k->net = tn_mlp(k->cx, TN_SHAPE(C, 16, 10));
    k->opt = tn_adamw(k->net, (tn_adamw_opts){ .lr = 1e-3f });
    k->x   = rules_there(k->cx, TN_SHAPE(B, C));
    k->y   = tn_from(k->cx, TN_I64, TN_SHAPE(B), (int64_t[]){ 1, 5, 0, 9 });
}

static void open_lenet(kit *k)
{
    k->net = tn_lenet(k->cx);
    k->opt = tn_sgd(k->net, (tn_sgd_opts){ .lr = 0.01f, .momentum = 0.9f });
    k->x   = rules_there(k->cx, TN_SHAPE(B, 1, 28, 28));
    k->y   = tn_from(k->cx, TN_I64, TN_SHAPE(B), (int64_t[]){ 1, 5, 0, 9 });
}

static void open_gpt2(kit *k)
{
    static const int64_t tokens[2][T] = { { 1, 2, 3, 4, 5, 6 }, { 9, 8, 7, 6, 5, 4 } };
    k->net                            = tn_gpt2(
                                   k->cx,
                                   (tn_gpt2_opts){
                                       .layers = 1, .heads = 2, .width = 8, .vocab = 20, .context = 8, .dropout = 0.1 });
    k->opt = tn_adamw(k->net, (tn_adamw_opts){ .lr = 1e-3f });
    k->x   = tn_from(k->cx, TN_I64, TN_SHAPE(2, T), tokens);
    k->y   = k->x;
}

static void train(kit *k)
{
    tn_tensor *y = tn_forward(k->net, k->x);
    if (tn_rank(y) == 3) y = tn_reshape(y, TN_SHAPE(-1, tn_size(y, 2)));
    tn_backward(tn_cross_entropy(y, tn_flatten(k->y, 0, -1)), NULL);
    tn_optim_clip_norm(k->opt, 1);
    tn_optim_step(k->opt);
    tn_optim_zero_grad(k->opt);
}

static void softmax_chain(kit *k)
{
    tn_tensor *y = tn_softmax(tn_matmul(tn_gelu(k->x), k->w), -1);
    tn_backward(tn_mean_all(tn_mul(tn_log_softmax(y, 1), k->y)), NULL);
}

static void sorted(kit *k)
{
    tn_pair s = tn_sort(tn_mul(k->x, k->y), 1, TN_DESCENDING);
    tn_want(tn_add(s.values, tn_cast(s.indices, TN_F32)));
    tn_argsort(k->x, 2, TN_ASCENDING);
}

static void attended(kit *k)
{
    tn_tensor *q = tn_unsqueeze(tn_matmul(k->x, k->w), 1), *v = tn_unsqueeze(k->y, 1);
    tn_tensor *y = tn_attention(q, tn_mul_s(q, 0.5), v, (tn_attention_opts){ .causal = true });
    tn_backward(tn_sum_all(tn_square(y)), NULL);
}

static void scattered(kit *k)
{
    tn_tensor *i = tn_remainder(tn_arange(k->cx, TN_I64, 0, B * T * C, 1),
                                tn_full(k->cx, TN_I64, TN_0D, C));
    i            = tn_reshape(i, TN_SHAPE(B, T, C));
    tn_gather(tn_scatter_add(tn_neg(k->x), 2, i, tn_exp(k->y)), 2, i);
    tn_scatter(k->x, 1, tn_remainder(i, tn_full(k->cx, TN_I64, TN_0D, T)), k->y);
}

static tn_status two_shapes(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = in[0];
    out[1] = (tn_array){ .dtype = TN_I64, .rank = 1, .size = { 3 } };
    return TN_OK;
}

static tn_status zeros_of_both(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr, (void)in;
    memset(out[0].data, 0, sizeof(float) * B * T * C);
    memset(out[1].data, 0, 3 * sizeof(int64_t));
    return TN_OK;
}

static void custom(kit *k)
{
    static const tn_op_def twice = { .name = "twice", .nin = 1, .expr = "2 * a" };
    static const tn_op_def both  = {
         .name = "both", .nin = 1, .nout = 2, .shape = two_shapes, .compute = zeros_of_both
    };
    tn_tensor *x = tn_exp(k->x), *y[2] = { NULL };
    if (!tni_lacks(k->cx, TNI_custom)) tn_custom_n(&both, &x, NULL, 0, y);
    tn_tensor *z = y[0] ? y[0] : x;
    tn_custom(&twice, &z, NULL, 0);
}

static void convolved(kit *k)
{
    tn_tensor *x = tn_reshape(tn_neg(k->x), TN_SHAPE(2, 3, 6, 8));
    tn_tensor *w = tn_reshape(tn_slice(tn_flatten(k->w, 0, 1), 0, 0, 108, 1), TN_SHAPE(4, 3, 3, 3));
    tn_tensor *y = tn_conv2d(x, w, NULL, (tn_conv_opts){ .padding = { 1, 1 } });
    tn_backward(tn_sum_all(tn_max_pool2d(tn_relu(y), 2, 2, (tn_pool_opts){ 0 })), NULL);
}

static void empty(kit *k)
{
    tn_tensor *none = tn_slice(k->x, 0, 2, 2, 1);
    tn_exp(none);
    tn_sum(tn_exp(none), 1);
    tn_sum(none, 0);
    tn_sort(none, 1, TN_ASCENDING);
    tn_matmul(none, tn_transpose(none, 1, 2));
    tn_assign(tn_slice(tn_clone(k->x), 0, 1, 1, 1), none);
    tn_concat(2, (tn_tensor *[]){ none, k->y }, 0);
}

static void only_views(kit *k)
{
    tn_want(tn_transpose(tn_slice(k->x, 1, 1, 4, 1), 0, 2));
    tn_flip(tn_reshape(k->x, TN_SHAPE(-1)), 0);
    tn_expand(k->w, TN_SHAPE(3, C, C));
}

static void written(kit *k)
{
    tn_tensor *all = tn_clone(k->x), *old = tn_exp(k->y), *kept = tn_add_s(old, 1);
    tn_assign(tn_select(all, 0, 1), tn_select(k->y, 0, 2));
    tn_add_(tn_slice(old, 2, 1, C, 2), tn_slice(k->x, 2, 0, C - 1, 2));
    tn_assign(k->y, tn_mul(kept, all));
    tn_mul_(tn_slice(k->x, 1, 0, 3, 1), tn_scalar(k->cx, 0.5));
}

static void counted(kit *k)
{
    tn_cumsum(tn_cumprod(k->x, 1), 2);
    tn_argmax(k->x, 1);
    tn_add(tn_argmin_all(k->y), tn_sum_all(tn_cast(tn_gt(k->x, k->y), TN_I64)));
    tn_tril(tn_matmul(tn_cast(k->w, TN_I32), tn_ones(k->cx, TN_I32, TN_SHAPE(C, C))), 0);
}

static void drawn(kit *k)
{
    tn_dropout(tn_add(k->x, tn_randn(k->cx, TN_F32, TN_SHAPE(B, T, C))), 0.3, true);
    tn_pad(tn_concat(2, (tn_tensor *[]){ k->x, tn_rand_like(k->y) }, 2), (int64_t[]){ 1, 0, 2 },
           (int64_t[]){ 0, 1, 0 }, 3);
    tn_randperm(k->cx, 17);
    tn_full(k->cx, TN_F32, TN_SHAPE(3), 2);
}

static const struct graph {
    const char *name;
    void (*open)(kit *k);
    void (*record)(kit *k);
} graphs[] = {
    { "mlp step", open_mlp, train },
    { "lenet step", open_lenet, train },
    { "gpt2 step", open_gpt2, train },
    { "softmax chain", open_rows, softmax_chain },
    { "sort", open_rows, sorted },
    { "attention", open_rows, attended },
    { "scatter", open_rows, scattered },
    { "custom", open_rows, custom },
    { "convolution", open_rows, convolved },
    { "empty", open_rows, empty },
    { "views", open_rows, only_views },
    { "writes", open_rows, written },
    { "scans and counts", open_rows, counted },
    { "random numbers", open_rows, drawn },
};
enum { GRAPHS = sizeof graphs / sizeof *graphs };

// ---- what is listed, and what runs -------------------------------------------------------------

static char listed[MOST][NAME];

// The names on the page of what is pending, in order: "   12  matmul + POINT  (64 | 10)  ...". How many the
// first line says there are; -1 if the lines are of another number.
static int list(tn_ctx *cx)
{
    char  *page = NULL, *next;
    size_t size = 0;
    FILE  *f    = open_memstream(&page, &size);
    int    said = -1, n = 0, number;
    if (!f) return -1;
    CHECK_STATUS(tn_explain(cx, f), TN_OK);
    fclose(f);
    if (sscanf(page, "%d kernel", &said) != 1) said = -1;
    for (char *line = strchr(page, '\n'); line; line = next) {
        next = strchr(++line, '\n');
        if (sscanf(line, "%d  %47[^(]", &number, listed[n % MOST]) != 2 || number != n + 1)
            continue;
        char *name = listed[n++ % MOST];
        for (size_t end = strlen(name); end && name[end - 1] == ' ';) name[--end] = '\0';
    }
    free(page);
    return n == said && n < MOST ? n : -1;
}

// Whether the step listed under a name is what was run from a place on, which goes on past it. A
// write to part of a tensor is a copy of the value, after one of the rest where it is not in place.
static bool is_run(const char *name, int *at)
{
    const char *want = name;
    if (!strcmp(name, "update") || !strcmp(name, "copy + update")) want = "copy";
    for (int copies = strcmp(name, "copy + update") ? 1 : 2; copies > 0; copies--) {
        if (*at >= watched.count || strcmp(watched.ran[*at], want)) return false;
        ++*at;
    }
    return true;
}

static void check_step(const struct graph *g, kit *k, const char *where, int round)
{
    tn_scope *s = tn_begin(k->cx);
    g->record(k);
    int     n = list(k->cx), at = 0, same = 0;
    int64_t before = tn_ctx_stats(k->cx).launches;
    watched.count  = 0;
    CHECK_STATUS(tn_eval(k->cx), TN_OK);
    int64_t launches = tn_ctx_stats(k->cx).launches - before;
    while (same < n && is_run(listed[same], &at)) same++;
    test_case_result(n >= 0 && launches == n, "%s on %s, step %d: %d listed, %lld launched",
                     g->name, where, round, n, (long long)launches);
    test_case_result(
        same == n && at == watched.count,
        "%s on %s, step %d: entry %d is listed as \"%s\" and run as \"%s\"; %d of %d ran", g->name,
        where, round, same + 1, same < n ? listed[same] : "",
        at < watched.count ? watched.ran[at] : "", at, watched.count);
    CHECK_STR(tn_error_text(k->cx), "");
    tn_end(s);
}

// Three steps each: the plan is new, is found, and runs compiled.
static void check_device(const char *name, bool eager)
{
    char where[64];
    snprintf(where, sizeof where, "%s%s", name, eager ? ", op by op" : "");
    for (int i = 0; i < GRAPHS; i++) {
        kit k = { .cx = open_watched(name, eager) };
        if (!CHECK(k.cx != NULL)) return;
        graphs[i].open(&k);
        tn_eval(k.cx);
        for (int round = 1; round <= 3; round++) check_step(&graphs[i], &k, where, round);
        tn_close(k.cx);
    }
}

static void what_is_listed_runs_on_cpu(void)
{
    check_device("cpu", false);
    check_device("cpu", true);
}

static void what_is_listed_runs_without_library_ops(void)
{
    check_device("skeleton", false);
}

static void what_is_listed_runs_without_kernels(void)
{
    check_device("ref", false);
}

static void what_is_listed_runs_on_opencl(void)
{
    tni_text why = { "" };
    if (!tni_device_opencl.probe(&why)) SKIP("%s", why.s);
    watched.mute = true;
    check_device("opencl", false);
    check_device("opencl", true);
    watched.mute = false;
}

const test_case tests_explain_launches[] = {
    TEST(what_is_listed_runs_on_cpu),
    TEST(what_is_listed_runs_without_library_ops),
    TEST(what_is_listed_runs_without_kernels),
    TEST(what_is_listed_runs_on_opencl),
    TEST_END,
};
