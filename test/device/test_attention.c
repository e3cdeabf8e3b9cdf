// test_attention.c: attention as one op: against ref and against the ops it stands for, in every
// layout; who records it, and what it leaves to other ops.
//
// B batches, H heads, T queries, S keys and values, D their size, E that of a value
#include "check.h"
#include "rules_kit.h"
#include "on_device.h"
#include "table.h"

#include "ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 18, PAGE = 1 << 14 };

// How q, k and v lie: row-major; as slices of one tensor (B, T, 3, H, D); with their last two axes
// swapped; one head of k and v for all; as the middle of longer rows, at addresses of 8 bytes.
typedef enum { ROWS, SLICES, SWAPPED, SHARED, SHIFTED } lying;

// KEYS: bools (B, 1, 1, S); BLIND: numbers, and a query that sees nothing.
typedef enum { NONE, BOOLS, NUMBERS, KEYS, BLIND } masking;

typedef struct {
    int64_t  B, H, T, S, D, E;
    bool     causal;
    masking  mask;
    lying    lies;
    tn_dtype dtype;
} problem;

// The inputs as leaves or views of them, the gradient of the result, and what is computed.
typedef struct {
    tn_tensor *x[3], *leaf[3], *mask, *g, *y, *gx[3];
    int        leaves;
} answer;

// ---- recording ---------------------------------------------------------------------------------

// The same numbers on every device.
static tn_tensor *numbers(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size)
{
    return tn_cast(tn_randn(cx, TN_F32, rank, size), dt);
}

static tn_tensor *leaf(answer *a, tn_tensor *x)
{
    return a->leaf[a->leaves++] = tn_requires_grad(x, true);
}

static void make_inputs(tn_ctx *cx, const problem *p, answer *a)
{
    int64_t heads      = p->lies == SHARED ? 1 : p->H;
    int64_t size[3][4] = { { p->B, p->H, p->T, p->D },
                           { p->B, heads, p->S, p->D },
                           { p->B, heads, p->S, p->E } };
    if (p->lies == SLICES) {
        tn_tensor *all = leaf(a, numbers(cx, p->dtype, TN_SHAPE(p->B, p->T, 3, p->H, p->D)));
        for (int i = 0; i < 3; i++) a->x[i] = tn_transpose(tn_select(all, 2, i), 1, 2);
        return;
    }
    for (int i = 0; i < 3; i++) {
        int64_t *s = size[i], swapped[] = { s[0], s[1], s[3], s[2] };
        if (p->lies == SWAPPED)
            a->x[i] = tn_transpose(leaf(a, numbers(cx, p->dtype, 4, swapped)), 2, 3);
        else if (p->lies == SHIFTED)
            a->x[i] = tn_slice(leaf(a, numbers(cx, p->dtype, TN_SHAPE(s[0], s[1], s[2], s[3] + 8))),
                               3, 4, s[3] + 4, 1);
        else a->x[i] = leaf(a, numbers(cx, p->dtype, 4, s));
    }
}

static tn_tensor *make_mask(tn_ctx *cx, const problem *p)
{
    tn_tensor *x = tn_rand(cx, TN_F32, TN_SHAPE(p->T, p->S));
    tn_tensor *k = tn_rand(cx, TN_F32, TN_SHAPE(p->B, 1, 1, p->S));
    switch (p->mask) {
    case BOOLS: return tn_gt_s(x, 0.3);
    case NUMBERS: return tn_where(tn_gt_s(x, 0.2), x, tn_full(cx, TN_F32, TN_0D, -INFINITY));
    case KEYS: return tn_gt_s(k, 0.4);
    case BLIND: {
        tn_tensor *query = tn_unsqueeze(tn_arange(cx, TN_F32, 0, (double)p->T, 1), 1);
        return tn_where(tn_eq_s(query, 1), tn_full(cx, TN_F32, TN_0D, -INFINITY), x);
    }
    default: return NULL;
    }
}

