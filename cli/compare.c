// compare.c: `tenon compare A B`, which looks at the files to know what they are: the pages or logs
// of two runs, the traces of two profiles, or two models.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A kind of files that can be compared. The first that a file is counts; what is none of the others
// is a model.
typedef struct {
    const char *name;
    bool (*is)(const char *path);
    int (*compare)(int argc, char **argv);
} kind;

// A trace is JSON, and has its events within the first bytes.
static bool is_profile(const char *path)
{
    char   start[257] = "";
    FILE  *f          = fopen(path, "rb");
    size_t n          = f ? fread(start, 1, sizeof start - 1, f) : 0;
    if (f) fclose(f);
    start[n] = 0;
    return start[0] == '{' && strstr(start, "\"traceEvents\"");
}

// What the first line of a file says, and of a page its data: these say what it shows, in the line
// after their start.
typedef struct {
    bool log, page, run;
} first_lines;

static first_lines look_at(const char *path)
{
    char       *line = NULL;
    size_t      room = 0;
    bool        data = false;
    first_lines l    = { false };
    FILE       *f    = fopen(path, "rb");
    bool        any  = f && getline(&line, &room, f) > 0;
    l.log            = any && !strncmp(line, "{\"step\": ", 9);
    l.page           = any && !strncmp(line, "<!doctype html>", 15);
    while (l.page && !data && getline(&line, &room, f) > 0)
        data = strstr(line, "id=\"data\"") != NULL;
    if (data && getline(&line, &room, f) > 0) l.run = !strncmp(line, "{\"kind\":\"report\"", 16);
    free(line);
    if (f) fclose(f);
    return l;
}

static bool is_run(const char *path)
{
    return look_at(path).log || look_at(path).run;
}

bool cli_is_run_page(const char *path)
{
    return look_at(path).run;
}

static bool is_other_page(const char *path)
{
    return look_at(path).page;
}

static int refuse_pages(int argc, char **argv)
{
    (void)argc;
    return cli_fail("%s is a page, and not that of a run; of profiles the traces are compared: "
                    "tenon profile --trace FILE.json",
                    argv[2]);
}

static const kind kinds[] = { { "the page or the log of a run", is_run, cli_compare_runs },
                              { "the trace of a profile", is_profile, cli_compare_profiles },
                              { "a page that is not of a run", is_other_page, refuse_pages },
                              { "a model", NULL, cli_compare_models } };

static const kind *kind_of(const char *path)
{
    const kind *k = kinds;
    while (k->is && !k->is(path)) k++;
    return k;
}

// The first two arguments that are no options; all options take a value, which may be in the next
// argument.
static int find_files(int argc, char **argv, const char *file[2])
{
    int n = 0;
    for (int i = 2; i < argc && n < 2; i++) {
        if (strncmp(argv[i], "--", 2)) file[n++] = argv[i];
        else if (!strchr(argv[i], '=')) i++;
    }
    return n;
}

int cli_compare(int argc, char **argv)
{
    const char *file[2];
    if (find_files(argc, argv, file) < 2) return cli_compare_models(argc, argv);
    for (int i = 0; i < 2; i++)
        if (access(file[i], R_OK)) return cli_fail("%s: %s", file[i], strerror(errno));
    const kind *a = kind_of(file[0]), *b = kind_of(file[1]);
    if (a == b) return a->compare(argc, argv);
    return cli_fail("%s is %s, %s is %s: they cannot be compared", file[0], a->name, file[1],
                    b->name);
}

// ---- files -------------------------------------------------------------------------------------

// Reads the line of a comparison of two files: A B [--html FILE]. False, reported, if it is wrong:
// exit with 2.
static bool read_line(const char *what, int argc, char **argv, const char *file[2],
                      const char **html)
{
    const char *command = argv[1];
    int         n       = 0;
    *html               = NULL;
    for (int i = 2; i < argc; i++) {
        if (cli_line_option(command, argc, argv, &i, "--html", "FILE", html)) {
            if (!*html) return false;
        } else if (argv[i][0] == '-' || n == 2)
            return cli_line_wrong(command,
                                  "%s are compared by: tenon compare A B [--html FILE]; not \"%s\"",
                                  what, argv[i]);
        else file[n++] = argv[i];
    }
    size_t length = *html ? strlen(*html) : 0;
    if (*html && (length <= 5 || strcmp(*html + length - 5, ".html")))
        return cli_line_wrong(command, "--html is a file whose name ends in .html, not \"%s\"",
                              *html);
    return true;
}

// Text, and with --html a page.
int cli_compare_profiles(int argc, char **argv)
{
    const char *file[2], *html;
    if (!read_line("profiles", argc, argv, file, &html)) return 2;
    tn_ctx *cx = cli_open(&(cli_settings){ .device = "cpu" });
    if (!cx) return 1;
    bool ok = tn_profile_compare(cx, file[0], file[1], NULL) == TN_OK &&
              (!html || tn_profile_compare(cx, file[0], file[1], html) == TN_OK);
    if (ok && html) printf("page in %s\n", cli_shown(html));
    int status = ok ? 0 : cli_fail_of(cx);
    tn_close(cx);
    return status;
}

// The same for runs, whose page must not replace one of them.
int cli_compare_runs(int argc, char **argv)
{
    const char *file[2], *html;
    if (!read_line("runs", argc, argv, file, &html)) return 2;
    if (html && (cli_same_file(html, file[0]) || cli_same_file(html, file[1])))
        return cli_fail("--html %s is one of the runs", html);
    tn_ctx *cx = cli_open(&(cli_settings){ .device = "cpu" });
    if (!cx) return 1;
    tn_report *a = tn_report_read(cx, file[0]), *b = a ? tn_report_read(cx, file[1]) : NULL;
    bool       ok     = b && tn_report_compare(a, b, html, stdout) == TN_OK;
    int        status = ok ? 0 : cli_fail_of(cx);
    if (ok && html) printf("page in %s\n", cli_shown(html));
    tn_close(cx);
    return status;
}
