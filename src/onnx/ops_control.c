// Control flow and lists. Conditions and counts are read, and each round of a loop is recorded
// again: what a body gives depends on the round, and most loops of exported models have few.
//
//   round 0                    round 1
//   body(0, true, state)   ->  body(1, condition, state')  ->  ...
//        condition, state', a       condition, state'', b           joined: (a, b, ...)
//
// A body's values have numbers of their own, which each round writes again. Lists are made by
// tni_onnx_list and never change once they are a value: an op that inserts makes a new one.
#include "onnx/onnx_ops.h"

// Rounds of a loop at most: a file can ask for 2^63.
enum { MOST_ROUNDS = 1000000 };

// Gives the graph's input i a value.
static void give(tni_onnx_call *c, const tni_onnx_graph *g, uint32_t i, tni_onnx_value v)
{
    v.fixed                              = false;
    c->r->value[c->r->m->use[g->in + i]] = v;
}

// The value that output i of a graph has after it ran.
static tni_onnx_value *result(tni_onnx_call *c, const tni_onnx_graph *g, uint32_t i)
{
    tni_onnx_value *v = &c->r->value[c->r->m->use[g->out + i]];
    tni_onnx_value_make(c->r, v);
    return v;
}

// A number that only the host needs.
static tni_onnx_value host_value(tn_tensor *t)
{
    return (tni_onnx_value){ .host = t };
}

// Whether a value is true, read from wherever it is.
static bool read_truth(tni_onnx_call *c, tni_onnx_value *v, bool *truth)
{
    tn_tensor *t = v->host ? v->host : v->t;
    uint8_t    b = 0;
    if (!t || tn_count(t) != 1) return tni_onnx_refuse(c, "its condition is not one element");
    if (tn_read(t, TN_BOOL, &b, 1) != TN_OK) return false;
    *truth = b != 0;
    return true;
}

// If(condition; then_branch, else_branch): a branch takes nothing but what it sees around it.
bool tni_onnx_if(tni_onnx_call *c)
{
    tni_onnx_value *cond = tni_onnx_value_in(c, 0);
    bool            truth;
    if (!cond || !read_truth(c, cond, &truth)) return false;
    const tni_onnx_graph *g = tni_onnx_subgraph(c->r->m, c->n,
                                                truth ? "then_branch" : "else_branch");
    if (!g || (int)g->nout < c->nout || g->nin)
        return tni_onnx_refuse(c, "its branch is missing or gives too little");
    if (!tni_onnx_run_graph(c->r, g)) return false;
    for (int i = 0; i < c->nout; i++) tni_onnx_value_out(c, i, *result(c, g, (uint32_t)i));
    return true;
}

// ---- loops -------------------------------------------------------------------------------------

// Appends the value of a round to a list that doubles as it fills.
static bool append(tni_onnx_call *c, tni_onnx_value *list, tni_onnx_value v, size_t round)
{
    if (round == list->items || !list->is_list) {
        tni_onnx_value more;
        if (!tni_onnx_list(c, round ? 2 * round : 8, &more)) return false;
        for (size_t i = 0; i < round; i++) more.item[i] = list->item[i];
        *list = more;
    }
    list->item[round] = v;
    return true;
}

// What a loop of no rounds gives: nothing, in the shape and dtype that the body says of its output;
// a size that it does not say is 0.
static tn_tensor *nothing_of(tni_onnx_call *c, uint32_t out)
{
    tni_wire       a, graph, shape;
    tni_wire_field f;
    tn_dtype       dt                = TN_F32;
    int64_t        size[TN_MAX_RANK] = { 0 };
    int            rank              = 1;
    if (!tni_onnx_attribute(c->r->m, c->n, "body", &a)) return NULL;
    graph = tni_onnx_bytes(a, TNI_ATTR_G);
    for (uint32_t i = 0; tni_wire_next(&graph, &f) > 0;)
        if (f.number == TNI_GRAPH_OUTPUT && f.type == TNI_WIRE_BYTES && i++ == out) break;
    tni_wire tensor = tni_onnx_bytes(tni_onnx_bytes(f.bytes, TNI_VALUE_TYPE), TNI_TYPE_TENSOR);
    tni_onnx_dtype(tni_onnx_int(tensor, 1, 0), &dt);
    shape = tni_onnx_bytes(tensor, 2);
    while (rank < TN_MAX_RANK && tni_wire_next(&shape, &f) > 0)
        if (f.number == 1 && f.type == TNI_WIRE_BYTES) size[rank++] = tni_onnx_int(f.bytes, 1, 0);
    return tn_zeros(c->cx, dt, rank, size);
}

