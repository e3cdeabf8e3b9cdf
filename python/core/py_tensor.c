// py_tensor.c: the tensor type: its life, operators, facts, reads, and plain indexing. The package
// adds what can be said in Python.
#include "core.h"

#include <stdlib.h>
#include <string.h>

PyTypeObject *tensor_type;

bool tensor_check(PyObject *o)
{
    return PyObject_TypeCheck(o, tensor_type);
}

// ---- its life ----------------------------------------------------------------------------------

static void end_tensor(void *t)
{
    tn_release(t);
}

static PyObject *wrap_as(PyTypeObject *type, Context *c, tn_tensor *t)
{
    Tensor *o = (Tensor *)PyType_GenericAlloc(type, 0);
    if (!o) return NULL;
    tn_retain(t);  // a step stores what a variable still names; temporaries are gone by then
    o->t     = t;
    o->owner = (Context *)Py_NewRef((PyObject *)c);
    o->weak  = NULL;
    return (PyObject *)o;
}

PyObject *tensor_wrap(Context *c, tn_tensor *t)
{
    if (!t) return context_raise(c);
    return wrap_as(tensor_type, c, t);
}

static void tensor_dealloc(PyObject *self)
{
    Tensor       *o    = (Tensor *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (o->weak) PyObject_ClearWeakRefs(self);
    if (o->t) context_end(o->owner, o->t, end_tensor, true);
    Py_XDECREF((PyObject *)o->owner);
    Py_XDECREF(o->kept_grad);
    freefunc end = (freefunc)PyType_GetSlot(type, Py_tp_free);
    end(self);
    Py_DECREF((PyObject *)type);
}

// Tensor(x): another object for the same tensor, for classes that derive from it.
static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    PyObject *x;
    (void)kw;
    if (!PyArg_ParseTuple(args, "O", &x)) return NULL;
    if (!tensor_check(x))
        return PyErr_SetString(PyExc_TypeError,
                               "Tensor() takes a tensor; tenon.tensor() makes one"),
               NULL;
    Tensor *from = (Tensor *)x;
    if (!context_claim(from->owner)) return NULL;
    return wrap_as(type, from->owner, from->t);
}

// ---- operators ---------------------------------------------------------------------------------

typedef tn_tensor *two_fn(const char *file, int line, tn_tensor *a, tn_tensor *b);
typedef tn_tensor *number_fn(const char *file, int line, tn_tensor *x, double v);
typedef tn_tensor *integer_fn(const char *file, int line, tn_tensor *x, int64_t v);

// An operator, and its forms with a number on the right and, for those of arithmetic, on the left.
// NULL: the number is made a tensor.
typedef struct {
    const char *name;
    two_fn     *two;
    number_fn  *right, *left;
    integer_fn *right_i64, *left_i64;
    number_use  use;
} operation;

// Whether o is a plain number of Python.
static bool is_number(PyObject *o)
{
    return PyFloat_Check(o) || PyLong_Check(o);
}

// Whether an operator takes o: a number, or an array of another library.
static bool is_operand(PyObject *o)
{
    return tensor_check(o) || is_number(o) || PyComplex_Check(o) || PyIndex_Check(o) ||
           PyObject_CheckBuffer(o) || PyObject_HasAttrString(o, "__dlpack__");
}

static tn_tensor *with_number(call *k, const operation *op, tn_tensor *x, PyObject *number,
                              bool left, bool *done)
{
    *done = true;
    if (PyLong_Check(number)) {
        int         overflow;
        long long   v = PyLong_AsLongLongAndOverflow(number, &overflow);
        integer_fn *f = left ? op->left_i64 : op->right_i64;
        if (f && !overflow) return f(k->at.file, k->at.line, x, v);
    } else {
        number_fn *f = left ? op->left : op->right;
        if (f) return f(k->at.file, k->at.line, x, PyFloat_AsDouble(number));
    }
    *done = false;
    return NULL;
}

