// A folder for the files of a test.
#include "scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

bool scratch_open(void)
{
    strcpy(folder, "/tmp/tenon-test-XXXXXX");
    return mkdtemp(folder) != NULL;
}

const char *scratch_path(const char *name)
{
    static char path[8][320];
    static int  at;
    char       *p = path[at++ & 7];
    snprintf(p, sizeof *path, "%s/%s", folder, name);
    return p;
}

// Counts the files, and (remove) removes them.
static int walk(bool remove)
{
    DIR *d = opendir(folder);
    int  n = 0;
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        n++;
        if (remove && unlink(scratch_path(e->d_name)) != 0) rmdir(scratch_path(e->d_name));
    }
    closedir(d);
    return n;
}

int scratch_count(void)
{
    return walk(false);
}

void scratch_close(void)
{
    walk(true);
    rmdir(folder);
}

char *scratch_read(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long  n    = ftell(f);
    char *data = n >= 0 ? malloc((size_t)n + 1) : NULL;
    rewind(f);
    if (data && fread(data, 1, (size_t)n, f) != (size_t)n) {
        free(data);
        data = NULL;
    }
    fclose(f);
    if (data) *bytes = (size_t)n;
    return data;
}

bool scratch_write(const char *path, const void *data, size_t bytes)
{
    unlink(path);  // some file systems sync a file that is cut short and written anew
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    bool ok = fwrite(data, 1, bytes, f) == bytes;
    return fclose(f) == 0 && ok;
}

bool scratch_equal(const char *a, const char *b)
{
    size_t n = 0, m = 0;
    char  *x = scratch_read(a, &n), *y = scratch_read(b, &m);
    bool   equal = x && y && n == m && !memcmp(x, y, n);
    free(x);
    free(y);
    return equal;
}
