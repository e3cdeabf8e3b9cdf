// Products and convolutions of bytes, with sums in i32: how the work is cut, and how operands are
// packed for the kernels of gemm_bytes.h.
//
//     matmul_i32   a product for each matrix of the batch
//     conv_i32     y (positions, OG) = windows (positions, K) @ w (K, OG) for each group, channels last; K goes along the
//                  taps of a window, and along the channels of each
//
// b is packed first, all of it, unless the packed form of the same weights was kept. The result is
// cut into bands of rows; a task packs the rows of a that its band needs, then multiplies them by
// one strip of b after the other, and runs the kernel that follows on the band. If nothing but that
// kernel reads the result, a band of it is computed in scratch: 4 bytes for each element never
// leave the cache.
#include "device/cpu/conv_bytes_depthwise.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/gemm_bytes.h"
#include "device/cpu/kept_weights.h"

#include <string.h>

// Sizes of bands were tried from 64 KB of packed rows and 32 KB of results to four and sixteen
// times that: the layers of a ResNet-50 took the same time within one percent.
//
// A_BYTES, C_BYTES: of a band's packed rows and of its result, which a second-level cache holds
// besides a strip of b. TASKS: bands wanted for each of several threads: a late one holds up
// little. LEAST_WORK: multiply-adds that are worth a thread.
enum { A_BYTES = 1 << 17, C_BYTES = 1 << 18, TASKS = 3, LEAST_WORK = 1 << 18 };

// Where b of one product has its elements: column j, tap (d, h, w), channel c. A matrix has one
// tap.
typedef struct {
    int64_t col, tap[3], channel;  // strides
    int64_t taps[3], channels;     // sizes
} byte_columns;

// All products of a call, which have one shape. outer: those whose results follow each other,
// matrices of a batch; inner: those whose results are side by side, groups of a convolution. Their
// operands are counted through by a, b and c: product i begins tni_arg_offset(.., i) elements after
// the first.
typedef struct {
    const tni_call         *call;
    const tni_bytes_kernel *kernel;
    int64_t                 m, n, k, steps, strips;  // steps along k; strips of columns
    int64_t                 outer, inner, packs;     // packs: different matrices b
    tni_arg                 a, b, c;
    int64_t                 a_row, a_col, ldc;
    byte_columns            columns;
    uint8_t                 flip_a, flip_b;  // the highest bit, if it is turned
    int32_t                 zero_a, zero_b;  // what that took off
    tni_conv_plan           windows;         // of a convolution
    bool                    gathers;         // rows of a are windows that are gathered
    bool                    depthwise;       // computed by conv_bytes_depthwise.c
    // How the result is cut.
    int                 threads;
    int64_t             band, down, across;  // rows of a band; bands; parts of its columns
    tni_tiled_epilogue *epilogue;
    bool                in_scratch;  // bands of the result are
    // Memory: x in the order that is read, packed b, starts of columns; of each worker: packed a,
    // windows, sums of rows, c.
    char  *copied, *packed, *workers;
    size_t copied_bytes, strip_bytes, start_bytes, pack_bytes;
    size_t a_bytes, window_bytes, sum_bytes, c_bytes, worker_bytes;
} byte_job;

// ---- planning ----------------------------------------------------------------------------------

static size_t aligned(int64_t bytes)
{
    return (size_t)tni_align64(bytes);
}

// Without leading axes, or with the groups of a convolution as the only one.
static tni_arg leading(const tni_arg *x, int64_t n, int64_t step)
{
    tni_arg y   = { .dtype = x->dtype, .rank = 1, .data = x->data };
    y.size[0]   = n;
    y.stride[0] = step;
    return y;
}

// Matrices of a batch: each has rows of its own, and b of its own unless its leading strides are
// all 0. Elements are bytes, so that strides in elements are those in bytes.
static void plan_matmul(byte_job *j)
{
    const tni_arg *a = &j->call->in[0], *b = &j->call->in[1], *c = &j->call->out;
    int            lead = c->rank - 2;
    j->a = *a, j->b = *b, j->c = *c;
    j->a.rank = j->b.rank = j->c.rank = lead;
    j->m = c->size[lead], j->n = c->size[lead + 1], j->k = a->size[lead + 1];
    j->outer = tni_arg_count(&j->c);
    j->inner = j->packs = 1;
    for (int i = 0; i < lead; i++)
        if (b->stride[i] && b->size[i] > 1) j->packs = j->outer;
    j->a_row = a->stride[lead], j->a_col = a->stride[lead + 1], j->ldc = j->n;
    j->columns = (byte_columns){ .col      = b->stride[lead + 1],
                                 .channel  = b->stride[lead],
                                 .taps     = { 1, 1, 1 },
                                 .channels = j->k };
}

