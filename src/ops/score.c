// Score programs: kept by their context, recorded as ops, and differentiated. The slopes are found
// by recording the program over small tensors and asking tn_grad: the recorded gradient, never
// computed, is read back as instructions. So every op with a gradient has a slope here too.
#include "ops/recognize.h"

#include <string.h>

// ---- as ops ------------------------------------------------------------------------------------

// An arange along one axis of (B, H, T, S).
static tn_tensor *count_axis(tn_ctx *cx, tn_dtype dt, int axis, int64_t n, int64_t step)
{
    int64_t    size[4] = { 1, 1, 1, 1 };
    tn_tensor *x       = tn_arange_i64(cx, TN_I64, 0, n * step, step);
    size[axis]         = n;
    return tn_reshape(tn_cast(x, dt), 4, size);
}

// f + df n, where n counts along the axes.
static tn_tensor *record_iota(tn_ctx *cx, const tni_score_op *x, const tn_tensor *raw)
{
    tn_dtype   dt   = (tn_dtype)x->dtype;
    bool       real = tni_is_float(dt);
    tn_tensor *y    = NULL;
    for (int a = 0; a < 4; a++) {
        if (!x->step[a]) continue;
        tn_tensor *one = count_axis(cx, dt, a, tn_size(raw, a), x->step[a]);
        y              = y ? tn_add(y, one) : one;
    }
    tni_num start = real ? tni_num_of(x->f) : tni_num_i64(x->i);
    if (!y) return tni_number(cx, dt, start);
    y = tni_binary_s(TNI_mul, "mul", y, real ? tni_num_of(x->df) : tni_num_i64(x->di), false);
    return y ? tni_binary_s(TNI_add, "add", y, start, false) : NULL;
}

static tn_tensor *record_instruction(tn_ctx *cx, const tni_score_op *x, tn_tensor *raw,
                                     tn_tensor *const *extra, tn_tensor *const *v)
{
    tn_dtype dt = (tn_dtype)x->dtype;
    switch (x->op) {
    case TNI_matmul: return raw;
    case TNI_leaf: return tn_cast(extra[x->source], dt);
    case TNI_scalar:  // with the dtype it was read with: beside a condition alone a plain number would count as an integer
        return tni_is_float(dt) ? tn_full(cx, dt, TN_0D, x->f) : tn_full_i64(cx, dt, TN_0D, x->i);
    case TNI_iota: return record_iota(cx, x, raw);
    case TNI_cast: return tn_cast(v[x->src[0]], dt);
    case TNI_where: return tn_where(v[x->src[0]], v[x->src[1]], v[x->src[2]]);
    default: break;
    }
    if (tni_score_operands(x->op) == 1) return tni_unary(x->op, v[x->src[0]]);
    return tni_binary(x->op, v[x->src[0]], v[x->src[1]]);
}

bool tni_score_record(tn_ctx *cx, const tni_score_op *op, int count, tn_tensor *raw,
                      tn_tensor *const *extra, tn_tensor **value)
{
    for (int i = 0; i < count; i++)
        if (!(value[i] = record_instruction(cx, &op[i], raw, extra, value))) return false;
    return true;
}

// ---- slopes ------------------------------------------------------------------------------------

// The sizes over which a program is recorded to be differentiated: all different, so that axes can
// be told apart.
static const int64_t small[4] = { 2, 3, 5, 7 };

// A tensor of the small shape for the score and for each source, and the gradient of the value by
// those that are of floats: grad[k] is the one by tensor of[k].
typedef struct {
    tn_tensor *x[1 + TNI_SCORE_SOURCES], *leaf[1 + TNI_SCORE_SOURCES], *grad[1 + TNI_SCORE_SOURCES];
    tn_tensor *value[TNI_SCORE_OPS];
    int        of[1 + TNI_SCORE_SOURCES], leaves;
} dummies;

// The dtype of the score (0) or of source number i - 1.
static tn_dtype input_dtype(const tni_score *s, int i)
{
    int k = 0;
    while (s->op[k].op != (i ? TNI_leaf : TNI_matmul) || (i && s->op[k].source != i - 1)) k++;
    return (tn_dtype)s->op[k].dtype;
}

