// The steps of a program, run over one tile.
#include "device/cpu/interpret_step.h"

#include "device/cpu/cpu_walk.h"
#include "kernel/prelude.h"

#include <string.h>

static int64_t stride_of(const tni_worker *w, int access)
{
    return w->lane >= 0 ? w->g->l->stride[access][w->lane] : 0;
}

// The place of the tile's first lane.
static int64_t place_of(const tni_worker *w, int access)
{
    return w->place[access] + w->shift * stride_of(w, access);
}

static char *address(const tni_worker *w, int access, int64_t bytes)
{
    return w->g->l->buffer[w->g->l->kernel->access[access].buffer] + place_of(w, access) * bytes;
}

static char *kept_at(const tni_worker *w, int reg)
{
    const tni_reg *r = &w->g->reg[reg];
    return w->mem + r->keep + w->at * (int64_t)tni_dtype_size((tn_dtype)r->rep);
}

// Turns dst to where its elements shall be made.
static void lead(tni_worker *w, const tni_tile_step *s)
{
    if (s->lead == TNI_LEAD_KEEP) w->reg[s->dst] = kept_at(w, s->dst);
    else
        w->reg[s->dst] = address(w, s->out,
                                 (int64_t)tni_dtype_size((tn_dtype)w->g->reg[s->dst].rep));
}

// ---- sources -----------------------------------------------------------------------------------

static void run_number(tni_worker *w, const tni_tile_step *s)
{
    tni_word v = w->g->l->number[s->ins];
    if (s->dtype == TN_BOOL) *(uint8_t *)w->reg[s->dst] = v.i != 0;
    else memcpy(w->reg[s->dst], &v, sizeof v);
}

static void run_place(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    int64_t *y = (int64_t *)w->reg[s->dst], first = place_of(w, s->access);
    int64_t  stride = stride_of(w, s->access);
    for (int64_t i = 0; i < n; i++) y[i] = first + i * stride;
}

// y[i] = x[i * stride + index[i] * step], elements of so many bytes.
static inline void pick(size_t bytes, char *y, const char *x, int64_t stride, int64_t step,
                        const int64_t *index, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(y + (size_t)i * bytes, x + (i * stride + index[i] * step) * (int64_t)bytes, bytes);
}

static void pick_run(size_t bytes, char *y, const char *x, int64_t stride, int64_t step,
                     const int64_t *index, int64_t n)
{
    if (bytes == 4) pick(4, y, x, stride, step, index, n);
    else if (bytes == 2) pick(2, y, x, stride, step, index, n);
    else if (bytes == 8) pick(8, y, x, stride, step, index, n);
    else pick(1, y, x, stride, step, index, n);
}

// How many elements from the first on have the first one's guard.
static int64_t guard_run(const uint8_t *guard, int64_t n)
{
    const uint8_t *end = memchr(guard, !*guard, (size_t)n);
    return end ? end - guard : n;
}

// Run by run of what the guard says: the index is one for each lane (ins of the step), one for all, or none.
static void run_at(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    const int64_t *index = s->a >= 0 ? (const int64_t *)w->reg[s->a] : NULL;
    const uint8_t *guard = s->b >= 0 ? (const uint8_t *)w->reg[s->b] : NULL;
    const int64_t  bytes = s->bytes, stride = stride_of(w, s->access);
    const int64_t  step = w->g->l->stride[s->access][TNI_AXES];
    char          *y    = w->reg[s->dst];
    const char    *x    = address(w, s->access, bytes);
    if (index && !s->ins) x += *index * step * bytes;
    for (int64_t i = 0, run; i < n; i += run, y += run * bytes) {
        run = guard ? guard_run(guard + i, n - i) : n;
        if (guard && !guard[i]) memset(y, 0, (size_t)(run * bytes));
        else if (index && s->ins)
            pick_run((size_t)bytes, y, x + i * stride * bytes, stride, step, index + i, run);
        else tni_gather_run((size_t)bytes, y, x + i * stride * bytes, stride, run);
    }
}

