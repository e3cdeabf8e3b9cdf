// calls_training.c: the table of calls, optimizers, datasets, files, checkpoints; and the things
// that calls are made on.
#include "onnx_writer.h"
#include "call_rows.h"
#include "check.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

// ---- things

enum { ITEMS = 64 };

static tn_data *make_data(tn_ctx *cx)
{
    tn_tensor *const fields[] = { tn_ones(cx, TN_F32, TN_SHAPE(ITEMS, 1, 2, 3)),
                                  tn_zeros(cx, TN_I64, TN_SHAPE(ITEMS)) };
    return tn_arrays(cx, 2, fields);
}

// The file is mapped, and needs its name no longer.
static tn_file *make_file(tn_ctx *cx)
{
    char             path[] = "/tmp/tenon-calls-XXXXXX";
    int              fd     = mkstemp(path);
    tn_tensor *const t[]    = { tn_ones(cx, TN_F32, TN_SHAPE(2)) };
    if (fd < 0) return NULL;
    close(fd);
    tn_file_write(cx, path, 1, (const char *const[]){ "t" }, t, 0, NULL);
    tn_file *f = tn_file_open(cx, path);
    unlink(path);
    return f;
}

static tn_onnx *make_model(tn_ctx *cx)
{
    char       path[] = "/tmp/tenon-calls-XXXXXX";
    int        fd     = mkstemp(path);
    onnx_bytes g = { .n = 0 }, relu = onnx_node("Relu", "x", "y"), file;
    onnx_ports(&g, "x", "y");
    onnx_message(&g, 1, &relu);
    file = onnx_model(&g, 13);
    if (fd < 0) return NULL;
    tn_onnx *m = write(fd, file.data, file.n) == (ssize_t)file.n ? tn_onnx_open(cx, path) : NULL;
    close(fd);
    unlink(path);
    return m;
}

// Its folder is removed at once: what is written goes to the open file.
static tn_tensorboard *make_board(tn_ctx *cx)
{
    char folder[] = "/tmp/tenon-calls-XXXXXX", path[512];
    if (!mkdtemp(folder)) return NULL;
    tn_tensorboard *b = tn_tensorboard_open(cx, folder, (tn_tensorboard_opts){ 0 });
    DIR            *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (d) closedir(d);
    rmdir(folder);
    return b;
}

call_things calls_things(tn_ctx *cx)
{
    tn_scope   *s      = tn_begin(cx);
    call_things things = { .net = tn_nn_linear(cx, 2, 3), .data = make_data(cx) };
    things.opt         = tn_adam(things.net, (tn_adam_opts){ 0 });
    things.file        = make_file(cx);
    things.onnx        = make_model(cx);
    things.board       = make_board(cx);
    things.report      = tn_report_open(cx, "run");
    things.dist        = tn_dist_open(cx, (tn_dist_opts){ 0 });
    tn_end(s);
    return things;
}

// No path, or one of something that is no file of ours.
static const char *path_of(const call_args *k)
{
    static const char *const paths[] = { NULL, "", "/", "/dev/null", "/no/such/folder/file" };
    return paths[(uint64_t)k->i % 5];
}

// ---- optimizers

// A number for an option. A double that no float holds would be undefined.
static float option(double d)
{
    return d > 1e30 ? 1e30f : (float)d;
}

static tn_schedule schedule_of(const call_args *k)
{
    return (tn_schedule){
        .kind = (int)k->i, .warmup = k->j, .total = k->i, .floor = option(k->d), .every = k->j
    };
}

