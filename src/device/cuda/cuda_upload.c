// Uploads: from the caller's memory through the ring, or from pinned memory, in a stream beside the
// compute stream. copies.h describes how the two streams are kept in order.
#include "device/cuda/gpu.h"

#include <string.h>

// ---- the order of work and copies --------------------------------------------------------------

// Work that was submitted since the last work event belongs to the next number, which gets its
// event when an upload first needs it: most work is never asked for.
uint64_t tni_cuda_submitted(void *session)
{
    const tni_uploads *u = &((tni_cuda *)session)->uploads;
    return u->work_events + u->unmarked;
}

// Returns the event that says that all work up to a number is done. Events are kept for the last
// TNI_WORK_EVENTS numbers; for older work the oldest one serves, which waits a little longer than
// needed and is still right, since the stream is in order.
static uint64_t work_event_of(const tni_uploads *u, uint64_t work)
{
    return work + TNI_WORK_EVENTS <= u->work_events ? u->work_events - TNI_WORK_EVENTS + 1 : work;
}

// Asks the driver without waiting. Work that has no event yet was submitted a moment ago and counts
// as not done: recording an event only to ask would cost more than the answer is worth.
bool tni_cuda_completed(void *session, uint64_t work)
{
    tni_cuda          *c = session;
    const tni_uploads *u = &c->uploads;
    if (!work) return true;
    if (work > u->work_events) return false;  // no event is behind it yet
    tni_cuda_enter(c);
    return c->gpu->cu->event_query(u->work_event[work_event_of(u, work) % TNI_WORK_EVENTS]) ==
           TNI_CU_OK;
}

void tni_cuda_upload_after(void *session, uint64_t work)
{
    tni_uploads *u      = &((tni_cuda *)session)->uploads;
    u->next_after       = work;
    u->next_after_known = true;
}

// Records an event behind the work submitted so far, which thereby gets its number. Does nothing if
// no work was submitted since the last one.
static int record_work_event(tni_cuda *c)
{
    tni_uploads *u = &c->uploads;
    if (!u->unmarked) return TNI_CU_OK;
    int error = c->gpu->cu->event_record(u->work_event[(u->work_events + 1) % TNI_WORK_EVENTS],
                                         c->stream);
    if (error) return error;
    u->unmarked = false;
    u->work_events++;
    return TNI_CU_OK;
}

// Makes the copies that follow wait, in their stream, for the work up to a number. Waits are not
// repeated: the stream keeps its order, so a later copy waits for all that an earlier one did.
static int order_after_work(tni_cuda *c, uint64_t work)
{
    tni_uploads *u     = &c->uploads;
    int          error = record_work_event(c);
    if (work > u->work_events) work = u->work_events;
    if (error || work <= u->copies_wait_for) return error;
    work  = work_event_of(u, work);
    error = c->gpu->cu->stream_after(u->stream, u->work_event[work % TNI_WORK_EVENTS], 0);
    if (!error) u->copies_wait_for = work;
    return error;
}

// If the stream cannot be made to wait, the host waits in its place; if that fails too, the GPU is
// lost, and the next call reports it.
void tni_cuda_await_uploads(tni_cuda *c)
{
    const tni_driver *cu = c->gpu->cu;
    tni_uploads      *u  = &c->uploads;
    u->unmarked          = true;
    if (!u->pending) return;
    u->pending = false;
    int error  = cu->event_record(u->copied, u->stream);
    if (!error) error = cu->stream_after(c->stream, u->copied, 0);
    if (error) cu->stream_wait(u->stream);
}

// ---- the ring ----------------------------------------------------------------------------------

