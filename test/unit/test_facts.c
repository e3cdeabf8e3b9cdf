// test_facts.c: the columns of ops.def that the planner, the key of a plan and autocast go by.
#include "check.h"

#include "ops/op_table.h"

#include <string.h>
#include <tenon.h>

// ---- autocast

static int op_of(const char *name)
{
    for (int op = 0; op < TNI_OPS; op++)
        if (!strcmp(tni_op_table[op].name, name)) return op;
    return -1;
}

// The lists of PyTorch's page of autocast (cuda), as far as they name ops of the table; what was
// lost or added beside them is named with its reason.
static const char *const low[]     = { "matmul", "conv", "attention", 0 };
static const char *const low_too[] = { "conv_dgrad", "conv_wgrad", "attention_grad",
                                       0 };  // their gradients
static const char *const wide[]    = { "exp",   "expm1",  "log",     "log2",  "log1p",
                                       "pow",   "prod",   "sum",     "tan",   "reciprocal",
                                       "rsqrt", "cumsum", "cumprod", "asin",  "acos",
                                       "sinh",  "cosh",   "erfinv",  "log10", 0 };
static const char *const widest[]  = { "scatter_add", "atan2", 0 };

static bool is_in(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name)) list++;
    return *list != NULL;
}

static void autocast_follows_pytorchs_lists(void)
{
    const char *const *const lists[] = { low, low_too, wide, widest };
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (const char *const *name = lists[k]; *name; name++)
            test_that(op_of(*name) >= 0, "%s is no op", *name);
    for (int op = 0; op < TNI_OPS; op++) {
        const char  *name = tni_op_table[op].name;
        tni_autocast want = is_in(low, name) || is_in(low_too, name) ? TNI_AUTOCAST_LOW
                            : is_in(wide, name)                      ? TNI_AUTOCAST_WIDE
                            : is_in(widest, name)                    ? TNI_AUTOCAST_WIDEST
                                                                     : TNI_AUTOCAST_KEEP;
        test_case_result(tni_op_table[op].autocast == want, "%s", name);
    }
}

// ---- rows that fit together

// A column says no more than the others allow.
static void columns_agree(void)
{
    for (int op = 0; op < TNI_OPS; op++) {
        const tni_op_facts *f = &tni_op_table[op];
        test_case_result(tni_is_map(op) == (f->fuse == TNI_FUSE_MAP), "%s: fusion", f->name);
        test_case_result(f->fuse != TNI_FUSE_FOLD || f->class == TNI_REDUCE, "%s: folds", f->name);
        test_case_result((f->class == TNI_REDUCE) == (f->attr == TNI_ATTR_reduce), "%s: axes",
                         f->name);
        test_case_result(f->fails != TNI_FAILS_INDEX || f->attr == TNI_ATTR_axis, "%s: index",
                         f->name);
        test_case_result(f->class != TNI_LIBRARY || f->fuse == TNI_FUSE_ALONE, "%s: alone",
                         f->name);
    }
}

// ---- attributes in the key of a plan

typedef tn_tensor *builder(tn_tensor *x, tn_tensor *i, int which);

static tn_tensor *summed(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_sum(x, which);
}
static tn_tensor *running(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_cumsum(x, which);
}
static tn_tensor *sorted_along(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_argsort(x, which, false);
}
static tn_tensor *sorted_down(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_argsort(x, 0, which);
}
static tn_tensor *joined(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_sum_all(tn_mul_s(tn_concat(2, (tn_tensor *[]){ x, tn_neg(x) }, which), 2));
}
static tn_tensor *gathered(tn_tensor *x, tn_tensor *i, int which)
{
    return tn_gather(x, which, i);
}
static tn_tensor *scattered(tn_tensor *x, tn_tensor *i, int which)
{
    return tn_scatter_add(x, which, i, x);
}
static tn_tensor *padded(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_pad(x, (int64_t[]){ which, 0 }, (int64_t[]){ 1 - which, 0 }, 0);
}
static tn_tensor *padded_with(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_pad(x, (int64_t[]){ 1, 0 }, (int64_t[]){ 0, 0 }, which);
}
static tn_tensor *turned(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_matmul(x, which ? tn_transpose(x, 0, 1) : x);
}
static tn_tensor *times(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_mul_s(x, 1 + which);
}
static tn_tensor *counted(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_mul(x, tn_arange(tn_ctx_of(x), TN_F32, which, which + 4, 1));
}
static tn_tensor *drawn(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i, (void)which;  // the counters are others every time
    return tn_mul(x, tn_rand_like(x));
}
static tn_tensor *attended(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_attention(x, x, x, (tn_attention_opts){ .causal = which });
}
static tn_tensor *attended_by(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    return tn_attention(x, x, x, (tn_attention_opts){ .scale = 1 + which });
}
static tn_tensor *convolved(tn_tensor *x, tn_tensor *i, int which)
{
    (void)i;
    tn_conv_opts o = { .padding = { which ? 2 : 1 }, .dilation = { which ? 2 : 1 } };
    tn_tensor   *w = tn_reshape(tn_slice(tn_reshape(x, TN_SHAPE(16)), 0, 0, 9, 1),
                                TN_SHAPE(1, 1, 3, 3));
    return tn_conv2d(tn_reshape(x, TN_SHAPE(1, 1, 4, 4)), w, NULL, o);
}

// Values of the same shapes, of which only an attribute differs: another plan just where it is
// structure.
static void attributes_that_are_structure_make_another_plan(void)
{
    static const struct {
        const char *name;
        builder    *build;
        int         plans;
    } cases[] = {
        { "sum axis", summed, 2 },
        { "cumsum axis", running, 2 },
        { "argsort axis", sorted_along, 2 },
        { "argsort order", sorted_down, 2 },
        { "concat axis", joined, 2 },
        { "gather axis", gathered, 2 },
        { "scatter axis", scattered, 2 },
        { "pad before", padded, 2 },
        { "view strides", turned, 2 },
        { "attention causal", attended, 2 },
        { "conv dilation", convolved, 2 },
        { "pad value", padded_with, 1 },
        { "number", times, 1 },
        { "iota start", counted, 1 },
        { "random counter", drawn, 1 },
        { "attention scale", attended_by, 1 },
    };
    static const int64_t index[16] = { 0, 1, 2, 3, 3, 2, 1, 0, 1, 1, 2, 2, 0, 3, 0, 3 };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        tn_ctx    *cx = tn_open("cpu");
        tn_tensor *x  = tn_rand(cx, TN_F32, TN_SHAPE(4, 4));
        tn_tensor *i  = tn_from(cx, TN_I64, TN_SHAPE(4, 4), index);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        int64_t before = tn_ctx_stats(cx).plans;
        for (int turn = 0; turn < 4; turn++) {
            tn_scope *s = tn_begin(cx);
            CHECK_STATUS(tn_eval_of(cases[k].build(x, i, turn & 1)), TN_OK);
            tn_end(s);
        }
        int64_t made = tn_ctx_stats(cx).plans - before;
        test_case_result(made == cases[k].plans, "%s: %d plans", cases[k].name, (int)made);
        tn_close(cx);
    }
}

const test_case tests_facts[] = { TEST(autocast_follows_pytorchs_lists), TEST(columns_agree),
                                  TEST(attributes_that_are_structure_make_another_plan), TEST_END };
