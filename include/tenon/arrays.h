// arrays.h: more functions of tensors, with the names and the meaning of NumPy and PyTorch.
//
// Part of tenon.h, which includes it.
#ifndef TENON_ARRAYS_H
#define TENON_ARRAYS_H

#ifndef TENON_H
#error "include <tenon.h>"
#endif

// ---- maps --------------------------------------------------------------------------------------

// Of integers these are f32, except where a comment says otherwise.
TN_API tn_tensor *tn_asin(tn_tensor *x);     // inverse sine, in [-pi/2, pi/2]
TN_API tn_tensor *tn_acos(tn_tensor *x);     // inverse cosine, in [0, pi]
TN_API tn_tensor *tn_sinh(tn_tensor *x);     // hyperbolic sine
TN_API tn_tensor *tn_cosh(tn_tensor *x);     // hyperbolic cosine
TN_API tn_tensor *tn_asinh(tn_tensor *x);    // inverse hyperbolic sine
TN_API tn_tensor *tn_acosh(tn_tensor *x);    // inverse hyperbolic cosine, of numbers from 1 on
TN_API tn_tensor *tn_atanh(tn_tensor *x);    // inverse hyperbolic tangent, of numbers in [-1, 1]
TN_API tn_tensor *tn_log10(tn_tensor *x);    // logarithm to base 10
TN_API tn_tensor *tn_erfinv(tn_tensor *x);   // inverse of erf, of numbers in [-1, 1]
TN_API tn_tensor *tn_lgamma(tn_tensor *x);   // log(|gamma(x)|)
TN_API tn_tensor *tn_digamma(tn_tensor *x);  // derivative of lgamma
TN_API tn_tensor *tn_signbit(tn_tensor *x);  // bool: the sign is minus, also of -0 and NaN

