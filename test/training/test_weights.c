// test_weights.c: saving and loading the tensors of a network.
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

// Two linear layers with a batch norm between them: floats, and an integer without axes.
static tn_layer *network(tn_ctx *cx, int64_t inputs)
{
    return tn_nn_seq(cx, tn_nn_linear(cx, inputs, 4), tn_nn_batch_norm(cx, 4),
                     tn_nn_linear(cx, 4, 2));
}

static tn_tensor *identity(tn_layer *l, tn_tensor *x)
{
    (void)l;
    return x;
}

static tn_layer *pair(tn_ctx *cx, const char *a, float *va, const char *b, float *vb)
{
    tn_layer *l = tn_layer_new(cx, identity, NULL, NULL);
    tn_layer_param(l, a, tn_from(cx, TN_F32, TN_SHAPE(2), va));
    tn_layer_param(l, b, tn_from(cx, TN_F32, TN_SHAPE(2), vb));
    return l;
}

// A layer with parameters "a" 1 2 and "b" 3 4.
static tn_layer *small(tn_ctx *cx)
{
    return pair(cx, "a", (float[]){ 1, 2 }, "b", (float[]){ 3, 4 });
}

// A file of tensors of two f32, 1 2, 3 4, ..., under these names; NULL ends them.
static void write_names(tn_ctx *cx, const char *path, const char *const *names)
{
    tn_tensor *t[8];
    int        n = 0;
    for (; names[n]; n++)
        t[n] = tn_from(cx, TN_F32, TN_SHAPE(2),
                       (float[]){ (float)(2 * n + 1), (float)(2 * n + 2) });
    CHECK_STATUS(tn_file_write(cx, path, n, names, t, 0, NULL), TN_OK);
}
#define NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

// ---- there and back

static void compare_with(const char *name, tn_tensor *t, void *user)
{
    float      a[64], b[64];  // as a file has them; device ref has more
    tn_tensor *other = tn_layer_find(user, name);
    CHECK_INT(tn_dtype_of(other), tn_dtype_of(t));
    tn_read(t, TN_F32, a, tn_count(t));
    tn_read(other, TN_F32, b, tn_count(t));
    test_that(!memcmp(a, b, (size_t)tn_count(t) * sizeof *a), "%s differs", name);
}

static void what_is_saved_is_loaded(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *a = network(cx, 3), *b = network(cx, 3);
        for (int i = 0; i < 3; i++) tn_forward(a, tn_randn(cx, TN_F32, TN_SHAPE(5, 3)));
        CHECK_STATUS(tn_save(a, path), TN_OK);
        CHECK_STATUS(tn_load(b, path), TN_OK);
        CHECK_INT(tn_item_i64(tn_layer_find(b, "1.num_batches_tracked")), 3);
        CHECK_INT(tn_rank(tn_layer_find(b, "1.num_batches_tracked")), 0);
        tn_layer_each(a, compare_with, b);
        CHECK_STR(tn_error_text(cx), "");
    }
    CHECK_INT(scratch_count(), 1);
    scratch_close();
}

static void loading_keeps_leaves_gradients_and_scopes(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer  *l = small(cx);
        tn_tensor *a = tn_layer_find(l, "a"), *old = tn_mul_s(a, 1);
        CHECK_STATUS(tn_save(l, path), TN_OK);
        tn_backward(tn_sum_all(tn_mul_s(a, 5)), NULL);
        tn_tensor *g    = tn_grad_of(a);
        bool       mode = tn_grad_mode(cx, false);
        tn_fill_(a, 9);
        tn_grad_mode(cx, mode);
        tn_tensor *from_nine = tn_add_s(a, 1);  // recorded before, computed after
        tn_scope  *s         = tn_begin(cx);
        CHECK_STATUS(tn_load(l, path), TN_OK);
        CHECK_STATUS(tn_end(s), TN_OK);
        CHECK(tn_layer_find(l, "a") == a && tn_needs_grad(a) && tn_grad_of(a) == g);
        CHECK_VALUES(a, 1, 2);
        CHECK_VALUES(g, 5, 5);
        CHECK_VALUES(from_nine, 10, 10);
        CHECK_VALUES(old, 1, 2);
        CHECK(tn_grad_mode(cx, true));
        tn_backward(tn_sum_all(tn_mul(a, a)), NULL);
        CHECK_VALUES(g, 7, 9);
    }
    scratch_close();
}

