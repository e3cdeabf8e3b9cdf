// Attention and its gradient on this device, by any of several methods: a library, kernels of our own.
// A method is one row in the table of cuda_attention.c. The methods that take a call are timed against
// each other, once for each form, and the fastest is kept on disk.
#ifndef TNI_CUDA_ATTENTION_H
#define TNI_CUDA_ATTENTION_H

#include "device/attention.h"
#include "device/cuda/gpu.h"

// One way of computing attention. A form is everything about a call but its addresses and the attributes
// that differ from run to run; a method describes a form once, as a work that lives until the process
// ends, whatever session runs it.
typedef struct {
    const char *name;         // for choices on disk and for people
    bool        may_fail;     // what is taken may turn out not to compile: a library's engines
    size_t (*version)(void);  // of the library, or of our texts; 0: it is not here
    // Returns why it does not compute a form, in words that live forever; NULL: it does. Nothing is
    // compiled. call has no addresses. Results may be strided, as device.h says; a form whose strided
    // results no method takes is computed row-major and copied.
    const char *(*declines)(tni_cuda *c, const tni_call *call);
    // Describes a form and begins to compile for it, in the background. NULL: it declines after all.
    void *(*open)(tni_cuda *c, const tni_call *call);
    // Waits until it is compiled. Returns how many candidates there are, its best guess first; 0: it
    // cannot be compiled.
    int (*count)(void *work);
    // Returns the bytes of scratch that any of its candidates needs.
    size_t (*scratch)(void *work);
    // Launches a candidate. Anything but TN_OK means that nothing was launched and another method
    // should: addresses that it cannot take, or a failure.
    tn_status (*launch)(tni_cuda *c, void *work, const tni_call *call, int candidate,
                        tni_text *why);
    // Says that this candidate is its fastest, of which it may keep what it wants. NULL: nothing.
    void (*settle)(void *work, int candidate);
    // Returns why its results differ from run to run, NULL if they do not. NULL: they never do.
    const char *(*varies)(tni_cuda *c, const tni_call *call);
} tni_attention_method;

// The methods: cudnn_attention.c, flash.c.
extern const tni_attention_method tni_attention_by_cudnn, tni_attention_by_flash;

// The contract's functions for attention and attention_grad.
const char *tni_cuda_attention_declines(const tni_call *call);
void       *tni_cuda_prepare_attention(const tni_call *call);
size_t      tni_cuda_attention_scratch(const tni_call *call);
tn_status   tni_cuda_attention(const tni_call *call);
const char *tni_cuda_attention_varies(const tni_call *call);
const char *tni_cuda_attention_method(const tni_call *call);

// Forgets all forms and what was chosen for them, for tests; nothing may be running.
void tni_cuda_attention_forget(void);

#endif
