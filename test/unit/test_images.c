// test_images.c: pictures (PNG of every kind, JPEG, their turns), and folders of them: classes,
// crops, files that cannot be read.
#include "picture_files.h"
#include "rules_kit.h"
#include "scratch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char file[PICTURE_ROOM];

static const char *save(const char *name, size_t n)
{
    CHECK(scratch_write(scratch_path(name), file, n));
    return scratch_path(name);
}

static tn_tensor *read_png(tn_ctx *cx, const png_file *p)
{
    return tn_image_read(cx, save("a.png", png_write(file, p)));
}

#define ROWS(...) ((const unsigned char[]){ __VA_ARGS__ })
#define PNG(w, h, c, b, r)                                                   \
    (png_file)                                                               \
    {                                                                        \
        .width = (w), .height = (h), .colour = (c), .bits = (b), .rows = (r) \
    }

static void every_kind_of_png_is_read(void)
{
    tn_ctx *cx = rules_open_scratch();
    if (!has_libpng()) {
        rules_close_scratch(cx);
        SKIP("no libpng is installed");
    }
    tn_tensor *t = read_png(cx, &PNG(3, 2, 0, 8, ROWS(0, 51, 255, 102, 153, 204)));
    CHECK(tn_dtype_of(t) == TN_F32 && tn_rank(t) == 3 && tn_size(t, 1) == 2 && tn_size(t, 2) == 3);
    CHECK_VALUES(t, 0, .2f, 1, .4f, .6f, .8f);
    CHECK_VALUES(read_png(cx, &PNG(3, 1, 0, 1, ROWS(0xa0))), 1, 0, 1);
    CHECK_VALUES(read_png(cx, &PNG(2, 1, 0, 16, ROWS(51, 51, 255, 255))), .2f, 1);
    t = read_png(cx, &PNG(2, 1, 2, 8, ROWS(0, 51, 102, 153, 204, 255)));
    CHECK_INT(tn_size(t, 0), 3);
    CHECK_VALUES(t, 0, .6f, .2f, .8f, .4f, 1);
    png_file p = { 2, 1, 3, 2, ROWS(0x40), ROWS(0, 51, 102, 153, 204, 255), NULL, 2 };
    CHECK_VALUES(read_png(cx, &p), .6f, 0, .8f, .2f, 1, .4f);
    p.alpha = ROWS(0, 128);  // what is transparent keeps its colour
    CHECK_VALUES(read_png(cx, &p), .6f, 0, .8f, .2f, 1, .4f);
    CHECK_VALUES(read_png(cx, &PNG(1, 1, 6, 8, ROWS(0, 51, 102, 9))), 0, .2f, .4f);
    CHECK_VALUES(read_png(cx, &PNG(2, 1, 4, 8, ROWS(51, 0, 102, 255))), .2f, .4f);
    CHECK_STATUS(tn_error(cx), TN_OK);
    rules_close_scratch(cx);
}

// ---- written and printed

// Runs of one value, and noise, which no repetition shortens; both wider than the window of
// deflate.
static void png_files_come_back_as_they_were(void)
{
    tn_ctx *cx = rules_open_scratch();
    if (!has_libpng()) {
        rules_close_scratch(cx);
        SKIP("no libpng is installed");
    }
    static const int64_t sizes[][3] = { { 1, 1, 1 }, { 1, 9, 300 }, { 3, 5, 7 }, { 3, 120, 257 } };
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        const int64_t *n = sizes[i / 2];
        tn_tensor     *x = tn_randint(cx, TN_U8, 0, i & 1 ? 256 : 2, 3, n);
        if (!(i & 1)) x = tn_mul_i64(tn_expand(tn_slice(x, 2, 0, 1, 1), 3, n), 255);
        CHECK_STATUS(tn_image_write(x, scratch_path("w.png")), TN_OK);
        tn_tensor *back = tn_image_read(cx, scratch_path("w.png"));
        test_that(tn_allclose(tn_mul_s(back, 255), tn_cast(x, TN_F32), 0, 1e-4, false),
                  "case %zu differs", i);
    }
    // What is outside of black and white, and what is no number.
    tn_tensor *x = tn_from(cx, TN_F32, TN_SHAPE(1, 4), (float[]){ -1, 2, NAN, 0.2f });
    CHECK_STATUS(tn_image_write(x, scratch_path("w.png")), TN_OK);
    CHECK_VALUES(tn_image_read(cx, scratch_path("w.png")), 0, 1, 0, .2f);
    CHECK_STATUS(tn_image_write_with(x, scratch_path("w.png"),
                                     (tn_image_show_opts){ .lo = -1, .hi = 2 }),
                 TN_OK);
    CHECK_VALUES(tn_image_read(cx, scratch_path("w.png")), 0, 1, 0, .4f);
    rules_close_scratch(cx);
}

