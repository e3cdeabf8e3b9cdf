// The kernels that a device with work groups has compiled.
//
// A generated kernel has an entry, found by its key, and in it a variant for each class of shape
// that was launched. A variant that is missing is built by a job, which builds one program of one
// or more kernels. Hand-written texts and interpreters are programs too. Every program is built by
// a task, in the background or by the first caller that cannot wait; later callers wait for the
// same task.
// One lock guards all of it and is released while the compiler runs.
#include "device/simt/compiled.h"

#include "base/background.h"
#include "base/hash.h"
#include "device/simt/group_text.h"
#include "device/simt/kept_shapes.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// SLOTS: buckets of the table of entries, more than most processes have kernels.
enum { SLOTS = 1024 };

// A generated kernel, found by the bytes of its key, with its variants. Choosing a shape takes
// longer than finding it again, so that the shapes of the last few launches are kept. Entries are
// never freed. Invariant: variants are only added, and complete when they are.
typedef struct entry entry;
struct entry {
    tni_kernel      kernel;
    char           *key;
    size_t          key_bytes;
    uint64_t        hash;
    bool            checks;  // it can fail on an index
    tni_variant    *variants;
    tni_simt_layout layout;  // of its words
    tni_kept_shapes kept;
    entry          *next;
};

// A program that is to be built, or was. A task is pending until a thread takes it, running while
// the compiler is at it (without the lock), then done, for good. text is freed when it is built;
// `built` is called then, with the lock held. Invariant: a task is not freed while it is queued or
// has waiters.
typedef enum { BUILD_PENDING, BUILD_RUNNING, BUILD_DONE } build_state;
typedef struct build_task build_task;
struct build_task {
    tni_compiled  *t;
    char          *text;
    const char    *what;
    int            kernels;  // in the program
    tni_build_kind kind;
    build_state    state;
    bool           queued;   // the background still refers to it
    int            waiters;  // callers that read it once it is done
    void          *program;  // NULL before it is built, and if that failed
    tn_status      status;
    tni_text       why;
    void (*built)(build_task *u);
    void (*free)(build_task *u);  // called when nothing refers to it; NULL: it stays
};

// The program of a hand-written text for one pair of dtypes, and one kernel of such a program. A
// text has several kernels, of which each is looked up when it is first launched.
typedef struct group_program group_program;
struct group_program {
    build_task         u;
    const char *const *text;
    tn_dtype           x, y;
    group_program     *next;
};

// The program of a text that its caller printed, known by the text's hash and length, since the
// text is freed when it is built.
struct tni_text_program {
    build_task        u;
    uint64_t          hash;
    size_t            length;
    tni_text_program *next;
};
typedef struct group_kernel group_kernel;
struct group_kernel {
    group_program *of;
    const char    *name;
    void          *function;
    group_kernel  *next;
};

// The table of one device. slot: entries by hash; jobs: generated kernels that are being built, or
// could not be, which are kept so that they are not tried again; interpret: the interpreters'
// functions. Invariant: everything reachable from here is only read or changed with the lock held,
// except variants, which never change.
typedef struct job job;
struct tni_compiled {
    tni_compiled_opts o;
    bool              no_double;
    bool              never_compile;  // TN_COMPILE=never: generated kernels are interpreted
    pthread_mutex_t   lock;
    pthread_cond_t    done;  // signalled when a task is
    entry            *slot[SLOTS];
    job              *jobs;  // generated kernels being built, or that failed
    group_program    *programs;
    tni_text_program *texts;
    group_kernel     *group_kernels;
    build_task       *interpreter[TNI_INTERPRETERS];
    void             *interpret[TNI_INTERPRETERS];  // the functions of the interpreters
};

// TN_COMPILE=never leaves generated kernels to the interpreter, for tests of it.
tni_compiled *tni_compiled_new(const tni_compiled_opts *o)
{
    tni_compiled *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    const char *when = getenv("TN_COMPILE");
    t->o             = *o;
    t->never_compile = when && !strcmp(when, "never");
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->done, NULL);
    return t;
}

void tni_compiled_doubles(tni_compiled *t, bool has)
{
    t->no_double = !has;
}

bool tni_compiled_has_doubles(const tni_compiled *t)
{
    return !t->no_double;
}

// Replaces whatever reason was collected: memory is the real one.
static tn_status no_memory_for_kernels(const tni_compiled *t, tni_text *why)
{
    *why = (tni_text){ 0 };
    tni_text_add(why, "%s: out of memory for kernels", t->o.by->dialect->name);
    return TN_EMEM;
}

// ---- building ----------------------------------------------------------------------------------

