// A matmul as cuBLASLt sees it: column-major matrices, a batch of equal strides, and loops around
// it for what one batch cannot express; and which epilogues it accepts.
//
// The result (m, n) in row-major order is D = (n, m) in column-major order, so that D = B^T A^T:
// the operands change roles, each is read transposed or not, and nothing is copied.
#include "device/cuda/product.h"

#include <string.h>

// LOOP_MOST: one launch of our own kernel is better than more launches than this of the library.
// LD_UNIT: fast algorithms want columns that begin at multiples of 16 bytes, 8 elements of 16 bits.
enum { A, B, D, LOOP_MOST = 64, LD_UNIT = 8 };

// An axis before the matrices: its size, and the stride of a, b and the result along it.
typedef struct {
    int64_t size, stride[3];
} axis;

// A call as sizes and strides: a (m, k), b (k, n), the result (m, n), and the axes before them that
// were not folded into m or n.
typedef struct {
    int64_t m, n, k;
    int64_t am, ak, bk, bn, dm, dn;
    int     axes;
    axis    axis[TN_MAX_RANK];
} problem;

// ---- the call ----------------------------------------------------------------------------------

// The library's combinations that round as our own kernels do: one float type throughout, or
// operands of 16 bits with a result of f32.
static bool takes_types(tn_dtype in, tn_dtype out)
{
    bool half = tni_is_rounded(in);
    return in == out ? half || in == TN_F32 || in == TN_F64 : half && out == TN_F32;
}

// The library counts rows, columns and batches in 32 bits.
static bool takes_size(int64_t n)
{
    return n > 0 && n <= INT32_MAX;
}

// Returns whether two neighbouring axes are one in all three operands.
static bool is_outer_of(const axis *outer, const axis *inner)
{
    for (int i = 0; i < 3; i++)
        if (outer->stride[i] != inner->stride[i] * inner->size) return false;
    return true;
}

// Collects the axes before the matrices, without those of size 1, merged where all three operands
// allow.
static void read_axes(problem *s, const tni_arg *const x[3])
{
    for (int i = 0; i < x[D]->rank - 2; i++) {
        axis next = { x[D]->size[i], { x[A]->stride[i], x[B]->stride[i], x[D]->stride[i] } };
        if (next.size == 1) continue;
        axis *last = s->axes ? &s->axis[s->axes - 1] : NULL;
        if (last && is_outer_of(last, &next)) {
            next.size *= last->size;
            *last = next;
        } else s->axis[s->axes++] = next;
    }
}

// Reads sizes and strides of a call. Returns false if the operands' ranks differ from the result's.
static bool read_problem(problem *s, const tni_call *c)
{
    const tni_arg *const x[3] = { &c->in[0], &c->in[1], &c->out };
    int                  r    = c->out.rank;
    if (r < 2 || x[A]->rank != r || x[B]->rank != r) return false;
    *s = (problem){ .m  = x[D]->size[r - 2],
                    .n  = x[D]->size[r - 1],
                    .k  = x[A]->size[r - 1],
                    .am = x[A]->stride[r - 2],
                    .ak = x[A]->stride[r - 1],
                    .bk = x[B]->stride[r - 2],
                    .bn = x[B]->stride[r - 1],
                    .dm = x[D]->stride[r - 2],
                    .dn = x[D]->stride[r - 1] };
    read_axes(s, x);
    return true;
}

// ---- matrices ----------------------------------------------------------------------------------

// Returns whether a matrix of these strides is column-major, and describes it: down a column in
// steps of one element, columns at least `rows` apart. The stride of an axis of size 1 means
// nothing.
static bool is_column_major(tni_matrix *x, int64_t rows, int64_t cols, int64_t down, int64_t right)
{
    int64_t ld = cols > 1 ? right : rows;
    if ((rows > 1 && down != 1) || ld < rows) return false;
    *x = (tni_matrix){ .rows = rows, .cols = cols, .ld = ld };
    return true;
}

// Describes an operand, which the library may read transposed. A vector can be described both ways;
// then its elements go down a column.
static bool choose_layout(tni_matrix *x, int64_t rows, int64_t cols, int64_t down, int64_t right)
{
    tni_matrix transposed;
    bool       plain = is_column_major(x, rows, cols, down, right);
    if (!is_column_major(&transposed, cols, rows, right, down) ||
        (plain && x->rows >= transposed.rows))
        return plain;
    *x            = transposed;
    x->transposed = true;
    return true;
}

