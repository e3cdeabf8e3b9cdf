// test_flash.c: the kernels of attention on the tensor cores: that their texts compile for the
// chips that they are for, fit into them and spill nothing; and, where there is a GPU, what they
// give, over every option.
#include "check.h"

#include "gpu_parts.h"
#include "on_device.h"

#include "device/cuda/cubin.h"
#include "device/cuda/driver.h"
#include "device/cuda/flash.h"
#include "tensor/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- texts -------------------------------------------------------------------------------------

// What one block may use on every chip of a kind: bytes of shared memory.
enum { HOPPER_SHARED = 227 * 1024, AMPERE_SHARED = 163 * 1024 };

static void compile_case(const tni_flash_case *x)
{
    tni_heap    heap = tni_heap_default();
    tni_text    why  = { "" };
    tni_cubin   c    = { 0 };
    tni_usage   u    = { 0 };
    const char *name = tni_flash_kernel(x->part), *chip = x->wgmma       ? "sm_90a"
                                                          : x->ranks > 1 ? "sm_90"
                                                                         : "sm_80";
    char       *text = tni_flash_source(&heap, x);
    if (!CHECK(text != NULL)) return;
    CHECK_INT(strstr(text, "wgmma.") != NULL, x->wgmma);
    tn_status s = tni_cubin_compile(&c, text, chip, true, &why);
    test_case_result(s == TN_OK && !strstr(c.log, "warning"), "%s for %s, D %d, E %d: %s", name,
                     chip, x->D, x->E, s == TN_OK ? c.log : why.s);
    if (s == TN_OK && CHECK(tni_cubin_usage(&c, name, &u)))
        test_case_result(u.spills == 0 && u.stack == 0 && !strstr(c.log, "serialized"),
                         "%s for %s, D %d, E %d: %d bytes spilled, %d of stack", name, chip, x->D,
                         x->E, u.spills, u.stack);
    test_case_result(u.shared + tni_flash_shared(x) <= (x->wgmma ? HOPPER_SHARED : AMPERE_SHARED),
                     "%s for %s, D %d, E %d: %d bytes of shared memory", name, chip, x->D, x->E,
                     u.shared + tni_flash_shared(x));
    tni_cubin_free(&c);
    tni_free(&heap, text);
}

// Every kernel by both kinds of product at the widths that choose other tiles; options are spread
// over them.
static void texts_compile_for_their_chips_and_do_not_spill(void)
{
    static const struct {
        int D, E;
    } widths[]   = { { 64, 64 }, { 128, 128 }, { 256, 256 } };
    tni_text why = { "" };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    int n = test_long() ? 3 : 2;
    for (int part = TNI_FLASH_FORWARD; part <= TNI_FLASH_KEYS; part++)
        for (int i = 0; i < n; i++)
            for (int wgmma = 0; wgmma < 2; wgmma++)
                compile_case(&(tni_flash_case){ .part    = (tni_flash_part)part,
                                                .D       = widths[i].D,
                                                .E       = widths[i].E,
                                                .aligned = true,
                                                .wgmma   = wgmma,
                                                .causal  = true });
}

// The functions of a mask (B, 1, T, S).
static char *mask_text(bool added)
{
    tni_heap     heap = tni_heap_default();
    tni_flash_in in   = { .extra = { { added ? TN_F16 : TN_BOOL, { 1, 0, 1, 1 }, true, true } },
                          .size  = { 2, 3, 100, 77 } };
    return tni_flash_program(&heap, tni_flash_mask(added), &in);
}

static void texts_of_every_option_compile(void)
{
    tni_text why  = { "" };
    tni_heap heap = tni_heap_default();
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    tni_flash_case all = { .D       = 64,
                           .E       = 64,
                           .rows    = 1,
                           .aligned = true,
                           .window  = true,
                           .lengths = true,
                           .dropout = true,
                           .f16     = true,
                           .program = mask_text(true) };
    for (int part = TNI_FLASH_FORWARD; part <= TNI_FLASH_DECODE; part++) {
        all.part  = (tni_flash_part)part;
        all.quads = part % 2;
        compile_case(&all);
    }
    char *mask = mask_text(false);
    compile_case(&(tni_flash_case){
        .part = TNI_FLASH_KEYS, .D = 33, .E = 7, .causal = true, .program = mask });
    for (int rows = 1; rows <= TNI_FLASH_DECODE_ROWS; rows *= 4)
        compile_case(&(tni_flash_case){ .part    = TNI_FLASH_DECODE,
                                        .D       = 128,
                                        .E       = 128,
                                        .rows    = rows,
                                        .ranks   = rows > 1 ? 8 : 1,
                                        .aligned = true,
                                        .causal  = true,
                                        .lengths = true });
    tni_free(&heap, mask);
    tni_free(&heap, (char *)all.program);
}