// The values of all rounds as one tensor, along a new axis; backwards with reverse. skip: how many
// outputs the body has before those that the node has.
static bool stack(tni_onnx_call *c, int i, tni_onnx_value *list, size_t rounds, int axis,
                  bool reverse, int skip)
{
    tn_tensor **x  = tni_alloc(&c->r->cx->heap, (rounds + 1) * sizeof *x);
    bool        ok = x != NULL;
    if (!rounds && !axis) {
        tni_free(&c->r->cx->heap, x);
        return tni_onnx_out(c, i, nothing_of(c, (uint32_t)(i + skip)));
    }
    if (!rounds) ok = ok && tni_onnx_refuse(c, "a loop of no rounds gives nothing to join");
    for (size_t k = 0; ok && k < rounds; k++)
        ok = (x[reverse ? rounds - 1 - k : k] = tni_onnx_value_tensor(c, &list->item[k])) != NULL;
    ok = ok && tni_onnx_out(c, i, tn_stack((int)rounds, x, axis));
    tni_free(&c->r->cx->heap, x);
    return ok;
}

// Loop(M, condition, state...): the body takes (round, condition, state...) and gives (condition,
// state..., what is joined over all rounds...). What the body computes is on the device, whatever
// the loop's inputs are.
// A missing count is no limit, a missing condition is true. Both are read on the host, once a
// round: a condition that a body computes on the device waits for it.
bool tni_onnx_loop(tni_onnx_call *c)
{
    const tni_onnx_graph *g    = tni_onnx_subgraph(c->r->m, c->n, "body");
    int64_t               most = MOST_ROUNDS, rounds = 0;
    bool                  on = true;
    int                   n, states = c->nin - 2;
    tni_onnx_value        lists;
    c->cx = c->r->cx;
    if (!g || states < 0 || (int)g->nin != states + 2 || (int)g->nout < states + 1 ||
        c->nout > (int)g->nout - 1)
        return tni_onnx_refuse(c, "its body does not fit it");
    if (tni_onnx_has(c, 0) && !tni_onnx_ints(c, 0, 1, &most, &n)) return false;
    if (tni_onnx_has(c, 1) && !read_truth(c, tni_onnx_value_in(c, 1), &on)) return false;
    int joined = (int)g->nout - 1 - states;
    if (!tni_onnx_list(c, (size_t)(states + joined), &lists)) return false;
    for (int i = 0; i < states; i++)
        if (tni_onnx_has(c, 2 + i)) lists.item[i] = *tni_onnx_value_in(c, 2 + i);
    for (; on && rounds < most; rounds++) {
        if (rounds == MOST_ROUNDS)
            return tni_onnx_refuse(c, "it has more than %d rounds", MOST_ROUNDS);
        give(c, g, 0, host_value(tn_from(c->r->host, TN_I64, TN_0D, &rounds)));
        give(c, g, 1, host_value(tn_from(c->r->host, TN_BOOL, TN_0D, &(uint8_t){ 1 })));
        for (int i = 0; i < states; i++) give(c, g, (uint32_t)(2 + i), lists.item[i]);
        if (!tni_onnx_run_graph(c->r, g) || !read_truth(c, result(c, g, 0), &on)) return false;
        for (int i = 0; i < states; i++) lists.item[i] = *result(c, g, (uint32_t)(1 + i));
        for (int i = 0; i < joined; i++)
            if (!append(c, &lists.item[states + i], *result(c, g, (uint32_t)(1 + states + i)),
                        (size_t)rounds))
                return false;
    }
    for (int i = 0; i < c->nout && i < states; i++) tni_onnx_value_out(c, i, lists.item[i]);
    for (int i = states; i < c->nout; i++)
        if (!stack(c, i, &lists.item[i], (size_t)rounds, 0, false, 1)) return false;
    return true;
}

