// Convolution and its two gradients: how the work is cut into blocks, and the product of each
// block.
//
//     conv         y  = w @ windows(x)        a block of positions is gathered, then multiplied
//     conv_dgrad   windows(gx) = w^T @ gy     multiplied, then each element is added where it came from
//     conv_wgrad   gw = gy @ windows(x)^T     summed over all positions of all images
//
// Gathering windows (im2col) a block at a time costs some copying and gives all arithmetic to the
// matrix product, whatever the strides, paddings, dilations and groups. A window of one tap with
// stride 1 and no padding needs no gathering, since x is its own windows (`pointwise`): channels
// first that is a batch of products, one for each image; channels last, one product over all
// positions.
//
// The work of a task depends on sizes alone, and tasks write disjoint memory, so that the number of
// threads changes no bit. conv_wgrad, whose result all positions add to, has partial results that
// are summed in order.
#include "device/cpu/conv_depthwise.h"
#include "device/cpu/conv_winograd.h"
#include "device/cpu/cpu_ops.h"

#include <string.h>

// WANTED_TASKS: tasks wanted, enough for 16 threads; a constant, so that the cut depends on sizes
// alone. PARTIAL_BYTES: most bytes of partial weight gradients; clearing and adding them costs
// memory traffic. WHOLE_BYTES: most bytes of the windows of an image that is one block, the work of
// all threads.
enum { WANTED_TASKS = 16, PARTIAL_BYTES = 1 << 25, WHOLE_BYTES = 1 << 22 };

// How large a block is: about `bytes` of gathered windows, which should still be in a second-level
// cache when the product reads them; at least `least` positions, so that packing w pays; but only
// `fewest` if threads would be idle otherwise. Channels last gathers in longer runs, so that
// smaller blocks do.
typedef struct {
    int64_t bytes, least, fewest;
} block_size;

static block_size block_limits(const tni_conv_plan *c)
{
    return c->channels_last ? (block_size){ 1 << 18, 64, 64 } : (block_size){ 1 << 19, 192, 48 };
}

// ---- products ----------------------------------------------------------------------------------

// A block of windows (K, positions) or of y (OG, positions), by strides.
typedef struct {
    char   *at;
    int64_t row, col;
} matrix;

// Returns the windows of n positions from q on as a matrix: the gathered block, or x itself.
static matrix windows_of(const tni_conv_plan *c, int64_t g, int64_t q, int64_t n, char *scratch)
{
    if (c->channels_last && c->pointwise)
        return (matrix){ tni_conv_x(c, 0, g) + q * c->C * c->bytes, 1, c->C };
    return c->channels_last ? (matrix){ scratch, 1, c->K } : (matrix){ scratch, n, 1 };
}

// Returns y of n positions from q on as a matrix: in place, or packed.
static matrix outputs_of(const tni_conv_plan *c, int64_t g, int64_t q, int64_t n, char *packed)
{
    if (c->packs) return (matrix){ packed, n, 1 };
    return (matrix){ tni_conv_y(c, q, g), c->channels_last ? 1 : c->P,
                     c->channels_last ? c->O : 1 };
}

// Returns the same product with a transposed result, (a b)^T = b^T a^T: gemm writes rows, and with
// channels last the rows of y are positions.
static tni_gemm transposed_product(tni_gemm g)
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
static tni_gemm forward_product(const tni_conv_plan *c, const char *w, matrix x, matrix y,
                                int64_t n)
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
                   .ldc   = c->channels_last ? y.col : y.row };
    return c->channels_last ? transposed_product(g) : g;
}

// windows (k of K, n) = w (OG, k of K) transposed @ gy (OG, n)
static tni_gemm input_product(const tni_conv_plan *c, const char *w, matrix x, matrix y, int64_t k,
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
                   .ldc   = c->channels_last ? x.col : x.row };
    return c->channels_last ? transposed_product(g) : g;
}

// gw (OG, k of K) += gy (OG, n) @ windows (k, n) transposed
static tni_gemm weight_product(const tni_conv_plan *c, char *w, matrix x, matrix y, int64_t k,
                               int64_t n)
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

// ---- planning ----------------------------------------------------------------------------------

