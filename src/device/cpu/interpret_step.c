// Runs the steps of a program over one tile. Each step is one call of a tile function, so that the
// cost of dispatch is shared by up to TNI_STRIP elements.
#include "device/cpu/interpret_step.h"

#include "device/cpu/strided.h"
#include "kernel/prelude.h"

#include <string.h>

// Returns the stride of an access along the lane axis; 0 in a stage without lanes.
static int64_t lane_stride(const tni_worker *w, int access)
{
    return w->lane >= 0 ? w->g->l->stride[access][w->lane] : 0;
}

// Returns the place of the tile's first lane.
static int64_t tile_place(const tni_worker *w, int access)
{
    return w->place[access] + w->shift * lane_stride(w, access);
}

// Returns the address of the tile's first lane. bytes: of an element.
static char *tile_address(const tni_worker *w, int access, int64_t bytes)
{
    return w->g->l->buffer[w->g->l->kernel->access[access].buffer] + tile_place(w, access) * bytes;
}

// Returns the address of the tile within the memory that keeps a register for the unit.
static char *kept_address(const tni_worker *w, int reg)
{
    const tni_reg *r = &w->g->reg[reg];
    return w->mem + r->keep + w->at * (int64_t)tni_dtype_size((tn_dtype)r->rep);
}

// Points a register to where its elements are to be computed: kept memory, or the output itself.
static void set_destination(tni_worker *w, const tni_tile_step *s)
{
    if (s->dest == TNI_DEST_KEPT) w->reg[s->dst] = kept_address(w, s->dst);
    else
        w->reg[s->dst] = tile_address(w, s->out,
                                      (int64_t)tni_dtype_size((tn_dtype)w->g->reg[s->dst].rep));
}

// ---- sources -----------------------------------------------------------------------------------

// Loads a launch's number. Bools are bytes in registers, and int32 in a launch.
static void run_number(tni_worker *w, const tni_tile_step *s)
{
    tni_word v = w->g->l->number[s->ins];
    if (s->dtype == TN_BOOL) *(uint8_t *)w->reg[s->dst] = v.i != 0;
    else memcpy(w->reg[s->dst], &v, sizeof v);
}

static void run_place(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    int64_t *y = (int64_t *)w->reg[s->dst], first = tile_place(w, s->access);
    int64_t  stride = lane_stride(w, s->access);
    for (int64_t i = 0; i < n; i++) y[i] = first + i * stride;
}

// y[i] = x[i * stride + index[i] * step], for elements of `bytes` bytes. Inlined with a constant
// size, so that memcpy becomes a load and a store.
static inline void pick_elements(size_t bytes, char *y, const char *x, int64_t stride, int64_t step,
                                 const int64_t *index, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(y + (size_t)i * bytes, x + (i * stride + index[i] * step) * (int64_t)bytes, bytes);
}

static void pick_elements_run(size_t bytes, char *y, const char *x, int64_t stride, int64_t step,
                              const int64_t *index, int64_t n)
{
    if (bytes == 4) pick_elements(4, y, x, stride, step, index, n);
    else if (bytes == 2) pick_elements(2, y, x, stride, step, index, n);
    else if (bytes == 8) pick_elements(8, y, x, stride, step, index, n);
    else pick_elements(1, y, x, stride, step, index, n);
}

// Returns how many elements from the first on have the first one's guard.
static int64_t guard_run(const uint8_t *guard, int64_t n)
{
    const uint8_t *end = memchr(guard, !*guard, (size_t)n);
    return end ? end - guard : n;
}

