// A run walks the nodes once and records each. Of a model that flattens its input,
//
//   s = Shape(x)             s is known on the host: x's sizes are
//   n = Gather(s, 0)         both inputs are known: it runs on the host's context
//   t = Concat(n, [-1])      likewise
//   y = Reshape(x, t)        x is on the device: recorded there, with the sizes read from the host
//
// only the view y reaches the device. The functions of ops_*.c do not know where they run:
// tni_onnx_in gives a tensor of the call's context, and every op of Tenon computes in the context
// of its operands.
#include "onnx/onnx_run.h"

#include <stdarg.h>
#include <string.h>

// ---- values ------------------------------------------------------------------------------------

static const tni_onnx_static *input_static(const tni_onnx_call *c, int i)
{
    return &c->r->m->value[c->r->m->use[c->n->use + (uint32_t)i]];
}

// What is f32 in the file, as the dtype that the model computes in. Numbers beyond the range of f16
// are its ends: masks are large and not infinite, so that 0 times one is 0.
tn_tensor *tni_onnx_on_device(const tni_onnx_run *r, tn_tensor *t)
{
    tn_dtype as = r->m->as;
    if (!t || as == TN_F32 || tn_dtype_of(t) != TN_F32 || tn_ctx_of(t) != r->cx) return t;
    return tn_cast(as == TN_F16 ? tn_clamp(t, -65504, 65504) : t, as);
}

// Reads a weight from the file when a node first asks for it: single numbers to the host, others to
// the device. So memory that one weight gave up for its strips serves the next.
static void load_weight(const tni_onnx_call *c, tni_onnx_value *v, const tni_onnx_static *s)
{
    bool       one = !s->sparse && tni_onnx_is_single(s->init);
    tn_tensor *t   = s->sparse ? tni_onnx_sparse(c->r->m, c->r->cx, s->init)
                               : tni_onnx_tensor(c->r->m, one ? c->r->host : c->r->cx, s->init);
    t              = tni_onnx_on_device(c->r, t);
    if (!t) return;
    tn_retain(t);
    *(one ? &v->host : &v->t) = t;
}

// An input is left out by an empty name, or by a shorter list.
static int32_t input_number(const tni_onnx_call *c, int i)
{
    return i < c->nin ? c->r->m->use[c->n->use + (uint32_t)i] : TNI_ONNX_NONE;
}

// The value of an input; what a DequantizeLinear gives may have no tensor yet.
static tni_onnx_value *peek(const tni_onnx_call *c, int i)
{
    int32_t n = input_number(c, i);
    if (n < 0) return NULL;
    tni_onnx_value *v = &c->r->value[n];
    if (v->fixed && !v->t && !v->host && !v->apart) load_weight(c, v, &c->r->m->value[n]);
    return v;
}

// Whoever reads a value this way wants its tensor.
tni_onnx_value *tni_onnx_value_in(const tni_onnx_call *c, int i)
{
    tni_onnx_value *v = peek(c, i);
    if (v && v->dequantize) tni_onnx_value_make(c->r, v);
    return v;
}

// An input that is left out has no value; an optional that is empty has one.
bool tni_onnx_has(const tni_onnx_call *c, int i)
{
    return input_number(c, i) >= 0;
}

// The call of a node on the device.
static tni_onnx_call call_of(tni_onnx_run *r, const tni_onnx_node *n)
{
    return (tni_onnx_call){ r, n, r->cx, n->opset, n->nin, n->nout };
}

static void keep_fixed(tni_onnx_call *c);

// Of weights it is kept as any other result of them is: only those that are read are in memory
// twice.
void tni_onnx_value_make(tni_onnx_run *r, tni_onnx_value *v)
{
    if (!v->dequantize || v->t || v->host) return;
    tni_onnx_call d = call_of(r, v->dequantize);
    v->t            = tni_onnx_dequantize(&d);
    if (v->t) keep_fixed(&d);
}

