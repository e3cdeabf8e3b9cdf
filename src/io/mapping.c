// Mapping a file. It is mapped as it is now: a file that another program cuts short while it is
// mapped ends the process at the next look, so files are replaced (outfile.h), never written over.
//
// One page more is mapped than the file has. Reading that page, which is past the file's end, ends
// the process, so a reader that runs over the end is found out, whatever follows in memory. With
// AddressSanitizer that holds from the first byte on.
#include "io/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__
#define GUARDED 1
#elif defined __has_feature
#define GUARDED __has_feature(address_sanitizer)
#else
#define GUARDED 0
#endif

#if GUARDED
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, n)   ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

// Returns the bytes that are mapped for a file: whole pages, and one more.
static size_t mapped_bytes(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page + page;
}

// O_NONBLOCK: opening a fifo must not wait for its other end.
static int open_file(const char *path)
{
    int fd;
    do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    return fd;
}

// Maps the file behind fd into m. Returns NULL, or a phrase that says why it cannot be mapped.
static const char *map_file(tni_mapping *m, int fd)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return strerror(errno);
    if (S_ISDIR(st.st_mode)) return "it is a folder";
    if (!S_ISREG(st.st_mode)) return "it is not a regular file";
    if ((uintmax_t)st.st_size > PTRDIFF_MAX / 2) return "it is too large";
    m->bytes = (size_t)st.st_size;
    m->data  = (const unsigned char *)"";
    if (!m->bytes) return NULL;
    size_t capacity = mapped_bytes(m->bytes);
    void  *data     = mmap(NULL, capacity, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return strerror(errno);
    m->data = data;
    ASAN_POISON_MEMORY_REGION(m->data + m->bytes, capacity - m->bytes);
    return NULL;
}

// The descriptor is closed at once: a mapping does not need it, and a program may open many files.
tni_mapping *tni_mapping_open(tn_ctx *cx, const char *op, const char *path)
{
    if (!path) return tni_fail(cx, TN_EARG, "%s: the path is NULL", op);
    tni_mapping *m = tni_alloc(&cx->heap, sizeof *m);
    if (!m) return tni_fail_memory(cx, op);
    *m = (tni_mapping){ .refs = 1, .heap = &cx->heap };

    int         fd  = open_file(path);
    const char *why = map_file(m, fd);
    if (why) {
        tni_fail(cx, TN_EIO, "%s: %s: %s", op, path, why);
        tni_free(&cx->heap, m);
        m = NULL;
    }
    if (fd >= 0) close(fd);
    return m;
}

void tni_mapping_unref(tni_mapping *m)
{
    if (!m || --m->refs > 0) return;
    size_t capacity = mapped_bytes(m->bytes);
    if (m->bytes) {
        ASAN_UNPOISON_MEMORY_REGION(m->data, capacity);
        munmap((void *)(uintptr_t)m->data, capacity);
    }
    tni_free(m->heap, m);
}

// Whole pages alone: those at the ends may have other bytes that are in use. Nothing was written to
// them, so that they are read from the file again.
void tni_mapping_forget(const tni_mapping *m, const unsigned char *at, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), start = (size_t)(at - m->data);
    size_t first = (start + page - 1) / page * page, end = (start + bytes) / page * page;
    if (end > first) madvise((void *)(m->data + first), end - first, MADV_DONTNEED);
}
