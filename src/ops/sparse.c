// Sparse matrices: an ordinary vector of values, and one of integers that says where they are
// (tni_pattern). Products with dense matrices are rows of the table, spmm and sddmm, each of which
// is the gradient of the other, so that gradients of any order are products of the same kind.
//
// The indices are read on the host when a matrix is made: they are checked and sorted once, and
// products need not look again.
#include "ops/composite.h"
#include "ops/op_functions.h"

#include <string.h>

// ---- products ----------------------------------------------------------------------------------

// Records a product over a, b and the pattern p.
static tn_tensor *product(int op, const struct tni_attr_sparse *how, tn_tensor *a, tn_tensor *b,
                          tn_tensor *p, int rank, const int64_t *size)
{
    tn_tensor *y = NULL, *x[] = { a, b, p };
    tn_array   out = { .rank = rank };
    if (!a || !b || !p) return NULL;
    out.dtype = tn_dtype_of(a);
    memcpy(out.size, size, (size_t)rank * sizeof *size);
    tni_record_packed(op, &(tni_attr){ .sparse = *how }, 3, x, 1, &out, &y);
    return y;
}

// The matrix, or its transpose, times x (k, n).
static tn_tensor *spmm(struct tni_attr_sparse how, bool transposed, tn_tensor *values, tn_tensor *x,
                       tn_tensor *p)
{
    how.transposed = transposed;
    if (!x) return NULL;
    int64_t size[] = { transposed ? how.cols : how.rows, tn_size(x, 1) };
    return product(TNI_spmm, &how, values, x, p, 2, size);
}

// The products of row r of x and row c of y for each element (r, c).
static tn_tensor *sddmm(struct tni_attr_sparse how, int64_t count, tn_tensor *x, tn_tensor *y,
                        tn_tensor *p)
{
    how.transposed = false;
    return product(TNI_sddmm, &how, x, y, p, 1, &count);
}

// Of y = a x: a value's gradient is the product of a row of g and one of x, and x's is a' g.
void tni_grad_spmm(tni_grad_args *r)
{
    struct tni_attr_sparse how = r->n->attr.sparse;
    tn_tensor             *v = tni_wrap_node(r->cx, r->n->src[0]), *g = r->g;
    tn_tensor *x = tni_wrap_node(r->cx, r->n->src[1]), *p = tni_wrap_node(r->cx, r->n->src[2]);
    if (!v || !x || !p) return;
    if (r->need[0])
        r->gx[0] = sddmm(how, tn_count(v), how.transposed ? x : g, how.transposed ? g : x, p);
    if (r->need[1]) r->gx[1] = spmm(how, !how.transposed, v, g, p);
}

// g is the values of a matrix: gx = g y, gy = g' x.
void tni_grad_sddmm(tni_grad_args *r)
{
    struct tni_attr_sparse how = r->n->attr.sparse;
    tn_tensor             *p   = tni_wrap_node(r->cx, r->n->src[2]);
    for (int i = 0; p && i < 2; i++)
        if (r->need[i])
            r->gx[i] = spmm(how, i == 1, r->g, tni_wrap_node(r->cx, r->n->src[1 - i]), p);
}

// Part of a pattern, whose numbers are below a size.
static tn_tensor *part(tn_tensor *p, int64_t at, int64_t count, int64_t below)
{
    tn_tensor *y = tn_slice(p, 0, at, at + count, 1);
    tni_set_below(y, below);
    return y;
}

// The rows and columns of all elements.
static void places(tn_tensor *p, int64_t rows, int64_t cols, int64_t count, tn_tensor *at[2])
{
    tni_pattern t = tni_pattern_of(rows, cols, count);
    at[0]         = part(p, t.rows, count, rows);
    at[1]         = part(p, t.columns, count, cols);
}

