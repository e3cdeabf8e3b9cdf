// Runs of the same shapes, without walking the nodes again. A program runs a model with the same
// shapes many times, and what is recorded depends on shapes alone: unless a node reads values, as
// NonZero does, the second run records what the first did.
//
//   run 1, 2    recorded, as lazily as any op
//   run 3       recorded of copies of the inputs, and kept as an executable (engine/executable.c)
//   run 4 ...   the inputs are copied, the executable runs, the outputs are copied
//
// Runs that measure (tn_tune) are recorded, and this count begins anew behind them. The first may
// be run 3: a plan is measured from its second run on, and that of run 1 loads weights, too.
//
// Recording costs 4 to 10 us a node, which is half of the time of a small model on a GPU; copies
// cost nearly nothing. A few shapes are kept at a time, as for batches of several sizes.
#include "engine/engine.h"
#include "onnx/onnx_object.h"

#include <string.h>

// Runs that are recorded before one is kept: a program that runs a model once or twice pays
// nothing.
enum { RECORDED = 2 };

// The value, and for an input its shape, of a port in a run.
typedef struct {
    int32_t  value;
    int      rank;
    tn_dtype dtype;
    int64_t  size[TN_MAX_RANK];
} port;

struct tni_onnx_again {
    int             nx, ny;
    port           *port;  // of inputs, then of outputs
    tn_tensor     **x;     // that the executable reads; NULL before there is one
    tn_dtype        autocast;
    tni_executable *executable;
    int             runs;     // recorded since anything was measured
    uint64_t        tunings;  // of the engine, when the newest of them began
    bool            never;    // what is recorded cannot be kept
    bool            begun;    // the run in progress may be kept
    int64_t         syncs;    // of the context, when it began
    uint64_t        used;     // the model's count of runs then
};

static void forget_inputs(tn_ctx *cx, tni_onnx_again *a)
{
    for (int i = 0; a->x && i < a->nx; i++)
        if (a->x[i]) tn_release(a->x[i]);
    tni_free(&cx->heap, a->x);
    a->x = NULL;
}

static void forget_one(tn_onnx *m, tni_onnx_again *a)
{
    tni_heap *h = &m->owned.cx->heap;
    tni_executable_free(a->executable);
    forget_inputs(m->owned.cx, a);
    tni_free(h, a->port);
    tni_free(h, a);
}

void tni_onnx_forget_runs(tn_onnx *m)
{
    for (int i = 0; i < TNI_ONNX_AGAIN; i++) {
        if (m->again[i]) forget_one(m, m->again[i]);
        m->again[i] = NULL;
    }
}

// ---- finding -----------------------------------------------------------------------------------

// Describes the inputs and outputs of a call. False if they are such that recording is needed, or
// says what is wrong.
static bool describe(tn_onnx *m, const tni_onnx_ask *k, port *p)
{
    for (int i = 0; i < k->nx; i++) {
        tn_tensor *x = k->x[i];
        if (!x || x->complex || tn_needs_grad(x) || tn_ctx_of(x) != m->owned.cx) return false;
        p[i].rank  = tn_rank(x);
        p[i].dtype = tn_dtype_of(x);
        for (int a = 0; a < p[i].rank; a++) p[i].size[a] = tn_size(x, a);
        const char *name = k->x_names ? k->x_names[i] : i < m->ins ? m->in[i].name : NULL;
        p[i].value       = name ? tni_onnx_named(&m->model, name) : TNI_ONNX_NONE;
        if (p[i].value < 0) return false;
    }
    for (int i = 0; i < k->ny; i++) {
        const char *name   = k->y_names ? k->y_names[i] : i < m->outs ? m->out[i].name : NULL;
        p[k->nx + i].value = name ? tni_onnx_named(&m->model, name) : TNI_ONNX_NONE;
        if (p[k->nx + i].value < 0) return false;
    }
    return true;
}

static bool is_alike(const tni_onnx_again *a, const tni_onnx_ask *k, const port *p,
                     tn_dtype autocast)
{
    return a && a->nx == k->nx && a->ny == k->ny && a->autocast == autocast &&
           !memcmp(a->port, p, (size_t)(k->nx + k->ny) * sizeof *p);
}

