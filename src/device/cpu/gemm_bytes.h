// Products of bytes with sums in i32: how operands are packed, and the kernels, one for each way in
// which processors multiply bytes.
//
// All kernels compute with signed b, and a either signed or unsigned, whatever the operands are: a
// byte of the other kind is packed with its highest bit turned, which adds or subtracts 128, and
// what that adds to the sums is taken off them again. With a = a' + za and b = b' + zb,
//
//     sum a b = sum a' b'  +  za sum b' + k za zb  +  zb sum a'
//                             `start` of a column     of a row
//
// Sums wrap, so that the order of additions changes nothing: every kernel gives the same bits.
#ifndef TNI_DEVICE_CPU_GEMM_BYTES_H
#define TNI_DEVICE_CPU_GEMM_BYTES_H

#include <stdbool.h>
#include <stdint.h>

// A loop over registers, which must not become one over memory.
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// A kernel. Operands are packed in strips of mr rows of a and nr columns of b. A strip goes along k
// in steps, each of kr bytes of every row or column; bytes past the end of k are zeros.
//
//     strip of a: [step][mr][kr]      strip of b: [step][nr][kr]
//
// tile: c (rows, nr) = start (nr) + a @ b over `steps` steps; rows is 1 .. mr, rows of c are ldc
// apart, and rows past the last are computed and not stored.
typedef struct {
    const char *name;
    int         mr, nr, kr;
    bool        unsigned_a;
    void (*tile)(int64_t steps, int rows, const void *a, const void *b, const int32_t *start,
                 int32_t *c, int64_t ldc);
} tni_bytes_kernel;

enum { TNI_BYTES_MOST_ROWS = 12, TNI_BYTES_MOST_COLS = 32 };  // of a tile

extern const tni_bytes_kernel tni_bytes_base;
extern const tni_bytes_kernel tni_bytes_dot;   // on ARM: SDOT
extern const tni_bytes_kernel tni_bytes_mmla;  // on ARM: SMMLA
extern const tni_bytes_kernel tni_bytes_avx2;  // on x86-64
extern const tni_bytes_kernel tni_bytes_vnni;  // on x86-64: VPDPBUSD

// Returns kernel number i of those that this machine runs, the fastest first; NULL after the last.
const tni_bytes_kernel *tni_bytes_kernel_get(int i);

#endif
