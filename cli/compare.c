// compare.c: `tenon compare A B`, which looks at the files to know what they are: the traces of two profiles, or two models.
#include "cli.h"

#include <string.h>

// A kind of files that can be compared. The first that a file is counts; what is none of the others is a model.
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

static const kind kinds[] = { { "the trace of a profile", is_profile, cli_compare_profiles },
                              { "a model", NULL, cli_compare_models } };

static const kind *kind_of(const char *path)
{
    const kind *k = kinds;
    while (k->is && !k->is(path)) k++;
    return k;
}

// The first two arguments that are no options; all options take a value, which may be in the next argument.
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
    const kind *a = kind_of(file[0]), *b = kind_of(file[1]);
    if (a == b) return a->compare(argc, argv);
    return cli_fail("%s is %s, %s is %s: they cannot be compared", file[0], a->name, file[1],
                    b->name);
}

// ---- profiles ----------------------------------------------------------------------------------

int cli_compare_profiles(int argc, char **argv)
{
    const char *file[2] = { NULL, NULL }, *html = NULL, *command = argv[1];
    int         n = 0;
    for (int i = 2; i < argc; i++) {
        const char *v;
        if (cli_line_option(command, argc, argv, &i, "--html", "FILE", &v)) {
            if (!v) return 2;
            html = v;
        } else if (argv[i][0] == '-' || n == 2) {
            cli_line_wrong(command,
                           "profiles are compared by: tenon compare A B [--html FILE]; not \"%s\"",
                           argv[i]);
            return 2;
        } else file[n++] = argv[i];
    }
    size_t length = html ? strlen(html) : 0;
    if (html && (length <= 5 || strcmp(html + length - 5, ".html")) &&
        !cli_line_wrong(command, "--html is a file whose name ends in .html, not \"%s\"", html))
        return 2;
    tn_ctx *cx = cli_open(&(cli_settings){ .device = "cpu" });
    if (!cx) return 1;
    int status = tn_profile_compare(cx, file[0], file[1], html) == TN_OK ? 0 : cli_fail_of(cx);
    tn_close(cx);
    return status;
}
