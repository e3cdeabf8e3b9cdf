// kernel_kit_naive.c: a kernel computed row by row, instruction by instruction, element by element,
// with what is known of the error of every value; and the comparison with what a device made.
#include "kernel_kit.h"

#include "device/cpu/tiles.h"
#include "kernel/prelude.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A value as its compute type has it (a bool as an int32), and how far another order of sums may
// take it. Where the error is not finite the value is anybody's guess.
typedef struct {
    tni_word w;
    double   err;
} value;

// A sum, product, maximum or minimum on the way.
typedef struct {
    long double v, size, err;  // size: of the absolute values
    int64_t     k;
    bool        begun, doubt;
} fold;

// A run of the case. val[ins] holds the values of one row, cols of them where the instruction
// varies over R; tail[ins] the folds of tails. at: the coordinates of the element in hand.
typedef struct {
    kit_case *c;
    int64_t   cols;
    value    *val[TNI_MAX_INS];
    fold     *tail[TNI_MAX_INS];
    int64_t   at[TNI_AXES];
} run;

static tn_dtype compute_of(const tni_ins *x)
{
    return tni_compute_dtype((tn_dtype)x->dtype);
}

static double as_double(tn_dtype compute, tni_word w)
{
    if (compute == TN_F32) return w.f;
    if (compute == TN_F64) return w.d;
    return compute == TN_I64 ? (double)w.l : (double)w.i;
}

static value exact(tni_word w)
{
    return (value){ .w = w };
}

static value unknown(void)
{
    return (value){ .w = { .u = 0 }, .err = HUGE_VAL };
}

// The distance to the next number of a type, at x.
static double ulp(tn_dtype dt, double x)
{
    const tni_dtype_facts *f     = &tni_dtype_table[dt];
    int                    least = ilogb(f->low) + 1 - f->digits, e;
    if (!tni_is_float(dt) || !isfinite(x)) return 0;
    frexp(x, &e);
    e -= f->digits;
    return ldexp(1, x == 0 || e < least ? least : e);
}

// ---- memory ------------------------------------------------------------------------------------

static int64_t place_of(const run *r, int access)
{
    const tni_launch *l     = &r->c->l;
    int64_t           place = l->offset[access];
    for (int i = 0; i < r->c->k.np + r->c->k.nr; i++) place += r->at[i] * l->stride[access][i];
    return place;
}

static tni_word read_element(const char *mem, tn_dtype dt, int64_t i)
{
    tni_word w = { .u = 0 };
    mem += i * (int64_t)tni_dtype_size(dt);
    tni_converter(&tni_tiles_base, dt, tni_compute_dtype(dt))(&w, mem, 1);
    return w;
}

static value load(const run *r, const tni_ins *x, const value *index, const value *guard)
{
    const kit_case *c      = r->c;
    int             buffer = c->k.access[x->access].buffer;
    int64_t         place  = place_of(r, x->access);
    if ((guard && guard->err != 0) || (index && index->err != 0)) return unknown();
    if (guard && !guard->w.i) return exact((tni_word){ .u = 0 });
    if (index) place += index->w.l * c->l.stride[x->access][TNI_AXES];
    if (place < 0 || place >= c->count[buffer]) return unknown();  // a case made wrong
    return exact(read_element(c->before[buffer], (tn_dtype)c->k.buffer[buffer].dtype, place));
}

// A value in another dtype; of u8 and the like as the compute type has it.
static tni_word converted(tn_dtype from, tni_word w, tn_dtype to)
{
    tni_word y = { .u = 0 }, z = { .u = 0 };
    tni_converter(&tni_tiles_base, from, to)(&y, &w, 1);
    tni_converter(&tni_tiles_base, to, tni_compute_dtype(to))(&z, &y, 1);
    return z;
}

static double distance(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b))) return 0;
    return isfinite(a) && isfinite(b) ? fabs(a - b) : HUGE_VAL;
}

