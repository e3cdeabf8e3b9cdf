// From a graph to something that runs: descriptors, engines, compiled plans, and the disk.
//
// One lock guards the table, the states of all candidates and the handle for running, whose stream
// is set before each run. Compiling, which takes a second, is done without the lock and with a
// handle of its own.
#include "device/cuda/dnn_plan.h"

#include "base/background.h"
#include "base/hash.h"
#include "device/cuda/library_log.h"
#include "kernel/disk.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// MOST_CONFIGS: proposals that are looked at, of which the first few that suit become candidates.
enum { GPUS = 64, MOST_CONFIGS = 48 };
enum { MOST_DESCS = 3 * (TNI_DNN_TENSORS + TNI_DNN_OPS) + 2 * MOST_CONFIGS };

// A candidate is waiting to be compiled, queued for it, ready, or of no use.
typedef enum { UNBEGUN, COMPILING, READY, BROKEN } candidate_state;

typedef struct {
    tni_dnn_plans  *of;
    tni_dnndesc     config, plan;
    int64_t         workspace, notes;
    candidate_state state;
} candidate;

// Invariant: count is 0 if the library declined, and why says so. Once settled, the only candidate
// is ready.
struct tni_dnn_plans {
    tni_dnn_plans *next;
    uint64_t       hash;
    tni_dnn_graph  graph;
    tni_dnn_env    at;
    char           what[32];
    tni_text       why;
    bool           settled;
    bool        limited, scarce;  // some engines need more workspace than there may be, or is free
    int         count, compiles;  // compiles: candidates that the library has to compile
    candidate   list[TNI_DNN_CANDIDATES];
    int         descs;  // descriptors that the configurations depend on, and themselves
    tni_dnndesc desc[MOST_DESCS];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t  compiled;
    tni_dnn_plans  *first;
    tni_dnnhandle   run[GPUS], build[GPUS];  // NULL until they are needed
    tni_disk        disk;
    bool            open;
    int64_t         compiles, founds;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER, .compiled = PTHREAD_COND_INITIALIZER };

static const tni_cudnn *library(void)
{
    tni_text none = { "" };
    return tni_cudnn_get(&none);
}

// ---- descriptors -------------------------------------------------------------------------------

// Descriptors being made. After the first status that is no success nothing more is done, so that
// the code below reads without checks.
typedef struct {
    const tni_cudnn *dnn;
    tni_dnn_plans   *p;
    int              status;
} maker;

static tni_dnndesc make(maker *m, int kind)
{
    tni_dnndesc d = NULL;
    if (!m->status && m->p->descs == MOST_DESCS) m->status = TNI_DNN_INTERNAL;
    if (!m->status) m->status = m->dnn->desc_create(kind, &d);
    if (m->status) return NULL;
    return m->p->desc[m->p->descs++] = d;
}

static void set(maker *m, tni_dnndesc d, int attribute, int type, int64_t count, const void *value)
{
    if (!m->status) m->status = m->dnn->desc_set(d, attribute, type, count, value);
}

static void set_number(maker *m, tni_dnndesc d, int attribute, int64_t value)
{
    set(m, d, attribute, TNI_DNN_TYPE_INT64, 1, &value);
}

// What is an enum in cuDNN is an int.
static void set_enum(maker *m, tni_dnndesc d, int attribute, int type, int64_t value)
{
    int v = (int)value;
    set(m, d, attribute, type, 1, &v);
}

static void set_desc(maker *m, tni_dnndesc d, int attribute, tni_dnndesc value)
{
    set(m, d, attribute, TNI_DNN_TYPE_DESC, 1, &value);
}

static void finalize(maker *m, tni_dnndesc d)
{
    if (!m->status) m->status = m->dnn->desc_finalize(d);
}

