// Convolution with 3 x 3 windows by Winograd's algorithm F(m x m, 3 x 3): y is cut into tiles of m
// x m, m being 2 or 4, each of which depends on a patch of (m + 2) x (m + 2) of x. With V = B^T
// patch B and U = G w G^T, both of a patch's size,
//
//     tile = A^T (sum over channels of U * V, element by element) A
//
// which takes 16 multiplications for 4 elements, or 36 for 16, where windows take 9 for each. Over
// all tiles and channels, the sum is a matrix product for each element of a patch. conv_dgrad is a
// convolution of gy by w turned around. conv_wgrad has the sums over tiles of (A gy A^T) * V, again
// a product each, of which G^T and G make gw.
//
// A, B and G multiply polynomials by their values at some points: 0, 1, -1 and infinity for m = 2:
//
//           1  0 -1  0           1    0    0
//     B^T   0  1  1  0     G    1/2  1/2  1/2     A^T   1  1  1  0
//           0 -1  1  0          1/2 -1/2  1/2           0  1 -1 -1
//           0  1  0 -1           0    0    1
//
// They add and halve, so that rounding errors are those of a plain sum whose weights are as large
// as the largest of their window. Also, an element of the patch takes part only in the elements of
// the tile whose windows have it: A^T and B^T have their zeros so. A single large element thus
// leaves all results without it as exact as they were.
//
// m = 4 takes the points 1/2 and -2, too, and loses two bits (with 2 and -2 it would lose half a
// bit more):
//
//           1  -3/2   -2   3/2    1    0           1     0     0             1  1  1   1   1  0
//           0   -1   1/2   5/2    1    0          1/3   1/3   1/3      A^T   0  1 -1  1/2 -2  0
//     B^T   0    1  -5/2   1/2    1    0     G   -1/3   1/3  -1/3            0  1  1  1/4  4  0
//           0   -2   -1     2     1    0        -16/15 -8/15 -4/15           0  1 -1  1/8 -8  1
//           0   1/2  -1   -1/2    1    0          1/15 -2/15  4/15
//           0    1  -3/2   -2    3/2   1           0     0     1
//
// Here every element of the patch takes part in the whole tile and cancels out where no window has
// it, up to a rounding error of its own size. Only conv_wgrad is computed so: a large element of x
// or of gy is a term of all nine sums of its channel in any case, but for those at the edges.
//
// The tiles of all images are one line, cut into blocks. A block goes through three phases: patches
// are transformed into packed operands of the products, which are multiplied, and the sums are
// transformed into y. Of many blocks, each is the work of a thread. Of few, all threads share the
// work of each phase. No order of additions depends on the cut. conv_wgrad adds up block after
// block, in an order that sizes decide.
#include "device/cpu/conv_winograd.h"

#include "device/cpu/gemm_kernel.h"
#include "device/cpu/kept_weights.h"

#include <string.h>

// MOST_SIDE: of a patch. BLOCK_BYTES: of a block's operands and sums, about the size of a
// second-level cache. CHANNELS: of an item of the first and last phase.
enum { MOST_SIDE = 6, LANES = TNI_WINOGRAD_MOST_LANES, BLOCK_BYTES = 1 << 20, CHANNELS = 8 };

// What is computed, in the terms of a convolution: of conv_dgrad, x is gy and y is gx.
typedef struct {
    const tni_gemm_isa *isa;
    tni_winograd_tile   tile;
    int          out, side, points;  // of a tile, of a patch, elements of a transformed patch
    int64_t      N, C, H, W, O, OH, OW;
    int64_t      padding[2];
    const float *x, *w;
    float       *y;
    int64_t      w_out, w_in;    // strides of w's channels
    bool         flipped;        // w is turned around
    bool         gradient;       // of conv_wgrad
    int64_t      across, tiles;  // tiles in a row of an image; in all images
    int64_t      block, blocks;  // tiles of a block, in whole strips of a product's columns
    int64_t      depth, splits;  // of conv_wgrad: tiles of a product, sums
    int64_t      rows, cols;     // O and C, in whole strips of a product's rows and columns
    int          threads;
    bool         shared;  // threads share each block
    int64_t      width;   // of a padded row of x
    float       *u;
    char        *scratch, *padded;
    size_t       block_bytes, padded_bytes;
} winograd;

