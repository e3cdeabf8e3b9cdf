// paths.c: the files that a run writes. They are checked before the first step, so that an hour of
// training does not end with a file that cannot be written.
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = 4096 };

// ---- comparing paths

static void write_folder(const char *path, char *to)
{
    const char *slash = strrchr(path, '/');
    int         n     = slash ? (int)(slash - path) : 0;
    snprintf(to, ROOM, slash == path ? "/" : slash ? "%.*s" : ".", n, path);
}

static const char *name_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// Compares device and inode. For files that do not exist yet, compares their names and folders.
bool cli_same_file(const char *a, const char *b)
{
    struct stat s, t;
    char        folder[ROOM];
    bool        is_a = stat(a, &s) == 0, is_b = stat(b, &t) == 0;
    if (is_a != is_b) return false;
    if (!is_a) {  // neither exists yet
        if (strcmp(name_in(a), name_in(b))) return false;
        write_folder(a, folder);
        if (stat(folder, &s) != 0) return false;
        write_folder(b, folder);
        if (stat(folder, &t) != 0) return false;
    }
    return s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

// ---- whether it can be written

// Whether a file can be created in the folder of path. Files are written under a temporary name and
// then renamed, so the folder decides; for a symbolic link, the folder of its target.
static bool can_be_made(const char *option, const char *path)
{
    char real[PATH_MAX], temp[PATH_MAX + 64];
    snprintf(temp, sizeof temp, "%s.tenon-tmp-%ld", realpath(path, real) ? real : path,
             (long)getpid());
    cli_signals_remove(temp);  // whichever thread a signal finds
    int fd    = open(temp, O_WRONLY | O_CREAT | O_EXCL, 0600);
    int error = errno;
    if (fd >= 0) close(fd), unlink(temp);
    cli_signals_remove(NULL);
    return fd >= 0 || (cli_fail("%s %s: %s", option, path, strerror(error)), false);
}

static int64_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

static bool can_be_saved(const char *option, const char *path)
{
    struct stat st;
    bool        is = stat(path, &st) == 0;
    if (!*name_in(path))
        return cli_fail("%s \"%s\" is not the name of a file", option, path), false;
    if (is && S_ISDIR(st.st_mode)) return cli_fail("%s %s: it is a folder", option, path), false;
    if (is && !S_ISREG(st.st_mode))
        return cli_fail("%s %s: it is not a regular file", option, path), false;
    return can_be_made(option, path);
}

static bool differ(const char *one, const char *a, const char *other, const char *b)
{
    if (!a || !b || !*b || !cli_same_file(a, b)) return true;
    return cli_fail("%s %s and %s %s are the same file", one, a, other, b), false;
}

// Whether all settings are UTF-8, as texts in the metadata of a network file must be.
static bool settings_can_be_saved(const cli_settings *s)
{
    const char *name, *text;
    char        room[64];
    for (int i = 0; (name = cli_options_kept(i)) != NULL; i++) {
        text = cli_options_text(s, name, room, sizeof room);
        if (text && !cli_is_utf8(text))
            return cli_fail("--%s %s is not UTF-8, and would be saved with the network", name,
                            text),
                   false;
    }
    return true;
}

// Also checks that no file of the run is another one, which would be overwritten.
bool cli_files_check(const cli_settings *s)
{
    char state[ROOM], data[ROOM];
    if (s->save && !settings_can_be_saved(s)) return false;
    if (s->save && strlen(s->save) > ROOM - 64) return cli_fail("--save is too long"), false;
    snprintf(state, sizeof state, "%s.state", s->save ? s->save : "");
    cli_source_path(s->data, data, sizeof data);
    if (s->save && (!can_be_saved("--save", s->save) || !can_be_saved("--save", state)))
        return false;
    if (s->report && !can_be_saved("--report", s->report)) return false;
    if (s->report && size_of(s->report) > 0 && !cli_is_run_page(s->report))
        return cli_fail("--report %s exists and is no page of a run: give it another name",
                        s->report),
               false;
    if (!differ("--log", s->log, "--data", data) ||
        !differ("--report", s->report, "--data", data) ||
        !differ("--report", s->report, "--log", s->log) ||
        !differ("--report", s->report, "--save", s->save))
        return false;
    return !s->save || (differ("--save", s->save, "--data", data) &&
                        differ("--save", s->save, "--log", s->log) &&
                        differ("the state", state, "--data", data) &&
                        differ("the state", state, "--log", s->log));
}

// ---- atomic output

// Whether --out may be written. An empty file, as mktemp makes it, has no content to lose.
static bool may_be_replaced(const cli_settings *s)
{
    struct stat st;
    if (s->force || stat(s->out, &st) != 0 || st.st_size == 0) return true;
    return cli_fail("--out %s exists; --force overwrites it", s->out), false;
}

bool cli_out_open(cli_out *o, const cli_settings *s)
{
    char real[PATH_MAX];
    *o = (cli_out){ .f = s->out ? NULL : stdout };
    if (!s->out) return true;
    if (!can_be_saved("--out", s->out) || !differ("--out", s->out, "--load", s->load)) return false;
    for (int i = 0; i < s->inputs; i++)
        if (!differ("--out", s->out, "the input", s->input[i])) return false;
    if (!may_be_replaced(s)) return false;
    const char *path = realpath(s->out, real)
                           ? real
                           : s->out;  // writes the target of a link, not the link
    size_t      room = strlen(path) + 64;
    o->path          = strdup(path);
    o->temp          = malloc(room);
    if (!o->path || !o->temp) return cli_fail("out of memory"), cli_out_close(o, false), false;
    snprintf(o->temp, room, "%s.tenon-tmp-%ld", path, (long)getpid());
    cli_signals_remove(o->temp);
    o->f = fopen(o->temp, "wbx");
    if (o->f) return true;
    cli_fail("--out %s: %s", s->out, strerror(errno));
    return cli_out_close(o, false), false;
}

bool cli_out_close(cli_out *o, bool ok)
{
    if (o->f == stdout) return true;  // main checks it at the end
    bool written = o->f && fflush(o->f) == 0 && !ferror(o->f) && fsync(fileno(o->f)) == 0;
    if (o->f && fclose(o->f) != 0) written = false;
    if (ok && (!written || rename(o->temp, o->path) != 0)) {
        cli_fail("--out %s: %s", o->path, strerror(errno));
        ok = written = false;
    }
    if (!ok && o->f) unlink(o->temp);
    cli_signals_remove(NULL);
    free(o->path);
    free(o->temp);
    return written;
}
