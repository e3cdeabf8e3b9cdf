// Finds NVIDIA's libraries wherever they were installed from. The order is that of NVIDIA's own
// tools, so that Tenon uses the same files as another library in the process.
#include "base/find_libraries.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

// ---- opening -----------------------------------------------------------------------------------

// Local, so that no symbol of the library replaces one of the program's.
static void *dlopen_local(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

// Writes the file's path, which the loader knows however the library was found; passes the library
// on.
static void *report_path(void *library, tni_text *where)
{
    struct link_map *map = NULL;
    if (library && where && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name)
        tni_text_add(where, "%s", map->l_name);
    return library;
}

// NVRTC loads its built-in functions by file name. Loaded by path before NVRTC, they are found
// whatever folders the loader searches.
static void load_builtins(const char *folder)
{
    char   pattern[PATH_ROOM];
    glob_t g = { 0 };
    snprintf(pattern, sizeof pattern, "%s/libnvrtc-builtins.so*", folder);
    if (glob(pattern, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++) dlopen_local(g.gl_pathv[i]);
    globfree(&g);
}

// Opens the first of the names that is a readable file in a folder.
static void *open_in_folder(const char *folder, const char *const *names)
{
    char  path[PATH_ROOM];
    void *lib = NULL;
    for (; *names && !lib; names++) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, *names);
        if (n >= (int)sizeof path || access(path, R_OK) != 0) continue;
        if (!strncmp(*names, "libnvrtc.", 9)) load_builtins(folder);
        lib = dlopen_local(path);
    }
    return lib;
}

