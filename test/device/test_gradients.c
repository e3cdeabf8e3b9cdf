// test_gradients.c: the gradient of every op that has one, by its row of ops.def and by every form
// of the composed ops, against finite differences; and the gradient of the gradient.
#include "check.h"
#include "on_device.h"
#include "registers.h"
#include "table.h"

#include "grad/grad.h"
#include "rules_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tn_ctx *cx;

static void open_cx(const char *device)
{
    cx = open_quiet(device, 1);
    test_that(cx != NULL, "no context: %s", tn_error_text(NULL));
    table_seed(3);
}

static int make_inputs(const form *f, tn_dtype dt, layout lay, tn_tensor **x)
{
    for (int i = 0; i < f->nin; i++) {
        input in = input_make(dt, lay, f->in[i].rank, f->in[i].size, f->in[i].m);
        x[i]     = input_put(&in, cx);
        input_free(&in);
    }
    return f->nin;
}

// ---- finite differences ------------------------------------------------------------------------

typedef tn_status check_fn(tn_tensor *(*f)(tn_tensor *const *x, void *user), int n,
                           tn_tensor *const *x, void *user);

static void run_check(const form *f, check_fn *check, const char *what, layout lay)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x[INPUTS];
    int        n      = make_inputs(f, TN_F64, lay, x);
    tn_status  status = check(f->f, n, x, NULL);
    test_case_result(status == TN_OK, "%s %s of %s: %s", f->name, layout_names[lay], what,
                     tn_error_text(cx));
    tn_error_clear(cx);
    tn_end(s);
}

static void run_table(const form *table)
{
    static const layout lays[] = { PLAIN, TRANSPOSED, STEPPED, FLIPPED };
    for (int device = 0; device < 2; device++) {
        open_cx(device ? "ref" : "cpu");
        for (const form *f = table; cx && f->name; f++) {
            if (f->flags & NO_GRAD) continue;
            for (int i = 0; i < (device ? 1 : 4); i++)
                run_check(f, tn_gradcheck, device ? "ref" : "cpu", lays[i]);
            if (f->flags & SMOOTH) {
                run_check(f, tn_gradgradcheck, device ? "ref, twice" : "cpu, twice", PLAIN);
                if (!device) run_check(f, tn_gradgradcheck, "cpu, twice", TRANSPOSED);
            }
        }
        tn_close(cx);
    }
}

static void every_form_has_the_gradients_of_differences(void)
{
    for (const form *const *table = form_tables; *table; table++) run_table(*table);
}

// ---- programs with views and writes ------------------------------------------------------------

// Programs on registers of (3, 4), floats that are made from one input.
enum { REGISTERS = 4, STEPS = 12, PROGRAMS = 150 };

static tn_tensor *smooth_call(int i, tn_tensor *a, tn_tensor *b, int k)
{
    switch (i) {
    case 0: return tn_mul_s(a, 0.3 * k);
    case 1: return tn_tanh(tn_mul(a, b));
    case 2: return tn_mul(a, tn_roll(b, k, 1));
    default: return tn_mean(tn_window(tn_concat(2, (tn_tensor *const[]){ a, b }, 1), 1, 5, 1), 2);
    }
}

static const registers machine = { REGISTERS, 3, 4, 4, smooth_call, tn_sin };

static tn_tensor *program(tn_tensor *const *x, void *user)
{
    tn_tensor *r[REGISTERS], *y = NULL;
    for (int i = 0; i < REGISTERS; i++) r[i] = tn_mul_s(x[0], 0.4 + 0.3 * i);
    if (!registers_run(&machine, STEPS, user, r, false)) return NULL;
    for (int i = 0; i < REGISTERS; i++) y = y ? tn_add(tn_sin(y), r[i]) : r[i];
    return tn_tanh(y);
}

static void programs_of_views_and_writes_have_the_gradients_of_differences(void)
{
    for (int p = 0; p < PROGRAMS; p++) {
        open_cx(p % 3 ? "cpu" : "ref");
        table_seed(1000 + (uint32_t)p);
        step code[STEPS];
        registers_draw(&machine, STEPS, code);
        input      in = input_make(TN_F64, PLAIN, 2, (int64_t[]){ 3, 4 }, APART);
        tn_tensor *x  = input_put(&in, cx);
        test_case_result(tn_gradcheck(program, 1, &x, code) == TN_OK, "program %d: %s", p,
                         tn_error_text(cx));
        tn_error_clear(cx);
        if (p % 3 == 1)
            test_case_result(tn_gradgradcheck(program, 1, &x, code) == TN_OK,
                             "program %d, twice: %s", p, tn_error_text(cx));
        input_free(&in);
        tn_close(cx);
    }
}

// ---- all rows are among them -------------------------------------------------------------------

// Marks the op of every node that y is made from.
static void mark_ops(const tni_node *n, bool *seen, int depth)
{
    seen[n->op] = true;
    for (uint32_t i = 0; i < n->nsrc && depth < 200; i++) mark_ops(n->src[i], seen, depth + 1);
}

