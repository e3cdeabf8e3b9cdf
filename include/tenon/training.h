// training.h: everything around a network. Optimizers, datasets, files, checkpoints.
//
// Part of tenon.h, which includes it.
#ifndef TENON_TRAINING_H
#define TENON_TRAINING_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

// ---- optimizers --------------------------------------------------------------------------------

// A schedule is the factor of the learning rate as a function of t, the number of updates done.
// During the warm-up, t < warmup, it is (t + 1) / warmup. Afterwards:
//
//   constant  1
//   step      factor to the power of t / every, rounded down; at least floor
//   cosine    half a cosine from 1 at warmup down to floor at total; then floor
//   linear    a line from 1 at warmup down to floor at total; then floor
//   exponential  factor to the power of t - warmup; at least floor
//   one cycle  half a cosine up from 1/25 at 0 to 1 at warmup, then half a cosine down to 1/250,000 at
//             total - 1, or to floor if that is above it; then that. A warmup of 0 is three tenths of total
//   restarts  half a cosine from 1 down to floor, over `every` updates after the warm-up; then again from 1, each
//             time over `factor` times as many
typedef enum {
    TN_LR_CONSTANT,
    TN_LR_STEP,
    TN_LR_COSINE,
    TN_LR_LINEAR,
    TN_LR_EXPONENTIAL,
    TN_LR_ONE_CYCLE,
    TN_LR_RESTARTS
} tn_lr_kind;
typedef struct {
    tn_lr_kind kind;
    int64_t    warmup, total;  // in updates; total includes the warm-up and must exceed it
    double     floor;          // the lowest factor after the warm-up, 0 .. 1
    int64_t    every;          // step, restarts: updates between two steps or restarts, above 0
    double     factor;         // step, exponential, restarts; 0: 0.1, 0.1, 1
} tn_schedule;

// Update rules and defaults are PyTorch's. Every update first clips the gradients by their common
// norm, then that of each parameter by its own (clip_each), then each element by value; 0 means
// off. With accumulate k, every k-th tn_step updates, by the averaged gradient.
//
// The optimizer state of f16 and bf16 parameters is f32. In addition, the optimizer keeps an f32
// master copy of each such parameter and updates that, so that steps below the parameter's
// precision add up; the parameter is the rounded master. Elements that the program writes itself
// (tn_assign, tn_load) are copied to the master at the next update. no_master keeps no master
// copies, which saves 4 bytes per element; each update is then rounded. The program decides this,
// not a checkpoint: master copies in a file are then skipped.
//
// loss_scale above 0, such as 65536, is for training under tn_autocast(cx, TN_F16), whose gradients
// would underflow: tn_step multiplies the loss by it and divides the gradients by it again, before
// they are clipped. An update whose gradients are not finite is skipped: parameters and state stay
// as they are, and the scale is multiplied by scale_backoff. After scale_interval updates without
// that it is multiplied by scale_growth. All of it happens on the device; nothing waits. A skipped
// update counts for the schedule and for tn_optim_updates, not for the rule (Adam's correction of
// its moments), as in PyTorch. Checkpoints keep scale and counts.
//
// ema above 0, such as 0.999, keeps a running average of each parameter, in f32 or wider: it begins
// as the parameter, and every update makes it ema * average + (1 - ema) * parameter, in the same
// pass over memory. tn_optim_average_to gives the averages to a network.
//
// All optimizers have these options.
#define TN_OPTIM_OPTIONS                                                               \
    double      clip_norm, clip_value; /* 0: off */                                    \
    int         accumulate;            /* 0: 1 */                                      \
    tn_schedule schedule;                                                              \
    bool        no_master;                               /* f16 and bf16 parameters */ \
    double      loss_scale, scale_growth, scale_backoff; /* 0: off, 2, 0.5 */          \
    int64_t     scale_interval;                          /* 0: 2000 */                 \
    double      ema;                                     /* 0: no running average */   \
    double      clip_each                                /* 0: off */
