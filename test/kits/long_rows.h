// long_rows.h: kernels over long rows, of lengths around every border at which a device with work
// groups holds them otherwise: in a warp, a group, clusters of two, four and eight groups, not at
// all.
#ifndef TEST_LONG_ROWS_H
#define TEST_LONG_ROWS_H

#include "kernel_kit.h"

enum { LONG_ROWS_NAME = 64 };

int long_rows_count(void);
// Makes case i, unsealed, and says what it is called.
void long_rows_make(kit_case *c, int i, char name[LONG_ROWS_NAME]);
// Once its memory is filled: brings indices into range.
void long_rows_ready(kit_case *c);

#endif
