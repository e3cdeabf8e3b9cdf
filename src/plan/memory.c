// Memory: where each value of a plan is stored. All of it is decided before anything runs, so that
// a run cannot fail halfway through for lack of memory, and a step is all or nothing.
//
// Only values in memory have a place (order_units.c: mark_in_memory); which of them outlive the
// evaluation was decided by graph.c (item.why). The rules, in the order in which they are applied:
//
//   concat along the leading axis,  its sources are computed into its slices         fill_concat
//   or of strided results of calls
//   assignment of a row-major value shares its source's place: TNI_INPUT, or the     share_places
//                                   source's arena or own place
//   update of part of a tensor      in place, if it is the last reader of its base   can_update_in_place
//   the value of such an update     where the update would write it                  fill_update
//   result that outlives            in the buffer of an input that dies (donated)    find_donor
//                                   else a buffer of its own: TNI_OWN                place_root
//   result that does not outlive    over a value that dies with this step, or a row  find_dying_value
//                                   else a span of the arena: TNI_ARENA              place_root
//   offsets of spans                by lifetimes                                     arena.c
//
// Steps are numbered, so the lifetime of a value is from the step that makes it to the last step
// that reads it; sharing a place joins lifetimes. A step that can fail keeps the inputs it might
// have to return to: no input is overwritten before the last step that can fail (`fallible`).
//
// engine/evaluate.c takes the memory (tni_run_take_memory) when the plan runs.
#include "ops/collective.h"
#include "plan/arena.h"
#include "plan/fuse.h"

#include "kernel/thresholds.h"

#include <string.h>

// The work of tni_place_values. The arrays are by place: one entry per item, of which only a root's
// counts, then one per input.
typedef struct {
    tni_graph        *g;
    const tni_limits *limits;
    tni_plan         *plan;
    uint32_t         *made_at;    // the step that computes it
    uint32_t         *last_read;  // the last step that reads it
    bool             *outlives;   // a value in it outlives the evaluation
    bool             *reused;     // a result has taken its place
    size_t            fallible;   // one past the last step that can fail
    tni_arena_span   *span;       // spans of the arena, by first step
    size_t            spans;
    uint32_t         *span_of;  // by item: the span of a root in the arena
} placer;

// Returns the place that a source's elements are stored in: a root item, or count + input.
static uint32_t place_of_source(const placer *b, const tni_node *src)
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

// Notes that a step overwrites an input: from then on, a run cannot stop and leave everything as it
// was.
static void note_overwrite(placer *b, size_t step)
{
    if (step < b->plan->overwrites) b->plan->overwrites = step;
}

// ---- lifetimes ---------------------------------------------------------------------------------

// Extends a place's lifetime to a step that reads it.
static void read_place(placer *b, uint32_t at, size_t step)
{
    if (b->last_read[at] < step) b->last_read[at] = (uint32_t)step;
}

static void read_sources(placer *b, size_t i, size_t step)
{
    tni_node *n = b->g->item[i].n;
    for (uint32_t s = 0; s < n->nsrc; s++) read_place(b, place_of_source(b, n->src[s]), step);
}

// Extends the lifetimes of everything that a kernel, or the call that runs with it, reads, and
// notes whether it can fail. What a prologue reads is read by the next step, at any time of it.
static void read_buffers(placer *b, const tni_planned_kernel *k, size_t step)
{
    size_t count = b->g->count;
    step += k->is_prologue;
    if (k->call_item >= 0) read_sources(b, (size_t)k->call_item, step);
    for (int i = 0; i < k->kernel->nbuffer; i++) {
        int32_t at = k->buffer[i];
        read_place(b, at >= 0 ? (uint32_t)at : (uint32_t)(count + (size_t)~at), step);
    }
    for (int i = 0; i < k->kernel->nins; i++)
        if (k->kernel->ins[i].code == TNI_I_CHECK) b->fallible = step + 1;
}

// Begins the lifetimes of an item and of its op's other outputs, which the same call makes, at a
// step.
static void begin_lifetime(placer *b, int32_t item, size_t step)
{
    b->plan->place[item].where = TNI_ARENA;
    b->made_at[item] = b->last_read[item] = (uint32_t)step;
    for (const tni_node *o = tni_outputs(b->g->item[item].n); o; o = o->output)
        begin_lifetime(b, (int32_t)o->mark - 1, step);
}

