// Library ops with an epilogue kernel. The bits do not depend on how a result is cut into bands,
// since such a kernel has no sums over rows: an element of its output reads one row of the result
// at most.
#include "device/cpu/tiled_epilogue.h"

#include "device/cpu/strided.h"

// Most bands of several tiles, each of which needs a counter in scratch. A result of more bands is
// large enough that its rows leave the cache anyway; the kernel then runs afterwards.
enum { MOST_BANDS = 4096 };

// A band of fewer elements takes less time than the call of its kernel. If all of them together
// stay in the cache anyway, the kernel runs once, afterwards.
enum { LEAST_BAND = 128, CACHED = 1 << 15 };

// Bands must be whole rows of the kernel. With fewer bands than threads, some threads would wait
// while others run the kernel; running it afterwards on all threads is faster than what the cache
// saves.
bool tni_tiled_epilogue_begin(tni_tiled_epilogue *epilogue, int64_t band, int64_t whole,
                              int64_t bands, int tiles)
{
    if (!epilogue || band % epilogue->row_elements || whole % epilogue->row_elements) return false;
    if (bands < epilogue->threads || (tiles > 1 && bands > MOST_BANDS)) return false;
    if (band < LEAST_BAND && band * bands <= CACHED) return false;
    epilogue->tiles = tiles;
    for (int64_t i = 0; tiles > 1 && i < bands; i++) atomic_init(&epilogue->tiles_left[i], tiles);
    return epilogue->started = true;
}

// Runs the kernel over `count` indices of its first axis from `first` on: the same launch, with
// offsets moved and the first axis shortened. It cannot fail: a kernel with a CHECK is no epilogue.
// If data is given, it is that band of the result, which is buffer number `buffer`.
static void run_band(const tni_tiled_epilogue *epilogue, int64_t first, int64_t count, int worker,
                     int buffer, char *data)
{
    tni_launch l       = *epilogue->l;
    int64_t    fail[2] = { 0 };
    int64_t    arg[TNI_C_MAX_ARGS];
    for (int i = 0; i < l.kernel->naccess; i++)
        if (!data || l.kernel->access[i].buffer != buffer) l.offset[i] += first * l.stride[i][0];
    if (data) l.buffer[buffer] = data;
    l.size[0] = count;
    tni_emit_c_args(&l, TNI_STORES_DIRECT, arg);
    epilogue->run(l.buffer, arg, &l.number[0].u, 0, tni_kernel_split(&l).units, 0, NULL,
                  epilogue->scratch + (size_t)worker * epilogue->worker_bytes, fail);
}

// The counter reaches 0 in exactly one thread. The decrement is sequentially consistent, so that
// thread sees the tiles that the others stored.
void tni_tiled_epilogue_tile_done(tni_tiled_epilogue *epilogue, int64_t which, int64_t first,
                                  int64_t count, int worker)
{
    if (epilogue->tiles > 1 && atomic_fetch_sub(&epilogue->tiles_left[which], 1) > 1) return;
    run_band(epilogue, (epilogue->offset + first) / epilogue->row_elements,
             count / epilogue->row_elements, worker, -1, NULL);
}

void tni_tiled_epilogue_band_at(tni_tiled_epilogue *epilogue, int buffer, char *data, int64_t first,
                                int64_t count, int worker)
{
    run_band(epilogue, (epilogue->offset + first) / epilogue->row_elements,
             count / epilogue->row_elements, worker, buffer, data);
}

// A task wrapped so that each item reports its tile.
typedef struct {
    tni_tiled_epilogue *epilogue;
    tni_task           *task;
    void               *arg;
    int64_t             band, all;
} banded_task;

static void run_tile_task(void *arg, int64_t item, int worker)
{
    const banded_task *p     = arg;
    int64_t            which = item / p->epilogue->tiles, first = which * p->band;
    p->task(p->arg, item, worker);
    tni_tiled_epilogue_tile_done(p->epilogue, which, first, tni_min_i64(p->band, p->all - first),
                                 worker);
}

void tni_tiled_epilogue_parallel(tni_tiled_epilogue *epilogue, int threads, int64_t items,
                                 tni_task *task, void *arg, int tiles, int64_t band, int64_t all)
{
    banded_task p = { epilogue, task, arg, band, all };
    if (tni_tiled_epilogue_begin(epilogue, band, all, items / tiles, tiles))
        tni_parallel(threads, items, run_tile_task, &p);
    else tni_parallel(threads, items, task, arg);
}

// Products and convolutions call tni_tiled_epilogue_begin, so that fusing them pays. A kernel with
// a column sum adds over rows and cannot run by bands.
bool tni_cpu_takes(void *session, const tni_offer *o)
{
    int op = o->call->op;
    (void)session;
    if (o->prologue || o->first_row || o->epilogue.sum >= 0 ||
        (o->launch && o->launch->kernel->tails))
        return false;
    return tni_is_matmul(op) || tni_is_conv(op) || op == TNI_conv_dgrad;
}

// Returns the scratch that a thread of the kernel needs.
static size_t kernel_worker_bytes(const tni_cpu_code *code, const tni_launch *l)
{
    return (size_t)tni_align64((int64_t)tni_c_scratch_bytes(code->rows, tni_kernel_split(l).cols));
}

static size_t counter_bytes(void)
{
    return (size_t)tni_align64(MOST_BANDS * (int64_t)sizeof(atomic_int));
}

static size_t op_scratch_bytes(const tni_call *call)
{
    return (size_t)tni_align64((int64_t)tni_call_scratch(call));
}

// Enough for every way that the run may take: the kernel can become compiled between this and the
// run, and its bands may turn out not to fit.
size_t tni_cpu_scratch_with_epilogue(const tni_call *call, void *entry, const tni_launch *l)
{
    const tni_cpu_code *code = entry;
    size_t both = op_scratch_bytes(call), alone = tni_cpu_scratch(call->session, entry, l);
    if (code) both += counter_bytes() + (size_t)call->threads * kernel_worker_bytes(code, l);
    return both > alone ? both : alone;
}

// Scratch is divided into the op's own, the counters of bands, and the kernel's scratch for each
// thread. An interpreted kernel runs afterwards, and so does one whose op announced no bands.
tn_status tni_cpu_run_with_epilogue(const tni_call *call, void *entry, tni_launch *l, tni_text *why)
{
    tni_cpu_code      *code     = entry;
    tni_call           c        = *call;
    tni_tiled_epilogue epilogue = { .l = l, .row_elements = 1 };
    epilogue.run = code ? atomic_load_explicit(&code->run, memory_order_acquire) : NULL;
    if (epilogue.run) {
        char *rest = l->scratch + op_scratch_bytes(call);
        for (int i = 1; i < l->kernel->np + l->kernel->nr; i++) epilogue.row_elements *= l->size[i];
        epilogue.threads      = tni_cpu_threads(l);
        epilogue.tiles_left   = (atomic_int *)rest;
        epilogue.scratch      = rest + counter_bytes();
        epilogue.worker_bytes = kernel_worker_bytes(code, l);
        c.tiled_epilogue      = &epilogue;
    }
    tn_status s = tni_call_run(&c);
    return s != TN_OK || epilogue.started ? s : tni_cpu_launch(call->session, entry, l, why);
}
