// Chooses the shape of a kernel on a device with work groups (simt.h). The choice goes: which
// accesses move vectors and how wide (choose_vector), then by form how many threads share a row and
// where the row is held (choose_row, choose_lane, choose_point), then the grid (split_chunks) and
// how tails are finished (choose_finish).
//
// Every decision depends on what launch_words.h lists and the limits of the device alone, and on
// settings (tuning.h), which take the place of rules where they are set and can be followed. The
// shape fixes the order of every sum, so a choice by load, or by timing that is not kept, would
// give other bits from run to run.
#include "kernel/simt_choose.h"

#include "base/integers.h"
#include "kernel/thresholds.h"

#include <string.h>

enum {
    // Registers of a thread for what is held from loop to loop: a quarter of the most that a thread
    // can have. Values and addresses come on top, and several groups should still share a
    // multiprocessor of 65,536 registers.
    REGISTERS = 64,
    // The same where half of RESIDENT threads share a multiprocessor and have 128 each: 32 are left
    // for values and addresses.
    REGISTERS_LOW_OCCUPANCY = 96,
    // Elements of a row in the registers of a thread. The loops over them are unrolled, so more
    // elements make a text that takes long to compile, and no row needs more with TEAM threads.
    ELEMENTS = 32,
    // Threads of a group where nothing else decides: eight warps hide each other's latency, and a
    // barrier over them is still cheap.
    GROUP = 256,
    // Most threads of a row held in registers. More would hold longer rows, but a fold waits for
    // every warp of the team at a barrier.
    TEAM = 512,
    // Threads of a multiprocessor that a grid with tails is made for: each group leaves partial
    // results, so there are no more groups than run at once.
    RESIDENT = 1024,
    // Columns that a group finishes at once: a warp then reads partial results that are neighbours
    // in memory; and the fewest, which are still 32 bytes of them.
    FINISH_COLS     = 32,
    FINISH_COLS_FEW = 8
};

// ---- small helpers -----------------------------------------------------------------------------

// The same where the rule's choice is `rule`.
static int64_t set_or(const tni_launch_facts *f, tni_knob k, int64_t rule)
{
    int v = tni_setting(f, k);
    return v ? v : rule;
}

// Threads of a group where nothing else decides, no more than the device allows.
static int64_t group_threads(const tni_launch_facts *f, int64_t rule)
{
    return tni_min_i64(TNI_WARP * set_or(f, TNI_KNOB_WARPS, rule / TNI_WARP), f->limits->threads);
}

static int64_t power_up(int64_t n)
{
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

static int compute_bytes(tn_dtype dt)
{
    return (int)tni_dtype_size(tni_compute_dtype(dt));
}

int tni_simt_vector_words(const tni_simt_class *c, tn_dtype dt)
{
    return (int)(c->vector * tni_dtype_size(dt) + 3) / 4;
}

// ---- what loops share --------------------------------------------------------------------------

// A load that only one loop reads is fetched there and forgotten; what is counted here decides how
// much a row takes in registers or in shared memory.
tni_set tni_simt_reread(const tni_kernel *k)
{
    tni_set seen = { 0 }, reread = { 0 };
    for (int q = 0; q < k->phases; q++) {
        tni_set need = tni_needs_loop(k, q, NULL);
        for (int i = 0; i < k->nins; i++) {
            if (!tni_set_has(&need, i) || k->ins[i].code != TNI_I_LOAD) continue;
            if (tni_set_has(&seen, i)) tni_set_add(&reread, i);
            tni_set_add(&seen, i);
        }
    }
    return reread;
}

// What the loops after loop q compute, if some values are kept.
static tni_set needs_later(const tni_kernel *k, int q, const tni_set *kept)
{
    tni_set later = { 0 };
    for (int p = q + 1; p < k->phases; p++) {
        tni_set need = tni_needs_loop(k, p, kept);
        for (size_t w = 0; w < sizeof need.bit / sizeof *need.bit; w++) later.bit[w] |= need.bit[w];
    }
    return later;
}

// Goes through the loops in order, since what an earlier loop keeps makes later values cheap to
// compute again: their cost counts only down to what is kept. In a loop the last value comes first:
// the gradient of a row is one value, and if that is kept, the exponentials it was made from are
// not needed again. What is cheap beside the others is not kept after all. Loads are not in the
// set: they are held as words, which take half the registers for 16-bit dtypes.
tni_set tni_simt_costly(const tni_kernel *k)
{
    tni_set costly = { 0 };
    for (int q = 0; q + 1 < k->phases; q++) {
        tni_set before = costly, now = tni_needs_loop(k, q, &before),
                later = needs_later(k, q, &costly);
        for (int i = k->nins - 1; i >= 0; i--) {
            int code = k->ins[i].code;
            if ((code != TNI_I_MAP && code != TNI_I_RANDOM) || !tni_set_has(&now, i) ||
                !tni_set_has(&later, i) || tni_recompute_cost(k, i, &costly) < TNI_KEEP_COST_GPU)
                continue;
            tni_set_add(&costly, i);
            later = needs_later(k, q, &costly);
        }
        for (int i = 0; i < k->nins; i++)
            if (tni_set_has(&costly, i) && !tni_set_has(&before, i) &&
                tni_recompute_cost(k, i, &costly) < TNI_KEEP_COST_GPU)
                tni_set_remove(&costly, i);
    }
    return costly;
}

// ---- vectors -----------------------------------------------------------------------------------

// Whether a LOAD or STORE may move a vector at a time: its elements are neighbours along the lane
// axis, and no index or guard of it changes along that axis. With loops over R beside lanes in P,
// an index may change from turn to turn, and each lane has its own.
static bool may_move(const tni_launch_facts *f, const tni_ins *x)
{
    const tni_kernel *k    = f->k;
    int               mask = (1 << (k->np + k->nr)) - (1 << k->np);
    if (!k->lane_in_r) mask = f->lane < 0 ? 0 : 1 << f->lane;
    if (k->access[x->access].stride[f->lane] != TNI_STRIDE_1) return false;
    if (x->code == TNI_I_STORE) return true;
    if (x->a == TNI_NO_VALUE && x->b == TNI_NO_VALUE) return true;
    if (!k->lane_in_r && k->nr) return false;
    return (x->a == TNI_NO_VALUE || !(f->varies[x->a] & mask)) &&
           (x->b == TNI_NO_VALUE || !(f->varies[x->b] & mask));
}

// Finds the accesses that can move vectors. One access may serve several instructions; it moves
// vectors only if all of them can, since the address is computed once for the access.
static void find_movers(tni_launch_facts *f)
{
    tni_set  need = tni_needs_main(f->k);
    uint64_t yes = 0, no = 0;
    for (int i = 0; i < f->k->nins; i++) {
        const tni_ins *x = &f->k->ins[i];
        if (!is_memory(x) || x->finish || !tni_set_has(&need, i)) continue;
        if (may_move(f, x)) yes |= (uint64_t)1 << x->access;
        else no |= (uint64_t)1 << x->access;
    }
    f->movers = yes & ~no;
}

// Whether an access has the same elements in every row: it goes along the lane alone, or along R.
static bool is_same_in_rows(const tni_kernel *k, int access, int lane)
{
    for (int i = 0; i < k->np; i++)
        if (i != lane && k->access[access].stride[i] != TNI_STRIDE_0) return false;
    return true;
}

// Finds the loads that are the same in every row, as the factors of channels are that lie side by
// side, in kernels whose threads can have the same columns of several rows: maps, and sums of
// columns. A thread loads them once.
static void find_columns(tni_launch_facts *f)
{
    const tni_kernel *k    = f->k;
    bool              maps = !k->nr && !k->tails && k->np > 1;
    bool              sums = k->lane_in_r && f->col_tails && !f->row_work;
    if (!maps && !sums) return;
    f->columns = f->movers;
    for (int a = 0; a < k->naccess; a++)
        if (!is_same_in_rows(k, a, f->lane)) f->columns &= ~((uint64_t)1 << a);
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        bool plain       = x->code == TNI_I_LOAD && x->a == TNI_NO_VALUE && x->b == TNI_NO_VALUE;
        if (is_memory(x) && !plain && !x->finish) f->columns &= ~((uint64_t)1 << x->access);
    }
}