static void loaded_values_do_not_need_the_file(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    tn_ctx     *cx   = rules_open("cpu");
    tn_layer   *l    = tn_nn_linear(cx, 100, 100);
    CHECK_STATUS(tn_save(l, path), TN_OK);
    double before = tn_item(tn_sum_all(tn_layer_find(l, "weight")));
    CHECK_STATUS(tn_load(l, path), TN_OK);
    CHECK(scratch_write(path, "", 0));  // a mapping of it would end the process now
    CHECK(tn_item(tn_sum_all(tn_layer_find(l, "weight"))) == before);
    tn_close(cx);
    scratch_close();
}

static void a_file_has_the_metadata_and_the_prefix(void)
{
    if (!CHECK(scratch_open())) return;
    const char  *path = scratch_path("net.safetensors");
    tn_ctx      *cx   = rules_open("cpu");
    tn_layer    *l    = small(cx);
    tn_save_opts o = { .prefix = "net.", .nmeta = 1, .meta = (const char *[]){ "model", "mlp" } };
    CHECK_STATUS(tn_save_with(l, path, o), TN_OK);
    tn_file *f = tn_file_open(cx, path);
    CHECK_INT(tn_file_count(f), 2);
    CHECK_STR(tn_file_name(f, 0), "net.a");
    CHECK_STR(tn_file_meta(f, "model"), "mlp");
    tn_file_free(f);
    CHECK_STATUS(tn_load(l, path), TN_EFORMAT);
    CHECK_FAILED2(cx, TN_EFORMAT, "2 missing (a, b)", "2 not expected (net.a, net.b)");
    CHECK_STATUS(tn_load_with(l, path, (tn_load_opts){ .prefix = "net." }), TN_OK);
    CHECK_STATUS(tn_load_with(l, path, (tn_load_opts){ .prefix = "net.", .add_prefix = "x." }),
                 TN_EFORMAT);
    CHECK_FAILED(cx, TN_EFORMAT, "2 not expected (net.a, net.b)");
    tn_close(cx);
    scratch_close();
}

// ---- rules

static void rule_22_loading_is_strict_both_ways(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *l = pair(cx, "a", (float[]){ 8, 8 }, "b", (float[]){ 9, 9 });
        write_names(cx, path, NAMES("a"));
        CHECK_STATUS(tn_load(l, path), TN_EFORMAT);
        CHECK_FAILED(cx, TN_EFORMAT, "1 missing (b)");
        write_names(cx, path, NAMES("a", "b", "c", "d", "e", "f"));
        CHECK_STATUS(tn_load(l, path), TN_EFORMAT);
        CHECK_FAILED(cx, TN_EFORMAT, "4 not expected (c, d, e, ...)");
        CHECK_VALUES(tn_layer_find(l, "a"), 8, 8);
        CHECK_STATUS(tn_load_with(l, path, (tn_load_opts){ .ignore = "c,d,[e-f]" }), TN_EFORMAT);
        CHECK_FAILED(cx, TN_EFORMAT, "2 not expected (e, f)");
        CHECK_STATUS(tn_load_with(l, path, (tn_load_opts){ .ignore = "c,d,e*,f" }), TN_OK);
        CHECK_VALUES(tn_layer_find(l, "b"), 3, 4);
        write_names(cx, path, NAMES("b"));
        CHECK_STATUS(tn_load_with(l, path, (tn_load_opts){ .partial = true }), TN_OK);
        CHECK_VALUES(tn_layer_find(l, "b"), 1, 2);
        CHECK_VALUES(tn_layer_find(l, "a"), 1, 2);
    }
    scratch_close();
}

