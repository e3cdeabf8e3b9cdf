// table_forms_arrays.c: the functions of tenon/arrays.h that are not maps, as table_forms.c has the
// other ops.
#include "table_forms.h"

// ---- products ----------------------------------------------------------------------------------

FORM(f_einsum, tn_einsum("bij,bjk->bik", 2, x))
FORM(f_einsum_outer, tn_einsum("ij,k->kji", 2, x))
FORM(f_einsum_diagonal, tn_einsum("iji->ij", 1, x))
FORM(f_einsum_dots, tn_einsum("...ij,jk", 2, x))
FORM(f_einsum_three, tn_einsum("ij,jk,kl->il", 3, (tn_tensor *const[]){ x[0], x[1], x[0] }))
FORM(f_tensordot, tn_tensordot(x[0], x[1], 2, (int[]){ 2, 0 }, (int[]){ -1, 1 }))
FORM(f_outer, tn_outer(x[0], x[1]))
FORM(f_cross, tn_cross(x[0], x[1], -1))
FORM(f_trace, tn_trace(x[0]))
FORM(f_kron, tn_kron(x[0], x[1]))
FORM(f_cosine, tn_cosine_similarity(x[0], x[1], 1, 1e-8))

// ---- complex numbers: the last axis of inputs and results holds pairs --------------------------

#define Z(i)    tn_complex(tn_select(x[i], -1, 0), tn_select(x[i], -1, 1))
#define PAIR(y) tn_cast(tn_view_as_real(y), DT)
FORM(f_complex, PAIR(tn_complex(x[0], x[1])))
FORM(f_polar, PAIR(tn_polar(x[0], x[1])))
FORM(f_complex_sum, PAIR(tn_sub(tn_add(Z(0), Z(1)), tn_mul_s(tn_imag(Z(0)), 2))))
FORM(f_complex_mul, PAIR(tn_mul(Z(0), tn_conj(Z(1)))))
FORM(f_complex_real,
     PAIR(tn_div(tn_mul(Z(0), tn_add_s(tn_real(Z(1)), 2)), tn_add_s(tn_square(tn_imag(Z(0))), 1))))
FORM(f_complex_div, PAIR(tn_div(Z(0), tn_add_s(Z(1), 3))))
FORM(f_complex_rdiv, PAIR(tn_rdiv_s(tn_add_s(Z(0), 3), 2)))
FORM(f_complex_abs, tn_cast(tn_abs(Z(0)), DT))
FORM(f_complex_angle, tn_cast(tn_angle(tn_add_s(Z(0), 3)), DT))
FORM(f_complex_exp, PAIR(tn_exp(Z(0))))
FORM(f_complex_log, PAIR(tn_log(tn_add_s(Z(0), 3))))
FORM(f_complex_sqrt, PAIR(tn_sqrt(tn_add_s(Z(0), 3))))
FORM(f_complex_pow, PAIR(tn_pow(tn_add_s(Z(0), 3), Z(1))))
FORM(f_complex_square, PAIR(tn_pow_s(Z(0), 2)))
FORM(f_complex_waves, PAIR(tn_add(tn_sin(Z(0)), tn_cos(Z(0)))))
FORM(f_complex_hyper, PAIR(tn_mul(tn_tanh(Z(0)), tn_sub(tn_sinh(Z(0)), tn_cosh(Z(0))))))
FORM(f_complex_matmul, PAIR(tn_matmul(Z(0), tn_transpose(Z(1), 0, 1))))
FORM(f_complex_vector, PAIR(tn_matmul(tn_select(Z(0), 0, 1), tn_conj(tn_select(Z(1), 0, 0)))))
FORM(f_complex_mean, PAIR(tn_mean(tn_roll(Z(0), 1, 1), 1)))
FORM(f_complex_where, PAIR(tn_where(tn_gt_s(tn_real(Z(0)), 0), Z(1), tn_imag(Z(0)))))
FORM(f_complex_views, PAIR(tn_concat(2,
                                     (tn_tensor *const[]){
                                         tn_reshape(tn_transpose(Z(0), 0, 1), TN_SHAPE(-1)),
                                         tn_flatten(tn_flip(tn_slice(Z(0), 1, 0, 2, 1), 0), 0, 1) },
                                     0)))

// ---- Fourier transforms ------------------------------------------------------------------------

FORM(f_fft, PAIR(tn_fft(Z(0), 0, 1, TN_FFT_BACKWARD)))
FORM(f_ifft, PAIR(tn_ifft(Z(0), 6, 0, TN_FFT_BACKWARD)))
FORM(f_fft_real, PAIR(tn_fft(x[0], 0, -1, TN_FFT_FORWARD)))
FORM(f_fft2, PAIR(tn_fft2(Z(0), NULL, TN_FFT_ORTHO)))
FORM(f_rfft, PAIR(tn_rfft(x[0], 0, -1, TN_FFT_BACKWARD)))
FORM(f_rfft_cut, PAIR(tn_rfft(x[0], 3, 0, TN_FFT_FORWARD)))
FORM(f_irfft, tn_cast(tn_irfft(Z(0), 0, 1, TN_FFT_BACKWARD), DT))
FORM(f_irfft_odd, tn_cast(tn_irfft(Z(0), 5, 1, TN_FFT_ORTHO), DT))
FORM(f_hfft, tn_cast(tn_hfft(Z(0), 7, 1, TN_FFT_BACKWARD), DT))
FORM(f_ihfft, PAIR(tn_ihfft(x[0], 0, 1, TN_FFT_BACKWARD)))
FORM(f_rfftn, PAIR(tn_rfftn(x[0], 0, NULL, NULL, TN_FFT_BACKWARD)))
FORM(f_irfft2, tn_cast(tn_irfft2(Z(0), NULL, TN_FFT_BACKWARD), DT))
FORM(f_fftn, PAIR(tn_fftn(tn_reshape(Z(0), TN_SHAPE(2, 2, 1, 3)), 4, NULL, (int[]){ 3, 0, 2, 1 },
                          TN_FFT_BACKWARD)))
