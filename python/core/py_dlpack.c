// py_dlpack.c: DLPack's capsules, both ways; results in the memory of others; the order of streams.
#include "core.h"

#include <stdint.h>

#include <stdlib.h>

static const char *const NEW = "dltensor_versioned", *const OLD = "dltensor";
static const char *const NEW_USED = "used_dltensor_versioned", *const OLD_USED = "used_dltensor";

// A capsule that nobody has taken the struct of still owns it.
static void end_capsule(PyObject *capsule)
{
    tn_dl_managed *m = PyCapsule_IsValid(capsule, NEW) ? PyCapsule_GetPointer(capsule, NEW) : NULL;
    if (m && m->deleter) m->deleter(m);
    tn_dl_unversioned *u = PyCapsule_IsValid(capsule, OLD) ? PyCapsule_GetPointer(capsule, OLD)
                                                           : NULL;
    if (u && u->deleter) u->deleter(u);
}

// to_dlpack(x, stream, versioned, copy, host): a capsule. stream 0: none.
static PyObject *to_dlpack(PyObject *self, PyObject *args)
{
    PyObject          *x, *r = NULL;
    int                versioned, copy, host;
    unsigned long long stream;
    call               k;
    tn_tensor         *t;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!Kppp", tensor_type, &x, &stream, &versioned, &copy, &host))
        return NULL;
    if (!call_begin(&k, "to_dlpack", &x, 1, NULL)) return NULL;
    if (to_tensor(&k, x, "x", false, &t)) {
        tn_dlpack_opts     o = { .stream = (void *)(uintptr_t)stream, .copy = copy, .host = host };
        tn_dl_managed     *m = NULL;
        tn_dl_unversioned *u = NULL;
        PyThreadState     *s = context_let_go(k.c);
        if (versioned) m = tn_to_dlpack_at(k.at.file, k.at.line, t, o);
        else u = tn_to_dlpack_unversioned_at(k.at.file, k.at.line, t, o);
        context_take_back(k.c, s);
        if (m) r = PyCapsule_New(m, NEW, end_capsule);
        else if (u) r = PyCapsule_New(u, OLD, end_capsule);
        else context_raise(k.c);
        if (!r && m) m->deleter(m);
        if (!r && u) u->deleter(u);
    }
    call_end(&k);
    return r;
}

// from_capsule(capsule, context): takes the struct over.
static PyObject *from_capsule(PyObject *self, PyObject *args)
{
    PyObject *capsule, *context;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!", &capsule, context_type, &context)) return NULL;
    Context *c = (Context *)context;
    if (!context_claim(c)) return NULL;
    bool is_new = PyCapsule_IsValid(capsule, NEW), is_old = PyCapsule_IsValid(capsule, OLD);
    if (!is_new && !is_old)
        return PyErr_SetString(PyExc_BufferError,
                               "from_dlpack: not a capsule of DLPack, or one that was used before"),
               NULL;
    void *m = PyCapsule_GetPointer(capsule, is_new ? NEW : OLD);
    if (!m || PyCapsule_SetName(capsule, is_new ? NEW_USED : OLD_USED) < 0) return NULL;
    site at = site_here();
    return tensor_wrap(c, is_new ? tn_from_dlpack_at(at.file, at.line, c->cx, m)
                                 : tn_from_dlpack_unversioned_at(at.file, at.line, c->cx, m));
}

// A borrowed address, whose owner is an object.
typedef struct {
    tn_dl_managed m;
    PyObject     *owner;
} held_address;

static void delete_address(tn_dl_managed *m)
{
    held_address    *h     = m->manager;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(h->owner);
    PyGILState_Release(state);
    free(h);
}

tn_dl_dtype dl_dtype_of(tn_dtype dt)
{
    static const tn_dl_dtype of[] = {
        [TN_BOOL] = { 6, 8, 1 },  [TN_U8] = { 1, 8, 1 },       [TN_I8] = { 0, 8, 1 },
        [TN_I16] = { 0, 16, 1 },  [TN_U16] = { 1, 16, 1 },     [TN_I32] = { 0, 32, 1 },
        [TN_U32] = { 1, 32, 1 },  [TN_I64] = { 0, 64, 1 },     [TN_U64] = { 1, 64, 1 },
        [TN_F16] = { 2, 16, 1 },  [TN_F32] = { 2, 32, 1 },     [TN_F64] = { 2, 64, 1 },
        [TN_BF16] = { 4, 16, 1 }, [TN_F8_E4M3] = { 10, 8, 1 }, [TN_F8_E5M2] = { 12, 8, 1 },
        [TN_C64] = { 5, 64, 1 },  [TN_C128] = { 5, 128, 1 },
    };
    return of[dt];
}

static PyObject *name_dtype, *name_shape, *name_stride, *name_data_ptr, *name_is_neg,
    *name_resolve_neg;

