// The file: the graph's nodes and ports as one message in memory, then the weights, one after the
// other, so that memory for one of them suffices.
//
//   ModelProto   ir_version, producer, opset        written at once
//     GraphProto   length                           known before any weight is read
//       nodes, name, inputs, outputs
//       TensorProto   dims, type, name, raw data    each from its tensor
//
// With weights beside the model, a TensorProto says where in NAME.data its elements are. Small ones
// stay inside: runtimes read shapes and axes before they read weights.
#include "onnx/export.h"

#include "io/file.h"
#include "onnx/onnx_run.h"

#include <string.h>

// Bytes from which a weight goes beside the model; what offsets there are multiples of, as the
// standard has it; and the first size that protocol buffers of others do not read.
enum { SMALL = 1024, PAGE = 4096 };
static const uint64_t TOO_LARGE = UINT64_C(1) << 31;

// ---- ports -------------------------------------------------------------------------------------

// Where names are changed: every use of a value has the same pointer.
static void rename_value(tni_export_node *n, size_t nodes, const char *from, const char *to)
{
    for (; nodes > 0; nodes--, n++) {
        for (int k = 0; k < n->nin + n->nout; k++)
            if (n->in[k] == from) n->in[k] = to;
        if (n->body) rename_value(n->body->node, n->body->nodes, from, to);
    }
}

// Whether a node makes the value, so that it can be renamed.
static bool is_node_output(const tni_exporter *e, const char *name)
{
    for (size_t i = 0; i < e->nodes; i++)
        for (int k = 0; k < e->node[i].nout; k++)
            if (e->node[i].out[k] == name) return true;
    return false;
}

// A value becomes an output by its name. Inputs, weights and values that are outputs already are
// copied.
bool tni_export_outputs(tni_exporter *e)
{
    for (int i = 0; i < e->ny; i++) {
        const tni_node *n = e->run[0].out[i];
        e->at             = tni_export_index(n);
        tni_operand_out y = tni_export_value(e, e->at);
        if (!y.name) return false;
        bool taken = !is_node_output(e, y.name);
        for (int k = 0; k < i; k++) taken |= e->run[0].out[k] == n || e->y_name[k] == y.name;
        if (taken && !(y.name = tni_export_add(e, "Identity", 1, &y.name, 0, NULL))) return false;
        rename_value(e->node, e->nodes, y.name, e->y_name[i]);
        for (size_t k = 0; k < e->run[0].count; k++) {
            tni_operand_out *o[] = { &e->known[k].full, &e->known[k].loose, &e->known[k].shown };
            for (int j = 0; j < 3; j++)
                if (o[j]->name == y.name) o[j]->name = e->y_name[i];
        }
        e->y_rank[i]  = n->rank;
        e->y_dtype[i] = (tn_dtype)n->dtype;
        for (int k = 0; k < n->rank; k++) e->y_size[i][k] = tni_export_axis(e, e->at, k);
    }
    return true;
}

// ValueInfoProto: name (1), type (2) {tensor (1) {elements (1), shape (2) {dim (1) {size (1),
// symbol (2)}}}}. A size that is the batch has its symbol, another that depends on it is not said.
static void put_port(tni_message *g, uint32_t field, const tni_exporter *e, const char *name,
                     tn_dtype dt, int rank, const tni_extent *size)
{
    tni_message info = { .heap = g->heap }, type = info, tensor = info, shape = info;
    for (int k = 0; k < rank; k++) {
        tni_message dim   = { .heap = g->heap };
        bool        batch = size[k].at[0] == TNI_EXPORT_FIRST_BATCH &&
                     size[k].at[1] == TNI_EXPORT_FIRST_BATCH + 1;
        if (tni_is_fixed(size[k])) tni_message_int(&dim, 1, size[k].at[0]);
        else if (batch) tni_message_text(&dim, 2, e->batch);
        tni_message_nest(&shape, 1, &dim);
    }
    tni_message_int(&tensor, 1, tni_onnx_type_of(dt));
    tni_message_nest(&tensor, 2, &shape);
    tni_message_nest(&type, TNI_TYPE_TENSOR, &tensor);
    tni_message_text(&info, TNI_VALUE_NAME, name);
    tni_message_nest(&info, TNI_VALUE_TYPE, &type);
    tni_message_nest(g, field, &info);
}

// The size of the batch is that of the two runs, which put_port takes for the symbol.
static void put_input(tni_message *g, const tni_exporter *e, int i)
{
    tni_extent size[TN_MAX_RANK];
    for (int k = 0; k < e->x_rank[i]; k++) {
        size[k] = tni_fixed(e->x_size[i][k]);
        if (k == 0 && e->symbolic[i])
            size[k] = (tni_extent){ { TNI_EXPORT_FIRST_BATCH, TNI_EXPORT_FIRST_BATCH + 1 } };
    }
    put_port(g, TNI_GRAPH_INPUT, e, e->x_name[i], e->x_dtype[i], e->x_rank[i], size);
}

