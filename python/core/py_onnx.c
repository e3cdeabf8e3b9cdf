// py_onnx.c: models of other programs: what they take and give, runs by name, and functions of
// Python as files.
#include "core.h"

// A port as (name, dtype, shape, optional): a size is a number, the name of a symbol, or None; a
// shape that the file does not say is None.
static PyObject *from_port(tn_onnx_port p)
{
    PyObject *shape = p.rank < 0 ? Py_NewRef(Py_None) : PyTuple_New(p.rank);
    for (int i = 0; shape && i < p.rank; i++) {
        PyObject *v = p.symbol[i]      ? from_text(p.symbol[i])
                      : p.size[i] >= 0 ? PyLong_FromLongLong(p.size[i])
                                       : Py_NewRef(Py_None);
        if (!v || PyTuple_SetItem(shape, i, v) < 0) Py_CLEAR(shape);
    }
    return shape ? Py_BuildValue("(NNNN)", from_text(p.name), from_dtype(p.dtype), shape,
                                 PyBool_FromLong(p.optional))
                 : NULL;
}

// onnx_ports(model, outputs): its inputs, or its outputs, as a list
static PyObject *onnx_ports(PyObject *self, PyObject *args)
{
    PyObject *o, *list;
    Context  *c;
    int       outputs;
    (void)self;
    if (!PyArg_ParseTuple(args, "Op", &o, &outputs)) return NULL;
    tn_onnx *m = handle_get(o, ONNX, "onnx_ports: model", &c);
    if (!m) return NULL;
    int n = outputs ? tn_onnx_outputs(m) : tn_onnx_inputs(m);
    list  = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject *v = from_port(outputs ? tn_onnx_output(m, i) : tn_onnx_input(m, i));
        if (!v || PyList_SetItem(list, i, v) < 0) Py_CLEAR(list);
    }
    return list;
}

// The results of a run as a list.
static PyObject *from_results(Context *c, int n, tn_tensor *const *y)
{
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject *v = tensor_wrap(c, y[i]);
        if (!v || PyList_SetItem(list, i, v) < 0) Py_CLEAR(list);
    }
    return list;
}

// onnx_run(model, names, inputs, outputs): the values that are named, of inputs by name.
// A run waits where a size depends on a value, so that other threads of Python run meanwhile.
static PyObject *onnx_run(PyObject *self, PyObject *args)
{
    PyObject          *o, *names, *inputs, *outputs, *r = NULL;
    call               k;
    void              *m;
    int                nx, ny, given;
    const char *const *x_names, *const *y_names;
    tn_tensor *const *x;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO", &o, &names, &inputs, &outputs)) return NULL;
    if (!call_begin(&k, "onnx_run", &o, 1, NULL)) return NULL;
    if (to_handle(&k, o, ONNX, "onnx_run: model", false, &m) &&
        to_texts(&k, names, "onnx_run: names", &given, &x_names) &&
        to_tensors(&k, inputs, "onnx_run: inputs", &nx, &x) &&
        to_texts(&k, outputs, "onnx_run: outputs", &ny, &y_names) && context_claim(k.c)) {
        tn_tensor **y = call_memory(&k, sizeof *y * (size_t)(ny + 1));
        if (given != nx) PyErr_SetString(PyExc_ValueError, "onnx_run(): a name for each input");
        else if (y) {
            PyThreadState *state = context_let_go(k.c);
            tn_status s = tn_onnx_run_at(k.at.file, k.at.line, m, nx, x_names, x, ny, y_names, y);
            context_take_back(k.c, state);
            r = s == TN_OK ? from_results(k.c, ny, y) : context_raise(k.c);
        }
    }
    call_end(&k);
    return r;
}

// ---- functions of Python as files --------------------------------------------------------------

// What a layer of C calls: a function of Python of several tensors, which returns one or several.
typedef struct {
    Context  *c;
    PyObject *function;
} saved_function;

