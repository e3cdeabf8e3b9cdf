// oracle.c: the plain interpreter; see oracle.h.
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *grow(void *array, int *cap, int need, size_t size)
{
    if (need <= *cap) return array;
    while (*cap < need) *cap = *cap ? *cap * 2 : 64;
    array = realloc(array, (size_t)*cap * size);
    if (!array) abort();
    return array;
}

void orc_open(oracle *o)
{
    memset(o, 0, sizeof *o);
    o->grad = true;
    orc_constant(o, 0);  // variable 0 stands for none
}

void orc_close(oracle *o)
{
    free(o->var);
    free(o->store);
    free(o->leaf);
    free(o->past);
}

// ---- the tape

static int add_var(oracle *o, orc_var v)
{
    o->var            = grow(o->var, &o->vars_cap, o->vars + 1, sizeof *o->var);
    o->var[o->vars++] = v;
    return o->vars - 1;
}

int orc_constant(oracle *o, double v)
{
    return add_var(o, (orc_var){ .v = v });
}

static double compute(orc_op op, double a, double b, double k)
{
    switch (op) {
    case ORC_ADD: return a + b;
    case ORC_SUB: return a - b;
    case ORC_MUL: return a * b;
    case ORC_DIV: return a / b;
    case ORC_SCALE: return a * k;
    case ORC_SHIFT: return a + k;
    case ORC_SIN: return sin(a);
    case ORC_COS: return cos(a);
    case ORC_TANH: return tanh(a);
    case ORC_EXP: return exp(a);
    default: return a;
    }
}

static int apply(oracle *o, orc_op op, int a, int b, double k)
{
    double v     = compute(op, o->var[a].v, o->var[b].v, k);
    bool   needs = o->grad && (o->var[a].needs || o->var[b].needs);
    if (!needs) return orc_constant(o, v);
    return add_var(o, (orc_var){ .v = v, .k = k, .a = a, .b = b, .op = op, .needs = true });
}

// ---- shapes and values

int orc_count(int rank, const int64_t *size)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= size[i];
    return n > 1000000 ? 1000000 : (int)n;
}

static orc_shape shape_of(int rank, const int64_t *size)
{
    orc_shape s = { .rank = rank, .n = orc_count(rank, size) };
    for (int i = 0; i < rank; i++) s.size[i] = size[i];
    return s;
}

void orc_index(const orc_shape *s, int i, int64_t *at)
{
    for (int k = s->rank - 1; k >= 0; k--) {
        at[k] = i % s->size[k];
        i /= (int)s->size[k];
    }
}

int orc_place(const orc_shape *s, const int64_t *at)
{
    int64_t i = 0;
    for (int k = 0; k < s->rank; k++) i = i * s->size[k] + at[k];
    return (int)i;
}

double orc_get(const oracle *o, const orc_value *x, int i)
{
    return o->var[x->var[i]].v;
}

double orc_largest(const oracle *o, const orc_value *x)
{
    double most = 0;
    for (int i = 0; i < x->shape.n; i++) most = fmax(most, fabs(orc_get(o, x, i)));
    return most;
}

bool orc_needs(const oracle *o, const orc_value *x)
{
    for (int i = 0; i < x->shape.n; i++)
        if (o->var[x->var[i]].needs) return true;
    return false;
}

orc_value orc_constants(oracle *o, const orc_shape *s, const double *v)
{
    orc_value y = { .shape = *s };
    for (int i = 0; i < s->n; i++) y.var[i] = orc_constant(o, v[i]);
    return y;
}

orc_value orc_map1(oracle *o, orc_op op, const orc_value *x, double k)
{
    orc_value y = { .shape = x->shape };
    for (int i = 0; i < x->shape.n; i++) y.var[i] = apply(o, op, x->var[i], 0, k);
    return y;
}

bool orc_broadcast(const orc_shape *a, const orc_shape *b, orc_shape *y)
{
    int     rank = a->rank > b->rank ? a->rank : b->rank;
    int64_t size[ORC_RANK];
    for (int i = 0; i < rank; i++) {
        int     ia = i - (rank - a->rank), ib = i - (rank - b->rank);
        int64_t na = ia < 0 ? 1 : a->size[ia], nb = ib < 0 ? 1 : b->size[ib];
        if (na != nb && na != 1 && nb != 1) return false;
        size[i] = na == 1 ? nb : na;
    }
    *y = shape_of(rank, size);
    return true;
}

