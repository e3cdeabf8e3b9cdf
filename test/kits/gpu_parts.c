// Processes that use a GPU: see gpu_parts.h.
#include "gpu_parts.h"

#include "check.h"
#include "table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_PARTS = 16 };

const char *tested_device(void)
{
    const char *name = getenv("TN_TEST_DEVICE");
    return name && *name ? name : "cuda";
}

tn_ctx *open_seeded(const char *device, uint64_t seed)
{
    tn_ctx *cx = tn_open_with((tn_open_opts){ .device = device, .seed = seed });
    if (CHECK(cx != NULL)) tn_on_error(cx, NULL, NULL);
    return cx;
}

// Whether there is a device, found out by a process of its own; why not, in a line.
static bool is_there(char *why, size_t room)
{
    int ends[2], status = 1;
    if (pipe(ends)) return false;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        tn_ctx     *cx   = open_quiet(tested_device(), 1);
        const char *text = tn_error_text(NULL);
        if (!cx && write(ends[1], text, strlen(text)) < 0) _exit(2);
        tn_close(cx);
        _exit(cx ? 0 : 1);
    }
    close(ends[1]);
    ssize_t n          = read(ends[0], why, room - 1);
    why[n > 0 ? n : 0] = 0;
    close(ends[0]);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

void in_parts(void (*f)(int part, int parts), int parts)
{
    pid_t pid[MOST_PARTS];
    char  why[256];
    if (!is_there(why, sizeof why)) SKIP("%s", why);
    fflush(NULL);
    for (int i = 0; i < parts; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            setenv("TN_COMPILE", "wait",
                   0);  // compiled kernels are tested, unless the caller says otherwise
            f(i, parts);
            exit(0);  // as a program ends, so that who watches it says what was found
        }
    }
    for (int i = 0; i < parts; i++) {
        int  status = 0;
        bool waited = pid[i] > 0 && waitpid(pid[i], &status, 0) == pid[i];
        test_that(waited, "part %d of %d has no process: %s", i, parts, strerror(errno));
        test_that(!waited || status == 0, "part %d of %d ended with status %d", i, parts, status);
    }
}

void in_process(void (*f)(void *arg), void *arg)
{
    int status = 1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        f(arg);
        fflush(NULL);
        _exit(0);
    }
    test_that(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0,
              "a process ended with status %d", status);
}
