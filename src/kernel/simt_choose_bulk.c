// Chooses the shape of long rows, which bulk copies (cp.async.bulk, Hopper and later) bring into
// shared memory: how many groups share a row, how many of them share a multiprocessor, and who
// takes which row.
#include "kernel/simt_choose.h"

#include "base/integers.h"

// As tni_simt_put_stash lays them out.
int64_t tni_simt_stash_bytes(const tni_launch_facts *f, const tni_simt *m)
{
    int64_t n      = 0;
    tni_set reread = tni_simt_reread(f->k);
    for (int i = 0; i < f->k->nins; i++) {
        const tni_ins *x = &f->k->ins[i];
        if (!tni_set_has(&reread, i) || !(m->class.vectors >> x->access & 1)) continue;
        int words = tni_simt_vector_words(&m->class, tni_access_dtype(f->k, x->access));
        n += tni_ceil_div(m->vectors * words, 4) * 16;
    }
    return n;
}

// Whether bulk copies (cp.async.bulk, Hopper and later) can bring the loads that several loops
// read: whole vectors of 16 bytes of one run of memory in every row, without index and guard. Tails
// of columns are excluded because their accumulators would not fit beside the rows.
static bool can_bulk_copy(const tni_launch_facts *f, const tni_simt_class *c)
{
    int     n      = 0;
    tni_set reread = tni_simt_reread(f->k);
    if (!f->limits->cluster || f->limits->threads < 512 || f->k->nr != 1 || !f->reduces ||
        f->col_tails)
        return false;
    for (int i = 0; i < f->k->nins; i++) {
        const tni_ins *x = &f->k->ins[i];
        if (!tni_set_has(&reread, i)) continue;
        if (x->a != TNI_NO_VALUE || x->b != TNI_NO_VALUE || !(c->vectors >> x->access & 1) ||
            tni_simt_vector_words(c, tni_access_dtype(f->k, x->access)) != 4)
            return false;
        n++;
    }
    return n > 0;
}

// How many threads a group has, how many groups share a multiprocessor, and at most how many groups
// share a row, in order of preference. Few large pieces come first: several groups on a
// multiprocessor work in turn (one computes while another waits for its copy), and a cluster costs
// an exchange for each fold, so a row is spread over more groups only when its piece would not fit
// otherwise.
typedef struct {
    int16_t threads, groups, cluster;
    bool    all;  // as many groups as that share a row, not fewer
} row_sharing;
static const row_sharing sharing[] = {
    { 256, 4, 2, false },
    { 512, 2, 4, false },
    { 256, 3, 8, false },
    { 512, 2, 8, false },
    // Only where a setting says so. Clusters that are no powers of two leave fewer multiprocessors
    // idle where 16 or 18 of them are wired together.
    { 128, 4, 8, false },
    { 512, 3, 8, false },
    { 1024, 1, 8, false },
    { 1024, 1, 4, false },
    { 512, 1, 4, false },
    { 256, 2, 8, false },
    { 512, 4, 8, false },
    { 512, 2, 5, true },
    { 256, 2, 5, true },
    { 512, 2, 6, true },
    { 256, 3, 7, true },
    { 1024, 1, 3, true },
    { 512, 1, 3, true },
    { 256, 3, 6, true }
};
enum { SHARING_RULES = 4 };
_Static_assert(sizeof sharing / sizeof *sharing == TNI_SHARINGS, "lines of sharing");

// The loads of a row's elements, if bulk copies can bring all of them: whole vectors of 16 bytes of
// one run of memory in every row, without index and guard; else 0.
static int count_element_loads(const tni_launch_facts *f, const tni_simt_class *c)
{
    int     n    = 0;
    tni_set need = tni_needs_main(f->k);
    if (!f->limits->cluster || f->k->nr != 1 || !f->reduces) return 0;
    for (int i = 0; i < f->k->nins; i++) {
        const tni_ins *x = &f->k->ins[i];
        if (x->code != TNI_I_LOAD || x->per != TNI_PER_ELEM || !tni_set_has(&need, i)) continue;
        if (x->a != TNI_NO_VALUE || x->b != TNI_NO_VALUE || !(c->vectors >> x->access & 1) ||
            tni_simt_vector_words(c, tni_access_dtype(f->k, x->access)) != 4)
            return 0;
        n++;
    }
    return n;
}

// What the two ways to bring a row have in common: g groups share a row, each with `bytes` of it in
// shared memory.
static void set_bulk(tni_simt *m, const row_sharing *s, int g, int64_t bytes)
{
    tni_simt_class *c = &m->class;
    c->low_occupancy  = 0;
    c->bulk           = (uint8_t)s->groups;
    c->cluster        = (uint8_t)(g > 1 ? g : 0);
    c->team           = (uint16_t)s->threads;
    m->shared_bytes   = (int)bytes;
}

