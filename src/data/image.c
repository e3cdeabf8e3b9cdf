// Images as files: JPEG and PNG by picture.c, and the portable grey and pixel maps, as text (P2,
// P3) or bytes (P5, P6). What other formats begin with is known, so that the refusal can name them.
//
// C channels, H rows, W columns
#include "data/content.h"
#include "data/picture.h"
#include "tensor/tensor.h"

#include <string.h>

enum { MOST_VALUE = 65535 };  // of the format; above 255 a value has two bytes

// Where a file is read, and what its header says. Values are of 0 .. most.
typedef struct {
    tn_ctx              *cx;
    const char          *path;
    const unsigned char *at, *end;
    bool                 text;
    int64_t              C, H, W, most;
} reading;

static bool refuse_image(const reading *r, const char *why)
{
    return tni_refuse(r->cx, TN_EFORMAT, "image_read: %s: %s", r->path, why);
}

static bool is_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// Reads a number after white space and comments, which go from # to the end of the line.
static bool read_number(reading *r, int64_t most, int64_t *v)
{
    while (r->at < r->end && (is_space(*r->at) || *r->at == '#')) {
        bool comment = *r->at++ == '#';
        while (comment && r->at < r->end && *r->at != '\n' && *r->at != '\r') r->at++;
    }
    if (r->at == r->end) return refuse_image(r, "it is cut short");
    if (!tni_is_digit((char)*r->at)) return refuse_image(r, "a number is expected, and not there");
    for (*v = 0; r->at < r->end && tni_is_digit((char)*r->at); r->at++) {
        *v = *v * 10 + (*r->at - '0');
        if (*v > most) return refuse_image(r, "a number is too large");
    }
    return true;
}

// Returns the name of the format that these bytes begin, if it is known and not read here.
static const char *other_kind(const unsigned char *s, size_t n)
{
    static const struct {
        const char *begins, *name;
    } kinds[] = { { "GIF8", "GIF" }, { "BM", "BMP" }, { "II*", "TIFF" }, { "MM", "TIFF" },
                  { "P1", "PBM" },   { "P4", "PBM" }, { "P7", "PAM" } };
    if (n >= 12 && !memcmp(s, "RIFF", 4) && !memcmp(s + 8, "WEBP", 4)) return "WebP";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i].begins);
        if (n >= length && !memcmp(s, kinds[i].begins, length)) return kinds[i].name;
    }
    return NULL;
}

// Reads the header up to the single white space before the values.
static bool read_header(reading *r)
{
    size_t      n    = (size_t)(r->end - r->at);
    const char *kind = other_kind(r->at, n);
    if (n == 0) return refuse_image(r, "it is empty");
    if (kind)
        return refuse_image(
            r, tni_text_of("%s is not read, only JPEG, PNG, PGM and PPM: convert it", kind).s);
    if (n < 2 || r->at[0] != 'P' || !strchr("2356", r->at[1]))
        return refuse_image(r, "it is no JPEG, PNG, PGM or PPM image");
    r->text = r->at[1] < '5';
    r->C    = r->at[1] == '3' || r->at[1] == '6' ? 3 : 1;
    r->at += 2;
    if (!read_number(r, INT32_MAX, &r->W) || !read_number(r, INT32_MAX, &r->H) ||
        !read_number(r, MOST_VALUE, &r->most))
        return false;
    if (r->W == 0 || r->H == 0 || r->most == 0)
        return refuse_image(r, "a number of its header is 0");
    if (r->at < r->end && is_space(*r->at)) r->at++;  // one, and then the values
    return true;
}

// Returns whether the file is long enough before memory is allocated: as text, a value takes a
// digit and a space, except for the last.
static bool has_values(const reading *r)
{
    int64_t left = r->end - r->at, width = r->text || r->most > 255 ? 2 : 1;
    if (r->W <= (left + r->text) / width / r->C / r->H) return true;
    return refuse_image(r, tni_text_of("it is cut short: its header says %lld x %lld",
                                       (long long)r->W, (long long)r->H)
                               .s);
}

// Reads one channel of one pixel, in the order of the file.
static bool read_value(reading *r, float *to)
{
    int64_t v;
    if (r->text) {
        if (!read_number(r, MOST_VALUE, &v)) return false;
    } else {
        v = *r->at++;
        if (r->most > 255) v = v << 8 | *r->at++;
    }
    if (v > r->most) return refuse_image(r, "a value is above the most that its header says");
    *to = (float)v / (float)r->most;
    return true;
}

// Files have the channels of a pixel together; the tensor has planes.
static bool read_values(reading *r, float *image)
{
    int64_t area = r->H * r->W;
    for (int64_t i = 0; i < area; i++)
        for (int64_t c = 0; c < r->C; c++)
            if (!read_value(r, image + c * area + i)) return false;
    return true;
}

// ---- pictures ----------------------------------------------------------------------------------

enum { MOST_SIZE = 1 << 14 };

