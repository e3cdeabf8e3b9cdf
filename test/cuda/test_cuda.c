// The cuda device: what it says where there is no GPU; the kernels it would compile, compiled for
// an H200 by NVRTC, which needs none; and, where there is one, kernels run against their
// definition.
#include "check.h"

#include "device/cuda/gpu.h"
#include "device/cuda/product_rows.h"
#include "device/cuda/product_small.h"
#include "engine/engine.h"
#include "gpu_parts.h"
#include "kernel_kit.h"
#include "long_rows.h"
#include "scratch.h"
#include "shared_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tenon.h>
#include <unistd.h>

enum { RANDOM = 24, MOST = 40 };

// What an H200 has.
static const char           *chip   = "sm_90";
static const tni_simt_limits limits = {
    .threads = 1024, .shared_bytes = 227 * 1024, .units = 132, .features = TNI_GPU_ALL, .cluster = 8
};

static void the_device_opens_or_says_why_not(void)
{
    tni_text detail = { "" };
    bool     there  = tni_device_cuda.probe(&detail);
    tn_ctx  *cx     = tn_open_with((tn_open_opts){ .device = "cuda" });
    CHECK(*detail.s);
    CHECK_INT(cx != NULL, there);
    if (!there)
        CHECK(strstr(tn_error_text(NULL), "open: device cuda is not available: there is no"));
    tn_close(cx);
    tn_error_clear(NULL);
}

static void open_without_a_name(void *arg)
{
    (void)arg;
    unsetenv("TN_DEVICE");
    tni_text there = { "" };
    tn_ctx  *cx    = tn_open(NULL);
    if (!CHECK(cx != NULL)) return;
    const tni_device *d = ((tni_engine *)cx->engine)->device;
    CHECK(d == (tni_device_cuda.probe(&there) ? &tni_device_cuda : &tni_device_cpu));
    tn_close(cx);
}

static void it_is_taken_where_it_is_there(void)
{
    in_process(open_without_a_name, NULL);
}

static void an_error_in_a_text_is_told(void)
{
    tni_text  why = { "" };
    tni_cubin c;
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    CHECK_STATUS(tni_cubin_compile(&c, "__global__ void f() { no_such(); }", chip, false, &why),
                 TN_EDEVICE);
    CHECK(strstr(why.s, "no_such"));
    CHECK(c.log && strstr(c.log, "no_such"));
    tni_cubin_free(&c);
}

static void what_a_function_takes_is_read(void)
{
    static const char text[] =
        "extern \"C\" __global__ void first(float *x) { __shared__ float s[64]; s[threadIdx.x] = *x; "
        "__syncthreads(); x[threadIdx.x] = s[63 - threadIdx.x]; }\n"
        "extern \"C\" __global__ void second(float *x) { float s[256]; "
        "for (int i = 0; i < 256; i++) s[(int)x[i]] = x[i + 1]; *x = s[threadIdx.x]; }\n";
    tni_text  why = { "" };
    tni_cubin c;
    tni_usage first, second;
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    if (CHECK_STATUS(tni_cubin_compile(&c, text, chip, true, &why), TN_OK)) {
        CHECK(c.bytes > 100 && !memcmp(c.image, "\177ELF", 4));
        CHECK(tni_cubin_usage(&c, "first", &first) && tni_cubin_usage(&c, "second", &second));
        CHECK(!tni_cubin_usage(&c, "third", &first));
        CHECK_INT(first.shared, 256);
        CHECK_INT(first.stack, 0);
        CHECK_INT(second.shared, 0);
        CHECK(second.stack >= 128 && first.registers > 4);
    }
    tni_cubin_free(&c);
}

// ---- kernels for an H200 -----------------------------------------------------------------------

// Kernels with their shapes, for one program.
typedef struct {
    int           n;
    kit_case     *c[MOST];
    tni_simt      shape[MOST];
    tni_emit_item item[MOST];
    char          name[MOST][TNI_KERNEL_NAME];
} program;

static kit_case *next(program *p)
{
    return p->n < MOST ? p->c[p->n++] = calloc(1, sizeof **p->c) : NULL;
}