FORM(f_fftshift, PAIR(tn_ifftshift(tn_fftshift(Z(0), 1, (int[]){ 1 }), 0, NULL)))
FORM(f_stft,
     PAIR(tn_stft(x[0], 4,
                  (tn_stft_opts){ .hop = 2, .window = tn_hann_window(CX, TN_F32, 4, false) })))
FORM(f_istft, tn_cast(tn_istft(Z(0), 4, (tn_stft_opts){ .hop = 1, .normalized = true }), DT))

// ---- linear algebra ----------------------------------------------------------------------------

// A symmetric matrix whose eigenvalues are above 1, and a matrix far from singular ones.
static tn_tensor *positive(tn_tensor *x)
{
    return tn_add(tn_matmul(x, tn_transpose(x, -1, -2)),
                  tn_eye(tn_ctx_of(x), tn_dtype_of(x), tn_size(x, -2), tn_size(x, -2)));
}
static tn_tensor *regular(tn_tensor *x)
{
    return tn_add(x, tn_mul_s(tn_eye(tn_ctx_of(x), tn_dtype_of(x), tn_size(x, -1), tn_size(x, -1)),
                              5));
}
// Symmetric, with eigenvalues far from each other.
static tn_tensor *spread(tn_tensor *x)
{
    int64_t    n = tn_size(x, -1);
    tn_tensor *d = tn_cast(tn_arange(tn_ctx_of(x), TN_F32, 0, (double)(6 * n), 6), tn_dtype_of(x));
    return tn_add(tn_add(x, tn_transpose(x, -1, -2)),
                  tn_mul(tn_eye(tn_ctx_of(x), tn_dtype_of(x), n, n), d));
}
// A matrix (3, 4) with the first four values of x[0], in no order, and two of them at one place.
static tn_sparse sparse_of(tn_tensor *v)
{
    tn_sparse a;
    tn_status s = tn_sparse_coo(tn_from(tn_ctx_of(v), TN_I64, TN_SHAPE(2, 5),
                                        (int64_t[]){ 2, 0, 0, 2, 0, 1, 3, 0, 1, 2 }),
                                v, 3, 4, &a);
    return s == TN_OK ? a : (tn_sparse){ 0 };
}
static tn_sparse turned(tn_sparse a)
{
    a.transposed = true;
    return a;
}
static tn_tensor *f_sparse_from_dense(tn_tensor *const *x, void *user)
{
    tn_sparse a;
    (void)user;
    return tn_sparse_from_dense(x[0], &a) == TN_OK ? tn_sparse_matmul(a, x[1]) : NULL;
}
FORM(f_sparse_matmul, tn_sparse_matmul(sparse_of(x[0]), x[1]))
FORM(f_sparse_turned, tn_sparse_matmul(turned(sparse_of(x[0])), x[1]))
FORM(f_sparse_dense, tn_sparse_to_dense(sparse_of(x[0])))
FORM(f_sparse_sampled, tn_sparse_sampled(sparse_of(x[0]), x[1], x[2]))
// Of 0 and 1, which every dtype rounds alike.
#define BYTES(i, dt) tn_cast(tn_gt_s(x[i], 0.2), dt)
FORM(f_matmul_i32, tn_matmul_i32(BYTES(0, TN_U8), BYTES(1, TN_I8)))
FORM(f_conv_i32,
     tn_conv_i32(BYTES(0, TN_I8), BYTES(1, TN_U8), -3, (tn_conv_opts){ .padding = { 1 } }))
