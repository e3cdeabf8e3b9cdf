// Calls that any of several methods computes: a library, kernels of our own. The methods that take
// a call are timed against each other, once for each form, and the fastest is kept on disk. A
// family is a table of such methods for the calls of some ops; its forms, what is chosen for them
// and what is wrong with them is kept here, whatever the ops.
#ifndef TNI_CUDA_METHOD_H
#define TNI_CUDA_METHOD_H

#include "device/cuda/choice.h"
#include "device/cuda/gpu.h"

// Methods of a family and words of a form, at most.
enum { TNI_METHODS = 6, TNI_FORM_WORDS = TNI_CHOICE_WORDS };

// One way of computing a call. A form is everything about a call but its addresses and the
// attributes that differ from run to run; a method describes a form once, as a work that lives
// until the process ends, whatever session runs it.
typedef struct {
    const char *name;         // for choices on disk and for people
    bool        may_fail;     // what is taken may turn out not to compile: a library's engines
    bool        last_resort;  // it is used only for forms that no other method computes
    size_t (*version)(void);  // of the library, or of our texts; 0: it is not here. NULL: 1
    // Returns why it does not compute a form, in words that live forever; NULL: it does. Nothing is
    // compiled. call has no addresses. Results may be strided, as device.h says. NULL: it takes
    // all.
    const char *(*declines)(tni_cuda *c, const tni_call *call);
    // Describes a form and begins to compile for it, in the background. NULL: it declines after
    // all.
    void *(*open)(tni_cuda *c, const tni_call *call);
    // Waits until it is compiled. Returns how many candidates there are, its best guess first; 0:
    // it cannot be compiled. NULL: there is one.
    int (*count)(void *work);
    // Returns the bytes of scratch that any of its candidates needs. NULL: none.
    size_t (*scratch)(void *work);
    // Launches a candidate. Anything but TN_OK means that nothing was launched and another method
    // should: addresses that it cannot take, or a failure.
    tn_status (*launch)(tni_cuda *c, void *work, const tni_call *call, int candidate,
                        tni_text *why);
    // Says that this candidate is its fastest, of which it may keep what it wants. NULL: nothing.
    void (*settle)(void *work, int candidate);
    // Returns whether another process would have the same candidates, so that a choice among them
    // may be kept. NULL: it would.
    bool (*lasts)(void *work);
    // Returns the name of what computes the rest, for people, if it computes only part of a call.
    // NULL: it does all.
    const char *(*rest)(void *work);
    // Returns why its results differ from run to run, NULL if they do not. NULL: they never do.
    const char *(*varies)(tni_cuda *c, void *work, const tni_call *call);
    // What measuring found for a library call in it (tni_op_impl.tuned). NULL: nothing.
    bool (*tuned)(void *work, const tni_call *call, tni_tuned *won, tni_text *with);
} tni_method;

// All that a choice depends on besides the kind of GPU and the methods' versions, in words. The
// words of no use are 0. Behind the last place words are counted only.
typedef struct {
    int     words;
    int64_t word[TNI_FORM_WORDS];
} tni_form_words;

// A family. method[]: the likely fastest first, which is taken if nothing is timed; those that may
// fail come before those that do not.
typedef struct {
    const char       *name;  // for choices on disk and for people
    int               methods;
    const tni_method *method[TNI_METHODS];
    void (*describe)(const tni_call *call, tni_form_words *w);
    // Whether the words mean the same in every process, so that a choice may be kept. NULL: they
    // do.
    bool (*lasts)(const tni_call *call);
} tni_family;

void tni_form_put(tni_form_words *w, int64_t word);
// Puts the dtype and the strides of an argument, 0 along axes of one element.
void tni_form_put_arg(tni_form_words *w, const tni_arg *x, int rank);

// A form that was met, in the table until the process ends.
typedef struct tni_form tni_form;

// Returns the form of a call, which is added if it is new; NULL when memory is out. Every method is
// asked, and if a single one that may fail takes it, that one has compiled when this returns. A
// form that was met before costs a look.
tni_form *tni_form_find(const tni_family *family, const tni_call *call);
// The same, and the methods that take the form begin to compile at the latest now.
tni_form *tni_form_open(const tni_family *family, const tni_call *call);
// The same for a method whose calls are partly those of another family. It is called by this file,
// which holds its lock meanwhile.
tni_form *tni_form_open_inside(const tni_family *family, const tni_call *call);
// Returns why no method computes it; NULL if one does.
const char *tni_form_declined(const tni_form *f);
// Returns whether only a last resort computes it.
bool tni_form_is_last_resort(const tni_form *f);
// Returns the bytes that are enough for whichever method is chosen.
size_t tni_form_scratch(const tni_form *f);
// Launches a call by the method that is chosen, after choosing if need be. A method that fails is
// not used again, and another takes its place.
tn_status tni_form_launch(tni_form *f, const tni_call *call, tni_text *why);
// The same for a method whose calls are partly those of another family.
tn_status tni_form_launch_inside(tni_form *f, const tni_call *call, tni_text *why);
// Launches by the first method that takes the call at its addresses, which are not as forms
// promise; nothing is chosen by them. TN_EARG: none does.
tn_status tni_form_launch_unsuited(tni_form *f, const tni_call *call, tni_text *why);
// Returns the reason for which results vary, of the method that is chosen or, before that, of any
// that may be.
const char *tni_form_varies(tni_form *f, const tni_call *call);
// Returns whether a choice that was made of its methods holds in other processes.
bool tni_form_lasts(const tni_form *f);
// Returns the name of the method that is chosen or, before that, of all that may be; NULL: none.
const char *tni_form_method(tni_form *f);
// What measuring found for the library call in the method that is chosen; false if there is none,
// or it was not measured.
bool tni_form_tuned(const tni_form *f, const tni_call *call, tni_tuned *won, tni_text *with);

// Forgets all forms and what was chosen for them, for tests; nothing may be running.
void tni_forms_forget(void);

#endif
