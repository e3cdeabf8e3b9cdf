// terminal.c: what the terminal can show, the clock, and how failures and sizes are told.
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

double cli_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool cli_is_terminal(FILE *f)
{
    const char *term = getenv("TERM");
    return isatty(fileno(f)) && term && strcmp(term, "dumb") != 0;
}

bool cli_colours(FILE *f)
{
    const char *no = getenv("NO_COLOR");
    return cli_is_terminal(f) && !(no && *no);
}

bool cli_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (int i = 0; i < 3; i++) {
        const char *v = getenv(names[i]);
        if (v && *v)  // the first one that is set decides
            return strstr(v, "UTF-8") || strstr(v, "utf8") || strstr(v, "UTF8") ||
                   strstr(v, "utf-8");
    }
    return false;
}

int cli_columns(FILE *f)
{
    struct winsize size;
    if (ioctl(fileno(f), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

void cli_print_dots(bool dots[CLI_DOTS_Y][CLI_DOTS_X])
{
    static const unsigned char bits[CLI_DOTS_Y][CLI_DOTS_X] = {
        { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 }
    };

    unsigned cell = 0;
    for (int y = 0; y < CLI_DOTS_Y; y++)
        for (int x = 0; x < CLI_DOTS_X; x++)
            if (dots[y][x]) cell |= bits[y][x];
    if (cell) printf("\xe2%c%c", (int)(0xa0 + (cell >> 6)), (int)(0x80 + (cell & 63)));
    else putchar(' ');
}

// ---- text of a network

// How many bytes the UTF-8 character that begins with this one has; 0 where none does.
static int length_of(unsigned char lead)
{
    if (lead < 0x80) return 1;
    return lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
}

// Controls would move the cursor or change the terminal.
static bool is_shown(const cli_partial *p)
{
    unsigned char c = p->byte[0];
    if (p->count == 1) return c == '\n' || c == '\t' || (c >= ' ' && c < 0x7f);
    return cli_utf8() && !(c == 0xc2 && p->byte[1] < 0xa0);
}

static void print_byte(cli_partial *p, unsigned char c)
{
    if (p->count > 0 && (c & 0xc0) != 0x80) {  // the character was cut short
        putchar('?');
        p->count = 0;
    }
    if (p->count == 0) p->need = length_of(c);
    p->byte[p->count++] = c;
    if (p->count < p->need) return;
    if (p->need > 0 && is_shown(p)) fwrite(p->byte, 1, (size_t)p->count, stdout);
    else putchar('?');
    p->count = 0;
}

void cli_print_text(cli_partial *p, const char *text, size_t bytes)
{
    if (!isatty(fileno(stdout))) fwrite(text, 1, bytes, stdout);
    else
        for (size_t i = 0; i < bytes; i++) print_byte(p, (unsigned char)text[i]);
}

// ---- failures, memory, numbers

int cli_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("tenon: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    return 1;
}

int cli_fail_of(const tn_ctx *cx)
{
    const char *text = tn_error_text(cx);
    return cli_fail("%s", *text ? text : tn_error_text(NULL));
}

void *cli_alloc(tn_ctx *cx, int64_t count, size_t size)
{
    void *memory = calloc(count > 0 ? (size_t)count : 1, size);
    return memory ? memory : tn_error_set(cx, TN_EMEM, "out of memory");
}

const char *cli_s(int64_t count)
{
    return count == 1 ? "" : "s";
}

void cli_write_bytes(char *to, size_t size, int64_t bytes)
{
    if (bytes < 10000) snprintf(to, size, "%lld B", (long long)bytes);
    else if (bytes < 1000000) snprintf(to, size, "%.1f KB", 1e-3 * (double)bytes);
    else if (bytes < 1000000000) snprintf(to, size, "%.1f MB", 1e-6 * (double)bytes);
    else snprintf(to, size, "%.1f GB", 1e-9 * (double)bytes);
}
