// The elements of a TensorProto as a tensor: raw bytes, lists of numbers, or a part of another
// file.
//
//   dims 2, 2    data_type 1    raw_data 16 bytes                     four floats, wherever in the file they lie
//   dims 2       data_type 10   int32_data 0x3c00, 0x4000             the bits of two f16, one a number
//   dims 2, 2    data_type 1    external_data location "w", offset "64"
//
// Raw bytes are in the order of the machine, which is little endian here; they lie at any address,
// so that they are copied.
#include "engine/engine.h"
#include "onnx/onnx_run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// TensorProto.DataType, the dtype it is here, and the field that lists its elements where they are
// not raw.
static const struct {
    int16_t type;
    int8_t  dt;
    uint8_t list, wire;
} types[] = {
    { 1, TN_F32, TNI_TENSOR_FLOATS, TNI_WIRE_4 },
    { 2, TN_U8, TNI_TENSOR_INTS, TNI_WIRE_VARINT },
    { 3, TN_I8, TNI_TENSOR_INTS, TNI_WIRE_VARINT },
    { 4, TN_U16, TNI_TENSOR_INTS, TNI_WIRE_VARINT },
    { 5, TN_I16, TNI_TENSOR_INTS, TNI_WIRE_VARINT },
    { 6, TN_I32, TNI_TENSOR_INTS, TNI_WIRE_VARINT },
    { 7, TN_I64, TNI_TENSOR_LONGS, TNI_WIRE_VARINT },
    { 9, TN_BOOL, TNI_TENSOR_INTS, TNI_WIRE_VARINT },
    { 10, TN_F16, TNI_TENSOR_INTS, TNI_WIRE_VARINT },
    { 11, TN_F64, TNI_TENSOR_DOUBLES, TNI_WIRE_8 },
    { 12, TN_U32, TNI_TENSOR_ULONGS, TNI_WIRE_VARINT },
    { 13, TN_U64, TNI_TENSOR_ULONGS, TNI_WIRE_VARINT },
    { 16, TN_BF16, TNI_TENSOR_INTS, TNI_WIRE_VARINT },
    { 17, TN_F8_E4M3, TNI_TENSOR_INTS, TNI_WIRE_VARINT },
    { 19, TN_F8_E5M2, TNI_TENSOR_INTS, TNI_WIRE_VARINT },
};
enum { TYPES = sizeof types / sizeof *types };

// The row of a TensorProto.DataType, or -1: strings and complex numbers are none.
static int type_row(int64_t type)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].type == type) return i;
    return -1;
}

// *dt stays as it is if there is none.
bool tni_onnx_dtype(int64_t type, tn_dtype *dt)
{
    int i = type_row(type), bits;
    if (i >= 0) *dt = (tn_dtype)types[i].dt;
    return i >= 0 || tni_onnx_is_narrow(type, dt, &bits);
}

// Sizes of 1 alone, or none.
bool tni_onnx_is_single(tni_wire tensor)
{
    tni_wire_list l = tni_wire_list_of(tensor, TNI_TENSOR_DIMS, TNI_WIRE_VARINT);
    uint64_t      v;
    while (tni_wire_list_next(&l, &v))
        if (v != 1) return false;
    return !l.bad;
}

// 0 if there is none.
int64_t tni_onnx_type_of(tn_dtype dt)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].dt == (int8_t)dt) return types[i].type;
    return 0;
}

// ---- files beside the model --------------------------------------------------------------------

// Returns the text of a key of external_data.
static tni_wire external(tni_wire tensor, const char *key)
{
    tni_wire_field f;
    tni_wire       found = { tensor.end, tensor.end };
    while (tni_wire_next(&tensor, &f) > 0)
        if (f.number == TNI_TENSOR_EXTERNAL && f.type == TNI_WIRE_BYTES &&
            tni_wire_is(tni_onnx_bytes(f.bytes, 1), key))
            found = tni_onnx_bytes(f.bytes, 2);
    return found;
}

// A decimal number; `or` if there is none, -1 if it is none.
static int64_t decimal(tni_wire w, int64_t or)
{
    int64_t v = 0;
    if (!tni_wire_size(w)) return or ;
    for (; w.at < w.end; w.at++) {
        if (*w.at < '0' || *w.at > '9' || v > (INT64_MAX - 9) / 10) return -1;
        v = v * 10 + (*w.at - '0');
    }
    return v;
}

