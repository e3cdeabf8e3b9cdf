// The text of the interpreter: one kernel with a case for every instruction, in every type that its
// level has. What it prints:
//
//     for (m_int pc = from; pc < end; pc++) {
//         const m_ulong w = (m_ulong)W(pc);
//         const m_int to = (m_int)(w >> 16) & 255, a = (m_int)(w >> 24) & 255;
//         ...
//         switch ((m_int)(w & 0xffffu)) {
//             case 5: {                                                      load of an f16
//                 const m_long at = place(m, PROGRAM_REF, x) + index_of(m, PROGRAM_REF, x, a);
//                 if (b == 255 || G_i(b)) m->v[to] = P_f(m_half_to_float(((GLOBAL m_ushort *)BUFFER(c))[at]));
//                 else m->v[to] = 0;
//                 break;
//             }
//             ...
//         case 333: m->v[to] = P_f(o_add_f(G_f(a), G_f(b))); break;          add of floats
//
// Registers hold 64 bits; G_f, G_d, G_i and G_l read a value of a type from one, P_ writes it. The
// fixed parts of the text are written below as code and made into strings by the preprocessor (T);
// they use macros whose spelling depends on the dialect.
#include "kernel/op_text.h"
#include "kernel/simt_interpreter.h"

#include <stdio.h>
#include <string.h>

static char letter_of(int type)
{
    return tni_compute_table[type].letter;
}

static char letter_in(int dt)
{
    return letter_of(tni_type_number((tn_dtype)dt));
}

const int tni_interpreter_folds[4] = { TNI_sum, TNI_prod, TNI_max, TNI_min };

// The cost, in additions, up to which an op is in the smallest interpreter. Of floats: exp and log
// are, functions with two steps of argument reduction or two polynomials are not. Of integers, of
// which indices, masks and counts are made: a division is not. The smallest one has to be compiled
// before a program's first step, so that its size is a matter of start-up time.
enum { LIGHT_FLOAT = 8, LIGHT_INTEGER = 1 };

static bool is_light(int op, int type)
{
    return tni_op_table[op].cost <= (type == TNI_IN_f ? LIGHT_FLOAT : LIGHT_INTEGER);
}

// u64 is rare and f64 slow to compile: the smallest interpreter has neither.
static bool level_has_type(tni_interpreter_level level, int type)
{
    if (type == TNI_IN_u) return level > TNI_INTERPRET_LIGHT;
    return type != TNI_IN_d || level == TNI_INTERPRET_ALL;
}

// Of small integers the smallest interpreter has those of a byte, of which images are made; of
// floats it lacks those that are only storage formats.
bool tni_interpreter_holds(tni_interpreter_level level, tn_dtype dt)
{
    const tni_dtype_facts *f    = &tni_dtype_table[dt];
    bool                   rare = f->held == TNI_HELD_WRAP ? f->bytes > 1 : tni_is_storage_only(dt);
    if (level == TNI_INTERPRET_LIGHT && rare) return false;
    return level_has_type(level, f->number);
}

bool tni_interpreter_has(tni_interpreter_level level, int op, int type)
{
    if (!level_has_type(level, type)) return false;
    return level > TNI_INTERPRET_LIGHT || is_light(op, type);
}

bool tni_interpreter_draws(tni_interpreter_level level, int draw)
{
    if (draw == TNI_DRAW_UNIFORM_D || draw == TNI_DRAW_NORMAL_D) return level == TNI_INTERPRET_ALL;
    return level > TNI_INTERPRET_LIGHT || draw == TNI_DRAW_UNIFORM_F;
}

bool tni_interpreter_casts(tni_interpreter_level level, int type, tn_dtype to)
{
    if (!level_has_type(level, type) || !tni_interpreter_holds(level, to)) return false;
    if (level > TNI_INTERPRET_LIGHT) return true;
    return tni_dtype_table[to].held != TNI_HELD_WRAP && (type == TNI_IN_f || !tni_is_rounded(to));
}

// The text being written, and what its spelling depends on.
typedef struct {
    tni_out              *o;
    bool                  by_struct, fast;  // TNI_GPU_STRUCT, TNI_GPU_MATH
    tni_interpreter_level level;
} interpreter_text;