// The rows of x, times the values, added where they belong.
tn_tensor *tni_fallback_spmm(const tni_fallback_args *r)
{
    const struct tni_attr_sparse *a = &r->attr->sparse;
    tn_tensor                    *at[2], *terms;
    int64_t                       count = tn_count(r->x[0]), n = r->size[1];
    places(r->x[2], a->rows, a->cols, count, at);
    terms = tn_mul(tn_unsqueeze(r->x[0], 1), tn_index_select(r->x[1], 0, at[!a->transposed]));
    tn_tensor *index = tn_expand(tn_unsqueeze(at[a->transposed], 1), TN_SHAPE(count, n));
    tni_set_below(index, r->size[0]);
    tn_tensor *zero = terms ? tn_zeros(r->cx, tn_dtype_of(terms), r->rank, r->size) : NULL;
    return tn_scatter_add(zero, 0, index, terms);
}

// Rows of both, multiplied element by element.
tn_tensor *tni_fallback_sddmm(const tni_fallback_args *r)
{
    const struct tni_attr_sparse *a = &r->attr->sparse;
    tn_tensor                    *at[2];
    places(r->x[2], a->rows, a->cols, r->size[0], at);
    return tn_sum(tn_mul(tn_index_select(r->x[0], 0, at[0]), tn_index_select(r->x[1], 0, at[1])),
                  1);
}

// ---- patterns ----------------------------------------------------------------------------------

// Elements on the host: place[0] their rows, place[1] their columns; size: those of the matrix.
typedef struct {
    tn_ctx     *cx;
    const char *op;
    int64_t     size[2], count;
    int64_t    *place[2];
} elements;

static void *host_numbers(const elements *e, int64_t n, size_t bytes)
{
    void *p = tni_alloc(&e->cx->heap, (size_t)n * bytes);
    if (!p) tni_fail(e->cx, TN_EMEM, "%s: out of memory for %lld indices", e->op, (long long)n);
    return p;
}

// offsets[i] becomes the number of elements whose place is below i, for i up to size.
static void count_places(const int64_t *place, int64_t count, int64_t size, int64_t *offsets)
{
    memset(offsets, 0, (size_t)(size + 1) * sizeof *offsets);
    for (int64_t i = 0; i < count; i++) offsets[place[i] + 1]++;
    for (int64_t i = 0; i < size; i++) offsets[i + 1] += offsets[i];
}

// Sorts numbers of elements, `from`, by their places along an axis into `to`. Stable; at: size + 1
// numbers.
static void sort_by(const elements *e, int axis, const int64_t *from, int64_t *to, int64_t *at)
{
    count_places(e->place[axis], e->count, e->size[axis], at);
    for (int64_t i = 0; i < e->count; i++) {
        int64_t k                   = from ? from[i] : i;
        to[at[e->place[axis][k]]++] = k;
    }
}

// The order of elements: by rows, and in a row by columns.
//
// -1, 0 or 1: how element i lies to element j by rows.
static int compare_places(const elements *e, int64_t i, int64_t j)
{
    for (int a = 0; a < 2; a++)
        if (e->place[a][i] != e->place[a][j]) return e->place[a][i] < e->place[a][j] ? -1 : 1;
    return 0;
}

// Checked once, here, so that no kernel has to: an index of a matrix that was made is never out of
// range.
//
// Whether all indices are inside of the matrix; else the first that is not is reported.
static bool check_indices(const elements *e)
{
    for (int a = 0; a < 2; a++)
        for (int64_t i = 0; i < e->count; i++)
            if (e->place[a][i] < 0 || e->place[a][i] >= e->size[a])
                return tni_refuse(e->cx, TN_EARG,
                                  "%s: %s %lld of element %lld is out of range for %lld %s", e->op,
                                  a ? "column" : "row", (long long)e->place[a][i], (long long)i,
                                  (long long)e->size[a], a ? "columns" : "rows");
    return true;
}

