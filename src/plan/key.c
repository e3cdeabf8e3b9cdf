// The key of a plan: the structure of a graph as bytes. Two graphs with equal bytes share a plan.
//
// In the key, because decisions, kernels or memory depend on it:
//
// - what started the evaluation (read, flush, step)
// - per item: op, dtype, shape, whether it is stored, whether it keeps its sources; which item or
//   input each source is; attributes that attr.def calls KEY, AXES or BYTES; whether it is computed
//   again for a backward pass, and whether it is the first of those of its call; whether it is a
//   weight's copy in 16 bits
// - per source that is an input: its shape and strides, and which sources are the same view
// - per input: dtype, which inputs share a buffer, whether it dies and may be overwritten
//
// Not in the key, because every run fills it in anew: numbers (learning rate, scale), random keys
// and counters, addresses, and where views of computed values begin.
//
// So a program builds a second plan if a size, a dtype or the code path differs; if another set of
// values is stored, as when a loss is read within one step and not within the next; if an input
// dies in one run and is held by a tensor in another; or if two inputs share a buffer in one run
// only, as parameters do once an optimizer has moved them into one block. `TN_LOG=plan` prints the
// first difference (inspect/plan_log.c). A plan can also be replaced under the same key, when its
// kernels spill registers: see engine/prepare.c.
#include "plan/plan.h"

#include <string.h>

// A key being written, in words of 64 bits.
typedef struct {
    tn_ctx  *cx;
    int64_t *word;
    size_t   count, cap;
    uint32_t views;   // numbers given to computed views so far
    uint32_t region;  // of the last item that is computed again
} key_writer;

// Makes room for more words, so that the functions that put them need no check. False when memory
// is out.
static bool reserve_words(key_writer *w, size_t words)
{
    if (w->count + words <= w->cap) return true;
    size_t   cap = 2 * w->cap + words;
    int64_t *p   = tni_resize(&w->cx->heap, w->word, cap * sizeof *p);
    if (!p) return false;
    w->word = p;
    w->cap  = cap;
    return true;
}

static inline void put_key_word(key_writer *w, int64_t v)
{
    w->word[w->count++] = v;
}

static inline void put_key_words(key_writer *w, const int64_t *v, int n)
{
    for (int i = 0; i < n; i++) put_key_word(w, v[i]);
}

