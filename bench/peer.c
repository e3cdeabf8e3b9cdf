// peer.c: the same work in PyTorch, where a Python that has it is found.
#include "bench.h"

#include "base/pool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_ROOM = 1024 };

// The path that a shell would run for a name; "" when there is none. Links are not followed: the
// python3 of a virtual environment is a link, but another Python.
static void find_program(const char *name, char *path)
{
    char command[PATH_ROOM + 32];
    *path = 0;
    snprintf(command, sizeof command, "command -v '%s'", name);
    FILE *f = popen(command, "r");
    if (!f) return;
    if (!fgets(path, PATH_ROOM, f)) *path = 0;
    path[strcspn(path, "\n")] = 0;
    pclose(f);
}

// Runs the case with one Python; the time of a step, NAN where that Python is not there or has no
// PyTorch.
static double ask(const char *python, const char *name, int threads, char *version, size_t room)
{
    char   command[4 * PATH_ROOM], line[256];
    double seconds = NAN;
    snprintf(command, sizeof command, "OMP_NUM_THREADS=%d '%s' '%s/bench/peers.py' %s 2>/dev/null",
             threads ? threads : tni_threads_default(), python, TN_SOURCE_DIR, name);
    fflush(stdout);
    FILE *f = popen(command, "r");
    if (!f) return NAN;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "seconds ", 8)) seconds = strtod(line + 8, NULL);
        if (!strncmp(line, "torch ", 6)) snprintf(version, room, "PyTorch %.40s", line + 6);
    }
    return pclose(f) == 0 ? seconds : NAN;
}

bench_peer bench_ask_peer(const char *name, int threads)
{
    enum { PYTHONS = 3 };
    const char *const names[PYTHONS] = { getenv("TN_PYTHON"), "python3", "/usr/bin/python3" };
    char              path[PYTHONS][PATH_ROOM];
    bench_peer        best = { .seconds = NAN };
    for (int i = 0; i < PYTHONS && bench_peers(); i++) {
        char version[64] = "";
        bool asked       = false;
        find_program(names[i] ? names[i] : "", path[i]);
        for (int k = 0; k < i; k++) asked |= !strcmp(path[k], path[i]);
        if (asked || !*path[i]) continue;
        double took = ask(path[i], name, threads, version, sizeof version);
        if (isnan(took) || took >= best.seconds) continue;
        best.seconds = took;
        snprintf(best.name, sizeof best.name, "%s", version);
    }
    return best;
}