static tni_word moved(tn_dtype compute, value x, int way)
{
    if (compute == TN_F32) x.w.f = (float)(x.w.f + way * x.err);
    else if (compute == TN_F64) x.w.d += way * x.err;
    return x.w;
}

static value cast(tn_dtype from, value x, tn_dtype to)
{
    value    y  = exact(converted(from, x.w, to));
    tn_dtype ct = tni_compute_dtype(to);
    if (x.err == 0) return y;
    if (!isfinite(x.err) || !tni_is_float(from)) return unknown();
    for (int way = -1; way <= 1; way += 2) {
        tni_word other = converted(from, moved(from, x, way), to);
        double   d     = distance(as_double(ct, other), as_double(ct, y.w));
        if (!(d <= y.err)) y.err = d;
    }
    y.err += ulp(to, as_double(ct, y.w));
    return y;
}

static void store(const run *r, const tni_ins *x, const tni_ins *from, value v)
{
    kit_case *c      = r->c;
    int       buffer = c->k.access[x->access].buffer;
    tn_dtype  dt     = (tn_dtype)c->k.buffer[buffer].dtype;
    int64_t   place  = place_of(r, x->access);
    if (place < 0 || place >= c->count[buffer]) return;
    value    y  = cast(compute_of(from), v, dt);
    tn_dtype ct = tni_compute_dtype(dt);

    c->want[buffer][place] = (kit_want){
        .v = as_double(ct, y.w), .err = y.err, .k = ct == TN_I64 ? y.w.l : y.w.i, .set = true
    };
}

// ---- maps --------------------------------------------------------------------------------------

// The op of three words of a compute type; narrow results wrap.
static tni_word apply(const tni_ins *x, tn_dtype ct, const tni_word *in)
{
    const tni_op_facts *f      = &tni_op_table[x->op];
    tni_word            y      = { .u = 0 };
    uint8_t             first  = (uint8_t)in[0].i;
    int                 op     = x->op;
    bool                select = f->class == TNI_TERNARY;
    if (op == TNI_bit_not && x->dtype == TN_BOOL) op = TNI_logical_not;
    tni_tile_map *map = tni_tiles_base.of[ct]->map[op];
    if (!map) return in[0];  // rounding of integers
    map(&y, select ? (const void *)&first : &in[0], &in[1], &in[2], 1);
    if (tni_op_table[op].rule == TNI_TO_BOOL) return (tni_word){ .i = (uint8_t)y.u };
    if (ct == TN_I32 && x->dtype != TN_I32) return converted(TN_I32, y, (tn_dtype)x->dtype);
    return y;
}

// Whether two numbers may be equal, given their errors; and are they known to be.
static bool may_meet(tn_dtype ct, const value *a, const value *b)
{
    return fabs(as_double(ct, a->w) - as_double(ct, b->w)) <= a->err + b->err;
}

static double result(const tni_ins *x, tni_word y)
{
    return as_double(compute_of(x), y);
}

// The farthest that the op goes when its operands do what their errors allow.
static double spread(const tni_ins *x, tn_dtype ct, int n, const value *in, tni_word y)
{
    double most = 0;
    for (int ways = 0; ways < 8; ways++) {
        tni_word w[3] = { { .u = 0 }, { .u = 0 }, { .u = 0 } };
        for (int i = 0; i < n; i++)
            w[i] = in[i].err != 0 ? moved(ct, in[i], ways >> i & 1 ? 1 : -1) : in[i].w;
        double d = distance(result(x, apply(x, ct, w)), result(x, y));
        if (!(d <= most)) most = d;
    }
    return most;
}

static bool is_library(const tni_ins *x, tn_dtype ct)
{
    return ct == TN_F64 && tni_op_table[x->op].cost >= 8;
}

static bool is_spelled(const tni_ins *x, tn_dtype ct)
{
    return ct == TN_F32 && (x->op == TNI_exp || x->op == TNI_tanh || x->op == TNI_erf);
}

