// tenon.h: the public interface of Tenon. It includes tenon/arrays.h (more ops),
// tenon/layers.h (networks), tenon/training.h (optimizers, data, files), tenon/dlpack.h,
// tenon/dist.h (several processes) and tenon/pages.h (plans, profiles, pages); tenon/models.h is
// separate.
//
// A program opens a context on a device, records tensor operations in it, and reads results. An op
// checks its arguments, records a node, and returns a tensor at once. The work is planned and run
// when a value is read or a step ends.
//
// Errors. An op returns a tensor, or NULL if it failed. An op with a NULL argument returns NULL, so
// a chain of calls needs one check at its end. The context keeps the first error, with its text and
// the file and line of the call. Calls that run work or touch files return a tn_status.
//
// Ownership. A tensor belongs to the innermost scope that was open when it was made, and dies with
// that scope. A tensor made outside any scope lives until tn_close. tn_keep moves a tensor out of
// its scope. A context, and everything in it, belongs to the thread that opened it.
//
// Names follow four rules. tenon/old.h has the spellings of earlier versions.
//
//   tn_X_with   takes the arguments of tn_X, and an options struct as last argument. Only
//               tn_open_with differs: the device is one of its options. A function without a short
//               form takes its options under its plain name: tn_conv2d(x, w, b, o). A member of an
//               options struct that is 0 means the default, so (tn_conv_opts){ 0 } is all defaults;
//               TN_ZERO is a real zero. Real numbers in options are double.
//   arguments   come in the order of the PyTorch function of that name, or of NumPy's if there is
//               no such function: first the context or the object that the call is about. A count
//               comes before its array, options come last, pointers to results after everything.
//   getters     are tn_<subject>_<noun>(subject): tn_ctx_stats(cx), tn_optim_lr(opt),
//               tn_data_count(data). Getters of a tensor have no subject in their name: tn_rank(t),
//               or end in _of if the noun is taken: tn_dtype_of(t). Setters are
//               tn_<subject>_set_<noun>.
//   suffixes    tn_add_ writes into its first argument; tn_add_s takes a number (double) as second
//               argument, tn_add_i64 an integer; tn_sum_keep, tn_sum_all and tn_sum_axes are forms
//               of a reduction; tn_zeros_like takes shape and dtype from a tensor; tn_forward_n
//               takes counts and arrays.
#ifndef TENON_H
#define TENON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TN_VERSION_MAJOR 0
#define TN_VERSION_MINOR 1
#define TN_VERSION_PATCH 0

// TN_API marks a function that has two call forms, which do the same. tn_add(a, b) in a program is
// a macro that passes on the file and line of the call, for error messages. The function tn_add,
// for pointers, other languages, and programs that define TN_PLAIN before this header, has no line
// to name. In both forms, tensors that an op makes on the way to its result are freed when it
// returns. TN_API_PLAIN marks a function that has only the plain form: it makes no tensor, and its
// errors need no line. tenon/sites.h is generated from these marks.
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
// In Tenon's own sources, such a name is the function behind both forms, under its own symbol.
#define TN_PLAIN
#define TN_API                        __attribute__((visibility("hidden")))
#define TN_FORM(result, name, params) TN_API result name params __asm__("tni_" #name);
#endif

#ifdef __cplusplus
#include <initializer_list>
extern "C" {
#endif

typedef struct tn_ctx    tn_ctx;     // a device and everything that was made on it
typedef struct tn_scope  tn_scope;   // a span of calls whose tensors die together
typedef struct tn_tensor tn_tensor;  // a handle to a value: a shape, a dtype, and a view of a store
typedef struct tn_layer  tn_layer;   // a part of a network, with parameters and a forward function
typedef struct tn_cache  tn_cache;   // keys and values of the tokens that a network has seen
typedef struct tn_optim  tn_optim;   // an optimizer
typedef struct tn_data   tn_data;    // a dataset with its loader
typedef struct tn_tokenizer tn_tokenizer;  // text to tokens
typedef struct tn_file      tn_file;       // an open file of tensors
typedef struct tn_dist      tn_dist;       // processes that train together

typedef enum {
    TN_OK,
    TN_EARG,     // an argument is wrong
    TN_ESHAPE,   // shapes do not fit
    TN_EDTYPE,   // element types do not fit
    TN_EGRAD,    // there is no gradient, or its history was freed
    TN_EGONE,    // the value was not stored and cannot be computed again
    TN_EMEM,     // out of memory, on the host or the device
    TN_EDEVICE,  // the device is missing or refused the work
    TN_ELOST,    // the device is lost; only tn_close works
    TN_EIO,      // a file could not be opened, read or written
    TN_EFORMAT,  // the content of a file is malformed
    TN_ETHREAD,  // the context belongs to another thread
    TN_EUSER,    // a user's function failed: of an op, a layer or a dataset
    TN_ESTOP     // the program asked the evaluation to stop (tn_stop_when)
} tn_status;

// Files and programs depend on these numbers: a new dtype is added at the end.
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
    TN_F8_E4M3,  // 8-bit floats, PyTorch's float8_e4m3fn and float8_e5m2: they can be cast, moved,
    TN_F8_E5M2,  // saved and printed, but ops do not compute with them
    TN_C64,  // complex numbers, pairs of f32 and of f64: tenon/arrays.h says which ops take them
    TN_C128
} tn_dtype;

enum { TN_MAX_RANK = 8 };  // axes of a tensor, at most

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
#define TN_TO_END INT64_MAX  // the stop of a slice that goes to the end
#define TN_ZERO   (-0.0f)    // a real zero in an options struct, where 0 means the default
#ifndef TN_HERE
#define TN_HERE __FILE__, __LINE__  // NULL, 0: take the line of the enclosing call
#endif

// Names for bool arguments, so that a call can be read: tn_idx(cx, dir, TN_TEST), tn_sort(x, 0,
// TN_DESCENDING), tn_sum_axes(x, TN_AXES(0, 1), TN_KEEP_AXES). The first of each pair is false.
enum { TN_TRAIN, TN_TEST };            // which part of a dataset: tn_idx, tn_cifar10
enum { TN_ASCENDING, TN_DESCENDING };  // tn_sort, tn_argsort
enum { TN_SMALLEST, TN_LARGEST };      // tn_topk
enum { TN_DROP_AXES, TN_KEEP_AXES };   // tn_sum_axes and the other reductions over axes
enum { TN_EVALUATING, TN_TRAINING };   // tn_dropout
// For tn_data_shuffle, tn_data_drop_last, tn_grad_mode, tn_requires_grad, tn_layer_train.
enum { TN_OFF, TN_ON };

// ---- context, scope, error ---------------------------------------------------------------------

typedef struct {
    tn_status   code;
    const char *text;   // names the op, the argument and the shapes
    const char *file;   // of the innermost call in the user's code; "" without the call-site macro
    int         line;   // in that file
    const char *layer;  // path of the layer that was running, "layer3.2.conv1"; "" for none
    // The outermost call, such as tn_forward in a training loop; equal to file and line if it
    // failed itself.
    const char *outer_file;
    int         outer_line;
} tn_fault;

// Handles the first error since tn_error_clear. It is called as the last act of the public call
// that failed, and may longjmp.
typedef void tn_handler(tn_ctx *cx, const tn_fault *f, void *user);