// The memory of a tensor of PyTorch, whose attributes are read here, since these calls are most of
// the time of a small op. dtypes: Tenon's of PyTorch's. On a GPU (gpu >= 0) nothing keeps the
// memory, and nobody waits when the tensor dies.
static PyObject *borrow_torch(call *k, PyObject *t, PyObject *dtypes, int gpu)
{
    int            rank = 0, n = 0;
    tn_dtype       dt = TN_F32;
    const int64_t *size, *stride;
    PyObject      *dtype = PyObject_GetAttr(t, name_dtype), *r = NULL;
    PyObject      *shape   = PyObject_GetAttr(t, name_shape);
    PyObject      *strides = PyObject_CallMethodObjArgs(t, name_stride, NULL);
    PyObject      *address = PyObject_CallMethodObjArgs(t, name_data_ptr, NULL);
    PyObject      *ours    = dtype ? PyDict_GetItemWithError(dtypes, dtype) : NULL;
    void          *data    = address ? PyLong_AsVoidPtr(address) : NULL;
    held_address  *h       = NULL;
    if (dtype && !ours && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "Tenon has no dtype %S", dtype);
    if (!PyErr_Occurred() && to_dtype(ours, "borrow: dtype", &dt) &&
        to_int64s(k, shape, "borrow: shape", &rank, &size) &&
        to_int64s(k, strides, "borrow: strides", &n, &stride) && !(h = calloc(1, sizeof *h)))
        PyErr_NoMemory();
    if (h) {
        bool keeps = gpu < 0;
        h->m       = (tn_dl_managed){ .major   = TN_DL_MAJOR,
                                      .manager = h,
                                      .deleter = keeps ? delete_address : NULL,
                                      .tensor  = {
                                           .data    = data,
                                           .device  = { keeps ? TN_DL_CPU : TN_DL_CUDA, keeps ? 0 : gpu },
                                           .ndim    = rank,
                                           .dtype   = dl_dtype_of(dt),
                                           .shape   = (int64_t *)(uintptr_t)size,
                                           .strides = (int64_t *)(uintptr_t)stride } };
        if (keeps) h->owner = Py_NewRef(t);
        r = tensor_wrap(k->c, tn_from_dlpack_at(k->at.file, k->at.line, k->c->cx, &h->m));
        if (!keeps) free(h);
    }
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    Py_XDECREF(address);
    return r;
}

// A tensor of PyTorch may be a view of a complex one that reads its parts negated.
static PyObject *without_negation(PyObject *t)
{
    PyObject *negated = PyObject_CallMethodObjArgs(t, name_is_neg, NULL);
    int       is      = negated ? PyObject_IsTrue(negated) : -1;
    Py_XDECREF(negated);
    if (is < 0) return NULL;
    return is ? PyObject_CallMethodObjArgs(t, name_resolve_neg, NULL) : Py_NewRef(t);
}

// borrow_torch(tensors, dtypes, context, gpu): a list of tensors that read the memory of tensors of
// PyTorch, of the host (gpu -1) or of a GPU.
static PyObject *borrow_all(PyObject *self, PyObject *args)
{
    PyObject *list, *dtypes, *context;
    int       gpu;
    call      k;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!O!i", &PyList_Type, &list, &PyDict_Type, &dtypes, context_type,
                          &context, &gpu))
        return NULL;
    if (!call_begin(&k, "borrow", NULL, 0, context)) return NULL;
    Py_ssize_t n = PyList_Size(list);
    PyObject  *r = PyList_New(n);
    for (Py_ssize_t i = 0; r && i < n; i++) {
        PyObject *t = without_negation(PyList_GetItem(list, i));
        PyObject *x = t ? borrow_torch(&k, t, dtypes, gpu) : NULL;
        Py_XDECREF(t);
        if (x) PyList_SetItem(r, i, x);
        else Py_CLEAR(r);
    }
    call_end(&k);
    return r;
}

// capsule_layout(capsule): the address and the strides of a capsule of ours, of which the struct is
// not taken.
static PyObject *capsule_layout(PyObject *self, PyObject *capsule)
{
    const tn_dl_managed *m = PyCapsule_GetPointer(capsule, NEW);
    (void)self;
    if (!m) return NULL;
    PyObject *strides = from_shape(m->tensor.ndim, m->tensor.strides);
    return strides ? Py_BuildValue("(NN)", PyLong_FromVoidPtr(m->tensor.data), strides) : NULL;
}

// ---- results in the memory of others -----------------------------------------------------------

// What keeps the memory of one call of eval_into; the last release frees it.
typedef struct {
    int       left;
    PyObject *outs;
    Py_buffer view[MAX_MADE];
    int       views;
} kept_memory;

static void free_kept(kept_memory *k)
{
    for (int i = 0; k && i < k->views; i++) PyBuffer_Release(&k->view[i]);
    if (k) Py_XDECREF(k->outs);
    free(k);
}