// The ops of a form and of its gradient, as they are recorded.
static void mark_form(const form *f, bool *seen)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x[INPUTS], *gx[INPUTS], *y;
    int        n = make_inputs(f, TN_F64, PLAIN, x);
    for (int i = 0; i < n; i++) tn_requires_grad(x[i], true);
    y = f->f(x, NULL);
    if (y) mark_ops(y->store->node, seen, 0);
    if (y && tn_count(y) > 1) y = tn_sum_all(tn_square(y));
    if (y && tn_grad(1, &y, n, x, NULL, gx) == TN_OK)
        for (int i = 0; i < n; i++) mark_ops(gx[i]->store->node, seen, 0);
    tn_end(s);
}

// custom and output have cases of their own below.
static void every_row_with_a_gradient_is_differentiated(void)
{
    bool seen[TNI_OPS] = { false };
    open_cx("cpu");
    for (const form *const *table = form_tables; *table; table++)
        for (const form *f = *table; f->name; f++)
            if (!(f->flags & NO_GRAD)) mark_form(f, seen);
    for (int op = 0; op < TNI_OPS; op++)
        if (tni_op_table[op].has_grad && op != TNI_custom && op != TNI_output)
            test_case_result(seen[op], "%s: in no form that is differentiated",
                             tni_op_table[op].name);
    tn_close(cx);
}

// ---- users' ops --------------------------------------------------------------------------------

static tn_status shape_same(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = in[0];
    return TN_OK;
}

static int64_t count_of(const tn_array *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->rank; i++) n *= a->size[i];
    return n;
}

static tn_status compute_cube(const void *attr, const tn_array *in, tn_array *out)
{
    const double *x = in->data, *scale = attr;
    double       *y = out->data;
    for (int64_t i = 0, n = count_of(in); i < n; i++) y[i] = *scale * x[i] * x[i] * x[i];
    return TN_OK;
}

static tn_status grad_cube(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                           tn_tensor *const *gy, tn_tensor **gx)
{
    const double *scale = attr;
    (void)y;
    gx[0] = tn_mul(gy[0], tn_mul_s(tn_square(x[0]), 3 * *scale));
    return TN_OK;
}

static const tn_op_def cube = {
    .name = "cube", .nin = 1, .shape = shape_same, .compute = compute_cube, .grad = grad_cube
};
static const tn_op_def dull = {
    .name = "dull", .nin = 1, .shape = shape_same, .compute = compute_cube
};

static tn_tensor *custom_cube(tn_tensor *const *x, void *user)
{
    double scale = 0.7;
    (void)user;
    return tn_custom(&cube, x, &scale, sizeof scale);
}

// The sum and the product of two inputs.
static tn_status shape_two(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = out[1] = in[0];
    return TN_OK;
}

static tn_status compute_two(const void *attr, const tn_array *in, tn_array *out)
{
    const double *a = in[0].data, *b = in[1].data;
    (void)attr;
    for (int64_t i = 0, n = count_of(in); i < n; i++) {
        ((double *)out[0].data)[i] = a[i] + b[i];
        ((double *)out[1].data)[i] = a[i] * b[i];
    }
    return TN_OK;
}

static tn_status grad_two(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                          tn_tensor *const *gy, tn_tensor **gx)
{
    (void)attr, (void)y;
    gx[0] = tn_add(gy[0], tn_mul(gy[1], x[1]));
    gx[1] = tn_add(gy[0], tn_mul(gy[1], x[0]));
    return TN_OK;
}

static const tn_op_def two = {
    .name = "two", .nin = 2, .nout = 2, .shape = shape_two, .compute = compute_two, .grad = grad_two
};

static tn_tensor *custom_both(tn_tensor *const *x, void *user)
{
    tn_tensor *y[2];
    (void)user;
    if (tn_custom_n(&two, x, NULL, 0, y) != TN_OK) return NULL;
    return tn_mul(tn_sin(y[0]), tn_square(y[1]));
}

static tn_tensor *custom_second(tn_tensor *const *x, void *user)
{
    tn_tensor *y[2];
    (void)user;
    return tn_custom_n(&two, x, NULL, 0, y) == TN_OK ? tn_square(y[1]) : NULL;
}

static void users_ops_have_the_gradients_they_record(void)
{
    static const form forms[] = {
        { "custom", custom_cube, SMOOTH, 1, 1, { { 2, { 3, 4 }, APART } } },
        { "custom of two",
          custom_both,
          SMOOTH,
          1,
          2,
          { { 1, { 5 }, APART }, { 1, { 5 }, APART } } },
        { "its second", custom_second, SMOOTH, 1, 2, { { 1, { 5 }, APART }, { 1, { 5 }, APART } } },
        { .name = NULL },
    };
    run_table(forms);
}

// ---- what has no gradient ----------------------------------------------------------------------

static void forms_without_a_gradient_need_none(void)
{
    open_cx("cpu");
    for (const form *const *table = form_tables; *table; table++)
        for (const form *f = *table; f->name; f++) {
            if (!(f->flags & NO_GRAD)) continue;
            tn_scope  *s = tn_begin(cx);
            tn_tensor *x[INPUTS], *y;
            int        n = make_inputs(f, TN_F32, PLAIN, x);
            for (int i = 0; i < n; i++) tn_requires_grad(x[i], true);
            y         = f->f(x, NULL);
            bool none = y && !tn_needs_grad(y);
            if (y && !tni_is_float(tn_dtype_of(y))) {
                test_case_result(none, "%s: its result needs a gradient", f->name);
                test_case_result(tn_backward(tn_sum_all(y), NULL) == TN_EGRAD,
                                 "%s: backward gives status %s", f->name,
                                 tn_status_name(tn_error(cx)));
            } else {
                test_case_result(y != NULL, "%s: %s", f->name, tn_error_text(cx));
            }
            tn_error_clear(cx);
            tn_end(s);
        }
    tn_close(cx);
}