static PyObject *operate(const operation *op, PyObject *a, PyObject *b)
{
    PyObject *both[2] = { a, b }, *r = NULL;
    call      k;
    bool      left = !tensor_check(a), done = false;
    PyObject *other = left ? a : b;
    if (!is_operand(other)) Py_RETURN_NOTIMPLEMENTED;
    if (!call_begin(&k, op->name, both, 2, NULL)) return NULL;
    tn_tensor *t[2] = { NULL, NULL }, *y = NULL, **const places[2] = { &t[0], &t[1] };
    if (is_number(other)) {
        if (to_tensor(&k, both[left], op->name, false, &t[left]) &&
            fit_numbers(&k, op->use, both, places))
            y = with_number(&k, op, t[left], other, left, &done);
        else done = true;
        if (done) r = PyErr_Occurred() ? NULL : tensor_wrap(k.c, y);
        else if (to_tensor(&k, other, op->name, false, &t[!left]))
            r = tensor_wrap(k.c, op->two(k.at.file, k.at.line, t[0], t[1]));
    } else if (to_tensor(&k, a, op->name, false, &t[0]) &&
               to_tensor(&k, b, op->name, false, &t[1]) &&
               (tensor_check(other) || fit_numbers(&k, op->use, both, places))) {
        r = tensor_wrap(k.c, op->two(k.at.file, k.at.line, t[0], t[1]));
    }
    call_end(&k);
    return r;
}

#define OPERATOR(name, right, left, right_i64, left_i64)                        \
    static PyObject *op_##name(PyObject *a, PyObject *b)                        \
    {                                                                           \
        static const operation op = { #name,     tn_##name##_at, right,   left, \
                                      right_i64, left_i64,       COMPUTES };    \
        return operate(&op, a, b);                                              \
    }

OPERATOR(add, tn_add_s_at, tn_add_s_at, tn_add_i64_at, tn_add_i64_at)
OPERATOR(sub, tn_sub_s_at, tn_rsub_s_at, tn_sub_i64_at, tn_rsub_i64_at)
OPERATOR(mul, tn_mul_s_at, tn_mul_s_at, tn_mul_i64_at, tn_mul_i64_at)
OPERATOR(div, tn_div_s_at, tn_rdiv_s_at, tn_div_i64_at, tn_rdiv_i64_at)
OPERATOR(floor_divide, NULL, NULL, NULL, NULL)
OPERATOR(remainder, NULL, NULL, NULL, NULL)
OPERATOR(matmul, NULL, NULL, NULL, NULL)
OPERATOR(bit_and, NULL, NULL, NULL, NULL)
OPERATOR(bit_or, NULL, NULL, NULL, NULL)
OPERATOR(bit_xor, NULL, NULL, NULL, NULL)
OPERATOR(shl, NULL, NULL, NULL, NULL)
OPERATOR(shr, NULL, NULL, NULL, NULL)

static PyObject *op_pow(PyObject *a, PyObject *b, PyObject *modulus)
{
    static const operation op = {
        "pow", tn_pow_at, tn_pow_s_at, NULL, tn_pow_i64_at, NULL, COMPUTES
    };
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return operate(&op, a, b);
}

static PyObject *compare(PyObject *a, PyObject *b, int which)
{
    static const operation ops[] = {
        [Py_LT] = { "lt", tn_lt_at, tn_lt_s_at, NULL, tn_lt_i64_at, NULL, COMPARES },
        [Py_LE] = { "le", tn_le_at, tn_le_s_at, NULL, tn_le_i64_at, NULL, COMPARES },
        [Py_EQ] = { "eq", tn_eq_at, tn_eq_s_at, NULL, tn_eq_i64_at, NULL, COMPARES },
        [Py_NE] = { "ne", tn_ne_at, tn_ne_s_at, NULL, tn_ne_i64_at, NULL, COMPARES },
        [Py_GT] = { "gt", tn_gt_at, tn_gt_s_at, NULL, tn_gt_i64_at, NULL, COMPARES },
        [Py_GE] = { "ge", tn_ge_at, tn_ge_s_at, NULL, tn_ge_i64_at, NULL, COMPARES },
    };
    return operate(&ops[which], a, b);
}

