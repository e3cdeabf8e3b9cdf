// Memory: where each value lies, which values share a place, which writes happen in place. All of
// it is decided before anything runs, so that running cannot fail for want of memory and a step is
// all or nothing.
#include "plan/arena.h"
#include "plan/fuse.h"

#include <string.h>

// A plan in the making. The arrays are by place: first one per item, of which a root's counts, then
// one per input; when is by item.
typedef struct {
    tni_graph        *g;
    const tni_limits *limits;
    tni_plan         *plan;
    uint32_t         *when;      // the step that computes it
    uint32_t         *last;      // the last step that reads it
    bool             *stored;    // something in it outlives the evaluation
    bool             *gone;      // a result has taken its place
    size_t            fallible;  // one past the last step that can fail
    tni_arena_span   *span;      // of the arena
    size_t            spans;
    uint32_t         *in;  // by item: the span that a root of the arena lies in
} builder;

// The place that a source's elements lie in: a root item, or count + input.
static uint32_t place_of(const builder *b, const tni_node *src)
{
    const tni_graph *g = b->g;
    if (src->state == TNI_PENDING) {
        const tni_item *it = &g->item[src->mark - 1];
        if (it->base < 0) return (uint32_t)g->count + (uint32_t)~it->base;
        const tni_place *p = &b->plan->place[it->base];
        return p->where == TNI_INPUT ? (uint32_t)g->count + p->root : p->root;
    }
    int64_t   skip;
    tni_node *base = tni_node_base((tni_node *)src, &skip);
    return (uint32_t)g->count + base->mark - 1;
}

// ---- who reads what, last ----------------------------------------------------------------------

static void read_place(builder *b, uint32_t at, size_t step)
{
    if (b->last[at] < step) b->last[at] = (uint32_t)step;
}

static void read_sources(builder *b, size_t i, size_t step)
{
    tni_node *n = b->g->item[i].n;
    for (uint32_t s = 0; s < n->nsrc; s++) read_place(b, place_of(b, n->src[s]), step);
}

static void read_buffers(builder *b, const tni_planned_kernel *k, size_t step)
{
    size_t count = b->g->count;
    if (k->call_item >= 0) read_sources(b, (size_t)k->call_item, step);
    for (int i = 0; i < k->kernel->nbuffer; i++) {
        int32_t at = k->buffer[i];
        read_place(b, at >= 0 ? (uint32_t)at : (uint32_t)(count + (size_t)~at), step);
    }
    for (int i = 0; i < k->kernel->nins; i++)
        if (k->kernel->ins[i].code == TNI_I_CHECK) b->fallible = step + 1;
}

// The call of an item makes all its outputs.
static void make_item(builder *b, int32_t item, size_t step)
{
    b->plan->place[item].where = TNI_ARENA;
    b->when[item] = b->last[item] = (uint32_t)step;
    for (const tni_node *o = tni_outputs(b->g->item[item].n); o; o = o->output)
        make_item(b, (int32_t)o->mark - 1, step);
}

// Each item's own place first; then every read moves the end of what it reads. Sharing a place
// later joins the ends. Items that no step stores have no place.
static void find_reads(builder *b)
{
    tni_graph *g = b->g;
    for (size_t i = 0; i < g->count; i++) b->plan->place[i].root = (uint32_t)i;
    for (size_t t = 0; t < b->plan->steps; t++) {
        tni_plan_step step = b->plan->step[t];
        if (step >= 0) {
            make_item(b, step, t);
            if (tni_op_table[g->item[step].n->op].fails) b->fallible = t + 1;
            continue;
        }
        const tni_planned_kernel *k = &b->plan->kernel[~step];
        if (k->call_item >= 0) make_item(b, k->call_item, t);
        for (size_t i = 0; i < k->seeds; i++)
            if (k->seed[i] >= 0) make_item(b, k->seed[i], t);
    }
    for (size_t t = 0; t < b->plan->steps; t++) {
        tni_plan_step step = b->plan->step[t];
        if (step >= 0) read_sources(b, (size_t)step, t);
        else read_buffers(b, &b->plan->kernel[~step], t);
    }
    if (b->limits->checked) b->fallible = b->plan->steps;
}

// ---- sharing places ----------------------------------------------------------------------------

