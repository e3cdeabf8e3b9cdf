// calls_arrays.c: the functions of tenon/arrays.h in the table of calls.
#include "call_rows.h"

CALL(einsum)
{
    static const char *const texts[] = { "ij,jk->ik", "...i,...i", "ab", "ii->i,", NULL };
    return tn_einsum(texts[k->i & 3], (int)k->j & 3, (tn_tensor *const[]){ k->x, k->y, k->x });
}
CALL(tensordot)
{
    return tn_tensordot(k->x, k->y, (int)k->i & 3, (int[]){ (int)k->j, 1, 2 }, (int[]){ 0, 1, 2 });
}
CALL(cross)
{
    // Of any tensors, or of three elements.
    if (k->j & 1) return tn_cross(k->x, k->y, (int)k->i);
    return tn_cross(tn_expand(tn_sum_all(k->x), TN_SHAPE(3)),
                    tn_expand(tn_sum_all(k->y), TN_SHAPE(3)), 0);
}
CALL(outer)
{
    return tn_outer(tn_reshape(k->x, TN_SHAPE(-1)),
                    k->i & 1 ? k->y : tn_reshape(k->y, TN_SHAPE(-1)));
}
CALL(kron)
{
    return tn_kron(k->x, k->y);
}
CALL(cosine_similarity)
{
    return tn_cosine_similarity(k->x, k->y, (int)k->i, k->d);
}
CALL(bitcast)
{
    return tn_bitcast(k->x, (tn_dtype)(k->i & 15));
}
CALL(tile)
{
    return tn_tile(k->x, (int)k->i, (int64_t[16]){ k->j, 2, 1, 1, 1, 1, 1, 1 });
}
CALL(repeat_interleave)
{
    return tn_repeat_interleave(k->x, 1 + ((int)k->i & 1), (int64_t[]){ k->j, 2 }, (int)k->i);
}
CALL(meshgrid)
{
    tn_tensor *y[2] = { 0 };
    tn_tensor *v[]  = { k->x, k->y };
    return tn_meshgrid(2, v, k->i & 1, y) == TN_OK ? y[0] : NULL;
}
CALL(isclose)
{
    return tn_isclose(k->x, k->y, k->d, 0.5, k->i & 1);
}
CALL(allclose)
{
    tn_allclose(k->x, k->y, k->d, 0.5, k->i & 1);
    return NULL;
}

// ---- complex numbers

// Of any tensor, or of one as complex numbers.
#define OF_COMPLEX(name)                                           \
    CALL(name)                                                     \
    {                                                              \
        return tn_##name(k->j & 1 ? k->x : tn_cast(k->x, TN_C64)); \
    }
OF_COMPLEX(real)
OF_COMPLEX(imag)
OF_COMPLEX(conj)
OF_COMPLEX(angle)
OF_COMPLEX(view_as_real)
CALL(view_as_complex)
{
    tn_tensor *const pair[] = { k->x, k->x };
    return tn_view_as_complex(k->j & 1 ? k->x : tn_stack(2, pair, -1));
}

// ---- Fourier transforms

static const int64_t *fft_sizes(const call_args *k)
{
    static const int64_t some[] = { 4, 3, 2, 5, 1, 1, 1, 1 };
    return k->i & 1 ? some : NULL;
}
#define ONE(name)                                                                              \
    CALL(name)                                                                                 \
    {                                                                                          \
        return tn_##name(k->x, k->i > 99 ? 7 : k->i, (int)k->j, (tn_fft_norm)((int)k->i & 3)); \
    }
#define TWO(name)                                                           \
    CALL(name)                                                              \
    {                                                                       \
        return tn_##name(k->x, fft_sizes(k), (tn_fft_norm)((int)k->j & 3)); \
    }
#define MANY(name)                                                                              \
    CALL(name)                                                                                  \
    {                                                                                           \
        return tn_##name(k->x, (int)k->i, fft_sizes(k), k->j & 1 ? (int[8]){ -1, 0, 1 } : NULL, \
                         TN_FFT_ORTHO);                                                         \
    }
