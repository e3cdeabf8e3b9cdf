// test_programs.c: random programs of views, writes, gradients, scopes and evaluations, each run by
// the library and by the plain interpreter of oracle.h, which must agree on all that is read.
//
// A program is a list of instructions made of random numbers. What an instruction means depends on
// the tensors there are when it runs, and it always means something, so that a program stays one
// when instructions are taken out: a program that fails is shrunk and printed as a listing.
//
//     TN_PROGRAM=12345 tenon-tests programs    runs and prints that one (also one that crashes)
//     TN_PROGRAMS=100000 tenon-tests programs  runs that many
#include "check.h"
#include "oracle.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tenon.h>
#include <unistd.h>

enum { SLOTS = 10, LENGTH = 56, DEPTH = 2, ARGS = 7 };

typedef struct {
    int      kind;
    uint32_t r[ARGS];
} instr;

typedef struct {
    uint64_t    seed;
    const char *device;
    int64_t     flush_nodes;
    bool        singles;  // has f32 tensors, and is compared less closely
    bool        wrapped;  // all in one scope, after which nothing may be left
    int         count;
    instr       code[LENGTH];
} program;

// A tensor of the program, on both sides.
typedef struct {
    tn_tensor *t;  // NULL: the slot is free
    orc_handle h;
    int        depth;  // of the scope it belongs to
    bool       fresh;  // no view
    bool       leaf;   // the leaf's own handle
} slot;

// A program in progress. text is why it failed; lines are the listing, when asked for.
typedef struct {
    const program *p;
    tn_ctx        *cx;
    oracle         o;
    slot           slot[SLOTS];
    tn_scope      *scope[DEPTH];
    bool           mode[DEPTH];
    int            depth;
    long           blocks;  // of host memory, alive
    FILE          *listing;
    const instr   *at;
    bool           failed;
    char           text[512];
} run;

static uint64_t next_random(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z          = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z          = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

TEST_PRINTF(2, 3) static void fail(run *r, const char *fmt, ...)
{
    if (r->failed) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->text, sizeof r->text, fmt, args);
    va_end(args);
    r->failed = true;
    if (r->listing) fprintf(r->listing, "    // FAILS: %s\n", r->text);
}

TEST_PRINTF(2, 3) static void say(run *r, const char *fmt, ...)
{
    if (!r->listing) return;
    va_list args;
    va_start(args, fmt);
    fprintf(r->listing, "    ");
    vfprintf(r->listing, fmt, args);
    fprintf(r->listing, ";\n");
    va_end(args);
    fflush(r->listing);
}

static const char *shape_text(const orc_shape *s)
{
    static char text[4][80];
    static int  turn;
    char       *t = text[turn++ % 4];
    int         n = snprintf(t, 80, "(");
    for (int i = 0; i < s->rank; i++)
        n += snprintf(t + n, 80 - (size_t)n, i ? ", %d" : "%d", (int)s->size[i]);
    snprintf(t + n, 80 - (size_t)n, ")");
    return t;
}

// ---- slots

static uint32_t arg(const run *r, int i)
{
    return r->at->r[i];
}

// The name of a slot in the listing; that of a tensor outside all slots is 99.
static int number(const slot *s, const run *r)
{
    return s >= r->slot && s < r->slot + SLOTS ? (int)(s - r->slot) : 99;
}

static orc_store *store_of(run *r, const slot *s)
{
    return &r->o.store[s->h.store];
}

static bool usable(run *r, const slot *s)
{
    return s->t && !store_of(r, s)->lost;
}

static bool is_float(const slot *s)
{
    return tn_dtype_of(s->t) >= TN_F32;
}

typedef bool fits_fn(run *r, const slot *x, const slot *s);

// The first slot from a random one on that fits to x; NULL if none does.
static slot *pick(run *r, uint32_t from, fits_fn *fits, const slot *x)
{
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &r->slot[(from + (uint32_t)i) % SLOTS];
        if (usable(r, s) && (!fits || fits(r, x, s))) return s;
    }
    return NULL;
}

// The slot that argument 0 names for a result. What was there is dropped or forgotten.
static slot *target(run *r)
{
    slot *s = &r->slot[arg(r, 0) % SLOTS];
    if (s->t && (arg(r, 0) >> 16 & 3)) {
        say(r, "tn_drop(t%d)", number(s, r));
        tn_drop(s->t);
    }
    *s = (slot){ .h = { .leaf = -1 } };
    return s;
}

static void put(run *r, slot *to, tn_tensor *t, orc_handle h, bool fresh)
{
    orc_shape got = { .rank = t ? tn_rank(t) : 0 };
    if (!t) {
        fail(r, "returned NULL: %s", tn_error_text(r->cx));
        return;
    }
    for (int i = 0; i < got.rank && i < ORC_RANK; i++) got.size[i] = tn_size(t, i);
    if (strcmp(shape_text(&got), shape_text(&h.shape)))
        fail(r, "the shape is %s, not %s", shape_text(&got), shape_text(&h.shape));
    *to = (slot){ .t = t, .h = h, .depth = r->depth, .fresh = fresh };
}

// A result of an op on x (and z), in a store of its own.
static void put_result(run *r, slot *to, tn_tensor *t, const orc_value *v, int past)
{
    bool single = t && tn_dtype_of(t) == TN_F32;
    put(r, to, t, orc_make(&r->o, v, single, r->o.grad ? past : -1), true);
}

static orc_value read_slot(run *r, const slot *s)
{
    store_of(r, s)->consumed = true;
    return orc_read(&r->o, &s->h);
}

static int past_of(run *r, const slot *a, const slot *b)
{
    return orc_past_new(&r->o, orc_past_of(&r->o, &a->h), b ? orc_past_of(&r->o, &b->h) : -1, -1);
}

// ---- comparing

static double tolerance(const run *r)
{
    return r->p->singles ? 1e-4 : 1e-9;
}

static void compare(run *r, const char *what, int which, int n, const double *got,
                    const double *want, double scale)
{
    for (int i = 0; i < n; i++) scale = fmax(scale, fabs(want[i]));
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance(r) * scale)) {
            fail(r, "%s t%d: element %d is %.17g, not %.17g", what, which, i, got[i], want[i]);
            return;
        }
}

