// test_custom_cuda.c: users' ops in CUDA. What is wrong with a text, its kernel or its launch is
// told; the texts here and that of the example compile for an H200; and, where there is a GPU,
// their values and gradients are those of composed ops, in training steps that are replayed too.
#include "check.h"
#include "table.h"
#include "tree.h"

#include "device/cuda/gpu.h"
#include "device/cuda/user_text.h"
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

static const char *chip = "sm_90";

#define NEED_NVRTC()        \
    tni_text none = { "" }; \
    if (!tni_nvrtc_get(&none)) SKIP("%s", none.s)

// ---- the ops -----------------------------------------------------------------------------------

static tn_status same_shape(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = in[0];
    return TN_OK;
}

static tn_status two_same(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    out[0] = in[0];
    out[1] = in[1];
    return TN_OK;
}

// Gated units, in every float dtype, and their gradients as an op of two outputs.
static const char swiglu_text[] =
    "extern \"C\" __global__ void swiglu(tn::in<0> a, tn::in<1> b, tn::out<0> y)\n"
    "{\n"
    "    long long i = tn::index();\n"
    "    if (i >= y.count) return;\n"
    "    float u = a[i], v = b[i];\n"
    "    y[i] = u / (1 + m_exp_f(-u)) * v;\n"
    "}\n";

static const char swiglu_back_text[] =
    "extern \"C\" __global__ void back(tn::in<0> a, tn::in<1> b, tn::in<2> g, tn::out<0> ga,\n"
    "                                 tn::out<1> gb)\n"
    "{\n"
    "    long long i = tn::index();\n"
    "    if (i >= ga.count) return;\n"
    "    float u = a[i], v = b[i], w = g[i], s = 1 / (1 + m_exp_f(-u));\n"
    "    ga[i] = w * v * (s + u * s * (1 - s));\n"
    "    gb[i] = w * u * s;\n"
    "}\n";

static const tn_op_def swiglu_back = {
    "backward of swiglu", 3, 2, two_same, .cuda = swiglu_back_text, .kernel = "back"
};

static tn_status swiglu_grad(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                             tn_tensor *const *gy, tn_tensor **gx)
{
    (void)attr, (void)y;
    return tn_custom_n(&swiglu_back, (tn_tensor *[]){ x[0], x[1], gy[0] }, NULL, 0, gx);
}

static const tn_op_def swiglu = { "swiglu",           2, 1, same_shape, .grad = swiglu_grad,
                                  .cuda = swiglu_text };

static tn_tensor *by_kernel(tn_tensor *a, tn_tensor *b)
{
    return tn_custom(&swiglu, (tn_tensor *[]){ a, b }, NULL, 0);
}

static tn_tensor *by_ops(tn_tensor *a, tn_tensor *b)
{
    return tn_mul(tn_silu(a), b);
}

// Rows turned around by way of shared memory, each element times a number; its gradient is turned
// around again.
typedef struct {
    double scale;
    int    add;
} flip_attr;

static const char flip_text[] =
    "struct flip_attr { double scale; int add; };\n"
    "extern \"C\" __global__ void flip(tn::in<0> x, tn::out<0> y, flip_attr a)\n"
    "{\n"
    "    extern __shared__ float row[];\n"
    "    int n = x.size[x.rank - 1];\n"
    "    long long at = (long long)blockIdx.x * n;\n"
    "    for (int i = threadIdx.x; i < n; i += blockDim.x) row[i] = x[at + i];\n"
    "    __syncthreads();\n"
    "    for (int i = threadIdx.x; i < n; i += blockDim.x)\n"
    "        y[at + i] = row[n - 1 - i] * (float)a.scale + a.add;\n"
    "}\n";

static tn_status flip_launch(const void *attr, const tn_array *in, const tn_array *out,
                             tn_launch_dims *d)
{
    (void)attr, (void)out;
    d->grid[0]  = in[0].size[0];
    d->block[0] = 512;
    d->shared   = in[0].size[1] * 4;
    return TN_OK;
}

static const tn_op_def flip = {
    "flip", 1, 1, same_shape, .cuda = flip_text, .launch = flip_launch
};

// ---- the example's -----------------------------------------------------------------------------

