// Algorithms that cuBLASLt does not propose, in a run that tunes.
//
// An algorithm of the library is a number with settings: a tile of the result, stages, a cluster of
// blocks, and an option that is not documented. The library proposes eight; the fastest of them is
// the rule's choice. What is faster mostly has a tile of an odd size, presumably because the last
// round of the multiprocessors is fuller. The search begins with the proposals and changes one or
// two settings of those that were fastest: first tiles of the best two, in the order of what they
// promise (lt_tiles.c), then clusters, options and stages of the best three, and both once more.
// For 32,768 x 3,072 times 3,072 x 768 in bf16 on an H200 the fastest proposal takes 197.2 us, and
// algorithm 66 with tile 408 (128 x 168), cluster 5 and option 3 191.8.
//
// Candidates write to memory of the search. The library's check says whether an algorithm can run,
// not whether it is right: what has won two contests against the best so far also has to give the
// results of the rule's choice. What was measured is kept with the plan, so that a search whose
// time runs out goes on in a later run.
#include "device/cuda/library_log.h"
#include "device/cuda/lt_tiles.h"
#include "device/cuda/product_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Settings that tell algorithms apart. The last two stay as proposed: into how many parts the inner
// axis is divided, and the order of blocks.
enum { NUMBER, TILE, STAGES, CLUSTER, OPTION, PARTS, SWIZZLE, SETTINGS };
static const struct {
    const char *name;
    int         attribute;
    size_t      bytes;
} setting[SETTINGS] = { [NUMBER]  = { "algorithm", TNI_LT_ALGO_NUMBER, 4 },
                        [TILE]    = { "tile", TNI_LT_ALGO_TILE, 4 },
                        [STAGES]  = { "stages", TNI_LT_ALGO_STAGES, 4 },
                        [CLUSTER] = { "cluster", TNI_LT_ALGO_CLUSTER, 2 },
                        [OPTION]  = { "option", TNI_LT_ALGO_OPTION, 4 },
                        [PARTS]   = { "parts", TNI_LT_ALGO_PARTS, 4 },
                        [SWIZZLE] = { "swizzle", TNI_LT_ALGO_SWIZZLE, 4 } };

// An algorithm that was measured, if ms is not negative. lost: it was slower in a contest; wrong:
// it gave other results.
typedef struct {
    tni_ltalgo algo;
    int32_t    of[SETTINGS];
    float      ms;
    bool       lost, wrong;
} tried;

// What was measured for a plan so far. told: what was found was told.
struct tni_ltsearch {
    tried *list;
    int    count, room;
    bool   told;
};

// Memory of a search.
typedef struct {
    void *held;
    char *at;
} memory;

// A search while it runs. Results go to have, those of the rule's choice to want, and the inputs of
// gelu, if they are stored, beside them; bytes: of each. began: changes of the plan's algorithm
// before.
typedef struct {
    const tni_ltjob     *job;
    tni_call_search     *request;
    struct tni_ltsearch *found;
    tni_candidates       one;
    const tni_ltalgo    *now;  // that `one` launches
    memory               have, want, have_input, want_input;
    size_t               bytes;
    int                  runs;  // of a sample
    float                best;
    int64_t              began;
    bool                 stopped;
} search;

enum { A, B, D };

_Static_assert(sizeof(tni_ltalgo) == TNI_ALGORITHM_BYTES, "a winner holds an algorithm");

// ---- settings ----------------------------------------------------------------------------------

static int32_t get_setting(const tni_blaslt *lt, const tni_ltalgo *algo, int i)
{
    uint32_t value = 0;  // of which a setting of 16 bits fills the lower half
    size_t   got   = 0;
    lt->algo_get(algo, setting[i].attribute, &value, setting[i].bytes, &got);
    return (int32_t)value;
}

tni_text tni_lt_algo_text(const tni_blaslt *lt, const tni_ltalgo *algo)
{
    tni_text s = { "" };
    for (int i = 0; i < SETTINGS; i++)
        tni_text_add(&s, "%s%s %d", i ? ", " : "", setting[i].name, get_setting(lt, algo, i));
    return s;
}