// ---- cases -------------------------------------------------------------------------------------

// A load has an index and a guard as registers, 255 for none. One case for each dtype in memory.
static void put_loads(const interpreter_text *p)
{
    for (int dt = 0; dt < TNI_DTYPES; dt++) {
        tni_cast_text t = tni_text_from_storage((tn_dtype)dt);
        if (!tni_interpreter_holds(p->level, (tn_dtype)dt)) continue;
        tni_out_line(p->o, "case %d: {", TNI_SEL_LOAD + dt);
        tni_out_line(
            p->o, "const m_long at = place(m, PROGRAM_REF, x) + index_of(m, PROGRAM_REF, x, a);");
        tni_out_line(p->o,
                     "if (b == %d || G_i(b)) m->v[to] = P_%c(%s((GLOBAL %s *)BUFFER(c))[at]%s);",
                     TNI_NO_REGISTER, letter_in(dt), t.before, tni_storage_type((tn_dtype)dt),
                     t.after);
        tni_out_line(p->o, "else m->v[to] = 0;");
        tni_out_line(p->o, "break;");
        tni_out_line(p->o, "}");
    }
}

// What is stored was cast to the buffer's dtype before, by an instruction of its own.
static void put_stores(const interpreter_text *p)
{
    for (int dt = 0; dt < TNI_DTYPES; dt++) {
        tni_cast_text t = tni_text_to_storage((tn_dtype)dt, (tn_dtype)dt);
        if (!tni_interpreter_holds(p->level, (tn_dtype)dt)) continue;
        tni_out_line(p->o, "case %d:", TNI_SEL_STORE + dt);
        tni_out_line(
            p->o,
            "    if (m->mine) ((GLOBAL %s *)BUFFER(c))[place(m, PROGRAM_REF, x)] = %sG_%c(a)%s;",
            tni_storage_type((tn_dtype)dt), t.before, letter_in(dt), t.after);
        tni_out_line(p->o, "    break;");
    }
}

// One case for each kind of random number; key and counter are two neighbouring numbers of the
// launch.
static void put_draws(const interpreter_text *p)
{
    static const struct {
        const char *before, *after;
        int         type;
    } draw[] = { [TNI_DRAW_BITS]      = { "(m_long)m_rand_bits(", ")", TNI_IN_l },
                 [TNI_DRAW_UNIFORM_F] = { "m_rand_uniform_f(", ")", TNI_IN_f },
                 [TNI_DRAW_UNIFORM_D] = { "m_rand_uniform_d(", ")", TNI_IN_d },
                 [TNI_DRAW_F16]       = { "m_uniform_f16(m_rand_bits(", "))", TNI_IN_f },
                 [TNI_DRAW_BF16]      = { "m_uniform_bf16(m_rand_bits(", "))", TNI_IN_f },
                 [TNI_DRAW_NORMAL_F]  = { "m_rand_normal_f(", ")", TNI_IN_f },
                 [TNI_DRAW_NORMAL_D]  = { "m_rand_normal_d(", ")", TNI_IN_d } };
    for (size_t i = 0; i < sizeof draw / sizeof *draw; i++) {
        if (!tni_interpreter_draws(p->level, (int)i)) continue;
        tni_out_line(p->o,
                     "case %d: m->v[to] = P_%c(%s(m_ulong)NUMBER(x), (m_ulong)NUMBER(x + 1), "
                     "(m_ulong)G_l(a)%s); break;",
                     TNI_SEL_RANDOM + (int)i, letter_of(draw[i].type), draw[i].before,
                     draw[i].after);
    }
}

// Bools become 0 or 1 and small integers wrap, as memory would hold them. Other dtypes have no such
// case.
static void put_wraps(const interpreter_text *p)
{
    for (int dt = 0; dt < TNI_DTYPES; dt++) {
        tni_held      held = (tni_held)tni_dtype_table[dt].held;
        tni_cast_text t    = tni_text_from_storage((tn_dtype)dt);
        if (!tni_interpreter_holds(p->level, (tn_dtype)dt)) continue;
        if (held == TNI_HELD_TRUTH)
            tni_out_line(p->o, "case %d: m->v[to] = P_i(G_i(to) != 0); break;", TNI_SEL_WRAP + dt);
        if (held == TNI_HELD_WRAP)
            tni_out_line(p->o, "case %d: m->v[to] = P_%c(%s(%s)G_%c(to)%s); break;",
                         TNI_SEL_WRAP + dt, letter_in(dt), t.before, tni_storage_type((tn_dtype)dt),
                         letter_in(dt), t.after);
    }
}