// Opens a file by a path below the model's folder, one part after the other, so that neither "..",
// nor a link, nor an absolute path leads out of it. Returns a descriptor, or -1 with the reason.
// Checked by the kernel at each step, a path cannot be changed between the check and the use.
static int open_below(const char *model, tni_wire location, const char **why)
{
    char        part[NAME_MAX + 1], folder[PATH_MAX];
    const char *slash = strrchr(model, '/');
    size_t      n     = slash ? (size_t)(slash - model) + 1 : 0;
    *why              = "its path leads out of the model's folder";
    if (n >= sizeof folder || !tni_wire_size(location)) return -1;
    memcpy(folder, model, n);
    memcpy(folder + n, n ? "" : ".", n ? 1 : 2);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && location.at < location.end) {
        const unsigned char *end  = memchr(location.at, '/', tni_wire_size(location));
        bool                 last = !end;
        if (last) end = location.end;
        size_t length = (size_t)(end - location.at);
        memcpy(part, location.at, length < sizeof part ? length : 0);
        part[length < sizeof part ? length : 0] = 0;
        location.at                             = last ? end : end + 1;
        bool bad = !length || length >= sizeof part || strlen(part) != length ||
                   !strcmp(part, "..");
        int next = bad ? -1
                       : openat(fd, part,
                                O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
                                    (last ? 0 : O_DIRECTORY));
        if (!bad && next < 0) *why = strerror(errno);
        close(fd);
        fd = next;
    }
    return fd;
}

// Reads a range of the file that an external tensor names into `to`.
// A file with several names could be one of another folder. It is read, not mapped: offsets need
// not fit pages.
static bool read_external(tni_onnx_model *m, tni_wire tensor, void *to, int64_t bytes)
{
    tni_wire location = external(tensor, "location");
    int64_t  offset   = decimal(external(tensor, "offset"), 0),
            length    = decimal(external(tensor, "length"), bytes);
    const char *why   = NULL;
    int         fd    = open_below(m->path, location, &why);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) != 0) why = strerror(errno);
    else if (fd >= 0) {
        bool regular = S_ISREG(st.st_mode) && st.st_nlink == 1;
        bool fits    = offset >= 0 && length == bytes && offset <= st.st_size &&
                    bytes <= st.st_size - offset;
        why = !regular ? "it is not a regular file of one name"
              : !fits  ? "its offset and length do not fit"
                       : NULL;
        for (int64_t at = 0; !why && at < bytes;) {
            ssize_t n = pread(fd, (char *)to + at, (size_t)(bytes - at), offset + at);
            if (n <= 0) why = n ? strerror(errno) : "it is shorter than it was";
            else at += n;
        }
    }
    if (fd >= 0) close(fd);
    if (why)
        tni_fail(m->cx, TN_EIO, "%s: %s: the file %s with elements of %s cannot be read: %s", m->op,
                 tni_escaped(m->path).s, tni_onnx_quoted(location).s,
                 tni_onnx_quoted(tni_onnx_bytes(tensor, TNI_TENSOR_NAME)).s, why);
    return !why;
}

// ---- elements ----------------------------------------------------------------------------------

// Reports what is wrong with a tensor of the file; NULL.
static tn_tensor *wrong_tensor(tni_onnx_model *m, tni_wire tensor, const char *why)
{
    tni_onnx_wrong(m, "tensor %s: %s", tni_onnx_quoted(tni_onnx_bytes(tensor, TNI_TENSOR_NAME)).s,
                   why);
    return NULL;
}

// Writes the numbers of a list as elements of `size` bytes: the low bytes of an integer, or of a
// float's bits. Narrow types have no row: a number is a byte of theirs.
static bool read_list(tni_wire tensor, int row, size_t size, char *to, int64_t count)
{
    tni_wire_list l = tni_wire_list_of(tensor, row < 0 ? TNI_TENSOR_INTS : types[row].list,
                                       row < 0 ? TNI_WIRE_VARINT : types[row].wire);
    uint64_t      v;
    int64_t       n = 0;
    for (; tni_wire_list_next(&l, &v); n++)
        if (n < count) memcpy(to + n * (int64_t)size, &v, size);
    return !l.bad && n == count;
}

// The sizes of a tensor and how many elements that makes; -1, reported, if they cannot be.
static int64_t read_sizes(tni_onnx_model *m, tni_wire tensor, int *rank, int64_t *size)
{
    tni_wire_list l     = tni_wire_list_of(tensor, TNI_TENSOR_DIMS, TNI_WIRE_VARINT);
    int64_t       count = 1;
    uint64_t      v;
    for (*rank = 0; tni_wire_list_next(&l, &v); size[(*rank)++] = (int64_t)v) {
        if (*rank == TN_MAX_RANK) return wrong_tensor(m, tensor, "it has more than 8 axes"), -1;
        if ((int64_t)v < 0 || __builtin_mul_overflow(count, (int64_t)v, &count) ||
            count > INT64_MAX / 16)
            return wrong_tensor(m, tensor, "its sizes are negative or too large"), -1;
    }
    return l.bad ? wrong_tensor(m, tensor, "its sizes are malformed"), -1 : count;
}

// Elements that are not raw bytes of the file: what is read, and from where.
typedef struct {
    tni_onnx_model *m;
    tni_wire        tensor;
    int             type, row;  // row: -1 for narrow types
    int64_t         count,
        each;  // each: the bytes of an element in the file; 1 of those that narrow ones are packed in
} elements;

