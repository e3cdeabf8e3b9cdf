// The index of a model that is stored in several safetensors files:
//
//   {"metadata": {"total_size": 13476839424},
//    "weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors",
//                   "lm_head.weight":            "model-00002-of-00002.safetensors"}}
//
// The files are in the index's folder; names that lead elsewhere are refused. Metadata is that of
// the files, not that of the index.
#include "base/json.h"
#include "io/file.h"

#include <stdio.h>
#include <string.h>

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n >= k && strcmp(path + n - k, end) == 0;
}

// A checkpoint's index has any name. Safetensors begin with the length of their header, whose upper
// four bytes are 0.
bool tni_is_json(const char *path, const tni_mapping *m)
{
    static const char zeros[4];
    return ends_in(path, ".json") ||
           (m->bytes > 8 && m->data[0] == '{' && memcmp((const char *)m->data + 4, zeros, 4) != 0);
}

bool tni_is_index(const char *path, const tni_mapping *m)
{
    tni_json j;
    if (ends_in(path, "index.json")) return true;
    tni_json_open(&j, (const char *)m->data, m->bytes);
    if (tni_json_next(&j) != TNI_JSON_OBJECT) return false;
    while (tni_json_next(&j) == TNI_JSON_KEY) {
        if (tni_json_is(&j, "weight_map")) return true;
        tni_json_next(&j);
        if (!tni_json_skip(&j)) return false;
    }
    return false;
}

// A walk through the map. tensor and file are the current pair; they share one block that is large
// enough for any two texts of the index.
typedef struct {
    tn_file *f;
    tni_json j;
    char    *tensor, *file, *end;
} walk;

typedef bool visit(walk *w);

// Unescapes the current text into `to`; false if it is empty or contains a 0.
static bool take_string(walk *w, char *to)
{
    int64_t n = tni_json_string(&w->j, to, (size_t)(w->end - to));
    return n > 0 && strlen(to) == (size_t)n;
}

// Reads a tensor's name and its file.
static bool take_pair(walk *w)
{
    if (!take_string(w, w->tensor)) return false;
    w->file = w->tensor + strlen(w->tensor) + 1;
    return tni_json_next(&w->j) == TNI_JSON_STRING && take_string(w, w->file);
}

static bool index_wrong(walk *w, const char *why)
{
    return tni_refuse(w->f->owned.cx, TN_EFORMAT, "%s: %s: %s", w->f->op, w->f->part->path, why);
}

// Calls `each` for every pair of the map.
static bool visit_map(walk *w, visit *each)
{
    if (tni_json_next(&w->j) != TNI_JSON_OBJECT)
        return index_wrong(w, "weight_map is not an object");
    while (tni_json_next(&w->j) == TNI_JSON_KEY) {
        if (!take_pair(w)) return index_wrong(w, "weight_map does not map names to files");
        if (!each(w)) return false;
    }
    return true;
}

static bool skip_value(walk *w)
{
    tni_json_next(&w->j);
    return tni_json_skip(&w->j);
}

// Walks the index, which must have one weight_map; other keys are skipped.
static bool visit_index(walk *w, visit *each)
{
    int                maps = 0;
    const tni_mapping *m    = w->f->part->map;
    tni_json_open(&w->j, (const char *)m->data, m->bytes);
    if (tni_json_next(&w->j) != TNI_JSON_OBJECT) return index_wrong(w, "it is not an index");
    while (tni_json_next(&w->j) == TNI_JSON_KEY) {
        bool map = tni_json_is(&w->j, "weight_map");
        maps += map;
        if (!(map ? visit_map(w, each) : skip_value(w))) break;
    }
    if (w->j.kind == TNI_JSON_OBJECT_END) tni_json_next(&w->j);
    if (w->j.kind == TNI_JSON_ERROR) return index_wrong(w, w->j.why);
    // Something failed on the way and was reported there.
    if (w->j.kind != TNI_JSON_END) return false;
    return maps == 1 || index_wrong(w, "there is not just one weight_map");
}

// The index is walked twice, once to open its files and once to compare, rather than stored.
static bool walk_index(tn_file *f, visit *each)
{
    tni_heap *heap     = &f->owned.cx->heap;
    size_t    capacity = f->part->map->bytes + 2;
    walk      w        = { .f = f, .tensor = tni_alloc(heap, capacity) };
    if (!w.tensor) return tni_no_memory(f->owned.cx, f->op);
    w.end   = w.tensor + capacity;
    bool ok = visit_index(&w, each);
    tni_free(heap, w.tensor);
    return ok;
}

// Returns the part for a file of the index; NULL if it is not open yet.
static const tni_file_part *part_of(const tn_file *f, const char *file)
{
    const char *slash  = strrchr(f->part->path, '/');
    size_t      folder = slash ? (size_t)(slash + 1 - f->part->path) : 0;
    for (size_t i = 1; i < f->parts; i++)
        if (strcmp(f->part[i].path + folder, file) == 0) return &f->part[i];
    return NULL;
}

// Opens a file of the index when it is first named. It must be in the index's own folder: an index
// from the internet must not read elsewhere.
static bool add_file(walk *w)
{
    tn_ctx     *cx = w->f->owned.cx;
    const char *at = w->f->part->path, *slash = strrchr(at, '/');
    int         folder = slash ? (int)(slash + 1 - at) : 0;
    if (part_of(w->f, w->file)) return true;
    if (strchr(w->file, '/') || strcmp(w->file, ".") == 0 || strcmp(w->file, "..") == 0)
        return index_wrong(w, "it names a file in another folder");
    size_t capacity = (size_t)folder + strlen(w->file) + 1;
    char  *path     = tni_alloc(&cx->heap, capacity);
    if (!path) return tni_no_memory(cx, w->f->op);
    snprintf(path, capacity, "%.*s%s", folder, at, w->file);
    bool ok = tni_file_part_add(w->f, path) && tni_safetensors_read(w->f);
    tni_free(&cx->heap, path);
    return ok;
}

// Returns whether a tensor is in the file that the index names.
static bool check_place(walk *w)
{
    const tni_file_entry *it = tni_file_entry_find(w->f, w->tensor);
    if (it && &w->f->part[it->part] == part_of(w->f, w->file)) return true;
    return tni_refuse(w->f->owned.cx, TN_EFORMAT, "%s: %s: tensor %s is not in %s", w->f->op,
                      w->f->part->path, tni_quoted(w->tensor).s, tni_quoted(w->file).s);
}

bool tni_shards_read(tn_file *f)
{
    return walk_index(f, add_file);
}

bool tni_shards_check(tn_file *f)
{
    return walk_index(f, check_place);
}
