// tn_file_*: one list of tensors over a safetensors file, the files of an index, or an npy file;
// and the settings of a JSON file, as the metadata of a file without tensors.
//
// Opening a file maps it and parses its header; no element is read. A tensor borrows its bytes from
// the mapping where dtype and alignment allow, so that loading a large model touches each page
// once, when it is copied to the device.
#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- parts and entries -------------------------------------------------------------------------

// The part is registered as soon as it is mapped, so that tni_file_close unmaps it if anything
// fails later.
bool tni_file_part_add(tn_file *f, const char *path)
{
    tn_ctx *cx = f->owned.cx;
    if (!tni_grow(&cx->heap, (void **)&f->part, &f->part_cap, f->parts + 1, sizeof *f->part)) {
        tni_fail_memory(cx, f->op);
        return false;
    }
    tni_file_part p = { .map = tni_mapping_open(cx, f->op, path) };
    if (!p.map) return false;
    p.path              = tni_strdup(&cx->heap, path);
    f->part[f->parts++] = p;
    if (!p.path) tni_fail_memory(cx, f->op);
    return p.path != NULL;
}

tni_file_entry *tni_file_entries_add(tn_file *f, size_t n)
{
    tni_heap *heap = &f->owned.cx->heap;
    // Grown to the exact size: a header of millions of tensors must not take twice its memory.
    tni_file_entry *all = tni_resize(heap, f->entry, (f->count + n) * sizeof *all);
    if (!all) return tni_fail_memory(f->owned.cx, f->op);
    f->entry = all;
    return all + f->count;
}

// The message names the newest part, which is the one being read.
bool tni_file_wrong(tn_file *f, const char *fmt, ...)
{
    char    why[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    tni_fail(f->owned.cx, TN_EFORMAT, "%s: %s: %s", f->op, f->part[f->parts - 1].path, why);
    return false;
}

// Reads the sizes again from the file's own text, which was checked when the file was opened: an
// entry need not store them.
void tni_file_entry_sizes(const tni_file_entry *it, int64_t size[TN_MAX_RANK])
{
    const char *s = it->shape;
    for (int i = 0; i < it->rank; i++) {
        while (*s < '0' || *s > '9') s++;
        for (size[i] = 0; *s >= '0' && *s <= '9'; s++) size[i] = size[i] * 10 + (*s - '0');
    }
}

// ---- names -------------------------------------------------------------------------------------

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *tni_sort_and_find_twice(const char **names, size_t n)
{
    if (n) qsort(names, n, sizeof *names, compare_texts);
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0) return names[i];
    return NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(tni_file_entry *const *)a)->name, (*(tni_file_entry *const *)b)->name);
}

static int compare_name(const void *name, const void *entry)
{
    return strcmp(name, (*(tni_file_entry *const *)entry)->name);
}

tni_file_entry *tni_file_entry_find(const tn_file *f, const char *name)
{
    if (!f->count) return NULL;
    tni_file_entry **at = bsearch(name, f->by_name, f->count, sizeof *f->by_name, compare_name);
    return at ? *at : NULL;
}

// Sorts the names, for finding them and to reject one that appears twice.
static bool index_names(tn_file *f)
{
    f->by_name = tni_alloc(&f->owned.cx->heap, f->count * sizeof *f->by_name);
    if (!f->by_name) {
        tni_fail_memory(f->owned.cx, f->op);
        return false;
    }
    for (size_t i = 0; i < f->count; i++) f->by_name[i] = &f->entry[i];
    if (f->count) qsort(f->by_name, f->count, sizeof *f->by_name, compare_names);
    for (size_t i = 1; i < f->count; i++)
        if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0)
            return tni_file_wrong(f, "tensor %s appears twice", tni_quoted(f->by_name[i]->name).s);
    return true;
}

// ---- opening -----------------------------------------------------------------------------------

void tni_file_close(tn_file *f)
{
    tni_heap *heap = &f->owned.cx->heap;
    for (size_t i = 0; i < f->parts; i++) {
        tni_mapping_unref(f->part[i].map);
        tni_free(heap, f->part[i].path);
        tni_free(heap, f->part[i].text);
    }
    tni_free(heap, f->part);
    tni_free(heap, f->entry);
    tni_free(heap, f->by_name);
    tni_free(heap, f);
}