// Builds a task's program. The lock is held before and after, and released meanwhile: the state
// says that the task is taken.
static void run_task(build_task *u)
{
    tni_compiled *t     = u->t;
    bool          found = false;
    u->state            = BUILD_RUNNING;
    pthread_mutex_unlock(&t->lock);
    void *program = t->o.by->build(t->o.device, u->text, u->what, u->kind, &found, &u->status,
                                   &u->why);
    pthread_mutex_lock(&t->lock);
    u->program = program;
    if (program) atomic_fetch_add(found ? &t->o.counts->found : &t->o.counts->compiled, u->kernels);
    tni_heap heap = tni_heap_default();
    tni_free(&heap, u->text);
    u->text  = NULL;
    u->state = BUILD_DONE;
    if (u->built) u->built(u);
    pthread_cond_broadcast(&t->done);
}

// Frees a task that was built and that nothing refers to. One that failed stays, so that the same
// program is not compiled again and again.
static void release_task(build_task *u)
{
    if (u->state == BUILD_DONE && u->status == TN_OK && !u->queued && !u->waiters && u->free)
        u->free(u);
}

// Runs in a background thread; a caller that could not wait may have built the task before.
static void build_in_background(void *arg)
{
    build_task   *u = arg;
    tni_compiled *t = u->t;
    pthread_mutex_lock(&t->lock);
    if (u->state == BUILD_PENDING) run_task(u);
    u->queued = false;
    release_task(u);
    pthread_mutex_unlock(&t->lock);
}

// Waits until a task is built: by another thread, or here if none has begun it. Returns its status,
// and adds the reason if it failed. The lock is held; it is released while waiting.
static tn_status wait_task(build_task *u, tni_text *why)
{
    u->waiters++;
    if (u->state == BUILD_PENDING) run_task(u);
    while (u->state != BUILD_DONE) pthread_cond_wait(&u->t->done, &u->t->lock);
    tn_status s = u->status;
    if (s != TN_OK) tni_text_add(why, "%s", u->why.s);
    u->waiters--;
    release_task(u);
    return s;
}

// Leaves a task to the background. If no thread can be had, the task stays
// pending, and the first caller that waits builds it. The lock is held.
static void queue_task(build_task *u, tni_task_kind kind)
{
    if (u->t->o.background && u->state == BUILD_PENDING && !u->queued)
        u->queued = tni_background(build_in_background, u, kind);
}

// Builds a task at once if its program is on disk, which takes no time worth another thread, else
// queues it.
static void start_task(build_task *u, tni_task_kind kind)
{
    tni_compiled *t     = u->t;
    bool          found = false;
    if (!t->o.background || u->state != BUILD_PENDING || u->queued) return;
    void *program = t->o.by->build(t->o.device, u->text, u->what, TNI_BUILD_FROM_DISK, &found,
                                   &u->status, &u->why);
    if (program) {
        tni_heap heap = tni_heap_default();
        tni_free(&heap, u->text);
        u->text    = NULL;
        u->program = program;
        u->state   = BUILD_DONE;
        u->status  = TN_OK;
        atomic_fetch_add(&t->o.counts->found, u->kernels);
        if (u->built) u->built(u);
        release_task(u);
        return;
    }
    u->status = TN_OK;
    u->why    = (tni_text){ "" };
    queue_task(u, kind);
}

// ---- entries -----------------------------------------------------------------------------------

// Returns whether a kernel checks an index, so that a launch may have to wait for the answer.
static bool has_checks(const tni_kernel *k)
{
    for (int i = 0; i < k->nins; i++)
        if (k->ins[i].code == TNI_I_CHECK) return true;
    return false;
}

// Takes over the key.
static entry *new_entry(tni_compiled *t, const tni_kernel *k, uint64_t hash, char *key,
                        size_t bytes)
{
    entry *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->hash      = hash;
    e->key       = key;
    e->key_bytes = bytes;
    e->kernel    = *k;
    e->checks    = has_checks(k);
    tni_simt_layout_of(k, &e->layout);
    e->next               = t->slot[hash % SLOTS];
    t->slot[hash % SLOTS] = e;
    return e;
}

// Finds or makes the entry of a kernel; NULL when memory is out.
static entry *entry_of(tni_compiled *t, const tni_kernel *k)
{
    size_t bytes = tni_kernel_key(k, NULL, 0);
    char  *key   = malloc(bytes);
    if (!key) return NULL;
    tni_kernel_key(k, key, bytes);
    uint64_t hash = tni_hash(key, bytes);
    for (entry *e = t->slot[hash % SLOTS]; e; e = e->next) {
        if (e->hash != hash || e->key_bytes != bytes || memcmp(e->key, key, bytes)) continue;
        free(key);
        return e;
    }
    entry *e = new_entry(t, k, hash, key, bytes);
    if (!e) free(key);
    return e;
}

