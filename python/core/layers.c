// layers.c: calls of modules, networks of C, generation and checkpoints: what takes lists,
// callbacks or structs that the generator does not know.
#include "core.h"

#include <stdlib.h>
#include <string.h>

// ---- tensors of modules ------------------------------------------------------------------------

static void end_tensor(void *t)
{
    tn_release(t);
}

// rebind(x, value): x, the object, is from now on another tensor: that of value.
static PyObject *rebind(PyObject *self, PyObject *args)
{
    PyObject *x, *value;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &x, &value)) return NULL;
    if (!tensor_check(x) || !tensor_check(value))
        return PyErr_SetString(PyExc_TypeError, "rebind() takes two tensors"), NULL;
    Tensor  *to = (Tensor *)x, *from = (Tensor *)value;
    Context *was = to->owner;
    if (!context_claim(was) || !context_claim(from->owner)) return NULL;
    tn_tensor *old = to->t;
    tn_retain(from->t);
    to->t     = from->t;
    to->owner = (Context *)Py_NewRef((PyObject *)from->owner);
    if (old) context_end(was, old, end_tensor, true);
    Py_DECREF((PyObject *)was);
    Py_RETURN_NONE;
}

// layer_container(context=None): a layer that holds tensors and cannot run.
static PyObject *layer_container(PyObject *self, PyObject *args)
{
    PyObject *context = NULL, *r = NULL;
    call      k;
    (void)self;
    if (!PyArg_ParseTuple(args, "|O", &context)) return NULL;
    if (!call_begin(&k, "layer_container", NULL, 0, context)) return NULL;
    r = handle_wrap(k.c, LAYER, tn_layer_new_at(k.at.file, k.at.line, k.c->cx, NULL, NULL, NULL));
    call_end(&k);
    return r;
}

typedef struct {
    Context  *c;
    PyObject *list;  // NULL after a failure
} entries;

static void add_entry(const char *name, tn_tensor *t, void *user)
{
    entries  *e = user;
    PyObject *x = e->list ? tensor_wrap(e->c, t) : NULL;
    PyObject *v = x ? Py_BuildValue("(sN)", name, x) : NULL;
    if (e->list && (!v || PyList_Append(e->list, v) < 0)) Py_CLEAR(e->list);
    Py_XDECREF(v);
}

// layer_entries(layer): the full names and tensors of its parameters and buffers, in order; of tied
// ones the first.
static PyObject *layer_entries(PyObject *self, PyObject *layer)
{
    call      k;
    void     *l;
    PyObject *r = NULL;
    (void)self;
    if (!call_begin(&k, "layer_entries", &layer, 1, NULL)) return NULL;
    if (to_handle(&k, layer, LAYER, "layer_entries: layer", false, &l)) {
        entries e   = { k.c, PyList_New(0) };
        bool    had = e.list != NULL;
        if (had && tn_layer_each_at(k.at.file, k.at.line, l, add_entry, &e) != TN_OK) {
            Py_CLEAR(e.list);
            if (!PyErr_Occurred()) context_raise(k.c);
        }
        r = e.list;
    }
    call_end(&k);
    return r;
}

enum { MAX_PLACES = 16 };  // inputs and outputs of a layer, at most

// forward_n(layer, inputs, outputs): runs a layer of several inputs and outputs. Returns a list.
static PyObject *forward_n(PyObject *self, PyObject *args)
{
    PyObject         *layer, *inputs, *r = NULL;
    int               ny, nx;
    call              k;
    void             *l;
    tn_tensor *const *x;
    tn_tensor        *y[MAX_PLACES] = { NULL };
    (void)self;
    if (!PyArg_ParseTuple(args, "OOi", &layer, &inputs, &ny)) return NULL;
    if (ny < 1 || ny > MAX_PLACES)
        return PyErr_Format(PyExc_ValueError, "forward_n(): %d outputs", ny), NULL;
    if (!call_begin(&k, "forward_n", &layer, 1, NULL)) return NULL;
    if (to_handle(&k, layer, LAYER, "forward_n: layer", false, &l) &&
        to_tensors(&k, inputs, "forward_n: inputs", &nx, &x)) {
        if (tn_forward_n_at(k.at.file, k.at.line, l, nx, x, ny, y) != TN_OK) {
            context_raise(k.c);
        } else {
            r = PyList_New(ny);
            for (int i = 0; i < ny && r; i++) {
                PyObject *v = tensor_wrap(k.c, y[i]);
                if (v) PyList_SetItem(r, i, v);
                else Py_CLEAR(r);
            }
        }
    }
    call_end(&k);
    return r;
}

