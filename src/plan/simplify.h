// Simplification: an instruction as something cheaper that gives the same bits, by simplify.def.
//
// Inside plan/ only. Lowering asks before it looks for the same instruction in the unit, so rules
// also serve to find more that is the same. What a rule made useless is taken out afterwards.
#ifndef TNI_PLAN_SIMPLIFY_H
#define TNI_PLAN_SIMPLIFY_H

#include "plan/fuse.h"

// What became of a MAP or CAST: a value of the unit that it is equal to; TNI_NO_VALUE: *x, which is
// another instruction now if a rule said so; or a bool that is known. *less becomes true if it now
// reads less than it did.
enum { TNI_IS_NO = -4, TNI_IS_YES = -3 };
int tni_simplify(const tni_unit *u, tni_ins *x, bool *less);

// The rules as text, "pattern -> result when", for tests that want them all; NULL after the last.
const char *tni_simplify_text(int rule);

// Takes values that nobody reads out of a unit, from number `values` on, and with them accesses from
// `sources` and numbers from `numbers` on. Value `root` is read, and indices are checked in any case.
// The number that `root` has now.
int tni_drop_dead_values(tni_unit *u, size_t values, size_t sources, size_t numbers, int root);
// The same in a whole unit whose stored values are known: a seed that is not stored goes if nobody in
// the unit reads it.
void tni_drop_unstored_seeds(const tni_fusion *f, tni_unit *u);

#endif
