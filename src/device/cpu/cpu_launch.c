// Launches a kernel: by its compiled code if it has some, else by the interpreter.
//
// Threads share the chunks of the launch, in any order. Results do not depend on the number of
// threads, for three reasons: each output element belongs to one chunk; sums that cross chunks
// (tails) go to partial results of their chunk, which the finish function combines in the order of
// chunks; and where chunks are cut follows from sizes alone whenever a chunk's extent can change a
// bit.
//
// The scratch of compiled code: a worker_failure for each thread, the partial results of all
// chunks, and the kernel's scratch for each thread.
#include "base/pool.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/strided.h"
#include "device/cpu/interpret.h"

// Chunks for each thread, of a kernel without tails: enough that a thread which the system delays
// does not hold up the others for more than an eighth of its work.
enum { CHUNKS_PER_THREAD = 8 };

// The first failed CHECK that a thread met, and its chunk. Threads take chunks in rising order.
// Aligned to a cache line, as each thread writes its own.
typedef struct {
    _Alignas(64) int64_t fail[2];
    int64_t chunk;
} worker_failure;

// A launch while it runs.
typedef struct {
    tni_c_main       *run;
    const tni_launch *l;
    tni_work_split    cut;
    int               threads;
    int64_t           arg[TNI_C_MAX_ARGS];
    worker_failure   *failures;
    char             *partials, *scratch;
    size_t            worker_bytes;
} running_launch;

// Returns how many plain elements an element of a kernel is worth: tni_threads_for counts those of
// a kernel of a few instructions, such as a copy or an add.
static int64_t element_weight(const tni_kernel *k)
{
    enum { FEW = 8 };
    return 1 + k->nins / FEW;
}

// Returns the most threads that can run a launch, whatever its settings. Chunks of kernels without
// tails may be as short as a unit.
static int most_threads(const tni_launch *l, const tni_work_split *cut)
{
    int     threads = l->threads < TNI_MAX_THREADS ? l->threads : TNI_MAX_THREADS;
    int64_t most    = l->kernel->tails ? cut->chunks : cut->units;
    return threads < most ? threads : most > 1 ? (int)most : 1;
}

// Returns how many threads run a launch; the caller alone runs small ones.
static int launch_threads(const tni_launch *l, const tni_work_split *cut, const tni_tuning *t)
{
    int set = t ? t->of[TNI_KNOB_THREADS] : 0, most = most_threads(l, cut);
    if (!set) set = tni_threads_for(l->threads, cut->rows * cut->cols * element_weight(l->kernel));
    return set < most ? set : most;
}

int tni_cpu_threads(const tni_launch *l)
{
    tni_work_split cut = tni_kernel_split(l);
    return launch_threads(l, &cut, l->tuning);
}

// Makes chunks longer, to CHUNKS_PER_THREAD for each thread, or shorter, as far as their elements
// are worth it. Only for kernels without tails, whose bits do not depend on chunks: long chunks
// continue where the last one ended, which hardware prefetching rewards.
static void fit_chunks(tni_work_split *cut, int threads, int64_t weight, const tni_tuning *t)
{
    int64_t each  = t && t->of[TNI_KNOB_CHUNKS] ? t->of[TNI_KNOB_CHUNKS] : CHUNKS_PER_THREAD;
    int64_t chunk = cut->units / (each * threads);
    int64_t least = threads > 1 ? tni_ceil_div(cut->chunk, weight) : cut->chunk;
    if (chunk < least) chunk = least;
    cut->chunk  = chunk;
    cut->chunks = tni_ceil_div(cut->units, chunk);
}

// Cuts the work of a launch under some settings; returns how many threads run it.
static int cut_launch(const tni_launch *l, const tni_tuning *t, tni_work_split *cut)
{
    *cut        = tni_kernel_split(l);
    int threads = launch_threads(l, cut, t);
    if (!l->kernel->tails) fit_chunks(cut, threads, element_weight(l->kernel), t);
    return threads;
}

bool tni_cpu_runs_equal(const tni_launch *l, const tni_tuning *a, const tni_tuning *b)
{
    tni_work_split cut, other;
    int            threads = cut_launch(l, a, &cut), others = cut_launch(l, b, &other);
    return threads == others && cut.chunk == other.chunk &&
           tni_cpu_stores(l, threads, a) == tni_cpu_stores(l, others, b);
}

