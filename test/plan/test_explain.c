// test_explain.c: seeing what the planner does: the page it prints, the kernels it counts, the
// memory it foretells, and what the environment asks to see.
#include "check.h"
#include "faulty.h"
#include "rules_kit.h"
#include "scratch.h"
#include "tree.h"

#include "device/device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>
#include <unistd.h>

enum { ROOM = 1 << 16, COMMAND = 4096, N = 96, C = 40 };

static char page[ROOM];  // what was explained last, or what the last command printed

// What is pending in cx, into `page`; its number of kernels, -1 on error.
static int explain_with(tn_ctx *cx, tn_explain_opts o)
{
    char  *text = NULL;
    size_t size = 0;
    int    n    = -1;
    FILE  *f    = open_memstream(&text, &size);
    if (!CHECK(f != NULL)) return -1;
    CHECK_STATUS(tn_explain_with(cx, f, o), TN_OK);
    fclose(f);
    snprintf(page, sizeof page, "%s", text);
    free(text);
    return sscanf(page, "%d kernel", &n) == 1 ? n : -1;
}

static int explain(tn_ctx *cx, bool source)
{
    return explain_with(cx, (tn_explain_opts){ .source = source });
}

static void says(const char *text)
{
    test_that(strstr(page, text) != NULL, "\"%s\" is not in: %.800s", text, page);
}

static bool fuses(const tni_device *d)
{
    const char *eager = getenv("TN_EAGER");
    return d->kernels && !(eager && *eager && strcmp(eager, "0"));
}

// ---- the page

static void the_page_has_counts_lines_and_memory(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = rules_there(cx, TN_SHAPE(N, C));
        int        line;
        long long  moved, least;
        char       text[256];
        CHECK_INT(explain(cx, false), 0);
        CHECK_STR(page, "0 kernels, 0 bytes moved, 0 at least\n"
                        "  memory: 0 B planned, 0 B lower bound\n");
        line = __LINE__ + 1;
        tn_exp(x);
        CHECK_INT(explain(cx, false), 1);
        CHECK(sscanf(page, "1 kernel, %lld bytes moved, %lld at least\n", &moved, &least) == 2);
        CHECK_INT(moved, 2 * 4 * N * C);
        CHECK_INT(least, 2 * 4 * N * C);
        says("\n     1  ");
        snprintf(text, sizeof text, "  30720 bytes\n         %s exp\n", SITE(line));
        says(text);
        says("\n  memory: 0 B planned, 0 B lower bound\n");
        tn_matmul(tn_log(x), tn_transpose(x, 0, 1));
        CHECK(explain(cx, false) >= 2);
        says(" kernels, ");
        says("  matmul     (96, 96)  ");
        says("KiB planned, ");
        tn_end(s);
    }
}

static void what_is_at_least_moved_is_what_is_read_and_written(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x = rules_there(cx, TN_SHAPE(N, C)), *b = rules_there(cx, TN_SHAPE(C));
    tn_scope  *s = tn_begin(cx);
    long long  least;
    tn_add(tn_slice(x, 0, 0, N / 2, 1), b);
    CHECK_INT(explain(cx, false), 1);
    CHECK(sscanf(page, "1 kernel, %*d bytes moved, %lld at least", &least) == 1);
    CHECK_INT(least, 4 * (N / 2 * C + C + N / 2 * C));
    tn_end(s);
    tn_close(cx);
}

// Each value has a shape of its own, so that its line can be told.
static void the_page_says_why_values_are_stored(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_tensor *outer = tn_exp(rules_there(cx, TN_SHAPE(2)));
        tn_tensor *w     = tn_requires_grad(rules_there(cx, TN_SHAPE(8)), true);
        tn_scope  *s     = tn_begin(cx);
        tn_tensor *total = rules_there(cx, TN_SHAPE(3)), *x = rules_there(cx, TN_SHAPE(4));
        tn_tensor *wanted = tn_want(tn_neg(rules_there(cx, TN_SHAPE(5))));
        tn_tensor *last = tn_exp(rules_there(cx, TN_SHAPE(6))), *lost = tn_exp(x);
        tn_tensor *kl = tn_sum_all(lost), *e = tn_reshape(tn_exp(w), TN_SHAPE(8, 1));
        tn_add_(total, tn_mul(tn_mean_all(wanted), tn_add(tn_mean_all(outer), kl)));
        tn_want(tn_mul(e, tn_add_s(e, 1)));
        CHECK(explain_with(cx, (tn_explain_opts){ .stored = true }) >= 1);
        says("         stored (2,): outer scope\n");
        says("         stored (3,): assigned, unconsumed\n");
        says("         stored (5,): wanted\n");
        says("         stored (6,): unconsumed\n");
        says("         stored (): one element\n");
        says("         stored (8, 1): wanted, unconsumed\n");
        says("         stored (8,): holds a view\n");
        CHECK(!strstr(page, "stored (4,)"));
        CHECK(explain(cx, false) >= 1 && !strstr(page, "stored"));
        CHECK(last != NULL);
        tn_end(s);
    }
}

