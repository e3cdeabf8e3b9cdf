// test_attention_forms.c: attention with windows, lengths, grouped heads, dropout and masks that
// need a gradient, in combinations: the one op against the ops it stands for, cpu against ref, and
// against finite differences.
//
// B batches, H heads of queries, Hk of keys and values, T queries, S keys, D their size
#include "check.h"
#include "rules_kit.h"
#include "on_device.h"
#include "table.h"

#include "ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 1 << 16 };

typedef enum { NO_MASK, BOOLS, FULL, BIAS, ROW, COLUMN } masking;

typedef struct {
    int64_t  B, H, Hk, T, S, D, E;
    bool     causal;
    int64_t  window;
    bool     lengths;
    double   dropout;
    masking  mask;
    tn_dtype dtype;
} variant;

// Leaves q, k, v and, if it is of floats, the mask; the result and their gradients.
typedef struct {
    tn_tensor *x[4], *mask, *lengths, *y, *gx[4];
    int        leaves;
} work;

// Form number i: every option with every other before long.
static variant draw_form(int i, tn_dtype dt)
{
    static const int64_t heads[][2] = { { 4, 2 }, { 3, 3 }, { 4, 1 } };
    static const int64_t sizes[][2] = { { 9, 9 }, { 5, 12 }, { 12, 5 }, { 1, 7 }, { 70, 66 } };
    static const int64_t windows[]  = { 0, 3, 0, 1, 40 };
    unsigned             r          = (unsigned)i * 2654435761u;
    variant              f          = { .B       = 2,
                                        .H       = heads[i % 3][0],
                                        .Hk      = heads[i % 3][1],
                                        .T       = sizes[i % 5][0],
                                        .S       = sizes[i % 5][1],
                                        .D       = 4 + 2 * (i % 2),
                                        .E       = 3 + i % 4,
                                        .causal  = r >> 28 & 1,
                                        .window  = windows[(r >> 20) % 5],
                                        .lengths = r >> 29 & 1,
                                        .dropout = r >> 30 & 1 ? 0.3 : 0,
                                        .mask    = (masking)(i % 6),
                                        .dtype   = dt };
    return f;
}

static tn_tensor *draw_numbers(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size)
{
    tn_tensor *x = tn_cast(tn_randn(cx, TN_F32, rank, size), dt);
    CHECK_STATUS(tn_eval_of(x), TN_OK);
    return x;
}

static tn_tensor *draw_mask(tn_ctx *cx, const variant *f)
{
    switch (f->mask) {
    case BOOLS: return tn_gt_s(tn_rand(cx, TN_F32, TN_SHAPE(f->B, 1, 1, f->S)), 0.3);
    case FULL: return draw_numbers(cx, f->dtype, TN_SHAPE(f->B, f->H, f->T, f->S));
    case BIAS: return draw_numbers(cx, f->dtype, TN_SHAPE(f->H, f->T, f->S));
    case ROW: return draw_numbers(cx, f->dtype, TN_SHAPE(f->B, 1, 1, f->S));
    case COLUMN: return draw_numbers(cx, f->dtype, TN_SHAPE(f->T, 1));
    default: return NULL;
    }
}

static void draw_inputs(tn_ctx *cx, const variant *f, work *w)
{
    int64_t n[] = { f->S - 1, f->S / 2 };
    tn_seed(cx, 11);
    w->x[0] = draw_numbers(cx, f->dtype, TN_SHAPE(f->B, f->H, f->T, f->D));
    w->x[1] = draw_numbers(cx, f->dtype, TN_SHAPE(f->B, f->Hk, f->S, f->D));
    w->x[2] = draw_numbers(cx, f->dtype, TN_SHAPE(f->B, f->Hk, f->S, f->E));
    w->mask = draw_mask(cx, f);
    if (f->lengths) w->lengths = tn_from(cx, TN_I64, TN_SHAPE(2), n);
    w->leaves = 3;
    if (w->mask && tn_dtype_of(w->mask) != TN_BOOL) w->x[w->leaves++] = w->mask;
}

