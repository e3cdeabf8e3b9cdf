// report.h: what a training run shows, for people: pages of its curves and samples, and event files
// that TensorBoard reads.
//
// Part of tenon.h, which includes it.
#ifndef TENON_REPORT_H
#define TENON_REPORT_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

// ---- reports -----------------------------------------------------------------------------------

typedef struct tn_report tn_report;  // a run of training, as its page shows it

// Makes an empty report. It belongs to the context; tn_report_close is optional.
TN_API tn_report *tn_report_open(tn_ctx *cx, const char *title);
// Reads the page that tn_report_write wrote, or the log of `tenon train --log`, to go on with it or
// to compare it. NULL on failure.
TN_API tn_report *tn_report_read(tn_ctx *cx, const char *path);
// Adds a value to a curve, "loss" or "test_loss", at a step; the steps of a curve rise. Of a curve
// with many values the page shows means, with the lowest and the highest; a curve or result with
// "accuracy" or "top5" in its name, from 0 to 1, as percent.
TN_API tn_status tn_report_scalar(tn_report *report, const char *name, int64_t step, double v);
// Removes the values after a step, and samples, matrix and results, for a run that goes on from
// there.
TN_API tn_status tn_report_rewind(tn_report *report, int64_t step);
// Set what is known by a name: a setting of the run, and a result. A later one of the same name
// replaces it.
TN_API tn_status tn_report_setting(tn_report *report, const char *name, const char *text);
TN_API tn_status tn_report_figure(tn_report *report, const char *name, double v);
typedef struct {
    const char *text;        // the input, if it is no picture
    const char *truth;       // NULL: not known
    const char *prediction;  // NULL: none
    double      chance;      // of the prediction, 0 .. 1; 0: not said
} tn_report_sample_opts;
// Adds a sample: a picture, grey or RGB, or (x NULL) a text, and what the network says of it. Waits
// for x.
TN_API tn_status tn_report_sample(tn_report *report, tn_tensor *x, tn_report_sample_opts o);
// Sets the confusion matrix: counts[i * classes + k] items of class i were taken for class k.
// names: of the classes; NULL: they are numbers.
TN_API tn_status tn_report_confusion(tn_report *report, int64_t classes, const int64_t *counts,
                                     const char *const *names);
// Writes the page: one file of HTML that asks for nothing from the network.
TN_API tn_status tn_report_write(tn_report *report, const char *path);
// Compares two runs, setting by setting, result by result, curve by curve: as a page, unless path
// is NULL, and as text, unless f is NULL.
TN_API tn_status tn_report_compare(tn_report *a, tn_report *b, const char *path, FILE *f);
// Frees it. Does nothing for NULL.
TN_API void tn_report_close(tn_report *report);

// ---- TensorBoard -------------------------------------------------------------------------------

typedef struct tn_tensorboard tn_tensorboard;  // an event file that is being written

typedef struct {
    // With continues, steps from purge_step on that earlier files of the folder have are hidden: a
    // run that goes on from a checkpoint writes them again.
    bool    continues;
    int64_t purge_step;
} tn_tensorboard_opts;
// Opens a new event file in a folder, which is made if it is missing: `tensorboard --logdir FOLDER`
// shows it. Each value is written at once. NULL on failure. It belongs to the context;
// tn_tensorboard_close is optional.
TN_API tn_tensorboard *tn_tensorboard_open(tn_ctx *cx, const char *folder, tn_tensorboard_opts o);
// Write the value of a tag, such as "train/loss", at a step: a number, kept as f32; the counts of a
// tensor's finite elements in 64 equal intervals; images, grey or RGB, joined as tn_image_grid does
// it. The last two wait for the tensor.
TN_API tn_status tn_tensorboard_scalar(tn_tensorboard *b, const char *tag, int64_t step, double v);
TN_API tn_status tn_tensorboard_histogram(tn_tensorboard *b, const char *tag, int64_t step,
                                          tn_tensor *x);
TN_API tn_status tn_tensorboard_image(tn_tensorboard *b, const char *tag, int64_t step,
                                      tn_tensor *x, tn_image_show_opts o);
// Closes the file. Does nothing for NULL.
TN_API void tn_tensorboard_close(tn_tensorboard *b);

#endif