static void explaining_changes_nothing(void)
{
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *x = rules_there(cx, TN_SHAPE(4)), *y = tn_mul_s(tn_add_s(x, 1), 8);
        tn_tensor *loss   = tn_sum_all(tn_mul(tn_requires_grad(x, true), y));
        tn_stats   before = tn_ctx_stats(cx);
        tn_backward(loss, NULL);
        explain(cx, false);
        explain(cx, true);
        tn_plan_memory m     = tn_ctx_plan_memory(cx);
        tn_stats       after = tn_ctx_stats(cx);
        CHECK(m.peak > 0);
        CHECK_INT(after.launches, before.launches);
        CHECK_INT(after.bytes, before.bytes);
        CHECK_INT(after.peak, before.peak);
        CHECK_INT(after.plans, 1);  // of tn_ctx_plan_memory
        CHECK_STATUS(tn_eval(cx), TN_OK);
        CHECK_INT(tn_ctx_stats(cx).plans, 1);
        CHECK_INT(tn_ctx_stats(cx).hits, before.hits + 1);
        CHECK_VALUES(tn_grad_of(x), 0, 1, 2, 3);
        tn_end(s);
    }
}

static tn_status explains_inside(const void *attr, const tn_array *in, tn_array *out)
{
    tn_ctx *cx = *(tn_ctx *const *)attr;
    memcpy(out->data, in->data, sizeof(float));
    CHECK_STATUS(tn_explain(cx, stderr), TN_EARG);
    CHECK_INT(tn_ctx_plan_memory(cx).peak, 0);
    return TN_OK;
}

static void explaining_where_it_cannot_be_is_an_error(void)
{
    static const tn_op_def op = {
        .name = "looks", .nin = 1, .shape = rules_same_shape, .compute = explains_inside
    };

    tn_ctx *cx = rules_open("cpu");
    CHECK_STATUS(tn_explain(cx, NULL), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "explain: the file is NULL");
    CHECK_STATUS(tn_explain(NULL, stderr), TN_EARG);
    CHECK_INT(tn_ctx_plan_memory(NULL).peak, 0);
    tn_tensor *x = rules_there(cx, TN_SHAPE(1));
    tn_eval_of(tn_custom(&op, &x, &cx, sizeof cx));
    CHECK_FAILED(cx, TN_EARG, "explain: a tn_ call is in progress");
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        setvbuf(full, NULL, _IONBF, 0);
        CHECK_STATUS(tn_explain(cx, full), TN_EIO);
        CHECK_FAILED(cx, TN_EIO, "explain: ");
        fclose(full);
    }
    tn_close(cx);
}

// Whether explaining and foretelling with the n-th allocation failing is an error, or right.
static bool survives(long n, bool *hit)
{
    faulty  h  = { 0 };
    tn_ctx *cx = faulty_open("cpu", &h);
    FILE   *to = fopen("/dev/null", "w");
    bool    ok = cx && to;
    if (ok) {
        tn_tensor *x = tn_requires_grad(rules_there(cx, TN_SHAPE(4, 4)), true);
        tn_backward(tn_sum_all(tn_softmax(tn_matmul(x, x), 1)), NULL);
        h.countdown = n;
        tn_status s = tn_explain_with(
            cx, to, (tn_explain_opts){ .source = n % 2 == 0, .html = n % 3 == 0 });
        tn_plan_memory m = tn_ctx_plan_memory(cx);
        *hit             = h.countdown == 0;
        ok               = s == TN_OK || (s == TN_EMEM && tn_error(cx) == TN_EMEM);
        ok               = ok && (m.peak > 0 || tn_error(cx) == TN_EMEM);
        h.countdown      = 0;
        tn_error_clear(cx);
        ok = ok && tn_explain(cx, to) == TN_OK && tn_ctx_plan_memory(cx).peak > 0 && !tn_error(cx);
    }
    if (to) fclose(to);
    tn_close(cx);
    return ok && faulty_left(&h) == 0;
}

