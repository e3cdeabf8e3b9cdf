// What measuring may choose on the cpu: how many threads run a launch, into how many chunks its
// work is cut, whether it stores by strips, and past the caches (streams.c), and what the text of
// the kernel depends on (emit_c.h). No setting changes a bit: chunks of kernels with tails, whose
// extent fixes the order of sums, are left as they are.
#include "device/cpu/cc.h"
#include "device/cpu/cpu_kernels.h"
#include "kernel/disk.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Settings that won for launches of an entry with certain sizes and threads. Lists only grow, at
// their front: launches read them without a lock.
struct tni_cpu_won {
    int64_t             size[TNI_AXES];
    int                 threads;
    tni_tuning          settings;
    const tni_cpu_code *code;  // of the text that the settings make; NULL: the rule's
    struct tni_cpu_won *next;
};

// The code of an entry's kernel with the text of other settings. A list as that.
struct tni_cpu_made {
    tni_tuning           text;
    const tni_cpu_code  *code;
    struct tni_cpu_made *next;
};

// Names of the chip with each number of threads that was asked for; winners of others are not used.
// The hash is of all of the chip's features, whose text is long.
enum { MOST_THREADS = 256 };
static struct {
    pthread_mutex_t lock;
    uint64_t        hash[2];
    char            name[MOST_THREADS][48];
} self = { .lock = PTHREAD_MUTEX_INITIALIZER };

// The same settings are not best with other numbers of threads, so that these are part of the name.
const char *tni_cpu_chip(const void *session, int threads)
{
    tni_text features = { "" };
    int      i        = threads < 0 ? 0 : threads < MOST_THREADS ? threads : MOST_THREADS - 1;
    (void)session;
    pthread_mutex_lock(&self.lock);
    if (!self.hash[0] && tni_cpu_chip_text(&features))
        tni_disk_hash_bytes(features.s, strlen(features.s), self.hash);
    if (!*self.name[i])
        snprintf(self.name[i], sizeof self.name[i], "cpu %016llx, %d threads",
                 (unsigned long long)self.hash[0], i);
    pthread_mutex_unlock(&self.lock);
    return self.name[i];
}

// Returns the settings that won for launches of these sizes; NULL if rules decide.
static const struct tni_cpu_won *find_won(const tni_cpu_code *code, const tni_launch *l)
{
    size_t bytes = (size_t)(l->kernel->np + l->kernel->nr) * sizeof *l->size;
    for (const struct tni_cpu_won *w = atomic_load_explicit(&code->won, memory_order_acquire); w;
         w                           = w->next)
        if (w->threads == l->threads && !memcmp(w->size, l->size, bytes)) return w;
    return NULL;
}

// Keeps a variant with its entry: launches that are measured should not take longer to find theirs.
// Without memory it is looked for again.
static void keep_made(tni_cpu_code *entry, const tni_tuning *text, const tni_cpu_code *code)
{
    struct tni_cpu_made *m = calloc(1, sizeof *m);
    if (!m) return;
    *m = (struct tni_cpu_made){ *text, code, atomic_load(&entry->made) };
    while (!atomic_compare_exchange_weak(&entry->made, &m->next, m)) continue;
}

// Returns the code of the text that settings of a launch make; NULL for the rule's text, or if
// there is none. A launch that waits for the compiler gets it compiled.
static const tni_cpu_code *find_variant(tni_cpu_code *entry, const tni_launch *l,
                                        const tni_tuning *t)
{
    static const tni_tuning rule;
    tni_tuning              text = tni_emit_c_settings(t);
    if (!memcmp(&text, &rule, sizeof rule)) return NULL;
    const struct tni_cpu_made *m = atomic_load_explicit(&entry->made, memory_order_acquire);
    while (m && memcmp(&m->text, &text, sizeof text)) m = m->next;
    if (m && (atomic_load(&m->code->run) || !l->wait_for_compiler)) return m->code;
    const tni_cpu_code *code = tni_cpu_variant(l->kernel, &text, l->wait_for_compiler);
    if (code && !m) keep_made(entry, &text, code);
    return code;
}

// Begins to compile the text of a candidate.
void tni_cpu_expect(void *session, void *entry, const tni_launch *l, bool now)
{
    tni_launch later        = *l;
    later.wait_for_compiler = false;
    (void)session, (void)now;
    if (entry && l->tuning) find_variant(entry, &later, l->tuning);
}