typedef tn_tensor *one_fn(const char *file, int line, tn_tensor *x);

static PyObject *apply(const char *name, one_fn *f, PyObject *a)
{
    call       k;
    tn_tensor *x;
    PyObject  *r = NULL;
    if (!call_begin(&k, name, &a, 1, NULL)) return NULL;
    if (to_tensor(&k, a, name, false, &x)) r = tensor_wrap(k.c, f(k.at.file, k.at.line, x));
    call_end(&k);
    return r;
}

static PyObject *op_neg(PyObject *a)
{
    return apply("neg", tn_neg_at, a);
}

static PyObject *op_abs(PyObject *a)
{
    return apply("abs", tn_abs_at, a);
}

static PyObject *op_invert(PyObject *a)
{
    return apply("bit_not", tn_bit_not_at, a);
}

static PyObject *op_positive(PyObject *a)
{
    return Py_NewRef(a);
}

// x += v changes x and every tensor that shares its store, and is the same object.
static PyObject *write_with(const char *name, two_fn *f, PyObject *a, PyObject *b)
{
    PyObject  *both[2] = { a, b }, *r = NULL;
    call       k;
    tn_tensor *x, *v, **const places[2] = { &x, &v };
    if (!is_operand(b)) Py_RETURN_NOTIMPLEMENTED;
    if (!call_begin(&k, name, both, 2, NULL)) return NULL;
    if (to_tensor(&k, a, name, false, &x) && to_tensor(&k, b, name, false, &v) &&
        fit_numbers(&k, WRITES, both, places))
        r = f(k.at.file, k.at.line, x, v) ? Py_NewRef(a) : context_raise(k.c);
    call_end(&k);
    return r;
}

static PyObject *op_iadd(PyObject *a, PyObject *b)
{
    return write_with("add_", tn_add__at, a, b);
}

static PyObject *op_isub(PyObject *a, PyObject *b)
{
    return write_with("sub_", tn_sub__at, a, b);
}

static PyObject *op_imul(PyObject *a, PyObject *b)
{
    return write_with("mul_", tn_mul__at, a, b);
}

static PyObject *op_idiv(PyObject *a, PyObject *b)
{
    return write_with("div_", tn_div__at, a, b);
}

// The same for operators that C has no writing form of: x is assigned the result, which must have
// its dtype.
static PyObject *write_result(const char *name, two_fn *f, PyObject *a, PyObject *b)
{
    PyObject  *both[2] = { a, b }, *r = NULL;
    call       k;
    tn_tensor *x, *v, *y = NULL, **const places[2] = { &x, &v };
    if (!is_operand(b)) Py_RETURN_NOTIMPLEMENTED;
    if (!call_begin(&k, name, both, 2, NULL)) return NULL;
    if (to_tensor(&k, a, name, false, &x) && to_tensor(&k, b, name, false, &v) &&
        fit_numbers(&k, WRITES, both, places)) {
        y = f(k.at.file, k.at.line, x, v);
        if (y && tn_dtype_of(y) != tn_dtype_of(x)) {
            char why[96];
            snprintf(why, sizeof why, "%s: a result of %s does not go into x of %s", name,
                     tn_dtype_name(tn_dtype_of(y)), tn_dtype_name(tn_dtype_of(x)));
            tn_error_set_at(k.at.file, k.at.line, k.c->cx, TN_EDTYPE, why);
        } else if (y && tn_assign_at(k.at.file, k.at.line, x, y)) {
            r = Py_NewRef(a);
        }
        if (y) tn_drop(y);
        if (!r) context_raise(k.c);
    }
    call_end(&k);
    return r;
}

