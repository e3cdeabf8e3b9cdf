// Bodies of loops: from nodes that were recorded over placeholders to a body of its own nodes.
//
//   while_body_is_recorded:  h' = tanh(x + h @ transpose(w)) * (s + 1)
//   inside:                  transpose, matmul, add, tanh, mul       they depend on h or x, or are views and numbers
//   captured:                w, s + 1                                computed once, before the loop
//
// The way there, over the nodes that the roots are made of, in order of ids:
//
//   list_body     the roots, and back from them to the seeds and to what was recorded before the body
//   find_inside   which of them are copied, and which are read as they are
//   add_inputs    a placeholder for each seed that is read, and for each node that is captured
//   copy_body     the copies, over placeholders and other copies
//   add_outs      an output for each root; copies of what no step of the body would compute
//   write_body    what the body computes as words, by which an equal one is found
//
// A number is inside, since it is an argument of the kernel that reads it; so is a view made in the
// body of a captured value, which costs nothing there and would be a copy outside. A view that was
// made before the body is captured as it is: a gradient may be asked for it by name.
#include "ops/loop.h"

#include <string.h>

// What is found while a body is built. inside: the node is copied into the body; needed: something
// of the body reads it; copy: its copy, or the placeholder in its place. Invariant: the mark of
// node[i] is i + 1 while this is open.
typedef struct {
    tn_ctx         *cx;
    tni_loop_parts *p;
    size_t          count, cap;
    tni_node      **node, **copy;
    bool           *inside, *needed;
} builder;

static int seeds(const tni_loop_parts *p)
{
    return p->carries + p->xs + p->consts;
}

tni_node *tni_placeholder(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size)
{
    tni_buffer *b = tni_buffer_borrow(&cx->buffers, NULL, NULL, NULL);
    if (!b) return tni_fail_memory(cx, "scan");
    tni_node *n = tni_node_in_buffer(cx, dt, rank, size, b, 0);
    tni_buffer_unref(&cx->buffers, b);
    return n;
}

// ---- which nodes -------------------------------------------------------------------------------

// Whether a node is a seed that needs a gradient, without its leaf: what was detached from it reads
// this.
static bool is_detached(const tni_node *seed, const tni_node *n)
{
    return seed->leaf && seed->op == TNI_view && seed->src[0] == n;
}

// Every use of a tensor that needs a gradient may have a node of its own, with its leaf.
static int seed_of(const tni_loop_parts *p, const tni_node *n)
{
    for (int i = 0; i < seeds(p); i++)
        if (p->seed[i] == n || (n->leaf && n->leaf == p->seed[i]->leaf) ||
            is_detached(p->seed[i], n))
            return i;
    return -1;
}

// A view of a value, and no mark of a leaf.
static bool is_plain_view(const tni_node *n)
{
    return n->op == TNI_view && !n->leaf;
}

// Whether a value costs nothing where it is read: a number, or counted.
static bool is_free(const tni_node *n)
{
    return tni_is_number(n->op) || n->op == TNI_iota;
}

// Lists a node once.
static bool list_body_node(builder *b, tni_node *n)
{
    if (n->mark) return true;
    if (!tni_grow(&b->cx->heap, (void **)&b->node, &b->cap, b->count + 1, sizeof *b->node))
        return tni_no_memory(b->cx, b->p->op);
    b->node[b->count++] = n;
    n->mark             = 1;
    return true;
}

// Lists the roots and all that they are made of, back to the seeds and to what was recorded before.
// The list grows while it is read.
static bool list_body(builder *b)
{
    for (int i = 0; i < b->p->roots; i++)
        if (!list_body_node(b, b->p->root[i])) return false;
    for (size_t i = 0; i < b->count; i++) {
        tni_node *n = b->node[i];
        if (seed_of(b->p, n) >= 0 || n->id < b->p->first || n->leaf) continue;
        if (n->state != TNI_PENDING && n->op != TNI_view) continue;
        for (uint32_t s = 0; s < n->nsrc; s++)
            if (!list_body_node(b, n->src[s])) return false;
    }
    if (!tni_nodes_sort(&b->cx->heap, b->count, b->node)) return tni_no_memory(b->cx, b->p->op);
    for (size_t i = 0; i < b->count; i++) b->node[i]->mark = (uint32_t)i + 1;
    return true;
}

