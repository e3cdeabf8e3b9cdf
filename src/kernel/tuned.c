// The winners of measurements and the model of what settings do, in memory and on disk. The text on
// disk has a line for each:
//
//   winner 5f3c... 77a1... 136.02 153.10 138.44 cluster=4,unroll=2 NVIDIA_H200 ROW_(512,_131072)
//   winner 81b0... 0c4e... 812.40 840.13 818.21 cut=1f0c22d9,plain=90ab1187 NVIDIA_H200 plan_of_96_steps
//   factor NVIDIA_H200 1 unroll 2 14 -0.31
//
// that is, key, microseconds of the winner, of the rule and of the next best, settings, chip, what
// it is; and chip, kind of kernel, knob, value, how often it was measured, and the sum of the
// logarithms of its times beside the rule's.
//
// Processes share that text. Each adds to it what it has found out, with a lock around reading and
// writing, and takes over what others wrote: of a winner the newest line counts, measurements of a
// factor add up. Two processes that tune:
//
//   A                               the text                      B
//   reads                           winner K unroll=2
//                                   winner K unroll=8             finds a better winner of K, writes
//   finds a winner of J: locks,
//   reads K again, writes both      winner K unroll=8
//   and unlocks                     winner J vector=4
//
// B sees J when it writes the next time; a process that starts later sees both.
#include "kernel/tuning.h"

#include "base/hash.h"
#include "base/slots.h"
#include "kernel/disk.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A winner that is known. fresh: this process has found it, and it is not on disk yet.
typedef struct {
    tni_tuned won;
    bool      fresh;
} known;

// What a value of a knob did in kernels of a kind: the sum of the logarithms of n measured ratios,
// and how much of both is not on disk yet.
typedef struct {
    char   chip[64];
    int    kind, knob, value, n, fresh_n;
    double sum, fresh_sum;
} factor;

// What is known, of all chips. Winners are found by a table of slots: a machine that tunes for a
// while has thousands. Factors are few, and looked for while measuring only. Invariant: `open` once
// the disk was read; there are at least twice as many slots as winners.
static struct {
    pthread_mutex_t lock;
    bool            open, off, warned;
    bool            waited;     // for the lock in vain: another keeps it
    bool            unwritten;  // the last time, the disk did not take what is known
    uint32_t        imports;
    known          *winner;
    factor         *factor;
    int             winners, winners_room, factors, factors_room;
    uint32_t       *slot;
    size_t          slots;
    tni_disk        disk;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER };

// One text for all chips: it is short, and a folder may be shared by machines. Its number is that
// of the keys of launches and plans, by which winners are found: where those are of other words,
// older winners are of no use.
static const tni_disk_key disk_key = { "tuned", "winners 2", "", "", "" };

// ---- lists -------------------------------------------------------------------------------------

// Makes room for one more element of a list; false when memory is out.
static bool grow_list(void **list, int count, int *room, size_t size)
{
    if (count < *room) return true;
    int   more = *room ? 2 * *room : 64;
    void *p    = realloc(*list, (size_t)more * size);
    if (!p) return false;
    *list = p;
    *room = more;
    return true;
}

static uint64_t winner_hash(const char *chip, const uint64_t key[2])
{
    return tni_hash_mix(tni_hash(chip, strlen(chip)), key[0]);
}

// Returns the winner of a key on a chip; NULL if there is none.
static known *find_winner(const char *chip, const uint64_t key[2])
{
    uint64_t hash = winner_hash(chip, key);
    for (size_t at = hash & (self.slots - 1); self.slots && self.slot[at];
         at        = (at + 1) & (self.slots - 1)) {
        known *w = &self.winner[self.slot[at] - 1];
        if (w->won.key[0] == key[0] && w->won.key[1] == key[1] && !strcmp(w->won.chip, chip))
            return w;
    }
    return NULL;
}

