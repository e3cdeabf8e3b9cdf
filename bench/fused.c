// fused.c: what the planner makes one kernel of, beside a loop written by hand and beside PyTorch.
// Before anything is timed, both must give the same numbers. Ours and the loop take turns, so that
// what else the machine does meets both; the ratio is the median of those of the turns.
//
// N rows, C columns
#include "bench.h"
#include "hand.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { RESULTS = 4, LEAST = 7, MOST = 200 };

// A case at work: what both sides read, and the memory that the loop writes to.
typedef struct {
    tn_ctx    *cx;
    tn_tensor *x, *gy, *w, *b, *target;
    hand_team  team;
    float     *y, *dx;
    float      mean_loss;
} work;

// Something that both sides compute.
typedef struct {
    const char  *name;
    tn_tensor   *ours;
    const float *theirs;
} result;

// Records the case; what it gives is in r, the number of them is returned.
typedef int record_fn(work *w, result r[RESULTS]);

// A case, as the table has it: its loop in hand/loops.inc, its name in peers.py, and what is
// wanted.
typedef struct {
    const char *what, *loop, *peer;
    record_fn  *record;
    int64_t     N, C, quick;  // quick: the rows of a quick run
    bool        trains;       // x gets a gradient
    bool        sums;         // w and b get one
    double      most;         // times the loop's time
    double      most_peer;    // times PyTorch's
} fused;

// ---- the cases

static int record_chain(work *w, result r[RESULTS])
{
    tn_tensor *y = tn_add_s(tn_mul_s(w->x, 1.5), 0.25);
    y            = tn_square(tn_mul_s(tn_relu(y), 0.5));
    y            = tn_add_s(tn_mul_s(tn_sub_s(y, 0.125), 0.75), 1);
    r[0]         = (result){ "y", y, w->y };
    return 1;
}

static int record_softmax(work *w, result r[RESULTS])
{
    r[0] = (result){ "y", tn_softmax(w->x, 1), w->y };
    return 1;
}

static int record_layer_norm(work *w, result r[RESULTS])
{
    tn_tensor *y = tn_want(tn_layer_norm(w->x, 1, w->w, w->b, 0));
    tn_backward(y, w->gy);
    r[0] = (result){ "y", y, w->y };
    r[1] = (result){ "dx", tn_grad_of(w->x), w->dx };
    r[2] = (result){ "dw", tn_grad_of(w->w), w->team.part[0].dw };
    r[3] = (result){ "db", tn_grad_of(w->b), w->team.part[0].db };
    return 4;
}

static int record_cross_entropy(work *w, result r[RESULTS])
{
    tn_class_opts o    = { .no_ignore = true };
    tn_tensor    *loss = tn_cross_entropy_with(w->x, w->target, o);
    tn_backward(loss, NULL);
    r[0] = (result){ "loss", loss, &w->mean_loss };
    r[1] = (result){ "dx", tn_grad_of(w->x), w->dx };
    return 2;
}

static const fused cases[] = {
    { "8 maps, 16 M", "hand_chain", "chain", record_chain, 1 << 24, 1, 1 << 16, false, false, 1.1,
      1 },
    { "softmax 8192 x 4096", "hand_softmax", "softmax", record_softmax, 8192, 4096, 32, false,
      false, 1.3, 1 / 1.5 },
    { "layer_norm 8192 x 1024", "hand_layer_norm", "layer_norm", record_layer_norm, 8192, 1024, 64,
      true, true, 1.3, 1 / 1.5 },
    { "cross_entropy 2048 x 50257", "hand_cross_entropy", "cross_entropy", record_cross_entropy,
      2048, 50257, 8, true, false, 1.3, 1 / 1.5 },
};

static void let_go(work *w)
{
    tn_tensor *const all[] = { w->x, w->w, w->b };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (tn_has_grad(all[i])) tn_zero_grad(all[i]);
}

// ---- their numbers

// The largest difference, each over its value or over what values are on the whole, whichever is
// larger.
static double difference(const float *a, const float *b, int64_t n)
{
    double squares = 0, most = 0;
    for (int64_t i = 0; i < n; i++) squares += (double)b[i] * b[i];
    double level = sqrt(squares / (double)n);
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]) / fmax(fabs(b[i]), level);
        if (!(d <= most)) most = d;
    }
    return most;
}

// Times of what is not the same work would say nothing.
static void compare(const fused *f, work *w)
{
    result    r[RESULTS];
    tn_scope *s = tn_begin(w->cx);
    int       n = f->record(w, r);
    tn_eval(w->cx);
    hand_run(&w->team);
    w->mean_loss = (float)(w->team.loss[0] / (double)w->team.part[0].N);
    for (int i = 0; i < n; i++) {
        const float *ours = tn_ptr(r[i].ours);
        bench_check(w->cx);
        double d = difference(ours, r[i].theirs, tn_count(r[i].ours));
        if (d <= 1e-5) continue;
        fprintf(stderr, "tenon-bench: %s: %s differs by %g from the hand-written loop's\n", f->what,
                r[i].name, d);
        exit(1);
    }
    let_go(w);
    tn_end(s);
}