// Item i shares the place `at` of its source: an assignment of a row-major value, an update in place.
static void share_place(builder *b, size_t i, uint32_t at)
{
    tni_place *p = &b->plan->place[i];
    size_t     n = b->g->count;
    p->where     = at >= n ? TNI_INPUT : TNI_ARENA;
    p->root      = at >= n ? at - (uint32_t)n : at;
    if (b->last[at] < b->last[i]) b->last[at] = b->last[i];
    b->stored[at] |= b->g->item[i].why != 0;
}

// An update may write into its base's place if this is the last that is read of it, the value is
// not read from it, nothing stored lies in it, and no later step can fail and want it back.
static bool can_update(const builder *b, size_t i, uint32_t base, uint32_t value)
{
    const tni_graph *g = b->g;
    const tni_node  *n = g->item[i].n;
    if (b->last[base] != b->when[i] || base == value || b->stored[base]) return false;
    if (n->src[0]->op == TNI_view) return false;
    if (base < g->count) return true;
    if (b->limits->async_errors && b->fallible) return false;
    return b->fallible <= b->when[i] && tni_input_is_free(&g->input[base - g->count]);
}

bool tni_concat_is_flat(const tni_node *n)
{
    for (int i = 0; i < n->attr.axis.axis; i++)
        if (n->size[i] != 1) return false;
    return true;
}

// The item whose value a source of a concat is, all of it, if it can be computed into the concat's
// place; else -1.
static int64_t source_item(const builder *b, const tni_node *src)
{
    if (src->state != TNI_PENDING) return -1;
    const tni_item *it = &b->g->item[src->mark - 1];
    tni_view        v  = tni_node_layout(src);
    if (it->base < 0 || !tni_view_contiguous(&v)) return -1;
    const tni_node  *n = b->g->item[it->base].n;
    const tni_place *p = &b->plan->place[it->base];
    if (tni_node_count(n) != tni_node_count(src) || n->dtype != src->dtype) return -1;
    int  op    = n->op == TNI_output ? n->src[0]->op : n->op;
    bool moves = op == TNI_assign || op == TNI_update || op == TNI_concat || op == TNI_custom ||
                 op == TNI_view;
    return moves || p->root != (uint32_t)it->base ? -1 : it->base;
}

// The producers of a concat write straight into its slices.
static void fill_concat(builder *b, size_t i)
{
    const tni_node *n     = b->g->item[i].n;
    int64_t         start = 0;
    bool            all   = true;
    if (!tni_concat_is_flat(n)) return;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int64_t k = source_item(b, n->src[s]);
        if (k >= 0) {
            b->plan->place[k].root  = (uint32_t)i;
            b->plan->place[k].start = start;
            if (b->last[i] < b->last[k]) b->last[i] = b->last[k];
            b->stored[i] |= b->stored[k];
        }
        all &= k >= 0;
        start += tni_node_count(n->src[s]);
    }
    b->plan->place[i].filled = all;
}

// A value that lies in one run of memory can be shared as it is.
static bool is_run(const tni_node *n)
{
    tni_view v = tni_node_layout(n);
    return tni_view_contiguous(&v);
}

static void share_places(builder *b)
{
    tni_graph *g = b->g;
    for (size_t i = 0; i < g->count; i++) {
        const tni_item *it = &g->item[i];
        b->stored[i] |= it->why != 0;
        // The inputs that a view or a gradient will still look at stay as they are.
        for (uint32_t k = 0; it->keeps && k < it->n->nsrc; k++)
            if (it->n->src[k]->state != TNI_PENDING) b->stored[place_of(b, it->n->src[k])] = true;
    }
    // Before anything shares the places of their sources.
    for (size_t t = 0; t < b->plan->steps; t++) {
        tni_plan_step i = b->plan->step[t];
        if (i >= 0 && g->item[i].n->op == TNI_concat) fill_concat(b, (size_t)i);
    }
    for (size_t i = 0; i < g->count; i++) {
        tni_node  *n = g->item[i].n;
        tni_place *p = &b->plan->place[i];
        if (n->op == TNI_assign && is_run(n->src[0])) {
            p->alias = true;
            share_place(b, i, place_of(b, n->src[0]));
        } else if (n->op == TNI_update) {
            uint32_t base = place_of(b, n->src[0]);
            p->in_place   = can_update(b, i, base, place_of(b, n->src[1]));
            if (p->in_place) share_place(b, i, base);
        }
    }
}

