// CIFAR-10 in its binary form: records of a label and 3 planes of 32 x 32 bytes, in mapped files:
// data_batch_1.bin to data_batch_5.bin with 10,000 records each, and test_batch.bin.
#include "data/content.h"
#include "data/dataset.h"
#include "data/pixels.h"

enum { AREA = 3 * 32 * 32, RECORD = 1 + AREA, MOST_FILES = 5 };

static const char *const names[] = { "airplane", "automobile", "bird",  "cat",  "deer",
                                     "dog",      "frog",       "horse", "ship", "truck" };
enum { CLASSES = sizeof names / sizeof *names };

// The files one after another; file i has records[i] of the items.
typedef struct {
    tni_item_source source;  // first
    int             files;
    tni_mapping    *file[MOST_FILES];
    int64_t         records[MOST_FILES];
} cifar;

// Few files, so their sizes are subtracted in turn.
static int get_record(const tni_item_source *s, int64_t item, void *const *dst)
{
    const cifar *c = (const cifar *)s;
    int          f = 0;
    while (item >= c->records[f]) item -= c->records[f++];
    const uint8_t *record = c->file[f]->data + item * RECORD;
    tni_unit_floats(dst[0], record + 1, AREA);
    *(int64_t *)dst[1] = record[0];
    return 0;
}

static void free_cifar(tni_heap *h, tni_item_source *s)
{
    cifar *c = (cifar *)s;
    for (int i = 0; i < c->files; i++) tni_mapping_unref(c->file[i]);
    tni_free(h, c);
}

// Maps one more file and checks its labels now, so that getting an item cannot fail.
static bool add_file(tn_ctx *cx, cifar *c, const char *path)
{
    tni_mapping *m = tni_mapping_open(cx, "cifar10", path);
    if (!m) return false;
    c->file[c->files] = m;
    int64_t n = c->records[c->files++] = (int64_t)(m->bytes / RECORD);
    c->source.count += n;
    if (m->bytes == 0) return tni_refuse(cx, TN_EFORMAT, "cifar10: %s: it is empty", path);
    if (n == 0 || m->bytes % RECORD)
        return tni_refuse(cx, TN_EFORMAT,
                          "cifar10: %s: %zu bytes are not a multiple of the record size %d", path,
                          m->bytes, RECORD);
    for (int64_t i = 0; i < n; i++) {
        int label = m->data[i * RECORD];
        if (label < CLASSES) continue;
        return tni_refuse(cx, TN_EFORMAT,
                          "cifar10: %s: record %lld has the label %d, of %d classes", path,
                          (long long)i, label, CLASSES);
    }
    return true;
}

// The files are in the folder itself, or in the one inside it that the archive unpacks to.
static const char *const inside[] = { "", "/cifar-10-batches-bin" };

// Adds the five training files or the one for testing.
static bool add_files(tn_ctx *cx, cifar *c, const char *dir, bool test)
{
    char        path[TNI_PATH];
    const char *in = NULL;
    for (int i = 1; i <= (test ? 1 : MOST_FILES); i++) {
        tni_text name = test ? (tni_text){ "test_batch.bin" } : tni_text_of("data_batch_%d.bin", i);
        if (!in) in = inside[!tni_find_file(path, "%s/%s", dir, name.s)];
        if (!tni_find_file(path, "%s%s/%s", dir, in, name.s))
            return tni_refuse(cx, TN_EIO,
                              "cifar10: %s: there is no %s in it, nor in cifar-10-batches-bin", dir,
                              name.s);
        if (!add_file(cx, c, path)) return false;
    }
    return true;
}

// Nothing is copied: items are read from the mapped files.
tn_data *tn_cifar10(tn_ctx *cx, const char *dir, bool test)
{
    if (!tni_ctx_ok(cx, "cifar10") || !tni_folder_ok(cx, "cifar10", dir)) return NULL;
    cifar *c = tni_zalloc(&cx->heap, sizeof *c);
    if (!c) return tni_fail_memory(cx, "cifar10");
    c->source = (tni_item_source){ .fields      = 2,
                                   .field       = { tni_field(TN_F32, TN_SHAPE(3, 32, 32)),
                                                    tni_field(TN_I64, TN_0D) },
                                   .classes     = CLASSES,
                                   .class_names = names,
                                   .get         = get_record,
                                   .free        = free_cifar };
    if (add_files(cx, c, dir, test)) return tni_data_make(cx, "cifar10", &c->source);
    free_cifar(&cx->heap, &c->source);
    return NULL;
}
