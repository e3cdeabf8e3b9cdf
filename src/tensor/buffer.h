// Buffers: device memory with a reference count, from a cache that keeps freed blocks for reuse
// by size. A borrowed buffer is a caller's memory; it is never written and is released once.
#ifndef TNI_TENSOR_BUFFER_H
#define TNI_TENSOR_BUFFER_H

#include "base/heap.h"
#include "tenon.h"

// A device's memory, as this folder sees it.
typedef struct {
    void *(*alloc)(void *state, size_t bytes);  // aligned to 64; NULL when there is none
    void (*free)(void *state, void *p);
    void *state;
} tni_memory;

// A block of device memory, or a caller's. Nodes and runs hold references; when the last goes a
// block returns to its bin and a caller's memory is released.
typedef struct tni_buffer tni_buffer;
struct tni_buffer {
    uint32_t refs;
    bool     borrowed;
    int      bin;    // the size class it came from
    size_t   bytes;  // of its class, at least what was asked for
    char    *data;
    void (*release)(void *data, void *user);  // borrowed memory only
    void       *user;
    tni_buffer *next;  // in its bin, while free
};

enum { TNI_BINS = 40 * 4 };

// The cache of a context. bytes counts what buffers in use take, peak its maximum, kept what lies
// free in the bins.
typedef struct {
    tni_heap   *heap;
    tni_memory  memory;
    int64_t     bytes, peak, kept, limit;
    int         releasing;  // release functions that run
    tni_buffer *bin[TNI_BINS];
} tni_buffers;

void tni_buffers_open(tni_buffers *b, tni_heap *heap, tni_memory memory, int64_t limit);
void tni_buffers_close(tni_buffers *b);

// What a buffer of so many bytes takes.
size_t tni_buffer_size(size_t bytes);
// At least that many bytes, or NULL: over the limit, or none to be had even after the cache was
// given back. The caller has the only reference.
tni_buffer *tni_buffer_new(tni_buffers *b, size_t bytes);
tni_buffer *tni_buffer_borrow(tni_buffers *b, void *data, void (*release)(void *, void *),
                              void *user);
void        tni_buffer_unref(tni_buffers *b, tni_buffer *buf);

#endif
