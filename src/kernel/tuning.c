// Settings of kernels, choices of plans and algorithms of libraries as texts, the keys by which
// winners are found, and contests.
#include "kernel/tuning.h"

#include "base/hash.h"
#include "kernel/disk.h"
#include "kernel/launch_words.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Knobs, then the kinds of choices, whose factors are kept as those of knobs are.
enum { NAMES = TNI_KNOBS + TNI_CHOICE_KINDS };
static const char *const knob_name[NAMES] = {
    "vector", "unroll", "warps",   "hold",   "cluster", "occupancy", "grid", "prefetch",
    "tile",   "square", "threads", "chunks", "stream",  "cut",       "join", "store",
    "inline", "load",   "plain",   "dense",  "other",   "fewer",     "more", "spread",
};
_Static_assert(NAMES == 24, "a knob or a kind of choice has no name");

// The largest value of each knob that devices offer, and whether it is a power of two, which the
// text of kernels counts on.
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
    [TNI_KNOB_PREFETCH]  = { 3, false },
    [TNI_KNOB_TILE]      = { 4, true },
    [TNI_KNOB_SQUARE]    = { 16, true },
    [TNI_KNOB_THREADS]   = { 255, false },
    [TNI_KNOB_CHUNKS]    = { 64, false },
    [TNI_KNOB_STREAM]    = { 3, false },
};

// ---- texts -------------------------------------------------------------------------------------

// Prints the settings that are not the rule's.
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

// The word of an algorithm, before its bytes.
static const char algorithm_name[] = "algorithm=";

// A hash of whose the algorithm is and of its bytes.
static uint32_t algorithm_hash(const tni_tuned *w)
{
    uint64_t hash = tni_hash(w->algorithm.byte, sizeof w->algorithm.byte);
    return (uint32_t)tni_hash_mix(tni_hash_mix(hash, w->key[0]), w->key[1]);
}

// Writes the bytes of an algorithm, two digits each, and the hash.
static void write_algorithm(const tni_tuned *w, tni_text *to)
{
    if (!w->algorithm.n) return;
    tni_text_add(to, "%s", algorithm_name);
    for (int i = 0; i < w->algorithm.n; i++) tni_text_add(to, "%02x", w->algorithm.byte[i]);
    tni_text_add(to, ".%08" PRIx32, algorithm_hash(w));
}

// For lines of files, whose words have no spaces.
tni_text tni_tuned_word(const tni_tuned *w)
{
    tni_text s = { "" };
    write_settings(&w->settings, "=", ",", &s);
    write_choices(&w->choices, &s);
    write_algorithm(w, &s);
    return *s.s ? s : tni_text_of("-");
}

const char *tni_knob_name(int knob)
{
    return knob_name[knob];
}

int tni_knob_of(const char *name, size_t n)
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

// Adds a setting or a choice to those of a winner; false if no device or planner could have offered
// it.
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

// Reads the bytes of an algorithm, all of them, and the hash.
static bool read_algorithm(const char *s, tni_tuned *w)
{
    tni_algorithm *a   = &w->algorithm;
    char          *end = NULL;
    unsigned       v   = 0;
    for (a->n = 0; a->n < TNI_ALGORITHM_BYTES && isxdigit((unsigned char)s[0]) &&
                   isxdigit((unsigned char)s[1]) && sscanf(s, "%2x", &v) == 1;
         s += 2)
        a->byte[a->n++] = (uint8_t)v;
    if (a->n < TNI_ALGORITHM_BYTES || *s != '.') return false;
    return strtoul(s + 1, &end, 16) == algorithm_hash(w) && end == s + 9 && !*end;
}

