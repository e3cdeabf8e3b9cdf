// model_line.c: the command lines of `tenon run`, `bench`, `show` and `compare`, which take models.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

bool cli_line_option(const char *command, int argc, char **argv, int *i, const char *name,
                     const char *form, const char **value)
{
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) || (argv[*i][n] && argv[*i][n] != '=')) return false;
    *value = argv[*i][n] == '=' && argv[*i][n + 1] ? argv[*i] + n + 1 : NULL;
    if (!argv[*i][n] && *i + 1 < argc && strncmp(argv[*i + 1], "--", 2)) *value = argv[++*i];
    if (!*value) cli_line_wrong(command, "%s needs a value, %s", name, form);
    return true;
}

// Appends NAME=WHAT to a list.
static bool add_pair(const cli_model_line *l, const char *option, const char *text, cli_pair *list,
                     int *count)
{
    const char *is = text ? strchr(text, '=') : NULL;
    if (!text) return false;
    if (!is || is == text || !is[1])
        return cli_line_wrong(l->command, "%s takes NAME=VALUE, not \"%s\"", option, text);
    if (*count == CLI_MOST_PAIRS)
        return cli_line_wrong(l->command, "%s is given more than %d times", option, CLI_MOST_PAIRS);
    list[(*count)++] = (cli_pair){ text, (size_t)(is - text), is + 1 };
    return true;
}

static bool read_number(const cli_model_line *l, const char *option, const char *text, double least,
                        double most, double *v)
{
    char *end;
    if (!text) return false;
    *v = strtod(text, &end);
    return (*text && !*end && *v >= least && *v <= most) ||
           cli_line_wrong(l->command, "%s is a number from %g to %g, not \"%s\"", option, least,
                          most, text);
}

static bool read_precision(cli_model_line *l, const char *text)
{
    l->precision = !strcmp(text, "f16") ? TN_F16 : !strcmp(text, "bf16") ? TN_BF16 : TN_F32;
    return l->precision != TN_F32 || !strcmp(text, "f32") ||
           cli_line_wrong(l->command, "--precision is f32, f16 or bf16, not \"%s\"", text);
}

// Parses an option with a value at argv[*i]; *ok: whether it is valid. False if there is no such
// option.
static bool takes_value(cli_model_line *l, int argc, char **argv, int *i, bool *ok)
{
    const char *v, *c = l->command;
    double      x = 0;
    if (cli_line_option(c, argc, argv, i, "--input", "NAME=FILE", &v))
        *ok = add_pair(l, "--input", v, l->input, &l->inputs);
    else if (cli_line_option(c, argc, argv, i, "--dim", "NAME=N", &v))
        *ok = add_pair(l, "--dim", v, l->dim, &l->dims);
    else if (cli_line_option(c, argc, argv, i, "--device", "NAME", &v))
        *ok = (l->device = v) != NULL;
    else if (cli_line_option(c, argc, argv, i, "--precision", "f32, f16 or bf16", &v))
        *ok = v && read_precision(l, v);
    else if (cli_line_option(c, argc, argv, i, "--threads", "N", &v))
        *ok = read_number(l, "--threads", v, 1, 256, &x), l->threads = (int64_t)x;
    else if (l->uses & CLI_RUNS && cli_line_option(c, argc, argv, i, "--output", "NAME=FILE", &v))
        *ok = add_pair(l, "--output", v, l->output, &l->outputs);
    else if (l->uses & CLI_RUNS && cli_line_option(c, argc, argv, i, "--top", "N", &v))
        *ok = read_number(l, "--top", v, 1, 1e6, &x), l->top = (int64_t)x;
    else if (l->uses & CLI_TIMES && cli_line_option(c, argc, argv, i, "--seconds", "X", &v))
        *ok = read_number(l, "--seconds", v, 0.01, 86400, &l->seconds);
    else if (l->uses & CLI_TIMES && cli_line_option(c, argc, argv, i, "--warmup", "N", &v))
        *ok = read_number(l, "--warmup", v, 0, 1e6, &x), l->warmup = (int64_t)x;
    else if (l->uses & CLI_SHOWS && cli_line_option(c, argc, argv, i, "--html", "FILE", &v))
        *ok = (l->html = v) != NULL;
    else if (l->uses & CLI_COMPARES && cli_line_option(c, argc, argv, i, "--tolerance", "X", &v))
        *ok = read_number(l, "--tolerance", v, 0, 1e30, &l->tolerance);
    else return false;
    return true;
}

bool cli_model_line_parse(cli_model_line *l, int argc, char **argv)
{
    int  models = 0, wanted = l->uses & CLI_COMPARES ? 2 : 1;
    bool ok      = true;
    l->command   = argv[1];
    l->precision = TN_F32;
    for (int i = 2; ok && i < argc; i++) {
        if (l->uses & CLI_SHOWS && !strcmp(argv[i], "--nodes")) l->nodes = true;
        else if (takes_value(l, argc, argv, &i, &ok)) continue;
        else if (argv[i][0] == '-')
            ok = cli_line_wrong(l->command, "there is no option \"%s\"", argv[i]);
        else if (models == wanted)
            ok = cli_line_wrong(l->command, "\"%s\" is one MODEL too many", argv[i]);
        else l->model[models++] = argv[i];
    }
    if (!ok) return false;
    return models == wanted ||
           cli_line_wrong(l->command, wanted == 2 ? "two MODELs are needed" : "a MODEL is needed");
}

const cli_pair *cli_pair_find(const cli_pair *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strlen(name) == list[i].length && !strncmp(list[i].name, name, list[i].length))
            return &list[i];
    return NULL;
}
