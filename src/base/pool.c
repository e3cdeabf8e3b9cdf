// The thread pool's protocol.
//
// All of a job's life is in one atomic word: the job's number, whether it still takes helpers, how
// many joined it and how many of those are still working. A worker joins with a compare-and-swap on
// that word, so it can never join a job that has ended, and reads the job's fields only after
// joining. The caller takes items like every helper, then closes the job and waits for the helpers
// that are still inside an item; helpers that slept through the job are never waited for.
//
// So a small job costs its caller a few atomic operations and no lock if no worker is asleep, which
// is what makes it worth splitting kernels of a few microseconds.
#include "base/pool.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

// The word: number of the job (high 32 bits), OPEN, helpers joined (15 bits), helpers working (16
// bits). TNI_MAX_THREADS is far below 2^15, so neither count can overflow into its neighbour.
#define JOB     (UINT64_C(1) << 32)
#define OPEN    (UINT64_C(1) << 31)
#define JOINED  (UINT64_C(1) << 16)
#define WORKING (UINT64_C(1))

// CACHE_LINE: two lines of 64 bytes, since x86 prefetches lines in pairs. SPIN_NANOSECONDS: how
// long a thread spins before it sleeps. Waking a thread takes 5 to 50 microseconds, most of all on
// a virtual machine, and a step of a small network is a sequence of jobs of 10 to 100 with work of
// the caller in between: threads should stay awake from job to job and from step to step.
// POLLS_PER_CLOCK_READ: how often the word is polled between two readings of the clock. WAKES: how
// many sleepers a thread wakes itself.
enum { CACHE_LINE = 128, SPIN_NANOSECONDS = 200000, POLLS_PER_CLOCK_READ = 16, WAKES = 2 };

// The one pool of the process. Whoever sets `busy` owns the job's plain fields and the list of
// workers until it clears it; helpers read the job's fields only between joining and leaving.
// `lock` guards the two conditions alone. Invariant: while busy is clear, no job is open and no
// helper is working.
static struct {
    atomic_bool busy;
    atomic_bool stop;  // set once, when the library is unloaded
    atomic_int  sleepers;
    atomic_int  core;   // the last caller's
    atomic_bool spins;  // whether every thread of the pool can have a core of its own

    tni_task  *task;  // the job
    void      *arg;
    int64_t    items;
    atomic_int helpers;  // how many may join
    atomic_int to_wake;  // sleepers that the job still wants

    int       workers;   // started so far
    int       limit;     // never more than this: lowered when the system refuses a thread
    bool      prepared;  // whether the fork handler is in place
    pthread_t threads[TNI_MAX_THREADS];

    pthread_mutex_t lock;
    pthread_cond_t  wake;  // a new job, or stop
    pthread_cond_t  done;  // the last helper left a closed job

    _Alignas(CACHE_LINE) _Atomic uint64_t word;
    _Alignas(CACHE_LINE) _Atomic int64_t next;  // the first item not taken yet
} pool = {
    .limit = TNI_MAX_THREADS - 1,
    .lock  = PTHREAD_MUTEX_INITIALIZER,
    .wake  = PTHREAD_COND_INITIALIZER,
    .done  = PTHREAD_COND_INITIALIZER,
};

// Set in workers, and in a caller while its job runs: a job started inside a task runs serially,
// since its threads are all taken.
static _Thread_local bool in_task;

static uint64_t job_number(uint64_t word)
{
    return word / JOB;
}

static int joined_count(uint64_t word)
{
    return (int)(word / JOINED % (OPEN / JOINED));
}

static int working_count(uint64_t word)
{
    return (int)(word % JOINED);
}

#if defined(__x86_64__) || defined(__i386__)
static void pause_briefly(void)
{
    __builtin_ia32_pause();
}
#elif defined(__aarch64__)
// "yield" does nothing on most cores; isb takes about as long as x86's pause.
static void pause_briefly(void)
{
    __asm__ volatile("isb" ::: "memory");
}
#else
static void pause_briefly(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}
#endif

// The monotonic clock: the wall clock may jump.
static int64_t nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#if defined(__linux__)
static long cores_allowed(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return sysconf(_SC_NPROCESSORS_ONLN);
}

// The one this thread runs on.
static int current_core(void)
{
    return sched_getcpu();
}
#else
static long cores_allowed(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN);
}

