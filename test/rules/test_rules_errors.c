// test_rules_errors.c: the rules of errors, 16 to 19: NULLs, handlers, failed steps, threads.
#include "rules_kit.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 4 };

// ---- 16: NULL in, NULL out ---------------------------------------------------------------------

static void rule_16_null_passes_through_a_chain_and_reports_once(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *bad = tn_matmul(x, rules_ramp(cx, 3));
        CHECK(bad == NULL);
        tn_tensor *y = tn_softmax(tn_add(x, tn_relu(tn_slice(bad, 0, 0, 1, 1))), -1);
        CHECK(y == NULL);
        CHECK(tn_sum_all(tn_concat(2, (tn_tensor *const[]){ x, y }, 0)) == NULL);
        CHECK(tn_assign(x, y) == NULL && tn_keep(y) == NULL && tn_want(y) == NULL);
        CHECK(isnan(tn_item(y)));
        CHECK_FAILED2(cx, TN_ESHAPE, "matmul: (4,) @ (3,)", "inner sizes differ");
    }
}

static void rule_16_null_beside_a_context_without_error_is_reported_there(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N);
        CHECK(tn_add(x, NULL) == NULL);
        CHECK_FAILED(cx, TN_EARG, "add: b is NULL");
        CHECK(tn_add(NULL, x) == NULL);
        CHECK_FAILED(cx, TN_EARG, "add: a is NULL");
        CHECK(tn_where(NULL, x, x) == NULL);
        CHECK_FAILED(cx, TN_EARG, "where: cond is NULL");
        CHECK(tn_assign(NULL, x) == NULL);
        CHECK_FAILED(cx, TN_EARG, "assign: x is NULL");
        CHECK(tn_concat(2, (tn_tensor *const[]){ x, NULL }, 0) == NULL);
        CHECK_FAILED(cx, TN_EARG, "concat: ");
        CHECK(tn_mse(x, NULL) == NULL);
        CHECK_FAILED(cx, TN_EARG, "mse: ");
        CHECK_STATUS(tn_backward(NULL, x), TN_EARG);
        CHECK_FAILED(cx, TN_EARG, "backward: y is NULL");
    }
}

static void rule_16_with_no_context_it_is_in_the_threads_slot(void)
{
    tn_error_clear(NULL);
    CHECK_STR(tn_error_text(NULL), "");
    CHECK(tn_relu(NULL) == NULL);
    CHECK_FAILED(NULL, TN_EARG, " is NULL");
    CHECK(tn_add(NULL, NULL) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "add: ");
    CHECK(isnan(tn_item(NULL)));
    CHECK_FAILED(NULL, TN_EARG, "item: t is NULL");
    CHECK_INT(tn_item_i64(NULL), 0);
    CHECK_FAILED(NULL, TN_EARG, "item_i64: t is NULL");
    CHECK(isnan(tn_item_late(NULL)));
    CHECK_FAILED(NULL, TN_EARG, "item_late: ");
    CHECK_STATUS(tn_read(NULL, TN_F32, NULL, 0), TN_EARG);
    CHECK_FAILED(NULL, TN_EARG, "read: ");
    CHECK(tn_ptr(NULL) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "ptr: ");
    CHECK(tn_zeros(NULL, TN_F32, TN_SHAPE(1)) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "zeros: the context is NULL");
    CHECK(tn_begin(NULL) == NULL);
    CHECK_FAILED(NULL, TN_EARG, "begin: ");
    CHECK_STATUS(tn_end(NULL), TN_EARG);
    CHECK_FAILED(NULL, TN_EARG, "end: ");
    CHECK_STATUS(tn_eval(NULL), TN_EARG);
    CHECK_FAILED(NULL, TN_EARG, "eval: ");
    CHECK_STATUS(tn_backward(NULL, NULL), TN_EARG);
    CHECK_FAILED(NULL, TN_EARG, "backward: ");
    CHECK(tn_sort(NULL, 0, false).values == NULL && tn_topk(NULL, 1, 0, true).indices == NULL);
    tn_error_clear(NULL);
    CHECK(tn_ctx_of(NULL) == NULL && tn_rank(NULL) == -1 && tn_count(NULL) == -1);
    CHECK(tn_size(NULL, 0) == -1 && !tn_is_view(NULL) && !tn_needs_grad(NULL));
    CHECK_STR(tn_name(NULL), "");
    tn_close(NULL);
    tn_drop(NULL);
    CHECK_STR(tn_error_text(NULL), "");
}

static void rule_16_null_does_not_hide_why_open_failed(void)
{
    tn_ctx    *cx = tn_open("abacus");
    tn_tensor *x  = tn_zeros(cx, TN_F32, TN_SHAPE(2));
    CHECK(isnan(tn_item(tn_add(x, x))));
    tn_close(cx);
    CHECK_FAILED(NULL, TN_EDEVICE, "abacus");
}

