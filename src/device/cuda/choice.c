// Choosing among candidates: timing them, and keeping the choice on disk.
#include "device/cuda/choice.h"

#include "kernel/disk.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_TEXT = 21 };  // -9223372036854775808 and a space

// The cache folder, shared by all sessions; opened at the first use.
static struct {
    pthread_mutex_t lock;
    tni_disk        disk;
    bool            open;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER };

// ---- the disk ----------------------------------------------------------------------------------

// A disk key and the texts that it points into.
typedef struct {
    char         source[TNI_CHOICE_WORDS * WORD_TEXT + 1], version[64];
    tni_disk_key key;
} disk_key;

// Writes the words of a key as text: the disk cache compares keys as text, and people can read
// them. Returns false if the key is too long, in which case nothing is found and nothing is kept.
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

// Opens the folder at the first use. The lock is held.
static tni_disk *open_disk(void)
{
    if (!self.open) tni_disk_open(&self.disk);
    self.open = true;
    return &self.disk;
}

// A choice that does not fit was written by a version with another format, and counts as absent.
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

// Fills the workspace twice, which keeps the GPU busy for a while: the host meanwhile submits the
// launches that are to be timed, so that their time does not include submitting them. It also
// leaves the cache in the same state for every candidate.
static int fill_workspace(const tni_candidates *c)
{
    int e = TNI_CU_OK;
    for (int i = 0; i < 2 && !e && c->bytes; i++)
        e = c->cu->set8(c->workspace, 0, c->bytes, c->stream);
    return e;
}

// Returns milliseconds of one launch, the best of some rounds of runs, or a negative number if the
// candidate cannot run. The launch ahead of the rounds loads its code and is not timed.
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

// How often each candidate is timed, and how many of the proposals are.
typedef struct {
    int rounds, runs, count;
} effort;

// A launch below 20 us is timed in two rounds of three, since its time is easily disturbed; one
// above 0.5 ms once, and then only the first FEW proposals: it costs long to time, and the
// library's first guesses are good for large work.
static effort effort_of(float ms, int count)
{
    enum { FEW = 8 };
    const float small = 0.02f, big = 0.5f;
    if (ms < small) return (effort){ 2, 3, count };
    if (ms < big) return (effort){ 1, 3, count };
    return (effort){ 1, 1, count < FEW ? count : FEW };
}

static stopwatch open_watch(const tni_candidates *c)
{
    stopwatch w = { .c = c };
    w.error     = c->cu->event_create(&w.from, 0);
    if (!w.error) w.error = c->cu->event_create(&w.to, 0);
    return w;
}

static void close_watch(const stopwatch *w)
{
    if (w->from) w->c->cu->event_destroy(w->from);
    if (w->to) w->c->cu->event_destroy(w->to);
}

float tni_choice_time_one(const tni_candidates *c, int i, int rounds, int runs)
{
    stopwatch w  = open_watch(c);
    float     ms = w.error ? -1 : time_candidate(&w, i, rounds, runs);
    close_watch(&w);
    return w.error ? -1 : ms;
}

// The first candidate that runs sets the effort for all.
int tni_choice_time(const tni_candidates *c, float *ms)
{
    stopwatch w     = open_watch(c);
    float     once  = -1;
    int       first = 0;
    for (int i = 0; i < c->count; i++) ms[i] = -1;
    while (first < c->count && !w.error && (once = time_candidate(&w, first, 1, 1)) < 0) first++;
    effort p = effort_of(once, c->count - c->own);
    for (int i = first; i < c->count && !w.error; i++)
        if (i - first < p.count || i >= c->count - c->own)
            ms[i] = time_candidate(&w, i, p.rounds, p.runs);
    close_watch(&w);
    return w.error;
}

// A later candidate must be 2 % faster, the noise of the clock, to replace an earlier one: the
// library ranks its proposals, and equal times should give the same choice in every process.
int tni_choice_best(const float *ms, int count)
{
    const float margin = 0.98f;
    int         at     = -1;
    for (int i = 0; i < count; i++)
        if (ms[i] >= 0 && (at < 0 || ms[i] <= ms[at] * margin)) at = i;
    return at;
}