static tn_tensor *gradient_of(tn_tensor *y, tn_tensor *x)
{
    tn_tensor *gx = NULL;
    return tn_grad(1, &y, 1, &x, NULL, &gx) == TN_OK ? gx : NULL;
}

// A cast of such a result to floats is made from no leaf, so the gradient is zeros.
static void gradients_stop_at_integers_and_bools(void)
{
    open_cx("cpu");
    for (int op = 0; op < TNI_OPS; op++) {
        tni_class class = tni_op_table[op].class;
        if (tni_op_table[op].has_grad || class == TNI_SOURCE) continue;
        if (class != TNI_UNARY && class != TNI_BINARY && class != TNI_REDUCE) continue;
        // Of floats they say so instead: nextafter, the last of the derivatives of lgamma.
        if (tni_op_table[op].rule == TNI_FLOAT || tni_op_table[op].rule == TNI_FULL) continue;
        if (tni_op_table[op].rule == TNI_BITS || tni_op_table[op].rule == TNI_INTEGER) continue;
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = tn_requires_grad(tn_randn(cx, TN_F32, TN_SHAPE(3, 4)), true);
        tn_tensor *y = class == TNI_UNARY    ? tni_unary(op, x)
                       : class == TNI_BINARY ? tni_binary(op, x, tn_neg(x))
                                             : tni_reduce(op, "fold", x, 1, false);
        tn_tensor *g = gradient_of(tn_sum_all(tn_cast(y, TN_F32)), x);
        test_case_result(!tn_needs_grad(y) && g && tn_item(tn_sum_all(tn_abs(g))) == 0, "%s: %s",
                         tni_op_table[op].name, tn_error_text(cx));
        tn_error_clear(cx);
        tn_end(s);
    }
    tn_close(cx);
}

static void a_users_op_without_a_gradient_says_so(void)
{
    double scale = 1;
    open_cx("cpu");
    tn_tensor *x = tn_requires_grad(tn_ones(cx, TN_F64, TN_SHAPE(3)), true);
    tn_tensor *y = tn_sum_all(tn_custom(&dull, &x, &scale, sizeof scale));
    CHECK_STATUS(tn_backward(y, NULL), TN_EGRAD);
    CHECK_STR(tn_error_text(cx), "dull: it has no gradient");
    tn_close(cx);
}

// ---- dtypes ------------------------------------------------------------------------------------

// Of every form the gradients have the leaf's dtype and shape and are finite; tn_backward deposits
// what tn_grad gives, though a rule may take a shorter way where nothing is differentiated again.
static void run_dtype(const form *f, tn_dtype dt)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x[INPUTS], *gx[INPUTS], *y;
    int        n         = make_inputs(f, dt, PLAIN, x);
    bool       ok        = true;
    char       text[256] = "";
    for (int i = 0; i < n; i++) tn_requires_grad(x[i], true);
    y         = f->f(x, NULL);
    ok        = y && tn_grad(1, (tn_tensor *[]){ tn_sum_all(y) }, n, x, NULL, gx) == TN_OK;
    bool same = ok;
    for (int i = 0; ok && i < n; i++) {
        same &= tn_dtype_of(gx[i]) == dt && tn_rank(gx[i]) == tn_rank(x[i]) &&
                tn_count(gx[i]) == tn_count(x[i]);
        ok &= tn_item(tn_sum_all(tn_logical_not(tn_isfinite(gx[i])))) == 0;
    }
    test_case_result(ok && same, "%s %s: %s", f->name, tn_dtype_name(dt),
                     ok ? "another dtype or shape" : tn_error_text(cx));
    ok = y && tn_backward(tn_sum_all(y), NULL) == TN_OK;
    for (int i = 0; ok && i < n; i++)
        ok = agrees(tn_grad_of(x[i]), gx[i], (tolerance){ .how = CLOSELY, .steps = 2 }, text);
    test_case_result(ok, "%s %s deposited: %s %s", f->name, tn_dtype_name(dt), text,
                     tn_error_text(cx));
    tn_error_clear(cx);
    tn_end(s);
}

static void gradients_have_the_dtype_of_their_leaf(void)
{
    open_cx("cpu");
    for (const form *const *table = form_tables; *table; table++)
        for (const form *f = *table; f->name; f++)
            for (int d = 0; d < FLOATS && !(f->flags & NO_GRAD); d++) run_dtype(f, all_floats[d]);
    tn_close(cx);
}