// x is read in the order of its memory, (N, places, C): itself, or a copy.
static void plan_conv(byte_job *j)
{
    tni_conv_form  f = tni_conv_form_of(j->call, 3);
    const tni_arg *w = &f.arg[1], *x = &j->call->in[0];
    tni_conv_plan *c = &j->windows;
    c->call          = j->call;
    c->dtype         = x->dtype;
    c->bytes         = 1;
    c->fill          = (int)j->call->attr->conv.fill;
    c->x             = x->data;
    tni_conv_sizes(c, &f);
    j->depthwise = tni_bytes_depthwise_takes(c);
    if (!tni_arg_is_row_major(x)) j->copied_bytes = aligned(tni_arg_count(x));
    j->m = c->N * c->P, j->n = c->OG, j->k = c->K;
    j->outer = 1, j->inner = j->packs = c->G;
    j->a = leading(x, c->G, c->CG), j->b = leading(w, c->G, c->OG * w->stride[0]);
    j->c     = leading(&j->call->out, c->G, c->OG);
    j->a_row = c->C, j->a_col = 1, j->ldc = c->O;
    j->gathers = !c->pointwise;
    j->columns = (byte_columns){ w->stride[0],
                                 { w->stride[2], w->stride[3], w->stride[4] },
                                 w->stride[1],
                                 { c->KD, c->KH, c->KW },
                                 c->CG };
}

// Bands are as tall as the cache allows, and shorter where threads would have none; if rows are too
// few for that, columns are cut, too. Any of the sizes may be 0, and counts as 1 here: the result
// is then empty, or zeros.
static void cut_result(byte_job *j)
{
    int64_t mr = j->kernel->mr, row = tni_max_i64(1, j->steps * j->kernel->kr);
    int64_t products = tni_max_i64(1, j->outer * j->inner), n = tni_max_i64(1, j->n);
    double  work   = (double)j->m * (double)j->n * (double)j->k * (double)products;
    int64_t most   = tni_clamp(tni_min_i64(A_BYTES / row, C_BYTES / (4 * n)) / mr, 1, 1 << 20);
    int64_t wanted = 1;
    j->threads     = (int)tni_clamp((int64_t)(work / LEAST_WORK), 1, j->call->threads);
    if (j->threads > 1) wanted = tni_ceil_div(TASKS * j->threads, products);
    int64_t tall = tni_max_i64(1, tni_ceil_div(j->m, mr));  // in strips
    j->down      = tni_clamp(wanted, tni_ceil_div(tall, most), tall);
    j->band      = tni_ceil_div(tall, j->down) * mr;
    j->down      = tni_ceil_div(j->m, j->band);
    j->across    = tni_clamp(tni_ceil_div(wanted, j->down), 1, j->strips);
    if (j->down > 1) j->across = 1;
}

// Fills in all but addresses of scratch. Which bytes are turned depends on what the kernel
// multiplies: b is signed in all of them, a in most.
static byte_job plan_bytes(const tni_call *call)
{
    byte_job j = { .call = call, .kernel = tni_bytes_kernel_get(0) };
    if (call->op == TNI_conv_i32) plan_conv(&j);
    else plan_matmul(&j);
    const tni_bytes_kernel *q          = j.kernel;
    bool                    unsigned_a = call->in[0].dtype == TN_U8;
    j.steps                            = tni_ceil_div(j.k, q->kr);
    j.strips                           = tni_ceil_div(j.n, q->nr);
    if (unsigned_a != q->unsigned_a) j.flip_a = 0x80, j.zero_a = unsigned_a ? 128 : -128;
    if (call->in[1].dtype == TN_U8) j.flip_b = 0x80, j.zero_b = 128;
    cut_result(&j);
    j.strip_bytes  = (size_t)(j.steps * q->nr * q->kr);
    j.start_bytes  = aligned(j.strips * q->nr * (int64_t)sizeof(int32_t));
    j.pack_bytes   = j.start_bytes + aligned(j.strips * (int64_t)j.strip_bytes);
    j.a_bytes      = aligned(j.band * j.steps * q->kr);
    j.window_bytes = j.gathers || j.a_col != 1 ? aligned(q->mr * j.k) : 0;
    j.sum_bytes    = j.zero_b ? aligned(j.band * (int64_t)sizeof(int32_t)) : 0;
    j.in_scratch   = call->launch && !call->also_read && j.inner * j.across == 1;
    j.c_bytes      = j.in_scratch ? aligned(j.band * j.n * (int64_t)sizeof(int32_t)) : 0;
    j.worker_bytes = j.a_bytes + j.window_bytes + j.sum_bytes + j.c_bytes;
    return j;
}

