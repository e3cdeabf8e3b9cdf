// How a program is built: registers and steps, and the values that are asked for.
#ifndef TNI_DEVICE_CPU_INTERPRET_BUILD_H
#define TNI_DEVICE_CPU_INTERPRET_BUILD_H

#include "device/cpu/interpret_program.h"

// A program on the way. finish: the stage being built; lane: its lane axis.
typedef struct {
    tni_program      *g;
    const tni_kernel *k;
    bool              finish;
    int               lane;
    int32_t           widened[2];  // registers that accumulators are widened in: integers, floats
} tni_builder;

// The dtype of a register's elements.
static inline tn_dtype tni_rep_of(tn_dtype dt)
{
    return dt == TN_BOOL ? TN_BOOL : tni_compute_dtype(dt);
}

int tni_new_reg(tni_builder *b, int section, tn_dtype rep, bool tile);
// A step that has nothing yet but its kind and result. Adding it to a section notes what it reads.
tni_tile_step  tni_plain_step(int kind, int dst, bool tile);
tni_tile_step *tni_new_step(tni_builder *b, int section, tni_tile_step x);
// A register in another dtype, in a new register of a section.
int tni_converted(tni_builder *b, int section, int reg, tn_dtype to);
// A register as elements of rep, in all lanes if asked for. Both are made once, beside it.
int tni_as(tni_builder *b, int reg, tn_dtype rep, bool tile);
// The register of a value for readers in a loop over R, or (-1) outside.
int tni_value_reg(tni_builder *b, int loop, int v);

bool    tni_is_tile(const tni_builder *b, int reg);
bool    tni_lane_varies(const tni_builder *b, int access);
int64_t tni_lane_stride(const tni_builder *b, int access);

// What reductions and tails are made of, once their value is asked for.
int tni_make_main(tni_builder *b, int section, const tni_ins *x);
int tni_make_join(tni_builder *b, int section, int v);
// Stores lanes that lie side by side, or the one element.
void tni_store_beside(tni_builder *b, int section, int reg, int access, bool tile);

#endif
