// The way from a kernel to the compiled text that it is in, on disk and in this process.
#include "device/cpu/recall.h"

#include "device/cpu/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECT "so"

// What the small file of a kernel says.
typedef struct {
    tni_disk_hash text;
    uint64_t      number;
} place;

// A text that was loaded: kernels of one plan are mostly in one.
typedef struct loaded loaded;
struct loaded {
    loaded       *next;
    tni_disk_hash text;
    void         *object;  // NULL: it cannot be loaded
};

static loaded *all;

void tni_made_name(char name[TNI_KERNEL_NAME], int i)
{
    snprintf(name, TNI_KERNEL_NAME, "tenon_kernel_%d", i);
}

bool tni_made_find(void *object, int i, bool tails, tni_made *m)
{
    char name[TNI_KERNEL_NAME], finish[TNI_KERNEL_NAME + 8];
    tni_made_name(name, i);
    snprintf(finish, sizeof finish, "%s_finish", name);
    *m = (tni_made){ .run = NULL };
    return tni_object_symbol(object, name, &m->run) &&
           (!tails || tni_object_symbol(object, finish, &m->finish));
}

// A kernel's key as a text, to be freed.
static char *text_of(const char *key, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    char             *text     = malloc(2 * bytes + 1);
    if (!text) return NULL;
    for (size_t i = 0; i < bytes; i++) {
        text[2 * i]     = digits[(unsigned char)key[i] >> 4];
        text[2 * i + 1] = digits[(unsigned char)key[i] & 15];
    }
    text[2 * bytes] = 0;
    return text;
}

// TN_KERNEL_SOURCES is a hash of the sources that give instructions their meaning (CMakeLists.txt).
#ifndef TN_KERNEL_SOURCES
#define TN_KERNEL_SOURCES __DATE__ __TIME__
#endif
static tni_disk_key key_of(const tni_cc *c, const char *text)
{
    return (tni_disk_key){
        .kind = "at", .source = text, .options = TN_KERNEL_SOURCES, .compiler = c->who, .chip = ""
    };
}

static void *load(const tni_disk *d, const tni_cc *c, tni_disk_hash text)
{
    for (loaded *l = all; l; l = l->next)
        if (!memcmp(&l->text, &text, sizeof text)) return l->object;
    size_t   bytes = 0;
    tni_text why;
    loaded  *l = malloc(sizeof *l);
    if (!l) return NULL;
    void *data = tni_disk_find_hash(d, text, OBJECT, &bytes);
    *l         = (loaded){ .next = all, .text = text };
    if (data) l->object = tni_object_load(&c->runner, data, bytes, &why);
    free(data);
    all = l;
    return l->object;
}

bool tni_recall(const tni_disk *d, const tni_cc *c, const char *key, size_t bytes, bool tails,
                tni_made *m)
{
    *m = (tni_made){ .run = NULL };
    if (!c->who[0] || !d->path[0]) return false;
    char *text = text_of(key, bytes);
    if (!text) return false;
    size_t       n     = 0;
    tni_disk_key k     = key_of(c, text);
    place       *at    = tni_disk_find(d, &k, &n);
    void        *code  = at && n == sizeof *at ? load(d, c, at->text) : NULL;
    bool         found = code && tni_made_find(code, (int)at->number, tails, m);
    if (!found) m->run = NULL;
    m->found = found;
    free(at);
    free(text);
    return found;
}

void tni_recall_keep(tni_disk *d, const tni_cc *c, const char *key, size_t bytes,
                     tni_disk_hash text, int i)
{
    char *own = c->who[0] ? text_of(key, bytes) : NULL;
    if (!own) return;
    tni_disk_key k = key_of(c, own);
    place        p = { .text = text, .number = (uint64_t)i };
    tni_disk_keep(d, &k, &p, sizeof p);
    free(own);
}