// Cuts conv_dgrad, channels first: blocks of whole images and of channels, since each channel
// of gx is summed by one task. Small images are taken together, up to `least` positions;
// channels are split as far as that gives all threads work.
static void cut_input(tni_conv_plan *c)
{
    block_size b      = block_limits(c);
    int64_t    budget = b.bytes / c->bytes, channel = c->T;
    c->images    = c->spans_images ? tni_clamp(b.least / c->P, 1, c->N) : 1;
    c->blocks    = tni_ceil_div(c->N, c->images);
    c->positions = c->images * c->P;
    c->rows      = tni_clamp(budget / tni_clamp(channel * c->positions, 1, budget), 1, c->CG);
    int64_t good = tni_min_i64(tni_ceil_div(b.least, channel), c->CG);
    if (c->rows < good && c->blocks * c->G * tni_ceil_div(c->CG, good) >= WANTED_TASKS)
        c->rows = good;
    c->row_blocks   = tni_ceil_div(c->CG, c->rows);
    c->window_bytes = (size_t)(c->rows * channel * c->positions * c->bytes);
}

// Cuts the other cases: blocks of positions; for conv_wgrad, channels first, also of rows of K; and
// splits of conv_wgrad's positions if groups and rows alone give too few tasks. Each split has a
// partial result.
static void cut_positions(tni_conv_plan *c)
{
    block_size b      = block_limits(c);
    int64_t    budget = b.bytes / c->bytes, span = c->spans_images ? c->N * c->P : c->P;
    bool       grad = c->call->op == TNI_conv_wgrad;
    c->rows         = c->K;
    while (grad && !c->channels_last && c->rows >= 2 * b.least &&
           c->G * tni_ceil_div(c->K, c->rows) < WANTED_TASKS)
        c->rows /= 2;
    c->row_blocks = tni_ceil_div(c->K, c->rows);
    int64_t width = c->channels_last && c->O > c->K ? c->O : c->rows;
    int64_t most  = tni_clamp(budget / tni_clamp(width, 1, budget), b.least, b.least * 64);
    bool    few   = c->channels_last ? c->spans_images
                                     : !grad;  // halved where that gives all threads work
    while (few && most > b.fewest && c->N * c->P * c->G < WANTED_TASKS * most) most /= 2;
    c->positions    = tni_ceil_div(span, tni_ceil_div(span, tni_min_i64(span, most)));
    c->blocks       = tni_ceil_div(span, c->positions) * (c->spans_images ? 1 : c->N);
    c->window_bytes = c->pointwise ? 0 : (size_t)(c->rows * c->positions * c->bytes);
    c->splits       = 1;
    int64_t limit   = PARTIAL_BYTES / tni_clamp(c->O * c->K * c->bytes, 1, PARTIAL_BYTES);
    if (grad && c->G * c->row_blocks < WANTED_TASKS)
        c->splits = tni_clamp(tni_ceil_div(WANTED_TASKS, c->G * c->row_blocks), 1,
                              tni_clamp(tni_min_i64(limit, c->blocks), 1, WANTED_TASKS));
}

// Whether conv of a single image is one product that all threads share: cut into blocks, each of
// few positions, it would read and pack all of w for every block.
static bool is_whole(const tni_conv_plan *c)
{
    return c->call->op == TNI_conv && c->N == 1 && c->G == 1 && !c->channels_last &&
           !c->pointwise && c->K * c->P * c->bytes <= WHOLE_BYTES;
}

// Decides how the work is cut. Channels last, the positions of all images are one line; only
// conv_dgrad, whose windows overlap in gx, goes image by image. Channels first, images are
// separate, unless they are so small that a block spans several.
static void cut_conv(tni_conv_plan *c)
{
    int op = c->call->op;
    if (c->channels_last) c->spans_images = op != TNI_conv_dgrad || c->pointwise;
    else c->spans_images = c->P < block_limits(c).least && c->N > 1;
    c->packs = c->spans_images && !c->channels_last;
    c->whole = is_whole(c);
    if (c->whole) c->window_bytes = (size_t)(c->K * c->P * c->bytes);
    else if (op == TNI_conv_dgrad && !c->channels_last) cut_input(c);
    else cut_positions(c);
    if (c->packs) c->packed_bytes = (size_t)tni_align64(c->OG * c->positions * c->bytes);
    c->window_bytes = (size_t)tni_align64((int64_t)c->window_bytes);
}

// Returns the product of a block of k rows of the windows and n positions, without addresses: to
// ask for its scratch.
static tni_gemm sample_product(const tni_conv_plan *c, int64_t k, int64_t n)
{
    matrix x = windows_of(c, 0, 0, n, NULL), y = outputs_of(c, 0, 0, n, NULL);
    if (c->call->op == TNI_conv) return forward_product(c, NULL, x, y, n);
    if (c->call->op == TNI_conv_dgrad) return input_product(c, NULL, x, y, k, n);
    return weight_product(c, NULL, x, y, k, n);
}

