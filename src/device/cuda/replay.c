// Writing a run down, capturing it, and launching it as a graph.
#include "device/cuda/replay.h"

#include "device/cuda/gpu.h"

#include <stdlib.h>
#include <string.h>

enum { PLAIN_RUNS = 2, GRAPHS = 4, MOST_CAPTURES = 12 };

// A run as a graph: record it did, with the node of each kernel, and the graph that can be launched.
// The nodes belong to the first of the two graphs, which is kept for that.
typedef struct {
    tni_launch_log log;
    tni_cugraph    nodes;
    tni_cuexec     exec;
    uint64_t       used;
} graph;

// What is kept of a plan, which owns it.
typedef struct tni_replay {
    tni_cuda *c;
    uint64_t  runs;
    int       captures;
    bool      capture_next;  // the run that begins next is to be captured
    bool      no_graph;      // launches are plain
    bool      launch_once;   // those of the next run are
    int       graphs;
    graph     graph[GRAPHS];
} replay;

// ---- logs --------------------------------------------------------------------------------------

static void log_free(tni_heap *h, tni_launch_log *l)
{
    tni_free(h, l->launch);
    tni_free(h, l->offset);
    tni_free(h, l->bytes);
    tni_free(h, l->mark);
    *l = (tni_launch_log){ 0 };
}

static void log_clear(tni_launch_log *l)
{
    l->launches = l->offsets = l->byte_count = l->marks = 0;
}

// Appends n items of a size to a list; false when memory is out.
static bool append_items(tni_heap *h, void *list, size_t *count, size_t *cap, const void *record,
                         size_t n, size_t size)
{
    void **at = list;
    if (!tni_grow(h, at, cap, *count + n, size)) return false;
    memcpy((char *)*at + *count * size, record, n * size);
    *count += n;
    return true;
}

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

// The same kernels in the same order, and the same work of libraries.
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

static const char *args_of(const tni_launch_log *l, const tni_launch_record *d, size_t *bytes)
{
    uint32_t first = l->offset[d->offset];
    *bytes         = l->offset[d->offset + d->args] - first;
    return l->bytes + first;
}

static bool same_launch(const tni_launch_log *a, const tni_launch_log *b, size_t i)
{
    const tni_launch_record *x = &a->launch[i], *y = &b->launch[i];
    size_t                   m, n;
    const char              *p = args_of(a, x, &m), *q = args_of(b, y, &n);
    return m == n && !memcmp(p, q, n) && !memcmp(x->grid, y->grid, sizeof x->grid) &&
           !memcmp(x->block, y->block, sizeof x->block) && x->shared == y->shared;
}

// ---- launching ---------------------------------------------------------------------------------

enum { MOST_ARGS = 64 };

static void point_at_args(const tni_launch_record *d, const uint32_t *offset, const char *bytes,
                          void **list)
{
    for (unsigned i = 0; i < d->args; i++) list[i] = (void *)(uintptr_t)(bytes + offset[i]);
}

static int launch_kernel(const tni_cuda *c, const tni_launch_record *d, const uint32_t *offset,
                         const char *bytes)
{
    void                  *list[MOST_ARGS];
    tni_culaunch_attribute overlap = { .id = TNI_CU_LAUNCH_OVERLAP, .value.overlap = 1 };
    tni_culaunch           l       = { .gx         = d->grid[0],
                                       .gy         = d->grid[1],
                                       .gz         = d->grid[2],
                                       .bx         = d->block[0],
                                       .by         = d->block[1],
                                       .bz         = d->block[2],
                                       .shared     = d->shared,
                                       .stream     = c->stream,
                                       .attribute  = &overlap,
                                       .attributes = 1 };
    point_at_args(d, offset, bytes, list);
    if (d->overlaps) return c->gpu->cu->launch_with(&l, d->f, list, NULL);
    return c->gpu->cu->launch(d->f, d->grid[0], d->grid[1], d->grid[2], d->block[0], d->block[1],
                              d->block[2], d->shared, c->stream, list, NULL);
}

int tni_replay_launch(tni_cuda *c, const tni_launch_record *record, const uint32_t *offset,
                      const char *bytes)
{
    tni_recorder     *r = &c->recorder;
    tni_launch_record d = *record;
    if (r->mode == TNI_REPLAY_LAUNCH) tni_cuda_await_uploads(c);
    r->submitted++;
    r->last_block |= d.last_block;
    if (r->mode != TNI_REPLAY_RECORD) {
        int error = launch_kernel(c, &d, offset, bytes);
        if (!error && r->mode == TNI_REPLAY_CAPTURE)
            tni_capture_last(c->gpu->cu, c->stream, &d.node);  // without it, it cannot be changed
        if (error || r->mode == TNI_REPLAY_LAUNCH) return error;
    }
    if (!log_launch(c->heap, &r->now, &d, offset, bytes)) r->failed = true;
    return TNI_CU_OK;
}

