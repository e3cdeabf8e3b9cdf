// What devices with work groups share: ops that no kernel is generated for, by hand-written
// kernels, over the few functions in which the devices differ. The header of all group_*.c files.
#ifndef TNI_SIMT_GROUPS_H
#define TNI_SIMT_GROUPS_H

#include "base/integers.h"
#include "device/device.h"
#include "device/simt/compiled.h"
#include "device/simt/group_text.h"
#include "kernel/ending.h"

// A buffer as a kernel takes it, and bytes from its start to an address.
typedef struct {
    void   *handle;
    int64_t offset;
} tni_buffer_at;

typedef struct tni_kernel_args tni_kernel_args;

// The functions in which devices differ; one constant table per device. session is the call's.
typedef struct tni_groups {
    tni_compiled *(*compiled)(void *session);
    tni_buffer_at (*buffer_at)(void *session, const void *address);
    tni_buffer_at (*state_at)(void *session, int ticket);  // see kernel/simt.h
    // Launches groups of `items` items each. If h->fail is given and there is no ticket, waits for
    // the failure that the kernel left in its state, and clears it there.
    tn_status (*launch)(const tni_kernel_args *h, int64_t groups, int items, tni_text *why);
} tni_groups;

// ---- launches of hand-written kernels ----------------------------------------------------------

enum { TNI_KERNEL_ARGS = 12, TNI_KERNEL_ARGS_BYTES = 1024 };

// A launch being put together: a kernel and its arguments so far, each at a multiple of 8 bytes.
// Invariant: no kernel here takes more arguments or bytes than there is room for.
struct tni_kernel_args {
    const tni_groups *fns;
    void             *session;
    void             *kernel;
    const char       *what;  // the op's name, for messages
    int64_t          *fail;  // two words as in tni_launch.fail; NULL: no index can be bad
    int               ticket;
    bool              compile_only;  // nothing is launched; the text starts to be compiled
    bool              overlaps;      // the text has BEGIN: it may start while the kernel ahead ends
    int               count;
    size_t            at[TNI_KERNEL_ARGS], bytes[TNI_KERNEL_ARGS], used;
    _Alignas(8) char value[TNI_KERNEL_ARGS_BYTES];
};

// Begins a launch, for a call, of the kernel `name` of a text compiled for dtypes x and y.
tn_status tni_kernel_args_begin(tni_kernel_args *h, const tni_call *c, const char *const *text,
                                const char *name, tn_dtype x, tn_dtype y);
void      tni_kernel_args_add(tni_kernel_args *h, const void *value, size_t bytes);
void      tni_kernel_args_add_long(tni_kernel_args *h, int64_t value);
// Passes the buffer that an address is in; returns the bytes from its start.
int64_t tni_kernel_args_add_buffer(tni_kernel_args *h, const void *address);
// Launches groups of `items` items, unless the call is compile_only.
tn_status tni_kernel_args_launch(tni_kernel_args *h, int64_t groups, int items, tni_text *why);
// Launches one item for each of count, in groups of 64.
tn_status tni_kernel_args_launch_items(tni_kernel_args *h, int64_t count, tni_text *why);
// Launches groups of 64 items.
tn_status tni_kernel_args_launch_groups(tni_kernel_args *h, int64_t groups, tni_text *why);
// Passes the state, where a kernel reports a bad index; fail receives it if the call has no ticket.
void tni_kernel_args_add_state(tni_kernel_args *h, int64_t fail[2]);

// ---- axes --------------------------------------------------------------------------------------

// The layout of an operand, `shape` in the texts (group_text.c).
typedef struct {
    int64_t at;  // elements from the buffer's start to the first one
    int32_t rank, unused;
    int64_t size[TN_MAX_RANK], stride[TN_MAX_RANK];
} tni_operand_shape;

// Axes of one shape over several arguments, outermost first.
typedef struct {
    int     rank;
    int64_t size[TN_MAX_RANK];
    int64_t stride[4][TN_MAX_RANK];  // of argument 0 to 3
} tni_axes;

int64_t tni_axes_count(const tni_axes *a);
// Returns the axes of a call without the one it works along: argument 0 is x, 1 the result.
tni_axes tni_axes_lines(const tni_call *c);
// Drops axes of size 1 and joins neighbours that are contiguous in all n arguments.
void tni_axes_merge(tni_axes *a, int n);
// Sorts axes by falling stride of one argument, in either direction. Stable.
void tni_axes_sort(tni_axes *a, int argument);
// Passes the buffer of an argument and the axes of argument i, which begin at its first element.
void tni_kernel_args_add_operand(tni_kernel_args *h, const tni_axes *a, int i, const void *data,
                                 tn_dtype dt);
// Passes the axes of argument i alone, beginning at element `at`.
void tni_kernel_args_add_axes(tni_kernel_args *h, const tni_axes *a, int i, int64_t at);

// ---- ops ---------------------------------------------------------------------------------------

