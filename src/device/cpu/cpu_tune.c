// What measuring may choose on the cpu: how many threads run a launch, and into how many chunks its work is cut. No
// setting changes a bit: chunks of kernels with tails, whose extent fixes the order of sums, are left as they are.
#include "device/cpu/cc.h"
#include "device/cpu/cpu_kernels.h"
#include "kernel/disk.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// Settings that won for launches of an entry with certain sizes. Lists only grow, at their front: launches read them
// without a lock.
struct tni_cpu_won {
    int64_t             size[TNI_AXES];
    tni_tuning          settings;
    struct tni_cpu_won *next;
};

// The chip's name, found once; winners of other chips are not used.
static struct {
    pthread_once_t once;
    tni_text       chip;
} self = { .once = PTHREAD_ONCE_INIT };

// A name of the chip by its features: a hash, since the text of all of them is long.
static void find_chip(void)
{
    tni_text features = { "" };
    uint64_t hash[2]  = { 0 };
    if (tni_cpu_chip_text(&features)) tni_disk_hash_bytes(features.s, strlen(features.s), hash);
    self.chip = tni_text_of("cpu %016llx", (unsigned long long)hash[0]);
}

const char *tni_cpu_chip(const void *session)
{
    (void)session;
    pthread_once(&self.once, find_chip);
    return self.chip.s;
}

// Returns the settings that won for launches of these sizes; NULL if rules decide.
static const struct tni_cpu_won *find_won(const tni_cpu_code *code, const tni_launch *l)
{
    size_t bytes = (size_t)(l->kernel->np + l->kernel->nr) * sizeof *l->size;
    for (const struct tni_cpu_won *w = atomic_load_explicit(&code->won, memory_order_acquire); w;
         w                           = w->next)
        if (!memcmp(w->size, l->size, bytes)) return w;
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
    if (!code || !tni_tuned_find(tni_cpu_chip(session), l, &won)) return;
    const struct tni_cpu_won *old = find_won(code, l);
    if (old && !memcmp(&old->settings, &won.settings, sizeof won.settings)) return;
    struct tni_cpu_won *w = calloc(1, sizeof *w);
    if (!w) return;
    memcpy(w->size, l->size, sizeof w->size);
    w->settings = won.settings;
    w->next     = atomic_load(&code->won);
    while (!atomic_compare_exchange_weak(&code->won, &w->next, w)) continue;
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
        n += t != from->of[TNI_KNOB_THREADS];
    }
    for (size_t i = 0; !l->kernel->tails && i < sizeof chunks && n < room; i++) {
        dst[n]                     = *from;
        dst[n].of[TNI_KNOB_CHUNKS] = chunks[i];
        n += chunks[i] != from->of[TNI_KNOB_CHUNKS];
    }
    return n;
}