// A copy of a value, as loops make them, shows no integers: by the time it is read the node may
// have run again.
bool tni_onnx_dequantizes(const tni_onnx_call *c, int i, tni_onnx_call *by)
{
    const tni_onnx_value *v = peek(c, i);
    if (!v || !v->dequantize) return false;
    *by = call_of(c->r, v->dequantize);
    return &c->r->value[c->r->m->use[by->n->use + (uint32_t)by->nin]] == v;
}

// Called after the output has its value.
void tni_onnx_dequantizes_out(tni_onnx_call *c)
{
    int32_t v = c->r->m->use[c->n->use + (uint32_t)c->nin];
    if (v >= 0) c->r->value[v].dequantize = c->n;
}

// Called after the output has its tensor, which is that of the same numbers.
void tni_onnx_sum_out(tni_onnx_call *c, tn_tensor *sum, tn_tensor *factor, bool fixed)
{
    int32_t v = c->r->m->use[c->n->use + (uint32_t)c->nin];
    if (v < 0) return;
    c->r->value[v].sum          = sum;
    c->r->value[v].factor       = factor;
    c->r->value[v].factor_fixed = fixed;
}

// Moves an error of the host's context to the model's own.
static bool host_failed(tni_onnx_call *c)
{
    tni_onnx_refuse(c, "%s", tn_error_text(c->r->host));
    tn_error_clear(c->r->host);
    return false;
}

// The other form of a value lives as long as the value does.
static tn_tensor *other_form(const tni_onnx_value *v, tn_tensor *t)
{
    if (t && v->fixed) tn_retain(t);
    return t;
}

// A value on the host: what was computed there, a weight as the file has it, or what the device is
// asked for.
static tn_tensor *on_host(tni_onnx_call *c, int i)
{
    tni_onnx_value *v = tni_onnx_value_in(c, i);
    if (!v || v->host) return v ? v->host : NULL;
    tni_wire init   = input_static(c, i)->init;
    bool     weight = v->fixed && tni_wire_size(init) && !input_static(c, i)->sparse && !v->param;
    if (weight) v->host = other_form(v, tni_onnx_tensor(c->r->m, c->r->host, init));
    else if (v->t) v->host = other_form(v, tn_copy_to(c->r->host, v->t));
    if (!v->host) host_failed(c);
    return v->host;
}

// A call of a function has readers of its own for its inputs; what is no weight can be an output of
// several calls.
bool tni_onnx_is_read_once(tni_onnx_call *c, int i)
{
    const tni_onnx_static *s = input_static(c, i);
    return tni_wire_size(s->init) && !s->replaceable && s->readers == 1;
}

// A weight that a node reads on the host comes from the file, and is not read back. One that was
// given up for its strips is read again.
tn_tensor *tni_onnx_in(tni_onnx_call *c, int i)
{
    tni_onnx_value *v = tni_onnx_value_in(c, i);
    if (!v) return NULL;
    if (v->apart && !v->t && !v->host) {
        load_weight(c, v, input_static(c, i));
        if (!v->t) return NULL;
    }
    return c->cx == c->r->host ? on_host(c, i) : tni_onnx_value_tensor(c, v);
}

// A single number of the host as a number of the recording, which kernels take as an argument:
// nothing is stored, and what depends on it, such as the scale of an attention, is recognized.
// NULL, with no error, if it is none.
static tn_tensor *as_number(tni_onnx_call *c, tn_tensor *t)
{
    int64_t  size[TN_MAX_RANK], k;
    double   v;
    tn_dtype dt = tn_dtype_of(t);
    if (tn_count(t) != 1 || dt == TN_BOOL) return NULL;
    for (int i = 0; i < tn_rank(t); i++) size[i] = 1;
    if (tni_is_float(dt))
        return tn_read(t, TN_F64, &v, 1)
                   ? NULL
                   : tni_onnx_on_device(c->r, tn_full(c->cx, dt, tn_rank(t), size, v));
    return tn_read(t, TN_I64, &k, 1) ? NULL : tn_full_i64(c->cx, dt, tn_rank(t), size, k);
}