// A number of a list attribute, 0 where there is none.
static bool list_at(tni_onnx_call *c, const char *name, int i, int64_t *v)
{
    int64_t all[64];
    int     n;
    if (!tni_onnx_attr_ints(c, name, 64, all, &n)) return false;
    *v = i < n ? all[i] : 0;
    return true;
}

// Scan(state..., sequences...): the body takes a slice of each sequence, and gives the state and
// what is joined. Each sequence has an axis and a direction of its own, and so has what is joined.
bool tni_onnx_scan(tni_onnx_call *c)
{
    const tni_onnx_graph *g = tni_onnx_subgraph(c->r->m, c->n, "body");
    int            xs = (int)tni_onnx_attr_int(c, "num_scan_inputs", 0), states = c->nin - xs;
    int64_t        rounds = -1, axis, back;
    tni_onnx_value lists;
    c->cx = c->r->cx;
    if (c->opset < 9) return tni_onnx_refuse(c, "Scan of opset 8 is not supported");
    if (!g || xs < 1 || states < 0 || (int)g->nin != c->nin || (int)g->nout < states ||
        c->nout > (int)g->nout)
        return tni_onnx_refuse(c, "its body does not fit it");
    if (!tni_onnx_list(c, g->nout, &lists)) return false;
    for (int i = 0; i < states; i++) lists.item[i] = *tni_onnx_value_in(c, i);
    for (int i = 0; i < xs; i++) {
        tn_tensor *x = tni_onnx_in(c, states + i);
        if (!x || !list_at(c, "scan_input_axes", i, &axis)) return false;
        int64_t size = tn_size(x, (int)axis);
        if (rounds >= 0 && size != rounds)
            return tni_onnx_refuse(c, "its sequences have %lld and %lld steps", (long long)rounds,
                                   (long long)size);
        rounds = size;
    }
    for (int64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < states; i++) give(c, g, (uint32_t)i, lists.item[i]);
        for (int i = 0; i < xs; i++) {
            tn_tensor *x = tni_onnx_in(c, states + i);
            if (!list_at(c, "scan_input_axes", i, &axis) ||
                !list_at(c, "scan_input_directions", i, &back))
                return false;
            tn_tensor *slice = tn_select(x, (int)axis, back ? rounds - 1 - r : r);
            if (!slice) return false;
            give(c, g, (uint32_t)(states + i), (tni_onnx_value){ .t = slice });
        }
        if (!tni_onnx_run_graph(c->r, g)) return false;
        for (int i = 0; i < states; i++) lists.item[i] = *result(c, g, (uint32_t)i);
        for (uint32_t i = (uint32_t)states; i < g->nout; i++)
            if (!append(c, &lists.item[i], *result(c, g, i), (size_t)r)) return false;
    }
    for (int i = 0; i < c->nout && i < states; i++) tni_onnx_value_out(c, i, lists.item[i]);
    for (int i = states; i < c->nout; i++) {
        if (!list_at(c, "scan_output_axes", i - states, &axis) ||
            !list_at(c, "scan_output_directions", i - states, &back))
            return false;
        if (!stack(c, i, &lists.item[i], (size_t)rounds, (int)axis, back != 0, 0)) return false;
    }
    return true;
}

// ---- sequences ---------------------------------------------------------------------------------

// Input i as a list; NULL, reported, if it is a tensor.
static tni_onnx_value *list_in(tni_onnx_call *c, int i)
{
    tni_onnx_value *v = tni_onnx_value_in(c, i);
    if (v && v->is_list) return v;
    tni_onnx_refuse(c, "input %d is no sequence", i);
    return NULL;
}

