// Pictures: their files, what their first bytes say, and the part of one that becomes an item.
//
// A part is resized by a triangle filter whose width is that of a result's pixel, which is what
// PyTorch calls antialiased bilinear interpolation: each axis by itself, rows first, since the rows
// of the result are few and a row is contiguous. A result's row is folded from its rows of the
// picture, then its columns from those of that row, and the numbers go to their places right away,
// turned and mirrored.
#include "data/picture.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- memory and messages -----------------------------------------------------------------------

// Of the C library, not of the context, whose memory belongs to its thread.
bool tni_room_for(tni_room *r, size_t bytes)
{
    if (bytes <= r->bytes) return true;
    free(r->data);
    r->data  = malloc(bytes);
    r->bytes = r->data ? bytes : 0;
    return r->data != NULL;
}

void tni_picture_free(tni_picture_reader *r)
{
    tni_jpeg_free(r);
    free(r->content.data);
    free(r->pixels.data);
    free(r->rows.data);
    free(r->taps.data);
    *r = (tni_picture_reader){ 0 };
}

bool tni_picture_fails(tni_picture_reader *r, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    vsnprintf(r->why.s, sizeof r->why.s, fmt, list);
    va_end(list);
    return false;
}

bool tni_picture_no_memory(tni_picture_reader *r)
{
    r->memory = true;
    return tni_picture_fails(r, "out of memory");
}

// ---- files -------------------------------------------------------------------------------------

enum { MOST_FILE = 1 << 30 };  // bytes; no picture that is small enough has more

// Reads a file of the size that the system says. Only plain files: a pipe may have no end, and a
// device may be endless.
static bool read_all(tni_picture_reader *r, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return tni_picture_fails(r, "it is no file");
    if (st.st_size > MOST_FILE) return tni_picture_fails(r, "it has more than 1 GiB");
    if (!tni_room_for(&r->content, (size_t)st.st_size + 1)) return tni_picture_no_memory(r);
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n < (size_t)st.st_size; n += (size_t)(got > 0 ? got : 0))
        got = read(fd, (char *)r->content.data + n, (size_t)st.st_size - n);
    r->file  = r->content.data;
    r->bytes = n;
    return true;
}

bool tni_picture_load(tni_picture_reader *r, const char *path)
{
    int fd    = open(path, O_RDONLY | O_CLOEXEC);
    r->memory = false;
    if (fd < 0) return tni_picture_fails(r, "it cannot be opened");
    bool ok = read_all(r, fd);
    close(fd);
    return ok;
}

// By the first bytes; names of files are not to be trusted.
tni_picture_kind tni_picture_kind_of(const unsigned char *data, size_t bytes)
{
    if (bytes >= 3 && !memcmp(data, "\xff\xd8\xff", 3)) return TNI_JPEG;
    return bytes >= 4 && !memcmp(data, "\x89PNG", 4) ? TNI_PNG : TNI_NO_PICTURE;
}

// Nothing is allocated by what a header says before its sizes are checked.
bool tni_picture_begin(tni_picture_reader *r, const unsigned char *file, size_t bytes, int64_t most)
{
    r->file   = file;
    r->bytes  = bytes;
    r->kind   = tni_picture_kind_of(file, bytes);
    r->memory = false;
    if (bytes == 0) return tni_picture_fails(r, "it is empty");
    if (r->kind == TNI_NO_PICTURE) return tni_picture_fails(r, "it is no JPEG or PNG");
    if (!(r->kind == TNI_JPEG ? tni_jpeg_begin(r) : tni_png_begin(r))) return false;
    if (r->width < 1 || r->height < 1) return tni_picture_fails(r, "it has no pixels");
    if (r->width > most / r->height)
        return tni_picture_fails(r, "%lld x %lld pixels are more than %lld", (long long)r->width,
                                 (long long)r->height, (long long)most);
    return true;
}

// The weights of ITU-R 601, as in JPEG's own luma and in PIL.
void tni_mix_grey(unsigned char *p, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++)
        p[i] = (unsigned char)((299 * p[3 * i] + 587 * p[3 * i + 1] + 114 * p[3 * i + 2] + 500) /
                               1000);
}

bool tni_picture_decode(tni_picture_reader *r, int channels, int eighths)
{
    r->channels = channels;
    if (r->kind == TNI_NO_PICTURE) {
        if (channels == 1) tni_mix_grey(r->pixels.data, (size_t)(r->width * r->height));
        return true;
    }
    return r->kind == TNI_JPEG ? tni_jpeg_decode(r, eighths) : tni_png_decode(r);
}

