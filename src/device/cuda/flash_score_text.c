// Score programs as text: what the kernels of attention call for each score, and before. ALiBi is
// printed as
//
//     struct score_head { float v5; };
//     struct score_base { float v6; };
//     ...
//     M_FN float score_change(float x, const flash &o, const place &p, const score_place &s, float &slope) {
//         float v5 = s.u.v5;
//         float v6 = m_fma_f(v5, (float)(-1 * s.di + 1 * s.dj), s.t.v6);
//         float v7 = m_fma_f(x, o.scale, v6);
//         return v7;
//     }
//
// flash_score.h says what is computed where. Instructions are printed as those of generated kernels
// are (kernel/emit.h), of which a kernel of nothing but maps is made here.
#include "device/cuda/flash_score.h"
#include "device/cuda/flash_text.h"
#include "kernel/emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The functions that are printed, in terms of what they are called for; a set of instructions of
// each: those that it gives back as members of a struct.
typedef enum { OF_HEAD, OF_QUERY, OF_KEY, OF_BASE, OF_SCORE, FUNCTIONS } function;

typedef struct {
    tni_score_plan plan;
    tni_kernel    *kernel;  // in which instruction k has the number k of the program
    tni_emitter    emit;
    bool           member[FUNCTIONS][TNI_SCORE_OPS];
    bool           need[TNI_SCORE_OPS];   // of the function that is printed
    bool           fused[TNI_SCORE_OPS];  // printed as a part of its only reader
} writer;

static const tni_score_op *op_of(const writer *w, int k)
{
    return &w->plan.score->op[k];
}

// ---- what a function computes ------------------------------------------------------------------

// The function whose struct has an instruction that function f does not compute itself; f if it
// does.
static function home_of(const writer *w, function f, int k)
{
    tni_score_level level = w->plan.fact[k].level;
    if (level == TNI_SCORE_CONSTANT || f == OF_HEAD) return f;
    if (level == TNI_SCORE_HEAD) return OF_HEAD;
    if (f != OF_SCORE) return f;
    return level == TNI_SCORE_QUERY                                 ? OF_QUERY
           : level == TNI_SCORE_KEY                                 ? OF_KEY
           : level == TNI_SCORE_LINEAR || level == TNI_SCORE_SCALED ? OF_BASE
                                                                    : OF_SCORE;
}

// Marks what a function needs for what is marked so far, and what of that are members of others.
static void mark_needed(writer *w, function f)
{
    for (int k = w->plan.score->all - 1; k >= 0; k--) {
        if (!w->need[k]) continue;
        function home = home_of(w, f, k);
        if (home != f) w->member[home][k] = true;
        if (home == OF_BASE && f == OF_SCORE && w->plan.fact[k].level == TNI_SCORE_SCALED)
            w->need[w->plan.fact[k].by] = true;
        for (int i = 0; home == f && i < tni_score_operands(op_of(w, k)->op); i++)
            w->need[op_of(w, k)->src[i]] = true;
    }
}

static void need_only(writer *w, int k)
{
    memset(w->need, 0, sizeof w->need);
    if (k >= 0) w->need[k] = true;
}

// ---- fused products ----------------------------------------------------------------------------

static int count_readers(const writer *w, int k)
{
    int n = k == w->plan.value || k == w->plan.slope;
    for (int i = 0; i < w->plan.score->all; i++)
        for (int a = 0; w->need[i] && a < tni_score_operands(op_of(w, i)->op); a++)
            n += op_of(w, i)->src[a] == k;
    return n;
}

static bool is_each(const writer *w, int k)
{
    return w->plan.fact[k].level == TNI_SCORE_EACH && op_of(w, k)->dtype == TN_F32;
}