static void rule_22_a_shape_that_differs_is_named_and_nothing_changes(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *a = network(cx, 3), *b = network(cx, 5);
        CHECK_STATUS(tn_save(a, path), TN_OK);
        double before = tn_item(tn_sum_all(tn_layer_find(b, "2.weight")));
        CHECK_STATUS(tn_load(b, path), TN_ESHAPE);
        CHECK_FAILED2(cx, TN_ESHAPE, "0.weight is (4, 3) in the file, but (4, 5) here", path);
        CHECK(tn_item(tn_sum_all(tn_layer_find(b, "2.weight"))) == before);
    }
    scratch_close();
}

static void rule_22_loading_casts(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *t[] = { tn_from(cx, TN_F64, TN_SHAPE(2), (double[]){ 0.5, 1e300 }),
                           tn_from(cx, TN_I32, TN_SHAPE(2), (int32_t[]){ -7, 1 << 20 }) };
        CHECK_STATUS(tn_file_write(cx, path, 2, NAMES("a", "b"), t, 0, NULL), TN_OK);
        tn_layer *l = small(cx);
        CHECK_STATUS(tn_load(l, path), TN_OK);
        CHECK_INT(tn_dtype_of(tn_layer_find(l, "a")), TN_F32);
        CHECK_VALUES(tn_layer_find(l, "a"), 0.5, 1 / 0.0);
        CHECK_VALUES(tn_layer_find(l, "b"), -7, 1 << 20);
    }
    scratch_close();
}

// A layer whose "b" is its "a" under another name, in a child.
static tn_layer *tied(tn_ctx *cx)
{
    tn_layer *l = small(cx), *c = tn_layer_new(cx, identity, NULL, NULL);
    tn_layer_param(c, "weight", tn_layer_find(l, "a"));
    tn_layer_child(l, "head", c);
    return l;
}

static void rule_14_files_keep_the_first_name_of_a_tied_tensor(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *l = tied(cx);
        CHECK_STATUS(tn_save(l, path), TN_OK);
        tn_file *f = tn_file_open(cx, path);
        CHECK_INT(tn_file_count(f), 2);
        CHECK_STR(tn_file_name(f, 0), "a");
        tn_file_free(f);
        CHECK_STATUS(tn_load(l, path), TN_OK);
        write_names(cx, path, NAMES("b", "head.weight", "a"));
        CHECK_STATUS(tn_load(l, path), TN_OK);
        CHECK_VALUES(tn_layer_find(l, "head.weight"), 5, 6);
        write_names(cx, path, NAMES("b", "head.weight"));
        CHECK_STATUS(tn_load(l, path), TN_OK);
        CHECK_VALUES(tn_layer_find(l, "a"), 3, 4);
    }
    scratch_close();
}

// ---- files that do not fit as they are

// Saves all tensors of a network but those called by the name.
static void save_without(tn_layer *l, const char *path, const char *name)
{
    tn_ctx     *cx = tn_layer_ctx(l);
    const char *names[16];
    tn_tensor  *t[16];
    int         n = 0;
    CHECK_STATUS(tn_save(l, path), TN_OK);
    tn_file *f = tn_file_open(cx, path);
    for (int i = 0; i < tn_file_count(f); i++) {
        if (!strcmp(tn_file_name(f, i), name)) continue;
        names[n] = tn_file_name(f, i);
        t[n]     = tn_clone(tn_file_tensor(f, names[n]));
        CHECK_STATUS(tn_eval_of(t[n++]), TN_OK);
    }
    CHECK_INT(n, tn_file_count(f) - 1);
    CHECK_STATUS(tn_file_write(cx, path, n, names, t, 0, NULL), TN_OK);
    tn_file_free(f);
}

// As PyTorch has it: the count of batches is none of the weights.
static void a_file_may_lack_the_count_of_a_batch_norm(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_layer *a = network(cx, 3), *b = network(cx, 3);
        tn_forward(b, tn_randn(cx, TN_F32, TN_SHAPE(5, 3)));
        save_without(a, path, "1.num_batches_tracked");
        CHECK_STATUS(tn_load(b, path), TN_OK);
        CHECK_INT(tn_item_i64(tn_layer_find(b, "1.num_batches_tracked")), 1);
        CHECK(tn_item(tn_max_all(tn_abs(
                  tn_sub(tn_layer_find(a, "2.weight"), tn_layer_find(b, "2.weight"))))) < 1e-7);
        save_without(a, path, "1.running_mean");
        CHECK_STATUS(tn_load(b, path), TN_EFORMAT);
        CHECK_FAILED2(cx, TN_EFORMAT, "1 missing (1.running_mean)", ".partial");
    }
    scratch_close();
}

