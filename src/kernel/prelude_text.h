// prelude_text.h: the math prelude as text, to put before a kernel: first the shim of the dialect,
// then tni_prelude_text. Each is an array of pieces that ends with NULL. A device without doubles
// leaves out every piece with the word "double", of both. Kernels name functions with the suffix of
// the type (m_exp_f). A piece of one function begins with M_FN or `static inline`; a program needs
// those alone that it uses (tni_emit_program).
#ifndef TNI_PRELUDE_TEXT_H
#define TNI_PRELUDE_TEXT_H

// The rows of math.def, gelu.def and casts.def, one function a piece, each begun with M_FN, which
// the shim defines.
extern const char *const tni_prelude_text[];

// C, for gcc and clang; includes nothing. Compile with -ffp-contract=off -fno-math-errno
// -fno-trapping-math: the last two change no value, and gcc does not vectorize without them.
extern const char *const tni_prelude_c[];

// OpenCL C 1.2. Build with -cl-fp32-correctly-rounded-divide-sqrt where the device has it.
extern const char *const tni_prelude_opencl[];

// CUDA, without headers. Build with --fmad=false.
extern const char *const tni_prelude_cuda[];

#endif
