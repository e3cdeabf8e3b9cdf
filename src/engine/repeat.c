// A step again, at the next place, without recording it.
//
// Generating a token records the same nodes as the token before: the plan is the same, and so is
// every argument of its kernels and calls, except that some move on (where keys are written, random
// counters) and that the result goes to the memory of the one before the last. All these arguments
// are words of 64 bits in the plan's launches and calls. So after each recorded step its words are
// noted, and if those of the last four steps moved by the same amounts, the words of the next are
// known: they are moved, and the plan is submitted.
//
// What a step must be like: it cannot fail, every value that outlives it is written in place except
// the result, and every input outlives it. What may happen between two steps: nothing that records,
// evaluates, takes memory or changes a mode or the random numbers (`surroundings`). Otherwise the
// caller records, and it settles again.
//
// The caller promises that recording would go on in the same way. Words that are addresses stay
// inside the buffer that they pointed into all the same.
#include "engine/run.h"

#include <string.h>

// Results alternate between two buffers, so a step is compared with the one before the last.
enum { PERIOD = 2, RUNS = 2 * PERIOD };

// A word that may differ between runs. size is that of an element if the word is an offset from
// *base, 1 if it is an address (base NULL), 0 if it is a number.
typedef struct {
    int64_t *at;
    char   **base;
    int64_t  size;
    size_t   step;  // of the plan
} word;

// A word that moves: what it is in the next run and in the one after it, by how much both grow
// afterwards, and the range that addresses stay in.
typedef struct {
    word     word;
    int64_t  next[PERIOD], by;
    intptr_t first, end;
} moving;

// What must be as the last step left it. Zeroed before it is filled, so that it can be compared by
// its bytes.
typedef struct {
    uint64_t id, evaluations, tunings, taken, seed, counter;
    unsigned watch, grad_mode, autocast;
} surroundings;

struct tni_repeat {
    tn_ctx         *cx;
    const tni_node *result;  // of the step being evaluated
    tni_plan       *plan;    // of the runs noted
    uint64_t        noted;   // runs in a row
    tni_bound_step *step;    // by step of the plan
    word           *word;
    int64_t        *value[RUNS];  // of all words, by run
    size_t          words;
    moving         *move;
    size_t          moves;
    bool            settled;
    tn_tensor      *fetched;   // of the run being submitted: its result,
    int             fetches;   // how many elements of it are copied to the host,
    int64_t        *ticket;    // and their tickets
    uint64_t        runs;      // since it settled
    int64_t         launches;  // in a run
    surroundings    left;
};

// ---- memory ------------------------------------------------------------------------------------

static void forget_runs(tni_repeat *t)
{
    tni_heap *h = &t->cx->heap;
    tni_free(h, t->step);
    tni_free(h, t->word);
    tni_free(h, t->move);
    for (int i = 0; i < RUNS; i++) tni_free(h, t->value[i]);
    *t = (tni_repeat){ .cx = t->cx, .result = t->result };
}

tni_repeat *tni_repeat_new(tn_ctx *cx)
{
    tni_repeat *t = tni_zalloc(&cx->heap, sizeof *t);
    if (t) t->cx = cx;
    return t;
}

void tni_repeat_free(tni_repeat *t)
{
    if (!t) return;
    forget_runs(t);
    tni_free(&t->cx->heap, t);
}

// ---- words -------------------------------------------------------------------------------------

// Adds a word to the list; without one, only counts it.
static size_t add_word(word *list, size_t n, void *at, char **base, int64_t size)
{
    if (list) list[n] = (word){ at, base, size, SIZE_MAX };
    return n + 1;
}

