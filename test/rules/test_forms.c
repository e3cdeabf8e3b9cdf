// test_forms.c: every public function by its macro, by a pointer to it, and in a program without
// the macros: whatever the form of the call, the same nodes and bytes are left.
#include "calls.h"
#include "check.h"
#include "rules_kit.h"

#include <string.h>
#include <tenon/models.h>

// ---- by macro: the families of the table stand there by the addresses of the plain functions

typedef void any_function(void);
typedef struct {
    const char   *name;
    any_function *at;  // what the macro of this name calls
    bool          op;  // returns a tensor
} form;

// clang-format off
static const form forms[] = {
#define TN_OP(name, params, args)           { #name, (any_function *)name##_at, true },
#define TN_CALL(result, name, params, args) { #name, (any_function *)name##_at, false },
#define TN_DO(name, params, args)           { #name, (any_function *)name##_at, false },
#include "tenon/sites.h"
#define TN_OP(name, params, args)           { #name, (any_function *)name##_at, true },
#define TN_CALL(result, name, params, args) { #name, (any_function *)name##_at, false },
#define TN_DO(name, params, args)           { #name, (any_function *)name##_at, false },
#include "tenon/arrays_sites.h"
#define TN_OP(name, params, args)
#define TN_CALL(result, name, params, args) { #name, (any_function *)name##_at, false },
#define TN_DO(name, params, args)
#include "tenon/models_sites.h"
    { 0 },
};
// clang-format on

static const form *find_form(const char *name)
{
    const form *f = forms;
    while (f->name && strcmp(f->name, name) != 0) f++;
    return f->name ? f : NULL;
}

#define AT(...) ((tn_tensor * (*)(const char *, int, __VA_ARGS__)) find_form(c->name)->at)

static tn_tensor *by_macro(const call *c, const call_args *k)
{
    if (c->other) return c->other(k);
    if (c->unary) return AT(tn_tensor *)(TN_HERE, k->x);
    if (c->number) return AT(tn_tensor *, double)(TN_HERE, k->x, k->d);
    if (c->integer) return AT(tn_tensor *, int64_t)(TN_HERE, k->x, k->i);
    if (c->binary) return AT(tn_tensor *, tn_tensor *)(TN_HERE, k->x, k->y);
    if (c->axis) return AT(tn_tensor *, int)(TN_HERE, k->x, (int)k->i);
    return AT(tn_tensor *, int, const int *, bool)(TN_HERE, k->x, (int)k->i,
                                                   (int[16]){ (int)k->j, 1, 0 }, k->j & 1);
}

// ---- what is left

// calls_plain.c: the same table, its wrappers made of plain calls.
const call *calls_plain_at(int i);
call_things calls_plain_things(tn_ctx *cx);
tn_tensor  *calls_plain_do(const call *c, const call_args *k);

enum { FORMS = 2, MOST_CALLS = 1000 };

// Arguments of several shapes and dtypes, so that every op takes some of them.
typedef struct {
    tn_dtype dtype;
    int      rank;
    int64_t  size[5], i, j;
    bool     classes;  // y is a vector of zeros, as classes are
} try;

static const try tries[] = {
    { TN_F32, 2, { 1, 2 }, 0, 0, false },       { TN_F32, 2, { 2, 2 }, 1, 0, false },
    { TN_F32, 2, { 2, 2 }, 2, 1, false },       { TN_F32, 2, { 2, 2 }, 1, 0, true },
    { TN_F32, 3, { 2, 2, 2 }, 1, 1, false },    { TN_F32, 3, { 2, 4, 2 }, 1, 2, false },
    { TN_F32, 4, { 4, 2, 2, 2 }, 1, 1, false }, { TN_F32, 4, { 1, 2, 4, 4 }, 2, 2, false },
    { TN_F32, 4, { 1, 2, 4, 4 }, 1, 0, false }, { TN_F32, 1, { TN_F32 }, 1, TN_F32, false },
    { TN_F32, 4, { 2, 2, 2, 2 }, 1, 0, false }, { TN_F32, 5, { 2, 2, 2, 2, 2 }, 1, 0, false },
    { TN_I64, 2, { 2, 2 }, 1, 1, false },       { TN_I64, 1, { TN_I64 }, 1, TN_I64, false },
    { TN_F32, 1, { 1 }, 0, 0, false },
};

