// program_ops.c: the instructions that make tensors, view them, compute with them and write to
// them.
#include "program.h"

#include <math.h>
#include <string.h>

// ---- creation

double prg_small(uint64_t *seed)
{
    return (double)(int)(prg_random(seed) % 65 - 32) / 16;
}

static orc_shape random_shape(uint32_t bits)
{
    orc_shape s = { .rank = (int)(bits % 5), .n = 1 };
    if (s.rank == 4 && bits >> 3 & 1) s.rank = 2;
    for (int i = 0; i < s.rank; i++) {
        s.size[i] = 1 + (bits >> (8 + 4 * i) & 3);
        if (s.n * s.size[i] > 24) s.size[i] = 1;
        s.n *= (int)s.size[i];
    }
    return s;
}

static tn_dtype random_dtype(const run *r, uint32_t bits)
{
    if (bits % 8 == 0) return TN_I64;
    return r->p->singles && bits % 8 < 4 ? TN_F32 : TN_F64;
}

const char *prg_dtype_text(tn_dtype dt)
{
    return dt == TN_I64 ? "TN_I64" : dt == TN_F32 ? "TN_F32" : "TN_F64";
}

tn_tensor *prg_from(run *r, tn_dtype dt, const orc_shape *s, double *v)
{
    int64_t whole[ORC_CELLS];
    float   single[ORC_CELLS];
    for (int i = 0; i < s->n; i++) {
        if (dt == TN_I64) v[i] = trunc(v[i] * 4);
        whole[i]  = (int64_t)v[i];
        single[i] = (float)v[i];
    }
    const void *data = dt == TN_I64 ? (void *)whole : dt == TN_F32 ? (void *)single : (void *)v;
    return tn_from(r->cx, dt, s->rank, s->size, data);
}

void prg_do_from(run *r)
{
    slot     *to   = prg_target(r);
    orc_shape s    = random_shape(prg_arg(r, 1));
    tn_dtype  dt   = random_dtype(r, prg_arg(r, 2));
    uint64_t  seed = prg_arg(r, 3);
    double    v[ORC_CELLS];
    for (int i = 0; i < s.n; i++) v[i] = prg_small(&seed);
    prg_say(r, "t%d = tn_from(%s, %s, random)", prg_number(to, r), prg_dtype_text(dt),
            prg_shape_text(&s));
    tn_tensor *t = prg_from(r, dt, &s, v);
    orc_value  x = orc_constants(&r->o, &s, v);
    prg_put_result(r, to, t, &x, -1);
    if (t) prg_store(r, to)->stored = true;
}

void prg_do_full(run *r)
{
    slot     *to = prg_target(r);
    orc_shape s  = random_shape(prg_arg(r, 1));
    tn_dtype  dt = random_dtype(r, prg_arg(r, 2));
    double    v[ORC_CELLS], k = (int)(prg_arg(r, 3) % 5) - 2;
    for (int i = 0; i < s.n; i++) v[i] = k;
    prg_say(r, "t%d = tn_full(%s, %s, %g)", prg_number(to, r), prg_dtype_text(dt),
            prg_shape_text(&s), k);
    orc_value x = orc_constants(&r->o, &s, v);
    prg_put_result(r, to, tn_full(r->cx, dt, s.rank, s.size, k), &x, -1);
}

// ---- views

static void put_view(run *r, const slot *x, tn_tensor *t, const orc_value *which)
{
    orc_handle h = orc_view(&r->o, &x->h, which);
    prg_put(r, prg_target(r), t, h, false);
}

static void view_slice(run *r, slot *x, int axis)
{
    static const int64_t steps[] = { 1, 1, 1, 2, 3, -1, -2, -1 };
    int64_t              n       = x->h.shape.size[axis];
    int64_t              start   = (int64_t)(prg_arg(r, 4) % (uint32_t)(2 * n + 3)) - n - 1;
    int64_t              stop    = (int64_t)(prg_arg(r, 4) >> 8) % (2 * n + 3) - n - 1;
    int64_t              step    = steps[prg_arg(r, 5) % 8];
    if (prg_arg(r, 5) >> 8 & 1) stop = TN_TO_END;
    if (prg_arg(r, 5) >> 9 & 1) start = step > 0 ? 0 : n;
    prg_say(r, "v = tn_slice(t%d, %d, %lld, %lld, %lld)", prg_number(x, r), axis, (long long)start,
            stop == TN_TO_END ? -99 : (long long)stop, (long long)step);
    orc_value which = orc_slice(&x->h.shape, axis, start, stop, step);
    put_view(r, x, tn_slice(x->t, axis, start, stop, step), &which);
}