// Reads a slot one way or another and compares. A value that a step boundary was free to lose may
// be gone, but not wrong.
static void check_slot(run *r, slot *s, uint32_t how)
{
    double    got[ORC_CELLS], want[ORC_CELLS];
    int       n  = s->h.shape.n;
    tn_status st = TN_OK;
    if (how % 4 == 3) {
        say(r, "tn_eval_of(t%d)", number(s, r));
        st = tn_eval_of(s->t);
    } else if (n == 1 && how % 4 == 2) {
        say(r, "tn_item(t%d)", number(s, r));
        got[0] = tn_item(s->t);
        st     = isnan(got[0]) ? tn_error(r->cx) : TN_OK;
    } else {
        say(r, "tn_read(t%d)", number(s, r));
        st = tn_read(s->t, TN_F64, got, n);
    }
    if (st == TN_EGONE && store_of(r, s)->lost) {
        tn_error_clear(r->cx);
        return;
    }
    if (st != TN_OK) {
        fail(r, "reading t%d: %s", number(s, r), tn_error_text(r->cx));
        return;
    }
    if (!store_of(r, s)->lost) store_of(r, s)->stored = true;
    orc_value v = orc_read(&r->o, &s->h);
    for (int i = 0; i < n; i++) want[i] = orc_get(&r->o, &v, i);
    if (how % 4 != 3) compare(r, "value of", number(s, r), n, got, want, 1);
    if (orc_needs(&r->o, &v) && !tn_needs_grad(s->t))
        fail(r, "t%d was made from a leaf, but needs no gradient", number(s, r));
}

static void check_gradient(run *r, slot *s)
{
    double          got[ORC_CELLS], want[ORC_CELLS];
    const orc_leaf *l = &r->o.leaf[s->h.leaf];
    int             n = s->h.shape.n;
    say(r, "tn_read(tn_grad_of(t%d))", number(s, r));
    if (tn_read(tn_grad_of(s->t), TN_F64, got, n) != TN_OK) {
        fail(r, "reading the gradient of t%d: %s", number(s, r), tn_error_text(r->cx));
        return;
    }
    for (int i = 0; i < n; i++) want[i] = l->g[s->h.cell[i]];
    compare(r, "gradient of", number(s, r), n, got, want, l->scale);
}

// ---- creation

