// tenon.h: the public interface of Tenon, all of it (layers and training are in headers it includes).
//
// A program opens a context on a device, records tensor math in it, and reads what it wants to
// know. Ops return at once: they check their arguments, record a node and give back a handle.
// Work is done when a value is read or a step ends.
//
// Errors: an op returns a tensor or NULL, and NULL in gives NULL out, so a chain of calls needs
// one check at its end. The first error stays in its context with its text and the file and line
// of the call. Calls that touch the world return a tn_status.
//
// Ownership: a returned tensor belongs to the innermost open scope and dies with it; made outside
// any scope it lives until tn_close. tn_keep lets one out. A context and everything in it belong
// to the thread that opened it.
#ifndef TENON_H
#define TENON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TN_VERSION_MAJOR 0
#define TN_VERSION_MINOR 1
#define TN_VERSION_PATCH 0

// TN_API marks a function with two call forms that mean the same. tn_add(a, b) in a program is a macro,
// which hands on the file and line of the call for error messages; the function tn_add, for pointers,
// other languages and programs that define TN_PLAIN before this header, knows no line. Either way what
// an op made on its way to its result is gone when it returns. TN_API_PLAIN marks a function that is
// just that: it makes no tensor, and its errors need no line. tenon/sites.h is made from these marks.
#if defined(__GNUC__)
#define TN_API_PLAIN __attribute__((visibility("default")))
#else
#define TN_API_PLAIN
#endif
#define TN_UNPACK(...) __VA_ARGS__
#ifndef TN_INSIDE
#define TN_API TN_API_PLAIN
#define TN_FORM(result, name, params) \
    TN_API result name##_at(const char *file, int line, TN_UNPACK params);
#else
// In Tenon's own sources such a name is the function behind both forms, under a symbol of its own.
#define TN_PLAIN
#define TN_API                        __attribute__((visibility("hidden")))
#define TN_FORM(result, name, params) TN_API result name params __asm__("tni_" #name);
#endif

