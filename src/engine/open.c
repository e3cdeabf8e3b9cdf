// Contexts: opening on a device, closing, moving between threads; and the scopes and boundaries
// that evaluate.
#include "engine/observer.h"

#include "base/pool.h"
#include "dist/place.h"
#include "ops/loop.h"
#include "tensor/hook.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// ---- devices -----------------------------------------------------------------------------------

// The devices of this build. tn_open(NULL) takes cuda if it can be used, else cpu. opencl, which
// may be the same CPU, and ref are taken only by name.
static const tni_device *const devices[] = { &tni_device_cpu, &tni_device_cuda, &tni_device_opencl,
                                             &tni_device_ref };
enum { DEVICES = sizeof devices / sizeof *devices };

int tn_device_count(void)
{
    return DEVICES;
}

// What probing found. The machine's devices do not change while the process lives, so each is
// probed once.
static struct {
    pthread_once_t once;
    tni_text       detail[DEVICES];
    bool           there[DEVICES];
} probed = { .once = PTHREAD_ONCE_INIT };

static void probe_devices(void)
{
    for (int i = 0; i < DEVICES; i++) probed.there[i] = devices[i]->probe(&probed.detail[i]);
}

tn_device_desc tn_device_info(int i)
{
    if (i < 0 || i >= DEVICES) return (tn_device_desc){ 0 };
    pthread_once(&probed.once, probe_devices);
    return (tn_device_desc){ devices[i]->name, probed.detail[i].s, probed.there[i] };
}

// The GPU of a rank whose program names none: by its place among the ranks of this machine, if
// there are several.
static int usual_number(const tni_device *d)
{
    tni_world_place p;
    tni_text        why;
    int             all = d->count ? d->count() : 1;
    if (all < 2 || !tni_world_place_find(&p, &why) || p.local_rank < 0) return 0;
    return p.local_rank % all;
}

// Whether a name is a device's, alone or with a number: "cuda", "cuda:1". *number without one: see
// usual_number.
static bool is_named(const char *name, const tni_device *d, int *number)
{
    size_t n = strlen(d->name);
    *number  = 0;
    if (strncmp(name, d->name, n)) return false;
    if (!name[n]) *number = usual_number(d);
    if (!name[n]) return true;
    if (!d->open || name[n] != ':' || !tni_is_digit(name[n + 1])) return false;
    char *end;
    long  k = strtol(name + n + 1, &end, 10);
    *number = k > INT_MAX ? INT_MAX : (int)k;
    return !*end;
}

// Finds a device by name, by TN_DEVICE if the name is NULL or empty, else cpu. NULL, reported, if
// there is no such device or it cannot be used here.
static const tni_device *find_device(const char *name, int *number)
{
    tni_text why = { "" };
    *number      = 0;
    if (!name || !*name) name = getenv("TN_DEVICE");
    if (!name || !*name) return &tni_device_cpu;
    for (int i = 0; i < DEVICES; i++) {
        if (!is_named(name, devices[i], number)) continue;
        if (devices[i]->probe(&why)) return devices[i];
        tni_thread_fail(TN_EDEVICE, "open: device %s is not available: %s", name, why.s);
        return NULL;
    }
    tni_thread_fail(TN_EDEVICE,
                    "open: there is no device \"%s\"; this build has cpu, cuda, "
                    "opencl and ref",
                    name);
    return NULL;
}

// ---- opening and closing -----------------------------------------------------------------------

// The default error handler: prints an error or a warning as compilers do, with the caller's line,
// and with the line of the outermost call if that is another one.
static void print_fault(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx;
    (void)user;
    bool        inner = f->line != f->outer_line || strcmp(f->file, f->outer_file);
    const char *kind  = f->code == TN_OK ? "warning: " : "";
    if (f->line) fprintf(stderr, "%s:%d: %s%s", tni_escaped(f->file).s, f->line, kind, f->text);
    else fprintf(stderr, "tenon: %s%s", kind, f->text);
    if (inner) fprintf(stderr, ", called from %s:%d", tni_escaped(f->outer_file).s, f->outer_line);
    fputc('\n', stderr);
}

// Called by the recorder when a context has too many pending nodes.
static tn_status flush_pending(tn_ctx *cx)
{
    return tni_evaluate(cx, TNI_FLUSH, NULL);
}

