// The call-site forms of the public functions, from sites.def and models.def: each notes the
// caller's file and line, calls the plain function, and ends the frame.
#include "tensor/context.h"

#include <tenon/models.h>

static inline tni_site site_of(const char *file, int line, const char *name)
{
    return (tni_site){ .file = file ? file : "", .line = line, .op = name + 3 };  // past "tn_"
}

#define TN_OP(name, params, args)                                      \
    tn_tensor *name##_at(const char *file, int line, TN_UNPACK params) \
    {                                                                  \
        tni_enter(site_of(file, line, #name));                         \
        tn_tensor *r = name args;                                      \
        tni_leave(true, r);                                            \
        return r;                                                      \
    }
#define TN_CALL(result, name, params, args)                        \
    result name##_at(const char *file, int line, TN_UNPACK params) \
    {                                                              \
        tni_enter(site_of(file, line, #name));                     \
        result r = name args;                                      \
        tni_leave(false, NULL);                                    \
        return r;                                                  \
    }
#define TN_DO(name, params, args)                                \
    void name##_at(const char *file, int line, TN_UNPACK params) \
    {                                                            \
        tni_enter(site_of(file, line, #name));                   \
        name args;                                               \
        tni_leave(false, NULL);                                  \
    }
#include "tenon/models.def"
#include "tenon/sites.def"
