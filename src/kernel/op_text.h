// Rows of the op table as text: the functions o_NAME_TYPE of a generated kernel.
#ifndef TNI_KERNEL_OP_TEXT_H
#define TNI_KERNEL_OP_TEXT_H

#include "ops/op_table.h"

// Writes the C function `name` that applies a map op to one element, in the type that dtype dt is
// computed in: f16, bf16 and f32 in float, f64 in double, i64 in int64, the others in int32.
// Comparisons return an int; functions of the prelude are named by the type (m_exp_f). Returns the
// length it has or would have, as snprintf does; 0 if the row is no expression or does not take dt.
int tni_op_text(char *dst, size_t size, const char *name, int op, tn_dtype dt);
// The same of a reduction (sum, prod, max, min): the function of acc and a.
int tni_fold_text(char *dst, size_t size, const char *name, int op, tn_dtype dt);

#endif