// Of make_grid: rows of images, padding around each, black where one is missing.
static void images_are_joined_as_by_torchvision(void)
{
    tn_ctx    *cx = rules_open_scratch();
    tn_tensor *x  = tn_reshape(tn_arange(cx, TN_F32, 1, 7, 1), TN_SHAPE(3, 1, 1, 2));
    tn_tensor *y  = tn_image_grid(x, (tn_image_show_opts){ .columns = 2, .padding = 1 });
    CHECK_INT(tn_size(y, 1), 5);
    CHECK_VALUES(y, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 6, 0, 0, 0,
                 0, 0, 0, 0, 0, 0, 0, 0);
    y = tn_image_grid(x, (tn_image_show_opts){ .padding = TN_NO_PADDING, .lo = 2, .hi = 4 });
    CHECK_VALUES(y, 0, 0, .5f, 1, 1, 1);
    CHECK_INT(tn_rank(tn_image_grid(tn_select(x, 0, 0), (tn_image_show_opts){ 0 })), 3);
    CHECK(tn_image_grid(tn_select(tn_select(x, 0, 0), 0, 0), (tn_image_show_opts){ 0 }) != NULL);
    CHECK_STATUS(tn_error(cx), TN_OK);
    CHECK(tn_image_grid(tn_zeros(cx, TN_F32, TN_SHAPE(4)), (tn_image_show_opts){ 0 }) == NULL);
    CHECK_STR(tn_error_text(cx),
              "image_grid: (4,) is no image (H, W) or (C, H, W), nor several (N, C, H, W)");
    tn_error_clear(cx);
    CHECK(tn_image_grid(x, (tn_image_show_opts){ .columns = -1 }) == NULL);
    CHECK_STR(tn_error_text(cx),
              "image_grid: columns -1 and padding 0: a number of images and of pixels");
    tn_error_clear(cx);
    tn_tensor *two = tn_zeros(cx, TN_F32, TN_SHAPE(2, 4, 4));
    CHECK(tn_image_write(two, scratch_path("w.png")) != TN_OK);
    CHECK_STR(tn_error_text(cx), "image_write: 2 channels are neither 1 (grey) nor 3 (RGB)");
    rules_close_scratch(cx);
}

static void prints(tn_tensor *x, tn_image_style style, int width, const char *expected)
{
    char  *text = NULL;
    size_t bytes;
    FILE  *f = open_memstream(&text, &bytes);
    CHECK_STATUS(tn_image_print_with(x, f, (tn_image_show_opts){ .style = style, .width = width }),
                 TN_OK);
    fclose(f);
    CHECK_STR(text, expected);
    free(text);
}

static void images_are_printed_with_characters(void)
{
    tn_ctx *cx = rules_open_scratch();
    setenv("LC_ALL", "C.UTF-8", 1);
    tn_tensor *x = tn_eye(cx, TN_F32, 4, 4);
    prints(x, TN_IMAGE_SHADES, 0, "++  \n  ++\n");
    prints(x, TN_IMAGE_DOTS, 0, "\xe2\xa0\x91\xe2\xa2\x84\n");
    prints(x, TN_IMAGE_AUTO, 0, "\xe2\xa0\x91\xe2\xa2\x84\n");  // no terminal: no colours
    prints(x, TN_IMAGE_SHADES, 2, "::\n");                      // half as large
    prints(tn_expand(tn_unsqueeze(tn_slice(x, 0, 0, 2, 1), 0), TN_SHAPE(3, 2, 4)), TN_IMAGE_COLOURS,
           1, "\033[38;2;64;64;64m\033[48;2;64;64;64m\xe2\x96\x80\033[0m\n");
    setenv("LC_ALL", "C", 1);
    prints(x, TN_IMAGE_DOTS, 0, "++  \n  ++\n");
    CHECK(tn_image_print(x, NULL) != TN_OK);
    CHECK_STR(tn_error_text(cx), "image_print: f is NULL");
    rules_close_scratch(cx);
}