// Classes are compared as bytes: they are written over zeroed memory.
static tni_variant *variant_of(const entry *e, const tni_simt_class *c)
{
    for (tni_variant *v = e->variants; v; v = v->next)
        if (!memcmp(&v->class, c, sizeof *c)) return v;
    return NULL;
}

// ---- shapes ------------------------------------------------------------------------------------

// The settings of a launch: its own, else those that won for such launches, else the rule's.
static tni_tuning settings_of(const tni_compiled *t, const tni_launch *l)
{
    tni_tuned won;
    if (l->tuning) return *l->tuning;
    return tni_tuned_find(t->o.chip, l, &won) ? won.settings : (tni_tuning){ { 0 } };
}

// The shape for a launch under some settings; few: if a thread is to use few registers, which makes
// tiles smaller.
static tni_simt choose_shape(const tni_compiled *t, const tni_launch *l, const tni_tuning *settings,
                             bool few)
{
    tni_simt_limits limits = t->o.limits;
    limits.few_registers   = few;
    limits.tuning          = settings;
    return tni_simt_choose(l, &limits);
}

// The shape to compile for a launch: the one with few registers if the first choice was compiled
// and spills.
static tni_simt wanted_shape(const tni_compiled *t, const entry *e, const tni_launch *l)
{
    tni_tuning         s = settings_of(t, l);
    tni_simt           m = choose_shape(t, l, &s, false);
    const tni_variant *v = variant_of(e, &m.class);
    return v && v->registers.spilled ? choose_shape(t, l, &s, true) : m;
}

// The shape to launch with: of the compiled ones, the one that spills less; the first choice if
// nothing is compiled yet or nothing spills.
static tni_simt choose_launch_shape(const tni_compiled *t, const entry *e, const tni_launch *l,
                                    const tni_tuning *settings)
{
    tni_simt           m = choose_shape(t, l, settings, false), fewer;
    const tni_variant *v = variant_of(e, &m.class), *other;
    if (!v || !v->registers.spilled) return m;
    fewer = choose_shape(t, l, settings, true);
    other = variant_of(e, &fewer.class);
    return other && other->registers.spilled < v->registers.spilled ? fewer : m;
}

bool tni_compiled_checks(const void *at)
{
    const entry *e = at;
    return e->checks;
}

// ---- compiling ---------------------------------------------------------------------------------

// Kernels that are built as the items of one program: for each the entry it belongs to, the variant
// to be filled, and its name in the text. Invariant: u comes first, so that a task of a job is the
// job.
struct job {
    build_task     u;
    int            n, room;
    entry        **of;
    tni_variant  **made;
    tni_emit_item *item;
    char (*name)[TNI_KERNEL_NAME];
    job *next;
};

// Frees a job. Variants that were linked into an entry are NULL here by then.
static void job_free(build_task *u)
{
    job     *j    = (job *)u;
    tni_heap heap = tni_heap_default();
    for (int i = 0; j->made && i < j->n; i++) free(j->made[i]);
    tni_free(&heap, j->u.text);
    free(j->of);
    free(j->made);
    free(j->item);
    free(j->name);
    free(j);
}

// A job for at most `room` kernels; NULL when memory is out.
static job *job_new(tni_compiled *t, int room)
{
    job *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    j->u.t  = t;
    j->room = room;
    j->of   = calloc((size_t)room, sizeof *j->of);
    j->made = calloc((size_t)room, sizeof *j->made);
    j->item = calloc((size_t)room, sizeof *j->item);
    j->name = calloc((size_t)room, sizeof *j->name);
    if (j->of && j->made && j->item && j->name) return j;
    job_free(&j->u);
    return NULL;
}

// Returns whether a job builds this kernel for this class.
static bool job_has(const job *j, const entry *e, const tni_simt_class *c)
{
    for (int i = 0; i < j->n; i++)
        if (j->of[i] == e && !memcmp(&j->made[i]->class, c, sizeof *c)) return true;
    return false;
}

// Returns the job that builds this kernel for this class, or has failed to; NULL if there is none.
static job *find_job(const tni_compiled *t, const entry *e, const tni_simt_class *c)
{
    job *j = t->jobs;
    while (j && !job_has(j, e, c)) j = j->next;
    return j;
}

// Adds a kernel that has to be compiled. Its name in the program is its number, so that equal
// programs have equal texts, and are found on disk. Returns false when memory is out.
static bool job_add(job *j, entry *e, const tni_simt_class *c)
{
    tni_variant *v = calloc(1, sizeof *v);
    if (!v) return false;
    int i      = j->n++;
    v->class   = *c;
    v->layout  = &e->layout;
    j->made[i] = v;
    j->of[i]   = e;
    snprintf(j->name[i], sizeof j->name[i], "k%d", i);
    j->item[i] = (tni_emit_item){ .kernel = &e->kernel, .name = j->name[i], .opts = &v->class };
    return true;
}

