// Makes the kernel of a unit whose reduced axes and stored values are known.
//
// 1. gather_sources: one access per load and PLACE, then one per stored seed
// 2. sort_axes, collapse_axes: P before R, each by falling stride; neighbouring axes that are one
//    run in every access become one axis, so that most kernels have one or two
// 3. push_instructions: the values in order, then the stores
// 4. classify_strides: strides as classes (0, 1, n) for the kernel, as numbers for the launch
// 5. lane_in_r: whether the lane (vectorized) axis is a reduced one
#include "plan/simplify.h"

#include <string.h>

// ---- axes of the kernel ------------------------------------------------------------------------

// A kernel being made: its axes as axes of the unit, outermost first, P before R.
typedef struct {
    tni_fusion         *f;
    tni_unit           *u;
    tni_planned_kernel *out;
    tni_access_binding  source[TNI_MAX_ACCESSES];
    int                 sources;
    int64_t             unit_stride[TNI_MAX_ACCESSES][TNI_AXES];  // strides by the unit's axes
    int                 axis[TNI_AXES], naxes, np;
} kernel_builder;

static int64_t abs_stride(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

// Returns the points over the axes along which an access moves: how many elements it touches.
static int64_t access_points(const kernel_builder *m, const tni_access_binding *s)
{
    uint32_t axes = 0;
    for (int k = 0; k < m->u->naxes; k++) axes |= (uint32_t)(s->stride[k] != 0) << k;
    return tni_points(m->u, axes);
}

// Returns the access that decides the order of axes: the largest one; of equal ones the last, which
// is a store.
static const tni_access_binding *leading_access(const kernel_builder *m)
{
    const tni_access_binding *best = NULL;
    for (int i = 0; i < m->sources; i++)
        if (m->source[i].place != -1 || m->source[i].reader >= 0)
            if (!best || access_points(m, &m->source[i]) >= access_points(m, best))
                best = &m->source[i];
    return best;
}

// Sorts the axes: P, then R, each by falling stride of the leading access; axes along which it does
// not move come first. So the innermost axis is the one along which most memory is contiguous.
static void sort_axes(kernel_builder *m)
{
    const tni_access_binding *lead = leading_access(m);
    int                       n    = 0;
    for (int role = 0; role < 2; role++) {
        int first = n;
        for (int k = 0; k < m->u->naxes; k++) {
            if ((int)(m->u->reduced >> k & 1) != role) continue;
            int at = n++;
            for (; lead && at > first; at--) {
                int64_t a = abs_stride(lead->stride[m->axis[at - 1]]),
                        b = abs_stride(lead->stride[k]);
                if (!b || !(a && a < b)) break;
                m->axis[at] = m->axis[at - 1];
            }
            m->axis[at] = k;
        }
        if (role == 0) m->np = n;
    }
    m->naxes = n;
}

// Whether two neighbouring axes are one run of memory in every access, and so can be one axis.
static bool collapses(const kernel_builder *m, int outer, int inner)
{
    for (int i = 0; i < m->sources; i++) {
        const int64_t *s = m->source[i].stride;
        if (s[outer] != s[inner] * m->out->launch.size[inner]) return false;
    }
    return true;
}

// Brings sizes and strides into the kernel's order, and merges axes that are one run in every
// access. P and R are never merged with each other. The strides by the unit's axes are kept for
// bytes_moved.
static void collapse_axes(kernel_builder *m)
{
    tni_launch *l = &m->out->launch;
    for (int i = 0; i < m->sources; i++) {
        int64_t old[TNI_AXES];
        memcpy(old, m->source[i].stride, sizeof old);
        memcpy(m->unit_stride[i], old, sizeof old);
        memset(m->source[i].stride, 0, sizeof old);
        for (int k = 0; k < m->naxes; k++) m->source[i].stride[k] = old[m->axis[k]];
    }
    for (int k = 0; k < m->naxes; k++) l->size[k] = m->u->size[m->axis[k]];
    for (int k = m->naxes - 1; k > 0; k--) {
        if (k == m->np || !collapses(m, k - 1, k)) continue;
        l->size[k - 1] *= l->size[k];
        memmove(&l->size[k], &l->size[k + 1], (size_t)(m->naxes - 1 - k) * sizeof *l->size);
        for (int i = 0; i < m->sources; i++) {
            int64_t *s = m->source[i].stride;
            s[k - 1]   = s[k];
            memmove(&s[k], &s[k + 1], (size_t)(m->naxes - 1 - k) * sizeof *s);
            s[m->naxes - 1] = 0;
        }
        m->naxes--;
        if (k < m->np) m->np--;
    }
}

static bool has_tails(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_REDUCE && k->ins[i].over_p) return true;
    return false;
}

