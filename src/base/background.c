// Threads that take tasks from a queue.
#include "base/background.h"

#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

// Threads at most: as many as cores, and no more than compilers profit from.
enum { MOST_THREADS = 16 };

typedef struct task task;
struct task {
    void (*work)(void *arg);
    void *arg;
    task *next;
};

// Guarded by the lock. idle: threads that wait for a task; busy: those that have one.
static struct {
    pthread_mutex_t lock;
    pthread_cond_t  came, went;
    task           *first, *last;
    int             threads, idle, busy, needs;
    bool            registered, paused;
    atomic_bool     stops;
    atomic_int      asked;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER,
           .came = PTHREAD_COND_INITIALIZER,
           .went = PTHREAD_COND_INITIALIZER };

static task *next_task(void)
{
    task *t = self.first;
    if (t) self.first = t->next;
    if (!self.first) self.last = NULL;
    return t;
}

// For ever: a thread that has nothing to do costs nothing.
static void *serve(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&self.lock);
    for (;;) {
        task *t = self.stops || self.paused ? NULL : next_task();
        if (!t) {
            self.idle++;
            pthread_cond_wait(&self.came, &self.lock);
            self.idle--;
            continue;
        }
        self.busy++;
        pthread_mutex_unlock(&self.lock);
        t->work(t->arg);
        free(t);
        pthread_mutex_lock(&self.lock);
        self.busy--;
        pthread_cond_broadcast(&self.went);
    }
    return NULL;
}

void tni_background_need(bool on)
{
    pthread_mutex_lock(&self.lock);
    self.needs += on ? 1 : -1;
    self.paused = self.needs == 0;
    while (self.paused && self.busy) pthread_cond_wait(&self.went, &self.lock);
    if (!self.paused) pthread_cond_broadcast(&self.came);
    pthread_mutex_unlock(&self.lock);
}

// A library that a task is in must not be taken down under it.
static void wait_at_exit(void)
{
    pthread_mutex_lock(&self.lock);
    self.stops = true;
    while (self.busy) pthread_cond_wait(&self.went, &self.lock);
    pthread_mutex_unlock(&self.lock);
}

// Has the end of the process wait before it takes down what was set up until now. Libraries have soon
// set up all they need.
static bool guard_exit(void)
{
    enum { ENOUGH = 1000 };
    return atomic_fetch_add(&self.asked, 1) >= ENOUGH || !atexit(wait_at_exit);
}

// The child of a fork has none of the threads, and what they were at stays the parent's.
static void forget_threads(void)
{
    pthread_mutex_init(&self.lock, NULL);
    pthread_cond_init(&self.came, NULL);
    pthread_cond_init(&self.went, NULL);
    self.first = self.last = NULL;
    self.threads = self.idle = self.busy = self.needs = 0;
    self.paused                                       = false;
    self.asked                                        = 0;
}

// One more thread, if all are busy. The lock is held.
static void add_thread(void)
{
    pthread_t      thread;
    pthread_attr_t attr;
    int            cores = tni_threads_default();
    if (self.idle || self.threads >= MOST_THREADS || self.threads >= cores) return;
    if (pthread_attr_init(&attr)) return;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (!pthread_create(&thread, &attr, serve, NULL)) self.threads++;
    pthread_attr_destroy(&attr);
}

static void append(task *t, bool first)
{
    t->next = first ? self.first : NULL;
    if (first) self.first = t;
    else if (self.last) self.last->next = t;
    else self.first = t;
    if (!t->next) self.last = t;
}

void tni_background_guard(void)
{
    if (!self.stops) guard_exit();
}

bool tni_background(void (*work)(void *arg), void *arg, bool first)
{
    task *t = malloc(sizeof *t);
    if (!t) return false;
    *t = (task){ work, arg, NULL };
    pthread_mutex_lock(&self.lock);
    if (!self.registered) self.registered = !pthread_atfork(NULL, NULL, forget_threads);
    bool ok = self.registered && guard_exit();
    if (ok) add_thread();
    ok = ok && self.threads;
    if (ok) append(t, first);
    else free(t);
    pthread_cond_signal(&self.came);
    pthread_mutex_unlock(&self.lock);
    return ok;
}