// The elements in order, equal places once: e itself becomes that. values go along, and those of
// equal places are added up. What is in order already, as that of a program that keeps its indices,
// stays as it is.
static tn_tensor *in_order(elements *e, tn_tensor *values)
{
    int64_t i = 1, kept = 0, n = e->count,
            most = (e->size[0] > e->size[1] ? e->size[0] : e->size[1]) + 1;
    while (i < n && compare_places(e, i - 1, i) < 0) i++;
    if (i >= n) return values;
    int64_t *by_column = host_numbers(e, 4 * n + most, sizeof *by_column);
    if (!by_column) return NULL;
    int64_t *sorted = by_column + n, *target = sorted + n, *old = target + n, *at = old + n;
    sort_by(e, 1, NULL, by_column, at);
    sort_by(e, 0, by_column, sorted, at);
    for (i = 0; i < n; i++) {
        if (i > 0 && compare_places(e, sorted[i - 1], sorted[i]) < 0) kept++;
        target[sorted[i]] = kept;
    }
    e->count = kept + 1;
    for (int a = 0; a < 2; a++) {
        memcpy(old, e->place[a], (size_t)n * sizeof *old);
        for (i = 0; i < n; i++) e->place[a][target[i]] = old[i];
    }
    tn_tensor *index = tn_from(e->cx, TN_I64, 1, &n, e->count < n ? target : sorted), *y;
    tni_set_below(index, n);
    if (e->count == n) y = tn_index_select(values, 0, index);
    else y = tn_scatter_add(tn_zeros(e->cx, tn_dtype_of(values), 1, &e->count), 0, index, values);
    tni_free(&e->cx->heap, by_column);
    return y;
}

// Both directions are made here at once: the transposed part costs the host one more pass over the
// elements, and a gradient then finds it on the device. Sorting by columns is stable, so that the
// rows of each column rise, too.
//
// The vector of a pattern, of elements in order.
static tn_tensor *pattern_of(const elements *e)
{
    int64_t rows = e->size[0], cols = e->size[1], n = e->count, most = rows > cols ? rows : cols;
    tni_pattern t  = tni_pattern_of(rows, cols, n);
    int32_t    *p  = host_numbers(e, t.length, sizeof *p);
    int64_t    *at = p ? host_numbers(e, most + 1 + n, sizeof *at) : NULL,
            *order = at ? at + most + 1 : NULL;
    tn_tensor *y   = NULL;
    if (at) {
        memset(p, 0, (size_t)t.length * sizeof *p);
        count_places(e->place[0], n, rows, at);
        for (int64_t i = 0; i <= rows; i++) p[t.offsets + i] = (int32_t)at[i];
        count_places(e->place[1], n, cols, at);
        for (int64_t i = 0; i <= cols; i++) p[t.t_offsets + i] = (int32_t)at[i];
        sort_by(e, 1, NULL, order, at);
        for (int64_t i = 0; i < n; i++) {
            p[t.rows + i]      = (int32_t)e->place[0][i];
            p[t.columns + i]   = (int32_t)e->place[1][i];
            p[t.order + i]     = (int32_t)order[i];
            p[t.t_columns + i] = (int32_t)e->place[0][order[i]];
        }
        y = tn_from(e->cx, TN_I32, 1, &t.length, p);
    }
    tni_free(&e->cx->heap, at);
    tni_free(&e->cx->heap, p);
    return y;
}

// ---- matrices ----------------------------------------------------------------------------------

// Indices have 32 bits on devices, which halves what a product reads of them: sizes and counts
// beyond are refused.
//
// Checks values and sizes for a matrix of `count` elements.
static bool check_values(const elements *e, tn_tensor *values)
{
    if (!tni_want_float(values, e->op)) return false;
    if (tn_rank(values) != 1 || tn_size(values, 0) != e->count)
        return tni_refuse(e->cx, TN_ESHAPE, "%s: values %s are not (%lld,)", e->op,
                          tni_shape_of(values).s, (long long)e->count);
    for (int a = 0; a < 2; a++)
        if (e->size[a] < 0 || e->size[a] >= INT32_MAX)
            return tni_refuse(e->cx, TN_EARG, "%s: %lld %s", e->op, (long long)e->size[a],
                              a ? "columns" : "rows");
    if (e->count < INT32_MAX) return true;
    return tni_refuse(e->cx, TN_EARG, "%s: %lld elements are too many", e->op, (long long)e->count);
}