// The gradients of a form on both devices.
static void run_devices(const form *f, tn_dtype dt, tn_ctx *const *both)
{
    input      in[INPUTS];
    tn_tensor *x[INPUTS], *gx[2][INPUTS], *y;
    tn_scope  *s[2];
    char       text[256] = "";
    bool       ok        = true;
    for (int i = 0; i < f->nin; i++)
        in[i] = input_make(dt, PLAIN, f->in[i].rank, f->in[i].size, f->in[i].m);
    for (int k = 0; k < 2; k++) {
        s[k] = tn_begin(both[k]);
        for (int i = 0; i < f->nin; i++) x[i] = tn_requires_grad(input_put(&in[i], both[k]), true);
        y = f->f(x, NULL);
        ok &= y && tn_grad(1, (tn_tensor *[]){ tn_mean_all(y) }, f->nin, x, NULL, gx[k]) == TN_OK;
    }
    for (int i = 0; ok && i < f->nin; i++)
        ok = agrees(gx[0][i], gx[1][i], (tolerance){ .how = CLOSELY, .steps = 1 }, text);
    test_case_result(ok, "%s %s: %s %s", f->name, tn_dtype_name(dt), text, tn_error_text(both[0]));
    for (int k = 0; k < 2; k++) {
        tn_error_clear(both[k]);
        tn_end(s[k]);
    }
    for (int i = 0; i < f->nin; i++) input_free(&in[i]);
}

void gradients_on(const char *device, int part, int parts)
{
    tn_ctx *both[] = { open_quiet(device, 2), open_quiet("ref", 1) };
    int     n      = 0;
    table_seed(4);
    test_that(both[0] != NULL, "no context: %s", tn_error_text(NULL));
    for (const form *const *table = form_tables; both[0] && *table; table++)
        for (const form *f = *table; f->name; f++) {
            if (f->flags & NO_GRAD || n++ % parts != part) continue;
            run_devices(f, TN_F32, both);
            run_devices(f, TN_F64, both);
        }
    tn_close(both[0]);
    tn_close(both[1]);
}

static void gradients_without_library_ops_agree(void)
{
    gradients_on("skeleton", 0, 1);
}

void differences_on(const char *device, int part, int parts)
{
    int n = 0;
    open_cx(device);
    for (const form *const *table = form_tables; cx && *table; table++)
        for (const form *f = *table; f->name; f++)
            if (!(f->flags & NO_GRAD) && n++ % parts == part)
                run_check(f, tn_gradcheck, device, PLAIN);
    tn_close(cx);
}

static void gradients_of_two_devices_agree(void)
{
    gradients_on("cpu", 0, 1);
}

// ---- derivatives of functions

// A nonlinear function of two tensors: (2, 3) and (3) give (2).
static tn_tensor *bent(tn_tensor *const *x, void *user)
{
    (*(int *)user)++;
    return tn_sum(tn_mul(tn_tanh(tn_mul(x[0], x[1])), tn_exp(x[1])), 1);
}

static tn_tensor *bent_sum(tn_tensor *const *x, void *user)
{
    return tn_sum_all(tn_square(bent(x, user)));
}

static tn_tensor *no_result(tn_tensor *const *x, void *user)
{
    (void)x, (void)user;
    return NULL;
}

// The sum of the products of rows of j, of y's shape and then x's, with v.
static tn_tensor *times(tn_tensor *j, tn_tensor *v, int64_t rows)
{
    return tn_matmul(tn_reshape(j, TN_SHAPE(rows, -1)), tn_reshape(v, TN_SHAPE(-1, 1)));
}

static bool close_to(tn_tensor *a, tn_tensor *b)
{
    return tn_allclose(tn_reshape(a, TN_SHAPE(-1)), tn_reshape(b, TN_SHAPE(-1)), 1e-9, 1e-9, false);
}

