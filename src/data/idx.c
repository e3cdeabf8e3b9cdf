// IDX files, as MNIST and its kin have them: a header with type and sizes, then bytes. Images
// and labels stay where they are, in the mapped or expanded file.
//
// N images, C channels, H rows, W columns
#include "data/content.h"
#include "data/dataset.h"
#include "data/pixels.h"

enum { IDX_U8 = 8, IMAGE_RANK = 4, MOST_HEADER = 4 + 4 * IMAGE_RANK, LEAST_CLASSES = 10 };

// A pair of files: images (N, C, H, W) and labels (N).
typedef struct {
    tni_item_source source;  // first
    tni_content     images, labels;
    const uint8_t  *pixels, *label;
    int64_t         area;  // pixels of an image, all channels
} idx;

// ---- the dataset -------------------------------------------------------------------------------

static int get_image(const tni_item_source *s, int64_t item, void *const *dst)
{
    const idx *d = (const idx *)s;
    tni_unit_floats(dst[0], d->pixels + item * d->area, d->area);
    *(int64_t *)dst[1] = d->label[item];
    return 0;
}

static void free_idx(tni_heap *h, tni_item_source *s)
{
    idx *d = (idx *)s;
    tni_content_close(h, &d->images);
    tni_content_close(h, &d->labels);
    tni_free(h, d);
}

// ---- headers -----------------------------------------------------------------------------------

static bool refuse_idx(tn_ctx *cx, const char *path, const char *why)
{
    return tni_refuse(cx, TN_EFORMAT, "idx: %s: %s", path, why);
}

static int64_t big_endian(const unsigned char *p)
{
    return (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | (int64_t)p[3];
}

// What a header says: type and sizes, which have been checked, and the bytes of the file, header
// included; UINT64_MAX where no file has that many.
typedef struct {
    int      rank;
    int64_t  size[IMAGE_RANK];
    size_t   header;
    uint64_t bytes;
} idx_header;

// Labels have one axis; images three, or four with channels.
static bool has_rank(tn_ctx *cx, const char *path, int rank, bool labels)
{
    if (labels ? rank == 1 : rank == 3 || rank == IMAGE_RANK) return true;
    return tni_refuse(cx, TN_EFORMAT, "idx: %s: its rank is %d, not %d as that of %s", path, rank,
                      labels ? 1 : 3, labels ? "labels" : "images");
}

// Reads a header from the first bytes of a file; false, reported, if it is none or of the wrong
// kind. The product of the sizes saturates instead of overflowing, and then fits no file.
static bool read_header(tn_ctx *cx, const char *path, const unsigned char *data, size_t bytes,
                        bool labels, idx_header *h)
{
    if (bytes < 4 || data[0] || data[1]) return refuse_idx(cx, path, "it is not an IDX file");
    if (data[2] != IDX_U8)
        return tni_refuse(cx, TN_EFORMAT,
                          "idx: %s: its elements are of type 0x%02x, not bytes (0x08)", path,
                          (unsigned)data[2]);
    if (!has_rank(cx, path, data[3], labels)) return false;
    *h = (idx_header){ .rank = data[3], .header = 4 + 4 * (size_t)data[3], .bytes = 1 };
    if (bytes < h->header) return refuse_idx(cx, path, "its header is cut short");
    for (int i = 0; i < h->rank; i++) {
        uint64_t size = (uint64_t)(h->size[i] = big_endian(data + 4 + 4 * i));
        if (size == 0) return refuse_idx(cx, path, "it is empty: a size is 0");
        h->bytes = h->bytes > (UINT64_MAX - MOST_HEADER) / size ? UINT64_MAX - MOST_HEADER
                                                                : h->bytes * size;
    }
    h->bytes += h->header;
    return true;
}

// For tni_content_open: the bytes that a gzip file of images will expand to.
static bool images_declare(tn_ctx *cx, const char *path, const unsigned char *data, size_t bytes,
                           uint64_t *all)
{
    idx_header h;
    bool       ok = read_header(cx, path, data, bytes, false, &h);
    *all          = ok ? h.bytes : 0;
    return ok;
}

static bool labels_declare(tn_ctx *cx, const char *path, const unsigned char *data, size_t bytes,
                           uint64_t *all)
{
    idx_header h;
    bool       ok = read_header(cx, path, data, bytes, true, &h);
    *all          = ok ? h.bytes : 0;
    return ok;
}

// Opens a file, which must have exactly the bytes that its header declares.
static bool open_file(tn_ctx *cx, const char *path, bool labels, tni_content *c, idx_header *h)
{
    tni_declares d = { MOST_HEADER, labels ? labels_declare : images_declare };
    if (!tni_content_open(cx, "idx", path, &d, c)) return false;
    if (!read_header(cx, path, c->data, c->bytes, labels, h)) return false;
    if (h->bytes == c->bytes && !c->cut) return true;
    return tni_refuse(cx, TN_EFORMAT, "idx: %s: %s by its header, but %s%zu bytes follow it", path,
                      tni_shape_text(h->rank, h->size).s, c->cut ? "more than " : "",
                      c->bytes - h->header);
}

// An (N, H, W) file counts as (N, 1, H, W).
static bool read_images(tn_ctx *cx, const char *path, idx *d)
{
    idx_header h;
    if (!open_file(cx, path, false, &d->images, &h)) return false;
    int64_t channels = h.rank == 4 ? h.size[1] : 1, H = h.size[h.rank - 2], W = h.size[h.rank - 1];
    d->pixels          = d->images.data + h.header;
    d->source.count    = h.size[0];
    d->source.field[0] = tni_field(TN_F32, TN_SHAPE(channels, H, W));
    d->area            = channels * H * W;
    return true;
}

// There are at least ten classes, since a part of MNIST may lack some digits.
static bool read_labels(tn_ctx *cx, const char *path, idx *d)
{
    idx_header h;
    int64_t    largest = 0;
    if (!open_file(cx, path, true, &d->labels, &h)) return false;
    if (h.size[0] != d->source.count)
        return tni_refuse(cx, TN_EFORMAT, "idx: %s: %lld labels, but there are %lld images", path,
                          (long long)h.size[0], (long long)d->source.count);
    d->label = d->labels.data + h.header;
    for (int64_t i = 0; i < h.size[0]; i++)
        if (d->label[i] > largest) largest = d->label[i];
    d->source.classes  = largest < LEAST_CLASSES ? LEAST_CLASSES : largest + 1;
    d->source.field[1] = tni_field(TN_I64, TN_0D);
    return true;
}

// Pixels stay bytes in the file's memory and become floats when a batch is made.
tn_data *tn_idx_files(tn_ctx *cx, const char *images, const char *labels)
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

tn_tensor *tn_idx_read(tn_ctx *cx, const char *path)
{
    tni_content c = { 0 };
    idx_header  h;
    if (!tni_ctx_ok(cx, "idx")) return NULL;
    bool       ok = open_file(cx, path, false, &c, &h);
    tn_tensor *t  = ok ? tn_from(cx, TN_U8, h.rank, h.size, c.data + h.header) : NULL;
    tni_content_close(&cx->heap, &c);
    return t;
}

// ---- folders -----------------------------------------------------------------------------------

// Finds "train-images-idx3-ubyte", or with a dot before idx3, else either with .gz. False,
// reported, if there is none.
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