static answer record(tn_ctx *cx, const problem *p)
{
    answer a = { .leaves = 0 };
    tn_seed(cx, 5);
    make_inputs(cx, p, &a);
    a.mask              = make_mask(cx, p);
    a.g                 = numbers(cx, p->dtype, TN_SHAPE(p->B, p->H, p->T, p->E));
    tn_attention_opts o = { .causal = p->causal, .mask = a.mask };
    a.y                 = tn_attention(a.x[0], a.x[1], a.x[2], o);
    tn_status s         = tn_grad(1, &a.y, a.leaves, a.leaf, &a.g, a.gx);
    test_that(s == TN_OK, "not recorded: %s", tn_error_text(cx));
    return a;
}

// ---- comparing ---------------------------------------------------------------------------------

// How far two values may be apart, as a part of the largest.
static double tolerance_of(tn_dtype dt)
{
    return dt == TN_F64 ? 1e-13 : dt == TN_F32 ? 1e-5 : dt == TN_F16 ? 2e-3 : 1.6e-2;
}

static bool same_numbers(tn_tensor *x, tn_tensor *y, double part, char text[128])
{
    static double a[MOST], b[MOST];
    double        most = 0;
    int64_t       n    = x && y ? tn_count(y) : -1;
    snprintf(text, 128, "nothing to compare");
    if (n < 0 || n > MOST || tn_count(x) != n) return false;
    if (tn_read(x, TN_F64, a, n) != TN_OK || tn_read(y, TN_F64, b, n) != TN_OK) return false;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(b[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= part * most)) {
            snprintf(text, 128, "[%lld] is %.9g, not %.9g", (long long)i, a[i], b[i]);
            return false;
        }
    return true;
}

static void compare(const problem *p, const answer *a, const answer *b)
{
    char   text[128] = "";
    double t         = tolerance_of(p->dtype);
    bool   ok        = same_numbers(a->y, b->y, t, text);
    int    i         = -1;
    while (ok && ++i < a->leaves) ok = same_numbers(a->gx[i], b->gx[i], 4 * t, text);
    test_case_result(ok, "(%d, %d, %d, %d, %d, %d) %s%s mask %d lies %d, %s %d: %s %s", (int)p->B,
                     (int)p->H, (int)p->T, (int)p->S, (int)p->D, (int)p->E, tn_dtype_name(p->dtype),
                     p->causal ? " causal" : "", p->mask, p->lies, i < 0 ? "result" : "gradient", i,
                     text, ok ? "" : tn_error_text(NULL));
}

static void run_problem(tn_ctx *const *cx, const problem *p)
{
    tn_scope *scope[] = { tn_begin(cx[0]), tn_begin(cx[1]) };
    answer    a = record(cx[0], p), b = record(cx[1], p);
    compare(p, &a, &b);
    for (int i = 0; i < 2; i++) {
        tn_error_clear(cx[i]);
        tn_end(scope[i]);
    }
}

