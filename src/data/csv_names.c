// The names of columns and categories: one pool of characters, one hash table. A name is found by
// its list and its text, and gives its index in the list, so that storing a category takes one
// lookup for each cell.
#include "base/hash.h"
#include "data/csv.h"

#include <string.h>

// Returns the slot of a name, or the free one where it would go. One table serves all lists: the
// list's number is part of the hash.
static uint32_t *find_slot(const tni_csv_names *n, uint32_t list, const char *s, size_t length)
{
    size_t mask = n->slots - 1, i = (size_t)tni_hash_mix(tni_hash(s, length), list) & mask;
    for (; n->slot[i]; i = (i + 1) & mask) {
        const tni_csv_entry *e = &n->entry[n->slot[i] - 1];
        if (e->list == list && e->length == length && memcmp(n->pool + e->text, s, length) == 0)
            break;
    }
    return &n->slot[i];
}

// An empty table has no slots yet.
int64_t tni_csv_find(const tni_csv_names *n, uint32_t list, const char *s, size_t length)
{
    return n->slots ? (int64_t)*find_slot(n, list, s, length) - 1 : TNI_CSV_NO_NAME;
}

// Keeps the table at most half full.
static bool grow_slots(tni_heap *h, tni_csv_names *n)
{
    if (2 * (n->count + 1) <= n->slots) return true;
    size_t    slots = n->slots ? 2 * n->slots : 256;
    uint32_t *slot  = tni_zalloc(h, slots * sizeof *slot);
    if (!slot) return false;
    tni_free(h, n->slot);
    n->slot  = slot;
    n->slots = slots;
    for (size_t i = 0; i < n->count; i++) {
        const tni_csv_entry *e = &n->entry[i];

        *find_slot(n, e->list, n->pool + e->text, e->length) = (uint32_t)i + 1;
    }
    return true;
}

// The limits keep a file of nothing but names from taking all memory.
int64_t tni_csv_add(tni_heap *h, tni_csv_names *n, uint32_t list, uint32_t index, const char *s,
                    size_t length)
{
    if (n->count == TNI_CSV_NAMES || n->used + length + 1 > TNI_CSV_NAME_BYTES) return TNI_CSV_FULL;
    void *pool = n->pool, *entry = n->entry;
    bool  ok = tni_grow(h, &pool, &n->pool_cap, n->used + length + 1, 1) &&
              tni_grow(h, &entry, &n->entry_cap, n->count + 1, sizeof *n->entry);
    n->pool  = pool;
    n->entry = entry;
    if (!ok || !grow_slots(h, n)) return TNI_CSV_NO_MEMORY;

    memcpy(n->pool + n->used, s, length);
    n->pool[n->used + length] = 0;
    n->entry[n->count]        = (tni_csv_entry){
               .text = (uint32_t)n->used, .length = (uint32_t)length, .list = list, .index = index
    };
    *find_slot(n, list, s, length) = (uint32_t)n->count + 1;
    n->used += length + 1;
    return (int64_t)n->count++;
}

// Categories are numbered as they first appear, and linked in that order.
int64_t tni_csv_category(tni_heap *h, tni_csv *t, uint32_t column, const char *s, size_t length)
{
    tni_csv_column *c = &t->column[column];
    if (c->categories == TNI_CSV_CATEGORIES) return TNI_CSV_FULL;
    int64_t entry = tni_csv_add(h, &t->names, column, c->categories, s, length);
    if (entry < 0) return entry;
    if (c->categories) t->names.entry[c->newest].next = (uint32_t)entry;
    else c->first = (uint32_t)entry;
    c->newest = (uint32_t)entry;
    return c->categories++;
}

void tni_csv_names_free(tni_heap *h, tni_csv_names *n)
{
    tni_free(h, n->pool);
    tni_free(h, n->entry);
    tni_free(h, n->slot);
}
