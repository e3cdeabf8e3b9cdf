// calls.c: the table of calls. Contexts, tensors, ops: a wrapper for each function of a signature
// of its own. Layers are in calls_layers.c, what surrounds them in calls_training.c.
#include "call_rows.h"
#include "rules_kit.h"

#include <math.h>
#include <stdlib.h>

FILE *calls_nowhere(void)
{
    static FILE *f;
    if (!f) f = fopen("/dev/null", "w");
    return f;
}

const int64_t *calls_shape(const call_args *k)
{
    static int64_t size[16] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    size[0]                 = k->i;
    size[1]                 = k->j;
    return size;
}

static tn_dtype dtype_of(const call_args *k)
{
    return (tn_dtype)(k->j & 15);
}

// ---- context, scope, error

CALL(open)
{
    tn_close(tn_open(k->x ? "ref" : "no such device"));
    return NULL;
}
CALL(open_with)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){
        .device = "cpu", .threads = (int)k->i, .mem_limit = k->j, .flush_nodes = k->i });
    tn_close(cx);
    return NULL;
}
CALL(close)
{
    (void)k;
    tn_close(NULL);
    return NULL;
}
CALL(ctx_leave)
{
    if (tn_ctx_leave(k->cx) == TN_OK) tn_ctx_enter(k->cx);
    return NULL;
}
CALL(ctx_enter)
{
    tn_ctx_enter(k->cx);
    return NULL;
}
CALL(ctx_take)
{
    (void)k;  // it may be called on any thread, and the context is then that thread's
    tn_ctx_take(NULL);
    return NULL;
}
CALL(ctx_device)
{
    tn_ctx_device(k->cx);
    return NULL;
}
CALL(seed)
{
    tn_seed(k->cx, (uint64_t)k->i);
    return NULL;
}
CALL(begin)
{
    tn_scope *s = tn_begin(k->cx);
    if (s) tn_end(s);
    return NULL;
}
CALL(end)
{
    tn_scope *s = k->cx ? tn_begin(k->cx) : NULL;
    if (s || !k->cx) tn_end(s);
    return NULL;
}
CALL(keep)
{
    return tn_keep(k->x);
}
CALL(want)
{
    return tn_want(k->x);
}
CALL(retain)
{
    tn_tensor *y = tn_detach(k->x);
    tn_retain(y);
    tn_release(y);
    return NULL;
}
CALL(release)
{
    tn_tensor *y = tn_detach(k->x);
    tn_retain(y);
    tn_retain(y);
    tn_release(y);
    tn_release(y);
    return NULL;
}
CALL(drop)
{
    tn_drop(tn_detach(k->x));
    return NULL;
}
CALL(error)
{
    tn_error(k->cx);
    return NULL;
}
CALL(escape)
{
    char text[8];
    CHECK(tn_escape(text, (size_t)k->i % sizeof text, k->i ? "a\033\xff" : NULL) <= 3);
    return NULL;
}

CALL(error_text)
{
    tn_error_text(k->cx);
    return NULL;
}
CALL(error_clear)
{
    (void)k;
    tn_error_clear(NULL);
    return NULL;
}
CALL(error_set)
{
    return tn_error_set(k->cx, TN_EARG, "error_set: as asked");
}
CALL(on_error)
{
    tn_on_error(k->cx, NULL, NULL);
    return NULL;
}
CALL(on_warning)
{
    tn_on_warning(k->cx, NULL, NULL);
    return NULL;
}
CALL(status_name)
{
    CHECK(tn_status_name((tn_status)k->i) != NULL);
    return NULL;
}
CALL(version)
{
    (void)k;
    CHECK(tn_version() != NULL);
    return NULL;
}

// ---- tensors

static const char zeros[1024];