static double small_number(uint64_t *seed)
{
    return (double)(int)(next_random(seed) % 65 - 32) / 16;
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

static const char *dtype_text(tn_dtype dt)
{
    return dt == TN_I64 ? "TN_I64" : dt == TN_F32 ? "TN_F32" : "TN_F64";
}

static tn_tensor *from_doubles(run *r, tn_dtype dt, const orc_shape *s, double *v)
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

static void do_from(run *r)
{
    slot     *to = target(r);
    orc_shape s  = random_shape(arg(r, 1));
    tn_dtype  dt = random_dtype(r, arg(r, 2));
    uint64_t  seed = arg(r, 3);
    double    v[ORC_CELLS];
    for (int i = 0; i < s.n; i++) v[i] = small_number(&seed);
    say(r, "t%d = tn_from(%s, %s, random)", number(to, r), dtype_text(dt), shape_text(&s));
    tn_tensor *t = from_doubles(r, dt, &s, v);
    orc_value  x = orc_constants(&r->o, &s, v);
    put_result(r, to, t, &x, -1);
    if (t) store_of(r, to)->stored = true;
}

static void do_full(run *r)
{
    slot     *to = target(r);
    orc_shape s  = random_shape(arg(r, 1));
    tn_dtype  dt = random_dtype(r, arg(r, 2));
    double    v[ORC_CELLS], k = (int)(arg(r, 3) % 5) - 2;
    for (int i = 0; i < s.n; i++) v[i] = k;
    say(r, "t%d = tn_full(%s, %s, %g)", number(to, r), dtype_text(dt), shape_text(&s), k);
    orc_value x = orc_constants(&r->o, &s, v);
    put_result(r, to, tn_full(r->cx, dt, s.rank, s.size, k), &x, -1);
}

// ---- views

static void put_view(run *r, const slot *x, tn_tensor *t, const orc_value *which)
{
    orc_handle h = orc_view(&r->o, &x->h, which);
    put(r, target(r), t, h, false);
}

static void view_slice(run *r, slot *x, int axis)
{
    static const int64_t steps[] = { 1, 1, 1, 2, 3, -1, -2, -1 };
    int64_t n     = x->h.shape.size[axis];
    int64_t start = (int64_t)(arg(r, 4) % (uint32_t)(2 * n + 3)) - n - 1;
    int64_t stop  = (int64_t)(arg(r, 4) >> 8) % (2 * n + 3) - n - 1;
    int64_t step  = steps[arg(r, 5) % 8];
    if (arg(r, 5) >> 8 & 1) stop = TN_TO_END;
    if (arg(r, 5) >> 9 & 1) start = step > 0 ? 0 : n;
    say(r, "v = tn_slice(t%d, %d, %lld, %lld, %lld)", number(x, r), axis, (long long)start,
        stop == TN_TO_END ? -99 : (long long)stop, (long long)step);
    orc_value which = orc_slice(&x->h.shape, axis, start, stop, step);
    put_view(r, x, tn_slice(x->t, axis, start, stop, step), &which);
}

static void view_select(run *r, slot *x, int axis)
{
    int64_t n = x->h.shape.size[axis], size[ORC_RANK];
    if (!n) return;
    int64_t at    = (int64_t)(arg(r, 4) % (uint32_t)(2 * n)) - n, k = at < 0 ? at + n : at;
    orc_value which = orc_slice(&x->h.shape, axis, k, k + 1, 1);
    int       rank  = 0;
    for (int i = 0; i < x->h.shape.rank; i++)
        if (i != axis) size[rank++] = x->h.shape.size[i];
    which = orc_shaped(&which, rank, size);
    say(r, "v = tn_select(t%d, %d, %lld)", number(x, r), axis, (long long)at);
    put_view(r, x, tn_select(x->t, axis, at), &which);
}

static void view_permute(run *r, slot *x, int axis)
{
    int      axes[ORC_RANK], rank = x->h.shape.rank;
    uint64_t seed = arg(r, 4);
    for (int i = 0; i < rank; i++) axes[i] = i;
    if (arg(r, 5) & 1) {
        int other = (int)(arg(r, 4) % (uint32_t)rank);
        axes[axis]  = other;
        axes[other] = axis;
        say(r, "v = tn_transpose(t%d, %d, %d)", number(x, r), axis, other);
        orc_value which = orc_permute(&x->h.shape, axes);
        put_view(r, x, tn_transpose(x->t, axis, other - rank), &which);
        return;
    }
    for (int i = rank - 1; i > 0; i--) {
        int k = (int)(next_random(&seed) % (uint64_t)(i + 1)), t = axes[i];
        axes[i] = axes[k];
        axes[k] = t;
    }
    say(r, "v = tn_permute(t%d, ...)", number(x, r));
    orc_value which = orc_permute(&x->h.shape, axes);
    put_view(r, x, tn_permute(x->t, rank, axes), &which);
}

static void view_expand(run *r, slot *x)
{
    int64_t   size[ORC_RANK];
    int       rank = x->h.shape.rank, more = rank < 4 && (arg(r, 4) & 1);
    orc_shape to;
    for (int i = 0; i < rank; i++) {
        size[i + more] = x->h.shape.size[i];
        if (size[i + more] == 1) size[i + more] = 1 + (arg(r, 4) >> (4 + 4 * i) & 3);
    }
    if (more) size[0] = 1 + (arg(r, 4) >> 2 & 1);
    if (orc_count(rank + more, size) > ORC_CELLS) return;
    orc_value all = orc_all(&x->h.shape);
    to            = orc_shaped(&all, rank + more, size).shape;
    all           = orc_stretch(&all, &to);
    say(r, "v = tn_expand(t%d, %s)", number(x, r), shape_text(&to));
    put_view(r, x, tn_expand(x->t, rank + more, size), &all);
}

static void view_diagonal(run *r, slot *x)
{
    int rank = x->h.shape.rank, i = (int)(arg(r, 4) % (uint32_t)rank);
    int k    = (i + 1 + (int)(arg(r, 5) % (uint32_t)(rank - 1))) % rank;
    int64_t   offset = (int64_t)(arg(r, 4) >> 8) % 5 - 2;
    orc_value which  = orc_diagonal(&x->h.shape, offset, i, k);
    say(r, "v = tn_diagonal(t%d, %lld, %d, %d)", number(x, r), (long long)offset, i, k);
    put_view(r, x, tn_diagonal(x->t, offset, i, k), &which);
}

static void view_window(run *r, slot *x, int axis)
{
    int64_t n = x->h.shape.size[axis];
    if (!n || x->h.shape.rank >= 4) return;
    int64_t   width = 1 + (int64_t)(arg(r, 4) % (uint32_t)n), step = 1 + (arg(r, 5) & 1);
    orc_value which = orc_window(&x->h.shape, axis, width, step);
    if (which.shape.n > ORC_CELLS) return;
    say(r, "v = tn_window(t%d, %d, %lld, %lld)", number(x, r), axis, (long long)width,
        (long long)step);
    put_view(r, x, tn_window(x->t, axis, width, step), &which);
}

static void view_squeeze(run *r, slot *x)
{
    orc_value which = orc_all(&x->h.shape);
    int64_t   size[ORC_RANK];
    int       rank = x->h.shape.rank, at = (int)(arg(r, 4) % (uint32_t)(rank + 1)), n = 0;
    if (at < rank && x->h.shape.size[at] == 1) {
        for (int i = 0; i < rank; i++)
            if (i != at) size[n++] = x->h.shape.size[i];
        which = orc_shaped(&which, n, size);
        say(r, "v = tn_squeeze(t%d, %d)", number(x, r), at);
        put_view(r, x, tn_squeeze(x->t, at), &which);
    } else if (rank < 4) {
        for (int i = 0; i <= rank; i++) size[i] = i == at ? 1 : x->h.shape.size[n++];
        which = orc_shaped(&which, rank + 1, size);
        say(r, "v = tn_unsqueeze(t%d, %d)", number(x, r), at);
        put_view(r, x, tn_unsqueeze(x->t, at), &which);
    }
}

// A random shape of n elements.
static int reshaped(uint64_t seed, int n, int64_t *size)
{
    int rank = 0;
    for (int left = n; rank < 3 && left > 1 && next_random(&seed) % 4;) {
        int by = 1 + (int)(next_random(&seed) % 4);
        if (left % by) continue;
        size[rank++] = by;
        left /= by;
        n = left;
    }
    if (n != 1 || next_random(&seed) % 2) size[rank++] = n;
    return rank;
}

// tn_reshape says by tn_is_view whether it copied; tn_view may refuse.
static void view_reshape(run *r, slot *x)
{
    int64_t   size[ORC_RANK];
    int       rank = reshaped(arg(r, 4), x->h.shape.n, size);
    orc_value all = orc_all(&x->h.shape), which = orc_shaped(&all, rank, size);
    if (!x->h.shape.n) return;
    bool strict = arg(r, 5) & 1;
    say(r, "v = tn_%s(t%d, %s)", strict ? "view" : "reshape", number(x, r),
        shape_text(&which.shape));
    tn_tensor *t = strict ? tn_view(x->t, rank, size) : tn_reshape(x->t, rank, size);
    if (strict && !t && tn_error(r->cx) == TN_ESHAPE) {
        tn_error_clear(r->cx);
    } else if (!t || tn_is_view(t)) {
        put_view(r, x, t, &which);
    } else {
        orc_value v    = read_slot(r, x), c = orc_map1(&r->o, ORC_COPY, &v, 0);
        orc_value y    = orc_shaped(&c, rank, size);
        int       past = past_of(r, x, NULL);
        put_result(r, target(r), t, &y, past);
    }
}

static void view_detach(run *r, slot *x)
{
    orc_value  all = orc_all(&x->h.shape);
    orc_handle h   = orc_view(&r->o, &x->h, &all);
    h.detached     = true;
    h.leaf         = -1;
    say(r, "v = tn_detach(t%d)", number(x, r));
    tn_tensor *t = tn_detach(x->t);
    put(r, target(r), t, h, false);
}

static void do_view(run *r)
{
    slot *x = pick(r, arg(r, 1), NULL, NULL);
    if (!x) return;
    int rank = x->h.shape.rank, kind = (int)(arg(r, 2) % 12);
    int axis = rank ? (int)(arg(r, 3) % (uint32_t)rank) : 0;
    say(r, "// -> t%d", (int)(arg(r, 0) % SLOTS));
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
        say(r, "v = tn_flip(t%d, %d)", number(x, r), axis);
        put_view(r, x, tn_flip(x->t, axis), &which);
    }
}

// ---- maps, reductions, products

static void do_map1(run *r)
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
    slot *x = pick(r, arg(r, 1), NULL, NULL);
    if (!x) return;
    uint32_t  m = arg(r, 2) % 7;
    orc_value v = read_slot(r, x);
    if (orc_largest(&r->o, &v) > maps[m].most || (maps[m].floats && !is_float(x))) m = 0;
    int         past = past_of(r, x, NULL);
    int         from = number(x, r);
    tn_tensor  *t    = maps[m].f ? maps[m].f(x->t) : maps[m].fs(x->t, maps[m].k);
    orc_value   y    = orc_map1(&r->o, maps[m].op, &v, maps[m].k);
    say(r, "t%d = tn_%s(t%d)", (int)(arg(r, 0) % SLOTS), maps[m].name, from);
    put_result(r, target(r), t, &y, past);
}

