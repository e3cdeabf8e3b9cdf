// paths.c: the files that a run writes. They are tried before the first step, so that an hour of
// training does not end with a name that cannot be written.
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = 4096 };

// ---- which file a path is

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

bool cli_same_file(const char *a, const char *b)
{
    struct stat s, t;
    char        folder[ROOM];
    bool        is_a = stat(a, &s) == 0, is_b = stat(b, &t) == 0;
    if (is_a != is_b) return false;
    if (!is_a) {  // neither is there yet: the same name in the same folder
        if (strcmp(name_in(a), name_in(b))) return false;
        write_folder(a, folder);
        if (stat(folder, &s) != 0) return false;
        write_folder(b, folder);
        if (stat(folder, &t) != 0) return false;
    }
    return s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

// ---- whether it can be written

// A file is written beside its name and then gets it, so it is the folder that matters. Where the name
// is a link, that is the folder of what it leads to.
static bool can_be_made(const char *path)
{
    char real[PATH_MAX], temp[PATH_MAX + 64];
    snprintf(temp, sizeof temp, "%s.tenon-tmp-XXXXXX", realpath(path, real) ? real : path);
    int fd = mkstemp(temp);
    if (fd < 0) return cli_fail("--save %s: %s", path, strerror(errno)), false;
    close(fd);
    unlink(temp);
    return true;
}

static bool can_be_saved(const char *path)
{
    struct stat st;
    bool        is = stat(path, &st) == 0;
    if (!*name_in(path)) return cli_fail("--save \"%s\" is not the name of a file", path), false;
    if (is && S_ISDIR(st.st_mode)) return cli_fail("--save %s: it is a folder", path), false;
    if (is && !S_ISREG(st.st_mode))
        return cli_fail("--save %s: it is not a regular file", path), false;
    return can_be_made(path);
}

static bool differ(const char *one, const char *a, const char *other, const char *b)
{
    if (!a || !b || !*b || !cli_same_file(a, b)) return true;
    return cli_fail("%s %s and %s %s are the same file", one, a, other, b), false;
}

// Settings are saved with the network, in a file whose texts are UTF-8.
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

bool cli_files_check(const cli_settings *s)
{
    char state[ROOM], data[ROOM];
    if (s->save && !settings_can_be_saved(s)) return false;
    if (s->save && strlen(s->save) > ROOM - 64) return cli_fail("--save is too long"), false;
    snprintf(state, sizeof state, "%s.state", s->save ? s->save : "");
    cli_source_path(s->data, data, sizeof data);
    if (s->save && (!can_be_saved(s->save) || !can_be_saved(state))) return false;
    if (!differ("--log", s->log, "--data", data)) return false;
    return !s->save || (differ("--save", s->save, "--data", data) &&
                        differ("--save", s->save, "--log", s->log) &&
                        differ("the state", state, "--data", data) &&
                        differ("the state", state, "--log", s->log));
}
