// cli_kit.c: scripts with the tool in them, and what they print.
#include "cli_kit.h"

#include "tree.h"

#include <stdarg.h>
#include <string.h>

enum { COMMAND = 4096 };

char out[1 << 18];

bool begin(void)
{
    return CHECK(scratch_open());
}

bool runs(int status, const char *script, ...)
{
    char    command[COMMAND];
    int     n = snprintf(command, sizeof command,
                         "cd '%s' && unset NO_COLOR; export TN_DEVICE=cpu; " NO_LEAKS
                         "tenon() { '" TN_BUILD_DIR "/tenon' \"$@\"; }\n",
                         scratch_path("."));
    va_list list;
    va_start(list, script);
    vsnprintf(command + n, sizeof command - (size_t)n, script, list);
    va_end(list);
    int got = tree_run(command, out, sizeof out);
    return test_that(got == status, "%s: status %d: %.600s", command + n, got, out);
}

void prints(const char *text)
{
    test_that(strstr(out, text) != NULL, "\"%s\" is not in: %.600s", text, out);
}

FILE *create(const char *name)
{
    FILE *f = fopen(scratch_path(name), "wb");
    CHECK(f != NULL);
    return f;
}
