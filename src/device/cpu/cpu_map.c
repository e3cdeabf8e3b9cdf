// Maps: the output is cut into tiles; each operand is brought to its compute type in place or in a
// room on the stack, one tile function runs, and the result goes out the same way.
#include "base/pool.h"
#include "device/cpu/cpu_walk.h"

#include <string.h>

enum {
    TILES = 16,  // of a task
    INNER = 128  // least innermost size for which a tile stays within a row
};

// One map. Rows of `inner` elements are cut into `pieces` tiles each.
typedef struct {
    const tni_tiles *tiles;
    tni_tile_map    *f;
    int              nin;
    tni_arg          in[3], out;
    tn_dtype         as[3], result;
    bool             still[3];  // the same element everywhere
    int64_t          inner, pieces, count;
} job;

static void run_tile(const job *j, const void *const *fixed, int64_t tile, tni_room *rooms)
{
    int64_t     piece = tile % j->pieces * TNI_TILE, first = tile / j->pieces * j->inner + piece;
    int64_t     n    = tni_lesser(TNI_TILE, j->inner - piece);
    const void *x[3] = { NULL, NULL, NULL };
    for (int k = 0; k < j->nin; k++)
        x[k] = j->still[k] ? fixed[k]
                           : tni_tile_of(j->tiles, &j->in[k], j->as[k], first, n, &rooms[k]);

    char *y = j->out.data + first * (int64_t)tni_dtype_size(j->out.dtype);
    if (j->result == j->out.dtype) {
        j->f(y, x[0], x[1], x[2], n);
    } else {
        j->f(rooms[3].ready, x[0], x[1], x[2], n);
        tni_converter(j->tiles, j->result, j->out.dtype)(y, rooms[3].ready, n);
    }
}

static void run_tiles(void *arg, int64_t item, int worker)
{
    (void)worker;
    const job  *j = arg;
    tni_room    rooms[4];
    const void *fixed[3] = { NULL, NULL, NULL };
    int64_t tiles = j->count / j->inner * j->pieces, end = tni_lesser(tiles, (item + 1) * TILES);
    for (int k = 0; k < j->nin; k++)
        if (j->still[k])
            fixed[k] = tni_tile_run(j->tiles, j->in[k].data, j->in[k].dtype, 0, j->as[k],
                                    tni_lesser(TNI_TILE, j->inner), &rooms[k]);
    for (int64_t t = item * TILES; t < end; t++) run_tile(j, fixed, t, rooms);
}

// Tiles that stay within a row let operands that are broadcast along others stay in place.
static void cut(job *j)
{
    tni_arg *all[4] = { &j->out, &j->in[0], &j->in[1], &j->in[2] };
    j->count        = tni_arg_count(&j->out);
    tni_merge(1 + j->nin, all);
    int64_t last = j->out.rank > 0 ? j->out.size[j->out.rank - 1] : 1;
    j->inner     = last >= INNER ? last : j->count;
    j->pieces    = tni_pieces(j->inner, TNI_TILE);
    for (int k = 0; k < j->nin; k++) {
        tni_merge(1, &all[1 + k]);
        j->still[k] = tni_arg_is_still(&j->in[k]);
    }
}

void tni_cpu_map(const tni_call *call)
{
    int op = call->op;
    job j  = { .tiles = tni_tiles_get(), .nin = call->nin, .out = call->out };
    // In integers ~1 is not false.
    if (op == TNI_bit_not && call->out.dtype == TN_BOOL) op = TNI_logical_not;

    tn_dtype compute = tni_compute_dtype(call->in[call->nin - 1].dtype);
    for (int k = 0; k < call->nin; k++) {
        j.in[k] = call->in[k];
        j.as[k] = compute;
    }
    if (tni_op_table[op].class == TNI_TERNARY) j.as[0] = TN_BOOL;
    j.result = tni_op_table[op].rule == TNI_TO_BOOL ? TN_BOOL : compute;
    j.f      = j.tiles->of[compute]->map[op];
    if (!j.f) {  // rounding of integers
        tni_copy_arg(call->threads, &call->in[0], &call->out);
        return;
    }
    cut(&j);
    int64_t tiles = j.count / j.inner * j.pieces;
    tni_parallel(tni_threads_for(call->threads, j.count), tni_pieces(tiles, TILES), run_tiles, &j);
}
