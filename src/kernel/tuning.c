// The winners of measurements and the model of what settings do, in memory and on disk. The text on disk has a line for each:
//
//   winner 5f3c... 77a1... 136.02 153.10 138.44 cluster=4,unroll=2 NVIDIA_H200 ROW_(512,_131072)
//   winner 81b0... 0c4e... 812.40 840.13 818.21 cut=1f0c22d9,plain=90ab1187 NVIDIA_H200 plan_of_96_steps
//   factor NVIDIA_H200 1 unroll 2 14 -0.31
//
// that is, key, microseconds of the winner, of the rule and of the next best, settings, chip, what it is; and chip, kind of kernel,
// knob, value, how often it was measured, and the sum of the logarithms of its times beside the rule's.
#include "kernel/tuning.h"

#include "kernel/disk.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Knobs, then the kinds of choices, whose factors are kept as those of knobs are.
enum { NAMES = TNI_KNOBS + TNI_CHOICE_KINDS };
static const char *const knob_name[NAMES] = {
    "vector",   "unroll", "warps",  "hold",    "cluster", "occupancy", "grid",
    "prefetch", "tile",   "square", "threads", "chunks",  "cut",       "join",
    "store",    "inline", "load",   "plain",   "dense",
};
_Static_assert(NAMES == 19, "a knob or a kind of choice has no name");

// The largest value of each knob that devices offer, and whether it is a power of two, which the text of kernels counts on.
static const struct {
    uint8_t most;
    bool    power;
} range[TNI_KNOBS] = {
    [TNI_KNOB_VECTOR]    = { 8, true },
    [TNI_KNOB_UNROLL]    = { 8, true },
    [TNI_KNOB_WARPS]     = { 32, true },
    [TNI_KNOB_HOLD]      = { TNI_HOLD_BY_LOOP, false },
    [TNI_KNOB_CLUSTER]   = { TNI_SHARINGS, false },
    [TNI_KNOB_OCCUPANCY] = { 2, false },
    [TNI_KNOB_GRID]      = { 16, false },
    [TNI_KNOB_PREFETCH]  = { 2, false },
    [TNI_KNOB_TILE]      = { 4, true },
    [TNI_KNOB_SQUARE]    = { 16, true },
    [TNI_KNOB_THREADS]   = { 255, false },
    [TNI_KNOB_CHUNKS]    = { 64, false },
};

// What a value of a knob did in kernels of a kind: the sum of the logarithms of n measured ratios.
typedef struct {
    char   chip[64];
    int    kind, knob, value, n;
    double sum;
} factor;

