// What a step of a plan is: bytes, flops, names, lines.
#include "engine/step_facts.h"

// ---- bytes -------------------------------------------------------------------------------------

int64_t tni_node_bytes(const tni_node *n)
{
    return tni_node_count(n) * (int64_t)tni_dtype_size((tn_dtype)n->dtype);
}

int64_t tni_source_bytes(const tni_node *src)
{
    tni_view v = tni_node_layout(src);
    int64_t  n = 1;
    for (int i = 0; i < v.rank; i++) n *= v.stride[i] || !v.size[i] ? v.size[i] : 1;
    return n * (int64_t)tni_dtype_size((tn_dtype)src->dtype);
}

int64_t tni_read_bytes(const tni_graph *g, const tni_plan *p, size_t i, uint32_t s)
{
    const tni_node *n = g->item[i].n, *src = n->src[s];
    if (n->op == TNI_update && s == 0 && p->place[i].in_place) return 0;
    if (src->state == TNI_PENDING) {
        int32_t base = g->item[src->mark - 1].base;
        if (base >= 0 && p->place[base].splat) return (int64_t)tni_dtype_size(src->dtype);
    }
    int64_t all = tni_source_bytes(src), picked = tni_node_bytes(n);
    return n->op == TNI_gather && s == 0 && picked < all ? picked : all;
}

int64_t tni_written_bytes(const tni_graph *g, const tni_plan *p, size_t i)
{
    const tni_node *n = g->item[i].n;
    if (p->place[i].splat) return (int64_t)tni_dtype_size((tn_dtype)n->dtype);
    return p->place[i].in_place ? tni_node_bytes(n->src[1]) : tni_node_bytes(n);
}

static int64_t call_bytes(const tni_graph *g, const tni_plan *p, size_t i)
{
    int64_t bytes = tni_written_bytes(g, p, i);
    for (uint32_t s = 0; s < g->item[i].n->nsrc; s++) bytes += tni_read_bytes(g, p, i, s);
    return bytes;
}

// What follows an op finds its result at hand.
static int64_t kernel_bytes(const tni_graph *g, const tni_plan *p, const tni_fused *k)
{
    if (k->claimed < 0) return k->bytes;
    return k->bytes + call_bytes(g, p, (size_t)k->claimed) - tni_node_bytes(g->item[k->claimed].n);
}

int64_t tni_step_bytes(const tni_graph *g, const tni_plan *p, tni_step step)
{
    return step < 0 ? kernel_bytes(g, p, &p->kernel[~step]) : call_bytes(g, p, (size_t)step);
}

bool tni_step_runs(const tni_graph *g, const tni_plan *p, tni_step step)
{
    if (step < 0) return true;
    const tni_node  *n     = g->item[step].n;
    const tni_place *place = &p->place[step];
    return n->op != TNI_view && !place->alias && !place->filled && tni_node_count(n) > 0;
}

// ---- names -------------------------------------------------------------------------------------

tni_text tni_step_name(const tni_graph *g, const tni_plan *p, tni_step step)
{
    const tni_fused *k  = step < 0 ? &p->kernel[~step] : NULL;
    int32_t          op = k ? k->claimed : step;
    if (op < 0) return tni_text_of("%s", tni_kernel_kind(k->kernel));
    const char *name = tni_op_table[g->item[op].n->op].name;
    return k ? tni_text_of("%s + %s", name, tni_kernel_kind(k->kernel)) : tni_text_of("%s", name);
}

tni_text tni_step_sizes(const tni_graph *g, const tni_plan *p, tni_step step)
{
    if (step >= 0) return tni_shape_text(g->item[step].n->rank, g->item[step].n->size);
    const tni_fused *k  = &p->kernel[~step];
    int              np = k->kernel->np;
    tni_text         t  = tni_text_of("(");
    for (int i = 0; i < np + k->kernel->nr; i++)
        tni_text_add(&t, "%s%lld",
                     i == 0    ? ""
                     : i == np ? " | "
                               : ", ",
                     (long long)k->launch.size[i]);
    tni_text_add(&t, ")");
    return t;
}

static bool same_site(const tni_node *a, const tni_node *b)
{
    return a->site.line == b->site.line && a->site.file == b->site.file &&
           a->site.op == b->site.op && a->site.layer == b->site.layer;
}

