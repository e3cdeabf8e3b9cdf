// test_opencl.c: the opencl device: how it is found, its memory, every op of the table against the
// reference device, op by op and in kernels that the planner made. Without an OpenCL driver all of
// it is skipped. With TN_TEST_LONG set, the table is gone through for every dtype and layout.
#include "check.h"
#include "device_table.h"
#include "on_device.h"
#include "rules_kit.h"
#include "table.h"

#include "base/heap.h"
#include "device/opencl/opencl.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Whether there is a device; else the test says so and ends. What is compiled here stays out of the
// user's disk cache.
#define NEED_DEVICE()                  \
    setenv("TN_CACHE_DIR", "none", 1); \
    if (!tni_cl_get()) SKIP("no opencl device: %s", tni_cl_detail())

static tn_ctx *open_opencl(bool eager)
{
    return open_eager("opencl", eager);
}

// ---- finding it --------------------------------------------------------------------------------

// In a process of its own, before this one has chosen a device.
static void a_device_that_is_not_there_is_told(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        setenv("TN_OPENCL_DEVICE", "77:0", 1);
        tn_ctx     *cx   = tn_open("opencl");
        const char *text = tn_error_text(NULL);
        bool        told = !cx && strstr(text, "open: device opencl is not available: ");
        // Without a driver the reason is another one.
        told = told && (strstr(text, "TN_OPENCL_DEVICE=77:0 is no platform:device") ||
                        strstr(text, "libOpenCL"));
        _exit(told ? 0 : 1);
    }
    int status = 1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
}

static void the_probe_names_device_and_doubles(void)
{
    NEED_DEVICE();
    tni_text t = { "" };
    CHECK(tni_device_opencl.probe(&t));
    CHECK(strstr(t.s, "OpenCL ") != NULL);
    CHECK(strstr(t.s, tni_cl_get()->fp64 ? ", fp64" : ", no fp64") != NULL);
}

// A sum in a process of its own, whose disk cache is a folder; whether as many programs as expected
// were compiled and loaded, if binaries are kept or not.
static int sum_in_child(const char *folder, bool keeps, bool cold)
{
    pid_t pid = fork();
    if (pid == 0) {
        setenv("TN_CACHE_DIR", folder, 1);
        tni_cl *cl = tni_cl_get();
        if (!cl) _exit(2);
        cl->keeps    = keeps;
        tn_ctx  *cx  = open_quiet("opencl", 1);
        double   sum = tn_item(tn_sum_all(tn_exp(tn_zeros(cx, TN_F32, TN_SHAPE(5, 7)))));
        tn_stats n   = tn_ctx_stats(cx);
        tn_close(cx);
        bool counts = cold ? cl->built > 0 && cl->loaded == 0 : cl->built == 0 && cl->loaded > 0;
        counts      = counts && (cold ? n.kernels : n.disk_hits) > 0;
        counts      = counts && (cold ? n.disk_hits : n.kernels) == 0;
        _exit(sum == 35 && counts ? 0 : 1);
    }
    int status = 1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                           : -1;
}

static void programs_come_from_the_disk_cache(void)
{
    char folder[] = "/tmp/tenon-opencl-XXXXXX", command[128];
    if (!CHECK(mkdtemp(folder) != NULL)) return;
    int none = sum_in_child(folder, false, true);  // stores nothing, so that the next finds nothing
    int first = sum_in_child(folder, true, true), second = sum_in_child(folder, true, false);
    int unused = sum_in_child(folder, false, true);
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_INT(system(command), 0);
    if (first == 2) SKIP("no opencl device");
    CHECK_INT(none, 0);
    CHECK_INT(first, 0);
    CHECK_INT(second, 0);
    CHECK_INT(unused, 0);
}

