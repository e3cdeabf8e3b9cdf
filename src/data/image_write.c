// Images joined to one, and written as PNG. The file needs no library: zlib's format is written
// here, by the fixed codes of deflate (RFC 1951) and repetitions that a small table of places
// finds. Drawings and grids, with their long runs of one colour, become a tenth of their pixels or
// less.
//
// N images, C channels, H rows, W columns
#include "base/crc.h"
#include "data/image_show.h"
#include "data/picture.h"
#include "io/outfile.h"
#include "tensor/tensor.h"

#include <string.h>

// ---- the grid ----------------------------------------------------------------------------------

// x as (N, C, H, W); NULL, reported, if it is not one or several images.
static tn_tensor *as_images(const char *op, tn_tensor *x)
{
    int rank = tn_rank(x);
    if (rank < 2 || rank > 4 || tn_count(x) == 0)
        return tni_fail(tn_ctx_of(x), TN_ESHAPE,
                        "%s: %s is no image (H, W) or (C, H, W), nor several (N, C, H, W)", op,
                        tni_shape_of(x).s);
    if (rank == 2) x = tn_unsqueeze(x, 0);
    return rank < 4 ? tn_unsqueeze(x, 0) : x;
}

// x in f32 with black at 0 and white at 1.
static tn_tensor *levels(tn_tensor *x, const tn_image_show_opts *o)
{
    double lo = o->lo, hi = o->hi;
    if (lo == hi) lo = 0, hi = tn_dtype_of(x) == TN_U8 ? 255 : 1;
    x = tn_cast(x, TN_F32);
    return lo == 0 && hi == 1 ? x : tn_clamp(tn_div_s(tn_sub_s(x, lo), hi - lo), 0, 1);
}

// Each image gets the padding above it and to its left, and the whole that to the right and below.
// What is missing in the last row is black.
static tn_tensor *join(tn_tensor *x, int64_t columns, int64_t pad)
{
    int64_t N = tn_size(x, 0), C = tn_size(x, 1), H = tn_size(x, 2) + pad, W = tn_size(x, 3) + pad;
    if (columns > N) columns = N;
    int64_t rows = (N + columns - 1) / columns;
    x = tn_pad(x, (int64_t[]){ 0, 0, pad, pad }, (int64_t[]){ rows * columns - N, 0, 0, 0 }, 0);
    x = tn_reshape(x, TN_SHAPE(rows, columns, C, H, W));
    x = tn_permute(x, TN_AXES(2, 0, 3, 1, 4));
    x = tn_reshape(x, TN_SHAPE(C, rows * H, columns * W));
    return tn_pad(x, (int64_t[]){ 0, 0, 0 }, (int64_t[]){ 0, pad, pad }, 0);
}

// The images of x as one, f32. The message of a wrong option has both numbers, since either may be
// wrong.
static tn_tensor *grid(const char *op, tn_tensor *x, tn_image_show_opts o)
{
    if (!x || !(x = as_images(op, x))) return NULL;
    if (o.columns < 0 || o.padding < TN_NO_PADDING || o.columns > INT32_MAX ||
        o.padding > INT32_MAX)
        return tni_fail(tn_ctx_of(x), TN_EARG,
                        "%s: columns %lld and padding %lld: a number of images and of pixels", op,
                        (long long)o.columns, (long long)o.padding);
    if (!(o.hi >= o.lo))
        return tni_fail(tn_ctx_of(x), TN_EARG, "%s: lo %g is above hi %g", op, o.lo, o.hi);
    x = levels(x, &o);
    if (!x || tn_size(x, 0) == 1) return tn_squeeze(x, 0);
    return join(x, o.columns ? o.columns : 8, o.padding < 0 ? 0 : o.padding ? o.padding : 2);
}

// The only one of these functions that has a gradient: a grid may be part of a network.
tn_tensor *tn_image_grid(tn_tensor *x, tn_image_show_opts o)
{
    return tni_arg1("image_grid", x, "x") ? grid("image_grid", x, o) : NULL;
}

