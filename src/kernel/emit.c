// The common part of the emitters: a text that grows, conversions between storage and compute
// types, and the text of one instruction, in any dialect. What tni_emit_value prints, of the golden
// texts:
//
//     m_float_bits((m_uint)(m_ulong)a.w[13])                         number
//     m_bf16_to_float((m_ushort)(x0[q * 4 + j / 2] >> j % 2 * 16))   load of a bf16
//     o_add_f(v3, v4)                                                map
//     m_bf16_to_float(m_float_to_bf16(v28))                          cast of a float to bf16
//     (m_long)m_i64_f(v0)                                            cast of a float to i64
//     m_check(v1, ((m_long)number[0]), 2, fail)                      check
//     m_rand_uniform_f((m_ulong)w10, (m_ulong)w11, (m_ulong)v1)      random
//
// The functions are rows of the op table (o_) and of math.def and casts.def (m_); emit_program.c
// adds them.
#include "kernel/emit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// ---- text that grows ---------------------------------------------------------------------------

void tni_out_open(tni_out *o, tni_heap *h)
{
    *o = (tni_out){ .heap = h };
}

void tni_out_close(tni_out *o)
{
    tni_free(o->heap, o->s);
    *o = (tni_out){ .heap = o->heap };
}

char *tni_out_take(tni_out *o)
{
    char *s = o->failed ? NULL : o->s;
    if (s) o->s = NULL;
    tni_out_close(o);
    return s;
}

// Grows the text by n characters and the final 0. After a failure it does nothing more, so that
// writers need not check: tni_out_take reports it once.
static bool reserve_text(tni_out *o, size_t n)
{
    void *s = o->s;
    if (!o->failed && !tni_grow(o->heap, &s, &o->cap, o->len + n + 1, 1)) o->failed = true;
    o->s = s;
    return !o->failed;
}

// Measures first, then prints in place: lines have any length.
static void print_args(tni_out *o, const char *format, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (n < 0 || !reserve_text(o, (size_t)n)) return;
    vsnprintf(o->s + o->len, (size_t)n + 1, format, ap);
    o->len += (size_t)n;
}

void tni_out_print(tni_out *o, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    print_args(o, format, ap);
    va_end(ap);
}

void tni_out_line(tni_out *o, const char *format, ...)
{
    va_list ap;
    if (*format == '}' && o->depth > 0) o->depth--;
    tni_out_print(o, "%*s", 4 * o->depth, "");
    va_start(ap, format);
    print_args(o, format, ap);
    va_end(ap);
    if (!o->failed && o->len && o->s[o->len - 1] == '{') o->depth++;
    tni_out_print(o, "\n");
}

void tni_out_remove(tni_out *o, size_t from, size_t to)
{
    if (o->failed || from >= to) return;
    memmove(o->s + from, o->s + to, o->len + 1 - to);
    o->len -= to - from;
}

// ---- conversions -------------------------------------------------------------------------------

// What goes before and after an expression.
static tni_cast_text cast_around(const char *before, const char *after)
{
    tni_cast_text t;
    snprintf(t.before, sizeof t.before, "%s", before);
    snprintf(t.after, sizeof t.after, "%s", after);
    return t;
}

// To f16, bf16 or another rounded float. From floats by one conversion. From integers by way of
// f32: exact if the integer has at most 24 bits, or if what f32 cannot hold exactly is past the
// dtype's largest; other integers are first rounded to odd (m_odd_), so that only the last step
// rounds.
static tni_cast_text to_rounded(tn_dtype from, tn_dtype to)
{
    const tni_dtype_facts *f = &tni_dtype_table[to], *x = &tni_dtype_table[from];
    char                   s = tni_compute_suffix(from), text[40];
    if (s == 'f' || s == 'd') {
        snprintf(text, sizeof text, "m_%s_to_%s(", tni_compute_type(from), f->stem);
        return cast_around(text, ")");
    }
    bool exact = f->high < 0x1p24 || x->digits <= 24;
    snprintf(text, sizeof text, "m_float_to_%s(%s(", f->stem,
             exact      ? "(float)"
             : s == 'u' ? "m_odd_u"
                        : "m_odd_l");
    return cast_around(text, "))");
}

// Floats become integers by functions that clip (m_u8_f), since C leaves conversions out of range
// undefined.
tni_cast_text tni_text_to_storage(tn_dtype from, tn_dtype to)
{
    char s    = tni_compute_suffix(from);
    bool real = s == 'f' || s == 'd';
    char name[40];
    if (to == TN_BOOL) return cast_around("(unsigned char)((", ") != 0)");
    if (tni_is_rounded(to)) return to_rounded(from, to);
    if (real && !tni_is_float(to)) {
        snprintf(name, sizeof name, "(%s)m_%s_%c(", tni_storage_type(to), tn_dtype_name(to), s);
        return cast_around(name, ")");
    }
    if (s == tni_compute_suffix(to) && tni_is_held_as_is(to)) return cast_around("", "");
    snprintf(name, sizeof name, "(%s)(", tni_storage_type(to));
    return cast_around(name, ")");
}