typedef struct {
    double lr;  // 0: 1e-3
    double momentum, dampening, weight_decay;
    bool   nesterov;
    TN_OPTIM_OPTIONS;
} tn_sgd_opts;
typedef struct {
    double lr, beta1, beta2, eps;  // 0: 1e-3, 0.9, 0.999, 1e-8
    double weight_decay;           // 0: adam 0, adamw 1e-2
    TN_OPTIM_OPTIONS;
} tn_adamw_opts;
typedef tn_adamw_opts tn_adam_opts;
typedef struct {
    double lr, alpha, eps;  // 0: 1e-2, 0.99, 1e-8
    double momentum, weight_decay;
    bool   centered;
    TN_OPTIM_OPTIONS;
} tn_rmsprop_opts;
typedef struct {
    double lr, lr_decay, initial_accumulator_value, eps;  // 0: 1e-2, 0, 0, 1e-10
    double weight_decay;
    TN_OPTIM_OPTIONS;
} tn_adagrad_opts;
typedef struct {
    double lr, rho, eps;  // 0: 1, 0.9, 1e-6
    double weight_decay;
    TN_OPTIM_OPTIONS;
} tn_adadelta_opts;
// NAdam has no loss_scale: it counts updates on the host, and cannot skip one.
typedef struct {
    double lr, beta1, beta2, eps, momentum_decay;  // 0: 2e-3, 0.9, 0.999, 1e-8, 4e-3
    double weight_decay;
    TN_OPTIM_OPTIONS;
} tn_nadam_opts;
typedef tn_adamw_opts tn_lamb_opts;  // eps 0: 1e-6
typedef tn_adamw_opts tn_lion_opts;  // lr, beta2, weight_decay 0: 1e-4, 0.99, 0; eps is not used
// Muon is for matrices, and for weights of convolutions as matrices of (out, rest). Parameters with
// fewer axes, and those whose names match `adamw` ("*wte*,*lm_head*"), are updated by AdamW with
// lr, beta1, beta2 and eps. The learning rate of a matrix is multiplied by sqrt(max(1, rows /
// columns)), or, with match_rms, by 0.2 * sqrt(max(rows, columns)), which lets learning rates of
// AdamW fit both.
typedef struct {
    double      lr, momentum, weight_decay;  // 0: 1e-3, 0.95, 0.1
    double      beta1, beta2, eps;           // 0: 0.9, 0.999, 1e-8
    const char *adamw;                       // NULL: none
    bool        no_nesterov, match_rms;
    TN_OPTIM_OPTIONS;
} tn_muon_opts;
typedef struct {
    double lr;                                // 0: 1
    int    max_iter, max_eval, history_size;  // 0: 20, max_iter * 5 / 4, 100
    double tolerance_grad, tolerance_change;  // 0: 1e-7, 1e-9
    bool   strong_wolfe;                      // a line search; without it each move has length lr
} tn_lbfgs_opts;
// Make an optimizer for the parameters that net has now and that are not frozen; tied ones count
// once. The optimizer keeps them alive, also if net is freed.
TN_API tn_optim *tn_sgd(tn_layer *net, tn_sgd_opts o);
TN_API tn_optim *tn_adam(tn_layer *net, tn_adam_opts o);
TN_API tn_optim *tn_adamw(tn_layer *net, tn_adamw_opts o);
TN_API tn_optim *tn_rmsprop(tn_layer *net, tn_rmsprop_opts o);
TN_API tn_optim *tn_adagrad(tn_layer *net, tn_adagrad_opts o);
// L-BFGS, whose steps are tn_minimize's alone. It has no groups, decay, clipping or master copies,
// and checkpoints do not have its history.
TN_API tn_optim *tn_lbfgs(tn_layer *net, tn_lbfgs_opts o);
TN_API tn_optim *tn_adadelta(tn_layer *net, tn_adadelta_opts o);
TN_API tn_optim *tn_nadam(tn_layer *net, tn_nadam_opts o);
TN_API tn_optim *tn_lamb(tn_layer *net, tn_lamb_opts o);
TN_API tn_optim *tn_lion(tn_layer *net, tn_lion_opts o);
TN_API tn_optim *tn_muon(tn_layer *net, tn_muon_opts o);
// Scales the learning rate of all parameters whose name matches a pattern ("*.bias"; several are
// separated by commas) by lr_scale, and sets their weight decay, where 0 means 0. A later group
// overrides an earlier one.
TN_API tn_status tn_optim_add_group(tn_optim *o, const char *names, double lr_scale,
                                    double weight_decay);