static void rule_16_the_slot_says_why_open_failed(void)
{
    tn_relu(NULL);  // an older error gives way
    CHECK(tn_open("abacus") == NULL);
    CHECK_FAILED2(NULL, TN_EDEVICE, "open: ", "\"abacus\"");
}

static void rule_16_a_set_error_blocks_nothing(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N);
        CHECK(tn_select(x, 0, 9) == NULL);
        tn_tensor *y = tn_add_s(x, 1);
        CHECK_VALUES(y, 2, 3, 4, 5);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_STATUS(tn_error(cx), TN_EARG);
        CHECK(tn_matmul(x, rules_ramp(cx, 2)) == NULL);  // not the first: not kept
        CHECK_FAILED(cx, TN_EARG, "select: index 9");
        CHECK_STATUS(tn_error(cx), TN_OK);
    }
}

// ---- 17: handlers ------------------------------------------------------------------------------

typedef struct {
    int       calls, line;
    tn_status code;
    char      text[256], file[256];
    jmp_buf  *jump;
} note;

static void take_note(tn_ctx *cx, const tn_fault *f, void *user)
{
    note *n = user;
    n->calls++;
    n->code = f->code;
    n->line = f->line;
    snprintf(n->text, sizeof n->text, "%s", f->text);
    snprintf(n->file, sizeof n->file, "%s", f->file);
    (void)cx;
    if (n->jump) longjmp(*n->jump, 1);
}

static void rule_17_the_handler_is_called_once_for_the_first_error(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        note n = { 0 };
        tn_on_error(cx, take_note, &n);
        tn_tensor *x = rules_ramp(cx, N);
        tn_relu(tn_select(x, 0, 9));
        int line = __LINE__ - 1;
        tn_select(x, 0, 10);
        CHECK_INT(n.calls, 1);
        CHECK_INT(n.line, line);
        CHECK_STR(n.file, __FILE__);
        CHECK_INT(n.code, TN_EARG);
        CHECK_STR(n.text, tn_error_text(cx));
        tn_error_clear(cx);
        tn_select(x, 0, 10);
        CHECK_INT(n.calls, 2);
        tn_error_clear(cx);
        tn_on_error(cx, NULL, NULL);
        tn_select(x, 0, 10);
        CHECK_INT(n.calls, 2);
        CHECK_STATUS(tn_error(cx), TN_EARG);
        tn_error_clear(cx);
    }
}

static void rule_17_a_composed_op_names_the_users_line(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        note n = { 0 };
        tn_on_error(cx, take_note, &n);
        tn_tensor *x = rules_ramp(cx, N);
        tn_cross_entropy(x, rules_ramp(cx, 7));
        int line = __LINE__ - 1;
        CHECK_INT(n.line, line);
        tn_error_clear(cx);
        tn_tensor *g    = tn_gather(x, 0, tn_from(cx, TN_I64, TN_SHAPE(1), (int64_t[]){ 99 }));
        int        made = __LINE__ - 1;
        tn_eval_of(g);
        line = __LINE__ - 1;  // the read fails, and says where it was recorded
        CHECK_INT(n.line, line);
        CHECK(strstr(n.text, SITE(made)) != NULL);
        tn_error_clear(cx);
    }
}

// What stderr gets while f runs.
static void stderr_of(void (*f)(tn_ctx *), tn_ctx *cx, char *text, size_t size)
{
    FILE *file = tmpfile();
    fflush(stderr);
    int saved = dup(2);
    dup2(fileno(file), 2);
    f(cx);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

static void fail_twice(tn_ctx *cx)
{
    tn_tensor *x = rules_ramp(cx, N);
    tn_select(x, 0, 9);
    tn_select(x, 0, 10);
}

static void rule_17_the_default_handler_prints_the_first_error_once(void)
{
    char    text[512];
    tn_ctx *cx = tn_open("cpu");
    stderr_of(fail_twice, cx, text, sizeof text);
    CHECK(strstr(text, "select: index 9") && !strstr(text, "index 10"));
    CHECK(strchr(text, '\n') == text + strlen(text) - 1);  // one line
    CHECK(strstr(text, "test_rules_errors.c:") != NULL);
    tn_error_clear(cx);
    tn_on_error(cx, NULL, NULL);
    stderr_of(fail_twice, cx, text, sizeof text);
    CHECK_STR(text, "");
    tn_close(cx);
}

static void bad_call(tn_ctx *cx, int which)
{
    tn_tensor *x   = rules_ramp(cx, N);
    tn_tensor *far = tn_gather(x, 0, tn_from(cx, TN_I64, TN_SHAPE(1), (int64_t[]){ 99 }));
    tn_tensor *w   = tn_requires_grad(rules_ramp(cx, N), true);
    switch (which) {
    case 0: tn_softmax(x, 7); break;
    case 1: tn_item(far); break;
    case 2: tn_eval(cx); break;
    case 3: tn_backward(tn_square(w), NULL); break;
    case 4: {
        rules_fail = true;
        tn_eval_of(rules_double(x));
        break;
    }
    case 5: {
        tn_tensor *y = tn_square(w), *g;
        tn_grad(1, &y, 1, &w, NULL, &g);
        break;
    }
    case 6: tn_layer_norm(x, 3, NULL, NULL, 0); break;
    case 7: tn_copy_to(cx, far); break;
    }
}

static void rule_17_a_handler_may_longjmp(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        for (volatile int which = 0; which < 8; which++) {
            jmp_buf env;
            note    n = { .jump = &env };
            tn_on_error(cx, take_note, &n);
            tn_scope *volatile s = tn_begin(cx);
            if (!setjmp(env)) {
                tn_begin(cx);
                tn_grad_mode(cx, true);
                tn_begin(cx);
                bad_call(cx, which);
                test_that(false, "call %d did not fail", which);
            }
            rules_fail = false;
            CHECK_INT(n.calls, 1);
            tn_error_clear(cx);
            tn_on_error(cx, NULL, NULL);
            CHECK_STATUS(tn_end(s), TN_OK);  // closes the inner ones
            CHECK_STATUS(tn_end(s = tn_begin(cx)), TN_OK);
            CHECK_VALUES(tn_add_s(rules_ramp(cx, 2), 1), 2, 3);
        }
    }
}

