// peer_rows.c: the table of ops that programs are made of.
#include "peer.h"

#include <string.h>

// clang-format off
#define UNARY(n, needs, weight)        { #n, &form_unary, { .one = tn_##n }, needs, weight, NULL, NULL, NULL, NULL, NULL }
#define UNARY_AS(n, needs, weight, py) { #n, &form_unary, { .one = tn_##n }, needs, weight, py, NULL, NULL, NULL, NULL }
#define BINARY(n, needs, weight)       { #n, &form_binary, { .two = tn_##n }, needs, weight, NULL, NULL, NULL, NULL, NULL }
#define BINARY_AS(n, needs, weight, py) { #n, &form_binary, { .two = tn_##n }, needs, weight, py, NULL, NULL, NULL, NULL }
#define NUMBER(n, needs, weight, py)   { #n, &form_number, { .number = tn_##n }, needs, weight, py, NULL, NULL, NULL, NULL }
#define REDUCE(n, needs, weight, py)   { #n, &form_reduce, { .axis = tn_##n }, needs, weight, py, NULL, tn_##n##_keep, tn_##n##_all, tn_##n##_axes }
#define ARG(n, needs, weight)          { #n, &form_arg, { .axis = tn_##n }, needs, weight, NULL, NULL, tn_##n##_keep, tn_##n##_all, NULL }
#define SCAN(n, needs, weight)         { #n, &form_scan, { .axis = tn_##n }, needs, weight, NULL, NULL, NULL, NULL, NULL }
#define PLAIN(n, form, needs, weight)  { #n, &form, { NULL }, needs, weight, NULL, NULL, NULL, NULL, NULL }
#define WITH(n, form, member, needs, weight, py) { #n, &form, { .member = tn_##n }, needs, weight, py, NULL, NULL, NULL, NULL }
#define LOSS(n, form, member, needs, weight, py) { #n, &form, { .member = tn_##n##_with }, needs, weight, py, NULL, NULL, NULL, NULL }
#define LOSS_AS(n, form, member, needs, weight, py, c) { #n, &form, { .member = tn_##n##_with }, needs, weight, py, c, NULL, NULL, NULL }

#define MOVES (KEEPS_EXACT)
#define VIEWS (KEEPS_EXACT | KEEPS_DISTINCT | IS_VIEW)

const peer_row peer_data_row = { "data", &form_data, { NULL }, 0, 0, NULL, NULL, NULL, NULL, NULL };
const peer_row peer_grad_row = { "grad", &form_grad, { NULL }, 0, 0, NULL, NULL, NULL, NULL, NULL };