// A block of tiles, first .. first + count - 1, and its scratch. Threads copy a channel of the rows
// of x that it depends on with their padding, where tile i has its patch at patch[i].
// conv_wgrad: m holds Z instead of sums.
typedef struct {
    const winograd *g;
    int64_t         first, count, strips;
    float          *v, *m;
    int64_t        *patch, *tile;  // tile: likewise in rows of whole tiles of y or gy
    char           *padded;        // of worker 0 of the block's items
    float          *sums;          // conv_wgrad: those of its split
    bool            begins;        // them
} tile_block;

// ---- sizes -------------------------------------------------------------------------------------

static size_t float_bytes(int64_t n)
{
    return (size_t)tni_align64(n * (int64_t)sizeof(float));
}

static size_t product_bytes(const winograd *g, int64_t channels)
{
    return float_bytes(g->points * channels * g->block);
}

// Returns the bytes of the places of a block's tiles.
static size_t table_bytes(const winograd *g)
{
    return (size_t)tni_align64(g->block * (int64_t)(2 * sizeof(int64_t)));
}

// Returns the bytes of a channel of what a block reads, with its padding.
static size_t padded_bytes(const winograd *g)
{
    return float_bytes((tni_ceil_div(g->block - 1, g->across) + 1) * g->side * g->width);
}

// Returns the distance from tile to tile in Z: the rows of the products, which whole vectors are
// stored of.
static int64_t gradient_ld(const winograd *g)
{
    return tni_round_up(g->rows, g->isa->winograd.lanes);
}

// Cuts the tiles into blocks that the cache holds, or, where that leaves threads idle, that they
// share. With at least ROUNDS blocks for each thread, those without one in the last round are idle
// for a quarter of the time at most. Shared blocks have the tiles of SHARE plain ones for each
// thread, since all threads wait for each other after each phase, and of at most SHARES, so that
// scratch stays at about SHARES * BLOCK_BYTES.
static void cut_tiles(winograd *g)
{
    enum { ROUNDS = 3, SHARE = 4, SHARES = 32 };
    int64_t nr = g->isa->f32.nr, bytes = g->points * (g->C + g->rows) * (int64_t)sizeof(float);
    int64_t most = tni_clamp(BLOCK_BYTES / bytes / nr, 1, g->tiles) * nr;
    g->shared    = g->threads > 1 && tni_ceil_div(g->tiles, most) < ROUNDS * g->threads;
    if (g->shared) most = tni_min_i64(SHARE * g->threads, SHARES) * most;
    g->blocks = tni_ceil_div(g->tiles, most);
    g->block  = tni_round_up(tni_ceil_div(g->tiles, g->blocks), nr);
    g->blocks = tni_ceil_div(g->tiles, g->block);
}

static size_t weight_bytes(const winograd *g)
{
    return float_bytes(g->points * g->rows * g->C);
}

// Cuts the tiles of conv_wgrad, and by sizes alone where chains of additions end: after every
// `depth` tiles and at the end of a split. Splits have sums of their own, so that each is the work
// of a thread: at most SPLITS, enough for 16 threads, of SUM_BYTES together, which every block of a
// split adds to and a shared cache should hold. Where that allows fewer than FEW there is one,
// whose blocks are so long that all threads can share them: two products for each thread, UNITS at
// most, since scratch grows with them.
static void cut_gradient(winograd *g)
{
    enum { SUM_BYTES = 1 << 22, SPLITS = 16, FEW = 4, UNITS = 16 };
    int64_t bytes = g->points * (g->cols + g->rows) * (int64_t)sizeof(float), units;
    g->depth      = tni_clamp(BLOCK_BYTES / bytes, 64, TNI_GEMM_DEPTH);
    units         = tni_ceil_div(g->tiles, g->depth);
    g->splits     = tni_min_i64(tni_min_i64(SPLITS, units), SUM_BYTES / (int64_t)weight_bytes(g));
    if (g->splits < FEW) g->splits = 1;
    g->shared = g->splits == 1;
    g->block  = g->depth;
    if (g->shared) g->block *= tni_min_i64(units, tni_clamp(2 * g->threads, 1, UNITS));
    g->blocks = tni_ceil_div(g->tiles, g->block);
}

