// test_table.c: every row of ops.def, for every dtype it takes and layouts of all kinds, on the cpu
// device against the reference device; promotion against a table written out by hand; the composed
// ops; random numbers; numbers of threads; fallbacks; sizes past 2^31.
#include "check.h"
#include "registers.h"
#include "table.h"

#include "device_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// The device under test and the reference, opened for one test.
static tn_ctx *cpu, *ref;

static void open_both(void)
{
    cpu = open_quiet("cpu", 2);
    ref = open_quiet("ref", 1);
    test_that(cpu && ref, "no context: %s", tn_error_text(NULL));
    table_seed(1);
}

static void close_both(void)
{
    tn_close(cpu);
    tn_close(ref);
}

// ---- the rows ----------------------------------------------------------------------------------

static void every_row_has_a_generator(void)
{
    for (int op = 0; op < TNI_OPS; op++) {
        row r = row_of(op);
        test_case_result(r.build || r.why, "%s: no generator in table_rows.c",
                         tni_op_table[op].name);
    }
}

// The error that a case is to end with.
static tn_status expected_error(const row *r, const sample *s)
{
    tn_dtype result;
    if (r->refuses) return r->refuses(s);
    return row_dtype(s->op, s->dt, &result) ? TN_OK : TN_EDTYPE;
}

// The dtype that it is to give. A number without a fraction counts as an integer: it makes i64 of
// bool and takes any other dtype.
static tn_dtype result_dtype(const sample *s)
{
    tn_dtype result;
    if (s->op == TNI_cast) return all_dtypes[s->variant];
    if (s->op == TNI_output && s->variant == 1) return TN_I64;
    if (s->op == TNI_scalar && s->dt == TN_BOOL) return TN_I64;
    row_dtype(s->op, s->dt, &result);
    return result;
}

static bool refused(tn_tensor *y, tn_ctx *cx, tn_status want)
{
    return !y && tn_error(cx) == want;
}

// Both contexts record the sample, and what they give is compared.
static void run_sample(const row *r, sample *s)
{
    tn_scope  *scopes[] = { tn_begin(cpu), tn_begin(ref) };
    tn_tensor *x[2][INPUTS], *y[2];
    char       text[256] = "";
    if (r->inputs) r->inputs(s);
    for (int k = 0; k < 2; k++) {
        tn_ctx *cx = k ? ref : cpu;
        for (int i = 0; i < s->nin; i++) x[k][i] = input_put(&s->in[i], cx);
        y[k] = r->build(s, cx, x[k]);
    }
    tn_status want = expected_error(r, s);
    bool      ok;
    if (want != TN_OK) {
        ok = refused(y[0], cpu, want) && refused(y[1], ref, want);
        snprintf(text, sizeof text, "not refused with %s: \"%s\"", tn_status_name(want),
                 tn_error_text(cpu));
    } else {
        tolerance t = { .how = r->how, .depth = s->depth };
        if (r->bound && y[0] && tni_is_float(tn_dtype_of(y[0]))) t.bound = r->bound(s, ref, x[1]);
        ok = agrees(y[0], y[1], t, text);
        if (ok && tn_dtype_of(y[0]) != result_dtype(s)) {
            ok = false;
            snprintf(text, sizeof text, "gives %s", tn_dtype_name(tn_dtype_of(y[0])));
        }
    }
    test_case_result(ok, "%s %s %s %d: %s %s%s", tni_op_table[s->op].name, tn_dtype_name(s->dt),
                     layout_names[s->lay], s->variant, text, ok ? "" : tn_error_text(cpu),
                     ok ? "" : tn_error_text(ref));
    tn_error_clear(cpu);
    tn_error_clear(ref);
    tn_end(scopes[0]);
    tn_end(scopes[1]);
    for (int i = 0; i < s->nin; i++) input_free(&s->in[i]);
}

// What cannot be recorded at all: the gradients of conv, but by conv, which takes floats.
static bool unreachable(const row *r, const sample *s)
{
    if (r->source) return s->lay != PLAIN && s->lay != EMPTY && s->lay != ZERO_D;
    return (s->op == TNI_conv_dgrad || s->op == TNI_conv_wgrad) &&
           (!tni_is_float(s->dt) || s->lay == ZERO_D);
}

// Every variant in every dtype row-major, and a third of the other layouts: each layout has another
// third of the dtypes, so that every op meets every layout too. `make test-long` takes all of them.
static bool is_in_sample(const sample *s, int d)
{
    return test_long() || s->lay == PLAIN || (d + (int)s->lay + s->variant) % 3 == 0;
}

static void run_row(int op)
{
    row r = row_of(op);
    for (int d = 0; r.build && d < DTYPES; d++)
        for (int lay = 0; lay < LAYOUTS; lay++)
            for (int variant = 0; variant < r.variants; variant++) {
                sample s = { .op = op, .dt = all_dtypes[d], .lay = lay, .variant = variant };
                if (is_in_sample(&s, d) && !unreachable(&r, &s)) run_sample(&r, &s);
            }
}

static void run_class(tni_class class)
{
    open_both();
    for (int op = 0; cpu && ref && op < TNI_OPS; op++)
        if (tni_op_table[op].class == class) run_row(op);
    close_both();
}