// The form that is missing is made, and stays with the value.
tn_tensor *tni_onnx_value_tensor(tni_onnx_call *c, tni_onnx_value *v)
{
    bool host = c->cx == c->r->host;
    if (v->is_list || (!v->t && !v->host)) {
        tni_onnx_refuse(c, v->is_list ? "a sequence stands for a tensor" : "a value is missing");
        return NULL;
    }
    if (!host && !v->t) {
        tn_tensor *number = as_number(c, v->host);
        if (number) return number;
        v->t = other_form(v, tni_onnx_on_device(c->r, tn_copy_to(c->cx, v->host)));
    }
    if (host && !v->host) v->host = other_form(v, tn_copy_to(c->cx, v->t));
    return host ? v->host : v->t;
}

// Blocks of lists are chained by their first word, two words before the items.
bool tni_onnx_list(tni_onnx_call *c, size_t n, tni_onnx_value *list)
{
    void **block = tni_zalloc(&c->r->cx->heap, 2 * sizeof(void *) + n * sizeof *list);
    if (!block) return tni_fail_memory(c->r->cx, c->r->m->op) != NULL;
    *block      = c->r->lists;
    c->r->lists = block;
    *list = (tni_onnx_value){ .item = (tni_onnx_value *)(block + 2), .items = n, .is_list = true };
    return true;
}

// What a node gives is not kept until keep_fixed says so.
void tni_onnx_value_out(tni_onnx_call *c, int i, tni_onnx_value value)
{
    int32_t v = i < c->nout ? c->r->m->use[c->n->use + (uint32_t)(c->nin + i)] : TNI_ONNX_NONE;
    if (v < 0) return;
    c->r->value[v]       = value;
    c->r->value[v].fixed = false;
    // They belong to the value that was copied, which releases them.
    c->r->value[v].strips  = NULL;
    c->r->value[v].product = NULL;
}

// The host computes in double. A result is rounded to its dtype, as every other program has it,
// since what follows may cut it to an integer: a logarithm that is 2 in f32 is 1.99999999 in
// double.
static tn_tensor *rounded(tn_tensor *t)
{
    tn_dtype dt = tn_dtype_of(t);
    return tni_is_float(dt) && dt != TN_F64 ? tn_cast(tn_cast(t, TN_F64), dt) : t;
}

// A failed op of the host has its error in the host's context: it is moved to the model's.
bool tni_onnx_out(tni_onnx_call *c, int i, tn_tensor *t)
{
    bool host = t && tn_ctx_of(t) == c->r->host;
    if (host) t = rounded(t);
    if (!t) return c->cx == c->r->host && tn_error(c->r->host) ? host_failed(c) : false;
    if (!host && c->r->m->as != TN_F32 && tn_dtype_of(t) == TN_F32) t = tn_cast(t, c->r->m->as);
    if (!t) return false;
    tni_onnx_value_out(c, i, (tni_onnx_value){ .t = host ? NULL : t, .host = host ? t : NULL });
    return true;
}

// The two values share their tensors, which nothing writes to.
bool tni_onnx_copy(tni_onnx_call *c, int to, int from)
{
    tni_onnx_value *x = tni_onnx_value_in(c, from);
    tni_onnx_value_out(c, to, x ? *x : (tni_onnx_value){ 0 });
    return true;
}

// A number that a file has in it, such as the power 2, can choose how an op is recorded.
bool tni_onnx_is_constant(tni_onnx_call *c, int i)
{
    tni_onnx_value *v = tni_onnx_value_in(c, i);
    return v && (v->host || (v->t && v->fixed));
}