static double smallest(run *r, const orc_value *x)
{
    double least = 1e300;
    for (int i = 0; i < x->shape.n; i++) least = fmin(least, fabs(orc_get(&r->o, x, i)));
    return least;
}

// Maps that are linear on either side of 0, for tensors that stay away from it.
static void do_kink(run *r)
{
    slot *x = pick(r, arg(r, 1), NULL, NULL);
    if (!x || !is_float(x)) return;
    orc_value v = read_slot(r, x), y = { .shape = v.shape };
    if (smallest(r, &v) < 1e-3) return;
    bool relu = arg(r, 2) & 1;
    int  past = past_of(r, x, NULL);
    for (int i = 0; i < v.shape.n; i++) {
        orc_value one = { .shape = { .n = 1 }, .var = { v.var[i] } };
        bool      up  = orc_get(&r->o, &v, i) > 0;
        y.var[i]      = orc_map1(&r->o, ORC_SCALE, &one, up ? 1 : relu ? 0 : -1).var[0];
    }
    say(r, "t%d = tn_%s(t%d)", (int)(arg(r, 0) % SLOTS), relu ? "relu" : "abs", number(x, r));
    tn_tensor *t = relu ? tn_relu(x->t) : tn_abs(x->t);
    put_result(r, target(r), t, &y, past);
}

static bool pairs(run *r, const slot *x, const slot *s)
{
    orc_shape y;
    (void)r;
    return tn_dtype_of(x->t) == tn_dtype_of(s->t) &&
           orc_broadcast(&x->h.shape, &s->h.shape, &y) && y.n <= ORC_CELLS;
}

// The op for two operands of these sizes; ops[0] suits all of moderate size.
static int tame(run *r, int op, const orc_value *a, const orc_value *b, bool floats)
{
    double x = orc_largest(&r->o, a), y = orc_largest(&r->o, b);
    if (op == ORC_MUL && (x > 8 || y > 8)) op = ORC_ADD;
    if (op == ORC_DIV && (x > 8 || smallest(r, b) < 0.25 || !floats)) op = ORC_SUB;
    return x + y > 1e3 ? -1 : op;
}

static void do_map2(run *r)
{
    static const orc_op ops[] = { ORC_ADD, ORC_MUL, ORC_SUB, ORC_MUL, ORC_DIV };
    slot *a = pick(r, arg(r, 1), NULL, NULL), *b = a ? pick(r, arg(r, 2), pairs, a) : NULL;
    if (!a || !b) return;
    orc_value va = read_slot(r, a), vb = read_slot(r, b);
    int       op = tame(r, ops[arg(r, 3) % 5], &va, &vb, is_float(a));
    if (op < 0) return;
    int         past = past_of(r, a, b);
    const char *name = op == ORC_ADD ? "add" : op == ORC_SUB ? "sub" : op == ORC_MUL ? "mul" : "div";
    say(r, "t%d = tn_%s(t%d, t%d)", (int)(arg(r, 0) % SLOTS), name, number(a, r), number(b, r));
    tn_tensor *t = op == ORC_ADD   ? tn_add(a->t, b->t)
                   : op == ORC_SUB ? tn_sub(a->t, b->t)
                   : op == ORC_MUL ? tn_mul(a->t, b->t)
                                   : tn_div(a->t, b->t);
    orc_value  y = orc_map2(&r->o, (orc_op)op, &va, &vb);
    put_result(r, target(r), t, &y, past);
}

