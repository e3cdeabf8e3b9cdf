// The functions behind the table of calls in cpu.c: one file of this folder for each kind of op. A
// scratch function returns the bytes of scratch memory that the call needs; nothing here allocates
// while it runs, but what is kept of weights.
#ifndef TNI_DEVICE_CPU_CPU_OPS_H
#define TNI_DEVICE_CPU_CPU_OPS_H

#include "device/device.h"

void      tni_cpu_copy(const tni_call *call);
void      tni_cpu_concat(const tni_call *call);
size_t    tni_cpu_arg_scratch(const tni_call *call);
void      tni_cpu_arg(const tni_call *call);
void      tni_cpu_scan(const tni_call *call);
size_t    tni_cpu_scatter_scratch(const tni_call *call);
tn_status tni_cpu_scatter(const tni_call *call);
size_t    tni_cpu_fold_scratch(const tni_call *call);
void      tni_cpu_fold(const tni_call *call);

// Two functions for each LIBRARY row of ops.def: tni_cpu_matmul and tni_cpu_matmul_scratch, for
// example.
// clang-format off
#define CALLS(f, g)                                 \
    tn_status tni_cpu_##f(const tni_call *call);     \
    size_t    tni_cpu_##f##_scratch(const tni_call *call);
#define OP(name, class, dtypes, expr, cost, facts, grad, doc) TNI_IF_##class(expr)
#include "ops/ops.def"
#undef OP
#undef CALLS
// clang-format on

// What a call could do otherwise, as bits of tni_otherwise.
unsigned tni_cpu_others(const tni_call *call);
// The tables of a Fourier transform, which its runs share. What is kept of any call begins with the
// function that frees it.
void *tni_cpu_prepare_fft(const tni_call *call);
// Whether a convolution or its gradient keeps its weights from run to run, transformed.
bool tni_cpu_conv_keeps(const tni_call *call);
// What a call keeps from run to run; NULL if nothing, and if memory is out.
void *tni_cpu_prepare_call(const tni_call *call);
void  tni_cpu_forget_call(void *entry);

// Copies in to out, which have the same shape and any strides and dtypes. Every file that needs an
// operand in another layout or dtype calls it.
void tni_copy_arg(int threads, const tni_arg *in, const tni_arg *out);

#endif