static void nested(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)f;
    tn_tensor *y = tn_add_s(rules_ramp(cx, 2), 1);  // nothing is held: calls work
    CHECK_VALUES(y, 2, 3);
    CHECK(tn_select(y, 0, 7) == NULL);  // and an error in the handler is not told again
    ++*(int *)user;
}

static void rule_17_a_handler_is_the_last_act_and_may_call(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        int calls = 0;
        tn_on_error(cx, nested, &calls);
        tn_select(rules_ramp(cx, 2), 0, 5);
        CHECK_INT(calls, 1);
        tn_error_clear(cx);
        tn_item(tn_gather(rules_ramp(cx, 2), 0, tn_full(cx, TN_I64, TN_SHAPE(1), 5)));
        CHECK_INT(calls, 2);
        tn_error_clear(cx);
        tn_on_error(cx, NULL, NULL);
    }
}

// The plain functions, without the call-site macros.
static void rule_17_a_handler_may_longjmp_out_of_a_plain_function_too(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        for (volatile int which = 0; which < 4; which++) {
            jmp_buf env;
            note    n            = { .jump = &env };
            tn_scope *volatile s = tn_begin(cx);
            tn_tensor *x = rules_ramp(cx, N), *w = tn_requires_grad(rules_ramp(cx, N), true);
            tn_tensor *far = tn_gather(x, 0, tn_from(cx, TN_I64, TN_SHAPE(1), (int64_t[]){ 99 }));
            tn_tensor *y   = tn_square(w);
            tn_on_error(cx, take_note, &n);
            if (!setjmp(env)) {
                if (which == 0) (tn_eval)(cx);
                if (which == 1) (tn_item)(far);
                if (which == 2) (tn_backward)(y, NULL);
                if (which == 3) (tn_softmax)(x, 9);
                test_that(false, "call %d did not fail", which);
            }
            CHECK_INT(n.calls, 1);
            tn_error_clear(cx);
            tn_on_error(cx, NULL, NULL);
            CHECK_STATUS(tn_end(s), TN_OK);
            CHECK(tn_grad_mode(cx, true));
            CHECK_VALUES(tn_add_s(rules_ramp(cx, 2), 1), 2, 3);
        }
    }
}

// ---- 18: a failed step is all or nothing -------------------------------------------------------

// A step over state that the test checks afterwards: two parameters, one written through a view,
// a gradient that was there before and one that was not.
typedef struct {
    tn_tensor *a, *b, *fresh, *lost;
    tn_tensor *w;
} world;

static world make_world(tn_ctx *cx)
{
    world o = { .a = rules_ramp(cx, N), .b = rules_ramp(cx, N) };
    o.w     = tn_requires_grad(rules_ramp(cx, N), true);
    tn_backward(tn_sum_all(tn_square(o.w)), NULL);
    tn_eval(cx);
    return o;
}

static void record_step(tn_ctx *cx, world *o, tn_tensor *culprit)
{
    tn_add_(o->a, tn_ones_like(o->a));
    tn_mul_(tn_slice(o->b, 0, 1, 3, 1), tn_scalar(cx, 7));
    tn_backward(tn_sum_all(tn_mul(o->w, tn_add(o->a, tn_sum_all(culprit)))), NULL);
    tn_grad_mode(cx, false);
    tn_sub_(o->w, tn_grad_of(o->w));
    tn_grad_mode(cx, true);
    o->lost  = tn_exp(o->a);
    o->fresh = tn_add(o->lost, culprit);
}