typedef struct {
    const char *device;       // "cpu", "cuda", "cuda:1", "opencl", "ref"; NULL: TN_DEVICE, or the
                              // fastest device present
    tn_handler *handler;      // NULL: print the first error once to stderr
    void       *user;         // passed to handler and alloc
    uint64_t    seed;         // of random numbers
    int64_t     mem_limit;    // bytes of tensors and expanded files; 0: TN_MEM_LIMIT, or no limit
    int64_t     flush_nodes;  // number of pending nodes at which work is launched; 0: 100,000
    int         threads;      // 0: TN_NUM_THREADS, or all cores
    void       *stream;       // the caller's stream to run in, on devices that have streams
    // Host allocator: old NULL allocates n bytes, n 0 frees old, otherwise resizes it. NULL:
    // malloc, realloc and free.
    void *(*alloc)(void *user, void *old, size_t n);
} tn_open_opts;

// Opens a context on a device; NULL: TN_DEVICE, or the fastest device present. Returns NULL on
// failure, with the reason in tn_error_text(NULL).
TN_API_PLAIN tn_ctx *tn_open(const char *device);
TN_API_PLAIN tn_ctx *tn_open_with(tn_open_opts o);
// Frees the context and everything in it. tn_close(NULL) does nothing. Inside a function that a
// call of this context runs, and while values are exported (tn_to_dlpack), it is an error and frees
// nothing.
TN_API_PLAIN void tn_close(tn_ctx *cx);
// Gives the context up, so that another thread can take it over with tn_ctx_enter.
TN_API_PLAIN tn_status tn_ctx_leave(tn_ctx *cx);
TN_API_PLAIN tn_status tn_ctx_enter(tn_ctx *cx);
// Takes the context over from whichever thread has it, without that thread's doing. For programs
// with a lock of their own, such as an interpreter's: the caller knows that no call on the context
// is running.
TN_API_PLAIN tn_status tn_ctx_take(tn_ctx *cx);
// Returns the device that the context is open on, as tn_open takes it: "cuda:1".
TN_API_PLAIN const char *tn_ctx_device(const tn_ctx *cx);
// Restarts the sequence of random numbers.
TN_API_PLAIN void tn_seed(tn_ctx *cx, uint64_t seed);
// A place in the sequence of random numbers: its seed, and what was drawn of it so far.
// tn_random_set returns to it.
typedef struct {
    uint64_t seed, drawn;
} tn_random_state;
TN_API_PLAIN tn_random_state tn_random_get(const tn_ctx *cx);
TN_API_PLAIN void            tn_random_set(tn_ctx *cx, tn_random_state state);

// Opens a scope: tensors made from now on die when it ends.
TN_API tn_scope *tn_begin(tn_ctx *cx);
// Ends the scope, and any scope still open inside it, and restores the gradient mode that was set
// when it began. The end of the outermost scope launches the work for tensors that outlive it.
TN_API tn_status tn_end(tn_scope *s);
// Moves t from its scope to the next outer one, and marks it as tn_want does. Returns t.
TN_API tn_tensor *tn_keep(tn_tensor *t);
// Asks the next step boundary (tn_eval, tn_step) to store t's value. Returns t.
TN_API tn_tensor *tn_want(tn_tensor *t);
// Frees t before its scope ends.
TN_API void tn_drop(tn_tensor *t);
// Counts one owner more: t leaves its scope, and lives until every owner has released it; steps
// store its value until then. For languages that count references instead of opening scopes.
TN_API_PLAIN void tn_retain(tn_tensor *t);
TN_API_PLAIN void tn_release(tn_tensor *t);

// Returns the code of the first error since tn_error_clear, or TN_OK. cx NULL means the slot of the
// calling thread, which holds the newest error that belongs to no context, such as a failed
// tn_open.
TN_API_PLAIN tn_status tn_error(const tn_ctx *cx);
// Returns the text of that error, or "".
TN_API_PLAIN const char *tn_error_text(const tn_ctx *cx);
// Forgets the error.
TN_API_PLAIN void tn_error_clear(tn_ctx *cx);
// Writes untrusted text, such as a name from a file, in a printable form: control characters and
// bytes that are not UTF-8 as \xNN, invisible and reordering characters as \u{NNNN}. The result is
// cut to fit into room bytes, including a final 0. Returns the number of bytes of text that it
// used. Error texts are already written this way.
TN_API_PLAIN size_t tn_escape(char *to, size_t room, const char *text);
// Reports an error of a user's own layer or op, as built-in ones report theirs. Returns NULL.
TN_API void *tn_error_set(tn_ctx *cx, tn_status code, const char *text);
// Replaces the error handler. NULL: report nothing.
TN_API_PLAIN void tn_on_error(tn_ctx *cx, tn_handler *h, void *user);
// Replaces the warning handler. NULL: report nothing. A warning is about a call that works but is
// probably a mistake, such as a loss whose prediction and target broadcast each other. Only the
// first warning of a context is reported, as a fault with code TN_OK. Until this is called, the
// warning is printed to stderr, unless the program has replaced the error handler.
TN_API_PLAIN void tn_on_warning(tn_ctx *cx, tn_handler *h, void *user);
// While an evaluation runs, `asked` is called before a kernel or call that follows, at most about
// 20 times a second. Once it returns true, the evaluation stops, and the call that it was for fails
// with TN_ESTOP; everything is pending as before, and the next evaluation computes it. An
// evaluation that has begun to overwrite values in their place, as an optimizer does at the end of
// a step, is not stopped. NULL: nothing is asked.
TN_API_PLAIN void tn_stop_when(tn_ctx *cx, bool (*asked)(void *user), void *user);
// Returns the name of a status, "TN_EARG".
TN_API_PLAIN const char *tn_status_name(tn_status s);
// Returns the version of the library, "0.1.0".
TN_API_PLAIN const char *tn_version(void);

// ---- tensors -----------------------------------------------------------------------------------

// Makes a tensor from a copy of host memory, row-major.
TN_API tn_tensor *tn_from(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, const void *data);
// Makes a tensor that reads the caller's memory without copying it. The memory must stay unchanged
// until release is called: exactly once, on the owner thread, inside a tn_ call, also if this call
// fails. Tenon never writes to it; a write to the tensor copies first. On a GPU, data may be memory
// of that GPU, which is used directly; host memory is copied to the GPU.
TN_API tn_tensor *tn_borrow(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, void *data,
                            void (*release)(void *data, void *user), void *user);
// Make a tensor of zeros, of ones, or of the number v. A double rounds integers above 2^53;
// functions with _i64 take an integer exactly.
TN_API tn_tensor *tn_zeros(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size);
TN_API tn_tensor *tn_ones(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size);
TN_API tn_tensor *tn_full(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, double v);
TN_API tn_tensor *tn_full_i64(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size, int64_t v);
// The same, with the context, dtype and shape of x.
TN_API tn_tensor *tn_zeros_like(tn_tensor *x);
TN_API tn_tensor *tn_ones_like(tn_tensor *x);
TN_API tn_tensor *tn_full_like(tn_tensor *x, double v);
TN_API tn_tensor *tn_full_like_i64(tn_tensor *x, int64_t v);
// Makes a 0-d tensor of one number, f32 or i64. In an op with another tensor, it takes the dtype of
// that tensor, as a plain number would.
TN_API tn_tensor *tn_scalar(tn_ctx *cx, double v);
TN_API tn_tensor *tn_scalar_i64(tn_ctx *cx, int64_t v);
// Makes a 1-d tensor of start, start + step, ... below stop (above stop if step is negative).
TN_API tn_tensor *tn_arange(tn_ctx *cx, tn_dtype dt, double start, double stop, double step);
TN_API tn_tensor *tn_arange_i64(tn_ctx *cx, tn_dtype dt, int64_t start, int64_t stop, int64_t step);
// Makes a 1-d tensor of n evenly spaced numbers from a to b, both included.
TN_API tn_tensor *tn_linspace(tn_ctx *cx, tn_dtype dt, double a, double b, int64_t n);
// Makes a matrix with ones on its diagonal and zeros elsewhere.
TN_API tn_tensor *tn_eye(tn_ctx *cx, tn_dtype dt, int64_t rows, int64_t cols);

