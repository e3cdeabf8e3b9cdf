// Library ops with a kernel behind them. Bits do not depend on how a result is cut, since such a
// kernel has no sums over rows.
#include "device/cpu/tiled_epilogue.h"

#include "device/cpu/cpu_walk.h"

enum { MOST_PARTS = 4096 };  // that have more than one piece

bool tni_tiled_epilogue_begin(tni_tiled_epilogue *epilogue, int64_t part, int64_t whole,
                              int64_t parts, int pieces)
{
    if (!epilogue || part % epilogue->along || whole % epilogue->along) return false;
    if (parts < epilogue->threads || (pieces > 1 && parts > MOST_PARTS)) return false;
    epilogue->pieces = pieces;
    for (int64_t i = 0; pieces > 1 && i < parts; i++) atomic_init(&epilogue->left[i], pieces);
    return epilogue->begun = true;
}

// The kernel over some indices of its first axis.
static void run_part(const tni_tiled_epilogue *epilogue, int64_t first, int64_t count, int worker)
{
    tni_launch l       = *epilogue->l;
    int64_t    fail[2] = { 0 };
    int64_t    arg[TNI_C_MAX_ARGS];
    for (int i = 0; i < l.kernel->naccess; i++) l.offset[i] += first * l.stride[i][0];
    l.size[0] = count;
    tni_emit_c_args(&l, arg);
    epilogue->run(l.buffer, arg, &l.number[0].u, 0, tni_kernel_split(&l).units, 0, NULL,
                  epilogue->rooms + (size_t)worker * epilogue->room, fail);
}

void tni_tiled_epilogue_piece(tni_tiled_epilogue *epilogue, int64_t which, int64_t first,
                              int64_t count, int worker)
{
    if (epilogue->pieces > 1 && atomic_fetch_sub(&epilogue->left[which], 1) > 1) return;
    run_part(epilogue, (epilogue->base + first) / epilogue->along, count / epilogue->along, worker);
}

typedef struct {
    tni_tiled_epilogue *epilogue;
    tni_task           *task;
    void               *arg;
    int64_t             part, all;
} parted;

static void run_item(void *arg, int64_t item, int worker)
{
    const parted *p     = arg;
    int64_t       which = item / p->epilogue->pieces, first = which * p->part;
    p->task(p->arg, item, worker);
    tni_tiled_epilogue_piece(p->epilogue, which, first, tni_min_i64(p->part, p->all - first),
                             worker);
}

void tni_tiled_epilogue_parallel(tni_tiled_epilogue *epilogue, int threads, int64_t items,
                                 tni_task *task, void *arg, int pieces, int64_t part, int64_t all)
{
    parted p = { epilogue, task, arg, part, all };
    if (tni_tiled_epilogue_begin(epilogue, part, all, items / pieces, pieces))
        tni_parallel(threads, items, run_item, &p);
    else tni_parallel(threads, items, task, arg);
}

// A kernel with a column sum has one over rows.
bool tni_cpu_takes(void *session, const tni_offer *o)
{
    int op = o->call->op;
    (void)session;
    if (o->epilogue.sum >= 0) return false;
    return op == TNI_matmul || op == TNI_conv || op == TNI_conv_dgrad;
}

static size_t room_of(const tni_cpu_code *code, const tni_launch *l)
{
    return (size_t)tni_align64((int64_t)tni_c_scratch_bytes(code->rows, tni_kernel_split(l).cols));
}

static size_t counters_bytes(void)
{
    return (size_t)tni_align64(MOST_PARTS * (int64_t)sizeof(atomic_int));
}

static size_t call_bytes(const tni_call *call)
{
    return (size_t)tni_align64((int64_t)tni_call_scratch(call));
}

// The kernel may be compiled between this and the run, or its parts may not suit it: there is room
// for all ways.
size_t tni_cpu_scratch_with_epilogue(const tni_call *call, void *entry, const tni_launch *l)
{
    const tni_cpu_code *code = entry;
    size_t              both = call_bytes(call), alone = tni_cpu_scratch(call->session, entry, l);
    if (code) both += counters_bytes() + (size_t)call->threads * room_of(code, l);
    return both > alone ? both : alone;
}

tn_status tni_cpu_run_with_epilogue(const tni_call *call, void *entry, tni_launch *l, tni_text *why)
{
    tni_cpu_code      *code     = entry;
    tni_call           c        = *call;
    tni_tiled_epilogue epilogue = { .l = l, .along = 1 };
    epilogue.run = code ? atomic_load_explicit(&code->run, memory_order_acquire) : NULL;
    if (epilogue.run) {
        char *rest = l->scratch + call_bytes(call);
        for (int i = 1; i < l->kernel->np + l->kernel->nr; i++) epilogue.along *= l->size[i];
        epilogue.threads = tni_cpu_threads(l);
        epilogue.left    = (atomic_int *)rest;
        epilogue.rooms   = rest + counters_bytes();
        epilogue.room    = room_of(code, l);
        c.tiled_epilogue = &epilogue;
    }
    tn_status s = tni_call_run(&c);
    return s != TN_OK || epilogue.begun ? s : tni_cpu_launch(call->session, entry, l, why);
}
