// progress.c: progress of a training run, on stderr. On a terminal it is a bar, redrawn at most ten
// times per second, and a line for every epoch; otherwise a line every few seconds.
#include "cli.h"

#include <math.h>
#include <string.h>

enum { LINE = 512, BAR_MOST = 32, BAR_LEAST = 6 };

// The least time between bars, between lines, and between the lines of short epochs, which would
// otherwise scroll by.
static const double BAR_SECONDS = 0.1, LINE_SECONDS = 5, EPOCH_SECONDS = 1;

void cli_progress_begin(cli_progress *p, const cli_settings *s, int64_t first_step)
{
    *p       = (cli_progress){ .quiet      = s->quiet,
                               .bar        = !s->quiet && cli_is_terminal(stderr),
                               .colours    = cli_colours(stderr),
                               .utf8       = cli_utf8(),
                               .every      = s->every,
                               .began      = cli_seconds(),
                               .first_step = first_step };
    p->drawn = p->lined = p->began;
}

static void write_time(char *to, size_t size, double seconds)
{
    long s = (long)(seconds + 0.5);
    if (s >= 3600) snprintf(to, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else snprintf(to, size, "%ld:%02ld", s / 60, s % 60);
}

// Writes the rate: "11245/s", of text "11245 tokens/s, 41 % of the peak".
static void write_rate(const cli_moment *m, char *to, size_t size)
{
    int n = snprintf(to, size, "%.0f%s/s", m->rate, m->task == CLI_TOKENS ? " tokens" : "");
    if (!isnan(m->share) && n > 0 && (size_t)n < size)
        snprintf(to + n, size - (size_t)n, ", %.*f %% of the peak", m->share < 0.1 ? 1 : 0,
                 100 * m->share);
}

// Writes "626/939  loss 0.3603  accuracy 85.5 %  11245/s  ETA 0:02  2.0 MiB". Text has no accuracy but
// "held out 1.8123", the loss of the newest evaluation.
static void write_facts(const cli_progress *p, const cli_moment *m, char *line)
{
    char accuracy[32] = "", left[32] = "", memory[32], rate[64];
    write_rate(m, rate, sizeof rate);
    if (m->task == CLI_TOKENS && !isnan(m->held_out))
        snprintf(accuracy, sizeof accuracy, "  held out %.4f", m->held_out);
    if (!isnan(m->mean_accuracy))
        snprintf(accuracy, sizeof accuracy, "  %s %.1f %%", p->bar ? "acc" : "accuracy",
                 100 * m->mean_accuracy);
    if (m->step < m->steps) {
        char   time[24];
        double each = (cli_seconds() - p->began) / (double)(m->step - p->first_step);
        write_time(time, sizeof time, each * (double)(m->steps - m->step));
        snprintf(left, sizeof left, "  ETA %s", time);
    }
    cli_write_bytes(memory, sizeof memory, m->bytes);
    snprintf(line, LINE, "%lld/%lld  loss %.4f%s  %s%s  %s", (long long)m->step,
             (long long)m->steps, m->mean_loss, accuracy, rate, left, memory);
}

// Draws a bar of this width: the part of the epoch that is done.
static void draw_bar(const cli_progress *p, const cli_moment *m, int wide)
{
    static const char *const full[] = { "#", "\xe2\x94\x81" }, *const rest[] = { "-",
                                                                                 "\xe2\x94\x80" };

    int64_t in_epoch = (m->step - 1) % m->epoch_steps + 1;
    int     filled   = (int)(wide * in_epoch / m->epoch_steps);
    if (p->colours) fputs("\033[36m", stderr);
    for (int i = 0; i < filled; i++) fputs(full[p->utf8], stderr);
    if (p->colours) fputs("\033[2m", stderr);
    for (int i = filled; i < wide; i++) fputs(rest[p->utf8], stderr);
    if (p->colours) fputs("\033[0m", stderr);
    fputs("  ", stderr);
}

// Drops facts from the end, which are separated by two spaces, until the rest fits.
static void cut(char *facts, int room)
{
    while (*facts && (int)strlen(facts) > room) {
        char *end = NULL;
        for (char *at = facts; (at = strstr(at, "  ")) != NULL; at += 2) end = at;
        *(end ? end : facts) = 0;
    }
}

static void draw(const cli_progress *p, const cli_moment *m, char *facts)
{
    char head[64];
    int  n    = snprintf(head, sizeof head, "epoch %lld/%lld  ", (long long)m->epoch,
                         (long long)m->epochs);
    int  room = cli_columns(stderr) - 1 - n;   // without the epoch
    cut(facts, room);                          // a line that wraps could not be redrawn in place
    int wide = room - (int)strlen(facts) - 2;  // left for the bar
    fprintf(stderr, "\r%.*s", room > 0 ? n : room + n > 0 ? room + n : 0, head);
    if (wide >= BAR_LEAST) draw_bar(p, m, wide > BAR_MOST ? BAR_MOST : wide);
    fprintf(stderr, "%s\033[K", facts);
}

static void write_line(const cli_progress *p, const cli_moment *m, const char *facts)
{
    fprintf(stderr, "%sepoch %lld/%lld  step %s", p->bar ? "\r" : "", (long long)m->epoch,
            (long long)m->epochs, facts);
    if (m->score && m->step < m->steps &&
        m->task != CLI_TOKENS) {  // the last score is printed with the results
        fprintf(stderr, "  test loss %.4f", m->score->loss);
        if (m->task == CLI_CLASSES) fprintf(stderr, " accuracy %.2f %%", 100 * m->score->accuracy);
    }
    fputs(p->bar ? "\033[K\n" : "\n", stderr);
}

static bool wants_line(const cli_progress *p, const cli_moment *m, double now)
{
    double since = now - p->lined;
    if (m->step == m->steps) return true;
    if (m->score) return true;
    if (p->every > 0) return m->step % p->every == 0;
    return (m->epoch_ends && since >= EPOCH_SECONDS) || (!p->bar && since >= LINE_SECONDS);
}

void cli_progress_step(cli_progress *p, const cli_moment *m)
{
    if (p->quiet) return;
    char   facts[LINE];
    double now  = cli_seconds();
    bool   line = wants_line(p, m, now);
    if (!line && !(p->bar && now - p->drawn >= BAR_SECONDS)) return;
    write_facts(p, m, facts);
    if (line) write_line(p, m, facts);
    else draw(p, m, facts);
    p->drawn = now;
    if (line) p->lined = now;
}

void cli_progress_end(cli_progress *p)
{
    if (p->bar) fputs("\r\033[K", stderr);
}
