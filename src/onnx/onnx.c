// The public object: a model with its weights.
#include "nn/layer.h"
#include "onnx/onnx_object.h"
#include "onnx/onnx_ops.h"

#include <string.h>

// What is kept from run to run is owned by the model, on the device and on the host.
static void release_value(tni_onnx_value *v)
{
    if (v->fixed && v->t) tn_release(v->t);
    if (v->fixed && v->host) tn_release(v->host);
    if (v->fixed && v->strips) tn_release(v->strips);
    *v = (tni_onnx_value){ 0 };
}

// Until the model is closed, or its weights begin to change.
void tni_onnx_forget(tn_onnx *m)
{
    tni_onnx_forget_runs(m);
    tni_onnx_fusions_free(&m->run);
    for (size_t i = 0; m->run.value && i < m->model.values; i++) release_value(&m->run.value[i]);
    for (size_t i = 0; m->run.kept && i < m->model.nodes; i++)
        for (int k = 0; k < TNI_ONNX_SLOTS; k++)
            if (m->run.kept[i][k]) tn_release(m->run.kept[i][k]);
    tni_free(&m->owned.cx->heap, m->run.kept);
    m->run.kept = NULL;
    m->run.room = TNI_ONNX_KEPT;
    m->trained  = false;
}

// Called by tn_onnx_close, or by tn_close for models that are left. The layer stays, without its
// model.
static void free_model(tni_owned *t)
{
    tn_onnx  *m = (tn_onnx *)t;
    tni_heap *h = &t->cx->heap;
    if (m->layer) m->layer->self = NULL;
    if (m->layer) m->layer->free_self = NULL;
    tni_onnx_forget(m);
    tni_free(h, m->run.value);
    tni_free(h, m->in);
    tni_free(h, m->out);
    tni_free(h, m->text);
    tni_free(h, m->node);
    tni_free(h, m->node_text);
    tni_free(h, m->node_list);
    tni_free(h, m->run.seen);
    tni_free(h, m->run.path);
    tni_onnx_model_close(&m->model);
    if (m->run.host) tn_ctx_take(m->run.host);
    tn_close(m->run.host);
    tni_free(h, m);
}

// Forgets what the last run computed. Weights are read when a node asks for them.
static void clear_values(tn_onnx *m)
{
    for (void **list = m->run.lists; list; list = m->run.lists) {
        m->run.lists = *list;
        tni_free(&m->owned.cx->heap, list);
    }
    for (size_t i = 0; i < m->model.values; i++) {
        tni_onnx_value *v = &m->run.value[i];
        if (!v->fixed) *v = (tni_onnx_value){ .fixed = tni_wire_size(m->model.value[i].init) > 0 };
        v->product = NULL;  // of the run that ended, also where the value itself stays
        v->asked   = false;
    }
}

// ---- inputs and outputs ------------------------------------------------------------------------

// Copies a text of the file behind those of other ports.
static const char *keep_text(char **at, tni_wire w)
{
    char  *s = *at;
    size_t n = tni_wire_size(w);
    memcpy(s, w.at, n);
    s[n] = 0;
    *at += n + 1;
    return s;
}

// Reads a ValueInfoProto: type (2) {tensor (1) {elements (1), shape (2) {dim (1) {size (1), symbol
// (2)}}}}.
static tn_onnx_port read_port(tni_wire info, char **text)
{
    tn_onnx_port p  = { .name  = keep_text(text, tni_onnx_bytes(info, TNI_VALUE_NAME)),
                        .dtype = TN_F32,
                        .rank  = -1 };
    tni_wire tensor = tni_onnx_bytes(tni_onnx_bytes(info, TNI_VALUE_TYPE), TNI_TYPE_TENSOR), shape;
    tni_wire_field f;
    tni_onnx_dtype(tni_onnx_int(tensor, 1, 0), &p.dtype);
    if (!tni_wire_find(tensor, 2, &f) || f.type != TNI_WIRE_BYTES) return p;
    shape  = f.bytes;
    p.rank = 0;
    while (tni_wire_next(&shape, &f) > 0 && p.rank < TN_MAX_RANK) {
        if (f.number != 1 || f.type != TNI_WIRE_BYTES) continue;
        tni_wire symbol  = tni_onnx_bytes(f.bytes, 2);
        p.size[p.rank]   = tni_onnx_int(f.bytes, 1, -1);
        p.symbol[p.rank] = tni_wire_size(symbol) ? keep_text(text, symbol) : NULL;
        p.rank++;
    }
    return p;
}