// Loads by index and guard, one run of equal guards after the other, so that the loops have no
// branch per element: a pad has two runs per line. Elements whose guard is false are 0 and are not
// touched in memory. s->ins: there is an index for each lane; else there is one for all lanes, or
// none.
static void run_indexed(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    const int64_t *index = s->a >= 0 ? (const int64_t *)w->reg[s->a] : NULL;
    const uint8_t *guard = s->b >= 0 ? (const uint8_t *)w->reg[s->b] : NULL;
    const int64_t  bytes = s->bytes, stride = lane_stride(w, s->access);
    const int64_t  step = w->g->l->stride[s->access][TNI_AXES];
    char          *y    = w->reg[s->dst];
    const char    *x    = tile_address(w, s->access, bytes);
    if (index && !s->ins) x += *index * step * bytes;
    for (int64_t i = 0, run; i < n; i += run, y += run * bytes) {
        run = guard ? guard_run(guard + i, n - i) : n;
        if (guard && !guard[i]) memset(y, 0, (size_t)(run * bytes));
        else if (index && s->ins)
            pick_elements_run((size_t)bytes, y, x + i * stride * bytes, stride, step, index + i,
                              run);
        else tni_gather_run((size_t)bytes, y, x + i * stride * bytes, stride, run);
    }
}

// Writes one element of a random tensor to y[i]. Number `at` of the tensor is always the same
// value, however a launch is cut.
static void random_one(const tni_tile_step *s, void *y, int64_t i, uint64_t key, uint64_t c,
                       uint64_t at)
{
    bool d = s->dtype == TN_F64, u = s->op == TNI_uniform;
    if (s->op == TNI_random_bits) ((int64_t *)y)[i] = m_rand_bits(key, c, at);
    else if (d) ((double *)y)[i] = u ? m_rand_uniform_d(key, c, at) : m_rand_normal_d(key, c, at);
    else ((float *)y)[i] = u ? m_rand_uniform_f(key, c, at) : m_rand_normal_f(key, c, at);
}

// Cuts uniform numbers to the digits of a 16-bit float, as m_uniform_f16 and m_uniform_bf16 do:
// rounding could give 1.
static void truncate_bits(float *u, int64_t n, tn_dtype dt)
{
    float steps = (float)(1 << tni_dtype_table[dt].digits);
    for (int64_t i = 0; i < n; i++) u[i] = (float)(int32_t)(u[i] * steps) / steps;
}

// Philox makes four 32-bit words at a time, so contiguous elements are made together from a
// multiple of 4 on; the elements before that, and scattered ones, one by one. Below 8 elements that
// preparation does not pay.
static void run_random(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    const int64_t *index = s->access < 0 ? (const int64_t *)w->reg[s->a] : NULL;
    uint64_t       key = w->g->l->number[s->ins].u, c = w->g->l->number[s->ins + 1].u;
    char          *y      = w->reg[s->dst];
    int64_t        first  = index ? 0 : tile_place(w, s->access);
    int64_t        stride = index ? 0 : lane_stride(w, s->access), i = 0, size = 8;
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
        truncate_bits((float *)y, n, (tn_dtype)s->dtype);
}

// Wraps negative indices, and notes the first index out of range. It is replaced by 0, so that
// loads stay within their buffer; the launch fails in the end.
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

// Combines a block's total with another, in order; the first sets it.
static void combine_total(const tni_tile_step *s, tni_total *to, tni_total v, bool first)
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

// Adds line number i to a tile of accumulators: the first of a group sets them, and the last of a
// group, or of all, adds them to the totals. Groups are what kernel.h promises: TNI_GROUP additions
// in the dtype itself, then one in double.
static void accumulate_line(const tni_tile_step *s, char *acc, const char *x, char *total,
                            char *widened, int64_t i, bool last, int64_t n)
{
    if (i % TNI_GROUP == 0) memcpy(acc, x, (size_t)n * s->bytes);
    else s->f.fold(acc, x, 0, 1, n);
    if (last || i % TNI_GROUP == TNI_GROUP - 1)
        tni_end_group(s, acc, total, widened, i < TNI_GROUP, n);
}

// A tail of the columns with the lane axis in R: every row adds to the accumulators of its tile.
static void run_tail_rows(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    char *acc = w->mem + s->mem + w->at * s->bytes;
    accumulate_line(s, acc, w->reg[s->a], (char *)(w->partial + s->partial + w->at), w->reg[s->c],
                    w->row, w->last_row, n);
}