// Makes room for one more winner, and in the table. False when memory is out.
static bool grow_winners(void)
{
    tni_heap heap = tni_heap_default();
    if (!grow_list((void **)&self.winner, self.winners, &self.winners_room, sizeof *self.winner))
        return false;
    if (2 * ((size_t)self.winners + 1) <= self.slots) return true;
    if (!tni_slots_double(&heap, &self.slot, &self.slots)) return false;
    for (int i = 0; i < self.winners; i++) {
        const tni_tuned *w = &self.winner[i].won;
        tni_slots_put(self.slot, self.slots, winner_hash(w->chip, w->key), (size_t)i);
    }
    return true;
}

// Adds a winner, or replaces the one with its key; of what is on disk, those that this process has
// found since stay. False when memory is out.
static bool add_winner(const tni_tuned *t, bool from_disk)
{
    known *w = find_winner(t->chip, t->key);
    if (w && from_disk && w->fresh) return true;
    if (!w) {
        if (!grow_winners()) return false;
        tni_slots_put(self.slot, self.slots, winner_hash(t->chip, t->key), (size_t)self.winners);
        w = &self.winner[self.winners++];
    }
    *w = (known){ *t, !from_disk };
    return true;
}

// Returns what is known of a value of a knob; NULL if it was not measured.
static factor *find_factor(const char *chip, int kind, int knob, int value)
{
    for (int i = 0; i < self.factors; i++) {
        factor *f = &self.factor[i];
        if (f->kind == kind && f->knob == knob && f->value == value && !strcmp(f->chip, chip))
            return f;
    }
    return NULL;
}

// Sets what is known of a value of a knob. What comes from disk is the sum of all processes, to
// which this one's newest measurements are still to be added; anything else replaces it. False when
// memory is out.
static bool add_factor(const factor *f, bool from_disk)
{
    factor  now = *f;
    factor *old = find_factor(f->chip, f->kind, f->knob, f->value);
    if (!old) {
        if (!grow_list((void **)&self.factor, self.factors, &self.factors_room, sizeof *f))
            return false;
        old  = &self.factor[self.factors++];
        *old = (factor){ .n = 0 };
    }
    now.fresh_n   = old->fresh_n + (from_disk ? 0 : f->n - old->n);
    now.fresh_sum = old->fresh_sum + (from_disk ? 0 : f->sum - old->sum);
    if (from_disk && f->n + now.fresh_n > 0) now.n += now.fresh_n, now.sum += now.fresh_sum;
    *old = now;
    return true;
}

// ---- the text of all ---------------------------------------------------------------------------

enum { LINE = 512, SETTINGS = 192 };

static bool is_blank(const char *s)
{
    return !s[strspn(s, " \t\r")];
}

// Words of a line have no spaces: names of chips get '_' for them.
static void copy_word(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", *from ? from : "-");
    for (char *p = to; *p; p++)
        if (*p <= ' ' || *p > '~') *p = '_';
}

// A key is printed with all its digits, so that lines can be compared as texts.
static void print_winner(const tni_tuned *w, char line[LINE])
{
    snprintf(line, LINE, "winner %016" PRIx64 " %016" PRIx64 " %.4g %.4g %.4g %s %s %s\n",
             w->key[0], w->key[1], w->us, w->rule_us, w->next_us, tni_tuned_word(w).s, w->chip,
             w->what);
}

// A factor is kept as a sum and a count, so that what processes have measured can be added.
static void print_factor(const factor *f, char line[LINE])
{
    snprintf(line, LINE, "factor %s %d %s %d %d %.6g\n", f->chip, f->kind, tni_knob_name(f->knob),
             f->value, f->n, f->sum);
}

// Whether a word is one that copy_word makes.
static bool is_word(const char *s)
{
    while (*s > ' ' && *s <= '~') s++;
    return !*s;
}

static bool is_time(double us)
{
    return us >= 0 && isfinite(us);
}

