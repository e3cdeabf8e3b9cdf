// test_outputs.c: ops with several outputs, which one call computes: a user's op of three outputs
// of three dtypes on every device that is here.
#include "check.h"
#include "faulty.h"
#include "table.h"

#include "ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- an op -------------------------------------------------------------------------------------

static int calls, failures;  // of compute: so far, and how many of the next are to fail

// Of x (n): its elements cut to i64 (n), doubled in f32 (n), squares and the elements in f64 (2,
// n).
static tn_status three_shapes(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = (tn_array){ .dtype = TN_I64, .rank = 1, .size = { in->size[0] } };
    out[1] = (tn_array){ .dtype = TN_F32, .rank = 1, .size = { in->size[0] } };
    out[2] = (tn_array){ .dtype = TN_F64, .rank = 2, .size = { 2, in->size[0] } };
    return TN_OK;
}

static tn_status three_compute(const void *attr, const tn_array *in, tn_array *out)
{
    const float *x = in->data;
    int64_t     *i = out[0].data, n = in->size[0];
    float       *d = out[1].data;
    double      *s = out[2].data;
    (void)attr;
    calls++;
    if (failures > 0 && failures--) return TN_EUSER;
    for (int64_t k = 0; k < n; k++) {
        i[k]     = (int64_t)x[k];
        d[k]     = 2 * x[k];
        s[k]     = (double)x[k] * x[k];
        s[k + n] = x[k];
    }
    return TN_OK;
}

// The slope of the squares is the second output.
static tn_status three_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                            tn_tensor *const *gy, tn_tensor **gx)
{
    (void)attr, (void)x;
    tn_tensor *squares = tn_cast(tn_select(gy[2], 0, 0), TN_F32);
    tn_tensor *same    = tn_cast(tn_select(gy[2], 0, 1), TN_F32);
    gx[0]              = tn_add(tn_mul_s(gy[1], 2), tn_add(tn_mul(y[1], squares), same));
    return TN_OK;
}

static const tn_op_def three = { .name    = "three",
                                 .nin     = 1,
                                 .nout    = 3,
                                 .shape   = three_shapes,
                                 .compute = three_compute,
                                 .grad    = three_grad };

static const float values[] = { 1.5f, -2, 3, 0.25f };
enum { N = 4 };

static tn_tensor *make_input(tn_ctx *cx)
{
    return tn_from(cx, TN_F32, TN_SHAPE(N), values);
}

// Checks output k by its elements.
static void check_output(tn_tensor *y, int k)
{
    double v[2 * N];
    if (!CHECK_STATUS(tn_read(y, TN_F64, v, k == 2 ? 2 * N : N), TN_OK)) return;
    for (int i = 0; i < N; i++) {
        double x = (double)values[i];
        CHECK_NEAR(v[i], k == 0 ? (double)(int64_t)x : k == 1 ? 2 * x : x * x, 0);
        if (k == 2) CHECK_NEAR(v[N + i], x, 0);
    }
}

// Runs a test on every device that is here; on those that fuse also op by op.
static void on_every_device(void (*test)(tn_ctx *cx))
{
    static const char *const devices[] = { "ref", "cpu", "opencl", "cuda" };
    for (int i = 0; i < 4; i++)
        for (int eager = 0; eager < 2; eager++) {
            if (eager) setenv("TN_EAGER", "1", 1);
            tn_ctx *cx = open_quiet(devices[i], 1);
            unsetenv("TN_EAGER");
            if (!cx) {
                tn_error_clear(NULL);
                continue;
            }
            calls = failures = 0;
            test(cx);
            test_case_result(!tn_error(cx), "%s: %s", devices[i], tn_error_text(cx));
            tn_close(cx);
        }
}

// ---- reading -----------------------------------------------------------------------------------

static void read_in_an_order(tn_ctx *cx)
{
    static const int order[][3] = { { 0, 1, 2 }, { 2, 1, 0 }, { 1, 0, 2 } };
    for (int i = 0; i < 3; i++) {
        tn_tensor *x = make_input(cx), *y[3];
        calls        = 0;
        CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
        for (int k = 0; k < 3; k++) check_output(y[order[i][k]], order[i][k]);
        CHECK_INT(calls, 1);
    }
}