CALL(from)
{
    return tn_from(k->cx, dtype_of(k), 2, calls_shape(k), zeros);
}
CALL(borrow)
{
    return tn_borrow(k->cx, dtype_of(k), 2, calls_shape(k), (void *)zeros, NULL, NULL);
}
CALL(from_dlpack)
{
    tn_dl_managed m = { .major  = TN_DL_MAJOR,
                        .tensor = { .data   = (void *)zeros,
                                    .device = { TN_DL_CPU, 0 },
                                    .ndim   = 2,
                                    .dtype  = { 2, 32, 1 },
                                    .shape  = (int64_t *)(uintptr_t)calls_shape(k) } };
    return tn_from_dlpack(k->cx, &m);
}
CALL(from_dlpack_unversioned)
{
    tn_dl_unversioned m = { .tensor = { .data   = (void *)zeros,
                                        .device = { TN_DL_CPU, 0 },
                                        .ndim   = 2,
                                        .dtype  = { 2, 32, 1 },
                                        .shape  = (int64_t *)(uintptr_t)calls_shape(k) } };
    return tn_from_dlpack_unversioned(k->cx, &m);
}
CALL(to_dlpack)
{
    tn_dl_managed *m = tn_to_dlpack(k->x, (tn_dlpack_opts){ .copy = k->i & 1, .host = k->i & 2 });
    if (m) m->deleter(m);
    return NULL;
}
CALL(to_dlpack_unversioned)
{
    tn_dl_unversioned *m = tn_to_dlpack_unversioned(k->x, (tn_dlpack_opts){ 0 });
    if (m) m->deleter(m);
    return NULL;
}
CALL(ctx_stream)
{
    tn_ctx_stream(k->cx);
    return NULL;
}
CALL(ctx_wait_stream)
{
    tn_ctx_wait_stream(k->cx, tn_ctx_stream(k->cx));
    return NULL;
}
CALL(ctx_signal_stream)
{
    tn_ctx_signal_stream(k->cx, tn_ctx_stream(k->cx));
    return NULL;
}
CALL(ctx_use_stream)
{
    tn_ctx_use_stream(k->cx, tn_ctx_stream(k->cx));
    return NULL;
}
CALL(zeros)
{
    return tn_zeros(k->cx, dtype_of(k), (int)k->i, calls_shape(k));
}
CALL(ones)
{
    return tn_ones(k->cx, dtype_of(k), 2, calls_shape(k));
}
CALL(full)
{
    return tn_full(k->cx, dtype_of(k), 1, calls_shape(k), k->d);
}
CALL(full_i64)
{
    return tn_full_i64(k->cx, dtype_of(k), 1, calls_shape(k), k->j);
}
CALL(scalar_i64)
{
    return tn_scalar_i64(k->cx, k->i);
}
CALL(arange_i64)
{
    return tn_arange_i64(k->cx, dtype_of(k), 0, k->i, k->j);
}
CALL(scalar)
{
    return tn_scalar(k->cx, k->d);
}
CALL(arange)
{
    return tn_arange(k->cx, dtype_of(k), k->d, (double)k->i, (double)k->j);
}
CALL(linspace)
{
    return tn_linspace(k->cx, dtype_of(k), k->d, (double)k->j, k->i);
}
CALL(eye)
{
    return tn_eye(k->cx, dtype_of(k), k->i, k->j);
}
CALL(rand)
{
    return tn_rand(k->cx, dtype_of(k), 2, calls_shape(k));
}
CALL(randn)
{
    return tn_randn(k->cx, dtype_of(k), 2, calls_shape(k));
}
CALL(randint)
{
    return tn_randint(k->cx, dtype_of(k), k->i, k->j, 1, (int64_t[]){ 3 });
}
CALL(randperm)
{
    return tn_randperm(k->cx, k->i);
}
CALL(copy_to)
{
    return tn_copy_to(k->cx, k->x);
}
CALL(ctx_of)
{
    tn_ctx_of(k->x);
    return NULL;
}
CALL(dtype_of)
{
    tn_dtype_of(k->x);
    return NULL;
}
CALL(dtype_name)
{
    CHECK(tn_dtype_name((tn_dtype)k->i) != NULL);
    return NULL;
}
CALL(rank)
{
    tn_rank(k->x);
    return NULL;
}
CALL(size)
{
    tn_size(k->x, (int)k->i);
    return NULL;
}
CALL(stride)
{
    tn_stride(k->x, (int)k->i);
    return NULL;
}
CALL(offset)
{
    tn_offset(k->x);
    return NULL;
}
CALL(count)
{
    tn_count(k->x);
    return NULL;
}
CALL(is_view)
{
    tn_is_view(k->x);
    return NULL;
}
CALL(is_contiguous)
{
    tn_is_contiguous(k->x);
    return NULL;
}
CALL(name)
{
    CHECK(tn_name(k->x) != NULL);
    return NULL;
}
CALL(set_name)
{
    tn_set_name(k->x, "a name");
    return tn_set_name(k->x, NULL);
}
CALL(item)
{
    tn_item(k->x);
    return NULL;
}
CALL(item_i64)
{
    tn_item_i64(k->x);
    return NULL;
}
CALL(item_late)
{
    tn_item_late(k->x);
    return NULL;
}
CALL(read)
{
    static char room[1 << 16];
    tn_read(k->x, dtype_of(k), room, tn_count(k->x) <= 8192 ? tn_count(k->x) : -1);
    tn_read(k->x, TN_F32, k->i ? room : NULL, k->i);
    return NULL;
}
CALL(ptr)
{
    tn_ptr(k->x);
    return NULL;
}
CALL(print)
{
    tn_print(k->x, k->i ? calls_nowhere() : NULL);
    return NULL;
}
CALL(eval)
{
    tn_eval(k->cx);
    return NULL;
}
CALL(explain)
{
    tn_explain(k->cx, k->i ? calls_nowhere() : NULL);
    return NULL;
}
CALL(explain_with)
{
    tn_explain_with(k->cx, k->i ? calls_nowhere() : NULL,
                    (tn_explain_opts){ .source = k->j, .html = k->i > 1 });
    return NULL;
}
CALL(profile_begin)
{
    tn_profile_begin(k->cx);
    return NULL;
}
CALL(profile_end)
{
    tn_profile_end(k->cx);
    return NULL;
}
CALL(profile_write)
{
    tn_profile_write(k->cx, k->i ? "/dev/null" : "/nowhere/profile.json");
    return NULL;
}
CALL(profile_compare)
{
    tn_profile_compare(k->cx, k->i ? "/dev/null" : NULL, "/nowhere/profile.json", "/dev/null");
    return NULL;
}
CALL(tune)
{
    tn_tune(k->cx, k->i ? 0 : -1.0);
    return NULL;
}
CALL(tune_export)
{
    tn_tune_export(k->cx, k->i ? "/dev/null" : NULL);
    return NULL;
}
CALL(tune_import)
{
    tn_tune_import(k->cx, k->i ? "/dev/null" : NULL);
    return NULL;
}
CALL(page_write)
{
    tn_page_write(k->cx, k->i ? "/dev/null" : NULL,
                  (tn_page){ .title = "page", .data = k->j ? "{}" : "{", .script = "" });
    return NULL;
}
CALL(ctx_peak)
{
    tn_ctx_peak(k->cx, TN_I64);  // measures nothing
    return NULL;
}
CALL(ctx_plan_memory)
{
    tn_ctx_plan_memory(k->cx);
    return NULL;
}
CALL(eval_of)
{
    tn_eval_of(k->x);
    return NULL;
}
CALL(eval_into)
{
    // Between two lines of 64 bytes, so that it is copied there, and x does not keep the room.
    static _Alignas(64) char room[1 << 16];
    tn_eval_into(1, &k->x, (void *[]){ tn_count(k->x) <= 8000 ? room + 8 : NULL }, NULL, NULL);
    return NULL;
}
CALL(sync)
{
    tn_sync(k->cx);
    return NULL;
}

