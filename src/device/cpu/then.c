// Library ops with a kernel behind them. Bits do not depend on how a result is cut, since such a
// kernel has no sums over rows.
#include "device/cpu/then.h"

#include "device/cpu/cpu_walk.h"

enum { MOST_PARTS = 4096 };  // that have more than one piece

bool tni_then_begin(tni_then *then, int64_t part, int64_t whole, int64_t parts, int pieces)
{
    if (!then || part % then->along || whole % then->along) return false;
    if (parts < then->threads || (pieces > 1 && parts > MOST_PARTS)) return false;
    then->pieces = pieces;
    for (int64_t i = 0; pieces > 1 && i < parts; i++) atomic_init(&then->left[i], pieces);
    return then->begun = true;
}

// The kernel over some indices of its first axis.
static void run_part(const tni_then *then, int64_t first, int64_t count, int worker)
{
    tni_launch l       = *then->l;
    int64_t    fail[2] = { 0 };
    int64_t    arg[TNI_C_MOST_ARGS];
    for (int i = 0; i < l.kernel->naccess; i++) l.offset[i] += first * l.stride[i][0];
    l.size[0] = count;
    tni_emit_c_args(&l, arg);
    then->run(l.buffer, arg, &l.number[0].u, 0, tni_kernel_cut(&l).units, 0, NULL,
              then->rooms + (size_t)worker * then->room, fail);
}

void tni_then_piece(tni_then *then, int64_t which, int64_t first, int64_t count, int worker)
{
    if (then->pieces > 1 && atomic_fetch_sub(&then->left[which], 1) > 1) return;
    run_part(then, (then->base + first) / then->along, count / then->along, worker);
}

typedef struct {
    tni_then *then;
    tni_task *task;
    void     *arg;
    int64_t   part, all;
} parted;

static void run_item(void *arg, int64_t item, int worker)
{
    const parted *p     = arg;
    int64_t       which = item / p->then->pieces, first = which * p->part;
    p->task(p->arg, item, worker);
    tni_then_piece(p->then, which, first, tni_lesser(p->part, p->all - first), worker);
}

void tni_then_parallel(tni_then *then, int threads, int64_t items, tni_task *task, void *arg,
                       int pieces, int64_t part, int64_t all)
{
    parted p = { then, task, arg, part, all };
    if (tni_then_begin(then, part, all, items / pieces, pieces))
        tni_parallel(threads, items, run_item, &p);
    else tni_parallel(threads, items, task, arg);
}

// A kernel with a column sum has one over rows.
bool tni_cpu_takes(void *seat, const tni_offer *o)
{
    int op = o->call->op;
    (void)seat;
    if (o->epilogue.sum >= 0) return false;
    return op == TNI_matmul || op == TNI_conv || op == TNI_conv_dgrad;
}

static size_t room_of(const tni_cpu_code *code, const tni_launch *l)
{
    return (size_t)tni_align64((int64_t)tni_c_room(code->rows, tni_kernel_cut(l).cols));
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
size_t tni_cpu_room_then(const tni_call *call, void *entry, const tni_launch *l)
{
    const tni_cpu_code *code = entry;
    size_t              both = call_bytes(call), alone = tni_cpu_room(call->seat, entry, l);
    if (code) both += counters_bytes() + (size_t)call->threads * room_of(code, l);
    return both > alone ? both : alone;
}

tn_status tni_cpu_run_then(const tni_call *call, void *entry, tni_launch *l, tni_text *why)
{
    tni_cpu_code *code = entry;
    tni_call      c    = *call;
    tni_then      then = { .l = l, .along = 1 };
    then.run           = code ? atomic_load_explicit(&code->run, memory_order_acquire) : NULL;
    if (then.run) {
        char *rest = l->scratch + call_bytes(call);
        for (int i = 1; i < l->kernel->np + l->kernel->nr; i++) then.along *= l->size[i];
        then.threads = tni_cpu_threads(l);
        then.left    = (atomic_int *)rest;
        then.rooms   = rest + counters_bytes();
        then.room    = room_of(code, l);
        c.then       = &then;
    }
    tn_status s = tni_call_run(&c);
    return s != TN_OK || then.begun ? s : tni_cpu_launch(call->seat, entry, l, why);
}
