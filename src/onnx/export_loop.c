// Loops as Scan, whose body is a graph of its own:
//
//   tn_scan over x (T, B, I) with a carry h (B, H)
//
//   Scan   h, x -> last h, all h (T, B, H)     num_scan_inputs 1
//     body   h, x[t] -> h', h'                 the nodes of the loop's body
//
// The body is written by the same functions as the graph around it: body_graph lets the exporter
// look at the body's nodes and at an empty list of nodes of ONNX, and back again.
//
//   look, look_at   what the exporter sees
//   open_body       the body's nodes as a run
//   write_body      names of its inputs, its nodes, its outputs
//   add_scan        the node, and the loop's outputs made of those of Scan
//
// Weights and constants that the body needs belong to the model's graph, which it sees. So does the
// size of a symbolic batch, which is computed before the first loop.
//
// A loop whose carry is stacked gives T + 1 values of it, from before the first step on: the first
// one is joined to the stack of Scan. What the body reads besides is a value of the graph around
// it, by its name.
#include "onnx/export.h"

#include <string.h>

// What the exporter sees while it writes a body, instead of the graph around it.
typedef struct {
    tni_export_run    run[TNI_EXPORT_TRACES];
    tni_export_known *known;
    tni_export_node  *node;
    size_t            nodes, node_cap, at;
    uint64_t          first;
} view_of_graph;

// What is seen now; look_at brings it back.
static view_of_graph look(const tni_exporter *e)
{
    view_of_graph v = { .known    = e->known,
                        .node     = e->node,
                        .nodes    = e->nodes,
                        .node_cap = e->node_cap,
                        .at       = e->at,
                        .first    = e->first };
    memcpy(v.run, e->run, sizeof v.run);
    return v;
}

static void look_at(tni_exporter *e, const view_of_graph *v)
{
    memcpy(e->run, v->run, sizeof v->run);
    e->known    = v->known;
    e->node     = v->node;
    e->nodes    = v->nodes;
    e->node_cap = v->node_cap;
    e->at       = v->at;
    e->first    = v->first;
}

// A body as a run: its inputs, which are placeholders, then its other nodes. Nothing in it was
// there before: bodies are kept by the context, and may be older than the trace.
static bool open_body(tni_exporter *e, const tni_loop *l, tni_export_run *r)
{
    int n   = tni_loop_inputs(l);
    *r      = (tni_export_run){ .count = l->count + (size_t)n };
    r->node = tni_alloc(&e->cx->heap, r->count * sizeof *r->node);
    r->call = tni_zalloc(&e->cx->heap, r->count * sizeof *r->call);
    if (!r->node || !r->call) return tni_no_memory(e->cx, "onnx_save");
    memcpy(r->node, l->in, (size_t)n * sizeof *r->node);
    r->count = (size_t)n;
    for (size_t i = 0; i < l->count; i++)
        if (l->node[i]->op != TNI_LEAF_OP) r->node[r->count++] = l->node[i];
    return true;
}

// A port of the body with the shape of its node.
static tni_export_port port_of(const tni_exporter *e, size_t i, const char *name)
{
    tni_operand_out x = tni_export_shaped(e, i, name);
    tni_export_port p = { .name  = name,
                          .dtype = (tn_dtype)tni_export_at(e, i)->dtype,
                          .rank  = x.rank };
    memcpy(p.size, x.size, sizeof p.size);
    return p;
}

// Adds an output of the body: a copy, since a graph may not give one value twice, nor what it
// reads.
static bool add_output(tni_exporter *e, tni_export_graph *g, const tni_node *n)
{
    e->at         = tni_export_index(n);
    const char *y = tni_export_value(e, e->at).name;
    if (y) y = tni_export_add(e, "Identity", 1, &y, 0, NULL);
    if (y) g->out[g->outs++] = port_of(e, e->at, y);
    return y != NULL;
}

// Which outputs of the loop are stacks that something reads, by bits.
static uint32_t wanted_stacks(const tni_exporter *e, const tni_node *n)
{
    const struct tni_attr_loop *a    = &n->attr.loop;
    uint32_t                    want = a->stacked | 1;
    for (size_t i = 0; i < e->run[0].count; i++) {
        const tni_node *o = e->run[0].node[i];
        if (o->op == TNI_OUTPUT_OP && o->src[0] == n) want |= UINT32_C(1) << o->attr.output.index;
    }
    for (int c = 0; c < a->body->carries; c++)
        if (!(a->stacked >> c & 1)) want &= ~(UINT32_C(1) << c);
    return want;
}

// Writes the nodes of a body that is open. name: those of the loop's sources in the graph around
// it, by which constants are known; carries and slices get names of their own.
static bool write_body(tni_exporter *e, const tni_loop *l, const char *const *name, uint32_t stacks,
                       tni_export_graph *g)
{
    int moving = l->carries + l->xs;
    for (int i = 0; i < tni_loop_inputs(l); i++) {
        const char *own = i < moving ? tni_export_text(e, "/step_%d", ++e->number) : name[i];
        if (!tni_export_set(e, (size_t)i, own)) return false;
        if (i < moving) g->in[g->ins++] = port_of(e, (size_t)i, own);
    }
    // Scan has at least one sequence: one of step numbers, which the body does not read.
    if (!l->xs)
        g->in[g->ins++] = (tni_export_port){ .name  = tni_export_text(e, "/step_%d", ++e->number),
                                             .dtype = TN_I64 };
    if (!g->in[g->ins - 1].name || !tni_export_nodes(e)) return false;
    for (int c = 0; c < l->carries; c++)
        if (!add_output(e, g, l->out[c])) return false;
    for (int k = 0; k < l->outs; k++)
        if (stacks >> k & 1 && !add_output(e, g, l->out[k])) return false;
    return true;
}

