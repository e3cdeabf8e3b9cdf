// What a layer records, as a list of nodes from inputs to outputs.
//
//   run_layer     zeros in the shape of x, and the layer's function over them
//   list_nodes    from the outputs back to inputs and weights, past what composite calls recorded inside
//   runs_agree    the same for the second run, and whether both are alike but for sizes
//   sort_nodes    in the order of recording
//
//
// While the layer runs, the context keeps the composite calls, and ops are recorded in the plainest
// way: convolutions in the order of their inputs, attention as products and a softmax, no batch
// norm folded. What other devices would make of them does not belong into the file.
#include "onnx/export.h"

#include "base/hash.h"

#include <string.h>

// Whether a node stands for one of the inputs of that run.
static bool is_input(const tni_exporter *e, const tni_export_run *r, const tni_node *n)
{
    for (int i = 0; i < e->nx; i++)
        if (r->in[i] == n) return true;
    return false;
}

bool tni_export_is_weight(const tni_exporter *e, const tni_node *n)
{
    return (n->id < e->first || n->op == TNI_LEAF_OP) && !is_input(e, &e->run[0], n);
}

// ---- running -----------------------------------------------------------------------------------

// The settings of a context that a trace changes.
typedef struct {
    uint64_t lacks[4];
    int64_t  recognizes;
    int (*conv_order)(tn_ctx *cx, tn_dtype dt, int64_t from, int64_t to, bool last);
} settings;

// Returns the settings as they were, for end_plain.
static settings begin_plain(tn_ctx *cx, tni_trace *t)
{
    settings s = { .recognizes = cx->recognizes, .conv_order = cx->conv_order };
    memcpy(s.lacks, cx->lacks, sizeof s.lacks);
    tni_mark_lacking(cx, TNI_attention);
    cx->recognizes = 0;
    cx->conv_order = NULL;
    cx->trace      = t;
    return s;
}

static void end_plain(tn_ctx *cx, const settings *s)
{
    memcpy(cx->lacks, s->lacks, sizeof s->lacks);
    cx->recognizes = s->recognizes;
    cx->conv_order = s->conv_order;
    cx->trace      = NULL;
}

// Zeros like x, with another size of the batch in run number k: data, so that nothing is known of
// them but their shape.
static tn_tensor *sample_of(tni_exporter *e, tn_tensor *x, int i, int k)
{
    tn_ctx  *cx = e->cx;
    tni_view v  = tni_layout(x);
    if (e->symbolic[i]) v.size[0] = TNI_EXPORT_FIRST_BATCH + k;
    int64_t    n    = tni_shape_count(v.rank, v.size);
    void      *data = tni_zalloc(&cx->heap, (size_t)n * tni_dtype_size(tni_dtype(x)));
    tn_tensor *t    = NULL;
    if (!data) return tni_fail_memory(cx, "onnx_save");
    t = tn_from(cx, tni_dtype(x), v.rank, v.size, data);
    tni_free(&cx->heap, data);
    return t;
}

// Runs the layer; its outputs and inputs stay alive in the scope of the dry run.
static bool run_layer(tni_exporter *e, tn_tensor *const *x, int k)
{
    tni_export_run *r = &e->run[k];
    tn_tensor      *in[TNI_MOST_PORTS];
    for (int i = 0; i < e->nx; i++) {
        if (!(in[i] = sample_of(e, x[i], i, k))) return false;
        if (!(r->in[i] = tni_resolve(in[i], "onnx_save"))) return false;
    }
    if (k == 0) e->first = e->cx->next_id + 1;
    settings s  = begin_plain(e->cx, &r->trace);
    bool     ok = tn_forward_n(e->layer, e->nx, in, e->ny, r->y) == TN_OK;
    end_plain(e->cx, &s);
    for (int i = 0; ok && i < e->ny; i++) {
        ok = !r->y[i]->complex && (r->out[i] = tni_resolve(r->y[i], "onnx_save"));
        if (r->y[i]->complex) tni_refuse(e->cx, TN_EDTYPE, "onnx_save: output %d is complex", i);
    }
    return ok;
}

// ---- listing -----------------------------------------------------------------------------------

// The newest call that made a node: of calls inside one another the outermost.
static const tni_kept *call_of(const tni_exporter *e, const tni_export_run *r, const tni_node *n)
{
    for (size_t i = r->trace.count; i > 0; i--)
        if (r->trace.call[i - 1].y == n && tni_export_call_fits(e, &r->trace.call[i - 1]))
            return &r->trace.call[i - 1];
    return NULL;
}

// Lists a node once. Its mark says that it is listed; its value is set when all are.
static bool add(tni_exporter *e, tni_export_run *r, tni_node *n)
{
    if (n->mark) return true;
    if (!tni_grow(&e->cx->heap, (void **)&r->node, &r->cap, r->count + 1, sizeof *r->node))
        return tni_no_memory(e->cx, "onnx_save");
    r->node[r->count++] = n;
    n->mark             = 1;
    return true;
}

