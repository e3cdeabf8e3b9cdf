// Which algorithm a product uses: the fastest of cuBLASLt's proposals and of our own kernel for
// small products. choice.c times them and keeps the choice.
#include "device/cuda/gpu.h"
#include "device/cuda/product_plan.h"
#include "device/cuda/product_small.h"

enum { A, B, D };

// The key on disk is the key without its first OWN_WORDS words (device index, whether choices are
// timed, whether our own kernel applies), which do not concern other processes.
enum { WORDS = sizeof(tni_product_key) / sizeof(int64_t), OWN_WORDS = 3 };
_Static_assert(WORDS - OWN_WORDS <= TNI_CHOICE_WORDS, "a form is a key");

// Counts for tests and statistics, under the lock of the plans.
static struct {
    int64_t timed, found;
} self;

// ---- what is kept ------------------------------------------------------------------------------

// A choice on disk: the library's fastest algorithm and, only if our own kernel was timed as well,
// its version and whether it was faster.
typedef struct {
    tni_ltalgo algo;
    int64_t    version, small;
} choice;

enum { WITHOUT_SMALL = sizeof(tni_ltalgo) };

tni_choice_key tni_lt_choice_key(const tni_ltjob *j)
{
    const int64_t *word = (const int64_t *)&j->plan->key;
    return (tni_choice_key){ .library = "cuBLASLt",
                             .version = j->lt->version(),
                             .gpu     = j->at->gpu,
                             .word    = word + OWN_WORDS,
                             .words   = WORDS - OWN_WORDS };
}

// Returns false if there is nothing on disk, or if our own kernel applies and this version of it
// was not timed: then everything is timed again.
static bool read_kept_choice(const tni_ltjob *j, choice *c)
{
    tni_choice_key k = tni_lt_choice_key(j);
    *c               = (choice){ .version = 0 };
    size_t bytes     = tni_choice_find(&k, c, sizeof *c);
    if (bytes != sizeof *c && bytes != WITHOUT_SMALL) return false;
    return c->version == TNI_SMALL_VERSION || !j->plan->key.small;
}

// The library checks the algorithm first: the file may come from another machine of the same kind
// with other limits, or need a larger workspace than this session has.
bool tni_lt_find_choice(const tni_ltjob *j)
{
    tni_ltproposal seen;
    choice         c;
    tni_ltplan    *n = j->plan;
    if (!read_kept_choice(j, &c)) return false;
    int e = j->lt->check(n->handle, n->desc, n->layout[A], n->layout[B], n->layout[D], n->layout[D],
                         &c.algo, &seen);
    if (e != TNI_LT_OK || seen.status != TNI_LT_OK || seen.workspace > j->at->bytes) return false;
    n->algo         = c.algo;
    n->small_faster = n->key.small && c.small;
    self.found++;
    return true;
}

// tried: our own kernel was timed. If it could not run, that is left out, and the next process
// tries it again.
static void keep_choice(const tni_ltjob *j, bool tried)
{
    const tni_ltplan *n = j->plan;
    tni_choice_key    k = tni_lt_choice_key(j);
    choice c = { .algo = n->algo, .version = TNI_SMALL_VERSION, .small = n->small_faster };
    tni_choice_keep(&k, &c, tried ? sizeof c : WITHOUT_SMALL);
}

// ---- what is timed -----------------------------------------------------------------------------

// The candidates of a product: proposals, then our own kernel if it applies. out is where D goes:
// scratch if D is also the residual.
typedef struct {
    const tni_ltjob *job;
    tni_ltproposal   list[TNI_PROPOSALS];
    int              count;
    char            *out;
    tni_cuptr        scratch;
} trial;

size_t tni_lt_result_bytes(const tni_product *p)
{
    const tni_matrix *d     = &p->x[D];
    int64_t           count = (p->batch - 1) * d->batch_stride + (d->cols - 1) * d->ld + d->rows;
    return (size_t)count * tni_dtype_size(p->out);
}

// If D is also the residual, each timed launch would add to the real value. D then goes to scratch,
// filled with zeros so that the launches add defined values. Returns an error of the driver.
static int open_scratch(trial *t)
{
    const tni_ltjob *j = t->job;
    t->out             = j->p->at[D];
    if (!tni_product_accumulates(j->p)) return TNI_CU_OK;
    size_t bytes = tni_lt_result_bytes(j->p);
    int    e     = j->at->cu->mem_alloc(&t->scratch, bytes);
    if (e) return e;
    t->out = (char *)(uintptr_t)t->scratch;
    return j->at->cu->set8(t->scratch, 0, bytes, j->at->stream);
}

static void close_scratch(const trial *t)
{
    const tni_product_env *at = t->job->at;
    if (!t->scratch) return;
    at->cu->stream_wait(at->stream);
    at->cu->mem_free(t->scratch);
}

// Candidate i of tni_choice_time: proposals first, then our own kernel.
static int launch_candidate(void *session, int i)
{
    static const int64_t start[3] = { 0 };
    const trial         *t        = session;
    const tni_ltjob     *j        = t->job;
    if (i < t->count) return tni_lt_multiply(j, &t->list[i].algo, start, t->out);
    return j->at->launch_small(j->at->session, j->p, t->out);
}

// Times the proposals and, if it applies, our own kernel.
static int time_candidates(trial *t, float *ms)
{
    const tni_product_env *at  = t->job->at;
    int                    own = t->job->plan->key.small != 0;
    tni_candidates         c   = { .cu        = at->cu,
                                   .stream    = at->stream,
                                   .workspace = at->workspace,
                                   .bytes     = at->bytes,
                                   .count     = t->count + own,
                                   .own       = own,
                                   .launch    = launch_candidate,
                                   .session   = t };
    int                    e   = open_scratch(t);
    if (!e) e = tni_choice_time(&c, ms);
    close_scratch(t);
    return e;
}

// Out of memory for scratch is no error: the algorithm that the library proposed first stays, and
// the next run tries again. Both the library's best and whether our own kernel beats it are kept,
// since a run may have to use the library while the kernel is being compiled.
tn_status tni_lt_choose(const tni_ltjob *j)
{
    trial       t                     = { .job = j };
    float       ms[TNI_PROPOSALS + 1] = { 0 };
    tni_ltplan *n                     = j->plan;
    tn_status   s = tni_lt_status(j, tni_lt_propose(j, t.list, &t.count), "choosing a product");
    if (s != TN_OK) return s;
    int e = time_candidates(&t, ms);
    if (e == TNI_CU_OUT_OF_MEMORY) return TN_OK;
    if (e) return tni_gpu_status(j->at->cu, e, "timing a product", j->why);
    int at = tni_choice_best(ms, t.count);
    if (at < 0) return TN_EARG;
    n->algo         = t.list[at].algo;
    n->small_faster = n->key.small && tni_choice_best(ms, t.count + 1) == t.count;
    n->settled = n->warm = true;
    self.timed++;
    keep_choice(j, n->key.small && ms[t.count] >= 0);
    return TN_OK;
}

void tni_lt_counts(int64_t *timed, int64_t *found)
{
    *timed = self.timed;
    *found = self.found;
}
