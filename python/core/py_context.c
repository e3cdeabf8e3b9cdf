// py_context.c: the context type, the thread that owns a context, and errors as exceptions.
#include "core.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

PyTypeObject *context_type;

static Context **contexts;  // every context that is open
static int       n_contexts;
// Of each thread: the contexts it has entered by `with`, the innermost last, and its modes.
static _Thread_local Context *entered[64];
static _Thread_local int      n_entered;
static _Thread_local bool     grad_off;
static _Thread_local tn_dtype cast_to = TN_F32;
static Context               *default_context;

_Thread_local Context *context_loading;

// ---- errors ------------------------------------------------------------------------------------

static PyObject *errors_module(void)
{
    static PyObject *m;
    if (!m) m = PyImport_ImportModule("tenon._errors");
    return m;
}

// Raises what tenon._errors.make makes of a fault.
static PyObject *raise(tn_status code, const char *text, const char *file, int line,
                       const char *layer, PyObject *cause)
{
    PyObject *m = errors_module();
    if (!m) return NULL;
    PyObject *e = PyObject_CallMethod(m, "make", "sssisO", tn_status_name(code), text ? text : "",
                                      file ? file : "", line, layer ? layer : "",
                                      cause ? cause : Py_None);
    if (e) PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_XDECREF(e);
    return NULL;
}

// Keeps the first error of a call until the call has returned. It is called inside of it, perhaps
// without the interpreter's lock, and touches no object of Python.
static void on_error(tn_ctx *cx, const tn_fault *f, void *user)
{
    Context *c = user;
    (void)cx;
    free(c->failed.text);
    free(c->failed.layer);
    c->failed = (fault){ .code  = f->code,
                         .text  = strdup(f->text),
                         .layer = f->layer && *f->layer ? strdup(f->layer) : NULL,
                         .file  = f->file,
                         .line  = f->line };
}

static void on_warning(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)user;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject        *m     = errors_module();
    PyObject *r = m ? PyObject_CallMethod(m, "warn", "ssi", f->text, f->file, f->line) : NULL;
    if (!r)
        PyErr_WriteUnraisable(
            NULL);  // also a warning that was made an error: the call has succeeded
    Py_XDECREF(r);
    PyGILState_Release(state);
}

// Runs the handlers of signals that have arrived, as the interpreter does between two instructions.
// An evaluation asks for it, on any thread; on others than the main thread there is nothing to run.
// What a handler raises, such as KeyboardInterrupt, stops the evaluation.
static bool on_signals(void *user)
{
    PyGILState_STATE state = PyGILState_Ensure();
    bool             stops = PyErr_CheckSignals() < 0;
    if (stops) context_keep_exception(user);
    PyGILState_Release(state);
    return stops;
}

// For what is no Exception (KeyboardInterrupt, SystemExit), and for the exceptions of datasets and
// of handlers of signals.
PyObject *context_raise_itself(Context *c, PyObject *e)
{
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
    free(c->failed.text);
    free(c->failed.layer);
    c->failed = (fault){ 0 };
    if (c->cx) tn_error_clear(c->cx);
    return NULL;
}

PyObject *context_raise(Context *c)
{
    PyObject *cause = c->raised;
    c->raised       = NULL;
    if (cause &&
        (c->failed.code == TN_ESTOP || !PyObject_TypeCheck(cause, (PyTypeObject *)PyExc_Exception)))
        return context_raise_itself(c, cause);
    fault f   = c->failed;
    c->failed = (fault){ 0 };
    if (!f.code) {  // no handler ran: an error that belongs to no context
        tn_status     code = c->cx ? tn_error(c->cx) : TN_OK;
        const tn_ctx *from = code ? c->cx : NULL;
        raise(tn_error(from), tn_error_text(from), NULL, 0, NULL, cause);
    } else {
        raise(f.code, f.text, f.file, f.line, f.layer, cause);
    }
    free(f.text);
    free(f.layer);
    Py_XDECREF(cause);
    if (c->cx) tn_error_clear(c->cx);
    tn_error_clear(NULL);
    return NULL;
}

PyObject *raise_thread_error(void)
{
    raise(tn_error(NULL), tn_error_text(NULL), NULL, 0, NULL, NULL);
    tn_error_clear(NULL);
    return NULL;
}

