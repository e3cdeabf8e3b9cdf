// The public call: a layer as an ONNX file.
//
// A network of two linear layers with a relu between them, saved with a symbol for the batch, is
//
//   node    Gemm   x, 1.weight, 1.bias         -> /1/Gemm_1     transB 1
//   node    Relu   /1/Gemm_1                   -> /2/Relu_2
//   node    Gemm   /2/Relu_2, 3.weight, 3.bias -> y             transB 1
//   input   x   float (N, 784)
//   output  y   float (N, 10)
//   weights 1.weight, 1.bias, 3.weight, 3.bias
//
// The steps:
//
//   arguments_ok        counts, names, the opset
//   tni_export_trace    the layer runs, once or twice; nothing is computed
//   write_nodes         every node that was recorded, by its call or by its row
//   tni_export_outputs  the values that the layer returned get the names of outputs
//   tni_export_write    the file, for which weights are computed and read
#include "onnx/export.h"

#include "onnx/onnx_run.h"

#include <string.h>

enum { FIRST_OPSET = 13, LAST_OPSET = 21, DEFAULT_OPSET = 17 };

// ---- arguments ---------------------------------------------------------------------------------

// "x", or "x0", "x1", ... if there are several.
static const char *port_name(tni_exporter *e, const char *const *names, const char *letter, int n,
                             int i)
{
    if (names) return names[i];
    return n == 1 ? letter : tni_export_text(e, "%s%d", letter, i);
}

// Names are not empty, and no two ports have the same.
static bool names_ok(tni_exporter *e)
{
    int n = e->nx + e->ny;
    for (int i = 0; i < n; i++) {
        const char *a = i < e->nx ? e->x_name[i] : e->y_name[i - e->nx];
        if (!a || !*a || *a == '/' || !tni_utf8_ok(a, strlen(a)))
            return tni_refuse(e->cx, TN_EARG, "onnx_save: the name %s of an input or output",
                              a ? tni_quoted(a).s : "NULL");
        for (int k = 0; k < i; k++)
            if (!strcmp(a, k < e->nx ? e->x_name[k] : e->y_name[k - e->nx]))
                return tni_refuse(e->cx, TN_EARG, "onnx_save: the name %s appears twice",
                                  tni_quoted(a).s);
    }
    return true;
}

// What is known of the inputs. Those whose first axis is as long as that of the first one have the
// batch there.
static bool read_ports(tni_exporter *e, tn_tensor *const *x, const tn_onnx_save_opts *o)
{
    for (int i = 0; i < e->nx; i++) {
        if (!x[i]) return tni_refuse(e->cx, TN_EARG, "onnx_save: x[%d] is NULL", i);
        if (tni_arg1("onnx_save", x[i], "x") != e->cx) {
            if (tni_tensor_alive(x[i], "onnx_save"))
                tni_fail(e->cx, TN_EARG, "onnx_save: x[%d] belongs to another context", i);
            return false;
        }
        e->x_name[i]  = port_name(e, o->x_names, "x", e->nx, i);
        e->x_dtype[i] = tni_dtype(x[i]);
        e->x_rank[i]  = tni_rank(x[i]);
        memcpy(e->x_size[i], tni_sizes(x[i]), (size_t)e->x_rank[i] * sizeof(int64_t));
        e->symbolic[i] = e->batch && e->x_rank[i] > 0 && e->x_size[i][0] == e->x_size[0][0];
    }
    if (e->batch && !e->symbolic[0])
        return tni_refuse(e->cx, TN_ESHAPE, "onnx_save: x %s has no axis for the batch",
                          tni_shape_of(x[0]).s);
    for (int i = 0; i < e->ny; i++) e->y_name[i] = port_name(e, o->y_names, "y", e->ny, i);
    return names_ok(e);
}

// Everything that can be wrong before the layer runs.
static bool arguments_ok(tni_exporter *e, int nx, tn_tensor *const *x, const tn_onnx_save_opts *o)
{
    if (!e->path || !*e->path) return tni_refuse(e->cx, TN_EARG, "onnx_save: there is no path");
    if (nx < 1 || nx > TNI_MOST_PORTS || !x)
        return tni_refuse(e->cx, TN_EARG, "onnx_save: %d inputs%s", nx, x ? "" : ", x is NULL");
    if (e->opset < FIRST_OPSET || e->opset > LAST_OPSET)
        return tni_refuse(e->cx, TN_EARG, "onnx_save: opset %d is not in %d .. %d", o->opset,
                          FIRST_OPSET, LAST_OPSET);
    if (e->batch && !*e->batch)
        return tni_refuse(e->cx, TN_EARG, "onnx_save: the symbol of the batch is empty");
    return read_ports(e, x, o);
}

