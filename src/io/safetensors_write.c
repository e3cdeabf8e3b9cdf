// Writing safetensors: tensors in the order they are given, their data from a multiple of 64 on.
// The header of two tensors, in one line and padded with blanks:
//
//   {"__metadata__":{"step":"7"},"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},
//    "bias":{"dtype":"F32","shape":[2],"data_offsets":[24,32]}}
#include "base/json.h"
#include "io/file.h"

#include <string.h>

enum { ALIGN = 64 };

static void put_numbers(tni_json_writer *h, int n, const int64_t *v)
{
    for (int i = 0; i < n; i++) {
        if (i) tni_json_put(h, ",");
        tni_json_put_int(h, v[i]);
    }
}

// Writes one entry of the header, and advances *at by the tensor's bytes.
static void put_tensor(tni_json_writer *h, const char *name, const tn_tensor *t, int64_t *at)
{
    tn_dtype dt      = tn_dtype_of(t);
    int64_t  next    = *at + tn_count(t) * (int64_t)tni_element_size(dt);
    int64_t  span[2] = { *at, next };
    tni_json_quote(h, name);
    tni_json_put(h, ":{\"dtype\":");
    tni_json_quote(h, dt == TN_C64 ? "C64" : tni_dtype_table[dt].safetensors);
    tni_json_put(h, ",\"shape\":[");
    put_numbers(h, tn_rank(t), tni_sizes(t));
    tni_json_put(h, "],\"data_offsets\":[");
    put_numbers(h, 2, span);
    tni_json_put(h, "]}");
    *at = next;
}

static void put_meta(tni_json_writer *h, int n, const char *const *meta)
{
    tni_json_put(h, "\"__metadata__\":{");
    for (int i = 0; i < n; i++) {
        if (i) tni_json_put(h, ",");
        tni_json_quote(h, meta[2 * i]);
        tni_json_put(h, ":");
        tni_json_quote(h, meta[2 * i + 1]);
    }
    tni_json_put(h, "}");
}

// Pads with blanks, which the format allows, so that data begin at a multiple of 64 and can be used
// in place when the file is mapped.
static void put_header(tni_json_writer *h, int n, const char *const *names,
                       tn_tensor *const *tensors, int nmeta, const char *const *meta)
{
    int64_t at = 0;
    tni_json_put(h, "{");
    if (nmeta) put_meta(h, nmeta, meta);
    for (int i = 0; i < n; i++) {
        if (i || nmeta) tni_json_put(h, ",");
        put_tensor(h, names[i], tensors[i], &at);
    }
    tni_json_put(h, "}");
    while ((TNI_SAFETENSORS_PREFIX + h->bytes) % ALIGN && !h->full) tni_json_put(h, " ");
}

// ---- what may be written -----------------------------------------------------------------------

// Returns whether the n names (every step-th text of names) are UTF-8 and all differ.
static bool names_ok(tn_ctx *cx, const char *what, int n, const char *const *names, int step)
{
    const char **sorted = tni_alloc(&cx->heap, (size_t)n * sizeof *sorted);
    const char  *wrong  = NULL;
    if (!sorted) {
        tni_fail_memory(cx, "file_write");
        return false;
    }
    for (int i = 0; i < n && !wrong; i++) {
        sorted[i] = names[i * step];
        if (!tni_utf8_ok(sorted[i], strlen(sorted[i]))) wrong = "is not UTF-8";
        if (wrong)
            tni_fail(cx, TN_EARG, "file_write: %s %s %s", what, tni_quoted(sorted[i]).s, wrong);
    }
    const char *twice = wrong ? NULL : tni_sort_and_find_twice(sorted, (size_t)n);
    if (twice) tni_fail(cx, TN_EARG, "file_write: %s %s appears twice", what, tni_quoted(twice).s);
    tni_free(&cx->heap, sorted);
    return !wrong && !twice;
}