PyObject *context_status(Context *c, tn_status s)
{
    if (s) return context_raise(c);
    Py_RETURN_NONE;
}

PyObject *take_exception(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value && trace) PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
}

void context_keep_exception(Context *c)
{
    PyObject *value = take_exception();
    if (c->raised) Py_XDECREF(value);  // the first one is the cause of the others
    else c->raised = value;
}

// ---- owners ------------------------------------------------------------------------------------

void context_release(void *object)
{
    Py_DECREF((PyObject *)object);
}

// Ends a thing. A dataset waits for its loader's thread, which may wait for the interpreter's lock:
// other threads run meanwhile, and may claim the context behind it.
static void end_thing(Context *c, void *thing, void (*end)(void *))
{
    if (end != (void (*)(void *))tn_data_free) {
        end(thing);
        return;
    }
    unsigned long  me    = PyThread_get_thread_ident();
    PyThreadState *state = context_let_go(c);
    end(thing);
    context_take_back(c, state);
    if (c->cx && c->owner != me && tn_ctx_take(c->cx) == TN_OK) c->owner = me;
}

// Ends what has died meanwhile, the first first.
static void end_dead(Context *c)
{
    pthread_mutex_lock(&c->mutex);
    dead_thing *d = NULL;
    while (c->dead) {
        dead_thing *newest = c->dead;
        c->dead            = newest->next;
        newest->next       = d;
        d                  = newest;
    }
    pthread_mutex_unlock(&c->mutex);
    while (d) {
        dead_thing *next = d->next;
        if (c->cx || d->end == context_release) end_thing(c, d->thing, d->end);
        free(d);
        d = next;
    }
}

// The modes of autograd are the thread's, as in PyTorch. A context has those of the thread that
// used it last.
static void set_modes(Context *c)
{
    if (c->grad_off != grad_off) tn_grad_mode(c->cx, !grad_off);
    if (c->cast_to != cast_to) tn_autocast(c->cx, cast_to);
    c->grad_off = grad_off;
    c->cast_to  = cast_to;
}

// Lets a thread that waits for the context have its turn. The owner gives way once for each turn:
// after a call it would otherwise begin the next one before the other thread has woken up.
static void give_way(Context *c)
{
    struct timespec moment = { .tv_nsec = 50000 };
    c->gave_way            = true;
    PyThreadState *state   = PyEval_SaveThread();
    nanosleep(&moment, NULL);
    PyEval_RestoreThread(state);
}

bool context_claim(Context *c)
{
    unsigned long me = PyThread_get_thread_ident();
    c->claims++;
    if (!c->cx) {
        raise(
            TN_EARG,
            c->is_lost
                ? "the context belongs to the parent process: a child of a fork cannot use its tensors; "
                  "make them in the child, or use the start method \"spawn\""
                : "the context is closed",
            NULL, 0, NULL, NULL);
        return false;
    }
    if (context_loading == c) {
        raise(
            TN_ETHREAD,
            "the thread that makes the items of a dataset cannot use tensors; return them as a part of the "
            "item, or pass collate_fn: then items are made where the batch is asked for",
            NULL, 0, NULL, NULL);
        return false;
    }
    if (c->waiting && !c->gave_way && !c->is_running && c->owner == me) give_way(c);
    while (c->is_running && c->owner != me) {
        c->waiting++;
        PyThreadState *state = PyEval_SaveThread();
        PyThread_acquire_lock(c->running, WAIT_LOCK);
        PyThread_release_lock(c->running);
        PyEval_RestoreThread(state);
        c->waiting--;
        c->gave_way = false;
    }
    if (!c->cx) return context_claim(c);
    if (c->owner != me) {
        if (tn_ctx_take(c->cx) != TN_OK) return raise_thread_error(), false;
        c->owner = me;
    }
    if (c->dead && !c->is_running) end_dead(c);
    if (c->grad_off != grad_off || c->cast_to != cast_to) set_modes(c);
    return true;
}

PyThreadState *context_let_go(Context *c)
{
    if (c->is_running) {  // a call inside a callback of another one, which holds `running` for it
        c->inner++;
        return PyEval_SaveThread();
    }
    PyThread_acquire_lock(c->running, WAIT_LOCK);
    c->is_running = true;
    return PyEval_SaveThread();
}