// Sizes are checked before memory is allocated by them; the limit is that of the reader, so that
// what is written can be read.
bool tni_shown_read(const char *op, tn_tensor *x, tn_image_show_opts o, tni_shown *s)
{
    tn_tensor *g = grid(op, x, o);
    if (!g) return false;
    tn_ctx *cx = tn_ctx_of(g);
    *s         = (tni_shown){ tn_size(g, 0), tn_size(g, 1), tn_size(g, 2), NULL };
    if (s->C != 1 && s->C != 3)
        return tni_refuse(cx, TN_ESHAPE, "%s: %lld channels are neither 1 (grey) nor 3 (RGB)", op,
                          (long long)s->C);
    if (s->H > TNI_MOST_PIXELS / s->W)
        return tni_refuse(cx, TN_ESHAPE, "%s: %lld x %lld pixels are more than %d", op,
                          (long long)s->W, (long long)s->H, TNI_MOST_PIXELS);
    s->pixels = tni_alloc(&cx->heap, (size_t)tn_count(g) * sizeof *s->pixels);
    if (!s->pixels) return tni_fail_memory(cx, op), false;
    if (tn_read(g, TN_F32, s->pixels, tn_count(g)) == TN_OK) return true;
    tni_free(&cx->heap, s->pixels);
    return false;
}

// ---- deflate -----------------------------------------------------------------------------------

// Bytes that grow bit by bit, the lowest bit of a byte first.
typedef struct {
    unsigned char *at;
    uint32_t       bits;
    int            held;
} packer;

static void put_bits(packer *p, uint32_t v, int n)
{
    p->bits |= v << p->held;
    for (p->held += n; p->held >= 8; p->held -= 8, p->bits >>= 8) *p->at++ = (unsigned char)p->bits;
}

// A code of Huffman's goes from its highest bit to its lowest.
static void put_code(packer *p, uint32_t code, int n)
{
    uint32_t turned = 0;
    for (int i = 0; i < n; i++) turned |= (code >> i & 1) << (n - 1 - i);
    put_bits(p, turned, n);
}

// A literal, 0 .. 255, the end, 256, or the length of a repetition, by the fixed code.
static void put_symbol(packer *p, uint32_t s)
{
    if (s < 144) put_code(p, 0x30 + s, 8);
    else if (s < 256) put_code(p, 0x190 + s - 144, 9);
    else if (s < 280) put_code(p, s - 256, 7);
    else put_code(p, 0xc0 + s - 280, 8);
}

// The highest bit that is set, from 0.
static int log2_of(uint32_t v)
{
    int n = 0;
    while (v >>= 1) n++;
    return n;
}

// Lengths of 3 .. 258 and distances of 1 .. 32768: a symbol for the highest bits, then the other
// ones.
static void put_repetition(packer *p, uint32_t length, uint32_t distance)
{
    uint32_t l = length - 3, d = distance - 1;
    int      e = l < 8 ? 0 : log2_of(l) - 2;
    if (length == 258) put_symbol(p, 285);
    else {
        put_symbol(p, 257 + 4 * (uint32_t)e + (l >> e));
        put_bits(p, l & ((1u << e) - 1), e);
    }
    e = d < 4 ? 0 : log2_of(d) - 1;
    put_code(p, 2 * (uint32_t)e + (d >> e), 5);
    put_bits(p, d & ((1u << e) - 1), e);
}

enum { PLACES = 1 << 12, LONGEST = 258, WINDOW = 1 << 15 };

// The table's place for the three bytes at s: the shortest repetition that deflate has.
static uint32_t place_of(const unsigned char *s)
{
    return ((uint32_t)s[0] << 16 | (uint32_t)s[1] << 8 | s[2]) * 2654435761u >> 20;
}

// How many bytes at i repeat those at j.
static uint32_t common(const unsigned char *s, size_t i, size_t j, size_t n)
{
    uint32_t k = 0;
    while (k < LONGEST && i + k < n && s[i + k] == s[j + k]) k++;
    return k;
}

// Writes n bytes as one block; the table knows where the last bytes of a kind began, plus 1. A
// literal takes at most 9 bits, so the result has at most n * 9 / 8 + 8 bytes.
static void put_block(packer *p, const unsigned char *s, size_t n)
{
    uint32_t last[PLACES] = { 0 };
    put_bits(p, 3, 3);  // the last block, with the fixed codes
    for (size_t i = 0; i < n;) {
        uint32_t length = 0, from = 0;
        if (i + 3 <= n) {
            uint32_t *place = &last[place_of(s + i)];
            from            = *place;
            *place          = (uint32_t)i + 1;
            if (from && i + 1 - from <= WINDOW) length = common(s, i, from - 1, n);
        }
        if (length >= 3) put_repetition(p, length, (uint32_t)(i + 1 - from));
        else put_symbol(p, s[i]);
        i += length >= 3 ? length : 1;
    }
    put_symbol(p, 256);
    put_bits(p, 0, 7);  // to the end of the byte
}