// layer_summary(layer, x): the table that C prints, as text.
static PyObject *layer_summary(PyObject *self, PyObject *args)
{
    PyObject  *layer, *x, *r = NULL;
    call       k;
    void      *l;
    tn_tensor *t;
    char      *text  = NULL;
    size_t     bytes = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &layer, &x)) return NULL;
    if (!call_begin(&k, "layer_summary", &layer, 1, NULL)) return NULL;
    if (to_handle(&k, layer, LAYER, "layer_summary: layer", false, &l) &&
        to_tensor(&k, x, "layer_summary: x", false, &t)) {
        FILE     *f = open_memstream(&text, &bytes);
        tn_status s = f ? tn_layer_summary_at(k.at.file, k.at.line, l, t, f) : TN_OK;
        if (f) fclose(f);
        if (!f || !text) PyErr_NoMemory();
        else r = s ? context_raise(k.c) : PyUnicode_DecodeUTF8(text, (Py_ssize_t)bytes, "replace");
        free(text);
    }
    call_end(&k);
    return r;
}

// ---- generation --------------------------------------------------------------------------------

// cache_new(batch, length, padding=None, context=None)
static PyObject *cache_new(PyObject *self, PyObject *args)
{
    long long     batch, length;
    PyObject     *padding = Py_None, *context = NULL, *r = NULL;
    call          k;
    tn_cache_opts o = { 0 };
    int           n = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "LL|OO", &batch, &length, &padding, &context)) return NULL;
    if (!call_begin(&k, "cache_new", NULL, 0, context)) return NULL;
    if (padding == Py_None || to_int64s(&k, padding, "cache_new: padding", &n, &o.padding)) {
        if (o.padding && n != batch)
            PyErr_Format(PyExc_ValueError, "cache_new(): %d paddings for %lld rows", n, batch);
        else
            r = handle_wrap(k.c, CACHE,
                            tn_cache_new_at(k.at.file, k.at.line, k.c->cx, batch, length, o));
    }
    call_end(&k);
    return r;
}

typedef struct {
    Context  *c;
    PyObject *function;
} token_listener;

// Tells the program's function of a token. It may end the generation by returning False, and an
// exception ends it too.
static bool on_token(int row, int64_t token, void *user)
{
    token_listener  *u     = user;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject        *r     = PyObject_CallFunction(u->function, "iL", row, (long long)token);
    bool             go_on = r && r != Py_False;
    if (!r) context_keep_exception(u->c);
    Py_XDECREF(r);
    PyGILState_Release(state);
    return go_on;
}

// A list of prompts, each a list of tokens.
static bool to_prompts(call *k, PyObject *o, int *n, tn_tokens **prompts)
{
    PyObject *t = PySequence_Tuple(o);
    if (!t) return false;
    *n       = (int)PyTuple_Size(t);
    *prompts = call_memory(k, sizeof **prompts * (size_t)*n);
    bool ok  = *prompts != NULL;
    // One array for all tokens, since a call holds few.
    Py_ssize_t all = 0;
    for (int i = 0; i < *n && ok; i++) {
        Py_ssize_t count = PyObject_Length(PyTuple_GetItem(t, i));
        ok               = count >= 0;
        all += count;
    }
    int64_t *ids = ok ? call_memory(k, sizeof *ids * (size_t)all) : NULL;
    ok           = ids != NULL;
    for (int i = 0; i < *n && ok; i++) {
        PyObject *prompt = PySequence_Tuple(PyTuple_GetItem(t, i));
        ok               = prompt != NULL;
        if (!ok) break;
        (*prompts)[i] = (tn_tokens){ ids, PyTuple_Size(prompt) };
        for (Py_ssize_t j = 0; j < PyTuple_Size(prompt) && ok; j++) {
            ok = all-- > 0 && to_int64(PyTuple_GetItem(prompt, j), "generate: a token", ids++);
            if (!ok && !PyErr_Occurred())
                PyErr_SetString(PyExc_RuntimeError, "generate(): the prompts changed");
        }
        Py_DECREF(prompt);
    }
    Py_DECREF(t);
    return ok;
}