// ---- turns -------------------------------------------------------------------------------------

// What is stored mirrored, left to right (x) or top to bottom (y), and then with its axes
// exchanged, of each turn.
typedef struct {
    bool x, y, swap;
} turn;

// A turn that is none of the eight counts as none.
static turn turn_of(const tni_picture_reader *r)
{
    static const turn turns[] = { { 0, 0, 0 }, { 1, 0, 0 }, { 1, 1, 0 }, { 0, 1, 0 },
                                  { 0, 0, 1 }, { 0, 1, 1 }, { 1, 1, 1 }, { 1, 0, 1 } };
    return turns[r->turn >= 1 && r->turn <= 8 ? r->turn - 1 : 0];
}

void tni_picture_size(const tni_picture_reader *r, int64_t *W, int64_t *H)
{
    bool swap = turn_of(r).swap;
    *W        = swap ? r->height : r->width;
    *H        = swap ? r->width : r->height;
}

// ---- resizing ----------------------------------------------------------------------------------

// What a pixel of the result is folded from along one axis: `count` pixels from `from` on, whose
// weights add up to 1.
typedef struct {
    int64_t from, count;
    float  *weight;
} tap;

// One axis: `to` pixels of the result from `length` pixels of `limit`, beginning at `start`.
typedef struct {
    double  start, length;
    int64_t limit, to;
} axis;

// The most pixels that one of the result is folded from.
static int64_t most_taps(const axis *a)
{
    double scale = a->length / (double)a->to;
    return 2 * (int64_t)ceil(scale > 1 ? scale : 1) + 1;
}

// Fills the taps of an axis; weights has room for most_taps of each. Pixels outside of the picture
// count as not there, as in PIL and PyTorch.
static void find_taps(const axis *a, tap *t, float *weights)
{
    double  scale = a->length / (double)a->to, reach = scale > 1 ? scale : 1;
    int64_t each = most_taps(a);
    for (int64_t i = 0; i < a->to; i++) {
        double  middle = a->start + ((double)i + 0.5) * scale, sum = 0;
        int64_t from = (int64_t)floor(middle - reach + 0.5),
                end  = (int64_t)floor(middle + reach + 0.5);
        if (from < 0) from = 0;
        if (end > a->limit) end = a->limit;
        if (from >= a->limit) from = a->limit - 1;
        if (end <= from) end = from + 1;
        if (end > from + each) end = from + each;
        t[i] = (tap){ from, end - from, weights + i * each };
        for (int64_t k = from; k < end; k++) {
            double w              = 1 - fabs(((double)k + 0.5 - middle) / reach);
            t[i].weight[k - from] = (float)(w > 0 ? w : 0);
            sum += w > 0 ? w : 0;
        }
        for (int64_t k = 0; k < end - from; k++)
            t[i].weight[k] = (float)(sum > 0 ? t[i].weight[k] / sum : 1.0 / (double)(end - from));
    }
}

// A row of the result before its columns are folded: n bytes of each of its rows in the picture.
static void fold_rows(float *to, const unsigned char *from, int64_t stride, int64_t n, const tap *t)
{
    for (int64_t i = 0; i < n; i++) to[i] = t->weight[0] * (float)from[i];
    for (int64_t k = 1; k < t->count; k++) {
        const unsigned char *row = from + k * stride;
        float                w   = t->weight[k];
        for (int64_t i = 0; i < n; i++) to[i] += w * (float)row[i];
    }
}

// Where the numbers of the result go: element (x, y) of channel c to at[c * plane + y * dy + x *
// dx].
typedef struct {
    float  *at;
    int64_t plane, dx, dy;
} places;

// Folds the columns of a row that begins with column `first` of the picture.
static void fold_columns(const float *row, int64_t first, const tap *t, int64_t n, int channels,
                         const places *p, float *to)
{
    for (int64_t x = 0; x < n; x++, to += p->dx) {
        const float *v = row + (t[x].from - first) * channels, *w = t[x].weight;
        float        sum[3] = { 0 };
        if (channels == 1)
            for (int64_t k = 0; k < t[x].count; k++) sum[0] += w[k] * v[k];
        else
            for (int64_t k = 0; k < t[x].count; k++)
                for (int c = 0; c < 3; c++) sum[c] += w[k] * v[3 * k + c];
        for (int c = 0; c < channels; c++) to[c * p->plane] = sum[c] / 255;
    }
}