// Whether the lane axis is the last of R, else the last of P: the one along which more elements are
// contiguous. Rows shorter than TNI_SHORT_ROW are not worth lanes of their own; except if there are
// tails and threads with neighbouring rows (GPUs) would have to add up each column together.
static bool lane_in_r(const kernel_builder *m)
{
    const int64_t *size = m->out->launch.size;
    int            r = m->naxes - 1, p = m->np - 1;
    int64_t        along_r = 0, along_p = 0;
    if (m->naxes == m->np) return false;
    if (m->np == 0) return true;
    bool side = m->f->limits->loads_before_stores && has_tails(m->out->kernel);
    if (size[r] < TNI_SHORT_ROW && size[p] > size[r] && !side) return false;
    for (int i = 0; i < m->sources; i++) {
        const tni_access_binding *s = &m->source[i];
        int64_t                   v = 1;
        for (int k = 0; k < m->naxes; k++) v *= s->stride[k] ? size[k] : 1;
        if (abs_stride(s->stride[r]) == 1) along_r += v;
        if (abs_stride(s->stride[p]) == 1) along_p += v;
    }
    return along_r >= along_p;
}

// ---- instructions ------------------------------------------------------------------------------

static bool is_stored_value(const kernel_builder *m, const tni_lowered *x)
{
    return x->seed && m->f->decision[x->item].in_memory;
}

// The stride of a value that is stored into the rows of a concat: whole rows are those of the
// concat apart.
static int64_t row_stride(const tni_fusion *f, uint32_t fills, const tni_node *n, int64_t stride)
{
    const tni_node *concat = f->g->item[fills - 1].n;
    int64_t         whole = tni_concat_row(concat, concat), axis = concat->attr.axis.axis;
    int64_t         outer = 1, row;
    for (int i = 0; i < axis; i++) outer *= concat->size[i];
    row = tni_node_count(n) / outer;
    return stride % row == 0 ? stride / row * whole : stride;
}

// Copies the accesses of loads and PLACEs, and adds one store for each seed in memory.
static void gather_sources(kernel_builder *m)
{
    const tni_unit *u = m->u;
    m->sources        = (int)u->sources;
    if (u->sources) memcpy(m->source, u->source, u->sources * sizeof *u->source);
    for (size_t i = 0; i < u->values; i++) {
        const tni_lowered *x = &u->value[i];
        if (!is_stored_value(m, x)) continue;
        const tni_node    *n     = m->f->g->item[x->item].n;
        uint32_t           fills = m->f->decision[x->item].fills;
        int64_t            row[TN_MAX_RANK];
        tni_access_binding s = { .place = x->item, .reader = x->item, .edge = -1 };
        tni_shape_strides(n->rank, n->size, row);
        for (int j = 0; fills && j < n->rank; j++) row[j] = row_stride(m->f, fills, n, row[j]);
        for (int j = 0; j < n->rank; j++)
            for (int k = 0; k < u->naxes; k++) s.stride[k] += row[j] * x->coords.step[j][k];
        m->source[m->sources++] = s;
    }
}

// Returns the kernel's buffer for a place, added at its first use.
static int buffer_of(kernel_builder *m, int32_t place, tn_dtype dt, bool written)
{
    tni_kernel *k = m->out->kernel;
    int         i = 0;
    while (i < k->nbuffer && m->out->buffer[i] != place) i++;
    if (i == k->nbuffer) {
        k->nbuffer++;
        m->out->buffer[i] = place;
        k->buffer[i]      = (tni_kernel_buffer){ .dtype = (uint8_t)dt };
    }
    k->buffer[i].written |= written;
    return i;
}

