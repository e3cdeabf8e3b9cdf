// table_forms.h: the words that forms are written in.
#ifndef TEST_TABLE_FORMS_H
#define TEST_TABLE_FORMS_H

#include "table.h"

// A form is a function of its inputs x; most are one expression.
#define FORM(name, ...)                                     \
    static tn_tensor *name(tn_tensor *const *x, void *user) \
    {                                                       \
        (void)user;                                         \
        return (__VA_ARGS__);                               \
    }

// The context and the dtype of the inputs; small tensors in that context.
#define CX tn_ctx_of(x[0])
#define DT tn_dtype_of(x[0])
#define INDEX(...)                                                        \
    tn_from(CX, TN_I64, TN_SHAPE(sizeof((int64_t[]){ __VA_ARGS__ }) / 8), \
            (int64_t[]){ __VA_ARGS__ })
#define INDEX2(rows, cols, ...) \
    tn_from(CX, TN_I64, TN_SHAPE(rows, cols), (int64_t[]){ __VA_ARGS__ })
#define MASK2(rows, cols, ...) tn_from(CX, TN_BOOL, TN_SHAPE(rows, cols), (bool[]){ __VA_ARGS__ })
#define FLOATS(...)                                                              \
    tn_cast(tn_from(CX, TN_F64, TN_SHAPE(sizeof((double[]){ __VA_ARGS__ }) / 8), \
                    (double[]){ __VA_ARGS__ }),                                  \
            DT)

// An input of a form: its rank, the mood of its numbers, its sizes.
#define IN(rank, mood, ...)         \
    {                               \
        rank, { __VA_ARGS__ }, mood \
    }

#endif