FORM(f_prune, tn_prune_2_4(x[0], false))
FORM(f_prune_both, tn_prune_2_4(x[0], true))
FORM(f_cholesky, tn_cholesky(positive(x[0]), false))
FORM(f_cholesky_upper, tn_cholesky(positive(x[0]), true))
FORM(f_solve, tn_solve(regular(x[0]), x[1]))
FORM(f_solve_triangular, tn_solve_triangular(regular(x[0]), x[1], true, false))
FORM(f_solve_unit, tn_solve_triangular(regular(x[0]), x[1], false, true))
FORM(f_inv, tn_inv(regular(x[0])))
FORM(f_det, tn_mul_s(tn_det(regular(x[0])), 0.01))
FORM(f_lstsq, tn_lstsq(x[0], x[1]))
FORM(f_lstsq_wide, tn_lstsq(tn_transpose(x[0], 0, 1), tn_select(x[1], 0, 0)))
FORM(f_pinv, tn_pinv(x[0], 0))
FORM(f_matrix_power, tn_mul_s(tn_matrix_power(regular(x[0]), -3), 10))
FORM(f_eigvalsh, tn_eigvalsh(spread(x[0]), true))
FORM(f_nuclear, tn_matrix_norm(x[0], TN_NORM_NUC))
FORM(f_norm_2, tn_matrix_norm(x[0], TN_NORM_2))
FORM(f_norm_1, tn_matrix_norm(x[0], TN_NORM_1))
FORM(f_vector_norm, tn_vector_norm(x[0], 3, 1, (int[]){ 1 }, false))
FORM(f_cond, tn_cond(regular(x[0]), TN_NORM_FRO))
FORM(f_matrix_rank, tn_matrix_rank(x[0], 0))
static tn_tensor *f_slogdet(tn_tensor *const *x, void *user)
{
    tn_tensor *sign, *log;
    (void)user;
    return tn_slogdet(regular(x[0]), &sign, &log) == TN_OK ? tn_mul(sign, log) : NULL;
}
// Q and R have signs that LAPACK decides; vectors of others have any, so that only products of two
// count.
static tn_tensor *f_qr(tn_tensor *const *x, void *user)
{
    tn_tensor *q, *r;
    (void)user;
    return tn_qr(x[0], false, &q, &r) == TN_OK ? tn_matmul(tn_mul(q, q), tn_mul(r, r)) : NULL;
}
static tn_tensor *f_eigh(tn_tensor *const *x, void *user)
{
    tn_tensor *w, *v;
    (void)user;
    if (tn_eigh(spread(x[0]), false, &w, &v) != TN_OK) return NULL;
    return tn_matmul(tn_mul(v, tn_unsqueeze(tn_sin(w), -2)), tn_transpose(v, -1, -2));
}
static tn_tensor *f_svd(tn_tensor *const *x, void *user)
{
    tn_tensor *u, *s, *vh;
    (void)user;
    if (tn_svd(x[0], false, &u, &s, &vh) != TN_OK) return NULL;
    return tn_matmul(tn_mul(u, tn_unsqueeze(tn_sin(s), -2)), vh);
}

// ---- repetition, comparison --------------------------------------------------------------------

FORM(f_tile, tn_tile(x[0], 1, (int64_t[]){ 3 }))
FORM(f_tile_more, tn_tile(x[0], 3, (int64_t[]){ 2, 1, 2 }))
FORM(f_interleave, tn_repeat_interleave(x[0], 1, (int64_t[]){ 3 }, 0))
FORM(f_interleave_by, tn_repeat_interleave(x[0], 4, (int64_t[]){ 2, 0, 1, 3 }, -1))
FORM(f_isclose, tn_isclose(x[0], x[1], 0.25, 0.5, false))
static tn_tensor *f_meshgrid(tn_tensor *const *x, void *user)
{
    (void)user;
    tn_tensor *y[2] = { 0 };
    tn_meshgrid(2, x, true, y);
    return tn_mul(y[0], y[1]);
}

// ---- order, counts, writes ---------------------------------------------------------------------

FORM(f_max_indexed, tn_max_indexed(x[0], 1).values)
FORM(f_min_indexed, tn_min_indexed(x[0], 0).indices)
FORM(f_cummax, tn_cummax(x[0], 1).values)
FORM(f_cummin, tn_cummin(x[0], 0).values)
FORM(f_cummin_index, tn_cummin(x[0], -1).indices)
FORM(f_median, tn_median(x[0], 1).values)
FORM(f_kthvalue, tn_kthvalue(x[0], 2, 0).values)
FORM(f_mode, tn_mode(x[0], 1).values)
FORM(f_quantile, tn_quantile(x[0], 0.4, 1))
FORM(f_searchsorted, tn_searchsorted(tn_sort(x[0], -1, false).values, x[1], true))
FORM(f_histogram, tn_histogram(x[0], 5, -1, 1.5))
FORM(f_nonzero, tn_nonzero(tn_gt_s(x[0], 0.3)))
FORM(f_masked_select, tn_masked_select(x[0], MASK2(3, 4, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0, 1)))
FORM(f_index_add, tn_index_add(x[0], 1, INDEX(3, 0, 3, -1), x[1]))
FORM(f_index_put, tn_index_put(x[0], 2, (tn_tensor *const[]){ INDEX(0, 2, -1), INDEX(1, -4, 3) },
                               tn_select(x[1], 1, 0), false))
FORM(f_index_put_add, tn_index_put(x[0], 1, (tn_tensor *const[]){ INDEX(0, 2, 0) }, x[1], true))
#define AT34 INDEX2(3, 4, 0, 2, 2, 1, 0, 2, 1, 1, 0, 0, 0, 0)
FORM(f_reduce_mean, tn_scatter_reduce(x[0], 0, AT34, x[1], TN_FOLD_MEAN, true))
FORM(f_reduce_prod, tn_scatter_reduce(x[0], 0, AT34, x[1], TN_FOLD_PROD, true))
FORM(f_reduce_max, tn_scatter_reduce(x[0], 0, AT34, x[1], TN_FOLD_MAX, false))
FORM(f_reduce_min, tn_scatter_reduce(x[0], 1, INDEX2(3, 4, 0, 2, 2, 1, 0, 3, 1, 1, 0, 0, 0, 0),
                                     x[1], TN_FOLD_MIN, true))

// ---- images ------------------------------------------------------------------------------------

