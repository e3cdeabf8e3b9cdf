// data.c: datasets whose items a Python object makes, batches, tokens and files of tensors.
//
// The items of a Python dataset are made on the loader's thread of C, which takes the interpreter's
// lock for each of them. So nothing may wait for that thread and hold the lock: the calls that do
// are in gen.py's WAITS, and py_context.c lets go of it where a dataset ends.
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- items -------------------------------------------------------------------------------------

static bool is_list(PyObject *o)
{
    return PyList_Check(o) || PyTuple_Check(o);
}

static PyObject *member(PyObject *o, Py_ssize_t i)  // borrowed
{
    return PyList_Check(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);
}

static bool complain(const char *what, PyObject *o)
{
    PyObject *type = PyType_GetName(Py_TYPE(o));
    PyErr_Format(PyExc_TypeError, "a dataset's item: %s, not a %V", what, type, "?");
    Py_XDECREF(type);
    return false;
}

// Numbers of lists widen from bool to i64 to f32, as those of tn.tensor.
static bool describe_numbers(PyObject *o, tn_array *a, int depth)
{
    if (is_list(o)) {
        Py_ssize_t n = PySequence_Size(o);
        if (depth == TN_MAX_RANK)
            return PyErr_SetString(PyExc_ValueError, "a dataset's item: lists nested too deeply"),
                   false;
        if (depth == a->rank) a->size[a->rank++] = n;
        for (Py_ssize_t i = 0; i < n; i++)
            if (!describe_numbers(member(o, i), a, depth + 1)) return false;
        return true;
    }
    tn_dtype dt = PyBool_Check(o)    ? TN_BOOL
                  : PyFloat_Check(o) ? TN_F32
                  : PyIndex_Check(o) ? TN_I64
                                     : TN_F32;
    if (dt == TN_F32 && !PyNumber_Check(o))
        return complain("a field is a number, a list or an array", o);
    if (dt > a->dtype) a->dtype = dt;
    return true;
}

// The object with a buffer that a field is: itself, or what its __array__ returns (PyTorch's
// tensors). New; NULL without an exception if it has none.
static PyObject *buffer_of(PyObject *o)
{
    if (PyFloat_Check(o) || PyLong_Check(o) || is_list(o)) return NULL;
    if (PyObject_CheckBuffer(o)) return Py_NewRef(o);
    PyObject *array = PyObject_HasAttrString(o, "__array__")
                          ? PyObject_CallMethod(o, "__array__", NULL)
                          : NULL;
    if (array && PyObject_CheckBuffer(array)) return array;
    Py_XDECREF(array);
    return NULL;
}

static bool describe_buffer(PyObject *o, tn_array *a)
{
    Py_buffer b;
    if (PyObject_GetBuffer(o, &b, PyBUF_FULL_RO) < 0) return false;
    bool ok = b.ndim < TN_MAX_RANK && dtype_of_format(b.format, b.itemsize, &a->dtype);
    if (!ok)
        PyErr_Format(PyExc_TypeError, "a dataset's item: an array of %d axes and the format '%s'",
                     b.ndim, b.format ? b.format : "B");
    a->rank = ok ? b.ndim : 0;
    for (int i = 0; i < a->rank; i++) a->size[i] = b.shape[i];
    PyBuffer_Release(&b);
    return ok;
}

// The dtype and the shape of one field of an item.
static bool describe(PyObject *o, tn_array *a)
{
    *a               = (tn_array){ .dtype = TN_BOOL };
    PyObject *buffer = buffer_of(o);
    if (!buffer && PyErr_Occurred()) return false;
    bool ok = buffer ? describe_buffer(buffer, a) : describe_numbers(o, a, 0);
    Py_XDECREF(buffer);
    return ok;
}

static bool differs(int field, const tn_array *a)
{
    PyObject *shape = from_shape(a->rank, a->size);
    PyErr_Format(PyExc_ValueError, "field %d of this item is not %s %S as that of the first item",
                 field, tn_dtype_name(a->dtype), shape ? shape : Py_None);
    Py_XDECREF(shape);
    return false;
}

