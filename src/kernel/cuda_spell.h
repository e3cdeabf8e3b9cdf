// Rows of the prelude that CUDA has instructions for, as texts that replace them in CUDA programs.
// The random generator uses none of them: its bits are equal on every device.
#ifndef TNI_KERNEL_CUDA_SPELL_H
#define TNI_KERNEL_CUDA_SPELL_H

// One instruction from sm_80 on, the prelude's expression before.
#define TNI_CUDA_EXTREME(name, word, sign)                                          \
    "M_FN float " name "(float a, float b) {\n"                                     \
    "#if __CUDA_ARCH__ >= 800\n"                                                    \
    "    float y;\n"                                                                \
    "    asm(\"" word ".NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b));\n" \
    "    return y;\n"                                                               \
    "#else\n"                                                                       \
    "    return ((a " sign " b) | (a != a)) ? a : b;\n"                             \
    "#endif\n"                                                                      \
    "}\n"

// Two 16-bit floats in a word, each with one of another; one instruction from sm_80 on.
#define TNI_CUDA_PAIR(op, kind, type)                                                         \
    "M_FN m_uint m_" op "_pair_" kind "(m_uint a, m_uint b) {\n"                              \
    "#if __CUDA_ARCH__ >= 800\n"                                                              \
    "    m_uint y;\n"                                                                         \
    "    asm(\"" op ".NaN." type "x2 %0, %1, %2;\" : \"=r\"(y) : \"r\"(a), \"r\"(b));\n"      \
    "    return y;\n"                                                                         \
    "#else\n"                                                                                 \
    "    float x = m_" kind "_to_float((m_ushort)a), y = m_" kind "_to_float((m_ushort)b);\n" \
    "    float z = m_" kind "_to_float((m_ushort)(a >> 16));\n"                               \
    "    float w = m_" kind "_to_float((m_ushort)(b >> 16));\n"                               \
    "    return (m_uint)m_float_to_" kind "(m_" op "_f(x, y)) |\n"                            \
    "           (m_uint)m_float_to_" kind "(m_" op "_f(z, w)) << 16;\n"                       \
    "#endif\n"                                                                                \
    "}\n"

// Instructions that approximate: powers of 2, off by at most 2^-22 of the result, reciprocals, off
// by 2^-23, and reciprocals of roots, off by 2^-22.9. With .ftz what is below 2^-126 is 0.
#define TNI_CUDA_FAST(name, word)                                 \
    "M_FN float " name "(float x) {\n"                            \
    "    float y;\n"                                              \
    "    asm(\"" word ".f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n" \
    "    return y;\n"                                             \
    "}\n"

// The instruction and one Newton step. Where that gives NaN, of zero and of infinity, the
// instruction is right. Worst 1.00 ULP with the instruction off as far as it can be.
#define TNI_CUDA_RSQRT                                   \
    "M_FN float m_rsqrt_f(float x) {\n"                  \
    "    float y = m_rsq_f(x);\n"                        \
    "    float e = m_fma_f(-(x * y), y, 1.0f);\n"        \
    "    return e == e ? m_fma_f(0.5f * y, e, y) : y;\n" \
    "}\n"

// For the op exp alone: rows of the prelude that use m_exp_f count on its error. e^x = 2^t 2^-l: t
// is x / ln 2 rounded, -l what rounding left of it, and 2^-l is 1 - l ln 2. The instruction is off
// by 2^-22.5; the whole by at most 3 ULP. Very small x are clamped first: there t is infinite
// before x is. Very large x give infinity times a positive number. NaN stays NaN.
#define TNI_CUDA_EXP                                                                \
    "M_FN float m_fast_exp_f(float x) {\n"                                          \
    "    float c = m_max_f(x, -104.0f), t = c * 1.44269502f, y = m_ex2_all_f(t);\n" \
    "    float l = m_fma_f(c, -1.92596299e-08f, m_fma_f(c, -1.44269502f, t));\n"    \
    "    return y * m_fma_f(fminf(l, 1.0f), -0.693147182f, 1.0f);\n"                \
    "}\n"

