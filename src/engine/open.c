// Contexts: opening on a device, closing, moving between threads; scopes as far as they evaluate.
#include "engine/observer.h"

#include "base/pool.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// ---- devices -----------------------------------------------------------------------------------

// tn_open(NULL) takes cuda where it is there, else cpu; opencl, which may be a CPU, and ref are taken
// only by name.
static const tni_device *const devices[] = { &tni_device_cpu, &tni_device_cuda, &tni_device_opencl,
                                             &tni_device_ref };
enum { DEVICES = sizeof devices / sizeof *devices };

int tn_devices(void)
{
    return DEVICES;
}

// What the machine has does not change while the process lives: asked once.
static struct {
    pthread_once_t once;
    tni_text       detail[DEVICES];
    bool           there[DEVICES];
} known = { .once = PTHREAD_ONCE_INIT };

static void look_once(void)
{
    for (int i = 0; i < DEVICES; i++) known.there[i] = devices[i]->probe(&known.detail[i]);
}

tn_device_desc tn_device_info(int i)
{
    if (i < 0 || i >= DEVICES) return (tn_device_desc){ 0 };
    pthread_once(&known.once, look_once);
    return (tn_device_desc){ devices[i]->name, known.detail[i].s, known.there[i] };
}

// Whether a name is a device's, alone or with a number behind it: "cuda", "cuda:1".
static bool is_named(const char *name, const tni_device *d, int *number)
{
    size_t n = strlen(d->name);
    *number  = 0;
    if (strncmp(name, d->name, n)) return false;
    if (!name[n]) return true;
    if (!d->open || name[n] != ':' || !tni_is_digit(name[n + 1])) return false;
    char *end;
    long  k = strtol(name + n + 1, &end, 10);
    *number = k > INT_MAX ? INT_MAX : (int)k;
    return !*end;
}

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

static tn_status flush(tn_ctx *cx)
{
    return tni_evaluate(cx, TNI_FLUSH, NULL);
}

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

// Whether a switch in the environment is on.
static bool is_set(const char *name)
{
    const char *v = getenv(name);
    return v && *v && strcmp(v, "0");
}

static bool is_word(const char *name, const char *word)
{
    const char *v = getenv(name);
    return v && !strcmp(v, word);
}

static int thread_count(int asked)
{
    int n = asked > 0 ? asked : tni_threads_default();
    return n > TNI_MAX_THREADS ? TNI_MAX_THREADS : n;
}

// Memory checkers see every block come and go.
#if defined(TN_DEBUG) || defined(__SANITIZE_ADDRESS__)
enum { KEEPS_BLOCKS = false };
#else
enum { KEEPS_BLOCKS = true };
#endif

// What was asked for, else what the environment says.
static bool find_limit(int64_t asked, int64_t *limit)
{
    const char *v = getenv("TN_MEM_LIMIT");
    *limit        = asked;
    if (asked || !v || !*v || tni_parse_bytes(v, limit)) return true;
    tni_thread_fail(TN_EARG, "open: TN_MEM_LIMIT is %s, not a number of bytes such as 512M",
                    tni_quoted(v).s);
    return false;
}

// A context that gets no session is gone.
static bool open_session(tn_ctx *cx, const tni_device_open_args *args)
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

void tni_engine_use(tn_ctx *cx, const tni_device *d)
{
    tni_engine_set(cx->engine, d);
    memset(cx->lacks, 0, sizeof cx->lacks);
    for (int op = 0; op < TNI_OPS; op++)
        if (tni_op_table[op].class == TNI_LIBRARY && !tni_device_runs(d, op))
            tni_mark_lacking(cx, op);
}

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
    e->threads          = thread_count(o.threads);
    e->observer         = &tni_observer_inspect;
    e->eager            = is_set("TN_EAGER");
    e->compiles_first   = is_word("TN_COMPILE", "wait");
    cx->magic           = TNI_CTX_LIVE;
    cx->owner           = tni_thread_id();
    cx->grad_mode       = true;
    cx->heap            = heap;
    cx->heap.keeps      = KEEPS_BLOCKS;
    cx->handler         = o.handler ? o.handler : print_fault;
    cx->user            = o.user;
    cx->warning_handler = o.handler ? NULL : print_fault;
    cx->engine          = e;
    cx->seed            = o.seed;
    cx->flush           = flush;
    cx->flush_nodes     = o.flush_nodes > 0 ? o.flush_nodes : 100000;
    cx->flush_at        = cx->flush_nodes;
    cx->fault.site      = (tni_site){ .file = "" };
    cx->root            = (tn_scope){ .magic = TNI_SCOPE_LIVE, .cx = cx, .grad_mode = true };
    cx->scope           = &cx->root;
    tni_engine_use(cx, dev);
    open_slabs(cx);
    if (!open_session(cx, &args)) return NULL;
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

