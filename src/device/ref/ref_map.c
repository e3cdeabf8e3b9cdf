// Maps: the expressions of ops.def in double, int64 and uint64, by the host's functions.
#include "ref.h"

#include <math.h>

// Returns an element as a double: the condition of `where`, a bool, too.
static double float_at(const tni_arg *x, const int64_t *at)
{
    tni_cell v = tni_cells(x)[tni_ref_offset(x, at)];
    return tni_is_float(x->dtype) ? v.f : (double)v.i;
}

static int64_t int_at(const tni_arg *x, const int64_t *at)
{
    return tni_cells(x)[tni_ref_offset(x, at)].i;
}

// Maps in double. A comparison gives 0 or 1 of a bool. Nothing is rounded: the result may have more
// digits than its dtype, so that an error of one op does not hide that of the next.
static void map_floats(const tni_call *c)
{
    tni_cell *y = tni_cells(&c->out);
    for (tni_ref_walk w = tni_ref_walk_over(c->out.rank, c->out.size); w.left;
         tni_ref_walk_next(&w), y++) {
        double x[3] = { 0 };
        for (int k = 0; k < c->nin; k++) x[k] = float_at(&c->in[k], w.at);
        double v = tni_map_f(c->op, x[0], x[1], x[2]);
        // The one map that asks how many digits there are.
        if (c->op == TNI_nextafter && c->out.dtype == TN_F32)
            v = nextafterf((float)x[0], (float)x[1]);
        *y = tni_is_float(c->out.dtype) ? (tni_cell){ .f = v } : (tni_cell){ .i = v != 0 };
    }
}

// Maps in 64 bits, then wraps to the dtype. bits, the width that the dtype is computed in, is where
// shifts end.
static void map_ints(const tni_call *c, tn_dtype dt)
{
    // Turning the bits of a bool over is no wrapping matter: ~1 is not 0.
    int       op   = c->op == TNI_bit_not && dt == TN_BOOL ? TNI_logical_not : c->op;
    int       bits = 8 * (int)tni_dtype_size(tni_compute_dtype(dt));
    tni_cell *y    = tni_cells(&c->out);
    for (tni_ref_walk w = tni_ref_walk_over(c->out.rank, c->out.size); w.left;
         tni_ref_walk_next(&w), y++) {
        int64_t x[3] = { 0 };
        for (int k = 0; k < c->nin; k++) x[k] = int_at(&c->in[k], w.at);
        int64_t v = dt == TN_U64 ? (int64_t)tni_map_u(op, (uint64_t)x[0], (uint64_t)x[1],
                                                      (uint64_t)x[2], bits)
                                 : tni_map_i(op, x[0], x[1], x[2], bits);
        y->i      = tni_ref_wrap(c->out.dtype, v);
    }
}

void tni_ref_map(const tni_call *c)
{
    tn_dtype dt = c->in[c->nin - 1].dtype;  // the last: the first of `where` is always bool
    if (tni_is_float(dt)) map_floats(c);
    else map_ints(c, dt);
}