static const problem problems[] = {
    { 2, 3, 9, 9, 8, 8, false, NONE, ROWS, TN_F32 },
    { 2, 3, 70, 70, 16, 16, true, NONE, SLICES, TN_F32 },
    { 1, 2, 150, 90, 12, 20, true, NONE, ROWS, TN_F32 },
    { 1, 1, 40, 300, 8, 12, false, NUMBERS, SWAPPED, TN_F32 },
    { 2, 2, 33, 65, 5, 3, false, BOOLS, SHARED, TN_F32 },
    { 3, 1, 1, 130, 64, 64, false, KEYS, ROWS, TN_F32 },
    { 1, 2, 70, 1, 4, 4, true, NONE, ROWS, TN_F32 },
    { 2, 2, 64, 64, 16, 16, true, KEYS, SLICES, TN_F64 },
    { 1, 3, 20, 30, 7, 530, false, NUMBERS, ROWS, TN_F64 },
    { 2, 2, 40, 40, 16, 16, false, NONE, SLICES, TN_F16 },
    { 2, 2, 70, 70, 16, 16, true, BOOLS, ROWS, TN_BF16 },
    { 1, 1, 50, 20, 9, 5, false, NUMBERS, SWAPPED, TN_BF16 },
    { 20, 1, 10, 12, 4, 6, false, BOOLS, ROWS, TN_F16 },
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

// What tensor cores compute: 16 bits, widths that are multiples of 8. Lengths within and across
// tiles, more keys than queries and fewer, one query, heads that share keys, every layout.
static const problem halves[] = {
    { 1, 4, 256, 256, 64, 64, true, NONE, SLICES, TN_BF16 },
    { 1, 4, 256, 256, 64, 64, false, NONE, SLICES, TN_F16 },
    { 2, 2, 128, 128, 128, 128, true, NONE, ROWS, TN_BF16 },
    { 2, 2, 128, 128, 128, 128, false, NONE, ROWS, TN_F16 },
    { 1, 2, 1024, 1024, 64, 64, true, NONE, ROWS, TN_BF16 },
    { 2, 2, 100, 300, 64, 64, false, NONE, ROWS, TN_BF16 },
    { 2, 2, 300, 100, 64, 64, true, NONE, ROWS, TN_F16 },
    { 2, 2, 100, 300, 64, 64, true, NONE, ROWS, TN_BF16 },
    { 1, 2, 77, 77, 64, 64, true, NONE, SLICES, TN_BF16 },
    { 1, 2, 256, 256, 256, 256, true, NONE, ROWS, TN_BF16 },
    { 2, 3, 130, 130, 8, 8, true, NONE, ROWS, TN_F16 },
    { 1, 2, 96, 96, 72, 40, true, NONE, ROWS, TN_BF16 },
    { 1, 4, 64, 64, 128, 64, false, NONE, ROWS, TN_BF16 },
    { 2, 2, 1, 256, 64, 64, false, NONE, ROWS, TN_BF16 },
    { 1, 1, 1, 3, 16, 16, false, NONE, ROWS, TN_F16 },
    { 40, 2, 20, 20, 16, 16, true, NONE, SLICES, TN_BF16 },
    { 2, 4, 90, 90, 64, 64, true, NONE, SHARED, TN_BF16 },
    { 2, 4, 128, 128, 64, 64, true, NONE, SHARED, TN_F16 },
    { 2, 2, 128, 256, 64, 64, false, BOOLS, ROWS, TN_BF16 },
    { 2, 2, 130, 200, 32, 32, false, NUMBERS, ROWS, TN_F16 },
    { 3, 2, 128, 128, 64, 64, true, KEYS, SLICES, TN_BF16 },
    { 1, 2, 64, 64, 64, 64, false, NONE, SWAPPED, TN_BF16 },
    { 2, 2, 64, 64, 64, 64, true, NONE, SHIFTED, TN_BF16 },
    { 2, 2, 128, 128, 64, 64, false, BLIND, ROWS, TN_BF16 },
    { 1, 2, 40, 72, 32, 32, false, BLIND, ROWS, TN_F16 },
    { 2, 2, 128, 128, 64, 64, true, NUMBERS, SLICES, TN_F16 },
};
enum { HALVES = sizeof halves / sizeof *halves };

static void cpu_agrees_with_ref(void)
{
    tn_ctx *cx[] = { open_quiet("cpu", 3), open_quiet("ref", 1) };
    for (int i = 0; i < PROBLEMS; i++) run_problem(cx, &problems[i]);
    // Many blocks, whole and not, and a row longer than a tile.
    run_problem(cx, &(problem){ 1, 1, 300, 1100, 16, 16, false, NONE, ROWS, TN_F32 });
    run_problem(cx, &(problem){ 1, 2, 330, 330, 8, 8, true, NUMBERS, SLICES, TN_BF16 });
    tn_close(cx[0]);
    tn_close(cx[1]);
}

static void run_problems_on(const char *device, const problem *list, int count, int part, int parts)
{
    tn_ctx *cx[] = { open_quiet(device, 1), open_quiet("ref", 1) };
    for (int i = part; cx[0] && i < count; i += parts) run_problem(cx, &list[i]);
    bool there = cx[0] != NULL;
    tn_close(cx[0]);
    tn_close(cx[1]);
    if (!there) SKIP("%s", tn_error_text(NULL));
}

void attention_on(const char *device, int part, int parts)
{
    run_problems_on(device, problems, PROBLEMS, part, parts);
}

void attention_halves_on(const char *device, int part, int parts)
{
    run_problems_on(device, halves, HALVES, part, parts);
}

static void opencl_agrees_with_ref(void)
{
    attention_on("opencl", 0, 1);
}

static void a_device_without_the_op_agrees_with_ref(void)
{
    attention_on("skeleton", 0, 1);
}

// By the same context, without the op.
static void it_is_what_other_ops_make(void)
{
    static const char *const devices[] = { "ref", "cpu" };
    for (int d = 0; d < 2; d++) {
        tn_ctx *cx[] = { open_quiet(devices[d], 2), open_quiet(devices[d], 2) };
        tni_mark_lacking(cx[1], TNI_attention);
        for (int i = 0; i < PROBLEMS; i++) {
            problem p = problems[i];
            p.dtype   = TN_F64;
            run_problem(cx, &p);
        }
        tn_close(cx[0]);
        tn_close(cx[1]);
    }
}

static void threads_change_no_bit(void)
{
    static const problem some[] = {
        { 1, 1, 300, 200, 16, 24, false, NONE, ROWS, TN_F32 },
        { 1, 3, 200, 200, 16, 16, true, NONE, SLICES, TN_F32 },
        { 5, 4, 70, 70, 8, 8, true, BOOLS, ROWS, TN_BF16 },
    };
    static float bits[3][4][MOST];
    for (int i = 0; i < 3; i++) {
        int64_t n[4] = { 0 };
        for (int t = 0; t < 3; t++) {
            tn_ctx *cx = open_quiet("cpu", (int[]){ 1, 2, 5 }[t]);
            answer  a  = record(cx, &some[i]);
            for (int k = 0; k <= a.leaves; k++) {
                tn_tensor *x = k ? a.gx[k - 1] : a.y;
                n[k]         = tn_count(x);
                CHECK_STATUS(tn_read(x, TN_F32, bits[t][k], n[k]), TN_OK);
                CHECK(!memcmp(bits[t][k], bits[0][k], (size_t)n[k] * sizeof(float)));
            }
            tn_close(cx);
        }
    }
}

// ---- what is recorded --------------------------------------------------------------------------

// How often a call of the op is a step of what is pending.
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

static int all_steps(tn_ctx *cx)
{
    int   n = -1;
    FILE *f = tmpfile();
    if (!CHECK(f && tn_explain(cx, f) == TN_OK)) return -1;
    rewind(f);
    if (fscanf(f, "%d", &n) != 1) n = -1;
    fclose(f);
    return n;
}

static const char *const places[] = { "cpu", "ref", "opencl" };  // the first two have the op

// Heads split off a linear layer's result, and go into the next.
static void heads_come_and_go_without_a_copy(void)
{
    for (int d = 0; d < 2; d++) {
        tn_ctx *cx = open_quiet(places[d], 1);
        if (!cx) continue;
        tn_tensor *x = tn_randn(cx, TN_F32, TN_SHAPE(2, 5, 3, 2, 4)), *part[3];
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_scope *s = tn_begin(cx);
        for (int i = 0; i < 3; i++) part[i] = tn_transpose(tn_select(x, 2, i), 1, 2);
        tn_tensor *y = tn_attention(part[0], part[1], part[2], (tn_attention_opts){ 0 });
        CHECK(!tn_is_view(y));
        y = tn_reshape(tn_transpose(y, 1, 2), TN_SHAPE(2, 5, 8));
        tn_want(y);
        CHECK_INT(all_steps(cx), 1);
        CHECK_INT(steps_of(cx, "attention"), 1);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_end(s);
        tn_close(cx);
    }
}

static void it_has_one_step_back(void)
{
    problem p = { 2, 2, 6, 6, 4, 4, true, NONE, ROWS, TN_F32 };
    for (int d = 0; d < 2; d++) {
        tn_ctx *cx = open_quiet(places[d], 1);
        if (!cx) continue;
        answer a = record(cx, &p);
        for (int i = 0; i < 3; i++) tn_want(a.gx[i]);
        CHECK_INT(steps_of(cx, "attention"), 1);
        CHECK_INT(steps_of(cx, "attention_grad"), 1);
        CHECK_INT(steps_of(cx, "matmul"), 0);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_close(cx);
    }
}

static tn_tensor *by_other_ops(tn_tensor *const *x, void *user)
{
    tn_attention_opts o = { .mask = x[3], .causal = true };
    (void)user;
    return tn_attention(x[0], x[1], x[2], o);
}

static void what_it_does_not_do_is_left_to_other_ops(void)
{
    tn_ctx    *cx = open_quiet("cpu", 1);
    tn_tensor *x[4];
    for (int i = 0; i < 3; i++) x[i] = tn_randn(cx, TN_F64, TN_SHAPE(2, 3, 4));
    x[3] = tn_requires_grad(tn_randn(cx, TN_F64, TN_SHAPE(3, 3)), true);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    tn_want(tn_attention(x[0], x[1], x[2], (tn_attention_opts){ .dropout = 1 }));
    tn_tensor *none = tn_slice(x[1], 1, 0, 0, 1);
    tn_want(
        tn_attention(x[0], none, none, (tn_attention_opts){ .mask = tn_slice(x[3], 1, 0, 0, 1) }));
    CHECK_INT(steps_of(cx, "attention"), 0);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_STATUS(tn_gradcheck(by_other_ops, 4, x, NULL), TN_OK);
    tni_mark_lacking(cx, TNI_attention);
    tn_want(tn_attention(x[0], x[1], x[2], (tn_attention_opts){ 0 }));
    CHECK_INT(steps_of(cx, "attention"), 0);
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

// Leading axes of any number are two where strides can say so; others are left to other ops.
static void leading_axes_are_batches_and_heads(void)
{
    tn_ctx    *cx = open_quiet("cpu", 1);
    char       text[128];
    tn_tensor *x = tn_randn(cx, TN_F64, TN_SHAPE(2, 3, 4, 5, 6));
    tn_tensor *q = tn_permute(x, TN_AXES(0, 1, 3, 2, 4)), *k = tn_select(x, 0, 1);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    struct {
        tn_tensor *q, *k;
        int        steps;
    } cases[] = { { x, x, 1 },
                  { q, q, 1 },
                  { tn_permute(x, TN_AXES(1, 0, 2, 3, 4)), tn_permute(x, TN_AXES(1, 0, 2, 3, 4)),
                    0 },
                  { x, tn_select(k, 0, 1), 1 },
                  { tn_select(k, 0, 0), tn_select(k, 0, 1), 1 },
                  { tn_select(tn_select(k, 0, 0), 0, 1), tn_select(tn_select(k, 0, 0), 0, 2), 1 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_scope         *s = tn_begin(cx);
        tn_attention_opts o = { .causal = true };
        memset(cx->lacks, 0, sizeof cx->lacks);
        tn_tensor *y = tn_attention(cases[i].q, cases[i].k, cases[i].k, o);
        tn_want(y);
        CHECK_INT(steps_of(cx, "attention"), cases[i].steps);
        tni_mark_lacking(cx, TNI_attention);
        tn_tensor *z = tn_attention(cases[i].q, cases[i].k, cases[i].k, o);
        test_that(same_numbers(y, z, 1e-13, text), "case %d: %s", (int)i, text);
        CHECK(y && z && tn_rank(y) == tn_rank(z) && !tn_is_view(y));
        tn_end(s);
    }
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

// ---- numbers that are none ---------------------------------------------------------------------

static void a_query_that_sees_nothing_gives_zeros(void)
{
    for (int d = 0; d < 3; d++)
        for (int kind = 0; kind < 2; kind++) {
            tn_ctx *cx = open_quiet(places[d], 1);
            if (!cx) continue;
            double     y[6], gx[18];
            tn_tensor *x[3], *g[3];
            float      inf  = INFINITY;
            tn_tensor *mask = kind ? tn_from(cx, TN_BOOL, TN_SHAPE(2, 3),
                                             (bool[]){ 0, 0, 0, 1, 0, 1 })
                                   : tn_from(cx, TN_F32, TN_SHAPE(2, 3),
                                             (float[]){ -inf, -inf, -inf, 0, -inf, 2 });
            for (int i = 0; i < 3; i++)
                x[i] = tn_requires_grad(tn_randn(cx, TN_F32, TN_SHAPE(i ? 3 : 2, 3)), true);
            tn_tensor *r   = tn_attention(x[0], x[1], x[2], (tn_attention_opts){ .mask = mask });
            tn_tensor *sum = tn_sum_all(tn_mul(r, r));
            CHECK_STATUS(tn_grad(1, &sum, 3, x, NULL, g), TN_OK);
            CHECK_STATUS(tn_read(r, TN_F64, y, 6), TN_OK);
            for (int i = 0; i < 6; i++) CHECK(i < 3 ? y[i] == 0 : isfinite(y[i]));
            for (int i = 0; i < 3; i++) {
                CHECK_STATUS(tn_read(g[i], TN_F64, gx, i ? 9 : 6), TN_OK);
                for (int k = 0; k < (i ? 9 : 6); k++) CHECK(isfinite(gx[k]));
                for (int k = 0; k < 3 && i == 0; k++) CHECK(gx[k] == 0);
            }
            CHECK_STR(tn_error_text(cx), "");
            tn_close(cx);
        }
}

static void a_nan_stays_with_its_query(void)
{
    for (int d = 0; d < 3; d++)
        for (int bad = 0; bad < 2; bad++) {
            tn_ctx *cx = open_quiet(places[d], 1);
            if (!cx) continue;
            double     y[6];
            float      q[] = { 1, bad ? INFINITY : NAN, 1, 1 };
            tn_tensor *k   = tn_ones(cx, TN_F32, TN_SHAPE(3, 2)),
                      *v   = tn_ones(cx, TN_F32, TN_SHAPE(3, 3));
            tn_tensor *r   = tn_attention(tn_from(cx, TN_F32, TN_SHAPE(2, 2), q), k, v,
                                          (tn_attention_opts){ 0 });
            CHECK_STATUS(tn_read(r, TN_F64, y, 6), TN_OK);
            for (int i = 0; i < 6; i++) CHECK(i < 3 ? isnan(y[i]) : fabs(y[i] - 1) < 1e-6);
            tn_close(cx);
        }
}

// ---- the switches ------------------------------------------------------------------------------

static void run_switched(const char *device, int step, const char *name, const char *value)
{
    setenv(name, value, 1);
    tn_ctx *cx = open_quiet(device, 2);
    unsetenv(name);
    for (int i = 0; cx && i < PROBLEMS; i += step) {
        tn_scope *s = tn_begin(cx);
        answer    a = record(cx, &problems[i]);
        for (int k = 0; k < a.leaves; k++) tn_want(a.gx[k]);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        test_that(!tn_error(cx), "%s, problem %d: %s", name, i, tn_error_text(cx));
        tn_error_clear(cx);
        tn_end(s);
    }
    tn_close(cx);
}

static void it_holds_before_the_switches(void)
{
    run_switched("cpu", 1, "TN_VERIFY", "1");
    run_switched("opencl", 4, "TN_VERIFY", "1");
    run_switched("cpu", 2, "TN_CHECK", "nan");
}

static void fails_for(tn_ctx *cx, tn_tensor *q, tn_tensor *k, tn_tensor *v, const char *text)
{
    CHECK(tn_attention(q, k, v, (tn_attention_opts){ 0 }) == NULL);
    CHECK_FAILED(cx, TN_ESHAPE, text);
}

static void heads_that_do_not_fit_are_named(void)
{
    tn_ctx *cx = tn_open("cpu");
    tn_on_error(cx, NULL, NULL);
    tn_tensor *q = tn_ones(cx, TN_F32, TN_SHAPE(2, 8, 5, 16)),
              *k = tn_ones(cx, TN_F32, TN_SHAPE(2, 3, 5, 16));
    fails_for(
        cx, q, k, k,
        "attention: q (2, 8, 5, 16) has 8 heads (axis -3), k (2, 3, 5, 16) 3 and v (2, 3, 5, 16) 3:"
        " those of k and v must be equal, or 1, and divide those of q");
    fails_for(cx, q, q, k, "has 8 heads (axis -3), k (2, 8, 5, 16) 8 and v (2, 3, 5, 16) 3");
    fails_for(
        cx, q, tn_ones(cx, TN_F32, TN_SHAPE(3, 8, 5, 16)), q,
        "attention: q (2, 8, 5, 16), k (3, 8, 5, 16) and v (2, 8, 5, 16): the axes before the last two"
        " do not broadcast");
    tn_tensor *one = tn_ones(cx, TN_F32, TN_SHAPE(2, 1, 5, 16));
    CHECK(tn_attention(q, one, one, (tn_attention_opts){ 0 }) != NULL);
    tn_close(cx);
}

// ---- what the header says of it

static double farthest(tn_tensor *a, tn_tensor *b)
{
    return tn_item(tn_max_all(tn_abs(tn_sub(a, b))));
}

// T queries and S keys, with one op and, by a dropout of nearly nothing, out of others.
static void check_promises(tn_ctx *cx, int64_t T, int64_t S, double dropout)
{
    tn_tensor *q  = tn_randn(cx, TN_F32, TN_SHAPE(2, 1, T, 4)), *k, *v, *y;
    tn_tensor *i  = tn_unsqueeze(tn_arange(cx, TN_I64, 0, (double)T, 1), 1);
    tn_tensor *j  = tn_arange(cx, TN_I64, 0, (double)S, 1);
    tn_tensor *le = tn_le(j, i), *blind = tn_logical_and(le, tn_ne_s(i, 1));
    k = tn_randn(cx, TN_F32, TN_SHAPE(3, S, 4));
    v = tn_randn(cx, TN_F32, TN_SHAPE(1, S, 5));
    y = tn_attention(q, k, v, (tn_attention_opts){ .causal = true, .dropout = dropout });
    CHECK(tn_rank(y) == 4 && tn_size(y, 0) == 2 && tn_size(y, 1) == 3 && tn_size(y, 3) == 5);
    tn_tensor *full = tn_attention(tn_contiguous(tn_expand(q, TN_SHAPE(2, 3, T, 4))),
                                   tn_contiguous(tn_expand(k, TN_SHAPE(2, 3, S, 4))),
                                   tn_contiguous(tn_expand(v, TN_SHAPE(2, 3, S, 5))),
                                   (tn_attention_opts){ .mask = le, .dropout = dropout });
    CHECK_NEAR(farthest(y, full), 0, 1e-5);
    CHECK_NEAR(farthest(tn_select(y, 2, 0), tn_select(v, 1, 0)), 0, 1e-5);  // query 0, key 0 alone
    y = tn_attention(q, k, v, (tn_attention_opts){ .mask = blind, .dropout = dropout });
    CHECK(tn_item(tn_max_all(tn_abs(tn_select(y, 2, 1)))) == 0);
    CHECK_NEAR(farthest(tn_select(y, 2, 2), tn_select(full, 2, 2)), 0, 1e-5);
}

static void leading_sizes_broadcast_causal_counts_from_the_first_and_blind_rows_are_0(void)
{
    const char *devices[] = { "cpu", "ref", "opencl" };
    for (int d = 0; d < 3; d++) {
        tn_ctx *cx = tn_open(devices[d]);
        if (!cx) continue;
        for (int way = 0; way < 2; way++) {
            check_promises(cx, 3, 7, way ? 1e-12 : 0);
            check_promises(cx, 7, 3, way ? 1e-12 : 0);
        }
        CHECK(tn_error(cx) == TN_OK);
        tn_close(cx);
    }
}

const test_case tests_attention[] = {
    TEST(leading_sizes_broadcast_causal_counts_from_the_first_and_blind_rows_are_0),
    TEST(cpu_agrees_with_ref),
    TEST(opencl_agrees_with_ref),
    TEST(a_device_without_the_op_agrees_with_ref),
    TEST(it_is_what_other_ops_make),
    TEST(threads_change_no_bit),
    TEST(heads_come_and_go_without_a_copy),
    TEST(it_has_one_step_back),
    TEST(what_it_does_not_do_is_left_to_other_ops),
    TEST(leading_axes_are_batches_and_heads),
    TEST(a_query_that_sees_nothing_gives_zeros),
    TEST(a_nan_stays_with_its_query),
    TEST(it_holds_before_the_switches),
    TEST(heads_that_do_not_fit_are_named),
    TEST_END,
};