// Oldest first: a node is inside if a source is made from a seed. Then newest first: numbers are
// inside as well, and views made in the body of what is captured, so that no copy of a transposed
// weight is made.
static void find_inside(builder *b)
{
    for (size_t i = 0; i < b->count; i++) {
        tni_node *n  = b->node[i];
        b->inside[i] = seed_of(b->p, n) >= 0;
        if (b->inside[i] || n->id < b->p->first) continue;
        for (uint32_t s = 0; s < n->nsrc; s++)
            b->inside[i] |= n->src[s]->mark && b->inside[n->src[s]->mark - 1];
    }
    for (int i = 0; i < b->p->roots; i++) b->needed[b->p->root[i]->mark - 1] = true;
    for (size_t i = b->count; i-- > 0;) {
        tni_node *n = b->node[i];
        if (is_free(n) || (is_plain_view(n) && n->id >= b->p->first)) b->inside[i] = true;
        if (b->p->all && n->state == TNI_PENDING) b->inside[i] = true;
        if (!b->needed[i] || !b->inside[i] || seed_of(b->p, n) >= 0) continue;
        for (uint32_t s = 0; s < n->nsrc; s++) b->needed[n->src[s]->mark - 1] = true;
    }
}

// ---- copies ------------------------------------------------------------------------------------

// The body takes over the reference of a new node.
static bool keep_node(tni_loop *l, tni_node *n)
{
    if (n) l->node[l->count++] = n;
    return n != NULL;
}

// Adds a placeholder for node n as the next input.
static tni_node *add_input(builder *b, tni_loop *l, const tni_node *n)
{
    int at = tni_loop_inputs(l);
    if (at == TNI_LOOP_INPUTS)
        return tni_fail(b->cx, TN_EARG, "%s: the body reads more than %d tensors", b->p->op,
                        TNI_LOOP_INPUTS);
    l->in[at] = tni_placeholder(b->cx, (tn_dtype)n->dtype, n->rank, n->size);
    if (l->in[at]) l->in[at]->below = n->below;
    return keep_node(l, l->in[at]) ? l->in[at] : NULL;
}

// An input as a view of all of it that no gradient passes.
static tni_node *detached_input(builder *b, tni_loop *l, tni_node *in)
{
    tni_view  v = tni_view_whole(in->rank, in->size);
    tni_node *n = tni_node_view(b->cx, in, &v);
    if (!keep_node(l, n)) return NULL;
    l->stops[l->count - 1] = true;
    return n;
}

// The seeds, carries first, then those that are read; then what is captured, in order of ids.
static bool add_inputs(builder *b, tni_loop *l)
{
    tni_loop_parts *p = b->p;
    for (int i = 0; i < seeds(p); i++) {
        bool read = false;
        for (size_t k = 0; k < b->count; k++) read |= b->needed[k] && seed_of(p, b->node[k]) == i;
        if (i >= p->carries && !read) continue;
        tni_node *in = add_input(b, l, p->seed[i]);
        if (!in) return false;
        for (size_t k = 0; k < b->count; k++) {
            if (seed_of(p, b->node[k]) != i) continue;
            b->copy[k] = is_detached(p->seed[i], b->node[k]) ? detached_input(b, l, in) : in;
            if (!b->copy[k]) return false;
        }
        if (i < p->carries) l->carries++;
        else p->from[tni_loop_inputs(l) - p->carries] = i;
        if (i >= p->carries && i < p->carries + p->xs) l->xs++;
        else if (i >= p->carries) l->consts++;
    }
    for (size_t i = 0; i < b->count; i++) {
        if (!b->needed[i] || b->inside[i]) continue;
        int at = tni_loop_inputs(l) - p->carries;
        if (!(b->copy[i] = add_input(b, l, b->node[i]))) return false;
        p->from[at]     = seeds(p);
        p->captured[at] = b->node[i];
        l->consts++;
    }
    return true;
}

// Whether a gradient ends at a node: it was recorded without one over sources that have one.
static bool stops_gradient(const tni_node *n)
{
    bool some = false;
    for (uint32_t s = 0; s < n->nsrc; s++) some |= tni_passes_grad_to(n, n->src[s]);
    return some && !n->needs_grad && tni_is_float((tn_dtype)n->dtype) &&
           tni_op_table[n->op].has_grad;
}