// Creates the events, without timing, which makes them cheap to record and to wait for. Called
// again after a failure, it goes on where it stopped.
static int open_upload_events(tni_cuda *c)
{
    const tni_driver *cu    = c->gpu->cu;
    tni_uploads      *u     = &c->uploads;
    unsigned          plain = TNI_CU_EVENT_NO_TIMING;
    int               error = TNI_CU_OK;
    for (int i = 0; !error && i < TNI_PIECES; i++)
        if (!u->piece[i].done) error = cu->event_create(&u->piece[i].done, plain);
    for (int i = 0; !error && i < TNI_WORK_EVENTS; i++)
        if (!u->work_event[i]) error = cu->event_create(&u->work_event[i], plain);
    if (!error && !u->copied) error = cu->event_create(&u->copied, plain);
    return error;
}

// Allocates ring, stream and events at the first upload: a session that only computes needs none.
static int open_uploads(tni_cuda *c)
{
    const tni_driver *cu    = c->gpu->cu;
    tni_uploads      *u     = &c->uploads;
    void             *host  = NULL;
    int               error = TNI_CU_OK;
    if (u->ring) return error;
    error = open_upload_events(c);
    if (!error && !u->stream) error = cu->stream_create(&u->stream, TNI_CU_STREAM_NONBLOCKING);
    if (!error) error = cu->host_alloc(&host, TNI_RING, TNI_CU_HOST_PORTABLE);
    if (!error) u->ring = host;
    return error;
}

// Reserves bytes in the ring, in one stretch: a piece that would wrap begins at the start again and
// leaves the end unused. Waits for the oldest copies until none of them overlaps with the new piece
// and an event is free. Pieces start at multiples of 64 bytes.
static int take_ring_piece(tni_cuda *c, size_t bytes, tni_ring_piece **p)
{
    tni_uploads *u     = &c->uploads;
    int          error = TNI_CU_OK;
    // Positions count from the first byte ever used; modulo TNI_RING they are places in the ring.
    uint64_t left  = TNI_RING - u->head % TNI_RING;
    uint64_t start = bytes > left ? u->head + left : u->head, end = start + bytes;
    while (!error && u->pieces_done < u->pieces) {
        const tni_ring_piece *old = &u->piece[u->pieces_done % TNI_PIECES];
        if (old->start + TNI_RING >= end && u->pieces - u->pieces_done < TNI_PIECES) break;
        error = c->gpu->cu->event_wait(old->done);
        if (!error) u->pieces_done++;
    }
    if (error) return error;
    *p          = &u->piece[u->pieces++ % TNI_PIECES];
    (*p)->start = start;
    u->head     = (end + 63) / 64 * 64;
    return TNI_CU_OK;
}

// Starts one copy. staged: by way of the ring, since the caller may change host once upload
// returns; otherwise host is pinned and stays as it is until the copy's number is done, and the
// piece takes no bytes of the ring, only an event.
static int copy_piece(tni_cuda *c, tni_cuptr dst, const char *host, size_t bytes, bool staged)
{
    const tni_driver *cu = c->gpu->cu;
    tni_uploads      *u  = &c->uploads;
    tni_ring_piece   *p;
    int               error = take_ring_piece(c, staged ? bytes : 0, &p);
    if (error) return error;
    char *at = u->ring + p->start % TNI_RING;
    if (staged) memcpy(at, host, bytes);
    u->pending = true;
    error      = cu->copy_in(dst, staged ? at : host, bytes, u->stream);
    return error ? error : cu->event_record(p->done, u->stream);
}

// Makes the next copies wait for the work that used the memory they write, if tni_cuda_upload_after
// said which, else for all of it. That statement holds for one upload only.
static int order_copies(tni_cuda *c)
{
    tni_uploads *u      = &c->uploads;
    uint64_t     after  = u->next_after_known ? u->next_after : UINT64_MAX;
    u->next_after_known = false;
    tni_cuda_enter(c);
    int error = open_uploads(c);
    return error ? error : order_after_work(c, after);
}