// Folds the rows of the result one by one; only the columns that a tap reads are folded before
// them.
static bool resize(tni_picture_reader *r, const axis *x, const axis *y, const places *p)
{
    int64_t each = most_taps(x), rows = most_taps(y), C = r->channels;
    size_t  bytes = (size_t)(x->to + y->to) * sizeof(tap) +
                   (size_t)(x->to * each + y->to * rows) * sizeof(float);
    if (!tni_room_for(&r->taps, bytes)) return tni_picture_no_memory(r);
    tap   *tx = r->taps.data, *ty = tx + x->to;
    float *weights = (float *)(ty + y->to);
    find_taps(x, tx, weights);
    find_taps(y, ty, weights + x->to * each);
    int64_t first = tx[0].from, end = tx[x->to - 1].from + tx[x->to - 1].count;
    if (!tni_room_for(&r->rows, (size_t)((end - first) * C) * sizeof(float)))
        return tni_picture_no_memory(r);
    const unsigned char *pixels = r->pixels.data;
    int64_t              stride = r->shown_width * C;
    for (int64_t i = 0; i < y->to; i++) {
        fold_rows(r->rows.data, pixels + ty[i].from * stride + first * C, stride, (end - first) * C,
                  &ty[i]);
        fold_columns(r->rows.data, first, tx, x->to, (int)C, p, p->at + i * p->dy);
    }
    return true;
}

// ---- parts -------------------------------------------------------------------------------------

// The sizes between are rounded as torchvision rounds them.
tni_picture_part tni_picture_middle(int64_t W, int64_t H, int64_t resize, int64_t size)
{
    if (!resize) resize = size * 8 / 7;
    if (resize < size) resize = size;
    int64_t w = W < H ? resize : resize * W / H, h = W < H ? resize * H / W : resize;
    double  x = (double)W / (double)w, y = (double)H / (double)h;
    return (tni_picture_part){ .x         = nearbyint((double)(w - size) / 2) * x,
                               .y         = nearbyint((double)(h - size) / 2) * y,
                               .width     = (double)size * x,
                               .height    = (double)size * y,
                               .to_width  = size,
                               .to_height = size,
                               .margin    = 2 };
}

// Returns the smallest fraction at which a JPEG can be decoded for this part: its transform then
// gives fewer pixels, which takes less time. 3, 5, 6 and 7 eighths are possible too, but slower
// than all of it: no code of libjpeg-turbo is vectorized for them.
static int eighths_for(const tni_picture_reader *r, const tni_picture_part *p)
{
    int n = 8;
    if (r->kind != TNI_JPEG) return n;
    while (n > 1 && p->width * n / 16 >= p->margin * (double)p->to_width &&
           p->height * n / 16 >= p->margin * (double)p->to_height)
        n /= 2;
    return n;
}

// One axis of a part in the pixels as they are stored, of which `shown` of `stored` were decoded,
// at n eighths.
static axis stored_axis(double at, double length, bool mirrored, int64_t stored, int64_t shown,
                        int n, int64_t to)
{
    double start = mirrored ? (double)stored - at - length : at;
    return (axis){ start * n / 8, length * n / 8, shown, to };
}

// The part is folded in the order in which the picture is stored, and each number goes to where it
// is seen.
bool tni_picture_cut(tni_picture_reader *r, const tni_picture_part *p, int channels, float *to)
{
    turn    t = turn_of(r);
    int     n = eighths_for(r, p);
    int64_t W = p->to_width, H = p->to_height;
    if (!tni_picture_decode(r, channels, n)) return false;
    axis x = t.swap ? stored_axis(p->y, p->height, t.x, r->width, r->shown_width, n, H)
                    : stored_axis(p->x, p->width, t.x, r->width, r->shown_width, n, W);
    axis y = t.swap ? stored_axis(p->x, p->width, t.y, r->height, r->shown_height, n, W)
                    : stored_axis(p->y, p->height, t.y, r->height, r->shown_height, n, H);
    // Steps to the right and down in the result, and where its first element is, for x and y as
    // stored.
    int64_t right = p->flip ? -1 : 1, down = W;
    places  q = { .at = to + (p->flip ? W - 1 : 0), .plane = W * H };
    q.dx      = t.swap ? down : right;
    q.dy      = t.swap ? right : down;
    if (t.x) q.at += q.dx * (x.to - 1), q.dx = -q.dx;
    if (t.y) q.at += q.dy * (y.to - 1), q.dy = -q.dy;
    return resize(r, &x, &y, &q);
}
