// Attention and its gradient, a block of queries of one head at a time: their scores for all keys
// that they see, by a product; the softmax of each row; then products with the weights. Each thread
// has only one block of scores at a time, so that memory does not grow with T * S. The gradient
// computes the weights again, from the logarithms of their sums, as flash attention does.
//
//     forward    W = softmax(scale Q K^T + mask)    Y = drop(W) V
//     gradient   dW = drop(G V^T)    dM = W (dW - sum(W dW))    dS = scale dM    dQ = dS K
//                dK += dS^T Q    dV += drop(W)^T G
//
// The work of a task depends on sizes alone, and tasks write disjoint memory. Keys and values get
// their gradients from all queries: if there are few heads, the blocks of a head are dealt out to
// chunks, each with sums of its own, which are added up in order. So are the sums of query heads
// that share a head of keys. A mask that serves several heads gets its gradient, dM, from all of
// them: these heads are then one task after the other (a team).
//
// B batches, H heads, T queries, S keys and values, D their size, E that of a value, Hk heads of
// keys
#include "base/pool.h"
#include "device/attention.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/strided.h"
#include "device/cpu/gemm_kernel.h"

#include <math.h>
#include <string.h>

enum {
    ROWS         = 128,  // most queries of a block, so that its operands fit a second-level cache
    FEWEST       = 32,   // fewest, so that packing keys and values pays
    SCORES       = 1 << 17,  // elements of a block of scores, about: 512 KiB of f32
    WANTED_TASKS = 16,       // tasks wanted; a constant, so that the cut depends on sizes alone
    PANEL        = 240       // rows of a product that are packed at a time, as in gemm_own.c
};

// One call. Operands of f16 and bf16 are copied to f32, and results are made in f32 and rounded
// once.
typedef struct {
    const tni_call        *call;
    tni_attention          a;
    tn_dtype               dtype;  // compute type
    int64_t                bytes;  // of an element of it
    bool                   narrow;
    tni_arg                q, k, v, g;
    const tni_tiles       *tiles;
    const tni_type_tiles  *type;
    const tni_gemm_kernel *gemm;
    int64_t                rows, blocks;  // queries of a block, blocks of a head
    int64_t                ld;            // elements from one row of scores to the next
    int64_t                chunks;        // the gradient: tasks of a head
    tni_attention_extra    mask;
    int64_t                teams;  // the gradient: heads that one task goes through are a team
    int64_t                mask_rows, mask_cols;  // of the mask's gradient, of one team and chunk
    char *mask_sums;  // of each team (and chunk, if it is one row): the mask's gradient; NULL: none
    char *sums;  // of each chunk: gradients of keys, then of values; NULL: summed in the result
    char *scratch;
    size_t worker_bytes;
} attention_job;

// A thread's scratch: scores, which become weights; their gradients; a row of the mask; the factor
// that normalizes each row of the result; a result to be rounded; packed operands of a product. A
// row of scores begins with the first key of its block.
typedef struct {
    char   *scores, *grads, *bias, *result;
    float  *random;  // numbers that decide what is dropped of a row
    double *inv_sum;
    void   *a_pack, *b_pack;
} worker_scratch;

// A block of queries of a head, and the keys they see: `keys` of them from number `from` on.
typedef struct {
    int64_t b, h, first, rows, from, keys;
    int64_t length;  // of the batch
    int64_t chunk, team;
} query_block;

// ---- operands ----------------------------------------------------------------------------------

// A matrix: its first element, and the strides of rows and columns.
typedef struct {
    char   *at;
    int64_t row, col;
} matrix;

// Returns x (B, T, heads, D) from row `first` on, of the block's batch and of its head, or of the
// head of keys that serves it.
static matrix rows_of(const attention_job *w, const tni_arg *x, const query_block *k, int64_t first)
{
    int64_t head = k->h / (w->a.H / x->size[2]);
    int64_t at   = k->b * x->stride[0] + first * x->stride[1] + head * x->stride[2];
    return (matrix){ x->data + at * w->bytes, x->stride[1], x->stride[3] };
}

static matrix transposed_matrix(matrix x)
{
    return (matrix){ x.at, x.col, x.row };
}

