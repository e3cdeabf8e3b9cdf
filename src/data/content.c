// The contents of data files, and finding the files.
#include "data/content.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The last four bytes of gzip say how much it expands to, modulo 4 GiB, and are not to be trusted:
// they are believed up to COMMON_RATIO times the file; beyond that, the capacity doubles as data
// really come. Nothing above MOST_GIB is read.
enum { COMMON_RATIO = 8, FIRST_CAPACITY = 1 << 20, LEAST_CAPACITY = 1 << 16, MOST_GIB = 4 };
enum { MOST_HEAD = 64 };  // bytes of a header that declares a size

// A file being expanded into c, whose capacity is c->counted bytes.
typedef struct {
    tn_ctx      *cx;
    const char  *op, *path;
    tni_mapping *from;
    tni_gunzip  *stream;
    tni_content *c;
} job;

// Reports that the expanded file would exceed the context's memory limit; need 0: it is not known
// how much it needs.
static bool over_limit(const job *j, uint64_t need)
{
    tni_buffers *b = &j->cx->buffers;
    return tni_refuse(j->cx, TN_EMEM,
                      "%s: %s: it expands to %s%s, and the memory limit of %s leaves %s", j->op,
                      j->path, need ? "" : "more than ",
                      tni_size_text(need ? (int64_t)need : (int64_t)j->c->bytes).s,
                      tni_size_text(b->limit).s, tni_size_text((int64_t)tni_buffers_left(b)).s);
}

// Allocates `bytes` in all and counts them to the limit; false, reported, with as much as before.
static bool set_capacity(job *j, size_t bytes)
{
    tni_content *c    = j->c;
    size_t       more = bytes > c->counted ? bytes - c->counted : 0;
    if (!tni_buffers_reserve_host(c->counts, more)) return over_limit(j, 0);
    unsigned char *data = tni_resize(&j->cx->heap, c->expanded, bytes);
    if (!data) {
        tni_buffers_release_host(c->counts, more);
        return tni_no_memory(j->cx, j->op);
    }
    if (bytes < c->counted) tni_buffers_release_host(c->counts, c->counted - bytes);
    c->data = c->expanded = data;
    c->counted            = bytes;
    return true;
}

static size_t first_capacity(const tni_mapping *m)
{
    const unsigned char *end  = m->data + m->bytes;
    size_t               size = (size_t)end[-4] | (size_t)end[-3] << 8 | (size_t)end[-2] << 16 |
                  (size_t)end[-1] << 24;
    size_t common = m->bytes * COMMON_RATIO + FIRST_CAPACITY;
    // Of several members, only the last one's size is known here.
    if (size < LEAST_CAPACITY) size = LEAST_CAPACITY;
    return (size < common ? size : common) + 1;  // one byte more lets the end be seen at once
}

// Doubles the capacity, or takes all that the limits leave.
static bool grow_capacity(job *j)
{
    tni_content *c    = j->c;
    uint64_t     most = (uint64_t)MOST_GIB << 30;
    size_t       want = c->counted ? c->counted : first_capacity(j->from);
    size_t       left = tni_buffers_left(c->counts);
    if (c->counted >= most)
        return tni_refuse(j->cx, TN_EFORMAT, "%s: %s: it expands to more than %d GiB", j->op,
                          j->path, MOST_GIB);
    if (want > left) want = left;
    if (want > most - c->counted) want = most - c->counted;
    return want ? set_capacity(j, c->counted + want) : over_limit(j, 0);
}

// Expands to the end, then gives back what is not needed.
static bool expand_all(job *j)
{
    tni_content *c = j->c;
    size_t       got;
    do {
        if (!grow_capacity(j)) return false;
        if (!tni_gunzip_read(j->stream, c->expanded + c->bytes, c->counted - c->bytes, &got))
            return false;
        c->bytes += got;
    } while (c->bytes == c->counted);
    return set_capacity(j, c->bytes);
}

// Expands as far as the header declares, which is read first, and one byte more, to see that the
// file ends there. A header can declare anything, so its size is compared with what this much gzip
// can hold and with the memory limit before anything is allocated.
static bool expand_declared(job *j, const tni_declares *d)
{
    tni_content  *c = j->c;
    unsigned char head[MOST_HEAD], end;
    uint64_t      all;
    size_t        n, got, more = 0;
    if (!tni_gunzip_read(j->stream, head, d->head, &n)) return false;
    if (!d->declared(j->cx, j->path, head, n, &all)) return false;
    if (all > tni_gunzip_most(j->from->bytes))
        return tni_refuse(j->cx, TN_EFORMAT,
                          "%s: %s: its header declares %llu bytes, more than its %zu bytes of gzip "
                          "can hold",
                          j->op, j->path, (unsigned long long)all, j->from->bytes);
    if (all > tni_buffers_left(c->counts)) return over_limit(j, all);
    c->cut = n > all;
    if (c->cut) n = (size_t)all;
    if (!set_capacity(j, (size_t)all)) return false;
    memcpy(c->expanded, head, n);
    if (!tni_gunzip_read(j->stream, c->expanded + n, c->counted - n, &got)) return false;
    c->bytes = n + got;
    if (c->bytes == all && !tni_gunzip_read(j->stream, &end, 1, &more)) return false;
    c->cut |= more > 0;
    return true;
}

// On failure nothing is left in the content.
static bool expand_file(job *j, const tni_declares *d)
{
    j->stream = tni_gunzip_open(j->cx, j->op, j->path, NULL, j->from);
    bool ok   = j->stream && (d ? expand_declared(j, d) : expand_all(j));
    tni_gunzip_close(j->stream);
    if (!ok) tni_content_close(&j->cx->heap, j->c);
    return ok;
}

// Gzip is recognized by its first two bytes, not by the name.
bool tni_content_open(tn_ctx *cx, const char *op, const char *path, const tni_declares *d,
                      tni_content *c)
{
    tni_mapping *m = tni_mapping_open(cx, op, path);
    if (!m) return false;
    if (m->bytes < 2 || m->data[0] != 0x1f || m->data[1] != 0x8b) {
        *c = (tni_content){ .data = m->data, .bytes = m->bytes, .map = m };
        return true;
    }
    *c      = (tni_content){ .counts = &cx->buffers };
    bool ok = expand_file(&(job){ .cx = cx, .op = op, .path = path, .from = m, .c = c }, d);
    tni_mapping_unref(m);
    return ok;
}

void tni_content_close(tni_heap *h, tni_content *c)
{
    tni_mapping_unref(c->map);
    tni_free(h, c->expanded);
    if (c->counts) tni_buffers_release_host(c->counts, c->counted);
    *c = (tni_content){ 0 };
}

bool tni_folder_ok(tn_ctx *cx, const char *op, const char *dir)
{
    struct stat s;
    if (!dir) return tni_refuse(cx, TN_EARG, "%s: the folder is NULL", op);
    if (stat(dir, &s) != 0)
        return tni_refuse(cx, TN_EIO, "%s: %s: there is no such folder", op, dir);
    return S_ISDIR(s.st_mode) || tni_refuse(cx, TN_EIO, "%s: %s: it is not a folder", op, dir);
}

bool tni_find_file(char path[TNI_PATH], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(path, TNI_PATH, fmt, args);
    va_end(args);
    return n >= 0 && n < TNI_PATH && access(path, F_OK) == 0;
}