static int64_t floor_modulo(int64_t a, int v)
{
    return (a % v + v) % v;
}

// Whether an access steps by whole vectors of v elements along axes from .. to-1, the lane axis
// apart.
static bool steps_whole(const tni_launch_facts *f, int access, int from, int to, int v)
{
    for (int i = from; i < to; i++)
        if (i != f->lane && f->k->access[access].stride[i] != TNI_STRIDE_0 &&
            floor_modulo(f->l->stride[access][i], v))
            return false;
    return true;
}

// Whether every vector of an access is aligned, in every row and at every index. One of more than
// 16 bytes is moved in pieces of 16.
static bool is_aligned(const tni_launch_facts *f, int access, int v)
{
    v = (int)tni_min_i64(v, TNI_VECTOR_BYTES / (int)tni_dtype_size(tni_access_dtype(f->k, access)));
    return tni_access_start(f->l, access, v) == 0 &&
           steps_whole(f, access, 0, f->k->np + f->k->nr, v) &&
           !floor_modulo(f->l->stride[access][TNI_AXES], v);
}

// Whether the vectors of two accesses are aligned at the same elements of every row. They need not
// be aligned at the start of the row: all are then shifted by the same number of elements (a
// window).
static bool share_alignment(const tni_launch_facts *f, int a, int b, int v)
{
    const tni_kernel *k = f->k;
    if (tni_access_start(f->l, a, v) < 0 ||
        tni_access_start(f->l, a, v) != tni_access_start(f->l, b, v))
        return false;
    if (!steps_whole(f, a, k->np, k->np + k->nr, v) || !steps_whole(f, b, k->np, k->np + k->nr, v))
        return false;
    for (int i = 0; i < k->np; i++) {
        int64_t x = k->access[a].stride[i] ? f->l->stride[a][i] : 0;
        int64_t y = k->access[b].stride[i] ? f->l->stride[b][i] : 0;
        if (i != f->lane && floor_modulo(x - y, v)) return false;
    }
    return !floor_modulo(f->l->stride[a][TNI_AXES], v) &&
           !floor_modulo(f->l->stride[b][TNI_AXES], v);
}

// The movers that are aligned (leader -1), or that share the alignment of a leader.
static uint64_t find_vector_set(const tni_launch_facts *f, int leader, int v)
{
    uint64_t set = 0;
    for (int a = 0; a < f->k->naccess; a++)
        if (f->movers >> a & 1 &&
            (leader < 0 ? is_aligned(f, a, v) : share_alignment(f, leader, a, v)))
            set |= (uint64_t)1 << a;
    return set;
}

// Whether vectors may begin before the row's start, at an aligned address. The row has to be one
// run of memory; and where a thread adds up columns, each row must shift by the same amount, so
// that a thread keeps the same columns from row to row.
static bool may_window(const tni_launch_facts *f, int leader, int v)
{
    const tni_kernel *k = f->k;
    if (k->lane_in_r && k->nr > 1) return false;
    return !k->lane_in_r || !f->col_tails || steps_whole(f, leader, 0, k->np, v);
}

