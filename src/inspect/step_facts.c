// What a step of a plan is: bytes, flops, names, lines. Shared by explain and profile, so that both
// describe a step in the same words and count it in the same way.
#include "inspect/step_facts.h"

// ---- bytes -------------------------------------------------------------------------------------

int64_t tni_node_bytes(const tni_node *n)
{
    return tni_node_count(n) * (int64_t)tni_dtype_size((tn_dtype)n->dtype);
}

// Counts elements that are read: an axis of stride 0 (broadcast) is one element.
int64_t tni_source_bytes(const tni_node *src)
{
    tni_view v = tni_node_layout(src);
    int64_t  n = 1;
    for (int i = 0; i < v.rank; i++) n *= v.stride[i] || !v.size[i] ? v.size[i] : 1;
    return n * (int64_t)tni_dtype_size((tn_dtype)src->dtype);
}

// A gather reads only what it picks, and an update in place does not read the old value.
int64_t tni_read_bytes(const tni_graph *g, const tni_plan *p, size_t i, uint32_t s)
{
    const tni_node *n = g->item[i].n, *src = n->src[s];
    if (n->op == TNI_update && s == 0 && p->place[i].in_place) return 0;
    int64_t all = tni_source_bytes(src), picked = tni_node_bytes(n);
    return n->op == TNI_gather && s == 0 && picked < all ? picked : all;
}

int64_t tni_written_bytes(const tni_graph *g, const tni_plan *p, size_t i)
{
    const tni_node *n = g->item[i].n;
    return p->place[i].in_place ? tni_node_bytes(n->src[1]) : tni_node_bytes(n);
}

// Bytes of all inputs and outputs, each once.
static int64_t call_bytes(const tni_graph *g, const tni_plan *p, size_t i)
{
    int64_t bytes = tni_written_bytes(g, p, i);
    for (uint32_t s = 0; s < g->item[i].n->nsrc; s++) bytes += tni_read_bytes(g, p, i, s);
    for (const tni_node *o = tni_outputs(g->item[i].n); o; o = o->output)
        bytes += tni_node_bytes(o);
    return bytes;
}

// A fused epilogue reads the op's result from registers or cache: those bytes are not counted.
static int64_t kernel_bytes(const tni_graph *g, const tni_plan *p, const tni_planned_kernel *k)
{
    if (k->call_item < 0) return k->bytes;
    return k->bytes + call_bytes(g, p, (size_t)k->call_item) -
           tni_node_bytes(g->item[k->call_item].n);
}

int64_t tni_step_bytes(const tni_graph *g, const tni_plan *p, tni_plan_step step)
{
    return step < 0 ? kernel_bytes(g, p, &p->kernel[~step]) : call_bytes(g, p, (size_t)step);
}

bool tni_step_runs(const tni_graph *g, const tni_plan *p, tni_plan_step step)
{
    return step < 0 || !tni_runs_nothing(g, p->place, (size_t)step);
}

// ---- library calls -----------------------------------------------------------------------------

const tni_op_impl *tni_step_call(const tni_engine *e, const tni_graph *g, const tni_plan *p,
                                 tni_plan_step step, tni_call *c)
{
    int32_t item = step < 0 ? p->kernel[~step].call_item : step;
    if (item < 0 || !p->place[item].call) return NULL;
    *c         = p->call[p->place[item].call - 1].call;
    c->device  = e->device;
    c->session = e->session;
    c->attr    = &g->item[item].n->attr;
    tni_call_find_packed(c, g->item[item].n);
    return tni_device_impl(e->device, c->op);
}

const char *tni_step_method(const tni_engine *e, const tni_graph *g, const tni_plan *p,
                            tni_plan_step step)
{
    tni_call           c;
    const tni_op_impl *impl = tni_step_call(e, g, p, step, &c);
    return impl && impl->method ? impl->method(&c) : NULL;
}

const char *tni_step_varies(const tni_engine *e, const tni_graph *g, const tni_plan *p,
                            tni_plan_step step)
{
    tni_call           c;
    const tni_op_impl *impl = tni_step_call(e, g, p, step, &c);
    return impl && impl->varies ? impl->varies(&c) : NULL;
}

// ---- names -------------------------------------------------------------------------------------

