// hand.c: compiles the hand-written loops and runs them over threads.
#include "hand.h"

#include "base/pool.h"
#include "bench.h"
#include "device/cpu/cc.h"
#include "device/cpu/object.h"

#include <stdlib.h>
#include <string.h>

// ---- compiling

// The loops use the functions that generated kernels use, so the rows of math.def come first.
static const char source[] = "#define M_SELDOM(c)\n"
                             "#define C_ONLY(...) __VA_ARGS__\n"
                             "#define FN(...) static inline __VA_ARGS__\n"
                             "#include \"" TN_SOURCE_DIR "/src/kernel/math.def\"\n"
                             "#include \"" TN_SOURCE_DIR "/bench/hand/loops.h\"\n"
                             "#include \"" TN_SOURCE_DIR "/bench/hand/loops.inc\"\n";

static void *build(tni_cc *c, tni_text *why)
{
    size_t bytes;
    if (!tni_cc_find(c, why)) return NULL;
    void *file = tni_cc_compile(c, source, &bytes, why);
    if (!file) return NULL;
    void *object = tni_object_load(&c->runner, file, bytes, why);
    free(file);
    return object;
}

// The loops, built at the first call; NULL, with the reason.
static void *loops(tni_text *why)
{
    static void    *object;
    static bool     tried;
    static tni_text reason;
    tni_cc          c;
    if (!tried && tni_cc_open(&c, &reason)) {
        object = build(&c, &reason);
        tni_cc_close(&c);
    }
    tried = true;
    *why  = reason;
    return object;
}

hand_loop *hand_find(const char *name, tni_text *why)
{
    hand_loop *loop   = NULL;
    void      *object = loops(why);
    if (object && !tni_object_symbol(object, name, &loop)) *why = tni_text_of("no %s", name);
    return loop;
}

// ---- running

bool hand_open(hand_team *t, hand_loop *loop, hand_job whole, bool sums)
{
    memset(t, 0, sizeof *t);
    t->loop    = loop;
    t->columns = sums ? whole.C : 0;
    t->threads = tni_threads_default();
    if (t->threads > HAND_THREADS) t->threads = HAND_THREADS;
    for (int i = 0; i < t->threads; i++) {
        hand_job *h = &t->part[i];
        *h          = whole;
        h->loss     = &t->loss[i];
        h->dw       = calloc((size_t)t->columns + 1, sizeof *h->dw);
        h->db       = calloc((size_t)t->columns + 1, sizeof *h->db);
        if (h->dw && h->db) continue;
        hand_close(t);
        return false;
    }
    return true;
}

static void run_part(void *arg, int64_t i, int worker)
{
    hand_team *t = arg;
    hand_job  *h = &t->part[i];
    (void)worker;
    t->loop(h, h->N * i / t->threads, h->N * (i + 1) / t->threads);
}

void hand_run(hand_team *t)
{
    hand_job *sum = &t->part[0];
    tni_parallel(t->threads, t->threads, run_part, t);
    for (int i = 1; i < t->threads; i++) {
        const hand_job *h = &t->part[i];
        *sum->loss += *h->loss;
        for (long long j = 0; j < t->columns; j++) sum->dw[j] += h->dw[j];
        for (long long j = 0; j < t->columns; j++) sum->db[j] += h->db[j];
    }
}

void hand_close(hand_team *t)
{
    for (int i = 0; i < t->threads; i++) {
        free(t->part[i].dw);
        free(t->part[i].db);
    }
    memset(t, 0, sizeof *t);
}