static bool is_empty(const byte_job *j)
{
    return j->m * j->n * j->outer * j->inner == 0;
}

// Enough for all that run_bytes takes, in its order: the copy of x, what each worker has, and b
// packed, which is elsewhere once it is kept.
static size_t scratch_of(const tni_call *call)
{
    byte_job j = plan_bytes(call);
    if (is_empty(&j) || !j.k) return 0;
    if (j.depthwise) return j.copied_bytes + tni_bytes_depthwise_scratch(&j.windows);
    return j.copied_bytes + j.pack_bytes * (size_t)j.packs + j.worker_bytes * (size_t)j.threads;
}

size_t tni_cpu_matmul_i32_scratch(const tni_call *call)
{
    return scratch_of(call);
}

size_t tni_cpu_conv_i32_scratch(const tni_call *call)
{
    return scratch_of(call);
}

// ---- packing -----------------------------------------------------------------------------------

// Writes n bytes, each xor `flip`, in pieces of kr bytes, `apart` bytes from piece to piece; the
// last is filled with zeros.
static inline __attribute__((always_inline)) void spread(int kr, const uint8_t *from, int64_t n,
                                                         uint8_t flip, uint8_t *to, int64_t apart)
{
    uint64_t turn = flip * UINT64_C(0x0101010101010101), v = 0;
    int64_t  i = 0;
    for (; i + kr <= n; i += kr, to += apart) {
        memcpy(&v, from + i, (size_t)kr);
        v ^= turn;
        memcpy(to, &v, (size_t)kr);
    }
    if (i == n) return;
    memset(to, 0, (size_t)kr);
    for (int64_t k = i; k < n; k++) to[k - i] = from[k] ^ flip;
}

static void spread_row(const tni_bytes_kernel *q, const uint8_t *from, int64_t n, uint8_t flip,
                       uint8_t *to, int64_t apart)
{
    if (q->kr == 8) spread(8, from, n, flip, to, apart);
    else if (q->kr == 4) spread(4, from, n, flip, to, apart);
    else spread(2, from, n, flip, to, apart);
}

// Elements of two vectors, numbered through, as a third. Compilers before gcc 12 spell it
// otherwise.
typedef uint32_t four __attribute__((vector_size(16)));
#if defined(__clang__) || __GNUC__ >= 12
#define PICK4(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l)
#else
#define PICK4(x, y, i, j, k, l) __builtin_shuffle(x, y, (four){ i, j, k, l })
#endif

// 16 bytes of a row, turned where they have to be.
static four load_four(const uint8_t *x, uint32_t turn)
{
    four v;
    memcpy(&v, x, sizeof v);
    return v ^ turn;
}

// The same as spread for four rows side by side in pieces of four bytes, 16 bytes of each at a
// time: four vectors are transposed. Returns how many bytes of each row were written.
static int64_t spread_four(const uint8_t *from, int64_t row, int64_t n, uint8_t flip, uint8_t *to,
                           int64_t apart)
{
    uint32_t turn = flip * UINT32_C(0x01010101);
    int64_t  i    = 0;
    for (; i + 16 <= n; i += 16) {
        four a = load_four(from + i, turn), b = load_four(from + row + i, turn),
             c = load_four(from + 2 * row + i, turn), d = load_four(from + 3 * row + i, turn);
        four ab0 = PICK4(a, b, 0, 4, 1, 5), cd0 = PICK4(c, d, 0, 4, 1, 5),
             ab1 = PICK4(a, b, 2, 6, 3, 7), cd1 = PICK4(c, d, 2, 6, 3, 7);
        four y[] = { PICK4(ab0, cd0, 0, 1, 4, 5), PICK4(ab0, cd0, 2, 3, 6, 7),
                     PICK4(ab1, cd1, 0, 1, 4, 5), PICK4(ab1, cd1, 2, 3, 6, 7) };
        for (int k = 0; k < 4; k++, to += apart) memcpy(to, &y[k], sizeof y[k]);
    }
    return i;
}