// The number of a tensor in the graph is its id, by which a run gives its address.
static tni_dnndesc make_tensor(maker *m, const tni_dnn_tensor *t, int64_t id)
{
    bool        yes = true;
    tni_dnndesc d   = make(m, TNI_DNN_TENSOR);
    set_enum(m, d, TNI_DNN_TENSOR_DTYPE, TNI_DNN_TYPE_DTYPE, t->dtype);
    set(m, d, TNI_DNN_TENSOR_SIZES, TNI_DNN_TYPE_INT64, t->rank, t->size);
    set(m, d, TNI_DNN_TENSOR_STRIDES, TNI_DNN_TYPE_INT64, t->rank, t->stride);
    set_number(m, d, TNI_DNN_TENSOR_ID, id);
    set_number(m, d, TNI_DNN_TENSOR_ALIGN, t->align);
    if (t->where == TNI_DNN_VIRTUAL) set(m, d, TNI_DNN_TENSOR_VIRTUAL, TNI_DNN_TYPE_BOOL, 1, &yes);
    if (t->where == TNI_DNN_BY_VALUE) set(m, d, TNI_DNN_TENSOR_VALUE, TNI_DNN_TYPE_BOOL, 1, &yes);
    finalize(m, d);
    return d;
}

static bool is_conv(const tni_dnn_op *o)
{
    return o->kind == TNI_DNN_OP_CONV || o->kind == TNI_DNN_OP_CONV_DX ||
           o->kind == TNI_DNN_OP_CONV_DW;
}

// The window of a convolution, over as many axes as its images have beside batch and channels.
static tni_dnndesc make_window(maker *m, const tni_dnn_op *o)
{
    const tni_dnn_window *w      = &o->window;
    int64_t               places = m->p->graph.tensor[o->y - 1].rank - 2;
    tni_dnndesc           d      = make(m, TNI_DNN_CONV);
    set_enum(m, d, TNI_DNN_CONV_DTYPE, TNI_DNN_TYPE_DTYPE, o->dtype);
    set_enum(m, d, TNI_DNN_CONV_MODE, TNI_DNN_TYPE_CONV_MODE, TNI_DNN_CROSS_CORRELATION);
    set_number(m, d, TNI_DNN_CONV_PLACES, places);
    set(m, d, TNI_DNN_CONV_STRIDE, TNI_DNN_TYPE_INT64, places, w->stride);
    set(m, d, TNI_DNN_CONV_DILATION, TNI_DNN_TYPE_INT64, places, w->dilation);
    set(m, d, TNI_DNN_CONV_BEFORE, TNI_DNN_TYPE_INT64, places, w->padding);
    set(m, d, TNI_DNN_CONV_AFTER, TNI_DNN_TYPE_INT64, places, w->padding);
    return d;
}

// Whether a pointwise op compares, where NaN would be lost unless it is asked for.
static bool loses_nan(int64_t mode)
{
    return mode == TNI_DNN_RELU || mode == TNI_DNN_MAX || mode == TNI_DNN_MIN;
}

// The part of an op that has a descriptor of its own: what is computed, and in which dtype. A
// reshape has none.
static tni_dnndesc make_settings(maker *m, const tni_dnn_op *o)
{
    tni_dnndesc d = is_conv(o) ? make_window(m, o) : NULL;
    if (o->kind == TNI_DNN_OP_POINTWISE) {
        d = make(m, TNI_DNN_POINTWISE);
        set_enum(m, d, TNI_DNN_POINTWISE_MODE, TNI_DNN_TYPE_POINTWISE, o->mode);
        set_enum(m, d, TNI_DNN_POINTWISE_DTYPE, TNI_DNN_TYPE_DTYPE, o->dtype);
        if (loses_nan(o->mode))
            set_enum(m, d, TNI_DNN_POINTWISE_NAN, TNI_DNN_TYPE_NAN, TNI_DNN_KEEPS_NAN);
        if (o->mode == TNI_DNN_GEN_INDEX) set_number(m, d, TNI_DNN_POINTWISE_AXIS, o->axis);
    } else if (o->kind == TNI_DNN_OP_REDUCTION) {
        d = make(m, TNI_DNN_REDUCTION);
        set_enum(m, d, TNI_DNN_REDUCTION_MODE, TNI_DNN_TYPE_REDUCTION, o->mode);
        set_enum(m, d, TNI_DNN_REDUCTION_DTYPE, TNI_DNN_TYPE_DTYPE, o->dtype);
    } else if (o->kind == TNI_DNN_OP_MATMUL) {
        d = make(m, TNI_DNN_MATMUL);
        set_enum(m, d, TNI_DNN_MATMUL_DTYPE, TNI_DNN_TYPE_DTYPE, o->dtype);
    }
    if (d) finalize(m, d);
    return d;
}

// The attributes of a kind of op: its settings, its operands in order, its result, sizes of a
// product, and the factors of a convolution's result (alpha) and of what was there (beta). 0: none.
typedef struct {
    int kind, settings, x[3], y, sizes[3], alpha, beta;
} op_attributes;