FORM(f_pad_reflect, tn_pad_reflect(x[0], (int64_t[]){ 2, 0 }, (int64_t[]){ 1, 3 }))
FORM(f_pad_replicate, tn_pad_replicate(x[0], (int64_t[]){ 2, -1 }, (int64_t[]){ 0, 3 }))
FORM(f_pad_circular, tn_pad_circular(x[0], (int64_t[]){ 1, 4 }, (int64_t[]){ 0, 2 }))
#define RESIZED(n, ...) tn_interpolate(x[0], n, (tn_interpolate_opts){ __VA_ARGS__ })
FORM(f_nearest, RESIZED(TN_SHAPE(5, 2), .mode = TN_INTERPOLATE_NEAREST))
FORM(f_bilinear, RESIZED(TN_SHAPE(5, 6), .mode = TN_INTERPOLATE_LINEAR))
FORM(f_bicubic, RESIZED(TN_SHAPE(5, 3), .mode = TN_INTERPOLATE_CUBIC, .align_corners = true))
FORM(f_antialias, RESIZED(TN_SHAPE(2, 2), .mode = TN_INTERPOLATE_LINEAR, .antialias = true))
FORM(f_area, RESIZED(TN_SHAPE(2, 3), .mode = TN_INTERPOLATE_AREA))
FORM(f_affine_grid, tn_affine_grid(x[0], 3, 2, false))
FORM(f_grid_sample,
     tn_grid_sample(x[0], tn_mul_s(x[1], 0.6), (tn_grid_opts){ .align_corners = true }))
FORM(f_max_pool_ceil,
     tn_max_pool2d(x[0], 3, 2, (tn_pool_opts){ .stride = { 2, 3 }, .ceil_mode = true }))
FORM(f_avg_pool_ceil,
     tn_avg_pool2d(x[0], 3, 3,
                   (tn_pool_opts){ .stride = { 2, 3 }, .padding = { 1 }, .ceil_mode = true }))
FORM(f_avg_pool_ceil_real, tn_avg_pool2d(x[0], 2, 2,
                                         (tn_pool_opts){ .stride          = { 3 },
                                                         .padding         = { 1 },
                                                         .exclude_padding = true,
                                                         .ceil_mode       = true }))
FORM(f_grid_cubic,
     tn_grid_sample(x[0], x[1], (tn_grid_opts){ .cubic = true, .border = TN_BORDER_REFLECT }))
FORM(f_grid_solid, tn_grid_sample(x[0], tn_mul_s(x[1], 0.6), (tn_grid_opts){ 0 }))
FORM(f_grid_border, tn_grid_sample(x[0], x[1], (tn_grid_opts){ .border = TN_BORDER_REPLICATE }))
FORM(f_pixel_shuffle, tn_pixel_shuffle(x[0], 2))
FORM(f_pixel_unshuffle, tn_pixel_unshuffle(x[0], 2))
FORM(f_unfold, tn_unfold(x[0], 2, 3, (tn_conv_opts){ .stride = { 2, 1 }, .padding = { 1 } }))
FORM(f_fold_windows,
     tn_fold_windows(x[0], 3, 4, 2, 2,
                     (tn_conv_opts){ .padding = { 1, TN_NO_PADDING }, .stride = { 2, 1 } }))

#define SIGN34 tn_where(tn_gt_s(tn_detach(x[0]), 0.3), ONE(x[0]), tn_neg(ONE(x[0])))
#define ONE(x) tn_ones_like(tn_detach(x))
FORM(f_ranking, tn_margin_ranking(x[0], x[1], SIGN34, (tn_margin_opts){ .margin = 0.3 }))
FORM(f_cosines,
     tn_cosine_embedding(x[0], x[1], tn_select(SIGN34, 1, 0), (tn_margin_opts){ .margin = 0.1 }))
FORM(f_triplet, tn_triplet_margin(x[0], x[1], tn_flip(x[1], 0), (tn_margin_opts){ 0 }))
FORM(f_triplet_p,
     tn_triplet_margin(x[0], x[1], tn_flip(x[1], 0), (tn_margin_opts){ .p = 3, .swap = true }))
FORM(f_margins, tn_multi_margin(x[0], tn_select(AT34, 1, 0), (tn_margin_opts){ .p = 2 }))
FORM(f_gaussian, tn_gaussian_nll(x[0], x[1], x[2], (tn_gaussian_opts){ .full = true }))
FORM(f_focal, tn_focal(x[0], x[1], (tn_focal_opts){ 0 }))
FORM(f_focal_gamma, tn_focal(x[0], tn_sigmoid(x[1]), (tn_focal_opts){ .gamma = 1.5, .alpha = -1 }))

// ---- sequences ---------------------------------------------------------------------------------

// h' = tanh(x + h w) c', c' = c + sum of x: of the constant w the gradient is a product behind the
// loop, of b it is added up in it, as its square is not linear; the results are a carry, a map of
// it and the slice as it is.
static void cell(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    tn_tensor *const *k = user;
    carry[1]            = tn_add(carry[1], tn_mul_s(tn_sum_keep(x[0], 1), 0.25));
    carry[0]            = tn_mul(tn_tanh(tn_add(x[0], tn_matmul(carry[0], k[2]))), carry[1]);
    y[0]                = carry[0];
    y[1]                = tn_add(tn_square(carry[0]), tn_square(k[3]));
    y[2]                = x[0];
}
static tn_tensor *scanned(tn_tensor *const *x, bool reverse)
{
    tn_tensor *carry[] = { x[1], tn_select(x[1], 1, 0), NULL }, *y[3] = { 0 };
    carry[1] = tn_unsqueeze(carry[1], 1);
    tn_scan(cell, (void *)x, 2, carry, 1, x, 3, y, (tn_scan_opts){ .reverse = reverse });
    tn_tensor *last = tn_add(tn_mul(carry[0], carry[1]), tn_select(tn_mul(y[0], y[2]), 0, 1));
    return tn_concat(2, (tn_tensor *const[]){ tn_sum(tn_add(y[0], y[1]), 0), last }, 0);
}
FORM(f_scan, scanned(x, false))
FORM(f_scan_reverse, scanned(x, true))