ONE(fft)
ONE(ifft)
ONE(rfft)
ONE(irfft)
ONE(hfft)
ONE(ihfft)
TWO(fft2)
TWO(ifft2)
TWO(rfft2)
TWO(irfft2)
MANY(fftn)
MANY(ifftn)
MANY(rfftn)
MANY(irfftn)
CALL(fftshift)
{
    return tn_fftshift(k->x, (int)k->i, (int[8]){ (int)k->j, 0 });
}
CALL(ifftshift)
{
    return tn_ifftshift(k->x, (int)k->i, (int[8]){ (int)k->j, 0 });
}
CALL(fftfreq)
{
    return tn_fftfreq(k->cx, TN_F32, k->i > 99 ? 9 : k->i, k->d);
}
CALL(rfftfreq)
{
    return tn_rfftfreq(k->cx, TN_F32, k->i > 99 ? 9 : k->i, k->d);
}
CALL(hann_window)
{
    return tn_hann_window(k->cx, TN_F64, k->i > 99 ? 9 : k->i, k->j & 1);
}
CALL(hamming_window)
{
    return tn_hamming_window(k->cx, TN_F16, k->i > 99 ? 9 : k->i, k->j & 1);
}
CALL(stft)
{
    return tn_stft(k->x, k->i,
                   (tn_stft_opts){ .hop = k->j, .two_sided = k->j & 1, .no_center = k->i & 1 });
}
CALL(istft)
{
    // Of any tensor, or of transforms of one.
    if (k->i & 1) return tn_istft(k->x, k->j, (tn_stft_opts){ .hop = k->i });
    tn_stft_opts o = { .hop = 1 };
    return tn_istft(tn_stft(tn_reshape(k->x, TN_SHAPE(-1)), 2, o), 2, o);
}

// ---- linear algebra

// x as matrices: of any shape, or (1, 1).
static tn_tensor *matrices(const call_args *k, tn_tensor *x)
{
    return k->j & 1 ? x : tn_reshape(tn_sum_all(x), TN_SHAPE(1, 1));
}
// A function that writes two tensors; k->i leaves out a place for one.
#define WRITES(name, ...)                                               \
    CALL(name)                                                          \
    {                                                                   \
        tn_tensor *y[3] = { 0 }, **z = k->i == 5 ? NULL : &y[1];        \
        return tn_##name(__VA_ARGS__, &y[0], z) == TN_OK ? y[0] : NULL; \
    }
WRITES(cholesky_ex, matrices(k, k->x), k->i & 1)
WRITES(solve_ex, matrices(k, k->x), k->y)
WRITES(inv_ex, matrices(k, k->x))
WRITES(slogdet, matrices(k, k->x))
WRITES(qr, k->x, k->i & 1)
WRITES(eigh, matrices(k, k->x), k->i & 1)
CALL(svd)
{
    tn_tensor *y[3] = { 0 };
    return tn_svd(k->x, k->i & 1, &y[0], k->i == 5 ? NULL : &y[1], &y[2]) == TN_OK ? y[0] : NULL;
}
CALL(linalg_check)
{
    tn_linalg_check("op", k->i & 1 ? k->x : tn_cast(k->x, TN_I32));
    return NULL;
}
// ---- products of bytes

CALL(matmul_i32)
{
    tn_dtype dt = k->i & 4 ? tn_dtype_of(k->x) : TN_U8;
    return tn_matmul_i32(tn_cast(k->x, dt), tn_cast(k->y, TN_I8));
}
CALL(conv_i32)
{
    tn_conv_opts o = { { k->i }, { k->j }, { k->i }, k->j, { 0 } };
    return tn_conv_i32(tn_cast(k->x, TN_I8), tn_cast(k->y, TN_U8), k->i - k->j, o);
}