// Combines the partial results of all chunks, in the order of chunks.
static void run_combine(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    int64_t    step = w->g->cut.partials, chunks = w->g->cut.chunks;
    tni_total *from = w->partial + s->partial + (s->one ? 0 : w->at);
    memcpy(w->reg[s->dst], from, (size_t)n * sizeof *from);
    s->wide(w->reg[s->dst], from + step, step, chunks - 1, n);
}

// ---- all ---------------------------------------------------------------------------------------

// The folds. at, index and row are 0 at the first tile, r or unit of whatever a fold covers, which
// is when it sets its total instead of adding to it.
static void run_fold(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    char *x = w->reg[s->a];
    switch (s->kind) {
    case TNI_S_BLOCK:
        combine_total(s, (tni_total *)w->reg[s->dst], s->f.block(x, n), w->at == 0);
        break;
    case TNI_S_FOLD:
        accumulate_line(s, w->reg[s->b], x, w->reg[s->dst], w->reg[s->c], w->index, w->last_index,
                        n);
        break;
    case TNI_S_TAIL_ROWS: run_tail_rows(w, s, n); break;
    case TNI_S_TAIL_ONE:
        combine_total(s, w->partial + s->partial, s->f.block(x, 1), w->row == 0);
        break;
    case TNI_S_TAIL_BLOCK:
        combine_total(s, w->partial + s->partial + (s->ins ? w->index : 0), s->f.block(x, n),
                      w->row == 0);
        break;
    default: break;
    }
}

// The steps that are more than one call, or rare.
static void run_other(tni_worker *w, const tni_tile_step *s, int64_t n)
{
    switch (s->kind) {
    case TNI_S_GATHER:
        tni_gather_run(s->bytes, w->reg[s->dst], tile_address(w, s->access, s->bytes),
                       lane_stride(w, s->access), n);
        break;
    case TNI_S_SCATTER:
        tni_scatter_run(s->bytes, tile_address(w, s->access, s->bytes), w->reg[s->a],
                        lane_stride(w, s->access), n);
        break;
    case TNI_S_INDEXED: run_indexed(w, s, n); break;
    case TNI_S_PLACE: run_place(w, s, n); break;
    case TNI_S_NUMBER: run_number(w, s); break;
    case TNI_S_RANDOM: run_random(w, s, n); break;
    case TNI_S_CHECK: run_check(w, s, n); break;
    case TNI_S_KEPT: w->reg[s->dst] = kept_address(w, s->dst); break;
    case TNI_S_COMBINE: run_combine(w, s, n); break;
    default: run_fold(w, s, n); break;
    }
}

// The common kinds are here, so that the compiler makes one jump table of them; the rest is in
// run_other.
void tni_run_section(tni_worker *w, int section)
{
    const tni_tile_step *step = w->g->step;
    char               **reg  = w->reg;
    for (int i = w->g->section[section].head; i >= 0; i = step[i].next) {
        const tni_tile_step *s = &step[i];
        int64_t              n = s->one ? 1 : w->n;
        if (s->dest) set_destination(w, s);
        switch (s->kind) {
        case TNI_S_MAP:
            s->f.map(reg[s->dst], reg[s->a], s->b >= 0 ? reg[s->b] : NULL,
                     s->c >= 0 ? reg[s->c] : NULL, n);
            break;
        case TNI_S_CONVERT: s->f.convert(reg[s->dst], reg[s->a], n); break;
        case TNI_S_BROADCAST: tni_fill_run(s->bytes, reg[s->dst], reg[s->a], n); break;
        case TNI_S_IN_PLACE: reg[s->dst] = tile_address(w, s->access, s->bytes); break;
        case TNI_S_LOAD: s->f.convert(reg[s->dst], tile_address(w, s->access, s->bytes), n); break;
        case TNI_S_STORE: s->f.convert(tile_address(w, s->access, s->bytes), reg[s->a], n); break;
        default: run_other(w, s, n); break;
        }
    }
}