// clang-format off
static const op_attributes op_kinds[] = {
    { TNI_DNN_OP_POINTWISE, TNI_DNN_POINTWISE_DESC, { TNI_DNN_POINTWISE_X, TNI_DNN_POINTWISE_B, TNI_DNN_POINTWISE_T },
      TNI_DNN_POINTWISE_Y, { 0 }, 0, 0 },
    { TNI_DNN_OP_REDUCTION, TNI_DNN_REDUCTION_DESC, { TNI_DNN_REDUCTION_X }, TNI_DNN_REDUCTION_Y, { 0 }, 0, 0 },
    { TNI_DNN_OP_MATMUL, TNI_DNN_MATMUL_DESC, { TNI_DNN_MATMUL_A, TNI_DNN_MATMUL_B }, TNI_DNN_MATMUL_C,
      { TNI_DNN_MATMUL_M, TNI_DNN_MATMUL_N, TNI_DNN_MATMUL_K }, 0, 0 },
    { TNI_DNN_OP_RESHAPE, 0, { TNI_DNN_RESHAPE_X }, TNI_DNN_RESHAPE_Y, { 0 }, 0, 0 },
    { TNI_DNN_OP_CONV, TNI_DNN_CONV_DESC, { TNI_DNN_CONV_X, TNI_DNN_CONV_W }, TNI_DNN_CONV_Y, { 0 },
      TNI_DNN_CONV_ALPHA, TNI_DNN_CONV_BETA },
    { TNI_DNN_OP_CONV_DX, TNI_DNN_CONV_DX_DESC, { TNI_DNN_CONV_DX_DY, TNI_DNN_CONV_DX_W }, TNI_DNN_CONV_DX_DX, { 0 },
      TNI_DNN_CONV_DX_ALPHA, TNI_DNN_CONV_DX_BETA },
    { TNI_DNN_OP_CONV_DW, TNI_DNN_CONV_DW_DESC, { TNI_DNN_CONV_DW_DY, TNI_DNN_CONV_DW_X }, TNI_DNN_CONV_DW_DW, { 0 },
      TNI_DNN_CONV_DW_ALPHA, TNI_DNN_CONV_DW_BETA },
};
// clang-format on

static const op_attributes *attributes_of(int64_t kind)
{
    const op_attributes *a = op_kinds;
    while (a->kind != kind) a++;
    return a;
}

static tni_dnndesc make_op(maker *m, const tni_dnn_op *o, const tni_dnndesc *tensor)
{
    const op_attributes *a        = attributes_of(o->kind);
    tni_dnndesc          settings = make_settings(m, o), d = make(m, (int)o->kind);
    if (settings) set_desc(m, d, a->settings, settings);
    for (int i = 0; i < 3; i++)
        if (o->x[i]) set_desc(m, d, a->x[i], tensor[o->x[i]]);
    for (int i = 0; i < 3; i++)
        if (o->sizes[i]) set_desc(m, d, a->sizes[i], tensor[o->sizes[i]]);
    set_desc(m, d, a->y, tensor[o->y]);
    if (a->alpha) set(m, d, a->alpha, TNI_DNN_TYPE_FLOAT, 1, &(float){ 1 });
    if (a->beta) set(m, d, a->beta, TNI_DNN_TYPE_FLOAT, 1, &(float){ 0 });
    finalize(m, d);
    return d;
}

static tni_dnndesc make_graph(maker *m, tni_dnnhandle handle)
{
    const tni_dnn_graph *g = &m->p->graph;
    tni_dnndesc          tensor[TNI_DNN_TENSORS + 1], op[TNI_DNN_OPS];
    for (int i = 0; i < g->tensors; i++) tensor[i + 1] = make_tensor(m, &g->tensor[i], i + 1);
    for (int i = 0; i < g->ops; i++) op[i] = make_op(m, &g->op[i], tensor);
    tni_dnndesc d = make(m, TNI_DNN_GRAPH);
    set(m, d, TNI_DNN_GRAPH_OPS, TNI_DNN_TYPE_DESC, g->ops, op);
    set(m, d, TNI_DNN_GRAPH_HANDLE, TNI_DNN_TYPE_HANDLE, 1, &handle);
    finalize(m, d);
    return d;
}

// ---- engines -----------------------------------------------------------------------------------

