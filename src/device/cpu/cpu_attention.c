// Attention and its gradient, a block of queries of one head at a time: their scores for all keys that
// they see, by a product; the softmax of each row; what the weights make, by products again. Only one
// block of scores is ever there for each thread. The gradient computes the weights again, by the
// logarithms of their sums.
//
// What a task computes follows from the sizes alone, and tasks write apart from each other. Keys and
// values get their gradients from all queries: where there are few heads, the blocks of a head are
// dealt out to chunks, each with sums of its own, which are added up in order.
//
// B batches, H heads, T queries, S keys and values, D their size, E that of a value
#include "base/pool.h"
#include "device/attention.h"
#include "device/cpu/cpu_walk.h"
#include "device/cpu/gemm_kernel.h"

#include <math.h>
#include <string.h>

enum {
    ROWS   = 128,      // queries of a block, at most
    FEWEST = 32,       // and at least, so that packing keys and values pays
    SCORES = 1 << 17,  // elements of a block of scores, about
    SPREAD = 16,       // tasks wanted
    PANEL  = 240       // rows of a product that are packed at a time
};

// One call. Operands of f16 and bf16 are copied to f32, and results are made in f32 and rounded once.
typedef struct {
    const tni_call        *call;
    tni_attention          a;
    tn_dtype               dtype;  // that is computed in
    int64_t                bytes;  // of an element of it
    bool                   narrow;
    tni_arg                q, k, v, g;
    const tni_tiles       *tiles;
    const tni_type_tiles  *type;
    const tni_gemm_kernel *gemm;
    int64_t                rows, blocks;  // queries of a block, blocks of a head
    int64_t                ld;            // elements from one row of scores to the next
    int64_t                chunks;        // the gradient: tasks of a head
    char  *sums;  // of the chunks: gradients of keys, then values; NULL: in the result
    char  *rooms;
    size_t room;
} work;

// What a thread works with: scores, which become weights; their gradients; a row of the mask; what each
// row of the result is still to be multiplied with; a result to be rounded; operands of a product, packed.
typedef struct {
    char   *scores, *grads, *bias, *made;
    double *share;
    void   *a_pack, *b_pack;
} room;

// A block of queries of a head, and the keys they see.
typedef struct {
    int64_t b, h, first, rows, keys;
    int64_t chunk;
} block;

// ---- operands ----------------------------------------------------------------------------------

// Rows of a matrix: where the first begins, how far apart they are, and their elements.
typedef struct {
    char   *at;
    int64_t row, col;
} matrix;

// From row `first` on of x (B, T, H, D), of the block's batch and head.
static matrix rows_of(const work *w, const tni_arg *x, const block *k, int64_t first)
{
    int64_t at = k->b * x->stride[0] + first * x->stride[1] + k->h * x->stride[2];
    return (matrix){ x->data + at * w->bytes, x->stride[1], x->stride[3] };
}

static matrix turned(matrix x)
{
    return (matrix){ x.at, x.col, x.row };
}

// Rows of an output (B, n, H, size) from row `first` on.
static matrix result_rows(const tni_arg *y, const block *k, int64_t first)
{
    int64_t H = y->size[2], size = y->size[3], at = ((k->b * y->size[1] + first) * H + k->h) * size;
    return (matrix){ y->data + at * (int64_t)tni_dtype_size(y->dtype), H * size, 1 };
}

// ---- products ----------------------------------------------------------------------------------

