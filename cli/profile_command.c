// profile_command.c: `tenon profile`, the times of the kernels of a case or of a program.
#include "cli.h"

#include <stdlib.h>

enum { STEPS = 20, WARM = 3 };  // steps by default, and steps before them that are not timed

static tn_status write_file(tn_ctx *cx, const char *what, const char *path)
{
    tn_status s = tn_profile_write(cx, path);
    if (s == TN_OK) printf("%s in %s\n", what, cli_shown(path));
    return s;
}

// The first steps compile kernels, choose algorithms and fill caches; the steps after them are
// timed.
static tn_status measure(cli_kit *k, const cli_case_line *l)
{
    l->one->make(k);
    tn_eval(k->cx);
    cli_case_steps(k, l->one, l->one->steps + WARM);
    tn_profile_begin(k->cx);
    cli_case_steps(k, l->one, l->steps ? l->steps : STEPS);
    tn_profile_end(k->cx);
    if (tn_error(k->cx) != TN_OK) return tn_error(k->cx);
    printf("%s: ", l->one->name);
    tn_status s = tn_profile_write(k->cx, NULL);
    if (s == TN_OK && l->trace) s = write_file(k->cx, "trace", l->trace);
    return s == TN_OK && l->html ? write_file(k->cx, "page", l->html) : s;
}

int cli_profile(int argc, char **argv)
{
    cli_case_line l = { .profile = true };
    cli_kit       k = { 0 };
    if (!cli_case_line_parse(&l, argc, argv)) return 2;
    if (l.list) return cli_cases_list();
    const char *to = l.trace ? l.trace : l.html ? l.html : "1";
    if (l.program) return cli_case_line_program(&l, "TN_PROFILE", to);
    setenv("TN_COMPILE", "wait", 0);
    k.cx = cli_open(&(cli_settings){ .device = (char *)l.device });
    if (!k.cx) return 1;
    int status = measure(&k, &l) == TN_OK ? 0 : cli_fail_of(k.cx);
    tn_close(k.cx);
    return status;
}
