// Small convolutions in f32 by kernels of our own: few channels, small windows. A library takes
// longer to begin and end such a convolution than to compute it, and its launch cannot overlap with
// the kernel ahead of it.
#ifndef TNI_CUDA_CONV_DIRECT_H
#define TNI_CUDA_CONV_DIRECT_H

#include "device/cuda/cuda_conv.h"
#include "kernel/emit.h"

extern const char *const tni_text_direct[], *const tni_text_direct_weights[];
extern const char *const tni_text_direct_cores[], *const tni_text_direct_weights_cores[];

// A convolution of images with two axes as the kernels see it: x (N, CI, XH, XW) and w give y (N,
// CO, YH, YW). The gradient for x has the roles of x and y exchanged, and the taps in reverse; that
// for w reads x and y. Strides are by image, channel, row and column, those of w by the channel of
// y, that of x, row and column of the taps.
typedef struct {
    bool    weights, flip;
    int64_t images, ci, co, xh, xw, yh, yw, kh, kw, sh, sw, ph, pw, dh, dw;
    int64_t x[4], y[4], w[4];
    int     result;  // of the form's arguments: the one that is written
} tni_direct;

// How a block works; conv_direct_text.c explains the names. cores: by tensor cores, with operands
// rounded to TF32; chunks: blocks that share the places, of the gradient for w.
typedef struct {
    bool cores;
    int  rows, tile_co, rc, rp, split;
    int  tile_ci, slices, segment, chunks;  // of the gradient for w
    int  plane, line,
        places;  // floats of a channel and of a line in shared memory; places with their gap
    int     threads, shared;
    int64_t blocks;
    double  cycles;  // estimated
} tni_direct_tile;

// Reads a call; false if the kernels do not compute it.
bool tni_direct_of(const tni_call *call, tni_direct *d);
// Lists the tiles that are worth timing on a GPU with these limits, the best first and none twice,
// for tensor cores or without them; returns how many, 0 if the shared memory of a block is too
// small for any.
int tni_direct_tiles(const tni_direct *d, const tni_simt_limits *gpu, bool cores, int most,
                     tni_direct_tile *tile);
// Prints the program of a tile, which the caller frees by tni_free; NULL when memory is out.
char *tni_direct_source(tni_heap *h, const tni_direct *d, const tni_direct_tile *t);

extern const tni_method tni_conv_direct;

#endif