static void check_untouched(tn_ctx *cx, world *o)
{
    CHECK_VALUES(o->a, 1, 2, 3, 4);
    CHECK_VALUES(o->b, 1, 2, 3, 4);
    CHECK_VALUES(o->w, 1, 2, 3, 4);
    CHECK_VALUES(tn_grad_of(o->w), 2, 4, 6, 8);
    double v[N];
    CHECK_STATUS(tn_read(o->fresh, TN_F64, v, N), TN_EGONE);
    CHECK_FAILED(cx, TN_EGONE, "read: ");
    CHECK(tn_neg(o->lost) == NULL);
    CHECK_FAILED(cx, TN_EGONE, "neg: ");
}

// The same step with a culprit that does no harm.
static void check_works_on(tn_ctx *cx, world *o)
{
    record_step(cx, o, tn_zeros(cx, TN_F32, TN_SHAPE(N)));
    CHECK_STATUS(tn_eval(cx), TN_OK);
    CHECK_VALUES(o->a, 2, 3, 4, 5);
    CHECK_VALUES(o->b, 1, 14, 21, 4);
    CHECK_VALUES(tn_grad_of(o->w), 4, 7, 10, 13);
    CHECK_VALUES(o->w, -3, -5, -7, -9);
}

static void rule_18_an_index_out_of_range_leaves_all_as_it_was(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        world      o     = make_world(cx);
        tn_tensor *index = tn_from(cx, TN_I64, TN_SHAPE(N), (int64_t[]){ 0, 1, 2, N });
        record_step(cx, &o, tn_gather(o.b, 0, index));
        CHECK_STATUS(tn_eval(cx), TN_EARG);
        CHECK_FAILED(cx, TN_EARG, "gather: ");
        check_untouched(cx, &o);
        check_works_on(cx, &o);
    }
}

static void rule_18_a_users_op_that_fails_leaves_all_as_it_was(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        world o = make_world(cx);
        record_step(cx, &o, rules_double(o.b));
        rules_fail = true;
        CHECK_STATUS(tn_eval(cx), TN_EUSER);
        CHECK_FAILED(cx, TN_EUSER, "twice: ");
        rules_fail = false;
        check_untouched(cx, &o);
        check_works_on(cx, &o);
    }
}

static void rule_18_a_failure_at_the_end_of_a_scope_is_a_failed_step_too(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        world     o = make_world(cx);
        tn_scope *s = tn_begin(cx);
        record_step(cx, &o, rules_double(o.b));
        tn_keep(o.lost);
        tn_keep(o.fresh);
        rules_fail = true;
        CHECK_STATUS(tn_end(s), TN_EUSER);
        CHECK_FAILED(cx, TN_EUSER, "twice: ");
        rules_fail = false;
        check_untouched(cx, &o);
        check_works_on(cx, &o);
    }
}

static void rule_18_a_failed_read_loses_nothing(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *x = rules_ramp(cx, N), *y = tn_neg(x), *z = tn_abs(y), *bad = rules_double(z);
        rules_fail = true;
        CHECK(isnan(tn_item(tn_sum_all(bad))));
        CHECK_FAILED(cx, TN_EUSER, "twice: ");
        rules_fail = false;
        CHECK_VALUES(y, -1, -2, -3, -4);
        CHECK_VALUES(bad, 2, 4, 6, 8);  // and works when the reason is gone
        CHECK_VALUES(z, 1, 2, 3, 4);
    }
}

static void rule_18_a_memory_limit_leaves_all_as_it_was(void)
{
    const char *const devices[] = { "cpu", "ref" };
    for (int d = 0; d < 2; d++) {
        tn_ctx *cx = tn_open_with((tn_open_opts){ .device = devices[d], .mem_limit = 1 << 20 });
        if (!CHECK(cx != NULL)) return;
        tn_on_error(cx, NULL, NULL);
        world      o   = make_world(cx);
        tn_tensor *big = tn_want(tn_randn(cx, TN_F64, TN_SHAPE(1 << 20)));
        record_step(cx, &o, tn_slice(big, 0, 0, N, 1));
        CHECK_STATUS(tn_eval(cx), TN_EMEM);
        CHECK_FAILED(cx, TN_EMEM, "memory");
        check_untouched(cx, &o);
        check_works_on(cx, &o);
        void *data = calloc(1 << 18, 8);
        CHECK(tn_from(cx, TN_F64, TN_SHAPE(1 << 18), data) == NULL);
        CHECK_FAILED2(cx, TN_EMEM, "from: out of memory", "(262144,)");
        free(data);
        CHECK(tn_ctx_stats(cx).peak <= 1 << 20);
        tn_close(cx);
    }
}

// An allocator whose n-th call from now on fails, and every one after it while `stuck`.
typedef struct {
    int64_t left, live;
    bool    armed, stuck;
} purse;