// ---- the arena ---------------------------------------------------------------------------------

static int64_t bytes_of(const builder *b, size_t i)
{
    const tni_node *n     = b->g->item[i].n;
    int64_t         count = tni_node_count(n);
    int64_t         size  = (int64_t)b->limits->element_size((tn_dtype)n->dtype);
    if (count < 0 || count > TNI_BYTES_LIMIT / size - 64) return TNI_BYTES_LIMIT;
    int64_t bytes = count * size;
    return bytes ? (bytes + 63) / 64 * 64 : 64;
}

// When the first of those that share it comes: into a buffer of its own or the arena.
static void place_root(builder *b, uint32_t root, size_t step)
{
    tni_place *p = &b->plan->place[root];
    p->bytes     = bytes_of(b, root);
    if (b->stored[root]) {
        p->where = TNI_OWN;
        return;
    }
    b->in[root]         = (uint32_t)b->spans;
    b->span[b->spans++] = (tni_arena_span){ (uint32_t)step, b->last[root], p->bytes, 0 };
}

// What a step computes gets its place when the first of those that share it comes.
static void place_item(builder *b, size_t i, size_t step)
{
    tni_place *p = &b->plan->place[i];
    if (p->where == TNI_ARENA && !b->plan->place[p->root].bytes) place_root(b, p->root, step);
    for (const tni_node *o = tni_outputs(b->g->item[i].n); o; o = o->output)
        place_item(b, o->mark - 1, step);
}

// ---- results in the place of what they are made from -------------------------------------------

static bool same_access(const tni_planned_kernel *k, int a, int b)
{
    const tni_launch *l = &k->launch;
    return k->source[a].offset == k->source[b].offset &&
           !memcmp(l->stride[a], l->stride[b], sizeof l->stride[a]);
}

// Whether every load from buffer `from` reads the element that store `access` writes then.
static bool reads_alike(const builder *b, const tni_planned_kernel *k, int from, int access)
{
    for (int i = 0; i < k->kernel->naccess; i++) {
        const tni_access_binding *s = &k->source[i];
        if (k->kernel->access[i].buffer != from) continue;
        if (s->edge < 0 || !same_access(k, i, access)) return false;
        if (b->g->item[s->reader].n->src[s->edge]->op == TNI_view) return false;
    }
    return true;
}

// Whether what is loaded from buffer `from` is read by nothing after the value of store `access`, and
// for no other store: a device may write that as soon as it is there, compute store after store, and
// leave what it loads in place until it is read.
static bool is_read_before(const tni_kernel *k, int from, int access)
{
    bool loaded[TNI_MAX_INS] = { false }, made[TNI_MAX_INS] = { false };
    int  last = 0, value = 0;
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x          = &k->ins[i];
        int16_t        operand[3] = { x->a, x->b, x->c };
        for (int j = 0; j < 3; j++) {
            if (operand[j] >= 0 && loaded[operand[j]]) last = i;
            if (operand[j] >= 0) made[i] |= made[operand[j]];
        }
        made[i] |= x->code == TNI_I_LOAD && k->access[x->access].buffer == from;
        if (x->code == TNI_I_STORE && x->access != access && made[i]) return false;
        bool same = x->code == TNI_I_CAST && x->dtype == k->ins[x->a].dtype && loaded[x->a];
        loaded[i] = same || (x->code == TNI_I_LOAD && k->access[x->access].buffer == from);
        if (x->code == TNI_I_STORE && x->access == access) value = x->a;
    }
    return last <= value;
}

static int store_of(const tni_planned_kernel *k, int32_t seed)
{
    for (int i = 0; i < k->kernel->naccess; i++)
        if (k->source[i].place == seed && k->source[i].edge < 0 && k->source[i].reader == seed)
            return i;
    return -1;
}

