// Errors and call sites. A fault is the first error of a context, or of a thread if no context
// could take it. Its text is in the fault itself, so that reporting never allocates, and is one
// printable line whatever names are in it. The call site is that of the innermost call in the
// user's own code: ops composed of others inherit it, and user code that a public call runs has the
// lines of its own calls.
#ifndef TNI_BASE_FAULT_H
#define TNI_BASE_FAULT_H

#include "base/text.h"

// The path of a layer in its tree, "layer3.2.conv1". A context owns one of each text, since what
// was recorded may outlive the layer.
typedef struct {
    const void *owner;  // the context
    char        text[];
} tni_path;

// A call in the user's code, the layer that was running, and the outermost call of the user that it
// is part of.
typedef struct {
    const char     *file;   // a string literal of the caller; never NULL, "" when unknown
    const char     *op;     // the public call's name, NULL when it is not known
    const tni_path *layer;  // NULL: none, or the outermost
    const char     *outer_file;
    int             line, outer_line;  // outer_line 0: the call is the outermost itself
} tni_site;

typedef struct {
    int      code;      // a tn_status; 0 when there is no error
    bool     reported;  // the handler has been called for it
    tni_site site;
    char     text[600];
} tni_fault;

// The state of a thread inside public calls. depth counts public calls in progress; frame numbers
// the outermost ones; cx is the context in which the current frame made tensors; failed is a
// context whose fault is to be reported at the end of the frame. While user code runs inside a
// public call, site_floor is the depth at which it began, and outer_site the site of the call that
// runs it. Invariant: frame_floor <= site_floor <= depth.
typedef struct {
    tni_site site;
    int      latest;  // code of the newest error of any kind: what a failing call returns
    int      depth;
    int      frame_floor;  // the depth at which a user's code with frames of its own began, else 0
    int      site_floor;   // the depth at which a user's code began, else 0
    const tni_site *outer_site;
    uint64_t        frame, frames;  // the current one; the number begun so far
    void           *cx, *failed;
    tni_fault      *fault;  // see tni_thread_fault; NULL until there is one
} tni_thread;

// In the static TLS block, since every call looks at it. The loader reserves little of that block
// for libraries loaded late, so nothing large goes there.
extern __thread __attribute__((tls_model("initial-exec"))) tni_thread tni_self;

// The calling thread's own fault, for errors that belong to no context; never NULL.
const tni_fault *tni_thread_fault(void);
void             tni_thread_clear(void);

// A number no other living thread has.
static inline uint64_t tni_thread_id(void)
{
    return (uint64_t)(uintptr_t)&tni_self;  // each living thread has its own
}

// Keeps the error unless one is kept already, with the layer that was running at the end of its
// text. True if it was the first.
bool tni_fault_set(tni_fault *f, int code, const char *fmt, va_list args);
void tni_fault_clear(tni_fault *f);
// Sets the calling thread's own fault, replacing an older one.
void tni_thread_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// "model.c:40"; where there is more to say "model.c:40 in layer3.2.conv1, called from train.c:90".
// For a site that has a line.
tni_text tni_site_text(const tni_site *s);
// " in layer3.2.conv1", or nothing outside of layers.
tni_text tni_layer_text(const tni_site *s);

#endif