orc_value orc_stretch(const orc_value *x, const orc_shape *y)
{
    orc_value r = { .shape = *y };
    for (int i = 0; i < y->n; i++) {
        int64_t at[ORC_RANK], from[ORC_RANK];
        orc_index(y, i, at);
        for (int k = 0; k < x->shape.rank; k++)
            from[k] = x->shape.size[k] == 1 ? 0 : at[k + y->rank - x->shape.rank];
        r.var[i] = x->var[orc_place(&x->shape, from)];
    }
    return r;
}

orc_value orc_map2(oracle *o, orc_op op, const orc_value *a, const orc_value *b)
{
    orc_value y = { .shape = { 0 } };
    orc_broadcast(&a->shape, &b->shape, &y.shape);
    orc_value sa = orc_stretch(a, &y.shape), sb = orc_stretch(b, &y.shape);
    for (int i = 0; i < y.shape.n; i++) y.var[i] = apply(o, op, sa.var[i], sb.var[i], 0);
    return y;
}

orc_value orc_sum(oracle *o, const orc_value *x, int axis, bool keep)
{
    orc_value y    = { .shape = { 0 } };
    orc_shape kept = x->shape;
    for (int i = 0; i < kept.rank; i++)
        if (axis < 0 || i == axis) kept.size[i] = 1;
    kept = shape_of(kept.rank, kept.size);
    for (int i = 0; i < kept.n; i++) y.var[i] = orc_constant(o, 0);
    for (int i = 0; i < x->shape.n; i++) {
        int64_t at[ORC_RANK];
        orc_index(&x->shape, i, at);
        for (int k = 0; k < kept.rank; k++)
            if (kept.size[k] == 1) at[k] = 0;
        int to    = orc_place(&kept, at);
        y.var[to] = apply(o, ORC_ADD, y.var[to], x->var[i], 0);
    }
    y.shape = kept;
    if (keep) return y;
    int64_t size[ORC_RANK];
    int     rank = 0;
    for (int i = 0; i < kept.rank; i++)
        if (!(axis < 0 || i == axis)) size[rank++] = kept.size[i];
    return orc_shaped(&y, rank, size);
}

orc_value orc_cumsum(oracle *o, const orc_value *x, int axis)
{
    orc_value y = { .shape = x->shape };
    for (int i = 0; i < x->shape.n; i++) {
        int64_t at[ORC_RANK];
        orc_index(&x->shape, i, at);
        y.var[i] = apply(o, ORC_COPY, x->var[i], 0, 0);
        if (at[axis]-- > 0)
            y.var[i] = apply(o, ORC_ADD, y.var[orc_place(&x->shape, at)], y.var[i], 0);
    }
    return orc_map1(o, ORC_COPY, &y, 0);
}

orc_value orc_matmul(oracle *o, const orc_value *a, const orc_value *b)
{
    int64_t   m = a->shape.size[0], n = b->shape.size[1], k = a->shape.size[1];
    orc_value y = { .shape = shape_of(2, (int64_t[]){ m, n }) };
    for (int i = 0; i < y.shape.n; i++) {
        int sum = orc_constant(o, 0);
        for (int64_t j = 0; j < k; j++) {
            int p = apply(o, ORC_MUL, a->var[i / n * k + j], b->var[j * n + i % n], 0);
            sum   = apply(o, ORC_ADD, sum, p, 0);
        }
        y.var[i] = sum;
    }
    return y;
}

orc_value orc_concat(oracle *o, const orc_value *a, const orc_value *b, int axis)
{
    orc_value y = { .shape = a->shape };
    y.shape.size[axis] += b->shape.size[axis];
    y.shape = shape_of(y.shape.rank, y.shape.size);
    for (int i = 0; i < y.shape.n; i++) {
        int64_t at[ORC_RANK];
        orc_index(&y.shape, i, at);
        const orc_value *from = a;
        if (at[axis] >= a->shape.size[axis]) {
            at[axis] -= a->shape.size[axis];
            from = b;
        }
        y.var[i] = apply(o, ORC_COPY, from->var[orc_place(&from->shape, at)], 0, 0);
    }
    return y;
}

// ---- views