static int16_t push_ins(kernel_builder *m, tni_ins x, int32_t origin)
{
    tni_kernel *k           = m->out->kernel;
    m->out->origin[k->nins] = origin;
    k->ins[k->nins]         = x;
    return k->nins++;
}

static int16_t new_index(const int16_t *to, int16_t old)
{
    return old < 0 ? old : to[old];
}

// Appends a reduction over R, over P, or, if it folds both, over R and then P.
static int16_t push_reduce(kernel_builder *m, const tni_lowered *v, tni_ins x)
{
    uint32_t all = tni_all_axes(m->u), r = m->u->reduced;
    if (v->mask == all && r && r != all) x.a = push_ins(m, x, v->origin);
    x.over_p = v->mask != r;
    return push_ins(m, x, v->origin);
}

// Appends the values as instructions, then one store for each seed in memory. `to` maps values to
// instructions: there are more of those where a reduction is two. A buffer has the dtype of the
// elements stored there.
static void push_instructions(kernel_builder *m)
{
    tni_unit *u = m->u;
    int16_t   to[TNI_MAX_INS];
    int       store = (int)u->sources;
    for (size_t i = 0; i < u->values; i++) {
        const tni_lowered *v = &u->value[i];
        tni_ins            x = v->ins;
        x.a                  = new_index(to, x.a);
        x.b                  = new_index(to, x.b);
        x.c                  = new_index(to, x.c);
        if (x.code == TNI_I_LOAD)
            m->out->kernel->access[x.access].buffer = (int16_t)buffer_of(
                m, m->source[x.access].place, (tn_dtype)x.dtype, false);
        if (x.code == TNI_I_PLACE) m->out->kernel->access[x.access].buffer = -1;
        to[i] = x.code == TNI_I_REDUCE ? push_reduce(m, v, x) : push_ins(m, x, v->origin);
    }
    for (size_t i = 0; i < u->values; i++) {
        const tni_lowered *v = &u->value[i];
        tni_ins            x = { .code = TNI_I_STORE, .b = -1, .c = -1, .number = -1 };
        if (!is_stored_value(m, v)) continue;
        x.dtype                                = v->ins.dtype;
        x.a                                    = to[i];
        x.access                               = (int16_t)store;
        m->out->kernel->access[store++].buffer = (int16_t)buffer_of(m, v->item, (tn_dtype)x.dtype,
                                                                    true);
        push_ins(m, x, v->item);
    }
}

static int64_t place_count(const kernel_builder *m, int32_t place)
{
    const tni_graph *g = m->f->g;
    return tni_node_count(place >= 0 ? g->item[place].n : g->input[~place].n);
}

// Writes strides into the launch, and their classes into the kernel, which is compiled for classes
// alone. Also finds out whether places need 64 bits.
static void classify_strides(kernel_builder *m)
{
    tni_kernel *k = m->out->kernel;
    tni_launch *l = &m->out->launch;
    k->naccess    = (int16_t)m->sources;
    for (int i = 0; i < m->sources; i++) {
        const tni_access_binding *s   = &m->source[i];
        int64_t                   far = abs_stride(s->offset);
        for (int a = 0; a < m->naxes; a++) {
            int64_t d              = s->stride[a];
            k->access[i].stride[a] = d == 0 ? TNI_STRIDE_0 : d == 1 ? TNI_STRIDE_1 : TNI_STRIDE_N;
            l->stride[i][a]        = d;
            far += abs_stride(d) * (l->size[a] - 1);
        }
        l->stride[i][TNI_AXES] = s->stride[TNI_AXES];
        // The offset of a view and an index are known only in a run, but stay inside the value.
        int64_t most = s->reader >= 0 ? place_count(m, s->place) : 0;
        k->wide |= far > INT32_MAX / 2 || most > INT32_MAX / 2;
    }
}

// ---- the whole ---------------------------------------------------------------------------------

