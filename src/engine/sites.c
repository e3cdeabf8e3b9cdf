// The call-site forms of the public functions, from sites.def and models.def: each notes the
// caller's file and line, and its own name without "tn_"; calls the plain function, and ends the frame.
#include "tensor/context.h"

#include <tenon/models.h>

#define TN_OP(name, params, args)                                      \
    tn_tensor *name##_at(const char *file, int line, TN_UNPACK params) \
    {                                                                  \
        tni_enter_at(file, line, &#name[3]);                           \
        tn_tensor *r = name args;                                      \
        tni_leave(true, r);                                            \
        return r;                                                      \
    }
#define TN_CALL(result, name, params, args)                        \
    result name##_at(const char *file, int line, TN_UNPACK params) \
    {                                                              \
        tni_enter_at(file, line, &#name[3]);                       \
        result r = name args;                                      \
        tni_leave(false, NULL);                                    \
        return r;                                                  \
    }
#define TN_DO(name, params, args)                                \
    void name##_at(const char *file, int line, TN_UNPACK params) \
    {                                                            \
        tni_enter_at(file, line, &#name[3]);                     \
        name args;                                               \
        tni_leave(false, NULL);                                  \
    }
#include "tenon/models.def"
#include "tenon/sites.def"