// All kinds with weights that are parts of x[1] (2 G, 3), x[2] (2 G): two layers, or two
// directions.
static tn_tensor *recurrent(tn_tensor *const *x, tn_rnn_opts o)
{
    tn_tensor *w[8];
    int64_t    G = tn_size(x[1], 0) / 2;
    for (int i = 0; i < 8; i++) {
        tn_tensor *part = tn_slice(i % 4 < 2 ? x[1] : x[2], 0, i % 2 * G, (i % 2 + 1) * G, 1);
        w[i]            = tn_mul_s(part, i < 4 ? 1 : 0.5);
    }
    tn_sequence y = tn_rnn(x[0], 8, w, o);
    return tn_concat(2,
                     (tn_tensor *const[]){ tn_reshape(y.x, TN_SHAPE(-1)),
                                           tn_reshape(y.c ? y.c : y.h, TN_SHAPE(-1)) },
                     0);
}
FORM(f_lstm, recurrent(x, (tn_rnn_opts){ .kind = TN_LSTM, .layers = 2 }))
FORM(f_gru, recurrent(x, (tn_rnn_opts){ .kind = TN_GRU, .layers = 2, .batch_first = true }))
FORM(f_gru_lengths,
     recurrent(x, (tn_rnn_opts){ .kind = TN_GRU, .bidirectional = true, .lengths = INDEX(3, 1) }))
FORM(f_rnn, recurrent(x, (tn_rnn_opts){ .bidirectional = true }))
FORM(f_ctc, tn_ctc_loss(tn_log_softmax(x[0], 2), INDEX2(2, 2, 1, 1, 2, 0), INDEX(4, 3), INDEX(2, 1),
                        (tn_ctc_opts){ 0 }))
FORM(f_ctc_each,
     tn_ctc_loss(tn_log_softmax(x[0], 2), INDEX2(2, 3, 0, 1, 0, 1, 1, 1), NULL, NULL,
                 (tn_ctc_opts){ .blank = 2, .reduce = TN_REDUCTION_NONE, .zero_infinity = true }))