// c (m, n) = a (m, k) @ b (k, n), or += it, by the kernels of our own product: at these sizes they are
// ahead of a BLAS, which packs and cuts for large matrices.
static void multiply(const work *w, const room *r, int64_t m, int64_t n, int64_t k, matrix a,
                     matrix b, matrix c, bool add)
{
    int64_t rows = m == 1 ? 1 : PANEL, cols = m == 1 ? TNI_GEMM_ROW_COLS : n;
    for (int64_t p = 0; p < k; p += TNI_GEMM_DEPTH)
        for (int64_t i = 0; i < m; i += rows)
            for (int64_t j = 0; j < n; j += cols) {
                tni_gemm_block x = {
                    .rows   = tni_min_i64(rows, m - i),
                    .cols   = tni_min_i64(cols, n - j),
                    .depth  = tni_min_i64(TNI_GEMM_DEPTH, k - p),
                    .a      = a.at + (i * a.row + p * a.col) * w->bytes,
                    .a_row  = a.row,
                    .a_col  = a.col,
                    .b      = b.at + (p * b.row + j * b.col) * w->bytes,
                    .b_row  = b.row,
                    .b_col  = b.col,
                    .a_pack = r->a_pack,
                    .b_pack = r->b_pack,
                    .c      = c.at + (i * c.row + j) * w->bytes,
                    .ldc    = c.row,
                    .add    = add || p > 0,
                };
                if (m == 1) w->gemm->row(&x);
                else w->gemm->block(&x);
            }
}

// Whether the gradients of keys, or values, are wanted.
static bool wants(const work *w, bool values)
{
    return w->call->more[values].data != NULL;
}

// Where the block's chunk sums up the gradients of keys (values: from D on).
static matrix sums_of(const work *w, const block *k, bool values)
{
    const tni_attention *a    = &w->a;
    int64_t              size = values ? a->E : a->D;
    if (!w->sums) return result_rows(&w->call->more[values], k, 0);
    int64_t at = ((k->b * a->H + k->h) * w->chunks + k->chunk) * a->S * (a->D + a->E);
    return (matrix){ w->sums + (at + (values ? a->S * a->D : 0)) * w->bytes, size, 1 };
}

// ---- a block -----------------------------------------------------------------------------------

static block block_at(const work *w, int64_t head, int64_t number)
{
    block k = { .b = head / w->a.H, .h = head % w->a.H, .first = number * w->rows };
    k.rows  = tni_min_i64(w->rows, w->a.T - k.first);
    k.keys  = w->a.causal ? tni_min_i64(w->a.S, k.first + k.rows) : w->a.S;
    return k;
}

static void fill_bias(const work *w, const bool *m, int64_t stride, int64_t n, char *to)
{
    float  *f = (float *)to;
    double *d = (double *)to;
    if (w->dtype == TN_F32)
        for (int64_t j = 0; j < n; j++) f[j] = m[j * stride] ? 0 : -INFINITY;
    else
        for (int64_t j = 0; j < n; j++) d[j] = m[j * stride] ? 0 : -INFINITY;
}

// What query i adds to its scores, or NULL. A row that serves all queries stays from one to the next.
static const void *bias_of(const work *w, const block *k, int64_t i, const room *r)
{
    const tni_arg *m = w->a.mask;
    if (!m) return NULL;
    int64_t at   = k->b * m->stride[0] + k->h * m->stride[1] + i * m->stride[2];
    char   *from = m->data + at * (int64_t)tni_dtype_size(m->dtype);
    if (m->dtype == w->dtype && m->stride[3] == 1) return from;
    if (i > k->first && m->stride[2] == 0) return r->bias;
    if (m->dtype == TN_BOOL) {
        fill_bias(w, (const bool *)from, m->stride[3], k->keys, r->bias);
    } else {
        tni_arg to = tni_arg_rows(w->dtype, 1, &k->keys, r->bias);
        tni_arg x  = to;
        x.dtype = m->dtype, x.stride[0] = m->stride[3], x.data = from;
        tni_copy_arg(1, &x, &to);
    }
    return r->bias;
}

// The logarithm of the sum of query i; NULL where nobody wants it.
static char *log_sum_at(const work *w, const block *k, int64_t i)
{
    const tni_arg *x = w->a.lse;
    if (!x->data) return NULL;
    return x->data +
           (k->b * x->stride[0] + k->h * x->stride[1] + (k->first + i) * x->stride[2]) * w->bytes;
}