// Runs a training step: computes the gradients of loss for o's parameters only, clips them, updates
// the parameters, clears the gradients, and launches all pending work. It is a step boundary, like
// tn_eval. If it fails, parameters, state and counts are as before, and o's gradients are cleared.
// A loss that cannot be used (NULL, not one element, independent of o's parameters) is refused
// before that, and changes nothing.
TN_API tn_status tn_step(tn_optim *o, tn_tensor *loss);
// A function that computes a loss of o's parameters as they are now, again each time.
typedef tn_tensor *tn_loss_fn(void *user);
// Runs a training step of a function: L-BFGS calls it several times and waits for each value; other
// optimizers do tn_step of what one call returns. A backward pass that f makes itself counts as the
// gradient. Writes the first loss to *loss, unless it is NULL.
TN_API tn_status tn_minimize(tn_optim *o, tn_loss_fn *f, void *user, double *loss);
// Records an update by the stored gradients. Clears and launches nothing. Parameters without
// gradient do not change.
TN_API tn_status tn_optim_step(tn_optim *o);
// Clears the gradients of o's parameters.
TN_API void tn_optim_zero_grad(tn_optim *o);
// Scales the gradients so that their common norm is at most max. Returns the norm before, a tensor
// that is not computed yet.
TN_API tn_tensor *tn_optim_clip_norm(tn_optim *o, double max);
// Limits every element of the gradients to -max .. max.
TN_API tn_status tn_optim_clip_value(tn_optim *o, double max);
// Scales the gradient of each parameter so that its own norm is at most max.
TN_API tn_status tn_optim_clip_each(tn_optim *o, double max);
// Returns the norm of all gradients that the last update had, averaged over accumulated steps,
// before clipping; NaN before the first. Updates keep it from the first call on, which costs them a
// sum over all gradients.
TN_API tn_tensor *tn_optim_grad_norm(tn_optim *o);
// Returns the learning rate of the next update, including the schedule.
TN_API_PLAIN double tn_optim_lr(const tn_optim *o);
// Sets the learning rate that the schedule multiplies.
TN_API void tn_optim_set_lr(tn_optim *o, double lr);
// Sets a number of the rule from the next update on: "momentum" or "dampening" of SGD, "beta1",
// "beta2" or "eps" of Adam, AdamW, NAdam and LAMB, "beta1" or "beta2" of Lion, "alpha", "eps" or
// "momentum" of RMSprop, "lr_decay" or "eps" of Adagrad, "rho" or "eps" of Adadelta, "momentum",
// "beta1" or "beta2" of Muon. 0 means 0. State is kept.
TN_API tn_status tn_optim_set(tn_optim *o, const char *setting, double value);
// Replaces the schedule and keeps the number of updates done, for example to make a run longer.
TN_API tn_status tn_optim_set_schedule(tn_optim *o, tn_schedule s);
// Gives the parameters of net the running averages (option ema) of o's parameters with the same
// names; before the first update, o's parameters. net is usually another network of the same kind,
// for evaluating and saving: buffers, as batch norm's, are not changed. All of net's parameters
// must be among o's, with their shapes.
TN_API tn_status tn_optim_average_to(tn_optim *o, tn_layer *net);
// Lowers the learning rate when a value no longer improves (PyTorch's ReduceLROnPlateau). Begins as
// the settings, with zeros for the rest, which belongs to tn_plateau_step.
typedef struct {
    double  factor;  // of the learning rate; 0: 0.1
    int64_t patience,
        cooldown;  // values without improvement before it falls, 0: 10; that do not count afterwards
    double  threshold;  // the share by which a value must be better; 0: 1e-4
    double  least;      // the lowest learning rate
    bool    rises;      // higher values are better
    double  best;
    bool    seen;
    int64_t bad, resting;
} tn_plateau;
// Takes the next value, for example the loss of an epoch's evaluation. Returns whether the learning
// rate was lowered.
TN_API bool tn_plateau_step(tn_plateau *p, tn_optim *o, double value);
// Returns the number of updates done.
TN_API_PLAIN int64_t tn_optim_updates(const tn_optim *o);
// Returns the loss scale of the next update, 1 without loss scaling. For a backward pass without
// tn_step: tn_backward(loss, tn_optim_loss_scale(o)), then tn_optim_step(o).
TN_API tn_tensor *tn_optim_loss_scale(tn_optim *o);
// Returns how many updates loss scaling has skipped. Waits for the device.
TN_API int64_t tn_optim_skipped(tn_optim *o);
// Frees the optimizer and its state. Does nothing for NULL.
TN_API void tn_optim_free(tn_optim *o);

