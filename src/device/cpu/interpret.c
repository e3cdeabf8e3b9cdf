// Runs a launch by its program. A launch is chunks, which are shared among the threads; a chunk is
// units, a unit is a loop over R for each phase, and a loop is tiles of at most TNI_STRIP lanes. At
// each level a section of the program runs once per item: see interpret_program.h.
//
// The chunks come from tni_kernel_split, which looks at sizes alone, and each has its own partial
// results, which are combined in the order of chunks. So neither the number of threads nor their
// timing changes a bit, and compiled kernels, which cut the same way, give the same bits.
#include "device/cpu/interpret.h"

#include "base/pool.h"
#include "device/cpu/strided.h"
#include "device/cpu/interpret_step.h"

#include <stdlib.h>
#include <string.h>

// A launch being run. Its scratch holds, in this order: the program, fail, partial, and the
// workers' memory.
typedef struct {
    tni_program *g;
    char        *workers;  // memory of each worker, stride bytes apart
    int64_t      stride;
    tni_total   *partial;
    int64_t (*fail)[3];  // [worker]: as in tni_worker
} interpretation;

// Returns the bytes of a worker's places, of the unit and of the line, which come before its
// program's memory.
static int64_t places_bytes(const tni_kernel *k)
{
    return tni_align64(2 * k->naccess * (int64_t)sizeof(int64_t));
}

static int64_t worker_stride(const tni_program *g)
{
    return places_bytes(g->l->kernel) + g->worker_bytes;
}

static int64_t partial_bytes(const tni_program *g)
{
    return tni_align64(g->cut.partials * g->cut.chunks * (int64_t)sizeof(tni_total));
}

// Returns how many threads run a launch; each has a worker's memory.
static int worker_count(const tni_program *g)
{
    return tni_threads_for(g->l->threads, g->cut.rows * g->cut.cols);
}

static int64_t fail_bytes(const tni_program *g)
{
    return tni_align64(worker_count(g) * (int64_t)sizeof(int64_t[3]));
}

// If the upper bound of a worker's memory is below this, that much is requested: some KiB too many
// per thread cost less than building the program once more just to learn the exact size.
enum {
    SMALL_WORKER = 1 << 17
};  // bytes of a worker that are not worth to find out how many are needed

// The exact size needs the program, which is built here for a moment. If there is no memory for
// that, the upper bound, a slot for every step, is requested instead. Without addresses every
// buffer counts as shared, which takes the most slots, so that the program of the launch itself
// never needs more.
size_t tni_interpret_scratch(const tni_launch *l)
{
    size_t       bytes = tni_program_bytes(l->kernel);
    tni_launch   copy  = *l;
    tni_program  none  = { .l = &copy, .cut = tni_kernel_split(l) };
    tni_program *g     = &none;
    memset(copy.buffer, 0, sizeof copy.buffer);
    g->worker_bytes = tni_program_worker_bytes(l, &g->cut);
    char *mem       = g->worker_bytes > SMALL_WORKER ? malloc(bytes) : NULL;
    if (mem) g = tni_program_build(&copy, mem);
    size_t total = bytes + (size_t)(worker_count(g) * worker_stride(g)) +
                   (size_t)(partial_bytes(g) + fail_bytes(g));
    free(mem);
    return total;
}

// ---- where a worker is -------------------------------------------------------------------------

// Returns a worker whose registers all point to their slots. A chunk makes its worker afresh: steps
// that use data in place turn registers elsewhere.
static tni_worker worker_of(const interpretation *j, int worker)
{
    const tni_program *g = j->g;
    char              *m = j->workers + worker * j->stride;
    tni_worker         w = { .g = g, .lane = g->lane, .n = g->lanes };
    w.unit_place         = (int64_t *)m;
    w.place              = w.unit_place;
    w.mem                = m + places_bytes(g->l->kernel);
    w.reg                = (char **)w.mem;
    for (int i = 0; i < g->nreg; i++) w.reg[i] = w.mem + g->reg[i].offset;
    return w;
}

// Advances one point along axes first .. last, the last fastest, and moves all places by the
// precomputed delta of the axis that advanced. This replaces a multiplication for each axis and
// access by one addition for each access.
static void advance_axes(const tni_program *g, int first, int last, int64_t *at, int64_t *place)
{
    int axis = last, naccess = g->l->kernel->naccess;
    for (; axis > first && at[axis] + 1 == g->l->size[axis]; axis--) at[axis] = 0;
    if (axis < first) return;
    const int64_t *delta = g->delta + axis * naccess;
    at[axis]++;
    for (int i = 0; i < naccess; i++) place[i] += delta[i];
}