// Finds for each item the step that makes it and for each place the last step that reads it. Every
// item begins with a place of its own; items that no step stores have none.
static void find_place_lifetimes(placer *b)
{
    tni_graph *g = b->g;
    for (size_t i = 0; i < g->count; i++) b->plan->place[i].root = (uint32_t)i;
    for (size_t t = 0; t < b->plan->steps; t++) {
        tni_plan_step step = b->plan->step[t];
        if (step >= 0) {
            begin_lifetime(b, step, t);
            if (tni_node_may_fail(g->item[step].n)) b->fallible = t + 1;
            continue;
        }
        const tni_planned_kernel *k = &b->plan->kernel[~step];
        if (k->call_item >= 0) begin_lifetime(b, k->call_item, t);
        for (size_t i = 0; i < k->seeds; i++)
            if (k->seed[i] >= 0) begin_lifetime(b, k->seed[i], t);
    }
    for (size_t t = 0; t < b->plan->steps; t++) {
        tni_plan_step step = b->plan->step[t];
        if (step >= 0) read_sources(b, (size_t)step, t);
        else read_buffers(b, &b->plan->kernel[~step], t);
    }
    if (b->limits->checked) b->fallible = b->plan->steps;
}

// ---- collectives -------------------------------------------------------------------------------

static void share_place(placer *b, size_t i, uint32_t at);

// Notes that a step reads the place of a source: if a collective makes it, or what was assigned
// from there, it has to have arrived.
static void await_source(placer *b, uint32_t at, size_t step)
{
    tni_graph *g = b->g;
    tni_plan  *p = b->plan;
    while (at < g->count && g->item[at].n->op == TNI_assign)
        at = place_of_source(b, g->item[at].n->src[0]);
    if (at >= g->count || !tni_node_is_collective(g->item[at].n)) return;
    for (size_t k = p->collectives; k-- > 0;)
        if (p->collective[k] == (int32_t)at && p->arrive[step] < k + 1)
            p->arrive[step] = (uint32_t)k + 1;
}

// Finds what each step has to wait for.
static void await_sources(placer *b, size_t t)
{
    tni_plan_step             step = b->plan->step[t];
    const tni_planned_kernel *k    = step < 0 ? &b->plan->kernel[~step] : NULL;
    int32_t                   call = k ? k->call_item : step;
    const tni_node           *n    = call >= 0 ? b->g->item[call].n : NULL;
    for (uint32_t s = 0; n && s < n->nsrc; s++) await_source(b, place_of_source(b, n->src[s]), t);
    for (int i = 0; k && i < k->kernel->nbuffer; i++)
        if (k->buffer[i] >= 0) await_source(b, (uint32_t)k->buffer[i], t);
}

// Whether a collective may write its result over the value in place `at`, which it reads: it is the
// last that does. Not if values are inspected, since the inspection looks at inputs after the step.
static bool may_write_over(const placer *b, uint32_t i, uint32_t at)
{
    const tni_node *n = b->g->item[i].n, *x = n->src[0];
    if (at >= b->g->count || b->limits->checked || !tni_collective_in_place(n)) return false;
    tni_view v = tni_node_layout(x);
    for (; x->state == TNI_PENDING; x = x->src[0]) {
        if (b->g->item[x->mark - 1].edges != 1) return false;  // an assignment may share it
        if (x->op != TNI_view) break;
    }
    return b->last_read[at] == b->made_at[i] && !b->g->item[at].why && tni_view_contiguous(&v) &&
           tni_node_count(b->g->item[at].n) == tni_node_count(n) &&
           b->g->item[at].n->dtype == n->dtype && b->plan->place[at].root == at;
}

