// The host allocator of a context: a layer over malloc or the program's own allocator that keeps
// small blocks for reuse, mapped blocks for large data, growing arrays, and slabs.
//
// A heap with `keeps` belongs to one thread and takes no lock. Fault injection in the tests
// replaces `alloc` and makes the n-th call fail, so every path below returns NULL or false with
// nothing changed.
#include "base/heap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// One function for three: it has the shape that a program's own allocator has (tn_open_opts).
static void *default_alloc(void *user, void *old, size_t n)
{
    (void)user;
    if (n) return realloc(old, n);
    free(old);
    return NULL;
}

tni_heap tni_heap_default(void)
{
    return (tni_heap){ .alloc = default_alloc };
}

// Precedes every block: the size class, four to an octave from 64 bytes on, or LARGE beyond those.
// A kept block has the link to the next in the memory behind it. 16 bytes keep the alignment of
// malloc.
typedef union {
    size_t        size;
    void         *next;  // of a kept block
    max_align_t   most;
    unsigned char pad[16];
} header;

enum { LARGE = TNI_HEAP_SIZES };

// Class 0 is 64 bytes, then 80, 96, 112, 128, 160, ...
static size_t class_bytes(int size)
{
    return (size_t)(4 + size % 4) << (4 + size / 4);
}

// The smallest class that holds n bytes; LARGE if none does.
static int size_class(size_t n)
{
    if (n <= 64) return 0;
    int octave = 63 - __builtin_clzll(n - 1), quarter = (int)((n - 1) >> (octave - 2)) & 3;
    int size = 4 * (octave - 6) + quarter + 1;
    return size < LARGE ? size : LARGE;
}

// Asks the allocator, in sizes of classes: so a block can be kept for any request of its class.
static void *alloc_from_heap(tni_heap *h, header *old, size_t n, int size)
{
    size_t bytes = size == LARGE ? n : class_bytes(size);
    if (bytes > SIZE_MAX - sizeof(header)) return NULL;
    header *b = h->alloc(h->user, old, sizeof *b + bytes);
    if (!b) return NULL;
    b->size = (size_t)size;
    return b + 1;
}

void *tni_alloc(tni_heap *h, size_t n)
{
    int size = size_class(n ? n : 1);
    if (size == LARGE || !h->kept[size]) return alloc_from_heap(h, NULL, n, size);
    header *b     = h->kept[size];
    h->kept[size] = b[1].next;
    h->count[size]--;
    return b + 1;
}

void *tni_zalloc(tni_heap *h, size_t n)
{
    void *p = tni_alloc(h, n);
    if (p) memset(p, 0, n);
    return p;
}

// In place while the size class holds it. A block leaves its class by copying, as realloc would
// lose the class's capacity; two LARGE sizes are left to realloc, which can move pages instead of
// bytes.
void *tni_resize(tni_heap *h, void *p, size_t n)
{
    if (!p) return tni_alloc(h, n);
    header *b    = (header *)p - 1;
    int     size = size_class(n ? n : 1);
    if (b->size == LARGE && size == LARGE) return alloc_from_heap(h, b, n, size);
    if (b->size != LARGE && (size_t)size <= b->size) return p;
    size_t old = b->size == LARGE ? n : class_bytes((int)b->size);
    void *new  = tni_alloc(h, n);
    if (!new) return NULL;
    memcpy(new, p, old < n ? old : n);
    tni_free(h, p);
    return new;
}

// Keeps up to TNI_HEAP_KEPT blocks of a class: what a step frees, the next step allocates again.
void tni_free(tni_heap *h, void *p)
{
    if (!p) return;
    header *b    = (header *)p - 1;
    size_t  size = b->size;
    if (!h->keeps || size == LARGE || h->count[size] == TNI_HEAP_KEPT) {
        h->alloc(h->user, b, 0);
        return;
    }
    b[1].next     = h->kept[size];
    h->kept[size] = b;
    h->count[size]++;
}

void tni_heap_close(tni_heap *h)
{
    for (int i = 0; i < TNI_HEAP_SIZES; i++)
        while (h->kept[i]) {
            header *b  = h->kept[i];
            h->kept[i] = b[1].next;
            h->alloc(h->user, b, 0);
        }
    memset(h->count, 0, sizeof h->count);
}

// For data that vector instructions or a device read. The block's address is stored right before
// the pointer that is returned.
void *tni_alloc64(tni_heap *h, size_t n)
{
    size_t extra = 64 + sizeof(void *);
    char  *block = n <= SIZE_MAX - extra ? tni_alloc(h, n + extra) : NULL;
    if (!block) return NULL;
    char *p = block + sizeof(void *);
    p += (64 - (uintptr_t)p % 64) % 64;
    ((void **)p)[-1] = block;
    return p;
}