// Room for the texts of all ports: each lies in the message of its port, behind two bytes that its
// end takes.
static size_t port_text_bytes(tni_wire graph)
{
    tni_wire_field f;
    size_t         n = 0;
    while (tni_wire_next(&graph, &f) > 0)
        if ((f.number == TNI_GRAPH_INPUT || f.number == TNI_GRAPH_OUTPUT) &&
            f.type == TNI_WIRE_BYTES)
            n += tni_wire_size(f.bytes) + 1;
    return n;
}

// Ports of the graph's fields with that number. In old files weights are inputs too; one that has
// no data of its own is an input.
static bool read_ports(tn_onnx *m, uint32_t number, tn_onnx_port **ports, int *count, char **text)
{
    tni_wire       w = m->model.graph_message;
    tni_wire_field f;
    int            n = 0;
    while (tni_wire_next(&w, &f) > 0) n += f.number == number && f.type == TNI_WIRE_BYTES;
    if (!tni_onnx_fits(&m->model, (size_t)(n + m->ins) * sizeof **ports)) return false;
    *ports = tni_alloc(&m->owned.cx->heap, (size_t)n * sizeof **ports);
    if (!*ports) return tni_fail_memory(m->owned.cx, m->model.op) != NULL;
    w = m->model.graph_message;
    while (tni_wire_next(&w, &f) > 0) {
        if (f.number != number || f.type != TNI_WIRE_BYTES) continue;
        char        *before = *text;
        tn_onnx_port p      = read_port(f.bytes, text);
        int32_t      v      = tni_onnx_named(&m->model, p.name);
        bool weight = number == TNI_GRAPH_INPUT && v >= 0 && tni_wire_size(m->model.value[v].init);
        if (weight && m->model.ir < 4) *text = before;
        else {
            p.optional           = weight;
            (*ports)[(*count)++] = p;
        }
    }
    return true;
}

// ---- opening -----------------------------------------------------------------------------------

// Reads the file into a model whose struct is zeroed, opens its context on the host and describes
// its inputs and outputs.
static bool read_model(tn_onnx *m, const char *path)
{
    tn_ctx         *cx = m->owned.cx;
    tni_onnx_model *f  = &m->model;
    f->cx              = cx;
    f->as              = TN_F32;
    f->op              = "onnx_open";
    f->map             = tni_mapping_open(cx, f->op, path);
    f->path            = f->map ? tni_strdup(&cx->heap, path) : NULL;
    if (!f->map) return false;
    if (!f->path) return tni_fail_memory(cx, f->op) != NULL;
    if (!tni_onnx_model_read(f)) return false;
    m->run = (tni_onnx_run){ .m = f, .cx = cx, .host = tn_open("ref"), .room = TNI_ONNX_KEPT };
    if (!m->run.host) return tni_fail(cx, TN_EDEVICE, "onnx_open: %s", tn_error_text(NULL)) != NULL;
    tn_on_error(m->run.host, NULL, NULL);
    m->run.value = tni_zalloc(&cx->heap, (f->values + 1) * sizeof *m->run.value);
    m->run.path  = tni_zalloc(&cx->heap, (f->nodes + 1) * sizeof *m->run.path);
    char *text = m->text = tni_alloc(&cx->heap, port_text_bytes(f->graph_message) + 1);
    if (!m->run.value || !m->text) return tni_fail_memory(cx, f->op) != NULL;
    clear_values(m);
    return read_ports(m, TNI_GRAPH_INPUT, &m->in, &m->ins, &text) &&
           read_ports(m, TNI_GRAPH_OUTPUT, &m->out, &m->outs, &text);
}

// A model that could not be read is freed as one that was: what it has not, is NULL.
tn_onnx *tn_onnx_open(tn_ctx *cx, const char *path)
{
    if (!tni_ctx_ok(cx, "onnx_open")) return NULL;
    tn_onnx *m = tni_zalloc(&cx->heap, sizeof *m);
    if (!m) return tni_fail_memory(cx, "onnx_open");
    m->owned.cx = cx;
    if (!read_model(m, path)) {
        free_model(&m->owned);
        return NULL;
    }
    tni_owned_add(cx, &m->owned, TNI_ONNX, free_model);
    return m;
}

// NULL may be closed, as it may be freed.
void tn_onnx_close(tn_onnx *m)
{
    if (!m || !tni_owned_ok("onnx_close", m, TNI_ONNX)) return;
    tni_owned_remove(&m->owned);
    free_model(&m->owned);
}