// Opens a library in the first folder of a pattern that has one of the names.
static void *open_glob(const char *pattern, const char *const *names)
{
    void  *lib = NULL;
    glob_t g   = { 0 };
    if (glob(pattern, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc && !lib; i++) lib = open_in_folder(g.gl_pathv[i], names);
    globfree(&g);
    return lib;
}

// Opens a library in the folders of a pattern below a folder from the environment, whose own
// characters are escaped: a * in $HOME is no pattern.
static void *open_below(const char *folder, size_t length, const char *rest,
                        const char *const *names)
{
    char   pattern[PATH_ROOM];
    size_t at = 0;
    if (length == 0) return NULL;
    for (size_t i = 0; i < length && at + 2 < sizeof pattern; i++) {
        if (strchr("*?[\\", folder[i])) pattern[at++] = '\\';
        pattern[at++] = folder[i];
    }
    int n = snprintf(pattern + at, sizeof pattern - at, "%s", rest);
    return n < (int)(sizeof pattern - at) ? open_glob(pattern, names) : NULL;
}

static void *open_under(const char *folder, const char *rest, const char *const *names)
{
    return folder ? open_below(folder, strlen(folder), rest, names) : NULL;
}

// ---- places ------------------------------------------------------------------------------------

// Returns a library that the process has loaded already, without loading anything: PyTorch's, say.
static void *open_loaded(const char *const *names)
{
    void *lib = NULL;
    for (; *names && !lib; names++) lib = dlopen(*names, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    return lib;
}

// Opens a library in the folders that the loader searches.
static void *open_by_name(const char *const *names)
{
    void *lib = NULL;
    for (; *names && !lib; names++) lib = dlopen_local(*names);
    return lib;
}

// Wheels of CUDA 13 are installed in nvidia/cu13/lib, those of CUDA 12 and cuDNN in
// nvidia/COMPONENT/lib.
#define WHEELS "/nvidia/*/lib"
#define SITE   "/lib/python3*/site-packages" WHEELS

// Looks in each folder of a list with colons.
static void *open_pythonpath(const char *list, const char *const *names)
{
    void *lib = NULL;
    while (list && *list && !lib) {
        size_t n = strcspn(list, ":");
        lib      = open_below(list, n, WHEELS, names);
        list += n + (list[n] == ':');
    }
    return lib;
}

// Looks where pip installs wheels: beside Tenon itself, in the active environment, then for the
// user, then for the machine.
static void *open_wheel(const tni_search_paths *p, const char *const *names)
{
    static const char *const shared[] = { "/usr/local/lib/python3*/dist-packages" WHEELS,
                                          "/usr/local/lib/python3*/site-packages" WHEELS,
                                          "/usr/lib/python3*/dist-packages" WHEELS,
                                          "/usr/lib/python3*/site-packages" WHEELS };

    void *lib = open_under(p->own, WHEELS, names);
    if (!lib) lib = open_under(p->venv, SITE, names);
    if (!lib) lib = open_under(p->conda, SITE, names);
    if (!lib) lib = open_pythonpath(p->pythonpath, names);
    if (!lib) lib = open_under(p->home, "/.local" SITE, names);
    for (size_t i = 0; i < sizeof shared / sizeof *shared && !lib; i++)
        lib = open_glob(shared[i], names);
    return lib;
}

// Looks in a toolkit, or any prefix with the same folders.
static void *open_toolkit(const char *prefix, const char *const *names)
{
    void *lib = open_under(prefix, "/lib64", names);
    if (!lib) lib = open_under(prefix, "/lib", names);
    if (!lib) lib = open_under(prefix, "/targets/*/lib", names);
    return lib;
}

// The order: what the process has, wheels, conda, the loader, then toolkits.
void *tni_nvidia_open_in(const tni_search_paths *p, const char *const *names, tni_text *where)
{
    void *lib = open_loaded(names);
    if (!lib) lib = open_wheel(p, names);
    if (!lib) lib = open_toolkit(p->conda, names);
    if (!lib) lib = open_by_name(names);
    if (!lib) lib = open_toolkit(p->cuda_path, names);
    if (!lib) lib = open_toolkit(p->cuda_home, names);
    if (!lib) lib = open_toolkit("/usr/local/cuda", names);
    return report_path(lib, where);
}

// ---- the environment ---------------------------------------------------------------------------

// Read once, kept until the process ends.
static struct {
    pthread_once_t   once;
    tni_search_paths places;
} environment = { .once = PTHREAD_ONCE_INIT };

// A copy, since the program may change its environment. NULL when memory is out, which is as if
// unset.
static const char *env_copy(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? strdup(value) : NULL;
}

// Returns the site-packages folder that this library was loaded from; NULL if it was not from one.
static const char *own_site(void)
{
    Dl_info info;
    if (!dladdr(&environment, &info) || !info.dli_fname) return NULL;
    const char *site = strstr(info.dli_fname, "/site-packages/");
    if (!site) site = strstr(info.dli_fname, "/dist-packages/");
    if (!site) return NULL;
    return strndup(info.dli_fname, (size_t)(site - info.dli_fname) + strlen("/site-packages"));
}

// Runs once; the strings are kept until the process ends.
static void read_environment(void)
{
    environment.places = (tni_search_paths){ .own        = own_site(),
                                             .venv       = env_copy("VIRTUAL_ENV"),
                                             .conda      = env_copy("CONDA_PREFIX"),
                                             .pythonpath = env_copy("PYTHONPATH"),
                                             .home       = env_copy("HOME"),
                                             .cuda_path  = env_copy("CUDA_PATH"),
                                             .cuda_home  = env_copy("CUDA_HOME") };
}

void *tni_nvidia_open(const char *const *names, tni_text *where)
{
    pthread_once(&environment.once, read_environment);
    return tni_nvidia_open_in(&environment.places, names, where);
}

// The paths are for systems whose loader does not search the driver's folder: WSL and NixOS.
void *tni_nvidia_open_driver(tni_text *where)
{
    static const char *const names[] = { "libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1",
                                         "/run/opengl-driver/lib/libcuda.so.1", NULL };

    void *lib = open_loaded(names);
    return report_path(lib ? lib : open_by_name(names), where);
}

// A wheel is tested with those that it is installed beside, so that they come before all others.
void *tni_nvidia_open_for(const char *path, const char *const *names)
{
    const char *slash  = strrchr(path, '/');
    size_t      folder = slash ? (size_t)(slash - path) : 0;
    void       *lib    = open_loaded(names);
    if (!lib) lib = open_below(path, folder, "", names);
    if (!lib) lib = open_below(path, folder, "/../../*/lib", names);
    return lib ? lib : tni_nvidia_open(names, NULL);
}

// ---- functions ---------------------------------------------------------------------------------

// POSIX promises that the bits of a dlsym result are those of a function pointer.
const char *tni_symbols_fill(void *lib, void *table, const tni_symbol *symbols, int n)
{
    const char *missing = NULL;
    for (int i = 0; i < n; i++) {
        void *function = dlsym(lib, symbols[i].name);
        memcpy((char *)table + symbols[i].at, &function, sizeof function);
        if (!function && !missing) missing = symbols[i].name;
    }
    return missing;
}

const char *const tni_turbojpeg_names[] = { "libturbojpeg.so.0", "libturbojpeg.so",
                                            "libturbojpeg.0.dylib", NULL };
const char *const tni_libpng_names[]    = { "libpng16.so.16", "libpng16.so", "libpng16.16.dylib",
                                            NULL };

// The library stays open.
bool tni_library_fill(const char *const *names, void *table, const tni_symbol *symbols, int n)
{
    for (; *names; names++) {
        void *lib = dlopen_local(*names);
        if (lib && !tni_symbols_fill(lib, table, symbols, n)) return true;
    }
    return false;
}