static void *spend(void *user, void *old, size_t n)
{
    purse *p = user;
    if (n && p->armed && p->left-- <= 0) {
        if (!p->stuck) p->armed = false;
        return NULL;
    }
    if (!n) {
        p->live -= old != NULL;
        free(old);
        return NULL;
    }
    void *q = realloc(old, n);
    p->live += q && !old;
    return q;
}

// Builds with TN_DEBUG keep closed contexts, to tell stale handles.
#ifdef TN_DEBUG
enum { BURIED = true };
#else
enum { BURIED = false };
#endif

static void silent(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

static void rule_18_an_allocator_that_fails_leaves_all_as_it_was(void)
{
    const char *const devices[] = { "cpu", "ref" };
    int               failed = 0, evaluations = 0;
    for (int d = 0; d < 2; d++)
        for (int64_t n = 0; n < 300; n++) {
            purse   p  = { .left = n, .stuck = n & 1 };
            tn_ctx *cx = tn_open_with((tn_open_opts){
                .device = devices[d], .alloc = spend, .user = &p, .handler = silent });
            if (!CHECK(cx != NULL)) return;
            world      o       = make_world(cx);
            tn_tensor *culprit = tn_zeros(cx, TN_F32, TN_SHAPE(N));
            record_step(cx, &o, culprit);
            p.armed     = true;
            tn_status s = tn_eval(cx);
            p.armed     = false;
            if (s == TN_OK) {
                tn_close(cx);
                CHECK_INT(p.live, BURIED ? p.live : 0);
                break;
            }
            evaluations++;
            test_that(s == TN_EMEM, "allocation %d: %s", (int)n, tn_status_name(s));
            CHECK_FAILED(cx, TN_EMEM, "memory");
            check_untouched(cx, &o);
            check_works_on(cx, &o);
            tn_close(cx);
            failed += !BURIED && p.live != 0;
        }
    CHECK_INT(failed, 0);  // leaks
    CHECK(evaluations > 10);
}

// Recording and walking under the same allocator: NULL and TN_EMEM, nothing else.
static void rule_18_recording_survives_an_allocator_that_fails(void)
{
    bool done = false;
    for (int64_t n = 0; n < 2000 && !done; n++) {
        purse   p  = { .left = n, .armed = true, .stuck = n & 1 };
        tn_ctx *cx = tn_open_with(
            (tn_open_opts){ .device = "cpu", .alloc = spend, .user = &p, .handler = silent });
        done = cx != NULL;
        if (cx) {
            tn_scope  *s = tn_begin(cx);
            tn_tensor *w = tn_requires_grad(tn_from(cx, TN_F32, TN_SHAPE(2, 2), (float[4]){ 1 }),
                                            true);
            tn_tensor *h = tn_layer_norm(tn_linear(w, w, NULL), 1, NULL, NULL, 0);
            tn_tensor *parts[2] = { 0 };
            tn_split(tn_gelu(h), 1, 0, 2, parts);
            h = tn_concat(2, parts, 1);
            h = tn_add(h, tn_sort(h, -1, true).values);
            h = tn_set_name(tn_mean_all(rules_double(h)), "loss");
            tn_item_late(h);
            tn_backward(h, NULL);
            tn_tensor *g = NULL;
            tn_grad(1, &h, 1, &w, NULL, &g);
            tn_copy_to(cx, tn_grad_of(w));
            tn_eval(cx);
            tn_item(h);
            tn_end(s);
            done = tn_error(cx) == TN_OK;
            if (!done)
                test_that(tn_error(cx) == TN_EMEM, "allocation %d: %s %s", (int)n,
                          tn_status_name(tn_error(cx)), tn_error_text(cx));
            p.armed = false;
            tn_error_clear(cx);
            CHECK_VALUES(tn_add_s(rules_ramp(cx, 2), 1), 2, 3);
            tn_close(cx);
        }
        if (!test_that(BURIED || p.live == 0, "allocation %d: %d blocks leaked", (int)n,
                       (int)p.live))
            return;
    }
    CHECK(done);
}

static void rule_18_a_failed_first_backward_can_be_done_again(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *w = tn_requires_grad(rules_ramp(cx, N), true);
        tn_backward(tn_sum_all(rules_double(w)), NULL);
        rules_fail = true;
        CHECK_STATUS(tn_eval(cx), TN_EUSER);
        tn_error_clear(cx);
        rules_fail = false;
        CHECK_STATUS(tn_backward(tn_sum_all(rules_double(w)), NULL), TN_OK);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(tn_grad_of(w), 2, 2, 2, 2);
        tn_error_clear(cx);
    }
}