// Describes D as the transpose of the result, which is how row-major results look, or as the result
// itself; if it can be both, the one with longer columns. Then the operands follow. Returns false
// if one of them has no unit stride.
static bool layout_product(const problem *s, tni_product *p)
{
    tni_matrix plain;
    if (!takes_size(s->m) || !takes_size(s->n) || !takes_size(s->k)) return false;
    bool is_plain        = is_column_major(&plain, s->m, s->n, s->dm, s->dn);
    p->result_transposed = is_column_major(&p->x[D], s->n, s->m, s->dn, s->dm);
    if (is_plain && p->result_transposed && plain.rows > p->x[D].rows) p->result_transposed = false;
    p->depth = s->k;
    p->rows  = p->result_transposed ? s->n : s->m;
    p->cols  = p->result_transposed ? s->m : s->n;
    if (p->result_transposed)
        return choose_layout(&p->x[A], s->n, s->k, s->bn, s->bk) &&
               choose_layout(&p->x[B], s->k, s->m, s->ak, s->am);
    p->x[D] = plain;
    return is_plain && choose_layout(&p->x[A], s->m, s->k, s->am, s->ak) &&
           choose_layout(&p->x[B], s->k, s->n, s->bk, s->bn);
}

// ---- batches -----------------------------------------------------------------------------------

// Removes axis i.
static void drop_batch_axis(problem *s, int i)
{
    s->axes--;
    memmove(&s->axis[i], &s->axis[i + 1], (size_t)(s->axes - i) * sizeof *s->axis);
}

// Folds an axis along which one operand stays the same into the rows or columns of the other: many
// products with the same right operand are one with more rows. count, in and out are that size and
// its strides, in the operand and in the result. Returns false if the strides do not continue.
static bool fold_axis(const axis *x, int moving, int64_t *count, int64_t *in, int64_t *out)
{
    if (x->stride[A + B - moving] != 0) return false;
    if (*count == 1) {
        *in  = x->stride[moving];
        *out = x->stride[D];
    } else if (x->stride[moving] != *count * *in || x->stride[D] != *count * *out) return false;
    *count *= x->size;
    return true;
}

// Folds every axis that can be, innermost first. An axis after whose folding no layout would fit
// stays.
static void fold_axes(problem *s, tni_product *p)
{
    for (int i = s->axes - 1; i >= 0; i--) {
        tni_product q    = *p;
        problem     t    = *s;
        bool        done = fold_axis(&s->axis[i], A, &t.m, &t.am, &t.dm) ||
                    fold_axis(&s->axis[i], B, &t.n, &t.bn, &t.dn);
        if (!done || !layout_product(&t, &q)) continue;
        drop_batch_axis(&t, i);
        *s = t;
        *p = q;
    }
}

// Returns the longest axis that can be the batch: the library's strides are not negative, results
// do not overlap. -1 if there is none. The other axes become loops, so that the longest saves most
// launches.
static int longest_axis(const problem *s)
{
    int at = -1;
    for (int i = 0; i < s->axes; i++) {
        const axis *x = &s->axis[i];
        if (x->stride[A] < 0 || x->stride[B] < 0 || x->stride[D] <= 0 || !takes_size(x->size))
            continue;
        if (at < 0 || x->size > s->axis[at].size) at = i;
    }
    return at;
}

// Returns which matrix of the library an operand of the call is: if D is the transposed result, a
// and b change places.
static int role_of(const tni_product *p, int i)
{
    return i == D || !p->result_transposed ? i : A + B - i;
}

// Makes one axis the batch and the others loops. Returns false if the loops would launch too often.
static bool place_batches(problem *s, tni_product *p)
{
    int     at    = longest_axis(s);
    int64_t times = 1;
    p->batch      = at < 0 ? 1 : s->axis[at].size;
    for (int i = 0; i < 3 && at >= 0; i++) p->x[role_of(p, i)].batch_stride = s->axis[at].stride[i];
    if (at >= 0) drop_batch_axis(s, at);
    for (int i = 0; i < s->axes; i++) {
        int64_t size = s->axis[i].size;
        if (size < 1 || size > LOOP_MOST || (times *= size) > LOOP_MOST) return false;
        p->loop_size[i] = size;
        for (int k = 0; k < 3; k++) p->loop_stride[role_of(p, k)][i] = s->axis[i].stride[k];
    }
    p->loops = s->axes;
    return true;
}

