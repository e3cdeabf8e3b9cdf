// test_flat.c: an optimizer's flat blocks: the first step has the plan of the second, whatever the
// rule, the dtype and the groups; and what happens to a parameter in between is taken in.
#include "check.h"
#include "rules_kit.h"
#include "scratch.h"

#include "optim/optim.h"
#include "tensor/tensor.h"

#include <tenon.h>
#include <tenon/models.h>

enum { SGD, MOMENTUM, ADAM, ADAMW, RULES };
enum { MLP, LENET, GPT2, NETS };
enum { PLAIN, GROUPED, FROZEN, FROZEN_LATER, WAYS };

typedef struct {
    tn_ctx   *cx;
    tn_layer *net;
    tn_optim *opt;
    int       kind;
    tn_dtype  dtype;
} training;

static tn_layer *new_net(tn_ctx *cx, int kind)
{
    if (kind == MLP) return tn_mlp(cx, TN_SHAPE(12, 8, 4));
    if (kind == LENET) return tn_lenet(cx);
    return tn_gpt2(
        cx,
        (tn_gpt2_opts){
            .layers = 2, .heads = 2, .width = 8, .vocab = 11, .context = 6, .dropout = TN_ZERO });
}

static tn_optim *new_optim(tn_layer *net, int rule, float clip)
{
    if (rule < ADAM)
        return tn_sgd(net, (tn_sgd_opts){ .lr        = 0.01f,
                                          .momentum  = rule == MOMENTUM ? 0.9f : 0,
                                          .clip_norm = clip });
    tn_adam_opts o = { .lr = 0.01f, .clip_norm = clip };
    return rule == ADAM ? tn_adam(net, o) : tn_adamw(net, o);
}

static void freeze_first(tn_layer *net)
{
    tn_tensor *w = tn_layer_find(net, "1.weight");
    tn_requires_grad(w ? w : tn_layer_find(net, "0.weight"), false);
}

// Where the networks train.
static const char *device = "cpu";

static training begin(int kind, int rule, float clip, tn_dtype dt, int way)
{
    training t = { .cx = rules_open(device), .kind = kind, .dtype = dt };
    t.net      = new_net(t.cx, kind);
    if (dt != TN_F32) CHECK_STATUS(tn_layer_cast(t.net, dt), TN_OK);
    if (way == FROZEN) freeze_first(t.net);
    t.opt = new_optim(t.net, rule, clip);
    if (way == GROUPED) CHECK_STATUS(tn_optim_add_group(t.opt, "*bias", 0.5f, 0.25f), TN_OK);
    if (way == FROZEN_LATER) freeze_first(t.net);
    return t;
}

static tn_tensor *loss_of(const training *t)
{
    tn_ctx    *cx = t->cx;
    tn_tensor *x, *y, *out;
    if (t->kind == GPT2) {
        x = tn_cast(tn_rand(cx, TN_F32, TN_SHAPE(3, 6)), TN_I32);
        y = tn_zeros(cx, TN_I32, TN_SHAPE(18));
    } else if (t->kind == LENET) {
        x = tn_cast(tn_rand(cx, TN_F32, TN_SHAPE(2, 1, 28, 28)), t->dtype);
        y = tn_zeros(cx, TN_I32, TN_SHAPE(2));
    } else {
        x = tn_cast(tn_rand(cx, TN_F32, TN_SHAPE(5, 12)), t->dtype);
        y = tn_zeros(cx, TN_I32, TN_SHAPE(5));
    }
    out = tn_forward(t->net, x);
    if (t->kind == GPT2) out = tn_reshape(out, TN_SHAPE(18, 11));
    return tn_cross_entropy(tn_cast(out, TN_F32), y);
}

// Plans that a step makes.
static int64_t step(training *t)
{
    int64_t   before = tn_ctx_stats(t->cx).plans;
    tn_scope *s      = tn_begin(t->cx);
    CHECK_STATUS(tn_step(t->opt, loss_of(t)), TN_OK);
    tn_end(s);
    return tn_ctx_stats(t->cx).plans - before;
}

static const char *place_of(const tn_tensor *t)
{
    const tni_node *n = t->store->node;
    return n->buf ? n->buf->data + n->start * (int64_t)tni_dtype_size((tn_dtype)n->dtype) : NULL;
}

// Whether every parameter lies where its block has it.
static bool lies_flat(const tn_optim *o)
{
    bool flat = true;
    for (size_t i = 0; i < o->slots; i++) {
        const tni_trained *s    = &o->slot[i];
        const tn_tensor   *head = o->order[o->flat[s->flat].first]->p;
        size_t             size = tni_dtype_size(tn_dtype_of(s->p));
        flat &= place_of(s->p) == place_of(head) + s->at * (int64_t)size;
        flat &= s->p->store->node->buf == head->store->node->buf;
    }
    return flat;
}

// ---- plans -------------------------------------------------------------------------------------