// Every value is checked: a file may be of a later version, or written by hand, and a device takes
// what it is given.
bool tni_tuned_read_word(const char *s, tni_tuned *w)
{
    size_t name = strlen(algorithm_name);
    if (!strcmp(s, "-")) return true;
    if (!strncmp(s, algorithm_name, name)) return read_algorithm(s + name, w);
    while (*s) {
        size_t n    = strcspn(s, "=");
        int    knob = tni_knob_of(s, n);
        char  *end  = NULL;
        if (knob < 0 || s[n] != '=') return false;
        long v = strtol(s + n + 1, &end, knob < TNI_KNOBS ? 10 : 16);
        if (end == s + n + 1 || !add_setting(w, knob, v) || (*end && *end != ',')) return false;
        s = *end ? end + 1 : end;
    }
    return true;
}

// ---- keys --------------------------------------------------------------------------------------

// Hashes the bytes of the kernel, then its words. Without memory the key is 0, which no winner has.
void tni_tuned_key(const tni_launch *l, uint64_t key[2])
{
    int64_t word[TNI_LAUNCH_WORDS];
    size_t  n = (size_t)tni_launch_words(l, word), bytes = tni_kernel_key(l->kernel, NULL, 0);
    char   *all = malloc(bytes + n * sizeof *word);
    key[0] = key[1] = 0;
    if (!all) return;
    tni_kernel_key(l->kernel, all, bytes);
    memcpy(all + bytes, word, n * sizeof *word);
    tni_disk_hash_bytes(all, bytes + n * sizeof *word, key);
    free(all);
}

void tni_tuned_bytes_key(const void *bytes, size_t n, uint64_t key[2])
{
    tni_disk_hash_bytes(bytes, n, key);
}

// ---- contests ----------------------------------------------------------------------------------

enum { SAMPLES = 5 };  // of each side in a contest

// What takes ten times as long is timed by itself: a contest runs each side five times, which is
// enough of the budget.
int tni_sample_runs(double seconds, double enough)
{
    double n = ceil(enough / fmax(seconds, 1e-7));
    if (seconds > 10 * enough) return 1;
    return n < 3 ? 3 : n > 200 ? 200 : (int)n;
}

int tni_by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// The middle of some samples, and how far apart those are that remain without the least and the
// most.
static double middle(double s[SAMPLES], double *spread)
{
    qsort(s, SAMPLES, sizeof *s, tni_by_size);
    *spread = s[SAMPLES - 2] - s[1];
    return s[SAMPLES / 2];
}

// In turns, so that a clock that slows down or another process that starts is felt by both. A
// hundredth is less than what a later run would notice. Where the first side fails, nothing is
// known of the second. However much times vary, five that are all below five others are no
// accident: of equal sides one contest in 252 ends so.
static bool wins_once(double (*sample)(void *arg, const void *way), void *arg, const void *best,
                      const void *other, double us[2])
{
    double a[SAMPLES], b[SAMPLES], vary[2];
    for (int i = 0; i < SAMPLES; i++) {
        a[i] = sample(arg, best);
        b[i] = sample(arg, other);
    }
    us[0]      = 1e6 * middle(a, &vary[0]);
    us[1]      = 1e6 * middle(b, &vary[1]);
    bool apart = us[0] - us[1] > 1e6 * fmax(vary[0], vary[1]) || b[SAMPLES - 1] < a[0];
    return isfinite(us[0]) && apart && us[1] < 0.99 * us[0];
}

bool tni_wins(double (*sample)(void *arg, const void *way), void *arg, const void *best,
              const void *other, int times, double us[2])
{
    bool wins = true;
    for (int i = 0; wins && i < times; i++) wins = wins_once(sample, arg, best, other, us);
    return wins;
}

bool tni_winner_stays(double (*sample)(void *arg, const void *way), void *arg, const void *rule,
                      const void *winner, bool older, double us[2])
{
    double turned[2];
    if (!older) return tni_wins(sample, arg, rule, winner, 1, us);
    bool lost = tni_wins(sample, arg, winner, rule, 1, turned);
    us[0]     = turned[1];
    us[1]     = turned[0];
    return !lost && isfinite(us[1]);
}
