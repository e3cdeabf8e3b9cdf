// Errors and call sites. A fault is the first error of a context, or of a thread where no context
// could take it; its text lives in the fault itself, so that reporting never allocates, and is one line
// that can be printed whatever names are in it. The call
// site is that of the outermost public call on this thread: ops composed of others inherit it.
#ifndef TNI_BASE_FAULT_H
#define TNI_BASE_FAULT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *file;  // a string literal of the caller; never NULL, "" when unknown
    int         line;
    const char *op;  // the public call's name, NULL when it is not known
} tni_site;

typedef struct {
    int      code;  // a tn_status; 0 when there is no error
    bool     told;  // the handler has been called for it
    tni_site site;
    char     text[600];
} tni_fault;

// What a thread is doing. depth counts public calls in progress; frame numbers the outermost
// ones; cx is the context the current frame made tensors in; failed is a context whose fault
// waits to be told at the end of the frame.
typedef struct {
    tni_site   site;
    int        latest;  // code of the newest error of any kind: what a failing call returns
    int        depth;
    int        floor;          // the depth at which a user's code called by us began, else 0
    uint64_t   frame, frames;  // the current one; so many were begun
    void      *cx, *failed;
    tni_fault *fault;  // see tni_thread_fault; NULL until there is one
} tni_thread;

// Small and in the static TLS block, since every call looks at it; the block has little room for
// libraries that are loaded late, so nothing large goes there.
extern __thread __attribute__((tls_model("initial-exec"))) tni_thread tni_self;

// The calling thread's own fault: of no context.
const tni_fault *tni_thread_fault(void);
void             tni_thread_clear(void);

// A number no other living thread has.
static inline uint64_t tni_thread_id(void)
{
    return (uint64_t)(uintptr_t)&tni_self;  // each living thread has its own
}

// Keeps the error unless one is kept already. True if it was the first.
bool tni_fault_set(tni_fault *f, int code, const char *fmt, va_list args);
void tni_fault_clear(tni_fault *f);
// Sets the calling thread's own fault, replacing an older one.
void tni_thread_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
