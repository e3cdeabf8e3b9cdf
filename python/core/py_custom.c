// py_custom.c: ops of the program's own, whose functions may be Python's.
//
// The functions of an op of C get no pointer of the program's, so that each op with functions of
// Python has C functions of its own, which know its number. There are 256 of each; ops that are
// expressions need none.
#include "core.h"

#include <stdlib.h>
#include <string.h>

enum { FUNCTIONS = 256, OUTPUTS = 16, INPUTS = 64 };

// An op as it was made. It lives as long as the process, since plans and histories of any context
// may refer to it.
typedef struct {
    tn_op_def  def;
    PyObject  *op;          // a tenon._custom.Op, whose methods are the functions
    Py_ssize_t attr_bytes;  // of its attributes; -1: the first eight bytes say how many follow
} custom_op;

static custom_op **ops;
static int         n_ops;
static custom_op  *by_function[FUNCTIONS];
static int         n_functions;
static Context    *recording;  // the context of the call that records an op, which asks for shapes

// ---- from C to Python --------------------------------------------------------------------------

static int64_t array_bytes(const tn_array *a)
{
    int64_t count = element_bytes(a->dtype);
    for (int i = 0; i < a->rank; i++) count *= a->size[i];
    return count;
}

// Arrays as (dtype, shape, memory); memory is None where there is none to see.
static PyObject *from_arrays(int n, const tn_array *a, bool data, int flags)
{
    static char empty[1];
    PyObject   *list = PyTuple_New(n);
    for (int i = 0; i < n && list; i++) {
        PyObject *memory = Py_NewRef(Py_None);
        if (data) {
            Py_DECREF(memory);
            memory = PyMemoryView_FromMemory(a[i].data ? a[i].data : empty,
                                             (Py_ssize_t)array_bytes(&a[i]), flags);
        }
        PyObject *row = memory ? Py_BuildValue("(NNN)", from_dtype(a[i].dtype),
                                               from_shape(a[i].rank, a[i].size), memory)
                               : NULL;
        if (row) PyTuple_SetItem(list, i, row);
        else Py_CLEAR(list);
    }
    return list;
}

static PyObject *from_attr(const custom_op *o, const void *attr)
{
    int64_t bytes = o->attr_bytes;
    if (bytes < 0) {
        memcpy(&bytes, attr, sizeof bytes);
        attr = (const char *)attr + sizeof bytes;
    }
    return PyBytes_FromStringAndSize(bytes ? attr : "", (Py_ssize_t)bytes);
}

// Ends a callback: an exception is the cause of the error that the call will report.
static tn_status finish(Context *c, bool ok, bool held, PyGILState_STATE state)
{
    context_unhold(c, held);
    if (!ok) {
        if (c) context_keep_exception(c);
        else PyErr_WriteUnraisable(NULL);
    }
    PyGILState_Release(state);
    return ok ? TN_OK : TN_EUSER;
}

// ---- the functions of an op --------------------------------------------------------------------

static bool take_shapes(PyObject *rows, int n, tn_array *out)
{
    PyObject *t  = rows ? PySequence_Tuple(rows) : NULL;
    bool      ok = t && PyTuple_Size(t) == n;
    if (t && !ok)
        PyErr_Format(PyExc_ValueError, "shape returned %zd outputs, and the op has %d",
                     PyTuple_Size(t), n);
    for (int i = 0; i < n && ok; i++) {
        PyObject *dtype, *shape;
        ok = PyArg_ParseTuple(PyTuple_GetItem(t, i), "OO", &dtype, &shape) &&
             to_dtype(dtype, "shape: dtype", &out[i].dtype);
        Py_ssize_t rank = ok ? PyTuple_Size(shape) : -1;
        if (ok && (rank < 0 || rank > TN_MAX_RANK)) {
            PyErr_Format(PyExc_ValueError, "shape: an output of %zd axes", rank);
            ok = false;
        }
        out[i].rank = ok ? (int)rank : 0;
        for (int k = 0; k < out[i].rank && ok; k++)
            ok = to_int64(PyTuple_GetItem(shape, k), "shape: a size", &out[i].size[k]);
    }
    Py_XDECREF(t);
    return ok;
}

static tn_status run_shape(int number, const void *attr, const tn_array *in, tn_array *out)
{
    const custom_op *o     = by_function[number];
    PyGILState_STATE state = PyGILState_Ensure();
    Context         *c     = recording ? recording : context_running();
    bool             held  = context_hold(c);
    PyObject *ins = from_arrays(o->def.nin, in, false, 0), *bytes = ins ? from_attr(o, attr) : NULL;
    PyObject *rows = bytes ? PyObject_CallMethod(o->op, "_shape_rows", "OO", ins, bytes) : NULL;
    bool      ok   = rows && take_shapes(rows, o->def.nout, out);
    Py_XDECREF(ins);
    Py_XDECREF(bytes);
    Py_XDECREF(rows);
    return finish(c, ok, held, state);
}