// Returns the axes along which the index of a load varies: the load goes wherever its index does.
static uint32_t index_axes(const kernel_builder *m, int access)
{
    const tni_unit *u = m->u;
    for (size_t i = 0; i < u->values; i++) {
        const tni_ins *x = &u->value[i].ins;
        if (x->code == TNI_I_LOAD && x->access == access && x->a >= 0) return u->value[x->a].axes;
    }
    return 0;
}

// Returns the bytes a kernel moves if every access reads or writes each element once, for
// tn_explain and profiles.
static int64_t bytes_moved(const kernel_builder *m)
{
    int64_t bytes = 0;
    for (int i = 0; i < m->sources; i++) {
        const tni_access *a = &m->out->kernel->access[i];
        if (a->buffer < 0) continue;
        uint32_t axes = i < (int)m->u->sources ? index_axes(m, i) : 0;
        for (int k = 0; k < m->u->naxes; k++) axes |= (uint32_t)(m->unit_stride[i][k] != 0) << k;
        tn_dtype dt = (tn_dtype)m->out->kernel->buffer[a->buffer].dtype;
        bytes += tni_points(m->u, axes) * (int64_t)tni_dtype_size(dt);
    }
    return bytes;
}

// Allocates the kernel and its lists; the plan frees them, also after a failure.
static bool take_kernel(kernel_builder *m)
{
    tni_heap           *h = &m->f->g->cx->heap;
    tni_unit           *u = m->u;
    tni_planned_kernel *o = m->out;
    o->kernel             = tni_zalloc(h, sizeof *o->kernel);
    o->source             = tni_alloc(h, (size_t)m->sources * sizeof *o->source + 1);
    o->number             = tni_alloc(h, u->numbers * sizeof *o->number + 1);
    o->origin             = tni_alloc(h, TNI_MAX_INS * sizeof *o->origin);
    o->seed               = tni_alloc(h, u->seeds * sizeof *o->seed);
    return o->kernel && o->source && o->number && o->origin && o->seed;
}

// The steps of the top. Seeds that turned out not to be in memory are removed first, unless the
// unit reads them. A kernel whose axes are all reduced gets a P axis of size 1, since kernel.h
// wants at least one. seed[] of the result names each seed, as ~item if it is not stored.
bool tni_make_kernel(tni_fusion *f, tni_unit *u, tni_planned_kernel *out)
{
    kernel_builder m = { .f = f, .u = u, .out = out };
    *out             = (tni_planned_kernel){ .call_item = -1 };
    tni_drop_unstored_seeds(f, u);
    gather_sources(&m);
    if (!take_kernel(&m)) return false;
    tni_kernel *k = out->kernel;
    sort_axes(&m);
    collapse_axes(&m);
    push_instructions(&m);
    classify_strides(&m);
    k->lane_in_r = lane_in_r(&m);
    k->np        = (uint8_t)m.np;
    k->nr        = (uint8_t)(m.naxes - m.np);
    if (m.np == 0) {  // one row
        for (int i = 0; i < m.sources; i++) {
            memmove(&k->access[i].stride[1], k->access[i].stride, TNI_AXES - 1);
            memmove(&out->launch.stride[i][1], out->launch.stride[i],
                    (TNI_AXES - 1) * sizeof(int64_t));
            k->access[i].stride[0]   = TNI_STRIDE_0;
            out->launch.stride[i][0] = 0;
        }
        memmove(&out->launch.size[1], out->launch.size, (TNI_AXES - 1) * sizeof(int64_t));
        out->launch.size[0] = 1;
        k->np               = 1;
    }
    k->nnumber = (int16_t)u->numbers;
    for (size_t i = 0; i < u->numbers; i++) k->number[i] = u->number[i].dtype;
    if (u->numbers) memcpy(out->number, u->number, u->numbers * sizeof *u->number);
    if (m.sources) memcpy(out->source, m.source, (size_t)m.sources * sizeof *m.source);
    out->seeds = u->seeds;
    for (size_t i = 0; i < u->seeds; i++)
        out->seed[i] = f->decision[u->seed[i]].in_memory ? u->seed[i] : ~u->seed[i];
    out->launch.kernel = k;
    out->bytes         = bytes_moved(&m);
    return true;
}