// A collective runs beside the steps after it, until the first that reads what it makes: what it
// reads and writes lives until then. In order: who waits for one waits for those before it.
static bool find_collectives(placer *b)
{
    tni_graph *g = b->g;
    tni_plan  *p = b->plan;
    size_t     n = 0;
    for (size_t t = 0; t < p->steps; t++)
        n += p->step[t] >= 0 && tni_node_is_collective(g->item[p->step[t]].n);
    if (!n) return true;
    p->collective = tni_alloc(&g->cx->heap, n * sizeof *p->collective);
    p->arrive     = tni_zalloc(&g->cx->heap, (p->steps + 1) * sizeof *p->arrive);
    if (!p->collective || !p->arrive) return false;
    for (size_t t = 0; t < p->steps; t++) {
        await_sources(b, t);
        if (p->step[t] < 0 || !tni_node_is_collective(g->item[p->step[t]].n)) continue;
        p->collective[p->collectives++] = p->step[t];
        note_overwrite(b, t);  // the other ranks have done it, so it cannot be done again
    }
    p->arrive[p->steps] = (uint32_t)n;
    for (size_t t = 0, done = 0; t <= p->steps; t++)
        for (; done < p->arrive[t]; done++) {
            size_t   end  = t < p->steps ? t : p->steps - 1;
            uint32_t i    = (uint32_t)p->collective[done];
            uint32_t at   = place_of_source(b, g->item[i].n->src[0]);
            bool     over = may_write_over(b, i, at);
            read_place(b, i, end);
            read_place(b, at, end);
            if (over) share_place(b, i, at);
        }
    return true;
}

// ---- sharing places ----------------------------------------------------------------------------

// Puts item i into the place `at` of its source, whose lifetime it extends: an assignment of a
// row-major value, or an update in place.
static void share_place(placer *b, size_t i, uint32_t at)
{
    tni_place *p = &b->plan->place[i];
    size_t     n = b->g->count;
    p->where     = at >= n ? TNI_INPUT : TNI_ARENA;
    p->root      = at >= n ? at - (uint32_t)n : at;
    if (b->last_read[at] < b->last_read[i]) b->last_read[at] = b->last_read[i];
    b->outlives[at] |= b->g->item[i].why != 0;
}

// Whether an update may write into its base's place: nothing reads that later, the value to be
// written is not stored in it, and nothing that outlives the evaluation is. If the base is an
// input, moreover nothing else may be in its buffer, and no later step may fail and need it back;
// if errors arrive late, no step at all.
static bool can_update_in_place(const placer *b, size_t i, uint32_t base, uint32_t value)
{
    const tni_graph *g = b->g;
    const tni_node  *n = g->item[i].n;
    if (b->last_read[base] != b->made_at[i] || base == value || b->outlives[base]) return false;
    if (n->src[0]->op == TNI_view) return false;
    if (base < g->count) return true;
    if (b->limits->async_errors && b->fallible) return false;
    return b->fallible <= b->made_at[i] && tni_input_is_free(&g->input[base - g->count]);
}

bool tni_concat_is_flat(const tni_node *n)
{
    for (int i = 0; i < n->attr.axis.axis; i++)
        if (n->size[i] != 1) return false;
    return true;
}

// Returns the item that a source of a concat is, if it can be computed into the concat's place
// instead of its own: the source is all of it, in row-major order, and it has no shared place yet.
// -1 otherwise. Ops that move or share memory themselves are left out.
static int64_t source_item(const placer *b, const tni_node *src)
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

// Whether kernels store the sources of a concat with its strides (decide.c: fill_concats).
static bool stored_in_rows(const placer *b, const tni_node *concat)
{
    for (uint32_t s = 0; s < concat->nsrc; s++) {
        int32_t base = tni_base_of(b->g, concat->src[s]);
        if (base < 0 || !b->plan->place[base].pitch) return false;
    }
    return true;
}

// Lets the producers of a concat write straight into its slices. If all sources do, the concat
// itself runs nothing. Optimizers join all gradients of a block like this, at no cost.
static void fill_concat(placer *b, size_t i)
{
    const tni_node *n     = b->g->item[i].n;
    int64_t         start = 0;
    bool            all = true, flat = tni_concat_is_flat(n);
    if (!flat && !stored_in_rows(b, n) && !tni_concat_is_strided(b->g, b->limits, n)) return;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int64_t k = source_item(b, n->src[s]), row = tni_concat_row(n, n->src[s]);
        if (k >= 0) {
            tni_place *p = &b->plan->place[k];
            p->root      = (uint32_t)i;
            p->start     = start;
            if (!flat) p->row = row, p->pitch = tni_concat_row(n, n);
            if (b->last_read[i] < b->last_read[k]) b->last_read[i] = b->last_read[k];
            b->outlives[i] |= b->outlives[k];
        }
        all &= k >= 0;
        start += row;
    }
    b->plan->place[i].filled = all;
}

