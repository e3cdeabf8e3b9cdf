// Recording a run, capturing it, and launching it as a graph. replay.h tells when which of these is
// done.
//
// A run is compared with graphs by its log: the launches in their order with the bytes of their
// arguments, and one mark for each library call. A mark is the call's addresses, scale and
// epilogue, behind the number of launches before it; equal marks mean equal work at the same place.
#include "device/cuda/replay.h"

#include "device/cuda/gpu.h"

#include <stdlib.h>
#include <string.h>

// The first runs of a plan compile kernels and choose algorithms, and their temporaries may still
// move; only then is a run worth recording. A loop that alternates between a few sets of buffers
// finds a graph for each; GRAPHS bounds the memory they take. After MOST_CAPTURES captures the
// addresses of library calls evidently change all the time, and recording costs more than it saves.
enum { PLAIN_RUNS = 2, GRAPHS = 4, MOST_CAPTURES = 12 };

// A multiprocessor divides its memory anew only when it is idle. Where kernels are short and begin
// before others have ended, as those around products of few rows, all are to have it divided alike:
// half each.
enum { SHARED_PERCENT = 50 };

// A captured run: its log, with the node of each kernel, and the executable graph. exec is
// launched; nodes is the captured graph that exec was made from, kept because the nodes in the log
// belong to it. used is the run in which it was launched last.
typedef struct graph {
    tni_launch_log log;
    tni_cugraph    nodes;
    tni_cuexec     exec;
    uint64_t       used;
} graph;

// What a plan remembers between runs; the plan owns it (`memory` of the contract). Invariant: the
// first `graphs` entries of graph[] are complete graphs.
typedef struct tni_replay {
    tni_cuda     *c;
    uint64_t      runs;
    int           captures;
    bool          capture_next;  // capture the next run
    bool          no_graph;      // launch every run kernel by kernel
    bool          launch_once;   // launch the next run kernel by kernel
    bool          no_resume;     // record every run as a whole
    struct graph *last;          // the graph that the last run was; NULL: it was none
    bool          even;          // see tni_replay_evenly
    int           graphs;
    graph         graph[GRAPHS];
} replay;

// ---- logs --------------------------------------------------------------------------------------

// Frees a log's lists; the log is empty then and can be used again.
static void log_free(tni_heap *h, tni_launch_log *l)
{
    tni_free(h, l->launch);
    tni_free(h, l->offset);
    tni_free(h, l->bytes);
    tni_free(h, l->mark);
    tni_free(h, l->step);
    *l = (tni_launch_log){ 0 };
}

// Empties a log and keeps its memory for the next run.
static void log_clear(tni_launch_log *l)
{
    l->launches = l->offsets = l->byte_count = l->marks = l->steps = 0;
}

// Appends n items of a size to a list. Returns false, with the list unchanged, when memory is out.
static bool append_items(tni_heap *h, void *list, size_t *count, size_t *cap, const void *record,
                         size_t n, size_t size)
{
    void **at = list;
    if (!tni_grow(h, at, cap, *count + n, size)) return false;
    memcpy((char *)*at + *count * size, record, n * size);
    *count += n;
    return true;
}

// Adds a launch to a log: its record, the offsets of its arguments shifted to the log's own bytes,
// and the bytes.
static bool log_launch(tni_heap *h, tni_launch_log *l, const tni_launch_record *d,
                       const uint32_t *offset, const char *bytes)
{
    tni_launch_record copy = *d;
    uint32_t          base = (uint32_t)l->byte_count;
    copy.offset            = l->offsets;
    if (!append_items(h, &l->bytes, &l->byte_count, &l->byte_cap, bytes, offset[d->args], 1))
        return false;
    for (unsigned i = 0; i <= d->args; i++) {
        uint32_t at = base + offset[i];
        if (!append_items(h, &l->offset, &l->offsets, &l->offset_cap, &at, 1, sizeof at))
            return false;
    }
    return append_items(h, &l->launch, &l->launches, &l->launch_cap, &copy, 1, sizeof copy);
}