// Finds a kernel in a program, and adds to the variant's registers: the most of its two kernels
// counts. A spill of up to FEW bytes counts as none: it stays in the first cache, and costs less
// than the half of the threads that a shape with more registers gives up.
static tn_status find_function(const tni_compiled *t, void *program, const char *name,
                               tni_variant *v, void **f, tni_text *why)
{
    enum { FEW = 32 };
    const tni_compiler *by = t->o.by;
    tn_status           s  = by->function(t->o.device, program, name, f, why);
    if (s != TN_OK || !by->registers) return s;
    tni_registers r = by->registers(t->o.device, *f);
    if (v->registers.used < r.used) v->registers.used = r.used;
    if (r.spilled > FEW && v->registers.spilled < r.spilled) v->registers.spilled = r.spilled;
    return s;
}

// Finds the functions of all kernels of a job, the main ones and those that finish reductions.
static tn_status find_job_functions(job *j)
{
    build_task *u = &j->u;
    tn_status   s = TN_OK;
    for (int i = 0; s == TN_OK && i < j->n; i++) {
        char         finish[TNI_KERNEL_NAME + 8];
        tni_variant *v = j->made[i];
        s              = find_function(u->t, u->program, j->name[i], v, &v->main, &u->why);
        if (s != TN_OK || v->class.finish != TNI_FINISH_KERNEL) continue;
        snprintf(finish, sizeof finish, "%s_finish", j->name[i]);
        s = find_function(u->t, u->program, finish, v, &v->finish, &u->why);
    }
    return s;
}

// Called when a job's program is built: gives each entry its variant and removes the job from the
// list. Kept shapes are dropped, since the choice depends on which variants spill. If the program
// or a function failed, the job stays in the list with the reason.
static void link_variants(build_task *u)
{
    job *j = (job *)u, **at = &u->t->jobs;
    if (u->program) u->status = find_job_functions(j);
    if (u->status != TN_OK || !u->program) return;
    for (int i = 0; i < j->n; i++) {
        tni_shapes_forget(&j->of[i]->kept);
        j->made[i]->next   = j->of[i]->variants;
        j->of[i]->variants = j->made[i];
        j->made[i]         = NULL;
    }
    j->n = 0;
    while (*at && *at != j) at = &(*at)->next;
    if (*at) *at = j->next;
}

// Prints a complete job's program and adds the job to the list. Returns false when memory is out.
static bool job_enlist(tni_compiled *t, job *j)
{
    tni_heap heap = tni_heap_default();
    j->u.text     = tni_emit_program(&heap, t->o.by->dialect, tni_emit_simt, j->n, j->item,
                                     t->no_double);
    if (!j->u.text) return false;
    j->u.what    = "kernel";
    j->u.kernels = j->n;
    j->u.built   = link_variants;
    j->u.free    = job_free;
    j->next      = t->jobs;
    t->jobs      = j;
    return true;
}

// Returns the name of an op of a kernel in f64, preferably one that computes and not one that
// moves, for a message; NULL if there is none.
static const char *op_in_double(const tni_kernel *k)
{
    const char *found = NULL;
    for (int i = 0; i < k->nins; i++) {
        const tni_ins *x = &k->ins[i];
        if (x->dtype != TN_F64) continue;
        if (x->code == TNI_I_MAP || x->code == TNI_I_REDUCE || x->code == TNI_I_RANDOM)
            return tni_op_table[x->op].name;
        if (!found || x->code == TNI_I_CAST) found = x->code == TNI_I_CAST ? "cast" : "copy";
    }
    return found;
}

// A device without f64 can hold such values and pass them on, but not compute with them: the
// generator is asked only after that.
static tn_status can_emit_kernel(const tni_compiled *t, const tni_kernel *k, tni_text *why)
{
    const char *reason = "", *name = t->o.by->dialect->name;
    const char *doubled = t->no_double ? op_in_double(k) : NULL;
    if (doubled) {
        tni_text_add(why, "%s: the %s device has no f64: values can be read as f64, not computed",
                     doubled, name);
        return TN_EDEVICE;
    }
    if (tni_can_emit(k, &reason)) return TN_OK;
    tni_text_add(why, "%s: no kernel can be generated: %s", name, reason);
    return TN_EDEVICE;
}