// Reads an input of at most `most` elements, as dt.
static bool read_input(tni_onnx_call *c, int i, int most, tn_dtype dt, void *v, int *n)
{
    *n = -1;
    if (!tni_onnx_has(c, i)) return true;
    tn_tensor *t = on_host(c, i);
    if (!t) return false;
    if (tn_count(t) > most)
        return tni_onnx_refuse(c, "input %d has %lld elements, at most %d are expected", i,
                               (long long)tn_count(t), most);
    *n = (int)tn_count(t);
    return tn_read(t, dt, v, *n) == TN_OK || host_failed(c);
}

// A float is cut to an integer, as a size that a model computed in floats.
bool tni_onnx_ints(tni_onnx_call *c, int i, int most, int64_t *v, int *n)
{
    return read_input(c, i, most, TN_I64, v, n);
}

// Integers become real numbers.
bool tni_onnx_reals(tni_onnx_call *c, int i, int most, double *v, int *n)
{
    return read_input(c, i, most, TN_F64, v, n);
}

// ---- attributes --------------------------------------------------------------------------------

// An attribute may be there with nothing in it, which is not the same as none.
bool tni_onnx_has_attr(const tni_onnx_call *c, const char *name)
{
    tni_wire a;
    return tni_onnx_attribute(c->r->m, c->n, name, &a);
}

// An attribute of another type counts as none: the fallback.
int64_t tni_onnx_attr_int(const tni_onnx_call *c, const char *name, int64_t or)
{
    tni_wire a;
    return tni_onnx_attribute(c->r->m, c->n, name, &a) ? tni_onnx_int(a, TNI_ATTR_I, or) : or ;
}

// Floats of attributes have 4 bytes.
double tni_onnx_attr_real(const tni_onnx_call *c, const char *name, double or)
{
    tni_wire       a;
    tni_wire_field f;
    if (!tni_onnx_attribute(c->r->m, c->n, name, &a)) return or ;
    return tni_wire_find(a, TNI_ATTR_F, &f) && f.type == TNI_WIRE_4 ? tni_wire_float(f.value) : or ;
}

// Empty if there is none.
tni_wire tni_onnx_attr_text(const tni_onnx_call *c, const char *name)
{
    tni_wire a;
    if (!tni_onnx_attribute(c->r->m, c->n, name, &a)) return (tni_wire){ 0 };
    return tni_onnx_bytes(a, TNI_ATTR_S);
}

// `or` is the answer for a node without the attribute.
bool tni_onnx_attr_is(const tni_onnx_call *c, const char *name, const char *text, bool or)
{
    return tni_onnx_has_attr(c, name) ? tni_wire_is(tni_onnx_attr_text(c, name), text) : or ;
}

// Reads the numbers of a list: *n of them, -1 if the node has no such attribute.
static bool read_list(tni_onnx_call *c, const char *name, uint32_t number, uint8_t type, int most,
                      uint64_t *bits, int *n)
{
    tni_wire a;
    *n = -1;
    if (!tni_onnx_attribute(c->r->m, c->n, name, &a)) return true;
    tni_wire_list l = tni_wire_list_of(a, number, type);
    uint64_t      v;
    for (*n = 0; tni_wire_list_next(&l, &v); bits[(*n)++] = v)
        if (*n == most) return tni_onnx_refuse(c, "%s has more than %d numbers", name, most);
    return !l.bad || tni_onnx_refuse(c, "%s is malformed", name);
}

// A list is unpacked, as PyTorch writes it, or packed.
bool tni_onnx_attr_ints(tni_onnx_call *c, const char *name, int most, int64_t *v, int *n)
{
    return read_list(c, name, TNI_ATTR_INTS, TNI_WIRE_VARINT, most, (uint64_t *)v, n);
}

// They are read as bits first.
bool tni_onnx_attr_reals(tni_onnx_call *c, const char *name, int most, double *v, int *n)
{
    uint64_t bits[TNI_ONNX_SMALL];
    if (most > TNI_ONNX_SMALL) most = TNI_ONNX_SMALL;
    if (!read_list(c, name, TNI_ATTR_FLOATS, TNI_WIRE_4, most, bits, n)) return false;
    for (int i = 0; i < *n; i++) v[i] = tni_wire_float(bits[i]);
    return true;
}