// Returns whether two runs launched the same kernels in the same order with the same number of
// arguments, and made the same library calls between them. Then one can be the other with new
// arguments.
static bool same_sequence(const tni_launch_log *a, const tni_launch_log *b)
{
    if (a->launches != b->launches || a->offsets != b->offsets || a->marks != b->marks)
        return false;
    if (a->marks && memcmp(a->mark, b->mark, a->marks)) return false;
    for (size_t i = 0; i < a->launches; i++)
        if (a->launch[i].f != b->launch[i].f || a->launch[i].args != b->launch[i].args)
            return false;
    return true;
}

// Returns the bytes of all arguments of a launch, which are next to each other in the log.
static const char *record_args(const tni_launch_log *l, const tni_launch_record *d, size_t *bytes)
{
    uint32_t first = l->offset[d->offset];
    *bytes         = l->offset[d->offset + d->args] - first;
    return l->bytes + first;
}

// Returns whether launch i needs no change in the graph: equal argument bytes, grid, block and
// shared memory. Padding between arguments is zeroed when they are packed, so that bytes can be
// compared.
static bool same_launch(const tni_launch_log *a, const tni_launch_log *b, size_t i)
{
    const tni_launch_record *x = &a->launch[i], *y = &b->launch[i];
    size_t                   m, n;
    const char              *p = record_args(a, x, &m), *q = record_args(b, y, &n);
    return m == n && !memcmp(p, q, n) && !memcmp(x->grid, y->grid, sizeof x->grid) &&
           !memcmp(x->block, y->block, sizeof x->block) && x->shared == y->shared;
}

// ---- launching ---------------------------------------------------------------------------------

// More than any kernel has: hand-written ones take TNI_KERNEL_ARGS, users' ones TNI_USER_ARRAYS +
// 1.
enum { MOST_ARGS = 64 };

// Fills the list of pointers to arguments that the driver takes.
static void point_at_args(const tni_launch_record *d, const uint32_t *offset, const char *bytes,
                          void **list)
{
    for (unsigned i = 0; i < d->args; i++) list[i] = (void *)(uintptr_t)(bytes + offset[i]);
}

// Launches now, or into a capture. A kernel whose text begins with m_begin may start while the one
// before it ends (programmatic dependent launch), an attribute of the driver's extended launch
// call. So is SHARED_PERCENT, what part of a multiprocessor's memory is to be shared memory rather
// than cache.
static int submit_record(const tni_cuda *c, const tni_launch_record *d, const uint32_t *offset,
                         const char *bytes)
{
    void                  *list[MOST_ARGS];
    unsigned               n = 0;
    tni_culaunch_attribute attribute[2];
    if (d->overlaps)
        attribute[n++] = (tni_culaunch_attribute){ .id            = TNI_CU_LAUNCH_OVERLAP,
                                                   .value.overlap = 1 };
    if (c->recorder.even)
        attribute[n++] = (tni_culaunch_attribute){ .id           = TNI_CU_LAUNCH_CARVEOUT,
                                                   .value.shared = SHARED_PERCENT };
    tni_culaunch l = { .gx         = d->grid[0],
                       .gy         = d->grid[1],
                       .gz         = d->grid[2],
                       .bx         = d->block[0],
                       .by         = d->block[1],
                       .bz         = d->block[2],
                       .shared     = d->shared,
                       .stream     = c->stream,
                       .attribute  = attribute,
                       .attributes = n };
    point_at_args(d, offset, bytes, list);
    if (n) return c->gpu->cu->launch_with(&l, d->f, list, NULL);
    return c->gpu->cu->launch(d->f, d->grid[0], d->grid[1], d->grid[2], d->block[0], d->block[1],
                              d->block[2], d->shared, c->stream, list, NULL);
}