static void rule_18_a_late_value_of_a_failed_step_never_arrives(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        int64_t nodes = 0;
        for (int i = 0; i < 4; i++) {
            tn_scope  *s = tn_begin(cx);
            tn_tensor *l = tn_set_name(tn_sum_all(rules_double(rules_ramp(cx, N))), "l");
            double     v = tn_item_late(l);
            CHECK(i < 2 ? isnan(v) : v == 20);
            rules_fail = i == 0;
            CHECK_STATUS(tn_eval(cx), i ? TN_OK : TN_EUSER);
            rules_fail = false;
            tn_error_clear(cx);
            tn_end(s);
            if (i == 1) nodes = tn_ctx_stats(cx).nodes;
        }
        CHECK(tn_ctx_stats(cx).nodes <= nodes);
    }
}

// ---- 19: threads -------------------------------------------------------------------------------

typedef struct {
    tn_ctx    *cx;
    tn_tensor *x;
    tn_status  status[8];
    double     item;
    bool       null;
} visit;

static void *use_from_elsewhere(void *p)
{
    visit *v     = p;
    v->null      = tn_add_s(v->x, 1) == NULL;
    v->status[0] = tn_error(NULL);
    v->item      = tn_item(v->x);
    v->status[1] = tn_eval(v->cx);
    v->status[2] = tn_read(v->x, TN_F32, &(float[N]){ 0 }, N);
    v->status[3] = tn_ctx_enter(v->cx);
    v->status[4] = tn_ctx_leave(v->cx);
    v->null &= tn_begin(v->cx) == NULL && tn_zeros(v->cx, TN_F32, TN_0D) == NULL;
    v->status[5] = tn_error(NULL);
    tn_close(v->cx);
    v->status[6] = tn_error(NULL);
    return NULL;
}

static void in_thread(void *(*f)(void *), void *p)
{
    pthread_t t;
    if (CHECK_INT(pthread_create(&t, NULL, f, p), 0)) pthread_join(t, NULL);
}

static void rule_19_another_threads_use_is_an_error(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        visit v = { .cx = cx, .x = rules_ramp(cx, N) };
        in_thread(use_from_elsewhere, &v);
        CHECK(v.null && isnan(v.item));
        for (int i = 0; i < 7; i++) CHECK_INT(v.status[i], TN_ETHREAD);
        CHECK_STATUS(tn_error(cx), TN_OK);  // the owner's slot is not the visitor's
        CHECK_VALUES(v.x, 1, 2, 3, 4);
    }
}

static void *take_over(void *p)
{
    visit *v     = p;
    v->status[0] = tn_ctx_enter(v->cx);
    v->x         = tn_add_s(v->x, 1);
    v->item      = tn_item(tn_sum_all(v->x));
    v->status[1] = tn_ctx_leave(v->cx);
    return NULL;
}

static void rule_19_a_context_moves_by_leave_and_enter(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        visit v = { .cx = cx, .x = rules_ramp(cx, N) };
        CHECK_STATUS(tn_ctx_leave(cx), TN_OK);
        CHECK(tn_add_s(v.x, 1) == NULL);  // nobody's now
        CHECK_FAILED(NULL, TN_ETHREAD, "add_s: ");
        in_thread(take_over, &v);
        CHECK(v.status[0] == TN_OK && v.status[1] == TN_OK && v.item == 14);
        CHECK_STATUS(tn_ctx_enter(cx), TN_OK);
        CHECK_STATUS(tn_ctx_enter(cx), TN_OK);  // one's own: fine
        CHECK_VALUES(v.x, 2, 3, 4, 5);
    }
}

static void *take_without_asking(void *p)
{
    visit *v     = p;
    v->status[0] = tn_ctx_take(v->cx);
    v->x         = tn_add_s(v->x, 1);
    v->item      = tn_item(tn_sum_all(v->x));
    return NULL;
}

static void rule_19_a_context_is_taken_without_its_owners_doing(void)
{
    int i = 0;
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        visit v = { .cx = cx, .x = rules_ramp(cx, N) };
        in_thread(take_without_asking, &v);
        CHECK(v.status[0] == TN_OK && v.item == 14);
        CHECK_STATUS(tn_ctx_enter(cx), TN_ETHREAD);
        CHECK_STATUS(tn_ctx_take(cx), TN_OK);
        CHECK_VALUES(v.x, 2, 3, 4, 5);
        CHECK_STR(tn_ctx_device(cx), i++ ? "ref" : "cpu");
    }
}