static void view_select(run *r, slot *x, int axis)
{
    int64_t n = x->h.shape.size[axis], size[ORC_RANK];
    if (!n) return;
    int64_t   at = (int64_t)(prg_arg(r, 4) % (uint32_t)(2 * n)) - n, k = at < 0 ? at + n : at;
    orc_value which = orc_slice(&x->h.shape, axis, k, k + 1, 1);
    int       rank  = 0;
    for (int i = 0; i < x->h.shape.rank; i++)
        if (i != axis) size[rank++] = x->h.shape.size[i];
    which = orc_shaped(&which, rank, size);
    prg_say(r, "v = tn_select(t%d, %d, %lld)", prg_number(x, r), axis, (long long)at);
    put_view(r, x, tn_select(x->t, axis, at), &which);
}

static void view_permute(run *r, slot *x, int axis)
{
    int      axes[ORC_RANK], rank = x->h.shape.rank;
    uint64_t seed = prg_arg(r, 4);
    for (int i = 0; i < rank; i++) axes[i] = i;
    if (prg_arg(r, 5) & 1) {
        int other   = (int)(prg_arg(r, 4) % (uint32_t)rank);
        axes[axis]  = other;
        axes[other] = axis;
        prg_say(r, "v = tn_transpose(t%d, %d, %d)", prg_number(x, r), axis, other);
        orc_value which = orc_permute(&x->h.shape, axes);
        put_view(r, x, tn_transpose(x->t, axis, other - rank), &which);
        return;
    }
    for (int i = rank - 1; i > 0; i--) {
        int k = (int)(prg_random(&seed) % (uint64_t)(i + 1)), t = axes[i];
        axes[i] = axes[k];
        axes[k] = t;
    }
    prg_say(r, "v = tn_permute(t%d, ...)", prg_number(x, r));
    orc_value which = orc_permute(&x->h.shape, axes);
    put_view(r, x, tn_permute(x->t, rank, axes), &which);
}

static void view_expand(run *r, slot *x)
{
    int64_t   size[ORC_RANK];
    int       rank = x->h.shape.rank, more = rank < 4 && (prg_arg(r, 4) & 1);
    orc_shape to;
    for (int i = 0; i < rank; i++) {
        size[i + more] = x->h.shape.size[i];
        if (size[i + more] == 1) size[i + more] = 1 + (prg_arg(r, 4) >> (4 + 4 * i) & 3);
    }
    if (more) size[0] = 1 + (prg_arg(r, 4) >> 2 & 1);
    if (orc_count(rank + more, size) > ORC_CELLS) return;
    orc_value all = orc_all(&x->h.shape);
    to            = orc_shaped(&all, rank + more, size).shape;
    all           = orc_stretch(&all, &to);
    prg_say(r, "v = tn_expand(t%d, %s)", prg_number(x, r), prg_shape_text(&to));
    put_view(r, x, tn_expand(x->t, rank + more, size), &all);
}

static void view_diagonal(run *r, slot *x)
{
    int       rank = x->h.shape.rank, i = (int)(prg_arg(r, 4) % (uint32_t)rank);
    int       k      = (i + 1 + (int)(prg_arg(r, 5) % (uint32_t)(rank - 1))) % rank;
    int64_t   offset = (int64_t)(prg_arg(r, 4) >> 8) % 5 - 2;
    orc_value which  = orc_diagonal(&x->h.shape, offset, i, k);
    prg_say(r, "v = tn_diagonal(t%d, %lld, %d, %d)", prg_number(x, r), (long long)offset, i, k);
    put_view(r, x, tn_diagonal(x->t, offset, i, k), &which);
}

static void view_window(run *r, slot *x, int axis)
{
    int64_t n = x->h.shape.size[axis];
    if (!n || x->h.shape.rank >= 4) return;
    int64_t   width = 1 + (int64_t)(prg_arg(r, 4) % (uint32_t)n), step = 1 + (prg_arg(r, 5) & 1);
    orc_value which = orc_window(&x->h.shape, axis, width, step);
    if (which.shape.n > ORC_CELLS) return;
    prg_say(r, "v = tn_window(t%d, %d, %lld, %lld)", prg_number(x, r), axis, (long long)width,
            (long long)step);
    put_view(r, x, tn_window(x->t, axis, width, step), &which);
}

