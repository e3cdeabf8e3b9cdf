// Host memory of a context: one allocator that can be replaced, slabs for the small objects that
// recording makes by the million, and arrays that grow. Every allocation can fail and says so by
// NULL or false; the caller reports it.
#ifndef TNI_BASE_HEAP_H
#define TNI_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Sizes of blocks that are kept, and how many of each: enough for the small blocks of one
// evaluation, and little memory if they are never used again.
enum { TNI_HEAP_SIZES = 64, TNI_HEAP_KEPT = 8 };

// Where memory comes from. alloc: old NULL allocates, n 0 frees, else resizes; see tn_open_opts. A
// heap that `keeps` hands freed small blocks out again, a few of each size, so that a steady loop
// asks the allocator for nothing; it is used by one thread, and must be closed. Invariant: count[i]
// is the length of kept[i].
typedef struct {
    void *(*alloc)(void *user, void *old, size_t n);
    void   *user;
    bool    keeps;
    void   *kept[TNI_HEAP_SIZES];  // chains of free blocks
    uint8_t count[TNI_HEAP_SIZES];
} tni_heap;

// The C library's allocator.
tni_heap tni_heap_default(void);
// Gives back all that is kept.
void tni_heap_close(tni_heap *h);

void *tni_alloc(tni_heap *h, size_t n);   // n 0 counts as 1
void *tni_zalloc(tni_heap *h, size_t n);  // zeroed
void *tni_resize(tni_heap *h, void *p, size_t n);
void  tni_free(tni_heap *h, void *p);
// The same, at a multiple of 64.
void *tni_alloc64(tni_heap *h, size_t n);
void  tni_free64(tni_heap *h, void *p);
// The same for blocks that may be large and live long: with the C library's allocator, blocks of 1
// MiB and more are mappings of their own, which return to the system when they are freed.
void *tni_alloc_block(tni_heap *h, size_t n);
void  tni_free_block(tni_heap *h, void *p);
char *tni_strdup(tni_heap *h, const char *s);

// Grows *array to a capacity (*cap) of at least `need` items of `size` bytes, doubling. False, with
// the array as it was, when memory is out.
bool tni_grow(tni_heap *h, void **array, size_t *cap, size_t need, size_t size);

// Items of one size, carved from blocks and kept in a free list. Blocks go back to the heap when
// the slab closes. With TN_DEBUG freed items are never handed out again, so that a stale handle
// is distinguished from a live one.
typedef struct {
    tni_heap *heap;
    size_t    size;    // of an item
    void     *blocks;  // chain, each block begins with the pointer to the next
    void     *free;    // chain of items given back
    char     *fresh;   // items of the newest block that were never handed out: from here
    char     *end;     // to here
    size_t    live;    // items handed out
    size_t    block;   // bytes of the next block: they double up to a limit
} tni_slab;

void tni_slab_open(tni_slab *s, tni_heap *h, size_t size);
void tni_slab_close(tni_slab *s);
// An item that was never handed out; NULL when memory is out.
void *tni_slab_fresh(tni_slab *s);

// Not zeroed; NULL when memory is out.
static inline void *tni_slab_take(tni_slab *s)
{
    void *item = s->free;
    if (!item) return tni_slab_fresh(s);
    s->free = *(void **)item;
    s->live++;
    return item;
}

static inline void tni_slab_give(tni_slab *s, void *item)
{
    s->live--;
#ifdef TN_DEBUG
    (void)item;
#else
    *(void **)item = s->free;
    s->free        = item;
#endif
}

#endif