// Returns the words that a number of bytes takes.
static size_t key_words(size_t bytes)
{
    return (bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
}

// Appends bytes, padded to whole words with zeros: equal bytes must give equal words.
static void put_key_bytes(key_writer *w, const void *p, size_t bytes)
{
    size_t words = key_words(bytes);
    if (!words) return;
    w->word[w->count + words - 1] = 0;
    memcpy(w->word + w->count, p, bytes);
    w->count += words;
}

// Whether the place where a view begins is structure. If its source is still to be computed, a
// kernel may compute just the elements that the view reads, so another offset is another kernel. In
// a computed value, and in an update, whose place is known at run time only, the offset is an
// argument of the run.
static bool begins_in_pending(const tni_node *n)
{
    return n->op == TNI_view && n->src[0]->state == TNI_PENDING && n->src[0]->op != TNI_update;
}

// Appends the attributes of an op that are structure. attr.def has a line for every field that
// exists, so that no field can be forgotten here.
static void put_attr(key_writer *w, const tni_node *n)
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
#define PUT_KEY(x)  put_key_bytes(w, &x, sizeof x);
#define PUT_AXES(x) put_key_words(w, x, n->op == TNI_view ? n->rank : n->src[n->nsrc - 1]->rank);
#define PUT_PLACE(x) \
    if (begins_in_pending(n)) put_key_word(w, x);
#define PUT_BYTES(x) put_key_bytes(w, x, a->count);
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

// Appends a source: the item, or the input with the layout it is read by. An input read whole needs
// no strides. Two computed views of one input that begin at the same place in this run may not do
// so in the next, so a plan may not merge their loads unless they are the same view in every run:
// the key numbers the computed views it meets, using their marks while it is written.
// tni_key_source_words counts what is appended here.
static void put_source(key_writer *w, tni_node *src)
{
    if (src->state == TNI_PENDING) {
        put_key_word(w, (int64_t)src->mark - 1);
        return;
    }
    int64_t   offset;
    tni_node *base = tni_node_base(src, &offset);
    put_key_word(w, ~((int64_t)base->mark - 1));
    if (src != base && !src->mark) src->mark = ++w->views;
    put_key_word(w, src->rank | (src != base ? (int64_t)src->mark << 8 : 0));
    put_key_words(w, src->size, src->rank);
    if (src != base) put_key_words(w, src->attr.view.stride, src->rank);
}

size_t tni_key_source_words(const tni_node *src)
{
    int64_t offset;
    if (src->state == TNI_PENDING) return 1;
    bool whole = tni_node_base((tni_node *)src, &offset) == src;
    return 2 + (size_t)src->rank * (whole ? 1 : 2);
}

// Appends an input: the first input in the same buffer, whether it dies, whether it may be updated
// in place. Inputs that share a buffer, or may be overwritten, make another plan.
static void put_input(key_writer *w, const tni_graph *g, size_t i)
{
    const tni_node *n     = g->input[i].n;
    size_t          first = i;
    for (size_t k = 0; k < i && first == i && n->buf->refs > 1; k++)
        if (g->input[k].n->buf == n->buf) first = k;
    put_key_word(w, (int64_t)first * 4 + g->input[i].dies * 2 + tni_input_is_free(&g->input[i]));
    put_key_word(w, n->dtype);
}

static bool is_computed_view(const tni_node *src)
{
    return src->state != TNI_PENDING && src->op == TNI_view;
}

// Removes the marks of computed views that put_source set.
static void forget_views(const tni_graph *g)
{
    for (size_t i = 0; i < g->count; i++)
        for (uint32_t s = 0; s < g->item[i].n->nsrc; s++)
            if (is_computed_view(g->item[i].n->src[s])) g->item[i].n->src[s]->mark = 0;
}

// Returns the most words that an item takes in the key, so that its room is reserved once.
static size_t most_words(const tni_node *n)
{
    size_t source = 2 + 2 * TN_MAX_RANK, attr = key_words(sizeof n->attr);
    if (n->op == TNI_custom) attr += key_words(n->attr.custom.count);
    return 1 + TN_MAX_RANK + n->nsrc * source + attr;
}

// Appends an item: one word of op, dtype, rank, stored, keeps_sources, whether its index needs a
// check, and number of sources; then its sizes, sources and attributes.
static bool put_item(key_writer *w, const tni_item *it)
{
    const tni_node *n     = it->n;
    int64_t         again = n->again ? n->region != w->region ? 3 : 1 : 0;
    if (n->again) w->region = n->region;
    if (!reserve_words(w, most_words(n))) return false;
    put_key_word(w, n->op | n->dtype << 8 | n->rank << 16 | (int64_t)(it->why != 0) << 24 |
                        (int64_t)it->keeps_sources << 25 | (int64_t)tni_node_may_fail(n) << 26 |
                        again << 27 | (int64_t)n->apart << 29 | (int64_t)n->nsrc << 32);
    put_key_words(w, n->size, n->rank);
    for (uint32_t s = 0; s < n->nsrc; s++) put_source(w, n->src[s]);
    put_attr(w, n);
    return true;
}

char *tni_key_write(const tni_graph *g, size_t *bytes)
{
    key_writer w  = { .cx = g->cx };
    bool       ok = reserve_words(&w, 1 + 12 * g->count + 2 * g->inputs);
    if (ok) put_key_word(&w, g->mode);
    for (size_t i = 0; ok && i < g->count; i++) ok = put_item(&w, &g->item[i]);
    ok = ok && reserve_words(&w, 2 * g->inputs);
    for (size_t i = 0; ok && i < g->inputs; i++) put_input(&w, g, i);
    forget_views(g);
    *bytes = w.count * sizeof *w.word;
    if (ok) return (char *)w.word;
    tni_free(&g->cx->heap, w.word);
    return tni_fail_memory(g->cx, "evaluating");
}
