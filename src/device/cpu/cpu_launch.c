// Launching a kernel: by its compiled code where there is some, else by the interpreter.
//
// Scratch of compiled code: a note of failure for each thread, the partial results of all chunks,
// and room for each thread.
#include "base/pool.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/cpu_walk.h"
#include "device/cpu/interpret.h"

enum { SHARES = 8 };  // chunks for each thread

// The first failure that a thread met, and in which chunk. Threads take chunks in rising order.
typedef struct {
    _Alignas(64) int64_t fail[2];
    int64_t chunk;
} note;

// A launch while it runs.
typedef struct {
    tni_c_main       *run;
    const tni_launch *l;
    tni_work_split    cut;
    int               threads;
    int64_t           arg[TNI_C_MAX_ARGS];
    note             *notes;
    char             *partials, *room;
    size_t            room_step;
} flight;

// Small work is done by the caller alone.
static int threads_of(const tni_launch *l, const tni_work_split *cut)
{
    int threads = l->threads < TNI_MAX_THREADS ? l->threads : TNI_MAX_THREADS;
    threads     = tni_threads_for(threads, cut->rows * cut->cols);
    return threads < cut->chunks ? threads : cut->chunks > 1 ? (int)cut->chunks : 1;
}

int tni_cpu_threads(const tni_launch *l)
{
    tni_work_split cut = tni_kernel_split(l);
    return threads_of(l, &cut);
}

static size_t partials_bytes(const tni_work_split *cut)
{
    return (size_t)tni_align64(8 * cut->partials * cut->chunks);
}

// The code may be ready between this call and the launch, so that there is room for either way.
size_t tni_cpu_scratch(void *session, void *entry, const tni_launch *l)
{
    (void)session;
    const tni_cpu_code *code = entry;
    if (!code) return tni_interpret_room(l);
    tni_work_split cut     = tni_kernel_split(l);
    size_t         threads = (size_t)threads_of(l, &cut);
    size_t         thread = (size_t)tni_align64((int64_t)tni_c_scratch_bytes(code->rows, cut.cols));
    size_t         bytes  = threads * (sizeof(note) + thread) + partials_bytes(&cut);
    size_t         other  = tni_interpret_room(l);
    return bytes > other ? bytes : other;
}

static void run_chunk(void *arg, int64_t i, int worker)
{
    const flight *f     = arg;
    note         *n     = &f->notes[worker];
    bool          ok    = n->fail[0] == 0;
    int64_t       first = i * f->cut.chunk, last = first + f->cut.chunk;
    if (last > f->cut.units) last = f->cut.units;
    f->run(f->l->buffer, f->arg, &f->l->number[0].u, first, last, i, f->partials,
           f->room + f->room_step * (size_t)worker, n->fail);
    if (ok) n->chunk = i;
}

// The failure that comes first in the order of chunks, whatever thread met it.
static void gather_failure(const flight *f, tni_launch *l)
{
    const note *first = NULL;
    for (int i = 0; i < f->threads; i++) {
        const note *n = &f->notes[i];
        if (n->fail[0] && (!first || n->chunk < first->chunk)) first = n;
    }
    l->fail[0] = first ? first->fail[0] : 0;
    l->fail[1] = first ? first->fail[1] : 0;
}

// Without tails chunks may be of any size: long ones go on where the last ended, which the memory
// likes, yet there are enough of them to share.
static void lengthen(tni_work_split *cut, int threads)
{
    int64_t chunk = cut->units / (SHARES * (int64_t)threads);
    if (chunk <= cut->chunk) return;
    cut->chunk  = chunk;
    cut->chunks = tni_ceil_div(cut->units, chunk);
}

static void run_compiled(const tni_cpu_code *code, tni_c_main *run, tni_launch *l)
{
    flight f  = { .run = run, .l = l };
    f.cut     = tni_kernel_split(l);
    f.threads = threads_of(l, &f.cut);
    if (!l->kernel->tails) lengthen(&f.cut, f.threads);
    f.notes     = (note *)l->scratch;
    f.partials  = l->scratch + (size_t)f.threads * sizeof(note);
    f.room      = f.partials + partials_bytes(&f.cut);
    f.room_step = (size_t)tni_align64((int64_t)tni_c_scratch_bytes(code->rows, f.cut.cols));
    for (int i = 0; i < f.threads; i++) f.notes[i] = (note){ .chunk = 0 };
    tni_emit_c_args(l, f.arg);
    tni_parallel(f.threads, f.cut.chunks, run_chunk, &f);
    gather_failure(&f, l);
    if (code->finish)
        code->finish(l->buffer, f.arg, &l->number[0].u, f.cut.chunks, f.partials, f.room);
}

tn_status tni_cpu_launch(void *session, void *entry, tni_launch *l, tni_text *why)
{
    (void)session;
    tni_cpu_code *code = entry;
    tni_c_main   *run  = code ? atomic_load_explicit(&code->run, memory_order_acquire) : NULL;
    if (run) run_compiled(code, run, l);
    else tni_interpret(l);
    if (!l->fail[0]) return TN_OK;
    tni_text_add(why, "index %lld is out of range", (long long)l->fail[1]);
    return TN_EARG;
}
