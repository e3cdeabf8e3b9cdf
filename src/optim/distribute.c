// Training with several ranks: the blocks of parameters are buckets, whose gradients are one tensor
// each already, so the mean over ranks is one collective for each, which runs beside the rest of
// the backward pass. Everything after it is computed by every rank alike; or, if state is sharded,
// each rank has a part of every bucket:
//
//   g = reduce_scatter(gradients)    p = the rule, on this rank's part    parameters = all_gather(p)
#include "optim/update.h"
#include "base/hash.h"
#include "dist/world.h"

#include <string.h>

// The parts of a block together, with zeros behind its end.
static int64_t padded_size(const tn_optim *o, const tni_flat *f)
{
    return f->part * tn_dist_size(o->dist);
}

// Appends zeros to a tensor of one axis.
static tn_tensor *padded(tn_tensor *x, int64_t size)
{
    if (!x || tn_size(x, 0) == size) return x;
    return tn_pad(x, (int64_t[]){ 0 }, (int64_t[]){ size - tn_size(x, 0) }, 0);
}

static tn_tensor *flat_of(tn_tensor *x)
{
    return x && tn_rank(x) != 1 ? tn_reshape(x, TN_SHAPE(tn_count(x))) : x;
}

tn_tensor *tni_flat_part(const tn_optim *o, const tni_flat *f, tn_tensor *whole)
{
    if (!whole || !f->part) return whole;
    int64_t from = tn_dist_rank(o->dist) * f->part, to = from + f->part;
    if (from > f->size) from = f->size;
    if (to > f->size) to = f->size;
    tn_tensor *x = flat_of(whole);
    return padded(x ? tn_slice(x, 0, from, to, 1) : NULL, f->part);
}

tn_tensor *tni_flat_whole(const tn_optim *o, const tni_flat *f, tn_tensor *part)
{
    if (!part || !f->part) return part;
    const tn_tensor *p = o->order[f->first]->p;
    tn_tensor       *y = tn_dist_all_gather(o->dist, part, 0);
    if (y && padded_size(o, f) > f->size) y = tn_slice(y, 0, 0, f->size, 1);
    return y && f->count == 1 ? tn_reshape(y, tni_rank(p), tni_sizes(p)) : y;
}

// The node that is recorded last of a block's gradients, by which the order is known in which the
// backward pass finishes them.
static uint64_t finished_at(const tn_optim *o, const tni_flat *f)
{
    uint64_t last = 0;
    for (size_t i = 0; i < f->count; i++) {
        const tni_node *n = tni_trained_grad(o->order[f->first + i])->store->node;
        if (n->id > last) last = n->id;
    }
    return last;
}

// Returns the block whose gradients are finished next; NULL if there is none left.
static tni_flat *next_finished(tn_optim *o)
{
    tni_flat *found = NULL;
    uint64_t  least = UINT64_MAX;
    for (size_t i = 0; i < o->flats; i++) {
        tni_flat *f = &o->flat[i];
        if (!f->g || f->summed || finished_at(o, f) >= least) continue;
        found = f;
        least = finished_at(o, f);
    }
    return found;
}

static bool sum_block(const tn_optim *o, tni_flat *f)
{
    if (!f->part) return (f->g = tn_dist_all_reduce(o->dist, f->g, TN_REDUCE_SUM)) != NULL;
    tn_tensor *g = padded(flat_of(f->g), padded_size(o, f));
    return g && (f->g = tn_dist_reduce_scatter(o->dist, g, 0, TN_REDUCE_SUM)) != NULL;
}

// The sum only: the number of ranks is part of the factor that averages accumulated steps. Blocks
// go in the order in which they are finished.
bool tni_gradients_sum_ranks(tn_optim *o)
{
    if (!tni_dist_is_real(o->dist)) return true;
    for (size_t i = 0; i < o->flats; i++) o->flat[i].summed = false;
    for (tni_flat *f; (f = next_finished(o)) != NULL; f->summed = true)
        if (!sum_block(o, f)) return false;
    return true;
}

// ---- beginning alike ---------------------------------------------------------------------------

