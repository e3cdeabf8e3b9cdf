// peer_shrink.c: a failing program made small. One change after the other is tried, and kept if the
// program is still admitted and still fails, until none is.
#include "peer.h"

#include <string.h>

typedef struct {
    peer_program *p;
    tn_ctx       *ref;
    peer_fails   *fails;
    void         *user;
} shrinker;

// ---- keeping a program whole

static bool is_used(const peer_program *p, int step)
{
    for (int k = 0; k < p->step[step].outs; k++)
        if (p->step[step].wanted[k]) return true;
    for (int i = step + 1; i < p->count; i++)
        for (int m = 0; m < p->step[i].nin; m++)
            if (p->step[i].in[m].step == step) return true;
    return false;
}

static void take_out(peer_program *p, int step)
{
    memmove(&p->step[step], &p->step[step + 1], (size_t)(p->count - step - 1) * sizeof *p->step);
    p->count--;
    for (int i = step; i < p->count; i++)
        for (int m = 0; m < p->step[i].nin; m++)
            if (p->step[i].in[m].step > step) p->step[i].in[m].step--;
}

// Takes out what nothing asks for; writes and reads stay, they are taken out on purpose.
void peer_prune(peer_program *p)
{
    for (int i = p->count - 1; i >= 0; i--)
        if (p->step[i].outs > 0 && !is_used(p, i)) take_out(p, i);
}

// Keeps a change if the program is admitted and fails with it.
static bool keep(shrinker *s, peer_program *changed)
{
    peer_prune(changed);
    bool any = false;
    for (int i = 0; i < changed->count; i++)
        for (int k = 0; k < changed->step[i].outs; k++) any |= changed->step[i].wanted[k];
    if (!any || !peer_admit_all(s->ref, changed, NULL) || !s->fails(changed, s->user)) return false;
    *s->p = *changed;
    return true;
}

// ---- changes

static bool fewer_outputs(shrinker *s)
{
    bool done = false;
    for (int i = 0; i < s->p->count; i++)
        for (int k = 0; i < s->p->count && k < s->p->step[i].outs; k++) {
            peer_program c = *s->p;
            if (!c.step[i].wanted[k]) continue;
            c.step[i].wanted[k] = false;
            done |= keep(s, &c);
        }
    return done;
}

static void only(peer_program *p, int step, int out)
{
    for (int i = 0; i < p->count; i++) memset(p->step[i].wanted, 0, sizeof p->step[i].wanted);
    p->step[step].wanted[out] = true;
}

// Another value is the only one that is wanted, and what it does not need goes.
static bool another_output(shrinker *s)
{
    for (int i = 0; i < s->p->count; i++)
        for (int k = 0; k < s->p->step[i].outs; k++) {
            peer_program c = *s->p;
            only(&c, i, k);
            peer_prune(&c);
            if (c.count < s->p->count && keep(s, &c)) return true;
        }
    return false;
}

// A step that what used it wants: the value it was made from, or new data of its shape.
static void replace_by(peer_program *p, int step, int out, peer_ref by)
{
    for (int i = step + 1; i < p->count; i++)
        for (int m = 0; m < p->step[i].nin; m++)
            if (peer_same_value(p->step[i].in[m], (peer_ref){ step, out })) p->step[i].in[m] = by;
}

static bool without(shrinker *s, int step)
{
    peer_program c = *s->p;
    if (c.step[step].outs == 0) {
        take_out(&c, step);
        if (keep(s, &c)) return true;
        // Nothing may be left that needs what was written: then that is what is wanted.
        c           = *s->p;
        peer_ref to = c.step[step].in[0];
        if (to.step < 0) return false;
        only(&c, to.step, to.out);
        take_out(&c, step);
        return keep(s, &c);
    }
    for (int m = 0; m < s->p->step[step].nin; m++) {
        c = *s->p;
        if (c.step[step].in[m].step < 0) continue;
        peer_ref by     = c.step[step].in[m];
        bool     wanted = false;
        for (int k = 0; k < c.step[step].outs; k++) {
            replace_by(&c, step, k, by);
            wanted |= c.step[step].wanted[k];
            c.step[step].wanted[k] = false;
        }
        if (wanted) c.step[by.step].wanted[by.out] = true;
        if (keep(s, &c)) return true;
    }
    return false;
}

// The shape and dtype of a step's first value, as ref has them.
static bool shape_of(shrinker *s, int step, peer_step *data)
{
    static peer_state state;
    tn_scope         *scope = tn_begin(s->ref);
    bool              ok    = peer_open_state(&state, s->ref);
    for (int i = 0; ok && i <= step; i++) ok = peer_admit(&state, s->p, i);
    const peer_value *v = &state.value[step][0];
    if (ok) {
        *data = (peer_step){
            .row = &peer_data_row, .outs = 1, .dtype = v->dtype, .n = v->rank, .seed = 1
        };
        memcpy(data->list, v->size, sizeof data->list);
        data->law  = v->lo > 0 ? LAW_POSITIVE : v->exact ? LAW_GRID : LAW_SMOOTH;
        data->leaf = peer_is_float(v->dtype) && tn_needs_grad(v->t);
    }
    tn_end(scope);
    tn_error_clear(s->ref);
    return ok;
}