static void outputs_are_read_in_any_order_after_one_call(void)
{
    on_every_device(read_in_an_order);
}

static void keep_one(tn_ctx *cx)
{
    for (int keep = 0; keep < 3; keep++) {
        tn_tensor *x = make_input(cx), *y[3];
        CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
        for (int k = 0; k < 3; k++)
            if (k != keep) tn_drop(y[k]);
        check_output(y[keep], keep);
    }
}

static void an_output_needs_no_handle_of_the_others(void)
{
    on_every_device(keep_one);
}

// What only another op holds is computed with the rest, and read by it later.
static void read_by_ops(tn_ctx *cx)
{
    tn_tensor *x = make_input(cx), *y[3];
    CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
    tn_tensor *sum  = tn_sum_all(tn_add(y[1], tn_cast(y[0], TN_F32)));
    tn_tensor *last = tn_sum_all(y[2]);
    tn_drop(y[0]);
    tn_drop(y[2]);
    CHECK_NEAR(tn_item(sum), 5.5 + 2, 0);
    CHECK_NEAR(tn_item(last), 2.25 + 4 + 9 + 0.0625 + 2.75, 1e-9);
    check_output(y[1], 1);
    CHECK_INT(calls, 1);
}

static void ops_read_outputs_that_have_no_handle_any_more(void)
{
    on_every_device(read_by_ops);
}

static void keep_through_steps(tn_ctx *cx)
{
    tn_tensor *x = make_input(cx), *y[3];
    CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    for (int k = 0; k < 3; k++) check_output(y[k], k);
    CHECK_INT(calls, 1);
    // The value of a dead output that others were made from is not wanted either.
    CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
    tn_drop(y[0]);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    check_output(y[2], 2);
    check_output(y[1], 1);
    CHECK_INT(calls, 2);
}

static void a_step_stores_every_output_with_a_handle(void)
{
    on_every_device(keep_through_steps);
}

// Wherever the limit on pending nodes falls, the outputs of an op are of one evaluation.
static void flush_between(tn_ctx *cx)
{
    for (size_t after = 0; after < 6; after++) {
        tn_tensor *x = tn_mul_s(make_input(cx), 1), *y[3];
        cx->flush_at = cx->pending_nodes + after;
        CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
        for (int k = 2; k >= 0; k--) check_output(y[k], k);
    }
}

static void a_flush_does_not_part_outputs(void)
{
    on_every_device(flush_between);
}

// ---- memory ------------------------------------------------------------------------------------

static void write_input(tn_ctx *cx)
{
    tn_tensor *x = tn_add_s(make_input(cx), 0), *y[3];
    CHECK_STATUS(tn_eval_of(x), TN_OK);
    CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
    tn_add_(tn_slice(x, 0, 0, 2, 1), tn_full(cx, TN_F32, TN_0D, 10));
    // An output is written to as any other value is.
    tn_add_(tn_slice(y[1], 0, 1, 3, 1), tn_full(cx, TN_F32, TN_0D, 1));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    float v[N];
    CHECK_STATUS(tn_read(x, TN_F32, v, N), TN_OK);
    CHECK(v[0] == 11.5f && v[1] == 8 && v[2] == 3 && v[3] == 0.25f);
    CHECK_STATUS(tn_read(y[1], TN_F32, v, N), TN_OK);
    CHECK(v[0] == 3 && v[1] == -3 && v[2] == 7 && v[3] == 0.5f);
    check_output(y[0], 0);
    check_output(y[2], 2);
}

static void inputs_and_outputs_can_be_written_in_place(void)
{
    on_every_device(write_input);
}

// The first output is empty, or the second is.
static tn_status some_shapes(const void *attr, const tn_array *in, tn_array *out)
{
    int empty = *(const int *)attr;
    for (int k = 0; k < 2; k++) {
        out[k] = in[0];
        if (k == empty) out[k].size[0] = 0;
    }
    return TN_OK;
}

static tn_status some_compute(const void *attr, const tn_array *in, tn_array *out)
{
    int full = 1 - *(const int *)attr;
    calls++;
    memcpy(out[full].data, in->data, (size_t)in->size[0] * sizeof(float));
    return TN_OK;
}

