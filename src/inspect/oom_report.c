// What is said when device memory is out: what was asked for, what there is, and who has it.
#include "inspect/inspect.h"

// Three holders fit a message and usually name the culprit.
enum { NAMED = 3 };  // holders that are named

// ---- who has it --------------------------------------------------------------------------------

// Finds the largest buffers in use, the largest first, by insertion into a short list.
static int find_largest(const tn_ctx *cx, const tni_buffer *top[NAMED])
{
    int n = 0;
    for (const tni_buffer *b = cx->buffers.used; b; b = b->next) {
        if (n == NAMED && b->bytes <= top[n - 1]->bytes) continue;
        int i = n < NAMED ? n++ : n - 1;
        for (; i > 0 && top[i - 1]->bytes < b->bytes; i--) top[i] = top[i - 1];
        top[i] = b;
    }
    return n;
}

// Returns whether a tensor's value is in buffer b. A tensor whose newest value is pending still
// holds the one before.
static bool is_stored_in(const tn_tensor *t, const tni_buffer *b)
{
    int64_t   offset;
    tni_node *n = t->store->node;
    if (n->state != TNI_DONE) n = t->store->rollback;
    return n && tni_node_base(n, &offset)->buf == b;
}

static const char *name_among(const tn_scope *s, const tni_buffer *b)
{
    for (const tn_tensor *t = s->newest; t; t = t->next)
        if (t->name && is_stored_in(t, b)) return t->name;
    return NULL;
}

// Returns the name of a tensor in b; NULL if none has a name.
static const char *name_of(const tn_ctx *cx, const tni_buffer *b)
{
    const char *name = name_among(&cx->owned, b);
    for (const tn_scope *s = cx->scope; s && !name; s = s->outer) name = name_among(s, b);
    return name;
}

// Returns "w (784, 256) of f32, 784.0 KiB"; a value without a name is described by the line that
// made it. A buffer in which no value was made yet belongs to the step that is about to run.
static tni_text holder_text(const tn_ctx *cx, const tni_buffer *b)
{
    tni_text    t    = { "" };
    const char *name = name_of(cx, b);
    if (name) tni_text_add(&t, "%.60s ", name);
    if (b->site.file)
        tni_text_add(&t, "%s of %s", tni_shape_text(b->rank, b->size).s,
                     tn_dtype_name((tn_dtype)b->dtype));
    else tni_text_add(&t, "values of this step");
    if (!name && b->site.line) tni_text_add(&t, " made at %s", tni_site_text(&b->site).s);
    tni_text_add(&t, ", %s", tni_size_text((int64_t)b->bytes).s);
    return t;
}

// ---- how much there is -------------------------------------------------------------------------

// Says what the limit is, or what the device has.
static tni_text space_text(const tn_ctx *cx)
{
    const tni_engine *e     = cx->engine;
    int64_t           limit = cx->buffers.limit;
    size_t            free = 0, all = 0;
    if (limit > 0) return tni_text_of(", of a limit of %s", tni_size_text(limit).s);
    if (!e->device->memory->space || !e->device->memory->space(e->session, &free, &all))
        return tni_text_of("%s", "");
    return tni_text_of("; %s of %s are free on the device", tni_size_text((int64_t)free).s,
                       tni_size_text((int64_t)all).s);
}

void *tni_oom_report(tn_ctx *cx, const char *op, const char *what, int64_t bytes)
{
    const tni_buffer *top[NAMED];
    tni_text          holder[NAMED] = { { "" } };
    // An earlier error is kept, so this text would be lost anyway.
    if (cx->fault.code) return tni_fail(cx, TN_EMEM, "%s: out of memory", op);  // and is not kept
    int n = find_largest(cx, top);
    for (int i = 0; i < n; i++) holder[i] = holder_text(cx, top[i]);
    return tni_fail(cx, TN_EMEM,
                    "%s: out of memory for %s: no %s besides the %s in use%s%s%s%s%s%s%s", op, what,
                    tni_size_text(bytes).s,
                    tni_size_text(cx->buffers.bytes + cx->buffers.host_bytes).s, space_text(cx).s,
                    n ? "; the largest: " : "", holder[0].s, n > 1 ? "; " : "", holder[1].s,
                    n > 2 ? "; " : "", holder[2].s);
}