static void maps_of_one_input_agree(void)
{
    run_class(TNI_UNARY);
    run_class(TNI_CAST);
}

static void maps_of_two_inputs_agree(void)
{
    run_class(TNI_BINARY);
}

static void choices_agree(void)
{
    run_class(TNI_TERNARY);
}

static void reductions_agree(void)
{
    run_class(TNI_REDUCE);
}

static void scans_agree(void)
{
    run_class(TNI_SCAN);
}

static void sources_agree(void)
{
    run_class(TNI_SOURCE);
}

static void movement_agrees(void)
{
    run_class(TNI_MOVE);
}

static void writes_agree(void)
{
    run_class(TNI_EFFECT);
}

static void library_ops_agree(void)
{
    run_class(TNI_LIBRARY);
}

// ---- promotion ---------------------------------------------------------------------------------

// PyTorch's torch.promote_types, by hand; of u16, u32 and u64 with other integers, for which it has
// no rule, numpy.promote_types. In the order of dtype.def.
// clang-format off
#define B_   TN_BOOL
#define U8_  TN_U8
#define I8_  TN_I8
#define I16_ TN_I16
#define U16_ TN_U16
#define I32_ TN_I32
#define U32_ TN_U32
#define I64_ TN_I64
#define U64_ TN_U64
#define H_   TN_F16
#define BF_  TN_BF16
#define F_   TN_F32
#define D_   TN_F64
static const tn_dtype promoted[DTYPES][DTYPES] = {
    /*          bool  u8    i8    i16   u16   i32   u32   i64   u64   f16   bf16  f32   f64 */
    /* bool */ { B_,   U8_,  I8_,  I16_, U16_, I32_, U32_, I64_, U64_, H_,   BF_,  F_,   D_ },
    /* u8   */ { U8_,  U8_,  I16_, I16_, U16_, I32_, U32_, I64_, U64_, H_,   BF_,  F_,   D_ },
    /* i8   */ { I8_,  I16_, I8_,  I16_, I32_, I32_, I64_, I64_, D_,   H_,   BF_,  F_,   D_ },
    /* i16  */ { I16_, I16_, I16_, I16_, I32_, I32_, I64_, I64_, D_,   H_,   BF_,  F_,   D_ },
    /* u16  */ { U16_, U16_, I32_, I32_, U16_, I32_, U32_, I64_, U64_, H_,   BF_,  F_,   D_ },
    /* i32  */ { I32_, I32_, I32_, I32_, I32_, I32_, I64_, I64_, D_,   H_,   BF_,  F_,   D_ },
    /* u32  */ { U32_, U32_, I64_, I64_, U32_, I64_, U32_, I64_, U64_, H_,   BF_,  F_,   D_ },
    /* i64  */ { I64_, I64_, I64_, I64_, I64_, I64_, I64_, I64_, D_,   H_,   BF_,  F_,   D_ },
    /* u64  */ { U64_, U64_, D_,   D_,   U64_, D_,   U64_, D_,   U64_, H_,   BF_,  F_,   D_ },
    /* f16  */ { H_,   H_,   H_,   H_,   H_,   H_,   H_,   H_,   H_,   H_,   F_,   F_,   D_ },
    /* bf16 */ { BF_,  BF_,  BF_,  BF_,  BF_,  BF_,  BF_,  BF_,  BF_,  F_,   BF_,  F_,   D_ },
    /* f32  */ { F_,   F_,   F_,   F_,   F_,   F_,   F_,   F_,   F_,   F_,   F_,   F_,   D_ },
    /* f64  */ { D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_ },
};
// A tensor with axes (row) and a 0-d one (column): that has a say only where it is of a higher
// kind: bool, integer, float.
static const tn_dtype promoted_0d[DTYPES][DTYPES] = {
    /*          bool  u8    i8    i16   u16   i32   u32   i64   u64   f16   bf16  f32   f64 */
    /* bool */ { B_,   U8_,  I8_,  I16_, U16_, I32_, U32_, I64_, U64_, H_,   BF_,  F_,   D_ },
    /* u8   */ { U8_,  U8_,  U8_,  U8_,  U8_,  U8_,  U8_,  U8_,  U8_,  H_,   BF_,  F_,   D_ },
    /* i8   */ { I8_,  I8_,  I8_,  I8_,  I8_,  I8_,  I8_,  I8_,  I8_,  H_,   BF_,  F_,   D_ },
    /* i16  */ { I16_, I16_, I16_, I16_, I16_, I16_, I16_, I16_, I16_, H_,   BF_,  F_,   D_ },
    /* u16  */ { U16_, U16_, U16_, U16_, U16_, U16_, U16_, U16_, U16_, H_,   BF_,  F_,   D_ },
    /* i32  */ { I32_, I32_, I32_, I32_, I32_, I32_, I32_, I32_, I32_, H_,   BF_,  F_,   D_ },
    /* u32  */ { U32_, U32_, U32_, U32_, U32_, U32_, U32_, U32_, U32_, H_,   BF_,  F_,   D_ },
    /* i64  */ { I64_, I64_, I64_, I64_, I64_, I64_, I64_, I64_, I64_, H_,   BF_,  F_,   D_ },
    /* u64  */ { U64_, U64_, U64_, U64_, U64_, U64_, U64_, U64_, U64_, H_,   BF_,  F_,   D_ },
    /* f16  */ { H_,   H_,   H_,   H_,   H_,   H_,   H_,   H_,   H_,   H_,   H_,   H_,   H_ },
    /* bf16 */ { BF_,  BF_,  BF_,  BF_,  BF_,  BF_,  BF_,  BF_,  BF_,  BF_,  BF_,  BF_,  BF_ },
    /* f32  */ { F_,   F_,   F_,   F_,   F_,   F_,   F_,   F_,   F_,   F_,   F_,   F_,   F_ },
    /* f64  */ { D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_,   D_ },
};
// clang-format on