// Whether a step reads an input, by its kernel, by its call or by the prologue of that.
static bool step_reads(const placer *b, size_t t, uint32_t place)
{
    tni_plan_step             step = b->plan->step[t];
    const tni_planned_kernel *k    = step < 0 ? &b->plan->kernel[~step] : NULL;
    int32_t                   call = k ? k->call_item : step;
    const tni_node           *n    = call >= 0 ? b->g->item[call].n : NULL;
    for (uint32_t s = 0; n && s < n->nsrc; s++)
        if (place_of_source(b, n->src[s]) == place) return true;
    for (int i = 0; k && i < k->kernel->nbuffer; i++)
        if (k->buffer[i] < 0 && (uint32_t)(b->g->count + (size_t)~k->buffer[i]) == place)
            return true;
    const tni_planned_kernel *first = t && b->plan->step[t - 1] < 0
                                          ? &b->plan->kernel[~b->plan->step[t - 1]]
                                          : NULL;
    return first && first->is_prologue && step_reads(b, t - 1, place);
}

// Whether an update writes its value, in row-major order, to one run of memory.
static bool writes_one_run(const tni_node *n)
{
    tni_view v = tni_view_whole(n->src[1]->rank, n->src[1]->size);
    memcpy(v.stride, n->attr.view.stride, sizeof v.stride);
    return tni_view_contiguous(&v);
}

// Lets the value of an update in place be computed where the update would write it, which then runs
// nothing: the keys and values of a token go straight into their cache. The update must be the
// first of its input in this plan, and nothing may read the input from the step on that makes the
// value.
static void fill_update(placer *b, size_t i, uint32_t base)
{
    const tni_node *n = b->g->item[i].n;
    int64_t         k = source_item(b, n->src[1]);
    if (k < 0 || n->src[0]->state == TNI_PENDING || base < b->g->count) return;
    if (b->g->item[k].why || b->plan->place[k].pitch || !writes_one_run(n)) return;
    if (b->fallible > b->made_at[k]) return;
    for (size_t t = b->made_at[k]; t < b->made_at[i]; t++)
        if (step_reads(b, t, base)) return;
    share_place(b, (size_t)k, base);
    note_overwrite(b, b->made_at[k]);
    b->plan->place[k].into   = (uint32_t)i + 1;
    b->plan->place[i].filled = true;
}

// Whether a value is one run of memory, so that an assignment can share it.
static bool is_contiguous_node(const tni_node *n)
{
    tni_view v = tni_node_layout(n);
    return tni_view_contiguous(&v);
}

// Finds all sharing. Concats come first: a source that is computed into a concat may not share a
// place before.
static void share_places(placer *b)
{
    tni_graph *g = b->g;
    for (size_t i = 0; i < g->count; i++) {
        const tni_item *it = &g->item[i];
        b->outlives[i] |= it->why != 0;
        // Inputs that a stored view or a later gradient reads must not be overwritten.
        for (uint32_t k = 0; it->keeps_sources && k < it->n->nsrc; k++)
            if (it->n->src[k]->state != TNI_PENDING)
                b->outlives[place_of_source(b, it->n->src[k])] = true;
    }
    // Concats first: see above.
    for (size_t t = 0; t < b->plan->steps; t++) {
        tni_plan_step i = b->plan->step[t];
        if (i >= 0 && g->item[i].n->op == TNI_concat) fill_concat(b, (size_t)i);
    }
    for (size_t i = 0; i < g->count; i++) {
        tni_node  *n = g->item[i].n;
        tni_place *p = &b->plan->place[i];
        if (n->op == TNI_assign && is_contiguous_node(n->src[0])) {
            p->alias = true;
            share_place(b, i, place_of_source(b, n->src[0]));
        } else if (n->op == TNI_update) {
            uint32_t base = place_of_source(b, n->src[0]);
            p->in_place   = can_update_in_place(b, i, base, place_of_source(b, n->src[1]));
            if (p->in_place) share_place(b, i, base);
            if (p->in_place && base >= g->count) note_overwrite(b, b->made_at[i]);
            if (p->in_place) fill_update(b, i, base);
        }
    }
}

