// Writing safetensors: tensors in the order they are given, their data from a multiple of 64 on.
#include "io/file.h"

#include <stdio.h>
#include <string.h>

enum { PREFIX = 8, ALIGN = 64, MOST_HEADER = 100000000 };

// The header while it grows. Once memory is out it stays full and nothing more is added.
typedef struct {
    tni_heap *heap;
    char     *text;
    size_t    bytes, room;
    bool      full;
} header;

static void put(header *h, const char *s, size_t n)
{
    h->full |= !tni_grow(h->heap, (void **)&h->text, &h->room, h->bytes + n, 1);
    if (h->full) return;
    memcpy(h->text + h->bytes, s, n);
    h->bytes += n;
}

static void put_text(header *h, const char *s)
{
    put(h, s, strlen(s));
}

static void put_quoted(header *h, const char *s)
{
    put_text(h, "\"");
    for (; *s; s++) {
        char escaped[8] = { '\\', *s };
        if ((unsigned char)*s < ' ') snprintf(escaped, sizeof escaped, "\\u%04x", *s);
        bool plain = *s != '"' && *s != '\\' && (unsigned char)*s >= ' ';
        put(h, plain ? s : escaped, plain ? 1 : strlen(escaped));
    }
    put_text(h, "\"");
}

static void put_numbers(header *h, int n, const int64_t *v)
{
    char text[24];
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%s%lld", i ? "," : "", (long long)v[i]);
        put_text(h, text);
    }
}

static void put_tensor(header *h, const char *name, const tn_tensor *t, int64_t *at)
{
    tn_dtype dt      = tn_dtype_of(t);
    int64_t  next    = *at + tn_count(t) * (int64_t)tni_dtype_size(dt);
    int64_t  span[2] = { *at, next };
    put_quoted(h, name);
    put_text(h, ":{\"dtype\":");
    put_quoted(h, tni_safetensors_dtype(dt));
    put_text(h, ",\"shape\":[");
    put_numbers(h, tn_rank(t), tni_sizes(t));
    put_text(h, "],\"data_offsets\":[");
    put_numbers(h, 2, span);
    put_text(h, "]}");
    *at = next;
}

static void put_meta(header *h, int n, const char *const *meta)
{
    put_text(h, "\"__metadata__\":{");
    for (int i = 0; i < n; i++) {
        if (i) put_text(h, ",");
        put_quoted(h, meta[2 * i]);
        put_text(h, ":");
        put_quoted(h, meta[2 * i + 1]);
    }
    put_text(h, "}");
}

static void put_header(header *h, int n, const char *const *names, tn_tensor *const *tensors,
                       int nmeta, const char *const *meta)
{
    int64_t at = 0;
    put_text(h, "{");
    if (nmeta) put_meta(h, nmeta, meta);
    for (int i = 0; i < n; i++) {
        if (i || nmeta) put_text(h, ",");
        put_tensor(h, names[i], tensors[i], &at);
    }
    put_text(h, "}");
    while ((PREFIX + h->bytes) % ALIGN && !h->full) put_text(h, " ");
}

// ---- what may be written -----------------------------------------------------------------------

// Whether all the n names (every step-th text of names) are there, are UTF-8 and differ.
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
            tni_fail(cx, TN_EARG, "file_write: %s %s %s", what, tni_shown(sorted[i]).s, wrong);
    }
    const char *twice = wrong ? NULL : tni_twice(sorted, (size_t)n);
    if (twice) tni_fail(cx, TN_EARG, "file_write: %s %s is there twice", what, tni_shown(twice).s);
    tni_free(&cx->heap, sorted);
    return !wrong && !twice;
}

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

static bool arguments_ok(tn_ctx *cx, int n, const char *const *names, tn_tensor *const *tensors,
                         int nmeta, const char *const *meta)
{
    if (n < 0 || nmeta < 0 || (n && (!names || !tensors)) || (nmeta && !meta)) {
        tni_fail(cx, TN_EARG,
                 "file_write: %d tensors and %d pairs of meta, or their arrays are NULL", n, nmeta);
        return false;
    }
    if (!texts_ok(cx, n, names, nmeta, meta)) return false;
    tn_ctx *theirs = n ? tni_args("file_write", n, tensors, names) : cx;
    if (theirs && theirs != cx)
        tni_fail(cx, TN_EARG, "file_write: the tensors belong to another context");
    return theirs == cx;
}

// ---- writing -----------------------------------------------------------------------------------

static tn_status write_all(tn_ctx *cx, const char *path, const header *h, int n,
                           tn_tensor *const *tensors)
{
    uint64_t     length = h->bytes;
    tni_outfile *out    = tni_outfile_open(cx, "file_write", path);
    if (!out) return tni_failed();
    bool ok = tni_outfile_write(out, &length, PREFIX) && tni_outfile_write(out, h->text, h->bytes);
    for (int i = 0; i < n && ok; i++) ok = tni_elements_write(out, "file_write", tensors[i]);
    if (ok) return tni_outfile_commit(out);
    tni_outfile_abandon(out);
    return tni_failed();
}

static tn_status write_file(tn_ctx *cx, const char *path, int n, const char *const *names,
                            tn_tensor *const *tensors, int nmeta, const char *const *meta)
{
    if (!arguments_ok(cx, n, names, tensors, nmeta, meta)) return tni_failed();
    header h = { .heap = &cx->heap };
    put_header(&h, n, names, tensors, nmeta, meta);
    tn_status s;
    if (h.full) s = tni_fail_status(cx, TN_EMEM, "file_write: out of memory");
    else if (h.bytes > MOST_HEADER)
        s = tni_fail_status(cx, TN_EARG, "file_write: the header would have %zu bytes", h.bytes);
    else s = write_all(cx, path, &h, n, tensors);
    tni_free(&cx->heap, h.text);
    return s;
}

tn_status tn_file_write(tn_ctx *cx, const char *path, int n, const char *const *names,
                        tn_tensor *const *tensors, int nmeta, const char *const *meta)
{
    if (!tni_ctx_ok(cx, "file_write")) return tni_failed();
    tni_enter(tni_self.site);
    tn_status s = write_file(cx, path, n, names, tensors, nmeta, meta);
    tni_leave(false, NULL);
    return s;
}
