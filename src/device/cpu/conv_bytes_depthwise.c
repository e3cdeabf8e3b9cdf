// Convolutions of bytes whose groups have one channel each: channels are neighbours, so that a vector of them is
// multiplied by a vector of weights for each tap. Weights are widened to 16 bits once, with the taps outermost.
//
// A group of one channel is a product of one column, of which a tile of a kernel for products would compute eight and more
// in vain. Here nothing is gathered or packed but the weights: the places of a window's taps are found once for all channels.
//
// C channels, T taps.
#include "device/cpu/conv_bytes_depthwise.h"

#include "device/cpu/gemm_bytes.h"
#include "device/cpu/kept_weights.h"

#include <string.h>

// MOST_TAPS: of a window, whose places are found once for all channels. THREE, NINE: taps that are added at a time. TASKS:
// for each thread.
enum { MOST_TAPS = 64, THREE = 3, NINE = 9, TASKS = 4 };

typedef struct {
    const tni_conv_plan *c;
    const int16_t       *w;
    const uint8_t       *edge;  // a place of the padding, C bytes
    int32_t             *y;
    bool                 is_unsigned;
    int64_t              lines, step;  // lines of places along the last axis; those of a task
    tni_tiled_epilogue  *epilogue;
} byte_lines;

bool tni_bytes_depthwise_takes(const tni_conv_plan *c)
{
    return c->CG == 1 && c->OG == 1 && c->T <= MOST_TAPS && !c->empty;
}

// Taps in whole threes: those past the last have weights of 0.
static int64_t all_taps(const tni_conv_plan *c)
{
    return tni_round_up(c->T, THREE);
}

static size_t weight_bytes(const tni_conv_plan *c)
{
    return (size_t)tni_align64(all_taps(c) * c->C * (int64_t)sizeof(int16_t));
}

size_t tni_bytes_depthwise_scratch(const tni_conv_plan *c)
{
    return weight_bytes(c) + (size_t)tni_align64(c->C);
}

// w (C, 1, taps) as (taps, C) of 16 bits.
static void widen_weights(const tni_conv_plan *c, const tni_arg *w, int16_t *to)
{
    memset(to, 0, weight_bytes(c));
    for (int64_t t = 0; t < c->T; t++) {
        int64_t        d = t / (c->KH * c->KW), h = t / c->KW % c->KH, k = t % c->KW;
        const uint8_t *at = (const uint8_t *)w->data + d * w->stride[2] + h * w->stride[3] +
                            k * w->stride[4];
        for (int64_t o = 0; o < c->C; o++) {
            uint8_t v        = at[o * w->stride[0]];
            to[t * c->C + o] = w->dtype == TN_U8 ? v : (int8_t)v;
        }
    }
}

static inline int16_t byte_at(bool is_unsigned, const uint8_t *x, int64_t i)
{
    return is_unsigned ? x[i] : (int8_t)x[i];
}

// Adds some taps of all channels to y, or sets it. Both factors are of 16 bits, for which processors have
// multiplications that give 32. The number of taps is known where this is inlined, so that their sum stays in registers and y is
// stored once for all of them.
static inline __attribute__((always_inline)) void add_taps(int taps, bool is_unsigned, int64_t C,
                                                           const uint8_t *const *from,
                                                           const int16_t *w, bool add,
                                                           int32_t *restrict y)
{
    const uint8_t *x[NINE];
    for (int t = 0; t < taps; t++) x[t] = from[t];
    for (int64_t i = 0; i < C; i++) {
        int32_t sum = add ? y[i] : 0;
        UNROLL for (int t = 0; t < taps; t++) sum += byte_at(is_unsigned, x[t], i) * w[t * C + i];
        y[i] = sum;
    }
}

// All taps of a place, by nines as far as they go, as windows of 3 x 3 have them, then by threes.
static inline __attribute__((always_inline)) void add_window(int64_t taps, bool is_unsigned,
                                                             int64_t C, const uint8_t *const *x,
                                                             const int16_t *w, int32_t *y)
{
    int64_t t = 0;
    for (; t + NINE <= taps; t += NINE)
        if (t) add_taps(NINE, is_unsigned, C, x + t, w + t * C, true, y);
        else add_taps(NINE, is_unsigned, C, x, w, false, y);
    for (; t < taps; t += THREE)
        if (t) add_taps(THREE, is_unsigned, C, x + t, w + t * C, true, y);
        else add_taps(THREE, is_unsigned, C, x, w, false, y);
}