static void some_are_empty(tn_ctx *cx)
{
    static const tn_op_def some = {
        .name = "some", .nin = 1, .nout = 2, .shape = some_shapes, .compute = some_compute
    };
    for (int empty = 0; empty < 2; empty++)
        for (int first = 0; first < 2; first++) {
            tn_tensor *x = make_input(cx), *y[2];
            float      v[N];
            calls = 0;
            CHECK_STATUS(tn_custom_n(&some, &x, &empty, sizeof empty, y), TN_OK);
            for (int i = 0; i < 2; i++) {
                int k = first ? 1 - i : i;
                CHECK_STATUS(tn_read(y[k], TN_F32, v, k == empty ? 0 : N), TN_OK);
                if (k != empty) CHECK(!memcmp(v, values, sizeof v));
            }
            CHECK_INT(calls, 1);
        }
}

static void an_op_runs_if_any_output_has_an_element(void)
{
    on_every_device(some_are_empty);
}

// Indices take 800,000 bytes, values 400,000.
static void an_output_that_finds_no_memory_is_named_by_its_op(void)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cpu", .mem_limit = 1300000 });
    tn_on_error(cx, NULL, NULL);
    tn_tensor *x = tn_rand(cx, TN_F32, TN_SHAPE(100000));
    CHECK_STATUS(tn_eval_of(x), TN_OK);
    CHECK_STATUS(tn_eval_of(tn_sort(x, 0, false).indices), TN_EMEM);
    CHECK(strstr(tn_error_text(cx), "argsort: ") == tn_error_text(cx));
    CHECK(strstr(tn_error_text(cx), "(100000,) of f32") != NULL);
    tn_close(cx);
}

static void use_outputs(tn_ctx *cx)
{
    double     v[2 * N];
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x = tn_requires_grad(make_input(cx), true), *y[3] = { NULL };
    if (tn_custom_n(&three, &x, NULL, 0, y) == TN_OK) {
        tn_drop(y[0]);
        tn_read(y[2], TN_F64, v, 2 * N);
        if (tn_backward(tn_sum_all(y[1]), NULL) == TN_OK) tn_eval(cx);
    }
    tn_error_clear(cx);
    tn_end(s);
    tn_error_clear(cx);
}

static void any_allocation_may_fail(void)
{
    static const char *const devices[] = { "ref", "cpu" };
    for (int i = 0; i < 2; i++) {
        long n = 1, failed = 1;
        for (; failed && n < 2000; n++) {
            faulty  h  = { 0 };
            tn_ctx *cx = faulty_open(devices[i], &h);
            if (!CHECK(cx != NULL)) return;
            h.countdown = n;
            h.forever   = n % 2;
            use_outputs(cx);
            failed       = h.failed;
            h.countdown  = 0;
            tn_tensor *x = make_input(cx), *y[3];
            CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
            check_output(y[1], 1);
            check_output(y[0], 0);
            tn_close(cx);
            CHECK_INT(faulty_left(&h), 0);
        }
        CHECK(n > 20);
    }
}

// ---- errors ------------------------------------------------------------------------------------

static void fail_and_repeat(tn_ctx *cx)
{
    tn_tensor *x = make_input(cx), *y[3];
    double     v[2 * N];
    failures = 1;
    CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
    CHECK_STATUS(tn_read(y[2], TN_F64, v, 2 * N), TN_EUSER);
    CHECK(strstr(tn_error_text(cx), "three: compute failed") != NULL);
    tn_error_clear(cx);
    for (int k = 0; k < 3; k++) check_output(y[k], k);
    CHECK_INT(calls, 2);
    // A step that fails leaves none of them.
    failures = 1;
    CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
    CHECK_STATUS(tn_eval(cx), TN_EUSER);
    tn_error_clear(cx);
    for (int k = 0; k < 3; k++) CHECK_STATUS(tn_eval_of(y[k]), TN_EGONE);
    tn_error_clear(cx);
}

static void a_call_that_failed_can_be_made_again(void)
{
    on_every_device(fail_and_repeat);
}

// ---- gradients ---------------------------------------------------------------------------------