// One case for each compute type and dtype, by the same texts as generated kernels have.
static void put_casts(const interpreter_text *p)
{
    for (int type = 0; type < TNI_COMPUTES; type++)
        for (int dt = 0; dt < TNI_DTYPES; dt++) {
            if (!tni_interpreter_casts(p->level, type, (tn_dtype)dt)) continue;
            tni_cast_text t = tni_text_cast((tn_dtype)tni_compute_table[type].dtype, (tn_dtype)dt);
            tni_out_line(p->o, "case %d: m->v[to] = P_%c(%sG_%c(a)%s); break;",
                         TNI_SEL_CAST + TNI_DTYPES * type + dt, letter_in(dt), t.before,
                         letter_of(type), t.after);
        }
}

// The cases of reductions: into a register, into the partial result of a column, and the join of
// all parts. c has the number of the fold: TNI_COMPUTES times that of its op, plus the type.
static void put_folds(const interpreter_text *p)
{
    tni_out_line(p->o, "case %d: if (m->mine) m->v[to] = fold(c, m->v[to], m->v[a]); break;",
                 TNI_SEL_REDUCE);
    tni_out_line(
        p->o,
        "case %d: if (m->mine) *SLOT(x, m->part) = fold(c, *SLOT(x, m->part), m->v[a]); break;",
        TNI_SEL_TAIL);
    tni_out_line(p->o, "case %d:", TNI_SEL_JOIN);
    tni_out_line(p->o, "    m->v[to] = (m_ulong)TAIL(x, %d);", TNI_TAIL_START);
    tni_out_line(
        p->o, "    for (m_long z = 0; z < W(%d); z++) m->v[to] = fold(c, m->v[to], *SLOT(x, z));",
        TNI_W_PARTS);
    tni_out_line(p->o, "    break;");
}

// The operands of a map; 0 if the op is none.
static int op_arity(int op)
{
    tni_class class = tni_op_table[op].class;
    return class == TNI_UNARY ? 1 : class == TNI_BINARY ? 2 : class == TNI_TERNARY ? 3 : 0;
}

// One case of a map in a type, if the op table has it there. exp of floats is the function that
// generated kernels call, so that both give the same bits.
static void put_map_case(const interpreter_text *p, int op, int type)
{
    const tni_op_facts *f = &tni_op_table[op];
    char                text[1024], s = letter_of(type);
    char                result = f->rule == TNI_TO_BOOL ? 'i' : s;
    int                 n      = op_arity(op);
    if (!n || !tni_interpreter_has(p->level, op, type)) return;
    if (!tni_op_text(text, sizeof text, "f", op, (tn_dtype)tni_compute_table[type].dtype)) return;
    tni_out_print(p->o, "        case %d: m->v[to] = P_%c(", TNI_SEL_MAP + TNI_COMPUTES * op + type,
                  result);
    if (p->fast && op == TNI_exp && type == TNI_IN_f) tni_out_print(p->o, "m_fast_exp_f(");
    else tni_out_print(p->o, "o_%s_%c(", f->name, s);
    tni_out_print(p->o, "G_%c(a)", f->rule == TNI_SELECT ? 'i' : s);
    if (n > 1) tni_out_print(p->o, ", G_%c(b)", s);
    if (n > 2) tni_out_print(p->o, ", G_%c(c)", s);
    tni_out_print(p->o, ")); break;\n");
}

// ---- the kernel --------------------------------------------------------------------------------

#define T(...) #__VA_ARGS__ "\n"

// clang-format off
// Where a program and what it reads are: in the struct that the kernel takes, or, without one, in
// memory for constants and in what each thread has.
static const char struct_spellings[] =
    "#define PROGRAM const program *p\n#define PROGRAM_REF p\n"
    "#define W(i) (p->w[i])\n"
    "#define BUFFER(i) (p->b[i])\n#define SCRATCH (p->scratch)\n#define FAIL (p->fail)\n";
