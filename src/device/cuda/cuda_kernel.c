// Kernels on the GPU: compiling them for the table that devices with work groups share
// (simt/compiled.h), and launching them, generated and hand-written ones.
#include "device/cuda/gpu.h"

#include <stdio.h>
#include <string.h>

// ---- compiling ---------------------------------------------------------------------------------

// Compiles kernels without a GPU and without the cache, for tests and tools.
tn_status tni_cuda_cubin(int n, const tni_emit_item *item, const char *chip, bool look,
                         tni_cubin *c, tni_text *why)
{
    tni_heap heap = tni_heap_default();
    char    *text = tni_emit_program(&heap, &tni_dialect_cuda, tni_emit_simt, n, item, false);
    *c            = (tni_cubin){ 0 };
    if (!text) {
        tni_text_add(why, "out of memory for kernels");
        return TN_EMEM;
    }
    tn_status s = tni_cubin_compile(c, text, chip, look, why);
    tni_free(&heap, text);
    return s;
}

// Writes what a text is compiled for: the chip or, for instructions that no later chip has, exactly
// this one ("sm_90a").
static void target_of(const tni_gpu *g, const char *source, char target[20])
{
    snprintf(target, 20, "%s%s", g->chip, strstr(source, "wgmma.") ? "a" : "");
}

// Compiles a program, or finds it on disk, and loads it into the GPU's context. Runs in any thread,
// also while the GPU is being opened, which tni_gpu_context waits for; a GPU that could not be
// opened has no driver (cu), and the program fails.
static void *build_program(void *device, const char *source, const char *what, tni_build_kind kind,
                           bool *found, tn_status *s, tni_text *why)
{
    const tni_gpu *g = device;
    tni_cumodule   m = NULL;
    tni_cubin      c;
    char           target[20];
    (void)what;
    *s = TN_OK;
    target_of(g, source, target);
    if (kind != TNI_BUILD_FROM_DISK)
        *s = tni_cubin_get(&c, source, target, kind == TNI_BUILD_QUICK, found, why);
    else if (!(*found = tni_cubin_find(&c, source, target))) return NULL;
    if (*s == TN_OK) {
        tni_cucontext cx     = tni_gpu_context(g);
        int           error  = g->cu ? g->cu->set_current(cx) : TNI_CU_NOT_FOUND;
        int           before = g->cu ? tni_cuda_relax(g->cu) : -1;
        if (!error) error = g->cu->module_load(&m, c.image);
        if (g->cu) tni_cuda_restrict(g->cu, before);
        *s = g->cu ? tni_gpu_status(g->cu, error, "loading kernels", why) : TN_EDEVICE;
    }
    tni_cubin_free(&c);
    return *s == TN_OK ? m : NULL;
}

// Returns a kernel of a program. It may use all shared memory of a block beyond what its text
// declares, but more than 48 KB has to be requested first.
static tn_status load_function(void *device, void *program, const char *name, void **f,
                               tni_text *why)
{
    const tni_gpu *g        = device;
    tni_cufunction found    = NULL;
    int            declared = 0;
    int            error    = g->cu->module_function(&found, program, name);
    if (!error) error = g->cu->function_get(&declared, TNI_CU_FUNCTION_STATIC_SHARED, found);
    if (!error)
        error = g->cu->function_set(found, TNI_CU_FUNCTION_SHARED,
                                    g->limits.shared_bytes - declared);
    *f = found;
    return tni_gpu_status(g->cu, error, "loading a kernel", why);
}

// Generated kernels declare no arrays in local memory, so that every byte there is a spilled
// register.
static tni_registers kernel_registers(void *device, void *f)
{
    const tni_gpu *g = device;
    tni_registers  r = { 0 };
    if (g->cu->function_get(&r.used, TNI_CU_FUNCTION_REGISTERS, f)) r.used = 0;
    if (g->cu->function_get(&r.spilled, TNI_CU_FUNCTION_LOCAL, f)) r.spilled = 0;
    return r;
}

static const tni_compiler compiler = { &tni_dialect_cuda, build_program, load_function,
                                       kernel_registers };

static tni_compiled_counts counts;

tni_compiled *tni_cuda_compiled_new(tni_gpu *g)
{
    // One program per kernel: programs are compiled in parallel, and each is found again on disk by
    // any plan that has the same kernel.
    tni_compiled_opts o = { &compiler, g, g->limits, 1, true, &counts, g->name };
    return tni_compiled_new(&o);
}

tni_compiled *tni_cuda_compiled(void *session)
{
    const tni_cuda *c = session;
    return c->gpu->compiled;
}

void tni_cuda_counts(int64_t *compiled, int64_t *found)
{
    *compiled = atomic_load(&counts.compiled);
    *found    = atomic_load(&counts.found);
}

void tni_cuda_count_kernel(bool found)
{
    atomic_fetch_add(found ? &counts.found : &counts.compiled, 1);
}

char *tni_cuda_text(void *session, tni_heap *h, const tni_launch *l)
{
    return tni_compiled_source(tni_cuda_compiled(session), h, l);
}