// Of output 1 alone, of output 2 alone, and of both; before anything is computed, after a read of
// what is differentiated, and with no handle left of the output that the gradient reads.
static void differentiate(tn_ctx *cx)
{
    for (int which = 1; which < 4; which++)
        for (int read = 0; read < 3; read++) {
            tn_scope  *s = tn_begin(cx);
            tn_tensor *x = tn_requires_grad(make_input(cx), true), *y[3], *loss = NULL;
            float      g[N];
            CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
            if (which & 1) loss = tn_sum_all(tn_mul_s(y[1], 3));
            if (which & 2) {
                tn_tensor *sum = tn_cast(tn_sum_all(y[2]), TN_F32);
                loss           = loss ? tn_add(loss, sum) : sum;
            }
            if (read == 2) {
                for (int k = 0; k < 3; k++) tn_drop(y[k]);
            }
            if (read) CHECK(tn_item(loss) != 0);
            CHECK_STATUS(tn_backward(loss, NULL), TN_OK);
            CHECK_STATUS(tn_read(tn_grad_of(x), TN_F32, g, N), TN_OK);
            for (int i = 0; i < N; i++)
                CHECK_NEAR(g[i], (which & 1 ? 6 : 0) + (which & 2 ? 2 * values[i] + 1 : 0), 1e-6);
            tn_end(s);
        }
}

static void gradients_go_through_any_output(void)
{
    on_every_device(differentiate);
}

// The primary is of integers: gradients pass it, but none is its own.
static void go_past_integers(tn_ctx *cx)
{
    tn_tensor *x = tn_requires_grad(make_input(cx), true), *y[3];
    CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
    CHECK(!tn_needs_grad(y[0]) && tn_needs_grad(y[1]) && tn_needs_grad(y[2]));
    CHECK(!tn_needs_grad(tn_cast(y[0], TN_F32)));
    tn_want(y[0]);
    tn_tensor *index = tn_remainder(y[0], tn_full(cx, TN_I64, TN_0D, N));
    CHECK_STATUS(tn_backward(tn_sum_all(y[1]), NULL), TN_OK);
    CHECK_STATUS(tn_eval(cx), TN_OK);
    // It can be used as a value although its history is spent.
    CHECK_STATUS(tn_backward(tn_sum_all(tn_gather(x, 0, index)), NULL), TN_OK);
    CHECK_STATUS(tn_backward(tn_sum_all(tn_mul(x, tn_cast(y[0], TN_F32))), NULL), TN_OK);
    float g[N];
    CHECK_STATUS(tn_read(tn_grad_of(x), TN_F32, g, N), TN_OK);
    // Indices 1, 2, 3, 0.
    for (int i = 0; i < N; i++) CHECK_NEAR(g[i], 2 + 1 + (int64_t)values[i], 1e-6);
}

static void a_primary_of_integers_passes_gradients_of_the_others(void)
{
    on_every_device(go_past_integers);
}

// ---- what is told ------------------------------------------------------------------------------

// What is pending, as tn_explain tells it.
static bool is_explained(tn_ctx *cx, const char *want)
{
    char  text[4096] = { 0 };
    FILE *f          = tmpfile();
    bool  ok         = f && tn_explain(cx, f) == TN_OK;
    if (f) rewind(f);
    ok = ok && fread(text, 1, sizeof text - 1, f) > 0 && strstr(text, want) != NULL;
    if (f) fclose(f);
    return ok;
}

static void outputs_are_one_step_whose_bytes_are_all_counted(void)
{
    tn_ctx    *cx = open_quiet("cpu", 1);
    tn_tensor *x  = make_input(cx), *y[3];
    CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
    // 16 read, 32 + 16 + 64 written.
    CHECK(is_explained(cx, "1 kernel, 128 bytes moved, 128 at least"));
    tn_close(cx);
}

// ---- sort --------------------------------------------------------------------------------------

static void sort_in_any_order(tn_ctx *cx)
{
    static const float   sorted[] = { -2, 0.25f, 1.5f, 3 };
    static const int64_t order[]  = { 1, 3, 0, 2 };
    for (int first = 0; first < 4; first++) {
        tn_scope *s = tn_begin(cx);
        tn_pair   p = tn_sort(make_input(cx), 0, false);
        float     v[N];
        int64_t   at[N];
        if (first == 2) tn_drop(p.indices);
        if (first == 3) tn_drop(p.values);
        if (first % 2) CHECK_STATUS(tn_read(p.indices, TN_I64, at, N), TN_OK);
        if (first != 3) CHECK_STATUS(tn_read(p.values, TN_F32, v, N), TN_OK);
        if (first == 0) CHECK_STATUS(tn_read(p.indices, TN_I64, at, N), TN_OK);
        if (first != 3) CHECK(!memcmp(v, sorted, sizeof v));
        if (first != 2) CHECK(!memcmp(at, order, sizeof at));
        tn_end(s);
    }
}

