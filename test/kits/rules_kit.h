// rules_kit.h: what the tests of the rules of meaning share: contexts on each device, a look at
// values and errors, a user's op that counts how often it is computed.
#ifndef TEST_RULES_KIT_H
#define TEST_RULES_KIT_H

#include "check.h"
#include "tenon.h"

// Closes cx and opens a silent context on the next device, the last that of TN_TEST_DEVICE if there
// is one; NULL after it. A test on every device begins
//     for (tn_ctx *cx = rules_next(NULL); cx; cx = rules_next(cx)) {
tn_ctx *rules_next(tn_ctx *cx);
// A silent context on one device.
tn_ctx *rules_open(const char *device);
// One on the cpu, in a scratch folder that goes with it.
tn_ctx *rules_open_scratch(void);
void    rules_close_scratch(tn_ctx *cx);

// 1, 2, ... n as f32, computed.
tn_tensor *rules_ramp(tn_ctx *cx, int64_t n);
// Some numbers from -1 to 1 that are there: nothing has to run for them.
tn_tensor *rules_there(tn_ctx *cx, int rank, const int64_t *size);
// Whether t is n elements with these values. Reads it.
bool rules_values(tn_tensor *t, int n, const double *want, const char *file, int line,
                  const char *text);
#define CHECK_VALUES(t, ...)                                                   \
    rules_values(t, (int)(sizeof((double[]){ __VA_ARGS__ }) / sizeof(double)), \
                 (double[]){ __VA_ARGS__ }, __FILE__, __LINE__, #t)

// Whether cx (or, NULL, this thread) has an error of this code whose text has these parts (NULL
// ends them); clears it.
bool rules_failed(tn_ctx *cx, tn_status code, const char *part, const char *also, const char *file,
                  int line);
#define CHECK_FAILED(cx, code, part)        rules_failed(cx, code, part, NULL, __FILE__, __LINE__)
#define CHECK_FAILED2(cx, code, part, also) rules_failed(cx, code, part, also, __FILE__, __LINE__)
// "file:line" of a line of this file, as errors name it; in a ring of eight.
const char *rules_site(const char *file, int line);
#define SITE(line) rules_site(__FILE__, line)

// The shape rule of an op whose result is as its input.
tn_status rules_same_shape(const void *attr, const tn_array *in, tn_array *out);
// 2 x, elementwise, f32. It counts its computations; its gradient is itself. It fails in compute
// while rules_fail is set.
extern const tn_op_def rules_twice;
extern int             rules_computed;
extern bool            rules_fail;
tn_tensor             *rules_double(tn_tensor *x);

// Counts calls of release in *(int *)user.
void rules_release(void *data, void *user);

#endif
