// The table of kernels, and the thread that compiles them.
//
// An entry's states: COLD, in the table but in no job yet; QUEUED, in a job; COMPILED or FAILED,
// for good. recall looks for compiled code on disk and makes no entry otherwise; prepare makes
// entries and queues the cold ones. Whatever the state, a launch works: it runs compiled code if
// the entry has it, and interprets the kernel if not.
//
// The kernels of a plan that are new become a job. One thread takes the jobs in order and lives
// while there are any. A job stays first in the list while it is worked on, and its results are
// written to the table in one go. So a process that is forked in between inherits a consistent list
// without a thread; its next prepare starts one, which compiles the job again.
//
// A kernel that an earlier process compiled is loaded from disk when it is met, by the thread that
// meets it: that needs no compiler, and a short program runs compiled code from its first step on.
#include "device/cpu/cpu_kernels.h"

#include "base/hash.h"
#include "device/cpu/cc.h"
#include "device/cpu/object.h"
#include "device/cpu/kernel_cache.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    // Kernels of a process, a bound on memory, as entries are never freed: later kernels are
    // interpreted. The hash table has half as many buckets, so that chains stay short.
    MOST_KERNELS = 8192,
    BUCKETS      = 4096,
    PER_JOB     = 64,  // kernels compiled as one text: the compiler is started once for all of them
    NOT_ON_DISK = 4096,  // slots for the hashes of kernels that the disk does not have
    KEY_BYTES   = 8 + 2 * TNI_MAX_BUFFERS + (2 + TNI_AXES) * TNI_MAX_ACCESSES + TNI_MAX_NUMBERS +
                14 * TNI_MAX_INS + sizeof(tni_tuning)
};

typedef enum { COLD, QUEUED, COMPILED, FAILED } entry_state;

// A kernel of the table, found by the bytes of its key. Owned by the table, which never frees it.
// Invariant: `kernel`, a copy for the compiler, is set while the entry is COLD or QUEUED, and NULL
// from then on.
typedef struct entry entry;
struct entry {
    tni_cpu_code code;  // first: what the engine holds is the entry
    entry       *next;  // of the bucket
    tni_kernel  *kernel;
    tni_tuning   settings;  // of the text
    uint64_t     hash;
    entry_state  state;
    size_t       bytes;
    char         key[];
};

// Kernels that are compiled as one text.
typedef struct compile_job compile_job;
struct compile_job {
    compile_job *next;
    int          count;
    entry       *entry[PER_JOB];
};

// The one table. `lock` guards everything except `cc` and `disk`, which belong to the thread while
// it runs, and except what never changes after open_table: `recall_disk` and the fields of `cc`
// that tni_cc_open filled in. `loader_lock` is held while the dynamic loader works, so that no
// process is forked meanwhile. Order: loader_lock before lock.
static struct {
    pthread_mutex_t lock, loader_lock;
    pthread_cond_t  idle;  // the thread has ended
    entry          *bucket[BUCKETS];
    int             count;
    compile_job    *first, **last;  // the list of jobs
    tni_cpu_counts  counts;

    bool     opened;    // the environment was read
    bool     off;       // compiling is off: there is no compiler, or it does not work
    bool     waits;     // prepare waits
    bool     stopping;  // the library is being unloaded
    bool     runs;      // the thread exists and has not ended
    bool     joinable;  // the thread was started and not joined
    tni_text why;       // why off

    tni_disk recall_disk;  // a copy of disk for tni_cpu_recall, which runs on any thread
    // [hash % NOT_ON_DISK]: the hash of a kernel that was looked for on disk in vain
    uint64_t not_on_disk[NOT_ON_DISK];

    pthread_t thread;
    bool      asked;  // tni_cc_find has succeeded
    tni_cc    cc;
    tni_disk  disk;
} table = {
    .lock        = PTHREAD_MUTEX_INITIALIZER,
    .loader_lock = PTHREAD_MUTEX_INITIALIZER,
    .idle        = PTHREAD_COND_INITIALIZER,
    .last        = &table.first,
};

// The entry of every kernel that has none of its own: never compiled.
static entry interpreted = { .state = FAILED };

// ---- fork, exit --------------------------------------------------------------------------------