// Nodes of a body are its own, so that their marks do not disturb those of the graph around it.
static void mark_body(const tni_export_run *r, bool on)
{
    for (size_t i = 0; i < r->count; i++) r->node[i]->mark = on ? (uint32_t)i + 1 : 0;
}

// The body of loop i as a graph. NULL, reported, on failure.
static tni_export_graph *body_graph(tni_exporter *e, size_t i, const char *const *name,
                                    uint32_t stacks)
{
    tni_heap         *h      = &e->cx->heap;
    const tni_loop   *l      = tni_export_at(e, i)->attr.loop.body;
    view_of_graph     around = look(e), inside = { .first = 0 };
    tni_export_graph *g  = tni_zalloc(h, sizeof *g);
    bool              ok = g != NULL || tni_no_memory(e->cx, "onnx_save");
    for (int t = 0; ok && t < e->traces; t++)
        ok = open_body(e, e->run[t].node[i]->attr.loop.body, &inside.run[t]);
    inside.known = ok ? tni_zalloc(h, inside.run[0].count * sizeof *inside.known) : NULL;
    if (ok && !inside.known) ok = tni_no_memory(e->cx, "onnx_save");
    if (ok) {
        look_at(e, &inside);
        mark_body(&e->run[0], true);
        ok       = write_body(e, l, name, stacks, g);
        inside   = look(e);
        g->node  = inside.node;
        g->nodes = inside.nodes;
        mark_body(&e->run[0], false);
        look_at(e, &around);
    }
    for (int t = 0; t < e->traces; t++) {
        tni_free(h, inside.run[t].node);
        tni_free(h, inside.run[t].call);
    }
    tni_free(h, inside.known);
    if (ok) return g;
    if (g) tni_export_free_nodes(e, g->node, g->nodes);
    tni_free(h, g);
    return NULL;
}

// The stack of a carry: the value before the first step, and those after each. Backwards, the first
// step is the last of the sequence.
static const char *join_first(tni_exporter *e, size_t first, const char *init, const char *stack,
                              bool reverse)
{
    tni_operand_out x = tni_export_shaped(e, first, init);
    tni_extent      size[TN_MAX_RANK];
    size[0] = tni_fixed(1);
    memcpy(size + 1, x.size, (size_t)x.rank * sizeof *size);
    const char     *one  = tni_export_reshape(e, x, x.rank + 1, size);
    const char     *in[] = { reverse ? stack : one, reverse ? one : stack };
    tni_export_attr axis = tni_attr_int("axis", 0);
    return tni_export_add(e, "Concat", 2, in, 1, &axis);
}

// Adds the node, and makes the loop's outputs of those of Scan: last carries, then stacks.
static const char *add_scan(tni_exporter *e, size_t i, const char **name, uint32_t stacks,
                            tni_export_graph *g)
{
    const tni_node *n = tni_export_at(e, i);
    const tni_loop *l = n->attr.loop.body;
    int         xs = l->xs ? l->xs : 1, back = n->attr.loop.reverse, outs = g->outs - l->carries;
    int64_t     way[TNI_LOOP_INPUTS];
    const char *out[2 * TNI_LOOP_OUTPUTS];
    for (int k = 0; k < TNI_LOOP_INPUTS; k++) way[k] = back;
    tni_export_attr a[] = { tni_attr_int("num_scan_inputs", xs),
                            tni_attr_ints("scan_input_directions", xs, way),
                            tni_attr_ints("scan_output_directions", outs, way) };
    if (!tni_export_add_n(e, "Scan", l->carries + xs, name, back ? 2 + (outs > 0) : 1, a, g->outs,
                          out))
        return NULL;
    e->node[e->nodes - 1].body = g;
    const char **more          = e->known[i].more;
    int          at            = l->carries;
    for (int k = 0; k < l->outs; k++) {
        bool stack = stacks >> k & 1;
        more[k]    = stack ? out[at++] : k < l->carries ? out[k] : NULL;
        if (stack && k < l->carries &&
            !(more[k] = join_first(e, tni_export_index(n->src[k]), name[k], more[k], back)))
            return NULL;
    }
    return more[0];
}

// The graph of the body belongs to the node once there is one.
const char *tni_export_loop(tni_exporter *e, size_t i)
{
    const tni_node *n = tni_export_at(e, i);
    const tni_loop *l = n->attr.loop.body;
    const char     *name[TNI_LOOP_INPUTS + 1];
    uint32_t        stacks = wanted_stacks(e, n);
    for (int k = 0; k < tni_loop_inputs(l); k++)
        if (!(name[k] = tni_export_value(e, tni_export_index(n->src[k])).name)) return NULL;
    // Inside of the body it would be seen there alone.
    if (e->traces > 1 && !tni_export_batch(e)) return NULL;
    tni_export_graph *g = body_graph(e, i, name, stacks);
    if (!g) return NULL;
    if (!l->xs) name[l->carries] = tni_export_fill(e, TN_I64, n->attr.loop.steps, 0);
    const char *y     = add_scan(e, i, name, stacks, g);
    bool        owned = false;
    for (size_t k = 0; k < e->nodes; k++) owned |= e->node[k].body == g;
    if (owned) return y;
    tni_export_free_nodes(e, g->node, g->nodes);
    tni_free(&e->cx->heap, g);
    return NULL;
}
