// Boxes: which of those that overlap are kept.
//
//   scores  0.9   0.8   0.7         boxes 0 and 1 share 0.6 of their area, 2 lies apart
//   kept    0           2           with a limit of 0.5
//
// Detectors ask this of tens of thousands of boxes, those of different classes moved apart, so that
// most pairs do not touch. Boxes are sorted once, and each is compared with those that are kept,
// whose coordinates lie in rows of their own: vectors compare several at once.
#include "onnx/onnx_ops.h"

#include <math.h>
#include <stdlib.h>

// One class of one picture; kept: the places of the boxes that are kept, y1 to area: of these.
typedef struct {
    const float *boxes, *scores;
    bool         center;
    float        iou;
    int64_t     *kept, count;
    float       *y1, *x1, *y2, *x2, *area;
} chosen;

typedef struct {
    float y1, x1, y2, x2, area;
} box;

// A box by two corners, in either order, or by its center and sizes.
static box box_of(const float *b, bool center)
{
    box r = { fminf(b[0], b[2]), fminf(b[1], b[3]), fmaxf(b[0], b[2]), fmaxf(b[1], b[3]), 0 };
    if (center) r = (box){ b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2, 0 };
    r.area = (r.y2 - r.y1) * (r.x2 - r.x1);
    return r;
}

// A candidate and its score, to be sorted.
typedef struct {
    float   score;
    int64_t at;
} candidate;

// The higher score first; of equal ones the box that comes first.
static int by_score(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

// Whether a kept box from place `from` to `to` shares more than the limit: the area of what two
// boxes share over that of what they cover together. No branch depends on a box, so that the loop
// becomes vectors.
static bool touches(const chosen *c, box b, int64_t from, int64_t to)
{
    int hit = 0;
    for (int64_t i = from; i < to; i++) {
        float h    = (b.y2 < c->y2[i] ? b.y2 : c->y2[i]) - (b.y1 > c->y1[i] ? b.y1 : c->y1[i]);
        float w    = (b.x2 < c->x2[i] ? b.x2 : c->x2[i]) - (b.x1 > c->x1[i] ? b.x1 : c->x1[i]);
        float both = h * w, all = b.area + c->area[i] - both;
        hit |= (h > 0) & (w > 0) & (all > 0) & (both / all > c->iou);
    }
    return hit != 0;
}

// Blocks end the search early: a box that is dropped often overlaps one of the best.
static bool is_covered(const chosen *c, box b)
{
    enum { BLOCK = 64 };
    bool hit = false;
    for (int64_t i = 0; i < c->count && !hit; i += BLOCK)
        hit = touches(c, b, i, i + BLOCK < c->count ? i + BLOCK : c->count);
    return hit;
}

// Keeps at most `most` of the n boxes whose scores are above `least`.
static void choose(chosen *c, candidate *list, int64_t n, int64_t most, float least)
{
    int64_t live = 0;
    for (int64_t i = 0; i < n; i++)
        if (c->scores[i] > least) list[live++] = (candidate){ c->scores[i], i };
    qsort(list, (size_t)live, sizeof *list, by_score);
    c->count = 0;
    for (int64_t i = 0; i < live && c->count < most; i++) {
        box b = box_of(c->boxes + 4 * list[i].at, c->center);
        if (is_covered(c, b)) continue;
        int64_t k  = c->count++;
        c->kept[k] = list[i].at;
        c->y1[k] = b.y1, c->x1[k] = b.x1, c->y2[k] = b.y2, c->x2[k] = b.x2, c->area[k] = b.area;
    }
}

// Boxes and scores are read, and chosen on the host.
// A box is kept if its score is above the threshold and no better box of its class that is kept
// overlaps it by more than the limit. Rows of the result are (batch, class, box), classes one after
// the other. Without a number of boxes there are none.
bool tni_onnx_non_max_suppression(tni_onnx_call *c)
{
    tn_tensor *boxes = tni_onnx_in(c, 0), *scores = tni_onnx_in(c, 1);
    int64_t    most = 0;
    double     iou = 0, least = -__builtin_inf();
    int        n;
    bool       center = tni_onnx_attr_int(c, "center_point_box", 0) != 0;
    tni_heap  *h      = &c->r->cx->heap;
    if (!boxes || !scores || (tni_onnx_has(c, 2) && !tni_onnx_ints(c, 2, 1, &most, &n)) ||
        (tni_onnx_has(c, 3) && !tni_onnx_reals(c, 3, 1, &iou, &n)) ||
        (tni_onnx_has(c, 4) && !tni_onnx_reals(c, 4, 1, &least, &n)))
        return false;
    if (tn_rank(boxes) != 3 || tn_rank(scores) != 3 || tn_size(boxes, 2) != 4 ||
        tn_size(scores, 2) != tn_size(boxes, 1) || tn_size(scores, 0) != tn_size(boxes, 0))
        return tni_onnx_refuse(c, "boxes %s and scores %s do not fit", tni_shape_of(boxes).s,
                               tni_shape_of(scores).s);
    int64_t N = tn_size(boxes, 0), B = tn_size(boxes, 1), C = tn_size(scores, 1), rows = 0;
    if (most > B) most = B;
    if (most < 0) most = 0;
    float *b        = tni_alloc(h, (size_t)(N * B) * 16 + 1),
          *s        = tni_alloc(h, (size_t)(N * C * B) * 4 + 1),
          *row      = tni_alloc(h, (size_t)most * 5 * sizeof *row + 1);
    candidate *list = tni_alloc(h, (size_t)(B + 1) * sizeof *list);
    int64_t   *kept = tni_alloc(h, (size_t)(most + 1) * 8),
            *out    = tni_alloc(h, (size_t)(N * C * most) * 24 + 1);
    bool ok         = b && s && row && list && kept && out &&
              tn_read(boxes, TN_F32, b, N * B * 4) == TN_OK &&
              tn_read(scores, TN_F32, s, N * C * B) == TN_OK;
    for (int64_t i = 0; ok && i < N; i++)
        for (int64_t k = 0; k < C; k++) {
            chosen t = {
                b + i * B * 4, s + (i * C + k) * B, center,         (float)iou,    kept, 0, row,
                row + most,    row + 2 * most,      row + 3 * most, row + 4 * most
            };
            choose(&t, list, B, most, (float)least);
            for (int64_t j = 0; j < t.count; j++, rows++)
                out[3 * rows] = i, out[3 * rows + 1] = k, out[3 * rows + 2] = kept[j];
        }
    tn_tensor *y = ok ? tn_from(c->r->host, TN_I64, TN_SHAPE(rows, 3), out) : NULL;
    tni_free(h, b);
    tni_free(h, s);
    tni_free(h, row);
    tni_free(h, list);
    tni_free(h, kept);
    tni_free(h, out);
    return tni_onnx_out(c, 0, y);
}
