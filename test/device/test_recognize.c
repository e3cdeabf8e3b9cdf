// test_recognize.c: attention spelled out in plain ops is one call where the device says so, with
// the same values and gradients; and what is not attention, or asked for, stays as it was.
//
// B batches, H heads, T queries, S keys, D their size
#include "check.h"
#include "on_device.h"
#include "rules_kit.h"
#include "table.h"

#include "ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 1 << 18, PAGE = 1 << 15 };

static int64_t B = 2, H = 3, T = 6, S = 7, D = 4;  // a GPU's kernels want more: see recognize_on

// q, k and v of a program, and one more leaf; those that it takes gradients of.
typedef struct {
    tn_ctx    *cx;
    tn_dtype   dtype;
    tn_tensor *q, *k, *v, *more, *leaf[4];
    int        leaves;
    tn_tensor *given;  // instead of a further leaf
} inputs;

static tn_tensor *leaf(inputs *in, int rank, const int64_t *size)
{
    if (in->given) return in->given;
    tn_tensor *x = tn_cast(tn_randn(in->cx, TN_F32, rank, size), in->dtype);
    CHECK_STATUS(tn_eval_of(x), TN_OK);
    return in->leaf[in->leaves++] = tn_requires_grad(x, true);
}

static inputs draw_inputs(tn_ctx *cx, tn_dtype dt)
{
    inputs in = { .cx = cx, .dtype = dt };
    tn_seed(cx, 3);
    in.q = leaf(&in, TN_SHAPE(B, H, T, D));
    in.k = leaf(&in, TN_SHAPE(B, H, S, D));
    in.v = leaf(&in, TN_SHAPE(B, H, S, D));
    return in;
}

static tn_tensor *scores(inputs *in)
{
    return tn_mul_s(tn_matmul(in->q, tn_transpose(in->k, -1, -2)), 0.5);
}

static tn_tensor *attend(inputs *in, tn_tensor *s)
{
    return tn_matmul(tn_softmax(s, -1), in->v);
}

// i - j, or j alone, as whole numbers.
static tn_tensor *queries(tn_ctx *cx)
{
    return tn_unsqueeze(tn_arange(cx, TN_I64, 0, (double)T, 1), 1);
}

static tn_tensor *keys(tn_ctx *cx)
{
    return tn_arange(cx, TN_I64, 0, (double)S, 1);
}

// ---- the programs ------------------------------------------------------------------------------

static tn_tensor *plain(inputs *in)
{
    return attend(in, scores(in));
}

// Weights are often cast to the dtype of the values, which they may have already.
static tn_tensor *cast_to_its_own(inputs *in)
{
    tn_tensor *p = tn_softmax(scores(in), -1);
    return tn_matmul(tn_cast(p, tn_dtype_of(in->v)), in->v);
}

// As exporters write it, for queries that see no key.
static tn_tensor *guarded(inputs *in)
{
    tn_tensor *future = tn_gt(keys(in->cx), queries(in->cx));
    tn_tensor *p      = tn_softmax(tn_masked_fill(scores(in), future, -INFINITY), -1);
    return tn_matmul(tn_where(tn_isnan(p), tn_full(in->cx, in->dtype, TN_SHAPE(1), 0), p), in->v);
}

// A condition and two numbers, as masks of exporters are.
static tn_tensor *hidden_by_numbers(inputs *in)
{
    tn_tensor *seen = tn_logical_and(tn_le(keys(in->cx), queries(in->cx)),
                                     tn_ge_s(keys(in->cx), 0));
    tn_tensor *odd  = tn_eq_s(keys(in->cx), 4);
    tn_tensor *none = tn_full(in->cx, in->dtype, TN_0D, 0);
    tn_tensor *far  = tn_full(in->cx, in->dtype, TN_0D, in->dtype == TN_F16 ? -65504 : -3.38e38);
    return attend(in, tn_add(scores(in), tn_where(tn_logical_or(seen, odd), none, far)));
}

static tn_tensor *scaled_before(inputs *in)
{
    tn_tensor *q = tn_div_s(tn_mul_s(in->q, 3), 4);
    return attend(in, tn_matmul(q, tn_transpose(tn_mul_s(in->k, 0.25), -1, -2)));
}

static tn_tensor *causal(inputs *in)
{
    tn_tensor *future = tn_gt(keys(in->cx), queries(in->cx));
    return attend(in, tn_masked_fill(scores(in), future, -INFINITY));
}