static value map_of(const run *r, const tni_ins *x, const value *in, int n)
{
    const tni_ins *last = &r->c->k.ins[n == 3 ? x->c : n == 2 ? x->b : x->a];
    tn_dtype       ct   = compute_of(last);
    tni_word       w[3] = { in[0].w, n > 1 ? in[1].w : in[0].w, n > 2 ? in[2].w : in[0].w };
    value          y    = exact(apply(x, ct, w));
    double         err  = in[0].err + (n > 1 ? in[1].err : 0) + (n > 2 ? in[2].err : 0);
    bool           sure = err == 0;
    if (is_library(x, ct)) y.err = r->c->library_ulps * ulp(TN_F64, y.w.d);
    if (is_spelled(x, ct)) y.err = r->c->spelled_ulps * ulp(TN_F32, y.w.f);
    if (sure) return y;
    if (n == 3 && in[0].err != 0) {
        tni_word other[3] = { { .i = !w[0].i }, w[1], w[2] };
        double   d        = distance(result(x, apply(x, ct, other)), result(x, y.w));
        return (value){ .w = y.w, .err = d == 0 && isfinite(err) ? err : d + HUGE_VAL };
    }
    if (!isfinite(err) || !tni_is_float(ct)) return unknown();
    if ((x->op == TNI_eq || x->op == TNI_ne) && may_meet(ct, &in[0], &in[1])) return unknown();
    // Between the ends of what is allowed they may go anywhere.
    bool circular = x->op == TNI_sin || x->op == TNI_cos || x->op == TNI_tan;
    if (circular && err > 0.125) return unknown();
    y.err += spread(x, ct, n, in, y.w);
    if (tni_is_float(ct) && tni_op_table[x->op].rule != TNI_TO_BOOL)
        y.err += ulp(ct, result(x, y.w));
    else if (y.err != 0) y.err = HUGE_VAL;
    return y;
}

static value random_of(const run *r, const tni_ins *x, int64_t i)
{
    uint64_t key = r->c->l.number[x->number].u, counter = r->c->l.number[x->number + 1].u;
    uint64_t at = (uint64_t)i;
    tni_word w  = { .u = 0 };
    if (x->op == TNI_random_bits) w.l = m_rand_bits(key, counter, at);
    else if (x->op == TNI_normal && x->dtype == TN_F64) w.d = m_rand_normal_d(key, counter, at);
    else if (x->op == TNI_normal) w.f = m_rand_normal_f(key, counter, at);
    else if (x->dtype == TN_F64) w.d = m_rand_uniform_d(key, counter, at);
    else if (x->dtype == TN_F16) w.f = m_uniform_f16(m_rand_bits(key, counter, at));
    else if (x->dtype == TN_BF16) w.f = m_uniform_bf16(m_rand_bits(key, counter, at));
    else w.f = m_rand_uniform_f(key, counter, at);
    return exact(w);
}

static value check_of(run *r, int ins, int64_t index)
{
    int64_t size = r->c->l.number[r->c->k.ins[ins].number].l;
    int64_t i    = index < 0 ? index + size : index;
    if (i >= 0 && i < size) return exact((tni_word){ .l = i });
    if (!r->c->fail[0]) {
        r->c->fail[0] = 1 + ins;
        r->c->fail[1] = index;
    }
    return exact((tni_word){ .l = 0 });
}

// ---- folds -------------------------------------------------------------------------------------