// scale q . k - slope_h (i - j), as ops/score.h has it.
static tni_score alibi(void)
{
    enum { F = TN_F32, L = TN_I64 };
    tni_score s = { .sources = 1, .count = 8, .all = 9, .slope = 8, .source_slope = { 4 } };
    s.op[0]     = (tni_score_op){ .op = TNI_matmul, .dtype = F };
    s.op[1]     = (tni_score_op){ .op = TNI_iota, .dtype = L, .di = 1, .step = { 0, 0, 0, 1 } };
    s.op[2]     = (tni_score_op){ .op = TNI_iota, .dtype = L, .di = 1, .step = { 0, 0, 1, 0 } };
    s.op[3]     = (tni_score_op){ .op = TNI_sub, .dtype = L, .src = { 1, 2 } };
    s.op[4]     = (tni_score_op){ .op = TNI_cast, .dtype = F, .src = { 3 } };
    s.op[5]     = (tni_score_op){ .op = TNI_leaf, .dtype = F };
    s.op[6]     = (tni_score_op){ .op = TNI_mul, .dtype = F, .src = { 4, 5 } };
    s.op[7]     = (tni_score_op){ .op = TNI_add, .dtype = F, .src = { 0, 6 } };
    s.op[8]     = (tni_score_op){ .op = TNI_scalar, .dtype = F, .f = 1 };
    return s;
}

// 20 tanh(x / 20) where the key is not after the query, else -inf.
static tni_score softcap(void)
{
    enum { F = TN_F32, L = TN_I64 };
    tni_score s = { .count = 9, .all = 12, .slope = 11, .source_slope = { -1 } };
    s.op[0]     = (tni_score_op){ .op = TNI_matmul, .dtype = F };
    s.op[1]     = (tni_score_op){ .op = TNI_scalar, .dtype = F, .f = 0.05 };
    s.op[2]     = (tni_score_op){ .op = TNI_mul, .dtype = F, .src = { 0, 1 } };
    s.op[3]     = (tni_score_op){ .op = TNI_tanh, .dtype = F, .src = { 2 } };
    s.op[4]     = (tni_score_op){ .op = TNI_iota, .dtype = L, .di = 1, .step = { 0, 0, 1, -1 } };
    s.op[5]     = (tni_score_op){ .op = TNI_scalar, .dtype = L, .i = 0 };
    s.op[6]     = (tni_score_op){ .op = TNI_ge, .dtype = TN_BOOL, .src = { 4, 5 } };
    s.op[7]     = (tni_score_op){ .op = TNI_scalar, .dtype = F, .f = -INFINITY };
    s.op[8]     = (tni_score_op){ .op = TNI_where, .dtype = F, .src = { 6, 3, 7 } };
    s.op[9]     = (tni_score_op){ .op = TNI_mul, .dtype = F, .src = { 3, 3 } };
    s.op[10]    = (tni_score_op){ .op = TNI_scalar, .dtype = F, .f = 1 };
    s.op[11]    = (tni_score_op){ .op = TNI_sub, .dtype = F, .src = { 10, 9 } };
    return s;
}

// The gradient of the source, one number a head, is added up by flash_queries.
static void compile_program(const tni_score *score, const tni_flash_in *in, bool narrow)
{
    tni_heap heap = tni_heap_default();
    char    *text = tni_flash_program(&heap, score, in);
    if (!CHECK(text != NULL)) return;
    CHECK_INT(strstr(text, "m_long v") == NULL, narrow);
    for (int part = TNI_FLASH_FORWARD; part <= TNI_FLASH_KEYS; part++) {
        unsigned grads = part == TNI_FLASH_QUERIES && score->source_slope[0] >= 0;
        bool     heavy = tni_flash_is_heavy(score, in, (tni_flash_part)part, grads);
        compile_case(&(tni_flash_case){ .part       = (tni_flash_part)part,
                                        .D          = 64,
                                        .E          = 64,
                                        .aligned    = true,
                                        .wgmma      = true,
                                        .causal     = true,
                                        .heavy      = heavy,
                                        .grads      = grads,
                                        .row_grads  = grads,
                                        .head_grads = grads,
                                        .program    = text });
    }
    tni_free(&heap, text);
}

