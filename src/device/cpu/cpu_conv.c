// Convolution and its two gradients: how the work is cut, and the products of each block. What a task
// computes follows from the sizes alone, and tasks write apart from each other.
#include "device/cpu/conv.h"

#include <string.h>

enum {
    SPREAD      = 16,      // tasks wanted
    SPLIT_BYTES = 1 << 25  // of partial weight gradients, at most
};

// Bytes of a block of windows, about; positions of one, at least, so that packing w pays; and where that
// would leave threads idle. With channels last a block is gathered in longer runs, and smaller ones do.
typedef struct {
    int64_t bytes, least, fewest;
} block_size;

static block_size block_of(const tni_conv *c)
{
    return c->last ? (block_size){ 1 << 18, 64, 64 } : (block_size){ 1 << 19, 192, 48 };
}

static int64_t clamp(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

// ---- products ----

// A block of windows (K, positions) or of y (OG, positions), by strides.
typedef struct {
    char   *at;
    int64_t row, col;
} matrix;

// The windows of n positions from q on: made in room, or x itself.
static matrix windows_of(const tni_conv *c, int64_t g, int64_t q, int64_t n, char *room)
{
    if (c->last && c->direct) return (matrix){ tni_conv_x(c, 0, g) + q * c->C * c->bytes, 1, c->C };
    return c->last ? (matrix){ room, 1, c->K } : (matrix){ room, n, 1 };
}

// y of n positions from q on: where it lies, or packed.
static matrix outputs_of(const tni_conv *c, int64_t g, int64_t q, int64_t n, char *packed)
{
    if (c->packs) return (matrix){ packed, n, 1 };
    return (matrix){ tni_conv_y(c, q, g), c->last ? 1 : c->P, c->last ? c->O : 1 };
}

// The same product with its result turned round: (a b)^T = b^T a^T.
static tni_gemm turned(tni_gemm g)
{
    return (tni_gemm){ .dtype = g.dtype,
                       .m     = g.n,
                       .n     = g.m,
                       .k     = g.k,
                       .a     = g.b,
                       .a_row = g.b_col,
                       .a_col = g.b_row,
                       .b     = g.a,
                       .b_row = g.a_col,
                       .b_col = g.a_row,
                       .c     = g.c,
                       .ldc   = g.ldc };
}

// y (OG, n) = w (OG, K) @ windows (K, n)
static tni_gemm forward_product(const tni_conv *c, const char *w, matrix x, matrix y, int64_t n)
{
    tni_gemm g = { .dtype = c->dtype,
                   .m     = c->OG,
                   .n     = n,
                   .k     = c->K,
                   .a     = w,
                   .a_row = c->K,
                   .a_col = 1,
                   .b     = x.at,
                   .b_row = x.row,
                   .b_col = x.col,
                   .c     = y.at,
                   .ldc   = c->last ? y.col : y.row };
    return c->last ? turned(g) : g;
}

// windows (k of K, n) = w (OG, k of K) transposed @ gy (OG, n)
static tni_gemm input_product(const tni_conv *c, const char *w, matrix x, matrix y, int64_t k,
                              int64_t n)
{
    tni_gemm g = { .dtype = c->dtype,
                   .m     = k,
                   .n     = n,
                   .k     = c->OG,
                   .a     = w,
                   .a_row = 1,
                   .a_col = c->K,
                   .b     = y.at,
                   .b_row = y.row,
                   .b_col = y.col,
                   .c     = x.at,
                   .ldc   = c->last ? x.col : x.row };
    return c->last ? turned(g) : g;
}

// gw (OG, k of K) += gy (OG, n) @ windows (k, n) transposed
static tni_gemm weight_product(const tni_conv *c, char *w, matrix x, matrix y, int64_t k, int64_t n)
{
    return (tni_gemm){ .dtype      = c->dtype,
                       .m          = c->OG,
                       .n          = k,
                       .k          = n,
                       .a          = y.at,
                       .a_row      = y.row,
                       .a_col      = y.col,
                       .b          = x.at,
                       .b_row      = x.col,
                       .b_col      = x.row,
                       .c          = w,
                       .ldc        = c->K,
                       .accumulate = true };
}

// ---- planning ----

static void sizes_of(tni_conv *c, const tni_arg *x, const tni_arg *w, const tni_arg *y)
{
    const tni_attr *a = c->call->attr;
    c->N = x->size[0], c->C = x->size[1], c->H = x->size[2], c->W = x->size[3];
    c->O = w->size[0], c->KH = w->size[2], c->KW = w->size[3];
    c->OH = y->size[2], c->OW = y->size[3], c->G = a->conv.groups;
    c->CG = w->size[1], c->OG = c->O / c->G;
    c->P    = c->OH * c->OW;
    c->K    = c->CG * c->KH * c->KW;
    c->last = a->conv.channels_last;
    for (int i = 0; i < 2; i++) {
        c->stride[i]   = a->conv.stride[i];
        c->padding[i]  = a->conv.padding[i];
        c->dilation[i] = a->conv.dilation[i];
    }
    c->empty = c->N * c->P * c->K * c->O == 0;
}

// dgrad, channels first: blocks of whole images and of channels.
static void cut_input(tni_conv *c)
{
    block_size b    = block_of(c);
    int64_t    room = b.bytes / c->bytes, channel = c->KH * c->KW;
    c->images    = c->joined ? clamp(b.least / c->P, 1, c->N) : 1;
    c->blocks    = tni_ceil_div(c->N, c->images);
    c->positions = c->images * c->P;
    c->rows      = clamp(room / clamp(channel * c->positions, 1, room), 1, c->CG);
    int64_t good = tni_min_i64(tni_ceil_div(b.least, channel), c->CG);
    if (c->rows < good && c->blocks * c->G * tni_ceil_div(c->CG, good) >= SPREAD) c->rows = good;
    c->row_blocks = tni_ceil_div(c->CG, c->rows);
    c->columns    = (size_t)(c->rows * channel * c->positions * c->bytes);
}

// Blocks of positions; wgrad, channels first, also of rows of K; and splits of wgrad's positions.
static void cut_positions(tni_conv *c)
{
    block_size b    = block_of(c);
    int64_t    room = b.bytes / c->bytes, span = c->joined ? c->N * c->P : c->P;
    bool       grad = c->call->op == TNI_conv_wgrad;
    c->rows         = c->K;
    while (grad && !c->last && c->rows >= 2 * b.least &&
           c->G * tni_ceil_div(c->K, c->rows) < SPREAD)
        c->rows /= 2;
    c->row_blocks = tni_ceil_div(c->K, c->rows);
    int64_t width = c->last && c->O > c->K ? c->O : c->rows;
    int64_t most  = clamp(room / clamp(width, 1, room), b.least, b.least * 64);
    bool    few   = c->last ? c->joined : !grad;  // halved where that gives all threads work
    while (few && most > b.fewest && c->N * c->P * c->G < SPREAD * most) most /= 2;
    c->positions  = tni_ceil_div(span, tni_ceil_div(span, tni_min_i64(span, most)));
    c->blocks     = tni_ceil_div(span, c->positions) * (c->joined ? 1 : c->N);
    c->columns    = c->direct ? 0 : (size_t)(c->rows * c->positions * c->bytes);
    c->splits     = 1;
    int64_t limit = SPLIT_BYTES / clamp(c->O * c->K * c->bytes, 1, SPLIT_BYTES);
    if (grad && c->G * c->row_blocks < SPREAD)
        c->splits = clamp(tni_ceil_div(SPREAD, c->G * c->row_blocks), 1,
                          clamp(tni_min_i64(limit, c->blocks), 1, SPREAD));
}

// How the work is cut: by sizes alone. With channels last positions of all images lie in one row; where
// windows overlap, dgrad goes through one image at a time.
static void cut(tni_conv *c)
{
    int op    = c->call->op;
    c->direct = (op == TNI_conv || c->last) && c->KH * c->KW == 1 && c->stride[0] == 1 &&
                c->stride[1] == 1 && c->padding[0] == 0 && c->padding[1] == 0;
    if (c->last) c->joined = op != TNI_conv_dgrad || c->direct;
    else c->joined = c->P < block_of(c).least && c->N > 1;
    c->packs = c->joined && !c->last;
    if (op == TNI_conv_dgrad && !c->last) cut_input(c);
    else cut_positions(c);
    if (c->packs) c->packed = (size_t)tni_align64(c->OG * c->positions * c->bytes);
    c->columns = (size_t)tni_align64((int64_t)c->columns);
}

// The product of a block of k rows of the windows and n positions, without addresses.
static tni_gemm product_like(const tni_conv *c, int64_t k, int64_t n)
{
    matrix x = windows_of(c, 0, 0, n, NULL), y = outputs_of(c, 0, 0, n, NULL);
    if (c->call->op == TNI_conv) return forward_product(c, NULL, x, y, n);
    if (c->call->op == TNI_conv_dgrad) return input_product(c, NULL, x, y, k, n);
    return weight_product(c, NULL, x, y, k, n);
}

// The most scratch that a product of some block wants: there are whole blocks and last ones.
static size_t product_scratch(const tni_conv *c)
{
    size_t  most     = 0;
    bool    channels = c->call->op == TNI_conv_dgrad && !c->last;  // that rows are counted in
    int64_t span = c->joined ? c->N * c->P : c->P, each = channels ? c->KH * c->KW : 1;
    int64_t rows[2] = { c->rows, (channels ? c->CG : c->K) % c->rows };
    int64_t cols[2] = { c->positions, span % c->positions };
    for (int i = 0; i < 4; i++) {
        tni_gemm g = product_like(c, rows[i / 2] * each, cols[i % 2]);
        size_t   s = g.m > 0 && g.n > 0 && g.k > 0 ? tni_gemm_scratch(&g, 1) : 0;
        if (s > most) most = s;
    }
    return (size_t)tni_align64((int64_t)most);
}

// Takes bytes off the scratch; with none given only counts.
static char *take(char *at, size_t *used, size_t bytes)
{
    char *p = at ? at + *used : NULL;
    *used += (size_t)tni_align64((int64_t)bytes);
    return p;
}

// (N, C, H, W), or (O, CG, KH, KW), with the channels last.
static tni_arg channels_last(const tni_arg *x)
{
    tni_arg y = *x;
    for (int i = 0; i < 4; i++) {
        y.size[i]   = x->size[tni_channels_last_order[i]];
        y.stride[i] = x->stride[tni_channels_last_order[i]];
    }
    return y;
}

static char *operand(const tni_conv *c, const tni_arg *x, bool is_result, char *at, size_t *used)
{
    if (x->dtype == c->dtype && tni_arg_is_rows(x)) return x->data;
    char *p = take(at, used, (size_t)(tni_arg_count(x) * c->bytes));
    if (p && !is_result) {
        tni_arg copy = tni_arg_rows(c->dtype, 4, x->size, p);
        tni_copy_arg(c->call->threads, x, &copy);
    }
    return p;
}

// 1 x 1, channels first: a batch of products, one for each image.
static bool is_batch(const tni_conv *c)
{
    return c->direct && !c->last && !c->empty;
}

// Fills in the whole plan. With scratch NULL nothing is copied and *used counts what is wanted.
static tni_conv plan(const tni_call *call, char *scratch, size_t *used)
{
    tni_conv c = { .call = call, .dtype = tni_compute_dtype(call->out.dtype) };
    tni_arg  x[3];
    char    *data[3];
    int      result = tni_conv_operands(call, x);
    c.bytes         = (int64_t)tni_dtype_size(c.dtype);
    *used           = 0;
    sizes_of(&c, &x[0], &x[1], &x[2]);
    if (!c.empty) cut(&c);
    for (int i = 0; i < 3; i++) {
        if (c.last) x[i] = channels_last(&x[i]);
        data[i] = operand(&c, &x[i], result == i, scratch, used);
    }
    c.x = data[0], c.w = data[1], c.y = data[2];
    c.result   = data[result];
    c.out      = x[result];
    c.epilogue = c.result == c.out.data ? call->tiled_epilogue : NULL;
    c.partial = c.splits > 1 ? take(scratch, used, (size_t)(c.splits * c.O * c.K * c.bytes)) : NULL;
    c.room    = c.empty || is_batch(&c) ? 0 : c.columns + c.packed + product_scratch(&c);
    c.rooms   = take(scratch, used, c.room * (size_t)call->threads);
    return c;
}

// ---- 1 x 1, channels first ----

// x as it is, for one group of all images.
static tni_gemm_batch direct_product(const tni_conv *c, int64_t g)
{
    matrix x = { tni_conv_x(c, 0, g), c->P, 1 }, y = { tni_conv_y(c, 0, g), c->P, 1 };
    return (tni_gemm_batch){ .one    = forward_product(c, tni_conv_w(c, g), x, y, c->P),
                             .batch  = c->N,
                             .b_step = c->C * c->P,
                             .c_step = c->O * c->P };
}

size_t tni_cpu_conv_scratch(const tni_call *call)
{
    size_t   used;
    tni_conv c = plan(call, NULL, &used);
    if (!is_batch(&c)) return used;
    tni_gemm_batch b = direct_product(&c, 0);
    return used + tni_gemm_batch_scratch(&b, call->threads);
}

static void run_direct(const tni_conv *c, void *scratch)
{
    for (int64_t g = 0; g < c->G; g++) {
        tni_gemm_batch b = direct_product(c, g);
        b.epilogue       = c->G == 1 ? c->epilogue : NULL;
        tni_gemm_batch_run(&b, c->call->threads, scratch);
    }
}

// ---- the three ----

// Positions of block number b: from *q0 to *q1.
static void block_at(const tni_conv *c, int64_t b, int64_t *q0, int64_t *q1)
{
    int64_t across = tni_ceil_div(c->P, c->positions), in_image = b % across * c->positions;
    *q0 = c->joined ? b * c->positions : b / across * c->P + in_image;
    *q1 = c->joined ? tni_min_i64(c->N * c->P, *q0 + c->positions)
                    : *q0 + tni_min_i64(c->positions, c->P - in_image);
}

// Copies positions q0 .. q1-1 of y's rows to packed, or back, image by image.
static void pack(const tni_conv *c, int64_t g, int64_t q0, int64_t q1, char *packed, bool back)
{
    for (int64_t q = q0, n; q < q1; q += n) {
        char *y = tni_conv_y(c, q, g), *to = packed + (q - q0) * c->bytes;
        n = tni_min_i64(q1 - q, c->P - q % c->P);
        for (int64_t o = 0; o < c->OG; o++, y += c->P * c->bytes, to += (q1 - q0) * c->bytes)
            memcpy(back ? y : to, back ? to : y, (size_t)(n * c->bytes));
    }
}

static void forward_task(void *arg, int64_t item, int worker)
{
    const tni_conv *c    = arg;
    int64_t         g    = item % c->G, q0, q1;
    char           *room = c->rooms + (size_t)worker * c->room, *packed = room + c->columns;
    block_at(c, item / c->G, &q0, &q1);
    matrix x = windows_of(c, g, q0, q1 - q0, room), y = outputs_of(c, g, q0, q1 - q0, packed);
    if (!c->direct) tni_conv_windows(c, g, 0, c->K, q0, q1, room);
    tni_gemm m = forward_product(c, tni_conv_w(c, g), x, y, q1 - q0);
    tni_gemm_run(&m, 1, packed + c->packed);
    if (c->packs) pack(c, g, q0, q1, packed, true);
}

// 1 x 1, channels last: a block of positions, each of which has its own place in x.
static void direct_input_task(void *arg, int64_t item, int worker)
{
    const tni_conv *c    = arg;
    int64_t         g    = item % c->G, q0, q1;
    char           *room = c->rooms + (size_t)worker * c->room;
    block_at(c, item / c->G, &q0, &q1);
    matrix   x = windows_of(c, g, q0, q1 - q0, room), y = outputs_of(c, g, q0, q1 - q0, NULL);
    tni_gemm m = input_product(c, tni_conv_w(c, g), x, y, c->K, q1 - q0);
    tni_gemm_run(&m, 1, room);
}

// Channels first: a block of channels of one group, of a block of images.
static void input_task(void *arg, int64_t item, int worker)
{
    const tni_conv *c = arg;
    int64_t         g = item % c->G, block = item / c->G % c->row_blocks, channel = c->KH * c->KW;
    int64_t n0 = item / c->G / c->row_blocks * c->images, n1 = tni_min_i64(c->N, n0 + c->images);
    int64_t c0 = block * c->rows, c1 = tni_min_i64(c->CG, c0 + c->rows), n = (n1 - n0) * c->P;
    char   *room = c->rooms + (size_t)worker * c->room, *packed = room + c->columns;
    if (c->packs) pack(c, g, n0 * c->P, n1 * c->P, packed, false);
    matrix   x = windows_of(c, g, n0 * c->P, n, room), y = outputs_of(c, g, n0 * c->P, n, packed);
    tni_gemm m = input_product(c, tni_conv_w(c, g) + c0 * channel * c->bytes, x, y,
                               (c1 - c0) * channel, n);
    tni_gemm_run(&m, 1, packed + c->packed);
    for (int64_t i = n0; i < n1; i++)
        for (int64_t k = c0; k < c1; k++)
            tni_conv_add_plane(c, room + ((k - c0) * channel * n + (i - n0) * c->P) * c->bytes, n,
                               tni_conv_x(c, i, g) + k * c->H * c->W * c->bytes);
}

// Channels last: an image of one group, block by block, since windows overlap.
static void input_image_task(void *arg, int64_t item, int worker)
{
    const tni_conv *c = arg;
    int64_t         g = item % c->G, n = item / c->G;
    char           *room = c->rooms + (size_t)worker * c->room, *image = tni_conv_x(c, n, g);
    for (int64_t i = 0; i < c->H * c->W; i++)
        memset(image + i * c->C * c->bytes, 0, (size_t)(c->CG * c->bytes));
    for (int64_t p0 = 0; p0 < c->P; p0 += c->positions) {
        int64_t  p1 = tni_min_i64(c->P, p0 + c->positions), q = n * c->P + p0;
        matrix   x = windows_of(c, g, q, p1 - p0, room), y = outputs_of(c, g, q, p1 - p0, NULL);
        tni_gemm m = input_product(c, tni_conv_w(c, g), x, y, c->K, p1 - p0);
        tni_gemm_run(&m, 1, room + c->columns);
        tni_conv_add_rows(c, room, p0, p1, image);
    }
}

// One block of rows of K over the blocks of positions of one split.
static void weight_task(void *arg, int64_t item, int worker)
{
    const tni_conv *c = arg;
    int64_t         g = item % c->G, block = item / c->G % c->row_blocks, q0, q1;
    int64_t         split = item / c->G / c->row_blocks;
    int64_t         k0 = block * c->rows, k1 = tni_min_i64(c->K, k0 + c->rows);
    char           *room = c->rooms + (size_t)worker * c->room, *packed = room + c->columns;
    char           *base = c->splits > 1 ? c->partial + split * c->O * c->K * c->bytes : c->w;
    char           *to   = base + (g * c->OG * c->K + k0) * c->bytes;
    for (int64_t o = 0; o < c->OG; o++)
        memset(to + o * c->K * c->bytes, 0, (size_t)((k1 - k0) * c->bytes));
    int64_t end = (split + 1) * c->blocks / c->splits;
    for (int64_t b = split * c->blocks / c->splits; b < end; b++) {
        block_at(c, b, &q0, &q1);
        matrix x = windows_of(c, g, q0, q1 - q0, room), y = outputs_of(c, g, q0, q1 - q0, packed);
        if (!c->direct) tni_conv_windows(c, g, k0, k1, q0, q1, room);
        if (c->packs) pack(c, g, q0, q1, packed, false);
        tni_gemm m = weight_product(c, to, x, y, k1 - k0, q1 - q0);
        tni_gemm_run(&m, 1, packed + c->packed);
    }
}

// Adds up the splits in order.
static void join_splits(const tni_conv *c)
{
    int64_t          n = c->O * c->K;
    const tni_tiles *t = tni_tiles_get();
    memcpy(c->w, c->partial, (size_t)(n * c->bytes));
    t->of[c->dtype]->fold[TNI_sum](c->w, c->partial + n * c->bytes, n, c->splits - 1, n);
}

// What follows a forward product follows blocks with channels last, else whole images.
static void run_forward(tni_conv *c, int threads)
{
    int64_t             tasks = c->G * c->blocks, all = c->N * c->O * c->P;
    int64_t             part     = c->last ? c->positions * c->O : c->O * c->P;
    tni_tiled_epilogue *epilogue = c->packs ? NULL : c->epilogue;
    tni_tiled_epilogue_parallel(epilogue, threads, tasks, forward_task, c,
                                (int)(c->last ? c->G : tni_ceil_div(tasks, c->N)), part, all);
}

static void run_input(tni_conv *c, int threads)
{
    int64_t image = c->C * c->H * c->W, all = c->N * image, pieces = c->G * c->row_blocks;
    if (c->direct)
        tni_tiled_epilogue_parallel(c->epilogue, threads, c->G * c->blocks, direct_input_task, c,
                                    (int)c->G, c->positions * c->C, all);
    else if (c->last)
        tni_tiled_epilogue_parallel(c->epilogue, threads, c->G * c->N, input_image_task, c,
                                    (int)c->G, image, all);
    else
        tni_tiled_epilogue_parallel(c->epilogue, threads, c->blocks * pieces, input_task, c,
                                    (int)pieces, c->images * image, all);
}

tn_status tni_cpu_conv(const tni_call *call)
{
    size_t   used;
    tni_conv c       = plan(call, call->scratch, &used);
    int      threads = tni_threads_for(call->threads, c.N * c.O * c.P * c.K);
    if (c.empty) {
        memset(c.result, 0, (size_t)(tni_arg_count(&c.out) * c.bytes));
    } else if (is_batch(&c)) {
        run_direct(&c, call->scratch ? (char *)call->scratch + used : NULL);
    } else if (call->op == TNI_conv) {
        run_forward(&c, threads);
    } else if (call->op == TNI_conv_dgrad) {
        run_input(&c, threads);
    } else {
        tni_parallel(threads, c.splits * c.G * c.row_blocks, weight_task, &c);
        if (c.splits > 1) join_splits(&c);
    }
    if (c.result != c.out.data) {
        tni_arg made = tni_arg_rows(c.dtype, 4, c.out.size, c.result);
        tni_copy_arg(call->threads, &made, &c.out);
    }
    return TN_OK;
}
