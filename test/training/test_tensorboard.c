// test_tensorboard.c: event files, parsed here by code of its own: frames and their sums, fields,
// values.
#include "check.h"
#include "on_device.h"
#include "scratch.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon.h>

// ---- reading

// CRC-32C by a table of 256, as RFC 3720 has it.
static uint32_t crc32c(const unsigned char *p, size_t n)
{
    uint32_t table[256], c = ~0u;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0x82f63b78u : table[i] >> 1;
    }
    while (n--) c = table[(c ^ *p++) & 255] ^ c >> 8;
    return ~c;
}

static uint32_t masked(const unsigned char *p, size_t n)
{
    uint32_t c = crc32c(p, n);
    return ((c >> 15) | (c << 17)) + 0xa282ead8u;
}

typedef struct {
    const unsigned char *at, *end;
} bytes;

static uint64_t varint(bytes *b)
{
    uint64_t v = 0;
    for (int shift = 0; b->at < b->end && shift < 64; shift += 7) {
        unsigned char c = *b->at++;
        v |= (uint64_t)(c & 127) << shift;
        if (c < 128) break;
    }
    return v;
}

// The next field of a message: its number; 0 at the end. Of numbers *v has the bits, of bytes
// *inner what they are.
static int field(bytes *b, uint64_t *v, bytes *inner)
{
    if (b->at >= b->end) return 0;
    uint64_t key = varint(b);
    *v           = 0;
    *inner       = (bytes){ 0 };
    switch (key & 7) {
    case 0: *v = varint(b); break;
    case 1: memcpy(v, b->at, 8), b->at += 8; break;
    case 5: memcpy(v, b->at, 4), b->at += 4; break;
    default:
        *v     = varint(b);
        *inner = (bytes){ b->at, b->at + *v };
        b->at += *v;
    }
    return (int)(key >> 3);
}

// Finds a field of a message; false if there is none.
static bool find(bytes b, int number, uint64_t *v, bytes *inner)
{
    int n;
    while ((n = field(&b, v, inner)) != 0)
        if (n == number) return true;
    return false;
}

static double real(bytes b, int number)
{
    uint64_t bits;
    bytes    inner;
    double   v = NAN;
    if (find(b, number, &bits, &inner)) memcpy(&v, &bits, 8);
    return v;
}

// The next event of a file, whose frame and sums must be right; false at the end.
static bool next_event(bytes *file, bytes *event)
{
    uint64_t length;
    uint32_t sum;
    if (file->at == file->end) return false;
    if (!CHECK(file->end - file->at >= 16)) return false;
    memcpy(&length, file->at, 8);
    memcpy(&sum, file->at + 8, 4);
    if (!CHECK_INT(sum, masked(file->at, 8))) return false;
    if (!CHECK((uint64_t)(file->end - file->at) >= length + 16)) return false;
    *event = (bytes){ file->at + 12, file->at + 12 + length };
    memcpy(&sum, event->end, 4);
    file->at = event->end + 4;
    return CHECK_INT(sum, masked(event->at, length));
}

// The value of an event whose tag is this one, at this step.
static bool value_of(bytes event, const char *tag, int64_t step, bytes *value)
{
    uint64_t v;
    bytes    summary, text;
    if (!find(event, 2, &v, &text) || (int64_t)v != step) v = 0;
    if (!CHECK_INT((int64_t)v, step) || !CHECK(find(event, 5, &v, &summary))) return false;
    if (!CHECK(find(summary, 1, &v, value)) || !CHECK(find(*value, 1, &v, &text))) return false;
    return CHECK(strlen(tag) == v && !memcmp(tag, text.at, v));
}

// Reads the only event file of a folder; its size in *size.
static char *read_events(const char *folder, size_t *size)
{
    char           path[600] = "";
    struct dirent *e;
    DIR           *d = opendir(folder);
    for (; d && (e = readdir(d)) != NULL;)
        if (!strncmp(e->d_name, "events.out.tfevents.", 20))
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (d) closedir(d);
    return CHECK(*path) ? scratch_read(path, size) : NULL;
}

// ---- tests

static void the_sum_is_that_of_the_standard(void)
{
    CHECK_INT(crc32c((const unsigned char *)"123456789", 9), 0xe3069283u);
}