static void view_squeeze(run *r, slot *x)
{
    orc_value which = orc_all(&x->h.shape);
    int64_t   size[ORC_RANK];
    int       rank = x->h.shape.rank, at = (int)(prg_arg(r, 4) % (uint32_t)(rank + 1)), n = 0;
    if (at < rank && x->h.shape.size[at] == 1) {
        for (int i = 0; i < rank; i++)
            if (i != at) size[n++] = x->h.shape.size[i];
        which = orc_shaped(&which, n, size);
        prg_say(r, "v = tn_squeeze(t%d, %d)", prg_number(x, r), at);
        put_view(r, x, tn_squeeze(x->t, at), &which);
    } else if (rank < 4) {
        for (int i = 0; i <= rank; i++) size[i] = i == at ? 1 : x->h.shape.size[n++];
        which = orc_shaped(&which, rank + 1, size);
        prg_say(r, "v = tn_unsqueeze(t%d, %d)", prg_number(x, r), at);
        put_view(r, x, tn_unsqueeze(x->t, at), &which);
    }
}

// A random shape of n elements.
static int reshaped(uint64_t seed, int n, int64_t *size)
{
    int rank = 0;
    for (int left = n; rank < 3 && left > 1 && prg_random(&seed) % 4;) {
        int by = 1 + (int)(prg_random(&seed) % 4);
        if (left % by) continue;
        size[rank++] = by;
        left /= by;
        n = left;
    }
    if (n != 1 || prg_random(&seed) % 2) size[rank++] = n;
    return rank;
}

// tn_reshape says by tn_is_view whether it copied; tn_view may refuse.
static void view_reshape(run *r, slot *x)
{
    int64_t   size[ORC_RANK];
    int       rank = reshaped(prg_arg(r, 4), x->h.shape.n, size);
    orc_value all = orc_all(&x->h.shape), which = orc_shaped(&all, rank, size);
    if (!x->h.shape.n) return;
    bool strict = prg_arg(r, 5) & 1;
    prg_say(r, "v = tn_%s(t%d, %s)", strict ? "view" : "reshape", prg_number(x, r),
            prg_shape_text(&which.shape));
    tn_tensor *t = strict ? tn_view(x->t, rank, size) : tn_reshape(x->t, rank, size);
    if (strict && !t && tn_error(r->cx) == TN_ESHAPE) {
        tn_error_clear(r->cx);
    } else if (!t || tn_is_view(t)) {
        put_view(r, x, t, &which);
    } else {
        orc_value v = prg_read(r, x), c = orc_map1(&r->o, ORC_COPY, &v, 0);
        orc_value y    = orc_shaped(&c, rank, size);
        int       past = prg_past(r, x, NULL);
        prg_put_result(r, prg_target(r), t, &y, past);
    }
}

static void view_detach(run *r, slot *x)
{
    orc_value  all = orc_all(&x->h.shape);
    orc_handle h   = orc_view(&r->o, &x->h, &all);
    h.detached     = true;
    h.leaf         = -1;
    prg_say(r, "v = tn_detach(t%d)", prg_number(x, r));
    tn_tensor *t = tn_detach(x->t);
    prg_put(r, prg_target(r), t, h, false);
}

void prg_do_view(run *r)
{
    slot *x = prg_pick(r, prg_arg(r, 1), NULL, NULL);
    if (!x) return;
    int rank = x->h.shape.rank, kind = (int)(prg_arg(r, 2) % 12);
    int axis = rank ? (int)(prg_arg(r, 3) % (uint32_t)rank) : 0;
    prg_say(r, "// -> t%d", (int)(prg_arg(r, 0) % SLOTS));
    if (kind == 0) view_detach(r, x);
    else if (kind == 1) view_expand(r, x);
    else if (kind == 2) view_squeeze(r, x);
    else if (kind <= 4) view_reshape(r, x);
    else if (!rank) view_squeeze(r, x);
    else if (kind <= 6) view_slice(r, x, axis);
    else if (kind == 7) view_select(r, x, axis);
    else if (kind == 8) view_permute(r, x, axis);
    else if (kind == 9) view_window(r, x, axis);
    else if (kind == 10 && rank > 1) view_diagonal(r, x);
    else {
        orc_value which = orc_slice(&x->h.shape, axis, x->h.shape.size[axis], TN_TO_END, -1);
        prg_say(r, "v = tn_flip(t%d, %d)", prg_number(x, r), axis);
        put_view(r, x, tn_flip(x->t, axis), &which);
    }
}