// Unknown on this system: a different number each time, so no worker believes it shares the
// caller's core.
static int current_core(void)
{
    static atomic_int next;
    return atomic_fetch_add_explicit(&next, 1, memory_order_relaxed);
}
#endif

// The system's answer comes from a file, which takes as long as a small product.
int tni_cores(void)
{
    static atomic_int known;
    int               n = atomic_load_explicit(&known, memory_order_relaxed);
    if (n) return n;
    long cores = sysconf(_SC_NPROCESSORS_CONF);
    n          = cores < 1 ? 1 : cores > INT_MAX ? INT_MAX : (int)cores;
    atomic_store_explicit(&known, n, memory_order_relaxed);
    return n;
}

// The affinity mask counts, not the machine: a container or taskset may allow fewer cores.
int tni_threads_default(void)
{
    const char *text = getenv("TN_NUM_THREADS");
    long        n    = text ? strtol(text, NULL, 10) : 0;
    if (n < 1) n = cores_allowed();
    if (n < 1) n = 1;
    return n < TNI_MAX_THREADS ? (int)n : TNI_MAX_THREADS;
}

// Takes items until none is left. Relaxed order suffices: joining and leaving the job order
// everything else.
static void take_items(tni_task *task, void *arg, int64_t items, int worker)
{
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed);
        if (i >= items) return;
        task(arg, i, worker);
    }
}

// All items on this thread, as worker 0. in_task is restored, since run_serial may run inside a
// task.
static void run_serial(int64_t items, tni_task *task, void *arg)
{
    bool nested = in_task;
    in_task     = true;
    for (int64_t i = 0; i < items; i++) task(arg, i, 0);
    in_task = nested;
}

// Conditions to spin for: another job than the one seen; no helper inside the job.
static bool is_new_job(uint64_t word, uint64_t seen)
{
    return job_number(word) != seen;
}

static bool has_no_helper(uint64_t word, uint64_t unused)
{
    (void)unused;
    return working_count(word) == 0;
}

// Spins for a short while; returns whether the condition came true. Not where threads share cores:
// there it would take time from the thread it waits for.
static bool spin_until(bool wanted(uint64_t word, uint64_t seen), uint64_t seen)
{
    if (!atomic_load_explicit(&pool.spins, memory_order_relaxed)) return false;
    int64_t end = nanoseconds() + SPIN_NANOSECONDS;
    do {
        for (int i = 0; i < POLLS_PER_CLOCK_READ; i++) {
            if (wanted(atomic_load(&pool.word), seen)) return true;
            pause_briefly();
        }
    } while (nanoseconds() < end);
    return false;
}

// Wakes WAKES of the sleepers that the job still wants, each of which does the same: waking is the
// expensive part of a small job. The lock is held.
static void wake_some(void)
{
    for (int i = 0; i < WAKES && atomic_fetch_sub(&pool.to_wake, 1) > 0; i++)
        pthread_cond_signal(&pool.wake);
}

// Waits until the word shows another job than `seen`, or stop is set.
static void wait_for_job(uint64_t seen)
{
    // Where other programs have taken the other cores, a worker is woken on its caller's core:
    // it must not spin there while the caller waits for it to go away.
    if (current_core() != atomic_load_explicit(&pool.core, memory_order_relaxed) &&
        spin_until(is_new_job, seen))
        return;
    // Sleepers is raised before the word is read again, and the caller writes the word before it
    // reads sleepers, all in one total order: one of the two always sees the other.
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.sleepers, 1);
    while (job_number(atomic_load(&pool.word)) == seen && !atomic_load(&pool.stop))
        pthread_cond_wait(&pool.wake, &pool.lock);
    atomic_fetch_sub(&pool.sleepers, 1);
    wake_some();
    pthread_mutex_unlock(&pool.lock);
}

// Joins the open job and returns this helper's number in it, or 0 when there is none to join.
// *seen becomes the number of the job looked at.
static int join_job(uint64_t *seen)
{
    uint64_t word = atomic_load(&pool.word);
    for (;;) {
        *seen = job_number(word);
        if (!(word & OPEN) || joined_count(word) >= atomic_load(&pool.helpers)) return 0;
        if (atomic_compare_exchange_weak(&pool.word, &word, word + JOINED + WORKING))
            return joined_count(word) + 1;
    }
}

