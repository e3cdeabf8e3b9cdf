// A file of tensors while it is read: what its formats fill and tn_file_* show.
#ifndef TNI_IO_FILE_H
#define TNI_IO_FILE_H

#include "io/mapping.h"
#include "io/outfile.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "files hold little-endian numbers, and so must this machine"
#endif

// One file on disk: its mapping, and the texts that were unescaped from it. meta is nmeta pairs of
// key and value in text, one string after the other.
typedef struct {
    char        *path;
    tni_mapping *map;
    char        *text;
    const char  *meta;
    size_t       nmeta;
} tni_part;

// One tensor, as small as it can be: a header may list millions. Name and dtype lie in the part's
// text or are constant; shape points into the mapping at the file's own text of the sizes, which has
// been checked. data lies in the mapping, bytes of it.
typedef struct {
    const char          *name;
    const char          *dtype;  // as the file spells it
    const char          *shape;  // numbers, up to a closing bracket
    const unsigned char *data;
    int64_t              bytes;
    uint32_t             part;
    int8_t               as;  // the tn_dtype it becomes; -1: there is none
    uint8_t              rank;
    uint8_t              width;  // bytes of an element in the file, 0 where they are not whole
    bool                 fortran : 1;  // the first axis is the innermost
    bool                 swapped : 1;  // big-endian
} tni_array;

// Arrays stand in the order of their data, by_name in that of their names, which are unique.
struct tn_file {
    tni_thing   thing;  // first
    const char *op;     // the call that reads it, for messages
    tni_part   *part;
    size_t      parts, part_cap;
    tni_array  *array;
    size_t      count;
    tni_array **by_name;
};

// Maps one more file into f. False, reported.
bool tni_part_add(tn_file *f, const char *path);
// Room for n more arrays at the end; NULL, reported. Counting them is the caller's.
tni_array *tni_arrays_add(tn_file *f, size_t n);
// Reports that the newest part is not what it should be, as TN_EFORMAT with its path; false.
bool tni_file_wrong(tn_file *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Read the newest part in their format: add its arrays. False, reported.
bool tni_safetensors_read(tn_file *f);
bool tni_npy_parse(tn_file *f);
// Reads the index that is f's first part, and adds the files it names.
bool tni_shards_read(tn_file *f);
// After by_name is there: whether everything stands in the file where the index says.
bool tni_shards_check(tn_file *f);

bool       tni_is_npy(const tni_mapping *m);
bool       tni_is_index(const char *path);
tni_array *tni_array_find(const tn_file *f, const char *name);
// The sizes of an array, rank of them.
void tni_array_sizes(const tni_array *it, int64_t size[TN_MAX_RANK]);
// Sorts n names; one that is there twice, or NULL.
const char *tni_twice(const char **names, size_t n);

// An array as a tensor: it borrows the mapping where it can, else a converted copy.
tn_tensor *tni_array_tensor(tn_file *f, const char *op, const tni_array *it);
// Writes the elements of t, row-major. False, reported.
bool tni_elements_write(tni_outfile *out, const char *op, tn_tensor *t);

// How safetensors spells a dtype.
const char *tni_safetensors_dtype(tn_dtype dt);

// Makes an empty file that is no thing of the context yet, and opens it by its path's format.
tn_file *tni_file_read(tn_ctx *cx, const char *op, const char *path, bool npy_only);
void     tni_file_close(tn_file *f);

#endif