// SequenceConstruct(x...) and SequenceEmpty(): a list of the inputs.
bool tni_onnx_sequence_construct(tni_onnx_call *c)
{
    tni_onnx_value list;
    if (!tni_onnx_list(c, (size_t)c->nin, &list)) return false;
    for (int i = 0; i < c->nin; i++) list.item[i] = *tni_onnx_value_in(c, i);
    tni_onnx_value_out(c, 0, list);
    return true;
}

// A place in a list of n, from the end if negative; n itself with end. -1, reported, if it is none.
static int64_t place_in(tni_onnx_call *c, int i, size_t n, bool end, int64_t or)
{
    int64_t at = or ;
    int     k;
    if (tni_onnx_has(c, i) && !tni_onnx_ints(c, i, 1, &at, &k)) return -1;
    int64_t from = at < 0 ? at + (int64_t)n : at;
    if (from >= 0 && from < (int64_t)n + end) return from;
    tni_onnx_refuse(c, "place %lld is none of a sequence of %zu", (long long)at, n);
    return -1;
}

// SequenceAt(list, place).
bool tni_onnx_sequence_at(tni_onnx_call *c)
{
    tni_onnx_value *list = list_in(c, 0);
    int64_t         at   = list ? place_in(c, 1, list->items, false, 0) : -1;
    if (at < 0) return false;
    tni_onnx_value_out(c, 0, list->item[at]);
    return true;
}

// SequenceInsert(list, x, place): at the end without a place. The old list stays as it is.
bool tni_onnx_sequence_insert(tni_onnx_call *c)
{
    tni_onnx_value *list = list_in(c, 0), made;
    int64_t         at   = list ? place_in(c, 2, list->items, true, (int64_t)list->items) : -1;
    if (at < 0 || !tni_onnx_has(c, 1) || !tni_onnx_list(c, list->items + 1, &made)) return false;
    for (size_t i = 0; i < made.items; i++)
        made.item[i] = (int64_t)i == at ? *tni_onnx_value_in(c, 1)
                                        : list->item[i - ((int64_t)i > at)];
    tni_onnx_value_out(c, 0, made);
    return true;
}

// SequenceErase(list, place): the last one without a place.
bool tni_onnx_sequence_erase(tni_onnx_call *c)
{
    tni_onnx_value *list = list_in(c, 0), made;
    int64_t         at   = list ? place_in(c, 1, list->items, false, (int64_t)list->items - 1) : -1;
    if (at < 0 || !tni_onnx_list(c, list->items - 1, &made)) return false;
    for (size_t i = 0; i < made.items; i++) made.item[i] = list->item[i + ((int64_t)i >= at)];
    tni_onnx_value_out(c, 0, made);
    return true;
}

// SequenceLength(list): known on the host.
bool tni_onnx_sequence_length(tni_onnx_call *c)
{
    tni_onnx_value *list = list_in(c, 0);
    int64_t         n    = list ? (int64_t)list->items : 0;
    return list && tni_onnx_out(c, 0, tn_from(c->r->host, TN_I64, TN_0D, &n));
}

// Parts of one size, or of the sizes given; without either of one element, whose axis keepdims 0
// drops. A part size that does not divide the axis leaves a smaller last part.
bool tni_onnx_split_to_sequence(tni_onnx_call *c)
{
    tn_tensor     *x    = tni_onnx_in(c, 0);
    int            axis = (int)tni_onnx_attr_int(c, "axis", 0), n;
    int64_t        part[TNI_ONNX_SMALL], at = 0;
    tni_onnx_value list;
    if (!x || !tni_onnx_ints(c, 1, TNI_ONNX_SMALL, part, &n)) return false;
    int64_t    size  = tn_size(x, axis);
    bool       drop  = n < 0 && !tni_onnx_attr_int(c, "keepdims", 1);
    tn_tensor *given = n > 0 ? tni_onnx_in(c, 1) : NULL;
    bool       each  = !given || tn_rank(given) == 0;
    int64_t    step  = n > 0 ? part[0] : 1;
    if (size < 0 || (each && step < 1))
        return tni_onnx_refuse(c, "its parts do not fit x %s", tni_shape_of(x).s);
    if (!tni_onnx_list(c, each ? (size_t)((size + step - 1) / step) : (size_t)n, &list))
        return false;
    for (size_t i = 0; i < list.items; i++) {
        int64_t    m = each ? step : part[i];
        tn_tensor *t = tn_slice(x, axis, at, at + m, 1);
        if (drop) t = tn_squeeze(t, axis);
        if (!t) return false;
        list.item[i] = c->cx == c->r->host ? host_value(t) : (tni_onnx_value){ .t = t };
        at += m;
    }
    tni_onnx_value_out(c, 0, list);
    return true;
}

