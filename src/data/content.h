// What a data file holds: its mapped bytes, or what they expand to where they are gzip. And whether
// it is there.
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

// Whether there is a folder of that name; reported by the op's name if not.
bool tni_folder_ok(tn_ctx *cx, const char *op, const char *dir);

enum { TNI_PATH = 4096 };  // room for a path, with its 0
// Makes a path as printf does; whether there is a file of that name.
bool tni_find_file(char path[TNI_PATH], const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Expands gzip, all its members, by a zlib that is found at run time. library is NULL, for its usual
// names; a test of what happens without it names one that does not exist. What is returned is the
// caller's; NULL, reported, on failure.
unsigned char *tni_gunzip(tn_ctx *cx, const char *op, const char *path, const char *library,
                          const tni_mapping *from, size_t *bytes);

#endif