// Fills in the whole plan, but no scratch. conv_dgrad swaps the roles of x and y and of the
// channels.
static winograd plan_tiles(const tni_conv_plan *c, int threads, tni_winograd_tile tile)
{
    bool     forward = c->call->op != TNI_conv_dgrad, gradient = c->call->op == TNI_conv_wgrad;
    winograd g   = { .isa      = tni_gemm_isa_get(),
                     .tile     = tile,
                     .out      = tile.out,
                     .side     = tile.out + 2,
                     .points   = (tile.out + 2) * (tile.out + 2),
                     .N        = c->N,
                     .C        = forward ? c->C : c->O,
                     .H        = forward ? c->H : c->OH,
                     .W        = forward ? c->W : c->OW,
                     .O        = forward ? c->O : c->C,
                     .OH       = forward ? c->OH : c->H,
                     .OW       = forward ? c->OW : c->W,
                     .x        = (const float *)(forward ? c->x : c->y),
                     .w        = (const float *)c->w,
                     .y        = (float *)(forward ? c->y : c->x),
                     .w_out    = forward ? c->K : 9,
                     .w_in     = forward ? 9 : c->K,
                     .flipped  = !forward,
                     .gradient = gradient,
                     .splits   = 1,
                     .threads  = threads };
    g.padding[0] = forward ? c->along_h.padding : 2 - c->along_h.padding;
    g.padding[1] = forward ? c->along_w.padding : 2 - c->along_w.padding;
    g.across     = tni_ceil_div(g.OW, g.out);
    g.tiles      = g.N * g.across * tni_ceil_div(g.OH, g.out);
    g.rows       = tni_round_up(g.O, g.isa->f32.mr);
    g.cols       = tni_round_up(g.C, g.isa->f32.nr);
    g.width      = g.out * g.across + 2;
    if (gradient) cut_gradient(&g);
    else cut_tiles(&g);
    int64_t planes = gradient ? g.isa->winograd.lanes : 1;
    g.block_bytes  = product_bytes(&g, gradient ? g.cols : g.C) +
                    product_bytes(&g, gradient ? gradient_ld(&g) : g.rows) + table_bytes(&g);
    g.padded_bytes = (size_t)planes * padded_bytes(&g);
    return g;
}

// Returns the cost in multiply-adds: a transform of a patch or of a tile takes about as long as
// TRANSFORM of them for each of its elements. One of a weight, or reading one that is kept, takes
// as long as WEIGHT.
static double cost_of(const winograd *g)
{
    enum { TRANSFORM = 8, WEIGHT = 8 };
    double tiles = (double)tni_round_up(g->tiles, g->isa->winograd.lanes),
           pairs = (double)g->C * (double)g->O;
    return g->points * (tiles * (pairs + TRANSFORM * (double)(g->C + g->O)) + WEIGHT * pairs);
}

// conv_wgrad is computed by the larger tiles where these save an eighth. conv and conv_dgrad are
// not: an element of x or gy a million times larger than its neighbours would leave no digit of
// results up to three places away from its windows.
static winograd plan_winograd(const tni_conv_plan *c, int threads)
{
    const tni_winograd_kernel *k     = &tni_gemm_isa_get()->winograd;
    winograd                   small = plan_tiles(c, threads, k->tile[0]);
    if (!small.gradient) return small;
    winograd large = plan_tiles(c, threads, k->tile[1]);
    return cost_of(&large) < 0.875 * cost_of(&small) ? large : small;
}

// Returns whether windows lie along an axis as tiles want them.
static bool is_dense(const tni_conv_axis *a)
{
    return a->stride == 1 && a->dilation == 1 && a->padding <= 2;
}

