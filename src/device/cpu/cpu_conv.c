// Convolution and its two gradients as matrix products over columns: the column of an output
// position holds the elements of x that its window covers. Only a block of columns is ever made.
// What a task computes follows from the sizes alone, and tasks write apart from each other.
//
// N images, C channels of x, O of y, G groups, H W size of x, KH KW of the window, P positions of
// y in an image (OH * OW), K elements of a window (C / G * KH * KW).
#include "device/cpu/cpu_walk.h"
#include "device/cpu/gemm.h"
#include "device/cpu/then.h"

#include <string.h>

enum {
    BLOCK_BYTES = 1 << 19,  // of columns, about
    LEAST       = 192,      // positions of a block, at least, so that packing w pays
    FEWEST      = 48,       // where that would leave threads idle
    SPREAD      = 16,       // tasks wanted
    SPLIT_BYTES = 1 << 25   // of partial weight gradients, at most
};

// One convolution. x, w and y (gy) are row-major and of the compute type: in place, or, where the
// given ones are not so, copies in scratch. Of the three, one is the result; if it is f16 or bf16,
// or lies otherwise, it too is made in scratch and copied at the end. Positions are counted through all images. In
// small images (joined) a block of them goes on from one image to the next, and what the product
// has of y is then kept apart, in `packed`, image by image side by side.
typedef struct {
    const tni_call *call;
    tni_then       *then;
    tn_dtype        dtype;
    int64_t         bytes;  // of an element
    int64_t         N, C, H, W, O, OH, OW, KH, KW, G, P, K;
    int64_t         stride[2], padding[2], dilation[2];
    char           *x, *w, *y, *result;
    tni_arg         out;     // the result as (N, C, H, W), where it is wanted
    bool            direct;  // 1 x 1, stride 1, no padding: x is its own columns
    bool            joined;
    bool            empty;             // nothing to add up: the result is zeros
    int64_t         positions;         // of a block
    int64_t         blocks;            // of positions, in all images
    int64_t         images;            // dgrad: of a block
    int64_t         rows, row_blocks;  // of K (wgrad) or channels of a group (dgrad), in blocks
    int64_t         splits;            // wgrad: partial sums over positions
    char           *partial;
    char           *rooms;  // one per worker: columns, packed, then what gemm wants
    size_t          columns, packed, room;
} conv;

