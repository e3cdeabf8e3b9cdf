// kit.c: what targets share. A context whose memory is counted, outcomes, files.
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Whether closed contexts stay, so that stale handles can be told.
#ifdef TN_DEBUG
enum { CONTEXTS_STAY = 1 };
#else
enum { CONTEXTS_STAY = 0 };
#endif

_Noreturn void fuzz_fail(const char *file, int line, const char *text)
{
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, text);
    abort();
}

// ---- memory

enum { HEAD = 16, EXTRA = 16 << 20 };

static size_t live, most, peak;  // bytes of the open context: now, at most; of all, at most

static void *counting(void *user, void *old, size_t n)
{
    char  *p   = old ? (char *)old - HEAD : NULL;
    size_t had = 0;
    (void)user;
    if (p) memcpy(&had, p, sizeof had);
    if (n == 0) {
        live -= had;
        free(p);
        return NULL;
    }
    // More than any input may ask for: told apart from memory that the machine does not have.
    FUZZ_CHECK(n < (size_t)1 << 30);
    if (!(p = realloc(p, n + HEAD))) return NULL;
    memcpy(p, &n, sizeof n);
    live += n - had;
    if (live > most) most = live;
    return p + HEAD;
}

static void silent(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

tn_ctx *fuzz_open(void)
{
    live = most = 0;
    tn_ctx *cx  = tn_open_with(
         (tn_open_opts){ .device = "cpu", .handler = silent, .threads = 1, .alloc = counting });
    FUZZ_CHECK(cx != NULL);
    return cx;
}

uint64_t fuzz_close(tn_ctx *cx, size_t n)
{
    uint64_t outcome = fuzz_outcome(tn_error(cx), tn_error_text(cx));
    tn_close(cx);
    if (most > peak) peak = most;
    FUZZ_CHECK(most <= 2 * n + EXTRA);
    FUZZ_CHECK(live == 0 || CONTEXTS_STAY);
    return outcome;
}

size_t fuzz_peak(void)
{
    return peak;
}

// ---- outcomes

uint64_t fuzz_join(uint64_t a, uint64_t b)
{
    fuzz_random r = { a ^ (b * 0x9e3779b97f4a7c15u) };
    return fuzz_next(&r);
}

uint64_t fuzz_outcome(int status, const char *text)
{
    uint64_t h      = (uint64_t)status;
    bool     quoted = false;
    for (; *text; text++) {
        if (*text == '"') quoted = !quoted;
        if (!quoted && (*text < '0' || *text > '9')) h = fuzz_join(h, (unsigned char)*text);
    }
    return h;
}

// ---- files

static char folder[64];

void fuzz_folder_make(void)
{
    snprintf(folder, sizeof folder, "/dev/shm/tenon-fuzz-XXXXXX");
    if (mkdtemp(folder)) return;
    snprintf(folder, sizeof folder, "/tmp/tenon-fuzz-XXXXXX");
    FUZZ_CHECK(mkdtemp(folder) != NULL);
}

void fuzz_folder_remove(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    if (*folder && system(command) != 0) fprintf(stderr, "%s could not be removed\n", folder);
}

const char *fuzz_path(const char *name)
{
    static char paths[8][256];
    static int  at;
    char       *path = paths[at++ & 7];
    snprintf(path, sizeof *paths, "%s/%s", folder, name);
    return path;
}

const char *fuzz_file(const char *name, const void *data, size_t n)
{
    const char *path = fuzz_path(name);
    if (!data) {
        unlink(path);
        return path;
    }
    FILE *f = fopen(path, "wb");
    FUZZ_CHECK(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
    return path;
}