bool tni_winograd_takes(const tni_conv_plan *c)
{
    enum { LEAST_CHANNELS = 8 };
    bool square = c->KH == 3 && c->KW == 3 && c->G == 1 && c->D * c->KD * c->OD == 1 &&
                  is_dense(&c->along_h) && is_dense(&c->along_w);
    if (!square || c->empty || c->dtype != TN_F32 || c->channels_last) return false;
    if (c->C < LEAST_CHANNELS || c->O < LEAST_CHANNELS) return false;
    winograd g = plan_winograd(c, 1);
    return cost_of(&g) < 9.0 * (double)g.C * (double)g.O * (double)(g.N * g.OH * g.OW);
}

size_t tni_winograd_scratch(const tni_conv_plan *c)
{
    winograd g = plan_winograd(c, c->call->threads);
    return weight_bytes(&g) * (size_t)g.splits + g.padded_bytes * (size_t)g.threads +
           g.block_bytes * (g.shared ? 1 : (size_t)g.threads);
}

// ---- weights -----------------------------------------------------------------------------------

// Weights of that many channels of y beside each other.
enum { WEIGHT_LANES = 4 };
typedef float weight_lanes __attribute__((vector_size(4 * WEIGHT_LANES)));

// y = G w, of elements `step` apart in w; tiles of 2 x 2.
static void transform_weight(const weight_lanes *w, int step, weight_lanes y[4])
{
    weight_lanes half = 0.5f * (w[0] + w[2 * step]), b = 0.5f * w[step];
    y[0] = w[0];
    y[1] = half + b;
    y[2] = half - b;
    y[3] = w[2 * step];
}

// Stores U of `lanes` pairs of channels beside each other, elements `step` apart.
static void transform_windows(const weight_lanes w[9], float *u, int64_t step, int lanes)
{
    weight_lanes half[4][3], y[4];
    for (int j = 0; j < 3; j++) {
        transform_weight(w + j, 3, y);
        for (int i = 0; i < 4; i++) half[i][j] = y[i];
    }
    for (int i = 0; i < 4; i++) {
        transform_weight(half[i], 1, y);
        for (int j = 0; j < 4; j++) {
            float *to = u + (i * 4 + j) * step;
            if (lanes == WEIGHT_LANES) memcpy(to, &y[j], sizeof y[j]);
            else memcpy(to, &y[j], (size_t)lanes * sizeof *to);
        }
    }
}

// Reads the windows of `lanes` channels of y from o on, at channel c of x; those past the last are
// zeros.
static void read_windows(const winograd *g, int64_t o, int64_t c, int lanes,
                         float w[9][WEIGHT_LANES])
{
    memset(w, 0, 9 * sizeof *w);
    for (int r = 0; r < lanes && o + r < g->O; r++) {
        const float *from = g->w + (o + r) * g->w_out + c * g->w_in;
        for (int i = 0; i < 9; i++) w[i][r] = from[g->flipped ? 8 - i : i];
    }
}

// A task: U of a strip of mr channels of y, packed for the products; channels past the last are
// zeros.
static void weight_item(void *arg, int64_t strip, int worker)
{
    const winograd *g  = arg;
    int64_t         mr = g->isa->f32.mr, step = g->rows * g->C;
    float          *to = g->u + strip * mr * g->C;
    (void)worker;
    for (int64_t c = 0; c < g->C; c++)
        for (int64_t r = 0; r < mr; r += WEIGHT_LANES) {
            weight_lanes w[9];
            float        windows[9][WEIGHT_LANES];
            int          lanes = (int)tni_min_i64(WEIGHT_LANES, mr - r);
            read_windows(g, strip * mr + r, c, lanes, windows);
            memcpy(w, windows, sizeof w);
            transform_windows(w, to + c * mr + r, step, lanes);
        }
}

// ---- patches and tiles -------------------------------------------------------------------------