static bool write_number(PyObject *o, const tn_array *a, int field, char *to)
{
    double  d;
    int64_t i;
    if (a->dtype == TN_F32 && !is_list(o)) {
        if (!to_double(o, "a field", &d)) return false;
        float f = (float)d;
        memcpy(to, &f, sizeof f);
    } else if (a->dtype == TN_I64 && PyIndex_Check(o)) {
        if (!to_int64(o, "a field", &i)) return false;
        memcpy(to, &i, sizeof i);
    } else if (a->dtype == TN_BOOL && PyBool_Check(o)) {
        *to = o == Py_True;
    } else {
        return differs(field, a);
    }
    return true;
}

static bool write_numbers(PyObject *o, const tn_array *a, int field, int depth, char **to)
{
    if (depth == a->rank) {
        if (!write_number(o, a, field, *to)) return false;
        *to += a->dtype == TN_BOOL ? 1 : a->dtype == TN_F32 ? 4 : 8;
        return true;
    }
    if (!is_list(o) || PySequence_Size(o) != a->size[depth]) return differs(field, a);
    for (Py_ssize_t i = 0; i < a->size[depth]; i++)
        if (!write_numbers(member(o, i), a, field, depth + 1, to)) return false;
    return true;
}

static bool write_buffer(PyObject *o, const tn_array *a, int field, char *to)
{
    Py_buffer b;
    tn_dtype  dt;
    if (PyObject_GetBuffer(o, &b, PyBUF_FULL_RO) < 0) return false;
    bool same = dtype_of_format(b.format, b.itemsize, &dt) && dt == a->dtype && b.ndim == a->rank;
    for (int i = 0; i < a->rank && same; i++) same = b.shape[i] == a->size[i];
    bool ok = same ? PyBuffer_ToContiguous(to, &b, b.len, 'C') == 0 : differs(field, a);
    PyBuffer_Release(&b);
    return ok;
}

static bool write_field(PyObject *o, const tn_array *a, int field, char *to)
{
    PyObject *buffer = buffer_of(o);
    if (!buffer && PyErr_Occurred()) return false;
    bool ok = buffer ? write_buffer(buffer, a, field, to) : write_numbers(o, a, field, 0, &to);
    Py_XDECREF(buffer);
    return ok;
}

// ---- a dataset of Python -----------------------------------------------------------------------

// Batches are made two ahead, so that more exceptions than these are never waiting for their batch.
enum { KEPT = 4 };

// The object that makes the items, and what one of them is. It belongs to a capsule that every
// handle on the dataset and on its splits holds.
typedef struct {
    PyObject *get;  // get(i) returns an item
    Context  *c;    // of the dataset, which outlives this
    int       fields;
    tn_array  field[TN_MAX_FIELDS];
    struct {
        int64_t   item;
        PyObject *exception;
    } kept[KEPT];
    int next_kept;
} python_items;

static const char ITEMS[] = "tenon.items";

static void keep_exception(python_items *p, int64_t item)
{
    PyObject *value = take_exception();
    Py_XDECREF(p->kept[p->next_kept].exception);
    p->kept[p->next_kept].item      = item;
    p->kept[p->next_kept].exception = value;
    p->next_kept                    = (p->next_kept + 1) % KEPT;
}

static bool write_item(python_items *p, PyObject *item, void *const *dst)
{
    if (p->fields == 1 && !PyTuple_Check(item)) return write_field(item, &p->field[0], 0, dst[0]);
    if (!is_list(item) || PySequence_Size(item) != p->fields) {
        PyErr_Format(PyExc_ValueError, "this item does not have %d fields as the first one",
                     p->fields);
        return false;
    }
    for (int f = 0; f < p->fields; f++)
        if (!write_field(member(item, f), &p->field[f], f, dst[f])) return false;
    return true;
}