// A long row that registers hold, those of a multiprocessor or of several (VECTORS: what those of
// one hold, with room for costly values). Shared memory is free for the next row as soon as the
// registers have this one, so that its copy overlaps with most of the work and with the stores. By
// itself this is chosen for elements of 4 bytes and more, since narrower ones have to be converted
// in every loop, which groups that work in turn hide better; and where nearly all threads have
// vectors in each turn. Measured on an H200: softmax of 512 x 131072 in f32 takes 142 us so and 146
// from shared memory, of 1024 x 50257, where a quarter of the turns is empty, 128 and 122.
bool tni_simt_bring_ahead(const tni_launch_facts *f, tni_simt *m)
{
    enum { THREADS = 1024, MOST = 8, VECTORS = 4096 };
    tni_simt        was   = *m;
    tni_simt_class *c     = &m->class;
    int             loads = count_element_loads(f, c), set = tni_setting(f, TNI_KNOB_WARPS);
    int             threads = set >= 8 ? TNI_WARP * set : THREADS;
    bool            asked   = tni_setting(f, TNI_KNOB_HOLD) == TNI_HOLD_BY_AHEAD;
    row_sharing     way     = { (int16_t)threads, 1, MOST, false };
    if (!loads || f->col_tails || f->limits->few_registers || threads > f->limits->threads)
        return false;
    if (c->vector == TNI_MAX_VECTOR && !asked) return false;
    for (int g = 1; g <= tni_min_i64(MOST, f->limits->cluster); g *= 2) {
        int64_t piece = tni_ceil_div(m->vectors, g), bytes = 16 * loads * piece, unroll = 1;
        while (unroll * threads < piece) unroll *= 2;
        if (bytes > f->limits->shared_bytes - TNI_SHARED_KEPT || unroll * threads > VECTORS)
            continue;
        if (8 * piece < 7 * unroll * threads && !asked) continue;
        set_bulk(m, &way, g, bytes);
        c->hold        = TNI_HOLD_REGISTERS;
        c->unroll      = (uint8_t)unroll;
        c->keep_costly = 1;
        c->by_warps    = tni_setting(f, TNI_KNOB_PREFETCH) == 3;
        if (tni_simt_fits_registers(f, c)) return true;
        *m = was;
    }
    return false;
}

// Whether something is loaded once for a row, whose latency only a prefetch into registers hides.
static bool loads_row_values(const tni_launch_facts *f)
{
    tni_set need = tni_needs_main(f->k);
    for (int i = 0; i < f->k->nins; i++)
        if (f->k->ins[i].code == TNI_I_LOAD && f->k->ins[i].per == TNI_PER_ROW &&
            !f->k->ins[i].finish && tni_set_has(&need, i))
            return true;
    return false;
}

// Rows with sums of columns, of which a team has many one after the other, in registers: bulk
// copies bring the next row. What prefetch in registers would take of them, and moving words from
// the next row's to this one's, is saved, and each warp asks for its part as soon as it has read
// the last. Measured on an H200: layer norm of 8192 x 4096 in bf16 with all gradients takes 84 us
// so and 105 with prefetch in registers.
bool tni_simt_prefetch_in_bulk(const tni_launch_facts *f, tni_simt *m)
{
    tni_simt_class *c     = &m->class;
    int             loads = count_element_loads(f, c), set = tni_setting(f, TNI_KNOB_PREFETCH);
    int64_t         bytes = 16 * loads * m->vectors;
    row_sharing     way   = { (int16_t)c->team, (int16_t)tni_simt_resident(c, c->team), 1, false };
    if (!loads || !f->col_tails || c->hold != TNI_HOLD_REGISTERS || c->rows_in_flight || c->bulk ||
        c->rows > 1 || c->team % TNI_WARP || (set && set != 3) || loads_row_values(f) ||
        f->rows <= f->limits->units * way.groups || f->limits->few_registers ||
        bytes > f->limits->shared_bytes / way.groups - TNI_SHARED_KEPT)
        return false;
    set_bulk(m, &way, 1, bytes);
    c->by_warps = 1;
    return true;
}

// A long row: held in shared memory, into which a bulk copy brings the next row as soon as this one
// is done with. A few groups on each multiprocessor work while others wait. A row too long for that
// is divided into pieces for the groups of a cluster. Takes the first sharing whose pieces fit;
// false if none does.
bool tni_simt_bring_row(const tni_launch_facts *f, tni_simt *m)
{
    tni_simt_class *c    = &m->class;
    int64_t         all  = tni_simt_stash_bytes(f, m);
    int             only = tni_setting(f, TNI_KNOB_CLUSTER);
    if (!can_bulk_copy(f, c)) return false;
    for (int i = only ? only - 1 : 0; i < (only ? only : SHARING_RULES); i++) {
        if (i >= TNI_SHARINGS || sharing[i].threads > f->limits->threads) return false;
        int64_t limit = f->limits->shared_bytes / sharing[i].groups - TNI_SHARED_KEPT / 2;
        int     first = sharing[i].all ? sharing[i].cluster : 1;
        for (int g = first; g <= tni_min_i64(sharing[i].cluster, f->limits->cluster); g *= 2) {
            int64_t bytes = all / m->vectors * tni_ceil_div(m->vectors, g);
            if (bytes > limit) continue;
            set_bulk(m, &sharing[i], g, bytes);
            c->hold        = TNI_HOLD_SHARED;
            c->unroll      = 1;
            c->keep_costly = 0;
            return true;
        }
    }
    return false;
}

// Groups, or clusters of them, that the device runs at once where bulk copies bring rows. The
// multiprocessors of a cluster are wired together, 16 or 18 of them, some of which are switched
// off: clusters of four or more leave a few idle.
int64_t tni_simt_bulk_concurrent(const tni_launch_facts *f, const tni_simt_class *c)
{
    int64_t units = f->limits->units;
    if (c->cluster >= 4) units -= units / 12;
    return tni_max_i64(1, units / tni_max_i64(1, c->cluster) * c->bulk);
}

// Whether rows are taken by tickets. Groups that have the same number of rows each, one after the
// other, drift apart, and what they read and write at a time is scattered over memory, which then
// moves a tenth less than it can: measured on an H200. By tickets they stay together, as the groups
// of a kernel with a group for each row do, and the next row can be copied ahead.
bool tni_simt_takes_tickets(const tni_launch_facts *f, const tni_simt_class *c)
{
    return c->bulk && !f->col_tails && f->rows > tni_simt_bulk_concurrent(f, c) &&
           f->rows < INT32_MAX / 2;
}