// Starts a job and, with wait, waits for it. The job may be freed when this returns. The count of
// waiters keeps it alive in between, since a program on disk is built at once.
static tn_status submit_job(tni_compiled *t, job *j, bool wait, tni_task_kind kind, tni_text *why)
{
    if (!j->n) {
        job_free(&j->u);
        return TN_OK;
    }
    if (!job_enlist(t, j)) {
        job_free(&j->u);
        return no_memory_for_kernels(t, why);
    }
    j->u.waiters++;
    start_task(&j->u, kind);
    j->u.waiters--;
    if (wait || !t->o.background) return wait_task(&j->u, why);
    release_task(&j->u);
    return TN_OK;
}

// Starts jobs, of at most o.batch kernels, for those kernels of a plan that are neither compiled
// nor being compiled. Without a background each job is waited for here.
static tn_status compile_all(tni_compiled *t, int n, const tni_launch *const *first, void **entries,
                             tni_text *why)
{
    job      *j = NULL;
    tn_status s = TN_OK;
    for (int i = 0; s == TN_OK && i < n; i++) {
        tni_simt shape = wanted_shape(t, entries[i], first[i]);
        if (variant_of(entries[i], &shape.class) || find_job(t, entries[i], &shape.class)) continue;
        if (j && job_has(j, entries[i], &shape.class)) continue;
        if (!j && !(j = job_new(t, t->o.batch < n - i ? t->o.batch : n - i)))
            return no_memory_for_kernels(t, why);
        if (!job_add(j, entries[i], &shape.class)) s = no_memory_for_kernels(t, why);
        if (s != TN_OK || j->n < j->room) continue;
        s = submit_job(t, j, false, TNI_TASK_IN_TURN, why);
        j = NULL;
    }
    if (j && s == TN_OK) return submit_job(t, j, false, TNI_TASK_IN_TURN, why);
    if (j) job_free(&j->u);
    return s;
}

// Waits until all kernels of a plan are compiled. One that failed before fails again.
static tn_status wait_for_kernels(tni_compiled *t, int n, const tni_launch *const *first,
                                  void **entries, tni_text *why)
{
    tn_status s = TN_OK;
    for (int i = 0; s == TN_OK && i < n; i++) {
        tni_simt shape = wanted_shape(t, entries[i], first[i]);
        job     *j     = find_job(t, entries[i], &shape.class);
        if (j) s = wait_task(&j->u, why);
    }
    return s;
}

// Finds the entries of a plan's kernels and starts to compile what is missing. With wait it goes
// through twice: once for the first choice of shapes, once more for those that turned out to spill,
// in a shape with few registers. If that fails, the first variant still runs.
static tn_status prepare_entries(tni_compiled *t, int n, const tni_launch *const *first, void **out,
                                 bool wait, tni_text *why)
{
    for (int i = 0; i < n; i++) {
        tn_status s = can_emit_kernel(t, first[i]->kernel, why);
        if (s != TN_OK) return s;
        out[i] = entry_of(t, first[i]->kernel);
        if (!out[i]) return no_memory_for_kernels(t, why);
    }
    if (t->never_compile) return TN_OK;
    tni_text  ignored = { "" };
    tn_status s       = compile_all(t, n, first, out, why);
    if (s != TN_OK || (t->o.background && !wait)) return s;
    s = wait_for_kernels(t, n, first, out, why);
    if (s != TN_OK) return s;
    if (compile_all(t, n, first, out, &ignored) == TN_OK)
        wait_for_kernels(t, n, first, out, &ignored);
    return TN_OK;
}

tn_status tni_compiled_prepare(tni_compiled *t, int n, const tni_launch *const *first, void **out,
                               bool wait, tni_text *why)
{
    pthread_mutex_lock(&t->lock);
    tn_status s = prepare_entries(t, n, first, out, wait, why);
    pthread_mutex_unlock(&t->lock);
    return s;
}

// ---- launching ---------------------------------------------------------------------------------

// Returns the shape of a launch and its settings, from the kept ones if there is one. The lock is
// held.
static tni_chosen_shape find_shape(const tni_compiled *t, entry *e, const tni_launch *l)
{
    tni_chosen_shape now;
    if (tni_shapes_find(&e->kept, l, &now)) return now;
    now       = (tni_chosen_shape){ .settings = settings_of(t, l), .given = l->tuning != NULL };
    now.shape = choose_launch_shape(t, e, l, &now.settings);
    tni_shapes_keep(&e->kept, l, &now);
    return now;
}

static tni_simt shape_of(const tni_compiled *t, entry *e, const tni_launch *l)
{
    return find_shape(t, e, l).shape;
}

void tni_compiled_settings(tni_compiled *t, void *at, const tni_launch *l, tni_tuning *now)
{
    pthread_mutex_lock(&t->lock);
    *now = find_shape(t, at, l).settings;
    pthread_mutex_unlock(&t->lock);
}

