// exchange.c: tensors from numbers, nested lists and the memory of other libraries, and tensors as
// such memory.
#include "core.h"

#include <stdlib.h>
#include <string.h>

// ---- memory with the buffer protocol -----------------------------------------------------------

bool dtype_of_format(const char *f, Py_ssize_t bytes, tn_dtype *dt)
{
    if (!f) f = "B";
    if (*f == '@' || *f == '=' || (*f == '<' && bytes > 1)) f++;
    if (*f == 'Z' && (f[1] == 'f' || f[1] == 'd') && !f[2])
        return *dt = f[1] == 'f' ? TN_C64 : TN_C128, true;
    if (!*f || f[1]) return false;
    static const struct {
        char     format;
        tn_dtype dtype;
    } floats[] = { { '?', TN_BOOL }, { 'e', TN_F16 }, { 'f', TN_F32 }, { 'd', TN_F64 } };
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (*f == floats[i].format) return *dt = floats[i].dtype, true;
    static const tn_dtype whole[2][9] = {
        { [1] = TN_U8, [2] = TN_U16, [4] = TN_U32, [8] = TN_U64 },
        { [1] = TN_I8, [2] = TN_I16, [4] = TN_I32, [8] = TN_I64 },
    };
    if (!strchr("bBhHiIlLqQ", *f) || bytes > 8) return false;
    *dt = whole[*f >= 'a'][bytes];
    return true;
}

static PyObject *from_buffer(Context *c, PyObject *o)
{
    Py_buffer b;
    tn_dtype  dt = TN_F32;
    PyObject *r  = NULL;
    int64_t   size[TN_MAX_RANK];
    site      at = site_here();
    if (PyObject_GetBuffer(o, &b, PyBUF_FULL_RO) < 0) return NULL;
    if (!dtype_of_format(b.format, b.itemsize, &dt)) {
        PyErr_Format(PyExc_TypeError, "a tensor cannot be made of elements of format '%s'",
                     b.format ? b.format : "B");
    } else if (b.ndim > TN_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "a tensor has at most %d axes, not %d", (int)TN_MAX_RANK,
                     b.ndim);
    } else {
        for (int i = 0; i < b.ndim; i++) size[i] = b.shape[i];
        void *copy = malloc(b.len ? (size_t)b.len : 1);
        if (!copy) PyErr_NoMemory();
        else if (PyBuffer_ToContiguous(copy, &b, b.len, 'C') == 0)
            r = tensor_wrap(c, tn_from_at(at.file, at.line, c->cx, dt, b.ndim, size, copy));
        free(copy);
    }
    PyBuffer_Release(&b);
    return r;
}

// The memory of a buffer as DLPack's struct, which is freed with it.
typedef struct {
    tn_dl_managed m;
    Py_buffer     view;
    int64_t       size[TN_MAX_RANK], stride[TN_MAX_RANK];
} held_buffer;

// Runs inside a call of Tenon, with or without the interpreter's lock.
static void delete_buffer(tn_dl_managed *m)
{
    held_buffer     *h     = m->manager;
    PyGILState_STATE state = PyGILState_Ensure();
    PyBuffer_Release(&h->view);
    PyGILState_Release(state);
    free(h);
}

// borrow(o, context): the memory of an object with a buffer, without a copy where the context can
// use it. It must not change while the tensor is used.
static PyObject *borrow_buffer(PyObject *self, PyObject *args)
{
    PyObject *o, *context;
    tn_dtype  dt = TN_F32;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!", &o, context_type, &context)) return NULL;
    Context *c = (Context *)context;
    if (!context_claim(c)) return NULL;
    held_buffer *h = calloc(1, sizeof *h);
    if (!h) return PyErr_NoMemory();
    if (PyObject_GetBuffer(o, &h->view, PyBUF_FULL_RO) < 0) return free(h), NULL;
    Py_buffer *b    = &h->view;
    bool       fits = b->ndim <= TN_MAX_RANK && !b->suboffsets && (b->strides || !b->ndim) &&
                dtype_of_format(b->format, b->itemsize, &dt);
    for (int a = 0; a < b->ndim && fits; a++) {
        h->size[a]   = b->shape[a];
        h->stride[a] = b->strides[a] / b->itemsize;
        fits         = b->strides[a] % b->itemsize == 0;
    }
    if (!fits) {  // from_buffer copies it, or says why not
        PyBuffer_Release(b);
        free(h);
        return from_buffer(c, o);
    }
    h->m    = (tn_dl_managed){ .major   = TN_DL_MAJOR,
                               .manager = h,
                               .deleter = delete_buffer,
                               .tensor  = { .data    = b->buf,
                                            .device  = { TN_DL_CPU, 0 },
                                            .ndim    = b->ndim,
                                            .dtype   = dl_dtype_of(dt),
                                            .shape   = h->size,
                                            .strides = h->stride } };
    site at = site_here();
    return tensor_wrap(c, tn_from_dlpack_at(at.file, at.line, c->cx, &h->m));
}

