// 08_custom_cuda.c: an op of your own as a CUDA kernel: rotary embedding, which rotates the
// features (i, i + half) of x (batch, time, width) by an angle that grows with time. An expression
// cannot use the index of its element, so the op has a kernel for GPUs and a C function for other
// devices. Without a GPU, this program prints why and runs the function.
#include <math.h>
#include <stdio.h>
#include <tenon.h>

// Compiled for the GPU when it is first used. Each block computes a row of x, each thread a pair of
// features. `way`, 1 or -1, is the attribute of the op.
static const char rope_cuda[] =
    "extern \"C\" __global__ void rope(tn::in<0> x, tn::out<0> y, float way)\n"
    "{\n"
    "    int       time = blockIdx.x % x.size[1], half = blockDim.x, i = threadIdx.x;\n"
    "    long long at   = blockIdx.x * x.size[2] + i;\n"
    "    float     u = x[at], v = x[at + half], s, c;\n"
    "    sincosf(way * time * powf(10000, -(float)i / half), &s, &c);\n"
    "    y[at]        = u * c - v * s;\n"
    "    y[at + half] = v * c + u * s;\n"
    "}\n";

static tn_status rope_launch(const void *way, const tn_array *x, const tn_array *y,
                             tn_launch_dims *dims)
{
    (void)way, (void)y;
    dims->grid[0]  = x->size[0] * x->size[1];
    dims->block[0] = x->size[2] / 2;
    return TN_OK;
}

static tn_status rope_shape(const void *way, const tn_array *x, tn_array *y)
{
    (void)way;
    *y = *x;
    return x->dtype == TN_F32 && x->rank == 3 && x->size[2] % 2 == 0 ? TN_OK : TN_ESHAPE;
}

static tn_status rope_compute(const void *way, const tn_array *x, tn_array *y)
{
    int64_t half = x->size[2] / 2;
    for (int64_t n = 0; n < x->size[0] * x->size[1] * half; n++) {
        int64_t      i = n % half, row = n / half, at = row * 2 * half + i;
        const float *u = (const float *)x->data + at, *v = u + half;
        float       *p = (float *)y->data + at, *q = p + half;
        float        speed = *(const float *)way * powf(10000, -(float)i / (float)half);
        float        angle = (float)(row % x->size[1]) * speed;
        *p                 = *u * cosf(angle) - *v * sinf(angle);
        *q                 = *v * cosf(angle) + *u * sinf(angle);
    }
    return TN_OK;
}

static const tn_op_def rope;

// The gradient is rotated back.
static tn_status rope_grad(const void *way, tn_tensor *const *x, tn_tensor *const *y,
                           tn_tensor *const *gy, tn_tensor **gx)
{
    float back = -*(const float *)way;
    (void)x, (void)y;
    gx[0] = tn_custom(&rope, gy, &back, sizeof back);
    return gx[0] ? TN_OK : TN_EUSER;
}

static const tn_op_def rope = {
    "rope", 1, 1, rope_shape, rope_compute, rope_grad, .cuda = rope_cuda, .launch = rope_launch
};

// The same, composed of built-in ops.
static tn_tensor *composed(tn_ctx *cx, tn_tensor *x)
{
    int64_t    half  = tn_size(x, 2) / 2;
    tn_tensor *place = tn_arange(cx, TN_F32, 0, (double)half, 1), *part[2], *y[2];
    tn_tensor *speed = tn_exp(tn_mul_s(place, -log(10000) / (double)half));
    tn_tensor *time  = tn_arange(cx, TN_F32, 0, (double)tn_size(x, 1), 1);
    tn_tensor *angle = tn_mul(tn_unsqueeze(time, 1), speed), *c = tn_cos(angle), *s = tn_sin(angle);
    tn_chunk(x, 2, 2, part);
    y[0] = tn_sub(tn_mul(part[0], c), tn_mul(part[1], s));
    y[1] = tn_add(tn_mul(part[1], c), tn_mul(part[0], s));
    return tn_concat(2, y, 2);
}

int main(void)
{
    tn_ctx *cx = tn_open("cuda");
    if (!cx) printf("the function runs, not the kernel: %s\n", tn_error_text(NULL));
    if (!cx && !(cx = tn_open(NULL))) return 1;
    tn_tensor *x = tn_requires_grad(tn_randn(cx, TN_F32, TN_SHAPE(4, 64, 48)), true), *g[2];
    tn_tensor *w = tn_randn_like(x), *y[2];

    y[0] = tn_custom(&rope, &x, &(float){ 1 }, sizeof(float));
    y[1] = composed(cx, x);
    for (int i = 0; i < 2; i++) tn_grad(1, &y[i], 1, &x, &w, &g[i]);
    double value    = tn_item(tn_max_all(tn_abs(tn_sub(y[0], y[1]))));
    double gradient = tn_item(tn_max_all(tn_abs(tn_sub(g[0], g[1]))));
    printf("largest difference from the composed op: %.1e, of gradients %.1e\n", value, gradient);
    printf("%s\n", value < 1e-4 && gradient < 1e-4 ? "they agree" : tn_error_text(cx));
    tn_close(cx);
    return !(value < 1e-4 && gradient < 1e-4);
}
