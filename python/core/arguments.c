// arguments.c: from the arguments of Python to those of C. Each function returns false with an
// exception that names the function and the argument.
#include "core.h"

#include <stdlib.h>
#include <string.h>

// ---- by place and by name ----------------------------------------------------------------------

static int find_param(const signature *s, PyObject *name)
{
    for (int i = 0; i < s->count; i++)
        if (PyUnicode_CompareWithASCIIString(name, s->params[i]) == 0) return i;
    // The names that PyTorch has for ours.
    static const char *const theirs[][2] = { { "dim", "axis" },   { "dim0", "axis1" },
                                             { "dim1", "axis2" }, { "dims", "axes" },
                                             { "other", "b" },    { "src", "v" },
                                             { "input", "x" },    { "input", "a" } };
    for (size_t k = 0; k < sizeof theirs / sizeof *theirs; k++) {
        if (PyUnicode_CompareWithASCIIString(name, theirs[k][0]) != 0) continue;
        for (int i = 0; i < s->count; i++)
            if (!strcmp(s->params[i], theirs[k][1])) return i;
    }
    return -1;
}

bool take_arguments(const signature *s, PyObject *self, PyObject *const *args, Py_ssize_t n,
                    PyObject *names, PyObject **a)
{
    int first = self && self != core_module;
    memset(a, 0, sizeof *a * (size_t)s->count);
    if (first) a[0] = self;
    if (n + first > s->positional)
        return PyErr_Format(PyExc_TypeError,
                            "%s() takes at most %d positional arguments, %zd were given", s->name,
                            s->positional, n + first),
               false;
    for (Py_ssize_t i = 0; i < n; i++) a[i + first] = args[i];
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int       k    = find_param(s, name);
        if (k < 0)
            return PyErr_Format(PyExc_TypeError, "%s() has no argument '%U'", s->name, name), false;
        if (a[k])
            return PyErr_Format(PyExc_TypeError, "%s() got two values for '%U'", s->name, name),
                   false;
        a[k] = args[n + i];
    }
    for (int i = 0; i < s->needed; i++)
        if (!a[i])
            return PyErr_Format(PyExc_TypeError, "%s() misses its argument '%s'", s->name,
                                s->params[i]),
                   false;
    return true;
}

// ---- a call ------------------------------------------------------------------------------------

// Of lists that of the first element. A list may contain itself: what is nested deeper than a
// tensor's axes has none.
static Context *context_within(PyObject *o, int depth)
{
    if (!o || depth > TN_MAX_RANK) return NULL;
    if (tensor_check(o)) return ((Tensor *)o)->owner;
    for (int i = 0; i < HANDLE_KINDS; i++)
        if (PyObject_TypeCheck(o, handle_types[i])) return ((Handle *)o)->owner;
    if (PyObject_TypeCheck(o, context_type)) return (Context *)o;
    if (PyList_Check(o) && PyList_Size(o)) return context_within(PyList_GetItem(o, 0), depth + 1);
    if (PyTuple_Check(o) && PyTuple_Size(o))
        return context_within(PyTuple_GetItem(o, 0), depth + 1);
    return NULL;
}

static Context *context_of(PyObject *o)
{
    return context_within(o, 0);
}

bool call_begin(call *k, const char *name, PyObject *const *a, int n, PyObject *context)
{
    k->name     = name;
    k->kept     = NULL;
    k->n_memory = 0;
    k->c        = NULL;
    if (context && context != Py_None && !(k->c = context_of(context)))
        return PyErr_Format(PyExc_TypeError, "%s(): context must be a Context", name), false;
    for (int i = 0; i < n && !k->c; i++) k->c = context_of(a[i]);
    if (!k->c) k->c = context_current();
    if (!k->c || !context_claim(k->c)) return false;
    Py_INCREF((PyObject *)k->c);
    k->at = site_here();
    return true;
}