// Whether another buffer of the kernel lies in the place of buffer i, as the parts of a concat do.
static bool is_shared(const builder *b, const tni_planned_kernel *k, int i)
{
    for (int j = 0; j < k->kernel->nbuffer; j++) {
        const tni_place *p = k->buffer[j] >= 0 ? &b->plan->place[k->buffer[j]] : NULL;
        if (p && j != i && p->where != TNI_INPUT && p->root == (uint32_t)k->buffer[i]) return true;
    }
    return false;
}

// Whether the op that runs along with a kernel reads the place `at`.
static bool is_read_along(const builder *b, const tni_planned_kernel *k, int32_t at)
{
    const tni_node *n = k->call_item >= 0 ? b->g->item[k->call_item].n : NULL;
    for (uint32_t s = 0; n && s < n->nsrc; s++)
        if (place_of(b, n->src[s]) == (uint32_t)at) return true;
    return false;
}

// The value that a map reads for the last time, in the arena and as large as the result, so that the
// result may take its place; -1 if there is none. A kernel with phases may read it again after the
// result is written.
static int64_t given_up(const builder *b, const tni_planned_kernel *k, int32_t seed, size_t step)
{
    const tni_kernel *x      = k->kernel;
    int               access = store_of(k, seed);
    if (x->nr || x->tails || access < 0 || b->plan->place[seed].root != (uint32_t)seed) return -1;
    if (b->limits->checked) return -1;  // what an op was made from is looked at after it ran
    for (int i = 0; i < x->nbuffer; i++) {
        int32_t at = k->buffer[i];
        if (at < 0 || at == seed || x->buffer[i].written) continue;
        const tni_place *p = &b->plan->place[at];
        if (p->root != (uint32_t)at || p->where != TNI_ARENA || b->stored[at]) continue;
        if (b->last[at] != step || b->gone[at] || p->bytes != bytes_of(b, (size_t)seed)) continue;
        if (x->buffer[i].dtype != x->buffer[x->access[access].buffer].dtype) continue;
        if (is_shared(b, k, i) || is_read_along(b, k, at)) continue;
        if (reads_alike(b, k, i, access) &&
            (b->limits->loads_before_stores || is_read_before(x, i, access)))
            return at;
    }
    return -1;
}

// The input that buffer i of a kernel lies in; -1 if it lies in none.
static int64_t input_of(const builder *b, const tni_planned_kernel *k, int i)
{
    int32_t at = k->buffer[i];
    if (at < 0) return ~at;
    return b->plan->place[at].where == TNI_INPUT ? (int64_t)b->plan->place[at].root : -1;
}

// Whether an input's buffer is read by the kernel of a step last, and there by its buffer i alone.
static bool is_last_reader(const builder *b, const tni_planned_kernel *k, int i, int64_t input,
                           size_t step)
{
    const tni_graph  *g    = b->g;
    const tni_buffer *buf  = g->input[input].n->buf;
    size_t            base = g->count;
    for (size_t j = 0; j < g->inputs; j++) {
        if (g->input[j].n->buf != buf) continue;
        if (b->gone[base + j] || b->stored[base + j]) return false;
        if (b->last[base + j] > step - (j != (size_t)input)) return false;
    }
    for (int j = 0; j < k->kernel->nbuffer; j++) {
        int64_t other = j == i ? -1 : input_of(b, k, j);
        if (other >= 0 && g->input[other].n->buf == buf) return false;
    }
    return true;
}

static int64_t elements_at(const builder *b, int32_t at)
{
    return tni_node_count(at < 0 ? b->g->input[~at].n : b->g->item[at].n);
}

// The buffer of a map's kernel that holds an input which dies with this step, so that a result that is
// kept may take its place: a parameter's new value that of the old one. -1 if there is none. No step
// may fail from here on and want it back.
static int given_input(const builder *b, const tni_planned_kernel *k, int32_t seed, size_t step)
{
    const tni_kernel *x      = k->kernel;
    int               access = store_of(k, seed);
    if (x->nr || x->tails || access < 0 || b->fallible > step || step == 0) return -1;
    for (int i = 0; i < x->nbuffer; i++) {
        int64_t input = x->buffer[i].written ? -1 : input_of(b, k, i);
        if (input < 0 || !b->g->input[input].dies) continue;
        if (x->buffer[i].dtype != x->buffer[x->access[access].buffer].dtype) continue;
        if (elements_at(b, k->buffer[i]) != elements_at(b, seed)) continue;
        if (is_read_along(b, k, (int32_t)(b->g->count + (size_t)input))) continue;
        if (is_last_reader(b, k, i, input, step) && reads_alike(b, k, i, access) &&
            (b->limits->loads_before_stores || is_read_before(x, i, access)))
            return i;
    }
    return -1;
}

