// A file of tensors while it is read: what its formats fill and tn_file_* show.
#ifndef TNI_IO_FILE_H
#define TNI_IO_FILE_H

#include "io/mapping.h"
#include "io/outfile.h"

#include <string.h>

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
} tni_file_part;

// One tensor of the list, as small as it can be: a header may list millions. Name and dtype are in
// the part's text or are constant; shape points into the mapping at the file's own text of the
// sizes, which has been checked. data points into the mapping.
typedef struct {
    const char          *name;
    const char          *dtype;  // as the file spells it
    const char          *shape;  // numbers, up to a closing bracket
    const unsigned char *data;
    int64_t              bytes;
    uint32_t             part;
    int8_t               as;  // the tn_dtype it becomes; -1: there is none
    uint8_t              rank;
    bool                 fortran : 1;  // the first axis is the innermost
    bool                 swapped : 1;  // big-endian
} tni_file_entry;

// Entries stand in the order of their data, by_name in that of their names, which are unique.
struct tn_file {
    tni_owned        owned;  // first
    const char      *op;     // the call that reads it, for messages
    tni_file_part   *part;
    size_t           parts, part_cap;
    tni_file_entry  *entry;
    size_t           count;
    tni_file_entry **by_name;
};

// The text that follows s: the value of a key, the key after a value.
static inline const char *tni_next_text(const char *s)
{
    return s + strlen(s) + 1;
}

// Maps one more file into f. False, reported.
bool tni_file_part_add(tn_file *f, const char *path);
// Room for n more entries at the end; NULL, reported. Counting them is the caller's.
tni_file_entry *tni_file_entries_add(tn_file *f, size_t n);
// Reports that the newest part is not what it should be, as TN_EFORMAT with its path; false.
bool tni_file_wrong(tn_file *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Read the newest part in their format: add its entries. False, reported.
bool tni_safetensors_read(tn_file *f);
bool tni_npy_load(tn_file *f);
// Reads the index that is f's first part, and adds the files it names.
bool tni_shards_read(tn_file *f);
// After by_name is made: returns whether every tensor is in the file that the index says.
bool tni_shards_check(tn_file *f);

// Reads the settings that are f's only part as metadata.
bool tni_settings_read(tn_file *f);

bool tni_is_npy(const tni_mapping *m);
bool tni_is_json(const char *path, const tni_mapping *m);
// Whether a JSON file is an index: by its name, or because it has a weight_map.
bool            tni_is_index(const char *path, const tni_mapping *m);
tni_file_entry *tni_file_entry_find(const tn_file *f, const char *name);
// The sizes of an entry, rank of them.
void tni_file_entry_sizes(const tni_file_entry *it, int64_t size[TN_MAX_RANK]);
// Sorts n names; returns one that appears twice, or NULL.
const char *tni_sort_and_find_twice(const char **names, size_t n);

// An entry as a tensor: it borrows the mapping where it can, else a converted copy.
tn_tensor *tni_file_entry_tensor(tn_file *f, const char *op, const tni_file_entry *it);

// The elements of a tensor, row-major, on the host. Good while the tensor is and nothing is written
// to it.
typedef struct {
    const void *data;
    size_t      bytes;
    void       *copy;  // what is to be freed, NULL where data is the tensor's own memory
} tni_bytes;

// False, reported by the op's name, on failure; then there is nothing to return.
bool tni_bytes_borrow(const char *op, tn_tensor *t, tni_bytes *b);
void tni_bytes_return(tn_ctx *cx, tni_bytes *b);
// Writes the elements of t. False, reported.
bool tni_elements_write(tni_outfile *out, const char *op, tn_tensor *t);

// A safetensors file: the bytes before its header, and the longest header there may be.
enum { TNI_SAFETENSORS_PREFIX = 8, TNI_SAFETENSORS_HEADER = 100000000 };

// Makes an empty file that is no object of the context yet, and opens it by its path's format.
tn_file *tni_file_read(tn_ctx *cx, const char *op, const char *path, bool npy_only);
void     tni_file_close(tn_file *f);

#endif