// ---- PNG ---------------------------------------------------------------------------------------

// Numbers in PNG have their highest byte first.
static void put_u32(unsigned char *to, uint32_t v)
{
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(v >> 8 * (3 - i));
}

// The sum at the end of zlib's format, of the bytes before they were shortened.
static uint32_t adler_of(const unsigned char *p, size_t n)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; i++) {
        a = (a + p[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

// Completes a chunk whose n bytes lie at at + 8: its length, its name, and its sum. Returns the
// end.
static unsigned char *end_chunk(unsigned char *at, const char *name, size_t n)
{
    put_u32(at, (uint32_t)n);
    memcpy(at + 4, name, 4);
    put_u32(at + 8 + n, tni_crc(TNI_CRC_PNG, at + 4, n + 4));
    return at + 12 + n;
}

// Rows of a filter byte, 0, and the channels of each pixel. NaN is black.
// A value is rounded to the nearest of 256; what is below black or above white becomes these.
static void fill_rows(unsigned char *to, const tni_shown *s)
{
    for (int64_t y = 0; y < s->H; y++) {
        *to++ = 0;
        for (int64_t i = 0; i < s->W * s->C; i++) {
            float v = s->pixels[(i % s->C * s->H + y) * s->W + i / s->C];
            *to++   = (unsigned char)(v > 0 ? v < 1 ? 255 * v + 0.5f : 255 : 0);
        }
    }
}

// Writes the file into memory of enough room: 100 bytes and nine eighths of the rows. Returns its
// length.
static size_t write_png(const tni_shown *s, const unsigned char *rows, size_t n,
                        unsigned char *file)
{
    unsigned char *at = file + 8;
    memcpy(file, "\x89PNG\r\n\x1a\n", 8);
    memset(at + 8, 0, 13);
    put_u32(at + 8, (uint32_t)s->W);
    put_u32(at + 12, (uint32_t)s->H);
    at[16]   = 8;  // bits
    at[17]   = s->C == 1 ? 0 : 2;
    at       = end_chunk(at, "IHDR", 13);
    packer p = { .at = at + 10 };
    memcpy(at + 8, "\x78\x01", 2);  // zlib's header: deflate, a window of 32 KiB
    put_block(&p, rows, n);
    put_u32(p.at, adler_of(rows, n));
    at = end_chunk(at, "IDAT", (size_t)(p.at + 4 - (at + 8)));
    return (size_t)(end_chunk(at, "IEND", 0) - file);
}

// The file appears whole or not at all.
static tn_status save(tn_ctx *cx, const char *path, const unsigned char *file, size_t bytes)
{
    tni_outfile *out = tni_outfile_open(cx, "image_write", path);
    if (!out) return tni_failed();
    if (tni_outfile_write(out, file, bytes)) return tni_outfile_commit(out);
    tni_outfile_abandon(out);
    return tni_failed();
}

// A literal may take 9 bits, so that noise becomes an eighth longer; the rest of the room is for
// headers and sums.
unsigned char *tni_png_of(tn_ctx *cx, const char *op, const tni_shown *s, size_t *bytes)
{
    size_t         n    = (size_t)(s->H * (s->W * s->C + 1));
    unsigned char *rows = tni_alloc(&cx->heap, n), *file = tni_alloc(&cx->heap, n + n / 8 + 108);
    if (rows && file) {
        fill_rows(rows, s);
        *bytes = write_png(s, rows, n, file);
    } else {
        tni_fail_memory(cx, op);
        tni_free(&cx->heap, file);
        file = NULL;
    }
    tni_free(&cx->heap, rows);
    return file;
}

tn_status tn_image_write_with(tn_tensor *x, const char *path, tn_image_show_opts o)
{
    tni_shown s;
    tn_ctx   *cx = tni_arg1("image_write", x, "x");
    if (!cx || !tni_shown_read("image_write", x, o, &s)) return tni_failed();
    size_t         bytes  = 0;
    unsigned char *file   = tni_png_of(cx, "image_write", &s, &bytes);
    tn_status      status = file ? save(cx, path, file, bytes) : TN_EMEM;
    tni_free(&cx->heap, file);
    tni_free(&cx->heap, s.pixels);
    return status;
}

tn_status tn_image_write(tn_tensor *x, const char *path)
{
    return tn_image_write_with(x, path, (tn_image_show_opts){ 0 });
}