// The ld of a matrix with one column is never used; it becomes one that fast algorithms accept.
static void round_ld(tni_product *p)
{
    for (int i = 0; i < 3 && p->batch == 1; i++)
        if (p->x[i].cols == 1) p->x[i].ld = (p->x[i].rows + LD_UNIT - 1) / LD_UNIT * LD_UNIT;
}

bool tni_product_of(const tni_call *c, tni_product *p)
{
    problem s;
    *p = (tni_product){ .scale = 1 };
    if (c->op != TNI_matmul || c->nin != 2 || c->in[0].dtype != c->in[1].dtype) return false;
    if (!takes_types(c->in[0].dtype, c->out.dtype) || !read_problem(&s, c) ||
        !layout_product(&s, p))
        return false;
    p->in    = c->in[0].dtype;
    p->out   = c->out.dtype;
    p->width = s.n;
    fold_axes(&s, p);
    if (!place_batches(&s, p)) return false;
    round_ld(p);
    tni_product_bind(p, c, c->out.data);
    return true;
}

// Only addresses change between runs of a planned call, and whether it may wait for the compiler.
void tni_product_bind(tni_product *p, const tni_call *c, char *out)
{
    p->waits             = c->wait_for_compiler;
    p->search            = c->search;
    p->packed            = c->packed[p->result_transposed];
    p->at[role_of(p, A)] = c->in[0].data;
    p->at[role_of(p, B)] = c->in[1].data;
    p->at[D]             = out;
}

// ---- parts -------------------------------------------------------------------------------------

// The dimensions of a product, and which of them each matrix has going down its columns and across.
// WIDE_BYTES: of D's columns; see tni_product_divide.
enum { ROWS, COLS, DEPTH, WIDE_BYTES = 128 };

static int64_t *size_of(tni_product *p, int dim)
{
    return dim == ROWS ? &p->rows : dim == COLS ? &p->cols : &p->depth;
}

// Returns the dimension along which a matrix is contiguous.
static int down_of(const tni_product *p, int i)
{
    static const int down[3] = { ROWS, DEPTH, ROWS }, across[3] = { DEPTH, COLS, COLS };
    return p->x[i].transposed ? across[i] : down[i];
}

// Returns the dimension across the columns of a matrix.
static int across_of(const tni_product *p, int i)
{
    static const int down[3] = { ROWS, DEPTH, ROWS }, across[3] = { DEPTH, COLS, COLS };
    return p->x[i].transposed ? down[i] : across[i];
}

// Whether a product gains by being divided: it is one product of columns that begin at multiples of
// 16 bytes, large enough that two more launches, 5 us each, do not show.
static bool worth_dividing(const tni_product *p, int64_t unit)
{
    const double least = 1e10;  // multiplications: about 30 us
    if (p->batch != 1 || p->loops || p->out == TN_F64) return false;
    for (int i = 0; i < 3; i++)
        if (p->x[i].ld % unit) return false;
    return (double)p->rows * (double)p->cols * (double)p->depth >= least;
}

// Takes what is left of dimension dim beyond `keep` from the first part, as a part of its own.
// Where that is the depth, it is added to what the first part computed.
static void divide_at(tni_product_parts *s, int dim, int64_t keep)
{
    tni_product *first = &s->part[0], *rest = &s->part[s->count];
    int64_t     *offset = s->offset[s->count++];
    *rest               = *first;
    for (int i = 0; i < 3; i++) {
        offset[i] = 0;
        if (down_of(first, i) == dim) {
            offset[i]        = keep;
            first->x[i].rows = keep;
            rest->x[i].rows -= keep;
        } else if (across_of(first, i) == dim) {
            offset[i]        = keep * first->x[i].ld;
            first->x[i].cols = keep;
            rest->x[i].cols -= keep;
        }
    }
    *size_of(first, dim) = keep;
    *size_of(rest, dim) -= keep;
    rest->epilogue.residual = dim == DEPTH;
}

// Leaves whole pieces of `unit` elements in the columns of the first part's D, if the rest, at most
// one piece, is less than a hundredth of them. Before the depth is divided, whose rest is added to
// all of the first part.
static void divide_wide(tni_product_parts *s, int64_t unit)
{
    int64_t rows = s->part[0].rows;
    if (rows % unit && rows >= 100 * unit) divide_at(s, ROWS, rows / unit * unit);
}