static void any_allocation_may_fail_while_explaining(void)
{
    bool hit = true;
    long n   = 1;
    for (; hit && n < 2000; n++) test_case_result(survives(n, &hit), "at allocation %ld", n);
    CHECK(n > 20 && n < 2000);
}

static void the_source_has_the_kernel_in_the_devices_language(void)
{
    static const char *const begins[][2] = { { "cpu", "void kernel(" },
                                             { "opencl", "__kernel " },
                                             { "cuda", "__global__" } };
    if (!fuses(&tni_device_cpu)) SKIP("the cpu device runs ops one by one");
    for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
        for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
            if (strcmp(tn_ctx_device(cx), begins[i][0])) continue;
            tn_scope *s = tn_begin(cx);
            tn_exp(rules_there(cx, TN_SHAPE(N, C)));
            CHECK_INT(explain(cx, true), 1);
            says("load");
            says("exp");
            says(begins[i][1]);
            says("kernel(");
            tn_end(s);
        }
    }
}

// ---- kernels

static void through_a_transpose(tn_tensor *x, tn_tensor *b)
{
    (void)b;
    tn_softmax(tn_transpose(x, 0, 1), 0);
}
static void along_the_first_axis(tn_tensor *x, tn_tensor *b)
{
    (void)b;
    tn_softmax(tn_transpose(x, 0, 1), 1);
}
static void of_a_slice(tn_tensor *x, tn_tensor *b)
{
    (void)b;
    tn_add_s(tn_mul_s(tn_relu(tn_slice(x, 0, 5, TN_TO_END, 3)), 0.5), 1);
}
static void of_a_slice_of_columns(tn_tensor *x, tn_tensor *b)
{
    (void)b;
    tn_softmax(tn_slice(x, 1, 3, 30, 1), 1);
}
static void with_a_bias(tn_tensor *x, tn_tensor *b)
{
    tn_relu(tn_add(x, b));
}
static void with_a_column(tn_tensor *x, tn_tensor *b)
{
    (void)b;
    tn_gelu(tn_mul(x, tn_slice(x, 1, 0, 1, 1)));
}
static void norm_of_a_sum(tn_tensor *x, tn_tensor *b)
{
    tn_layer_norm(tn_add(x, tn_flip(x, 0)), 1, b, b, 0);
}
static void loss_of_a_slice(tn_tensor *x, tn_tensor *b)
{
    (void)b;
    tn_mse(tn_slice(x, 0, 0, 48, 1), tn_slice(x, 0, 48, 96, 1));
}
static void a_matrix_and_its_transpose(tn_tensor *x, tn_tensor *b)
{
    (void)b;
    tn_tensor *square = tn_slice(x, 0, 0, C, 1);
    tn_mul_s(tn_add(square, tn_transpose(square, 0, 1)), 0.5);
}
static void statistics_of_rows(tn_tensor *x, tn_tensor *b)
{
    tn_tensor *c = tn_sub(x, tn_mean_keep(x, 1));
    tn_sum(tn_mul(tn_square(c), b), 1);
}

static const struct {
    const char *name;
    void (*record)(tn_tensor *x, tn_tensor *b);
} forms[] = {
    { "softmax through a transpose", through_a_transpose },
    { "softmax along the first axis", along_the_first_axis },
    { "a chain over a slice", of_a_slice },
    { "softmax of a slice of columns", of_a_slice_of_columns },
    { "a broadcast bias", with_a_bias },
    { "a broadcast column", with_a_column },
    { "layer norm of a sum with a flip", norm_of_a_sum },
    { "mse of two slices", loss_of_a_slice },
    { "a matrix and its transpose", a_matrix_and_its_transpose },
    { "statistics of rows", statistics_of_rows },
};

