// Depthwise convolution, channels first: each plane of y depends on one plane of x and one window.
// As matrix products these would have a single row.
//
// The plane of x is copied with its padding, its columns sorted by their remainder of the stride:
// then the elements that a tap of the window meets along a row of y are a run, whatever the stride.
#include "device/cpu/conv_depthwise.h"

#include "device/cpu/gemm_kernel.h"

#include <string.h>

enum { TASK = 1 << 13 };  // least elements of y in a task, which costs time to start

// The copied plane: rows of `stride` runs, run_length elements apart. at: where the first row of y
// finds each tap.
typedef struct {
    const tni_conv_plan *c;
    const tni_gemm_isa  *isa;
    int64_t              rows, run_length, planes, per_task;
    int64_t              at[TNI_DEPTHWISE_TAPS];
    size_t               bytes;
    char                *scratch;
} depthwise;

static depthwise plan_depthwise(const tni_conv_plan *c)
{
    depthwise d  = { .c      = c,
                     .isa    = tni_gemm_isa_get(),
                     .rows   = c->H + 2 * c->along_h.padding,
                     .planes = c->N * c->C };
    int64_t   s  = c->along_w.stride;
    d.run_length = tni_ceil_div(c->W + 2 * c->along_w.padding, s) + d.isa->winograd.lanes;
    for (int64_t t = 0; t < c->K; t++) {
        int64_t row = t / c->KW * c->along_h.dilation, col = t % c->KW * c->along_w.dilation;
        d.at[t] = (row * s + col % s) * d.run_length + col / s;
    }
    d.per_task = tni_clamp(TASK / c->P, 1, d.planes);
    d.bytes    = (size_t)tni_align64(d.rows * c->along_w.stride * d.run_length *
                                     (int64_t)sizeof(float));
    return d;
}

// Returns whether the copied plane is worth its memory: no larger than a second-level cache, which
// holds it from plane to plane whatever its padding, or not much larger than that of x. Padding and
// strides have no limit: by both, a plane of 4 x 4 could become one of gigabytes, nearly all of it
// zeros that no window reads. In double, since it may be more than fits an integer.
static bool has_fair_plane(const tni_conv_plan *c)
{
    enum { PLANE_BYTES = 1 << 20, TIMES = 4 };
    double stride = (double)c->along_w.stride;
    double rows   = (double)c->H + 2.0 * (double)c->along_h.padding;
    double cols   = (double)c->W + 2.0 * (double)c->along_w.padding +
                  stride * (1 + tni_gemm_isa_get()->winograd.lanes);
    double bytes = rows * cols * sizeof(float);
    return bytes <= PLANE_BYTES || bytes <= TIMES * (double)(c->H * c->W) * sizeof(float);
}

bool tni_depthwise_takes(const tni_conv_plan *c)
{
    return c->call->op == TNI_conv && !c->empty && c->dtype == TN_F32 && !c->channels_last &&
           c->CG == 1 && c->OG == 1 && c->D * c->KD * c->OD == 1 && c->K <= TNI_DEPTHWISE_TAPS &&
           has_fair_plane(c);
}

size_t tni_depthwise_scratch(const tni_conv_plan *c)
{
    return plan_depthwise(c).bytes * (size_t)c->call->threads;
}

// Copies the rows of a plane between the padding, which stays zero: all planes have it in the same
// places.
static void copy_plane(const depthwise *d, const float *x, float *to)
{
    const tni_conv_plan *c = d->c;
    int64_t              s = c->along_w.stride;
    for (int64_t h = 0; h < c->H; h++, x += c->W) {
        float *row = to + (h + c->along_h.padding) * s * d->run_length;
        if (s == 1) memcpy(row + c->along_w.padding, x, (size_t)c->W * sizeof *x);
        for (int64_t r = 0; r < s && s > 1; r++) {
            int64_t at = ((r - c->along_w.padding) % s + s) %
                         s;  // the first column of this remainder
            if (at < c->W)
                tni_gather_run(sizeof *x, row + r * d->run_length + (at + c->along_w.padding) / s,
                               x + at, s, tni_ceil_div(c->W - at, s));
        }
    }
}

// Computes one plane of y, row by row.
static void run_plane(const depthwise *d, const float *x, const float *w, float *y)
{
    const tni_conv_plan *c    = d->c;
    int64_t              down = c->along_h.stride * c->along_w.stride * d->run_length;
    for (int64_t oh = 0; oh < c->OH; oh++)
        d->isa->depthwise((int)c->K, x + oh * down, d->at, w, y + oh * c->OW, c->OW);
}

// A task: some planes, one after the other.
static void plane_task(void *arg, int64_t item, int worker)
{
    const depthwise     *d     = arg;
    const tni_conv_plan *c     = d->c;
    float               *plane = (float *)(d->scratch + (size_t)worker * d->bytes);
    int64_t              end   = tni_min_i64(d->planes, (item + 1) * d->per_task);
    memset(plane, 0, d->bytes);
    for (int64_t i = item * d->per_task; i < end; i++) {
        copy_plane(d, (const float *)c->x + i * c->H * c->W, plane);
        run_plane(d, plane, (const float *)c->w + i % c->C * c->K, (float *)c->y + i * c->P);
    }
}

void tni_depthwise_run(const tni_conv_plan *c, int threads, char *scratch)
{
    depthwise d = plan_depthwise(c);
    d.scratch   = scratch;
    tni_tiled_epilogue_parallel(c->epilogue, threads, tni_ceil_div(d.planes, d.per_task),
                                plane_task, &d, 1, d.per_task * c->P, d.planes * c->P);
}