// Random numbers come from Philox4x32-10, keyed by the context's seed, with a counter that is taken
// when the op is recorded. They are equal on every device and for every number of threads.
TN_API tn_tensor *tn_rand(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size);   // in [0, 1)
TN_API tn_tensor *tn_randn(tn_ctx *cx, tn_dtype dt, int rank, const int64_t *size);  // normal
TN_API tn_tensor *tn_rand_like(tn_tensor *x);
TN_API tn_tensor *tn_randn_like(tn_tensor *x);
// Makes random integers in lo .. hi - 1.
TN_API tn_tensor *tn_randint(tn_ctx *cx, tn_dtype dt, int64_t lo, int64_t hi, int rank,
                             const int64_t *size);
// Makes a random permutation of 0 .. n - 1, i64.
TN_API tn_tensor *tn_randperm(tn_ctx *cx, int64_t n);
// Makes a tensor of p's shape and dtype: each element is 1 with the probability in p, otherwise 0.
TN_API tn_tensor *tn_bernoulli(tn_tensor *p);

// Copies t into a context, its own or another one. The copy has no gradient history.
TN_API tn_tensor *tn_copy_to(tn_ctx *cx, tn_tensor *t);
// Return facts of a tensor, without waiting for its value.
TN_API_PLAIN tn_ctx     *tn_ctx_of(const tn_tensor *t);
TN_API_PLAIN tn_dtype    tn_dtype_of(const tn_tensor *t);
TN_API_PLAIN const char *tn_dtype_name(tn_dtype dt);  // "f32"
TN_API_PLAIN int         tn_rank(const tn_tensor *t);
TN_API_PLAIN int64_t tn_size(const tn_tensor *t, int axis);    // axis may be negative; -1 on error
TN_API_PLAIN int64_t tn_stride(const tn_tensor *t, int axis);  // in elements
TN_API_PLAIN int64_t tn_offset(const tn_tensor *t);   // in elements, from the start of the store
TN_API_PLAIN int64_t tn_count(const tn_tensor *t);    // number of elements
TN_API_PLAIN bool    tn_is_view(const tn_tensor *t);  // whether it shares the store of its input
TN_API_PLAIN bool    tn_is_contiguous(const tn_tensor *t);  // row-major, without gaps
TN_API_PLAIN const char *tn_name(const tn_tensor *t);       // "" if it has none
// Names t, for messages and for tn_item_late. Returns t.
TN_API tn_tensor *tn_set_name(tn_tensor *t, const char *name);

// Returns the value of a one-element tensor, after waiting for it. NaN on error.
TN_API double tn_item(tn_tensor *t);
// The same as an integer. 0 on error.
TN_API int64_t tn_item_i64(tn_tensor *t);
// Never waits: returns the newest value that has arrived under t's name or, if t has no name, at
// this line of the program. NaN before the first.
TN_API double tn_item_late(tn_tensor *t);
// Copies t's elements to dst, row-major, converted to dt, after waiting for them. count must equal
// tn_count(t).
TN_API tn_status tn_read(tn_tensor *t, tn_dtype dt, void *dst, int64_t count);
// Returns the address of t's first element, after waiting for its value. Elements are at t's
// strides. On cuda it is an address of the GPU. Valid until t dies or is written. NULL, an error,
// on devices whose memory has no addresses.
TN_API const void *tn_ptr(tn_tensor *t);
// Evaluates n tensors and puts the elements of t[i], row-major, at data[i]: host memory or, on a
// GPU, memory of that GPU, which is not waited for. Results of kernels are computed there: the
// tensor then reads that memory, which must stay unchanged until release(data[i], user) is called,
// as with tn_borrow; where it was copied that is at once. release may be NULL.
TN_API tn_status tn_eval_into(int n, tn_tensor *const *t, void *const *data,
                              void (*release)(void *data, void *user), void *user);
// Prints t as NumPy would.
TN_API void tn_print(tn_tensor *t, FILE *f);
// Ends a step: launches all pending work, without waiting. Stores every value that was assigned,
// wanted or kept, was made outside the innermost scope, is read by no other op, or has one element.
// Other values of the step are computed again if they are used later.
TN_API tn_status tn_eval(tn_ctx *cx);
// Launches the work for t, without waiting. Never makes another value unreadable.
TN_API tn_status tn_eval_of(tn_tensor *t);
// Waits for all launched work, and returns a deferred error of the device, if any.
TN_API tn_status tn_sync(tn_ctx *cx);

// ---- views: share the store of their input, and never copy -------------------------------------

// An axis may be negative in every function: -1 is the last.
//
// Returns elements start, start + step, ... below stop along an axis. start and stop may be
// negative, and are clipped. A negative step runs backwards; stop TN_TO_END then includes the first
// element.
TN_API tn_tensor *tn_slice(tn_tensor *x, int axis, int64_t start, int64_t stop, int64_t step);
// Returns the elements at one index of an axis, and drops the axis.
TN_API tn_tensor *tn_select(tn_tensor *x, int axis, int64_t index);
// Drops an axis of size 1.
TN_API tn_tensor *tn_squeeze(tn_tensor *x, int axis);
// Drops all axes of size 1.
TN_API tn_tensor *tn_squeeze_all(tn_tensor *x);
// Inserts an axis of size 1, which is then number `axis`.
TN_API tn_tensor *tn_unsqueeze(tn_tensor *x, int axis);
// Exchanges two axes.
TN_API tn_tensor *tn_transpose(tn_tensor *x, int axis1, int axis2);
// Reorders all axes: axis i of the result is axis axes[i] of x. tn_permute(x, TN_AXES(2, 0, 1)).
TN_API tn_tensor *tn_permute(tn_tensor *x, int n, const int *axes);
// Broadcasts to a shape; a size of -1 keeps x's size.
TN_API tn_tensor *tn_expand(tn_tensor *x, int rank, const int64_t *size);
// Reverses the elements along an axis.
TN_API tn_tensor *tn_flip(tn_tensor *x, int axis);
// Returns a diagonal of the matrices in axis1 and axis2, as a new last axis. offset counts from the
// main diagonal, upwards if positive.
TN_API tn_tensor *tn_diagonal(tn_tensor *x, int64_t offset, int axis1, int axis2);
// Returns windows of n elements along an axis, whose starts are `step` apart. The axis then counts
// the windows, and a new last axis of size n has their elements, which are `dilation` apart (1 in
// tn_window).
TN_API tn_tensor *tn_window(tn_tensor *x, int axis, int64_t n, int64_t step);
TN_API tn_tensor *tn_window_dilated(tn_tensor *x, int axis, int64_t n, int64_t step,
                                    int64_t dilation);