// Adds the place of point i of axes first .. last, counted in row-major order.
static void seek_axes(const tni_program *g, int first, int last, int64_t i, int64_t *at,
                      int64_t *place)
{
    for (int axis = last; axis >= first; axis--) {
        at[axis] = axis > first ? i % g->l->size[axis] : i;
        i        = i / g->l->size[axis];
        for (int a = 0; a < g->l->kernel->naccess; a++)
            place[a] += at[axis] * g->l->stride[a][axis];
    }
}

// ---- loops over R ------------------------------------------------------------------------------

// A loop over R with the lane axis in R: tiles along the last axis, one line after the other.
static void run_lines_loop(tni_worker *w, int section)
{
    const tni_kernel *k            = w->g->l->kernel;
    int64_t           at[TNI_AXES] = { 0 }, lane = w->g->l->size[w->lane];
    for (int64_t done = 0;;) {
        for (w->shift = 0; w->shift < lane; w->shift += TNI_STRIP) {
            w->n  = tni_min_i64(TNI_STRIP, lane - w->shift);
            w->at = done + w->shift;
            tni_run_section(w, section);
        }
        if ((done += lane) == w->g->cut.cols) break;
        advance_axes(w->g, k->np, k->np + k->nr - 2, at, w->place);
    }
    w->shift = 0;
}

// A loop over R with the lane axis in P: the unit's lanes once for each r. The unit keeps its lanes
// and walks down the columns, so that every lane has an accumulator of its own.
static void run_columns_loop(tni_worker *w, int section)
{
    const tni_kernel *k            = w->g->l->kernel;
    int64_t           at[TNI_AXES] = { 0 }, cols = w->g->cut.cols;
    for (int64_t r = 0; r < cols; r++) {
        w->index      = r;
        w->last_index = r + 1 == cols;
        w->at         = r * w->g->lanes;
        tni_run_section(w, section);
        if (!w->last_index) advance_axes(w->g, k->np, k->np + k->nr - 1, at, w->place);
    }
}

// Runs the loop of a phase from the unit's place on. A loop that does nothing but fold takes the
// fast path of tni_fold_loop.
static void run_loop(tni_worker *w, int section)
{
    const tni_kernel *k = w->g->l->kernel;
    if (w->g->section[section].head < 0) return;
    int64_t n = w->n;
    w->place  = w->unit_place + k->naccess;
    memcpy(w->place, w->unit_place, (size_t)k->naccess * sizeof *w->place);
    if (k->lane_in_r) run_lines_loop(w, section);
    else if (!tni_fold_loop(w, section)) run_columns_loop(w, section);
    w->place = w->unit_place;
    w->n     = n;
}

// ---- units and chunks --------------------------------------------------------------------------

// Runs one unit: for each phase its row section and its loop, then the last row section.
static void run_unit(tni_worker *w)
{
    for (int p = 0; p < w->g->phases; p++) {
        tni_run_section(w, tni_row_section(p));
        run_loop(w, tni_loop_section(p));
    }
    tni_run_section(w, tni_row_section(w->g->phases));
}

// Runs units first .. end-1 of a kernel whose lane axis is in R: each unit is a row.
static void run_rows(tni_worker *w, int64_t first, int64_t end)
{
    const tni_program *g            = w->g;
    int64_t            at[TNI_AXES] = { 0 };
    int                last         = g->l->kernel->np - 1;
    seek_axes(g, 0, last, first, at, w->unit_place);
    if (tni_fold_rows(w, end - first)) return;
    w->n = tni_min_i64(TNI_STRIP, g->l->size[g->lane]);
    for (int64_t i = first; i < end; i++) {
        w->row      = i - first;
        w->last_row = i + 1 == end;
        run_unit(w);
        if (!w->last_row) advance_axes(g, 0, last, at, w->unit_place);
    }
}

// Runs units first .. end-1 of a kernel whose lane axis is in P: each unit is a strip of a lane
// line.
static void run_strips(tni_worker *w, int64_t first, int64_t end)
{
    const tni_program *g            = w->g;
    int64_t            at[TNI_AXES] = { 0 }, strip = first % g->cut.strips;
    int                last = g->l->kernel->np - 2;
    if (tni_fold_strips(w, first, end)) return;
    seek_axes(g, 0, last, first / g->cut.strips, at, w->unit_place);
    for (int64_t i = first; i < end; i++) {
        w->row      = i - first;
        w->last_row = i + 1 == end;
        w->shift    = strip * TNI_STRIP;
        w->n        = tni_min_i64(TNI_STRIP, g->l->size[g->lane] - w->shift);
        run_unit(w);
        if (++strip < g->cut.strips || w->last_row) continue;
        strip = 0;
        advance_axes(g, 0, last, at, w->unit_place);
    }
}