// "onnx_run: model.onnx: node 12 Conv "conv1": why". The first error of a context is the one that
// is reported.
bool tni_onnx_refuse(tni_onnx_call *c, const char *fmt, ...)
{
    char    why[500];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    tni_fail(c->r->cx, TN_EFORMAT, "%s: %s: node %td %s: %s", c->r->m->op,
             tni_escaped(c->r->m->path).s, c->n - c->r->m->node, tni_onnx_node_text(c->n).s, why);
    return false;
}

// ---- nodes -------------------------------------------------------------------------------------

// Whether an input can be computed with on the host: it is there already, or a weight of a few
// integers, as sizes are. Weights of real numbers stay on the device, where they may be trained.
static bool is_known(tni_onnx_call *c, int i)
{
    tni_onnx_value *v = peek(c, i);
    if (!v || v->host) return true;
    tni_wire init = input_static(c, i)->init;
    tn_dtype dt;
    if (v->is_list || !tni_wire_size(init) || input_static(c, i)->sparse) return false;
    bool real = tni_onnx_dtype(tni_onnx_int(init, TNI_TENSOR_TYPE, 0), &dt) && tni_is_float(dt);
    return v->t ? !real && tn_count(v->t) <= TNI_ONNX_SMALL : false;
}

// The value that output i is; NULL for one that no one asked for.
static tni_onnx_value *output(const tni_onnx_call *c, int i)
{
    int32_t v = c->r->m->use[c->n->use + (uint32_t)(c->nin + i)];
    return v < 0 ? NULL : &c->r->value[v];
}

// Whether an earlier run computed all that the node gives.
static bool is_done(const tni_onnx_call *c)
{
    bool done = c->nout > 0;
    for (int i = 0; done && i < c->nout; i++) done = !output(c, i) || output(c, i)->fixed;
    return done;
}

// What is computed of weights and constants alone is kept for later runs: a transposed embedding
// can take longer than all the rest. Nothing is kept whose weights are trained, nor more than the
// budget of results.
static void keep_fixed(tni_onnx_call *c)
{
    tni_onnx_run *r = c->r;
    // Autocast may be off in the next run.
    bool fixed = !tni_onnx_op_at(c->n->row)->varies && r->cx->autocast == TN_F32 &&
                 tni_onnx_is_fixed(c, 0, c->nin);
    for (int i = 0; fixed && i < c->nout; i++) {
        tni_onnx_value *v = output(c, i);
        if (!v || v->is_list) continue;
        tn_tensor *t  = v->t ? v->t : v->host;
        int64_t bytes = t && !tn_is_view(t) ? tn_count(t) * (int64_t)tni_dtype_size(tn_dtype_of(t))
                                            : 0;
        if (!t || bytes > r->room) continue;
        r->room -= bytes;
        if (v->t) tn_retain(v->t);
        if (v->host) tn_retain(v->host);
        v->fixed = true;
        v->sum = v->factor = NULL;  // those of a product of weights end with the run
    }
}

// Inputs that are left out are as they are, too.
bool tni_onnx_is_fixed(const tni_onnx_call *c, int from, int to)
{
    bool fixed = true;
    for (int i = from; fixed && i < to; i++) {
        tni_onnx_value *v = peek(c, i);
        fixed             = !v || (v->fixed && !v->param && !input_static(c, i)->replaceable);
    }
    return fixed;
}

void tni_onnx_give_up(tni_onnx_call *c, int i)
{
    tni_onnx_value *v = tni_onnx_value_in(c, i);
    if (!v->t || !tni_onnx_is_read_once(c, i)) return;
    tn_release(v->t);
    v->t     = NULL;
    v->apart = true;
}

// A node of a loop's body has one place, like every other: its weights are the same in each round.
tn_tensor *tni_onnx_kept(const tni_onnx_call *c, int slot)
{
    return c->r->kept ? c->r->kept[c->n - c->r->m->node][slot] : NULL;
}

