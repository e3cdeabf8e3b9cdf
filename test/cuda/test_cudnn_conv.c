// test_cudnn_conv.c: convolution by cuDNN, with a cuDNN that computes any graph in host memory:
// what its graphs compute in both orders of axes, which engines are refused, and what happens if it
// has none.
#include "check.h"
#include "fake_clock.h"
#include "fake_cudnn_kit.h"
#include "host.h"
#include "scratch.h"
#include "tree.h"

#include "device/cuda/cubin.h"
#include "device/cuda/cuda_conv.h"
#include "device/cuda/product_cores.h"
#include "kernel/ending.h"
#include "device/cuda/dnn_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 13, SCRATCH = 1 << 20 };
enum { X, W, Y, TENSORS };

// N images of C channels, O channels of the result; two axes of places.
typedef struct {
    int64_t  N, C, O, groups, size[2], taps[2], step[2], pad[2], dilation[2];
    tn_dtype dtype;
} shape;

// clang-format off
static const shape shapes[] = {
    { 1,  2, 3,  1, { 3, 4 }, { 2, 2 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, TN_F32 },
    { 2,  3, 4,  1, { 5, 6 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, TN_BF16 },
    { 2,  4, 6,  2, { 7, 6 }, { 3, 2 }, { 2, 1 }, { 1, 0 }, { 1, 2 }, TN_F16 },
    { 1,  6, 6,  6, { 5, 5 }, { 3, 3 }, { 1, 2 }, { 1, 1 }, { 1, 1 }, TN_BF16 },
    { 2,  3, 6,  3, { 1, 9 }, { 1, 3 }, { 1, 2 }, { 0, 1 }, { 1, 2 }, TN_F32 },
    { 1,  1, 2,  1, { 5, 4 }, { 3, 3 }, { 1, 1 }, { 0, 1 }, { 1, 1 }, TN_F32 },
    { 2,  5, 1,  1, { 4, 4 }, { 3, 3 }, { 3, 3 }, { 2, 2 }, { 1, 1 }, TN_BF16 },
};
// clang-format on
enum { SHAPES = sizeof shapes / sizeof *shapes };

// A call over memory of its own: arg[] are x, w and y, of which the op's result is written.
typedef struct {
    shape    s;
    tni_attr attr;
    tni_arg  arg[TENSORS], in[2];
    tni_call call;
    tni_text why;
    _Alignas(64) char data[TENSORS][8 * MOST];
} conv_case;

static _Alignas(256) char scratch[SCRATCH];

static int64_t places(const shape *s, int i)
{
    return (s->size[i] + 2 * s->pad[i] - (s->taps[i] - 1) * s->dilation[i] - 1) / s->step[i] + 1;
}

// A tensor whose axes are (a, b, c, d) or, channels last, (a, c, d, b).
static tni_arg arg_of(tn_dtype dt, bool last, int64_t a, int64_t b, int64_t c, int64_t d,
                      char *data)
{
    int64_t size[] = { a, last ? c : b, last ? d : c, last ? b : d };
    tni_arg x      = { .dtype = dt, .rank = 4, .data = data };
    int64_t next   = 1;
    for (int i = 3; i >= 0; i--) {
        x.size[i]   = size[i];
        x.stride[i] = next;
        next *= size[i];
    }
    return x;
}

// The weights are channels last too, as the device is given them.
static conv_case *case_of(const shape *s, int op, bool last)
{
    conv_case *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->s         = *s;
    c->attr.conv = (struct tni_attr_conv){ .groups        = s->groups,
                                           .channels_last = last ? TNI_WEIGHTS_LAST : 0 };
    for (int i = 0; i < 2; i++) {
        c->attr.conv.stride[i]   = s->step[i];
        c->attr.conv.padding[i]  = s->pad[i];
        c->attr.conv.dilation[i] = s->dilation[i];
    }
    for (int i = 0; i < TENSORS; i++)
        for (int64_t k = 0; k < MOST; k++)
            host_put(s->dtype, c->data[i], k, ((k * 7 + i * 31 + k / 53) % 17 - 8) / 4.0, 0);
    c->arg[X] = arg_of(s->dtype, last, s->N, s->C, s->size[0], s->size[1], c->data[X]);
    c->arg[W] = arg_of(s->dtype, last, s->O, s->C / s->groups, s->taps[0], s->taps[1], c->data[W]);
    c->arg[Y] = arg_of(s->dtype, last, s->N, s->O, places(s, 0), places(s, 1), c->data[Y]);
    int out   = op == TNI_conv ? Y : op == TNI_conv_dgrad ? X : W;
    c->in[0]  = c->arg[op == TNI_conv ? X : Y];
    c->in[1]  = c->arg[op == TNI_conv_wgrad ? X : W];
    c->call   = (tni_call){ .session = &fake_session,
                            .op      = op,
                            .nin     = 2,
                            .in      = c->in,
                            .out     = c->arg[out],
                            .attr    = &c->attr,
                            .scratch = scratch,
                            .why     = &c->why };
    return c;
}

// ---- what is right -----------------------------------------------------------------------------

static int64_t place(const tni_arg *x, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * x->stride[0] + b * x->stride[1] + c * x->stride[2] + d * x->stride[3];
}

// Adds, for one place of y and one channel of it, every product to the element that the op
// computes.
static void add_products(const conv_case *c, const tni_arg *x, int out, int64_t n, int64_t o,
                         int64_t p, int64_t q, double *sum)
{
    const shape *s  = &c->s;
    int64_t      Cg = s->C / s->groups, g = o / (s->O / s->groups);
    int          a = out == X ? W : X, b = out == Y ? W : Y;
    for (int64_t k = 0; k < Cg * s->taps[0] * s->taps[1]; k++) {
        int64_t i = k / s->taps[1] % s->taps[0], j = k % s->taps[1],
                ch = k / s->taps[0] / s->taps[1];
        int64_t h  = p * s->step[0] - s->pad[0] + i * s->dilation[0];
        int64_t w  = q * s->step[1] - s->pad[1] + j * s->dilation[1];
        if (h < 0 || h >= s->size[0] || w < 0 || w >= s->size[1]) continue;
        int64_t at[] = { place(&x[X], n, g * Cg + ch, h, w), place(&x[W], o, ch, i, j),
                         place(&x[Y], n, o, p, q) };
        sum[at[out]] += host_get(s->dtype, x[a].data, at[a]) * host_get(s->dtype, x[b].data, at[b]);
    }
}

// The sums of products, element after element of the result.
static double *sums_of(const conv_case *c)
{
    const shape  *s   = &c->s;
    tni_conv_form f   = tni_conv_form_of(&c->call, 2);
    double       *sum = calloc(MOST, sizeof *sum);
    int64_t       P = places(s, 0), Q = places(s, 1);
    for (int64_t k = 0; k < s->N * s->O * P * Q && sum; k++)
        add_products(c, f.arg, f.result, k / Q / P / s->O, k / Q / P % s->O, k / Q % P, k % Q, sum);
    return sum;
}

// How many elements at `data` are not those expected, up to the rounding of the dtype.
static int differing(const conv_case *c, const void *data, const double *want, int64_t count)
{
    tn_dtype dt    = c->s.dtype;
    double   eps   = dt == TN_BF16 ? 1.0 / 128 : dt == TN_F16 ? 1.0 / 1024 : 1e-6;
    int      wrong = 0;
    for (int64_t k = 0; k < count; k++)
        wrong += fabs(host_get(dt, data, k) - want[k]) > eps * (1 + fabs(want[k]));
    return wrong;
}

// How many elements of the result are not the sums of products.
static int wrong_elements(const conv_case *c)
{
    double *sum   = sums_of(c);
    int     wrong = sum ? differing(c, c->call.out.data, sum, tni_shape_count(4, c->call.out.size))
                        : -1;
    free(sum);
    return wrong;
}

// ---- numbers -----------------------------------------------------------------------------------

static void graphs_compute_convolutions_and_their_gradients(void)
{
    if (!fake_cudnn_begin()) return;
    for (int i = 0; i < SHAPES * 6; i++) {
        int        op = TNI_conv + i % 3;
        conv_case *c  = case_of(&shapes[i / 6], op, i / 3 % 2);
        if (!c) break;
        bool fits  = tni_cuda_conv_scratch(&c->call) <= SCRATCH;
        int  wrong = fits && tni_cuda_conv(&c->call) == TN_OK ? wrong_elements(c) : -1;
        test_case_result(wrong == 0, "shape %d, %s, %s: %d wrong: %s", i / 6, tni_op_table[op].name,
                         i / 3 % 2 ? "channels last" : "channels first", wrong, c->why.s);
        CHECK_STR(tni_cuda_conv_method(&c->call), "cuDNN");
        free(c);
    }
    fake_cudnn_end();
}

// ---- with the kernel behind it -----------------------------------------------------------------

// A kernel over (places, channels): buffer 0 is the convolution's result, 1 a bias in f32, 2 a
// residual, 3 what is stored. Its numbers are 0 and 1.5.
typedef struct {
    conv_case   *c;
    tni_kernel   kernel;
    tni_launch   launch;
    tni_epilogue epilogue;
    _Alignas(64) float bias[64];
    _Alignas(64) char residual[8 * MOST], result[8 * MOST];
} kernel_case;

static int add_ins(kernel_case *k, tni_ins x)
{
    k->kernel.ins[k->kernel.nins] = x;
    return k->kernel.nins++;
}

static int add_load(kernel_case *k, int access)
{
    return add_ins(k, (tni_ins){ .code   = TNI_I_LOAD,
                                 .dtype  = k->kernel.buffer[access].dtype,
                                 .a      = -1,
                                 .b      = -1,
                                 .c      = -1,
                                 .access = (int16_t)access });
}

static int add_map(kernel_case *k, int op, int a, int b)
{
    return add_ins(k, (tni_ins){ .code  = TNI_I_MAP,
                                 .op    = (uint8_t)op,
                                 .dtype = (uint8_t)k->c->s.dtype,
                                 .a     = (int16_t)a,
                                 .b     = (int16_t)b,
                                 .c     = -1 });
}

static int add_cast(kernel_case *k, int a, tn_dtype dt)
{
    return add_ins(
        k,
        (tni_ins){ .code = TNI_I_CAST, .dtype = (uint8_t)dt, .a = (int16_t)a, .b = -1, .c = -1 });
}

static int add_number(kernel_case *k, int number)
{
    return add_ins(k, (tni_ins){ .code   = TNI_I_NUMBER,
                                 .dtype  = (uint8_t)k->c->s.dtype,
                                 .a      = -1,
                                 .b      = -1,
                                 .c      = -1,
                                 .number = (int16_t)number });
}

// The sum with the bias in f32, rounded, as a folded batch norm is recorded.
static int add_norm(kernel_case *k)
{
    int x = add_cast(k, add_load(k, 0), TN_F32), b = add_load(k, 1);
    return add_cast(k, add_map(k, TNI_add, x, b), k->c->s.dtype);
}

static int relu_of_norm(kernel_case *k)
{
    return add_map(k, TNI_relu, add_norm(k), -1);
}

static int relu_of_sum(kernel_case *k)
{
    int r = add_load(k, 2);
    return add_map(k, TNI_relu, add_map(k, TNI_add, r, add_norm(k)), -1);
}

static int clamped_norm(kernel_case *k)
{
    int low = add_map(k, TNI_maximum, add_norm(k), add_number(k, 0));
    return add_map(k, TNI_minimum, low, add_number(k, 1));
}

static int silu_of_result(kernel_case *k)
{
    int x = add_load(k, 0), e = add_map(k, TNI_exp, add_map(k, TNI_neg, x, -1), -1);
    return add_map(k, TNI_mul, x,
                   add_map(k, TNI_reciprocal, add_map(k, TNI_add, e, add_number(k, 2)), -1));
}

static double relu_wanted(double x, double b, double r)
{
    return (void)r, fmax(x + b, 0);
}
static double sum_wanted(double x, double b, double r)
{
    return fmax(x + b + r, 0);
}
static double clamp_wanted(double x, double b, double r)
{
    return (void)r, fmin(fmax(x + b, 0), 1.5);
}
static double silu_wanted(double x, double b, double r)
{
    return (void)b, (void)r, x / (1 + exp(-x));
}

// ops: of the graph; 0: the library cannot.
static const struct {
    const char *name;
    int (*write)(kernel_case *k);
    double (*want)(double x, double b, double r);
    int ops;
} endings[] = {
    { "relu(y + b)", relu_of_norm, relu_wanted, 3 },
    { "relu(r + y + b)", relu_of_sum, sum_wanted, 4 },
    { "clamp(y + b)", clamped_norm, clamp_wanted, 4 },
    { "silu(y)", silu_of_result, silu_wanted, 6 },
};
enum { ENDINGS = sizeof endings / sizeof *endings };

static kernel_case *kernel_case_of(conv_case *c, int ending)
{
    kernel_case *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    tn_dtype dt = c->s.dtype;
    int64_t  O = c->s.O, rows = tni_shape_count(4, c->call.out.size) / O;
    k->c      = c;
    k->kernel = (tni_kernel){ .np      = 2,
                              .nbuffer = 4,
                              .naccess = 4,
                              .nnumber = 3,
                              .buffer  = { { dt, 0 }, { TN_F32, 0 }, { dt, 0 }, { dt, 1 } },
                              .number  = { dt, dt, dt } };
    k->launch = (tni_launch){ .kernel = &k->kernel,
                              .size   = { rows, O },
                              .buffer = { c->call.out.data, (char *)k->bias, k->residual,
                                          k->result },
                              .number = { { .f = 0 }, { .f = 1.5f }, { .f = 1 } } };
    for (int i = 0; i < 4; i++) {
        k->kernel.access[i].buffer = (int16_t)i;
        k->launch.stride[i][0]     = i == 1 ? 0 : O;
        k->launch.stride[i][1]     = 1;
    }
    for (int i = 0; i < 64; i++) k->bias[i] = (float)((i * 5) % 7 - 3) / 2;
    for (int64_t i = 0; i < MOST; i++) host_put(dt, k->residual, i, ((i * 11) % 13 - 6) / 2.0, 0);
    int last = endings[ending].write(k);
    add_ins(k, (tni_ins){ .code   = TNI_I_STORE,
                          .dtype  = (uint8_t)dt,
                          .a      = (int16_t)last,
                          .b      = -1,
                          .c      = -1,
                          .access = 3 });
    CHECK(tni_kernel_seal(&k->kernel));
    k->epilogue      = tni_epilogue_of(&k->launch, 0, O);
    c->call.epilogue = &k->epilogue;
    c->call.launch   = &k->launch;
    return k;
}

static int wrong_after_kernel(const kernel_case *k, int ending)
{
    const conv_case *c     = k->c;
    double          *want  = sums_of(c);
    int64_t          count = tni_shape_count(4, c->call.out.size);
    for (int64_t i = 0; i < count && want; i++)
        want[i] = endings[ending].want(want[i], k->bias[i % c->s.O],
                                       host_get(c->s.dtype, k->residual, i));
    int wrong = want ? differing(c, k->result, want, count) : -1;
    free(want);
    return wrong;
}

// Nothing is timed here, so that the library's way is taken. What the library would only
// approximate is left to the kernel in f32.
static void a_kernel_behind_a_convolution_is_part_of_its_graph(void)
{
    if (!fake_cudnn_begin()) return;
    fake_session.deterministic = true;
    for (int i = 0; i < SHAPES * ENDINGS; i++) {
        int          e = i % ENDINGS;
        conv_case   *c = case_of(&shapes[i / ENDINGS], TNI_conv, true);
        kernel_case *k = c ? kernel_case_of(c, e) : NULL;
        if (!k) break;
        tni_offer o = {
            .call = &c->call, .only_reader = true, .epilogue = k->epilogue, .launch = &k->launch
        };
        bool takes = tni_cuda_conv_takes(&fake_session, &o);
        bool exact = endings[e].write != silu_of_result || c->s.dtype != TN_F32;
        int  wrong = -1, ops = fake_cudnn->ops;
        if (takes && tni_cuda_conv_scratch(&c->call) <= SCRATCH &&
            tni_cuda_conv_with_epilogue(&c->call, NULL, &k->launch, &c->why) == TN_OK)
            wrong = wrong_after_kernel(k, e);
        test_case_result(takes == exact && (!takes || (wrong == 0 && ops == endings[e].ops)),
                         "shape %d, %s: taken %d, %d wrong: %s", i / ENDINGS, endings[e].name,
                         takes, wrong, c->why.s);
        o.only_reader = false;
        CHECK(!tni_cuda_conv_takes(&fake_session, &o));
        free(k);
        free(c);
    }
    fake_cudnn_end();
}

// Adds up by columns what the kernel stores, measured from the first row of the call's result, and
// stores a half of that in place of the bias.
static void add_column_sum(kernel_case *k)
{
    tni_kernel *x = &k->kernel;
    x->np = x->nr = x->lane_in_r   = 1;
    x->buffer[x->nbuffer++]        = (tni_kernel_buffer){ TN_F32, 1 };
    x->access[x->naccess++].buffer = 4;
    x->access[x->naccess++].buffer = 0;
    k->launch.buffer[4]            = (char *)k->bias;
    for (int i = 0; i < x->naccess; i++) {
        bool column            = i == 1 || i >= 4;
        x->access[i].stride[0] = column ? TNI_STRIDE_0 : TNI_STRIDE_N;
        x->access[i].stride[1] = TNI_STRIDE_1;
        k->launch.stride[i][0] = column ? 0 : k->c->s.O;
        k->launch.stride[i][1] = 1;
    }
    int first = add_ins(k, (tni_ins){ TNI_I_LOAD, .dtype = TN_F16, .a = -1, .b = -1, .c = -1,
                                      .access = 5 });
    int far   = add_map(k, TNI_sub, x->ins[x->nins - 2].a, first);
    int sum   = add_ins(k, (tni_ins){ TNI_I_REDUCE, TNI_sum, TN_F32, 1,
                                      .a = (int16_t)add_cast(k, far, TN_F32), .b = -1, .c = -1 });
    int half  = add_map(k, TNI_mul, sum, add_cast(k, add_number(k, 1), TN_F32));
    x->ins[half].dtype = TN_F32;
    add_ins(k, (tni_ins){ TNI_I_STORE, .dtype = TN_F32, .a = (int16_t)half, .b = -1, .c = -1,
                          .access = 4 });
    CHECK(tni_kernel_seal(x));
}

// The same kernels as endings of a product of our own, in every tile. One more also stores what its
// activation is given, over the residual, and others add up columns.
static void kernels_are_endings_of_products_of_our_own(void)
{
    static const shape of   = { .dtype    = TN_F16,
                                .N        = 1,
                                .C        = 8,
                                .O        = 32,
                                .groups   = 1,
                                .size     = { 3, 2 },
                                .taps     = { 1, 1 },
                                .step     = { 1, 1 },
                                .dilation = { 1, 1 } };
    tni_heap           heap = tni_heap_default();
    tni_text           why  = { "" };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    for (int i = 0; i < 2 * ENDINGS; i++) {
        int          e = i % ENDINGS;
        conv_case   *c = case_of(&of, TNI_conv, true);
        kernel_case *k = c ? kernel_case_of(c, e) : NULL;
        if (!k) break;
        if (i == ENDINGS) {
            k->kernel.buffer[2].written = 1;
            add_ins(k, (tni_ins){ .code   = TNI_I_STORE,
                                  .dtype  = TN_F16,
                                  .a      = (int16_t)(k->kernel.nins - 3),
                                  .b      = -1,
                                  .c      = -1,
                                  .access = 2 });
            CHECK(tni_kernel_seal(&k->kernel));
        }
        if (i > ENDINGS) add_column_sum(k);
        CHECK(tni_is_ending(&k->launch, 0, of.O));
        CHECK_INT(tni_ending_store(&k->kernel, 0), 3);
        CHECK_INT(tni_ending_sums(&k->kernel), i > ENDINGS);
        CHECK(tni_ending_reads_first_row(&k->launch, 0, of.O) == (i > ENDINGS));
        int              tile = i > ENDINGS ? 1 + i % 2 : i % TNI_PRODUCT_TILES;
        tni_product_case x    = tni_product_tiles[tile];
        tni_cubin        b    = { 0 };
        x.f16                 = true;
        x.sums                = tni_ending_sums(&k->kernel);
        x.turned              = i > ENDINGS;
        x.nears               = tni_ending_fetches(&k->launch, 0, of.O, x.near);
        tni_product_cores_panels(&x);
        x.twice        = i == 1;
        char *ending   = tni_ending_text(&heap, &tni_dialect_cuda, &k->launch, 0, of.O);
        x.ending       = ending;
        char     *text = ending ? tni_product_cores_source(&heap, &x) : NULL;
        tn_status s    = text ? tni_cubin_compile(&b, text, "sm_90a", true, &why) : TN_EMEM;
        test_case_result(s == TN_OK && !strstr(b.log, "warning") && !strstr(b.log, "serialized"),
                         "%s: %s", endings[e].name, s == TN_OK ? b.log : why.s);
        tni_cubin_free(&b);
        tni_free(&heap, ending);
        tni_free(&heap, text);
        free(k);
        free(c);
    }
}

// ---- what it reads -----------------------------------------------------------------------------

static int finished;  // how often everything ended before the library began

static int count_set8(tni_cuptr p, unsigned char value, size_t n, tni_custream s)
{
    (void)p, (void)value, (void)n, (void)s;
    finished++;
    return TNI_CU_OK;
}

static int launch_nothing(const tni_culaunch *l, tni_cufunction f, void **args, void **more)
{
    (void)l, (void)f, (void)args, (void)more;
    return TNI_CU_OK;
}

// Submits steps of a plan: k a kernel of our own, l a library call, | the next step.
static void submit(const char *what)
{
    tni_launch_record d      = { .grid = { 1, 1, 1 }, .block = { 1, 1, 1 }, .overlaps = true };
    uint32_t          at     = 0;
    size_t            step   = 0;
    const int         number = 1;
    tni_replay_step(&fake_session, step);
    for (; *what; what++) {
        if (*what == 'k') CHECK_INT(tni_replay_launch(&fake_session, &d, &at, ""), TNI_CU_OK);
        if (*what == 'l') tni_replay_library_call(&fake_session, &number, sizeof number);
        if (*what == '|') tni_replay_step(&fake_session, ++step);
    }
}

// Kernels of our own let the next one begin early, and the library adds what it reads without
// waiting. What they may still be making is finished first, and nothing else: a library call
// between waits for them, and a graph for all that came before it.
static void what_kernels_make_is_finished_before_the_library_adds_it(void)
{
    static const struct {
        const char *steps;
        int64_t     newest;
        bool        graph, waits;
    } cases[] = {
        { "", 0, false, false },      { "k|", 0, false, true },     { "k|", -1, false, true },
        { "k|", -1, true, false },    { "k|", 0, true, true },      { "k|k|k|", 0, true, true },
        { "kl|", 0, false, false },   { "k|lk|", 0, true, false },  { "k|lk|", 1, true, true },
        { "k|l|k|", 0, true, false }, { "k|l|k|", 2, false, true },
    };
    if (!fake_cudnn_begin()) return;
    tni_heap heap                 = tni_heap_default();
    fake_session.heap             = &heap;
    fake_session.deterministic    = true;
    tni_gpu overlapping           = *fake_session.gpu;
    overlapping.overlaps          = true;
    fake_session.gpu              = &overlapping;
    fake_clock_driver.set8        = count_set8;
    fake_clock_driver.launch_with = launch_nothing;
    conv_case   *c                = case_of(&shapes[1], TNI_conv, true);
    kernel_case *k                = c ? kernel_case_of(c, 0) : NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && k; i++) {
        tni_recorder *r    = &fake_session.recorder;
        void         *plan = NULL;
        tni_text      why  = { "" };
        bool          again;
        for (int run = 0; run < (cases[i].graph ? 3 : 1); run++) {
            tni_replay_begin(&fake_session, &plan);
            submit(run < 2 && cases[i].graph ? "kk" : cases[i].steps);
            if (run < 2 && cases[i].graph) tni_replay_end(&fake_session, true, &again, &why);
        }
        int before     = r->submitted;
        finished       = 0;
        c->call.newest = cases[i].newest;
        CHECK_INT(r->mode, cases[i].graph ? TNI_REPLAY_RECORD : TNI_REPLAY_LAUNCH);
        CHECK_INT(tni_cuda_conv_with_epilogue(&c->call, NULL, &k->launch, &c->why), TN_OK);
        int more = r->submitted - before - 1;  // besides the call; set now if it is no graph
        test_case_result(more == cases[i].waits && (cases[i].graph || finished == more),
                         "%s, %lld: %d", cases[i].steps, (long long)cases[i].newest, more);
        tni_replay_end(&fake_session, false, &again, &why);
        tni_replay_forget(plan);
    }
    tni_replay_close(&fake_session);
    free(k);
    free(c);
    fake_cudnn_end();
}

// Which input was there before the plan is known of the product that a convolution is, whose
// operands may be swapped.
static void a_product_knows_which_input_lasts(void)
{
    static const int   ops[] = { TNI_conv, TNI_conv_dgrad, TNI_conv_wgrad };
    static const shape tap   = {
          2, 8, 16, 1, { 3, 4 }, { 1, 1 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, TN_F32
    };
    static const shape window = { 2,        8,        16,       1,        { 3, 4 },
                                  { 3, 4 }, { 1, 1 }, { 0, 0 }, { 1, 1 }, TN_F32 };
    for (int i = 0; i < 24; i++) {
        conv_case *c = case_of(i & 1 ? &tap : &window, ops[i / 8], i & 2);
        tni_arg    in[2];
        tni_call   m;
        int        at    = i >> 2 & 1;  // the input that lasts
        c->call.lasting  = 1u << at;
        c->call.value[0] = 10, c->call.value[1] = 11;
        bool product = tni_conv_product(&c->call, in, &m);
        for (int j = 0; j < 2 && product; j++) {
            int from = in[j].data == c->in[1].data;
            test_case_result((m.lasting >> j & 1) == (from == at) &&
                                 m.value[j] == (uint64_t)(10 + from),
                             "case %d, operand %d", i, j);
        }
        test_case_result(product || ((i & 2) && !(i & 1)) || i / 8 == 2, "case %d", i);
        free(c);
    }
}

// ---- engines -----------------------------------------------------------------------------------

static void the_fastest_engine_is_chosen_once_and_kept(void)
{
    if (!fake_cudnn_begin()) return;
    conv_case *c = case_of(&shapes[1], TNI_conv, true);
    CHECK_INT(tni_cuda_conv(&c->call), TN_OK);
    CHECK_INT(fake_cudnn->last, 1);
    CHECK_INT(fake_cudnn->compiled, 3);
    fake_cudnn_forget();
    CHECK_INT(tni_cuda_conv(&c->call), TN_OK);
    CHECK_INT(fake_cudnn->compiled, 3);
    CHECK_INT(fake_cudnn->loaded, 1);
    CHECK_INT(fake_cudnn->last, 1);
    free(c);
    fake_cudnn_end();
}

// Returns which engine computes a shape if the fastest one has a note.
static int engine_with_note(const shape *s, int note)
{
    conv_case *c         = case_of(s, TNI_conv_wgrad, false);
    fake_cudnn->notes[1] = 1 << note;
    tn_status status     = tni_cuda_conv(&c->call);
    free(c);
    fake_cudnn_forget();
    return status == TN_OK ? fake_cudnn->last : -1;
}

static void engines_are_refused_by_what_they_round(void)
{
    if (!fake_cudnn_begin()) return;
    CHECK_INT(engine_with_note(&shapes[0], TNI_DNN_NOTE_TENSOR_CORE), 0);
    CHECK_INT(engine_with_note(&shapes[2], TNI_DNN_NOTE_TENSOR_CORE), 1);
    CHECK_INT(engine_with_note(&shapes[1], TNI_DNN_NOTE_ROUNDS_SUMS), 0);
    CHECK_INT(engine_with_note(&shapes[3], TNI_DNN_NOTE_WINOGRAD_LAST), 0);
    fake_session.tf32 = true;
    CHECK_INT(engine_with_note(&shapes[4], TNI_DNN_NOTE_TENSOR_CORE), 1);
    fake_cudnn_end();
}

static void engines_that_vary_are_marked_and_avoided(void)
{
    if (!fake_cudnn_begin()) return;
    fake_cudnn->notes[0] = 1 << TNI_DNN_NOTE_VARIES;
    conv_case *c         = case_of(&shapes[1], TNI_conv_wgrad, true);
    CHECK(strstr(tni_cuda_conv_varies(&c->call), "any order") != NULL);
    fake_session.deterministic = true;
    CHECK(tni_cuda_conv_varies(&c->call) == NULL);
    CHECK_INT(tni_cuda_conv(&c->call), TN_OK);
    CHECK_INT(fake_cudnn->last, 1);
    CHECK_INT(fake_cudnn->runs, 1);
    free(c);
    fake_cudnn_end();
}

static void of_engines_that_the_library_compiles_only_the_first_is_tried(void)
{
    if (!fake_cudnn_begin()) return;
    fake_cudnn->compiles = 3;
    conv_case *c         = case_of(&shapes[1], TNI_conv, true);
    CHECK_INT(tni_cuda_conv(&c->call), TN_OK);
    CHECK_INT(fake_cudnn->compiled, 2);
    CHECK(fake_cudnn->last != 1);
    free(c);
    fake_cudnn_end();
}

static void engines_that_need_too_much_workspace_are_left_out(void)
{
    if (!fake_cudnn_begin()) return;
    fake_cudnn->workspace = (int64_t)1 << 31;
    conv_case *c          = case_of(&shapes[1], TNI_conv, true);
    CHECK_INT(tni_cuda_conv(&c->call), TN_OK);
    CHECK_INT(fake_cudnn->last, 0);
    CHECK_INT(fake_cudnn->compiled, 1);
    free(c);
    fake_cudnn_end();
}

// A GPU of 64 GB whose memory others use but for 2 MiB, of which an engine may have an eighth.
static int full_mem_info(size_t *free, size_t *all)
{
    *free = 2 << 20, *all = (size_t)64 << 30;
    return TNI_CU_OK;
}

// Computes a shape as a new process would, on a full GPU or an empty one; returns the engine.
static int engine_in_new_process(const conv_case *c, bool full)
{
    int (*empty)(size_t *, size_t *) = fake_clock_driver.mem_info;
    fake_cudnn_forget();
    if (full) fake_clock_driver.mem_info = full_mem_info;
    tn_status s                = tni_cuda_conv(&c->call);
    fake_clock_driver.mem_info = empty;
    return s == TN_OK ? fake_cudnn->last : -1;
}

static int files_in_cache(void)
{
    char command[1200], out[32] = "";
    snprintf(command, sizeof command, "ls '%s' 2>/dev/null | wc -l", scratch_path("cache"));
    return tree_run(command, out, sizeof out) == 0 ? atoi(out) : -1;
}

// The fastest engine needs 400,000 bytes.
static void what_is_chosen_on_a_full_gpu_is_not_kept(void)
{
    if (!fake_cudnn_begin()) return;
    conv_case *c          = case_of(&shapes[1], TNI_conv, true);
    fake_cudnn->workspace = 200000;
    fake_cudnn->fastest   = 2;
    CHECK(engine_in_new_process(c, true) < 2);
    CHECK_INT(files_in_cache(), 0);
    CHECK_INT(engine_in_new_process(c, false), 2);
    CHECK(files_in_cache() > 0);
    CHECK(engine_in_new_process(c, true) < 2);
    int compiled = fake_cudnn->compiled;
    CHECK_INT(engine_in_new_process(c, false), 2);
    CHECK_INT(fake_cudnn->compiled, compiled);
    free(c);
    fake_cudnn_end();
}

// The first engine that is not refused is the second, whatever is free.
static void equal_runs_do_not_depend_on_what_is_free(void)
{
    if (!fake_cudnn_begin()) return;
    conv_case *c               = case_of(&shapes[1], TNI_conv, true);
    fake_session.deterministic = true;
    fake_cudnn->workspace      = 400000;
    fake_cudnn->notes[0]       = 1 << TNI_DNN_NOTE_VARIES;
    CHECK_INT(engine_in_new_process(c, true), 1);
    CHECK_INT(engine_in_new_process(c, false), 1);
    free(c);
    fake_cudnn_end();
}

// ---- what it does not take ---------------------------------------------------------------------

static const char *method_of(const shape *s, tn_dtype dt, int64_t gap)
{
    shape other  = *s;
    other.dtype  = dt;
    conv_case *c = case_of(&other, TNI_conv, false);
    c->in[0].stride[0] += gap;
    const char *by = tni_cuda_conv_method(&c->call);
    free(c);
    return by;
}

static void what_the_library_lacks_is_left_to_other_kernels(void)
{
    const char *own = "kernels of work groups";
    if (!fake_cudnn_begin()) return;
    shape far   = shapes[1];
    far.step[0] = (int64_t)1 << 30;
    CHECK_STR(method_of(&shapes[1], TN_F64, 0), own);
    CHECK_STR(method_of(&shapes[1], TN_BF16, 1), own);
    CHECK_STR(method_of(&far, TN_BF16, 0), own);
    CHECK_STR(method_of(&shapes[1], TN_BF16, 0), "cuDNN");
    fake_cudnn->engines = 0;
    CHECK_STR(method_of(&shapes[2], TN_BF16, 0), own);
    fake_cudnn->engines = 3;
    fake_cudnn->fails   = TNI_DNN_OP_CONV;
    CHECK_STR(method_of(&shapes[3], TN_BF16, 0), own);
    CHECK_INT(fake_cudnn->runs, 0);
    fake_cudnn_end();
}

const test_case tests_cudnn_conv[] = {
    TEST(graphs_compute_convolutions_and_their_gradients),
    TEST(a_kernel_behind_a_convolution_is_part_of_its_graph),
    TEST(kernels_are_endings_of_products_of_our_own),
    TEST(what_kernels_make_is_finished_before_the_library_adds_it),
    TEST(a_product_knows_which_input_lasts),
    TEST(the_fastest_engine_is_chosen_once_and_kept),
    TEST(engines_are_refused_by_what_they_round),
    TEST(engines_that_vary_are_marked_and_avoided),
    TEST(of_engines_that_the_library_compiles_only_the_first_is_tried),
    TEST(engines_that_need_too_much_workspace_are_left_out),
    TEST(what_is_chosen_on_a_full_gpu_is_not_kept),
    TEST(equal_runs_do_not_depend_on_what_is_free),
    TEST(what_the_library_lacks_is_left_to_other_kernels),
    TEST_END
};