// Called on the loader's thread.
static int get_item(void *user, int64_t i, void *const *dst)
{
    python_items    *p     = user;
    PyGILState_STATE state = PyGILState_Ensure();
    context_loading        = p->c;
    PyObject *item         = PyObject_CallFunction(p->get, "L", (long long)i);
    bool      ok           = item && write_item(p, item, dst);
    Py_XDECREF(item);
    if (!ok) keep_exception(p, i);
    context_loading = NULL;
    PyGILState_Release(state);
    return ok ? 0 : 1;
}

static void free_items(PyObject *capsule)
{
    python_items *p = PyCapsule_GetPointer(capsule, ITEMS);
    for (int i = 0; i < KEPT; i++) Py_XDECREF(p->kept[i].exception);
    Py_XDECREF(p->get);
    free(p);
}

static PyObject *new_items(Context *c, PyObject *get, PyObject *sample)
{
    python_items *p = calloc(1, sizeof *p);
    if (!p) return PyErr_NoMemory();
    p->c              = c;
    p->get            = Py_NewRef(get);
    PyObject *capsule = PyCapsule_New(p, ITEMS, free_items);
    if (!capsule) return Py_DECREF(get), free(p), NULL;
    bool       several = PyTuple_Check(sample);
    Py_ssize_t n       = several ? PyTuple_Size(sample) : 1;
    bool       ok      = n >= 1 && n <= TN_MAX_FIELDS;
    if (!ok)
        PyErr_Format(PyExc_ValueError, "dataset: an item of %zd fields; 1 to %d are possible", n,
                     (int)TN_MAX_FIELDS);
    for (p->fields = 0; ok && p->fields < n; p->fields++)
        ok = describe(several ? PyTuple_GetItem(sample, p->fields) : sample, &p->field[p->fields]);
    if (!ok) Py_CLEAR(capsule);
    return capsule;
}

// dataset(get, count, sample, classes=0, class_names=(), context=None)
static PyObject *make_dataset(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *params[] = { "get", "count", "sample", "classes", "class_names", "context", NULL };
    PyObject    *get, *sample, *names = NULL, *context = NULL, *r = NULL;
    long long    count, classes = 0;
    call         k;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "OLO|LOO", params, &get, &count, &sample, &classes,
                                     &names, &context))
        return NULL;
    if (!call_begin(&k, "dataset", NULL, 0, context)) return NULL;
    PyObject          *capsule = new_items(k.c, get, sample);
    int                n       = 0;
    const char *const *list    = NULL;
    if (capsule &&
        (!names || names == Py_None || to_texts(&k, names, "dataset: class_names", &n, &list))) {
        python_items  *p   = PyCapsule_GetPointer(capsule, ITEMS);
        tn_dataset_def def = { .count       = count,
                               .fields      = p->fields,
                               .user        = p,
                               .get         = get_item,
                               .classes     = n ? n : classes,
                               .class_names = n ? list : NULL };
        memcpy(def.field, p->field, sizeof def.field);
        r = handle_wrap(k.c, DATA, tn_dataset_at(k.at.file, k.at.line, k.c->cx, def));
        if (r && !handle_use(r, capsule)) Py_CLEAR(r);
    }
    Py_XDECREF(capsule);
    call_end(&k);
    return r;
}

// The items of a dataset, or of the one that it was split from; NULL if they are not Python's.
static python_items *items_of(PyObject *o)
{
    PyObject  *uses = PyObject_TypeCheck(o, handle_types[DATA]) ? ((Handle *)o)->uses : NULL;
    Py_ssize_t n    = uses ? PyList_Size(uses) : 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *used = PyList_GetItem(uses, i);
        if (PyCapsule_IsValid(used, ITEMS)) return PyCapsule_GetPointer(used, ITEMS);
        python_items *p = items_of(used);
        if (p) return p;
    }
    return NULL;
}