// Reads what print_winner wrote, up to the end of the line. Widths keep words within their arrays,
// and keys within their numbers. No winner has a key of zeros: it is what a key is without memory.
static bool read_winner(const char *line, tni_tuned *w)
{
    char settings[SETTINGS];
    int  end = 0;
    memset(w, 0, sizeof *w);
    sscanf(line, "winner %16" SCNx64 " %16" SCNx64 " %lf %lf %lf %191s %63s %63s%n", &w->key[0],
           &w->key[1], &w->us, &w->rule_us, &w->next_us, settings, w->chip, w->what, &end);
    return end && is_blank(line + end) && (w->key[0] | w->key[1]) &&
           tni_tuned_read_word(settings, w) && w->us > 0 && is_time(w->us) && is_time(w->rule_us) &&
           is_time(w->next_us) && is_word(w->chip) && is_word(w->what);
}

// Reads what print_factor wrote. A sum or a count that cannot be would spoil every expectation.
// MOST: measurements, and logarithms of ratios that they may sum up to.
static bool read_factor(const char *line, factor *f)
{
    enum { MOST = 1 << 28 };
    char name[32] = "";
    memset(f, 0, sizeof *f);
    int n = sscanf(line, "factor %63s %d %31s %d %d %lf", f->chip, &f->kind, name, &f->value, &f->n,
                   &f->sum);
    f->knob = tni_knob_of(name, strlen(name));
    return n == 6 && f->knob >= 0 && f->n > 0 && f->n < MOST && fabs(f->sum) < MOST;
}

// What becomes of lines that are read.
typedef enum { CHECK_ONLY, FROM_DISK, REPLACE } reading;

// Reads a line; false if it is neither winner nor factor, or memory is out. Blank lines and lines
// that begin with # are for people.
static bool read_line(const char *line, reading how, int *winners)
{
    tni_tuned w;
    factor    f;
    if (is_blank(line) || *line == '#') return true;
    if (strncmp(line, "winner ", 7))
        return read_factor(line, &f) && (how == CHECK_ONLY || add_factor(&f, how == FROM_DISK));
    ++*winners;
    return read_winner(line, &w) && (how == CHECK_ONLY || add_winner(&w, how == FROM_DISK));
}

// Reads the lines of a text, which has a 0 at its end. Returns the number of winners; -1, with the
// line, if one was not taken. On disk such a line is left out: those after it would be lost with
// the next winner that is written.
static int read_lines(char *text, reading how, tni_text *why)
{
    int winners = 0, number = 1;
    for (char *line = text; *line; number++) {
        size_t n   = strcspn(line, "\n");
        char   end = line[n];
        line[n]    = 0;
        bool ok    = read_line(line, how, &winners);
        line[n]    = end;
        if (!ok && how != FROM_DISK) {
            *why = tni_text_of("line %d is no result of tuning", number);
            return -1;
        }
        line += n + (end != 0);
    }
    return winners;
}

// Returns all as text, to be freed by free; NULL when memory is out.
static char *write_lines(size_t *bytes)
{
    char *text = malloc((size_t)(self.winners + self.factors) * LINE + 1), *p = text;
    if (!text) return NULL;
    *p = 0;
    for (int i = 0; i < self.winners; i++, p += strlen(p)) print_winner(&self.winner[i].won, p);
    for (int i = 0; i < self.factors; i++, p += strlen(p)) print_factor(&self.factor[i], p);
    *bytes = (size_t)(p - text);
    return text;
}

// ---- the disk ----------------------------------------------------------------------------------

// Takes over what is on disk. A text that cannot be read counts as none.
static void read_disk(void)
{
    size_t   bytes = 0;
    tni_text why;
    char    *data = tni_disk_find(&self.disk, &disk_key, &bytes);
    char    *text = data ? malloc(bytes + 1) : NULL;
    if (text) {
        memcpy(text, data, bytes);
        text[bytes] = 0;
        read_lines(text, FROM_DISK, &why);
    }
    free(text);
    free(data);
}

// Nothing is fresh once all of it was written.
static void mark_written(void)
{
    for (int i = 0; i < self.winners; i++) self.winner[i].fresh = false;
    for (int i = 0; i < self.factors; i++) self.factor[i].fresh_n = 0, self.factor[i].fresh_sum = 0;
}