// Runs one chunk. Of the failures that this worker's chunks meet, the first is kept: a worker takes
// chunks in rising order.
static void interpret_chunk(void *arg, int64_t item, int worker)
{
    const interpretation *j     = arg;
    const tni_launch     *l     = j->g->l;
    tni_worker            w     = worker_of(j, worker);
    int64_t               first = item * j->g->cut.chunk;
    int64_t               end   = tni_min_i64(j->g->cut.units, first + j->g->cut.chunk);
    memcpy(w.unit_place, l->offset, (size_t)l->kernel->naccess * sizeof *w.unit_place);
    w.chunk   = item;
    w.partial = j->partial + item * j->g->cut.partials;
    w.n       = j->g->lanes;
    tni_run_section(&w, TNI_SECTION_ONE);
    if (l->kernel->lane_in_r) run_rows(&w, first, end);
    else run_strips(&w, first, end);
    if (w.fail[1] && !j->fail[worker][1]) memcpy(j->fail[worker], w.fail, sizeof w.fail);
}

// ---- the finish stage --------------------------------------------------------------------------

// Returns a worker for the finish stage, which has no rows: its lane axis is the last axis of R,
// and its partial results are those of all chunks.
static tni_worker finish_worker(const interpretation *j, int worker)
{
    const tni_launch *l = j->g->l;
    tni_worker        w = worker_of(j, worker);
    memcpy(w.unit_place, l->offset, (size_t)l->kernel->naccess * sizeof *w.unit_place);
    w.lane    = j->g->finish_lane;
    w.partial = j->partial;
    w.chunk   = INT64_MAX;
    tni_run_section(&w, tni_finish_section(j->g, TNI_FINISH_ONE));
    return w;
}

// Runs the finish loop over one tile of the columns.
static void finish_tile(void *arg, int64_t item, int worker)
{
    const interpretation *j            = arg;
    const tni_program    *g            = j->g;
    const tni_kernel     *k            = g->l->kernel;
    tni_worker            w            = finish_worker(j, worker);
    int64_t               at[TNI_AXES] = { 0 }, lane = g->l->size[g->finish_lane];
    int64_t               strips = tni_ceil_div(lane, TNI_STRIP), line = item / strips;
    seek_axes(g, k->np, k->np + k->nr - 2, line, at, w.unit_place);
    w.shift = item % strips * TNI_STRIP;
    w.n     = tni_min_i64(TNI_STRIP, lane - w.shift);
    w.at    = line * lane + w.shift;
    tni_run_section(&w, tni_finish_section(g, TNI_FINISH_LOOP));
    if (w.fail[1] && !j->fail[worker][1]) memcpy(j->fail[worker], w.fail, sizeof w.fail);
}

// Runs the finish stage: the stores of tails that have one value in all, by one worker, then the
// loop over the columns. Columns are independent of each other, so that tiles of them run on any
// thread.
static void run_finish(interpretation *j, int threads)
{
    const tni_program *g = j->g;
    tni_worker         w = finish_worker(j, 0);
    tni_run_section(&w, tni_finish_section(g, TNI_FINISH_STORE));
    if (w.fail[1] && !j->fail[0][1]) memcpy(j->fail[0], w.fail, sizeof w.fail);
    if (g->section[tni_finish_section(g, TNI_FINISH_LOOP)].head < 0) return;
    int64_t lane = g->l->size[g->finish_lane];
    tni_parallel(threads, g->cut.cols / lane * tni_ceil_div(lane, TNI_STRIP), finish_tile, j);
}

// ---- all ---------------------------------------------------------------------------------------

// Reports the failure of the earliest chunk, whichever worker met it: which index an error names
// does not depend on the threads.
static void report_failure(const interpretation *j, tni_launch *l)
{
    int64_t first = INT64_MAX;
    for (int i = 0; i < worker_count(j->g); i++) {
        if (!j->fail[i][1] || (l->fail[0] && j->fail[i][0] >= first)) continue;
        first      = j->fail[i][0];
        l->fail[0] = j->fail[i][1];
        l->fail[1] = j->fail[i][2];
    }
}

// The program is built again for each launch, in its scratch: it depends on the addresses, since
// buffers that share memory are loaded by copies.
void tni_interpret(tni_launch *l)
{
    tni_program   *g   = tni_program_build(l, l->scratch);
    char          *mem = l->scratch + tni_program_bytes(l->kernel);
    interpretation j   = { .g = g, .fail = (int64_t(*)[3])mem, .stride = worker_stride(g) };
    j.partial          = (tni_total *)(mem + fail_bytes(g));
    j.workers          = (char *)j.partial + partial_bytes(g);
    l->fail[0] = l->fail[1] = 0;
    int threads             = worker_count(g);
    memset(j.fail, 0, (size_t)threads * sizeof *j.fail);
    tni_parallel(threads, g->cut.chunks, interpret_chunk, &j);
    if (l->kernel->tails) run_finish(&j, tni_threads_for(threads, g->cut.cols * g->cut.chunks));
    report_failure(&j, l);
}