// ---- their times

// A step of a program: what it makes is let go, and the next one uses the memory again.
static double time_ours(const fused *f, work *w)
{
    result    r[RESULTS];
    double    start = bench_seconds();
    tn_scope *s     = tn_begin(w->cx);
    f->record(w, r);
    tn_eval(w->cx);
    let_go(w);
    tn_end(s);
    return bench_seconds() - start;
}

static double time_hand(work *w)
{
    double start = bench_seconds();
    hand_run(&w->team);
    return bench_seconds() - start;
}

// Medians, in seconds; hand and ratio are NAN where there is no loop.
typedef struct {
    double ours, hand, ratio;
} times;

static times measure(const fused *f, work *w)
{
    static double ours[MOST], hand[MOST], ratio[MOST];
    bool          both = w->team.loop != NULL;
    int           n    = 0;
    for (int i = 0; i < 3; i++) {
        time_ours(f, w);
        if (both) time_hand(w);
    }
    double start = bench_seconds(), limit = bench_quick() ? 0 : 3;
    while (n < LEAST || (n < MOST && bench_seconds() - start < limit)) {
        ours[n]  = time_ours(f, w);
        hand[n]  = both ? time_hand(w) : NAN;
        ratio[n] = ours[n] / hand[n];
        n++;
    }
    bench_check(w->cx);
    if (!both) return (times){ bench_middle(ours, n), NAN, NAN };
    return (times){ bench_middle(ours, n), bench_middle(hand, n), bench_middle(ratio, n) };
}

// ---- a case

static tn_tensor *numbers(tn_ctx *cx, bool trains, int rank, const int64_t *size)
{
    return tn_requires_grad(tn_randn(cx, TN_F32, rank, size), trains);
}

static void open_work(work *w, const fused *f, int64_t N)
{
    int64_t C = f->C;
    *w        = (work){ .cx = bench_open((tn_open_opts){ .device = "cpu", .seed = 1 }) };
    w->x      = numbers(w->cx, f->trains, TN_SHAPE(N, C));
    w->gy     = numbers(w->cx, false, TN_SHAPE(N, C));
    w->w      = numbers(w->cx, f->sums, TN_SHAPE(C));
    w->b      = numbers(w->cx, f->sums, TN_SHAPE(C));
    w->target = tn_randint(w->cx, TN_I64, 0, C, TN_SHAPE(N));
    tn_eval(w->cx);
    bench_check(w->cx);
}

// The loop reads the very numbers that Tenon reads.
static void open_hand(work *w, const fused *f, hand_loop *loop, int64_t N)
{
    size_t   bytes = ((size_t)(N * f->C) * sizeof(float) + 63) / 64 * 64;
    hand_job h     = { .N = N, .C = f->C };
    w->y           = aligned_alloc(64, bytes);
    w->dx          = aligned_alloc(64, bytes);
    h.x            = tn_ptr(w->x);
    h.gy           = tn_ptr(w->gy);
    h.w            = tn_ptr(w->w);
    h.b            = tn_ptr(w->b);
    h.target       = tn_ptr(w->target);
    h.y            = w->y;
    h.dx           = w->dx;
    bench_check(w->cx);
    if (w->y && w->dx && hand_open(&w->team, loop, h, f->sums)) return;
    fprintf(stderr, "tenon-bench: out of memory\n");
    exit(1);
}

static void close_work(work *w)
{
    hand_close(&w->team);
    free(w->y);
    free(w->dx);
    tn_close(w->cx);
}

static void add_rows(const fused *f, times t)
{
    char      of[96];
    bench_row r = { "fused", f->what, t.ours * 1e3, "ms", t.ratio, of };
    if (!isnan(t.ratio)) {
        snprintf(of, sizeof of, "a loop by hand (%.3f ms)", t.hand * 1e3);
        bench_add_wanted(r, (bench_wanted){ .ratio = f->most });
    }
    bench_peer peer = bench_ask_peer(f->peer, 0);
    r.ratio         = t.ours / peer.seconds;
    snprintf(of, sizeof of, "%s (%.3f ms)", peer.name, peer.seconds * 1e3);
    if (!isnan(r.ratio)) bench_add_wanted(r, (bench_wanted){ .ratio = f->most_peer });
    else if (isnan(t.ratio)) bench_add(r);
}

static void run_case(const fused *f)
{
    work       w;
    tni_text   why;
    int64_t    N    = bench_quick() ? f->quick : f->N;
    hand_loop *loop = hand_find(f->loop, &why);
    open_work(&w, f, N);
    if (loop) open_hand(&w, f, loop, N);
    if (loop) compare(f, &w);
    times t = measure(f, &w);
    close_work(&w);
    add_rows(f, t);
}

void bench_fused(void)
{
    tni_text why;
    if (!hand_find(cases[0].loop, &why))
        bench_note("fused", "no hand-written loops to compare with: %s", why.s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i]);
}
