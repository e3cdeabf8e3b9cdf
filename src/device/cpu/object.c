// Loads compiled code from memory: through a file without a name if the system has such files
// (memfd), else through one in a folder of our own that is removed at once. Either way no other
// process can exchange the bytes between their check and their loading.
#include "device/cpu/object.h"

#include "base/fd.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__linux__)
// From Linux 6.3 on this flag says that the file may hold code. Earlier kernels refuse it and need
// none.
#ifndef MFD_EXEC
#define MFD_EXEC 0x10U
#endif

// Writes a path of the descriptor that the loader has not seen before: it takes a known path for
// the same library, and descriptor numbers are reused. So a running number is part of the path,
// with a slash for each bit and a dot where the bit is 1: "/proc/self/fd//./3".
static void write_path(char *path, size_t size, int fd)
{
    static atomic_uint loads;
    unsigned           n  = atomic_fetch_add(&loads, 1);
    size_t             at = (size_t)snprintf(path, size, "/proc/self/fd");
    for (; n; n >>= 1) at += (size_t)snprintf(path + at, size - at, n & 1 ? "/." : "/");
    snprintf(path + at, size - at, "/%d", fd);
}

static void *load_nameless(const void *data, size_t bytes)
{
    char  path[128];
    void *object = NULL;
    int   fd     = memfd_create("tenon-kernels", MFD_CLOEXEC | MFD_EXEC);
    if (fd < 0 && errno == EINVAL) fd = memfd_create("tenon-kernels", MFD_CLOEXEC);
    if (fd < 0) return NULL;
    write_path(path, sizeof path, fd);
    if (tni_fd_write(fd, data, bytes)) object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(fd);
    return object;
}
#else
static void *load_nameless(const void *data, size_t bytes)
{
    (void)data;
    (void)bytes;
    return NULL;
}
#endif

// The fallback: a file in a fresh folder with mode 0700, removed as soon as it is loaded.
static void *load_named(const tni_runner *r, const void *data, size_t bytes, tni_text *why)
{
    char folder[TNI_FOLDER], path[TNI_FOLDER + 16];
    if (!tni_folder_make(r, folder, why)) return NULL;
    void *object = NULL;
    snprintf(path, sizeof path, "%s/kernels.so", folder);
    if (!tni_folder_write(folder, "kernels.so", data, bytes)) {
        *why = tni_text_of("%s cannot be written: %s", tni_quoted(path).s, strerror(errno));
    } else {
        object           = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        const char *says = object ? NULL : dlerror();
        if (!object) *why = tni_text_of("%s", says ? says : "it cannot be loaded");
    }
    tni_folder_remove(folder);
    return object;
}

// Returns whether the bytes are a whole shared object: the section table, which ends the file, is
// there. Loading one that was cut short (by a full disk) can crash.
static bool is_complete_object(const void *data, size_t bytes)
{
    Elf64_Ehdr h;
    if (bytes < sizeof h) return false;
    memcpy(&h, data, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) return false;
    return sizeof(void *) != 8 ||
           (h.e_shoff <= bytes && (uint64_t)h.e_shnum * h.e_shentsize <= bytes - h.e_shoff);
}

void *tni_object_load(const tni_runner *r, const void *data, size_t bytes, tni_text *why)
{
    if (!is_complete_object(data, bytes)) {
        *why = tni_text_of("it is not a complete shared object");
        return NULL;
    }
    void *object = load_nameless(data, bytes);
    return object ? object : load_named(r, data, bytes, why);
}

// ISO C knows no cast from an object pointer to a function pointer; POSIX promises that the copy
// of the bits works.
bool tni_object_symbol(void *object, const char *name, void *function)
{
    void *found = dlsym(object, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

void tni_object_close(void *object)
{
    if (object) dlclose(object);
}