// Raises the error of tn_next: for an item whose function has raised an exception that one, with a
// note of the item.
static PyObject *raise_of_item(PyObject *o, Context *c)
{
    python_items *p = items_of(o);
    long long     item;
    if (!p || c->failed.code != TN_EUSER || !c->failed.text ||
        sscanf(c->failed.text, "next: item %lld:", &item) != 1)
        return context_raise(c);
    PyObject *e = NULL;
    for (int i = 0; i < KEPT; i++)
        if (!e && p->kept[i].exception && p->kept[i].item == item) {
            e                    = p->kept[i].exception;
            p->kept[i].exception = NULL;
        }
    if (!e) return context_raise(c);
    PyObject *note = PyUnicode_FromFormat("in item %lld of the dataset", item);
    PyObject *r    = note ? PyObject_CallMethod(e, "add_note", "O", note) : NULL;
    if (!r) PyErr_Clear();  // the exception matters more than its note
    Py_XDECREF(note);
    Py_XDECREF(r);
    return context_raise_itself(c, e);
}

// ---- batches -----------------------------------------------------------------------------------

static tn_tensor *field_of(const tn_batch *b, int i)
{
    return i == 0 ? b->x : i == 1 ? b->y : b->more[i - 2];
}

static PyObject *from_batch(Context *c, const tn_batch *b)
{
    int n = 0;
    while (n < TN_MAX_FIELDS && field_of(b, n)) n++;
    PyObject *fields = PyTuple_New(n);
    for (int i = 0; i < n; i++) {
        PyObject *x = fields ? tensor_wrap(c, field_of(b, i)) : NULL;
        if (!fields) {
            tn_drop(field_of(b, i));
        } else if (!x) {
            for (int j = i + 1; j < n; j++) tn_drop(field_of(b, j));
            return Py_DECREF(fields), NULL;
        } else {
            PyTuple_SetItem(fields, i, x);
        }
    }
    if (!fields) return NULL;
    return Py_BuildValue("(NLLLOd)", fields, (long long)b->count, (long long)b->epoch,
                         (long long)b->index, b->last ? Py_True : Py_False, b->weight);
}

// next(data, n): ((x, y, ...), count, epoch, index, last, weight)
static PyObject *next_batch(PyObject *self, PyObject *args)
{
    PyObject *data, *r = NULL;
    long long n;
    call      k;
    void     *d;
    (void)self;
    if (!PyArg_ParseTuple(args, "OL", &data, &n)) return NULL;
    if (!call_begin(&k, "next", &data, 1, NULL)) return NULL;
    if (to_handle(&k, data, DATA, "next: data", false, &d)) {
        PyThreadState *state = context_let_go(k.c);
        tn_batch       b     = tn_next_at(k.at.file, k.at.line, d, n);
        context_take_back(k.c, state);
        r = b.x ? from_batch(k.c, &b) : raise_of_item(data, k.c);
    }
    call_end(&k);
    return r;
}

// data_info(data): (count, ((dtype, shape), ...), classes, skipped)
static PyObject *data_info(PyObject *self, PyObject *data)
{
    Context *c;
    (void)self;
    tn_data *d = handle_get(data, DATA, "data_info: data", &c);
    if (!d) return NULL;
    tn_data_desc info   = tn_data_info(d);
    PyObject    *fields = PyTuple_New(info.fields);
    for (int i = 0; i < info.fields && fields; i++) {
        PyObject *f = Py_BuildValue("(NN)", from_dtype(info.field[i].dtype),
                                    from_shape(info.field[i].rank, info.field[i].size));
        if (f) PyTuple_SetItem(fields, i, f);
        else Py_CLEAR(fields);
    }
    if (!fields) return NULL;
    return Py_BuildValue("(LNLL)", (long long)info.count, fields, (long long)info.classes,
                         (long long)info.skipped);
}

// ---- tokens ------------------------------------------------------------------------------------