// Gives a kernel of a graph other arguments, in the graph and in its log: record d, whose arguments
// are bytes[offset[i]] and so on. A launch of the graph that is still running keeps the arguments
// it was launched with.
static int change_node(tni_cuda *c, graph *g, tni_launch_record *old, const tni_launch_record *d,
                       const uint32_t *offset, const char *bytes)
{
    void             *list[MOST_ARGS];
    tni_cunode_params p = { .f      = d->f,
                            .gx     = d->grid[0],
                            .gy     = d->grid[1],
                            .gz     = d->grid[2],
                            .bx     = d->block[0],
                            .by     = d->block[1],
                            .bz     = d->block[2],
                            .shared = d->shared,
                            .args   = list };
    point_at_args(d, offset, bytes, list);
    int error = old->node ? c->gpu->cu->exec_set(g->exec, old->node, &p) : TNI_CU_NOT_FOUND;
    if (error) return error;
    memcpy(g->log.bytes + g->log.offset[old->offset], bytes + offset[0],
           offset[d->args] - offset[0]);
    memcpy(old->grid, d->grid, sizeof d->grid);
    memcpy(old->block, d->block, sizeof d->block);
    old->shared = d->shared;
    c->recorder.changed++;
    return TNI_CU_OK;
}

// Changes the next launch of the graph that is resumed to d. A run that turns out to be another one
// is submitted again as a whole.
static int change_next(tni_cuda *c, const tni_launch_record *d, const uint32_t *offset,
                       const char *bytes)
{
    tni_recorder      *r     = &c->recorder;
    graph             *g     = r->plan->last;
    tni_launch_record *old   = r->at < g->log.launches ? &g->log.launch[r->at++] : NULL;
    size_t             count = 0, n = offset[d->args] - offset[0];
    if (old) record_args(&g->log, old, &count);
    if (!old || old->f != d->f || old->args != d->args || count != n ||
        change_node(c, g, old, d, offset, bytes) != TNI_CU_OK)
        r->failed = true;
    return TNI_CU_OK;
}

// In a capture the node that the driver just made is noted beside the record; without it the node
// cannot get new arguments, and a run that differs needs a new capture. When the log cannot grow,
// the run goes on and ends as one that is no graph.
int tni_replay_launch(tni_cuda *c, const tni_launch_record *record, const uint32_t *offset,
                      const char *bytes)
{
    tni_recorder     *r = &c->recorder;
    tni_launch_record d = *record;
    int               e = tni_rows_submit(c);
    if (e) return e;
    if (r->mode == TNI_REPLAY_LAUNCH) tni_cuda_await_uploads(c);
    r->submitted++;
    r->launched++;
    r->last_block |= d.last_block;
    if (r->mode == TNI_REPLAY_CHANGE) return change_next(c, record, offset, bytes);
    if (r->mode != TNI_REPLAY_RECORD) {
        int error = submit_record(c, &d, offset, bytes);
        if (!error && r->mode == TNI_REPLAY_CAPTURE)
            tni_capture_last(c->gpu->cu, c->stream, &d.node);  // NULL: it cannot be changed
        if (error || r->mode == TNI_REPLAY_LAUNCH) return error;
    }
    if (!log_launch(c->heap, &r->now, &d, offset, bytes)) r->failed = true;
    return TNI_CU_OK;
}

int tni_replay_launch_one(tni_cuda *c, tni_cufunction f, int64_t blocks, int threads, int shared,
                          const void *arg, size_t bytes)
{
    uint32_t          offset[] = { 0, (uint32_t)bytes };
    tni_launch_record d        = { .f        = f,
                                   .grid     = { (unsigned)blocks, 1, 1 },
                                   .block    = { (unsigned)threads, 1, 1 },
                                   .shared   = (unsigned)shared,
                                   .overlaps = c->gpu->overlaps,
                                   .args     = 1 };
    return blocks <= INT32_MAX ? tni_replay_launch(c, &d, offset, arg) : TNI_CU_INVALID_VALUE;
}

// The position in front of the mark makes a call between other kernels another mark.
bool tni_replay_library_call(tni_cuda *c, const void *mark, size_t bytes)
{
    tni_recorder *r = &c->recorder;
    if (tni_rows_submit(c)) r->failed = true;
    r->submitted++;
    r->launched   = 0;
    r->unfinished = r->step;
    if (r->mode == TNI_REPLAY_LAUNCH) {
        tni_cuda_await_uploads(c);
        return true;
    }
    if (r->mode == TNI_REPLAY_CHANGE) {  // a library call cannot be changed
        r->failed = true;
        return false;
    }
    uint64_t place = r->now.launches;  // which kernels the call is between
    if (!append_items(c->heap, &r->now.mark, &r->now.marks, &r->now.mark_cap, &place, sizeof place,
                      1) ||
        !append_items(c->heap, &r->now.mark, &r->now.marks, &r->now.mark_cap, mark, bytes, 1))
        r->failed = true;
    return r->mode == TNI_REPLAY_CAPTURE;
}