// Returns the scratch that the interpreter needs for a launch, as long as its kernel is not
// compiled.
static size_t interpreter_scratch(tni_cuda *c, void *entry, const tni_launch *l)
{
    tni_simt_program p;
    if (tni_compiled_ready(c->gpu->compiled, entry, l)) return 0;
    return tni_simt_program_write(&p, l, c->gpu->limits.units) ? (size_t)p.scratch_bytes : 0;
}

// The contract's prepare. Scratch is allocated now, so that no launch can fail halfway through a
// plan: enough for the compiled kernel and, unless compilation is waited for, for the interpreter.
tn_status tni_cuda_prepare(void *session, int n, const tni_launch *const *first, void **entry,
                           bool wait, tni_text *why)
{
    tni_cuda *c = session;
    tni_cuda_enter(c);
    wait |= c->compiles_first;
    tn_status s = tni_compiled_prepare(c->gpu->compiled, n, first, entry, wait, why);
    for (int i = 0; s == TN_OK && i < n; i++) {
        size_t need = tni_compiled_scratch(c->gpu->compiled, entry[i], first[i]);
        size_t also = wait ? 0 : interpreter_scratch(c, entry[i], first[i]);
        if (also > need) need = also;
        if (!need || tni_cuda_scratch(c, need)) continue;
        tni_text_add(why, "cuda: out of memory for scratch");
        s = TN_EMEM;
    }
    return s;
}

bool tni_cuda_ready(void *session, int n, const tni_launch *const *first, void *const *entry)
{
    const tni_cuda *c = session;
    for (int i = 0; i < n; i++)
        if (!tni_compiled_ready(c->gpu->compiled, entry[i], first[i])) return false;
    return true;
}

tni_registers tni_cuda_registers(void *session, void *entry, const tni_launch *l)
{
    const tni_cuda *c = session;
    return tni_compiled_registers(c->gpu->compiled, entry, l);
}

// ---- measuring ---------------------------------------------------------------------------------

// Winners are kept by the name of the GPU: chips of one architecture differ in multiprocessors and
// memory.
const char *tni_cuda_chip(const void *session, int threads)
{
    (void)threads;
    const tni_cuda *c = session;
    return tni_compiled_chip(c->gpu->compiled);
}

int tni_cuda_neighbours(void *session, const tni_launch *l, const tni_tuning *from, tni_tuning *dst,
                        int room)
{
    const tni_cuda *c = session;
    return tni_compiled_neighbours(c->gpu->compiled, l, from, dst, room);
}

// Programs are compiled by background threads, as many as there are cores.
void tni_cuda_expect(void *session, void *entry, const tni_launch *l, bool now)
{
    const tni_cuda *c = session;
    tni_compiled_expect(c->gpu->compiled, entry, l, now);
}

void tni_cuda_retuned(void *session, void *entry, const tni_launch *l)
{
    const tni_cuda *c = session;
    (void)l;
    tni_compiled_retuned(c->gpu->compiled, entry);
}

// ---- launching ---------------------------------------------------------------------------------

// Whether a grid is one that the driver launches; shapes are chosen so that it is, for all that
// fits in memory.
static bool is_grid(const tni_simt *m)
{
    return m->grid[0] <= INT32_MAX && m->grid[1] <= TNI_SLICES && m->finish_grid <= INT32_MAX;
}

// Launches a compiled kernel, and the second one that combines partial results where the class has
// one. Both take the same packed arguments.
static int launch_variant(tni_cuda *c, const tni_variant *v, const tni_simt *m, const tni_launch *l)
{
    char              args[TNI_SIMT_BYTES];
    tni_cuptr         state = tni_cuda_state(c, l->ticket);
    size_t            bytes = tni_simt_pack(l, m, v->layout, (const void *)(uintptr_t)state, args);
    uint32_t          offset[] = { 0, (uint32_t)bytes };
    tni_launch_record d        = { .f          = v->main,
                                   .grid       = { (unsigned)m->grid[0], (unsigned)m->grid[1], 1 },
                                   .block      = { (unsigned)m->block, 1, 1 },
                                   .shared     = (unsigned)m->shared_bytes,
                                   .overlaps   = c->gpu->overlaps,
                                   .last_block = m->class.finish == TNI_FINISH_LAST,
                                   .args       = 1 };
    int               error    = tni_replay_launch(c, &d, offset, args);
    if (error || !v->finish) return error;
    d = (tni_launch_record){ .f        = v->finish,
                             .grid     = { (unsigned)m->finish_grid, 1, 1 },
                             .block    = { m->class.finish_threads, 1, 1 },
                             .overlaps = c->gpu->overlaps,
                             .args     = 1 };
    return tni_replay_launch(c, &d, offset, args);
}