// Lists the words of a kernel's launch behind the n listed so far. Returns their number.
static size_t kernel_words(const tni_engine *e, tni_planned_kernel *k, word *list, size_t n)
{
    tni_launch *l = &k->launch;
    for (int i = 0; i < k->kernel->nbuffer; i++) n = add_word(list, n, &l->buffer[i], NULL, 1);
    for (int i = 0; i < k->kernel->naccess; i++) {
        int    b    = k->kernel->access[i].buffer;
        size_t size = b < 0 ? 0
                            : e->device->memory->element_size((tn_dtype)k->kernel->buffer[b].dtype);
        n           = add_word(list, n, &l->offset[i], b < 0 ? NULL : &l->buffer[b], (int64_t)size);
    }
    for (int i = 0; i < k->kernel->nnumber; i++) n = add_word(list, n, &l->number[i], NULL, 0);
    return add_word(list, n, &l->scratch, NULL, 1);
}

// Lists the attributes of a call that are arguments of a run. Those of a view are in the addresses.
static size_t attr_words(tni_bound_step *s, word *list, size_t n)
{
    switch ((tni_attr_kind)tni_op_table[s->call.op].attr) {
#define KIND(kind)          \
    case TNI_ATTR_##kind: { \
        struct tni_attr_##kind *a = &s->attr.kind;
#define FIELD(whose, type, name, array) LIST_##whose(a->name)
#define END(kind) \
    (void)a;      \
    break;        \
    }
#define LIST_RUN(x) \
    if (sizeof x == sizeof(int64_t)) n = add_word(list, n, &x, NULL, 0);
#define LIST_KEY(x)
#define LIST_AXES(x)
#define LIST_PLACE(x)
#define LIST_BYTES(x)
#define LIST_GRAD(x)
#include "tensor/attr.def"
#undef KIND
#undef FIELD
#undef END
    case TNI_ATTR_none:
    case TNI_ATTR_KINDS: break;
    }
    return n;
}

// Lists the words of a call: addresses and attributes.
static size_t call_words(tni_bound_step *s, word *list, size_t n)
{
    n = add_word(list, n, &s->call.out.data, NULL, 1);
    for (int i = 0; i < s->call.nin + s->call.nmore; i++)
        n = add_word(list, n, &s->arg[i].data, NULL, 1);
    n = attr_words(s, list, n);
    return add_word(list, n, &s->call.scratch, NULL, 1);
}

// Lists all words: the context's random numbers, then those of each step.
static size_t all_words(tni_repeat *t, word *list)
{
    size_t n = add_word(list, 0, &t->cx->seed, NULL, 0);
    n        = add_word(list, n, &t->cx->counter, NULL, 0);
    for (size_t i = 0; i < t->plan->steps; i++) {
        tni_bound_step *s     = &t->step[i];
        size_t          first = n;
        if (s->kernel) n = kernel_words(t->cx->engine, s->kernel, list, n);
        if (s->calls) n = call_words(s, list, n);
        for (size_t k = first; list && k < n; k++) list[k].step = i;
    }
    return n;
}

// ---- noting a run ------------------------------------------------------------------------------

// Whether a stored value of the run is in the buffer of input i.
static bool is_written_to(const tni_run *r, size_t input)
{
    for (size_t i = 0; i < r->g->count; i++) {
        const tni_place *p = &r->plan->place[i];
        if (!r->g->item[i].why) continue;
        if (p->where == TNI_INPUT && p->root == input) return true;
        const tni_place *root = p->where == TNI_OWN ? &r->plan->place[p->root] : p;
        if (!root->donated) continue;
        if (root->donor < 0 ? (size_t)~root->donor == input
                            : r->plan->place[root->donor].where == TNI_INPUT &&
                                  r->plan->place[root->donor].root == input)
            return true;
    }
    return false;
}

// Whether the items of a run are such that the next run can follow: none can fail, and none makes a
// lasting value in memory of its own but the result.
static bool items_repeat(const tni_repeat *t, const tni_run *r)
{
    for (size_t i = 0; i < r->g->count; i++) {
        const tni_node  *n = r->g->item[i].n;
        const tni_place *p = &r->plan->place[i];
        if (tni_node_may_fail(n) || n->op == TNI_custom || n->op == TNI_loop) return false;
        if (n->op == TNI_update && !p->in_place) return false;
        if (p->where == TNI_OWN && p->root == i && !p->donated && n != t->result) return false;
    }
    return true;
}

