// peer_run.c: a program on a device, and whether what it gave agrees with PyTorch.
#include "peer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- running

// Reads a value: integers as i64, floats as f64, which holds them all.
static bool read_value(tn_tensor *t, peer_array *a)
{
    *a = (peer_array){ .dtype = tn_dtype_of(t), .rank = tn_rank(t), .count = tn_count(t) };
    for (int i = 0; i < a->rank; i++) a->size[i] = tn_size(t, i);
    size_t bytes = (size_t)(a->count + 1) * 8;
    if (peer_is_float(a->dtype)) {
        a->x = malloc(bytes);
        return a->x && tn_read(t, TN_F64, a->x, a->count) == TN_OK;
    }
    a->i = malloc(bytes);
    return a->i && tn_read(t, TN_I64, a->i, a->count) == TN_OK;
}

static bool record(const peer_program *p, tn_ctx *cx, tn_tensor *v[][PEER_OUTS])
{
    for (int i = 0; i < p->count; i++) {
        const peer_step *s           = &p->step[i];
        tn_tensor       *x[PEER_INS] = { NULL };
        for (int k = 0; k < s->nin; k++)
            if (s->in[k].step >= 0) x[k] = v[s->in[k].step][s->in[k].out];
        if (peer_call_step(s, cx, x, v[i]) != s->outs) return false;
    }
    return true;
}

static bool read_all(const peer_program *p, tn_tensor *v[][PEER_OUTS], peer_result *r)
{
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < p->step[i].outs; k++)
            if (p->step[i].wanted[k] && !read_value(v[i][k], &r->out[r->count++])) return false;
    return true;
}

bool peer_run(const peer_program *p, tn_ctx *cx, peer_result *r)
{
    tn_tensor *v[PEER_STEPS][PEER_OUTS];
    memset(r, 0, sizeof *r);
    memset(v, 0, sizeof v);
    tn_scope *scope = tn_begin(cx);
    bool      ok    = record(p, cx, v);
    for (int i = 0; ok && p->one_step && i < p->count; i++)
        for (int k = 0; k < p->step[i].outs; k++)
            if (p->step[i].wanted[k]) tn_want(v[i][k]);
    if (ok && p->one_step) ok = tn_eval(cx) == TN_OK;
    if (ok) ok = read_all(p, v, r);
    if (!ok)
        snprintf(r->error, sizeof r->error, "%s", tn_error(cx) ? tn_error_text(cx) : "no memory");
    tn_error_clear(cx);
    tn_end(scope);
    return ok;
}

void peer_free(peer_result *r)
{
    for (int i = 0; i < r->count; i++) {
        free(r->out[i].x);
        free(r->out[i].i);
    }
    r->count = 0;
}

// ---- comparing

// Tenon may be as far from the truth as PyTorch is in the same dtype, times this: the order of a
// sum and what is fused differ. PyTorch's error counts for no less than one unit in the last place
// of the largest element that the value was made from.
enum { TIMES = 8 };

// One unit in the last place of the largest value on the way to a step's: of
// the result's dtype, or, for what was computed in a coarser one, of that. What
// is written may reach any view, so that with a write everything before counts.
static double unit_before(const peer_program *p, int step, const peer_truth *want, double unit)
{
    bool   reached[PEER_STEPS] = { false };
    double most                = 0;
    reached[step]              = true;
    for (int i = 0; i < p->count; i++)
        if (p->step[i].row->needs & WRITES) memset(reached, true, sizeof reached);
    for (int i = p->count - 1; i >= 0; i--) {
        if (!reached[i]) continue;
        bool given = p->step[i].row == &peer_data_row;
        most       = fmax(most, want->large[i] * (given ? unit : fmax(unit, want->unit[i])));
        for (int k = 0; k < p->step[i].nin; k++)
            if (p->step[i].in[k].step >= 0) reached[p->step[i].in[k].step] = true;
    }
    return most;
}

static const char *shape_text(const peer_array *a, char *text, size_t room)
{
    int n = snprintf(text, room, "%s(", tn_dtype_name(a->dtype));
    for (int i = 0; i < a->rank; i++)
        n += snprintf(text + n, room - (size_t)n, i ? ", %lld" : "%lld", (long long)a->size[i]);
    snprintf(text + n, room - (size_t)n, ")");
    return text;
}

static double allowed(const peer_program *p, int step, const peer_truth *want, int n)
{
    tn_dtype dt   = want->own.out[n].dtype;
    double   unit = ldexp(1, 1 - peer_digits(dt));
    // Below the smallest normal number a unit no longer depends on the magnitude.
    double least = dt == TN_F16 ? 0x1p-14 : dt == TN_F64 ? 0x1p-1022 : 0x1p-126;
    return TIMES * fmax(want->slack[n], fmax(unit_before(p, step, want, unit), unit * least));
}

// NaN and infinities must be where both of PyTorch's runs have them; where these differ, the value
// is about as large as the dtype's largest, and nothing is asked.
static bool element_ok(double have, double own, double best, double limit)
{
    if (isfinite(own) && isfinite(best)) return fabs(have - best) <= limit;
    if (isnan(own) && isnan(best)) return isnan(have);
    return own == best ? have == own : true;
}

static bool floats_agree(const peer_array *h, const peer_array *own, const peer_array *best,
                         double limit, int which, char *text)
{
    for (int64_t i = 0; i < h->count; i++)
        if (!element_ok(h->x[i], own->x[i], best->x[i], limit)) {
            snprintf(text, PEER_TEXT,
                     "value %d, element %lld: Tenon %.17g, PyTorch %.17g, in double "
                     "%.17g; allowed %.3g",
                     which, (long long)i, h->x[i], own->x[i], best->x[i], limit);
            return false;
        }
    return true;
}

static bool arrays_agree(const peer_array *h, const peer_array *own, const peer_array *best,
                         double limit, int which, char *text)
{
    char have[128], want[128];
    shape_text(h, have, sizeof have);
    shape_text(own, want, sizeof want);
    if (strcmp(have, want) != 0) {
        snprintf(text, PEER_TEXT, "value %d: Tenon has %s, PyTorch %s", which, have, want);
        return false;
    }
    if (peer_is_float(h->dtype)) return floats_agree(h, own, best, limit, which, text);
    for (int64_t i = 0; i < h->count; i++)
        if (h->i[i] != own->i[i]) {
            snprintf(text, PEER_TEXT, "value %d, element %lld: Tenon %lld, PyTorch %lld", which,
                     (long long)i, (long long)h->i[i], (long long)own->i[i]);
            return false;
        }
    return true;
}

bool peer_agree(const peer_program *p, const peer_result *have, const peer_truth *want, char *text)
{
    int n = 0;
    if (have->count != want->own.count) {
        snprintf(text, PEER_TEXT, "%d values, of PyTorch %d", have->count, want->own.count);
        return false;
    }
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < p->step[i].outs; k++) {
            if (!p->step[i].wanted[k]) continue;
            const peer_array *own = &want->own.out[n], *best = &want->best.out[n];
            double            limit = allowed(p, i, want, n);
            if (!arrays_agree(&have->out[n], own, best, limit, n, text)) return false;
            n++;
        }
    return true;
}
