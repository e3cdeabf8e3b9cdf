// Choosing among candidates: the disk, and the clock.
#include "device/cuda/choice.h"

#include "kernel/disk.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_TEXT = 21 };  // -9223372036854775808 and a space

static struct {
    pthread_mutex_t lock;
    tni_disk        disk;
    bool            open;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER };

// ---- the disk ----------------------------------------------------------------------------------

// The texts of a key, which the key points into.
typedef struct {
    char         source[TNI_CHOICE_WORDS * WORD_TEXT + 1], version[64];
    tni_disk_key key;
} disk_key;

static bool write_disk_key(const tni_choice_key *k, disk_key *d)
{
    int n = 0;
    if (k->words > TNI_CHOICE_WORDS) return false;
    *d->source = 0;
    for (int i = 0; i < k->words; i++)
        n += snprintf(d->source + n, sizeof d->source - (size_t)n, "%" PRId64 " ", k->word[i]);
    n      = snprintf(d->version, sizeof d->version, "%s %zu", k->library, k->version);
    d->key = (tni_disk_key){ "choice", d->source, "", d->version, k->gpu };
    return n < (int)sizeof d->version;
}

// The folder, opened at the first use. The lock is held.
static tni_disk *open_disk(void)
{
    if (!self.open) tni_disk_open(&self.disk);
    self.open = true;
    return &self.disk;
}

size_t tni_choice_find(const tni_choice_key *k, void *what, size_t room)
{
    disk_key d;
    size_t   bytes = 0;
    if (!write_disk_key(k, &d)) return 0;
    pthread_mutex_lock(&self.lock);
    void *data = tni_disk_find(open_disk(), &d.key, &bytes);
    pthread_mutex_unlock(&self.lock);
    bool fits = data && bytes <= room;
    if (fits) memcpy(what, data, bytes);
    free(data);
    return fits ? bytes : 0;
}

void tni_choice_keep(const tni_choice_key *k, const void *what, size_t bytes)
{
    disk_key d;
    if (!write_disk_key(k, &d)) return;
    pthread_mutex_lock(&self.lock);
    tni_disk_keep(open_disk(), &d.key, what, bytes);
    pthread_mutex_unlock(&self.lock);
}

void tni_choice_forget(void)
{
    pthread_mutex_lock(&self.lock);
    self.open = false;
    pthread_mutex_unlock(&self.lock);
}

// ---- the clock ---------------------------------------------------------------------------------

// Two events around what is timed, and the first error of the driver.
typedef struct {
    const tni_candidates *c;
    tni_cuevent           from, to;
    int                   error;
} stopwatch;

// Fills the workspace, twice: while the GPU is at it, the host gets ahead, so that what is timed is
// not the launching.
static int fill_workspace(const tni_candidates *c)
{
    int e = TNI_CU_OK;
    for (int i = 0; i < 2 && !e && c->bytes; i++)
        e = c->cu->set8(c->workspace, 0, c->bytes, c->stream);
    return e;
}

// Milliseconds of one launch, the best of some rounds of runs; below 0 if it cannot be run. A launch
// before them loads what is needed.
static float time_candidate(stopwatch *w, int candidate, int rounds, int runs)
{
    const tni_candidates *c    = w->c;
    float                 best = -1;
    if (c->launch(c->session, candidate)) return best;
    for (int r = 0; r < rounds && !w->error; r++) {
        float ms = 0;
        int   e = fill_workspace(c), bad = 0;
        if (!e) e = c->cu->event_record(w->from, c->stream);
        for (int i = 0; i < runs && !bad; i++) bad = c->launch(c->session, candidate);
        if (!e) e = c->cu->event_record(w->to, c->stream);
        if (!e) e = c->cu->event_wait(w->to);
        if (!e) e = c->cu->elapsed(&ms, w->from, w->to);
        w->error = e;
        if (bad) return -1;
        if (!e && (best < 0 || ms / (float)runs < best)) best = ms / (float)runs;
    }
    return best;
}

// How often candidates are timed, and how many of the proposals. What takes little time is easily
// disturbed; what takes long costs long, and the first few proposals are good.
typedef struct {
    int rounds, runs, count;
} effort;

static effort effort_of(float ms, int count)
{
    enum { FEW = 8 };
    const float small = 0.02f, big = 0.5f;
    if (ms < small) return (effort){ 2, 3, count };
    if (ms < big) return (effort){ 1, 3, count };
    return (effort){ 1, 1, count < FEW ? count : FEW };
}

int tni_choice_time(const tni_candidates *c, float *ms)
{
    stopwatch w     = { .c = c };
    float     once  = -1;
    int       first = 0;
    for (int i = 0; i < c->count; i++) ms[i] = -1;
    w.error = c->cu->event_create(&w.from, 0);
    if (!w.error) w.error = c->cu->event_create(&w.to, 0);
    while (first < c->count && !w.error && (once = time_candidate(&w, first, 1, 1)) < 0) first++;
    effort p = effort_of(once, c->count - c->own);
    for (int i = first; i < c->count && !w.error; i++)
        if (i - first < p.count || i >= c->count - c->own)
            ms[i] = time_candidate(&w, i, p.rounds, p.runs);
    if (w.from) c->cu->event_destroy(w.from);
    if (w.to) c->cu->event_destroy(w.to);
    return w.error;
}

int tni_choice_best(const float *ms, int count)
{
    const float margin = 0.98f;
    int         at     = -1;
    for (int i = 0; i < count; i++)
        if (ms[i] >= 0 && (at < 0 || ms[i] <= ms[at] * margin)) at = i;
    return at;
}
