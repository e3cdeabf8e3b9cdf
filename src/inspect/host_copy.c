// Copies of device values on the host, as cells of the reference device, and the words that
// messages use for nodes, elements and values. For checks that look at single elements; nothing
// here is fast.
#include "inspect/host_copy.h"

#include "device/ref/ref.h"

#include <math.h>

// Returns the first and the last element that an argument reaches, counted from its data.
static void find_span(const tni_arg *x, int64_t *low, int64_t *high)
{
    *low = *high = 0;
    for (int i = 0; i < x->rank; i++) {
        int64_t far = (x->size[i] - 1) * x->stride[i];
        if (far < 0) *low += far;
        else *high += far;
    }
}

// Downloads the span that the argument reaches as one block, so that strides stay as they are, and
// converts it to cells.
void *tni_host_copy(tni_heap *h, const tni_engine *e, const tni_arg *x, tni_arg *y)
{
    int64_t low, high;
    find_span(x, &low, &high);
    bool    none   = tni_shape_count(x->rank, x->size) == 0;
    int64_t count  = none ? 0 : high - low + 1,
            size   = (int64_t)e->device->memory->element_size(x->dtype);
    char     *host = tni_alloc(h, (size_t)count * tni_dtype_size(x->dtype));
    tni_cell *cell = host ? tni_alloc(h, (size_t)count * sizeof *cell) : NULL;
    tni_text  why  = { "" };  // a device that cannot be read says so at the next read too
    if (cell && count) {
        e->device->memory->download(e->session, host, x->dtype, x->data + low * size, count, &why);
        tni_device_ref.memory->upload(NULL, cell, x->dtype, host, count, &why);
    }
    tni_free(h, host);
    *y      = *x;
    y->data = cell && count ? (char *)(cell - low) : (char *)cell;
    return cell;
}

double tni_host_value(const tni_arg *y, const int64_t *at)
{
    tni_cell v = tni_cells(y)[tni_ref_offset(y, at)];
    return tni_is_float(y->dtype) ? v.f : (double)v.i;
}

// An output beyond the first is named by its op.
tni_text tni_node_name(const tni_node *n)
{
    if (n->op == TNI_output)
        return tni_text_of("output %d of %.200s", (int)n->attr.output.index,
                           tni_node_name(n->src[0]).s);
    const char *op = n->op == TNI_custom ? n->attr.custom.def->name : tni_op_table[n->op].name;
    if (!n->site.op || !strcmp(n->site.op, op)) return tni_text_of("%s", op);
    return tni_text_of("%s of %s", op, n->site.op);
}

tni_text tni_node_line(const tni_node *n)
{
    if (!n->site.line) return (tni_text){ "" };
    return tni_text_of(" (recorded at %.178s)", tni_site_text(&n->site).s);
}

tni_text tni_element_text(int rank, const int64_t *size, int64_t i)
{
    int64_t at[TN_MAX_RANK] = { 0 };
    for (int k = rank - 1; k >= 0; k--) {
        at[k] = i % size[k];
        i /= size[k];
    }
    return tni_text_of("element %s of %s", tni_shape_text(rank, at).s,
                       tni_shape_text(rank, size).s);
}

tni_text tni_value_text(double v)
{
    if (isnan(v)) return tni_text_of("nan");
    if (isinf(v)) return tni_text_of(v > 0 ? "inf" : "-inf");
    return tni_text_of("%.9g", v);
}