// Writes all to disk. Others may have written meanwhile, and must not between reading and writing,
// or their lines were lost. PATIENCE: seconds to wait for them. Who has waited in vain tries once
// from then on, until the lock is free.
static void write_disk(void)
{
    const double PATIENCE = 1;
    size_t       bytes    = 0;
    int          lock     = tni_disk_lock(&self.disk, disk_key.kind, self.waited ? 0 : PATIENCE);
    self.waited           = lock < 0;
    read_disk();
    char *text     = write_lines(&bytes);
    self.unwritten = !text || !tni_disk_keep(&self.disk, &disk_key, text, bytes);
    if (!self.unwritten) mark_written();
    free(text);
    tni_disk_unlock(lock);
}

bool tni_tuned_kept(tni_text *where, tni_text *why)
{
    tni_disk d;
    tni_disk_open(&d);
    *where = tni_escaped(d.path);
    if (!tni_disk_usable(&d, why)) return false;
    pthread_mutex_lock(&self.lock);
    bool kept = !self.unwritten;
    pthread_mutex_unlock(&self.lock);
    if (!kept) *why = tni_text_of("%.150s takes no more; is its disk full?", where->s);
    return kept;
}

// ---- the environment ---------------------------------------------------------------------------

// Reads TN_TUNE; *seconds is -1 if it is not set, or no number of seconds, for which false is
// returned.
static bool read_variable(double *seconds)
{
    const char *s = getenv("TN_TUNE");
    *seconds      = -1;
    if (!s || !*s) return true;
    if (tni_parse_double(s, strlen(s), seconds) && *seconds >= 0) return true;
    *seconds = -1;
    return false;
}

// A program may open many contexts, each of which asks: the reason is given to the first.
double tni_tuned_seconds(tni_text *why)
{
    double seconds;
    bool   ok = read_variable(&seconds);
    pthread_mutex_lock(&self.lock);
    if (!ok && !self.warned)
        *why = tni_text_of("TN_TUNE is %s, not a number of seconds, and is ignored",
                           tni_quoted(getenv("TN_TUNE")).s);
    self.warned |= !ok;
    pthread_mutex_unlock(&self.lock);
    return seconds;
}

// Whether rules decide, whatever was measured.
static bool is_off(void)
{
    const char *equal = getenv("TN_DETERMINISTIC");
    double      seconds;
    read_variable(&seconds);
    return seconds == 0 || (equal && !strcmp(equal, "1"));
}

// Reads environment and disk at the first use. The lock is held.
static void open_store(void)
{
    if (self.open) return;
    self.open = true;
    self.off  = is_off();
    tni_disk_open(&self.disk);
    read_disk();
}

bool tni_tuned_off(void)
{
    pthread_mutex_lock(&self.lock);
    open_store();
    bool off = self.off;
    pthread_mutex_unlock(&self.lock);
    return off;
}

// ---- winners -----------------------------------------------------------------------------------

// Whether there are winners at all. Most processes have none, and pay a lock and two tests for each
// launch or plan that is new.
static bool has_winners(void)
{
    pthread_mutex_lock(&self.lock);
    open_store();
    bool any = !self.off && self.winners;
    pthread_mutex_unlock(&self.lock);
    return any;
}

// Copies the winner of a key; false if there is none.
static bool copy_winner(const char *chip, const uint64_t key[2], tni_tuned *found)
{
    char name[sizeof found->chip];
    copy_word(name, sizeof name, chip);
    pthread_mutex_lock(&self.lock);
    const known *w = find_winner(name, key);
    if (w) *found = w->won;
    pthread_mutex_unlock(&self.lock);
    return w != NULL;
}

// The key is computed without the lock: it reads all of a kernel.
bool tni_tuned_find(const char *chip, const tni_launch *l, tni_tuned *found)
{
    uint64_t key[2];
    if (!has_winners()) return false;
    tni_tuned_key(l, key);
    return copy_winner(chip, key, found);
}

bool tni_tuned_find_bytes(const char *chip, const void *bytes, size_t n, tni_tuned *found)
{
    uint64_t key[2];
    if (!has_winners()) return false;
    tni_tuned_bytes_key(bytes, n, key);
    return copy_winner(chip, key, found);
}

