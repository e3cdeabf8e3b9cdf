// The shapes of the last few launches of a kernel: choosing one takes longer than finding it again.
#ifndef TNI_SIMT_KEPT_SHAPES_H
#define TNI_SIMT_KEPT_SHAPES_H

#include "kernel/simt.h"

// The shape of a launch, with the settings that it was chosen by. given: the launch brought them,
// so that they need not be those that won.
typedef struct {
    tni_simt   shape;
    tni_tuning settings;
    bool       given;
} tni_chosen_shape;

// How many are kept: a kernel of a training step is launched with one shape, or with a few if plans
// share it.
enum { TNI_KEPT_SHAPES = 4 };

// Those of one kernel, all zero at first. oldest: the next to be replaced.
typedef struct {
    struct tni_kept_shape *kept[TNI_KEPT_SHAPES];
    int                    oldest;
} tni_kept_shapes;

// Finds the shape of a launch like one that was kept: chosen by the settings that l brings or, if
// it brings none, by those that won. False if there is none.
bool tni_shapes_find(const tni_kept_shapes *s, const tni_launch *l, tni_chosen_shape *found);
// Keeps a shape in the place of the oldest; without memory it is chosen again the next time.
void tni_shapes_keep(tni_kept_shapes *s, const tni_launch *l, const tni_chosen_shape *now);
// Drops all of them; they are chosen again.
void tni_shapes_forget(tni_kept_shapes *s);

#endif