// The access with which most movers share their alignment, by index; -1 if no window is possible.
static int find_leader(const tni_launch_facts *f, int v)
{
    int best = -1, best_count = 0;
    for (int a = 0; a < f->k->naccess; a++) {
        if (!(f->movers >> a & 1) || !may_window(f, a, v)) continue;
        int n = count_bits(find_vector_set(f, a, v));
        if (n > best_count) {
            best       = a;
            best_count = n;
        }
    }
    return best;
}

static void set_vector(tni_simt_class *c, int v, uint64_t set, int leader)
{
    c->vector  = (uint8_t)v;
    c->vectors = set;
    c->window  = leader >= 0;
    c->leader  = (uint16_t)(leader >= 0 ? leader : 0);
}

// The loads that are fetched by words before their loop's work although vectors have one element:
// those of a row's elements whose address does not depend on a value of the loop.
static uint64_t single_fetches(const tni_launch_facts *f)
{
    uint64_t       yes = 0, no = 0;
    const uint64_t one  = 1;
    int            mask = (1 << (f->k->np + f->k->nr)) - (1 << f->k->np);
    if (!f->k->lane_in_r) return 0;
    for (int i = 0; i < f->k->nins; i++) {
        const tni_ins *x = &f->k->ins[i];
        if (x->code == TNI_I_STORE) no |= one << x->access;
        if (x->code != TNI_I_LOAD) continue;
        bool index = x->a != TNI_NO_VALUE && f->varies[x->a] & mask;
        bool guard = x->b != TNI_NO_VALUE && f->varies[x->b] & mask;
        if (x->per & TNI_PER_COL && !index && !guard && !x->finish) yes |= one << x->access;
        else no |= one << x->access;
    }
    return yes & ~no;
}

// The threads of a group of POINT whose turns are whole rows, so that a thread has the same columns
// in each: whole warps, the most up to GROUP or else the fewest; 0 if a row has too many vectors,
// or none.
static int64_t row_group(const tni_launch_facts *f, int64_t vectors)
{
    int64_t best = 0, most = tni_min_i64(2 * GROUP, f->limits->threads);
    for (int64_t n = vectors; vectors > 0 && n <= most; n += vectors)
        if (n % TNI_WARP == 0 && (n <= GROUP || !best)) best = n;
    return best;
}

// The elements of a full vector of the widest of some accesses.
static int full_vector(const tni_launch_facts *f, uint64_t accesses)
{
    int widest = 1;
    for (int a = 0; a < f->k->naccess; a++)
        if (accesses >> a & 1)
            widest = (int)tni_max_i64(widest, (int64_t)tni_dtype_size(tni_access_dtype(f->k, a)));
    int most = (int)tni_min_i64(TNI_VECTOR_BYTES / widest, TNI_MAX_VECTOR);
    return (int)tni_min_i64(most, set_or(f, TNI_KNOB_VECTOR, most));
}

// Registers of a thread for what is loaded once for all its rows, as it is computed with, if
// vectors have v elements.
static int column_registers(const tni_launch_facts *f, uint64_t columns, int v)
{
    int n = 0;
    for (int a = 0; a < f->k->naccess; a++)
        if (columns >> a & 1) n += compute_bytes(tni_access_dtype(f->k, a)) / 4 * v;
    return n;
}

// The vector of rows that share what is loaded by column: full for what differs from row to row,
// though columns may then take several loads. So activations of 16 bits move 16 bytes at a time
// beside factors in f32. Where columns would take more than COLUMNS registers, as the sums, means
// and factors of a batch norm's gradient do, it is half of that: more threads fit, each with loads
// of 8 bytes (H200, bf16, 200704 x 512: with 8 columns 277 to 240 us, with 18 columns and their
// sums 269 to 260; with 3 no difference).
static int row_vector(const tni_launch_facts *f)
{
    enum { COLUMNS = 24 };
    int full = full_vector(f, f->movers & ~f->columns), half = full / 2;
    if (full < TNI_MAX_VECTOR || tni_setting(f, TNI_KNOB_VECTOR) ||
        column_registers(f, f->columns, full) <= COLUMNS)
        return full;
    return f->k->lane_in_r || row_group(f, f->lanes / half) ? half : full;
}

// Whether rows share what is loaded by column, and all that they load and store can move in vectors
// of that kind, which are set.
static bool choose_row_vector(const tni_launch_facts *f, tni_simt_class *c)
{
    if (!f->columns || f->columns == f->movers) return false;
    int v = row_vector(f);
    if (v < 2 || f->lanes % v || find_vector_set(f, -1, v) != f->movers) return false;
    if (!f->k->lane_in_r && !row_group(f, f->lanes / v)) return false;
    set_vector(c, v, f->movers, -1);
    c->columns = f->columns;
    return true;
}

// Chooses the vectors, by what moves fewest bytes in vain, best first: full vectors of what is not
// the same in every row; full vectors that are all aligned; a window whose alignment all movers
// share; shorter vectors that are all aligned; a window for at least half of the movers, the others
// going element by element; single elements. A row of less than two full vectors has no window: it
// would consist of edges.
static void choose_vector(const tni_launch_facts *f, tni_simt_class *c)
{
    if (choose_row_vector(f, c)) return;
    int full   = full_vector(f, f->movers);
    int leader = f->movers ? find_leader(f, full) : -1;
    if (leader >= 0 && f->lanes < 2 * full) leader = -1;
    for (int v = full; v > 1 && f->movers; v /= 2) {
        if (f->lanes % v == 0 && find_vector_set(f, -1, v) == f->movers) {
            set_vector(c, v, f->movers, -1);
            return;
        }
        if (v == full && leader >= 0 && find_vector_set(f, leader, v) == f->movers) {
            set_vector(c, v, f->movers, leader);
            return;
        }
    }
    if (leader >= 0 && 2 * count_bits(find_vector_set(f, leader, full)) >= count_bits(f->movers))
        set_vector(c, full, find_vector_set(f, leader, full), leader);
    else set_vector(c, 1, single_fetches(f), -1);
}