static PyObject *from_rows(int n, int64_t room, const int64_t *ids, const int64_t *count)
{
    PyObject *rows = PyList_New(n);
    for (int i = 0; i < n && rows; i++) {
        PyObject *row = PyList_New(count[i]);
        for (int64_t j = 0; j < count[i] && row; j++) {
            PyObject *v = PyLong_FromLongLong(ids[i * room + j]);
            if (v) PyList_SetItem(row, j, v);
            else Py_CLEAR(row);
        }
        if (row) PyList_SetItem(rows, i, row);
        else Py_CLEAR(rows);
    }
    return rows;
}

// generate(net, prompts, max_tokens, length, temperature, top_k, top_p, repetition_penalty, seed,
// stop, no_cache, on_token)
static PyObject *generate(PyObject *self, PyObject *args)
{
    PyObject          *net, *prompts, *stop, *function, *r = NULL;
    tn_generate_opts   o = { 0 };
    long long          max_tokens, length, top_k;
    unsigned long long seed;
    int                no_cache, n;
    call               k;
    void              *l;
    tn_tokens         *tokens;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOLLdLddKOpO", &net, &prompts, &max_tokens, &length,
                          &o.sample.temperature, &top_k, &o.sample.top_p, &o.repetition_penalty,
                          &seed, &stop, &no_cache, &function))
        return NULL;
    if (max_tokens < 1)
        return PyErr_Format(PyExc_ValueError, "generate(): max_tokens is %lld", max_tokens), NULL;
    if (!call_begin(&k, "generate", &net, 1, NULL)) return NULL;
    o.max_tokens = max_tokens, o.length = length, o.sample.top_k = top_k, o.seed = seed,
    o.no_cache              = no_cache;
    token_listener listener = { k.c, function };
    if (function != Py_None) o.on_token = on_token, o.user = &listener;
    if (to_handle(&k, net, LAYER, "generate: net", false, &l) &&
        to_prompts(&k, prompts, &n, &tokens) &&
        to_int64s(&k, stop, "generate: stop", &o.stops, &o.stop)) {
        int64_t *ids   = call_memory(&k, sizeof *ids * (size_t)n * (size_t)max_tokens);
        int64_t *count = ids ? call_memory(&k, sizeof *count * (size_t)n) : NULL;
        if (count) {
            PyThreadState *state = context_let_go(k.c);
            tn_status status = tn_generate_at(k.at.file, k.at.line, l, n, tokens, o, ids, count);
            context_take_back(k.c, state);
            if (status) {
                context_raise(k.c);
            } else if (
                k.c->raised) {  // the function of the program failed, which has ended the generation
                PyObject *e = k.c->raised;
                k.c->raised = NULL;
                PyErr_SetObject((PyObject *)Py_TYPE(e), e);
                Py_DECREF(e);
            } else {
                r = from_rows(n, max_tokens, ids, count);
            }
        }
    }
    call_end(&k);
    return r;
}

// ---- checkpoints -------------------------------------------------------------------------------

// Fills up to TN_MAX_CHECKPOINT places with the objects of a list.
static bool to_places_of(call *k, PyObject *list, handle_kind kind, const char *what, void **to)
{
    PyObject *t  = PySequence_Tuple(list);
    bool      ok = t != NULL;
    if (ok && PyTuple_Size(t) > TN_MAX_CHECKPOINT) {
        PyErr_Format(PyExc_ValueError, "%s: %zd of them, at most %d are possible", what,
                     PyTuple_Size(t), (int)TN_MAX_CHECKPOINT);
        ok = false;
    }
    for (Py_ssize_t i = 0; ok && i < PyTuple_Size(t); i++)
        ok = to_handle(k, PyTuple_GetItem(t, i), kind, what, false, &to[i]);
    Py_XDECREF(t);
    return ok;
}

static bool to_checkpoint(call *k, PyObject *nets, PyObject *optims, PyObject *data, PyObject *dist,
                          tn_checkpoint *c)
{
    if (dist != Py_None && !to_handle(k, dist, DIST, "checkpoint: dist", false, (void **)&c->dist))
        return false;
    return to_places_of(k, nets, LAYER, "checkpoint: nets", (void **)c->net) &&
           to_places_of(k, optims, OPTIM, "checkpoint: optims", (void **)c->opt) &&
           to_places_of(k, data, DATA, "checkpoint: data", (void **)c->data);
}