// A launch that is being measured has settings of its own, and no compiler beside it, which would
// take a core of it. Code that is not compiled yet is that of the rule's text, which gives the same
// bits.
const tni_cpu_code *tni_cpu_choice(tni_cpu_code *code, const tni_launch *l,
                                   const tni_tuning **settings)
{
    const struct tni_cpu_won *w    = l->tuning ? NULL : find_won(code, l);
    const tni_cpu_code       *made = NULL;
    *settings                      = l->tuning;
    if (l->tuning && l->wait_for_compiler) tni_cpu_kernels_wait();
    if (l->tuning) made = find_variant(code, l, l->tuning);
    if (w) made = w->code, *settings = &w->settings;
    return made && atomic_load_explicit(&made->run, memory_order_acquire) ? made : code;
}

// Looks for the winner of launches like l. Entries are never freed, and neither are these; without
// memory rules decide.
void tni_cpu_retuned(void *session, void *entry, const tni_launch *l)
{
    tni_cpu_code *code = entry;
    tni_tuned     won;
    if (!code || !tni_tuned_find(tni_cpu_chip(session, l->threads), l, &won)) return;
    const struct tni_cpu_won *old = find_won(code, l);
    if (old && !memcmp(&old->settings, &won.settings, sizeof won.settings)) return;
    struct tni_cpu_won *w = calloc(1, sizeof *w);
    if (!w) return;
    memcpy(w->size, l->size, sizeof w->size);
    w->settings = won.settings;
    w->code     = find_variant(code, l, &won.settings);
    w->threads  = l->threads;
    w->next     = atomic_load(&code->won);
    while (!atomic_compare_exchange_weak(&code->won, &w->next, w)) continue;
}

// Returns the text of a kernel under some settings, to be freed by tni_free; NULL without memory,
// or if it has none.
static char *text_under(tni_heap *h, const tni_launch *l, const tni_tuning *t)
{
    static const tni_tuning rule;
    tni_launch              under = *l;
    under.tuning                  = t ? t : &rule;
    return tni_cpu_text(NULL, h, &under);
}

bool tni_cpu_texts_equal(const tni_launch *l, const tni_tuning *a, const tni_tuning *b)
{
    tni_heap h    = tni_heap_default();
    char    *text = text_under(&h, l, a), *other = text_under(&h, l, b);
    bool     same = !text || !other || !strcmp(text, other);
    tni_free(&h, text);
    tni_free(&h, other);
    return same;
}

// Whether a candidate differs from what it was made of, and from the rule's choice, which was
// measured before.
static bool is_another(const tni_launch *l, const tni_tuning *t, const tni_tuning *from)
{
    return (!tni_cpu_runs_equal(l, t, from) && !tni_cpu_runs_equal(l, t, NULL)) ||
           (!tni_cpu_texts_equal(l, t, from) && !tni_cpu_texts_equal(l, t, NULL));
}

// Adds a neighbour with another value of a knob, if that makes another launch and there is room.
static void add_neighbour(const tni_launch *l, const tni_tuning *from, int knob, int value,
                          tni_tuning *dst, int *n, int room)
{
    if (*n == room) return;
    dst[*n]          = *from;
    dst[*n].of[knob] = (uint8_t)value;
    *n += is_another(l, &dst[*n], from);
}

// Vectors in flight, which matter most, whether rows are fetched ahead, and how results are stored;
// then threads, powers of two up to those there are, and chunks, from one for each thread to many.
int tni_cpu_neighbours(void *session, const tni_launch *l, const tni_tuning *from, tni_tuning *dst,
                       int room)
{
    static const uint8_t chunks[] = { 1, 2, 4, 16, 32, 64 };
    int                  n        = 0;
    (void)session;
    for (int v = 1; v <= 8; v *= 2) add_neighbour(l, from, TNI_KNOB_UNROLL, v, dst, &n, room);
    add_neighbour(l, from, TNI_KNOB_PREFETCH, 2, dst, &n, room);
    for (int v = 1; v <= 3; v++) add_neighbour(l, from, TNI_KNOB_STREAM, v, dst, &n, room);
    for (int t = 1; t <= l->threads && t < 256; t *= 2)
        add_neighbour(l, from, TNI_KNOB_THREADS, t, dst, &n, room);
    for (size_t i = 0; !l->kernel->tails && i < sizeof chunks; i++)
        add_neighbour(l, from, TNI_KNOB_CHUNKS, chunks[i], dst, &n, room);
    return n;
}