// The product that an operand of a sum is, perhaps with the other sign, and that nothing else
// reads; -1 if it is none. The score itself is such a product, with the scale.
static int product_of(const writer *w, int k, bool *minus)
{
    *minus = false;
    if (is_each(w, k) && op_of(w, k)->op == TNI_neg && count_readers(w, k) == 1) {
        *minus = true;
        k      = op_of(w, k)->src[0];
    }
    bool product = op_of(w, k)->op == TNI_mul || op_of(w, k)->op == TNI_matmul;
    return product && is_each(w, k) && count_readers(w, k) == 1 ? k : -1;
}

// Which operand of sum k is a product that is fused with it; -1: none.
static int fused_operand(const writer *w, int k)
{
    const tni_score_op *x = op_of(w, k);
    bool                minus;
    if ((x->op != TNI_add && x->op != TNI_sub) || !is_each(w, k)) return -1;
    for (int i = 0; i < 2; i++)
        if (product_of(w, x->src[i], &minus) >= 0) return i;
    return -1;
}

static void find_fused(writer *w)
{
    memset(w->fused, 0, sizeof w->fused);
    for (int k = 0; k < w->plan.score->all; k++) {
        int  i = w->need[k] ? fused_operand(w, k) : -1;
        bool minus;
        if (i < 0) continue;
        w->fused[op_of(w, k)->src[i]]                        = true;
        w->fused[product_of(w, op_of(w, k)->src[i], &minus)] = true;
    }
}

// a b + c as one operation, with the signs of a sum or a difference.
static void put_fused(writer *w, int k)
{
    const tni_score_op *x = op_of(w, k);
    bool                minus;
    int                 i = fused_operand(w, k), y = product_of(w, x->src[i], &minus);
    bool                less = x->op == TNI_sub;
    tni_out_print(w->emit.out, "m_fma_f(%s", minus != (less && i == 1) ? "-" : "");
    if (op_of(w, y)->op == TNI_matmul) tni_out_print(w->emit.out, "x, o.scale");
    else tni_out_print(w->emit.out, "v%d, v%d", op_of(w, y)->src[0], op_of(w, y)->src[1]);
    tni_out_print(w->emit.out, ", %sv%d)", less && i == 0 ? "-" : "", x->src[1 - i]);
}

// ---- instructions ------------------------------------------------------------------------------

static tni_ins instruction_of(const tni_score_op *x, int k, bool narrow)
{
    int     n = tni_score_operands(x->op);
    tni_ins y = { .code   = x->op == TNI_cast ? TNI_I_CAST
                            : n               ? TNI_I_MAP
                                              : TNI_I_NUMBER,
                  .op     = x->op,
                  .dtype  = narrow ? TN_I32 : x->dtype,
                  .a      = n > 0 ? x->src[0] : -1,
                  .b      = n > 1 ? x->src[1] : -1,
                  .c      = n > 2 ? x->src[2] : -1,
                  .number = k };
    return y;
}

static void put_value(tni_emitter *s, int k)
{
    tni_out_print(s->out, "v%d", k);
}

// The 64 bits of a constant.
static void put_number(tni_emitter *s, int k)
{
    const tni_score_op *x    = op_of(s->user, k);
    uint64_t            bits = (uint64_t)x->i;
    float               f    = (float)x->f;
    uint32_t            low;
    if (x->dtype == TN_F64) memcpy(&bits, &x->f, sizeof bits);
    if (x->dtype == TN_F32) memcpy(&low, &f, sizeof low), bits = low;
    tni_out_print(s->out, "0x%llxull", (unsigned long long)bits);
}