CALL(sgd)
{
    tn_optim_free(tn_sgd(k->has.net, (tn_sgd_opts){ .lr         = option(k->d),
                                                    .momentum   = option(k->d),
                                                    .nesterov   = k->i & 1,
                                                    .accumulate = (int)k->j }));
    return NULL;
}
CALL(adam)
{
    tn_optim_free(tn_adam(k->has.net, (tn_adam_opts){ .beta1 = option(k->d), .lr = 1 }));
    return NULL;
}
CALL(adamw)
{
    tn_optim_free(tn_adamw(k->has.net, (tn_adamw_opts){ .clip_norm = option(k->d),
                                                        .schedule  = schedule_of(k) }));
    return NULL;
}
CALL(rmsprop)
{
    tn_optim_free(
        tn_rmsprop(k->has.net, (tn_rmsprop_opts){ .alpha = option(k->d), .centered = k->i & 1 }));
    return NULL;
}
CALL(adagrad)
{
    tn_optim_free(
        tn_adagrad(k->has.net, (tn_adagrad_opts){ .lr_decay                  = option(k->d),
                                                  .initial_accumulator_value = option(k->d) }));
    return NULL;
}
CALL(lbfgs)
{
    tn_optim_free(tn_lbfgs(k->has.net, (tn_lbfgs_opts){ .lr             = option(k->d),
                                                        .history_size   = (int)k->j,
                                                        .tolerance_grad = option(k->d) }));
    return NULL;
}
static tn_tensor *loss_of_x(void *user)
{
    return user ? tn_sum_all(user) : NULL;
}
CALL(minimize)
{
    double loss;
    tn_minimize(k->has.opt, k->i & 1 ? loss_of_x : NULL, k->x, &loss);
    return NULL;
}
CALL(optim_clip_each)
{
    tn_optim_clip_each(k->has.opt, k->d);
    return NULL;
}
CALL(adadelta)
{
    tn_optim_free(
        tn_adadelta(k->has.net, (tn_adadelta_opts){ .rho = option(k->d), .ema = option(k->d) }));
    return NULL;
}
CALL(nadam)
{
    tn_optim_free(tn_nadam(k->has.net, (tn_nadam_opts){ .momentum_decay = option(k->d),
                                                        .loss_scale     = k->i & 1 }));
    return NULL;
}
CALL(lamb)
{
    tn_optim_free(
        tn_lamb(k->has.net, (tn_lamb_opts){ .eps = option(k->d), .schedule = schedule_of(k) }));
    return NULL;
}
CALL(lion)
{
    tn_optim_free(tn_lion(k->has.net, (tn_lion_opts){ .beta2 = option(k->d) }));
    return NULL;
}
CALL(muon)
{
    tn_optim_free(tn_muon(k->has.net, (tn_muon_opts){ .momentum  = option(k->d),
                                                      .adamw     = k->i & 1 ? "*" : NULL,
                                                      .match_rms = k->j & 1 }));
    return NULL;
}
CALL(optim_average_to)
{
    tn_optim_average_to(k->has.opt, k->has.net);
    return NULL;
}
CALL(plateau_step)
{
    tn_plateau p = { .factor = option(k->d), .patience = k->i, .cooldown = k->j };
    tn_plateau_step(k->i & 1 ? &p : NULL, k->has.opt, k->d);
    return NULL;
}
CALL(optim_add_group)
{
    tn_optim_add_group(k->has.opt, k->i & 1 ? "*" : NULL, option(k->d), option(k->d));
    tn_optim_add_group(k->has.opt, k->j & 1 ? "no such name" : "", 1, 0);
    return NULL;
}
CALL(step)
{
    tn_step(k->has.opt, k->i & 1 ? k->x : tn_mean_all(tn_forward(k->has.net, k->x)));
    return NULL;
}
CALL(optim_step)
{
    tn_optim_step(k->has.opt);
    return NULL;
}
CALL(optim_zero_grad)
{
    tn_optim_zero_grad(k->has.opt);
    return NULL;
}
CALL(optim_clip_norm)
{
    return tn_optim_clip_norm(k->has.opt, k->d);
}
CALL(optim_grad_norm)
{
    return tn_optim_grad_norm(k->has.opt);
}
CALL(optim_clip_value)
{
    tn_optim_clip_value(k->has.opt, k->d);
    return NULL;
}
CALL(optim_lr)
{
    tn_optim_lr(k->has.opt);
    return NULL;
}
CALL(optim_set_lr)
{
    tn_optim_set_lr(k->has.opt, k->d);
    return NULL;
}
CALL(optim_set)
{
    static const char *const setting[] = { "momentum", "beta1", "eps", "mass", NULL };
    tn_optim_set(k->has.opt, setting[(k->j < 0 ? -(k->j + 1) : k->j) % 5], k->d);
    return NULL;
}
CALL(optim_set_schedule)
{
    tn_optim_set_schedule(k->has.opt, schedule_of(k));
    return NULL;
}
CALL(optim_loss_scale)
{
    return tn_optim_loss_scale(k->has.opt);
}
CALL(optim_skipped)
{
    tn_optim_skipped(k->has.opt);
    return NULL;
}
CALL(optim_updates)
{
    tn_optim_updates(k->has.opt);
    return NULL;
}
CALL(optim_free)
{
    tn_optim_free(k->has.net ? tn_sgd(k->has.net, (tn_sgd_opts){ 0 }) : NULL);
    return NULL;
}