static void a_sort_gives_values_and_indices(void)
{
    on_every_device(sort_in_any_order);
}

static void a_sort_is_one_call(void)
{
    tn_ctx *cx = open_quiet("cpu", 1);
    tn_pair p  = tn_sort(make_input(cx), 0, true);
    // 16 bytes read, 32 of indices and 16 of values written.
    CHECK(is_explained(cx, "1 kernel, 64 bytes moved, 64 at least"));
    tn_drop(p.values);
    CHECK(is_explained(cx, "1 kernel, 48 bytes moved, 48 at least"));
    tn_close(cx);
}

// The gradient needs the indices, which are kept with the values: reading those first sorts once.
static void sort_and_differentiate(tn_ctx *cx)
{
    for (int read = 0; read < 2; read++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = tn_requires_grad(make_input(cx), true), *y = tn_sort(x, 0, true).values;
        float      g[N];
        tn_tensor *loss = tn_sum_all(tn_mul(y, tn_arange(cx, TN_F32, 1, N + 1, 1)));
        if (read) CHECK_NEAR(tn_item(loss), 3 + 2 * 1.5 + 3 * 0.25 - 4 * 2, 1e-6);
        CHECK_STATUS(tn_backward(loss, NULL), TN_OK);
        CHECK_STATUS(tn_read(tn_grad_of(x), TN_F32, g, N), TN_OK);
        CHECK(g[0] == 2 && g[1] == 4 && g[2] == 1 && g[3] == 3);
        tn_end(s);
    }
}

static void the_gradient_of_sorted_values_goes_back_by_the_indices(void)
{
    on_every_device(sort_and_differentiate);
    tn_ctx *cx = open_quiet("cpu", 1);
    tni_mark_lacking(cx, TNI_argsort);
    sort_and_differentiate(cx);
    sort_in_any_order(cx);
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

// ---- attention ---------------------------------------------------------------------------------

enum { B = 2, H = 3, T = 5, S = 7, D = 4 };

typedef struct {
    tn_tensor *q, *k, *v, *mask;
} operands;

// From the last query all keys are hidden.
static operands draw_operands(tn_ctx *cx, tn_dtype dt, bool needs_grad)
{
    operands   o;
    tn_tensor *x[3];
    tn_seed(cx, 5);
    for (int i = 0; i < 3; i++) {
        x[i] = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(B, H, i ? S : T, D)), dt);
        CHECK_STATUS(tn_eval_of(x[i]), TN_OK);
        if (needs_grad) tn_requires_grad(x[i], true);
    }
    tn_tensor *at = tn_unsqueeze(tn_arange(cx, TN_I64, 0, T, 1), 1);
    o             = (operands){ x[0], x[1], x[2], tn_lt_s(at, T - 1) };
    return o;
}

static tn_tensor *attend(operands o)
{
    return tn_attention(o.q, o.k, o.v, (tn_attention_opts){ .mask = o.mask });
}

// The node of the op that y is a view of.
static tni_node *primary_of(tn_tensor *y)
{
    tni_node *n = y->store->node;
    while (n->op == TNI_view) n = n->src[0];
    return n;
}

