// The paths of layers that a context has met: one of each text, in a table by hash.
#include "base/hash.h"
#include "tensor/context.h"

#include <string.h>

// Where the path of that text stands, or would: the table is at most half full.
static tni_path **slot_of(tni_path **path, size_t slots, const char *text)
{
    size_t at = tni_hash(text, strlen(text)) & (slots - 1);
    while (path[at] && strcmp(path[at]->text, text)) at = (at + 1) & (slots - 1);
    return &path[at];
}

// Room for one more.
static bool make_room(tn_ctx *cx)
{
    if (2 * (cx->paths + 1) <= cx->path_slots) return true;
    size_t     slots = cx->path_slots ? 2 * cx->path_slots : 64;
    tni_path **path  = tni_zalloc(&cx->heap, slots * sizeof *path);
    if (!path) return false;
    for (size_t i = 0; i < cx->path_slots; i++)
        if (cx->path[i]) *slot_of(path, slots, cx->path[i]->text) = cx->path[i];
    tni_free(&cx->heap, cx->path);
    cx->path       = path;
    cx->path_slots = slots;
    return true;
}

const tni_path *tni_path_of(tn_ctx *cx, const char *text)
{
    if (!make_room(cx)) return NULL;
    tni_path **slot = slot_of(cx->path, cx->path_slots, text);
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