// Returns the rows of an output (B, n, H, size) from row `first` on.
static matrix result_rows(const tni_arg *y, const query_block *k, int64_t first)
{
    int64_t H = y->size[2], size = y->size[3], at = ((k->b * y->size[1] + first) * H + k->h) * size;
    return (matrix){ y->data + at * (int64_t)tni_dtype_size(y->dtype), H * size, 1 };
}

// ---- products ----------------------------------------------------------------------------------

// c (m, n) = a (m, k) @ b (k, n), or += it, by the kernels of our own product: at these sizes they
// are faster than a BLAS, which packs and cuts for large matrices, and its own threads are not
// wanted here.
static void multiply_rows(const attention_job *w, const worker_scratch *r, int64_t m, int64_t n,
                          int64_t k, matrix a, matrix b, matrix c, bool add)
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

// Returns whether the gradient of keys, or of values, is wanted.
static bool wants_grad(const attention_job *w, bool values)
{
    return w->call->more[values].data != NULL;
}

// Returns where the block's chunk sums up the gradients of keys or values, from key `first` on.
static matrix sums_of(const attention_job *w, const query_block *k, bool values, int64_t first)
{
    const tni_attention *a    = &w->a;
    int64_t              size = values ? a->E : a->D;
    if (!w->sums) return result_rows(&w->call->more[values], k, first);
    int64_t at = ((k->b * a->H + k->h) * w->chunks + k->chunk) * a->S * (a->D + a->E);
    at += (values ? a->S * a->D : 0) + first * size;
    return (matrix){ w->sums + at * w->bytes, size, 1 };
}

// Returns where the block's team and chunk sums up the mask's gradient of query i, from key 0 on.
static char *mask_sums_at(const attention_job *w, const query_block *k, int64_t i)
{
    int64_t row = w->mask_rows > 1 ? i : k->chunk, rows = w->mask_rows > 1 ? w->a.T : w->chunks;
    return w->mask_sums + (k->team * rows + row) * w->mask_cols * w->bytes;
}

// ---- a block -----------------------------------------------------------------------------------

// Returns how many keys batch b has.
static int64_t length_of(const tni_attention *a, int64_t b)
{
    if (!a->lengths) return a->S;
    int64_t n = ((const int32_t *)a->lengths->data)[b * a->lengths->stride[0]];
    return n < 0 ? 0 : tni_min_i64(n, a->S);
}

// Returns a block of a head. Its first query sees the first key that any of them sees, its last
// query the last.
static query_block query_block_at(const attention_job *w, int64_t head, int64_t number)
{
    query_block k = { .b = head / w->a.H, .h = head % w->a.H, .first = number * w->rows };
    k.rows        = tni_min_i64(w->rows, w->a.T - k.first);
    k.length      = length_of(&w->a, k.b);
    int64_t end   = tni_attention_keys(&w->a, k.length, k.first + k.rows - 1).end;
    k.from        = tni_attention_keys(&w->a, k.length, k.first).first;
    k.keys        = end - k.from;
    return k;
}

// Returns the keys that query i of the block sees, counted from the block's first.
static tni_key_range seen_by(const attention_job *w, const query_block *k, int64_t i)
{
    tni_key_range r = tni_attention_keys(&w->a, k->length, k->first + i);
    r.first -= k->from;
    r.end -= k->from;
    return r;
}

// Converts a row of a bool mask to 0 and -inf, which are added to scores.
static void fill_bias(const attention_job *w, const bool *m, int64_t stride, int64_t n, char *to)
{
    float  *f = (float *)to;
    double *d = (double *)to;
    if (w->dtype == TN_F32)
        for (int64_t j = 0; j < n; j++) f[j] = m[j * stride] ? 0 : -INFINITY;
    else
        for (int64_t j = 0; j < n; j++) d[j] = m[j * stride] ? 0 : -INFINITY;
}

