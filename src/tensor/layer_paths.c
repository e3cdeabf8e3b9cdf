// The paths of layers that a context has met, one of each text: an open-addressing hash table.
// Paths live as long as the context, because nodes and faults keep pointers to them.
#include "base/hash.h"
#include "tensor/context.h"

#include <string.h>

// The slot of the path with that text, or the empty one where it belongs. At most half of the table
// is used, so an empty slot always ends the search.
static tni_path **find_path_slot(tni_path **path, size_t slots, const char *text)
{
    size_t at = tni_hash(text, strlen(text)) & (slots - 1);
    while (path[at] && strcmp(path[at]->text, text)) at = (at + 1) & (slots - 1);
    return &path[at];
}

// Makes sure that one more path leaves the table at most half full. Slots are a power of two.
static bool grow_table(tn_ctx *cx)
{
    if (2 * (cx->paths + 1) <= cx->path_slots) return true;
    size_t     slots = cx->path_slots ? 2 * cx->path_slots : 64;
    tni_path **path  = tni_zalloc(&cx->heap, slots * sizeof *path);
    if (!path) return false;
    for (size_t i = 0; i < cx->path_slots; i++)
        if (cx->path[i]) *find_path_slot(path, slots, cx->path[i]->text) = cx->path[i];
    tni_free(&cx->heap, cx->path);
    cx->path       = path;
    cx->path_slots = slots;
    return true;
}

// Comparing two paths of one context is comparing pointers.
const tni_path *tni_path_of(tn_ctx *cx, const char *text)
{
    if (!grow_table(cx)) return NULL;
    tni_path **slot = find_path_slot(cx->path, cx->path_slots, text);
    if (*slot) return *slot;
    tni_path *p = tni_alloc(&cx->heap, sizeof *p + strlen(text) + 1);
    if (!p) return NULL;
    p->owner = cx;
    memcpy(p->text, text, strlen(text) + 1);
    cx->paths++;
    return *slot = p;
}

void tni_paths_close(tn_ctx *cx)
{
    for (size_t i = 0; i < cx->path_slots; i++) tni_free(&cx->heap, cx->path[i]);
    tni_free(&cx->heap, cx->path);
    cx->path  = NULL;
    cx->paths = cx->path_slots = 0;
}
