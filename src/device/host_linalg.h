// Linear algebra over host memory: what a call of the row `linalg` is of, and our own algorithms,
// in double, one matrix at a time. The ref device runs them; so do others where no library is
// found.
#ifndef TNI_DEVICE_HOST_LINALG_H
#define TNI_DEVICE_HOST_LINALG_H

#include "device/device.h"

// One operand of all matrices of a call, row-major, `count` elements for each.
typedef struct {
    tn_dtype dtype;
    char    *data;  // NULL: an output that nothing reads
    int64_t  count;
} tni_linalg_array;

// A call: matrices a (m, n), right sides (n, k). inner: the columns of q, or of u; rows of v' are n
// or min(m, n).
typedef struct {
    struct tni_attr_linalg how;
    int64_t                batch, m, n, k, inner;
    tni_linalg_array       in[4], out[3];
} tni_linalg;

// Whether a call only gives its first input a gradient; such a call is a copy, by the device's own.
static inline bool tni_linalg_is_value(const tni_call *c)
{
    return c->attr->linalg.kind >= TNI_LINALG_DET;
}
tn_status tni_linalg_copy_value(const tni_call *c);

// Describes a call.
tni_linalg tni_linalg_of(const tni_call *c);
// Returns how many doubles tni_linalg_run needs beside its operands; runs matrix i of the call.
int64_t tni_linalg_work(const tni_linalg *f);
void    tni_linalg_run(const tni_linalg *f, int64_t i, double *work);
// Runs a call of any device, linalg or fft, on the host, by copies of its operands, as the cpu
// device runs it; waits for the device.
tn_status tni_call_on_host(const tni_call *c);
// Fills the outputs of matrix i with NaN: it has no such factorization.
void tni_linalg_fail(const tni_linalg *f, int64_t i);
// The rows of a in the order of l u, from the exchanges of rows that LAPACK and cuSOLVER return,
// counted from 1.
void tni_linalg_order(int64_t n, const int32_t *pivot, int64_t *order);

#endif