// Opens the slab allocators of the small structs that recording makes.
static void open_slabs(tn_ctx *cx)
{
    tni_slab_open(&cx->nodes, &cx->heap, sizeof(tni_node));
    tni_slab_open(&cx->stores, &cx->heap, sizeof(tni_store));
    tni_slab_open(&cx->tensors, &cx->heap, sizeof(tn_tensor));
    tni_slab_open(&cx->views, &cx->heap, sizeof(tni_view));
    tni_slab_open(&cx->leaves, &cx->heap, sizeof(tni_leaf));
    tni_slab_open(&cx->origins, &cx->heap, sizeof(tni_origin));
    tni_slab_open(&cx->scopes, &cx->heap, sizeof(tn_scope));
}

// Whether a switch in the environment is on: set, and neither empty nor "0".
static bool is_env_on(const char *name)
{
    const char *v = getenv(name);
    return v && *v && strcmp(v, "0");
}

// Whether a variable of the environment is exactly a word.
static bool is_env_word(const char *name, const char *word)
{
    const char *v = getenv(name);
    return v && !strcmp(v, word);
}

static int thread_count(int asked)
{
    int n = asked > 0 ? asked : tni_threads_default();
    return n > TNI_MAX_THREADS ? TNI_MAX_THREADS : n;
}

// Freed blocks are kept for reuse, except under memory checkers, which have to see every
// allocation.
#if defined(TN_DEBUG) || defined(__SANITIZE_ADDRESS__)
enum { KEEPS_BLOCKS = false };
#else
enum { KEEPS_BLOCKS = true };
#endif

// Finds the memory limit: the one asked for, else TN_MEM_LIMIT, else 0 (none). False, reported, if
// that is no number of bytes.
static bool find_limit(int64_t asked, int64_t *limit)
{
    const char *v = getenv("TN_MEM_LIMIT");
    *limit        = asked;
    if (asked || !v || !*v || tni_parse_bytes(v, limit)) return true;
    tni_thread_fail(TN_EARG, "open: TN_MEM_LIMIT is %s, not a number of bytes such as 512M",
                    tni_quoted(v).s);
    return false;
}

// Opens the device for a context. On failure, which is reported, the context is freed.
static bool open_device_session(tn_ctx *cx, const tni_device_open_args *args)
{
    tni_text    why = { "" };
    tn_status   s   = TN_EDEVICE;
    tni_engine *e   = cx->engine;
    e->session      = e->device->open ? e->device->open(&cx->heap, args, &s, &why) : &cx->heap;
    if (e->session) return true;
    tni_heap heap = cx->heap;
    heap.keeps    = false;
    tni_free(&heap, e);
    tni_free(&heap, cx);
    tni_thread_fail(s, "open: %s", why.s);
    return false;
}

void tni_engine_set(tni_engine *e, const tni_device *d)
{
    static const tni_device_kernels  no_kernels;
    static const tni_device_events   no_events;
    static const tni_device_replay   no_replay;
    static const tni_device_borrowed none_borrowed;
    static const tni_device_pinned   none_pinned;
    e->device   = d;
    e->kernels  = d->kernels ? d->kernels : &no_kernels;
    e->events   = d->events ? d->events : &no_events;
    e->replay   = d->replay ? d->replay : &no_replay;
    e->borrowed = d->borrowed ? d->borrowed : &none_borrowed;
    e->pinned   = d->pinned ? d->pinned : &none_pinned;
}

// What a context asks before it records a LIBRARY op that not every device runs in every form.
static const char *device_declines(tn_ctx *cx, const tni_node *n)
{
    const tni_device  *d    = cx->engine->device;
    const tni_op_impl *impl = tni_device_impl(d, n->op);
    tni_arg            arg[TNI_CALL_ARGS];
    bool               attends = n->op == TNI_attention || n->op == TNI_attention_grad;
    if (attends && n->attr.attention.score && !d->calls->runs_scores)
        return "this device runs no score programs";
    if (!impl->declines || tni_call_args(n) > TNI_CALL_ARGS) return NULL;
    tni_call c = tni_call_of(n, arg);
    c.device   = d;
    c.session  = cx->engine->session;
    return impl->declines(&c);
}