// The text of the example: the literals behind rope_cuda[], as the compiler reads them. The caller
// frees it.
static char *example_text(void)
{
    char *file = tree_read("examples/08_custom_cuda.c", NULL);
    char *s    = file ? strstr(file, "rope_cuda[] =") : NULL;
    char *text = s ? calloc(1, strlen(s) + 1) : NULL, *to = text;
    bool  in = false;
    for (; to && *s && (in || *s != ';'); s++) {
        if (*s == '"') in = !in;
        else if (in && *s == '\\') *to++ = *++s == 'n' ? '\n' : *s;
        else if (in) *to++ = *s;
    }
    free(file);
    return text;
}

static void the_text_of_the_example_compiles_for_an_h200(void)
{
    NEED_NVRTC();
    char     *text = example_text();
    tn_array  x    = { TN_F32, 3, { 2, 4, 6 }, NULL };
    tn_op_def op   = { "rope", 1, 1, same_shape, .cuda = text };
    tni_text  why  = { "" };
    tni_cubin c    = { 0 };
    bool      found;
    if (CHECK(text != NULL) && CHECK(tni_user_fits(&op, sizeof(float), &why))) {
        tni_user_text u = tni_user_text_of(&op, &x, &x, sizeof(float));
        test_that(tni_user_cubin(&u, chip, &c, &found, &why) == TN_OK, "%s", why.s);
        CHECK(c.bytes > 100 && !memcmp(c.image, "\177ELF", 4));
    }
    tni_cubin_free(&c);
    free(text);
}

// ---- texts -------------------------------------------------------------------------------------

// Compiles an op over arrays of one dtype each.
static tn_status compile(const tn_op_def *op, tn_dtype dt, size_t attr, tni_text *why)
{
    tn_array  x[8];
    tni_cubin c;
    bool      found;
    for (int i = 0; i < 8; i++) x[i] = (tn_array){ dt, 1, { 5 }, NULL };
    *why = (tni_text){ "" };
    if (!tni_user_fits(op, attr, why)) return TN_EUSER;
    tni_user_text u = tni_user_text_of(op, x, x, attr);
    tn_status     s = tni_user_cubin(&u, chip, &c, &found, why);
    tni_cubin_free(&c);
    return s;
}

static void a_text_is_compiled_for_every_dtype(void)
{
    static const char moves[] =
        "extern \"C\" __global__ void moves(tn::in<0> x, const __grid_constant__ tn::out<0> y)\n"
        "{\n"
        "    const tn::in<0>::type *from = x;\n"
        "    tn::out<0>::type *to = y.data + tn::index();\n"
        "    if (tn::index() < y.count) *to = threadIdx.x & 1 ? from[tn::index()] : x[0];\n"
        "}\n";
    static const tn_op_def op = { "moves", 1, 1, same_shape, .cuda = moves };
    tni_text               why;
    NEED_NVRTC();
    for (int dt = 0; dt < TNI_DTYPES; dt++) {
        tn_status s = compile(&op, (tn_dtype)dt, 0, &why);
        test_case_result(s == TN_OK, "moves %s: %s", tn_dtype_name((tn_dtype)dt), why.s);
        if (!tni_is_float((tn_dtype)dt)) continue;
        s = compile(&swiglu, (tn_dtype)dt, 0, &why);
        test_case_result(s == TN_OK, "swiglu %s: %s", tn_dtype_name((tn_dtype)dt), why.s);
        s = compile(&swiglu_back, (tn_dtype)dt, 0, &why);
        test_case_result(s == TN_OK, "back %s: %s", tn_dtype_name((tn_dtype)dt), why.s);
        s = compile(&flip, (tn_dtype)dt, sizeof(flip_attr), &why);
        test_case_result(s == TN_OK, "flip %s: %s", tn_dtype_name((tn_dtype)dt), why.s);
    }
}

static void arrays_lie_as_the_host_packs_them(void)
{
    char text[1024];
    NEED_NVRTC();
    snprintf(text, sizeof text,
             "typedef tn::array<float> a;\n"
             "static_assert(sizeof(a) == %zu && __INTADDR__(&((a *)0)->data) == %zu, \"\");\n"
             "static_assert(__INTADDR__(&((a *)0)->count) == %zu, \"\");\n"
             "static_assert(__INTADDR__(&((a *)0)->size) == %zu, \"\");\n"
             "static_assert(__INTADDR__(&((a *)0)->rank) == %zu, \"\");\n"
             "extern \"C\" __global__ void lies(tn::in<0> x, tn::out<0> y) {}\n",
             sizeof(tni_user_array), offsetof(tni_user_array, data),
             offsetof(tni_user_array, count), offsetof(tni_user_array, size),
             offsetof(tni_user_array, rank));
    tn_op_def op = { "lies", 1, 1, same_shape, .cuda = text };
    tni_text  why;
    test_that(compile(&op, TN_F32, 0, &why) == TN_OK, "%s", why.s);
}

