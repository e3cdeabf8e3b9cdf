// sinks.c: where the measurements of a run go: the curve of the terminal, the log, TensorBoard, the
// page of the run, the progress. Each is a row of one table, and gets every moment of the run. One
// that cannot be written is reported at once and left alone from then on: the network is worth more
// than what is shown of it, and the user must not learn of it only at the end.
#include "cli.h"

#include <string.h>

typedef struct {
    const char *option;        // that asks for it; NULL: always there
    bool (*open)(cli_run *r);  // false, reported, on failure
    // Takes a moment; and the end, after the last step. NULL, or why it could not be written.
    const char *(*step)(cli_run *r, const cli_moment *m);
    const char *(*end)(cli_run *r);
    void (*close)(cli_run *r);
    bool sparse;  // gets the steps of --every alone
} sink;

static const char *add_to_curve(cli_run *r, const cli_moment *m)
{
    cli_curve_add(&r->memory.curve, m->loss);
    return NULL;
}

static const char *show_progress(cli_run *r, const cli_moment *m)
{
    cli_progress_step(&r->progress, m);
    return NULL;
}

static const sink sinks[] = {
    { .step = add_to_curve },
    { "log", cli_log_open, cli_log_step, NULL, cli_log_close, true },
    { "tensorboard", cli_board_open, cli_board_step, NULL, cli_board_close, true },
    { "report", cli_report_open, cli_report_step, cli_report_end, cli_report_close, true },
    { .step = show_progress },
};
enum { SINKS = sizeof sinks / sizeof *sinks };
_Static_assert(SINKS <= 32, "a bit each");

// Whether a sink is written by this process: rank 0 alone writes files.
static bool is_on(const cli_run *r, int i)
{
    const char *option = sinks[i].option;
    if (r->sinks_failed & 1u << i) return false;
    return !option || (tn_dist_rank(r->dist) == 0 && cli_options_given(r->s, option));
}

bool cli_sinks_open(cli_run *r)
{
    for (int i = 0; i < SINKS; i++)
        if (sinks[i].open && is_on(r, i) && !sinks[i].open(r)) return false;
    return true;
}

bool cli_sinks_want(const cli_run *r)
{
    // All ranks alike, since they measure together.
    for (int i = 0; i < SINKS; i++)
        if (sinks[i].option && cli_options_given(r->s, sinks[i].option)) return true;
    return false;
}

bool cli_sink_is_due(const cli_run *r, const cli_moment *m)
{
    int64_t every = r->s->every;
    return every == 0 || m->step % every == 0 || m->step == m->steps;
}

static void give_up(cli_run *r, int i, const char *why)
{
    char        room[64];
    const char *option = sinks[i].option;
    cli_progress_end(&r->progress);
    cli_fail("--%s %s: %s after step %lld; the run continues without it", option,
             cli_options_text(r->s, option, room, sizeof room), why, (long long)r->memory.step);
    sinks[i].close(r);
    r->sinks_failed |= 1u << i;
}

const char *cli_sink_error(cli_run *r)
{
    snprintf(r->sink_error, sizeof r->sink_error, "%s", tn_error_text(r->cx));
    tn_error_clear(r->cx);
    return r->sink_error;
}

void cli_sinks_step(cli_run *r, const cli_moment *m)
{
    for (int i = 0; i < SINKS; i++) {
        if (!is_on(r, i) || (sinks[i].sparse && !cli_sink_is_due(r, m))) continue;
        const char *why = sinks[i].step(r, m);
        if (why) give_up(r, i, why);
    }
}

void cli_sinks_end(cli_run *r)
{
    for (int i = 0; i < SINKS; i++) {
        const char *why = sinks[i].end && is_on(r, i) ? sinks[i].end(r) : NULL;
        if (why) give_up(r, i, why);
    }
}

void cli_sinks_close(cli_run *r)
{
    for (int i = 0; i < SINKS; i++)
        if (sinks[i].close && is_on(r, i)) sinks[i].close(r);
}
