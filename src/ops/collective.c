// Collectives: all_reduce, all_gather, reduce_scatter, broadcast. Each is a call that runs alone
// and may fail, as a user's op with functions is, so it is one: the row `custom`, with the
// functions of this file.
//
// The order in which ranks run them has to be the same on all, while a plan runs its steps in any
// order that their inputs allow. So each reads the world's token and makes the next one:
//
//   y1, token1 = all_reduce(x1, token0)
//   y2, token2 = all_reduce(x2, token1)
//
// The token is assigned, so that every step computes it: a rank takes part also in what it never
// reads. And since token0 is overwritten with that, nothing of it can be computed a second time, by
// one rank alone. What a token holds does not matter, and nothing writes it.
#include "ops/collective.h"
#include "ops/composite.h"
#include "base/hash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// The attributes of a collective. Along the first axis: other axes are moved there. mean and axis
// are what the user asked for, and have to be equal on all ranks: the division and the
// transposition are ops of their own.
typedef struct {
    tn_dist            *d;
    tni_collective_kind kind;
    tni_reduction       op;
    bool                mean;
    int                 root, axis;
    int                 line;  // of the user's call, for messages
    const char         *file;
} collective;

static tn_status shape_of(const void *attr, const tn_array *in, tn_array *out)
{
    const collective *c    = attr;
    int               size = tn_dist_size(c->d);
    out[0]                 = in[0];
    if (c->kind == TNI_ALL_GATHER) out[0].size[0] *= size;
    if (c->kind == TNI_REDUCE_SCATTER) out[0].size[0] /= size;
    out[1] = (tn_array){ .dtype = TN_I32 };
    return TN_OK;
}

static tn_status run_in_words(const void *attr, const tn_array *in, tn_array *out)
{
    tni_text why;
    return tni_collective_run(attr, in, out, &why);
}

static tn_status grad_of(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                         tn_tensor *const *gy, tn_tensor **gx);

#define COLLECTIVE(text)                                                               \
    {                                                                                  \
        .name = text, .nin = 2, .nout = 2, .shape = shape_of, .compute = run_in_words, \
        .grad = grad_of                                                                \
    }
static const tn_op_def definition[] = {
    [TNI_BROADCAST]      = COLLECTIVE("broadcast"),
    [TNI_ALL_REDUCE]     = COLLECTIVE("all_reduce"),
    [TNI_ALL_GATHER]     = COLLECTIVE("all_gather"),
    [TNI_REDUCE_SCATTER] = COLLECTIVE("reduce_scatter"),
};

bool tni_is_collective(const tn_op_def *op)
{
    return op->compute == run_in_words;
}

// ---- running -----------------------------------------------------------------------------------

// What only moves is sent as integers of its size, which MPI has for every dtype.
static tn_dtype sent_as(const collective *c, tn_dtype dt)
{
    if (c->kind == TNI_ALL_REDUCE || c->kind == TNI_REDUCE_SCATTER) return dt;
    switch (tni_dtype_size(dt)) {
    case 1: return TN_U8;
    case 2: return TN_U16;
    case 4: return TN_U32;
    default: return TN_U64;
    }
}

// A collective over arrays, as an engine takes it. Broadcasts are in place.
static tni_collective call_of(const collective *c, const tn_array *in, const tn_array *out)
{
    const tn_array *part = c->kind == TNI_REDUCE_SCATTER ? &out[0] : &in[0];
    return (tni_collective){ .kind  = c->kind,
                             .dtype = sent_as(c, in[0].dtype),
                             .op    = c->op,
                             .root  = c->root,
                             .count = tni_shape_count(part->rank, part->size),
                             .in    = in[0].data,
                             .out   = out[0].data };
}

// What it is: its facts, which have to be equal on all ranks, as a hash, and in words: "all_reduce
// mean f32 (10, 3)", "all_gather f32 (10, 3) axis 1", "broadcast f32 (3,) of rank 2".
static tni_line_item item_of(const collective *c, tn_dtype dt, int rank, const int64_t *size)
{
    static const char *const word[] = { "sum ", "max ", "min " };
    bool                     reduce = c->kind == TNI_ALL_REDUCE || c->kind == TNI_REDUCE_SCATTER;
    const int64_t            fact[] = { c->kind, dt, c->op, c->mean, c->root, c->axis, rank };
    const char              *name = definition[c->kind].name, *slash = strrchr(c->file, '/');
    const char              *how               = c->mean ? "mean " : word[c->op];
    int64_t                  user[TN_MAX_RANK] = { 0 };  // the sizes of the user's tensor
    memcpy(user, size, (size_t)rank * sizeof *size);
    if (c->axis) user[0] = size[c->axis], user[c->axis] = size[0];
    uint64_t      hash = tni_hash(fact, sizeof fact);
    tni_line_item item = { .hash = tni_hash_mix(hash, tni_hash(user, sizeof user)) };
    tni_text      what = tni_text_of("%s %s%s %s", name, reduce ? how : "", tn_dtype_name(dt),
                                     tni_shape_text(rank, user).s);
    if (c->axis) tni_text_add(&what, " axis %d", c->axis);
    if (c->kind == TNI_BROADCAST) tni_text_add(&what, " of rank %d", c->root);
    if (c->line) tni_text_add(&what, " (%s:%d)", slash ? slash + 1 : c->file, c->line);
    snprintf(item.what, sizeof item.what, "%.*s", (int)sizeof item.what - 1, what.s);
    return item;
}