static void take_results(PyObject *r, int ny, tn_tensor **y)
{
    PyObject *all = tensor_check(r) ? PyTuple_Pack(1, r) : PySequence_Tuple(r);
    if (all && PyTuple_Size(all) != ny)
        PyErr_Format(PyExc_ValueError, "onnx_save(): the function returned %zd tensors, then %d",
                     PyTuple_Size(all), ny);
    for (int i = 0; all && !PyErr_Occurred() && i < ny; i++) {
        PyObject *t = PyTuple_GetItem(all, i);
        if (tensor_check(t)) y[i] = tensor_alias(((Tensor *)t)->t);
        else PyErr_SetString(PyExc_TypeError, "onnx_save(): the function must return tensors");
    }
    Py_XDECREF(all);
}

static void forward_saved(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    saved_function  *u     = tn_layer_self(l);
    PyGILState_STATE state = PyGILState_Ensure();
    bool             held  = context_hold(u->c);
    PyObject        *xs    = tensors_tuple(u->c, nx, x);
    PyObject        *r     = xs ? PyObject_CallObject(u->function, xs) : NULL;
    if (r) take_results(r, ny, y);
    if (PyErr_Occurred()) context_keep_exception(u->c);
    Py_XDECREF(xs);
    Py_XDECREF(r);
    context_unhold(u->c, held);
    PyGILState_Release(state);
}

// The layer that is written: it calls the function, and has the tensors that the function reads, by
// name, as its weights.
static tn_layer *layer_of_function(call *k, saved_function *u, int nx, int ny, int n,
                                   const char *const *name, tn_tensor *const *t)
{
    tn_layer *l = tn_layer_new_n_at(k->at.file, k->at.line, k->c->cx, forward_saved,
                                    (tn_layer_counts){ .in = nx, .out = ny }, u, NULL);
    for (int i = 0; l && i < n; i++) {
        bool param = tn_needs_grad(t[i]);
        if (!(param ? tn_layer_param_at(k->at.file, k->at.line, l, name[i], t[i])
                    : tn_layer_buffer_at(k->at.file, k->at.line, l, name[i], t[i]))) {
            tn_layer_free_at(k->at.file, k->at.line, l);
            l = NULL;
        }
    }
    return l;
}

// onnx_save(function, outputs, names, tensors, path, inputs, opset, beside, batch, x_names,
// y_names)
static PyObject *onnx_save(PyObject *self, PyObject *args)
{
    PyObject *function, *names, *tensors, *path, *inputs, *batch, *x_names, *y_names, *r = NULL;
    call      k;
    int       ny, n, nt, nx, count, beside;
    const char *const *name;
    const char        *file;
    tn_tensor *const *t, *const *x;
    tn_onnx_save_opts o = { 0 };
    (void)self;
    if (!PyArg_ParseTuple(args, "OiOOOOipOOO", &function, &ny, &names, &tensors, &path, &inputs,
                          &o.opset, &beside, &batch, &x_names, &y_names))
        return NULL;
    if (!call_begin(&k, "onnx_save", &inputs, 1, NULL)) return NULL;
    o.beside         = beside;
    saved_function u = { k.c, function };
    if (to_texts(&k, names, "onnx_save: names", &n, &name) &&
        to_tensors(&k, tensors, "onnx_save: tensors", &nt, &t) &&
        to_text(&k, path, "onnx_save: path", false, &file) &&
        to_tensors(&k, inputs, "onnx_save: inputs", &nx, &x) &&
        to_text(&k, batch, "onnx_save: batch", true, &o.batch) &&
        (x_names == Py_None || to_texts(&k, x_names, "onnx_save: x_names", &count, &o.x_names)) &&
        (y_names == Py_None || to_texts(&k, y_names, "onnx_save: y_names", &count, &o.y_names))) {
        tn_layer *l = layer_of_function(&k, &u, nx, ny, n, name, t);
        tn_status s = l ? tn_onnx_save_at(k.at.file, k.at.line, l, file, nx, x, o) : TN_OK;
        r           = l ? context_status(k.c, s) : context_raise(k.c);
        if (l) tn_layer_free_at(k.at.file, k.at.line, l);
    }
    call_end(&k);
    return r;
}

int onnx_ready(PyObject *module)
{
    static PyMethodDef methods[] = {
        { "onnx_ports", onnx_ports, METH_VARARGS, NULL },
        { "onnx_run", onnx_run, METH_VARARGS, NULL },
        { "onnx_save", onnx_save, METH_VARARGS, NULL },
        { 0 },
    };
    return PyModule_AddFunctions(module, methods);
}