// Returns the bytes of the partial results of all chunks, 8 for each.
static size_t partials_bytes(const tni_work_split *cut)
{
    return (size_t)tni_align64(8 * cut->partials * cut->chunks);
}

// A kernel can become compiled between this call and its launch, and other settings can win for it
// in any context, so this returns enough for either way and for all threads.
size_t tni_cpu_scratch(void *session, void *entry, const tni_launch *l)
{
    (void)session;
    const tni_cpu_code *code = entry;
    if (!code) return tni_interpret_scratch(l);
    tni_work_split cut     = tni_kernel_split(l);
    size_t         threads = (size_t)most_threads(l, &cut);
    size_t         thread = (size_t)tni_align64((int64_t)tni_c_scratch_bytes(code->rows, cut.cols));
    size_t         bytes  = threads * (sizeof(worker_failure) + thread) + partials_bytes(&cut);
    size_t         other  = tni_interpret_scratch(l);
    return bytes > other ? bytes : other;
}

// Runs one chunk on a worker, and notes the chunk of the worker's first failure.
static void run_compiled_chunk(void *arg, int64_t i, int worker)
{
    const running_launch *f     = arg;
    worker_failure       *n     = &f->failures[worker];
    bool                  ok    = n->fail[0] == 0;
    int64_t               first = i * f->cut.chunk, last = first + f->cut.chunk;
    if (last > f->cut.units) last = f->cut.units;
    f->run(f->l->buffer, f->arg, &f->l->number[0].u, first, last, i, f->partials,
           f->scratch + f->worker_bytes * (size_t)worker, n->fail);
    if (ok) n->chunk = i;
}

// Reports the failure that comes first in the order of chunks, whichever thread met it.
static void report_first_failure(const running_launch *f, tni_launch *l)
{
    const worker_failure *first = NULL;
    for (int i = 0; i < f->threads; i++) {
        const worker_failure *n = &f->failures[i];
        if (n->fail[0] && (!first || n->chunk < first->chunk)) first = n;
    }
    l->fail[0] = first ? first->fail[0] : 0;
    l->fail[1] = first ? first->fail[1] : 0;
}

// Runs compiled code: chunks on all threads, then the finish function on this one.
static void run_compiled_launch(tni_cpu_code *entry, tni_launch *l)
{
    const tni_tuning   *t;
    const tni_cpu_code *code = tni_cpu_choice(entry, l, &t);
    running_launch      f    = { .run = code->run, .l = l };
    f.threads                = cut_launch(l, t, &f.cut);
    f.failures               = (worker_failure *)l->scratch;
    f.partials               = l->scratch + (size_t)f.threads * sizeof(worker_failure);
    f.scratch                = f.partials + partials_bytes(&f.cut);
    f.worker_bytes = (size_t)tni_align64((int64_t)tni_c_scratch_bytes(code->rows, f.cut.cols));
    for (int i = 0; i < f.threads; i++) f.failures[i] = (worker_failure){ .chunk = 0 };
    tni_emit_c_args(l, tni_cpu_stores(l, f.threads, t), f.arg);
    tni_parallel(f.threads, f.cut.chunks, run_compiled_chunk, &f);
    report_first_failure(&f, l);
    if (code->finish)
        code->finish(l->buffer, f.arg, &l->number[0].u, f.cut.chunks, f.partials, f.scratch);
}

// Loads the code with acquire order, which pairs with the release store of publish_entry: if run is
// seen, so are finish and rows. entry may be NULL: a kernel of a plan that runs for the first time
// has no entry yet.
tn_status tni_cpu_launch(void *session, void *entry, tni_launch *l, tni_text *why)
{
    (void)session;
    tni_cpu_code *code = entry;
    tni_c_main   *run  = code ? atomic_load_explicit(&code->run, memory_order_acquire) : NULL;
    if (run) run_compiled_launch(code, l);
    else tni_interpret(l);
    if (!l->fail[0]) return TN_OK;
    tni_text_add(why, "index %lld is out of range", (long long)l->fail[1]);
    return TN_EARG;
}
