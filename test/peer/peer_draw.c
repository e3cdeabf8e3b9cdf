// peer_draw.c: the generator. A program begins with data; then ops of the table are proposed and
// kept where they are admitted, and in the end gradients are taken.
#include "peer.h"

#include <string.h>

int64_t peer_pick(peer_draw *d, int64_t n)
{
    return peer_below(&d->random, n);
}

bool peer_maybe(peer_draw *d, int of_100)
{
    return peer_chance(&d->random, of_100);
}

const peer_value *peer_value_of(const peer_draw *d, peer_ref r)
{
    return &d->s->value[r.step][r.out];
}

bool peer_same_value(peer_ref a, peer_ref b)
{
    return a.step == b.step && a.out == b.out;
}

// ---- choosing

// A value that fits, later ones more often: of three draws the latest.
bool peer_pick_value(peer_draw *d, peer_fits *fits, const void *user, peer_ref *r)
{
    peer_ref all[PEER_STEPS * PEER_OUTS];
    int      n = 0;
    for (int i = 0; i < d->p->count; i++)
        for (int k = 0; k < d->p->step[i].outs; k++) {
            const peer_value *v = &d->s->value[i][k];
            if (v->t && (!fits || fits(v, user))) all[n++] = (peer_ref){ i, k };
        }
    if (n == 0) return false;
    int64_t at = peer_pick(d, n), other = peer_pick(d, n);
    *r = all[peer_maybe(d, 50) && other > at ? other : at];
    return true;
}

static bool suits(const peer_value *v, const void *row)
{
    unsigned needs = ((const peer_row *)row)->needs;
    if ((needs & NEEDS_FLOAT) && !peer_is_float(v->dtype)) return false;
    if ((needs & NEEDS_INT) && peer_is_float(v->dtype)) return false;
    if ((needs & NO_BOOL) && v->dtype == TN_BOOL) return false;
    if ((needs & NEEDS_EXACT) && !v->exact) return false;
    return true;
}

bool peer_pick_input(peer_draw *d, peer_step *s, int i)
{
    if (s->nin <= i) s->nin = i + 1;
    if (!peer_maybe(d, 4) && peer_pick_value(d, suits, s->row, &s->in[i])) return true;
    int64_t  size[TN_MAX_RANK];
    int      rank  = peer_new_shape(d, size);
    unsigned needs = s->row->needs;
    tn_dtype dt    = peer_new_dtype(d);
    if ((needs & NEEDS_FLOAT) && !peer_is_float(dt)) dt = TN_F32;
    if ((needs & NEEDS_INT) && peer_is_float(dt)) dt = TN_I64;
    s->in[i] = needs & NEEDS_POSITIVE ? peer_new_data(d, dt, rank, size, LAW_POSITIVE, 0)
                                      : peer_new_like(d, dt, rank, size);
    return s->in[i].step >= 0;
}

// Mostly a few small axes; now and then a long one, one of nothing, or none.
int peer_new_shape(peer_draw *d, int64_t *size)
{
    int     rank = (int)peer_pick(d, 5);
    int64_t room = peer_maybe(d, 4) ? 3000 : 200, n = 1;
    if (rank == 0 && peer_maybe(d, 70)) rank = 2;
    for (int i = 0; i < rank; i++) {
        size[i] = 1 + peer_pick(d, 6);
        if (peer_maybe(d, 5)) size[i] = 1 + peer_pick(d, 40);
        if (room == 3000 && peer_maybe(d, 50)) size[i] = 1 + peer_pick(d, 300);
        if (n * size[i] > room) size[i] = 1;
        n *= size[i];
    }
    if (rank > 0 && peer_maybe(d, 1)) size[peer_pick(d, rank)] = 0;
    return rank;
}

tn_dtype peer_new_dtype(peer_draw *d)
{
    static const tn_dtype often[] = { TN_F32, TN_F32, TN_F32,  TN_F32, TN_F32,
                                      TN_F32, TN_F64, TN_F64,  TN_F16, TN_BF16,
                                      TN_I64, TN_I32, TN_BOOL, TN_U8,  TN_I8 };
    return often[peer_pick(d, sizeof often / sizeof *often)];
}

// ---- data

static peer_ref add_data(peer_draw *d, peer_step s)
{
    peer_program *p = d->p;
    if (p->count >= PEER_STEPS - 1 || peer_count(s.n, s.list) > PEER_MOST)
        return (peer_ref){ -1, 0 };
    s.row             = &peer_data_row;
    s.outs            = 1;
    s.seed            = peer_next(&d->random);
    p->step[p->count] = s;
    if (!peer_admit(d->s, p, p->count)) return (peer_ref){ -1, 0 };
    return (peer_ref){ p->count++, 0 };
}

peer_ref peer_new_data(peer_draw *d, tn_dtype dt, int rank, const int64_t *size, peer_law law,
                       int64_t bound)
{
    peer_step s = { .dtype = dt, .n = rank, .law = law, .bound = bound };
    if (rank > 0) memcpy(s.list, size, (size_t)rank * sizeof *size);
    s.leaf = peer_is_float(dt) && !d->p->odd && law != LAW_ODD && peer_maybe(d, 60);
    return add_data(d, s);
}

peer_ref peer_new_places(peer_draw *d, int rank, const int64_t *size, int axis, int64_t bound)
{
    peer_step s = { .dtype = TN_I64, .n = rank, .law = LAW_PLACES, .axis = axis, .bound = bound };
    memcpy(s.list, size, (size_t)rank * sizeof *size);
    return add_data(d, s);
}

