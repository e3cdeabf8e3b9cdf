// What a data file holds: its mapped bytes, or what they expand to where they are gzip.
#ifndef TNI_DATA_CONTENT_H
#define TNI_DATA_CONTENT_H

#include "io/mapping.h"

// Either map holds the bytes or expanded does; the other is NULL.
typedef struct {
    const unsigned char *data;
    size_t               bytes;
    tni_mapping         *map;
    unsigned char       *expanded;
} tni_content;

// False, reported by the op's name with the path, on failure: then there is nothing to close.
bool tni_content_open(tn_ctx *cx, const char *op, const char *path, tni_content *c);
void tni_content_close(tni_heap *h, tni_content *c);

// Expands gzip, all its members, by a zlib that is found at run time under this name (NULL: its usual
// ones). What it returns is the caller's; NULL, reported, on failure.
unsigned char *tni_gunzip(tn_ctx *cx, const char *op, const char *path, const char *library,
                          const tni_mapping *from, size_t *bytes);

#endif