// By what is seen, not by what is hidden.
static tn_tensor *windowed(inputs *in)
{
    tn_tensor *i = queries(in->cx), *j = keys(in->cx);
    tn_tensor *seen = tn_logical_and(tn_le(j, i), tn_lt_s(tn_sub(i, j), 3));
    tn_tensor *none = tn_full(in->cx, in->dtype, TN_0D, -INFINITY);
    return attend(in, tn_where(seen, scores(in), none));
}

static tn_tensor *near_ones(inputs *in)
{
    tn_tensor *far = tn_ge_s(tn_abs(tn_sub(queries(in->cx), keys(in->cx))), 3);
    return attend(in, tn_masked_fill(scores(in), far, -INFINITY));
}

static tn_tensor *alibi(inputs *in)
{
    in->more       = leaf(in, TN_SHAPE(H, 1, 1));
    tn_tensor *far = tn_cast(tn_sub(keys(in->cx), queries(in->cx)), in->dtype);
    tn_tensor *s   = tn_add(scores(in), tn_mul(in->more, far));
    return attend(in, tn_masked_fill(s, tn_gt(keys(in->cx), queries(in->cx)), -INFINITY));
}

static tn_tensor *softcap(inputs *in)
{
    return attend(in, tn_mul_s(tn_tanh(tn_div_s(scores(in), 1.5)), 1.5));
}

// Numbers 0, 0, 0, 1, 1, 1, ... in the first batch, those of later keys in the others.
static tn_tensor *documents(inputs *in)
{
    tn_tensor *at  = tn_arange(in->cx, TN_I64, 0, (double)(B * S), 1);
    tn_tensor *all = tn_reshape(tn_floor_divide(at, tn_scalar_i64(in->cx, 3)), TN_SHAPE(B, S));
    CHECK_STATUS(tn_eval_of(all), TN_OK);
    tn_tensor *of_i  = tn_reshape(tn_slice(all, 1, 0, T, 1), TN_SHAPE(B, 1, T, 1));
    tn_tensor *other = tn_ne(of_i, tn_reshape(all, TN_SHAPE(B, 1, 1, S)));
    return attend(in, tn_masked_fill(scores(in), other, -INFINITY));
}

// Of the own document, and not after the query: the second part is causal, the first a program.
static tn_tensor *documents_before(inputs *in)
{
    tn_tensor *all = tn_floor_divide(keys(in->cx), tn_scalar_i64(in->cx, 4));
    CHECK_STATUS(tn_eval_of(all), TN_OK);
    tn_tensor *own  = tn_eq(tn_unsqueeze(tn_slice(all, 0, 0, T, 1), 1), all);
    tn_tensor *seen = tn_logical_and(own, tn_ge(queries(in->cx), keys(in->cx)));
    tn_tensor *none = tn_full(in->cx, in->dtype, TN_0D, -INFINITY);
    return attend(in, tn_where(seen, scores(in), none));
}

// Of the own document or an earlier one, the documents in no order; each has its first key.
static tn_tensor *documents_in_turn(inputs *in)
{
    tn_tensor *of   = tn_remainder(tn_mul_s(keys(in->cx), 5), tn_scalar_i64(in->cx, 7));
    tn_tensor *own  = tn_add_s(tn_slice(of, 0, 0, T, 1), 1);
    tn_tensor *past = tn_le(of, tn_unsqueeze(own, 1));
    return attend(in, tn_masked_fill(scores(in), tn_logical_not(past), -INFINITY));
}

// A table of biases by distance, read by a gather.
static tn_tensor *relative(inputs *in)
{
    in->more         = leaf(in, TN_SHAPE(T + S, H));
    tn_tensor *at    = tn_add_s(tn_sub(queries(in->cx), keys(in->cx)), (double)S);
    tn_tensor *index = tn_expand(tn_reshape(at, TN_SHAPE(T * S, 1)), TN_SHAPE(T * S, H));
    tn_tensor *bias  = tn_reshape(tn_gather(in->more, 0, index), TN_SHAPE(T, S, H));
    return attend(in, tn_add(scores(in), tn_permute(bias, TN_AXES(2, 0, 1))));
}