// Whether every random number of a vector comes of the blocks of four that begin and end with the
// vector. Then a block is computed once, where it would be for each of its elements: that is most
// of the work of a dropout.
static bool draws_whole_blocks(const tni_launch_facts *f, const tni_simt_class *c)
{
    const tni_kernel *k = f->k;
    if (!f->draws || c->vector % TNI_RANDOM_BLOCK || c->window) return false;
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i], *at = x->code == TNI_I_RANDOM ? &k->ins[x->a] : NULL;
        if (!at) continue;
        if (x->dtype == TN_F64 || at->code != TNI_I_PLACE ||
            k->access[at->access].stride[f->lane] != TNI_STRIDE_1 ||
            floor_modulo(f->l->offset[at->access], TNI_RANDOM_BLOCK) ||
            !steps_whole(f, at->access, 0, k->np + k->nr, TNI_RANDOM_BLOCK))
            return false;
    }
    return true;
}

// ---- rows --------------------------------------------------------------------------------------

// Registers of a thread for the accumulators of a vector of columns.
static int tail_registers(const tni_launch_facts *f, const tni_simt_class *c)
{
    int n = 0;
    for (int i = 0; i < f->k->nins && !c->tail_memory; i++) {
        const tni_ins *x = &f->k->ins[i];
        if (tni_is_tail(x) && x->per) n += compute_bytes((tn_dtype)x->dtype) / 4 * c->vector;
    }
    return n;
}

// Registers that one vector of a thread takes: the words of its loads, costly values that are kept,
// and accumulators of tails, unless the vectors in flight are rows of the same columns.
static int vector_registers(const tni_launch_facts *f, const tni_simt_class *c)
{
    const tni_kernel *k      = f->k;
    int               n      = c->rows_in_flight ? 0 : tail_registers(f, c);
    tni_set           costly = tni_simt_costly(k), need = tni_needs_main(k);
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x     = &k->ins[i];
        int            words = compute_bytes((tn_dtype)x->dtype) / 4 * c->vector;
        if (x->code == TNI_I_LOAD && tni_set_has(&need, i) &&
            (c->vectors & ~c->columns) >> x->access & 1)
            n += tni_simt_vector_words(c, tni_access_dtype(k, x->access));
        if (c->keep_costly && tni_set_has(&costly, i)) n += words;
    }
    return n;
}

// Whether a thread's registers hold its part of the row. A double takes two registers, so kernels
// that compute in f64 have half as many.
bool tni_simt_fits_registers(const tni_launch_facts *f, const tni_simt_class *c)
{
    return c->unroll * c->vector <= ELEMENTS &&
           vector_registers(f, c) * c->unroll <=
               (c->low_occupancy ? REGISTERS_LOW_OCCUPANCY : REGISTERS) >> f->doubles;
}

// Threads for n vectors of a row: a power of two, or three quarters of it where shuffles fold the
// warps of a team, however many they are. More sizes would make more texts to compile for little.
static int64_t team_for(const tni_launch_facts *f, int64_t n)
{
    int64_t all = power_up(n);
    bool fewer  = f->limits->features & TNI_GPU_SHUFFLES && all > 2 * TNI_WARP && 4 * n <= 3 * all;
    return fewer ? all / 4 * 3 : all;
}

// Sets the threads of a row, no more than a group can have, and the vectors that each then has.
static void set_team(const tni_launch_facts *f, tni_simt *m, int64_t team)
{
    m->class.team = (uint16_t)team;
    while (m->class.team > f->limits->threads) m->class.team /= 2;
    m->class.unroll = (uint8_t)tni_min_i64(power_up(tni_ceil_div(m->vectors, m->class.team)), 128);
}

// A row of at most a warp's vectors. A thread takes up to EACH vectors, whose loads are then in
// flight together and which fewer threads have to fold, as long as there are rows enough to fill
// the device. EACH = 4 trades loads in flight against registers. Not with tails: columns would need
// accumulators for each of those vectors.
static void choose_short_row(const tni_launch_facts *f, tni_simt *m)
{
    enum { EACH = 4 };
    int64_t team = power_up(m->vectors), full = (int64_t)f->limits->units * RESIDENT;
    set_team(f, m, team);
    while (!f->k->tails && m->class.unroll < EACH && team > 1 && f->rows * team / 2 >= full) {
        tni_simt_class before = m->class;
        set_team(f, m, team /= 2);
        if (tni_simt_fits_registers(f, &m->class)) continue;
        m->class = before;
        break;
    }
}

// Threads for a row that registers hold, and vectors for each, as measured to be best: `each` of
// them unless the row is short or long. Up to four warps' vectors stay in one warp, which folds by
// shuffles alone, without a barrier. A single row leaves the GPU idle: the more threads it has, the
// sooner it is done.
static void hold_row_in_registers(const tni_launch_facts *f, tni_simt *m, int each)
{
    tni_simt_class *c   = &m->class;
    int64_t         n   = m->vectors;
    int             set = tni_setting(f, TNI_KNOB_UNROLL);
    if (set && n > TNI_WARP) {
        int64_t team = team_for(f, tni_ceil_div(n, set));
        set_team(f, m, tni_min_i64(tni_max_i64(TNI_WARP, team), 2 * TEAM));
    } else if (n <= TNI_WARP) {
        choose_short_row(f, m);
    } else if (f->rows == 1 && n <= TEAM && !f->k->tails &&
               f->limits->features & TNI_GPU_SHUFFLES) {
        set_team(f, m, tni_min_i64(power_up(n), TEAM / 2));
    } else if (n <= 4 * TNI_WARP &&
               vector_registers(f, c) * power_up(tni_ceil_div(n, TNI_WARP)) <= REGISTERS) {
        set_team(f, m, TNI_WARP);
    } else if (f->col_tails && f->limits->features & TNI_GPU_SHUFFLES && n <= TEAM) {
        // Half as many threads with two vectors each: the fold of a row, over half as many warps,
        // is paid for by two vectors. Occupancy is traded for it.
        c->low_occupancy = 1;
        set_team(f, m, team_for(f, tni_ceil_div(n, 2)));
    } else {
        set_team(f, m, tni_min_i64(team_for(f, f->col_tails ? n : tni_ceil_div(n, each)), TEAM));
    }
}