// What kernels made since the last library call, in this step of the plan or a later one, may be
// unfinished; that call waited for all before it and let nothing begin before its end. Nothing
// begins early behind what is no kernel, launched or in a graph.
int tni_replay_finish(tni_cuda *c, int64_t newest, void *word)
{
    tni_recorder *r = &c->recorder;
    struct {
        const char *what;
        void       *word;
    } mark = { "finish", word };
    if (!c->gpu->overlaps || !(r->launched || tni_rows_wait(c)) || newest < r->unfinished)
        return TNI_CU_OK;
    if (!tni_replay_library_call(c, &mark, sizeof mark)) return TNI_CU_OK;
    return c->gpu->cu->set8((tni_cuptr)(uintptr_t)word, 0, 4, c->stream);
}

void tni_replay_provisional(tni_cuda *c)
{
    c->recorder.provisional = true;
}

void tni_replay_never_graph(tni_cuda *c)
{
    if (c->recorder.plan) c->recorder.plan->no_graph = true;
}

// ---- graphs ------------------------------------------------------------------------------------

// Frees a graph of a plan. A graph that is running is freed by the driver when it is done.
static void graph_free(replay *p, graph *g)
{
    const tni_driver *cu = p->c->gpu->cu;
    if (g->exec) cu->exec_destroy(g->exec);
    if (g->nodes) cu->graph_destroy(g->nodes);
    log_free(p->c->heap, &g->log);
    *g = (graph){ 0 };
}

// Returns the graph of a plan whose launches and library calls are those of the current run; NULL
// if there is none.
static graph *find_graph(replay *p)
{
    for (int i = 0; i < p->graphs; i++)
        if (same_sequence(&p->graph[i].log, &p->c->recorder.now)) return &p->graph[i];
    return NULL;
}

// Launches a graph in the place of the whole run.
static int launch_graph(tni_cuda *c, graph *g)
{
    int error            = c->gpu->cu->exec_launch(g->exec, c->stream);
    g->used              = ++c->recorder.plan->runs;
    c->recorder.launched = 0;  // what follows waits for all of a graph
    if (!error) c->recorder.plan->last = g;
    c->recorder.graphs += !error;
    return error;
}

// Runs what was recorded: changes the nodes that differ in a graph of the same sequence, and
// launches it. Sets *again if there is no such graph, so that the engine submits the run once more:
// to be captured, or, if the log is incomplete, a node could not be changed or there were too many
// captures, to be launched kernel by kernel for good. A provisional run is submitted again and
// launched once: the next may have better kernels.
static int run_recorded(tni_cuda *c, bool *again)
{
    replay *p     = c->recorder.plan;
    graph  *g     = c->recorder.failed ? NULL : find_graph(p);
    int     error = TNI_CU_OK;
    if (c->recorder.provisional) {
        p->launch_once = *again = true;
        return error;
    }
    for (size_t i = 0; g && !error && i < g->log.launches; i++) {
        const tni_launch_log    *now = &c->recorder.now;
        const tni_launch_record *d   = &now->launch[i];
        if (!same_launch(&g->log, now, i))
            error = change_node(c, g, &g->log.launch[i], d, now->offset + d->offset, now->bytes);
    }
    if (g && !error) return launch_graph(c, g);
    if (error || ++p->captures > MOST_CAPTURES || c->recorder.failed) p->no_graph = true;
    else p->capture_next = true;
    *again = true;
    return TNI_CU_OK;
}

// Returns a place for one more graph: a free one, or that of the graph used least recently.
static graph *new_graph(replay *p)
{
    if (p->graphs < GRAPHS) return &p->graph[p->graphs++];
    graph *oldest = &p->graph[0];
    for (int i = 1; i < GRAPHS; i++)
        if (p->graph[i].used < oldest->used) oldest = &p->graph[i];
    graph_free(p, oldest);
    return oldest;
}

