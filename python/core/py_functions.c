// py_functions.c: gradients as values, and calls that take a function of Python: checks of gradients, steps of a function.
#include "core.h"

// Another handle of the same tensor, which dies with the innermost scope or with its object: C goes on using its own.
tn_tensor *tensor_alias(tn_tensor *t)
{
    int64_t size[TN_MAX_RANK];
    int     rank = tn_rank(t);
    for (int i = 0; i < rank; i++) size[i] = tn_size(t, i);
    return tn_view_at("", 0, t, rank, size);
}

PyObject *tensors_tuple(Context *c, int n, tn_tensor *const *t)
{
    PyObject *list = PyTuple_New(n);
    for (int i = 0; i < n && list; i++) {
        PyObject *x = tensor_wrap(c, tensor_alias(t[i]));
        if (x) PyTuple_SetItem(list, i, x);
        else Py_CLEAR(list);
    }
    return list;
}

// ---- gradients ---------------------------------------------------------------------------------

// grad(outputs, inputs, grad_outputs): a list of gradients; grad_outputs is None or a list with Nones.
static PyObject *grad(PyObject *self, PyObject *args)
{
    PyObject         *outputs, *inputs, *given, *r = NULL;
    call              k;
    tn_tensor *const *y, *const *x;
    int ny, nx;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &outputs, &inputs, &given)) return NULL;
    if (!call_begin(&k, "grad", &outputs, 1, NULL)) return NULL;
    if (to_tensors(&k, outputs, "grad: outputs", &ny, &y) &&
        to_tensors(&k, inputs, "grad: inputs", &nx, &x)) {
        tn_tensor **gy = call_memory(&k, sizeof *gy * (size_t)ny),
                  **gx = gy ? call_memory(&k, sizeof *gx * (size_t)nx) : NULL;
        bool      ok   = gx != NULL;
        PyObject *t    = ok && given != Py_None ? PySequence_Tuple(given) : NULL;
        if (ok && given != Py_None) ok = t != NULL;
        if (t && PyTuple_Size(t) != ny) {
            PyErr_Format(PyExc_ValueError, "grad(): %zd grad_outputs for %d outputs",
                         PyTuple_Size(t), ny);
            ok = false;
        }
        for (int i = 0; i < ny && ok; i++) {
            gy[i] = NULL;
            if (t) ok = to_tensor(&k, PyTuple_GetItem(t, i), "grad: grad_outputs", true, &gy[i]);
        }
        if (ok && tn_grad_at(k.at.file, k.at.line, ny, y, nx, x, t ? gy : NULL, gx) != TN_OK)
            ok = context_raise(k.c) != NULL;
        r = ok ? PyList_New(nx) : NULL;
        for (int i = 0; i < nx && r; i++) {
            PyObject *v = tensor_wrap(k.c, gx[i]);
            if (v) PyList_SetItem(r, i, v);
            else Py_CLEAR(r);
        }
        Py_XDECREF(t);
    }
    call_end(&k);
    return r;
}

// A function of Python of n tensors, or of none, and the name of the call that has it.
typedef struct {
    Context    *c;
    PyObject   *function;
    const char *op;
    int         n;
} program_function;

// Calls it; what it returns is another handle of its result, which dies with the innermost scope.
static tn_tensor *run_function(tn_tensor *const *x, void *user)
{
    program_function *u     = user;
    PyGILState_STATE  state = PyGILState_Ensure();
    bool              held  = context_hold(u->c);
    tn_tensor        *y     = NULL;
    PyObject         *xs    = tensors_tuple(u->c, u->n, x),
             *r             = xs ? PyObject_CallObject(u->function, xs) : NULL;
    if (r && !tensor_check(r))
        PyErr_Format(PyExc_TypeError, "%s(): the function must return a tensor, not %R", u->op,
                     (PyObject *)Py_TYPE(r));
    else if (r) y = tensor_alias(((Tensor *)r)->t);
    if (PyErr_Occurred()) context_keep_exception(u->c);
    Py_XDECREF(xs);
    Py_XDECREF(r);
    context_unhold(u->c, held);
    PyGILState_Release(state);
    return y;
}

// gradcheck(function, inputs, second): raises if gradients and differences do not agree.
static PyObject *gradcheck(PyObject *self, PyObject *args)
{
    PyObject         *function, *inputs, *r = NULL;
    int               second, n;
    call              k;
    tn_tensor *const *x;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOp", &function, &inputs, &second)) return NULL;
    if (!call_begin(&k, "gradcheck", &inputs, 1, NULL)) return NULL;
    if (to_tensors(&k, inputs, "gradcheck: inputs", &n, &x)) {
        program_function u = { k.c, function, "gradcheck", n };
        tn_status s = second ? tn_gradgradcheck_at(k.at.file, k.at.line, run_function, n, x, &u)
                             : tn_gradcheck_at(k.at.file, k.at.line, run_function, n, x, &u);
        r           = context_status(k.c, s);
    }
    call_end(&k);
    return r;
}

// ---- steps of a function -----------------------------------------------------------------------

static tn_tensor *run_loss(void *user)
{
    return run_function(NULL, user);
}

// minimize(optim, function): a step of a function of the loss. Returns the first loss.
static PyObject *minimize(PyObject *self, PyObject *args)
{
    PyObject *optim, *function, *r = NULL;
    call      k;
    void     *o;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &optim, &function)) return NULL;
    if (!call_begin(&k, "minimize", &optim, 1, NULL)) return NULL;
    if (to_handle(&k, optim, OPTIM, "minimize: optim", false, &o)) {
        program_function u    = { k.c, function, "minimize", 0 };
        double           loss = 0;
        tn_status        s    = tn_minimize_at(k.at.file, k.at.line, o, run_loss, &u, &loss);
        r                     = s ? context_status(k.c, s) : PyFloat_FromDouble(loss);
    }
    call_end(&k);
    return r;
}

int functions_ready(PyObject *module)
{
    static PyMethodDef methods[] = {
        { "grad", grad, METH_VARARGS, NULL },
        { "gradcheck", gradcheck, METH_VARARGS, NULL },
        { "minimize", minimize, METH_VARARGS, NULL },
        { 0 },
    };
    return PyModule_AddFunctions(module, methods);
}