// ---- nested lists ------------------------------------------------------------------------------

typedef struct {
    int      rank;
    int64_t  size[TN_MAX_RANK], count, filled;
    bool     any_float, any_int;  // beside bools
    double  *d;
    int64_t *i;
} listing;

static bool is_list(PyObject *o)
{
    return PyList_Check(o) || PyTuple_Check(o);
}

static Py_ssize_t length(PyObject *o)
{
    return PyList_Check(o) ? PyList_Size(o) : PyTuple_Size(o);
}

static PyObject *member(PyObject *o, Py_ssize_t i)
{
    return PyList_Check(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);
}

// Its shape by its first elements.
static bool measure(listing *l, PyObject *o)
{
    l->rank  = 0;
    l->count = 1;
    for (; is_list(o); o = member(o, 0)) {
        if (l->rank == TN_MAX_RANK)
            return PyErr_Format(PyExc_ValueError, "a tensor has at most %d axes", (int)TN_MAX_RANK),
                   false;
        l->size[l->rank++] = length(o);
        l->count *= length(o);
        if (!length(o)) break;
    }
    return true;
}

// Writes its numbers; refuses what does not have the shape.
static bool fill(listing *l, PyObject *o, int depth)
{
    if (depth < l->rank) {
        if (!is_list(o) || length(o) != l->size[depth])
            return PyErr_Format(PyExc_ValueError,
                                "lists of unequal lengths at depth %d: %lld elements are expected",
                                depth, (long long)l->size[depth]),
                   false;
        // A copy, since the list may change while the numbers of its elements are asked for.
        PyObject *t  = PySequence_Tuple(o);
        bool      ok = t && PyTuple_Size(t) == l->size[depth];
        for (Py_ssize_t i = 0; i < l->size[depth] && ok; i++)
            ok = fill(l, PyTuple_GetItem(t, i), depth + 1);
        Py_XDECREF(t);
        if (!ok && !PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a list has changed while it was read");
        return ok;
    }
    if (is_list(o))
        return PyErr_Format(PyExc_ValueError, "a list among numbers, at depth %d", depth), false;
    PyObject *v = tensor_check(o) ? PyObject_CallMethod(o, "item", NULL) : Py_NewRef(o);
    if (!v) return false;
    bool ok = true;
    if (PyBool_Check(v) || PyIndex_Check(v)) {
        l->any_int      = l->any_int || !PyBool_Check(v);
        ok              = to_int64(v, "an element", &l->i[l->filled]);
        l->d[l->filled] = (double)l->i[l->filled];
    } else {
        l->any_float    = true;
        ok              = to_double(v, "an element", &l->d[l->filled]);
        l->i[l->filled] = 0;
    }
    l->filled++;
    Py_DECREF(v);
    return ok;
}

// Floats become f32, or f64 if wide.
static PyObject *from_list(Context *c, PyObject *o, bool wide)
{
    listing   l  = { 0 };
    PyObject *r  = NULL;
    site      at = site_here();
    if (!measure(&l, o)) return NULL;
    l.d = malloc(sizeof *l.d * (size_t)(l.count + 1));
    l.i = malloc(sizeof *l.i * (size_t)(l.count + 1));
    if (!l.d || !l.i) {
        PyErr_NoMemory();
    } else if (fill(&l, o, 0)) {
        bool       is_float = l.any_float || !l.count, is_bool = !l.any_int && !is_float;
        tn_tensor *x = is_float ? tn_from_at(at.file, at.line, c->cx, TN_F64, l.rank, l.size, l.d)
                                : tn_from_at(at.file, at.line, c->cx, TN_I64, l.rank, l.size, l.i);
        tn_tensor *y = (is_float && !wide) || is_bool
                           ? tn_cast_at(at.file, at.line, x, is_float ? TN_F32 : TN_BOOL)
                           : x;
        if (y != x && x) tn_drop(x);
        r = tensor_wrap(c, y);
    }
    free(l.d);
    free(l.i);
    return r;
}

// A number is a 0-d tensor that takes the dtype of the other operand of an op.
static PyObject *from_number(Context *c, PyObject *o)
{
    site at = site_here();
    if (PyBool_Check(o))
        return tensor_wrap(c, tn_full_at(at.file, at.line, c->cx, TN_BOOL, 0, NULL, o == Py_True));
    if (PyLong_Check(o)) {
        int64_t v;
        if (!to_int64(o, "a number", &v)) return NULL;
        return tensor_wrap(c, tn_scalar_i64_at(at.file, at.line, c->cx, v));
    }
    if (PyComplex_Check(o)) {
        double z[2] = { PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o) };
        return tensor_wrap(c, tn_from_at(at.file, at.line, c->cx, TN_C128, 0, NULL, z));
    }
    double d;
    return to_double(o, "a number", &d) ? tensor_wrap(c, tn_scalar_at(at.file, at.line, c->cx, d))
                                        : NULL;
}

