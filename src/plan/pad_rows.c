// Gaps between the rows of a matrix in memory.
//
// A network's logits may have 50257 columns. In bf16 their rows would begin at any even address,
// and a product that reads or writes such rows, by 2 bytes at a time instead of 16, takes half as
// long again. So a temporary that a product reads or writes gets rows that begin at multiples of
// limits->row_bytes, with a gap behind each. Its node is row-major as before: only the plan knows,
// by the pitch of its place, the strides of the kernels' accesses and those of the calls'
// arguments.
//
//   node (32768, 50257), strides (50257, 1)    in memory: strides (50264, 1)
//
// The sources of a concat along an inner axis are rows with gaps too, if they are computed into it:
// of the gradients of queries, keys and values, each (B, T, H, D), joined to (B, T, 3 H, D), the
// rows of H D elements begin 3 H D apart.
//
// Everything that touches such a value must be a product or a kernel that goes along whole rows or
// stays in one: a kernel over all elements in one run, a concat or an assignment that shares memory
// know no gaps, and the value is stored without them.
#include "plan/plan.h"

#include <string.h>

// Rows below this many bytes stay as they are: the gap, up to 15 bytes, would be a notable share,
// and products with so few columns are limited by their latency.
enum { ROW_BYTES_LEAST = 512 };

// Rows of `row` elements that begin `pitch` elements apart.
typedef struct {
    int64_t row, pitch;
} rows;

// Changes offset and strides from rows without gaps to rows with gaps. False, with some of them
// changed, if an axis goes neither along whole rows nor inside one.
static bool pad_layout(rows r, int axes, const int64_t *size, int64_t *stride, int64_t *offset)
{
    int64_t reach = *offset % r.row;
    if (*offset < 0) return false;
    for (int i = 0; i < axes; i++) {
        if (size[i] <= 1) continue;
        if (stride[i] < 0) return false;
        if (stride[i] % r.row == 0) stride[i] = stride[i] / r.row * r.pitch;
        else reach += stride[i] * (size[i] - 1);
    }
    *offset = *offset / r.row * r.pitch + *offset % r.row;
    return reach < r.row;
}

// Pads an access of a kernel. The offset of the view that it reads is added in each run, and must
// be 0; an index may reach as far as it has values. False, with nothing changed, if it cannot be
// padded.
static bool pad_access(const tni_graph *g, tni_planned_kernel *k, int a, rows r)
{
    tni_access_binding *s    = &k->source[a];
    int                 axes = k->kernel->np + k->kernel->nr;
    int64_t             size[TNI_AXES + 1], stride[TNI_AXES + 1], offset = s->offset;
    if (s->edge >= 0 && tni_offset_of(g->item[s->reader].n->src[s->edge]) != 0) return false;
    memcpy(size, k->launch.size, (size_t)axes * sizeof *size);
    memcpy(stride, k->launch.stride[a], sizeof stride);
    size[axes]   = s->indices;
    stride[axes] = k->launch.stride[a][TNI_AXES];
    if (!pad_layout(r, axes + 1, size, stride, &offset)) return false;
    k->launch.stride[a][TNI_AXES] = stride[axes];
    memcpy(k->launch.stride[a], stride, (size_t)axes * sizeof *stride);
    s->offset = offset;
    return true;
}

// Pads an argument whose node n, a view of a padded value or the value itself, begins with its
// base.
static bool pad_strides(const tni_node *n, rows r, tni_arg *arg)
{
    int64_t none = 0;
    return tni_offset_of(n) == 0 && pad_layout(r, arg->rank, arg->size, arg->stride, &none);
}

// Returns the rows of an item if they should have gaps: a temporary whose rows are long enough and
// begin at odd places. pitch is 0 otherwise.
static rows rows_of(const tni_graph *g, const tni_limits *limits, int32_t i)
{
    const tni_node *n    = g->item[i].n;
    rows            r    = { n->rank >= 2 ? n->size[n->rank - 1] : 0, 0 };
    int64_t         size = (int64_t)limits->element_size((tn_dtype)n->dtype);
    int64_t         unit = limits->row_bytes / size;
    if (g->item[i].why || n->op == TNI_output || tni_outputs(n) || r.row * size < ROW_BYTES_LEAST)
        return r;
    if (unit > 1 && r.row % unit) r.pitch = (r.row + unit - 1) / unit * unit;
    return r;
}

// Whether the call of an item can have value i in rows with gaps, as an argument or as its result.
static bool call_takes(const tni_graph *g, int32_t call, int32_t i, rows r)
{
    const tni_node *n       = g->item[call].n;
    bool            product = n->op == TNI_matmul;
    // A product may have other leading axes than its node, never another last one, unless it is a
    // vector.
    if (call == i && (!product || n->src[1]->size[n->src[1]->rank - 1] != r.row)) return false;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        if (tni_base_of(g, n->src[s]) != i) continue;
        tni_view v   = tni_node_layout(n->src[s]);
        tni_arg  arg = { .rank = v.rank };
        memcpy(arg.size, v.size, sizeof arg.size);
        memcpy(arg.stride, v.stride, sizeof arg.stride);
        if (!product || !pad_strides(n->src[s], r, &arg)) return false;
    }
    return true;
}