static const char plain_spellings[] =
    "#define PROGRAM __constant m_long *p\n#define PROGRAM_REF p\n"
    "#define W(i) (p[i])\n"
    "#define BUFFER(i) (m->b[i])\n#define SCRATCH (m->scratch)\n#define FAIL (m->fail)\n";

// What a thread has: registers, coordinates, the element of R, its part, and whether what it stores
// and adds up counts.
static const char *const machine_text[] = {
    "#define V_f(w) m_float_bits((m_uint)(w))\n#define V_d(w) m_double_bits(w)\n"
    "#define V_i(w) ((m_int)(m_uint)(w))\n#define V_l(w) ((m_long)(w))\n#define V_u(w) (w)\n"
    "#define G_f(i) V_f(m->v[i])\n#define G_d(i) V_d(m->v[i])\n"
    "#define G_i(i) V_i(m->v[i])\n#define G_l(i) V_l(m->v[i])\n#define G_u(i) V_u(m->v[i])\n"
    "#define P_f(x) ((m_ulong)m_bits_f(x))\n"
    "#define P_i(x) ((m_ulong)(m_uint)(x))\n#define P_l(x) ((m_ulong)(x))\n#define P_u(x) ((m_ulong)(x))\n"
    "#define P_d(x) m_bits_d(x)\n",
    NULL,
};

static const char *const function_text[] = {
    T(APART m_long place(const machine *m, PROGRAM, m_int x) {
          const m_int axes = (m_int)W(W_AXES);
          const m_long at = W(W_ACCESS_AT) + (m_long)x * (axes + 2);
          m_long y = W(at);
          for (m_int i = 0; i < axes; i++) y += m->at[i] * W(at + 1 + i);
          return y;
      }),
    T(APART m_long index_of(const machine *m, PROGRAM, m_int x, m_int a) {
          const m_int axes = (m_int)W(W_AXES);
          return a == NO_REGISTER ? 0 : (m_long)m->v[a] * W(W(W_ACCESS_AT) + (m_long)x * (axes + 2) + axes + 1);
      }),
    T(APART void coordinates(machine *m, PROGRAM, m_int from, m_int to, m_long i) {
          for (m_int k = to - 1; k >= from; k--) {
              const m_long n = W(W_SIZE + k);
              m->at[k] = i % n;
              i /= n;
          }
      }),
    "#define NUMBER(i) W(W(W_NUMBER_AT) + (i))\n"
    "#define TAIL(t, i) W(W(W_TAIL_AT) + (t) * TAIL_WORDS + (i))\n"
    "#define SLOT(t, z) ((GLOBAL m_ulong *)(SCRATCH + TAIL(t, TAIL_BYTES)) +"
    " (TAIL(t, TAIL_COLUMNS) ? (z) * W(W_COLS) + m->e : (z)))\n",
    NULL,
};

// Tails begin with their starts; at the end those of rows are folded over the group.
static const char *const main_text[] = {
    T(APART void begin_tails(machine *m, PROGRAM, m_int lane, m_int team, m_long low, m_long high) {
          for (m_int t = 0; t < (m_int)W(W_TAILS); t++) {
              const m_ulong start = (m_ulong)TAIL(t, TAIL_START);
              if (!TAIL(t, TAIL_COLUMNS)) m->v[TAIL(t, TAIL_REGISTER)] = start;
              else for (m->e = low + lane; m->e < high; m->e += team) *SLOT(t, m->part) = start;
          }
      }),
    T(APART void finish(machine *m, PROGRAM, m_long item, m_long items) {
          const m_int s = (m_int)W(W_SEGMENTS);
          m->e = 0;
          m->mine = item == 0;
          m->counts = 1;
          run(m, PROGRAM_REF, (m_int)W(SEGMENT(s)), (m_int)W(SEGMENT(s + 1)));
          m->mine = 1;
          if (W(SEGMENT(s + 1)) == W(SEGMENT(s + 2))) return;
          for (m->e = item; m->e < W(W_COLS); m->e += items) {
              coordinates(m, PROGRAM_REF, (m_int)W(W_NP), (m_int)W(W_AXES), m->e);
              run(m, PROGRAM_REF, (m_int)W(SEGMENT(s + 1)), (m_int)W(SEGMENT(s + 2)));
          }
      }),
    NULL,
};