static int64_t clamp(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

// ---- columns ----

// Output columns j of a row for which j * stride + shift is in 0 .. size-1: from *lo to *hi.
static void valid(int64_t shift, int64_t stride, int64_t size, int64_t n, int64_t *lo, int64_t *hi)
{
    *lo = shift >= 0 ? 0 : tni_pieces(-shift, stride);
    *hi = shift >= size ? 0 : tni_pieces(size - shift, stride);
    *lo = tni_lesser(*lo, n);
    *hi = clamp(*hi, *lo, n);
}

// Output columns from .. to-1 of one row of positions and one element of the window.
static void fill_run(const conv *c, char *y, const char *row, int64_t kw, int64_t from, int64_t to)
{
    int64_t shift = kw * c->dilation[1] - c->padding[1], lo, hi;
    valid(shift, c->stride[1], c->W, c->OW, &lo, &hi);
    if (!row) lo = hi = to;
    lo = clamp(lo, from, to);
    hi = clamp(hi, lo, to);
    memset(y, 0, (size_t)((lo - from) * c->bytes));
    if (hi > lo)
        tni_gather_run((size_t)c->bytes, y + (lo - from) * c->bytes,
                       row + (lo * c->stride[1] + shift) * c->bytes, c->stride[1], hi - lo);
    memset(y + (hi - from) * c->bytes, 0, (size_t)((to - hi) * c->bytes));
}

// Rows k0 .. k1-1 of the columns of positions p0 .. p1-1 of the image and group at x. Rows of y
// are ld apart.
static void make_columns(const conv *c, const char *x, int64_t k0, int64_t k1, int64_t p0,
                         int64_t p1, char *y, int64_t ld)
{
    for (int64_t k = k0; k < k1; k++) {
        int64_t     kw = k % c->KW, kh = k / c->KW % c->KH, channel = k / (c->KW * c->KH);
        const char *plane = x + channel * c->H * c->W * c->bytes;
        char       *to    = y + (k - k0) * ld * c->bytes;
        for (int64_t p = p0, oh = p0 / c->OW, from = p0 % c->OW; p < p1; oh++, from = 0) {
            int64_t end = tni_lesser(c->OW, from + p1 - p);
            int64_t h   = oh * c->stride[0] + kh * c->dilation[0] - c->padding[0];
            bool    in  = h >= 0 && h < c->H;
            fill_run(c, to, in ? plane + h * c->W * c->bytes : NULL, kw, from, end);
            to += (end - from) * c->bytes;
            p += end - from;
        }
    }
}

// Adds the columns of one channel (KH * KW rows, ld apart) to its plane of x, zeroed first.
static void add_columns(const conv *c, const char *columns, int64_t ld, char *plane)
{
    memset(plane, 0, (size_t)(c->H * c->W * c->bytes));
    for (int64_t k = 0; k < c->KH * c->KW; k++) {
        int64_t shift_h = k / c->KW * c->dilation[0] - c->padding[0], top, bottom;
        int64_t shift_w = k % c->KW * c->dilation[1] - c->padding[1], lo, hi;
        valid(shift_h, c->stride[0], c->H, c->OH, &top, &bottom);
        valid(shift_w, c->stride[1], c->W, c->OW, &lo, &hi);
        for (int64_t i = top; i < bottom && lo < hi; i++) {
            char *y = plane + ((i * c->stride[0] + shift_h) * c->W + lo * c->stride[1] + shift_w) *
                                  c->bytes;
            const char *v = columns + (k * ld + i * c->OW + lo) * c->bytes;
            tni_add_run(c->dtype, y, v, c->stride[1], hi - lo);
        }
    }
}

// ---- products; operands by group g, image n ----

static const char *image(const conv *c, int64_t n, int64_t g)
{
    return c->x + (n * c->C + g * (c->C / c->G)) * c->H * c->W * c->bytes;
}

static char *output(const conv *c, int64_t n, int64_t g)
{
    return c->y + (n * c->O + g * (c->O / c->G)) * c->P * c->bytes;
}

static const char *weight(const conv *c, int64_t g)
{
    return c->w + g * (c->O / c->G) * c->K * c->bytes;
}

// The part of image q / P that positions q .. end-1 begin with: its first position, returned, and
// their number.
static int64_t part_of(const conv *c, int64_t q, int64_t end, int64_t *n)
{
    int64_t p = q % c->P;
    *n        = tni_lesser(end - q, c->P - p);
    return p;
}

// Columns of positions q0 .. q1-1, ld apart.
static void gather_columns(const conv *c, int64_t g, int64_t k0, int64_t k1, int64_t q0, int64_t q1,
                           char *y)
{
    for (int64_t q = q0, n; q < q1; q += n) {
        int64_t p = part_of(c, q, q1, &n);
        make_columns(c, image(c, q / c->P, g), k0, k1, p, p + n, y + (q - q0) * c->bytes, q1 - q0);
    }
}

// Copies positions q0 .. q1-1 of y's rows to packed, or back.
static void pack(const conv *c, int64_t g, int64_t q0, int64_t q1, char *packed, bool back)
{
    int64_t og = c->O / c->G, ld = q1 - q0;
    for (int64_t q = q0, n; q < q1; q += n) {
        int64_t p = part_of(c, q, q1, &n);
        char   *y = output(c, q / c->P, g) + p * c->bytes, *to = packed + (q - q0) * c->bytes;
        for (int64_t o = 0; o < og; o++, y += c->P * c->bytes, to += ld * c->bytes)
            memcpy(back ? y : to, back ? to : y, (size_t)(n * c->bytes));
    }
}

// y (O / G, n) = w (O / G, K) @ columns (K, n). Rows of y are y_row apart, here and below.
static tni_gemm forward_product(const conv *c, const void *columns, int64_t n, int64_t y_row)
{
    return (tni_gemm){ .dtype = c->dtype,
                       .m     = c->O / c->G,
                       .n     = n,
                       .k     = c->K,
                       .a_row = c->K,
                       .a_col = 1,
                       .b     = columns,
                       .b_row = n,
                       .b_col = 1,
                       .ldc   = y_row };
}

// columns (k of K, n) = w (O / G, k of K) transposed @ gy (O / G, n).
static tni_gemm input_product(const conv *c, void *columns, int64_t k, int64_t n, int64_t y_row)
{
    return (tni_gemm){ .dtype = c->dtype,
                       .m     = k,
                       .n     = n,
                       .k     = c->O / c->G,
                       .a_row = 1,
                       .a_col = c->K,
                       .b_row = y_row,
                       .b_col = 1,
                       .c     = columns,
                       .ldc   = n };
}

// gw (O / G, k of K) += gy (O / G, n) @ columns (k, n) transposed.
static tni_gemm weight_product(const conv *c, const void *columns, int64_t k, int64_t n,
                               int64_t y_row)
{
    return (tni_gemm){ .dtype      = c->dtype,
                       .m          = c->O / c->G,
                       .n          = k,
                       .k          = n,
                       .a_row      = y_row,
                       .a_col      = 1,
                       .b          = columns,
                       .b_row      = 1,
                       .b_col      = n,
                       .ldc        = c->K,
                       .accumulate = true };
}

// ---- planning ----

static void sizes_of(conv *c, const tni_arg *x, const tni_arg *w, const tni_arg *y)
{
    const tni_attr *a = c->call->attr;
    c->N = x->size[0], c->C = x->size[1], c->H = x->size[2], c->W = x->size[3];
    c->O = w->size[0], c->KH = w->size[2], c->KW = w->size[3];
    c->OH = y->size[2], c->OW = y->size[3], c->G = a->conv.groups;
    c->P = c->OH * c->OW;
    c->K = w->size[1] * c->KH * c->KW;
    for (int i = 0; i < 2; i++) {
        c->stride[i]   = a->conv.stride[i];
        c->padding[i]  = a->conv.padding[i];
        c->dilation[i] = a->conv.dilation[i];
    }
}

// dgrad: blocks of whole images and of channels.
static void cut_input(conv *c)
{
    int64_t room = BLOCK_BYTES / c->bytes, channel = c->KH * c->KW, cg = c->C / c->G;
    c->images    = c->joined ? clamp(LEAST / c->P, 1, c->N) : 1;
    c->blocks    = tni_pieces(c->N, c->images);
    c->positions = c->images * c->P;
    c->rows      = clamp(room / clamp(channel * c->positions, 1, room), 1, cg > 0 ? cg : 1);
    int64_t good = tni_lesser(tni_pieces(LEAST, channel), cg);
    if (c->rows < good && c->blocks * c->G * tni_pieces(cg, good) >= SPREAD) c->rows = good;
    c->row_blocks = tni_pieces(cg, c->rows);
    c->columns    = (size_t)(c->rows * channel * c->positions * c->bytes);
}

// conv and wgrad: blocks of positions; wgrad also of rows of K, and splits of the positions.
static void cut_columns(conv *c)
{
    int64_t room = BLOCK_BYTES / c->bytes, span = c->joined ? c->N * c->P : c->P;
    bool    grad = c->call->op == TNI_conv_wgrad;
    c->rows      = c->K;
    while (grad && c->rows >= 2 * LEAST && c->G * tni_pieces(c->K, c->rows) < SPREAD) c->rows /= 2;
    c->row_blocks = c->rows > 0 ? tni_pieces(c->K, c->rows) : 0;
    int64_t most  = clamp(room / clamp(c->rows, 1, room), LEAST, LEAST * 64);
    while (!grad && most > FEWEST && c->N * c->P * c->G < SPREAD * most) most /= 2;
    int64_t pieces = tni_pieces(span, tni_lesser(span, most));
    c->positions   = tni_pieces(span, pieces);
    c->blocks      = tni_pieces(span, c->positions) * (c->joined ? 1 : c->N);
    c->columns     = (size_t)(c->rows * c->positions * c->bytes);
    c->splits      = 1;
    int64_t limit  = SPLIT_BYTES / clamp(c->O * c->K * c->bytes, 1, SPLIT_BYTES);
    if (grad && c->G * c->row_blocks < SPREAD)
        c->splits = clamp(tni_pieces(SPREAD, c->G * clamp(c->row_blocks, 1, SPREAD)), 1,
                          clamp(tni_lesser(limit, c->blocks), 1, SPREAD));
}

// How the work is cut: by sizes alone.
static void cut(conv *c)
{
    c->direct = c->call->op == TNI_conv && c->KH * c->KW == 1 && c->stride[0] == 1 &&
                c->stride[1] == 1 && c->padding[0] == 0 && c->padding[1] == 0;
    c->joined = c->P < LEAST && c->N > 1;
    if (c->call->op == TNI_conv_dgrad) cut_input(c);
    else cut_columns(c);
    if (c->joined) c->packed = (size_t)tni_align64(c->O / c->G * c->positions * c->bytes);
    c->columns = (size_t)tni_align64((int64_t)c->columns);
}

// The most scratch that a product of some block wants: there are whole blocks and last ones.
static size_t product_scratch(const conv *c)
{
    size_t  most = 0;
    int64_t span = c->joined ? c->N * c->P : c->P, channel = c->KH * c->KW;
    int64_t whole   = c->call->op == TNI_conv_wgrad ? c->K : c->C / c->G;
    int64_t rows[2] = { c->rows, c->rows > 0 ? whole % c->rows : 0 };
    int64_t cols[2] = { c->positions, c->positions > 0 ? span % c->positions : 0 };
    for (int i = 0; i < 4; i++) {
        int64_t  k = rows[i / 2], n = cols[i % 2], y = c->joined ? n : c->P;
        tni_gemm g = c->call->op == TNI_conv         ? forward_product(c, NULL, n, y)
                     : c->call->op == TNI_conv_dgrad ? input_product(c, NULL, k * channel, n, y)
                                                     : weight_product(c, NULL, k, n, y);
        size_t   s = g.m > 0 && g.n > 0 ? tni_gemm_scratch(&g, 1) : 0;
        if (s > most) most = s;
    }
    return (size_t)tni_align64((int64_t)most);
}

// Takes bytes off the scratch; with none given only counts.
static char *take(char **at, size_t *used, size_t bytes)
{
    char *p = *at ? *at + *used : NULL;
    *used += (size_t)tni_align64((int64_t)bytes);
    return p;
}

static char *operand(conv *c, const tni_arg *x, bool is_result, char **at, size_t *used)
{
    bool usable = x->dtype == c->dtype && tni_arg_is_rows(x);
    if (usable) return x->data;
    char *p = take(at, used, (size_t)(tni_arg_count(x) * c->bytes));
    if (p && !is_result) {
        tni_arg copy = tni_arg_rows(c->dtype, x->rank, x->size, p);
        tni_copy_arg(c->call->threads, x, &copy);
    }
    return p;
}

// Fills in the whole plan. With scratch NULL nothing is copied and *used counts what is wanted.
static conv plan(const tni_call *call, char *scratch, size_t *used)
{
    conv    c = { .call = call, .dtype = tni_compute_dtype(call->out.dtype) };
    tni_arg x[3];
    int     result = tni_conv_operands(call, x);
    c.bytes        = (int64_t)tni_dtype_size(c.dtype);
    *used          = 0;
    sizes_of(&c, &x[0], &x[1], &x[2]);
    c.empty = c.N * c.P * c.K * c.O == 0;
    if (!c.empty) cut(&c);
    c.x       = operand(&c, &x[0], result == 0, &scratch, used);
    c.w       = operand(&c, &x[1], result == 1, &scratch, used);
    c.y       = operand(&c, &x[2], result == 2, &scratch, used);
    c.result  = result == 0 ? c.x : result == 1 ? c.w : c.y;
    c.out     = x[result];
    c.then    = c.result == c.out.data ? call->then : NULL;
    c.partial = c.splits > 1 ? take(&scratch, used, (size_t)(c.splits * c.O * c.K * c.bytes))
                             : NULL;
    c.room    = c.direct || c.empty ? 0 : c.columns + c.packed + product_scratch(&c);
    c.rooms   = take(&scratch, used, c.room * (size_t)call->threads);
    return c;
}

// x as it is, for one group of all images.
static tni_gemm_batch direct_product(const conv *c)
{
    tni_gemm_batch b = { .one = forward_product(c, NULL, c->P, c->P), .batch = c->N };
    b.b_step         = c->C * c->P;
    b.c_step         = c->O * c->P;
    return b;
}

size_t tni_cpu_conv_scratch(const tni_call *call)
{
    if (call->attr->conv.channels_last) return tni_cpu_conv_last_scratch(call);
    size_t         used;
    conv           c = plan(call, NULL, &used);
    tni_gemm_batch b = direct_product(&c);
    return c.direct && !c.empty ? used + tni_gemm_batch_scratch(&b, call->threads) : used;
}

// ---- the three ----

// Positions of block number b: from *q0 to *q1.
static void block_at(const conv *c, int64_t b, int64_t *q0, int64_t *q1)
{
    int64_t across = tni_pieces(c->P, c->positions), in_image = b % across * c->positions;
    *q0 = c->joined ? b * c->positions : b / across * c->P + in_image;
    *q1 = c->joined ? tni_lesser(c->N * c->P, *q0 + c->positions)
                    : *q0 + tni_lesser(c->positions, c->P - in_image);
}

static void forward_task(void *arg, int64_t item, int worker)
{
    const conv *c       = arg;
    int64_t     g       = item % c->G, q0, q1;
    char       *columns = c->rooms + (size_t)worker * c->room, *packed = columns + c->columns;
    block_at(c, item / c->G, &q0, &q1);
    gather_columns(c, g, 0, c->K, q0, q1, columns);
    tni_gemm product = forward_product(c, columns, q1 - q0, c->joined ? q1 - q0 : c->P);
    product.a        = weight(c, g);
    product.c        = c->joined ? packed : output(c, q0 / c->P, g) + q0 % c->P * c->bytes;
    tni_gemm_run(&product, 1, packed + c->packed);
    if (c->joined) pack(c, g, q0, q1, packed, true);
}

static void input_task(void *arg, int64_t item, int worker)
{
    const conv *c = arg;
    int64_t     g = item % c->G, block = item / c->G % c->row_blocks, cg = c->C / c->G;
    int64_t     n0 = item / c->G / c->row_blocks * c->images, n1 = tni_lesser(c->N, n0 + c->images);
    int64_t     c0 = block * c->rows, c1 = tni_lesser(cg, c0 + c->rows), channel = c->KH * c->KW;
    int64_t     n = (n1 - n0) * c->P, plane = c->H * c->W * c->bytes;
    char       *columns = c->rooms + (size_t)worker * c->room, *packed = columns + c->columns;
    if (c->joined) pack(c, g, n0 * c->P, n1 * c->P, packed, false);
    tni_gemm product = input_product(c, columns, (c1 - c0) * channel, n, c->joined ? n : c->P);
    product.a        = weight(c, g) + c0 * channel * c->bytes;
    product.b        = c->joined ? packed : output(c, n0, g);
    tni_gemm_run(&product, 1, packed + c->packed);
    for (int64_t i = n0; i < n1; i++)
        for (int64_t k = c0; k < c1; k++)
            add_columns(c, columns + ((k - c0) * channel * n + (i - n0) * c->P) * c->bytes, n,
                        c->x + (i * c->C + g * cg + k) * plane);
}

// One block of rows of K over the blocks of positions of one split.
static void weight_task(void *arg, int64_t item, int worker)
{
    const conv *c = arg;
    int64_t     g = item % c->G, block = item / c->G % c->row_blocks, og = c->O / c->G, q0, q1;
    int64_t     split = item / c->G / c->row_blocks;
    int64_t     k0 = block * c->rows, k1 = tni_lesser(c->K, k0 + c->rows);
    char       *columns = c->rooms + (size_t)worker * c->room, *packed = columns + c->columns;
    char       *base = c->splits > 1 ? c->partial + split * c->O * c->K * c->bytes : c->w;
    char       *to   = base + (g * og * c->K + k0) * c->bytes;
    for (int64_t o = 0; o < og; o++)
        memset(to + o * c->K * c->bytes, 0, (size_t)((k1 - k0) * c->bytes));
    int64_t end = (split + 1) * c->blocks / c->splits;
    for (int64_t b = split * c->blocks / c->splits; b < end; b++) {
        block_at(c, b, &q0, &q1);
        gather_columns(c, g, k0, k1, q0, q1, columns);
        if (c->joined) pack(c, g, q0, q1, packed, false);
        tni_gemm product = weight_product(c, columns, k1 - k0, q1 - q0, c->joined ? q1 - q0 : c->P);
        product.a        = c->joined ? packed : output(c, q0 / c->P, g) + q0 % c->P * c->bytes;
        product.c        = to;
        tni_gemm_run(&product, 1, packed + c->packed);
    }
}

// Adds up the splits in order.
static void join_splits(const conv *c)
{
    int64_t          n = c->O * c->K;
    const tni_tiles *t = tni_tiles_get();
    memcpy(c->w, c->partial, (size_t)(n * c->bytes));
    t->of[c->dtype]->fold[TNI_sum](c->w, c->partial + n * c->bytes, n, c->splits - 1, n);
}

static void run_direct(const conv *c, void *scratch)
{
    for (int64_t g = 0; g < c->G; g++) {
        tni_gemm_batch b = direct_product(c);
        b.one.a          = weight(c, g);
        b.one.b          = image(c, 0, g);
        b.one.c          = output(c, 0, g);
        b.then           = c->G == 1 ? c->then : NULL;
        tni_gemm_batch_run(&b, c->call->threads, scratch);
    }
}

void tni_cpu_conv(const tni_call *call)
{
    if (call->attr->conv.channels_last) {
        tni_cpu_conv_last(call);
        return;
    }
    size_t used;
    conv   c       = plan(call, call->scratch, &used);
    int    threads = tni_threads_for(call->threads, c.N * c.O * c.P * c.K);
    if (c.empty) {
        memset(c.result, 0, (size_t)(tni_arg_count(&call->out) * c.bytes));
    } else if (c.direct) {
        run_direct(&c, call->scratch ? (char *)call->scratch + used : NULL);
    } else if (call->op == TNI_conv) {
        int64_t tasks = c.G * c.blocks;
        tni_then_parallel(c.joined ? NULL : c.then, threads, tasks, forward_task, &c,
                          (int)tni_pieces(tasks, c.N), c.O * c.P, c.N * c.O * c.P);
    } else if (call->op == TNI_conv_dgrad) {
        int64_t image = c.C * c.H * c.W, pieces = c.G * c.row_blocks;
        tni_then_parallel(c.then, threads, c.blocks * pieces, input_task, &c, (int)pieces,
                          c.images * image, c.N * image);
    } else {
        tni_parallel(threads, c.splits * c.G * c.row_blocks, weight_task, &c);
        if (c.splits > 1) join_splits(&c);
    }
    if (c.result != c.out.data) {
        tni_arg made = tni_arg_rows(c.dtype, 4, c.out.size, c.result);
        tni_copy_arg(call->threads, &made, &c.out);
    }
}
