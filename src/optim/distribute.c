// Training with several ranks: the gradient of a block is one tensor already, so the mean over ranks is one
// collective for each block, and everything after it is computed by every rank alike.
#include "optim/update.h"

// The sum only: the number of ranks is part of the factor that averages accumulated steps.
bool tni_gradients_sum_ranks(tn_optim *o)
{
    if (tn_dist_size(o->dist) == 1) return true;
    for (size_t i = 0; i < o->flats; i++) {
        tn_tensor *g = o->flat[i].g;
        if (g && !(o->flat[i].g = tn_dist_all_reduce(o->dist, g, TN_REDUCE_SUM))) return false;
    }
    return true;
}

// Records rank 0's value of every parameter on all ranks.
static bool record_first_values(tn_optim *o)
{
    for (size_t i = 0; i < o->slots; i++) {
        tn_tensor *p = o->slot[i].p, *first = tn_dist_broadcast(o->dist, p, 0);
        if (!first || !tn_assign(p, first)) return false;
    }
    return true;
}

// The first values are computed here, so that a rank with another network is found before the first step.
tn_status tn_optim_distribute(tn_optim *o, tn_dist *d)
{
    tn_ctx *cx = tni_record_ready("optim_distribute", o);
    if (!cx) return tni_failed();
    if (d && !tni_owned_ok("optim_distribute", d, TNI_DIST)) return tni_failed();
    if (d && ((tni_owned *)d)->cx != cx)
        return tni_fail_status(cx, TN_EARG,
                               "optim_distribute: the world belongs to another context");
    o->dist = d;
    if (tn_dist_size(d) == 1) return TN_OK;
    tn_scope *s  = tni_record_begin(cx);
    bool      ok = s && record_first_values(o);
    if (s) tni_record_end(s);
    return ok ? cx->flush(cx) : tni_record_give_up(o);
}