// ---- views

CALL(slice)
{
    return tn_slice(k->x, (int)k->i, k->j, k->i, (int64_t)(k->d == k->d ? k->i : 1));
}
CALL(select)
{
    return tn_select(k->x, (int)k->i, k->j);
}
CALL(transpose)
{
    return tn_transpose(k->x, (int)k->i, (int)k->j);
}
CALL(permute)
{
    return tn_permute(k->x, (int)k->i & 15, (int[16]){ (int)k->j, 0, 1, 2 });
}
CALL(expand)
{
    return tn_expand(k->x, (int)k->i, (int64_t[16]){ k->j, k->i, 1, 1, 1, 1, 1, 1 });
}
CALL(diagonal)
{
    return tn_diagonal(k->x, k->j, (int)k->i, (int)k->j);
}
CALL(window)
{
    return tn_window(k->x, (int)k->i, k->j, k->i);
}
CALL(window_dilated)
{
    return tn_window_dilated(k->x, 0, k->i, k->j, k->i);
}
CALL(view)
{
    return tn_view(k->x, (int)k->i, (int64_t[16]){ k->j, -1, 1, 1, 1, 1, 1, 1 });
}
CALL(reshape)
{
    return tn_reshape(k->x, 2, calls_shape(k));
}
CALL(flatten)
{
    return tn_flatten(k->x, (int)k->i, (int)k->j);
}