// Returns the same elements without gradient history.
TN_API tn_tensor *tn_detach(tn_tensor *x);
// Returns the same elements in another shape; one size may be -1 and is computed. An error if this
// needs a copy.
TN_API tn_tensor *tn_view(tn_tensor *x, int rank, const int64_t *size);
// The same, as a view if the strides allow it, otherwise as a copy. tn_is_view tells which.
TN_API tn_tensor *tn_reshape(tn_tensor *x, int rank, const int64_t *size);
// Joins the axes first .. last into one, as tn_reshape does.
TN_API tn_tensor *tn_flatten(tn_tensor *x, int first, int last);

// ---- writes: change x and every tensor that shares its store; return x -------------------------

TN_API tn_tensor *tn_assign(tn_tensor *x, tn_tensor *v);  // x = v, which is broadcast and cast
TN_API tn_tensor *tn_add_(tn_tensor *x, tn_tensor *v);    // x += v
TN_API tn_tensor *tn_sub_(tn_tensor *x, tn_tensor *v);
TN_API tn_tensor *tn_mul_(tn_tensor *x, tn_tensor *v);
TN_API tn_tensor *tn_div_(tn_tensor *x, tn_tensor *v);
TN_API tn_tensor *tn_fill_(tn_tensor *x, double v);  // every element = v
TN_API tn_tensor *tn_fill_i64_(tn_tensor *x, int64_t v);
TN_API tn_tensor *tn_zero_(tn_tensor *x);                         // every element = 0
TN_API tn_tensor *tn_clamp_(tn_tensor *x, double lo, double hi);  // limited to lo .. hi
TN_API tn_tensor *tn_clamp_i64_(tn_tensor *x, int64_t lo, int64_t hi);

// ---- maps: element by element, with NumPy's broadcasting and PyTorch's type promotion ----------

TN_API tn_tensor *tn_neg(tn_tensor *x);          // -x
TN_API tn_tensor *tn_abs(tn_tensor *x);          // absolute value
TN_API tn_tensor *tn_sign(tn_tensor *x);         // -1, 0 or 1; 0 for NaN
TN_API tn_tensor *tn_floor(tn_tensor *x);        // largest integer not above x
TN_API tn_tensor *tn_ceil(tn_tensor *x);         // smallest integer not below x
TN_API tn_tensor *tn_round(tn_tensor *x);        // nearest integer; halves go to the even one
TN_API tn_tensor *tn_trunc(tn_tensor *x);        // x without its fraction
TN_API tn_tensor *tn_sqrt(tn_tensor *x);         // square root
TN_API tn_tensor *tn_rsqrt(tn_tensor *x);        // 1 / sqrt(x)
TN_API tn_tensor *tn_reciprocal(tn_tensor *x);   // 1 / x
TN_API tn_tensor *tn_square(tn_tensor *x);       // x * x
TN_API tn_tensor *tn_exp(tn_tensor *x);          // e to the power of x
TN_API tn_tensor *tn_exp2(tn_tensor *x);         // 2 to the power of x
TN_API tn_tensor *tn_expm1(tn_tensor *x);        // exp(x) - 1, accurate near 0
TN_API tn_tensor *tn_log(tn_tensor *x);          // natural logarithm
TN_API tn_tensor *tn_log2(tn_tensor *x);         // logarithm to base 2
TN_API tn_tensor *tn_log1p(tn_tensor *x);        // log(1 + x), accurate near 0
TN_API tn_tensor *tn_sin(tn_tensor *x);          // sine
TN_API tn_tensor *tn_cos(tn_tensor *x);          // cosine
TN_API tn_tensor *tn_tan(tn_tensor *x);          // tangent
TN_API tn_tensor *tn_atan(tn_tensor *x);         // inverse tangent
TN_API tn_tensor *tn_tanh(tn_tensor *x);         // hyperbolic tangent
TN_API tn_tensor *tn_erf(tn_tensor *x);          // error function
TN_API tn_tensor *tn_isnan(tn_tensor *x);        // bool: whether x is NaN
TN_API tn_tensor *tn_isinf(tn_tensor *x);        // bool: whether x is infinite
TN_API tn_tensor *tn_isfinite(tn_tensor *x);     // bool: whether x is neither
TN_API tn_tensor *tn_logical_not(tn_tensor *x);  // bool: whether x is 0
TN_API tn_tensor *tn_bit_not(tn_tensor *x);      // every bit inverted; logical not of a bool

TN_API tn_tensor *tn_add(tn_tensor *a, tn_tensor *b);           // a + b
TN_API tn_tensor *tn_sub(tn_tensor *a, tn_tensor *b);           // a - b
TN_API tn_tensor *tn_mul(tn_tensor *a, tn_tensor *b);           // a * b
TN_API tn_tensor *tn_div(tn_tensor *a, tn_tensor *b);           // a / b; of integers a float
TN_API tn_tensor *tn_pow(tn_tensor *a, tn_tensor *b);           // a to the power of b
TN_API tn_tensor *tn_remainder(tn_tensor *a, tn_tensor *b);     // a modulo b, with the sign of b
TN_API tn_tensor *tn_floor_divide(tn_tensor *a, tn_tensor *b);  // floor(a / b)
TN_API tn_tensor *tn_maximum(tn_tensor *a, tn_tensor *b);       // the larger; NaN if either is NaN
TN_API tn_tensor *tn_minimum(tn_tensor *a, tn_tensor *b);       // the smaller; NaN if either is NaN
TN_API tn_tensor *tn_eq(tn_tensor *a, tn_tensor *b);            // bool: a == b
TN_API tn_tensor *tn_ne(tn_tensor *a, tn_tensor *b);            // bool: a != b
TN_API tn_tensor *tn_lt(tn_tensor *a, tn_tensor *b);            // bool: a < b
TN_API tn_tensor *tn_le(tn_tensor *a, tn_tensor *b);            // bool: a <= b
TN_API tn_tensor *tn_gt(tn_tensor *a, tn_tensor *b);            // bool: a > b
TN_API tn_tensor *tn_ge(tn_tensor *a, tn_tensor *b);            // bool: a >= b
TN_API tn_tensor *tn_logical_and(tn_tensor *a, tn_tensor *b);   // bool: both are nonzero
TN_API tn_tensor *tn_logical_or(tn_tensor *a, tn_tensor *b);    // bool: at least one is nonzero
TN_API tn_tensor *tn_logical_xor(tn_tensor *a, tn_tensor *b);   // bool: exactly one is nonzero
TN_API tn_tensor *tn_bit_and(tn_tensor *a, tn_tensor *b);       // bits set in both
TN_API tn_tensor *tn_bit_or(tn_tensor *a, tn_tensor *b);        // bits set in at least one
TN_API tn_tensor *tn_bit_xor(tn_tensor *a, tn_tensor *b);       // bits set in exactly one
TN_API tn_tensor *tn_shl(tn_tensor *a, tn_tensor *b);           // a shifted left by b bits
TN_API tn_tensor *tn_shr(tn_tensor *a,
                         tn_tensor *b);  // a shifted right by b bits, keeping its sign

// With a number v as second operand. The number takes x's dtype: a fraction makes an integer tensor
// f32, and an integer that x's dtype cannot hold is an error (TN_EARG), except that a negative
// number wraps around beside an unsigned dtype. Beside f16 and bf16, v keeps the precision of f32,
// in which these dtypes are computed; only comparisons round it to x's dtype.
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
// With an integer as second operand, which keeps all its bits.
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