// Returns what query i adds to its scores from the block's first key on, or NULL. A mask row that
// serves all queries is converted once for the block.
static const char *bias_of(const attention_job *w, const query_block *k, int64_t i,
                           const worker_scratch *r)
{
    const tni_arg *m      = w->mask.arg;
    const int64_t *stride = w->mask.stride;
    if (!m) return NULL;
    int64_t at   = k->b * stride[0] + k->h * stride[1] + i * stride[2] + k->from * stride[3];
    char   *from = m->data + at * (int64_t)tni_dtype_size(m->dtype);
    if (m->dtype == w->dtype && stride[3] == 1) return from;
    if (i > k->first && stride[2] == 0) return r->bias;
    if (m->dtype == TN_BOOL) {
        fill_bias(w, (const bool *)from, stride[3], k->keys, r->bias);
    } else {
        tni_arg to = tni_arg_row_major(w->dtype, 1, &k->keys, r->bias);
        tni_arg x  = to;
        x.dtype = m->dtype, x.stride[0] = stride[3], x.data = from;
        tni_copy_arg(1, &x, &to);
    }
    return r->bias;
}

// Returns the address of the log-sum of query i; NULL if it is not wanted.
static char *log_sum_at(const attention_job *w, const query_block *k, int64_t i)
{
    const tni_arg *x = w->a.lse;
    if (!x->data) return NULL;
    return x->data +
           (k->b * x->stride[0] + k->h * x->stride[1] + (k->first + i) * x->stride[2]) * w->bytes;
}

// Turns the scores of the keys that query i sees into weights: forward, without the factor
// inv_sum[i], which finish_rows applies to the shorter row of the result; in the gradient, the
// weights themselves, from the stored log-sum.
static void softmax_row(const attention_job *w, const query_block *k, const worker_scratch *r,
                        int64_t i, tni_key_range seen)
{
    int64_t     n   = seen.end - seen.first;
    char       *row = r->scores + (i * w->ld + seen.first) * w->bytes, *at = log_sum_at(w, k, i);
    const char *bias = bias_of(w, k, k->first + i, r);
    bool        wide = w->dtype == TN_F64;
    double      lse  = 0;
    if (bias) bias += seen.first * w->bytes;
    if (w->a.g) {
        lse = wide ? *(double *)at : (double)*(float *)at;
        w->type->softmax_from_lse(row, bias, w->a.scale, n, lse);
        return;
    }
    r->inv_sum[i] = w->type->softmax(row, bias, w->a.scale, n, at ? &lse : NULL);
    if (at && wide) *(double *)at = lse;
    else if (at) *(float *)at = (float)lse;
}

// Clears what is left and right of the keys that a query sees in its row of the block, so that the
// products need no mask.
static void clear_unseen(const attention_job *w, const query_block *k, char *rows, int64_t i,
                         tni_key_range seen)
{
    char *row = rows + i * w->ld * w->bytes;
    memset(row, 0, (size_t)(seen.first * w->bytes));
    memset(row + seen.end * w->bytes, 0, (size_t)((k->keys - seen.end) * w->bytes));
}

// The softmax of each query.
static void softmax_block(const attention_job *w, const query_block *k, const worker_scratch *r)
{
    for (int64_t i = 0; i < k->rows; i++) {
        tni_key_range seen = seen_by(w, k, i);
        softmax_row(w, k, r, i, seen);
        clear_unseen(w, k, r->scores, i, seen);
    }
}

// Multiplies the block's weights, or their gradients, by what dropout leaves of them. Random
// numbers come in fours, so a row's begin up to three before its first.
static void drop_block(const attention_job *w, const query_block *k, const worker_scratch *r,
                       char *rows)
{
    const tni_attention *a    = &w->a;
    double               by   = 1 / (1 - a->dropout);
    float                drop = (float)a->dropout, one = (float)by;
    for (int64_t i = 0; a->drops && i < k->rows; i++) {
        int64_t at   = ((k->b * a->H + k->h) * a->T + k->first + i) * a->S + k->from;
        int64_t skip = at % 4;
        float  *f = (float *)(rows + i * w->ld * w->bytes), *u = r->random + skip;
        double *d = (double *)(rows + i * w->ld * w->bytes);
        w->tiles->uniform_f(r->random, a->key, a->counter, at - skip, k->keys + skip);
        if (w->dtype == TN_F32)
            for (int64_t j = 0; j < k->keys; j++) f[j] = u[j] >= drop ? f[j] * one : 0;
        else
            for (int64_t j = 0; j < k->keys; j++) d[j] = u[j] >= drop ? d[j] * by : 0;
    }
}

