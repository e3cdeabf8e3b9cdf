// The canonical form: a graph's structure as bytes. Sizes, strides, ops and who is stored are in
// it; numbers, offsets, random counters and addresses are not, since they are run-time arguments.
#include "plan/plan.h"

#include <string.h>

typedef struct {
    tn_ctx  *cx;
    int64_t *word;
    size_t   count, cap;
    uint32_t views;  // computed ones met so far
} writer;

// Makes room for so many words, which the puts below then take as given. False: memory is out.
static bool reserve(writer *w, size_t words)
{
    if (w->count + words <= w->cap) return true;
    size_t   cap = 2 * w->cap + words;
    int64_t *p   = tni_resize(&w->cx->heap, w->word, cap * sizeof *p);
    if (!p) return false;
    w->word = p;
    w->cap  = cap;
    return true;
}

static inline void put(writer *w, int64_t v)
{
    w->word[w->count++] = v;
}

static inline void put_all(writer *w, const int64_t *v, int n)
{
    for (int i = 0; i < n; i++) put(w, v[i]);
}

// How many words the bytes of something take, and they themselves.
static size_t words_of(size_t bytes)
{
    return (bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
}

static void put_bytes(writer *w, const void *p, size_t bytes)
{
    size_t words = words_of(bytes);
    if (!words) return;
    w->word[w->count + words - 1] = 0;
    memcpy(w->word + w->count, p, bytes);
    w->count += words;
}

// Which elements of a value still to be computed a view reads is structure: they may be computed where
// they are read. Elsewhere it is a number of the run.
static bool begins_in_pending(const tni_node *n)
{
    return n->op == TNI_view && n->src[0]->state == TNI_PENDING && n->src[0]->op != TNI_update;
}

// The part of an op's attributes that is structure, as attr.def has it.
static void put_attr(writer *w, const tni_node *n)
{
    switch ((tni_attr_kind)tni_op_table[n->op].attr) {
#define KIND(kind)          \
    case TNI_ATTR_##kind: { \
        const struct tni_attr_##kind *a = &n->attr.kind;
#define FIELD(whose, type, name, array) PUT_##whose(a->name)
#define END(kind) \
    (void)a;      \
    break;        \
    }
#define PUT_KEY(x)  put_bytes(w, &x, sizeof x);
#define PUT_AXES(x) put_all(w, x, n->op == TNI_view ? n->rank : n->src[n->nsrc - 1]->rank);
#define PUT_PLACE(x) \
    if (begins_in_pending(n)) put(w, x);
#define PUT_BYTES(x) put_bytes(w, x, a->count);
#define PUT_RUN(x)
#define PUT_GRAD(x)
#include "tensor/attr.def"
#undef KIND
#undef FIELD
#undef END
    case TNI_ATTR_none:
    case TNI_ATTR_KINDS: break;
    }
}

// No kind has more fields than the words of tni_attr: see most_words.
#define KIND(kind)                      _Static_assert(0
#define FIELD(whose, type, name, array) +(sizeof(type array) + 7) / 8
#define END(kind)                       <= sizeof(tni_attr) / 8, #kind);
#include "tensor/attr.def"
#undef KIND
#undef FIELD
#undef END

_Static_assert(TNI_OPS <= 256, "an op is a byte of the key");

// A source: which item, or which input by what layout, of which the strides say nothing where it is
// the whole. Two computed views of one input may begin at different places another time, so the key
// also tells whether they are one view: while it is written, the mark of a computed view is its
// number.
static void put_source(writer *w, tni_node *src)
{
    if (src->state == TNI_PENDING) {
        put(w, (int64_t)src->mark - 1);
        return;
    }
    int64_t   offset;
    tni_node *base = tni_node_base(src, &offset);
    put(w, ~((int64_t)base->mark - 1));
    if (src != base && !src->mark) src->mark = ++w->views;
    put(w, src->rank | (src != base ? (int64_t)src->mark << 8 : 0));
    put_all(w, src->size, src->rank);
    if (src != base) put_all(w, src->attr.view.stride, src->rank);
}

// Inputs that share a buffer, or that may be written in place, make another plan.
static void put_input(writer *w, const tni_graph *g, size_t i)
{
    const tni_node *n     = g->input[i].n;
    size_t          first = i;
    for (size_t k = 0; k < i && first == i && n->buf->refs > 1; k++)
        if (g->input[k].n->buf == n->buf) first = k;
    put(w, (int64_t)first * 4 + g->input[i].dies * 2 + tni_input_is_free(&g->input[i]));
    put(w, n->dtype);
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

// As many words as an item's part of the key takes at most.
static size_t most_words(const tni_node *n)
{
    size_t source = 2 + 2 * TN_MAX_RANK, attr = words_of(sizeof n->attr);
    if (n->op == TNI_custom) attr += words_of(n->attr.custom.count);
    return 1 + TN_MAX_RANK + n->nsrc * source + attr;
}

static bool put_item(writer *w, const tni_item *it)
{
    const tni_node *n = it->n;
    if (!reserve(w, most_words(n))) return false;
    put(w, n->op | n->dtype << 8 | n->rank << 16 | (int64_t)(it->why != 0) << 24 |
               (int64_t)it->keeps << 25 | (int64_t)n->nsrc << 32);
    put_all(w, n->size, n->rank);
    for (uint32_t s = 0; s < n->nsrc; s++) put_source(w, n->src[s]);
    put_attr(w, n);
    return true;
}

char *tni_key_write(const tni_graph *g, size_t *bytes)
{
    writer w  = { .cx = g->cx };
    bool   ok = reserve(&w, 1 + 12 * g->count + 2 * g->inputs);
    if (ok) put(&w, g->mode);
    for (size_t i = 0; ok && i < g->count; i++) ok = put_item(&w, &g->item[i]);
    ok = ok && reserve(&w, 2 * g->inputs);
    for (size_t i = 0; ok && i < g->inputs; i++) put_input(&w, g, i);
    forget_views(g);
    *bytes = w.count * sizeof *w.word;
    if (ok) return (char *)w.word;
    tni_free(&g->cx->heap, w.word);
    return tni_fail_memory(g->cx, "evaluating");
}