// Data of any law that a dtype and a number of elements can have.
peer_ref peer_new_like(peer_draw *d, tn_dtype dt, int rank, const int64_t *size)
{
    peer_law laws[] = { LAW_GRID, LAW_GRID, LAW_SMOOTH, LAW_SMOOTH, LAW_POSITIVE, LAW_DISTINCT };
    peer_law law    = laws[peer_pick(d, 6)];
    int64_t  n      = peer_count(rank, size),
            most    = (int64_t)1 << (peer_digits(dt) < 12 ? peer_digits(dt) : 12);
    if (law == LAW_DISTINCT && n > most / 2) law = LAW_GRID;
    if (d->p->odd && peer_is_float(dt) && peer_maybe(d, 60)) law = LAW_ODD;
    return peer_new_data(d, dt, rank, size, law, 0);
}

// ---- steps

// Names of ops, with spaces between, that no program has.
static const char *left_out = "";

void peer_leave_out(const char *names)
{
    left_out = names;
}

static bool is_left_out(const char *name)
{
    size_t n = strlen(name);
    for (const char *at = left_out; (at = strstr(at, name)) != NULL; at++)
        if ((at == left_out || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) return true;
    return false;
}

static const peer_row *pick_row(peer_draw *d)
{
    int64_t total = 0;
    for (const peer_row *r = peer_rows; r->name; r++) total += r->weight;
    for (;;) {
        int64_t         at = peer_pick(d, total);
        const peer_row *r  = peer_rows;
        while ((at -= r->weight) >= 0) r++;
        if (!is_left_out(r->name)) return r;
    }
}

// The state of the program as it is, after a write that was refused has left its traces.
static bool start_again(peer_draw *d)
{
    peer_open_state(d->s, d->s->cx);
    for (int i = 0; i < d->p->count; i++)
        if (!peer_admit(d->s, d->p, i)) return false;
    return true;
}

// Proposes a step; whether it was kept. A refusal by Tenon itself is told.
static bool propose(peer_draw *d, const peer_row *row)
{
    peer_program *p      = d->p;
    int           before = p->count;
    peer_step     s      = { .row = row, .outs = 1 };
    s.no_grad            = peer_maybe(d, 4);
    bool drawn           = row->form->draw(d, &s) && p->count < PEER_STEPS;
    d->s->error          = false;
    for (int i = 0; drawn && i < s.nin; i++) drawn = s.in[i].step >= -1;
    if (drawn) {
        p->step[p->count] = s;
        if (peer_admit(d->s, p, p->count)) {
            p->count++;
            return true;
        }
        if (d->s->error) {
            p->count++;
            return false;
        }
    }
    p->count = before;
    if (row->needs & WRITES) start_again(d);
    return false;
}

static void first_data(peer_draw *d)
{
    for (int n = 1 + (int)peer_pick(d, 3); n > 0; n--) {
        int64_t size[TN_MAX_RANK];
        int     rank = peer_new_shape(d, size);
        peer_new_like(d, peer_new_dtype(d), rank, size);
    }
}

static bool needs_gradient(const peer_value *v, const void *user)
{
    (void)user;
    return peer_is_float(v->dtype) && tn_needs_grad(v->t);
}

// Gradients, and gradients of those.
static bool take_gradients(peer_draw *d)
{
    peer_ref r;
    for (int n = peer_maybe(d, 40) ? 2 : 1; n > 0; n--) {
        if (!peer_pick_value(d, needs_gradient, NULL, &r)) return true;
        if (!propose(d, &peer_grad_row) && d->s->error) return false;
        if (peer_maybe(d, 30) && !propose(d, pick_row(d)) && d->s->error) return false;
    }
    return true;
}

// What is read in the end: what nothing uses, and some of the rest.
static void choose_wanted(peer_draw *d)
{
    peer_program *p = d->p;
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < p->step[i].outs; k++) {
            bool used = false;
            for (int j = i + 1; j < p->count; j++)
                for (int m = 0; m < p->step[j].nin; m++)
                    used |= peer_same_value(p->step[j].in[m], (peer_ref){ i, k });
            p->step[i].wanted[k] = !used ? p->step[i].row != &peer_data_row : peer_maybe(d, 25);
        }
}

// False when Tenon refused a step, which is the last of the program then, or could not be asked.
bool peer_generate(peer_program *p, uint64_t seed, tn_ctx *ref, char *why)
{
    static peer_state state;
    peer_draw         d = { .p = p, .s = &state, .random = seed };
    memset(p, 0, sizeof *p);
    p->seed          = seed;
    p->odd           = peer_maybe(&d, 8);
    p->one_step      = peer_maybe(&d, 60);
    tn_scope *s      = tn_begin(ref);
    bool      ok     = peer_open_state(&state, ref);
    int       length = 2 + (int)peer_pick(&d, 11);
    first_data(&d);
    for (int tries = 0; ok && tries < 12 * length && length > 0 && p->count < PEER_STEPS - 10;
         tries++) {
        if (propose(&d, pick_row(&d))) length--;
        else ok = !d.s->error;
    }
    if (ok && !p->odd) ok = take_gradients(&d);
    choose_wanted(&d);
    if (!ok) snprintf(why, PEER_TEXT, "%s", state.why);
    tn_end(s);
    tn_error_clear(ref);
    return ok;
}