void context_take_back(Context *c, PyThreadState *state)
{
    if (!state) return;
    PyEval_RestoreThread(state);
    if (c->inner) {
        c->inner--;
        return;
    }
    c->is_running = false;
    PyThread_release_lock(c->running);
}

bool context_hold(Context *c)
{
    if (!c || c->is_running) return false;
    PyThread_acquire_lock(c->running, WAIT_LOCK);
    return c->is_running = true;
}

void context_unhold(Context *c, bool held)
{
    if (!held) return;
    c->is_running = false;
    PyThread_release_lock(c->running);
}

static void push_dead(Context *c, void *thing, void (*end)(void *))
{
    dead_thing *d = malloc(sizeof *d);
    if (!d) return;
    pthread_mutex_lock(&c->mutex);
    *d      = (dead_thing){ c->dead, thing, end };
    c->dead = d;
    pthread_mutex_unlock(&c->mutex);
}

void context_end(Context *c, void *thing, void (*end)(void *thing), bool held)
{
    if (!held || (c->cx && c->is_running)) {
        push_dead(c, thing, end);
        return;
    }
    if (!c->cx) {  // it died with its context
        if (end == context_release) end(thing);
        return;
    }
    unsigned long me = PyThread_get_thread_ident();
    if (c->owner != me) {
        if (tn_ctx_take(c->cx) != TN_OK) return;
        c->owner = me;
    }
    end_thing(c, thing, end);
}

// ---- the type ----------------------------------------------------------------------------------

static bool remember(Context *c)
{
    Context **more = realloc(contexts, sizeof *more * (size_t)(n_contexts + 1));
    if (!more) return PyErr_NoMemory(), false;
    contexts               = more;
    contexts[n_contexts++] = c;
    return true;
}

static void forget(Context *c)
{
    for (int i = 0; i < n_contexts; i++)
        if (contexts[i] == c) {
            contexts[i] = contexts[--n_contexts];
            return;
        }
}

Context *context_find(const tn_ctx *cx)
{
    for (int i = 0; i < n_contexts; i++)
        if (contexts[i]->cx == cx) return contexts[i];
    return NULL;
}

Context *context_running(void)
{
    unsigned long me    = PyThread_get_thread_ident();
    Context      *owned = NULL;
    for (int i = 0; i < n_contexts; i++) {
        if (contexts[i]->owner != me) continue;
        if (contexts[i]->is_running) return contexts[i];
        owned = contexts[i];
    }
    return owned;
}

// Contexts that were closed while others still read their memory (tn_to_dlpack): they are freed
// when nobody does.
static tn_ctx **read_by_others;
static int      n_read_by_others;

static void close_or_defer(tn_ctx *cx)
{
    if (tn_ctx_stats(cx).exported) {
        tn_ctx **more = realloc(read_by_others, sizeof *more * (size_t)(n_read_by_others + 1));
        if (!more) return;  // it stays open
        read_by_others                     = more;
        read_by_others[n_read_by_others++] = cx;
        return;
    }
    PyThreadState *state = PyEval_SaveThread();  // for the loaders of its datasets
    tn_close(cx);
    PyEval_RestoreThread(state);
}

static void close_deferred(void)
{
    int n            = n_read_by_others;
    n_read_by_others = 0;
    for (int i = 0; i < n; i++) {
        tn_ctx *cx = read_by_others[i];
        tn_ctx_take(cx);
        close_or_defer(cx);
    }
}

static void close_context(Context *c)
{
    tn_ctx *cx = c->cx;
    if (!cx) return;
    forget(c);
    if (c->owner != PyThread_get_thread_ident()) tn_ctx_take(cx);
    tn_on_error(cx, NULL,
                NULL);  // the object that the handlers use may die before the context does
    tn_on_warning(cx, NULL, NULL);
    tn_stop_when(cx, NULL, NULL);
    c->cx = NULL;
    if (n_read_by_others) close_deferred();
    close_or_defer(cx);
    end_dead(c);
}

