// training.h: what surrounds a network. Optimizers, datasets, files, checkpoints.
//
// Part of tenon.h, which includes it.
#ifndef TENON_TRAINING_H
#define TENON_TRAINING_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

// ---- optimizers --------------------------------------------------------------------------------

// The factor of the learning rate for the update after t others. While t < warmup it is
// (t + 1) / warmup; from then on, by kind:
//   constant  1
//   step      factor to the power of t / every, rounded down; floor at least
//   cosine    from 1 at warmup down to floor at total along half a cosine, then floor
//   linear    the same along a line
typedef enum { TN_LR_CONSTANT, TN_LR_STEP, TN_LR_COSINE, TN_LR_LINEAR } tn_lr_kind;
typedef struct {
    int     kind;           // of tn_lr_kind
    int64_t warmup, total;  // updates; total, above warmup, counts those of the warm-up too
    float   floor;          // the lowest factor after the warm-up, 0 .. 1
    int64_t every;          // updates from one step down to the next, above 0
    float   factor;         // of each; 0: 0.1
} tn_schedule;

// Update rules and defaults are PyTorch's. Every update clips its gradients by their common norm, then
// each element by value; clip_norm and clip_value 0: off. accumulate k: every k-th tn_step updates,
// with the averaged gradient.
//
// The state of f16 and bf16 parameters is f32. Beside it is an f32 master copy of each, which updates
// go by, so that steps below the parameter's precision add up: the parameter is the master rounded.
// Elements that the program writes itself (tn_assign, tn_load) become the master's at the next
// update. no_master: none is kept, which saves 4 bytes an element; each update is rounded. It is the
// program's choice, not that of a checkpoint: a master that a file has is then passed over.
typedef struct {
    float       lr;  // 0: 1e-3
    float       momentum, dampening, weight_decay;
    float       clip_norm, clip_value;
    bool        nesterov;
    int         accumulate;
    tn_schedule schedule;
    bool        no_master;  // of f16 and bf16 parameters
} tn_sgd_opts;
typedef struct {
    float       lr, beta1, beta2, eps;  // 0: 1e-3, 0.9, 0.999, 1e-8
    float       weight_decay;           // 0: adam 0, adamw 1e-2
    float       clip_norm, clip_value;
    int         accumulate;
    tn_schedule schedule;
    bool        no_master;  // of f16 and bf16 parameters
} tn_adamw_opts;
typedef tn_adamw_opts tn_adam_opts;
typedef struct {
    float       lr, alpha, eps;  // 0: 1e-2, 0.99, 1e-8
    float       momentum, weight_decay;
    float       clip_norm, clip_value;
    bool        centered;
    int         accumulate;
    tn_schedule schedule;
    bool        no_master;  // of f16 and bf16 parameters
} tn_rmsprop_opts;
// An optimizer of the parameters that net has now and that are not frozen; tied ones once. It keeps
// them, also when net is freed.
TN_API tn_optim *tn_sgd(tn_layer *net, tn_sgd_opts o);
TN_API tn_optim *tn_adam(tn_layer *net, tn_adam_opts o);
TN_API tn_optim *tn_adamw(tn_layer *net, tn_adamw_opts o);
TN_API tn_optim *tn_rmsprop(tn_layer *net, tn_rmsprop_opts o);
// The parameters whose name fits the pattern ("*.bias"; several with commas) get a learning rate
// scaled by lr_scale and this weight decay, in which 0 is 0. Later groups win.
TN_API tn_status tn_optim_group(tn_optim *o, const char *names, float lr_scale, float weight_decay);
// Backward from loss into o's parameters alone, clipping, update, gradients cleared, everything
// pending launched: a step boundary, as tn_eval. On failure parameters, state and counts are as
// before, and o's gradients are cleared. A loss that will not do (NULL, not one element, made from
// none of o's parameters) is refused before that: nothing changes, gradients neither.
TN_API tn_status tn_step(tn_optim *o, tn_tensor *loss);
// The update alone, by the gradients that are there; clears nothing, launches nothing. A parameter
// without gradient is left as it is.
TN_API tn_status tn_optim_step(tn_optim *o);
TN_API void      tn_optim_zero_grad(tn_optim *o);
// Scales the gradients so that their common norm is at most max; the norm before, not yet computed.
TN_API tn_tensor *tn_optim_clip_norm(tn_optim *o, double max);
// Cuts every element of the gradients to -max .. max.
TN_API tn_status    tn_optim_clip_value(tn_optim *o, double max);
TN_API_PLAIN double tn_optim_lr(const tn_optim *o);           // of the next update, by the schedule
TN_API void         tn_optim_set_lr(tn_optim *o, double lr);  // before the schedule
// Another schedule for the same count of updates: a run that is made longer.
TN_API tn_status     tn_optim_set_schedule(tn_optim *o, tn_schedule s);
TN_API_PLAIN int64_t tn_optim_updates(const tn_optim *o);
TN_API void          tn_optim_free(tn_optim *o);

