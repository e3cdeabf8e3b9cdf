// Models with QuantizeLinear and DequantizeLinear around their convolutions and products, compared
// with 64-bit arithmetic: such a model multiplies bytes, and its integers are exact.
//
//   x f32 -- QuantizeLinear -- DequantizeLinear -- Conv, Gemm or MatMul -- QuantizeLinear -- DequantizeLinear -- y f32
//                                   weights of i8, DequantizeLinear --+
#include "check.h"
#include "onnx_writer.h"
#include "rules_kit.h"
#include "scratch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1024 };  // elements of anything here

// A model: y = act(x) with all that quantizes it. A matrix has one place and one tap.
typedef struct {
    const char *op;                   // Conv, Gemm, MatMul
    int         rank;                 // of x: 4 for Conv
    int64_t     n, in, h, w;          // x (n, in, h, w), or (n, in)
    int64_t     out, groups, kh, kw;  // w (out, in / groups, kh, kw), (in, out), of Gemm (out, in)
    int64_t     stride, pads[4];      // top, left, bottom, right
    bool        is_unsigned;          // bytes of x
    int         x_zero, y_zero, w_zero;  // w_zero: of weights, which are u8 then
    int         bias;                    // 0: none, 1: i32 in units of the sum, 2: f32
    bool        per_channel;
} model;

static const float x_scale = 0.0625f, y_scale = 0.37f;

static float w_scale(const model *m, int64_t o)
{
    return 0.01f * (float)(1 + (m->per_channel ? o % 5 : 0));
}

static int64_t weight_at(int64_t i)
{
    return (i * 37 + i / 7 * 11) % 251 - 125;
}
static int64_t bias_at(int64_t o)
{
    return o * 91 % 400 - 150;
}
static float x_at(int64_t i)
{
    return (float)((i * 29 + 5) % 241 - 120) * 0.0613f;
}

// ---- the model as a file

// Adds a weight of the file; bytes are packed from v.
static void add_init(onnx_bytes *g, const char *name, int type, int rank, const int64_t *size,
                     const int64_t *v, const float *real)
{
    unsigned char data[4 * MOST];
    int64_t       n = 1;
    for (int i = 0; i < rank; i++) n *= size[i];
    for (int64_t i = 0; i < n; i++) {
        int32_t k = v ? (int32_t)v[i] : 0;
        if (type == 1) memcpy(data + 4 * i, &real[i], 4);
        else if (type == 6) memcpy(data + 4 * i, &k, 4);
        else data[i] = (unsigned char)k;
    }
    onnx_bytes t = onnx_tensor(name, type, rank, size, data);
    onnx_message(g, 5, &t);
}

static void add_number(onnx_bytes *g, const char *name, int type, int64_t v, float real)
{
    add_init(g, name, type, 0, NULL, &v, &real);
}

static void add_node(onnx_bytes *g, const char *op, const char *in, const char *out, int axis)
{
    onnx_bytes n = onnx_node(op, in, out);
    if (axis >= 0) onnx_attr_int(&n, "axis", axis);
    onnx_message(g, 1, &n);
}

static int64_t weight_count(const model *m)
{
    return m->out * m->in / m->groups * m->kh * m->kw;
}