static void do_reduce(run *r)
{
    slot *x = pick(r, arg(r, 1), NULL, NULL);
    if (!x) return;
    orc_value v    = read_slot(r, x), y;
    int       rank = x->h.shape.rank, axis = rank ? (int)(arg(r, 3) % (uint32_t)rank) : 0;
    int       kind = (int)(arg(r, 2) % 5), past = past_of(r, x, NULL);
    if (orc_largest(&r->o, &v) > 100) return;
    if (!rank || !x->h.shape.n) kind = 0;  // a sum over none of many rows would not fit
    static const char *const names[] = { "sum_all", "sum", "sum_keep", "cumsum", "mean" };
    if (kind == 4 && (!is_float(x) || !x->h.shape.size[axis])) kind = 1;
    say(r, "t%d = tn_%s(t%d, %d)", (int)(arg(r, 0) % SLOTS), names[kind], number(x, r), axis);
    tn_tensor *t = kind == 0   ? tn_sum_all(x->t)
                   : kind == 1 ? tn_sum(x->t, axis)
                   : kind == 2 ? tn_sum_keep(x->t, axis)
                   : kind == 3 ? tn_cumsum(x->t, axis - rank)
                               : tn_mean(x->t, axis);
    if (kind == 3) y = orc_cumsum(&r->o, &v, axis);
    else y = orc_sum(&r->o, &v, kind == 0 ? -1 : axis, kind == 2);
    if (kind == 4) y = orc_map1(&r->o, ORC_SCALE, &y, 1.0 / (double)x->h.shape.size[axis]);
    put_result(r, target(r), t, &y, past);
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

static void do_matmul(run *r)
{
    slot *a = pick(r, arg(r, 1), is_matrix, NULL), *b = a ? pick(r, arg(r, 2), multiplies, a) : NULL;
    if (!a || !b) return;
    orc_value va = read_slot(r, a), vb = read_slot(r, b);
    if (orc_largest(&r->o, &va) > 8 || orc_largest(&r->o, &vb) > 8) return;
    int past = past_of(r, a, b);
    say(r, "t%d = tn_matmul(t%d, t%d)", (int)(arg(r, 0) % SLOTS), number(a, r), number(b, r));
    tn_tensor *t = tn_matmul(a->t, b->t);
    orc_value  y = orc_matmul(&r->o, &va, &vb);
    put_result(r, target(r), t, &y, past);
}

static bool appends(run *r, const slot *x, const slot *s)
{
    if (tn_dtype_of(x->t) != tn_dtype_of(s->t) || x->h.shape.rank != s->h.shape.rank) return false;
    for (int i = 0; i < x->h.shape.rank; i++)
        if (i != (int)(arg(r, 3) % (uint32_t)x->h.shape.rank) &&
            x->h.shape.size[i] != s->h.shape.size[i])
            return false;
    return x->h.shape.n && s->h.shape.n && x->h.shape.rank &&
           x->h.shape.n + s->h.shape.n <= ORC_CELLS;
}

static void do_concat(run *r)
{
    slot *a = pick(r, arg(r, 1), NULL, NULL), *b = a ? pick(r, arg(r, 2), appends, a) : NULL;
    if (!a || !b) return;
    int       axis = (int)(arg(r, 3) % (uint32_t)a->h.shape.rank), past = past_of(r, a, b);
    orc_value va = read_slot(r, a), vb = read_slot(r, b);
    say(r, "t%d = tn_concat(t%d, t%d, %d)", (int)(arg(r, 0) % SLOTS), number(a, r), number(b, r),
        axis);
    tn_tensor *t = tn_concat(2, (tn_tensor *const[]){ a->t, b->t }, axis);
    orc_value  y = orc_concat(&r->o, &va, &vb, axis);
    put_result(r, target(r), t, &y, past);
}

// The same value in a new store.
static void do_copy(run *r)
{
    slot *x = pick(r, arg(r, 1), NULL, NULL);
    if (!x) return;
    int         kind = (int)(arg(r, 2) % 4), past = past_of(r, x, NULL);
    tn_dtype    dt = tn_dtype_of(x->t);
    const char *name = kind == 0 ? "clone" : kind == 1 ? "contiguous" : "cast";
    if (kind == 3) dt = dt == TN_F64 && r->p->singles ? TN_F32 : TN_F64;
    orc_value v = read_slot(r, x);
    say(r, "t%d = tn_%s(t%d)%s%s", (int)(arg(r, 0) % SLOTS), name, number(x, r),
        kind < 2 ? "" : " // to ", kind < 2 ? "" : dtype_text(dt));
    tn_tensor *t = kind == 0 ? tn_clone(x->t) : kind == 1 ? tn_contiguous(x->t) : tn_cast(x->t, dt);
    bool mode = r->o.grad;
    if (!is_float(x)) r->o.grad = false;
    v = orc_map1(&r->o, ORC_COPY, &v, 0);
    put_result(r, target(r), t, &v, past);
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
           (is_float(x) && is_float(s) && arg(r, 3) % 7 == 0);
}

// What the rules say of writing through x: TN_OK, or the error.
static tn_status allowed(run *r, const slot *x)
{
    if (x->h.leaf >= 0 && r->o.grad) return TN_EGRAD;
    return orc_injective(&x->h) ? TN_OK : TN_EARG;
}

// The library has written (or not); so does the oracle. Some views with no place twice may be
// refused.
static void after_write(run *r, slot *x, tn_tensor *t, tn_status want, const orc_value *v, int past)
{
    if (t && want == TN_OK) {
        if (t != x->t) fail(r, "a write does not return its argument");
        orc_write(&r->o, &x->h, v, past);
    } else if (t) {
        fail(r, "a write passed that should give %s", tn_status_name(want));
    } else if (tn_error(r->cx) == want || (want == TN_OK && tn_error(r->cx) == TN_EARG)) {
        tn_error_clear(r->cx);
    } else {
        fail(r, "a write returned NULL: %s", tn_error_text(r->cx));
    }
}

static void write_value(run *r, slot *x, slot *s, int kind)
{
    static const char *const names[] = { "assign", "add_", "mul_", "sub_", "div_" };
    static const orc_op      ops[]   = { ORC_COPY, ORC_ADD, ORC_MUL, ORC_SUB, ORC_DIV };
    orc_value v = read_slot(r, s), old = orc_read(&r->o, &x->h);
    int       op = kind ? tame(r, ops[kind], &old, &v, is_float(x)) : ORC_COPY;
    if (op < 0) return;
    for (kind = 0; ops[kind] != (orc_op)op;) kind++;
    tn_status want = allowed(r, x);
    say(r, "tn_%s(t%d, t%d)", names[kind], number(x, r), number(s, r));
    int        past = kind ? past_of(r, x, s) : past_of(r, s, NULL);
    tn_tensor *t    = kind == 0   ? tn_assign(x->t, s->t)
                      : kind == 1 ? tn_add_(x->t, s->t)
                      : kind == 2 ? tn_mul_(x->t, s->t)
                      : kind == 3 ? tn_sub_(x->t, s->t)
                                  : tn_div_(x->t, s->t);
    if (want == TN_OK && kind) v = orc_map2(&r->o, (orc_op)op, &old, &v);
    after_write(r, x, t, want, &v, past);
}

static void do_write(run *r)
{
    slot *x = pick(r, arg(r, 1), NULL, NULL);
    if (!x) return;
    if (arg(r, 3) % 6 < 5) {
        slot *s = pick(r, arg(r, 2), writes_to, x);
        if (s && tn_dtype_of(s->t) != tn_dtype_of(x->t)) write_value(r, x, s, 0);
        else if (s) write_value(r, x, s, (int)(arg(r, 3) >> 8) % 5);
        return;
    }
    double    k = (int)(arg(r, 2) % 5) - 2;
    orc_value v = { .shape = { .n = 1 }, .var = { orc_constant(&r->o, k) } };
    say(r, "tn_fill_(t%d, %g)", number(x, r), k);
    after_write(r, x, tn_fill_(x->t, k), allowed(r, x), &v, -1);
}

// A lost store may be given a new value as a whole.
static void do_revive(run *r)
{
    for (int i = 0; i < SLOTS; i++) {
        slot *x = &r->slot[i];
        if (!x->t || !store_of(r, x)->lost || !x->fresh || x->h.shape.n == 0) continue;
        orc_value v = { .shape = { .n = 1 }, .var = { orc_constant(&r->o, 1) } };
        say(r, "tn_fill_(t%d, 1) // all of it", i);
        after_write(r, x, tn_fill_(x->t, 1), allowed(r, x), &v, -1);
    }
}

// x[1:] op= x[:-1] and the like: source and target overlap.
static void do_shift(run *r)
{
    slot *x = pick(r, arg(r, 1), NULL, NULL);
    if (!x || !x->h.shape.rank) return;
    int     axis = (int)(arg(r, 2) % (uint32_t)x->h.shape.rank);
    int64_t n    = x->h.shape.size[axis];
    bool    up   = arg(r, 3) & 1, back = arg(r, 3) & 2;
    if (n < 2) return;
    slot to = { .t = tn_slice(x->t, axis, up, up ? TN_TO_END : -1, 1) }, from = to;
    from.t = back ? tn_slice(x->t, axis, up ? n - 2 : n - 1, up ? TN_TO_END : 0, -1)
                  : tn_slice(x->t, axis, !up, up ? -1 : TN_TO_END, 1);
    orc_value wt = orc_slice(&x->h.shape, axis, up, up ? TN_TO_END : -1, 1);
    orc_value wf = back ? orc_slice(&x->h.shape, axis, up ? n - 2 : n - 1, up ? TN_TO_END : 0, -1)
                        : orc_slice(&x->h.shape, axis, !up, up ? -1 : TN_TO_END, 1);
    to.h         = orc_view(&r->o, &x->h, &wt);
    from.h       = orc_view(&r->o, &x->h, &wf);
    say(r, "// shift: %s of t%d along %d by %s", up ? "[1:]" : "[:-1]", number(x, r), axis,
        back ? "the rest backwards" : "the rest");
    if (!to.t || !from.t) fail(r, "a slice returned NULL: %s", tn_error_text(r->cx));
    else write_value(r, &to, &from, (int)(arg(r, 3) >> 8) % 3);
    tn_drop(to.t);
    tn_drop(from.t);
}

// ---- reads, boundaries, scopes

static void do_read(run *r)
{
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &r->slot[(arg(r, 1) + (uint32_t)i) % SLOTS];
        if (!s->t) continue;
        check_slot(r, s, arg(r, 2));
        return;
    }
}