// A group has THREADS / team rows at a time. Rows past the last are the last again, and do not
// count, so that all threads meet at every barrier.
static const char *const body_text[] = {
    T(  const m_int tid = LOCAL_ID, team = (m_int)W(W_TEAM), lane = tid % team, tiles = (m_int)W(W_TILES);
        const m_int tile = GROUP_ID % tiles, part = GROUP_ID / tiles;
        const m_long rows = W(W_ROWS), teams = THREADS / team;
        const m_long low = tile * W(W_TILE);
        const m_long high = tile == tiles - 1 ? W(W_COLS) : low + W(W_TILE);
        m->part = part;),
    T(  begin_tails(m, PROGRAM_REF, lane, team, low, high);
        for (m_long base = part * teams; base < rows; base += W(W_PARTS) * teams) {
            const m_long row = base + tid / team;
            const m_int on = row < rows;
            m->counts = on;
            coordinates(m, PROGRAM_REF, 0, (m_int)W(W_NP), on ? row : rows - 1);
            for (m_int s = 0; s < (m_int)W(W_SEGMENTS); s++) {
                const m_int from = (m_int)W(SEGMENT(s)), to = (m_int)W(SEGMENT(s + 1));
                m->mine = on && (s % 2 || (lane == 0 && tile == 0));
                if (s % 2 == 0) run(m, PROGRAM_REF, from, to);
                else
                    for (m->e = low + lane; m->e < high; m->e += team) {
                        coordinates(m, PROGRAM_REF, (m_int)W(W_NP), (m_int)W(W_AXES), m->e);
                        run(m, PROGRAM_REF, from, to);
                    }
                for (m_long f = W(SEGMENT_FOLDS(s)); f < W(SEGMENT_FOLDS(s + 1)); f++)
                    fold_threads(m, red, (m_int)(W(f) & 255), (m_int)(W(f) >> 8), tid, lane, team);
            }
        }),
    T(  for (m_int t = 0; t < (m_int)W(W_TAILS); t++) {
            if (TAIL(t, TAIL_COLUMNS)) continue;
            fold_threads(m, red, (m_int)TAIL(t, TAIL_REGISTER), (m_int)TAIL(t, TAIL_FOLD), tid, tid, THREADS);
            if (tid == 0 && tile == 0) *SLOT(t, part) = m->v[TAIL(t, TAIL_REGISTER)];
        }),
    NULL,
};

static const char *const fold_threads_text[] = {
    T(APART void fold_threads(machine *m, LOCAL_PTR m_ulong *red, m_int v, m_int how, m_int tid, m_int lane, m_int team) {
          red[tid] = m->v[v];
          BARRIER();
          for (m_int d = team / 2; d > 0; d /= 2) {
              if (lane < d) red[tid] = fold(how, red[tid], red[tid + d]);
              BARRIER();
          }
          m->v[v] = red[tid - lane];
          BARRIER();
      }),
    NULL,
};
// clang-format on

// Prints the macros that the fixed parts of the text use: qualifiers, barrier, thread and group
// numbers.
static void put_qualifier_macros(const interpreter_text *p, const tni_dialect *d)
{
    tni_out_print(p->o,
                  "#define GLOBAL %s\n#define LOCAL %s\n#define LOCAL_PTR %s\n#define APART %s\n",
                  d->global, d->shared, d->local, d->no_inline);
    tni_out_print(p->o, "#define BARRIER() %s\n#define LOCAL_ID (%s)\n#define GROUP_ID (%s)\n",
                  d->barrier, d->local_id, d->group_id);
    tni_out_print(p->o, "#define GROUPS (%s)\n%s", d->groups,
                  p->by_struct ? struct_spellings : plain_spellings);
}

static void put_pieces(const interpreter_text *p, const char *const *piece)
{
    for (; *piece; piece++) tni_out_print(p->o, "%s", *piece);
}