bool tni_replay_library_call(tni_cuda *c, const void *mark, size_t bytes)
{
    tni_recorder *r = &c->recorder;
    r->submitted++;
    if (r->mode == TNI_REPLAY_LAUNCH) {
        tni_cuda_await_uploads(c);
        return true;
    }
    uint64_t place = r->now.launches;  // between which kernels
    if (!append_items(c->heap, &r->now.mark, &r->now.marks, &r->now.mark_cap, &place, sizeof place,
                      1) ||
        !append_items(c->heap, &r->now.mark, &r->now.marks, &r->now.mark_cap, mark, bytes, 1))
        r->failed = true;
    return r->mode == TNI_REPLAY_CAPTURE;
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

static void graph_free(replay *p, graph *g)
{
    const tni_driver *cu = p->c->gpu->cu;
    if (g->exec) cu->exec_destroy(g->exec);
    if (g->nodes) cu->graph_destroy(g->nodes);
    log_free(p->c->heap, &g->log);
    *g = (graph){ 0 };
}

static graph *find_graph(replay *p)
{
    for (int i = 0; i < p->graphs; i++)
        if (same_sequence(&p->graph[i].log, &p->c->recorder.now)) return &p->graph[i];
    return NULL;
}

// Gives kernel i of a graph record the run at hand has for it. What is running keeps record it has.
static int change_node(tni_cuda *c, graph *g, size_t i)
{
    const tni_launch_log    *now = &c->recorder.now;
    const tni_launch_record *d   = &now->launch[i];
    tni_launch_record       *old = &g->log.launch[i];
    void                    *list[MOST_ARGS];
    tni_cunode_params        p = { .f      = d->f,
                                   .gx     = d->grid[0],
                                   .gy     = d->grid[1],
                                   .gz     = d->grid[2],
                                   .bx     = d->block[0],
                                   .by     = d->block[1],
                                   .bz     = d->block[2],
                                   .shared = d->shared,
                                   .args   = list };
    point_at_args(d, now->offset + d->offset, now->bytes, list);
    int error = old->node ? c->gpu->cu->exec_set(g->exec, old->node, &p) : TNI_CU_NOT_FOUND;
    if (error) return error;
    size_t      bytes;
    const char *from = args_of(now, d, &bytes);
    memcpy(g->log.bytes + g->log.offset[old->offset], from, bytes);
    memcpy(old->grid, d->grid, sizeof d->grid);
    memcpy(old->block, d->block, sizeof d->block);
    old->shared = d->shared;
    c->recorder.changed++;
    return TNI_CU_OK;
}

static int launch_graph(tni_cuda *c, graph *g)
{
    int error = c->gpu->cu->exec_launch(g->exec, c->stream);
    g->used   = ++c->recorder.plan->runs;
    c->recorder.graphs += !error;
    return error;
}

// Runs record was written down by a graph that fits; *again if there is none.
static int run_recorded(tni_cuda *c, bool *again)
{
    replay *p     = c->recorder.plan;
    graph  *g     = c->recorder.failed ? NULL : find_graph(p);
    int     error = TNI_CU_OK;
    if (c->recorder.provisional) {
        p->launch_once = *again = true;
        return error;
    }
    for (size_t i = 0; g && !error && i < g->log.launches; i++)
        if (!same_launch(&g->log, &c->recorder.now, i)) error = change_node(c, g, i);
    if (g && !error) return launch_graph(c, g);
    if (error || ++p->captures > MOST_CAPTURES || c->recorder.failed) p->no_graph = true;
    else p->capture_next = true;
    *again = true;
    return TNI_CU_OK;
}

// The place for one more graph: that of the one used least lately, if need be.
static graph *new_graph(replay *p)
{
    if (p->graphs < GRAPHS) return &p->graph[p->graphs++];
    graph *oldest = &p->graph[0];
    for (int i = 1; i < GRAPHS; i++)
        if (p->graph[i].used < oldest->used) oldest = &p->graph[i];
    graph_free(p, oldest);
    return oldest;
}

// Makes a graph of the capture that ends, and launches it. A run that cannot be a graph is done
// again, plainly.
static int finish_capture(tni_cuda *c, bool *again)
{
    const tni_driver *cu    = c->gpu->cu;
    replay           *p     = c->recorder.plan;
    tni_cugraph       nodes = NULL;
    tni_cuexec        exec  = NULL;
    int               error = cu->capture_end(c->stream, &nodes);
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

static tni_replay_mode mode_of(const replay *p)
{
    if (!p || p->no_graph || p->launch_once || p->runs < PLAIN_RUNS || p->c->no_graphs)
        return TNI_REPLAY_LAUNCH;
    return p->capture_next ? TNI_REPLAY_CAPTURE : TNI_REPLAY_RECORD;
}

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
    if (r->plan) r->plan->launch_once = false;
    log_clear(&r->now);
    tni_cuda_await_uploads(
        c);  // before a capture begins: record waits for uploads is no part of the graph
    if (r->mode != TNI_REPLAY_CAPTURE) return;
    r->plan->capture_next = false;
    if (c->gpu->cu->capture_begin(c->stream, TNI_CU_CAPTURE_RELAXED) == TNI_CU_OK) return;
    r->plan->no_graph = true;
    r->mode           = TNI_REPLAY_LAUNCH;
}

tn_status tni_replay_end(void *session, bool ok, bool *again, tni_text *why)
{
    tni_cuda     *c     = session;
    tni_recorder *r     = &c->recorder;
    int           error = TNI_CU_OK;
    *again              = false;
    if (!ok && r->mode == TNI_REPLAY_CAPTURE) {
        tni_cugraph nodes = NULL;
        c->gpu->cu->capture_end(c->stream, &nodes);
        if (nodes) c->gpu->cu->graph_destroy(nodes);
        r->plan->no_graph = true;  // launched plainly it may work
    } else if (ok && r->mode == TNI_REPLAY_CAPTURE) {
        error = finish_capture(c, again);
    } else if (ok && r->mode == TNI_REPLAY_RECORD) {
        error = run_recorded(c, again);
    } else if (r->plan && !r->provisional) {
        r->plan->runs++;
        r->plan->no_graph |= ok && r->submitted <= 1 && !r->last_block;
    }
    r->plan = NULL;
    r->mode = TNI_REPLAY_LAUNCH;
    return tni_cuda_status(c, error, "launching a graph", why);
}

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