static Context *open_context(const char *device, uint64_t seed, int threads, int64_t mem_limit,
                             void *stream)
{
    Context *c = PyObject_New(Context, context_type);
    if (!c) return NULL;
    PyObject *self = (PyObject *)c;
    memset((char *)c + sizeof(PyObject), 0, sizeof *c - sizeof(PyObject));
    c->cast_to = TN_F32;
    pthread_mutex_init(&c->mutex, NULL);
    c->running = PyThread_allocate_lock();
    if (!c->running) return PyErr_NoMemory(), Py_DECREF(self), NULL;
    tn_open_opts   o     = { .device    = device,
                             .handler   = on_error,
                             .user      = c,
                             .seed      = seed,
                             .threads   = threads,
                             .mem_limit = mem_limit,
                             .stream    = stream };
    PyThreadState *state = PyEval_SaveThread();
    c->cx                = tn_open_with(o);
    PyEval_RestoreThread(state);
    if (!c->cx) return raise_thread_error(), Py_DECREF(self), NULL;
    tn_on_warning(c->cx, on_warning, c);
    tn_stop_when(c->cx, on_signals, c);
    c->owner = PyThread_get_thread_ident();
    if (!remember(c)) return Py_DECREF(self), NULL;
    return c;
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    static char       *names[] = { "device", "seed", "threads", "mem_limit", "stream", NULL };
    const char        *device  = NULL;
    int                threads = 0;
    unsigned long long seed = 0, stream = 0;
    long long          limit = 0;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|z$KiLK", names, &device, &seed, &threads, &limit,
                                     &stream))
        return NULL;
    return (PyObject *)open_context(device, seed, threads, limit, (void *)(uintptr_t)stream);
}

static void context_dealloc(PyObject *self)
{
    Context      *c    = (Context *)self;
    PyTypeObject *type = Py_TYPE(self);
    close_context(c);
    end_dead(c);
    free(c->failed.text);
    free(c->failed.layer);
    Py_XDECREF(c->raised);
    if (c->running) PyThread_free_lock(c->running);
    pthread_mutex_destroy(&c->mutex);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

Context *context_current(void)
{
    if (n_entered) return entered[n_entered - 1];
    if (default_context && !default_context->cx) Py_CLEAR(default_context);
    if (!default_context) default_context = open_context(NULL, 0, 0, 0, NULL);
    return default_context;
}

static PyObject *context_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (n_entered == 64)
        return PyErr_SetString(PyExc_RuntimeError, "too many contexts are entered"), NULL;
    entered[n_entered++] = (Context *)Py_NewRef(self);
    return Py_NewRef(self);
}

static PyObject *context_exit(PyObject *self, PyObject *args)
{
    (void)args;
    int i = n_entered;
    while (i && entered[i - 1] != (Context *)self) i--;
    if (i) {
        memmove(&entered[i - 1], &entered[i], sizeof *entered * (size_t)(n_entered-- - i));
        Py_DECREF(self);
    }
    Py_RETURN_NONE;
}

static PyObject *context_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    Context *c = (Context *)self;
    if (c->is_running)
        return PyErr_SetString(PyExc_RuntimeError, "the context is running on another thread"),
               NULL;
    close_context(c);
    Py_RETURN_NONE;
}

static PyObject *context_device(PyObject *self, void *unused)
{
    Context *c = (Context *)self;
    (void)unused;
    if (!c->cx) return PyUnicode_FromString("closed");
    return PyUnicode_FromString(tn_ctx_device(c->cx));
}

static PyObject *context_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(!((Context *)self)->cx);
}

static PyObject *context_repr(PyObject *self)
{
    PyObject *name = context_device(self, NULL);
    PyObject *r    = name ? PyUnicode_FromFormat("<tenon.Context %U>", name) : NULL;
    Py_XDECREF(name);
    return r;
}

static PyMethodDef context_methods[] = {
    { "__enter__", context_enter, METH_NOARGS, NULL },
    { "__exit__", context_exit, METH_VARARGS, NULL },
    { "close", context_close, METH_NOARGS,
      "Frees the context and everything on it. Its tensors can no longer be used." },
    { 0 },
};

static PyObject *context_claims(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((Context *)self)->claims);
}

static PyObject *context_random(PyObject *self, void *unused)
{
    Context *c = (Context *)self;
    (void)unused;
    if (!context_claim(c)) return NULL;
    tn_random_state s = tn_random_get(c->cx);
    return Py_BuildValue("(KK)", (unsigned long long)s.seed, (unsigned long long)s.drawn);
}

