// Buffers: device memory with a reference count, from a cache that keeps freed blocks for reuse
// by size. A borrowed buffer is a caller's memory; it is never written and is released once.
//
// One cache serves every device. A context has one stream of work, in which everything runs in the
// order it was given; so a block that the host lets go can be handed out again at once, although
// work that uses it is still under way: whatever writes it next comes later in the same stream. Only
// what goes beside the stream, a copy from the host, has to know which work may still use a block:
// that is what `last` is for.
#ifndef TNI_TENSOR_BUFFER_H
#define TNI_TENSOR_BUFFER_H

#include "base/fault.h"
#include "base/heap.h"
#include "tenon.h"

// The functions of a device's memory that this folder needs. submitted, completed and wait_unused are NULL
// if nothing runs asynchronously. submitted: a growing number for the work submitted so far, 0 for none.
// completed: whether all work up to a number is done. wait_unused: blocks until no work uses a caller's
// memory.
//
// arena: memory at an address that never changes, for temporaries of an evaluation. From now on it has at
// least `bytes` bytes; *held is its size, at most `most` if it had to grow; its contents are lost. 0 bytes
// gives all memory behind the address back. Returns NULL if the device has not that many; the function is
// NULL if a device has no arena.
typedef struct {
    void *(*alloc)(void *state, size_t bytes);  // aligned to 64; NULL when there is none
    void (*free)(void *state, void *p);
    void *(*arena)(void *state, size_t bytes, size_t most, size_t *held);
    void *state;
    uint64_t (*submitted)(void *state);
    bool (*completed)(void *state, uint64_t work);
    void (*wait_unused)(void *state);
} tni_memory;

// A block of device memory, or a caller's. Nodes and runs hold references; when the last goes a
// block returns to its bin and a caller's memory is released. Blocks that are not borrowed are in one
// list: that of their bin, or that of all in use; free ones also in that of all free blocks, by the time
// they were freed. What it was made for is kept for messages alone.
typedef struct tni_buffer tni_buffer;
struct tni_buffer {
    uint32_t refs;
    bool     borrowed;
    size_t   bytes;     // what was asked for, rounded up
    size_t   capacity;  // of the block, at least that
    uint64_t last;      // while free: the work that may still use it
    uint32_t given;     // scratch: references that an evaluation will let go
    char    *data;
    void (*release)(void *data, void *user);  // borrowed memory only
    void       *user;
    tni_buffer *prev, *next;
    tni_buffer *older, *newer;  // while free
    tni_site    site;           // that first made a value in it; no file: none did
    uint8_t     dtype, rank;
    int64_t     size[TN_MAX_RANK];
};

// Up to 1 MiB there are four sizes to an octave, from 64 bytes on, and a bin for each; beyond there are
// eight, then one for every 2 MiB, and eight bins to an octave, up to 2^47 bytes.
enum { TNI_SMALL_BINS = 14 * 4 + 1, TNI_BINS = TNI_SMALL_BINS + 27 * 8 };

// The most that something was in this stretch of evaluations and in the one before.
typedef struct {
    int64_t now, before;
} tni_high_water;

// The cache of a context. bytes counts what buffers in use asked for, peak its maximum, held what is
// taken from the device, beside what data files expanded to on the host. Invariant: bytes <= held, and
// held + beside <= limit, where there is a limit.
//
// What lies free is bounded by what was in use lately: held is at most twice that, and 64 MiB, and the
// blocks that were free for longest go back to the device first. So steps that ask for the same again and
// again find it, and a program whose sizes differ every time keeps no more than a step's worth.
typedef struct {
    tni_heap      *heap;
    tni_memory     memory;
    int64_t        bytes, peak, held, host_bytes, limit;
    int64_t        returned;    // bytes given back to the device
    tni_high_water high;        // of bytes
    tni_high_water high_arena;  // of what was asked of the arena
    int            turns;       // evaluations of this stretch
    int            releasing;   // release functions that run
    tni_buffer     arena;       // no reference: not in use
    tni_buffer    *used;
    tni_buffer    *oldest, *newest;  // free blocks
    tni_buffer    *bin[TNI_BINS];    // free blocks, those freed last first
} tni_buffers;

void tni_buffers_open(tni_buffers *b, tni_heap *heap, tni_memory memory, int64_t limit);
void tni_buffers_close(tni_buffers *b);
// Gives everything that lies free back to the device; whether that was anything.
bool tni_buffers_trim(tni_buffers *b);
// Counts bytes on the host to the limit, after all that lies free was given back if need be. False, with
// nothing counted, where they go over it.
bool tni_buffers_reserve_host(tni_buffers *b, size_t bytes);
void tni_buffers_release_host(tni_buffers *b, size_t bytes);
// What the limit leaves once all that lies free is given back; SIZE_MAX without one.
size_t tni_buffers_left(const tni_buffers *b);
// An evaluation has ended. Every so often what was not needed for long goes back to the device.
void tni_buffers_end_evaluation(tni_buffers *b);
// A number of bytes as people write it: digits, then K, M or G if need be. False if it is none, or 0.
bool tni_parse_bytes(const char *text, int64_t *bytes);

// What a buffer of so many bytes counts as.
size_t tni_buffer_size(size_t bytes);
// At least that many bytes, or NULL: over the limit, or none to be had even after the cache was
// given back. The caller has the only reference.
tni_buffer *tni_buffer_new(tni_buffers *b, size_t bytes);
// The same for what the host will write: the block that was free for longest, and fresh memory rather
// than a single block that is still used, so that a batch is copied while the one before it is
// worked on.
tni_buffer *tni_buffer_new_upload(tni_buffers *b, size_t bytes);
// The same for what an evaluation needs on its way: the device's arena, unless that is in use or
// cannot be had. One after the other gets the same address.
tni_buffer *tni_buffer_new_temp(tni_buffers *b, size_t bytes);
tni_buffer *tni_buffer_borrow(tni_buffers *b, void *data, void (*release)(void *, void *),
                              void *user);
void        tni_buffer_unref(tni_buffers *b, tni_buffer *buf);

#endif