// A case of two dtypes: which operand is 0-d, if any.
typedef enum { BOTH_AXES, RIGHT_0D, LEFT_0D, BOTH_0D, STRENGTHS } strengths;

// Of two places in all_dtypes.
static tn_dtype promote_by_hand(int a, int b, strengths which)
{
    if (which == RIGHT_0D) return promoted_0d[a][b];
    if (which == LEFT_0D) return promoted_0d[b][a];
    return promoted[a][b];
}

static void run_pair(int op, int i, int j, strengths which)
{
    tn_dtype                 a = all_dtypes[i], b = all_dtypes[j];
    static const char *const names[]  = { "", ", b 0-d", ", a 0-d", ", both 0-d" };
    tn_scope                *scopes[] = { tn_begin(cpu), tn_begin(ref) };
    int64_t                  size     = 33;
    mood                     right    = op == TNI_shl || op == TNI_shr ? SHIFTS : WILD;
    input      in[] = { input_make(a, which >= LEFT_0D ? ZERO_D : PLAIN, 1, &size, WILD),
                        input_make(b, which & 1 ? ZERO_D : PLAIN, 1, &size, right) };
    tn_tensor *y    = tni_binary(op, input_put(&in[0], cpu), input_put(&in[1], cpu));
    tn_tensor *x[]  = { input_put(&in[0], ref), input_put(&in[1], ref) };
    tn_tensor *z    = tni_binary(op, x[0], x[1]);
    row        r    = row_of(op);
    tolerance  t    = { .how = ULPS, .depth = 1 };
    tn_dtype   want;
    bool       takes = row_dtype(op, promote_by_hand(i, j, which), &want), ok;
    // An op that adds up (logaddexp) is bounded by what it adds: of a result near 0 a unit is next
    // to nothing.
    if (r.how == SUMS && z && tni_is_float(tn_dtype_of(z)))
        t = (tolerance){ SUMS, .depth = 1, .bound = r.bound(&(sample){ .op = op }, ref, x) };
    char text[256] = "refused, or not";
    if (!takes) ok = refused(y, cpu, TN_EDTYPE) && refused(z, ref, TN_EDTYPE);
    else if (y && tn_dtype_of(y) != want)
        ok = false, snprintf(text, sizeof text, "gives %s, not %s", tn_dtype_name(tn_dtype_of(y)),
                             tn_dtype_name(want));
    else ok = agrees(y, z, t, text);
    test_case_result(ok, "%s of %s and %s%s: %s", tni_op_table[op].name, tn_dtype_name(a),
                     tn_dtype_name(b), names[which], text);
    tn_error_clear(cpu);
    tn_error_clear(ref);
    tn_end(scopes[0]);
    tn_end(scopes[1]);
    input_free(&in[0]);
    input_free(&in[1]);
}

static void pairs_of_dtypes_promote_as_in_pytorch(void)
{
    open_both();
    for (int op = 0; op < TNI_OPS; op++)
        for (int a = 0; tni_op_table[op].class == TNI_BINARY && a < DTYPES; a++)
            for (int b = 0; b < DTYPES; b++)
                for (int which = 0; which < STRENGTHS; which++)
                    run_pair(op, a, b, (strengths)which);
    close_both();
}

// where's choices and concat's parts promote too: a tensor with axes and another.
static void choices_and_parts_promote_as_in_pytorch(void)
{
    int64_t size = 9;
    open_both();
    for (int i = 0; i < DTYPES; i++)
        for (int j = 0; j < DTYPES; j++) {
            tn_dtype a = all_dtypes[i], b = all_dtypes[j];
            input    in[] = { input_make(a, PLAIN, 1, &size, WILD),
                              input_make(b, PLAIN, 1, &size, WILD) };
            for (int op = 0; op < 2; op++) {
                tn_tensor *y[2];
                char       text[256];
                for (int k = 0; k < 2; k++) {
                    tn_ctx    *cx  = k ? ref : cpu;
                    tn_tensor *x[] = { input_put(&in[0], cx), input_put(&in[1], cx) };
                    tn_tensor *odd = tn_eq_s(tn_remainder(tn_arange(cx, TN_I64, 0, 9, 1),
                                                          tn_full(cx, TN_I64, TN_0D, 2)),
                                             1);
                    y[k]           = op ? tn_concat(2, x, 0) : tn_where(odd, x[0], x[1]);
                }
                bool ok = agrees(y[0], y[1], (tolerance){ .how = EXACT }, text);
                test_case_result(ok && tn_dtype_of(y[0]) == promoted[i][j], "%s of %s and %s: %s",
                                 op ? "concat" : "where", tn_dtype_name(a), tn_dtype_name(b), text);
            }
            input_free(&in[0]);
            input_free(&in[1]);
        }
    close_both();
}