// The shape as a first launch has it: no addresses.
static void shape_all(program *p)
{
    for (int i = 0; i < p->n; i++) {
        tni_launch l = p->c[i]->l;
        memset(l.buffer, 0, sizeof l.buffer);
        snprintf(p->name[i], sizeof p->name[i], "k%d", i);
        p->shape[i] = tni_simt_choose(&l, &limits);
        p->item[i]  = (tni_emit_item){ &p->c[i]->k, p->name[i], &p->shape[i].class };
    }
}

static void free_all(program *p)
{
    for (int i = 0; i < p->n; i++) {
        if (p->c[i]) kit_free(p->c[i]);
        free(p->c[i]);
    }
}

static void make_softmax(kit_case *c, int64_t rows, int64_t cols)
{
    kit_begin(c, 1, (int64_t[]){ rows }, 1, (int64_t[]){ cols }, true);
    int x = kit_load(c, kit_input(c, TN_F32, TNI_PER_ELEM));
    int m = kit_reduce(c, TNI_max, x, false);
    int e = kit_map(c, TNI_exp, kit_map(c, TNI_sub, x, m, -1), -1, -1);
    int y = kit_map(c, TNI_div, e, kit_reduce(c, TNI_sum, e, false), -1);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ELEM), y);
    CHECK(tni_kernel_seal(&c->k));
}

static void make_chain(kit_case *c, int64_t n)
{
    kit_begin(c, 1, (int64_t[]){ n }, 0, NULL, false);
    int x = kit_load(c, kit_input(c, TN_F32, TNI_PER_ROW));
    int y = kit_map(c, TNI_maximum, x, kit_number(c, TN_F32, 0), -1);
    y     = kit_map(c, TNI_add, kit_map(c, TNI_mul, y, kit_number(c, TN_F32, 0.5), -1),
                    kit_number(c, TN_F32, 1), -1);
    kit_store(c, kit_output(c, TN_F32, TNI_PER_ROW), y);
    CHECK(tni_kernel_seal(&c->k));
}

// Functions of the size that the notes on the chip name must not spill.
static void kernels_compile_for_an_h200_and_do_not_spill(void)
{
    static const int64_t rows[][2] = {
        { 8192, 4096 }, { 65536, 128 }, { 1024, 50257 }, { 512, 131072 }, { 77, 1000 }
    };
    tni_text  why = { "" };
    tni_cubin c;
    program   p = { 0 };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        make_softmax(next(&p), rows[i][0], rows[i][1]);
    make_chain(next(&p), 16384 * 16384);
    shape_all(&p);
    test_that(tni_cuda_cubin(p.n, p.item, chip, true, &c, &why) == TN_OK, "%s", why.s);
    for (int i = 0; c.image && i < p.n; i++) {
        tni_usage u = { 0 };
        if (!CHECK(tni_cubin_usage(&c, p.name[i], &u))) continue;
        test_case_result(u.spills == 0 && u.stack == 0, "%s: %d bytes spilled", p.name[i],
                         u.spills);
        test_case_result(u.registers * p.shape[i].block <= 65536, "%s: %d registers, %d threads",
                         p.name[i], u.registers, p.shape[i].block);
        test_case_result(u.shared + p.shape[i].shared_bytes <= limits.shared_bytes,
                         "%s: %d bytes of shared memory", p.name[i],
                         u.shared + p.shape[i].shared_bytes);
    }
    tni_cubin_free(&c);
    free_all(&p);
}

// Those that bulk copies bring, by tickets or ahead of the registers that hold them.
static void long_rows_compile_for_an_h200_and_do_not_spill(void)
{
    tni_text  why = { "" };
    tni_cubin c;
    program   p = { 0 };
    char      name[LONG_ROWS_NAME];
    int       ahead = 0;
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    for (int i = 0; i < long_rows_count(); i++) {
        kit_case *k = next(&p);
        long_rows_make(k, i, name);
        CHECK(tni_kernel_seal(&k->k));
        tni_simt m = tni_simt_choose(&k->l, &limits);
        ahead += tni_simt_is_ahead(&m.class);
        if (m.class.tickets || tni_simt_is_ahead(&m.class)) continue;
        free(p.c[--p.n]);
    }
    shape_all(&p);
    CHECK(p.n > 6 && ahead > 4);
    test_that(tni_cuda_cubin(p.n, p.item, chip, true, &c, &why) == TN_OK, "%s", why.s);
    for (int i = 0; c.image && i < p.n; i++) {
        tni_usage u = { 0 };
        if (!CHECK(tni_cubin_usage(&c, p.name[i], &u))) continue;
        test_case_result(u.spills == 0 && u.registers * p.shape[i].block <= 65536 &&
                             u.shared + p.shape[i].shared_bytes <= limits.shared_bytes,
                         "%s: %d registers, %d bytes spilled, %d of shared memory", p.name[i],
                         u.registers, u.spills, u.shared + p.shape[i].shared_bytes);
    }
    tni_cubin_free(&c);
    free_all(&p);
}

