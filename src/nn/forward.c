// Running a layer: from x to y, or from several inputs to several outputs. Nothing is computed
// here: the layer's function records ops, whose call sites carry the layer's path for errors,
// profiles and explain.
#include "nn/layer.h"

// A layer that runs itself would overflow the stack; real networks nest a few dozen calls.
enum { MOST_NESTED = 1000 };  // before the stack ends

// One call of tn_forward or tn_forward_n: its name for messages, its inputs and outputs. y is never
// the caller's array, since the caller may pass one array for inputs and outputs.
typedef struct {
    const char       *op;
    tn_layer         *l;
    int               nx, ny;
    tn_tensor *const *x;
    tn_tensor       **y;
} pass;

// ---- arguments ---------------------------------------------------------------------------------

// Names an input in messages: "x" of tn_forward, "x[2]" if there are several.
static tni_text input_name(const pass *p, int i)
{
    return p->nx == 1 ? tni_text_of("x") : tni_text_of("x[%d]", i);
}

// Returns whether input i is a live tensor of the layer's context, or NULL where it may be left
// out. A NULL after an error is not meant to be left out.
static bool input_ok(tn_ctx *cx, const pass *p, int i)
{
    const tn_layer *l = p->l;
    if (!p->x[i] && !cx->fault.code && i >= l->in - l->optional && i < l->in) return true;
    if (!p->x[i]) {
        if (!cx->fault.code) tni_fail(cx, TN_EARG, "%s: %s is NULL", p->op, input_name(p, i).s);
        // A NULL that follows an error returns that error's status.
        tni_self.latest = cx->fault.code;
        return false;
    }
    if (!tni_arg1(p->op, p->x[i], "x")) return false;
    if (p->x[i]->cx == cx) return true;
    return tni_refuse(cx, TN_EARG, "%s: %s belongs to another context", p->op, input_name(p, i).s);
}

// Returns the layer's context if layer and inputs are valid; NULL, reported, if not. A NULL layer
// is reported to the context of the input, since it has none itself.
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

// "1 to 2 inputs and gives 1 output", for messages.
static tni_text count_text(const tn_layer *l)
{
    tni_text t = { "" };
    if (l->optional) tni_text_add(&t, "%d to ", l->in - l->optional);
    tni_text_add(&t, "%d input%s and gives %d output%s", l->in, l->in == 1 ? "" : "s", l->out,
                 l->out == 1 ? "" : "s");
    return t;
}

// Returns whether the layer has a function, and as many inputs and outputs as the call.
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

// Calls whichever of the two functions the layer has.
static void run_function(pass *p)
{
    tn_layer *l = p->l;
    if (l->derived && !tni_derive_weights(l)) return;
    if (l->forward) p->y[0] = l->forward(l, p->x[0]);
    else l->forward_n(l, p->nx, p->x, p->ny, p->y);
}

// Calls the function so that what it records can be computed again. A layer inside another that is
// recomputed too has a region of its own.
static void run_in_region(pass *p)
{
    tn_ctx  *cx      = p->l->owned.cx;
    uint32_t outside = cx->region;
    if (p->l->recompute && cx->grad_mode) cx->region = ++cx->regions;
    run_function(p);
    cx->region = outside;
}

// Holds the layer while its function runs. A user's function sees the context as user code does:
// its lines are recorded, and its temporaries are its own. Those of one that is repeatable die with
// the call, as ours do: it has no effect but its result, so that it keeps none of them, and reading
// the result does not store them.
static void run_pass(pass *p)
{
    tni_thread before;
    bool       sites = !p->l->builtin, frames = sites && !p->l->repeatable;
    tni_layer_hold(p->l);
    if (frames) tni_user_frames_begin(&before);
    else if (sites) tni_user_sites_begin(&before);
    run_in_region(p);
    if (frames) tni_user_frames_end(&before);
    else if (sites) tni_user_sites_end(&before);
    tni_layer_let_go(p->l);
}

// Returns whether the function gave every output; if not, and nothing was reported, reports that.
static bool outputs_complete(tn_ctx *cx, const pass *p)
{
    int i = 0;
    while (i < p->ny && p->y[i]) i++;
    if (i == p->ny) return true;
    if (!cx->fault.code && p->ny == 1)
        tni_fail(cx, TN_EUSER, "%s: the layer's function returned no tensor", p->op);
    else if (!cx->fault.code)
        tni_fail(cx, TN_EUSER, "%s: the layer's function set no y[%d]", p->op, i);
    return false;
}

// Runs the layer with its path in the call site, for errors and for what is recorded. A root has no
// path, so that a network run inside another layer counts as part of that layer.
static bool run_in_place(tn_ctx *cx, pass *p)
{
    const tni_path *outside = tni_self.site.layer;
    if (p->l->path) tni_self.site.layer = p->l->path;
    bool ok = can_run(cx, p);
    if (ok) run_pass(p);
    ok                  = ok && outputs_complete(cx, p);
    tni_self.site.layer = outside;
    return ok;
}

// Checks, runs, and then shows the outputs to whoever watches the tree (a summary).
static bool forward_pass(pass *p)
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
    return forward_pass(&p) ? y : NULL;
}

// Checks the counts before the arrays are touched.
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

// Outputs are written only after the whole call, all of them or NULL.
tn_status tn_forward_n(tn_layer *l, int nx, tn_tensor *const *x, int ny, tn_tensor **y)
{
    tn_tensor *made[TNI_MOST_PORTS] = { 0 };
    pass       p     = { .op = "forward_n", .l = l, .nx = nx, .ny = ny, .x = x, .y = made };
    bool       ports = ports_ok(l, nx, ny, y), ok = ports && forward_pass(&p);
    for (int i = 0; ports && i < ny; i++) y[i] = ok ? made[i] : NULL;
    return ok ? TN_OK : tni_failed();
}