static void take_input(builder *b, const tni_planned_kernel *k, int32_t seed, int i)
{
    tni_place        *p   = &b->plan->place[seed];
    const tni_buffer *buf = b->g->input[input_of(b, k, i)].n->buf;
    p->where              = TNI_OWN;
    p->bytes              = bytes_of(b, (size_t)seed);
    p->takes              = true;
    p->taken              = k->buffer[i];
    for (size_t j = 0; j < b->g->inputs; j++)
        if (b->g->input[j].n->buf == buf) b->gone[b->g->count + j] = true;
}

static void place_result(builder *b, const tni_planned_kernel *k, int32_t seed, size_t step)
{
    tni_place *p = &b->plan->place[seed];
    bool kept = p->where == TNI_ARENA && p->root == (uint32_t)seed && !p->bytes && b->stored[seed];
    int  give = kept ? given_input(b, k, seed, step) : -1;
    if (give >= 0) {
        take_input(b, k, seed, give);
        return;
    }
    bool new     = p->where == TNI_ARENA && !b->plan->place[p->root].bytes && !b->stored[p->root];
    int64_t from = new ? given_up(b, k, seed, step) : -1;
    if (from < 0) {
        place_item(b, (size_t)seed, step);
        return;
    }
    b->gone[from]             = true;
    p->bytes                  = b->plan->place[from].bytes;
    b->in[seed]               = b->in[from];
    b->span[b->in[seed]].last = b->last[seed];
}

// Where each value lies: first which of them share a span of the arena, then where the spans lie.
static bool assign_arena(builder *b)
{
    tni_graph *g = b->g;
    for (size_t t = 0; t < b->plan->steps; t++) {
        tni_plan_step             step = b->plan->step[t];
        const tni_planned_kernel *k    = step < 0 ? &b->plan->kernel[~step] : NULL;
        if (!k) place_item(b, (size_t)step, t);
        else if (k->call_item >= 0) place_item(b, (size_t)k->call_item, t);
        for (size_t i = 0; k && i < k->seeds; i++)
            if (k->seed[i] >= 0) place_result(b, k, k->seed[i], t);
    }
    b->plan->arena = tni_arena_place(&g->cx->heap, b->spans, b->span);
    for (size_t i = 0; i < g->count; i++) {
        tni_place *p = &b->plan->place[i];
        if (p->where != TNI_ARENA) continue;
        p->where = b->plan->place[p->root].where;
        if (p->where == TNI_ARENA && p->root == i && p->bytes) p->offset = b->span[b->in[i]].offset;
    }
    return b->plan->arena >= 0;
}

static bool take_lists(builder *b)
{
    tni_heap *h      = &b->g->cx->heap;
    size_t    places = b->g->count + b->g->inputs;
    b->when          = tni_zalloc(h, places * sizeof *b->when);
    b->last          = tni_zalloc(h, places * sizeof *b->last);
    b->stored        = tni_zalloc(h, places * sizeof *b->stored);
    b->gone          = tni_zalloc(h, places * sizeof *b->gone);
    b->span          = tni_alloc(h, b->g->count * sizeof *b->span);
    b->in            = tni_alloc(h, b->g->count * sizeof *b->in);
    return b->when && b->last && b->stored && b->gone && b->span && b->in;
}

bool tni_place_values(tni_graph *g, const tni_limits *limits, tni_plan *p)
{
    tni_heap *h  = &g->cx->heap;
    builder   b  = { .g = g, .limits = limits, .plan = p };
    bool      ok = take_lists(&b);
    if (ok) {
        find_reads(&b);
        share_places(&b);
        ok = assign_arena(&b);
    }
    tni_free(h, b.when);
    tni_free(h, b.last);
    tni_free(h, b.stored);
    tni_free(h, b.gone);
    tni_free(h, b.span);
    tni_free(h, b.in);
    return ok;
}