// Returns whether an engine may have its workspace; if not, p remembers why.
static bool admits_workspace(tni_dnn_plans *p, int64_t bytes)
{
    bool fits = !p->at.workspace || (bytes >= 0 && (size_t)bytes <= p->at.workspace);
    p->limited |= !fits;
    p->scarce |= !fits && bytes >= 0 && (size_t)bytes <= p->at.most_workspace;
    return fits;
}

// Returns what the library notes of a configuration's engine, or of its behavior, as bits; all of
// them if it does not say.
static int64_t notes_of(const tni_cudnn *dnn, tni_dnndesc config, int attribute, int type)
{
    int         note[64] = { 0 };
    int64_t     got = 0, count = 0, bits = 0;
    tni_dnndesc engine = NULL;
    int         e      = dnn->desc_create(TNI_DNN_ENGINE, &engine);
    if (!e) e = dnn->desc_get(config, TNI_DNN_CONFIG_ENGINE, TNI_DNN_TYPE_DESC, 1, &got, &engine);
    if (!e) e = dnn->desc_get(engine, attribute, type, 64, &count, note);
    for (int64_t i = 0; i < count && i < 64 && !e; i++) bits |= (int64_t)1 << (note[i] & 31);
    if (engine) dnn->desc_destroy(engine);
    return e ? -1 : bits;
}

// Returns whether an engine may be taken although the library has to compile it, and counts it if
// so.
static bool may_compile(maker *m, tni_dnndesc config)
{
    tni_dnn_plans *p = m->p;
    int64_t behavior = notes_of(m->dnn, config, TNI_DNN_ENGINE_BEHAVIOR, TNI_DNN_TYPE_BEHAVIOR);
    bool    compiles = behavior >= 0 && behavior >> TNI_DNN_BEHAVIOR_COMPILES & 1;
    return !compiles || !p->at.compiles || p->compiles++ < p->at.compiles;
}

// Adds a configuration to the candidates, unless there are enough, its engine is refused or it
// needs more workspace than there may be.
static void consider(maker *m, tni_dnndesc config)
{
    tni_dnn_plans *p = m->p;
    int64_t        n = 0;
    candidate      c = { .of = p, .config = config };
    if (p->count == TNI_DNN_CANDIDATES) return;
    if (m->dnn->desc_get(config, TNI_DNN_CONFIG_WORKSPACE, TNI_DNN_TYPE_INT64, 1, &n, &c.workspace))
        return;
    c.notes = notes_of(m->dnn, config, TNI_DNN_ENGINE_NOTES, TNI_DNN_TYPE_NOTE);
    if (c.notes & p->graph.refused) return;
    if (admits_workspace(p, c.workspace) && may_compile(m, config)) p->list[p->count++] = c;
}

// Asks for engines in one way, best first. The library says how many there are, then fills in as
// many descriptors as it is given.
static void ask_engines(maker *m, tni_dnndesc graph, int mode)
{
    int64_t     count = 0, got          = 0;
    tni_dnndesc config[MOST_CONFIGS], d = make(m, TNI_DNN_HEURISTIC);
    set_desc(m, d, TNI_DNN_HEURISTIC_GRAPH, graph);
    set_enum(m, d, TNI_DNN_HEURISTIC_MODE, TNI_DNN_TYPE_HEURISTIC, mode);
    finalize(m, d);
    if (!m->status)
        m->status = m->dnn->desc_get(d, TNI_DNN_HEURISTIC_RESULTS, TNI_DNN_TYPE_DESC, 0, &count,
                                     NULL);
    if (count > MOST_CONFIGS) count = MOST_CONFIGS;
    for (int64_t i = 0; i < count; i++) config[i] = make(m, TNI_DNN_CONFIG);
    if (m->status || count <= 0) return;
    m->status = m->dnn->desc_get(d, TNI_DNN_HEURISTIC_RESULTS, TNI_DNN_TYPE_DESC, count, &got,
                                 config);
    for (int64_t i = 0; i < count && i < got && !m->status; i++) consider(m, config[i]);
}

// Returns a handle of the library for a GPU, created at the first use.
static tni_dnnhandle get_handle(const tni_cudnn *dnn, tni_dnnhandle *list, int device, int *status)
{
    if (device < 0 || device >= GPUS) *status = TNI_DNN_INTERNAL;
    else if (!list[device]) *status = dnn->create(&list[device]);
    return *status ? NULL : list[device];
}

