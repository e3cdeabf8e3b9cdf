// Errors and their report to the handler, the public call in progress, checks of arguments, scopes,
// and the getters that compute nothing.
#include "tensor/context.h"

#include <stdlib.h>
#include <string.h>

// ---- errors ------------------------------------------------------------------------------------

// Keeps the error (only the first of a context, see fault.h), and reports it to the handler now if
// no public call is in progress, else when the outermost one ends: see tni_leave. A layer path of
// another context is dropped, since the fault may outlive that context.
static void fail_list(tn_ctx *cx, tn_status code, const char *fmt, va_list args)
{
    cx->failures++;
    tni_self.latest = code;
    tni_fault_set(&cx->fault, code, fmt, args);
    const tni_path *layer = cx->fault.site.layer;
    if (layer && layer->owner != cx) cx->fault.site.layer = NULL;  // it may outlive that context
    if (cx->fault.reported) return;
    tni_self.failed = cx;
    if (tni_self.depth == 0) tni_leave(false, NULL);
}

void *tni_fail(tn_ctx *cx, tn_status code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_list(cx, code, fmt, args);
    va_end(args);
    return NULL;
}

tn_status tni_fail_status(tn_ctx *cx, tn_status code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_list(cx, code, fmt, args);
    va_end(args);
    return code;
}

bool tni_refuse(tn_ctx *cx, tn_status code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_list(cx, code, fmt, args);
    va_end(args);
    return false;
}

// A warning is a fault with a slot of its own: the first is kept, the handler sees TN_OK as its
// code.
void tni_warn(tn_ctx *cx, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    // Any code but 0 keeps the first; the handler sees TN_OK.
    if (tni_fault_set(&cx->warning, TN_EUSER, fmt, args)) {
        const tni_path *layer = cx->warning.site.layer;
        if (layer && layer->owner != cx) cx->warning.site.layer = NULL;
        tni_self.failed = cx;
        if (tni_self.depth == 0) tni_leave(false, NULL);
    }
    va_end(args);
}

void *tni_fail_memory(tn_ctx *cx, const char *op)
{
    return tni_fail(cx, TN_EMEM, "%s: out of memory", op);
}

bool tni_no_memory(tn_ctx *cx, const char *op)
{
    return tni_refuse(cx, TN_EMEM, "%s: out of memory", op);
}

tn_status tn_error(const tn_ctx *cx)
{
    return (tn_status)(cx ? &cx->fault : tni_thread_fault())->code;
}

const char *tn_error_text(const tn_ctx *cx)
{
    return (cx ? &cx->fault : tni_thread_fault())->text;
}

size_t tn_escape(char *to, size_t capacity, const char *text)
{
    return tni_escape(to, capacity, text ? text : "", text ? strlen(text) : 0);
}

void tn_error_clear(tn_ctx *cx)
{
    if (cx) tni_fault_clear(&cx->fault);
    else tni_thread_clear();
}

// For users' callbacks: any code outside the enum counts as TN_EUSER.
void *tn_error_set(tn_ctx *cx, tn_status code, const char *text)
{
    if (!tni_ctx_ok(cx, "error_set")) return NULL;
    bool known = code > TN_OK && code <= TN_ESTOP;
    return tni_fail(cx, known ? code : TN_EUSER, "%s", text ? text : "no reason given");
}

// A program that handles errors itself does not want warnings on stderr either, unless it says so.
void tn_on_error(tn_ctx *cx, tn_handler *h, void *user)
{
    if (!tni_ctx_ok(cx, "on_error")) return;
    cx->handler = h;
    cx->user    = user;
    if (!cx->warning_handler_set) cx->warning_handler = NULL;
}

void tn_on_warning(tn_ctx *cx, tn_handler *h, void *user)
{
    if (!tni_ctx_ok(cx, "on_warning")) return;
    cx->warning_handler     = h;
    cx->warning_user        = user;
    cx->warning_handler_set = true;
}

const char *tn_status_name(tn_status s)
{
    static const char *const names[] = { "TN_OK",    "TN_EARG",  "TN_ESHAPE",  "TN_EDTYPE",
                                         "TN_EGRAD", "TN_EGONE", "TN_EMEM",    "TN_EDEVICE",
                                         "TN_ELOST", "TN_EIO",   "TN_EFORMAT", "TN_ETHREAD",
                                         "TN_EUSER", "TN_ESTOP" };
    return (unsigned)s <= TN_ESTOP ? names[s] : "?";
}

// ---- the public call in progress ---------------------------------------------------------------

