// Whole reads and writes of file descriptors. False if the system reports an error or the file ends
// first; a signal in between is no reason.
#ifndef TNI_BASE_FD_H
#define TNI_BASE_FD_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

static inline bool tni_fd_read(int fd, void *data, size_t bytes)
{
    char *p = data;
    while (bytes > 0) {
        ssize_t n = read(fd, p, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

static inline bool tni_fd_write(int fd, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes > 0) {
        ssize_t n = write(fd, p, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

#endif