// Where a place and a tap meet along an axis; -1: in the padding.
static int64_t meeting(const tni_conv_axis *a, int64_t place, int64_t tap, int64_t size)
{
    int64_t at = place * a->stride - a->padding + tap * a->dilation;
    return at >= 0 && at < size ? at : -1;
}

// Finds the lines of x that the windows of a line of y cover, KD * KH of them; NULL: in the padding.
static void find_lines(const byte_lines *b, int64_t line, const uint8_t **from)
{
    const tni_conv_plan *c     = b->c;
    int64_t              image = line / (c->OD * c->OH), d = line / c->OH % c->OD, h = line % c->OH;
    for (int64_t k = 0; k < c->KD * c->KH; k++) {
        int64_t at_d = meeting(&c->along_d, d, k / c->KH, c->D);
        int64_t at_h = meeting(&c->along_h, h, k % c->KH, c->H);
        int64_t at   = ((image * c->D + at_d) * c->H + at_h) * c->W;
        from[k]      = at_d >= 0 && at_h >= 0 ? (const uint8_t *)c->x + at * c->C : NULL;
    }
}

// Finds where the taps of a place of that line are.
static void find_taps(const byte_lines *b, const uint8_t *const *from, int64_t w, const uint8_t **x)
{
    const tni_conv_plan *c = b->c;
    int64_t              t = 0;
    for (int64_t k = 0; k < c->KD * c->KH; k++)
        for (int64_t tap = 0; tap < c->KW; tap++, t++) {
            int64_t at = meeting(&c->along_w, w, tap, c->W);
            x[t]       = from[k] && at >= 0 ? from[k] + at * c->C : b->edge;
        }
    for (; t < all_taps(c); t++) x[t] = b->edge;
}

// A task: some lines of y.
static void line_task(void *arg, int64_t item, int worker)
{
    const byte_lines    *b    = arg;
    const tni_conv_plan *c    = b->c;
    int64_t              from = item * b->step, to = tni_min_i64(b->lines, from + b->step);
    const uint8_t       *x[MOST_TAPS + THREE], *row[MOST_TAPS];
    for (int64_t line = from; line < to; line++) {
        find_lines(b, line, row);
        for (int64_t w = 0; w < c->OW; w++) {
            int32_t *y = b->y + (line * c->OW + w) * c->C;
            find_taps(b, row, w, x);
            if (b->is_unsigned) add_window(all_taps(c), true, c->C, x, b->w, y);
            else add_window(all_taps(c), false, c->C, x, b->w, y);
        }
    }
    if (b->epilogue)
        tni_tiled_epilogue_tile_done(b->epilogue, item, from * c->OW * c->C,
                                     (to - from) * c->OW * c->C, worker);
}

// The bands of an epilogue are the lines of a task, few enough that a cache has them.
void tni_bytes_depthwise_run(const tni_conv_plan *c, const tni_arg *w, char *scratch)
{
    enum { BAND_BYTES = 1 << 17 };
    const tni_call *call = c->call;
    bool            make;
    int16_t        *weights = tni_kept_weights_place(call, weight_bytes(c), scratch, &make);
    char           *edge    = scratch + weight_bytes(c);
    int64_t    row = c->OW * c->C, threads = tni_threads_for(call->threads, c->N * c->P * c->C);
    byte_lines b = { .c           = c,
                     .w           = weights,
                     .edge        = (const uint8_t *)edge,
                     .y           = (int32_t *)call->out.data,
                     .is_unsigned = call->in[0].dtype == TN_U8,
                     .lines       = c->N * c->OD * c->OH };
    if (make) widen_weights(c, w, weights);
    memset(edge, c->fill, (size_t)c->C);
    b.step        = tni_clamp(BAND_BYTES / (row * (int64_t)sizeof(int32_t)), 1,
                              tni_ceil_div(b.lines, TASKS * threads));
    int64_t tasks = tni_ceil_div(b.lines, b.step);
    if (call->tiled_epilogue) call->tiled_epilogue->offset = 0;
    if (tni_tiled_epilogue_begin(call->tiled_epilogue, b.step * row, b.lines * row, tasks, 1))
        b.epilogue = call->tiled_epilogue;
    tni_parallel((int)threads, tasks, line_task, &b);
}
