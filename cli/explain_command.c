// explain_command.c: `tenon explain`, what the planner makes of a case or of a program.
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// What the command line asks for: a case, the list, or a program with its arguments.
typedef struct {
    const char     *device;
    const cli_case *one;
    char          **program;
    bool            source, list;
} wish;

__attribute__((format(printf, 1, 2))) static bool wrong(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "tenon explain: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "; see tenon help explain\n");
    va_end(list);
    return false;
}

static bool choose_case(wish *w, const char *name)
{
    const cli_case *c;
    if (name[0] == '-') return wrong("there is no option \"%s\"", name);
    if (w->one) return wrong("one CASE at a time: %s or %s", w->one->name, name);
    for (int i = 0; (c = cli_case_at(i)) != NULL; i++)
        if (!strcmp(c->name, name)) w->one = c;
    return w->one || wrong("there is no case \"%s\"", name);
}

// The value of an option at argv[*i], there or in the next argument; NULL, reported, if it has none.
static const char *value_of(int argc, char **argv, int *i)
{
    const char *tied = strchr(argv[*i], '=');
    if (tied && tied[1]) return tied + 1;
    if (!tied && *i + 1 < argc && strncmp(argv[*i + 1], "--", 2)) return argv[++*i];
    wrong("--device needs a value, NAME");
    return NULL;
}

static bool parse(wish *w, int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--")) {
            w->program = argv + i + 1;
            if (!*w->program) return wrong("a program is needed behind --");
            break;
        }
        if (!strcmp(argv[i], "--source")) w->source = true;
        else if (!strcmp(argv[i], "--list")) w->list = true;
        else if (!strcmp(argv[i], "--device") || !strncmp(argv[i], "--device=", 9)) {
            if (!(w->device = value_of(argc, argv, &i))) return false;
        } else if (!choose_case(w, argv[i])) return false;
    }
    if (w->one && w->program) return wrong("a CASE or a program, not both");
    return w->one || w->program || w->list || wrong("a CASE is needed");
}

static int list(void)
{
    const cli_case *c;
    for (int i = 0; (c = cli_case_at(i)) != NULL; i++) printf("%-26s  %s\n", c->name, c->what);
    return 0;
}

// The library prints the plans; the program goes on as if it had been called by itself.
static int run_program(const wish *w)
{
    setenv("TN_EXPLAIN", w->source ? "source" : "1", 1);
    if (w->device) setenv("TN_DEVICE", w->device, 1);
    fflush(stdout);
    execvp(w->program[0], w->program);
    return cli_fail("%s: %s", w->program[0], strerror(errno));
}

// Steps run until the case is as it is in the middle of a run; the one after them is shown. Its
// scope stays open, since the end of it would compute what was only to be looked at.
static tn_status show(cli_kit *k, const wish *w)
{
    w->one->make(k);
    tn_eval(k->cx);
    for (int i = 0; i < w->one->steps && tn_error(k->cx) == TN_OK; i++) {
        tn_scope *s = tn_begin(k->cx);
        w->one->record(k);
        tn_eval(k->cx);
        tn_end(s);
    }
    tn_begin(k->cx);
    w->one->record(k);
    if (tn_error(k->cx) != TN_OK) return tn_error(k->cx);
    printf("%s: ", w->one->name);
    return tn_explain_with(k->cx, stdout, (tn_explain_opts){ .source = w->source });
}

int cli_explain(int argc, char **argv)
{
    wish    w = { 0 };
    cli_kit k = { 0 };
    if (!parse(&w, argc, argv)) return 2;
    if (w.list) return list();
    if (w.program) return run_program(&w);
    k.cx = cli_open(&(cli_settings){ .device = (char *)w.device });
    if (!k.cx) return 1;
    int status = show(&k, &w) == TN_OK ? 0 : cli_fail_of(k.cx);
    tn_close(k.cx);
    return status;
}