void call_end(call *k)
{
    Py_XDECREF(k->kept);
    for (int i = 0; i < k->n_memory; i++) free(k->memory[i]);
    Py_DECREF((PyObject *)k->c);
}

void *call_memory(call *k, size_t bytes)
{
    void *p = k->n_memory < MAX_MADE ? malloc(bytes ? bytes : 1) : NULL;
    if (!p) return PyErr_NoMemory();
    return k->memory[k->n_memory++] = p;
}

bool call_keep(call *k, PyObject *o)
{
    if (!k->kept && !(k->kept = PyList_New(0))) return false;
    return PyList_Append(k->kept, o) == 0;
}

// ---- values ------------------------------------------------------------------------------------

// Only a TypeError is replaced: an exception of the program's own, or of Ctrl-C, is passed on.
static bool wrong(const char *what, const char *wanted, PyObject *o)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    PyErr_Clear();
    PyObject *type = PyType_GetName(Py_TYPE(o));
    PyErr_Format(PyExc_TypeError, "%s must be %s, not %V", what, wanted, type, "?");
    Py_XDECREF(type);
    return false;
}

bool to_tensor(call *k, PyObject *o, const char *what, bool may_be_none, tn_tensor **t)
{
    *t = NULL;
    if (may_be_none && (!o || o == Py_None)) return true;
    if (!o || o == Py_None) return wrong(what, "a tensor", Py_None);
    if (!tensor_check(o)) {
        PyObject *made = tensor_from_object(k->c, o);
        bool ok = made && call_keep(k, made) && context_claim(k->c);  // another thread may have run
        Py_XDECREF(made);
        if (!ok) return false;
        o = made;
    }
    *t = ((Tensor *)o)->t;
    if (!*t || !((Tensor *)o)->owner->cx)
        return PyErr_Format(PyExc_ValueError, "%s is a tensor of a context that was closed", what),
               false;
    return true;
}

// ---- numbers of Python beside tensors ----------------------------------------------------------

bool is_float_dtype(tn_dtype dt)
{
    return dt == TN_F16 || dt == TN_BF16 || dt == TN_F32 || dt == TN_F64 || dt == TN_F8_E4M3 ||
           dt == TN_F8_E5M2 || dt == TN_C64 || dt == TN_C128;
}

// The least and the largest number of an integer dtype, as doubles: 2^63 and 2^64 stand for one
// less.
static void range_of(tn_dtype dt, double *low, double *high)
{
    bool     is_unsigned = dt == TN_U8 || dt == TN_U16 || dt == TN_U32 || dt == TN_U64;
    uint64_t past        = (uint64_t)1 << (element_bytes(dt) * 8 - 1);
    *low                 = is_unsigned ? 0 : -(double)past;
    *high = (is_unsigned ? 2.0 : 1.0) * (double)past - (dt == TN_I64 || dt == TN_U64 ? 0 : 1);
}

// Puts a new tensor, which lives as long as the call, in the place of *t.
static bool replace(call *k, tn_tensor **t, tn_tensor *with)
{
    PyObject *made = tensor_wrap(k->c, with);
    bool      ok   = made && call_keep(k, made);
    Py_XDECREF(made);
    if (ok) *t = ((Tensor *)made)->t;
    return ok;
}

// A float beside bools and integers makes them f32, the default dtype of floats, also if it has no
// fraction: C has only the value to go by, and takes 2.0 for an integer.
static bool fit_floats(call *k, number_use use, PyObject *const *o, tn_tensor **const *t)
{
    const char *file = k->at.file;
    int         line = k->at.line, number = 0;
    bool        tensors = false;
    for (int i = 0; i < 2; i++) {
        if (PyFloat_Check(o[i])) number = i;
        else if (is_float_dtype(tn_dtype_of(*t[i]))) return true;
        else tensors = true;
    }
    // What is written to keeps its dtype, and only a number that is a tensor makes that an error.
    // Of numbers alone the first becomes a tensor: there is nothing else to cast.
    if (use == WRITES || !tensors)
        return replace(k, t[number],
                       tn_full_at(file, line, k->c->cx, TN_F32, 0, NULL,
                                  PyFloat_AsDouble(o[number])));
    for (int i = 0; i < 2; i++)
        if (!PyFloat_Check(o[i]) && !replace(k, t[i], tn_cast_at(file, line, *t[i], TN_F32)))
            return false;
    return true;
}