// Written at once: a program that is ended by a signal keeps what the runs before have measured.
bool tni_tuned_keep(const tni_tuned *t)
{
    tni_tuned w = *t;
    copy_word(w.chip, sizeof w.chip, t->chip);
    copy_word(w.what, sizeof w.what, t->what);
    pthread_mutex_lock(&self.lock);
    open_store();
    bool ok = add_winner(&w, false);
    if (ok) write_disk();
    pthread_mutex_unlock(&self.lock);
    return ok;
}

// The lists keep their room, so that threads that read them meanwhile wait for the lock only.
void tni_tuned_forget(void)
{
    pthread_mutex_lock(&self.lock);
    self.open = self.warned = self.waited = self.unwritten = false;
    self.winners = self.factors = 0;
    if (self.slots) memset(self.slot, 0, self.slots * sizeof *self.slot);
    self.imports++;
    pthread_mutex_unlock(&self.lock);
}

// ---- files of people ---------------------------------------------------------------------------

// The text that is also on disk, so that the two formats are one, with what others have found since
// this process has read it. It is written where it is to be,
// as pages and profiles are, and not by io/outfile.h, which this folder comes before and which
// replaces what has the name: a pipe or /dev/stdout is a path, too.
bool tni_tuned_export(const char *path, int *count, tni_text *why)
{
    size_t bytes = 0;
    pthread_mutex_lock(&self.lock);
    open_store();
    read_disk();
    char *text = write_lines(&bytes);
    *count     = self.winners;
    pthread_mutex_unlock(&self.lock);
    FILE *f  = text ? fopen(path, "w") : NULL;
    bool  ok = f && fwrite(text, 1, bytes, f) == bytes;
    if (f && fclose(f) != 0) ok = false;
    if (!ok)
        *why = tni_text_of("%s cannot be written: %s", tni_quoted(path).s,
                           text ? strerror(errno) : "memory is out");
    free(text);
    return ok;
}

// The largest file that is read: a million winners.
enum { MOST_BYTES = 256 << 20 };

// Makes room for at least one more byte and a 0. False when memory is out.
static bool grow_text(char **text, size_t bytes, size_t *room)
{
    if (bytes + 1 < *room) return true;
    size_t more = *room ? 2 * *room : 1 << 16;
    char  *p    = realloc(*text, more);
    if (!p) return false;
    *text = p;
    *room = more;
    return true;
}

// Reads a file to its end, whose place a pipe does not know before. Returns NULL, or why it cannot
// be read. A 0 within would hide what follows.
static const char *read_to_end(FILE *f, char **text, size_t *bytes)
{
    size_t room = 0, got = 1;
    while (got) {
        if (!grow_text(text, *bytes, &room)) return "memory is out";
        got = fread(*text + *bytes, 1, room - 1 - *bytes, f);
        *bytes += got;
        if (*bytes > MOST_BYTES) return "it has more than 256 MiB";
    }
    if (ferror(f)) return strerror(errno);
    return memchr(*text, 0, *bytes) ? "it is no text" : NULL;
}

// Returns the contents of a file with a 0 behind them; NULL, with the reason, if it cannot be read.
// Files are read whole: lines are cut in place.
static char *read_file(const char *path, tni_text *why)
{
    FILE       *f     = fopen(path, "rb");
    char       *text  = NULL;
    size_t      bytes = 0;
    const char *wrong = f ? read_to_end(f, &text, &bytes) : strerror(errno);
    if (f) fclose(f);
    if (!wrong) {
        text[bytes] = 0;
        return text;
    }
    *why = tni_text_of("%s cannot be read: %s", tni_quoted(path).s, wrong);
    free(text);
    return NULL;
}

// A file with a bad line changes nothing: all lines are looked at before the first is taken. Some
// editors begin a text with a mark of its bytes' order.
bool tni_tuned_import(const char *path, int *count, tni_text *why)
{
    char *text = read_file(path, why), *lines = text;
    if (!text) return false;
    if (!strncmp(lines, "\xef\xbb\xbf", 3)) lines += 3;
    pthread_mutex_lock(&self.lock);
    open_store();
    *count = read_lines(lines, CHECK_ONLY, why);
    if (*count >= 0 && read_lines(lines, REPLACE, why) < 0) {
        *why   = tni_text_of("memory is out");
        *count = -1;
    }
    if (*count >= 0) write_disk();
    self.imports++;
    pthread_mutex_unlock(&self.lock);
    free(text);
    return *count >= 0;
}

