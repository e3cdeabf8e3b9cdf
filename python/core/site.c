// site.c: the line of the Python program that a call comes from.
//
// The interpreter decodes a line number from the start of its function, which takes 12 us in line
// 800 of one. So the answer is kept by code object and instruction, in a table without collisions
// chains: a new entry replaces an old one of its slot. File names live for ever, since nodes, plans
// and profiles keep the pointer.
#include "core.h"

#include <stdlib.h>
#include <string.h>

enum {
    SLOTS = 4096,
    FILES = 1024,
    WHOLE = -2
};  // WHOLE: an entry is about every place of its code

typedef struct {
    PyObject *code;  // counted, so that no other code object gets its address
    long      place;
    site      at;  // file NULL: of the package itself
} known_site;

static known_site table[SLOTS];
static char      *files[FILES];  // open addressing; a program with more gets "" for the rest
static PyObject  *name_lasti, *name_back, *name_filename;
static char      *package;  // the folder of the package, with a final slash
static size_t     package_length;

static const char *keep_file(const char *name)
{
    size_t h = 5381;
    for (const char *s = name; *s; s++) h = h * 33 + (unsigned char)*s;
    for (size_t i = 0; i < FILES; i++) {
        char **slot = &files[(h + i) % FILES];
        if (!*slot) *slot = strdup(name);
        if (!*slot) break;
        if (!strcmp(*slot, name)) return *slot;
    }
    return "";
}

static site find(PyFrameObject *frame, PyCodeObject *code)
{
    site        at   = { "", 0 };
    PyObject   *name = PyObject_GetAttr((PyObject *)code, name_filename);
    const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (!text) PyErr_Clear();
    else if (package && !strncmp(text, package, package_length)) at.file = NULL;
    else at = (site){ keep_file(text), PyFrame_GetLineNumber(frame) };
    Py_XDECREF(name);
    return at;
}

// The line of one frame; its file is NULL if it is of the package, of which the code object alone
// tells.
static site line_of(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    known_site   *own  = &table[((uintptr_t)code >> 4) * 31 % SLOTS];
    if (own->code == (PyObject *)code && own->place == WHOLE) {
        Py_DECREF(code);
        return own->at;
    }
    PyObject *lasti = PyObject_GetAttr((PyObject *)frame, name_lasti);
    long      place = lasti ? PyLong_AsLong(lasti) : -1;
    Py_XDECREF(lasti);
    known_site *s = &table[(((uintptr_t)code >> 4) * 31 + (uintptr_t)place) % SLOTS];
    if (s->code == (PyObject *)code && s->place == place) {
        Py_DECREF(code);
        return s->at;
    }
    site at = find(frame, code);
    if (!at.file) s = own, place = WHOLE;
    PyObject *old = s->code;
    *s            = (known_site){ (PyObject *)code, place, at };
    Py_XDECREF(old);
    return at;
}

site site_here(void)
{
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    while (frame) {
        site at = line_of(frame);
        if (at.file) {
            Py_DECREF(frame);
            return at;
        }
        PyObject *back = PyObject_GetAttr((PyObject *)frame, name_back);
        Py_DECREF(frame);
        frame = back && back != Py_None ? (PyFrameObject *)back : NULL;
        if (!frame) Py_XDECREF(back);
    }
    PyErr_Clear();
    return (site){ "", 0 };
}

// set_package(folder): frames of its files are passed over.
static PyObject *set_package(PyObject *self, PyObject *folder)
{
    (void)self;
    Py_ssize_t  n;
    const char *text = PyUnicode_AsUTF8AndSize(folder, &n);
    char       *copy = text ? strdup(text) : NULL;
    if (!copy) return text ? PyErr_NoMemory() : NULL;
    free(package);
    package        = copy;
    package_length = (size_t)n;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = { { "set_package", set_package, METH_O, NULL }, { 0 } };

int site_ready(PyObject *module)
{
    name_lasti    = PyUnicode_InternFromString("f_lasti");
    name_back     = PyUnicode_InternFromString("f_back");
    name_filename = PyUnicode_InternFromString("co_filename");
    if (!name_lasti || !name_back || !name_filename) return -1;
    return PyModule_AddFunctions(module, methods);
}