// A compiler that sees both headers compares every constant and every parameter.
static void declarations_agree_with_the_official_header(void)
{
    char command[2048];
    if (access("/usr/include/CL/cl.h", R_OK)) SKIP("CL/cl.h is not installed");
    snprintf(command, sizeof command,
             "printf '%%s\\n' '#define CL_TARGET_OPENCL_VERSION 120' '#include <CL/cl.h>' "
             "'#include \"device/opencl/cl_api.h\"' "
             "'#define C(name, value) _Static_assert(value == CL_##name, #name);' "
             "'TNI_CL_CONSTANTS(C)' "
             "'#define F(result, name, args) result (*check_##name) args = name;' "
             "'TNI_CL_FUNCTIONS(F)' | %s -x c -std=c11 -fsyntax-only -Wno-deprecated-declarations "
             "-Werror=incompatible-pointer-types -I%s/src -",
             TN_CC, TN_SOURCE_DIR);
    CHECK_INT(system(command), 0);
}

// ---- memory ------------------------------------------------------------------------------------

static void an_address_leads_to_its_buffer(void)
{
    NEED_DEVICE();
    enum { N = 40 };
    tni_heap heap = tni_heap_default();
    char    *p[N];
    size_t   bytes[N];
    for (int i = 0; i < N; i++) {
        bytes[i] = (size_t)64 << i % 12;
        p[i]     = tni_cl_alloc(&heap, bytes[i]);
        if (!CHECK(p[i] != NULL)) return;
        CHECK_INT((uintptr_t)p[i] % 64, 0);
    }
    for (int i = 0; i < N; i += 2) tni_cl_free(&heap, p[i]);
    tni_cl_lock();
    for (int i = 0; i < N; i++) {
        tni_cl_buffer first = tni_cl_find_buffer(p[i]), last = tni_cl_find_buffer(p[i] + bytes[i]);
        if (i % 2 == 0) {
            CHECK(first.mem == NULL);
            continue;
        }
        CHECK(first.mem != NULL && first.mem == last.mem);
        CHECK_INT(first.offset, 0);
        CHECK_INT(last.offset, bytes[i]);  // just past the end, as an empty view has it
        for (int k = 1; k < i; k += 2) CHECK(tni_cl_find_buffer(p[k]).mem != first.mem);
    }
    CHECK(tni_cl_find_buffer(&heap).mem == NULL);
    CHECK(tni_cl_find_buffer(NULL).mem == NULL);
    tni_cl_unlock();
    for (int i = 1; i < N; i += 2) tni_cl_free(&heap, p[i]);
}

// Around the sizes of slots, and past all of them together.
static void transfers_bring_every_byte(void)
{
    NEED_DEVICE();
    static const int64_t sizes[] = {
        1, 63, 1 << 20, (1 << 20) + 1, 5 << 20, 8 << 20, (8 << 20) + 7
    };
    tni_heap heap = tni_heap_default();
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t  n    = sizes[k];
        uint8_t *host = malloc((size_t)n), *back = calloc((size_t)n, 1);
        char    *p = tni_cl_alloc(&heap, (size_t)n + 3);
        for (int64_t i = 0; i < n; i++) host[i] = (uint8_t)(i * 37 % 251 + (int64_t)k);
        tni_cl_upload(NULL, p + 3, TN_U8, host, n, &(tni_text){ 0 });
        tni_cl_download(NULL, back, TN_U8, p + 3, n, &(tni_text){ 0 });
        CHECK(!memcmp(host, back, (size_t)n));
        tni_cl_free(&heap, p);
        free(host);
        free(back);
    }
}

