// Users' ops in CUDA: the program around a user's text, compiling it, and the limits of a launch.
// Nothing here needs a GPU.
#ifndef TNI_CUDA_USER_TEXT_H
#define TNI_CUDA_USER_TEXT_H

#include "base/heap.h"
#include "device/cuda/cubin.h"

// Bytes of kernel parameters that every GPU accepts, and how many arrays fit into them.
enum { TNI_USER_BYTES = 4096, TNI_USER_ARRAYS = 40 };

// An array as a kernel takes it: `tn::array` of the text. Sizes from rank on are 1.
typedef struct {
    void   *data;
    int64_t count, size[TN_MAX_RANK];
    int32_t rank, unused;
} tni_user_array;

// A user's text and the dtypes it is compiled for. The strings are the user's.
typedef struct {
    const char *op, *kernel, *text;
    int         nin, nout;
    size_t      attr;                    // bytes
    tn_dtype    dtype[TNI_USER_ARRAYS];  // of the inputs, then of the outputs
} tni_user_text;

// Returns whether an op's text can be compiled: its kernel's name is one, and its arrays and
// attributes fit; false, with a sentence, if not.
bool tni_user_fits(const tn_op_def *op, size_t attr, tni_text *why);
// Describes the text of an op that fits, for arrays of the dtypes of in and out.
tni_user_text tni_user_text_of(const tn_op_def *op, const tn_array *in, const tn_array *out,
                               size_t attr);

// Compiles a text for a chip, or finds it in the disk cache. TN_EUSER, with a sentence, if the text
// is wrong or its kernel has other parameters.
tn_status tni_user_cubin(const tni_user_text *u, const char *chip, tni_cubin *c, bool *found,
                         tni_text *why);

// Returns one thread for each element of the largest output.
tn_launch_dims tni_user_dims(const tn_array *out, int nout);
// Returns whether dims can be launched if a block has at most that many threads and bytes of shared
// memory; false, with a sentence, if not.
bool tni_user_dims_ok(const char *op, const tn_launch_dims *d, int threads, int shared,
                      tni_text *why);

#endif