// One function per op, and the scratch it needs.
tn_status   tni_groups_matmul(const tni_call *c);
size_t      tni_groups_conv_scratch(const tni_call *c);
tn_status   tni_groups_conv(const tni_call *c);  // also its gradients
const char *tni_groups_conv_varies(const tni_call *c);
// Returns whether a convolution or a gradient of one is a matrix product of its operands in place:
// m becomes the call of matmul that does the same, with operands in[].
bool tni_conv_product(const tni_call *c, tni_arg in[2], tni_call *m);
// Returns whether a convolution, or a gradient for x, is of each channel with a window of its own
// and as group_text_depthwise.c has it; its addresses are multiples of 16.
bool tni_groups_takes_depthwise(const tni_call *c);
// Returns its text, and launches it or, with an ending, a text with that one, into y.
const char *const *tni_groups_depthwise_text(const tni_call *c);
tn_status          tni_groups_depthwise(const tni_call *c, const char *const *text, char *y,
                                        const tni_ending_args *ending);
size_t             tni_groups_scan_scratch(const tni_call *c);
tn_status          tni_groups_scan(const tni_call *c);
size_t             tni_groups_arg_reduce_scratch(const tni_call *c);
tn_status          tni_groups_arg_reduce(const tni_call *c);
tn_status          tni_groups_fold(const tni_call *c);
size_t             tni_groups_argsort_scratch(const tni_call *c);
tn_status          tni_groups_argsort(const tni_call *c);
size_t             tni_groups_scatter_scratch(const tni_call *c);
tn_status          tni_groups_scatter(const tni_call *c);
// By a function on the host; it waits.
tn_status tni_groups_custom(const tni_call *c);
// Linear algebra: whether small matrices are run by kernels; by them; by them or on the host, which
// waits.
bool      tni_groups_takes_linalg(const tni_call *c);
tn_status tni_groups_linalg_small(const tni_call *c);
tn_status tni_groups_linalg(const tni_call *c);

// Products with sparse matrices.
tn_status tni_groups_spmm(const tni_call *c);
tn_status tni_groups_sddmm(const tni_call *c);

// Fourier transforms: whether all axes are of lengths that kernels have; by them; by them or on the
// host. Scratch of all three. And results of a library times the scale of the call.
bool      tni_groups_takes_fft(const tni_call *c);
size_t    tni_groups_fft_scratch(const tni_call *c);
tn_status tni_groups_fft_lines(const tni_call *c);
tn_status tni_groups_fft(const tni_call *c);
tn_status tni_groups_fft_scale(const tni_call *c);

// scatter_add of whole rows: whether a call is that, its scratch, and adding the rows to the
// result. lines: all axes but the indexed one, argument 1 the values and 2 the result.
bool      tni_segments_can(const tni_call *c);
size_t    tni_segments_scratch(const tni_call *c);
tn_status tni_segments_add(const tni_call *c, const tni_axes *lines, int64_t fail[2]);

tn_status tni_groups_copy(const tni_call *c);  // also a cast
tn_status tni_groups_concat(const tni_call *c);

// ---- what such a device registers --------------------------------------------------------------

// clang-format off
#define TNI_GROUPS_CLASSES                                             \
    [TNI_SCAN]        = { .run = tni_groups_scan, .scratch = tni_groups_scan_scratch }

#define TNI_GROUPS_OPS                                                 \
    [TNI_argmax]      = { .run = tni_groups_arg_reduce, .scratch = tni_groups_arg_reduce_scratch }, \
    [TNI_argmin]      = { .run = tni_groups_arg_reduce, .scratch = tni_groups_arg_reduce_scratch }, \
    [TNI_concat]      = { .run = tni_groups_concat },                  \
    [TNI_scatter]     = { .run = tni_groups_scatter, .scratch = tni_groups_scatter_scratch }, \
    [TNI_scatter_add] = { .run = tni_groups_scatter, .scratch = tni_groups_scatter_scratch }, \
    [TNI_fold]        = { .run = tni_groups_fold },                    \
    [TNI_argsort]     = { .run = tni_groups_argsort, .scratch = tni_groups_argsort_scratch }, \
    [TNI_spmm]        = { .run = tni_groups_spmm },                    \
    [TNI_sddmm]       = { .run = tni_groups_sddmm }

// Convolutions, for a device that has nothing better.
#define TNI_GROUPS_CONVS                                               \
    [TNI_conv]        = { .run = tni_groups_conv, .scratch = tni_groups_conv_scratch, \
                          .varies = tni_groups_conv_varies }, \
    [TNI_conv_dgrad]  = { .run = tni_groups_conv, .scratch = tni_groups_conv_scratch, \
                          .varies = tni_groups_conv_varies }, \
    [TNI_conv_wgrad]  = { .run = tni_groups_conv, .scratch = tni_groups_conv_scratch, \
                          .varies = tni_groups_conv_varies }
// clang-format on

#endif
