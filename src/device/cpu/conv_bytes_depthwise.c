// Convolutions of bytes whose groups have one channel each: channels are neighbours, so that a
// vector of them is multiplied by a vector of weights for each tap. Weights are widened to 16 bits
// once, with the taps outermost.
//
// A group of one channel is a product of one column, of which a tile of a kernel for products would
// compute eight and more in vain. Here nothing is gathered or packed but the weights: the places of
// a window's taps are found once for all channels.
//
// Neighbouring places whose windows are inside are one longer run of channels where the stride is
// 1, since their taps are neighbours, too; weights are stored several times, one after the other,
// to be multiplied by such a run:
//
//   x of a tap     a0 a1 a2 b0 b1 b2      two places of three channels
//   weights        w0 w1 w2 w0 w1 w2
//
// C channels, T taps.
#include "device/cpu/conv_bytes_depthwise.h"

#include "device/cpu/gemm_bytes.h"
#include "device/cpu/kept_weights.h"

#include <string.h>

// MOST_TAPS: of a window, whose places are found once for all channels. THREE, NINE: taps that are
// added at a time. TASKS: for each thread.
// RUN: elements of several places that are worth one loop.
enum { MOST_TAPS = 64, THREE = 3, NINE = 9, TASKS = 4, RUN = 512 };

typedef struct {
    const tni_conv_plan *c;
    const int16_t       *w;
    const uint8_t       *edge;  // places of the padding, as many as a run has
    int32_t             *y;
    bool                 is_unsigned;
    int64_t              lines, step;  // lines of places along the last axis; those of a task
    int64_t              run;          // elements of a run of places
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

// Places of a run, and its elements.
static int64_t run_places(const tni_conv_plan *c)
{
    return c->along_w.stride == 1 ? tni_clamp(RUN / c->C, 1, c->OW) : 1;
}
static int64_t run_length(const tni_conv_plan *c)
{
    return run_places(c) * c->C;
}

static size_t weight_bytes(const tni_conv_plan *c)
{
    return (size_t)tni_align64(all_taps(c) * run_length(c) * (int64_t)sizeof(int16_t));
}

size_t tni_bytes_depthwise_scratch(const tni_conv_plan *c)
{
    return weight_bytes(c) + (size_t)tni_align64(run_length(c));
}

// w (C, 1, taps) as (taps, places of a run, C) of 16 bits.
static void widen_weights(const tni_conv_plan *c, const tni_arg *w, int16_t *to)
{
    int64_t run = run_length(c);
    memset(to, 0, weight_bytes(c));
    for (int64_t t = 0; t < c->T; t++) {
        int64_t        d = t / (c->KH * c->KW), h = t / c->KW % c->KH, k = t % c->KW;
        const uint8_t *at = (const uint8_t *)w->data + d * w->stride[2] + h * w->stride[3] +
                            k * w->stride[4];
        for (int64_t o = 0; o < run; o++) {
            uint8_t v       = at[o % c->C * w->stride[0]];
            to[t * run + o] = w->dtype == TN_U8 ? v : (int8_t)v;
        }
    }
}

static inline int16_t byte_at(bool is_unsigned, const uint8_t *x, int64_t i)
{
    return is_unsigned ? x[i] : (int8_t)x[i];
}

// Adds some taps of n elements to y, or sets it. Both factors are of 16 bits, for which processors
// have multiplications that give 32. The number of taps is known where this is inlined, so that
// their sum stays in registers and y is stored once for all of them. Weights of a tap are `run`
// apart.
static inline __attribute__((always_inline)) void add_taps(int taps, bool is_unsigned, int64_t n,
                                                           const uint8_t *const *from,
                                                           const int16_t *w, int64_t run, bool add,
                                                           int32_t *restrict y)
{
    const uint8_t *x[NINE];
    for (int t = 0; t < taps; t++) x[t] = from[t];
    for (int64_t i = 0; i < n; i++) {
        int32_t sum = add ? y[i] : 0;
        UNROLL for (int t = 0; t < taps; t++) sum += byte_at(is_unsigned, x[t], i) * w[t * run + i];
        y[i] = sum;
    }
}

// All taps of n elements, by nines as far as they go, as windows of 3 x 3 have them, then by
// threes.
static inline __attribute__((always_inline)) void add_window(const byte_lines *b, bool is_unsigned,
                                                             int64_t n, const uint8_t *const *x,
                                                             int32_t *y)
{
    int64_t t = 0, taps = all_taps(b->c), run = b->run;
    for (; t + NINE <= taps; t += NINE)
        if (t) add_taps(NINE, is_unsigned, n, x + t, b->w + t * run, run, true, y);
        else add_taps(NINE, is_unsigned, n, x, b->w, run, false, y);
    for (; t < taps; t += THREE)
        if (t) add_taps(THREE, is_unsigned, n, x + t, b->w + t * run, run, true, y);
        else add_taps(THREE, is_unsigned, n, x, b->w, run, false, y);
}

// Where a place and a tap meet along an axis; -1: in the padding.
static int64_t meeting(const tni_conv_axis *a, int64_t place, int64_t tap, int64_t size)
{
    int64_t at = place * a->stride - a->padding + tap * a->dilation;
    return at >= 0 && at < size ? at : -1;
}

// Finds the lines of x that the windows of a line of y cover, KD * KH of them; NULL: in the
// padding.
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

// How many places from w on are computed at once: those of a run, if no window of them reaches over
// an edge.
static int64_t places_at(const byte_lines *b, int64_t w)
{
    const tni_conv_axis *a    = &b->c->along_w;
    int64_t              last = b->c->W - (b->c->KW - 1) * a->dilation + a->padding;
    if (w < a->padding || w >= last) return 1;
    return tni_min_i64(b->run / b->c->C, tni_min_i64(last, b->c->OW) - w);
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
        for (int64_t w = 0, many; w < c->OW; w += many) {
            int32_t *y = b->y + (line * c->OW + w) * c->C;
            many       = places_at(b, w);
            find_taps(b, row, w, x);
            if (b->is_unsigned) add_window(b, true, many * c->C, x, y);
            else add_window(b, false, many * c->C, x, y);
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
                     .lines       = c->N * c->OD * c->OH,
                     .run         = run_length(c) };
    if (make) widen_weights(c, w, weights);
    memset(edge, c->fill, (size_t)b.run);
    b.step        = tni_clamp(BAND_BYTES / (row * (int64_t)sizeof(int32_t)), 1,
                              tni_ceil_div(b.lines, TASKS * threads));
    int64_t tasks = tni_ceil_div(b.lines, b.step);
    if (call->tiled_epilogue) call->tiled_epilogue->offset = 0;
    if (tni_tiled_epilogue_begin(call->tiled_epilogue, b.step * row, b.lines * row, tasks, 1))
        b.epilogue = call->tiled_epilogue;
    tni_parallel((int)threads, tasks, line_task, &b);
}
