// Which algorithm a product takes: the fastest of what the library proposes and of our own kernel for
// small ones, timed once for all processes and kept on disk.
#include "device/cuda/product_plan.h"

#include "device/cuda/gpu.h"
#include "device/cuda/product_small.h"
#include "kernel/disk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, D };
enum { WORDS = sizeof(tni_form) / sizeof(int64_t), OWN_WORDS = 3, WORD_TEXT = 21 };

// Under the lock of the plans.
static struct {
    tni_disk disk;
    bool     disk_open;
    int64_t  timed, found;
} self;

// ---- the disk ----------------------------------------------------------------------------------

// The texts of a key, which the key points into.
typedef struct {
    char         source[WORDS * WORD_TEXT + 1], version[32];
    tni_disk_key key;
} disk_key;

static void make_key(const tni_ltjob *j, disk_key *k)
{
    const int64_t *word = (const int64_t *)&j->plan->form;
    int            n    = 0;
    for (int i = OWN_WORDS; i < (int)WORDS; i++)
        n += snprintf(k->source + n, sizeof k->source - (size_t)n, "%" PRId64 " ", word[i]);
    snprintf(k->version, sizeof k->version, "cuBLASLt %zu", j->lt->version());
    k->key = (tni_disk_key){ "lt", k->source, "", k->version, j->at->gpu };
    if (!self.disk_open) tni_disk_open(&self.disk);
    self.disk_open = true;
}

// What is kept: the library's fastest; and, only where our own kernel was timed too, which version of it
// and whether it was faster.
typedef struct {
    tni_ltalgo algo;
    int64_t    version, small;
} choice;

enum { WITHOUT_SMALL = sizeof(tni_ltalgo) };

// Reads what is kept. False if there is nothing, or our own kernel can do the product and was not timed.
static bool read_choice(const tni_ltjob *j, choice *c)
{
    disk_key k;
    size_t   bytes = 0;
    make_key(j, &k);
    void *data = tni_disk_find(&self.disk, &k.key, &bytes);
    bool  ok   = data && (bytes == sizeof *c || bytes == WITHOUT_SMALL);
    *c         = (choice){ .version = 0 };
    if (ok) memcpy(c, data, bytes);
    free(data);
    return ok && (c->version == TNI_SMALL_VERSION || !j->plan->form.small);
}

bool tni_choice_find(const tni_ltjob *j)
{
    tni_ltproposal seen;
    choice         c;
    tni_ltplan    *n = j->plan;
    if (!read_choice(j, &c)) return false;
    int e = j->lt->check(n->handle, n->desc, n->layout[A], n->layout[B], n->layout[D], n->layout[D],
                         &c.algo, &seen);
    if (e != TNI_LT_OK || seen.status != TNI_LT_OK || seen.workspace > j->at->bytes) return false;
    n->algo  = c.algo;
    n->small = n->form.small && c.small;
    self.found++;
    return true;
}

// tried: our own kernel was timed. Where it could not run, the next process tries it again.
static void keep_choice(const tni_ltjob *j, bool tried)
{
    disk_key          k;
    const tni_ltplan *n = j->plan;
    choice            c = { .algo = n->algo, .version = TNI_SMALL_VERSION, .small = n->small };
    make_key(j, &k);
    tni_disk_keep(&self.disk, &k.key, &c, tried ? sizeof c : WITHOUT_SMALL);
}

// ---- timing ------------------------------------------------------------------------------------

// The clock of a choice: two events, where the product goes, what it found, and the first error of the
// driver.
typedef struct {
    const tni_ltjob *job;
    tni_cuevent      from, to;
    char            *out;
    tni_cuptr        scratch;  // out, where the real one lies on the residual
    bool             tried;    // our own kernel ran too
    bool             small;    // and is the fastest
    int              error;
} stopwatch;

static size_t result_bytes(const tni_product *p)
{
    const tni_matrix *d     = &p->x[D];
    int64_t           count = (p->batch - 1) * d->step + (d->cols - 1) * d->ld + d->rows;
    return (size_t)count * tni_dtype_size(p->out);
}

static bool open_watch(stopwatch *w, const tni_ltjob *j)
{
    const tni_driver *cu = j->at->cu;
    *w                   = (stopwatch){ .job = j, .out = j->p->at[D] };
    if (tni_product_accumulates(j->p)) {
        size_t bytes = result_bytes(j->p);
        if (cu->mem_alloc(&w->scratch, bytes) != TNI_CU_OK) return false;
        w->error = cu->set8(w->scratch, 0, bytes, j->at->stream);
        w->out   = (char *)(uintptr_t)w->scratch;
    }
    return !w->error && cu->event_create(&w->from, 0) == TNI_CU_OK &&
           cu->event_create(&w->to, 0) == TNI_CU_OK;
}