static tn_tensor *gated(inputs *in)
{
    in->more     = leaf(in, TN_SHAPE(B, 1, 1, S));
    tn_tensor *s = tn_mul(tn_sigmoid(in->more), tn_square(scores(in)));
    return attend(in, tn_sub(s, tn_exp(in->more)));
}

// Changes whose slopes depend on the score: by itself, by a number for each query, by one for each
// score.
static tn_tensor *smooth(inputs *in)
{
    tn_tensor *s = scores(in);
    return attend(in, tn_mul(s, tn_sigmoid(s)));
}

static tn_tensor *by_query(inputs *in)
{
    in->more = leaf(in, TN_SHAPE(H, T, 1));
    return attend(in, tn_mul(in->more, tn_tanh(scores(in))));
}

static tn_tensor *capped_bias(inputs *in)
{
    in->more     = leaf(in, TN_SHAPE(H, T, S));
    tn_tensor *s = tn_mul_s(tn_tanh(tn_add(scores(in), in->more)), 2);
    return attend(in, tn_masked_fill(s, tn_gt(keys(in->cx), queries(in->cx)), -INFINITY));
}

static tn_tensor *dropped(inputs *in)
{
    tn_tensor *p = tn_dropout(tn_softmax(scores(in), -1), 0.4, TN_TRAINING);
    return tn_matmul(p, in->v);
}

static tn_tensor *without_heads(inputs *in)
{
    tn_tensor *q = tn_select(in->q, 1, 0), *k = tn_select(in->k, 1, 1), *v = tn_select(in->v, 1, 2);
    tn_tensor *s = tn_div_s(tn_matmul(q, tn_transpose(k, 1, 2)), 2);
    return tn_matmul(tn_softmax(tn_maximum_s(s, -0.5), -1), v);
}

static tn_tensor *without_batches(inputs *in)
{
    tn_tensor *x[] = { in->q, in->k, in->v };
    for (int i = 0; i < 3; i++) x[i] = tn_select(tn_select(x[i], 1, 0), 0, 1);
    tn_tensor *far = tn_cast(tn_sub(keys(in->cx), queries(in->cx)), in->dtype);
    tn_tensor *s   = tn_add(tn_matmul(x[0], tn_transpose(x[1], 0, 1)), tn_mul_s(far, 0.25));
    return tn_matmul(tn_softmax(s, -1), x[2]);
}

// One batch of one head, and one batch whose heads share keys and values: these are products of two
// matrices.
static tn_tensor *of_one_batch(inputs *in, int64_t heads)
{
    tn_tensor *x[] = { in->q, in->k, in->v };
    for (int i = 0; i < 3; i++) x[i] = tn_slice(tn_slice(x[i], 0, 1, 2, 1), 1, 0, i ? 1 : heads, 1);
    tn_tensor *s = tn_mul_s(tn_matmul(x[0], tn_transpose(x[1], -1, -2)), 0.5);
    return tn_matmul(tn_softmax(s, -1), x[2]);
}

static tn_tensor *of_one_head(inputs *in)
{
    return of_one_batch(in, 1);
}

static tn_tensor *shared_by_one_batch(inputs *in)
{
    return of_one_batch(in, H);
}

static tn_tensor *with_a_bias(inputs *in)
{
    in->more = leaf(in, TN_SHAPE(H, T, S));
    return attend(in, tn_add(scores(in), in->more));
}

static tn_tensor *with_a_mask(inputs *in)
{
    tn_tensor *m    = tn_lt_s(tn_rand(in->cx, TN_F32, TN_SHAPE(T, S)), 0.7);
    tn_tensor *none = tn_full(in->cx, in->dtype, TN_0D, -INFINITY);
    CHECK_STATUS(tn_eval_of(m), TN_OK);
    return attend(in, tn_where(tn_logical_or(m, tn_eq_s(keys(in->cx), 2)), scores(in), none));
}

typedef struct {
    const char *name;
    tn_tensor *(*f)(inputs *in);
    bool program;  // it needs a score program
} spelling;

