// Score programs (ops/score.h) as text: the functions score_change and score_slope, which the kernels of
// attention call for each score. ALiBi is printed as
//
//     M_FN float score_change(float x, const flash &o, const place &p, int i, int j) {
//         if (i >= o.T || j >= o.S) return x;
//         m_int v1 = (m_int)(0 + 1 * (m_long)(0 * p.b + 0 * p.h + 0 * i + 1 * j));
//         ...
//         float v7 = o_add_f(v0, v6);
//         return v7;
//     }
//
// Instructions are printed as those of generated kernels are (kernel/emit.h), of which a kernel of
// nothing but maps is made here.
#include "device/cuda/flash.h"
#include "kernel/emit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A program being printed: as a kernel, in which instruction k has the number k of the program.
typedef struct {
    const tni_score *score;
    const tn_dtype  *source;  // dtypes of what it reads
    tni_kernel      *kernel;
} score_text;

// ---- 64-bit integers ---------------------------------------------------------------------------

// Returns the largest magnitude of an integer instruction, over places below size; INFINITY if that is
// not known.
static double magnitude_of(const tni_score_op *x, const double *of, const int64_t size[4])
{
    double n = 0, a = of[x->src[0]], b = of[x->src[1]];
    switch (x->op) {
    case TNI_scalar: return fabs((double)x->i);
    case TNI_iota:
        for (int k = 0; k < 4; k++) n += fabs((double)x->step[k]) * (double)size[k];
        return fabs((double)x->i) + fabs((double)x->di) * n;
    case TNI_add:
    case TNI_sub: return a + b;
    case TNI_mul: return a * b;
    case TNI_neg:
    case TNI_abs: return a;
    case TNI_max:
    case TNI_min: return a > b ? a : b;
    case TNI_where: return b > of[x->src[2]] ? b : of[x->src[2]];
    default: return INFINITY;
    }
}

// Whether all integers of 64 bits, which places are, fit into 32: then they are computed so, at a
// fraction of the cost.
static bool are_narrow(const tni_score *s, const int64_t size[4])
{
    double of[TNI_SCORE_OPS];
    for (int k = 0; k < s->all; k++) {
        bool whole = s->op[k].dtype == TN_I64 || s->op[k].dtype == TN_I32;
        of[k]      = whole ? magnitude_of(&s->op[k], of, size) : INFINITY;
        if (s->op[k].dtype == TN_I64 && !(of[k] < INT32_MAX)) return false;
    }
    return true;
}

// ---- instructions ------------------------------------------------------------------------------