// The same of what is not above 0, or a NaN: the result is finite, so that the correction is one
// step.
#define TNI_CUDA_EXP_BELOW                                                       \
    "M_FN float m_exp_below_f(float x) {\n"                                      \
    "    float c = m_max_f(x, -104.0f), t = c * 1.44269502f, y = m_ex2_f(t);\n"  \
    "    float d = m_fma_f(t, 1.90465421e-09f, m_fma_f(t, -0.693147182f, c));\n" \
    "    return m_fma_f(y, d, y);\n"                                             \
    "}\n"

// The same without the correction: off by |x| 2^-24 + 2^-22.5 of the result.
#define TNI_CUDA_EXP_COARSE                  \
    "M_FN float m_exp_coarse_f(float x) {\n" \
    "    return m_ex2_f(x * 1.44269502f);\n" \
    "}\n"

// gelu_tanh for what is rounded to 16 bits: x / (1 + 2^-t), by powers that keep what is subnormal.
// Off by |t| 2^-23 + 2^-21 of the result, t being below 130 where that is not 0.
#define TNI_CUDA_GELU_COARSE                                                                     \
    "M_FN float m_gelu_coarse_f(float x) {\n"                                                    \
    "    float t = x * m_fma_f(0.10294324f * x, x, 2.3022082f), e = m_ex2_all_f(-m_abs_f(t));\n" \
    "    return x * ((t < 0.0f ? e : 1.0f) * m_rcp_f(1.0f + e));\n"                              \
    "}\n"

// gelu_slope likewise, as gelu.def has it: off by |t| 2^-22 + 2^-20 of the result.
#define TNI_CUDA_SLOPE_COARSE                                                                 \
    "M_FN float m_slope_coarse_f(float x) {\n"                                                \
    "    float z = m_min_f(m_max_f(x, -16.0f), 16.0f), p = z * z;\n"                          \
    "    float t = z * m_fma_f(0.10294324f, p, 2.3022082f), e = m_ex2_all_f(-m_abs_f(t));\n"  \
    "    float d = 1.0f + e, r = m_rcp_f(d);\n"                                               \
    "    float a = z * m_fma_f(0.21406444f, p, 1.5957692f);\n"                                \
    "    float n = m_fma_f(a, z < 0.0f ? 1.0f : e, d) * r;\n"                                 \
    "    float y = (z < 0.0f ? e : 1.0f) * r * n;\n"                                          \
    "    d = (z + 0.752461433f) - 1.13396279e-08f;\n"                                         \
    "    p = m_fma_f(m_fma_f(-0.113747872f, d, -0.015948588f), d, 0.387518197f);\n"           \
    "    return m_fma_f(x, 0.0f, m_abs_f(d) < 0.1f ? m_fma_f(p, d, 0.430400312f) * d : y);\n" \
    "}\n"

// The same for bf16, in half as many instructions: r (w + x k e r), w = e below 0 and 1 above, k
// the slope of t. Around the slope's zero it is off by 2^-24, 0.02 ULP of bf16 at the bf16 next to
// it. p is bounded so that k stays finite where e is 0; an infinity gives NaN. Both are negated, so
// that what is too small below 0 is -0.
#define TNI_CUDA_SLOPE_BF16                                                              \
    "M_FN float m_slope_bf16_f(float x) {\n"                                             \
    "    float p = m_min_f(x * x, 1e4f), t = x * m_fma_f(0.10294324f, p, 2.3022082f);\n" \
    "    float e = m_ex2_all_f(-m_abs_f(t));\n"                                          \
    "    float r = m_rcp_f(1.0f + e), k = m_fma_f(0.21406444f, p, 1.5957692f);\n"        \
    "    return -(r * m_fma_f(-x * (e * r), k, x < 0.0f ? -e : -1.0f));\n"               \
    "}\n"

