// The numbers of an optimizer as a checkpoint keeps them.
#ifndef TNI_TRAIN_NUMBERS_H
#define TNI_TRAIN_NUMBERS_H

#include "optim/optim.h"

enum { TNI_SETTINGS = 12, TNI_COUNTS = 10 };

// A copy of them, in the order of the file. Whoever has it owns both arrays, which have room for the
// optimizer's parameters.
typedef struct {
    double   setting[TNI_SETTINGS];
    int64_t  count[TNI_COUNTS];  // the last tells which parameters the optimizer has
    double  *group;              // of each parameter: learning-rate scale, weight decay
    int64_t *updates;            // of each parameter
} tni_optim_numbers;

void tni_numbers_take(const tn_optim *o, tni_optim_numbers *n);
// Whether they are those of an optimizer with o's parameters.
bool tni_numbers_same(const tn_optim *o, const tni_optim_numbers *n);
// Why they cannot become o's, as a phrase; empty if they can.
tni_text tni_numbers_wrong(const tn_optim *o, const tni_optim_numbers *n);
void     tni_numbers_put(tn_optim *o, const tni_optim_numbers *n);

#endif