static void derivatives_of_functions_agree_with_each_other(void)
{
    open_cx("cpu");
    int        calls = 0;
    tn_tensor *x[]   = { tn_randn(cx, TN_F64, TN_SHAPE(2, 3)), tn_randn(cx, TN_F64, TN_SHAPE(3)) };
    tn_tensor *v[]   = { tn_randn(cx, TN_F64, TN_SHAPE(2, 3)), tn_randn(cx, TN_F64, TN_SHAPE(3)) };
    tn_tensor *u     = tn_randn(cx, TN_F64, TN_SHAPE(2)), *gx[2], *dy, *j[2], *h[4], *hv[2], *y;

    // The directional derivative by differences, the matrix by rows, and the two products with it.
    CHECK(tn_jacobian(bent, 2, x, &calls, j) == TN_OK && calls == 1);
    CHECK(tn_rank(j[0]) == 3 && tn_size(j[0], 0) == 2 && tn_size(j[0], 2) == 3 &&
          tn_rank(j[1]) == 2);
    CHECK(tn_jvp(bent, 2, x, &calls, v, &y, &dy) == TN_OK && close_to(y, bent(x, &calls)));
    CHECK(close_to(dy, tn_add(times(j[0], v[0], 2), times(j[1], v[1], 2))));
    tn_tensor *to[]   = { tn_add(x[0], tn_mul_s(v[0], 1e-6)), tn_add(x[1], tn_mul_s(v[1], 1e-6)) };
    tn_tensor *from[] = { tn_sub(x[0], tn_mul_s(v[0], 1e-6)), tn_sub(x[1], tn_mul_s(v[1], 1e-6)) };
    tn_tensor *slope  = tn_mul_s(tn_sub(bent(to, &calls), bent(from, &calls)), 5e5);
    CHECK(tn_allclose(dy, slope, 1e-5, 1e-6, false));
    CHECK(tn_vjp(bent, 2, x, &calls, u, &y, gx) == TN_OK && !tn_needs_grad(gx[0]) &&
          !tn_needs_grad(x[0]));
    for (int i = 0; i < 2; i++)
        CHECK(close_to(gx[i], tn_matmul(tn_reshape(u, TN_SHAPE(1, 2)),
                                        tn_reshape(j[i], TN_SHAPE(2, -1)))));

    // Second derivatives: rows of the matrix, its symmetry, and its product with v.
    CHECK(tn_hessian(bent_sum, 2, x, &calls, h) == TN_OK &&
          tn_hvp(bent_sum, 2, x, &calls, v, hv) == TN_OK);
    CHECK(close_to(tn_reshape(h[1], TN_SHAPE(6, 3)),
                   tn_transpose(tn_reshape(h[2], TN_SHAPE(3, 6)), 0, 1)));
    CHECK(close_to(hv[0], tn_add(times(h[0], v[0], 6), times(h[1], v[1], 6))));
    CHECK(close_to(hv[1], tn_add(times(h[2], v[0], 3), times(h[3], v[1], 3))));

    // Of arguments with a history the results have one, in which the matrix's own derivative is
    // found.
    tn_requires_grad(x[1], true);
    CHECK(tn_vjp(bent_sum, 2, x, &calls, NULL, &y, gx) == TN_OK && tn_needs_grad(gx[0]));
    tn_tensor *again;
    CHECK(tn_grad(1, &gx[1], 1, &x[1], &v[1], &again) == TN_OK &&
          close_to(again, times(h[3], v[1], 3)));
    // An expanded argument, and mistakes.
    tn_tensor *wide = tn_expand(tn_detach(x[1]), TN_SHAPE(2, 3));
    CHECK(tn_vjp(bent_sum, 2, (tn_tensor *[]){ wide, v[1] }, &calls, NULL, &y, gx) == TN_OK);
    CHECK(tn_jvp(bent, 2, x, &calls, (tn_tensor *[]){ v[1], v[1] }, &y, &dy) == TN_ESHAPE && !dy);
    CHECK(strstr(tn_error_text(cx), "x[0] f64 (2, 3) and v[0] f64 (3,) differ") != NULL);
    tn_error_clear(cx);
    CHECK(tn_hvp(bent, 2, x, &calls, v, hv) == TN_ESHAPE && !hv[0]);
    tn_error_clear(cx);
    CHECK(tn_jacobian(no_result, 2, x, NULL, j) != TN_OK &&
          strstr(tn_error_text(cx), "f returned no result"));
    tn_error_clear(cx);
    tn_close(cx);
}

// ---- functions over examples

// Functions of an example x (3, 4) and a weight w (4, 4), each of other ops: products, norms,
// places, orders, per-example gradients, a convolution, and one without a rule, which becomes a
// loop.
static void products(void *user, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    tn_tensor *h = tn_tanh(tn_matmul(x[0], tn_transpose(x[1], 0, 1)));
    y[0]         = tn_layer_norm(tn_add(h, tn_select(x[1], 0, 1)), 1, NULL, NULL, 0);
    y[1]         = tn_sum_all(tn_matmul(tn_transpose(h, 0, 1), tn_mul_s(h, 0.5)));
}
static void moves(void *user, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    tn_tensor *ends[] = { tn_slice(x[0], 1, 1, 4, 2), tn_detach(tn_flip(x[0], 0)), x[0] };
    tn_tensor *order  = tn_argsort(x[0], 1, false);
    y[0]              = tn_cumsum(tn_concat(3, ends, 1), 1);
    y[1]              = tn_add(tn_take_along_axis(x[0], order, 1), tn_softmax(x[0], 0));
}
static tn_tensor *example_loss(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_sum_all(tn_square(tn_sigmoid(tn_matmul(x[0], x[1]))));
}
static void gradients(void *user, tn_tensor *const *x, tn_tensor **y)
{
    tn_tensor *loss, *g[2];
    if (tn_vjp(example_loss, 2, x, user, NULL, &loss, g) != TN_OK) return;
    y[0] = g[0];
    y[1] = g[1];
}
static void convolution(void *user, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    tn_tensor *w = tn_reshape(x[1], TN_SHAPE(4, 1, 2, 2));
    y[0]         = tn_conv2d(tn_reshape(x[0], TN_SHAPE(1, 1, 3, 4)), w, NULL, (tn_conv_opts){ 0 });
    y[1]         = tn_max_all(y[0]);
}
static void inverse(void *user, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    tn_tensor *a = tn_matmul(x[0], tn_transpose(x[0], 0, 1));
    y[0]         = tn_inv(tn_add(a, tn_eye(tn_ctx_of(a), TN_F64, 3, 3)));
    y[1]         = tn_sum(x[1], 0);
}

// One axis more.
static void deeper(void *user, tn_tensor *const *x, tn_tensor **y)
{
    (void)user;
    y[0] = tn_unsqueeze(x[0], 0);
}