#define HEAD "extern \"C\" __global__ void bad(tn::in<0> x, tn::out<0> y"

static void what_is_wrong_with_a_text_is_told(void)
{
    static const struct {
        const char *text, *says;
        size_t      attr;
    } cases[] = {
        { HEAD ")\n{\n    y[0] = nothing;\n}\n", "bad: cuda: line 3: identifier \"nothing\"", 0 },
        { HEAD ") { y[0] = 1; /*", "bad: cuda: line 1: comment unclosed", 0 },
        { HEAD ") { y[0] = 1;", "bad: cuda: the text is not complete: ", 0 },
        { "#include <cuda_fp16.h>\n" HEAD ") {}", "bad: cuda: line 1: could not open", 0 },
        { HEAD ") { __shared__ float s[99999]; s[threadIdx.x] = x[0]; __syncthreads();"
               " y[0] = s[0]; }",
          "bad: cuda: ptxas error", 0 },
        { "", "bad: cuda: the text has no kernel extern \"C\" __global__ void bad(...)", 0 },
        { "__global__ void bad(tn::in<0> x, tn::out<0> y) { y[0] = x[0]; }",
          "bad: cuda: the text has no kernel extern \"C\"", 0 },
        { "__device__ void bad(tn::in<0> x, tn::out<0> y) { y[0] = x[0]; }",
          "bad: cuda: the text has no kernel extern \"C\"", 0 },
        { HEAD ", float z) {}", "bad: cuda: kernel bad has to take 2 parameters: 1 inputs, 1 ", 0 },
        { HEAD ") {}", "bad: cuda: kernel bad has to take 3 parameters: 1 inputs, 1 outputs and",
          8 },
        { "extern \"C\" __global__ void bad(tn::in<0> x, float *y) {}",
          "bad: cuda: parameter 1 has to be tn::out<0>, here tn::array<float>", 0 },
        { "extern \"C\" __global__ void bad(tn::array<const int> x, tn::out<0> y) {}",
          "bad: cuda: parameter 0 has to be tn::in<0>, here tn::array<const float>", 0 },
        { "extern \"C\" __global__ void bad(tn::in<0> x, tn::out<1> y) {}",
          "bad: cuda: tn::out: the op has only 1", 0 },
        { HEAD ", float z) {}", "bad: cuda: parameter 2, the attributes, has to be a value of 8 ",
          8 },
        { HEAD ", float *z) {}", "bad: cuda: parameter 2, the attributes, has to be a value", 8 },
    };
    NEED_NVRTC();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_op_def op = { "bad", 1, 1, same_shape, .cuda = cases[i].text };
        tni_text  why;
        tn_status s = compile(&op, TN_F32, cases[i].attr, &why);
        test_case_result(s == TN_EUSER && !strncmp(why.s, cases[i].says, strlen(cases[i].says)),
                         "case %zu: status %d, \"%s\"", i, (int)s, why.s);
    }
}

static void names_and_sizes_that_no_kernel_has_are_refused(void)
{
    tni_text  why = { "" };
    tn_op_def op  = { "two words", 1, 1, same_shape, .cuda = "" };
    CHECK(!tni_user_fits(&op, 0, &why));
    CHECK(strstr(why.s, "two words: cuda: \"two words\" cannot be the name of a kernel"));
    op.kernel = "2words";
    CHECK(!tni_user_fits(&op, 0, &why));
    op.kernel = "words";
    CHECK(tni_user_fits(&op, 1000, &why));
    why    = (tni_text){ "" };
    op.nin = TNI_USER_ARRAYS;
    CHECK(!tni_user_fits(&op, 0, &why));
    CHECK(strstr(why.s, "two words: cuda: a kernel takes 40 arrays and 4096 bytes at most"));
    op.nin = TNI_USER_ARRAYS - 1;
    CHECK(tni_user_fits(&op, TNI_USER_BYTES - TNI_USER_ARRAYS * sizeof(tni_user_array), &why));
    CHECK(!tni_user_fits(&op, TNI_USER_BYTES, &why));
    CHECK(!tni_user_fits(&op, SIZE_MAX, &why));
}