// Odd polynomial below 0.8, 1 - 2 / (2^t + 1) above with t = 2|x| / ln 2, where an error of 2^t or
// of the quotient counts for a third or less. The product with x keeps the sign of a zero; what is
// large gives 1 - 1 / infinity. The polynomials here and below are minimax fits, as those of
// math.def are. Worst over all floats 3.21 ULP with both instructions off as far as they can be,
// 2.21 with neither.
#define TNI_CUDA_TANH                                                \
    "M_FN float m_tanh_f(float x) {\n"                               \
    "    float a = m_abs_f(x), z = x * x;\n"                         \
    "    float p = m_fma_f(-0.00441043871f, z, 0.0191900432f);\n"    \
    "    p = m_fma_f(p, z, -0.053175915f);\n"                        \
    "    p = m_fma_f(p, z, 0.133227572f);\n"                         \
    "    p = m_fma_f(p, z, -0.333328664f);\n"                        \
    "    p = m_fma_f(p, z, 1.0f) * x;\n"                             \
    "    float h = m_fma_f(m_ex2_f(a * 2.88539004f), 0.5f, 0.5f);\n" \
    "    float y = copysignf(1.0f - m_rcp_f(h), x);\n"               \
    "    return a < 0.8f ? p : y;\n"                                 \
    "}\n"

// Odd polynomial below 0.95, 1 - 2^q(|x|) above. q is log2(1 - erf), fitted up to 4, an error
// weighed by what it does to the result; beyond, all that counts is that q stays below -25, and it
// falls for ever. Worst over all floats 2.19 ULP with the instruction off as far as it can be, 1.46
// if it is not.
#define TNI_CUDA_ERF                                                \
    "M_FN float m_erf_f(float x) {\n"                               \
    "    float a = m_abs_f(x), z = x * x;\n"                        \
    "    float p = m_fma_f(-0.000590073818f, z, 0.00497712893f);\n" \
    "    p = m_fma_f(p, z, -0.0267575644f);\n"                      \
    "    p = m_fma_f(p, z, 0.112816639f);\n"                        \
    "    p = m_fma_f(p, z, -0.376125008f);\n"                       \
    "    p = m_fma_f(m_fma_f(p, z, 0.128379166f), x, x);\n"         \
    "    float q = m_fma_f(-0.00173184799f, a, 0.0218989532f);\n"   \
    "    q = m_fma_f(q, a, -0.129684612f);\n"                       \
    "    q = m_fma_f(q, a, -0.941454172f);\n"                       \
    "    q = m_fma_f(q, a, -1.61419868f);\n"                        \
    "    q = m_fma_f(q, a, -0.00324614975f);\n"                     \
    "    float y = copysignf(1.0f - m_ex2_f(q), x);\n"              \
    "    return a < 0.95f ? p : y;\n"                               \
    "}\n"

#define TNI_CUDA_TO_BF16                                                                \
    "M_FN m_ushort m_float_to_bf16(float x) {\n"                                        \
    "#if __CUDA_ARCH__ >= 800\n"                                                        \
    "    m_ushort y;\n"                                                                 \
    "    asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x));\n"                    \
    "    return y;\n"                                                                   \
    "#else\n"                                                                           \
    "    m_uint b = m_bits_f(x);\n"                                                     \
    "    m_uint n = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;\n"                          \
    "    return (m_ushort)((b & 0x7fffffffu) > 0x7f800000u ? (b >> 16) | 0x40u : n);\n" \
    "#endif\n"                                                                          \
    "}\n"

#define TNI_CUDA_HALVES                                              \
    "M_FN m_ushort m_float_to_half(float x) {\n"                     \
    "    m_ushort y;\n"                                              \
    "    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x));\n"  \
    "    return y;\n"                                                \
    "}\n",                                                           \
        "M_FN float m_half_to_float(m_ushort h) {\n"                 \
        "    float y;\n"                                             \
        "    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(h));\n" \
        "    return y;\n"                                            \
        "}\n"

// a / b for many a: the reciprocal of b is the same for all of them, and one Newton step corrects
// the product. Where that step gives NaN (infinities, zero), the product is right.
#define TNI_CUDA_DIV_BY                                 \
    "M_FN float m_div_by_f(float a, float b) {\n"       \
    "    float r = 1.0f / b;\n"                         \
    "    if (r - r != 0.0f) return a / b;\n"            \
    "    float q = a * r;\n"                            \
    "    float y = m_fma_f(m_fma_f(-q, b, a), r, q);\n" \
    "    return y == y ? y : q;\n"                      \
    "}\n"