// Reads a list of what algorithms of a number can be; the count of its elements.
static int get_list(const tni_blaslt *lt, const tni_ltalgo *algo, int attribute, int32_t *list,
                    int room)
{
    size_t bytes = 0;
    if (lt->algo_has(algo, attribute, list, (size_t)room * sizeof *list, &bytes)) return 0;
    return (int)(bytes / sizeof *list);
}

// ---- launches ----------------------------------------------------------------------------------

// The candidate of tni_choice_time_one, whatever its number.
static int launch_now(void *session, int i)
{
    static const int64_t start[3] = { 0 };
    const search        *s        = session;
    (void)i;
    return tni_lt_multiply(s->job, s->now, start, s->have.at);
}

static float time_algo(search *s, const tni_ltalgo *algo, int runs)
{
    s->now = algo;
    return tni_choice_time_one(&s->one, 0, 1, runs);
}

// A sample of a contest.
static double sample(void *arg, const void *algo)
{
    search *s  = arg;
    float   ms = time_algo(s, algo, s->runs);
    return ms < 0 ? INFINITY : 1e-3 * (double)ms;
}

// ---- results -----------------------------------------------------------------------------------

static int fill(const search *s, const memory *m, unsigned char with)
{
    const tni_product_env *at = s->job->at;
    return at->cu->set8((tni_cuptr)(uintptr_t)m->at, with, s->bytes, at->stream);
}

static int copy(const search *s, const char *to, const char *from)
{
    const tni_product_env *at = s->job->at;
    return at->cu->copy((tni_cuptr)(uintptr_t)to, (tni_cuptr)(uintptr_t)from, s->bytes, at->stream);
}

// Computes the product by an algorithm in memory of NaNs or, if D is also what is added, of that.
static bool run_fresh(search *s, const tni_ltalgo *algo)
{
    const tni_product *p = s->job->p;
    int e = tni_product_accumulates(p) ? copy(s, s->have.at, p->at[D]) : fill(s, &s->have, 0xff);
    if (!e && s->have_input.at) e = fill(s, &s->have_input, 0xff);
    s->now = algo;
    return !e && !launch_now(s, 0);
}

// Whether n elements of two results agree, from an element on.
static bool part_agrees(const search *s, const memory *a, const memory *b, int64_t from, int64_t n)
{
    const tni_call_search *r  = s->request;
    tn_dtype               dt = s->job->p->out;
    size_t                 at = (size_t)from * tni_dtype_size(dt);
    return r->agree(r->arg, dt, a->at + at, b->at + at, n);
}

// Whether two results agree.
static bool agree(const search *s, const memory *a, const memory *b)
{
    return part_agrees(s, a, b, 0, (int64_t)(s->bytes / tni_dtype_size(s->job->p->out)));
}

// Keeps what the rule's choice gives. False where SOME elements in the middle are zeros or NaNs, of
// operands that are not trained yet or have overflowed: whatever an algorithm leaves out, its
// result would be the same.
static bool keep_rule(search *s)
{
    enum { SOME = 1 << 14 };
    int64_t n    = (int64_t)(s->bytes / tni_dtype_size(s->job->p->out));
    int64_t some = n < SOME ? n : SOME, middle = (n - some) / 2;
    if (!run_fresh(s, &s->job->plan->rule) || copy(s, s->want.at, s->have.at)) return false;
    if (s->have_input.at && copy(s, s->want_input.at, s->have_input.at)) return false;
    return !fill(s, &s->have, 0) && !part_agrees(s, &s->have, &s->want, middle, some) &&
           !fill(s, &s->have, 0xff) && !part_agrees(s, &s->have, &s->want, middle, some);
}

static bool is_right(search *s, const tni_ltalgo *algo)
{
    bool right = run_fresh(s, algo) && agree(s, &s->have, &s->want) &&
                 (!s->have_input.at || agree(s, &s->have_input, &s->want_input));
    if (!right)
        tni_library_log("matmul: other results, so that it is left out: %s",
                        tni_lt_algo_text(s->job->lt, algo).s);
    return right;
}