// It is computed now, so that what it was computed of can go.
tn_tensor *tni_onnx_keep(tni_onnx_call *c, int slot, tn_tensor *t)
{
    tni_onnx_run *r     = c->r;
    int64_t       bytes = t ? tn_count(t) * (int64_t)tni_dtype_size(tn_dtype_of(t)) : 0;
    if (!t || bytes > r->room || tn_ctx_of(t) != r->cx || r->cx->autocast != TN_F32) return t;
    if (!r->kept) r->kept = tni_zalloc(&r->cx->heap, r->m->nodes * sizeof *r->kept);
    if (!r->kept || tn_eval_of(t) != TN_OK) return t;
    r->room -= bytes;
    tn_retain(t);
    return r->kept[c->n - r->m->node][slot] = t;
}

// Notes the shapes of what a node gave. Lists have none, and neither has an optional that is empty.
// A body of a loop has those of its last round.
static void note_shapes(tni_onnx_call *c)
{
    for (int i = 0; i < c->nout; i++) {
        int32_t v = c->r->m->use[c->n->use + (uint32_t)(c->nin + i)];
        if (v < 0) continue;
        tni_onnx_value *o     = &c->r->value[v];
        tn_tensor      *t     = o->t ? o->t : o->host;
        tni_onnx_seen  *s     = &c->r->seen[v];
        bool            shows = o->dequantize && !t;  // what it gives has the shape of its bytes
        if (shows) t = tni_onnx_in(c, 0);
        s->rank  = t ? (int8_t)tn_rank(t) : -1;
        s->dtype = t && !shows ? (int8_t)tn_dtype_of(t) : TN_F32;
        for (int k = 0; k < s->rank; k++) s->size[k] = tn_size(t, k);
    }
}

// Makes the node the layer that runs, by its name or its op: what it records is found under it in
// profiles, and its errors name it. Names come from the file and may have any bytes, so that they
// are escaped once, here; the context keeps one copy of each text, which what was recorded may
// outlive the model with.
static void enter_node(tni_onnx_run *r, const tni_onnx_node *n)
{
    size_t          at = (size_t)(n - r->m->node);
    const tni_path *p  = r->path ? r->path[at] : NULL;
    if (r->path && !p) {
        tni_wire name = tni_onnx_bytes(n->message, TNI_NODE_NAME);
        tni_text text = { "" };
        if (!tni_wire_size(name)) name = tni_onnx_bytes(n->message, TNI_NODE_OP);
        tni_escape(text.s, 100, (const char *)name.at, tni_wire_size(name));
        p = r->path[at] = tni_path_of(r->cx, text.s);
    }
    tni_self.site.layer = p;
}

// Runs a node where all it reads is known on the host, unless it reads nothing.
static bool run_node(tni_onnx_run *r, const tni_onnx_node *n)
{
    tni_onnx_call c = call_of(r, n);
    if (n->row < 0) return tni_onnx_refuse(&c, "Tenon has no such op");
    bool known = n->nin > 0;
    for (int i = 0; known && i < n->nin; i++) known = is_known(&c, i);
    if (known) c.cx = r->host;
    if (is_done(&c)) return true;
    const tni_path *outside = tni_self.site.layer;
    if (!known) enter_node(r, n);
    bool ok             = tni_onnx_op_at(n->row)->run(&c);
    tni_self.site.layer = outside;
    if (ok) {
        keep_fixed(&c);
        if (r->seen) note_shapes(&c);
        return true;
    }
    if (tn_error(r->host)) return host_failed(&c);
    return tn_error(r->cx) ? false : tni_onnx_refuse(&c, "it failed");
}

// The order of nodes in the file is an order they can run in: reading made sure of that.
bool tni_onnx_run_graph(tni_onnx_run *r, const tni_onnx_graph *g)
{
    for (uint32_t i = g->first; i < g->first + g->count; i++)
        if (!run_node(r, &r->m->node[i])) return false;
    return true;
}