// checkpoint_save(path, nets, optims, data, step, user, context, dist=None, sharded=False)
static PyObject *checkpoint_save(PyObject *self, PyObject *args)
{
    PyObject     *path, *nets, *optims, *data, *user, *context, *dist = Py_None, *r = NULL;
    long long     step;
    int           sharded = 0;
    call          k;
    const char   *file;
    tn_checkpoint c = { 0 };
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOLSO|Op", &path, &nets, &optims, &data, &step, &user, &context,
                          &dist, &sharded))
        return NULL;
    if (!call_begin(&k, "checkpoint_save", NULL, 0, context)) return NULL;
    if (to_text(&k, path, "checkpoint_save: path", false, &file) &&
        to_checkpoint(&k, nets, optims, data, dist, &c)) {
        c.sharded             = sharded;
        c.step                = step;
        c.user_bytes          = (size_t)PyBytes_Size(user);
        c.user                = c.user_bytes ? PyBytes_AsString(user) : NULL;
        PyThreadState *state  = context_let_go(k.c);
        tn_status      status = tn_checkpoint_save_at(k.at.file, k.at.line, k.c->cx, file, &c);
        context_take_back(k.c, state);
        r = context_status(k.c, status);
    }
    call_end(&k);
    return r;
}

// checkpoint_load(path, nets, optims, data, user_bytes, context, keep_random=False, dist=None): the
// step and the bytes.
static PyObject *checkpoint_load(PyObject *self, PyObject *args)
{
    PyObject     *path, *nets, *optims, *data, *context, *dist = Py_None, *user = NULL, *r = NULL;
    Py_ssize_t    bytes;
    int           keep_random = 0;
    call          k;
    const char   *file;
    tn_checkpoint c = { 0 };
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOnO|pO", &path, &nets, &optims, &data, &bytes, &context,
                          &keep_random, &dist))
        return NULL;
    if (!call_begin(&k, "checkpoint_load", NULL, 0, context)) return NULL;
    if (to_text(&k, path, "checkpoint_load: path", false, &file) &&
        to_checkpoint(&k, nets, optims, data, dist, &c) &&
        (user = PyBytes_FromStringAndSize(NULL, bytes))) {
        c.keep_random         = keep_random;
        c.user_bytes          = (size_t)bytes;
        c.user                = bytes ? PyBytes_AsString(user) : NULL;
        PyThreadState *state  = context_let_go(k.c);
        tn_status      status = tn_checkpoint_load_at(k.at.file, k.at.line, k.c->cx, file, &c);
        context_take_back(k.c, state);
        r = status ? context_raise(k.c) : Py_BuildValue("(LO)", (long long)c.step, user);
    }
    Py_XDECREF(user);
    call_end(&k);
    return r;
}

// ---- calls of modules --------------------------------------------------------------------------

// The base of tenon.nn.Module: a call of a module, and of modules one after the other, without
// frames of Python, which every op would have to pass over to find the line of the program.
static PyTypeObject *module_type;
static PyObject     *name_forward, *name_hooked, *name_with_hooks, *name_dict;

// Says in an error of Tenon which module was running.
static void name_layer(PyObject *self)
{
    static PyObject *error, *name;
    PyObject        *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (!error) {
        PyObject *m = PyImport_ImportModule("tenon._errors"),
                 *n = m ? PyImport_ImportModule("tenon.nn.module") : NULL;
        error       = n ? PyObject_GetAttrString(m, "Error") : NULL;
        name        = n ? PyObject_GetAttrString(n, "_name_layer") : NULL;
        Py_XDECREF(m);
        Py_XDECREF(n);
    }
    if (name && type && PyErr_GivenExceptionMatches(type, error)) {
        PyErr_NormalizeException(&type, &value, &trace);
        Py_XDECREF(PyObject_CallFunctionObjArgs(name, self, value, NULL));
    }
    PyErr_Clear();  // the first error is the one to report
    PyErr_Restore(type, value, trace);
}

