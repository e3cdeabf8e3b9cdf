// IDX files, as MNIST and its kin have them: a header that tells type and sizes, then bytes. Images
// and labels stay where they are, in the mapped or expanded file.
//
// N images, C channels, H rows, W columns
#include "data/content.h"
#include "data/dataset.h"
#include "data/pixels.h"

enum { IDX_U8 = 8, IMAGE_RANK = 4, LEAST_CLASSES = 10 };

// A pair of files: images (N, C, H, W) and labels (N).
typedef struct {
    tni_source     source;  // first
    tni_content    images, labels;
    const uint8_t *pixels, *label;
    int64_t        area;  // pixels of an image, all channels
} idx;

// ---- the dataset -------------------------------------------------------------------------------

static int get_image(const tni_source *s, int64_t item, void *const *dst)
{
    const idx *d = (const idx *)s;
    tni_unit_floats(dst[0], d->pixels + item * d->area, d->area);
    *(int64_t *)dst[1] = d->label[item];
    return 0;
}

static void free_idx(tni_heap *h, tni_source *s)
{
    idx *d = (idx *)s;
    tni_content_close(h, &d->images);
    tni_content_close(h, &d->labels);
    tni_free(h, d);
}

// ---- headers -----------------------------------------------------------------------------------

static bool refuse(tn_ctx *cx, const char *path, const char *why)
{
    return tni_refuse(cx, TN_EFORMAT, "idx: %s: %s", path, why);
}

static int64_t big_endian(const unsigned char *p)
{
    return (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | (int64_t)p[3];
}

// Reads the sizes and holds them against the file, which must have just as many bytes. Returns the
// rank, or 0, reported.
static int read_header(tn_ctx *cx, const char *path, const tni_content *c, int least, int most,
                       int64_t size[IMAGE_RANK])
{
    if (c->bytes < 4 || c->data[0] || c->data[1]) return refuse(cx, path, "it is not an IDX file");
    int rank = c->data[3];
    if (c->data[2] != IDX_U8) {
        tni_fail(cx, TN_EFORMAT, "idx: %s: its elements are of type 0x%02x, not bytes (0x08)", path,
                 (unsigned)c->data[2]);
        return 0;
    }
    if (rank < least || rank > most) {
        tni_fail(cx, TN_EFORMAT, "idx: %s: its rank is %d, not %d as that of %s", path, rank, least,
                 least == 1 ? "labels" : "images");
        return 0;
    }
    size_t header = 4 + 4 * (size_t)rank;
    if (c->bytes < header) return refuse(cx, path, "its header is cut short");
    for (int i = 0; i < rank; i++) size[i] = big_endian(c->data + 4 + 4 * i);
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (size[i] == 0) return refuse(cx, path, "it is empty: a size is 0");
        if (count > INT64_MAX / size[i]) count = 0;  // never what the file has
        count *= size[i];
    }
    if ((uint64_t)count == c->bytes - header) return rank;
    tni_fail(cx, TN_EFORMAT, "idx: %s: %s by its header, but %zu bytes follow it", path,
             tni_shape_text(rank, size).s, c->bytes - header);
    return 0;
}

// (N, H, W) counts as (N, 1, H, W).
static bool read_images(tn_ctx *cx, const char *path, idx *d)
{
    int64_t size[IMAGE_RANK];
    if (!tni_content_open(cx, "idx", path, &d->images)) return false;
    int rank = read_header(cx, path, &d->images, 3, IMAGE_RANK, size);
    if (!rank) return false;
    int64_t channels   = rank == 4 ? size[1] : 1;
    d->pixels          = d->images.data + 4 + 4 * rank;
    d->source.count    = size[0];
    d->source.field[0] = tni_field(TN_F32, TN_SHAPE(channels, size[rank - 2], size[rank - 1]));
    d->area            = channels * size[rank - 2] * size[rank - 1];
    return true;
}

static bool read_labels(tn_ctx *cx, const char *path, idx *d)
{
    int64_t size[IMAGE_RANK], largest = 0;
    if (!tni_content_open(cx, "idx", path, &d->labels)) return false;
    if (!read_header(cx, path, &d->labels, 1, 1, size)) return false;
    if (size[0] != d->source.count)
        return tni_refuse(cx, TN_EFORMAT, "idx: %s: %lld labels, but there are %lld images", path,
                          (long long)size[0], (long long)d->source.count);
    d->label = d->labels.data + 8;
    for (int64_t i = 0; i < size[0]; i++)
        if (d->label[i] > largest) largest = d->label[i];
    d->source.classes  = largest < LEAST_CLASSES ? LEAST_CLASSES : largest + 1;
    d->source.field[1] = tni_field(TN_I64, TN_0D);
    return true;
}

static tn_data *open_files(tn_ctx *cx, const char *images, const char *labels)
{
    if (!tni_ctx_ok(cx, "idx")) return NULL;
    if (!images || !labels)
        return tni_fail(cx, TN_EARG, "idx: the path of the %s is NULL",
                        images ? "labels" : "images");
    idx *d = tni_zalloc(&cx->heap, sizeof *d);
    if (!d) return tni_fail_memory(cx, "idx");
    d->source.fields = 2;
    d->source.get    = get_image;
    d->source.free   = free_idx;
    if (read_images(cx, images, d) && read_labels(cx, labels, d))
        return tni_data_make(cx, "idx", &d->source);
    free_idx(&cx->heap, &d->source);
    return NULL;
}

tn_data *tn_idx_files(tn_ctx *cx, const char *images, const char *labels)
{
    tni_enter(tni_self.site);
    tn_data *d = open_files(cx, images, labels);
    tni_leave(false, NULL);
    return d;
}

// ---- folders -----------------------------------------------------------------------------------

// Finds "train-images-idx3-ubyte" or with a dot before idx3, else one of them with .gz. False, reported,
// if there is none.
static bool find_file(tn_ctx *cx, const char *dir, const char *stem, const char *kind,
                      char path[TNI_PATH])
{
    static const char *const form[] = { "%s/%s-%s-ubyte", "%s/%s.%s-ubyte", "%s/%s-%s-ubyte.gz",
                                        "%s/%s.%s-ubyte.gz" };
    for (size_t i = 0; i < sizeof form / sizeof *form; i++)
        if (tni_find_file(path, form[i], dir, stem, kind)) return true;
    return tni_refuse(cx, TN_EIO, "idx: %s: there is no %s-%s-ubyte in it, plain or .gz", dir, stem,
                      kind);
}

tn_data *tn_idx(tn_ctx *cx, const char *dir, bool test)
{
    char images[TNI_PATH], labels[TNI_PATH];
    if (!tni_ctx_ok(cx, "idx") || !tni_folder_ok(cx, "idx", dir)) return NULL;
    if (!find_file(cx, dir, test ? "t10k-images" : "train-images", "idx3", images) ||
        !find_file(cx, dir, test ? "t10k-labels" : "train-labels", "idx1", labels))
        return NULL;
    return tn_idx_files(cx, images, labels);
}