// What is retained outlives its scope, is stored by steps, and dies when the last owner releases
// it.
static void owners_are_counted(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        int64_t    before = tn_ctx_stats(cx).nodes;
        tn_scope  *s      = tn_begin(cx);
        tn_tensor *x = tn_add_s(rules_ramp(cx, N), 1), *y = tn_mul_s(x, 2);
        tn_retain(x);
        tn_retain(x);
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_VALUES(y, 4, 6, 8, 10);
        tn_end(s);
        tn_release(x);
        CHECK_VALUES(x, 2, 3, 4, 5);
        tn_drop(x);
        CHECK_FAILED(cx, TN_EARG, "drop: t (4,) belongs to");
        tn_release(x);
        CHECK_INT(tn_ctx_stats(cx).nodes, before);
        tn_tensor *z = rules_ramp(cx, N);
        tn_release(z);
        CHECK_FAILED(cx, TN_EARG, "release: t (4,) was not retained");
        // What is still retained when the context is closed is freed with it: a leaf, its gradient,
        // another value.
        tn_tensor *w = tn_requires_grad(rules_ramp(cx, N), true), *l = tn_sum_all(tn_square(w));
        tn_retain(w);
        tn_retain(l);
        CHECK_STATUS(tn_backward(l, NULL), TN_OK);
        tn_retain(tn_grad_of(w));
        CHECK_VALUES(tn_grad_of(w), 2, 4, 6, 8);
    }
}

static void rule_19_a_thread_may_own_several_and_copy_between_them(void)
{
    tn_ctx    *a = rules_open("cpu"), *b = rules_open("ref"), *c = rules_open("cpu");
    tn_tensor *x = tn_requires_grad(rules_ramp(a, N), true), *y = tn_flip(tn_square(x), 0);
    tn_tensor *z = tn_copy_to(b, y), *back = tn_copy_to(a, tn_add_s(z, 1)), *own = tn_copy_to(a, x);
    CHECK(tn_ctx_of(z) == b && !tn_needs_grad(z) && !tn_needs_grad(own) && own != x);
    CHECK_VALUES(z, 16, 9, 4, 1);
    CHECK_VALUES(back, 17, 10, 5, 2);
    static const tn_dtype all[] = { TN_BOOL, TN_U8,   TN_I8,  TN_I32, TN_I64,
                                    TN_F16,  TN_BF16, TN_F32, TN_F64 };
    for (int i = 0; i < 9; i++)
        CHECK_VALUES(tn_copy_to(c, tn_copy_to(b, tn_cast(tn_ones(a, TN_F32, TN_SHAPE(2)), all[i]))),
                     1, 1);
    CHECK(tn_count(tn_copy_to(b, tn_zeros(a, TN_F32, TN_SHAPE(0, 3)))) == 0);
    CHECK_VALUES(tn_copy_to(b, tn_scalar(a, 3)), 3);
    CHECK(tn_add(x, z) == NULL);
    CHECK_FAILED2(a, TN_EARG, "different contexts", "tn_copy_to");
    CHECK_STATUS(tn_error(b), TN_OK);
    tn_scope  *sa = tn_begin(a), *sb = tn_begin(b);  // scopes of different contexts need not nest
    tn_tensor *kept = tn_keep(tn_copy_to(b, x));
    CHECK_STATUS(tn_end(sa), TN_OK);
    CHECK_STATUS(tn_end(sb), TN_OK);
    tn_close(a);
    CHECK_VALUES(kept, 1, 2, 3, 4);
    tn_close(b);
    tn_close(c);
}

static void *train(void *p)
{
    visit  *v  = p;
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "cpu", .seed = 7, .handler = silent });
    if (!cx) return NULL;
    tn_tensor *w = tn_requires_grad(tn_randn(cx, TN_F32, TN_SHAPE(32, 32)), true);
    for (int i = 0; i < 20; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = tn_randn(cx, TN_F32, TN_SHAPE(64, 32));
        tn_tensor *l = tn_mean_all(tn_square(tn_sub(tn_gelu(tn_matmul(x, w)), x)));
        tn_backward(l, NULL);
        tn_grad_mode(cx, false);
        tn_sub_(w, tn_mul_s(tn_grad_of(w), 0.1));
        tn_zero_grad(w);
        tn_end(s);
    }
    v->item      = tn_item(tn_sum_all(w));
    v->status[0] = tn_error(cx);
    tn_close(cx);
    return NULL;
}

static void rule_19_contexts_work_in_several_threads_at_the_same_time(void)
{
    visit     v[6] = { 0 };
    pthread_t t[6];
    for (int i = 0; i < 6; i++) pthread_create(&t[i], NULL, train, &v[i]);
    for (int i = 0; i < 6; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < 6; i++) {
        CHECK_INT(v[i].status[0], TN_OK);
        CHECK_NEAR(v[i].item, v[0].item, 0);  // the same program gives the same numbers
    }
    CHECK(isfinite(v[0].item) && v[0].item != 0);
}

// ---- warnings

typedef struct {
    int  count, line;
    char text[200];
} told;

static void keep_warning(tn_ctx *cx, const tn_fault *f, void *user)
{
    told *t = user;
    (void)cx;
    t->count++;
    t->line = f->line;
    CHECK_INT(f->code, TN_OK);
    snprintf(t->text, sizeof t->text, "%s", f->text);
}