size_t tni_compiled_scratch(tni_compiled *t, void *at, const tni_launch *l)
{
    tni_tuning s = { { 0 } };
    if (!at) s = settings_of(t, l);
    if (!at) return (size_t)choose_shape(t, l, &s, false).scratch_bytes;
    pthread_mutex_lock(&t->lock);
    size_t bytes = (size_t)shape_of(t, at, l).scratch_bytes;
    pthread_mutex_unlock(&t->lock);
    return bytes;
}

tni_registers tni_compiled_registers(tni_compiled *t, void *at, const tni_launch *l)
{
    pthread_mutex_lock(&t->lock);
    tni_simt           m = shape_of(t, at, l);
    const tni_variant *v = variant_of(at, &m.class);
    tni_registers      r = v ? v->registers : (tni_registers){ 0 };
    pthread_mutex_unlock(&t->lock);
    return r;
}

// Starts to compile a kernel for a class, unless that is under way or has failed. The lock is held.
static tn_status start_variant(tni_compiled *t, entry *e, const tni_simt_class *c, bool wait,
                               tni_task_kind kind, tni_text *why)
{
    job *j = find_job(t, e, c);
    if (j && !wait) queue_task(&j->u, kind);  // there may have been no thread for it before
    if (j) return wait ? wait_task(&j->u, why) : TN_OK;
    if (!(j = job_new(t, 1))) return no_memory_for_kernels(t, why);
    if (job_add(j, e, c)) return submit_job(t, j, wait, kind, why);
    job_free(&j->u);
    return no_memory_for_kernels(t, why);
}

// A kernel that spills is ready only when its shape with few registers was compiled too, so that
// the planner judges the better one. One that cannot be compiled counts as ready: its launch
// reports the error.
bool tni_compiled_ready(tni_compiled *t, void *at, const tni_launch *l)
{
    tni_text why = { "" };
    pthread_mutex_lock(&t->lock);
    tni_simt m     = wanted_shape(t, at, l);
    bool     ready = t->never_compile || variant_of(at, &m.class);
    if (!ready && start_variant(t, at, &m.class, false, TNI_TASK_IN_TURN, &why) != TN_OK)
        ready = true;
    const job *j = ready ? NULL : find_job(t, at, &m.class);
    ready |= !j || j->u.state == BUILD_DONE;
    pthread_mutex_unlock(&t->lock);
    return ready;
}

// Compiles for a launch of a new class and, if the result spills, once more with few registers;
// then the better of the two is taken. NULL if it is not compiled yet.
static tni_variant *build_variant(tni_compiled *t, entry *e, const tni_launch *l, bool wait,
                                  tni_simt *m, tn_status *s, tni_text *why)
{
    tni_text reason = { "" };
    *s              = start_variant(t, e, &m->class, wait, TNI_TASK_IN_TURN, why);
    tni_variant *v  = variant_of(e, &m->class);
    if (!v || !v->registers.spilled || m->class.wide) return v;
    tni_simt fewer = wanted_shape(t, e, l);
    start_variant(t, e, &fewer.class, wait, TNI_TASK_IN_TURN, &reason);
    *m = shape_of(t, e, l);
    return variant_of(e, &m->class);
}

// Without a background, waiting is the only way.
const tni_variant *tni_compiled_variant(tni_compiled *t, void *at, const tni_launch *l, bool wide,
                                        bool wait, tni_simt *m, tn_status *s, tni_text *why)
{
    *s = TN_OK;
    if (t->never_compile && !wait) return NULL;
    pthread_mutex_lock(&t->lock);
    *m = shape_of(t, at, l);
    if (wide) m->class.wide = 1;
    tni_variant *v = variant_of(at, &m->class);
    if (!v) v = build_variant(t, at, l, wait || !t->o.background, m, s, why);
    pthread_mutex_unlock(&t->lock);
    return v;
}

// ---- measuring ---------------------------------------------------------------------------------

// What a device with work groups can choose, within its limits.
int tni_compiled_neighbours(const tni_compiled *t, const tni_launch *l, const tni_tuning *from,
                            tni_tuning *dst, int room)
{
    return tni_simt_neighbours(l, &t->o.limits, from, dst, room);
}

// Does not wait. Those of later are behind the kernels of plans, too.
void tni_compiled_expect(tni_compiled *t, void *at, const tni_launch *l, bool now)
{
    tni_text why = { "" };
    pthread_mutex_lock(&t->lock);
    tni_simt m = shape_of(t, at, l);
    if (!variant_of(at, &m.class))
        start_variant(t, at, &m.class, false, now ? TNI_TASK_IN_TURN : TNI_TASK_IDLE, &why);
    pthread_mutex_unlock(&t->lock);
}