// A row that neither registers nor bulk copies hold: shared memory if it fits, else it is read
// again by each loop. `unroll` is 1, 2 or 4 vectors in flight, as many as 16 registers hold. Tails
// of columns are added up in scratch memory, one read and write a row, since their accumulators do
// not fit in registers either; a group then has one team, a warp at least, since teams that add to
// the same memory would lose sums.
static void loop_over_row(const tni_launch_facts *f, tni_simt *m)
{
    tni_simt_class *c = &m->class;
    int64_t limit = f->limits->shared_bytes - TNI_SHARED_KEPT, bytes = tni_simt_stash_bytes(f, m);
    c->keep_costly   = 0;
    c->low_occupancy = 0;
    c->tail_memory   = f->col_tails > 0;
    c->unroll        = (uint8_t)tni_max_i64(1,
                                            tni_min_i64(4, 16 / tni_max_i64(1, vector_registers(f, c))));
    c->unroll        = c->unroll == 3 ? 2 : c->unroll;
    c->unroll        = (uint8_t)set_or(f, TNI_KNOB_UNROLL, c->unroll);
    c->team          = (uint16_t)tni_min_i64(power_up(m->vectors), TEAM);
    if (c->tail_memory && c->team < TNI_WARP) c->team = TNI_WARP;
    c->hold = TNI_HOLD_NOTHING;
    if (bytes > 0 && bytes <= limit) {
        c->hold         = TNI_HOLD_SHARED;
        m->shared_bytes = (int)bytes;
    }
    // A row that takes more than half of the shared memory leaves one group on a multiprocessor, so
    // that group is made as large as it can be. Rows that are read again are then few at a time,
    // and the L2 cache holds them. Rows of less than 4096 vectors would leave threads of such a
    // group idle.
    if (2 * bytes > limit && f->limits->threads >= 1024 && m->vectors >= 4096) c->team = 1024;
    if (tni_setting(f, TNI_KNOB_WARPS))
        c->team = (uint16_t)(TNI_WARP * tni_setting(f, TNI_KNOB_WARPS));
    while (c->team > f->limits->threads) c->team /= 2;
}

// Whether registers are left for the loads of the next row, where a team has several rows one after
// the other. LIMIT: registers for both rows, so that 20 of the 64 remain for values and addresses.
static bool can_prefetch_row(const tni_launch_facts *f, const tni_simt_class *c)
{
    enum { LIMIT = 44 };
    const tni_kernel *k = f->k;
    int               n = vector_registers(f, c);
    if (!k->tails || c->hold != TNI_HOLD_REGISTERS || c->bulk || c->rows_in_flight || !f->reduces)
        return false;
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_LOAD && k->ins[i].per == TNI_PER_ELEM &&
            c->vectors >> k->ins[i].access & 1)
            n += tni_simt_vector_words(c, tni_access_dtype(k, k->ins[i].access));
    int set = tni_setting(f, TNI_KNOB_PREFETCH);
    if (set && set < 3) return set == 1;
    return n * c->unroll <= (c->low_occupancy ? REGISTERS_LOW_OCCUPANCY : LIMIT);
}

// Whether a thread may have twice as many vectors in flight, each of `registers`. Half of the
// registers is the limit, accumulators included: the other half is for what is computed. Where
// accumulators alone take more, occupancy is low, and there are registers for both.
static bool can_double_unroll(const tni_launch_facts *f, const tni_simt_class *c, int registers)
{
    int kept = c->rows_in_flight ? tail_registers(f, c) : 0, room = REGISTERS / 2;
    if (kept < room) room -= kept;
    return !f->limits->few_registers && c->unroll < 4 && 2 * c->unroll * registers <= room;
}

// The registers that a thread of the main kernel needs: one for each buffer, whose address is an
// argument plus an offset, those that hold loads (scattered ones count by element), and
// accumulators.
static int main_registers(const tni_launch_facts *f, const tni_simt_class *c)
{
    const tni_kernel *k    = f->k;
    int               n    = vector_registers(f, c);
    tni_set           need = tni_needs_main(k);
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_LOAD && tni_set_has(&need, i) && f->lane >= 0 &&
            f->varies[i] >> f->lane & 1 && !(c->vectors >> k->ins[i].access & 1))
            n += c->vector;
    return k->nbuffer + n * c->unroll + column_registers(f, c->columns, c->vector) +
           (c->rows_in_flight ? tail_registers(f, c) : 0);
}

// Whether a thread needs more registers than it has where a multiprocessor runs RESIDENT threads.
// Doubles, random numbers (a block of Philox is ten rounds of four words) and vectors of eight rows
// always do. The device asks for it too, by few_registers, after a kernel spilled. TIGHT leaves 8
// of 64 for what is computed.
static bool needs_low_occupancy(const tni_launch_facts *f, const tni_simt_class *c)
{
    enum { TIGHT = 56 };
    bool many = c->form == TNI_SIMT_LANE && c->vector == TNI_MAX_VECTOR;
    int  set  = tni_setting(f, TNI_KNOB_OCCUPANCY);
    if (!tni_gpu_has(c, TNI_GPU_REGISTERS)) return false;
    if (set && !c->bulk) return set == 1;
    if (f->limits->few_registers && c->hold == TNI_HOLD_SHARED && !c->bulk) return true;
    return f->k->tails && !c->bulk &&
           (f->limits->few_registers || f->doubles || f->draws || many ||
            main_registers(f, c) > TIGHT);
}