// Writes why the library declined: its own words, which name the check that failed.
static void explain_status(const tni_cudnn *dnn, int status, tni_text *why)
{
    char text[160] = "";
    dnn->last_error(text, sizeof text);
    text[sizeof text - 1]     = 0;
    text[strcspn(text, "\n")] = 0;
    tni_text_add(why, "cuDNN: %s%s%s", dnn->status_string(status), *text ? ": " : "", text);
}

// Remembers and logs what the library failed at. The lock is held.
static void report(const tni_cudnn *dnn, tni_dnn_plans *p, const char *what, int status)
{
    p->why = (tni_text){ "" };
    explain_status(dnn, status, &p->why);
    tni_library_log("%s: %s: %s", p->what, what, p->why.s);
}

// Describes the graph to the library and asks for engines: those that it thinks are fast or, if it
// knows none, those that always work. The lock is held.
static void propose(const tni_cudnn *dnn, tni_dnn_plans *p)
{
    maker         m      = { .dnn = dnn, .p = p };
    tni_dnnhandle handle = get_handle(dnn, self.build, p->at.device, &m.status);
    tni_dnndesc   graph  = p->graph.full ? NULL : make_graph(&m, handle);
    if (p->graph.full) m.status = TNI_DNN_INTERNAL;
    if (!m.status) ask_engines(&m, graph, TNI_DNN_HEURISTIC_A);
    if (m.status / 1000 == TNI_DNN_NOT_SUPPORTED / 1000 && graph) m.status = 0;
    if (!m.status && !p->count) ask_engines(&m, graph, TNI_DNN_HEURISTIC_FALLBACK);
    if (p->limited)
        tni_library_log("%s: engines that need more than %zu MB of workspace are left out", p->what,
                        p->at.workspace >> 20);
    if (m.status) explain_status(dnn, m.status, &p->why);
    else if (!p->count) tni_text_add(&p->why, "cuDNN has no engine for it");
    if (m.status) p->count = 0;
}

// ---- the disk ----------------------------------------------------------------------------------

// A disk key and the texts that it points into. The words of the graph are its source.
typedef struct {
    char        *source;
    char         version[32];
    tni_disk_key key;
} disk_key;

static bool write_key(const tni_cudnn *dnn, const tni_dnn_plans *p, disk_key *k)
{
    enum { WORD = 17 };
    const int64_t *word  = (const int64_t *)&p->graph;
    size_t         words = sizeof p->graph / sizeof *word, at = 0;
    k->source = malloc(words * WORD + 1);
    if (!k->source) return false;
    for (size_t i = 0; i < words; i++)
        at += (size_t)snprintf(k->source + at, WORD + 1, "%" PRIx64 " ", (uint64_t)word[i]);
    snprintf(k->version, sizeof k->version, "cuDNN %zu", dnn->version());
    k->key = (tni_disk_key){ "cudnn plan", k->source, p->at.timing ? "fastest" : "first",
                             k->version, p->at.gpu };
    return true;
}

static tni_disk *open_disk(void)
{
    if (!self.open) tni_disk_open(&self.disk);
    self.open = true;
    return &self.disk;
}

// What is on disk: what the library notes of the engine, then the plan as its text.
typedef struct {
    int64_t notes;
    char    text[];
} kept_plan;

// Makes a plan of the text that the library once wrote. A text that it no longer accepts is no
// error, and neither is a plan that needs more workspace than there may be now.
static bool load_plan(const tni_cudnn *dnn, tni_dnn_plans *p, const kept_plan *kept, size_t bytes)
{
    candidate    *c = &p->list[0];
    int64_t       n = 0;
    int           e = bytes <= sizeof *kept;
    tni_dnnhandle h = get_handle(dnn, self.build, p->at.device, &e);
    *c              = (candidate){ .of = p, .state = READY };
    if (!e) c->notes = kept->notes;
    if (!e) e = dnn->desc_create(TNI_DNN_PLAN, &c->plan);
    if (!e) e = dnn->desc_set(c->plan, TNI_DNN_PLAN_HANDLE, TNI_DNN_TYPE_HANDLE, 1, &h);
    if (!e)
        e = dnn->desc_set(c->plan, TNI_DNN_PLAN_JSON, TNI_DNN_TYPE_CHAR,
                          (int64_t)(bytes - sizeof *kept), kept->text);
    if (!e) e = dnn->desc_finalize(c->plan);
    if (!e)
        e = dnn->desc_get(c->plan, TNI_DNN_PLAN_WORKSPACE, TNI_DNN_TYPE_INT64, 1, &n,
                          &c->workspace);
    if (!e) e = !admits_workspace(p, c->workspace);
    if (e && c->plan) dnn->desc_destroy(c->plan);
    if (e) *c = (candidate){ 0 };
    return !e;
}