// Whether a run can be repeated at all.
static bool run_repeats(const tni_repeat *t, const tni_run *r, bool stays)
{
    const tni_plan *p = r->plan;
    if (!stays || r->e->watch || !p->ready || !p->scratch_known || p->errors) return false;
    for (size_t i = 0; i < r->g->inputs; i++)
        if (r->g->input[i].dies && !is_written_to(r, i)) return false;
    return items_repeat(t, r);
}

// Begins with another plan. False when memory is out.
static bool begin_plan(tni_repeat *t, const tni_run *r)
{
    tni_heap *h = &t->cx->heap;
    forget_runs(t);
    t->plan = r->plan;
    t->step = tni_zalloc(h, t->plan->steps * sizeof *t->step + 1);
    if (!t->step) return false;
    t->launches = tni_bind_steps(r, t->step, NULL);
    t->words    = all_words(t, NULL);
    t->word     = tni_alloc(h, t->words * sizeof *t->word);
    t->move     = tni_alloc(h, t->words * sizeof *t->move);
    bool ok     = t->word && t->move;
    for (int i = 0; i < RUNS; i++) {
        t->value[i] = tni_alloc(h, t->words * sizeof *t->value[i]);
        ok &= t->value[i] != NULL;
    }
    if (ok) all_words(t, t->word);
    return ok;
}

// ---- settling ----------------------------------------------------------------------------------

static intptr_t address_of(const word *w, int64_t value)
{
    return (intptr_t)((w->base ? (int64_t)(intptr_t)*w->base : 0) + value * w->size);
}

// Finds the buffer of an input that a moving address is in. False if it is in none: it would leave
// the memory of one run for memory that is not the loop's.
static bool find_range(const tni_run *r, moving *m, int64_t value)
{
    intptr_t at = address_of(&m->word, value);
    for (size_t i = 0; i < r->g->inputs; i++) {
        const tni_buffer *b = r->g->input[i].n->buf;
        m->first            = (intptr_t)b->data;
        m->end              = m->first + (intptr_t)b->bytes;
        if (at >= m->first && at < m->end) return true;
    }
    return false;
}

// Finds how word i goes on. False if it does not: it moved by another amount the last time, or
// leaves its memory.
static bool settle_word(tni_repeat *t, const tni_run *r, size_t i)
{
    int64_t v[RUNS];
    for (size_t k = 0; k < RUNS; k++) v[k] = t->value[(t->noted + k) % RUNS][i];
    int64_t by = (int64_t)((uint64_t)v[2] - (uint64_t)v[0]);
    if (by != (int64_t)((uint64_t)v[3] - (uint64_t)v[1])) return false;
    if (!by && v[2] == v[3]) return true;
    moving m = { .word = t->word[i],
                 .by   = by,
                 .next = { (int64_t)((uint64_t)v[2] + (uint64_t)by),
                           (int64_t)((uint64_t)v[3] + (uint64_t)by) } };
    if (by && m.word.size && !find_range(r, &m, v[3])) return false;
    if (!by || !m.word.size) m.first = INTPTR_MIN, m.end = INTPTR_MAX;
    t->move[t->moves++] = m;
    if (m.word.step != SIZE_MAX) {
        const tni_planned_kernel *k = t->step[m.word.step].kernel;
        t->step[m.word.step].moves  = true;
        if (k && k->is_prologue) t->step[m.word.step + 1].moves = true;  // which launches it
    }
    return true;
}

// Called when the run succeeded, with its nodes and memory still there.
void tni_repeat_note(tni_repeat *t, const tni_run *r, bool stays)
{
    t->settled = false;
    if (!run_repeats(t, r, stays)) {
        t->noted = 0;
        return;
    }
    bool same = t->plan == r->plan && t->noted;
    if (!same && !begin_plan(t, r)) {
        forget_runs(t);
        return;
    }
    if (same) t->launches = tni_bind_steps(r, t->step, NULL);
    int64_t *value = t->value[t->noted++ % RUNS];
    for (size_t i = 0; i < t->words; i++) value[i] = *t->word[i].at;
    t->moves   = 0;
    t->runs    = 0;
    t->settled = t->noted >= RUNS;
    for (size_t i = 0; i < t->words && t->settled; i++) t->settled = settle_word(t, r, i);
}

