// explain_command.c: `tenon explain`, the plan of a case or of a program.
#include "cli.h"

// Runs steps until the case is as in the middle of a run, and explains the next one. Its scope stays open,
// since ending it would launch the work that is only to be shown.
static tn_status show(cli_kit *k, const cli_case_line *l)
{
    l->one->make(k);
    tn_eval(k->cx);
    cli_case_steps(k, l->one, l->one->steps);
    tn_begin(k->cx);
    l->one->record(k);
    if (tn_error(k->cx) != TN_OK) return tn_error(k->cx);
    printf("%s: ", l->one->name);
    return tn_explain_with(k->cx, stdout, (tn_explain_opts){ .source = l->source });
}

int cli_explain(int argc, char **argv)
{
    cli_case_line l = { 0 };
    cli_kit       k = { 0 };
    if (!cli_case_line_parse(&l, argc, argv)) return 2;
    if (l.list) return cli_cases_list();
    if (l.program) return cli_case_line_program(&l, "TN_EXPLAIN", l.source ? "source" : "1");
    k.cx = cli_open(&(cli_settings){ .device = (char *)l.device });
    if (!k.cx) return 1;
    int status = show(&k, &l) == TN_OK ? 0 : cli_fail_of(k.cx);
    tn_close(k.cx);
    return status;
}