// Places are computed in 32 bits if they fit.
static void score_programs_compile_and_do_not_spill(void)
{
    tni_text     why = { "" };
    tni_score    a = alibi(), b = softcap();
    tni_flash_in near = { .extra = { { TN_BF16, { 0, 1, 0, 0 }, false, true } },
                          .size  = { 32, 12, 1024, 1024 } };
    tni_flash_in far  = { .size = { 1, 1, 1, INT64_C(1) << 40 } };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    compile_program(&a, &near, true);
    compile_program(&b, &far, false);
}

// x where the number of the query's document and that of the key's compare so, or do not, else
// -inf.
static tni_score documents(int op, bool seen, bool swapped)
{
    enum { F = TN_F32 };
    tni_score s = { .sources = 2, .count = 6, .all = 7, .slope = 6, .source_slope = { -1, -1 } };
    s.op[0]     = (tni_score_op){ .op = TNI_matmul, .dtype = F };
    s.op[1]     = (tni_score_op){ .op = TNI_leaf, .dtype = TN_I64, .source = swapped };
    s.op[2]     = (tni_score_op){ .op = TNI_leaf, .dtype = TN_I64, .source = !swapped };
    s.op[3]     = (tni_score_op){ .op = (uint16_t)op, .dtype = TN_BOOL, .src = { 1, 2 } };
    s.op[4]     = (tni_score_op){ .op = TNI_scalar, .dtype = F, .f = -INFINITY };
    s.op[5]     = (tni_score_op){ .op = TNI_where, .dtype = F, .src = { 3, 4, 0 } };
    s.op[6]     = (tni_score_op){ .op = TNI_scalar, .dtype = F, .f = 1 };
    if (seen) s.op[5].src[1] = 0, s.op[5].src[2] = 4;
    return s;
}

// From the least and the largest of both sides it follows that all of a tile is hidden.
static void tiles_that_a_program_hides_are_left_out(void)
{
    static const struct {
        int         op;
        bool        seen, swapped;
        const char *hides;
    } row[] = {
        { TNI_ne, false, false, "q[1] < k[0] || k[1] < q[0]" },
        { TNI_eq, true, true, "q[1] < k[0] || k[1] < q[0]" },
        { TNI_eq, false, false, "q[0] == k[1] && q[1] == k[0] && q[0] == q[1]" },
        { TNI_lt, false, false, "q[1] < k[0]" },
        { TNI_le, true, true, "q[1] < k[0]" },
        { TNI_ge, false, true, "q[1] <= k[0]" },
        { TNI_lt, true, false, "q[0] >= k[1]" },
        { TNI_gt, false, false, "q[0] > k[1]" },
    };
    tni_heap     heap = tni_heap_default();
    tni_text     why  = { "" };
    tni_flash_in in   = { .extra = { { TN_I64, { 1, 0, 1, 0 }, false, true },
                                     { TN_I64, { 1, 0, 0, 1 }, true, true } },
                          .size  = { 32, 12, 1024, 1024 } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        tni_score s    = documents(row[i].op, row[i].seen, row[i].swapped);
        char     *text = tni_flash_program(&heap, &s, &in), want[96];
        snprintf(want, sizeof want, "{ return %s; }", row[i].hides);
        test_case_result(text && strstr(text, want), "row %zu: no %s", i, want);
        tni_free(&heap, text);
    }
    tni_score s = documents(TNI_ne, false, false);
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    compile_program(&s, &in, false);
}

// ---- on a GPU ----------------------------------------------------------------------------------

enum { PARTS = 8, MOST = 1 << 20 };

typedef enum { NO_MASK, BOOLS, NUMBERS, KEYS } masking;  // KEYS: bools (B, 1, 1, S)

// B batches, H heads of queries and K of keys, T queries, S keys, D and E wide; packed: operands
// are slices of one tensor; odd: their rows begin at odd addresses.
typedef struct {
    int64_t  B, H, K, T, S, D, E;
    tn_dtype dtype;
    bool     causal;
    int64_t  window;
    masking  mask;
    bool     lengths, packed, odd;
    double   dropout, scale;
    bool     learned;  // the mask gets a gradient
} form;

