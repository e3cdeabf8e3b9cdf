// Products with a sparse matrix, element by element, by its rows alone: the order of the transposed
// matrix, which other devices use, is judged by it.
#include "ref.h"

size_t tni_ref_spmm_scratch(const tni_call *c)
{
    (void)c;
    return 0;
}

// y (rows, n) or, transposed, (cols, n).
tn_status tni_ref_spmm(const tni_call *c)
{
    const struct tni_attr_sparse *a = &c->attr->sparse;
    const tni_cell *v = tni_cells(&c->in[0]), *x = tni_cells(&c->in[1]), *p = tni_cells(&c->in[2]);
    tni_cell       *y     = tni_cells(&c->out);
    int64_t         count = c->in[0].size[0], n = c->out.size[1];
    tni_pattern     t = tni_pattern_of(a->rows, a->cols, count);
    memset(y, 0, (size_t)(c->out.size[0] * n) * sizeof *y);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = p[t.rows + i].i, col = p[t.columns + i].i;
        int64_t to = a->transposed ? col : row, from = a->transposed ? row : col;
        for (int64_t j = 0; j < n; j++) y[to * n + j].f += v[i].f * x[from * n + j].f;
    }
    return TN_OK;
}

size_t tni_ref_sddmm_scratch(const tni_call *c)
{
    (void)c;
    return 0;
}

// One sum for each element, in the order of the columns. A dense product of which most elements are
// then dropped would give the same numbers, and does so in test/device/test_sparse.c.
tn_status tni_ref_sddmm(const tni_call *c)
{
    const struct tni_attr_sparse *a = &c->attr->sparse;
    const tni_cell *x = tni_cells(&c->in[0]), *y = tni_cells(&c->in[1]), *p = tni_cells(&c->in[2]);
    tni_cell       *to    = tni_cells(&c->out);
    int64_t         count = c->out.size[0], k = c->in[0].size[1];
    tni_pattern     t = tni_pattern_of(a->rows, a->cols, count);
    for (int64_t i = 0; i < count; i++) {
        const tni_cell *row = x + p[t.rows + i].i * k, *col = y + p[t.columns + i].i * k;
        to[i].f = 0;
        for (int64_t j = 0; j < k; j++) to[i].f += row[j].f * col[j].f;
    }
    return TN_OK;
}