PyObject *tensor_from_object(Context *c, PyObject *o)
{
    if (!context_claim(c)) return NULL;
    if (PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o)) return from_number(c, o);
    if (is_list(o)) return from_list(c, o, false);
    if (PyObject_CheckBuffer(o)) return from_buffer(c, o);
    PyObject *array = PyObject_HasAttrString(o, "__array__")
                          ? PyObject_CallMethod(o, "__array__", NULL)
                          : NULL;
    if (array) {
        PyObject *r = PyObject_CheckBuffer(array) ? from_buffer(c, array) : NULL;
        Py_DECREF(array);
        if (r || PyErr_Occurred()) return r;
    }
    if (PyErr_Occurred()) return NULL;
    if (PyIndex_Check(o) || PyNumber_Check(o)) return from_number(c, o);
    PyObject *type = PyType_GetName(Py_TYPE(o));
    PyErr_Format(PyExc_TypeError, "a tensor cannot be made of a %V", type, "?");
    Py_XDECREF(type);
    return NULL;
}

// ---- indices -----------------------------------------------------------------------------------

// Reads integers of a buffer of any width into l->i.
static bool integers_of_buffer(listing *l, PyObject *o)
{
    Py_buffer b;
    tn_dtype  dt = TN_F32;
    bool      ok = false;
    if (PyObject_GetBuffer(o, &b, PyBUF_FULL_RO) < 0) return false;
    char *copy    = malloc(b.len ? (size_t)b.len : 1);
    l->count      = b.itemsize ? b.len / b.itemsize : 0;
    l->i          = malloc(sizeof *l->i * (size_t)(l->count + 1));
    l->rank       = b.ndim;
    bool is_whole = dtype_of_format(b.format, b.itemsize, &dt) && dt != TN_F32 && dt != TN_F64 &&
                    dt != TN_F16 && dt != TN_BOOL;
    if (b.ndim > TN_MAX_RANK || !is_whole)
        PyErr_Format(PyExc_IndexError,
                     "an index array of %d axes with elements of format '%s': integers are needed",
                     b.ndim, b.format ? b.format : "B");
    else if (!copy || !l->i) PyErr_NoMemory();
    else ok = PyBuffer_ToContiguous(copy, &b, b.len, 'C') == 0;
    for (int a = 0; a < b.ndim && ok; a++) l->size[a] = b.shape[a];
    for (int64_t k = 0; k < l->count && ok; k++) {
        const char *from = copy + k * b.itemsize;
        switch (dt) {
        case TN_I8: l->i[k] = *(const int8_t *)from; break;
        case TN_U8: l->i[k] = *(const uint8_t *)from; break;
        case TN_I16: l->i[k] = *(const int16_t *)from; break;
        case TN_U16: l->i[k] = *(const uint16_t *)from; break;
        case TN_I32: l->i[k] = *(const int32_t *)from; break;
        case TN_U32: l->i[k] = *(const uint32_t *)from; break;
        default: l->i[k] = *(const int64_t *)from; break;
        }
    }
    free(copy);
    PyBuffer_Release(&b);
    return ok;
}