// Getters of a NULL model say that there is nothing.
int tn_onnx_inputs(const tn_onnx *m)
{
    return m ? m->ins : 0;
}
int tn_onnx_outputs(const tn_onnx *m)
{
    return m ? m->outs : 0;
}

tn_onnx_port tn_onnx_input(const tn_onnx *m, int i)
{
    return m && i >= 0 && i < m->ins ? m->in[i] : (tn_onnx_port){ .rank = -1 };
}

tn_onnx_port tn_onnx_output(const tn_onnx *m, int i)
{
    return m && i >= 0 && i < m->outs ? m->out[i] : (tn_onnx_port){ .rank = -1 };
}

// Weights are read again, in the new dtype.
tn_status tn_onnx_cast(tn_onnx *m, tn_dtype dt)
{
    tn_ctx *cx = tni_owned_ok("onnx_cast", m, TNI_ONNX);
    if (!cx) return tni_failed();
    if (dt != TN_F32 && dt != TN_F16 && dt != TN_BF16)
        return tni_fail_status(cx, TN_EDTYPE, "onnx_cast: the dtype is %s, not f32, f16 or bf16",
                               tn_dtype_name(dt));
    if (m->layer || m->trained)
        return tni_fail_status(cx, TN_EARG, "onnx_cast: the model %s a layer: cast that",
                               m->layer ? "is" : "was");
    m->model.as = dt;
    tni_onnx_forget(m);
    clear_values(m);
    return TN_OK;
}

// ---- running -----------------------------------------------------------------------------------

// The value that the i-th tensor of a call is for; TNI_ONNX_NONE, reported, if there is none. Any
// value of the graph can be asked for, as features of a network are.
static int32_t port_value(tn_onnx *m, const char *what, const char *const *names, int i,
                          const tn_onnx_port *port, int ports)
{
    const char *name = names ? names[i] : i < ports ? port[i].name : NULL;
    int         at   = 0;
    int32_t     v    = name ? tni_onnx_named(&m->model, name) : TNI_ONNX_NONE;
    while (name && at < ports && strcmp(port[at].name, name) != 0) at++;
    if (v >= 0 && (at < ports || port == m->out)) return v;
    if (name)
        tni_fail(m->owned.cx, TN_EARG, "onnx_run: the model has no %s %s", what,
                 tni_quoted(name).s);
    else
        tni_fail(m->owned.cx, TN_EARG, "onnx_run: the model has %d %ss, not %d", ports, what,
                 i + 1);
    return TNI_ONNX_NONE;
}

// The shape of an input, for whoever looks at the model.
static void note_input(tn_onnx *m, int32_t v, tn_tensor *x)
{
    tni_onnx_seen *s = &m->run.seen[v];
    *s = (tni_onnx_seen){ .rank = (int8_t)tn_rank(x), .dtype = (int8_t)tn_dtype_of(x) };
    for (int k = 0; k < s->rank; k++) s->size[k] = tn_size(x, k);
}

// Gives the inputs their tensors; all that have no default must be among them.
static bool give_inputs(tn_onnx *m, int nx, const char *const *names, tn_tensor *const *x)
{
    for (int i = 0; i < nx; i++) {
        int32_t v = port_value(m, "input", names, i, m->in, m->ins);
        if (v < 0) return false;
        if (!x[i]) return tni_fail(m->owned.cx, TN_EARG, "onnx_run: input %d is NULL", i) != NULL;
        if (tn_ctx_of(x[i]) != m->owned.cx)
            return tni_refuse(m->owned.cx, TN_EARG,
                              "onnx_run: input %d %s is of another context than the model", i,
                              tni_shape_of(x[i]).s);
        release_value(&m->run.value[v]);
        m->run.value[v] = (tni_onnx_value){ .t = tni_onnx_on_device(&m->run, x[i]) };
        if (m->run.seen) note_input(m, v, x[i]);
    }
    for (int i = 0; i < m->ins; i++) {
        int32_t v = tni_onnx_named(&m->model, m->in[i].name);
        if (!m->run.value[v].t && !m->run.value[v].fixed)
            return tni_fail(m->owned.cx, TN_EARG, "onnx_run: input %s is missing",
                            tni_quoted(m->in[i].name).s) != NULL;
    }
    return true;
}

