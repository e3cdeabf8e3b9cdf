// journal.c: the log of a run in JSON Lines: one object per step, flushed at once, so that the log
// is complete whenever the process ends. A resumed run continues the log after the step of its
// checkpoint.
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char first_key[] = "{\"step\": ";

static double time_of(const char *line)
{
    static const char key[] = "\"time\": ";

    const char *at = strstr(line, key);
    return at ? strtod(at + sizeof key - 1, NULL) : 0;
}

// Returns the length of the records up to a step, and sets *seconds to the time of the last one. A
// record that was not completely written does not count.
static long length_up_to(FILE *f, int64_t step, double *seconds)
{
    char   *line = NULL;
    size_t  room = 0;
    long    keep = 0;
    ssize_t n;
    while ((n = getline(&line, &room, f)) > 0 && line[n - 1] == '\n') {
        if (strncmp(line, first_key, sizeof first_key - 1) != 0) break;
        if (strtoll(line + sizeof first_key - 1, NULL, 10) > step) break;
        keep += (long)n;
        *seconds = time_of(line);
    }
    free(line);
    return keep;
}

// Truncates the log of a resumed run after its last step, so that no step appears twice.
static FILE *open_log(const char *path, bool resume, int64_t step, double *seconds)
{
    FILE *f = fopen(path, resume ? "r+" : "w");
    if (!f && resume && errno == ENOENT) f = fopen(path, "w+");
    if (f && resume) {
        long keep = length_up_to(f, step, seconds);
        if (fseek(f, keep, SEEK_SET) != 0 || ftruncate(fileno(f), keep) != 0) {
            fclose(f);
            f = NULL;
        }
    }
    if (!f) cli_fail("--log %s: %s", path, strerror(errno));
    return f;
}

// Writes a number as a member. JSON has no NaN and no infinity, so these become null.
static void write_number(FILE *f, const char *name, double v, int digits)
{
    if (isfinite(v)) fprintf(f, ", \"%s\": %.*g", name, digits, v);
    else fprintf(f, ", \"%s\": null", name);
}

bool cli_log_open(cli_run *r)
{
    r->log = open_log(r->s->log, r->s->resume, r->first_step, &r->earlier);
    return r->log != NULL;
}

void cli_log_close(cli_run *r)
{
    if (r->log) fclose(r->log);
    r->log = NULL;
}

const char *cli_log_step(cli_run *r, const cli_moment *m)
{
    cli_measure list[CLI_MEASURES];
    FILE       *f = r->log;
    int         n = cli_measures(m, list);
    fprintf(f, "%s%lld, \"epoch\": %lld", first_key, (long long)m->step, (long long)m->epoch);
    for (int i = 0; i < n; i++) write_number(f, list[i].name, list[i].v, list[i].digits);
    fputs("}\n", f);
    return fflush(f) == 0 && !ferror(f) ? NULL : strerror(errno);
}