// Converts to a dtype: to floats by rounding to nearest even, to integers by cutting the fraction.
TN_API tn_tensor *tn_cast(tn_tensor *x, tn_dtype dt);
// Returns a where cond, a bool, is true, and b elsewhere.
TN_API tn_tensor *tn_where(tn_tensor *cond, tn_tensor *a, tn_tensor *b);
// Returns v where mask, a bool, is true, and x elsewhere.
TN_API tn_tensor *tn_masked_fill(tn_tensor *x, tn_tensor *mask, double v);
TN_API tn_tensor *tn_masked_fill_i64(tn_tensor *x, tn_tensor *mask, int64_t v);
// Limits elements to lo .. hi.
TN_API tn_tensor *tn_clamp(tn_tensor *x, double lo, double hi);
TN_API tn_tensor *tn_clamp_i64(tn_tensor *x, int64_t lo, int64_t hi);

// Activations, as in torch.nn.functional.
TN_API tn_tensor *tn_relu(tn_tensor *x);                      // max(x, 0)
TN_API tn_tensor *tn_leaky_relu(tn_tensor *x, double slope);  // x if x > 0, otherwise slope * x
TN_API tn_tensor *tn_elu(tn_tensor *x, double alpha);  // x if x > 0, otherwise alpha * (exp(x) - 1)
TN_API tn_tensor *tn_celu(tn_tensor *x, double alpha);  // the same with exp(x / alpha)
TN_API tn_tensor *tn_selu(tn_tensor *x);  // elu, scaled so that means and variances stay
// x if x > 0, otherwise w * x, where w is one number or one for each channel (axis 1).
TN_API tn_tensor *tn_prelu(tn_tensor *x, tn_tensor *w);
TN_API tn_tensor *tn_sigmoid(tn_tensor *x);     // 1 / (1 + exp(-x))
TN_API tn_tensor *tn_logsigmoid(tn_tensor *x);  // log(sigmoid(x))
TN_API tn_tensor *tn_silu(tn_tensor *x);        // x * sigmoid(x)
TN_API tn_tensor *tn_gelu(tn_tensor *x);        // exact, by erf
TN_API tn_tensor *tn_gelu_tanh(tn_tensor *x);   // the approximation by tanh
TN_API tn_tensor *tn_softplus(tn_tensor *x);    // log(1 + exp(x))
TN_API tn_tensor *tn_mish(tn_tensor *x);        // x * tanh(softplus(x))
TN_API tn_tensor *tn_softsign(tn_tensor *x);    // x / (1 + |x|)
TN_API tn_tensor *tn_hardswish(tn_tensor *x);   // x * clamp(x + 3, 0, 6) / 6
// The first half of an axis times the sigmoid of the second.
TN_API tn_tensor *tn_glu(tn_tensor *x, int axis);
// silu(gate) * up, the gated activation of Llama.
TN_API tn_tensor *tn_swiglu(tn_tensor *gate, tn_tensor *up);
// In training, sets elements to 0 with probability p and scales the others by 1 / (1 - p).
// Otherwise returns x's value.
TN_API tn_tensor *tn_dropout(tn_tensor *x, double p, bool training);

// ---- reductions --------------------------------------------------------------------------------

// Each has four forms: tn_X reduces one axis and drops it, tn_X_keep leaves it with size 1,
// tn_X_all reduces to one element, and tn_X_axes reduces n axes (all if n is 0), which keep leaves
// with size 1.

#define TN_REDUCTION(name)                                      \
    TN_API tn_tensor *tn_##name(tn_tensor *x, int axis);        \
    TN_API tn_tensor *tn_##name##_keep(tn_tensor *x, int axis); \
    TN_API tn_tensor *tn_##name##_all(tn_tensor *x);            \
    TN_API tn_tensor *tn_##name##_axes(tn_tensor *x, int n, const int *axes, bool keep);

TN_REDUCTION(sum)
TN_REDUCTION(mean)
TN_REDUCTION(prod)
TN_REDUCTION(max)  // the largest element; equal ones share the gradient
TN_REDUCTION(min)
TN_REDUCTION(var)  // of a sample: divided by n - 1
TN_REDUCTION(std)
TN_REDUCTION(norm)       // Euclidean; its gradient at 0 is 0
TN_REDUCTION(logsumexp)  // log(sum(exp(x))), without overflow
TN_REDUCTION(any)        // bool, or u8 for u8: whether any element is nonzero
TN_REDUCTION(all)        // bool, or u8 for u8: whether all elements are nonzero
#undef TN_REDUCTION

// Return the index of the first largest or smallest element, i64. tn_argmax_all and tn_argmin_all
// count elements in row-major order.
TN_API tn_tensor *tn_argmax(tn_tensor *x, int axis);
TN_API tn_tensor *tn_argmax_keep(tn_tensor *x, int axis);
TN_API tn_tensor *tn_argmax_all(tn_tensor *x);
TN_API tn_tensor *tn_argmin(tn_tensor *x, int axis);
TN_API tn_tensor *tn_argmin_keep(tn_tensor *x, int axis);
TN_API tn_tensor *tn_argmin_all(tn_tensor *x);

TN_API tn_tensor *tn_cumsum(tn_tensor *x, int axis);       // running sum along an axis
TN_API tn_tensor *tn_cumprod(tn_tensor *x, int axis);      // running product along an axis
TN_API tn_tensor *tn_softmax(tn_tensor *x, int axis);      // exp(x) / sum(exp(x)) along an axis
TN_API tn_tensor *tn_log_softmax(tn_tensor *x, int axis);  // log(softmax(x))

// ---- movement ----------------------------------------------------------------------------------

// Returns the same elements, stored row-major.
TN_API tn_tensor *tn_contiguous(tn_tensor *x);
// Returns a copy, stored in the order of x's strides.
TN_API tn_tensor *tn_clone(tn_tensor *x);
// Returns x (N, C, H, W), with the same shape, stored as (N, H, W, C); also with one or three axes
// of places. Maps, convolutions and pools of the result keep that order; tn_contiguous returns to
// row-major.
TN_API tn_tensor *tn_channels_last(tn_tensor *x);
// Joins n tensors along an existing axis.
TN_API tn_tensor *tn_concat(int n, tn_tensor *const *x, int axis);
// Joins n tensors of equal shape along a new axis.
TN_API tn_tensor *tn_stack(int n, tn_tensor *const *x, int axis);
// Writes views of `size` elements along an axis into y, at most n; the last may be smaller. Returns
// the number of views, or -1 on error.
TN_API int tn_split(tn_tensor *x, int64_t size, int axis, int n, tn_tensor **y);
// Writes views of `chunks` pieces of equal size into y[chunks]; the last may be smaller, and there
// may be fewer. Returns their number, or -1 on error.
TN_API int tn_chunk(tn_tensor *x, int chunks, int axis, tn_tensor **y);
// Adds before[i] and after[i] elements of value v at the ends of axis i. Negative counts remove
// elements.
TN_API tn_tensor *tn_pad(tn_tensor *x, const int64_t *before, const int64_t *after, double v);
TN_API tn_tensor *tn_pad_i64(tn_tensor *x, const int64_t *before, const int64_t *after, int64_t v);

