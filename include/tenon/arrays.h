// arrays.h: more functions of tensors, with the names and the meaning of NumPy and PyTorch.
//
// Part of tenon.h, which includes it.
#ifndef TENON_ARRAYS_H
#define TENON_ARRAYS_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

// ---- maps --------------------------------------------------------------------------------------

// Of integers these are f32, except where a comment says otherwise.
TN_API tn_tensor *tn_asin(tn_tensor *x);     // inverse sine, in [-pi/2, pi/2]
TN_API tn_tensor *tn_acos(tn_tensor *x);     // inverse cosine, in [0, pi]
TN_API tn_tensor *tn_sinh(tn_tensor *x);     // hyperbolic sine
TN_API tn_tensor *tn_cosh(tn_tensor *x);     // hyperbolic cosine
TN_API tn_tensor *tn_asinh(tn_tensor *x);    // inverse hyperbolic sine
TN_API tn_tensor *tn_acosh(tn_tensor *x);    // inverse hyperbolic cosine, of numbers from 1 on
TN_API tn_tensor *tn_atanh(tn_tensor *x);    // inverse hyperbolic tangent, of numbers in [-1, 1]
TN_API tn_tensor *tn_log10(tn_tensor *x);    // logarithm to base 10
TN_API tn_tensor *tn_erfinv(tn_tensor *x);   // inverse of erf, of numbers in [-1, 1]
TN_API tn_tensor *tn_lgamma(tn_tensor *x);   // log(|gamma(x)|)
TN_API tn_tensor *tn_digamma(tn_tensor *x);  // derivative of lgamma
TN_API tn_tensor *tn_signbit(tn_tensor *x);  // bool: the sign is minus, also of -0 and NaN

TN_API tn_tensor *tn_atan2(tn_tensor *a, tn_tensor *b);      // angle of the point (b, a)
TN_API tn_tensor *tn_hypot(tn_tensor *a, tn_tensor *b);      // sqrt(a * a + b * b)
TN_API tn_tensor *tn_logaddexp(tn_tensor *a, tn_tensor *b);  // log(exp(a) + exp(b))
TN_API tn_tensor *tn_copysign(tn_tensor *a, tn_tensor *b);   // a with the sign of b
// The number after a in the direction of b, of f32 and f64.
TN_API tn_tensor *tn_nextafter(tn_tensor *a, tn_tensor *b);
// What division leaves, with the sign of a, and the quotient without its fraction. Integers keep
// their dtype; divided by 0 they give 0.
TN_API tn_tensor *tn_fmod(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_trunc_divide(tn_tensor *a, tn_tensor *b);

#endif