// Colours that JPEG keeps nearly: a ramp to the right, one down, and a constant.
static void ramps(unsigned char *to, int W, int H, int channels)
{
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++, to += channels) {
            to[0] = (unsigned char)(x * 255 / (W - 1));
            if (channels > 1) to[1] = (unsigned char)(y * 255 / (H - 1));
            if (channels > 2) to[2] = 51;
            if (channels > 3) to[3] = 204;
        }
}

enum { W = 24, H = 16 };

// Where the pixel is stored that a viewer shows at (x, y), by the definition of EXIF's turns.
static void stored(int turn, int x, int y, int *i, int *k)
{
    const int at[][2] = { { x, y }, { W - 1 - x, y }, { W - 1 - x, H - 1 - y }, { x, H - 1 - y },
                          { y, x }, { y, H - 1 - x }, { W - 1 - y, H - 1 - x }, { W - 1 - y, x } };
    *i                = at[turn - 1][0];
    *k                = at[turn - 1][1];
}

static void check_turn(tn_ctx *cx, int turn)
{
    unsigned char pixels[W * H * 3];
    float         have[W * H * 3];
    ramps(pixels, W, H, 3);
    tn_tensor *t = tn_image_read(
        cx, save("t.jpg",
                 jpeg_turn(file, jpeg_write(file, PICTURE_ROOM - 64, W, H, 3, pixels, 100), turn)));
    int wide = turn > 4 ? H : W, high = turn > 4 ? W : H, wrong = 0;
    if (!CHECK(t && tn_size(t, 1) == high && tn_size(t, 2) == wide)) return;
    tn_read(t, TN_F32, have, W * H * 3);
    for (int y = 0; y < high; y++)
        for (int x = 0; x < wide; x++) {
            int i, k;
            stored(turn, x, y, &i, &k);
            for (int c = 0; c < 3; c++) {
                float d = have[(c * high + y) * wide + x] -
                          (float)pixels[(k * W + i) * 3 + c] / 255;
                wrong += d > .02f || d < -.02f;
            }
        }
    test_case_result(wrong == 0, "turn %d: %d values differ", turn, wrong);
}

static void jpegs_are_read_and_turned(void)
{
    tn_ctx       *cx = rules_open_scratch();
    unsigned char pixels[W * H * 4];
    if (!has_libturbojpeg()) {
        rules_close_scratch(cx);
        SKIP("no libturbojpeg is installed");
    }
    for (int turn = 1; turn <= 8; turn++) check_turn(cx, turn);
    ramps(pixels, W, H, 1);
    tn_tensor *t = tn_image_read(cx, save("g.jpg",
                                          jpeg_write(file, PICTURE_ROOM, W, H, 1, pixels, 100)));
    CHECK_INT(tn_size(t, 0), 1);
    CHECK_NEAR(tn_item(tn_mean_all(t)), .5, .01);
    // CMYK as stored: 255 is no ink, so black of 204 leaves four fifths of the light.
    memset(pixels, 255, sizeof pixels);
    for (int i = 0; i < W * H; i++) pixels[4 * i] = 128, pixels[4 * i + 3] = 204;
    t = tn_image_read(cx, save("k.jpg", jpeg_write(file, PICTURE_ROOM, W, H, 4, pixels, 100)));
    CHECK_INT(tn_size(t, 0), 3);
    CHECK_NEAR(tn_item(tn_min_all(t)), .4, .02);
    CHECK_NEAR(tn_item(tn_max_all(t)), .8, .02);
    t = tn_image_read_with(cx, scratch_path("k.jpg"), (tn_image_opts){ .channels = 1 });
    CHECK_INT(tn_size(t, 0), 1);
    CHECK_STATUS(tn_error(cx), TN_OK);
    rules_close_scratch(cx);
}

