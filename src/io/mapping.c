// Mapping a file. It is mapped as it is now: a file that another program cuts short while it is
// mapped ends the process at the next look, so files are replaced (outfile.h), never written over.
#include "io/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Without waiting for the other end of a fifo.
static int open_file(const char *path)
{
    int fd;
    do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    return fd;
}

// Maps what fd is into m; a phrase that says why not, or NULL.
static const char *map(tni_mapping *m, int fd)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) return strerror(errno);
    if (S_ISDIR(st.st_mode)) return "it is a folder";
    if (!S_ISREG(st.st_mode)) return "it is not a regular file";
    if ((uintmax_t)st.st_size > PTRDIFF_MAX) return "it is too large";
    m->bytes = (size_t)st.st_size;
    m->data  = (const unsigned char *)"";
    if (!m->bytes) return NULL;
    void *data = mmap(NULL, m->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return strerror(errno);
    m->data = data;
    return NULL;
}

tni_mapping *tni_mapping_open(tn_ctx *cx, const char *op, const char *path)
{
    if (!path) return tni_fail(cx, TN_EARG, "%s: the path is NULL", op);
    tni_mapping *m = tni_alloc(&cx->heap, sizeof *m);
    if (!m) return tni_fail_memory(cx, op);
    *m = (tni_mapping){ .refs = 1, .heap = &cx->heap };

    int         fd  = open_file(path);
    const char *why = map(m, fd);
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
    if (m->bytes) munmap((void *)(uintptr_t)m->data, m->bytes);
    tni_free(m->heap, m);
}