static const spelling spellings[] = {
    { "cast", cast_to_its_own, false },
    { "plain", plain, false },
    { "scaled before", scaled_before, false },
    { "causal", causal, false },
    { "guarded", guarded, false },
    { "hidden by numbers", hidden_by_numbers, true },
    { "window", windowed, false },
    { "both sides", near_ones, false },
    { "alibi", alibi, true },
    { "softcap", softcap, true },
    { "documents", documents, true },
    { "documents before", documents_before, true },
    { "documents in turn", documents_in_turn, true },
    { "relative", relative, false },
    { "gated", gated, true },
    { "smooth", smooth, true },
    { "by query", by_query, true },
    { "capped bias", capped_bias, true },
    { "dropout", dropped, false },
    { "three axes", without_heads, true },
    { "two axes", without_batches, true },
    { "one head", of_one_head, false },
    { "one batch", shared_by_one_batch, false },
    { "bias", with_a_bias, false },
    { "mask", with_a_mask, true },
};
enum { SPELLINGS = sizeof spellings / sizeof *spellings };

// ---- comparing ---------------------------------------------------------------------------------

static bool near(const double *a, const double *b, int64_t n, double part, char text[96])
{
    double most = 1e-3;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(b[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= part * most)) {
            snprintf(text, 96, "[%lld] is %.9g, not %.9g", (long long)i, a[i], b[i]);
            return false;
        }
    return true;
}

// How often a call is a step of what is pending.
static int steps_of(tn_ctx *cx, const char *op)
{
    static char page[PAGE];
    char        name[32];
    int         n = 0;
    FILE       *f = tmpfile();
    snprintf(name, sizeof name, "  %s ", op);
    if (!CHECK(f && tn_explain(cx, f) == TN_OK)) return -1;
    rewind(f);
    page[fread(page, 1, PAGE - 1, f)] = 0;
    fclose(f);
    for (const char *s = page; (s = strstr(s, name)); s++) n++;
    return n;
}

typedef enum { BACKWARD, GRAD } way;

// The value and the gradients of a spelling, one after the other; counts the calls.
static int64_t compute(const spelling *s, inputs *in, way how, double *out, int calls[2])
{
    tn_tensor *g[5], *y = s->f(in);
    int64_t    n = 0;
    if (!CHECK(y)) return 0;
    tn_tensor *loss = tn_sum_all(tn_mul(y, tn_sin(y)));
    tn_status  ok   = how == BACKWARD ? tn_backward(loss, NULL)
                                      : tn_grad(1, &loss, in->leaves, in->leaf, NULL, g);
    test_that(ok == TN_OK, "%s: %s", s->name, tn_error_text(in->cx));
    for (int i = 0; i < in->leaves && how == BACKWARD; i++) g[i] = tn_grad_of(in->leaf[i]);
    g[in->leaves] = y;
    for (int i = 0; i <= in->leaves; i++) tn_want(g[i]);
    calls[0] = steps_of(in->cx, "attention");
    calls[1] = steps_of(in->cx, "matmul");
    for (int i = 0; i <= in->leaves; i++) {
        CHECK_STATUS(tn_read(g[i], TN_F64, out + n, tn_count(g[i])), TN_OK);
        n += tn_count(g[i]);
    }
    return n;
}

static void compare_spelling(tn_ctx *const *cx, const spelling *s, tn_dtype dt, way how,
                             double part)
{
    static double a[MOST], b[MOST];
    char          text[96] = "";
    tn_scope     *scope[]  = { tn_begin(cx[0]), tn_begin(cx[1]) };
    int           found[2], plainly[2];
    inputs        one = draw_inputs(cx[0], dt), two = draw_inputs(cx[1], dt);
    int64_t       n = compute(s, &one, how, a, found), m = compute(s, &two, how, b, plainly);
    bool          same  = n == m && near(a, b, n, part, text);
    bool          whole = found[0] == 1 && plainly[0] == 0 && found[1] == 0;
    test_case_result(same && whole, "%s %s: %d of attention, %d of matmul: %s %s", s->name,
                     tn_dtype_name(dt), found[0], found[1], text, tn_error_text(cx[0]));
    for (int i = 0; i < 2; i++) {
        tn_error_clear(cx[i]);
        tn_end(scope[i]);
    }
}