// ---- the arena ---------------------------------------------------------------------------------

// Returns the bytes of an item's place: whole lines of 64, at least one, so that no two values
// share a line. Sizes that overflow stop at a limit that no allocation passes.
static int64_t bytes_of(const placer *b, size_t i)
{
    const tni_node *n     = b->g->item[i].n;
    int64_t         count = tni_node_count(n), pitch = b->plan->place[i].pitch;
    int64_t         size = (int64_t)b->limits->element_size((tn_dtype)n->dtype);
    if (pitch) count = count / b->plan->place[i].row * pitch;
    if (count < 0 || count > TNI_BYTES_LIMIT / size - 64) return TNI_BYTES_LIMIT;
    int64_t bytes = count * size;
    return bytes ? (bytes + 63) / 64 * 64 : 64;
}

// Adds the parts of a concat that its sources are computed into, each from the step that makes it;
// what the concat copies itself is made with it. Whole lines of 64 bytes, so that nothing else is
// stored in a line that has an element of the part.
static void add_parts(placer *b, uint32_t root)
{
    const tni_node *n     = b->g->item[root].n;
    tni_arena_span *whole = &b->span[b->span_of[root]];
    int64_t         size = (int64_t)b->limits->element_size((tn_dtype)n->dtype), at = 0;
    if (n->op != TNI_concat || !tni_concat_is_flat(n) || b->plan->place[root].pitch) return;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        int32_t base = tni_base_of(b->g, n->src[s]);
        bool    into = base >= 0 && b->plan->place[base].root == root;
        int64_t end = at + tni_node_count(n->src[s]) * size, from = at / 64 * 64;
        b->span[b->spans++] = (tni_arena_span){ .first  = b->made_at[into ? base : (int32_t)root],
                                                .bytes  = (end + 63) / 64 * 64 - from,
                                                .within = from,
                                                .part   = true };
        whole->parts++;
        at = end;
    }
}

// Gives a root a buffer of its own if it outlives the evaluation, else a span of the arena from
// this step to its last reader.
static void place_root(placer *b, uint32_t root, size_t step)
{
    tni_place *p = &b->plan->place[root];
    p->bytes     = bytes_of(b, root);
    if (b->outlives[root]) {
        p->where = TNI_OWN;
        return;
    }
    b->span_of[root]    = (uint32_t)b->spans;
    b->span[b->spans++] = (tni_arena_span){ .first = (uint32_t)step,
                                            .last  = b->last_read[root],
                                            .bytes = p->bytes };
    add_parts(b, root);
}

// Places an item, and the other outputs of its op, when the first item that shares its root is
// computed.
static void place_item(placer *b, size_t i, size_t step)
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

// Whether a source may begin elsewhere than the value it is stored in: a view of a computed value
// may in the next run, since where it begins is not part of the key.
static bool begins_elsewhere(const tni_node *src)
{
    int64_t         skip;
    const tni_node *base = tni_node_base((tni_node *)src, &skip);
    return src->op == TNI_view && (skip || base->state != TNI_PENDING);
}

// Whether access i reads just the element that store `access` writes at the same point, as every
// run will.
static bool reads_alike(const placer *b, const tni_planned_kernel *k, int i, int access)
{
    const tni_access_binding *s = &k->source[i];
    return s->edge >= 0 && same_access(k, i, access) &&
           !begins_elsewhere(b->g->item[s->reader].n->src[s->edge]);
}

// Whether every load from buffer `from` reads just the element that store `access` writes at the
// same point, as every run will.
static bool all_read_alike(const placer *b, const tni_planned_kernel *k, int from, int access)
{
    for (int i = 0; i < k->kernel->naccess; i++)
        if (k->kernel->access[i].buffer == from && !reads_alike(b, k, i, access)) return false;
    return true;
}

// Whether the values loaded from buffer `from` are read by no instruction after the value of store
// `access`, and for no other store. Needed if a kernel may store before it has loaded all values of
// a point: it may write this value as soon as it is computed, go on to the next store, and load
// again what it still needs.
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

// Whether a kernel without reductions has read the element of buffer `from` that store `access`
// overwrites.
static bool is_point_read_before(const placer *b, const tni_planned_kernel *k, int from, int access)
{
    return all_read_alike(b, k, from, access) &&
           (b->limits->loads_before_stores || is_read_before(k->kernel, from, access));
}