static bool integers_of_list(listing *l, PyObject *o)
{
    if (!measure(l, o)) return false;
    l->d = malloc(sizeof *l->d * (size_t)(l->count + 1));
    l->i = malloc(sizeof *l->i * (size_t)(l->count + 1));
    if (!l->d || !l->i) return PyErr_NoMemory(), false;
    if (!fill(l, o, 0)) return false;
    if (l->any_float)
        return PyErr_SetString(PyExc_IndexError, "an index array must have integers"), false;
    return true;
}

// index_array(o, size, axis, context): a list or an array of integers as a tensor. Its numbers are
// checked against the size of the axis, and counted from its start.
static PyObject *index_array(PyObject *self, PyObject *args)
{
    PyObject *o, *r = NULL, *context, *array = NULL;
    long long size;
    int       axis;
    listing   l  = { 0 };
    site      at = site_here();
    (void)self;
    if (!PyArg_ParseTuple(args, "OLiO!", &o, &size, &axis, context_type, &context)) return NULL;
    Context *c = (Context *)context;
    if (!context_claim(c)) return NULL;
    if (!is_list(o) && !PyObject_CheckBuffer(o))
        o = array = PyObject_CallMethod(o, "__array__", NULL);
    bool ok = o && (is_list(o) ? integers_of_list(&l, o) : integers_of_buffer(&l, o));
    for (int64_t k = 0; k < l.count && ok; k++) {
        if (l.i[k] < -size || l.i[k] >= size) {
            PyErr_Format(PyExc_IndexError, "index %lld is out of range for axis %d of size %lld",
                         (long long)l.i[k], axis, size);
            ok = false;
        } else if (l.i[k] < 0) {
            l.i[k] += size;
        }
    }
    if (ok) r = tensor_wrap(c, tn_from_at(at.file, at.line, c->cx, TN_I64, l.rank, l.size, l.i));
    free(l.d);
    free(l.i);
    Py_XDECREF(array);
    return r;
}

// true_places(mask): the places of the elements that are true, counted row-major through all axes.
// Waits for the mask.
static PyObject *true_places(PyObject *self, PyObject *mask)
{
    call       k;
    tn_tensor *t;
    PyObject  *r = NULL;
    (void)self;
    if (!call_begin(&k, "true_places", &mask, 1, NULL)) return NULL;
    if (to_tensor(&k, mask, "mask", false, &t)) {
        int64_t        count = tn_count(t), n = 0;
        bool          *is    = call_memory(&k, (size_t)count);
        int64_t       *place = is ? call_memory(&k, sizeof *place * (size_t)count) : NULL;
        PyThreadState *s     = place ? context_let_go(k.c) : NULL;
        tn_status bad = place ? tn_read_at(k.at.file, k.at.line, t, TN_BOOL, is, count) : TN_OK;
        for (int64_t i = 0; i < count && place && !bad; i++)
            if (is[i]) place[n++] = i;
        context_take_back(k.c, s);
        if (bad) context_raise(k.c);
        else if (place)
            r = tensor_wrap(k.c, tn_from_at(k.at.file, k.at.line, k.c->cx, TN_I64, 1, &n, place));
    }
    call_end(&k);
    return r;
}

// from_object(o, context=None, wide=False): floats of lists are f64 if wide
static PyObject *from_object(PyObject *self, PyObject *args)
{
    PyObject *o, *context = Py_None;
    int       wide = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "O|Op", &o, &context, &wide)) return NULL;
    if (tensor_check(o)) return Py_NewRef(o);
    Context *c = context == Py_None ? context_current() : (Context *)context;
    if (c && !PyObject_TypeCheck((PyObject *)c, context_type))
        return PyErr_SetString(PyExc_TypeError, "context must be a Context"), NULL;
    if (c && wide && is_list(o)) return context_claim(c) ? from_list(c, o, true) : NULL;
    return c ? tensor_from_object(c, o) : NULL;
}

// ---- reading -----------------------------------------------------------------------------------

int element_bytes(tn_dtype dt)
{
    static const int bytes[] = {
        [TN_BOOL] = 1, [TN_U8] = 1,   [TN_I8] = 1,  [TN_I32] = 4,     [TN_I64] = 8,
        [TN_F16] = 2,  [TN_BF16] = 2, [TN_F32] = 4, [TN_F64] = 8,     [TN_I16] = 2,
        [TN_U16] = 2,  [TN_U32] = 4,  [TN_U64] = 8, [TN_F8_E4M3] = 1, [TN_F8_E5M2] = 1,
        [TN_C64] = 8,  [TN_C128] = 16
    };
    return bytes[dt];
}