// ---- data --------------------------------------------------------------------------------------

enum { TN_MAX_FIELDS = 8 };  // fields of a batch: x, y and more

// A dataset returns batches without end, its items in an order shuffled by (seed, epoch). A loader
// thread prepares them ahead.
typedef struct {
    tn_tensor *x, *y, *more[TN_MAX_FIELDS - 2];  // the fields, each (items, ...)
    int64_t    count;                            // number of items
    int64_t    epoch, index;                     // the epoch, and the place of the first item in it
    bool       last;                             // whether it ends the epoch
    double     weight;                           // 1; see tn_data_shard
} tn_batch;
// Returns the next batch of n items; the last one of an epoch may be shorter. All fields are NULL
// on failure; a batch with an item that failed is skipped.
TN_API tn_batch tn_next(tn_data *d, int64_t n);

typedef struct {
    int64_t  count;  // number of images; 0: 60,000
    uint64_t seed;
    bool     test;  // other images than those for training
} tn_digits_opts;
// Opens a dataset of drawn digits, generated on demand: x (B, 1, 28, 28) in [0, 1], y (B).
TN_API tn_data *tn_digits(tn_ctx *cx, tn_digits_opts o);
// Opens MNIST, or a dataset in its format, in a folder: train-* or (test) t10k-*, plain or .gz.
TN_API tn_data *tn_idx(tn_ctx *cx, const char *dir, bool test);
TN_API tn_data *tn_idx_files(tn_ctx *cx, const char *images, const char *labels);
// Reads the images of one IDX file, plain or .gz: u8 (N, H, W) or (N, C, H, W).
TN_API tn_tensor *tn_idx_read(tn_ctx *cx, const char *path);
typedef struct {
    int64_t size;         // of a square from the middle; 0: one image as a whole, in a folder 224
    int64_t resize;       // the shorter side before that; 0: 8/7 of the size
    int     channels;     // 1 or 3; 0: those of the image, in a folder 3
    int64_t most_pixels;  // larger images are refused; 0: 100 million
    int     threads;      // that read a folder; 0: those of the context
    bool    strict;       // an image of a folder that cannot be read is an error
} tn_image_opts;
// Reads an image: f32 (C, H, W) in [0, 1]. JPEG and PNG are decoded by libturbojpeg and libpng,
// which are found at run time; grey, palettes, 16 bits, CMYK and a camera's turn (EXIF) are known.
// PGM (C is
// 1) and PPM (C is 3) may be .gz.
TN_API tn_tensor *tn_image_read(tn_ctx *cx, const char *path);
TN_API tn_tensor *tn_image_read_with(tn_ctx *cx, const char *path, tn_image_opts o);
typedef enum {
    TN_IMAGE_AUTO,     // colours in a terminal that has them, otherwise dots, otherwise shades
    TN_IMAGE_COLOURS,  // a character is 1 x 2 pixels, in 24-bit colours, in UTF-8
    TN_IMAGE_DOTS,  // 2 x 4 pixels: braille, a dot for a bright one, in UTF-8; in other locales shades
    TN_IMAGE_SHADES  // 1 x 2 pixels, in ASCII
} tn_image_style;
typedef struct {
    int64_t columns;  // images in a row; 0: 8, of tn_image_print as many as fit
    int64_t padding;  // black pixels around each of several images; 0: 2, TN_NO_PADDING: none
    double  lo,
        hi;  // what is black and what is white, if they differ; else 0 and 1, of u8 0 and 255
    tn_image_style style;  // of tn_image_print
    int            width;  // of tn_image_print: characters in a line; 0: of the terminal, or 80
} tn_image_show_opts;
// Joins images (N, C, H, W) to one, (C, rows, columns), row by row; a single one, (C, H, W) or (H,
// W), stays as it is. f32, 0 is black and 1 is white. torchvision's make_grid.
TN_API tn_tensor *tn_image_grid(tn_tensor *x, tn_image_show_opts o);
// Write images, grey or RGB, joined in the same way, as a PNG file with 8 bits for each channel.
TN_API tn_status tn_image_write(tn_tensor *x, const char *path);
TN_API tn_status tn_image_write_with(tn_tensor *x, const char *path, tn_image_show_opts o);
// Print them with characters, smaller if a line has less room than they are wide.
TN_API tn_status tn_image_print(tn_tensor *x, FILE *f);
TN_API tn_status tn_image_print_with(tn_tensor *x, FILE *f, tn_image_show_opts o);
// Opens a folder that has a folder of JPEG and PNG files for each class: x (B, C, size, size), y
// (B). Classes are in the order of their names. Files are read when they are needed, by several
// threads. One that cannot be read is skipped: the next item comes in its place,
// tn_data_info(d).skipped counts it, and tn_data_skipped(d, i) says which it is and why.
TN_API tn_data *tn_images(tn_ctx *cx, const char *dir, tn_image_opts o);
// Opens CIFAR-10 in a folder, data_batch_1.bin ... or (test) test_batch.bin: x (B, 3, 32, 32), y
// (B).
TN_API tn_data *tn_cifar10(tn_ctx *cx, const char *dir, bool test);
// How to treat missing cells of a table: empty ones, and those with one of the missing_words.
typedef enum {
    TN_MISSING_ERROR,     // in a column of numbers an error, in one of words an ordinary word
    TN_MISSING_MEAN,      // numbers get the mean of their column; in words, missing is a category
    TN_MISSING_CATEGORY,  // the same, and each column of numbers is followed by one that is 1 for
                          // missing cells, otherwise 0
    TN_MISSING_SKIP       // the row is skipped
} tn_missing;
typedef struct {
    const char *target;     // the column to predict, by name or by number from 0; NULL: the last
    char        separator;  // 0: detected
    bool        no_header;  // the first line is a row; without this, a header of numbers is refused
    const char *schema;     // from tn_data_schema: the columns and categories of another file
    bool        no_target;  // the dataset has x only; a file may lack the target of its schema
    tn_missing  missing;    // a row without its target is skipped, except for TN_MISSING_ERROR
    const char *missing_words;  // separated by commas, in any case; NULL: "NA,NaN,null,?"
    // The means that fill missing cells leave out the rows that tn_data_split(d, held_out,
    // split_seed) will take, so that nothing of a test set enters the training. 0: all rows count.
    double   held_out;
    uint64_t split_seed;
} tn_csv_opts;
// Opens a table: x (B, columns) f32, with numbers as they are and categories one-hot; y (B) i64 for
// categories, or (B, 1) f32 for numbers. A target of whole numbers counts as categories if it has
// at most 20 different ones, with at least five rows each on average. The file may be gzip. The
// means that fill missing cells are part of the schema.
TN_API tn_data *tn_csv(tn_ctx *cx, const char *path, tn_csv_opts o);
typedef struct {
    int64_t       length;     // tokens of a window; 0: 128
    tn_tokenizer *tokenizer;  // NULL: tokens are bytes
    tn_tokenizer *bpe;        // its old spelling
} tn_text_opts;
// Opens a text as windows of tokens: x (B, length) i64, and y, which is x one token later.
TN_API tn_data *tn_text(tn_ctx *cx, const char *path, tn_text_opts o);
// Makes a dataset of the first axis of n tensors (x, y, ...), which are copied. A y with one
// integer per item, none negative, counts as classes up to the largest.
TN_API tn_data *tn_arrays(tn_ctx *cx, int n, tn_tensor *const *fields);
// A dataset of the user's own. get fills dst[f] for every field f of item i. It is called on the
// loader thread, one call at a time, makes no tn_ calls, and returns nonzero on failure.
typedef struct {
    int64_t  count;                 // number of items
    int      fields;                // number of fields
    tn_array field[TN_MAX_FIELDS];  // dtype and shape of one item of each field
    void    *user;                  // passed to get
    int (*get)(void *user, int64_t i, void *const *dst);
    int64_t            classes;      // number of classes of y, field 1; 0: y is not a class
    const char *const *class_names;  // one for each class, copied; NULL: none
} tn_dataset_def;
TN_API tn_data *tn_dataset(tn_ctx *cx, tn_dataset_def def);