// fork copies only the calling thread. Taking both locks before it means that no other thread is
// inside the dynamic loader, whose own lock the child could never take, nor halfway through a
// change of the table.
static void before_fork(void)
{
    pthread_mutex_lock(&table.loader_lock);
    pthread_mutex_lock(&table.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&table.lock);
    pthread_mutex_unlock(&table.loader_lock);
}

// The child has no compiling thread. The job that the parent's thread was working on is still first
// in the list.
static void in_forked_child(void)
{
    table.idle     = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    table.runs     = false;
    table.joinable = false;
    after_fork();
}

// Runs when the library is unloaded or the process exits: ends a running compiler and joins the
// thread, so that no thread executes code that is gone.
__attribute__((destructor)) static void stop_compile_thread(void)
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

// Returns the C text of n kernels, tenon_kernel_0 to tenon_kernel_(n-1), with the prelude once.
static char *write_source(entry *const *e, int n)
{
    char          name[PER_JOB][TNI_KERNEL_NAME];
    tni_emit_item item[PER_JOB];
    tni_heap      heap = tni_heap_default();
    for (int i = 0; i < n; i++) {
        tni_cpu_function_name(name[i], i);
        item[i] = (tni_emit_item){ .kernel = e[i]->kernel,
                                   .name   = name[i],
                                   .opts   = &e[i]->settings };
    }
    tni_dialect d = tni_cpu_dialect();
    return tni_emit_program(&heap, &d, tni_emit_c, n, item, false);
}

// Finds the functions of n kernels in an object; all of them or none count.
static bool find_kernel_functions(void *object, entry *const *e, tni_cpu_functions *m, int n)
{
    bool ok = true;
    for (int i = 0; i < n && ok; i++)
        ok = tni_cpu_functions_find(object, i, e[i]->kernel->tails, &m[i]);
    return ok;
}

// Loads compiled code into the process and finds the functions of n kernels in it.
static bool load_object(const void *data, size_t bytes, entry *const *e, tni_cpu_functions *m,
                        int n, tni_text *why)
{
    pthread_mutex_lock(&table.loader_lock);
    void *object = tni_object_load(&table.cc.runner, data, bytes, why);
    bool  ok     = object && find_kernel_functions(object, e, m, n);
    if (object && !ok) {
        *why = tni_text_of("the compiled object lacks a function");
        for (int i = 0; i < n; i++) m[i] = (tni_cpu_functions){ .run = NULL };
        tni_object_close(object);
    }
    pthread_mutex_unlock(&table.loader_lock);
    return ok;
}

// Gets the object of a text: from disk, if it is stored under this text, these options, this
// compiler and this chip; else by compiling it. Stored bytes that do not load are compiled again.
// Each kernel also gets its own small file (kernel_cache.h), so that the next process finds it
// without printing the text.
static bool compile_source(const char *source, entry *const *e, tni_cpu_functions *m, int n,
                           tni_text *why)
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
    bool     found = data && load_object(data, bytes, e, m, n, &stale);
    bool     ok    = found;
    if (!found) {
        free(data);
        data = tni_cc_compile(&table.cc, source, &bytes, why);
        ok   = data && load_object(data, bytes, e, m, n, why);
        if (ok) tni_disk_keep(&table.disk, &key, data, bytes);
    }
    tni_disk_hash text = tni_disk_hash_of(&key);
    for (int i = 0; i < n && ok; i++) {
        m[i].found = found;
        tni_kernel_cache_keep(&table.disk, &table.cc, e[i]->key, e[i]->bytes, text, i);
    }
    free(data);
    return ok;
}

static bool compile_kernels(entry *const *e, tni_cpu_functions *m, int n, tni_text *why)
{
    char *source = write_source(e, n);
    if (!source) {
        *why = tni_text_of("out of memory");
        return false;
    }
    bool     ok   = compile_source(source, e, m, n, why);
    tni_heap heap = tni_heap_default();
    tni_free(&heap, source);
    return ok;
}

// Returns whether the compiler can compile anything at all: distinguishes a bad kernel from a bad
// compiler (no headers, no linker, a full disk).
static bool compiler_works(void)
{
    size_t   bytes;
    tni_text why;
    void    *data = tni_cc_compile(&table.cc, "int tenon_sample(void) { return 1; }", &bytes, &why);
    bool     ok   = data && load_object(data, bytes, NULL, NULL, 0, &why);
    free(data);
    return ok;
}

