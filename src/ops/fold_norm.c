// Batch norm in evaluation, folded into the convolution before it. With running statistics, a norm
// is one factor and one summand a channel:
//
//     norm(conv(x, w) + b) = conv(x, w s) + (b - mean) s + shift,  s = gain / sqrt(var + eps)
//
// w s and the summand are computed once and kept beside the running variance until one of the
// values that they were made of is written, so that a norm costs what a bias does. The plain
// convolution stays recorded: it is computed only if it is asked for. A handle that a binding holds
// (tn_retain) does not ask: in Python the caller of a norm always still holds its input, and lets
// go of it before anything is computed; if it does not, the convolution runs twice.
//
// Only where no gradient is recorded, and where parameters and statistics are computed already.
#include "base/hash.h"
#include "ops/composite.h"

#include <string.h>

// The values that folded tensors are made of, in the order of tni_folded.made_of.
enum { WEIGHT, BIAS, MEAN, VAR, GAIN, SHIFT, PARTS };
_Static_assert(PARTS == sizeof((tni_folded){ 0 }.made_of) / sizeof(uint64_t), "one id each");

// A convolution that a norm takes, with its bias, of which there may be none.
typedef struct {
    tni_node *conv, *bias;
    uint64_t  made_of[PARTS], recipe;
} candidate;

// The value that a bias was expanded from, one number for each channel, which are axis `at` of v;
// NULL if v is something else, such as a row of as many numbers along another axis.
static tni_node *expanded_bias(tni_node *v, int at)
{
    tni_node *b = v->op == TNI_VIEW_OP ? v->src[0] : NULL;
    tni_view  l = tni_node_layout(v);
    bool fits = b && b->state == TNI_DONE && b->rank == 1 && b->size[0] == v->size[at] && !l.offset;
    for (int i = 0; fits && i < v->rank; i++) fits = v->size[i] == 1 || l.stride[i] == (i == at);
    return fits ? b : NULL;
}

// Adds what a step of a weight's recipe does to a hash of the steps before.
static uint64_t hash_step(uint64_t h, const tni_node *n)
{
    tni_view v = tni_node_layout(n);
    h          = tni_hash_mix(tni_hash_mix(h, (uint64_t)n->op), n->dtype);
    h          = tni_hash_mix(h, (uint64_t)v.offset);
    for (int i = 0; i < n->rank; i++) {
        h = tni_hash_mix(tni_hash_mix(h, (uint64_t)n->size[i]), (uint64_t)v.stride[i]);
        if (n->op == TNI_pad) h = tni_hash_mix(h, (uint64_t)n->attr.pad.before[i]);
    }
    return h;
}

// The computed value that a weight is made of: itself, or what views, casts, padding with zeros and
// copies make the weight of, as for another order of axes. *recipe tells these from others of the
// same value. NULL if the weight is made in another way.
static const tni_node *stored_weight(const tni_node *w, uint64_t *recipe)
{
    for (*recipe = 0; w->state != TNI_DONE || w->op == TNI_VIEW_OP; w = w->src[0]) {
        bool zeros = w->op == TNI_pad && w->attr.pad.value == 0;
        bool plain = w->op == TNI_VIEW_OP || w->op == TNI_copy || w->op == TNI_cast || zeros;
        if (!plain || w->nsrc != 1 || (w->op != TNI_VIEW_OP && w->state != TNI_PENDING))
            return NULL;
        *recipe = hash_step(*recipe, w);
    }
    return w;
}

// Whether x is all of a convolution that is neither computed nor read by others, with or without a
// bias, and will not be stored for its own sake.
static bool find_conv(const tn_tensor *x, candidate *c)
{
    const tni_store *s = x->store;
    tni_node        *n = s->node;
    if ((x->view && !tni_is_permuted(x)) || n->state != TNI_PENDING || n->needs_grad || n->uses)
        return false;
    bool asked = s->wanted || s->depth < x->cx->scope->depth;
    if ((asked && !x->owners) || s->assigned) return false;
    *c = (candidate){ .conv = n };
    if (n->op == TNI_add && n->src[0]->op == TNI_conv && n->src[0]->dtype == n->dtype) {
        c->conv = n->src[0];
        c->bias = expanded_bias(n->src[1], c->conv->attr.conv.channels_last ? n->rank - 1 : 1);
        if (!c->bias || c->conv->uses != 1) return false;
        c->made_of[BIAS] = c->bias->id;
    }
    if (c->conv->op != TNI_conv || c->conv->state != TNI_PENDING) return false;
    const tni_node *w = stored_weight(c->conv->src[1], &c->recipe);
    if (w) c->made_of[WEIGHT] = w->id;
    return w != NULL;
}

// Whether a parameter or statistic, which may be NULL, is there to stay; its id goes to *id.
static bool is_kept(const tn_tensor *p, uint64_t *id)
{
    *id = 0;
    if (!p) return true;
    const tni_node *n = p->store->node;
    *id               = n->id;
    return !p->view && n->state == TNI_DONE && p->store->depth == 0 &&
           !(p->cx->grad_mode && p->leaf);
}

