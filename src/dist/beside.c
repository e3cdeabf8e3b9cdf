// The thread that runs collectives beside the computation of what they do not concern: of gradients, the buckets of the
// last layers are summed while the backward pass computes those of the first. An MPI moves data only inside its calls, so
// a collective that was only begun would stand still meanwhile.
#include "dist/beside.h"
#include "dist/world.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct {
    tni_collective c;
    tni_line_item  what;
} job;

enum { ROOM = 64 };  // a step with more waits for the first of them

// A ring of jobs: given, done of them, and the first failure. In memory of the C library, since the thread must not use a
// context's.
struct tni_beside {
    tn_dist        *d;
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    uint64_t        given, done;
    bool            stop;
    tn_status       status;
    tni_text        why;
    job             ring[ROOM];
};

// Runs one job without the lock. After a failure the rest is left out: the world has ended.
static void run_job(tni_beside *b)
{
    job       j      = b->ring[b->done % ROOM];
    tni_text  reason = { "" };
    tn_status s      = b->status;
    pthread_mutex_unlock(&b->lock);
    if (s == TN_OK && (s = tni_dist_run(b->d, &j.c, &j.what, &reason)) != TN_OK) {
        b->status = s;
        b->why    = tni_text_of("%.60s: %s", j.what.what, reason.s);
    }
    pthread_mutex_lock(&b->lock);
    b->done++;
    pthread_cond_broadcast(&b->changed);
}

static void *run_jobs(void *arg)
{
    tni_beside *b = arg;
    pthread_mutex_lock(&b->lock);
    while (!b->stop || b->done < b->given)
        if (b->done < b->given) run_job(b);
        else pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

tni_beside *tni_beside_open(tn_dist *d)
{
    tni_beside *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    b->d = d;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    if (pthread_create(&b->thread, NULL, run_jobs, b) == 0) return b;
    free(b);
    return NULL;
}

void tni_beside_close(tni_beside *b)
{
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

bool tni_beside_idle(tni_beside *b)
{
    pthread_mutex_lock(&b->lock);
    bool idle = b->done == b->given;
    pthread_mutex_unlock(&b->lock);
    return idle;
}

void tni_beside_give(tni_beside *b, const tni_collective *c, const tni_line_item *what)
{
    pthread_mutex_lock(&b->lock);
    while (b->given - b->done == ROOM) pthread_cond_wait(&b->changed, &b->lock);
    b->ring[b->given++ % ROOM] = (job){ *c, *what };
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

tn_status tni_beside_wait(tni_beside *b, size_t in_flight, tni_text *why)
{
    pthread_mutex_lock(&b->lock);
    while (b->given - b->done > in_flight) pthread_cond_wait(&b->changed, &b->lock);
    tn_status s = b->status;
    if (s != TN_OK) *why = b->why;
    pthread_mutex_unlock(&b->lock);
    return s;
}
