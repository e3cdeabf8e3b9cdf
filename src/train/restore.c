// Values from a file, made ready and then put into tensors that are in use.
#include "train/restore.h"

#include <string.h>

// ---- names -------------------------------------------------------------------------------------

void tni_misfit(tni_misfits *m, const char *name)
{
    enum { SHOWN = 3 };
    m->count++;
    if (m->count <= SHOWN) tni_text_add(&m->first, "%s%.48s", m->count > 1 ? ", " : "", name);
    else if (m->count == SHOWN + 1) tni_text_add(&m->first, ", ...");
}

tn_status tni_names_fit(tn_ctx *cx, const char *op, const char *path, const tni_misfits *missing,
                        const tni_misfits *unknown)
{
    if (!missing->count && !unknown->count) return TN_OK;
    tni_text both[2] = { { "" }, { "" } };
    if (missing->count)
        tni_text_add(&both[0], "%lld missing (%s)", (long long)missing->count, missing->first.s);
    if (unknown->count)
        tni_text_add(&both[1], "%lld not expected (%s)", (long long)unknown->count,
                     unknown->first.s);
    return tni_fail_status(cx, TN_EFORMAT, "%s: %.120s: names do not fit: %s%s%s", op, path,
                           both[0].s, missing->count && unknown->count ? ", " : "", both[1].s);
}

char *tni_join(tn_ctx *cx, const char *op, const char *prefix, const char *name)
{
    size_t a = strlen(prefix), b = strlen(name) + 1;
    char  *text = tni_alloc(&cx->heap, a + b);
    if (!text) return tni_fail_memory(cx, op);
    memcpy(text, prefix, a);
    memcpy(text + a, name, b);
    return text;
}

// ---- values ------------------------------------------------------------------------------------

bool tni_shape_fits(tn_ctx *cx, const char *op, const char *path, const tn_file_desc *file,
                    int rank, const int64_t *size)
{
    if (tni_shape_equal(file->rank, file->size, rank, size)) return true;
    tni_fail(cx, TN_ESHAPE, "%s: %.120s: %.60s is %s in the file, but %s here", op, path,
             file->name, tni_shape_text(file->rank, file->size).s, tni_shape_text(rank, size).s);
    return false;
}

bool tni_can_put(const char *op, const char *name, const tn_tensor *t)
{
    if (!t->view) return true;
    tni_fail(t->cx, TN_EARG, "%s: %.60s is a view of another tensor, which a file cannot fill", op,
             name);
    return false;
}

tn_tensor *tni_take_copy(const char *op, tn_tensor *t, tn_dtype dt)
{
    if (!t) return NULL;
    int        kind = tn_dtype_of(t) == dt ? TNI_copy : TNI_cast;
    tni_node  *n    = tni_resolve(t, op);
    tn_tensor *y    = n ? tni_record(t->cx, kind, dt, n->rank, n->size, 1, &n, NULL) : NULL;
    bool       ok   = y && tn_eval_of(y) == TN_OK;
    tn_drop(t);
    return ok ? y : NULL;
}

void tni_put_value(tn_tensor *t, const tn_tensor *value)
{
    tni_store_bind(t->cx, t->store, tni_node_ref(value->store->node));
}
