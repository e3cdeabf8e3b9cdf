// Convolution and its two gradients as matrix products over columns: the column of an output
// position holds the elements of x that its window covers. Only a block of columns is ever made.
// What a task computes follows from the sizes alone, and tasks write apart from each other.
//
// N images, C channels of x, O of y, G groups, H W size of x, KH KW of the window, P positions of
// y in an image (OH * OW), K elements of a window (C / G * KH * KW).
#include "base/pool.h"
#include "device/cpu/cpu_walk.h"
#include "device/cpu/gemm.h"

#include <string.h>

enum {
    BLOCK_BYTES = 1 << 18,  // of columns, about
    LEAST       = 48,       // rows or positions of a block, at least
    SPREAD      = 16,       // tasks wanted
    SPLIT_BYTES = 1 << 25   // of partial weight gradients, at most
};

// One convolution. x, w and y (gy) are row-major and of the compute type: in place, or, where the
// given ones are not so, copies in scratch. Of the three, one is the result; if it is f16 or bf16
// it too is made in scratch and rounded at the end.
typedef struct {
    const tni_call *call;
    tn_dtype        dtype;
    int64_t         bytes;  // of an element
    int64_t         N, C, H, W, O, OH, OW, KH, KW, G, P, K;
    int64_t         stride[2], padding[2], dilation[2];
    char           *x, *w, *y, *result;
    int64_t         positions;         // of a block
    int64_t         blocks;            // of positions in an image
    int64_t         rows, row_blocks;  // of K (wgrad) or channels of a group (dgrad), in blocks
    int64_t         splits;            // wgrad: partial sums over images
    char           *partial;
    char           *rooms;  // one per worker: columns, then what gemm wants
    size_t          columns, room;
    bool            direct;  // 1 x 1, stride 1, no padding: x is its own columns
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

// Rows k0 .. k1-1 of the columns of positions p0 .. p1-1 of the group at x, side by side in y.
static void make_columns(const conv *c, const char *x, int64_t k0, int64_t k1, int64_t p0,
                         int64_t p1, char *y)
{
    for (int64_t k = k0; k < k1; k++) {
        int64_t     kw = k % c->KW, kh = k / c->KW % c->KH, channel = k / (c->KW * c->KH);
        const char *plane = x + channel * c->H * c->W * c->bytes;
        for (int64_t p = p0; p < p1;) {
            int64_t oh = p / c->OW, from = p % c->OW, to = tni_lesser(c->OW, from + p1 - p);
            int64_t h  = oh * c->stride[0] + kh * c->dilation[0] - c->padding[0];
            bool    in = h >= 0 && h < c->H;
            fill_run(c, y, in ? plane + h * c->W * c->bytes : NULL, kw, from, to);
            y += (to - from) * c->bytes;
            p += to - from;
        }
    }
}

static void add_f(float *y, const float *x, int64_t step, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i * step] += x[i];
}

static void add_d(double *y, const double *x, int64_t step, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i * step] += x[i];
}

// Adds the columns of one channel (KH * KW rows of P) to its plane of x, which is zeroed first.
static void add_columns(const conv *c, const char *columns, char *plane)
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
            const char *v = columns + ((k * c->OH + i) * c->OW + lo) * c->bytes;
            if (c->dtype == TN_F32) add_f((float *)y, (const float *)v, c->stride[1], hi - lo);
            else add_d((double *)y, (const double *)v, c->stride[1], hi - lo);
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

// y (O / G, n of P) = w (O / G, K) @ columns (K, n).
static tni_gemm forward_product(const conv *c, const void *columns, int64_t n)
{
    return (tni_gemm){ .dtype = c->dtype, .m = c->O / c->G, .n = n, .k = c->K, .a_row = c->K,
                       .a_col = 1, .b = columns, .b_row = n, .b_col = 1, .ldc = c->P };
}

// columns (n of K, P) = w (O / G, n of K) transposed @ gy (O / G, P).
static tni_gemm input_product(const conv *c, void *columns, int64_t n)
{
    return (tni_gemm){ .dtype = c->dtype, .m = n, .n = c->P, .k = c->O / c->G, .a_row = 1,
                       .a_col = c->K, .b_row = c->P, .b_col = 1, .c = columns, .ldc = c->P };
}

// gw (O / G, n of K) += gy (O / G, p of P) @ columns (n, p) transposed.
static tni_gemm weight_product(const conv *c, const void *columns, int64_t n, int64_t p)
{
    return (tni_gemm){ .dtype = c->dtype, .m = c->O / c->G, .n = n, .k = p, .a_row = c->P,
                       .a_col = 1, .b = columns, .b_row = 1, .b_col = p, .ldc = c->K,
                       .accumulate = true };
}