// ---- launches ----------------------------------------------------------------------------------

static void what_cannot_be_launched_is_refused(void)
{
    static const struct {
        tn_launch_dims d;
        const char    *says;
    } cases[] = {
        { { { 1, 1, 1 }, { 256, 1, 1 }, 0 }, NULL },
        { { { INT32_MAX, 65535, 65535 }, { 8, 1, 64 }, 1000 }, NULL },
        { { { 0, 1, 1 }, { 256, 1, 1 }, 0 }, "op: launch: grid (0, 1, 1): from 1 to 2147483647" },
        { { { (int64_t)INT32_MAX + 1, 1, 1 }, { 256, 1, 1 }, 0 }, "op: launch: grid (2147483648," },
        { { { 1, 65536, 1 }, { 256, 1, 1 }, 0 }, "op: launch: grid (1, 65536, 1)" },
        { { { 1, 1, -1 }, { 256, 1, 1 }, 0 }, "op: launch: grid (1, 1, -1)" },
        { { { 1, 1, 1 }, { 1025, 1, 1 }, 0 }, "op: launch: block (1025, 1, 1): from 1 to 1024" },
        { { { 1, 1, 1 }, { 1, 1, 65 }, 0 }, "op: launch: block (1, 1, 65)" },
        { { { 1, 1, 1 }, { 64, 0, 1 }, 0 }, "op: launch: block (64, 0, 1)" },
        { { { 1, 1, 1 }, { 64, 9, 1 }, 0 },
          "op: launch: block (64, 9, 1) has 576 threads, and the kernel takes 512" },
        { { { 1, 1, 1 }, { 1024, 1024, 64 }, 0 },
          "op: launch: block (1024, 1024, 64) has 67108864" },
        { { { 1, 1, 1 }, { 64, 1, 1 }, 1001 }, "op: launch: shared is 1001, and there are 1000" },
        { { { 1, 1, 1 }, { 64, 1, 1 }, -1 }, "op: launch: shared is -1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tni_text why  = { "" };
        bool     ok   = tni_user_dims_ok("op", &cases[i].d, 512, 1000, &why);
        bool     want = !cases[i].says;
        test_case_result(ok == want &&
                             (ok || !strncmp(why.s, cases[i].says, strlen(cases[i].says))),
                         "case %zu: %d, \"%s\"", i, ok, why.s);
    }
}

static void without_a_rule_the_largest_output_has_a_thread_an_element(void)
{
    tn_array       out[2] = { { TN_F32, 1, { 0 }, NULL }, { TN_F32, 2, { 3, 171 }, NULL } };
    tn_launch_dims d      = tni_user_dims(out, 2);
    tni_text       why    = { "" };
    CHECK_INT(d.grid[0], 3);
    CHECK_INT(d.block[0], 256);
    CHECK_INT(d.shared, 0);
    CHECK(tni_user_dims_ok("op", &d, 1024, 0, &why));
    out[1].rank = 0;
    CHECK_INT(tni_user_dims(out, 2).grid[0], 1);
    // Too many elements even for that are refused as any launch is.
    out[1] = (tn_array){ TN_BOOL, 1, { (int64_t)1 << 40 }, NULL };
    d      = tni_user_dims(out, 2);
    CHECK(!tni_user_dims_ok("op", &d, 1024, 0, &why));
}

// ---- what the driver is given ------------------------------------------------------------------

// A driver that launches nothing and remembers what it was to.
static struct {
    int            loads, launches;
    unsigned       grid, block, shared;
    char           kernel[32];
    tni_user_array array[5];
    flip_attr      attr;
    int            arrays;  // how many parameters to take, and whether attributes come behind
    bool           attrs;
} faked;

static int fake_enter(tni_cucontext cx)
{
    (void)cx;
    return TNI_CU_OK;
}

static int fake_load(tni_cumodule *m, const void *image)
{
    *m = (tni_cumodule)(uintptr_t)image;
    faked.loads++;
    return memcmp(image, "\177ELF", 4) ? TNI_CU_NOT_FOUND : TNI_CU_OK;
}

static int fake_function(tni_cufunction *f, tni_cumodule m, const char *name)
{
    *f = (tni_cufunction)m;
    snprintf(faked.kernel, sizeof faked.kernel, "%s", name);
    return TNI_CU_OK;
}

static int fake_get(int *value, int attribute, tni_cufunction f)
{
    (void)f;
    *value = attribute == TNI_CU_FUNCTION_THREADS ? 640 : 1000;
    return TNI_CU_OK;
}

static int fake_set(tni_cufunction f, int attribute, int value)
{
    (void)f;
    return attribute == TNI_CU_FUNCTION_SHARED && value == 99000 ? TNI_CU_OK : TNI_CU_NOT_FOUND;
}

static int fake_launch(tni_cufunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, tni_custream s, void **args,
                       void **extra)
{
    (void)f, (void)s;
    CHECK(gy == 1 && gz == 1 && by == 1 && bz == 1 && !extra);
    faked.launches++;
    faked.grid = gx, faked.block = bx, faked.shared = shared;
    for (int i = 0; i < faked.arrays; i++) memcpy(&faked.array[i], args[i], sizeof *faked.array);
    if (faked.attrs) memcpy(&faked.attr, args[faked.arrays], sizeof faked.attr);
    return TNI_CU_OK;
}

static int fake_capture_mode(int *mode)
{
    (void)mode;
    return TNI_CU_OK;
}

static const tni_driver fake_driver = { .set_current     = fake_enter,
                                        .module_load     = fake_load,
                                        .module_function = fake_function,
                                        .function_get    = fake_get,
                                        .function_set    = fake_set,
                                        .launch          = fake_launch,
                                        .capture_mode    = fake_capture_mode };

static tni_gpu fake_gpu = { .cu     = &fake_driver,
                            .chip   = "sm_90",
                            .limits = { .threads = 1024, .shared_bytes = 100000 } };

// What a node remembers: attributes, and the outputs behind them at a multiple of 16.
typedef struct {
    _Alignas(16) flip_attr a;
    tn_array out[2];
} remembered;

static tn_status call(const tn_op_def *op, remembered *r, size_t attr, tni_arg *in, char *out,
                      char *more, tni_text *why)
{
    tni_arg  other   = { .data = more };
    tni_heap heap    = tni_heap_default();
    tni_cuda session = { .heap = &heap, .gpu = &fake_gpu };
    tni_attr given   = { .custom = {
                             .def = op, .bytes = attr ? (void *)r : (void *)r->out, .count = attr } };
    faked.arrays     = op->nin + (op->nout > 0 ? op->nout : 1);
    faked.attrs      = attr > 0;
    *why             = (tni_text){ "" };
    return tni_cuda_custom(&(tni_call){ .session = &session,
                                        .op      = TNI_custom,
                                        .nin     = op->nin,
                                        .in      = in,
                                        .out     = { .data = out },
                                        .nmore   = op->nout > 1,
                                        .more    = &other,
                                        .device  = &tni_device_cuda,
                                        .scratch = out + 64,
                                        .attr    = &given,
                                        .why     = why });
}

static void a_kernel_gets_arrays_and_attributes(void)
{
    char       block[256], *at = block;
    tni_text   why;
    remembered r  = { { 0.25, -7 }, { { TN_F32, 2, { 6, 700 }, NULL } } };
    tni_arg    in = { .dtype = TN_F32, .rank = 2, .size = { 6, 700 }, .data = at + 4 };
    NEED_NVRTC();
    for (int i = 0; i < 3; i++)
        CHECK_STATUS(call(&flip, &r, sizeof r.a, &in, at + 64, NULL, &why), TN_OK);
    CHECK_INT(faked.loads, 1);
    CHECK_INT(faked.launches, 3);
    CHECK_STR(faked.kernel, "flip");
    CHECK(faked.grid == 6 && faked.block == 512 && faked.shared == 2800);
    CHECK(faked.array[0].data == at + 4 && faked.array[1].data == at + 64);
    for (int i = 0; i < 2; i++) {
        const tni_user_array *a = &faked.array[i];
        CHECK(a->count == 4200 && a->rank == 2 && a->size[0] == 6 && a->size[1] == 700);
        CHECK(a->size[2] == 1 && a->size[7] == 1);
    }
    CHECK(faked.attr.scale == 0.25 && faked.attr.add == -7);
    // The chip has 100,000 bytes, of which the kernel declares 1,000.
    in.size[1] = r.out[0].size[1] = 24751;
    CHECK_STATUS(call(&flip, &r, sizeof r.a, &in, at + 64, NULL, &why), TN_EUSER);
    CHECK_STR(why.s, "flip: launch: shared is 99004, and there are 99000 bytes");
    CHECK_INT(faked.launches, 3);
}

static void each_output_has_its_own_place(void)
{
    char       block[256], *at = block;
    tni_text   why;
    remembered r = { { 0, 0 }, { { TN_BF16, 1, { 9 }, NULL }, { TN_BF16, 1, { 9 }, NULL } } };
    tni_arg    in[3];
    NEED_NVRTC();
    for (int i = 0; i < 3; i++)
        in[i] = (tni_arg){ .dtype = TN_BF16, .rank = 1, .size = { 9 }, .data = at + 18 * i };
    faked.launches = 0;
    CHECK_STATUS(call(&swiglu_back, &r, 0, in, at + 128, at + 64, &why), TN_OK);
    CHECK_STR(faked.kernel, "back");
    CHECK(faked.launches == 1 && faked.grid == 1 && faked.block == 256 && faked.shared == 0);
    for (int i = 0; i < 3; i++) CHECK(faked.array[i].data == at + 18 * i);
    CHECK(faked.array[3].data == at + 128 && faked.array[4].data == at + 64);
    CHECK(faked.array[4].count == 9 && faked.array[4].rank == 1);
    // What nobody wants is written to scratch.
    CHECK_STATUS(call(&swiglu_back, &r, 0, in, at + 128, NULL, &why), TN_OK);
    CHECK(faked.array[3].data == at + 128 && faked.array[4].data == at + 128 + 64);
    // For another dtype it is compiled again.
    int loads = faked.loads;
    for (int i = 0; i < 3; i++) in[i].dtype = TN_F32;
    r.out[0].dtype = r.out[1].dtype = TN_F32;
    CHECK_STATUS(call(&swiglu_back, &r, 0, in, at + 128, at + 64, &why), TN_OK);
    CHECK_INT(faked.loads, loads + 1);
}

// ---- other devices -----------------------------------------------------------------------------

static tn_status twice(const void *attr, const tn_array *in, tn_array *out)
{
    (void)attr;
    for (int i = 0; i < 3; i++) ((float *)out->data)[i] = 2 * ((const float *)in->data)[i];
    return TN_OK;
}

static void where_there_is_no_gpu_the_function_or_the_expression_runs(void)
{
    static const tn_op_def both = { "both", 1, 1, same_shape, twice, .cuda = "not CUDA" };
    static const tn_op_def easy = { "easy", 1, .expr = "3 * a", .cuda = "not CUDA" };
    static const tn_op_def text = { "text", 1, 1, same_shape, .cuda = "not CUDA" };
    static const tn_op_def none = { .name = "none", .nin = 1, .shape = same_shape };
    for (int k = 0; k < 2; k++) {
        const char *device = k ? "ref" : "cpu";
        tn_ctx     *cx     = open_quiet(device, 1);
        tn_tensor  *x      = tn_ones(cx, TN_F32, TN_SHAPE(3));
        CHECK_NEAR(tn_item(tn_sum_all(tn_custom(&both, &x, NULL, 0))), 6, 0);
        CHECK_NEAR(tn_item(tn_sum_all(tn_custom(&easy, &x, NULL, 0))), 9, 0);
        CHECK_STATUS(tn_eval_of(tn_custom(&text, &x, NULL, 0)), TN_EDEVICE);
        char want[128];
        snprintf(want, sizeof want, "text: CUDA text cannot run on %s; give the op a compute ",
                 device);
        CHECK(strstr(tn_error_text(cx), want) != NULL);
        tn_error_clear(cx);
        CHECK(tn_custom(&none, &x, NULL, 0) == NULL);
        CHECK(strstr(tn_error_text(cx), "custom: none has no compute, expr or cuda") != NULL);
        tn_error_clear(cx);
        CHECK_NEAR(tn_item(tn_sum_all(x)), 3, 0);
        tn_close(cx);
    }
}

// ---- on a GPU ----------------------------------------------------------------------------------

#define NEED_GPU(cx)                          \
    tn_ctx *cx = open_quiet("cuda", 1);       \
    if (!cx) {                                \
        test_skip("%s", tn_error_text(NULL)); \
        tn_error_clear(NULL);                 \
        return;                               \
    }

static double distance(tn_tensor *a, tn_tensor *b)
{
    return tn_item(tn_max_all(tn_abs(tn_sub(tn_cast(a, TN_F32), tn_cast(b, TN_F32)))));
}

static void values_and_gradients_are_those_of_composed_ops(void)
{
    static const tn_dtype dtypes[] = { TN_F32, TN_BF16, TN_F16, TN_F64 };
    NEED_GPU(cx);
    for (int k = 0; k < 4; k++) {
        tn_dtype   dt   = dtypes[k];
        double     near = dt == TN_BF16 ? 0.3 : dt == TN_F16 ? 0.04 : 1e-5;
        tn_tensor *x[2], *y[2], *w, *g[2][2];
        for (int i = 0; i < 2; i++)
            x[i] = tn_requires_grad(tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(33, 71)), dt), true);
        w    = tn_cast(tn_randn(cx, TN_F32, TN_SHAPE(33, 71)), dt);
        y[0] = by_kernel(x[0], x[1]);
        y[1] = by_ops(x[0], x[1]);
        for (int i = 0; i < 2; i++) CHECK_STATUS(tn_grad(1, &y[i], 2, x, &w, g[i]), TN_OK);
        CHECK_NEAR(distance(y[0], y[1]), 0, near);
        CHECK_NEAR(distance(g[0][0], g[1][0]), 0, near);
        CHECK_NEAR(distance(g[0][1], g[1][1]), 0, near);
        // A part of a tensor begins where it begins.
        tn_tensor *a = tn_slice(x[0], 0, 5, 20, 1), *b = tn_slice(x[1], 0, 7, 22, 1);
        CHECK_NEAR(distance(by_kernel(a, b), by_ops(a, b)), 0, near);
    }
    CHECK_STR(tn_error_text(cx), "");
    tn_close(cx);
}