TN_API tn_tensor *tn_atan2(tn_tensor *a, tn_tensor *b);      // angle of the point (b, a)
TN_API tn_tensor *tn_hypot(tn_tensor *a, tn_tensor *b);      // sqrt(a * a + b * b)
TN_API tn_tensor *tn_logaddexp(tn_tensor *a, tn_tensor *b);  // log(exp(a) + exp(b))
TN_API tn_tensor *tn_copysign(tn_tensor *a, tn_tensor *b);   // a with the sign of b
// The number after a in the direction of b, in their dtype.
TN_API tn_tensor *tn_nextafter(tn_tensor *a, tn_tensor *b);
// What division leaves, with the sign of a, and the quotient without its fraction. Integers keep
// their dtype; divided by 0 they give 0.
TN_API tn_tensor *tn_fmod(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_trunc_divide(tn_tensor *a, tn_tensor *b);

// ---- complex numbers ---------------------------------------------------------------------------

// Of c64 and c128, elements are pairs of f32 and f64, real part first. They are made by tn_from,
// tn_zeros, tn_ones, tn_full and the functions below; views, concat, stack, roll, index_select,
// where, writes, sum, mean, matmul and gradients take them, and of the maps neg, add, sub, mul,
// div, pow, square, reciprocal, exp, log, sqrt, sin, cos, sinh, cosh, tanh, eq, ne, isnan, isinf,
// isfinite and abs, which is real. Other ops refuse them. Beside a real tensor the result is
// complex. The gradient of a real loss is dL/dre + i dL/dim, as in PyTorch; that of abs and angle
// at 0 is 0.
//
// Make re + i im, and abs (cos(angle) + i sin(angle)), of floats that broadcast; 16-bit ones become
// f32.
TN_API tn_tensor *tn_complex(tn_tensor *re, tn_tensor *im);
TN_API tn_tensor *tn_polar(tn_tensor *abs, tn_tensor *angle);
// Return the parts of x, as views. tn_real of a real x is a view of it.
TN_API tn_tensor *tn_real(tn_tensor *x);
TN_API tn_tensor *tn_imag(tn_tensor *x);
TN_API tn_tensor *tn_conj(tn_tensor *x);   // re - i im; a real x as it is
TN_API tn_tensor *tn_angle(tn_tensor *x);  // in [-pi, pi]; of a real x 0 or pi
// Return a complex x as real numbers with a last axis of 2, and such real numbers, f32 or f64, as
// complex ones: views, the second a copy where the strides are not those of pairs.
TN_API tn_tensor *tn_view_as_real(tn_tensor *x);
TN_API tn_tensor *tn_view_as_complex(tn_tensor *x);

// ---- Fourier transforms ------------------------------------------------------------------------

// What is scaled, of transforms of n elements: the inverse one by 1 / n; both by 1 / sqrt(n); the
// forward one by 1 / n.
typedef enum { TN_FFT_BACKWARD, TN_FFT_ORTHO, TN_FFT_FORWARD } tn_fft_norm;
// Transform along an axis: its first n elements, or, if there are fewer, zeros behind them; n 0: as
// many as there are. Results are complex, with c64 for all but f64 and c128.
TN_API tn_tensor *tn_fft(tn_tensor *x, int64_t n, int axis, tn_fft_norm norm);
TN_API tn_tensor *tn_ifft(tn_tensor *x, int64_t n, int axis, tn_fft_norm norm);
// Of a real x the first n / 2 + 1 elements, which determine the others; and back, to n real ones. n
// 0: 2 (m - 1) for m elements.
TN_API tn_tensor *tn_rfft(tn_tensor *x, int64_t n, int axis, tn_fft_norm norm);
TN_API tn_tensor *tn_irfft(tn_tensor *x, int64_t n, int axis, tn_fft_norm norm);
// The same the other way round: a signal of which the first half is given has a real spectrum.
TN_API tn_tensor *tn_hfft(tn_tensor *x, int64_t n, int axis, tn_fft_norm norm);
TN_API tn_tensor *tn_ihfft(tn_tensor *x, int64_t n, int axis, tn_fft_norm norm);
// Transform the last two axes; size: two lengths, NULL: those of x.
TN_API tn_tensor *tn_fft2(tn_tensor *x, const int64_t *size, tn_fft_norm norm);
TN_API tn_tensor *tn_ifft2(tn_tensor *x, const int64_t *size, tn_fft_norm norm);
TN_API tn_tensor *tn_rfft2(tn_tensor *x, const int64_t *size, tn_fft_norm norm);
TN_API tn_tensor *tn_irfft2(tn_tensor *x, const int64_t *size, tn_fft_norm norm);
// Transform n axes, or the last n if axes is NULL; n 0: all. size: a length for each, NULL: those
// of x. Of rfftn and irfftn the last one has real elements.
TN_API tn_tensor *tn_fftn(tn_tensor *x, int n, const int64_t *size, const int *axes,
                          tn_fft_norm norm);
TN_API tn_tensor *tn_ifftn(tn_tensor *x, int n, const int64_t *size, const int *axes,
                           tn_fft_norm norm);
TN_API tn_tensor *tn_rfftn(tn_tensor *x, int n, const int64_t *size, const int *axes,
                           tn_fft_norm norm);
TN_API tn_tensor *tn_irfftn(tn_tensor *x, int n, const int64_t *size, const int *axes,
                            tn_fft_norm norm);
// Move the element of frequency 0 to the middle of n axes, n 0: of all; and back.
TN_API tn_tensor *tn_fftshift(tn_tensor *x, int n, const int *axes);
TN_API tn_tensor *tn_ifftshift(tn_tensor *x, int n, const int *axes);
// Return the frequencies of the elements of a transform of n samples that are d apart: of tn_fft,
// and of tn_rfft.
TN_API tn_tensor *tn_fftfreq(tn_ctx *cx, tn_dtype dt, int64_t n, double d);
TN_API tn_tensor *tn_rfftfreq(tn_ctx *cx, tn_dtype dt, int64_t n, double d);
// Windows of n elements; periodic ones, as of transforms, unless symmetric.
TN_API tn_tensor *tn_hann_window(tn_ctx *cx, tn_dtype dt, int64_t n, bool symmetric);
TN_API tn_tensor *tn_hamming_window(tn_ctx *cx, tn_dtype dt, int64_t n, bool symmetric);
typedef struct {
    int64_t    hop;     // from a window to the next; 0: n / 4
    int64_t    win;     // elements of the window, in the middle of the n; 0: n
    tn_tensor *window;  // (win); NULL: ones
    bool
            no_center;  // window i begins at element i * hop; otherwise that is its middle, and x is padded by n / 2 at both ends,
    bool    pad_zeros;  // by zeros; otherwise mirrored
    bool    normalized;  // scaled by 1 / sqrt(n)
    bool    two_sided;   // of a real x all n frequencies
    int64_t length;      // of istft: elements of the result; 0: as the windows have it
} tn_stft_opts;
// Short-time transforms of n elements of a signal x (..., T): (..., frequencies, windows).
// PyTorch's torch.stft.
TN_API tn_tensor *tn_stft(tn_tensor *x, int64_t n, tn_stft_opts o);
// The signal of such transforms, (..., T), real. Where no window reaches it is not finite.
TN_API tn_tensor *tn_istft(tn_tensor *x, int64_t n, tn_stft_opts o);

// ---- products ----------------------------------------------------------------------------------

// Returns sums of products by labels of axes, as torch.einsum of n tensors: "bij,bjk->bik". Labels
// are letters; "..." stands for axes that broadcast; a label that occurs twice in a term is a
// diagonal; labels that the result leaves out are summed. Without "->" the result has the labels
// that occur once, in order. Each pair is one product of matrices.
TN_API tn_tensor *tn_einsum(const char *equation, int n, tn_tensor *const *x);
// Returns the sums of products over n axes of a and as many of b; the other axes of a, then of b,
// are left.
TN_API tn_tensor *tn_tensordot(tn_tensor *a, tn_tensor *b, int n, const int *axes_a,
                               const int *axes_b);
// Returns the products of all pairs of elements of two vectors: (n), (m) give (n, m).
TN_API tn_tensor *tn_outer(tn_tensor *a, tn_tensor *b);
// Returns the cross product of vectors of 3 elements along an axis; the others broadcast.
TN_API tn_tensor *tn_cross(tn_tensor *a, tn_tensor *b, int axis);
// Returns the sum of the diagonal of the last two axes.
TN_API tn_tensor *tn_trace(tn_tensor *x);
// Returns the Kronecker product of tensors of up to four axes.
TN_API tn_tensor *tn_kron(tn_tensor *a, tn_tensor *b);
// Returns the cosine of the angle between vectors along an axis; lengths below eps count as eps.
TN_API tn_tensor *tn_cosine_similarity(tn_tensor *a, tn_tensor *b, int axis, double eps);

// ---- linear algebra ----------------------------------------------------------------------------

// Matrices are the last two axes of floats; the axes before them are a batch. Results have the
// signs and orders of LAPACK's, as NumPy's and PyTorch's. A matrix that cannot be factored gives
// NaN, without an error: that is known when the value is computed, for which nothing may wait. The
// forms _ex write to *info, i32, one number for each matrix: 0, or the row, from 1, at which it
// failed. tn_linalg_check reads it and reports the first such matrix as an error of the op that is
// named.
TN_API tn_status tn_linalg_check(const char *op, tn_tensor *info);
// Return l of x = l l', by the lower triangle of x; with upper u of x = u' u, by the upper one.
TN_API tn_tensor *tn_cholesky(tn_tensor *x, bool upper);
TN_API tn_status  tn_cholesky_ex(tn_tensor *x, bool upper, tn_tensor **l, tn_tensor **info);
// Return x of a x = b, for b (..., n, k) or a vector (n); leading axes broadcast.
TN_API tn_tensor *tn_solve(tn_tensor *a, tn_tensor *b);
TN_API tn_status  tn_solve_ex(tn_tensor *a, tn_tensor *b, tn_tensor **x, tn_tensor **info);
// By one triangle of a; unit: its diagonal counts as ones.
TN_API tn_tensor *tn_solve_triangular(tn_tensor *a, tn_tensor *b, bool upper, bool unit);
// The x with the smallest |a x - b| of a matrix of full rank, the shortest one if there are many.
// See tn_pinv for matrices of less rank.
TN_API tn_tensor *tn_lstsq(tn_tensor *a, tn_tensor *b);
// Return the inverse.
TN_API tn_tensor *tn_inv(tn_tensor *x);
TN_API tn_status  tn_inv_ex(tn_tensor *x, tn_tensor **y, tn_tensor **info);
// Returns the determinant; writes its sign and the logarithm of its absolute value.
TN_API tn_tensor *tn_det(tn_tensor *x);
TN_API tn_status  tn_slogdet(tn_tensor *x, tn_tensor **sign, tn_tensor **logabs);
// Writes orthonormal columns q and an upper triangle of x = q upper; complete: q is square. q may
// be NULL.
TN_API tn_status tn_qr(tn_tensor *x, bool complete, tn_tensor **q, tn_tensor **upper);
// Writes eigenvalues, rising, and eigenvectors, as columns, of symmetric matrices, of which the
// lower or upper triangle is read. tn_eigvalsh: the eigenvalues alone.
TN_API tn_status  tn_eigh(tn_tensor *x, bool upper, tn_tensor **w, tn_tensor **v);
TN_API tn_tensor *tn_eigvalsh(tn_tensor *x, bool upper);
// Writes u, singular values s, falling, and v' of x = u s v'; full: u and v are square. tn_svdvals:
// s alone.
TN_API tn_status  tn_svd(tn_tensor *x, bool full, tn_tensor **u, tn_tensor **s, tn_tensor **vh);
TN_API tn_tensor *tn_svdvals(tn_tensor *x);
// Returns the pseudo-inverse, and the number of singular values that count, i64: those above rtol
// times the largest; 0: as PyTorch has it.
TN_API tn_tensor *tn_pinv(tn_tensor *x, double rtol);
TN_API tn_tensor *tn_matrix_rank(tn_tensor *x, double rtol);
// Returns the product of n times x; of the inverse, if n is negative.
TN_API tn_tensor *tn_matrix_power(tn_tensor *x, int64_t n);
// Returns (sum |x|^p)^(1/p) over n axes, n 0: all; the largest or smallest |x| for an infinite p,
// the number of elements that are not 0 for p 0.
TN_API tn_tensor *tn_vector_norm(tn_tensor *x, double p, int n, const int *axes, bool keep);
typedef enum {
    TN_NORM_FRO,  // Frobenius: the square root of the sum of squares
    TN_NORM_NUC,  // nuclear: the sum of singular values
    TN_NORM_1,    // the largest sum of a column, and of a row, of absolute values
    TN_NORM_INF,
    TN_NORM_2,  // the largest singular value
    TN_NORM_MINUS_1,
    TN_NORM_MINUS_INF,  // the smallest instead of the largest
    TN_NORM_MINUS_2
} tn_matrix_norm_kind;
TN_API tn_tensor *tn_matrix_norm(tn_tensor *x, tn_matrix_norm_kind kind);
// Returns the norm of x times that of its inverse; for TN_NORM_2 of any shape.
TN_API tn_tensor *tn_cond(tn_tensor *x, tn_matrix_norm_kind kind);

// ---- products of bytes -------------------------------------------------------------------------

// Multiply tensors of i8 or u8, each its own, and add up in i32: exact while sums fit, as 65536
// products of u8 by i8 do, and wrapping beyond. Quantized networks compute so. There are no
// gradients.
//
// Shapes are those of tn_matmul.
TN_API tn_tensor *tn_matmul_i32(tn_tensor *a, tn_tensor *b);
// Convolves x (N, C, L), (N, C, H, W) or (N, C, D, H, W) with w (O, C / groups, taps); the padding
// counts as `pad`, which is the zero point of x. The result is stored channels last.
TN_API tn_tensor *tn_conv_i32(tn_tensor *x, tn_tensor *w, int64_t pad, tn_conv_opts o);

// ---- sparse matrices ---------------------------------------------------------------------------

// A matrix of which most elements are 0: the others, and where they are. Its tensors are ordinary
// ones, with the life of any other. values may be a parameter, and has a gradient at its own places
// alone; another vector in its place gives a matrix with the same places. pattern, i32, is what the
// functions below make. Elements are kept by rows, and by columns in each.
typedef struct {
    tn_tensor *values;   // (count)
    tn_tensor *pattern;  // where they are, in the matrix and in its transpose
    int64_t    rows, cols;
    bool       transposed;  // what it stands for is the transpose of all that
} tn_sparse;
// Write a matrix of the elements at indices (2, count): their rows, then their columns; or at
// columns (count), of which row r has those from offsets[r] to offsets[r + 1] - 1. Indices are read
// on the host, which waits for them: they may have any order, and values at the same place are
// added up.
TN_API tn_status tn_sparse_coo(tn_tensor *indices, tn_tensor *values, int64_t rows, int64_t cols,
                               tn_sparse *a);
TN_API tn_status tn_sparse_csr(tn_tensor *offsets, tn_tensor *columns, tn_tensor *values,
                               int64_t cols, tn_sparse *a);
// Writes the elements of a matrix x that are not 0, whose number is read on the host.
TN_API tn_status tn_sparse_from_dense(tn_tensor *x, tn_sparse *a);
// Return all elements of a, (rows, cols); the places of its values, i64 (2, count).
TN_API tn_tensor *tn_sparse_to_dense(tn_sparse a);
TN_API tn_tensor *tn_sparse_indices(tn_sparse a);
// Returns the product with a dense matrix (cols, n) or vector (cols), added up in f32 or wider.
TN_API tn_tensor *tn_sparse_matmul(tn_sparse a, tn_tensor *x);
// Returns the elements of the product of x (rows, k) and y (k, cols) at the places of a: (count).
TN_API tn_tensor *tn_sparse_sampled(tn_sparse a, tn_tensor *x, tn_tensor *y);
// bool, of w's shape: the two elements of each four along the last axis that are farthest from 0.
// both: of each tile of 4 x 4 those that leave most and are two in each row and each column, so
// that the mask holds for the transposed matrix, too. tn_layer_prune keeps it while a network is
// trained.
TN_API tn_tensor *tn_prune_2_4(tn_tensor *w, bool both);
// Says that w, a matrix (out, in) of which at most two of each four elements of a row are not 0,
// will be read by products that add up along its rows, as tn_linear's: w is computed, checked on
// the host, and kept in a second form, too, which products read where they are faster with it; what
// meets its zeros is then left out, also infinity and NaN. Writing w ends it. On cuda that takes
// cuSPARSELt and bf16; elsewhere, and for memory of a caller's, nothing is kept.
TN_API tn_status tn_compress_2_4(tn_tensor *w);

// ---- repetition, triangles, comparison ---------------------------------------------------------

// Repeats x times[i] times along axis i. rank may exceed x's, which adds axes at the front.
TN_API tn_tensor *tn_repeat(tn_tensor *x, int rank, const int64_t *times);
// Shifts elements along an axis; those pushed off the end reappear at the start.
TN_API tn_tensor *tn_roll(tn_tensor *x, int64_t shift, int axis);
// Keep the lower or upper triangle of the last two axes, and set the rest to 0. diagonal counts
// from the main diagonal, upwards if positive.
TN_API tn_tensor *tn_tril(tn_tensor *x, int64_t diagonal);
TN_API tn_tensor *tn_triu(tn_tensor *x, int64_t diagonal);
// Draws n indices per row with replacement, with probabilities proportional to weights, floats of
// shape (C) or (N, C); i64.
TN_API tn_tensor *tn_multinomial(tn_tensor *weights, int64_t n);
// Repeats x times[i] times along its last n axes, or along more, which are added at the front.
TN_API tn_tensor *tn_tile(tn_tensor *x, int n, const int64_t *times);
// Repeats each slice along an axis several times in a row: repeats has one number for all, or one
// for each.
TN_API tn_tensor *tn_repeat_interleave(tn_tensor *x, int n, const int64_t *repeats, int axis);
// Writes the coordinates of a grid to y[n], one tensor for each vector of x; axis i of the grid
// runs along x[i]. xy exchanges the first two axes, as NumPy does.
TN_API tn_status tn_meshgrid(int n, tn_tensor *const *x, bool xy, tn_tensor **y);
// bool: |a - b| <= atol + rtol * |b|; equal_nan counts two NaN as equal.
TN_API tn_tensor *tn_isclose(tn_tensor *a, tn_tensor *b, double rtol, double atol, bool equal_nan);
// Whether that holds everywhere; reads the result. False on error.
TN_API bool tn_allclose(tn_tensor *a, tn_tensor *b, double rtol, double atol, bool equal_nan);

// Returns the bits of x's elements as elements of another dtype: in x's shape, or, if their sizes
// differ, with a last axis of as many as its bytes make. x is computed first; there is no gradient.
// PyTorch's x.view(dtype).
TN_API tn_tensor *tn_bitcast(tn_tensor *x, tn_dtype dt);

// ---- order -------------------------------------------------------------------------------------

// Return the largest or smallest element along an axis and the place of the first one, without the
// axis.
TN_API tn_pair tn_max_indexed(tn_tensor *x, int axis);
TN_API tn_pair tn_min_indexed(tn_tensor *x, int axis);
// Return the largest or smallest element up to each one along an axis, and the place of the last
// such one.
TN_API tn_pair tn_cummax(tn_tensor *x, int axis);
TN_API tn_pair tn_cummin(tn_tensor *x, int axis);
// Returns the element in the middle of the sorted ones along an axis, the lower one of two, and its
// place; NaN if there is one.
TN_API tn_pair tn_median(tn_tensor *x, int axis);
// Returns the k-th smallest element along an axis, from 1, and its place.
TN_API tn_pair tn_kthvalue(tn_tensor *x, int64_t k, int axis);
// Returns the most frequent element along an axis, the smallest of several, and the place of the
// last such one.
TN_API tn_pair tn_mode(tn_tensor *x, int axis);
// Returns the q-quantile along an axis, q in 0 .. 1, by linear interpolation.
TN_API tn_tensor *tn_quantile(tn_tensor *x, double q, int axis);
// Returns the places where values would be put into sorted lines (the last axis) to keep them
// sorted, before equal elements or, with right, behind them; i64. sorted is a vector, or has the
// leading axes of values.
TN_API tn_tensor *tn_searchsorted(tn_tensor *sorted, tn_tensor *values, bool right);

// ---- counts, and results whose size depends on values ------------------------------------------

// Returns how often each of 0, 1, ... occurs in a vector of integers, i64, or the sums of weights
// (NULL: none). There are `least` bins at least; the largest element is read, which waits.
TN_API tn_tensor *tn_bincount(tn_tensor *x, tn_tensor *weights, int64_t least);
// Returns how many elements are in each of `bins` bins of equal width from lo to hi, in x's dtype;
// lo and hi equal: from the smallest to the largest element.
TN_API tn_tensor *tn_histogram(tn_tensor *x, int64_t bins, double lo, double hi);
// Returns the indices of the elements that are not 0, a row for each: (count, rank), i64. These
// three read the number of their results, which waits.
TN_API tn_tensor *tn_nonzero(tn_tensor *x);
// Returns the elements where mask, a bool, is true, as a vector.
TN_API tn_tensor *tn_masked_select(tn_tensor *x, tn_tensor *mask);
// Writes the different elements of x, sorted, to *values; the place of each element of x among them
// to *inverse, and how often each occurs to *counts, unless these are NULL.
TN_API tn_status tn_unique(tn_tensor *x, tn_tensor **values, tn_tensor **inverse,
                           tn_tensor **counts);

// ---- writes at indices -------------------------------------------------------------------------

typedef enum { TN_FOLD_SUM, TN_FOLD_MEAN, TN_FOLD_PROD, TN_FOLD_MAX, TN_FOLD_MIN } tn_fold;
// Returns a copy of x in which the elements of v are folded at index along an axis, with x's own
// element or, without include_self, in its place.
TN_API tn_tensor *tn_scatter_reduce(tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v,
                                    tn_fold fold, bool include_self);
// Returns a copy of x in which the slices of v are added at a 1-d index along an axis.
TN_API tn_tensor *tn_index_add(tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v);
// Returns a copy of x in which the elements at indices along its first n axes, which broadcast with
// each other, are replaced by those of v, or with accumulate have them added.
TN_API tn_tensor *tn_index_put(tn_tensor *x, int n, tn_tensor *const *index, tn_tensor *v,
                               bool accumulate);

// ---- losses ------------------------------------------------------------------------------------

// More losses, whose 16-bit arguments are computed in f32. A number of 0 in the options is the
// default, TN_ZERO is 0.
typedef struct {
    double       margin;  // 0: 1 for triplet_margin and multi_margin, 0 for the others
    double       p;       // triplet_margin: of the distance, 0: 2; multi_margin: 1 or 2, 0: 1
    bool         swap;  // triplet_margin: negative may be compared with positive, if that is nearer
    tn_reduction reduce;
} tn_margin_opts;
// max(0, margin - target * (a - b)): a is to be the greater one where target is 1, b where it is
// -1.
TN_API tn_tensor *tn_margin_ranking(tn_tensor *a, tn_tensor *b, tn_tensor *target,
                                    tn_margin_opts o);
// Of vectors along the last axis: 1 - cos where target is 1, max(0, cos - margin) where it is -1.
TN_API tn_tensor *tn_cosine_embedding(tn_tensor *a, tn_tensor *b, tn_tensor *target,
                                      tn_margin_opts o);
// Of vectors along the last axis: max(0, distance to positive - distance to negative + margin).
TN_API tn_tensor *tn_triplet_margin(tn_tensor *anchor, tn_tensor *positive, tn_tensor *negative,
                                    tn_margin_opts o);
// Of scores x (N, C) and class indices (N): the mean over the other classes of max(0, margin -
// right + other)^p.
TN_API tn_tensor *tn_multi_margin(tn_tensor *x, tn_tensor *target, tn_margin_opts o);
typedef struct {
    bool         full;  // with the constant log(2 pi) / 2
    double       eps;   // the least variance; 0: 1e-6
    tn_reduction reduce;
} tn_gaussian_opts;
// Negative log-likelihood of target, of a normal distribution with mean x and variance var.
TN_API tn_tensor *tn_gaussian_nll(tn_tensor *x, tn_tensor *target, tn_tensor *var,
                                  tn_gaussian_opts o);
typedef struct {
    double
        alpha;  // weight of the positive class, 1 - alpha of the negative one; 0: 0.25; below 0: none
    double       gamma;  // 0: 2
    tn_reduction reduce;
} tn_focal_opts;
// Binary cross entropy of logits x, times (1 - p)^gamma, where p is the probability of what is
// right: torchvision's sigmoid_focal_loss.
TN_API tn_tensor *tn_focal(tn_tensor *x, tn_tensor *target, tn_focal_opts o);

// ---- images ------------------------------------------------------------------------------------

// Add before[i] and after[i] places at the ends of axis i, as tn_pad does, with elements of x:
// mirrored at the first and last one, these repeated, or those of the other end.
TN_API tn_tensor *tn_pad_reflect(tn_tensor *x, const int64_t *before, const int64_t *after);
TN_API tn_tensor *tn_pad_replicate(tn_tensor *x, const int64_t *before, const int64_t *after);
TN_API tn_tensor *tn_pad_circular(tn_tensor *x, const int64_t *before, const int64_t *after);

typedef enum {
    TN_INTERPOLATE_NEAREST,
    TN_INTERPOLATE_LINEAR,  // bilinear, trilinear
    TN_INTERPOLATE_CUBIC,   // bicubic
    TN_INTERPOLATE_AREA     // means of the places that each new one covers
} tn_interpolation;
typedef struct {
    tn_interpolation mode;
    bool             align_corners;  // linear and cubic: the first and last places stay
    bool   antialias;  // linear and cubic: the filter covers what a smaller result leaves out
    double scale[3];   // of each axis, where size was made from it; 0: the ratio of the sizes
} tn_interpolate_opts;
// Resizes the n last axes, one to three, of x (N, C, places...), floats, to these sizes. PyTorch's
// F.interpolate.
TN_API tn_tensor *tn_interpolate(tn_tensor *x, int n, const int64_t *size, tn_interpolate_opts o);

// Returns the coordinates, in -1 .. 1, that affine maps theta (N, 2, 3) give for the places of an
// image: (N, height, width, 2), for tn_grid_sample.
TN_API tn_tensor *tn_affine_grid(tn_tensor *theta, int64_t height, int64_t width,
                                 bool align_corners);
typedef enum { TN_BORDER_ZEROS, TN_BORDER_REPLICATE, TN_BORDER_REFLECT } tn_border;
typedef struct {
    bool      nearest;        // the nearest place; otherwise linear
    bool      align_corners;  // -1 and 1 are the middles of the outer places, not their edges
    tn_border border;         // what is outside
    bool      cubic;          // of an image: bicubic
} tn_grid_opts;
// Returns x (N, C, H, W) at the coordinates (x, y) of grid (N, P, Q, 2): (N, C, P, Q); or x (N, C,
// D, H, W) at (x, y, z) of grid (N, O, P, Q, 3).
TN_API tn_tensor *tn_grid_sample(tn_tensor *x, tn_tensor *grid, tn_grid_opts o);

// Move channels to pixels, (..., C * r * r, H, W) to (..., C, H * r, W * r), and back.
TN_API tn_tensor *tn_pixel_shuffle(tn_tensor *x, int64_t factor);
TN_API tn_tensor *tn_pixel_unshuffle(tn_tensor *x, int64_t factor);
// Returns the windows of kh x kw places of x (N, C, H, W) as columns: (N, C * kh * kw, windows). Of
// the options, stride, padding and dilation count.
TN_API tn_tensor *tn_unfold(tn_tensor *x, int64_t kh, int64_t kw, tn_conv_opts o);
// Adds such columns up at their places: (N, C, height, width). PyTorch's F.fold.
TN_API tn_tensor *tn_fold_windows(tn_tensor *x, int64_t height, int64_t width, int64_t kh,
                                  int64_t kw, tn_conv_opts o);

// ---- sequences ---------------------------------------------------------------------------------

// Records one step of a recurrence: reads carry[i], the state, and x[i], this step's slice of each
// sequence, writes the next states to carry[i] and results of this step to y[i]. It runs once, over
// tensors that stand for those of every step, and may read any tensors of the program, but write or
// keep none. What it computes from these alone, random numbers among them, is made once.
typedef void tn_scan_body(void *user, tn_tensor **carry, tn_tensor *const *x, tn_tensor **y);
typedef struct {
    bool    reverse;  // from the last step to the first
    int64_t steps;    // how many; 0: the size of x[0]'s first axis
} tn_scan_opts;
// Runs a recurrence over the first axis of the sequences x: carry[i] becomes the state after the
// last step, y[i] (steps, ...) the results of all. The body is planned and compiled once, whatever
// the number of steps; gradients of any order pass through.
TN_API tn_status tn_scan(tn_scan_body *body, void *user, int carries, tn_tensor **carry, int xs,
                         tn_tensor *const *x, int ys, tn_tensor **y, tn_scan_opts o);

typedef enum { TN_RNN_TANH, TN_RNN_RELU, TN_LSTM, TN_GRU } tn_rnn_kind;
typedef struct {
    tn_rnn_kind kind;
    int         layers;         // 0: 1
    bool        bidirectional;  // each layer also goes from the last step to the first
    bool        batch_first;    // x and the result are (B, T, ...)
    bool        no_bias;        // weights have no biases
    bool        training;       // dropout drops
    double      dropout;        // between layers
    tn_tensor  *h, *c;          // first states, (layers * directions, B, H); NULL: zeros
    tn_tensor  *lengths;        // (B): steps of each sequence, i64; NULL: all have T
} tn_rnn_opts;
// The last layer's states of all steps, and for each layer and direction the last state. c: of an
// LSTM.
typedef struct {
    tn_tensor *x, *h, *c;
} tn_sequence;
// Runs recurrent layers over x (T, B, I), or (T, I) for one sequence; the result is (T, B, H), or
// (T, B, 2 H) of two directions. weights are PyTorch's, with its order of gates: for each layer,
// and in it for each direction, weight_ih, weight_hh, bias_ih, bias_hh. After the end of a sequence
// its results are 0.
TN_API tn_sequence tn_rnn(tn_tensor *x, int n, tn_tensor *const *weights, tn_rnn_opts o);

typedef struct {
    int64_t      blank;          // the class of the blank
    bool         zero_infinity;  // impossible targets have the loss 0
    tn_reduction reduce;         // mean: of each loss divided by its target's length
} tn_ctc_opts;
// Connectionist temporal classification of log-probabilities (T, N, C) and targets (N, S), classes
// as integers; lengths (N) say how many steps and labels count, NULL: all. An impossible target,
// longer than its steps, has an infinite loss and no gradient. F.ctc_loss of log_softmax.
TN_API tn_tensor *tn_ctc_loss(tn_tensor *log_probs, tn_tensor *targets, tn_tensor *input_lengths,
                              tn_tensor *target_lengths, tn_ctc_opts o);

// A function of single examples: reads x, writes y. It runs once, over tensors that stand for one
// example, and may read any tensors of the program, but write or keep none.
typedef void tn_vmap_fn(void *user, tn_tensor *const *x, tn_tensor **y);
enum { TN_NO_AXIS = -100 };  // of tn_vmap: an argument is the same for all examples
// Runs a function over an axis that it does not see: in[i] of x[i], or TN_NO_AXIS; NULL: axis 0 of
// all. y[i] has the results of all examples along the axis out. Gradients may be taken inside, of
// each example, and outside. The ops of f are recorded with one axis more; where one of them has no
// rule for that (random numbers drawn for an example, attention, linear algebra, convolutions whose
// weights differ, users' ops), f becomes a loop over the examples, as by tn_scan.
TN_API tn_status tn_vmap(tn_vmap_fn *f, void *user, int n, tn_tensor *const *x, const int *in,
                         int ny, tn_tensor **y, int out);

// ---- derivatives of functions ------------------------------------------------------------------

// A function that is called with the gradient of a value. It records what becomes of it and returns
// that, of the same dtype and shape, or NULL for g itself. The gradient is not computed yet, so
// that the function cannot read its numbers.
typedef tn_tensor *tn_hook_fn(tn_tensor *g, void *user);
// Has every later backward pass call f when it knows the gradient of x: a leaf's before it is added
// to an earlier one, another value's before it goes on. Returns a number above 0, or 0 on failure.
// A hook ends with its value, or with tn_hook_remove, which returns whether there was one; end, if
// not NULL, is called on user then. A view cannot have one.
TN_API int64_t tn_hook_add(tn_tensor *x, tn_hook_fn *f, void *user, void (*end)(void *user));
TN_API bool    tn_hook_remove(tn_ctx *cx, int64_t hook);

// A function of n tensors, up to 16, as tn_gradcheck takes. These call f once, at values that stand
// for x, and can be differentiated again if an x has a history. J is the matrix of the derivatives
// of y = f(x) by x.
typedef tn_tensor *tn_function(tn_tensor *const *x, void *user);
// Gives y, and gy times J: the gradient of sum(y * gy) by each x. gy may be NULL if y has one
// element.
TN_API tn_status tn_vjp(tn_function *f, int n, tn_tensor *const *x, void *user, tn_tensor *gy,
                        tn_tensor **y, tn_tensor **gx);
// Gives y, and J times v: how y changes as each x moves in the direction of its v.
TN_API tn_status tn_jvp(tn_function *f, int n, tn_tensor *const *x, void *user, tn_tensor *const *v,
                        tn_tensor **y, tn_tensor **dy);
// Fills j with J, for each x: of y's shape, then that of x[i]. Takes one backward pass for each
// element of y.
TN_API tn_status tn_jacobian(tn_function *f, int n, tn_tensor *const *x, void *user, tn_tensor **j);
// Of a function of one element: its matrix of second derivatives times v; and all of it, h[i * n +
// j] for x[i] and x[j], of their shapes, which takes one backward pass for each element of x.
TN_API tn_status tn_hvp(tn_function *f, int n, tn_tensor *const *x, void *user, tn_tensor *const *v,
                        tn_tensor **hv);
TN_API tn_status tn_hessian(tn_function *f, int n, tn_tensor *const *x, void *user, tn_tensor **h);

#endif