// Returns the most scratch that the product of any block needs: whole blocks and last ones, in both
// directions.
static size_t product_scratch(const tni_conv_plan *c)
{
    size_t most   = 0;
    bool channels = c->call->op == TNI_conv_dgrad && !c->channels_last;  // that rows are counted in
    int64_t span = c->spans_images ? c->N * c->P : c->P, each = channels ? c->T : 1;
    int64_t rows[2] = { c->rows, (channels ? c->CG : c->K) % c->rows };
    int64_t cols[2] = { c->positions, span % c->positions };
    for (int i = 0; i < 4; i++) {
        tni_gemm g = sample_product(c, rows[i / 2] * each, cols[i % 2]);
        size_t   s = g.m > 0 && g.n > 0 && g.k > 0 ? tni_gemm_scratch(&g, 1) : 0;
        if (s > most) most = s;
    }
    return (size_t)tni_align64((int64_t)most);
}

// Takes bytes off the scratch; if scratch is NULL, only counts.
static char *take_conv_scratch(char *at, size_t *used, size_t bytes)
{
    char *p = at ? at + *used : NULL;
    *used += (size_t)tni_align64((int64_t)bytes);
    return p;
}

// Returns (N, C, D, H, W), or (O, CG, KD, KH, KW), with the channels last.
static tni_arg as_channels_last(const tni_arg *x)
{
    tni_arg y = *x;
    tni_permute_axes(&y, x->rank, tni_channels_last_order(x->rank));
    return y;
}

// Returns the data of an operand in row-major order and in the compute type: its own, or a copy in
// scratch.
static char *operand_data(const tni_conv_plan *c, const tni_arg *x, bool is_result, char *at,
                          size_t *used)
{
    if (x->dtype == c->dtype && tni_arg_is_row_major(x)) return x->data;
    char *p = take_conv_scratch(at, used, (size_t)(tni_arg_count(x) * c->bytes));
    if (p && !is_result) {
        tni_arg copy = tni_arg_row_major(c->dtype, x->rank, x->size, p);
        tni_copy_arg(c->call->threads, x, &copy);
    }
    return p;
}

// Pointwise, channels first: a batch of products, one for each image.
static bool is_pointwise_batch(const tni_conv_plan *c)
{
    return c->pointwise && !c->channels_last && !c->empty;
}

// Returns whether there are products over windows.
static bool has_windows(const tni_conv_plan *c)
{
    return !c->empty && !c->winograd && !c->depthwise;
}

// Fills in the whole plan. With scratch NULL nothing is copied and *used counts the bytes needed;
// the same lines take them, so that the two cannot differ.
static tni_conv_plan plan_conv_blocks(const tni_call *call, char *scratch, size_t *used)
{
    tni_conv_plan c = { .call = call, .dtype = tni_compute_dtype(call->out.dtype) };
    tni_conv_form f = tni_conv_form_of(call, 3);
    tni_arg      *x = f.arg;
    char         *data[3];
    c.bytes = (int64_t)tni_dtype_size(c.dtype);
    *used   = 0;
    tni_conv_sizes(&c, &f);
    c.winograd  = tni_winograd_takes(&c);
    c.depthwise = tni_depthwise_takes(&c);
    if (has_windows(&c)) cut_conv(&c);
    for (int i = 0; i < 3; i++) {
        if (c.channels_last) x[i] = as_channels_last(&x[i]);
        data[i] = operand_data(&c, &x[i], f.result == i, scratch, used);
    }
    c.x = data[0], c.w = data[1], c.y = data[2];
    c.result   = data[f.result];
    c.out      = x[f.result];
    c.epilogue = c.result == c.out.data ? call->tiled_epilogue : NULL;
    c.partial  = c.splits > 1
                     ? take_conv_scratch(scratch, used, (size_t)(c.splits * c.O * c.K * c.bytes))
                     : NULL;
    if (c.whole) {
        c.scratch = take_conv_scratch(scratch, used, c.window_bytes);
        return c;
    }
    c.worker_bytes = !has_windows(&c) || is_pointwise_batch(&c)
                         ? 0
                         : c.window_bytes + c.packed_bytes + product_scratch(&c);
    c.scratch      = take_conv_scratch(scratch, used, c.worker_bytes * (size_t)call->threads);
    return c;
}

// ---- 1 x 1, channels first ---------------------------------------------------------------------