static surroundings look_around(const tn_ctx *cx)
{
    surroundings s;
    memset(&s, 0, sizeof s);
    s.id          = cx->next_id;
    s.evaluations = cx->engine->evaluations;
    s.tunings     = cx->engine->tunings;
    s.taken       = cx->buffers.taken;
    s.seed        = cx->seed;
    s.counter     = cx->counter;
    s.watch       = cx->engine->watch;
    s.grad_mode   = cx->grad_mode;
    s.autocast    = (unsigned)cx->autocast;
    return s;
}

tn_status tni_repeat_eval(tni_repeat *t, tn_tensor *result)
{
    t->result             = tni_resolve(result, "eval");
    t->cx->engine->repeat = t;
    tn_status s           = tn_eval(t->cx);
    t->cx->engine->repeat = NULL;
    if (s != TN_OK) t->noted = 0, t->settled = false;
    t->left = look_around(t->cx);
    return s;
}

// ---- running -----------------------------------------------------------------------------------

// If anything has happened since the last step, what was noted says nothing about the next; the
// plan may even have been freed.
bool tni_repeat_settled(tni_repeat *t)
{
    surroundings now = look_around(t->cx);
    if (memcmp(&now, &t->left, sizeof now) != 0) t->noted = 0, t->settled = false;
    if (!t->settled) return false;
    for (size_t i = 0; i < t->moves; i++) {
        const moving *m = &t->move[i];
        intptr_t at = m->by && m->word.size ? address_of(&m->word, m->next[t->runs % PERIOD]) : 0;
        if (at && (at < m->first || at >= m->end)) return false;
    }
    return true;
}

// Runs a step with the arguments that are in place.
static bool run_again(tni_repeat *t, tni_bound_step *s)
{
    tni_text  why = { "" };
    tn_status st  = tni_run_bound_step(t->cx, s, &why);
    if (st != TN_OK) tni_fail_status(t->cx, st, "evaluating: %s", why.s);
    return st == TN_OK;
}

static bool submit_again(void *arg, bool changed_only)
{
    tni_repeat *t  = arg;
    bool        ok = true;
    for (size_t i = 0; ok && i < t->plan->steps; i++) {
        if (changed_only && !t->step[i].moves) continue;
        tni_mark_step(t->cx->engine, i);
        ok = run_again(t, &t->step[i]);
    }
    if (ok && t->fetches) tni_mark_step(t->cx->engine, t->plan->steps);
    for (int i = 0; ok && i < t->fetches; i++) t->ticket[i] = tni_fetch_begin(t->fetched, i);
    return ok;
}

// Moves the words and submits the plan.
tn_status tni_repeat_run(tni_repeat *t, tn_tensor *result, int n, int64_t *ticket)
{
    tn_ctx   *cx = t->cx;
    tn_status s  = tni_deferred_errors_check(cx);
    t->fetched   = result;
    t->fetches   = n;
    t->ticket    = ticket;
    if (s == TN_OK && cx->engine->stop_asked && tni_stops(cx, t->plan, 0)) s = TN_ESTOP;
    for (size_t i = 0; s == TN_OK && i < t->moves; i++) {
        moving *m   = &t->move[i];
        *m->word.at = m->next[t->runs % PERIOD];
        m->next[t->runs % PERIOD] += m->by;
    }
    if (s == TN_OK && !tni_submit_plan(cx, t->plan, t->runs > 0, submit_again, t)) s = tni_failed();
    t->runs++;
    t->plan->runs++;
    cx->stats.launches += t->launches;
    cx->engine->steps++;
    t->settled &= s == TN_OK;
    t->left = look_around(cx);
    return s;
}
