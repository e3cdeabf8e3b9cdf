// py_functions.c: gradients as values, and calls that take a function of Python: checks of
// gradients, steps of a function, derivatives, functions over examples and over steps, hooks.
#include "core.h"

#include <stdlib.h>
#include <string.h>

// Another handle of the same tensor, which dies with the innermost scope or with its object: C goes
// on using its own.
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

// grad(outputs, inputs, grad_outputs): a list of gradients; grad_outputs is None or a list with
// Nones.
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

// ---- derivatives of functions ------------------------------------------------------------------

// A list of tensors that a call has made.
static PyObject *list_of(Context *c, int n, tn_tensor *const *t)
{
    PyObject *r = PyList_New(n);
    for (int i = 0; i < n && r; i++) {
        PyObject *v = tensor_wrap(c, t[i]);
        if (v) PyList_SetItem(r, i, v);
        else Py_CLEAR(r);
    }
    return r;
}

enum { MOST_INPUTS = 16 };  // of a function, as C has it

// derive(kind, function, inputs, vectors): what tn_vjp, tn_jvp, tn_jacobian, tn_hvp and tn_hessian
// give, as a list.
static PyObject *derive(PyObject *self, PyObject *args)
{
    PyObject         *function, *inputs, *vectors, *r = NULL;
    const char       *kind;
    call              k;
    tn_tensor *const *x, *const *v = NULL;
    tn_tensor *out[MOST_INPUTS * MOST_INPUTS];
    int        n, nv = 0, given = 0;
    tn_status  s = TN_EARG;
    (void)self;
    if (!PyArg_ParseTuple(args, "sOOO", &kind, &function, &inputs, &vectors)) return NULL;
    if (!call_begin(&k, kind, &inputs, 1, NULL)) return NULL;
    if (to_tensors(&k, inputs, "inputs", &n, &x) &&
        (vectors == Py_None || to_tensors(&k, vectors, "vectors", &nv, &v))) {
        program_function u = { k.c, function, kind, n };
        const char      *f = k.at.file;
        if (n > MOST_INPUTS) {
            PyErr_Format(PyExc_ValueError, "%s(): %d inputs, at most %d", kind, n, MOST_INPUTS);
        } else {
            if (!strcmp(kind, "vjp"))
                given = n + 1, s = tn_vjp_at(f, k.at.line, run_function, n, x, &u, nv ? v[0] : NULL,
                                             &out[0], out + 1);
            else if (!strcmp(kind, "jvp"))
                given = 2, s = tn_jvp_at(f, k.at.line, run_function, n, x, &u, v, &out[0], &out[1]);
            else if (!strcmp(kind, "jacobian"))
                given = n, s = tn_jacobian_at(f, k.at.line, run_function, n, x, &u, out);
            else if (!strcmp(kind, "hvp"))
                given = n, s = tn_hvp_at(f, k.at.line, run_function, n, x, &u, v, out);
            else given = n * n, s = tn_hessian_at(f, k.at.line, run_function, n, x, &u, out);
            r = s ? context_status(k.c, s) : list_of(k.c, given, out);
        }
    }
    call_end(&k);
    return r;
}

// ---- functions over examples, and over steps ---------------------------------------------------

// Takes n tensors of a sequence that a function returned.
static bool take_tensors(PyObject *r, const char *op, int n, tn_tensor **y)
{
    PyObject *t  = r ? PySequence_Tuple(r) : NULL;
    bool      ok = t && PyTuple_Size(t) == n;
    if (t && !ok)
        PyErr_Format(PyExc_ValueError, "%s(): the function returned %zd tensors, expected %d", op,
                     PyTuple_Size(t), n);
    for (int i = 0; i < n && ok; i++) {
        PyObject *v = PyTuple_GetItem(t, i);
        ok          = tensor_check(v);
        if (ok) y[i] = tensor_alias(((Tensor *)v)->t);
        else PyErr_Format(PyExc_TypeError, "%s(): the function must return tensors", op);
    }
    Py_XDECREF(t);
    return ok;
}