// Rows beyond what a kernel gets without asking.
static void a_launch_rule_gives_blocks_and_shared_memory(void)
{
    static const int64_t widths[] = { 1, 77, 5000, 25000 };
    flip_attr            a        = { 2.5, 1 };
    NEED_GPU(cx);
    for (int i = 0; i < 4; i++) {
        tn_tensor *x = tn_randn(cx, TN_F32, TN_SHAPE(9, widths[i]));
        tn_tensor *y = tn_custom(&flip, &x, &a, sizeof a);
        CHECK_NEAR(distance(y, tn_add_s(tn_mul_s(tn_flip(x, 1), 2.5), 1)), 0, 1e-6);
    }
    tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(2, 100000));
    CHECK_STATUS(tn_eval_of(tn_custom(&flip, &x, &a, sizeof a)), TN_EUSER);
    CHECK(strstr(tn_error_text(cx), "flip: launch: shared is 400000, and there are ") != NULL);
    tn_error_clear(cx);
    CHECK_NEAR(tn_item(tn_sum_all(x)), 200000, 0);
    tn_close(cx);
}

static tn_status refuses(const void *attr, const tn_array *in, const tn_array *out,
                         tn_launch_dims *d)
{
    (void)attr, (void)in, (void)out;
    d->grid[0] = 0;
    return TN_EUSER;
}