static void a_loss_whose_shapes_stretch_each_other_warns_once(void)
{
    static tn_tensor *(*const loss[])(tn_tensor *, tn_tensor *) = { tn_mse, tn_l1,         tn_huber,
                                                                    tn_bce, tn_bce_logits, tn_kl };
    for (int i = 0; i < 6; i++) {
        told       t  = { 0 };
        tn_ctx    *cx = rules_open("ref");
        tn_tensor *x  = tn_full(cx, TN_F32, TN_SHAPE(4, 1), 0.5),
                  *y  = tn_full(cx, TN_F32, TN_SHAPE(4), 0.5);
        tn_on_warning(cx, keep_warning, &t);
        loss[i](x, x);
        loss[i](x, tn_full(cx, TN_F32, TN_SHAPE(1), 0.5));  // one target for all is no mistake
        CHECK_INT(t.count, 0);
        CHECK(loss[i](x, y) != NULL);
        CHECK_INT(t.count, 1);
        CHECK(strstr(t.text,
                     ": x (4, 1) and target (4,) broadcast each other to (4, 4); give them one"
                     " shape"));
        CHECK(loss[i](y, x) != NULL);
        CHECK_INT(t.count, 1);
        CHECK_STATUS(tn_error(cx), TN_OK);
        tn_close(cx);
    }
}

static void a_warning_has_the_users_line_and_goes_where_errors_do(void)
{
    told       t  = { 0 };
    tn_ctx    *cx = rules_open("ref");
    tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(4, 1)), *y = tn_ones(cx, TN_F32, TN_SHAPE(4));
    tn_on_warning(cx, keep_warning, &t);
    tn_mse(x, y);
    CHECK_INT(t.line, __LINE__ - 1);
    tn_close(cx);
    cx = tn_open_with((tn_open_opts){ .device = "ref", .handler = keep_warning, .user = &t });
    tn_mse(tn_ones(cx, TN_F32, TN_SHAPE(4, 1)), tn_ones(cx, TN_F32, TN_SHAPE(4)));
    CHECK_INT(t.count, 1);  // a handler of errors hears of errors alone
    tn_close(cx);
}

static void *own_slot(void *p)
{
    visit *v     = p;
    v->status[0] = tn_error(NULL);
    tn_relu(NULL);
    v->status[1] = tn_error(NULL);
    return NULL;
}

static void rule_19_each_thread_has_its_own_slot(void)
{
    visit v = { 0 };
    tn_open("abacus");
    in_thread(own_slot, &v);
    CHECK(v.status[0] == TN_OK && v.status[1] == TN_EARG);
    CHECK_FAILED(NULL, TN_EDEVICE, "abacus");
}

const test_case tests_rules_errors[] = {
    TEST(rule_16_null_passes_through_a_chain_and_reports_once),
    TEST(rule_16_null_beside_a_context_without_error_is_reported_there),
    TEST(rule_16_with_no_context_it_is_in_the_threads_slot),
    TEST(rule_16_the_slot_says_why_open_failed),
    TEST(rule_16_null_does_not_hide_why_open_failed),
    TEST(rule_16_a_set_error_blocks_nothing),
    TEST(rule_17_the_handler_is_called_once_for_the_first_error),
    TEST(rule_17_a_composed_op_names_the_users_line),
    TEST(rule_17_the_default_handler_prints_the_first_error_once),
    TEST(rule_17_a_handler_may_longjmp),
    TEST(rule_17_a_handler_is_the_last_act_and_may_call),
    TEST(rule_17_a_handler_may_longjmp_out_of_a_plain_function_too),
    TEST(rule_18_an_index_out_of_range_leaves_all_as_it_was),
    TEST(rule_18_a_users_op_that_fails_leaves_all_as_it_was),
    TEST(rule_18_a_failure_at_the_end_of_a_scope_is_a_failed_step_too),
    TEST(rule_18_a_failed_read_loses_nothing),
    TEST(rule_18_a_memory_limit_leaves_all_as_it_was),
    TEST(rule_18_an_allocator_that_fails_leaves_all_as_it_was),
    TEST(rule_18_recording_survives_an_allocator_that_fails),
    TEST(rule_18_a_failed_first_backward_can_be_done_again),
    TEST(rule_18_a_late_value_of_a_failed_step_never_arrives),
    TEST(rule_19_another_threads_use_is_an_error),
    TEST(rule_19_a_context_moves_by_leave_and_enter),
    TEST(rule_19_a_context_is_taken_without_its_owners_doing),
    TEST(owners_are_counted),
    TEST(rule_19_a_thread_may_own_several_and_copy_between_them),
    TEST(rule_19_contexts_work_in_several_threads_at_the_same_time),
    TEST(rule_19_each_thread_has_its_own_slot),
    TEST(a_loss_whose_shapes_stretch_each_other_warns_once),
    TEST(a_warning_has_the_users_line_and_goes_where_errors_do),
    TEST_END,
};
