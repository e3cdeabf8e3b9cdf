// inspect.c: the texts of explain, doctor and of two runs, the devices, and the tool, which `python
// -m tenon` runs.
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What a function of C prints: open, print, close. The stream grows in memory.
typedef struct {
    FILE  *f;
    char  *text;
    size_t bytes;
} printed;

static bool print_begin(printed *p)
{
    *p   = (printed){ 0 };
    p->f = open_memstream(&p->text, &p->bytes);
    if (!p->f) PyErr_NoMemory();
    return p->f != NULL;
}

// The text; failed: only frees it.
static PyObject *print_end(printed *p, bool failed)
{
    bool      whole = fclose(p->f) == 0 && p->text;
    PyObject *r     = NULL;
    if (!failed)
        r = whole ? PyUnicode_DecodeUTF8(p->text, (Py_ssize_t)p->bytes, "replace")
                  : PyErr_NoMemory();
    free(p->text);
    return r;
}

// explain(source=False, stored=False, html=False, context=None): a str
static PyObject *explain(PyObject *self, PyObject *args, PyObject *kw)
{
    static char *params[] = { "source", "stored", "html", "context", NULL };
    int          source = 0, stored = 0, html = 0;
    PyObject    *context = NULL, *r = NULL;
    call         k;
    printed      p;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|pppO", params, &source, &stored, &html, &context))
        return NULL;
    if (!call_begin(&k, "explain", NULL, 0, context)) return NULL;
    if (print_begin(&p)) {
        PyThreadState *state = context_let_go(k.c);
        tn_status      s     = tn_explain_with_at(k.at.file, k.at.line, k.c->cx, p.f,
                                                  (tn_explain_opts){
                                                      .source = source, .stored = stored, .html = html });
        context_take_back(k.c, state);
        r = print_end(&p, s != TN_OK);
        if (s) context_raise(k.c);
    }
    call_end(&k);
    return r;
}

// image_print(x, columns, padding, lo, hi, style, width): a str
static PyObject *image_print(PyObject *self, PyObject *args)
{
    long long          columns, padding;
    PyObject          *x, *r = NULL;
    int                style;
    call               k;
    printed            p;
    tn_tensor         *t;
    tn_image_show_opts o = { 0 };
    (void)self;
    if (!PyArg_ParseTuple(args, "OLLddii", &x, &columns, &padding, &o.lo, &o.hi, &style, &o.width))
        return NULL;
    o.columns = columns;
    o.padding = padding;
    o.style   = (tn_image_style)style;
    if (!call_begin(&k, "image_print", &x, 1, NULL)) return NULL;
    if (to_tensor(&k, x, "image_print: x", false, &t) && print_begin(&p)) {
        PyThreadState *state = context_let_go(k.c);
        tn_status      s     = tn_image_print_with_at(k.at.file, k.at.line, t, p.f, o);
        context_take_back(k.c, state);
        r = print_end(&p, s != TN_OK);
        if (s) context_raise(k.c);
    }
    call_end(&k);
    return r;
}

// report_confusion(report, counts, names): counts row by row; names may be None
static PyObject *report_confusion(PyObject *self, PyObject *args)
{
    PyObject          *o, *counts, *names, *r = NULL;
    call               k;
    void              *p;
    int                n, named;
    const int64_t     *v;
    const char *const *name    = NULL;
    int64_t            classes = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &o, &counts, &names)) return NULL;
    if (!call_begin(&k, "report_confusion", &o, 1, NULL)) return NULL;
    if (to_handle(&k, o, REPORT, "report_confusion: report", false, &p) &&
        to_int64s(&k, counts, "report_confusion: counts", &n, &v) &&
        (names == Py_None || to_texts(&k, names, "report_confusion: names", &named, &name)) &&
        context_claim(k.c)) {
        while (classes * classes < n) classes++;
        if (classes * classes != n || (name && named != classes))
            PyErr_SetString(PyExc_ValueError,
                            "report_confusion(): counts is a square, with a name for each row");
        else
            r = context_status(k.c,
                               tn_report_confusion_at(k.at.file, k.at.line, p, classes, v, name));
    }
    call_end(&k);
    return r;
}

