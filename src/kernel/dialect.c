// The dialects: how C, OpenCL C and CUDA C spell what a kernel is made of, and the functions that
// each has of its own.
#include "kernel/dialect.h"

#include "kernel/cuda_spell.h"
#include "kernel/prelude_text.h"

#include <stddef.h>

// ---- C: what the skeleton calls ----------------------------------------------------------------

// Makes the random words of elements first .. first+n-1 of a tensor, n at most TNI_STRIP: w begins
// with the first word of the first element's Philox block. first may be before the tensor, in
// padding, where the words are not used. The four words of a block go to four arrays first, so that
// the compiler computes several blocks side by side in vector registers. 258 blocks are 1024 words
// and two ends.
#define FILL_WORDS                                                                            \
    "M_APART void m_fill_words(m_uint *w, m_ulong key, m_ulong c, m_ulong first, m_long n)\n" \
    "{\n"                                                                                     \
    "    m_uint q[4][258];\n"                                                                 \
    "    m_long blocks = (m_long)((first & 3u) + (m_ulong)n + 3u) >> 2;\n"                    \
    "    for (m_long i = 0; i < blocks; i++) {\n"                                             \
    "        m_quad x = m_philox(key, c + (m_ulong)(((m_long)first >> 2) + i), 0);\n"         \
    "        q[0][i] = x.x, q[1][i] = x.y, q[2][i] = x.z, q[3][i] = x.w;\n"                   \
    "    }\n"                                                                                 \
    "    for (m_long i = 0; i < blocks; i++)\n"                                               \
    "        for (m_int k = 0; k < 4; k++) w[4 * i + k] = q[k][i];\n"                         \
    "}\n"
// The same as normal numbers (Box-Muller: two words make two of them).
#define FILL_NORMAL                                                                           \
    "M_APART void m_fill_normal(float *y, m_ulong key, m_ulong c, m_ulong first, m_long n)\n" \
    "{\n"                                                                                     \
    "    m_uint q[4][258];\n"                                                                 \
    "    m_long blocks = (m_long)((first & 3u) + (m_ulong)n + 3u) >> 2;\n"                    \
    "    for (m_long i = 0; i < blocks; i++) {\n"                                             \
    "        m_quad x = m_philox(key, c + (m_ulong)(((m_long)first >> 2) + i), 0);\n"         \
    "        q[0][i] = x.x, q[1][i] = x.y, q[2][i] = x.z, q[3][i] = x.w;\n"                   \
    "    }\n"                                                                                 \
    "    for (m_int k = 0; k < 4; k++)\n"                                                     \
    "        for (m_long i = 0; i < blocks; i++)\n"                                           \
    "            y[4 * i + k] = m_normal_f(q[k & 2][i], q[k | 1][i], k & 1);\n"               \
    "}\n"
// Checks an index; `note` records a failure, the first one only.
#define CHECK(global, note)                                                        \
    "M_FN m_long m_check(m_long i, m_long n, m_int ins, " global "m_long *fail)\n" \
    "{\n"                                                                          \
    "    m_long at = i < 0 ? i + n : i;\n"                                         \
    "    if (at >= 0 && at < n) return at;\n"                                      \
    "    " note "\n"                                                               \
    "    return 0;\n"                                                              \
    "}\n"
#define NOTE "if (!fail[0]) fail[0] = 1 + ins, fail[1] = i;"

// A distance from the first lane, clamped to 2^30: beyond that no lane of a strip compares equal or
// changes sides, and 32 bits suffice.
#define LANES_TO                               \
    "M_FN m_int m_lanes_to(m_long d)\n"        \
    "{\n"                                      \
    "    const m_long far = 1 << 30;\n"        \
    "    d = d < -far ? -far : d;\n"           \
    "    return (m_int)(d > far ? far : d);\n" \
    "}\n"

static const char *const c_rows[] = {
    FILL_WORDS, FILL_NORMAL, CHECK("", NOTE), LANES_TO,
#define FN(...) "M_APART " #__VA_ARGS__ "\n",
#include "kernel/strips.def"
    NULL,
};

// A block is folded in 64 lanes, which then fold into each other by halves; a block of less than
// 256 elements in 16 lanes, and one of less than 16 one by one. This is the rule of the
// interpreter's tiles (tni_tile_block), so that compiled and interpreted kernels give the same
// bits.
#define LANES                                                                         \
    "M_FN void f_lanes_@op_@s(@t *lane, const @t *p, m_long lanes, m_long n)\n"       \
    "{\n"                                                                             \
    "    for (m_long j = 0; j < lanes; j++) lane[j] = p[j];\n"                        \
    "    for (p += lanes, n -= lanes; n >= lanes; p += lanes, n -= lanes)\n"          \
    "        for (m_long j = 0; j < lanes; j++) lane[j] = o_@op_@s(lane[j], p[j]);\n" \
    "    for (m_long j = 0; j < n; j++) lane[j] = o_@op_@s(lane[j], p[j]);\n"         \
    "}\n"
