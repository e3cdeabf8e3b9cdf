// The content of a data file: its mapped bytes, or, for gzip, the expanded ones. And finding such
// files.
#ifndef TNI_DATA_CONTENT_H
#define TNI_DATA_CONTENT_H

#include "io/mapping.h"

// Invariant: either map holds the bytes or expanded does; the other is NULL. Expanded bytes count
// to the memory limit of the context.
typedef struct {
    const unsigned char *data;
    size_t               bytes;
    bool                 cut;  // the file has more than its header declares; the rest is left out
    tni_mapping         *map;
    unsigned char       *expanded;
    size_t               counted;  // bytes, to the limit
    tni_buffers         *counts;
} tni_content;

// For a format whose header declares the file's size: declared is given the first bytes, at most
// `head`, and returns in *all the bytes of the whole file, header included. False, reported, if it
// is not such a file.
typedef struct {
    size_t head;
    bool (*declared)(tn_ctx *cx, const char *path, const unsigned char *data, size_t bytes,
                     uint64_t *all);
} tni_declares;

// Opens a file. Gzip is expanded: as far as d says, or, if d is NULL, to its end or to the limits.
// False, reported by the op's name with the path, on failure; then there is nothing to close.
bool tni_content_open(tn_ctx *cx, const char *op, const char *path, const tni_declares *d,
                      tni_content *c);
void tni_content_close(tni_heap *h, tni_content *c);

// Returns whether a folder of that name exists; reports it by the op's name if not.
bool tni_folder_ok(tn_ctx *cx, const char *op, const char *dir);

enum { TNI_PATH = 4096 };  // capacity for a path, with its 0
// Makes a path as printf does; returns whether a file of that name exists.
bool tni_find_file(char path[TNI_PATH], const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Gzip while it is expanded, all its members one after the other, by a zlib that is found at run
// time.
typedef struct tni_gunzip tni_gunzip;

// The mapping must outlive it. library is NULL, for zlib's usual names; a test of what happens
// without it names one that does not exist. NULL, reported, on failure.
tni_gunzip *tni_gunzip_open(tn_ctx *cx, const char *op, const char *path, const char *library,
                            const tni_mapping *from);
// Expands the next n bytes. *got is less than n only at the end, and then all of the file has been
// verified. False, reported, on failure.
bool tni_gunzip_read(tni_gunzip *g, void *to, size_t n, size_t *got);
void tni_gunzip_close(tni_gunzip *g);
// Returns the most bytes that this much gzip can expand to.
uint64_t tni_gunzip_most(size_t bytes);

#endif