// Packs n rows, `row` apart, of a strip.
static void spread_rows(const byte_job *j, const uint8_t *from, int64_t row, int64_t n, uint8_t *to)
{
    const tni_bytes_kernel *q     = j->kernel;
    int64_t                 apart = (int64_t)q->mr * q->kr;
    for (int64_t r = 0; r < n; r++) {
        int64_t done = 0;
        if (q->kr == 4 && r % 4 == 0 && r + 4 <= n) {
            done = spread_four(from + r * row, row, j->k, j->flip_a, to + r * 4, apart);
            for (int64_t k = 0; k < 4; k++)
                spread(4, from + (r + k) * row + done, j->k - done, j->flip_a,
                       to + (r + k) * 4 + done / 4 * apart, apart);
            r += 3;
        } else spread_row(q, from + r * row, j->k, j->flip_a, to + r * q->kr, apart);
    }
}

// The sum of a row as it is packed, which is what a column of unsigned b leaves to be added for
// each row.
static int32_t sum_bytes_of(const uint8_t *x, int64_t n, uint8_t flip, bool is_unsigned)
{
    uint32_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint8_t v = x[i] ^ flip;
        sum += is_unsigned ? v : (uint32_t)(int8_t)v;
    }
    return (int32_t)sum;
}

// Reads a column of b, tap by tap, and returns the sum of its bytes as packed.
static uint32_t pack_column(const byte_job *j, const uint8_t *b, uint8_t *to)
{
    const byte_columns *s  = &j->columns;
    int64_t             kr = j->kernel->kr, apart = j->kernel->nr * kr, k = 0;
    uint32_t            sum = 0;
    for (int64_t t = 0; t < s->taps[0] * s->taps[1] * s->taps[2]; t++) {
        int64_t        d = t / (s->taps[1] * s->taps[2]), h = t / s->taps[2] % s->taps[1];
        const uint8_t *at = b + d * s->tap[0] + h * s->tap[1] + t % s->taps[2] * s->tap[2];
        for (int64_t c = 0; c < s->channels; c++, k++) {
            uint8_t v = at[c * s->channel] ^ j->flip_b;
            sum += (uint32_t)(int8_t)v;
            to[k / kr * apart + k % kr] = v;
        }
    }
    return sum;
}

// A task: a strip of columns of b, and what the sums of its columns start from.
static void pack_strip(void *arg, int64_t item, int worker)
{
    const byte_job *j  = arg;
    int64_t         nr = j->kernel->nr, which = item / j->strips, strip = item % j->strips;
    char           *at    = j->packed + which * (int64_t)j->pack_bytes;
    int32_t        *start = (int32_t *)at + strip * nr;
    uint8_t        *to    = (uint8_t *)at + j->start_bytes + (size_t)strip * j->strip_bytes;
    const uint8_t  *b     = (const uint8_t *)j->b.data + tni_arg_offset(&j->b, which);
    (void)worker;
    memset(to, 0, j->strip_bytes);
    for (int64_t i = 0; i < nr; i++) {
        int64_t  col = strip * nr + i;
        uint32_t sum = 0;
        if (col < j->n) sum = pack_column(j, b + col * j->columns.col, to + i * j->kernel->kr);
        start[i] = (int32_t)((uint32_t)j->zero_a * (sum + (uint32_t)j->k * (uint32_t)j->zero_b));
    }
}

// The scratch of a worker.
typedef struct {
    uint8_t *a, *windows;
    int32_t *sums, *c;
} worker_memory;

// Divides the scratch of a worker; plan_bytes counts the same parts.
static worker_memory memory_of(const byte_job *j, int worker)
{
    char         *at = j->workers + (size_t)worker * j->worker_bytes;
    worker_memory m  = { .a = (uint8_t *)at, .windows = (uint8_t *)at + j->a_bytes };
    m.sums           = (int32_t *)(at + j->a_bytes + j->window_bytes);
    m.c              = (int32_t *)((char *)m.sums + j->sum_bytes);
    return m;
}

// Copies a run without a call: by vectors, of which the last overlaps the one before it.
static inline void copy_run(uint8_t *to, const uint8_t *from, int64_t n)
{
    int64_t i = 0;
    if (n < 16) {
        memcpy(to, from, (size_t)n);
        return;
    }
    for (; i + 16 <= n; i += 16) memcpy(to + i, from + i, 16);
    if (i < n) memcpy(to + n - 16, from + n - 16, 16);
}