// Fills in where the tiles of a block are. Lanes past the last tile read any patch.
static void find_tiles(tile_block *b)
{
    const winograd *g    = b->g;
    int64_t         down = tni_ceil_div(g->OH, g->out), first = b->first / g->across;
    for (int64_t i = 0; i < tni_min_i64(g->block, b->strips * g->isa->f32.nr); i++) {
        int64_t t = b->first + i, row = t / g->across, w = t % g->across * g->out;
        int64_t line = (row - first) * g->out, images = row / down - first / down;
        bool    is  = i < b->count;
        b->patch[i] = is ? (line + images * 2) * g->width + w : 0;
        b->tile[i]  = is ? line * g->out * g->across + w : 0;
    }
}

// The channels that tiles are read from: x, or gy. side: rows that a row of tiles reads; width: of
// a row with its padding.
typedef struct {
    const float *at;
    int64_t      C, H, W, padding[2], side, width;
} planes;

static planes planes_of_x(const winograd *g)
{
    return (planes){ g->x, g->C, g->H, g->W, { g->padding[0], g->padding[1] }, g->side, g->width };
}

static planes planes_of_y(const winograd *g)
{
    return (planes){ g->y, g->O, g->OH, g->OW, { 0, 0 }, g->out, g->out * g->across };
}

// Copies what the block's tiles read of channel c, with its padding: of each image the rows of its
// rows of tiles, which overlap.
static void pad_rows(const tile_block *b, const planes *p, int64_t c, float *to)
{
    const winograd *g = b->g;
    int64_t down = tni_ceil_div(g->OH, g->out), last = (b->first + b->count - 1) / g->across;
    int64_t lo = tni_min_i64(p->padding[1], p->width), end;
    int64_t n  = tni_min_i64(p->W, p->width - lo);
    for (int64_t row = b->first / g->across; row <= last; row = end) {
        const float *plane = p->at + (row / down * p->C + c) * p->H * p->W;
        int64_t      top   = row % down * g->out - p->padding[0];
        end                = tni_min_i64(last + 1, (row / down + 1) * down);
        int64_t bottom     = top + (end - row) * g->out + p->side - g->out;
        for (int64_t h = top; h < bottom; h++, to += p->width) {
            bool in = h >= 0 && h < p->H;
            memset(to, 0, (size_t)(in ? lo : p->width) * sizeof *to);
            if (!in) continue;
            memcpy(to + lo, plane + h * p->W, (size_t)n * sizeof *to);
            memset(to + lo + n, 0, (size_t)(p->width - lo - n) * sizeof *to);
        }
    }
}

// Returns the groups of lanes that strips hold: a last strip of one group is multiplied as such.
static int64_t groups_of(const tile_block *b)
{
    int64_t lanes = b->g->isa->winograd.lanes, nr = b->g->isa->f32.nr;
    int64_t last = b->count - (b->strips - 1) * nr;
    return (b->strips - 1) * (nr / lanes) + (last <= lanes ? 1 : nr / lanes);
}

// A task: V of some channels, all tiles of the block.
static void input_item(void *arg, int64_t item, int worker)
{
    const tile_block *b     = arg;
    const winograd   *g     = b->g;
    int64_t           lanes = g->isa->winograd.lanes, nr = g->isa->f32.nr, groups = groups_of(b);
    int64_t           c0 = item * CHANNELS, c1 = tni_min_i64(g->C, c0 + CHANNELS);
    float            *padded = (float *)(b->padded + (size_t)worker * g->padded_bytes);
    planes            x      = planes_of_x(g);
    for (int64_t c = c0; c < c1; c++) {
        pad_rows(b, &x, c, padded);
        for (int64_t i = 0; i < groups; i++)
            g->tile.input(padded, b->patch + i * lanes, g->width,
                          b->v + (i * lanes / nr * g->C + c) * nr + i * lanes % nr,
                          b->strips * g->C * nr);
    }
}