static const form forms[] = {
    { 2, 3, 3, 128, 128, 64, 64, TN_BF16, .causal = true },
    { 2, 3, 3, 200, 200, 64, 64, TN_F16, .packed = true },
    { 1, 2, 2, 300, 300, 128, 128, TN_BF16, .causal = true, .packed = true },
    { 2, 4, 2, 77, 131, 64, 64, TN_BF16, .causal = true },
    { 2, 4, 1, 130, 70, 128, 128, TN_F16, .causal = false },
    { 1, 2, 2, 256, 256, 64, 64, TN_BF16, .causal = true, .window = 50 },
    { 1, 2, 2, 200, 256, 32, 32, TN_BF16, .window = 33 },
    { 4, 2, 1, 60, 300, 64, 64, TN_BF16, .causal = true, .lengths = true },
    { 4, 2, 2, 60, 300, 64, 64, TN_F16, .causal = true, .window = 70, .lengths = true },
    { 3, 2, 2, 100, 300, 64, 64, TN_BF16, .lengths = true },
    { 2, 2, 2, 100, 100, 64, 64, TN_BF16, .mask = BOOLS },
    { 2, 2, 1, 100, 90, 128, 128, TN_F16, .mask = NUMBERS, .causal = true },
    { 2, 2, 2, 70, 130, 64, 64, TN_BF16, .mask = KEYS },
    { 2, 2, 2, 100, 130, 64, 64, TN_BF16, .mask = NUMBERS, .learned = true },
    { 1, 2, 1, 130, 130, 128, 128, TN_F16, .mask = NUMBERS, .causal = true, .learned = true },
    { 2, 2, 2, 128, 128, 64, 64, TN_BF16, .dropout = 0.2, .causal = true },
    { 2, 4, 2, 100, 99, 64, 32, TN_F16, .dropout = 0.5 },
    { 2, 2, 2, 100, 100, 8, 8, TN_BF16, .causal = true },
    { 2, 2, 2, 100, 100, 24, 40, TN_F16, .causal = true },
    { 2, 2, 2, 130, 130, 80, 80, TN_BF16, .causal = true },
    { 1, 2, 1, 130, 130, 192, 128, TN_F16, .causal = true },
    { 1, 2, 2, 130, 130, 256, 256, TN_BF16, .causal = true },
    { 2, 2, 2, 100, 100, 64, 64, TN_BF16, .causal = true, .odd = true },
    { 2, 2, 1, 100, 77, 33, 7, TN_F16, .causal = true },
    { 2, 2, 2, 100, 100, 64, 64, TN_BF16, .causal = true, .scale = -0.2 },
    { 1, 12, 12, 1, 1024, 64, 64, TN_BF16, .causal = true, .lengths = true },
    { 3, 8, 2, 1, 700, 64, 64, TN_BF16, .causal = true, .lengths = true },
    { 2, 4, 2, 3, 500, 128, 128, TN_F16, .causal = true, .lengths = true },
    { 2, 6, 6, 2, 900, 80, 40, TN_BF16, .window = 100, .lengths = true },
    { 2, 4, 4, 1, 300, 64, 64, TN_F16, .mask = NUMBERS },
    { 2, 4, 4, 1, 77, 33, 7, TN_BF16, .mask = KEYS, .odd = true },
};
enum { FORMS = sizeof forms / sizeof *forms };

// What is computed: the result and, where there are more queries than flash_decode takes, the
// gradients.
typedef struct {
    tn_tensor *y, *gx[4];
    int        grads;
    tni_text   declined;  // why the device does not run it
} answer;

// Numbers of a dtype, the same on every device.
static tn_tensor *operand(tn_ctx *cx, const form *f, int64_t heads, int64_t rows, int64_t width)
{
    int64_t    size[] = { f->B, rows, heads, width + 3 * f->odd };
    tn_tensor *x      = tn_cast(tn_randn(cx, TN_F32, 4, size), f->dtype);
    x                 = tn_requires_grad(x, true);
    return f->odd ? tn_slice(x, 3, 1, 1 + width, 1) : x;
}

static tn_tensor *mask_of(tn_ctx *cx, const form *f)
{
    tn_tensor *x = tn_rand(cx, TN_F32, TN_SHAPE(f->H, f->T, f->S));
    tn_tensor *k = tn_rand(cx, TN_F32, TN_SHAPE(f->B, 1, 1, f->S));
    switch (f->mask) {
    case BOOLS: return tn_gt_s(x, 0.3);
    case NUMBERS: return tn_where(tn_gt_s(x, 0.2), x, tn_full(cx, TN_F32, TN_0D, -INFINITY));
    case KEYS: return tn_gt_s(k, 0.4);
    default: return NULL;
    }
}

