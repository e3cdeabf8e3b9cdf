// Weights: the parameters and buffers of a network as a safetensors file, and back.
//
// Loading goes in stages, each of which can fail and changes nothing: names are matched, shapes
// compared, values read in the tensors' dtypes. Then all values are put at once. A network is thus
// either loaded or as it was.
#include "optim/optim.h"
#include "train/restore.h"

#include <string.h>

// ---- saving ------------------------------------------------------------------------------------

// What tn_file_write takes: the first names of n tensors, with the prefix before them.
typedef struct {
    int         n;
    char      **name;
    tn_tensor **t;
} contents;

static void free_contents(tn_ctx *cx, contents *c)
{
    for (int i = 0; i < c->n; i++) tni_free(&cx->heap, c->name[i]);
    tni_free(&cx->heap, c->name);
    tni_free(&cx->heap, c->t);
}

// Lists what is saved. A tied tensor is written once.
static bool fill_contents(tn_ctx *cx, contents *c, const tni_entries *list, const char *prefix)
{
    c->name = tni_alloc(&cx->heap, list->count * sizeof *c->name);
    c->t    = tni_alloc(&cx->heap, list->count * sizeof *c->t);
    if (!c->name || !c->t) return tni_fail_memory(cx, "save") != NULL;
    for (size_t i = 0; i < list->count; i++) {
        const tni_entry *e = &list->entry[i];
        if (e->first != (int)i) continue;
        if (!(c->name[c->n] = tni_join_names(cx, "save", prefix, e->name))) return false;
        c->t[c->n++] = e->t;
    }
    return true;
}

// Everything that is saved is a leaf or a buffer, so nothing is evaluated but pending updates.
tn_status tn_save_with(tn_layer *l, const char *path, tn_save_opts o)
{
    tn_ctx *cx = tni_owned_ok("save", l, TNI_LAYER);
    if (!cx) return tni_failed();
    tni_entries list;
    if (!tni_layer_list(l, "save", &list)) return tni_failed();
    contents  c = { 0 };
    tn_status s = TN_OK;
    if (!fill_contents(cx, &c, &list, o.prefix ? o.prefix : "")) s = tni_failed();
    else s = tn_file_write(cx, path, c.n, (const char *const *)c.name, c.t, o.nmeta, o.meta);
    free_contents(cx, &c);
    tni_entries_free(&list);
    return s;
}

tn_status tn_save(tn_layer *l, const char *path)
{
    return tn_save_with(l, path, (tn_save_opts){ 0 });
}

// ---- loading -----------------------------------------------------------------------------------

// A load in progress. from[i] is the index in the file of what entry i gets, or -1; a tied tensor
// gets it at its first entry, under whichever of its names the file has.
typedef struct {
    tn_ctx      *cx;
    const char  *path;
    tn_load_opts o;  // prefixes that are NULL are ""
    tn_file     *file;
    tni_entries  list;
    int         *from;
    tn_tensor  **value;  // by entry, made ready
} loading;

// Returns whether a name fits a pattern of the options; NULL fits none.
static bool fits_pattern(const char *pattern, const char *name)
{
    return pattern && tni_glob(pattern, name);
}

// Returns the entry of the network for a name in the file, whose prefix is already taken off: -1 if
// there is none, and -2, reported, on failure.
static int find_entry(const loading *l, const char *name)
{
    const tni_entries *list = &l->list;
    size_t             n = strlen(l->o.add_prefix), i = 0;
    char              *here = tni_rename(l->cx, "load", l->o.nmap, l->o.map, name);
    if (!here) return -2;
    for (; i < list->count; i++) {
        const char *full = list->entry[i].name;
        if (!strncmp(full, l->o.add_prefix, n) && !strcmp(full + n, here)) break;
    }
    tni_free(&l->cx->heap, here);
    return i < list->count ? (int)i : -1;
}

// Decides which tensor of the file each entry gets. Names in the file count if they have the prefix
// and are not ignored. Two names for one entry are an error, because the order in a file must not
// decide. The last loop gives a tied tensor's value to its first entry, whichever of its names the
// file uses.
static bool give_names(loading *l, tni_misfits *unknown)
{
    size_t skip = strlen(l->o.prefix);
    for (size_t i = 0; i < l->list.count; i++) l->from[i] = -1;
    for (int k = 0; k < tn_file_count(l->file); k++) {
        const char *name = tn_file_name(l->file, k);
        if (strncmp(name, l->o.prefix, skip) || fits_pattern(l->o.ignore, name)) continue;
        int i = find_entry(l, name + skip);
        if (i == -2) return false;
        if (i < 0 && !fits_pattern(l->o.allow_unknown, name)) tni_misfit(unknown, name);
        if (i < 0) continue;
        if (l->from[i] >= 0)
            return tni_refuse(l->cx, TN_EFORMAT,
                              "load: %.120s: %.60s and %.60s of the file are both %.60s here",
                              l->path, tn_file_name(l->file, l->from[i]), name,
                              l->list.entry[i].name);
        l->from[i] = k;
    }
    for (size_t i = 0; i < l->list.count; i++) {
        int *first = &l->from[l->list.entry[i].first];
        if (*first < 0) *first = l->from[i];
    }
    return true;
}