tni_line_item tni_collective_item(const tni_node *n)
{
    return item_of(n->attr.custom.bytes, (tn_dtype)n->src[0]->dtype, n->src[0]->rank,
                   n->src[0]->size);
}

bool tni_collective_in_place(const tni_node *n)
{
    return ((const collective *)n->attr.custom.bytes)->kind == TNI_ALL_REDUCE;
}

tn_dist *tni_collective_world(const tni_node *n)
{
    return ((const collective *)n->attr.custom.bytes)->d;
}

// On the host the root's x is copied to its result first.
tn_status tni_collective_run(const void *attr, const tn_array *in, tn_array *out, tni_text *why)
{
    const collective *c    = attr;
    tni_collective    run  = call_of(c, in, out);
    tni_line_item     item = item_of(c, in[0].dtype, in[0].rank, in[0].size);
    if (c->kind == TNI_BROADCAST) {
        if (tn_dist_rank(c->d) == c->root)
            memcpy(run.out, run.in, (size_t)run.count * tni_dtype_size(run.dtype));
        run.in = run.out;
    }
    return tni_dist_run(c->d, &run, &item, why);
}

bool tni_collective_streams(const void *attr)
{
    return tni_dist_streams(((const collective *)attr)->d);
}

tn_status tni_collective_start(const void *attr, const tn_array *in, const tn_array *out,
                               void *stream, tni_dist_busy *busy, void *arg, tni_text *why)
{
    const collective *c     = attr;
    tni_collective    start = call_of(c, in, out);
    tni_line_item     item  = item_of(c, in[0].dtype, in[0].rank, in[0].size);
    return tni_dist_start(c->d, &start, stream, &item, busy, arg, why);
}

// ---- recording ---------------------------------------------------------------------------------

// Returns the world's token, made at the first collective from memory: a constant could be had
// again.
static tn_tensor *current_token(tn_ctx *cx, tn_dist *d)
{
    tn_tensor **token = tni_dist_token(d);
    if (*token) return *token;
    tn_tensor *t = tn_from(cx, TN_I32, TN_0D, &(int32_t){ 0 });
    if (!t) return NULL;
    tni_tensor_own(t);
    return *token = t;
}

// Assigns the next token, without history: no gradient goes from one collective to the next.
static bool advance_token(tn_ctx *cx, tn_dist *d, tn_tensor *next)
{
    bool grads    = cx->grad_mode;
    cx->grad_mode = false;
    bool ok       = tn_assign(*tni_dist_token(d), next) != NULL;
    cx->grad_mode = grads;
    return ok;
}

// Records a collective of x, with the kind, op and so on of `facts`.
static tn_tensor *record(tn_dist *d, tn_tensor *x, collective facts)
{
    tn_ctx    *cx    = x->cx;
    tn_tensor *token = current_token(cx, d);
    collective c;
    memset(&c, 0, sizeof c);  // its bytes are part of the plan's key
    c.d    = d;
    c.kind = facts.kind;
    c.op   = facts.op;
    c.mean = facts.mean;
    c.root = facts.root;
    c.axis = facts.axis;
    c.file = tni_self.site.file ? tni_self.site.file : "";
    c.line = tni_self.site.line;
    if (!token) return NULL;
    tn_tensor *y[2] = { NULL, NULL };
    tn_custom_n(&definition[c.kind], (tn_tensor *[]){ x, token }, &c, sizeof c, y);
    return y[1] && advance_token(cx, d, y[1]) ? y[0] : NULL;
}

