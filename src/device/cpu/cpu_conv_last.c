// Convolution and its two gradients where the channels of an image lie side by side. The row of an
// output position holds what its window covers, channels innermost, so that it is gathered in runs of
// channels and a product of rows is y as it lies. Only a block of rows is ever made. What a task
// computes follows from the sizes alone, and tasks write apart from each other.
//
// N images, C channels of x, O of y, G groups (CG, OG channels of one), H W size of x, KH KW of the
// window, P positions of y in an image (OH * OW), K elements of a window (KH * KW * CG).
#include "device/cpu/cpu_walk.h"
#include "device/cpu/gemm.h"
#include "device/cpu/then.h"

#include <string.h>

enum {
    BLOCK_BYTES = 1 << 18,  // of rows, about
    LEAST       = 64,       // positions of a block, at least
    SPREAD      = 16,       // tasks wanted
    SPLIT_BYTES = 1 << 25   // of partial weight gradients, at most
};

// One convolution. x and y are (N, H, W, C) and w is (O, KH, KW, CG), all row-major and of the compute
// type: in place, or, where the given ones are not so, copies in scratch. Of the three, one is the
// result, which is copied at the end where it was made in scratch.
typedef struct {
    const tni_call *call;
    tni_then       *then;
    tn_dtype        dtype;
    int64_t         bytes;  // of an element
    int64_t         N, C, H, W, O, OH, OW, KH, KW, G, CG, OG, P, K;
    int64_t         stride[2], padding[2], dilation[2];
    char           *x, *w, *y, *result;
    tni_arg         out;        // the result in the order above, where it is wanted
    bool            direct;     // 1 x 1, stride 1, no padding: x is its own rows
    int64_t         positions;  // of a block
    int64_t         blocks;     // of positions: of all images, for dgrad of one unless it is direct
    int64_t         splits;     // wgrad: partial sums over positions
    char           *partial;
    char           *rooms;  // one per worker: rows, then what gemm wants
    size_t          rows, room;
} conv;

// ---- rows ----

// Elements kw of a window for which shift + kw * dilation is in 0 .. size-1: from *lo to *hi.
static void valid(int64_t shift, int64_t dilation, int64_t size, int64_t n, int64_t *lo,
                  int64_t *hi)
{
    *lo = shift >= 0 ? 0 : tni_lesser(tni_pieces(-shift, dilation), n);
    *hi = shift >= size ? 0 : tni_lesser(tni_pieces(size - shift, dilation), n);
    if (*hi < *lo) *hi = *lo;
}

// Where position p's window begins in one axis of x.
static int64_t begin(const conv *c, int axis, int64_t p)
{
    return p * c->stride[axis] - c->padding[axis];
}

// The part of a row of the window that lies in x: its first element at *at in x (of the image and
// group at it), lo .. hi-1 along kw. False if all of it is outside.
static bool inside(const conv *c, int64_t oh, int64_t ow, int64_t kh, int64_t *lo, int64_t *hi,
                   int64_t *at)
{
    int64_t h = begin(c, 0, oh) + kh * c->dilation[0], w = begin(c, 1, ow);
    valid(w, c->dilation[1], c->W, c->KW, lo, hi);
    *at = (h * c->W + w + *lo * c->dilation[1]) * c->C;
    return h >= 0 && h < c->H && *lo < *hi;
}

// Neighbours in a row of the window are one run of x.
static bool side_by_side(const conv *c)
{
    return c->dilation[1] == 1 && c->G == 1;
}

// One row: the window of a position of the image and group at x.
static void make_row(const conv *c, const char *x, int64_t oh, int64_t ow, char *row)
{
    size_t run  = (size_t)(c->CG * c->bytes);
    bool   side = side_by_side(c);
    for (int64_t kh = 0; kh < c->KH; kh++, row += (size_t)c->KW * run) {
        int64_t lo, hi, at;
        if (!inside(c, oh, ow, kh, &lo, &hi, &at)) {
            memset(row, 0, (size_t)c->KW * run);
            continue;
        }
        if (lo > 0) memset(row, 0, (size_t)lo * run);
        if (side) memcpy(row + (size_t)lo * run, x + at * c->bytes, (size_t)(hi - lo) * run);
        for (int64_t k = lo; k < hi && !side; k++, at += c->dilation[1] * c->C)
            memcpy(row + (size_t)k * run, x + at * c->bytes, run);
        if (hi < c->KW) memset(row + (size_t)hi * run, 0, (size_t)(c->KW - hi) * run);
    }
}