// ---- maps, reductions, products

void prg_do_map1(run *r)
{
    static const struct {
        const char *name;
        orc_op      op;
        double      k;
        double      most;  // of what it takes
        bool        floats;
        tn_tensor *(*f)(tn_tensor *);
        tn_tensor *(*fs)(tn_tensor *, double);
    } maps[] = {
        { "neg", ORC_SCALE, -1, 1e3, false, tn_neg, NULL },
        { "mul_s", ORC_SCALE, 0.5, 1e3, true, NULL, tn_mul_s },
        { "add_s", ORC_SHIFT, 1, 1e3, false, NULL, tn_add_s },
        { "sin", ORC_SIN, 0, 1e3, true, tn_sin, NULL },
        { "tanh", ORC_TANH, 0, 1e3, true, tn_tanh, NULL },
        { "exp", ORC_EXP, 0, 3, true, tn_exp, NULL },
        { "cos", ORC_COS, 0, 1e3, true, tn_cos, NULL },
    };
    slot *x = prg_pick(r, prg_arg(r, 1), NULL, NULL);
    if (!x) return;
    uint32_t  m = prg_arg(r, 2) % 7;
    orc_value v = prg_read(r, x);
    if (orc_largest(&r->o, &v) > maps[m].most || (maps[m].floats && !prg_is_float(x))) m = 0;
    int        past = prg_past(r, x, NULL);
    int        from = prg_number(x, r);
    tn_tensor *t    = maps[m].f ? maps[m].f(x->t) : maps[m].fs(x->t, maps[m].k);
    orc_value  y    = orc_map1(&r->o, maps[m].op, &v, maps[m].k);
    prg_say(r, "t%d = tn_%s(t%d)", (int)(prg_arg(r, 0) % SLOTS), maps[m].name, from);
    prg_put_result(r, prg_target(r), t, &y, past);
}

static double smallest(run *r, const orc_value *x)
{
    double least = 1e300;
    for (int i = 0; i < x->shape.n; i++) least = fmin(least, fabs(orc_get(&r->o, x, i)));
    return least;
}

// Maps that are linear on either side of 0, for tensors that stay away from it.
void prg_do_kink(run *r)
{
    slot *x = prg_pick(r, prg_arg(r, 1), NULL, NULL);
    if (!x || !prg_is_float(x)) return;
    orc_value v = prg_read(r, x), y = { .shape = v.shape };
    if (smallest(r, &v) < 1e-3) return;
    bool relu = prg_arg(r, 2) & 1;
    int  past = prg_past(r, x, NULL);
    for (int i = 0; i < v.shape.n; i++) {
        orc_value one = { .shape = { .n = 1 }, .var = { v.var[i] } };
        bool      up  = orc_get(&r->o, &v, i) > 0;
        y.var[i]      = orc_map1(&r->o, ORC_SCALE, &one, up ? 1 : relu ? 0 : -1).var[0];
    }
    prg_say(r, "t%d = tn_%s(t%d)", (int)(prg_arg(r, 0) % SLOTS), relu ? "relu" : "abs",
            prg_number(x, r));
    tn_tensor *t = relu ? tn_relu(x->t) : tn_abs(x->t);
    prg_put_result(r, prg_target(r), t, &y, past);
}

static bool pairs(run *r, const slot *x, const slot *s)
{
    orc_shape y;
    (void)r;
    return tn_dtype_of(x->t) == tn_dtype_of(s->t) && orc_broadcast(&x->h.shape, &s->h.shape, &y) &&
           y.n <= ORC_CELLS;
}

// The op for two operands of these sizes; ops[0] suits all of moderate size.
static int tame(run *r, int op, const orc_value *a, const orc_value *b, bool floats)
{
    double x = orc_largest(&r->o, a), y = orc_largest(&r->o, b);
    if (op == ORC_MUL && (x > 8 || y > 8)) op = ORC_ADD;
    if (op == ORC_DIV && (x > 8 || smallest(r, b) < 0.25 || !floats)) op = ORC_SUB;
    return x + y > 1e3 ? -1 : op;
}