// ---- writes: to a copy, so that the arguments stay

CALL(assign)
{
    return tn_assign(tn_clone(k->x), k->y);
}
CALL(add_)
{
    return tn_add_(tn_clone(k->x), k->y);
}
CALL(sub_)
{
    return tn_sub_(tn_clone(k->x), k->y);
}
CALL(mul_)
{
    return tn_mul_(tn_clone(k->x), k->y);
}
CALL(div_)
{
    return tn_div_(tn_clone(k->x), k->y);
}
CALL(fill_)
{
    return tn_fill_(tn_clone(k->x), k->d);
}
CALL(zero_)
{
    return tn_zero_(tn_clone(k->x));
}
CALL(clamp_i64_)
{
    return tn_clamp_i64_(tn_clone(k->x), k->i, k->j);
}
CALL(clamp_)
{
    return tn_clamp_(tn_clone(k->x), k->d, (double)k->i);
}

// ---- maps and movement

CALL(cast)
{
    return tn_cast(k->x, (tn_dtype)k->i);
}
CALL(where)
{
    return tn_where(tn_cast(k->x, TN_BOOL), k->x, k->y);
}
CALL(masked_fill)
{
    return tn_masked_fill(k->x, tn_cast(k->y, TN_BOOL), k->d);
}
CALL(masked_fill_i64)
{
    return tn_masked_fill_i64(k->x, tn_cast(k->y, TN_BOOL), k->i);
}
CALL(clamp_i64)
{
    return tn_clamp_i64(k->x, k->i, k->j);
}
CALL(clamp)
{
    return tn_clamp(k->x, k->d, (double)k->i);
}
CALL(glu)
{
    return tn_glu(k->x, (int)k->i);
}
CALL(dropout)
{
    return tn_dropout(k->x, k->d, k->i & 1);
}
CALL(concat)
{
    return tn_concat((int)k->j & 3, (tn_tensor *const[]){ k->x, k->y, k->x }, (int)k->i);
}
CALL(stack)
{
    return tn_stack((int)k->j & 3, (tn_tensor *const[]){ k->x, k->y, k->x }, (int)k->i);
}
CALL(split)
{
    tn_tensor *y[4] = { 0 };
    return tn_split(k->x, k->i, (int)k->j, 4, y) > 0 ? y[0] : NULL;
}
CALL(chunk)
{
    tn_tensor *y[4] = { 0 };
    return tn_chunk(k->x, (int)(k->i > 4 ? -1 : k->i), (int)k->j, y) > 0 ? y[0] : NULL;
}
CALL(repeat)
{
    return tn_repeat(k->x, (int)k->i, (int64_t[16]){ k->j, 1, 1, 1, 1, 1, 1, 1 });
}
CALL(roll)
{
    return tn_roll(k->x, k->j, (int)k->i);
}
CALL(pad)
{
    int64_t by[TN_MAX_RANK] = { k->i, k->j }, after[TN_MAX_RANK] = { k->j };
    return tn_pad(k->x, by, after, k->d);
}
CALL(pad_i64)
{
    int64_t by[TN_MAX_RANK] = { k->i, k->j }, after[TN_MAX_RANK] = { k->j };
    return tn_pad_i64(k->x, by, after, k->i);
}
CALL(tril)
{
    return tn_tril(k->x, k->i);
}
CALL(triu)
{
    return tn_triu(k->x, k->i);
}
CALL(gather)
{
    return tn_gather(k->x, (int)k->i, tn_cast(k->y, k->j & 1 ? TN_I32 : TN_I64));
}
CALL(take_along_axis)
{
    return tn_take_along_axis(k->x, tn_cast(k->y, TN_I64), (int)k->i);
}
CALL(index_select)
{
    return tn_index_select(k->x, (int)k->i, tn_cast(k->y, TN_I64));
}
CALL(scatter)
{
    return tn_scatter(k->x, (int)k->i, tn_cast(k->y, TN_I64), k->y);
}
CALL(scatter_add)
{
    return tn_scatter_add(k->x, (int)k->i, tn_cast(k->y, TN_I64), k->y);
}
CALL(one_hot)
{
    return tn_one_hot(tn_cast(k->x, TN_I64), k->i);
}
CALL(embed)
{
    return tn_embed(tn_cast(k->y, TN_I64), k->x);
}
CALL(sort)
{
    return tn_sort(k->x, (int)k->i, k->j & 1).values;
}
CALL(argsort)
{
    return tn_argsort(k->x, (int)k->i, k->j & 1);
}
CALL(topk)
{
    return tn_topk(k->x, k->j, (int)k->i, true).values;
}
CALL(multinomial)
{
    return tn_multinomial(k->x, k->i);
}