// A value that was computed while the layer ran has lost what it was computed from.
static bool was_read(const tni_node *n)
{
    return n->state == TNI_GONE || (n->state == TNI_DONE && n->op != TNI_VIEW_OP && !n->constant);
}

// Adds what a node is written from: what its call was given, or its sources.
static bool add_sources(tni_exporter *e, tni_export_run *r, tni_node *n)
{
    if (is_input(e, r, n) || n->id < e->first || n->op == TNI_LEAF_OP) return true;
    const tni_kept *c = call_of(e, r, n);
    for (int i = 0; c && i < TNI_KEPT_SOURCES; i++)
        if (c->src[i] && !add(e, r, c->src[i])) return false;
    if (c) return true;
    if (was_read(n))
        return tni_refuse(
            e->cx, TN_EARG,
            "onnx_save: the layer reads a value (%s) while it runs%s: what depends on "
            "it cannot be written",
            tni_op_table[n->op].name, tni_layer_text(&n->site).s);
    for (uint32_t i = 0; i < n->nsrc; i++)
        if (!add(e, r, n->src[i])) return false;
    return true;
}

// A mark is the place in the list, from 1 on; no other walk may run while marks are set, and
// nothing may be evaluated.
static void set_marks(tni_export_run *r, bool on)
{
    for (size_t i = 0; i < r->count; i++) r->node[i]->mark = on ? (uint32_t)i + 1 : 0;
}

// Lists the nodes of a run, from the outputs back, and the calls that they came from. Two runs that
// record the same are listed alike.
static bool list_nodes(tni_exporter *e, tni_export_run *r)
{
    bool ok = true;
    for (int i = 0; ok && i < e->nx; i++) ok = add(e, r, r->in[i]);
    for (int i = 0; ok && i < e->ny; i++) ok = add(e, r, r->out[i]);
    for (size_t i = 0; ok && i < r->count; i++) ok = add_sources(e, r, r->node[i]);
    r->call = ok ? tni_zalloc(&e->cx->heap, (r->count + 1) * sizeof *r->call) : NULL;
    if (!r->call) {
        set_marks(r, false);
        return ok ? tni_no_memory(e->cx, "onnx_save") : false;
    }
    set_marks(r, true);
    for (size_t i = 0; i < r->count; i++) {
        tni_node *n = r->node[i];
        if (n->id >= e->first && n->op != TNI_LEAF_OP) r->call[i] = call_of(e, r, n);
    }
    return true;
}

// Brings the nodes of both runs into the order in which the first recorded them: what a node reads
// stands before it.
static bool sort_nodes(tni_exporter *e)
{
    tni_heap        *h    = &e->cx->heap;
    size_t           n    = e->run[0].count;
    tni_node       **last = tni_alloc(h, (n + 1) * sizeof *last);
    tni_node       **node = tni_alloc(h, (n + 1) * sizeof *node);
    const tni_kept **call = tni_alloc(h, (n + 1) * sizeof *call);
    bool             ok   = last && node && call;
    if (ok) memcpy(last, e->run[0].node, n * sizeof *last);
    ok = ok && tni_nodes_sort(h, n, last);
    for (int k = 0; ok && k < e->traces; k++) {
        tni_export_run *r = &e->run[k];
        for (size_t i = 0; i < n; i++) {
            node[i] = r->node[last[i]->mark - 1];
            call[i] = r->call[last[i]->mark - 1];
        }
        memcpy(r->node, node, n * sizeof *node);
        memcpy(r->call, call, n * sizeof *call);
    }
    set_marks(&e->run[0], ok);
    tni_free(h, last);
    tni_free(h, node);
    tni_free(h, call);
    return ok || tni_no_memory(e->cx, "onnx_save");
}

// ---- two runs ----------------------------------------------------------------------------------

// Bits, so that -0 and 0 differ.
static uint64_t mix_double(uint64_t h, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return tni_hash_mix(h, bits);
}

// The attributes that are no sizes.
static uint64_t mix_attributes(uint64_t h, const tni_node *n);

// What a body computes: its ops in order.
static uint64_t mix_body(uint64_t h, const tni_loop *l)
{
    h = tni_hash_mix(tni_hash_mix(tni_hash_mix(h, l->count), (uint64_t)tni_loop_inputs(l)),
                     (uint64_t)l->carries);
    for (size_t i = 0; i < l->count; i++)
        h = mix_attributes(tni_hash_mix(h, l->node[i]->op), l->node[i]);
    return h;
}