// SequenceMap(list, more...; body): lists of what the body gives for the items at each place, where
// what is no list is the same for all.
bool tni_onnx_sequence_map(tni_onnx_call *c)
{
    const tni_onnx_graph *g    = tni_onnx_subgraph(c->r->m, c->n, "body");
    tni_onnx_value       *list = list_in(c, 0), made;
    if (!list) return false;
    if (!g || (int)g->nin != c->nin || (int)g->nout < c->nout)
        return tni_onnx_refuse(c, "its body does not fit it");
    if (!tni_onnx_list(c, g->nout, &made)) return false;
    for (uint32_t k = 0; k < g->nout; k++)
        if (!tni_onnx_list(c, list->items, &made.item[k])) return false;
    for (size_t i = 0; i < list->items; i++) {
        for (uint32_t k = 0; k < g->nin; k++) {
            tni_onnx_value *v = tni_onnx_value_in(c, (int)k);
            if (!v || (v->is_list && v->items <= i))
                return tni_onnx_refuse(c, "its sequences are not of one length");
            give(c, g, k, v->is_list ? v->item[i] : *v);
        }
        if (!tni_onnx_run_graph(c->r, g)) return false;
        for (uint32_t k = 0; k < g->nout; k++) made.item[k].item[i] = *result(c, g, k);
    }
    for (int k = 0; k < c->nout; k++) tni_onnx_value_out(c, k, made.item[k]);
    return true;
}

// ConcatFromSequence(list; axis, new_axis): joined along an axis, or stacked along a new one.
bool tni_onnx_concat_from_sequence(tni_onnx_call *c)
{
    tni_onnx_value *list = list_in(c, 0);
    int             axis = (int)tni_onnx_attr_int(c, "axis", 0);
    if (!list) return false;
    tn_tensor **x  = tni_alloc(&c->r->cx->heap, (list->items + 1) * sizeof *x);
    bool        ok = x != NULL;
    for (size_t i = 0; ok && i < list->items; i++)
        ok = (x[i] = tni_onnx_value_tensor(c, &list->item[i])) != NULL;
    bool made = tni_onnx_attr_int(c, "new_axis", 0) != 0;
    ok        = ok && tni_onnx_out(c, 0,
                            made ? tn_stack((int)list->items, x, axis)
                                        : tn_concat((int)list->items, x, axis));
    tni_free(&c->r->cx->heap, x);
    return ok;
}

// ---- optionals ---------------------------------------------------------------------------------

// Optional(x): an optional is its element, or nothing.
bool tni_onnx_optional(tni_onnx_call *c)
{
    return tni_onnx_copy(c, 0, 0);
}

// OptionalHasElement(x): known on the host.
bool tni_onnx_optional_has_element(tni_onnx_call *c)
{
    tni_onnx_value *v = tni_onnx_value_in(c, 0);
    uint8_t         b = v && (v->t || v->host || v->is_list);
    return tni_onnx_out(c, 0, tn_from(c->r->host, TN_BOOL, TN_0D, &b));
}

// OptionalGetElement(x): an empty one has none to give.
bool tni_onnx_optional_get_element(tni_onnx_call *c)
{
    tni_onnx_value *v = tni_onnx_value_in(c, 0);
    if (!v || !(v->t || v->host || v->is_list)) return tni_onnx_refuse(c, "the optional is empty");
    return tni_onnx_copy(c, 0, 0);
}