orc_value orc_all(const orc_shape *x)
{
    orc_value v = { .shape = *x };
    for (int i = 0; i < x->n; i++) v.var[i] = i;
    return v;
}

orc_value orc_slice(const orc_shape *x, int axis, int64_t start, int64_t stop, int64_t step)
{
    int64_t n = x->size[axis], lo = step > 0 ? 0 : -1, hi = step > 0 ? n : n - 1;
    int64_t picked[ORC_CELLS], count = 0;
    if (start < 0) start += n;
    if (stop == INT64_MAX) stop = step > 0 ? n : -1;
    else if (stop < 0) stop = stop + n < 0 ? lo : stop + n;
    start = start < lo ? lo : start > hi ? hi : start;
    stop  = stop > hi ? hi : stop;
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) picked[count++] = i;

    orc_value y        = { .shape = *x };
    y.shape.size[axis] = count;
    y.shape            = shape_of(y.shape.rank, y.shape.size);
    for (int i = 0; i < y.shape.n; i++) {
        int64_t at[ORC_RANK];
        orc_index(&y.shape, i, at);
        at[axis] = picked[at[axis]];
        y.var[i] = orc_place(x, at);
    }
    return y;
}

orc_value orc_permute(const orc_shape *x, const int *axes)
{
    orc_value y = { .shape = *x };
    for (int i = 0; i < x->rank; i++) y.shape.size[i] = x->size[axes[i]];
    for (int i = 0; i < x->n; i++) {
        int64_t at[ORC_RANK], from[ORC_RANK];
        orc_index(&y.shape, i, at);
        for (int k = 0; k < x->rank; k++) from[axes[k]] = at[k];
        y.var[i] = orc_place(x, from);
    }
    return y;
}

orc_value orc_diagonal(const orc_shape *x, int64_t offset, int axis1, int axis2)
{
    int64_t row = offset < 0 ? -offset : 0, col = offset > 0 ? offset : 0;
    int64_t n    = 0, size[ORC_RANK];
    int     rank = 0;
    while (row + n < x->size[axis1] && col + n < x->size[axis2]) n++;
    for (int i = 0; i < x->rank; i++)
        if (i != axis1 && i != axis2) size[rank++] = x->size[i];
    size[rank++] = n;
    orc_value y  = { .shape = shape_of(rank, size) };
    for (int i = 0; i < y.shape.n; i++) {
        int64_t at[ORC_RANK], from[ORC_RANK];
        orc_index(&y.shape, i, at);
        for (int k = 0, other = 0; k < x->rank; k++)
            if (k != axis1 && k != axis2) from[k] = at[other++];
        from[axis1] = row + at[rank - 1];
        from[axis2] = col + at[rank - 1];
        y.var[i]    = orc_place(x, from);
    }
    return y;
}

orc_value orc_window(const orc_shape *x, int axis, int64_t n, int64_t step)
{
    int64_t size[ORC_RANK];
    for (int i = 0; i < x->rank; i++) size[i] = x->size[i];
    size[axis]    = (x->size[axis] - n) / step + 1;
    size[x->rank] = n;
    orc_value y   = { .shape = shape_of(x->rank + 1, size) };
    if (y.shape.n > ORC_CELLS) return y;
    for (int i = 0; i < y.shape.n; i++) {
        int64_t at[ORC_RANK];
        orc_index(&y.shape, i, at);
        at[axis] = at[axis] * step + at[x->rank];
        y.var[i] = orc_place(x, at);
    }
    return y;
}

orc_value orc_shaped(const orc_value *x, int rank, const int64_t *size)
{
    orc_value y = *x;
    y.shape     = shape_of(rank, size);
    return y;
}

// ---- handles

static int rounded(oracle *o, int var, bool single)
{
    int y = apply(o, ORC_COPY, var, 0, 0);
    if (single) o->var[y].v = (float)o->var[y].v;
    return y;
}

orc_handle orc_make(oracle *o, const orc_value *v, bool single, int past)
{
    o->store     = grow(o->store, &o->stores_cap, o->stores + 1, sizeof *o->store);
    orc_store *s = &o->store[o->stores];
    orc_handle h = { .shape = v->shape, .store = o->stores++, .leaf = -1 };
    *s           = (orc_store){ .n = v->shape.n, .past = past, .single = single };
    for (int i = 0; i < s->n; i++) {
        orc_var *x = &o->var[v->var[i]];
        if (single) x->v = (float)x->v;
        s->cell[i] = v->var[i];
        h.cell[i]  = i;
    }
    // A tensor that needs gradients does so as a whole, constants among its elements included.
    for (int i = 0; i < s->n && o->grad && orc_needs(o, v); i++) o->var[s->cell[i]].needs = true;
    return h;
}