// Whether an element goes through a function that takes longer than loading it, as the slope of
// gelu does: that hides the loads of other warps, and a thread needs its registers for the
// function. COSTLY: two exponentials.
static bool works_long(const tni_launch_facts *f)
{
    enum { COSTLY = 16 };
    for (int i = 0; i < f->k->nins; i++) {
        bool element = f->k->nr ? f->k->ins[i].per & TNI_PER_COL : f->varies[i] != 0;
        if (element && tni_ins_cost(&f->k->ins[i]) >= COSTLY) return true;
    }
    return false;
}

// Only tails of columns: no thread has to know of another, so a group takes a slice of the columns,
// and the grid's second axis goes over the slices, which are equal, so that no threads of the last
// are idle. A thread has the same columns of several rows in flight.
static void split_row_columns(const tni_launch_facts *f, tni_simt *m)
{
    tni_simt_class *c    = &m->class;
    int64_t         most = group_threads(f, GROUP);
    c->rows_in_flight    = 1;
    c->unroll            = 1;
    int     registers    = (int)tni_max_i64(1, vector_registers(f, c));
    int64_t slices       = tni_ceil_div(m->vectors, most);
    while (!works_long(f) && can_double_unroll(f, c, registers)) c->unroll *= 2;
    // Where a multiprocessor would have too few loads in flight, or a thread too few registers for
    // them, half as many threads with more rows each are better. IN_FLIGHT: words of a thread with
    // which RESIDENT threads keep memory busy. So it is with few rows, of which these threads have
    // ROWS each at most: they wait for one load after the other, not for the rate of memory.
    enum { IN_FLIGHT = 12, ROWS = 8 };
    if (tni_gpu_has(c, TNI_GPU_REGISTERS) && !works_long(f) &&
        f->rows * m->vectors <= (int64_t)f->limits->units * RESIDENT / 2 * ROWS)
        c->low_occupancy = 1;
    if (c->low_occupancy || c->unroll * registers < IN_FLIGHT || needs_low_occupancy(f, c))
        while (!works_long(f) && !f->limits->few_registers && c->unroll < 4 &&
               main_registers(f, c) + c->unroll * registers <= REGISTERS_LOW_OCCUPANCY)
            c->unroll *= 2;
    c->unroll = (uint8_t)set_or(f, TNI_KNOB_UNROLL, c->unroll);
    // A group of a narrow slice has several rows, whose sums it joins itself, and leaves that many
    // times fewer partial results: slices of a warp, as long as each still has PARTS groups.
    enum { PARTS = 8 };
    int64_t groups = (int64_t)f->limits->units * RESIDENT / most;
    while (m->vectors % (2 * slices * TNI_WARP) == 0 && 2 * slices * PARTS <= groups) slices *= 2;
    c->team          = (uint16_t)tni_min_i64(team_for(f, tni_ceil_div(m->vectors, slices)), most);
    int64_t second   = f->limits->slices ? f->limits->slices : TNI_SLICES;
    slices           = tni_ceil_div(m->vectors, c->team);
    c->split_columns = slices > second ? TNI_SLICES_FIRST : slices > 1 ? TNI_SLICES_SECOND : 0;
}

// A row is held where it is cheapest, tried in order: registers with costly values kept, registers
// without them, registers that bulk copies fill, shared memory by bulk copies, shared memory or
// nothing; a setting begins further down. Full vectors of 16-bit elements start with four vectors a
// thread, wider elements with two: the same number of registers. Rows of a warp are always held
// there, as several share a group.
static void hold_row(const tni_launch_facts *f, tni_simt *m)
{
    tni_simt_class *c    = &m->class;
    int             from = m->vectors > TNI_WARP ? tni_setting(f, TNI_KNOB_HOLD) : 0;
    if (from <= TNI_HOLD_BY_REGISTERS) {
        hold_row_in_registers(f, m, c->vector == TNI_MAX_VECTOR ? 4 : 2);
        if (tni_simt_fits_registers(f, c)) return;
        hold_row_in_registers(f, m, 2);
        if (tni_simt_fits_registers(f, c)) return;
    }
    c->keep_costly = 0;
    if (from <= TNI_HOLD_BY_FEWER) {
        hold_row_in_registers(f, m, 2);
        if (tni_simt_fits_registers(f, c)) return;
    }
    if (from <= TNI_HOLD_BY_AHEAD && tni_simt_bring_ahead(f, m)) return;
    if (from > TNI_HOLD_BY_BULK || !tni_simt_bring_row(f, m)) loop_over_row(f, m);
}

// Chooses the shape of ROW. Rows of at most a warp share a group, since a group of one warp would
// leave most of its slots unused.
static void choose_row(const tni_launch_facts *f, tni_simt *m)
{
    tni_simt_class *c = &m->class;
    c->form           = TNI_SIMT_ROW;
    m->lines          = f->rows;
    m->vectors        = tni_ceil_div(f->cols + (c->window ? c->vector - 1 : 0), c->vector);
    c->keep_costly    = 1;
    c->rows           = 1;
    if (!f->row_work && f->col_tails) {
        split_row_columns(f, m);
    } else {
        hold_row(f, m);
    }
    int group = (int)group_threads(f, f->k->tails ? GROUP : GROUP / 2);
    if (!c->tail_memory && (c->team <= TNI_WARP || (!f->reduces && c->team < group)))
        c->rows = (uint16_t)(group / c->team);
    if (c->rows < 1) c->rows = 1;
}