static void views_and_broadcasts_stay_one_kernel(void)
{
    if (!fuses(&tni_device_cpu)) SKIP("the cpu device runs ops one by one");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        tn_ctx    *cx = rules_open("cpu");
        tn_tensor *x = rules_there(cx, TN_SHAPE(N, C)), *b = rules_there(cx, TN_SHAPE(C));
        tn_begin(cx);
        forms[i].record(x, b);
        int n = explain(cx, false);
        test_case_result(n == 1, "%s: %.600s", forms[i].name, page);
        CHECK_INT(tn_error(cx), TN_OK);
        tn_close(cx);
    }
}

// ---- memory

typedef struct {
    tn_ctx    *cx;
    tn_layer  *net;
    tn_optim  *opt;
    tn_tensor *x, *y;
} mlp;

static mlp mlp_open(const char *device)
{
    mlp m = { .cx = rules_open(device) };
    m.net = tn_nn_seq(m.cx, tn_nn_linear(m.cx, 300, 64), tn_nn_act(m.cx, tn_relu),
                      tn_nn_linear(m.cx, 64, 10));
    m.opt = tn_adam(m.net, (tn_adam_opts){ 0 });
    m.x   = tn_randn(m.cx, TN_F32, TN_SHAPE(128, 300));
    m.y   = tn_randint(m.cx, TN_I64, 0, 10, TN_SHAPE(128));
    CHECK_STATUS(tn_eval(m.cx), TN_OK);
    return m;
}

// What tn_step records.
static void mlp_record(mlp *m)
{
    tn_backward(tn_cross_entropy(tn_forward(m->net, m->x), m->y), NULL);
    tn_optim_step(m->opt);
    tn_optim_zero_grad(m->opt);
}

static void the_memory_of_a_step_is_known_before_it_runs(void)
{
    for (int d = 0; d < 2; d++) {
        mlp     m    = mlp_open(d ? "ref" : "cpu");
        int64_t size = d ? 8 : 4, count = tn_layer_count(m.net);
        for (int i = 0; i < 4; i++) {
            tn_scope *s = tn_begin(m.cx);
            mlp_record(&m);
            int64_t        before = tn_ctx_stats(m.cx).peak;
            tn_plan_memory memory = tn_ctx_plan_memory(m.cx);
            CHECK_INT(memory.parameters, count * size);
            CHECK_INT(memory.optimizer, 2 * count * size);
            CHECK_INT(memory.gradients, 0);
            CHECK(memory.activations >= 128 * 64 * size);
            CHECK(memory.workspace >= 0);
            CHECK(memory.peak >= memory.parameters + memory.optimizer + memory.activations);
            CHECK_STATUS(tn_eval(m.cx), TN_OK);
            int64_t after = tn_ctx_stats(m.cx).peak;
            if (after > before) CHECK_NEAR((double)memory.peak, (double)after, 0.1 * (double)after);
            else CHECK(memory.peak <= after);
            CHECK(i > 0 || after > before);
            tn_end(s);
        }
        tn_close(m.cx);
    }
}

static void stored_gradients_are_memory_too(void)
{
    mlp m = mlp_open("cpu");
    tn_begin(m.cx);
    tn_backward(tn_cross_entropy(tn_forward(m.net, m.x), m.y), NULL);
    tn_plan_memory memory = tn_ctx_plan_memory(m.cx);
    CHECK_INT(memory.gradients, tn_layer_count(m.net) * 4);
    CHECK_INT(memory.optimizer, 0);
    tn_eval(m.cx);
    memory = tn_ctx_plan_memory(m.cx);  // nothing is pending
    CHECK_INT(memory.parameters, 0);
    CHECK_INT(memory.peak, tn_ctx_stats(m.cx).bytes);
    tn_close(m.cx);
}

static void counters_tell_plans_from_hits(void)
{
    tn_ctx *cx = rules_open("cpu");
    for (int i = 0; i < 3; i++) {
        tn_scope *s = tn_begin(cx);
        tn_matmul(tn_exp(rules_there(cx, TN_SHAPE(N, C))), rules_there(cx, TN_SHAPE(C, C)));
        CHECK_STATUS(tn_eval(cx), TN_OK);
        tn_end(s);
    }
    tn_stats now = tn_ctx_stats(cx);
    CHECK_INT(now.plans, 1);
    CHECK_INT(now.hits, 2);
    CHECK(now.planned >= 4 * N * C);
    tn_close(cx);
}

// ---- the environment, in a program of its own