// Whether load i, one element for each row, is of the row that store `access` writes: a gather
// along it.
static bool is_of_row(const placer *b, const tni_planned_kernel *k, int i, int access)
{
    const tni_access_binding *s = &k->source[i];
    const int64_t            *x = k->launch.stride[i], *y = k->launch.stride[access];
    int                       r = k->kernel->np;
    if (s->edge < 0 || begins_elsewhere(b->g->item[s->reader].n->src[s->edge])) return false;
    return s->offset == k->source[access].offset && !memcmp(x, y, (size_t)r * sizeof *x) &&
           x[r] == 0 && x[TNI_AXES] == y[r];
}

// Whether rows are long enough for several warps, whose reductions wait for all of them, and begin
// at multiples of 16 bytes, so that no thread loads an element with its own that another one
// stores.
static bool has_long_rows(const placer *b, const tni_planned_kernel *k, int access)
{
    const tni_kernel *x = k->kernel;
    int64_t size = (int64_t)b->limits->element_size(x->buffer[x->access[access].buffer].dtype);
    if (x->nr != 1 || !x->lane_in_r || k->launch.size[x->np] < TNI_LONG_ROW) return false;
    for (int j = 0; j < x->np; j++)
        if (k->launch.stride[access][j] * size % 16) return false;
    return k->launch.stride[access][x->np] == 1;
}

// Whether a kernel with reductions has read a row of buffer `from` before it stores `access` there,
// as the gradient of cross-entropy is stored over the logits: the store is the only one of
// elements, in the last loop, which loads just the element that it stores; other loads are of the
// row and come before all reductions, for which the threads of a row wait; and no column is folded.
static bool is_row_read_before(const placer *b, const tni_planned_kernel *k, int from, int access)
{
    const tni_kernel *x = k->kernel;
    if (!b->limits->loads_before_stores || !has_long_rows(b, k, access)) return false;
    for (int i = 0; i < x->nins; i++) {
        const tni_ins *y    = &x->ins[i];
        bool           each = y->per & TNI_PER_COL;
        if (y->code == TNI_I_LOAD && x->access[y->access].buffer == from && !each &&
            (y->finish || y->phase || !is_of_row(b, k, y->access, access)))
            return false;
        if (y->code == TNI_I_LOAD && x->access[y->access].buffer == from && each &&
            (y->finish || !reads_alike(b, k, y->access, access)))
            return false;
        if (y->code == TNI_I_STORE && each &&
            (y->access != access || y->finish || y->phase == 0 || y->phase + 1 != x->phases))
            return false;
        if (tni_is_tail(y) && x->ins[y->a].per & TNI_PER_COL) return false;
    }
    return true;
}

// Returns the access by which a kernel stores a seed; -1 if it does not.
static int store_of(const tni_planned_kernel *k, int32_t seed)
{
    for (int i = 0; i < k->kernel->naccess; i++)
        if (k->source[i].place == seed && k->source[i].edge < 0 && k->source[i].reader == seed)
            return i;
    return -1;
}

// Whether another buffer of the kernel is in the place of buffer i, as the sources of one concat
// are.
static bool is_shared(const placer *b, const tni_planned_kernel *k, int i)
{
    for (int j = 0; j < k->kernel->nbuffer; j++) {
        const tni_place *p = k->buffer[j] >= 0 ? &b->plan->place[k->buffer[j]] : NULL;
        if (p && j != i && p->where != TNI_INPUT && p->root == (uint32_t)k->buffer[i]) return true;
    }
    return false;
}

// Whether the call that runs with a kernel reads the place `at`.
static bool call_reads(const placer *b, const tni_planned_kernel *k, int32_t at)
{
    const tni_node *n = k->call_item >= 0 ? b->g->item[k->call_item].n : NULL;
    for (uint32_t s = 0; n && s < n->nsrc; s++)
        if (place_of_source(b, n->src[s]) == (uint32_t)at) return true;
    return false;
}