// tokenizer_encode(tokenizer, text, add_special=False, plain=False): a list of numbers. The text is
// a str or bytes.
static PyObject *encode(PyObject *self, PyObject *args)
{
    PyObject   *o, *r = NULL;
    const char *text;
    Py_ssize_t  bytes;
    int         add_special = 0, plain = 0;
    call        k;
    void       *t;
    (void)self;
    if (!PyArg_ParseTuple(args, "Os#|pp", &o, &text, &bytes, &add_special, &plain)) return NULL;
    if (!call_begin(&k, "tokenizer_encode", &o, 1, NULL)) return NULL;
    // Most tokenizers make no more tokens than there are bytes. The text is encoded again if there
    // are more.
    for (int64_t room = bytes + 16, n = room + 1; !r && n >= 0 && !PyErr_Occurred(); room = n) {
        int64_t *ids = malloc(sizeof *ids * (size_t)room);
        if (!to_handle(&k, o, TOKENIZER, "tokenizer_encode: tokenizer", false, &t)) {
            free(ids);
            break;
        }
        if (!ids) {
            PyErr_NoMemory();
            break;
        }
        PyThreadState *state = context_let_go(k.c);
        n = tn_tokenizer_encode_with_at(k.at.file, k.at.line, t, text, bytes, ids, room,
                                        (tn_encode_opts){ .add_special = add_special,
                                                          .plain       = plain });
        context_take_back(k.c, state);
        if (n < 0) context_raise(k.c);
        if (n >= 0 && n <= room) r = PyList_New(n);
        for (int64_t i = 0; i < n && r; i++) {
            PyObject *id = PyLong_FromLongLong(ids[i]);
            if (!id || PyList_SetItem(r, i, id) < 0) Py_CLEAR(r);
        }
        free(ids);
    }
    call_end(&k);
    return r;
}

// tokenizer_decode(tokenizer, ids): bytes
static PyObject *decode(PyObject *self, PyObject *args)
{
    PyObject      *o, *list, *r = NULL;
    call           k;
    void          *t;
    int            n;
    const int64_t *ids;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &o, &list)) return NULL;
    if (!call_begin(&k, "tokenizer_decode", &o, 1, NULL)) return NULL;
    if (to_handle(&k, o, TOKENIZER, "tokenizer_decode: tokenizer", false, &t) &&
        to_int64s(&k, list, "tokenizer_decode: ids", &n, &ids)) {
        int64_t bytes = tn_tokenizer_decode_at(k.at.file, k.at.line, t, ids, n, NULL, 0);
        r             = bytes < 0 ? context_raise(k.c) : PyBytes_FromStringAndSize(NULL, bytes);
        if (r) tn_tokenizer_decode_at(k.at.file, k.at.line, t, ids, n, PyBytes_AsString(r), bytes);
    }
    call_end(&k);
    return r;
}

// tokenizer_stream(tokenizer, state, id): what the token adds to the text. state is a bytearray, at
// first of stream_bytes zeros.
static PyObject *stream(PyObject *self, PyObject *args)
{
    PyObject       *o, *memory, *r = NULL;
    long long       id;
    call            k;
    void           *t;
    tn_token_stream s;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOL", &o, &memory, &id)) return NULL;
    if (!PyByteArray_Check(memory) || PyByteArray_Size(memory) != (Py_ssize_t)sizeof s)
        return PyErr_SetString(PyExc_TypeError,
                               "tokenizer_stream: state must be a bytearray of stream_bytes"),
               NULL;
    if (!call_begin(&k, "tokenizer_stream", &o, 1, NULL)) return NULL;
    if (to_handle(&k, o, TOKENIZER, "tokenizer_stream: tokenizer", false, &t)) {
        int64_t room = tn_tokenizer_longest(t);
        char   *text = call_memory(&k, (size_t)room);
        memcpy(&s, PyByteArray_AsString(memory), sizeof s);
        int64_t n = text ? tn_tokenizer_stream_at(k.at.file, k.at.line, t, &s, id, text, room) : -1;
        if (n >= 0) {
            memcpy(PyByteArray_AsString(memory), &s, sizeof s);
            r = PyUnicode_DecodeUTF8(text, n, "replace");
        } else if (text) {
            context_raise(k.c);
        }
    }
    call_end(&k);
    return r;
}