// A matrix of x's elements on a diagonal, or with sizes that may not fit.
static tn_sparse sparse_of(const call_args *k)
{
    tn_sparse  a = { 0 };
    tn_tensor *v = tn_reshape(k->x, TN_SHAPE(-1));
    int64_t    n = v ? tn_size(v, 0) : 0;
    if (v && n <= 64) {
        tn_tensor *at = tn_arange(k->cx, TN_I64, 0, (double)n, 1);
        tn_sparse_coo(tn_stack(2, (tn_tensor *const[]){ at, at }, 0), v, n, k->j & 1 ? k->i : n,
                      &a);
    }
    a.transposed = k->i & 1;
    return a;
}
CALL(sparse_coo)
{
    return sparse_of(k).values;
}
CALL(sparse_csr)
{
    tn_sparse a;
    return tn_sparse_csr(tn_cast(k->x, TN_I64), k->i & 1 ? k->x : tn_cast(k->x, TN_I64), k->y, k->j,
                         k->i == 5 ? NULL : &a) == TN_OK
               ? a.values
               : NULL;
}
CALL(sparse_from_dense)
{
    tn_sparse a;
    return tn_sparse_from_dense(k->x, &a) == TN_OK ? a.values : NULL;
}
CALL(sparse_to_dense)
{
    return tn_sparse_to_dense(k->i & 4 ? (tn_sparse){ k->x, k->x, k->i, k->j, false }
                                       : sparse_of(k));
}
CALL(sparse_indices)
{
    return tn_sparse_indices(k->i & 4 ? (tn_sparse){ k->x, k->x, k->i, k->j, false }
                                      : sparse_of(k));
}
CALL(sparse_matmul)
{
    return tn_sparse_matmul(sparse_of(k), k->y);
}
// Of y, or of columns that fit.
CALL(sparse_sampled)
{
    tn_sparse a = sparse_of(k);
    if (k->j & 1 || !a.values) return tn_sparse_sampled(a, k->y, k->y);
    tn_tensor *v = tn_cast(tn_unsqueeze(tn_reshape(k->x, TN_SHAPE(-1)), 1), TN_F32);
    return tn_sparse_sampled(a, v, tn_transpose(v, 0, 1));
}
CALL(prune_2_4)
{
    tn_tensor *v = tn_reshape(k->x, TN_SHAPE(-1));
    return tn_prune_2_4(k->j & 1 ? k->x : tn_expand(tn_unsqueeze(tn_sum_all(v), 0), TN_SHAPE(4, 8)),
                        k->i & 1);
}
CALL(compress_2_4)
{
    tn_tensor *v = tn_reshape(k->x, TN_SHAPE(-1));
    tn_tensor *w = k->j & 1 ? k->x : tn_clone(tn_expand(tn_unsqueeze(v, 1), TN_SHAPE(-1, 8)));
    return tn_compress_2_4(w) == TN_OK ? w : NULL;
}
CALL(cholesky)
{
    return tn_cholesky(matrices(k, k->x), k->i & 1);
}
CALL(solve)
{
    return tn_solve(matrices(k, k->x), k->y);
}
CALL(lstsq)
{
    return tn_lstsq(matrices(k, k->x), k->y);
}
CALL(solve_triangular)
{
    return tn_solve_triangular(matrices(k, k->x), k->y, k->i & 1, k->i & 2);
}
CALL(eigvalsh)
{
    return tn_eigvalsh(matrices(k, k->x), k->i & 1);
}
CALL(pinv)
{
    return tn_pinv(k->x, k->d);
}
CALL(matrix_rank)
{
    return tn_matrix_rank(k->x, k->d);
}
CALL(matrix_power)
{
    return tn_matrix_power(matrices(k, k->x), k->i);
}
CALL(vector_norm)
{
    return tn_vector_norm(k->x, k->d, (int)k->i & 1, (int[]){ (int)k->j }, k->i & 2);
}
CALL(matrix_norm)
{
    return tn_matrix_norm(k->x, (tn_matrix_norm_kind)(k->i & 15));
}
CALL(cond)
{
    return tn_cond(matrices(k, k->x), (tn_matrix_norm_kind)(k->i & 15));
}

// ---- order, counts, writes

#define PAIR(name)                                \
    CALL(name)                                    \
    {                                             \
        return tn_##name(k->x, (int)k->i).values; \
    }
