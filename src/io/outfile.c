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

enum { BUFFER = 64 << 10 };

struct tni_outfile {
    tn_ctx       *cx;
    const char   *op;
    char         *path;  // what is replaced
    char         *temp;  // what is written; longer than path
    int           fd;
    size_t        used;  // of buffer
    unsigned char buffer[BUFFER];
};

static void *fail(tni_outfile *f, const char *why)
{
    return tni_fail(f->cx, TN_EIO, "%s: %s: %s", f->op, f->path, why);
}

static void free_all(tni_outfile *f)
{
    tni_heap *heap = &f->cx->heap;
    if (f->fd >= 0) close(f->fd);
    tni_free(heap, f->path);
    tni_free(heap, f->temp);
    tni_free(heap, f);
}

// Where a file system has no locks, every writer is taken to be alone.
static bool lock(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    return errno == ENOLCK || errno == EOPNOTSUPP || errno == EINVAL;
}

// Whether fd is still what stands under this name.
static bool is_at(int fd, const char *path)
{
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev;
}

// Makes a temporary file for this writer alone: its fd, or -1 with errno. Whoever has the lock owns the
// file. A process that is killed loses the lock, and the next writer removes what it left, so that
// they do not pile up.
static int open_locked(const char *temp)
{
    for (;;) {
        int  fd    = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        bool fresh = fd >= 0, there = !fresh && errno == EEXIST;
        if (there) fd = open(temp, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 && (errno == EINTR || (there && errno == ENOENT))) continue;
        if (fd < 0) return -1;
        bool ok  = lock(fd);
        int  why = errno;
        // The owner before may have renamed or removed it between the calls.
        bool mine = ok && is_at(fd, temp);
        if (mine && fresh) return fd;
        if (mine) unlink(temp);
        close(fd);
        errno = why;
        if (!ok) return -1;
    }
}

// "<path>.tenon-tmp", or if another writer has that, "<path>.tenon-tmp1", ...
static bool open_temp(tni_outfile *f)
{
    size_t room = strlen(f->path) + 32;
    f->temp     = tni_alloc(&f->cx->heap, room);
    if (!f->temp) return tni_no_memory(f->cx, f->op);
    snprintf(f->temp, room, "%s.tenon-tmp", f->path);
    for (int n = 1; (f->fd = open_locked(f->temp)) < 0; n++) {
        if (errno != EWOULDBLOCK) return fail(f, strerror(errno)) != NULL;
        snprintf(f->temp, room, "%s.tenon-tmp%d", f->path, n);
    }
    return true;
}

// The name under a link, where there is such a file, else the path itself.
static bool set_path(tni_outfile *f, const char *path)
{
    char real[PATH_MAX];
    f->path = tni_strdup(&f->cx->heap, realpath(path, real) ? real : path);
    if (!f->path) tni_fail_memory(f->cx, f->op);
    return f->path != NULL;
}

// The new file gets the permissions of the one it replaces.
static bool take_mode(tni_outfile *f)
{
    struct stat st;
    if (stat(f->path, &st) != 0) return true;
    const char *why = S_ISDIR(st.st_mode)   ? "it is a folder"
                      : S_ISREG(st.st_mode) ? NULL
                                            : "it is not a regular file";
    if (!why && fchmod(f->fd, st.st_mode & 0777) != 0) why = strerror(errno);
    if (why) fail(f, why);
    return !why;
}

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
    free_all(f);
    return NULL;
}

static bool put(tni_outfile *f, const unsigned char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(f->fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            fail(f, n < 0 ? strerror(errno) : "nothing more can be written");
            return false;
        }
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool flush(tni_outfile *f)
{
    size_t used = f->used;
    f->used     = 0;
    return put(f, f->buffer, used);
}

bool tni_outfile_write(tni_outfile *f, const void *data, size_t bytes)
{
    if (bytes > BUFFER - f->used && !flush(f)) return false;
    if (bytes > BUFFER) return put(f, data, bytes);
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

// Makes the rename last. The new file is whole with or without it, and not every file system can do
// it, so that a failure is no error.
static void sync_folder(tni_outfile *f)
{
    char *slash = strrchr(f->path, '/');
    if (slash) slash[slash == f->path] = 0;
    int fd = open(slash ? f->path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    sync_fd(fd);
    close(fd);
}

// The rename comes before the close, which gives up the lock. A failed write is known by then: that
// is what syncing waits for.
tn_status tni_outfile_commit(tni_outfile *f)
{
    bool ok = flush(f);
    if (ok && sync_fd(f->fd) != 0) ok = fail(f, strerror(errno)) != NULL;
    if (ok && rename(f->temp, f->path) != 0) ok = fail(f, strerror(errno)) != NULL;
    if (ok) sync_folder(f);
    else unlink(f->temp);
    free_all(f);
    return ok ? TN_OK : tni_failed();
}

void tni_outfile_abandon(tni_outfile *f)
{
    if (!f) return;
    unlink(f->temp);
    free_all(f);
}