// ---- with a number -----------------------------------------------------------------------------

typedef struct {
    const char *name;
    tn_tensor *(*f)(tn_tensor *x, double v);
    int op;
} number_form;

static const number_form number_forms[] = {
    { "add_s", tn_add_s, TNI_add },
    { "sub_s", tn_sub_s, TNI_sub },
    { "rsub_s", tn_rsub_s, TNI_sub },
    { "mul_s", tn_mul_s, TNI_mul },
    { "div_s", tn_div_s, TNI_div },
    { "rdiv_s", tn_rdiv_s, TNI_div },
    { "pow_s", tn_pow_s, TNI_pow },
    { "maximum_s", tn_maximum_s, TNI_maximum },
    { "minimum_s", tn_minimum_s, TNI_minimum },
    { "eq_s", tn_eq_s, TNI_eq },
    { "ne_s", tn_ne_s, TNI_ne },
    { "lt_s", tn_lt_s, TNI_lt },
    { "le_s", tn_le_s, TNI_le },
    { "gt_s", tn_gt_s, TNI_gt },
    { "ge_s", tn_ge_s, TNI_ge },
};

// A number has the kind of a float where it has a fraction or x is of floats, else of an integer.
static tn_dtype promote_number(tn_dtype x, double v)
{
    if (tni_is_float(x)) return x;
    if (v != trunc(v)) return TN_F32;
    return x == TN_BOOL ? TN_I64 : x;
}

static void run_number(const number_form *f, tn_dtype dt, layout lay, double v)
{
    tn_scope  *scopes[] = { tn_begin(cpu), tn_begin(ref) };
    input      in       = input_make(dt, lay, 2, (int64_t[]){ 5, 40 }, WILD);
    tn_tensor *y = f->f(input_put(&in, cpu), v), *z = f->f(input_put(&in, ref), v);
    tn_dtype   want;
    char       text[256] = "refused, or not";
    bool       takes     = row_dtype(f->op, promote_number(dt, v), &want), ok;
    if (!takes) ok = refused(y, cpu, TN_EDTYPE) && refused(z, ref, TN_EDTYPE);
    else if (y && tn_dtype_of(y) != want)
        ok = false, snprintf(text, sizeof text, "gives %s, not %s", tn_dtype_name(tn_dtype_of(y)),
                             tn_dtype_name(want));
    else ok = agrees(y, z, (tolerance){ .how = ULPS }, text);
    test_case_result(ok, "%s(%s %s, %g): %s", f->name, tn_dtype_name(dt), layout_names[lay], v,
                     text);
    tn_error_clear(cpu);
    tn_error_clear(ref);
    tn_end(scopes[0]);
    tn_end(scopes[1]);
    input_free(&in);
}

static void numbers_take_the_other_dtype(void)
{
    static const double values[] = { 0, 2, -1, 0.5, 0.1, 7 };
    open_both();
    for (size_t f = 0; f < sizeof number_forms / sizeof *number_forms; f++)
        for (int d = 0; d < DTYPES; d++)
            for (size_t v = 0; v < sizeof values / sizeof *values; v++)
                run_number(&number_forms[f], all_dtypes[d], v % 2 ? ZERO_D : TRANSPOSED, values[v]);
    close_both();
}

// As in PyTorch: a number that an integer dtype does not hold is refused, but a negative one wraps
// in u8; and a bound that bounds nothing is none.
static void numbers_that_do_not_fit_are_refused(void)
{
    static const struct {
        tn_dtype dt;
        double   v;
        bool     fits;
    } cases[] = { { TN_U8, 255, true },         { TN_U8, 256, false },
                  { TN_U8, -1, true },          { TN_U8, -256, false },
                  { TN_I8, 127, true },         { TN_I8, 128, false },
                  { TN_I8, -128, true },        { TN_I8, -129, false },
                  { TN_I32, 2147483647, true }, { TN_I32, 2147483648, false },
                  { TN_I32, -3e9, false },      { TN_I64, 3e9, true } };
    open_both();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t f = 0; f < sizeof number_forms / sizeof *number_forms; f++) {
            if (number_forms[f].op == TNI_div) continue;  // is of f32
            tn_tensor *x = tn_ones(cpu, cases[i].dt, TN_SHAPE(3));
            tn_tensor *y = number_forms[f].f(x, cases[i].v);
            test_case_result(cases[i].fits ? y != NULL : refused(y, cpu, TN_EARG),
                             "%s(%s, %.17g): %s", number_forms[f].name, tn_dtype_name(cases[i].dt),
                             cases[i].v, tn_error_text(cpu));
            tn_error_clear(cpu);
        }
    tn_tensor *x = tn_full(cpu, TN_I32, TN_SHAPE(2), 5);
    CHECK_INT(tn_item_i64(tn_select(tn_clamp(x, -3e9, 3e9), 0, 0)), 5);
    CHECK_INT(tn_item_i64(tn_select(tn_clamp(x, 7, 3e9), 0, 1)), 7);
    close_both();
}