// Indices are i64 or i32. Negative ones count from the end. An index out of range is an error of
// the evaluation.
//
// Returns x's elements at index along an axis: y[i][j] = x[index[i][j]][j] for axis 0. index has
// x's rank.
TN_API tn_tensor *tn_gather(tn_tensor *x, int axis, tn_tensor *index);
// The same, where x and index broadcast along the other axes. The arguments are in NumPy's order.
TN_API tn_tensor *tn_take_along_axis(tn_tensor *x, tn_tensor *index, int axis);
// Returns the parts of x at a 1-d index along an axis.
TN_API tn_tensor *tn_index_select(tn_tensor *x, int axis, tn_tensor *index);
// Returns a copy of x in which the elements at index along an axis are replaced by those of v; if
// an index repeats, by the last one.
TN_API tn_tensor *tn_scatter(tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v);
// Returns a copy of x in which the elements of v are added at index along an axis.
TN_API tn_tensor *tn_scatter_add(tn_tensor *x, int axis, tn_tensor *index, tn_tensor *v);
// Adds a last axis of `classes` elements: 1 at the index, 0 elsewhere; i64.
TN_API tn_tensor *tn_one_hot(tn_tensor *index, int64_t classes);
// Returns rows of weight (V, D) for an index of any shape (...): (..., D). PyTorch's F.embedding.
TN_API tn_tensor *tn_embed(tn_tensor *index, tn_tensor *weight);

typedef struct {
    tn_tensor *values, *indices;
} tn_pair;
// Sort along an axis. The order of equal elements is kept; NaN counts as the largest. indices are
// the places of the elements in x, i64.
TN_API tn_pair    tn_sort(tn_tensor *x, int axis, bool descending);
TN_API tn_tensor *tn_argsort(tn_tensor *x, int axis, bool descending);
// Returns the k largest or smallest elements along an axis, in order, and their indices.
TN_API tn_pair tn_topk(tn_tensor *x, int64_t k, int axis, bool largest);

// ---- products, networks ------------------------------------------------------------------------

// Multiplies matrices as numpy.matmul: (..., m, k) @ (..., k, n). Leading axes broadcast; either
// operand may be a vector.
TN_API tn_tensor *tn_matmul(tn_tensor *a, tn_tensor *b);
// Returns x @ transpose(w) + b, for x (..., in), w (out, in), and b (out) or NULL.
TN_API tn_tensor *tn_linear(tn_tensor *x, tn_tensor *w, tn_tensor *b);

typedef struct {
    // One for each axis of places. 0: stride 1, padding 0, dilation 1. An entry that is 0 is equal
    // to the first; TN_NO_PADDING after the first is no padding along that axis.
    int64_t stride[3], padding[3], dilation[3];
    int64_t groups;             // 0: 1
    int64_t output_padding[3];  // of a transposed convolution; below stride or dilation
} tn_conv_opts;
#define TN_NO_PADDING (-1)
// Convolve x (N, C, L), (N, C, H, W) or (N, C, D, H, W) with w (O, C / groups, taps), taps being K,
// KH, KW or KD, KH, KW, plus b (O) or NULL.
TN_API tn_tensor *tn_conv1d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o);
TN_API tn_tensor *tn_conv2d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o);
TN_API tn_tensor *tn_conv3d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o);
// The transposed convolutions, the gradients of the above for x, as layers that enlarge: x (N, C,
// places), w (C, O / groups, taps), b (O) or NULL. An axis of n places gets (n - 1) stride - 2
// padding + dilation (taps - 1) + 1 + output_padding.
TN_API tn_tensor *tn_conv_transpose1d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o);
TN_API tn_tensor *tn_conv_transpose2d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o);
TN_API tn_tensor *tn_conv_transpose3d(tn_tensor *x, tn_tensor *w, tn_tensor *b, tn_conv_opts o);

typedef struct {
    // 0: stride = kernel, padding 0, dilation 1. An entry that is 0 is equal to the first, as in
    // tn_conv_opts.
    int64_t stride[3], padding[3], dilation[3];
    bool    exclude_padding;  // averages divide by the number of real elements
    bool    ceil_mode;        // a last window may reach beyond x, if it begins before its end
} tn_pool_opts;
// Return the maximum or the average of each window of x (N, C, L), (N, C, H, W) or (N, C, D, H, W).
TN_API tn_tensor *tn_max_pool1d(tn_tensor *x, int64_t kernel, tn_pool_opts o);
TN_API tn_tensor *tn_avg_pool1d(tn_tensor *x, int64_t kernel, tn_pool_opts o);
TN_API tn_tensor *tn_max_pool2d(tn_tensor *x, int64_t kh, int64_t kw, tn_pool_opts o);
TN_API tn_tensor *tn_avg_pool2d(tn_tensor *x, int64_t kh, int64_t kw, tn_pool_opts o);
TN_API tn_tensor *tn_max_pool3d(tn_tensor *x, int64_t kd, int64_t kh, int64_t kw, tn_pool_opts o);
TN_API tn_tensor *tn_avg_pool3d(tn_tensor *x, int64_t kd, int64_t kh, int64_t kw, tn_pool_opts o);
// The same, with windows of x (N, C, H, W) chosen such that the result is (N, C, h, w).
TN_API tn_tensor *tn_adaptive_avg_pool2d(tn_tensor *x, int64_t h, int64_t w);
TN_API tn_tensor *tn_adaptive_max_pool2d(tn_tensor *x, int64_t h, int64_t w);

// Normalizes over the last n axes to mean 0 and variance 1, then multiplies by w and adds b, which
// have the shape of these axes and may be NULL. eps 0: 1e-5.
TN_API tn_tensor *tn_layer_norm(tn_tensor *x, int n, tn_tensor *w, tn_tensor *b, double eps);
// Divides by the root of the mean square over the last n axes, then multiplies by w or NULL. eps 0:
// the epsilon of x's dtype.
TN_API tn_tensor *tn_rms_norm(tn_tensor *x, int n, tn_tensor *w, double eps);
// Normalizes x (N, C, ...) over each group of channels and all following axes; w and b are (C) or
// NULL. eps 0: 1e-5.
TN_API tn_tensor *tn_group_norm(tn_tensor *x, int64_t groups, tn_tensor *w, tn_tensor *b,
                                double eps);
typedef struct {
    bool   training;  // normalize by the statistics of the batch, and update mean and var with them
    double momentum;  // of that update; 0: 0.1
    double eps;       // 0: 1e-5
    tn_dist
        *dist;  // in training: by the statistics of all its ranks' items; NULL: of this one's alone
} tn_batch_norm_opts;
// Normalizes each channel of x (N, C, ...). mean and var are the running statistics (C); w and b
// are (C) or NULL.
TN_API tn_tensor *tn_batch_norm(tn_tensor *x, tn_tensor *mean, tn_tensor *var, tn_tensor *w,
                                tn_tensor *b, tn_batch_norm_opts o);

