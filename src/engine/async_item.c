// tn_item_late: reads a value without waiting for it, by name or by line. Each call returns the
// newest value that has arrived, of the current step or of an earlier one, and asks for the current
// one.
//
// Each tensor name, or each line that calls it, has a tni_async_item. It holds the node it was
// given last until that is computed, then lets the device begin to copy it to the host
// (events->fetch) and keeps the ticket of the copy. A device without that is read at once.
//
// tni_fetch_begin and tni_fetch_end are for a caller that wants every value, in order, and keeps
// the tickets.
#include "engine/engine.h"

#include "device/ref/ref.h"

#include <math.h>
#include <string.h>

// Finds the entry of a tensor's name, or of the line that called.
static tni_async_item *find_async_item(tni_engine *e, const char *name, tni_site site)
{
    for (size_t i = 0; i < e->async_items; i++) {
        tni_async_item *l = &e->async_item[i];
        if (name ? l->name && !strcmp(l->name, name)
                 : !l->name && l->site.line == site.line && !strcmp(l->site.file, site.file))
            return l;
    }
    return NULL;
}

// Adds an entry, whose value is NAN until one arrives.
static tni_async_item *add_async_item(tn_ctx *cx, const char *name, tni_site site)
{
    tni_engine *e = cx->engine;
    if (!tni_grow(&cx->heap, (void **)&e->async_item, &e->async_cap, e->async_items + 1,
                  sizeof *e->async_item))
        return tni_fail_memory(cx, "item_late");
    char *copy = name ? tni_strdup(&cx->heap, name) : NULL;
    if (name && !copy) return tni_fail_memory(cx, "item_late");
    e->async_item[e->async_items] = (tni_async_item){ .name = copy, .site = site, .value = NAN };
    return &e->async_item[e->async_items++];
}

// Converts an element of any dtype, by the conversion of the reference device.
static double element_as_double(tn_dtype dt, const void *element)
{
    tni_cell c;
    tni_ref_from_host(&c, dt, element, 1);
    return tni_is_float(dt) ? c.f : (double)c.i;
}

// Forgets the n oldest copies.
static void drop_tickets(tni_async_item *l, int n)
{
    l->tickets -= n;
    memmove(l->ticket, l->ticket + n, (size_t)l->tickets * sizeof *l->ticket);
    memmove(l->dtype, l->dtype + n, (size_t)l->tickets);
}

// Takes the newest value that has arrived, and forgets older ones.
static void collect_arrived(tni_engine *e, tni_async_item *l)
{
    _Alignas(8) char element[8];
    for (int i = l->tickets - 1; i >= 0; i--) {
        if (!e->events->fetched(e->session, l->ticket[i], element)) continue;
        l->value = element_as_double((tn_dtype)l->dtype[i], element);
        drop_tickets(l, i + 1);
        return;
    }
}

// Begins a copy to the host. If too many are under way, the oldest is forgotten: its value would be
// outdated.
static void begin_fetch(tni_engine *e, tni_async_item *l, tn_dtype dt, const void *src)
{
    int64_t ticket = e->events->fetch(e->session, dt, src);
    if (!ticket) return;
    if (l->tickets == TNI_ITEMS_IN_FLIGHT) drop_tickets(l, 1);
    l->ticket[l->tickets]  = ticket;
    l->dtype[l->tickets++] = (uint8_t)dt;
}

// Reads the value at once, for a device that has no asynchronous copies.
static void read_now(tni_engine *e, tni_async_item *l, tn_dtype dt, const void *src)
{
    _Alignas(8) char element[8];
    tni_text         why = { "" };
    if (e->device->memory->download(e->session, element, dt, src, 1, &why) == TN_OK)
        l->value = element_as_double(dt, element);
}

// Asks for the value of the node that was waited for, once it is computed. A node that failed is
// released too.
static void read_if_computed(tn_ctx *cx, tni_async_item *l)
{
    tni_engine *e = cx->engine;
    if (!l->node || l->node->state == TNI_PENDING) return;
    if (l->node->state == TNI_DONE) {
        tni_arg from = tni_value_arg(e, l->node);
        if (e->events->fetch) begin_fetch(e, l, from.dtype, from.data);
        else read_now(e, l, from.dtype, from.data);
    }
    tni_node_unhold(cx, l->node);
    l->node = NULL;
}

// The previous node is asked for first, since a step may have computed it since the last call; then
// this one takes its place.
double tn_item_late(tn_tensor *t)
{
    tn_ctx *cx = tni_arg1("item_late", t, "t");
    if (!cx) return NAN;
    if (tn_count(t) != 1) {
        tni_fail(cx, TN_ESHAPE, "item_late: t %s is not one element", tni_shape_of(t).s);
        return NAN;
    }
    tni_async_item *l = find_async_item(cx->engine, t->name, tni_self.site);
    if (!l && !(l = add_async_item(cx, t->name, tni_self.site))) return NAN;
    read_if_computed(cx, l);
    tni_node *n = tni_resolve(t, "item_late");
    if (!n) return NAN;
    tni_node_unhold(cx, l->node);
    l->node = tni_node_hold(n);
    read_if_computed(cx, l);
    collect_arrived(cx->engine, l);
    return l->value;
}

// ---- every value, in order ---------------------------------------------------------------------

int64_t tni_fetch_begin(tn_tensor *t, int64_t i)
{
    const tni_engine *e = t->cx->engine;
    tni_node         *n = tni_resolve(t, "reading");
    if (!n || n->state != TNI_DONE || !e->events->fetch) return 0;
    tni_arg from = tni_value_arg(e, n);
    return e->events->fetch(e->session, from.dtype,
                            from.data + i * from.stride[0] * (int64_t)tni_dtype_size(from.dtype));
}

// Looks for the value for as long as a step may take, without a call of the device, which would
// cost more than the wait. Then waits for all work, which finds errors.
bool tni_fetch_end(tn_ctx *cx, int64_t ticket, int64_t *value)
{
    enum { LOOKS = 2000000 };
    const tni_engine *e = cx->engine;
    _Alignas(8) char  element[8];
    for (int i = 0; i < LOOKS; i++)
        if (e->events->fetched(e->session, ticket, element)) {
            memcpy(value, element, sizeof *value);
            return true;
        }
    if (tn_sync(cx) != TN_OK) return false;
    if (!e->events->fetched(e->session, ticket, element))
        return tni_refuse(cx, TN_EDEVICE, "reading: a value of the device did not arrive");
    memcpy(value, element, sizeof *value);
    return true;
}

void tni_async_items_close(tn_ctx *cx)
{
    tni_engine *e = cx->engine;
    for (size_t i = 0; i < e->async_items; i++) {
        tni_node_unhold(cx, e->async_item[i].node);
        tni_free(&cx->heap, e->async_item[i].name);
    }
    tni_free(&cx->heap, e->async_item);
}