PAIR(max_indexed)
PAIR(min_indexed)
PAIR(cummax)
PAIR(cummin)
PAIR(median)
PAIR(mode)
CALL(kthvalue)
{
    return tn_kthvalue(k->x, k->j, (int)k->i).values;
}
CALL(quantile)
{
    return tn_quantile(k->x, k->d, (int)k->i);
}
CALL(searchsorted)
{
    return tn_searchsorted(k->x, k->y, k->i & 1);
}
CALL(bincount)
{
    return tn_bincount(k->j & 1 ? tn_cast(k->x, TN_I64)
                                : tn_reshape(tn_cast(tn_abs(k->x), TN_U8), TN_SHAPE(-1)),
                       NULL, k->i);
}
CALL(histogram)
{
    return tn_histogram(k->x, k->i, -k->d, k->d);
}
CALL(nonzero)
{
    return tn_nonzero(k->x);
}
CALL(masked_select)
{
    return tn_masked_select(k->x, tn_cast(k->y, k->i & 1 ? TN_I64 : TN_BOOL));
}
CALL(unique)
{
    tn_tensor *y[3] = { 0 };
    return tn_unique(k->x, &y[0], k->i & 1 ? &y[1] : NULL, &y[2]) == TN_OK ? y[0] : NULL;
}
CALL(scatter_reduce)
{
    return tn_scatter_reduce(k->x, (int)k->i, tn_cast(k->y, TN_I64), k->y, (tn_fold)(k->j & 7),
                             k->i & 1);
}
CALL(index_add)
{
    return tn_index_add(k->x, (int)k->i, tn_cast(k->y, TN_I64), k->y);
}
CALL(index_put)
{
    tn_tensor *at = tn_cast(k->y, TN_I64);
    return tn_index_put(k->x, 1, &at, k->y, k->i & 1);
}

// ---- images

// x as (1, 1, 1, n), for functions of images.
static tn_tensor *image(const call_args *k, tn_tensor *x)
{
    return k->j & 1 ? x : tn_reshape(x, TN_SHAPE(1, 1, 1, -1));
}
#define PADDED(name)                                                                     \
    CALL(name)                                                                           \
    {                                                                                    \
        int64_t by[TN_MAX_RANK] = { k->i & 1, k->j & 1 }, after[TN_MAX_RANK] = { k->j }; \
        return tn_##name(k->x, by, after);                                               \
    }
PADDED(pad_reflect)
PADDED(pad_replicate)
PADDED(pad_circular)
CALL(interpolate)
{
    return tn_interpolate(image(k, k->x), 2, (int64_t[]){ k->i, 3 },
                          (tn_interpolate_opts){ .mode = (tn_interpolation)(k->i & 3) });
}
CALL(affine_grid)
{
    tn_tensor *one = tn_reshape(tn_sum_all(k->x), TN_SHAPE(1, 1, 1));
    return tn_affine_grid(k->j & 1 ? k->x : tn_expand(one, TN_SHAPE(1, 2, 3)), k->i, 2, k->i & 1);
}
CALL(grid_sample)
{
    tn_tensor *one = tn_reshape(tn_sum_all(k->y), TN_SHAPE(1, 1, 1, 1));
    return tn_grid_sample(image(k, k->x), tn_expand(one, TN_SHAPE(1, 2, 1, 2)),
                          (tn_grid_opts){ .nearest = k->i & 1 });
}
CALL(pixel_shuffle)
{
    return tn_pixel_shuffle(image(k, k->x), k->i);
}
CALL(pixel_unshuffle)
{
    return tn_pixel_unshuffle(image(k, k->x), k->i);
}
CALL(unfold)
{
    return tn_unfold(image(k, k->x), 1, k->i, (tn_conv_opts){ .stride = { k->j } });
}
CALL(fold_windows)
{
    tn_tensor *x = k->j & 1 ? k->x : tn_reshape(k->x, TN_SHAPE(1, 1, -1));
    return tn_fold_windows(x, 1, k->i > 1 ? k->i : tn_count(k->x), 1, 1, (tn_conv_opts){ 0 });
}

// ---- losses

