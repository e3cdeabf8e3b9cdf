// The index of a model that lies in several safetensors files: {"weight_map": {tensor: file, ...}}.
// The files lie beside it; names that lead elsewhere are refused. Metadata is that of the files.
#include "base/json.h"
#include "io/file.h"

#include <stdio.h>
#include <string.h>

bool tni_is_index(const char *path)
{
    size_t n = strlen(path);
    return n >= 5 && strcmp(path + n - 5, ".json") == 0;
}

// One walk through the map. Both texts lie in one block, which has room for any two of the index.
typedef struct {
    tn_file *f;
    tni_json j;
    char    *tensor, *file, *end;
} walk;

typedef bool visit(walk *w);

// The current text into `to`; false if it is empty or no C string.
static bool take(walk *w, char *to)
{
    int64_t n = tni_json_string(&w->j, to, (size_t)(w->end - to));
    return n > 0 && strlen(to) == (size_t)n;
}

static bool take_pair(walk *w)
{
    if (!take(w, w->tensor)) return false;
    w->file = w->tensor + strlen(w->tensor) + 1;
    return tni_json_next(&w->j) == TNI_JSON_STRING && take(w, w->file);
}

static bool index_wrong(walk *w, const char *why)
{
    return tni_refuse(w->f->owned.cx, TN_EFORMAT, "%s: %s: %s", w->f->op, w->f->part->path, why);
}

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
    if (w->j.kind != TNI_JSON_END) return false;
    return maps == 1 || index_wrong(w, "there is not just one weight_map");
}

static bool walk_index(tn_file *f, visit *each)
{
    tni_heap *heap = &f->owned.cx->heap;
    size_t    room = f->part->map->bytes + 2;
    walk      w    = { .f = f, .tensor = tni_alloc(heap, room) };
    if (!w.tensor) return tni_no_memory(f->owned.cx, f->op);
    w.end   = w.tensor + room;
    bool ok = visit_index(&w, each);
    tni_free(heap, w.tensor);
    return ok;
}

// The part that a file of the index is; NULL: none yet.
static const tni_file_part *part_of(const tn_file *f, const char *file)
{
    const char *slash  = strrchr(f->part->path, '/');
    size_t      folder = slash ? (size_t)(slash + 1 - f->part->path) : 0;
    for (size_t i = 1; i < f->parts; i++)
        if (strcmp(f->part[i].path + folder, file) == 0) return &f->part[i];
    return NULL;
}

static bool add_file(walk *w)
{
    tn_ctx     *cx = w->f->owned.cx;
    const char *at = w->f->part->path, *slash = strrchr(at, '/');
    int         folder = slash ? (int)(slash + 1 - at) : 0;
    if (part_of(w->f, w->file)) return true;
    if (strchr(w->file, '/') || strcmp(w->file, ".") == 0 || strcmp(w->file, "..") == 0)
        return index_wrong(w, "it names a file in another folder");
    size_t room = (size_t)folder + strlen(w->file) + 1;
    char  *path = tni_alloc(&cx->heap, room);
    if (!path) return tni_no_memory(cx, w->f->op);
    snprintf(path, room, "%.*s%s", folder, at, w->file);
    bool ok = tni_file_part_add(w->f, path) && tni_safetensors_read(w->f);
    tni_free(&cx->heap, path);
    return ok;
}

static bool check_place(walk *w)
{
    const tni_file_entry *it = tni_file_entry_find(w->f, w->tensor);
    if (it && &w->f->part[it->part] == part_of(w->f, w->file)) return true;
    return tni_refuse(w->f->owned.cx, TN_EFORMAT, "%s: %s: tensor %s is not in %s", w->f->op,
                      w->f->part->path, tni_shown(w->tensor).s, tni_shown(w->file).s);
}

bool tni_shards_read(tn_file *f)
{
    return walk_index(f, add_file);
}

bool tni_shards_check(tn_file *f)
{
    return walk_index(f, check_place);
}