// ---- composed ops ------------------------------------------------------------------------------

// Sizes for a form that takes matrices of any.
static const int64_t wide_sizes[][2] = { { 1, 5 }, { 24, 60 }, { 131, 5 } };
enum { WIDES = sizeof wide_sizes / sizeof *wide_sizes };

// The form over inputs of its own sizes, or (wide) of one of those above.
static void run_form(const form *f, tn_dtype dt, layout lay, int wide)
{
    tn_scope  *scopes[] = { tn_begin(cpu), tn_begin(ref) };
    input      in[INPUTS];
    tn_tensor *y[2], *x[INPUTS];
    char       text[256];
    for (int i = 0; i < f->nin; i++)
        in[i] = input_make(dt, lay, f->in[i].rank, wide < 0 ? f->in[i].size : wide_sizes[wide],
                           f->in[i].m);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < f->nin; i++) x[i] = input_put(&in[i], k ? ref : cpu);
        y[k] = f->f(x, NULL);
    }
    double reach = 0;
    for (int i = 0; i < f->nin; i++)
        if (tni_is_float(tn_dtype_of(x[i])) && tn_count(x[i]) > 0)
            reach = fmax(reach, tn_item(tn_max_all(tn_abs(x[i]))));
    bool ok = agrees(y[0], y[1], (tolerance){ .how = CLOSELY, .steps = f->steps, .reach = reach },
                     text);
    test_case_result(ok, "%s %s %s %d: %s %s%s", f->name, tn_dtype_name(dt), layout_names[lay],
                     wide, text, ok ? "" : tn_error_text(cpu), ok ? "" : tn_error_text(ref));
    tn_error_clear(cpu);
    tn_error_clear(ref);
    tn_end(scopes[0]);
    tn_end(scopes[1]);
    for (int i = 0; i < f->nin; i++) input_free(&in[i]);
}

static void run_forms(const form *table)
{
    open_both();
    for (const form *f = table; f->name; f++)
        for (int d = 0; d < FLOATS; d++) {
            for (int lay = 0; lay <= WINDOWED; lay++) run_form(f, all_floats[d], (layout)lay, -1);
            for (int wide = 0; f->flags & WIDE && wide < WIDES; wide++)
                run_form(f, all_floats[d], wide ? PLAIN : FLIPPED, wide);
        }
    close_both();
}

static void composed_maps_agree(void)
{
    run_forms(forms_maps);
}

static void composed_folds_agree(void)
{
    run_forms(forms_folds);
}

static void composed_movement_agrees(void)
{
    run_forms(forms_moves);
}

static void networks_agree(void)
{
    run_forms(forms_nets);
}

static void losses_agree(void)
{
    run_forms(forms_losses);
}

// ---- random numbers ----------------------------------------------------------------------------

enum { DRAWS = 40000 };

static void uniform_numbers_are_below_one(void)
{
    double *v = malloc(DRAWS * sizeof *v);
    open_both();
    for (int d = 0; d < FLOATS; d++) {
        tn_dtype dt   = all_floats[d];
        double   mean = 0, low = 1, high = 0;
        bool     ok = tn_read(tn_rand(cpu, dt, TN_SHAPE(DRAWS)), TN_F64, v, DRAWS) == TN_OK;
        for (int i = 0; i < DRAWS; i++) {
            mean += v[i] / DRAWS;
            low  = fmin(low, v[i]);
            high = fmax(high, v[i]);
        }
        test_case_result(ok && low >= 0 && high < 1, "rand %s: from %g to %g", tn_dtype_name(dt),
                         low, high);
        test_case_result(fabs(mean - 0.5) < 0.008, "rand %s: mean %g", tn_dtype_name(dt), mean);
    }
    close_both();
    free(v);
}

typedef tn_tensor *random_fn(tn_ctx *cx, tn_dtype dt, int64_t n);

static tn_tensor *random_rand(tn_ctx *cx, tn_dtype dt, int64_t n)
{
    return tn_rand(cx, dt, TN_SHAPE(n));
}

static tn_tensor *random_randn(tn_ctx *cx, tn_dtype dt, int64_t n)
{
    return tn_randn(cx, dt, TN_SHAPE(n));
}

static tn_tensor *random_randint(tn_ctx *cx, tn_dtype dt, int64_t n)
{
    return tn_randint(cx, dt, -3, 90, TN_SHAPE(n));
}

static tn_tensor *random_wide(tn_ctx *cx, tn_dtype dt, int64_t n)
{
    return tn_cast(tn_randint(cx, TN_I64, INT64_MIN, INT64_MAX, TN_SHAPE(n)), dt);
}

static tn_tensor *random_perm(tn_ctx *cx, tn_dtype dt, int64_t n)
{
    return tn_cast(tn_randperm(cx, n), dt);
}

static tn_tensor *random_bernoulli(tn_ctx *cx, tn_dtype dt, int64_t n)
{
    return tn_bernoulli(tn_full(cx, dt, TN_SHAPE(n), 0.3));
}