// Adds one row to where it was gathered.
static void add_row(const conv *c, char *x, int64_t oh, int64_t ow, const char *row)
{
    for (int64_t kh = 0; kh < c->KH; kh++) {
        int64_t lo, hi, at;
        if (!inside(c, oh, ow, kh, &lo, &hi, &at)) continue;
        int64_t step = side_by_side(c) ? hi - lo : 1;
        for (int64_t k = lo; k < hi; k += step, at += c->dilation[1] * c->C)
            tni_add_run(c->dtype, x + at * c->bytes, row + (kh * c->KW + k) * c->CG * c->bytes, 1,
                        step * c->CG);
    }
}

// x, y and w of group g: of image n, of position q counted through all images.
static char *image(const conv *c, int64_t n, int64_t g)
{
    return c->x + (n * c->H * c->W * c->C + g * c->CG) * c->bytes;
}

static char *output(const conv *c, int64_t q, int64_t g)
{
    return c->y + (q * c->O + g * c->OG) * c->bytes;
}

static char *weight(const conv *c, int64_t g)
{
    return c->w + g * c->OG * c->K * c->bytes;
}

// The rows of positions q0 .. q1-1: x itself or made in room; they are *apart elements from another.
static const char *rows_of(const conv *c, int64_t g, int64_t q0, int64_t q1, char *room,
                           int64_t *apart)
{
    *apart = c->direct ? c->C : c->K;
    if (c->direct) return image(c, 0, g) + q0 * c->C * c->bytes;
    for (int64_t q = q0; q < q1; q++) {
        int64_t p = q % c->P;
        make_row(c, image(c, q / c->P, g), p / c->OW, p % c->OW, room + (q - q0) * c->K * c->bytes);
    }
    return room;
}

// ---- products, of n positions ----

// y (n, OG) = rows (n, K) @ w (OG, K) transposed.
static tni_gemm forward_product(const conv *c, int64_t n)
{
    int64_t apart = c->direct ? c->C : c->K;
    return (tni_gemm){ .dtype = c->dtype,
                       .m     = n,
                       .n     = c->OG,
                       .k     = c->K,
                       .a_row = apart,
                       .a_col = 1,
                       .b_row = 1,
                       .b_col = c->K,
                       .ldc   = c->O };
}

// rows (n, K) = gy (n, OG) @ w (OG, K).
static tni_gemm input_product(const conv *c, int64_t n)
{
    return (tni_gemm){ .dtype = c->dtype,
                       .m     = n,
                       .n     = c->K,
                       .k     = c->OG,
                       .a_row = c->O,
                       .a_col = 1,
                       .b_row = c->K,
                       .b_col = 1,
                       .ldc   = c->direct ? c->C : c->K };
}

// gw (OG, K) += gy (n, OG) transposed @ rows (n, K).
static tni_gemm weight_product(const conv *c, int64_t n)
{
    return (tni_gemm){ .dtype      = c->dtype,
                       .m          = c->OG,
                       .n          = c->K,
                       .k          = n,
                       .a_row      = 1,
                       .a_col      = c->O,
                       .b_row      = c->direct ? c->C : c->K,
                       .b_col      = 1,
                       .ldc        = c->K,
                       .accumulate = true };
}

static tni_gemm product(const conv *c, int64_t n)
{
    return c->call->op == TNI_conv         ? forward_product(c, n)
           : c->call->op == TNI_conv_dgrad ? input_product(c, n)
                                           : weight_product(c, n);
}

// ---- planning ----

static void sizes_of(conv *c, const tni_arg *x, const tni_arg *w, const tni_arg *y)
{
    const tni_attr *a = c->call->attr;
    c->N = x->size[0], c->C = x->size[1], c->H = x->size[2], c->W = x->size[3];
    c->O = w->size[0], c->KH = w->size[2], c->KW = w->size[3];
    c->OH = y->size[2], c->OW = y->size[3], c->G = a->conv.groups;
    c->CG = w->size[1], c->OG = c->O / c->G;
    c->P = c->OH * c->OW;
    c->K = c->KH * c->KW * c->CG;
    for (int i = 0; i < 2; i++) {
        c->stride[i]   = a->conv.stride[i];
        c->padding[i]  = a->conv.padding[i];
        c->dilation[i] = a->conv.dilation[i];
    }
    c->direct = c->KH * c->KW == 1 && c->stride[0] == 1 && c->stride[1] == 1 &&
                c->padding[0] == 0 && c->padding[1] == 0;
}