// Weights with their scales along their axis of outputs; zero points of 0, or one for all.
static void add_weights(onnx_bytes *g, const model *m)
{
    bool    matmul = !strcmp(m->op, "MatMul"), conv = !strcmp(m->op, "Conv");
    int64_t size[] = { matmul ? m->in : m->out, matmul ? m->out : m->in / m->groups, m->kh, m->kw };
    int64_t v[MOST], zero[MOST] = { 0 }, channels = m->per_channel ? m->out : 1;
    float   scale[MOST];
    for (int64_t i = 0; i < weight_count(m); i++) v[i] = weight_at(i) + m->w_zero;
    for (int64_t o = 0; o < channels; o++) scale[o] = w_scale(m, o), zero[o] = m->w_zero;
    int type = m->w_zero ? 2 : 3;
    add_init(g, "w", type, conv ? 4 : 2, size, v, NULL);
    add_init(g, "ws", 1, m->per_channel ? 1 : 0, &channels, NULL, scale);
    add_init(g, "wz", type, m->per_channel ? 1 : 0, &channels, zero, NULL);
    add_node(g, "DequantizeLinear", "w ws wz", "wr", m->per_channel ? matmul : -1);
    if (!m->bias) return;
    for (int64_t o = 0; o < m->out; o++) {
        v[o]     = bias_at(o);
        scale[o] = x_scale * w_scale(m, o) * (m->bias == 2 ? (float)bias_at(o) : 1);
    }
    add_init(g, m->bias == 2 ? "br" : "bs", 1, 1, &m->out, NULL, scale);
    if (m->bias == 2) return;
    add_init(g, "b", 6, 1, &m->out, v, NULL);
    add_node(g, "DequantizeLinear", "b bs", "br", 0);
}

// Its output is y, or what is in front of the quantization, yr.
static onnx_bytes file_of(const model *m, const char *out)
{
    onnx_bytes g  = { .n = 0 };
    onnx_bytes op = onnx_node(m->op, m->bias ? "xr wr br" : "xr wr", "yr");
    if (!strcmp(m->op, "Gemm")) onnx_attr_int(&op, "transB", 1);
    if (!strcmp(m->op, "Conv")) {
        onnx_ints(&op, "pads", 4, m->pads, 0);
        onnx_ints(&op, "strides", 2, (int64_t[]){ m->stride, m->stride }, 0);
        onnx_attr_int(&op, "group", m->groups);
    }
    onnx_ports(&g, "x", out);
    add_number(&g, "xs", 1, 0, x_scale);
    add_number(&g, "xz", m->is_unsigned ? 2 : 3, m->x_zero, 0);
    add_number(&g, "ys", 1, 0, y_scale);
    add_number(&g, "yz", m->is_unsigned ? 2 : 3, m->y_zero, 0);
    add_weights(&g, m);
    add_node(&g, "QuantizeLinear", "x xs xz", "xq", -1);
    add_node(&g, "DequantizeLinear", "xq xs xz", "xr", -1);
    onnx_message(&g, 1, &op);
    add_node(&g, "QuantizeLinear", "yr ys yz", "yq", -1);
    add_node(&g, "DequantizeLinear", "yq ys yz", "y", -1);
    return onnx_model(&g, 17);
}

// ---- what it means

static int64_t quantized(const model *m, float v, int zero)
{
    int64_t lo = m->is_unsigned ? 0 : -128, q = (int64_t)rintf(v) + zero;
    return q < lo ? lo : q > lo + 255 ? lo + 255 : q;
}

// The sum of one element of y, of integers without their zero points.
static int64_t sum_at(const model *m, int64_t n, int64_t o, int64_t i, int64_t j)
{
    int64_t sum = m->bias == 1 ? bias_at(o) : 0, in = m->in / m->groups,
            first = o / (m->out / m->groups) * in;
    for (int64_t c = 0; c < in; c++)
        for (int64_t k = 0; k < m->kh * m->kw; k++) {
            int64_t y = i * m->stride - m->pads[0] + k / m->kw,
                    x = j * m->stride - m->pads[1] + k % m->kw;
            if (y < 0 || y >= m->h || x < 0 || x >= m->w) continue;
            int64_t at = ((n * m->in + first + c) * m->h + y) * m->w + x;
            int64_t w = strcmp(m->op, "MatMul") ? (o * in + c) * m->kh * m->kw + k : c * m->out + o;
            sum += (quantized(m, x_at(at) / x_scale, m->x_zero) - m->x_zero) * weight_at(w);
        }
    return sum;
}

