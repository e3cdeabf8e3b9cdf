// How cuBLASLt sees a product: layouts, batches and loops from sizes and strides.
#include "device/cuda/product.h"

#include <string.h>

enum { A, B, D, LOOP_MOST = 64, LD_UNIT = 8 };

// An axis before the matrices: its size, and the step of each operand along it.
typedef struct {
    int64_t size, step[3];
} axis;

// A call without its form: a (m, k), b (k, n) and the result (m, n) by strides, and the axes before
// them that remain.
typedef struct {
    int64_t m, n, k;
    int64_t am, ak, bk, bn, dm, dn;
    int     axes;
    axis    axis[TN_MAX_RANK];
} sketch;

// ---- the call ----------------------------------------------------------------------------------

static bool takes_types(tn_dtype in, tn_dtype out)
{
    bool half = tni_is_rounded(in);
    return in == out ? half || in == TN_F32 || in == TN_F64 : half && out == TN_F32;
}

static bool takes_size(int64_t n)
{
    return n > 0 && n <= INT32_MAX;
}

static bool follows(const axis *outer, const axis *inner)
{
    for (int i = 0; i < 3; i++)
        if (outer->step[i] != inner->step[i] * inner->size) return false;
    return true;
}

// The axes before the matrices, joined where all three operands go on in equal steps.
static void take_axes(sketch *s, const tni_arg *const x[3])
{
    for (int i = 0; i < x[D]->rank - 2; i++) {
        axis next = { x[D]->size[i], { x[A]->stride[i], x[B]->stride[i], x[D]->stride[i] } };
        if (next.size == 1) continue;
        axis *last = s->axes ? &s->axis[s->axes - 1] : NULL;
        if (last && follows(last, &next)) {
            next.size *= last->size;
            *last = next;
        } else s->axis[s->axes++] = next;
    }
}

static bool take(sketch *s, const tni_call *c)
{
    const tni_arg *const x[3] = { &c->in[0], &c->in[1], &c->out };
    int                  r    = c->out.rank;
    if (r < 2 || x[A]->rank != r || x[B]->rank != r) return false;
    *s = (sketch){ .m  = x[D]->size[r - 2],
                   .n  = x[D]->size[r - 1],
                   .k  = x[A]->size[r - 1],
                   .am = x[A]->stride[r - 2],
                   .ak = x[A]->stride[r - 1],
                   .bk = x[B]->stride[r - 2],
                   .bn = x[B]->stride[r - 1],
                   .dm = x[D]->stride[r - 2],
                   .dn = x[D]->stride[r - 1] };
    take_axes(s, x);
    return true;
}

// ---- matrices ----------------------------------------------------------------------------------

// A matrix of these strides, as it lies: down a column in steps of one element. Axes of size 1 have
// no stride.
static bool lies(tni_matrix *x, int64_t rows, int64_t cols, int64_t down, int64_t right)
{
    int64_t ld = cols > 1 ? right : rows;
    if ((rows > 1 && down != 1) || ld < rows) return false;
    *x = (tni_matrix){ .rows = rows, .cols = cols, .ld = ld };
    return true;
}

// The same as an operand, which may be turned. A vector can lie both ways: then along its elements.
static bool lies_somehow(tni_matrix *x, int64_t rows, int64_t cols, int64_t down, int64_t right)
{
    tni_matrix turned;
    bool       plain = lies(x, rows, cols, down, right);
    if (!lies(&turned, cols, rows, right, down) || (plain && x->rows >= turned.rows)) return plain;
    *x        = turned;
    x->turned = true;
    return true;
}

// D as the transpose of the result, which is how row-major results lie, or as the result itself,
// whichever has longer columns if both can be.
static bool find_form(const sketch *s, tni_product *p)
{
    tni_matrix plain;
    if (!takes_size(s->m) || !takes_size(s->n) || !takes_size(s->k)) return false;
    bool is_plain = lies(&plain, s->m, s->n, s->dm, s->dn);
    p->along      = lies(&p->x[D], s->n, s->m, s->dn, s->dm);
    if (is_plain && p->along && plain.rows > p->x[D].rows) p->along = false;
    p->depth = s->k;
    p->rows  = p->along ? s->n : s->m;
    p->cols  = p->along ? s->m : s->n;
    if (p->along)
        return lies_somehow(&p->x[A], s->n, s->k, s->bn, s->bk) &&
               lies_somehow(&p->x[B], s->k, s->m, s->ak, s->am);
    p->x[D] = plain;
    return is_plain && lies_somehow(&p->x[A], s->m, s->k, s->am, s->ak) &&
           lies_somehow(&p->x[B], s->k, s->n, s->bk, s->bn);
}

// ---- batches -----------------------------------------------------------------------------------

static void drop_axis(sketch *s, int i)
{
    s->axes--;
    memmove(&s->axis[i], &s->axis[i + 1], (size_t)(s->axes - i) * sizeof *s->axis);
}

// Makes an axis along which one operand stays part of the size of the other: many products with the
// same right side are one with more rows. count, in and out are that size and its strides.
static bool fold(const axis *x, int moving, int64_t *count, int64_t *in, int64_t *out)
{
    if (x->step[A + B - moving] != 0) return false;
    if (*count == 1) {
        *in  = x->step[moving];
        *out = x->step[D];
    } else if (x->step[moving] != *count * *in || x->step[D] != *count * *out) return false;
    *count *= x->size;
    return true;
}