// ---- data. A batch outlives the dataset that it is from.

static tn_tensor *first(tn_data *d)
{
    tn_tensor *x = d ? tn_next(d, 2).x : NULL;
    tn_data_free(d);
    return x;
}
CALL(next)
{
    return tn_next(k->has.data, k->i).x;
}
CALL(digits)
{
    return first(tn_digits(k->cx, (tn_digits_opts){ .count = k->i, .seed = (uint64_t)k->j }));
}
CALL(idx)
{
    return first(tn_idx(k->cx, path_of(k), k->j & 1));
}
CALL(idx_files)
{
    return first(tn_idx_files(k->cx, path_of(k), "/dev/null"));
}
CALL(idx_read)
{
    return tn_idx_read(k->cx, path_of(k));
}
CALL(image_read)
{
    return tn_image_read(k->cx, path_of(k));
}
CALL(image_read_with)
{
    return tn_image_read_with(
        k->cx, path_of(k), (tn_image_opts){ .size = k->i, .resize = k->j, .channels = (int)k->j });
}
static tn_image_show_opts show_opts(const call_args *k)
{
    return (tn_image_show_opts){ .columns = k->j & 7,
                                 .padding = k->i,
                                 .hi      = k->d,
                                 .style   = (tn_image_style)(k->j & 7),
                                 .width   = (int)k->j };
}
CALL(image_grid)
{
    return tn_image_grid(k->x, show_opts(k));
}
CALL(image_write)
{
    tn_image_write(k->x, path_of(k));
    return NULL;
}
CALL(image_write_with)
{
    tn_image_write_with(k->x, path_of(k), show_opts(k));
    return NULL;
}
CALL(image_print)
{
    tn_image_print(k->x, k->i ? calls_nowhere() : NULL);
    return NULL;
}
CALL(image_print_with)
{
    tn_image_print_with(k->x, k->i ? calls_nowhere() : NULL, show_opts(k));
    return NULL;
}
CALL(images)
{
    return first(
        tn_images(k->cx, path_of(k), (tn_image_opts){ .size = k->i, .threads = (int)k->j }));
}
CALL(data_skipped)
{
    tn_data_skipped(k->has.data, k->i);
    return NULL;
}
CALL(cifar10)
{
    return first(tn_cifar10(k->cx, path_of(k), k->j & 1));
}
CALL(csv)
{
    return first(tn_csv(k->cx, path_of(k),
                        (tn_csv_opts){ .target    = k->j & 1 ? "y" : NULL,
                                       .separator = (char)k->j,
                                       .missing   = (int)k->j,
                                       .no_target = k->j & 2 }));
}
CALL(text)
{
    return first(tn_text(k->cx, path_of(k), (tn_text_opts){ .length = k->j }));
}
CALL(arrays)
{
    tn_tensor *const fields[] = { k->x, k->y };
    return first(tn_arrays(k->cx, k->i == 1 ? 2 : (int)(k->i % 2), fields));
}
static int get_zero(void *user, int64_t i, void *const *dst)
{
    (void)user;
    if (dst[0]) *(char *)dst[0] = 0;
    return i < 0;
}
CALL(dataset)
{
    tn_dataset_def def = { .count = k->i, .fields = (int)k->j, .get = k->j ? get_zero : NULL };
    for (int i = 0; i < 8; i++) def.field[i] = (tn_array){ .dtype = TN_U8 };
    def.field[1].rank = (int)k->i;
    return first(tn_dataset(k->cx, def));
}
CALL(data_info)
{
    tn_data_info(k->has.data);
    return NULL;
}
CALL(data_count)
{
    tn_data_count(k->has.data);
    return NULL;
}
CALL(data_batches)
{
    tn_data_batches(k->has.data, k->i);
    return NULL;
}
CALL(data_schema)
{
    tn_data_schema(k->has.data);
    return NULL;
}
CALL(data_class_name)
{
    tn_data_class_name(k->has.data, k->i);
    return NULL;
}
CALL(data_row)
{
    tn_data_row(k->has.data, k->i);
    return NULL;
}
CALL(data_shuffle)
{
    tn_data_shuffle(k->has.data, k->i & 1, (uint64_t)k->j);
    return NULL;
}
CALL(data_drop_last)
{
    tn_data_drop_last(k->has.data, k->i & 1);
    return NULL;
}
CALL(data_shard)
{
    tn_data_shard(k->has.data, (int)(k->i % 5), (int)(k->j % 5));
    return NULL;
}
CALL(data_split)
{
    return first(tn_data_split(k->has.data, k->d, (uint64_t)k->i));
}
CALL(data_augment)
{
    tn_data_augment(k->has.data, (tn_augment_opts){ .shift        = (int)k->i,
                                                    .crop         = (int)k->j,
                                                    .flip         = k->i & 1,
                                                    .resized_crop = k->i & 2,
                                                    .area         = k->d,
                                                    .hue          = k->d,
                                                    .mixup        = k->i & 4 ? k->d : 0 });
    return NULL;
}
CALL(data_cursor)
{
    tn_data_cursor(k->has.data);
    return NULL;
}
CALL(data_seek)
{
    tn_data_seek(k->has.data, (tn_cursor){ (uint64_t)k->i, k->i, k->j });
    return NULL;
}
CALL(data_rewind)
{
    tn_data_rewind(k->has.data);
    return NULL;
}
CALL(data_free)
{
    tn_data_free(k->cx ? make_data(k->cx) : NULL);
    return NULL;
}