// The node that number `at` stands for: 0 the op before a kernel, then its instructions; NULL if
// there is none.
static const tni_node *origin_at(const tni_graph *g, const tni_fused *k, int at)
{
    int32_t item = at == 0 ? k->claimed : k->origin[at - 1];
    return item < 0 ? NULL : g->item[item].n;
}

static bool is_new(const tni_graph *g, const tni_fused *k, int at)
{
    const tni_node *n = origin_at(g, k, at), *other;
    if (!n) return false;
    for (int i = 0; i < at; i++)
        if ((other = origin_at(g, k, i)) != NULL && same_site(other, n)) return false;
    return true;
}

const tni_node *tni_step_origin(const tni_graph *g, const tni_plan *p, tni_step step, int *at)
{
    if (step >= 0) return (*at)++ ? NULL : g->item[step].n;
    const tni_fused *k = &p->kernel[~step];
    while (*at <= k->kernel->nins) {
        int here = (*at)++;
        if (is_new(g, k, here)) return origin_at(g, k, here);
    }
    return NULL;
}

// ---- effort ------------------------------------------------------------------------------------

// A convolution and its gradients multiply every element of y by every weight that it came from.
static double conv_flops(const tni_node *n)
{
    const tni_node *y = n->op == TNI_conv ? n : n->src[0];
    const tni_node *w = n->op == TNI_conv_wgrad ? n : n->src[1];
    return 2 * (double)tni_node_count(y) * (double)(w->size[1] * w->size[2] * w->size[3]);
}

static double matmul_flops(const tni_node *n)
{
    const tni_node *a = n->src[0];
    return 2 * (double)tni_node_count(n) * (double)a->size[a->rank - 1];
}

// Both products of attention, half of them where a query sees only what came before it; the
// gradient has five.
static double attention_flops(const tni_node *n)
{
    const int64_t *q = n->src[0]->size, *k = n->src[1]->size, *v = n->src[2]->size;
    double         places = (double)(q[0] * q[1] * q[2]) * (double)k[1];
    double width = n->op == TNI_attention ? (double)(q[3] + v[3]) : (double)(3 * q[3] + 2 * v[3]);
    return places * width * (n->attr.attention.causal ? 1 : 2);
}

static tni_effort call_effort(const tni_node *n)
{
    tni_class class = tni_op_table[n->op].class;
    tni_effort e    = { .dtype = (tn_dtype)n->dtype };
    switch (n->op) {
    case TNI_matmul: e.products = matmul_flops(n); break;
    case TNI_conv:
    case TNI_conv_dgrad:
    case TNI_conv_wgrad: e.products = conv_flops(n); break;
    case TNI_attention:
    case TNI_attention_grad: e.products = attention_flops(n); break;
    default:
        if (class == TNI_REDUCE) e.flops = (double)tni_node_count(n->src[0]);
        else if (class <= TNI_TERNARY || class == TNI_SCAN || class == TNI_SOURCE)
            e.flops = (double)tni_node_count(n) * tni_op_table[n->op].cost;
    }
    e.flops += e.products;
    return e;
}

// Points of a kernel's domain at which a value is computed.
static double points(const tni_launch *l, int per)
{
    double n = 1;
    for (int i = 0; i < l->kernel->np + l->kernel->nr; i++)
        if (per & (i < l->kernel->np ? TNI_PER_ROW : TNI_PER_COL)) n *= (double)l->size[i];
    return n;
}

static double kernel_flops(const tni_launch *l)
{
    const tni_kernel *k     = l->kernel;
    double            flops = 0;
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *in = &k->ins[i];
        if (in->code == TNI_I_REDUCE) flops += points(l, k->ins[in->a].per);
        else if (in->code == TNI_I_MAP || in->code == TNI_I_RANDOM)
            flops += points(l, in->per) * tni_op_table[in->op].cost;
    }
    return flops;
}

tni_effort tni_step_effort(const tni_graph *g, const tni_plan *p, tni_step step)
{
    if (step >= 0) return call_effort(g->item[step].n);
    const tni_fused *k = &p->kernel[~step];
    tni_effort       e = { 0 };
    if (k->claimed >= 0) e = call_effort(g->item[k->claimed].n);
    e.flops += kernel_flops(&k->launch);
    return e;
}
