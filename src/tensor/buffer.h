// Buffers: device memory with a reference count, from a cache that keeps freed blocks for reuse by
// size. A borrowed buffer is a caller's memory; it is never written and is released once.
//
// One cache serves every device. A context has one stream of work, in which everything runs in the
// order in which it was submitted; so a block that the host releases can be handed out again at
// once, although work that uses it is still under way: whatever writes it next comes later in the
// same stream. Only a copy from the host, which runs beside the stream, has to know which work may
// still use a block: tni_buffer.last.
#ifndef TNI_TENSOR_BUFFER_H
#define TNI_TENSOR_BUFFER_H

#include "base/fault.h"
#include "base/heap.h"
#include "tenon.h"

// The functions of a device's memory that this folder needs. submitted, completed and wait_unused
// are NULL if nothing runs asynchronously. submitted: a growing number for the work submitted so
// far, 0 for none. completed: whether all work up to a number is done. wait_unused: blocks until no
// work uses a caller's memory.
//
// arena: memory at an address that never changes, for temporaries of an evaluation. From now on it
// has at least `bytes` bytes; *held is its size, at most `most` if it had to grow; its contents are
// lost. 0 bytes gives all memory behind the address back. Returns NULL if the device has not that
// many; the function is NULL if a device has no arena.
typedef struct {
    void *(*alloc)(void *state, size_t bytes);  // aligned to 64; NULL when there is none
    void (*free)(void *state, void *p);
    void *(*arena)(void *state, size_t bytes, size_t most, size_t *held);
    void *state;
    uint64_t (*submitted)(void *state);
    bool (*completed)(void *state, uint64_t work);
    void (*wait_unused)(void *state);
} tni_memory;

// A block of device memory, or a caller's. Nodes and runs hold references; with the last one a
// block returns to its bin and a caller's memory is released. Site, dtype and size describe the
// first value that was stored in it, for the out-of-memory report. Invariant: a block that is not
// borrowed is in one list, that of its bin if refs is 0, else `used`; a free one is also in the
// list of free blocks by age. bytes <= capacity.
typedef struct tni_buffer tni_buffer;
struct tni_buffer {
    uint32_t refs;
    bool     borrowed;
    bool rewritten;  // its elements change under the nodes in it: devices keep nothing made of them
    size_t   bytes;  // the request, rounded up
    size_t   capacity;  // of the block
    uint64_t last;      // while free: the work that may still use it
    uint32_t given;     // scratch: references that an evaluation will release
    char    *data;
    void (*release)(void *data, void *user);  // borrowed memory only
    void       *user;
    tni_buffer *prev, *next;
    tni_buffer *older, *newer;  // while free
    tni_site    site;           // that first made a value in it; no file: none did
    uint8_t     dtype, rank;
    int64_t     size[TN_MAX_RANK];
};

// Up to 1 MiB there are four sizes to an octave, from 64 bytes on, and a bin for each; beyond there
// are eight, from 16 MiB on one for every 2 MiB, and eight bins to an octave, up to 2^47 bytes,
// which no device has.
enum { TNI_SMALL_BINS = 14 * 4 + 1, TNI_BINS = TNI_SMALL_BINS + 27 * 8 };

// The maximum of a quantity in this window of evaluations (see WINDOW in buffer.c) and in the one
// before.
typedef struct {
    int64_t now, before;
} tni_high_water;

// The cache of a context. bytes counts what buffers in use asked for, peak its maximum, held what
// is allocated from the device, host_bytes what data files expanded to on the host. Invariant:
// bytes <= held, and held + host_bytes <= limit if there is a limit.
//
// Free memory is bounded by what was in use lately: held is at most twice that, plus 64 MiB, and
// the blocks that were free for longest return to the device first. So steps that ask for the same
// sizes again find them, and a program whose sizes differ every time keeps no more than a step's
// worth.
typedef struct {
    tni_heap      *heap;
    tni_memory     memory;
    int64_t        bytes, peak, held, host_bytes, limit;
    int64_t        returned;    // bytes returned to the device so far
    uint64_t       taken;       // blocks handed out so far
    tni_high_water high;        // of `bytes`
    tni_high_water high_arena;  // of requests to the arena
    int            turns;       // evaluations of this window
    int            releasing;   // release functions in progress
    tni_buffer     arena;       // refs 0: not in use
    tni_buffer    *used;
    tni_buffer    *oldest, *newest;  // free blocks
    tni_buffer    *bin[TNI_BINS];    // free blocks, those freed last first
} tni_buffers;

void tni_buffers_open(tni_buffers *b, tni_heap *heap, tni_memory memory, int64_t limit);
void tni_buffers_close(tni_buffers *b);
// Returns all free memory to the device; false if there was none.
bool tni_buffers_trim(tni_buffers *b);
// Counts bytes on the host toward the limit, after returning all free memory if need be. False,
// with nothing counted, if they exceed it.
bool tni_buffers_reserve_host(tni_buffers *b, size_t bytes);
void tni_buffers_release_host(tni_buffers *b, size_t bytes);
// What the limit leaves once all free memory is returned; SIZE_MAX without a limit.
size_t tni_buffers_left(const tni_buffers *b);
// Called after each evaluation. Every 256th returns memory that was not needed for long.
void tni_buffers_end_evaluation(tni_buffers *b);
// Reads a number of bytes as people write it: digits, then K, M or G if need be. False if it is not
// one, or 0.
bool tni_parse_bytes(const char *text, int64_t *bytes);

// The size that a request is rounded up to, which the limit and the statistics
// count.
size_t tni_buffer_size(size_t bytes);
// At least that many bytes; the caller has the only reference. NULL if that exceeds the limit, or
// if the device has no memory even after the cache was trimmed. Not reported: the caller knows what
// it is for.
tni_buffer *tni_buffer_new(tni_buffers *b, size_t bytes);
// The same for memory that the host will write: the block that was free for longest, or fresh
// memory if the only one is still in use, so that a batch is copied while the one before it is
// computed with.
tni_buffer *tni_buffer_new_upload(tni_buffers *b, size_t bytes);
// Memory for an evaluation's temporaries: the device's arena if it is free and can grow, else an
// ordinary block. Successive evaluations get the same address.
tni_buffer *tni_buffer_new_temp(tni_buffers *b, size_t bytes);
// A buffer over a caller's memory; release(data, user) runs once, when no work uses it any more.
tni_buffer *tni_buffer_borrow(tni_buffers *b, void *data, void (*release)(void *, void *),
                              void *user);
void        tni_buffer_unref(tni_buffers *b, tni_buffer *buf);

#endif