static tn_tensor *random_like(tn_ctx *cx, tn_dtype dt, int64_t n)
{
    tn_tensor *x = tn_zeros(cx, dt, TN_SHAPE(2, n));
    return tn_add(tn_rand_like(x), tn_randn_like(x));
}

static const struct {
    const char *name;
    random_fn  *f;
    bool        floats;
} randoms[] = {
    { "rand", random_rand, true },        { "randn", random_randn, true },
    { "randint", random_randint, false }, { "randint wide", random_wide, false },
    { "randperm", random_perm, false },   { "bernoulli", random_bernoulli, true },
    { "like", random_like, true },
};
enum { RANDOMS = sizeof randoms / sizeof *randoms };

// Bytes of three draws, read in another order than they were recorded if `backwards`.
static bool draw_three(tn_ctx *cx, int which, tn_dtype dt, int64_t n, bool backwards, char *out)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *y[3];
    bool       ok   = true;
    size_t     size = tni_dtype_size(dt) * (size_t)n;
    tn_seed(cx, 99);
    for (int i = 0; i < 3; i++) {
        y[i] = randoms[which].f(cx, dt, n);
        if (tn_rank(y[i]) == 2) y[i] = tn_select(y[i], 0, 1);
    }
    for (int k = 0; k < 3; k++) {
        int i = backwards ? 2 - k : k;
        ok &= tn_read(y[i], dt, out + (size_t)i * size, n) == TN_OK;
    }
    tn_end(s);
    return ok;
}

static void random_numbers_do_not_depend_on_how_they_are_made(void)
{
    enum { N = 20011 };
    static char want[3 * N * 8], have[3 * N * 8];
    tn_ctx     *many[] = { open_quiet("ref", 1), open_quiet("cpu", 1), open_quiet("cpu", 2),
                           open_quiet("cpu", 4) };
    for (int which = 0; which < RANDOMS; which++)
        for (int d = 0; d < DTYPES; d++) {
            tn_dtype dt = all_dtypes[d];
            if (dt == TN_BOOL || (randoms[which].floats && !tni_is_float(dt))) continue;
            bool   made  = draw_three(many[1], which, dt, N, false, want);
            size_t bytes = 3 * (size_t)N * tni_dtype_size(dt);
            for (int k = 0; k < 4; k++)
                for (int backwards = 0; backwards < 2; backwards++) {
                    bool ok = made && draw_three(many[k], which, dt, N, backwards, have);
                    test_case_result(ok && memcmp(have, want, bytes) == 0, "%s %s on %s%s",
                                     randoms[which].name, tn_dtype_name(dt),
                                     (const char *[]){ "ref", "cpu 1", "cpu 2", "cpu 4" }[k],
                                     backwards ? ", read backwards" : "");
                }
        }
    for (int k = 0; k < 4; k++) tn_close(many[k]);
}

// ---- numbers of threads ------------------------------------------------------------------------

typedef tn_tensor *big_fn(tn_tensor *x);  // of a (300, 1000)

static tn_tensor *big_map(tn_tensor *x)
{
    return tn_gelu(tn_mul_s(tn_transpose(x, 0, 1), 0.3));
}

static tn_tensor *big_sum_rows(tn_tensor *x)
{
    return tn_sum(x, 0);
}

static tn_tensor *big_sum_columns(tn_tensor *x)
{
    return tn_sum(x, 1);
}

static tn_tensor *big_cumsum(tn_tensor *x)
{
    return tn_cumsum(tn_reshape(x, TN_SHAPE(-1)), 0);
}

static tn_tensor *big_softmax(tn_tensor *x)
{
    return tn_softmax(x, 0);
}

static tn_tensor *big_matmul(tn_tensor *x)
{
    return tn_matmul(x, tn_transpose(x, 0, 1));
}

static tn_tensor *big_vector(tn_tensor *x)
{
    return tn_matmul(x, tn_select(x, 0, 3));
}

static tn_tensor *big_conv(tn_tensor *x)
{
    tn_tensor *image = tn_reshape(x, TN_SHAPE(4, 3, 100, 250));
    tn_tensor *w = tn_reshape(tn_slice(tn_select(x, 0, 0), 0, 0, 8 * 27, 1), TN_SHAPE(8, 3, 3, 3));
    return tn_conv2d(image, w, NULL, (tn_conv_opts){ .padding = { 1, 1 } });
}

static tn_tensor *big_argsort(tn_tensor *x)
{
    return tn_argsort(x, 0, false);
}

static tn_tensor *big_scatter(tn_tensor *x)
{
    tn_tensor *index = tn_remainder(tn_arange(tn_ctx_of(x), TN_I64, 0, 300000, 1),
                                    tn_full(tn_ctx_of(x), TN_I64, TN_0D, 7));
    return tn_scatter_add(tn_zeros_like(x), 0, tn_reshape(index, TN_SHAPE(300, 1000)), x);
}

static tn_tensor *big_layer_norm(tn_tensor *x)
{
    return tn_layer_norm(x, 1, NULL, NULL, 0);
}

static tn_tensor *big_max(tn_tensor *x)
{
    return tn_argmax(x, 1);
}