// Copies channel o of the block's tiles from rows of whole tiles into y, which may cut the last
// tile of a row and the last row.
static void cut_rows(const tile_block *b, int64_t o, const float *from)
{
    const winograd *g    = b->g;
    int64_t         down = tni_ceil_div(g->OH, g->out), line = g->out * g->across;
    int64_t         end = b->first + b->count - 1, first = b->first / g->across;
    for (int64_t row = first; row <= end / g->across; row++, from += g->out * line) {
        int64_t c0 = row == first ? b->first % g->across * g->out : 0;
        int64_t c1 = row == end / g->across ? (end % g->across + 1) * g->out : line;
        int64_t h = row % down * g->out, n = tni_min_i64(g->out, g->OH - h);
        float  *to    = g->y + ((row / down * g->O + o) * g->OH + h) * g->OW;
        size_t  bytes = (size_t)(tni_min_i64(c1, g->OW) - c0) * sizeof *to;
        for (int64_t r = 0; r < n; r++) memcpy(to + r * g->OW + c0, from + r * line + c0, bytes);
    }
}

// Stores the tiles of channel o, by way of `plane`; lanes past the last tile are stored apart.
static void store_tiles(const tile_block *b, int64_t o, float *plane)
{
    const winograd *g     = b->g;
    int64_t         lanes = g->isa->winograd.lanes, width = b->strips * g->isa->f32.nr;
    int64_t         ld[LANES];
    float          *to[LANES], apart[4];
    for (int64_t i = 0; i < b->count; i += lanes) {
        for (int64_t k = 0; k < lanes; k++) {
            bool is = i + k < b->count;
            to[k]   = is ? plane + b->tile[i + k] : apart;
            ld[k]   = is ? g->out * g->across : g->out;
        }
        g->isa->winograd.output(b->m + o * width + i, g->rows * width, to, ld);
    }
    cut_rows(b, o, plane);
}

// A task: y of some channels, all tiles of the block.
static void output_item(void *arg, int64_t item, int worker)
{
    const tile_block *b  = arg;
    int64_t           o0 = item * CHANNELS, o1 = tni_min_i64(b->g->O, o0 + CHANNELS);
    float            *plane = (float *)(b->padded + (size_t)worker * b->g->padded_bytes);
    for (int64_t o = o0; o < o1; o++) store_tiles(b, o, plane);
}

// ---- products ----------------------------------------------------------------------------------

// Returns the parts that the rows of a product are cut into, so that all threads have some.
static int64_t row_parts(const winograd *g)
{
    return g->shared ? tni_clamp(g->rows / g->isa->f32.mr / 4, 1, 8) : 1;
}

// A task: a part of the rows of one of the products.
static void multiply_item(void *arg, int64_t item, int worker)
{
    const tile_block *b     = arg;
    const winograd   *g     = b->g;
    int64_t           point = item % g->points, part = item / g->points, parts = row_parts(g);
    int64_t           mr = g->isa->f32.mr, nr = g->isa->f32.nr, strips = g->rows / mr;
    int64_t           r0 = strips * part / parts * mr, r1 = strips * (part + 1) / parts * mr;
    int64_t           width = b->strips * nr;
    (void)worker;
    tni_gemm_block k = { .rows   = r1 - r0,
                         .cols   = groups_of(b) * g->isa->winograd.lanes,
                         .depth  = g->C,
                         .a_pack = g->u + (point * g->rows + r0) * g->C,
                         .a_row  = g->C,
                         .a_col  = mr,
                         .b_col  = g->C,
                         .b_pack = b->v + point * g->C * width,
                         .c      = b->m + (point * g->rows + r0) * width,
                         .ldc    = width };
    g->isa->f32.packed(&k);
}

// Returns a block, with its scratch as that of a worker.
static tile_block block_of(const winograd *g, int64_t item, int worker)
{
    tile_block b = { .g = g, .first = item * g->block };
    b.count      = tni_min_i64(g->block, g->tiles - b.first);
    b.strips     = tni_ceil_div(b.count, g->isa->f32.nr);
    b.v          = (float *)(g->scratch + (size_t)worker * g->block_bytes);
    b.m          = (float *)((char *)b.v + product_bytes(g, g->gradient ? g->cols : g->C));
    b.patch  = (int64_t *)((char *)b.m + product_bytes(g, g->gradient ? gradient_ld(g) : g->rows));
    b.tile   = b.patch + g->block;
    b.padded = g->padded + (size_t)worker * g->padded_bytes;
    find_tiles(&b);
    return b;
}