// read_bytes(x): its elements, row-major, as a bytes object.
static PyObject *read_bytes(PyObject *self, PyObject *x)
{
    call       k;
    tn_tensor *t;
    PyObject  *r = NULL;
    (void)self;
    if (!call_begin(&k, "read", &x, 1, NULL)) return NULL;
    if (to_tensor(&k, x, "x", false, &t)) {
        tn_dtype dt = tn_dtype_of(t);
        r        = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(tn_count(t) * element_bytes(dt)));
        char *to = r ? PyBytes_AsString(r) : NULL;
        if (to) {
            PyThreadState *s      = context_let_go(k.c);
            tn_status      status = tn_read_at(k.at.file, k.at.line, t, dt, to, tn_count(t));
            context_take_back(k.c, s);
            if (status) {
                Py_CLEAR(r);
                context_raise(k.c);
            }
        }
    }
    call_end(&k);
    return r;
}

// from_bytes(data, dtype, shape, context=None): what read_bytes returned.
static PyObject *from_bytes(PyObject *self, PyObject *args)
{
    PyObject      *data, *dtype, *shape, *context = NULL, *r = NULL;
    call           k;
    tn_dtype       dt;
    int            rank;
    const int64_t *size;
    (void)self;
    if (!PyArg_ParseTuple(args, "SOO|O", &data, &dtype, &shape, &context)) return NULL;
    if (!call_begin(&k, "from_bytes", NULL, 0, context)) return NULL;
    if (to_dtype(dtype, "from_bytes: dtype", &dt) &&
        to_int64s(&k, shape, "from_bytes: shape", &rank, &size)) {
        int64_t count = element_bytes(dt);
        for (int i = 0; i < rank; i++) count *= size[i];
        if (rank > TN_MAX_RANK || count != PyBytes_Size(data))
            PyErr_SetString(PyExc_ValueError,
                            "from_bytes: the shape does not fit the number of bytes");
        else
            r = tensor_wrap(k.c, tn_from_at(k.at.file, k.at.line, k.c->cx, dt, rank, size,
                                            PyBytes_AsString(data)));
    }
    call_end(&k);
    return r;
}

// ---- memory that others read -------------------------------------------------------------------
//
// What others read is what tn_to_dlpack exports: a snapshot, in place on the cpu, which no later
// write changes.

typedef struct {
    tn_dl_managed *m;
    Py_ssize_t     size[TN_MAX_RANK], stride[TN_MAX_RANK];  // in bytes
} loan;

static void end_loan(loan *l)
{
    if (!l) return;
    if (l->m) l->m->deleter(l->m);
    free(l);
}

// Waits for x and exports it to the host. NULL with an exception.
static loan *lend(PyObject *x)
{
    call       k;
    tn_tensor *t;
    loan      *l = calloc(1, sizeof *l);
    if (!l) return PyErr_NoMemory(), NULL;
    if (!call_begin(&k, "numpy", &x, 1, NULL)) return free(l), NULL;
    if (to_tensor(&k, x, "x", false, &t)) {
        PyThreadState *s = context_let_go(k.c);
        l->m = tn_to_dlpack_at(k.at.file, k.at.line, t, (tn_dlpack_opts){ .host = true });
        context_take_back(k.c, s);
        if (!l->m) context_raise(k.c);
    }
    for (int a = 0; l->m && a < l->m->tensor.ndim; a++) {
        l->size[a]   = (Py_ssize_t)l->m->tensor.shape[a];
        l->stride[a] = (Py_ssize_t)l->m->tensor.strides[a] * element_bytes(tn_dtype_of(t));
    }
    call_end(&k);
    if (l->m) return l;
    free(l);
    return NULL;
}

static bool is_row_major(const loan *l)
{
    Py_ssize_t step = l->m->tensor.dtype.bits / 8;
    for (int a = l->m->tensor.ndim - 1; a >= 0; step *= l->size[a--])
        if (l->size[a] > 1 && l->stride[a] != step) return false;
    return true;
}

// The format of a dtype in the struct module; NULL if it has none.
static const char *format_of(tn_dtype dt)
{
    static const char *const format[] = {
        [TN_BOOL] = "?", [TN_U8] = "B",  [TN_I8] = "b",       [TN_I16] = "h",  [TN_U16] = "H",
        [TN_I32] = "i",  [TN_U32] = "I", [TN_I64] = "l",      [TN_U64] = "L",  [TN_F16] = "e",
        [TN_F32] = "f",  [TN_F64] = "d", [TN_F8_E5M2] = NULL, [TN_C64] = "Zf", [TN_C128] = "Zd"
    };
    return format[dt];
}