// Whether the result that a kernel stores by `access` may overwrite its buffer i: a value of the
// arena that the kernel reads last, equally large and of the same dtype, read at the points where
// the result is written. Other kernels with reductions than those of is_row_read_before may read an
// element again after the result is written.
static bool may_overwrite(const placer *b, const tni_planned_kernel *k, int32_t seed, size_t step,
                          int i, int access)
{
    const tni_kernel *x  = k->kernel;
    int32_t           at = k->buffer[i];
    if (at < 0 || at == seed || x->buffer[i].written) return false;
    const tni_place *p = &b->plan->place[at];
    if (p->root != (uint32_t)at || p->where != TNI_ARENA || b->outlives[at]) return false;
    if (b->last_read[at] != step || b->reused[at] || p->bytes != bytes_of(b, (size_t)seed))
        return false;
    if (x->buffer[i].dtype != x->buffer[x->access[access].buffer].dtype) return false;
    if (is_shared(b, k, i) || call_reads(b, k, at)) return false;
    return x->nr || x->tails ? is_row_read_before(b, k, i, access)
                             : is_point_read_before(b, k, i, access);
}

// Returns a value of the arena that a kernel's result may overwrite, -1 if there is none: the
// result of the call that runs with it before all others, since a library that does both writes
// that to no memory, and what else it reads while it writes is best left alone.
// Not if values are inspected, since the inspection looks at an op's inputs after it ran.
static int64_t find_dying_value(const placer *b, const tni_planned_kernel *k, int32_t seed,
                                size_t step)
{
    int access = store_of(k, seed), found = -1;
    if (access < 0 || b->plan->place[seed].root != (uint32_t)seed) return -1;
    if (b->limits->checked) return -1;  // inspection reads inputs after the step
    for (int i = 0; i < k->kernel->nbuffer; i++) {
        bool better = found < 0 || k->buffer[i] == k->call_item;
        if (better && may_overwrite(b, k, seed, step, i, access)) found = i;
    }
    return found < 0 ? -1 : k->buffer[found];
}

// Returns the input that buffer i of a kernel is stored in; -1 if it is in none.
static int64_t input_of_buffer(const placer *b, const tni_planned_kernel *k, int i)
{
    int32_t at = k->buffer[i];
    if (at < 0) return ~at;
    return b->plan->place[at].where == TNI_INPUT ? (int64_t)b->plan->place[at].root : -1;
}

// Whether the kernel of a step reads an input's buffer last, and only by its buffer i. Other inputs
// in the same buffer count too: parameters of one optimizer block share one.
static bool is_last_reader(const placer *b, const tni_planned_kernel *k, int i, int64_t input,
                           size_t step)
{
    const tni_graph  *g    = b->g;
    const tni_buffer *buf  = g->input[input].n->buf;
    size_t            base = g->count;
    for (size_t j = 0; j < g->inputs; j++) {
        if (g->input[j].n->buf != buf) continue;
        if (b->reused[base + j] || b->outlives[base + j]) return false;
        if (b->last_read[base + j] > step - (j != (size_t)input)) return false;
    }
    for (int j = 0; j < k->kernel->nbuffer; j++) {
        int64_t other = j == i ? -1 : input_of_buffer(b, k, j);
        if (other >= 0 && g->input[other].n->buf == buf) return false;
    }
    return true;
}

static int64_t elements_at(const placer *b, int32_t at)
{
    return tni_node_count(at < 0 ? b->g->input[~at].n : b->g->item[at].n);
}

// Returns the buffer of a kernel that holds an input which dies with this step, so that a result
// that outlives the evaluation may overwrite it and keep its buffer, as a parameter's new value
// overwrites the old one; -1 if there is none. The same conditions as for a value of the arena, and
// no step may fail from here on and need the old value back. Step 0 takes none: last_read is 0
// there both for an input that it reads and for one that no step reads.
static int find_donor(const placer *b, const tni_planned_kernel *k, int32_t seed, size_t step)
{
    const tni_kernel *x      = k->kernel;
    int               access = store_of(k, seed);
    if (x->nr || x->tails || access < 0 || b->fallible > step || step == 0) return -1;
    for (int i = 0; i < x->nbuffer; i++) {
        int64_t input = x->buffer[i].written ? -1 : input_of_buffer(b, k, i);
        if (input < 0 || !b->g->input[input].dies) continue;
        if (x->buffer[i].dtype != x->buffer[x->access[access].buffer].dtype) continue;
        if (elements_at(b, k->buffer[i]) != elements_at(b, seed)) continue;
        if (call_reads(b, k, (int32_t)(b->g->count + (size_t)input))) continue;
        if (is_last_reader(b, k, i, input, step) && is_point_read_before(b, k, i, access)) return i;
    }
    return -1;
}