static const char program[] =
    "#include <stdio.h>\n"
    "#include <tenon.h>\n"
    "static float data[64 * 8];\n"
    "int main(int argc, char **argv)\n"
    "{\n"
    "    tn_ctx *cx = tn_open(\"cpu\");\n"
    "    for (int i = 0; i < 7; i++) {\n"
    "        int64_t    n = i < 5 ? 64 : 32;\n"
    "        tn_scope  *s = tn_begin(cx);\n"
    "        tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(n, 8), data);\n"
    "        tn_mul_s(tn_exp(x), i);\n"
    "        tn_eval(cx);\n"
    "        tn_end(s);\n"
    "    }\n"
    "    tn_stats now = tn_ctx_stats(cx);\n"
    "    if (argc > 2)\n"
    "        printf(\"%d %d\\n\", (int)now.kernels, (int)now.disk_hits);\n"
    "    else printf(\"%s\\n\", argc > 1 ? argv[1] : \"done\");\n"
    "    tn_close(cx);\n"
    "    return argc == 2 ? 7 : 0;\n"
    "}\n";
enum { EXP_LINE = 11 };

// Runs a script in the scratch folder, with tenon as the tool, into `page`. Looking for leaks takes
// seconds a process; sanitized builds do it in the tests of the tool.
TEST_PRINTF(2, 3) static void runs(int status, const char *script, ...)
{
    char    command[COMMAND];
    int     n = snprintf(command, sizeof command,
                         "cd '%s' && unset TN_EXPLAIN TN_LOG; export TN_DEVICE=cpu; "
                             "export ASAN_OPTIONS=detect_leaks=0; tenon() { '" TN_BUILD_DIR
                         "/tenon' \"$@\"; }\n",
                         scratch_path("."));
    va_list list;
    va_start(list, script);
    vsnprintf(command + n, sizeof command - (size_t)n, script, list);
    va_end(list);
    int got = tree_run(command, page, sizeof page);
    test_that(got == status, "%s: status %d: %.600s", command + n, got, page);
}

static bool build_program(void)
{
    if (!CHECK(scratch_open())) return false;
    CHECK(scratch_write(scratch_path("watched.c"), program, sizeof program - 1));
    runs(0, "'%s' -std=c11 %s%s watched.c -o watched -I'%s/include' -L'%s' -ltenon -Wl,-rpath,'%s'",
         TN_CC, TN_SANITIZE[0] ? "-fsanitize=" : "", TN_SANITIZE, TN_SOURCE_DIR, TN_BUILD_DIR,
         TN_BUILD_DIR);
    return true;
}

static int lines_with(const char *text)
{
    int n = 0;
    for (const char *s = page; (s = strstr(s, text)) != NULL; s++) n++;
    return n;
}

static void a_program_shows_its_plans(void)
{
    char line[64];
    if (!build_program()) return;
    snprintf(line, sizeof line, "watched.c:%d exp\n", EXP_LINE);
    runs(0, "./watched");
    CHECK_STR(page, "done\n");
    runs(0, "TN_EXPLAIN=1 ./watched 2>&1 >/dev/null");
    CHECK_INT(lines_with("kernel"), 2);
    says("plan 1: ");
    says("plan 2: ");
    says(line);
    runs(0, "TN_EXPLAIN=plans.txt ./watched && cat plans.txt");
    CHECK(strncmp(page, "done\nplan 1: ", 13) == 0);
    CHECK_INT(lines_with("plan 2: "), 1);
    runs(0, "TN_EXPLAIN=0 ./watched");
    CHECK_STR(page, "done\n");
    runs(7, "tenon explain -- ./watched --help 2>plans.err");
    CHECK_STR(page, "--help\n");
    runs(0, "cat plans.err");
    CHECK_INT(lines_with("plan "), 2);
    says(line);
    runs(0, "tenon explain --source -- ./watched 2>&1 >/dev/null");
    says("plan 1: ");
    scratch_close();
}

