// Walking the tree of layers, and listing all tensors in it by their full names: for files,
// optimizers, summaries and tn_layer_find.
#include "nn/layer.h"

#include <string.h>

// ---- walking -----------------------------------------------------------------------------------

tn_layer *tni_layer_root(tn_layer *l)
{
    while (l->parent) l = l->parent;
    return l;
}

// Walks without recursion or a stack: parents are linked, and the position among the siblings is
// searched, which is short.
tn_layer *tni_layer_next(const tn_layer *root, tn_layer *l)
{
    if (l->children) return l->child[0].l;
    for (; l != root; l = l->parent) {
        tn_layer *up = l->parent;
        size_t    i  = 0;
        while (up->child[i].l != l) i++;
        if (i + 1 < up->children) return up->child[i + 1].l;
    }
    return NULL;
}

tn_layer *tni_layer_child_named(const tn_layer *l, const char *name, size_t n)
{
    for (size_t i = 0; i < l->children; i++)
        if (!strncmp(l->child[i].name, name, n) && !l->child[i].name[n]) return l->child[i].l;
    return NULL;
}

const char *tni_layer_name(const tn_layer *l)
{
    for (size_t i = 0; i < l->parent->children; i++)
        if (l->parent->child[i].l == l) return l->parent->child[i].name;
    return "";
}

// Computed when the layer first runs, and forgotten when it moves to another parent.
bool tni_layer_place(tn_layer *l)
{
    if (l->path || !l->parent) return true;
    char *text = tni_layer_full_name(tni_layer_root(l), l->parent, tni_layer_name(l));
    if (text) l->path = tni_path_of(l->owned.cx, text);
    tni_free(&l->owned.cx->heap, text);
    return l->path != NULL;
}

// ---- listing -----------------------------------------------------------------------------------

// Measures first, then writes the names from the end, since the way leads from the leaf to the
// root.
char *tni_layer_full_name(const tn_layer *root, const tn_layer *l, const char *name)
{
    size_t n = strlen(name) + 1;
    for (const tn_layer *k = l; k != root; k = k->parent) n += strlen(tni_layer_name(k)) + 1;
    char *text = tni_alloc(&l->owned.cx->heap, n);
    if (!text) return NULL;
    char *at = text + n - strlen(name) - 1;
    memcpy(at, name, strlen(name) + 1);
    for (const tn_layer *k = l; k != root; k = k->parent) {
        const char *part = tni_layer_name(k);
        *--at            = '.';
        at -= strlen(part);
        memcpy(at, part, strlen(part));
    }
    return text;
}

// Returns the entry that lists t first, or the index that t is about to get. Linear in the number
// of tensors, so listing is quadratic: a few milliseconds for the thousand tensors of a large
// network.
static int first_entry_of(const tni_entries *list, const tn_tensor *t)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->entry[i].t == t) return (int)i;
    return (int)list->count;
}

// Appends the parameters, or the buffers, of one layer.
static bool list_names(tni_entries *list, const tn_layer *root, const tn_layer *l, bool is_param)
{
    const tni_named *named = is_param ? l->param : l->buffer;
    size_t           n     = is_param ? l->params : l->buffers;
    for (size_t i = 0; i < n; i++) {
        if (!tni_grow(&list->cx->heap, (void **)&list->entry, &list->cap, list->count + 1,
                      sizeof *list->entry))
            return false;
        char *name = tni_layer_full_name(root, l, named[i].name);
        if (!name) return false;
        list->entry[list->count] = (tni_entry){ .name     = name,
                                                .t        = named[i].t,
                                                .is_param = is_param,
                                                .spare    = named[i].spare,
                                                .first    = first_entry_of(list, named[i].t) };
        list->count++;
    }
    return true;
}

void tni_entries_free(tni_entries *list)
{
    for (size_t i = 0; i < list->count; i++) tni_free(&list->cx->heap, list->entry[i].name);
    tni_free(&list->cx->heap, list->entry);
    *list = (tni_entries){ .cx = list->cx };
}

// Parents come before children, and the order of registration is kept: it is the order of PyTorch's
// state_dict.
bool tni_layer_list(tn_layer *l, const char *op, tni_entries *list)
{
    *list = (tni_entries){ .cx = l->owned.cx };
    for (tn_layer *k = l; k; k = tni_layer_next(l, k)) {
        if (list_names(list, l, k, true) && list_names(list, l, k, false)) continue;
        tni_entries_free(list);
        return tni_no_memory(l->owned.cx, op);
    }
    return true;
}

// ---- asking ------------------------------------------------------------------------------------

// The list is made before the first call, so that the function may change the network's values,
// though not its tree: the layer is held.
tn_status tn_layer_each(tn_layer *l, void (*f)(const char *name, tn_tensor *t, void *user),
                        void     *user)
{
    tn_ctx *cx = tni_owned_ok("layer_each", l, TNI_LAYER);
    if (!cx) return tni_failed();
    if (!f) return tni_fail_status(cx, TN_EARG, "layer_each: the function is NULL");
    tni_entries list;
    if (!tni_layer_list(l, "layer_each", &list)) return tni_failed();
    tni_layer_hold(l);
    tni_thread before;
    tni_user_frames_begin(&before);
    for (size_t i = 0; i < list.count; i++)
        if (list.entry[i].first == (int)i) f(list.entry[i].name, list.entry[i].t, user);
    tni_user_frames_end(&before);
    tni_layer_let_go(l);
    tni_entries_free(&list);
    return TN_OK;
}

// Reports a name that does not exist: a typing error must not become a silent NULL.
tn_tensor *tn_layer_find(tn_layer *l, const char *name)
{
    tn_ctx *cx = tni_owned_ok("layer_find", l, TNI_LAYER);
    if (!cx) return NULL;
    if (!name) return tni_fail(cx, TN_EARG, "layer_find: the name is NULL");
    tni_entries list;
    if (!tni_layer_list(l, "layer_find", &list)) return NULL;
    tn_tensor *t = NULL;
    for (size_t i = 0; i < list.count && !t; i++)
        if (!strcmp(list.entry[i].name, name)) t = list.entry[i].t;
    tni_entries_free(&list);
    if (!t) tni_fail(cx, TN_EARG, "layer_find: there is no parameter or buffer \"%.100s\"", name);
    return t;
}

// Follows the parts of a dotted name from child to child.
tn_layer *tn_layer_find_child(tn_layer *l, const char *name)
{
    tn_ctx *cx = tni_owned_ok("layer_find_child", l, TNI_LAYER);
    if (!cx) return NULL;
    if (!name) return tni_fail(cx, TN_EARG, "layer_find_child: the name is NULL");
    for (const char *part = name; l; part += *part == '.') {
        size_t n = strcspn(part, ".");
        l        = tni_layer_child_named(l, part, n);
        part += n;
        if (!*part) break;
    }
    if (!l) tni_fail(cx, TN_EARG, "layer_find_child: there is no layer \"%.100s\"", name);
    return l;
}

int64_t tn_layer_count(const tn_layer *l)
{
    if (!l || !tni_owned_ok("layer_count", l, TNI_LAYER)) return 0;
    tni_entries list;
    int64_t     sum = 0;
    if (!tni_layer_list((tn_layer *)l, "layer_count", &list)) return 0;
    for (size_t i = 0; i < list.count; i++)
        if (list.entry[i].is_param && list.entry[i].first == (int)i)
            sum += tn_count(list.entry[i].t);
    tni_entries_free(&list);
    return sum;
}