// A number beyond the range of the integers x: a bound is lowered or raised to the end of the
// range; to be compared, x becomes f64, which holds what it is compared with.
static bool fit_range(call *k, number_use use, PyObject *o, tn_tensor **number, tn_tensor **x)
{
    double   low, high, v;
    tn_dtype dt = tn_dtype_of(*x);
    if (is_float_dtype(dt) || dt == TN_BOOL) return true;
    range_of(dt, &low, &high);
    v = PyFloat_AsDouble(o);  // of an int too
    if (v == -1 && PyErr_Occurred())
        return PyErr_ExceptionMatches(PyExc_OverflowError) ? (PyErr_Clear(), true) : false;
    if (!(v < low || v > high)) return true;
    if (use == COMPARES) return replace(k, x, tn_cast_at(k->at.file, k->at.line, *x, TN_F64));
    int64_t end = v < low ? (int64_t)low : high < 0x1p63 ? (int64_t)high : INT64_MAX;
    return replace(k, number, tn_scalar_i64_at(k->at.file, k->at.line, k->c->cx, end));
}

// Whether o, of which t was made, is an integer of another library, such as NumPy's int64.
static bool is_integer_scalar(PyObject *o, tn_tensor *t)
{
    return t && !tensor_check(o) && PyIndex_Check(o) && tn_rank(t) == 0 &&
           !is_float_dtype(tn_dtype_of(t));
}

bool fit_numbers(call *k, number_use use, PyObject *const *o, tn_tensor **const *t)
{
    bool floats = false;
    for (int i = 0; i < 2; i++) floats = floats || PyFloat_Check(o[i]);
    if (floats && use != COMPARES && !fit_floats(k, use, o, t)) return false;
    for (int i = 0; i < 2 && (use == COMPARES || use == BOUNDS); i++) {
        bool is_number = PyLong_Check(o[i]) || (PyFloat_Check(o[i]) && use == COMPARES) ||
                         is_integer_scalar(o[i], *t[i]);
        if (is_number && tensor_check(o[!i]) && !fit_range(k, use, o[i], t[i], t[!i])) return false;
    }
    return true;
}

// ---- the other values --------------------------------------------------------------------------

bool to_handle(call *k, PyObject *o, handle_kind kind, const char *what, bool may_be_none, void **p)
{
    Context *c = k->c;
    *p         = NULL;
    if (may_be_none && (!o || o == Py_None)) return true;
    return (*p = handle_get(o ? o : Py_None, kind, what, &c)) != NULL;
}

bool to_int64(PyObject *o, const char *what, int64_t *v)
{
    PyObject *i = PyNumber_Index(o);
    if (!i) return wrong(what, "an integer", o);
    *v = PyLong_AsLongLong(i);
    Py_DECREF(i);
    return *v != -1 || !PyErr_Occurred();
}

bool to_int(PyObject *o, const char *what, int *v)
{
    int64_t wide;
    if (!to_int64(o, what, &wide)) return false;
    if (wide < INT32_MIN || wide > INT32_MAX)
        return PyErr_Format(PyExc_OverflowError, "%s is too large", what), false;
    *v = (int)wide;
    return true;
}

bool to_uint64(PyObject *o, const char *what, uint64_t *v)
{
    PyObject *i = PyNumber_Index(o);
    if (!i) return wrong(what, "an integer", o);
    *v = PyLong_AsUnsignedLongLong(i);
    Py_DECREF(i);
    return *v != (uint64_t)-1 || !PyErr_Occurred();
}