#define BLOCK                                                                             \
    "M_APART @w f_block_@op_@s(const @t *p, m_long n)\n"                                  \
    "{\n"                                                                                 \
    "    @t lane[64];\n"                                                                  \
    "    if (n >= 256) {\n"                                                               \
    "        f_lanes_@op_@s(lane, p, 64, n);\n"                                           \
    "        for (m_int j = 0; j < 32; j++) lane[j] = o_@op_@s(lane[j], lane[j + 32]);\n" \
    "        for (m_int j = 0; j < 16; j++) lane[j] = o_@op_@s(lane[j], lane[j + 16]);\n" \
    "    } else if (n >= 16) {\n"                                                         \
    "        f_lanes_@op_@s(lane, p, 16, n);\n"                                           \
    "    } else {\n"                                                                      \
    "        @t v = p[0];\n"                                                              \
    "        for (m_long i = 1; i < n; i++) v = o_@op_@s(v, p[i]);\n"                     \
    "        return (@w)v;\n"                                                             \
    "    }\n"                                                                             \
    "    for (m_int j = 0; j < 8; j++) lane[j] = o_@op_@s(lane[j], lane[j + 8]);\n"       \
    "    for (m_int j = 0; j < 4; j++) lane[j] = o_@op_@s(lane[j], lane[j + 4]);\n"       \
    "    for (m_int j = 0; j < 2; j++) lane[j] = o_@op_@s(lane[j], lane[j + 2]);\n"       \
    "    return (@w)o_@op_@s(lane[0], lane[1]);\n"                                        \
    "}\n"

static const char *const c_folds[] = { LANES, BLOCK, NULL };

static const char *const none[] = { NULL };

// C runs one thread: ids are constants and a barrier is nothing.
const tni_dialect tni_dialect_c = {
    .name             = "c",
    .shim             = tni_prelude_c,
    .functions        = c_rows,
    .folds            = c_folds,
    .kernel           = "void ",
    .global           = "",
    .shared           = "",
    .no_alias         = "restrict",
    .barrier          = "",
    .begin            = "",
    .local_id         = "0",
    .group_id         = "0",
    .local_size       = "1",
    .groups           = "1",
    .unroll           = "",
    .unroll_8         = "",
    .local            = "",
    .no_inline        = "static ",
    .sized_kernel     = "void",
    .struct_qualifier = "const",
    .second_axis      = "",
    .shuffle          = "",
};

// ---- OpenCL and CUDA ---------------------------------------------------------------------------

// Many threads may fail at once: the one that finds 0 in the first word writes the second. OpenCL
// 1.2 has atomics of 32 bits only; the low half of the word comes first in memory.
#define NOTE_OPENCL "if (!atomic_cmpxchg((volatile __global m_int *)fail, 0, 1 + ins)) fail[1] = i;"
// On CUDA the failure is also written to host memory, at the address in the state, unless one was
// written already; the fence makes the words visible before the flag. fail[4] points to the word by
// which guarded kernels see that they have nothing to do.
#define NOTE_CUDA                                             \
    "if (!atomicCAS((m_ulong *)fail, 0, 1 + ins)) {\n"        \
    "        volatile m_long *told = (m_long *)fail[3];\n"    \
    "        fail[1] = i, *(volatile m_long *)fail[4] = 1;\n" \
    "        if (told && !told[0]) {\n"                       \
    "            told[1] = 1 + ins, told[2] = i;\n"           \
    "            __threadfence_system();\n"                   \
    "            told[0] = (m_long)fail;\n"                   \
    "        }\n"                                             \
    "    }"

static const char *const opencl_rows[] = { CHECK("__global ", NOTE_OPENCL), NULL };
static const char *const cuda_rows[]   = { CHECK("", NOTE_CUDA), TNI_CUDA_SPELLINGS, NULL };

// OpenCL C 1.2. features stays 0: none of them can be expressed.
const tni_dialect tni_dialect_opencl = {
    .name             = "opencl",
    .shim             = tni_prelude_opencl,
    .functions        = opencl_rows,
    .folds            = none,
    .kernel           = "__kernel void ",
    .global           = "__global ",
    .shared           = "__local ",
    .no_alias         = "restrict",
    .barrier          = "barrier(CLK_LOCAL_MEM_FENCE)",
    .begin            = "",
    .local_id         = "(m_int)get_local_id(0)",
    .group_id         = "(m_int)get_group_id(0)",
    .local_size       = "(m_int)get_local_size(0)",
    .groups           = "(m_int)get_num_groups(0)",
    .unroll           = "#pragma unroll\n",
    .unroll_8         = "",
    .local            = "__local ",
    .no_inline        = "static ",
    .sized_kernel     = "__kernel __attribute__((reqd_work_group_size(n, 1, 1))) void",
    .struct_qualifier = "const",
    .second_axis      = " + (m_int)get_group_id(1) * %d",
    .shuffle          = "",
};

// CUDA C as NVRTC compiles it, without headers.
const tni_dialect tni_dialect_cuda = {
    .name             = "cuda",
    .shim             = tni_prelude_cuda,
    .functions        = cuda_rows,
    .folds            = none,
    .kernel           = "extern \"C\" __global__ void ",
    .global           = "",
    .shared           = "__shared__ ",
    .no_alias         = "__restrict__",
    .barrier          = "__syncthreads()",
    .begin            = "m_begin()",
    .local_id         = "(m_int)threadIdx.x",
    .group_id         = "(m_int)blockIdx.x",
    .local_size       = "(m_int)blockDim.x",
    .groups           = "(m_int)gridDim.x",
    .unroll           = "#pragma unroll\n",
    .unroll_8         = "#pragma unroll 8\n",
    .local            = "",
    .no_inline        = "static __device__ __noinline__ ",
    .sized_kernel     = "extern \"C\" __global__ void __launch_bounds__(n, 1)",
    .struct_qualifier = "const __grid_constant__",
    .second_axis      = " + (m_int)blockIdx.y * %d",
    .shuffle          = "__shfl_xor_sync(0xffffffffu, %s, d)",
    .features         = TNI_GPU_ALL,
};