static void check_histogram(bytes value)
{
    uint64_t v;
    bytes    h, limits, counts;
    double   limit[64], count[64], sum = 0;
    if (!CHECK(find(value, 5, &v, &h))) return;
    CHECK_NEAR(real(h, 1), -1, 0);
    CHECK_NEAR(real(h, 2), 3, 0);
    CHECK_NEAR(real(h, 3), 5, 0);  // NaN and infinity do not count
    CHECK_NEAR(real(h, 4), 4.5, 0);
    CHECK_NEAR(real(h, 5), 14.25, 0);
    if (!CHECK(find(h, 6, &v, &limits)) || !CHECK_INT(v, sizeof limit)) return;
    memcpy(limit, limits.at, sizeof limit);
    if (!CHECK(find(h, 7, &v, &counts)) || !CHECK_INT(v, sizeof count)) return;
    memcpy(count, counts.at, sizeof count);
    for (int i = 0; i < 64; i++) sum += count[i];
    CHECK_NEAR(sum, 5, 0);
    CHECK_NEAR(limit[0], -1 + 4.0 / 64, 1e-12);
    CHECK_NEAR(limit[63], 3, 0);
    CHECK_NEAR(count[0], 1, 0);   // -1
    CHECK_NEAR(count[16], 1, 0);  // 0, which is where the interval begins
    CHECK_NEAR(count[24], 1, 0);  // 0.5
    CHECK_NEAR(count[48], 1, 0);  // 2
    CHECK_NEAR(count[63], 1, 0);  // 3
}

static void check_image(bytes value)
{
    static const unsigned char png[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };

    uint64_t v;
    bytes    image, file;
    if (!CHECK(find(value, 4, &v, &image))) return;
    CHECK(find(image, 1, &v, &file) && v == 3);
    CHECK(find(image, 2, &v, &file) && v == 5);
    CHECK(find(image, 3, &v, &file) && v == 1);
    CHECK(find(image, 4, &v, &file) && v > 8 && !memcmp(file.at, png, 8));
}

static void a_file_has_what_was_written(void)
{
    tn_ctx *cx = tn_open("cpu");
    size_t  size;
    if (!scratch_open()) return;
    float           x[7] = { -1, 0.5f, 2, 3, 0, NAN, INFINITY };
    tn_tensorboard *b    = tn_tensorboard_open(cx, scratch_path("a/b"), (tn_tensorboard_opts){ 0 });
    CHECK_STATUS(tn_tensorboard_scalar(b, "train/loss", 7, 0.125), TN_OK);
    CHECK_STATUS(tn_tensorboard_scalar(b, "r\xc3\xa4te", 0, INFINITY), TN_OK);
    CHECK_STATUS(tn_tensorboard_histogram(b, "w", 8, tn_from(cx, TN_F32, TN_SHAPE(7), x)), TN_OK);
    CHECK_STATUS(tn_tensorboard_image(b, "p", 9, tn_ones(cx, TN_F32, TN_SHAPE(3, 5)),
                                      (tn_image_show_opts){ 0 }),
                 TN_OK);
    char *data = read_events(scratch_path("a/b"), &size);
    if (!data) return;
    bytes    file = { (unsigned char *)data, (unsigned char *)data + size }, e, value;
    uint64_t v;
    float    f = 0;
    CHECK(next_event(&file, &e) && find(e, 3, &v, &value) && v == 13 &&
          !memcmp(value.at, "brain.Event:2", 13));
    CHECK(real(e, 1) > 1e9);  // seconds since 1970
    CHECK(next_event(&file, &e) && value_of(e, "train/loss", 7, &value));
    CHECK(find(value, 2, &v, &e));
    memcpy(&f, &v, 4);
    CHECK_NEAR(f, 0.125, 0);
    CHECK(next_event(&file, &e) && value_of(e, "r\xc3\xa4te", 0, &value));
    CHECK(find(value, 2, &v, &e));
    memcpy(&f, &v, 4);
    CHECK(isinf(f));
    if (next_event(&file, &e) && value_of(e, "w", 8, &value)) check_histogram(value);
    if (next_event(&file, &e) && value_of(e, "p", 9, &value)) check_image(value);
    CHECK(!next_event(&file, &e));
    free(data);
    tn_close(cx);
    scratch_close();
}

static void a_run_that_continues_says_from_where(void)
{
    tn_ctx *cx = tn_open("cpu");
    size_t  size;
    if (!scratch_open()) return;
    tn_tensorboard_close(tn_tensorboard_open(
        cx, scratch_path("t"), (tn_tensorboard_opts){ .continues = true, .purge_step = 41 }));
    char *data = read_events(scratch_path("t"), &size);
    if (!data) return;
    bytes    file = { (unsigned char *)data, (unsigned char *)data + size }, e, session;
    uint64_t v;
    CHECK(next_event(&file, &e) && next_event(&file, &e));
    CHECK(find(e, 2, &v, &session) && v == 41);
    CHECK(find(e, 7, &v, &session) && find(session, 1, &v, &e) && v == 1);
    free(data);
    tn_close(cx);
    scratch_close();
}