// Takes the plan that another process kept. The lock is held.
static bool find_kept(const tni_cudnn *dnn, tni_dnn_plans *p)
{
    disk_key k;
    size_t   bytes = 0;
    if (!write_key(dnn, p, &k)) return false;
    void *text = tni_disk_find(open_disk(), &k.key, &bytes);
    p->settled = text && load_plan(dnn, p, text, bytes);
    p->count   = p->settled;
    self.founds += p->settled;
    free(text);
    free(k.source);
    return p->settled;
}

// Writes a plan to disk as the library's text, which holds the compiled code; not if a faster
// engine may have been left out for lack of memory, since later processes would have the slower
// one. The lock is held.
static void keep_plan(const tni_cudnn *dnn, const tni_dnn_plans *p, const candidate *c)
{
    enum { JSON = TNI_DNN_PLAN_JSON, CHARS = TNI_DNN_TYPE_CHAR };
    disk_key k;
    int64_t  bytes = 0, got = 0;
    if (p->scarce) return;
    int        e    = dnn->desc_get(c->plan, JSON, CHARS, 0, &bytes, NULL);
    kept_plan *kept = !e && bytes > 0 ? malloc(sizeof *kept + (size_t)bytes) : NULL;
    if (kept) kept->notes = c->notes;
    if (kept) e = dnn->desc_get(c->plan, JSON, CHARS, bytes, &got, kept->text);
    if (kept && !e && got <= bytes && write_key(dnn, p, &k)) {
        tni_disk_keep(open_disk(), &k.key, kept, sizeof *kept + (size_t)got);
        free(k.source);
    }
    free(kept);
}

// ---- the table ---------------------------------------------------------------------------------

static void free_plans(const tni_cudnn *dnn, tni_dnn_plans *p)
{
    for (int i = 0; i < TNI_DNN_CANDIDATES; i++)
        if (p->list[i].plan) dnn->desc_destroy(p->list[i].plan);
    while (p->descs) dnn->desc_destroy(p->desc[--p->descs]);
    free(p);
}

static bool is_for(const tni_dnn_plans *p, uint64_t hash, const tni_dnn_graph *g,
                   const tni_dnn_env *at)
{
    return p->hash == hash && p->at.device == at->device && p->at.timing == at->timing &&
           !memcmp(&p->graph, g, sizeof *g);
}

// Makes the candidates of a graph and adds them to the table, also if there are none, so that the
// library is asked only once. NULL when memory is out. The lock is held.
static tni_dnn_plans *add_plans(const tni_dnn_graph *g, uint64_t hash, const tni_dnn_env *at,
                                const char *what)
{
    const tni_cudnn *dnn = library();
    tni_dnn_plans   *p   = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->hash  = hash;
    p->graph = *g;
    p->at    = *at;
    snprintf(p->what, sizeof p->what, "%s", what);
    if (!find_kept(dnn, p)) propose(dnn, p);
    if (!p->count) tni_library_log("%s: %s", p->what, p->why.s);
    p->next    = self.first;
    self.first = p;
    return p;
}

tni_dnn_plans *tni_dnn_find(const tni_dnn_graph *g, const tni_dnn_env *at, const char *what,
                            tni_text *why)
{
    uint64_t hash = tni_hash(g, sizeof *g);
    if (!tni_cudnn_get(why)) return NULL;
    pthread_mutex_lock(&self.lock);
    tni_dnn_plans *p = self.first;
    while (p && !is_for(p, hash, g, at)) p = p->next;
    if (!p) p = add_plans(g, hash, at, what);
    pthread_mutex_unlock(&self.lock);
    if (p && p->count) return p;
    tni_text_add(why, "%s", p ? p->why.s : "out of memory");
    return NULL;
}

// ---- compiling ---------------------------------------------------------------------------------