// One element of a random tensor, at y[i].
static void random_one(const tni_tile_step *s, void *y, int64_t i, uint64_t key, uint64_t c,
                       uint64_t at)
{
    bool d = s->dtype == TN_F64, u = s->op == TNI_uniform;
    if (s->op == TNI_random_bits) ((int64_t *)y)[i] = m_rand_bits(key, c, at);
    else if (d) ((double *)y)[i] = u ? m_rand_uniform_d(key, c, at) : m_rand_normal_d(key, c, at);
    else ((float *)y)[i] = u ? m_rand_uniform_f(key, c, at) : m_rand_normal_f(key, c, at);
}

// 16-bit floats take the first of a uniform number's bits, m_uniform_f16 and m_uniform_bf16.
static void cut_bits(float *u, int64_t n, tn_dtype dt)
{
    float steps = (float)(1 << tni_dtype_table[dt].digits);
    for (int64_t i = 0; i < n; i++) u[i] = (float)(int32_t)(u[i] * steps) / steps;
}

// Elements side by side are made together from a multiple of 4 on.
static void run_random(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    const int64_t *index = s->access < 0 ? (const int64_t *)w->reg[s->a] : NULL;
    uint64_t       key = w->g->l->number[s->ins].u, c = w->g->l->number[s->ins + 1].u;
    char          *y      = w->reg[s->dst];
    int64_t        first  = index ? 0 : place_of(w, s->access);
    int64_t        stride = index ? 0 : stride_of(w, s->access), i = 0, size = 8;
    if (s->op != TNI_random_bits && s->dtype != TN_F64) size = 4;
    if (index) {
        for (; i < n; i++) random_one(s, y, i, key, c, (uint64_t)index[i]);
    } else {
        bool run = stride == 1 && n >= 8;
        for (; i < n && !(run && (first + i) % 4 == 0); i++)
            random_one(s, y, i, key, c, (uint64_t)(first + i * stride));
        if (i < n) s->f.random(y + i * size, key, c, first + i, n - i);
    }
    if (s->op == TNI_uniform && tni_is_rounded((tn_dtype)s->dtype))
        cut_bits((float *)y, n, (tn_dtype)s->dtype);
}

static void run_check(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    const int64_t *x    = (const int64_t *)w->reg[s->a];
    int64_t       *y    = (int64_t *)w->reg[s->dst];
    int64_t        size = w->g->l->number[w->g->l->kernel->ins[s->ins].number].l;
    for (int64_t i = 0; i < n; i++) {
        int64_t k  = x[i] < 0 ? x[i] + size : x[i];
        bool    ok = k >= 0 && k < size;
        y[i]       = ok ? k : 0;
        if (ok || w->fail[1]) continue;
        w->fail[0] = w->chunk;
        w->fail[1] = 1 + s->ins;
        w->fail[2] = x[i];
    }
}

// ---- folds -------------------------------------------------------------------------------------

// Joins a block's total to another in order; the first begins it.
static void join(const tni_tile_step *s, tni_total *to, tni_total v, bool first)
{
    if (first) *to = v;
    else s->wide(to, &v, 0, 1, 1);
}

void tni_end_group(const tni_tile_step *s, char *acc, char *total, char *widened, bool first,
                   int64_t n)
{
    s->widen(first ? total : widened, acc, n);
    if (!first) s->wide(total, widened, 0, 1, n);
}

// The i-th of what an accumulator tile takes in: the first of a group begins it, and the last joins
// the totals.
static void accumulate(const tni_tile_step *s, char *acc, const char *x, char *total, char *widened,
                       int64_t i, bool last, int64_t n)
{
    if (i % TNI_GROUP == 0) memcpy(acc, x, (size_t)n * s->bytes);
    else s->f.fold(acc, x, 0, 1, n);
    if (last || i % TNI_GROUP == TNI_GROUP - 1)
        tni_end_group(s, acc, total, widened, i < TNI_GROUP, n);
}