// Copies what is inside, oldest first. The copies belong to no gradient.
static bool copy_body(builder *b, tni_loop *l)
{
    size_t most = 1;
    for (size_t i = 0; i < b->count; i++)
        if (b->node[i]->nsrc > most) most = b->node[i]->nsrc;
    tni_node **src = tni_alloc(&b->cx->heap, most * sizeof *src);
    bool       ok  = src || tni_no_memory(b->cx, b->p->op);
    for (size_t i = 0; ok && i < b->count; i++) {
        tni_node *n = b->node[i];
        if (!b->needed[i] || b->copy[i]) continue;
        for (uint32_t s = 0; s < n->nsrc; s++) src[s] = b->copy[n->src[s]->mark - 1];
        b->copy[i] = tni_record_copy(b->cx, n, src);
        ok         = keep_node(l, b->copy[i]);
        if (!ok) break;
        b->copy[i]->site       = n->site;
        l->stops[l->count - 1] = stops_gradient(n);
    }
    tni_free(&b->cx->heap, src);
    return ok;
}

static bool is_out(const tni_loop *l, const tni_node *n)
{
    for (int i = 0; i < l->outs; i++)
        if (l->out[i] == n) return true;
    return false;
}

// An output is a value that a step of its own computes: anything else is copied.
static bool add_outs(builder *b, tni_loop *l)
{
    for (int i = 0; i < b->p->roots; i++) {
        tni_node *n    = b->copy[b->p->root[i]->mark - 1];
        bool      made = n->state == TNI_PENDING && n->op != TNI_view && !is_free(n) &&
                    tni_op_table[n->op].class != TNI_EFFECT;
        if (!made || is_out(l, n)) {
            tni_node *copy = tni_node_new(b->cx, TNI_copy, (tn_dtype)n->dtype, n->rank, n->size, 1,
                                          &n);
            if (!keep_node(l, copy)) return false;
            copy->site = n->site;
            n          = copy;
        }
        l->out[l->outs++] = n;
    }
    l->declared = l->outs;
    return true;
}

int tni_loop_add_out(tni_loop *l, tni_node *n)
{
    for (int i = 0; i < l->outs; i++)
        if (l->out[i] == n) return i;
    if (l->outs == TNI_LOOP_OUTPUTS) return -1;
    l->out[l->outs] = n;
    return l->outs++;
}

// ---- keeping -----------------------------------------------------------------------------------

// What a body computes as words: its counts, then for every node op, dtype, shape, sources by
// number, and all of its attributes, numbers of runs among them: they are those of the body.
typedef struct {
    tn_ctx  *cx;
    int64_t *word;
    size_t   count, cap;
    bool     ok;
} words;

static void put_word(words *w, int64_t v)
{
    w->ok = w->ok &&
            tni_grow(&w->cx->heap, (void **)&w->word, &w->cap, w->count + 1, sizeof *w->word);
    if (w->ok) w->word[w->count++] = v;
}

// Padded with zeros, so that equal bytes are equal words.
static void put_bytes(words *w, const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(int64_t)) {
        int64_t v = 0;
        memcpy(&v, (const char *)p + i, bytes - i < sizeof v ? bytes - i : sizeof v);
        put_word(w, v);
    }
}

// Every field of attr.def, those of runs as well: bodies that differ in a number are two. A view of
// one source has no rule of its own.
static void put_all_attrs(words *w, const tni_node *n)
{
    int axes = n->op == TNI_view || !n->nsrc ? n->rank : n->src[n->nsrc - 1]->rank;
    switch ((tni_attr_kind)tni_op_table[n->op].attr) {
#define KIND(kind)          \
    case TNI_ATTR_##kind: { \
        const struct tni_attr_##kind *a = &n->attr.kind;
#define FIELD(whose, type, name, array) PUT_##whose(a->name)
#define END(kind) \
    (void)a;      \
    break;        \
    }
#define PUT_KEY(x)   put_bytes(w, &x, sizeof x);
#define PUT_AXES(x)  put_bytes(w, x, (size_t)axes * sizeof *x);
#define PUT_PLACE(x) put_word(w, x);
#define PUT_BYTES(x) put_bytes(w, x, a->count);
#define PUT_RUN(x)   put_bytes(w, &x, sizeof x);
#define PUT_GRAD(x) \
    if (n->op != TNI_view || n->nsrc > 1) put_bytes(w, &x, sizeof x);
#include "tensor/attr.def"
#undef KIND
#undef FIELD
#undef END
    case TNI_ATTR_none:
    case TNI_ATTR_KINDS: break;
    }
}

