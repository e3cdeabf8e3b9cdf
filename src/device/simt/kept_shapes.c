// The shapes of the last few launches of a kernel, by all that their choice reads.
#include "device/simt/kept_shapes.h"

#include "kernel/launch_words.h"

#include <stdlib.h>
#include <string.h>

// A shape with the words of its launch. Equal words have equal shapes.
struct tni_kept_shape {
    tni_chosen_shape chosen;
    int              count;
    int64_t          word[];
};

// A launch under measurement brings its settings, as does one whose scratch was taken for them.
static bool is_shape_of(const struct tni_kept_shape *k, const tni_launch *l, const int64_t *word,
                        int count)
{
    const tni_chosen_shape *c = &k->chosen;
    if (k->count != count || memcmp(word, k->word, (size_t)count * sizeof *word)) return false;
    return l->tuning ? !memcmp(l->tuning, &c->settings, sizeof c->settings) : !c->given;
}

bool tni_shapes_find(const tni_kept_shapes *s, const tni_launch *l, tni_chosen_shape *found)
{
    int64_t word[TNI_LAUNCH_WORDS];
    int     count = tni_launch_words(l, word);
    for (int i = 0; i < TNI_KEPT_SHAPES; i++) {
        if (!s->kept[i] || !is_shape_of(s->kept[i], l, word, count)) continue;
        *found = s->kept[i]->chosen;
        return true;
    }
    return false;
}

void tni_shapes_keep(tni_kept_shapes *s, const tni_launch *l, const tni_chosen_shape *now)
{
    int64_t                word[TNI_LAUNCH_WORDS];
    int                    count = tni_launch_words(l, word);
    size_t                 bytes = (size_t)count * sizeof *word;
    struct tni_kept_shape *k     = malloc(sizeof *k + bytes);
    if (!k) return;
    k->chosen = *now;
    k->count  = count;
    memcpy(k->word, word, bytes);
    free(s->kept[s->oldest]);
    s->kept[s->oldest] = k;
    s->oldest          = (s->oldest + 1) % TNI_KEPT_SHAPES;
}

void tni_shapes_forget(tni_kept_shapes *s)
{
    for (int i = 0; i < TNI_KEPT_SHAPES; i++) {
        free(s->kept[i]);
        s->kept[i] = NULL;
    }
}
