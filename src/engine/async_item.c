// tn_item_late: the newest value that arrived, by name or by line, without waiting for one.
#include "engine/engine.h"

#include "device/ref/ref.h"

#include <math.h>
#include <string.h>

static tni_async_item *find(tni_engine *e, const char *name, tni_site site)
{
    for (size_t i = 0; i < e->late_count; i++) {
        tni_async_item *l = &e->late[i];
        if (name ? l->name && !strcmp(l->name, name)
                 : !l->name && l->site.line == site.line && !strcmp(l->site.file, site.file))
            return l;
    }
    return NULL;
}

static tni_async_item *add(tn_ctx *cx, const char *name, tni_site site)
{
    tni_engine *e = cx->engine;
    if (!tni_grow(&cx->heap, (void **)&e->late, &e->late_cap, e->late_count + 1, sizeof *e->late))
        return tni_fail_memory(cx, "item_late");
    char *copy = name ? tni_strdup(&cx->heap, name) : NULL;
    if (name && !copy) return tni_fail_memory(cx, "item_late");
    e->late[e->late_count] = (tni_async_item){ .name = copy, .site = site, .value = NAN };
    return &e->late[e->late_count++];
}

static double number_of(tn_dtype dt, const void *element)
{
    tni_cell c;
    tni_ref_from_host(&c, dt, element, 1);
    return tni_is_float(dt) ? c.f : (double)c.i;
}

static void drop_tickets(tni_async_item *l, int n)
{
    l->tickets -= n;
    memmove(l->ticket, l->ticket + n, (size_t)l->tickets * sizeof *l->ticket);
    memmove(l->dtype, l->dtype + n, (size_t)l->tickets);
}

// Takes the newest of the values that have arrived.
static void collect(tni_engine *e, tni_async_item *l)
{
    _Alignas(8) char element[8];
    for (int i = l->tickets - 1; i >= 0; i--) {
        if (!e->events->fetched(e->session, l->ticket[i], element)) continue;
        l->value = number_of((tn_dtype)l->dtype[i], element);
        drop_tickets(l, i + 1);
        return;
    }
}

static void fetch(tni_engine *e, tni_async_item *l, tn_dtype dt, const void *src)
{
    int64_t ticket = e->events->fetch(e->session, dt, src);
    if (!ticket) return;
    if (l->tickets == TNI_ON_THE_WAY) drop_tickets(l, 1);
    l->ticket[l->tickets]  = ticket;
    l->dtype[l->tickets++] = (uint8_t)dt;
}

static void read_now(tni_engine *e, tni_async_item *l, tn_dtype dt, const void *src)
{
    _Alignas(8) char element[8];
    tni_text         why = { "" };
    if (e->device->memory->download(e->session, element, dt, src, 1, &why) == TN_OK)
        l->value = number_of(dt, element);
}

// Asks for the value of the node that was waited for, once that is computed.
static void arrive(tn_ctx *cx, tni_async_item *l)
{
    tni_engine *e = cx->engine;
    if (!l->node || l->node->state == TNI_PENDING) return;
    if (l->node->state == TNI_DONE) {
        tni_arg from = tni_value_arg(e, l->node);
        if (e->events->fetch) fetch(e, l, from.dtype, from.data);
        else read_now(e, l, from.dtype, from.data);
    }
    tni_node_unhold(cx, l->node);
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
    tni_async_item *l = find(cx->engine, t->name, tni_self.site);
    if (!l && !(l = add(cx, t->name, tni_self.site))) return NAN;
    arrive(cx, l);
    tni_node *n = tni_resolve(t, "item_late");
    if (!n) return NAN;
    tni_node_unhold(cx, l->node);
    l->node = tni_node_hold(n);
    arrive(cx, l);
    collect(cx->engine, l);
    return l->value;
}

void tni_async_items_close(tn_ctx *cx)
{
    tni_engine *e = cx->engine;
    for (size_t i = 0; i < e->late_count; i++) {
        tni_node_unhold(cx, e->late[i].node);
        tni_free(&cx->heap, e->late[i].name);
    }
    tni_free(&cx->heap, e->late);
}