// The largest scratch that any of four neighbouring shapes of a product wants: whole blocks and
// the last ones.
static size_t product_scratch(const conv *c, int threads)
{
    size_t  most    = 0;
    int64_t p[2]    = { c->positions, c->P % c->positions }, channel = c->KH * c->KW;
    int64_t cg      = c->C / c->G, whole = c->call->op == TNI_conv_wgrad ? c->K : cg;
    int64_t rows[2] = { c->rows, c->rows > 0 ? whole % c->rows : 0 };
    for (int i = 0; i < 4; i++) {
        int64_t  n = rows[i / 2], pn = p[i % 2];
        tni_gemm g = c->call->op == TNI_conv         ? forward_product(c, NULL, pn)
                     : c->call->op == TNI_conv_dgrad ? input_product(c, NULL, n * channel)
                                                     : weight_product(c, NULL, n, pn);
        size_t   s = g.m > 0 && g.n > 0 ? tni_gemm_scratch(&g, threads) : 0;
        if (s > most) most = s;
    }
    return most;
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

// How the work is cut: by sizes alone.
static void cut(conv *c)
{
    int64_t room = BLOCK_BYTES / c->bytes, channel = c->KH * c->KW, cg = c->C / c->G;
    int     op   = c->call->op;
    c->direct    = op == TNI_conv && channel == 1 && c->stride[0] == 1 && c->stride[1] == 1 &&
                c->padding[0] == 0 && c->padding[1] == 0;
    c->positions = c->P;
    if (op == TNI_conv_dgrad) {
        c->rows       = clamp(room / clamp(channel * c->P, 1, room), 1, cg > 0 ? cg : 1);
        c->row_blocks = tni_pieces(cg, c->rows);
        c->columns    = (size_t)(c->rows * channel * c->P * c->bytes);
        return;
    }
    c->rows = c->K;
    if (op == TNI_conv_wgrad)
        while (c->rows >= 2 * LEAST && c->G * tni_pieces(c->K, c->rows) < SPREAD) c->rows /= 2;
    c->row_blocks = c->rows > 0 ? tni_pieces(c->K, c->rows) : 0;
    c->positions  = clamp(room / clamp(c->rows, 1, room), tni_lesser(LEAST, c->P), c->P);
    c->blocks     = tni_pieces(c->P, c->positions);
    c->columns    = (size_t)(c->rows * c->positions * c->bytes);
    c->splits     = 1;
    int64_t most  = SPLIT_BYTES / clamp(c->O * c->K * c->bytes, 1, SPLIT_BYTES);
    if (op == TNI_conv_wgrad && c->G * c->row_blocks < SPREAD)
        c->splits = clamp(tni_pieces(SPREAD, c->G * clamp(c->row_blocks, 1, SPREAD)), 1,
                          clamp(tni_lesser(most, c->N), 1, SPREAD));
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
    conv           c   = { .call = call, .dtype = tni_compute_dtype(call->out.dtype) };
    int            op  = call->op;
    const tni_arg *out = &call->out, *in = call->in;
    const tni_arg *x = op == TNI_conv ? &in[0] : op == TNI_conv_dgrad ? out : &in[1];
    const tni_arg *w = op == TNI_conv_wgrad ? out : &in[1];
    const tni_arg *y = op == TNI_conv ? out : &in[0];
    c.bytes          = (int64_t)tni_dtype_size(c.dtype);
    *used            = 0;
    sizes_of(&c, x, w, y);
    cut(&c);
    c.x       = operand(&c, x, x == out, &scratch, used);
    c.w       = operand(&c, w, w == out, &scratch, used);
    c.y       = operand(&c, y, y == out, &scratch, used);
    c.result  = x == out ? c.x : w == out ? c.w : c.y;
    c.partial = c.splits > 1 ? take(&scratch, used, (size_t)(c.splits * c.O * c.K * c.bytes)) : NULL;
    c.columns = (size_t)tni_align64((int64_t)c.columns);
    size_t many = c.direct ? 0 : product_scratch(&c, 1);
    c.room      = c.columns + (size_t)tni_align64((int64_t)many);
    c.rooms     = take(&scratch, used, c.direct ? 0 : c.room * (size_t)call->threads);
    return c;
}

static tni_gemm_batch direct_product(const conv *c, int64_t g)
{
    tni_gemm_batch b = { .one = forward_product(c, image(c, 0, g), c->P), .batch = c->N };
    b.one.a          = weight(c, g);
    b.one.c          = output(c, 0, g);
    b.b_step         = c->C * c->P;
    b.c_step         = c->O * c->P;
    return b;
}

size_t tni_cpu_conv_scratch(const tni_call *call)
{
    size_t used;
    conv   c = plan(call, NULL, &used);
    if (!c.direct) return used;
    c.x = c.w = c.y  = NULL;
    tni_gemm_batch b = { .one = forward_product(&c, NULL, c.P), .batch = c.N };
    b.b_step         = c.C * c.P;
    b.c_step         = c.O * c.P;
    return used + tni_gemm_batch_scratch(&b, call->threads);
}

// ---- the three ----

static void forward_task(void *arg, int64_t item, int worker)
{
    const conv *c = arg;
    int64_t     block = item % c->blocks, g = item / c->blocks % c->G, n = item / c->blocks / c->G;
    int64_t     p0 = block * c->positions, p1 = tni_lesser(c->P, p0 + c->positions);
    char       *columns = c->rooms + (size_t)worker * c->room;
    make_columns(c, image(c, n, g), 0, c->K, p0, p1, columns);
    tni_gemm product = forward_product(c, columns, p1 - p0);
    product.a        = weight(c, g);
    product.c        = output(c, n, g) + p0 * c->bytes;
    tni_gemm_run(&product, 1, columns + c->columns);
}

static void input_task(void *arg, int64_t item, int worker)
{
    const conv *c = arg;
    int64_t     block = item % c->row_blocks, g = item / c->row_blocks % c->G;
    int64_t     n = item / c->row_blocks / c->G, cg = c->C / c->G, channel = c->KH * c->KW;
    int64_t     c0 = block * c->rows, c1 = tni_lesser(cg, c0 + c->rows);
    char       *columns = c->rooms + (size_t)worker * c->room;
    tni_gemm    product = input_product(c, columns, (c1 - c0) * channel);
    product.a           = weight(c, g) + c0 * channel * c->bytes;
    product.b           = output(c, n, g);
    tni_gemm_run(&product, 1, columns + c->columns);
    char *x = c->x + (n * c->C + g * cg) * c->H * c->W * c->bytes;
    for (int64_t i = c0; i < c1; i++)
        add_columns(c, columns + (i - c0) * channel * c->P * c->bytes, x + i * c->H * c->W * c->bytes);
}

// One block of rows of K over the images of one split.
static void weight_task(void *arg, int64_t item, int worker)
{
    const conv *c = arg;
    int64_t     block = item % c->row_blocks, g = item / c->row_blocks % c->G;
    int64_t     split = item / c->row_blocks / c->G, og = c->O / c->G;
    int64_t     k0 = block * c->rows, k1 = tni_lesser(c->K, k0 + c->rows);
    int64_t     n0 = split * c->N / c->splits, n1 = (split + 1) * c->N / c->splits;
    char       *columns = c->rooms + (size_t)worker * c->room;
    char       *base    = c->splits > 1 ? c->partial + split * c->O * c->K * c->bytes : c->w;
    char       *to      = base + (g * og * c->K + k0) * c->bytes;
    for (int64_t o = 0; o < og; o++) memset(to + o * c->K * c->bytes, 0, (size_t)((k1 - k0) * c->bytes));
    for (int64_t n = n0; n < n1; n++)
        for (int64_t p0 = 0; p0 < c->P; p0 += c->positions) {
            int64_t p1 = tni_lesser(c->P, p0 + c->positions);
            make_columns(c, image(c, n, g), k0, k1, p0, p1, columns);
            tni_gemm product = weight_product(c, columns, k1 - k0, p1 - p0);
            product.a        = output(c, n, g) + p0 * c->bytes;
            product.c        = to;
            tni_gemm_run(&product, 1, columns + c->columns);
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
        tni_gemm_batch b = direct_product(c, g);
        tni_gemm_batch_run(&b, c->call->threads, scratch);
    }
}

void tni_cpu_conv(const tni_call *call)
{
    size_t used;
    conv   c       = plan(call, call->scratch, &used);
    int    threads = tni_threads_for(call, c.N * c.O * c.P * c.K);
    if (call->op == TNI_conv && c.direct) {
        run_direct(&c, call->scratch ? (char *)call->scratch + used : NULL);
    } else if (call->op == TNI_conv) {
        tni_parallel(threads, c.N * c.G * c.blocks, forward_task, &c);
    } else if (call->op == TNI_conv_dgrad) {
        tni_parallel(threads, c.N * c.G * c.row_blocks, input_task, &c);
    } else {
        tni_parallel(threads, c.splits * c.G * c.row_blocks, weight_task, &c);
        if (c.splits > 1) join_splits(&c);
    }
    if (call->out.dtype != c.dtype) {
        tni_arg made = tni_arg_rows(c.dtype, call->out.rank, call->out.size, c.result);
        tni_copy_arg(call->threads, &made, &call->out);
    }
}