// Gathers a row of a window, KW places from column w on of row `line` of an image; NULL: that is
// padding.
static inline void gather_line(const tni_conv_plan *c, const uint8_t *line, int64_t w, uint8_t *to)
{
    if (line && w >= 0 && w + c->KW <= c->W) {
        copy_run(to, line + w * c->C, c->KW * c->C);
        return;
    }
    for (int64_t k = 0; k < c->KW; k++, to += c->C)
        if (line && w + k >= 0 && w + k < c->W) copy_run(to, line + (w + k) * c->C, c->C);
        else memset(to, c->fill, (size_t)c->C);
}

// Gathers windows over two axes without dilation or groups: a row of a window is a run of x, and
// only a few are cut by an edge.
static void gather_windows(const tni_conv_plan *c, int64_t q, int64_t n, uint8_t *to)
{
    const uint8_t *x     = (const uint8_t *)c->x;
    int64_t        image = q / c->P, h = q % c->P / c->OW, w = q % c->OW;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < c->KH; k++, to += c->KW * c->C) {
            int64_t at   = h * c->along_h.stride - c->along_h.padding + k * c->along_h.dilation;
            bool    here = at >= 0 && at < c->H;
            gather_line(c, here ? x + (image * c->H + at) * c->W * c->C : NULL,
                        w * c->along_w.stride - c->along_w.padding, to);
        }
        if (++w == c->OW) w = 0, h++;
        if (h == c->OH) h = 0, image++;
    }
}

// Returns rows i .. i+n-1 of a of a product, each with its bytes in a run, *row apart: where they
// are, or gathered.
static const uint8_t *rows_of(const byte_job *j, int64_t product, int64_t i, int64_t n,
                              uint8_t *windows, int64_t *row)
{
    const uint8_t *a       = (const uint8_t *)j->a.data + tni_arg_offset(&j->a, product);
    *row                   = j->k;
    const tni_conv_plan *c = &j->windows;
    if (j->gathers && c->G == 1 && c->D * c->KD == 1 && c->along_d.padding == 0 &&
        c->along_w.dilation == 1) {
        gather_windows(c, i, n, windows);
        return windows;
    }
    if (j->gathers) {
        tni_conv_windows(&j->windows, product, 0, j->k, i, i + n, (char *)windows);
        return windows;
    }
    if (j->a_col != 1) {
        for (int64_t r = 0; r < n; r++)
            tni_gather_run(1, windows + r * j->k, a + (i + r) * j->a_row, j->a_col, j->k);
        return windows;
    }
    *row = j->a_row;
    return a + i * j->a_row;
}

// Packs rows i .. i+rows-1 of a, of a band.
static void pack_rows(const byte_job *j, int64_t product, int64_t i, int64_t rows,
                      const worker_memory *m)
{
    const tni_bytes_kernel *q = j->kernel;
    for (int64_t r = 0, n; r < rows; r += n) {
        int64_t row;
        n                 = tni_min_i64(q->mr, rows - r);
        const uint8_t *at = rows_of(j, product, i + r, n, m->windows, &row);
        uint8_t       *to = m->a + r * j->steps * q->kr;
        spread_rows(j, at, row, n, to);
        for (int64_t k = 0; k < n && j->zero_b; k++)
            m->sums[r + k] = sum_bytes_of(at + k * row, j->k, j->flip_a, q->unsigned_a);
        for (int64_t k = n; k < q->mr; k++)
            for (int64_t s = 0; s < j->steps; s++)
                memset(to + (s * q->mr + k) * q->kr, 0, (size_t)q->kr);
    }
}

// ---- multiplying -------------------------------------------------------------------------------

// One tile. The kernel writes whole tiles; one at the edge goes through a copy.
static void multiply_tile(const byte_job *j, const worker_memory *m, int64_t r, int rows,
                          const uint8_t *b, const int32_t *start, int cols, int32_t *c)
{
    const tni_bytes_kernel *q = j->kernel;
    int32_t                 edge[TNI_BYTES_MOST_ROWS * TNI_BYTES_MOST_COLS];
    const uint8_t          *a = m->a + r * j->steps * q->kr;
    if (cols == q->nr) q->tile(j->steps, rows, a, b, start, c, j->ldc);
    else {
        q->tile(j->steps, rows, a, b, start, edge, q->nr);
        for (int i = 0; i < rows; i++)
            memcpy(c + i * j->ldc, edge + i * q->nr, (size_t)cols * sizeof *c);
    }
    for (int i = 0; i < rows && j->zero_b; i++) {
        uint32_t more = (uint32_t)j->zero_b * (uint32_t)m->sums[r + i];
        for (int k = 0; k < cols; k++)
            c[i * j->ldc + k] = (int32_t)((uint32_t)c[i * j->ldc + k] + more);
    }
}

