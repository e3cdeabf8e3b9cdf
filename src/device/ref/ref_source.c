// Sources: values that have no inputs. Random numbers are those of the math prelude, bit for bit,
// since they are defined by their bits.
#include "ref.h"

#include "kernel/prelude.h"

// Returns the value of full and scalar, rounded or wrapped to the dtype.
static tni_cell number_cell(const tni_call *c)
{
    if (!tni_is_float(c->out.dtype))
        return (tni_cell){ .i = tni_ref_wrap(c->out.dtype, c->attr->num.i) };
    return (tni_cell){ .f = tni_ref_round(c->out.dtype, c->attr->num.f) };
}

// Returns start + i * step; integers wrap.
static tni_cell iota_cell(const tni_call *c, int64_t i)
{
    tn_dtype dt = c->out.dtype;
    if (tni_is_float(dt))
        return (tni_cell){ .f = tni_ref_round(dt, c->attr->iota.start + i * c->attr->iota.step) };
    uint64_t v = (uint64_t)c->attr->iota.istart + (uint64_t)i * (uint64_t)c->attr->iota.istep;
    return (tni_cell){ .i = tni_ref_wrap(dt, (int64_t)v) };
}

// Returns element i of uniform or normal. A 16-bit uniform number has the first bits of an f32 one:
// rounding could give 1.
static tni_cell random_cell(const tni_call *c, uint64_t i)
{
    uint64_t key = c->attr->random.key, from = c->attr->random.counter;
    bool     normal = c->op == TNI_normal;
    if (c->out.dtype == TN_F64)
        return (tni_cell){ .f = normal ? m_rand_normal_d(key, from, i)
                                       : m_rand_uniform_d(key, from, i) };
    if (normal)
        return (tni_cell){ .f = tni_ref_round(c->out.dtype, m_rand_normal_f(key, from, i)) };
    uint32_t w = m_rand_bits(key, from, i);
    return (tni_cell){ .f = c->out.dtype == TN_F16    ? m_uniform_f16(w)
                            : c->out.dtype == TN_BF16 ? m_uniform_bf16(w)
                                                      : m_uniform_f(w) };
}

// Returns element i of any source; i counts in row-major order.
static tni_cell source_element(const tni_call *c, int64_t i)
{
    switch (c->op) {
    case TNI_iota: return iota_cell(c, i);
    case TNI_random_bits:
        return (tni_cell){ .i = m_rand_bits(c->attr->random.key, c->attr->random.counter,
                                            (uint64_t)i) };
    case TNI_uniform:
    case TNI_normal: return random_cell(c, (uint64_t)i);
    default: return number_cell(c);
    }
}

void tni_ref_source(const tni_call *c)
{
    int64_t n = tni_shape_count(c->out.rank, c->out.size);
    for (int64_t i = 0; i < n; i++) tni_cells(&c->out)[i] = source_element(c, i);
}