static void random_kernels_compile_for_an_h200(void)
{
    tni_text  why = { "" };
    tni_cubin c;
    program   p = { 0 };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    for (int i = 0; i < RANDOM; i++) {
        kit_case   *k = next(&p);
        const char *reason;
        if (!CHECK(kit_random_case(k, 100 + (uint64_t)i, i % 2 ? KIT_SMALL : 0))) break;
        if (!tni_can_emit(&k->k, &reason)) {
            kit_free(k);
            free(p.c[--p.n]);
        }
    }
    shape_all(&p);
    test_that(tni_cuda_cubin(p.n, p.item, chip, false, &c, &why) == TN_OK, "%s\n%s", why.s,
              c.log ? c.log : "");
    tni_cubin_free(&c);
    free_all(&p);
}

// ---- kernels written by hand -------------------------------------------------------------------

static const struct {
    const char        *name;
    const char *const *text;
    const char        *kernel[5];
} hands[] = {
    { "send", tni_text_send, { "send" } },
    { "small", tni_text_small, { "small_1", "small_2", "small_4", "small_8" } },
    { "rows", tni_text_rows, { "dots", "columns_1", "columns_2", "columns_4", "columns_8" } },
    { "tiles", tni_text_tiles, { "tiles", "strips" } },
    { "matmul", tni_text_matmul, { "matmul" } },
    { "conv 16", tni_text_conv_16, { "conv" } },
    { "conv 32", tni_text_conv_32, { "conv" } },
    { "conv 64", tni_text_conv_64, { "conv" } },
    { "conv wide", tni_text_conv_wide, { "conv" } },
    { "weights 16", tni_text_weights_16, { "conv_weights" } },
    { "weights 64", tni_text_weights_64, { "conv_weights" } },
    { "weights 128", tni_text_weights_128, { "conv_weights" } },
    { "weights wide", tni_text_weights_wide, { "conv_weights" } },
    { "conv few",
      tni_text_conv_few,
      { "conv_direct", "weights_direct", "weights_direct_last", "conv_add" } },
    { "conv few, wide",
      tni_text_conv_few_wide,
      { "conv_direct", "weights_direct", "weights_direct_last", "conv_add" } },
    { "depthwise 1", tni_text_depthwise[0], { "depthwise" } },
    { "depthwise 2", tni_text_depthwise[1], { "depthwise" } },
    { "depthwise gradient 1", tni_text_depthwise[2], { "depthwise" } },
    { "depthwise gradient 2", tni_text_depthwise[3], { "depthwise" } },
    { "conv3d 64", tni_text_conv3d_64, { "conv" } },
    { "conv3d wide", tni_text_conv3d_wide, { "conv" } },
    { "weights3d 128", tni_text_weights3d_128, { "conv_weights" } },
    { "conv3d few",
      tni_text_conv3d_few,
      { "conv_direct", "weights_direct", "weights_direct_last", "conv_add" } },
    { "cumsum",
      tni_text_cumsum,
      { "scan_rows", "row_totals", "scan_starts", "scan_columns", "column_totals" } },
    { "cumprod",
      tni_text_cumprod,
      { "scan_rows", "row_totals", "scan_starts", "scan_columns", "column_totals" } },
    { "extremum", tni_text_extremum, { "arg_rows", "arg_columns", "arg_last" } },
    { "fold", tni_text_fold, { "fold" } },
    { "sort", tni_text_sort, { "sort_blocks", "sort_merge" } },
    { "index", tni_text_index, { "scatter" } },
    { "fft", tni_text_fft, { "fft_lines_1", "fft_lines_2", "fft_scale" } },
    { "solver",
      tni_text_solver,
      { "solver_check", "solver_end", "solver_order", "solver_rows", "solver_finite" } },
    { "sparse", tni_text_sparse, { "spmm", "spmm_narrow", "sddmm" } },
    { "segments", tni_text_segments, { "pair_blocks", "pair_merge", "add_segments" } },
};
enum { HANDS = sizeof hands / sizeof *hands };