// Lengths from nothing to all keys.
static tn_tensor *lengths_of(tn_ctx *cx, const form *f)
{
    int32_t n[8] = { 0 };
    for (int64_t b = 0; b < f->B; b++)
        n[b] = (int32_t)(f->B == 1 ? f->S - 5 : f->S * b / (f->B - 1));
    return f->lengths ? tn_from(cx, TN_I32, TN_SHAPE(f->B), n) : NULL;
}

static answer answer_of(tn_ctx *cx, const form *f)
{
    answer     a = { .grads = f->T <= TNI_FLASH_DECODE_ROWS ? 0 : f->packed ? 1 : 3 };
    tn_tensor *x[4], *v[3];
    tn_seed(cx, 5);
    x[0] = operand(cx, f, f->packed ? f->H + 2 * f->K : f->H, f->T, f->D);
    for (int i = 1; i < 3; i++)
        x[i] = f->packed ? tn_slice(x[0], 2, f->H + (i - 1) * f->K, f->H + i * f->K, 1)
                         : operand(cx, f, f->K, f->S, i == 1 ? f->D : f->E);
    for (int i = 0; i < 3; i++)
        v[i] = tn_transpose(!i && f->packed ? tn_slice(x[0], 2, 0, f->H, 1) : x[i], 1, 2);
    x[3] = mask_of(cx, f);
    if (f->learned) x[a.grads++] = x[3] = tn_requires_grad(tn_cast(x[3], f->dtype), true);
    tn_attention_opts o = { .causal  = f->causal,
                            .mask    = x[3],
                            .window  = f->window,
                            .lengths = lengths_of(cx, f),
                            .dropout = f->dropout,
                            .scale   = f->scale };
    tn_tensor        *g = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(f->B, f->H, f->T, f->E)), f->dtype);
    a.y                 = tn_attention(v[0], v[1], v[2], o);
    if (a.grads && tn_grad(1, &a.y, a.grads, x, &g, a.gx) != TN_OK) a.y = NULL;
    a.declined = cx->declined;
    return a;
}

// How far y is from what it should be, as a part of the largest element.
static double apart(tn_tensor *x, tn_tensor *y)
{
    static double a[MOST], b[MOST];
    double        most = 1e-30, far = 0;
    int64_t       n = x && y ? tn_count(y) : 0;
    if (n <= 0 || n > MOST || tn_read(x, TN_F64, a, n) != TN_OK ||
        tn_read(y, TN_F64, b, n) != TN_OK)
        return INFINITY;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(b[i]));
        far  = isnan(a[i]) ? INFINITY : fmax(far, fabs(a[i] - b[i]));
    }
    return far / most;
}

// Weights, and in the gradient those of scores, are rounded to 16 bits on the way.
static void run_form(tn_ctx *const *cx, const form *f, int number)
{
    tn_scope *scope[] = { tn_begin(cx[0]), tn_begin(cx[1]) };
    answer    a = answer_of(cx[0], f), b = answer_of(cx[1], f);
    double    part = f->dtype == TN_F16 ? 2e-3 : 1.6e-2, far = apart(a.y, b.y);
    test_case_result(far <= part, "form %d: result off by %g: %s", number, far,
                     tn_error_text(cx[0]));
    for (int i = 0; i < a.grads; i++) {
        far = apart(a.gx[i], b.gx[i]);
        test_case_result(far <= 2 * part, "form %d: gradient %d off by %g: %s", number, i, far,
                         tn_error_text(cx[0]));
    }
    test_case_result(!*a.declined.s, "form %d: %s", number, a.declined.s);
    for (int i = 0; i < 2; i++) tn_end(scope[i]);
}

// Without cuDNN, whatever is installed.
static void run_forms(int part, int parts)
{
    setenv("TN_CUDNN", "0", 1);
    tn_ctx *cx[] = { open_seeded(tested_device(), 5), open_seeded("ref", 5) };
    for (int i = part; CHECK(cx[0] && cx[1]) && i < FORMS; i += parts) run_form(cx, &forms[i], i);
    for (int i = 0; i < 2; i++) tn_close(cx[i]);
}

static void every_form_agrees_with_ref_on_a_gpu(void)
{
    in_parts(run_forms, PARTS);
}

const test_case tests_flash[] = {
    TEST(texts_compile_for_their_chips_and_do_not_spill),
    TEST(texts_of_every_option_compile),
    TEST(score_programs_compile_and_do_not_spill),
    TEST(tiles_that_a_program_hides_are_left_out),
    TEST(every_form_agrees_with_ref_on_a_gpu),
    TEST_END,
};