// Scores become weights, but for the factor share[i]; of the gradient, weights.
static void weigh_row(const work *w, const block *k, const room *r, int64_t i, int64_t seen)
{
    char       *row = r->scores + i * w->ld * w->bytes, *at = log_sum_at(w, k, i);
    const void *bias = bias_of(w, k, k->first + i, r);
    bool        wide = w->dtype == TN_F64;
    double      lse  = 0;
    if (w->a.g) {
        lse = wide ? *(double *)at : (double)*(float *)at;
        w->type->reweigh(row, bias, w->a.scale, seen, lse);
        return;
    }
    r->share[i] = w->type->weigh(row, bias, w->a.scale, seen, at ? &lse : NULL);
    if (at && wide) *(double *)at = lse;
    else if (at) *(float *)at = (float)lse;
}

// Those of keys that are not seen are 0.
static void weigh(const work *w, const block *k, const room *r)
{
    for (int64_t i = 0; i < k->rows; i++) {
        int64_t seen = w->a.causal ? tni_min_i64(k->keys, k->first + i + 1) : k->keys;
        weigh_row(w, k, r, i, seen);
        memset(r->scores + (i * w->ld + seen) * w->bytes, 0, (size_t)((k->keys - seen) * w->bytes));
    }
}

// Gradients of weights become those of the products of queries and keys.
static void unweigh(const work *w, const block *k, const room *r)
{
    for (int64_t i = 0; i < k->rows; i++) {
        int64_t at   = i * w->ld * w->bytes;
        int64_t seen = w->a.causal ? tni_min_i64(k->keys, k->first + i + 1) : k->keys;
        w->type->unweigh(r->scores + at, r->grads + at, w->a.scale, seen);
        memset(r->grads + at + seen * w->bytes, 0, (size_t)((k->keys - seen) * w->bytes));
    }
}

static void scale_row(tn_dtype dt, void *row, double by, int64_t n)
{
    float  *f = row, one = (float)by;
    double *d = row;
    if (dt == TN_F32)
        for (int64_t j = 0; j < n; j++) f[j] *= one;
    else
        for (int64_t j = 0; j < n; j++) d[j] *= by;
}

// The rows that the block made are weighed, and rounded to where they belong.
static void finish_rows(const work *w, const block *k, const room *r, matrix made, int64_t size)
{
    matrix to = result_rows(&w->call->out, k, k->first);
    for (int64_t i = 0; i < k->rows; i++) {
        char *row = made.at + i * made.row * w->bytes;
        if (!w->a.g) scale_row(w->dtype, row, r->share[i], size);
        if (w->narrow)
            tni_converter(w->tiles, w->dtype, w->call->out.dtype)(to.at + i * to.row * 2, row,
                                                                  size);
    }
}

static void run_block(const work *w, const block *k, const room *r)
{
    const tni_attention *a = &w->a;
    int64_t              m = k->rows, n = k->keys, size = a->g ? a->D : a->E;
    matrix               q = rows_of(w, &w->q, k, k->first), keys = rows_of(w, &w->k, k, 0);
    matrix               values = rows_of(w, &w->v, k, 0);
    matrix               scores = { r->scores, w->ld, 1 }, grads = { r->grads, w->ld, 1 };
    matrix               y = result_rows(&w->call->out, k, k->first);
    if (w->narrow) y = (matrix){ r->made, size, 1 };
    multiply(w, r, m, n, a->D, q, turned(keys), scores, false);
    weigh(w, k, r);
    if (a->g) {
        matrix g = rows_of(w, &w->g, k, k->first);
        multiply(w, r, m, n, a->E, g, turned(values), grads, false);
        unweigh(w, k, r);
        multiply(w, r, m, a->D, n, grads, keys, y, false);
        if (wants(w, false))
            multiply(w, r, n, a->D, m, turned(grads), q, sums_of(w, k, false), true);
        if (wants(w, true))
            multiply(w, r, n, a->E, m, turned(scores), g, sums_of(w, k, true), true);
    } else {
        multiply(w, r, m, a->E, n, scores, values, y, false);
    }
    finish_rows(w, k, r, y, size);
}