tni_cast_text tni_text_from_storage(tn_dtype dt)
{
    char name[40];
    switch ((tni_held)tni_dtype_table[dt].held) {
    case TNI_HELD_SELF: break;
    case TNI_HELD_TRUTH: return cast_around("(m_int)((", ") != 0)");
    case TNI_HELD_WRAP:
        snprintf(name, sizeof name, "(%s)(", tni_compute_type(dt));
        return cast_around(name, ")");
    case TNI_HELD_ROUND:
        snprintf(name, sizeof name, "m_%s_to_float(", tni_dtype_table[dt].stem);
        return cast_around(name, ")");
    }
    return cast_around("", "");
}

// A cast to a dtype that is stored narrower than it is computed goes to storage and back: that is
// its rounding, or its wrap-around. f16 to f16 rounds as well, since the value in f32 may have more
// digits. A float that becomes an integer is within its range already, as m_i8_f has it.
tni_cast_text tni_text_cast(tn_dtype from, tn_dtype to)
{
    char s = tni_compute_suffix(from), name[40];
    if (from == to && !tni_is_rounded(from)) return cast_around("", "");
    if ((s == 'f' || s == 'd') && to != TN_BOOL && !tni_is_float(to)) {
        snprintf(name, sizeof name, "m_%s_%c(", tn_dtype_name(to), s);
        return cast_around(name, ")");
    }
    tni_cast_text kept = tni_text_to_storage(from, to);
    if (to == TN_BOOL) return cast_around("(m_int)((", ") != 0)");
    if (tni_is_held_as_is(to)) return kept;
    tni_cast_text back = tni_text_from_storage(to), t;
    snprintf(t.before, sizeof t.before, "%.38s%.38s", back.before, kept.before);
    snprintf(t.after, sizeof t.after, "%.3s%.3s", kept.after, back.after);
    return t;
}

// ---- values ------------------------------------------------------------------------------------

// Prints an inner expression between the two halves of a conversion.
static void put_around(tni_emitter *s, tni_cast_text t, void (*inner)(tni_emitter *s, int i), int i)
{
    tni_out_print(s->out, "%s", t.before);
    inner(s, i);
    tni_out_print(s->out, "%s", t.after);
}

static tn_dtype value_dtype(const tni_kernel *k, int i)
{
    return (tn_dtype)k->ins[i].dtype;
}

static tn_dtype stored_dtype(const tni_kernel *k, const tni_ins *x)
{
    return (tn_dtype)k->buffer[k->access[x->access].buffer].dtype;
}

// A guarded load is a conditional expression: memory is not touched where the guard is false.
static void emit_load(tni_emitter *s, int i)
{
    const tni_ins *x  = &s->kernel->ins[i];
    tn_dtype       dt = stored_dtype(s->kernel, x);
    if (x->b >= 0) {
        tni_out_print(s->out, "(");
        s->value(s, x->b);
        tni_out_print(s->out, " ? ");
    }
    put_around(s, tni_text_from_storage(dt), s->element, i);
    if (x->b >= 0) tni_out_print(s->out, " : 0)");
}

// A number of the launch is 64 bits: its low ones hold an f32 or an int32.
static void emit_number(tni_emitter *s, int n, tn_dtype dt)
{
    static const char *const before[] = { ['f'] = "m_float_bits((m_uint)",
                                          ['d'] = "m_double_bits(",
                                          ['i'] = "((m_int)(m_uint)",
                                          ['l'] = "((m_long)",
                                          ['u'] = "((m_ulong)" };
    tni_out_print(s->out, "%s", before[(int)tni_compute_suffix(dt)]);
    s->number(s, n);
    tni_out_print(s->out, ")");
}

// Uniform f16 and bf16 are made from the bits directly: rounding an f32 could give 1, which is not
// below 1.
static void emit_random(tni_emitter *s, const tni_ins *x)
{
    const char *before = "m_rand_normal_f(", *after = ")";
    char        rounded[40];
    if (x->op == TNI_random_bits) before = "((m_long)m_rand_bits(", after = "))";
    else if (x->dtype == TN_F64)
        before = x->op == TNI_uniform ? "m_rand_uniform_d(" : "m_rand_normal_d(";
    else if (x->op == TNI_uniform && x->dtype == TN_F32) before = "m_rand_uniform_f(";
    else if (x->op == TNI_uniform) {
        snprintf(rounded, sizeof rounded, "m_uniform_%s(m_rand_bits(",
                 tn_dtype_name((tn_dtype)x->dtype));
        before = rounded, after = "))";
    }
    tni_out_print(s->out, "%s", before);
    s->number(s, x->number);
    tni_out_print(s->out, ", ");
    s->number(s, x->number + 1);
    tni_out_print(s->out, ", (m_ulong)");
    s->value(s, x->a);
    tni_out_print(s->out, "%s", after);
}

