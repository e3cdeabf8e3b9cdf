// host.h: what several files of tests ask of the host's memory.
#ifndef TEST_HOST_H
#define TEST_HOST_H

#include "tenon.h"

// Writes element i of an array of dt: f where that is a float type, else k. Reads it.
void   host_put(tn_dtype dt, void *mem, int64_t i, double f, int64_t k);
double host_get(tn_dtype dt, const void *mem, int64_t i);

// Bytes of memory that this process has now; 0 where that is not known.
long host_resident(void);

#endif