// Folds all axes that can be; one that would leave no form stays a batch.
static void fold_axes(sketch *s, tni_product *p)
{
    for (int i = s->axes - 1; i >= 0; i--) {
        tni_product q    = *p;
        sketch      t    = *s;
        bool        done = fold(&s->axis[i], A, &t.m, &t.am, &t.dm) ||
                    fold(&s->axis[i], B, &t.n, &t.bn, &t.dn);
        if (!done || !find_form(&t, &q)) continue;
        drop_axis(&t, i);
        *s = t;
        *p = q;
    }
}

// The longest axis that the library can go along; -1 if there is none.
static int longest(const sketch *s)
{
    int at = -1;
    for (int i = 0; i < s->axes; i++) {
        const axis *x = &s->axis[i];
        if (x->step[A] < 0 || x->step[B] < 0 || x->step[D] <= 0 || !takes_size(x->size)) continue;
        if (at < 0 || x->size > s->axis[at].size) at = i;
    }
    return at;
}

// Which operand of the call is which of the library's.
static int place_of(const tni_product *p, int i)
{
    return i == D || !p->along ? i : A + B - i;
}

static bool place_axes(sketch *s, tni_product *p)
{
    int     at    = longest(s);
    int64_t times = 1;
    p->batch      = at < 0 ? 1 : s->axis[at].size;
    for (int i = 0; i < 3 && at >= 0; i++) p->x[place_of(p, i)].step = s->axis[at].step[i];
    if (at >= 0) drop_axis(s, at);
    for (int i = 0; i < s->axes; i++) {
        int64_t size = s->axis[i].size;
        if (size < 1 || size > LOOP_MOST || (times *= size) > LOOP_MOST) return false;
        p->loop_size[i] = size;
        for (int k = 0; k < 3; k++) p->loop_step[place_of(p, k)][i] = s->axis[i].step[k];
    }
    p->loops = s->axes;
    return true;
}

// The ld of a single column is never followed. Then it is one that fast algorithms accept.
static void round_ld(tni_product *p)
{
    for (int i = 0; i < 3 && p->batch == 1; i++)
        if (p->x[i].cols == 1) p->x[i].ld = (p->x[i].rows + LD_UNIT - 1) / LD_UNIT * LD_UNIT;
}

bool tni_product_of(const tni_call *c, tni_product *p)
{
    sketch s;
    *p = (tni_product){ .scale = 1 };
    if (c->op != TNI_matmul || c->nin != 2 || c->in[0].dtype != c->in[1].dtype) return false;
    if (!takes_types(c->in[0].dtype, c->out.dtype) || !take(&s, c) || !find_form(&s, p))
        return false;
    p->in    = c->in[0].dtype;
    p->out   = c->out.dtype;
    p->width = s.n;
    fold_axes(&s, p);
    if (!place_axes(&s, p)) return false;
    round_ld(p);
    tni_product_bind(p, c, c->out.data);
    return true;
}

void tni_product_bind(tni_product *p, const tni_call *c, char *out)
{
    p->waits              = c->waits;
    p->at[place_of(p, A)] = c->in[0].data;
    p->at[place_of(p, B)] = c->in[1].data;
    p->at[D]              = out;
}

// ---- what follows ------------------------------------------------------------------------------

// The library stores gelu's input as a matrix with an ld of its own, in multiples of LD_UNIT. Of relu's
// it stores one bit an element, and of batches it is not promised.
static bool takes_input(const tni_product *p, int activation)
{
    return activation == TNI_gelu_tanh && p->batch == 1 && !p->loops && p->x[D].ld % LD_UNIT == 0;
}

bool tni_product_add_epilogue(tni_product *p, const tni_product_end *e)
{
    int  f     = e->activation;
    bool plain = f == TNI_leaf && !e->bias && !e->input;
    if (p->out == TN_F64 && !plain) return false;
    if (f != TNI_leaf && f != TNI_relu && f != TNI_gelu_tanh) return false;
    if (e->bias && (!p->along || p->rows != p->width)) return false;
    if (e->input && !takes_input(p, f)) return false;
    p->end  = *e;
    p->plan = NULL;
    return true;
}

bool tni_product_is_apart(const tni_product *p)
{
    const tni_product_end *e = &p->end;
    const char            *d = p->at[D], *z = e->input ? p->input : NULL;
    if (e->bias && (p->bias == d || p->bias == z)) return false;
    return !z || (z != d && (!e->residual || z != p->residual));
}

bool tni_product_accumulates(const tni_product *p)
{
    return p->end.residual && p->residual == p->at[D];
}

tni_product_end tni_product_end_of(const tni_epilogue *e)
{
    return (tni_product_end){ .activation = e->activation,
                              .scaled     = e->scale >= 0,
                              .residual   = e->residual >= 0,
                              .bias       = e->bias >= 0,
                              .input      = e->z >= 0 };
}

bool tni_product_joins(const tni_offer *o, tni_product *p)
{
    const tni_epilogue *e   = &o->epilogue;
    tni_product_end     end = tni_product_end_of(e);
    if (o->call->op != TNI_matmul || !o->only_reader || !e->fits) return false;
    if (e->activation == TNI_gelu_tanh && !tni_is_rounded(o->call->out.dtype)) return false;
    if (e->activation == TNI_gelu_slope || e->sum >= 0) return false;
    return tni_product_of(o->call, p) && tni_product_add_epilogue(p, &end);
}