// A number as a column; -1, which no column equals, if it is out of range.
#define TNI_CUDA_COLUMN                                      \
    "M_FN m_int m_column(m_long i) {\n"                      \
    "    return i >= 0 && i < 0x7fffffff ? (m_int)i : -1;\n" \
    "}\n"

// Stores of vectors as one instruction, whatever other stores are near them.
#define TNI_CUDA_PUT                                                                        \
    "M_FN void m_put_uint4(void *p, uint4 g) {\n"                                           \
    "    asm volatile(\"st.global.v4.u32 [%0], {%1, %2, %3, %4};\" :: "                     \
    "\"l\"(__cvta_generic_to_global(p)), \"r\"(g.x), \"r\"(g.y), \"r\"(g.z), \"r\"(g.w) : " \
    "\"memory\");\n"                                                                        \
    "}\n",                                                                                  \
        "M_FN void m_put_uint2(void *p, uint2 g) {\n"                                       \
        "    asm volatile(\"st.global.v2.u32 [%0], {%1, %2};\" :: "                         \
        "\"l\"(__cvta_generic_to_global(p)), \"r\"(g.x), \"r\"(g.y) : \"memory\");\n"       \
        "}\n"

// Bulk copies into shared memory (sm_90): barriers that count bytes, one phase a turn.
#define TNI_CUDA_BULK                                                                               \
    "M_FN m_uint m_near(const void *p) { return (m_uint)__cvta_generic_to_shared(p); }\n",          \
        "M_FN void m_barrier_open(m_ulong *b) {\n"                                                  \
        "    asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 1;\" :: \"r\"(m_near(b)));\n"       \
        "}\n",                                                                                      \
        "M_FN void m_barriers_opened() {\n"                                                         \
        "    asm volatile(\"fence.mbarrier_init.release.cluster;\" ::: \"memory\");\n"              \
        "}\n",                                                                                      \
        "M_FN void m_expect(m_ulong *b, m_uint bytes) {\n"                                          \
        "    asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\" :: "           \
        "\"r\"(m_near(b)), \"r\"(bytes) : \"memory\");\n"                                           \
        "}\n",                                                                                      \
        "M_FN void m_bring(void *to, const void *from, m_uint bytes, m_ulong *b) {\n"               \
        "    asm volatile(\"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "     \
        "[%0], [%1], %2, [%3];\" :: \"r\"(m_near(to)), \"l\"(from), \"r\"(bytes), "                 \
        "\"r\"(m_near(b)) : \"memory\");\n"                                                         \
        "}\n",                                                                                      \
        "M_FN void m_await(m_ulong *b, m_int turn) {\n"                                             \
        "    m_uint done;\n"                                                                        \
        "    do {\n"                                                                                \
        "        asm volatile(\"{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], " \
        "%2; selp.u32 %0, 1, 0, p; }\" : \"=r\"(done) : \"r\"(m_near(b)), \"r\"(turn) : "           \
        "\"memory\");\n"                                                                            \
        "    } while (!done);\n"                                                                    \
        "}\n"

// A barrier of all threads of a cluster; and the store of a word into the shared memory of another
// group of it, whose bytes a barrier there counts.
#define TNI_CUDA_CLUSTER                                                                             \
    "M_FN void m_cluster_barrier() {\n"                                                              \
    "    asm volatile(\"barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\" ::: "        \
    "\"memory\");\n"                                                                                 \
    "}\n",                                                                                           \
        "M_FN m_uint m_far(const void *p, m_int rank) {\n"                                           \
        "    m_uint y;\n"                                                                            \
        "    asm volatile(\"mapa.shared::cluster.u32 %0, %1, %2;\" : \"=r\"(y) : \"r\"(m_near(p)), " \
        "\"r\"(rank));\n"                                                                            \
        "    return y;\n"                                                                            \
        "}\n",                                                                                       \
        "M_FN void m_tell(m_ulong *p, m_int rank, m_ulong v, m_ulong *b) {\n"                        \
        "    asm volatile(\"st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, "    \
        "[%2];\" :: \"r\"(m_far(p, rank)), \"l\"(v), \"r\"(m_far(b, rank)) : \"memory\");\n"         \
        "}\n"