const peer_row peer_rows[] = {
    // ---- maps
    UNARY(neg, NO_BOOL | KEEPS_EXACT | KEEPS_DISTINCT | SAVES_NOTHING, 3),
    UNARY(abs, NO_BOOL | NEEDS_EXACT | KEEPS_EXACT, 2),
    UNARY(sign, NEEDS_EXACT, 2),
    UNARY(floor, NO_BOOL | NEEDS_EXACT | KEEPS_EXACT, 2),
    UNARY(ceil, NO_BOOL | NEEDS_EXACT | KEEPS_EXACT, 2),
    UNARY(round, NO_BOOL | NEEDS_EXACT | KEEPS_EXACT, 2),
    UNARY(trunc, NO_BOOL | NEEDS_EXACT | KEEPS_EXACT, 2),
    UNARY(sqrt, NEEDS_POSITIVE, 2),
    UNARY(rsqrt, NEEDS_POSITIVE, 2),
    UNARY(reciprocal, NEEDS_NONZERO, 2),
    UNARY(square, 0, 3),
    UNARY(exp, NEEDS_SMALL, 4),
    UNARY(exp2, NEEDS_SMALL, 2),
    UNARY(expm1, NEEDS_SMALL, 2),
    UNARY(log, NEEDS_POSITIVE, 2),
    UNARY(log2, NEEDS_POSITIVE, 2),
    UNARY(log1p, NEEDS_POSITIVE, 2),
    UNARY(sin, 0, 3),
    UNARY(cos, 0, 3),
    UNARY(tan, 0, 2),
    UNARY(atan, 0, 2),
    UNARY(tanh, 0, 3),
    UNARY(erf, 0, 2),
    UNARY(sinh, NEEDS_SMALL, 1),
    UNARY(cosh, NEEDS_SMALL, 1),
    UNARY(asinh, 0, 1),
    UNARY(log10, NEEDS_POSITIVE, 1),
    UNARY(lgamma, NEEDS_POSITIVE, 1),
    UNARY(digamma, NEEDS_POSITIVE, 1),
    UNARY(isnan, 0, 1),
    UNARY(isinf, 0, 1),
    UNARY(isfinite, 0, 1),
    UNARY(logical_not, NEEDS_EXACT, 1),
    UNARY_AS(bit_not, NEEDS_INT, 1, "torch.bitwise_not($0)"),
    UNARY_AS(relu, NO_BOOL | NEEDS_EXACT | KEEPS_EXACT, 4, "F.relu($0)"),
    UNARY(sigmoid, 0, 3),
    UNARY_AS(silu, NEEDS_FLOAT, 2, "F.silu($0)"),
    BINARY_AS(swiglu, NEEDS_FLOAT, 2, "F.silu($0) * $1"),
    UNARY_AS(gelu, NEEDS_FLOAT, 2, "F.gelu($0)"),
    UNARY_AS(gelu_tanh, NEEDS_FLOAT, 2, "F.gelu($0, approximate='tanh')"),
    // PyTorch takes x itself for softplus above 20, where the difference is below what f32 can hold.
    UNARY_AS(softplus, NEEDS_FLOAT, 2, "F.softplus($0, threshold=80)"),
    UNARY_AS(hardswish, NEEDS_FLOAT | NEEDS_EXACT, 2, "F.hardswish($0)"),
    BINARY(add, SUMS | SAVES_NOTHING, 8),
    BINARY(sub, NO_BOOL | SUMS | SAVES_NOTHING, 5),
    BINARY(mul, MULTIPLIES | SAVES_NOTHING, 8),
    BINARY(div, NEEDS_NONZERO, 4),
    BINARY(pow, NO_BOOL | NEEDS_POSITIVE, 3),
    BINARY(remainder, NO_BOOL | NEEDS_EXACT | NEEDS_NONZERO, 2),
    BINARY(floor_divide, NO_BOOL | NEEDS_EXACT | NEEDS_NONZERO, 2),
    BINARY(fmod, NO_BOOL | NEEDS_EXACT | NEEDS_NONZERO, 1),
    BINARY(atan2, NEEDS_NONZERO, 1),
    BINARY(hypot, NEEDS_FLOAT | NEEDS_NONZERO, 1),
    BINARY(logaddexp, NEEDS_FLOAT, 1),
    BINARY(maximum, NEEDS_EXACT | KEEPS_EXACT, 3),
    BINARY(minimum, NEEDS_EXACT | KEEPS_EXACT, 3),
    BINARY(eq, NEEDS_EXACT, 1),
    BINARY(ne, NEEDS_EXACT, 1),
    BINARY(lt, NEEDS_EXACT, 2),
    BINARY(le, NEEDS_EXACT, 1),
    BINARY(gt, NEEDS_EXACT, 1),
    BINARY(ge, NEEDS_EXACT, 1),
    BINARY(logical_and, NEEDS_EXACT, 1),
    BINARY(logical_or, NEEDS_EXACT, 1),
    BINARY(logical_xor, NEEDS_EXACT, 1),
    BINARY_AS(bit_and, NEEDS_INT, 1, "torch.bitwise_and($0, $1)"),
    BINARY_AS(bit_or, NEEDS_INT, 1, "torch.bitwise_or($0, $1)"),
    BINARY_AS(bit_xor, NEEDS_INT, 1, "torch.bitwise_xor($0, $1)"),
    BINARY_AS(shl, NEEDS_INT | NO_BOOL, 1, "torch.bitwise_left_shift($0, $1)"),
    BINARY_AS(shr, NEEDS_INT | NO_BOOL, 1, "torch.bitwise_right_shift($0, $1)"),
    NUMBER(add_s, 0, 3, "$0 + #x"),
    NUMBER(sub_s, NO_BOOL, 2, "$0 - #x"),
    NUMBER(rsub_s, NO_BOOL, 2, "#x - $0"),
    NUMBER(mul_s, 0, 3, "$0 * #x"),
    NUMBER(div_s, 0, 2, "$0 / #x"),
    NUMBER(rdiv_s, NEEDS_NONZERO, 2, "#x / $0"),
    NUMBER(pow_s, NO_BOOL | NEEDS_POSITIVE, 3, "$0 ** #x"),
    NUMBER(maximum_s, NO_BOOL | NEEDS_EXACT | BETWEEN, 2, "torch.clamp($0, min=#x)"),
    NUMBER(minimum_s, NO_BOOL | NEEDS_EXACT | BETWEEN, 2, "torch.clamp($0, max=#x)"),
    NUMBER(eq_s, NEEDS_EXACT, 1, "$0 == #x"),
    NUMBER(ne_s, NEEDS_EXACT, 1, "$0 != #x"),
    NUMBER(lt_s, NEEDS_EXACT, 1, "$0 < #x"),
    NUMBER(le_s, NEEDS_EXACT, 1, "$0 <= #x"),
    NUMBER(gt_s, NEEDS_EXACT, 1, "$0 > #x"),
    NUMBER(ge_s, NEEDS_EXACT, 1, "$0 >= #x"),
    NUMBER(leaky_relu, NEEDS_FLOAT | NEEDS_EXACT | BETWEEN, 2, "F.leaky_relu($0, #x)"),
    NUMBER(elu, NEEDS_FLOAT | NEEDS_EXACT | BETWEEN, 2, "F.elu($0, #x)"),
    PLAIN(clamp, form_clamp, NO_BOOL | NEEDS_EXACT, 2),
    PLAIN(cast, form_cast, KEEPS_EXACT, 6),
    PLAIN(where, form_where, KEEPS_EXACT, 4),
    PLAIN(masked_fill, form_masked_fill, 0, 3),
    // ---- reductions and scans
    REDUCE(sum, SUMS | SAVES_NOTHING, 8, NULL),
    REDUCE(mean, NEEDS_FLOAT, 5, NULL),
    REDUCE(prod, 0, 3, "prod($0, #A, #b)"),
    REDUCE(max, NEEDS_EXACT | KEEPS_EXACT, 3, "torch.amax($0, #A, keepdim=#b)"),
    REDUCE(min, NEEDS_EXACT | KEEPS_EXACT, 3, "torch.amin($0, #A, keepdim=#b)"),
    REDUCE(var, NEEDS_FLOAT, 3, "var($0, #A, #b)"),
    REDUCE(std, NEEDS_FLOAT, 2, "std($0, #A, #b)"),
    REDUCE(norm, NEEDS_FLOAT, 2, "torch.linalg.vector_norm($0, dim=#A, keepdim=#b)"),
    REDUCE(logsumexp, NEEDS_FLOAT, 3, NULL),
    REDUCE(any, NEEDS_EXACT, 2, NULL),
    REDUCE(all, NEEDS_EXACT, 2, NULL),
    ARG(argmax, NEEDS_EXACT | NO_BOOL, 2),
    ARG(argmin, NEEDS_EXACT | NO_BOOL, 2),
    SCAN(cumsum, SUMS, 3),
    SCAN(cumprod, 0, 2),
    SCAN(softmax, NEEDS_FLOAT, 4),
    SCAN(log_softmax, NEEDS_FLOAT, 3),
    // ---- views
    PLAIN(slice, form_slice, VIEWS, 6),
    PLAIN(select, form_select, VIEWS, 3),
    WITH(squeeze, form_squeeze, axis, VIEWS, 2, NULL),
    WITH(unsqueeze, form_unsqueeze, axis, VIEWS, 3, NULL),
    PLAIN(transpose, form_transpose, VIEWS, 4),
    PLAIN(permute, form_permute, VIEWS, 3),
    PLAIN(expand, form_expand, KEEPS_EXACT | IS_VIEW, 3),
    // PyTorch's flip copies.
    WITH(flip, form_flip, axis, VIEWS | FREEZES, 3, NULL),
    PLAIN(diagonal, form_diagonal, VIEWS, 2),
    PLAIN(window, form_window, KEEPS_EXACT | IS_VIEW, 2),
    UNARY_AS(detach, VIEWS | FREEZES, 2, "$0.detach()"),
    PLAIN(reshape, form_reshape, VIEWS, 5),
    PLAIN(flatten, form_flatten, VIEWS, 2),
    PLAIN(split, form_split, VIEWS | FREEZES, 2),
    PLAIN(chunk, form_chunk, VIEWS | FREEZES, 2),
    // ---- movement; Tenon's results never share memory here, PyTorch's sometimes do
    UNARY_AS(contiguous, MOVES | SAVES_NOTHING, 2, "$0.contiguous().clone()"),
    UNARY_AS(clone, MOVES | KEEPS_DISTINCT | SAVES_NOTHING, 6, "$0.clone()"),
    PLAIN(channels_last, form_channels_last, NEEDS_FLOAT | MOVES, 2),
    PLAIN(concat, form_concat, MOVES, 4),
    PLAIN(stack, form_stack, MOVES, 3),
    PLAIN(repeat, form_repeat, MOVES, 2),
    PLAIN(roll, form_roll, MOVES, 2),
    PLAIN(pad, form_pad, 0, 3),
    WITH(tril, form_band, whole, MOVES, 2, NULL),
    WITH(triu, form_band, whole, MOVES, 2, NULL),
    PLAIN(gather, form_gather, MOVES, 3),
    PLAIN(take_along_axis, form_take, MOVES, 2),
    PLAIN(index_select, form_index_select, MOVES, 3),
    PLAIN(embedding, form_embedding, NEEDS_FLOAT | MOVES, 3),
    PLAIN(scatter, form_scatter, MOVES, 2),
    PLAIN(scatter_add, form_scatter_add, NO_BOOL | SUMS, 3),
    PLAIN(one_hot, form_one_hot, 0, 1),
    PLAIN(sort, form_sort, NEEDS_EXACT | KEEPS_EXACT, 3),
    PLAIN(argsort, form_argsort, NEEDS_EXACT, 2),
    PLAIN(topk, form_topk, NEEDS_EXACT | NEEDS_DISTINCT | NO_BOOL | KEEPS_EXACT, 3),
    // ---- writes and reads
    WITH(assign, form_write, two, WRITES | KEEPS_EXACT, 3, "$0.copy_($1)"),
    WITH(add_, form_write, two, WRITES | SUMS, 4, NULL),
    WITH(sub_, form_write, two, WRITES | SUMS, 2, NULL),
    WITH(mul_, form_write, two, WRITES, 3, NULL),
    WITH(div_, form_write, two, WRITES | NEEDS_FLOAT | NEEDS_NONZERO, 2, NULL),
    WITH(fill_, form_write_number, number, WRITES, 2, NULL),
    PLAIN(eval_of, form_read, 0, 2),
    // ---- products and networks
    PLAIN(matmul, form_matmul, NO_BOOL | MULTIPLIES, 8),
    PLAIN(linear, form_linear, NEEDS_FLOAT | MULTIPLIES, 4),
    PLAIN(conv1d, form_conv1d, NEEDS_FLOAT | MULTIPLIES, 2),
    PLAIN(conv2d, form_conv2d, NEEDS_FLOAT | MULTIPLIES, 4),
    PLAIN(conv3d, form_conv3d, NEEDS_FLOAT | MULTIPLIES, 2),
    PLAIN(conv_transpose1d, form_conv_transpose1d, NEEDS_FLOAT | MULTIPLIES, 2),
    PLAIN(conv_transpose2d, form_conv_transpose2d, NEEDS_FLOAT | MULTIPLIES, 2),
    WITH(max_pool1d, form_pool1d, pool1d, NEEDS_FLOAT | NEEDS_EXACT | KEEPS_EXACT, 2, NULL),
    WITH(avg_pool1d, form_pool1d, pool1d, NEEDS_FLOAT, 2, "F.avg_pool1d($0, #0, #2, #4, count_include_pad=not #b)"),
    WITH(max_pool2d, form_pool2d, pool2d, NEEDS_FLOAT | NEEDS_EXACT | KEEPS_EXACT, 3, NULL),
    WITH(avg_pool2d, form_pool2d, pool2d, NEEDS_FLOAT, 2, "F.avg_pool2d($0, (#0, #1), (#2, #3), (#4, #5), count_include_pad=not #b)"),
    WITH(adaptive_avg_pool2d, form_adaptive, sizes, NEEDS_FLOAT, 1, NULL),
    WITH(adaptive_max_pool2d, form_adaptive, sizes, NEEDS_FLOAT | NEEDS_EXACT | KEEPS_EXACT, 1, NULL),
    PLAIN(layer_norm, form_layer_norm, NEEDS_FLOAT, 3),
    PLAIN(rms_norm, form_rms_norm, NEEDS_FLOAT, 2),
    PLAIN(group_norm, form_group_norm, NEEDS_FLOAT, 2),
    PLAIN(batch_norm, form_batch_norm, NEEDS_FLOAT | FREEZES, 3),
    PLAIN(attention, form_attention, NEEDS_FLOAT, 3),
    LOSS(cross_entropy, form_class_loss, by_class, NEEDS_FLOAT, 3, "F.cross_entropy($0, $1, weight=$2, ignore_index=#1, reduction=#R, label_smoothing=#x)"),
    LOSS(nll, form_class_loss, by_class, NEEDS_FLOAT, 2, "F.nll_loss($0, $1, weight=$2, ignore_index=#1, reduction=#R)"),
    LOSS(mse, form_loss, loss, NEEDS_FLOAT, 2, "F.mse_loss($0, $1, reduction=#R)"),
    LOSS(l1, form_loss, loss, NEEDS_FLOAT | NEEDS_EXACT, 2, "F.l1_loss($0, $1, reduction=#R)"),
    LOSS_AS(huber, form_loss, loss, NEEDS_FLOAT | NEEDS_EXACT, 2, "F.huber_loss($0, $1, reduction=#R, delta=#x)", "tn_huber_with($0, $1, (tn_loss_opts){ .reduce = #R, .delta = #x })"),
    LOSS(bce, form_loss, loss, NEEDS_FLOAT | NEEDS_SHARE, 2, "F.binary_cross_entropy($0, $1, reduction=#R)"),
    LOSS(bce_logits, form_loss, loss, NEEDS_FLOAT, 2, "F.binary_cross_entropy_with_logits($0, $1, reduction=#R)"),
    LOSS_AS(kl, form_loss, loss, NEEDS_FLOAT, 2, "F.kl_div($0, $1, reduction=#R, log_target=#b)", "tn_kl_with($0, $1, (tn_loss_opts){ .reduce = #R, .log_target = #b })"),
    { 0 },
};
// clang-format on

const peer_row *peer_find_row(const char *name)
{
    for (const peer_row *r = peer_rows; r->name; r++)
        if (!strcmp(r->name, name)) return r;
    return !strcmp(name, "grad") ? &peer_grad_row : !strcmp(name, "data") ? &peer_data_row : NULL;
}