static tn_status nowhere(const void *attr, const tn_array *in, const tn_array *out,
                         tn_launch_dims *d)
{
    refuses(attr, in, out, d);
    return TN_OK;
}

static void after_an_error_the_context_works(void)
{
    static const tn_op_def defs[] = {
        { "wrong", 1, 1, same_shape, .cuda = "#error on purpose\n" },
        { "void", 1, 1, same_shape, .cuda = "", .launch = nowhere, .kernel = "0" },
        { "swiglu", 2, 1, same_shape, .cuda = swiglu_text, .launch = refuses },
        { "swiglu", 2, 1, same_shape, .cuda = swiglu_text, .launch = nowhere },
    };
    static const char *const says[] = {
        "wrong: cuda: line 1: #error directive: on purpose",
        "void: cuda: \"0\" cannot be the name of a kernel",
        "swiglu: launch failed with status",
        "swiglu: launch: grid (0, 1, 1)",
    };
    NEED_GPU(cx);
    for (int i = 0; i < 4; i++) {
        tn_tensor *x  = tn_ones(cx, TN_F32, TN_SHAPE(3));
        tn_status  st = tn_eval_of(tn_custom(&defs[i], (tn_tensor *[]){ x, x }, NULL, 0));
        test_case_result(st == TN_EUSER && strstr(tn_error_text(cx), says[i]),
                         "%s: status %d, \"%s\"", defs[i].name, (int)st, tn_error_text(cx));
        tn_error_clear(cx);
        CHECK_NEAR(distance(by_kernel(x, x), by_ops(x, x)), 0, 1e-6);
    }
    tn_close(cx);
}

