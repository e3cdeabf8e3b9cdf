// A report of a run while it is made: what its page and its comparison with another show.
#ifndef TNI_TRAIN_REPORT_PARTS_H
#define TNI_TRAIN_REPORT_PARTS_H

#include "base/json.h"
#include "tensor/context.h"

// One point of a curve stands for `stride` values: their mean, lowest and highest, at the last
// one's step.
typedef struct {
    int64_t step;
    double  mean, low, high;
} tni_report_point;

// A curve. When it has TNI_REPORT_POINTS points, pairs are merged, so that a run of any length has
// a page of a size that browsers show at once. Invariant: the last point has 1 .. stride values
// (`held`), all others stride of them.
enum { TNI_REPORT_POINTS = 4000 };
typedef struct {
    char             *name;
    tni_report_point *point;
    size_t            count, cap;
    int64_t           stride, held;
} tni_report_curve;

// A setting, which has a text, or a figure, which has a number.
typedef struct {
    char  *name, *text;
    double v;
} tni_report_pair;

typedef struct {
    tni_report_pair *pair;
    size_t           count, cap;
} tni_report_pairs;

// image: a PNG file as a data URL; NULL: the sample is a text.
typedef struct {
    char  *image, *text, *truth, *prediction;
    double chance;
} tni_report_sample;

// Texts and arrays are owned, in the context's heap.
struct tn_report {
    tni_owned          owned;  // first
    char              *title;
    tni_report_curve  *curve;
    size_t             curves, curve_cap;
    tni_report_pairs   settings, figures, machine;
    tni_report_sample *sample;
    size_t             samples, sample_cap;
    int64_t            classes;  // of the confusion matrix; 0: there is none
    int64_t           *counts;
    char             **names;  // of the classes
};

// Makes an empty one; NULL, reported by the op's name.
tn_report *tni_report_new(tn_ctx *cx, const char *op, const char *title);
// Add to a report, without looking at arguments. False when memory is out, which is reported by the
// op's name.
bool tni_report_add(tn_report *r, const char *op, const char *name, tni_report_point p,
                    int64_t values);
bool tni_report_set(tn_report *r, const char *op, tni_report_pairs *list, const char *name,
                    const char *text, double v);
bool tni_report_add_sample(tn_report *r, const char *op, const char *image,
                           tn_report_sample_opts o);
// Room for a matrix of classes, with zeros and no names.
bool tni_report_make_matrix(tn_report *r, const char *op, int64_t classes);
// Finds a curve, a pair; NULL if there is none.
tni_report_curve      *tni_report_find(const tn_report *r, const char *name);
const tni_report_pair *tni_report_pair_of(const tni_report_pairs *list, const char *name);

// Appends the report as a JSON object, with its samples or without.
void tni_report_json(const tn_report *r, tni_json_writer *w, bool samples);
// Writes a page of these data, whole or not at all; frees them.
tn_status tni_report_page(tn_ctx *cx, const char *op, const char *path, const char *title,
                          const char *note, tni_json_writer *data, const char *script);

#endif