// A function of several results; states: how many of its arguments and results are carried from
// step to step.
typedef struct {
    Context    *c;
    PyObject   *function;
    const char *op;
    int         states, n, ny;
} several;

// Calls function(*states, *x), which returns the next states and the results in one sequence.
static void run_step(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    several         *u     = user;
    PyGILState_STATE state = PyGILState_Ensure();
    bool             held  = context_hold(u->c);
    tn_tensor       *in[2 * MOST_INPUTS], *out[2 * MOST_INPUTS];
    for (int i = 0; i < u->states; i++) in[i] = carry[i];
    for (int i = 0; i < u->n; i++) in[u->states + i] = x[i];
    PyObject *xs = tensors_tuple(u->c, u->states + u->n, in),
             *r  = xs ? PyObject_CallObject(u->function, xs) : NULL;
    if (take_tensors(r, u->op, u->states + u->ny, out)) {
        for (int i = 0; i < u->states; i++) carry[i] = out[i];
        for (int i = 0; i < u->ny; i++) y[i] = out[u->states + i];
    }
    if (PyErr_Occurred()) context_keep_exception(u->c);
    Py_XDECREF(xs);
    Py_XDECREF(r);
    context_unhold(u->c, held);
    PyGILState_Release(state);
}

static void run_example(void *user, tn_tensor *const *x, tn_tensor **y)
{
    run_step(user, NULL, x, y);
}

// vmap(function, inputs, in_axes, outputs, out_axis): a list; an axis of None is that of an input
// that is the same for all.
static PyObject *vmap(PyObject *self, PyObject *args)
{
    PyObject         *function, *inputs, *axes, *r = NULL;
    call              k;
    tn_tensor *const *x;
    tn_tensor        *y[MOST_INPUTS];
    int               n, ny, out, in[MOST_INPUTS];
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO!ii", &function, &inputs, &PyTuple_Type, &axes, &ny, &out))
        return NULL;
    if (!call_begin(&k, "vmap", &inputs, 1, NULL)) return NULL;
    if (to_tensors(&k, inputs, "vmap: inputs", &n, &x)) {
        bool ok = n <= MOST_INPUTS && ny <= MOST_INPUTS && PyTuple_Size(axes) == n;
        if (!ok) PyErr_Format(PyExc_ValueError, "vmap(): %d inputs, %d outputs", n, ny);
        for (int i = 0; i < n && ok; i++) {
            PyObject *a = PyTuple_GetItem(axes, i);
            in[i]       = a == Py_None ? TN_NO_AXIS : (int)PyLong_AsLong(a);
            ok          = !PyErr_Occurred();
        }
        if (ok) {
            several   u = { k.c, function, "vmap", 0, n, ny };
            tn_status s = tn_vmap_at(k.at.file, k.at.line, run_example, &u, n, x, in, ny, y, out);
            r           = s ? context_status(k.c, s) : list_of(k.c, ny, y);
        }
    }
    call_end(&k);
    return r;
}

// scan(function, carries, xs, outputs, reverse): the last states and the results of all steps, as
// one list.
static PyObject *scan(PyObject *self, PyObject *args)
{
    PyObject         *function, *carries, *xs, *r = NULL;
    call              k;
    tn_tensor *const *c, *const *x;
    tn_tensor *all[2 * MOST_INPUTS];
    int        nc, nx, ny, reverse;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOip", &function, &carries, &xs, &ny, &reverse)) return NULL;
    if (!call_begin(&k, "scan", &xs, 1, NULL)) return NULL;
    if (to_tensors(&k, carries, "scan: carry", &nc, &c) &&
        to_tensors(&k, xs, "scan: xs", &nx, &x)) {
        if (nc > MOST_INPUTS || nx > MOST_INPUTS || ny > MOST_INPUTS) {
            PyErr_Format(PyExc_ValueError, "scan(): %d states, %d sequences, %d results", nc, nx,
                         ny);
        } else {
            several u = { k.c, function, "scan", nc, nx, ny };
            for (int i = 0; i < nc; i++) all[i] = c[i];
            tn_status s = tn_scan_at(k.at.file, k.at.line, run_step, &u, nc, all, nx, x, ny,
                                     all + nc, (tn_scan_opts){ .reverse = reverse });
            r           = s ? context_status(k.c, s) : list_of(k.c, nc + ny, all);
        }
    }
    call_end(&k);
    return r;
}

