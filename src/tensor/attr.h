// Attributes: what an op needs to know besides its sources. Declared by attr.def, which also says
// which of them are structure and which are numbers of a run.
#ifndef TNI_TENSOR_ATTR_H
#define TNI_TENSOR_ATTR_H

#include "base/fault.h"

#include <tenon.h>

typedef struct tni_expr_op tni_expr_op;  // src/ops/
typedef struct tni_score   tni_score;
typedef struct tni_loop    tni_loop;

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

// Why a value cannot be computed any more: see TNI_GONE.
typedef enum {
    TNI_LOST_FAILED,       // its step failed, or what it was made from could not be computed
    TNI_LOST_OVERWRITTEN,  // its tensor was written, and nothing else kept the old value
    TNI_LOST_RELEASED      // its last tensor died
} tni_lost_reason;

// Where that was, and for a tensor that was written the number of its store, by which its name is
// found.
typedef struct {
    tni_site site;
    uint64_t store;
    uint8_t  how;
} tni_lost;

// Which member counts is the kind of the op's row.
typedef union {
#define KIND(kind) struct tni_attr_##kind kind;
#include "tensor/attr.def"
#undef KIND
    tni_lost lost;  // once a value is gone
} tni_attr;

#undef FIELD
#undef END

// A number of the program. Floats take f, integers i; where it is whole, i is the number exactly,
// and f may have lost bits of it.
typedef struct tni_attr_num tni_num;

#endif