static PyObject *module_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *hooked = PyObject_GetAttr(self, name_hooked), *r = NULL;
    if (!hooked) return NULL;
    bool plain = hooked == Py_False;
    Py_DECREF(hooked);
    if (plain) {
        PyObject *forward = PyObject_GetAttr(self, name_forward);
        if (forward) r = PyObject_Call(forward, args, kwargs);
        Py_XDECREF(forward);
    } else {
        PyObject *names = kwargs ? Py_NewRef(kwargs) : PyDict_New();
        if (names) r = PyObject_CallMethodObjArgs(self, name_with_hooks, args, names, NULL);
        Py_XDECREF(names);
    }
    if (!r) name_layer(self);
    return r;
}

// The modules that are attributes, in order.
static PyObject *modules_of(PyObject *self)
{
    PyObject *dict = PyObject_GetAttr(self, name_dict), *list = dict ? PyList_New(0) : NULL, *key,
             *value;
    Py_ssize_t at = 0;
    while (list && PyDict_Next(dict, &at, &key, &value))
        if (PyObject_TypeCheck(value, module_type) && PyList_Append(list, value) < 0)
            Py_CLEAR(list);
    Py_XDECREF(dict);
    return list;
}

// _run_in_order(x): calls its modules one after the other.
static PyObject *run_in_order(PyObject *self, PyObject *x)
{
    PyObject *list = modules_of(self);
    if (!list) return NULL;
    Py_INCREF(x);
    for (Py_ssize_t i = 0; i < PyList_Size(list) && x; i++) {
        PyObject *y = PyObject_CallFunctionObjArgs(PyList_GetItem(list, i), x, NULL);
        Py_DECREF(x);
        x = y;
    }
    Py_DECREF(list);
    return x;
}

static int module_type_ready(PyObject *module)
{
    static PyMethodDef methods[] = { { "_run_in_order", run_in_order, METH_O, NULL }, { 0 } };
    static PyType_Slot slots[] = { { Py_tp_call, module_call }, { Py_tp_methods, methods }, { 0 } };
    static PyType_Spec spec    = { "tenon._c.Module", sizeof(PyObject), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots };
    name_forward               = PyUnicode_InternFromString("forward");
    name_hooked                = PyUnicode_InternFromString("_hooked");
    name_with_hooks            = PyUnicode_InternFromString("_call_with_hooks");
    name_dict                  = PyUnicode_InternFromString("__dict__");
    module_type                = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!name_forward || !name_hooked || !name_with_hooks || !name_dict || !module_type) return -1;
    return PyModule_AddObjectRef(module, "Module", (PyObject *)module_type);
}

// dist_abandon(dist, text, file, line): leaves the world, since this rank failed there. The other
// ranks' calls fail with the text.
static PyObject *dist_abandon(PyObject *self, PyObject *args)
{
    PyObject   *dist, *text, *file, *r = NULL;
    const char *why, *at;
    int         line;
    call        k;
    tn_dist    *d;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOi", &dist, &text, &file, &line)) return NULL;
    if (!call_begin(&k, "dist_abandon", &dist, 1, NULL)) return NULL;
    if (to_handle(&k, dist, DIST, "dist_abandon: dist", false, (void **)&d) &&
        to_text(&k, text, "dist_abandon: text", false, &why) &&
        to_text(&k, file, "dist_abandon: file", false, &at)) {
        tn_error_set_at(at, line, k.c->cx, TN_EUSER, why);
        PyThreadState *state = context_let_go(k.c);
        tn_dist_close(d);
        context_take_back(k.c, state);
        context_raise(k.c);  // forgets the error, which was for the others alone
        PyErr_Clear();
        r = Py_NewRef(Py_None);
    }
    call_end(&k);
    return r;
}

int layers_ready(PyObject *module)
{
    static PyMethodDef methods[] = {
        { "rebind", rebind, METH_VARARGS, NULL },
        { "layer_container", layer_container, METH_VARARGS, NULL },
        { "layer_entries", layer_entries, METH_O, NULL },
        { "forward_n", forward_n, METH_VARARGS, NULL },
        { "layer_summary", layer_summary, METH_VARARGS, NULL },
        { "cache_new", cache_new, METH_VARARGS, NULL },
        { "generate", generate, METH_VARARGS, NULL },
        { "checkpoint_save", checkpoint_save, METH_VARARGS, NULL },
        { "checkpoint_load", checkpoint_load, METH_VARARGS, NULL },
        { "dist_abandon", dist_abandon, METH_VARARGS, NULL },
        { 0 },
    };
    return module_type_ready(module) < 0 ? -1 : PyModule_AddFunctions(module, methods);
}