// Compiles one candidate, in any thread. The context is made current, since the library loads code
// into it; it is taken off again, for the thread may be the program's. Once the state is set, the
// candidate may be freed.
static void compile_candidate(void *arg)
{
    candidate        *c   = arg;
    const tni_dnn_env at  = c->of->at;
    const tni_cudnn  *dnn = library();
    tni_cucontext     old = NULL;
    tni_dnnhandle     h   = self.build[at.device];
    tni_dnndesc       d   = NULL;
    int64_t           n   = 0;
    at.cu->push_current(at.cx);
    tni_background_guard();
    int e = dnn->desc_create(TNI_DNN_PLAN, &d);
    if (!e) e = dnn->desc_set(d, TNI_DNN_PLAN_CONFIG, TNI_DNN_TYPE_DESC, 1, &c->config);
    if (!e) e = dnn->desc_set(d, TNI_DNN_PLAN_HANDLE, TNI_DNN_TYPE_HANDLE, 1, &h);
    if (!e) e = dnn->desc_finalize(d);
    pthread_mutex_lock(&self.lock);
    if (!e) e = dnn->desc_get(d, TNI_DNN_PLAN_WORKSPACE, TNI_DNN_TYPE_INT64, 1, &n, &c->workspace);
    if (e) report(dnn, c->of, "an engine cannot be compiled", e);
    if (e && d) dnn->desc_destroy(d);
    c->plan  = e ? NULL : d;
    c->state = e ? BROKEN : READY;
    self.compiles += !e;
    pthread_cond_broadcast(&self.compiled);
    pthread_mutex_unlock(&self.lock);
    at.cu->pop_current(&old);
}

// Queues a candidate, or compiles it here if there are no threads. The lock is held, and released
// meanwhile.
static void begin_candidate(candidate *c)
{
    if (c->state != UNBEGUN) return;
    c->state = COMPILING;
    pthread_mutex_unlock(&self.lock);
    if (!tni_background(compile_candidate, c, TNI_TASK_SOON)) compile_candidate(c);
    pthread_mutex_lock(&self.lock);
}

// If nothing is timed, only the first candidate is wanted, and the next ones only if it cannot be
// compiled.
void tni_dnn_begin(tni_dnn_plans *p)
{
    pthread_mutex_lock(&self.lock);
    for (int i = 0; i < p->count; i++)
        if (p->at.timing || i == 0) begin_candidate(&p->list[i]);
    pthread_mutex_unlock(&self.lock);
}

// Waits for one candidate, which is begun if it was not. The lock is held.
static bool await(candidate *c)
{
    begin_candidate(c);
    while (c->state == COMPILING) pthread_cond_wait(&self.compiled, &self.lock);
    return c->state == READY;
}

// Makes candidate i the only one. The lock is held.
static void settle_on(tni_dnn_plans *p, int i)
{
    candidate chosen = p->list[i];
    for (int k = 0; k < p->count; k++)
        if (k != i && p->list[k].plan) library()->desc_destroy(p->list[k].plan);
    memset(p->list, 0, sizeof p->list);
    p->list[0] = chosen;
    p->count   = 1;
    p->settled = true;
    keep_plan(library(), p, &chosen);
}

bool tni_dnn_wait(tni_dnn_plans *p)
{
    int first = -1;
    tni_dnn_begin(p);
    pthread_mutex_lock(&self.lock);
    for (int i = 0; i < p->count && (first < 0 || p->at.timing); i++)
        if (await(&p->list[i]) && first < 0) first = i;
    if (first >= 0 && !p->at.timing && !p->settled) settle_on(p, first);
    pthread_mutex_unlock(&self.lock);
    return first >= 0;
}

void tni_dnn_settle(tni_dnn_plans *p, int i)
{
    pthread_mutex_lock(&self.lock);
    bool all = true;
    for (int k = 0; k < p->count; k++) all = all && p->list[k].state != COMPILING;
    if (!p->settled && all && i < p->count && p->list[i].state == READY) settle_on(p, i);
    pthread_mutex_unlock(&self.lock);
}

int tni_dnn_count(const tni_dnn_plans *p)
{
    pthread_mutex_lock(&self.lock);
    int n = p->at.timing || p->settled ? p->count : 1;
    pthread_mutex_unlock(&self.lock);
    return n;
}

