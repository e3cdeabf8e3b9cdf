// Running another program. Its end is looked for by polling: a host that ignores SIGCHLD, or waits
// for all its children, then costs us no more than the exit status.
#include "device/cpu/command.h"

#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

#define PREFIX "tenon-cc-"

enum { HOUR = 3600 };
enum { POLL_FIRST_US = 500, POLL_LAST_US = 8000, GRACE_MS = 300, MOST_BYTES = 256 << 20 };

// ---- the environment ---------------------------------------------------------------------------

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

// What is loaded into this process, and where others would write, is not for a compiler.
static bool is_left_out(const char *entry)
{
    return begins(entry, "TMPDIR=") || begins(entry, "LC_ALL=") || begins(entry, "LD_PRELOAD=") ||
           begins(entry, "DEPENDENCIES_OUTPUT=") || begins(entry, "SUNPRO_DEPENDENCIES=");
}

// The first entry is TMPDIR, the second the language of messages.
bool tni_runner_open(tni_runner *r, int limit_ms)
{
    size_t n = 0, at = 2;
    while (environ && environ[n]) n++;
    r->limit_ms = limit_ms;
    atomic_init(&r->stop, false);
    atomic_init(&r->late, false);
    r->environment = calloc(n + 3, sizeof *r->environment);
    if (!r->environment) return false;
    const char *temp = getenv("TMPDIR");
    char        entry[TNI_FOLDER];
    snprintf(entry, sizeof entry, "TMPDIR=%s", temp && *temp == '/' ? temp : "/tmp");
    r->environment[0] = strdup(entry);
    r->environment[1] = strdup("LC_ALL=C");
    bool ok           = r->environment[0] && r->environment[1];
    for (size_t i = 0; i < n && ok; i++) {
        if (is_left_out(environ[i])) continue;
        ok = (r->environment[at++] = strdup(environ[i])) != NULL;
    }
    if (!ok) tni_runner_close(r);
    return ok;
}

void tni_runner_close(tni_runner *r)
{
    for (char **e = r->environment; e && *e; e++) free(*e);
    free(r->environment);
    r->environment = NULL;
}

// ---- folders -----------------------------------------------------------------------------------

static bool make_in(const char *parent, char folder[TNI_FOLDER])
{
    int n = snprintf(folder, TNI_FOLDER, "%s/" PREFIX "XXXXXX", parent);
    return n < TNI_FOLDER - 16 && mkdtemp(folder) != NULL;
}

bool tni_folder_make(const tni_runner *r, char folder[TNI_FOLDER], tni_text *why)
{
    if (make_in(r->environment[0] + strlen("TMPDIR="), folder)) return true;
    if (make_in("/tmp", folder)) return true;
    *why = tni_text_of("no folder for temporary files: %s", strerror(errno));
    return false;
}

void tni_folder_remove(const char *folder)
{
    int  fd  = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0) close(fd);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    rmdir(folder);
}

// Whether a name in the folder of temporary files is one of ours that its process did not remove.
static bool is_left_over(int parent, const char *name)
{
    struct stat st;
    if (!begins(name, PREFIX) || strlen(name) != strlen(PREFIX "XXXXXX")) return false;
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode)) return false;
    return st.st_uid == geteuid() && time(NULL) - st.st_mtime > HOUR;
}

void tni_folder_sweep(const tni_runner *r)
{
    const char *parent = r->environment[0] + strlen("TMPDIR=");
    DIR        *dir    = opendir(parent);
    char        path[TNI_FOLDER + 32];
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));) {
        if (!is_left_over(dirfd(dir), e->d_name)) continue;
        snprintf(path, sizeof path, "%s/%.20s", parent, e->d_name);
        tni_folder_remove(path);
    }
    closedir(dir);
}