// The site of a call that the user's code makes. If a public call runs that code (a layer's
// forward, a gradient callback), the new call is part of it: its own line is kept, and beside it
// the outermost one. A call without a line (through a function pointer) counts as the call around
// it.
static void set_site(const char *file, int line, const char *op)
{
    const tni_site *up = tni_self.outer_site;
    if (up && !line) return;
    tni_self.site.file = file ? file : "";
    tni_self.site.line = line;
    tni_self.site.op   = op;
    if (!up) return;
    bool top                 = !up->outer_line;
    tni_self.site.outer_file = top ? up->file : up->outer_file;
    tni_self.site.outer_line = top ? up->line : up->outer_line;
}

// Only calls of the user's own code set the site: a call that the library makes inside another
// keeps it. The outermost call also opens a frame, the set of tensors made until it ends.
void tni_enter(const char *file, int line, const char *op)
{
    if (tni_self.depth == tni_self.site_floor) set_site(file, line, op);
    if (tni_self.depth++ > tni_self.frame_floor) return;
    if (!tni_self.frame_floor) {
        tni_self.failed = NULL;
        tni_self.latest = TN_OK;
    }
    tni_self.frame = ++tni_self.frames;
    tni_self.cx    = NULL;
}

// `before` keeps the state to return to. Errors that the user code causes are not part of it: they
// stay, and are reported when the outermost call ends.
void tni_user_sites_begin(tni_thread *before)
{
    *before = tni_self;
    if (!tni_self.depth) return;  // its calls are the outermost themselves
    tni_self.site_floor = tni_self.depth;
    tni_self.outer_site = &before->site;
}

void tni_user_sites_end(const tni_thread *before)
{
    tni_self.depth      = before->depth;
    tni_self.site_floor = before->site_floor;
    tni_self.outer_site = before->outer_site;
    tni_self.site       = before->site;
}

// The fresh frame number belongs to no call: tensors that user code makes outside of calls stay
// alive.
void tni_user_frames_begin(tni_thread *before)
{
    tni_user_sites_begin(before);
    tni_self.frame_floor = tni_self.depth;
    tni_self.frame       = ++tni_self.frames;  // of no call: tensors made outside of calls stay
}

void tni_user_frames_end(const tni_thread *before)
{
    tni_user_sites_end(before);
    tni_self.frame_floor = before->frame_floor;
    tni_self.frame       = before->frame;
    tni_self.cx          = before->cx;
}

// Frees the temporaries of this frame. Tensors made in it, and in frames inside it, are the first
// in the innermost scope's list, so nothing else is looked at.
static void end_frame(tn_ctx *cx, bool reap, const tn_tensor *keep)
{
    for (tn_tensor *t = cx->scope->newest; t && t->frame >= tni_self.frame;) {
        tn_tensor *next = t->next;
        bool       mine = t->temp && t->frame == tni_self.frame;
        if (mine) t->temp = false;
        if (mine && reap && t != keep) tni_tensor_free(t);
        t = next;
    }
}

// Calls the handler once a fault. It may not return (longjmp), so `reported` is set before.
static void report_fault(tn_ctx *cx, tni_fault *f, tn_status code, tn_handler *handler, void *user)
{
    if (!f->code || f->reported) return;
    f->reported       = true;
    const tni_site *s = &f->site;
    if (handler)
        handler(cx,
                &(tn_fault){ .code       = code,
                             .text       = f->text,
                             .file       = s->file,
                             .line       = s->line,
                             .layer      = s->layer ? s->layer->text : "",
                             .outer_file = s->outer_line ? s->outer_file : s->file,
                             .outer_line = s->outer_line ? s->outer_line : s->line },
                user);
}

// The error last: its handler may not return.
static void report_errors(tn_ctx *cx)
{
    report_fault(cx, &cx->warning, TN_OK, cx->warning_handler, cx->warning_user);
    report_fault(cx, &cx->fault, (tn_status)cx->fault.code, cx->handler, cx->user);
}

// Invariant: between calls of the user's code, the site is that of the call around it, and empty if
// there is none.
static void restore_site(void)
{
    tni_self.site = tni_self.outer_site ? *tni_self.outer_site : (tni_site){ .file = "" };
}

// In this order, because the handler may jump: temporaries die, the site is restored, and only then
// are faults reported, at the outermost call.
void tni_leave(bool reap, const tn_tensor *keep)
{
    if (tni_self.depth > tni_self.frame_floor && --tni_self.depth > tni_self.frame_floor) {
        if (tni_self.depth == tni_self.site_floor) restore_site();
        return;
    }
    if (tni_self.cx) end_frame(tni_self.cx, reap, keep);
    tni_self.cx = NULL;
    if (tni_self.depth == tni_self.site_floor) restore_site();
    if (tni_self.frame_floor) return;
    tn_ctx *failed  = tni_self.failed;
    tni_self.failed = NULL;
    if (failed) report_errors(failed);
}