// The shapes that are kept were chosen without the winner.
void tni_compiled_retuned(tni_compiled *t, void *at)
{
    pthread_mutex_lock(&t->lock);
    entry *e = at;
    tni_shapes_forget(&e->kept);
    pthread_mutex_unlock(&t->lock);
}

const char *tni_compiled_chip(const tni_compiled *t)
{
    return t->o.chip;
}

// The text is that of the shape which the launch would have now, with the functions of the prelude
// left out.
char *tni_compiled_source(const tni_compiled *t, tni_heap *h, const tni_launch *l)
{
    tni_out       o;
    tni_tuning    s    = settings_of(t, l);
    tni_simt      m    = choose_shape(t, l, &s, false);
    tni_emit_item item = { .kernel = l->kernel, .name = "kernel", .opts = &m.class };
    const char   *why;
    if (!tni_can_emit(l->kernel, &why)) return NULL;
    tni_out_open(&o, h);
    tni_emit_simt(&o, t->o.by->dialect, &item);
    return tni_out_take(&o);
}

// ---- kernels written by group_kernel -----------------------------------------------------------

// Prints the program of a hand-written text and adds it to the list, not built yet; NULL when
// memory is out.
static group_program *new_program(tni_compiled *t, const char *const *text, tn_dtype x, tn_dtype y)
{
    tni_heap       heap = tni_heap_default();
    group_program *p    = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->u.t       = t;
    p->u.what    = "kernel";
    p->u.kernels = 1;
    p->u.text    = tni_group_text_source(&heap, t->o.by->dialect, text, x, y, t->no_double);
    p->text      = text;
    p->x         = x;
    p->y         = y;
    p->next      = t->programs;
    if (p->u.text) return t->programs = p;
    free(p);
    return NULL;
}

// Finds or makes the program of a text; NULL when memory is out. The lock is held.
static group_program *program_of(tni_compiled *t, const char *const *text, tn_dtype x, tn_dtype y)
{
    group_program *p = t->programs;
    while (p && (p->text != text || p->x != x || p->y != y)) p = p->next;
    return p ? p : new_program(t, text, x, y);
}

// Waits for the program and looks up one of its kernels, which is remembered.
static void *make_group_kernel(tni_compiled *t, group_program *p, const char *name, tn_status *s,
                               tni_text *why)
{
    void *f = NULL;
    *s      = wait_task(&p->u, why);
    if (*s != TN_OK) return NULL;
    group_kernel *k = malloc(sizeof *k);
    *s              = k ? t->o.by->function(t->o.device, p->u.program, name, &f, why)
                        : no_memory_for_kernels(t, why);
    if (*s != TN_OK) {
        free(k);
        return NULL;
    }
    *k               = (group_kernel){ p, name, f, t->group_kernels };
    t->group_kernels = k;
    return f;
}

// Texts and names are compared by address and by content respectively: texts are constants of the
// library. The lock is held.
static void *find_group_kernel(tni_compiled *t, const char *const *text, const char *name,
                               tn_dtype x, tn_dtype y, tn_status *s, tni_text *why)
{
    for (group_kernel *k = t->group_kernels; k; k = k->next)
        if (k->of->text == text && k->of->x == x && k->of->y == y && !strcmp(k->name, name))
            return k->function;
    group_program *p = program_of(t, text, x, y);
    if (p && p->u.state == BUILD_PENDING) p->u.what = name;
    if (p) return make_group_kernel(t, p, name, s, why);
    *s = no_memory_for_kernels(t, why);
    return NULL;
}

void *tni_compiled_group_kernel(tni_compiled *t, const char *const *text, const char *name,
                                tn_dtype x, tn_dtype y, tn_status *s, tni_text *why)
{
    *s = TN_EDEVICE;
    if (t->no_double && (x == TN_F64 || y == TN_F64)) {
        tni_text_add(why, "%s: the %s device has no f64", name, t->o.by->dialect->name);
        return NULL;
    }
    pthread_mutex_lock(&t->lock);
    *s      = TN_OK;
    void *f = find_group_kernel(t, text, name, x, y, s, why);
    pthread_mutex_unlock(&t->lock);
    return f;
}

// Ahead of others in the queue: a plan is waiting for it, while generated kernels are interpreted
// meanwhile.
bool tni_compiled_group_kernel_soon(tni_compiled *t, const char *const *text, tn_dtype x,
                                    tn_dtype y)
{
    if (t->no_double && (x == TN_F64 || y == TN_F64)) return false;
    pthread_mutex_lock(&t->lock);
    group_program *p = program_of(t, text, x, y);
    if (p) start_task(&p->u, TNI_TASK_SOON);
    bool there = p && p->u.state == BUILD_DONE;
    pthread_mutex_unlock(&t->lock);
    return there;
}

