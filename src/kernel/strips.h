// Strip maps: maps that the prelude also has as functions of a strip (m_strip_sin_f of strips.def),
// since most strips need much less work than the worst element. The cpu device calls them,
// interpreted and compiled.
#ifndef TNI_KERNEL_STRIPS_H
#define TNI_KERNEL_STRIPS_H

#include "ops/op_table.h"

// X of each such op. All are of floats: what computes in f32.
#define TNI_STRIP_MAPS(X) X(sin) X(cos) X(tan)

static inline bool tni_is_strip_map(int op)
{
#define IS_OP(name) || op == TNI_##name
    return false TNI_STRIP_MAPS(IS_OP);
#undef IS_OP
}

#endif