// Makes *a of elements with any order. Frees their places.
static tn_status make(elements *e, tn_tensor *values, tn_sparse *a)
{
    tn_tensor *v = check_indices(e) ? in_order(e, values) : NULL, *p = v ? pattern_of(e) : NULL;
    tni_free(&e->cx->heap, e->place[0]);
    if (!p) return tni_failed();
    *a = (tn_sparse){ .values = v, .pattern = p, .rows = e->size[0], .cols = e->size[1] };
    return TN_OK;
}

// The result of a failure, and a check that there is a place for it.
static bool clear(tn_ctx *cx, const char *op, tn_sparse *a)
{
    if (a) *a = (tn_sparse){ 0 };
    return cx && (a || tni_refuse(cx, TN_EARG, "%s: a is NULL", op));
}

// Whether x can be indices; else it is reported by its name.
static bool want_integers(tn_tensor *x, const char *op, const char *name)
{
    if (tni_is_int(tn_dtype_of(x))) return true;
    return tni_refuse(x->cx, TN_EDTYPE, "%s: %s are %s, not integers", op, name,
                      tn_dtype_name(tn_dtype_of(x)));
}

// The host reads the indices, and so waits until they are computed; the values stay where they are.
tn_status tn_sparse_coo(tn_tensor *indices, tn_tensor *values, int64_t rows, int64_t cols,
                        tn_sparse *a)
{
    static const char *const names[] = { "indices", "values" };
    static const char *const op      = "sparse_coo";
    tn_ctx                  *cx = tni_args(op, 2, (tn_tensor *const[]){ indices, values }, names);
    if (!clear(cx, op, a) || !want_integers(indices, op, "indices")) return tni_failed();
    if (tn_rank(indices) != 2 || tn_size(indices, 0) != 2)
        return tni_fail_status(cx, TN_ESHAPE, "%s: indices %s are not (2, count)", op,
                               tni_shape_of(indices).s);
    elements e = { .cx = cx, .op = op, .size = { rows, cols }, .count = tn_size(indices, 1) };
    if (!check_values(&e, values)) return tni_failed();
    if (!(e.place[0] = host_numbers(&e, 2 * e.count, sizeof(int64_t)))) return tni_failed();
    e.place[1] = e.place[0] + e.count;
    if (tn_read(indices, TN_I64, e.place[0], 2 * e.count) == TN_OK) return make(&e, values, a);
    tni_free(&cx->heap, e.place[0]);
    return tni_failed();
}

// Offsets begin with 0, do not fall, and end with the number of elements. place[0] becomes the
// rows.
static bool expand_offsets(elements *e, const int64_t *offsets)
{
    int64_t rows = e->size[0];
    for (int64_t r = 0; r < rows; r++) {
        if (offsets[0] || offsets[r + 1] < offsets[r] || offsets[r + 1] > e->count)
            return tni_refuse(e->cx, TN_EARG,
                              "%s: offsets %lld and %lld of row %lld are none of %lld elements",
                              e->op, (long long)offsets[r], (long long)offsets[r + 1], (long long)r,
                              (long long)e->count);
        for (int64_t i = offsets[r]; i < offsets[r + 1]; i++) e->place[0][i] = r;
    }
    if (offsets[rows] == e->count) return true;
    return tni_refuse(e->cx, TN_EARG, "%s: the last of offsets is %lld, not %lld", e->op,
                      (long long)offsets[rows], (long long)e->count);
}