typedef struct {
    bool       causal;  // query i sees keys 0 .. i, also if T differs from S
    tn_tensor *mask;   // broadcasts to (..., T, S); bool (true: visible) or float (added to scores)
    double     scale;  // of the scores; 0: 1 / sqrt(D)
    double     dropout;  // probability of dropping a weight
    int64_t    window;   // query i sees only the keys j with |i - j| < window; 0: any
    // How many keys there are, integers (B) or what broadcasts to the axes before the heads (with
    // three axes: to the first): of batch b only the first lengths[b] keys are seen. The queries
    // then have the last T of these places, for causal and window: query i has place
    // lengths[b] - T + i, as in a cache of keys that was just appended to. NULL: S, and query i
    // has place i.
    tn_tensor *lengths;
} tn_attention_opts;
// Returns the scaled dot-product attention (..., T, E) of q (..., T, D), k (..., S, D) and v (...,
// S, E). Axes before the last two broadcast; k and v may also have a number of heads (axis -3) that
// divides q's, and each of them then serves that many heads of q in a row. A query that sees no key
// gives 0.
TN_API tn_tensor *tn_attention(tn_tensor *q, tn_tensor *k, tn_tensor *v, tn_attention_opts o);

// How frequencies are changed for contexts longer than that of the training, as the rope_type of
// Hugging Face's configurations: default, linear, dynamic (NTK), llama3, yarn.
typedef enum {
    TN_ROPE_PLAIN,
    TN_ROPE_LINEAR,
    TN_ROPE_DYNAMIC,
    TN_ROPE_LLAMA3,
    TN_ROPE_YARN
} tn_rope_scaling;
typedef struct {
    double          theta;  // base of the frequencies; 0: 10000
    int64_t         width;  // how many of the first elements of the last axis are rotated; 0: all
    bool            interleaved;  // a pair is two neighbours, not an element of each half
    int64_t         start;        // without positions: the position of the first token
    tn_rope_scaling scaling;
    double          factor;                // of every scaling: how much longer; 0: 1
    int64_t         trained;               // dynamic, llama3, yarn: the context of the training
    double          low_freq, high_freq;   // llama3; 0: 1, 4
    double          beta_fast, beta_slow;  // yarn; 0: 32, 1
    double          attention;  // yarn: factor of sines and cosines; 0: 0.1 * log(factor) + 1
    tn_dtype        dtype;      // of a table: TN_F64, or f32
} tn_rope_opts;
// Applies the rotary position embedding to x (..., T, D): pairs of elements are rotated by their
// position times a frequency, computed in f32, or in f64 for f64. positions is (T), or (B, T) for x
// (B, ..., T, D), i64 or i32; or a table from tn_rope_table, whose width then counts; or NULL:
// start, start + 1, ...
TN_API tn_tensor *tn_rope(tn_tensor *x, tn_tensor *positions, tn_rope_opts o);
// Returns cosines and sines of the angles at these positions, for several calls of tn_rope: (2, T,
// width / 2), or (2, B, T, width / 2). The options must have a width.
TN_API tn_tensor *tn_rope_table(tn_tensor *positions, tn_rope_opts o);

// ---- losses ------------------------------------------------------------------------------------

// Each returns the mean over all elements; the form _with can weigh them, sum them or return them.

