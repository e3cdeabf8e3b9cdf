// device_table.h: rows of the op table on a device, against ref, many in one evaluation.
#ifndef TEST_DEVICE_TABLE_H
#define TEST_DEVICE_TABLE_H

#include "ops/ops.h"
#include "tenon.h"

// A context of a device that records its errors; op by op where eager is set. It is checked to be
// there.
tn_ctx *open_eager(const char *device, bool eager);

// SAMPLED: every class of dtypes, every class of layouts and every variant once, in turn. FEW:
// fewer still. COMPLETE: every dtype in every layout and variant.
typedef enum { SAMPLED, FEW, COMPLETE } how_much;

// Runs n ops, each case a case of the running test.
void device_table(const char *device, bool eager, how_much how, int n, const int *ops);

// The ops of a class that a device runs, as numbers; how many. ops has room for TNI_OPS.
int device_table_ops(tni_class class, int *ops);

#endif
