// Copies between the host and a session's GPU.
//
// What is uploaded goes from the caller's memory into a ring of host memory that the GPU reads, and
// from there in a stream of its own, beside the compute stream: a batch is copied while the step
// before it runs. What lies in pinned memory of the device goes straight from there: it is a piece that
// takes no room of the ring, and the number of pieces so far is the number of its copy.
//
// The two streams meet in two places. Before work is unmarked to the compute stream, it waits for the
// copies made since it last did so. And a copy waits for the work that may still use the memory it
// writes: work is numbered, a number more at the first upload after some was unmarked, with a work_event behind
// it in the compute stream; a block knows the number at which it was let go.
#ifndef TNI_CUDA_COPIES_H
#define TNI_CUDA_COPIES_H

#include "device/cuda/driver.h"

#include <stdatomic.h>
#include <stdbool.h>

enum {
    TNI_RING        = 16 << 20,
    TNI_PIECE       = 2 << 20,
    TNI_PIECES      = 64,
    TNI_WORK_EVENTS = 16,
    TNI_FETCHES     = 64
};

// A part of an upload in the ring, from a place on, counted from the first byte ever used.
typedef struct {
    uint64_t    start;
    tni_cuevent done;
} tni_ring_piece;

// Part of a session. Invariant: pieces - pieces_done <= TNI_PIECES, and the pieces from pieces_done on do not overlap;
// work_event[n % TNI_WORK_EVENTS] stands behind the work numbered n, for the last TNI_WORK_EVENTS of work_events.
typedef struct {
    tni_custream   stream;  // NULL before the first upload
    char          *ring;
    uint64_t       head;  // bytes used so far, with those left over at the ring's end
    tni_ring_piece piece[TNI_PIECES];
    uint64_t       pieces, pieces_done;  // begun; of those next_after_known to be copied
    tni_cuevent    copied;
    bool           pending;  // uploads that the compute stream does not wait for yet
    tni_cuevent    work_event[TNI_WORK_EVENTS];
    uint64_t       work_events;  // so far, the first is number 1
    bool           unmarked;     // work was, since the last
    uint64_t       next_after;   // what the next upload waits for, if that is next_after_known
    bool           next_after_known;
    uint64_t       copies_wait_for;  // the copies wait for work up to this
} tni_uploads;

// An element that arrives at the host: a kernel writes it, and then the ticket that it was asked by.
typedef struct {
    int64_t          value;
    _Atomic(int64_t) ticket;
} tni_fetch_slot;

// The ring of what tn_item_late asked for, in host memory that the GPU writes.
typedef struct {
    tni_fetch_slot *slot;  // NULL before the first
    tni_cuptr       at;    // the GPU's address of it
    tni_cufunction  send;
    int64_t         tickets;  // so far
} tni_fetches;

// The text of the kernel that writes them.
extern const char *const tni_text_send[];

struct tni_cuda;

// Work is about to be unmarked to the compute stream, which is not being captured: it comes after every
// upload so far.
void tni_cuda_await_uploads(struct tni_cuda *c);
void tni_fetches_close(struct tni_cuda *c);
void tni_copies_close(struct tni_cuda *c);

#endif
