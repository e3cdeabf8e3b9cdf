// Builds a program: registers and steps, and the values that stores and reductions ask for.
#ifndef TNI_DEVICE_CPU_INTERPRET_BUILD_H
#define TNI_DEVICE_CPU_INTERPRET_BUILD_H

#include "device/cpu/interpret_program.h"

// A program under construction. finish: whether the finish stage is being built; lane: the lane
// axis of the stage.
typedef struct {
    tni_program      *g;
    const tni_kernel *k;
    bool              finish;
    int               lane;
    int32_t widened[2];  // registers that hold accumulators converted to their total's dtype
} tni_builder;

// Returns the dtype in which a register holds values of a dtype.
static inline tn_dtype tni_rep_of(tn_dtype dt)
{
    return dt == TN_BOOL ? TN_BOOL : tni_compute_dtype(dt);
}

// Returns a new register of a section. tile: it has an element for each lane, else one for all
// lanes.
int tni_new_reg(tni_builder *b, int section, tn_dtype rep, bool tile);
// Returns a step that has only its kind and result set; adds a step to the end of a section, and
// notes which registers it reads.
tni_tile_step  tni_plain_step(int kind, int dst, bool tile);
tni_tile_step *tni_new_step(tni_builder *b, int section, tni_tile_step x);
// Returns a new register of a section that holds a register converted to another dtype.
int tni_convert_reg(tni_builder *b, int section, int reg, tn_dtype to);
// Returns a register converted to dtype rep, and broadcast to all lanes if `tile`. Both conversions
// are cached on the register and made in its own section.
int tni_reg_as(tni_builder *b, int reg, tn_dtype rep, bool tile);
// Returns the register of a value for readers in a loop over R, or, for loop -1, outside of the
// loops. Makes it first if need be.
int tni_value_reg(tni_builder *b, int loop, int v);

// Whether a register has an element for each lane; whether, and by which stride, an access varies
// over the lane axis.
bool    tni_reg_is_tile(const tni_builder *b, int reg);
bool    tni_varies_over_lane(const tni_builder *b, int access);
int64_t tni_lane_stride(const tni_builder *b, int access);

// Makes the steps of a reduction over R, or of a tail in the finish stage, and returns the register
// of the result in a section.
int tni_make_reduction(tni_builder *b, int section, const tni_ins *x);
int tni_make_tail_total(tni_builder *b, int section, int v);
// Stores lanes that are contiguous in memory, or the one element of a register.
void tni_make_dense_store(tni_builder *b, int section, int reg, int access, bool tile);

#endif