// ---- the tokenizer: whole ones are in test_bpe.c and test_tokenizer.c

CALL(tokenizer_open)
{
    tn_tokenizer_free(tn_tokenizer_open(k->cx, path_of(k)));
    return NULL;
}
CALL(tokenizer_gpt2)
{
    tn_tokenizer_free(tn_tokenizer_gpt2(k->cx, path_of(k), "/dev/null"));
    return NULL;
}
CALL(tokenizer_count)
{
    (void)k;
    tn_tokenizer_count(NULL);
    return NULL;
}
CALL(tokenizer_encode)
{
    int64_t id;
    tn_tokenizer_encode(NULL, "text", k->i, &id, 1);
    return NULL;
}
CALL(tokenizer_encode_with)
{
    int64_t id;
    tn_tokenizer_encode_with(NULL, "text", k->i, &id, 1, (tn_encode_opts){ .plain = true });
    return NULL;
}
CALL(tokenizer_decode)
{
    char c;
    tn_tokenizer_decode(NULL, &k->i, 1, &c, 1);
    return NULL;
}
CALL(tokenizer_stream)
{
    char            c;
    tn_token_stream s = { 0 };
    tn_tokenizer_stream(NULL, &s, k->i, &c, 1);
    return NULL;
}
CALL(tokenizer_longest)
{
    (void)k;
    tn_tokenizer_longest(NULL);
    return NULL;
}
CALL(tokenizer_token)
{
    tn_tokenizer_token(NULL, k->i);
    return NULL;
}
CALL(tokenizer_id)
{
    (void)k;
    tn_tokenizer_id(NULL, "the");
    return NULL;
}
CALL(tokenizer_is_special)
{
    tn_tokenizer_is_special(NULL, k->i);
    return NULL;
}
CALL(tokenizer_free)
{
    (void)k;
    tn_tokenizer_free(NULL);
    return NULL;
}

// ---- models of other programs