// Whether ops ask for a text with elements of x and results of y.
static bool is_asked_for(int hand, tn_dtype x, tn_dtype y)
{
    const char *const *text   = hands[hand].text;
    bool               narrow = x == TN_F16 || x == TN_BF16, floats = tni_is_float(x);
    if (tni_is_storage_only(x)) return text == tni_text_index && y == x;  // it moves elements too
    if (text == tni_text_send) return x == TN_U8 && y == TN_U8;
    if (text == tni_text_small) return x == TN_F32 && y == TN_F32;
    if (text == tni_text_rows) return (x == TN_F32 || narrow) && y == x;
    if (text == tni_text_tiles || !strncmp(hands[hand].name, "depthwise", 9))
        return narrow && y == x;
    if (text == tni_text_sort || text == tni_text_extremum) return y == TN_I64;
    if (text == tni_text_cumsum || text == tni_text_cumprod)
        return floats ? y == x : y == tni_total_dtype(x);
    if (!strncmp(hands[hand].name, "conv", 4) || !strncmp(hands[hand].name, "weights", 7))
        return floats && y == x;
    if (text == tni_text_fft) return (x == TN_F32 || x == TN_F64) && y == x;
    if (text == tni_text_solver) return (x == TN_F32 || x == TN_F64) && y == x;
    if (text == tni_text_sparse) return floats && y == x;
    if (text == tni_text_index) return y == x || (narrow && y == TN_F32);
    return y == x;
}

static void compile_hand(int hand, tn_dtype x, tn_dtype y)
{
    tni_heap    heap = tni_heap_default();
    tni_text    why  = { "" };
    tni_cubin   c;
    const char *of[] = { hands[hand].name, tn_dtype_name(x), tn_dtype_name(y) };
    char *text = tni_group_text_source(&heap, &tni_dialect_cuda, hands[hand].text, x, y, false);
    if (!CHECK(text != NULL)) return;
    tn_status s = tni_cubin_compile(&c, text, chip, true, &why);
    test_case_result(s == TN_OK && !strstr(c.log, "warning"), "%s %s %s: %s", of[0], of[1], of[2],
                     s == TN_OK ? c.log : why.s);
    for (int i = 0; s == TN_OK && i < 5 && hands[hand].kernel[i]; i++) {
        tni_usage u = { 0 };
        if (!CHECK(tni_cubin_usage(&c, hands[hand].kernel[i], &u))) continue;
        test_case_result(u.spills == 0 && u.stack == 0,
                         "%s %s %s: %s: %d bytes spilled, %d of stack", of[0], of[1], of[2],
                         hands[hand].kernel[i], u.spills, u.stack);
    }
    tni_cubin_free(&c);
    tni_free(&heap, text);
}

// Whether a plain run compiles a text for elements of this dtype: for f32, f64, one of the 16-bit
// floats and one of four integers, which come in turns. Texts of these differ from each other's by
// a type's name and a conversion, as do those of convolutions over three axes from those over two.
// With TN_TEST_LONG set all are compiled.
static bool is_sampled(int hand, tn_dtype x)
{
    static const tn_dtype narrow[] = { TN_BF16, TN_F16 },
                          whole[]  = { TN_I64, TN_BOOL, TN_I32, TN_U8 };
    if (test_long() || x == TN_F32) return true;
    if (strstr(hands[hand].name, "3d")) return false;
    return x == TN_F64 || x == narrow[hand % 2] || x == whole[hand % 4];
}

static void kernels_written_by_hand_compile_for_an_h200_and_do_not_spill(void)
{
    tni_text why = { "" };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    for (int i = 0; i < HANDS; i++)
        for (int x = 0; x < TNI_DTYPES; x++)
            for (int y = 0; y < TNI_DTYPES; y++)
                if (is_sampled(i, (tn_dtype)x) && is_asked_for(i, (tn_dtype)x, (tn_dtype)y))
                    compile_hand(i, (tn_dtype)x, (tn_dtype)y);
}