// Whether the profile, which ends here, has such a product.
static bool was_run(tn_ctx *cx, const char *product)
{
    const char   *path = scratch_path("profile.json");
    unsigned char text[1 << 16];
    tn_profile_end(cx);
    bool  ok = tn_profile_write(cx, path) == TN_OK;
    FILE *f  = fopen(path, "r");
    if (!f) return false;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return ok && strstr((char *)text, product);
}

// Runs the model twice, since the second run has what the first one kept, and compares all
// elements. What the sum is multiplied by is one float, as in QLinearConv; a bias that is real is
// added before it is divided.
static void check_model(const char *device, const model *m, const char *product)
{
    tn_ctx    *cx   = rules_open(device);
    onnx_bytes file = file_of(m, "y");
    float      v[MOST], y[MOST];
    int64_t    oh = (m->h + m->pads[0] + m->pads[2] - m->kh) / m->stride + 1,
            ow = (m->w + m->pads[1] + m->pads[3] - m->kw) / m->stride + 1, wrong = 0;
    for (int64_t i = 0; i < m->n * m->in * m->h * m->w; i++) v[i] = x_at(i);
    CHECK(scratch_write(scratch_path("m.onnx"), file.data, file.n) && file.n < sizeof file.data);
    tn_onnx   *f = tn_onnx_open(cx, scratch_path("m.onnx"));
    tn_tensor *x = tn_from(cx, TN_F32, m->rank, (int64_t[]){ m->n, m->in, m->h, m->w }, v),
              *r = NULL;
    for (int run = 0; run < 2; run++) {
        if (product) tn_profile_begin(cx);
        tn_onnx_run(f, 1, NULL, &x, 1, NULL, &r);
        if (tn_read(r, TN_F32, y, m->n * m->out * oh * ow) != TN_OK) wrong = -1;
        if (product && !was_run(cx, product)) wrong = -2;
        for (int64_t i = 0; wrong >= 0 && i < m->n * m->out * oh * ow; i++) {
            int64_t o   = i / (oh * ow) % m->out;
            float   s   = (float)sum_at(m, i / (m->out * oh * ow), o, i / ow % oh, i % ow),
                  scale = x_scale * w_scale(m, o);
            float q     = m->bias == 2 ? (s * scale + scale * (float)bias_at(o)) / y_scale
                                       : s * (scale / y_scale);
            wrong += y[i] != (float)(quantized(m, q, m->y_zero) - m->y_zero) * y_scale;
        }
    }
    test_case_result(!wrong, "%s %s, groups %d, %s: %d", device, m->op, (int)m->groups,
                     m->is_unsigned ? "u8" : "i8", (int)wrong);
    tn_close(cx);
}

static const model models[] = {
    { "Conv", 4, 2, 8, 6, 5, 8, 1, 3, 3, 1, { 1, 1, 1, 1 }, true, 7, 3, 0, 1, true },
    { "Conv", 4, 1, 8, 6, 5, 6, 1, 3, 3, 2, { 1, 0, 2, 1 }, false, -9, -128, 0, 1, true },
    { "Conv", 4, 1, 8, 5, 5, 8, 8, 3, 3, 1, { 1, 1, 1, 1 }, true, 130, 128, 0, 1, true },
    { "Conv", 4, 1, 8, 5, 5, 8, 2, 3, 3, 1, { 1, 1, 1, 1 }, false, 0, 0, 0, 0, false },
    { "Conv", 4, 1, 8, 5, 5, 12, 1, 1, 1, 1, { 0 }, true, 100, 0, 0, 2, true },
    { "Gemm", 2, 3, 20, 1, 1, 10, 1, 1, 1, 1, { 0 }, true, 128, 120, 0, 1, true },
    { "Gemm", 2, 1, 20, 1, 1, 10, 1, 1, 1, 1, { 0 }, false, 0, 5, 0, 2, false },
    { "MatMul", 2, 3, 20, 1, 1, 10, 1, 1, 1, 1, { 0 }, false, -3, 5, 0, 0, true },
    { "MatMul", 2, 4, 20, 1, 1, 10, 1, 1, 1, 1, { 0 }, true, 99, 130, 127, 0, false },
};
enum { MODELS = sizeof models / sizeof *models };