orc_handle orc_view(const oracle *o, const orc_handle *x, const orc_value *which)
{
    orc_handle y = { .shape    = which->shape,
                     .store    = x->store,
                     .leaf     = o->grad ? x->leaf : -1,
                     .detached = x->detached || !o->grad };
    for (int i = 0; i < y.shape.n; i++) y.cell[i] = x->cell[which->var[i]];
    return y;
}

orc_value orc_read(oracle *o, const orc_handle *x)
{
    orc_value y = { .shape = x->shape };
    for (int i = 0; i < x->shape.n; i++) {
        int var = o->store[x->store].cell[x->cell[i]];
        if (x->leaf >= 0)
            var = add_var(o, (orc_var){ .v     = o->var[var].v,
                                        .a     = x->leaf,
                                        .b     = x->cell[i],
                                        .op    = ORC_LEAF,
                                        .needs = true });
        else if (x->detached) var = orc_constant(o, o->var[var].v);
        y.var[i] = var;
    }
    return y;
}

bool orc_injective(const orc_handle *x)
{
    for (int i = 0; i < x->shape.n; i++)
        for (int k = 0; k < i; k++)
            if (x->cell[i] == x->cell[k]) return false;
    return true;
}

// A write without history makes constants of the cells it writes; the others keep theirs.
void orc_write(oracle *o, const orc_handle *x, const orc_value *v, int past)
{
    if (x->shape.n == 0) return;
    orc_store *s    = &o->store[x->store];
    bool       mode = o->grad;
    orc_value  to   = orc_stretch(v, &x->shape);
    o->grad         = mode && !x->detached;
    for (int i = 0; i < x->shape.n; i++) {
        int var             = o->grad ? to.var[i] : orc_constant(o, o->var[to.var[i]].v);
        s->cell[x->cell[i]] = rounded(o, var, s->single);
    }
    if (o->grad) s->past = orc_past_new(o, past, s->past, -1);
    else s->past = x->shape.n < s->n ? orc_past_new(o, s->past, -1, -1) : -1;
    o->grad   = mode;
    s->stored = s->consumed = s->lost = false;
    s->assigned                       = true;
    s->writes++;
}

int orc_past_of(const oracle *o, const orc_handle *x)
{
    return x->leaf >= 0 || x->detached ? -1 : o->store[x->store].past;
}

int orc_past_new(oracle *o, int a, int b, int c)
{
    o->past           = grow(o->past, &o->pasts_cap, o->pasts + 1, sizeof *o->past);
    o->past[o->pasts] = (orc_past){ .parent = { a, b, c, -1 } };
    return o->pasts++;
}

// ---- gradients

typedef struct {
    oracle *o;
    int    *g;  // by variable
    double  scale;
} reverse;

static void give(reverse *r, int to, int g)
{
    oracle *o = r->o;
    if (!o->var[to].needs) return;
    r->g[to] = r->g[to] ? apply(o, ORC_ADD, r->g[to], g, 0) : g;
    r->scale = fmax(r->scale, fabs(o->var[r->g[to]].v));
    r->scale = fmax(r->scale, fabs(o->var[g].v));
}