// ---- points and lanes --------------------------------------------------------------------------

// POINT with loads of the column alone: a group takes whole rows, so that a thread has the same
// columns of several rows and loads them once. ROWS: measured on an H200, 4 rows reach the rate of
// a copy, and 8 take registers from other warps. All threads that the device runs at once shall
// have rows.
static void take_rows(const tni_launch_facts *f, tni_simt *m)
{
    enum { ROWS = 4 };
    tni_simt_class *c = &m->class;
    c->rows           = (uint16_t)row_group(f, m->vectors);
    int64_t full      = (int64_t)f->limits->units * 2 * RESIDENT;
    while (!works_long(f) && c->unroll < ROWS && m->lines * m->vectors >= 2 * c->unroll * full)
        c->unroll *= 2;
}

// Whether a kernel reads memory.
static bool loads(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_LOAD) return true;
    return false;
}

// Chooses the shape of POINT. Without tails a thread has one vector, and enough threads in flight
// hide the latency; with tails a group is larger and a thread has several vectors, since each group
// leaves partial results that have to be joined. Groups that load nothing are larger, too: they
// have nothing to wait for and end faster than others begin. An H200 fills 500 MB in 147 us by
// groups of 256, in 107 us by groups of 512. Where that leaves a thread too few registers, as the
// tables of a rotary embedding do with a power, a sine and a cosine of four elements each, they are
// of 256.
static void choose_point(const tni_launch_facts *f, tni_simt *m)
{
    tni_simt_class *c = &m->class;
    c->form           = TNI_SIMT_POINT;
    c->team           = 1;
    bool large        = f->k->tails || (!loads(f->k) && !f->limits->few_registers);
    c->rows           = (uint16_t)group_threads(f, large ? 2 * GROUP : GROUP);
    c->unroll         = 1;
    if (!f->k->tails && tni_simt_choose_tile(f->l, f->limits, m)) {
        c->columns = 0;
        return;
    }
    int registers = (int)tni_max_i64(1, vector_registers(f, c));
    if (!f->k->tails && c->columns) take_rows(f, m);
    while (f->k->tails && can_double_unroll(f, c, registers)) c->unroll *= 2;
    c->unroll = (uint8_t)set_or(f, TNI_KNOB_UNROLL, c->unroll);
}

// Chooses the shape of LANE. More threads share the elements of R of a vector of rows until the
// device is full, or a thread's share is less than 8 elements, for which joining them would not
// pay. With tails for each column a single thread has them all: they are written once, in the order
// of R.
static void choose_lane(const tni_launch_facts *f, tni_simt *m)
{
    tni_simt_class *c     = &m->class;
    int64_t         units = m->lines * m->vectors, full = (int64_t)f->limits->units * RESIDENT;
    int             group = (int)group_threads(f, GROUP), team = 1;
    bool            single = f->col_tails > 0;
    while (!single && team < 32 && 2 * team <= group && units * team < full && f->cols >= 8 * team)
        team *= 2;
    c->form       = TNI_SIMT_LANE;
    c->hold       = TNI_HOLD_NOTHING;
    c->team       = (uint16_t)team;
    c->rows       = (uint16_t)(group / team);
    c->unroll     = 1;
    int registers = (int)tni_max_i64(1, vector_registers(f, c));
    while (!single && can_double_unroll(f, c, registers)) c->unroll *= 2;
    if (!single) c->unroll = (uint8_t)set_or(f, TNI_KNOB_UNROLL, c->unroll);
}

// ---- the grid ----------------------------------------------------------------------------------

// Divides the units over groups: how many lines (ROW), or turns of its threads (POINT, LANE), a
// team or group takes one after the other, and with that the number of parts, each of which leaves
// partial results.
static void split_chunks(const tni_launch_facts *f, tni_simt *m, int64_t units, int64_t tiles)
{
    const tni_simt_class *c        = &m->class;
    int64_t               resident = (int64_t)f->limits->units * tni_simt_resident(c, m->block);
    int64_t               full     = tni_max_i64(1, resident / tiles);
    full                           = tni_max_i64(1, full * set_or(f, TNI_KNOB_GRID, 4) / 4);
    if (c->split_columns == TNI_SLICES_FIRST) full = 1;
    int64_t per = c->form == TNI_SIMT_ROW ? c->rows : (int64_t)m->block / c->team * c->unroll;
    if (c->form == TNI_SIMT_LANE) per = c->rows;
    if (c->tile) per = 1;
    // Several turns make fewer partial results to join. With less than LITTLE elements the
    // joining is short anyway, and turns would only run one after the other: every group takes one.
    enum { LITTLE = 1 << 17 };
    int64_t turns = f->k->tails && f->rows * f->cols > LITTLE
                        ? tni_min_i64(4, tni_ceil_div(units, per))
                        : 1;
    m->chunk      = tni_max_i64(tni_ceil_div(units, full * per), turns);
    // LANE writes the tails of a column once and does not add them up from turn to turn.
    if (!f->k->tails || (c->form == TNI_SIMT_LANE && f->col_tails)) m->chunk = 1;
    if (c->bulk && !f->col_tails) m->chunk = 1;
    m->parts       = tni_ceil_div(units, m->chunk * per);
    int64_t groups = tni_max_i64(1, c->cluster), concurrent = m->parts;
    if (c->tickets) concurrent = tni_simt_bulk_concurrent(f, c);
    m->grid[0] = c->split_columns == TNI_SLICES_FIRST ? tiles : concurrent * groups;
    m->grid[1] = c->split_columns == TNI_SLICES_SECOND ? tiles : 1;
}

