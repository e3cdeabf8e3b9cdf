// Writing a file so that its name always stands for a whole one. The bytes go to
// "<path>.tenon-tmp"; renaming it over the path is the one step that is seen, and happens after
// the bytes are on the disk. A link is followed: the file it points to is replaced, not the link.
#include "io/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// Large enough that headers and small tensors take few system calls.
enum { BUFFER = 64 << 10 };

// A file being written. Invariant: fd has the lock of temp, so that no other writer uses that name.
struct tni_outfile {
    tn_ctx       *cx;
    const char   *op;
    char         *path;  // what is replaced
    char         *temp;  // what is written; longer than path
    int           fd;
    size_t        used;  // of buffer
    unsigned char buffer[BUFFER];
};

static void *fail_outfile(tni_outfile *f, const char *why)
{
    return tni_fail(f->cx, TN_EIO, "%s: %s: %s", f->op, f->path, why);
}

static void free_outfile(tni_outfile *f)
{
    tni_heap *heap = &f->cx->heap;
    if (f->fd >= 0) close(f->fd);
    tni_free(heap, f->path);
    tni_free(heap, f->temp);
    tni_free(heap, f);
}

// If a file system has no locks, every writer is assumed to be alone.
static bool lock_file(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    return errno == ENOLCK || errno == EOPNOTSUPP || errno == EINVAL;
}

// Returns whether fd is still the file under this name.
static bool is_at(int fd, const char *path)
{
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

// Creates a temporary file for this writer alone: returns its descriptor, or -1 with errno. Whoever
// has the lock owns the file. A process that is killed loses the lock, and the next writer removes
// what it left, so that such files do not pile up.
static int open_locked(const char *temp)
{
    for (;;) {
        int  fd    = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        bool fresh = fd >= 0, there = !fresh && errno == EEXIST;
        if (there) fd = open(temp, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 && (errno == EINTR || (there && errno == ENOENT))) continue;
        if (fd < 0) return -1;
        bool ok  = lock_file(fd);
        int  why = errno;
        // The previous owner may have renamed or removed it between the two calls.
        bool mine = ok && is_at(fd, temp);
        if (mine && fresh) return fd;
        if (mine) unlink(temp);
        close(fd);
        errno = why;
        if (!ok) return -1;
    }
}

// Tries "<path>.tenon-tmp"; if another writer has that, "<path>.tenon-tmp1", and so on.
static bool open_temp(tni_outfile *f)
{
    size_t capacity = strlen(f->path) + 32;
    f->temp         = tni_alloc(&f->cx->heap, capacity);
    if (!f->temp) return tni_no_memory(f->cx, f->op);
    snprintf(f->temp, capacity, "%s.tenon-tmp", f->path);
    for (int n = 1; (f->fd = open_locked(f->temp)) < 0; n++) {
        if (errno != EWOULDBLOCK) return fail_outfile(f, strerror(errno)) != NULL;
        snprintf(f->temp, capacity, "%s.tenon-tmp%d", f->path, n);
    }
    return true;
}

// Follows a link, if there is such a file, so that the file is replaced and not the link.
static bool set_path(tni_outfile *f, const char *path)
{
    char real[PATH_MAX];
    f->path = tni_strdup(&f->cx->heap, realpath(path, real) ? real : path);
    if (!f->path) tni_fail_memory(f->cx, f->op);
    return f->path != NULL;
}

// Gives the new file the permissions of the one it replaces.
static bool take_mode(tni_outfile *f)
{
    struct stat st;
    if (stat(f->path, &st) != 0) return true;
    const char *why = S_ISDIR(st.st_mode)   ? "it is a folder"
                      : S_ISREG(st.st_mode) ? NULL
                                            : "it is not a regular file";
    if (!why && fchmod(f->fd, st.st_mode & 0777) != 0) why = strerror(errno);
    if (why) fail_outfile(f, why);
    return !why;
}

// Everything that can be known to fail (no such folder, no permission, a folder in the way) fails
// here, before the caller has computed anything.
tni_outfile *tni_outfile_open(tn_ctx *cx, const char *op, const char *path)
{
    if (!path || !*path) return tni_fail(cx, TN_EARG, "%s: the path is empty", op);
    tni_outfile *f = tni_alloc(&cx->heap, sizeof *f);
    if (!f) return tni_fail_memory(cx, op);
    f->cx   = cx;
    f->op   = op;
    f->path = f->temp = NULL;
    f->fd             = -1;
    f->used           = 0;
    if (set_path(f, path) && open_temp(f)) {
        if (take_mode(f)) return f;
        unlink(f->temp);
    }
    free_outfile(f);
    return NULL;
}

// Repeats short writes, as a signal or a full disk may cause.
static bool write_bytes(tni_outfile *f, const unsigned char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(f->fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            fail_outfile(f, n < 0 ? strerror(errno) : "nothing more can be written");
            return false;
        }
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool flush_buffer(tni_outfile *f)
{
    size_t used = f->used;
    f->used     = 0;
    return write_bytes(f, f->buffer, used);
}

// Large blocks go past the buffer.
bool tni_outfile_write(tni_outfile *f, const void *data, size_t bytes)
{
    if (bytes > BUFFER - f->used && !flush_buffer(f)) return false;
    if (bytes > BUFFER) return write_bytes(f, data, bytes);
    if (bytes) memcpy(f->buffer + f->used, data, bytes);
    f->used += bytes;
    return true;
}

static int sync_fd(int fd)
{
    int r;
    do r = fsync(fd);
    while (r != 0 && errno == EINTR);
    return r;
}

// Makes the rename durable. The new file is whole with or without it, and not every file system
// supports it, so a failure is not an error.
static void sync_folder(tni_outfile *f)
{
    char *slash = strrchr(f->path, '/');
    if (slash) slash[slash == f->path] = 0;
    int fd = open(slash ? f->path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    sync_fd(fd);
    close(fd);
}

// The rename comes before the close, which gives up the lock. A failed write is known by then,
// because fsync waits for it.
tn_status tni_outfile_commit(tni_outfile *f)
{
    bool ok = flush_buffer(f);
    if (ok && sync_fd(f->fd) != 0) ok = fail_outfile(f, strerror(errno)) != NULL;
    if (ok && rename(f->temp, f->path) != 0) ok = fail_outfile(f, strerror(errno)) != NULL;
    if (ok) sync_folder(f);
    else unlink(f->temp);
    free_outfile(f);
    return ok ? TN_OK : tni_failed();
}

void tni_outfile_abandon(tni_outfile *f)
{
    if (!f) return;
    unlink(f->temp);
    free_outfile(f);
}