uint32_t tni_tuned_imports(void)
{
    pthread_mutex_lock(&self.lock);
    uint32_t n = self.imports;
    pthread_mutex_unlock(&self.lock);
    return n;
}

// ---- the model ---------------------------------------------------------------------------------

// Kinds of kernels, on which settings act differently: by their loops over R, their tails, and
// where the lane is.
static int kind_of(const tni_kernel *k)
{
    return (k->nr > 0) + 2 * (k->tails != 0) + 4 * (k->lane_in_r != 0);
}

// Choices of plans are a kind of their own.
enum { OF_PLANS = 8 };

// The logarithm of what a value of a knob is expected to do. DOUBT: how many measurements of no
// effect every factor begins with, so that one lucky measurement does not decide the order. The
// lock is held.
static double expected_log(const char *name, int kind, int knob, int value)
{
    enum { DOUBT = 2 };
    const factor *f = find_factor(name, kind, knob, value);
    return f ? f->sum / (f->n + DOUBT) : 0;
}

// Factors multiply: knobs are taken to act independently, which is enough for an order of
// candidates.
double tni_tuning_expect(const char *chip, const tni_kernel *k, const tni_tuning *t)
{
    char   name[64];
    double sum = 0;
    copy_word(name, sizeof name, chip);
    pthread_mutex_lock(&self.lock);
    open_store();
    for (int i = 0; i < TNI_KNOBS; i++)
        if (t->of[i]) sum += expected_log(name, kind_of(k), i, t->of[i]);
    pthread_mutex_unlock(&self.lock);
    return exp(sum);
}

// Of choices only the kind counts, since the values that they are about differ from plan to plan.
double tni_choice_expect(const char *chip, int kind)
{
    char name[64];
    copy_word(name, sizeof name, chip);
    pthread_mutex_lock(&self.lock);
    open_store();
    double sum = expected_log(name, OF_PLANS, TNI_KNOBS + kind, 1);
    pthread_mutex_unlock(&self.lock);
    return exp(sum);
}

// Adds a measurement to a factor. The lock is held.
static void add_measurement(const char *name, int kind, int knob, int value, double sum)
{
    const factor *old = find_factor(name, kind, knob, value);
    factor        f   = { .kind = kind, .knob = knob, .value = value };
    if (old) f = *old;
    snprintf(f.chip, sizeof f.chip, "%s", name);
    f.n++;
    f.sum += sum;
    add_factor(&f, false);
}

// Only the knobs that differ have made the difference. On disk it comes with the next winner.
void tni_tuning_learn(const char *chip, const tni_kernel *k, const tni_tuning *from,
                      const tni_tuning *t, double ratio)
{
    char name[64];
    int  knobs = 0;
    for (int i = 0; i < TNI_KNOBS; i++) knobs += t->of[i] != from->of[i];
    if (!knobs || !(ratio > 0) || !isfinite(ratio)) return;
    copy_word(name, sizeof name, chip);
    pthread_mutex_lock(&self.lock);
    open_store();
    for (int i = 0; i < TNI_KNOBS; i++)
        if (t->of[i] && t->of[i] != from->of[i])
            add_measurement(name, kind_of(k), i, t->of[i], log(ratio) / knobs);
    pthread_mutex_unlock(&self.lock);
}

void tni_choice_learn(const char *chip, int kind, double ratio)
{
    char name[64];
    if (!(ratio > 0) || !isfinite(ratio)) return;
    copy_word(name, sizeof name, chip);
    pthread_mutex_lock(&self.lock);
    open_store();
    add_measurement(name, OF_PLANS, TNI_KNOBS + kind, 1, log(ratio));
    pthread_mutex_unlock(&self.lock);
}
