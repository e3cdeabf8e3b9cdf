// What measuring may choose on the cpu: how many threads run a launch, and into how many chunks its work is cut. No
// setting changes a bit: chunks of kernels with tails, whose extent fixes the order of sums, are left as they are.
#include "device/cpu/cc.h"
#include "device/cpu/cpu_kernels.h"
#include "kernel/disk.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Settings that won for launches of an entry with certain sizes and threads. Lists only grow, at their front: launches read them
// without a lock.
struct tni_cpu_won {
    int64_t             size[TNI_AXES];
    int                 threads;
    tni_tuning          settings;
    struct tni_cpu_won *next;
};

// Names of the chip with each number of threads that was asked for; winners of others are not used. The hash is of all of the chip's features,
// whose text is long.
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

// A launch that is being measured has settings of its own.
const tni_tuning *tni_cpu_settings(const tni_cpu_code *code, const tni_launch *l)
{
    if (l->tuning) return l->tuning;
    const struct tni_cpu_won *w = find_won(code, l);
    return w ? &w->settings : NULL;
}

// Looks for the winner of launches like l. Entries are never freed, and neither are these; without memory rules decide.
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
    w->threads  = l->threads;
    w->next     = atomic_load(&code->won);
    while (!atomic_compare_exchange_weak(&code->won, &w->next, w)) continue;
}

// Whether a candidate differs from what it was made of, and from the rule's choice, which was measured before.
static bool is_another_cut(const tni_launch *l, const tni_tuning *t, const tni_tuning *from)
{
    return !tni_cpu_cuts_equal(l, t, from) && !tni_cpu_cuts_equal(l, t, NULL);
}

// Powers of two up to the threads there are, and chunks from one for each thread to many.
int tni_cpu_neighbours(void *session, const tni_launch *l, const tni_tuning *from, tni_tuning *dst,
                       int room)
{
    static const uint8_t chunks[] = { 1, 2, 4, 16, 32, 64 };
    int                  n        = 0;
    (void)session;
    for (int t = 1; t <= l->threads && t < 256 && n < room; t *= 2) {
        dst[n]                      = *from;
        dst[n].of[TNI_KNOB_THREADS] = (uint8_t)t;
        n += is_another_cut(l, &dst[n], from);
    }
    for (size_t i = 0; !l->kernel->tails && i < sizeof chunks && n < room; i++) {
        dst[n]                     = *from;
        dst[n].of[TNI_KNOB_CHUNKS] = chunks[i];
        n += is_another_cut(l, &dst[n], from);
    }
    return n;
}