// A large upload goes in pieces of TNI_PIECE, so that filling the next piece overlaps with the copy
// of the one before.
tn_status tni_cuda_upload(void *session, void *dst, tn_dtype dt, const void *host, int64_t count,
                          tni_text *why)
{
    tni_cuda   *c    = session;
    size_t      left = count > 0 ? (size_t)count * tni_dtype_size(dt) : 0;
    tni_cuptr   to   = (tni_cuptr)(uintptr_t)dst;
    const char *from = host;
    if (left && !tni_cuda_may(c, "copying to the GPU", why)) return TN_EDEVICE;
    int error = left ? order_copies(c) : TNI_CU_OK;
    for (size_t n; !error && left; left -= n, to += n, from += n) {
        n     = left < TNI_PIECE ? left : TNI_PIECE;
        error = copy_piece(c, to, from, n, true);
    }
    return tni_cuda_status(c, error, "copying to the GPU", why);
}

// ---- from pinned memory ------------------------------------------------------------------------

// Portable: batches may be filled by a thread that never entered the GPU.
void *tni_cuda_pinned_alloc(void *session, size_t bytes)
{
    tni_cuda *c = session;
    void     *p = NULL;
    tni_cuda_enter(c);
    return c->gpu->cu->host_alloc(&p, bytes ? bytes : 1, TNI_CU_HOST_PORTABLE) == TNI_CU_OK ? p
                                                                                            : NULL;
}

// Waits for all copies: freeing pinned memory may or may not wait for copies in flight from it.
void tni_cuda_pinned_free(void *session, void *p)
{
    tni_cuda *c = session;
    if (!p) return;
    tni_cuda_pinned_done(c, c->uploads.pieces);
    c->gpu->cu->host_free(p);
}

// The number of a copy is the number of pieces begun so far, which pinned and staged copies share.
tn_status tni_cuda_pinned_upload(void *session, void *dst, tn_dtype dt, const void *host,
                                 int64_t count, uint64_t *copy, tni_text *why)
{
    tni_cuda *c     = session;
    size_t    bytes = (size_t)count * tni_dtype_size(dt);
    if (!tni_cuda_may(c, "copying to the GPU", why)) return TN_EDEVICE;
    int error = order_copies(c);
    if (!error) error = copy_piece(c, (tni_cuptr)(uintptr_t)dst, host, bytes, false);
    *copy = c->uploads.pieces;
    return tni_cuda_status(c, error, "copying to the GPU", why);
}

// Copies of one stream finish in order, so that the first unfinished one ends the search. Waits for
// pieces below `until` and only asks about the others. If the GPU is lost, the search ends as well:
// it copies nothing more.
uint64_t tni_cuda_pinned_done(void *session, uint64_t until)
{
    tni_cuda         *c  = session;
    const tni_driver *cu = c->gpu->cu;
    tni_uploads      *u  = &c->uploads;
    tni_cuda_enter(c);
    while (u->pieces_done < u->pieces) {
        tni_cuevent done = u->piece[u->pieces_done % TNI_PIECES].done;
        if ((u->pieces_done < until ? cu->event_wait(done) : cu->event_query(done)) != TNI_CU_OK)
            break;
        u->pieces_done++;
    }
    return u->pieces_done;
}

// ---- the end -----------------------------------------------------------------------------------

// Waits for the copies before their events and the ring are freed.
void tni_uploads_close(tni_cuda *c)
{
    const tni_driver *cu = c->gpu->cu;
    tni_uploads      *u  = &c->uploads;
    if (u->stream) cu->stream_wait(u->stream);
    for (int i = 0; i < TNI_PIECES; i++)
        if (u->piece[i].done) cu->event_destroy(u->piece[i].done);
    for (int i = 0; i < TNI_WORK_EVENTS; i++)
        if (u->work_event[i]) cu->event_destroy(u->work_event[i]);
    if (u->copied) cu->event_destroy(u->copied);
    if (u->ring) cu->host_free(u->ring);
    if (u->stream) cu->stream_destroy(u->stream);
}