static void check_shared(int hand, const tni_dialect *d, tn_dtype x, tn_dtype y)
{
    tni_heap heap   = tni_heap_default();
    char     it[32] = "";
    char    *text   = tni_group_text_source(&heap, d, hands[hand].text, x, y, false);
    if (!CHECK(text != NULL)) return;
    test_case_result(shared_names_used(text, it, sizeof it), "%s %s %s never uses %s",
                     hands[hand].name, tn_dtype_name(x), tn_dtype_name(y), it);
    tni_free(&heap, text);
}

static void kernels_written_by_hand_use_the_shared_memory_they_declare(void)
{
    for (int i = 0; i < HANDS; i++)
        for (int x = 0; x < TNI_DTYPES; x++)
            for (int y = 0; y < TNI_DTYPES; y++) {
                if (!is_asked_for(i, (tn_dtype)x, (tn_dtype)y)) continue;
                check_shared(i, &tni_dialect_cuda, (tn_dtype)x, (tn_dtype)y);
                check_shared(i, &tni_dialect_opencl, (tn_dtype)x, (tn_dtype)y);
            }
}

// A program is found by a second process, and what was compiled with it is told apart.
static void machine_code_is_kept_on_disk(void)
{
    static const char text[] = "extern \"C\" __global__ void first(float *x) { x[0] = 1; }\n";
    tni_text          why    = { "" };
    tni_cubin         a, b, d;
    bool              found[3] = { true, false, true };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    if (!CHECK(scratch_open())) return;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
        bool ok = tni_cubin_get(&a, text, chip, false, &found[0], &why) == TN_OK && !found[0] &&
                  tni_cubin_get(&b, text, chip, false, &found[1], &why) == TN_OK && found[1] &&
                  tni_cubin_get(&d, text, "sm_80", false, &found[2], &why) == TN_OK && !found[2] &&
                  a.bytes == b.bytes && !memcmp(a.image, b.image, a.bytes);
        _exit(ok ? 0 : 1);
    }
    int status = 1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    scratch_close();
}

// ---- kernels on a GPU --------------------------------------------------------------------------

// The session of the tests here, taken by the first of them; NULL if there is no GPU.
static void *session(void)
{
    static void    *taken;
    static tni_heap heap;
    tni_text        why = { "" };
    tn_status       s;
    if (taken) return taken;
    heap         = tni_heap_default();
    return taken = tni_device_cuda.open(&heap, &(tni_device_open_args){ 0 }, &s, &why);
}

// The buffers of a case on the device, with what stands before and after them.
typedef struct {
    char  *at[TNI_MAX_BUFFERS];
    size_t bytes[TNI_MAX_BUFFERS];
    char  *scratch;
} copies;

static bool copy_in(kit_case *c, copies *d)
{
    bool ok = true;
    for (int i = 0; i < c->k.nbuffer; i++) {
        size_t size = tni_dtype_size((tn_dtype)c->k.buffer[i].dtype);
        d->bytes[i] = (size_t)c->count[i] * size + 2 * KIT_GUARD;
        d->at[i]    = tni_device_cuda.memory->alloc(session(), d->bytes[i]);
        ok          = ok && d->at[i];
        if (ok)
            tni_device_cuda.memory->upload(session(), d->at[i], TN_U8, c->mem[i] - KIT_GUARD,
                                           (int64_t)d->bytes[i], &(tni_text){ 0 });
    }
    return ok;
}

static void copy_back(kit_case *c, copies *d)
{
    for (int i = 0; i < c->k.nbuffer; i++) {
        tni_device_cuda.memory->download(session(), c->mem[i] - KIT_GUARD, TN_U8, d->at[i],
                                         (int64_t)d->bytes[i], &(tni_text){ 0 });
        tni_device_cuda.memory->free(session(), d->at[i]);
    }
    tni_device_cuda.memory->free(session(), d->scratch);
}

// A kernel that touches what it must not is found out when it is waited for.
static tn_status wait_for_it(tni_text *why)
{
    return tni_device_cuda.events->wait(session(), why);
}