static void kernels_are_counted_as_compiled_or_found(void)
{
    int compiled = -1, found = -1;
    if (!fuses(&tni_device_cpu)) SKIP("the cpu device runs ops one by one");
    if (!build_program()) return;
    runs(0, "export TN_COMPILE=wait TN_CACHE_DIR=$PWD/cache; ./watched with counts");
    CHECK(sscanf(page, "%d %d", &compiled, &found) == 2 && compiled > 0 && found == 0);
    runs(0, "export TN_COMPILE=wait TN_CACHE_DIR=$PWD/cache; ./watched with counts");
    CHECK_INT(sscanf(page, "%d %d", &found, &compiled), 2);
    CHECK_INT(found, 0);
    CHECK(compiled > 0);
    runs(0, "rm -r cache");
    scratch_close();
}

static void a_late_plan_says_why(void)
{
    char line[256];
    if (!build_program()) return;
    runs(0, "TN_LOG=plan ./watched 2>&1 >/dev/null");
    snprintf(line, sizeof line,
             "plan 1: new: no plan is kept\n"
             "plan 2: new: size of axis 0 of exp at watched.c:%d is 32, was 64\n",
             EXP_LINE);
    CHECK_STR(page, line);
    runs(0, "TN_LOG=other,plan ./watched 2>&1 >/dev/null");
    CHECK_STR(page, line);
    runs(0, "TN_LOG=planning ./watched 2>&1 >/dev/null");
    CHECK_STR(page, "");
    scratch_close();
}

// What a difference is called, by what is recorded after some steps of exp.
static void exp_alone(tn_tensor *x)
{
    tn_exp(x);
}
static void exp_of_other_dtype(tn_tensor *x)
{
    tn_exp(tn_cast(x, TN_F64));
}
static void log_instead(tn_tensor *x)
{
    tn_log(x);
}
static void exp_twice(tn_tensor *x)
{
    tn_exp(x);
    tn_exp(x);
}
static void exp_of_a_part(tn_tensor *x)
{
    tn_exp(tn_slice(x, 0, 0, 2, 1));
}

static const struct {
    void (*record)(tn_tensor *x);
    const char *says;
} others[] = {
    { exp_of_other_dtype, ", was exp" },
    { log_instead, "log at test/plan/test_explain.c:" },
    { exp_twice, "exp at test/plan/test_explain.c:" },
    { exp_of_a_part, "at test/plan/test_explain.c:" },
};

// stderr of what f does, into `page`.
static void record_stderr(tn_ctx *cx, tn_tensor *x, void (*f)(tn_tensor *x))
{
    fflush(stderr);
    int   kept = dup(2);
    FILE *to   = tmpfile();
    if (!CHECK(kept >= 0 && to)) return;
    dup2(fileno(to), 2);
    f(x);
    tn_eval(cx);
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    rewind(to);
    page[fread(page, 1, sizeof page - 1, to)] = 0;
    fclose(to);
}

static void reasons_name_what_differs(void)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        setenv("TN_LOG", "plan", 1);
        tn_ctx *cx = rules_open("cpu");
        unsetenv("TN_LOG");
        tn_tensor *x = rules_there(cx, TN_SHAPE(4, 4));
        for (int k = 0; k < 4; k++) {
            tn_scope *s = tn_begin(cx);
            record_stderr(cx, x, k < 3 ? exp_alone : others[i].record);
            if (k) CHECK(k == 3 || !*page);
            else says("plan 1: new: no plan is kept");
            tn_end(s);
        }
        says("plan 2: new: ");
        says(others[i].says);
        tn_close(cx);
    }
}

static tn_tensor *second;  // of a sum; computed

static void add_second(tn_tensor *x)
{
    tn_add(x, second);
}

static void add_and_drop_second(tn_tensor *x)
{
    tn_add(x, second);
    tn_drop(second);
}

static void the_source_that_differs_is_named(void)
{
    setenv("TN_LOG", "plan", 1);
    tn_ctx *cx = rules_open("cpu");
    unsetenv("TN_LOG");
    tn_tensor *x = rules_there(cx, TN_SHAPE(4, 4)), *y = rules_there(cx, TN_SHAPE(4, 4));
    second = y;
    record_stderr(cx, x, add_second);
    second = x;
    record_stderr(cx, x, add_second);
    says("plan 2: new: source 1 of add at ");
    tn_close(cx);
}

// A value that the program drops in one step, and holds in the next.
static void the_input_that_differs_is_named(void)
{
    setenv("TN_LOG", "plan", 1);
    tn_ctx *cx = rules_open("cpu");
    unsetenv("TN_LOG");
    tn_tensor *x = rules_there(cx, TN_SHAPE(4, 4));
    for (int k = 0; k < 2; k++) {
        second = rules_there(cx, TN_SHAPE(4, 4));
        record_stderr(cx, x, k ? add_second : add_and_drop_second);
    }
    says("plan 2: new: input (4, 4) of f32");
    says("is still held by the program, was not");
    tn_close(cx);
}