static tni_ins instruction_of(const tni_score_op *x, int k, bool narrow)
{
    int     n = tni_score_operands(x->op);
    tni_ins y = { .code   = x->op == TNI_cast ? TNI_I_CAST
                            : n               ? TNI_I_MAP
                                              : TNI_I_NUMBER,
                  .op     = x->op,
                  .dtype  = narrow && x->dtype == TN_I64 ? TN_I32 : x->dtype,
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
    const score_text   *t    = s->user;
    const tni_score_op *x    = &t->score->op[k];
    uint64_t            bits = (uint64_t)x->i;
    float               f    = (float)x->f;
    uint32_t            low;
    if (x->dtype == TN_F64) memcpy(&bits, &x->f, sizeof bits);
    if (x->dtype == TN_F32) memcpy(&low, &f, sizeof low), bits = low;
    tni_out_print(s->out, "0x%llxull", (unsigned long long)bits);
}

// An element of a source at the score's place.
static void put_source(tni_emitter *s, const tni_score_op *x)
{
    const score_text *t  = s->user;
    tn_dtype          dt = t->source[x->source];
    tni_cast_text load = tni_text_from_storage(dt), cast = tni_text_cast(dt, (tn_dtype)x->dtype);
    bool          wide = tni_is_float(dt) && x->dtype == TN_F32;  // computed in f32 already
    tni_out_print(s->out, "%s%s((const %s *)o.extra[%d])[extra_offset(o, p, %d, i, j)]%s%s",
                  wide ? "" : cast.before, load.before, tni_storage_type(dt), x->source, x->source,
                  load.after, wide ? "" : cast.after);
}

// f + df n, n the place along the axes.
static void put_place(tni_emitter *s, const tni_score_op *x, tn_dtype dt)
{
    const char *type = dt == TN_I32 ? "m_int" : "m_long";
    bool        real = tni_is_float(dt);
    if (real)
        tni_out_print(s->out, "o_add_%c(o_mul_%c((%s)(", tni_compute_suffix(dt),
                      tni_compute_suffix(dt), tni_compute_type(dt));
    else
        tni_out_print(s->out, "(%s)(%lld + (%s)%lld * (", tni_compute_type(dt), (long long)x->i,
                      type, (long long)x->di);
    static const char *const axis[] = { "p.b", "p.h", "i", "j" };
    for (int k = 0; k < 4; k++)
        if (x->step[k])
            tni_out_print(s->out, "+ (%s)%lld * %s ", type, (long long)x->step[k], axis[k]);
    if (real)
        tni_out_print(s->out, "+ 0), (%s)%.17g), (%s)%.17g)", tni_compute_type(dt), x->df,
                      tni_compute_type(dt), x->f);
    else tni_out_print(s->out, "+ 0))");
}

// tanh of scores is taken by an exponential and a reciprocal: its absolute error, which is what counts
// in a score, is that of an f32.
static void put_instruction(tni_emitter *s, int k)
{
    const score_text   *t  = s->user;
    const tni_score_op *x  = &t->score->op[k];
    tn_dtype            dt = (tn_dtype)s->kernel->ins[k].dtype;
    tni_out_print(s->out, "    %s v%d = ", tni_compute_type(dt), k);
    if (x->op == TNI_matmul) tni_out_print(s->out, "x");
    else if (x->op == TNI_leaf) put_source(s, x);
    else if (x->op == TNI_iota) put_place(s, x, dt);
    else if (x->op == TNI_tanh && dt == TN_F32)
        tni_out_print(s->out, "coarse_tanh(v%d)", x->src[0]);
    else tni_emit_value(s, k);
    tni_out_print(s->out, ";\n");
}

// ---- functions ---------------------------------------------------------------------------------

// Marks what instruction k needs, itself included.
static void mark_needed(const tni_score *s, int k, bool *needed)
{
    needed[k] = true;
    for (; k >= 0; k--)
        for (int a = 0; needed[k] && a < tni_score_operands(s->op[k].op); a++)
            needed[s->op[k].src[a]] = true;
}

// A place beyond the last query or key, of a tile that reaches over the edge, is not seen, and nothing
// may be read for it.
static void put_function(tni_emitter *s, const char *name, int result)
{
    const score_text *t                     = s->user;
    bool              needed[TNI_SCORE_OPS] = { false };
    mark_needed(t->score, result, needed);
    tni_out_print(s->out,
                  "M_FN float %s(float x, const flash &o, const place &p, int i, int j) {\n"
                  "    if (i >= o.T || j >= o.S) return x;\n",
                  name);
    for (int k = 0; k <= result; k++)
        if (needed[k]) put_instruction(s, k);
    tni_out_print(s->out, "    return (float)v%d;\n}\n", result);
}

bool tni_flash_adds_source(const tni_score *s, int source)
{
    bool needed[TNI_SCORE_OPS] = { false };
    int  slope                 = s->source_slope[source];
    if (slope < 0) return false;
    mark_needed(s, slope, needed);
    for (int k = 0; k <= slope; k++)
        if (needed[k] && s->op[k].op == TNI_matmul) return false;
    return true;
}

// The slope by a source as a function of the place alone.
static void put_source_slopes(tni_emitter *s)
{
    const score_text *t = s->user;
    tni_out_print(s->out, "template <int N> M_FN float extra_slope(const flash &o, const place &p, "
                          "int i, int j) {\n");
    for (int n = 0; n < t->score->sources; n++) {
        bool needed[TNI_SCORE_OPS] = { false };
        int  slope                 = t->score->source_slope[n];
        if (!tni_flash_adds_source(t->score, n)) continue;
        mark_needed(t->score, slope, needed);
        tni_out_print(s->out, "if constexpr (N == %d) {\n", n);
        for (int k = 0; k <= slope; k++)
            if (needed[k]) put_instruction(s, k);
        tni_out_print(s->out, "    return (float)v%d;\n}\n", slope);
    }
    tni_out_print(s->out, "    return 0;\n}\n");
}

// The program is printed by way of a kernel of its maps. One without a slope, whose gradient is not
// taken, still has the function, since the text calls it.
char *tni_flash_program(tni_heap *h, const tni_score *score, const tn_dtype *source,
                        const int64_t size[4])
{
    bool        narrow = are_narrow(score, size);
    score_text  t      = { score, source, calloc(1, sizeof *t.kernel) };
    tni_out     o;
    tni_emitter s = { .out     = &o,
                      .dialect = &tni_dialect_cuda,
                      .kernel  = t.kernel,
                      .user    = &t,
                      .value   = put_value,
                      .number  = put_number };
    if (!t.kernel) return NULL;
    for (int k = 0; k < score->all; k++)
        t.kernel->ins[k] = instruction_of(&score->op[k], k, narrow);
    t.kernel->nins = score->all;
    tni_out_open(&o, h);
    put_function(&s, "score_change", score->count - 1);
    if (score->slope >= 0) put_function(&s, "score_slope", score->slope);
    else
        tni_out_print(&o, "M_FN float score_slope(float, const flash &, const place &, int, int) "
                          "{ return 0; }\n");
    put_source_slopes(&s);
    free(t.kernel);
    char *text = tni_out_take(&o);
    tni_out_close(&o);
    return text;
}