// Returns the products of one group, for all images, with x as it is.
static tni_gemm_batch pointwise_product(const tni_conv_plan *c, int64_t g)
{
    matrix x = { tni_conv_x(c, 0, g), c->P, 1 }, y = { tni_conv_y(c, 0, g), c->P, 1 };
    return (tni_gemm_batch){ .one    = forward_product(c, tni_conv_w(c, g), x, y, c->P),
                             .batch  = c->N,
                             .b_step = c->C * c->P,
                             .c_step = c->O * c->P };
}

// ---- one image ---------------------------------------------------------------------------------

// Returns the product of all windows of the image.
static tni_gemm_batch whole_product(const tni_conv_plan *c)
{
    matrix x = { c->scratch, c->P, 1 }, y = { c->y, c->P, 1 };
    return (tni_gemm_batch){ .one = forward_product(c, c->w, x, y, c->P), .batch = 1 };
}

enum { WHOLE_ROWS = 64 };  // of the windows, that a task gathers

static void gather_task(void *arg, int64_t item, int worker)
{
    const tni_conv_plan *c  = arg;
    int64_t              k0 = item * WHOLE_ROWS, k1 = tni_min_i64(c->K, k0 + WHOLE_ROWS);
    (void)worker;
    tni_conv_windows(c, 0, k0, k1, 0, c->P, c->scratch + k0 * c->P * c->bytes);
}

static void run_whole(tni_conv_plan *c, void *scratch)
{
    tni_gemm_batch b = whole_product(c);
    b.epilogue       = c->epilogue;
    tni_parallel(tni_threads_for(c->call->threads, c->K * c->P), tni_ceil_div(c->K, WHOLE_ROWS),
                 gather_task, c);
    tni_gemm_batch_run(&b, c->call->threads, scratch);
}

size_t tni_cpu_conv_scratch(const tni_call *call)
{
    size_t        used;
    tni_conv_plan c = plan_conv_blocks(call, NULL, &used);
    if (c.winograd) return used + tni_winograd_scratch(&c);
    if (c.depthwise) return used + tni_depthwise_scratch(&c);
    if (!is_pointwise_batch(&c) && !c.whole) return used;
    tni_gemm_batch b = c.whole ? whole_product(&c) : pointwise_product(&c, 0);
    return used + tni_gemm_batch_scratch(&b, call->threads);
}

static void run_pointwise(const tni_conv_plan *c, void *scratch)
{
    for (int64_t g = 0; g < c->G; g++) {
        tni_gemm_batch b = pointwise_product(c, g);
        b.epilogue       = c->G == 1 ? c->epilogue : NULL;
        tni_gemm_batch_run(&b, c->call->threads, scratch);
    }
}

// ---- the three ---------------------------------------------------------------------------------

// Sets the positions of block number b: *q0 .. *q1-1.
static void block_range(const tni_conv_plan *c, int64_t b, int64_t *q0, int64_t *q1)
{
    int64_t across = tni_ceil_div(c->P, c->positions), in_image = b % across * c->positions;
    *q0 = c->spans_images ? b * c->positions : b / across * c->P + in_image;
    *q1 = c->spans_images ? tni_min_i64(c->N * c->P, *q0 + c->positions)
                          : *q0 + tni_min_i64(c->positions, c->P - in_image);
}

// Copies positions q0 .. q1-1 of y's rows to packed, image by image, or, if `back`, from there to
// y.
static void pack_outputs(const tni_conv_plan *c, int64_t g, int64_t q0, int64_t q1, char *packed,
                         bool back)
{
    for (int64_t q = q0, n; q < q1; q += n) {
        char *y = tni_conv_y(c, q, g), *to = packed + (q - q0) * c->bytes;
        n = tni_min_i64(q1 - q, c->P - q % c->P);
        for (int64_t o = 0; o < c->OG; o++, y += c->P * c->bytes, to += (q1 - q0) * c->bytes)
            memcpy(back ? y : to, back ? to : y, (size_t)(n * c->bytes));
    }
}

// Returns a worker's scratch: gathered windows, packed y, and the scratch of gemm.
static char *scratch_of_worker(const tni_conv_plan *c, int worker)
{
    return c->scratch + (size_t)worker * c->worker_bytes;
}

