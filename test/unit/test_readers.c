// test_readers.c: the readers of images (IDX, plain and gzip, CIFAR-10) and of plain text.
#include "data/content.h"
#include "faulty.h"
#include "picture_files.h"
#include "rules_kit.h"
#include "scratch.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- files

// A file being put together.
typedef struct {
    unsigned char data[600000];
    size_t        n;
} bytes;

static void put(bytes *b, const void *data, size_t n)
{
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static void put_u32(bytes *b, uint32_t v, bool big)
{
    for (int i = 0; i < 4; i++) b->data[b->n++] = (unsigned char)(v >> 8 * (big ? 3 - i : i));
}

static void save(const char *name, const bytes *b)
{
    CHECK(scratch_write(scratch_path(name), b->data, b->n));
}

// An IDX file of bytes that count up from `first`.
static bytes *idx(uint32_t magic, int rank, const int64_t *size, int first)
{
    static bytes b;
    int64_t      count = 1;
    b.n                = 0;
    put_u32(&b, magic, true);
    for (int i = 0; i < rank; i++) {
        put_u32(&b, (uint32_t)size[i], true);
        count *= size[i];
    }
    for (int64_t i = 0; i < count; i++) b.data[b.n++] = (unsigned char)(first + i);
    return &b;
}

enum { IMAGES = 0x803, LABELS = 0x801 };

// Gzip without compression: one stored block.
static bytes *gzip(const bytes *from)
{
    static bytes b;
    unsigned     n = (unsigned)from->n;
    b.n            = 0;
    put(&b, "\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
    put(&b, (unsigned char[]){ 1, n & 255, n >> 8, ~n & 255, (~n >> 8) & 255 }, 5);
    put(&b, from->data, from->n);
    put_u32(&b, crc_of(from->data, from->n), false);
    put_u32(&b, n, false);
    return &b;
}

static bool no_zlib(void)
{
    void *lib = dlopen("libz.so.1", RTLD_NOW);
    if (lib) dlclose(lib);
    return !lib;
}

// Six images of 2 x 3, 0 1 2 ..., and labels from 0 on.
static void save_six(const char *images, const char *labels)
{
    save(images, idx(IMAGES, TN_SHAPE(6, 2, 3), 0));
    save(labels, idx(LABELS, TN_SHAPE(6), 0));
}

// Whether d is the six images, its first batch of two is (2, 1, 2, 3) and right.
static void check_six(tn_data *d)
{
    if (!CHECK(d != NULL)) return;
    CHECK_INT(tn_data_count(d), 6);
    CHECK_INT(tn_data_info(d).classes, 10);
    CHECK(tn_data_class_name(d, 0) == NULL);
    CHECK_STR(tn_data_schema(d), "");
    tn_data_shuffle(d, false, 0);
    tn_batch b = tn_next(d, 2);
    if (!CHECK(b.x != NULL)) return;
    CHECK_INT(tn_rank(b.x), 4);
    CHECK_INT(tn_size(b.x, 1), 1);
    CHECK_INT(tn_size(b.x, 2), 2);
    CHECK_INT(tn_dtype_of(b.y), TN_I64);
    CHECK_VALUES(tn_mul_s(b.x, 255), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    CHECK_VALUES(b.y, 0, 1);
}

// ---- IDX

static void idx_reads_a_folder_in_both_spellings(void)
{
    tn_ctx *cx = rules_open_scratch();
    save_six("train-images-idx3-ubyte", "train-labels-idx1-ubyte");
    save_six("t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte");
    check_six(tn_idx(cx, scratch_path(""), TN_TRAIN));
    check_six(tn_idx(cx, scratch_path("."), TN_TEST));
    CHECK_STATUS(tn_error(cx), TN_OK);
    rules_close_scratch(cx);
}

static void idx_takes_images_with_channels_and_many_labels(void)
{
    tn_ctx *cx = rules_open_scratch();
    save("x", idx(0x804, TN_SHAPE(2, 3, 2, 2), 0));
    save("y", idx(LABELS, TN_SHAPE(2), 254));
    tn_data *d = tn_idx_files(cx, scratch_path("x"), scratch_path("y"));
    CHECK_INT(tn_data_info(d).classes, 256);
    CHECK_INT(tn_data_info(d).field[0].size[0], 3);
    tn_data_shuffle(d, false, 0);
    CHECK_VALUES(tn_next(d, 2).y, 254, 255);
    rules_close_scratch(cx);
}

static void idx_reads_gzip_and_prefers_the_plain_file(void)
{
    if (no_zlib()) SKIP("zlib is not installed");
    tn_ctx *cx = rules_open_scratch();
    save("train-images-idx3-ubyte.gz", gzip(idx(IMAGES, TN_SHAPE(6, 2, 3), 0)));
    save("train-labels-idx1-ubyte.gz", gzip(idx(LABELS, TN_SHAPE(6), 0)));
    check_six(tn_idx(cx, scratch_path(""), false));

    save("train-images-idx3-ubyte.gz", idx(IMAGES, TN_SHAPE(1, 1, 1), 0));
    save("train-labels-idx1-ubyte.gz", idx(LABELS, TN_SHAPE(1), 0));
    save_six("train-images-idx3-ubyte", "train-labels-idx1-ubyte");
    check_six(tn_idx(cx, scratch_path(""), false));
    rules_close_scratch(cx);
}

static void gzip_of_several_members_is_one_file(void)
{
    if (no_zlib()) SKIP("zlib is not installed");
    static bytes two, half;
    tn_ctx      *cx = rules_open_scratch();
    bytes       *x  = idx(IMAGES, TN_SHAPE(6, 2, 3), 0);
    two.n = half.n = 0;
    put(&half, x->data, 20);
    put(&two, gzip(&half)->data, gzip(&half)->n);
    half.n = 0;
    put(&half, x->data + 20, x->n - 20);
    put(&two, gzip(&half)->data, gzip(&half)->n);
    save("x.gz", &two);
    save("y", idx(LABELS, TN_SHAPE(6), 0));
    check_six(tn_idx_files(cx, scratch_path("x.gz"), scratch_path("y")));
    rules_close_scratch(cx);
}

// Writes images and labels and expects this error.
static void expect(tn_ctx *cx, const bytes *images, const bytes *labels, tn_status code,
                   const char *part)
{
    if (images) save("x", images);
    if (labels) save("y", labels);
    CHECK(tn_idx_files(cx, scratch_path("x"), scratch_path("y")) == NULL);
    CHECK_FAILED(cx, code, part);
}

static void idx_says_what_is_wrong(void)
{
    tn_ctx *cx = rules_open_scratch();
    bytes  *b;
    CHECK(tn_idx(cx, scratch_path("nowhere"), false) == NULL);
    CHECK_FAILED2(cx, TN_EIO, "idx: ", "nowhere: there is no such folder");
    CHECK(tn_idx(cx, scratch_path(""), false) == NULL);
    CHECK_FAILED(cx, TN_EIO, "there is no train-images-idx3-ubyte in it, plain or .gz");
    CHECK(tn_idx_files(cx, scratch_path("x"), scratch_path("y")) == NULL);
    CHECK_FAILED(cx, TN_EIO, "No such file");
    CHECK(tn_idx_files(cx, NULL, "y") == NULL);
    CHECK_FAILED(cx, TN_EARG, "idx: the path of the images is NULL");
    CHECK(tn_idx(cx, NULL, true) == NULL);
    CHECK_FAILED(cx, TN_EARG, "idx: the folder is NULL");
    CHECK(tn_idx(NULL, "x", true) == NULL);

    expect(cx, idx(0x12345678, TN_SHAPE(1), 0), NULL, TN_EFORMAT, "it is not an IDX file");
    expect(cx, idx(0xd03, TN_SHAPE(1, 1, 4), 0), NULL, TN_EFORMAT,
           "its elements are of type 0x0d, not bytes (0x08)");
    expect(cx, idx(0x802, TN_SHAPE(1, 4), 0), NULL, TN_EFORMAT,
           "its rank is 2, not 3 as that of images");
    expect(cx, idx(IMAGES, TN_SHAPE(6, 0, 3), 0), NULL, TN_EFORMAT, "it is empty: a size is 0");
    b = idx(IMAGES, TN_SHAPE(6, 2, 3), 0);
    b->n--;
    expect(cx, b, NULL, TN_EFORMAT, "(6, 2, 3) by its header, but 35 bytes follow it");
    b->n += 2;
    expect(cx, b, NULL, TN_EFORMAT, "but 37 bytes follow it");
    b->n = 15;
    expect(cx, b, NULL, TN_EFORMAT, "its header is cut short");
    b->n = 0;
    expect(cx, b, NULL, TN_EFORMAT, "it is not an IDX file");
    b = idx(IMAGES, TN_SHAPE(1, 1, 1), 0);
    memset(b->data + 4, 0xff, 12);
    expect(cx, b, NULL, TN_EFORMAT, "(4294967295, 4294967295, 4294967295) by its header");

    expect(cx, idx(IMAGES, TN_SHAPE(6, 2, 3), 0), NULL, TN_EIO, "No such file");
    expect(cx, NULL, idx(LABELS, TN_SHAPE(5), 0), TN_EFORMAT, "5 labels, but there are 6 images");
    expect(cx, NULL, idx(IMAGES, TN_SHAPE(1, 1, 1), 0), TN_EFORMAT,
           "its rank is 3, not 1 as that of labels");
    rules_close_scratch(cx);
}

static void damaged_gzip_is_an_error(void)
{
    if (no_zlib()) SKIP("zlib is not installed");
    tn_ctx *cx = rules_open_scratch();
    bytes  *b  = gzip(idx(IMAGES, TN_SHAPE(6, 2, 3), 0));
    b->n--;
    expect(cx, b, NULL, TN_EFORMAT, "x: its gzip data is cut short");
    b->n = 12;
    expect(cx, b, NULL, TN_EFORMAT, "its gzip data is cut short");
    b = gzip(idx(IMAGES, TN_SHAPE(6, 2, 3), 0));
    put(b, "more", 4);
    expect(cx, b, NULL, TN_EFORMAT, "something follows the end of its gzip data");
    b->n -= 4;
    b->data[40] ^= 1;  // a pixel
    expect(cx, b, NULL, TN_EFORMAT, "incorrect data check");
    b->data[3] = 0xff;
    expect(cx, b, NULL, TN_EFORMAT, "x: ");
    rules_close_scratch(cx);
}

// ---- gzip that expands to very much

// Gzip of a header and n zeros, 258 of them in 13 bits: one block of fixed codes, in which a zero
// is followed by copies of it. Its check is that of nothing, so it cannot be read to its end.
static bytes *gzip_bomb(const bytes *head, size_t n)
{
    static bytes b;
    uint64_t     bits  = 3;  // the last block, of fixed codes
    int          count = 3;
    b.n                = 0;
    put(&b, "\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
    for (size_t i = 0; i < head->n + 1 + n / 258; i++) {
        // Codes go out from their highest bit on: 0x30 + v of 8 bits below 144, 0x190 + v - 144 of
        // 9; length 258 is 0xc5 of 8, distance 1 is 0 of 5.
        unsigned v = i < head->n ? head->data[i] : 0, zero = i <= head->n;
        unsigned code = !zero ? 0xc5u << 5 : v < 144 ? 0x30 + v : 0x190 + v - 144;
        for (int k = !zero ? 12 : v < 144 ? 7 : 8; k >= 0; k--)
            bits |= (uint64_t)(code >> k & 1) << count++;
        for (; count >= 8; count -= 8, bits >>= 8) b.data[b.n++] = (unsigned char)bits;
    }
    b.data[b.n++] = (unsigned char)bits;
    put(&b, "\0\0\0\0\0\0\0\0", 9);
    return &b;
}

// Bytes that a context's allocator has given out: now, and at most so far.
static struct {
    size_t now, peak;
} taken;

static void *count_alloc(void *user, void *old, size_t n)
{
    size_t *p = old ? (size_t *)old - 2 : NULL;
    (void)user;
    taken.now -= p ? *p : 0;
    if (!n) {
        free(p);
        return NULL;
    }
    p = realloc(p, n + 16);
    if (!p) return NULL;
    taken.now += *p = n;
    if (taken.now > taken.peak) taken.peak = taken.now;
    return p + 2;
}

// Opens "x" and "y"; the most bytes that this took on the way.
static size_t peak_of_idx(tn_ctx *cx, tn_data **d)
{
    size_t before = taken.now;
    taken.peak    = before;
    *d            = tn_idx_files(cx, scratch_path("x"), scratch_path("y"));
    return taken.peak - before;
}

static void gzip_is_expanded_as_far_as_its_header_declares(void)
{
    if (no_zlib()) SKIP("zlib is not installed");
    CHECK(scratch_open());
    tn_data *d;
    tn_ctx  *cx   = tn_open_with((tn_open_opts){ .device = "ref", .alloc = count_alloc });
    bytes    head = *idx(IMAGES, TN_SHAPE(6, 2, 3), 0);
    tn_on_error(cx, NULL, NULL);
    save("y", idx(LABELS, TN_SHAPE(6), 0));
    save("x", gzip_bomb(&head, 60 << 20));
    CHECK(peak_of_idx(cx, &d) < 1 << 20);
    CHECK(d == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "x: (6, 2, 3) by its header, but more than 36 bytes follow it");

    head.n = 4;  // a header that declares 4 billion images of 6 bytes
    put(&head, "\xff\xff\xff\xff\0\0\0\x02\0\0\0\x03", 12);
    save("x", gzip_bomb(&head, 1 << 20));
    CHECK(peak_of_idx(cx, &d) < 1 << 20);
    CHECK_FAILED(cx, TN_EFORMAT, "x: its header declares 25769803786 bytes, more than its");
    head.n = 4;  // three sizes whose product is past 64 bits
    put(&head, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
    save("x", gzip_bomb(&head, 1 << 20));
    CHECK(peak_of_idx(cx, &d) < 1 << 20);
    CHECK_FAILED(cx, TN_EFORMAT, "bytes of gzip can hold");
    rules_close_scratch(cx);
}

static void what_gzip_expands_to_counts_to_the_memory_limit(void)
{
    if (no_zlib()) SKIP("zlib is not installed");
    CHECK(scratch_open());
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = "ref", .mem_limit = 65536 });
    tn_on_error(cx, NULL, NULL);
    save("x", gzip(idx(IMAGES, TN_SHAPE(6, 100, 100), 0)));
    save("y", idx(LABELS, TN_SHAPE(6), 0));
    tn_data *d = tn_idx_files(cx, scratch_path("x"), scratch_path("y"));
    CHECK(d != NULL);
    CHECK(tn_idx_files(cx, scratch_path("x"), scratch_path("y")) == NULL);
    CHECK_FAILED(cx, TN_EMEM, "x: it expands to 58.6 KiB, and the memory limit of 64.0 KiB leaves");
    tn_tensor *t = tn_full(cx, TN_F32, TN_SHAPE(4096), 1);  // of doubles, beside the 58.6 KiB
    CHECK_STATUS(tn_eval_of(t), TN_EMEM);
    CHECK_FAILED(cx, TN_EMEM, "no 32.0 KiB besides the 58.6 KiB in use, of a limit of 64.0 KiB");
    tn_data_free(d);
    CHECK_STATUS(tn_eval_of(tn_full(cx, TN_F32, TN_SHAPE(4096), 1)), TN_OK);
    rules_close_scratch(cx);
}

// What has no header, a table or a text: expanded to its end, or to the limit.
static void gzip_without_a_declared_size_is_expanded_to_the_limit(void)
{
    if (no_zlib()) SKIP("zlib is not installed");
    CHECK(scratch_open());
    tni_content c;
    tn_ctx     *cx = tn_open_with(
            (tn_open_opts){ .device = "ref", .mem_limit = 4 << 20, .alloc = count_alloc });
    bytes *six = idx(IMAGES, TN_SHAPE(6, 2, 3), 0);
    tn_on_error(cx, NULL, NULL);
    save("x", gzip(six));
    if (CHECK(tni_content_open(cx, "csv", scratch_path("x"), NULL, &c))) {
        CHECK_INT(c.bytes, six->n);
        CHECK(memcmp(c.data, six->data, six->n) == 0);
        tni_content_close(&cx->heap, &c);
    }
    save("x", gzip_bomb(six, 60 << 20));
    size_t before = taken.peak = taken.now;
    CHECK(!tni_content_open(cx, "csv", scratch_path("x"), NULL, &c));
    CHECK(taken.peak - before < 10 << 20);  // the heap keeps the room that was outgrown
    CHECK_FAILED(cx, TN_EMEM,
                 "x: it expands to more than 4.0 MiB, and the memory limit of 4.0 MiB");
    CHECK_INT(cx->buffers.host_bytes, 0);
    rules_close_scratch(cx);
}

static void gzip_without_zlib_says_what_to_do(void)
{
    tn_ctx *cx = rules_open_scratch();
    save("x.gz", gzip(idx(IMAGES, TN_SHAPE(6, 2, 3), 0)));
    tni_mapping *m = tni_mapping_open(cx, "idx", scratch_path("x.gz"));
    if (CHECK(m != NULL)) CHECK(tni_gunzip_open(cx, "idx", "x.gz", "libno_z.so", m) == NULL);
    CHECK_FAILED(cx, TN_EIO,
                 "idx: x.gz: it is gzip, and no zlib was found to expand it: gunzip it");
    tni_mapping_unref(m);
    rules_close_scratch(cx);
}

// ---- CIFAR-10

enum { RECORD = 3073 };

// n records with labels from `first` on, all pixels the label's.
static bytes *records(int n, int first)
{
    static bytes b;
    b.n = (size_t)n * RECORD;
    for (int i = 0; i < n; i++) memset(b.data + i * RECORD, first + i, RECORD);
    return &b;
}

static void save_batches(const char *folder)
{
    char name[64];
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "%sdata_batch_%d.bin", folder, i);
        save(name, records(i, 5 - i));
    }
}

static void cifar10_reads_its_batches(void)
{
    tn_ctx *cx = rules_open_scratch();
    CHECK_INT(mkdir(scratch_path("cifar-10-batches-bin"), 0777), 0);
    for (int inside = 0; inside < 2; inside++) {
        save_batches(inside ? "" : "cifar-10-batches-bin/");
        tn_data *d = tn_cifar10(cx, scratch_path(""), false);
        CHECK_INT(tn_data_count(d), 15);
        CHECK_INT(tn_data_info(d).classes, 10);
        CHECK_STR(tn_data_class_name(d, 9), "truck");
        tn_data_shuffle(d, false, 0);
        tn_batch b = tn_next(d, 15);
        CHECK_VALUES(b.y, 4, 3, 4, 2, 3, 4, 1, 2, 3, 4, 0, 1, 2, 3, 4);
        CHECK_INT(tn_size(b.x, 1), 3);
        CHECK_INT(tn_size(b.x, 3), 32);
        CHECK_NEAR(tn_item(tn_mean_all(tn_select(b.x, 0, 0))), 4 / 255.0, 1e-7);
    }
    save("test_batch.bin", records(2, 0));
    CHECK_INT(tn_data_count(tn_cifar10(cx, scratch_path(""), true)), 2);
    rules_close_scratch(cx);
}

static void cifar10_says_what_is_wrong(void)
{
    tn_ctx *cx = rules_open_scratch();
    bytes  *b  = records(2, 9);
    CHECK(tn_cifar10(cx, scratch_path(""), true) == NULL);
    CHECK_FAILED(cx, TN_EIO, "there is no test_batch.bin in it, nor in cifar-10-batches-bin");
    CHECK(tn_cifar10(cx, scratch_path("nowhere"), true) == NULL);
    CHECK_FAILED2(cx, TN_EIO, "cifar10: ", "nowhere: there is no such folder");
    CHECK(tn_cifar10(cx, NULL, true) == NULL);
    CHECK_FAILED(cx, TN_EARG, "cifar10: the folder is NULL");
    save("test_batch.bin", b);
    CHECK(tn_cifar10(cx, scratch_path("test_batch.bin"), true) == NULL);
    CHECK_FAILED(cx, TN_EIO, "it is not a folder");
    CHECK(tn_cifar10(cx, scratch_path(""), true) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "record 1 has the label 10, of 10 classes");
    b->n -= 1;
    save("test_batch.bin", b);
    CHECK(tn_cifar10(cx, scratch_path(""), true) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "6145 bytes are not a multiple of the record size 3073");
    b->n = 0;
    save("test_batch.bin", b);
    CHECK(tn_cifar10(cx, scratch_path(""), true) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "test_batch.bin: it is empty");
    save("data_batch_1.bin", records(1, 1));
    CHECK(tn_cifar10(cx, scratch_path(""), false) == NULL);
    CHECK_FAILED(cx, TN_EIO, "there is no data_batch_2.bin");
    rules_close_scratch(cx);
}

// ---- single files

static void an_idx_file_is_a_tensor_of_bytes(void)
{
    tn_ctx *cx = rules_open_scratch();
    save("x.gz", gzip(idx(IMAGES, TN_SHAPE(1, 2, 3), 0)));
    tn_tensor *t = tn_idx_read(cx, scratch_path("x.gz"));
    CHECK(tn_dtype_of(t) == TN_U8 && tn_rank(t) == 3 && tn_size(t, 1) == 2 && tn_size(t, 2) == 3);
    CHECK(tn_idx_read(cx, scratch_path("none")) == NULL);
    CHECK_FAILED(cx, TN_EIO, "No such file");
    rules_close_scratch(cx);
}

static tn_tensor *read_image(tn_ctx *cx, const char *text, size_t n)
{
    CHECK(scratch_write(scratch_path("i"), text, n));
    return tn_image_read(cx, scratch_path("i"));
}

#define IMAGE(text) read_image(cx, text, sizeof text - 1)

static void grey_and_colour_images_are_read(void)
{
    tn_ctx    *cx = rules_open_scratch();
    tn_tensor *t  = IMAGE("P5 3 2\n255\n\0\377\063\0\0\377");
    CHECK(tn_dtype_of(t) == TN_F32 && tn_rank(t) == 3 && tn_size(t, 1) == 2 && tn_size(t, 2) == 3);
    CHECK_VALUES(t, 0, 1, .2f, 0, 0, 1);
    CHECK_VALUES(IMAGE("P2\n# a comment 7 7\n2 # another\n1 4\n3 1"), .75, .25);
    CHECK_VALUES(IMAGE("P5\n2 1\n65535\n\377\377\0\0"), 1, 0);
    t = IMAGE("P6\n1 2\n5\n\1\2\3\4\5\0");  // planes, not pixels
    CHECK_INT(tn_size(t, 0), 3);
    CHECK_VALUES(t, .2f, .8f, .4f, 1, .6f, 0);
    CHECK_VALUES(IMAGE("P3 1 1 2 0 1 2"), 0, .5, 1);
    IMAGE("P5 2 2 255\n\0\377\377\0");
    t = tn_image_read_with(cx, scratch_path("i"),
                           (tn_image_opts){ .size = 1, .resize = 1, .channels = 3 });
    CHECK_NEAR(tn_item(tn_max_all(t)), .5, 1e-6);
    CHECK_INT(tn_size(t, 0), 3);
    IMAGE("P6 1 1 255\n\377\0\0");
    CHECK_NEAR(tn_item(tn_image_read_with(cx, scratch_path("i"), (tn_image_opts){ .channels = 1 })),
               .299, .002);
    CHECK_STATUS(tn_error(cx), TN_OK);
    rules_close_scratch(cx);
}

static void other_images_are_refused_by_their_name(void)
{
    static const struct {
        const char *bytes;
        size_t      n;
        const char *says;
    } wrong[] = {
        { "GIF89a", 6, "GIF is not read, only JPEG, PNG, PGM and PPM: convert it" },
        { "P4 1 1\n1", 8, "PBM is not read" },
        { "", 0, "it is empty" },
        { "P8 1 1 1 1", 10, "it is no JPEG, PNG, PGM or PPM image" },
        { "P5 3 2\n255\nabcde", 16, "it is cut short: its header says 3 x 2" },
        { "P5 3 2", 6, "it is cut short" },
        { "P5 0 2 255\n", 11, "a number of its header is 0" },
        { "P5 1 1 65536\n1", 14, "a number is too large" },
        { "P5 2147483647 2147483647 255\n1", 30, "it is cut short: its header says" },
        { "P5 99999999999 1 255\n1", 22, "a number is too large" },
        { "P2 2 1 7\n3 x", 12, "a number is expected, and not there" },
        { "P2 2 1 7\n3 8", 12, "a value is above the most that its header says" },
        { "P2 2 1 7\n333 ", 13, "a value is above the most" },
    };
    tn_ctx *cx = rules_open_scratch();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(read_image(cx, wrong[i].bytes, wrong[i].n) == NULL);
        CHECK_FAILED(cx, TN_EFORMAT, wrong[i].says);
    }
    CHECK(tn_image_read(cx, NULL) == NULL);
    CHECK_FAILED(cx, TN_EARG, "the path is NULL");
    rules_close_scratch(cx);
}