void prg_do_map2(run *r)
{
    static const orc_op ops[] = { ORC_ADD, ORC_MUL, ORC_SUB, ORC_MUL, ORC_DIV };
    slot               *a     = prg_pick(r, prg_arg(r, 1), NULL, NULL),
         *b                   = a ? prg_pick(r, prg_arg(r, 2), pairs, a) : NULL;
    if (!a || !b) return;
    orc_value va = prg_read(r, a), vb = prg_read(r, b);
    int       op = tame(r, ops[prg_arg(r, 3) % 5], &va, &vb, prg_is_float(a));
    if (op < 0) return;
    int         past = prg_past(r, a, b);
    const char *name = op == ORC_ADD   ? "add"
                       : op == ORC_SUB ? "sub"
                       : op == ORC_MUL ? "mul"
                                       : "div";
    prg_say(r, "t%d = tn_%s(t%d, t%d)", (int)(prg_arg(r, 0) % SLOTS), name, prg_number(a, r),
            prg_number(b, r));
    tn_tensor *t = op == ORC_ADD   ? tn_add(a->t, b->t)
                   : op == ORC_SUB ? tn_sub(a->t, b->t)
                   : op == ORC_MUL ? tn_mul(a->t, b->t)
                                   : tn_div(a->t, b->t);
    orc_value  y = orc_map2(&r->o, (orc_op)op, &va, &vb);
    prg_put_result(r, prg_target(r), t, &y, past);
}

void prg_do_reduce(run *r)
{
    slot *x = prg_pick(r, prg_arg(r, 1), NULL, NULL);
    if (!x) return;
    orc_value v    = prg_read(r, x), y;
    int       rank = x->h.shape.rank, axis = rank ? (int)(prg_arg(r, 3) % (uint32_t)rank) : 0;
    int       kind = (int)(prg_arg(r, 2) % 5), past = prg_past(r, x, NULL);
    if (orc_largest(&r->o, &v) > 100) return;
    if (!rank || !x->h.shape.n) kind = 0;  // a sum over none of many rows would not fit
    static const char *const names[] = { "sum_all", "sum", "sum_keep", "cumsum", "mean" };
    if (kind == 4 && (!prg_is_float(x) || !x->h.shape.size[axis])) kind = 1;
    prg_say(r, "t%d = tn_%s(t%d, %d)", (int)(prg_arg(r, 0) % SLOTS), names[kind], prg_number(x, r),
            axis);
    tn_tensor *t = kind == 0   ? tn_sum_all(x->t)
                   : kind == 1 ? tn_sum(x->t, axis)
                   : kind == 2 ? tn_sum_keep(x->t, axis)
                   : kind == 3 ? tn_cumsum(x->t, axis - rank)
                               : tn_mean(x->t, axis);
    if (kind == 3) y = orc_cumsum(&r->o, &v, axis);
    else y = orc_sum(&r->o, &v, kind == 0 ? -1 : axis, kind == 2);
    if (kind == 4) y = orc_map1(&r->o, ORC_SCALE, &y, 1.0 / (double)x->h.shape.size[axis]);
    prg_put_result(r, prg_target(r), t, &y, past);
}

static bool multiplies(run *r, const slot *x, const slot *s)
{
    (void)r;
    return s->h.shape.rank == 2 && tn_dtype_of(x->t) == tn_dtype_of(s->t) &&
           x->h.shape.size[1] == s->h.shape.size[0] &&
           x->h.shape.size[0] * s->h.shape.size[1] <= ORC_CELLS;
}

static bool is_matrix(run *r, const slot *x, const slot *s)
{
    (void)r;
    (void)x;
    return s->h.shape.rank == 2;
}

void prg_do_matmul(run *r)
{
    slot *a = prg_pick(r, prg_arg(r, 1), is_matrix, NULL),
         *b = a ? prg_pick(r, prg_arg(r, 2), multiplies, a) : NULL;
    if (!a || !b) return;
    orc_value va = prg_read(r, a), vb = prg_read(r, b);
    if (orc_largest(&r->o, &va) > 8 || orc_largest(&r->o, &vb) > 8) return;
    int past = prg_past(r, a, b);
    prg_say(r, "t%d = tn_matmul(t%d, t%d)", (int)(prg_arg(r, 0) % SLOTS), prg_number(a, r),
            prg_number(b, r));
    tn_tensor *t = tn_matmul(a->t, b->t);
    orc_value  y = orc_matmul(&r->o, &va, &vb);
    prg_put_result(r, prg_target(r), t, &y, past);
}