CALL(report_open)
{
    tn_report_close(tn_report_open(k->cx, k->i & 1 ? "run" : NULL));
    return NULL;
}
CALL(report_read)
{
    tn_report_close(tn_report_read(k->cx, path_of(k)));
    return NULL;
}
CALL(report_scalar)
{
    tn_report_scalar(k->has.report, k->i & 1 ? "a" : NULL, k->j, k->d);
    return NULL;
}
CALL(report_rewind)
{
    tn_report_rewind(k->has.report, k->j);
    return NULL;
}
CALL(report_setting)
{
    tn_report_setting(k->has.report, "a", k->i & 1 ? "b" : NULL);
    return NULL;
}
CALL(report_figure)
{
    tn_report_figure(k->has.report, k->i & 1 ? "a" : NULL, k->d);
    return NULL;
}
CALL(report_sample)
{
    tn_report_sample(k->has.report, k->x, (tn_report_sample_opts){ .chance = k->d });
    return NULL;
}
CALL(report_confusion)
{
    tn_report_confusion(k->has.report, k->i & 1 ? 1 : k->j, k->i & 1 ? &k->j : NULL, NULL);
    return NULL;
}
CALL(report_write)
{
    tn_report_write(k->has.report, k->i & 1 ? "/no/such/folder/r.html" : NULL);
    return NULL;
}
CALL(report_compare)
{
    tn_report_compare(k->has.report, k->has.report, k->i & 1 ? "/no/such/folder/r.html" : NULL,
                      k->j & 1 ? calls_nowhere() : NULL);
    return NULL;
}
CALL(report_close)
{
    (void)k;
    tn_report_close(NULL);
    return NULL;
}
CALL(tensorboard_open)
{
    static const char *const folders[] = { NULL, "", "/dev/null" };
    tn_tensorboard_close(tn_tensorboard_open(k->cx, folders[(uint64_t)k->i % 3],
                                             (tn_tensorboard_opts){ .purge_step = k->j }));
    return NULL;
}
CALL(tensorboard_scalar)
{
    tn_tensorboard_scalar(k->has.board, k->i & 1 ? "a" : NULL, k->j, k->d);
    return NULL;
}
CALL(tensorboard_histogram)
{
    tn_tensorboard_histogram(k->has.board, "h", k->j, k->x);
    return NULL;
}
CALL(tensorboard_image)
{
    tn_tensorboard_image(k->has.board, "i", k->j, k->x, show_opts(k));
    return NULL;
}
CALL(tensorboard_close)
{
    (void)k;
    tn_tensorboard_close(NULL);
    return NULL;
}
CALL(onnx_open)
{
    tn_onnx_close(tn_onnx_open(k->cx, path_of(k)));
    return NULL;
}
CALL(onnx_close)
{
    (void)k;
    tn_onnx_close(NULL);
    return NULL;
}
CALL(onnx_inputs)
{
    tn_onnx_inputs(k->has.onnx);
    return NULL;
}
CALL(onnx_outputs)
{
    tn_onnx_outputs(k->has.onnx);
    return NULL;
}
CALL(onnx_input)
{
    tn_onnx_input(k->has.onnx, (int)k->i);
    return NULL;
}
CALL(onnx_output)
{
    tn_onnx_output(k->has.onnx, (int)k->i);
    return NULL;
}
CALL(onnx_run)
{
    tn_tensor *y = NULL;
    tn_onnx_run(k->has.onnx, 1, NULL, &k->x, 1, NULL, &y);
    return y;
}
CALL(onnx_nodes)
{
    tn_onnx_nodes(k->has.onnx);
    return NULL;
}
CALL(onnx_node_at)
{
    tn_onnx_node_at(k->has.onnx, (int)k->i);
    return NULL;
}
CALL(onnx_node_value)
{
    tn_onnx_node_value(k->has.onnx, (int)k->i, 0);
    return NULL;
}
CALL(onnx_cast)
{
    tn_onnx_cast(k->has.onnx, k->x ? tn_dtype_of(k->x) : TN_F16);
    return NULL;
}
CALL(onnx_layer)
{
    tn_layer *l = tn_onnx_layer(k->has.onnx);
    return l && k->x ? tn_forward(l, k->x) : NULL;
}

CALL(onnx_save)
{
    tn_onnx_save_opts o = { .opset  = (int)k->j,
                            .batch  = k->i & 1 ? "N" : NULL,
                            .beside = k->i & 2 };
    tn_onnx_save(k->has.net, path_of(k), 1, &k->x, o);
    return NULL;
}

// ---- files