// ---- candidates --------------------------------------------------------------------------------

static tried *find_tried(const search *s, const int32_t of[SETTINGS])
{
    for (int i = 0; i < s->found->count; i++)
        if (!memcmp(s->found->list[i].of, of, sizeof s->found->list[i].of))
            return &s->found->list[i];
    return NULL;
}

static tried *find_algo(const search *s, const tni_ltalgo *algo)
{
    for (int i = 0; i < s->found->count; i++)
        if (!memcmp(&s->found->list[i].algo, algo, sizeof *algo)) return &s->found->list[i];
    return NULL;
}

// Adds an algorithm and measures it, twice as long if it is among the fastest. Without memory the
// search ends.
static void measure(search *s, tried *x)
{
    struct tni_ltsearch *f = s->found;
    if (f->count == f->room) {
        int    room = f->room ? 2 * f->room : 64;
        tried *more = realloc(f->list, (size_t)room * sizeof *more);
        s->stopped |= !more;
        if (!more) return;
        f->list = more;
        f->room = room;
    }
    x->ms = time_algo(s, &x->algo, 1);
    if (x->ms >= 0 && (s->best < 0 || x->ms < 1.15f * s->best)) {
        float again = time_algo(s, &x->algo, 2);
        if (again >= 0 && again < x->ms) x->ms = again;
    }
    if (x->ms >= 0 && (s->best < 0 || x->ms < s->best)) s->best = x->ms;
    f->list[f->count++] = *x;
}

// Whether an algorithm asks for no more than 16 bytes of alignment, which all operands have; the
// library's check knows no addresses.
static bool aligns(const tni_blaslt *lt, const tni_ltalgo *algo)
{
    bool ok = true;
    for (int i = 0; i < 4; i++) {
        int32_t bytes = 0;
        get_list(lt, algo, TNI_LT_HAS_ALIGN_A + i, &bytes, 1);
        ok &= bytes <= 16;
    }
    return ok;
}

// Measures an algorithm with other settings, unless it was measured. False if the library does not
// accept it, or time is up.
static bool try_settings(search *s, const tried *from, const int32_t of[SETTINGS])
{
    const tni_ltjob  *j = s->job;
    const tni_ltplan *n = j->plan;
    tni_ltproposal    seen;
    tried             x = *from;
    int               e = 0;
    if (s->stopped) return false;
    if (find_tried(s, of)) return true;
    memcpy(x.of, of, sizeof x.of);
    for (int i = 0; i < SETTINGS && !e; i++)
        if (of[i] != from->of[i])
            e = j->lt->algo_set(&x.algo, setting[i].attribute, &of[i], setting[i].bytes);
    if (!e)
        e = j->lt->check(n->handle, n->desc, n->layout[A], n->layout[B], n->layout[D], n->layout[D],
                         &x.algo, &seen);
    if (e || seen.status != TNI_LT_OK || seen.workspace > j->at->bytes || !aligns(j->lt, &x.algo))
        return false;
    s->stopped = !s->request->may_go_on(s->request->arg);
    x.lost = x.wrong = false;
    if (!s->stopped) measure(s, &x);
    return !s->stopped;
}

// Copies the fastest `most` that are not known to be wrong, the fastest first; returns how many
// there are.
static int list_fastest(const search *s, tried *to, int most)
{
    int count = 0;
    for (int i = 0; i < s->found->count; i++) {
        const tried *x = &s->found->list[i];
        if (x->wrong || x->ms < 0 || (count == most && x->ms >= to[count - 1].ms)) continue;
        int at = count < most ? count++ : count - 1;
        for (; at > 0 && x->ms < to[at - 1].ms; at--) to[at] = to[at - 1];
        to[at] = *x;
    }
    return count;
}