// Many small writes go round the slots while nothing waits for them.
static void uploads_do_not_overtake_each_other(void)
{
    NEED_DEVICE();
    enum { N = 200 };
    tni_heap heap = tni_heap_default();
    char    *p    = tni_cl_alloc(&heap, N * 4);
    int32_t  back[N];
    for (int32_t i = 0; i < N; i++) {
        int32_t v = -1;
        tni_cl_upload(NULL, p + 4 * i, TN_I32, &v, 1, &(tni_text){ 0 });
        v = i * i;
        tni_cl_upload(NULL, p + 4 * i, TN_I32, &v, 1, &(tni_text){ 0 });
    }
    tni_cl_download(NULL, back, TN_I32, p, N, &(tni_text){ 0 });
    for (int32_t i = 0; i < N; i++) CHECK_INT(back[i], i * i);
    tni_cl_free(&heap, p);
}

static void closed_contexts_leave_no_buffers(void)
{
    NEED_DEVICE();
    int64_t bytes, before = tni_cl_blocks(&bytes), bytes_before = bytes;
    for (int k = 0; k < 3; k++) {
        tn_ctx    *cx = open_opencl(k == 1);
        tn_tensor *a  = tn_randn(cx, TN_F32, TN_SHAPE(40, 50));
        tn_tensor *y  = tn_matmul(a, tn_transpose(tn_exp(a), 0, 1));
        CHECK(isfinite(tn_item(tn_sum_all(y))));
        CHECK(tni_cl_blocks(&bytes) > before);
        tn_close(cx);
        CHECK_INT(tni_cl_blocks(&bytes), before);
        CHECK_INT(bytes, bytes_before);
    }
}

static void memory_that_is_out_is_reported_and_recovered_from(void)
{
    NEED_DEVICE();
    tni_cl    *cl  = tni_cl_get();
    int64_t    all = cl->memory, used;
    tn_ctx    *cx  = open_opencl(false);
    tn_tensor *a   = tn_ones(cx, TN_F32, TN_SHAPE(1000));
    CHECK_NEAR(tn_item(tn_sum_all(a)), 1000, 0);
    tni_cl_blocks(&used);
    cl->memory   = used + (8 << 20);
    tn_scope  *s = tn_begin(cx);
    tn_tensor *x = tn_rand(cx, TN_F32, TN_SHAPE(3 << 20));  // 12 MB of 8
    CHECK_STATUS(tn_eval_of(x), TN_EMEM);
    CHECK(strstr(tn_error_text(cx), "out of memory") != NULL);
    tn_error_clear(cx);
    tn_end(s);
    tn_error_clear(cx);
    // 4 MB in the cache, then 6: the cache has to be given back.
    s = tn_begin(cx);
    CHECK_STATUS(tn_eval_of(tn_rand(cx, TN_F32, TN_SHAPE(1 << 20))), TN_OK);
    tn_end(s);
    x = tn_rand(cx, TN_F32, TN_SHAPE(3 << 19));
    CHECK_STATUS(tn_eval_of(x), TN_OK);
    CHECK_STR(tn_error_text(cx), "");
    cl->memory = all;
    tn_close(cx);
    char *p = tni_cl_alloc(&(tni_heap){ .alloc = tni_heap_default().alloc }, SIZE_MAX / 4);
    CHECK(p == NULL);
}

// ---- contexts and threads ----------------------------------------------------------------------

static void *work(void *arg)
{
    tn_ctx *cx  = open_opencl(false);
    double  sum = 0;
    for (int k = 0; cx && k < 12; k++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *a = tn_reshape(tn_arange(cx, TN_F32, 0, 64 * 64, 1), TN_SHAPE(64, 64));
        tn_tensor *y = tn_matmul(tn_mul_s(a, 1.0 / 4096), tn_softmax(a, 1));
        sum += tn_item(tn_sum_all(y));
        tn_end(s);
    }
    if (cx && !tn_error_text(cx)[0]) *(double *)arg = sum;
    tn_close(cx);
    return NULL;
}