static uint64_t mix_attributes(uint64_t h, const tni_node *n)
{
    const tni_attr *a = &n->attr;
    switch (tni_op_table[n->op].attr) {
    case TNI_ATTR_num: return tni_hash_mix(mix_double(h, a->num.f), (uint64_t)a->num.i);
    case TNI_ATTR_iota: return mix_double(mix_double(h, a->iota.start), a->iota.step);
    case TNI_ATTR_pad: return tni_hash_mix(mix_double(h, a->pad.value), (uint64_t)a->pad.ivalue);
    case TNI_ATTR_reduce: return tni_hash_mix(h, a->reduce.axes);
    case TNI_ATTR_axis:
        return tni_hash_mix(h, (uint64_t)a->axis.axis << 1 | (uint64_t)a->axis.descending);
    case TNI_ATTR_loop:
        return mix_body(tni_hash_mix(h, a->loop.stacked << 1 | a->loop.reverse), a->loop.body);
    default: return h;
    }
}

// A call with its numbers. Those that depend on the batch, as a mean over it, make the runs
// differ.
static uint64_t mix_call(uint64_t h, const tni_kept *c)
{
    h = tni_hash_mix(h, c->kind);
    for (int i = 0; i < TNI_KEPT_SOURCES; i++) h = tni_hash_mix(h, c->src[i] ? c->src[i]->mark : 0);
    for (int i = 0; i < TNI_KEPT_INTS; i++) h = tni_hash_mix(h, (uint64_t)c->i[i]);
    return mix_double(mix_double(h, c->f[0]), c->f[1]);
}

// What has to be the same in both runs of a layer: everything but sizes.
static uint64_t signature(const tni_exporter *e, const tni_export_run *r, size_t i)
{
    const tni_node *n = r->node[i];
    uint64_t        h = tni_hash_mix(tni_hash_mix(n->op, n->dtype), n->rank);
    if (is_input(e, r, n)) return tni_hash_mix(h, 1);
    if (n->id < e->first) return tni_hash_mix(h, n->id);
    if (n->op == TNI_LEAF_OP) return tni_hash_mix(h, (uint64_t)tni_node_count(n));
    if (r->call[i]) return mix_call(h, r->call[i]);
    h = tni_hash_mix(h, n->nsrc);
    for (uint32_t k = 0; k < n->nsrc; k++) h = tni_hash_mix(h, n->src[k]->mark);
    return mix_attributes(h, n);
}

// Writes the signatures of all nodes of a run, whose marks are set.
static bool list_signatures(tni_exporter *e, const tni_export_run *r, uint64_t **list)
{
    *list = tni_alloc(&e->cx->heap, (r->count + 1) * sizeof **list);
    if (!*list) return tni_no_memory(e->cx, "onnx_save");
    for (size_t i = 0; i < r->count; i++) (*list)[i] = signature(e, r, i);
    return true;
}

// Marks are those of one run at a time, since both have the weights.
static bool runs_agree(tni_exporter *e)
{
    uint64_t *a = NULL, *b = NULL;
    bool      ok = list_signatures(e, &e->run[0], &a);
    set_marks(&e->run[0], false);
    ok = ok && list_nodes(e, &e->run[1]) && list_signatures(e, &e->run[1], &b);
    set_marks(&e->run[1], false);
    set_marks(&e->run[0], true);
    size_t i = 0, n = e->run[0].count;
    while (ok && i < n && i < e->run[1].count && a[i] == b[i]) i++;
    if (ok && (i < n || i < e->run[1].count)) {
        const tni_node *at = i < n ? e->run[0].node[i] : e->run[1].node[i];
        ok                 = tni_refuse(e->cx, TN_EARG,
                                        "onnx_save: %s%s is recorded otherwise for another batch: save the layer "
                                                        "without a symbolic one",
                                        tni_op_table[at->op].name, tni_layer_text(&at->site).s);
    }
    tni_free(&e->cx->heap, a);
    tni_free(&e->cx->heap, b);
    return ok;
}

// The runs are recorded one after the other before any is listed: a layer may keep what it made in
// the first one for the second.
bool tni_export_trace(tni_exporter *e, tn_tensor *const *x)
{
    for (int k = 0; k < e->traces; k++)
        if (!run_layer(e, x, k)) return false;
    return list_nodes(e, &e->run[0]) && (e->traces == 1 || runs_agree(e)) && sort_nodes(e);
}

// Releases the lists and the nodes that calls held.
void tni_export_untrace(tni_exporter *e)
{
    set_marks(&e->run[0], false);
    for (int k = 0; k < e->traces; k++) {
        tni_trace_close(e->cx, &e->run[k].trace);
        tni_free(&e->cx->heap, e->run[k].node);
        tni_free(&e->cx->heap, e->run[k].call);
        e->run[k] = (tni_export_run){ 0 };
    }
}