// ---- training ----------------------------------------------------------------------------------

enum { STEPS = 12 };

// Losses of a gated network; tells how many steps were launched as graphs.
static int64_t train(tn_ctx *cx, tn_tensor *(*gate)(tn_tensor *, tn_tensor *), double *loss)
{
    tn_seed(cx, 3);
    tn_tensor *p[3] = { tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(16, 40)), 0.3),
                        tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(16, 40)), 0.3),
                        tn_mul_s(tn_randn(cx, TN_F32, TN_SHAPE(40, 4)), 0.3) };
    tn_tensor *x    = tn_want(tn_randn(cx, TN_F32, TN_SHAPE(32, 16)));
    tn_tensor *y    = tn_want(tn_tanh(tn_matmul(x, tn_randn(cx, TN_F32, TN_SHAPE(16, 4)))));
    for (int i = 0; i < 3; i++) tn_requires_grad(tn_want(p[i]), true);
    tn_eval(cx);
    tn_optim *o = tn_adamw(tn_layer_of(cx, 3, p), (tn_adamw_opts){ .lr = 1e-2f });
    for (int i = 0; i < STEPS; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *h = gate(tn_matmul(x, p[0]), tn_matmul(x, p[1]));
        tn_tensor *l = tn_mse(tn_matmul(h, p[2]), y);
        CHECK_STATUS(tn_step(o, l), TN_OK);
        loss[i] = tn_item(l);
        tn_end(s);
    }
    const tni_cuda *c = cx->engine->session;
    return c->recorder.graphs;
}