bool tni_dnn_has_note(const tni_dnn_plans *p, int note)
{
    bool has = false;
    pthread_mutex_lock(&self.lock);
    for (int i = 0; i < p->count; i++)
        has |= p->list[i].state != BROKEN && p->list[i].notes >> note & 1;
    pthread_mutex_unlock(&self.lock);
    return has;
}

bool tni_dnn_is_scarce(const tni_dnn_plans *p)
{
    return p->scarce;  // written before p is handed out
}

size_t tni_dnn_workspace(const tni_dnn_plans *p)
{
    int64_t most = 0;
    pthread_mutex_lock(&self.lock);
    for (int i = 0; i < p->count; i++)
        if (p->list[i].state != BROKEN && p->list[i].workspace > most) most = p->list[i].workspace;
    pthread_mutex_unlock(&self.lock);
    return (size_t)most;
}

// ---- running -----------------------------------------------------------------------------------

// Lists ids and addresses of the tensors that are not virtual.
static int64_t list_addresses(const tni_dnn_graph *g, const tni_dnn_binding *b, int64_t *id,
                              void **at)
{
    int64_t n = 0;
    for (int i = 0; i < g->tensors; i++) {
        if (g->tensor[i].where == TNI_DNN_VIRTUAL) continue;
        id[n]   = i + 1;
        at[n++] = b->at[i + 1];
    }
    return n;
}

// Gives the library its stream and the addresses, and launches.
static int execute(const tni_cudnn *dnn, const candidate *c, const tni_dnn_binding *b,
                   tni_custream s)
{
    int64_t       id[TNI_DNN_TENSORS];
    void         *at[TNI_DNN_TENSORS], *workspace = b->workspace;
    int64_t       n    = list_addresses(&c->of->graph, b, id, at);
    tni_dnndesc   pack = NULL;
    int           e    = 0;
    tni_dnnhandle h    = get_handle(dnn, self.run, c->of->at.device, &e);
    if (!e) e = dnn->set_stream(h, s);
    if (!e) e = dnn->desc_create(TNI_DNN_PACK, &pack);
    if (!e) e = dnn->desc_set(pack, TNI_DNN_PACK_IDS, TNI_DNN_TYPE_INT64, n, id);
    if (!e) e = dnn->desc_set(pack, TNI_DNN_PACK_POINTERS, TNI_DNN_TYPE_POINTER, n, at);
    if (!e) e = dnn->desc_set(pack, TNI_DNN_PACK_WORKSPACE, TNI_DNN_TYPE_POINTER, 1, &workspace);
    if (!e) e = dnn->desc_finalize(pack);
    if (!e) e = dnn->execute(h, c->plan, pack);
    if (pack) dnn->desc_destroy(pack);
    return e;
}

int tni_dnn_run(tni_dnn_plans *p, int candidate_number, const tni_dnn_binding *b, tni_custream s)
{
    const tni_cudnn *dnn = library();
    pthread_mutex_lock(&self.lock);
    candidate *c = &p->list[candidate_number];
    int        e = candidate_number < p->count && await(c) ? 0 : TNI_DNN_NOT_SUPPORTED;
    if (!e) {
        e = execute(dnn, c, b, s);
        if (e) report(dnn, p, "an engine does not run", e);
    }
    pthread_mutex_unlock(&self.lock);
    return e;
}

void tni_dnn_counts(int64_t *compiled, int64_t *found)
{
    pthread_mutex_lock(&self.lock);
    *compiled = self.compiles;
    *found    = self.founds;
    pthread_mutex_unlock(&self.lock);
}

// Waits for the candidates that other threads compile. The lock is held.
static void await_threads(tni_dnn_plans *p)
{
    for (int i = 0; i < TNI_DNN_CANDIDATES; i++)
        while (p->list[i].state == COMPILING) pthread_cond_wait(&self.compiled, &self.lock);
}

void tni_dnn_forget(void)
{
    const tni_cudnn *dnn = library();
    pthread_mutex_lock(&self.lock);
    self.open = false;
    for (tni_dnn_plans *p; dnn && (p = self.first);) {
        await_threads(p);
        self.first = p->next;
        free_plans(dnn, p);
    }
    for (int i = 0; i < GPUS && dnn; i++) {
        if (self.run[i]) dnn->destroy(self.run[i]);
        if (self.build[i]) dnn->destroy(self.build[i]);
        self.run[i] = self.build[i] = NULL;
    }
    pthread_mutex_unlock(&self.lock);
}