static tn_status run_compute(int number, const void *attr, const tn_array *in, tn_array *out)
{
    const custom_op *o     = by_function[number];
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject        *ins   = from_arrays(o->def.nin, in, true, PyBUF_READ);
    PyObject        *outs  = ins ? from_arrays(o->def.nout, out, true, PyBUF_WRITE) : NULL;
    PyObject        *bytes = outs ? from_attr(o, attr) : NULL;
    PyObject *done = bytes ? PyObject_CallMethod(o->op, "_run_compute", "OOO", ins, outs, bytes)
                           : NULL;
    bool      ok   = done != NULL;
    Py_XDECREF(done);
    Py_XDECREF(bytes);
    Py_XDECREF(outs);
    Py_XDECREF(ins);
    return finish(context_running(), ok, false, state);
}

static tn_status run_grad(int number, const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                          tn_tensor *const *gy, tn_tensor **gx)
{
    const custom_op *o     = by_function[number];
    int              nin   = o->def.nin;
    PyGILState_STATE state = PyGILState_Ensure();
    Context         *c     = context_find(tn_ctx_of(gy[0]));
    bool             held  = context_hold(c);
    PyObject        *xs    = c ? tensors_tuple(c, nin, x) : NULL,
             *ys           = xs ? tensors_tuple(c, o->def.nout, y) : NULL;
    PyObject *gys          = ys ? tensors_tuple(c, o->def.nout, gy) : NULL;
    PyObject *bytes        = gys ? from_attr(o, attr) : NULL;
    PyObject *r  = bytes ? PyObject_CallMethod(o->op, "_run_grad", "OOOO", xs, ys, gys, bytes)
                         : NULL;
    bool      ok = r != NULL;  // a tuple of nin tensors and Nones: _run_grad sees to that
    for (int i = 0; i < nin && ok; i++) {
        PyObject *g = PyTuple_GetItem(r, i);
        if (g && g != Py_None) ok = (gx[i] = tensor_alias(((Tensor *)g)->t)) != NULL;
    }
    if (!ok && c && !PyErr_Occurred()) context_raise(c);
    Py_XDECREF(xs);
    Py_XDECREF(ys);
    Py_XDECREF(gys);
    Py_XDECREF(bytes);
    Py_XDECREF(r);
    return finish(c, ok, held, state);
}

static tn_status run_launch(int number, const void *attr, const tn_array *in, const tn_array *out,
                            tn_launch_dims *dims)
{
    const custom_op *o     = by_function[number];
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject        *ins   = from_arrays(o->def.nin, in, false, 0);
    PyObject        *outs  = ins ? from_arrays(o->def.nout, out, false, 0) : NULL;
    PyObject        *bytes = outs ? from_attr(o, attr) : NULL;
    PyObject *r = bytes ? PyObject_CallMethod(o->op, "_run_launch", "OOO", ins, outs, bytes) : NULL;
    long long v[7];
    bool ok = r && PyArg_ParseTuple(r, "LLLLLLL", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6]);
    for (int i = 0; i < 3 && ok; i++) dims->grid[i] = v[i], dims->block[i] = v[3 + i];
    if (ok) dims->shared = v[6];
    Py_XDECREF(r);
    Py_XDECREF(bytes);
    Py_XDECREF(outs);
    Py_XDECREF(ins);
    return finish(context_running(), ok, false, state);
}

// shape_00 .. shape_ff, and so on.
typedef struct {
    tn_status (*shape)(const void *attr, const tn_array *in, tn_array *out);
    tn_status (*compute)(const void *attr, const tn_array *in, tn_array *out);
    tn_status (*grad)(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                      tn_tensor *const *gy, tn_tensor **gx);
    tn_status (*launch)(const void *attr, const tn_array *in, const tn_array *out,
                        tn_launch_dims *dims);
} functions;