// The results of the single examples, one after the other.
static tn_tensor *one_by_one(tn_vmap_fn *f, tn_tensor *const *x, const int *in, int k)
{
    tn_tensor *all[5], *one[2], *y[2];
    for (int b = 0; b < 5; b++) {
        for (int i = 0; i < 2; i++) one[i] = in[i] == TN_NO_AXIS ? x[i] : tn_select(x[i], in[i], b);
        f(NULL, one, y);
        all[b] = y[k];
    }
    return tn_stack(5, all, 0);
}

static void functions_over_examples_agree_with_single_ones(void)
{
    static tn_vmap_fn *const f[]       = { products, moves, gradients, convolution, inverse };
    const int                ways[][2] = { { 0, TN_NO_AXIS }, { 2, 0 } };
    for (tn_ctx *c = rules_next(NULL); c; c = rules_next(c))
        for (int i = 0; i < 5; i++)
            for (int way = 0; way < 2; way++) {
                const int *in  = ways[way];
                tn_tensor *x[] = { way ? tn_randn(c, TN_F64, TN_SHAPE(3, 4, 5))
                                       : tn_randn(c, TN_F64, TN_SHAPE(5, 3, 4)),
                                   way ? tn_randn(c, TN_F64, TN_SHAPE(5, 4, 4))
                                       : tn_randn(c, TN_F64, TN_SHAPE(4, 4)) };
                tn_tensor *y[2], *g[2], *want[2];
                for (int k = 0; k < 2; k++) tn_requires_grad(x[k], true);
                bool ok = tn_vmap(f[i], NULL, 2, x, in, 2, y, 0) == TN_OK;
                for (int k = 0; k < 2 && ok; k++) {
                    tn_tensor *single = one_by_one(f[i], x, in, k);
                    ok                = close_to(y[k], single);
                    tn_tensor *a = tn_sum_all(tn_square(y[k])), *b = tn_sum_all(tn_square(single));
                    ok = ok && tn_grad(1, &a, 2, x, NULL, g) == TN_OK &&
                         tn_grad(1, &b, 2, x, NULL, want) == TN_OK && close_to(g[0], want[0]) &&
                         close_to(g[1], want[1]);
                }
                test_case_result(ok, "function %d, way %d on %s: %s", i, way, tn_ctx_device(c),
                                 tn_error_text(c));
            }
}

static void nothing(void *user, tn_tensor *const *x, tn_tensor **y)
{
    (void)user, (void)x, (void)y;
}

static void mistakes_of_functions_over_examples_are_named(void)
{
    open_cx("cpu");
    tn_tensor *x[] = { tn_ones(cx, TN_F64, TN_SHAPE(5, 3, 4)),
                       tn_ones(cx, TN_F64, TN_SHAPE(4, 4)) };
    tn_tensor *y[2];
    CHECK(tn_vmap(products, NULL, 2, x, NULL, 2, y, 0) == TN_ESHAPE && !y[0]);
    CHECK_FAILED(cx, TN_ESHAPE, "vmap: x[1] (4, 4) has 4 examples, others have 5");
    CHECK(tn_vmap(products, NULL, 2, x, (int[]){ 3, TN_NO_AXIS }, 2, y, 0) == TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "vmap: x[0] (5, 3, 4) has no axis 3");
    CHECK(tn_vmap(products, NULL, 2, x, (int[]){ TN_NO_AXIS, TN_NO_AXIS }, 2, y, 0) == TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "vmap: no argument has an axis of examples");
    CHECK(tn_vmap(nothing, NULL, 1, x, NULL, 1, y, 0) == TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "vmap: the function left y[0] NULL");
    CHECK(tn_vmap(products, NULL, 2, x, (int[]){ 0, TN_NO_AXIS }, 2, y, 2) == TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "vmap: y[1] (5,) has no axis 2");
    x[0] = tn_ones(cx, TN_F32, TN_SHAPE(2, 1, 1, 1, 1, 1, 1, 1));
    CHECK(tn_vmap(deeper, NULL, 1, x, NULL, 1, y, 7) == TN_ESHAPE && !y[0]);
    CHECK_FAILED(cx, TN_ESHAPE,
                 "vmap: values (1, 1, 1, 1, 1, 1, 1, 1) of all steps would have more than 8 axes");
    tn_close(cx);
}

// ---- hooks

// What a hook has seen, and what it does: doubles, or returns nothing, or something that does not
// fit.
typedef struct {
    int        calls, ended, does;
    tn_tensor *seen;
} watcher;

static tn_tensor *watch(tn_tensor *g, void *user)
{
    watcher *w = user;
    w->calls++;
    return w->does == 0 ? tn_mul_s(g, 2) : w->does == 1 ? NULL : tn_sum_all(g);
}

static void end_watch(void *user)
{
    ((watcher *)user)->ended++;
}