static bool appends(run *r, const slot *x, const slot *s)
{
    if (tn_dtype_of(x->t) != tn_dtype_of(s->t) || x->h.shape.rank != s->h.shape.rank) return false;
    for (int i = 0; i < x->h.shape.rank; i++)
        if (i != (int)(prg_arg(r, 3) % (uint32_t)x->h.shape.rank) &&
            x->h.shape.size[i] != s->h.shape.size[i])
            return false;
    return x->h.shape.n && s->h.shape.n && x->h.shape.rank &&
           x->h.shape.n + s->h.shape.n <= ORC_CELLS;
}

void prg_do_concat(run *r)
{
    slot *a = prg_pick(r, prg_arg(r, 1), NULL, NULL),
         *b = a ? prg_pick(r, prg_arg(r, 2), appends, a) : NULL;
    if (!a || !b) return;
    int       axis = (int)(prg_arg(r, 3) % (uint32_t)a->h.shape.rank), past = prg_past(r, a, b);
    orc_value va = prg_read(r, a), vb = prg_read(r, b);
    prg_say(r, "t%d = tn_concat(t%d, t%d, %d)", (int)(prg_arg(r, 0) % SLOTS), prg_number(a, r),
            prg_number(b, r), axis);
    tn_tensor *t = tn_concat(2, (tn_tensor *const[]){ a->t, b->t }, axis);
    orc_value  y = orc_concat(&r->o, &va, &vb, axis);
    prg_put_result(r, prg_target(r), t, &y, past);
}

// The same value in a new store.
void prg_do_copy(run *r)
{
    slot *x = prg_pick(r, prg_arg(r, 1), NULL, NULL);
    if (!x) return;
    int         kind = (int)(prg_arg(r, 2) % 4), past = prg_past(r, x, NULL);
    tn_dtype    dt   = tn_dtype_of(x->t);
    const char *name = kind == 0 ? "clone" : kind == 1 ? "contiguous" : "cast";
    if (kind == 3) dt = dt == TN_F64 && r->p->singles ? TN_F32 : TN_F64;
    orc_value v = prg_read(r, x);
    prg_say(r, "t%d = tn_%s(t%d)%s%s", (int)(prg_arg(r, 0) % SLOTS), name, prg_number(x, r),
            kind < 2 ? "" : " // to ", kind < 2 ? "" : prg_dtype_text(dt));
    tn_tensor *t = kind == 0 ? tn_clone(x->t) : kind == 1 ? tn_contiguous(x->t) : tn_cast(x->t, dt);
    bool       mode = r->o.grad;
    if (!prg_is_float(x)) r->o.grad = false;
    v = orc_map1(&r->o, ORC_COPY, &v, 0);
    prg_put_result(r, prg_target(r), t, &v, past);
    r->o.grad = mode;
}

// ---- writes

static bool writes_to(run *r, const slot *x, const slot *s)
{
    orc_shape y;
    if (!orc_broadcast(&x->h.shape, &s->h.shape, &y) || y.rank != x->h.shape.rank) return false;
    for (int i = 0; i < y.rank; i++)
        if (y.size[i] != x->h.shape.size[i]) return false;
    return tn_dtype_of(x->t) == tn_dtype_of(s->t) ||
           (prg_is_float(x) && prg_is_float(s) && prg_arg(r, 3) % 7 == 0);
}

// What the rules say of writing through x: TN_OK, or the error.
tn_status prg_allowed(run *r, const slot *x)
{
    if (x->h.leaf >= 0 && r->o.grad) return TN_EGRAD;
    return orc_injective(&x->h) ? TN_OK : TN_EARG;
}

// The library has written (or not); so does the oracle. Some views with no place twice may be
// refused.
void prg_after_write(run *r, slot *x, tn_tensor *t, tn_status want, const orc_value *v, int past)
{
    if (t && want == TN_OK) {
        if (t != x->t) prg_fail(r, "a write does not return its argument");
        orc_write(&r->o, &x->h, v, past);
    } else if (t) {
        prg_fail(r, "a write passed that should give %s", tn_status_name(want));
    } else if (tn_error(r->cx) == want || (want == TN_OK && tn_error(r->cx) == TN_EARG)) {
        tn_error_clear(r->cx);
    } else {
        prg_fail(r, "a write returned NULL: %s", tn_error_text(r->cx));
    }
}