// Values that are outputs must be computed as they are. Names are looked at when outputs are taken.
static void ask_outputs(tn_onnx *m, int ny, const char *const *names)
{
    for (int i = 0; i < ny; i++) {
        const char *name = names ? names[i] : i < m->outs ? m->out[i].name : NULL;
        int32_t     v    = name ? tni_onnx_named(&m->model, name) : TNI_ONNX_NONE;
        if (v >= 0) m->run.value[v].asked = true;
    }
}

// Fills y. An output that is known on the host alone goes to the device.
static bool take_outputs(tn_onnx *m, int ny, const char *const *names, tn_tensor **y)
{
    for (int i = 0; i < ny; i++) {
        int32_t v = port_value(m, "output", names, i, m->out, m->outs);
        if (v < 0) return false;
        tni_onnx_value *o    = &m->run.value[v];
        tni_wire        init = m->model.value[v].init;
        tni_onnx_value_make(&m->run, o);
        tn_tensor *t = o->t;
        if (!t && o->host) t = tn_copy_to(m->owned.cx, o->host);
        else if (!t && o->fixed) t = tni_onnx_tensor(&m->model, m->owned.cx, init);
        if (!t)
            return tni_fail(m->owned.cx, TN_EFORMAT, "onnx_run: output %d has no value", i) != NULL;
        y[i] = m->model.as != TN_F32 && tn_dtype_of(t) == m->model.as ? tn_cast(t, TN_F32) : t;
    }
    return true;
}

// Moves outputs out of the scope of the run. One that is an input or a weight is given as a copy,
// which the caller may write to.
static bool keep_outputs(tn_scope *s, int ny, tn_tensor **y)
{
    for (int i = 0; i < ny; i++) {
        if (y[i]->scope != s || y[i]->owners) y[i] = tn_clone(y[i]);
        if (!y[i]) return false;
    }
    for (int i = 0; i < ny; i++)
        if (y[i]->scope == s) tn_keep(y[i]);
    return true;
}

// Records a run. Its tensors live in two scopes, one of the device's context and one of the host's,
// which end with it. If it is kept to be repeated, it has been computed, and its results are
// copies.
static bool record_run(tn_onnx *m, const tni_onnx_ask *k, tni_onnx_again *again, tn_tensor **y)
{
    tn_ctx           *cx = m->owned.cx;
    tn_tensor *const *x  = k->x;
    if (again && !tni_onnx_begin_keeping(cx, again, &x)) return false;
    tn_scope *on_host = tn_begin(m->run.host), *inside = tn_begin(cx);
    bool      kept = false;
    clear_values(m);
    ask_outputs(m, k->ny, k->y_names);
    bool ok = give_inputs(m, k->nx, k->x_names, x) &&
              tni_onnx_run_graph(&m->run, &m->model.graph[0]) &&
              take_outputs(m, k->ny, k->y_names, y);
    if (ok && again) ok = tni_onnx_end_keeping(cx, again, y, &kept);
    ok = ok && (kept || keep_outputs(inside, k->ny, y));
    tni_scope_close(inside);  // not tn_end, which computes what the program has pending, too
    tn_end(on_host);
    clear_values(m);
    return ok && (!kept || tni_onnx_results(again, y));
}

// A run like earlier ones is repeated; any other, or one that could not be, is recorded.
tn_status tn_onnx_run(tn_onnx *m, int nx, const char *const *x_names, tn_tensor *const *x, int ny,
                      const char *const *y_names, tn_tensor **y)
{
    tn_ctx *cx = tni_owned_ok("onnx_run", m, TNI_ONNX);
    if (!cx) return tni_failed();
    for (int i = 0; y && i < ny; i++) y[i] = NULL;
    if (nx < 0 || ny < 0)
        return tni_fail_status(cx, TN_EARG, "onnx_run: %d inputs and %d outputs", nx, ny);
    if ((nx && !x) || (ny && !y))
        return tni_fail_status(cx, TN_EARG, "onnx_run: %s is NULL", nx && !x ? "x" : "y");
    m->model.op = "onnx_run";
    // The context may have another thread now than when the model was opened.
    tn_ctx_take(m->run.host);
    tni_onnx_ask    k        = { nx, ny, x_names, y_names, x };
    uint64_t        failures = cx->failures;
    tni_onnx_again *again    = tni_onnx_find_run(m, &k);
    bool            ok       = again && tni_onnx_run_again(cx, again, x, y);
    if (!ok && cx->failures == failures) ok = record_run(m, &k, again, y);
    for (int i = 0; !ok && i < ny; i++) y[i] = NULL;
    return ok ? TN_OK : tni_failed();
}