// Prints the numbers that the writer of programs and the text agree on (simt_interpreter.h).
static void put_constants(const interpreter_text *p)
{
    static const struct {
        const char *name;
        int         value;
    } constant[] = {
        { "W_FINISH", TNI_W_FINISH },
        { "W_ROWS", TNI_W_ROWS },
        { "W_COLS", TNI_W_COLS },
        { "W_NP", TNI_W_NP },
        { "W_AXES", TNI_W_AXES },
        { "W_TEAM", TNI_W_TEAM },
        { "W_PARTS", TNI_W_PARTS },
        { "W_TILES", TNI_W_TILES },
        { "W_TILE", TNI_W_TILE },
        { "W_SEGMENTS", TNI_W_SEGMENTS },
        { "W_GUARDED", TNI_W_GUARDED },
        { "W_TAILS", TNI_W_TAILS },
        { "W_TAIL_AT", TNI_W_TAIL_AT },
        { "W_ACCESS_AT", TNI_W_ACCESS_AT },
        { "W_NUMBER_AT", TNI_W_NUMBER_AT },
        { "W_SEGMENT_AT", TNI_W_SEGMENT_AT },
        { "W_SIZE", TNI_W_SIZE },
        { "TAIL_BYTES", TNI_TAIL_BYTES },
        { "TAIL_COLUMNS", TNI_TAIL_COLUMNS },
        { "TAIL_REGISTER", TNI_TAIL_REGISTER },
        { "TAIL_FOLD", TNI_TAIL_FOLD },
        { "TAIL_START", TNI_TAIL_START },
        { "TAIL_WORDS", TNI_TAIL_WORDS },
        { "NO_REGISTER", TNI_NO_REGISTER },
        { "THREADS", TNI_INTERPRETER_THREADS },
    };
    for (size_t i = 0; i < sizeof constant / sizeof *constant; i++)
        tni_out_print(p->o, "#define %s %d\n", constant[i].name, constant[i].value);
    tni_out_print(p->o, "#define SEGMENT(s) (W(W_SEGMENT_AT) + 2 * (s))\n"
                        "#define SEGMENT_FOLDS(s) (W(W_SEGMENT_AT) + 2 * (s) + 1)\n");
}

// Prints the argument struct (CUDA) and `machine`, the registers and coordinates of one thread.
// OpenCL keeps the buffers in the machine, since they are arguments of the kernel and not part of a
// struct.
static void put_machine_types(const interpreter_text *p)
{
    if (p->by_struct)
        tni_out_print(
            p->o,
            "typedef struct { char *b[%d]; char *scratch; m_long *fail; m_long w[%d]; } program;\n",
            TNI_MAX_BUFFERS, TNI_INTERPRETER_WORDS);
    tni_out_print(
        p->o,
        "typedef struct {\n    m_ulong v[%d];\n    m_long at[%d], e, part;\n    m_int mine, counts;\n",
        TNI_REGISTERS, TNI_AXES);
    if (!p->by_struct)
        tni_out_print(p->o, "    __global char *b[%d], *scratch;\n    __global m_long *fail;\n",
                      TNI_MAX_BUFFERS);
    tni_out_print(p->o, "} machine;\n");
}

// fold(TNI_COMPUTES number of the fold + type, a, b), of registers.
static void put_fold_function(const interpreter_text *p)
{
    tni_out_line(p->o, "APART m_ulong fold(m_int how, m_ulong a, m_ulong b) {");
    tni_out_line(p->o, "switch (how) {");
    for (int f = 0; f < 4; f++)
        for (int type = 0; type < TNI_COMPUTES; type++)
            if (level_has_type(p->level, type))
                tni_out_line(p->o, "case %d: return P_%c(o_%s_%c(V_%c(a), V_%c(b)));",
                             TNI_COMPUTES * f + type, letter_of(type),
                             tni_op_table[tni_interpreter_folds[f]].name, letter_of(type),
                             letter_of(type), letter_of(type));
    tni_out_line(p->o, "}");
    tni_out_line(p->o, "return a;");
    tni_out_line(p->o, "}");
}