// Puts a new entry into the place that was used longest ago. Takes p over; NULL when memory is out,
// which only means that the run is recorded.
static tni_onnx_again *add_entry(tn_onnx *m, const tni_onnx_ask *k, port *p, tn_dtype autocast)
{
    tni_onnx_again *a  = tni_zalloc(&m->owned.cx->heap, sizeof *a);
    int             at = 0;
    if (!a) return NULL;
    for (int i = 1; i < TNI_ONNX_AGAIN; i++)
        if (m->again[at] && (!m->again[i] || m->again[i]->used < m->again[at]->used)) at = i;
    if (m->again[at]) forget_one(m, m->again[at]);
    *a = (tni_onnx_again){ .nx = k->nx, .ny = k->ny, .port = p, .autocast = autocast };
    return m->again[at] = a;
}

// Weights of a layer may change at any time, and training is another network; whoever looks at the
// model sees each run.
tni_onnx_again *tni_onnx_find_run(tn_onnx *m, const tni_onnx_ask *k)
{
    tn_ctx *cx = m->owned.cx;
    if (m->layer || m->trained || m->run.seen || m->run.training || cx->trace || cx->recording ||
        cx->busy || k->nx < 0 || k->ny < 1)
        return NULL;
    port           *p     = tni_zalloc(&cx->heap, (size_t)(k->nx + k->ny) * sizeof *p);
    tni_onnx_again *found = NULL;
    bool            told  = p && describe(m, k, p);
    for (int i = 0; told && i < TNI_ONNX_AGAIN; i++)
        if (is_alike(m->again[i], k, p, cx->autocast)) found = m->again[i];
    if (told && !found && (found = add_entry(m, k, p, cx->autocast)) != NULL) p = NULL;
    tni_free(&cx->heap, p);
    if (found) found->used = ++m->runs;
    return found;
}

// ---- running -----------------------------------------------------------------------------------

// An executable does not change any more, and what is measured may find a faster one.
bool tni_onnx_run_again(const tn_ctx *cx, tni_onnx_again *a, tn_tensor *const *x, tn_tensor **y)
{
    bool ok = a->executable && a->tunings == cx->engine->tunings;
    for (int i = 0; ok && i < a->nx; i++) ok = tni_executable_write(a->x[i], x[i]);
    ok = ok && tni_executable_run(a->executable);
    return ok && tni_onnx_results(a, y);
}

bool tni_onnx_results(const tni_onnx_again *a, tn_tensor **y)
{
    bool ok = true;
    for (int i = 0; ok && i < a->ny; i++)
        ok = (y[i] = tni_executable_result(a->executable, i)) != NULL;
    return ok;
}

// Copies the inputs to where the executable will read them.
static bool keep_inputs(tn_ctx *cx, tni_onnx_again *a, tn_tensor *const *x)
{
    a->x    = tni_zalloc(&cx->heap, (size_t)a->nx * sizeof *a->x + 1);
    bool ok = a->x || tni_no_memory(cx, "onnx_run");
    for (int i = 0; ok && i < a->nx; i++) {
        ok = (a->x[i] = tni_executable_input(x[i])) != NULL;
        if (ok) tn_retain(a->x[i]);
    }
    return ok;
}

// An executable that a run could not be repeated with is given up: the next one is made of what is
// recorded now.
bool tni_onnx_begin_keeping(tn_ctx *cx, tni_onnx_again *a, tn_tensor *const **x)
{
    if (a->tunings != cx->engine->tunings) a->runs = 0;
    a->tunings   = cx->engine->tunings;
    int recorded = RECORDED + (cx->engine->tune_seconds > 0);
    a->begun     = !a->never && a->runs++ >= recorded;
    tni_executable_free(a->executable);
    a->executable = NULL;
    forget_inputs(cx, a);  // results of the last run may still be pending on them
    if (!a->begun) return true;
    if (!keep_inputs(cx, a, *x)) return false;
    *x       = a->x;
    a->syncs = cx->stats.syncs;
    return true;
}

// A value that was read while the nodes were walked may have decided what was recorded.
bool tni_onnx_end_keeping(tn_ctx *cx, tni_onnx_again *a, tn_tensor **y, bool *kept)
{
    bool     later    = false;
    uint64_t failures = cx->failures;
    *kept             = false;
    if (!a->begun) return true;
    if (a->syncs == cx->stats.syncs) a->executable = tni_executable_new(cx, a->ny, y, &later);
    *kept = a->executable != NULL;
    if (cx->failures != failures) return false;
    a->never = !*kept && !later;
    return true;
}
