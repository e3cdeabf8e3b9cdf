// TN_CHECK=nan: which op made the first NaN or infinity.
//
// Ops run one by one, and each float result is looked at. An op is to blame for a NaN if none went
// into it, and for an infinity if what went into it was finite: what is handed on is not made. What
// goes into an element is, of a map, the same element of its inputs; of a fold along axes, what it
// folds; else all of the inputs. Numbers, data from outside, padding and movement are never to
// blame, so that a mask with -inf is as good as any.
#include "inspect/host_copy.h"
#include "inspect/inspect.h"

#include "device/ref/ref.h"

#include <math.h>

// A result that is looked at, with the inputs it was made from, on the host. seen: what went into
// all of it, where that is what counts.
typedef struct {
    tn_ctx         *cx;
    const tni_node *n;
    const tni_call *c;
    int             rank;  // of the result as it was recorded
    const int64_t  *size;
    tni_arg         out, *in;
    void           *out_room, **in_room;
    bool            looked, seen_nan, seen_inf;
} look;

// ---- what went in ------------------------------------------------------------------------------

// Sets *nan and *inf if a box of input k, from at[] on, has such values.
static void look_at_box(const look *l, int k, const int64_t *at, const int64_t *size, bool *nan,
                        bool *inf)
{
    tni_arg x = l->in[k];
    if (!tni_is_float(x.dtype)) return;
    x.data += tni_ref_offset(&x, at) * (int64_t)sizeof(tni_cell);
    for (tni_ref_walk w = tni_ref_walk_over(x.rank, size); w.left; tni_ref_walk_next(&w)) {
        double v = tni_host_value(&x, w.at);
        *nan |= isnan(v);
        *inf |= isinf(v);
    }
}

// Looks at all inputs, once for the whole call: it is the same for every element.
static void look_at_inputs(look *l)
{
    int64_t start[TN_MAX_RANK] = { 0 };
    for (int k = 0; k < l->c->nin && !l->looked; k++)
        look_at_box(l, k, start, l->in[k].size, &l->seen_nan, &l->seen_inf);
    l->looked = true;
}

// Looks at what went into the element at[] of the result: for a map one element of each input, for
// a reduction or scan a line, else everything.
static void look_at_sources(look *l, const int64_t *at, bool *nan, bool *inf)
{
    const tni_call *c = l->c;
    tni_class class   = tni_op_table[c->op].class;
    int64_t from[TN_MAX_RANK], size[TN_MAX_RANK];
    memcpy(from, at, sizeof from);
    for (int i = 0; i < TN_MAX_RANK; i++) size[i] = 1;
    if (class == TNI_REDUCE) {
        for (int i = 0; i < c->in[0].rank; i++)
            if (c->attr->reduce.axes >> i & 1) size[i] = c->in[0].size[i];
    } else if (class == TNI_SCAN) {
        from[c->attr->axis.axis] = 0;
        size[c->attr->axis.axis] = at[c->attr->axis.axis] + 1;
    } else if (!tni_is_map(c->op)) {
        look_at_inputs(l);
        *nan = l->seen_nan;
        *inf = l->seen_inf;
        return;
    }
    for (int k = 0; k < c->nin; k++) look_at_box(l, k, from, size, nan, inf);
}

// ---- blame -------------------------------------------------------------------------------------

// Returns "x = 91.2", "a = 1, b = 0", or, for an op with more sources than can be listed, what they
// did not contain.
static tni_text sources_text(const look *l, const int64_t *at, bool nan)
{
    tni_text t = { "" };
    if (!tni_is_map(l->c->op))
        return tni_text_of("%s", nan ? "values without nan" : "finite values");
    for (int k = 0; k < l->c->nin; k++)
        tni_text_add(&t, "%s%c = %s", k ? ", " : "", l->c->nin == 1 ? 'x' : 'a' + k,
                     tni_value_text(tni_host_value(&l->in[k], at)).s);
    return t;
}