// Captures in a stream of the session's own, since the default stream of a caller cannot be
// captured.
static int begin_capture(tni_cuda *c)
{
    c->recorder.outside = c->stream;
    if (c->own) c->stream = c->own;
    int error = c->gpu->cu->capture_begin(c->stream, TNI_CU_CAPTURE_RELAXED);
    if (error) c->stream = c->recorder.outside;
    return error;
}

static int end_capture(tni_cuda *c, tni_cugraph *nodes)
{
    int error = c->gpu->cu->capture_end(c->stream, nodes);
    c->stream = c->recorder.outside;
    return error;
}

// Makes a graph of the capture that ends, with the log of the run, and launches it: capturing
// executed nothing. If the driver cannot make a graph of it, the run is submitted again and the
// plan launched kernel by kernel from then on.
static int finish_capture(tni_cuda *c, bool *again)
{
    const tni_driver *cu    = c->gpu->cu;
    replay           *p     = c->recorder.plan;
    tni_cugraph       nodes = NULL;
    tni_cuexec        exec  = NULL;
    int               error = end_capture(c, &nodes);
    if (!error && !c->recorder.failed) error = cu->exec_create(&exec, nodes, 0);
    if (error || c->recorder.failed || !exec) {
        if (nodes) cu->graph_destroy(nodes);
        p->no_graph = *again = true;
        return TNI_CU_OK;
    }
    graph *g        = new_graph(p);
    *g              = (graph){ .log = c->recorder.now, .nodes = nodes, .exec = exec };
    c->recorder.now = (tni_launch_log){ 0 };
    return launch_graph(c, g);
}

// ---- the contract ------------------------------------------------------------------------------

// Returns how the next run of a plan is submitted.
static tni_replay_mode mode_of(const replay *p)
{
    if (!p || p->no_graph || p->launch_once || p->runs < PLAIN_RUNS || p->c->no_graphs ||
        p->c->capturing)
        return TNI_REPLAY_LAUNCH;
    return p->capture_next ? TNI_REPLAY_CAPTURE : TNI_REPLAY_RECORD;
}

// A graph begins when all before it has ended. Outside of graphs kernels of the plan before may
// still be running.
static void begin_steps(tni_recorder *r)
{
    bool becomes_graph = r->mode == TNI_REPLAY_RECORD || r->mode == TNI_REPLAY_CAPTURE;
    r->step            = 0;
    r->unfinished      = becomes_graph ? 0 : -1;
    if (becomes_graph) r->launched = 0;
}

// The contract's begin: decides on the mode and, for a capture, begins it. Waiting for uploads
// comes before that, since an event from outside must not be part of the graph.
void tni_replay_begin(void *session, void **memory)
{
    tni_cuda     *c = session;
    tni_recorder *r = &c->recorder;
    if (!*memory) {
        replay *p = tni_zalloc(c->heap, sizeof *p);
        if (p) p->c = c;
        *memory = p;
    }
    tni_cuda_enter(c);
    r->plan        = *memory;
    r->failed      = false;
    r->submitted   = 0;
    r->last_block  = false;
    r->provisional = false;
    r->mode        = mode_of(r->plan);
    begin_steps(r);
    if (r->plan) r->plan->launch_once = false;
    if (r->plan) r->plan->last = NULL;
    log_clear(&r->now);
    tni_cuda_await_uploads(c);
    if (r->mode != TNI_REPLAY_CAPTURE) return;
    r->plan->capture_next = false;
    r->even               = c->gpu->divides && r->plan->even;
    if (begin_capture(c) == TNI_CU_OK) return;
    r->plan->no_graph = true;
    r->mode           = TNI_REPLAY_LAUNCH;
    begin_steps(r);
}

