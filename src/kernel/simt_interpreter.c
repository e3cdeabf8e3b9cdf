// Writes programs for the interpreter: a kernel and its launch as 64-bit words (simt_interpreter.h
// has the format). The order is head, segments of code, table of folds, accesses, numbers, tails;
// the head says where each begins. A program that does not fit into TNI_INTERPRETER_WORDS is not
// interpreted.
#include "kernel/simt_interpreter.h"

#include "base/integers.h"
#include "tensor/dtype.h"

#include <string.h>

// A program being written. After `full` words are dropped, and the program is rejected at the end.
typedef struct {
    tni_simt_program *p;
    const tni_launch *l;
    const tni_kernel *k;
    bool              full;    // the program has more words than fit
    int               starts;  // numbers after those of the launch: starts of folds
    int64_t           start[TNI_MAX_INS];
    int               tail[TNI_MAX_INS];  // a tail's number in its table
    int               tails;
    int64_t           rows, cols;
    bool              reduces, columns;  // over R; tails for each column
} program_writer;

// ---- words -------------------------------------------------------------------------------------

// Appends a word; notes if there is no place for it.
static void put_word(program_writer *w, int64_t word)
{
    if (w->p->count == TNI_INTERPRETER_WORDS) w->full = true;
    else w->p->word[w->p->count++] = word;
}

// Value i is register i: kernels have fewer instructions than the interpreter has registers.
static int register_of(int16_t v)
{
    return v < 0 ? TNI_NO_REGISTER : v;
}

// Appends an instruction: selector, target, operands and a number, packed as the header says.
static void put_code(program_writer *w, int sel, int to, int a, int b, int c, int x)
{
    put_word(w, (int64_t)((uint64_t)sel | (uint64_t)to << 16 | (uint64_t)a << 24 |
                          (uint64_t)b << 32 | (uint64_t)c << 40 | (uint64_t)x << 48));
}

// The fold of a REDUCE as the interpreter's switch numbers it: op and compute type.
static int fold_number(const tni_ins *x)
{
    int f = 0;
    while (f < 3 && tni_interpreter_folds[f] != x->op) f++;
    return TNI_COMPUTES * f + tni_type_number((tn_dtype)x->dtype);
}

// The start of a fold, as bits: folded with any value it gives that value, -0.0 and NaN included.
// The same values as tni_fold_start prints.
static int64_t fold_start(const tni_ins *x)
{
    tni_word    w   = { .u = 0 };
    const float inf = 1.0f / 0.0f;
    switch (tni_type_number((tn_dtype)x->dtype)) {
    case TNI_IN_f:
        w.f = x->op == TNI_max ? -inf : x->op == TNI_min ? inf : x->op == TNI_prod ? 1 : -0.0f;
        break;
    case TNI_IN_d:
        w.d = x->op == TNI_max ? -inf : x->op == TNI_min ? inf : x->op == TNI_prod ? 1 : -0.0;
        break;
    case TNI_IN_i:
        w.i = x->op == TNI_max ? INT32_MIN : x->op == TNI_min ? INT32_MAX : x->op == TNI_prod;
        break;
    case TNI_IN_u: w.u = x->op == TNI_min ? UINT64_MAX : x->op == TNI_prod; break;
    default: w.l = x->op == TNI_max ? INT64_MIN : x->op == TNI_min ? INT64_MAX : x->op == TNI_prod;
    }
    return w.l;
}

// ---- instructions ------------------------------------------------------------------------------

static tn_dtype access_buffer_dtype(const program_writer *w, const tni_ins *x)
{
    return (tn_dtype)w->k->buffer[w->k->access[x->access].buffer].dtype;
}

// Appends a cast, and raises the level until the interpreter has it.
static void code_cast(program_writer *w, int to, int a, tn_dtype from, tn_dtype dt)
{
    int type = tni_type_number(from);
    while (!tni_interpreter_casts(w->p->level, type, dt)) w->p->level++;
    put_code(w, TNI_SEL_CAST + TNI_DTYPES * type + (int)dt, to, a, 0, 0, 0);
}

// Raises the level until the interpreter has registers and memory of a dtype. Levels are ordered by
// what they contain, so that the loop ends at TNI_INTERPRET_ALL at the latest.
static void need_dtype(program_writer *w, tn_dtype dt)
{
    while (!tni_interpreter_holds(w->p->level, dt)) w->p->level++;
}

static void code_load(program_writer *w, const tni_ins *x, int i)
{
    need_dtype(w, access_buffer_dtype(w, x));
    put_code(w, TNI_SEL_LOAD + (int)access_buffer_dtype(w, x), i, register_of(x->a),
             register_of(x->b), w->k->access[x->access].buffer, x->access);
}