// An element of a source at the score's place. A place beyond the last query or key, of a tile that
// reaches over the edge, is not seen, and the last one is read for it.
static void put_source(const writer *w, const tni_score_op *x)
{
    static const char *const axis[] = { "p.b", "p.h", "i", "j" };
    static const char *const last[] = { "", "", "min(i, o.T - 1)", "min(j, o.S - 1)" };
    const tni_flash_extra   *e      = &w->plan.in->extra[x->source];
    tni_cast_text            load   = tni_text_from_storage(e->dtype);
    tni_cast_text            cast   = tni_text_cast(e->dtype, (tn_dtype)x->dtype);
    bool     wide = tni_is_float(e->dtype) && x->dtype == TN_F32;  // computed in f32 already
    tni_out *o    = w->emit.out;
    tni_out_print(o, "%s%s((const %s *)o.extra[%d])[0", wide ? "" : cast.before, load.before,
                  tni_storage_type(e->dtype), x->source);
    for (int i = 0; i < 4; i++) {
        bool inside = i < 2 || w->plan.in->size[i] % TNI_FLASH_MOST_ROWS == 0;
        if (!e->varies[i]) continue;
        tni_out_print(o, " + %s", inside ? axis[i] : last[i]);
        if (i < 3 || !e->dense)
            tni_out_print(o, " * (%s)o.extra_at[%d][%d]", e->small ? "m_int" : "m_long", x->source,
                          i);
    }
    tni_out_print(o, "]%s%s", load.after, wide ? "" : cast.after);
}

// f + df n, n the place along the axes.
static void put_place(tni_out *o, const tni_score_op *x, tn_dtype dt)
{
    static const char *const axis[] = { "p.b", "p.h", "i", "j" };
    const char              *type   = dt == TN_I32 ? "m_int" : "m_long";
    bool                     real   = tni_is_float(dt);
    if (real)
        tni_out_print(o, "o_add_%c(o_mul_%c((%s)(0", tni_compute_suffix(dt), tni_compute_suffix(dt),
                      tni_compute_type(dt));
    else
        tni_out_print(o, "(%s)(%lld + (%s)%lld * (0", tni_compute_type(dt), (long long)x->i, type,
                      (long long)x->di);
    for (int k = 0; k < 4; k++)
        if (x->step[k]) tni_out_print(o, " + (%s)%lld * %s", type, (long long)x->step[k], axis[k]);
    if (real)
        tni_out_print(o, "), (%s)%.17g), (%s)%.17g)", tni_compute_type(dt), x->df,
                      tni_compute_type(dt), x->f);
    else tni_out_print(o, "))");
}

// A member of a struct as a value of the function: what is known at the first place of a tile is
// moved to the score's.
static void put_member(const writer *w, function home, int k, tn_dtype dt)
{
    static const char *const from[] = { "u", "s.q", "s.k", "s.t" };
    const tni_score_fact    *y      = &w->plan.fact[k];
    tni_out                 *o      = w->emit.out;
    if (home != OF_BASE) {
        tni_out_print(o, "%s.v%d", from[home], k);
        return;
    }
    char step[80];
    snprintf(step, sizeof step, "(%s)(%.0f * s.di + %.0f * s.dj)",
             y->level == TNI_SCORE_SCALED ? "float" : tni_compute_type(dt), y->per_query,
             y->per_key);
    if (y->level == TNI_SCORE_SCALED) tni_out_print(o, "m_fma_f(v%d, %s, s.t.v%d)", y->by, step, k);
    else tni_out_print(o, "s.t.v%d + %s", k, step);
}

// What costs many instructions is less exact in a score than elsewhere, off by some 2^-22 of
// itself: the scores are products of 16-bit numbers. False if there is no such text.
static bool put_coarse(writer *w, function f, int k)
{
    const tni_score_op *x = op_of(w, k);
    int                 a = x->src[0], b = x->src[1];
    if (f != OF_SCORE || x->dtype != TN_F32) return false;
    switch (x->op) {
    case TNI_tanh: tni_out_print(w->emit.out, "coarse_tanh(v%d)", a); return true;
    case TNI_exp: tni_out_print(w->emit.out, "m_exp_coarse_f(v%d)", a); return true;
    case TNI_reciprocal: tni_out_print(w->emit.out, "m_rcp_f(v%d)", a); return true;
    case TNI_div: tni_out_print(w->emit.out, "v%d * m_rcp_f(v%d)", a, b); return true;
    default: return false;
    }
}

