// handles.c: layers, optimizers, datasets, tokenizers, files, caches, worlds, models, reports and
// event files. An object of C is freed when nothing in Python refers to it, unless it belongs to
// another one by then (a layer to its parent).
#include "core.h"

PyTypeObject *handle_types[HANDLE_KINDS];

static const struct {
    const char *name;
    void (*end)(void *);
} kinds[] = {
    [LAYER]       = { "tenon._c.Layer", (void (*)(void *))tn_layer_free },
    [OPTIM]       = { "tenon._c.Optim", (void (*)(void *))tn_optim_free },
    [DATA]        = { "tenon._c.Data", (void (*)(void *))tn_data_free },
    [TOKENIZER]   = { "tenon._c.Tokenizer", (void (*)(void *))tn_tokenizer_free },
    [SAVED_FILE]  = { "tenon._c.File", (void (*)(void *))tn_file_free },
    [CACHE]       = { "tenon._c.Cache", (void (*)(void *))tn_cache_free },
    [DIST]        = { "tenon._c.Dist", (void (*)(void *))tn_dist_close },
    [ONNX]        = { "tenon._c.Onnx", (void (*)(void *))tn_onnx_close },
    [REPORT]      = { "tenon._c.Report", (void (*)(void *))tn_report_close },
    [TENSORBOARD] = { "tenon._c.Tensorboard", (void (*)(void *))tn_tensorboard_close },
};

static int kind_of(PyObject *o)
{
    for (int i = 0; i < HANDLE_KINDS; i++)
        if (PyObject_TypeCheck(o, handle_types[i])) return i;
    return -1;
}

static void handle_dealloc(PyObject *self)
{
    Handle       *h    = (Handle *)self;
    PyTypeObject *type = Py_TYPE(self);
    int           kind = kind_of(self);
    if (h->weak) PyObject_ClearWeakRefs(self);
    if (h->p && h->owner && !h->given) context_end(h->owner, h->p, kinds[kind].end, true);
    if (h->uses)
        context_end(h->owner, h->uses, context_release, true);  // behind it, if it has to wait
    Py_XDECREF((PyObject *)h->owner);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

PyObject *handle_wrap(Context *c, handle_kind kind, void *p)
{
    if (!p) return context_raise(c);
    Handle *h = PyObject_New(Handle, handle_types[kind]);
    if (!h) return context_end(c, p, kinds[kind].end, true), NULL;
    h->p     = p;
    h->owner = (Context *)Py_NewRef((PyObject *)c);
    h->uses  = NULL;
    h->weak  = NULL;
    h->given = false;
    return (PyObject *)h;
}

void *handle_get(PyObject *o, handle_kind kind, const char *what, Context **c)
{
    if (!PyObject_TypeCheck(o, handle_types[kind])) {
        // Objects of the package hold one of these as _handle.
        PyObject *inner = PyObject_GetAttrString(o, "_handle");
        if (!inner) PyErr_Clear();
        if (inner && PyObject_TypeCheck(inner, handle_types[kind])) {
            void *p = ((Handle *)inner)->p;
            *c      = ((Handle *)inner)->owner;
            Py_DECREF(inner);  // o still holds it
            if (p && (*c)->cx) return p;
            PyErr_Format(PyExc_ValueError, "%s is a %s of a context that was closed", what,
                         kinds[kind].name + 9);
            return NULL;
        } else {
            Py_XDECREF(inner);
            PyErr_Format(PyExc_TypeError, "%s must be a %s", what, kinds[kind].name + 9);
            return NULL;
        }
    }
    Handle *h = (Handle *)o;
    *c        = h->owner;
    if (h->p && h->owner->cx) return h->p;
    PyErr_Format(PyExc_ValueError, "%s is a %s of a context that was closed", what,
                 kinds[kind].name + 9);
    return NULL;
}

bool handle_use(PyObject *o, PyObject *used)
{
    Handle *h = (Handle *)o;
    if (!h->uses && !(h->uses = PyList_New(0))) return false;
    return PyList_Append(h->uses, used) == 0;
}

bool handle_give(PyObject *o, PyObject *to)
{
    if (!PyObject_TypeCheck(o, handle_types[LAYER]) && PySequence_Check(o)) {
        Py_ssize_t n  = PySequence_Size(o);
        bool       ok = n >= 0;
        for (Py_ssize_t i = 0; i < n && ok; i++) {
            PyObject *one = PySequence_GetItem(o, i);
            ok            = one && handle_give(one, to);
            Py_XDECREF(one);
        }
        return ok;
    }
    PyObject *inner = PyObject_TypeCheck(o, handle_types[LAYER])
                          ? Py_NewRef(o)
                          : PyObject_GetAttrString(o, "_handle");
    if (!inner) return false;
    ((Handle *)inner)->given = true;
    bool ok                  = handle_use(inner, to);
    Py_DECREF(inner);
    return ok;
}

int handles_ready(PyObject *module)
{
    static PyMemberDef members[] = {
        { "__weaklistoffset__", T_PYSSIZET, offsetof(Handle, weak), READONLY, NULL }, { 0 }
    };
    static PyType_Slot slots[] = { { Py_tp_dealloc, handle_dealloc },
                                   { Py_tp_members, members },
                                   { 0 } };
    for (int i = 0; i < HANDLE_KINDS; i++) {
        PyType_Spec spec = { kinds[i].name, sizeof(Handle), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots };
        handle_types[i]  = (PyTypeObject *)PyType_FromSpec(&spec);
        if (!handle_types[i] ||
            PyModule_AddObjectRef(module, kinds[i].name + 9, (PyObject *)handle_types[i]) < 0)
            return -1;
    }
    return 0;
}
