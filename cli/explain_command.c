// explain_command.c: `tenon explain`, the plan of a case or of a program.
#include "cli.h"

#include <errno.h>
#include <string.h>

static tn_status write_page(tn_ctx *cx, const char *path)
{
    FILE     *f = fopen(path, "w");
    tn_status s = f ? tn_explain_with(cx, f, (tn_explain_opts){ .html = true }) : TN_EIO;
    if (f && fclose(f) && s == TN_OK) s = TN_EIO;
    if (s == TN_EIO) cli_fail("%s could not be written: %s", path, strerror(errno));
    if (s == TN_OK) printf("page in %s\n", cli_shown(path));
    return s;
}

// Runs steps until the case is as in the middle of a run, and explains the next one. Its scope
// stays open, since ending it would launch the work that is only to be shown.
static tn_status show(cli_kit *k, const cli_case_line *l)
{
    l->one->make(k);
    tn_eval(k->cx);
    cli_case_steps(k, l->one, l->one->steps);
    tn_begin(k->cx);
    l->one->record(k);
    if (tn_error(k->cx) != TN_OK) return tn_error(k->cx);
    printf("%s: ", l->one->name);
    tn_status s = tn_explain_with(k->cx, stdout, (tn_explain_opts){ .source = l->source });
    return s == TN_OK && l->html ? write_page(k->cx, l->html) : s;
}

int cli_explain(int argc, char **argv)
{
    cli_case_line l = { 0 };
    cli_kit       k = { 0 };
    if (!cli_case_line_parse(&l, argc, argv)) return 2;
    if (l.list) return cli_cases_list();
    const char *to = l.html ? l.html : l.source ? "source" : "1";
    if (l.program) return cli_case_line_program(&l, "TN_EXPLAIN", to);
    k.cx = cli_open(&(cli_settings){ .device = (char *)l.device });
    if (!k.cx) return 1;
    int status = show(&k, &l) == TN_OK ? 0 : tn_error(k.cx) ? cli_fail_of(k.cx) : 1;
    tn_close(k.cx);
    return status;
}
