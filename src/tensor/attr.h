// Attributes: what an op needs to know besides its sources. Declared by attr.def, which also says
// which of them are structure and which are numbers of a run.
#ifndef TNI_TENSOR_ATTR_H
#define TNI_TENSOR_ATTR_H

#include "base/fault.h"

#include <tenon.h>

typedef struct tni_expression tni_expression;  // src/ops/

#define KIND(kind)                      struct tni_attr_##kind {
#define FIELD(whose, type, name, array) type name array;
#define END(kind) \
    }             \
    ;
#include "tensor/attr.def"
#undef KIND
#undef FIELD
#undef END

#define FIELD(whose, type, name, array)
#define END(kind)

typedef enum {
    TNI_ATTR_none,
#define KIND(kind) TNI_ATTR_##kind,
#include "tensor/attr.def"
#undef KIND
    TNI_ATTR_KINDS
} tni_attr_kind;

// Which member counts is the kind of the op's row.
typedef union {
#define KIND(kind) struct tni_attr_##kind kind;
#include "tensor/attr.def"
#undef KIND
    tni_site gone;  // once a value is gone: the end of the step that did not store it
} tni_attr;

#undef FIELD
#undef END

// A number of the program. Floats take f, integers i; where it is whole, i is the number exactly, and f
// may have lost bits of it.
typedef struct tni_attr_num tni_num;

#endif
