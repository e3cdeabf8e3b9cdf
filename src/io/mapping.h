// A whole file as memory, read-only.
#ifndef TNI_IO_MAPPING_H
#define TNI_IO_MAPPING_H

#include "tensor/context.h"

// Shared by whoever looks at it: the file that was opened, tensors that borrow from it. The last
// one unmaps it.
typedef struct {
    const unsigned char *data;
    size_t               bytes;
    uint32_t             refs;
    tni_heap            *heap;
} tni_mapping;

// With one reference; NULL, reported by the op's name as TN_EIO with the path and the system's
// reason. An empty file maps to 0 bytes.
tni_mapping *tni_mapping_open(tn_ctx *cx, const char *op, const char *path);
void         tni_mapping_unref(tni_mapping *m);
// The bytes from `at` on are not looked at for a while: memory need not hold them. They can be read
// as before.
void tni_mapping_forget(const tni_mapping *m, const unsigned char *at, size_t bytes);

#endif
