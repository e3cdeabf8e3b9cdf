// nvidia_headers.c: looking for them where environments, toolkits, distributions and wheels have
// them.
#include "nvidia_headers.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The first folder of a pattern that has cuda.h.
static bool find_below(const char *prefix, const char *rest, char folder[NVIDIA_PATH])
{
    char   pattern[NVIDIA_PATH];
    bool   found = false;
    glob_t g     = { 0 };
    snprintf(pattern, sizeof pattern, "%s%s/cuda.h", prefix, rest);
    if (glob(pattern, 0, NULL, &g) == 0 && strlen(*g.gl_pathv) < NVIDIA_PATH) {
        snprintf(folder, NVIDIA_PATH, "%s", *g.gl_pathv);
        *strrchr(folder, '/') = 0;
        found                 = true;
    }
    globfree(&g);
    return found;
}

bool nvidia_headers_find(char folder[NVIDIA_PATH])
{
    static const char *const variables[][2] = {
        { "CUDA_PATH", "/include" },
        { "CUDA_HOME", "/include" },
        { "VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/include" },
        { "CONDA_PREFIX", "/include" },
        { "CONDA_PREFIX", "/targets/*/include" },
        { "CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/include" },
    };
    static const char *const places[] = {
        "/usr/local/cuda/include", "/usr/local/cuda*/include",
        "/usr/local/include",      "/usr/include",
        "/opt/cuda/include",       "/usr/local/lib/python3*/*-packages/nvidia/*/include",
        "/usr/lib/cuda*/include",
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i][0]);
        if (value && *value && find_below(value, variables[i][1], folder)) return true;
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (find_below("", places[i], folder)) return true;
    return false;
}

void nvidia_headers_flags(const char *folder, char flags[NVIDIA_FLAGS])
{
    snprintf(flags, NVIDIA_FLAGS,
             "-isystem '%s' -isystem '%s/../../cuda_nvrtc/include' "
             "-isystem '%s/../../cublas/include'",
             folder, folder, folder);
}