static void take_float(fold *f, int op, tn_dtype ct, value x)
{
    long double v = as_double(ct, x.w);
    f->doubt |= !isfinite(x.err);
    if (op == TNI_sum) {
        f->v = f->begun ? f->v + v : v;
        f->size += fabsl(v);
        f->err += x.err;
    } else if (op == TNI_prod) {
        f->v = f->begun ? f->v * v : v;
        f->size += v != 0 ? fabsl(logl(fabsl(v))) : 100;
        f->err += v != 0 ? x.err / fabsl(v) : x.err != 0 ? HUGE_VAL : 0;
        f->err += ct == TN_F32 ? FLT_EPSILON : DBL_EPSILON;
    } else {
        bool take = !f->begun || isnan(v) || (op == TNI_max ? v > f->v : v < f->v);
        if (take && !isnan(f->v)) f->v = v;
        if (x.err > f->err) f->err = x.err;
    }
}

static void take(fold *f, int op, tn_dtype ct, value x)
{
    int64_t k = ct == TN_I64 ? x.w.l : x.w.i;
    if (tni_is_float(ct)) {
        take_float(f, op, ct, x);
    } else {
        f->doubt |= x.err != 0;
        if (!f->begun) f->k = k;
        else if (op == TNI_sum) f->k += k;
        else if (op == TNI_prod) f->k *= k;
        else if (op == TNI_max ? k > f->k : k < f->k) f->k = k;
    }
    f->begun = true;
}

// Lanes and groups are summed in the type itself: at most some tens of roundings meet in one sum.
static value folded(const fold *f, const tni_ins *x)
{
    tn_dtype    ct   = compute_of(x);
    long double eps  = ct == TN_F32 ? FLT_EPSILON : DBL_EPSILON;
    long double most = ct == TN_F32 ? FLT_MAX / 4 : DBL_MAX / 4;
    value       y    = { .w = { .u = 0 } };
    if (f->doubt) return unknown();
    if (!tni_is_float(ct)) {
        if (ct == TN_I64) y.w.l = f->k;
        else y.w = converted(TN_I64, (tni_word){ .l = f->k }, (tn_dtype)x->dtype);
        return y;
    }
    if (ct == TN_F32) y.w.f = (float)f->v;
    else y.w.d = (double)f->v;
    y.err = (double)f->err;
    if (x->op == TNI_sum) y.err = (double)(f->err + 32 * eps * f->size);
    if (x->op == TNI_sum && f->size > most) return unknown();
    if (x->op == TNI_prod) y.err = (double)(2 * (f->err + eps) * fabsl(f->v));
    if (x->op == TNI_prod && f->size > 80) return unknown();
    if (y.err != 0) y.err += ulp(ct, as_double(ct, y.w));
    return y;
}

// ---- the walk ----------------------------------------------------------------------------------

static void set_at(run *r, int from, int to, int64_t i)
{
    for (int k = to - 1; k >= from; k--) {
        r->at[k] = i % r->c->l.size[k];
        i /= r->c->l.size[k];
    }
}

static value *of(const run *r, int ins, int64_t col)
{
    return &r->val[ins][r->c->k.ins[ins].per & TNI_PER_COL ? col : 0];
}

// The value of an instruction that is no reduction, at the coordinates in hand.
static value evaluate(run *r, int ins, int64_t col)
{
    const tni_ins *x = &r->c->k.ins[ins];
    value          in[3];
    int            n = 0;
    if (x->code == TNI_I_LOAD)
        return load(r, x, x->a >= 0 ? of(r, x->a, col) : NULL, x->b >= 0 ? of(r, x->b, col) : NULL);
    for (int16_t a[3] = { x->a, x->b, x->c }; n < 3 && a[n] >= 0; n++) in[n] = *of(r, a[n], col);
    switch (x->code) {
    case TNI_I_NUMBER: return exact(r->c->l.number[x->number]);
    case TNI_I_PLACE: return exact((tni_word){ .l = place_of(r, x->access) });
    case TNI_I_RANDOM: return random_of(r, x, in[0].w.l);
    case TNI_I_MAP: return map_of(r, x, in, n);
    case TNI_I_CAST: return cast(compute_of(&r->c->k.ins[x->a]), in[0], (tn_dtype)x->dtype);
    default: return in[0].err != 0 ? unknown() : check_of(r, ins, in[0].w.l);
    }
}