// A value of another dtype than the buffer's is cast into the spare register first.
static void code_store(program_writer *w, const tni_ins *x)
{
    tn_dtype from = (tn_dtype)w->k->ins[x->a].dtype, dt = access_buffer_dtype(w, x);
    int      value = x->a;
    need_dtype(w, dt);
    if (from != dt || tni_is_rounded(dt)) {
        value = TNI_SPARE_REGISTER;
        code_cast(w, value, x->a, from, dt);
    }
    put_code(w, TNI_SEL_STORE + (int)dt, 0, value, TNI_NO_REGISTER, w->k->access[x->access].buffer,
             x->access);
}

static int draw_of(const tni_ins *x)
{
    if (x->op == TNI_random_bits) return TNI_DRAW_BITS;
    if (x->op != TNI_uniform) return x->dtype == TN_F64 ? TNI_DRAW_NORMAL_D : TNI_DRAW_NORMAL_F;
    if (x->dtype == TN_F64) return TNI_DRAW_UNIFORM_D;
    return x->dtype == TN_F32   ? TNI_DRAW_UNIFORM_F
           : x->dtype == TN_F16 ? TNI_DRAW_F16
                                : TNI_DRAW_BF16;
}

static void code_random(program_writer *w, const tni_ins *x, int i)
{
    int draw = draw_of(x);
    while (!tni_interpreter_draws(w->p->level, draw)) w->p->level++;
    put_code(w, TNI_SEL_RANDOM + draw, i, register_of(x->a), 0, 0, x->number);
}

// Small integers wrap and bools are 0 or 1 after a map, by a second instruction if the op itself
// does not see to it. The compute type is that of the last operand, as in emit.c.
static void code_map(program_writer *w, const tni_ins *x, int i)
{
    int      op   = x->op == TNI_bit_not && x->dtype == TN_BOOL ? TNI_logical_not : x->op;
    int      last = x->c >= 0 ? x->c : x->b >= 0 ? x->b : x->a;
    int      type = tni_type_number((tn_dtype)w->k->ins[last].dtype);
    tn_dtype dt   = (tn_dtype)x->dtype;
    while (!tni_interpreter_has(w->p->level, op, type)) w->p->level++;
    put_code(w, TNI_SEL_MAP + TNI_COMPUTES * op + type, i, register_of(x->a), register_of(x->b),
             register_of(x->c), 0);
    if (tni_op_table[op].rule == TNI_TO_BOOL || tni_is_held_as_is(dt) || tni_is_rounded(dt)) return;
    put_code(w, TNI_SEL_WRAP + x->dtype, i, 0, 0, 0, 0);
}

// A column tail folds into its partial result in scratch; every other reduction into its register.
static void code_reduce(program_writer *w, const tni_ins *x, int i)
{
    bool column = x->over_p && x->per & TNI_PER_COL;
    put_code(w, column ? TNI_SEL_TAIL : TNI_SEL_REDUCE, i, x->a, 0, fold_number(x),
             column ? w->tail[i] : 0);
}

// Appends the instruction or instructions of value i, and raises the level to one that has its
// dtype.
static void code_ins(program_writer *w, int i)
{
    const tni_ins *x = &w->k->ins[i];
    need_dtype(w, (tn_dtype)x->dtype);
    switch ((tni_code)x->code) {
    case TNI_I_LOAD: code_load(w, x, i); break;
    case TNI_I_NUMBER: put_code(w, TNI_SEL_NUMBER, i, 0, 0, 0, x->number); break;
    case TNI_I_PLACE: put_code(w, TNI_SEL_PLACE, i, 0, 0, 0, x->access); break;
    case TNI_I_RANDOM: code_random(w, x, i); break;
    case TNI_I_MAP: code_map(w, x, i); break;
    case TNI_I_CAST:
        code_cast(w, i, x->a, (tn_dtype)w->k->ins[x->a].dtype, (tn_dtype)x->dtype);
        break;
    case TNI_I_CHECK: put_code(w, TNI_SEL_CHECK, i, x->a, 0, i, x->number); break;
    case TNI_I_REDUCE: code_reduce(w, x, i); break;
    case TNI_I_STORE: code_store(w, x); break;
    }
}

// ---- segments ----------------------------------------------------------------------------------

// The reductions of a loop are started at the row point before it, as numbers appended to the
// launch's.
static void code_fold_starts(program_writer *w, int q)
{
    tni_set loop = tni_needs_loop(w->k, q, NULL);
    for (int i = 0; i < w->k->nins; i++) {
        const tni_ins *x = &w->k->ins[i];
        if (!tni_set_has(&loop, i) || x->code != TNI_I_REDUCE || x->over_p) continue;
        w->start[w->starts] = fold_start(x);
        put_code(w, TNI_SEL_NUMBER, i, 0, 0, 0, w->k->nnumber + w->starts++);
    }
}

