// Prints rows of the op table as C functions. The row OP( add, BINARY, ..., a + b, ...) becomes
//
//     float o_add_f(float a, float b) { return a + b; }
//
// and exp, whose expression is m_exp(a):
//
//     float o_exp_f(float a) { return m_exp_f(a); }
#include "kernel/op_text.h"

#include "kernel/dialect.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { EXPR = 200 };  // characters of an expression, suffixes and all

// The number of operands that the expression names: a, b, c. 0: the row is no map.
static int expression_arity(const tni_op_facts *f)
{
    switch (f->class) {
    case TNI_UNARY:
    case TNI_CAST: return 1;
    case TNI_BINARY: return 2;
    case TNI_TERNARY: return 3;
    default: return 0;
    }
}

// Copies an expression, with the suffix of the type added to each function of the prelude: m_exp(a)
// becomes m_exp_f(a).
static void put_typed_expression(char dst[EXPR], const char *expr, tn_dtype dt)
{
    size_t      n    = 0;
    const char *name = NULL;  // of a function, while in it
    for (const char *p = expr; *p && n + 3 < EXPR; p++) {
        if (!name && p[0] == 'm' && p[1] == '_') name = p;
        if (name && *p == '(') {
            dst[n++] = '_';
            dst[n++] = tni_compute_suffix(dt);
        }
        if (!isalnum((unsigned char)*p) && *p != '_') name = NULL;
        dst[n++] = *p;
    }
    dst[n] = 0;
}

// The rule of the row decides: an op that does not compute in dt has no function of it, a
// comparison returns an int, and the first operand of `where` is one.
int tni_op_text(char *dst, size_t size, const char *name, int op, tn_dtype dt)
{
    const tni_op_facts *f = &tni_op_table[op];
    tn_dtype            in, out;
    int                 n = expression_arity(f);
    char                expr[EXPR];
    if (!n || !tni_dtype_rule_apply(f->rule, dt, &in, &out) || in != dt) return 0;
    if (f->rule == TNI_REAL && !tni_is_float(dt)) return 0;  // integers are given back as they are
    const char *type = tni_compute_type(dt), *first = f->rule == TNI_SELECT ? "m_int" : type;
    const char *result = f->rule == TNI_TO_BOOL ? "m_int" : type;
    put_typed_expression(expr, f->expr, dt);
    if (n == 1)
        return snprintf(dst, size, "%s %s(%s a) { return %s; }\n", result, name, type, expr);
    if (n == 2)
        return snprintf(dst, size, "%s %s(%s a, %s b) { return %s; }\n", result, name, type, type,
                        expr);
    return snprintf(dst, size, "%s %s(%s a, %s b, %s c) { return %s; }\n", result, name, first,
                    type, type, expr);
}

int tni_fold_text(char *dst, size_t size, const char *name, int op, tn_dtype dt)
{
    const tni_op_facts *f    = &tni_op_table[op];
    const char         *type = tni_compute_type(dt);
    char                expr[EXPR];
    if (f->class != TNI_REDUCE || !strcmp(f->expr, "0")) return 0;
    put_typed_expression(expr, f->expr, dt);
    return snprintf(dst, size, "%s %s(%s acc, %s a) { return %s; }\n", type, name, type, type,
                    expr);
}
