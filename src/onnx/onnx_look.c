// Looking at a model: its nodes, and the shapes of its values.
//
// Names in the file do not end in a zero, so that those of nodes are copied, once, when they are
// first asked for:
//
//   node_text   Conv\0conv1\0x\0w\0y\0 ...          node_list   x w y ...          node   {Conv, conv1, in, out}
#include "onnx/onnx_object.h"

#include <string.h>

// The two runs over the nodes: the first counts, with text NULL, the second writes.
typedef struct {
    char        *text;
    const char **list;
    size_t       bytes, names;
} writer;

// Appends a text; returns where it is. While texts are counted there is no room yet, and only their
// lengths add up.
static const char *put(writer *w, tni_wire s)
{
    char  *at = w->text ? w->text + w->bytes : NULL;
    size_t n  = tni_wire_size(s);
    if (at) memcpy(at, s.at, n);
    if (at) at[n] = 0;
    w->bytes += n + 1;
    return at;
}

// Appends the texts of a repeated field to the list; returns where they begin.
static const char *const *put_list(writer *w, tni_wire message, uint32_t number, int *count)
{
    tni_wire_field     f;
    const char *const *at = w->list ? w->list + w->names : NULL;
    *count                = 0;
    while (tni_wire_next(&message, &f) > 0) {
        if (f.number != number || f.type != TNI_WIRE_BYTES) continue;
        const char *s = put(w, f.bytes);
        if (w->list) w->list[w->names] = s;
        w->names++;
        ++*count;
    }
    return at;
}

// The texts of one node, in the order that both runs keep.
static tn_onnx_node describe(writer *w, const tni_onnx_node *n)
{
    tn_onnx_node d = { .known = n->row >= 0 };
    d.op           = put(w, tni_onnx_bytes(n->message, TNI_NODE_OP));
    d.name         = put(w, tni_onnx_bytes(n->message, TNI_NODE_NAME));
    d.in           = put_list(w, n->message, TNI_NODE_INPUT, &d.ins);
    d.out          = put_list(w, n->message, TNI_NODE_OUTPUT, &d.outs);
    return d;
}

// Nodes in graphs of other nodes are not among them: those run as part of theirs. The shapes of
// values are noted from now on, which costs a run little, but one that is not looked at nothing.
int tn_onnx_nodes(tn_onnx *m)
{
    const char *op = "onnx_nodes";
    tn_ctx     *cx = tni_owned_ok(op, m, TNI_ONNX);
    if (!cx) return -1;
    const tni_onnx_graph *g = &m->model.graph[0];
    if (m->node) return (int)g->count;
    writer w = { 0 };
    for (uint32_t i = 0; i < g->count; i++) describe(&w, &m->model.node[g->first + i]);
    tni_heap     *h    = &cx->heap;
    tn_onnx_node *node = tni_alloc(h, (g->count + 1) * sizeof *node);
    m->node_text       = tni_alloc(h, w.bytes + 1);
    m->node_list       = tni_alloc(h, (w.names + 1) * sizeof *m->node_list);
    if (!m->run.seen) m->run.seen = tni_alloc(h, (m->model.values + 1) * sizeof *m->run.seen);
    if (!node || !m->node_text || !m->node_list || !m->run.seen) {
        tni_free(h, node);
        tni_free(h, m->node_text);
        tni_free(h, m->node_list);
        m->node_text = NULL;
        m->node_list = NULL;
        tni_no_memory(cx, op);
        return -1;
    }
    for (size_t i = 0; i < m->model.values; i++) m->run.seen[i].rank = -1;
    w = (writer){ .text = m->node_text, .list = m->node_list };
    for (uint32_t i = 0; i < g->count; i++) node[i] = describe(&w, &m->model.node[g->first + i]);
    m->node = node;
    return (int)g->count;
}

// Getters of what is not there say that there is nothing.
tn_onnx_node tn_onnx_node_at(const tn_onnx *m, int i)
{
    bool there = m && m->node && i >= 0 && i < (int)m->model.graph[0].count;
    return there ? m->node[i] : (tn_onnx_node){ .op = "", .name = "" };
}

// The sizes of a TensorProto, as the file says them: elements are not looked at, so that a weight
// which does not fit its bytes can be shown, too.
static tn_onnx_port weight_port(tni_wire init)
{
    tn_onnx_port  p = { .name = "", .dtype = TN_F32 };
    tni_wire_list l = tni_wire_list_of(init, TNI_TENSOR_DIMS, TNI_WIRE_VARINT);
    uint64_t      v;
    tni_onnx_dtype(tni_onnx_int(init, TNI_TENSOR_TYPE, 0), &p.dtype);
    while (p.rank < TN_MAX_RANK && tni_wire_list_next(&l, &v)) p.size[p.rank++] = (int64_t)v;
    return p;
}

// A weight is marked by `optional`: it need not be given.
tn_onnx_port tn_onnx_node_value(const tn_onnx *m, int node, int i)
{
    tn_onnx_node n = tn_onnx_node_at(m, node);
    tn_onnx_port p = { .name = "", .rank = -1 };
    if (i < 0 || i >= n.ins + n.outs) return p;
    const tni_onnx_node *from = &m->model.node[m->model.graph[0].first + (uint32_t)node];
    int32_t              v    = m->model.use[from->use + (uint32_t)i];
    if (v < 0) return p;
    if (tni_wire_size(m->model.value[v].init) && !m->model.value[v].sparse)
        p = weight_port(m->model.value[v].init), p.optional = true;
    else {
        const tni_onnx_seen *s = &m->run.seen[v];
        p.rank                 = s->rank;
        p.dtype                = s->rank < 0 ? TN_F32 : (tn_dtype)s->dtype;
        for (int k = 0; k < s->rank; k++) p.size[k] = s->size[k];
    }
    p.name = i < n.ins ? n.in[i] : n.out[i - n.ins];
    return p;
}