static tn_attention_opts options_of(const variant *f, const work *w)
{
    return (tn_attention_opts){ .causal  = f->causal,
                                .window  = f->window,
                                .dropout = f->dropout,
                                .mask    = w->mask,
                                .lengths = w->lengths };
}

static work run_form(tn_ctx *cx, const variant *f)
{
    work w = { .leaves = 0 };
    draw_inputs(cx, f, &w);
    for (int i = 0; i < w.leaves; i++) tn_requires_grad(w.x[i], true);
    tn_tensor *g = draw_numbers(cx, f->dtype, TN_SHAPE(f->B, f->H, f->T, f->E));
    tn_seed(cx, 12);
    w.y         = tn_attention(w.x[0], w.x[1], w.x[2], options_of(f, &w));
    tn_status s = tn_grad(1, &w.y, w.leaves, w.x, &g, w.gx);
    test_that(s == TN_OK, "not recorded: %s", tn_error_text(cx));
    return w;
}

// ---- comparing ---------------------------------------------------------------------------------

static bool near(tn_tensor *x, tn_tensor *y, double part, char text[96])
{
    static double a[MOST], b[MOST];
    double        most = 1;
    int64_t       n    = x && y ? tn_count(y) : -1;
    snprintf(text, 96, "nothing to compare");
    if (n < 0 || n > MOST || tn_count(x) != n) return false;
    if (tn_read(x, TN_F64, a, n) != TN_OK || tn_read(y, TN_F64, b, n) != TN_OK) return false;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(b[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= part * most)) {
            snprintf(text, 96, "[%lld] is %.9g, not %.9g", (long long)i, a[i], b[i]);
            return false;
        }
    return true;
}

static void compare_form(tn_ctx *const *cx, const variant *f, int number)
{
    char      text[96];
    tn_scope *scope[] = { tn_begin(cx[0]), tn_begin(cx[1]) };
    double    part    = f->dtype == TN_F64 ? 1e-12 : f->dtype == TN_F32 ? 2e-5 : 2e-2;
    work      a = run_form(cx[0], f), b = run_form(cx[1], f);
    bool      ok = near(a.y, b.y, part, text);
    int       i  = -1;
    while (ok && ++i < a.leaves) ok = near(a.gx[i], b.gx[i], 4 * part, text);
    test_case_result(ok, "form %d %s, %s %d: %s %s", number, tn_dtype_name(f->dtype),
                     i < 0 ? "result" : "gradient", i, text, ok ? "" : tn_error_text(cx[0]));
    for (int k = 0; k < 2; k++) {
        tn_error_clear(cx[k]);
        tn_end(scope[k]);
    }
}

static void every_form_is_what_other_ops_make(void)
{
    static const char *const devices[] = { "ref", "cpu" };
    for (int d = 0; d < 2; d++) {
        tn_ctx *cx[] = { open_quiet(devices[d], 2), open_quiet("cpu", 2) };
        tni_mark_lacking(cx[1], TNI_attention);
        for (int i = 0; i < (d ? 30 : 15); i++) {
            variant f = draw_form(i, TN_F64);
            compare_form(cx, &f, i);
        }
        tn_close(cx[0]);
        tn_close(cx[1]);
    }
}