#ifdef __cplusplus
#include <initializer_list>
extern "C" {
#endif

typedef struct tn_ctx    tn_ctx;
typedef struct tn_scope  tn_scope;
typedef struct tn_tensor tn_tensor;
typedef struct tn_layer  tn_layer;
typedef struct tn_optim  tn_optim;
typedef struct tn_data   tn_data;
typedef struct tn_bpe    tn_bpe;
typedef struct tn_file   tn_file;

typedef enum {
    TN_OK,
    TN_EARG,     // an argument is wrong
    TN_ESHAPE,   // shapes do not fit
    TN_EDTYPE,   // element types do not fit
    TN_EGRAD,    // no gradient to be had there
    TN_EGONE,    // not stored, and what it was made from was overwritten or given back
    TN_EMEM,     // out of memory, on the host or the device
    TN_EDEVICE,  // the device is not there or refused
    TN_ELOST,    // the device is lost; only tn_close works
    TN_EIO,      // a file could not be opened, read or written
    TN_EFORMAT,  // a file's content is not what it should be
    TN_ETHREAD,  // the context belongs to another thread
    TN_EUSER     // a user's own function failed: an op's, a layer's, a dataset's
} tn_status;

// Files and programs depend on the numbers: a new one is added at the end.
typedef enum {
    TN_BOOL,
    TN_U8,
    TN_I8,
    TN_I32,
    TN_I64,
    TN_F16,
    TN_BF16,
    TN_F32,
    TN_F64,
    TN_I16,
    TN_U16,
    TN_U32,
    TN_U64,
    TN_F8_E4M3,  // 8-bit floats, as PyTorch's float8_e4m3fn and float8_e5m2: cast, moved, saved and
    TN_F8_E5M2   // printed, but nothing is computed with them
} tn_dtype;

enum { TN_MAX_RANK = 8 };

// clang-format off
// A shape written in place: tn_zeros(cx, TN_F32, TN_SHAPE(2, 3)).
#ifndef __cplusplus
#define TN_SHAPE(...) (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / 8), (int64_t[]){ __VA_ARGS__ }
// Axes written in place: tn_sum_axes(x, TN_AXES(0, 2), false).
#define TN_AXES(...) (int)(sizeof((int[]){ __VA_ARGS__ }) / sizeof(int)), (int[]){ __VA_ARGS__ }
#else
#define TN_SHAPE(...) TN_LIST(int64_t, __VA_ARGS__)
#define TN_AXES(...)  TN_LIST(int, __VA_ARGS__)
#define TN_LIST(type, ...) (int)std::initializer_list<type>{ __VA_ARGS__ }.size(), \
                           std::initializer_list<type>{ __VA_ARGS__ }.begin()
#endif
// clang-format on
#define TN_0D     0, NULL    // the shape of a 0-d tensor
#define TN_TO_END INT64_MAX  // stop of a slice
#define TN_ZERO   (-0.0f)    // a real zero in an options struct, where 0 means the default
#ifndef TN_HERE
#define TN_HERE __FILE__, __LINE__  // NULL, 0: a call is that of the code around it
#endif

// Names for bools whose sense does not show in a call: tn_idx(cx, dir, TN_TEST), tn_sort(x, 0,
// TN_DESCENDING), tn_sum_axes(x, TN_AXES(0, 1), TN_KEEP_AXES). The first of each pair is false.
enum { TN_TRAIN, TN_TEST };            // which part of a dataset: tn_idx, tn_cifar10
enum { TN_ASCENDING, TN_DESCENDING };  // tn_sort, tn_argsort
enum { TN_SMALLEST, TN_LARGEST };      // tn_topk
enum { TN_DROP_AXES, TN_KEEP_AXES };   // tn_sum_axes and its kin
enum { TN_EVALUATING, TN_TRAINING };   // tn_dropout
enum {
    TN_OFF,
    TN_ON
};  // tn_data_shuffle, tn_data_drop_last, tn_grad_mode, tn_requires_grad, tn_layer_train

// ---- context, scope, error ---------------------------------------------------------------------

typedef struct {
    tn_status   code;
    const char *text;   // names the op, the argument and the shapes
    const char *file;   // of the user's call; "" when it was made without the call-site macro
    int         line;   // the innermost: in the function of a user's layer, the call made there
    const char *layer;  // that was running, by its path "layer3.2.conv1"; "" for none
    const char *outer_file;  // of the outermost call, as tn_forward in a training loop: the same
    int         outer_line;  // as file and line where that was the one
} tn_fault;

// Called as the last act of the public call that failed, for the first error since
// tn_error_clear. It may longjmp.
typedef void tn_handler(tn_ctx *cx, const tn_fault *f, void *user);

typedef struct {
    const char *device;   // "cpu", "cuda", "cuda:1", "opencl", "ref"; NULL: TN_DEVICE, else the
                          // fastest device present
    tn_handler *handler;  // NULL: print the first error once to stderr
    void       *user;     // handed to handler and alloc
    uint64_t    seed;
    int64_t     mem_limit;    // bytes of tensors and expanded files, 0: TN_MEM_LIMIT, else no limit
    int64_t     flush_nodes;  // pending nodes before work is flushed by itself, 0: 100,000
    int         threads;      // 0: TN_NUM_THREADS, else all cores
    void       *stream;       // a caller's stream, on devices that have them
    // Host memory: old NULL allocates, n 0 frees, else resizes. NULL: malloc and kin.
    void *(*alloc)(void *user, void *old, size_t n);
} tn_open_opts;

// Opens a context on a device. NULL on failure, with the reason in tn_error_text(NULL).
TN_API_PLAIN tn_ctx *tn_open(const char *device);
TN_API_PLAIN tn_ctx *tn_open_with(tn_open_opts o);
// Frees the context and everything in it. Closing NULL does nothing; inside a function that a call of
// the context runs it is an error, and nothing is freed.
TN_API_PLAIN void tn_close(tn_ctx *cx);
// A context moves between threads: one leaves it, another enters it.
TN_API_PLAIN tn_status tn_ctx_leave(tn_ctx *cx);
TN_API_PLAIN tn_status tn_ctx_enter(tn_ctx *cx);
// Starts the sequence of random numbers anew.
TN_API_PLAIN void tn_seed(tn_ctx *cx, uint64_t seed);

// Opens a scope: tensors made from here on die when it ends.
TN_API tn_scope *tn_begin(tn_ctx *cx);
// Ends the scope and any still open inside it, and restores the gradient mode it began with. The
// outermost end launches what outlives it.
TN_API tn_status tn_end(tn_scope *s);
// Lets t outlive the innermost scope by one level, and wants it. Returns t.
TN_API tn_tensor *tn_keep(tn_tensor *t);
// Asks the next step boundary to store t's value. Returns t.
TN_API tn_tensor *tn_want(tn_tensor *t);
// Lets go of t before its scope ends.
TN_API void tn_drop(tn_tensor *t);

// The first error since tn_error_clear; cx NULL asks for this thread's slot, which holds errors
// that no context could take, such as why tn_open failed.
TN_API_PLAIN tn_status   tn_error(const tn_ctx *cx);
TN_API_PLAIN const char *tn_error_text(const tn_ctx *cx);  // "" when none
TN_API_PLAIN void        tn_error_clear(tn_ctx *cx);
// Writes a text from outside, as a name in a file or a path, so that it can be printed: control
// characters and what is not UTF-8 as \xNN, characters that are not seen or change the order of others
// as \u{NNNN}. Cut to fit into room bytes, with a 0 at the end; returns the bytes of text it took. Error
// texts are written so already.
TN_API_PLAIN size_t tn_escape(char *to, size_t room, const char *text);
// Reports an error of a user's own layer or op, as the built-in ones do. Returns NULL.
TN_API void *tn_error_set(tn_ctx *cx, tn_status code, const char *text);
// Replaces the handler; NULL is silent.
TN_API_PLAIN void tn_on_error(tn_ctx *cx, tn_handler *h, void *user);
// A warning is about a call that works and is likely a mistake, as a loss whose prediction and target stretch
// each other. The first of a context goes to this handler, as a fault whose code is TN_OK; NULL is
// silent. Without a call of this it is printed where errors are, that is until a program has a handler.
TN_API_PLAIN void        tn_on_warning(tn_ctx *cx, tn_handler *h, void *user);
TN_API_PLAIN const char *tn_status_name(tn_status s);
TN_API_PLAIN const char *tn_version(void);

// ---- tensors -----------------------------------------------------------------------------------

// Copies count(size) elements of host memory.
TN_API tn_tensor *tn_from(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, const void *data);
// Uses host memory as it is, untouched, until release is called: exactly once, on the owner
// thread, inside a tn_ call, also when this call fails. The first write copies it. On a GPU data
// may be memory of that GPU, which is used so; host memory is copied there.
TN_API tn_tensor *tn_borrow(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, void *data,
                            void (*release)(void *data, void *user), void *user);
TN_API tn_tensor *tn_zeros(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size);
TN_API tn_tensor *tn_ones(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size);
TN_API tn_tensor *tn_full(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, double v);
// An integer above 2^53 loses bits as a double; the forms with _i64 take every one as it is, here and
// below.
TN_API tn_tensor *tn_full_i64(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, int64_t v);
TN_API tn_tensor *tn_zeros_like(tn_tensor *x);
TN_API tn_tensor *tn_ones_like(tn_tensor *x);
TN_API tn_tensor *tn_full_like(tn_tensor *x, double v);
TN_API tn_tensor *tn_full_like_i64(tn_tensor *x, int64_t v);
// A 0-d f32 number that takes the dtype of what it meets, as a plain number would.
TN_API tn_tensor *tn_scalar(tn_ctx *cx, double v);
TN_API tn_tensor *tn_scalar_i64(tn_ctx *cx, int64_t v);  // of itself an i64
// start, start + step, ... below stop (above it for a negative step).
TN_API tn_tensor *tn_arange(tn_ctx *cx, tn_dtype dt, double start, double stop, double step);
TN_API tn_tensor *tn_arange_i64(tn_ctx *cx, tn_dtype dt, int64_t start, int64_t stop, int64_t step);
// n numbers from a to b, both included.
TN_API tn_tensor *tn_linspace(tn_ctx *cx, tn_dtype dt, double a, double b, int64_t n);
TN_API tn_tensor *tn_eye(tn_ctx *cx, tn_dtype dt, int64_t rows, int64_t cols);

// Random numbers: Philox4x32-10 by the context's seed and a counter taken when the op is recorded;
// equal on every device and for every number of threads.
TN_API tn_tensor *tn_rand(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size);   // [0, 1)
TN_API tn_tensor *tn_randn(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size);  // normal
TN_API tn_tensor *tn_rand_like(tn_tensor *x);
TN_API tn_tensor *tn_randn_like(tn_tensor *x);
// Integers in lo .. hi-1.
TN_API tn_tensor *tn_randint(tn_ctx *cx, tn_dtype dt, int64_t lo, int64_t hi, int rank,
                             const int64_t *size);
// 0 .. n-1 in random order, i64.
TN_API tn_tensor *tn_randperm(tn_ctx *cx, int64_t n);
// 1 with probability p (elementwise), else 0; of p's dtype.
TN_API tn_tensor *tn_bernoulli(tn_tensor *p);

// A copy in another context (or the same), with no history.
TN_API tn_tensor        *tn_copy_to(tn_ctx *cx, tn_tensor *t);
TN_API_PLAIN tn_ctx     *tn_ctx_of(const tn_tensor *t);
TN_API_PLAIN tn_dtype    tn_dtype_of(const tn_tensor *t);
TN_API_PLAIN const char *tn_dtype_name(tn_dtype dt);  // "f32"
TN_API_PLAIN int         tn_rank(const tn_tensor *t);
TN_API_PLAIN int64_t tn_size(const tn_tensor *t, int axis);    // axis may be negative; -1 on error
TN_API_PLAIN int64_t tn_stride(const tn_tensor *t, int axis);  // in elements
TN_API_PLAIN int64_t tn_offset(const tn_tensor *t);  // in elements, from the store's start
TN_API_PLAIN int64_t tn_count(const tn_tensor *t);
TN_API_PLAIN bool tn_is_view(const tn_tensor *t);  // shares its store with the tensor it came from
TN_API_PLAIN bool tn_is_contiguous(const tn_tensor *t);
TN_API_PLAIN const char *tn_name(const tn_tensor *t);  // "" when none
TN_API tn_tensor        *tn_set_name(tn_tensor *t, const char *name);

// Reading waits for the value.
TN_API double  tn_item(tn_tensor *t);      // of a one-element tensor; NaN on error
TN_API int64_t tn_item_i64(tn_tensor *t);  // 0 on error
// The newest value that arrived under t's name, or without a name at this line; NaN before the
// first. Never waits.
TN_API double tn_item_late(tn_tensor *t);
// Copies t out, row-major, converted to dt. count must be t's.
TN_API tn_status tn_read(tn_tensor *t, tn_dtype dt, void *dst, int64_t count);
// The value's memory, row-major if t is contiguous, else by its strides; on cuda it is the GPU's. Valid
// until t dies or is written. NULL, an error, on devices whose memory has no address.
TN_API const void *tn_ptr(tn_tensor *t);
// Shows t as NumPy would.
TN_API void tn_print(tn_tensor *t, FILE *f);
// A step boundary: launches everything pending and does not wait. Stores what was assigned, what
// is wanted or kept, what was made outside the innermost scope, what nothing consumed, and
// one-element values; other values are computed again if they are asked for.
TN_API tn_status tn_eval(tn_ctx *cx);
// A read without the wait. Never makes another value unreadable.
TN_API tn_status tn_eval_of(tn_tensor *t);
// Waits for everything launched; late errors of the device surface here.
TN_API tn_status tn_sync(tn_ctx *cx);

// ---- views: share the store of their input, never copy -----------------------------------------

// Axes may be negative everywhere. start and stop may be negative and are clipped; a negative step
// runs backwards, and TN_TO_END then means past the first element.
TN_API tn_tensor *tn_slice(tn_tensor *x, int axis, int64_t start, int64_t stop, int64_t step);
TN_API tn_tensor *tn_select(tn_tensor *x, int axis, int64_t index);
TN_API tn_tensor *tn_squeeze(tn_tensor *x, int axis);  // the axis must have size 1
TN_API tn_tensor *tn_squeeze_all(tn_tensor *x);
TN_API tn_tensor *tn_unsqueeze(tn_tensor *x, int axis);
TN_API tn_tensor *tn_transpose(tn_tensor *x, int axis1, int axis2);
TN_API tn_tensor *tn_permute(tn_tensor *x, int n, const int *axes);  // TN_AXES(2, 0, 1)
// Broadcasts to a shape; -1 keeps a size.
TN_API tn_tensor *tn_expand(tn_tensor *x, int rank, const int64_t *size);
TN_API tn_tensor *tn_flip(tn_tensor *x, int axis);
TN_API tn_tensor *tn_diagonal(tn_tensor *x, int64_t offset, int axis1, int axis2);
// Windows of n elements along an axis, `step` apart: that axis counts them, a last axis of size n
// is added. Elements of a window are `dilation` apart in window_with.
TN_API tn_tensor *tn_window(tn_tensor *x, int axis, int64_t n, int64_t step);
TN_API tn_tensor *tn_window_with(tn_tensor *x, int axis, int64_t n, int64_t step, int64_t dilation);
// The same elements, no gradient.
TN_API tn_tensor *tn_detach(tn_tensor *x);
// Another shape of the same elements; one size may be -1. Fails where it would have to copy.
TN_API tn_tensor *tn_view(tn_tensor *x, int rank, const int64_t *size);
// A view where strides allow, else a copy: tn_is_view tells.
TN_API tn_tensor *tn_reshape(tn_tensor *x, int rank, const int64_t *size);
TN_API tn_tensor *tn_flatten(tn_tensor *x, int first, int last);

// ---- writes: change x and everything that shares its store; return x ---------------------------

TN_API tn_tensor *tn_assign(tn_tensor *x, tn_tensor *v);  // v broadcasts and is cast
TN_API tn_tensor *tn_add_(tn_tensor *x, tn_tensor *v);
TN_API tn_tensor *tn_sub_(tn_tensor *x, tn_tensor *v);
TN_API tn_tensor *tn_mul_(tn_tensor *x, tn_tensor *v);
TN_API tn_tensor *tn_div_(tn_tensor *x, tn_tensor *v);
TN_API tn_tensor *tn_fill_(tn_tensor *x, double v);
TN_API tn_tensor *tn_fill_i64_(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_zero_(tn_tensor *x);
TN_API tn_tensor *tn_clamp_(tn_tensor *x, double lo, double hi);
TN_API tn_tensor *tn_clamp_i64_(tn_tensor *x, int64_t lo, int64_t hi);

// ---- maps: elementwise, with NumPy's broadcasting and PyTorch's type promotion -----------------

TN_API tn_tensor *tn_neg(tn_tensor *x);
TN_API tn_tensor *tn_abs(tn_tensor *x);
TN_API tn_tensor *tn_sign(tn_tensor *x);
TN_API tn_tensor *tn_floor(tn_tensor *x);
TN_API tn_tensor *tn_ceil(tn_tensor *x);
TN_API tn_tensor *tn_round(tn_tensor *x);  // halves to even
TN_API tn_tensor *tn_trunc(tn_tensor *x);
TN_API tn_tensor *tn_sqrt(tn_tensor *x);
TN_API tn_tensor *tn_rsqrt(tn_tensor *x);
TN_API tn_tensor *tn_reciprocal(tn_tensor *x);
TN_API tn_tensor *tn_square(tn_tensor *x);
TN_API tn_tensor *tn_exp(tn_tensor *x);
TN_API tn_tensor *tn_exp2(tn_tensor *x);
TN_API tn_tensor *tn_expm1(tn_tensor *x);
TN_API tn_tensor *tn_log(tn_tensor *x);
TN_API tn_tensor *tn_log2(tn_tensor *x);
TN_API tn_tensor *tn_log1p(tn_tensor *x);
TN_API tn_tensor *tn_sin(tn_tensor *x);
TN_API tn_tensor *tn_cos(tn_tensor *x);
TN_API tn_tensor *tn_tan(tn_tensor *x);
TN_API tn_tensor *tn_atan(tn_tensor *x);
TN_API tn_tensor *tn_tanh(tn_tensor *x);
TN_API tn_tensor *tn_erf(tn_tensor *x);
TN_API tn_tensor *tn_isnan(tn_tensor *x);
TN_API tn_tensor *tn_isinf(tn_tensor *x);
TN_API tn_tensor *tn_isfinite(tn_tensor *x);
TN_API tn_tensor *tn_logical_not(tn_tensor *x);
TN_API tn_tensor *tn_bit_not(tn_tensor *x);

TN_API tn_tensor *tn_add(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_sub(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_mul(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_div(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_pow(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_remainder(tn_tensor *a, tn_tensor *b);  // has the sign of b
TN_API tn_tensor *tn_floor_divide(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_maximum(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_minimum(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_eq(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_ne(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_lt(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_le(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_gt(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_ge(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_logical_and(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_logical_or(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_logical_xor(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_bit_and(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_bit_or(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_bit_xor(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_shl(tn_tensor *a, tn_tensor *b);
TN_API tn_tensor *tn_shr(tn_tensor *a, tn_tensor *b);

// With a number, which takes x's dtype (a fraction makes an integer tensor f32; TN_EARG where an integer
// dtype does not hold it, but a negative one wraps beside an unsigned dtype). Beside f16 and bf16 it keeps
// the digits of f32, in which they are computed; only a comparison rounds it to x's dtype.
TN_API tn_tensor *tn_add_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_sub_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_rsub_s(tn_tensor *x, double v);  // v - x
TN_API tn_tensor *tn_mul_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_div_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_rdiv_s(tn_tensor *x, double v);  // v / x
TN_API tn_tensor *tn_pow_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_maximum_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_minimum_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_eq_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_ne_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_lt_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_le_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_gt_s(tn_tensor *x, double v);
TN_API tn_tensor *tn_ge_s(tn_tensor *x, double v);
// With an integer.
TN_API tn_tensor *tn_add_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_sub_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_rsub_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_mul_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_div_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_rdiv_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_pow_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_maximum_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_minimum_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_eq_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_ne_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_lt_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_le_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_gt_i64(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_ge_i64(tn_tensor *x, int64_t v);

TN_API tn_tensor *tn_cast(tn_tensor *x, tn_dtype dt);
TN_API tn_tensor *tn_where(tn_tensor *cond, tn_tensor *a, tn_tensor *b);  // cond is bool
TN_API tn_tensor *tn_masked_fill(tn_tensor *x, tn_tensor *mask, double v);
TN_API tn_tensor *tn_masked_fill_i64(tn_tensor *x, tn_tensor *mask, int64_t v);
TN_API tn_tensor *tn_clamp(tn_tensor *x, double lo, double hi);
TN_API tn_tensor *tn_clamp_i64(tn_tensor *x, int64_t lo, int64_t hi);

TN_API tn_tensor *tn_relu(tn_tensor *x);
TN_API tn_tensor *tn_leaky_relu(tn_tensor *x, double slope);
TN_API tn_tensor *tn_elu(tn_tensor *x, double alpha);
TN_API tn_tensor *tn_sigmoid(tn_tensor *x);
TN_API tn_tensor *tn_silu(tn_tensor *x);
TN_API tn_tensor *tn_gelu(tn_tensor *x);       // exact, by erf
TN_API tn_tensor *tn_gelu_tanh(tn_tensor *x);  // the tanh approximation
TN_API tn_tensor *tn_softplus(tn_tensor *x);
TN_API tn_tensor *tn_hardswish(tn_tensor *x);
// In training zeroes elements with probability p and scales the rest by 1 / (1 - p); else x.
TN_API tn_tensor *tn_dropout(tn_tensor *x, double p, bool training);

// ---- reductions --------------------------------------------------------------------------------

// (x, axis) drops the axis, X_keep leaves it with size 1, X_all reduces all, X_axes several (none
// given: all).

#define TN_REDUCTION(name)                                      \
    TN_API tn_tensor *tn_##name(tn_tensor *x, int axis);        \
    TN_API tn_tensor *tn_##name##_keep(tn_tensor *x, int axis); \
    TN_API tn_tensor *tn_##name##_all(tn_tensor *x);            \
    TN_API tn_tensor *tn_##name##_axes(tn_tensor *x, int n, const int *axes, bool keep);

TN_REDUCTION(sum)
TN_REDUCTION(mean)
TN_REDUCTION(prod)
TN_REDUCTION(max)  // ties share the gradient
TN_REDUCTION(min)
TN_REDUCTION(var)  // of a sample: over n - 1
TN_REDUCTION(std)
TN_REDUCTION(norm)  // Euclidean; its gradient at 0 is 0
TN_REDUCTION(logsumexp)
TN_REDUCTION(any)  // a bool; of u8 a u8
TN_REDUCTION(all)
#undef TN_REDUCTION

// Index of the first extremum, i64; X_all counts in row-major order.
TN_API tn_tensor *tn_argmax(tn_tensor *x, int axis);
TN_API tn_tensor *tn_argmax_keep(tn_tensor *x, int axis);
TN_API tn_tensor *tn_argmax_all(tn_tensor *x);
TN_API tn_tensor *tn_argmin(tn_tensor *x, int axis);
TN_API tn_tensor *tn_argmin_keep(tn_tensor *x, int axis);
TN_API tn_tensor *tn_argmin_all(tn_tensor *x);

TN_API tn_tensor *tn_cumsum(tn_tensor *x, int axis);
TN_API tn_tensor *tn_cumprod(tn_tensor *x, int axis);
TN_API tn_tensor *tn_softmax(tn_tensor *x, int axis);
TN_API tn_tensor *tn_log_softmax(tn_tensor *x, int axis);

// ---- movement ----------------------------------------------------------------------------------

TN_API tn_tensor *tn_contiguous(tn_tensor *x);  // row-major
TN_API tn_tensor *tn_clone(tn_tensor *x);       // in x's order of memory
// x (N, C, H, W), the same values with the channels side by side in memory, as (N, H, W, C) would lie.
// What is made of it by maps, convolutions and pools lies so too; tn_contiguous leads back.
TN_API tn_tensor *tn_channels_last(tn_tensor *x);
TN_API tn_tensor *tn_concat(int n, tn_tensor *const *x, int axis);
TN_API tn_tensor *tn_stack(int n, tn_tensor *const *x, int axis);
// Views of `size` elements along an axis (the last may be smaller), into y, at most n; the number
// of pieces, or -1.
TN_API int tn_split(tn_tensor *x, int64_t size, int axis, int n, tn_tensor **y);
// Views in `chunks` pieces of equal size (the last may be smaller), into y[chunks]; their number.
TN_API int        tn_chunk(tn_tensor *x, int chunks, int axis, tn_tensor **y);
TN_API tn_tensor *tn_repeat(tn_tensor *x, int rank, const int64_t *times);
TN_API tn_tensor *tn_roll(tn_tensor *x, int64_t shift, int axis);
// before and after: elements to add at each axis, x's rank of them; negative ones crop.
TN_API tn_tensor *tn_pad(tn_tensor *x, const int64_t *before, const int64_t *after, double v);
TN_API tn_tensor *tn_pad_i64(tn_tensor *x, const int64_t *before, const int64_t *after, int64_t v);
TN_API tn_tensor *tn_tril(tn_tensor *x, int64_t diagonal);
TN_API tn_tensor *tn_triu(tn_tensor *x, int64_t diagonal);
// Indices are i64 or i32; negative ones count from the end; one out of range is an error of the
// evaluation.
// y[i][j] = x[index[i][j]][j] along axis 0, and so on; index has x's rank.
TN_API tn_tensor *tn_gather(tn_tensor *x, int axis, tn_tensor *index);
TN_API tn_tensor *tn_take_along_axis(tn_tensor *x, tn_tensor *index, int axis);  // broadcasts
TN_API tn_tensor *tn_index_select(tn_tensor *x, int axis, tn_tensor *index);     // 1-d index
TN_API tn_tensor *tn_scatter(tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v);
TN_API tn_tensor *tn_scatter_add(tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v);
TN_API tn_tensor *tn_one_hot(tn_tensor *index, int64_t classes);  // i64
TN_API tn_tensor *tn_embedding(tn_tensor *weight, tn_tensor *index);

typedef struct {
    tn_tensor *values, *indices;
} tn_pair;
// Stable; NaN counts as the largest.
TN_API tn_pair    tn_sort(tn_tensor *x, int axis, bool descending);
TN_API tn_tensor *tn_argsort(tn_tensor *x, int axis, bool descending);
TN_API tn_pair    tn_topk(tn_tensor *x, int64_t k, int axis, bool largest);
// n draws from the rows of weights, floats of (C) or (N, C), in proportion to them, with
// replacement; i64.
TN_API tn_tensor *tn_multinomial(tn_tensor *weights, int64_t n);

// ---- products, networks ------------------------------------------------------------------------

// As numpy.matmul: (..., m, k) @ (..., k, n), leading sizes broadcast; vectors on either side.
TN_API tn_tensor *tn_matmul(tn_tensor *a, tn_tensor *b);
// x (..., in) @ w (out, in) transposed + b (out) or NULL.
TN_API tn_tensor *tn_linear(tn_tensor *x, tn_tensor *w, tn_tensor *b);

typedef struct {
    int64_t stride[2], padding[2], dilation[2];  // 0: stride 1, padding 0, dilation 1; a second 0
                                                 // takes the first
    int64_t groups;                              // 0: 1
} tn_conv_opts;
// x (N, C, L), w (O, C / groups, K), b (O) or NULL. For 1-d, the first of each pair counts.
TN_API tn_tensor *tn_conv1d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o);
// x (N, C, H, W), w (O, C / groups, KH, KW), b (O) or NULL.
TN_API tn_tensor *tn_conv2d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o);

typedef struct {
    int64_t stride[2], padding[2], dilation[2];  // 0: stride = kernel; a second 0 takes the first
    bool    exclude_padding;                     // averages: count real elements only
} tn_pool_opts;
TN_API tn_tensor *tn_max_pool1d(tn_tensor *x, int64_t kernel, tn_pool_opts o);
TN_API tn_tensor *tn_avg_pool1d(tn_tensor *x, int64_t kernel, tn_pool_opts o);
TN_API tn_tensor *tn_max_pool2d(tn_tensor *x, int64_t kh, int64_t kw, tn_pool_opts o);
TN_API tn_tensor *tn_avg_pool2d(tn_tensor *x, int64_t kh, int64_t kw, tn_pool_opts o);
TN_API tn_tensor *tn_adaptive_avg_pool2d(tn_tensor *x, int64_t h, int64_t w);
TN_API tn_tensor *tn_adaptive_max_pool2d(tn_tensor *x, int64_t h, int64_t w);

// Over the last n axes, which w and b (either may be NULL) have the shape of. eps 0: 1e-5.
TN_API tn_tensor *tn_layer_norm(tn_tensor *x, int n, tn_tensor *w, tn_tensor *b, double eps);
// eps 0: the epsilon of x's dtype.
TN_API tn_tensor *tn_rms_norm(tn_tensor *x, int n, tn_tensor *w, double eps);
TN_API tn_tensor *tn_group_norm(tn_tensor *x, int64_t groups, tn_tensor *w, tn_tensor *b,
                                double eps);
typedef struct {
    bool   training;  // by the batch's statistics, which also update mean and var where given
    double momentum;  // 0: 0.1
    double eps;       // 0: 1e-5
} tn_batch_norm_opts;
// x (N, C, ...); mean and var are the running statistics (C), w and b (C) or NULL.
TN_API tn_tensor *tn_batch_norm(tn_tensor *x, tn_tensor *mean, tn_tensor *var, tn_tensor *w,
                                tn_tensor *b, tn_batch_norm_opts o);

typedef struct {
    bool causal;      // query i looks at keys 0 .. i, counted from the first, also where T is not S
    tn_tensor *mask;  // bool (true: may look) or float (added), broadcasts to (..., T, S)
    double     scale;  // 0: 1 / sqrt(D)
    double     dropout;
} tn_attention_opts;
// Scaled dot-product attention: q (..., T, D), k (..., S, D), v (..., S, E). The sizes before the last
// two broadcast. A query that the mask lets look at no key gives 0.
TN_API tn_tensor *tn_attention(tn_tensor *q, tn_tensor *k, tn_tensor *v, tn_attention_opts o);

// ---- losses: the mean; X_with for weights, smoothing, an ignored index, sums -------------------

typedef enum { TN_MEAN, TN_SUM, TN_NONE } tn_reduce;
typedef struct {
    tn_tensor *weight;           // per class
    double     label_smoothing;  // 0 .. 1
    int64_t    ignore;           // a target that does not count, where use_ignore is set; else -100
    bool       use_ignore;
    bool       no_ignore;  // every target counts: the mean is over all, and -100 is out of range
    tn_reduce  reduce;
} tn_class_opts;
// x (N, C, ...) logits; target (N, ...) of class indices, or of x's shape, probabilities.
TN_API tn_tensor *tn_cross_entropy(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_cross_entropy_with(tn_tensor *x, tn_tensor *target, tn_class_opts o);
// x (N, C, ...) of log-probabilities.
TN_API tn_tensor *tn_nll(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_nll_with(tn_tensor *x, tn_tensor *target, tn_class_opts o);

typedef struct {
    tn_tensor *weight;      // broadcasts to the shape of the loss before it is reduced
    tn_tensor *pos_weight;  // bce_logits
    double     delta;       // huber, above 0; 0: 1
    bool       log_target;  // kl
    bool       batch_mean;  // kl: the sum over the batch size
    tn_reduce  reduce;
} tn_loss_opts;
TN_API tn_tensor *tn_mse(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_mse_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);
TN_API tn_tensor *tn_l1(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_l1_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);
TN_API tn_tensor *tn_huber(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_huber_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);
TN_API tn_tensor *tn_bce(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_bce_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);
TN_API tn_tensor *tn_bce_logits(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_bce_logits_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);
TN_API tn_tensor *tn_kl(tn_tensor *x, tn_tensor *target);  // x: log-probabilities
TN_API tn_tensor *tn_kl_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);

// ---- autograd ----------------------------------------------------------------------------------

// Turns recording for gradients on or off; returns the mode before.
TN_API_PLAIN bool tn_grad_mode(tn_ctx *cx, bool on);
// Makes t a leaf, in which tn_backward deposits gradients, or (off) no leaf any more. Returns t.
TN_API tn_tensor *tn_requires_grad(tn_tensor *t, bool on);
TN_API_PLAIN bool tn_needs_grad(const tn_tensor *t);  // a leaf, or made from one
// Adds the gradient of y, weighed by gy (NULL: 1, for a one-element y), to every leaf it was made
// from.
TN_API tn_status tn_backward(tn_tensor *y, tn_tensor *gy);
// gx[i] = gradient of the sum of y[j] * gy[j] with respect to x[i]; zeros for an unused x. gy or
// an entry of it may be NULL for one-element outputs. Differentiable while the gradient mode is
// on; touches no stored gradient.
TN_API tn_status tn_grad(int ny, tn_tensor *const *y, int nx, tn_tensor *const *x,
                         tn_tensor *const *gy, tn_tensor **gx);
// A leaf's gradient: the same handle for the leaf's life, zeros while there is none.
TN_API tn_tensor *tn_grad_of(tn_tensor *x);
TN_API_PLAIN bool tn_has_grad(const tn_tensor *x);
TN_API void       tn_zero_grad(tn_tensor *x);
// Compares the gradients of f at the f64 tensors x with finite differences. TN_OK when they agree.
TN_API tn_status tn_gradcheck(tn_tensor *(*f)(tn_tensor *const *x, void *user), int n,
                              tn_tensor *const *x, void *user);
// The same for the gradients of the gradients.
TN_API tn_status tn_gradgradcheck(tn_tensor *(*f)(tn_tensor *const *x, void *user), int n,
                                  tn_tensor *const *x, void *user);

// A user's own op: a static table handed over at each call.
//
// As an expression: expr says the value of an element in the language of docs/adding-an-op.md, in
// a, b, c or x0 .. x7, the inputs, which broadcast; it is computed and fused like built-in ops, on
// every device. grad_expr has one gradient for each input, with semicolons between, also in g, the
// gradient of the result, and y, the result; where it is NULL, expr is differentiated. The other
// members are not looked at then, and attr must be empty. What is wrong with a text is an error of
// the first call that uses it.
//
// In C: attributes are plain bytes, copied. shape fills dtype, rank and size of each out from those
// of in, when the op is recorded, and of an op of several outputs again later; compute fills
// out[].data at evaluation from row-major in[].data; on a GPU they are copied to the host for it, and
// back, which waits. Both must be pure. grad records ops: it sets gx[i] for each input, or leaves it NULL for none. A nonzero
// status is an error. The table must live as long as the context.
//
// In CUDA: cuda is a .cu text that a GPU runs in place of compute; all else is as in C. It has
//
//     extern "C" __global__ void NAME(tn::in<0> x, tn::in<1> w, tn::out<0> y, my_attr a)
//
// where NAME is kernel, or else the name of the op: a parameter for each input, for each output and,
// if there are attribute bytes, one of that size. docs/adding-an-op.md says what the text may use.
// launch says how many blocks and threads there are; it finds in *dims what is launched where it is
// NULL: one thread for each element of the largest output, in blocks of 256. Addresses in its
// arrays are the device's. The text is compiled as the op first runs, for the dtypes at hand; it and
// the kernel's parameters are checked then, dims before each launch.
typedef struct {
    tn_dtype dtype;
    int      rank;
    int64_t  size[TN_MAX_RANK];
    void    *data;
} tn_array;
typedef struct {
    int64_t grid[3], block[3];  // blocks, and threads of a block
    int64_t shared;             // bytes of shared memory besides what the text declares
} tn_launch_dims;
typedef struct {
    const char *name;
    int         nin, nout;  // nout 0: 1
    tn_status (*shape)(const void *attr, const tn_array *in, tn_array *out);
    tn_status (*compute)(const void *attr, const tn_array *in, tn_array *out);
    tn_status (*grad)(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                      tn_tensor *const *gy, tn_tensor **gx);
    const char *expr, *grad_expr;
    const char *cuda;
    const char *kernel;  // its name in cuda; NULL: name
    tn_status (*launch)(const void *attr, const tn_array *in, const tn_array *out,
                        tn_launch_dims *dims);
} tn_op_def;
TN_API tn_tensor *tn_custom(const tn_op_def *op, tn_tensor *const *x, const void *attr,
                            size_t bytes);
// The same for an op of several outputs, into y[nout].
TN_API tn_status tn_custom_n(const tn_op_def *op, tn_tensor *const *x, const void *attr,
                             size_t bytes, tn_tensor **y);

#include "tenon/layers.h"
#include "tenon/training.h"

// ---- devices, seeing ---------------------------------------------------------------------------

typedef struct {
    const char *name;    // what tn_open takes
    const char *detail;  // the chip and what serves it, or why it is not available; this thread's,
                         // until it asks for the same device again
    bool available;
} tn_device_desc;
// Device i of this build and machine, i from 0; name NULL past the last.
TN_API_PLAIN tn_device_desc tn_device_info(int i);
TN_API_PLAIN int            tn_devices(void);
// Writes what was found, where, and what is missing.
TN_API_PLAIN void tn_doctor(FILE *f);

typedef struct {
    int64_t bytes, peak;  // tensor memory now, and at most
    int64_t nodes;        // alive
    int64_t plans;        // built
    int64_t kernels;      // compiled by this process for the context's device
    int64_t hits;         // evaluations that found their plan
    int64_t launches, copies, syncs;
    int64_t disk_hits;  // kernels that were found compiled on disk, as kernels
    int64_t planned;    // bytes of the arena of the plan built last
    int64_t kept;  // bytes of the device that lie free in the context, for the next to ask: with
                   // those in use, at most twice what was in use lately, and 64 MiB
    int64_t returned;  // bytes that lay free and were given back to the device
} tn_stats;
TN_API_PLAIN tn_stats tn_stats_get(const tn_ctx *cx);

// Plans everything pending as tn_eval would, and prints the plan; runs nothing and changes nothing.
// First "N kernels, X bytes moved, Y at least" (N counts generated kernels and calls of a library or
// the device, Y is each input read once and each result written once); then every kernel and call
// with its kind, its sizes and the lines it comes from; then the memory for intermediate values, and
// the least that their lifetimes allow for this order.
TN_API tn_status tn_explain(tn_ctx *cx, FILE *f);
typedef struct {
    bool source;  // with the instructions of each kernel, and their text as the device compiles it
    bool
        stored;  // with the values that each of them leaves behind, and why: "stored (64, 10): assigned"
} tn_explain_opts;
TN_API tn_status tn_explain_with(tn_ctx *cx, FILE *f, tn_explain_opts o);

// Memory of a step, in bytes. The first three count every tensor that takes part once; while a step
// replaces one, old and new are both there, which shows in peak alone.
typedef struct {
    int64_t parameters;   // leaves that gradients can reach
    int64_t gradients;    // stored gradients of those leaves; a gradient that only the step itself
                          // reads, as in tn_step, is an activation
    int64_t optimizer;    // what else is written in place: optimizer state, running statistics
    int64_t activations;  // values on the way, at their highest, and other results
    int64_t workspace;    // scratch of kernels and library calls
    int64_t peak;         // the most that the context has while it runs, as in tn_stats
} tn_plan_memory;
// What a tn_eval now would take, before anything runs. Zeros on error.
TN_API tn_plan_memory tn_plan_bytes(tn_ctx *cx);

// A profile: between begin and end every kernel and call runs by itself and is timed, by the device's
// own clock where it has one. begin forgets the profile before. Evaluations are slower meanwhile, and
// values are the same.
TN_API tn_status tn_profile_begin(tn_ctx *cx);
TN_API tn_status tn_profile_end(tn_ctx *cx);
// Writes the profile, so far if it is on. To a path that ends in ".json": every run of a kernel as a
// trace event, for Perfetto or chrome://tracing (the first million). To any other path, or, with
// NULL, to stdout: a table of kernels, those that took longest first, with time, bytes and flops a
// second, the part that is of the rate of a large copy or product, which is measured then, and the
// lines they come from. Small values may stay in a cache and so go beyond that rate.
TN_API tn_status tn_profile_write(tn_ctx *cx, const char *path);

#include "tenon/sites.h"

#ifdef __cplusplus
}
// The list is written once, so that each layer is made once.
static inline tn_layer *tn_nn_seq_list(const char *file, int line, tn_ctx *cx,
                                       std::initializer_list<tn_layer *> layers)
{
    return tn_nn_seq_n_at(file, line, cx, (int)layers.size(), layers.begin());
}
#define tn_nn_seq(cx, ...) tn_nn_seq_list(TN_HERE, cx, { __VA_ARGS__ })
#endif

#endif