static void run_tail_rows(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    char *acc = w->mem + s->mem + w->at * s->bytes;
    accumulate(s, acc, w->reg[s->a], (char *)(w->partial + s->partial + w->at), w->reg[s->c],
               w->row, w->last_row, n);
}

static void run_join(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    int64_t    step = w->g->cut.partials, chunks = w->g->cut.chunks;
    tni_total *from = w->partial + s->partial + (s->one ? 0 : w->at);
    memcpy(w->reg[s->dst], from, (size_t)n * sizeof *from);
    s->wide(w->reg[s->dst], from + step, step, chunks - 1, n);
}

// ---- all ---------------------------------------------------------------------------------------

static void run_fold(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    char *x = w->reg[s->a];
    switch (s->kind) {
    case TNI_S_BLOCK: join(s, (tni_total *)w->reg[s->dst], s->f.block(x, n), w->at == 0); break;
    case TNI_S_FOLD:
        accumulate(s, w->reg[s->b], x, w->reg[s->dst], w->reg[s->c], w->index, w->last_index, n);
        break;
    case TNI_S_TAIL_ROWS: run_tail_rows(w, s, n); break;
    case TNI_S_TAIL_ONE: join(s, w->partial + s->partial, s->f.block(x, 1), w->row == 0); break;
    case TNI_S_TAIL_BLOCK:
        join(s, w->partial + s->partial + (s->ins ? w->index : 0), s->f.block(x, n), w->row == 0);
        break;
    default: break;
    }
}

// What is not one call.
static void run_other(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    switch (s->kind) {
    case TNI_S_GATHER:
        tni_gather_run(s->bytes, w->reg[s->dst], address(w, s->access, s->bytes),
                       stride_of(w, s->access), n);
        break;
    case TNI_S_SCATTER:
        tni_scatter_run(s->bytes, address(w, s->access, s->bytes), w->reg[s->a],
                        stride_of(w, s->access), n);
        break;
    case TNI_S_AT: run_at(w, s, n); break;
    case TNI_S_PLACE: run_place(w, s, n); break;
    case TNI_S_NUMBER: run_number(w, s); break;
    case TNI_S_RANDOM: run_random(w, s, n); break;
    case TNI_S_CHECK: run_check(w, s, n); break;
    case TNI_S_KEPT: w->reg[s->dst] = kept_at(w, s->dst); break;
    case TNI_S_JOIN: run_join(w, s, n); break;
    default: run_fold(w, s, n); break;
    }
}

void tni_run_section(tni_worker *w, int section)
{
    const tni_tile_step *step = w->g->step;
    char               **reg  = w->reg;
    for (int i = w->g->section[section].head; i >= 0; i = step[i].next) {
        const tni_tile_step *s = &step[i];
        int64_t              n = s->one ? 1 : w->n;
        if (s->lead) lead(w, s);
        switch (s->kind) {
        case TNI_S_MAP:
            s->f.map(reg[s->dst], reg[s->a], s->b >= 0 ? reg[s->b] : NULL,
                     s->c >= 0 ? reg[s->c] : NULL, n);
            break;
        case TNI_S_CONVERT: s->f.convert(reg[s->dst], reg[s->a], n); break;
        case TNI_S_SPREAD: tni_fill_run(s->bytes, reg[s->dst], reg[s->a], n); break;
        case TNI_S_HERE: reg[s->dst] = address(w, s->access, s->bytes); break;
        case TNI_S_LOAD: s->f.convert(reg[s->dst], address(w, s->access, s->bytes), n); break;
        case TNI_S_STORE: s->f.convert(address(w, s->access, s->bytes), reg[s->a], n); break;
        default: run_other(w, s, n); break;
        }
    }
}