static void a_refusal_says_what_lets_it_pass(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    tn_ctx     *cx   = rules_open("cpu");
    tn_layer   *l    = small(cx);
    write_names(cx, path, NAMES("a"));
    CHECK_STATUS(tn_load(l, path), TN_EFORMAT);
    CHECK_FAILED2(cx, TN_EFORMAT, "1 missing (b); with .partial or .allow_missing of tn_load_with",
                  "stays as it is");
    write_names(cx, path, NAMES("a", "b", "c"));
    CHECK_STATUS(tn_load(l, path), TN_EFORMAT);
    CHECK_FAILED2(cx, TN_EFORMAT, "1 not expected (c); .ignore or .allow_unknown", "passes over");
    tn_close(cx);
    scratch_close();
}

// A layer with parameters "a" 8 8 and, in a child of a child, "b.c.weight" 9 9.
static tn_layer *nested(tn_ctx *cx)
{
    tn_layer *l = tn_layer_new(cx, identity, NULL, NULL),
             *b = tn_layer_new(cx, identity, NULL, NULL);
    tn_layer *c = tn_layer_new(cx, identity, NULL, NULL);
    tn_layer_param(l, "a", tn_full(cx, TN_F32, TN_SHAPE(2), 8));
    tn_layer_param(c, "weight", tn_full(cx, TN_F32, TN_SHAPE(2), 9));
    tn_layer_child(b, "c", c);
    tn_layer_child(l, "b", b);
    return l;
}

static void names_may_be_missing_unknown_or_of_another_shape(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    tn_ctx     *cx   = rules_open("cpu");
    tn_layer   *l    = nested(cx);
    write_names(cx, path, NAMES("a"));
    CHECK_STATUS(tn_load_with(l, path, (tn_load_opts){ .allow_missing = "a" }), TN_EFORMAT);
    CHECK_FAILED(cx, TN_EFORMAT, "1 missing (b.c.weight)");
    CHECK_STATUS(tn_load_with(l, path, (tn_load_opts){ .allow_missing = "x,b.*" }), TN_OK);
    CHECK_VALUES(tn_layer_find(l, "a"), 1, 2);
    CHECK_VALUES(tn_layer_find(l, "b.c.weight"), 9, 9);
    // What the file has and the network too is loaded, whatever may be unknown.
    write_names(cx, path, NAMES("x", "a", "b.c.weight", "y.z"));
    CHECK_STATUS(tn_load_with(l, path, (tn_load_opts){ .allow_unknown = "x" }), TN_EFORMAT);
    CHECK_FAILED(cx, TN_EFORMAT, "1 not expected (y.z)");
    CHECK_STATUS(tn_load_with(l, path, (tn_load_opts){ .allow_unknown = "*" }), TN_OK);
    CHECK_VALUES(tn_layer_find(l, "a"), 3, 4);
    CHECK_VALUES(tn_layer_find(l, "b.c.weight"), 5, 6);
    tn_tensor *t[] = { tn_zeros(cx, TN_F32, TN_SHAPE(2)), tn_zeros(cx, TN_F32, TN_SHAPE(2, 1)) };
    CHECK_STATUS(tn_file_write(cx, path, 2, NAMES("a", "b.c.weight"), t, 0, NULL), TN_OK);
    CHECK_STATUS(tn_load_with(l, path, (tn_load_opts){ .allow_mismatch = "a" }), TN_ESHAPE);
    CHECK_FAILED(cx, TN_ESHAPE, "b.c.weight is (2, 1) in the file, but (2,) here");
    CHECK_STATUS(tn_load_with(l, path, (tn_load_opts){ .allow_mismatch = "*" }), TN_OK);
    CHECK_VALUES(tn_layer_find(l, "a"), 0, 0);
    CHECK_VALUES(tn_layer_find(l, "b.c.weight"), 5, 6);
    tn_close(cx);
    scratch_close();
}