// ---- planning ----------------------------------------------------------------------------------

// How the work is cut: by sizes alone.
static void cut(work *w)
{
    const tni_attention *a     = &w->a;
    int64_t              heads = a->B * a->H;
    // Of the last keys of a causal block half are computed in vain: the fewer the better.
    int64_t most = a->causal ? ROWS / 2 : ROWS;
    w->rows      = SCORES / a->S < FEWEST ? FEWEST : tni_min_i64(SCORES / a->S, most);
    while (w->rows > FEWEST && heads * tni_ceil_div(a->T, w->rows) < SPREAD) w->rows /= 2;
    w->rows   = tni_min_i64(w->rows, a->T);
    w->blocks = tni_ceil_div(a->T, w->rows);
    w->chunks = heads < SPREAD ? tni_min_i64(w->blocks, tni_ceil_div(SPREAD, heads)) : 1;
    // Rows a power of two apart would all lie in the same few lines of a cache.
    w->ld = tni_round_up(a->S, 16) + 16;
}

// Takes bytes off the scratch; with none given only counts.
static char *take(char *scratch, size_t *used, int64_t bytes)
{
    char *p = scratch ? scratch + *used : NULL;
    *used += (size_t)tni_align64(bytes);
    return p;
}

static room room_at(const work *w, char *at, size_t *used)
{
    const tni_attention *a = &w->a;
    room                 r;
    int64_t              size = a->D > a->E ? a->D : a->E, scores = w->rows * w->ld * w->bytes;
    *used    = 0;
    r.scores = take(at, used, scores);
    r.grads  = take(at, used, a->g ? scores : 0);
    r.bias   = take(at, used, a->mask ? a->S * w->bytes : 0);
    r.made   = take(at, used, w->narrow ? w->rows * size * w->bytes : 0);
    r.share  = (double *)take(at, used, w->rows * (int64_t)sizeof(double));
    r.a_pack = take(at, used, PANEL * TNI_GEMM_DEPTH * w->bytes);
    r.b_pack = take(at, used, w->gemm->nr * TNI_GEMM_DEPTH * w->bytes);
    return r;
}

// x, or its copy in the dtype that is computed in.
static tni_arg operand(const work *w, const tni_arg *x, char *scratch, size_t *used)
{
    if (!w->narrow) return *x;
    char   *p    = take(scratch, used, tni_arg_count(x) * w->bytes);
    tni_arg copy = tni_arg_rows(w->dtype, 4, x->size, p);
    if (p) tni_copy_arg(w->call->threads, x, &copy);
    return copy;
}

// Fills in everything. With scratch NULL nothing is copied and *used counts what is wanted.
static work plan(const tni_call *call, char *scratch, size_t *used)
{
    work w   = { .call = call, .a = tni_attention_of(call), .tiles = tni_tiles_get() };
    w.narrow = tni_is_rounded(call->out.dtype);
    w.dtype  = w.narrow ? TN_F32 : call->out.dtype;
    w.bytes  = (int64_t)tni_dtype_size(w.dtype);
    w.type   = w.tiles->of[w.dtype];
    w.gemm   = w.dtype == TN_F64 ? &tni_gemm_isa_get()->f64 : &tni_gemm_isa_get()->f32;
    cut(&w);
    *used = 0;
    w.q   = operand(&w, w.a.q, scratch, used);
    w.k   = operand(&w, w.a.k, scratch, used);
    w.v   = operand(&w, w.a.v, scratch, used);
    if (w.a.g) w.g = operand(&w, w.a.g, scratch, used);
    int64_t sums = w.a.B * w.a.H * w.chunks * w.a.S * (w.a.D + w.a.E) * w.bytes;
    if (w.a.g && (w.narrow || w.chunks > 1)) w.sums = take(scratch, used, sums);
    room_at(&w, NULL, &w.room);
    w.rooms = take(scratch, used, (int64_t)w.room * call->threads);
    return w;
}