// Whether x and the world can be used together. d NULL is a world of one rank.
static bool args_ok(const char *op, tn_dist *d, tn_tensor *x)
{
    if (d && !tni_owned_ok(op, d, TNI_DIST)) return false;
    if (d && !x) return tni_refuse(((tni_owned *)d)->cx, TN_EARG, "%s: x is NULL", op);
    if (!tni_arg1(op, x, "x")) return false;
    if (tni_dist_closed(d)) return tni_refuse(x->cx, TN_EARG, "%s: the world was closed", op);
    if (d && ((tni_owned *)d)->cx != x->cx)
        return tni_refuse(x->cx, TN_EARG, "%s: x belongs to another context than the world", op);
    return true;
}

// Has steps store a result for whoever has it: it cannot be computed again.
static tn_tensor *wanted(tn_tensor *y)
{
    if (y) tn_want(y);
    return y;
}

// The result of one rank: x, by a handle of its own.
static tn_tensor *same(tn_tensor *x)
{
    return tn_reshape(x, tn_rank(x), tni_sizes(x));
}

// Axes move to the front for MPI, and back.
static tn_tensor *along_axis(tn_dist *d, tn_tensor *x, collective c)
{
    tn_tensor *y = c.axis ? tn_transpose(x, 0, c.axis) : x;
    y            = y ? record(d, y, c) : NULL;
    return y && c.axis ? tn_transpose(y, 0, c.axis) : y;
}

// Puts NaN into the extremum y where any rank's x is one, as tn_maximum does: engines drop it, or
// keep it on some ranks.
static tn_tensor *with_nan(tn_dist *d, tn_tensor *x, tn_tensor *y, collective c)
{
    tn_tensor *is = tn_cast(tn_isnan(tn_detach(x)), TN_U8);
    c.op          = TNI_REDUCE_MAX;
    is            = is ? along_axis(d, is, c) : NULL;
    tn_tensor *no = is ? tn_full(x->cx, tn_dtype_of(y), TN_0D, NAN) : NULL;
    return no ? tn_where(tn_cast(is, TN_BOOL), no, y) : NULL;
}

// Reduces x over all ranks. A mean is the sum times a number.
static tn_tensor *reduce(tn_dist *d, tn_tensor *x, tni_collective_kind kind, int axis,
                         tn_reduce_op op)
{
    static const tni_reduction as[] = { [TN_REDUCE_SUM]  = TNI_REDUCE_SUM,
                                        [TN_REDUCE_MEAN] = TNI_REDUCE_SUM,
                                        [TN_REDUCE_MAX]  = TNI_REDUCE_MAX,
                                        [TN_REDUCE_MIN]  = TNI_REDUCE_MIN };
    collective c    = { .kind = kind, .op = as[op], .mean = op == TN_REDUCE_MEAN, .axis = axis };
    tn_tensor *y    = along_axis(d, x, c);
    bool       most = op == TN_REDUCE_MAX || op == TN_REDUCE_MIN;
    if (y && most && tni_is_float(tn_dtype_of(x))) return with_nan(d, x, y, c);
    return y && c.mean ? tn_mul_s(y, 1.0 / tn_dist_size(d)) : y;
}

// Whether a tensor can be reduced so: numbers, and floats for a mean.
static bool reduces(const char *name, tn_tensor *x, tn_reduce_op op)
{
    tn_dtype dt = tn_dtype_of(x);
    if ((unsigned)op > TN_REDUCE_MIN)
        return tni_refuse(x->cx, TN_EARG, "%s: there is no reduction %d", name, (int)op);
    if (!tni_want_math_dtype(x->cx, name, dt)) return false;
    if (dt == TN_BOOL || (op == TN_REDUCE_MEAN && !tni_is_float(dt)))
        return tni_refuse(x->cx, TN_EDTYPE, "%s: x is %s", name, tn_dtype_name(dt));
    return true;
}

tn_tensor *tn_dist_all_reduce(tn_dist *d, tn_tensor *x, tn_reduce_op op)
{
    if (!args_ok("dist_all_reduce", d, x) || !reduces("dist_all_reduce", x, op)) return NULL;
    if (!tni_dist_is_real(d)) return same(x);
    tn_tensor *wide = tni_widen(x);
    tn_tensor *y    = wide ? reduce(d, wide, TNI_ALL_REDUCE, 0, op) : NULL;
    return wanted(tni_narrow(y, tn_dtype_of(x)));
}

tn_tensor *tn_dist_all_gather(tn_dist *d, tn_tensor *x, int axis)
{
    if (!args_ok("dist_all_gather", d, x)) return NULL;
    int i = tni_axis(x->cx, "dist_all_gather", tn_rank(x), axis);
    if (i < 0) return NULL;
    if (!tni_dist_is_real(d)) return same(x);
    return wanted(along_axis(d, x, (collective){ .kind = TNI_ALL_GATHER, .axis = i }));
}

