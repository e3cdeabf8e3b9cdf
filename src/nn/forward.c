// Running a layer: from x to y, or from several inputs to several outputs.
#include "nn/layer.h"

enum { MOST_NESTED = 1000 };  // before the stack ends

// One run: the call's name, what goes in and what comes out. y is not the caller's, who may give the
// array of inputs for the outputs too.
typedef struct {
    const char       *op;
    tn_layer         *l;
    int               nx, ny;
    tn_tensor *const *x;
    tn_tensor       **y;
} pass;

// ---- arguments ---------------------------------------------------------------------------------

// "x" of tn_forward, "x[2]" where there are several.
static tni_text input_name(const pass *p, int i)
{
    return p->nx == 1 ? tni_text_of("x") : tni_text_of("x[%d]", i);
}

static bool input_ok(tn_ctx *cx, const pass *p, int i)
{
    if (!p->x[i]) {
        if (!cx->fault.code) tni_fail(cx, TN_EARG, "%s: %s is NULL", p->op, input_name(p, i).s);
        tni_self.latest = cx->fault.code;
        return false;
    }
    if (!tni_arg1(p->op, p->x[i], "x")) return false;
    if (p->x[i]->cx == cx) return true;
    return tni_refuse(cx, TN_EARG, "%s: %s belongs to another context", p->op, input_name(p, i).s);
}

// The context, if all are there and of it; NULL is reported to the other's, by the rules of NULL.
static tn_ctx *check_args(const pass *p)
{
    if (!p->l && p->x && p->x[0]) {
        tn_ctx *cx = tni_arg1(p->op, p->x[0], "x");
        if (cx && !cx->fault.code) tni_fail(cx, TN_EARG, "%s: the layer is NULL", p->op);
        return NULL;
    }
    tn_ctx *cx = tni_owned_ok(p->op, p->l, TNI_LAYER);
    if (!cx) return NULL;
    if (!p->x) return tni_fail(cx, TN_EARG, "%s: x is NULL", p->op);
    for (int i = 0; i < p->nx; i++)
        if (!input_ok(cx, p, i)) return NULL;
    return cx;
}

static tni_text count_text(const tn_layer *l)
{
    tni_text t = { "" };
    if (l->optional) tni_text_add(&t, "%d to ", l->in - l->optional);
    tni_text_add(&t, "%d input%s and gives %d output%s", l->in, l->in == 1 ? "" : "s", l->out,
                 l->out == 1 ? "" : "s");
    return t;
}

// Whether the layer can run at all, and has as many inputs and outputs as the call.
static bool can_run(tn_ctx *cx, const pass *p)
{
    const tn_layer *l = p->l;
    if (!l->forward && !l->forward_n)
        return tni_refuse(cx, TN_EARG,
                          "%s: the layer has no function: it only holds tensors and other layers",
                          p->op);
    if (p->nx > l->in || p->nx < l->in - l->optional || p->ny != l->out)
        return tni_refuse(cx, TN_EARG, "%s: the layer takes %s, not %d and %d", p->op,
                          count_text(l).s, p->nx, p->ny);
    if (cx->nested < MOST_NESTED) return true;
    return tni_refuse(cx, TN_EARG, "%s: %d calls inside one another: does a layer run itself?",
                      p->op, MOST_NESTED);
}

// ---- running -----------------------------------------------------------------------------------

static void run_function(pass *p)
{
    tn_layer *l = p->l;
    if (l->forward) p->y[0] = l->forward(l, p->x[0]);
    else l->forward_n(l, p->nx, p->x, p->ny, p->y);
}

static void run(pass *p)
{
    tni_thread before;
    tni_layer_hold(p->l);
    if (!p->l->builtin) tni_user_begin(&before);
    run_function(p);
    if (!p->l->builtin) tni_user_end(&before);
    tni_layer_let_go(p->l);
}

// Whether the function gave every output; if not, and it said no reason, that is one.
static bool complete(tn_ctx *cx, const pass *p)
{
    int i = 0;
    while (i < p->ny && p->y[i]) i++;
    if (i == p->ny) return true;
    if (!cx->fault.code && p->ny == 1)
        tni_fail(cx, TN_EUSER, "%s: the layer's function gave no tensor", p->op);
    else if (!cx->fault.code)
        tni_fail(cx, TN_EUSER, "%s: the layer's function gave no y[%d]", p->op, i);
    return false;
}

// Runs the layer with its path in the site, for the errors and for what is recorded. A root has none,
// so that one which runs inside a layer counts to that.
static bool run_in_place(tn_ctx *cx, pass *p)
{
    const tni_path *outside = tni_self.site.layer;
    if (p->l->path) tni_self.site.layer = p->l->path;
    bool ok = can_run(cx, p);
    if (ok) run(p);
    ok                  = ok && complete(cx, p);
    tni_self.site.layer = outside;
    return ok;
}

static bool forward(pass *p)
{
    tn_ctx *cx = check_args(p);
    if (!cx) return false;
    if (!tni_layer_place(p->l)) return tni_no_memory(cx, p->op);
    if (!run_in_place(cx, p)) return false;
    tn_layer *root = tni_layer_root(p->l);
    if (root->watch) root->watch(p->l, p->ny, p->y, root->watch_user);
    return true;
}

tn_tensor *tn_forward(tn_layer *l, tn_tensor *x)
{
    tn_tensor *y = NULL;
    pass       p = { .op = "forward", .l = l, .nx = 1, .ny = 1, .x = &x, .y = &y };
    return forward(&p) ? y : NULL;
}

static bool ports_ok(const tn_layer *l, int nx, int ny, tn_tensor **y)
{
    const char *op = "forward_n";
    bool        ok = nx >= 1 && ny >= 1 && nx <= TNI_MOST_PORTS && ny <= TNI_MOST_PORTS;
    tn_ctx     *cx = l ? tni_owned_ok(op, l, TNI_LAYER) : NULL;
    if (ok && y) return true;
    if (l && !cx) return false;
    if (!cx) tni_owned_ok(op, NULL, TNI_LAYER);
    else if (!y) tni_fail(cx, TN_EARG, "%s: y is NULL", op);
    else
        tni_fail(cx, TN_EARG, "%s: %d inputs and %d outputs: each is in 1 .. %d", op, nx, ny,
                 TNI_MOST_PORTS);
    return false;
}

tn_status tn_forward_n(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    tn_tensor *made[TNI_MOST_PORTS] = { 0 };
    pass       p     = { .op = "forward_n", .l = l, .nx = nx, .ny = ny, .x = x, .y = made };
    bool       ports = ports_ok(l, nx, ny, y), ok = ports && forward(&p);
    for (int i = 0; ports && i < ny; i++) y[i] = ok ? made[i] : NULL;
    return ok ? TN_OK : tni_failed();
}