// ---- networks

static tn_conv_opts conv_of(const call_args *k)
{
    return (tn_conv_opts){ { k->i }, { k->j }, { k->i }, k->j, { 0 } };
}
static tn_pool_opts pool_of(const call_args *k)
{
    return (tn_pool_opts){ { k->i }, { k->j / 2 }, { k->i }, k->i & 1, k->j & 1 };
}
CALL(max_pool3d)
{
    return tn_max_pool3d(k->x, k->j, 1, 1, pool_of(k));
}
CALL(avg_pool3d)
{
    return tn_avg_pool3d(k->x, 1, k->j, 1, pool_of(k));
}
CALL(linear)
{
    return tn_linear(k->x, k->y, k->i & 1 ? k->y : NULL);
}
CALL(conv1d)
{
    return tn_conv1d(k->x, k->y, k->i & 2 ? k->y : NULL, conv_of(k));
}
CALL(conv2d)
{
    return tn_conv2d(k->x, k->y, k->i & 2 ? k->y : NULL, conv_of(k));
}
CALL(conv3d)
{
    return tn_conv3d(k->x, k->y, k->i & 2 ? k->y : NULL, conv_of(k));
}
static tn_conv_opts transposed_of(const call_args *k)
{
    return (tn_conv_opts){ { k->i }, { k->j }, { k->j }, k->i, { k->j / 2 } };
}
CALL(conv_transpose1d)
{
    return tn_conv_transpose1d(k->x, k->y, k->i & 2 ? k->y : NULL, transposed_of(k));
}
CALL(conv_transpose2d)
{
    return tn_conv_transpose2d(k->x, k->y, k->i & 2 ? k->y : NULL, transposed_of(k));
}
CALL(conv_transpose3d)
{
    return tn_conv_transpose3d(k->x, k->y, k->i & 2 ? k->y : NULL, transposed_of(k));
}
CALL(max_pool1d)
{
    return tn_max_pool1d(k->x, k->j, pool_of(k));
}
CALL(avg_pool1d)
{
    return tn_avg_pool1d(k->x, k->j, pool_of(k));
}
CALL(max_pool2d)
{
    return tn_max_pool2d(k->x, k->i, k->j, (tn_pool_opts){ 0 });
}
CALL(avg_pool2d)
{
    return tn_avg_pool2d(k->x, k->i, k->j, pool_of(k));
}
CALL(adaptive_avg_pool2d)
{
    return tn_adaptive_avg_pool2d(k->x, k->i, k->j);
}
CALL(adaptive_max_pool2d)
{
    return tn_adaptive_max_pool2d(k->x, k->i, k->j);
}
CALL(layer_norm)
{
    return tn_layer_norm(k->x, (int)k->i, k->y, k->j & 1 ? k->y : NULL, k->d);
}
CALL(rms_norm)
{
    return tn_rms_norm(k->x, (int)k->i, k->y, k->d);
}
CALL(group_norm)
{
    return tn_group_norm(k->x, k->i, k->y, k->y, k->d);
}
CALL(batch_norm)
{
    tn_tensor *m = k->y ? tn_clone(k->y) : NULL, *v = k->y ? tn_clone(k->y) : NULL;
    return tn_batch_norm(k->x, m, v, k->y, k->y,
                         (tn_batch_norm_opts){ k->i & 1, k->d, k->d, NULL });
}
CALL(rope)
{
    tn_rope_opts o = { .theta   = 100 * k->d,
                       .width   = k->j,
                       .start   = k->i,
                       .scaling = (tn_rope_scaling)(k->i % 5),
                       .factor  = k->d,
                       .trained = k->j };
    return tn_rope(k->x, k->i & 2 ? k->y : NULL, o);
}
CALL(rope_table)
{
    return tn_rope_table(k->x, (tn_rope_opts){ .width = 2 * k->i, .theta = 100 * k->d });
}
CALL(attention)
{
    return tn_attention(k->x, k->y, k->y, (tn_attention_opts){ .causal = k->i & 1, .scale = k->d });
}
CALL(cross_entropy_with)
{
    return tn_cross_entropy_with(
        k->x, tn_cast(k->y, TN_I64),
        (tn_class_opts){
            .label_smoothing = k->d, .ignore = k->i, .use_ignore = k->j & 1, .reduce = k->j & 3 });
}
CALL(nll_with)
{
    return tn_nll_with(k->x, tn_cast(k->y, TN_I64), (tn_class_opts){ .weight = k->y });
}
static tn_loss_opts loss_of(const call_args *k)
{
    return (tn_loss_opts){ .weight = k->i & 1 ? k->y : NULL, .delta = k->d, .reduce = k->j & 3 };
}
CALL(mse_with)
{
    return tn_mse_with(k->x, k->y, loss_of(k));
}
CALL(l1_with)
{
    return tn_l1_with(k->x, k->y, loss_of(k));
}
CALL(huber_with)
{
    return tn_huber_with(k->x, k->y, loss_of(k));
}
CALL(bce_with)
{
    return tn_bce_with(k->x, k->y, loss_of(k));
}
CALL(bce_logits_with)
{
    return tn_bce_logits_with(k->x, k->y, loss_of(k));
}
CALL(kl_with)
{
    return tn_kl_with(k->x, k->y, loss_of(k));
}

