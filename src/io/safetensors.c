// Reading safetensors: a length of 8 bytes, a JSON header, then the data of all tensors without a
// gap.
//
//   \x40\0\0\0\0\0\0\0                       length of the header
//   {"__metadata__": {"format": "pt"},
//    "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
//    "bias":   {"dtype": "F32", "shape": [2],    "data_offsets": [24, 32]}}
//   32 bytes of data
//
// The header is walked twice, first to know that it is JSON and how many tensors it lists, so that
// memory is allocated once and in proportion to it. Files come from strangers: every number is
// checked before it is used, and an error names the tensor and what is wrong.
#include "base/json.h"
#include "io/file.h"

#include <stdlib.h>
#include <string.h>

// Every dtype of the format, those of Tenon first; as is the one it becomes here, or -1.
static const struct {
    const char *name;
    int         bits, as;
} dtypes[] = {
#define DTYPE(id, name, class, held, in, host, kernel, stem, digits, low, past, high, user, \
              safetensors, npy, use)                                                        \
    { safetensors, 8 * sizeof(host), TN_##id },
#include "tensor/dtype.def"
    { "C64", 64, TN_C64 }, { "F8_E8M0", 8, -1 }, { "F8_E4M3FNUZ", 8, -1 }, { "F8_E5M2FNUZ", 8, -1 },
    { "F6_E2M3", 6, -1 },  { "F6_E3M2", 6, -1 }, { "F4", 4, -1 },
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

// Where reading is. text grows into the part's text, which is as long as the header: no string
// is longer than it is in the header, and there it has quotes.
typedef struct {
    tn_file             *f;
    tni_file_part       *part;
    tni_json             j;
    size_t               bytes;  // of the header
    const unsigned char *data;
    int64_t              data_bytes;
    char                *text, *end;
} reader;

// Reports where the header stops being JSON.
static bool json_wrong(reader *r)
{
    return tni_file_wrong(r->f, "the header is not JSON at byte %zu: %s",
                          TNI_SAFETENSORS_PREFIX + (size_t)(r->j.at - r->j.start), r->j.why);
}

static void rewind_header(reader *r)
{
    tni_json_open(&r->j, (const char *)r->part->map->data + TNI_SAFETENSORS_PREFIX, r->bytes);
}

// Returns the current key or string, unescaped into the part's text; NULL, reported, on failure.
static const char *take_text(reader *r)
{
    char   *s = r->text;
    int64_t n = tni_json_string(&r->j, s, (size_t)(r->end - s));
    if (n < 0) tni_file_wrong(r->f, "a name or text in the header has half a surrogate pair");
    else if (strlen(s) != (size_t)n) tni_file_wrong(r->f, "a name in the header has a 0 character");
    else r->text += n + 1;
    return r->text > s ? s : NULL;
}

// ---- __metadata__ ------------------------------------------------------------------------------

// Returns whether all keys differ; reports one that does not.
static bool check_meta(reader *r)
{
    tni_heap    *heap = &r->f->owned.cx->heap;
    const char **keys = tni_alloc(heap, r->part->nmeta * sizeof *keys);
    if (!keys) {
        tni_fail_memory(r->f->owned.cx, r->f->op);
        return false;
    }
    const char *s = r->part->meta;
    for (size_t i = 0; i < r->part->nmeta; i++) {
        keys[i] = s;
        s       = tni_next_text(tni_next_text(s));
    }
    const char *twice = tni_sort_and_find_twice(keys, r->part->nmeta);
    if (twice) tni_file_wrong(r->f, "__metadata__ has %s twice", tni_quoted(twice).s);
    tni_free(heap, keys);
    return !twice;
}

// Reads the pairs of __metadata__, which must be strings. They are stored one after the other in
// the part's text.
static bool read_meta(reader *r)
{
    if (r->part->meta) return tni_file_wrong(r->f, "__metadata__ appears twice");
    r->part->meta = r->text;
    if (tni_json_next(&r->j) != TNI_JSON_OBJECT)
        return tni_file_wrong(r->f, "__metadata__ is not an object");
    while (tni_json_next(&r->j) == TNI_JSON_KEY) {
        const char *key = take_text(r);
        if (!key) return false;
        if (tni_json_next(&r->j) != TNI_JSON_STRING)
            return tni_file_wrong(r->f, "__metadata__ %s is not a text", tni_quoted(key).s);
        if (!take_text(r)) return false;
        r->part->nmeta++;
    }
    return check_meta(r);
}

// ---- a tensor ----------------------------------------------------------------------------------

// What the header says of a tensor while it is read.
typedef struct {
    int     dtype;  // row of dtypes, -1 until it is known
    int     rank;   // -1 until it is known; may be too large
    int64_t size[TN_MAX_RANK];
    int     offsets;  // how many
    int64_t begin, end;
} fields;

// Reads an array of integers that are not negative, and returns how many there are, of which the
// first `capacity` are kept; -1 if it is no such array.
static int read_integers(reader *r, int64_t *v, int capacity)
{
    int64_t number;
    int     n = 0;
    if (tni_json_next(&r->j) != TNI_JSON_ARRAY) return -1;
    for (; tni_json_next(&r->j) == TNI_JSON_NUMBER; n++) {
        if (!tni_json_int(&r->j, &number) || number < 0) return -1;
        if (n < capacity) v[n] = number;
    }
    return r->j.kind == TNI_JSON_ARRAY_END ? n : -1;
}

// Finds the dtype by the format's name for it. A dtype that Tenon does not have is accepted here,
// and refused when its tensor is asked for: the rest of the file can still be used.
static bool read_dtype(reader *r, const char *name, fields *e)
{
    if (tni_json_next(&r->j) != TNI_JSON_STRING)
        return tni_file_wrong(r->f, "tensor %s: its dtype is not a text", name);
    for (int i = 0; i < DTYPES; i++)
        if (tni_json_is(&r->j, dtypes[i].name)) e->dtype = i;
    if (e->dtype >= 0) return true;
    return tni_file_wrong(r->f, "tensor %s: there is no dtype \"%.*s\"", name,
                          r->j.length < 40 ? (int)r->j.length : 40, r->j.text);
}

// Reads one field of a tensor. Unknown fields are skipped: the format may grow.
static bool read_field(reader *r, const char *name, fields *e, tni_file_entry *it)
{
    int64_t offsets[2] = { 0 };
    bool    dtype = tni_json_is(&r->j, "dtype"), shape = tni_json_is(&r->j, "shape");
    bool    extent = tni_json_is(&r->j, "data_offsets");
    if ((dtype && e->dtype >= 0) || (shape && e->rank >= 0) || (extent && e->offsets))
        return tni_file_wrong(r->f, "tensor %s: a field appears twice", name);
    if (dtype) return read_dtype(r, name, e);
    if (shape) {
        it->shape = r->j.at;
        e->rank   = read_integers(r, e->size, TN_MAX_RANK);
        if (e->rank < 0)
            return tni_file_wrong(r->f, "tensor %s: its shape is no list of sizes", name);
        return e->rank <= TN_MAX_RANK ||
               tni_file_wrong(r->f, "tensor %s: it has rank %d, but Tenon goes to %d", name,
                              e->rank, TN_MAX_RANK);
    }
    if (extent) {
        e->offsets = read_integers(r, offsets, 2);
        e->begin   = offsets[0];
        e->end     = offsets[1];
        return e->offsets == 2 ||
               tni_file_wrong(r->f, "tensor %s: its data_offsets are not two positions", name);
    }
    tni_json_next(&r->j);
    return tni_json_skip(&r->j);
}

// Checks that the tensor's bytes are within the data and exactly as many as its shape needs; fills
// the entry. All arithmetic is checked against overflow, since a file may claim anything.
static bool place_tensor(reader *r, const char *name, const fields *e, tni_file_entry *it)
{
    int     bits  = dtypes[e->dtype].bits;
    int64_t count = tni_shape_count(e->rank, e->size);
    if (count < 0)
        return tni_file_wrong(r->f, "tensor %s: shape %s has too many elements", name,
                              tni_shape_text(e->rank, e->size).s);
    if (e->begin > e->end || e->end > r->data_bytes)
        return tni_file_wrong(r->f,
                              "tensor %s: data_offsets [%lld, %lld] are not within %lld bytes",
                              name, (long long)e->begin, (long long)e->end,
                              (long long)r->data_bytes);
    bool    whole = bits >= 8 || count * bits % 8 == 0;
    int64_t bytes = bits >= 8 ? count * (bits / 8) : count * bits / 8;
    if (!whole || bytes != e->end - e->begin)
        return tni_file_wrong(r->f,
                              "tensor %s: %s of %s does not take the %lld bytes at [%lld, %lld]",
                              name, tni_shape_text(e->rank, e->size).s, dtypes[e->dtype].name,
                              (long long)(e->end - e->begin), (long long)e->begin,
                              (long long)e->end);
    it->dtype = dtypes[e->dtype].name;
    it->as    = (int8_t)dtypes[e->dtype].as;
    it->rank  = (uint8_t)e->rank;
    it->data  = r->data + e->begin;
    it->bytes = bytes;

    return true;
}

// Reads one tensor of the header; all three fields must be present.
static bool read_tensor(reader *r, tni_file_entry *it)
{
    fields e = { .dtype = -1, .rank = -1 };
    *it      = (tni_file_entry){ .part = (uint32_t)(r->f->parts - 1), .name = take_text(r) };
    if (!it->name) return false;
    tni_text name = tni_quoted(it->name);
    if (tni_json_next(&r->j) != TNI_JSON_OBJECT)
        return tni_file_wrong(r->f, "tensor %s: its entry is not an object", name.s);
    while (tni_json_next(&r->j) == TNI_JSON_KEY)
        if (!read_field(r, name.s, &e, it)) return false;
    if (e.dtype < 0 || e.rank < 0 || !e.offsets)
        return tni_file_wrong(r->f, "tensor %s: %s is missing", name.s,
                              e.dtype < 0  ? "dtype"
                              : e.rank < 0 ? "shape"
                                           : "data_offsets");
    return place_tensor(r, name.s, &e, it);
}

// ---- the file ----------------------------------------------------------------------------------

// Orders by data; empty tensors come before those at the same place, and in the order of the
// header.
static int compare_places(const void *a, const void *b)
{
    const tni_file_entry *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x->shape < y->shape ? -1 : x->shape > y->shape;
}

static bool report_gap(reader *r, const unsigned char *from, const unsigned char *to)
{
    return tni_file_wrong(r->f, "bytes %lld to %lld of the data belong to no tensor",
                          (long long)(from - r->data), (long long)(to - r->data));
}

// Returns whether the tensors cover the data, each byte once: gaps or overlaps could hide data, and
// the format forbids them.
static bool check_cover(reader *r, tni_file_entry *entry, size_t n)
{
    const unsigned char *at = r->data, *end = r->data + r->data_bytes;
    if (n) qsort(entry, n, sizeof *entry, compare_places);
    for (size_t i = 0; i < n; i++) {
        if (entry[i].data > at) return report_gap(r, at, entry[i].data);
        if (entry[i].data < at)
            return tni_file_wrong(r->f, "tensors %s and %s overlap",
                                  tni_quoted(entry[i - 1].name).s, tni_quoted(entry[i].name).s);
        at += entry[i].bytes;
    }
    return at == end || report_gap(r, at, end);
}

// Walks the whole header and returns the number of tensors; -1, reported, if it is not JSON.
static int64_t count_tensors(reader *r)
{
    int64_t n = 0;
    rewind_header(r);
    while (tni_json_next(&r->j) != TNI_JSON_END) {
        if (r->j.kind == TNI_JSON_ERROR) {
            json_wrong(r);
            return -1;
        }
        if (r->j.depth == 1 && r->j.kind == TNI_JSON_KEY) n += !tni_json_is(&r->j, "__metadata__");
    }
    return n;
}

// The second walk: the header is known to be JSON, so only meanings are checked.
static bool read_entries(reader *r, tni_file_entry *entry)
{
    rewind_header(r);
    tni_json_next(&r->j);
    while (tni_json_next(&r->j) == TNI_JSON_KEY)
        if (!(tni_json_is(&r->j, "__metadata__") ? read_meta(r) : read_tensor(r, entry++)))
            return false;
    return true;
}

// Checks that the file begins like a safetensors file, and finds header and data. The limit on the
// header is the format's own.
static bool read_prefix(reader *r)
{
    const tni_mapping *m = r->part->map;
    uint64_t           n = 0;
    if (m->bytes < TNI_SAFETENSORS_PREFIX)
        return m->bytes ? tni_file_wrong(r->f, "%zu bytes are no safetensors file", m->bytes)
                        : tni_file_wrong(r->f, "it is empty");
    memcpy(&n, m->data, TNI_SAFETENSORS_PREFIX);
    bool        begun = m->bytes > TNI_SAFETENSORS_PREFIX && m->data[TNI_SAFETENSORS_PREFIX] == '{';
    const char *doubt = begun ? "" : "it does not look like a safetensors file: ";
    if (n > TNI_SAFETENSORS_HEADER)
        return tni_file_wrong(r->f, "%sa header of %llu bytes: more than %d are refused", doubt,
                              (unsigned long long)n, TNI_SAFETENSORS_HEADER);
    if (n > m->bytes - TNI_SAFETENSORS_PREFIX)
        return tni_file_wrong(r->f, "%sa header of %llu bytes in a file of %zu", doubt,
                              (unsigned long long)n, m->bytes);
    if (n == 0 || !begun) return tni_file_wrong(r->f, "%sthe header does not begin with {", doubt);
    r->bytes      = (size_t)n;
    r->data       = m->data + TNI_SAFETENSORS_PREFIX + n;
    r->data_bytes = (int64_t)(m->bytes - TNI_SAFETENSORS_PREFIX - n);
    return true;
}

// Entries are counted in f only when all are valid.
bool tni_safetensors_read(tn_file *f)
{
    reader r = { .f = f, .part = &f->part[f->parts - 1] };
    if (!read_prefix(&r)) return false;
    int64_t n = count_tensors(&r);
    if (n < 0) return false;
    if (n > INT32_MAX - (int64_t)f->count) return tni_file_wrong(f, "too many tensors");
    tni_file_entry *entry = tni_file_entries_add(f, (size_t)n);
    if (!entry) return false;
    r.text = r.part->text = tni_alloc(&f->owned.cx->heap, r.bytes);
    if (!r.text) {
        tni_fail_memory(f->owned.cx, f->op);
        return false;
    }
    r.end = r.text + r.bytes;
    if (!read_entries(&r, entry) || !check_cover(&r, entry, (size_t)n)) return false;
    f->count += (size_t)n;
    return true;
}