// y = sum(h h) of h = x x, where x has two states: the hook of h doubles what goes on, that of x
// doubles all of it once.
static void hooks_change_gradients_as_they_pass(void)
{
    for (tn_ctx *c = rules_next(NULL); c; c = rules_next(c)) {
        watcher    of_h = { 0 }, of_x = { 0 }, silent = { .does = 1 };
        tn_tensor *x = tn_requires_grad(tn_from(c, TN_F64, TN_SHAPE(2), (double[]){ 1, 2 }), true);
        CHECK(tn_hook_add(x, watch, &silent, NULL) > 0);
        int64_t hook = tn_hook_add(x, watch, &of_x, end_watch);
        for (int i = 0; i < 2; i++) {
            tn_scope  *s = tn_begin(c);
            tn_tensor *h = tn_mul(x, x), *y = tn_add(tn_sum_all(tn_mul(h, h)), tn_sum_all(x)), *g;
            CHECK(tn_hook_add(h, watch, &of_h, end_watch) > 0);
            if (i) {
                CHECK_STATUS(tn_grad(1, &y, 1, &x, NULL, &g), TN_OK);
            } else {
                CHECK_STATUS(tn_backward(y, NULL), TN_OK);
                g = tn_grad_of(x);
            }
            double have[2];  // 2 (2 4 x^3 + 1)
            CHECK_STATUS(tn_read(g, TN_F64, have, 2), TN_OK);
            CHECK(have[0] == 18 && have[1] == 130);
            CHECK_STATUS(tn_end(s), TN_OK);
            CHECK(of_h.calls == i + 1 && of_x.calls == i + 1 && silent.calls == i + 1);
        }
        CHECK(tn_hook_remove(c, hook) && !tn_hook_remove(c, hook) && of_x.ended == 1);
        tn_tensor *y = tn_sum_all(x);
        CHECK_STATUS(tn_backward(y, NULL), TN_OK);
        CHECK(of_x.calls == 2 && silent.calls == 3);
    }
}

static void mistakes_of_hooks_are_named(void)
{
    open_cx("cpu");
    watcher    wrong = { .does = 2 };
    tn_tensor *x     = tn_requires_grad(tn_ones(cx, TN_F64, TN_SHAPE(2, 3)), true);
    CHECK(!tn_hook_add(tn_transpose(tn_exp(x), 0, 1), watch, &wrong, NULL));
    CHECK_FAILED(cx, TN_EGRAD, "hook_add: x (3, 2) is a view");
    CHECK(!tn_hook_add(tn_ones(cx, TN_F64, TN_SHAPE(2)), watch, &wrong, NULL));
    CHECK_FAILED(cx, TN_EGRAD, "hook_add: x has no gradient");
    CHECK(!tn_hook_add(x, NULL, NULL, NULL));
    CHECK_FAILED(cx, TN_EARG, "hook_add: the function is NULL");
    tn_tensor *h = tn_exp(x);
    CHECK(tn_hook_add(h, watch, &wrong, end_watch) > 0);
    CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(h, h)), NULL), TN_ESHAPE);
    CHECK_FAILED(cx, TN_ESHAPE, "hook: it returned f64 () for a gradient f64 (2, 3)");
    tn_close(cx);
    CHECK(wrong.ended == 1);
}

// Leaves of different dtypes in one expression.
static void mixed_leaves_keep_their_dtypes(void)
{
    open_cx("cpu");
    for (int i = 0; i < FLOATS; i++)
        for (int j = 0; j < FLOATS; j++) {
            tn_dtype   a = all_floats[i], b = all_floats[j];
            tn_scope  *s = tn_begin(cx);
            tn_tensor *x[2], *gx[2], *y;
            x[0]    = tn_requires_grad(tn_full(cx, a, TN_SHAPE(2, 3), 1.5), true);
            x[1]    = tn_requires_grad(tn_full(cx, b, TN_SHAPE(3), 0.5), true);
            y       = tn_sum_all(tn_mul(x[0], tn_exp(x[1])));
            bool ok = tn_grad(1, &y, 2, x, NULL, gx) == TN_OK && tn_dtype_of(gx[0]) == a &&
                      tn_dtype_of(gx[1]) == b;
            ok = ok && fabs(tn_item(tn_select(gx[1], 0, 1)) - 3 * exp(0.5)) < 0.05;
            test_case_result(ok, "%s and %s: %s", tn_dtype_name(a), tn_dtype_name(b),
                             tn_error_text(cx));
            tn_error_clear(cx);
            tn_end(s);
        }
    tn_close(cx);
}

// ---- at kinks, and where mathematics leaves a choice -------------------------------------------

// The gradient of f's sum at these four numbers.
static void kink(int line, const char *text, tn_tensor *(*f)(tn_tensor *const *, void *),
                 const double *at, const double *want)
{
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x = tn_requires_grad(tn_from(cx, TN_F64, TN_SHAPE(4), at), true);
    tn_tensor *y = f(&x, NULL), *g = y ? gradient_of(tn_sum_all(y), x) : NULL;
    double     have[4] = { NAN, NAN, NAN, NAN };
    bool       ok      = g && tn_read(g, TN_F64, have, 4) == TN_OK;
    for (int i = 0; i < 4; i++) ok &= have[i] == want[i];
    test_case_result(ok, "line %d: %s: %g %g %g %g %s", line, text, have[0], have[1], have[2],
                     have[3], tn_error_text(cx));
    tn_error_clear(cx);
    tn_end(s);
}
#define KINK(f, at, ...) kink(__LINE__, #f, f, at, (const double[]){ __VA_ARGS__ })

static tn_tensor *k_max(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_max(x[0], 0);
}

static tn_tensor *k_norm(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_norm_all(x[0]);
}

static tn_tensor *k_std(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_std_all(x[0]);
}