// A profile waits for compiled kernels, so that only a few models have one.
static void integers_are_exact(void)
{
    CHECK(scratch_open());
    for (int i = 0; i < MODELS; i++) {
        const char *product = strcmp(models[i].op, "Conv") ? "matmul_i32" : "conv_i32";
        check_model("cpu", &models[i], i == 0 || i == 5 || i == 7 ? product : NULL);
        check_model("ref", &models[i], NULL);
    }
    scratch_close();
}

// Weights with a zero point are convolved as real numbers: the result is within one step.
static void what_is_no_product_of_bytes_is_computed_in_floats(void)
{
    tn_ctx    *cx = rules_open_scratch();
    model      m  = models[0];
    onnx_bytes file;
    float      y[MOST], v[MOST];
    m.w_zero = 127;
    file     = file_of(&m, "y");
    for (int64_t i = 0; i < MOST; i++) v[i] = x_at(i);
    CHECK(scratch_write(scratch_path("m.onnx"), file.data, file.n));
    tn_onnx   *f = tn_onnx_open(cx, scratch_path("m.onnx"));
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(m.n, m.in, m.h, m.w), v), *r = NULL;
    CHECK_STATUS(tn_onnx_run(f, 1, NULL, &x, 1, NULL, &r), TN_OK);
    CHECK_STATUS(tn_read(r, TN_F32, y, m.n * m.out * m.h * m.w), TN_OK);
    for (int64_t i = 0; i < m.n * m.out * m.h * m.w; i++) {
        int64_t o = i / (m.h * m.w) % m.out;
        double  s = (double)sum_at(&m, i / (m.out * m.h * m.w), o, i / m.w % m.h, i % m.w);
        int64_t q = quantized(&m, (float)(s * x_scale * w_scale(&m, o) / y_scale), m.y_zero);
        CHECK(fabs(y[i] / y_scale - (double)(q - m.y_zero)) < 1.001);
    }
    rules_close_scratch(cx);
}

// In training the path is that of real numbers, and a bias that is a parameter has its gradient.
static void a_quantized_model_is_trained(void)
{
    tn_ctx    *cx   = rules_open_scratch();
    model      m    = models[6];
    onnx_bytes file = file_of(&m, "yr");
    float      v[MOST];
    double     loss = 0, first = 0;
    for (int64_t i = 0; i < MOST; i++) v[i] = x_at(i);
    CHECK(scratch_write(scratch_path("m.onnx"), file.data, file.n));
    tn_onnx   *f = tn_onnx_open(cx, scratch_path("m.onnx"));
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(m.n, m.in), v);
    tn_layer  *l = tn_onnx_layer(f);
    CHECK(l && tn_layer_find(l, "br"));
    tn_layer_train(l, true);
    tn_optim *o = tn_adam(l, (tn_adam_opts){ .lr = 0.05 });
    tn_profile_begin(cx);
    for (int i = 0; i < 20; i++) {
        tn_scope  *s = tn_begin(cx);
        tn_tensor *y = tn_forward(l, x), *e = tn_mean_all(tn_square(tn_add_s(y, -0.5)));
        tn_step(o, e);
        tn_read(e, TN_F64, &loss, 1);
        if (!i) first = loss;
        tn_end(s);
    }
    CHECK(loss < 0.9 * first && !was_run(cx, "matmul_i32"));
    rules_close_scratch(cx);
}

const test_case tests_onnx_bytes[] = {
    TEST(integers_are_exact),
    TEST(what_is_no_product_of_bytes_is_computed_in_floats),
    TEST(a_quantized_model_is_trained),
    TEST_END,
};