// Loads a file of these names, which begin with "m.", by n pairs of a map.
static tn_status load_mapped(tn_layer *l, const char *path, const char *const *names, int n,
                             const char *const *map)
{
    write_names(tn_layer_ctx(l), path, names);
    return tn_load_with(l, path, (tn_load_opts){ .prefix = "m.", .nmap = n, .map = map });
}

static void names_of_a_file_are_mapped(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    tn_ctx     *cx   = rules_open("cpu");
    tn_layer   *l    = nested(cx);
    tn_tensor  *a = tn_layer_find(l, "a"), *b = tn_layer_find(l, "b.c.weight");
    CHECK_STATUS(load_mapped(l, path, NAMES("m.a", "m.c.layer.b.w"), 2,
                             NAMES("*.layer.*.w", "*.*.weight", "c.*", "no")),
                 TN_EFORMAT);
    CHECK_FAILED2(cx, TN_EFORMAT, "1 missing (b.c.weight)", "1 not expected (m.c.layer.b.w)");
    CHECK_STATUS(load_mapped(l, path, NAMES("m.a", "m.layer.b.c.w"), 2,
                             NAMES("layer.*.w", "*.weight", "layer.*", "no")),
                 TN_OK);
    CHECK_VALUES(b, 3, 4);
    CHECK_STATUS(load_mapped(l, path, NAMES("m.first", "m.b,c.w.w"), 2,
                             NAMES("first", "a", "?,*.w*", "b.*.weight*")),
                 TN_EFORMAT);
    CHECK_FAILED(cx, TN_EFORMAT, "1 missing (b.c.weight)");
    CHECK_STATUS(load_mapped(l, path, NAMES("m.first", "m.b,c.w"), 2,
                             NAMES("first", "a", "?,*.w*", "b.*.weight*")),
                 TN_OK);
    CHECK_VALUES(a, 1, 2);
    CHECK_VALUES(b, 3, 4);
    CHECK_STATUS(load_mapped(l, path, NAMES("m.b.c.weight", "m.one", "m.two"), 2,
                             NAMES("one", "a", "two", "a")),
                 TN_EFORMAT);
    CHECK_FAILED(cx, TN_EFORMAT, "m.one and m.two of the file are both a here");
    tn_close(cx);
    scratch_close();
}

