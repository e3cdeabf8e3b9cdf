// Settings of kernels and choices of plans as texts, and the key of a launch, by which its winner is found.
#include "kernel/tuning.h"

#include "kernel/disk.h"
#include "kernel/launch_words.h"

#include <inttypes.h>
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
    [TNI_KNOB_PREFETCH]  = { 3, false },
    [TNI_KNOB_TILE]      = { 4, true },
    [TNI_KNOB_SQUARE]    = { 16, true },
    [TNI_KNOB_THREADS]   = { 255, false },
    [TNI_KNOB_CHUNKS]    = { 64, false },
    [TNI_KNOB_STREAM]    = { 2, false },
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

// For lines of files, whose words have no spaces.
tni_text tni_tuned_word(const tni_tuned *w)
{
    tni_text s = { "" };
    write_settings(&w->settings, "=", ",", &s);
    write_choices(&w->choices, &s);
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

// Every value is checked: a file may be of a later version, or written by hand, and a device takes what it is given.
bool tni_tuned_read_word(const char *s, tni_tuned *w)
{
    if (!strcmp(s, "-")) return true;
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

void tni_tuned_plan_key(const void *bytes, size_t n, uint64_t key[2])
{
    tni_disk_hash_bytes(bytes, n, key);
}