// Chooses who joins the partial results: the last group of the main kernel to end, which saves a
// launch, or a kernel of its own, which has the whole device.
static void choose_finish(const tni_launch_facts *f, tni_simt *m)
{
    tni_simt_class *c = &m->class;
    if (!f->k->tails) return;
    for (int i = 0; i < f->k->nins; i++)
        if (tni_is_tail(&f->k->ins[i]))
            m->scratch_bytes += tni_simt_tail_bytes(m, &f->k->ins[i], f->cols);
    // One group joins up to FEW partial results: that saves a launch, but uses one multiprocessor
    // only, so that more results are worth a kernel.
    enum { FEW = 1 << 14 };
    bool few  = !f->col_finish || (m->parts * f->cols <= FEW && m->block % TNI_WARP == 0 &&
                                  c->split_columns != TNI_SLICES_FIRST);
    c->finish = tni_gpu_has(c, TNI_GPU_LAST) && few ? TNI_FINISH_LAST : TNI_FINISH_KERNEL;
    // As many columns at once as there are threads for: each turn of the loop waits for memory.
    c->finish_cols = FINISH_COLS;
    while (c->finish == TNI_FINISH_LAST && f->col_finish && c->finish_cols < f->cols &&
           m->block % (2 * c->finish_cols) == 0)
        c->finish_cols *= 2;
    if (c->finish == TNI_FINISH_LAST) return;
    m->finish_block   = (int)tni_min_i64(GROUP, f->limits->threads);
    c->finish_threads = (uint16_t)m->finish_block;
    // Of many partial results a thread would read one after the other: more threads share a column
    // then.
    enum { EACH = 16 };
    while (c->finish_cols > FINISH_COLS_FEW && m->parts * c->finish_cols > EACH * m->finish_block)
        c->finish_cols /= 2;
    m->finish_grid = f->col_finish ? tni_ceil_div(f->cols, c->finish_cols) : 1;
}

// Finds what the choice depends on. row_work: threads of a team have to come together for a row, be
// it to fold it or because one of them stores or adds up a value of the row.
static void find_launch_facts(tni_launch_facts *f, const tni_launch *l,
                              const tni_simt_limits *limits)
{
    const tni_kernel *k = l->kernel;
    *f = (tni_launch_facts){ .l = l, .k = k, .limits = limits, .rows = 1, .cols = 1 };
    for (int i = 0; i < k->np; i++) f->rows *= l->size[i];
    for (int i = 0; i < k->nr; i++) f->cols *= l->size[k->np + i];
    f->lane  = k->lane_in_r ? k->np + k->nr - 1 : k->np - 1;
    f->lanes = f->lane >= 0 ? l->size[f->lane] : 1;
    tni_varying_axes(k, f->varies);
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (tni_is_tail(x) && x->per) f->col_tails++;
        if (x->finish && x->per & TNI_PER_COL) f->col_finish = true;
        if (x->code == TNI_I_REDUCE && !x->over_p) f->reduces = true;
        if (x->code == TNI_I_MAP && x->dtype == TN_F64) f->doubles = true;
        if (x->code == TNI_I_RANDOM) f->draws = true;
        if ((tni_is_tail(x) && !x->per) || (x->code == TNI_I_STORE && x->per == TNI_PER_ROW))
            f->row_work = true;
    }
    f->row_work |= f->reduces;
    find_movers(f);
    find_columns(f);
}

// The class is zeroed as bytes, padding included: it is compared by memcmp and is part of the cache
// key of the compiled kernel. 64-bit indices are chosen when a count of elements or rows passes
// half of INT32_MAX, so that sums of two such numbers in the text cannot overflow.
tni_simt tni_simt_choose(const tni_launch *l, const tni_simt_limits *limits)
{
    tni_launch_facts f;
    tni_simt         m;
    memset(&m, 0, sizeof m);
    find_launch_facts(&f, l, limits);
    tni_simt_class *c = &m.class;
    c->features       = (uint8_t)limits->features;
    choose_vector(&f, c);
    c->whole_blocks = draws_whole_blocks(&f, c);
    if (f.k->lane_in_r) {
        choose_row(&f, &m);
    } else {
        m.lines   = f.rows / tni_max_i64(1, f.lanes);
        m.vectors = tni_ceil_div(f.lanes + (c->window ? c->vector - 1 : 0), c->vector);
        if (f.k->nr) choose_lane(&f, &m);
        else choose_point(&f, &m);
    }
    if (needs_low_occupancy(&f, c)) c->low_occupancy = 1;
    if (tni_setting(&f, TNI_KNOB_OCCUPANCY) == 2) c->low_occupancy = 0;
    if (c->form == TNI_SIMT_ROW && !tni_simt_prefetch_in_bulk(&f, &m))
        c->prefetch_row = can_prefetch_row(&f, c);
    c->tickets  = tni_simt_takes_tickets(&f, c);
    c->complete = tni_simt_is_ahead(c) && !c->window &&
                  m.vectors == (int64_t)tni_max_i64(1, c->cluster) * c->team * c->unroll;
    m.block       = c->team * c->rows;
    int64_t units = c->form == TNI_SIMT_ROW ? m.lines : m.lines * m.vectors;
    split_chunks(&f, &m, units, c->split_columns ? tni_ceil_div(m.vectors, c->team) : 1);
    c->wide = f.k->wide || units * c->vector > INT32_MAX / 2 || f.rows > INT32_MAX / 2;
    choose_finish(&f, &m);
    return m;
}

size_t tni_simt_key(const tni_kernel *k, const tni_simt_class *c, char *dst, size_t limit)
{
    size_t n = tni_kernel_key(k, dst, limit);
    if (n + sizeof *c <= limit) memcpy(dst + n, c, sizeof *c);
    return n + sizeof *c;
}