// Whether every access of a kernel to value i can be padded. A call that runs as one with the
// kernel keeps its result as it is: the device accepted the two with that layout.
static bool kernel_takes(const tni_graph *g, tni_planned_kernel *k, int32_t i, rows r)
{
    if (k->call_item == i || (k->call_item >= 0 && !call_takes(g, k->call_item, i, r)))
        return false;
    for (int a = 0; a < k->kernel->naccess; a++) {
        if (k->source[a].place != i) continue;
        tni_access_binding source = k->source[a];
        int64_t            stride[TNI_AXES + 1];
        memcpy(stride, k->launch.stride[a], sizeof stride);
        bool fits = pad_access(g, k, a, r);
        memcpy(k->launch.stride[a], stride, sizeof stride);
        k->source[a] = source;
        if (!fits) return false;
    }
    return true;
}

// Whether everything that touches value i can have gaps between its rows. An assignment or a concat
// may share the memory of its source, which memory.c decides later.
static bool all_take(const tni_graph *g, const tni_plan *p, int32_t i, rows r)
{
    for (size_t j = 0; j < g->count; j++) {
        const tni_node *n = g->item[j].n;
        if (n->op != TNI_assign && n->op != TNI_concat && n->op != TNI_update) continue;
        for (uint32_t s = 0; s < n->nsrc; s++)
            if (tni_base_of(g, n->src[s]) == i) return false;
    }
    for (size_t t = 0; t < p->steps; t++) {
        tni_plan_step step = p->step[t];
        if (step < 0 ? !kernel_takes(g, &p->kernel[~step], i, r) : !call_takes(g, step, i, r))
            return false;
    }
    return true;
}

// Stores value i with gaps between its rows: the kernels' accesses change here, the calls'
// arguments when they are described.
static void pad_value(const tni_graph *g, tni_plan *p, int32_t i, rows r)
{
    p->place[i].row   = r.row;
    p->place[i].pitch = r.pitch;
    for (size_t j = 0; j < p->kernels; j++) {
        tni_planned_kernel *k = &p->kernel[j];
        for (int a = 0; a < k->kernel->naccess; a++)
            if (k->source[a].place == i) pad_access(g, k, a, r);
    }
}

// Pads the value that a product reads or writes, if it is worth it and possible.
static void consider_value(const tni_graph *g, const tni_limits *limits, tni_plan *p, int32_t i)
{
    if (i < 0 || p->place[i].pitch || g->item[i].choices >> TNI_CHOICE_DENSE & 1) return;
    rows    r     = rows_of(g, limits, i);
    int64_t count = tni_node_count(g->item[i].n), most = INT32_MAX / 2;
    // Whether a kernel's positions need 64 bits was decided when it was made (make_kernel.c).
    if (!r.pitch || (count <= most && count / r.row * r.pitch > most)) return;
    if (all_take(g, p, i, r)) pad_value(g, p, i, r);
}

// Only values of products are looked at; all others are read and written at full rate as they are.
void tni_pad_rows(const tni_graph *g, const tni_limits *limits, tni_plan *p)
{
    for (size_t t = 0; t < p->steps && limits->row_bytes; t++) {
        tni_plan_step step = p->step[t];
        int32_t       call = step < 0 ? p->kernel[~step].call_item : step;
        if (call < 0 || g->item[call].n->op != TNI_matmul) continue;
        const tni_node *n = g->item[call].n;
        consider_value(g, limits, p, call);
        for (uint32_t s = 0; s < n->nsrc; s++)
            consider_value(g, limits, p, tni_base_of(g, n->src[s]));
    }
}

void tni_pad_arg(const tni_graph *g, const tni_plan *p, const tni_node *n, tni_arg *arg)
{
    int32_t i = n->state == TNI_PENDING ? tni_base_of(g, n) : -1;
    if (i < 0 || !p->place[i].pitch) return;
    pad_strides(n, (rows){ p->place[i].row, p->place[i].pitch }, arg);
}

// ---- concats -----------------------------------------------------------------------------------

int64_t tni_concat_row(const tni_node *concat, const tni_node *n)
{
    int64_t row = 1;
    for (int i = concat->attr.axis.axis; i < n->rank; i++) row *= n->size[i];
    return row;
}

// Whether a node has one reader and is not stored for another reason. Other outputs of its op hold
// it too.
static bool has_one_reader(const tni_graph *g, const tni_node *n)
{
    const tni_item *it   = &g->item[n->mark - 1];
    uint32_t        more = 0;
    for (const tni_node *o = tni_outputs(n); o; o = o->output) more++;
    return it->edges == 1 + more && !it->why;
}

// Whether a source is the whole result of a library call that nothing else reads, and its rows are
// whole axes of that result.
static bool fills_rows(const tni_graph *g, const tni_limits *limits, const tni_node *concat,
                       const tni_node *src)
{
    tni_view v   = tni_node_layout(src);
    int64_t  row = tni_concat_row(concat, src), inner = 1, count = tni_node_count(src);
    if (src->state != TNI_PENDING || !tni_view_contiguous(&v)) return false;
    for (; src->op == TNI_view; src = src->src[0])
        if (src->src[0]->state != TNI_PENDING || !has_one_reader(g, src)) return false;
    int op = src->op == TNI_output ? src->src[0]->op : src->op;
    if (tni_op_table[op].class != TNI_LIBRARY || !limits->strided(limits->device, op)) return false;
    for (int i = src->rank; i > 0 && inner < row;) inner *= src->size[--i];
    return inner == row && tni_node_count(src) == count && src->dtype == concat->dtype &&
           has_one_reader(g, src);
}

bool tni_concat_is_strided(const tni_graph *g, const tni_limits *limits, const tni_node *concat)
{
    if (!limits->strided) return false;
    for (uint32_t s = 0; s < concat->nsrc; s++)
        if (!fills_rows(g, limits, concat, concat->src[s])) return false;
    return true;
}