// A reduction over R of the row in hand, or the row's share of a tail.
static void reduce(run *r, int ins)
{
    const tni_ins *x     = &r->c->k.ins[ins];
    tn_dtype       ct    = compute_of(x);
    bool           elems = r->c->k.ins[x->a].per & TNI_PER_COL;
    if (x->over_p) {
        for (int64_t i = 0; i < (elems ? r->cols : 1); i++)
            take(&r->tail[ins][i], x->op, ct, r->val[x->a][i]);
        return;
    }
    fold f = { .v = 0 };
    for (int64_t i = 0; i < r->cols; i++) take(&f, x->op, ct, r->val[x->a][i]);
    r->val[ins][0] = folded(&f, x);
}

static void run_one(run *r, int ins)
{
    const tni_kernel *k = &r->c->k;
    const tni_ins    *x = &k->ins[ins];
    if (x->code == TNI_I_REDUCE && !x->finish) {
        reduce(r, ins);
        return;
    }
    for (int64_t i = 0; i < (x->per & TNI_PER_COL ? r->cols : 1); i++) {
        set_at(r, k->np, k->np + k->nr, i);
        if (x->code == TNI_I_STORE) store(r, x, &k->ins[x->a], *of(r, x->a, i));
        else if (x->code == TNI_I_REDUCE) r->val[ins][i] = folded(&r->tail[ins][i], x);
        else r->val[ins][i] = evaluate(r, ins, i);
    }
}

// Main stage: everything but finish, tails included. Finish: what does not vary over P.
static void run_stage(run *r, bool finish)
{
    const tni_kernel *k = &r->c->k;
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (finish) {
            bool main_only = !x->finish && (x->code == TNI_I_STORE || x->code == TNI_I_REDUCE);
            if (!main_only && !(x->per & TNI_PER_ROW)) run_one(r, i);
        } else if (x->code == TNI_I_REDUCE && x->over_p) {
            reduce(r, i);
        } else if (!x->finish) {
            run_one(r, i);
        }
    }
}

static bool make_room(run *r)
{
    bool ok = true;
    for (int i = 0; i < r->c->k.nins; i++) {
        r->val[i] = calloc((size_t)r->cols, sizeof(value));
        ok &= r->val[i] != NULL;
        if (!(r->c->k.ins[i].code == TNI_I_REDUCE && r->c->k.ins[i].over_p)) continue;
        r->tail[i] = calloc((size_t)r->cols, sizeof(fold));
        ok &= r->tail[i] != NULL;
    }
    for (int i = 0; i < r->c->k.nbuffer; i++) {
        free(r->c->want[i]);
        r->c->want[i] = calloc((size_t)r->c->count[i] + 1, sizeof(kit_want));
        ok &= r->c->want[i] != NULL;
    }
    return ok;
}

bool kit_naive(kit_case *c)
{
    run     r    = { .c = c, .cols = 1 };
    int64_t rows = 1;
    for (int i = 0; i < c->k.np; i++) rows *= c->l.size[i];
    for (int i = 0; i < c->k.nr; i++) r.cols *= c->l.size[c->k.np + i];
    bool ok    = make_room(&r);
    c->fail[0] = c->fail[1] = 0;
    for (int64_t p = 0; ok && p < rows; p++) {
        set_at(&r, 0, c->k.np, p);
        run_stage(&r, false);
    }
    memset(r.at, 0, sizeof r.at);
    if (ok && c->k.tails) run_stage(&r, true);
    for (int i = 0; i < c->k.nins; i++) {
        free(r.val[i]);
        free(r.tail[i]);
    }
    return ok;
}

// ---- comparing ---------------------------------------------------------------------------------

