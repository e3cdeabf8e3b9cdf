// Simplification: replaces an instruction by a cheaper one with the same bits, by the rules of
// simplify.def.
//
// Inside plan/ only. Lowering simplifies before it looks for an equal instruction in the unit, so
// rules that only order operands also help to find equal ones. Values that a rule leaves without
// readers are removed afterwards (dead_code.c).
#ifndef TNI_PLAN_SIMPLIFY_H
#define TNI_PLAN_SIMPLIFY_H

#include "plan/fuse.h"

// Simplifies a MAP or CAST. Returns a value of the unit that it is equal to; or TNI_NO_VALUE: add
// *x, which a rule may have rewritten; or TNI_IS_NO, TNI_IS_YES: it is a known bool. *drops_reads
// is set if a rule made it read less, so that some value may have lost its last reader.
enum { TNI_IS_NO = -4, TNI_IS_YES = -3 };
int tni_simplify(const tni_unit *u, tni_ins *x, bool *drops_reads);

// Returns a rule as text, "pattern -> result, when", for tests that go through all of them; NULL
// after the last.
const char *tni_simplify_text(int rule);

// Removes unread values of a unit from number `values` on, with accesses from `sources` and numbers
// from `numbers` on. Value `root` counts as read, and so do checks of indices. Returns the new
// number of `root`.
int tni_drop_dead_values(tni_unit *u, size_t values, size_t sources, size_t numbers, int root);
// Removes the seeds of a unit that are not in memory and that no value of the unit reads, once it
// is known which seeds are in memory.
void tni_drop_unstored_seeds(const tni_fusion *f, tni_unit *u);

#endif