static int refuse_buffer(Py_buffer *view, const char *why, const char *name)
{
    view->obj = NULL;
    PyErr_Format(PyExc_BufferError, why, name);
    return -1;
}

// A consumer that takes no strides gets what is not row-major as a copy.
static loan *lend_rows(PyObject *self, bool strided)
{
    loan *l = lend(self);
    if (!l || strided || is_row_major(l)) return l;
    end_loan(l);
    PyObject *rows = PyObject_CallMethod(self, "contiguous", NULL);
    l              = rows ? lend(rows) : NULL;
    Py_XDECREF(rows);
    return l;
}

int tensor_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    if (!((Tensor *)self)->owner->cx)
        return refuse_buffer(view, "the tensor's context was closed%s", "");
    tn_tensor *t      = ((Tensor *)self)->t;
    tn_dtype   dt     = tn_dtype_of(t);
    bool       shaped = (flags & PyBUF_ND) == PyBUF_ND,
         strided      = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    bool rows         = (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS;
    if (flags & PyBUF_WRITABLE)
        return refuse_buffer(view, "the memory of a tensor is read-only%s", "");
    if (!format_of(dt))
        return refuse_buffer(view, "elements of %s have no format in the buffer protocol",
                             tn_dtype_name(dt));
    loan *l = lend_rows(self, strided && !rows);
    if (!l) return view->obj = NULL, -1;
    *view = (Py_buffer){ .buf = l->m->tensor.data ? l->m->tensor.data : l,  // no elements: anywhere
                         .obj = Py_NewRef(self),
                         .len = (Py_ssize_t)tn_count(t) * element_bytes(dt),
                         .itemsize = element_bytes(dt),
                         .readonly = 1,
                         .ndim     = shaped ? tn_rank(t) : 1,
                         .format   = flags & PyBUF_FORMAT ? (char *)(uintptr_t)format_of(dt) : NULL,
                         .shape    = shaped ? l->size : NULL,
                         .strides  = strided ? l->stride : NULL,
                         .internal = l };
    return 0;
}

void tensor_release_buffer(PyObject *self, Py_buffer *view)
{
    (void)self;
    end_loan(view->internal);
}

// The bytes of a tensor, row-major, for dtypes that have no format.
typedef struct {
    PyObject_HEAD loan *l;
    Py_ssize_t          bytes;
} Memory;

static PyTypeObject *memory_type;

static PyObject *memory_of(PyObject *self, PyObject *x)
{
    (void)self;
    if (!tensor_check(x)) return PyErr_SetString(PyExc_TypeError, "memory() takes a tensor"), NULL;
    loan   *l = lend_rows(x, false);
    Memory *m = l ? PyObject_New(Memory, memory_type) : NULL;
    if (!m) return end_loan(l), NULL;
    m->l     = l;
    m->bytes = (Py_ssize_t)tn_count(((Tensor *)x)->t) *
               element_bytes(tn_dtype_of(((Tensor *)x)->t));
    return (PyObject *)m;
}

static void memory_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    end_loan(((Memory *)self)->l);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static int memory_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    Memory *m    = (Memory *)self;
    void   *data = m->l->m->tensor.data;
    return PyBuffer_FillInfo(view, self, data ? data : m->l, m->bytes, 1, flags);
}

int exchange_ready(PyObject *module)
{
    static PyType_Slot slots[] = { { Py_tp_dealloc, memory_dealloc },
                                   { Py_bf_getbuffer, memory_get_buffer },
                                   { 0 } };
    static PyType_Spec spec    = { "tenon._c.Memory", sizeof(Memory), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots };
    if (!(memory_type = (PyTypeObject *)PyType_FromSpec(&spec))) return -1;
    static PyMethodDef methods[] = {
        { "from_object", from_object, METH_VARARGS, NULL },
        { "from_bytes", from_bytes, METH_VARARGS, NULL },
        { "read_bytes", read_bytes, METH_O, NULL },
        { "borrow", borrow_buffer, METH_VARARGS, NULL },
        { "memory", memory_of, METH_O, NULL },
        { "index_array", index_array, METH_VARARGS, NULL },
        { "true_places", true_places, METH_O, NULL },
        { 0 },
    };
    return PyModule_AddFunctions(module, methods);
}