// A step boundary. Some stores are wanted; of the others, those that the rules name must stay.
static void do_eval(run *r)
{
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &r->slot[i];
        if (!usable(r, s) || !(arg(r, 1) >> i & 1)) continue;
        say(r, "tn_want(t%d)", i);
        tn_want(s->t);
        store_of(r, s)->stored = true;
    }
    say(r, "tn_eval(cx)");
    if (tn_eval(r->cx) != TN_OK) fail(r, "tn_eval: %s", tn_error_text(r->cx));
    for (int i = 0; i < r->o.stores; i++) {
        orc_store *s = &r->o.store[i];
        if (!s->stored && !s->assigned && s->n != 1 && s->consumed) s->lost = true;
        s->stored   = !s->lost;
        s->assigned = false;
    }
    orc_spend(&r->o);
}

static void do_begin(run *r)
{
    if (r->depth == DEPTH) return;
    say(r, "s%d = tn_begin(cx)", r->depth);
    r->mode[r->depth]  = r->o.grad;
    r->scope[r->depth] = tn_begin(r->cx);
    if (!r->scope[r->depth]) fail(r, "tn_begin: %s", tn_error_text(r->cx));
    else r->depth++;
}

static void do_end(run *r)
{
    if (!r->depth) return;
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &r->slot[i];
        if (!s->t || s->depth != r->depth) continue;
        if (arg(r, 1) >> i & 1) {
            say(r, "tn_keep(t%d)", i);
            if (tn_keep(s->t) != s->t) fail(r, "tn_keep: %s", tn_error_text(r->cx));
            s->depth--;
        } else {
            say(r, "// t%d dies", i);
            s->t = NULL;
        }
    }
    r->depth--;
    say(r, "tn_end(s%d)", r->depth);
    if (tn_end(r->scope[r->depth]) != TN_OK) fail(r, "tn_end: %s", tn_error_text(r->cx));
    r->o.grad = r->mode[r->depth];
    if (r->depth || r->p->wrapped) return;
    for (int i = 0; i < r->o.stores; i++) {
        r->o.store[i].stored |= !r->o.store[i].lost;
        r->o.store[i].assigned = false;
    }
    orc_spend(&r->o);
}

static void do_drop(run *r)
{
    slot *s = &r->slot[arg(r, 1) % SLOTS];
    if (!s->t) return;
    say(r, "tn_drop(t%d)", number(s, r));
    tn_drop(s->t);
    s->t = NULL;
}

static void do_mode(run *r)
{
    bool on = !r->o.grad || arg(r, 1) % 3 == 0;
    say(r, "tn_grad_mode(cx, %s)", on ? "true" : "false");
    if (tn_grad_mode(r->cx, on) != r->o.grad) fail(r, "tn_grad_mode does not return the mode before");
    r->o.grad = on;
}

// ---- gradients

static void do_leaf(run *r)
{
    slot *x = pick(r, arg(r, 1), NULL, NULL);
    if (!x || !is_float(x) || x->h.shape.n == 0 || tn_needs_grad(x->t) || !orc_injective(&x->h))
        return;
    say(r, "tn_requires_grad(t%d, true)", number(x, r));
    if (tn_requires_grad(x->t, true) != x->t) {
        if (tn_error(r->cx) == TN_EARG) tn_error_clear(r->cx);
        else fail(r, "tn_requires_grad: %s", tn_error_text(r->cx));
        return;
    }
    oracle *o = &r->o;
    if (o->leaves == o->leaves_cap) {
        o->leaves_cap = o->leaves_cap * 2 + 8;
        o->leaf       = realloc(o->leaf, (size_t)o->leaves_cap * sizeof *o->leaf);
    }
    o->leaf[o->leaves] = (orc_leaf){ .scale = 1 };
    x->h.leaf          = o->leaves++;
    x->leaf            = true;
}

static bool is_like(run *r, const slot *x, const slot *s)
{
    (void)r;
    bool same = tn_dtype_of(x->t) == tn_dtype_of(s->t) && x->h.shape.rank == s->h.shape.rank;
    for (int i = 0; same && i < x->h.shape.rank; i++)
        same = x->h.shape.size[i] == s->h.shape.size[i];
    return same;
}

// A gradient for y: NULL where y is one element and the dice say so, a tensor that is there, or a
// new one. *from is the slot it is from.
static tn_tensor *weights(run *r, const slot *y, orc_value *v, slot **from)
{
    *from = (arg(r, 3) >> 1) % 3 == 0 ? pick(r, arg(r, 4), is_like, y) : NULL;
    if (*from) {
        *v = orc_read(&r->o, &(*from)->h);
        if (orc_largest(&r->o, v) <= 8) return (*from)->t;
        *from = NULL;
    }

    double   k[ORC_CELLS] = { 0 };
    uint64_t seed         = arg(r, 3);
    bool     none         = y->h.shape.n == 1 && arg(r, 3) & 1;
    for (int i = 0; i < y->h.shape.n; i++) k[i] = none ? 1 : small_number(&seed);
    *v = orc_constants(&r->o, &y->h.shape, k);
    return none ? NULL : from_doubles(r, tn_dtype_of(y->t), &y->h.shape, k);
}

static bool differs(run *r, const slot *x, const slot *s)
{
    (void)x;
    (void)r;
    return is_float(s) && s->h.shape.n > 0 && tn_needs_grad(s->t);
}

