// fake_clock.h: a driver over host memory with one stream, for what is timed: events read a clock
// that only the work of a test moves.
#ifndef TEST_FAKE_CLOCK_H
#define TEST_FAKE_CLOCK_H

#include "device/cuda/driver.h"

// The driver, which a test may change. Its stream is &fake_clock_driver; any other is an error.
extern tni_driver fake_clock_driver;
// Puts everything back as it was, with a clock that counts milliseconds, and returns the stream.
tni_custream fake_clock_open(double *milliseconds);
// Events and memory that were made and not given back.
int fake_clock_left(void);

// Of a driver without memory.
int fake_clock_no_memory(tni_cuptr *p, size_t bytes);

#endif