// The contract's resume. Kernels that are not compiled yet, or plans without a graph, are submitted
// as a whole.
bool tni_replay_resume(void *session, void *memory)
{
    tni_cuda     *c = session;
    tni_recorder *r = &c->recorder;
    replay       *p = memory;
    if (!p || !p->last || p->no_resume || mode_of(p) != TNI_REPLAY_RECORD) return false;
    tni_cuda_enter(c);
    tni_cuda_await_uploads(c);
    r->plan        = p;
    r->failed      = false;
    r->submitted   = 0;
    r->last_block  = false;
    r->provisional = false;
    r->mode        = TNI_REPLAY_CHANGE;
    r->at          = SIZE_MAX;
    return true;
}

// A launch that still waits for others to join it comes before this step's.
void tni_replay_step(void *session, size_t step)
{
    tni_cuda       *c    = session;
    tni_recorder   *r    = &c->recorder;
    tni_launch_log *l    = r->mode == TNI_REPLAY_CHANGE ? &r->plan->last->log : &r->now;
    size_t          next = l->launches + tni_rows_wait(c);
    if (!step && r->mode == TNI_REPLAY_LAUNCH) begin_steps(r);  // a run that begin does not know of
    r->step = (int64_t)step;
    if (r->mode == TNI_REPLAY_LAUNCH) return;
    if (r->mode == TNI_REPLAY_CHANGE) r->at = step < l->steps ? l->step[step] : SIZE_MAX;
    else if (step != l->steps ||
             !append_items(c->heap, &l->step, &l->steps, &l->step_cap, &next, 1, sizeof *l->step))
        r->failed = true;
}

void tni_replay_evenly(tni_cuda *c)
{
    if (c->recorder.plan) c->recorder.plan->even = true;
}

size_t tni_replay_this_step(const tni_cuda *c)
{
    return c->recorder.now.steps - 1;
}

void tni_replay_shares(tni_cuda *c, size_t step)
{
    tni_launch_log *l = &c->recorder.now;
    if (step < l->steps) l->step[step] = SIZE_MAX;
}

// Launches the graph that was changed. If the run could not be expressed as changes, it is
// submitted again, and so are all later ones.
static int run_changed(tni_cuda *c, bool *again)
{
    replay *p = c->recorder.plan;
    if (!c->recorder.failed && !c->recorder.provisional) return launch_graph(c, p->last);
    p->no_resume = *again = true;
    return TNI_CU_OK;
}

// The contract's end. A capture that failed halfway is thrown away, and the plan is not captured
// again: launched kernel by kernel it may work. A run that was launched counts towards PLAIN_RUNS;
// if it turns out to be a single kernel, a graph would gain nothing (see replay.h).
tn_status tni_replay_end(void *session, bool ok, bool *again, tni_text *why)
{
    tni_cuda     *c     = session;
    tni_recorder *r     = &c->recorder;
    int           error = tni_rows_submit(c);
    *again              = false;
    if (error) ok = false;
    if (!ok && r->mode == TNI_REPLAY_CAPTURE) {
        tni_cugraph nodes = NULL;
        end_capture(c, &nodes);
        if (nodes) c->gpu->cu->graph_destroy(nodes);
        r->plan->no_graph = true;  // launched kernel by kernel it may work
    } else if (ok && r->mode == TNI_REPLAY_CAPTURE) {
        error = finish_capture(c, again);
    } else if (ok && r->mode == TNI_REPLAY_CHANGE) {
        error = run_changed(c, again);
    } else if (ok && r->mode == TNI_REPLAY_RECORD) {
        error = run_recorded(c, again);
    } else if (r->plan && !r->provisional) {
        r->plan->runs++;
        r->plan->no_graph |= ok && r->submitted <= 1 && !r->last_block;
    }
    r->plan = NULL;
    r->mode = TNI_REPLAY_LAUNCH;
    r->even = false;
    return tni_cuda_status(c, error, "launching a graph", why);
}

// The contract's forget: called when a plan is freed.
void tni_replay_forget(void *memory)
{
    replay *p = memory;
    if (!p) return;
    tni_cuda_enter(p->c);
    for (int i = 0; i < p->graphs; i++) graph_free(p, &p->graph[i]);
    tni_free(p->c->heap, p);
}

void tni_replay_close(tni_cuda *c)
{
    log_free(c->heap, &c->recorder.now);
}