static bool make_dummies(tn_ctx *cx, const tni_score *s, dummies *d)
{
    for (int i = 0; i <= s->sources; i++) {
        tn_dtype   dt = input_dtype(s, i);
        tn_tensor *x  = tni_record(cx, TNI_uniform, TN_F32, 4, small, 0, NULL, &(tni_attr){ 0 });
        if (!x || (dt != TN_F32 && !(x = tn_cast(x, dt)))) return false;
        d->x[i] = x;
        if (!tni_is_float(dt)) continue;
        if (!tn_requires_grad(x, true)) return false;
        d->of[d->leaves]     = i;
        d->leaf[d->leaves++] = x;
    }
    return true;
}

// Records the program over dummies and its gradient, and reads that back: instructions that are
// equal to earlier ones are these.
static bool find_slopes(tn_ctx *cx, tni_score *s)
{
    dummies d = { .leaves = 0 };
    if (!make_dummies(cx, s, &d)) return false;
    if (!tni_score_record(cx, s->op, s->count, d.x[0], d.x + 1, d.value)) return false;
    tn_tensor *y = d.value[s->count - 1], *g = tn_ones(cx, tn_dtype_of(y), 4, small);
    if (!g || tn_grad(1, &y, d.leaves, d.leaf, &g, d.grad) != TN_OK) return false;
    tni_score_reader r = tni_score_reader_of(small, s->op, s->count);
    for (int i = 0; i < s->count; i++) tni_score_reader_knows(&r, d.value[i], i);
    for (int i = 0; i < d.leaves; i++) {
        int at = tni_read_value(&r, d.grad[i]);
        if (at < 0) return false;
        if (d.of[i]) s->source_slope[d.of[i] - 1] = at;
        else s->slope = at;
    }
    s->all = r.count;
    memcpy(s->op, r.op, (size_t)r.count * sizeof *r.op);
    return true;
}

// Whether every op on the way from a score or source to the value has a gradient: asking for one
// that is not there would be an error.
static bool has_slopes(const tni_score *s)
{
    bool moves[TNI_SCORE_OPS];
    for (int i = 0; i < s->count; i++) {
        const tni_score_op *x = &s->op[i];
        moves[i]              = x->op == TNI_matmul || x->op == TNI_leaf;
        for (int k = 0; k < tni_score_operands(x->op); k++) moves[i] |= moves[x->src[k]];
        moves[i] &= tni_is_float((tn_dtype)x->dtype);
        if (moves[i] && tni_score_operands(x->op) && !tni_op_table[x->op].has_grad) return false;
    }
    return moves[s->count - 1];
}

// In a scope of its own, so that what is recorded dies. Nothing may be evaluated in between: the
// caller is looking at pending nodes.
static bool differentiate(tn_ctx *cx, tni_score *s)
{
    bool busy = cx->busy, ok;
    if (!has_slopes(s)) return true;
    tn_scope *scope = tn_begin(cx);
    if (!scope) return false;
    cx->busy      = true;
    cx->grad_mode = true;
    ok            = find_slopes(cx, s);
    cx->busy      = busy;
    tni_scope_close(scope);
    return ok;
}

// ---- slopes of slopes --------------------------------------------------------------------------

// The slope by the score (0) or by source number i - 1; -1: none.
static int slope_at(const tni_score *s, int i)
{
    return i ? s->source_slope[i - 1] : s->slope;
}

// Appends to the reader what the gradients of slopes, g[i] of slope i, make for the score and the
// sources: at[i] is the instruction, -1 for none. g[i] is read as source number s->sources + i.
static bool read_slope_grads(tn_ctx *cx, const tni_score *s, tni_score_reader *r, int *at)
{
    dummies    d = { .leaves = 0 };
    tn_tensor *y[1 + TNI_SCORE_SOURCES], *g[1 + TNI_SCORE_SOURCES];
    int        n = 0;
    if (!make_dummies(cx, s, &d)) return false;
    if (!tni_score_record(cx, s->op, s->all, d.x[0], d.x + 1, d.value)) return false;
    for (int i = 0; i < s->all; i++) tni_score_reader_knows(r, d.value[i], i);
    for (int i = 0; i <= s->sources; i++) {
        int slope = slope_at(s, i);
        at[i]     = -1;
        if (slope < 0 || tn_rank(d.value[slope]) != 4 || !tn_needs_grad(d.value[slope])) continue;
        y[n] = d.value[slope];
        g[n] = tni_record(cx, TNI_uniform, TN_F32, 4, small, 0, NULL, &(tni_attr){ 0 });
        if (!g[n] || !(g[n] = tn_cast(g[n], tn_dtype_of(y[n])))) return false;
        tni_score_reader_knows(r, g[n++], s->all + i);
    }
    if (n == 0) return true;
    if (tn_grad(n, y, d.leaves, d.leaf, g, d.grad) != TN_OK) return false;
    for (int i = 0; i < d.leaves; i++)
        if ((at[d.of[i]] = tni_read_value(r, d.grad[i])) < 0) return false;
    return true;
}