// ---- programs of any text ----------------------------------------------------------------------

// Finds or makes the program of a text, which becomes the program's. The lock is held.
static tni_text_program *text_program_of(tni_compiled *t, char *text, const char *what)
{
    size_t            length = strlen(text);
    uint64_t          hash   = tni_hash(text, length);
    tni_heap          heap   = tni_heap_default();
    tni_text_program *p      = t->texts;
    while (p && (p->hash != hash || p->length != length)) p = p->next;
    if (p || !(p = calloc(1, sizeof *p))) {
        tni_free(&heap, text);
        return p;
    }
    p->u            = (build_task){ .t = t, .text = text, .what = what, .kernels = 1 };
    p->hash         = hash;
    p->length       = length;
    p->next         = t->texts;
    return t->texts = p;
}

tni_text_program *tni_compiled_text(tni_compiled *t, char *text, const char *what)
{
    if (!text) return NULL;
    pthread_mutex_lock(&t->lock);
    tni_text_program *p = text_program_of(t, text, what);
    if (p) start_task(&p->u, TNI_TASK_SOON);
    pthread_mutex_unlock(&t->lock);
    return p;
}

void *tni_compiled_text_kernel(tni_text_program *p, const char *name, tn_status *s, tni_text *why)
{
    tni_compiled *t = p->u.t;
    void         *f = NULL;
    pthread_mutex_lock(&t->lock);
    *s = wait_task(&p->u, why);
    if (*s == TN_OK) *s = t->o.by->function(t->o.device, p->u.program, name, &f, why);
    pthread_mutex_unlock(&t->lock);
    return *s == TN_OK ? f : NULL;
}

// ---- the interpreter ---------------------------------------------------------------------------

static char *interpreter_text(const tni_compiled *t, tni_interpreter_level level)
{
    tni_heap      heap = tni_heap_default();
    tni_emit_item item = { .opts = &level };
    return tni_emit_program(&heap, t->o.by->dialect, tni_emit_interpreter, 1, &item,
                            level < TNI_INTERPRET_ALL);
}

// Finds or makes the task of a level; NULL when memory is out. The lock is held. Interpreters are
// compiled quickly, since everything waits for them, and slower code matters little in them.
static build_task *interpreter_of(tni_compiled *t, tni_interpreter_level level)
{
    if (t->interpreter[level]) return t->interpreter[level];
    build_task *u = calloc(1, sizeof *u);
    if (!u) return NULL;
    *u      = (build_task){ .t = t, .what = "interpreter", .kernels = 1, .kind = TNI_BUILD_QUICK };
    u->text = interpreter_text(t, level);
    if (u->text) return t->interpreter[level] = u;
    free(u);
    return NULL;
}

// Makes a failed interpreter pending again: its GPU may not have been open at the time. The lock is
// held.
static void retry_interpreter(build_task *u, tni_interpreter_level level)
{
    if (u->state != BUILD_DONE || u->program || !(u->text = interpreter_text(u->t, level))) return;
    u->state  = BUILD_PENDING;
    u->status = TN_OK;
    u->why    = (tni_text){ "" };
}

// Returns the function of a level that is built; NULL if it is not.
static void *interpreter_function(tni_compiled *t, tni_interpreter_level level)
{
    build_task *u   = t->interpreter[level];
    tni_text    why = { "" };
    if (!u || u->state != BUILD_DONE || !u->program) return NULL;
    if (!t->interpret[level])
        t->o.by->function(t->o.device, u->program, TNI_INTERPRETER_NAME, &t->interpret[level],
                          &why);
    return t->interpret[level];
}

// Any level at or above the one asked for will do, whichever is built; if none is, the caller waits
// for the one asked for.
void *tni_compiled_interpreter(tni_compiled *t, tni_interpreter_level level)
{
    void    *f   = NULL;
    tni_text why = { "" };
    pthread_mutex_lock(&t->lock);
    for (int i = level; i < TNI_INTERPRETERS && !f; i++) f = interpreter_function(t, i);
    if (!f && (level < TNI_INTERPRET_ALL || !t->no_double)) {
        build_task *u = interpreter_of(t, level);
        if (u) wait_task(u, &why);
        f = interpreter_function(t, level);
    }
    pthread_mutex_unlock(&t->lock);
    return f;
}

void tni_compiled_interpreters_soon(tni_compiled *t)
{
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < (t->no_double ? TNI_INTERPRET_ALL : TNI_INTERPRETERS); i++) {
        build_task *u = interpreter_of(t, i);
        if (u) retry_interpreter(u, i);
        if (u) queue_task(u, TNI_TASK_IN_TURN);
    }
    pthread_mutex_unlock(&t->lock);
}
