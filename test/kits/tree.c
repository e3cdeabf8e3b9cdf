// tree.c: walking, reading and running things in the source tree.
#include "tree.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { PATH_ROOM = 4096 };

static void append(tree_list *l, const char *path)
{
    if (l->count == l->room) {
        int    room = l->room ? 2 * l->room : 64;
        char **more = realloc(l->path, (size_t)room * sizeof *more);
        if (!more) return;
        l->path = more;
        l->room = room;
    }
    char *copy = strdup(path);
    if (copy) l->path[l->count++] = copy;
}

static bool has_ending(const char *name, const char *endings)
{
    const char *dot = strrchr(name, '.');
    if (!endings) return true;
    if (!dot) return false;
    size_t n = strlen(dot);
    for (const char *e = endings; (e = strstr(e, dot)) != NULL; e++)
        if (e[n] == ' ' || e[n] == 0) return true;
    return false;
}

static bool is_left_out(const char *name)
{
    if (name[0] == '.') return strcmp(name, ".ci") != 0;
    return strncmp(name, "build", 5) == 0;
}

void tree_add(tree_list *l, const char *folder, const char *endings)
{
    char full[PATH_ROOM], path[PATH_ROOM];
    snprintf(full, sizeof full, "%s/%s", TN_SOURCE_DIR, folder);
    DIR *d = opendir(full);
    if (!d) return;

    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat st;
        int n = snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", e->d_name);
        int m = snprintf(full, sizeof full, "%s/%s", TN_SOURCE_DIR, path);
        if (n >= PATH_ROOM || m >= PATH_ROOM || lstat(full, &st) != 0) continue;
        if (S_ISDIR(st.st_mode) && !is_left_out(e->d_name)) tree_add(l, path, endings);
        if (S_ISREG(st.st_mode) && has_ending(e->d_name, endings)) append(l, path);
    }
    closedir(d);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void tree_sort(tree_list *l)
{
    if (l->count) qsort(l->path, (size_t)l->count, sizeof *l->path, compare);
}

void tree_free(tree_list *l)
{
    for (int i = 0; i < l->count; i++) free(l->path[i]);
    free(l->path);
    *l = (tree_list){ 0 };
}

char *tree_read(const char *path, size_t *size)
{
    char full[PATH_ROOM];
    snprintf(full, sizeof full, "%s%s%s", *path == '/' ? "" : TN_SOURCE_DIR,
             *path == '/' ? "" : "/", path);
    struct stat st;
    FILE       *f = fopen(full, "rb");
    if (!f) return NULL;

    char  *text = fstat(fileno(f), &st) == 0 ? malloc((size_t)st.st_size + 1) : NULL;
    size_t n    = text ? fread(text, 1, (size_t)st.st_size, f) : 0;
    if (text) text[n] = 0;
    if (size) *size = n;
    fclose(f);
    return text;
}

bool tree_exists(const char *path)
{
    char        full[PATH_ROOM];
    struct stat st;
    snprintf(full, sizeof full, "%s/%s", TN_SOURCE_DIR, path);
    return stat(full, &st) == 0;
}

int tree_run(const char *command, char *out, size_t size)
{
    size_t n     = strlen(command) + sizeof TN_SOURCE_DIR + 64;
    char  *whole = malloc(n);
    if (!whole) return -1;
    snprintf(whole, n, "exec 2>&1; cd '%s' || exit 1\n%s", TN_SOURCE_DIR, command);
    fflush(NULL);
    FILE *p = popen(whole, "r");
    free(whole);
    if (!p) return -1;

    size_t kept = 0;
    char   block[4096];
    for (size_t got; (got = fread(block, 1, sizeof block, p)) > 0;) {
        size_t take = got < size - 1 - kept ? got : size - 1 - kept;
        memcpy(out + kept, block, take);
        kept += take;
    }
    out[kept]  = 0;
    int status = pclose(p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

bool tree_has(const char *program)
{
    char command[256], out[256];
    snprintf(command, sizeof command, "command -v %s", program);
    return tree_run(command, out, sizeof out) == 0;
}