// Reports names that are missing or unknown, all in one message, with the option that would accept
// them.
static bool match_names(loading *l)
{
    tni_misfits missing = { 0 }, unknown = { 0 };
    if (!give_names(l, &unknown)) return false;
    for (size_t i = 0; i < l->list.count && !l->o.partial; i++) {
        const tni_entry *e = &l->list.entry[i];
        if (e->first != (int)i || l->from[i] >= 0 || e->spare) continue;
        if (!fits_pattern(l->o.allow_missing, e->name)) tni_misfit(&missing, e->name);
    }
    const char *remedy = missing.count
                             ? "; with .partial or .allow_missing of tn_load_with what is missing "
                               "stays as it is"
                             : "; .ignore or .allow_unknown of tn_load_with passes over them";
    return tni_names_fit(l->cx, "load", l->path, &missing, &unknown, remedy) == TN_OK;
}

// Compares shapes before anything is read. A tensor that the options allow to have another shape
// keeps its value.
static bool shapes_fit(loading *l)
{
    for (size_t i = 0; i < l->list.count; i++) {
        if (l->from[i] < 0) continue;
        tn_file_desc     d = tn_file_info(l->file, l->from[i]);
        const tni_entry *e = &l->list.entry[i];
        tni_view         v = tni_layout(e->t);
        if (fits_pattern(l->o.allow_mismatch, e->name) &&
            !tni_shape_equal(d.rank, d.size, v.rank, v.size)) {
            l->from[i] = -1;
            continue;
        }
        if (!tni_shape_fits(l->cx, "load", l->path, &d, v.rank, v.size)) return false;
        if (!tni_can_put("load", e->name, e->t)) return false;
    }
    return true;
}

// Reads each value as the dtype of the tensor that gets it.
static bool read_values(loading *l)
{
    for (size_t i = 0; i < l->list.count; i++) {
        const tni_entry *e = &l->list.entry[i];
        if (e->first != (int)i || l->from[i] < 0) continue;
        const char *name = tn_file_name(l->file, l->from[i]);
        tn_tensor  *t    = tn_file_tensor(l->file, name);
        l->value[i]      = tni_take_copy("load", t, tn_dtype_of(e->t));
        if (!l->value[i]) return false;
    }
    return true;
}

// Finds the place of a parameter's new value, for tni_flats_gather.
static tn_tensor **value_of(void *user, const tn_tensor *t)
{
    loading *l = user;
    for (size_t i = 0; i < l->list.count; i++)
        if (l->list.entry[i].t == t) return &l->value[i];
    return NULL;
}

// Loads with the file open and the entries listed. Values stay in a scope of their own until all
// are read; then they are put, which cannot fail.
static bool load_list(loading *l)
{
    tn_ctx *cx = l->cx;
    l->from    = tni_alloc(&cx->heap, l->list.count * sizeof *l->from);
    l->value   = tni_zalloc(&cx->heap, l->list.count * sizeof *l->value);
    if (!l->from || !l->value) return tni_fail_memory(cx, "load") != NULL;
    if (!match_names(l) || !shapes_fit(l)) return false;
    tn_scope *s = tn_begin(cx);
    if (!s) return false;
    cx->grad_mode = false;
    bool ok       = read_values(l) && tni_flats_gather(cx, value_of, l);
    for (size_t i = 0; ok && i < l->list.count; i++)
        if (l->value[i]) tni_put_value(l->list.entry[i].t, l->value[i]);
    tni_scope_close(s);
    return ok;
}

tn_status tn_load_with(tn_layer *net, const char *path, tn_load_opts o)
{
    tn_ctx *cx = tni_owned_ok("load", net, TNI_LAYER);
    if (!cx || !tni_renames_ok(cx, "load", o.nmap, o.map)) return tni_failed();
    loading l = { .cx = cx, .path = path, .o = o };
    if (!o.prefix) l.o.prefix = "";
    if (!o.add_prefix) l.o.add_prefix = "";
    if (!tni_layer_list(net, "load", &l.list)) return tni_failed();
    l.file  = tn_file_open(cx, path);
    bool ok = l.file && load_list(&l);
    // Freeing can report nothing, so the reason is still the newest error.
    if (l.file) tn_file_free(l.file);
    tni_free(&cx->heap, l.from);
    tni_free(&cx->heap, l.value);
    tni_entries_free(&l.list);
    return ok ? TN_OK : tni_failed();
}

tn_status tn_load(tn_layer *l, const char *path)
{
    return tn_load_with(l, path, (tn_load_opts){ 0 });
}