// How the work is cut: by sizes alone.
static void cut(conv *c)
{
    bool    whole = c->direct || c->call->op != TNI_conv_dgrad;
    int64_t span = whole ? c->N * c->P : c->P, width = c->K > c->O ? c->K : c->O;
    int64_t most = BLOCK_BYTES / c->bytes / width;
    while (whole && most > LEAST && span < most * SPREAD) most /= 2;
    c->positions  = tni_lesser(span, most > LEAST ? most : LEAST);
    c->blocks     = tni_pieces(span, c->positions);
    c->rows       = c->direct ? 0 : (size_t)tni_align64(c->positions * c->K * c->bytes);
    int64_t limit = SPLIT_BYTES / (c->O * c->K * c->bytes), splits = tni_pieces(SPREAD, c->G);
    splits    = tni_lesser(tni_lesser(splits, c->blocks), limit);
    c->splits = c->call->op == TNI_conv_wgrad && splits > 1 ? splits : 1;
}

// The most scratch that a product of some block wants: there are whole blocks and last ones.
static size_t product_scratch(const conv *c)
{
    int64_t span = c->direct || c->call->op != TNI_conv_dgrad ? c->N * c->P : c->P;
    size_t  most = 0;
    for (int i = 0; i < 2; i++) {
        int64_t  n = i ? span % c->positions : c->positions;
        tni_gemm g = product(c, n);
        size_t   s = n > 0 ? tni_gemm_scratch(&g, 1) : 0;
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

static char *operand(const conv *c, const tni_arg *x, bool is_result, char *at, size_t *used)
{
    if (x->dtype == c->dtype && tni_arg_is_rows(x)) return x->data;
    char *p = take(at, used, (size_t)(tni_arg_count(x) * c->bytes));
    if (p && !is_result) {
        tni_arg copy = tni_arg_rows(c->dtype, 4, x->size, p);
        tni_copy_arg(c->call->threads, x, &copy);
    }
    return p;
}

static bool is_empty(const conv *c)
{
    return c->N * c->P * c->K * c->O == 0;
}

// Fills in the whole plan. With scratch NULL nothing is copied and *used counts what is wanted.
static conv plan(const tni_call *call, char *scratch, size_t *used)
{
    conv    c = { .call = call, .dtype = tni_compute_dtype(call->out.dtype) };
    tni_arg x[3];
    char   *data[3];
    int     result = tni_conv_operands(call, x);
    c.bytes        = (int64_t)tni_dtype_size(c.dtype);
    *used          = 0;
    sizes_of(&c, &x[0], &x[1], &x[2]);
    if (!is_empty(&c)) cut(&c);
    for (int i = 0; i < 3; i++) {
        x[i]    = channels_last(&x[i]);
        data[i] = operand(&c, &x[i], result == i, scratch, used);
    }
    c.x = data[0], c.w = data[1], c.y = data[2];
    c.result  = data[result];
    c.out     = x[result];
    c.then    = c.result == c.out.data ? call->then : NULL;
    c.partial = c.splits > 1 ? take(scratch, used, (size_t)(c.splits * c.O * c.K * c.bytes)) : NULL;
    c.room    = is_empty(&c) ? 0 : c.rows + product_scratch(&c);
    c.rooms   = take(scratch, used, c.room * (size_t)call->threads);
    return c;
}

size_t tni_cpu_conv_last_scratch(const tni_call *call)
{
    size_t used;
    plan(call, NULL, &used);
    return used;
}

// ---- the three ----

static void forward_task(void *arg, int64_t item, int worker)
{
    const conv *c = arg;
    int64_t     g = item % c->G, q0 = item / c->G * c->positions, apart;
    int64_t     q1   = tni_lesser(c->N * c->P, q0 + c->positions);
    char       *room = c->rooms + (size_t)worker * c->room;
    tni_gemm    m    = forward_product(c, q1 - q0);
    m.a              = rows_of(c, g, q0, q1, room, &apart);
    m.b              = weight(c, g);
    m.c              = output(c, q0, g);
    tni_gemm_run(&m, 1, room + c->rows);
}

// A block of positions: each has its own place in x.
static void direct_input_task(void *arg, int64_t item, int worker)
{
    const conv *c = arg;
    int64_t     g = item % c->G, q0 = item / c->G * c->positions;
    int64_t     q1 = tni_lesser(c->N * c->P, q0 + c->positions);
    tni_gemm    m  = input_product(c, q1 - q0);
    m.a            = output(c, q0, g);
    m.b            = weight(c, g);
    m.c            = image(c, 0, g) + q0 * c->C * c->bytes;
    tni_gemm_run(&m, 1, c->rooms + (size_t)worker * c->room);
}

// An image of one group, block by block, since windows overlap.
static void input_task(void *arg, int64_t item, int worker)
{
    const conv *c = arg;
    int64_t     g = item % c->G, n = item / c->G;
    char       *room = c->rooms + (size_t)worker * c->room, *x = image(c, n, g);
    for (int64_t i = 0; i < c->H * c->W; i++)
        memset(x + i * c->C * c->bytes, 0, (size_t)(c->CG * c->bytes));
    for (int64_t p0 = 0; p0 < c->P; p0 += c->positions) {
        int64_t  p1 = tni_lesser(c->P, p0 + c->positions);
        tni_gemm m  = input_product(c, p1 - p0);
        m.a         = output(c, n * c->P + p0, g);
        m.b         = weight(c, g);
        m.c         = room;
        tni_gemm_run(&m, 1, room + c->rows);
        for (int64_t p = p0; p < p1; p++)
            add_row(c, x, p / c->OW, p % c->OW, room + (p - p0) * c->K * c->bytes);
    }
}

// The blocks of positions of one split.
static void weight_task(void *arg, int64_t item, int worker)
{
    const conv *c = arg;
    int64_t     g = item % c->G, split = item / c->G, apart;
    int64_t     end  = (split + 1) * c->blocks / c->splits;
    char       *room = c->rooms + (size_t)worker * c->room;
    char       *base = c->splits > 1 ? c->partial + split * c->O * c->K * c->bytes : c->w;
    char       *to   = base + g * c->OG * c->K * c->bytes;
    memset(to, 0, (size_t)(c->OG * c->K * c->bytes));
    for (int64_t b = split * c->blocks / c->splits; b < end; b++) {
        int64_t  q0 = b * c->positions, q1 = tni_lesser(c->N * c->P, q0 + c->positions);
        tni_gemm m = weight_product(c, q1 - q0);
        m.a        = output(c, q0, g);
        m.b        = rows_of(c, g, q0, q1, room, &apart);
        m.c        = to;
        tni_gemm_run(&m, 1, room + c->rows);
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

void tni_cpu_conv_last(const tni_call *call)
{
    size_t used;
    conv   c       = plan(call, call->scratch, &used);
    int    threads = tni_threads_for(call->threads, c.N * c.O * c.P * c.K);
    if (is_empty(&c)) {
        memset(c.result, 0, (size_t)(tni_arg_count(&c.out) * c.bytes));
    } else if (call->op == TNI_conv) {
        tni_then_parallel(c.then, threads, c.G * c.blocks, forward_task, &c, (int)c.G,
                          c.positions * c.O, c.N * c.P * c.O);
    } else if (call->op == TNI_conv_dgrad && c.direct) {
        tni_then_parallel(c.then, threads, c.G * c.blocks, direct_input_task, &c, (int)c.G,
                          c.positions * c.C, c.N * c.P * c.C);
    } else if (call->op == TNI_conv_dgrad) {
        int64_t image = c.H * c.W * c.C;
        tni_then_parallel(c.then, threads, c.G * c.N, input_task, &c, (int)c.G, image, c.N * image);
    } else {
        tni_parallel(threads, c.splits * c.G, weight_task, &c);
        if (c.splits > 1) join_splits(&c);
    }
    if (c.result != c.out.data) {
        tni_arg made = tni_arg_rows(c.dtype, 4, c.out.size, c.result);
        tni_copy_arg(call->threads, &made, &c.out);
    }
}
