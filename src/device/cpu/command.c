// Runs another program. Its end is found by polling rather than by signals: in a host that ignores
// SIGCHLD or waits for all children itself, only the exit status is lost.
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

// A folder older than this many seconds has no process any more: commands run for a minute at most.
enum { HOUR = 3600 };

// Polls start short, so that a quick program is not waited for, and grow, so that a slow one is not
// disturbed. GRACE_MS: for a compiler to remove its files. MOST_BYTES: an output beyond that is no
// object.
enum { POLL_FIRST_US = 500, POLL_LAST_US = 8000, GRACE_MS = 300, MOST_BYTES = 256 << 20 };

// ---- the environment ---------------------------------------------------------------------------

static bool starts_with(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

// Returns whether a variable is left out of the compiler's environment: preloaded libraries are
// meant for this process, the next two would make gcc write files, and TMPDIR and LC_ALL are set
// anew.
static bool is_excluded(const char *entry)
{
    return starts_with(entry, "TMPDIR=") || starts_with(entry, "LC_ALL=") ||
           starts_with(entry, "LD_PRELOAD=") || starts_with(entry, "DEPENDENCIES_OUTPUT=") ||
           starts_with(entry, "SUNPRO_DEPENDENCIES=");
}

// The first entry is TMPDIR, which start_in_folder replaces; the second fixes the language of
// messages, which are searched for "error:".
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
        if (is_excluded(environ[i])) continue;
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

// mkdtemp makes a new folder with mode 0700, so that no other user can place or replace files in
// it.
static bool make_folder_in(const char *parent, char folder[TNI_FOLDER])
{
    int n = snprintf(folder, TNI_FOLDER, "%s/" PREFIX "XXXXXX", parent);
    return n < TNI_FOLDER - 16 && mkdtemp(folder) != NULL;
}

bool tni_folder_make(const tni_runner *r, char folder[TNI_FOLDER], tni_text *why)
{
    if (make_folder_in(r->environment[0] + strlen("TMPDIR="), folder)) return true;
    if (make_folder_in("/tmp", folder)) return true;
    *why = tni_text_of("no folder for temporary files: %s", strerror(errno));
    return false;
}

// Opens the folder without following links and removes files relative to it: a name that was
// replaced by a link does not lead elsewhere.
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

// Returns whether a name in the folder of temporary files is one of our folders whose process did
// not remove it: by name, owner, kind and age.
static bool is_abandoned(int parent, const char *name)
{
    struct stat st;
    if (!starts_with(name, PREFIX) || strlen(name) != strlen(PREFIX "XXXXXX")) return false;
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
        if (!is_abandoned(dirfd(dir), e->d_name)) continue;
        snprintf(path, sizeof path, "%s/%.20s", parent, e->d_name);
        tni_folder_remove(path);
    }
    closedir(dir);
}