// ---- autograd, users' ops, device_count

CALL(grad_mode)
{
    if (k->cx) tn_grad_mode(k->cx, tn_grad_mode(k->cx, true));
    else tn_grad_mode(NULL, true);
    return NULL;
}
CALL(autocast)
{
    if (k->cx) tn_autocast(k->cx, tn_autocast(k->cx, TN_BF16));
    else tn_autocast(NULL, TN_BF16);
    return NULL;
}
CALL(requires_grad)
{
    tn_tensor *x = k->x ? tn_clone(k->x) : NULL;
    return tn_requires_grad(tn_requires_grad(x, true), k->i & 1);
}
CALL(needs_grad)
{
    tn_needs_grad(k->x);
    return NULL;
}
CALL(is_leaf)
{
    tn_is_leaf(k->x);
    return NULL;
}
CALL(backward)
{
    tn_backward(k->x, k->y);
    return NULL;
}
CALL(grad)
{
    tn_tensor *g[3] = { 0 };
    return tn_grad((int)k->i & 1, &k->x, (int)k->j & 1, &k->y, NULL, g) == TN_OK ? g[0] : NULL;
}
CALL(grad_of)
{
    return tn_grad_of(k->x);
}
CALL(has_grad)
{
    tn_has_grad(k->x);
    return NULL;
}
CALL(zero_grad)
{
    tn_zero_grad(k->x);
    return NULL;
}
static tn_tensor *squares(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_square(x[0]);
}
CALL(gradcheck)
{
    tn_gradcheck(k->j & 1 ? squares : NULL, (int)k->i % 3, (tn_tensor *const[]){ k->x, k->y },
                 NULL);
    return NULL;
}
CALL(gradgradcheck)
{
    tn_tensor *const x[] = { k->x, k->y };
    tn_gradgradcheck(k->j & 1 ? squares : NULL, (int)k->i % 3, x, NULL);
    return NULL;
}
CALL(custom)
{
    return tn_custom(&rules_twice, &k->x, NULL, 0);
}
CALL(custom_n)
{
    tn_tensor *y = NULL;
    tn_custom_n(&rules_twice, &k->x, NULL, 0, &y);
    return y;
}
CALL(device_info)
{
    tn_device_info((int)k->i);
    return NULL;
}
CALL(device_count)
{
    (void)k;
    CHECK(tn_device_count() > 0);
    return NULL;
}
CALL(doctor)
{
    tn_doctor(k->i ? calls_nowhere() : NULL);
    return NULL;
}
CALL(ctx_stats)
{
    tn_ctx_stats(k->cx);
    return NULL;
}

