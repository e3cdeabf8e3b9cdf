// case_line.c: the command lines of `tenon explain` and `tenon profile`, which take a case or a
// program.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define wrong(l, ...) cli_line_wrong((l)->command, __VA_ARGS__)

static bool choose_case(cli_case_line *l, const char *name)
{
    const cli_case *c;
    if (name[0] == '-') return wrong(l, "there is no option \"%s\"", name);
    if (l->one) return wrong(l, "one CASE at a time: %s or %s", l->one->name, name);
    for (int i = 0; (c = cli_case_at(i)) != NULL; i++)
        if (!strcmp(c->name, name)) l->one = c;
    return l->one || wrong(l, "there is no case \"%s\"", name);
}

static bool read_steps(cli_case_line *l, const char *text)
{
    char *end;
    errno    = 0;
    l->steps = strtol(text, &end, 10);
    return (*text && !*end && !errno && l->steps >= 1 && l->steps <= 1000000) ||
           wrong(l, "--steps is a number from 1 to 1000000, not \"%s\"", text);
}

// Checks the name of a file: tn_profile_write chooses the format by it.
static bool read_path(cli_case_line *l, const char *option, const char *end, const char *path,
                      const char **to)
{
    size_t n = strlen(path), m = strlen(end);
    *to = path;
    return (n > m && !strcmp(path + n - m, end)) ||
           wrong(l, "%s is a file whose name ends in %s, not \"%s\"", option, end, path);
}

// Parses an option with a value at argv[*i], and sets *ok to whether it is valid. Returns false if
// there is no such option.
static bool takes_value(cli_case_line *l, int argc, char **argv, int *i, bool *ok)
{
    const char *v;
    if (cli_line_option(l->command, argc, argv, i, "--device", "NAME", &v))
        *ok = (l->device = v) != NULL;
    else if (cli_line_option(l->command, argc, argv, i, "--html", "FILE", &v))
        *ok = v && read_path(l, "--html", ".html", v, &l->html);
    else if (!l->profile) return false;
    else if (cli_line_option(l->command, argc, argv, i, "--trace", "FILE", &v))
        *ok = v && read_path(l, "--trace", ".json", v, &l->trace);
    else if (cli_line_option(l->command, argc, argv, i, "--steps", "N", &v))
        *ok = v && read_steps(l, v);
    else return false;
    return true;
}

bool cli_case_line_parse(cli_case_line *l, int argc, char **argv)
{
    bool ok    = true;
    l->command = argv[1];
    for (int i = 2; ok && i < argc; i++) {
        if (!strcmp(argv[i], "--")) {
            l->program = argv + i + 1;
            if (!*l->program) return wrong(l, "a program is needed after --");
            break;
        }
        if (!l->profile && !strcmp(argv[i], "--source")) l->source = true;
        else if (!strcmp(argv[i], "--list")) l->list = true;
        else if (!takes_value(l, argc, argv, &i, &ok)) ok = choose_case(l, argv[i]);
    }
    if (!ok) return false;
    if (l->one && l->list) return wrong(l, "--list and a CASE, %s: give one of them", l->one->name);
    if (l->one && l->program) return wrong(l, "a CASE or a program, not both");
    if (l->program && l->trace && l->html)
        return wrong(l, "of a program, --trace or --html, not both");
    if (l->program && l->source && l->html)
        return wrong(
            l, "of a program, --source or --html, not both: the page has the texts of kernels");
    if (l->steps && !l->one) return wrong(l, "--steps needs a CASE");
    return l->one || l->program || l->list || wrong(l, "a CASE is needed");
}

int cli_cases_list(void)
{
    const cli_case *c;
    for (int i = 0; (c = cli_case_at(i)) != NULL; i++) printf("%-26s  %s\n", c->name, c->what);
    return 0;
}

int cli_case_line_program(const cli_case_line *l, const char *variable, const char *value)
{
    setenv(variable, value, 1);
    if (l->device) setenv("TN_DEVICE", l->device, 1);
    fflush(stdout);
    execvp(l->program[0], l->program);
    return cli_fail("%s: %s", l->program[0], strerror(errno));
}

void cli_case_steps(cli_kit *k, const cli_case *c, int64_t steps)
{
    for (int64_t i = 0; i < steps && tn_error(k->cx) == TN_OK; i++) {
        tn_scope *s = tn_begin(k->cx);
        c->record(k);
        tn_eval(k->cx);
        tn_end(s);
    }
}