static void release_kept(void *data, void *user)
{
    kept_memory     *k     = user;
    PyGILState_STATE state = PyGILState_Ensure();
    (void)data;
    if (!--k->left) free_kept(k);
    PyGILState_Release(state);
}

// The address of `out`, an address or an object with a buffer that fits x.
static void *address_of(kept_memory *kept, PyObject *out, tn_tensor *x)
{
    if (PyLong_Check(out)) return PyLong_AsVoidPtr(out);
    Py_buffer *b = &kept->view[kept->views];
    if (PyObject_GetBuffer(out, b, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0) return NULL;
    kept->views++;
    if (b->len == tn_count(x) * (dl_dtype_of(tn_dtype_of(x)).bits / 8)) return b->buf;
    PyErr_Format(PyExc_ValueError, "eval_into: the memory has %zd bytes for %lld elements", b->len,
                 (long long)tn_count(x));
    return NULL;
}

// eval_into(tensors, places, owners): evaluates tensors of one context into memory, given as
// addresses or buffers; owners is kept as long as a tensor reads it. With owners None and addresses
// alone nothing is kept, so that nobody waits when the tensors die.
static PyObject *eval_into(PyObject *self, PyObject *args)
{
    PyObject         *list, *outs, *owners;
    call              k;
    tn_tensor *const *t;
    int               n;
    void             *data[MAX_MADE];
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyTuple_Type, &list, &PyTuple_Type, &outs, &owners))
        return NULL;
    if (PyTuple_Size(list) != PyTuple_Size(outs) || PyTuple_Size(list) > MAX_MADE)
        return PyErr_Format(PyExc_ValueError, "eval_into: %zd tensors and %zd places",
                            PyTuple_Size(list), PyTuple_Size(outs));
    if (!call_begin(&k, "eval_into", &list, 1, NULL)) return NULL;
    kept_memory *kept = calloc(1, sizeof *kept);
    bool         ok   = kept && to_tensors(&k, list, "eval_into: x", &n, &t);
    if (!kept) PyErr_NoMemory();
    for (int i = 0; ok && i < n; i++) {
        data[i] = address_of(kept, PyTuple_GetItem(outs, i), t[i]);
        ok      = !PyErr_Occurred();
    }
    PyObject *r     = NULL;
    bool      keeps = ok && n && (owners != Py_None || kept->views);
    if (keeps) {
        kept->left = n;
        kept->outs = Py_NewRef(owners);
    } else {
        free_kept(kept);
    }
    if (ok && n) {
        PyThreadState *s = context_let_go(k.c);
        tn_status e = tn_eval_into_at(k.at.file, k.at.line, n, t, data, keeps ? release_kept : NULL,
                                      keeps ? kept : NULL);
        context_take_back(k.c, s);
        r = context_status(k.c, e);
    } else if (ok) {
        r = Py_NewRef(Py_None);
    }
    call_end(&k);
    return r;
}

// ---- streams -----------------------------------------------------------------------------------

// stream_of(context): the address of its stream; 0 without streams.
static PyObject *stream_of(PyObject *self, PyObject *context)
{
    (void)self;
    if (!PyObject_TypeCheck(context, context_type))
        return PyErr_SetString(PyExc_TypeError, "not a Context"), NULL;
    Context *c = (Context *)context;
    return context_claim(c) ? PyLong_FromVoidPtr(tn_ctx_stream(c->cx)) : NULL;
}

// use_stream(context, stream): the context's work goes to this stream from now on.
static PyObject *use_stream(PyObject *self, PyObject *args)
{
    PyObject          *context;
    unsigned long long stream;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!K", context_type, &context, &stream)) return NULL;
    Context *c = (Context *)context;
    if (!context_claim(c)) return NULL;
    void *s  = (void *)(uintptr_t)stream;
    site  at = site_here();
    return context_status(c, tn_ctx_use_stream_at(at.file, at.line, c->cx, s));
}

int dlpack_ready(PyObject *module)
{
    static PyMethodDef methods[] = {
        { "to_dlpack", to_dlpack, METH_VARARGS, NULL },
        { "from_capsule", from_capsule, METH_VARARGS, NULL },
        { "borrow_torch", borrow_all, METH_VARARGS, NULL },
        { "capsule_layout", capsule_layout, METH_O, NULL },
        { "eval_into", eval_into, METH_VARARGS, NULL },
        { "stream_of", stream_of, METH_O, NULL },
        { "use_stream", use_stream, METH_VARARGS, NULL },
        { 0 },
    };
    name_dtype       = PyUnicode_InternFromString("dtype");
    name_shape       = PyUnicode_InternFromString("shape");
    name_stride      = PyUnicode_InternFromString("stride");
    name_data_ptr    = PyUnicode_InternFromString("data_ptr");
    name_is_neg      = PyUnicode_InternFromString("is_neg");
    name_resolve_neg = PyUnicode_InternFromString("resolve_neg");
    if (!name_dtype || !name_shape || !name_stride || !name_data_ptr || !name_is_neg ||
        !name_resolve_neg)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