static void a_training_step_with_a_users_kernel_is_replayed(void)
{
    double  loss[2][STEPS];
    int64_t graphs = 0;
    for (int k = 0; k < 2; k++) {
        NEED_GPU(cx);
        graphs = train(cx, k ? by_kernel : by_ops, loss[k]);
        CHECK_STR(tn_error_text(cx), "");
        tn_close(cx);
    }
    CHECK(graphs > STEPS / 3);
    for (int i = 0; i < STEPS; i++)
        test_case_result(fabs(loss[0][i] - loss[1][i]) < 5e-3 * loss[0][i], "step %d: %g, %g", i,
                         loss[0][i], loss[1][i]);
    CHECK(loss[1][STEPS - 1] < 0.8 * loss[1][0]);
}

// Two contexts and two processes share what was compiled.
static void a_text_is_compiled_once(void)
{
    static const char text[] =
        "extern \"C\" __global__ void once(tn::in<0> x, tn::out<0> y) { y[0] = x[0] + 1; }\n";
    static const tn_op_def op     = { "once", 1, 1, same_shape, .cuda = text };
    int64_t                before = 0;
    for (int k = 0; k < 3; k++) {
        NEED_GPU(cx);
        tn_tensor *x = tn_ones(cx, TN_F32, TN_SHAPE(1));
        tn_tensor *y = tn_custom(&op, &x, NULL, 0);
        for (int i = 0; i < 3; i++) CHECK_NEAR(tn_item(y), 2, 0);
        tn_stats s = tn_ctx_stats(cx);
        if (k) CHECK_INT(s.kernels + s.disk_hits, before);
        before = s.kernels + s.disk_hits;
        CHECK(before > 0);
        tn_close(cx);
    }
}

const test_case tests_custom_cuda[] = {
    TEST(the_text_of_the_example_compiles_for_an_h200),
    TEST(a_text_is_compiled_for_every_dtype),
    TEST(arrays_lie_as_the_host_packs_them),
    TEST(what_is_wrong_with_a_text_is_told),
    TEST(names_and_sizes_that_no_kernel_has_are_refused),
    TEST(what_cannot_be_launched_is_refused),
    TEST(without_a_rule_the_largest_output_has_a_thread_an_element),
    TEST(a_kernel_gets_arrays_and_attributes),
    TEST(each_output_has_its_own_place),
    TEST(where_there_is_no_gpu_the_function_or_the_expression_runs),
    TEST(values_and_gradients_are_those_of_composed_ops),
    TEST(a_launch_rule_gives_blocks_and_shared_memory),
    TEST(after_an_error_the_context_works),
    TEST(a_training_step_with_a_users_kernel_is_replayed),
    TEST(a_text_is_compiled_once),
    TEST_END,
};
