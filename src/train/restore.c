// Values from a file, made ready and then put into tensors that are in use. Names are compared here
// too, because weights and checkpoints report misfits in the same words.
#include "train/restore.h"

#include <string.h>

// ---- names -------------------------------------------------------------------------------------

// Three names are shown: enough to see the pattern, short enough for a message.
void tni_misfit(tni_misfits *m, const char *name)
{
    enum { SHOWN = 3 };
    m->count++;
    if (m->count <= SHOWN) tni_text_add(&m->first, "%s%.48s", m->count > 1 ? ", " : "", name);
    else if (m->count == SHOWN + 1) tni_text_add(&m->first, ", ...");
}

// One message names both lists, since a wrong prefix causes both at once.
tn_status tni_names_fit(tn_ctx *cx, const char *op, const char *path, const tni_misfits *missing,
                        const tni_misfits *unknown, const char *remedy)
{
    if (!missing->count && !unknown->count) return TN_OK;
    tni_text both[2] = { { "" }, { "" } };
    if (missing->count)
        tni_text_add(&both[0], "%lld missing (%s)", (long long)missing->count, missing->first.s);
    if (unknown->count)
        tni_text_add(&both[1], "%lld not expected (%s)", (long long)unknown->count,
                     unknown->first.s);
    return tni_fail_status(cx, TN_EFORMAT, "%s: %.120s: names do not fit: %s%s%s%s", op, path,
                           both[0].s, missing->count && unknown->count ? ", " : "", both[1].s,
                           remedy);
}

char *tni_join_names(tn_ctx *cx, const char *op, const char *prefix, const char *name)
{
    size_t a = strlen(prefix), b = strlen(name) + 1;
    char  *text = tni_alloc(&cx->heap, a + b);
    if (!text) return tni_fail_memory(cx, op);
    memcpy(text, prefix, a);
    memcpy(text + a, name, b);
    return text;
}

// ---- renaming ----------------------------------------------------------------------------------

// Returns the number of stars in a pattern or in the name that it gives.
static int count_stars(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '*';
    return n;
}

// Checks the map once, before the file is read, so that tni_rename cannot meet a wrong pair.
bool tni_renames_ok(tn_ctx *cx, const char *op, int n, const char *const *pair)
{
    if (n < 0 || (n > 0 && !pair))
        return tni_refuse(cx, TN_EARG, "%s: the map has %d pairs, but is NULL", op, n);
    for (int i = 0; i < n; i++) {
        const char *from = pair[2 * i], *to = pair[2 * i + 1];
        if (!from || !to)
            return tni_refuse(cx, TN_EARG, "%s: pair %d of the map has a NULL", op, i);
        if (count_stars(from) > TNI_STARS)
            return tni_refuse(cx, TN_EARG, "%s: \"%.100s\" of the map has more than %d stars", op,
                              from, TNI_STARS);
        if (count_stars(to) > count_stars(from))
            return tni_refuse(cx, TN_EARG,
                              "%s: \"%.100s\" of the map has more stars than \"%.100s\"", op, to,
                              from);
    }
    return true;
}

// Writes `to` with each star replaced by the text that its pattern's star matched, to text unless
// that is NULL. Returns the length without the final 0, so that a first call measures.
static size_t replace_stars(const char *to, const tni_star *star, char *text)
{
    size_t n = 0;
    for (; *to; to++) {
        const char *from = *to == '*' ? star->from : to;
        size_t      more = *to == '*' ? (size_t)(star->to - star->from) : 1;
        if (text) memcpy(text + n, from, more);
        n += more;
        star += *to == '*';
    }
    if (text) text[n] = 0;
    return n;
}

// The first pair that matches wins, as in a list of rules; a name without a match stays as it is.
char *tni_rename(tn_ctx *cx, const char *op, int n, const char *const *pair, const char *name)
{
    tni_star star[TNI_STARS];
    int      i = 0;
    while (i < n && !tni_glob_stars(pair[2 * i], name, star)) i++;
    if (i == n) return tni_join_names(cx, op, "", name);
    const char *to   = pair[2 * i + 1];
    char       *text = tni_alloc(&cx->heap, replace_stars(to, star, NULL) + 1);
    if (!text) return tni_fail_memory(cx, op);
    replace_stars(to, star, text);
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

// The copy is recorded and evaluated at once, since a tensor of a file points into a mapping that
// is closed after loading.
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

// The store gets the value's node; the handle, its leaf and its gradient do not change.
void tni_put_value(tn_tensor *t, const tn_tensor *value)
{
    tni_store_bind(t->cx, t->store, tni_node_ref(value->store->node));
}