// ---- what else belongs to the context ----------------------------------------------------------

// Newest first, the order in which tn_close frees: an optimizer goes before the layers it refers
// to.
void tni_owned_add(tn_ctx *cx, tni_owned *t, tni_kind kind, void (*free)(tni_owned *t))
{
    *t = (tni_owned){ .kind = kind, .cx = cx, .free = free, .next = cx->objects };
    if (t->next) t->next->prev = t;
    cx->objects = t;
}

void tni_owned_remove(tni_owned *t)
{
    if (t->next) t->next->prev = t->prev;
    if (t->prev) t->prev->next = t->next;
    else if (t->cx->objects == t) t->cx->objects = t->next;
    t->prev = t->next = NULL;
}

// After an error that NULL came from, nothing is reported again: the first message names the cause.
tn_ctx *tni_owned_ok(const char *op, const void *owned, tni_kind kind)
{
    static const char *const names[] = { "layer", "optimizer",  "dataset", "tokenizer",
                                         "file",  "cache",      "expr_op", "world",
                                         "model", "event file", "report" };
    _Static_assert(sizeof names / sizeof *names == TNI_REPORT + 1, "each kind has a name");
    const tni_owned *t = owned;
    if (!t) {
        tni_self.latest = tni_thread_fault()->code;
        if (!tni_self.latest) tni_thread_fail(TN_EARG, "%s: the %s is NULL", op, names[kind]);
        return NULL;
    }
    return tni_ctx_ok(t->cx, op) ? t->cx : NULL;
}

// ---- arguments ---------------------------------------------------------------------------------

// A context that is NULL, closed or another thread's cannot take the error: it goes to the thread's
// slot.
bool tni_ctx_ok(const tn_ctx *cx, const char *op)
{
    if (!cx) {
        // As with tensors: an earlier error is the reason, and is not reported again.
        tni_self.latest = tni_thread_fault()->code;
        if (!tni_thread_fault()->code) tni_thread_fail(TN_EARG, "%s: the context is NULL", op);
    } else if (cx->magic != TNI_CTX_LIVE) {
        tni_thread_fail(TN_EARG, "%s: the context is closed", op);
    } else if (cx->owner != tni_thread_id()) {
        tni_thread_fail(TN_ETHREAD, "%s: the context belongs to another thread", op);
    } else {
        return true;
    }
    return false;
}

#ifdef TN_DEBUG
// Debug builds keep the memory of freed handles, so the mark can be read.
// They are not handed out again, so a dead handle is recognized.
static bool is_alive(const tn_tensor *x, const char *op, const char *name)
{
    if (x->magic == TNI_LIVE) return true;
    tni_thread_fail(TN_EARG, "%s: %s belongs to a scope that has ended", op, name);
    if (x->cx->magic != TNI_CTX_LIVE)
        tni_thread_fail(TN_EARG, "%s: %s belongs to a context that is closed", op, name);
    else if (x->cx->owner == tni_thread_id())
        tni_fail(x->cx, TN_EARG, "%s: %s belongs to a scope that has ended", op, name);
    return false;
}
#else
static bool is_alive(const tn_tensor *x, const char *op, const char *name)
{
    (void)x;
    (void)op;
    (void)name;
    return true;
}
#endif

static bool tensor_ok(const tn_tensor *x, const char *op, const char *name)
{
    return is_alive(x, op, name) && tni_ctx_ok(x->cx, op);
}

// A NULL argument follows from an error that was reported where it happened; only if there was none
// is it an error itself. Returns NULL.
static tn_ctx *report_missing(const char *op, int n, tn_tensor *const *x, const char *const *names)
{
    const char *name = "an argument";
    tn_ctx     *cx   = NULL;
    for (int i = 0; i < n; i++) {
        if (!x[i]) name = names ? names[i] : name;
        else if (!cx && tensor_ok(x[i], op, names ? names[i] : name)) cx = x[i]->cx;
    }
    if (!cx && tni_self.depth > 0 && tni_self.latest) return NULL;  // of an error inside this call
    tni_self.latest = cx ? cx->fault.code : tni_thread_fault()->code;
    if (!cx && !tni_thread_fault()->code) tni_thread_fail(TN_EARG, "%s: %s is NULL", op, name);
    else if (cx && !cx->fault.code) tni_fail(cx, TN_EARG, "%s: %s is NULL", op, name);
    return NULL;
}