static void pass_on(reverse *r, int i)
{
    oracle *o = r->o;
    orc_var v = o->var[i];
    int     g = r->g[i];
    switch (v.op) {
    case ORC_COPY:
    case ORC_SHIFT: give(r, v.a, g); break;
    case ORC_ADD:
        give(r, v.a, g);
        give(r, v.b, g);
        break;
    case ORC_SUB:
        give(r, v.a, g);
        give(r, v.b, apply(o, ORC_SCALE, g, 0, -1));
        break;
    case ORC_MUL:
        give(r, v.a, apply(o, ORC_MUL, g, v.b, 0));
        give(r, v.b, apply(o, ORC_MUL, g, v.a, 0));
        break;
    case ORC_DIV:
        give(r, v.a, apply(o, ORC_DIV, g, v.b, 0));
        give(r, v.b,
             apply(o, ORC_MUL, apply(o, ORC_SCALE, g, 0, -1), apply(o, ORC_DIV, i, v.b, 0), 0));
        break;
    case ORC_SCALE: give(r, v.a, apply(o, ORC_SCALE, g, 0, v.k)); break;
    case ORC_SIN: give(r, v.a, apply(o, ORC_MUL, g, apply(o, ORC_COS, v.a, 0, 0), 0)); break;
    case ORC_COS:
        give(r, v.a,
             apply(o, ORC_SCALE, apply(o, ORC_MUL, g, apply(o, ORC_SIN, v.a, 0, 0), 0), 0, -1));
        break;
    case ORC_TANH: {
        int rest = apply(o, ORC_SHIFT, apply(o, ORC_SCALE, apply(o, ORC_MUL, i, i, 0), 0, -1), 0,
                         1);
        give(r, v.a, apply(o, ORC_MUL, g, rest, 0));
        break;
    }
    case ORC_EXP: give(r, v.a, apply(o, ORC_MUL, g, i, 0)); break;
    default: break;
    }
}

int *orc_reverse(oracle *o, const orc_value *y, const orc_value *gy, double *scale)
{
    int     last = o->vars;
    reverse r    = { .o = o, .g = calloc((size_t)last, sizeof(int)), .scale = 1 };
    if (!r.g) abort();
    for (int i = 0; i < y->shape.n; i++) give(&r, y->var[i], gy->var[i]);
    for (int i = last - 1; i > 0; i--)
        if (r.g[i]) pass_on(&r, i);
    *scale = r.scale;
    return r.g;
}

void orc_backward(oracle *o, const orc_value *y, const orc_value *gy)
{
    bool   mode = o->grad;
    int    last = o->vars;
    double scale;
    o->grad = false;
    int *g  = orc_reverse(o, y, gy, &scale);
    for (int i = 1; i < last; i++) {
        const orc_var *v = &o->var[i];
        if (v->op != ORC_LEAF || !g[i]) continue;
        o->leaf[v->a].g[v->b] += o->var[g[i]].v;
        o->leaf[v->a].has = true;
        if (scale > o->leaf[v->a].scale) o->leaf[v->a].scale = scale;
    }
    o->grad = mode;
    free(g);
}

orc_value orc_grad(oracle *o, const orc_value *y, const orc_value *gy, const orc_handle *x)
{
    orc_value r    = { .shape = x->shape };
    int       last = o->vars;
    double    scale;
    int      *g = orc_reverse(o, y, gy, &scale);
    for (int k = 0; k < x->shape.n; k++) {
        int sum = 0;
        for (int i = 1; x->leaf >= 0 && i < last; i++) {
            const orc_var *v = &o->var[i];
            if (v->op != ORC_LEAF || v->a != x->leaf || v->b != x->cell[k] || !g[i]) continue;
            sum = sum ? apply(o, ORC_ADD, sum, g[i], 0) : g[i];
        }
        if (x->leaf < 0) sum = g[o->store[x->store].cell[x->cell[k]]];
        r.var[k] = sum ? apply(o, ORC_COPY, sum, 0, 0) : orc_constant(o, 0);
    }
    free(g);
    return r;
}

// ---- what is spent

static bool *reach(const oracle *o, int past)
{
    bool *in = calloc((size_t)o->pasts + 1, sizeof *in);
    if (!in) abort();
    if (past >= 0) in[past] = true;
    for (int i = past; i >= 0; i--)
        for (int k = 0; in[i] && k < ORC_PARENTS; k++)
            if (o->past[i].parent[k] >= 0) in[o->past[i].parent[k]] = true;
    return in;
}

bool orc_reaches_spent(const oracle *o, int past, bool walked)
{
    bool *in = reach(o, past), found = false;
    for (int i = 0; i <= past; i++)
        found |= in[i] && (o->past[i].spent || (walked && o->past[i].walked));
    free(in);
    return found;
}

void orc_walk(oracle *o, int past)
{
    bool *in = reach(o, past);
    for (int i = 0; i <= past; i++) o->past[i].walked |= in[i];
    free(in);
}

void orc_spend(oracle *o)
{
    for (int i = 0; i < o->pasts; i++) o->past[i].spent |= o->past[i].walked;
}
