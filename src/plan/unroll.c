// Unrolling: a kernel that folds only a few elements per row, with lanes along the rows, becomes a
// map. Every element of the row becomes instructions of its own, so the values of a pooling window
// stay in registers across phases:
//
//   max over a 2 x 2 window:  v0 = load x[.., 0, 0]   v1 = load x[.., 0, 1]   m1 = maximum v0 v1
//                             v2 = load x[.., 1, 0]   m2 = maximum m1 v2      ...
#include "plan/fuse.h"

#include "kernel/thresholds.h"

#include <string.h>

// A kernel being rewritten. to[i][r]: the new instruction that stands for instruction i at element
// r of a row; r is 0 for instructions that do not vary along the row.
typedef struct {
    tni_planned_kernel *out;
    const tni_kernel   *old;
    tni_kernel         *k;
    tni_launch          l;
    tni_access_binding  source[TNI_MAX_ACCESSES];
    int32_t             origin[TNI_MAX_INS];
    int16_t             to[TNI_MAX_INS][TNI_UNROLL_ELEMENTS];
    int                 cols;
    bool                full;
} unrolling;

static bool is_per_col(const unrolling *u, int i)
{
    return u->old->ins[i].per & TNI_PER_COL;
}

static bool reads_access(const tni_ins *x)
{
    return x->code == TNI_I_LOAD || x->code == TNI_I_STORE || x->code == TNI_I_PLACE;
}

// Adds access `old` at element r of a row: the strides along R become part of the offset.
static int16_t push_access(unrolling *u, int16_t old, int r)
{
    tni_kernel *k = u->k;
    int         n = k->naccess;
    if (n == TNI_MAX_ACCESSES) {
        u->full = true;
        return 0;
    }
    k->access[n] = u->old->access[old];
    u->source[n] = u->out->source[old];
    memcpy(u->l.stride[n], u->out->launch.stride[old], sizeof u->l.stride[n]);
    for (int i = u->old->np + u->old->nr - 1; i >= u->old->np; i--) {
        int64_t size = u->out->launch.size[i];
        u->source[n].offset += r % size * u->l.stride[n][i];
        r /= (int)size;
        u->l.stride[n][i] = u->source[n].stride[i] = 0;
        k->access[n].stride[i]                     = TNI_STRIDE_0;
    }
    k->naccess++;
    return (int16_t)n;
}

// Adds an instruction; sets full, and gives up, if the kernel would get too long.
static int16_t push_unrolled(unrolling *u, tni_ins x, int32_t origin)
{
    int n = u->k->nins;
    if (n == TNI_UNROLL_INS) {
        u->full = true;
        return 0;
    }
    u->origin[n] = origin;
    u->k->ins[n] = x;
    u->k->nins++;
    return (int16_t)n;
}

// Returns the instruction that stands for operand `old` at element r.
static int16_t operand_at(const unrolling *u, int16_t old, int r)
{
    if (old < 0) return old;
    return u->to[old][is_per_col(u, old) ? r : 0];
}

// Copies instruction i for element r, with its operands and access at that element.
static void copy_ins(unrolling *u, int i, int r)
{
    tni_ins x = u->old->ins[i];
    x.a       = operand_at(u, x.a, r);
    x.b       = operand_at(u, x.b, r);
    x.c       = operand_at(u, x.c, r);
    if (reads_access(&x)) x.access = push_access(u, x.access, r);
    u->to[i][r] = push_unrolled(u, x, u->out->origin[i]);
}

// Returns the map that joins two elements of a fold.
static int folding_op(int op)
{
    return op == TNI_sum    ? TNI_add
           : op == TNI_prod ? TNI_mul
           : op == TNI_max  ? TNI_maximum
                            : TNI_minimum;
}

// Writes a fold as maps, one element after the other, in the order in which a loop would fold them.
static void unroll_fold(unrolling *u, int i)
{
    const tni_ins *x      = &u->old->ins[i];
    int16_t        so_far = operand_at(u, x->a, 0);
    for (int r = 1; r < u->cols; r++) {
        tni_ins join = *x;
        join.code    = TNI_I_MAP;
        join.op      = (uint8_t)folding_op(x->op);
        join.a       = so_far;
        join.b       = operand_at(u, x->a, r);
        so_far       = push_unrolled(u, join, u->out->origin[i]);
    }
    u->to[i][0] = so_far;
}

static void unroll_all(unrolling *u)
{
    for (int i = 0; i < u->old->nins && !u->full; i++) {
        if (u->old->ins[i].code == TNI_I_REDUCE) unroll_fold(u, i);
        else
            for (int r = 0; r < (is_per_col(u, i) ? u->cols : 1); r++) copy_ins(u, i, r);
    }
}

// Whether a kernel is worth unrolling: few elements, lanes along P, no tails, and not too many
// instructions.
static bool is_few(const tni_planned_kernel *f)
{
    const tni_kernel *k    = f->kernel;
    int64_t           cols = 1, ins = 0;
    for (int i = k->np; i < k->np + k->nr; i++) cols *= f->launch.size[i];
    for (int i = 0; i < k->nins; i++)
        ins += k->ins[i].per & TNI_PER_COL || k->ins[i].code == TNI_I_REDUCE ? cols : 1;
    return k->nr && !k->lane_in_r && !k->tails && cols <= TNI_UNROLL_ELEMENTS &&
           ins <= TNI_UNROLL_INS;
}

// Replaces the kernel and its bindings by the unrolled ones; u->k gets the old kernel, to be freed.
static bool use_unrolled(tni_heap *h, unrolling *u)
{
    tni_planned_kernel *f      = u->out;
    tni_access_binding *source = tni_alloc(h, (size_t)u->k->naccess * sizeof *source + 1);
    if (!source) return false;
    memcpy(source, u->source, (size_t)u->k->naccess * sizeof *source);
    memcpy(f->origin, u->origin, (size_t)u->k->nins * sizeof *f->origin);
    memcpy(f->launch.stride, u->l.stride, sizeof u->l.stride);
    tni_free(h, f->source);
    f->source        = source;
    tni_kernel *old  = f->kernel;
    f->kernel        = u->k;
    f->launch.kernel = u->k;
    u->k             = old;
    return true;
}

// Writes the unrolled kernel beside the old one and swaps the two. If it would become too long, the
// kernel stays as it was.
bool tni_unroll(tni_heap *h, tni_planned_kernel *f)
{
    if (!is_few(f)) return true;
    unrolling *u  = tni_zalloc(h, sizeof *u);
    bool       ok = u && (u->k = tni_zalloc(h, sizeof *u->k));
    if (ok) {
        u->out = f, u->old = f->kernel, u->cols = 1;
        for (int i = u->old->np; i < u->old->np + u->old->nr; i++)
            u->cols *= (int)f->launch.size[i];
        *u->k      = *u->old;
        u->k->nins = u->k->naccess = 0;
        u->k->nr                   = 0;
        unroll_all(u);
        ok = u->full || use_unrolled(h, u);
    }
    if (u) tni_free(h, u->k);
    tni_free(h, u);
    return ok;
}