CALL(file_open)
{
    tn_file_free(tn_file_open(k->cx, path_of(k)));
    return NULL;
}
CALL(file_count)
{
    tn_file_count(k->has.file);
    return NULL;
}
CALL(file_info)
{
    tn_file_info(k->has.file, (int)k->i);
    return NULL;
}
CALL(file_name)
{
    tn_file_name(k->has.file, (int)k->i);
    return NULL;
}
CALL(file_tensor)
{
    static const char *const names[] = { "t", NULL, "", "u" };
    return tn_file_tensor(k->has.file, names[k->j & 3]);
}
CALL(file_meta)
{
    tn_file_meta(k->has.file, k->i & 1 ? "key" : NULL);
    return NULL;
}
CALL(file_meta_key)
{
    tn_file_meta_key(k->has.file, (int)k->i);
    return NULL;
}
CALL(file_free)
{
    (void)k;
    tn_file_free(NULL);
    return NULL;
}
CALL(file_write)
{
    static const char *const names[][2] = { { "a", "a" }, { "a", "b" }, { "a", NULL } };
    tn_tensor *const         t[]        = { k->x, k->y };
    tn_file_write(k->cx, path_of(k), 2, k->j == 3 ? NULL : names[(uint64_t)k->j % 3], t, 0, NULL);
    return NULL;
}
CALL(npy_read)
{
    return tn_npy_read(k->cx, path_of(k));
}
CALL(npy_write)
{
    tn_npy_write(k->x, path_of(k));
    return NULL;
}
CALL(save)
{
    tn_save(k->has.net, path_of(k));
    return NULL;
}
CALL(save_with)
{
    static const char *const meta[] = { "key", NULL };
    tn_save_with(k->has.net, path_of(k),
                 (tn_save_opts){ .prefix = "p.", .nmeta = k->j & 1, .meta = meta });
    return NULL;
}
CALL(load)
{
    tn_load(k->has.net, path_of(k));
    return NULL;
}
CALL(load_with)
{
    tn_load_with(k->has.net, path_of(k), (tn_load_opts){ .prefix = "", .partial = k->j & 1 });
    return NULL;
}
CALL(checkpoint_save)
{
    tn_checkpoint c = { .net = { k->has.net }, .opt = { k->has.opt }, .data = { k->has.data } };
    tn_checkpoint_save(k->cx, path_of(k), k->j & 1 ? &c : NULL);
    return NULL;
}
CALL(checkpoint_load)
{
    tn_checkpoint c = { .net = { k->has.net }, .opt = { k->has.opt }, .data = { k->has.data } };
    tn_checkpoint_load(k->cx, path_of(k), k->j & 1 ? &c : NULL);
    return NULL;
}

// ---- worlds

CALL(dist_open)
{
    static const char *const engines[] = { NULL, "", "none", "nccl" };
    tn_dist_close(tn_dist_open(k->cx, (tn_dist_opts){ .rank    = (int)(k->i % 7),
                                                      .size    = (int)(k->j % 7),
                                                      .engine  = engines[(uint64_t)k->i % 4],
                                                      .timeout = k->d }));
    return NULL;
}
CALL(dist_close)
{
    tn_dist_close(k->cx ? tn_dist_open(k->cx, (tn_dist_opts){ 0 }) : NULL);
    return NULL;
}
CALL(dist_rank)
{
    tn_dist_rank(k->has.dist);
    return NULL;
}
CALL(dist_size)
{
    tn_dist_size(k->has.dist);
    return NULL;
}
CALL(dist_local_rank)
{
    tn_dist_local_rank(k->has.dist);
    return NULL;
}
CALL(dist_launched)
{
    int rank, size;
    tn_dist_launched(k->j & 1 ? &rank : NULL, k->j & 2 ? &size : NULL);
    return NULL;
}
CALL(dist_variable)
{
    tn_dist_variable((int)k->i);
    return NULL;
}
CALL(dist_engine)
{
    tn_dist_engine(k->has.dist);
    return NULL;
}
CALL(dist_all_reduce)
{
    return tn_dist_all_reduce(k->has.dist, k->x, (tn_reduce_op)(k->i & 7));
}
CALL(dist_all_gather)
{
    return tn_dist_all_gather(k->has.dist, k->x, (int)k->i);
}
CALL(dist_reduce_scatter)
{
    return tn_dist_reduce_scatter(k->has.dist, k->x, (int)k->i, (tn_reduce_op)(k->j & 7));
}
CALL(dist_broadcast)
{
    return tn_dist_broadcast(k->has.dist, k->x, (int)k->i);
}
CALL(optim_distribute)
{
    tn_optim_distribute(k->has.opt, k->has.dist, (tn_distribute_opts){ 0 });
    return NULL;
}
CALL(dist_mean)
{
    return tn_dist_mean(k->has.dist, k->x, k->y);
}
CALL(random_shard)
{
    tn_random_shard(k->cx, k->i, k->j, k->i);
    if (k->cx) tn_random_shard(k->cx, 0, 0, 0);
    return NULL;
}
CALL(layer_sync_batch_norm)
{
    tn_layer_sync_batch_norm(k->has.net, k->has.dist);
    return NULL;
}
CALL(dist_barrier)
{
    tn_dist_barrier(k->has.dist);
    return NULL;
}