// Reads `items` elements as the file has them: from beside it, or from a list.
static bool read_items(const elements *e, void *to, int64_t items)
{
    tni_wire_field raw;
    if (tni_onnx_int(e->tensor, TNI_TENSOR_LOCATION, 0) == 1)
        return read_external(e->m, e->tensor, to, items * e->each);
    if (tni_wire_find(e->tensor, TNI_TENSOR_RAW, &raw)) {
        memcpy(to, raw.bytes.at, (size_t)(items * e->each));
        return true;
    }
    return read_list(e->tensor, e->row, (size_t)e->each, to, items) ||
           wrong_tensor(e->m, e->tensor, "its sizes do not fit its elements") != NULL;
}

// Writes the elements to where they are used. Narrow ones are unpacked from a copy, since they take
// more room there.
static bool fill_elements(void *to, size_t bytes, void *user)
{
    const elements *e    = user;
    tni_heap       *heap = &e->m->cx->heap;
    (void)bytes;
    if (e->row >= 0) return read_items(e, to, e->count);
    tn_dtype dt;
    int      bits;
    tni_onnx_is_narrow(e->type, &dt, &bits);
    int64_t items  = (e->count * bits + 7) / 8;
    void   *packed = tni_alloc_block(heap, (size_t)items + 1);
    bool ok = packed ? read_items(e, packed, items) : tni_fail_memory(e->m->cx, e->m->op) != NULL;
    if (ok) tni_onnx_widen(e->type, packed, e->count, to);
    tni_free_block(heap, packed);
    return ok;
}

// Sizes are checked against the bytes that are there before anything is allocated.
tn_tensor *tni_onnx_tensor(tni_onnx_model *m, tn_ctx *cx, tni_wire tensor)
{
    int64_t        type = tni_onnx_int(tensor, TNI_TENSOR_TYPE, 0), size[TN_MAX_RANK];
    int            row = type_row(type), rank, bits = 0;
    tn_dtype       dt;
    tni_wire_field raw;
    if (!tni_onnx_dtype(type, &dt))
        return wrong_tensor(
            m, tensor, tni_text_of("elements of type %lld are not supported", (long long)type).s);
    bool    narrow = row < 0 && tni_onnx_is_narrow(type, &dt, &bits);
    int64_t count  = read_sizes(m, tensor, &rank, size);
    if (count < 0) return NULL;
    int64_t each  = narrow ? 1 : (int64_t)tni_dtype_size(dt),
            items = narrow ? (count * bits + 7) / 8 : count,
            place = tni_onnx_int(tensor, TNI_TENSOR_LOCATION, 0);
    bool have = tni_wire_find(tensor, TNI_TENSOR_RAW, &raw) && raw.type == TNI_WIRE_BYTES && !place;
    if (have && tni_wire_size(raw.bytes) != (size_t)(items * each))
        return wrong_tensor(m, tensor, "its sizes do not fit its bytes");
    if (have && !narrow) {
        tn_tensor *t = tn_from(cx, dt, rank, size, raw.bytes.at);
        if (m->map) tni_mapping_forget(m->map, raw.bytes.at, tni_wire_size(raw.bytes));
        return t;
    }
    if (place != 1 && !have && (uint64_t)items > tni_wire_size(tensor))
        return wrong_tensor(m, tensor, "its sizes do not fit its bytes");
    elements e = { m, tensor, (int)type, row, count, each };
    return tni_from_filled(cx, m->op, dt, rank, size, fill_elements, &e);
}

// Values are put at places of all elements as one line; indices are these, or a row of one for each
// axis.
tn_tensor *tni_onnx_sparse(tni_onnx_model *m, tn_ctx *cx, tni_wire sparse)
{
    tni_wire   list = tni_onnx_bytes(sparse, TNI_SPARSE_VALUES);
    tn_tensor *v    = tni_onnx_tensor(m, cx, list), *at;
    int64_t    size[TN_MAX_RANK], count;
    int        rank = 0;
    at              = v ? tni_onnx_tensor(m, cx, tni_onnx_bytes(sparse, TNI_SPARSE_INDICES)) : NULL;
    if (!v || !at) return NULL;
    // Its sizes have another number than a tensor's.
    tni_wire_list l = tni_wire_list_of(sparse, TNI_SPARSE_DIMS, TNI_WIRE_VARINT);
    uint64_t      d;
    for (count = 1; rank < TN_MAX_RANK && tni_wire_list_next(&l, &d); size[rank++] = (int64_t)d)
        if ((int64_t)d < 0 || __builtin_mul_overflow(count, (int64_t)d, &count))
            return wrong_tensor(m, list, "its sizes are too large");
    if (!tni_shape_ok(cx, m->op, rank, size)) return NULL;
    if (tn_rank(at) == 2 && tn_size(at, 1) == rank) {
        tn_tensor *place = NULL;
        for (int i = 0; i < rank; i++) {
            tn_tensor *k = tn_select(at, 1, i);
            place        = place ? tn_add(tn_mul_i64(place, size[i]), k) : k;
        }
        at = place;
    }
    if (!at || tn_rank(at) != 1 || tn_rank(v) != 1 || tn_count(at) != tn_count(v))
        return wrong_tensor(m, list, "its indices do not fit its values");
    tn_tensor *line = tn_zeros(cx, tn_dtype_of(v), TN_SHAPE(count));
    return tn_reshape(tn_scatter(line, 0, at, v), rank, size);
}