// tokenizer_token(tokenizer, id): as its file spells it, or None.
static PyObject *token(PyObject *self, PyObject *args)
{
    PyObject *o, *r = NULL;
    long long id;
    call      k;
    void     *t;
    (void)self;
    if (!PyArg_ParseTuple(args, "OL", &o, &id)) return NULL;
    if (!call_begin(&k, "tokenizer_token", &o, 1, NULL)) return NULL;
    if (to_handle(&k, o, TOKENIZER, "tokenizer_token: tokenizer", false, &t)) {
        const char *text = tn_tokenizer_token_at(k.at.file, k.at.line, t, id);
        r                = k.c->failed.code ? context_raise(k.c) : from_text(text);
    }
    call_end(&k);
    return r;
}

// ---- files -------------------------------------------------------------------------------------

// file_info(file, i): (name, dtype, shape, bytes), or None after the last
static PyObject *file_info(PyObject *self, PyObject *args)
{
    PyObject *o;
    int       i;
    Context  *c;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oi", &o, &i)) return NULL;
    tn_file *f = handle_get(o, SAVED_FILE, "file_info: file", &c);
    if (!f) return NULL;
    tn_file_desc d = tn_file_info(f, i);
    if (!d.name) Py_RETURN_NONE;
    return Py_BuildValue("(NNNL)", from_text(d.name), from_text(d.dtype),
                         from_shape(d.rank, d.size), (long long)d.bytes);
}

static PyObject *file_meta_key(PyObject *self, PyObject *args)
{
    PyObject *o;
    int       i;
    Context  *c;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oi", &o, &i)) return NULL;
    tn_file *f = handle_get(o, SAVED_FILE, "file_meta_key: file", &c);
    return f ? from_text(tn_file_meta_key(f, i)) : NULL;
}

// file_write(path, names, tensors, meta, context=None): meta is a sequence of key, value, key,
// value, ...
static PyObject *file_write(PyObject *self, PyObject *args)
{
    PyObject          *path, *names, *tensors, *meta, *context = NULL, *r = NULL;
    call               k;
    const char        *to;
    int                n, n_names, n_meta;
    const char *const *name, *const *pairs;
    tn_tensor *const *t;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO|O", &path, &names, &tensors, &meta, &context)) return NULL;
    if (!call_begin(&k, "file_write", &tensors, 1, context)) return NULL;
    if (to_text(&k, path, "file_write: path", false, &to) &&
        to_texts(&k, names, "file_write: names", &n_names, &name) &&
        to_tensors(&k, tensors, "file_write: tensors", &n, &t) &&
        to_texts(&k, meta, "file_write: meta", &n_meta, &pairs)) {
        if (n != n_names || n_meta % 2) {
            PyErr_SetString(PyExc_ValueError,
                            "file_write: as many names as tensors, and metadata in pairs");
        } else {
            PyThreadState *state = context_let_go(k.c);
            tn_status      s     = tn_file_write_at(k.at.file, k.at.line, k.c->cx, to, n, name, t,
                                                    n_meta / 2, pairs);
            context_take_back(k.c, state);
            r = context_status(k.c, s);
        }
    }
    call_end(&k);
    return r;
}

int data_ready(PyObject *module)
{
    static PyMethodDef methods[] = {
        { "dataset", (PyCFunction)(void (*)(void))make_dataset, METH_VARARGS | METH_KEYWORDS,
          NULL },
        { "next", next_batch, METH_VARARGS, NULL },
        { "data_info", data_info, METH_O, NULL },
        { "tokenizer_encode", encode, METH_VARARGS, NULL },
        { "tokenizer_decode", decode, METH_VARARGS, NULL },
        { "tokenizer_stream", stream, METH_VARARGS, NULL },
        { "tokenizer_token", token, METH_VARARGS, NULL },
        { "file_info", file_info, METH_VARARGS, NULL },
        { "file_meta_key", file_meta_key, METH_VARARGS, NULL },
        { "file_write", file_write, METH_VARARGS, NULL },
        { 0 },
    };
    if (PyModule_AddIntConstant(module, "stream_bytes", sizeof(tn_token_stream)) < 0) return -1;
    return PyModule_AddFunctions(module, methods);
}