// A step becomes an input.
static bool as_data(shrinker *s, int step)
{
    peer_program c = *s->p;
    peer_step    data;
    if (c.step[step].outs != 1 || c.step[step].row == &peer_data_row) return false;
    if (!shape_of(s, step, &data)) return false;
    data.wanted[0] = c.step[step].wanted[0];
    c.step[step]   = data;
    return keep(s, &c);
}

static bool fewer_steps(shrinker *s)
{
    bool done = false;
    for (int i = s->p->count - 1; i >= 0; i--)
        if (i < s->p->count) done |= without(s, i) || as_data(s, i);
    return done;
}

// Gradients for fewer leaves; the last of them goes.
static bool fewer_leaves(shrinker *s)
{
    bool done = false;
    for (int i = 0; i < s->p->count; i++)
        for (int k = s->p->step[i].nin - 1; i < s->p->count && k >= 2 * s->p->step[i].ny; k--) {
            peer_program c   = *s->p;
            peer_step   *t   = &c.step[i];
            int          out = k - 2 * t->ny;
            if (t->row != &peer_grad_row || t->outs < 2) break;
            replace_by(&c, i, out, (peer_ref){ -2, 0 });
            for (int m = out + 1; m < t->outs; m++) replace_by(&c, i, m, (peer_ref){ i, m - 1 });
            memmove(&t->in[k], &t->in[k + 1], (size_t)(t->nin - k - 1) * sizeof *t->in);
            memmove(&t->wanted[out], &t->wanted[out + 1],
                    (size_t)(t->outs - out - 1) * sizeof *t->wanted);
            t->nin--;
            t->outs--;
            done |= keep(s, &c);
        }
    return done;
}

static bool resize(shrinker *s, int64_t from, int64_t to)
{
    peer_program c = *s->p;
    for (int i = 0; i < c.count; i++) {
        peer_step *t     = &c.step[i];
        bool       sized = t->row == &peer_data_row || t->row->form == &form_expand ||
                     t->row->form == &form_reshape;
        for (int k = 0; sized && k < t->n; k++)
            if (t->list[k] == from) t->list[k] = to;
        if (t->bound == from) t->bound = to;
    }
    return keep(s, &c);
}

// One axis of one input, for where only that may change.
static bool resize_one(shrinker *s, int step, int axis, int64_t to)
{
    peer_program c = *s->p;
    if (c.step[step].list[axis] <= to) return false;
    c.step[step].list[axis] = to;
    return keep(s, &c);
}

static bool smaller_shapes(shrinker *s)
{
    bool done = false;
    for (int i = 0; i < s->p->count; i++)
        for (int k = 0; i < s->p->count && k < s->p->step[i].n; k++) {
            int64_t n = s->p->step[i].list[k];
            if (s->p->step[i].row != &peer_data_row || n < 2) continue;
            done |= resize(s, n, 1) || resize(s, n, 2) || resize(s, n, n / 2) ||
                    resize(s, n, n - 1) || resize_one(s, i, k, 1) || resize_one(s, i, k, n - 1);
        }
    return done;
}

static bool fewer_axes(shrinker *s)
{
    bool done = false;
    for (int i = 0; i < s->p->count; i++) {
        peer_program c = *s->p;
        peer_step   *t = &c.step[i];
        if (t->row != &peer_data_row || t->n == 0 || t->list[0] != 1) continue;
        memmove(t->list, t->list + 1, sizeof t->list - sizeof *t->list);
        t->n--;
        done |= keep(s, &c);
    }
    return done;
}

// All inputs of a dtype in a simpler one, and each alone.
static bool simpler_dtypes(shrinker *s)
{
    bool done = false;
    for (int dt = TN_BOOL; dt <= TN_F64; dt++) {
        tn_dtype     to      = peer_is_float((tn_dtype)dt) ? TN_F32 : TN_I64;
        peer_program c       = *s->p;
        bool         changed = false;
        for (int i = 0; i < c.count; i++)
            if (c.step[i].dtype == (tn_dtype)dt && c.step[i].row == &peer_data_row &&
                to != (tn_dtype)dt)
                c.step[i].dtype = to, changed = true;
        if (changed) done |= keep(s, &c);
    }
    return done;
}

static bool simpler_data(shrinker *s)
{
    bool done = false;
    for (int i = 0; i < s->p->count; i++) {
        peer_program c = *s->p;
        if (c.step[i].no_grad) {
            c.step[i].no_grad = false;
            done |= keep(s, &c);
        }
        c = *s->p;
        if (i < c.count && c.step[i].leaf) {
            c.step[i].leaf = false;
            done |= keep(s, &c);
        }
        c = *s->p;
        if (i < c.count && c.step[i].law == LAW_SMOOTH && c.step[i].row == &peer_data_row) {
            c.step[i].law = LAW_GRID;
            done |= keep(s, &c);
        }
    }
    peer_program c = *s->p;
    if (c.one_step) {
        c.one_step = false;
        done |= keep(s, &c);
    }
    return done;
}

void peer_shrink(peer_program *p, tn_ctx *ref, peer_fails *fails, void *user)
{
    shrinker s = { p, ref, fails, user };
    // Each round costs a run for each step and axis; what is not small by then hardly gets smaller.
    for (int round = 0; round < 12; round++) {
        bool done = fewer_outputs(&s);
        done |= another_output(&s);
        done |= fewer_steps(&s);
        done |= fewer_leaves(&s);
        done |= smaller_shapes(&s);
        done |= fewer_axes(&s);
        done |= simpler_dtypes(&s);
        done |= simpler_data(&s);
        if (!done) return;
    }
}