// ---- data --------------------------------------------------------------------------------------

enum { TN_MAX_FIELDS = 8 };  // of a batch: x, y and more

// A dataset hands out batches: items in an order shuffled by (seed, epoch), for ever. Batches are
// made ready on a thread of its own.
typedef struct {
    tn_tensor *x, *y, *more[TN_MAX_FIELDS - 2];  // the fields, each (items, ...)
    int64_t    count;                            // items in it
    int64_t    epoch, index;                     // the epoch, and the first item's place in it
    bool       last;                             // of its epoch
} tn_batch;
// The next batch of n items; the last of an epoch may be short. NULLs on failure; a batch with an
// item that failed is passed over.
TN_API tn_batch tn_next(tn_data *d, int64_t n);

typedef struct {
    int64_t  count;  // 0: 60,000
    uint64_t seed;
    bool     test;  // other images than for training
} tn_digits_opts;
// 28 x 28 images of drawn digits, made as they are asked for: x (B, 1, 28, 28) in [0, 1], y (B).
TN_API tn_data *tn_digits(tn_ctx *cx, tn_digits_opts o);
// MNIST and its kin in a folder: train-* or (test) t10k-*, plain or .gz.
TN_API tn_data *tn_idx(tn_ctx *cx, const char *dir, bool test);
TN_API tn_data *tn_idx_files(tn_ctx *cx, const char *images, const char *labels);
// The images of one IDX file, plain or .gz, as u8 (N, H, W) or (N, C, H, W).
TN_API tn_tensor *tn_idx_read(tn_ctx *cx, const char *path);
// An image as f32 (C, H, W) in [0, 1]: PGM (C is 1) or PPM (3), plain or .gz.
TN_API tn_tensor *tn_image_read(tn_ctx *cx, const char *path);
// data_batch_1.bin ... or (test) test_batch.bin in a folder: x (B, 3, 32, 32), y (B).
TN_API tn_data *tn_cifar10(tn_ctx *cx, const char *dir, bool test);
// Cells of a table that are missing: empty, or one of the words for it.
typedef enum {
    TN_MISSING_ERROR,     // in a column of numbers an error, in one of words a word like others
    TN_MISSING_MEAN,      // numbers get the mean of their column, words are a category of their own
    TN_MISSING_CATEGORY,  // the same, and a column of numbers is two: is it missing, 0 or 1, follows
    TN_MISSING_SKIP       // the row is left out
} tn_missing;
typedef struct {
    const char *target;     // the column to predict, by name or number from 0; NULL: the last
    char        separator;  // 0: found out
    bool        no_header;  // the first line is a row; a header of numbers alone is refused
    const char *schema;     // of tn_data_schema: the columns and categories of another file
    bool        no_target;  // there is x alone; a file may lack the target of its schema
    int missing;  // of tn_missing. A row without its target is left out, unless it is an error
    const char *missing_words;  // with commas, in any case; NULL: "NA,NaN,null,?"
    // The rows that tn_data_split(d, held_out, split_seed) takes off afterwards count to no mean that
    // fills missing cells, so that nothing of a test is trained on. 0: every row counts.
    double   held_out;
    uint64_t split_seed;
} tn_csv_opts;
// x (B, columns) f32: numbers as they are, categories one-hot. y i64 of a category or f32 (B, 1).
// A target of whole numbers counts as categories where there are at most 20 of them, with five rows
// to each on average. The file may be gzip. Means that fill missing cells are kept in the schema.
TN_API tn_data *tn_csv(tn_ctx *cx, const char *path, tn_csv_opts o);
typedef struct {
    int64_t length;  // of a window, 0: 128
    tn_bpe *bpe;     // NULL: bytes
} tn_text_opts;
// Windows of a text: x (B, length) i64 and y, the same one token later.
TN_API tn_data *tn_text(tn_ctx *cx, const char *path, tn_text_opts o);
// The first axis of n tensors (x, y, ...), which are copied. A y of one integer an item, none of them
// negative, counts as classes up to the largest.
TN_API tn_data *tn_arrays(tn_ctx *cx, int n, tn_tensor *const *fields);
// A user's dataset. field[f] has the dtype and shape of one item's; get fills dst[f] for every field
// f of item i on another thread, one call at a time, makes no tn_ calls, and returns nonzero on
// failure.
typedef struct {
    int64_t  count;
    int      fields;
    tn_array field[TN_MAX_FIELDS];
    void    *user;
    int (*get)(void *user, int64_t i, void *const *dst);
    int64_t            classes;      // of y, field 1; 0: it is not a class
    const char *const *class_names;  // so many, copied; NULL: they have none
} tn_dataset_def;
TN_API tn_data *tn_dataset(tn_ctx *cx, tn_dataset_def def);

