// The contents of data files, and finding the files.
#include "data/content.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

bool tni_content_open(tn_ctx *cx, const char *op, const char *path, tni_content *c)
{
    tni_mapping *m = tni_mapping_open(cx, op, path);
    if (!m) return false;
    *c = (tni_content){ .data = m->data, .bytes = m->bytes, .map = m };
    if (m->bytes < 2 || m->data[0] != 0x1f || m->data[1] != 0x8b) return true;
    c->data = c->expanded = tni_gunzip(cx, op, path, NULL, m, &c->bytes);
    c->map                = NULL;
    tni_mapping_unref(m);
    return c->data != NULL;
}

void tni_content_close(tni_heap *h, tni_content *c)
{
    tni_mapping_unref(c->map);
    tni_free(h, c->expanded);
}

bool tni_folder_ok(tn_ctx *cx, const char *op, const char *dir)
{
    struct stat s;
    if (!dir) return tni_refuse(cx, TN_EARG, "%s: the folder is NULL", op);
    if (stat(dir, &s) != 0)
        return tni_refuse(cx, TN_EIO, "%s: %s: there is no such folder", op, dir);
    return S_ISDIR(s.st_mode) || tni_refuse(cx, TN_EIO, "%s: %s: it is not a folder", op, dir);
}

bool tni_find_file(char path[TNI_PATH], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(path, TNI_PATH, fmt, args);
    va_end(args);
    return n >= 0 && n < TNI_PATH && access(path, F_OK) == 0;
}