static void pictures_that_are_damaged_are_refused(void)
{
    tn_ctx       *cx = rules_open_scratch();
    unsigned char pixels[W * H * 3];
    ramps(pixels, W, H, 3);
    size_t n = png_write(file, &PNG(W, H, 2, 8, pixels));
    if (has_libpng()) {
        CHECK(tn_image_read(cx, save("a.png", n - 20)) == NULL);
        CHECK_FAILED(cx, TN_EFORMAT, "a.png: ");
        CHECK(tn_image_read_with(cx, save("a.png", n), (tn_image_opts){ .most_pixels = 383 }) ==
              NULL);
        CHECK_FAILED(cx, TN_EFORMAT, "24 x 16 pixels are more than 383");
    }
    n = jpeg_write(file, PICTURE_ROOM, W, H, 3, pixels, 100);
    if (has_libturbojpeg()) {
        CHECK(tn_image_read(cx, save("a.jpg", n - 10)) == NULL);
        CHECK_FAILED(cx, TN_EFORMAT, "remature end");
        CHECK(tn_image_read(cx, save("a.jpg", 20)) == NULL);
        CHECK_FAILED(cx, TN_EFORMAT, "a.jpg: ");
    }
    CHECK(tn_image_read_with(cx, "x", (tn_image_opts){ .channels = 2 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "2 channels are neither 1 nor 3");
    CHECK(tn_image_read_with(cx, "x", (tn_image_opts){ .size = -1 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "size -1 and resize 0 are not in 1 ..");
    rules_close_scratch(cx);
}

// The picture of tools/record.py, as torchvision resizes it and takes its middle.
static void a_resized_middle_is_that_of_torchvision(void)
{
    static const int64_t sizes[][2] = { { 14, 16 }, { 24, 24 }, { 40, 48 } };

    tn_ctx       *cx = rules_open_scratch();
    unsigned char rows[40 * 30 * 3];
    if (!has_libpng()) {
        rules_close_scratch(cx);
        SKIP("no libpng is installed");
    }
    for (int i = 0; i < 40 * 30 * 3; i++) {
        int c = i % 3, x = i / 3 % 40, y = i / 3 / 40;
        rows[i] = (unsigned char)(7 * x + 13 * y * y + 50 * c);
    }
    save("a.png", png_write(file, &PNG(40, 30, 2, 8, rows)));
    tn_file *f = tn_file_open(cx, TN_SOURCE_DIR "/test/recordings/torchvision.safetensors");
    for (int i = 0; i < 3; i++) {
        char          name[32];
        int64_t       size = sizes[i][0];
        tn_image_opts o    = { .size = size, .resize = sizes[i][1] };
        snprintf(name, sizeof name, "picture%d", (int)size);
        tn_tensor *want = tn_reshape(tn_file_tensor(f, name), TN_SHAPE(3, size, size));
        tn_tensor *have = tn_image_read_with(cx, scratch_path("a.png"), o);
        CHECK_NEAR(tn_item(tn_max_all(tn_abs(tn_sub(tn_cast(have, TN_F64), want)))), 0, 1e-6);
    }
    CHECK_STATUS(tn_error(cx), TN_OK);
    rules_close_scratch(cx);
}

// ---- folders

// Two classes: "b" has 3 pictures of one colour each, "a" has 4, of which `bad` cannot be read.
static void make_folder(int bad)
{
    mkdir(scratch_path("a"), 0777);
    mkdir(scratch_path("b"), 0777);
    for (int i = 0; i < 7; i++) {
        unsigned char rows[10 * 8 * 3];
        char          name[32];
        memset(rows, 10 + 10 * i, sizeof rows);
        snprintf(name, sizeof name, "%c/%d.%s", i < 4 ? 'a' : 'b', i, i % 2 ? "PNG" : "png");
        size_t n = png_write(file, &PNG(10, 8, 2, 8, rows));
        save(name, i < bad ? (size_t)i * 30 : n);
    }
    CHECK(scratch_write(scratch_path("a/notes.txt"), "x", 1));
}

static void folders_of_pictures_are_datasets(void)
{
    tn_ctx *cx = rules_open_scratch();
    make_folder(0);
    tn_data *d = tn_images(cx, scratch_path(""), (tn_image_opts){ .size = 4, .threads = 3 });
    CHECK_INT(tn_data_count(d), 7);
    CHECK_INT(tn_data_info(d).classes, 2);
    CHECK_STR(tn_data_class_name(d, 1), "b");
    tn_data_shuffle(d, false, 0);
    if (has_libpng()) {
        tn_batch b = tn_next(d, 7);
        CHECK(tn_size(b.x, 1) == 3 && tn_size(b.x, 2) == 4 && tn_size(b.x, 3) == 4);
        tn_tensor *first = tn_mul_s(tn_slice(tn_flatten(b.x, 1, 3), 1, 0, 1, 1), 255);
        CHECK_VALUES(tn_round(first), 10, 20, 30, 40, 50, 60, 70);
        CHECK_VALUES(b.y, 0, 0, 0, 0, 1, 1, 1);
        CHECK_INT(tn_data_info(d).skipped, 0);
    }
    CHECK(tn_images(cx, scratch_path("a"), (tn_image_opts){ 0 }) == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "no folders of classes with .jpg, .jpeg or .png files");
    CHECK(tn_images(cx, scratch_path("none"), (tn_image_opts){ 0 }) == NULL);
    CHECK_FAILED(cx, TN_EIO, "none");
    CHECK(tn_images(cx, scratch_path(""), (tn_image_opts){ .threads = -1 }) == NULL);
    CHECK_FAILED(cx, TN_EARG, "a negative number of threads");
    rules_close_scratch(cx);
}

static void files_that_cannot_be_read_are_skipped_and_named(void)
{
    tn_ctx *cx = rules_open_scratch();
    if (!has_libpng()) {
        rules_close_scratch(cx);
        SKIP("no libpng is installed");
    }
    make_folder(3);
    tn_data *d = tn_images(cx, scratch_path(""), (tn_image_opts){ .size = 4, .threads = 2 });
    tn_data_shuffle(d, false, 0);
    for (int i = 0; i < 2; i++) CHECK_VALUES(tn_next(d, 7).y, 0, 0, 0, 0, 1, 1, 1);
    CHECK_INT(tn_data_info(d).skipped, 3);  // each once, though they were tried twice
    CHECK(strstr(tn_data_skipped(d, 0), "a/0.png: it is empty") ||
          strstr(tn_data_skipped(d, 0), "a/1.PNG: ") || strstr(tn_data_skipped(d, 0), "a/2.png: "));
    CHECK(tn_data_skipped(d, 2) && !tn_data_skipped(d, 3));
    CHECK_STATUS(tn_error(cx), TN_OK);

    d = tn_images(cx, scratch_path(""), (tn_image_opts){ .size = 4, .strict = true });
    tn_data_shuffle(d, false, 0);
    CHECK(tn_next(d, 1).x == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "a/0.png: it is empty");
    make_folder(7);
    d = tn_images(cx, scratch_path(""), (tn_image_opts){ .size = 4 });
    CHECK(tn_next(d, 2).x == NULL);
    CHECK_FAILED(cx, TN_EFORMAT, "nor can any other item be read");
    rules_close_scratch(cx);
}

static void a_forked_child_reads_pictures(void)
{
    if (strstr(TN_SANITIZE, "thread")) SKIP("the sanitizer allows no threads after a fork");
    if (!has_libpng()) SKIP("no libpng is installed");
    tn_ctx *cx = rules_open_scratch();
    make_folder(1);
    tn_data *d = tn_images(cx, scratch_path(""), (tn_image_opts){ .size = 4, .threads = 3 });
    for (int i = 0; i < 4; i++) {  // while its threads read
        CHECK(tn_next(d, 3).x != NULL);
        pid_t child = fork();
        if (child == 0) _exit(tn_data_skipped(d, 9) || !tn_next(d, 7).x || tn_error(cx));
        int status = 1;
        waitpid(child, &status, 0);
        CHECK_INT(status, 0);
    }
    rules_close_scratch(cx);
}

// What a batch has depends on the seed alone, not on the number of threads.
static void random_parts_are_the_same_for_any_threads(void)
{
    tn_ctx *cx = rules_open_scratch();
    if (!has_libpng()) {
        rules_close_scratch(cx);
        SKIP("no libpng is installed");
    }
    unsigned char rows[40 * 30 * 3];
    mkdir(scratch_path("a"), 0777);
    ramps(rows, 40, 30, 3);
    save("a/1.png", png_write(file, &PNG(40, 30, 2, 8, rows)));
    float     have[3][8 * 3 * 8 * 8];
    const int threads[] = { 1, 4, 1 };
    for (int i = 0; i < 3; i++) {
        tn_data *d = tn_images(cx, scratch_path(""),
                               (tn_image_opts){ .size = 8, .threads = threads[i] });
        CHECK_STATUS(tn_data_augment(d, (tn_augment_opts){ .resized_crop = i < 2, .flip = i < 2 }),
                     TN_OK);
        for (int k = 0; k < 8; k++) tn_read(tn_next(d, 1).x, TN_F32, have[i] + k * 192, 192);
    }
    CHECK(!memcmp(have[0], have[1], sizeof *have) && memcmp(have[0], have[2], sizeof *have));
    int flipped = 0, parts = 0;
    for (int k = 0; k < 8; k++) {
        const float *x = have[0] + k * 192;  // red rises to the right, unless it is flipped
        flipped += x[0] > x[7];
        parts += x[63] - x[0] < .8f;
        for (int i = 0; i < 192; i++) CHECK(x[i] >= 0 && x[i] <= 1);
    }
    CHECK(flipped > 0 && flipped < 8 && parts > 0);
    tn_data *d = tn_digits(cx, (tn_digits_opts){ .count = 9 });
    CHECK_STATUS(tn_data_augment(d, (tn_augment_opts){ .resized_crop = true }), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "only pictures of tn_images have a resized crop");
    rules_close_scratch(cx);
}

// ---- colours and mixtures

// A batch of all items of x (4, 3, 2, 2) in their order, changed as o says.
static tn_batch changed(tn_ctx *cx, tn_tensor *x, tn_augment_opts o)
{
    tn_tensor *both[] = { x, tn_from(cx, TN_I64, TN_SHAPE(4), (int64_t[]){ 2, 0, 1, 0 }) };
    tn_data   *d      = tn_arrays(cx, 2, both);
    CHECK_STATUS(tn_data_shuffle(d, false, 0), TN_OK);
    CHECK_STATUS(tn_data_augment(d, o), TN_OK);
    return tn_next(d, 4);
}

static double furthest(tn_tensor *a, tn_tensor *b)
{
    return tn_item(tn_max_all(tn_abs(tn_sub(a, b))));
}

// By what each change leaves as it is.
static void colours_are_changed_as_said(void)
{
    tn_ctx    *cx   = rules_open("cpu");
    tn_tensor *x    = tn_add_s(tn_mul_s(tn_rand(cx, TN_F32, TN_SHAPE(4, 3, 2, 2)), 0.2), 0.4);
    tn_tensor *luma = tn_from(cx, TN_F32, TN_SHAPE(3, 1, 1), (float[]){ 0.299f, 0.587f, 0.114f });
    tn_tensor *y    = changed(cx, x, (tn_augment_opts){ .brightness = 0.5 }).x;
    tn_tensor *by   = tn_div(y, x);  // one factor for an image
    tn_tensor *flat = tn_flatten(by, 1, 3);
    CHECK_NEAR(furthest(flat, tn_slice(flat, 1, 0, 1, 1)), 0, 1e-5);
    CHECK(tn_item(tn_max_all(by)) <= 1.5 && tn_item(tn_min_all(by)) >= 0.5 &&
          furthest(x, y) > 0.02);
    y                   = changed(cx, x, (tn_augment_opts){ .contrast = 0.5 }).x;
    tn_tensor *means[2] = { tn_mean(tn_mul(x, luma), 1), tn_mean(tn_mul(y, luma), 1) };
    CHECK_NEAR(furthest(tn_mean(tn_flatten(means[0], 1, 2), 1),
                        tn_mean(tn_flatten(means[1], 1, 2), 1)),
               0, 1e-6);
    CHECK(furthest(x, y) > 0.01);
    y = changed(cx, x, (tn_augment_opts){ .saturation = 0.5 }).x;
    CHECK_NEAR(furthest(tn_sum(tn_mul(x, luma), 1), tn_sum(tn_mul(y, luma), 1)), 0, 1e-6);
    CHECK(furthest(x, y) > 0.01);
    y = changed(cx, x, (tn_augment_opts){ .hue = 0.5 }).x;
    CHECK_NEAR(furthest(tn_max(x, 1), tn_max(y, 1)), 0, 1e-6);
    CHECK_NEAR(furthest(tn_min(x, 1), tn_min(y, 1)), 0, 1e-6);
    CHECK(furthest(x, y) > 0.01);
    tn_data *d = tn_digits(cx, (tn_digits_opts){ .count = 9 });
    CHECK_STATUS(tn_data_augment(d, (tn_augment_opts){ .hue = 0.6 }), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "hue 0.6 is not in 0 .. 0.5");
    tn_close(cx);
}

// x and y are mixed by the same weight, each with the item before it.
static void mixed_images_have_mixed_classes(void)
{
    tn_ctx    *cx = rules_open("cpu");
    tn_tensor *x  = tn_rand(cx, TN_F32, TN_SHAPE(4, 3, 2, 2));
    tn_batch   b  = changed(cx, x, (tn_augment_opts){ .mixup = 0.4 });
    CHECK(tn_dtype_of(b.y) == TN_F32 && tn_rank(b.y) == 2 && tn_size(b.y, 1) == 3);
    double own = tn_item(
        tn_slice(tn_select(b.y, 0, 2), 0, 1, 2, 1));  // of item 2, alone of class 1
    CHECK(own > 0 && own < 1);
    tn_tensor *rolled[] = { tn_slice(x, 0, 3, 4, 1), tn_slice(x, 0, 0, 3, 1) };
    tn_tensor *before   = tn_concat(2, rolled, 0);
    CHECK_NEAR(furthest(b.x, tn_add(tn_mul_s(x, own), tn_mul_s(before, 1 - own))), 0, 1e-6);
    CHECK_NEAR(furthest(tn_sum(b.y, 1), tn_ones(cx, TN_F32, TN_SHAPE(4))), 0, 1e-6);
    CHECK_NEAR(tn_item(tn_slice(tn_select(b.y, 0, 3), 0, 0, 1, 1)), own, 1e-6);
    CHECK(isfinite(tn_item(tn_cross_entropy(tn_randn(cx, TN_F32, TN_SHAPE(4, 3)), b.y))));
    tn_data *d = tn_arrays(cx, 1, &x);
    CHECK_STATUS(tn_data_augment(d, (tn_augment_opts){ .mixup = 0.4 }), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "only images with classes can be mixed");
    tn_close(cx);
}

const test_case tests_images[] = {
    TEST(every_kind_of_png_is_read),
    TEST(png_files_come_back_as_they_were),
    TEST(images_are_joined_as_by_torchvision),
    TEST(images_are_printed_with_characters),
    TEST(jpegs_are_read_and_turned),
    TEST(pictures_that_are_damaged_are_refused),
    TEST(a_resized_middle_is_that_of_torchvision),
    TEST(folders_of_pictures_are_datasets),
    TEST(files_that_cannot_be_read_are_skipped_and_named),
    TEST(a_forked_child_reads_pictures),
    TEST(random_parts_are_the_same_for_any_threads),
    TEST(colours_are_changed_as_said),
    TEST(mixed_images_have_mixed_classes),
    TEST_END,
};