// A task: a part of the columns of one band of one product.
//
// Strips of b are the outer loop: one of them stays in the first-level cache while all strips of
// the band's rows, which the second-level cache has, go past it.
static void band_task(void *arg, int64_t item, int worker)
{
    const byte_job *j    = arg;
    int64_t         part = item % j->across, group = item / j->across % j->inner;
    int64_t         down  = item / j->across / j->inner % j->down;
    int64_t         outer = item / j->across / j->inner / j->down, product = outer + group;
    int64_t         i0 = down * j->band, rows = tni_min_i64(j->band, j->m - i0);
    int64_t         mr = j->kernel->mr, nr = j->kernel->nr, which = j->packs > 1 ? product : 0;
    worker_memory   m      = memory_of(j, worker);
    bool            hidden = j->in_scratch && j->epilogue;
    const char     *packed = j->packed + which * (int64_t)j->pack_bytes;
    int32_t        *c      = (int32_t *)j->c.data + tni_arg_offset(&j->c, product) + i0 * j->ldc;
    if (hidden) c = m.c;
    pack_rows(j, product, i0, rows, &m);
    int64_t end = j->strips * (part + 1) / j->across;
    for (int64_t s = j->strips * part / j->across; s < end; s++) {
        const uint8_t *b = (const uint8_t *)packed + j->start_bytes + (size_t)s * j->strip_bytes;
        const int32_t *start = (const int32_t *)packed + s * nr;
        for (int64_t r = 0; r < rows; r += mr)
            multiply_tile(j, &m, r, (int)tni_min_i64(mr, rows - r), b, start,
                          (int)tni_min_i64(nr, j->n - s * nr), c + r * j->ldc + s * nr);
    }
    if (!j->epilogue) return;
    int64_t band = outer * j->down + down, first = (outer * j->m + i0) * j->ldc;
    if (hidden)
        tni_tiled_epilogue_band_at(j->epilogue, j->call->epilogue->product, (char *)m.c, first,
                                   rows * j->ldc, worker);
    else tni_tiled_epilogue_tile_done(j->epilogue, band, first, rows * j->ldc, worker);
}

// Serves matmul_i32 and conv_i32.
static tn_status run_bytes(const tni_call *call)
{
    byte_job j       = plan_bytes(call);
    char    *scratch = call->scratch;
    bool     make;
    if (is_empty(&j)) return TN_OK;
    if (!j.k) {
        memset(j.c.data, 0, (size_t)(tni_arg_count(&call->out)) * sizeof(int32_t));
        return TN_OK;
    }
    if (j.copied_bytes) {
        const tni_arg *x    = &call->in[0];
        tni_arg        copy = tni_arg_row_major(x->dtype, x->rank, x->size, scratch);
        tni_copy_arg(call->threads, x, &copy);
        j.windows.x = j.a.data = scratch;
    }
    if (j.depthwise) {
        tni_conv_form f = tni_conv_form_of(call, 3);
        tni_bytes_depthwise_run(&j.windows, &f.arg[1], scratch + j.copied_bytes);
        return TN_OK;
    }
    j.workers = scratch + j.copied_bytes;
    j.packed  = j.workers + j.worker_bytes * (size_t)j.threads;
    j.packed  = tni_kept_weights_place(call, j.pack_bytes * (size_t)j.packs, j.packed, &make);
    if (make)
        tni_parallel(tni_threads_for(call->threads, j.n * j.k * j.packs), j.strips * j.packs,
                     pack_strip, &j);
    if (call->tiled_epilogue) call->tiled_epilogue->offset = 0;
    if (tni_tiled_epilogue_begin(call->tiled_epilogue, j.band * j.ldc, j.m * j.ldc,
                                 j.down * j.outer, (int)(j.inner * j.across)))
        j.epilogue = call->tiled_epilogue;
    tni_parallel(j.threads, j.outer * j.down * j.inner * j.across, band_task, &j);
    return TN_OK;
}

tn_status tni_cpu_matmul_i32(const tni_call *call)
{
    return run_bytes(call);
}

tn_status tni_cpu_conv_i32(const tni_call *call)
{
    return run_bytes(call);
}