// A task: all phases of a block. Inside of a task, its items run one after the other on its thread,
// each as worker 0.
static void block_task(void *arg, int64_t item, int worker)
{
    const winograd *g = arg;
    tile_block      b = block_of(g, item, worker);
    tni_parallel(g->threads, tni_ceil_div(g->C, CHANNELS), input_item, &b);
    tni_parallel(g->threads, g->points * row_parts(g), multiply_item, &b);
    tni_parallel(g->threads, tni_ceil_div(g->O, CHANNELS), output_item, &b);
}

// ---- the gradient of the weights ---------------------------------------------------------------

// A task: V of a vector of channels of x, or, after those, Z = A gy A^T of one of gy; all tiles of
// the block. Vectors are along the channels, as strips of the products are packed; those past the
// last channel repeat it.
static void spread_item(void *arg, int64_t item, int worker)
{
    const tile_block *b     = arg;
    const winograd   *g     = b->g;
    int64_t           lanes = g->isa->winograd.lanes, nr = g->isa->f32.nr, of_x = g->cols / lanes;
    bool              x  = item < of_x;
    planes            p  = x ? planes_of_x(g) : planes_of_y(g);
    int64_t           c0 = (x ? item : item - of_x) * lanes, at[LANES], ld = gradient_ld(g);
    int64_t           plane  = (int64_t)(g->padded_bytes / sizeof(float)) / lanes;
    const int64_t    *from   = x ? b->patch : b->tile;
    float            *padded = (float *)(b->padded + (size_t)worker * g->padded_bytes);
    for (int64_t k = 0; k < lanes && c0 + k < p.C; k++) pad_rows(b, &p, c0 + k, padded + k * plane);
    for (int64_t i = 0; i < b->count; i++) {
        for (int64_t k = 0; k < lanes; k++)
            at[k] = tni_clamp(k, 0, tni_clamp(p.C - c0 - 1, 0, lanes)) * plane + from[i];
        if (x)
            g->tile.input(padded, at, p.width, b->v + (c0 / nr * g->block + i) * nr + c0 % nr,
                          g->cols * g->block);
        else g->tile.spread(padded, at, p.width, b->m + i * ld + c0, ld * g->block);
    }
}

// A task: a part of the rows of one of the products of a block, gU (O, C) += Z (O, tiles) @ V (C,
// tiles)^T, added to those of the blocks before.
static void gradient_item(void *arg, int64_t item, int worker)
{
    const tile_block *b     = arg;
    const winograd   *g     = b->g;
    int64_t           point = item % g->points, part = item / g->points, parts = row_parts(g);
    int64_t           mr = g->isa->f32.mr, nr = g->isa->f32.nr, strips = g->rows / mr;
    int64_t           r0 = strips * part / parts * mr, r1 = strips * (part + 1) / parts * mr;
    int64_t           ld = gradient_ld(g);
    (void)worker;
    for (int64_t t = 0; t < b->count; t += g->depth) {
        tni_gemm_block k = { .rows   = r1 - r0,
                             .cols   = g->C,
                             .depth  = tni_min_i64(g->depth, b->count - t),
                             .a_pack = b->m + (point * g->block + t) * ld + r0,
                             .a_row  = 1,
                             .a_col  = ld,
                             .b_pack = b->v + point * g->cols * g->block + t * nr,
                             .b_col  = g->block,
                             .c      = b->sums + (point * g->rows + r0) * g->C,
                             .ldc    = g->C,
                             .add    = !b->begins || t > 0 };
        g->isa->f32.packed(&k);
    }
}

// y = G^T u for n channels side by side, of elements `step` apart in u.
static void gather_weights(int out, int64_t n, const float *u, int64_t step, float y[3][CHANNELS])
{
    const float *last = u + (out + 1) * step;
    for (int64_t l = 0; l < n; l++) {
        float b = u[step + l], c = u[2 * step + l];
        if (out == 2) {
            y[0][l] = u[l] + 0.5f * (b + c);
            y[1][l] = 0.5f * (b - c);
            y[2][l] = last[l] + 0.5f * (b + c);
        } else {
            float d = u[3 * step + l], e = u[4 * step + l], outer = (b - c) * (1.0f / 3);
            y[0][l] = u[l] + (outer + (e - 16 * d) * (1.0f / 15));
            y[1][l] = (b + c) * (1.0f / 3) - (8 * d + 2 * e) * (1.0f / 15);
            y[2][l] = last[l] + (outer + (e - d) * (4.0f / 15));
        }
    }
}