static bool is_valid(const tni_folded *f, const candidate *c, double eps)
{
    if (!f || memcmp(f->made_of, c->made_of, sizeof c->made_of) || f->eps != eps) return false;
    if (f->declined) return true;
    const tni_node *w = f->weight->store->node;
    return f->recipe == c->recipe && f->order == c->conv->attr.conv.channels_last &&
           w->dtype == c->conv->dtype && w->state != TNI_GONE &&
           f->bias->store->node->state != TNI_GONE;
}

// A vector of the norm as f32 at least; NULL in, NULL out.
static tn_tensor *wide(tn_tensor *p)
{
    return p ? tni_widen(p) : NULL;
}

// Whether the folded convolution could overflow f16 where the norm's result does not: it is the
// result plus mean * s, which is large for a channel that hardly varies. Reads the largest of these
// numbers, once for a network's values. A quarter of what f16 holds leaves the rest to results.
static bool overflows(const candidate *c, tn_tensor *mean, tn_tensor *s)
{
    const double most = 65504 / 4.0;
    return c->conv->dtype == TN_F16 &&
           !(tn_item(tn_max_all(tn_abs(tn_mul(wide(mean), s)))) <= most);
}

// Records the folded weight and bias and keeps them beside the variance. They share no kernel with
// their readers, so that later steps, which find them computed, run the same kernels.
static bool fold_now(const candidate *c, tn_tensor *const part[PARTS], double eps)
{
    tn_ctx    *cx = part[VAR]->cx;
    int64_t    size[TN_MAX_RANK];
    tn_tensor *s = tn_rsqrt(tn_add_s(wide(part[VAR]), eps)),
              *w = tni_wrap_node(cx, c->conv->src[1]);
    if (part[GAIN]) s = tn_mul(s, wide(part[GAIN]));
    if (!s || (cx->busy && c->conv->dtype == TN_F16)) return false;
    tni_folded f = { .eps = eps, .declined = overflows(c, part[MEAN], s) };
    memcpy(f.made_of, c->made_of, sizeof f.made_of);
    if (f.declined) return tni_folded_set(part[VAR], &f);
    for (int i = 0; i < c->conv->rank; i++) size[i] = i ? 1 : -1;
    w = tni_narrow(tn_mul(wide(w), tn_reshape(s, c->conv->rank, size)), (tn_dtype)c->conv->dtype);
    tn_tensor *b = c->bias ? wide(tni_wrap_node(cx, c->bias)) : NULL;
    b            = b ? tn_sub(b, wide(part[MEAN])) : tn_neg(wide(part[MEAN]));
    b            = tn_mul(b, s);
    if (part[SHIFT]) b = tn_add(b, wide(part[SHIFT]));
    f.weight = w;
    f.bias   = b;
    f.recipe = c->recipe;
    f.order  = c->conv->attr.conv.channels_last;
    if (!w || !b || w->view || b->view || !tni_folded_set(part[VAR], &f)) return false;
    w->store->node->apart = b->store->node->apart = true;
    return true;
}

// Leaves a value that nothing reads any more as a recipe. It was never computed, so computing it is
// no repetition.
static void leave(tn_ctx *cx, tni_node *n)
{
    if (n->state != TNI_PENDING || n->uses) return;
    tni_node_mark_unstored(cx, n);
    n->recomputed = false;
}

// The folded convolution, at the place in the program where the plain one was, and the summand.
static tn_tensor *record_folded(const candidate *c, const tni_folded *f, tn_tensor *x)
{
    const char *op    = "batch_norm";
    tni_node   *n     = c->conv;
    tni_node   *src[] = { n->src[0], tni_store_node(f->weight, op) };
    int64_t     size[TN_MAX_RANK];
    if (!src[1] || !tni_resolve(x, op)) return NULL;
    tn_tensor *y = tni_record(x->cx, TNI_conv, (tn_dtype)n->dtype, n->rank, n->size, 2, src,
                              &n->attr);
    if (!y) return NULL;
    y->store->node->site = n->site;
    if (n->attr.conv.channels_last) y = tni_show_permuted(y, tni_channels_last_order(n->rank));
    for (int i = 0; i < n->rank; i++) size[i] = i == 1 ? -1 : 1;
    y = y ? tn_add(tni_widen(y), tn_reshape(f->bias, n->rank, size)) : NULL;
    if (y && tni_dtype(y) != tni_dtype(x)) y = tn_cast(y, tni_dtype(x));
    if (!y) return NULL;
    if (!x->owners) {
        leave(x->cx, x->store->node);
        leave(x->cx, n);
    }
    return y;
}

tn_tensor *tni_fold_norm(tn_tensor *x, tn_tensor *mean, tn_tensor *var, tn_tensor *gain,
                         tn_tensor *shift, double eps)
{
    tn_tensor *const part[PARTS] = { [MEAN] = mean, [VAR] = var, [GAIN] = gain, [SHIFT] = shift };
    candidate        c;
    if (!find_conv(x, &c)) return NULL;
    for (int i = MEAN; i < PARTS; i++)
        if (!is_kept(part[i], &c.made_of[i])) return NULL;
    if (!is_valid(var->store->folded, &c, eps) && !fold_now(&c, part, eps)) return NULL;
    return var->store->folded->declined ? NULL : record_folded(&c, var->store->folded, x);
}