static int device_conv_order(tn_ctx *cx, tn_dtype dt, int64_t from, int64_t to, bool last)
{
    return cx->engine->device->calls->conv_order(cx->engine->session, dt, from, to, last);
}

// Ops the device lacks are marked in the context, where tni_record finds them (ops/fallback.c).
void tni_engine_use(tn_ctx *cx, const tni_device *d)
{
    tni_engine_set(cx->engine, d);
    memset(cx->lacks, 0, sizeof cx->lacks);
    cx->declines   = device_declines;
    cx->recognizes = d->calls->recognizes;
    cx->conv_order = d->calls->conv_order ? device_conv_order : NULL;
    for (int op = 0; op < TNI_OPS; op++)
        if (tni_op_table[op].class == TNI_LIBRARY && !tni_device_runs(d, op))
            tni_mark_lacking(cx, op);
}

// The contract's enter, for threads of the library.
static void enter_device(tn_ctx *cx)
{
    const tni_engine *e = cx->engine;
    if (e->events->enter) e->events->enter(e->session);
}

// Opens a context on the device that the options or the environment name. The order matters: the
// device decides which ops are recorded, the session comes before the buffers, which allocate
// through it, and the observer last, since it reads the environment and may allocate. NULL,
// reported to the thread, on failure.
static tn_ctx *open_on(tn_open_opts o)
{
    tni_device_open_args args = { .stream = o.stream };
    int64_t              limit;
    const tni_device    *dev = find_device(o.device, &args.number);
    if (!dev || !find_limit(o.mem_limit, &limit)) return NULL;
    tni_heap heap = o.alloc ? (tni_heap){ .alloc = o.alloc, .user = o.user } : tni_heap_default();
    tn_ctx  *cx   = tni_zalloc(&heap, sizeof *cx);
    tni_engine *e = cx ? tni_zalloc(&heap, sizeof *e) : NULL;
    if (!e) {
        tni_free(&heap, cx);
        tni_thread_fail(TN_EMEM, "open: out of memory");
        return NULL;
    }
    snprintf(e->name, sizeof e->name, args.number ? "%s:%d" : "%s", dev->name, args.number);
    e->threads          = thread_count(o.threads);
    e->observer         = &tni_observer_inspect;
    e->eager            = is_env_on("TN_EAGER");
    e->compiles_first   = is_env_word("TN_COMPILE", "wait");
    cx->magic           = TNI_CTX_LIVE;
    cx->owner           = tni_thread_id();
    cx->grad_mode       = true;
    cx->autocast        = TN_F32;
    cx->heap            = heap;
    cx->heap.keeps      = KEEPS_BLOCKS;
    cx->handler         = o.handler ? o.handler : print_fault;
    cx->user            = o.user;
    cx->warning_handler = o.handler ? NULL : print_fault;
    cx->engine          = e;
    cx->seed            = o.seed;
    cx->flush           = flush_pending;
    cx->enter           = enter_device;
    // A program that never ends a step is evaluated every so often, or its graph would grow without
    // bound.
    cx->flush_nodes = o.flush_nodes > 0 ? o.flush_nodes : 100000;
    cx->flush_at    = cx->flush_nodes;
    cx->fault.site  = (tni_site){ .file = "" };
    cx->root        = (tn_scope){
               .magic = TNI_SCOPE_LIVE, .cx = cx, .grad_mode = true, .autocast = TN_F32
    };
    cx->scope = &cx->root;
    tni_engine_use(cx, dev);
    open_slabs(cx);
    if (!open_device_session(cx, &args)) return NULL;
    tni_memory memory = { .alloc       = dev->memory->alloc,
                          .free        = dev->memory->free,
                          .arena       = dev->memory->arena,
                          .state       = e->session,
                          .submitted   = e->events->submitted,
                          .completed   = e->events->completed,
                          .wait_unused = e->borrowed->wait_unused };
    tni_buffers_open(&cx->buffers, &cx->heap, memory, limit);
    if (e->observer->open(cx)) return cx;
    tn_close(cx);
    tni_thread_fail(TN_EMEM, "open: out of memory");
    return NULL;
}