static call_args arguments(tn_ctx *cx, const try *a, call_things has)
{
    tn_tensor *x = tn_ones(cx, a->dtype, a->rank, a->size);
    tn_tensor *y = a->classes ? tn_zeros(cx, TN_I64, 1, a->size)
                              : tn_ones(cx, a->dtype, a->rank, a->size);
    return (call_args){ cx, tn_keep(x), tn_keep(y), a->i, a->j, 0.5, has };
}

// Calls both and compares what is left; whether a tensor came.
static bool check_call(int i, const call_args k[FORMS])
{
    const call *c = calls_at(i), *plain = calls_plain_at(i);
    tn_stats    left[FORMS];
    tn_tensor  *y[FORMS] = { by_macro(c, &k[0]), calls_plain_do(plain, &k[1]) };
    for (int f = 0; f < FORMS; f++) {
        left[f] = tn_ctx_stats(k[f].cx);
        tn_error_clear(k[f].cx);
    }
    tn_error_clear(NULL);
    test_case_result(!y[0] == !y[1] && left[0].nodes == left[1].nodes &&
                         left[0].bytes == left[1].bytes,
                     "%s: by macro %lld nodes and %lld bytes are left, plain %lld and %lld",
                     c->name, (long long)left[0].nodes, (long long)left[0].bytes,
                     (long long)left[1].nodes, (long long)left[1].bytes);
    return y[0] != NULL;
}

// Contexts of their own, so that what one call leaves is not taken for another's.
static void check_calls(const try *a, bool worked[MOST_CALLS])
{
    tn_ctx   *cx[FORMS];
    call_args k[FORMS];
    for (int f = 0; f < FORMS; f++) {
        cx[f] = rules_open("cpu");
        k[f]  = arguments(cx[f], a, f ? calls_plain_things(cx[f]) : calls_things(cx[f]));
        tn_eval(cx[f]);
    }
    for (int i = 0; calls_at(i) && CHECK(i < MOST_CALLS); i++) {
        tn_scope *s[FORMS];
        if (!find_form(calls_at(i)->name)) continue;
        for (int f = 0; f < FORMS; f++) s[f] = tn_begin(cx[f]);
        worked[i] |= check_call(i, k);
        for (int f = 0; f < FORMS; f++) {
            tn_end(s[f]);
            tn_grad_mode(cx[f], true);
            tn_error_clear(cx[f]);
        }
    }
    for (int f = 0; f < FORMS; f++) tn_close(cx[f]);
}

// Of a leaf, of files, and of a network that attends, which no arguments here are.
static const char *const elsewhere[] = { "tn_grad_of",         "tn_idx_read", "tn_image_read",
                                         "tn_image_read_with", "tn_npy_read", "tn_forward_cached" };

static bool is_elsewhere(const char *name)
{
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (!strcmp(elsewhere[i], name)) return true;
    return false;
}

static void every_function_leaves_the_same_in_both_forms(void)
{
    bool worked[MOST_CALLS] = { 0 };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) check_calls(&tries[i], worked);
    for (int i = 0; calls_at(i); i++) {
        const form *f = find_form(calls_at(i)->name);
        if (f && f->op && !is_elsewhere(f->name))
            test_case_result(worked[i], "%s: no arguments here are right for it", f->name);
    }
}

static void a_thousand_calls_leave_nothing(void)
{
    tn_ctx *cx                      = rules_open("cpu");
    tn_tensor *(*gelu)(tn_tensor *) = tn_gelu, *x = tn_ones(cx, TN_F32, TN_SHAPE(2));
    tn_eval_of(x);
    for (int i = 0; i < 1000; i++) tn_drop(tn_gelu(x));
    CHECK_INT(tn_ctx_stats(cx).nodes, 1);
    for (int i = 0; i < 1000; i++) tn_drop(gelu(x));
    CHECK_INT(tn_ctx_stats(cx).nodes, 1);
}

const test_case tests_forms[] = {
    TEST(every_function_leaves_the_same_in_both_forms),
    TEST(a_thousand_calls_leave_nothing),
    TEST_END,
};
