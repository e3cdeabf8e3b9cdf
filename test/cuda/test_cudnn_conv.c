// test_cudnn_conv.c: convolution by cuDNN, with a cuDNN that computes any graph in host memory: what its
// graphs compute in both orders of axes, which engines are refused, and what happens if it has none.
#include "check.h"
#include "fake_cudnn_kit.h"
#include "host.h"

#include "device/cuda/cuda_conv.h"
#include "device/cuda/dnn_plan.h"

#include <math.h>
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

// Adds, for one place of y and one channel of it, every product to the element that the op computes.
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

// How many elements of the result are not the sums of products, up to the rounding of the dtype.
static int wrong_elements(const conv_case *c)
{
    const shape   *s   = &c->s;
    tni_conv_form  f   = tni_conv_form_of(&c->call, 2);
    const tni_arg *x   = f.arg;
    int            out = f.result, wrong = 0;
    double        *sum = calloc(MOST, sizeof *sum);
    double         eps = s->dtype == TN_BF16 ? 1.0 / 128 : s->dtype == TN_F16 ? 1.0 / 1024 : 1e-6;
    int64_t        P = places(s, 0), Q = places(s, 1);
    if (!sum) return -1;
    for (int64_t k = 0; k < s->N * s->O * P * Q; k++)
        add_products(c, x, out, k / Q / P / s->O, k / Q / P % s->O, k / Q % P, k % Q, sum);
    for (int64_t k = 0; k < tni_shape_count(4, x[out].size); k++)
        wrong += fabs(host_get(s->dtype, x[out].data, k) - sum[k]) > eps * (1 + fabs(sum[k]));
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

const test_case tests_cudnn_conv[] = { TEST(graphs_compute_convolutions_and_their_gradients),
                                       TEST(the_fastest_engine_is_chosen_once_and_kept),
                                       TEST(engines_are_refused_by_what_they_round),
                                       TEST(engines_that_vary_are_marked_and_avoided),
                                       TEST(engines_that_need_too_much_workspace_are_left_out),
                                       TEST(what_the_library_lacks_is_left_to_other_kernels),
                                       TEST_END };