// The library's proposals, and the algorithm that is used. They may differ in what is no setting
// here.
static void try_proposals(search *s)
{
    const tni_ltjob *j = s->job;
    tni_ltproposal   list[TNI_PROPOSALS + 1];
    int              count = 0;
    if (tni_lt_propose(j, list, &count)) count = 0;
    list[count++].algo = j->plan->algo;
    for (int i = count - 1; i >= 0 && !s->stopped; i--) {
        tried x = { .algo = list[i].algo };
        for (int k = 0; k < SETTINGS; k++) x.of[k] = get_setting(j->lt, &x.algo, k);
        if (find_algo(s, &x.algo)) continue;
        s->stopped = !s->request->may_go_on(s->request->arg);
        if (!s->stopped) measure(s, &x);
    }
}

// All clusters, options and stages of an algorithm together: they depend on each other. OPTIONS:
// more are of old algorithms, which have a hundred that are alike.
static void try_shapes(search *s, const tried *from)
{
    enum { OPTIONS = 8, STAGES_MOST = 32 };
    const tni_blaslt *lt       = s->job->lt;
    int32_t           options  = 0, stages[STAGES_MOST], of[SETTINGS];
    int               count    = get_list(lt, &from->algo, TNI_LT_HAS_STAGES, stages, STAGES_MOST);
    bool              clusters = from->of[CLUSTER] >= TNI_LT_CLUSTER_ONE;
    get_list(lt, &from->algo, TNI_LT_HAS_OPTION, &options, 1);
    if (options >= OPTIONS) options = OPTIONS - 1;
    if (!count) stages[count++] = from->of[STAGES];
    memcpy(of, from->of, sizeof of);
    int first = clusters ? TNI_LT_CLUSTER_ONE : from->of[CLUSTER];
    int last  = clusters ? TNI_LT_CLUSTER_SIXTEEN : first;
    for (of[CLUSTER] = first; of[CLUSTER] <= last; of[CLUSTER]++)
        for (of[OPTION] = 0; of[OPTION] <= options; of[OPTION]++)
            for (int i = 0; i < count; i++) {
                of[STAGES] = stages[i];
                try_settings(s, from, of);
            }
}

// A tile of an algorithm, and what it promises.
typedef struct {
    double  expected;
    int32_t number;
} promise;