bool to_double(PyObject *o, const char *what, double *v)
{
    *v = PyFloat_AsDouble(o);
    if (*v != -1.0 || !PyErr_Occurred()) return true;
    return wrong(what, "a number", o);
}

bool to_option(PyObject *o, const char *what, double *v)
{
    if (!to_double(o, what, v)) return false;
    if (*v == 0) *v = TN_ZERO;
    return true;
}

bool to_bool(PyObject *o, const char *what, bool *v)
{
    int is = PyObject_IsTrue(o);
    (void)what;
    *v = is > 0;
    return is >= 0;
}

// A dtype of the package is an object with the attribute _number; its name, NumPy's dtypes and
// Python's types go through tenon.dtype, which makes one of them.
bool to_dtype(PyObject *o, const char *what, tn_dtype *v)
{
    static PyObject *make;
    PyObject        *number = PyObject_GetAttrString(o, "_number");
    if (!number) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
        PyErr_Clear();
        if (!make) {
            PyObject *m = PyImport_ImportModule("tenon._dtypes");
            make        = m ? PyObject_GetAttrString(m, "as_dtype") : NULL;
            Py_XDECREF(m);
        }
        PyObject *d = make ? PyObject_CallFunctionObjArgs(make, o, NULL) : NULL;
        number      = d ? PyObject_GetAttrString(d, "_number") : NULL;
        Py_XDECREF(d);
    }
    int  n  = 0;
    bool ok = number && to_int(number, what, &n);
    Py_XDECREF(number);
    *v = (tn_dtype)n;
    return ok;
}

// The text lives as long as the object.
bool to_text(call *k, PyObject *o, const char *what, bool may_be_none, const char **v)
{
    *v = NULL;
    if (may_be_none && (!o || o == Py_None)) return true;
    if (!PyUnicode_Check(o)) {  // a path, perhaps
        PyObject *path = PyOS_FSPath(o);
        if (!path) return wrong(what, "a str", o);
        PyObject *text = PyUnicode_Check(path) ? Py_NewRef(path)
                                               : PyUnicode_DecodeFSDefault(PyBytes_AsString(path));
        Py_DECREF(path);
        const char *s = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
        char       *m = s ? call_memory(k, strlen(s) + 1) : NULL;
        if (m) *v = strcpy(m, s);
        Py_XDECREF(text);
        return *v != NULL;
    }
    Py_ssize_t n;
    *v = PyUnicode_AsUTF8AndSize(o, &n);
    if (*v && (Py_ssize_t)strlen(*v) != n)
        return PyErr_Format(PyExc_ValueError, "%s has a null character", what), false;
    return *v != NULL;
}

// ---- lists -------------------------------------------------------------------------------------

// A sequence as a new tuple; one number counts as a tuple of it.
static PyObject *sequence(PyObject *o, const char *what, bool one)
{
    if (one && PyIndex_Check(o) && !tensor_check(o)) return PyTuple_Pack(1, o);
    PyObject *t = PySequence_Tuple(o);
    if (!t) wrong(what, "a sequence", o);
    return t;
}

typedef bool read_fn(call *k, PyObject *o, const char *what, void *to);

// Reads each element of a sequence into an array of the call, which also keeps the sequence: what
// the elements hold lives as long.
static void *read_list(call *k, PyObject *o, const char *what, bool one, size_t size, read_fn *read,
                       int *n)
{
    PyObject  *t     = sequence(o, what, one);
    Py_ssize_t count = t ? PyTuple_Size(t) : 0;
    char      *list  = t ? call_memory(k, size * (size_t)count) : NULL;
    bool       ok    = list && call_keep(k, t);
    for (Py_ssize_t i = 0; i < count && ok; i++)
        ok = read(k, PyTuple_GetItem(t, i), what, list + (size_t)i * size);
    Py_XDECREF(t);
    *n = ok ? (int)count : 0;
    return ok ? list : NULL;
}