static void put_instruction(writer *w, function f, int k)
{
    const tni_score_op *x    = op_of(w, k);
    tn_dtype            dt   = (tn_dtype)w->kernel->ins[k].dtype;
    function            home = home_of(w, f, k);
    tni_out            *o    = w->emit.out;
    tni_out_print(o, "    %s v%d = ", tni_compute_type(dt), k);
    if (home != f) put_member(w, home, k, dt);
    else if (x->op == TNI_matmul) tni_out_print(o, "x * o.scale");
    else if (x->op == TNI_leaf) put_source(w, x);
    else if (x->op == TNI_iota) put_place(o, x, dt);
    else if (f == OF_SCORE && fused_operand(w, k) >= 0) put_fused(w, k);
    else if (!put_coarse(w, f, k)) tni_emit_value(&w->emit, k);
    tni_out_print(o, ";\n");
}

// ---- functions ---------------------------------------------------------------------------------

// The instructions that a function needs, in their order.
static void put_body(writer *w, function f)
{
    mark_needed(w, f);
    memset(w->fused, 0, sizeof w->fused);
    if (f == OF_SCORE) find_fused(w);
    for (int k = 0; k < w->plan.score->all; k++)
        if (w->need[k] && !w->fused[k]) put_instruction(w, f, k);
}

// A struct and the function that fills it.
static void put_members(writer *w, function f)
{
    static const char *const name[]  = { "head", "query", "key", "base" };
    static const char *const given[] = { "", ", const score_head &u, int i",
                                         ", const score_head &u, int j",
                                         ", const score_head &u, int i, int j" };
    tni_out                 *o       = w->emit.out;
    tni_out_print(o, "struct score_%s {", name[f]);
    for (int k = 0; k < w->plan.score->all; k++)
        if (w->member[f][k])
            tni_out_print(o, " %s v%d;", tni_compute_type((tn_dtype)w->kernel->ins[k].dtype), k);
    tni_out_print(o, " };\nM_FN score_%s score_%s_of(const flash &o, const place &p%s) {\n",
                  name[f], name[f], given[f]);
    memcpy(w->need, w->member[f], sizeof w->need);
    put_body(w, f);
    tni_out_print(o, "    score_%s y;\n", name[f]);
    for (int k = 0; k < w->plan.score->all; k++)
        if (w->member[f][k]) tni_out_print(o, "    y.v%d = v%d;\n", k, k);
    tni_out_print(o, "    return y;\n}\n");
}

static void put_names(tni_out *o)
{
    tni_out_print(o, "    const score_head &u = s.u;\n    int i = s.i, j = s.j;\n");
}

// The value, and the slope by the score.
static void put_change(writer *w)
{
    tni_out *o = w->emit.out;
    tni_out_print(o, "M_FN float score_change(float x, const flash &o, const place &p, "
                     "const score_place &s, float &slope) {\n");
    put_names(o);
    need_only(w, w->plan.value);
    if (w->plan.sloped) w->need[w->plan.slope] = true;
    put_body(w, OF_SCORE);
    if (w->plan.sloped) tni_out_print(o, "    slope = (float)v%d;\n", w->plan.slope);
    tni_out_print(o, "    return (float)v%d;\n}\n", w->plan.value);
}

// The slopes by the sources.
static void put_source_slopes(writer *w)
{
    tni_out *o = w->emit.out;
    tni_out_print(
        o, "template <int N> M_FN float extra_slope(float x, const flash &o, const place &p, "
           "const score_place &s) {\n");
    put_names(o);
    for (int n = 0; n < w->plan.score->sources; n++) {
        if (w->plan.source_slope[n] < 0) continue;
        tni_out_print(o, "if constexpr (N == %d) {\n", n);
        need_only(w, w->plan.source_slope[n]);
        put_body(w, OF_SCORE);
        tni_out_print(o, "    return (float)v%d;\n}\n", w->plan.source_slope[n]);
    }
    tni_out_print(o, "    return 0;\n}\n");
}