// Adds a row of the scores' gradients to the mask's; all of the row if the mask is one column.
static void add_mask_grad(const attention_job *w, const query_block *k, const char *row, int64_t i)
{
    char         *to  = mask_sums_at(w, k, k->first + i);
    bool          one = w->mask_cols == 1;
    float        *f   = (float *)to + (one ? 0 : k->from);
    const float  *x   = (const float *)row;
    double       *d = (double *)to + (one ? 0 : k->from), sum = 0;
    const double *y = (const double *)row;
    if (w->dtype == TN_F32)
        for (int64_t j = 0; j < k->keys; j++) one ? (sum += (double)x[j]) : (f[j] += x[j]);
    else
        for (int64_t j = 0; j < k->keys; j++) one ? (sum += y[j]) : (d[j] += y[j]);
    if (one && w->dtype == TN_F32) *f += (float)sum;
    else if (one) *d += sum;
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

// Turns gradients of weights into those of the scores' products of queries and keys.
static void softmax_grad_block(const attention_job *w, const query_block *k,
                               const worker_scratch *r)
{
    for (int64_t i = 0; i < k->rows; i++) {
        tni_key_range seen  = seen_by(w, k, i);
        char         *row   = r->grads + i * w->ld * w->bytes;
        int64_t       at    = (i * w->ld + seen.first) * w->bytes;
        double        scale = w->mask_sums ? 1 : w->a.scale;
        w->type->softmax_grad(r->scores + at, r->grads + at, scale, seen.end - seen.first);
        clear_unseen(w, k, r->grads, i, seen);
        if (!w->mask_sums) continue;
        add_mask_grad(w, k, row, i);
        scale_row(w->dtype, row, w->a.scale, k->keys);
    }
}

// Normalizes the rows of the block's result, and rounds them to the output's dtype.
static void finish_rows(const attention_job *w, const query_block *k, const worker_scratch *r,
                        matrix result, int64_t size)
{
    matrix to = result_rows(&w->call->out, k, k->first);
    for (int64_t i = 0; i < k->rows; i++) {
        char *row = result.at + i * result.row * w->bytes;
        if (!w->a.g) scale_row(w->dtype, row, r->inv_sum[i], size);
        if (w->narrow)
            tni_converter(w->tiles, w->dtype, w->call->out.dtype)(to.at + i * to.row * 2, row,
                                                                  size);
    }
}

// Clears the block's result: its queries see no key.
static void clear_block(const attention_job *w, const query_block *k, int64_t size)
{
    int64_t bytes = (int64_t)tni_dtype_size(w->call->out.dtype);
    matrix  y     = result_rows(&w->call->out, k, k->first);
    for (int64_t i = 0; i < k->rows; i++) {
        char *at = w->a.g ? NULL : log_sum_at(w, k, i);
        memset(y.at + i * y.row * bytes, 0, (size_t)(size * bytes));
        if (at && w->dtype == TN_F64) *(double *)at = -INFINITY;
        else if (at) *(float *)at = -INFINITY;
    }
}

// The gradient of one block, whose weights are computed.
static void run_grad_block(const attention_job *w, const query_block *k, const worker_scratch *r,
                           matrix y)
{
    const tni_attention *a = &w->a;
    int64_t              m = k->rows, n = k->keys;
    matrix               q = rows_of(w, &w->q, k, k->first), keys = rows_of(w, &w->k, k, k->from);
    matrix               values = rows_of(w, &w->v, k, k->from), g = rows_of(w, &w->g, k, k->first);
    matrix               scores = { r->scores, w->ld, 1 }, grads = { r->grads, w->ld, 1 };
    multiply_rows(w, r, m, n, a->E, g, transposed_matrix(values), grads, false);
    drop_block(w, k, r, r->grads);
    softmax_grad_block(w, k, r);
    multiply_rows(w, r, m, a->D, n, grads, keys, y, false);
    if (wants_grad(w, false))
        multiply_rows(w, r, n, a->D, m, transposed_matrix(grads), q, sums_of(w, k, false, k->from),
                      true);
    if (!wants_grad(w, true)) return;
    drop_block(w, k, r, r->scores);
    multiply_rows(w, r, n, a->E, m, transposed_matrix(scores), g, sums_of(w, k, true, k->from),
                  true);
}

// Computes one block of queries: see the formulas above.
static void run_block(const attention_job *w, const query_block *k, const worker_scratch *r)
{
    const tni_attention *a = &w->a;
    int64_t              m = k->rows, n = k->keys, size = a->g ? a->D : a->E;
    matrix               q = rows_of(w, &w->q, k, k->first), keys = rows_of(w, &w->k, k, k->from);
    matrix               scores = { r->scores, w->ld, 1 };
    matrix               y      = result_rows(&w->call->out, k, k->first);
    if (n == 0) {
        clear_block(w, k, size);
        return;
    }
    if (w->narrow) y = (matrix){ r->result, size, 1 };
    multiply_rows(w, r, m, n, a->D, q, transposed_matrix(keys), scores, false);
    softmax_block(w, k, r);
    if (a->g) {
        run_grad_block(w, k, r, y);
    } else {
        drop_block(w, k, r, r->scores);
        multiply_rows(w, r, m, a->E, n, scores, rows_of(w, &w->v, k, k->from), y, false);
    }
    finish_rows(w, k, r, y, size);
}

// ---- planning ----------------------------------------------------------------------------------

// Decides how the work is cut: by sizes alone. Rows of scores are not a power of two apart, as they
// would compete for the same few lines of a cache.
static void cut_attention(attention_job *w)
{
    const tni_attention *a     = &w->a;
    int64_t              heads = a->g ? w->teams : a->B * a->H;
    // In a causal block half of the scores of its last keys are wasted: fewer queries waste less.
    int64_t most = a->causal ? ROWS / 2 : ROWS;
    w->rows      = SCORES / a->S < FEWEST ? FEWEST : tni_min_i64(SCORES / a->S, most);
    while (w->rows > FEWEST && heads * tni_ceil_div(a->T, w->rows) < WANTED_TASKS) w->rows /= 2;
    w->rows   = tni_min_i64(w->rows, a->T);
    w->blocks = tni_ceil_div(a->T, w->rows);
    w->chunks = heads < WANTED_TASKS ? tni_min_i64(w->blocks, tni_ceil_div(WANTED_TASKS, heads))
                                     : 1;
    // 16 elements more than the row needs, so that rows are not a power of two apart.
    w->ld = tni_round_up(a->S, 16) + 16;
}

// Takes bytes off the scratch; if scratch is NULL, only counts.
static char *take_attention_scratch(char *scratch, size_t *used, int64_t bytes)
{
    char *p = scratch ? scratch + *used : NULL;
    *used += (size_t)tni_align64(bytes);
    return p;
}

// Divides a worker's scratch, or, with at NULL, counts its bytes.
static worker_scratch worker_scratch_at(const attention_job *w, char *at, size_t *used)
{
    const tni_attention *a = &w->a;
    worker_scratch       r;
    int64_t              size = a->D > a->E ? a->D : a->E, scores = w->rows * w->ld * w->bytes;
    *used     = 0;
    r.scores  = take_attention_scratch(at, used, scores);
    r.grads   = take_attention_scratch(at, used, a->g ? scores : 0);
    r.bias    = take_attention_scratch(at, used, w->mask.arg ? a->S * w->bytes : 0);
    r.random  = (float *)take_attention_scratch(at, used,
                                               a->drops ? (a->S + 4) * (int64_t)sizeof(float) : 0);
    r.result  = take_attention_scratch(at, used, w->narrow ? w->rows * size * w->bytes : 0);
    r.inv_sum = (double *)take_attention_scratch(at, used, w->rows * (int64_t)sizeof(double));
    r.a_pack  = take_attention_scratch(at, used, PANEL * TNI_GEMM_DEPTH * w->bytes);
    r.b_pack  = take_attention_scratch(at, used,
                                       TNI_GEMM_STRIPS * w->gemm->nr * TNI_GEMM_DEPTH * w->bytes);
    return r;
}

// Returns x, or its copy in the compute type.
static tni_arg widened_operand(const attention_job *w, const tni_arg *x, char *scratch,
                               size_t *used)
{
    if (!w->narrow) return *x;
    char   *p    = take_attention_scratch(scratch, used, tni_arg_count(x) * w->bytes);
    tni_arg copy = tni_arg_row_major(w->dtype, 4, x->size, p);
    if (p) tni_copy_arg(w->call->threads, x, &copy);
    return copy;
}

// If the mask's gradient is wanted, heads that share a part of it are a team, and each task has a
// part of its sums to itself. Else each head is a team.
static void plan_teams(attention_job *w)
{
    const tni_arg *m = w->mask.grad;
    w->teams         = w->a.B * w->a.H;
    if (!m) return;
    w->teams     = m->size[0] * m->size[1];
    w->mask_rows = m->size[2];
    w->mask_cols = m->size[3];
}

// Takes the scratch for sums of the gradient.
static void plan_sums(attention_job *w, char *scratch, size_t *used)
{
    const tni_attention *a    = &w->a;
    int64_t              sums = a->B * a->H * w->chunks * a->S * (a->D + a->E) * w->bytes;
    if (w->narrow || w->chunks > 1 || a->H != a->Hk)
        w->sums = take_attention_scratch(scratch, used, sums);
    if (!w->mask.grad) return;
    int64_t rows = w->teams * (w->mask_rows > 1 ? a->T : w->chunks);
    w->mask_sums = take_attention_scratch(scratch, used, rows * w->mask_cols * w->bytes);
}

// Fills in the whole job. With scratch NULL nothing is copied and *used counts the bytes needed.
static attention_job plan_attention(const tni_call *call, char *scratch, size_t *used)
{
    attention_job w = { .call = call, .a = tni_attention_of(call), .tiles = tni_tiles_get() };
    w.narrow        = tni_is_rounded(call->out.dtype);
    w.dtype         = w.narrow ? TN_F32 : call->out.dtype;
    w.bytes         = (int64_t)tni_dtype_size(w.dtype);
    w.type          = w.tiles->of[w.dtype];
    w.gemm          = w.dtype == TN_F64 ? &tni_gemm_isa_get()->f64 : &tni_gemm_isa_get()->f32;
    w.mask          = tni_attention_mask(&w.a);
    plan_teams(&w);
    cut_attention(&w);
    *used = 0;
    w.q   = widened_operand(&w, w.a.q, scratch, used);
    w.k   = widened_operand(&w, w.a.k, scratch, used);
    w.v   = widened_operand(&w, w.a.v, scratch, used);
    if (w.a.g) w.g = widened_operand(&w, w.a.g, scratch, used);
    if (w.a.g) plan_sums(&w, scratch, used);
    worker_scratch_at(&w, NULL, &w.worker_bytes);
    w.scratch = take_attention_scratch(scratch, used, (int64_t)w.worker_bytes * call->threads);
    return w;
}

// ---- running -----------------------------------------------------------------------------------

// Forward: one block. The last blocks of a causal head see the most keys; they come first, so that
// no thread is left with a long task at the end.
static void attend_task(void *arg, int64_t item, int worker)
{
    attention_job *w = arg;
    size_t         used;
    int64_t        heads = w->a.B * w->a.H;
    worker_scratch r = worker_scratch_at(w, w->scratch + (size_t)worker * w->worker_bytes, &used);
    query_block    k = query_block_at(w, item % heads, w->blocks - 1 - item / heads);
    run_block(w, &k, &r);
}

// Clears the sums of a chunk before its first block.
static void clear_sums(const attention_job *w, const query_block *k)
{
    for (int values = 0; values < 2; values++) {
        if (!wants_grad(w, values)) continue;
        matrix  x    = sums_of(w, k, values, 0);
        int64_t size = values ? w->a.E : w->a.D;
        for (int64_t j = 0; j < w->a.S; j++)
            memset(x.at + j * x.row * w->bytes, 0, (size_t)(size * w->bytes));
    }
}

// Clears the part of the mask's gradient that a task sums up.
static void clear_mask_sums(const attention_job *w, const query_block *k)
{
    size_t  bytes = (size_t)(w->mask_cols * w->bytes);
    int64_t step  = w->mask_rows > 1 ? w->chunks * w->rows : w->a.T;
    for (int64_t from = k->chunk * w->rows; w->mask_sums && from < w->a.T; from += step) {
        int64_t rows = w->mask_rows > 1 ? tni_min_i64(w->rows, w->a.T - from) : 1;
        memset(mask_sums_at(w, k, from), 0, (size_t)rows * bytes);
    }
}

// Whether a head, b * H + h, is of a team: the mask does not tell its (b, h) from that of the
// others.
static bool is_in_team(const attention_job *w, int64_t team, int64_t head)
{
    if (!w->mask.grad) return team == head;
    const int64_t *size = w->mask.grad->size;
    int64_t        b = size[0] == 1 ? 0 : head / w->a.H, h = size[1] == 1 ? 0 : head % w->a.H;
    return team == b * size[1] + h;
}

// Gradient: all blocks of a chunk of each head of a team, in order, since they add to the same
// sums.
static void attend_grad_task(void *arg, int64_t item, int worker)
{
    attention_job *w = arg;
    size_t         used;
    worker_scratch r = worker_scratch_at(w, w->scratch + (size_t)worker * w->worker_bytes, &used);
    int64_t        heads = w->a.B * w->a.H, team = item / w->chunks, chunk = item % w->chunks;
    clear_mask_sums(w, &(query_block){ .chunk = chunk, .team = team });
    for (int64_t head = w->mask.grad ? 0 : team; head < heads; head++) {
        if (!is_in_team(w, team, head)) continue;
        for (int64_t i = chunk; i < w->blocks; i += w->chunks) {
            query_block k = query_block_at(w, head, i);
            k.chunk       = chunk;
            k.team        = team;
            if (i < w->chunks) clear_sums(w, &k);
            run_block(w, &k, &r);
        }
        if (!w->mask.grad) return;
    }
}

static void add_chunk_sums(tn_dtype dt, void *to, const void *from, int64_t n)
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

// Adds up the chunks of all query heads that a head of keys serves, in order, and rounds the sums
// to the outputs' dtype.
static void sum_chunks_task(void *arg, int64_t item, int worker)
{
    attention_job       *w    = arg;
    const tni_attention *a    = &w->a;
    int64_t              each = a->S * (a->D + a->E), group = a->H / a->Hk;
    query_block          k    = { .b = item / a->Hk, .h = item % a->Hk * group };
    query_block          to_k = { .b = k.b, .h = item % a->Hk };
    matrix               keys = sums_of(w, &k, false, 0);
    (void)worker;
    for (int64_t i = 1; i < w->chunks * group; i++)
        add_chunk_sums(w->dtype, keys.at, keys.at + i * each * w->bytes, each);
    for (int values = 0; values < 2; values++) {
        if (!wants_grad(w, values)) continue;
        int64_t size  = values ? a->E : a->D;
        int64_t bytes = (int64_t)tni_dtype_size(w->call->out.dtype);
        matrix  from  = sums_of(w, &k, values, 0);
        matrix  to    = result_rows(&w->call->more[values], &to_k, 0);
        for (int64_t j = 0; j < a->S; j++)
            tni_converter(w->tiles, w->dtype, w->call->out.dtype)(
                to.at + j * to.row * bytes, from.at + j * from.row * w->bytes, size);
    }
}

// Adds up the chunks of a team's part of the mask's gradient, and rounds them to its dtype.
static void sum_mask_task(void *arg, int64_t team, int worker)
{
    attention_job *w     = arg;
    const tni_arg *to    = w->mask.grad;
    query_block    k     = { .team = team };
    char          *sums  = mask_sums_at(w, &k, 0);
    int64_t        count = w->mask_rows * w->mask_cols, bytes = (int64_t)tni_dtype_size(to->dtype);
    (void)worker;
    for (int64_t i = 1; w->mask_rows == 1 && i < w->chunks; i++)
        add_chunk_sums(w->dtype, sums, sums + i * w->mask_cols * w->bytes, w->mask_cols);
    tni_converter(w->tiles, w->dtype, to->dtype)(to->data + team * count * bytes, sums, count);
}

size_t tni_cpu_attention_scratch(const tni_call *call)
{
    size_t used;
    plan_attention(call, NULL, &used);
    return used;
}

tn_status tni_cpu_attention(const tni_call *call)
{
    size_t        used;
    attention_job w     = plan_attention(call, call->scratch, &used);
    int64_t       heads = w.a.B * w.a.H;
    if (w.a.g) tni_parallel(call->threads, w.teams * w.chunks, attend_grad_task, &w);
    else tni_parallel(call->threads, heads * w.blocks, attend_task, &w);
    if (w.sums) tni_parallel(call->threads, w.a.B * w.a.Hk, sum_chunks_task, &w);
    if (w.mask_sums) tni_parallel(call->threads, w.teams, sum_mask_task, &w);
    return TN_OK;
}
