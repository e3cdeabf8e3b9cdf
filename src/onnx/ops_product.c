// Products with weights. One row times a matrix reads each weight once, so that memory decides: its
// columns are kept in strips, one after the other, which is the order they are read in.
//
//   w (2, 6), strips of 3 columns      0 1 2 3 4 5        0 1 2 6 7 8  3 4 5 9 a b
//                                      6 7 8 9 a b
//
// A product with strips is one of a batch, x (1, K) with each of (N / S, K, S). It gives (N / S, 1,
// S), which is y.
#include "base/pool.h"
#include "engine/engine.h"
#include "onnx/onnx_ops.h"

#include <string.h>

enum {
    // Columns of a strip: two cache lines. Of a 768 x 3072 matrix a Neoverse-N1 core reads 11 GB/s
    // by rows, 17 GB/s in strips of 32, 13 in strips of 64.
    STRIP = 32,
    // Elements from which on a matrix is more than caches hold, and worth a copy.
    LARGE = 1 << 18
};

// A matrix (K, N) of any strides, in elements of `bytes`, and the strips that are made of it.
typedef struct {
    const char *from;
    char       *to;
    int64_t     k, n, row, col, bytes;
    int         threads;
} strips_job;

// Writes a strip of `columns` whose elements are beside each other down a column, as in a
// transposed matrix: a cache line of every column, then the next. bytes is a constant at every
// call.
static inline __attribute__((always_inline)) void turn_strip(const strips_job *j, const char *from,
                                                             char *to, int64_t columns,
                                                             const int64_t bytes)
{
    const int64_t line = 64 / bytes;
    for (int64_t k0 = 0; k0 < j->k; k0 += line)
        for (int64_t i = 0; i < columns; i++)
            for (int64_t k = k0; k < k0 + line && k < j->k; k++)
                memcpy(to + (k * STRIP + i) * bytes, from + (i * j->col + k * j->row) * bytes,
                       (size_t)bytes);
}

// A task: one strip; columns that the last one is short of are 0.
static void write_strip(void *arg, int64_t s, int worker)
{
    const strips_job *j       = arg;
    int64_t           columns = j->n - s * STRIP < STRIP ? j->n - s * STRIP : STRIP;
    int64_t           row     = STRIP * j->bytes;
    const char       *from    = j->from + s * STRIP * j->col * j->bytes;
    char             *to      = j->to + s * j->k * row;
    (void)worker;
    if (columns < STRIP) memset(to, 0, (size_t)(j->k * row));
    for (int64_t k = 0; j->col == 1 && k < j->k; k++)
        memcpy(to + k * row, from + k * j->row * j->bytes, (size_t)(columns * j->bytes));
    if (j->col == 1) return;
    switch (j->bytes) {
    case 1: turn_strip(j, from, to, columns, 1); break;
    case 2: turn_strip(j, from, to, columns, 2); break;
    case 4: turn_strip(j, from, to, columns, 4); break;
    default: turn_strip(j, from, to, columns, 8); break;
    }
}

// Fills the memory of the strips, on all threads.
static bool write_strips(void *to, size_t bytes, void *user)
{
    strips_job *j = user;
    (void)bytes;
    j->to = to;
    tni_parallel(j->threads, (j->n + STRIP - 1) / STRIP, write_strip, j);
    return true;
}

// The strips of a matrix (K, N): (N / S, K, S). They are written once, from wherever the elements
// are: as ops, turning and padding would each be a copy, which most of a model's first run would go
// into.
static tn_tensor *make_strips(tn_tensor *w)
{
    tn_ctx    *cx = tn_ctx_of(w);
    int64_t    k = tn_size(w, 0), n = tn_size(w, 1);
    strips_job j = { .from    = tn_ptr(w),
                     .k       = k,
                     .n       = n,
                     .row     = tn_stride(w, 0),
                     .col     = tn_stride(w, 1),
                     .bytes   = (int64_t)tni_dtype_size(tn_dtype_of(w)),
                     .threads = cx->engine->threads };
    if (!j.from) return NULL;
    return tni_from_filled(cx, "onnx_run", tn_dtype_of(w), 3,
                           (int64_t[]){ (n + STRIP - 1) / STRIP, k, STRIP }, write_strips, &j);
}

// Whether the rows of x are one, as long as a matrix of k rows wants it.
static bool is_one_row(tn_tensor *x, int64_t k)
{
    return tn_rank(x) > 0 && tn_size(x, -1) == k && tn_count(x) == k;
}