// ---- running -----------------------------------------------------------------------------------

// The last blocks of a head see the most keys: they come first.
static void forward_task(void *arg, int64_t item, int worker)
{
    work   *w = arg;
    size_t  used;
    int64_t heads = w->a.B * w->a.H;
    room    r     = room_at(w, w->rooms + (size_t)worker * w->room, &used);
    block   k     = block_at(w, item % heads, w->blocks - 1 - item / heads);
    run_block(w, &k, &r);
}

static void clear(const work *w, const block *k)
{
    for (int values = 0; values < 2; values++) {
        if (!wants(w, values)) continue;
        matrix  x    = sums_of(w, k, values);
        int64_t size = values ? w->a.E : w->a.D;
        for (int64_t j = 0; j < w->a.S; j++)
            memset(x.at + j * x.row * w->bytes, 0, (size_t)(size * w->bytes));
    }
}

static void backward_task(void *arg, int64_t item, int worker)
{
    work  *w = arg;
    size_t used;
    room   r = room_at(w, w->rooms + (size_t)worker * w->room, &used);
    for (int64_t i = item % w->chunks; i < w->blocks; i += w->chunks) {
        block k = block_at(w, item / w->chunks, i);
        k.chunk = item % w->chunks;
        if (i < w->chunks) clear(w, &k);
        run_block(w, &k, &r);
    }
}

static void add_rows(tn_dtype dt, void *to, const void *from, int64_t n)
{
    float        *f = to;
    const float  *x = from;
    double       *d = to;
    const double *y = from;
    if (dt == TN_F32)
        for (int64_t i = 0; i < n; i++) f[i] += x[i];
    else
        for (int64_t i = 0; i < n; i++) d[i] += y[i];
}

// Adds up the chunks of a head, in order, and rounds them to where they belong.
static void join_task(void *arg, int64_t item, int worker)
{
    work                *w    = arg;
    const tni_attention *a    = &w->a;
    block                k    = { .b = item / a->H, .h = item % a->H };
    matrix               keys = sums_of(w, &k, false);
    int64_t              each = a->S * (a->D + a->E);
    (void)worker;
    for (int64_t i = 1; i < w->chunks; i++)
        add_rows(w->dtype, keys.at, keys.at + i * each * w->bytes, each);
    for (int values = 0; values < 2; values++) {
        if (!wants(w, values)) continue;
        int64_t size  = values ? a->E : a->D;
        int64_t bytes = (int64_t)tni_dtype_size(w->call->out.dtype);
        matrix  from = sums_of(w, &k, values), to = result_rows(&w->call->more[values], &k, 0);
        for (int64_t j = 0; j < a->S; j++)
            tni_converter(w->tiles, w->dtype, w->call->out.dtype)(
                to.at + j * to.row * bytes, from.at + j * from.row * w->bytes, size);
    }
}

size_t tni_cpu_attention_scratch(const tni_call *call)
{
    size_t used;
    plan(call, NULL, &used);
    return used;
}

tn_status tni_cpu_attention(const tni_call *call)
{
    size_t  used;
    work    w     = plan(call, call->scratch, &used);
    int64_t heads = w.a.B * w.a.H;
    if (w.a.g) tni_parallel(call->threads, heads * w.chunks, backward_task, &w);
    else tni_parallel(call->threads, heads * w.blocks, forward_task, &w);
    if (w.sums) tni_parallel(call->threads, heads, join_task, &w);
    return TN_OK;
}
