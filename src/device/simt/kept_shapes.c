// The shapes of the last few launches of a kernel, by all that their choice reads.
#include "device/simt/kept_shapes.h"

#include "tensor/dtype.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_WORDS = TNI_AXES + TNI_MAX_ACCESSES * (TNI_AXES + 2) };

// All that a launch's shape depends on besides the kernel and settings, as words: sizes, strides, and the alignment
// of addresses. Equal keys have equal shapes.
typedef struct {
    int     count;
    int64_t word[KEY_WORDS];
} shape_key;

// A shape with the words of its key.
struct tni_kept_shape {
    tni_chosen_shape chosen;
    int              count;
    int64_t          word[];
};

// Writes what the choice of a shape reads. Addresses matter only modulo 64 bytes, by which loads are
// aligned.
static void write_shape_key(const tni_launch *l, shape_key *m)
{
    const tni_kernel *k = l->kernel;
    int               n = k->np + k->nr, at = 0;
    for (int i = 0; i < n; i++) m->word[at++] = l->size[i];
    for (int a = 0; a < k->naccess; a++) {
        int     b    = k->access[a].buffer;
        int64_t size = b < 0 ? 1 : (int64_t)tni_dtype_size((tn_dtype)k->buffer[b].dtype);
        int64_t base = b < 0 ? 0 : (int64_t)((uintptr_t)l->buffer[b] % 64);
        for (int i = 0; i < n; i++) m->word[at++] = l->stride[a][i];
        m->word[at++] = l->stride[a][TNI_AXES];
        m->word[at++] = (base + l->offset[a] % 64 * size) % 64;
    }
    m->count = at;
}

// A launch under measurement brings its settings, as does one whose scratch was taken for them.
static bool is_shape_of(const struct tni_kept_shape *k, const tni_launch *l, const shape_key *key)
{
    const tni_chosen_shape *c = &k->chosen;
    if (k->count != key->count || memcmp(key->word, k->word, (size_t)k->count * sizeof *k->word))
        return false;
    return l->tuning ? !memcmp(l->tuning, &c->settings, sizeof c->settings) : !c->given;
}

bool tni_shapes_find(const tni_kept_shapes *s, const tni_launch *l, tni_chosen_shape *found)
{
    shape_key key;
    write_shape_key(l, &key);
    for (int i = 0; i < TNI_KEPT_SHAPES; i++) {
        if (!s->kept[i] || !is_shape_of(s->kept[i], l, &key)) continue;
        *found = s->kept[i]->chosen;
        return true;
    }
    return false;
}

void tni_shapes_keep(tni_kept_shapes *s, const tni_launch *l, const tni_chosen_shape *now)
{
    shape_key key;
    write_shape_key(l, &key);
    size_t                 bytes = (size_t)key.count * sizeof *key.word;
    struct tni_kept_shape *k     = malloc(sizeof *k + bytes);
    if (!k) return;
    k->chosen = *now;
    k->count  = key.count;
    memcpy(k->word, key.word, bytes);
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