CALL(margin_ranking)
{
    return tn_margin_ranking(k->x, k->y, k->x, (tn_margin_opts){ .margin = k->d });
}
CALL(cosine_embedding)
{
    tn_tensor *target = k->i & 1 ? k->x : tn_sum(k->x, -1);
    return tn_cosine_embedding(k->x, k->y, target, (tn_margin_opts){ .margin = k->d });
}
CALL(triplet_margin)
{
    return tn_triplet_margin(k->x, k->y, k->x, (tn_margin_opts){ .p = k->d, .swap = k->i & 1 });
}
CALL(multi_margin)
{
    return tn_multi_margin(k->x, k->y, (tn_margin_opts){ .p = (double)k->i });
}
CALL(gaussian_nll)
{
    return tn_gaussian_nll(k->x, k->y, k->x, (tn_gaussian_opts){ .eps = k->d });
}
CALL(focal)
{
    return tn_focal(k->x, k->y, (tn_focal_opts){ .gamma = k->d });
}

// ---- sequences

// A sum of what it has read, and one of a third tensor; every fourth leaves its result out.
static void add_up(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y)
{
    const call_args *k = user;
    carry[0]           = tn_add(carry[0], tn_mul(x[0], k->y));
    if (k->i % 4 != 3) y[0] = k->i % 4 == 2 ? x[0] : carry[0];
}
CALL(scan)
{
    tn_tensor   *y = NULL, *carry = k->j & 1 ? k->x : tn_select(k->x, 0, 0);
    tn_scan_opts o = { .reverse = k->i & 1, .steps = k->j & 2 ? k->i : 0 };
    return tn_scan(k->j & 4 ? NULL : add_up, (void *)k, 1, &carry, 1, &k->x, 1, &y, o) == TN_OK
               ? y
               : NULL;
}
CALL(rnn)
{
    tn_tensor *w[] = { k->y, k->j & 1 ? k->y : tn_reshape(k->y, TN_SHAPE(-1, 1)), k->x, k->x };
    return tn_rnn(k->x, (int)k->i % 5, w,
                  (tn_rnn_opts){
                      .kind = (tn_rnn_kind)k->i, .no_bias = k->j & 1, .h = k->j & 2 ? k->x : NULL })
        .x;
}
CALL(ctc_loss)
{
    tn_tensor *lengths = k->j & 1 ? k->y : NULL;
    return tn_ctc_loss(k->j & 2 ? k->x : tn_reshape(k->x, TN_SHAPE(-1, 1, 2)),
                       tn_reshape(k->y, TN_SHAPE(1, -1)), lengths, lengths,
                       (tn_ctc_opts){ .blank = k->i, .reduce = (tn_reduction)(k->j % 4) });
}

// ---- derivatives of functions

