// report.h: what a training run shows, for people: event files that TensorBoard reads.
//
// Part of tenon.h, which includes it.
#ifndef TENON_REPORT_H
#define TENON_REPORT_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

// ---- TensorBoard -------------------------------------------------------------------------------

typedef struct tn_tensorboard tn_tensorboard;  // an event file that is being written

typedef struct {
    // With continues, steps from purge_step on that earlier files of the folder have are hidden: a run that goes on from
    // a checkpoint writes them again.
    bool    continues;
    int64_t purge_step;
} tn_tensorboard_opts;
// Opens a new event file in a folder, which is made if it is missing: `tensorboard --logdir FOLDER` shows it. Each value is
// written at once. NULL on failure. It belongs to the context; tn_tensorboard_close is optional.
TN_API tn_tensorboard *tn_tensorboard_open(tn_ctx *cx, const char *folder, tn_tensorboard_opts o);
// Write the value of a tag, such as "train/loss", at a step: a number, kept as f32; the counts of a tensor's finite elements in
// 64 equal intervals; images, grey or RGB, joined as tn_image_grid does it. The last two wait for the tensor.
TN_API tn_status tn_tensorboard_scalar(tn_tensorboard *b, const char *tag, int64_t step, double v);
TN_API tn_status tn_tensorboard_histogram(tn_tensorboard *b, const char *tag, int64_t step,
                                          tn_tensor *x);
TN_API tn_status tn_tensorboard_image(tn_tensorboard *b, const char *tag, int64_t step,
                                      tn_tensor *x, tn_image_show_opts o);
// Closes the file. Does nothing for NULL.
TN_API void tn_tensorboard_close(tn_tensorboard *b);

#endif