// Offsets are expanded to rows, so that one function makes both forms.
tn_status tn_sparse_csr(tn_tensor *offsets, tn_tensor *columns, tn_tensor *values, int64_t cols,
                        tn_sparse *a)
{
    static const char *const names[] = { "offsets", "columns", "values" };
    static const char *const op      = "sparse_csr";
    tn_ctx *cx = tni_args(op, 3, (tn_tensor *const[]){ offsets, columns, values }, names);
    if (!clear(cx, op, a) || !want_integers(offsets, op, "offsets") ||
        !want_integers(columns, op, "columns"))
        return tni_failed();
    if (tn_rank(offsets) != 1 || tn_rank(columns) != 1 || tn_size(offsets, 0) < 1)
        return tni_fail_status(cx, TN_ESHAPE,
                               "%s: offsets %s and columns %s are not (rows + 1) and (count)", op,
                               tni_shape_of(offsets).s, tni_shape_of(columns).s);
    int64_t  n = tn_size(columns, 0), rows = tn_size(offsets, 0) - 1, *at;
    elements e = { .cx = cx, .op = op, .size = { rows, cols }, .count = n };
    if (!check_values(&e, values)) return tni_failed();
    if (!(e.place[0] = host_numbers(&e, 2 * n + rows + 1, sizeof(int64_t)))) return tni_failed();
    e.place[1] = e.place[0] + n, at = e.place[1] + n;
    if (tn_read(offsets, TN_I64, at, rows + 1) == TN_OK && expand_offsets(&e, at) &&
        tn_read(columns, TN_I64, e.place[1], n) == TN_OK)
        return make(&e, values, a);
    tni_free(&cx->heap, e.place[0]);
    return tni_failed();
}

// NaN is not 0, so that it is kept; zeros of both signs are left out.
//
// The values are elements of x, so that their gradient goes to x.
tn_status tn_sparse_from_dense(tn_tensor *x, tn_sparse *a)
{
    static const char *const op = "sparse_from_dense";
    tn_ctx                  *cx = tni_arg1(op, x, "x");
    if (!clear(cx, op, a) || !tni_want_float(x, op)) return tni_failed();
    if (tn_rank(x) != 2)
        return tni_fail_status(cx, TN_ESHAPE, "%s: x %s is no matrix", op, tni_shape_of(x).s);
    tn_tensor *at   = tn_transpose(tn_nonzero(x), 0, 1);
    tn_tensor *flat = tn_add(tn_mul_s(tn_select(at, 0, 0), (double)tn_size(x, 1)),
                             tn_select(at, 0, 1));
    tni_set_below(flat, tn_count(x));
    tn_tensor *values = tn_index_select(tn_reshape(x, TN_SHAPE(-1)), 0, flat);
    return values ? tn_sparse_coo(at, values, tn_size(x, 0), tn_size(x, 1), a) : tni_failed();
}

// What a program put into the struct is checked by dtypes, sizes and the length of the pattern. Its
// numbers are not read again: a pattern that no function of this file made is the program's own
// risk, as an address is.
//
// Checks a matrix that is an argument, with n dense ones. NULL, reported, if it is none.
static tn_ctx *sparse_args(const char *op, const tn_sparse *a, int n, tn_tensor *x, tn_tensor *y)
{
    static const char *const names[] = { "a.values", "a.pattern", "x", "y" };
    tn_ctx *cx = tni_args(op, 2 + n, (tn_tensor *const[]){ a->values, a->pattern, x, y }, names);
    if (!cx || !tni_want_float(a->values, op)) return NULL;
    bool fits = tn_rank(a->values) == 1 && a->rows >= 0 && a->rows < INT32_MAX && a->cols >= 0 &&
                a->cols < INT32_MAX && tn_dtype_of(a->pattern) == TN_I32 &&
                tn_rank(a->pattern) == 1;
    if (fits &&
        tn_size(a->pattern, 0) == tni_pattern_of(a->rows, a->cols, tn_size(a->values, 0)).length)
        return cx;
    return tni_fail(cx, TN_ESHAPE,
                    "%s: values %s and pattern %s are not those of a matrix (%lld, %lld)", op,
                    tni_shape_of(a->values).s, tni_shape_of(a->pattern).s, (long long)a->rows,
                    (long long)a->cols);
}

// No two elements have one place, so that none is lost.
tn_tensor *tn_sparse_to_dense(tn_sparse a)
{
    tn_tensor *at[2];
    tn_ctx    *cx = sparse_args("sparse_to_dense", &a, 0, NULL, NULL);
    if (!cx) return NULL;
    places(a.pattern, a.rows, a.cols, tn_size(a.values, 0), at);
    tn_tensor *flat = tn_add(tn_mul_s(tn_cast(at[0], TN_I64), (double)a.cols),
                             tn_cast(at[1], TN_I64));
    tni_set_below(flat, a.rows * a.cols);
    tn_tensor *zero = tn_zeros(cx, tn_dtype_of(a.values), TN_SHAPE(a.rows * a.cols));
    tn_tensor *y    = tn_reshape(tn_scatter(zero, 0, flat, a.values), TN_SHAPE(a.rows, a.cols));
    return a.transposed ? tn_transpose(y, 0, 1) : y;
}