// What has to be equal on all ranks, in words: what differs in more than these shows in the last of
// them, a hash.
static tni_text settings_text(const tn_optim *o, tn_distribute_opts opts)
{
    const tn_schedule *c        = &o->schedule;
    const double       number[] = { o->lr,         o->beta1,        o->beta2,         o->alpha,
                                    o->eps,        o->momentum,     o->dampening,     o->weight_decay,
                                    o->clip_norm,  o->clip_value,   c->floor,         c->factor,
                                    o->loss_scale, o->scale_growth, o->scale_backoff, o->decay,
                                    o->first,      o->ema };
    const int64_t      count[]  = { o->nesterov,     o->centered, o->match_rms,      o->no_master,
                                    o->accumulate,   o->micro,    c->kind,           c->warmup,
                                    c->total,        c->every,    o->scale_interval, opts.bucket_bytes,
                                    opts.shard_state };
    uint64_t h = tni_hash_mix(tni_hash(number, sizeof number), tni_hash(count, sizeof count));
    for (size_t i = 0; i < o->slots; i++) {
        const tni_trained *s        = &o->slot[i];
        const double       group[3] = { s->lr_scale, s->weight_decay, s->vector };
        h                           = tni_hash_mix(h, tni_hash(s->name, strlen(s->name)));
        h                           = tni_hash_mix(h, tni_hash(group, sizeof group));
    }
    return tni_text_of("optim_distribute %s lr %g of %zu, settings %08x", o->rule->name, o->lr,
                       o->slots, (unsigned)(h ^ h >> 32));
}

// Fails on all ranks if they have other settings, or one could not finish what it had recorded
// before.
static bool agree_on_settings(tn_optim *o, tn_distribute_opts opts)
{
    tn_ctx  *cx = o->owned.cx;
    tni_text why, text = settings_text(o, opts);
    bool     ok = cx->flush(cx) == TN_OK;
    if (tni_dist_agree(o->dist, text.s, ok ? NULL : tn_error_text(cx), &why)) return true;
    return ok && tni_refuse(cx, TN_EARG, "optim_distribute: %s", why.s);
}

// An optimizer's counts: its updates, then of each slot its updates and a bit for every state that
// it has.
static void take_counts(const tn_optim *o, int64_t *count)
{
    count[0] = o->updates;
    for (size_t i = 0; i < o->slots; i++) {
        const tni_trained *s = &o->slot[i];
        count[1 + 2 * i]     = s->updates;
        count[2 + 2 * i]     = 0;
        for (int k = 0; k < TNI_STATES; k++)
            count[2 + 2 * i] |= (int64_t)(s->state[k] != NULL) << k;
    }
}

// Gives a slot rank 0's states; those that rank 0 has not are removed.
static bool share_states(tn_optim *o, tni_trained *s, int64_t has)
{
    tn_ctx  *cx = o->owned.cx;
    tn_dtype dt = tni_state_dtype(s->p);
    for (int k = 0; k < TNI_STATES; k++) {
        tn_tensor *x = s->state[k], *y = NULL;
        if (has >> k & 1) {
            if (!x) x = tn_zeros(cx, dt, tni_rank(s->p), tni_sizes(s->p));
            y = tn_dist_broadcast(o->dist, x && tni_dtype(x) != dt ? tn_cast(x, dt) : x, 0);
            if (!y || tn_eval_of(y) != TN_OK) return false;
        }
        tni_state_set(o, s, k, y);
    }
    return true;
}

// Gives all ranks rank 0's counts and state. There is no earlier update to roll back to: since is
// 0.
static bool share_counts(tn_optim *o, int64_t *count)
{
    int64_t    n = 1 + 2 * (int64_t)o->slots;
    tn_tensor *x = tn_from(o->owned.cx, TN_I64, TN_SHAPE(n), count);
    tn_tensor *y = tn_dist_broadcast(o->dist, x, 0);
    if (!y || tn_read(y, TN_I64, count, n) != TN_OK) return false;
    o->updates = count[0];
    for (size_t i = 0; i < o->slots; i++) {
        tni_trained *s = &o->slot[i];
        s->updates = s->before = count[1 + 2 * i];
        s->since               = 0;
        if (!share_states(o, s, count[2 + 2 * i])) return false;
    }
    return true;
}

