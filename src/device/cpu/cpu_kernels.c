// The table of kernels, and the thread that compiles them.
//
// A plan's kernels that nobody had before become a job. One thread takes the jobs in order; it lives
// while there are any. A job stays first in the list while it is worked on, and what came of it is
// written into the table in one go: so a process that is forked in between has a list that is whole,
// and no thread; its next prepare starts one.
//
// A kernel that an earlier process compiled is taken from disk as it is met, by the thread that meets it:
// that takes no compiler, and a short program runs compiled code from its first step on.
#include "device/cpu/cpu_kernels.h"

#include "base/hash.h"
#include "device/cpu/cc.h"
#include "device/cpu/object.h"
#include "device/cpu/recall.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BUCKETS   = 4096,
    MOST      = 8192,  // kernels; those that come later are interpreted
    PER_JOB   = 64,    // kernels compiled by one call
    MISSED    = 4096,  // slots for kernels that are not on disk
    KEY_BYTES = 8 + 2 * TNI_MAX_BUFFERS + (2 + TNI_AXES) * TNI_MAX_ACCESSES + TNI_MAX_NUMBERS +
                14 * TNI_MAX_INS
};

typedef enum { COLD, QUEUED, COMPILED, FAILED } state;

// A kernel of the table, found by the bytes of its key. The table owns it. The copy of the kernel is
// there while it is cold or queued.
typedef struct entry entry;
struct entry {
    tni_cpu_code code;  // first: what the engine holds is the entry
    entry       *next;  // of the bucket
    tni_kernel  *kernel;
    uint64_t     hash;
    state        state;
    size_t       bytes;
    char         key[];
};

typedef tni_made made;

// Kernels to compile by one call. What was made stands beside them until it is published.
typedef struct job job;
struct job {
    job   *next;
    int    count;
    entry *entry[PER_JOB];
};

// The one table. `lock` guards everything but `cc` and `disk`, which belong to the thread while it
// runs, except what tni_cc_open filled in, and `look`, which never change. `loading` is held while the
// dynamic loader is at work, so that no process is forked then, and is taken before `lock`.
static struct {
    pthread_mutex_t lock, loading;
    pthread_cond_t  idle;  // the thread has ended
    entry          *bucket[BUCKETS];
    int             count;
    job            *first, **last;
    tni_cpu_counts  counts;

    bool     opened;    // the environment has been read
    bool     off;       // there is no compiler, or none that works
    bool     waits;     // prepare waits
    bool     stopping;  // the library is being unloaded
    bool     runs;      // the thread
    bool     joinable;
    tni_text why;  // why off

    tni_disk look;            // as disk, for who meets a kernel
    uint64_t missed[MISSED];  // hashes of kernels that are not there

    pthread_t thread;
    bool      asked;  // the compiler, for its name
    tni_cc    cc;
    tni_disk  disk;
} table = {
    .lock    = PTHREAD_MUTEX_INITIALIZER,
    .loading = PTHREAD_MUTEX_INITIALIZER,
    .idle    = PTHREAD_COND_INITIALIZER,
    .last    = &table.first,
};

// What a kernel has that is never compiled.
static entry interpreted = { .state = FAILED };

// ---- fork, exit --------------------------------------------------------------------------------

static void before_fork(void)
{
    pthread_mutex_lock(&table.loading);
    pthread_mutex_lock(&table.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&table.lock);
    pthread_mutex_unlock(&table.loading);
}

// The child has no thread. What the parent's was doing stays first in the list.
static void in_child(void)
{
    table.idle     = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    table.runs     = false;
    table.joinable = false;
    after_fork();
}

// Ends a compiler that is at work, and joins the thread, so that the library's code can go.
__attribute__((destructor)) static void stop_thread(void)
{
    pthread_mutex_lock(&table.lock);
    bool joinable  = table.joinable;
    table.stopping = true;
    table.joinable = false;
    atomic_store(&table.cc.runner.stop, true);
    pthread_mutex_unlock(&table.lock);
    if (joinable) pthread_join(table.thread, NULL);
}

// ---- compiling, on the thread ------------------------------------------------------------------

static char *write_source(entry *const *e, int n)
{
    char          name[PER_JOB][TNI_KERNEL_NAME];
    tni_emit_item item[PER_JOB];
    tni_heap      heap = tni_heap_default();
    for (int i = 0; i < n; i++) {
        tni_made_name(name[i], i);
        item[i] = (tni_emit_item){ .kernel = e[i]->kernel, .name = name[i] };
    }
    return tni_emit_program(&heap, &tni_dialect_c, tni_emit_c, n, item, false);
}

