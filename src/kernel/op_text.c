// Rows of the op table written as C functions.
#include "kernel/op_text.h"

#include <stdio.h>

static const char *compute_type(tn_dtype dt)
{
    if (dt == TN_F64) return "double";
    if (tni_is_float(dt)) return "float";
    return dt == TN_I64 ? "m_long" : "m_int";
}

// The number of inputs the expression speaks of: a, b, c.
static int arity(const tni_op_facts *f)
{
    switch (f->class) {
    case TNI_UNARY:
    case TNI_CAST: return 1;
    case TNI_BINARY: return 2;
    case TNI_TERNARY: return 3;
    default: return 0;
    }
}

int tni_op_text(char *dst, size_t room, const char *name, int op, tn_dtype dt)
{
    const tni_op_facts *f = &tni_op_table[op];
    tn_dtype            in, out;
    int                 n = arity(f);
    if (!n || !tni_rule_apply(f->rule, dt, &in, &out) || in != dt) return 0;
    if (f->rule == TNI_REAL && !tni_is_float(dt)) return 0;  // integers are given back as they are
    const char *type = compute_type(dt), *first = f->rule == TNI_SELECT ? "m_int" : type;
    const char *result = f->rule == TNI_TO_BOOL ? "m_int" : type;
    if (n == 1)
        return snprintf(dst, room, "%s %s(%s a) { return %s; }\n", result, name, type, f->expr);
    if (n == 2)
        return snprintf(dst, room, "%s %s(%s a, %s b) { return %s; }\n", result, name, type, type,
                        f->expr);
    return snprintf(dst, room, "%s %s(%s a, %s b, %s c) { return %s; }\n", result, name, first,
                    type, type, f->expr);
}