// Returns whether nothing more is to be compiled: the process ends, or the compiler was ended
// because it hung, which it would do again.
static bool should_stop(void)
{
    return atomic_load(&table.cc.runner.stop) || atomic_load(&table.cc.runner.late);
}

// Compiles the halves of a text that the compiler refused, and so on, so that one bad kernel does
// not keep the others from being compiled: about 2 log2(n) calls for one bad kernel in n.
static void compile_halves(entry *const *e, tni_cpu_functions *m, int n, tni_text *why)
{
    if (should_stop() || compile_kernels(e, m, n, why) || n == 1) return;
    compile_halves(e, m, n / 2, why);
    compile_halves(e + n / 2, m + n / 2, n - n / 2, why);
}

// Asks the compiler for its name and target, once. `asked` is set under the lock: a process that is
// forked before that asks again.
static bool ask_compiler(tni_text *why)
{
    if (table.asked) return true;
    bool ok = tni_cc_find(&table.cc, why);
    pthread_mutex_lock(&table.lock);
    table.asked = ok;
    pthread_mutex_unlock(&table.lock);
    return ok;
}

// Compiles a job. Returns true, with the reason, if the compiler is of no use.
static bool run_job(const compile_job *j, tni_cpu_functions *m, tni_text *why)
{
    if (!ask_compiler(why)) return true;
    if (compile_kernels(j->entry, m, j->count, why)) return false;
    if (should_stop() || !compiler_works()) return true;
    compile_halves(j->entry, m, j->count, why);
    return should_stop();
}

// ---- the thread --------------------------------------------------------------------------------

// Writes the result into an entry. run is stored last, with release order, because launches read it
// without the lock: see tni_cpu_launch.
static void publish_entry(entry *e, const tni_cpu_functions *m)
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

// Removes the first job from the list and publishes its results. Under the lock.
static void finish_job(const tni_cpu_functions *m)
{
    compile_job *j = table.first;
    for (int i = 0; i < j->count; i++) publish_entry(j->entry[i], &m[i]);
    table.first = j->next;
    if (!table.first) table.last = &table.first;
    free(j);
}

// Empties the list after the compiler proved useless: all remaining kernels are interpreted.
static void fail_all_jobs(void)
{
    static const tni_cpu_functions nothing[PER_JOB];
    while (table.first) finish_job(nothing);
}

// The thread: compiles jobs without the lock, publishes results under it, and ends when the list is
// empty. A thread that slept between jobs would have to be ended at exit and after fork; starting
// one costs little beside a compiler.
static void *compile_jobs(void *unused)
{
    pthread_mutex_lock(&table.lock);
    while (table.first && !table.stopping) {
        compile_job      *j          = table.first;
        tni_cpu_functions m[PER_JOB] = { 0 };
        tni_text          why        = { "" };
        pthread_mutex_unlock(&table.lock);
        bool useless = run_job(j, m, &why);
        pthread_mutex_lock(&table.lock);
        if (table.stopping) break;
        if (why.s[0]) table.counts.why = why;
        finish_job(m);
        if (!useless) continue;
        table.off = true;
        table.why = why;
        fail_all_jobs();
    }
    table.runs = false;
    pthread_cond_broadcast(&table.idle);
    pthread_mutex_unlock(&table.lock);
    return unused;
}

// Joins a thread that has nothing left to do but return.
static void join_compile_thread(void)
{
    if (table.runs || !table.joinable) return;
    pthread_join(table.thread, NULL);
    table.joinable = false;
}