static int by_promise(const void *a, const void *b)
{
    const promise *x = a, *y = b;
    if (x->expected != y->expected) return x->expected < y->expected ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

// The tiles of an algorithm that promise most. MEASURED: of some 200; the others take up to ten
// times as long.
static void try_tiles(search *s, const tried *from)
{
    enum { TILES = 1024, MEASURED = 48 };
    const tni_product_key *k = &s->job->plan->key;
    tni_lt_extent          e = { k->rows, k->cols, k->batch, from->of[PARTS], s->job->at->units };
    int32_t                tile[TILES], of[SETTINGS];
    promise                p[TILES];
    int count = get_list(s->job->lt, &from->algo, TNI_LT_HAS_TILES, tile, TILES), measured = 0;
    memcpy(of, from->of, sizeof of);
    for (int i = 0; i < count; i++) p[i] = (promise){ tni_lt_tile_expect(&e, tile[i]), tile[i] };
    qsort(p, (size_t)count, sizeof *p, by_promise);
    for (int i = 0; i < count && measured < MEASURED && !s->stopped; i++) {
        of[TILE] = p[i].number;
        measured += try_settings(s, from, of);
    }
}

// Tiles first, which matter most if time is short; twice, since the best shapes of another tile are
// others. Of few, since each costs a hundred launches.
static void try_all(search *s)
{
    enum { ROUNDS = 2, SHAPED = 3, TILED = 2 };
    tried best[SHAPED];
    try_proposals(s);
    for (int round = 0; round < ROUNDS && !s->stopped; round++) {
        int n = list_fastest(s, best, TILED);
        for (int i = 0; i < n; i++) try_tiles(s, &best[i]);
        n = list_fastest(s, best, SHAPED);
        for (int i = 0; i < n; i++) try_shapes(s, &best[i]);
    }
}

// ---- winners -----------------------------------------------------------------------------------

// The bytes by which winners are found: the library's version, and the form.
enum { KEY_WORDS = TNI_CHOICE_WORDS + 1 };
static size_t write_winner_key(const tni_ltjob *j, int64_t word[KEY_WORDS])
{
    tni_choice_key k = tni_lt_choice_key(j);
    word[0]          = (int64_t)k.version;
    memcpy(word + 1, k.word, (size_t)k.words * sizeof *word);
    return (size_t)(k.words + 1) * sizeof *word;
}

bool tni_lt_find_winner(const tni_ltjob *j, tni_tuned *won, tni_ltalgo *algo)
{
    int64_t word[KEY_WORDS];
    size_t  bytes = write_winner_key(j, word);
    if (!tni_tuned_find_bytes(j->at->gpu, word, bytes, won)) return false;
    if (won->algorithm.n) memcpy(algo, won->algorithm.byte, sizeof *algo);
    return true;
}

// The library here may have other limits than the one that the winner was found with.
void tni_lt_take_winner(const tni_ltjob *j)
{
    tni_ltplan    *n    = j->plan;
    tni_ltalgo     algo = n->rule;
    tni_ltproposal seen;
    tni_tuned      won;
    if (!tni_lt_find_winner(j, &won, &algo)) return;
    int e = j->lt->check(n->handle, n->desc, n->layout[A], n->layout[B], n->layout[D], n->layout[D],
                         &algo, &seen);
    if (e || seen.status != TNI_LT_OK || seen.workspace > j->at->bytes) return;
    n->tuned = won;
    tni_lt_use(n, &algo);
}

// Returns the fastest that has neither lost nor is used; NULL if none was faster than that when it
// was measured.
static tried *next_finalist(const search *s, double now_ms)
{
    tried *best = NULL;
    for (int i = 0; i < s->found->count; i++) {
        tried *x    = &s->found->list[i];
        bool   lost = x->lost || x->wrong || x->ms < 0 || x->ms >= now_ms;
        if (lost || (best && x->ms >= best->ms)) continue;
        if (memcmp(&x->algo, &s->job->plan->algo, sizeof x->algo)) best = x;
    }
    return best;
}

// Lets the fastest meet the best so far, one after the other: the first also where the time is
// over, or searches that are cut short would come to nothing. Whether one is right is asked when it
// has won, since that takes longer; those that are wrong do not take the place of others. next_us:
// of the best that has lost.
static void hold_contests(search *s, double *next_us)
{
    enum { FINALISTS = 4, WRONG = 32 };
    tni_ltplan *n      = s->job->plan;
    double      now_ms = 1e3 * sample(s, &n->algo);
    for (int met = 0, wrong = 0; met < FINALISTS && wrong < WRONG;) {
        double us[2] = { 0 };
        tried *x     = next_finalist(s, now_ms);
        bool   first = !met && !wrong;
        if (!x || !(first || s->request->may_go_on(s->request->arg))) break;
        x->lost  = !tni_wins(sample, s, &n->algo, &x->algo, TNI_CONTESTS, us);
        x->wrong = !x->lost && !is_right(s, &x->algo);
        if (x->wrong) wrong++;
        else met++;
        double loser = us[x->lost];
        if (!x->wrong && isfinite(loser) && (*next_us <= 0 || loser < *next_us)) *next_us = loser;
        if (x->wrong || x->lost) continue;
        tni_lt_use(n, &x->algo);
        now_ms = 1e-3 * us[1];
    }
}

// The winner meets the rule's choice once more. older: it has won in a search before.
static void meet_rule(search *s, bool older, tni_tuned *won)
{
    tni_ltplan *n     = s->job->plan;
    double      us[2] = { 0 };
    bool        same  = !memcmp(&n->algo, &n->rule, sizeof n->algo);
    if (!same && !tni_winner_stays(sample, s, &n->rule, &n->algo, older, us)) {
        tni_lt_use(n, &n->rule);
        same = true;
    }
    if (same) us[0] = us[1] = 1e6 * sample(s, &n->rule);
    won->rule_us = us[0];
    won->us      = us[1];
    if (same) return;
    won->algorithm.n = sizeof n->algo;
    memcpy(won->algorithm.byte, &n->algo, sizeof n->algo);
}

// Says what has won: of a search that goes on in another run only if it is new.
static void settle(search *s)
{
    const tni_ltjob *j = s->job;
    tni_ltplan      *n = j->plan;
    int64_t          word[KEY_WORDS];
    tni_tuned        won = { .us = 0 }, before = n->tuned;
    hold_contests(s, &won.next_us);
    bool older = n->changes == s->began;
    if (s->stopped && older) return;
    meet_rule(s, older, &won);
    tni_tuned_bytes_key(word, write_winner_key(j, word), won.key);
    snprintf(won.chip, sizeof won.chip, "%s", j->at->gpu);
    snprintf(won.what, sizeof won.what, "matmul (%lld, %lld) of %lld", (long long)n->key.cols,
             (long long)n->key.rows, (long long)n->key.depth);
    if (!isfinite(won.us) || won.us <= 0) return;
    n->tuned = won;
    s->request->found(s->request->arg, &won, s->found->told ? &before : NULL,
                      tni_lt_algo_text(j->lt, &n->algo).s);
    s->found->told = true;
}

// ---- the whole ---------------------------------------------------------------------------------

void tni_lt_forget_search(tni_ltplan *n)
{
    if (n->search) free(n->search->list);
    free(n->search);
    n->search = NULL;
}

// Takes memory for results. False if there is none.
static bool take_memory(search *s)
{
    tni_call_search *r     = s->request;
    memory          *all[] = { &s->have, &s->want, &s->have_input, &s->want_input };
    int              count = s->job->p->epilogue.input ? 4 : 2;
    bool             ok    = true;
    s->bytes               = tni_lt_result_bytes(s->job->p);
    for (int i = 0; ok && i < count; i++)
        ok = (all[i]->held = r->take(r->arg, s->bytes, &all[i]->at)) != NULL;
    return ok;
}

static void give_memory(const search *s)
{
    void *all[] = { s->have.held, s->want.held, s->have_input.held, s->want_input.held };
    for (int i = 0; i < 4; i++)
        if (all[i]) s->request->give(s->request->arg, all[i]);
}

// Searches, with the input of gelu in memory of the search. False if that cannot be now.
static bool run_search(search *s)
{
    tni_ltplan *n = s->job->plan;
    s->began      = n->changes;
    if (!keep_rule(s)) return false;
    if (memcmp(&n->algo, &n->rule, sizeof n->algo) && !is_right(s, &n->algo))
        tni_lt_use(n, &n->rule);
    s->best = time_algo(s, &n->algo, 1);
    s->runs = tni_sample_runs(1e-3 * (double)s->best, TNI_SAMPLE_BY_EVENTS);
    try_all(s);
    settle(s);
    return !s->stopped;
}

// Takes memory, and tells the library to store the input of gelu there.
void tni_lt_search(const tni_ltjob *j, tni_call_search *request)
{
    tni_ltplan  *n     = j->plan;
    tni_product *p     = j->p;
    char        *input = p->input;
    search       s     = { .job = j, .request = request };
    if (!n->search) n->search = calloc(1, sizeof *n->search);
    s.found = n->search;
    s.one   = (tni_candidates){ .cu        = j->at->cu,
                                .stream    = j->at->stream,
                                .workspace = j->at->workspace,
                                .bytes     = j->at->bytes,
                                .count     = 1,
                                .launch    = launch_now,
                                .session   = &s };
    if (s.found && take_memory(&s)) {
        if (s.have_input.at) p->input = s.have_input.at;
        n->searched = tni_lt_set_pointers(j) == TNI_LT_OK && run_search(&s);
        p->input    = input;
        tni_lt_set_pointers(j);
    }
    give_memory(&s);
    if (n->searched) tni_lt_forget_search(n);
}
