// calls_arrays.c: the functions of tenon/arrays.h in the table of calls.
#include "call_rows.h"

// clang-format off
const call calls_of_arrays[] = {
    U(asin), U(acos), U(sinh), U(cosh), U(asinh), U(acosh), U(atanh), U(log10), U(erfinv), U(lgamma), U(digamma), U(signbit),
    B(atan2), B(hypot), B(logaddexp), B(copysign), B(nextafter), B(fmod), B(trunc_divide),
    { 0 },
};
// clang-format on
