// Finds the NVIDIA libraries that a process may use, wherever they were installed from: loaded
// already, wheels of Python, conda, the loader's folders, a toolkit. No program is run for that.
#ifndef TNI_BASE_FIND_LIBRARIES_H
#define TNI_BASE_FIND_LIBRARIES_H

#include "base/text.h"

// The places of the environment to search; NULL and "" are left out.
typedef struct {
    const char *own;         // the site-packages that hold Tenon itself
    const char *venv;        // VIRTUAL_ENV
    const char *conda;       // CONDA_PREFIX
    const char *pythonpath;  // PYTHONPATH, with colons
    const char *home;        // HOME
    const char *cuda_path;   // CUDA_PATH
    const char *cuda_home;   // CUDA_HOME
} tni_search_paths;

// Opens the first of several names (NULL ends them) in the first place that has any: the process
// itself, wheels, conda, the loader's folders, CUDA_PATH, CUDA_HOME, /usr/local/cuda. *where
// becomes the path of the file. The library is never unloaded. The environment is read by the first
// call.
void *tni_nvidia_open(const char *const *names, tni_text *where);

// Does the same with given places.
void *tni_nvidia_open_in(const tni_search_paths *p, const char *const *names, tni_text *where);

// Opens a library that another one, the file at `path`, opens by name later on, so that it finds it
// then: one that the process has, one in the same folder or in a wheel beside that file's, or any
// other.
void *tni_nvidia_open_for(const char *path, const char *const *names);

// Opens libcuda, which only the driver brings: no wheel and no toolkit has one that works.
void *tni_nvidia_open_driver(tni_text *where);

// A function of a library: where its pointer goes in a table of functions, and its symbol.
typedef struct {
    size_t      at;
    const char *name;
} tni_symbol;

// Fills n functions of a table from an open library. Returns the name of the first that the library
// does not have, whose pointer is NULL then; NULL if it has all.
const char *tni_symbols_fill(void *lib, void *table, const tni_symbol *symbols, int n);
// Names, ended by NULL, of the libraries that decode pictures.
extern const char *const tni_turbojpeg_names[], *const tni_libpng_names[];
// Fills them from the first library, of several names (NULL ends them), that the loader finds and
// that has all. Returns whether there is one.
bool tni_library_fill(const char *const *names, void *table, const tni_symbol *symbols, int n);

#endif