// ---- text

static void text_gives_windows_of_bytes(void)
{
    tn_ctx *cx = rules_open_scratch();
    CHECK(scratch_write(scratch_path("t"), "abcdefgh\xff", 9));
    tn_data *d = tn_text(cx, scratch_path("t"), (tn_text_opts){ .length = 4 });
    CHECK_INT(tn_data_count(d), 2);
    CHECK_INT(tn_data_info(d).classes, 256);
    tn_data_shuffle(d, false, 0);
    tn_batch b = tn_next(d, 2);
    CHECK_VALUES(b.x, 97, 98, 99, 100, 101, 102, 103, 104);
    CHECK_VALUES(b.y, 98, 99, 100, 101, 102, 103, 104, 255);
    CHECK_INT(tn_dtype_of(b.x), TN_I64);

    CHECK(tn_text(cx, scratch_path("t"), (tn_text_opts){ .length = 9 }) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "9 bytes are too few for a window of 9 and the one after it");
    CHECK(tn_text(cx, scratch_path("t"), (tn_text_opts){ 0 }) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "a window of 128");
    CHECK(tn_text(cx, scratch_path("t"), (tn_text_opts){ .length = -1 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "the length of a window is negative");
    CHECK(tn_text(cx, scratch_path("u"), (tn_text_opts){ 0 }) == NULL);
    CHECK_FAILED(cx, TN_EIO, "No such file");
    CHECK(scratch_write(scratch_path("t"), "", 0));
    CHECK(tn_text(cx, scratch_path("t"), (tn_text_opts){ .length = 1 }) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "t: it is empty");
    rules_close_scratch(cx);
}

// ---- memory

// Opens one of the datasets; the n-th allocation fails, for every n until none does.
static void sweep(tn_data *(*open)(tn_ctx *cx))
{
    for (long n = 1; n < 200; n++) {
        faulty  h  = { 0 };
        tn_ctx *cx = faulty_open("cpu", &h);
        if (!CHECK(cx != NULL)) return;
        h.countdown   = n;
        tn_data *d    = open(cx);
        bool     ok   = h.failed ? !d && tn_error(cx) == TN_EMEM : d && tn_error(cx) == TN_OK;
        bool     last = !h.failed;
        h.countdown   = 0;
        if (!ok) test_that(false, "allocation %ld fails: %s", n, tn_error_text(cx));
        tn_close(cx);
        CHECK_INT(h.live, 0);
        if (last) return;
    }
    CHECK(false);
}

static tn_data *open_idx(tn_ctx *cx)
{
    return tn_idx_files(cx, scratch_path("x"), scratch_path("y"));
}

static tn_data *open_cifar10(tn_ctx *cx)
{
    return tn_cifar10(cx, scratch_path(""), true);
}

static tn_data *open_text(tn_ctx *cx)
{
    return tn_text(cx, scratch_path("test_batch.bin"), (tn_text_opts){ 0 });
}

static void every_allocation_may_fail(void)
{
    CHECK(scratch_open());
    save_six("x", "y");
    save("test_batch.bin", records(2, 0));
    sweep(open_idx);
    sweep(open_cifar10);
    sweep(open_text);
    if (!no_zlib()) {
        save("x", gzip(idx(IMAGES, TN_SHAPE(6, 2, 3), 0)));
        sweep(open_idx);
    }
    scratch_close();
}

const test_case tests_readers[] = {
    TEST(idx_reads_a_folder_in_both_spellings),
    TEST(idx_takes_images_with_channels_and_many_labels),
    TEST(idx_reads_gzip_and_prefers_the_plain_file),
    TEST(gzip_of_several_members_is_one_file),
    TEST(idx_says_what_is_wrong),
    TEST(damaged_gzip_is_an_error),
    TEST(gzip_is_expanded_as_far_as_its_header_declares),
    TEST(what_gzip_expands_to_counts_to_the_memory_limit),
    TEST(gzip_without_a_declared_size_is_expanded_to_the_limit),
    TEST(gzip_without_zlib_says_what_to_do),
    TEST(cifar10_reads_its_batches),
    TEST(cifar10_says_what_is_wrong),
    TEST(an_idx_file_is_a_tensor_of_bytes),
    TEST(grey_and_colour_images_are_read),
    TEST(other_images_are_refused_by_their_name),
    TEST(text_gives_windows_of_bytes),
    TEST(every_allocation_may_fail),
    TEST_END,
};