// The last helper of a closed job wakes the caller. While the job is open the caller is taking
// items itself.
static void leave_job(void)
{
    uint64_t word = atomic_fetch_sub(&pool.word, WORKING) - WORKING;
    if ((word & OPEN) || working_count(word) > 0) return;
    pthread_mutex_lock(&pool.lock);
    pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.lock);
}

// A worker's life: join the open job, take items, leave, wait for the next. It ends when the
// library is unloaded.
static void *worker_main(void *unused)
{
    uint64_t seen = 0;
    in_task       = true;
    while (!atomic_load(&pool.stop)) {
        int number = join_job(&seen);
        if (number == 0) {
            wait_for_job(seen);
            continue;
        }
        take_items(pool.task, pool.arg, pool.items, number);
        leave_job();
        wait_for_job(seen);
    }
    return unused;
}

// The fork handler of the child: a fork copies only the calling thread, so the child has no
// workers, and a job in progress belongs to the parent. Locks are set up anew, as another thread
// may have held them.
static void forget_workers(void)
{
    pool.lock    = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.wake    = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.done    = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool.workers = 0;
    pool.limit   = TNI_MAX_THREADS - 1;
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.word, 0);
    atomic_store(&pool.busy, false);
}

// Starts workers until there are `wanted`, or as many as the system allows. Workers start with all
// signals blocked: the program's signals are for its own threads.
static void start_workers(int wanted)
{
    if (wanted > pool.limit) wanted = pool.limit;
    if (pool.workers >= wanted || atomic_load(&pool.stop)) return;
    if (!pool.prepared) pool.prepared = pthread_atfork(NULL, NULL, forget_workers) == 0;

    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < wanted) {
        if (pthread_create(&pool.threads[pool.workers], NULL, worker_main, NULL) != 0) {
            pool.limit = pool.workers;
            break;
        }
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    atomic_store(&pool.spins, pool.workers < cores_allowed());
}

// Begins to wake as many sleepers as the job wants beyond the workers that are awake.
static void wake_workers(int helpers)
{
    int asleep = atomic_load(&pool.sleepers);
    int wanted = helpers - (pool.workers - asleep);
    if (asleep == 0 || wanted <= 0) return;

    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.to_wake, wanted);
    wake_some();
    pthread_mutex_unlock(&pool.lock);
}

// The fields are written before the word, and the word is what lets helpers in: the store to it
// publishes them.
static void open_job(int helpers, int64_t items, tni_task *task, void *arg)
{
    pool.task  = task;
    pool.arg   = arg;
    pool.items = items;
    atomic_store_explicit(&pool.helpers, helpers, memory_order_relaxed);
    atomic_store_explicit(&pool.core, current_core(), memory_order_relaxed);
    atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
    atomic_store(&pool.word, (job_number(atomic_load(&pool.word)) + 1) * JOB | OPEN);
    wake_workers(helpers);
}

// Lets no more helpers in and waits for those inside, first spinning, then asleep.
static void close_job(void)
{
    uint64_t word = atomic_fetch_and(&pool.word, ~OPEN) & ~OPEN;
    if (working_count(word) == 0 || spin_until(has_no_helper, 0)) return;
    pthread_mutex_lock(&pool.lock);
    while (working_count(atomic_load(&pool.word)) > 0) pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

// Runs serially when a split cannot pay or cannot happen: one thread, inside a task, or while
// another context's job has the pool. No result depends on which of these it was.
void tni_parallel(int threads, int64_t items, tni_task *task, void *arg)
{
    if (threads > TNI_MAX_THREADS) threads = TNI_MAX_THREADS;
    if (threads > items) threads = (int)items;
    if (threads <= 1 || in_task || atomic_exchange(&pool.busy, true)) {
        run_serial(items, task, arg);
        return;
    }
    in_task = true;
    start_workers(threads - 1);
    open_job(threads - 1, items, task, arg);
    take_items(task, arg, items, 0);
    close_job();
    in_task = false;
    atomic_store(&pool.busy, false);
}

// Joins the workers as the library is unloaded, so that their stacks are freed and its code can go.
// A process that exits from inside a task leaves them alone: one of them would be waiting for
// itself.
__attribute__((destructor)) static void stop_workers(void)
{
    if (in_task || atomic_exchange(&pool.busy, true)) return;
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.stop, true);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < pool.workers; i++) pthread_join(pool.threads[i], NULL);
    pool.workers = 0;
    atomic_store(&pool.busy, false);
}