// The logarithm of the sum of the weights of each query, as the op gives it and by other ops.
static void find_log_sums(tn_ctx *cx)
{
    static const tn_dtype dtypes[] = { TN_F32, TN_F64, TN_BF16 };
    if (tni_lacks(cx, TNI_attention)) return;
    for (int k = 0; k < 3; k++) {
        operands   o = draw_operands(cx, dtypes[k], false);
        tn_tensor *y = attend(o), *q = tn_cast(o.q, TN_F64), *keys = tn_cast(o.k, TN_F64);
        tn_array   out = { .dtype = k == 1 ? TN_F64 : TN_F32, .rank = 3, .size = { B, H, T } };
        tni_node  *n   = tni_node_ref(primary_of(y));
        tn_tensor *lse = tni_output(cx, &n, 1, &out);
        double     have[B * H * T], want[B * H * T];
        tn_tensor *score = tn_matmul(tn_mul_s(q, 0.5), tn_transpose(keys, -1, -2));
        CHECK_STATUS(tn_read(tn_logsumexp(score, -1), TN_F64, want, B * H * T), TN_OK);
        CHECK_STATUS(tn_read(lse, TN_F64, have, B * H * T), TN_OK);
        for (int i = 0; i < B * H * T; i++)
            if (i % T == T - 1) CHECK(have[i] == -INFINITY);
            else CHECK_NEAR(have[i], want[i], k == 1 ? 1e-12 : 1e-5);
        CHECK(primary_of(y)->state == TNI_DONE);  // by the same call
        tni_node_unref(cx, n);
    }
}

static void attention_gives_the_logarithms_of_its_sums(void)
{
    on_every_device(find_log_sums);
}

// The gradient of one operand, or of all, with what else is computed before it.
static void gradients_of(tn_ctx *cx, tn_dtype dt, int which, bool read, float *g)
{
    tn_scope  *s   = tn_begin(cx);
    operands   o   = draw_operands(cx, dt, true);
    tn_tensor *x[] = { o.q, o.k, o.v }, *gx[3], *y = tn_sum_all(tn_square(attend(o)));
    int        first = which < 3 ? which : 0, n = which < 3 ? 1 : 3;
    if (read) CHECK(tn_item(y) > 0);
    CHECK_STATUS(tn_grad(1, &y, n, x + first, NULL, gx), TN_OK);
    for (int i = 0; i < n; i++) {
        int64_t at = first + i > 0 ? B * H * (T + (first + i - 1) * S) * D : 0;
        CHECK_STATUS(tn_read(gx[i], TN_F32, g + at, tn_count(gx[i])), TN_OK);
    }
    tn_end(s);
}

static void differentiate_operands(tn_ctx *cx)
{
    enum { ALL = B * H * (T + 2 * S) * D };
    static const tn_dtype dtypes[] = { TN_F32, TN_BF16 };
    if (tni_lacks(cx, TNI_attention_grad)) return;
    for (int k = 0; k < 2; k++) {
        float all[ALL], apart[ALL], later[ALL];
        gradients_of(cx, dtypes[k], 3, false, all);
        gradients_of(cx, dtypes[k], 3, true, later);
        for (int i = 0; i < 3; i++) gradients_of(cx, dtypes[k], i, i == 1, apart);
        for (int i = 0; i < ALL; i++) {
            double near = 1e-6 + (k ? 1e-2 : 1e-5) * fabs(all[i]);
            if (!CHECK_NEAR(apart[i], all[i], near) || !CHECK_NEAR(later[i], all[i], near)) break;
        }
    }
}

static void gradients_of_attention_can_be_asked_for_one_by_one_and_after_a_read(void)
{
    on_every_device(differentiate_operands);
}

// ---- the statistics of batch norm --------------------------------------------------------------

typedef struct {
    const tni_node *node[512];
    int             count;
} nodes;

// Adds what node n is made of, itself included, each once.
static void gather(nodes *all, const tni_node *n)
{
    for (int i = 0; i < all->count; i++)
        if (all->node[i] == n) return;
    if (!CHECK(all->count < (int)(sizeof all->node / sizeof *all->node))) return;
    all->node[all->count++] = n;
    for (uint32_t i = 0; i < n->nsrc; i++) gather(all, n->src[i]);
}