// ---- the table

// clang-format off
const call calls_of_tensors[] = {
    Q(open), Q(open_with), Q(close), O(ctx_leave), O(ctx_enter), Q(ctx_take), Q(ctx_device), O(seed), O(begin), O(end),
    O(keep), O(want), Q(drop), Q(retain), Q(release), Q(error), Q(error_text), Q(escape), Q(error_clear), O(error_set), O(on_error), O(on_warning),
    Q(status_name), Q(version),
    O(from), O(borrow), O(zeros), O(ones), O(full), O(full_i64), U(zeros_like), U(ones_like), S(full_like),
    I(full_like_i64), O(scalar), O(scalar_i64), O(arange), O(arange_i64), O(linspace), O(eye), O(rand), O(randn), U(rand_like), U(randn_like),
    O(randint), O(randperm), U(bernoulli), O(copy_to), Q(ctx_of), Q(dtype_of), Q(dtype_name),
    Q(rank), Q(size), Q(stride), Q(offset), Q(count), Q(is_view), Q(is_contiguous), Q(name),
    O(set_name), O(item), O(item_i64), O(item_late), O(read), O(ptr), O(print), O(eval), O(eval_of), O(eval_into),
    O(to_dlpack), O(to_dlpack_unversioned), O(from_dlpack), O(from_dlpack_unversioned), Q(ctx_stream), O(ctx_wait_stream), O(ctx_signal_stream), O(ctx_use_stream),
    O(explain), O(explain_with), O(ctx_plan_memory), O(ctx_peak),
    O(profile_begin), O(profile_end), O(profile_write), O(profile_compare), O(page_write), O(tune), O(tune_export), O(tune_import),
    O(sync),
    O(slice), O(select), A(squeeze), U(squeeze_all), A(unsqueeze), O(transpose), O(permute),
    O(expand), A(flip), O(diagonal), O(window), O(window_dilated), U(detach), O(view), O(reshape),
    O(flatten),
    T(assign), T(add_), T(sub_), T(mul_), T(div_), O(fill_), I(fill_i64_), O(zero_), O(clamp_), O(clamp_i64_),
    U(neg), U(abs), U(sign), U(floor), U(ceil), U(round), U(trunc), U(sqrt), U(rsqrt),
    U(reciprocal), U(square), U(exp), U(exp2), U(expm1), U(log), U(log2), U(log1p), U(sin), U(cos),
    U(tan), U(atan), U(tanh), U(erf), U(isnan), U(isinf), U(isfinite), U(logical_not), U(bit_not),
    B(add), B(sub), B(mul), B(div), B(pow), B(remainder), B(floor_divide), B(maximum), B(minimum),
    B(eq), B(ne), B(lt), B(le), B(gt), B(ge), B(logical_and), B(logical_or), B(logical_xor),
    B(bit_and), B(bit_or), B(bit_xor), B(shl), B(shr),
    S(add_s), S(sub_s), S(rsub_s), S(mul_s), S(div_s), S(rdiv_s), S(pow_s), S(maximum_s),
    S(minimum_s), S(eq_s), S(ne_s), S(lt_s), S(le_s), S(gt_s), S(ge_s),
    I(add_i64), I(sub_i64), I(rsub_i64), I(mul_i64), I(div_i64), I(rdiv_i64), I(pow_i64),
    I(maximum_i64), I(minimum_i64), I(eq_i64), I(ne_i64), I(lt_i64), I(le_i64), I(gt_i64), I(ge_i64),
    O(cast), T(where), T(masked_fill), T(masked_fill_i64), O(clamp), O(clamp_i64), U(relu), S(leaky_relu), S(elu), S(celu), U(selu), B(prelu), U(sigmoid), U(logsigmoid), U(mish),
    U(softsign), O(glu),
    U(silu), U(gelu), U(gelu_tanh), U(softplus), U(hardswish), B(swiglu), O(dropout),
    FOLD(sum), FOLD(mean), FOLD(prod), FOLD(max), FOLD(min), FOLD(var), FOLD(std), FOLD(norm),
    FOLD(logsumexp), FOLD(any), FOLD(all), ARG(argmax), ARG(argmin), A(cumsum), A(cumprod),
    A(softmax), A(log_softmax),
    U(contiguous), U(channels_last), U(clone), O(concat), O(stack), O(split), O(chunk), O(repeat), O(roll), O(pad), O(pad_i64),
    O(tril), O(triu), T(gather), T(take_along_axis), T(index_select), T(scatter), T(scatter_add),
    O(one_hot), T(embed), O(sort), O(argsort), O(topk), O(multinomial),
    B(matmul), T(linear), T(conv1d), T(conv2d), T(conv3d), T(conv_transpose1d),
    T(conv_transpose2d), T(conv_transpose3d), O(max_pool1d), O(avg_pool1d), O(max_pool2d),
    O(avg_pool2d), O(max_pool3d), O(avg_pool3d), O(adaptive_avg_pool2d), O(adaptive_max_pool2d), T(layer_norm), T(rms_norm),
    T(group_norm), T(batch_norm), T(attention), T(rope), O(rope_table),
    B(cross_entropy), T(cross_entropy_with), B(nll), T(nll_with), B(mse), T(mse_with), B(l1),
    T(l1_with), B(huber), T(huber_with), B(bce), T(bce_with), B(bce_logits), T(bce_logits_with),
    B(kl), T(kl_with),
    O(grad_mode), O(autocast), O(requires_grad), Q(needs_grad), Q(is_leaf), T(backward), O(grad), O(grad_of),
    Q(has_grad),
    O(zero_grad), O(gradcheck), O(gradgradcheck), O(custom), O(custom_n), Q(device_info),
    Q(device_count), Q(doctor), Q(ctx_stats),
    { 0 },
};
// clang-format on

const call *calls_at(int i)
{
    static const call *const tables[] = { calls_of_tensors, calls_of_arrays, calls_of_layers,
                                          calls_of_training };
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const call *c = tables[t]; c->name; c++)
            if (i-- == 0) return c;
    return NULL;
}

tn_tensor *calls_do(const call *c, const call_args *k)
{
    if (c->unary) return c->unary(k->x);
    if (c->number) return c->number(k->x, k->d);
    if (c->integer) return c->integer(k->x, k->i);
    if (c->binary) return c->binary(k->x, k->y);
    if (c->axis) return c->axis(k->x, (int)k->i);
    if (c->axes) return c->axes(k->x, (int)k->i, (int[16]){ (int)k->j, 1, 0 }, k->j & 1);
    return c->other(k);
}