// Nodes are known by their places in the body, which are in their marks meanwhile.
static bool write_body(tni_loop *l)
{
    words w = { .cx = l->cx, .ok = true };
    put_word(&w, l->carries | l->xs << 8 | l->consts << 16 | l->outs << 24);
    for (size_t i = 0; i < l->count; i++) {
        const tni_node *n = l->node[i];
        put_word(&w, n->op | n->dtype << 8 | n->rank << 16 | (int64_t)n->nsrc << 24 |
                         (int64_t)l->stops[i] << 60);
        put_bytes(&w, n->size, (size_t)n->rank * sizeof *n->size);
        if (n->state != TNI_PENDING && n->op != TNI_view) put_word(&w, n->below);
        else put_all_attrs(&w, n);
        for (uint32_t s = 0; s < n->nsrc; s++) put_word(&w, n->src[s]->mark);
        l->node[i]->mark = (uint32_t)i + 1;
    }
    for (int i = 0; i < l->outs; i++) put_word(&w, l->out[i]->mark);
    for (size_t i = 0; i < l->count; i++) l->node[i]->mark = 0;
    l->key   = w.word;
    l->words = w.count;
    return w.ok || tni_no_memory(l->cx, "scan");
}

// Gradients of the body first: they are its own, while their bodies are in the list of the context.
static void free_loop(tni_loop *l)
{
    if (l->forget_grads) l->forget_grads(l);
    while (l->count) tni_node_unref(l->cx, l->node[--l->count]);
    tni_free(&l->cx->heap, l->node);
    tni_free(&l->cx->heap, l->stops);
    tni_free(&l->cx->heap, l->key);
    tni_free(&l->cx->heap, l);
}

void tni_loops_close(tn_ctx *cx)
{
    while (cx->loops) {
        tni_loop *l = cx->loops;
        cx->loops   = l->next;
        free_loop(l);
    }
}

// Puts a body into the context's list, or frees it and returns one that is equal to it.
static tni_loop *keep_loop(tni_loop *l)
{
    for (tni_loop *k = l->cx->loops; k; k = k->next)
        if (k->words == l->words && !memcmp(k->key, l->key, l->words * sizeof *l->key)) {
            free_loop(l);
            return k;
        }
    l->next      = l->cx->loops;
    l->cx->loops = l;
    return l;
}

// Neither gradients nor evaluations: the nodes that are looked at are pending.
tni_loop *tni_loop_build(tn_ctx *cx, tni_loop_parts *p)
{
    builder   b    = { .cx = cx, .p = p };
    bool      busy = cx->busy, mode = cx->grad_mode;
    tni_loop *l   = tni_zalloc(&cx->heap, sizeof *l);
    cx->busy      = true;
    cx->grad_mode = false;
    bool ok       = l || tni_no_memory(cx, p->op);
    ok            = ok && list_body(&b);
    if (ok) {
        l->cx       = cx;
        b.copy      = tni_zalloc(&cx->heap, b.count * sizeof *b.copy);
        b.inside    = tni_zalloc(&cx->heap, b.count * sizeof *b.inside);
        b.needed    = tni_zalloc(&cx->heap, b.count * sizeof *b.needed);
        size_t most = b.count + (size_t)(2 * seeds(p) + p->roots);
        l->node     = tni_alloc(&cx->heap, most * sizeof *l->node);
        l->stops    = tni_zalloc(&cx->heap, most * sizeof *l->stops);
        ok = (b.copy && b.inside && b.needed && l->node && l->stops) || tni_no_memory(cx, p->op);
    }
    if (ok) find_inside(&b);
    ok = ok && add_inputs(&b, l) && copy_body(&b, l) && add_outs(&b, l);
    for (size_t i = 0; i < b.count; i++) b.node[i]->mark = 0;
    ok = ok && write_body(l);
    tni_free(&cx->heap, b.node);
    tni_free(&cx->heap, b.copy);
    tni_free(&cx->heap, b.inside);
    tni_free(&cx->heap, b.needed);
    cx->busy      = busy;
    cx->grad_mode = mode;
    if (ok) return keep_loop(l);
    if (l && l->cx) free_loop(l);
    else tni_free(&cx->heap, l);
    return NULL;
}