typedef enum {
    TN_REDUCTION_MEAN,  // one element: the mean
    TN_REDUCTION_SUM,   // one element: the sum
    TN_REDUCTION_NONE   // the loss of each element
} tn_reduction;
typedef struct {
    tn_tensor   *weight;           // of each class; NULL: 1
    double       label_smoothing;  // 0 .. 1
    int64_t      ignore;           // with use_ignore: the target index to ignore, instead of -100
    bool         use_ignore;       // says that ignore is set, since 0 is a class
    bool         no_ignore;  // no target is ignored, not even -100, which is then out of range
    tn_reduction reduce;
} tn_class_opts;
// Cross entropy of logits x (N, C, ...) and target (N, ...), class indices, or of x's shape,
// probabilities.
TN_API tn_tensor *tn_cross_entropy(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_cross_entropy_with(tn_tensor *x, tn_tensor *target, tn_class_opts o);
// Negative log-likelihood of log-probabilities x (N, C, ...) and class indices.
TN_API tn_tensor *tn_nll(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_nll_with(tn_tensor *x, tn_tensor *target, tn_class_opts o);

typedef struct {
    tn_tensor   *weight;      // broadcasts to the shape of the loss before reduction
    tn_tensor   *pos_weight;  // bce_logits: weight of the positive class
    double       delta;       // huber: where squared becomes absolute error; 0: 1
    bool         log_target;  // kl: target holds log-probabilities
    bool         batch_mean;  // kl: the sum divided by the batch size
    tn_reduction reduce;
} tn_loss_opts;
// Squared error.
TN_API tn_tensor *tn_mse(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_mse_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);
// Absolute error.
TN_API tn_tensor *tn_l1(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_l1_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);
// Squared error up to delta, absolute error beyond.
TN_API tn_tensor *tn_huber(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_huber_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);
// Binary cross entropy of probabilities, and of logits.
TN_API tn_tensor *tn_bce(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_bce_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);
TN_API tn_tensor *tn_bce_logits(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_bce_logits_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);
// Kullback-Leibler divergence of log-probabilities x from probabilities target.
TN_API tn_tensor *tn_kl(tn_tensor *x, tn_tensor *target);
TN_API tn_tensor *tn_kl_with(tn_tensor *x, tn_tensor *target, tn_loss_opts o);

// ---- autograd ----------------------------------------------------------------------------------

// Turns the recording of gradient history on or off. Returns the previous mode.
TN_API_PLAIN bool tn_grad_mode(tn_ctx *cx, bool on);
// Mixed precision: with TN_BF16 or TN_F16, products (matmul, linear, convolution, attention) take
// f32 operands in that dtype, and ops that need the range or the digits of f32 (exp, pow, sums,
// softmax, norms, losses) take 16-bit ones in f32, by PyTorch's rules. TN_F32 turns it off. Returns
// the previous mode. tn_end restores the mode that was set at tn_begin, as it does the gradient
// mode; gradients are computed in the dtypes of the forward pass, in any mode.
TN_API_PLAIN tn_dtype tn_autocast(tn_ctx *cx, tn_dtype mode);
// Makes t a leaf, whose gradient tn_backward accumulates, or (off) an ordinary tensor. Returns t.
TN_API tn_tensor *tn_requires_grad(tn_tensor *t, bool on);
// Whether t is a leaf or was computed from one.
TN_API_PLAIN bool tn_needs_grad(const tn_tensor *t);
// Whether t was not computed from a leaf: it is one, or has no gradient.
TN_API_PLAIN bool tn_is_leaf(const tn_tensor *t);
// Returns the name of the op that t was recorded by last, "matmul".
TN_API_PLAIN const char *tn_op_of(const tn_tensor *t);
// Adds the gradient of y, times gy, to every leaf that y was computed from. gy NULL means 1 and
// needs a one-element y.
TN_API tn_status tn_backward(tn_tensor *y, tn_tensor *gy);
// Computes gx[i], the gradient of the sum of y[j] * gy[j] with respect to x[i]; zeros if y does not
// depend on x[i]. gy, or an entry of it, may be NULL for one-element outputs. The result can be
// differentiated again while the gradient mode is on. Stored gradients do not change.
TN_API tn_status tn_grad(int ny, tn_tensor *const *y, int nx, tn_tensor *const *x,
                         tn_tensor *const *gy, tn_tensor **gx);
// Returns the gradient of a leaf: the same handle during the life of the leaf, zeros while there is
// no gradient.
TN_API tn_tensor *tn_grad_of(tn_tensor *x);
// Whether leaf x has a gradient.
TN_API_PLAIN bool tn_has_grad(const tn_tensor *x);
// Clears the gradient of leaf x: it then has none. Views of the gradient keep its value.
TN_API void tn_zero_grad(tn_tensor *x);
// Compares the gradients of f at the f64 tensors x with finite differences. Returns TN_OK if they
// agree.
TN_API tn_status tn_gradcheck(tn_tensor *(*f)(tn_tensor *const *x, void *user), int n,
                              tn_tensor *const *x, void *user);
// The same for gradients of gradients.
TN_API tn_status tn_gradgradcheck(tn_tensor *(*f)(tn_tensor *const *x, void *user), int n,
                                  tn_tensor *const *x, void *user);

// A user's own op is a table of three kinds. docs/adding-an-op.md has an example of each.
//
// An expression. expr is the value of one element, in the inputs a, b, c or x0 .. x7, which
// broadcast. It is compiled and fused like built-in ops, on every device. grad_expr has one
// gradient per input, separated by semicolons, and may also use g, the gradient of the result, and
// y, the result. If grad_expr is NULL, Tenon differentiates expr. Other members are ignored, and
// attr must be empty. An error in a text is reported by the first call that uses it.
//
// C functions. Attributes are plain bytes and are copied. shape fills dtype, rank and size of each
// output from those of the inputs when the op is recorded, and for several outputs again later.
// compute fills out[].data from row-major in[].data at evaluation; on a GPU the data is copied to
// the host and back, which waits. Both must be pure. grad records ops: it sets gx[i] for each
// input, or leaves it NULL for none. A status other than TN_OK is an error. The table must live as
// long as the context.
//
// CUDA text. cuda is the text of a .cu file, whose kernel runs on a GPU instead of compute;
// everything else is as with C functions. The text defines
//
//     extern "C" __global__ void NAME(tn::in<0> x, tn::in<1> w, tn::out<0> y, my_attr a)
//
// where NAME is `kernel`, or the name of the op if that is NULL. There is one parameter for each
// input, one for each output and, if there are attributes, one of their size. launch sets the
// number of blocks and threads; *dims holds the default, which is used if launch is NULL: one
// thread per element of the largest output, in blocks of 256. Addresses in its arrays are the
// device's. The text is compiled when the op first runs, for the dtypes of its arguments; it and
// the kernel's parameters are checked then, dims before each launch.
typedef struct {
    tn_dtype dtype;
    int      rank;
    int64_t  size[TN_MAX_RANK];
    void    *data;
} tn_array;
typedef struct {
    int64_t grid[3], block[3];  // blocks, and threads per block
    int64_t shared;             // bytes of shared memory in addition to what the text declares
} tn_launch_dims;
typedef struct {
    const char *name;
    int         nin, nout;  // number of inputs and outputs; nout 0: 1
    tn_status (*shape)(const void *attr, const tn_array *in, tn_array *out);
    tn_status (*compute)(const void *attr, const tn_array *in, tn_array *out);
    tn_status (*grad)(const void *attr, tn_tensor *const *x, tn_tensor *const *y,
                      tn_tensor *const *gy, tn_tensor **gx);
    const char *expr, *grad_expr;
    const char *cuda;
    const char *kernel;  // name of the kernel in cuda; NULL: name
    tn_status (*launch)(const void *attr, const tn_array *in, const tn_array *out,
                        tn_launch_dims *dims);
} tn_op_def;
// Records a user's op with inputs x[nin] and `bytes` bytes of attributes.
TN_API tn_tensor *tn_custom(const tn_op_def *op, tn_tensor *const *x, const void *attr,
                            size_t bytes);
// The same for an op with several outputs, which go to y[nout].
TN_API tn_status tn_custom_n(const tn_op_def *op, tn_tensor *const *x, const void *attr,
                             size_t bytes, tn_tensor **y);

#include "tenon/arrays.h"
#include "tenon/layers.h"
#include "tenon/training.h"
#include "tenon/dlpack.h"
#include "tenon/dist.h"
#include "tenon/onnx.h"
#include "tenon/report.h"

// ---- devices, inspection -----------------------------------------------------------------------

typedef struct {
    const char *name;    // for tn_open
    const char *detail;  // the chip and its libraries, or why it is unavailable; valid until this
                         // thread asks about the same device again
    bool available;      // whether tn_open can use it
} tn_device_desc;
// Returns facts of device i of this build and machine, counted from 0. name is NULL after the last.
TN_API_PLAIN tn_device_desc tn_device_info(int i);
// Returns the number of devices of this build, available or not.
TN_API_PLAIN int tn_device_count(void);
// Writes what Tenon found on this machine, where, and what is missing.
TN_API_PLAIN void tn_doctor(FILE *f);

typedef struct {
    int64_t bytes, peak;  // tensor memory in use now, and at most
    int64_t nodes;        // nodes alive
    int64_t plans;        // plans built
    int64_t kernels;      // kernels compiled by this process for the context's device
    int64_t hits;         // evaluations that found their plan in the cache
    int64_t launches, copies, syncs;
    int64_t disk_hits;  // kernels that were found compiled in the cache on disk
    int64_t planned;    // bytes of the arena of the newest plan
    int64_t kept;  // bytes of device memory that the context holds free for reuse; together with
                   // the memory in use, at most twice the recent use, plus 64 MiB
    int64_t returned;  // bytes of such memory given back to the device
    int64_t exported;  // values that others read, whose deleters have not run (tn_to_dlpack)
} tn_stats;
// Returns the counters of a context.
TN_API_PLAIN tn_stats tn_ctx_stats(const tn_ctx *cx);

#include "tenon/pages.h"

// Lets evaluations from now on measure the kernels that they launch under other settings than those
// that rules choose (threads, vectors, what is held where), other plans of their graphs (what is
// fused, stored or computed again) and, on cuda, algorithms of cuBLASLt that it does not propose,
// until that many seconds were spent; 0 ends it. Work is measured from its second evaluation on,
// and the most expensive kernels get most of the time.
// A setting, plan or algorithm wins if it is faster twice, by more than measurements vary, and
// gives the same result; sums may be rounded differently, and so may values of 16 bits that one
// kernel stores and another keeps in f32. Winners are kept in the cache folder for this chip, and
// every later process uses them without measuring. Evaluations that measure are slow; values are as
// usual. TN_TUNE=SECONDS does it from the opening of a context on; TN_TUNE=0 and TN_DETERMINISTIC=1
// leave everything to the rules.
TN_API tn_status tn_tune(tn_ctx *cx, double seconds);
// Writes all winners of this cache folder, of any chip, to a file; adds those of such a file to it,
// to be used by contexts that open from then on. Return how many winners the file has, -1 on error.
TN_API int tn_tune_export(tn_ctx *cx, const char *path);
TN_API int tn_tune_import(tn_ctx *cx, const char *path);

#include "tenon/sites.h"
#include "tenon/arrays_sites.h"

#include "tenon/old.h"

#ifdef __cplusplus
}
// Evaluates its list once, so that each layer is made once.
static inline tn_layer *tn_nn_seq_list(const char *file, int line, tn_ctx *cx,
                                       std::initializer_list<tn_layer *> layers)
{
    return tn_nn_seq_n_at(file, line, cx, (int)layers.size(), layers.begin());
}
#define tn_nn_seq(cx, ...) tn_nn_seq_list(TN_HERE, cx, { __VA_ARGS__ })
#endif

#endif
