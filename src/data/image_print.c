// Images in a terminal, with characters. A pixel of a character is the mean of the part of the
// image that it stands for, so an image that is too wide becomes smaller.
//
// C channels, H rows, W columns
#include "data/image_show.h"
#include "tensor/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char  shades[] = " .:-=+*#%@";
static const float BRIGHT   = 0.45f;  // of the brightest pixel: from there on a dot is set

// An image and how it is printed: columns x lines characters of across x down pixels each.
typedef struct {
    const tni_shown *s;
    FILE            *f;
    tn_image_style   style;
    int64_t          columns, lines;
    int              across, down;
    float            brightest;
} canvas;

// ---- the terminal ------------------------------------------------------------------------------

// Whether the locale is one of UTF-8; the first variable that is set decides.
static bool is_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (int i = 0; i < 3; i++) {
        const char *v = getenv(names[i]);
        if (v && *v)
            return strstr(v, "UTF-8") || strstr(v, "utf8") || strstr(v, "UTF8") ||
                   strstr(v, "utf-8");
    }
    return false;
}

// Whether f is a terminal that shows colours, and the user wants them.
static bool has_colours(FILE *f)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    return isatty(fileno(f)) && term && strcmp(term, "dumb") != 0 && !(no && *no);
}

// Characters in a line; 80 of what is no terminal, such as a file.
static int width_of(FILE *f)
{
    struct winsize size;
    return ioctl(fileno(f), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// What is asked for, as far as the locale and the terminal can show it.
static tn_image_style style_of(FILE *f, tn_image_style asked)
{
    if (asked == TN_IMAGE_DOTS && !is_utf8()) return TN_IMAGE_SHADES;
    if (asked != TN_IMAGE_AUTO) return asked;
    return !is_utf8() ? TN_IMAGE_SHADES : has_colours(f) ? TN_IMAGE_COLOURS : TN_IMAGE_DOTS;
}

// ---- characters --------------------------------------------------------------------------------

// The mean of channel c over what pixel (x, y) of the characters stands for, in [0, 1].
static float mean_of(const canvas *v, int64_t c, int64_t x, int64_t y)
{
    const tni_shown *s = v->s;
    int64_t          w = v->columns * v->across, h = v->lines * v->down;
    int64_t          x0 = x * s->W / w, x1 = (x + 1) * s->W / w;
    int64_t          y0 = y * s->H / h, y1 = (y + 1) * s->H / h;
    double           sum = 0;
    if (x1 == x0) x1++;
    if (y1 == y0) y1++;
    if (c >= s->C) c = s->C - 1;
    for (int64_t i = y0; i < y1; i++)
        for (int64_t k = x0; k < x1; k++) sum += (double)s->pixels[(c * s->H + i) * s->W + k];
    sum /= (double)((x1 - x0) * (y1 - y0));
    return sum > 0 ? sum < 1 ? (float)sum : 1 : 0;
}

// The weights of ITU-R 601, as in JPEG's own luma.
static float grey_of(const canvas *v, int64_t x, int64_t y)
{
    if (v->s->C == 1) return mean_of(v, 0, x, y);
    return 0.299f * mean_of(v, 0, x, y) + 0.587f * mean_of(v, 1, x, y) +
           0.114f * mean_of(v, 2, x, y);
}

// The upper half block, U+2580, in the colour of the upper pixel, on that of the lower one.
static void print_colours(const canvas *v, int64_t x, int64_t y)
{
    int rgb[2][3];
    for (int k = 0; k < 2; k++)
        for (int c = 0; c < 3; c++) rgb[k][c] = (int)(255 * mean_of(v, c, x, 2 * y + k) + 0.5f);
    fprintf(v->f, "\033[38;2;%d;%d;%dm\033[48;2;%d;%d;%dm\xe2\x96\x80", rgb[0][0], rgb[0][1],
            rgb[0][2], rgb[1][0], rgb[1][1], rgb[1][2]);
}

// The bits are those of Unicode braille, U+2800 to U+28FF, which take three bytes in UTF-8.
static void print_dots(const canvas *v, int64_t x, int64_t y)
{
    static const unsigned char bits[4][2] = {
        { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 }
    };

    unsigned cell = 0;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++)
            if (grey_of(v, 2 * x + k, 4 * y + i) > BRIGHT * v->brightest) cell |= bits[i][k];
    if (cell) fprintf(v->f, "\xe2%c%c", (int)(0xa0 + (cell >> 6)), (int)(0x80 + (cell & 63)));
    else fputc(' ', v->f);
}

// The mean of both pixels, as one of ten characters from dark to bright.
static void print_shade(const canvas *v, int64_t x, int64_t y)
{
    float mean = (grey_of(v, x, 2 * y) + grey_of(v, x, 2 * y + 1)) / 2;
    fputc(shades[(int)(mean / v->brightest * (sizeof shades - 2) + 0.5f)], v->f);
}

// Line by line; colours end with each line, so that what is printed beside or after it has its own.
static void print_all(const canvas *v)
{
    for (int64_t y = 0; y < v->lines; y++) {
        for (int64_t x = 0; x < v->columns; x++) {
            if (v->style == TN_IMAGE_COLOURS) print_colours(v, x, y);
            else if (v->style == TN_IMAGE_DOTS) print_dots(v, x, y);
            else print_shade(v, x, y);
        }
        fputs(v->style == TN_IMAGE_COLOURS ? "\033[0m\n" : "\n", v->f);
    }
}

// ---- images ------------------------------------------------------------------------------------

// The largest value that can be shown, so that faint images can be seen; 1 of an image that is all
// black.
static float brightest_of(const tni_shown *s)
{
    float most = 0;
    for (int64_t i = 0; i < s->C * s->H * s->W; i++)
        if (s->pixels[i] > most) most = s->pixels[i];
    return most > 1 || most < 1e-6f ? 1 : most;
}

// A character is twice as high as wide, and so is the block of pixels that it stands for: images
// keep their shape. One that is narrower than a line keeps its size, since larger pixels would show
// nothing more.
static void print_shown(const tni_shown *s, FILE *f, tn_image_style style, int64_t width)
{
    bool   dots = style == TN_IMAGE_DOTS;
    canvas v    = { .s         = s,
                    .f         = f,
                    .style     = style,
                    .across    = dots ? 2 : 1,
                    .down      = dots ? 4 : 2,
                    .brightest = brightest_of(s) };
    v.columns   = (s->W + v.across - 1) / v.across;
    if (v.columns > width) v.columns = width;
    v.lines = (v.columns * v.across * s->H / s->W + v.down - 1) / v.down;
    if (v.lines < 1) v.lines = 1;
    print_all(&v);
}

// As many images in a row as fit, at least one.
static int64_t columns_for(tn_tensor *x, const tn_image_show_opts *o, tn_image_style style,
                           int64_t width)
{
    if (o->columns || tn_rank(x) != 4) return o->columns;
    int64_t pad    = o->padding < 0 ? 0 : o->padding ? o->padding : 2;
    int64_t pixels = width * (style == TN_IMAGE_DOTS ? 2 : 1), each = tn_size(x, 3) + pad;
    return each > 0 && pixels - pad >= each ? (pixels - pad) / each : 1;
}

// What is printed is read back from the device, which waits. Errors of the stream are the caller's
// to see, as with fprintf.
tn_status tn_image_print_with(tn_tensor *x, FILE *f, tn_image_show_opts o)
{
    tni_shown s;
    tn_ctx   *cx = tni_arg1("image_print", x, "x");
    if (!cx) return tni_failed();
    if (!f) return tni_fail_status(cx, TN_EARG, "image_print: f is NULL");
    if ((unsigned)o.style > TN_IMAGE_SHADES || o.width < 0)
        return tni_fail_status(cx, TN_EARG, "image_print: style %d, width %d: %s", (int)o.style,
                               o.width, o.width < 0 ? "a line of that width" : "there is none");
    tn_image_style style = style_of(f, o.style);
    int64_t        width = o.width ? o.width : width_of(f);
    o.columns            = columns_for(x, &o, style, width);
    if (!tni_shown_read("image_print", x, o, &s)) return tni_failed();
    print_shown(&s, f, style, width);
    tni_free(&cx->heap, s.pixels);
    return TN_OK;
}

tn_status tn_image_print(tn_tensor *x, FILE *f)
{
    return tn_image_print_with(x, f, (tn_image_show_opts){ 0 });
}
