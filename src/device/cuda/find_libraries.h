// Finds the NVIDIA libraries that a process may use, wherever they were installed from: loaded already,
// wheels of Python, conda, the loader's folders, a toolkit. No program is run for that.
#ifndef TNI_CUDA_FIND_LIBRARIES_H
#define TNI_CUDA_FIND_LIBRARIES_H

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
// itself, wheels, conda, the loader's folders, CUDA_PATH, CUDA_HOME, /usr/local/cuda. *where becomes
// the path of the file. The library is never unloaded. The environment is read by the first call.
void *tni_nvidia_open(const char *const *names, tni_text *where);

// Does the same with given places.
void *tni_nvidia_open_in(const tni_search_paths *p, const char *const *names, tni_text *where);

// Opens libcuda, which only the driver brings: no wheel and no toolkit has one that works.
void *tni_nvidia_open_driver(tni_text *where);

#endif
