// tune_command.c: `tenon tune`, which measures the kernels of a case or of a program, and moves
// what won between machines.
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    STEPS = 24
};  // of a case: the first compiles, the others measure, each in a part of the time that is left, at most half

// The command line: what to tune, or a file to write or to read.
typedef struct {
    const char     *device, *to, *from;
    double          seconds;
    const cli_case *one;
    char          **program;
    bool            list;
} tune_line;

#define wrong(...) cli_line_wrong("tune", __VA_ARGS__)

static bool read_seconds(tune_line *l, const char *text)
{
    char *end;
    errno      = 0;
    l->seconds = strtod(text, &end);
    return (*text && !*end && !errno && l->seconds > 0 && isfinite(l->seconds)) ||
           wrong("--seconds is a number above 0, not \"%s\"", text);
}

// Parses an option at argv[*i]; *ok: whether it is valid. Returns false if there is no such option.
static bool takes_option(tune_line *l, int argc, char **argv, int *i, bool *ok)
{
    const char *v;
    if (!strcmp(argv[*i], "--list")) l->list = true;
    else if (cli_line_option("tune", argc, argv, i, "--device", "NAME", &v))
        *ok = (l->device = v) != NULL;
    else if (cli_line_option("tune", argc, argv, i, "--seconds", "N", &v))
        *ok = v && read_seconds(l, v);
    else if (cli_line_option("tune", argc, argv, i, "--export", "FILE", &v))
        *ok = (l->to = v) != NULL;
    else if (cli_line_option("tune", argc, argv, i, "--import", "FILE", &v))
        *ok = (l->from = v) != NULL;
    else return false;
    return true;
}

// A word that is no option is a case if it has the name of one, else a program, and what follows
// its arguments.
static bool parse(tune_line *l, int argc, char **argv)
{
    const cli_case *c;
    bool            ok = true;
    for (int i = 2; ok && i < argc && !l->program; i++) {
        if (takes_option(l, argc, argv, &i, &ok)) continue;
        if (!strcmp(argv[i], "--")) {
            l->program = argv + i + 1;
            if (!*l->program) return wrong("a program is needed after --");
            break;
        }
        if (argv[i][0] == '-') return wrong("there is no option \"%s\"", argv[i]);
        if (l->one) return wrong("one CASE at a time: %s or %s", l->one->name, argv[i]);
        for (int k = 0; (c = cli_case_at(k)) != NULL; k++)
            if (!strcmp(c->name, argv[i])) l->one = c;
        if (!l->one) l->program = argv + i;
    }
    if (ok && l->one && l->program) return wrong("a CASE or a program, not both");
    if (ok && l->program && (l->to || l->from))
        return wrong("--export and --import are without a PROGRAM");
    return ok && (l->one || l->program || l->list || l->to || l->from ||
                  wrong("a CASE, a PROGRAM, --export or --import is needed"));
}

// Lets the library say what won, besides what it says already.
static void log_winners(void)
{
    char        log[256];
    const char *logs = getenv("TN_LOG");
    snprintf(log, sizeof log, "%s%stune", logs ? logs : "", logs && *logs ? "," : "");
    setenv("TN_LOG", log, 1);
}

// Becomes the program, which measures for itself and says on stderr what won.
static int run_program(const tune_line *l)
{
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%g", l->seconds);
    setenv("TN_TUNE", seconds, 1);
    log_winners();
    if (l->device) setenv("TN_DEVICE", l->device, 1);
    execvp(l->program[0], l->program);
    return cli_fail("%s: %s", l->program[0], strerror(errno));
}

static tn_status tune_case(cli_kit *k, const tune_line *l)
{
    log_winners();
    l->one->make(k);
    tn_eval(k->cx);
    cli_case_steps(k, l->one, l->one->steps + 1);
    tn_tune(k->cx, l->seconds);
    cli_case_steps(k, l->one, STEPS);
    return tn_error(k->cx);
}

// Says how many winners were moved, on stderr as all that tuning says, since FILE may be
// /dev/stdout. False if that failed.
static bool report_winners(const char *how, const char *path, int winners)
{
    if (winners < 0) return false;
    fprintf(stderr, "tenon: %d winner%s %s %s\n", winners, cli_s(winners), how, cli_shown(path));
    if (winners == 0) fprintf(stderr, "tenon: run tenon tune CASE or PROGRAM to have some\n");
    return true;
}

// Whether the environment leaves all to the rules, so that nothing would be measured.
static bool is_deterministic(void)
{
    const char *s = getenv("TN_DETERMINISTIC");
    return s && !strcmp(s, "1");
}

int cli_tune(int argc, char **argv)
{
    tune_line l = { .seconds = 20 };
    cli_kit   k = { 0 };
    if (!parse(&l, argc, argv)) return 2;
    if (l.list) return cli_cases_list();
    if (l.one || l.program) unsetenv("TN_TUNE");  // the command says how long
    if ((l.one || l.program) && is_deterministic())
        return cli_fail("TN_DETERMINISTIC=1 leaves all to the rules: nothing would be measured");
    if (l.program) return run_program(&l);
    k.cx = cli_open(&(cli_settings){ .device = (char *)l.device });
    if (!k.cx) return 1;
    bool ok = !l.from || report_winners("read from", l.from, tn_tune_import(k.cx, l.from));
    if (ok && l.one) ok = tune_case(&k, &l) == TN_OK;
    if (ok && l.to) ok = report_winners("written to", l.to, tn_tune_export(k.cx, l.to));
    int status = ok ? 0 : cli_fail_of(k.cx);
    tn_close(k.cx);
    return status;
}
