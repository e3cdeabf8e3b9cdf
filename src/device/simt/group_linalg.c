// Linear algebra of small matrices by the kernels of group_text_linalg.c: cholesky, lu and what is
// solved by them. Larger ones, and other factorizations, run on the host.
//
// A factorization in global memory would read and write the matrix once a column; in local memory
// that is once in all. For the batches of small matrices that programs have, one group each also
// fills a GPU, without a library's launches for each step.
#include "device/host_linalg.h"
#include "device/simt/groups.h"

// The kernels' parameters, `linalg_params` of the text. Places are in elements from the start of a
// buffer.
typedef struct {
    int64_t at_a, at_b, at_lu, at_order, at_y, at_info;
    int32_t n, k, upper, unit, transposed, by_lu, has_y, has_order, has_info, zero;
} linalg_params;

_Static_assert(sizeof(linalg_params) == 6 * 8 + 10 * 4,
               "no padding: the text declares the same fields");

// A matrix and 32 right sides are in the 32 KiB of local memory that OpenCL promises.
bool tni_groups_takes_linalg(const tni_call *c)
{
    enum { MATRIX = 16640, COLUMNS = 32 };
    if (tni_linalg_is_value(c) || c->attr->linalg.kind > TNI_LINALG_LU_SOLVE) return false;
    int64_t n = c->in[0].size[c->in[0].rank - 1], e = (int64_t)tni_dtype_size(c->in[0].dtype);
    return n > 0 && n * (n + 1) * e <= MATRIX && n * COLUMNS * e <= MATRIX / 2;
}

// Passes the buffer of an operand; a missing one is the buffer of another, and not touched. Returns
// its place in elements.
static int64_t add_array(tni_kernel_args *h, const tni_linalg_array *x,
                         const tni_linalg_array *other)
{
    const tni_linalg_array *at = x->data ? x : other;
    return tni_kernel_args_add_buffer(h, at->data) / (int64_t)tni_dtype_size(at->dtype);
}

// Puts the arguments together in the order of the kernel's parameters: a factorization has the
// matrix, its results and info, a solution the matrix or its factors, the right sides, the order of
// rows and the result. Outputs that nothing reads are marked as missing.
//
// A factorization has 128 items for each matrix, eight rows of sixteen: with 64 x 64 elements and
// fewer in each step, more would wait at barriers. A solution has a warp for each 32 right sides,
// which need no barrier.
tn_status tni_groups_linalg_small(const tni_call *c)
{
    tni_linalg f     = tni_linalg_of(c);
    bool       by_lu = f.how.kind == TNI_LINALG_LU_SOLVE, chol = f.how.kind == TNI_LINALG_CHOLESKY;
    bool       lu     = f.how.kind == TNI_LINALG_LU;
    linalg_params   o = { .n          = (int32_t)f.n,
                          .k          = (int32_t)f.k,
                          .upper      = f.how.upper,
                          .unit       = f.how.unit,
                          .transposed = f.how.transposed,
                          .by_lu      = by_lu,
                          .has_y      = f.out[0].data != NULL };
    tni_kernel_args h;
    const char     *name = chol ? "cholesky_small" : lu ? "lu_small" : "solve_small";
    tn_status s = tni_kernel_args_begin(&h, c, tni_text_linalg, name, f.in[0].dtype, f.in[0].dtype);
    if (s != TN_OK || f.batch == 0) return s;
    o.at_a = add_array(&h, &f.in[by_lu ? 2 : 0], &f.in[0]);
    if (chol || lu) {
        const tni_linalg_array *info = &f.out[chol ? 1 : 2];
        o.at_y                       = add_array(&h, &f.out[0], &f.in[0]);
        if (lu) o.at_order = add_array(&h, &f.out[1], &f.in[0]);
        o.at_info   = add_array(&h, info, &f.in[0]);
        o.has_order = lu && f.out[1].data;
        o.has_info  = info->data != NULL;
    } else {
        o.at_b     = add_array(&h, &f.in[1], &f.in[0]);
        o.at_order = add_array(&h, &f.in[by_lu ? 3 : 0], &f.in[0]);
        o.at_y     = add_array(&h, &f.out[0], &f.in[0]);
    }
    tni_kernel_args_add(&h, &o, sizeof o);
    if (chol || lu) return tni_kernel_args_launch(&h, f.batch, 128, c->why);
    return tni_kernel_args_launch(&h, f.batch * tni_ceil_div(f.k, 32), 32, c->why);
}

// What does not fit into local memory goes to the host.
tn_status tni_groups_linalg(const tni_call *c)
{
    return tni_groups_takes_linalg(c) ? tni_groups_linalg_small(c) : tni_call_on_host(c);
}