typedef struct {
    int64_t  count;                 // number of items
    int      fields;                // number of fields of a batch
    tn_array field[TN_MAX_FIELDS];  // dtype and shape of one item of each field
    int64_t  classes;               // number of classes of y; 0: y is not a class
    int64_t  skipped;  // rows of a table that were skipped for missing cells; images, so far
} tn_data_desc;
// Returns facts of a dataset.
TN_API_PLAIN tn_data_desc tn_data_info(const tn_data *d);
// Returns the number of items.
TN_API_PLAIN int64_t tn_data_count(const tn_data *d);
// Returns the number of batches of n items in an epoch.
TN_API_PLAIN int64_t tn_data_batches(const tn_data *d, int64_t n);
// Returns the columns and categories of a table as JSON, for tn_csv_opts.schema; "" if there are
// none.
TN_API_PLAIN const char *tn_data_schema(const tn_data *d);
// Returns the name of class i of y, or NULL if it has none.
TN_API_PLAIN const char *tn_data_class_name(const tn_data *d, int64_t i);
// Returns the row of its table that item i is, from 0, where skipped rows count; i if the dataset
// is not a table. -1 after the last.
TN_API_PLAIN int64_t tn_data_row(const tn_data *d, int64_t i);
// Returns the path of the i-th image that was skipped so far, and why; NULL after the last of those
// that are kept, at most 64.
TN_API_PLAIN const char *tn_data_skipped(const tn_data *d, int64_t i);
// Turns shuffling by a seed on or off. It is on by default, with the context's seed.
TN_API tn_status tn_data_shuffle(tn_data *d, bool on, uint64_t seed);
// Leaves out the last batch of an epoch if it is short, or not (the default).
TN_API tn_status tn_data_drop_last(tn_data *d, bool on);
// Has tn_next return the part of each batch that belongs to one of several ranks:
// tn_data_shard(data, tn_dist_rank(d), tn_dist_size(d)). The batches, their number and the cursor
// are those of one process, so a run can go on with another number of ranks. If a batch cannot be
// divided equally, the first ranks get an item more, and `weight` is this rank's number of items in
// parts of the mean: the mean over ranks of losses that are multiplied by it is the loss of the
// whole batch. A rest of an epoch with fewer items than ranks is left out.
TN_API tn_status tn_data_shard(tn_data *d, int rank, int size);
// Moves a fraction of the items, chosen by the seed, from d to a new dataset with settings of its
// own. Both start at epoch 0.
TN_API tn_data *tn_data_split(tn_data *d, double fraction, uint64_t seed);
typedef struct {
    int  shift;  // move by up to this many pixels; edges are filled with 0
    int  crop;   // pad by this many pixels, then crop to the old size at a random place
    bool flip;   // mirror left to right, half of the time
    // Of tn_images: instead of the middle, a random part of an image, resized: of `area` (0: 0.08)
    // to 1 of its area, with sides of 3 : 4 to 4 : 3.
    bool   resized_crop;
    double area;
    // Factors of 1 - v to 1 + v, and a turn of the hue by up to v of a circle (at most 0.5); in
    // this order.
    double brightness, contrast, saturation, hue;
    // Each image is mixed with the one before it in the batch, by a weight from Beta(mixup, mixup),
    // at most 1; y becomes f32 (B, classes), the weights of the classes, for tn_cross_entropy. 0:
    // not.
    double mixup;
} tn_augment_opts;
// Changes images, x f32 (C, H, W) in [0, 1], at random, by (seed, epoch, item). Shift and crop add
// up.
TN_API tn_status tn_data_augment(tn_data *d, tn_augment_opts o);
// The position of a dataset: the next batch to return.
typedef struct {
    uint64_t seed;
    int64_t  epoch, index;  // up to 2^62 - 1, and up to the last item
} tn_cursor;
// Returns the position.
TN_API_PLAIN tn_cursor tn_data_cursor(const tn_data *d);
// Sets the position.
TN_API tn_status tn_data_seek(tn_data *d, tn_cursor c);
// Returns to the start of epoch 0.
TN_API tn_status tn_data_rewind(tn_data *d);
// Frees the dataset and its loader. Does nothing for NULL.
TN_API void tn_data_free(tn_data *d);

