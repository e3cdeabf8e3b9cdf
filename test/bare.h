// bare.h: a device with maps, reductions, scans and movement, and without any LIBRARY op: what is missing
// is recorded as other ops. It is the cpu in all else.
#ifndef TEST_BARE_H
#define TEST_BARE_H

#include "tenon.h"

// A context of a device by its name, which may be "bare".
tn_ctx *bare_open(tn_open_opts o);

#endif