static int open_in(const char *folder, const char *name, int flags)
{
    char path[TNI_FOLDER + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

char *tni_folder_read(const char *folder, const char *name, size_t *bytes)
{
    struct stat st;
    int         fd = open_in(folder, name, O_RDONLY);
    if (fd < 0) return NULL;
    char *data = NULL;
    if (fstat(fd, &st) == 0 && st.st_size <= MOST_BYTES) data = malloc((size_t)st.st_size + 1);
    if (data && !tni_fd_read(fd, data, (size_t)st.st_size)) {
        free(data);
        data = NULL;
    }
    close(fd);
    if (!data) return NULL;
    data[st.st_size] = 0;
    *bytes           = (size_t)st.st_size;
    return data;
}

bool tni_folder_write(const char *folder, const char *name, const void *data, size_t bytes)
{
    int fd = open_in(folder, name, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0) return false;
    bool ok = tni_fd_write(fd, data, bytes);
    return close(fd) == 0 && ok;
}

// ---- waiting -----------------------------------------------------------------------------------

typedef enum { ENDED_WELL, ENDED_BADLY, RUNS } outcome;

static int64_t milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// A child that is no longer there has ended, and somebody else has its status.
static outcome look(pid_t pid, int *status)
{
    *status = 0;
    pid_t got;
    do got = waitpid(pid, status, WNOHANG);
    while (got < 0 && errno == EINTR);
    if (got == 0) return RUNS;
    return got < 0 || (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) ? ENDED_WELL : ENDED_BADLY;
}

static outcome await(pid_t pid, int64_t limit_ms, const atomic_bool *stop, int *status)
{
    int64_t end = milliseconds() + limit_ms;
    for (long us = POLL_FIRST_US;; us = us * 3 / 2 < POLL_LAST_US ? us * 3 / 2 : POLL_LAST_US) {
        outcome o = look(pid, status);
        if (o != RUNS || milliseconds() >= end || (stop && atomic_load(stop))) return o;
        nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
    }
}

// Ends the program and those it started, which are a group of their own: politely, so that a
// compiler removes its files, then for good. It was running just now, so that its number is its own.
static void end_group(pid_t pid)
{
    int status;
    kill(-pid, SIGTERM);
    if (await(pid, GRACE_MS, NULL, &status) == RUNS) {
        kill(-pid, SIGKILL);
        await(pid, GRACE_MS, NULL, &status);
    }
}

// ---- starting ----------------------------------------------------------------------------------

// The host's open files are not for the program. Where that cannot be asked for, only those stay
// open that the host did not mark itself.
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 34)
static int close_others(posix_spawn_file_actions_t *files)
{
    return posix_spawn_file_actions_addclosefrom_np(files, 3);
}
#else
static int close_others(posix_spawn_file_actions_t *files)
{
    (void)files;
    return 0;
}
#endif

// in: what it reads, a descriptor of ours; -1: nothing. folder NULL: what it writes is lost.
static int set_files(posix_spawn_file_actions_t *files, const char *folder, int in)
{
    char out[TNI_FOLDER + 8], err[TNI_FOLDER + 8];
    int  flags = O_WRONLY | O_CREAT | O_TRUNC, r;
    snprintf(out, sizeof out, "%s%s", folder ? folder : "/dev/null", folder ? "/out" : "");
    snprintf(err, sizeof err, "%s%s", folder ? folder : "/dev/null", folder ? "/err" : "");
    r = in < 0 ? posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0)
               : posix_spawn_file_actions_adddup2(files, in, 0);
    if (r != 0 || (r = posix_spawn_file_actions_addopen(files, 1, out, flags, 0600)) != 0 ||
        (r = posix_spawn_file_actions_addopen(files, 2, err, flags, 0600)) != 0)
        return r;
    return close_others(files);
}

// Signals are as in a fresh process, and the group is its own.
static int set_attributes(posix_spawnattr_t *attr)
{
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    int r = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                               POSIX_SPAWN_SETPGROUP);
    if (!r) r = posix_spawnattr_setsigdefault(attr, &all);
    if (!r) r = posix_spawnattr_setsigmask(attr, &none);
    return r ? r : posix_spawnattr_setpgroup(attr, 0);
}