tn_tensor *tn_dist_reduce_scatter(tn_dist *d, tn_tensor *x, int axis, tn_reduce_op op)
{
    if (!args_ok("dist_reduce_scatter", d, x) || !reduces("dist_reduce_scatter", x, op))
        return NULL;
    int i = tni_axis(x->cx, "dist_reduce_scatter", tn_rank(x), axis), size = tn_dist_size(d);
    if (i < 0) return NULL;
    if (tn_size(x, i) % size)
        return tni_fail(x->cx, TN_ESHAPE,
                        "dist_reduce_scatter: axis %d of %s is no multiple of %d ranks", i,
                        tni_shape_of(x).s, size);
    if (!tni_dist_is_real(d)) return same(x);
    tn_tensor *wide = tni_widen(x);
    tn_tensor *y    = wide ? reduce(d, wide, TNI_REDUCE_SCATTER, i, op) : NULL;
    return wanted(tni_narrow(y, tn_dtype_of(x)));
}

tn_tensor *tn_dist_broadcast(tn_dist *d, tn_tensor *x, int root)
{
    if (!args_ok("dist_broadcast", d, x)) return NULL;
    if (root < 0 || root >= tn_dist_size(d))
        return tni_fail(x->cx, TN_EARG, "dist_broadcast: there is no rank %d in a world of %d",
                        root, tn_dist_size(d));
    if (!tni_dist_is_real(d)) return same(x);
    return wanted(record(d, x, (collective){ .kind = TNI_BROADCAST, .root = root }));
}

// ---- means -------------------------------------------------------------------------------------

// The ranks' mean divides by their number, so each rank's share is multiplied by it.
tn_tensor *tn_dist_mean(tn_dist *d, tn_tensor *sum, tn_tensor *count)
{
    static const char *const names[] = { "sum", "count" };
    tn_tensor *const         x[]     = { sum, count };
    if (!tni_args("dist_mean", 2, x, names) || !args_ok("dist_mean", d, sum)) return NULL;
    if (!tni_want_float(sum, "dist_mean")) return NULL;
    if (tn_count(count) != 1)
        return tni_fail(sum->cx, TN_ESHAPE, "dist_mean: count is %s, not one number",
                        tni_shape_of(count).s);
    tn_dtype   dt   = tn_dtype_of(sum);
    tn_tensor *wide = tni_widen(sum), *all = wide ? tn_reshape(count, TN_0D) : NULL;
    all = all ? tn_cast(tn_detach(all), tn_dtype_of(wide)) : NULL;
    all = all ? tn_dist_all_reduce(d, all, TN_REDUCE_SUM) : NULL;
    return all ? tni_narrow(tn_div(tn_mul_s(wide, tn_dist_size(d)), all), dt) : NULL;
}

// ---- gradients ---------------------------------------------------------------------------------

// Each rank's result is part of that rank's loss; a gradient is that of the sum of all ranks'
// losses. So what went to all ranks comes back as the sum of what they send. An extremum's gradient
// goes to the elements that are it, in equal shares over all ranks.
static tn_status grad_of(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                         tn_tensor *const *gy, tn_tensor **gx)
{
    const collective *c     = attr;
    tn_tensor        *g     = gy[0];
    bool              least = c->op == TNI_REDUCE_MAX || c->op == TNI_REDUCE_MIN;
    if (c->kind == TNI_ALL_GATHER) gx[0] = tn_dist_reduce_scatter(c->d, g, 0, TN_REDUCE_SUM);
    else if (c->kind == TNI_REDUCE_SCATTER && !least) gx[0] = tn_dist_all_gather(c->d, g, 0);
    else if (c->kind == TNI_BROADCAST)
        gx[0] = tn_mul_s(tn_dist_all_reduce(c->d, g, TN_REDUCE_SUM),
                         tn_dist_rank(c->d) == c->root ? 1 : 0);
    else {
        bool       scattered = c->kind == TNI_REDUCE_SCATTER;
        tn_tensor *all       = scattered ? tn_dist_all_gather(c->d, g, 0)
                                         : tn_dist_all_reduce(c->d, g, TN_REDUCE_SUM);
        tn_tensor *top       = least && scattered ? tn_dist_all_gather(c->d, y[0], 0) : y[0];
        tn_tensor *is        = least ? tn_cast(tn_eq(x[0], top), tn_dtype_of(x[0])) : NULL;
        tn_tensor *n         = least ? tn_dist_all_reduce(c->d, is, TN_REDUCE_SUM) : NULL;
        gx[0]                = least ? tn_mul(all, tn_div(is, n)) : all;
    }
    return gx[0] ? TN_OK : TN_EGRAD;
}