// Reports the op as the origin, with the line that recorded it.
static tn_status blame_op(const look *l, int64_t i, const int64_t *at, double v)
{
    return tni_fail_status(l->cx, TN_EARG, "check: %s made %s at %s from %s%s",
                           tni_node_name(l->n).s, tni_value_text(v).s,
                           tni_element_text(l->rank, l->size, i).s, sources_text(l, at, isnan(v)).s,
                           tni_node_line(l->n).s);
}

// A number has no buffer: the kernel of its op was given it as an argument.
static void *copy_number(look *l, int k)
{
    int64_t   skip;
    tni_node *n    = tni_node_base(l->n->src[k], &skip);
    tni_cell *cell = tni_alloc(&l->cx->heap, sizeof *cell);
    l->in[k]       = l->c->in[k];
    l->in[k].data  = (char *)cell;
    memset(l->in[k].stride, 0, sizeof l->in[k].stride);
    if (cell && tni_is_float(l->in[k].dtype)) cell->f = n->attr.num.f;
    else if (cell) cell->i = n->attr.num.i;
    return cell;
}

// Copies the inputs to the host, only after a NaN or infinity was found in the result.
static bool copy_inputs(look *l)
{
    tni_heap *h = &l->cx->heap;
    l->in       = tni_zalloc(h, (size_t)l->c->nin * sizeof *l->in);
    l->in_room  = tni_zalloc(h, (size_t)l->c->nin * sizeof *l->in_room);
    bool ok     = l->in && l->in_room;
    for (int k = 0; ok && k < l->c->nin; k++) {
        l->in_room[k] = l->c->in[k].data ? tni_host_copy(h, l->cx->engine, &l->c->in[k], &l->in[k])
                                         : copy_number(l, k);
        ok            = l->in_room[k] != NULL;
    }
    return ok || tni_no_memory(l->cx, "check");
}

// Reports the first element that the op made NaN or infinite, if there is one.
static tn_status find_first(look *l)
{
    int64_t i = 0;
    for (tni_ref_walk w = tni_ref_walk_over(l->out.rank, l->out.size); w.left;
         tni_ref_walk_next(&w), i++) {
        double v   = tni_host_value(&l->out, w.at);
        bool   nan = false, inf = false;
        if (isfinite(v)) continue;
        if (!l->in && !copy_inputs(l)) return tni_failed();
        look_at_sources(l, w.at, &nan, &inf);
        if (!nan && (isnan(v) || !inf)) return blame_op(l, i, w.at, v);
    }
    return TN_OK;
}

// Copies one output to the host and looks through it.
static tn_status check_output(look *l, const tni_arg *out)
{
    tni_heap *h = &l->cx->heap;
    tn_status s = TN_EMEM;
    if (!tni_is_float(out->dtype)) return TN_OK;
    l->out_room = tni_host_copy(h, l->cx->engine, out, &l->out);
    if (l->out_room) s = find_first(l);
    else tni_fail_memory(l->cx, "check");
    for (int k = 0; l->in_room && k < l->c->nin; k++) tni_free(h, l->in_room[k]);
    tni_free(h, l->in_room);
    tni_free(h, l->in);
    tni_free(h, l->out_room);
    return s;
}

// Ops that only move values are skipped: they cannot make a NaN.
tn_status tni_check_call(tn_ctx *cx, const tni_node *n, const tni_call *c)
{
    if (tni_op_table[c->op].error == TNI_ERROR_MOVES) return TN_OK;
    tn_status s = check_output(&(look){ cx, n, c, .rank = n->rank, .size = n->size }, &c->out);
    for (int k = 0; k < c->nmore && s == TN_OK; k++) {
        const tni_arg *out = &c->more[k];
        if (out->data)
            s = check_output(&(look){ cx, n, c, .rank = out->rank, .size = out->size }, out);
    }
    return s;
}