// ---- hooks -------------------------------------------------------------------------------------

typedef struct {
    Context  *c;
    PyObject *function;
} hook;

// Calls the function with the gradient; None keeps it.
static tn_tensor *run_hook(tn_tensor *g, void *user)
{
    hook            *u     = user;
    PyGILState_STATE state = PyGILState_Ensure();
    bool             held  = context_hold(u->c);
    PyObject        *xs    = tensors_tuple(u->c, 1, &g),
             *r            = xs ? PyObject_CallObject(u->function, xs) : NULL;
    tn_tensor *y           = NULL;
    if (r && r != Py_None && !tensor_check(r))
        PyErr_SetString(PyExc_TypeError, "a hook must return a tensor or None");
    else if (r && r != Py_None) y = tensor_alias(((Tensor *)r)->t);
    bool failed = PyErr_Occurred() != NULL;
    if (failed) context_keep_exception(u->c);
    Py_XDECREF(xs);
    Py_XDECREF(r);
    context_unhold(u->c, held);
    if (failed) tn_error_set_at("", 0, u->c->cx, TN_EUSER, "a hook raised an exception");
    PyGILState_Release(state);
    return y;
}

static void end_hook(void *user)
{
    hook            *u     = user;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_XDECREF(u->function);
    PyGILState_Release(state);
    free(u);
}

// hook_add(x, function): the number of the hook.
static PyObject *hook_add(PyObject *self, PyObject *args)
{
    PyObject  *o, *function, *r = NULL;
    call       k;
    tn_tensor *x;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &o, &function)) return NULL;
    if (!call_begin(&k, "hook_add", &o, 1, NULL)) return NULL;
    hook *u = to_tensor(&k, o, "hook_add: x", false, &x) ? malloc(sizeof *u) : NULL;
    if (u) {
        *u             = (hook){ k.c, Py_NewRef(function) };
        int64_t number = tn_hook_add_at(k.at.file, k.at.line, x, run_hook, u, end_hook);
        r              = number ? PyLong_FromLongLong(number) : context_raise(k.c);
        if (!number) end_hook(u);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    call_end(&k);
    return r;
}

// hook_remove(number, context)
static PyObject *hook_remove(PyObject *self, PyObject *args)
{
    PyObject *context;
    long long number;
    call      k;
    (void)self;
    if (!PyArg_ParseTuple(args, "LO", &number, &context)) return NULL;
    if (!call_begin(&k, "hook_remove", NULL, 0, context)) return NULL;
    bool there = tn_hook_remove_at(k.at.file, k.at.line, k.c->cx, number);
    call_end(&k);
    return PyBool_FromLong(there);
}

int functions_ready(PyObject *module)
{
    static PyMethodDef methods[] = {
        { "grad", grad, METH_VARARGS, NULL },
        { "gradcheck", gradcheck, METH_VARARGS, NULL },
        { "minimize", minimize, METH_VARARGS, NULL },
        { "derive", derive, METH_VARARGS, NULL },
        { "vmap", vmap, METH_VARARGS, NULL },
        { "scan", scan, METH_VARARGS, NULL },
        { "hook_add", hook_add, METH_VARARGS, NULL },
        { "hook_remove", hook_remove, METH_VARARGS, NULL },
        { 0 },
    };
    return PyModule_AddFunctions(module, methods);
}