static bool fits(kit_case *c, int buffer, int64_t i, double ulps)
{
    const kit_want *want = &c->want[buffer][i];
    tn_dtype        dt   = (tn_dtype)c->k.buffer[buffer].dtype;
    size_t          size = tni_dtype_size(dt);
    const char     *mem  = c->mem[buffer];
    if (!want->set)
        return memcmp(mem + (size_t)i * size, c->before[buffer] + (size_t)i * size, size) == 0;
    if (!isfinite(want->err)) {
        c->unknown++;
        return true;
    }
    c->checked++;
    tni_word got = read_element(mem, dt, i);
    if (!tni_is_float(dt) && want->err == 0) return (dt == TN_I64 ? got.l : got.i) == want->k;
    double v    = as_double(tni_compute_dtype(dt), got);
    double slip = 4 * want->err + ulps * ulp(dt, want->v);
    if (want->err != 0) slip += ulp(dt, want->v);
    if (isnan(want->v)) return isnan(v);
    return v == want->v || fabs(v - want->v) <= slip;
}

static bool guards_hold(const kit_case *c, int i)
{
    int64_t bytes = c->count[i] * (int64_t)tni_dtype_size((tn_dtype)c->k.buffer[i].dtype);
    for (int j = 0; j < KIT_GUARD; j++)
        if ((uint8_t)c->block[i][j] != 0xa5 || (uint8_t)c->mem[i][bytes + j] != 0xa5) return false;
    return true;
}

// A line about what is wrong, then the kernel.
static bool explain(const kit_case *c, int buffer, int64_t i, char why[KIT_WHY])
{
    tn_dtype dt   = (tn_dtype)c->k.buffer[buffer].dtype;
    tni_word got  = read_element(c->mem[buffer], dt, i);
    kit_want none = { .v = 0 }, *want = c->want[buffer] ? &c->want[buffer][i] : &none;
    int      n = snprintf(why, KIT_WHY,
                          "buffer %d, element %lld: %.17g instead of %.17g within %.3g%s\n", buffer,
                          (long long)i, as_double(tni_compute_dtype(dt), got), want->v, want->err,
                     want->set ? "" : " (not to be written)");
    kit_print(c, why + n, (size_t)(KIT_WHY - n));
    return false;
}

bool kit_compare(kit_case *c, double ulps, char why[KIT_WHY])
{
    *why       = 0;
    c->checked = c->unknown = 0;
    for (int b = 0; b < c->k.nbuffer; b++) {
        for (int64_t i = 0; i < c->count[b]; i++)
            if (!fits(c, b, i, ulps)) return explain(c, b, i, why);
        if (guards_hold(c, b)) continue;
        int n = snprintf(why, KIT_WHY, "buffer %d: written past its end\n", b);
        kit_print(c, why + n, (size_t)(KIT_WHY - n));
        return false;
    }
    return true;
}

bool kit_same(const kit_case *a, const kit_case *b, char why[KIT_WHY])
{
    *why = 0;
    for (int k = 0; k < a->k.nbuffer; k++) {
        tn_dtype dt   = (tn_dtype)a->k.buffer[k].dtype;
        size_t   size = tni_dtype_size(dt);
        if (!memcmp(a->mem[k], b->mem[k], (size_t)a->count[k] * size)) continue;
        for (int64_t i = 0; i < a->count[k]; i++) {
            const char *p = a->mem[k] + (size_t)i * size, *q = b->mem[k] + (size_t)i * size;
            double      x = as_double(tni_compute_dtype(dt), read_element(a->mem[k], dt, i));
            double      y = as_double(tni_compute_dtype(dt), read_element(b->mem[k], dt, i));
            if (!memcmp(p, q, size) || (isnan(x) && isnan(y))) continue;
            int n = snprintf(why, KIT_WHY, "buffer %d, element %lld: %.17g and %.17g\n", k,
                             (long long)i, x, y);
            kit_print(a, why + n, (size_t)(KIT_WHY - n));
            return false;
        }
    }
    return true;
}