static void close_watch(stopwatch *w)
{
    const tni_driver *cu = w->job->at->cu;
    if (w->from) cu->event_destroy(w->from);
    if (w->to) cu->event_destroy(w->to);
    if (w->scratch) {
        cu->stream_wait(w->job->at->stream);
        cu->mem_free(w->scratch);
    }
}

// Fills the workspace, twice: while the GPU is at it, the host gets ahead, so that what is timed is
// not the launching.
static int cover(const tni_ltjob *j)
{
    const tni_driver *cu = j->at->cu;
    int               e  = TNI_CU_OK;
    for (int i = 0; i < 2 && !e && j->at->bytes; i++)
        e = cu->set8(j->at->workspace, 0, j->at->bytes, j->at->stream);
    return e;
}

// One product by an algorithm, or by our own kernel if there is none.
static int multiply(const stopwatch *w, const tni_ltalgo *algo)
{
    static const int64_t start[3] = { 0 };
    const tni_ltjob     *j        = w->job;
    return algo ? tni_lt_multiply(j, algo, start, w->out) : j->at->small(j->at->seat, j->p, w->out);
}

// Milliseconds of one product, the best of some rounds of runs; below 0 if it cannot be run. A product
// before them loads what is needed.
static float milliseconds(stopwatch *w, const tni_ltalgo *algo, int rounds, int runs)
{
    const tni_ltjob  *j    = w->job;
    const tni_driver *cu   = j->at->cu;
    float             best = -1;
    if (multiply(w, algo)) return best;
    for (int r = 0; r < rounds && !w->error; r++) {
        float ms = 0;
        int   e = cover(j), bad = 0;
        if (!e) e = cu->event_record(w->from, j->at->stream);
        for (int i = 0; i < runs && !bad; i++) bad = multiply(w, algo);
        if (!e) e = cu->event_record(w->to, j->at->stream);
        if (!e) e = cu->event_wait(w->to);
        if (!e) e = cu->elapsed(&ms, w->from, w->to);
        w->error = e;
        if (bad) return -1;
        if (!e && (best < 0 || ms / (float)runs < best)) best = ms / (float)runs;
    }
    return best;
}

// How often proposals are timed, and how many of them. Small products take little time and are easily
// disturbed; big ones take long, and the first few proposals are good.
typedef struct {
    int rounds, runs, count;
} pace;

static pace pace_of(float ms, int count)
{
    enum { FEW = 8 };
    const float small = 0.02f, big = 0.5f;
    if (ms < small) return (pace){ 2, 3, count };
    if (ms < big) return (pace){ 1, 3, count };
    return (pace){ 1, 1, count < FEW ? count : FEW };
}

// The fastest of the proposals, -1 if none runs. A later one has to be better by more than the
// clock's noise, and so has our own kernel, which comes last.
static int fastest(stopwatch *w, const tni_ltproposal *list, int count)
{
    const float margin = 0.98f;
    float       best = -1, ms = -1;
    int         at = -1, first = 0;
    while (first < count && !w->error && (ms = milliseconds(w, &list[first].algo, 1, 1)) < 0)
        first++;
    pace p = pace_of(ms, count);
    for (int i = first; i < p.count && !w->error; i++) {
        ms = milliseconds(w, &list[i].algo, p.rounds, p.runs);
        if (ms < 0 || (at >= 0 && ms > best * margin)) continue;
        at   = i;
        best = ms;
    }
    if (at < 0 || w->error || !w->job->plan->form.small) return at;
    ms       = milliseconds(w, NULL, p.rounds, p.runs);
    w->tried = ms >= 0;
    w->small = w->tried && ms <= best * margin;
    return at;
}

tn_status tni_choice_make(const tni_ltjob *j)
{
    tni_ltproposal list[TNI_PROPOSALS];
    stopwatch      w;
    int            count = 0, at = 0;
    tn_status      s = tni_lt_status(j, tni_lt_propose(j, list, &count), "choosing a product");
    if (s != TN_OK) return s;
    bool open = open_watch(&w, j);
    if (open) at = fastest(&w, list, count);
    close_watch(&w);
    if (w.error) return tni_gpu_status(j->at->cu, w.error, "timing a product", j->why);
    if (at < 0) return TN_EARG;
    if (!open) return TN_OK;
    j->plan->algo    = list[at].algo;
    j->plan->small   = w.small;
    j->plan->settled = j->plan->warm = true;
    self.timed++;
    keep_choice(j, w.tried);
    return TN_OK;
}

void tni_choice_counts(int64_t *timed, int64_t *found)
{
    *timed = self.timed;
    *found = self.found;
}

void tni_choice_forget(void)
{
    self.disk_open = false;
}