static int context_set_random(PyObject *self, PyObject *value, void *unused)
{
    Context           *c = (Context *)self;
    unsigned long long seed, drawn;
    (void)unused;
    if (!value || !PyTuple_Check(value))
        return PyErr_SetString(PyExc_TypeError, "random_state is a tuple of two numbers"), -1;
    if (!PyArg_ParseTuple(value, "KK", &seed, &drawn) || !context_claim(c)) return -1;
    tn_random_set(c->cx, (tn_random_state){ seed, drawn });
    return 0;
}

static PyGetSetDef context_members[] = {
    { "device", context_device, NULL, "The device, as it is named to open it.", NULL },
    { "closed", context_closed, NULL, "Whether it was closed.", NULL },
    { "_claims", context_claims, NULL, "How often it was used so far.", NULL },
    { "random_state", context_random, context_set_random,
      "The place in the sequence of random numbers: the seed, and what was drawn so far.", NULL },
    { 0 },
};

static PyType_Slot context_slots[] = {
    { Py_tp_new, context_new },
    { Py_tp_dealloc, context_dealloc },
    { Py_tp_repr, context_repr },
    { Py_tp_methods, context_methods },
    { Py_tp_getset, context_members },
    { Py_tp_doc,
      "Context(device=None, *, seed=0, threads=0, mem_limit=0, stream=0)\n--\n\n"
      "A device and everything that is made on it. In a `with` block, new tensors are made on it." },
    { 0 },
};
static PyType_Spec context_spec = { "tenon.Context", sizeof(Context), 0, Py_TPFLAGS_DEFAULT,
                                    context_slots };

static PyObject *get_current(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return Py_XNewRef((PyObject *)context_current());
}

static PyObject *set_default(PyObject *self, PyObject *c)
{
    (void)self;
    if (!PyObject_TypeCheck(c, context_type))
        return PyErr_SetString(PyExc_TypeError, "set_default_context: not a Context"), NULL;
    Context *old    = default_context;
    default_context = (Context *)Py_NewRef((PyObject *)c);
    Py_XDECREF((PyObject *)old);
    Py_RETURN_NONE;
}

// At exit: no call of Tenon runs after this, whatever objects are still there.
void context_close_all(void)
{
    while (n_contexts) close_context(contexts[n_contexts - 1]);
}

static PyObject *close_all(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    context_close_all();
    Py_RETURN_NONE;
}

// In the child of a fork: the threads of the pool and the device's driver were not copied, so
// nothing of the parent's contexts can be used or freed.
static PyObject *abandon_all(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    while (n_contexts) {
        Context *c = contexts[n_contexts - 1];
        forget(c);
        c->cx         = NULL;
        c->is_running = false;
        c->is_lost    = true;
    }
    n_entered = n_read_by_others = 0;
    Py_CLEAR(default_context);
    Py_RETURN_NONE;
}

// grad_mode(on) and autocast(dtype): set the mode of this thread and return the one before.
static PyObject *grad_mode(PyObject *self, PyObject *on)
{
    int is = PyObject_IsTrue(on);
    (void)self;
    if (is < 0) return NULL;
    bool before = !grad_off;
    grad_off    = !is;
    return PyBool_FromLong(before);
}

static PyObject *autocast(PyObject *self, PyObject *dtype)
{
    tn_dtype dt, before = cast_to;
    (void)self;
    if (!to_dtype(dtype, "autocast: dtype", &dt)) return NULL;
    if (dt != TN_F32 && dt != TN_F16 && dt != TN_BF16)
        return PyErr_SetString(PyExc_ValueError,
                               "autocast: dtype must be float16, bfloat16 or float32"),
               NULL;
    cast_to = dt;
    return from_dtype(before);
}

static PyObject *is_grad_enabled(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(!grad_off);
}

static PyMethodDef methods[] = {
    { "grad_mode", grad_mode, METH_O, NULL },
    { "autocast", autocast, METH_O, NULL },
    { "is_grad_enabled", is_grad_enabled, METH_NOARGS, NULL },
    { "current_context", get_current, METH_NOARGS,
      "current_context()\n--\n\nThe context that new tensors are made on." },
    { "set_default_context", set_default, METH_O, NULL },
    { "close_all", close_all, METH_NOARGS, NULL },
    { "abandon_all", abandon_all, METH_NOARGS, NULL },
    { 0 },
};

int context_ready(PyObject *module)
{
    context_type = (PyTypeObject *)PyType_FromSpec(&context_spec);
    if (!context_type || PyModule_AddObjectRef(module, "Context", (PyObject *)context_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, methods);
}