// Structs come before the functions that read them, but are known only when these are printed:
// their text is printed twice, of which the first time is thrown away.
static void put_functions(writer *w)
{
    size_t start = w->emit.out->len;
    put_change(w);
    put_source_slopes(w);
    for (int f = OF_BASE; f > OF_HEAD; f--) put_members(w, (function)f);
    tni_out_remove(w->emit.out, start, w->emit.out->len);
    for (int f = OF_HEAD; f <= OF_BASE; f++) put_members(w, (function)f);
    tni_out_print(w->emit.out, "%s", tni_text_score_place);
    put_change(w);
    put_source_slopes(w);
}

// What leaves tiles out, if the program hides by a comparison: the numbers that are compared, and
// whether it holds for all of a range of queries and one of keys, given the least and the largest
// of each.
static void put_hiding(writer *w)
{
    const tni_score_hiding *y   = &w->plan.hiding;
    const char             *all = y->op == TNI_ne   ? "q[1] < k[0] || k[1] < q[0]"
                                  : y->op == TNI_eq ? "q[0] == k[1] && q[1] == k[0] && q[0] == q[1]"
                                  : y->op == TNI_lt ? "q[1] < k[0]"
                                  : y->op == TNI_le ? "q[1] <= k[0]"
                                  : y->op == TNI_gt ? "q[0] > k[1]"
                                                    : "q[0] >= k[1]";
    if (!y->op) {
        tni_out_print(w->emit.out, "%s", tni_text_hides_nothing);
        return;
    }
    tni_out_print(w->emit.out,
                  "enum { HIDING = 1, HIDING_BY_HEAD = %d };\ntypedef %s score_mark;\n", y->by_head,
                  tni_compute_type((tn_dtype)w->kernel->ins[y->query].dtype));
    tni_out_print(w->emit.out, "M_FN score_mark mark_of(const score_query &x) { return x.v%d; }\n",
                  y->query);
    tni_out_print(w->emit.out, "M_FN score_mark mark_of(const score_key &x) { return x.v%d; }\n",
                  y->key);
    tni_out_print(w->emit.out,
                  "M_FN bool hides_all(const score_mark (&q)[2], const score_mark (&k)[2]) "
                  "{ return %s; }\n",
                  all);
}

static void put_facts(writer *w)
{
    unsigned varies = 0;
    for (int i = 0; i < w->plan.score->sources; i++)
        varies |= (unsigned)tni_score_slope_varies(&w->plan, i) << i;
    tni_out_print(w->emit.out, "enum { SLOPED = %d, GUARDED = %d, STEADY = %d, VARYING = %u };\n",
                  w->plan.sloped, w->plan.guarded, w->plan.steady, varies);
    tni_out_print(w->emit.out, "M_FN float score_factor() { return (float)%.9g; }\n",
                  w->plan.value_factor);
    tni_out_print(w->emit.out, "M_FN float slope_factor() { return (float)%.9g; }\n",
                  w->plan.slope_factor);
}

// The program is printed by way of a kernel of its maps.
char *tni_flash_program(tni_heap *h, const tni_score *score, const tni_flash_in *in)
{
    tni_out o;
    writer *w = calloc(1, sizeof *w);
    if (!w || !(w->kernel = calloc(1, sizeof *w->kernel))) {
        free(w);
        return NULL;
    }
    w->plan = tni_score_plan_of(score, in);
    w->emit = (tni_emitter){ .out     = &o,
                             .dialect = &tni_dialect_cuda,
                             .kernel  = w->kernel,
                             .user    = w,
                             .value   = put_value,
                             .number  = put_number };
    for (int k = 0; k < score->all; k++)
        w->kernel->ins[k] = instruction_of(&score->op[k], k, w->plan.fact[k].narrow);
    w->kernel->nins = score->all;
    tni_out_open(&o, h);
    put_facts(w);
    put_functions(w);
    put_hiding(w);
    char *text = tni_out_take(&o);
    tni_out_close(&o);
    free(w->kernel);
    free(w);
    return text;
}