static void cpu_agrees_with_ref(void)
{
    static const tn_dtype dtypes[] = { TN_F32, TN_F16, TN_BF16 };
    tn_ctx               *cx[]     = { open_quiet("cpu", 3), open_quiet("ref", 1) };
    for (int i = 0; i < 30; i++) {
        variant f = draw_form(i + 60, dtypes[i % 3]);
        compare_form(cx, &f, i + 60);
    }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

void attention_forms_on(const char *device, int part, int parts)
{
    static const tn_dtype dtypes[] = { TN_F32, TN_F16, TN_BF16 };
    tn_ctx               *cx[]     = { open_quiet(device, 1), open_quiet("ref", 1) };
    for (int i = part; cx[0] && i < 60; i += parts) {
        variant f = draw_form(i, dtypes[i % 3]);
        f.D = f.E = 8 * (1 + i % 2);  // widths that kernels of a GPU take
        compare_form(cx, &f, i);
    }
    bool there = cx[0] != NULL;
    tn_close(cx[0]);
    tn_close(cx[1]);
    if (!there) SKIP("%s", tn_error_text(NULL));
}

// The attention_grad of a device that declines it, or of one that lacks it alone.
static void the_gradient_alone_can_be_other_ops(void)
{
    tn_ctx *cx[] = { open_quiet("cpu", 2), open_quiet("cpu", 2) };
    tni_mark_lacking(cx[1], TNI_attention_grad);
    for (int i = 0; i < 15; i++) {
        variant f = draw_form(i, TN_F64);
        compare_form(cx, &f, i);
    }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// ---- finite differences ------------------------------------------------------------------------

typedef struct {
    variant f;
    work    w;
} checked;

static tn_tensor *attend(tn_tensor *const *x, void *user)
{
    const checked    *c = user;
    tn_attention_opts o = options_of(&c->f, &c->w);
    if (c->w.leaves == 4) o.mask = x[3];
    tn_seed(x[0]->cx, 12);
    return tn_attention(x[0], x[1], x[2], o);
}

// Differences are taken with the gradient mode off, but the first gradients need it.
static tn_tensor *first_gradients(tn_tensor *const *x, void *user)
{
    const checked *c  = user;
    bool           on = tn_grad_mode(x[0]->cx, true);
    for (int i = 0; i < c->w.leaves; i++)
        if (!tn_needs_grad(x[i])) tn_requires_grad(x[i], true);
    tn_tensor *y = attend(x, user), *all = tn_sum_all(tn_mul(y, tn_sin(y))), *gx[4], *sum = NULL;
    if (tn_grad(1, &all, c->w.leaves, x, NULL, gx) != TN_OK) return NULL;
    for (int i = 0; i < c->w.leaves; i++) {
        tn_tensor *one = tn_sum_all(tn_mul(gx[i], tn_cos(gx[i])));
        sum            = sum ? tn_add(sum, one) : one;
    }
    tn_grad_mode(x[0]->cx, on);
    return sum;
}

static void gradients_and_their_gradients_are_differences(void)
{
    tn_ctx *cx = open_quiet("cpu", 1);
    for (int i = 0; i < 12; i++) {
        tn_scope *s = tn_begin(cx);
        checked   c = { .f = draw_form(i, TN_F64) };
        c.f.T       = c.f.T > 12 ? 4 : c.f.T / 2 + 1;
        c.f.S       = c.f.S > 12 ? 5 : c.f.S / 2 + 2;
        c.f.B       = 2;
        c.f.D = c.f.E = 2;
        draw_inputs(cx, &c.f, &c.w);
        for (int k = 0; k < c.w.leaves; k++) tn_requires_grad(c.w.x[k], true);
        tn_status ok = tn_gradcheck(attend, c.w.leaves, c.w.x, &c);
        test_case_result(ok == TN_OK, "form %d: %s", i, tn_error_text(cx));
        if (i % 3 == 0) {
            ok = tn_gradcheck(first_gradients, c.w.leaves, c.w.x, &c);
            test_case_result(ok == TN_OK, "second, form %d: %s", i, tn_error_text(cx));
        }
        tn_error_clear(cx);
        tn_end(s);
    }
    tn_close(cx);
}

// ---- a cache of keys ---------------------------------------------------------------------------

// The last of a sequence, asked alone with the keys so far in a longer cache, sees what it sees in
// the whole.
static void lengths_continue_a_sequence(void)
{
    static const char *const devices[] = { "cpu", "ref", "opencl" };
    for (int d = 0; d < 3; d++) {
        tn_ctx *cx = open_quiet(devices[d], 1);
        if (!cx) continue;
        char              text[96];
        tn_tensor        *q     = draw_numbers(cx, TN_F32, TN_SHAPE(2, 4, 6, 8));
        tn_tensor        *cache = draw_numbers(cx, TN_F32, TN_SHAPE(2, 2, 9, 8));
        tn_tensor        *k     = tn_slice(cache, 2, 0, 6, 1);
        tn_attention_opts whole = { .causal = true, .window = 4 }, part = whole;
        tn_tensor        *all = tn_attention(q, k, k, whole);
        part.lengths          = tn_from(cx, TN_I32, TN_SHAPE(1), (int32_t[]){ 6 });
        tn_tensor *last       = tn_attention(tn_slice(q, 2, 4, 6, 1), cache, cache, part);
        CHECK(near(last, tn_slice(all, 2, 4, 6, 1), 1e-5, text));
        part.lengths    = tn_from(cx, TN_I32, TN_SHAPE(2), (int32_t[]){ 0, 1 });
        tn_tensor *none = tn_attention(tn_slice(q, 2, 4, 6, 1), cache, cache, part);
        CHECK(tn_item(tn_max_all(tn_abs(tn_select(none, 0, 0)))) == 0);
        CHECK(tn_item(tn_max_all(tn_abs(tn_select(tn_select(none, 0, 1), 1, 0)))) == 0);
        CHECK_STR(tn_error_text(cx), "");
        tn_close(cx);
    }
}

// ---- a device that has part of it --------------------------------------------------------------

static const char *declines_windows(tn_ctx *cx, const tni_node *n)
{
    (void)cx;
    return n->attr.attention.window ? "there is no window here" : NULL;
}

static void what_a_device_declines_is_other_ops_and_said(void)
{
    static char page[1 << 14];
    tn_ctx     *cx = open_quiet("cpu", 1);
    cx->declines   = declines_windows;
    tn_tensor *q   = draw_numbers(cx, TN_F32, TN_SHAPE(1, 2, 5, 4));
    tn_want(tn_attention(q, q, q, (tn_attention_opts){ .window = 2 }));
    FILE *f = tmpfile();
    if (!CHECK(f && tn_explain(cx, f) == TN_OK)) return;
    rewind(f);
    page[fread(page, 1, sizeof page - 1, f)] = 0;
    fclose(f);
    CHECK(strstr(page, "attention: there is no window here") != NULL);
    CHECK(strstr(page, "  attention ") == NULL);
    tn_close(cx);
}

static void wrong_options_are_named(void)
{
    tn_ctx    *cx = open_quiet("cpu", 1);
    tn_tensor *q  = tn_ones(cx, TN_F32, TN_SHAPE(2, 4, 5, 8));
    tn_tensor *n  = tn_ones(cx, TN_I64, TN_SHAPE(3));
    CHECK(!tn_attention(q, q, q, (tn_attention_opts){ .window = -1 }));
    CHECK_FAILED(cx, TN_EARG, "attention: window -1 is negative");
    CHECK(!tn_attention(q, q, q, (tn_attention_opts){ .lengths = n }));
    CHECK_FAILED(cx, TN_ESHAPE, "attention: lengths (3,) does not broadcast to batches (2,)");
    CHECK(!tn_attention(q, q, q, (tn_attention_opts){ .lengths = tn_cast(n, TN_F32) }));
    CHECK_FAILED(cx, TN_EDTYPE, "attention: lengths is f32, not an integer type");
    tn_close(cx);
}

const test_case tests_attention_forms[] = {
    TEST(every_form_is_what_other_ops_make),
    TEST(cpu_agrees_with_ref),
    TEST(the_gradient_alone_can_be_other_ops),
    TEST(gradients_and_their_gradients_are_differences),
    TEST(lengths_continue_a_sequence),
    TEST(what_a_device_declines_is_other_ops_and_said),
    TEST(wrong_options_are_named),
    TEST_END,
};