// ---- contexts

CALL(random_get)
{
    (void)tn_random_get(k->cx);
    return NULL;
}
CALL(random_set)
{
    tn_random_set(k->cx, tn_random_get(k->cx));
    return NULL;
}
CALL(stop_when)
{
    tn_stop_when(k->cx, NULL, NULL);
    return NULL;
}
CALL(op_of)
{
    CHECK(tn_op_of(k->x) != NULL);
    return NULL;
}

// clang-format off
const call calls_of_training[] = {
    O(random_get), O(random_set), O(stop_when), Q(op_of),
    O(sgd), O(adam), O(adamw), O(rmsprop), O(adagrad), O(lbfgs), O(minimize), O(optim_clip_each), O(adadelta), O(nadam), O(lamb), O(lion), O(muon),
    O(optim_average_to), O(plateau_step), O(optim_add_group), O(step), O(optim_step),
    O(optim_zero_grad), O(optim_clip_norm), O(optim_grad_norm), O(optim_clip_value), Q(optim_lr), O(optim_set_lr), O(optim_set),
    O(optim_set_schedule), Q(optim_updates), O(optim_loss_scale), O(optim_skipped), Q(optim_free),
    O(next), O(digits), O(idx), O(idx_files), O(idx_read), O(image_read), O(image_read_with), O(images),
    O(image_grid), O(image_write), O(image_write_with), O(image_print), O(image_print_with), O(cifar10), O(csv),
    O(text), O(arrays), O(dataset), Q(data_info), Q(data_count), Q(data_batches), Q(data_schema), Q(data_class_name), Q(data_row), Q(data_skipped),
    O(data_shuffle), O(data_drop_last), O(data_shard), O(data_split), O(data_augment), Q(data_cursor), O(data_seek), O(data_rewind),
    Q(data_free),
    O(tokenizer_open), O(tokenizer_gpt2), Q(tokenizer_count), O(tokenizer_encode),
    O(tokenizer_encode_with), O(tokenizer_decode), O(tokenizer_stream), Q(tokenizer_longest),
    O(tokenizer_token), O(tokenizer_id), O(tokenizer_is_special), Q(tokenizer_free),
    O(report_open), O(report_read), O(report_scalar), O(report_rewind), O(report_setting), O(report_figure), O(report_sample), O(report_confusion), O(report_write), O(report_compare), Q(report_close),
    O(tensorboard_open), O(tensorboard_scalar), O(tensorboard_histogram), O(tensorboard_image), Q(tensorboard_close),
    O(onnx_open), Q(onnx_close), Q(onnx_inputs), Q(onnx_outputs), Q(onnx_input), Q(onnx_output), O(onnx_run), O(onnx_cast), O(onnx_layer), O(onnx_save), O(onnx_nodes), Q(onnx_node_at), Q(onnx_node_value),
    O(file_open), Q(file_count), Q(file_info), Q(file_name), O(file_tensor), Q(file_meta),
    Q(file_meta_key), Q(file_free), O(file_write), O(npy_read), O(npy_write),
    O(save), O(save_with), O(load), O(load_with), O(checkpoint_save), O(checkpoint_load),
    O(dist_open), Q(dist_close), Q(dist_rank), Q(dist_size), Q(dist_local_rank), Q(dist_launched), Q(dist_variable), Q(dist_engine), Q(dist_barrier),
    O(dist_all_reduce), O(dist_all_gather), O(dist_reduce_scatter), O(dist_broadcast), O(optim_distribute), O(dist_mean), O(random_shard), O(layer_sync_batch_norm),
    { 0 },
};
// clang-format on