static void equal_and_no_elements_have_histograms(void)
{
    tn_ctx *cx = tn_open("cpu");
    size_t  size;
    if (!scratch_open()) return;
    tn_tensorboard *b = tn_tensorboard_open(cx, scratch_path("t"), (tn_tensorboard_opts){ 0 });
    tn_tensorboard_histogram(b, "same", 1, tn_full(cx, TN_F32, TN_SHAPE(9), 2.5));
    tn_tensorboard_histogram(b, "none", 1, tn_full(cx, TN_F32, TN_SHAPE(3), NAN));
    char    *data = read_events(scratch_path("t"), &size);
    bytes    file = { (unsigned char *)data, (unsigned char *)data + size }, e, value, h, list;
    uint64_t v;
    double   number = 0;
    CHECK(data && next_event(&file, &e) && next_event(&file, &e) &&
          value_of(e, "same", 1, &value) && find(value, 5, &v, &h) && find(h, 7, &v, &list));
    if (CHECK_INT(v, sizeof number)) memcpy(&number, list.at, sizeof number);
    CHECK_NEAR(number, 9, 0);
    CHECK(next_event(&file, &e) && value_of(e, "none", 1, &value) && find(value, 5, &v, &h));
    CHECK_NEAR(real(h, 3), 0, 0);
    free(data);
    tn_close(cx);
    scratch_close();
}

static void wrong_calls_are_refused(void)
{
    tn_ctx *cx = tn_open("cpu");
    if (!scratch_open()) return;
    tn_on_error(cx, NULL, NULL);
    CHECK(!tn_tensorboard_open(cx, NULL, (tn_tensorboard_opts){ 0 }));
    CHECK_STR(tn_error_text(cx), "tensorboard_open: there is no folder");
    tn_error_clear(cx);
    scratch_write(scratch_path("file"), "x", 1);
    CHECK(!tn_tensorboard_open(cx, scratch_path("file"), (tn_tensorboard_opts){ 0 }));
    CHECK_STATUS(tn_error(cx), TN_EIO);
    tn_error_clear(cx);
    tn_tensorboard *b = tn_tensorboard_open(cx, scratch_path("t"), (tn_tensorboard_opts){ 0 });
    CHECK_STATUS(tn_tensorboard_scalar(b, NULL, 0, 1), TN_EARG);
    tn_error_clear(cx);
    CHECK_STATUS(tn_tensorboard_scalar(b, "\xff", 0, 1), TN_EARG);
    tn_error_clear(cx);
    CHECK_STATUS(tn_tensorboard_scalar(b, "a", -1, 1), TN_EARG);
    CHECK_STR(tn_error_text(cx), "tensorboard_scalar: step -1 is negative");
    tn_error_clear(cx);
    CHECK_STATUS(tn_tensorboard_image(b, "a", 1, tn_ones(cx, TN_F32, TN_SHAPE(2, 4, 4)),
                                      (tn_image_show_opts){ 0 }),
                 TN_ESHAPE);
    tn_close(cx);
    scratch_close();
}

// The norm that the update keeps is that of the gradients, averaged, whatever clipping makes of
// them.
static void the_norm_of_gradients_is_kept(void)
{
    tn_ctx   *cx  = tn_open("cpu");
    tn_layer *net = tn_nn_linear(cx, 3, 2);
    tn_optim *opt = tn_sgd(net, (tn_sgd_opts){ .lr = 0.1, .clip_norm = 1e-3, .accumulate = 2 });
    CHECK(isnan(tn_item(tn_optim_grad_norm(opt))));
    for (int i = 0; i < 2; i++) {
        tn_tensor *x = tn_full(cx, TN_F32, TN_SHAPE(4, 3), i + 1);
        tn_step(opt, tn_sum_all(tn_forward(net, x)));
        if (i == 0) CHECK(isnan(tn_item(tn_optim_grad_norm(opt))));  // no update yet
    }
    // Each weight has the gradient 4 * (1 + 2) / 2, each bias 4.
    CHECK_NEAR(tn_item(tn_optim_grad_norm(opt)), sqrt(6 * 36 + 2 * 16), 1e-4);
    tn_close(cx);
}

const test_case tests_tensorboard[] = { TEST(the_sum_is_that_of_the_standard),
                                        TEST(a_file_has_what_was_written),
                                        TEST(a_run_that_continues_says_from_where),
                                        TEST(equal_and_no_elements_have_histograms),
                                        TEST(wrong_calls_are_refused),
                                        TEST(the_norm_of_gradients_is_kept),
                                        TEST_END };