// Whether all are alive and of one context: the frequent case, checked without names.
static bool share_context(int n, tn_tensor *const *x)
{
    for (int i = 0; i < n; i++)
        if (!x[i] || x[i]->magic != TNI_LIVE || x[i]->cx != x[0]->cx) return false;
    return n > 0;
}

// Reports the most specific fault: a NULL, then a dead tensor or wrong thread, then two contexts.
tn_ctx *tni_args_any(const char *op, int n, tn_tensor *const *x, const char *const *names)
{
    if (share_context(n, x)) return tni_ctx_ok(x[0]->cx, op) ? x[0]->cx : NULL;
    for (int i = 0; i < n; i++)
        if (!x[i]) return report_missing(op, n, x, names);
    for (int i = 0; i < n; i++)
        if (!tensor_ok(x[i], op, names ? names[i] : "an argument")) return NULL;
    for (int i = 1; i < n; i++)
        if (x[i]->cx != x[0]->cx)
            return tni_fail(x[0]->cx, TN_EARG,
                            "%s: %s %s and %s %s belong to different contexts; see tn_copy_to", op,
                            names ? names[0] : "argument 0", tni_shape_of(x[0]).s,
                            names ? names[i] : "another", tni_shape_of(x[i]).s);
    return x[0]->cx;
}

tn_ctx *tni_arg1_any(const char *op, tn_tensor *x, const char *name)
{
    if (x && tensor_ok(x, op, name)) return x->cx;
    if (!x) report_missing(op, 1, &x, &name);
    return NULL;
}

// The one place where functions that do not know complex numbers refuse them.
static tn_ctx *refuse_complex(tn_ctx *cx, const char *op, const tn_tensor *x, const char *name)
{
    return tni_fail(cx, TN_EDTYPE, "%s: %s is %s; this op takes real numbers", op, name,
                    tn_dtype_name(tn_dtype_of(x)));
}

tn_ctx *tni_args(const char *op, int n, tn_tensor *const *x, const char *const *names)
{
    tn_ctx *cx = tni_args_any(op, n, x, names);
    for (int i = 0; cx && i < n; i++)
        if (x[i]->complex) return refuse_complex(cx, op, x[i], names ? names[i] : "an argument");
    return cx;
}

tn_ctx *tni_arg1(const char *op, tn_tensor *x, const char *name)
{
    tn_ctx *cx = tni_arg1_any(op, x, name);
    return cx && x->complex ? refuse_complex(cx, op, x, name) : cx;
}

tni_text tni_shape_of(const tn_tensor *x)
{
    return tni_shape_text(tni_rank(x), tni_sizes(x));
}

int tni_axis(tn_ctx *cx, const char *op, int rank, int axis)
{
    // A 0-d tensor takes axis 0 and -1, as in PyTorch, but has none to give: callers that need
    // one ask for rank 1 at least.
    if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
    tni_fail(cx, TN_EARG, "%s: axis %d is out of range for rank %d", op, axis, rank);
    return -1;
}

bool tni_rank_ok(tn_ctx *cx, const char *op, int rank, const int64_t *size)
{
    bool fits = rank >= 0 && rank <= TN_MAX_RANK;
    if (fits && (size || !rank)) return true;
    if (fits) tni_fail(cx, TN_ESHAPE, "%s: rank %d, but size is NULL", op, rank);
    else tni_fail(cx, TN_ESHAPE, "%s: rank %d is not in 0 .. %d", op, rank, TN_MAX_RANK);
    return false;
}

// Negative sizes and shapes whose bytes would overflow are refused here, so that nothing behind
// this check needs to watch for overflow.
bool tni_shape_ok(tn_ctx *cx, const char *op, int rank, const int64_t *size)
{
    if (!tni_rank_ok(cx, op, rank, size)) return false;
    for (int i = 0; i < rank; i++)
        if (size[i] < 0) {
            tni_fail(cx, TN_ESHAPE, "%s: shape %s has a negative size", op,
                     tni_shape_text(rank, size).s);
            return false;
        }
    if (tni_shape_count(rank, size) >= 0) return true;
    tni_fail(cx, TN_ESHAPE, "%s: shape %s has too many elements", op, tni_shape_text(rank, size).s);
    return false;
}

// ---- scopes ------------------------------------------------------------------------------------

tn_scope *tn_begin(tn_ctx *cx)
{
    if (!tni_ctx_ok(cx, "begin")) return NULL;
    tn_scope *s = tni_slab_take(&cx->scopes);
    if (!s) return tni_fail_memory(cx, "begin");
    memset(s, 0, sizeof *s);
    s->magic     = TNI_SCOPE_LIVE;
    s->cx        = cx;
    s->outer     = cx->scope;
    s->depth     = cx->scope->depth + 1;
    s->grad_mode = cx->grad_mode;
    s->autocast  = cx->autocast;
    cx->scope    = s;
    return s;
}