static void write_value(run *r, slot *x, slot *s, int kind)
{
    static const char *const names[] = { "assign", "add_", "mul_", "sub_", "div_" };
    static const orc_op      ops[]   = { ORC_COPY, ORC_ADD, ORC_MUL, ORC_SUB, ORC_DIV };
    orc_value                v = prg_read(r, s), old = orc_read(&r->o, &x->h);
    int                      op = kind ? tame(r, ops[kind], &old, &v, prg_is_float(x)) : ORC_COPY;
    if (op < 0) return;
    for (kind = 0; ops[kind] != (orc_op)op;) kind++;
    tn_status want = prg_allowed(r, x);
    prg_say(r, "tn_%s(t%d, t%d)", names[kind], prg_number(x, r), prg_number(s, r));
    int        past = kind ? prg_past(r, x, s) : prg_past(r, s, NULL);
    tn_tensor *t    = kind == 0   ? tn_assign(x->t, s->t)
                      : kind == 1 ? tn_add_(x->t, s->t)
                      : kind == 2 ? tn_mul_(x->t, s->t)
                      : kind == 3 ? tn_sub_(x->t, s->t)
                                  : tn_div_(x->t, s->t);
    if (want == TN_OK && kind) v = orc_map2(&r->o, (orc_op)op, &old, &v);
    prg_after_write(r, x, t, want, &v, past);
}

void prg_do_write(run *r)
{
    slot *x = prg_pick(r, prg_arg(r, 1), NULL, NULL);
    if (!x) return;
    if (prg_arg(r, 3) % 6 < 5) {
        slot *s = prg_pick(r, prg_arg(r, 2), writes_to, x);
        if (s && tn_dtype_of(s->t) != tn_dtype_of(x->t)) write_value(r, x, s, 0);
        else if (s) write_value(r, x, s, (int)(prg_arg(r, 3) >> 8) % 5);
        return;
    }
    double    k = (int)(prg_arg(r, 2) % 5) - 2;
    orc_value v = { .shape = { .n = 1 }, .var = { orc_constant(&r->o, k) } };
    prg_say(r, "tn_fill_(t%d, %g)", prg_number(x, r), k);
    prg_after_write(r, x, tn_fill_(x->t, k), prg_allowed(r, x), &v, -1);
}

// x[1:] op= x[:-1] and the like: source and target overlap.
void prg_do_shift(run *r)
{
    slot *x = prg_pick(r, prg_arg(r, 1), NULL, NULL);
    if (!x || !x->h.shape.rank) return;
    int     axis = (int)(prg_arg(r, 2) % (uint32_t)x->h.shape.rank);
    int64_t n    = x->h.shape.size[axis];
    bool    up = prg_arg(r, 3) & 1, back = prg_arg(r, 3) & 2;
    if (n < 2) return;
    slot to = { .t = tn_slice(x->t, axis, up, up ? TN_TO_END : -1, 1) }, from = to;
    from.t       = back ? tn_slice(x->t, axis, up ? n - 2 : n - 1, up ? TN_TO_END : 0, -1)
                        : tn_slice(x->t, axis, !up, up ? -1 : TN_TO_END, 1);
    orc_value wt = orc_slice(&x->h.shape, axis, up, up ? TN_TO_END : -1, 1);
    orc_value wf = back ? orc_slice(&x->h.shape, axis, up ? n - 2 : n - 1, up ? TN_TO_END : 0, -1)
                        : orc_slice(&x->h.shape, axis, !up, up ? -1 : TN_TO_END, 1);
    to.h         = orc_view(&r->o, &x->h, &wt);
    from.h       = orc_view(&r->o, &x->h, &wf);
    prg_say(r, "// shift: %s of t%d along %d by %s", up ? "[1:]" : "[:-1]", prg_number(x, r), axis,
            back ? "the rest backwards" : "the rest");
    if (!to.t || !from.t) prg_fail(r, "a slice returned NULL: %s", tn_error_text(r->cx));
    else write_value(r, &to, &from, (int)(prg_arg(r, 3) >> 8) % 3);
    tn_drop(to.t);
    tn_drop(from.t);
}
