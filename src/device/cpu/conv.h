// One convolution, or one of its two gradients, as matrix products over windows: what the window of an
// output position covers of x is a column of a matrix (K, positions), of which only a block is ever made.
//
// Two orders of memory, of which all else follows by strides. Channels first: x is (N, C, H, W), y (N, O, P),
// w (O, CG, KH, KW), and a block of windows has positions innermost. Channels last: x is (N, H, W, C), y
// (N, P, O), w (O, KH, KW, CG), and a block has the elements of a window innermost.
//
// N images, C channels of x, O of y, G groups (CG, OG channels of one), H W size of x, KH KW of the
// window, P positions of y in an image (OH * OW), K elements of a window (CG * KH * KW).
#ifndef TNI_DEVICE_CPU_CONV_H
#define TNI_DEVICE_CPU_CONV_H

#include "device/cpu/cpu_walk.h"
#include "device/cpu/gemm.h"
#include "device/cpu/tiled_epilogue.h"

// x, w and y (gy) are row-major in their order and of the compute type: in place, or, where the given ones
// are not so, copies in scratch. Of the three, one is the result, which is copied at the end where it was
// made in scratch. Positions are counted through all images.
typedef struct {
    const tni_call     *call;
    tni_tiled_epilogue *epilogue;
    tn_dtype            dtype;
    int64_t             bytes;  // of an element
    int64_t             N, C, H, W, O, OH, OW, KH, KW, G, CG, OG, P, K;
    int64_t             stride[2], padding[2], dilation[2];
    char               *x, *w, *y, *result;
    tni_arg             out;     // the result in its order, where it is wanted
    bool                last;    // channels last
    bool                direct;  // 1 x 1, stride 1, no padding: x is its own windows
    bool                joined;  // a block of positions goes on from one image to the next
    bool                packs;  // what the product has of y is then kept apart, images side by side
    bool                empty;  // nothing to add up: the result is zeros
    int64_t             positions;         // of a block
    int64_t             blocks;            // of positions, in all images
    int64_t             images;            // dgrad, channels first: of a block
    int64_t             rows, row_blocks;  // of K (wgrad) or channels of a group (dgrad), in blocks
    int64_t             splits;            // wgrad: partial sums over positions
    char               *partial;
    char               *rooms;  // one per worker: windows, packed, then what gemm wants
    size_t              columns, packed, room;
} tni_conv;

// x of group g and image n; y of group g and position q; w of group g.
static inline char *tni_conv_x(const tni_conv *c, int64_t n, int64_t g)
{
    return c->x + (n * c->C * c->H * c->W + g * c->CG * (c->last ? 1 : c->H * c->W)) * c->bytes;
}

static inline char *tni_conv_y(const tni_conv *c, int64_t q, int64_t g)
{
    int64_t at = c->last ? q * c->O + g * c->OG : (q / c->P * c->O + g * c->OG) * c->P + q % c->P;
    return c->y + at * c->bytes;
}

static inline char *tni_conv_w(const tni_conv *c, int64_t g)
{
    return c->w + g * c->OG * c->K * c->bytes;
}

// Rows k0 .. k1-1 (channels last: all of them) of the windows of positions q0 .. q1-1 of group g, into y.
void tni_conv_windows(const tni_conv *c, int64_t g, int64_t k0, int64_t k1, int64_t q0, int64_t q1,
                      char *y);
// Channels first: adds the windows of one channel (KH * KW rows, ld apart) to its plane of x, zeroed first.
void tni_conv_add_plane(const tni_conv *c, const char *windows, int64_t ld, char *plane);
// Channels last: adds the windows of positions p0 .. p1-1 of an image to x, the image's group.
void tni_conv_add_rows(const tni_conv *c, const char *windows, int64_t p0, int64_t p1, char *x);

#endif