static void every_spelling_is_attention(void)
{
    tn_ctx *cx[]      = { open_quiet("ref", 1), open_quiet("ref", 1) };
    cx[0]->recognizes = 1;
    for (int i = 0; i < SPELLINGS; i++) {
        compare_spelling(cx, &spellings[i], TN_F64, BACKWARD, 1e-11);
        compare_spelling(cx, &spellings[i], TN_F32, BACKWARD, 1e-6);
        compare_spelling(cx, &spellings[i], TN_BF16, BACKWARD, 1e-1);
        compare_spelling(cx, &spellings[i], TN_F64, GRAD, 1e-11);
    }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// j - i is above 2 for all earlier keys too: it wraps around below 0.
static tn_tensor *places_in_bytes(inputs *in)
{
    tn_tensor *i = tn_cast(queries(in->cx), TN_U8), *j = tn_cast(keys(in->cx), TN_U8);
    return attend(in, tn_masked_fill(scores(in), tn_gt_s(tn_sub(j, i), 2), -INFINITY));
}

// All but i itself are hidden: what is not 0 is true.
static tn_tensor *places_as_truth(inputs *in)
{
    tn_tensor *d    = tn_cast(tn_sub(keys(in->cx), queries(in->cx)), TN_BOOL);
    tn_tensor *none = tn_zeros(in->cx, TN_BOOL, TN_0D);
    return attend(in, tn_masked_fill(scores(in), tn_gt(d, none), -INFINITY));
}

// 0, 0, 1, 1, ... twice is not 0, 1, 2, 3, ...
static tn_tensor *places_cut_off(inputs *in)
{
    tn_tensor *half = tn_cast(tn_arange(in->cx, TN_F32, 0, (double)S / 2, 0.5), TN_I64);
    tn_tensor *past = tn_le(tn_add(half, half), queries(in->cx));
    tn_tensor *none = tn_full(in->cx, in->dtype, TN_0D, -INFINITY);
    return attend(in, tn_where(past, scores(in), none));
}

// Heads that share keys and values, by the broadcasting of the products.
static tn_tensor *shared_heads(inputs *in)
{
    tn_tensor *k = tn_slice(in->k, 1, 0, 1, 1), *v = tn_slice(in->v, 1, 1, 2, 1);
    tn_tensor *s = tn_mul_s(tn_matmul(in->q, tn_transpose(k, -1, -2)), 0.5);
    return tn_matmul(tn_softmax(s, -1), v);
}

static void heads_may_share_keys_and_values(void)
{
    static const spelling one  = { "shared", shared_heads, false };
    tn_ctx               *cx[] = { open_quiet("ref", 1), open_quiet("ref", 1) };
    cx[0]->recognizes          = 1;
    compare_spelling(cx, &one, TN_F64, BACKWARD, 1e-11);
    compare_spelling(cx, &one, TN_F64, GRAD, 1e-11);
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// They look like the bounds of causal and window, which would hide other keys.
static void places_that_are_not_whole_numbers_are_no_bounds(void)
{
    static const spelling some[] = { { "bytes", places_in_bytes, true },
                                     { "truth", places_as_truth, true },
                                     { "cut off", places_cut_off, true } };
    tn_ctx               *cx[]   = { open_quiet("ref", 1), open_quiet("ref", 1) };
    cx[0]->recognizes            = 1;
    for (int i = 0; i < 3; i++) compare_spelling(cx, &some[i], TN_F64, BACKWARD, 1e-11);
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// Mixed precision puts casts between, which are looked through.
static void casts_of_mixed_precision_are_looked_through(void)
{
    tn_ctx *cx[]      = { open_quiet("ref", 1), open_quiet("ref", 1) };
    cx[0]->recognizes = 1;
    for (int i = 0; i < 2; i++) tn_autocast(cx[i], TN_BF16);
    for (int i = 0; i < SPELLINGS; i++) compare_spelling(cx, &spellings[i], TN_F32, BACKWARD, 1e-1);
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// By a device that recognizes for itself, in the sizes that kernels of a GPU take, against ref
// without.
void recognize_on(const char *device, int part, int parts)
{
    static const tn_dtype dtypes[] = { TN_F16, TN_BF16 };
    tn_ctx               *cx[]     = { open_quiet(device, 1), open_quiet("ref", 1) };
    T = 140, S = 150, D = 16;
    if (cx[0] && cx[0]->recognizes) cx[0]->recognizes = 1;
    for (int i = part; cx[0] && cx[0]->recognizes && i < SPELLINGS; i += parts)
        compare_spelling(cx, &spellings[i], dtypes[i % 2], BACKWARD, 1e-1);
    // A kernel has several tiles of that many keys, most of which hold nothing but the number that
    // hides.
    static const spelling hidden = { "hidden by numbers, far", hidden_by_numbers, true };
    T = 40, S = 600;
    if (cx[0] && cx[0]->recognizes && part == 0)
        compare_spelling(cx, &hidden, TN_BF16, BACKWARD, 1e-1);
    bool there = cx[0] && cx[0]->recognizes;
    tn_close(cx[0]);
    tn_close(cx[1]);
    if (!there) SKIP("%s recognizes no attention in plain ops: %s", device, tn_error_text(NULL));
}

// cpu runs attention, and no score programs: it declines, and the plain graph stays.
static void a_device_may_decline_programs(void)
{
    tn_ctx *cx     = open_quiet("cpu", 1);
    cx->recognizes = 1;
    for (int i = 0; i < SPELLINGS; i++) {
        tn_scope *s  = tn_begin(cx);
        inputs    in = draw_inputs(cx, TN_F32);
        tn_want(spellings[i].f(&in));
        int calls = steps_of(cx, "attention");
        test_case_result(calls == !spellings[i].program, "%s: %d", spellings[i].name, calls);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_end(s);
    }
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

// ---- what stays --------------------------------------------------------------------------------

static tn_ctx *open_recognizing(void)
{
    tn_ctx *cx     = open_quiet("ref", 1);
    cx->recognizes = 1;
    return cx;
}

// The weights can be read, before the step and after it.
static void the_weights_can_be_read(void)
{
    for (int when = 0; when < 3; when++) {
        tn_ctx    *cx = open_recognizing();
        inputs     in = draw_inputs(cx, TN_F64);
        tn_tensor *s = scores(&in), *p = tn_softmax(s, -1), *y = tn_matmul(p, in.v);
        if (when == 2) tn_want(p);
        tn_want(y);
        CHECK_INT(steps_of(cx, "attention"), 1);
        CHECK_INT(steps_of(cx, "matmul"), when == 2);
        if (when) CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_NEAR(tn_item(tn_sum_all(p)), (double)(B * H * T), 1e-9);
        CHECK_NEAR(tn_item(tn_max_all(tn_abs(tn_sub(tn_matmul(tn_softmax(s, -1), in.v), y)))), 0,
                   1e-12);
        CHECK_STR(tn_error_text(cx), "");
        tn_close(cx);
    }
}

static void what_is_not_attention_stays(void)
{
    tn_ctx    *cx = open_recognizing();
    inputs     in = draw_inputs(cx, TN_F64);
    tn_tensor *s  = scores(&in);
    // Over queries; of what was computed already; of scores that are not a product's.
    tn_want(tn_matmul(tn_softmax(s, -2), in.v));
    tn_tensor *p = tn_softmax(tn_add_s(s, 1), -1);
    CHECK_STATUS(tn_eval_of(p), TN_OK);
    tn_want(tn_matmul(p, in.v));
    tn_want(tn_matmul(tn_softmax(tn_randn(cx, TN_F64, TN_SHAPE(B, H, T, S)), -1), in.v));
    // Scores that a reduction of theirs changes.
    tn_want(tn_matmul(tn_softmax(tn_sub(s, tn_mean_keep(tn_square(s), -1)), -1), in.v));
    CHECK_INT(steps_of(cx, "attention"), 0);
    cx->recognizes = T * S + 1;
    tn_want(plain(&in));
    CHECK_INT(steps_of(cx, "attention"), 0);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

// The same program again is the same plan; another number is another.
static void programs_are_kept_once(void)
{
    tn_ctx *cx = open_recognizing();
    for (int i = 0; i < 3; i++) {
        tn_scope *s  = tn_begin(cx);
        inputs    in = draw_inputs(cx, TN_F32);
        CHECK(isfinite(tn_item(tn_sum_all(softcap(&in)))));
        CHECK(isfinite(tn_item(tn_sum_all(alibi(&in)))));
        tn_end(s);
    }
    CHECK(cx->scores && cx->scores->next && !cx->scores->next->next);
    tn_close(cx);
}

// What says causal is no part of the program, whatever it is joined with.
static void causal_is_taken_off_conditions(void)
{
    tn_ctx *cx = open_recognizing();
    inputs  in = draw_inputs(cx, TN_F32);
    CHECK(documents_before(&in) != NULL);
    const tni_score *s = cx->scores;
    for (int i = 0; CHECK(s != NULL) && i < s->count; i++) CHECK(s->op[i].op != TNI_iota);
    tn_close(cx);
}

// The first gradients of a spelling, of which the differences are taken. more: a leaf of its own.
static tn_tensor *second(tn_tensor *const *x, void *user)
{
    const spelling *s = user;
    inputs in = { x[0]->cx, TN_F64, x[0], x[1], x[2], NULL, { x[0], x[1], x[2], x[3] }, 3, x[3] };
    bool   on = tn_grad_mode(in.cx, true);
    tn_tensor *gx[4], *sum = NULL;
    for (int i = 0; i < 4; i++)
        if (!tn_needs_grad(x[i])) tn_requires_grad(x[i], true);
    tn_tensor *y = s->f(&in), *all = tn_sum_all(tn_mul(y, tn_sin(y)));
    if (tn_grad(1, &all, 4, x, NULL, gx) != TN_OK) return NULL;
    for (int i = 0; i < 4; i++) {
        tn_tensor *one = tn_sum_all(tn_mul(gx[i], tn_cos(gx[i])));
        sum            = sum ? tn_add(sum, one) : one;
    }
    tn_grad_mode(in.cx, on);
    return sum;
}

static void gradients_can_be_differentiated(void)
{
    static const spelling some[] = { { "softcap", softcap, true }, { "gated", gated, true } };
    for (int i = 0; i < 2; i++) {
        tn_ctx    *cx  = open_recognizing();
        inputs     in  = draw_inputs(cx, TN_F64);
        spelling   s   = some[i];
        tn_tensor *x[] = { in.q, in.k, in.v, leaf(&in, TN_SHAPE(B, 1, 1, S)) };
        test_that(tn_gradcheck(second, 4, x, &s) == TN_OK, "%s: %s", s.name, tn_error_text(cx));
        tn_close(cx);
    }
}

// The gradient of the weights themselves is asked for: an error, not zeros; and how to get it.
static void the_weights_have_no_gradient_unless_computed_first(void)
{
    for (int first = 0; first < 2; first++) {
        tn_ctx    *cx = open_recognizing();
        inputs     in = draw_inputs(cx, TN_F64);
        tn_tensor *p = tn_softmax(scores(&in), -1), *g = NULL;
        if (first) CHECK_STATUS(tn_eval_of(p), TN_OK);
        tn_tensor *y = tn_sum_all(tn_square(tn_matmul(p, in.v)));
        CHECK_STATUS(tn_grad(1, &y, 1, &p, NULL, &g), first ? TN_OK : TN_EGRAD);
        if (first) CHECK(tn_item(tn_max_all(tn_abs(g))) > 0);
        else CHECK_FAILED(cx, TN_EGRAD, "is a part of attention, which was recorded as one call");
        tn_close(cx);
    }
}

// The gradient of a score program out of other ops, where only it is declined.
static void the_gradient_alone_can_be_other_ops(void)
{
    tn_ctx *cx[]      = { open_quiet("ref", 1), open_quiet("ref", 1) };
    cx[0]->recognizes = cx[1]->recognizes = 1;
    tni_mark_lacking(cx[0], TNI_attention_grad);
    for (int i = 0; i < SPELLINGS; i++) {
        static double a[MOST], b[MOST];
        char          text[96] = "";
        tn_scope     *scope[]  = { tn_begin(cx[0]), tn_begin(cx[1]) };
        int           calls[2];
        inputs        one = draw_inputs(cx[0], TN_F64), two = draw_inputs(cx[1], TN_F64);
        int64_t       n    = compute(&spellings[i], &one, BACKWARD, a, calls);
        bool          same = n == compute(&spellings[i], &two, BACKWARD, b, calls);
        test_case_result(same && near(a, b, n, 1e-11, text), "%s: %s", spellings[i].name, text);
        for (int k = 0; k < 2; k++) tn_end(scope[k]);
    }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

const test_case tests_recognize[] = {
    TEST(every_spelling_is_attention),
    TEST(heads_may_share_keys_and_values),
    TEST(places_that_are_not_whole_numbers_are_no_bounds),
    TEST(casts_of_mixed_precision_are_looked_through),
    TEST(a_device_may_decline_programs),
    TEST(the_weights_can_be_read),
    TEST(what_is_not_attention_stays),
    TEST(programs_are_kept_once),
    TEST(causal_is_taken_off_conditions),
    TEST(gradients_can_be_differentiated),
    TEST(the_weights_have_no_gradient_unless_computed_first),
    TEST(the_gradient_alone_can_be_other_ops),
    TEST_END,
};