// clang-format off
const form forms_arrays[] = {
    { "margin_ranking",       f_ranking,         SMOOTH, 1, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "cosine_embedding",     f_cosines,         SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "triplet_margin",       f_triplet,         SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "triplet_margin, p",    f_triplet_p,       SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "multi_margin",         f_margins,         SMOOTH, 2, 1, { IN(2, APART, 3, 4) } },
    { "gaussian_nll",         f_gaussian,        SMOOTH, 2, 3, { IN(2, APART, 3, 4), IN(2, APART, 3, 4), IN(2, POSITIVE, 3, 4) } },
    { "focal",                f_focal,           SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(2, POSITIVE, 3, 4) } },
    { "focal, gamma",         f_focal_gamma,     SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(2, POSITIVE, 3, 4) } },
    { "einsum",               f_einsum,          SMOOTH, 1, 2, { IN(3, APART, 2, 3, 4), IN(3, APART, 2, 4, 2) } },
    { "einsum, outer",        f_einsum_outer,    SMOOTH, 1, 2, { IN(2, APART, 3, 2), IN(1, APART, 4) } },
    { "einsum, diagonal",     f_einsum_diagonal, SMOOTH, 1, 1, { IN(3, APART, 3, 2, 3) } },
    { "einsum, dots",         f_einsum_dots,     SMOOTH, 1, 2, { IN(3, APART, 2, 3, 4), IN(2, APART, 4, 2) } },
    { "einsum of three",      f_einsum_three,    SMOOTH, 2, 2, { IN(2, APART, 2, 3), IN(2, APART, 3, 2) } },
    { "tensordot",            f_tensordot,       SMOOTH, 1, 2, { IN(3, APART, 2, 3, 4), IN(3, APART, 3, 2, 4) } },
    { "outer",                f_outer,           SMOOTH, 1, 2, { IN(1, APART, 3), IN(1, APART, 4) } },
    { "cross",                f_cross,           SMOOTH, 2, 2, { IN(2, APART, 4, 3), IN(2, APART, 1, 3) } },
    { "trace",                f_trace,           SMOOTH, 1, 1, { IN(3, APART, 2, 3, 4) } },
    { "kron",                 f_kron,            SMOOTH, 1, 2, { IN(2, APART, 2, 3), IN(1, APART, 2) } },
    { "cosine_similarity",    f_cosine,          SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "cholesky",             f_cholesky,        SMOOTH, 3, 1, { IN(3, APART, 2, 3, 4) } },
    { "cholesky, upper",      f_cholesky_upper,  SMOOTH, 3, 1, { IN(2, APART, 3, 4) } },
    { "solve",                f_solve,           SMOOTH, 3, 2, { IN(3, APART, 2, 3, 3), IN(2, APART, 3, 2) } },
    { "solve_triangular",     f_solve_triangular, SMOOTH, 3, 2, { IN(2, APART, 3, 3), IN(2, APART, 3, 2) } },
    { "solve_triangular, unit", f_solve_unit,    SMOOTH, 3, 2, { IN(2, APART, 3, 3), IN(1, APART, 3) } },
    { "inv",                  f_inv,             SMOOTH, 3, 1, { IN(3, APART, 2, 3, 3) } },
    { "det",                  f_det,             SMOOTH, 3, 1, { IN(3, APART, 2, 3, 3) } },
    { "slogdet",              f_slogdet,         SMOOTH, 3, 1, { IN(3, APART, 2, 3, 3) } },
    { "lstsq",                f_lstsq,           SMOOTH, 3, 2, { IN(2, APART, 4, 2), IN(2, APART, 4, 3) } },
    { "lstsq, wide",          f_lstsq_wide,      SMOOTH, 3, 2, { IN(2, APART, 4, 2), IN(2, APART, 3, 2) } },
    { "pinv",                 f_pinv,            SMOOTH, 3, 1, { IN(2, APART, 4, 2) } },
    { "matrix_power",         f_matrix_power,    SMOOTH, 3, 1, { IN(2, APART, 3, 3) } },
    { "qr",                   f_qr,              SMOOTH, 3, 1, { IN(3, APART, 2, 4, 3) } },
    { "qr, wide",             f_qr,              SMOOTH, 3, 1, { IN(2, APART, 2, 3) } },
    { "eigh",                 f_eigh,            SMOOTH, 3, 1, { IN(3, APART, 2, 3, 3) } },
    { "eigvalsh",             f_eigvalsh,        SMOOTH, 3, 1, { IN(2, APART, 3, 3) } },
    { "svd",                  f_svd,             SMOOTH, 3, 1, { IN(2, APART, 3, 2) } },
    { "svd, wide",            f_svd,             SMOOTH, 3, 1, { IN(3, APART, 1, 2, 3) } },
    { "matrix_norm, nuclear", f_nuclear,         SMOOTH, 3, 1, { IN(3, APART, 2, 3, 2) } },
    { "matrix_norm, 2",       f_norm_2,          SMOOTH, 3, 1, { IN(2, APART, 3, 2) } },
    { "matrix_norm, 1",       f_norm_1,          SMOOTH, 2, 1, { IN(2, APART, 3, 2) } },
    { "vector_norm",          f_vector_norm,     SMOOTH, 3, 1, { IN(2, POSITIVE, 3, 4) } },
    { "cond",                 f_cond,            SMOOTH, 3, 1, { IN(2, APART, 3, 3) } },
    { "matrix_rank",          f_matrix_rank,     NO_GRAD, 1, 1, { IN(2, APART, 3, 4) } },
    { "matmul_i32",           f_matmul_i32,      NO_GRAD, 1, 2, { IN(3, APART, 2, 3, 4), IN(2, APART, 4, 5) } },
    { "conv_i32",             f_conv_i32,        NO_GRAD, 1, 2, { IN(4, APART, 1, 2, 4, 4), IN(4, APART, 3, 2, 2, 2) } },
    { "sparse_matmul",        f_sparse_matmul,   SMOOTH, 2, 2, { IN(1, APART, 5), IN(2, APART, 4, 3) } },
    { "sparse_matmul, vector", f_sparse_matmul,  SMOOTH, 2, 2, { IN(1, APART, 5), IN(1, APART, 4) } },
    { "sparse_matmul, turned", f_sparse_turned,  SMOOTH, 2, 2, { IN(1, APART, 5), IN(2, APART, 3, 2) } },
    { "sparse_from_dense",    f_sparse_from_dense, SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(2, APART, 4, 2) } },
    { "sparse_to_dense",      f_sparse_dense,    SMOOTH, 2, 1, { IN(1, APART, 5) } },
    { "sparse_sampled",       f_sparse_sampled,  SMOOTH, 2, 3, { IN(1, APART, 5), IN(2, APART, 3, 2), IN(2, APART, 2, 4) } },
    { "complex",              f_complex,         SMOOTH, 1, 2, { IN(2, APART, 3, 4), IN(1, APART, 4) } },
    { "polar",                f_polar,           SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(1, APART, 4) } },
    { "complex, sum",          f_complex_sum,      SMOOTH, 2, 2, { IN(3, APART, 2, 3, 2), IN(3, APART, 2, 3, 2) } },
    { "complex, mul",          f_complex_mul,      SMOOTH, 2, 2, { IN(3, APART, 2, 3, 2), IN(3, APART, 2, 3, 2) } },
    { "complex, real",         f_complex_real,     SMOOTH, 3, 2, { IN(3, UNIT, 2, 3, 2), IN(3, UNIT, 2, 3, 2) } },
    { "complex, div",          f_complex_div,      SMOOTH, 3, 2, { IN(3, UNIT, 2, 3, 2), IN(3, UNIT, 2, 3, 2) } },
    { "complex, rdiv_s",       f_complex_rdiv,     SMOOTH, 3, 1, { IN(3, UNIT, 2, 3, 2) } },
    { "complex, abs",          f_complex_abs,      SMOOTH, 3, 1, { IN(3, APART, 2, 3, 2) } },
    { "complex, angle",        f_complex_angle,    SMOOTH, 3, 1, { IN(3, UNIT, 2, 3, 2) } },
    { "complex, exp",          f_complex_exp,      SMOOTH, 3, 1, { IN(3, UNIT, 2, 3, 2) } },
    { "complex, log",          f_complex_log,      SMOOTH, 3, 1, { IN(3, UNIT, 2, 3, 2) } },
    { "complex, sqrt",         f_complex_sqrt,     SMOOTH, 3, 1, { IN(3, UNIT, 2, 3, 2) } },
    { "complex, pow",          f_complex_pow,      SMOOTH, 4, 2, { IN(3, UNIT, 2, 3, 2), IN(3, UNIT, 2, 3, 2) } },
    { "complex, square",       f_complex_square,   SMOOTH, 3, 1, { IN(3, UNIT, 2, 3, 2) } },
    { "complex, waves",        f_complex_waves,    SMOOTH, 3, 1, { IN(3, UNIT, 2, 3, 2) } },
    { "complex, hyperbolic",   f_complex_hyper,    SMOOTH, 4, 1, { IN(3, UNIT, 2, 3, 2) } },
    { "complex, matmul",       f_complex_matmul,   SMOOTH, 2, 2, { IN(3, UNIT, 2, 3, 2), IN(3, UNIT, 2, 3, 2) } },
    { "complex, product",      f_complex_vector,   SMOOTH, 2, 2, { IN(3, UNIT, 2, 3, 2), IN(3, UNIT, 2, 3, 2) } },
    { "complex, mean",         f_complex_mean,     SMOOTH, 2, 1, { IN(3, APART, 2, 3, 2) } },
    { "complex, where",        f_complex_where,    SMOOTH, 1, 2, { IN(3, APART, 2, 3, 2), IN(3, APART, 2, 3, 2) } },
    { "complex, views",        f_complex_views,    SMOOTH, 1, 1, { IN(3, APART, 2, 3, 2) } },
    { "fft",                  f_fft,             SMOOTH, 2, 1, { IN(3, APART, 3, 4, 2) } },
    { "ifft",                 f_ifft,            SMOOTH, 2, 1, { IN(3, APART, 4, 3, 2) } },
    { "fft, real",            f_fft_real,        SMOOTH, 2, 1, { IN(2, APART, 3, 7) } },
    { "fft2",                 f_fft2,            SMOOTH, 2, 1, { IN(4, APART, 2, 3, 4, 2) } },
    { "rfft",                 f_rfft,            SMOOTH, 2, 1, { IN(2, APART, 3, 8) } },
    { "rfft, cut",            f_rfft_cut,        SMOOTH, 2, 1, { IN(2, APART, 5, 2) } },
    { "irfft",                f_irfft,           SMOOTH, 2, 1, { IN(3, APART, 2, 4, 2) } },
    { "irfft, odd",           f_irfft_odd,       SMOOTH, 2, 1, { IN(3, APART, 2, 4, 2) } },
    { "hfft",                 f_hfft,            SMOOTH, 2, 1, { IN(3, APART, 2, 4, 2) } },
    { "ihfft",                f_ihfft,           SMOOTH, 2, 1, { IN(2, APART, 2, 6) } },
    { "rfftn",                f_rfftn,           SMOOTH, 2, 1, { IN(3, APART, 2, 3, 5) } },
    { "irfft2",               f_irfft2,          SMOOTH, 2, 1, { IN(4, APART, 2, 3, 3, 2) } },
    { "fftn",                 f_fftn,            SMOOTH, 2, 1, { IN(3, APART, 4, 3, 2) } },
    { "fftshift",             f_fftshift,        SMOOTH, 1, 1, { IN(3, APART, 4, 3, 2) } },
    { "stft",                 f_stft,            SMOOTH, 2, 1, { IN(2, APART, 2, 9) } },
    { "istft",                f_istft,           SMOOTH, 3, 1, { IN(4, APART, 2, 3, 5, 2) } },
    { "prune_2_4",            f_prune,           NO_GRAD, 1, 1, { IN(2, APART, 3, 8) } },
    { "prune_2_4, both",      f_prune_both,      NO_GRAD, 1, 1, { IN(3, APART, 2, 4, 8) } },
    { "tile",                 f_tile,            SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "tile, more axes",      f_tile_more,       SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "repeat_interleave",    f_interleave,      SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "repeat_interleave by", f_interleave_by,   SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "isclose",              f_isclose,         NO_GRAD, 1, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "meshgrid",             f_meshgrid,        SMOOTH, 1, 2, { IN(1, APART, 3), IN(1, APART, 4) } },
    { "max_indexed",          f_max_indexed,     SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "min_indexed, places",  f_min_indexed,     NO_GRAD, 1, 1, { IN(2, APART, 3, 4) } },
    { "cummax",               f_cummax,          SMOOTH, 1, 1, { IN(2, APART, 3, 7) } },
    { "cummin",               f_cummin,          SMOOTH, 1, 1, { IN(2, APART, 5, 4) } },
    { "cummin, places",       f_cummin_index,    NO_GRAD, 1, 1, { IN(2, APART, 3, 7) } },
    { "median",               f_median,          SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "kthvalue",             f_kthvalue,        SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "mode",                 f_mode,            SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "quantile",             f_quantile,        SMOOTH, 2, 1, { IN(2, APART, 3, 4) } },
    { "searchsorted",         f_searchsorted,    NO_GRAD, 1, 2, { IN(2, APART, 3, 9), IN(2, APART, 3, 4) } },
    { "histogram",            f_histogram,       NO_GRAD, 1, 1, { IN(2, APART, 3, 4) } },
    { "nonzero",              f_nonzero,         NO_GRAD, 1, 1, { IN(2, APART, 3, 4) } },
    { "masked_select",        f_masked_select,   SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "index_add",            f_index_add,       SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "index_put",            f_index_put,       SMOOTH, 1, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "index_put, added",     f_index_put_add,   SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "scatter_reduce, mean", f_reduce_mean,     SMOOTH, 2, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "scatter_reduce, prod", f_reduce_prod,     SMOOTH, 3, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "scatter_reduce, max",  f_reduce_max,      SMOOTH, 1, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "scatter_reduce, min",  f_reduce_min,      SMOOTH, 1, 2, { IN(2, APART, 3, 4), IN(2, APART, 3, 4) } },
    { "pad_reflect",          f_pad_reflect,     SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "pad_replicate",        f_pad_replicate,   SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "pad_circular",         f_pad_circular,    SMOOTH, 1, 1, { IN(2, APART, 3, 4) } },
    { "interpolate, nearest", f_nearest,         SMOOTH, 1, 1, { IN(4, APART, 1, 2, 3, 4) } },
    { "interpolate, linear",  f_bilinear,        SMOOTH, 2, 1, { IN(4, APART, 1, 2, 3, 4) } },
    { "interpolate, cubic",   f_bicubic,         SMOOTH, 2, 1, { IN(4, APART, 1, 2, 3, 4) } },
    { "interpolate, smaller", f_antialias,       SMOOTH, 2, 1, { IN(4, APART, 1, 2, 5, 4) } },
    { "interpolate, area",    f_area,            SMOOTH, 2, 1, { IN(4, APART, 1, 2, 5, 4) } },
    { "affine_grid",          f_affine_grid,     SMOOTH, 1, 1, { IN(3, APART, 2, 2, 3) } },
    { "grid_sample",          f_grid_sample,     SMOOTH, 3, 2, { IN(4, APART, 1, 2, 3, 4), IN(4, UNIT, 1, 2, 2, 2) } },
    { "grid_sample, border",  f_grid_border,     SMOOTH, 3, 2, { IN(4, APART, 1, 2, 3, 4), IN(4, UNIT, 1, 2, 2, 2) } },
    { "pixel_shuffle",        f_pixel_shuffle,   SMOOTH, 1, 1, { IN(4, APART, 1, 4, 2, 3) } },
    { "pixel_unshuffle",      f_pixel_unshuffle, SMOOTH, 1, 1, { IN(3, APART, 2, 4, 2) } },
    { "unfold",               f_unfold,          SMOOTH, 1, 1, { IN(4, APART, 1, 2, 3, 4) } },
    { "fold_windows",         f_fold_windows,    SMOOTH, 1, 1, { IN(3, APART, 1, 8, 6) } },
    { "scan",                 f_scan,            SMOOTH, 4, 4, { IN(3, UNIT, 3, 2, 3), IN(2, UNIT, 2, 3), IN(2, UNIT, 3, 3), IN(1, UNIT, 3) } },
    { "scan, reverse",        f_scan_reverse,    SMOOTH, 4, 4, { IN(3, UNIT, 3, 2, 3), IN(2, UNIT, 2, 3), IN(2, UNIT, 3, 3), IN(1, UNIT, 3) } },
    { "rnn, lstm",            f_lstm,            SMOOTH, 4, 3, { IN(3, UNIT, 3, 2, 3), IN(2, UNIT, 24, 3), IN(1, UNIT, 24) } },
    { "rnn, gru",             f_gru,             SMOOTH, 4, 3, { IN(3, UNIT, 2, 3, 3), IN(2, UNIT, 18, 3), IN(1, UNIT, 18) } },
    { "rnn, gru by lengths",  f_gru_lengths,     SMOOTH, 4, 3, { IN(3, UNIT, 3, 2, 3), IN(2, UNIT, 18, 3), IN(1, UNIT, 18) } },
    { "rnn, both ways",       f_rnn,             SMOOTH, 4, 3, { IN(3, UNIT, 3, 2, 3), IN(2, UNIT, 6, 3), IN(1, UNIT, 6) } },
    { "ctc_loss",             f_ctc,             SMOOTH, 4, 1, { IN(3, APART, 4, 2, 3) } },
    { "ctc_loss, impossible", f_ctc_each,        SMOOTH, 4, 1, { IN(3, APART, 4, 2, 3) } },
    { "grid_sample, cubic",   f_grid_cubic,      SMOOTH, 3, 2, { IN(4, APART, 1, 2, 3, 4), IN(4, UNIT, 1, 1, 2, 2) } },
    { "grid_sample, 3-d",     f_grid_solid,      SMOOTH, 3, 2, { IN(5, APART, 1, 2, 2, 3, 2), IN(5, UNIT, 1, 1, 2, 1, 3) } },
    { "max_pool2d ceil",     f_max_pool_ceil,   SMOOTH, 1, 1, { IN(4, APART, 2, 2, 4, 5) } },
    { "avg_pool2d ceil",     f_avg_pool_ceil,   SMOOTH, 1, 1, { IN(4, APART, 2, 2, 4, 5) } },
    { "avg_pool2d ceil real", f_avg_pool_ceil_real, SMOOTH, 1, 1, { IN(4, APART, 2, 2, 4, 5) } },
    { .name = NULL },
};
// clang-format on