// ---- writing -----------------------------------------------------------------------------------

// Counts how often each node is read, by calls and by ops.
static void count_uses(tni_exporter *e)
{
    const tni_export_run *r = &e->run[0];
    for (size_t i = 0; i < r->count; i++) {
        const tni_node *n = r->node[i];
        if (n->id < e->first || n->op == TNI_LEAF_OP) continue;
        for (int k = 0; r->call[i] && k < TNI_KEPT_SOURCES; k++)
            if (r->call[i]->src[k]) e->known[tni_export_index(r->call[i]->src[k])].uses++;
        for (uint32_t k = 0; !r->call[i] && k < n->nsrc; k++)
            e->known[tni_export_index(n->src[k])].uses++;
    }
}

// Whether a node is written only where something reads it.
static bool is_lazy(const tni_exporter *e, size_t i)
{
    const tni_node *n = tni_export_at(e, i);
    return !e->run[0].call[i] && (n->op == TNI_VIEW_OP || n->op == TNI_iota ||
                                  tni_is_number(n->op) || tni_export_is_weight(e, n));
}

// Nodes come in the order in which they were recorded, so that what a node reads has been written,
// or is written when it is asked for: views, constants, weights.
bool tni_export_nodes(tni_exporter *e)
{
    for (size_t i = 0; i < e->run[0].count; i++) {
        e->at = i;
        if (e->known[i].full.name || is_lazy(e, i)) continue;
        if (!(e->run[0].call[i] ? tni_export_call(e, i) : tni_export_row(e, i))) return false;
    }
    return true;
}

// What is known at first are the names of inputs; the rest follows from them.
static bool write_nodes(tni_exporter *e)
{
    e->known = tni_zalloc(&e->cx->heap, (e->run[0].count + 1) * sizeof *e->known);
    if (!e->known) return tni_no_memory(e->cx, "onnx_save");
    for (int i = 0; i < e->nx; i++)
        tni_export_set(e, tni_export_index(e->run[0].in[i]), e->x_name[i]);
    count_uses(e);
    return tni_export_nodes(e) && tni_export_outputs(e);
}

// Graphs in nodes may have nodes with graphs.
void tni_export_free_nodes(tni_exporter *e, tni_export_node *node, size_t nodes)
{
    tni_heap *h = &e->cx->heap;
    for (size_t i = 0; i < nodes; i++) {
        tni_free(h, node[i].in);
        tni_message_free(&node[i].attributes);
        if (node[i].body) tni_export_free_nodes(e, node[i].body->node, node[i].body->nodes);
        tni_free(h, node[i].body);
    }
    tni_free(h, node);
}

// Weights were held beyond the dry run; this lets go of them.
static void free_export(tni_exporter *e)
{
    tni_heap *h = &e->cx->heap;
    tni_export_free_nodes(e, e->node, e->nodes);
    for (size_t i = 0; i < e->weights; i++) {
        tni_free(h, e->weight[i].bytes);
        if (e->weight[i].node) tni_node_unref(e->cx, e->weight[i].node);
    }
    for (size_t i = 0; i < e->texts; i++) tni_free(h, e->text[i]);
    tni_free(h, e->weight);
    tni_free(h, e->text);
    tni_free(h, e->known);
}

// What is traced dies with the dry run; only weights are held until they are in the file, since
// they may have to be computed.
static bool save(tni_exporter *e, tn_tensor *const *x)
{
    tni_dry_run d;
    if (!tni_layer_list(e->layer, "onnx_save", &e->entries)) return false;
    bool ok = tni_dry_begin(&d, "onnx_save", e->layer);
    if (ok) {
        ok = tni_export_trace(e, x) && write_nodes(e);
        tni_export_untrace(e);
        tni_dry_end(&d);
    }
    ok = ok && tni_export_write(e);
    tni_entries_free(&e->entries);
    return ok;
}

// The file is written after the trace is gone: initial weights may have to be computed for it,
// which no mark of a node survives.
tn_status tn_onnx_save(tn_layer *l, const char *path, int nx, tn_tensor *const *x,
                       tn_onnx_save_opts o)
{
    tn_ctx *cx = tni_owned_ok("onnx_save", l, TNI_LAYER);
    if (!cx) return tni_failed();
    tni_exporter e  = { .cx     = cx,
                        .layer  = l,
                        .path   = path,
                        .batch  = o.batch,
                        .opset  = o.opset ? o.opset : DEFAULT_OPSET,
                        .nx     = nx,
                        .ny     = l->out,
                        .traces = o.batch ? 2 : 1,
                        .beside = o.beside };
    bool         ok = arguments_ok(&e, nx, x, &o) && save(&e, x);
    free_export(&e);
    return ok ? TN_OK : tni_failed();
}