// If no device is named and a GPU can be used, it is tried first, and the cpu if it cannot be
// opened. An error in the other options would be the same on the cpu and is reported.
tn_ctx *tn_open_with(tn_open_opts o)
{
    const char *set = getenv("TN_DEVICE");
    tni_text    why = { "" };
    if ((o.device && *o.device) || (set && *set) || !tni_device_cuda.probe(&why)) return open_on(o);
    o.device   = "cuda";
    tn_ctx *cx = open_on(o);
    if (cx || tn_error(NULL) == TN_EARG)
        return cx;  // an invalid option is no reason to try the cpu
    tn_error_clear(NULL);
    o.device = "cpu";
    return open_on(o);
}

tn_ctx *tn_open(const char *device)
{
    return tn_open_with((tn_open_opts){ .device = device });
}

#ifdef TN_DEBUG
// Keeps a closed context and its handles readable, so that the use of a stale one is recognized.
static void bury(tn_ctx *cx)
{
    static _Thread_local tn_ctx *graveyard;
    cx->engine = (void *)graveyard;
    graveyard  = cx;
}
#else
static void bury(tn_ctx *cx)
{
    tni_slab_close(&cx->tensors);
    tni_slab_close(&cx->scopes);
    tni_heap heap = cx->heap;
    heap.keeps    = false;
    tni_heap_close(&heap);
    tni_free(&heap, cx);
}
#endif

// Frees the tensors that the program retained and did not release. All gradients are among them, so
// leaves give theirs up first.
static void free_retained(tn_ctx *cx)
{
    for (tn_tensor *t = cx->owned.newest; t; t = t->next)
        if (tni_is_leaf(t)) t->leaf->grad = NULL;
    while (cx->owned.newest) tni_tensor_free(cx->owned.newest);
}

// Closes in an order in which everything that is freed may still use what it was made from: the
// observer, scopes, objects such as layers and optimizers, tensors and nodes, plans, buffers, then
// the device's session.
void tn_close(tn_ctx *cx)
{
    if (!cx || !tni_ctx_ok(cx, "close")) return;
    if (cx->nested || cx->busy || cx->buffers.releasing) {
        tni_fail(cx, TN_EARG, "close: a call of this context is in progress");
        return;
    }
    tni_exports_reclaim(cx);
    if (cx->engine->exports.count) {
        tni_fail(cx, TN_EARG, "close: %lld values are exported to other libraries (tn_to_dlpack)",
                 (long long)cx->engine->exports.count);
        return;
    }
    cx->engine->observer->close(cx);
    while (cx->scope != &cx->root) tni_scope_close(cx->scope);
    while (cx->objects) {
        tni_owned *t = cx->objects;
        tni_owned_remove(t);
        t->free(t);
    }
    tni_async_items_close(cx);
    tni_hooks_close(cx);
    while (cx->root.newest) tni_tensor_free(cx->root.newest);
    free_retained(cx);
    for (size_t i = 0; i < cx->walked_count; i++) tni_node_unref(cx, cx->walked[i]);
    tni_free(&cx->heap, cx->walked);
    tni_loops_close(cx);
    tni_plans_close(&cx->engine->plans, &cx->heap);
    tni_buffers_close(&cx->buffers);
    if (cx->engine->device->close) cx->engine->device->close(cx->engine->session);
    tni_slab_close(&cx->nodes);
    tni_slab_close(&cx->stores);
    tni_slab_close(&cx->views);
    tni_slab_close(&cx->leaves);
    tni_slab_close(&cx->origins);
    tni_paths_close(cx);
    tni_scores_close(cx);
    tni_free(&cx->heap, cx->engine->inspect);
    tni_free(&cx->heap, cx->engine);
    cx->engine = NULL;
    cx->magic  = TNI_CTX_DEAD;
    if (tni_self.cx == cx) tni_self.cx = NULL;
    if (tni_self.failed == cx) tni_self.failed = NULL;
    bury(cx);
}

tn_status tn_ctx_leave(tn_ctx *cx)
{
    if (!tni_ctx_ok(cx, "ctx_leave")) return tni_failed();
    cx->owner = 0;
    return TN_OK;
}

// A context belongs to one thread at a time. It can be taken over once its owner has left it;
// entering it twice is allowed.
tn_status tn_ctx_enter(tn_ctx *cx)
{
    if (!cx || cx->magic != TNI_CTX_LIVE || (cx->owner && cx->owner != tni_thread_id())) {
        tni_thread_fail(cx ? TN_ETHREAD : TN_EARG, "ctx_enter: the context %s",
                        !cx ? "is NULL" : "is closed or belongs to another thread");
        return tni_failed();
    }
    cx->owner = tni_thread_id();
    return TN_OK;
}

