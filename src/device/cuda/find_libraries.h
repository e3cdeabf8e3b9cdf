// Finds the libraries of NVIDIA that a process may use, wherever they were installed from: loaded
// already, wheels of Python, conda, the loader's own folders, a toolkit. Nothing is run for that.
#ifndef TNI_CUDA_FIND_LIBRARIES_H
#define TNI_CUDA_FIND_LIBRARIES_H

#include "base/text.h"

// Where to look, as the environment has it; NULL and "" are nowhere.
typedef struct {
    const char *own;         // the site-packages that hold Tenon itself
    const char *venv;        // VIRTUAL_ENV
    const char *conda;       // CONDA_PREFIX
    const char *pythonpath;  // PYTHONPATH, with colons
    const char *home;        // HOME
    const char *cuda_path;   // CUDA_PATH
    const char *cuda_home;   // CUDA_HOME
} tni_search_paths;

// Opens the first of some names (NULL ends them) in the first place that has any: the process
// itself, wheels, conda, the loader's folders, CUDA_PATH, CUDA_HOME, /usr/local/cuda. Then *where is
// the path of the file. The library is never unloaded. The environment is read by the first call.
void *tni_nvidia_open(const char *const *names, tni_text *where);

// The same with places given.
void *tni_nvidia_open_in(const tni_search_paths *p, const char *const *names, tni_text *where);

// Opens libcuda, which comes with the driver alone: no wheel, no toolkit has one that works.
void *tni_nvidia_open_driver(tni_text *where);

#endif