// Names a write to a part of a tensor: two copies, if the rest has to be copied first.
static tni_text update_name(const tni_node *n, const tni_place *place)
{
    bool value = tni_node_count(n->src[1]) > 0;
    return tni_text_of("%s%s",
                       place->in_place ? ""
                       : value         ? "copy + "
                                       : "copy",
                       value ? "update" : "");
}

tni_text tni_step_name(const tni_graph *g, const tni_plan *p, tni_plan_step step)
{
    const tni_planned_kernel *k  = step < 0 ? &p->kernel[~step] : NULL;
    int32_t                   op = k ? k->call_item : step;
    if (op < 0) return tni_text_of("%s", tni_kernel_kind(k->kernel));
    const char *name = tni_op_table[g->item[op].n->op].name;
    if (g->item[op].n->op == TNI_update) return update_name(g->item[op].n, &p->place[op]);
    return k ? tni_text_of("%s + %s", name, tni_kernel_kind(k->kernel)) : tni_text_of("%s", name);
}

// Reduced axes come after a bar: (64 | 128).
tni_text tni_step_sizes(const tni_graph *g, const tni_plan *p, tni_plan_step step)
{
    if (step >= 0) return tni_shape_text(g->item[step].n->rank, g->item[step].n->size);
    const tni_planned_kernel *k  = &p->kernel[~step];
    int                       np = k->kernel->np;
    tni_text                  t  = tni_text_of("(");
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

// Returns the node that number `at` stands for: 0 is the library op before a kernel, then come the
// kernel's instructions; NULL if there is none.
static const tni_node *origin_at(const tni_graph *g, const tni_planned_kernel *k, int at)
{
    int32_t item = at == 0 ? k->call_item : k->origin[at - 1];
    return item < 0 ? NULL : g->item[item].n;
}

// Returns whether no earlier number has the same call site.
static bool is_new(const tni_graph *g, const tni_planned_kernel *k, int at)
{
    const tni_node *n = origin_at(g, k, at), *other;
    if (!n) return false;
    for (int i = 0; i < at; i++)
        if ((other = origin_at(g, k, i)) != NULL && same_site(other, n)) return false;
    return true;
}

// Quadratic in the instructions of a kernel, which are few; called only to show a plan.
const tni_node *tni_step_origin(const tni_graph *g, const tni_plan *p, tni_plan_step step, int *at)
{
    if (step >= 0) return (*at)++ ? NULL : g->item[step].n;
    const tni_planned_kernel *k = &p->kernel[~step];
    while (*at <= k->kernel->nins) {
        int here = (*at)++;
        if (is_new(g, k, here)) return origin_at(g, k, here);
    }
    return NULL;
}

// ---- effort ------------------------------------------------------------------------------------

static tni_effort call_effort(const tni_node *n)
{
    double flops   = tni_node_flops(n);
    bool   library = tni_op_table[n->op].class == TNI_LIBRARY;
    return (
        tni_effort){ .dtype = (tn_dtype)n->dtype, .flops = flops, .products = library ? flops : 0 };
}

// Returns the points of a kernel's domain at which a value is computed.
static double count_points(const tni_launch *l, int per)
{
    double n = 1;
    for (int i = 0; i < l->kernel->np + l->kernel->nr; i++)
        if (per & (i < l->kernel->np ? TNI_PER_ROW : TNI_PER_COL)) n *= (double)l->size[i];
    return n;
}

// Adds up the cost of each instruction, from the op table, at the points where it is computed.
static double kernel_flops(const tni_launch *l)
{
    const tni_kernel *k     = l->kernel;
    double            flops = 0;
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *in = &k->ins[i];
        if (in->code == TNI_I_REDUCE) flops += count_points(l, k->ins[in->a].per);
        else if (in->code == TNI_I_MAP || in->code == TNI_I_RANDOM)
            flops += count_points(l, in->per) * tni_op_table[in->op].cost;
    }
    return flops;
}

tni_effort tni_step_effort(const tni_graph *g, const tni_plan *p, tni_plan_step step)
{
    if (step >= 0) return call_effort(g->item[step].n);
    const tni_planned_kernel *k = &p->kernel[~step];
    tni_effort                e = { 0 };
    if (k->call_item >= 0) e = call_effort(g->item[k->call_item].n);
    e.flops += kernel_flops(&k->launch);
    return e;
}