static void check_plans(int kind, int rule, float clip, tn_dtype dt, int way)
{
    training    t    = begin(kind, rule, clip, dt, way);
    const char *home = place_of(t.opt->slot[0].p);
    CHECK(lies_flat(t.opt));
    int64_t first = step(&t), second = step(&t);
    bool    same = first > 0 && second == 0 && home == place_of(t.opt->slot[0].p);
    test_that(same && lies_flat(t.opt),
              "net %d, rule %d, clip %g, %s, way %d: %lld plans, then %lld; %s", kind, rule,
              (double)clip, tn_dtype_name(dt), way, (long long)first, (long long)second,
              home == place_of(t.opt->slot[0].p) ? "in place" : "moved");
    tn_close(t.cx);
}

static void the_first_step_has_the_plan_of_the_second(void)
{
    for (int rule = 0; rule < RULES; rule++)
        for (int clip = 0; clip < 2; clip++)
            for (int way = PLAIN; way <= FROZEN; way++) {
                check_plans(MLP, rule, (float)clip, TN_F32, way);
                check_plans(MLP, rule, (float)clip, TN_BF16, way);
                check_plans(MLP, rule, (float)clip, TN_F16, way);
            }
}

static void so_it_has_in_a_convolutional_network(void)
{
    for (int rule = 0; rule < RULES; rule++) {
        check_plans(LENET, rule, 0, TN_F32, PLAIN);
        check_plans(LENET, rule, 1, TN_F32, GROUPED);
        check_plans(LENET, rule, 1, TN_BF16, FROZEN);
    }
}

static void so_it_has_in_a_transformer(void)
{
    for (int rule = 0; rule < RULES; rule++) {
        check_plans(GPT2, rule, 0, TN_F32, PLAIN);
        check_plans(GPT2, rule, 1, TN_F32, GROUPED);
        check_plans(GPT2, rule, 1, TN_BF16, PLAIN);
    }
}

static void check_plans_on(const char *name)
{
    tn_ctx *cx = tn_open(name);
    if (!cx) {
        test_skip("%s", tn_error_text(NULL));
        return;
    }
    tn_close(cx);
    device = name;
    check_plans(MLP, ADAMW, 1, TN_F32, GROUPED);
    device = "cpu";
}

static void so_it_has_op_by_op(void)
{
    check_plans_on("ref");
}

static void so_it_has_on_opencl(void)
{
    check_plans_on("opencl");
}

// ---- what happens in between -------------------------------------------------------------------

// A network of parameters of these dtypes, two elements each and the last of none, all 1; and a
// loss whose gradient is 1 everywhere.
enum { PARTS = 5 };

static const tn_dtype mixed[PARTS] = { TN_F32, TN_F64, TN_F32, TN_BF16, TN_F32 };

static tn_optim *open_parts(tn_ctx *cx, tn_tensor **p)
{
    for (int i = 0; i < PARTS; i++)
        p[i] = tn_requires_grad(tn_ones(cx, mixed[i], TN_SHAPE(i < PARTS - 1 ? 2 : 0)), true);
    return tn_sgd(tn_layer_of(cx, PARTS, p), (tn_sgd_opts){ .lr = 0.5f });
}

static tn_status step_parts(tn_ctx *cx, tn_optim *o, tn_tensor **p)
{
    tn_scope  *s    = tn_begin(cx);
    tn_tensor *loss = tn_zeros(cx, TN_F64, TN_0D);
    for (int i = 0; i < PARTS; i++) loss = tn_add(loss, tn_sum_all(tn_cast(p[i], TN_F64)));
    tn_status status = tn_step(o, loss);
    tn_end(s);
    return status;
}

static void parameters_of_several_dtypes_have_blocks_of_their_own(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *p[PARTS];
    tn_optim  *o = open_parts(cx, p);
    CHECK_INT((int64_t)o->flats, 3);
    CHECK_INT((int64_t)o->flat[0].count, 2);
    for (int i = 0; i < 2; i++) CHECK_STATUS(step_parts(cx, o, p), TN_OK);
    for (int i = 0; i < PARTS - 1; i++) CHECK_VALUES(p[i], 0, 0);
    tn_close(cx);
}

// A write leaves the block until the next update, all of it, part of it, and by an op.
static void what_is_written_between_steps_counts(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *p[PARTS];
    tn_optim  *o    = open_parts(cx, p);
    tn_tensor *view = tn_slice(p[2], 0, 1, 2, 1);
    CHECK_STATUS(step_parts(cx, o, p), TN_OK);
    bool mode = tn_grad_mode(cx, false);
    tn_assign(p[0], tn_full(cx, TN_F32, TN_SHAPE(2), 8));
    tn_assign(view, tn_full(cx, TN_F32, TN_SHAPE(1), 6));
    tn_add_(p[3], tn_ones(cx, TN_BF16, TN_SHAPE(2)));
    tn_grad_mode(cx, mode);
    CHECK_STATUS(step_parts(cx, o, p), TN_OK);
    CHECK(place_of(p[2]) == place_of(p[0]) + 8);
    CHECK_VALUES(p[0], 7.5, 7.5);
    CHECK_VALUES(p[1], 0, 0);
    CHECK_VALUES(p[2], 0, 5.5);
    CHECK_VALUES(p[3], 1, 1);
    CHECK_VALUES(view, 5.5);
    CHECK_STATUS(step_parts(cx, o, p), TN_OK);
    CHECK_VALUES(view, 5);
    tn_close(cx);
}