// Begins every kernel (programmatic dependent launch). The next kernel of the stream may be
// scheduled while this one still runs; this one waits, before it touches memory, until all work
// before it is done and visible. So the next kernel is resident when the last group of this one
// ends.
#define TNI_CUDA_BEGIN                                                          \
    "M_FN void m_begin() {\n"                                                   \
    "#if __CUDA_ARCH__ >= 900\n"                                                \
    "    asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n" \
    "    asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"              \
    "#endif\n"                                                                  \
    "}\n"

// Counts a group at p and returns how many were counted before. By one thread of the group, between
// two barriers: what the group stored before the first is seen by groups that are counted later,
// behind their second.
#define TNI_CUDA_ARRIVE                                                                    \
    "M_FN m_uint m_arrive(void *p) {\n"                                                    \
    "    m_uint y;\n"                                                                      \
    "#if __CUDA_ARCH__ >= 700\n"                                                           \
    "    asm volatile(\"atom.acq_rel.gpu.add.u32 %0, [%1], 1;\" : \"=r\"(y) : \"l\"(p) : " \
    "\"memory\");\n"                                                                       \
    "#else\n"                                                                              \
    "    __threadfence();\n"                                                               \
    "    y = atomicAdd((m_uint *)p, 1u);\n"                                                \
    "    __threadfence();\n"                                                               \
    "#endif\n"                                                                             \
    "    return y;\n"                                                                      \
    "}\n"

// Takes the next of `all` tickets at p; the last one puts the count back to zero.
#define TNI_CUDA_TICKET \
    "M_FN m_uint m_ticket(void *p, m_uint all) { return atomicInc((m_uint *)p, all - 1); }\n"

// Brings a line to the cache that all multiprocessors share, where every write is seen: it can be
// asked for while another kernel still writes it.
#define TNI_CUDA_PREFETCH                                                        \
    "M_FN void m_prefetch(const void *p) {\n"                                    \
    "    asm volatile(\"prefetch.global.L2 [%0];\" :: \"l\"(p) : \"memory\");\n" \
    "}\n"

#define TNI_CUDA_SPELLINGS                                                                      \
    TNI_CUDA_EXTREME("m_max_f", "max", ">"), TNI_CUDA_EXTREME("m_min_f", "min", "<"),           \
        TNI_CUDA_PAIR("max", "bf16", "bf16"), TNI_CUDA_PAIR("min", "bf16", "bf16"),             \
        TNI_CUDA_PAIR("max", "half", "f16"), TNI_CUDA_PAIR("min", "half", "f16"), TNI_CUDA_EXP, \
        TNI_CUDA_FAST("m_ex2_f", "ex2.approx.ftz"), TNI_CUDA_FAST("m_rcp_f", "rcp.approx.ftz"), \
        TNI_CUDA_FAST("m_ex2_all_f", "ex2.approx"), TNI_CUDA_FAST("m_rsq_f", "rsqrt.approx"),   \
        TNI_CUDA_EXP_BELOW, TNI_CUDA_EXP_COARSE, TNI_CUDA_GELU_COARSE, TNI_CUDA_SLOPE_COARSE,   \
        TNI_CUDA_SLOPE_BF16, TNI_CUDA_TANH, TNI_CUDA_ERF, TNI_CUDA_RSQRT, TNI_CUDA_DIV_BY,      \
        TNI_CUDA_TO_BF16, TNI_CUDA_HALVES, TNI_CUDA_COLUMN, TNI_CUDA_PUT, TNI_CUDA_BULK,        \
        TNI_CUDA_CLUSTER, TNI_CUDA_BEGIN, TNI_CUDA_PREFETCH, TNI_CUDA_ARRIVE, TNI_CUDA_TICKET

#endif