// Prints the cases of the switch, in the order of the selectors. Only what the level has is
// printed: the number of cases is what compiling the interpreter costs.
static void put_cases(const interpreter_text *p)
{
    put_loads(p);
    put_stores(p);
    tni_out_line(p->o, "case %d: m->v[to] = (m_ulong)NUMBER(x); break;", TNI_SEL_NUMBER);
    tni_out_line(p->o, "case %d: m->v[to] = (m_ulong)place(m, PROGRAM_REF, x); break;",
                 TNI_SEL_PLACE);
    tni_out_line(
        p->o,
        "case %d: m->v[to] = m->counts ? (m_ulong)m_check(G_l(a), NUMBER(x), c, FAIL) : 0; break;",
        TNI_SEL_CHECK);
    put_draws(p);
    put_wraps(p);
    put_casts(p);
    put_folds(p);
    for (int op = 0; op < TNI_OPS; op++)
        for (int type = 0; type < TNI_COMPUTES; type++) put_map_case(p, op, type);
}

// Prints `run`, which executes the words from one to another: fields, and the switch.
static void put_run(const interpreter_text *p)
{
    tni_out_line(p->o, "APART void run(machine *m, PROGRAM, m_int from, m_int end) {");
    tni_out_line(p->o, "for (m_int pc = from; pc < end; pc++) {");
    tni_out_line(p->o, "const m_ulong w = (m_ulong)W(pc);");
    tni_out_line(p->o, "const m_int to = (m_int)(w >> 16) & 255, a = (m_int)(w >> 24) & 255;");
    tni_out_line(p->o, "const m_int b = (m_int)(w >> 32) & 255, c = (m_int)(w >> 40) & 255;");
    tni_out_line(p->o, "const m_int x = (m_int)(w >> 48) & 255;");
    tni_out_line(p->o, "switch ((m_int)(w & 0xffffu)) {");
    put_cases(p);
    tni_out_line(p->o, "}");
    tni_out_line(p->o, "}");
    tni_out_line(p->o, "}");
}

// Prints the kernel's head. On CUDA it takes the program by value; __grid_constant__ lets it be
// read in place.
static void put_signature(const interpreter_text *p, const tni_dialect *d)
{
    if (p->by_struct) {
        tni_out_print(p->o,
                      "%s__launch_bounds__(%d) " TNI_INTERPRETER_NAME
                      "(%s program a)\n{\n    LOCAL m_ulong red[THREADS];\n"
                      "    const program *const p = &a;\n    machine here, *const m = &here;\n"
                      "    if (W(W_GUARDED) && *(const volatile m_long *)p->fail[4]) return;\n",
                      d->kernel, TNI_INTERPRETER_THREADS, d->struct_qualifier);
        return;
    }
    tni_out_print(
        p->o,
        "__kernel __attribute__((reqd_work_group_size(%d, 1, 1))) void " TNI_INTERPRETER_NAME "(",
        TNI_INTERPRETER_THREADS);
    for (int i = 0; i < TNI_MAX_BUFFERS; i++) tni_out_print(p->o, "__global char *b%d, ", i);
    tni_out_print(p->o, "__global char *scratch, __global m_long *fail, __constant m_long *p,"
                        " __local m_ulong *red)\n{\n"
                        "    machine here, *const m = &here;\n");
    for (int i = 0; i < TNI_MAX_BUFFERS; i++) tni_out_print(p->o, "    m->b[%d] = b%d;\n", i, i);
    tni_out_print(p->o, "    m->scratch = scratch;\n    m->fail = fail;\n");
}

// The skeleton of the interpreter: opts of the item is the level. Definitions come before their
// uses, so the order of the parts is fixed.
void tni_emit_interpreter(tni_out *o, const tni_dialect *d, const tni_emit_item *item)
{
    const tni_interpreter_level *level = item->opts;
    interpreter_text p = { o, d->features & TNI_GPU_STRUCT, d->features & TNI_GPU_MATH, *level };
    put_qualifier_macros(&p, d);
    put_constants(&p);
    put_machine_types(&p);
    put_pieces(&p, machine_text);
    put_fold_function(&p);
    put_pieces(&p, function_text);
    put_run(&p);
    put_pieces(&p, fold_threads_text);
    put_pieces(&p, main_text);
    put_signature(&p, d);
    tni_out_print(
        o,
        "    if (W(W_FINISH)) {\n        finish(m, PROGRAM_REF, (m_long)GROUP_ID * THREADS + LOCAL_ID, (m_long)GROUPS * THREADS);\n        return;\n    }\n");
    put_pieces(&p, body_text);
    tni_out_print(o, "}\n");
}