// report_compare(a, b, path): a str; path may be None
static PyObject *report_compare(PyObject *self, PyObject *args)
{
    PyObject   *both[2], *path, *r = NULL;
    call        k;
    void       *a, *b;
    const char *to;
    printed     p;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO", &both[0], &both[1], &path)) return NULL;
    if (!call_begin(&k, "report_compare", both, 2, NULL)) return NULL;
    if (to_handle(&k, both[0], REPORT, "report_compare: a", false, &a) &&
        to_handle(&k, both[1], REPORT, "report_compare: b", false, &b) &&
        to_text(&k, path, "report_compare: path", true, &to) && context_claim(k.c) &&
        print_begin(&p)) {
        PyThreadState *state = context_let_go(k.c);
        tn_status      s     = tn_report_compare_at(k.at.file, k.at.line, a, b, to, p.f);
        context_take_back(k.c, state);
        r = print_end(&p, s != TN_OK);
        if (s) context_raise(k.c);
    }
    call_end(&k);
    return r;
}

static PyObject *doctor(PyObject *self, PyObject *unused)
{
    printed p;
    (void)self, (void)unused;
    if (!print_begin(&p)) return NULL;
    PyThreadState *state = PyEval_SaveThread();  // it looks for devices and libraries
    tn_doctor(p.f);
    PyEval_RestoreThread(state);
    return print_end(&p, false);
}

// device_info(i): (name, available, detail), or None after the last
static PyObject *device_info(PyObject *self, PyObject *number)
{
    int i;
    (void)self;
    if (!to_int(number, "device_info: i", &i)) return NULL;
    tn_device_desc d     = { 0 };
    PyThreadState *state = PyEval_SaveThread();
    if (i >= 0) d = tn_device_info(i);
    PyEval_RestoreThread(state);
    if (!d.name) Py_RETURN_NONE;
    return Py_BuildValue("(NON)", from_text(d.name), d.available ? Py_True : Py_False,
                         from_text(d.detail));
}

// The main function of cli/main.c.
int tenon_tool(int argc, char **argv);

// tool(words): the exit status of the tool. The first word is how it was called.
static PyObject *tool(PyObject *self, PyObject *words)
{
    PyObject *list = PySequence_Tuple(words);
    int       n    = list ? (int)PyTuple_Size(list) : 0;
    // The tool may put other words into its list; those of the second half are freed.
    char **argv  = list ? calloc(2 * (size_t)n + 1, sizeof *argv) : NULL,
         **made  = argv ? argv + n + 1 : NULL;
    bool      ok = argv != NULL;
    PyObject *r  = NULL;
    (void)self;
    if (list && !argv) PyErr_NoMemory();
    for (int i = 0; i < n && ok; i++) {
        PyObject *word = PyUnicode_EncodeFSDefault(PyTuple_GetItem(list, i));
        made[i]        = word ? strdup(PyBytes_AsString(word)) : NULL;
        ok             = made[i] != NULL;
        argv[i]        = made[i];
        if (word && !ok) PyErr_NoMemory();
        Py_XDECREF(word);
    }
    if (ok) {
        PyThreadState *state  = PyEval_SaveThread();
        int            status = tenon_tool(n, argv);
        PyEval_RestoreThread(state);
        r = PyLong_FromLong(status);
    }
    for (int i = 0; i < n && argv; i++) free(made[i]);
    free(argv);
    Py_XDECREF(list);
    return r;
}

int inspect_ready(PyObject *module)
{
    static PyMethodDef methods[] = {
        { "image_print", image_print, METH_VARARGS, NULL },
        { "explain", (PyCFunction)(void (*)(void))explain, METH_VARARGS | METH_KEYWORDS, NULL },
        { "report_confusion", report_confusion, METH_VARARGS, NULL },
        { "report_compare", report_compare, METH_VARARGS, NULL },
        { "doctor", doctor, METH_NOARGS, NULL },
        { "device_info", device_info, METH_O, NULL },
        { "tool", tool, METH_O, NULL },
        { 0 },
    };
    return PyModule_AddFunctions(module, methods);
}
