// terminal.c: properties of the terminal, printable text, the clock, messages and sizes.
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

// The bits are those of Unicode braille, U+2800 to U+28FF, which take three bytes in UTF-8.
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

// Returns the length of the UTF-8 character that begins with this byte; 0 if none does.
static int length_of(unsigned char lead)
{
    if (lead < 0x80) return 1;
    return lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
}

bool cli_is_utf8(const char *text)
{
    char shown[5];  // room for one byte that is written as \xNN
    for (size_t n; *text; text += n) {
        n = tn_escape(shown, sizeof shown, text);
        if ((unsigned char)*text >= 0x80 && *shown == '\\') return false;
        if (n == 0) n = (size_t)length_of((unsigned char)*text);  // a longer escape, of a character
    }
    return true;
}

// Prints the held bytes in printable form. Without a UTF-8 locale, bytes past ASCII are printed as
// \xNN.
static void print_held(cli_partial *p)
{
    char text[8] = "", shown[32];
    bool ascii   = p->count == 1 && p->byte[0] < 0x80;
    memcpy(text, p->byte, (size_t)p->count);
    tn_escape(shown, sizeof shown, text);
    if (*text == '\n' || *text == '\t') putchar(*text);
    else if (!*text) fputs("\\x00", stdout);
    else if (ascii || cli_utf8()) fputs(shown, stdout);
    else
        for (int i = 0; i < p->count; i++) printf("\\x%02x", (unsigned)p->byte[i]);
    p->count = 0;
}

static void print_byte(cli_partial *p, unsigned char c)
{
    if (p->count > 0 && (c & 0xc0) != 0x80) print_held(p);  // the character was cut short
    if (p->count == 0) p->need = length_of(c);
    p->byte[p->count++] = c;
    if (p->count >= p->need) print_held(p);
}

void cli_print_text(cli_partial *p, const char *text, size_t bytes)
{
    if (!isatty(fileno(stdout))) fwrite(text, 1, bytes, stdout);
    else
        for (size_t i = 0; i < bytes; i++) print_byte(p, (unsigned char)text[i]);
}

// ---- failures, memory, numbers

const char *cli_shown(const char *text)
{
    enum { RING = 4, ROOM = 4096 };
    static char ring[RING][ROOM];
    static int  next;

    char *room = ring[next++ % RING];
    if (text[tn_escape(room, ROOM - 3, text)]) strcat(room, "...");
    return room;
}

// Prints a word with unprintable characters as $'...', which ksh, bash and zsh read.
static void print_escaped_word(FILE *f, const char *word)
{
    fputs("$'", f);
    for (; *word; word++) {
        unsigned char c = (unsigned char)*word;
        if (c < ' ' || c >= 0x7f) fprintf(f, "\\%03o", (unsigned)c);
        else fprintf(f, c == '\'' || c == '\\' ? "\\%c" : "%c", c);
    }
    fputc('\'', f);
}

void cli_print_word(FILE *f, const char *word)
{
    if (strcmp(cli_shown(word), word) != 0) {
        print_escaped_word(f, word);
        return;
    }
    if (!word[strcspn(word, " \t\n\\\"'`$&|;<>()*?[]#~!{}")] && *word) {
        fputs(word, f);
        return;
    }
    fputc('\'', f);
    for (; *word; word++)
        if (*word == '\'') fputs("'\\''", f);
        else fputc(*word, f);
    fputc('\'', f);
}

void cli_say(const char *before, const char *format, va_list list, const char *after)
{
    char text[4096];
    vsnprintf(text, sizeof text, format, list);
    fprintf(stderr, "%s%s%s\n", before, cli_shown(text), after);
}

int cli_fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    cli_say("tenon: ", format, list, "");
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
    static const char *const unit[] = { "KiB", "MiB", "GiB", "TiB" };

    double v = (double)bytes / 1024;
    int    u = 0;
    if (bytes < 1024) {
        snprintf(to, size, "%lld B", (long long)bytes);
        return;
    }
    for (; v >= 1024 && u < 3; u++) v /= 1024;
    snprintf(to, size, "%.1f %s", v, unit[u]);
}