static bool find_functions(void *object, entry *const *e, made *m, int n)
{
    bool ok = true;
    for (int i = 0; i < n && ok; i++) ok = tni_made_find(object, i, e[i]->kernel->tails, &m[i]);
    return ok;
}

// Brings compiled code into the process and finds the functions of n kernels in it.
static bool load(const void *data, size_t bytes, entry *const *e, made *m, int n, tni_text *why)
{
    pthread_mutex_lock(&table.loading);
    void *object = tni_object_load(&table.cc.runner, data, bytes, why);
    bool  ok     = object && find_functions(object, e, m, n);
    if (object && !ok) {
        *why = tni_text_of("what the compiler made lacks a function");
        for (int i = 0; i < n; i++) m[i] = (made){ .run = NULL };
        tni_object_close(object);
    }
    pthread_mutex_unlock(&table.loading);
    return ok;
}

static bool compile_text(const char *source, entry *const *e, made *m, int n, tni_text *why)
{
    tni_disk_key key = {
        .kind     = "so",
        .source   = source,
        .options  = table.cc.options,
        .compiler = table.cc.name.s,
        .chip     = table.cc.chip,
    };
    size_t   bytes = 0;
    tni_text stale;
    void    *data  = tni_disk_find(&table.disk, &key, &bytes);
    bool     found = data && load(data, bytes, e, m, n, &stale);
    bool     ok    = found;
    if (!found) {
        free(data);
        data = tni_cc_compile(&table.cc, source, &bytes, why);
        ok   = data && load(data, bytes, e, m, n, why);
        if (ok) tni_disk_keep(&table.disk, &key, data, bytes);
    }
    tni_disk_hash text = tni_disk_hash_of(&key);
    for (int i = 0; i < n && ok; i++) {
        m[i].found = found;
        tni_recall_keep(&table.disk, &table.cc, e[i]->key, e[i]->bytes, text, i);
    }
    free(data);
    return ok;
}

static bool compile(entry *const *e, made *m, int n, tni_text *why)
{
    char *source = write_source(e, n);
    if (!source) {
        *why = tni_text_of("out of memory");
        return false;
    }
    bool     ok   = compile_text(source, e, m, n, why);
    tni_heap heap = tni_heap_default();
    tni_free(&heap, source);
    return ok;
}

// Whether the compiler can do anything at all.
static bool compiler_works(void)
{
    size_t   bytes;
    tni_text why;
    void    *data = tni_cc_compile(&table.cc, "int tenon_sample(void) { return 1; }", &bytes, &why);
    bool     ok   = data && load(data, bytes, NULL, NULL, 0, &why);
    free(data);
    return ok;
}

// Whether nothing more is to be compiled: the process ends, or the compiler has been waited for until it
// was ended. One that hangs would do so for every plan.
static bool is_over(void)
{
    return atomic_load(&table.cc.runner.stop) || atomic_load(&table.cc.runner.late);
}

// Where a text of several kernels is refused, each half is tried alone, so that one bad kernel does
// not keep the others from being compiled.
static void compile_halves(entry *const *e, made *m, int n, tni_text *why)
{
    if (is_over() || compile(e, m, n, why) || n == 1) return;
    compile_halves(e, m, n / 2, why);
    compile_halves(e + n / 2, m + n / 2, n - n / 2, why);
}

// Asks the compiler for its name, once. That it is done is said under the lock: a process that is
// forked before asks again.
static bool ask_compiler(tni_text *why)
{
    if (table.asked) return true;
    bool ok = tni_cc_find(&table.cc, why);
    pthread_mutex_lock(&table.lock);
    table.asked = ok;
    pthread_mutex_unlock(&table.lock);
    return ok;
}

// True where the compiler is of no use, with the reason.
static bool compile_job(const job *j, made *m, tni_text *why)
{
    if (!ask_compiler(why)) return true;
    if (compile(j->entry, m, j->count, why)) return false;
    if (is_over() || !compiler_works()) return true;
    compile_halves(j->entry, m, j->count, why);
    return is_over();
}

// ---- the thread --------------------------------------------------------------------------------

static void publish(entry *e, const made *m)
{
    e->state = m->run ? COMPILED : FAILED;
    free(e->kernel);
    e->kernel      = NULL;
    e->code.finish = m->finish;
    atomic_store_explicit(&e->code.run, m->run, memory_order_release);
    table.counts.queued--;
    if (!m->run) table.counts.failed++;
    else if (m->found) table.counts.found++;
    else table.counts.compiled++;
}