// ---- the tool

// The most kernels that a case may become. Whole steps are on the cpu alone, where the libraries
// are its own; their numbers are those reached, so that none is lost again. without: where
// attention is recorded as other ops.
static const struct {
    const char *name;
    int         most;
    bool        whole;
    int         without;
} cases[] = {
    { "relu_chain", 1, false, 0 },
    { "softmax", 1, false, 0 },
    { "log_softmax", 1, false, 0 },
    { "layer_norm", 1, false, 0 },
    { "rms_norm", 1, false, 0 },
    { "layer_norm_backward", 1, false, 0 },
    { "cross_entropy", 1, false, 0 },
    { "bias_gelu_dropout_residual", 1, false, 0 },
    { "batch_norm", 2, false, 0 },
    { "adamw", 1, false, 0 },
    { "clip", 2, false, 0 },
    { "max_pool", 1, false, 0 },
    { "transformer_block", 22, false, 30 },
    { "mlp_step", 10, true, 0 },
    { "lenet_step", 26, true, 0 },
    { "gpt2_step", 55, true, 0 },
    { "llama_step", 73, true, 0 },
};

enum { CASES = sizeof cases / sizeof *cases };

static void explain_case(int i, const tni_device *d)
{
    char      format[128], end[8] = "";
    int       n = -1;
    long long moved, least;
    runs(0, "tenon explain %s --device %s", cases[i].name, d->name);
    snprintf(format, sizeof format, "%s: %%d kernel%%*[s,] %%lld bytes moved, %%lld at %%5s",
             cases[i].name);
    int  most = tni_device_runs(d, TNI_attention) || !cases[i].without ? cases[i].most
                                                                       : cases[i].without;
    bool ok   = sscanf(page, format, &n, &moved, &least, end) == 4 && !strcmp(end, "least");
    test_case_result(ok, "%s: %.600s", d->name, page);
    test_case_result(n >= 1 && (!fuses(d) || n <= most), "%s: %.600s", d->name, page);
    says("cli/explain_cases.c:");
    says("lower bound\n");
}

static void the_cases_become_so_many_kernels(void)
{
    if (!CHECK(scratch_open())) return;
    for (int i = 0; i < CASES; i++) explain_case(i, &tni_device_cpu);
    runs(0, "tenon explain --list");
    for (int i = 0; i < CASES; i++) says(cases[i].name);
    CHECK_INT(lines_with("\n"), CASES);
    scratch_close();
}

static void the_cases_are_the_same_on_opencl(void)
{
    tni_text why = { "" };
    if (!fuses(&tni_device_opencl)) SKIP("the opencl device runs ops one by one");
    if (!tni_device_opencl.probe(&why)) SKIP("%s", why.s);
    if (!CHECK(scratch_open())) return;
    for (int i = 0; i < CASES; i++)
        if (!cases[i].whole) explain_case(i, &tni_device_opencl);
    scratch_close();
}

const test_case tests_explain[] = {
    TEST(the_page_has_counts_lines_and_memory),
    TEST(what_is_at_least_moved_is_what_is_read_and_written),
    TEST(the_page_says_why_values_are_stored),
    TEST(explaining_changes_nothing),
    TEST(explaining_where_it_cannot_be_is_an_error),
    TEST(any_allocation_may_fail_while_explaining),
    TEST(the_source_has_the_kernel_in_the_devices_language),
    TEST(views_and_broadcasts_stay_one_kernel),
    TEST(the_memory_of_a_step_is_known_before_it_runs),
    TEST(stored_gradients_are_memory_too),
    TEST(counters_tell_plans_from_hits),
    TEST(a_program_shows_its_plans),
    TEST(kernels_are_counted_as_compiled_or_found),
    TEST(a_late_plan_says_why),
    TEST(reasons_name_what_differs),
    TEST(the_source_that_differs_is_named),
    TEST(the_input_that_differs_is_named),
    TEST(the_cases_become_so_many_kernels),
    TEST(the_cases_are_the_same_on_opencl),
    TEST_END,
};
