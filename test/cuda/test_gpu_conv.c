// test_gpu_conv.c: convolution and its gradients on devices with work groups, against ref: sizes at
// the borders of tiles, strides, dilation, padding, groups, both orders of axes, views, all floats.
//
//     TN_CONVS=1000 tenon-tests gpu_conv    draws that many more convolutions instead of 24
#include "check.h"
#include "device_table.h"
#include "gpu_parts.h"
#include "table.h"

#include "device/cuda/conv_cores.h"
#include "device/cuda/conv_direct.h"
#include "device/cuda/cubin.h"
#include "device/cuda/driver.h"
#include "device/cuda/product_cores.h"
#include "device/opencl/opencl.h"
#include "ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// N images of C channels and H by W, O channels of the result. A third axis is the last of each
// list; its taps are 0 if there is none.
typedef struct {
    int64_t N, C, O, groups;
    int64_t size[3], taps[3], step[3], pad[3], dilation[3];
} conv_shape;

#define FAR ((int64_t)1 << 30)

// clang-format off
static const conv_shape shapes[] = {
    //  N    C    O  groups    size       taps      step      pad       dilation
    {   1,   1,   1,  1, {  1,  1 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    {   2,   1,   6,  1, { 28, 28 }, {  5,  5 }, { 1, 1 }, { 2, 2 }, { 1, 1 } },
    {   2,   6,  16,  1, { 14, 14 }, {  5,  5 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    {   1,   3,  64,  1, { 33, 31 }, {  7,  7 }, { 2, 2 }, { 3, 3 }, { 1, 1 } },
    {   2,  64,  64,  1, {  8,  8 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   1,  17,  65,  1, {  9, 15 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   1,   5, 130,  1, { 12, 11 }, {  3,  2 }, { 1, 2 }, { 1, 0 }, { 1, 1 } },
    {   3,  20,  33,  1, {  7,  9 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   1,  70,  96,  1, {  5,  6 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    // Groups, down to one channel each.
    {   2,  34,  66,  2, {  6,  6 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   2,   9,  12,  3, {  9,  8 }, {  3,  3 }, { 2, 1 }, { 1, 1 }, { 1, 2 } },
    {   2,  19,  19, 19, { 12, 13 }, {  3,  3 }, { 2, 2 }, { 1, 1 }, { 1, 1 } },
    {   1,   7,  14,  7, {  9,  9 }, {  5,  3 }, { 1, 1 }, { 2, 1 }, { 1, 1 } },
    {   2,   3,   3,  3, { 70, 80 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    // Windows larger than images, between places, and apart from each other.
    {   2,   3,   5,  1, {  2,  3 }, {  5,  6 }, { 1, 1 }, { 2, 3 }, { 1, 1 } },
    {   2,   4,   5,  1, { 13, 12 }, {  3,  3 }, { 3, 2 }, { 2, 1 }, { 2, 2 } },
    {   1,   4,   5,  1, { 20, 21 }, {  3,  2 }, { 4, 6 }, { 3, 4 }, { 6, 4 } },
    {   2,   3,   8,  1, { 13, 14 }, {  2,  2 }, { 4, 5 }, { 0, 1 }, { 1, 1 } },
    // Much depth in few tiles.
    {   1, 300,   9,  1, {  4,  4 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   1,   9, 300,  1, {  4,  4 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   3,   2,   3,  1, { 60, 70 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   2,   1,   1,  1, { 90, 70 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    // One tap, one place: products.
    {   3,  16,  24,  1, {  5,  7 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    {   1,  70,  66,  1, {  9,  8 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    {   3,  20,  18,  2, {  5,  6 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    {   2,  16,  24,  1, {  7,  6 }, {  1,  1 }, { 2, 2 }, { 0, 0 }, { 1, 1 } },
    {   2,  16,  24,  1, {  3,  4 }, {  1,  1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   5,  16,  20,  1, {  5,  5 }, {  5,  5 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    {   5,  16,  20,  1, {  1,  1 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    // Three axes: tiles, groups, residues of the stride, one tap, one place, much depth.
    {   2,  17,  33,  1, {  4, 5, 6 }, { 3, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } },
    {   2,   6,   9,  3, {  5, 7, 6 }, { 2, 3, 2 }, { 2, 1, 3 }, { 1, 2, 0 }, { 1, 2, 3 } },
    {   1,   5,  10,  5, {  6, 5, 4 }, { 3, 2, 2 }, { 2, 2, 1 }, { 1, 1, 1 }, { 1, 1, 1 } },
    {   2,  16,  24,  1, {  3, 4, 5 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, { 1, 1, 1 } },
    {   3,   8,  20,  1, {  3, 4, 2 }, { 3, 4, 2 }, { 1, 1, 1 }, { 0, 0, 0 }, { 1, 1, 1 } },
    {   1,   2,   3,  1, { 20, 30, 9 }, { 3, 3, 2 }, { 1, 1, 1 }, { 1, 1, 0 }, { 1, 1, 1 } },
    {   4,   9,  70,  1, {  3, 4, 2 }, { 2, 3, 2 }, { FAR, FAR, FAR }, { FAR, FAR, 1 }, { 1, 1, 1 } },
    // Small ones of many images, for which cuda has kernels of its own: one channel, steps,
    // dilation, odd numbers.
    {  40,   1,  32,  1, { 28, 28 }, {  3,  3 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    {   9,  32,  64,  1, { 13, 13 }, {  3,  3 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    {  30,   3,  10,  1, { 33, 30 }, {  5,  3 }, { 2, 1 }, { 2, 1 }, { 1, 1 } },
    {  20,   7,  13,  1, { 16, 21 }, {  3,  3 }, { 1, 2 }, { 2, 3 }, { 2, 1 } },
    // Places past 32 bits, most of them outside of images.
    {  30,   9,  70,  1, {  3,  4 }, {  2,  3 }, { FAR, FAR }, { FAR, FAR }, { 1, 1 } },
    {   5,   6,   6,  6, {  3,  4 }, {  2,  3 }, { FAR, FAR }, { FAR, FAR }, { 1, 1 } },
};

// So many tiles that large ones are best: of many columns, or of many rows of the gradient for w.
static const struct {
    int        op;
    conv_shape shape;
} large[] = {
    { TNI_conv,       { 3,    3,  40, 1, { 106, 106 }, { 2, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } } },
    { TNI_conv_dgrad, { 3,   40,   3, 1, { 106, 106 }, { 2, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } } },
    { TNI_conv,       { 3,   16,  30, 1, { 106, 107 }, { 1, 2 }, { 1, 1 }, { 0, 0 }, { 1, 1 } } },
    { TNI_conv_dgrad, { 3,   30,  16, 1, { 106, 107 }, { 1, 2 }, { 1, 1 }, { 0, 0 }, { 1, 1 } } },
    { TNI_conv_wgrad, { 1, 1870,  63, 1, {   4,   5 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } } },
    { TNI_conv_wgrad, { 1, 1870,  99, 1, {   4,   5 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } } },
};
// Groups of one channel each, in vectors of four.
static const conv_shape single[] = {
    //  N    C    O  groups    size       taps      step      pad       dilation
    {   2,   8,   8,  8, { 12, 13 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   2,  68,  68, 68, {  9, 10 }, {  3,  3 }, { 2, 2 }, { 1, 1 }, { 1, 1 } },
    {   1,   4,   4,  4, { 14, 11 }, {  3,  3 }, { 2, 2 }, { 0, 0 }, { 1, 1 } },
    {   2,  12,  12, 12, {  9,  8 }, {  3,  3 }, { 1, 1 }, { 0, 2 }, { 1, 1 } },
    {   1,   4,   4,  4, {  7, 17 }, {  3,  3 }, { 2, 2 }, { 3, 2 }, { 1, 1 } },
    {   1,   8,   8,  8, {  3,  2 }, {  3,  3 }, { 1, 1 }, { 4, 3 }, { 1, 1 } },
};
// clang-format on
enum {
    SHAPES = sizeof shapes / sizeof *shapes,
    LARGE  = sizeof large / sizeof *large,
    SINGLE = sizeof single / sizeof *single
};

// The sizes of x, w and y, in the order in which their axes lie.
typedef struct {
    int      rank;
    int64_t  x[5], w[5], y[5];
    tni_attr attr;
} conv_sizes;

static int64_t places(const conv_shape *s, int i)
{
    int64_t span = (s->taps[i] - 1) * s->dilation[i] + 1;
    return (s->size[i] + 2 * s->pad[i] - span) / s->step[i] + 1;
}

static void set(int64_t at[5], int axes, int64_t n, int64_t c, const int64_t *places, bool last)
{
    at[0]                   = n;
    at[last ? 1 + axes : 1] = c;
    for (int i = 0; i < axes; i++) at[(last ? 1 : 2) + i] = places[i];
}

static int axes_of(const conv_shape *s)
{
    return s->taps[2] ? 3 : 2;
}

static conv_sizes sizes_of(const conv_shape *s, int last)
{
    int        n = axes_of(s);
    int64_t    y[3];
    conv_sizes z = { .rank = 2 + n, .attr.conv = { .groups = s->groups, .channels_last = last } };
    for (int i = 0; i < n; i++) y[i] = places(s, i);
    set(z.x, n, s->N, s->C, s->size, last);
    set(z.w, n, s->O, s->C / s->groups, s->taps, last == TNI_WEIGHTS_LAST);
    set(z.y, n, s->N, s->O, y, last);
    for (int i = 0; i < n; i++) {
        z.attr.conv.stride[i]   = s->step[i];
        z.attr.conv.padding[i]  = s->pad[i];
        z.attr.conv.dilation[i] = s->dilation[i];
    }
    return z;
}

static tn_tensor *build(int op, const conv_sizes *z, tn_tensor *a, tn_tensor *b)
{
    if (op == TNI_conv) return tni_conv(a, b, &z->attr);
    return op == TNI_conv_dgrad ? tni_conv_dgrad(a, b, z->x, &z->attr)
                                : tni_conv_wgrad(a, b, z->w, &z->attr);
}

static double depth_of(int op, const conv_shape *s)
{
    double taps = 1, all = (double)s->N;
    for (int i = 0; i < axes_of(s); i++) {
        taps *= (double)s->taps[i];
        all *= (double)places(s, i);
    }
    if (op == TNI_conv_wgrad) return all;
    return taps * (double)((op == TNI_conv ? s->C : s->O) / s->groups);
}

// One op of one convolution, with operands that lie as asked for.
static void compare(tn_ctx *const *cx, int op, const conv_shape *s, int last, tn_dtype dt,
                    const layout lay[2], double coarse)
{
    conv_sizes z    = sizes_of(s, last);
    input      a    = input_make(dt, lay[0], z.rank, op == TNI_conv ? z.x : z.y, TAME);
    input      b    = input_make(dt, lay[1], z.rank, op == TNI_conv_wgrad ? z.x : z.w, TAME);
    tn_scope  *t[2] = { tn_begin(cx[0]), tn_begin(cx[1]) };
    tn_tensor *y[2], *bound = NULL;
    char       text[256] = "";
    for (int d = 0; d < 2; d++) {
        tn_tensor *u = input_put(&a, cx[d]), *v = input_put(&b, cx[d]);
        y[d] = build(op, &z, u, v);
        if (d) bound = build(op, &z, tn_abs(tn_cast(u, TN_F64)), tn_abs(tn_cast(v, TN_F64)));
    }
    bool ok = agrees(y[0], y[1],
                     (tolerance){
                         .how = SUMS, .depth = depth_of(op, s), .bound = bound, .coarse = coarse },
                     text);
    test_case_result(ok, "%s of %s%s, layouts %d %d: %d x %d -> %d in %d, %s by %s: %s %s",
                     tni_op_table[op].name, tn_dtype_name(dt),
                     last == TNI_WEIGHTS_LAST ? ", all channels last"
                     : last                   ? ", channels last"
                                              : "",
                     lay[0], lay[1], (int)s->N, (int)s->C, (int)s->O, (int)s->groups,
                     tni_shape_text(axes_of(s), s->size).s, tni_shape_text(axes_of(s), s->taps).s,
                     text, tn_error_text(cx[0]));
    for (int d = 0; d < 2; d++) tn_end(t[d]);
    input_free(&a);
    input_free(&b);
}

// Weights in another order matter most where they are written.
static void compare_all(tn_ctx *const *cx, const conv_shape *s, tn_dtype dt, const layout lay[2])
{
    for (int last = 0; last <= TNI_WEIGHTS_LAST; last++)
        for (int op = TNI_conv; op <= TNI_conv_wgrad; op++)
            if (last < TNI_WEIGHTS_LAST || op == TNI_conv_wgrad || dt != TN_F32 || s->groups > 1)
                compare(cx, op, s, last, dt, lay, 0);
}

// ---- on the tensor cores -----------------------------------------------------------------------

// clang-format off
static const conv_shape cores_shapes[] = {
    //  N    C    O  groups    size       taps      step      pad       dilation
    {   2,  64,  64,  1, {  6,  7 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   1,  40, 136,  1, {  5,  7 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   1, 136,  72,  1, {  9,  8 }, {  3,  3 }, { 2, 2 }, { 1, 1 }, { 1, 1 } },
    {   1,   8,   8,  1, { 20, 21 }, {  3,  2 }, { 3, 2 }, { 2, 1 }, { 2, 3 } },
    {   2,  16,  24,  1, {  9,  8 }, {  2,  2 }, { 4, 5 }, { 0, 1 }, { 1, 1 } },
    {   2,  64,  96,  1, {  9,  7 }, {  1,  1 }, { 2, 2 }, { 0, 0 }, { 1, 1 } },
    {   2,  24,  16,  1, {  3,  4 }, {  1,  1 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   3,  64,  64,  4, {  7,  9 }, {  3,  3 }, { 1, 2 }, { 1, 1 }, { 1, 1 } },
    // Channels that are no vectors of 16 bytes: of 8, 4 and 2.
    {   1,  12,  64,  1, { 11, 12 }, {  4,  4 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    {   2,  18,  20,  1, { 11,  9 }, {  3,  3 }, { 2, 1 }, { 1, 1 }, { 1, 1 } },
    {   1,   3,  17,  1, { 33, 31 }, {  7,  7 }, { 2, 2 }, { 3, 3 }, { 1, 1 } },
    {   2,  21,  11,  1, {  7,  9 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    // Sums that are split.
    {   1, 256,  72,  1, {  4,  4 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   4,   8,   8,  1, { 40, 41 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    // One axis and three.
    {   3,  48,  40,  1, {  1, 37 }, {  1,  5 }, { 1, 2 }, { 0, 2 }, { 1, 2 } },
    {   1,  16,  40,  1, {  3, 5, 4 }, { 3, 3, 3 }, { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 } },
    {   2,  16,  24,  2, {  5, 7, 6 }, { 2, 3, 2 }, { 2, 1, 3 }, { 1, 2, 0 }, { 1, 2, 3 } },
};
// So many tiles that large ones are best, of each number of columns, and sums that are long.
static const conv_shape cores_large[] = {
    {  64,  64,  64,  1, { 56, 56 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {  64, 128, 256,  1, { 29, 28 }, {  3,  3 }, { 2, 2 }, { 1, 1 }, { 1, 1 } },
    {  32, 256, 200,  1, { 28, 28 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
};
// clang-format on
enum {
    CORES       = sizeof cores_shapes / sizeof *cores_shapes,
    CORES_LARGE = sizeof cores_large / sizeof *cores_large
};

// Each part by each kind of product, in a tile of its own; pieces of operands are spread over them.
static const tni_conv_case texts[] = {
    { TNI_CONV_FORWARD, true, false, true, true, 16, 16, 8, 2, 16, 4, 1, 1, 0, 0, 0 },
    { TNI_CONV_DATA, false, false, true, true, 16, 16, 4, 2, 16, 3, 0, 2, 0, 0, 0 },
    { TNI_CONV_WEIGHTS, true, false, true, true, 16, 16, 8, 2, 8, 5, 1, 1, 0, 0, 0 },
    { TNI_CONV_FORWARD, false, false, false, true, 8, 8, 4, 2, 16, 3, 0, 2, 0, 0, 0 },
    { TNI_CONV_DATA, true, false, false, false, 16, 2, 4, 1, 16, 3, 0, 3, 0, 0, 0 },
    { TNI_CONV_WEIGHTS, false, true, false, true, 16, 4, 4, 1, 8, 3, 0, 4, 0, 0, 0 },
    { TNI_CONV_FORWARD, false, false, false, true, 16, 16, 4, 2, 16, 3, 0, 2, true, true, false },
    { TNI_CONV_FORWARD, false, false, false, false, 4, 8, 4, 1, 8, 3, 0, 4, true, false, true },
};

static void texts_of_the_tensor_cores_compile_and_do_not_spill(void)
{
    tni_heap heap = tni_heap_default();
    tni_text why  = { "" };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tni_cubin c    = { 0 };
        tni_usage u    = { 0 };
        char     *text = tni_conv_cores_source(&heap, &texts[i]);
        if (!CHECK(text != NULL)) return;
        tn_status s = tni_cubin_compile(&c, text, texts[i].wgmma ? "sm_90a" : "sm_80", true, &why);
        test_case_result(s == TN_OK && !strstr(c.log, "warning") && !strstr(c.log, "serialized"),
                         "text %d: %s", (int)i, s == TN_OK ? c.log : why.s);
        if (s == TN_OK && CHECK(tni_cubin_usage(&c, "conv_product", &u)))
            test_case_result(u.spills == 0 && u.stack == 0, "text %d: %d bytes spilled", (int)i,
                             u.spills);
        tni_cubin_free(&c);
        tni_free(&heap, text);
    }
}

// Without cuDNN, whatever is installed. Operands of TF32 are rounded to 11 bits.
static void run_cores(int part, int parts)
{
    static const tn_dtype dtypes[] = { TN_F16, TN_BF16, TN_F32 };
    static const layout   plain[]  = { PLAIN, PLAIN };
    setenv("TN_CUDNN", "none", 1);
    setenv("TN_TF32", "1", 1);
    tn_ctx *cx[] = { open_eager(tested_device(), false), open_quiet("ref", 1) };
    for (int k = part; cx[0] && k < 3 * CORES; k += parts)
        for (int op = TNI_conv; op <= TNI_conv_wgrad; op++)
            compare(cx, op, &cores_shapes[k / 3], TNI_WEIGHTS_LAST, dtypes[k % 3], plain,
                    dtypes[k % 3] == TN_F32 ? ldexp(1, -10) : 0);
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// Whether tn_explain names a method for what is pending.
static bool names_method(tn_ctx *cx, const char *name)
{
    char  text[8192] = { 0 };
    FILE *f          = tmpfile();
    bool  ok         = f && tn_explain(cx, f) == TN_OK;
    if (f) rewind(f);
    ok = ok && fread(text, 1, sizeof text - 1, f) > 0 && strstr(text, name) != NULL;
    if (f) fclose(f);
    return ok;
}

// In 16 bits against f32 of the same operands, which other kernels compute: ref would take minutes.
// The rest is what rounding the result allows: half a unit, relative to the largest element.
static void run_large_cores(int part, int parts)
{
    static const tn_dtype dtypes[] = { TN_F16, TN_BF16 };
    setenv("TN_CUDNN", "none", 1);
    setenv("TN_TF32", "0", 1);
    tn_ctx *cx = open_seeded(tested_device(), 3);
    for (int k = part; cx && k < 6 * CORES_LARGE; k += parts) {
        int        op = TNI_conv + k % 3;
        tn_dtype   dt = dtypes[k / 3 % 2];
        conv_sizes z  = sizes_of(&cores_large[k / 6], TNI_WEIGHTS_LAST);
        tn_scope  *t  = tn_begin(cx);
        tn_tensor *a  = tn_cast(tn_randn(cx, TN_F32, z.rank, op == TNI_conv ? z.x : z.y), dt);
        tn_tensor *b  = tn_cast(tn_randn(cx, TN_F32, z.rank, op == TNI_conv_wgrad ? z.x : z.w), dt);
        tn_tensor *y  = tn_cast(build(op, &z, a, b), TN_F32);
        CHECK(names_method(cx, "Tenon's product"));
        tn_tensor *want = build(op, &z, tn_cast(a, TN_F32), tn_cast(b, TN_F32));
        double     far  = tn_item(tn_max_all(tn_abs(tn_sub(y, want))));
        double     most = tn_item(tn_max_all(tn_abs(want)));
        test_case_result(far <= 1.01 * ldexp(most, dt == TN_F16 ? -11 : -8),
                         "large %d: off by %g of %g: %s", k, far, most, tn_error_text(cx));
        tn_end(t);
    }
    tn_close(cx);
}

static void large_convolutions_on_the_tensor_cores_agree_with_f32(void)
{
    in_parts(run_large_cores, 3);
}

static void convolutions_on_the_tensor_cores_agree_with_ref(void)
{
    in_parts(run_cores, 6);
}

// ---- in 16 bits, and with what follows ---------------------------------------------------------

// clang-format off
static const conv_shape narrow[] = {
    // A window for each channel: beside the ends of vectors, strips and bands, and less than one of
    // them.
    {   2,  72,  72, 72, { 17, 21 }, {  3,  3 }, { 1, 1 }, { 1, 1 }, { 1, 1 } },
    {   2,  24,  24, 24, { 19, 34 }, {  3,  3 }, { 2, 2 }, { 1, 1 }, { 1, 1 } },
    {   1,   8,   8,  8, {  3,  4 }, {  3,  3 }, { 2, 2 }, { 0, 2 }, { 1, 1 } },
    {   3,  16,  16, 16, {  1,  2 }, {  3,  3 }, { 1, 1 }, { 3, 1 }, { 1, 1 } },
    // What a library computes with its ending.
    {   2,  16,  24,  1, {  7,  9 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    {   2,  32,  40,  1, {  9,  8 }, {  3,  3 }, { 2, 2 }, { 1, 1 }, { 1, 1 } },
};
// clang-format on
enum { NARROW = sizeof narrow / sizeof *narrow };

// y (N, places, O) with what networks let follow a convolution: b (O) in f32, r of y's shape.
static tn_tensor *end_plain(tn_tensor *y, tn_tensor *b, tn_tensor *r)
{
    return (void)b, (void)r, y;
}

static tn_tensor *end_norm(tn_tensor *y, tn_tensor *b, tn_tensor *r)
{
    return (void)r, tn_relu(tn_cast(tn_add(tn_cast(y, TN_F32), b), tn_dtype_of(y)));
}

static tn_tensor *end_residual(tn_tensor *y, tn_tensor *b, tn_tensor *r)
{
    return tn_relu(tn_add(r, tn_cast(tn_add(tn_cast(y, TN_F32), b), tn_dtype_of(y))));
}

static tn_tensor *end_clamp(tn_tensor *y, tn_tensor *b, tn_tensor *r)
{
    return (void)r, tn_clamp(tn_cast(tn_add(tn_cast(y, TN_F32), b), tn_dtype_of(y)), 0, 6);
}

static tn_tensor *end_silu(tn_tensor *y, tn_tensor *b, tn_tensor *r)
{
    return (void)b, (void)r, tn_silu(y);
}

// A residual that a long kernel makes right before: the largest of min(r, 100), min(r, 101), ...,
// which is r. A library whose kernel begins early must not add what was in memory before.
static tn_tensor *end_made(tn_tensor *y, tn_tensor *b, tn_tensor *r)
{
    tn_dtype   dt = tn_dtype_of(r);
    tn_tensor *k  = tn_cast(tn_arange(tn_ctx_of(r), TN_F32, 100, 228, 1), dt);
    return end_residual(y, b, tn_want(tn_max(tn_minimum(tn_unsqueeze(r, -1), k), -1)));
}

// What is wanted besides: the result of the convolution itself, or what the ending has on its way.
static tn_tensor *beside;

static tn_tensor *end_twice(tn_tensor *y, tn_tensor *b, tn_tensor *r)
{
    beside = tn_want(y);
    return end_norm(y, b, r);
}

static tn_tensor *end_input(tn_tensor *y, tn_tensor *b, tn_tensor *r)
{
    beside = tn_want(tn_cast(tn_add(tn_cast(y, TN_F32), b), tn_dtype_of(y)));
    return (void)r, tn_silu(beside);
}

static tn_tensor *rows_of(tn_tensor *y)
{
    int64_t width = tn_size(y, -1);
    return tn_reshape(y, TN_SHAPE(tn_count(y) / width, width));
}

// The statistics of the columns, of many rows as differences to the first, and what is made of
// them.
static tn_tensor *end_statistics(tn_tensor *y, tn_tensor *b, tn_tensor *r)
{
    tn_batch_norm_opts training = { .training = true };
    beside                      = tn_want(y);
    return (void)r, tn_batch_norm(rows_of(y), NULL, NULL, b, NULL, training);
}

// The gradient of a relu, stored, and two column sums of it, as the gradient of a batch norm has
// them.
static tn_tensor *end_sums(tn_tensor *y, tn_tensor *b, tn_tensor *r)
{
    tn_tensor *g = tn_where(tn_gt_s(r, 0), y, tn_full(tn_ctx_of(y), tn_dtype_of(y), TN_0D, 0));
    tn_tensor *z = tn_cast(rows_of(g), TN_F32), *x = tn_sub(tn_cast(rows_of(r), TN_F32), b);
    double     n = (double)tn_size(z, 0);
    beside       = tn_want(g);
    tn_tensor *s = tn_add(tn_abs(tn_sum(z, 0)), tn_mul_s(tn_abs(tn_sum(tn_mul(z, x), 0)), 2));
    return tn_cast(tn_mul_s(s, 1 / n), tn_dtype_of(y));
}

static tn_tensor *(*const endings[])(tn_tensor *y, tn_tensor *b, tn_tensor *r) = {
    end_plain, end_norm,  end_residual, end_clamp,      end_silu,
    end_made,  end_twice, end_input,    end_statistics, end_sums
};
enum { ENDINGS = sizeof endings / sizeof *endings };

// What endings follow: a convolution or, of one tap, the same as a product of matrices, by rows;
// and a data gradient, and a product by columns, whose weights are in another order.
typedef enum { OF_CONV, OF_ROWS, OF_GRAD, OF_COLUMNS, KINDS } ended;

static tn_tensor *before_ending(ended of, const conv_sizes *z, tn_tensor *x, tn_tensor *w)
{
    int64_t from = z->x[z->rank - 1], to = z->w[0];
    if (of == OF_CONV) return tni_conv(x, w, &z->attr);
    if (of == OF_ROWS) return tn_matmul(x, tn_transpose(tn_reshape(w, TN_SHAPE(to, from)), 0, 1));
    if (of == OF_COLUMNS) return tn_matmul(x, tn_reshape(w, TN_SHAPE(from, to)));
    int64_t turned[5]   = { from, 1, 1, 1, 1 };
    turned[z->rank - 1] = to;
    return tni_conv_dgrad(x, tn_reshape(w, z->rank, turned), z->y, &z->attr);
}

// x (N, places, C) as networks make it: b (C) in f32, r of x's shape.
static tn_tensor *begin_plain(tn_tensor *x, tn_tensor *b, tn_tensor *r)
{
    return (void)b, (void)r, x;
}

static tn_tensor *begin_norm(tn_tensor *x, tn_tensor *b, tn_tensor *r)
{
    return (void)r, tn_relu(tn_cast(tn_mul(tn_cast(x, TN_F32), b), tn_dtype_of(x)));
}

// What a gradient reads, too.
static tn_tensor *begin_residual(tn_tensor *x, tn_tensor *b, tn_tensor *r)
{
    tn_tensor *y = tn_cast(tn_add(tn_cast(x, TN_F32), b), tn_dtype_of(x));
    return tn_want(tn_relu(tn_add(r, y)));
}

// The gradient of a batch norm behind a relu.
static tn_tensor *begin_gradient(tn_tensor *x, tn_tensor *b, tn_tensor *r)
{
    tn_tensor *g = tn_where(tn_gt_s(r, 0), x, tn_full(tn_ctx_of(x), tn_dtype_of(x), TN_0D, 0));
    tn_tensor *y = tn_sub(tn_cast(g, TN_F32), tn_mul(tn_cast(r, TN_F32), b));
    return tn_want(tn_cast(tn_mul(y, b), tn_dtype_of(x)));
}

static tn_tensor *(*const beginnings[])(tn_tensor *x, tn_tensor *b,
                                        tn_tensor *r) = { begin_plain, begin_norm, begin_residual,
                                                          begin_gradient };
enum { BEGINNINGS = sizeof beginnings / sizeof *beginnings };

// A tensor of 16 bits in another context.
static tn_tensor *copy_to(tn_ctx *cx, tn_tensor *x, int rank, const int64_t *size)
{
    int64_t    count = tn_count(x);
    float     *data  = malloc((size_t)count * sizeof *data);
    tn_tensor *y     = NULL;
    if (CHECK(data && tn_read(x, TN_F32, data, count) == TN_OK))
        y = tn_cast(tn_from(cx, TN_F32, rank, size, data), tn_dtype_of(x));
    free(data);
    return y;
}

// The same values where no vector of 16 bytes begins.
static tn_tensor *misplaced(tn_tensor *x, int rank, const int64_t *size)
{
    tn_ctx    *cx     = tn_ctx_of(x);
    int64_t    count  = tn_count(x);
    tn_tensor *part[] = { tn_zeros(cx, tn_dtype_of(x), TN_SHAPE(1)),
                          tn_reshape(x, TN_SHAPE(count)) };
    tn_tensor *all    = tn_want(tn_concat(2, part, 0));
    CHECK(tn_eval(cx) == TN_OK);
    return tn_reshape(tn_slice(all, 0, 1, TN_TO_END, 1), rank, size);
}

// Twice, so that what was timed and chosen is compared too, and what has a beginning a third time
// at other addresses. The product is compared with that of what the device began with, whose
// rounding is no part of its sums.
static void compare_ending(tn_ctx *const *cx, ended of, const conv_shape *s, tn_dtype dt, int begin,
                           int e)
{
    conv_sizes z      = sizes_of(s, TNI_WEIGHTS_LAST);
    input      x      = input_make(dt, PLAIN, z.rank, z.x, TAME);
    input      w      = input_make(dt, PLAIN, z.rank, z.w, TAME);
    input      b      = input_make(TN_F32, PLAIN, 1, &s->O, TAME);
    input      r      = input_make(dt, PLAIN, z.rank, z.y, TAME);
    input      scale  = input_make(TN_F32, PLAIN, 1, &s->C, TAME);
    input      before = input_make(dt, PLAIN, z.rank, z.x, TAME);
    for (int run = 0; run < (begin ? 3 : 2); run++) {
        tn_scope  *t[2] = { tn_begin(cx[0]), tn_begin(cx[1]) };
        tn_tensor *y[2], *also[2], *made[2], *bound = NULL;
        char       text[256] = "";
        for (int d = 0; d < 2; d++) {
            tn_tensor *u = input_put(&x, cx[d]), *v = input_put(&w, cx[d]),
                      *c = input_put(&b, cx[d]), *q = input_put(&r, cx[d]);
            beside = NULL;
            if (run == 2 && !d) u = misplaced(u, z.rank, z.x);
            made[d] = beginnings[begin](u, input_put(&scale, cx[d]), input_put(&before, cx[d]));
            if (begin && d) u = copy_to(cx[1], made[0], z.rank, z.x);
            else u = made[d];
            y[d]    = endings[e](before_ending(of, &z, u, v), c, q);
            also[d] = beside;
            // In a step what nothing wants is not stored.
            if (begin && !d) CHECK(tn_want(y[0]) && tn_eval(cx[0]) == TN_OK);
            if (d)
                bound = before_ending(of, &z, tn_abs(tn_cast(u, TN_F64)),
                                      tn_abs(tn_cast(v, TN_F64)));
        }
        // A kernel of its own rounds what the library and our kernels keep in f32.
        tolerance sums = { .how = SUMS, .depth = depth_of(TNI_conv, s), .bound = bound };
        tolerance near = { .how = CLOSELY, .steps = 3 };
        bool      ok   = agrees(y[0], y[1], e ? near : sums, text);
        if (beside)
            ok = ok && agrees(also[0], also[1],
                              endings[e] == end_twice || endings[e] == end_statistics ? sums : near,
                              text);
        if (begin)
            ok = ok && agrees(made[0], made[1], (tolerance){ .how = CLOSELY, .steps = 1 }, text);
        test_case_result(
            ok,
            "beginning %d and ending %d of %s, kind %d, %d to %d channels in %d groups, "
            "run %d: %s %s",
            begin, e, tn_dtype_name(dt), of, (int)s->C, (int)s->O, (int)s->groups, run, text,
            tn_error_text(cx[0]));
        for (int d = 0; d < 2; d++) tn_end(t[d]);
    }
    input_free(&x);
    input_free(&w);
    input_free(&b);
    input_free(&r);
    input_free(&scale);
    input_free(&before);
}

static void endings_on(const char *device, ended of, const conv_shape *shape, int count, int part,
                       int parts, int first, int most)
{
    tn_ctx *cx[] = { open_eager(device, false), open_quiet("ref", 1) };
    for (int k = part; cx[0] && k < count * most; k += parts) {
        if (k % most < first) continue;
        table_seed(500 + (uint32_t)k);
        const conv_shape *s = &shape[k / most];
        // Of many places ref would take minutes.
        if (endings[k % most] == end_made && s->N * s->O * s->size[0] * s->size[1] > 1 << 18)
            continue;
        tn_dtype dt = (s->step[0] + k / most + k % most) % 2 ? TN_BF16 : TN_F16;
        compare_ending(cx, of, s, dt, 0, k % most);
    }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

// Beginnings with a norm's ending, a residual's, one that is stored twice, and column sums: two of
// the pairs for each shape and kind, which are all of them in the end.
static void beginnings_on(const char *device, ended of, const conv_shape *shape, int count,
                          int part, int parts)
{
    static const int with[] = { 1, 2, 6, 8, 9 };
    enum { WITH = sizeof with / sizeof *with };
    tn_ctx *cx[] = { open_eager(device, false), open_quiet("ref", 1) };
    for (int k = part; cx[0] && k < count * 2; k += parts) {
        int pair = ((int)of * count * 2 + k) % ((BEGINNINGS - 1) * WITH);
        table_seed(900 + (uint32_t)k);
        compare_ending(cx, of, &shape[k / 2], k % 3 ? TN_BF16 : TN_F16, 1 + pair / WITH,
                       with[pair % WITH]);
    }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

static void run_endings(int part, int parts)
{
    endings_on(tested_device(), OF_CONV, narrow, NARROW, part, parts, 0, ENDINGS);
}

static void what_follows_a_convolution_agrees_with_ref(void)
{
    in_parts(run_endings, 4);
}

// No device but cuda has endings.
static void convolutions_of_opencl_in_16_bits_agree_with_ref(void)
{
    if (!tni_cl_get()) SKIP("no opencl device: %s", tni_cl_detail());
    endings_on("opencl", OF_CONV, narrow, NARROW, 0, 1, 0, 1);
}

// Whether the product of rows by rows computes what it is to: tn_explain names it once it ran.
static void uses_tiles(tn_ctx *cx, ended of, const conv_shape *s, int begin, int e)
{
    conv_sizes z = sizes_of(s, TNI_WEIGHTS_LAST);
    for (int run = 0; run < 2; run++) {
        tn_scope  *t      = tn_begin(cx);
        tn_tensor *x      = tn_full(cx, TN_F16, z.rank, z.x, 1),
                  *w      = tn_full(cx, TN_F16, z.rank, z.w, 1);
        tn_tensor *b      = tn_full(cx, TN_F32, TN_SHAPE(s->O), 1),
                  *r      = tn_full(cx, TN_F16, z.rank, z.y, 1);
        tn_tensor *scale  = tn_want(tn_full(cx, TN_F32, TN_SHAPE(s->C), 1)),
                  *before = tn_want(tn_full(cx, TN_F16, z.rank, z.x, 1));
        tn_want(x);
        tn_want(w);
        tn_want(b);
        tn_want(r);
        tn_eval(cx);
        tn_want(endings[e](before_ending(of, &z, beginnings[begin](x, scale, before), w), b, r));
        if (run)
            test_that(
                names_method(cx, "Tenon's tiles") && !names_method(cx, "two launches") &&
                    names_method(cx, "the next step") == (begin > 0),
                "beginning %d and ending %d of kind %d are not by the product of rows by rows",
                begin, e, of);
        CHECK(tn_eval(cx) == TN_OK);
        tn_end(t);
    }
}

// By the product of rows by rows alone, which takes those of one tap: less than a tile, ends of
// tiles of each width, depth that is no multiple of a stage's, more stages than fit, and more tiles
// than a GPU has room for.
static void run_tiles(int part, int parts)
{
    // clang-format off
    static const conv_shape of[] = {
        {   1,  64,  64,  1, {  5,  7 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
        {   3,   8,  32,  1, {  9, 17 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
        {   2, 136,  96,  1, { 11, 13 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
        {   1, 200, 160,  1, { 12, 11 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
        {   2, 320, 288,  1, {  9,  8 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
        {   8,  16,  32,  1, { 67, 65 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
        {   1,  72,  96,  1, { 65, 64 }, {  1,  1 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
        {   1, 520,  32,  1, { 3, 5, 9 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, { 1, 1, 1 } },
    };
    // clang-format on
    setenv("TN_METHOD", "Tenon's tiles", 1);
    for (int k = 0; k < KINDS; k++)
        endings_on(tested_device(), (ended)k, of, sizeof of / sizeof *of, part, parts,
                   k < OF_GRAD ? 0 : ENDINGS - 3, ENDINGS);
    for (int k = 0; k < KINDS; k++)
        beginnings_on(tested_device(), (ended)k, of, sizeof of / sizeof *of, part, parts);
    tn_ctx *cx = part ? NULL : open_eager(tested_device(), false);
    for (int k = 0; cx && k < KINDS; k++) {
        uses_tiles(cx, (ended)k, &of[0], 0, 4);
        for (int e = ENDINGS - 2; e < ENDINGS; e++) uses_tiles(cx, (ended)k, &of[5], 0, e);
        for (int b = 1; b < BEGINNINGS; b++) uses_tiles(cx, (ended)k, &of[5], b, ENDINGS - b);
    }
    tn_close(cx);
}

static void products_of_rows_by_rows_and_what_is_around_them_agree_with_ref(void)
{
    in_parts(run_tiles, 4);
}

static void texts_of_products_of_rows_by_rows_compile_and_do_not_spill(void)
{
    tni_heap heap = tni_heap_default();
    tni_text why  = { "" };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    static const char prologue[] =
        "typedef struct { char *from[16]; m_ulong number[16]; } ending_args;\n"
        "#define PROLOGUE_PARAMS , GIVEN ending_args p\n"
        "#define PROLOGUE_COLUMNS(columns) struct { float e[EACH]; } columns;\n"
        "#define PROLOGUE_BEGIN(columns, c) ENDING_LOAD(columns.e, (const float *)p.from[3] + (c))\n"
        "#define PROLOGUE(v, columns, c, at) { m_ushort x[EACH]; "
        "PROLOGUE_FETCH(1, x, (const m_ushort *)p.from[1] + (at)) for (int k = 0; k < EACH; k++) "
        "v[k] = v[k] * columns.e[k] + element(x[k]); }\n";
    for (int i = 0; i < 2 * TNI_PRODUCT_TILES - 1; i++) {
        tni_product_case x =
            tni_product_tiles[i < TNI_PRODUCT_TILES ? i : i - TNI_PRODUCT_TILES + 1];
        tni_cubin c = { 0 };
        tni_usage u = { 0 };
        x.f16       = i % 2;
        x.twice     = i == 1;
        x.nears     = i % TNI_PRODUCT_TILES;
        x.turned    = i > 0;
        if (i >= TNI_PRODUCT_TILES) {
            x.has_prologue = x.kept = true;
            x.changes = x.changed[0] = 1;
            x.prologue               = prologue;
        }
        tni_product_cores_panels(&x);
        char *text = tni_product_cores_source(&heap, &x);
        if (!CHECK(text != NULL)) return;
        tn_status s = tni_cubin_compile(&c, text, "sm_90a", true, &why);
        test_case_result(s == TN_OK && !strstr(c.log, "warning") && !strstr(c.log, "serialized") &&
                             !strstr(c.log, "setmaxnreg"),
                         "tile %d: %s", i, s == TN_OK ? c.log : why.s);
        if (s == TN_OK && CHECK(tni_cubin_usage(&c, "cores_product", &u)))
            test_case_result(u.spills == 0 && u.stack == 0, "tile %d: %d bytes spilled", i,
                             u.spills);
        tni_cubin_free(&c);
        tni_free(&heap, text);
    }
}

// ---- the table, and what is drawn --------------------------------------------------------------

static conv_shape draw_shape(void)
{
    conv_shape s   = { .N = 1 + draw_below(4), .groups = draw_below(3) ? 1 : 1 + draw_below(4) };
    int64_t    big = draw_below(4);
    s.C            = s.groups * (1 + draw_below(big == 0 ? 70 : 9));
    s.O            = s.groups * (1 + draw_below(big == 1 ? 140 : 9));
    int axes       = draw_below(4) ? 2 : 3;
    for (int i = 0; i < axes; i++) {
        s.taps[i]     = 1 + draw_below(4);
        s.step[i]     = 1 + draw_below(3);
        s.dilation[i] = 1 + draw_below(3);
        s.pad[i]      = draw_below(4);
        s.size[i]     = 1 + draw_below(big == 2 ? 30 : 12);
        int64_t span  = (s.taps[i] - 1) * s.dilation[i] + 1;
        if (s.size[i] + 2 * s.pad[i] < span) s.size[i] = span;
    }
    return s;
}

static int drawn(void)
{
    const char *n = getenv("TN_CONVS");
    return n ? atoi(n) : 24;
}

static void convs_on(const char *device, int part, int parts, int draws)
{
    static const tn_dtype others[] = { TN_F64, TN_BF16, TN_F16 };
    static const layout   plain[]  = { PLAIN, PLAIN };
    tn_ctx               *cx[]     = { open_eager(device, false), open_quiet("ref", 1) };
    int                   all      = SHAPES + draws;
    for (int k = part; cx[0] && k < all; k += parts) {
        table_seed(100 + (uint32_t)k);
        conv_shape s     = k < SHAPES ? shapes[k] : draw_shape();
        layout     any[] = { (layout)draw_below(BROADCAST), (layout)draw_below(BROADCAST) };
        compare_all(cx, &s, TN_F32, k < SHAPES ? plain : any);
        if (k % 3 == 0 || (k < SHAPES && s.step[0] == FAR))
            compare_all(cx, &s, others[k / 3 % 3], any);
    }
    for (int k = part; cx[0] && k < 3 * LARGE; k += parts)
        compare(cx, large[k / 3].op, &large[k / 3].shape, k % 3, TN_F32, plain, 0);
    tn_close(cx[0]);
    tn_close(cx[1]);
}

static void run_convs(int part, int parts)
{
    convs_on(tested_device(), part, parts, drawn());
}

static void convolutions_agree_with_ref(void)
{
    in_parts(run_convs, 4);
}

// With channels last, in 16 bits: by a kernel of their own, on cuda too, where cuDNN may be faster.
static void single_on(const char *device, int part, int parts)
{
    static const tn_dtype dtypes[] = { TN_F16, TN_BF16 };
    static const layout   plain[]  = { PLAIN, PLAIN };
    setenv("TN_METHOD", "depthwise", 1);
    tn_ctx *cx[] = { open_eager(device, false), open_quiet("ref", 1) };
    for (int k = part; cx[0] && k < 2 * SINGLE; k += parts)
        for (int last = 1; last <= TNI_WEIGHTS_LAST; last++) {
            compare(cx, TNI_conv, &single[k / 2], last, dtypes[k % 2], plain, 0);
            compare(cx, TNI_conv_dgrad, &single[k / 2], last, dtypes[k % 2], plain, 0);
        }
    tn_close(cx[0]);
    tn_close(cx[1]);
}

static void run_single(int part, int parts)
{
    single_on(tested_device(), part, parts);
}

static void convolutions_of_single_channels_agree_with_ref(void)
{
    in_parts(run_single, 2);
}

static void convolutions_of_single_channels_on_opencl_agree_with_ref(void)
{
    if (!tni_cl_get()) SKIP("no opencl device: %s", tni_cl_detail());
    single_on("opencl", 0, 1);
    unsetenv("TN_METHOD");
}

static void convolutions_of_opencl_agree_with_ref(void)
{
    if (!tni_cl_get()) SKIP("no opencl device: %s", tni_cl_detail());
    convs_on("opencl", 0, 1, test_long() ? drawn() : drawn() / 4);
}

// Images may be none: then the gradient for w is a sum of nothing.
static void no_images_give_no_gradient_on_opencl(void)
{
    if (!tni_cl_get()) SKIP("no opencl device: %s", tni_cl_detail());
    tn_ctx    *cx = open_eager("opencl", false);
    conv_shape s = shapes[2], d = shapes[11];
    s.N = d.N    = 0;
    conv_sizes z = sizes_of(&s, false), zd = sizes_of(&d, false);
    tn_tensor *w = tni_conv_wgrad(tn_ones(cx, TN_F32, 4, z.y), tn_ones(cx, TN_F32, 4, z.x), z.w,
                                  &z.attr);
    CHECK_NEAR(tn_item(tn_sum_all(tn_abs(w))), 0, 0);
    w = tni_conv_wgrad(tn_ones(cx, TN_F32, 4, zd.y), tn_ones(cx, TN_F32, 4, zd.x), zd.w, &zd.attr);
    CHECK_NEAR(tn_item(tn_sum_all(tn_abs(w))), 0, 0);
    tn_close(cx);
}

// A call of row-major operands, without addresses.
static tni_call call_of(int op, const conv_sizes *z, tni_arg in[2])
{
    const int64_t *size[] = { op == TNI_conv ? z->x : z->y, op == TNI_conv_wgrad ? z->x : z->w,
                              op == TNI_conv         ? z->y
                              : op == TNI_conv_dgrad ? z->x
                                                     : z->w };
    tni_call c = { .op = op, .attr = &z->attr, .nin = 2, .in = in };
    for (int i = 0; i < 3; i++) {
        tni_arg *x = i < 2 ? &in[i] : &c.out;
        *x         = (tni_arg){ .dtype = TN_F32, .rank = z->rank };
        memcpy(x->size, size[i], (size_t)z->rank * sizeof *x->size);
        tni_shape_strides(z->rank, x->size, x->stride);
    }
    return c;
}

// The kernels of lenet's second convolution and of its first one's gradient for w, on an H200 and
// on the smallest chip that has their shared memory.
static void texts_of_small_convolutions_compile_and_do_not_spill(void)
{
    static const tni_simt_limits gpu  = { .units = 132, .shared_bytes = 163 * 1024 };
    static const conv_shape      of[] = {
             { 64, 1, 32, 1, { 28, 28 }, { 3, 3 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
             { 64, 32, 64, 1, { 13, 13 }, { 3, 3 }, { 1, 1 }, { 0, 0 }, { 1, 1 } },
    };
    tni_heap heap = tni_heap_default();
    tni_text why  = { "" };
    if (!tni_nvrtc_get(&why)) SKIP("%s", why.s);
    for (int k = 0; k < 8; k++) {
        int             op    = k < 6 ? TNI_conv + k / 2 : TNI_conv_wgrad;
        bool            cores = k % 2;
        conv_sizes      z     = sizes_of(&of[k < 6], k < 4 ? 1 : TNI_WEIGHTS_LAST);
        tni_cubin       c     = { 0 };
        tni_usage       u     = { 0 };
        tni_arg         in[2];
        tni_direct      d;
        tni_direct_tile t;
        tni_call        call = call_of(op, &z, in);
        if (!CHECK(tni_direct_of(&call, &d)) ||
            !CHECK_INT(tni_direct_tiles(&d, &gpu, cores, 1, &t), 1))
            continue;
        char     *text = tni_direct_source(&heap, &d, &t);
        tn_status s    = tni_cubin_compile(&c, text, "sm_80", true, &why);
        bool ok = s == TN_OK && tni_cubin_usage(&c, d.weights ? "direct_weights" : "direct", &u);
        test_case_result(ok && !u.spills && !u.stack && u.shared + t.shared <= gpu.shared_bytes,
                         "%s %d: %d bytes spilled, %d shared: %s", tni_op_table[op].name, k,
                         u.spills, u.shared + t.shared, s == TN_OK ? c.log : why.s);
        tni_cubin_free(&c);
        tni_free(&heap, text);
    }
}

// A square convolution that keeps its size, with a stride of 1.
static tni_direct square_form(bool weights, int side, int ci, int co, int taps)
{
    return (tni_direct){ .weights = weights,
                         .images  = 64,
                         .ci      = ci,
                         .co      = co,
                         .xh      = side,
                         .xw      = side,
                         .yh      = side,
                         .yw      = side,
                         .kh      = taps,
                         .kw      = taps,
                         .sh      = 1,
                         .sw      = 1,
                         .ph      = taps / 2,
                         .pw      = taps / 2,
                         .dh      = 1,
                         .dw      = 1 };
}

// Whether two tiles are one text: what is estimated follows from the rest.
static bool is_same_tile(const tni_direct_tile *a, const tni_direct_tile *b)
{
    return a->cores == b->cores && a->rows == b->rows && a->tile_co == b->tile_co &&
           a->rc == b->rc && a->rp == b->rp && a->split == b->split && a->tile_ci == b->tile_ci &&
           a->slices == b->slices && a->segment == b->segment;
}

// Checks the tiles of a form on a chip: they fit, no two are the same, and there are some if any of
// all that a chip with more shared memory has would fit.
static void check_tiles(const tni_direct *d, bool cores, int shared_bytes)
{
    enum { LISTED = 3, ALL = 1 << 14 };
    static tni_direct_tile all[ALL];
    tni_direct_tile        t[LISTED];
    tni_simt_limits        gpu  = { .units = 82, .shared_bytes = shared_bytes };
    tni_simt_limits        h200 = { .units = 82, .shared_bytes = 227 * 1024 };
    int n = tni_direct_tiles(d, &gpu, cores, LISTED, t), fit = 0, over = 0, twice = 0;
    int count = tni_direct_tiles(d, &h200, cores, ALL, all);
    for (int i = 0; i < count; i++) fit += all[i].shared <= shared_bytes;
    for (int i = 0; i < n; i++) {
        over += t[i].shared > shared_bytes;
        for (int k = 0; k < i; k++) twice += is_same_tile(&t[i], &t[k]);
    }
    test_case_result(count < ALL && n == (fit < LISTED ? fit : LISTED) && !over && !twice,
                     "%s of %d places, %d to %d channels, %d taps, cores %d, %d bytes: %d of %d "
                     "tiles, %d too large, %d listed twice",
                     d->weights ? "weights" : "forward", (int)d->yw, (int)d->ci, (int)d->co,
                     (int)d->kw, cores, shared_bytes, n, fit, over, twice);
}

// The shared memory of a block of sm_86, sm_89 and sm_120, of sm_80, and of sm_90. Of 5 places 3
// and 4 segments are the same.
static void tiles_of_small_convolutions_fit_the_chip_and_differ(void)
{
    static const int shared[] = { 99 * 1024, 163 * 1024, 227 * 1024 }, sides[] = { 5, 13, 28, 64 };
    for (int i = 0; i < 3 * 256; i++) {
        int        ci = 1 << i % 4 * 2, co = i / 4 % 2 ? 64 : 8, taps = i / 8 % 2 ? 5 : 3;
        tni_direct d = square_form(i / 16 % 2, sides[i / 32 % 4], ci, co, taps);
        if (ci * co * taps * taps <= 64 * 64 * 9) check_tiles(&d, i / 128 % 2, shared[i / 256]);
    }
}

const test_case tests_gpu_conv[] = {
    TEST(tiles_of_small_convolutions_fit_the_chip_and_differ),
    TEST(texts_of_small_convolutions_compile_and_do_not_spill),
    TEST(convolutions_agree_with_ref),
    TEST(convolutions_of_single_channels_agree_with_ref),
    TEST(texts_of_the_tensor_cores_compile_and_do_not_spill),
    TEST(convolutions_on_the_tensor_cores_agree_with_ref),
    TEST(large_convolutions_on_the_tensor_cores_agree_with_f32),
    TEST(convolutions_of_opencl_agree_with_ref),
    TEST(convolutions_of_single_channels_on_opencl_agree_with_ref),
    TEST(what_follows_a_convolution_agrees_with_ref),
    TEST(texts_of_products_of_rows_by_rows_compile_and_do_not_spill),
    TEST(products_of_rows_by_rows_and_what_is_around_them_agree_with_ref),
    TEST(convolutions_of_opencl_in_16_bits_agree_with_ref),
    TEST(no_images_give_no_gradient_on_opencl),
    TEST_END,
};
