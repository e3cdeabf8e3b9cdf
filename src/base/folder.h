// Making folders.
#ifndef TNI_BASE_FOLDER_H
#define TNI_BASE_FOLDER_H

#include <stdio.h>
#include <sys/stat.h>

enum { TNI_FOLDER_PATH = 4096 };

// Makes a folder and its missing parents with these rights. Errors show when it is opened, or a
// file in it.
static inline void tni_make_folder(const char *path, mode_t mode)
{
    char part[TNI_FOLDER_PATH];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + (*part != 0); *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(part, mode);
        *p = '/';
    }
    mkdir(part, mode);
}

#endif
