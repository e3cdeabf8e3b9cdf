// Drawn digits: images of 28 x 28 that need no file. Item i is a pure function of (seed, test, i):
// a label, one of several ways to write it, points moved a little, then turned, slanted, scaled and
// shifted as a whole, drawn with a round pen, and noise. The ranges are such that a linear model
// gets about two thirds right, a perceptron 98 to 99 %, and a small convolutional network 99.5 %
// after two epochs of 25,000 images.
//
// Only + - * / and square roots of floats are used, in a fixed order, with contraction off: the
// images are equal bit for bit on every machine.
#include "data/dataset.h"
#include "data/digit_strokes.h"
#include "data/draw.h"

#include <math.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10 };
enum { SPAN_STEPS = 4 };  // straight pieces between two points of a curve

// The source: all it needs to know is where its random numbers begin.
typedef struct {
    tni_item_source source;
    uint64_t        seed;
    bool            test;
} digits;

typedef struct {
    float x, y;
} point;

// From the unit square to pixels: p -> (xx x + xy y + x0, yx x + yy y + y0).
typedef struct {
    float xx, xy, x0, yx, yy, y0;
} affine;

// Squared distance of each pixel's centre to the nearest line drawn so far. Only pixels nearer than
// reach are kept up to date.
typedef struct {
    float reach;
    float near2[PIXELS];
} sheet;

// Each block of ten items has each label once, in an order of its own (a shuffle from the inside
// out).
static int label_of(const digits *d, int64_t item)
{
    int      label[CLASSES] = { 0 };
    tni_draw r = tni_draw_by(TNI_DRAW_LABEL, d->seed, (uint64_t)item / CLASSES, d->test);
    for (int i = 0; i < CLASSES; i++) {
        int j    = tni_draw_below(&r, i + 1);
        label[i] = label[j];
        label[j] = i;
    }
    return label[item % CLASSES];
}

// Chooses one of the ways to write a digit.
static const tni_digit_style *choose_style(tni_draw *r, int label)
{
    const tni_digit_style *styles = tni_digit_styles[label];
    int                    n      = 0;
    while (n < TNI_DIGIT_STYLES && styles[n].strokes) n++;
    return &styles[tni_draw_below(r, n)];
}

// Sine and cosine come from the tangent of the half angle, without a table or a library, whose last
// bits differ between machines.
static affine choose_affine(tni_draw *r)
{
    float t   = tni_draw_between(r, -0.16f, 0.16f);
    float cos = (1 - t * t) / (1 + t * t), sin = 2 * t / (1 + t * t);
    float slant = tni_draw_between(r, -0.35f, 0.35f);
    float w     = tni_draw_between(r, 12.5f, 22.0f);
    float h     = tni_draw_between(r, 14.0f, 22.0f);
    // Scale by (w, h), slant, turn; then move the middle of the square near the middle of the
    // image.
    affine a = { .xx = cos * w, .xy = (-slant * cos - sin) * h, .yx = sin * w };
    a.yy     = (cos - slant * sin) * h;
    a.x0     = SIDE * 0.5f - (a.xx + a.xy) * 0.5f + tni_draw_between(r, -3.3f, 3.3f);
    a.y0     = SIDE * 0.5f - (a.yx + a.yy) * 0.5f + tni_draw_between(r, -3.3f, 3.3f);
    return a;
}

static int to_pixel(float v)
{
    return v < 0 ? 0 : v > SIDE ? SIDE : (int)v;
}

// Lowers near2 around the line from a to b. The distance of a pixel is that to the point t of the
// way along, with t in [0, 1].
static void draw_line(sheet *s, point a, point b)
{
    float dx = b.x - a.x, dy = b.y - a.y;
    float inverse = 1 / (dx * dx + dy * dy + 1e-6f);
    int   x0      = to_pixel(fminf(a.x, b.x) - s->reach);
    int   x1      = to_pixel(fmaxf(a.x, b.x) + s->reach + 1);
    int   y0      = to_pixel(fminf(a.y, b.y) - s->reach);
    int   y1      = to_pixel(fmaxf(a.y, b.y) + s->reach + 1);
    for (int y = y0; y < y1; y++) {
        float  py  = (float)y + 0.5f - a.y;
        float *row = &s->near2[y * SIDE];
        for (int x = x0; x < x1; x++) {
            float px = (float)x + 0.5f - a.x;
            float t  = (px * dx + py * dy) * inverse;
            t        = t < 0 ? 0 : t > 1 ? 1 : t;
            float ex = px - t * dx, ey = py - t * dy;
            float d2 = ex * ex + ey * ey;
            row[x]   = d2 < row[x] ? d2 : row[x];
        }
    }
}

// Draws the Catmull-Rom curve from p1 to p2 in straight pieces.
static void draw_span(sheet *s, const point *p0, const point *p1, const point *p2, const point *p3)
{
    point from = *p1;
    for (int i = 1; i <= SPAN_STEPS; i++) {
        float t = (float)i / SPAN_STEPS, t2 = t * t, t3 = t2 * t;
        float w0 = -0.5f * t3 + t2 - 0.5f * t, w1 = 1.5f * t3 - 2.5f * t2 + 1;
        float w2 = -1.5f * t3 + 2 * t2 + 0.5f * t, w3 = 0.5f * t3 - 0.5f * t2;
        point to = { w0 * p0->x + w1 * p1->x + w2 * p2->x + w3 * p3->x,
                     w0 * p0->y + w1 * p1->y + w2 * p2->y + w3 * p3->y };
        draw_line(s, from, to);
        from = to;
    }
}