// Opens a tokenizer: path is a tokenizer.json of Hugging Face with byte-pair encoding (GPT-2's,
// Llama's, Qwen's, SentencePiece's kind), or a folder that has one, or that has GPT-2's two files:
// vocab.bpe and encoder.json, also named merges.txt and vocab.json. A part of the file that is not
// supported is an error that names it; its truncation and padding are not applied. The tokenizer
// belongs to the context.
TN_API tn_tokenizer *tn_tokenizer_open(tn_ctx *cx, const char *path);
// The same for GPT-2's two files by name.
TN_API tn_tokenizer *tn_tokenizer_gpt2(tn_ctx *cx, const char *vocab, const char *encoder);
// Returns the number of tokens: one above the highest number of a token.
TN_API_PLAIN int64_t tn_tokenizer_count(const tn_tokenizer *t);
typedef struct {
    bool add_special;  // the tokens that the file puts around a text, such as <s>
    bool plain;        // special tokens in the text are not recognized, but encoded as any text
} tn_encode_opts;
// Writes the tokens of a text to ids, at most room of them. Returns the number of tokens of the
// text, which may exceed room; -1 on error. Bytes that are not UTF-8 are kept as far as the
// tokenizer has tokens for bytes.
TN_API int64_t tn_tokenizer_encode(tn_tokenizer *t, const char *text, int64_t bytes, int64_t *ids,
                                   int64_t room);