// Reductions over as many elements as the batch has that a training step records, with the running
// statistics or without.
static int count_reductions(tn_ctx *cx, bool running, bool backward)
{
    tn_scope  *s     = tn_begin(cx);
    nodes      all   = { .count = 0 };
    int        found = 0;
    tn_tensor *x     = tn_requires_grad(tn_randn(cx, TN_F32, TN_SHAPE(6, 3, 5)), true);
    tn_tensor *w     = tn_requires_grad(tn_ones(cx, TN_F32, TN_SHAPE(3)), true), *of[6];
    tn_tensor *b     = tn_requires_grad(tn_zeros(cx, TN_F32, TN_SHAPE(3)), true);
    tn_tensor *mean = tn_zeros(cx, TN_F32, TN_SHAPE(3)), *var = tn_ones(cx, TN_F32, TN_SHAPE(3));
    tn_tensor *y = tn_batch_norm(x, running ? mean : NULL, running ? var : NULL, w, b,
                                 (tn_batch_norm_opts){ .training = true });
    tn_tensor *g = tn_randn(cx, TN_F32, TN_SHAPE(6, 3, 5));
    of[0] = y, of[1] = mean, of[2] = var;
    if (backward)
        CHECK_STATUS(tn_grad(1, &y, 3, (tn_tensor *const[]){ x, w, b }, &g, of + 3), TN_OK);
    for (int i = 0; i < (backward ? 6 : 3); i++) gather(&all, of[i]->store->node);
    for (int i = 0; i < all.count; i++) {
        const tni_node *n = all.node[i];
        found += tni_op_table[n->op].class == TNI_REDUCE && tni_node_count(n->src[0]) == 6 * 3 * 5;
    }
    tn_end(s);
    return found;
}

// The mean, and of the distances from it the sum and the sum of squares, are values like others:
// what normalizes, the running statistics and the gradient read the same ones.
static void batch_norm_measures_a_batch_once(void)
{
    tn_ctx *cx = open_quiet("cpu", 1);
    CHECK_INT(count_reductions(cx, false, false), 3);
    CHECK_INT(count_reductions(cx, true, false), 3);
    int alone = count_reductions(cx, false, true);
    CHECK(alone > 3);
    CHECK_INT(count_reductions(cx, true, true), alone);
    tn_close(cx);
}

// ---- computing again ---------------------------------------------------------------------------

// Some outputs are stored by a step, the others are asked for afterwards, together or one by one.
static void leave_some_out(tn_ctx *cx)
{
    for (int wanted = 0; wanted < 8; wanted++)
        for (int first = 0; first < 3; first++) {
            tn_scope  *s = tn_begin(cx);
            tn_tensor *x = make_input(cx), *y[3];
            CHECK_STATUS(tn_custom_n(&three, &x, NULL, 0, y), TN_OK);
            for (int k = 0; k < 3; k++) {
                tn_cast(y[k], TN_BOOL);
                if (wanted >> k & 1) tn_want(y[k]);
            }
            CHECK_STATUS(tn_eval(cx), TN_OK);
            calls = 0;
            check_output(y[first], first);
            tn_drop(y[first]);
            for (int k = 0; k < 3; k++)
                if (k != first) check_output(y[k], k);
            CHECK(calls <= (wanted & 1 ? 0 : 1));  // with the first output all are stored
            tn_end(s);
        }
}

static void outputs_that_a_step_did_not_store_are_computed_again(void)
{
    on_every_device(leave_some_out);
}

const test_case tests_outputs[] = {
    TEST(outputs_are_read_in_any_order_after_one_call),
    TEST(an_output_needs_no_handle_of_the_others),
    TEST(ops_read_outputs_that_have_no_handle_any_more),
    TEST(a_step_stores_every_output_with_a_handle),
    TEST(a_flush_does_not_part_outputs),
    TEST(inputs_and_outputs_can_be_written_in_place),
    TEST(an_op_runs_if_any_output_has_an_element),
    TEST(an_output_that_finds_no_memory_is_named_by_its_op),
    TEST(any_allocation_may_fail),
    TEST(a_call_that_failed_can_be_made_again),
    TEST(gradients_go_through_any_output),
    TEST(a_primary_of_integers_passes_gradients_of_the_others),
    TEST(outputs_are_one_step_whose_bytes_are_all_counted),
    TEST(a_sort_gives_values_and_indices),
    TEST(a_sort_is_one_call),
    TEST(the_gradient_of_sorted_values_goes_back_by_the_indices),
    TEST(attention_gives_the_logarithms_of_its_sums),
    TEST(gradients_of_attention_can_be_asked_for_one_by_one_and_after_a_read),
    TEST(batch_norm_measures_a_batch_once),
    TEST(outputs_that_a_step_did_not_store_are_computed_again),
    TEST_END,
};