// NodeProto. Attributes are fields already, each with its key; the body of a loop is one more, a
// graph (6) of type 5, in which there may be others.
static void put_node(tni_message *g, const tni_exporter *e, const tni_export_node *n)
{
    tni_message m = { .heap = g->heap }, attribute = m, body = m;
    for (int i = 0; i < n->nin; i++) tni_message_text(&m, TNI_NODE_INPUT, n->in[i]);
    for (int i = 0; i < n->nout; i++) tni_message_text(&m, TNI_NODE_OUTPUT, n->out[i]);
    tni_message_text(&m, TNI_NODE_NAME, n->name);
    tni_message_text(&m, TNI_NODE_OP, n->op);
    tni_message_fields(&m, &n->attributes);
    if (n->body) {
        const tni_export_graph *b = n->body;
        for (size_t i = 0; i < b->nodes; i++) put_node(&body, e, &b->node[i]);
        tni_message_text(&body, TNI_GRAPH_NAME, "body");
        for (int i = 0; i < b->ins; i++)
            put_port(&body, TNI_GRAPH_INPUT, e, b->in[i].name, b->in[i].dtype, b->in[i].rank,
                     b->in[i].size);
        for (int i = 0; i < b->outs; i++)
            put_port(&body, TNI_GRAPH_OUTPUT, e, b->out[i].name, b->out[i].dtype, b->out[i].rank,
                     b->out[i].size);
        tni_message_text(&attribute, TNI_ATTR_NAME, "body");
        tni_message_nest(&attribute, TNI_ATTR_G, &body);
        tni_message_int(&attribute, 20, 5);
        tni_message_nest(&m, TNI_NODE_ATTRIBUTE, &attribute);
    }
    tni_message_nest(g, TNI_GRAPH_NODE, &m);
}

// GraphProto without its weights, which follow it in the file.
static tni_message graph_message(const tni_exporter *e)
{
    tni_message g = { .heap = &e->cx->heap };
    for (size_t i = 0; i < e->nodes; i++) put_node(&g, e, &e->node[i]);
    tni_message_text(&g, TNI_GRAPH_NAME, e->layer->type);
    for (int i = 0; i < e->nx; i++) put_input(&g, e, i);
    for (int i = 0; i < e->ny; i++)
        put_port(&g, TNI_GRAPH_OUTPUT, e, e->y_name[i], e->y_dtype[i], e->y_rank[i], e->y_size[i]);
    return g;
}

// The version of the format that has an opset.
static int ir_of(int opset)
{
    return opset < 15 ? 7 : opset < 19 ? 8 : opset < 21 ? 9 : 10;
}

// ModelProto without its graph.
static tni_message model_message(const tni_exporter *e)
{
    tni_message m = { .heap = &e->cx->heap }, set = m;
    tni_message_int(&m, TNI_MODEL_IR, ir_of(e->opset));
    tni_message_text(&m, TNI_MODEL_PRODUCER, "tenon");
    tni_message_text(&m, 3, tn_version());
    tni_message_text(&set, TNI_OPSET_DOMAIN, "");
    tni_message_int(&set, TNI_OPSET_VERSION, e->opset);
    tni_message_nest(&m, TNI_MODEL_OPSET, &set);
    return m;
}

// ---- weights -----------------------------------------------------------------------------------

// The bytes of the elements.
static uint64_t weight_bytes(const tni_export_weight *w)
{
    return (uint64_t)tni_shape_count(w->rank, w->size) * tni_dtype_size(w->dtype);
}

// Small weights stay in the model.
static bool is_beside(const tni_exporter *e, const tni_export_weight *w)
{
    return e->beside && weight_bytes(w) >= SMALL;
}

// A pair of texts (StringStringEntryProto), as all facts of external data are.
static void put_external(tni_message *m, const char *key, const char *value)
{
    tni_message entry = { .heap = m->heap };
    tni_message_text(&entry, 1, key);
    tni_message_text(&entry, 2, value);
    tni_message_nest(m, TNI_TENSOR_EXTERNAL, &entry);
}

// The file name of a path.
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// A TensorProto up to its elements; at: where those are, if they are beside the model.
static tni_message weight_message(const tni_exporter *e, const tni_export_weight *w, uint64_t at)
{
    tni_message m = { .heap = &e->cx->heap };
    for (int k = 0; k < w->rank; k++) tni_message_int(&m, TNI_TENSOR_DIMS, w->size[k]);
    tni_message_int(&m, TNI_TENSOR_TYPE, tni_onnx_type_of(w->dtype));
    tni_message_text(&m, TNI_TENSOR_NAME, w->name);
    if (!is_beside(e, w)) {
        tni_message_head(&m, TNI_TENSOR_RAW, weight_bytes(w));
        return m;
    }
    const char *name = tni_export_text((tni_exporter *)e, "%s.data", base_name(e->path));
    m.full |= !name;
    put_external(&m, "location", name ? name : "");
    put_external(&m, "offset", tni_text_of("%llu", (unsigned long long)at).s);
    put_external(&m, "length", tni_text_of("%llu", (unsigned long long)weight_bytes(w)).s);
    tni_message_int(&m, TNI_TENSOR_LOCATION, 1);
    return m;
}