// Before blocks are made, since slots of a block have the same number of updates.
static bool share_state(tn_optim *o, tn_distribute_opts opts)
{
    tn_ctx *cx = o->owned.cx;
    if (tn_dist_size(o->dist) == 1) return true;
    if (!agree_on_settings(o, opts)) return false;
    int64_t *count = tni_alloc(&cx->heap, (1 + 2 * o->slots) * sizeof *count);
    if (!count) return tni_fail_memory(cx, "optim_distribute") != NULL;
    tn_scope *s = tn_begin(cx);
    if (s) cx->grad_mode = false;
    if (s) cx->autocast = TN_F32;
    take_counts(o, count);
    bool ok = s && share_counts(o, count);
    if (s) tni_scope_close(s);
    tni_free(&cx->heap, count);
    return ok;
}

// Records rank 0's value of every parameter on all ranks, and of what loss scaling keeps.
static bool record_first_values(tn_optim *o)
{
    for (int i = 0; i < TNI_SCALING && o->scaling[i]; i++) {
        tn_tensor *first = tn_dist_broadcast(o->dist, o->scaling[i], 0);
        if (!first || !tn_assign(o->scaling[i], first)) return false;
    }
    for (size_t i = 0; i < o->flats; i++) {
        tn_tensor *p = tni_flat_params(o, &o->flat[i]), *first = tn_dist_broadcast(o->dist, p, 0);
        if (!first || !tni_flat_spread(o, &o->flat[i], TNI_PARAM, first)) return false;
    }
    return true;
}

// Cuts the parameters into buckets for a world, or joins them again. One rank with an engine, which
// has no one to wait for, has buckets only if they are asked for.
static bool make_buckets(tn_optim *o, tn_dist *d, tn_distribute_opts opts)
{
    // On GPUs as PyTorch has it; between processes of CPUs a bucket of 4 MiB is as fast a byte, and
    // the last one, which nothing covers, is smaller.
    enum { ON_GPUS = 25 << 20, ON_CPUS = 4 << 20 };
    bool    real  = tni_dist_is_real(d);
    int64_t usual = tn_dist_size(d) == 1 ? 0 : tni_dist_streams(d) ? ON_GPUS : ON_CPUS;
    if (!tni_optim_whole(o)) return false;
    o->dist = d;
    if (real && !share_state(o, opts)) return false;
    o->shard_state  = real && opts.shard_state;
    o->bucket_bytes = !real ? 0 : opts.bucket_bytes ? opts.bucket_bytes : usual;
    return tni_flats_place(o);
}

// The first values are computed here, so that a rank with another network is found before the first
// step.
tn_status tn_optim_distribute(tn_optim *o, tn_dist *d, tn_distribute_opts opts)
{
    tn_ctx *cx = tni_record_ready("optim_distribute", o);
    if (!cx) return tni_failed();
    // A program that does not look would train alone, beside others that do.
    if (!d && cx->fault.code && cx->fault.site.op && !strcmp(cx->fault.site.op, "dist_open"))
        return tni_fail_status(cx, TN_EARG,
                               "optim_distribute: there is no world, since dist_open failed");
    if (d && !tni_owned_ok("optim_distribute", d, TNI_DIST)) return tni_failed();
    if (d && ((tni_owned *)d)->cx != cx)
        return tni_fail_status(cx, TN_EARG,
                               "optim_distribute: the world belongs to another context");
    if (opts.bucket_bytes < 0)
        return tni_fail_status(cx, TN_EARG, "optim_distribute: bucket_bytes is %lld",
                               (long long)opts.bucket_bytes);
    if (opts.shard_state && tni_takes_whole(o))
        return tni_fail_status(cx, TN_EARG,
                               "optim_distribute: %s needs whole parameters, which a rank does not "
                               "have with shard_state",
                               o->rule->whole ? o->rule->name : "clip_each");
    if (o->lbfgs) return tni_fail_status(cx, TN_EARG, "optim_distribute: lbfgs is for one process");
    if (!make_buckets(o, d, opts))
        return tn_dist_size(d) > 1 ? tni_record_give_up(o) : tni_failed();
    if (!tni_dist_is_real(d)) return TN_OK;
    tn_scope *s  = tni_record_begin(cx);
    bool      ok = s && record_first_values(o);
    if (s) tni_record_end(s);
    return ok ? cx->flush(cx) : tni_record_give_up(o);
}
