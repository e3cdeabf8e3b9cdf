// The elements of a TensorProto as a tensor: raw bytes, lists of numbers, or a part of another file.
//
//   dims 2, 2    data_type 1    raw_data 16 bytes                     four floats, wherever in the file they lie
//   dims 2       data_type 10   int32_data 0x3c00, 0x4000             the bits of two f16, one a number
//   dims 2, 2    data_type 1    external_data location "w", offset "64"
//
// Raw bytes are in the order of the machine, which is little endian here; they lie at any address, so that they are
// copied.
#include "onnx/onnx_run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// TensorProto.DataType, the dtype it is here, and the field that lists its elements where they are not raw.
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

// The row of a TensorProto.DataType, or -1: strings, complex numbers and types of less than a byte are none.
static int type_row(int64_t type)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].type == type) return i;
    return -1;
}

// *dt stays as it is if there is none.
bool tni_onnx_dtype(int64_t type, tn_dtype *dt)
{
    int i = type_row(type);
    if (i >= 0) *dt = (tn_dtype)types[i].dt;
    return i >= 0;
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

// Opens a file by a path below the model's folder, one part after the other, so that neither "..", nor a link, nor
// an absolute path leads out of it. Returns a descriptor, or -1 with the reason.
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
// A file with several names could be one of another folder. It is read, not mapped: offsets need not fit pages.
static bool read_external(tni_onnx_model *m, tn_ctx *cx, tni_wire tensor, void *to, int64_t bytes)
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
    (void)cx;
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

// Writes the numbers of a list as elements of `size` bytes: the low bytes of an integer, or of a float's bits.
static bool read_list(tni_wire tensor, int row, size_t size, char *to, int64_t count)
{
    tni_wire_list l = tni_wire_list_of(tensor, types[row].list, types[row].wire);
    uint64_t      v;
    int64_t       n = 0;
    for (; tni_wire_list_next(&l, &v); n++)
        if (n < count) memcpy(to + n * (int64_t)size, &v, size);
    return !l.bad && n == count;
}

// Called when the tensor that reads a copy dies.
static void free_copy(void *data, void *user)
{
    tni_free_block(user, data);
}

// Sizes are checked against the bytes that are there before anything is allocated.
tn_tensor *tni_onnx_tensor(tni_onnx_model *m, tn_ctx *cx, tni_wire tensor)
{
    tni_wire_list  l   = tni_wire_list_of(tensor, TNI_TENSOR_DIMS, TNI_WIRE_VARINT);
    int            row = type_row(tni_onnx_int(tensor, TNI_TENSOR_TYPE, 0)), rank = 0;
    int64_t        size[TN_MAX_RANK], count                                       = 1;
    uint64_t       v;
    tni_wire_field raw;
    if (row < 0)
        return wrong_tensor(m, tensor,
                            tni_text_of("elements of type %lld are not supported",
                                        (long long)tni_onnx_int(tensor, TNI_TENSOR_TYPE, 0))
                                .s);
    tn_dtype dt    = (tn_dtype)types[row].dt;
    int64_t  width = (int64_t)tni_dtype_size(dt);
    while (tni_wire_list_next(&l, &v)) {
        if (rank == TN_MAX_RANK) return wrong_tensor(m, tensor, "it has more than 8 axes");
        if ((int64_t)v < 0 || __builtin_mul_overflow(count, (int64_t)v, &count) ||
            count > INT64_MAX / 16)
            return wrong_tensor(m, tensor, "its sizes are negative or too large");
        size[rank++] = (int64_t)v;
    }
    if (l.bad) return wrong_tensor(m, tensor, "its sizes are malformed");
    if (tni_wire_find(tensor, TNI_TENSOR_RAW, &raw) && raw.type == TNI_WIRE_BYTES &&
        tni_onnx_int(tensor, TNI_TENSOR_LOCATION, 0) == 0) {
        if (tni_wire_size(raw.bytes) != (size_t)(count * width))
            return wrong_tensor(m, tensor, "its sizes do not fit its bytes");
        tn_tensor *t = tn_from(cx, dt, rank, size, raw.bytes.at);
        if (m->map) tni_mapping_forget(m->map, raw.bytes.at, tni_wire_size(raw.bytes));
        return t;
    }
    bool outside = tni_onnx_int(tensor, TNI_TENSOR_LOCATION, 0) == 1;
    if (!outside && (uint64_t)count > tni_wire_size(tensor))
        return wrong_tensor(m, tensor, "its sizes do not fit its bytes");
    if (!tni_shape_ok(cx, m->op, rank, size)) return NULL;
    char *copy = tni_alloc_block(&cx->heap, (size_t)(count * width) + 1);
    if (!copy) return tni_fail_memory(m->cx, m->op);
    bool ok = outside ? read_external(m, cx, tensor, copy, count * width)
                      : read_list(tensor, row, (size_t)width, copy, count);
    if (!ok) {
        tni_free_block(&cx->heap, copy);
        return outside ? NULL : wrong_tensor(m, tensor, "its sizes do not fit its elements");
    }
    return tn_borrow(cx, dt, rank, size, copy, free_copy, &cx->heap);
}