// Small integers wrap and bools are 0 or 1 after every map, unless the op itself gives a bool.
static tni_cast_text wrap_of(const tni_ins *x)
{
    tn_dtype dt = (tn_dtype)x->dtype;
    char     name[40];
    if (tni_op_table[x->op].rule == TNI_TO_BOOL) return cast_around("", "");
    if (dt == TN_BOOL) return cast_around("(m_int)(", " != 0)");
    if (tni_dtype_table[dt].held != TNI_HELD_WRAP) return cast_around("", "");
    snprintf(name, sizeof name, "(%s)(%s)", tni_compute_type(dt), tni_storage_type(dt));
    return cast_around(name, "");
}

// A bitwise not of a bool would be -1 or -2, so it is printed as the logical one.
static void emit_map(tni_emitter *s, const tni_ins *x)
{
    tni_cast_text t  = wrap_of(x);
    int           op = x->op == TNI_bit_not && x->dtype == TN_BOOL ? TNI_logical_not : x->op;
    // The type computed in is that of the last operand: the first of `where` is a bool, and what a
    // comparison gives is.
    int last = x->c >= 0 ? x->c : x->b >= 0 ? x->b : x->a;
    tni_out_print(s->out, "%so_%s_%c(", t.before, tni_op_table[op].name,
                  tni_compute_suffix(value_dtype(s->kernel, last)));
    s->value(s, x->a);
    if (x->b >= 0) tni_out_print(s->out, ", ");
    if (x->b >= 0) s->value(s, x->b);
    if (x->c >= 0) tni_out_print(s->out, ", ");
    if (x->c >= 0) s->value(s, x->c);
    tni_out_print(s->out, ")%s", t.after);
}

// m_check returns the index counted from the start, or 0 after it has noted the failure of
// instruction i.
static void emit_check(tni_emitter *s, int i)
{
    const tni_ins *x = &s->kernel->ins[i];
    tni_out_print(s->out, "m_check(");
    s->value(s, x->a);
    tni_out_print(s->out, ", ");
    emit_number(s, x->number, (tn_dtype)s->kernel->number[x->number]);
    tni_out_print(s->out, ", %d, fail)", i);
}

// REDUCE and STORE are the skeleton's: the default case is a CAST.
void tni_emit_value(tni_emitter *s, int i)
{
    const tni_ins *x = &s->kernel->ins[i];
    switch (x->code) {
    case TNI_I_LOAD: emit_load(s, i); break;
    case TNI_I_NUMBER: emit_number(s, x->number, (tn_dtype)x->dtype); break;
    case TNI_I_PLACE: s->place(s, i); break;
    case TNI_I_RANDOM: emit_random(s, x); break;
    case TNI_I_MAP: emit_map(s, x); break;
    case TNI_I_CHECK: emit_check(s, i); break;
    default:
        put_around(s, tni_text_cast(value_dtype(s->kernel, x->a), (tn_dtype)x->dtype), s->value,
                   x->a);
    }
}

void tni_emit_store(tni_emitter *s, int i)
{
    const tni_ins *x    = &s->kernel->ins[i];
    tn_dtype       from = value_dtype(s->kernel, x->a), to = stored_dtype(s->kernel, x);
    s->element(s, i);
    tni_out_print(s->out, " = ");
    put_around(s, tni_text_to_storage(from, to), s->value, x->a);
}

// ---- folds -------------------------------------------------------------------------------------

// Folds are functions of the op table (o_sum_f), so that every path adds alike.
void tni_emit_fold(tni_out *o, int op, tn_dtype dt, const char *acc, const char *a)
{
    tni_out_print(o, "o_%s_%c(%s, %s)", tni_op_table[op].name, tni_compute_suffix(dt), acc, a);
}

// -0.0 for sums: -0.0 + x is x for every x, whereas 0.0 + -0.0 is 0.0. The bits of infinities are
// written out, since no header with INFINITY is included.
const char *tni_fold_start(int op, tn_dtype dt)
{
    static const char *const least[] = { ['f'] = "m_float_bits(0xff800000u)",
                                         ['d'] = "m_double_bits((m_ulong)0xfff0000000000000u)",
                                         ['i'] = "(-2147483647 - 1)",
                                         ['l'] = "(-(m_long)0x7fffffffffffffff - 1)",
                                         ['u'] = "(m_ulong)0" };
    static const char *const most[]  = { ['f'] = "m_float_bits(0x7f800000u)",
                                         ['d'] = "m_double_bits((m_ulong)0x7ff0000000000000u)",
                                         ['i'] = "2147483647",
                                         ['l'] = "(m_long)0x7fffffffffffffff",
                                         ['u'] = "(~(m_ulong)0)" };
    int                      s       = tni_compute_suffix(dt);
    if (op == TNI_max) return least[s];
    if (op == TNI_min) return most[s];
    if (op == TNI_prod) return s == 'f' ? "1.0f" : s == 'd' ? "1.0" : "1";
    return s == 'f' ? "-0.0f" : s == 'd' ? "-0.0" : "0";
}