static tn_tensor *product_of(tn_tensor *const *x, void *user)
{
    (void)user;
    return tn_mul(x[0], x[1]);
}
static tn_tensor *sum_of(tn_tensor *const *x, void *user)
{
    return tn_sum_all(product_of(x, user));
}
// Few elements: a matrix takes a backward pass for each.
static void few(const call_args *k, tn_tensor **x)
{
    x[0] = tn_count(k->x) > 8 ? tn_sum_all(k->x) : k->x;
    x[1] = tn_count(k->y) > 8 ? tn_sum_all(k->y) : k->y;
}
CALL(vjp)
{
    tn_tensor *y = NULL, *gx[3] = { 0 };
    tn_vjp(k->i & 1 ? product_of : sum_of, (int)k->j & 3, (tn_tensor *const[]){ k->x, k->y, k->x },
           NULL, k->i & 2 ? k->x : NULL, &y, gx);
    return y;
}
CALL(jvp)
{
    tn_tensor *y = NULL, *dy = NULL, *v[] = { k->y, k->x };
    tn_jvp(product_of, 2, (tn_tensor *const[]){ k->x, k->y }, NULL, v, &y, &dy);
    return dy;
}
CALL(jacobian)
{
    tn_tensor *x[2], *j[2] = { 0 };
    few(k, x);
    return tn_jacobian(product_of, 2, x, NULL, j) == TN_OK ? j[0] : NULL;
}
static void product_of_examples(void *user, tn_tensor *const *x, tn_tensor **y)
{
    y[0] = tn_mul(x[0], user);
}
CALL(vmap)
{
    tn_tensor *y    = NULL;
    int        in[] = { (int)k->i - 1 };
    tn_vmap(k->j & 4 ? NULL : product_of_examples, k->y, (int)k->j & 1, &k->x, k->j & 2 ? in : NULL,
            1, &y, (int)k->i - 1);
    return y;
}
static tn_tensor *twice(tn_tensor *g, void *user)
{
    return user ? tn_add(g, g) : NULL;
}
CALL(hook_add)
{
    int64_t h = tn_hook_add(k->x, k->j & 1 ? twice : NULL, NULL, NULL);
    if (h > 0) tn_hook_remove(k->cx, h);
    return h > 0 ? k->x : NULL;
}
CALL(hook_remove)
{
    tn_hook_remove(k->cx, k->i);
    return NULL;
}
CALL(hvp)
{
    tn_tensor *hv[2] = { 0 }, *x[] = { k->x, k->y };
    return tn_hvp(k->i & 1 ? product_of : sum_of, 2, x, NULL, x, hv) == TN_OK ? hv[0] : NULL;
}
CALL(hessian)
{
    tn_tensor *x[2], *h[4] = { 0 };
    few(k, x);
    return tn_hessian(sum_of, 2, x, NULL, h) == TN_OK ? h[1] : NULL;
}

// clang-format off
const call calls_of_arrays[] = {
    B(complex), B(polar), O(real), O(imag), O(conj), O(angle), O(view_as_real), O(view_as_complex),
    O(fft), O(ifft), O(rfft), O(irfft), O(hfft), O(ihfft), O(fft2), O(ifft2), O(rfft2), O(irfft2), O(fftn), O(ifftn), O(rfftn), O(irfftn), O(fftshift), O(ifftshift), O(fftfreq), O(rfftfreq), O(hann_window), O(hamming_window), O(stft), O(istft),
    T(vjp), T(jvp), O(vmap), O(hook_add), O(hook_remove), T(jacobian), T(hvp), T(hessian),
    T(margin_ranking), T(cosine_embedding), T(triplet_margin), T(multi_margin), T(gaussian_nll), T(focal),
    U(asin), U(acos), U(sinh), U(cosh), U(asinh), U(acosh), U(atanh), U(log10), U(erfinv), U(lgamma), U(digamma), U(signbit),
    B(atan2), B(hypot), B(logaddexp), B(copysign), B(nextafter), B(fmod), B(trunc_divide),
    T(einsum), T(tensordot), T(outer), T(cross), U(trace), T(kron), T(cosine_similarity), O(tile), O(repeat_interleave),
    T(meshgrid), T(isclose), T(allclose),
    O(cholesky), O(cholesky_ex), T(solve), T(solve_ex), T(solve_triangular), T(lstsq), U(inv), O(inv_ex), U(det), O(slogdet), O(qr),
    O(eigh), O(eigvalsh), O(svd), U(svdvals), O(pinv), O(matrix_rank), O(matrix_power), O(vector_norm), O(matrix_norm), O(cond), O(linalg_check),
    T(matmul_i32), T(conv_i32), O(sparse_coo), T(sparse_csr), O(sparse_from_dense), O(sparse_to_dense), O(sparse_indices), T(sparse_matmul), T(sparse_sampled), O(prune_2_4), O(compress_2_4),
    O(max_indexed), O(min_indexed), O(cummax), O(cummin), O(median), O(mode), O(kthvalue), O(quantile), T(searchsorted),
    O(bincount), O(histogram), O(nonzero), T(masked_select), O(unique), T(scatter_reduce), T(index_add), T(index_put),
    O(bitcast), O(pad_reflect), O(pad_replicate), O(pad_circular), O(interpolate), O(affine_grid), T(grid_sample), O(pixel_shuffle),
    O(pixel_unshuffle), O(unfold), O(fold_windows), T(scan), T(rnn), T(ctc_loss),
    { 0 },
};
// clang-format on
