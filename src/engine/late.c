// tn_item_late: the newest value that arrived, by name or by line, without waiting for one.
#include "engine/engine.h"

#include <math.h>
#include <string.h>

static tni_late *find(tni_engine *e, const char *name, tni_site site)
{
    for (size_t i = 0; i < e->late_count; i++) {
        tni_late *l = &e->late[i];
        if (name ? l->name && !strcmp(l->name, name)
                 : !l->name && l->site.line == site.line && !strcmp(l->site.file, site.file))
            return l;
    }
    return NULL;
}

static tni_late *add(tn_ctx *cx, const char *name, tni_site site)
{
    tni_engine *e = cx->engine;
    if (!tni_grow(&cx->heap, (void **)&e->late, &e->late_cap, e->late_count + 1, sizeof *e->late))
        return tni_fail_memory(cx, "item_late");
    char *copy = name ? tni_strdup(&cx->heap, name) : NULL;
    if (name && !copy) return tni_fail_memory(cx, "item_late");
    e->late[e->late_count] = (tni_late){ .name = copy, .site = site, .value = NAN };
    return &e->late[e->late_count++];
}

// Takes the value of the node that was waited for, if it has arrived.
static void arrive(tn_ctx *cx, tni_late *l)
{
    if (!l->node || l->node->state == TNI_PENDING) return;
    if (l->node->state == TNI_DONE) {
        const tni_device *dev  = cx->engine->device;
        tni_arg           from = tni_value_arg(cx->engine, l->node), to = from;
        tni_text          why = { "" };
        _Alignas(64) char room[64];
        tni_call          call = { .op      = TNI_cast,
                                   .nin     = 1,
                                   .in      = &from,
                                   .out     = to,
                                   .attr    = &l->node->attr,
                                   .threads = 1,
                                   .why     = &why };
        call.out.dtype         = TN_F64;
        call.out.data          = room;
        if (dev->run(&call) == TN_OK) dev->download(&l->value, TN_F64, room, 1);
    }
    tni_node_unref(cx, l->node);
    l->node = NULL;
}

double tn_item_late(tn_tensor *t)
{
    tn_ctx *cx = tni_arg1("item_late", t, "t");
    if (!cx) return NAN;
    if (tn_count(t) != 1) {
        tni_fail(cx, TN_ESHAPE, "item_late: t %s is not one element", tni_shape_of(t).s);
        return NAN;
    }
    tni_late *l = find(cx->engine, t->name, tni_self.site);
    if (!l && !(l = add(cx, t->name, tni_self.site))) return NAN;
    arrive(cx, l);
    tni_node *n = tni_resolve(t, "item_late");
    if (!n) return NAN;
    tni_node_unref(cx, l->node);
    l->node = tni_node_ref(n);
    arrive(cx, l);
    return l->value;
}

void tni_late_close(tn_ctx *cx)
{
    tni_engine *e = cx->engine;
    for (size_t i = 0; i < e->late_count; i++) {
        tni_node_unref(cx, e->late[i].node);
        tni_free(&cx->heap, e->late[i].name);
    }
    tni_free(&cx->heap, e->late);
}