// clang-format off
#define ONE(n)                                                                                                             \
    static tn_status shape_##n(const void *attr, const tn_array *in, tn_array *out) { return run_shape(0x##n, attr, in, out); } \
    static tn_status compute_##n(const void *attr, const tn_array *in, tn_array *out) { return run_compute(0x##n, attr, in, out); } \
    static tn_status grad_##n(const void *attr, tn_tensor *const *x, tn_tensor *const *y, tn_tensor *const *gy, tn_tensor **gx) \
    { return run_grad(0x##n, attr, x, y, gy, gx); }                                                                        \
    static tn_status launch_##n(const void *attr, const tn_array *in, const tn_array *out, tn_launch_dims *dims)           \
    { return run_launch(0x##n, attr, in, out, dims); }
#define ROW(h)                                                                                              \
    ONE(h##0) ONE(h##1) ONE(h##2) ONE(h##3) ONE(h##4) ONE(h##5) ONE(h##6) ONE(h##7)                         \
    ONE(h##8) ONE(h##9) ONE(h##a) ONE(h##b) ONE(h##c) ONE(h##d) ONE(h##e) ONE(h##f)
ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7) ROW(8) ROW(9) ROW(a) ROW(b) ROW(c) ROW(d) ROW(e) ROW(f)
#undef ONE
#define ONE(n) { shape_##n, compute_##n, grad_##n, launch_##n },
static const functions table[FUNCTIONS] = {
    ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7) ROW(8) ROW(9) ROW(a) ROW(b) ROW(c) ROW(d) ROW(e) ROW(f)
};
// clang-format on

// ---- making and recording ops ------------------------------------------------------------------

static bool copy_text(const char *from, const char **to)
{
    *to = from ? strdup(from) : NULL;
    if (from && !*to) PyErr_NoMemory();
    return !from || *to;
}

static bool remember(custom_op *o)
{
    custom_op **more = realloc(ops, sizeof *more * (size_t)(n_ops + 1));
    if (!more) return PyErr_NoMemory(), false;
    ops          = more;
    ops[n_ops++] = o;
    return true;
}

static void free_op(custom_op *o)
{
    free((void *)o->def.name);
    free((void *)o->def.expr);
    free((void *)o->def.grad_expr);
    free((void *)o->def.cuda);
    free((void *)o->def.kernel);
    free(o);
}

// op_new(name, inputs, outputs, expr, grad_expr, cuda, kernel, op, has, attr_bytes): a number, for
// op_call. `has` says which functions op has: 1 compute, 2 grad, 4 launch.
static PyObject *op_new(PyObject *self, PyObject *args)
{
    const char *name, *expr, *grad_expr, *cuda, *kernel;
    PyObject   *op;
    int         nin, nout, has;
    Py_ssize_t  attr_bytes;
    (void)self;
    if (!PyArg_ParseTuple(args, "siizzzzOin", &name, &nin, &nout, &expr, &grad_expr, &cuda, &kernel,
                          &op, &has, &attr_bytes))
        return NULL;
    if (nin < 1 || nin > INPUTS || nout < 1 || nout > OUTPUTS)
        return PyErr_Format(PyExc_ValueError,
                            "%s: %d inputs and %d outputs; there can be up to %d and %d", name, nin,
                            nout, (int)INPUTS, (int)OUTPUTS),
               NULL;
    if (!expr && n_functions == FUNCTIONS)
        return PyErr_Format(PyExc_RuntimeError,
                            "%s: a process can have %d ops with functions of Python", name,
                            (int)FUNCTIONS),
               NULL;
    custom_op *o = calloc(1, sizeof *o);
    if (!o) return PyErr_NoMemory();
    o->def.nin = nin, o->def.nout = nout, o->attr_bytes = attr_bytes;
    if (!copy_text(name, &o->def.name) || !copy_text(expr, &o->def.expr) ||
        !copy_text(grad_expr, &o->def.grad_expr) || !copy_text(cuda, &o->def.cuda) ||
        !copy_text(kernel, &o->def.kernel) || !remember(o))
        return free_op(o), NULL;
    if (!expr) {
        const functions *f         = &table[n_functions];
        by_function[n_functions++] = o;
        o->op                      = Py_NewRef(op);
        o->def.shape               = f->shape;
        if (has & 1) o->def.compute = f->compute;
        if (has & 2) o->def.grad = f->grad;
        if (has & 4) o->def.launch = f->launch;
    }
    return PyLong_FromLong(n_ops - 1);
}

// op_call(number, tensors, attr): a tuple of the outputs.
static PyObject *op_call(PyObject *self, PyObject *args)
{
    int               number, n;
    PyObject         *tensors, *r = NULL;
    const char       *attr;
    Py_ssize_t        bytes;
    call              k;
    tn_tensor *const *x;
    tn_tensor        *y[OUTPUTS];
    (void)self;
    if (!PyArg_ParseTuple(args, "iOy#", &number, &tensors, &attr, &bytes)) return NULL;
    if (number < 0 || number >= n_ops)
        return PyErr_SetString(PyExc_ValueError, "op_call(): no such op"), NULL;
    const tn_op_def *def = &ops[number]->def;
    if (!call_begin(&k, def->name, &tensors, 1, NULL)) return NULL;
    if (to_tensors(&k, tensors, def->name, &n, &x)) {
        if (n != def->nin) {
            PyErr_Format(PyExc_TypeError, "%s() takes %d tensors, %d were given", def->name,
                         def->nin, n);
        } else {
            Context *outer = recording;
            recording      = k.c;
            tn_status s    = tn_custom_n_at(k.at.file, k.at.line, def, x, bytes ? attr : NULL,
                                            (size_t)bytes, y);
            recording      = outer;
            r              = s ? context_raise(k.c) : PyTuple_New(def->nout);
            for (int i = 0; i < def->nout && r; i++) {
                PyObject *v = tensor_wrap(k.c, y[i]);
                if (v) PyTuple_SetItem(r, i, v);
                else Py_CLEAR(r);
            }
        }
    }
    call_end(&k);
    return r;
}

int custom_ready(PyObject *module)
{
    static PyMethodDef methods[] = {
        { "op_new", op_new, METH_VARARGS, NULL },
        { "op_call", op_call, METH_VARARGS, NULL },
        { 0 },
    };
    return PyModule_AddFunctions(module, methods);
}