static tn_tensor *big_window(tn_tensor *x)
{
    tn_requires_grad(x, true);
    tn_tensor *y = tn_sum_all(tn_square(tn_window(x, 1, 5, 1))), *gx;
    return tn_grad(1, &y, 1, &x, NULL, &gx) == TN_OK ? gx : NULL;
}

static void results_do_not_depend_on_threads(void)
{
    static const struct {
        const char *name;
        big_fn     *f;
    } bigs[] = {
        { "map", big_map },
        { "sum of rows", big_sum_rows },
        { "cumsum", big_cumsum },
        { "sum of columns", big_sum_columns },
        { "softmax", big_softmax },
        { "sum of all", tn_sum_all },
        { "matmul", big_matmul },
        { "matrix by vector", big_vector },
        { "conv2d", big_conv },
        { "argsort", big_argsort },
        { "scatter_add", big_scatter },
        { "layer_norm", big_layer_norm },
        { "argmax", big_max },
        { "prod of all", tn_prod_all },
        { "max of all", tn_max_all },
        { "gradient of a window", big_window },
        { "var of all", tn_var_all },
        { "norm of all", tn_norm_all },
    };
    enum { N = 300000 * 8 * 4 };
    char *want = malloc(N), *have = malloc(N);
    for (int d = 0; d < FLOATS; d++) {
        tn_dtype dt = all_floats[d];
        input    in = input_make(dt, PLAIN, 2, (int64_t[]){ 300, 1000 }, TAME);
        for (size_t f = 0; f < sizeof bigs / sizeof *bigs; f++)
            for (int threads = 1; threads <= 4; threads *= 2) {
                tn_ctx    *cx   = open_quiet("cpu", threads);
                tn_tensor *y    = bigs[f].f(input_put(&in, cx));
                tn_dtype   made = y ? tn_dtype_of(y) : TN_F32;
                size_t     n = y ? (size_t)tn_count(y) : 0, bytes = n * tni_dtype_size(made);
                bool       ok = y && bytes <= N &&
                          tn_read(y, made, threads == 1 ? want : have, (int64_t)n) == TN_OK;
                test_case_result(ok && (threads == 1 || memcmp(want, have, bytes) == 0),
                                 "%s %s with %d threads %s", bigs[f].name, tn_dtype_name(dt),
                                 threads, tn_error_text(cx));
                tn_close(cx);
            }
        input_free(&in);
    }
    free(want);
    free(have);
}

// ---- fallbacks ---------------------------------------------------------------------------------

// Every case of every LIBRARY op on a device that has none of them.
static void library_ops_are_what_their_fallbacks_are(void)
{
    int ops[TNI_OPS], n = device_table_ops(TNI_LIBRARY, ops);
    CHECK_INT(n, 12);
    device_table("skeleton", false, COMPLETE, n, ops);
}

static tn_status same_shape(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = in[0];
    return TN_OK;
}

static tn_status no_compute(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr, (void)in, (void)out;
    return TN_EUSER;
}

// A user's function has no other form, and is refused where it is recorded; an expression is ops.
static void a_device_without_users_functions_says_so(void)
{
    static const tn_op_def in_c = {
        .name = "mine", .nin = 1, .shape = same_shape, .compute = no_compute
    };
    static const tn_op_def text = { .name = "twice", .nin = 1, .expr = "2 * a" };
    tn_ctx                *cx   = open_quiet("skeleton", 1);
    tn_tensor             *x    = tn_full(cx, TN_F32, TN_SHAPE(3), 4);
    CHECK_NEAR(tn_item(tn_sum_all(tn_custom(&text, &x, NULL, 0))), 24, 0);
    CHECK(tn_custom(&in_c, &x, NULL, 0) == NULL);
    CHECK_STATUS(tn_error(cx), TN_EDEVICE);
    CHECK_STR(tn_error_text(cx),
              "mine: this device runs no functions of the user's; give the op an expr");
    tn_close(cx);
}

// ---- programs ----------------------------------------------------------------------------------

// Programs on registers of (6, 8), run as they are and with every value computed at once; integers,
// so that results are equal or wrong.
enum { REGISTERS = 5, STEPS = 40, PROGRAMS = 400 };

static tn_tensor *integer_call(int i, tn_tensor *a, tn_tensor *b, int k)
{
    switch (i) {
    case 0: return tn_mul_s(a, k + 2);
    case 1: return tn_where(tn_gt(a, b), a, tn_neg(b));
    case 2: return tn_maximum(a, tn_roll(b, k, 1));
    case 3: return tn_transpose(tn_transpose(a, 0, 1), 0, 1);
    default: return tn_sort(a, 1, k & 1).values;
    }
}

static const registers machine = { REGISTERS, 6, 8, 5, integer_call, NULL };

// Runs the program; eager evaluates after every call. The registers' elements go to out.
static bool run_program(tn_ctx *cx, const step *code, bool eager, int64_t *out)
{
    tn_scope  *scope = tn_begin(cx);
    tn_tensor *r[REGISTERS];
    for (int i = 0; i < REGISTERS; i++)
        r[i] = tn_reshape(tn_arange(cx, TN_I64, i - 20, i + 28, 1), TN_SHAPE(6, 8));
    bool ok = registers_run(&machine, STEPS, code, r, eager);
    for (int i = 0; ok && i < REGISTERS; i++) ok = tn_read(r[i], TN_I64, out + 48 * i, 48) == TN_OK;
    tn_end(scope);
    return ok;
}