void tni_free64(tni_heap *h, void *p)
{
    if (p) tni_free(h, ((void **)p)[-1]);
}

// malloc may keep freed blocks of up to 32 MiB (its mmap threshold grows), depending on the
// program's history; for blocks of data that is too much to keep by accident. Under
// AddressSanitizer all memory comes from its allocator, since it checks no mappings.
#if defined(__SANITIZE_ADDRESS__)
enum { MAPS = false };
#else
enum { MAPS = true };
#endif

// From this size on a block is a mapping of its own. Below, a system call and its page faults cost
// more than keeping the memory.
enum { MAPPED = 1 << 20 };  // smaller ones are cheaper to keep than to map

// Precedes a block: the length of the mapping, 0 for memory of the heap. 64 bytes keep the
// alignment.
typedef union {
    size_t mapped;
    char   pad[64];
} block_head;

// A private anonymous mapping: zeroed, and returned to the system by tni_free_block.
static void *map_block(size_t n)
{
    if (n > SIZE_MAX - sizeof(block_head)) return NULL;
    size_t all  = n + sizeof(block_head);
    int    how  = MAP_PRIVATE | MAP_ANONYMOUS;
    void  *from = mmap(NULL, all, PROT_READ | PROT_WRITE, how, -1, 0);
    if (from == MAP_FAILED) return NULL;
    block_head *b = from;
    b->mapped     = all;
    return b + 1;
}

void *tni_alloc_block(tni_heap *h, size_t n)
{
    if (MAPS && n >= MAPPED && h->alloc == default_alloc) return map_block(n);
    if (n > SIZE_MAX - sizeof(block_head)) return NULL;
    block_head *b = tni_alloc64(h, n + sizeof *b);
    if (!b) return NULL;
    b->mapped = 0;
    return b + 1;
}

void tni_free_block(tni_heap *h, void *p)
{
    if (!p) return;
    block_head *b = (block_head *)p - 1;
    if (b->mapped) munmap(b, b->mapped);
    else tni_free64(h, b);
}

char *tni_strdup(tni_heap *h, const char *s)
{
    size_t n = strlen(s) + 1;
    char  *p = tni_alloc(h, n);
    if (p) memcpy(p, s, n);
    return p;
}

// Doubling keeps the cost of n appends linear.
bool tni_grow(tni_heap *h, void **array, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap) return true;
    size_t n = *cap ? *cap : 16;
    while (n < need) n *= 2;
    if (n > SIZE_MAX / size) return false;
    void *p = tni_resize(h, *array, n * size);
    if (!p) return false;
    *array = p;
    *cap   = n;
    return true;
}

// Linux 5.14 and later; elsewhere madvise fails and changes nothing.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

// Slab blocks double from 64 KiB, so a small program stays small, up to 1 MiB, where the cost of a
// block is far below that of filling it.
enum { FIRST_BLOCK = 64 << 10, LAST_BLOCK = 1 << 20, PAGE = 4096 };

// Recording fills memory as fast as page faults allow, one page each; one call populates the
// block's pages.
static void populate_pages(char *block, size_t bytes)
{
    uintptr_t first = ((uintptr_t)block + PAGE - 1) / PAGE * PAGE;
    uintptr_t end   = ((uintptr_t)block + bytes) / PAGE * PAGE;
    if (end > first) madvise((void *)first, end - first, MADV_POPULATE_WRITE);
}

void tni_slab_open(tni_slab *s, tni_heap *h, size_t size)
{
    *s = (tni_slab){ .heap = h, .size = (size + 15) & ~(size_t)15, .block = FIRST_BLOCK };
}

// The first 16 bytes of a block link it to the one before; the rest is items.
static bool refill_slab(tni_slab *s)
{
    char *block = tni_alloc(s->heap, s->block);
    if (!block) return false;
    *(void **)block = s->blocks;
    s->blocks       = block;
    s->fresh        = block + 16;
    s->end          = block + s->block;
    populate_pages(block, s->block);
    if (s->block < LAST_BLOCK) s->block *= 2;
    return true;
}

// The slow path of tni_slab_take: the free list is empty.
void *tni_slab_fresh(tni_slab *s)
{
    if (s->fresh + s->size > s->end && !refill_slab(s)) return NULL;
    void *item = s->fresh;
    s->fresh += s->size;
    s->live++;
    return item;
}

void tni_slab_close(tni_slab *s)
{
    for (void *b = s->blocks; b;) {
        void *next = *(void **)b;
        tni_free(s->heap, b);
        b = next;
    }
    s->blocks = s->free = NULL;
    s->fresh = s->end = NULL;
}