static void a_map_that_cannot_be_is_an_error(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path   = scratch_path("net.safetensors");
    tn_ctx     *cx     = rules_open("cpu");
    tn_layer   *l      = small(cx);
    const char *half[] = { "a", NULL };
    CHECK_STATUS(load_mapped(l, path, NAMES("m.a", "m.b"), 1, half), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "load: pair 0 of the map has a NULL");
    CHECK_STATUS(load_mapped(l, path, NAMES("m.a", "m.b"), 1, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "load: the map has 1 pairs, but is NULL");
    CHECK_STATUS(load_mapped(l, path, NAMES("m.a", "m.b"), 1, NAMES("*.x", "*.*")), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "\"*.*\" of the map has more stars than \"*.x\"");
    CHECK_STATUS(load_mapped(l, path, NAMES("m.a", "m.b"), 1, NAMES("*********", "x")), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "has more than 8 stars");
    CHECK_VALUES(tn_layer_find(l, "a"), 1, 2);
    tn_close(cx);
    scratch_close();
}

// ---- what goes wrong

static void a_file_that_is_not_there_is_an_error(void)
{
    if (!CHECK(scratch_open())) return;
    tn_ctx   *cx = rules_open("cpu");
    tn_layer *l  = small(cx);
    CHECK_STATUS(tn_load(l, scratch_path("none")), TN_EIO);
    CHECK_FAILED(cx, TN_EIO, "none");
    CHECK_STATUS(tn_load(l, scratch_path("")), TN_EIO);
    CHECK_FAILED(cx, TN_EIO, "folder");
    CHECK_STATUS(tn_save(l, scratch_path("none/net")), TN_EIO);
    CHECK_FAILED(cx, TN_EIO, "none/net");
    CHECK_STATUS(tn_save(NULL, "net"), TN_EARG);
    CHECK_FAILED(NULL, TN_EARG, "save: the layer is NULL");
    CHECK_STATUS(tn_load(NULL, "net"), TN_EARG);
    CHECK_FAILED(NULL, TN_EARG, "load: the layer is NULL");
    tn_close(cx);
    scratch_close();
}

static void a_view_cannot_be_loaded_into(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    tn_ctx     *cx   = rules_open("cpu");
    tn_tensor  *t    = tn_slice(rules_ramp(cx, 4), 0, 0, 2, 1);
    tn_layer   *l    = tn_layer_of(cx, 1, (tn_tensor *[]){ tn_requires_grad(t, true) });
    write_names(cx, path, NAMES("0"));
    CHECK_STATUS(tn_save(l, scratch_path("view")), TN_OK);
    if (tn_load(l, path) == TN_OK) CHECK_VALUES(tn_layer_find(l, "0"), 1, 2);
    else CHECK_FAILED(cx, TN_EARG, "0 is a view of another tensor");
    tn_close(cx);
    scratch_close();
}

static void any_allocation_may_fail_while_saving_and_loading(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("net.safetensors");
    faulty      h    = { 0 };
    tn_ctx     *cx   = faulty_open("cpu", &h);
    tn_layer   *a = network(cx, 3), *b = network(cx, 3);
    int         failed = 0;
    double      want   = tn_item(tn_sum_all(tn_layer_find(a, "2.weight")));
    double      old    = tn_item(tn_sum_all(tn_layer_find(b, "2.weight")));
    CHECK_STATUS(tn_save(a, path), TN_OK);
    for (long n = 1;; n++) {
        h = (faulty){ .live = h.live, .countdown = n };
        if (tn_save(a, path) != TN_OK) CHECK_STATUS(tn_error(cx), TN_EMEM);
        tn_error_clear(cx);
        if (!h.failed) break;
    }
    for (long n = 1;; n++, failed++) {
        h           = (faulty){ .live = h.live, .countdown = n };
        tn_status s = tn_load(b, path);
        bool      f = h.failed > 0;
        h.countdown = 0;
        if (s != TN_OK) CHECK_STATUS(tn_error(cx), TN_EMEM);
        tn_error_clear(cx);
        double now = tn_item(tn_sum_all(tn_layer_find(b, "2.weight")));
        test_case_result(now == (s == TN_OK ? want : old), "allocation %ld", n);
        if (s == TN_OK) old = want;
        if (!f) break;
    }
    CHECK(failed > 20);
    tn_close(cx);
    CHECK_INT(faulty_left(&h), 0);
    CHECK_INT(scratch_count(), 1);
    scratch_close();
}

const test_case tests_weights[] = { TEST(what_is_saved_is_loaded),
                                    TEST(loading_keeps_leaves_gradients_and_scopes),
                                    TEST(loaded_values_do_not_need_the_file),
                                    TEST(a_file_has_the_metadata_and_the_prefix),
                                    TEST(rule_22_loading_is_strict_both_ways),
                                    TEST(rule_22_a_shape_that_differs_is_named_and_nothing_changes),
                                    TEST(rule_22_loading_casts),
                                    TEST(rule_14_files_keep_the_first_name_of_a_tied_tensor),
                                    TEST(a_file_may_lack_the_count_of_a_batch_norm),
                                    TEST(a_refusal_says_what_lets_it_pass),
                                    TEST(names_may_be_missing_unknown_or_of_another_shape),
                                    TEST(names_of_a_file_are_mapped),
                                    TEST(a_map_that_cannot_be_is_an_error),
                                    TEST(a_file_that_is_not_there_is_an_error),
                                    TEST(a_view_cannot_be_loaded_into),
                                    TEST(any_allocation_may_fail_while_saving_and_loading),
                                    TEST_END };