// Computes y of a block of positions of one group.
static void forward_task(void *arg, int64_t item, int worker)
{
    const tni_conv_plan *c       = arg;
    int64_t              g       = item % c->G, q0, q1;
    char                *scratch = scratch_of_worker(c, worker);
    char                *packed  = scratch + c->window_bytes;
    block_range(c, item / c->G, &q0, &q1);
    matrix x = windows_of(c, g, q0, q1 - q0, scratch), y = outputs_of(c, g, q0, q1 - q0, packed);
    if (!c->pointwise) tni_conv_windows(c, g, 0, c->K, q0, q1, scratch);
    tni_gemm m = forward_product(c, tni_conv_w(c, g), x, y, q1 - q0);
    tni_gemm_run(&m, 1, packed + c->packed_bytes);
    if (c->packs) pack_outputs(c, g, q0, q1, packed, true);
}

// Pointwise, channels last: gx of a block of positions, each of which has its own place in gx.
static void pointwise_input_task(void *arg, int64_t item, int worker)
{
    const tni_conv_plan *c       = arg;
    int64_t              g       = item % c->G, q0, q1;
    char                *scratch = scratch_of_worker(c, worker);
    block_range(c, item / c->G, &q0, &q1);
    matrix   x = windows_of(c, g, q0, q1 - q0, scratch), y = outputs_of(c, g, q0, q1 - q0, NULL);
    tni_gemm m = input_product(c, tni_conv_w(c, g), x, y, c->K, q1 - q0);
    tni_gemm_run(&m, 1, scratch);
}

// Channels first: gx of a block of channels of one group, for a block of images. The task owns
// those channels of gx.
static void input_task(void *arg, int64_t item, int worker)
{
    const tni_conv_plan *c = arg;
    int64_t              g = item % c->G, block = item / c->G % c->row_blocks, channel = c->T;
    int64_t n0 = item / c->G / c->row_blocks * c->images, n1 = tni_min_i64(c->N, n0 + c->images);
    int64_t c0 = block * c->rows, c1 = tni_min_i64(c->CG, c0 + c->rows), n = (n1 - n0) * c->P;
    char   *scratch = scratch_of_worker(c, worker);
    char   *packed  = scratch + c->window_bytes;
    if (c->packs) pack_outputs(c, g, n0 * c->P, n1 * c->P, packed, false);
    matrix x = windows_of(c, g, n0 * c->P, n, scratch), y = outputs_of(c, g, n0 * c->P, n, packed);
    tni_gemm m = input_product(c, tni_conv_w(c, g) + c0 * channel * c->bytes, x, y,
                               (c1 - c0) * channel, n);
    tni_gemm_run(&m, 1, packed + c->packed_bytes);
    for (int64_t i = n0; i < n1; i++)
        for (int64_t k = c0; k < c1; k++)
            tni_conv_add_channel(c, scratch + ((k - c0) * channel * n + (i - n0) * c->P) * c->bytes,
                                 n, tni_conv_x(c, i, g) + k * c->I * c->bytes);
}

// Channels last: gx of an image of one group, block by block, since the windows of neighbouring
// blocks overlap.
static void input_image_task(void *arg, int64_t item, int worker)
{
    const tni_conv_plan *c = arg;
    int64_t              g = item % c->G, n = item / c->G;
    char                *scratch = scratch_of_worker(c, worker), *image = tni_conv_x(c, n, g);
    for (int64_t i = 0; i < c->I; i++)
        memset(image + i * c->C * c->bytes, 0, (size_t)(c->CG * c->bytes));
    for (int64_t p0 = 0; p0 < c->P; p0 += c->positions) {
        int64_t  p1 = tni_min_i64(c->P, p0 + c->positions), q = n * c->P + p0;
        matrix   x = windows_of(c, g, q, p1 - p0, scratch), y = outputs_of(c, g, q, p1 - p0, NULL);
        tni_gemm m = input_product(c, tni_conv_w(c, g), x, y, c->K, p1 - p0);
        tni_gemm_run(&m, 1, scratch + c->window_bytes);
        tni_conv_add_rows(c, scratch, p0, p1, image);
    }
}