TN_API int64_t tn_tokenizer_encode_with(tn_tokenizer *t, const char *text, int64_t bytes,
                                        int64_t *ids, int64_t room, tn_encode_opts o);
// Writes the text of n tokens, at most room bytes, without a final 0. Returns the number of its
// bytes, which may exceed room; -1 on error. Tokens may hold a part of a character, so the text is
// UTF-8 only if they are complete.
TN_API int64_t tn_tokenizer_decode(tn_tokenizer *t, const int64_t *ids, int64_t n, char *text,
                                   int64_t room);
// The text of tokens that come one by one. Begins as zeros; the start of a text is not like its
// rest, so the tokens of a prompt go through it too.
typedef struct {
    int64_t tokens;    // so far
    int     stripped;  // characters at the start
    int     bytes;     // of rest
    char    rest[4];   // a character whose other bytes are in the tokens to come
} tn_token_stream;
// Writes what the next token adds to the text, as whole characters, at most room bytes. Returns the
// number of their bytes, -1 on error. A room of tn_tokenizer_longest is always enough; if there is
// less and it returns more, the stream is as before. Token -1 ends the text: what is left of a
// character comes as it is.
TN_API int64_t tn_tokenizer_stream(tn_tokenizer *t, tn_token_stream *s, int64_t id, char *text,
                                   int64_t room);
TN_API_PLAIN int64_t tn_tokenizer_longest(const tn_tokenizer *t);
// Returns a token as its file spells it; NULL if no token has this number.
TN_API const char *tn_tokenizer_token(tn_tokenizer *t, int64_t id);
// Returns the number of a token as its file spells it; -1 if there is none.
TN_API int64_t tn_tokenizer_id(tn_tokenizer *t, const char *token);
// Returns whether a token is special: not text, but a mark such as <s>.
TN_API bool tn_tokenizer_is_special(tn_tokenizer *t, int64_t id);
// Frees the tokenizer. Does nothing for NULL.
TN_API void tn_tokenizer_free(tn_tokenizer *t);

// ---- files -------------------------------------------------------------------------------------

// Opens a safetensors file, the index.json of several, or an npy file (one tensor, named "").
// Another JSON file has no tensors: its values are metadata, "rope_scaling.factor" for one in an
// object.
TN_API tn_file *tn_file_open(tn_ctx *cx, const char *path);
// Returns the number of tensors in the file.
TN_API_PLAIN int tn_file_count(const tn_file *f);
typedef struct {
    const char *name;   // NULL after the last
    const char *dtype;  // as the file spells it
    int         rank;
    int64_t     size[TN_MAX_RANK];
    int64_t     bytes;
} tn_file_desc;
// Return facts of tensor i, and its name alone; NULL after the last.
TN_API_PLAIN tn_file_desc tn_file_info(const tn_file *f, int i);
TN_API_PLAIN const char  *tn_file_name(const tn_file *f, int i);
// Reads the tensor with this name.
TN_API tn_tensor *tn_file_tensor(tn_file *f, const char *name);
// Returns the metadata of a key, or NULL if there is none.
TN_API_PLAIN const char *tn_file_meta(const tn_file *f, const char *key);
// Returns key i of the metadata, or NULL after the last.
TN_API_PLAIN const char *tn_file_meta_key(const tn_file *f, int i);
// Closes the file. Tensors that were read from it stay. Does nothing for NULL.
TN_API void tn_file_free(tn_file *f);
// Writes n tensors as safetensors, with nmeta pairs of key and value in meta. The file is replaced
// atomically: it has its old or its new content, never a part.
TN_API tn_status tn_file_write(tn_ctx *cx, const char *path, int n, const char *const *names,
                               tn_tensor *const *tensors, int nmeta, const char *const *meta);