#define WRITING(name)                                         \
    static PyObject *op_i##name(PyObject *a, PyObject *b)     \
    {                                                         \
        return write_result(#name "_", tn_##name##_at, a, b); \
    }

WRITING(floor_divide)
WRITING(remainder)
WRITING(bit_and)
WRITING(bit_or)
WRITING(bit_xor)
WRITING(shl)
WRITING(shr)

static PyObject *op_ipow(PyObject *a, PyObject *b, PyObject *modulus)
{
    if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
    return write_result("pow_", tn_pow_at, a, b);
}

static bool is_open(Tensor *o)
{
    if (o->t && o->owner->cx) return context_claim(o->owner);
    if (o->owner->is_lost) context_claim(o->owner);
    else PyErr_SetString(PyExc_ValueError, "the tensor's context was closed");
    return false;
}

// ---- one number --------------------------------------------------------------------------------

static PyObject *read_one(PyObject *self)
{
    Tensor   *o = (Tensor *)self;
    call      k;
    PyObject *r = NULL;
    if (!call_begin(&k, "item", &self, 1, NULL)) return NULL;
    tn_dtype       dt    = tn_dtype_of(o->t);
    bool           whole = !is_float_dtype(dt);
    double         d     = 0;
    int64_t        i     = 0;
    double         z[2]  = { 0, 0 };
    bool           pair  = dt == TN_C64 || dt == TN_C128;
    PyThreadState *s     = context_let_go(k.c);
    if (pair) tn_read_at(k.at.file, k.at.line, o->t, TN_C128, z, 1);
    else if (whole) i = tn_item_i64_at(k.at.file, k.at.line, o->t);
    else d = tn_item_at(k.at.file, k.at.line, o->t);
    context_take_back(k.c, s);
    if (k.c->failed.code) r = context_raise(k.c);
    else if (pair) r = PyComplex_FromDoubles(z[0], z[1]);
    else if (dt == TN_BOOL) r = PyBool_FromLong(i != 0);
    else if (dt == TN_U64) r = PyLong_FromUnsignedLongLong((uint64_t)i);
    else r = whole ? PyLong_FromLongLong(i) : PyFloat_FromDouble(d);
    call_end(&k);
    return r;
}

static PyObject *tensor_item(PyObject *self, PyObject *unused)
{
    (void)unused;
    return read_one(self);
}

static int tensor_bool(PyObject *self)
{
    Tensor *o = (Tensor *)self;
    if (!is_open(o)) return -1;
    if (tn_count(o->t) != 1) {
        PyErr_Format(PyExc_ValueError,
                     "the truth of a tensor of %lld elements is ambiguous; use any() or all()",
                     (long long)tn_count(o->t));
        return -1;
    }
    PyObject *v  = read_one(self);
    int       is = v ? PyObject_IsTrue(v) : -1;
    Py_XDECREF(v);
    return is;
}

static PyObject *tensor_float(PyObject *self)
{
    PyObject *v = read_one(self), *r = v ? PyNumber_Float(v) : NULL;
    Py_XDECREF(v);
    return r;
}

static PyObject *tensor_int(PyObject *self)
{
    PyObject *v = read_one(self), *r = v ? PyNumber_Long(v) : NULL;
    Py_XDECREF(v);
    return r;
}

static PyObject *tensor_as_index(PyObject *self)
{
    tn_tensor *t = ((Tensor *)self)->t;
    if (!is_open((Tensor *)self)) return NULL;
    if (tn_count(t) == 1 && !is_float_dtype(tn_dtype_of(t))) return read_one(self);
    return PyErr_SetString(PyExc_TypeError, "only a tensor of one integer is an index"), NULL;
}

// ---- facts -------------------------------------------------------------------------------------

static PyObject *get_shape(PyObject *self, void *unused)
{
    Tensor *o = (Tensor *)self;
    int64_t size[TN_MAX_RANK];
    (void)unused;
    if (!is_open(o)) return NULL;
    int rank = tn_rank(o->t);
    for (int i = 0; i < rank; i++) size[i] = tn_size(o->t, i);
    return from_shape(rank, size);
}

static PyObject *get_strides(PyObject *self, void *unused)
{
    Tensor *o = (Tensor *)self;
    int64_t stride[TN_MAX_RANK];
    (void)unused;
    if (!is_open(o)) return NULL;
    int rank = tn_rank(o->t);
    for (int i = 0; i < rank; i++) stride[i] = tn_stride(o->t, i);
    return from_shape(rank, stride);
}

static PyObject *get_dtype(PyObject *self, void *unused)
{
    Tensor *o = (Tensor *)self;
    (void)unused;
    return is_open(o) ? from_dtype(tn_dtype_of(o->t)) : NULL;
}

static PyObject *get_ndim(PyObject *self, void *unused)
{
    Tensor *o = (Tensor *)self;
    (void)unused;
    return is_open(o) ? PyLong_FromLong(tn_rank(o->t)) : NULL;
}

static PyObject *tensor_numel(PyObject *self, PyObject *unused)
{
    Tensor *o = (Tensor *)self;
    (void)unused;
    return is_open(o) ? PyLong_FromLongLong(tn_count(o->t)) : NULL;
}

static PyObject *get_context(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef((PyObject *)((Tensor *)self)->owner);
}

static PyObject *get_requires_grad(PyObject *self, void *unused)
{
    Tensor *o = (Tensor *)self;
    (void)unused;
    return is_open(o) ? PyBool_FromLong(tn_needs_grad(o->t)) : NULL;
}

static PyObject *get_is_leaf(PyObject *self, void *unused)
{
    Tensor *o = (Tensor *)self;
    (void)unused;
    return is_open(o) ? PyBool_FromLong(tn_is_leaf(o->t)) : NULL;
}

static int set_requires_grad(PyObject *self, PyObject *v, void *unused)
{
    Tensor *o  = (Tensor *)self;
    int     on = v ? PyObject_IsTrue(v) : -1;
    (void)unused;
    if (on < 0 || !is_open(o)) return -1;
    site at = site_here();
    if (!tn_requires_grad_at(at.file, at.line, o->t, on)) return context_raise(o->owner), -1;
    return 0;
}

static PyObject *get_grad(PyObject *self, void *unused)
{
    Tensor *o = (Tensor *)self;
    (void)unused;
    if (!is_open(o)) return NULL;
    if (o->kept_grad) return Py_NewRef(o->kept_grad);
    if (!tn_has_grad(o->t)) Py_RETURN_NONE;
    // A view of it: the handle itself would show the next gradient after this one was cleared.
    site       at   = site_here();
    tn_tensor *grad = tn_grad_of_at(at.file, at.line, o->t);
    return tensor_wrap(o->owner, grad ? tn_detach_at(at.file, at.line, grad) : NULL);
}

// x.grad = v: the gradient's own tensor gets the value of v; an older gradient that the program has
// keeps its own.
static int write_grad(Tensor *o, PyObject *v)
{
    Tensor *g = (Tensor *)v;
    if (!PyObject_TypeCheck(v, tensor_type))
        return PyErr_Format(PyExc_TypeError, "grad is a tensor or None, not of %R", Py_TYPE(v)), -1;
    if (!is_open(g)) return -1;
    bool same = g->owner == o->owner && tn_rank(g->t) == tn_rank(o->t) &&
                tn_dtype_of(g->t) == tn_dtype_of(o->t);
    for (int i = 0; same && i < tn_rank(o->t); i++) same = tn_size(g->t, i) == tn_size(o->t, i);
    if (!same)
        return PyErr_SetString(PyExc_ValueError,
                               "grad must have the shape, the dtype and the context of its tensor"),
               -1;
    site       at   = site_here();
    tn_ctx    *cx   = o->owner->cx;
    bool       mode = tn_grad_mode(cx, false);
    tn_tensor *grad = tn_grad_of_at(at.file, at.line, o->t);
    if (grad && tn_has_grad(o->t)) tn_zero_grad_at(at.file, at.line, o->t);
    bool ok = grad && tn_assign_at(at.file, at.line, grad, g->t);
    tn_grad_mode(cx, mode);
    return ok ? 0 : (context_raise(o->owner), -1);
}

static int set_grad(PyObject *self, PyObject *v, void *unused)
{
    Tensor *o = (Tensor *)self;
    (void)unused;
    if (!is_open(o)) return -1;
    if (o->kept_grad) {
        Py_CLEAR(o->kept_grad);
        if (!v || v == Py_None) return 0;
    }
    if (v && v != Py_None) return write_grad(o, v);
    if (tn_has_grad(o->t)) tn_zero_grad(o->t);
    return 0;
}

static PyGetSetDef members[] = {
    { "shape", get_shape, NULL, "The sizes of its axes.", NULL },
    { "strides", get_strides, NULL, "How many elements apart neighbours along each axis are.",
      NULL },
    { "dtype", get_dtype, NULL, "The type of its elements.", NULL },
    { "ndim", get_ndim, NULL, "The number of axes.", NULL },
    { "context", get_context, NULL, "The context it was made on.", NULL },
    { "requires_grad", get_requires_grad, set_requires_grad,
      "Whether it is a leaf or was computed from one.", NULL },
    { "is_leaf", get_is_leaf, NULL, "Whether it was not computed from a tensor with a gradient.",
      NULL },
    { "grad", get_grad, set_grad, "The gradient of a leaf, or None.", NULL },
    { 0 },
};

// ---- reading -----------------------------------------------------------------------------------

static Py_ssize_t tensor_length(PyObject *self)
{
    Tensor *o = (Tensor *)self;
    if (!is_open(o)) return -1;
    if (!tn_rank(o->t))
        return PyErr_SetString(PyExc_TypeError, "a tensor of no axes has no length"), -1;
    return (Py_ssize_t)tn_size(o->t, 0);
}

// The text that tn_print writes, without its last line end.
static PyObject *tensor_text(PyObject *self, PyObject *unused)
{
    call      k;
    char     *text  = NULL;
    size_t    bytes = 0;
    PyObject *r     = NULL;
    (void)unused;
    if (!call_begin(&k, "print", &self, 1, NULL)) return NULL;
    FILE *f = open_memstream(&text, &bytes);
    if (f) {
        PyThreadState *s = context_let_go(k.c);
        tn_print_at(k.at.file, k.at.line, ((Tensor *)self)->t, f);
        context_take_back(k.c, s);
        fclose(f);
    }
    if (!f || !text) r = PyErr_NoMemory();
    else if (k.c->failed.code) r = context_raise(k.c);
    else
        r = PyUnicode_DecodeUTF8(
            text, (Py_ssize_t)(bytes && text[bytes - 1] == '\n' ? bytes - 1 : bytes), "replace");
    free(text);
    call_end(&k);
    return r;
}

// _keep_grad(g): from now on g is its gradient.
static PyObject *keep_grad(PyObject *self, PyObject *g)
{
    Tensor   *o   = (Tensor *)self;
    PyObject *old = o->kept_grad;
    if (!tensor_check(g)) return PyErr_SetString(PyExc_TypeError, "a gradient is a tensor"), NULL;
    o->kept_grad = Py_NewRef(g);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyMethodDef written[] = {
    { "item", tensor_item, METH_NOARGS,
      "item()\n--\n\nThe value of a tensor of one element, after waiting for it." },
    { "numel", tensor_numel, METH_NOARGS, "numel()\n--\n\nThe number of elements." },
    { "_text", tensor_text, METH_NOARGS, NULL },
    { "_keep_grad", keep_grad, METH_O, NULL },
    { 0 },
};

// ---- plain indexing: integers, slices, None, ... -----------------------------------------------

static bool is_plain(PyObject *key)
{
    return key == Py_None || key == Py_Ellipsis || PySlice_Check(key) ||
           (PyIndex_Check(key) && !PyBool_Check(key) && !tensor_check(key) &&
            !PyObject_CheckBuffer(key));
}

static bool slice_bounds(PyObject *s, int64_t *start, int64_t *stop, int64_t *step)
{
    static const char *const names[] = { "start", "stop", "step" };
    int64_t                 *out[]   = { start, stop, step };
    for (int i = 0; i < 3; i++) {
        PyObject *v = PyObject_GetAttrString(s, names[i]);
        if (!v) return false;
        bool ok = v == Py_None || to_int64(v, "a slice", out[i]);
        if (ok && v == Py_None) *out[i] = i == 2 ? 1 : INT64_MIN;
        Py_DECREF(v);
        if (!ok) return false;
    }
    if (!*step) return PyErr_SetString(PyExc_ValueError, "the step of a slice is 0"), false;
    if (*start == INT64_MIN) *start = *step > 0 ? 0 : -1;
    if (*stop == INT64_MIN) *stop = TN_TO_END;
    return true;
}

// The view of one key; *axis then is the axis that the next key is for.
static tn_tensor *take_key(call *k, tn_tensor *x, PyObject *key, int *axis, int skip)
{
    if (key == Py_None) return tn_unsqueeze_at(k->at.file, k->at.line, x, (*axis)++);
    if (key == Py_Ellipsis) return *axis += skip, x;
    int64_t start, stop, step;
    if (PySlice_Check(key)) {
        if (!slice_bounds(key, &start, &stop, &step) || !context_claim(k->c)) return NULL;
        if (!start && stop == TN_TO_END && step == 1) return (*axis)++, x;
        return tn_slice_at(k->at.file, k->at.line, x, (*axis)++, start, stop, step);
    }
    if (!to_int64(key, "an index", &start) || !context_claim(k->c)) return NULL;
    if (*axis < tn_rank(x) && (start >= tn_size(x, *axis) || start < -tn_size(x, *axis))) {
        PyErr_Format(PyExc_IndexError, "index %lld is out of range for axis %d of size %lld",
                     (long long)start, *axis, (long long)tn_size(x, *axis));
        return NULL;
    }
    return tn_select_at(k->at.file, k->at.line, x, *axis, start);
}

static PyObject *index_plainly(PyObject *self, PyObject *const *keys, int n)
{
    call       k;
    tn_tensor *x, *y;
    PyObject  *r    = NULL;
    int        used = 0, axis = 0, dots = 0;
    if (!call_begin(&k, "index", &self, 1, NULL)) return NULL;
    if (to_tensor(&k, self, "x", false, &x)) {
        for (int i = 0; i < n; i++) {
            used += keys[i] != Py_None && keys[i] != Py_Ellipsis;
            dots += keys[i] == Py_Ellipsis;
        }
        int rank = tn_rank(x);
        if (used > rank || dots > 1) {
            PyErr_Format(PyExc_IndexError,
                         dots > 1 ? "an index has one ellipsis at most"
                                  : "%d indices for a tensor of %d axes",
                         used, rank);
        } else {
            y = n ? x : tn_slice_at(k.at.file, k.at.line, x, 0, 0, TN_TO_END, 1);
            for (int i = 0; i < n && y; i++) {
                tn_tensor *next = take_key(&k, y, keys[i], &axis, rank - used);
                if (y != x && y != next) tn_drop(y);
                y = next;
            }
            if (y == x && y)
                y = rank ? tn_slice_at(k.at.file, k.at.line, x, 0, 0, TN_TO_END, 1)
                         : tn_view_at(k.at.file, k.at.line, x, 0, NULL);
            if (y || !PyErr_Occurred()) r = tensor_wrap(k.c, y);
        }
    }
    call_end(&k);
    return r;
}

static PyObject *index_module_call(const char *name, PyObject *self, PyObject *key, PyObject *value)
{
    static PyObject *m;
    if (!m) m = PyImport_ImportModule("tenon._index");
    if (!m) return NULL;
    return value ? PyObject_CallMethod(m, name, "OOO", self, key, value)
                 : PyObject_CallMethod(m, name, "OO", self, key);
}

PyObject *tensor_index(PyObject *self, PyObject *key)
{
    if (is_plain(key)) return index_plainly(self, &key, 1);
    if (PyTuple_Check(key) && PyTuple_Size(key) <= 32) {
        PyObject *keys[32];
        int       n = (int)PyTuple_Size(key), plain = 0;
        for (int i = 0; i < n; i++) plain += is_plain(keys[i] = PyTuple_GetItem(key, i));
        if (plain == n) return index_plainly(self, keys, n);
    }
    return index_module_call("get", self, key, NULL);
}

int tensor_assign_index(PyObject *self, PyObject *key, PyObject *value)
{
    if (!value)
        return PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted"), -1;
    PyObject *r = index_module_call("set", self, key, value);
    Py_XDECREF(r);
    return r ? 0 : -1;
}

// ---- the type ----------------------------------------------------------------------------------

static Py_hash_t tensor_hash(PyObject *self)
{
    return (Py_hash_t)((uintptr_t)self >> 4);
}

static PyMemberDef weak_member[] = {
    { "__weaklistoffset__", T_PYSSIZET, offsetof(Tensor, weak), READONLY, NULL }, { 0 }
};

static PyType_Slot slots[] = {
    { Py_tp_new, tensor_new },
    { Py_tp_dealloc, tensor_dealloc },
    { Py_tp_members, weak_member },
    { Py_tp_getset, members },
    { Py_tp_richcompare, compare },
    { Py_tp_hash, tensor_hash },
    { Py_nb_add, op_add },
    { Py_nb_subtract, op_sub },
    { Py_nb_multiply, op_mul },
    { Py_nb_true_divide, op_div },
    { Py_nb_floor_divide, op_floor_divide },
    { Py_nb_remainder, op_remainder },
    { Py_nb_power, op_pow },
    { Py_nb_matrix_multiply, op_matmul },
    { Py_nb_and, op_bit_and },
    { Py_nb_or, op_bit_or },
    { Py_nb_xor, op_bit_xor },
    { Py_nb_lshift, op_shl },
    { Py_nb_rshift, op_shr },
    { Py_nb_negative, op_neg },
    { Py_nb_positive, op_positive },
    { Py_nb_absolute, op_abs },
    { Py_nb_invert, op_invert },
    { Py_nb_inplace_add, op_iadd },
    { Py_nb_inplace_subtract, op_isub },
    { Py_nb_inplace_multiply, op_imul },
    { Py_nb_inplace_true_divide, op_idiv },
    { Py_nb_inplace_floor_divide, op_ifloor_divide },
    { Py_nb_inplace_remainder, op_iremainder },
    { Py_nb_inplace_power, op_ipow },
    { Py_nb_inplace_and, op_ibit_and },
    { Py_nb_inplace_or, op_ibit_or },
    { Py_nb_inplace_xor, op_ibit_xor },
    { Py_nb_inplace_lshift, op_ishl },
    { Py_nb_inplace_rshift, op_ishr },
    { Py_nb_bool, tensor_bool },
    { Py_nb_float, tensor_float },
    { Py_nb_int, tensor_int },
    { Py_nb_index, tensor_as_index },
    { Py_mp_length, tensor_length },
    { Py_mp_subscript, tensor_index },
    { Py_mp_ass_subscript, tensor_assign_index },
    { Py_bf_getbuffer, tensor_get_buffer },
    { Py_bf_releasebuffer, tensor_release_buffer },
    { Py_tp_methods, NULL },  // generated_tensor_methods, and those above
    { 0 },
};

// The methods of both tables.
static PyMethodDef *all_methods(void)
{
    size_t a = 0, b = 0;
    while (generated_tensor_methods[a].ml_name) a++;
    while (written[b].ml_name) b++;
    PyMethodDef *all = calloc(a + b + 1, sizeof *all);
    if (!all) return NULL;
    memcpy(all, generated_tensor_methods, a * sizeof *all);
    memcpy(all + a, written, b * sizeof *all);
    return all;  // as long as the type
}

int tensor_ready(PyObject *module)
{
    static PyType_Spec spec = { "tenon.Tensor", sizeof(Tensor), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots };
    for (PyType_Slot *s = slots; s->slot; s++)
        if (s->slot == Py_tp_methods && !(s->pfunc = all_methods())) return -1;
    tensor_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return tensor_type ? PyModule_AddObjectRef(module, "Tensor", (PyObject *)tensor_type) : -1;
}