static void code_set(program_writer *w, tni_set s)
{
    for (int i = 0; i < w->k->nins; i++)
        if (tni_set_has(&s, i)) code_ins(w, i);
}

// In the finish stage a tail is the join of its partial results over all parts.
static void code_finish(program_writer *w, bool column)
{
    tni_set s = tni_needs_finish(w->k, column);
    for (int i = 0; i < w->k->nins; i++) {
        const tni_ins *x = &w->k->ins[i];
        if (!tni_set_has(&s, i)) continue;
        if (!tni_is_tail(x)) code_ins(w, i);
        else put_code(w, TNI_SEL_JOIN, i, 0, 0, fold_number(x), w->tail[i]);
    }
}

// Appends the code: the row points and loops of the main stage in turn, then the finish, once and
// for each column. A table before it has two words for each segment, where its code begins and
// where its folds begin: after a loop the threads of a team fold the registers that are listed
// there.
static void put_segments(program_writer *w)
{
    int      loops = w->k->phases, count = 2 * loops + 1 + 2;
    int64_t *head          = w->p->word;
    int      at            = w->p->count;
    head[TNI_W_SEGMENTS]   = 2 * loops + 1;
    head[TNI_W_SEGMENT_AT] = at;
    for (int i = 0; i < 2 * (count + 1); i++) put_word(w, 0);
    for (int s = 0; s < count && !w->full; s++) {
        head[at + 2 * s] = w->p->count;
        if (s > 2 * loops) code_finish(w, s == 2 * loops + 2);
        else if (s % 2) code_set(w, tni_needs_loop(w->k, s / 2, NULL));
        else code_set(w, tni_needs_row(w->k, s / 2));
        if (s < 2 * loops && s % 2 == 0) code_fold_starts(w, s / 2);
    }
    head[at + 2 * count] = w->p->count;
    for (int s = 0; s < count && !w->full; s++) {
        head[at + 2 * s + 1] = w->p->count;
        if (s % 2 == 0 || s > 2 * loops) continue;
        tni_set loop = tni_needs_loop(w->k, s / 2, NULL);
        for (int i = 0; i < w->k->nins; i++) {
            const tni_ins *x = &w->k->ins[i];
            if (tni_set_has(&loop, i) && x->code == TNI_I_REDUCE && !x->over_p)
                put_word(w, i | (int64_t)fold_number(x) << 8);
        }
    }
    if (!w->full) head[at + 2 * count + 1] = w->p->count;
}

// ---- tables ------------------------------------------------------------------------------------

// Appends the tables of accesses and numbers. Strides of class 0 are written as 0, whatever the
// launch has.
static void put_tables(program_writer *w)
{
    const tni_kernel *k    = w->k;
    int64_t          *head = w->p->word;
    int               axes = k->np + k->nr;
    head[TNI_W_ACCESS_AT]  = w->p->count;
    for (int a = 0; a < k->naccess; a++) {
        put_word(w, w->l->offset[a]);
        for (int i = 0; i < axes; i++)
            put_word(w, k->access[a].stride[i] == TNI_STRIDE_0 ? 0 : w->l->stride[a][i]);
        put_word(w, w->l->stride[a][TNI_AXES]);
    }
    head[TNI_W_NUMBER_AT] = w->p->count;
    for (int i = 0; i < k->nnumber; i++) put_word(w, (int64_t)w->l->number[i].u);
    for (int i = 0; i < w->starts; i++) put_word(w, w->start[i]);
}

// Appends the table of tails, and with it lays out their partial results in scratch, 8 bytes each.
static void put_tails(program_writer *w)
{
    w->p->word[TNI_W_TAILS]   = w->tails;
    w->p->word[TNI_W_TAIL_AT] = w->p->count;
    for (int i = 0; i < w->k->nins; i++) {
        const tni_ins *x = &w->k->ins[i];
        if (!tni_is_tail(x)) continue;
        bool column = x->per & TNI_PER_COL;
        put_word(w, w->p->scratch_bytes);
        put_word(w, column);
        put_word(w, i);
        put_word(w, fold_number(x));
        put_word(w, fold_start(x));
        w->p->scratch_bytes += 8 * w->p->word[TNI_W_PARTS] * (column ? w->cols : 1);
    }
}

// ---- shape -------------------------------------------------------------------------------------