// After a walk every value may have been read by a gradient rule.
static void all_consumed(run *r)
{
    for (int i = 0; i < r->o.stores; i++) r->o.store[i].consumed = true;
}

// A gradient through what was spent is an error, and leaves all as it was.
static bool walked_well(run *r, tn_status st, bool may_be_spent, const char *op)
{
    if (st == TN_OK) return true;
    if (st == TN_EGRAD && may_be_spent) tn_error_clear(r->cx);
    else fail(r, "%s: %s", op, tn_error_text(r->cx));
    return false;
}

static void do_backward(run *r)
{
    slot *y = pick(r, arg(r, 1), differs, NULL);
    if (!y || r->o.vars > 60000) return;
    orc_value  v = orc_read(&r->o, &y->h), gv;
    slot      *from;
    tn_tensor *gy    = weights(r, y, &gv, &from);
    int        past  = orc_past_of(&r->o, &y->h);
    bool       spent = orc_reaches_spent(&r->o, past, r->p->flush_nodes > 0);
    say(r, "tn_backward(t%d, %s%.0d)", number(y, r), from ? "t" : gy ? "random" : "NULL",
        from ? number(from, r) : 0);
    tn_status st = tn_backward(y->t, gy);
    if (gy && !from) tn_drop(gy);
    all_consumed(r);
    if (!walked_well(r, st, spent, "tn_backward")) return;
    orc_backward(&r->o, &v, &gv);
    orc_walk(&r->o, past);
}

static bool can_be_x(run *r, const slot *x, const slot *s)
{
    (void)x;
    return is_float(s) && (s->leaf || (s->fresh && !r->o.store[s->h.store].writes && s->h.leaf < 0));
}

static void do_grad(run *r)
{
    slot *y = pick(r, arg(r, 1), differs, NULL), *x = pick(r, arg(r, 2), can_be_x, NULL);
    if (!y || !x || r->o.vars > 60000) return;
    // The oracle knows no gradient of a sum over nothing.
    orc_value v = orc_read(&r->o, &y->h), vx = orc_read(&r->o, &x->h), gv;
    if (orc_needs(&r->o, &vx) != tn_needs_grad(x->t)) return;
    slot      *from;
    tn_tensor *gy = weights(r, y, &gv, &from), *gx = NULL;
    int        past  = past_of(r, y, x);
    if (from) past = orc_past_new(&r->o, past, orc_past_of(&r->o, &from->h), -1);
    bool       spent = orc_reaches_spent(&r->o, past, r->p->flush_nodes > 0);
    say(r, "t%d = tn_grad(t%d, t%d, %s%.0d)", (int)(arg(r, 0) % SLOTS), number(y, r), number(x, r),
        from ? "t" : gy ? "random" : "NULL", from ? number(from, r) : 0);
    tn_status st = tn_grad(1, &y->t, 1, &x->t, &gy, &gx);
    if (gy && !from) tn_drop(gy);
    all_consumed(r);
    if (!walked_well(r, st, spent, "tn_grad")) return;
    orc_value g = orc_grad(&r->o, &v, &gv, &x->h);
    slot     *to = target(r);
    put_result(r, to, gx, &g, past);
    if (orc_largest(&r->o, &g) < 1e3) return;
    check_slot(r, to, 0);
    tn_drop(to->t);
    to->t = NULL;
}

static bool is_leaf(run *r, const slot *x, const slot *s)
{
    (void)r;
    (void)x;
    return s->leaf;
}

// Reads, clears or takes a step along the gradient of a leaf.
static void do_gradient(run *r)
{
    slot *x = pick(r, arg(r, 1), is_leaf, NULL);
    if (!x) return;
    orc_leaf *l = &r->o.leaf[x->h.leaf];
    if (arg(r, 2) % 6 < 2) {
        check_gradient(r, x);
    } else if (arg(r, 2) % 6 == 4) {
        say(r, "tn_mul_(tn_grad_of(t%d), tn_scalar(cx, 0.5))", number(x, r));
        if (!tn_mul_(tn_grad_of(x->t), tn_scalar(r->cx, 0.5)))
            fail(r, "writing to the gradient of t%d: %s", number(x, r), tn_error_text(r->cx));
        for (int i = 0; i < ORC_CELLS; i++) l->g[i] *= 0.5;
    } else if (arg(r, 2) % 6 == 5) {
        say(r, "tn_requires_grad(t%d, false)", number(x, r));
        if (tn_requires_grad(x->t, false) != x->t)
            fail(r, "tn_requires_grad: %s", tn_error_text(r->cx));
        x->h.leaf = -1;
        x->leaf   = false;
    } else if (arg(r, 2) % 6 == 2) {
        say(r, "tn_zero_grad(t%d)", number(x, r));
        tn_zero_grad(x->t);
        *l = (orc_leaf){ .scale = 1 };
    } else if (l->scale < 100) {
        say(r, "tn_add_(t%d, tn_mul_s(tn_grad_of(t%d), -0.125)) // no grad", number(x, r),
            number(x, r));
        bool       mode = tn_grad_mode(r->cx, false), o_mode = r->o.grad;
        tn_tensor *t = tn_add_(x->t, tn_mul_s(tn_grad_of(x->t), -0.125));
        r->o.grad    = false;
        double    step[ORC_CELLS];
        for (int i = 0; i < x->h.shape.n; i++) step[i] = -0.125 * l->g[x->h.cell[i]];
        orc_value old = orc_read(&r->o, &x->h), s = orc_constants(&r->o, &x->h.shape, step);
        orc_value v = orc_map2(&r->o, ORC_ADD, &old, &s);
        after_write(r, x, t, allowed(r, x), &v, -1);
        r->o.grad = o_mode;
        tn_grad_mode(r->cx, mode);
    }
}

// ---- running a program

static const struct {
    void (*run)(run *r);
    int weight;
} kinds[] = { { do_from, 6 },    { do_full, 2 },   { do_view, 14 },    { do_map1, 7 },
              { do_map2, 9 },    { do_reduce, 4 }, { do_matmul, 4 },   { do_concat, 2 },
              { do_copy, 4 },    { do_write, 12 }, { do_shift, 2 },    { do_read, 6 },
              { do_eval, 3 },    { do_begin, 3 },  { do_end, 3 },      { do_drop, 2 },
              { do_mode, 2 },    { do_leaf, 4 },   { do_backward, 5 }, { do_grad, 3 },
              { do_gradient, 5 }, { do_revive, 1 }, { do_kink, 3 } };
enum { KINDS = sizeof kinds / sizeof *kinds };