// Who names no device gets the GPU, if there is one and it can be used.
tn_ctx *tn_open_with(tn_open_opts o)
{
    const char *set = getenv("TN_DEVICE");
    tni_text    why = { "" };
    if ((o.device && *o.device) || (set && *set) || !tni_device_cuda.probe(&why)) return open_on(o);
    o.device   = "cuda";
    tn_ctx *cx = open_on(o);
    if (cx || tn_error(NULL) == TN_EARG) return cx;  // what is wrong with the rest of o stays so
    tn_error_clear(NULL);
    o.device = "cpu";
    return open_on(o);
}

tn_ctx *tn_open(const char *device)
{
    return tn_open_with((tn_open_opts){ .device = device });
}

#ifdef TN_DEBUG
// Closed contexts and their handles stay readable, so that a stale one can be told.
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

void tn_close(tn_ctx *cx)
{
    if (!cx || !tni_ctx_ok(cx, "close")) return;
    if (cx->nested || cx->busy || cx->buffers.releasing) {
        tni_fail(cx, TN_EARG, "close: a call of this context is in progress");
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
    while (cx->root.newest) tni_tensor_free(cx->root.newest);
    for (size_t i = 0; i < cx->walked_count; i++) tni_node_unref(cx, cx->walked[i]);
    tni_free(&cx->heap, cx->walked);
    tni_plans_close(&cx->engine->plans, &cx->heap);
    tni_buffers_close(&cx->buffers);
    if (cx->engine->device->close) cx->engine->device->close(cx->engine->session);
    tni_slab_close(&cx->nodes);
    tni_slab_close(&cx->stores);
    tni_slab_close(&cx->views);
    tni_slab_close(&cx->leaves);
    tni_slab_close(&cx->origins);
    tni_paths_close(cx);
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

void tn_seed(tn_ctx *cx, uint64_t seed)
{
    if (!tni_ctx_ok(cx, "seed")) return;
    cx->seed    = seed;
    cx->counter = 0;
}

// ---- scopes and boundaries ---------------------------------------------------------------------

static bool scope_open(const tn_ctx *cx, const tn_scope *s)
{
    for (const tn_scope *k = cx->scope; k; k = k->outer)
        if (k == s) return true;
    return false;
}

tn_status tn_end(tn_scope *s)
{
    if (!s) {
        tni_thread_fail(TN_EARG, "end: the scope is NULL");
        return TN_EARG;
    }
    tn_ctx *cx = s->cx;
    if (!tni_ctx_ok(cx, "end")) return tni_failed();
    if (s == &cx->root || !scope_open(cx, s))
        return tni_fail_status(cx, TN_EARG, "end: the scope is not open");
    while (cx->scope != s) tni_scope_close(cx->scope);
    bool outermost = s->outer == &cx->root;
    tni_scope_close(s);
    if (!outermost) return TN_OK;
    tn_status status = tni_evaluate(cx, TNI_FLUSH, NULL);
    if (status != TN_OK) tni_roll_back(cx);  // a step that ends so has failed as a whole
    return status;
}

tn_status tn_eval(tn_ctx *cx)
{
    return tni_ctx_ok(cx, "eval") ? tni_evaluate(cx, TNI_STEP, NULL) : tni_failed();
}

tn_status tn_sync(tn_ctx *cx)
{
    if (!tni_ctx_ok(cx, "sync")) return tni_failed();
    const tni_engine *e   = cx->engine;
    tni_text          why = { "" };
    cx->stats.syncs++;
    tn_status s = e->events->wait ? e->events->wait(e->session, &why) : TN_OK;
    return s == TN_OK ? tni_deferred_errors_check(cx) : tni_fail_status(cx, s, "sync: %s", why.s);
}

tn_stats tn_stats_get(const tn_ctx *cx)
{
    if (!cx) return (tn_stats){ 0 };
    tn_stats s = cx->stats;
    s.bytes    = cx->buffers.bytes;
    s.peak     = cx->buffers.peak;
    s.kept     = cx->buffers.held - cx->buffers.bytes;
    s.returned = cx->buffers.returned;
    s.nodes    = (int64_t)cx->nodes.live;
    if (cx->engine->kernels->counts) cx->engine->kernels->counts(&s.kernels, &s.disk_hits);
    return s;
}

#define TEXT(x)    #x
#define VERSION(x) TEXT(x)

const char *tn_version(void)
{
    return VERSION(TN_VERSION_MAJOR) "." VERSION(TN_VERSION_MINOR) "." VERSION(TN_VERSION_PATCH);
}