void tni_product_divide(const tni_product *p, tni_product_parts *s)
{
    int64_t unit = 16 / (int64_t)tni_dtype_size(p->in);
    s->count     = 1;
    s->part[0]   = *p;
    memset(s->offset, 0, sizeof s->offset);
    if (!worth_dividing(p, unit)) return;
    for (int dim = ROWS; dim <= DEPTH; dim++) {
        int64_t size       = *size_of(&s->part[0], dim);
        bool    contiguous = false;
        for (int i = 0; i < 3; i++) contiguous |= down_of(p, i) == dim;
        if (contiguous && size % unit && size > unit) divide_at(s, dim, size / unit * unit);
        if (dim == ROWS) divide_wide(s, WIDE_BYTES / (int64_t)tni_dtype_size(p->in));
    }
}

void tni_product_bind_parts(tni_product_parts *s, const tni_call *c)
{
    for (int k = 0; k < s->count; k++) {
        tni_product *p = &s->part[k];
        tni_product_bind(p, c, c->out.data);
        for (int i = 0; i < 3; i++)
            p->at[i] += s->offset[k][i] * (int64_t)tni_dtype_size(i == D ? p->out : p->in);
        if (p->epilogue.residual) p->residual = p->at[D];
        if (s->count > 1) p->packed = NULL;  // it is that of all of A
    }
}

// ---- epilogues ---------------------------------------------------------------------------------

// The library stores gelu's input as a matrix with an ld of its own, a multiple of LD_UNIT
// elements. Of relu's input it stores one bit per element, which is of no use here, and for batches
// its documentation promises nothing.
static bool takes_aux(const tni_product *p, int activation)
{
    return activation == TNI_gelu_tanh && p->batch == 1 && !p->loops && p->x[D].ld % LD_UNIT == 0;
}

// A bias is one element per row of D, so that D must be the transposed result, with rows along its
// last axis. The plan that the product kept is for another epilogue, and dropped.
bool tni_product_add_epilogue(tni_product *p, const tni_product_epilogue *e)
{
    int  f     = e->activation;
    bool plain = f == TNI_leaf && !e->bias && !e->input;
    if (p->out == TN_F64 && !plain) return false;
    if (f != TNI_leaf && f != TNI_relu && f != TNI_gelu_tanh) return false;
    if (e->bias && (!p->result_transposed || p->rows != p->width)) return false;
    if (e->input && !takes_aux(p, f)) return false;
    p->epilogue = *e;
    p->plan     = NULL;
    return true;
}

// Compares the first addresses only.
bool tni_product_is_unaliased(const tni_product *p)
{
    const tni_product_epilogue *e = &p->epilogue;
    const char                 *d = p->at[D], *z = e->input ? p->input : NULL;
    if (e->bias && (p->bias == d || p->bias == z)) return false;
    return !z || (z != d && (!e->residual || z != p->residual));
}

bool tni_product_accumulates(const tni_product *p)
{
    return p->epilogue.residual && p->residual == p->at[D];
}

tni_product_epilogue tni_product_epilogue_of(const tni_epilogue *e)
{
    return (tni_product_epilogue){ .activation = e->activation,
                                   .scaled     = e->scale >= 0,
                                   .residual   = e->residual >= 0,
                                   .bias       = e->bias >= 0,
                                   .input      = e->z >= 0 };
}

// Whether a product is done in parts: worth more than an epilogue, which a product of one part has.
static bool is_divided(const tni_product *p)
{
    tni_product_parts parts;
    tni_product_divide(p, &parts);
    return parts.count > 1;
}

// Accepts an epilogue of a plan, or declines it: another op, a product that something else reads
// too, a kernel that is not of the library's form, gelu in f32 (whose digits the library's
// approximation does not have), gelu's slope, or a column sum. product.h has the figures for the
// last two.
bool tni_product_of_offer(const tni_offer *o, tni_product *p)
{
    const tni_epilogue  *e        = &o->epilogue;
    tni_product_epilogue epilogue = tni_product_epilogue_of(e);
    if (o->call->op != TNI_matmul || !o->only_reader || !e->fits) return false;
    if (e->activation == TNI_gelu_tanh && !tni_is_rounded(o->call->out.dtype)) return false;
    if (e->activation == TNI_gelu_slope || e->sum >= 0 || !tni_product_of(o->call, p)) return false;
    if ((e->wide && is_divided(p)) || !tni_product_add_epilogue(p, &epilogue)) return false;
    if (e->wide) p->out = TN_F32;
    return true;
}
