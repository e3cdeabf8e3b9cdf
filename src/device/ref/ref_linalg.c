// Linear algebra: device/host_linalg.c over cells, which are doubles and 64-bit integers. Devices
// without a library run the same code; the tests of what factorizations promise judge both.
#include "device/host_linalg.h"
#include "ref.h"

size_t tni_ref_linalg_scratch(const tni_call *c)
{
    if (tni_linalg_is_value(c)) return 0;
    tni_linalg f = tni_linalg_of(c);
    return (size_t)tni_linalg_work(&f) * sizeof(double);
}

tn_status tni_ref_linalg(const tni_call *c)
{
    if (tni_linalg_is_value(c)) return tni_linalg_copy_value(c);
    tni_linalg f = tni_linalg_of(c);
    for (int i = 0; i < 7; i++) {
        tni_linalg_array *x = i < 4 ? &f.in[i] : &f.out[i - 4];
        x->dtype            = tni_is_float(x->dtype) ? TN_F64 : TN_I64;
    }
    for (int64_t i = 0; i < f.batch; i++) tni_linalg_run(&f, i, c->scratch);
    return TN_OK;
}