// Launches a kernel by the interpreter while it is being compiled, which makes the run provisional:
// the plan becomes a graph only once its kernels are compiled. Returns TN_EARG if the interpreter
// cannot run it: the program does not fit, or there is no interpreter or no scratch.
static tn_status interpret_launch(tni_cuda *c, tni_launch *l, tni_text *why)
{
    tni_simt_program p;
    _Alignas(8) char args[TNI_INTERPRETER_BYTES];
    uint32_t         offset[] = { 0, sizeof args };
    if (!tni_simt_program_write(&p, l, c->gpu->limits.units)) return TN_EARG;
    tni_launch_record d = { .f     = tni_compiled_interpreter(c->gpu->compiled, p.level),
                            .grid  = { (unsigned)p.groups, 1, 1 },
                            .block = { TNI_INTERPRETER_THREADS, 1, 1 },
                            .args  = 1 };
    l->scratch          = (char *)(uintptr_t)tni_cuda_scratch(c, (size_t)p.scratch_bytes);
    if (!d.f || (p.scratch_bytes && !l->scratch)) return TN_EARG;
    memset(args, 0, sizeof args);
    tni_replay_provisional(c);
    const void *state = (const void *)(uintptr_t)tni_cuda_state(c, l->ticket);
    tni_simt_program_pack(&p, l, state, args);
    int error = tni_replay_launch(c, &d, offset, args);
    if (!error && p.finish_groups) {
        tni_simt_program_finish(&p);
        tni_simt_program_pack(&p, l, state, args);
        d.grid[0] = (unsigned)p.finish_groups;
        error     = tni_replay_launch(c, &d, offset, args);
    }
    return tni_cuda_status(c, error, "running a kernel", why);
}

// The scratch was allocated by prepare, but a shape may need more for a launch that prepare did not
// see.
static tn_status launch_compiled(tni_cuda *c, const tni_variant *v, const tni_simt *m,
                                 tni_launch *l, tni_text *why)
{
    l->scratch = (char *)(uintptr_t)tni_cuda_scratch(c, (size_t)m->scratch_bytes);
    if (m->scratch_bytes && !l->scratch) {
        tni_text_add(why, "cuda: out of memory for scratch");
        return TN_EMEM;
    }
    if (!is_grid(m)) {
        tni_text_add(why, "cuda: a kernel of %lld x %lld groups: too many elements",
                     (long long)m->grid[0], (long long)m->grid[1]);
        return TN_EDEVICE;
    }
    return tni_cuda_status(c, launch_variant(c, v, m, l), "running a kernel", why);
}

// The contract's launch: by the compiled kernel if it is ready, else by the interpreter, else after
// waiting for the compiler. A failed index is waited for only if no ticket reports it later.
tn_status tni_cuda_launch(void *session, void *entry, tni_launch *l, tni_text *why)
{
    tni_cuda     *c = session;
    tni_compiled *t = c->gpu->compiled;
    tni_simt      m;
    tn_status     s;
    bool          waits = l->wait_for_compiler || c->compiles_first;
    tni_cuda_enter(c);
    const tni_variant *v = tni_compiled_variant(t, entry, l, false, waits, &m, &s, why);
    if (!v && !waits) {
        s = interpret_launch(c, l, why);
        if (s == TN_EARG) v = tni_compiled_variant(t, entry, l, false, true, &m, &s, why);
    }
    if (v) s = launch_compiled(c, v, &m, l, why);
    if (s == TN_OK && !l->ticket && tni_compiled_checks(entry))
        s = tni_cuda_take_failure(c, l->fail, why);
    return s;
}

// ---- hand-written kernels ----------------------------------------------------------------------

// On CUDA a buffer is its address, without an offset.
tni_buffer_at tni_cuda_buffer_at(void *session, const void *address)
{
    (void)session;
    return (tni_buffer_at){ (void *)(uintptr_t)address, 0 };
}

tni_buffer_at tni_cuda_state_at(void *session, int ticket)
{
    return (tni_buffer_at){ (void *)(uintptr_t)tni_cuda_state(session, ticket), 0 };
}

// Launches a hand-written kernel. A grid has at most 2^31 - 1 blocks along its first axis.
tn_status tni_cuda_launch_args(const tni_kernel_args *h, int64_t groups, int items, tni_text *why)
{
    tni_cuda         *c = h->session;
    uint32_t          offset[TNI_KERNEL_ARGS + 1];
    tni_launch_record d = { .f        = h->kernel,
                            .grid     = { (unsigned)groups, 1, 1 },
                            .block    = { (unsigned)items, 1, 1 },
                            .overlaps = h->overlaps && c->gpu->overlaps,
                            .args     = (unsigned)h->count };
    if (groups > INT32_MAX) {
        tni_text_add(why, "cuda: %s: too many elements", h->what);
        return TN_EDEVICE;
    }
    for (int i = 0; i < h->count; i++) offset[i] = (uint32_t)h->at[i];
    offset[h->count] = (uint32_t)h->used;
    tni_cuda_enter(c);
    tn_status s = tni_cuda_status(c, tni_replay_launch(c, &d, offset, h->value), h->what, why);
    if (s == TN_OK && h->fail && !h->ticket) s = tni_cuda_take_failure(c, h->fail, why);
    return s;
}