// Checks names and metadata before a file is opened.
static bool texts_ok(tn_ctx *cx, int n, const char *const *names, int nmeta,
                     const char *const *meta)
{
    for (int i = 0; i < n; i++) {
        bool reserved = names[i] && strcmp(names[i], "__metadata__") == 0;
        if (names[i] && *names[i] && !reserved) continue;
        tni_fail(cx, TN_EARG, "file_write: name %d is %s", i,
                 reserved   ? "__metadata__, which the format keeps for itself"
                 : names[i] ? "empty"
                            : "NULL");
        return false;
    }
    for (int i = 0; i < 2 * nmeta; i++) {
        if (meta[i] && tni_utf8_ok(meta[i], strlen(meta[i]))) continue;
        tni_fail(cx, TN_EARG, "file_write: text %d of meta is %s", i,
                 meta[i] ? "not UTF-8" : "NULL");
        return false;
    }
    return names_ok(cx, "name", n, names, 1) && names_ok(cx, "meta key", nmeta, meta, 2);
}

// Checks all arguments; the tensors must be of this context, since their values are computed for
// the file.
static bool arguments_ok(tn_ctx *cx, int n, const char *const *names, tn_tensor *const *tensors,
                         int nmeta, const char *const *meta)
{
    if (n < 0 || nmeta < 0 || (n && (!names || !tensors)) || (nmeta && !meta)) {
        tni_fail(cx, TN_EARG,
                 "file_write: %d tensors and %d pairs of meta, or their arrays are NULL", n, nmeta);
        return false;
    }
    if (!texts_ok(cx, n, names, nmeta, meta)) return false;
    tn_ctx *theirs = n ? tni_args_any("file_write", n, tensors, names) : cx;
    for (int i = 0; theirs && i < n; i++)
        if (tn_dtype_of(tensors[i]) == TN_C128)
            return tni_refuse(cx, TN_EDTYPE, "file_write: %s is c128, which the format has not",
                              names[i]);
    if (theirs && theirs != cx)
        tni_fail(cx, TN_EARG, "file_write: the tensors belong to another context");
    return theirs == cx;
}

// ---- writing -----------------------------------------------------------------------------------

// Tensors are computed and written one by one, so that memory for one host copy suffices.
static tn_status write_tensors(tn_ctx *cx, const char *path, const tni_json_writer *h, int n,
                               tn_tensor *const *tensors)
{
    uint64_t     length = h->bytes;
    tni_outfile *out    = tni_outfile_open(cx, "file_write", path);
    if (!out) return tni_failed();
    bool ok = tni_outfile_write(out, &length, TNI_SAFETENSORS_PREFIX) &&
              tni_outfile_write(out, h->text, h->bytes);
    for (int i = 0; i < n && ok; i++) ok = tni_elements_write(out, "file_write", tensors[i]);
    if (ok) return tni_outfile_commit(out);
    tni_outfile_abandon(out);
    return tni_failed();
}

// The header is built in memory first: its length comes before it in the file.
tn_status tn_file_write(tn_ctx *cx, const char *path, int n, const char *const *names,
                        tn_tensor *const *tensors, int nmeta, const char *const *meta)
{
    if (!tni_ctx_ok(cx, "file_write")) return tni_failed();
    if (!arguments_ok(cx, n, names, tensors, nmeta, meta)) return tni_failed();
    tni_json_writer h = { .heap = &cx->heap };
    put_header(&h, n, names, tensors, nmeta, meta);
    tn_status s;
    if (h.full) s = tni_fail_status(cx, TN_EMEM, "file_write: out of memory");
    else if (h.bytes > TNI_SAFETENSORS_HEADER)
        s = tni_fail_status(cx, TN_EARG, "file_write: the header would have %zu bytes", h.bytes);
    else s = write_tensors(cx, path, &h, n, tensors);
    tni_free(&cx->heap, h.text);
    return s;
}