// gw of a block of rows of K, over the blocks of positions of one split.
static void weight_task(void *arg, int64_t item, int worker)
{
    const tni_conv_plan *c = arg;
    int64_t              g = item % c->G, block = item / c->G % c->row_blocks, q0, q1;
    int64_t              split = item / c->G / c->row_blocks;
    int64_t              k0 = block * c->rows, k1 = tni_min_i64(c->K, k0 + c->rows);
    char                *scratch = scratch_of_worker(c, worker);
    char                *packed  = scratch + c->window_bytes;
    char                *base = c->splits > 1 ? c->partial + split * c->O * c->K * c->bytes : c->w;
    char                *to   = base + (g * c->OG * c->K + k0) * c->bytes;
    for (int64_t o = 0; o < c->OG; o++)
        memset(to + o * c->K * c->bytes, 0, (size_t)((k1 - k0) * c->bytes));
    int64_t end = (split + 1) * c->blocks / c->splits;
    for (int64_t b = split * c->blocks / c->splits; b < end; b++) {
        block_range(c, b, &q0, &q1);
        matrix x = windows_of(c, g, q0, q1 - q0, scratch),
               y = outputs_of(c, g, q0, q1 - q0, packed);
        if (!c->pointwise) tni_conv_windows(c, g, k0, k1, q0, q1, scratch);
        if (c->packs) pack_outputs(c, g, q0, q1, packed, false);
        tni_gemm m = weight_product(c, to, x, y, k1 - k0, q1 - q0);
        tni_gemm_run(&m, 1, packed + c->packed_bytes);
    }
}

// Adds up the splits in order.
static void sum_splits(const tni_conv_plan *c)
{
    int64_t          n = c->O * c->K;
    const tni_tiles *t = tni_tiles_get();
    memcpy(c->w, c->partial, (size_t)(n * c->bytes));
    t->of[c->dtype]->fold[TNI_sum](c->w, c->partial + n * c->bytes, n, c->splits - 1, n);
}

// The bands of an epilogue are blocks of positions with channels last, else whole images.
static void run_forward(tni_conv_plan *c, int threads)
{
    int64_t             tasks = c->G * c->blocks, all = c->N * c->O * c->P;
    int64_t             band     = c->channels_last ? c->positions * c->O : c->O * c->P;
    tni_tiled_epilogue *epilogue = c->packs ? NULL : c->epilogue;
    tni_tiled_epilogue_parallel(epilogue, threads, tasks, forward_task, c,
                                (int)(c->channels_last ? c->G : tni_ceil_div(tasks, c->N)), band,
                                all);
}

// Like run_forward: the bands of an epilogue are blocks of positions, else images or blocks of
// images.
static void run_input(tni_conv_plan *c, int threads)
{
    int64_t image = c->C * c->I, all = c->N * image, tiles = c->G * c->row_blocks;
    if (c->pointwise)
        tni_tiled_epilogue_parallel(c->epilogue, threads, c->G * c->blocks, pointwise_input_task, c,
                                    (int)c->G, c->positions * c->C, all);
    else if (c->channels_last)
        tni_tiled_epilogue_parallel(c->epilogue, threads, c->G * c->N, input_image_task, c,
                                    (int)c->G, image, all);
    else
        tni_tiled_epilogue_parallel(c->epilogue, threads, c->blocks * tiles, input_task, c,
                                    (int)tiles, c->images * image, all);
}

// Serves conv, conv_dgrad and conv_wgrad.
tn_status tni_cpu_conv(const tni_call *call)
{
    size_t        used;
    tni_conv_plan c       = plan_conv_blocks(call, call->scratch, &used);
    int           threads = tni_threads_for(call->threads, c.N * c.O * c.P * c.K);
    if (c.empty) {
        memset(c.result, 0, (size_t)(tni_arg_count(&c.out) * c.bytes));
    } else if (c.winograd) {
        tni_winograd_run(&c, call->threads, (char *)call->scratch + used);
    } else if (c.depthwise) {
        tni_depthwise_run(&c, threads, (char *)call->scratch + used);
    } else if (is_pointwise_batch(&c)) {
        run_pointwise(&c, call->scratch ? (char *)call->scratch + used : NULL);
    } else if (c.whole) {
        run_whole(&c, (char *)call->scratch + used);
    } else if (call->op == TNI_conv) {
        run_forward(&c, threads);
    } else if (call->op == TNI_conv_dgrad) {
        run_input(&c, threads);
    } else {
        tni_parallel(threads, c.splits * c.G * c.row_blocks, weight_task, &c);
        if (c.splits > 1) sum_splits(&c);
    }
    if (c.result != c.out.data) {
        tni_arg made = tni_arg_row_major(c.dtype, c.out.rank, c.out.size, c.result);
        tni_copy_arg(call->threads, &made, &c.out);
    }
    return TN_OK;
}

bool tni_cpu_conv_keeps(const tni_call *call)
{
    size_t used;
    bool   conv = call->op == TNI_conv || call->op == TNI_conv_dgrad;
    return conv && plan_conv_blocks(call, NULL, &used).winograd;
}