// How many threads share a row. If neighbours are along R they take neighbouring elements; if they
// are along P they take rows, unless there are too few rows to keep the device busy. Column tails
// are added up in scratch without atomics, so that a group has one row at a time and each thread
// columns of its own.
static int team_of(const program_writer *w)
{
    // Threads that keep a chip busy: 128 for each of 132 multiprocessors, an H200, are about as
    // many.
    enum { BUSY = 1 << 14 };
    int team = 1;
    if (w->k->nr == 0) return 1;
    if (w->columns) return TNI_INTERPRETER_THREADS;
    while (team < TNI_INTERPRETER_THREADS && team < w->cols &&
           (w->k->lane_in_r || w->rows * team < BUSY))
        team *= 2;
    return team;
}

// Chooses the grid. EACH: groups for every multiprocessor, so that some compute while others wait
// for memory. With tails each part leaves partial results that are joined one after the other:
// MAX_PARTS bounds the time of that, MAX_SCRATCH the memory. If rows are not reduced, several
// groups (tiles) then share the columns, so that the device is busy all the same.
static void choose_grid(program_writer *w, int units)
{
    enum { EACH = 8, MAX_PARTS = 512, MAX_SCRATCH = 32 << 20 };
    int64_t *head = w->p->word, full = (int64_t)units * EACH, team = team_of(w);
    int64_t  parts = tni_max_i64(
         1, tni_min_i64(full, tni_ceil_div(w->rows * team, TNI_INTERPRETER_THREADS)));
    int64_t tiles = 1;
    if (w->tails) parts = tni_min_i64(parts, MAX_PARTS);
    if (w->columns)
        parts = tni_min_i64(parts, tni_max_i64(1, MAX_SCRATCH / (8 * w->cols * w->tails)));
    if (w->columns && !w->reduces)
        tiles = tni_max_i64(1, tni_min_i64(full / parts,
                                           tni_ceil_div(w->cols, TNI_INTERPRETER_THREADS)));
    head[TNI_W_TEAM]  = team;
    head[TNI_W_PARTS] = parts;
    head[TNI_W_TILE]  = tni_ceil_div(w->cols, tiles);
    head[TNI_W_TILES] = tiles = tni_ceil_div(w->cols, head[TNI_W_TILE]);
    w->p->groups              = parts * tiles;
    w->p->finish_groups       = 0;
    if (w->tails)
        w->p->finish_groups = tni_min_i64(full, tni_ceil_div(w->cols, TNI_INTERPRETER_THREADS));
}

static void find_program_facts(program_writer *w)
{
    const tni_kernel *k = w->k;
    w->rows = w->cols = 1;
    for (int i = 0; i < k->np; i++) w->rows *= w->l->size[i];
    for (int i = 0; i < k->nr; i++) w->cols *= w->l->size[k->np + i];
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->code != TNI_I_REDUCE) continue;
        if (!x->over_p) w->reduces = true;
        if (tni_is_tail(x)) w->tail[i] = w->tails++;
        if (tni_is_tail(x) && x->per & TNI_PER_COL) w->columns = true;
    }
}

// Only the head is zeroed: the words after it are all written, and clearing 8 KiB for each launch
// would cost more than the rest.
bool tni_simt_program_write(tni_simt_program *p, const tni_launch *l, int units)
{
    program_writer w = { .p = p, .l = l, .k = l->kernel };
    memset(p, 0, offsetof(tni_simt_program, word) + TNI_W_HEAD * sizeof *p->word);
    p->count = TNI_W_HEAD;
    find_program_facts(&w);
    int64_t *head       = p->word;
    head[TNI_W_ROWS]    = w.rows;
    head[TNI_W_COLS]    = w.cols;
    head[TNI_W_NP]      = w.k->np;
    head[TNI_W_AXES]    = w.k->np + w.k->nr;
    head[TNI_W_GUARDED] = w.k->guarded;
    for (int i = 0; i < w.k->np + w.k->nr; i++) head[TNI_W_SIZE + i] = l->size[i];
    choose_grid(&w, units);
    put_segments(&w);
    put_tables(&w);
    put_tails(&w);
    return !w.full;
}

void tni_simt_program_finish(tni_simt_program *p)
{
    p->word[TNI_W_FINISH] = 1;
}

// Packs the struct that the interpreter takes on CUDA: addresses, scratch, state, words. Absent
// buffers are NULL.
size_t tni_simt_program_pack(const tni_simt_program *p, const tni_launch *l, const void *state,
                             char *dst)
{
    size_t n = 8 * TNI_MAX_BUFFERS;
    memset(dst, 0, n);
    for (int i = 0; i < l->kernel->nbuffer; i++) memcpy(dst + 8 * i, &l->buffer[i], 8);
    memcpy(dst + n, &l->scratch, 8);
    memcpy(dst + n + 8, &state, 8);
    memcpy(dst + n + 16, p->word, 8 * (size_t)p->count);
    return n + 16 + 8 * (size_t)p->count;
}