// Runs a case on the GPU; what it made is in mem.
static tn_status run_case(kit_case *c, tni_text *why)
{
    copies            d     = { 0 };
    void             *entry = NULL;
    tni_launch        l     = c->l;
    const tni_launch *first = &l;
    if (!copy_in(c, &d)) return TN_EMEM;
    for (int i = 0; i < c->k.nbuffer; i++) l.buffer[i] = d.at[i] + KIT_GUARD;
    tn_status s = tni_device_cuda.kernels->prepare(session(), 1, &first, &entry, true, why);
    size_t    n = s == TN_OK && tni_device_cuda.kernels->scratch
                      ? tni_device_cuda.kernels->scratch(session(), entry, &l)
                      : 0;
    if (n) l.scratch = d.scratch = tni_device_cuda.memory->alloc(session(), n);
    if (s == TN_OK) s = tni_device_cuda.kernels->launch(session(), entry, &l, why);
    if (s == TN_OK) s = wait_for_it(why);
    copy_back(c, &d);
    memcpy(c->l.fail, l.fail, sizeof l.fail);
    return s;
}

static bool right(kit_case *c, char why[KIT_WHY])
{
    tni_text told = { "" };
    *why          = 0;
    if (run_case(c, &told) != TN_OK) {
        snprintf(why, KIT_WHY, "%s", told.s);
        return false;
    }
    c->library_ulps = 2;
    c->spelled_ulps = 4;
    return kit_naive(c) && kit_compare(c, 4, why);
}

static void kernels_on_a_gpu_are_what_they_mean(void)
{
    tni_text why = { "" };
    if (!tni_device_cuda.probe(&why)) SKIP("%s", why.s);
    const char *text  = getenv("TN_CUDA_CASES");
    int         count = text ? atoi(text) : 200;
    char       *told  = malloc(KIT_WHY);
    kit_case   *c     = calloc(1, sizeof *c);
    for (int i = 0; told && c && i < count; i++) {
        const char *reason;
        if (!kit_random_case(c, 1000 + (uint64_t)i, 0)) break;
        if (tni_can_emit(&c->k, &reason))
            test_case_result(right(c, told), "seed %d: %s", 1000 + i, told);
        kit_free(c);
        if (strstr(told, "cuda: waiting")) break;  // nothing runs after that
    }
    free(c);
    free(told);
}

static void long_rows_on_a_gpu_are_what_they_mean(void)
{
    tni_text why = { "" };
    if (!tni_device_cuda.probe(&why)) SKIP("%s", why.s);
    char     *told = malloc(KIT_WHY), name[LONG_ROWS_NAME];
    kit_case *c    = calloc(1, sizeof *c);
    for (int i = 0; told && c && i < long_rows_count(); i++) {
        long_rows_make(c, i, name);
        if (CHECK(kit_end(c))) {
            long_rows_ready(c);
            test_case_result(right(c, told), "%s: %s", name, told);
        }
        kit_free(c);
        if (strstr(told, "cuda: waiting")) break;  // nothing runs after that
    }
    free(c);
    free(told);
}

static void transposed_operands_on_a_gpu_are_what_they_mean(void)
{
    enum { CASES = 60 };
    tni_text why = { "" };
    if (!tni_device_cuda.probe(&why)) SKIP("%s", why.s);
    char     *told = malloc(KIT_WHY);
    kit_case *c    = calloc(1, sizeof *c);
    for (int i = 0; told && c && i < CASES; i++) {
        if (!CHECK(kit_crossed_case(c, 500 + (uint64_t)i, i % 3 * 70))) break;
        test_case_result(right(c, told), "seed %d: %s", 500 + i, told);
        kit_free(c);
        if (strstr(told, "cuda: waiting")) break;  // nothing runs after that
    }
    free(c);
    free(told);
}

// The first forks a process that uses the GPU, before this one does.
const test_case tests_cuda[] = { TEST(it_is_taken_where_it_is_there),
                                 TEST(the_device_opens_or_says_why_not),
                                 TEST(an_error_in_a_text_is_told),
                                 TEST(what_a_function_takes_is_read),
                                 TEST(kernels_compile_for_an_h200_and_do_not_spill),
                                 TEST(long_rows_compile_for_an_h200_and_do_not_spill),
                                 TEST(random_kernels_compile_for_an_h200),
                                 TEST(kernels_written_by_hand_compile_for_an_h200_and_do_not_spill),
                                 TEST(kernels_written_by_hand_use_the_shared_memory_they_declare),
                                 TEST(machine_code_is_kept_on_disk),
                                 TEST(kernels_on_a_gpu_are_what_they_mean),
                                 TEST(long_rows_on_a_gpu_are_what_they_mean),
                                 TEST(transposed_operands_on_a_gpu_are_what_they_mean),
                                 TEST_END };
