// skeleton.h: the least that a device can be. It has memory, kernels and the few calls that no
// kernel is made of; every LIBRARY op (products, convolutions, attention, sorting) is recorded as
// other ops. Copy skeleton.c to begin a device; it trains what the others train, and the tests run
// it as "skeleton".
#ifndef TEST_SKELETON_H
#define TEST_SKELETON_H

#include "tenon.h"

// A context of a device by its name, which may be "skeleton".
tn_ctx *skeleton_open(tn_open_opts o);

#endif