// Makes the strips of input i, a weight that stays as it is, on a device that reads memory as a
// core does. They are kept with the value, instead of the matrix where nothing else reads that: a
// later run of many rows reads it from the file again. False where there are none, with no error.
static bool keep_strips(tni_onnx_call *c, int i, bool turned)
{
    tni_onnx_value *v = tni_onnx_value_in(c, i);
    tn_tensor      *w = v->t;
    if (!v->fixed || v->param || v->strips || !w || tn_rank(w) != 2 || tn_count(w) < LARGE ||
        !tni_is_float(tn_dtype_of(w)) || !c->cx->engine->device->memory->host)
        return false;
    // In a scope of its own, since views of the matrix would keep it in memory until the run ends.
    tn_scope  *scope = tn_begin(c->cx);
    tn_tensor *s     = make_strips(turned ? tn_transpose(w, 0, 1) : w);
    if (s) tn_retain(s);
    tn_end(scope);
    if (!s) return false;
    v->strips         = s;
    v->strips_columns = tn_size(w, turned ? 0 : 1);
    v->strips_turned  = turned;
    tni_onnx_give_up(c, i);
    return true;
}

// One row times the matrix that input i is, turned or not, by its strips: (1, ..., K) becomes (1,
// ..., N). NULL, with no error, if x has more rows or there are no strips.
static tn_tensor *one_row(tni_onnx_call *c, tn_tensor *x, int i, bool turned)
{
    tni_onnx_value *v = tni_onnx_value_in(c, i);
    int64_t         size[TN_MAX_RANK];
    if (!v || (!v->strips && v->t && tn_rank(v->t) == 2 &&
               is_one_row(x, tn_size(v->t, turned ? 1 : 0)) && !keep_strips(c, i, turned)))
        return NULL;
    tn_tensor *s = v->strips;
    if (!s || v->strips_turned != turned || !is_one_row(x, tn_size(s, 1)) ||
        tn_dtype_of(x) != tn_dtype_of(s) || c->cx != s->cx)
        return NULL;
    int rank = tn_rank(x);
    for (int k = 0; k < rank; k++) size[k] = 1;
    size[rank - 1] = tn_size(s, 0) * STRIP;
    tn_tensor *y   = tn_reshape(tn_matmul(tn_reshape(x, TN_SHAPE(1, -1)), s), rank, size);
    return v->strips_columns == size[rank - 1] ? y : tn_slice(y, -1, 0, v->strips_columns, 1);
}

// MatMul(a, b): stacks of matrices broadcast, vectors are rows or columns, as in NumPy. Of bytes
// with scales it is a product of bytes.
bool tni_onnx_mat_mul(tni_onnx_call *c)
{
    tni_onnx_operand qa, qb;
    if (tni_onnx_is_byte_matmul(c, false, &qa, &qb))
        return tni_onnx_byte_matmul(c, &qa, &qb, false, -1);
    tn_tensor *a = tni_onnx_in(c, 0), *y = a ? one_row(c, a, 1, false) : NULL;
    if (a && !y) y = tni_onnx_joined_product(c, a);
    return tni_onnx_out(c, 0, y ? y : tn_matmul(a, tni_onnx_in(c, 1)));
}

// Gemm(a, b, c; alpha, beta, transA, transB): alpha * a' * b' + beta * c, where c has any shape
// that broadcasts to the result. The usual form, alpha and beta 1 and b transposed, is a linear
// layer; files of PyTorch have it.
bool tni_onnx_gemm(tni_onnx_call *c)
{
    double alpha = tni_onnx_attr_real(c, "alpha", 1), beta = tni_onnx_attr_real(c, "beta", 1);
    bool   turned = tni_onnx_attr_int(c, "transB", 0) != 0;
    tni_onnx_operand qa, qb;
    if (alpha == 1 && beta == 1 && !tni_onnx_attr_int(c, "transA", 0) &&
        tni_onnx_is_byte_matmul(c, turned, &qa, &qb))
        return tni_onnx_byte_matmul(c, &qa, &qb, turned, 2);
    tn_tensor *a = tni_onnx_in(c, 0), *add = tni_onnx_in(c, 2), *y;
    if (!a || (tni_onnx_has(c, 2) && !add)) return false;
    if (tn_rank(a) != 2) return tni_onnx_refuse(c, "a %s is no matrix", tni_shape_of(a).s);
    if (tni_onnx_attr_int(c, "transA", 0)) a = tn_transpose(a, 0, 1);
    if (!(y = one_row(c, a, 1, turned)) && !(y = tni_onnx_joined_product(c, a))) {
        tn_tensor *b = tni_onnx_in(c, 1);
        if (!b) return false;
        if (tn_rank(b) != 2) return tni_onnx_refuse(c, "b %s is no matrix", tni_shape_of(b).s);
        if (turned && alpha == 1 &&
            (!add || (beta == 1 && tn_rank(add) == 1 && tn_size(add, 0) == tn_size(b, 0))))
            return tni_onnx_out(c, 0, tn_linear(a, b, add));
        y = tn_matmul(a, turned ? tn_transpose(b, 0, 1) : b);
    }
    if (y && alpha != 1)
        y = tni_is_float(tn_dtype_of(y)) ? tn_mul_s(y, alpha) : tn_mul_i64(y, (int64_t)alpha);
    if (y && add && beta != 0) y = tn_add(y, beta == 1 ? add : tn_mul_s(add, beta));
    return tni_onnx_out(c, 0, y);
}