static int spawn(char *const argv[], const char *folder, int in, char **environment, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t          attr;
    int                        e = posix_spawn_file_actions_init(&files);
    if (e) return e;
    if ((e = posix_spawnattr_init(&attr)) == 0) {
        if (!(e = set_files(&files, folder, in)) && !(e = set_attributes(&attr)))
            e = posix_spawn(pid, argv[0], &files, &attr, argv, environment);
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&files);
    return e;
}

// The folder becomes TMPDIR, so that what the program leaves is removed with it. The runner's own
// list is not touched: a process that is forked meanwhile goes on with it.
static int start(const tni_runner *r, char *const argv[], const char *folder, pid_t *pid)
{
    char   temp[TNI_FOLDER + 8];
    size_t n = 0;
    while (r->environment[n]) n++;
    char **copy = malloc((n + 1) * sizeof *copy);
    if (!copy) return ENOMEM;
    memcpy(copy, r->environment, (n + 1) * sizeof *copy);
    snprintf(temp, sizeof temp, "TMPDIR=%s", folder);
    copy[0] = temp;
    int e   = spawn(argv, folder, -1, copy, pid);
    free(copy);
    return e;
}

// ---- watching ----------------------------------------------------------------------------------

// A shell that waits for the end of what it reads: that comes when this process closes the other end of
// the pipe, which it also does when it is killed. Then the program's group is ended, and the folder
// removed. $1: the group, $2: the folder.
#define WATCH \
    "read -r x; kill -s TERM -- -\"$1\"; sleep 1; kill -s KILL -- -\"$1\"; rm -rf -- \"$2\""

typedef struct {
    pid_t pid;  // 0: there is none
    int   end;  // of the pipe
} watcher;

// Where there is no shell the program runs without a watcher.
static watcher start_watcher(const tni_runner *r, pid_t program, const char *folder)
{
    watcher w = { 0 };
    int     ends[2];
    char    group[24], place[TNI_FOLDER];
    snprintf(group, sizeof group, "%ld", (long)program);
    snprintf(place, sizeof place, "%s", folder);
    char *argv[] = { "/bin/sh", "-c", WATCH, "tenon", group, place, NULL };
    if (pipe(ends) != 0) return w;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    if (spawn(argv, NULL, ends[0], r->environment, &w.pid) != 0) w.pid = 0;
    close(ends[0]);
    w.end = ends[1];
    if (!w.pid) close(ends[1]);
    return w;
}

// The program has ended. The watcher goes before the pipe does, so that it does nothing.
static void end_watcher(watcher w)
{
    int status;
    if (!w.pid) return;
    kill(-w.pid, SIGKILL);
    await(w.pid, GRACE_MS, NULL, &status);
    close(w.end);
}

bool tni_command_run(tni_runner *r, char *const argv[], const char *folder, tni_text *why)
{
    pid_t pid;
    int   status, e = start(r, argv, folder, &pid);
    if (e) {
        *why = tni_text_of("%s does not start: %s", tni_quoted(argv[0]).s, strerror(e));
        return false;
    }
    watcher w = start_watcher(r, pid, folder);
    outcome o = await(pid, r->limit_ms, &r->stop, &status);
    if (o == RUNS) end_group(pid);
    end_watcher(w);
    if (o == ENDED_WELL) return true;
    if (o == RUNS) {
        if (!atomic_load(&r->stop)) atomic_store(&r->late, true);
        *why = atomic_load(&r->stop)
                   ? tni_text_of("the program ends")
                   : tni_text_of("%s took more than %d ms", tni_quoted(argv[0]).s, r->limit_ms);
    } else if (WIFSIGNALED(status)) {
        *why = tni_text_of("%s was ended by signal %d", tni_quoted(argv[0]).s, WTERMSIG(status));
    } else {
        *why = tni_text_of("%s failed with status %d", tni_quoted(argv[0]).s, WEXITSTATUS(status));
    }
    return false;
}
