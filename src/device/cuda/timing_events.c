// Timing events of a session's stream, for a profile, and a way to hold the stream back until the
// host has submitted everything that is to be timed.
#include "device/cuda/gpu.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

// The longest a hold lasts, in milliseconds: the host may itself come to wait for the stream, which
// would wait for the host. Submitting the work of one plan takes less.
enum { HOLD_MS = 20 };

// Event number n is event[n % TNI_TIMING_EVENTS] until that is recorded again; count is the last
// number. A hold is a host function in the stream, run by a thread of the driver, which returns
// once holds_released has reached its own number. The lock guards the three counters of holds:
// submitted, begun by the driver, and released. The session owns this from the first event on.
// Invariant: holds_released <= holds.
typedef struct tni_timing {
    tni_cuevent     event[TNI_TIMING_EVENTS];
    int64_t         count;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    uint64_t        holds, holds_begun, holds_released;
} timing;

// ---- opening and closing -----------------------------------------------------------------------

// The condition waits on the monotonic clock, which never jumps.
static bool init_lock(timing *s)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr)) return false;
    bool ok = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
              pthread_cond_init(&s->changed, &attr) == 0;
    pthread_condattr_destroy(&attr);
    if (!ok) return false;
    if (pthread_mutex_init(&s->lock, NULL) == 0) return true;
    pthread_cond_destroy(&s->changed);
    return false;
}

// Returns the session's events, made at the first call; NULL when memory is out.
static timing *timing_of(tni_cuda *c)
{
    if (c->timing) return c->timing;
    timing *s = tni_zalloc(c->heap, sizeof *s);
    if (s && init_lock(s)) return c->timing = s;
    tni_free(c->heap, s);
    return NULL;
}

void tni_timing_close(tni_cuda *c)
{
    timing *s = c->timing;
    if (!s) return;
    for (int i = 0; i < TNI_TIMING_EVENTS; i++)
        if (s->event[i]) c->gpu->cu->event_destroy(s->event[i]);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    tni_free(c->heap, s);
    c->timing = NULL;
}

// ---- timing ------------------------------------------------------------------------------------

// Events are created when their place in the ring is first used: few profiles fill it.
int64_t tni_cuda_event_record(void *session)
{
    tni_cuda         *c  = session;
    const tni_driver *cu = c->gpu->cu;
    timing           *s  = timing_of(c);
    if (!s) return 0;
    tni_cuda_enter(c);
    tni_cuevent *e = &s->event[(s->count + 1) % TNI_TIMING_EVENTS];
    if (!*e && cu->event_create(e, 0) != TNI_CU_OK) {
        *e = NULL;
        return 0;
    }
    return cu->event_record(*e, c->stream) == TNI_CU_OK ? ++s->count : 0;
}

// NAN if an event was overwritten since, or was never recorded. Waiting for the later event is
// enough, since the stream is in order.
double tni_cuda_event_elapsed(void *session, int64_t from, int64_t to)
{
    tni_cuda         *c  = session;
    const tni_driver *cu = c->gpu->cu;
    const timing     *s  = c->timing;
    float             ms = NAN;
    if (!s || from < 1 || to < from || to > s->count || s->count - from >= TNI_TIMING_EVENTS)
        return NAN;
    tni_cuevent a = s->event[from % TNI_TIMING_EVENTS], b = s->event[to % TNI_TIMING_EVENTS];
    tni_cuda_enter(c);
    if (cu->event_wait(b) != TNI_CU_OK || cu->elapsed(&ms, a, b) != TNI_CU_OK) return NAN;
    return (double)ms * 1e-3;
}

// ---- holds -------------------------------------------------------------------------------------

// Runs in a thread of the driver, in the place of work: the stream goes on when this returns. It
// may not call the driver. Ends by itself after HOLD_MS.
static void wait_for_host(void *arg)
{
    timing         *s = arg;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += HOLD_MS * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&s->lock);
    uint64_t number = ++s->holds_begun;
    int      error  = 0;
    while (s->holds_released < number && !error)
        error = pthread_cond_timedwait(&s->changed, &s->lock, &end);
    pthread_mutex_unlock(&s->lock);
}

// Turning it off releases all holds submitted so far, including those that the driver has not
// begun.
void tni_cuda_hold_queue(void *session, bool on)
{
    tni_cuda *c = session;
    timing   *s = timing_of(c);
    if (!s) return;
    if (on) {
        tni_cuda_enter(c);
        if (c->gpu->cu->stream_host(c->stream, wait_for_host, s) == TNI_CU_OK) s->holds++;
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->holds_released = s->holds;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}