static bool too_long(tn_ctx *cx)
{
    return tni_refuse(cx, TN_EGRAD,
                      "attention: its score program is too long to be differentiated "
                      "twice: tn_clone of the weights keeps them as they are");
}

// In two parts: the gradients as instructions, found over dummies, and these over the tensors. A
// walk may be in progress: it does not meet the dummies.
bool tni_score_slope_grads(tn_ctx *cx, const tni_score *s, tn_tensor *raw, tn_tensor *const *extra,
                           tn_tensor *const *g, tn_tensor **gx)
{
    tni_score_reader r                              = tni_score_reader_of(small, s->op, s->all);
    tn_tensor       *all[1 + 2 * TNI_SCORE_SOURCES] = { NULL }, *value[TNI_SCORE_OPS];
    int              at[1 + TNI_SCORE_SOURCES];
    bool             busy = cx->busy;
    if (s->all + s->sources + 1 > TNI_SCORE_OPS) return too_long(cx);
    for (int i = 0; i <= s->sources; i++) {
        tni_score_op *x = &r.op[r.count++];
        x->op           = TNI_leaf;
        x->dtype        = s->op[s->count - 1].dtype;
        x->source       = (int16_t)(s->sources + i);
        if (i < s->sources) all[i] = extra[i];
        all[s->sources + i] = g[i];
    }
    uint64_t  failures = cx->failures;
    tn_scope *scope    = tn_begin(cx);
    if (!scope) return false;
    cx->busy      = true;
    cx->grad_mode = true;
    bool ok       = read_slope_grads(cx, s, &r, at);
    cx->busy      = busy;
    tni_scope_close(scope);
    if (!ok) return cx->failures == failures ? too_long(cx) : false;
    if (!tni_score_record(cx, r.op, r.count, raw, all, value)) return false;
    for (int i = 0; i <= s->sources; i++) gx[i] = at[i] < 0 ? NULL : value[at[i]];
    return true;
}

// ---- keeping -----------------------------------------------------------------------------------

// A program whose slopes cannot be read back, since it would have too many instructions, has none:
// it serves where no gradient is needed.
const tni_score *tni_score_keep(tn_ctx *cx, const tni_score_op *op, int count, int sources)
{
    int kept = 0;
    for (tni_score *s = cx->scores; s; s = s->next, kept++)
        if (s->count == count && s->sources == sources &&
            !memcmp(s->op, op, (size_t)count * sizeof *op))
            return s;
    if (kept >= TNI_SCORES) return NULL;
    tni_score *s = tni_zalloc(&cx->heap, sizeof *s);
    if (!s) return tni_fail_memory(cx, "matmul");
    s->count = s->all = count;
    s->sources        = sources;
    s->slope          = -1;
    for (int i = 0; i < TNI_SCORE_SOURCES; i++) s->source_slope[i] = -1;
    memcpy(s->op, op, (size_t)count * sizeof *op);
    uint64_t failures = cx->failures;
    if (!differentiate(cx, s)) {
        if (cx->failures != failures) {
            tni_free(&cx->heap, s);
            return NULL;
        }
        s->all   = count;
        s->slope = -1;
        for (int i = 0; i < TNI_SCORE_SOURCES; i++) s->source_slope[i] = -1;
    }
    s->next    = cx->scores;
    cx->scores = s;
    return s;
}

void tni_scores_close(tn_ctx *cx)
{
    while (cx->scores) {
        tni_score *s = cx->scores;
        cx->scores   = s->next;
        tni_free(&cx->heap, s);
    }
}