static tn_tensor *k_abs(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_abs(x[0]);
}

static tn_tensor *k_relu(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_relu(x[0]);
}

static tn_tensor *k_maximum(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_maximum(x[0], tn_zeros_like(x[0]));
}

static tn_tensor *k_clamp(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_clamp(x[0], 0, 2);
}

static tn_tensor *k_power(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_pow(tn_zeros_like(x[0]), x[0]);
}

static void gradients_at_kinks_are_those_of_pytorch(void)
{
    static const double zeros[4] = { 0 }, mixed[4] = { 2, 0, -1, 2 }, pairs[4] = { 1, 0, 3, 2 };
    open_cx("cpu");
    KINK(k_max, mixed, 0.5, 0, 0, 0.5);
    KINK(k_max, zeros, 0.25, 0.25, 0.25, 0.25);
    KINK(k_norm, zeros, 0, 0, 0, 0);
    KINK(k_std, zeros, 0, 0, 0, 0);
    KINK(k_abs, mixed, 1, 0, -1, 1);
    KINK(k_relu, mixed, 1, 0, 0, 1);
    KINK(k_maximum, mixed, 1, 0.5, 0, 1);
    KINK(k_clamp, mixed, 1, 1, 0, 1);
    KINK(k_power, pairs, 0, 0, 0, 0);
    tn_close(cx);
}

// A value's history is cut by detach and by no-grad, not by writes elsewhere.
static void detached_and_no_grad_values_pass_nothing(void)
{
    open_cx("cpu");
    tn_tensor *x = tn_requires_grad(tn_full(cx, TN_F64, TN_SHAPE(3), 2), true);
    CHECK_NEAR(tn_item(tn_select(gradient_of(tn_sum_all(tn_mul(x, tn_detach(x))), x), 0, 1)), 2, 0);
    bool       mode = tn_grad_mode(cx, false);
    tn_tensor *y    = tn_square(x);
    tn_grad_mode(cx, mode);
    CHECK(!tn_needs_grad(y));
    CHECK_NEAR(tn_item(tn_select(gradient_of(tn_sum_all(tn_mul(x, y)), x), 0, 2)), 4, 0);
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

static void third_derivatives_are_right(void)
{
    open_cx("cpu");
    tn_tensor *x = tn_requires_grad(tn_from(cx, TN_F64, TN_SHAPE(2), (double[]){ 0.3, -1.1 }),
                                    true);
    tn_tensor *y = tn_mul(tn_sin(x), tn_exp(x));
    for (int i = 0; i < 3; i++) y = gradient_of(tn_sum_all(y), x);
    double have[2] = { 0, 0 };
    CHECK_STATUS(tn_read(y, TN_F64, have, 2), TN_OK);
    for (int i = 0; i < 2; i++) {
        double v = i ? -1.1 : 0.3;
        CHECK_NEAR(have[i], 2 * exp(v) * (cos(v) - sin(v)), 1e-12);
    }
    tn_close(cx);
}

static void huber_is_curved_where_nothing_differs(void)
{
    open_cx("cpu");
    tn_tensor *x = tn_requires_grad(tn_from(cx, TN_F64, TN_SHAPE(3), (double[]){ 1, 0.5, 4 }),
                                    true);
    tn_tensor *t = tn_from(cx, TN_F64, TN_SHAPE(3), (double[]){ 1, 1, 1 });
    tn_tensor *y = tn_huber_with(x, t, (tn_loss_opts){ .reduce = TN_REDUCTION_SUM });
    double     have[3];
    tn_tensor *g = gradient_of(y, x);
    CHECK_STATUS(tn_read(g, TN_F64, have, 3), TN_OK);
    CHECK(have[0] == 0 && have[1] == -0.5 && have[2] == 1);
    CHECK_STATUS(tn_read(gradient_of(tn_sum_all(g), x), TN_F64, have, 3), TN_OK);
    CHECK(have[0] == 1 && have[1] == 1 && have[2] == 0);
    tn_close(cx);
}

const test_case tests_gradients[] = {
    TEST(gradients_without_library_ops_agree),
    TEST(every_form_has_the_gradients_of_differences),
    TEST(programs_of_views_and_writes_have_the_gradients_of_differences),
    TEST(every_row_with_a_gradient_is_differentiated),
    TEST(users_ops_have_the_gradients_they_record),
    TEST(forms_without_a_gradient_need_none),
    TEST(gradients_stop_at_integers_and_bools),
    TEST(a_users_op_without_a_gradient_says_so),
    TEST(gradients_have_the_dtype_of_their_leaf),
    TEST(gradients_of_two_devices_agree),
    TEST(derivatives_of_functions_agree_with_each_other),
    TEST(functions_over_examples_agree_with_single_ones),
    TEST(mistakes_of_functions_over_examples_are_named),
    TEST(hooks_change_gradients_as_they_pass),
    TEST(mistakes_of_hooks_are_named),
    TEST(mixed_leaves_keep_their_dtypes),
    TEST(gradients_at_kinks_are_those_of_pytorch),
    TEST(detached_and_no_grad_values_pass_nothing),
    TEST(third_derivatives_are_right),
    TEST(huber_is_curved_where_nothing_differs),
    TEST_END,
};
