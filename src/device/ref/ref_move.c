// Movement: elements to other places, by position or by index.
#include "ref.h"

#include <inttypes.h>

// Returns the address of element at[].
static tni_cell *cell_at(const tni_arg *x, const int64_t *at)
{
    return tni_cells(x) + tni_ref_offset(x, at);
}

// Adds v to *y; integers wrap.
static void add_to_cell(tn_dtype dt, tni_cell *y, tni_cell v)
{
    if (tni_is_float(dt)) y->f += v.f;
    else y->i = tni_ref_wrap(dt, (int64_t)((uint64_t)y->i + (uint64_t)v.i));
}

// Copies x to y, which has the same shape, with the conversion of `cast`.
static void copy_cells(const tni_arg *y, const tni_arg *x)
{
    for (tni_ref_walk w = tni_ref_walk_over(y->rank, y->size); w.left; tni_ref_walk_next(&w))
        *cell_at(y, w.at) = tni_ref_convert(y->dtype, x->dtype, *cell_at(x, w.at));
}

void tni_ref_copy(const tni_call *c)
{
    copy_cells(&c->out, &c->in[0]);
}

// Moves at[] back by before[]; returns false if that is outside of x.
static bool shift_into(const tni_arg *x, const int64_t *at, const int64_t *before, int64_t *into)
{
    for (int i = 0; i < x->rank; i++) {
        into[i] = at[i] - before[i];
        if (into[i] < 0 || into[i] >= x->size[i]) return false;
    }
    return true;
}

// An element of the result is the element of x at its index less `before`, or the value of the
// padding.
void tni_ref_pad(const tni_call *c)
{
    tn_dtype dt   = c->out.dtype;
    tni_cell fill = { .i = c->attr->pad.ivalue };
    if (tni_is_float(dt)) fill.f = tni_ref_round(dt, c->attr->pad.value);
    for (tni_ref_walk w = tni_ref_walk_over(c->out.rank, c->out.size); w.left;
         tni_ref_walk_next(&w)) {
        int64_t at[TN_MAX_RANK];
        bool    inside = shift_into(&c->in[0], w.at, c->attr->pad.before, at);

        *cell_at(&c->out, w.at) = inside ? *cell_at(&c->in[0], at) : fill;
    }
}

// Inputs follow each other along the axis. An input that was computed in its part of the output is
// there already.
void tni_ref_concat(const tni_call *c)
{
    int     axis = c->attr->axis.axis;
    tni_arg part = c->out;
    for (int k = 0; k < c->nin; k++) {
        part.size[axis] = c->in[k].size[axis];
        if (c->in[k].data != part.data) copy_cells(&part, &c->in[k]);
        part.data += part.size[axis] * part.stride[axis] * (int64_t)sizeof(tni_cell);
    }
}

// ---- by index ----------------------------------------------------------------------------------

// Turns at[], an index of the index tensor, into the index in x that it names. A negative index
// counts from the end. Returns false, with the reason in the call, if it is out of range.
static bool resolve_cell_index(const tni_call *c, const tni_arg *x, int64_t *at)
{
    int     axis = c->attr->axis.axis;
    int64_t n = x->size[axis], i = cell_at(&c->in[1], at)->i;
    if (i < -n || i >= n) {
        *c->why = (tni_text){ 0 };
        tni_text_add(c->why,
                     "%s: index %" PRId64 " is out of range for size %" PRId64 " along axis %d",
                     tni_op_table[c->op].name, i, n, axis);
        return false;
    }
    at[axis] = i < 0 ? i + n : i;
    return true;
}

// y[..., i, ...] = x[..., index[..., i, ...], ...] along the axis.
tn_status tni_ref_gather(const tni_call *c)
{
    for (tni_ref_walk w = tni_ref_walk_over(c->out.rank, c->out.size); w.left;
         tni_ref_walk_next(&w)) {
        int64_t at[TN_MAX_RANK];
        memcpy(at, w.at, sizeof at);
        if (!resolve_cell_index(c, &c->in[0], at)) return TN_EARG;
        *cell_at(&c->out, w.at) = *cell_at(&c->in[0], at);
    }
    return TN_OK;
}

// y = x, then y[..., index[..., i, ...], ...] = v[..., i, ...], or += it, in row-major order of the
// index: the last of several writes to a place wins.
tn_status tni_ref_scatter(const tni_call *c)
{
    const tni_arg *index = &c->in[1], *v = &c->in[2];
    copy_cells(&c->out, &c->in[0]);
    for (tni_ref_walk w = tni_ref_walk_over(index->rank, index->size); w.left;
         tni_ref_walk_next(&w)) {
        int64_t at[TN_MAX_RANK];
        memcpy(at, w.at, sizeof at);
        if (!resolve_cell_index(c, &c->out, at)) return TN_EARG;
        tni_cell *y = cell_at(&c->out, at);
        if (c->op == TNI_scatter) *y = *cell_at(v, w.at);
        else add_to_cell(c->out.dtype, y, *cell_at(v, w.at));
    }
    return TN_OK;
}

// The adjoint of a view: adds each element where the view would read it from the base.
void tni_ref_fold(const tni_call *c)
{
    const tni_arg *x    = &c->in[0];
    tni_arg        view = *x;
    view.data           = c->out.data + c->attr->view.offset * (int64_t)sizeof(tni_cell);
    memcpy(view.stride, c->attr->view.stride, sizeof view.stride);

    memset(c->out.data, 0, (size_t)tni_shape_count(c->out.rank, c->out.size) * sizeof(tni_cell));
    for (tni_ref_walk w = tni_ref_walk_over(x->rank, x->size); w.left; tni_ref_walk_next(&w))
        add_to_cell(c->out.dtype, cell_at(&view, w.at), *cell_at(x, w.at));
}