// Offsets of weights beside the model.
static uint64_t next_page(uint64_t at)
{
    return (at + PAGE - 1) / PAGE * PAGE;
}

// Writes the elements of a weight. They are computed now if they are still pending, such as initial
// weights.
static bool write_elements(tni_exporter *e, tni_outfile *f, const tni_export_weight *w)
{
    if (w->bytes) return tni_outfile_write(f, w->bytes, weight_bytes(w));
    tn_scope  *s = tn_begin(e->cx);
    tn_tensor *t = s ? tni_wrap_node(e->cx, w->node) : NULL;
    if (t && w->turned) t = tn_transpose(t, 0, 1);
    bool ok = t && tni_elements_write(f, "onnx_save", t);
    if (s) tni_scope_close(s);
    return ok;
}

// The bytes of a weight's message in the graph, with its key.
static uint64_t weight_room(const tni_exporter *e, const tni_export_weight *w, const tni_message *m)
{
    uint64_t inside = m->bytes + (is_beside(e, w) ? 0 : weight_bytes(w));
    return tni_message_head_size(TNI_GRAPH_INITIALIZER, inside) + inside;
}

// Writes the TensorProto of every weight, or, without a file, counts their bytes.
static bool write_weights(tni_exporter *e, tni_outfile *f, uint64_t *bytes)
{
    uint64_t at = 0;
    bool     ok = true;
    for (size_t i = 0; ok && i < e->weights; i++) {
        const tni_export_weight *w = &e->weight[i];
        tni_message              m = weight_message(e, w, at), head = { .heap = m.heap };
        bool                     beside = is_beside(e, w);
        if (beside) at = next_page(at + weight_bytes(w));
        *bytes += weight_room(e, w, &m);
        tni_message_head(&head, TNI_GRAPH_INITIALIZER, m.bytes + (beside ? 0 : weight_bytes(w)));
        ok = !m.full && !head.full;
        if (!ok) tni_no_memory(e->cx, "onnx_save");
        if (ok && f)
            ok = tni_outfile_write(f, head.data, head.bytes) &&
                 tni_outfile_write(f, m.data, m.bytes) && (beside || write_elements(e, f, w));
        tni_message_free(&m);
        tni_message_free(&head);
    }
    return ok;
}

// Writes the weights that are beside the model, each from a page on.
static bool write_beside(tni_exporter *e)
{
    static const char zeros[PAGE];
    const char       *path = tni_export_text(e, "%s.data", e->path);
    tni_outfile      *f    = path ? tni_outfile_open(e->cx, "onnx_save", path) : NULL;
    bool              ok   = f != NULL;
    for (size_t i = 0; ok && i < e->weights; i++) {
        const tni_export_weight *w = &e->weight[i];
        uint64_t                 n = weight_bytes(w);
        if (!is_beside(e, w)) continue;
        ok = write_elements(e, f, w) && tni_outfile_write(f, zeros, next_page(n) - n);
    }
    if (ok) return tni_outfile_commit(f) == TN_OK;
    if (f) tni_outfile_abandon(f);
    return false;
}

// The weights beside come first: a model is never there without them.
static bool write_file(tni_exporter *e, const tni_message *model, const tni_message *graph,
                       uint64_t weights)
{
    tni_message head = { .heap = model->heap };
    tni_message_head(&head, TNI_MODEL_GRAPH, graph->bytes + weights);
    if (head.full) return tni_no_memory(e->cx, "onnx_save");
    if (e->beside && !write_beside(e)) return tni_message_free(&head), false;
    tni_outfile *f     = tni_outfile_open(e->cx, "onnx_save", e->path);
    uint64_t     bytes = 0;
    bool         ok    = f && tni_outfile_write(f, model->data, model->bytes) &&
              tni_outfile_write(f, head.data, head.bytes) &&
              tni_outfile_write(f, graph->data, graph->bytes) && write_weights(e, f, &bytes);
    tni_message_free(&head);
    if (ok) return tni_outfile_commit(f) == TN_OK;
    if (f) tni_outfile_abandon(f);
    return false;
}

// Lengths come before what they measure, so that the weights are counted first and then written.
bool tni_export_write(tni_exporter *e)
{
    tni_message model = model_message(e), graph = graph_message(e);
    uint64_t    weights = 0;
    bool        ok      = !model.full && !graph.full;
    if (!ok) tni_no_memory(e->cx, "onnx_save");
    ok = ok && write_weights(e, NULL, &weights);
    if (ok && graph.bytes + weights >= TOO_LARGE)
        ok = tni_refuse(e->cx, TN_EARG,
                        "onnx_save: %s would have %s, and other programs read less than 2 GiB: put "
                        "the weights beside it",
                        tni_quoted(e->path).s, tni_size_text((int64_t)(graph.bytes + weights)).s);
    ok = ok && write_file(e, &model, &graph, weights);
    tni_message_free(&model);
    tni_message_free(&graph);
    return ok;
}