// Ends of an open curve are doubled, so that it starts and stops at its end points.
static void draw_stroke(sheet *s, tni_stroke_kind kind, const point *p, int n)
{
    int spans = kind == TNI_LOOP ? n : n - 1;
    for (int i = 0; i < spans; i++) {
        const point *a = &p[i], *b = &p[(i + 1) % n];
        const point *before = kind == TNI_LOOP ? &p[(i + n - 1) % n] : i > 0 ? &p[i - 1] : a;
        const point *after  = kind == TNI_LOOP ? &p[(i + 2) % n] : i + 2 < n ? &p[i + 2] : b;
        if (kind == TNI_LINES) draw_line(s, *a, *b);
        else draw_span(s, before, a, b, after);
    }
}

// Moves each point a little, as a hand would, and draws. A stroke that begins where the one before
// ended still does.
static void draw_style(sheet *s, tni_draw *r, const tni_digit_style *style)
{
    const float JITTER = 0.05f;
    affine      m      = choose_affine(r);
    point       p[TNI_STROKE_POINTS], end = { 0, 0 };
    for (int k = 0; k < style->strokes; k++) {
        const tni_stroke *stroke = &style->stroke[k];
        const tni_stroke *before = k > 0 ? stroke - 1 : NULL;
        for (int i = 0; i < stroke->points; i++) {
            float x = stroke->at[i][0] + tni_draw_between(r, -JITTER, JITTER);
            float y = stroke->at[i][1] + tni_draw_between(r, -JITTER, JITTER);
            p[i]    = (point){ m.xx * x + m.xy * y + m.x0, m.yx * x + m.yy * y + m.y0 };
        }
        if (before && before->at[before->points - 1][0] == stroke->at[0][0] &&
            before->at[before->points - 1][1] == stroke->at[0][1])
            p[0] = end;
        draw_stroke(s, stroke->kind, p, stroke->points);
        end = p[stroke->points - 1];
    }
}

// Turns distances into ink: full inside the pen, none a pixel further out. Noise is the sum of two
// uniform bytes, so that one random word serves four pixels.
static void ink_image(const sheet *s, tni_draw *r, float pen, float *image)
{
    float sharp   = 1 / tni_draw_between(r, 0.7f, 1.3f);
    float ink     = tni_draw_between(r, 0.6f, 1.0f);
    float noise   = tni_draw_between(r, 0.0f, 0.2f) / 255;
    float outside = s->reach * s->reach;
    for (int i = 0; i < PIXELS; i += 4) {
        uint64_t bits = tni_draw_bits(r);
        for (int k = 0; k < 4; k++, bits >>= 16) {
            float near   = s->near2[i + k];
            float in     = near < outside ? 0.5f + (pen - sqrtf(near)) * sharp : 0;
            float grey   = in < 0 ? 0 : in > 1 ? 1 : in;
            int   sum    = (int)(bits & 255) + (int)(bits >> 8 & 255) - 255;
            float v      = ink * grey + noise * (float)sum;
            image[i + k] = v < 0 ? 0 : v > 1 ? 1 : v;
        }
    }
}

// Draws item number `item`. No state: any thread can draw any item.
static int get_digit(const tni_item_source *source, int64_t item, void *const *dst)
{
    const digits *d     = (const digits *)source;
    int           label = label_of(d, item);
    tni_draw      r     = tni_draw_by(TNI_DRAW_DIGIT, d->seed, (uint64_t)item, d->test);
    float         pen   = tni_draw_between(&r, 0.7f, 1.5f);
    sheet         s     = { .reach = pen + 0.65f };
    for (int i = 0; i < PIXELS; i++) s.near2[i] = 1e6f;
    draw_style(&s, &r, choose_style(&r, label));
    ink_image(&s, &r, pen, dst[0]);
    *(int64_t *)dst[1] = label;
    return 0;
}

static void free_digits(tni_heap *h, tni_item_source *s)
{
    tni_free(h, s);
}

tn_data *tn_digits(tn_ctx *cx, tn_digits_opts o)
{
    static const char *const names[CLASSES] = { "0", "1", "2", "3", "4", "5", "6", "7", "8", "9" };
    if (!tni_ctx_ok(cx, "digits")) return NULL;
    digits *d = tni_zalloc(&cx->heap, sizeof *d);
    if (!d) return tni_fail_memory(cx, "digits");
    d->seed   = o.seed;
    d->test   = o.test;
    d->source = (tni_item_source){ .count       = o.count ? o.count : 60000,
                                   .fields      = 2,
                                   .field       = { tni_field(TN_F32, TN_SHAPE(1, SIDE, SIDE)),
                                                    tni_field(TN_I64, TN_0D) },
                                   .classes     = CLASSES,
                                   .class_names = names,
                                   .get         = get_digit,
                                   .free        = free_digits };
    return tni_data_make(cx, "digits", &d->source);
}