bool tni_image_opts_ok(tn_ctx *cx, const char *op, const tn_image_opts *o)
{
    if (o->size < 0 || o->size > MOST_SIZE || o->resize < 0 || o->resize > MOST_SIZE)
        return tni_refuse(cx, TN_EARG, "%s: size %lld and resize %lld are not in 1 .. %d", op,
                          (long long)o->size, (long long)o->resize, MOST_SIZE);
    if (o->channels != 0 && o->channels != 1 && o->channels != 3)
        return tni_refuse(cx, TN_EARG, "%s: %d channels are neither 1 nor 3", op, o->channels);
    if (o->threads < 0 || o->most_pixels < 0)
        return tni_refuse(cx, TN_EARG, "%s: a negative number of %s", op,
                          o->threads < 0 ? "threads" : "pixels");
    return true;
}

// The result of a picture whose header was read: all of it, or the middle square that the options
// say.
static tn_tensor *cut_picture(tn_ctx *cx, const char *path, const tn_image_opts *o,
                              tni_picture_reader *r)
{
    int64_t W, H;
    tni_picture_size(r, &W, &H);
    int              C    = o->channels ? o->channels : r->grey ? 1 : 3;
    tni_picture_part part = o->size
                                ? tni_picture_middle(W, H, o->resize, o->size)
                                : (tni_picture_part){ 0, 0, (double)W, (double)H, W, H, false, 2 };

    W = part.to_width, H = part.to_height;
    float *image = tni_alloc(&cx->heap, (size_t)(C * H * W) * sizeof *image);
    if (!image) return tni_fail_memory(cx, "image_read");
    bool       ok = tni_picture_cut(r, &part, C, image);
    tn_tensor *t  = ok          ? tn_from(cx, TN_F32, TN_SHAPE(C, H, W), image)
                    : r->memory ? tni_fail_memory(cx, "image_read")
                                : tni_fail(cx, TN_EFORMAT, "image_read: %s: %s", path, r->why.s);
    tni_free(&cx->heap, image);
    return t;
}

// Hands planes of floats to the reader as bytes, as if they had been decoded.
static bool take_planes(tni_picture_reader *r, const reading *from, const float *image)
{
    int64_t area = from->H * from->W;
    r->kind      = TNI_NO_PICTURE;
    r->width = r->shown_width = from->W;
    r->height = r->shown_height = from->H;
    r->turn                     = 1;
    r->grey                     = from->C == 1;
    if (!tni_room_for(&r->pixels, (size_t)(area * 3))) return tni_picture_no_memory(r);
    unsigned char *to = r->pixels.data;
    for (int64_t i = 0; i < area * 3; i++)
        to[i] = (unsigned char)(255 * image[i % 3 % from->C * area + i / 3] + 0.5f);
    return true;
}

// Reads a portable map. Values are scaled to 0 .. 1, as tn_idx and tn_cifar10 do.
static tn_tensor *read_map(tn_ctx *cx, const char *path, const tni_content *c,
                           const tn_image_opts *o, tni_picture_reader *p)
{
    reading r = { .cx = cx, .path = path, .at = c->data, .end = c->data + c->bytes };
    if (!read_header(&r) || !has_values(&r)) return NULL;
    float *image = tni_alloc(&cx->heap, (size_t)(r.C * r.H * r.W) * sizeof *image);
    if (!image) return tni_fail_memory(cx, "image_read");
    tn_tensor *t = NULL;
    if (read_values(&r, image)) {
        if (!o->size && !o->channels) t = tn_from(cx, TN_F32, TN_SHAPE(r.C, r.H, r.W), image);
        else if (take_planes(p, &r, image)) t = cut_picture(cx, path, o, p);
        else tni_fail_memory(cx, "image_read");
    }
    tni_free(&cx->heap, image);
    return t;
}

tn_tensor *tn_image_read_with(tn_ctx *cx, const char *path, tn_image_opts o)
{
    tni_content        c;
    tni_picture_reader r = { 0 };
    tn_tensor         *t = NULL;
    if (!tni_ctx_ok(cx, "image_read") || !tni_image_opts_ok(cx, "image_read", &o) ||
        !tni_content_open(cx, "image_read", path, NULL, &c))
        return NULL;
    int64_t most = o.most_pixels ? o.most_pixels : TNI_MOST_PIXELS;
    if (!tni_picture_kind_of(c.data, c.bytes)) t = read_map(cx, path, &c, &o, &r);
    else if (tni_picture_begin(&r, c.data, c.bytes, most)) t = cut_picture(cx, path, &o, &r);
    else tni_fail(cx, TN_EFORMAT, "image_read: %s: %s", path, r.why.s);
    tni_picture_free(&r);
    tni_content_close(&cx->heap, &c);
    return t;
}

tn_tensor *tn_image_read(tn_ctx *cx, const char *path)
{
    return tn_image_read_with(cx, path, (tn_image_opts){ 0 });
}
