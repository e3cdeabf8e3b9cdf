// Copies between the host and a session's GPU, in a stream of their own beside the compute stream:
// a batch is copied while the step before it runs.
//
// An upload is first copied into a ring of pinned host memory, in pieces, and from there to the GPU
// by an asynchronous copy, so that the caller may change its memory at once. An upload from pinned
// memory goes straight from there; it is a piece that takes no bytes of the ring. Pieces are
// numbered from 1, and a pinned copy is known by the number of its piece.
//
// The two streams are ordered in two places. Before work is submitted to the compute stream, that
// stream waits for the copies made since it last did so. And a copy waits for the work that may
// still use the memory it writes: work is numbered, the number rises at the first upload after some
// work was submitted, and an event is recorded behind that work in the compute stream. A freed
// block knows the number of the work that used it last.
#ifndef TNI_CUDA_COPIES_H
#define TNI_CUDA_COPIES_H

#include "device/cuda/driver.h"

#include <stdatomic.h>
#include <stdbool.h>

// The ring has room for eight pieces of the largest size, so that the host fills one while others
// are copied; smaller ones need more events than that. For work older than TNI_WORK_EVENTS a copy
// waits for a later event than it must. TNI_FETCHES bounds how many elements can be on their way.
enum {
    TNI_RING        = 16 << 20,  // bytes
    TNI_PIECE       = 2 << 20,   // most bytes of a piece
    TNI_PIECES      = 64,
    TNI_WORK_EVENTS = 16,
    TNI_FETCHES     = 256
};

// A part of an upload in the ring. start counts from the first byte ever used; modulo TNI_RING it
// is the place in the ring.
typedef struct {
    uint64_t    start;
    tni_cuevent done;  // recorded behind its copy
} tni_ring_piece;

// The uploads of a session. Invariant: pieces - pieces_done <= TNI_PIECES, and the pieces from
// pieces_done on do not overlap in the ring; work_event[n % TNI_WORK_EVENTS] is behind the work
// numbered n, for the last TNI_WORK_EVENTS numbers up to work_events.
typedef struct {
    tni_custream   stream;  // NULL before the first upload
    char          *ring;
    uint64_t       head;  // bytes of the ring used so far, counting those skipped at its end
    tni_ring_piece piece[TNI_PIECES];
    uint64_t       pieces, pieces_done;  // begun so far; known to be copied
    tni_cuevent    copied;               // behind all copies so far, for the compute stream
    bool           pending;  // there are copies that the compute stream does not wait for yet
    tni_cuevent    work_event[TNI_WORK_EVENTS];
    uint64_t       work_events;  // numbers given so far, the first is 1
    bool           unmarked;     // work was submitted since the last event
    uint64_t       next_after;   // the work that the next upload waits for, if known
    bool           next_after_known;
    uint64_t       copies_wait_for;  // the copy stream waits for work up to this number
} tni_uploads;

// An element that arrives at the host: a kernel writes the value, and then the ticket of the fetch.
typedef struct {
    int64_t          value;
    _Atomic(int64_t) ticket;
} tni_fetch_slot;

// The fetches of a session (tn_item_late): a ring in host memory that the GPU writes.
typedef struct {
    tni_fetch_slot *slot;  // NULL before the first
    tni_cuptr       at;    // the same ring as the GPU addresses it
    tni_cufunction  send;
    int64_t         tickets;  // given so far
} tni_fetches;

// The text of the kernel that sends an element.
extern const char *const tni_text_send[];

struct tni_cuda;

// To be called before work is submitted to the compute stream outside of a capture: orders it
// behind every upload so far, without the host waiting, and counts it as submitted.
void tni_cuda_await_uploads(struct tni_cuda *c);
void tni_fetches_close(struct tni_cuda *c);
void tni_copies_close(struct tni_cuda *c);

#endif
