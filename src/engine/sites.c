// The two call forms of every public function, made from the rows of sites.h, which tools/sites.sh
// writes from the declarations. tn_add_at enters a frame with the caller's file and line and the
// name "add", calls the function behind it, which the rest of the source defines as tn_add, and
// leaves the frame. The exported tn_add, for function pointers and other languages, does the same
// without a line. So both forms free the same temporaries.
//
//   tn_tensor *tn_add_at(const char *file, int line, tn_tensor *a, tn_tensor *b)
//   {
//       tni_enter(file, line, "add");
//       tn_tensor *r = tn_add_behind(a, b);   // the symbol tni_tn_add: tn_add of ops/record.c
//       tni_leave(true, r);
//       return r;
//   }
#undef TN_INSIDE  // here the names are the exported ones
#define TN_PLAIN
#include "tensor/context.h"

#include <tenon/models.h>

// reap: temporaries that were made inside the frame, all but keep, are freed.
#define FORMS(result, name, params, args, reap, keep)                                        \
    __attribute__((visibility("hidden"))) result name##_behind params __asm__("tni_" #name); \
    result name##_at(const char *file, int line, TN_UNPACK params)                           \
    {                                                                                        \
        tni_enter(file, line, &#name[3]);                                                    \
        result r = name##_behind args;                                                       \
        tni_leave(reap, keep);                                                               \
        return r;                                                                            \
    }                                                                                        \
    result name params                                                                       \
    {                                                                                        \
        return name##_at(NULL, 0, TN_UNPACK args);                                           \
    }

// For functions that return nothing.
#define FORMS_DO(name, params, args, reap)                                                 \
    __attribute__((visibility("hidden"))) void name##_behind params __asm__("tni_" #name); \
    void name##_at(const char *file, int line, TN_UNPACK params)                           \
    {                                                                                      \
        tni_enter(file, line, &#name[3]);                                                  \
        name##_behind args;                                                                \
        tni_leave(reap, NULL);                                                             \
    }                                                                                      \
    void name params                                                                       \
    {                                                                                      \
        name##_at(NULL, 0, TN_UNPACK args);                                                \
    }

// The functions of models/ are made of public calls; the temporaries these leave are freed too.
#define TN_OP(name, params, args)           FORMS(tn_tensor *, name, params, args, true, r)
#define TN_CALL(result, name, params, args) FORMS(result, name, params, args, true, NULL)
#define TN_DO(name, params, args)           FORMS_DO(name, params, args, true)
#include <tenon/models_sites.h>

#define TN_OP(name, params, args)           FORMS(tn_tensor *, name, params, args, true, r)
#define TN_CALL(result, name, params, args) FORMS(result, name, params, args, false, NULL)
#define TN_DO(name, params, args)           FORMS_DO(name, params, args, false)
#include <tenon/sites.h>

#define TN_OP(name, params, args)           FORMS(tn_tensor *, name, params, args, true, r)
#define TN_CALL(result, name, params, args) FORMS(result, name, params, args, false, NULL)
#define TN_DO(name, params, args)           FORMS_DO(name, params, args, false)
#include <tenon/arrays_sites.h>
