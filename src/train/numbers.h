// The numbers of an optimizer as a checkpoint keeps them.
#ifndef TNI_TRAIN_NUMBERS_H
#define TNI_TRAIN_NUMBERS_H

#include "optim/optim.h"

enum {
    TNI_SETTINGS       = 16,
    TNI_FIRST_SETTINGS = 12,
    TNI_COUNTS         = 10
};  // the least that a file has of settings

// A copy of an optimizer's numbers, in the order of the file. group and updates belong to the
// struct's owner and are as long as the optimizer's list of parameters.
typedef struct {
    double   setting[TNI_SETTINGS];
    int64_t  count[TNI_COUNTS];  // the last is a fingerprint of the parameters
    double  *group;              // of each parameter: learning-rate scale, weight decay
    int64_t *updates;            // of each parameter
} tni_optim_numbers;

void tni_numbers_take(const tn_optim *o, tni_optim_numbers *n);
// Returns whether they belong to an optimizer with o's parameters.
bool tni_numbers_same(const tn_optim *o, const tni_optim_numbers *n);
// Returns why they cannot become o's, as a phrase; empty if they can.
tni_text tni_numbers_wrong(const tn_optim *o, const tni_optim_numbers *n);
void     tni_numbers_put(tn_optim *o, const tni_optim_numbers *n);

#endif