typedef struct {
    int64_t  count;                 // items
    int      fields;                // of a batch
    tn_array field[TN_MAX_FIELDS];  // dtype and shape of one item's
    int64_t  classes;               // of y, 0 where it is not a class
    int64_t  skipped;               // rows of a table that were left out, for missing cells
} tn_data_desc;
TN_API_PLAIN tn_data_desc tn_data_info(const tn_data *d);
TN_API_PLAIN int64_t      tn_data_count(const tn_data *d);
TN_API_PLAIN int64_t      tn_data_batches(const tn_data *d, int64_t n);  // in an epoch
// Columns and categories as JSON, for tn_csv_opts.schema; "" where there are none.
TN_API_PLAIN const char *tn_data_schema(const tn_data *d);
// The name of class i of y, NULL where it has none.
TN_API_PLAIN const char *tn_data_class(const tn_data *d, int64_t i);
// The row of its table that item i is, from 0, counting those that were left out; else i. -1 past the
// last.
TN_API_PLAIN int64_t tn_data_row(const tn_data *d, int64_t i);
// Order: shuffled by seed (the default, by the context's), or as it is.
TN_API tn_status tn_data_shuffle(tn_data *d, bool on, uint64_t seed);
TN_API tn_status tn_data_drop_last(tn_data *d, bool on);  // no short batches
// Takes a fraction of the items, chosen by the seed, out of d into a dataset of its own, with
// settings of its own. Both begin with epoch 0.
TN_API tn_data *tn_data_split(tn_data *d, double fraction, uint64_t seed);
typedef struct {
    int  shift;  // moved by up to so many pixels, edges filled with 0
    int  crop;   // padded by so many pixels and cropped to its size
    bool flip;   // left to right, half of the time
} tn_augment_opts;
// Of images, x (C, H, W) of f32; drawn from (seed, epoch, item). Shift and crop add up.
TN_API tn_status tn_data_augment(tn_data *d, tn_augment_opts o);
// Where tn_next stands: the next batch to hand out.
typedef struct {
    uint64_t seed;
    int64_t  epoch, index;
} tn_cursor;
TN_API_PLAIN tn_cursor tn_data_cursor(const tn_data *d);
// Epochs go up to 2^62 - 1, the index to the last item.
TN_API tn_status tn_data_seek(tn_data *d, tn_cursor c);
TN_API tn_status tn_data_rewind(tn_data *d);  // to the start of epoch 0
TN_API void      tn_data_free(tn_data *d);

// GPT-2's tokenizer, from two files: vocab is its vocab.bpe, which Hugging Face calls merges.txt,
// encoder its encoder.json, there vocab.json. Belongs to the context.
TN_API tn_bpe       *tn_bpe_open(tn_ctx *cx, const char *vocab, const char *encoder);
TN_API_PLAIN int64_t tn_bpe_count(const tn_bpe *b);
// Tokens of a text into ids (at most room); their number, also where there is less room; -1 on error.
TN_API int64_t tn_bpe_encode(tn_bpe *b, const char *text, int64_t bytes, int64_t *ids,
                             int64_t room);