// Stores a seed in the buffer of the input that buffer i reads, and marks all inputs there as
// overwritten.
static void use_donor(placer *b, const tni_planned_kernel *k, int32_t seed, int i)
{
    tni_place        *p   = &b->plan->place[seed];
    const tni_buffer *buf = b->g->input[input_of_buffer(b, k, i)].n->buf;
    p->where              = TNI_OWN;
    p->bytes              = bytes_of(b, (size_t)seed);
    p->donated            = true;
    p->donor              = k->buffer[i];
    for (size_t j = 0; j < b->g->inputs; j++)
        if (b->g->input[j].n->buf == buf) b->reused[b->g->count + j] = true;
}

// Places a seed of a kernel by the rules above: in a donor, over a dying value, or in a place of
// its own.
static void place_result(placer *b, const tni_planned_kernel *k, int32_t seed, size_t step)
{
    tni_place *p    = &b->plan->place[seed];
    bool       kept = p->where == TNI_ARENA && p->root == (uint32_t)seed && !p->bytes &&
                b->outlives[seed];
    int give = kept ? find_donor(b, k, seed, step) : -1;
    if (give >= 0) {
        use_donor(b, k, seed, give);
        note_overwrite(b, step);
        return;
    }
    bool new     = p->where == TNI_ARENA && !b->plan->place[p->root].bytes && !b->outlives[p->root];
    int64_t from = new ? find_dying_value(b, k, seed, step) : -1;
    if (from < 0) {
        place_item(b, (size_t)seed, step);
        return;
    }
    b->reused[from]                = true;
    p->bytes                       = b->plan->place[from].bytes;
    b->span_of[seed]               = b->span_of[from];
    b->span[b->span_of[seed]].last = b->last_read[seed];
}

// Places the results of each step in order, then finds the offsets of all spans at once, and copies
// the place of each root to the items that share it.
static bool assign_arena(placer *b)
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
        if (p->where == TNI_ARENA && p->root == i && p->bytes)
            p->offset = b->span[b->span_of[i]].offset;
    }
    return b->plan->arena >= 0;
}

// Counts the sources of all concats: each may be a part.
static size_t joined_sources(const tni_graph *g)
{
    size_t count = 0;
    for (size_t i = 0; i < g->count; i++)
        if (g->item[i].n->op == TNI_concat) count += g->item[i].n->nsrc;
    return count;
}

static bool take_place_lists(placer *b)
{
    tni_heap *h      = &b->g->cx->heap;
    size_t    places = b->g->count + b->g->inputs;
    b->made_at       = tni_zalloc(h, places * sizeof *b->made_at);
    b->last_read     = tni_zalloc(h, places * sizeof *b->last_read);
    b->outlives      = tni_zalloc(h, places * sizeof *b->outlives);
    b->reused        = tni_zalloc(h, places * sizeof *b->reused);
    b->span          = tni_alloc(h, (b->g->count + joined_sources(b->g)) * sizeof *b->span);
    b->span_of       = tni_alloc(h, b->g->count * sizeof *b->span_of);
    return b->made_at && b->last_read && b->outlives && b->reused && b->span && b->span_of;
}

// Lifetimes first, then what shares a place, which joins lifetimes, then places and offsets.
bool tni_place_values(tni_graph *g, const tni_limits *limits, tni_plan *p)
{
    tni_heap *h   = &g->cx->heap;
    placer    b   = { .g = g, .limits = limits, .plan = p };
    bool      ok  = take_place_lists(&b);
    p->overwrites = p->steps;
    if (ok) {
        find_place_lifetimes(&b);
        ok = find_collectives(&b);
        if (ok) share_places(&b);
        ok = ok && assign_arena(&b);
    }
    tni_free(h, b.made_at);
    tni_free(h, b.last_read);
    tni_free(h, b.outlives);
    tni_free(h, b.reused);
    tni_free(h, b.span);
    tni_free(h, b.span_of);
    return ok;
}
