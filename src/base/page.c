// Writes a page around its data. What the parts look like is in page.css, what draws them in
// page.js.
#include "base/page.h"

#include "base/hash.h"
#include "base/text.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

extern const char tni_page_css[], tni_page_js[];

// The policy keeps a page from asking for anything, even if its data or a later edit tried to:
// pictures are inside it, as data.
static const char policy[] = "default-src 'none'; style-src 'unsafe-inline'; "
                             "script-src 'unsafe-inline'; img-src data:";

// Bytes that HTML gives a meaning become references; those that are not UTF-8 question marks.
static void put_text(FILE *f, const char *s)
{
    for (size_t left = strlen(s), n; left; s += n, left -= n) {
        n = tni_utf8(s, left);
        if (*s == '<') fputs("&lt;", f);
        else if (*s == '>') fputs("&gt;", f);
        else if (*s == '&') fputs("&amp;", f);
        else if (n) fwrite(s, 1, n, f);
        else fputc('?', f);
        if (!n) n = 1;
    }
}

// In JSON a "<" stands in strings alone, where it can be written by its number.
static void put_data(FILE *f, const char *json)
{
    for (const char *next; *json; json = next + 1) {
        next = json + strcspn(json, "<");
        fwrite(json, 1, (size_t)(next - json), f);
        if (!*next) return;
        fputs("\\u003c", f);
    }
}

// Style and scripts are inside the page, in the order that they need each other: the data is there
// before page.js reads it, and that before the script of the page. The title comes twice: for the
// tab of the browser, and as the heading.
bool tni_page_write(FILE *f, const tni_page *p)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
          f);
    fprintf(f, "<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n<title>", policy);
    put_text(f, p->title);
    fprintf(f, "</title>\n<style>\n%s</style></head><body>\n<header><h1>", tni_page_css);
    put_text(f, p->title);
    fputs("</h1><p id=\"note\">", f);
    put_text(f, p->note ? p->note : "");
    fputs("</p></header>\n<noscript>This page is drawn by the script in it.</noscript>\n"
          "<main id=\"main\"></main>\n<script id=\"data\" type=\"application/json\">\n",
          f);
    put_data(f, p->data);
    fprintf(f, "\n</script>\n<script>\n%s</script>\n<script>\n%s</script></body></html>\n",
            tni_page_js, p->script);
    return !ferror(f);
}

// Returns how many files of a name were opened, with this one. A process has few such names; of
// more than are kept each file is the first.
static int count_file(const char *path)
{
    enum { NAMES = 16 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        uint64_t hash;
        int      files;
    } seen[NAMES];
    uint64_t hash = tni_hash(path, strlen(path));
    int      i = 0, n = 1;
    pthread_mutex_lock(&lock);
    while (i < NAMES && seen[i].files && seen[i].hash != hash) i++;
    if (i < NAMES) seen[i].hash = hash, n = ++seen[i].files;
    pthread_mutex_unlock(&lock);
    return n;
}

FILE *tni_page_open_next(const char *path)
{
    char        name[4096];
    const char *dot = strrchr(path, '.');
    int         n = count_file(path), stem = (int)(dot ? dot - path : (long)strlen(path));
    if (n == 1) return fopen(path, "w");
    int bytes = snprintf(name, sizeof name, "%.*s-%d%s", stem, path, n, path + stem);
    if (bytes < (int)sizeof name) return fopen(name, "w");
    errno = ENAMETOOLONG;
    return NULL;
}