// Reads an npy file, and writes one.
TN_API tn_tensor *tn_npy_read(tn_ctx *cx, const char *path);
TN_API tn_status  tn_npy_write(tn_tensor *t, const char *path);

typedef struct {
    const char        *prefix;  // added before every name
    int                nmeta;   // pairs of key and value in meta
    const char *const *meta;
} tn_save_opts;
// Saves the parameters and buffers of a layer as safetensors.
TN_API tn_status tn_save(tn_layer *l, const char *path);
TN_API tn_status tn_save_with(tn_layer *l, const char *path, tn_save_opts o);
typedef struct {
    const char *prefix;      // only names of the file with this prefix count; it is removed
    const char *add_prefix;  // then added before them: "transformer." for files of GPT-2 without it
    const char *ignore;      // a pattern of names of the file to ignore: "*.attn.bias"
    bool        partial;     // tensors that the file lacks stay as they are
    // Patterns: of names of the layer that the file may lack, of names of the file that the layer
    // may lack, and of names of the layer whose shape may differ in the file ("fc.*", for other
    // classes). Tensors that get no value stay as they are.
    const char *allow_missing, *allow_unknown, *allow_mismatch;
    // nmap pairs that rename tensors of the file: a pattern and a name, "layers.*.w_in",
    // "blocks.*.linear.weight". The first star of the name is replaced by the text that the first
    // star of the pattern matched, and so on. The first pair that matches is used, after prefix and
    // before add_prefix; a name that matches none stays.
    int                nmap;
    const char *const *map;
} tn_load_opts;
// Loads the parameters and buffers of a layer from safetensors, all or none. File and layer must
// have the same names and shapes; dtypes are cast. As in PyTorch, the file may lack the
// num_batches_tracked of a batch norm, which then stays as it is.
TN_API tn_status tn_load(tn_layer *l, const char *path);
TN_API tn_status tn_load_with(tn_layer *l, const char *path, tn_load_opts o);

enum { TN_MAX_CHECKPOINT = 8 };  // networks in a checkpoint, and optimizers, and datasets

// Everything that resuming a run needs, in one file: weights, optimizers, positions of datasets,
// the random counter, and the caller's step and bytes. The file is replaced atomically, and is
// verified before the first assignment. Save between steps. Loading needs the same networks, kinds
// of optimizers and datasets; an optimizer takes its settings from the file. If user is NULL, the
// bytes are not read. keep_random: loading leaves the context's random numbers as they are.
// dist: the world whose ranks save or load together, all calling it at the same place; it succeeds
// on all of them or fails on all, and until all have done their part the old file stays. Rank 0
// writes the file, or with `sharded` each rank a part of it, PATH.a.rank0of4 and so on, and path
// becomes an index of them. The paths must lead to the same files on all ranks. A run can be
// resumed with another number of ranks, or none.
typedef struct {
    tn_layer *net[TN_MAX_CHECKPOINT];
    tn_optim *opt[TN_MAX_CHECKPOINT];
    tn_data  *data[TN_MAX_CHECKPOINT];
    int64_t   step;
    void     *user;
    size_t    user_bytes;
    bool      keep_random;
    tn_dist  *dist;
    bool      sharded;
} tn_checkpoint;
// Saves a checkpoint, and loads one.
TN_API tn_status tn_checkpoint_save(tn_ctx *cx, const char *path, const tn_checkpoint *c);
TN_API tn_status tn_checkpoint_load(tn_ctx *cx, const char *path, tn_checkpoint *c);

#endif