// In the order of the values: by rows, or for a transposed matrix by columns.
tn_tensor *tn_sparse_indices(tn_sparse a)
{
    tn_tensor *at[2];
    if (!sparse_args("sparse_indices", &a, 0, NULL, NULL)) return NULL;
    places(a.pattern, a.rows, a.cols, tn_size(a.values, 0), at);
    return tn_cast(tn_stack(2, (tn_tensor *const[]){ at[a.transposed], at[!a.transposed] }, 0),
                   TN_I64);
}

// As in every op of two operands: f32 beside f64 becomes f64, 16 bits beside f32 become f32.
//
// Values and dense operands in the dtype of both.
static bool one_dtype(int n, tn_tensor **x)
{
    tn_dtype dt = tn_dtype_of(x[0]);
    for (int i = 1; i < n; i++) dt = tni_promote(dt, tn_dtype_of(x[i]));
    for (int i = 0; i < n; i++)
        if (tn_dtype_of(x[i]) != dt && !(x[i] = tn_cast(x[i], dt))) return false;
    return true;
}

// A vector is a matrix of one column. Autocast leaves both as they are: a product of few elements
// is bound by the memory that indices and rows take, and gains little by fewer bits.
tn_tensor *tn_sparse_matmul(tn_sparse a, tn_tensor *x)
{
    struct tni_attr_sparse how = { .rows = a.rows, .cols = a.cols };
    tn_ctx                *cx  = sparse_args("sparse_matmul", &a, 1, x, NULL);
    if (!cx || !tni_want_float(x, "sparse_matmul")) return NULL;
    bool vector = tn_rank(x) == 1;
    if (tn_rank(x) < 1 || tn_rank(x) > 2 || tn_size(x, 0) != (a.transposed ? a.rows : a.cols))
        return tni_fail(cx, TN_ESHAPE, "sparse_matmul: a (%lld, %lld) and x %s do not fit",
                        (long long)(a.transposed ? a.cols : a.rows),
                        (long long)(a.transposed ? a.rows : a.cols), tni_shape_of(x).s);
    tn_tensor *both[] = { a.values, vector ? tn_unsqueeze(x, 1) : x };
    if (!both[1] || !one_dtype(2, both)) return NULL;
    tn_tensor *y = spmm(how, a.transposed, both[0], both[1], a.pattern);
    return vector ? tn_squeeze(y, 1) : y;
}

// The op takes y's columns as rows. Of a transposed matrix the two change places.
tn_tensor *tn_sparse_sampled(tn_sparse a, tn_tensor *x, tn_tensor *y)
{
    struct tni_attr_sparse how = { .rows = a.rows, .cols = a.cols };
    tn_ctx                *cx  = sparse_args("sparse_sampled", &a, 2, x, y);
    if (!cx || !tni_want_float(x, "sparse_sampled") || !tni_want_float(y, "sparse_sampled"))
        return NULL;
    int64_t rows = a.transposed ? a.cols : a.rows, cols = a.transposed ? a.rows : a.cols;
    if (tn_rank(x) != 2 || tn_rank(y) != 2 || tn_size(x, 0) != rows || tn_size(y, 1) != cols ||
        tn_size(x, 1) != tn_size(y, 0))
        return tni_fail(cx, TN_ESHAPE, "sparse_sampled: x %s times y %s is not (%lld, %lld)",
                        tni_shape_of(x).s, tni_shape_of(y).s, (long long)rows, (long long)cols);
    tn_tensor *both[] = { x, tn_transpose(y, 0, 1) };
    if (!both[1] || !one_dtype(2, both)) return NULL;
    return sddmm(how, tn_size(a.values, 0), both[a.transposed], both[!a.transposed], a.pattern);
}