// A value that was taken before an update stays as it was, and so do its neighbours.
static void a_value_taken_before_an_update_stays(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *p[PARTS];
    tn_optim  *o   = open_parts(cx, p);
    tn_tensor *old = tn_keep(tn_mul_s(tn_detach(p[0]), 3));
    CHECK_STATUS(step_parts(cx, o, p), TN_OK);
    CHECK_VALUES(old, 3, 3);
    CHECK_VALUES(p[0], 0.5, 0.5);
    CHECK_VALUES(p[2], 0.5, 0.5);
    tn_close(cx);
}

// Step 2 fails on an index; what it would have changed stays in place, and step 3 has the plan of
// step 1.
static void a_step_that_fails_leaves_the_block(void)
{
    training t      = begin(MLP, ADAM, 0, TN_F32, PLAIN);
    int64_t  bad[5] = { 9, 9, 9, 9, 9 };
    step(&t);
    tn_scope   *s    = tn_begin(t.cx);
    const char *home = place_of(t.opt->slot[1].p);
    tn_on_error(t.cx, NULL, NULL);
    tn_tensor *out = tn_forward(t.net, tn_rand(t.cx, TN_F32, TN_SHAPE(5, 12)));
    CHECK(tn_step(t.opt, tn_cross_entropy(out, tn_from(t.cx, TN_I64, TN_SHAPE(5), bad))) != TN_OK);
    tn_end(s);
    tn_error_clear(t.cx);
    CHECK(lies_flat(t.opt) && place_of(t.opt->slot[1].p) == home);
    CHECK_INT(step(&t), 0);
    CHECK(lies_flat(t.opt) && place_of(t.opt->slot[1].p) == home);
    tn_close(t.cx);
}

// What a file brings goes into the block: the first step after it has the plan of all others.
static void a_file_is_loaded_into_the_block(void)
{
    if (!CHECK(scratch_open())) return;
    const char *path = scratch_path("flat.ckpt"), *weights = scratch_path("flat.safetensors");
    training a = begin(MLP, ADAMW, 0, TN_BF16, GROUPED), b = begin(MLP, ADAMW, 0, TN_BF16, PLAIN);
    tn_checkpoint save = { .net = { a.net }, .opt = { a.opt } };
    tn_checkpoint load = { .net = { b.net }, .opt = { b.opt } };
    for (int i = 0; i < 2; i++) step(&a);
    CHECK_STATUS(tn_checkpoint_save(a.cx, path, &save), TN_OK);
    CHECK_STATUS(tn_save(a.net, weights), TN_OK);
    CHECK_STATUS(tn_load(b.net, weights), TN_OK);
    CHECK(lies_flat(b.opt));
    step(&b);
    CHECK_INT(step(&b), 0);
    CHECK_STATUS(tn_checkpoint_load(a.cx, path, &save), TN_OK);
    CHECK(lies_flat(a.opt));
    step(&a);
    CHECK_INT(step(&a), 0);
    // The groups of the file are not those here: from the first step on they have blocks of their
    // own.
    CHECK_STATUS(tn_checkpoint_load(b.cx, path, &load), TN_OK);
    step(&b);
    CHECK(lies_flat(b.opt));
    tn_close(a.cx);
    tn_close(b.cx);
    scratch_close();
}

// A block of which some get no gradient is divided, and each part goes on with its own moments.
static void a_block_is_divided_by_who_gets_a_gradient(void)
{
    training t = begin(MLP, ADAM, 0, TN_F32, FROZEN_LATER);
    step(&t);
    CHECK_INT((int64_t)t.opt->flats, 2);
    step(&t);
    CHECK_INT(step(&t), 0);
    tn_requires_grad(tn_layer_find(t.net, "1.weight"), true);
    for (int i = 0; i < 2; i++) step(&t);
    CHECK_INT(step(&t), 0);
    CHECK_INT(t.opt->slot[0].updates, 3);
    CHECK_INT(t.opt->slot[1].updates, 6);
    CHECK(lies_flat(t.opt));
    tn_close(t.cx);
}

const test_case tests_flat[] = {
    TEST(the_first_step_has_the_plan_of_the_second),
    TEST(so_it_has_in_a_convolutional_network),
    TEST(so_it_has_in_a_transformer),
    TEST(so_it_has_op_by_op),
    TEST(so_it_has_on_opencl),
    TEST(parameters_of_several_dtypes_have_blocks_of_their_own),
    TEST(what_is_written_between_steps_counts),
    TEST(a_value_taken_before_an_update_stays),
    TEST(a_step_that_fails_leaves_the_block),
    TEST(a_file_is_loaded_into_the_block),
    TEST(a_block_is_divided_by_who_gets_a_gradient),
    TEST_END,
};
