// The way from a kernel to the compiled object that has it, on disk and in this process.
//
// What is loaded runs with the program's rights, so it must be what this user's compiler wrote:
// disk.c uses no folder that another user owns or can write to, and verifies a second hash of the
// key and a checksum of the content; object.c loads the very bytes that were verified. A compiler,
// chip or library that changed has another identity, and finds nothing.
#include "device/cpu/kernel_cache.h"

#include "device/cpu/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECT "so"

// The content of a kernel's small file: which object, and the kernel's number in it.
typedef struct {
    tni_disk_hash text;
    uint64_t      number;
} kernel_location;

// An object that was loaded. The kernels of a plan are mostly in one, so that a list is enough.
typedef struct loaded_object loaded_object;
struct loaded_object {
    loaded_object *next;
    tni_disk_hash  text;
    void          *object;  // NULL: it cannot be loaded
};

static loaded_object *loaded_objects;

void tni_cpu_function_name(char name[TNI_KERNEL_NAME], int i)
{
    snprintf(name, TNI_KERNEL_NAME, "tenon_kernel_%d", i);
}

bool tni_cpu_functions_find(void *object, int i, bool tails, tni_cpu_functions *m)
{
    char name[TNI_KERNEL_NAME], finish[TNI_KERNEL_NAME + 8];
    tni_cpu_function_name(name, i);
    snprintf(finish, sizeof finish, "%s_finish", name);
    *m = (tni_cpu_functions){ .run = NULL };
    return tni_object_symbol(object, name, &m->run) &&
           (!tails || tni_object_symbol(object, finish, &m->finish));
}

// Returns a kernel's key as hexadecimal text, to be freed: the keys of the disk cache are texts.
static char *hex_of(const char *key, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    char             *text     = malloc(2 * bytes + 1);
    if (!text) return NULL;
    for (size_t i = 0; i < bytes; i++) {
        text[2 * i]     = digits[(unsigned char)key[i] >> 4];
        text[2 * i + 1] = digits[(unsigned char)key[i] & 15];
    }
    text[2 * bytes] = 0;
    return text;
}

// TN_KERNEL_SOURCES is a hash of the sources that give instructions their meaning (CMakeLists.txt).
#ifndef TN_KERNEL_SOURCES
#define TN_KERNEL_SOURCES __DATE__ __TIME__
#endif
// The key of a kernel's small file. It names everything that the object depends on without asking
// the compiler: the kernel, the sources that give its instructions their meaning, and the identity
// of compiler, chip and library.
static tni_disk_key disk_key_of(const tni_cc *c, const char *text)
{
    return (tni_disk_key){ .kind     = "at",
                           .source   = text,
                           .options  = TN_KERNEL_SOURCES,
                           .compiler = c->identity,
                           .chip     = "" };
}

// Returns the object of a text, loaded once per process. An object that cannot be found or loaded
// is remembered as NULL, so that it is not tried for each of its kernels.
static void *load_cached_object(const tni_disk *d, const tni_cc *c, tni_disk_hash text)
{
    for (loaded_object *l = loaded_objects; l; l = l->next)
        if (!memcmp(&l->text, &text, sizeof text)) return l->object;
    size_t         bytes = 0;
    tni_text       why;
    loaded_object *l = malloc(sizeof *l);
    if (!l) return NULL;
    void *data = tni_disk_find_hash(d, text, OBJECT, &bytes);
    *l         = (loaded_object){ .next = loaded_objects, .text = text };
    if (data) l->object = tni_object_load(&c->runner, data, bytes, &why);
    free(data);
    loaded_objects = l;
    return l->object;
}

// A file of another size, an object that is gone or a missing symbol all mean not found: the kernel
// is compiled again. disk.c checks hash and checksum of both files before it returns them.
bool tni_kernel_cache_find(const tni_disk *d, const tni_cc *c, const char *key, size_t bytes,
                           bool tails, tni_cpu_functions *m)
{
    *m = (tni_cpu_functions){ .run = NULL };
    if (!c->identity[0] || !d->path[0]) return false;
    char *text = hex_of(key, bytes);
    if (!text) return false;
    size_t           n     = 0;
    tni_disk_key     k     = disk_key_of(c, text);
    kernel_location *at    = tni_disk_find(d, &k, &n);
    void            *code  = at && n == sizeof *at ? load_cached_object(d, c, at->text) : NULL;
    bool             found = code && tni_cpu_functions_find(code, (int)at->number, tails, m);
    if (!found) m->run = NULL;
    m->found = found;
    free(at);
    free(text);
    return found;
}

void tni_kernel_cache_keep(tni_disk *d, const tni_cc *c, const char *key, size_t bytes,
                           tni_disk_hash text, int i)
{
    char *own = c->identity[0] ? hex_of(key, bytes) : NULL;
    if (!own) return;
    tni_disk_key    k = disk_key_of(c, own);
    kernel_location p = { .text = text, .number = (uint64_t)i };
    tni_disk_keep(d, &k, &p, sizeof p);
    free(own);
}
