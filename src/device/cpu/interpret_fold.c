// Fast paths for loops that only fold what they load in place: sums and extrema of rows and
// columns. They pass many rows to one tile function, which then keeps accumulators in registers, in
// the order in which steps would fold, so that no bit differs.
#include "device/cpu/interpret_step.h"

#include "base/integers.h"

#include <string.h>

enum { TOTALS = 256 };  // results converted and stored by one call: 2 KiB of stack

// A load and the step that folds it. fold is NULL if a section is anything else.
typedef struct {
    const tni_tile_step *load, *fold;
} load_and_fold;

// Returns the two steps of a section that only loads in place and folds by that kind of step.
static load_and_fold sole_fold(const tni_program *g, int section, int kind)
{
    int                  head = g->section[section].head;
    const tni_tile_step *load = head >= 0 ? &g->step[head] : NULL;
    const tni_tile_step *fold = load && load->next >= 0 ? &g->step[load->next] : NULL;
    bool only = fold && fold->next < 0 && load->kind == TNI_S_IN_PLACE && fold->kind == kind &&
                fold->a == load->dst;
    return only ? (load_and_fold){ load, fold } : (load_and_fold){ NULL, NULL };
}

static bool is_empty_section(const tni_program *g, int section)
{
    return g->section[section].head < 0;
}

// Returns the address of the first lane that a step loads.
static const char *lanes_of(const tni_worker *w, const tni_tile_step *load)
{
    const tni_launch *l = w->g->l;
    return l->buffer[l->kernel->access[load->access].buffer] +
           (w->place[load->access] + w->shift) * load->bytes;
}

// Folds `count` lines of n lanes from x on, `step` elements apart, in groups of TNI_GROUP, as
// accumulate_line would one by one.
static void fold_lines(const tni_tile_step *s, const char *x, int64_t step, int64_t count,
                       char *acc, char *total, char *widened, int64_t n)
{
    for (int64_t i = 0; i < count; i += TNI_GROUP, x += TNI_GROUP * step * s->bytes) {
        memcpy(acc, x, (size_t)n * s->bytes);
        s->f.fold(acc, x + step * s->bytes, step, tni_min_i64(TNI_GROUP, count - i) - 1, n);
        tni_end_group(s, acc, total, widened, i == 0, n);
    }
}

// Sums of columns: folds `rows` rows of the chunk from the current one on, a strip of columns at a
// time.
static bool fold_columns(tni_worker *w, int64_t rows)
{
    const tni_program *g    = w->g;
    int64_t            lane = g->l->size[w->lane];
    load_and_fold      p    = sole_fold(g, tni_loop_section(0), TNI_S_TAIL_ROWS);
    if (!p.fold || !is_empty_section(g, tni_row_section(1))) return false;
    for (w->shift = 0; w->shift < lane; w->shift += TNI_STRIP) {
        int64_t n = tni_min_i64(TNI_STRIP, lane - w->shift);
        fold_lines(p.fold, lanes_of(w, p.load), g->l->stride[p.load->access][0], rows,
                   w->mem + p.fold->mem + w->shift * p.fold->bytes,
                   (char *)(w->partial + p.fold->partial + w->shift), w->reg[p.fold->c], n);
    }
    w->shift = 0;
    return true;
}

// Returns the total of a row, folded in blocks of TNI_STRIP that are combined in order.
static tni_total fold_row(const tni_tile_step *s, const char *x, int64_t lane)
{
    tni_total total = s->f.block(x, tni_min_i64(TNI_STRIP, lane));
    for (int64_t at = TNI_STRIP; at < lane; at += TNI_STRIP) {
        tni_total v = s->f.block(x + at * s->bytes, tni_min_i64(TNI_STRIP, lane - at));
        s->wide(&total, &v, 0, 1, 1);
    }
    return total;
}

// Converts n totals and stores them side by side.
static void store_totals(char *y, const tni_tile_step *convert, const tni_tile_step *store,
                         const tni_total *total, int64_t n)
{
    _Alignas(64) char made[TOTALS * 8];
    convert->f.convert(made, total, n);
    if (store->kind == TNI_S_STORE) store->f.convert(y, made, n);
    else memcpy(y, made, (size_t)n * store->bytes);
}

// Sums of rows: a result for each row, contiguous in memory. Results are collected, so that
// converting and storing them does not cost two calls for each row.
static bool fold_each(tni_worker *w, int64_t rows)
{
    const tni_program *g    = w->g;
    const tni_launch  *l    = g->l;
    int                head = g->section[tni_row_section(1)].head;
    load_and_fold      p    = sole_fold(g, tni_loop_section(0), TNI_S_BLOCK);
    if (!p.fold || head < 0) return false;
    const tni_tile_step *convert = &g->step[head];
    const tni_tile_step *store   = convert->next >= 0 ? &g->step[convert->next] : NULL;
    if (!store || store->next >= 0 || convert->kind != TNI_S_CONVERT || convert->a != p.fold->dst ||
        (store->kind != TNI_S_STORE && store->kind != TNI_S_SCATTER) || store->a != convert->dst ||
        l->stride[store->access][0] != 1)
        return false;
    tni_total   total[TOTALS];
    const char *x = lanes_of(w, p.load);
    char       *y = l->buffer[l->kernel->access[store->access].buffer] +
              w->place[store->access] * store->bytes;
    for (int64_t i = 0; i < rows; i++, x += l->stride[p.load->access][0] * p.fold->bytes) {
        total[i % TOTALS] = fold_row(p.fold, x, l->size[w->lane]);
        if (i % TOTALS != TOTALS - 1 && i + 1 < rows) continue;
        store_totals(y + i / TOTALS * TOTALS * store->bytes, convert, store, total, i % TOTALS + 1);
    }
    return true;
}

// Only for one axis of rows and one of columns, and a single phase: then rows are a fixed stride
// apart. These are most sums that run alone.
bool tni_fold_rows(tni_worker *w, int64_t rows)
{
    const tni_kernel *k = w->g->l->kernel;
    if (k->np != 1 || k->nr != 1 || w->g->phases != 1 ||
        !is_empty_section(w->g, tni_row_section(0)))
        return false;
    return fold_columns(w, rows) || fold_each(w, rows);
}

// Only for one R axis, so that lines are a fixed stride apart.
bool tni_fold_loop(tni_worker *w, int section)
{
    const tni_program *g = w->g;
    const tni_kernel  *k = g->l->kernel;
    load_and_fold      p = sole_fold(g, section, TNI_S_FOLD);
    if (!p.fold || k->nr != 1) return false;
    fold_lines(p.fold, lanes_of(w, p.load), g->l->stride[p.load->access][k->np], g->cut.cols,
               w->reg[p.fold->b], w->reg[p.fold->dst], w->reg[p.fold->c], w->n);
    return true;
}

// A sum over everything: strips of the one line are contiguous, so that a chunk is folded in one
// go.
bool tni_fold_strips(tni_worker *w, int64_t first, int64_t end)
{
    const tni_program *g = w->g;
    const tni_kernel  *k = g->l->kernel;
    load_and_fold      p = sole_fold(g, tni_row_section(0), TNI_S_TAIL_BLOCK);
    if (!p.fold || k->np != 1 || k->nr != 0) return false;
    w->shift         = first * TNI_STRIP;
    int64_t    lanes = tni_min_i64(end * TNI_STRIP, g->l->size[w->lane]) - w->shift;
    tni_total *to    = w->partial + p.fold->partial;
    *to              = fold_row(p.fold, lanes_of(w, p.load), lanes);
    return true;
}