// What is known, of all chips. Both lists are short: a program has hundreds of kernels, and they are looked through only
// when a launch is new. Invariant: `open` once the disk was read.
static struct {
    pthread_mutex_t lock;
    bool            open, off;
    tni_tuned      *winner;
    factor         *factor;
    int             winners, winners_room, factors, factors_room;
    tni_disk        disk;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const tni_disk_key disk_key = { "tuned", "winners", "", "", "" };

// ---- texts -------------------------------------------------------------------------------------

// Prints the settings that are not the rule's, as "vector 4, unroll 2" or "vector=4,unroll=2".
static void write_settings(const tni_tuning *t, const char *is, const char *and, tni_text *to)
{
    for (int i = 0; i < TNI_KNOBS; i++)
        if (t->of[i]) tni_text_add(to, "%s%s%s%d", *to->s ? and : "", knob_name[i], is, t->of[i]);
}

// For people: knobs by their names, in the order of tni_knob.
tni_text tni_tuning_text(const tni_tuning *t)
{
    tni_text s = { "" };
    write_settings(t, " ", ", ", &s);
    return *s.s ? s : tni_text_of("as the rule says");
}

const char *tni_choice_name(int kind)
{
    return knob_name[TNI_KNOBS + kind];
}

// Writes the choices of a plan as "cut=1f0c22d9,plain=90ab1187".
static void write_choices(const tni_choices *c, tni_text *to)
{
    for (int i = 0; i < c->n; i++)
        tni_text_add(to, "%s%s=%08" PRIx32, *to->s ? "," : "", tni_choice_name(c->of[i].kind),
                     c->of[i].where);
}

// The number of a knob or choice of that name, -1 if there is none.
static int knob_of(const char *name, size_t n)
{
    for (int i = 0; i < NAMES; i++)
        if (strlen(knob_name[i]) == n && !memcmp(knob_name[i], name, n)) return i;
    return -1;
}

// Whether a device could offer a value: files are also written by people.
static bool is_offered(int knob, long v)
{
    return v >= 1 && v <= range[knob].most && !(range[knob].power && v & (v - 1));
}

// Adds a setting or a choice to those of a winner; false if no device or planner could have offered it.
static bool add_setting(tni_tuned *w, int knob, long v)
{
    if (knob < TNI_KNOBS) {
        if (!is_offered(knob, v)) return false;
        w->settings.of[knob] = (uint8_t)v;
        return true;
    }
    if (w->choices.n == TNI_CHOICES || v < 1 || v > UINT32_MAX) return false;
    w->choices.of[w->choices.n++] = (tni_choice){ (uint8_t)(knob - TNI_KNOBS), (uint32_t)v };
    return true;
}

// Reads what write_settings and write_choices wrote; "-" is the rule's. False for anything else.
static bool read_settings(const char *s, tni_tuned *w)
{
    if (!strcmp(s, "-")) return true;
    while (*s) {
        size_t n    = strcspn(s, "=");
        int    knob = knob_of(s, n);
        char  *end  = NULL;
        if (knob < 0 || s[n] != '=') return false;
        long v = strtol(s + n + 1, &end, knob < TNI_KNOBS ? 10 : 16);
        if (end == s + n + 1 || !add_setting(w, knob, v) || (*end && *end != ',')) return false;
        s = *end ? end + 1 : end;
    }
    return true;
}

// Words of a line have no spaces: names of chips get '_' for them.
static void copy_word(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", *from ? from : "-");
    for (char *p = to; *p; p++)
        if (*p <= ' ' || *p > '~') *p = '_';
}

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

// Returns the winner of a key on a chip; NULL if there is none.
static tni_tuned *find_winner(const char *chip, const uint64_t key[2])
{
    for (int i = 0; i < self.winners; i++) {
        tni_tuned *w = &self.winner[i];
        if (w->key[0] == key[0] && w->key[1] == key[1] && !strcmp(w->chip, chip)) return w;
    }
    return NULL;
}

// Adds a winner. One with its key is replaced, or with `replace` false kept. False when memory is out.
static bool add_winner(const tni_tuned *t, bool replace)
{
    tni_tuned *w = find_winner(t->chip, t->key);
    if (w && !replace) return true;
    if (!w) {
        if (!grow_list((void **)&self.winner, self.winners, &self.winners_room, sizeof *w))
            return false;
        w = &self.winner[self.winners++];
    }
    *w = *t;
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

// The same for a factor.
static bool add_factor(const factor *f, bool replace)
{
    factor *old = find_factor(f->chip, f->kind, f->knob, f->value);
    if (old && !replace) return true;
    if (!old) {
        if (!grow_list((void **)&self.factor, self.factors, &self.factors_room, sizeof *f))
            return false;
        old = &self.factor[self.factors++];
    }
    *old = *f;
    return true;
}

// ---- the text of all ---------------------------------------------------------------------------

enum { LINE = 512, SETTINGS = 192 };

// A key is printed with all its digits, so that lines can be compared as texts.
static void print_winner(const tni_tuned *w, char line[LINE])
{
    tni_text settings = { "" };
    write_settings(&w->settings, "=", ",", &settings);
    write_choices(&w->choices, &settings);
    snprintf(line, LINE, "winner %016" PRIx64 " %016" PRIx64 " %.4g %.4g %.4g %s %s %s\n",
             w->key[0], w->key[1], w->us, w->rule_us, w->next_us, *settings.s ? settings.s : "-",
             w->chip, w->what);
}

// A factor is kept as a sum and a count, so that what another process has measured could be added to it.
static void print_factor(const factor *f, char line[LINE])
{
    snprintf(line, LINE, "factor %s %d %s %d %d %.6g\n", f->chip, f->kind, knob_name[f->knob],
             f->value, f->n, f->sum);
}

// Reads what print_winner wrote. Widths keep words within their arrays.
static bool read_winner(const char *line, tni_tuned *w)
{
    char settings[SETTINGS];
    memset(w, 0, sizeof *w);
    int n = sscanf(line, "winner %" SCNx64 " %" SCNx64 " %lf %lf %lf %191s %63s %63s", &w->key[0],
                   &w->key[1], &w->us, &w->rule_us, &w->next_us, settings, w->chip, w->what);
    return n == 8 && read_settings(settings, w) && w->us > 0;
}

// Reads what print_factor wrote. A sum that is not finite would spoil every expectation.
static bool read_factor(const char *line, factor *f)
{
    char name[32] = "";
    memset(f, 0, sizeof *f);
    int n = sscanf(line, "factor %63s %d %31s %d %d %lf", f->chip, &f->kind, name, &f->value, &f->n,
                   &f->sum);
    f->knob = knob_of(name, strlen(name));
    return n == 6 && f->knob >= 0 && f->n > 0 && isfinite(f->sum);
}

// What becomes of lines that are read.
typedef enum {
    CHECK_ONLY,
    ADD_UNKNOWN,  // what is known here stays
    REPLACE
} reading;

// Reads a line; false if it is neither winner nor factor, or memory is out. Blank lines and lines that begin with # are
// for people.
static bool read_line(const char *line, reading how, int *winners)
{
    tni_tuned w;
    factor    f;
    if (!*line || *line == '#') return true;
    if (strncmp(line, "winner ", 7))
        return read_factor(line, &f) && (how == CHECK_ONLY || add_factor(&f, how == REPLACE));
    ++*winners;
    return read_winner(line, &w) && (how == CHECK_ONLY || add_winner(&w, how == REPLACE));
}

// Reads the lines of a text, which has a 0 at its end. Returns the number of winners; -1, with the line, if one was not
// taken.
static int read_lines(char *text, reading how, tni_text *why)
{
    int winners = 0, number = 1;
    for (char *line = text; *line; number++) {
        size_t n   = strcspn(line, "\n");
        char   end = line[n];
        line[n]    = 0;
        bool ok    = read_line(line, how, &winners);
        line[n]    = end;
        if (!ok) {
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
    for (int i = 0; i < self.winners; i++, p += strlen(p)) print_winner(&self.winner[i], p);
    for (int i = 0; i < self.factors; i++, p += strlen(p)) print_factor(&self.factor[i], p);
    *bytes = (size_t)(p - text);
    return text;
}

// ---- the disk ----------------------------------------------------------------------------------

// Whether a variable of the environment has this very value.
static bool is_set(const char *name, const char *value)
{
    const char *v = getenv(name);
    return v && !strcmp(v, value);
}

// Adds what is on disk and not known here: that is older, or of another process. A text that cannot be read counts as
// none.
static void read_disk(void)
{
    size_t   bytes = 0;
    tni_text why;
    char    *data = tni_disk_find(&self.disk, &disk_key, &bytes);
    char    *text = data ? malloc(bytes + 1) : NULL;
    if (text) {
        memcpy(text, data, bytes);
        text[bytes] = 0;
        read_lines(text, ADD_UNKNOWN, &why);
    }
    free(text);
    free(data);
}

// Reads environment and disk at the first use. The lock is held.
static void open_store(void)
{
    if (self.open) return;
    self.open = true;
    self.off  = is_set("TN_DETERMINISTIC", "1") || is_set("TN_TUNE", "0");
    tni_disk_open(&self.disk);
    read_disk();
}

// Writes all to disk. Others may have added lines meanwhile, which are added first.
static void write_disk(void)
{
    size_t bytes = 0;
    read_disk();
    char *text = write_lines(&bytes);
    if (text) tni_disk_keep(&self.disk, &disk_key, text, bytes);
    free(text);
}

// ---- winners -----------------------------------------------------------------------------------

// Hashes the bytes of the kernel, then the words that its shape follows from: sizes, strides and, of each access, the bytes from a
// cache line to where it begins, since vectors depend on them. Without memory the key is 0, which no winner has.
void tni_tuned_key(const tni_launch *l, uint64_t key[2])
{
    enum { WORDS = TNI_AXES + TNI_MAX_ACCESSES * (TNI_AXES + 2) };
    const tni_kernel *k = l->kernel;
    int64_t           word[WORDS];
    size_t            n = 0, axes = (size_t)(k->np + k->nr), bytes = tni_kernel_key(k, NULL, 0);
    for (size_t i = 0; i < axes; i++) word[n++] = l->size[i];
    for (int a = 0; a < k->naccess; a++) {
        int     b    = k->access[a].buffer;
        int64_t size = b < 0 ? 1 : (int64_t)tni_dtype_size((tn_dtype)k->buffer[b].dtype);
        for (size_t i = 0; i < axes; i++) word[n++] = l->stride[a][i];
        word[n++] = l->stride[a][TNI_AXES];
        word[n++] = l->offset[a] % 64 * size % 64;
    }
    char *all = malloc(bytes + n * sizeof *word);
    key[0] = key[1] = 0;
    if (!all) return;
    tni_kernel_key(k, all, bytes);
    memcpy(all + bytes, word, n * sizeof *word);
    tni_disk_hash_bytes(all, bytes + n * sizeof *word, key);
    free(all);
}

// Whether there are winners at all. Most processes have none, and pay a lock and two tests for each launch or plan that is new.
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
    const tni_tuned *w = find_winner(name, key);
    if (w) *found = *w;
    pthread_mutex_unlock(&self.lock);
    return w != NULL;
}

bool tni_tuned_find(const char *chip, const tni_launch *l, tni_tuned *found)
{
    uint64_t key[2];
    if (!has_winners()) return false;
    tni_tuned_key(l, key);
    return copy_winner(chip, key, found);
}

void tni_tuned_plan_key(const void *bytes, size_t n, uint64_t key[2])
{
    tni_disk_hash_bytes(bytes, n, key);
}

bool tni_tuned_find_plan(const char *chip, const void *bytes, size_t n, tni_tuned *found)
{
    uint64_t key[2];
    if (!has_winners()) return false;
    tni_tuned_plan_key(bytes, n, key);
    return copy_winner(chip, key, found);
}

// Written at once: a program that is ended by a signal keeps what it has measured.
bool tni_tuned_keep(const tni_tuned *t)
{
    tni_tuned w = *t;
    copy_word(w.chip, sizeof w.chip, t->chip);
    copy_word(w.what, sizeof w.what, t->what);
    pthread_mutex_lock(&self.lock);
    open_store();
    bool ok = add_winner(&w, true);
    if (ok) write_disk();
    pthread_mutex_unlock(&self.lock);
    return ok;
}

// The lists keep their room, so that threads that read them meanwhile wait for the lock only.
void tni_tuned_forget(void)
{
    pthread_mutex_lock(&self.lock);
    self.open    = false;
    self.winners = self.factors = 0;
    pthread_mutex_unlock(&self.lock);
}

// ---- files of people ---------------------------------------------------------------------------

// The text that is also on disk, so that the two formats are one.
bool tni_tuned_export(const char *path, int *count, tni_text *why)
{
    size_t bytes = 0;
    pthread_mutex_lock(&self.lock);
    open_store();
    char *text = write_lines(&bytes);
    *count     = self.winners;
    pthread_mutex_unlock(&self.lock);
    FILE *f  = text ? fopen(path, "w") : NULL;
    bool  ok = f && fwrite(text, 1, bytes, f) == bytes;
    if (f && fclose(f) != 0) ok = false;
    if (!ok) *why = tni_text_of("%s cannot be written", tni_quoted(path).s);
    free(text);
    return ok;
}

// The largest file that is read: a million winners.
enum { MOST_BYTES = 256 << 20 };

// Returns the contents of a file with a 0 behind them; NULL, with the reason, if it cannot be read.
// Files are read whole: lines are cut in place.
static char *read_file(const char *path, tni_text *why)
{
    FILE *f    = fopen(path, "rb");
    long  n    = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    char *text = n >= 0 && n <= MOST_BYTES ? malloc((size_t)n + 1) : NULL;
    bool  ok   = text && fseek(f, 0, SEEK_SET) == 0 && fread(text, 1, (size_t)n, f) == (size_t)n;
    if (f) fclose(f);
    if (ok) {
        text[n] = 0;
        return text;
    }
    *why = tni_text_of("%s cannot be read", tni_quoted(path).s);
    free(text);
    return NULL;
}

// A file with a bad line changes nothing: all lines are looked at before the first is taken.
bool tni_tuned_import(const char *path, int *count, tni_text *why)
{
    char *text = read_file(path, why);
    if (!text) return false;
    pthread_mutex_lock(&self.lock);
    open_store();
    *count = read_lines(text, CHECK_ONLY, why);
    if (*count >= 0 && read_lines(text, REPLACE, why) < 0) {
        *why   = tni_text_of("memory is out");
        *count = -1;
    }
    if (*count >= 0) write_disk();
    pthread_mutex_unlock(&self.lock);
    free(text);
    return *count >= 0;
}

// ---- the model ---------------------------------------------------------------------------------

// Kinds of kernels, on which settings act differently: by their loops over R, their tails, and where the lane is.
static int kind_of(const tni_kernel *k)
{
    return (k->nr > 0) + 2 * (k->tails != 0) + 4 * (k->lane_in_r != 0);
}

// Choices of plans are a kind of their own.
enum { OF_PLANS = 8 };

// The logarithm of what a value of a knob is expected to do. DOUBT: how many measurements of no effect every factor begins with,
// so that one lucky measurement does not decide the order. The lock is held.
static double expected_log(const char *name, int kind, int knob, int value)
{
    enum { DOUBT = 2 };
    const factor *f = find_factor(name, kind, knob, value);
    return f ? f->sum / (f->n + DOUBT) : 0;
}

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
    add_factor(&f, true);
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