// Takes the first job from the list, with what was made of it. Under the lock.
static void settle(const made *m)
{
    job *j = table.first;
    for (int i = 0; i < j->count; i++) publish(j->entry[i], &m[i]);
    table.first = j->next;
    if (!table.first) table.last = &table.first;
    free(j);
}

static void give_up(void)
{
    static const made nothing[PER_JOB];
    while (table.first) settle(nothing);
}

static void *work(void *unused)
{
    pthread_mutex_lock(&table.lock);
    while (table.first && !table.stopping) {
        job     *j          = table.first;
        made     m[PER_JOB] = { 0 };
        tni_text why        = { "" };
        pthread_mutex_unlock(&table.lock);
        bool useless = compile_job(j, m, &why);
        pthread_mutex_lock(&table.lock);
        if (table.stopping) break;
        if (why.s[0]) table.counts.why = why;
        settle(m);
        if (!useless) continue;
        table.off = true;
        table.why = why;
        give_up();
    }
    table.runs = false;
    pthread_cond_broadcast(&table.idle);
    pthread_mutex_unlock(&table.lock);
    return unused;
}

// Joins a thread that has nothing left to do but to return.
static void join_ended(void)
{
    if (table.runs || !table.joinable) return;
    pthread_join(table.thread, NULL);
    table.joinable = false;
}