// Opens a file of the folder, never through a link, and not inherited by other programs.
static int open_in(const char *folder, const char *name, int flags)
{
    char path[TNI_FOLDER + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

// The size is taken from the open file, so that the bytes read are those of one file.
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

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// Looks whether a child has ended. A child that no longer exists has ended, and its status was
// collected elsewhere: that counts as success, and the missing output is noticed later.
static outcome poll_child(pid_t pid, int *status)
{
    *status = 0;
    pid_t got;
    do got = waitpid(pid, status, WNOHANG);
    while (got < 0 && errno == EINTR);
    if (got == 0) return RUNS;
    return got < 0 || (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) ? ENDED_WELL : ENDED_BADLY;
}

// Waits for a child until it ends, the time is up or stop is set.
static outcome wait_child(pid_t pid, int64_t limit_ms, const atomic_bool *stop, int *status)
{
    int64_t end = now_ms() + limit_ms;
    for (long us = POLL_FIRST_US;; us = us * 3 / 2 < POLL_LAST_US ? us * 3 / 2 : POLL_LAST_US) {
        outcome o = poll_child(pid, status);
        if (o != RUNS || now_ms() >= end || (stop && atomic_load(stop))) return o;
        nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
    }
}

// Ends the program and those it started, which are a process group of their own: politely, so that
// a compiler removes its files, then by force. It was running just now, so its number has not been
// reused.
static void end_group(pid_t pid)
{
    int status;
    kill(-pid, SIGTERM);
    if (wait_child(pid, GRACE_MS, NULL, &status) == RUNS) {
        kill(-pid, SIGKILL);
        wait_child(pid, GRACE_MS, NULL, &status);
    }
}

// ---- starting ----------------------------------------------------------------------------------

// Closes the host's open files in the program. If the C library cannot do that, only those stay
// open that the host did not mark close-on-exec.
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

// Redirects standard files. in: a descriptor to read from; -1: nothing. folder NULL: output is
// discarded.
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

// Gives the program default signal handlers, no blocked signals, and a process group of its own.
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

// posix_spawn, not fork: a process with much memory and many threads starts the program as fast as
// a small one, and no fork handler of the host runs.
static int spawn_program(char *const argv[], const char *folder, int in, char **environment,
                         pid_t *pid)
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

// The temporary folder becomes TMPDIR, so that whatever the program leaves is removed with it. The
// runner's own list is not changed: a forked process may be using it.
static int start_in_folder(const tni_runner *r, char *const argv[], const char *folder, pid_t *pid)
{
    char   temp[TNI_FOLDER + 8];
    size_t n = 0;
    while (r->environment[n]) n++;
    char **copy = malloc((n + 1) * sizeof *copy);
    if (!copy) return ENOMEM;
    memcpy(copy, r->environment, (n + 1) * sizeof *copy);
    snprintf(temp, sizeof temp, "TMPDIR=%s", folder);
    copy[0] = temp;
    int e   = spawn_program(argv, folder, -1, copy, pid);
    free(copy);
    return e;
}

// ---- watching ----------------------------------------------------------------------------------

// A shell that waits for the end of its input, a pipe whose other end only this process holds: it
// ends when this process is killed, even by SIGKILL. Then the program's group is ended and the
// folder removed. $1: the group, $2: the folder.
#define WATCH \
    "read -r x; kill -s TERM -- -\"$1\"; sleep 1; kill -s KILL -- -\"$1\"; rm -rf -- \"$2\""

// The watching shell, and our end of its pipe.
typedef struct {
    pid_t pid;  // 0: there is none
    int   end;  // of the pipe
} watcher;

// Starts the watcher. Without a shell the program runs unwatched.
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
    if (spawn_program(argv, NULL, ends[0], r->environment, &w.pid) != 0) w.pid = 0;
    close(ends[0]);
    w.end = ends[1];
    if (!w.pid) close(ends[1]);
    return w;
}

// The program has ended: kills the watcher before its pipe is closed, so that it does nothing.
static void end_watcher(watcher w)
{
    int status;
    if (!w.pid) return;
    kill(-w.pid, SIGKILL);
    wait_child(w.pid, GRACE_MS, NULL, &status);
    close(w.end);
}

// Runs the program under a watcher. On the way out the watcher is always ended; a program that ran
// too long sets r->late.
bool tni_command_run(tni_runner *r, char *const argv[], const char *folder, tni_text *why)
{
    pid_t pid;
    int   status, e = start_in_folder(r, argv, folder, &pid);
    if (e) {
        *why = tni_text_of("%s does not start: %s", tni_quoted(argv[0]).s, strerror(e));
        return false;
    }
    watcher w = start_watcher(r, pid, folder);
    outcome o = wait_child(pid, r->limit_ms, &r->stop, &status);
    if (o == RUNS) end_group(pid);
    end_watcher(w);
    if (o == ENDED_WELL) return true;
    if (o == RUNS) {
        if (!atomic_load(&r->stop)) atomic_store(&r->late, true);
        *why = atomic_load(&r->stop)
                   ? tni_text_of("the program is ending")
                   : tni_text_of("%s took more than %d ms", tni_quoted(argv[0]).s, r->limit_ms);
    } else if (WIFSIGNALED(status)) {
        *why = tni_text_of("%s was ended by signal %d", tni_quoted(argv[0]).s, WTERMSIG(status));
    } else {
        *why = tni_text_of("%s failed with status %d", tni_quoted(argv[0]).s, WEXITSTATUS(status));
    }
    return false;
}