tn_status tn_ctx_take(tn_ctx *cx)
{
    if (cx && cx->magic == TNI_CTX_LIVE) cx->owner = 0;
    return tn_ctx_enter(cx);
}

const char *tn_ctx_device(const tn_ctx *cx)
{
    return cx && cx->magic == TNI_CTX_LIVE ? cx->engine->name : "";
}

void tn_seed(tn_ctx *cx, uint64_t seed)
{
    if (!tni_ctx_ok(cx, "seed")) return;
    cx->seed    = seed;
    cx->counter = 0;
}

tn_random_state tn_random_get(const tn_ctx *cx)
{
    if (!tni_ctx_ok(cx, "random_get")) return (tn_random_state){ 0 };
    return (tn_random_state){ cx->seed, cx->counter };
}

void tn_random_set(tn_ctx *cx, tn_random_state state)
{
    if (!tni_ctx_ok(cx, "random_set")) return;
    cx->seed    = state.seed;
    cx->counter = state.drawn;
}

// ---- scopes and boundaries ---------------------------------------------------------------------

// Whether a scope is open: the current one or around it.
static bool is_open_scope(const tn_ctx *cx, const tn_scope *s)
{
    for (const tn_scope *k = cx->scope; k; k = k->outer)
        if (k == s) return true;
    return false;
}

// Closes the scope and those inside it that were left open. The end of the outermost scope
// evaluates everything pending, and counts as a step: if it fails, all stores return to their last
// computed values.
tn_status tn_end(tn_scope *s)
{
    if (!s) {
        tni_thread_fail(TN_EARG, "end: the scope is NULL");
        return TN_EARG;
    }
    tn_ctx *cx = s->cx;
    if (!tni_ctx_ok(cx, "end")) return tni_failed();
    if (s == &cx->root || !is_open_scope(cx, s))
        return tni_fail_status(cx, TN_EARG, "end: the scope is not open");
    while (cx->scope != s) tni_scope_close(cx->scope);
    bool outermost = s->outer == &cx->root;
    tni_scope_close(s);
    if (!outermost) return TN_OK;
    tn_status status = tni_evaluate(cx, TNI_FLUSH, NULL);
    if (status != TN_OK && status != TN_ESTOP)
        tni_roll_back(cx);  // the end of the outermost scope is a step
    return status;
}

tn_status tn_eval(tn_ctx *cx)
{
    return tni_ctx_ok(cx, "eval") ? tni_evaluate(cx, TNI_STEP, NULL) : tni_failed();
}

// Waits for the device, then reports an error that arrived late, if any.
tn_status tn_sync(tn_ctx *cx)
{
    if (!tni_ctx_ok(cx, "sync")) return tni_failed();
    const tni_engine *e   = cx->engine;
    tni_text          why = { "" };
    cx->stats.syncs++;
    tn_status s = e->events->wait ? e->events->wait(e->session, &why) : TN_OK;
    return s == TN_OK ? tni_deferred_errors_check(cx) : tni_fail_status(cx, s, "sync: %s", why.s);
}

// Counters are kept where they change; the sizes of the buffer cache and the device's counts are
// added when asked for.
tn_stats tn_ctx_stats(const tn_ctx *cx)
{
    if (!cx) return (tn_stats){ 0 };
    tn_stats s = cx->stats;
    s.bytes    = cx->buffers.bytes;
    s.peak     = cx->buffers.peak;
    s.kept     = cx->buffers.held - cx->buffers.bytes;
    s.returned = cx->buffers.returned;
    s.nodes    = (int64_t)cx->nodes.live;
    s.exported = tni_exports_count(cx);
    if (cx->engine->kernels->counts) cx->engine->kernels->counts(&s.kernels, &s.disk_hits);
    return s;
}

#define TEXT(x)    #x
#define VERSION(x) TEXT(x)

const char *tn_version(void)
{
    return VERSION(TN_VERSION_MAJOR) "." VERSION(TN_VERSION_MINOR) "." VERSION(TN_VERSION_PATCH);
}