// Starts the thread if there are jobs and no thread. It blocks all signals, so that the program's
// signals are delivered to its own threads.
static void start_compile_thread(void)
{
    if (table.runs || !table.first || table.stopping) return;
    join_compile_thread();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    table.runs = table.joinable = pthread_create(&table.thread, NULL, compile_jobs, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// Waits until the thread has ended. Under the lock.
static void wait_idle(void)
{
    start_compile_thread();
    while (table.runs && !table.stopping) pthread_cond_wait(&table.idle, &table.lock);
    join_compile_thread();
}

void tni_cpu_kernels_wait(void)
{
    pthread_mutex_lock(&table.lock);
    wait_idle();
    pthread_mutex_unlock(&table.lock);
}

// ---- the table, under the lock -----------------------------------------------------------------

// Reads the environment at the first use, not from a thread: getenv is not safe beside a setenv of
// the program.
static void open_table(void)
{
    if (table.opened) return;
    const char *how = getenv("TN_COMPILE");
    table.opened    = true;
    table.waits     = how && !strcmp(how, "wait");
    tni_disk_open(&table.disk);
    table.recall_disk = table.disk;
    table.off         = !tni_cc_open(&table.cc, &table.why);
    if (!table.off && pthread_atfork(before_fork, after_fork, in_forked_child) != 0) {
        table.off = true;
        table.why = tni_text_of("out of memory");
    }
}

// Returns a copy of a kernel, only of the instructions that it has: plans may be freed before the
// thread gets to it.
static tni_kernel *copy_kernel(const tni_kernel *k)
{
    size_t      bytes = offsetof(tni_kernel, ins) + (size_t)k->nins * sizeof k->ins[0];
    tni_kernel *copy  = malloc(bytes);
    if (copy) memcpy(copy, k, bytes);
    return copy;
}

// A kernel with the text that some settings make.
typedef struct {
    const tni_kernel *kernel;
    tni_tuning        settings;
} kernel_text;

static kernel_text text_by_rule(const tni_kernel *k)
{
    return (kernel_text){ .kernel = k };
}

// Writes the key of an entry: the kernel's and, if they are not the rule's, the settings of its
// text. Returns its bytes, more than KEY_BYTES if there is none.
static size_t key_of(const kernel_text *k, char key[KEY_BYTES])
{
    static const tni_tuning rule;
    size_t                  bytes = tni_kernel_key(k->kernel, key, KEY_BYTES);
    if (!memcmp(&k->settings, &rule, sizeof rule)) return bytes;
    if (bytes + sizeof rule <= KEY_BYTES) memcpy(key + bytes, &k->settings, sizeof rule);
    return bytes + sizeof rule;
}

// Adds a kernel to the table: COLD, or FAILED if no C text exists for it. NULL if the table is full
// or memory is out.
static entry *add_entry(const kernel_text *t, uint64_t hash, const char *key, size_t bytes)
{
    const tni_kernel *k = t->kernel;
    const char       *why;
    entry            *e = table.count < MOST_KERNELS ? malloc(sizeof *e + bytes) : NULL;
    if (!e) return NULL;
    *e = (entry){ .hash = hash, .bytes = bytes, .state = FAILED, .settings = t->settings };
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

static entry *find_by_key(uint64_t hash, const char *key, size_t bytes)
{
    for (entry *e = table.bucket[hash % BUCKETS]; e; e = e->next)
        if (e->hash == hash && e->bytes == bytes && !memcmp(e->key, key, bytes)) return e;
    return NULL;
}

// Returns the entry of a kernel; NULL if it has none and none can be added.
static entry *find_or_add_entry(const kernel_text *k)
{
    char   key[KEY_BYTES];
    size_t bytes = key_of(k, key);
    if (bytes > sizeof key) return NULL;
    uint64_t hash = tni_hash(key, bytes);
    entry   *e    = find_by_key(hash, key, bytes);
    return e || table.off ? e : add_entry(k, hash, key, bytes);
}

// A new job, last in the list.
static compile_job *add_job(void)
{
    compile_job *j = malloc(sizeof *j);
    if (!j) return NULL;
    j->next     = NULL;
    j->count    = 0;
    *table.last = j;
    table.last  = &j->next;
    return j;
}

// Adds a cold kernel to the job, or to a new one if that is full.
static void queue_entry(entry *e, compile_job **j)
{
    if (e->state != COLD) return;
    if (!*j || (*j)->count == PER_JOB) *j = add_job();
    if (!*j) return;
    (*j)->entry[(*j)->count++] = e;
    e->state                   = QUEUED;
    table.counts.queued++;
}

// Returns the last job, if the thread has not begun with it: candidates that are expected one after
// the other are compiled together.
static compile_job *last_waiting_job(void)
{
    compile_job *j = table.first;
    while (j && j->next) j = j->next;
    return j == table.first ? NULL : j;
}

// ---- from disk ---------------------------------------------------------------------------------

// Returns whether a kernel has to be looked for on disk: not if it is in the table, whose entry
// goes to *e, or was looked for before. not_on_disk is a lossy cache: a collision only costs
// another look.
static bool should_look_on_disk(const kernel_text *k, void **e)
{
    char   key[KEY_BYTES];
    size_t bytes = key_of(k, key);
    *e           = NULL;
    if (bytes > sizeof key) return false;
    uint64_t  hash        = tni_hash(key, bytes);
    uint64_t *not_on_disk = &table.not_on_disk[hash % NOT_ON_DISK];
    if ((*e = find_by_key(hash, key, bytes)) != NULL || table.off || *not_on_disk == hash)
        return false;
    *not_on_disk = hash;
    return true;
}

// Looks for a kernel on disk and loads it if it is there. Without `lock`, under `loader_lock`.
static tni_cpu_functions find_on_disk(const kernel_text *k)
{
    char              key[KEY_BYTES];
    tni_cpu_functions m;
    size_t            bytes = key_of(k, key);
    tni_kernel_cache_find(&table.recall_disk, &table.cc, key, bytes, k->kernel->tails, &m);
    return m;
}

// Adds a kernel that was found on disk, unless another thread had it compiled meanwhile.
static entry *add_found(const kernel_text *k, const tni_cpu_functions *m)
{
    entry *e = find_or_add_entry(k);
    if (!e || e->state != COLD) return e;
    table.counts.queued++;
    publish_entry(e, m);
    return e;
}

// In three steps, so that disk and loader are used without the lock: other contexts need not wait
// for the disk.
static void recall_texts(int n, const kernel_text *k, void **entries)
{
    tni_cpu_functions *m = calloc((size_t)n, sizeof *m);
    for (int i = 0; i < n; i++) entries[i] = NULL;
    if (!m) return;
    pthread_mutex_lock(&table.lock);
    open_table();
    for (int i = 0; i < n; i++) m[i].found = should_look_on_disk(&k[i], &entries[i]);
    pthread_mutex_unlock(&table.lock);

    pthread_mutex_lock(&table.loader_lock);
    for (int i = 0; i < n; i++)
        if (m[i].found) m[i] = find_on_disk(&k[i]);
    pthread_mutex_unlock(&table.loader_lock);

    pthread_mutex_lock(&table.lock);
    for (int i = 0; i < n; i++)
        if (m[i].run) entries[i] = add_found(&k[i], &m[i]);
    pthread_mutex_unlock(&table.lock);
    free(m);
}

void tni_cpu_recall(void *session, int n, const tni_launch *const *first, void **entries)
{
    kernel_text *k = calloc((size_t)n, sizeof *k);
    for (int i = 0; i < n; i++) entries[i] = NULL;
    for (int i = 0; k && i < n; i++) k[i] = text_by_rule(first[i]->kernel);
    if (k) recall_texts(n, k, entries);
    for (int i = 0; i < n; i++)
        if (entries[i]) tni_cpu_retuned(session, entries[i], first[i]);
    free(k);
}

// Looks in the table, then on disk, and queues the kernel if it is in neither.
const tni_cpu_code *tni_cpu_variant(const tni_kernel *k, const tni_tuning *t, bool wait)
{
    kernel_text text = { .kernel = k, .settings = tni_emit_c_settings(t) };
    void       *found;
    recall_texts(1, &text, &found);
    pthread_mutex_lock(&table.lock);
    compile_job *j = last_waiting_job();
    entry       *e = found ? found : find_or_add_entry(&text);
    if (e) queue_entry(e, &j);
    start_compile_thread();
    if (e && e->state == QUEUED && (table.waits || wait)) wait_idle();
    pthread_mutex_unlock(&table.lock);
    return e ? &e->code : NULL;
}

// Never fails: a kernel that cannot be compiled or stored is interpreted.
tn_status tni_cpu_prepare(void *session, int n, const tni_launch *const *first, void **entries,
                          bool wait, tni_text *why)
{
    (void)why;
    compile_job *j = NULL;
    tni_cpu_recall(session, n, first, entries);
    pthread_mutex_lock(&table.lock);
    open_table();
    for (int i = 0; i < n; i++) {
        kernel_text text = text_by_rule(first[i]->kernel);
        entry      *e    = find_or_add_entry(&text);
        entries[i]       = e ? e : &interpreted;
        if (e) queue_entry(e, &j);
    }
    start_compile_thread();
    if (table.waits || wait) wait_idle();
    pthread_mutex_unlock(&table.lock);
    for (int i = 0; i < n; i++)
        if (entries[i] != &interpreted) tni_cpu_retuned(session, entries[i], first[i]);
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
