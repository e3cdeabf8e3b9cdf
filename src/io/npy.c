// NumPy's npy files: a magic word, a version, a Python dictionary of three keys, then the elements.
//
// A file of zeros((2, 3), float32), with its header padded to 128 bytes:
//
//   \x93NUMPY \x01 \x00            magic, version 1.0
//   \x76 \x00                      length of the header that follows: 118, little-endian
//   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }      ... blanks, newline
//   24 bytes of data
//
// The dictionary is parsed as the one literal that NumPy writes; no Python is evaluated, and
// pickled objects are refused.
#include "io/file.h"

#include <stdio.h>
#include <string.h>

static const char magic[] = "\x93NUMPY";
enum { MAGIC = 6, ALIGN = 64 };

// The dtypes without their byte order; as is the one each becomes.
static const struct {
    const char *name;
    int         width, as;
} dtypes[] = {
#define DTYPE(id, name, class, held, in, host, kernel, stem, digits, low, past, high, user, \
              safetensors, npy, use)                                                        \
    { npy, sizeof(host), TN_##id },
#include "tensor/dtype.def"
    { "c8", 8, TN_C64 },
    { "c16", 16, TN_C128 },
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

bool tni_is_npy(const tni_mapping *m)
{
    return m->bytes >= MAGIC && memcmp(m->data, magic, MAGIC) == 0;
}

// ---- the dictionary ----------------------------------------------------------------------------

// The state of parsing: what is left of the header's text, and what was found so far. seen counts
// each of the three keys.
typedef struct {
    tn_file    *f;
    const char *at, *end;
    const char *descr;
    size_t      descr_bytes;
    bool        fortran;
    const char *shape;
    int         rank;
    int64_t     size[TN_MAX_RANK];
    int         seen[3];
} reader;

// Skips white space, then c if that is next; returns whether it was.
static bool accept(reader *r, char c)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t')) r->at++;
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

// Skips blanks and a word, if it is next.
static bool accept_word(reader *r, const char *word)
{
    size_t n = strlen(word);
    accept(r, ' ');
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

// Returns a quoted text without escapes, in quotes of either kind; NULL if there is none.
static const char *accept_text(reader *r, size_t *bytes)
{
    char quote = accept(r, '\'') ? '\'' : accept(r, '"') ? '"' : 0;
    if (!quote) return NULL;
    const char *text = r->at, *end = memchr(text, quote, (size_t)(r->end - text));
    if (!end || memchr(text, '\\', (size_t)(end - text))) return NULL;
    *bytes = (size_t)(end - text);
    r->at  = end + 1;
    return text;
}

// Reads one size of a shape; -1 if there is none or it is too large.
static int64_t accept_size(reader *r)
{
    const char *first = r->at;
    int64_t     v     = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        if (v > (INT64_MAX - 9) / 10) return -1;
        v = v * 10 + (*r->at - '0');
    }
    return r->at > first ? v : -1;
}

// Reads a tuple of sizes. A tuple of one has a comma, as in Python.
static bool read_shape(reader *r)
{
    bool comma = true;
    if (!accept(r, '(')) return tni_file_wrong(r->f, "the shape is not a tuple");
    r->shape = r->at;
    for (r->rank = 0; !accept(r, ')'); r->rank++) {
        int64_t v = comma ? accept_size(r) : -1;
        if (v < 0) return tni_file_wrong(r->f, "the shape is not a tuple of sizes");
        if (r->rank < TN_MAX_RANK) r->size[r->rank] = v;
        comma = accept(r, ',');
    }
    if (r->rank == 1 && !comma) return tni_file_wrong(r->f, "the shape is not a tuple");
    return r->rank <= TN_MAX_RANK ||
           tni_file_wrong(r->f, "the array has rank %d, but Tenon goes to %d", r->rank,
                          TN_MAX_RANK);
}

// fortran_order says whether the first axis is the innermost.
static bool read_order(reader *r)
{
    r->fortran = accept_word(r, "True");
    return r->fortran || accept_word(r, "False") ||
           tni_file_wrong(r->f, "fortran_order is neither True nor False");
}

// Reads the dtype's text. A list here would describe records with fields, which are refused.
static bool read_descr(reader *r)
{
    r->descr = accept_text(r, &r->descr_bytes);
    if (!r->descr)
        tni_fail(r->f->owned.cx, TN_EDTYPE, "%s: %s: arrays of records are not supported", r->f->op,
                 r->f->part->path);
    return r->descr != NULL;
}

// Reads one key and its value. Unknown keys are refused, as NumPy does.
static bool read_entry(reader *r)
{
    static const struct {
        const char *key;
        bool (*read)(reader *r);
    } keys[] = { { "descr", read_descr },
                 { "fortran_order", read_order },
                 { "shape", read_shape } };

    size_t      n;
    const char *key = accept_text(r, &n);
    if (!key || !accept(r, ':')) return tni_file_wrong(r->f, "the header is not a dictionary");
    for (int i = 0; i < 3; i++)
        if (strlen(keys[i].key) == n && memcmp(keys[i].key, key, n) == 0)
            return r->seen[i]++ ? tni_file_wrong(r->f, "the header has %s twice", keys[i].key)
                                : keys[i].read(r);
    return tni_file_wrong(r->f, "the header has a key besides descr, fortran_order and shape");
}

// Parses the one literal that NumPy writes, rather than Python: nothing is evaluated.
static bool read_dictionary(reader *r)
{
    bool comma = true;
    if (!accept(r, '{')) return tni_file_wrong(r->f, "the header is not a dictionary");
    while (!accept(r, '}')) {
        if (!comma) return tni_file_wrong(r->f, "the header is not a dictionary");
        if (!read_entry(r)) return false;
        comma = accept(r, ',');
    }
    accept(r, '\n');
    if (r->at != r->end) return tni_file_wrong(r->f, "something follows the header's dictionary");
    return (r->seen[0] && r->seen[1] && r->seen[2]) ||
           tni_file_wrong(r->f, "the header lacks descr, fortran_order or shape");
}

// ---- the file ----------------------------------------------------------------------------------

// Finds the header's text; the data follow it. Version 1 has a length of two bytes, later ones of
// four.
static bool read_prefix(reader *r)
{
    const tni_mapping *m = r->f->part->map;
    uint32_t           n = 0;
    if (!tni_is_npy(m) || m->bytes < MAGIC + 4) return tni_file_wrong(r->f, "it is no npy file");
    int major = m->data[MAGIC], minor = m->data[MAGIC + 1];
    if (major < 1 || major > 3 || minor != 0)
        return tni_file_wrong(r->f, "npy version %d.%d is not known", major, minor);
    size_t digits = major == 1 ? 2 : 4, start = MAGIC + 2 + digits;
    if (m->bytes >= start) memcpy(&n, m->data + MAGIC + 2, digits);
    if (m->bytes < start || n > m->bytes - start)
        return tni_file_wrong(r->f, "the header does not end within the file");
    r->at  = (const char *)m->data + start;
    r->end = r->at + n;
    return true;
}

// Returns the row of dtypes that descr names; -1, reported. Arrays of Python objects are pickles,
// which could run code, and are never read.
static int find_dtype(const reader *r)
{
    char order = r->descr_bytes > 2 ? r->descr[0] : 0;
    for (int i = 0; order && i < DTYPES; i++)
        if (*dtypes[i].name && strlen(dtypes[i].name) == r->descr_bytes - 1 &&
            memcmp(r->descr + 1, dtypes[i].name, r->descr_bytes - 1) == 0 &&
            (memchr("<>=", order, 3) || (order == '|' && dtypes[i].width == 1)))
            return i;
    bool object = r->descr_bytes >= 2 && r->descr[0] == '|' && r->descr[1] == 'O';
    tni_fail(r->f->owned.cx, TN_EDTYPE, "%s: %s: dtype '%.*s' %s", r->f->op, r->f->part->path,
             r->descr_bytes < 40 ? (int)r->descr_bytes : 40, r->descr,
             object ? "is Python objects, which are never read" : "is not read");
    return -1;
}

// Makes the file's one entry, whose name is empty. The bytes must be exactly those of the shape.
static bool fill_entry(reader *r, int dtype)
{
    static const char    none[] = ")";
    const tni_mapping   *m      = r->f->part->map;
    const unsigned char *data   = (const unsigned char *)r->end;
    int64_t              bytes  = (int64_t)(m->data + m->bytes - data);
    int64_t              count  = tni_shape_count(r->rank, r->size);
    if (count < 0 || count * dtypes[dtype].width != bytes)
        return tni_file_wrong(r->f, "%s of %s does not take the %lld bytes that are there",
                              tni_shape_text(r->rank, r->size).s, dtypes[dtype].name,
                              (long long)bytes);
    tni_file_entry *it = tni_file_entries_add(r->f, 1);
    if (!it) return false;
    r->f->part->text = tni_alloc(&r->f->owned.cx->heap, r->descr_bytes + 1);
    if (!r->f->part->text) {
        tni_fail_memory(r->f->owned.cx, r->f->op);
        return false;
    }
    memcpy(r->f->part->text, r->descr, r->descr_bytes);
    r->f->part->text[r->descr_bytes] = 0;
    *it                              = (tni_file_entry){ .name    = "",
                                                         .dtype   = r->f->part->text,
                                                         .shape   = r->rank ? r->shape : none,
                                                         .data    = data,
                                                         .bytes   = bytes,
                                                         .as      = (int8_t)dtypes[dtype].as,
                                                         .rank    = (uint8_t)r->rank,
                                                         .fortran = r->fortran,
                                                         .swapped = r->descr[0] == '>' && dtypes[dtype].width > 1 };
    r->f->count                      = 1;
    return true;
}

// Nothing is added to the file unless all of the header is valid.
bool tni_npy_load(tn_file *f)
{
    reader r = { .f = f };
    if (!read_prefix(&r) || !read_dictionary(&r)) return false;
    int dtype = find_dtype(&r);
    return dtype >= 0 && fill_entry(&r, dtype);
}

tn_tensor *tn_npy_read(tn_ctx *cx, const char *path)
{
    if (!tni_ctx_ok(cx, "npy_read")) return NULL;
    tn_file   *f = tni_file_read(cx, "npy_read", path, true);
    tn_tensor *t = f ? tni_file_entry_tensor(f, "npy_read", f->entry) : NULL;
    if (f) tni_file_close(f);
    return t;
}

// ---- writing -----------------------------------------------------------------------------------

// Writes magic, version 1.0, and the dictionary, padded so that the data begin at a multiple of 64.
// Returns the number of bytes.
static size_t make_header(char *h, size_t capacity, const tn_tensor *t, int dtype)
{
    size_t start = MAGIC + 4;
    memcpy(h, magic, MAGIC);
    h[MAGIC]     = 1;
    h[MAGIC + 1] = 0;
    snprintf(h + start, capacity - start,
             "{'descr': '%c%s', 'fortran_order': False, 'shape': %s, }",
             dtypes[dtype].width > 1 ? '<' : '|', dtypes[dtype].name, tni_shape_of(t).s);
    size_t end   = start + strlen(h + start);
    size_t bytes = (end + 1 + ALIGN - 1) / ALIGN * ALIGN;
    memset(h + end, ' ', bytes - end);
    h[bytes - 1] = '\n';
    h[MAGIC + 2] = (char)((bytes - start) & 0xff);
    h[MAGIC + 3] = (char)((bytes - start) >> 8);
    return bytes;
}

// Data are computed before they are written; the file appears only when it is complete.
static tn_status write_npy(tn_tensor *t, const char *path, int dtype)
{
    char         h[512];
    size_t       n   = make_header(h, sizeof h, t, dtype);
    tni_outfile *out = tni_outfile_open(t->cx, "npy_write", path);
    if (!out) return tni_failed();
    if (tni_outfile_write(out, h, n) && tni_elements_write(out, "npy_write", t))
        return tni_outfile_commit(out);
    tni_outfile_abandon(out);
    return tni_failed();
}

// bf16 and the 8-bit floats have no npy dtype.
tn_status tn_npy_write(tn_tensor *t, const char *path)
{
    tn_ctx *cx = tni_arg1_any("npy_write", t, "t");
    if (!cx) return tni_failed();
    int dtype = 0;
    while (dtypes[dtype].as != (int)tn_dtype_of(t)) dtype++;
    if (!*dtypes[dtype].name)
        return tni_fail_status(cx, TN_EDTYPE,
                               "npy_write: npy has no %s; cast t to f32, or see tn_file_write",
                               tn_dtype_name(tn_dtype_of(t)));
    return write_npy(t, path, dtype);
}