static void random_programs_agree_with_themselves_step_by_step(void)
{
    static int64_t want[REGISTERS * 48], have[REGISTERS * 48];
    // Flushes by itself every few calls.
    tn_ctx *often = tn_open_with((tn_open_opts){ .device = "cpu", .threads = 1, .flush_nodes = 7 });
    open_both();
    for (int p = 0; p < PROGRAMS; p++) {
        step code[STEPS];
        registers_draw(&machine, STEPS, code);
        bool ok = run_program(ref, code, true, want);
        test_case_result(ok, "program %d, eager on ref: %s", p, tn_error_text(ref));
        for (int k = 0; ok && k < 4; k++) {
            tn_ctx *cx   = (tn_ctx *[]){ cpu, ref, cpu, often }[k];
            bool    same = run_program(cx, code, k == 2, have);
            test_case_result(same && memcmp(want, have, sizeof want) == 0, "program %d, %s: %s", p,
                             (const char *[]){ "cpu", "ref", "eager on cpu", "flushed often" }[k],
                             tn_error_text(cx));
            tn_error_clear(cx);
        }
        tn_error_clear(ref);
    }
    tn_close(often);
    close_both();
}

// ---- sizes past 2^31 ---------------------------------------------------------------------------

static void sums_count_past_2_31_elements(void)
{
    tn_ctx    *cx = open_quiet("cpu", 0);
    tn_tensor *x  = tn_from(cx, TN_U8, TN_SHAPE(3, 1), (uint8_t[]){ 1, 0, 2 });
    int64_t    n  = 720 * 1000 * 1000;  // three times this is past 2^31
    tn_tensor *y  = tn_expand(x, TN_SHAPE(3, n));
    CHECK_INT(tn_count(y), 3 * n);
    CHECK_INT(tn_item_i64(tn_sum_all(y)), 3 * n);
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

static void slices_reach_past_2_31_elements(void)
{
    enum { TAIL = 4096 };
    size_t   bytes = (size_t)2300 << 20;
    uint8_t *mem   = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mem == MAP_FAILED) SKIP("no address space for 2.3 GB");
    for (int i = 0; i < TAIL; i++) mem[bytes - TAIL + (size_t)i] = (uint8_t)(i % 251);
    tn_ctx    *cx  = open_quiet("cpu", 1);
    tn_tensor *x   = tn_borrow(cx, TN_U8, TN_SHAPE((int64_t)bytes), mem, NULL, NULL);
    tn_tensor *y   = tn_slice(x, 0, -TAIL, TN_TO_END, 3);
    int64_t    sum = 0;
    for (int i = 0; i < TAIL; i += 3) sum += i % 251;
    CHECK_INT(tn_offset(y), (int64_t)bytes - TAIL);
    CHECK_INT(tn_item_i64(tn_sum_all(y)), sum);
    tn_tensor *at     = tn_from(cx, TN_I64, TN_SHAPE(2), (int64_t[]){ (int64_t)bytes - 10, -300 });
    uint8_t    got[2] = { 0, 0 };
    CHECK_STATUS(tn_read(tn_gather(x, 0, at), TN_U8, got, 2), TN_OK);
    CHECK_INT(got[0], (TAIL - 10) % 251);
    CHECK_INT(got[1], (TAIL - 300) % 251);
    tn_tensor *square = tn_view(x, TN_SHAPE(2300, 1 << 20));
    CHECK_INT(tn_item_i64(tn_select(tn_select(square, 0, -1), 0, -1)), (TAIL - 1) % 251);
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
    munmap(mem, bytes);
}

const test_case tests_table[] = {
    TEST(every_row_has_a_generator),
    TEST(maps_of_one_input_agree),
    TEST(maps_of_two_inputs_agree),
    TEST(choices_agree),
    TEST(reductions_agree),
    TEST(scans_agree),
    TEST(sources_agree),
    TEST(movement_agrees),
    TEST(writes_agree),
    TEST(library_ops_agree),
    TEST(pairs_of_dtypes_promote_as_in_pytorch),
    TEST(choices_and_parts_promote_as_in_pytorch),
    TEST(numbers_take_the_other_dtype),
    TEST(numbers_that_do_not_fit_are_refused),
    TEST(composed_maps_agree),
    TEST(composed_folds_agree),
    TEST(composed_movement_agrees),
    TEST(networks_agree),
    TEST(losses_agree),
    TEST(uniform_numbers_are_below_one),
    TEST(random_numbers_do_not_depend_on_how_they_are_made),
    TEST(results_do_not_depend_on_threads),
    TEST(library_ops_are_what_their_fallbacks_are),
    TEST(a_device_without_users_functions_says_so),
    TEST(random_programs_agree_with_themselves_step_by_step),
    TEST(sums_count_past_2_31_elements),
    TEST(slices_reach_past_2_31_elements),
    TEST_END,
};
