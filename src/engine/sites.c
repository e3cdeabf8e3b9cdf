// The two call forms of the public functions, from the rows that are made of their declarations. tn_add_at
// notes the caller's file and line, and its own name without "tn_"; calls the function behind it, which
// the rest of the source knows as tn_add, and ends the frame. The public tn_add does that without a line.
#undef TN_INSIDE  // names mean here what they mean to a program
#define TN_PLAIN
#include "tensor/context.h"

#include <tenon/models.h>

// reap: what was made on the way, all but keep, dies.
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

// Of what returns nothing.
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

// The functions of models/ are made of public calls: what these leave between them dies too.
#define TN_OP(name, params, args)           FORMS(tn_tensor *, name, params, args, true, r)
#define TN_CALL(result, name, params, args) FORMS(result, name, params, args, true, NULL)
#define TN_DO(name, params, args)           FORMS_DO(name, params, args, true)
#include <tenon/models_sites.h>

#define TN_OP(name, params, args)           FORMS(tn_tensor *, name, params, args, true, r)
#define TN_CALL(result, name, params, args) FORMS(result, name, params, args, false, NULL)
#define TN_DO(name, params, args)           FORMS_DO(name, params, args, false)
#include <tenon/sites.h>