// Bytes of n tokens into text (at most room, no 0 at the end); their number; -1 on error.
TN_API int64_t tn_bpe_decode(tn_bpe *b, const int64_t *ids, int64_t n, char *text, int64_t room);
TN_API void    tn_bpe_free(tn_bpe *b);

// ---- files -------------------------------------------------------------------------------------

// A safetensors file (or the index.json of several), or an npy file (one tensor, named "").
TN_API tn_file  *tn_file_open(tn_ctx *cx, const char *path);
TN_API_PLAIN int tn_file_count(const tn_file *f);
typedef struct {
    const char *name;   // NULL past the last
    const char *dtype;  // as the file spells it
    int         rank;
    int64_t     size[TN_MAX_RANK];
    int64_t     bytes;
} tn_file_desc;
TN_API_PLAIN tn_file_desc tn_file_info(const tn_file *f, int i);
TN_API_PLAIN const char  *tn_file_name(const tn_file *f, int i);
TN_API tn_tensor         *tn_file_tensor(tn_file *f, const char *name);
TN_API_PLAIN const char  *tn_file_meta(const tn_file *f,
                                       const char    *key);              // NULL where there is none
TN_API_PLAIN const char  *tn_file_meta_key(const tn_file *f, int i);  // NULL past the last
TN_API void               tn_file_free(tn_file *f);
// Writes n tensors as safetensors; meta: nmeta pairs of key and value. The file appears whole or
// not at all.
TN_API tn_status  tn_file_write(tn_ctx *cx, const char *path, int n, const char *const *names,
                                tn_tensor *const *tensors, int nmeta, const char *const *meta);
TN_API tn_tensor *tn_npy_read(tn_ctx *cx, const char *path);
TN_API tn_status  tn_npy_write(tn_tensor *t, const char *path);

// A layer's parameters and buffers as safetensors.
TN_API tn_status tn_save(tn_layer *l, const char *path);
typedef struct {
    const char        *prefix;  // put before every name
    int                nmeta;   // pairs of key and value in meta
    const char *const *meta;
} tn_save_opts;
TN_API tn_status tn_save_with(tn_layer *l, const char *path, tn_save_opts o);
// Names must fit both ways, shapes must be equal, dtypes are cast; all or nothing. As in PyTorch the
// file may lack num_batches_tracked of a batch norm, which then stays as it is.
TN_API tn_status tn_load(tn_layer *l, const char *path);
typedef struct {
    const char *prefix;      // of the names in the file that count; taken off
    const char *add_prefix;  // then put before them: "transformer." for a file of GPT-2 without it
    const char *ignore;      // a pattern of names in the file that do not count: "*.attn.bias"
    bool        partial;     // what the file does not have stays as it is
    // Patterns, of names here that the file may lack; of names in the file that nothing here has; and
    // of names here whose shape in the file may be another ("fc.*": for other classes). What gets no
    // value stays as it is.
    const char *allow_missing, *allow_unknown, *allow_mismatch;
    // What names of the file are called here, as nmap pairs of pattern and name: "layers.*.w_in",
    // "blocks.*.linear.weight". The first star of the name stands for what the first of the pattern
    // does, and so on. The first pair that fits counts; it is asked after prefix and before
    // add_prefix, and a name that fits none stays.
    int                nmap;
    const char *const *map;
} tn_load_opts;
TN_API tn_status tn_load_with(tn_layer *l, const char *path, tn_load_opts o);

enum { TN_MAX_CHECKPOINT = 8 };  // networks in one, and optimizers, and datasets

// What resuming needs, in one file: weights, optimizers, loaders, random counter, and the caller's
// step and bytes. It appears whole or not at all, and is verified before the first assignment. Save
// between steps. Loading wants the same networks, kinds of optimizers and datasets; settings of an
// optimizer come from the file, whatever it was made with. user NULL: the bytes are not read.
typedef struct {
    tn_layer *net[TN_MAX_CHECKPOINT];
    tn_optim *opt[TN_MAX_CHECKPOINT];
    tn_data  *data[TN_MAX_CHECKPOINT];
    int64_t   step;
    void     *user;
    size_t    user_bytes;
} tn_checkpoint;
TN_API tn_status tn_checkpoint_save(tn_ctx *cx, const char *path, const tn_checkpoint *c);
TN_API tn_status tn_checkpoint_load(tn_ctx *cx, const char *path, tn_checkpoint *c);

#endif