// Starts the thread where there is work and none. The signals of the program are for its own
// threads.
static void start_thread(void)
{
    if (table.runs || !table.first || table.stopping) return;
    join_ended();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    table.runs = table.joinable = pthread_create(&table.thread, NULL, work, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// Under the lock.
static void wait_idle(void)
{
    start_thread();
    while (table.runs && !table.stopping) pthread_cond_wait(&table.idle, &table.lock);
    join_ended();
}

void tni_cpu_kernels_wait(void)
{
    pthread_mutex_lock(&table.lock);
    wait_idle();
    pthread_mutex_unlock(&table.lock);
}

// ---- the table, under the lock -----------------------------------------------------------------

static void open_table(void)
{
    if (table.opened) return;
    const char *how = getenv("TN_COMPILE");
    table.opened    = true;
    table.waits     = how && !strcmp(how, "wait");
    tni_disk_open(&table.disk);
    table.look = table.disk;
    table.off  = !tni_cc_open(&table.cc, &table.why);
    if (!table.off && pthread_atfork(before_fork, after_fork, in_child) != 0) {
        table.off = true;
        table.why = tni_text_of("out of memory");
    }
}

// As much of a kernel as it uses.
static tni_kernel *copy_kernel(const tni_kernel *k)
{
    size_t      bytes = offsetof(tni_kernel, ins) + (size_t)k->nins * sizeof k->ins[0];
    tni_kernel *copy  = malloc(bytes);
    if (copy) memcpy(copy, k, bytes);
    return copy;
}

static entry *add_entry(const tni_kernel *k, uint64_t hash, const char *key, size_t bytes)
{
    const char *why;
    entry      *e = table.count < MOST ? malloc(sizeof *e + bytes) : NULL;
    if (!e) return NULL;
    *e = (entry){ .hash = hash, .bytes = bytes, .state = FAILED };
    if (tni_can_emit(k, &why)) {
        e->state  = COLD;
        e->kernel = copy_kernel(k);
        tni_emit_c_rows(k, e->code.rows);
        if (!e->kernel) {
            free(e);
            return NULL;
        }
    }
    memcpy(e->key, key, bytes);
    e->next = table.bucket[hash % BUCKETS];

    table.bucket[hash % BUCKETS] = e;
    table.count++;
    return e;
}

static entry *find_known(uint64_t hash, const char *key, size_t bytes)
{
    for (entry *e = table.bucket[hash % BUCKETS]; e; e = e->next)
        if (e->hash == hash && e->bytes == bytes && !memcmp(e->key, key, bytes)) return e;
    return NULL;
}

// The entry of a kernel; NULL where there is none and none can be added.
static entry *find_entry(const tni_kernel *k)
{
    char   key[KEY_BYTES];
    size_t bytes = tni_kernel_key(k, key, sizeof key);
    if (bytes > sizeof key) return NULL;
    uint64_t hash = tni_hash(key, bytes);
    entry   *e    = find_known(hash, key, bytes);
    return e || table.off ? e : add_entry(k, hash, key, bytes);
}

// A new job, last in the list.
static job *add_job(void)
{
    job *j = malloc(sizeof *j);
    if (!j) return NULL;
    j->next     = NULL;
    j->count    = 0;
    *table.last = j;
    table.last  = &j->next;
    return j;
}

// Kernels that are cold join the job, or a new one when it is full.
static void queue(entry *e, job **j)
{
    if (e->state != COLD) return;
    if (!*j || (*j)->count == PER_JOB) *j = add_job();
    if (!*j) return;
    (*j)->entry[(*j)->count++] = e;
    e->state                   = QUEUED;
    table.counts.queued++;
}

// ---- from disk ---------------------------------------------------------------------------------

// A kernel that is in the table, or is known not to be on disk, is not looked for.
static bool is_to_look_for(const tni_kernel *k, void **e)
{
    char   key[KEY_BYTES];
    size_t bytes = tni_kernel_key(k, key, sizeof key);
    *e           = NULL;
    if (bytes > sizeof key) return false;
    uint64_t  hash   = tni_hash(key, bytes);
    uint64_t *missed = &table.missed[hash % MISSED];
    if ((*e = find_known(hash, key, bytes)) != NULL || table.off || *missed == hash) return false;
    *missed = hash;
    return true;
}

static made look_for(const tni_kernel *k)
{
    char   key[KEY_BYTES];
    made   m;
    size_t bytes = tni_kernel_key(k, key, sizeof key);
    tni_recall(&table.look, &table.cc, key, bytes, k->tails, &m);
    return m;
}

// Puts a kernel that was found into the table, unless somebody had it compiled meanwhile.
static entry *add_found(const tni_kernel *k, const made *m)
{
    entry *e = find_entry(k);
    if (!e || e->state != COLD) return e;
    table.counts.queued++;
    publish(e, m);
    return e;
}

// What is found is loaded without the lock, so that nobody waits for the disk who needs nothing of it.
void tni_cpu_recall(void *session, int n, const tni_launch *const *first, void **entries)
{
    made *m = calloc((size_t)n, sizeof *m);
    (void)session;
    for (int i = 0; i < n; i++) entries[i] = NULL;
    if (!m) return;
    pthread_mutex_lock(&table.lock);
    open_table();
    for (int i = 0; i < n; i++) m[i].found = is_to_look_for(first[i]->kernel, &entries[i]);
    pthread_mutex_unlock(&table.lock);

    pthread_mutex_lock(&table.loading);
    for (int i = 0; i < n; i++)
        if (m[i].found) m[i] = look_for(first[i]->kernel);
    pthread_mutex_unlock(&table.loading);

    pthread_mutex_lock(&table.lock);
    for (int i = 0; i < n; i++)
        if (m[i].run) entries[i] = add_found(first[i]->kernel, &m[i]);
    pthread_mutex_unlock(&table.lock);
    free(m);
}

// Never fails: a kernel that cannot be compiled, or kept, is interpreted.
tn_status tni_cpu_prepare(void *session, int n, const tni_launch *const *first, void **entries,
                          bool wait, tni_text *why)
{
    (void)wait, (void)why;
    job *j = NULL;
    tni_cpu_recall(session, n, first, entries);
    pthread_mutex_lock(&table.lock);
    open_table();
    for (int i = 0; i < n; i++) {
        entry *e   = find_entry(first[i]->kernel);
        entries[i] = e ? e : &interpreted;
        if (e) queue(e, &j);
    }
    start_thread();
    if (table.waits) wait_idle();
    pthread_mutex_unlock(&table.lock);
    return TN_OK;
}

void tni_cpu_kernels_limit(int ms)
{
    pthread_mutex_lock(&table.lock);
    open_table();
    table.cc.runner.limit_ms = ms;
    pthread_mutex_unlock(&table.lock);
}

// ---- for people --------------------------------------------------------------------------------

tni_cpu_counts tni_cpu_kernels_counts(void)
{
    pthread_mutex_lock(&table.lock);
    tni_cpu_counts c = table.counts;
    c.off            = table.off;
    if (table.off) c.why = table.why;
    pthread_mutex_unlock(&table.lock);
    return c;
}

bool tni_cpu_compiler(tni_text *detail)
{
    tni_cc cc;
    bool   ok = tni_cc_open(&cc, detail);
    if (!ok) return false;
    ok = tni_cc_find(&cc, detail);
    if (ok) *detail = tni_text_of("%s, %s", cc.path, cc.name.s);
    tni_cc_close(&cc);
    return ok;
}
