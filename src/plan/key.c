// The canonical form: a graph's structure as bytes. Sizes, strides, ops and who is stored are in
// it; numbers, offsets, random counters and addresses are not, since they are run-time arguments.
#include "plan/plan.h"

#include <string.h>

typedef struct {
    tn_ctx  *cx;
    char    *bytes;
    size_t   count, cap;
    uint32_t views;  // computed ones met so far
    bool     failed;
} writer;

static bool make_room(writer *w, size_t n)
{
    if (!w->failed && tni_grow(&w->cx->heap, (void **)&w->bytes, &w->cap, w->count + n, 1))
        return true;
    w->failed = true;
    return false;
}

static void put(writer *w, const void *p, size_t n)
{
    if (!n || (w->count + n > w->cap && !make_room(w, n))) return;
    memcpy(w->bytes + w->count, p, n);
    w->count += n;
}

static inline void put_int(writer *w, int64_t v)
{
    if (w->count + sizeof v > w->cap && !make_room(w, sizeof v)) return;
    memcpy(w->bytes + w->count, &v, sizeof v);
    w->count += sizeof v;
}

// Sizes and strides: few words, for which a call of memcpy costs more than they do.
static inline void put_ints(writer *w, const int64_t *v, int n)
{
    for (int i = 0; i < n; i++) put_int(w, v[i]);
}

// The part of an op's attributes that is structure.
static void put_attr(writer *w, const tni_node *n)
{
    switch (n->op) {
    case TNI_view:
    case TNI_update:
    case TNI_fold: {
        const tni_node *shape = n->op == TNI_view ? n : n->src[n->nsrc - 1];
        put_ints(w, n->attr.view.stride, shape->rank);
        // Which elements of a value still to be computed are read is structure: they may be
        // computed where they are read.
        if (n->op == TNI_view && n->src[0]->state == TNI_PENDING && n->src[0]->op != TNI_update)
            put_int(w, n->attr.view.offset);
        break;
    }
    case TNI_pad: put_ints(w, n->attr.pad.before, n->rank); break;
    case TNI_conv:
    case TNI_conv_dgrad:
    case TNI_conv_wgrad: put(w, &n->attr.conv, sizeof n->attr.conv); break;
    case TNI_attention:
    case TNI_attention_grad: put_int(w, n->attr.attention.causal); break;
    case TNI_custom:
        put(w, &n->attr.custom.def, sizeof n->attr.custom.def);
        put_int(w, (int64_t)n->attr.custom.count);
        put(w, n->attr.custom.bytes, n->attr.custom.count);
        break;
    case TNI_part: put_int(w, n->attr.custom.start); break;
    default:
        if (tni_op_table[n->op].class == TNI_REDUCE) put_int(w, n->attr.reduce.axes);
        else if (n->op == TNI_argsort || n->op == TNI_concat || n->op == TNI_gather ||
                 n->op == TNI_scatter || n->op == TNI_scatter_add ||
                 tni_op_table[n->op].class == TNI_SCAN)
            put_int(w, n->attr.axis.axis * 2 + n->attr.axis.descending);
    }
}

_Static_assert(TNI_OPS <= 256, "an op is a byte of the key");

// A source: which item, or which input by what layout. Two computed views of one input may begin at
// different places another time, so the key also tells whether they are one view: while it is
// written, the mark of a computed view is its number.
static void put_source(writer *w, tni_node *src)
{
    if (src->state == TNI_PENDING) {
        put_int(w, (int64_t)src->mark - 1);
        return;
    }
    int64_t   offset;
    tni_view  v    = tni_node_layout(src);
    tni_node *base = tni_node_base(src, &offset);
    put_int(w, ~((int64_t)base->mark - 1));
    if (src != base && !src->mark) src->mark = ++w->views;
    put_int(w, v.rank | (src != base ? (int64_t)src->mark << 8 : 0));
    put_ints(w, v.size, v.rank);
    put_ints(w, v.stride, v.rank);
}

// Inputs that share a buffer, or that may be written in place, make another plan.
static void put_input(writer *w, const tni_graph *g, size_t i)
{
    const tni_node *n     = g->input[i].n;
    size_t          first = i;
    for (size_t k = 0; k < i && first == i && n->buf->refs > 1; k++)
        if (g->input[k].n->buf == n->buf) first = k;
    put_int(w, (int64_t)first * 4 + g->input[i].dies * 2 + tni_input_free(&g->input[i]));
    put_int(w, n->dtype);
}

static bool is_computed_view(const tni_node *src)
{
    return src->state != TNI_PENDING && src->op == TNI_view;
}

static void forget_views(const tni_graph *g)
{
    for (size_t i = 0; i < g->count; i++)
        for (uint32_t s = 0; s < g->item[i].n->nsrc; s++)
            if (is_computed_view(g->item[i].n->src[s])) g->item[i].n->src[s]->mark = 0;
}

char *tni_key_write(const tni_graph *g, size_t *bytes)
{
    writer w = { .cx = g->cx };
    put_int(&w, g->mode);
    for (size_t i = 0; i < g->count; i++) {
        const tni_item *it = &g->item[i];
        const tni_node *n  = it->n;
        put_int(&w, n->op | n->dtype << 8 | n->rank << 16 | (int64_t)it->live << 24 |
                        (int64_t)it->keeps << 25 | (int64_t)it->joined << 26 |
                        (int64_t)n->nsrc << 32);
        put_ints(&w, n->size, n->rank);
        for (uint32_t s = 0; s < n->nsrc; s++) put_source(&w, n->src[s]);
        put_attr(&w, n);
    }
    for (size_t i = 0; i < g->inputs; i++) put_input(&w, g, i);
    forget_views(g);
    if (!w.failed) {
        *bytes = w.count;
        return w.bytes;
    }
    tni_free(&g->cx->heap, w.bytes);
    return tni_fail_memory(g->cx, "evaluating");
}