static bool read_int64(call *k, PyObject *o, const char *what, void *to)
{
    (void)k;
    return to_int64(o, what, to);
}

static bool read_int(call *k, PyObject *o, const char *what, void *to)
{
    (void)k;
    return to_int(o, what, to);
}

static bool read_tensor(call *k, PyObject *o, const char *what, void *to)
{
    return to_tensor(k, o, what, false, to);
}

static bool read_text(call *k, PyObject *o, const char *what, void *to)
{
    return to_text(k, o, what, false, to);
}

static bool read_layer(call *k, PyObject *o, const char *what, void *to)
{
    return to_handle(k, o, LAYER, what, false, to);
}

bool to_int64s(call *k, PyObject *o, const char *what, int *n, const int64_t **v)
{
    return (*v = read_list(k, o, what, true, sizeof **v, read_int64, n)) != NULL;
}

bool to_ints(call *k, PyObject *o, const char *what, int *n, const int **v)
{
    return (*v = read_list(k, o, what, true, sizeof **v, read_int, n)) != NULL;
}

bool to_tensors(call *k, PyObject *o, const char *what, int *n, tn_tensor *const **v)
{
    return (*v = read_list(k, o, what, false, sizeof **v, read_tensor, n)) != NULL;
}

bool to_texts(call *k, PyObject *o, const char *what, int *n, const char *const **v)
{
    return (*v = read_list(k, o, what, false, sizeof **v, read_text, n)) != NULL;
}

bool to_layers(call *k, PyObject *o, const char *what, int *n, tn_layer *const **v)
{
    return (*v = read_list(k, o, what, false, sizeof **v, read_layer, n)) != NULL;
}

// The numbers of an option as a new tuple; NULL, with an exception, if there are more than `room`.
static PyObject *few_numbers(PyObject *o, const char *what, int room)
{
    PyObject *t = sequence(o, what, true);
    if (!t || PyTuple_Size(t) <= room) return t;
    PyErr_Format(PyExc_ValueError, "%s has %zd numbers, at most %d are possible", what,
                 PyTuple_Size(t), room);
    Py_DECREF(t);
    return NULL;
}

bool to_places(PyObject *o, const char *what, int room, int64_t zero, int64_t *v)
{
    PyObject *t  = few_numbers(o, what, room);
    bool      ok = t != NULL;
    int       n  = ok ? (int)PyTuple_Size(t) : 0;
    for (int i = 0; i < n && ok; i++) {
        ok = to_int64(PyTuple_GetItem(t, i), what, &v[i]);
        if (ok && i && !v[i]) v[i] = zero;
    }
    Py_XDECREF(t);
    return ok;
}

bool to_doubles(PyObject *o, const char *what, int room, double *v)
{
    PyObject *t  = few_numbers(o, what, room);
    bool      ok = t != NULL;
    int       n  = ok ? (int)PyTuple_Size(t) : 0;
    for (int i = 0; i < n && ok; i++) ok = to_double(PyTuple_GetItem(t, i), what, &v[i]);
    Py_XDECREF(t);
    return ok;
}

// ---- results -----------------------------------------------------------------------------------

PyObject *from_text(const char *text)
{
    if (!text) Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *from_dtype(tn_dtype d)
{
    static PyObject *list;
    if (!list) {
        PyObject *m = PyImport_ImportModule("tenon._dtypes");
        list        = m ? PyObject_GetAttrString(m, "DTYPES") : NULL;
        Py_XDECREF(m);
    }
    return list ? PySequence_GetItem(list, (Py_ssize_t)d) : NULL;
}

PyObject *from_shape(int rank, const int64_t *size)
{
    PyObject *t = PyTuple_New(rank);
    for (int i = 0; i < rank && t; i++) {
        PyObject *v = PyLong_FromLongLong(size[i]);
        if (!v) return Py_DECREF(t), NULL;
        PyTuple_SetItem(t, i, v);
    }
    return t;
}