static void contexts_of_several_threads_share_the_device(void)
{
    NEED_DEVICE();
    if (strstr(tni_cl_get()->detail.s, "NVIDIA"))
        SKIP(
            "NVIDIA's OpenCL crashes in a thread of its own when contexts of several threads use a GPU");
    enum { N = 3 };
    pthread_t thread[N];
    double    sum[N], want = NAN;
    work(&want);
    for (int i = 0; i < N; i++) pthread_create(&thread[i], NULL, work, &sum[i]);
    for (int i = 0; i < N; i++) pthread_join(thread[i], NULL);
    CHECK(isfinite(want));
    for (int i = 0; i < N; i++) CHECK(sum[i] == want);
}

// ---- failures ----------------------------------------------------------------------------------

static void an_index_out_of_range_is_told_as_on_cpu(void)
{
    NEED_DEVICE();
    const int64_t places[] = { 0, 2, 7, -1 };
    for (int k = 0; k < 6; k++) {
        char    text[2][256];
        tn_ctx *cx[] = { open_opencl(k & 1), open_quiet("cpu", 1) };
        for (int d = 0; d < 2; d++) {
            tn_tensor *x = tn_rand(cx[d], TN_F32, TN_SHAPE(5, 3));
            tn_tensor *i = tn_from(cx[d], TN_I64, TN_SHAPE(4), places), *y;
            tn_tensor *v = tn_ones(cx[d], TN_F32, TN_SHAPE(4, 3));
            i            = tn_expand(tn_unsqueeze(i, 1), TN_SHAPE(4, 3));
            if (k / 2 == 0) y = tn_gather(x, 0, i);
            else y = k / 2 == 1 ? tn_scatter(x, 0, i, v) : tn_scatter_add(x, 0, i, v);
            CHECK_STATUS(tn_eval_of(y), TN_EARG);
            snprintf(text[d], sizeof text[d], "%s", tn_error_text(cx[d]));
        }
        CHECK(strstr(text[0], "index 7 is out of range for size 5 along axis 0") != NULL);
        CHECK_STR(text[0], text[1]);
        tn_error_clear(cx[0]);
        CHECK_NEAR(tn_item(tn_sum_all(tn_ones(cx[0], TN_F32, TN_SHAPE(7)))), 7, 0);
        tn_close(cx[0]);
        tn_close(cx[1]);
    }
}

// ---- the table ---------------------------------------------------------------------------------

// plain: how much of it a plain run takes.
static void run_class(tni_class class, how_much plain)
{
    int ops[TNI_OPS];
    device_table("opencl", false, test_long() ? COMPLETE : plain, device_table_ops(class, ops),
                 ops);
}

// There are many maps, which differ by an expression: the dtypes and layouts are shared out among
// them.
static void maps_of_one_input_agree(void)
{
    NEED_DEVICE();
    run_class(TNI_UNARY, FEW);
    run_class(TNI_CAST, FEW);
}

static void maps_of_two_inputs_agree(void)
{
    NEED_DEVICE();
    run_class(TNI_BINARY, FEW);
}

static void choices_agree(void)
{
    NEED_DEVICE();
    run_class(TNI_TERNARY, SAMPLED);
}

static void reductions_agree(void)
{
    NEED_DEVICE();
    run_class(TNI_REDUCE, SAMPLED);
}

static void scans_agree(void)
{
    NEED_DEVICE();
    run_class(TNI_SCAN, SAMPLED);
}

static void sources_agree(void)
{
    NEED_DEVICE();
    run_class(TNI_SOURCE, SAMPLED);
}

static void movement_agrees(void)
{
    NEED_DEVICE();
    run_class(TNI_MOVE, SAMPLED);
}

static void writes_agree(void)
{
    NEED_DEVICE();
    run_class(TNI_EFFECT, SAMPLED);
}

static void library_ops_agree(void)
{
    NEED_DEVICE();
    run_class(TNI_LIBRARY, SAMPLED);
}

