// Background threads that take tasks from a queue of each kind, for work that no caller waits for,
// such as compiling.
//
// One mutex guards everything; tasks run without it. Threads are started on demand, never joined
// and live as long as the process, so what has to be right is the end: a library that a task is
// inside of (a compiler, the CUDA driver) must not be torn down under it. Two mechanisms:
// tni_background_need(false), called by the last cuda session that closes, waits for running tasks;
// otherwise an atexit handler does.
#include "base/background.h"

#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// At most as many threads as cores, and no more than 16: each compile keeps a core busy, and on a
// machine with many cores more of them at once compete for memory and disk rather than finish
// sooner.
enum { MOST_THREADS = 16 };

// A queued call of work(arg).
typedef struct task task;
struct task {
    void (*work)(void *arg);
    void *arg;
    task *next;
};

// Guarded by the lock. idle: threads waiting for a task; busy: threads running one; needs: users
// that asked for tasks to run (tni_background_need); paused: none is left.
static struct {
    pthread_mutex_t lock;
    pthread_cond_t  came, went;
    task           *first[TNI_TASK_KINDS], *last[TNI_TASK_KINDS];
    int             threads, idle, busy, needs;
    bool            registered, paused;
    atomic_bool     stops;
    atomic_int      asked;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER,
           .came = PTHREAD_COND_INITIALIZER,
           .went = PTHREAD_COND_INITIALIZER };

// Takes the first task off the first queue that has one; NULL if all are empty. The lock is held.
static task *next_task(void)
{
    int kind = 0;
    while (kind < TNI_TASK_KINDS && !self.first[kind]) kind++;
    if (kind == TNI_TASK_KINDS) return NULL;
    task *t          = self.first[kind];
    self.first[kind] = t->next;
    return t;
}

// The thread's loop. It never ends: an idle thread costs a stack.
static void *serve_tasks(void *unused)
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

// A count of users. The last one that leaves pauses the queue and waits for running tasks, so that
// no background thread is inside a library when the process ends; tasks not begun stay queued.
void tni_background_need(bool on)
{
    pthread_mutex_lock(&self.lock);
    self.needs += on ? 1 : -1;
    self.paused = self.needs == 0;
    while (self.paused && self.busy) pthread_cond_wait(&self.went, &self.lock);
    if (!self.paused) pthread_cond_broadcast(&self.came);
    pthread_mutex_unlock(&self.lock);
}

// Runs at exit: no new task begins, and those that run are waited for.
static void wait_at_exit(void)
{
    pthread_mutex_lock(&self.lock);
    self.stops = true;
    while (self.busy) pthread_cond_wait(&self.went, &self.lock);
    pthread_mutex_unlock(&self.lock);
}

// Registers wait_at_exit once more. Handlers run in reverse order of registration, and a library
// that a task calls registers its own on first use; so a handler registered after that runs before
// the library's. ENOUGH: by then libraries have set up everything, and each registration costs
// memory.
static bool guard_exit(void)
{
    enum { ENOUGH = 1000 };
    return atomic_fetch_add(&self.asked, 1) >= ENOUGH || !atexit(wait_at_exit);
}

// The fork handler of the child: it has none of the threads, and the queued tasks belong to the
// parent.
static void forget_threads(void)
{
    pthread_mutex_init(&self.lock, NULL);
    pthread_cond_init(&self.came, NULL);
    pthread_cond_init(&self.went, NULL);
    memset(self.first, 0, sizeof self.first);
    self.threads = self.idle = self.busy = self.needs = 0;
    self.paused                                       = false;
    self.asked                                        = 0;
}

// Starts one more thread unless one is idle. The lock is held. Failure is no error: other threads
// may serve the queue.
static void add_thread(void)
{
    pthread_t      thread;
    pthread_attr_t attr;
    int            cores = tni_threads_default();
    if (self.idle || self.threads >= MOST_THREADS || self.threads >= cores) return;
    if (pthread_attr_init(&attr)) return;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (!pthread_create(&thread, &attr, serve_tasks, NULL)) self.threads++;
    pthread_attr_destroy(&attr);
}

// Puts a task behind those of its kind: whoever gave them waits for the one that was given first.
// The lock is held.
static void push_task(task *t, tni_task_kind kind)
{
    if (self.first[kind]) self.last[kind]->next = t;
    else self.first[kind] = t;
    self.last[kind] = t;
}

void tni_background_guard(void)
{
    if (!self.stops) guard_exit();
}

// False only if no thread at all could be started, or memory is out: the caller then does the work
// itself.
bool tni_background(void (*work)(void *arg), void *arg, tni_task_kind kind)
{
    task *t = malloc(sizeof *t);
    if (!t) return false;
    *t = (task){ work, arg, NULL };
    pthread_mutex_lock(&self.lock);
    if (!self.registered) self.registered = !pthread_atfork(NULL, NULL, forget_threads);
    bool ok = self.registered && guard_exit();
    if (ok) add_thread();
    ok = ok && self.threads;
    if (ok) push_task(t, kind);
    else free(t);
    pthread_cond_signal(&self.came);
    pthread_mutex_unlock(&self.lock);
    return ok;
}