static void generate(program *p, uint64_t seed, const char *device)
{
    *p             = (program){ .seed = seed, .device = device, .count = LENGTH };
    p->singles     = seed % 5 == 0;
    p->wrapped     = seed % 4 == 0;
    p->flush_nodes = seed % 3 == 0 ? 1 + (int64_t)(seed % 7) : 0;
    int total      = 0;
    for (int i = 0; i < KINDS; i++) total += kinds[i].weight;
    for (int i = 0; i < LENGTH; i++) {
        int dice = (int)(next_random(&seed) % (uint64_t)total);
        if (i < 3) dice = 0;
        while (dice >= kinds[p->code[i].kind].weight) dice -= kinds[p->code[i].kind++].weight;
        for (int k = 0; k < ARGS; k++) p->code[i].r[k] = (uint32_t)(next_random(&seed) >> 20);
    }
    p->code[3].kind = 17;  // a leaf early
}

static void *count_blocks(void *user, void *old, size_t n)
{
    run *r = user;
    if (!old && n) r->blocks++;
    if (old && !n) r->blocks--;
    if (n) return realloc(old, n);
    free(old);
    return NULL;
}

static void silent(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx;
    (void)f;
    (void)user;
}

static void check_all(run *r)
{
    for (int i = 0; i < SLOTS && !r->failed; i++) {
        slot *s = &r->slot[i];
        if (s->t) check_slot(r, s, 0);
        if (s->t && s->leaf && !r->failed) check_gradient(r, s);
    }
    if (tn_error(r->cx) != TN_OK) fail(r, "an error is left: %s", tn_error_text(r->cx));
}

static void check_nothing_left(run *r, tn_scope *all)
{
    if (tn_end(all) != TN_OK) fail(r, "tn_end: %s", tn_error_text(r->cx));
    tn_stats s = tn_stats_get(r->cx);
    if (s.nodes || s.bytes)
        fail(r, "after the outermost scope %lld nodes and %lld bytes are left", (long long)s.nodes,
             (long long)s.bytes);
}

// Whether both sides agree on a program; why not goes into text.
static bool agrees(const program *p, FILE *listing, char *text)
{
    static run r;
    r = (run){ .p = p, .listing = listing };
    for (int i = 0; i < SLOTS; i++) r.slot[i].h.leaf = -1;
    r.cx = tn_open_with((tn_open_opts){ .device = p->device, .handler = silent, .user = &r,
                                        .flush_nodes = p->flush_nodes, .threads = 1,
                                        .alloc = count_blocks });
    if (!r.cx) fail(&r, "tn_open: %s", tn_error_text(NULL));
    orc_open(&r.o);
    tn_scope *all = p->wrapped && r.cx ? tn_begin(r.cx) : NULL;
    for (int i = 0; i < p->count && !r.failed; i++) {
        r.at = &p->code[i];
        kinds[r.at->kind].run(&r);
        if (!r.failed && tn_error(r.cx) != TN_OK)
            fail(&r, "an unexpected error: %s", tn_error_text(r.cx));
    }
    if (!r.failed) check_all(&r);
    if (!r.failed && all) check_nothing_left(&r, all);
    tn_close(r.cx);
#ifndef TN_DEBUG
    if (!r.failed && r.blocks) fail(&r, "%ld blocks are alive after tn_close", r.blocks);
#endif
    orc_close(&r.o);
    if (text) memcpy(text, r.text, sizeof r.text);
    return !r.failed;
}

// The same in a child, so that a crash is a failure like any other.
static bool agrees_in_child(const program *p)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        freopen("/dev/null", "w", stderr);
        _exit(!agrees(p, NULL, NULL));
    }
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) < 0) return false;
    return status == 0;
}

// Takes out instructions as long as the program still fails, and prints what is left.
static void shrink(program p)
{
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (int i = p.count - 1; i >= 0; i--) {
            program q = p;
            memmove(&q.code[i], &q.code[i + 1], (size_t)(p.count - i - 1) * sizeof *q.code);
            q.count--;
            if (agrees_in_child(&q)) continue;
            p       = q;
            smaller = true;
        }
    }
    printf("---- program %llu on %s%s%s, flush_nodes %lld\n", (unsigned long long)p.seed, p.device,
           p.singles ? ", with f32" : "", p.wrapped ? ", in a scope" : "",
           (long long)p.flush_nodes);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) _exit(!agrees(&p, stdout, NULL));
    int status = 0;
    if (pid > 0) waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) printf("    // CRASHES: %s\n", strsignal(WTERMSIG(status)));
    printf("----\n");
}

static volatile uint64_t now_seed;

static void crashed(int sig)
{
    char text[96];
    int  n = snprintf(text, sizeof text, "program %llu crashed: run with TN_PROGRAM=%llu\n",
                      (unsigned long long)now_seed, (unsigned long long)now_seed);
    if (write(1, text, (size_t)n) < 0) n = 0;
    signal(sig, SIG_DFL);
    raise(sig);
}

static bool has_sanitizer(void)
{
    return TN_SANITIZE[0] != 0;
}

static void run_programs(const char *device, int count, uint64_t first)
{
    const char *one = getenv("TN_PROGRAM"), *many = getenv("TN_PROGRAMS");
    int         shown = 0;
    program     p;
    if (one) {
        generate(&p, strtoull(one, NULL, 10), device);
        if (!CHECK(agrees_in_child(&p))) shrink(p);
        return;
    }
    if (many) count = atoi(many);
    if (has_sanitizer()) count /= 20;
    for (int i = 0; i < count; i++) {
        char text[512];
        now_seed = first + (uint64_t)i;
        generate(&p, now_seed, device);
        bool ok = agrees(&p, NULL, text);
        test_case_result(ok, "program %llu on %s: %s", (unsigned long long)p.seed, device, text);
        if (!ok && shown++ < 3) shrink(p);
    }
}

static void catch_crashes(void)
{
    if (has_sanitizer()) return;
    signal(SIGSEGV, crashed);
    signal(SIGABRT, crashed);
    signal(SIGBUS, crashed);
    signal(SIGFPE, crashed);
}

static void programs_agree_with_the_oracle_on_cpu(void)
{
    catch_crashes();
    run_programs("cpu", 27000, 1);
}

static void programs_agree_with_the_oracle_on_ref(void)
{
    catch_crashes();
    run_programs("ref", 3000, 1000001);
}

const test_case tests_programs[] = { TEST(programs_agree_with_the_oracle_on_cpu),
                                     TEST(programs_agree_with_the_oracle_on_ref), TEST_END };
