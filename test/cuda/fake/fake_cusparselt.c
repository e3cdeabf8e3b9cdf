// fake_cusparselt.c: a cuSPARSELt that multiplies in host memory. A test compiles it into a library
// of the real one's name. Its packed form is the plain matrix; it refuses what the real one would,
// and any of its calls can be made to fail.
#include "fake_cusparselt.h"

#include "host.h"

enum { W, X, Y };

// What its objects hold.
typedef struct {
    int64_t rows, cols, ld;
    int     type, order, pruned;
} matrix;
typedef struct {
    const matrix *m[3];
} product;
typedef struct {
    int id, alive;
} algo;
typedef struct {
    const product *p;
    algo          *of;
    int            id;
} plan;

fake_lt_state fake_lt;

fake_lt_state *fake_lt_get(void)
{
    return &fake_lt;
}

// Counts a call, and says whether it fails.
static int fails(void)
{
    return ++fake_lt.calls == fake_lt.fail_at ? 11 : 0;
}

int cusparseLtGetProperty(int which, int *value)
{
    *value = which == TNI_SPARSELT_MINOR ? 8 : 0;
    return 0;
}

const char *cusparseLtGetErrorString(int status)
{
    return status ? "fake: an error" : "fake: fine";
}

int cusparseLtInit(void *h)
{
    *(int *)h = 1;
    return 0;
}

// Rows and columns are of 8 elements, those of a pruned one of 16.
static int describe(void *at, matrix m, uint32_t align)
{
    int unit = m.pruned ? 16 : 8;
    if (m.rows % unit || m.cols % unit || m.ld % 8 || align != 16 || fails()) return 10;
    if (m.ld < (m.order == TNI_SPARSELT_ROWS ? m.cols : m.rows)) return 10;
    *(matrix *)at = m;
    fake_lt.matrices++;
    return 0;
}

int cusparseLtStructuredDescriptorInit(const void *h, void *at, int64_t rows, int64_t cols,
                                       int64_t ld, uint32_t align, int type, int order,
                                       int sparsity)
{
    (void)h;
    if (sparsity != TNI_SPARSELT_TWO_OF_FOUR) return 10;
    return describe(at, (matrix){ rows, cols, ld, type, order, 1 }, align);
}

int cusparseLtDenseDescriptorInit(const void *h, void *at, int64_t rows, int64_t cols, int64_t ld,
                                  uint32_t align, int type, int order)
{
    (void)h;
    return describe(at, (matrix){ rows, cols, ld, type, order, 0 }, align);
}

int cusparseLtMatDescriptorDestroy(const void *m)
{
    (void)m;
    fake_lt.matrices--;
    return 0;
}

int cusparseLtSpMMACompressedSize2(const void *h, const void *m, size_t *bytes, size_t *scratch)
{
    (void)h, (void)m, (void)bytes, (void)scratch;
    return 10;
}

int cusparseLtSpMMACompress2(const void *h, const void *m, int is_a, int op, const void *from,
                             void *to, void *scratch, tni_custream s)
{
    (void)h, (void)m, (void)is_a, (void)op, (void)from, (void)to, (void)scratch, (void)s;
    return 10;
}

// Only the form that is used: W by rows times the transpose of x by rows, to columns.
int cusparseLtMatmulDescriptorInit(const void *h, void *at, int op_a, int op_b, const void *a,
                                   const void *b, const void *c, const void *d, int compute)
{
    const matrix *w = a, *x = b, *y = d;
    (void)h;
    if (op_a != TNI_SPARSELT_NOT_TRANSPOSED || op_b != TNI_SPARSELT_TRANSPOSED || c != d) return 10;
    if (compute != TNI_SPARSELT_COMPUTE_F32 || !w->pruned || w->cols != x->cols) return 10;
    if (y->rows != w->rows || y->cols != x->rows || y->order != TNI_SPARSELT_COLUMNS) return 10;
    *(product *)at = (product){ .m = { w, x, y } };
    return fails();
}

int cusparseLtMatmulAlgSelectionInit(const void *h, void *at, const void *p, int which)
{
    (void)h, (void)p;
    *(algo *)at = (algo){ which, 1 };
    return fails();
}

int cusparseLtMatmulAlgSetAttribute(const void *h, void *at, int attribute, const void *value,
                                    size_t bytes)
{
    (void)h;
    if (attribute != TNI_SPARSELT_ALGO_ID || bytes != sizeof(int)) return 3;
    ((algo *)at)->id = *(const int *)value;
    return ((algo *)at)->id < fake_lt.algos ? fails() : 3;
}

int cusparseLtMatmulAlgGetAttribute(const void *h, const void *at, int attribute, void *value,
                                    size_t bytes)
{
    (void)h, (void)at;
    if (attribute != TNI_SPARSELT_ALGO_COUNT || bytes != sizeof(int)) return 3;
    *(int *)value = fake_lt.algos;
    return fails();
}

int cusparseLtMatmulPlanInit(const void *h, void *at, const void *p, const void *a)
{
    (void)h;
    if (!((const algo *)a)->alive || fails()) return 11;
    *(plan *)at = (plan){ p, (algo *)a, ((const algo *)a)->id };
    fake_lt.plans++;
    return 0;
}

// Takes the algorithm along, as the real one: the next plan with it would not be made there, but
// crash.
int cusparseLtMatmulPlanDestroy(const void *at)
{
    ((const plan *)at)->of->alive = 0;
    fake_lt.plans--;
    return 0;
}

int cusparseLtMatmulGetWorkspace(const void *h, const void *at, size_t *bytes)
{
    (void)h;
    *bytes = ((const plan *)at)->id == fake_lt.wide ? (size_t)1 << 40 : 64;
    return fails();
}

int cusparseLtMatmul(const void *h, const void *at, const void *alpha, const void *a, const void *b,
                     const void *beta, const void *c, void *d, void *workspace, tni_custream *s,
                     int32_t streams)
{
    const plan    *n = at;
    const matrix  *w = n->p->m[W], *x = n->p->m[X], *y = n->p->m[Y];
    const tn_dtype dt = w->type == TNI_SPARSELT_F16 ? TN_F16 : TN_BF16;
    (void)h;
    if (streams != 1 || *s != fake_lt.stream || !workspace || fails()) return 11;
    fake_lt.runs++;
    fake_lt.last = n->id;
    *fake_lt.milliseconds += n->id == fake_lt.fastest ? fake_lt.cost / 2 : fake_lt.cost;
    for (int64_t i = 0; i < y->rows * y->cols; i++) {
        int64_t row = i % y->rows, col = i / y->rows;
        double  sum = 0;
        for (int64_t k = 0; k < w->cols; k++)
            sum += host_get(dt, a, row * w->ld + k) * host_get(dt, b, col * x->ld + k);
        sum *= *(const float *)alpha;
        if (*(const float *)beta != 0)
            sum += *(const float *)beta * host_get(dt, c, row + col * y->ld);
        host_put(dt, d, row + col * y->ld, sum, 0);
    }
    return 0;
}
