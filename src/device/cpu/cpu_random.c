// Random numbers: element i of a tensor by the prelude's counter-based generator, tile by tile.
#include "base/pool.h"
#include "device/cpu/cpu_walk.h"

enum { TASK = 8 * TNI_TILE };

typedef struct {
    const tni_tiles *tiles;
    tni_tile_random *f;
    const tni_call  *call;
    tn_dtype         made;  // what f makes
    int64_t          count;
} job;

// 16-bit floats take the first of a uniform number's bits, m_uniform_f16 and m_uniform_bf16.
static void cut(float *u, int64_t n, tn_dtype dt)
{
    float steps = (float)(1 << tni_dtype_table[dt].digits);
    for (int64_t i = 0; i < n; i++) u[i] = (float)(int32_t)(u[i] * steps) / steps;
}

static void random_task(void *arg, int64_t item, int worker)
{
    (void)worker;
    const job        *j   = arg;
    tn_dtype          dt  = j->call->out.dtype;
    int64_t           end = tni_lesser(j->count, (item + 1) * TASK);
    uint64_t          key = j->call->attr->random.key, counter = j->call->attr->random.counter;
    _Alignas(64) char made[TNI_TILE * 8];
    for (int64_t at = item * TASK; at < end; at += TNI_TILE) {
        int64_t n = tni_lesser(TNI_TILE, end - at);
        char   *y = j->call->out.data + at * (int64_t)tni_dtype_size(dt);
        j->f(dt == j->made ? y : made, key, counter, at, n);
        if (dt != j->made && j->call->op == TNI_uniform) cut((float *)made, n, dt);
        if (dt != j->made) tni_converter(j->tiles, j->made, dt)(y, made, n);
    }
}

void tni_cpu_random(const tni_call *call)
{
    const tni_tiles *t = tni_tiles_get();
    bool             d = call->out.dtype == TN_F64;
    job              j = { .tiles = t, .call = call, .count = tni_arg_count(&call->out) };
    if (call->op == TNI_random_bits) j.f = t->bits, j.made = TN_I64;
    else if (call->op == TNI_uniform) j.f = d ? t->uniform_d : t->uniform_f;
    else j.f = d ? t->normal_d : t->normal_f;
    if (call->op != TNI_random_bits) j.made = d ? TN_F64 : TN_F32;
    tni_parallel(tni_threads_for(call->threads, 8 * j.count), tni_pieces(j.count, TASK),
                 random_task, &j);
}
