// The thread that makes the calls of an engine. An MPI moves data only inside its calls, so of
// gradients the buckets of the last layers are summed by this thread while the backward pass
// computes those of the first.
#include "dist/worker.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    tni_worker_call *call;
    union {
        void *align;
        char  bytes[TNI_WORKER_ARG];
    } arg;
} job;

// A ring of jobs: given, and done of them. After a failure the next one is that which failed, and
// stays. In memory of the C library, since the thread must not use a context's, and may have to
// outlive it: then it frees itself.
struct tni_dist_worker {
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    uint64_t        given, done;
    bool            stop, failed, given_up;
    tni_text        why;  // it failed
    job             ring[TNI_WORKER_ROOM];
};

static void free_worker(tni_dist_worker *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

// Runs the next job, without the lock.
static void run_job(tni_dist_worker *w)
{
    job     *j   = &w->ring[w->done % TNI_WORKER_ROOM];
    tni_text why = { "" };
    pthread_mutex_unlock(&w->lock);
    bool ok = j->call(&j->arg, &why);
    pthread_mutex_lock(&w->lock);
    if (ok) w->done++;
    else if (!w->failed) w->why = why;
    w->failed |= !ok;
    pthread_cond_broadcast(&w->changed);
}

static void *run_jobs(void *arg)
{
    tni_dist_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->stop)
        if (!w->failed && w->done < w->given) run_job(w);
        else pthread_cond_wait(&w->changed, &w->lock);
    bool alone = w->given_up;
    pthread_mutex_unlock(&w->lock);
    if (alone) free_worker(w);
    return NULL;
}

tni_dist_worker *tni_worker_open(void)
{
    pthread_condattr_t attr;
    tni_dist_worker   *w = calloc(1, sizeof *w);
    if (!w || pthread_condattr_init(&attr)) {
        free(w);
        return NULL;
    }
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&w->thread, NULL, run_jobs, w) == 0) return w;
    free_worker(w);
    return NULL;
}

bool tni_worker_close(tni_dist_worker *w)
{
    if (!w) return true;
    pthread_mutex_lock(&w->lock);
    pthread_t thread = w->thread;
    bool      alone  = w->given_up;
    w->stop          = true;
    if (alone) pthread_detach(thread);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (alone) return false;
    pthread_join(thread, NULL);
    free_worker(w);
    return true;
}

void tni_worker_give(tni_dist_worker *w, tni_worker_call *call, const void *arg, size_t bytes)
{
    pthread_mutex_lock(&w->lock);
    job *j  = &w->ring[w->given++ % TNI_WORKER_ROOM];
    j->call = call;
    memcpy(&j->arg, arg, bytes);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

// Waits for the thread a moment. For whoever holds its lock.
static void wait_a_moment(tni_dist_worker *w)
{
    enum { MOMENT = 5000000 };  // ns; how late the end of another rank may be noticed
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += MOMENT;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->changed, &w->lock, &until);
}

// What is done while may_wait thinks about it is not given up.
bool tni_worker_wait(tni_dist_worker *w, size_t in_flight, tni_may_wait *may_wait, void *user,
                     tni_text *why)
{
    tni_text reason = { "" };
    pthread_mutex_lock(&w->lock);
    while (!w->failed && w->given - w->done > in_flight) {
        wait_a_moment(w);
        if (w->failed || w->given - w->done <= in_flight) break;
        pthread_mutex_unlock(&w->lock);
        bool ok = may_wait(user, &reason);
        pthread_mutex_lock(&w->lock);
        if (ok || w->failed || w->given == w->done) continue;
        w->failed = w->given_up = true;
        w->why                  = reason;
    }
    bool ok = !w->failed;
    if (!ok) *why = w->why;
    pthread_mutex_unlock(&w->lock);
    return ok;
}

size_t tni_worker_left(tni_dist_worker *w)
{
    pthread_mutex_lock(&w->lock);
    size_t left = (size_t)(w->given - w->done);
    pthread_mutex_unlock(&w->lock);
    return left;
}

const void *tni_worker_failed(tni_dist_worker *w)
{
    pthread_mutex_lock(&w->lock);
    const job *j = w->failed ? &w->ring[w->done % TNI_WORKER_ROOM] : NULL;
    pthread_mutex_unlock(&w->lock);
    return j ? &j->arg : NULL;
}

bool tni_worker_stuck(tni_dist_worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool stuck = w->given_up;
    pthread_mutex_unlock(&w->lock);
    return stuck;
}
