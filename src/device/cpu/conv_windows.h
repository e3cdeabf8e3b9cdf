// One convolution, or one of its two gradients, as matrix products over windows: the elements of x
// that the window of an output position covers are a column of a matrix (K, positions), of which
// only a block at a time is made.
//
// Two memory orders; everything else follows from strides. Channels first: x is (N, C, D, H, W), y
// is (N, O, P), w is (O, CG, KD, KH, KW), and a block of windows has positions innermost. Channels
// last: x is (N, D, H, W, C), y is (N, P, O), w is (O, KD, KH, KW, CG), and a block has the
// elements of a window innermost. Images of two axes have a D of 1, those of one axis an H of 1
// too.
//
// N images, C channels of x, O channels of y, G groups (CG, OG channels of a group), D H W size of
// x, I = D * H * W elements of a channel, KD KH KW size of the window, T = KD * KH * KW its taps,
// OD OH OW size of y, P = OD * OH * OW positions of y in an image, K = CG * T elements of a window.
#ifndef TNI_DEVICE_CPU_CONV_WINDOWS_H
#define TNI_DEVICE_CPU_CONV_WINDOWS_H

#include "device/cpu/strided.h"
#include "device/cpu/gemm.h"
#include "device/cpu/tiled_epilogue.h"

// How windows lie along one axis of x.
typedef struct {
    int64_t stride, padding, dilation;
} tni_conv_axis;

// A plan: operands, and how the work is cut. x, w and y (gy in a gradient) are row-major in their
// memory order and have the compute type: the call's own operands if these are so, else copies in
// scratch. One of the three is the result, which is copied to the call's output at the end if it
// was computed in scratch. Positions are counted through all images: q = image * P + position.
typedef struct {
    const tni_call     *call;
    tni_tiled_epilogue *epilogue;
    tn_dtype            dtype;
    int64_t             bytes;  // of an element
    int64_t             N, C, D, H, W, I, O, OD, OH, OW, KD, KH, KW, T, G, CG, OG, P, K;
    tni_conv_axis       along_d, along_h, along_w;
    char               *x, *w, *y, *result;
    int                 fill;           // channels last, of bytes: the padding
    tni_arg             out;            // the call's output, in its memory order
    bool                channels_last;  // the second of the two memory orders
    bool                pointwise;      // one tap, stride 1, no padding: x is its own windows
    bool                spans_images;   // a block of positions may span several images
    bool                whole;          // conv of one image: one block, the work of all threads
    bool                packs;          // channels first, spans_images: y is packed block by block
    bool                empty;          // the sums have no terms: the result is zeros
    bool                winograd, depthwise;  // computed by conv_winograd.c or conv_depthwise.c
    int64_t             positions;            // of a block
    int64_t             blocks;               // of positions, in all images
    int64_t             images;               // dgrad, channels first: of a block
    int64_t             rows, row_blocks;  // of K (wgrad) or channels of a group (dgrad), in blocks
    int64_t             splits;            // wgrad: partial sums over positions
    char               *partial;
    char               *scratch;  // worker_bytes each: windows, packed y, scratch of gemm
    size_t              window_bytes, packed_bytes, worker_bytes;
} tni_conv_plan;

static inline int64_t tni_clamp(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

// Fills in the sizes by their letters, and the order of axes.
void tni_conv_sizes(tni_conv_plan *c, const tni_conv_form *f);

// The addresses of x of group g and image n; of y of group g and position q; of w of group g.
static inline char *tni_conv_x(const tni_conv_plan *c, int64_t n, int64_t g)
{
    return c->x + (n * c->C * c->I + g * c->CG * (c->channels_last ? 1 : c->I)) * c->bytes;
}

static inline char *tni_conv_y(const tni_conv_plan *c, int64_t q, int64_t g)
{
    int64_t at = c->channels_last ? q * c->O + g * c->OG
                                  : (q / c->P * c->O + g * c->OG) * c->P + q % c->P;
    return c->y + at * c->bytes;
}

static inline char *tni_conv_w(const tni_conv_plan *c, int64_t g)
{
    return c->w + g * c->OG * c->K * c->bytes;
}

// Gathers rows k0 .. k1-1 (channels last: all K) of the windows of positions q0 .. q1-1 of group g
// into y.
void tni_conv_windows(const tni_conv_plan *c, int64_t g, int64_t k0, int64_t k1, int64_t q0,
                      int64_t q1, char *y);
// Channels first: sets a channel of x to the sum of its windows, which are T rows, ld elements
// apart.
void tni_conv_add_channel(const tni_conv_plan *c, const char *windows, int64_t ld, char *plane);
// Channels last: adds the windows of positions p0 .. p1-1 of an image to x, the image's group.
void tni_conv_add_rows(const tni_conv_plan *c, const char *windows, int64_t p0, int64_t p1,
                       char *x);

#endif