// A task: adds the sums of all splits for one of the products to those of the first, in order.
static void add_splits(void *arg, int64_t point, int worker)
{
    const winograd *g     = arg;
    int64_t         apart = (int64_t)(weight_bytes(g) / sizeof(float)), n = g->rows * g->C;
    float          *to = g->u + point * n;
    (void)worker;
    for (int64_t split = 1; split < g->splits; split++) {
        const float *from = to + split * apart;
        for (int64_t i = 0; i < n; i++) to[i] += from[i];
    }
}

// A task: gw of one channel of y, CHANNELS of x at a time.
static void gather_item(void *arg, int64_t o, int worker)
{
    const winograd *g                            = arg;
    int64_t         step                         = g->rows * g->C, n;
    float           half[MOST_SIDE][3][CHANNELS] = { 0 }, y[3][CHANNELS];
    (void)worker;
    for (int64_t c = 0; c < g->C; c += n) {
        const float *u  = g->u + o * g->C + c;
        float       *to = (float *)g->w + o * g->w_out + c * g->w_in;
        n               = tni_min_i64(CHANNELS, g->C - c);
        for (int i = 0; i < g->side; i++)
            gather_weights(g->out, n, u + i * g->side * step, step, half[i]);
        for (int j = 0; j < 3; j++) {
            gather_weights(g->out, n, half[0][j], 3 * CHANNELS, y);
            for (int i = 0; i < 3; i++)
                for (int64_t l = 0; l < n; l++) to[l * g->w_in + i * 3 + j] = y[i][l];
        }
    }
}

// A task: a split, block after block. Of a single split, all threads share the items of each block.
static void split_task(void *arg, int64_t split, int worker)
{
    const winograd *g       = arg;
    int64_t         vectors = (g->cols + gradient_ld(g)) / g->isa->winograd.lanes;
    int64_t first = split * g->blocks / g->splits, end = (split + 1) * g->blocks / g->splits;
    for (int64_t i = first; i < end; i++) {
        tile_block b = block_of(g, i, worker);
        b.sums       = (float *)((char *)g->u + (size_t)split * weight_bytes(g));
        b.begins     = i == first;
        tni_parallel(g->threads, vectors, spread_item, &b);
        tni_parallel(g->threads, g->points * row_parts(g), gradient_item, &b);
    }
}

static void run_gradient(winograd *g)
{
    if (g->shared) split_task(g, 0, 0);
    else tni_parallel(g->threads, g->splits, split_task, g);
    if (g->splits > 1) tni_parallel(g->threads, g->points, add_splits, g);
    tni_parallel(g->threads, g->O, gather_item, g);
}

// Transforms the weights, unless they are kept.
static void make_weights(winograd *g, const tni_call *call, char *scratch)
{
    bool make;
    g->u = tni_kept_weights_place(call, weight_bytes(g), scratch, &make);
    if (make) tni_parallel(g->threads, g->rows / g->isa->f32.mr, weight_item, g);
}

void tni_winograd_run(const tni_conv_plan *c, int threads, char *scratch)
{
    winograd g = plan_winograd(c, threads);
    g.padded   = scratch + weight_bytes(&g) * (size_t)g.splits;
    g.scratch  = g.padded + g.padded_bytes * (size_t)threads;
    g.u        = (float *)scratch;
    if (c->call->op == TNI_conv_wgrad) {
        run_gradient(&g);
        return;
    }
    make_weights(&g, c->call, scratch);
    if (!g.shared) tni_parallel(threads, g.blocks, block_task, &g);
    for (int64_t i = 0; i < g.blocks && g.shared; i++) block_task(&g, i, 0);
}