// Frees newest first, in which views go before the tensors they were made from.
void tni_scope_close(tn_scope *s)
{
    tn_ctx *cx = s->cx;
    while (s->newest) tni_tensor_free(s->newest);
    cx->scope     = s->outer;
    cx->grad_mode = s->grad_mode;
    cx->autocast  = s->autocast;
    s->magic      = 0;
    if (s != &cx->root) tni_slab_give(&cx->scopes, s);
}

// A value that was computed without being stored is scheduled again, so the next step stores it.
tn_tensor *tn_want(tn_tensor *t)
{
    if (!tni_arg1_any("want", t, "t")) return NULL;
    if (t->store->node->state == TNI_UNSTORED) tni_node_reschedule(t->cx, t->store->node);
    t->store->wanted = true;
    return t;
}

tn_tensor *tn_keep(tn_tensor *t)
{
    if (!tn_want(t)) return NULL;
    if (t->scope == t->cx->scope && t->scope->outer) {
        tn_scope *outer = t->scope->outer;
        tni_scope_remove(t);
        tni_scope_add(outer, t);
    }
    return t;
}

void tn_drop(tn_tensor *t)
{
    if (!t || !tni_arg1_any("drop", t, "t")) return;
    if (t->owners)
        tni_fail(t->cx, TN_EARG, "drop: t %s belongs to a leaf, a layer or an optimizer",
                 tni_shape_of(t).s);
    else tni_tensor_free(t);
}

void tn_retain(tn_tensor *t)
{
    if (!t || !tn_want(t)) return;
    tni_tensor_own(t);
}

void tn_release(tn_tensor *t)
{
    if (!t || !tni_arg1_any("release", t, "t")) return;
    if (t->owners) tni_tensor_disown(t);
    else tni_fail(t->cx, TN_EARG, "release: t %s was not retained", tni_shape_of(t).s);
}

// ---- asking ------------------------------------------------------------------------------------

tn_ctx *tn_ctx_of(const tn_tensor *t)
{
    return t ? t->cx : NULL;
}

bool tni_tensor_alive(const tn_tensor *t, const char *op)
{
    return t && is_alive(t, op, "t");
}

tn_dtype tn_dtype_of(const tn_tensor *t)
{
    if (!tni_tensor_alive(t, "dtype_of")) return TN_F32;
    return t->complex ? tni_complex_of(tni_dtype(t)) : tni_dtype(t);
}

int tn_rank(const tn_tensor *t)
{
    return tni_tensor_alive(t, "rank") ? tni_rank(t) : -1;
}

int64_t tn_size(const tn_tensor *t, int axis)
{
    int i = tni_tensor_alive(t, "size") ? tni_axis(t->cx, "size", tn_rank(t), axis) : -1;
    return i < 0 ? -1 : tni_sizes(t)[i];
}

int64_t tn_stride(const tn_tensor *t, int axis)
{
    int i = tni_tensor_alive(t, "stride") ? tni_axis(t->cx, "stride", tn_rank(t), axis) : -1;
    return i < 0 ? -1 : tni_layout(t).stride[i] / (1 + t->complex);
}

int64_t tn_offset(const tn_tensor *t)
{
    if (!tni_tensor_alive(t, "offset")) return -1;
    return t->view ? t->view->offset / (1 + t->complex) : 0;
}

int64_t tn_count(const tn_tensor *t)
{
    return tni_tensor_alive(t, "count") ? tni_shape_count(tn_rank(t), tni_sizes(t)) : -1;
}

bool tn_is_view(const tn_tensor *t)
{
    return tni_tensor_alive(t, "is_view") && t->is_view;
}

bool tn_is_contiguous(const tn_tensor *t)
{
    return tni_tensor_alive(t, "is_contiguous") && (!t->view || tni_view_contiguous(t->view));
}

const char *tn_name(const tn_tensor *t)
{
    return tni_tensor_alive(t, "name") && t->name ? t->name : "";
}

tn_tensor *tn_set_name(tn_tensor *t, const char *name)
{
    tn_ctx *cx = tni_arg1_any("set_name", t, "t");
    if (!cx) return NULL;
    char *copy = name ? tni_strdup(&cx->heap, name) : NULL;
    if (name && !copy) return tni_fail_memory(cx, "set_name");
    tni_free(&cx->heap, t->name);
    t->name = copy;
    return t;
}