// Op by op every kernel is a program of its own, so that most classes are sampled only.
static void ops_one_by_one_agree(void)
{
    NEED_DEVICE();
    static const int ops[] = { TNI_add,     TNI_exp,         TNI_where,  TNI_cast,  TNI_bit_not,
                               TNI_sum,     TNI_max,         TNI_prod,   TNI_full,  TNI_iota,
                               TNI_pad,     TNI_concat,      TNI_gather, TNI_copy,  TNI_normal,
                               TNI_uniform, TNI_scatter_add, TNI_floor,  TNI_update };
    device_table("opencl", true, test_long() ? COMPLETE : FEW, sizeof ops / sizeof *ops, ops);
}

// The device as one without doubles. Shapes and ops are of this test alone: what was compiled
// before stays as it is.
static void a_device_without_doubles_does_all_but_f64(void)
{
    NEED_DEVICE();
    tni_cl *cl = tni_cl_get();
    if (!cl->fp64) SKIP("it is one");
    tn_ctx *cx[2];
    tni_compiled_doubles(cl->compiled, false);
    cx[0] = open_opencl(true);
    cx[1] = open_quiet("ref", 1);
    table_seed(5);
    for (int dt = 0; dt < TN_F64; dt++) {
        input  in = input_make((tn_dtype)dt, STEPPED, 2, (int64_t[]){ 19, 23 }, WILD);
        double have[19 * 23], want[19 * 23];
        CHECK_STATUS(tn_read(input_put(&in, cx[0]), TN_F64, have, 19 * 23), TN_OK);
        CHECK_STATUS(tn_read(input_put(&in, cx[1]), TN_F64, want, 19 * 23), TN_OK);
        bool ok = true;
        for (int i = 0; i < 19 * 23; i++)
            ok &= have[i] == want[i] || (isnan(have[i]) && isnan(want[i]));
        test_case_result(ok, "%s to f64", tn_dtype_name((tn_dtype)dt));
        input_free(&in);
    }
    tn_tensor *x = tn_randn(cx[0], TN_BF16, TN_SHAPE(3, 21));
    CHECK(isfinite(tn_item(tn_sum_all(tn_cumsum(tn_gelu(x), 1)))));
    CHECK_NEAR(tn_item(tn_sum_all(tn_arange(cx[0], TN_F32, 0, 7, 0.5))), 45.5, 1e-5);
    tn_tensor *counts = tn_cumsum(tn_ones(cx[0], TN_F32, TN_SHAPE(1, 9001)), 1);
    CHECK_NEAR(tn_item(tn_slice(counts, 1, 9000, 9001, 1)), 9001, 0);
    counts = tn_cumsum(tn_ones(cx[0], TN_F32, TN_SHAPE(901, 2)), 0);
    CHECK_NEAR(tn_item(tn_sum_all(tn_slice(counts, 0, 900, 901, 1))), 1802, 0);
    CHECK_STR(tn_error_text(cx[0]), "");
    CHECK_STATUS(tn_eval_of(tn_exp(tn_full(cx[0], TN_F64, TN_SHAPE(3, 7), 2))), TN_EDEVICE);
    CHECK(strstr(tn_error_text(cx[0]), "the opencl device has no f64") != NULL);
    tn_error_clear(cx[0]);
    for (int eager = 0; eager < 2; eager++) {
        tn_close(cx[0]);
        cx[0] = open_opencl(eager);
        x     = tn_ones(cx[0], TN_F32, TN_SHAPE(3, 5 + eager));
        CHECK_STATUS(tn_eval_of(tn_cast(x, TN_F64)), TN_EDEVICE);
        CHECK_STR(tn_error_text(cx[0]),
                  "evaluating: cast: the opencl device has no f64: values can be "
                  "read as f64, not computed");
    }
    tni_compiled_doubles(cl->compiled, true);
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// ---- sizes of all kinds ------------------------------------------------------------------------

static void products_of_all_sizes_agree(void)
{
    NEED_DEVICE();
    products_on("opencl");
}

// x + transpose(x) takes tiles in pairs, each the other's transposed operand; with another window
// of x the same kernel must not.
static void another_window_of_a_tensor_is_read_where_it_begins(void)
{
    enum { N = 512, ROWS = N + 32, COLS = N + 4 };
    static const int down[] = { 0, 1, 0, 3, 16 };
    NEED_DEVICE();
    tn_ctx *cx = rules_open("opencl");
    float  *v = malloc(sizeof *v * ROWS * COLS), *y = malloc(sizeof *y * N * N);
    for (int i = 0; i < ROWS * COLS; i++) v[i] = (float)(i % 9973);
    tn_tensor *x = tn_want(tn_from(cx, TN_F32, TN_SHAPE(ROWS, COLS), v));
    tn_eval(cx);
    for (size_t k = 0; k < sizeof down / sizeof *down; k++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *a = tn_slice(tn_slice(x, 0, 0, N, 1), 1, 0, N, 1);
        tn_tensor *b = tn_slice(tn_slice(x, 0, down[k], down[k] + N, 1), 1, 0, N, 1);
        CHECK(tn_read(tn_add(a, tn_transpose(b, 0, 1)), TN_F32, y, N * N) == TN_OK);
        int wrong = 0;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                wrong += y[i * N + j] != v[i * COLS + j] + v[(j + down[k]) * COLS + i];
        test_case_result(!wrong, "%d rows further down: %d of %d are wrong", down[k], wrong, N * N);
        tn_end(s);
    }
    free(v);
    free(y);
    tn_close(cx);
}

static void lines_of_all_lengths_are_scanned(void)
{
    NEED_DEVICE();
    scans_on("opencl");
}

static void extrema_of_all_lines_are_found(void)
{
    NEED_DEVICE();
    extrema_on("opencl");
}

static void lines_of_all_lengths_are_sorted_stably(void)
{
    NEED_DEVICE();
    sorts_on("opencl");
}

static void long_lines_agree(void)
{
    NEED_DEVICE();
    long_lines_on("opencl");
}

static void sums_of_all_shapes_agree(void)
{
    NEED_DEVICE();
    sums_on("opencl");
}

static void losses_over_many_classes_agree(void)
{
    NEED_DEVICE();
    losses_on("opencl");
}

static void many_sums_into_few_places_agree(void)
{
    NEED_DEVICE();
    scatters_on("opencl");
}

const test_case tests_opencl[] = {
    TEST(a_device_that_is_not_there_is_told),
    TEST(programs_come_from_the_disk_cache),
    TEST(the_probe_names_device_and_doubles),
    TEST(declarations_agree_with_the_official_header),
    TEST(an_address_leads_to_its_buffer),
    TEST(transfers_bring_every_byte),
    TEST(uploads_do_not_overtake_each_other),
    TEST(closed_contexts_leave_no_buffers),
    TEST(memory_that_is_out_is_reported_and_recovered_from),
    TEST(contexts_of_several_threads_share_the_device),
    TEST(an_index_out_of_range_is_told_as_on_cpu),
    TEST(maps_of_one_input_agree),
    TEST(maps_of_two_inputs_agree),
    TEST(choices_agree),
    TEST(reductions_agree),
    TEST(scans_agree),
    TEST(sources_agree),
    TEST(movement_agrees),
    TEST(writes_agree),
    TEST(library_ops_agree),
    TEST(ops_one_by_one_agree),
    TEST(a_device_without_doubles_does_all_but_f64),
    TEST(products_of_all_sizes_agree),
    TEST(another_window_of_a_tensor_is_read_where_it_begins),
    TEST(lines_of_all_lengths_are_scanned),
    TEST(extrema_of_all_lines_are_found),
    TEST(lines_of_all_lengths_are_sorted_stably),
    TEST(long_lines_agree),
    TEST(sums_of_all_shapes_agree),
    TEST(many_sums_into_few_places_agree),
    TEST(losses_over_many_classes_agree),
    TEST_END,
};