// The format is known by the first bytes (npy, JSON) or by the name (an index, settings);
// everything else must be safetensors.
static bool read_all(tn_file *f, const char *path, bool npy_only)
{
    if (!tni_file_part_add(f, path)) return false;
    if (npy_only || tni_is_npy(f->part->map)) return tni_npy_load(f) && index_names(f);
    if (!tni_is_json(path, f->part->map)) return tni_safetensors_read(f) && index_names(f);
    if (!tni_is_index(path, f->part->map)) return tni_settings_read(f) && index_names(f);
    return tni_shards_read(f) && index_names(f) && tni_shards_check(f);
}

// Shared by tn_file_open and tn_npy_read, which never shows the file to the caller.
tn_file *tni_file_read(tn_ctx *cx, const char *op, const char *path, bool npy_only)
{
    tn_file *f = tni_zalloc(&cx->heap, sizeof *f);
    if (!f) return tni_fail_memory(cx, op);
    f->owned.cx = cx;
    f->op       = op;
    if (read_all(f, path, npy_only)) return f;
    tni_file_close(f);
    return NULL;
}

static void free_file(tni_owned *t)
{
    tni_file_close((tn_file *)t);
}

tn_file *tn_file_open(tn_ctx *cx, const char *path)
{
    if (!tni_ctx_ok(cx, "file_open")) return NULL;
    tn_file *f = tni_file_read(cx, "file_open", path, false);
    if (f) tni_owned_add(cx, &f->owned, TNI_FILE, free_file);
    return f;
}

void tn_file_free(tn_file *f)
{
    if (!f || !tni_owned_ok("file_free", f, TNI_FILE)) return;
    tni_owned_remove(&f->owned);
    tni_file_close(f);
}

// ---- asking ------------------------------------------------------------------------------------

int tn_file_count(const tn_file *f)
{
    return f ? (int)f->count : 0;
}

// Returns entry i; NULL if f is NULL or i is out of range.
static const tni_file_entry *entry_at(const tn_file *f, int i)
{
    return f && i >= 0 && (size_t)i < f->count ? &f->entry[i] : NULL;
}

// An index out of range gives an empty description, whose name is NULL.
tn_file_desc tn_file_info(const tn_file *f, int i)
{
    const tni_file_entry *it = entry_at(f, i);
    tn_file_desc          d  = { 0 };
    if (!it) return d;
    d.name  = it->name;
    d.dtype = it->dtype;
    d.rank  = it->rank;
    d.bytes = it->bytes;
    tni_file_entry_sizes(it, d.size);
    return d;
}

const char *tn_file_name(const tn_file *f, int i)
{
    const tni_file_entry *it = entry_at(f, i);
    return it ? it->name : NULL;
}

// If several files of an index have the key, the first one counts.
const char *tn_file_meta(const tn_file *f, const char *key)
{
    if (!f || !key) return NULL;
    for (size_t i = 0; i < f->parts; i++) {
        const char *s = f->part[i].meta;
        for (size_t k = 0; k < f->part[i].nmeta; k++) {
            const char *value = tni_next_text(s);
            if (strcmp(s, key) == 0) return value;
            s = tni_next_text(value);
        }
    }
    return NULL;
}

// Counts the keys of all parts, one after the other.
const char *tn_file_meta_key(const tn_file *f, int i)
{
    for (size_t p = 0; f && i >= 0 && p < f->parts; p++) {
        const char *s = f->part[p].meta;
        for (size_t k = 0; k < f->part[p].nmeta; k++) {
            if (i-- == 0) return s;
            s = tni_next_text(tni_next_text(s));
        }
    }
    return NULL;
}

tn_tensor *tn_file_tensor(tn_file *f, const char *name)
{
    tn_ctx *cx = tni_owned_ok("file_tensor", f, TNI_FILE);
    if (!cx) return NULL;
    if (!name) return tni_fail(cx, TN_EARG, "file_tensor: the name is NULL");
    const tni_file_entry *it = tni_file_entry_find(f, name);
    if (!it)
        return tni_fail(cx, TN_EARG, "file_tensor: %s has no tensor %s", f->part->path,
                        tni_quoted(name).s);
    return tni_file_entry_tensor(f, "file_tensor", it);
}
