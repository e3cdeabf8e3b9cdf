// page_kit.c: reads the data out of a page, and values out of that.
#include "page_kit.h"

#include "check.h"
#include "scratch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char begins[] = "<script id=\"data\" type=\"application/json\">\n";

// Nothing that a browser would fetch may be in the text around the data.
static bool asks_for_nothing(const char *page, const char *data)
{
    static const char *const asking[] = { " src=",  " href=",         "@import",
                                          "fetch(", "XMLHttpRequest", "url(http" };
    for (int i = 0; i < (int)(sizeof asking / sizeof *asking); i++) {
        const char *at = strstr(page, asking[i]);
        if (at && (at < data || at > strstr(data, "</script>"))) return false;
    }
    return strstr(page, "default-src 'none'") != NULL;
}

static bool is_json(const char *text)
{
    tni_json j;
    tni_json_open(&j, text, strlen(text));
    while (tni_json_next(&j) != TNI_JSON_END)
        if (j.kind == TNI_JSON_ERROR) return false;
    return true;
}

char *page_read(const char *path)
{
    size_t bytes;
    char  *file = scratch_read(path, &bytes), *text = file ? strndup(file, bytes) : NULL;
    free(file);
    return text;
}

// Whether the scripts of a page come to their end, without a browser; true where there is no Node.
static bool scripts_run(const char *path)
{
    char command[1024];
    if (system("node --version >/dev/null 2>&1") != 0) return true;
    snprintf(command, sizeof command, "node '%s/test/run_page.js' '%s'", TN_SOURCE_DIR, path);
    return system(command) == 0;
}

char *page_data(const char *path)
{
    char       *page = page_read(path);
    const char *from = page ? strstr(page, begins) : NULL;
    const char *to   = from ? strstr(from, "\n</script>") : NULL;
    char       *data = NULL;
    if (CHECK(to && asks_for_nothing(page, from + sizeof begins - 1)))
        data = strndup(from + sizeof begins - 1, (size_t)(to - from) - (sizeof begins - 1));
    if (data && !CHECK(is_json(data))) {
        free(data);
        data = NULL;
    }
    CHECK(!data || scripts_run(path));
    free(page);
    return data;
}

// Moves from the first token of an object or array to the first token of one of its values.
static bool enter(tni_json *j, const char *key, size_t length)
{
    char name[128];
    bool in_array = j->kind == TNI_JSON_ARRAY;
    long wanted   = in_array ? strtol(key, NULL, 10) : 0;
    snprintf(name, sizeof name, "%.*s", (int)length, key);
    if (!in_array && j->kind != TNI_JSON_OBJECT) return false;
    for (long i = 0;; i++) {
        tni_json_kind k = tni_json_next(j);
        if (k == TNI_JSON_OBJECT_END || k == TNI_JSON_ARRAY_END || k == TNI_JSON_ERROR)
            return false;
        bool here = in_array ? i == wanted : tni_json_is(j, name);
        if (!in_array) tni_json_next(j);
        if (here) return true;
        if (!tni_json_skip(j)) return false;
    }
}

bool page_find(const char *json, const char *path, tni_json *at)
{
    tni_json_open(at, json, strlen(json));
    tni_json_next(at);
    while (*path) {
        size_t n = strcspn(path, ".");
        if (!enter(at, path, n)) return false;
        path += n + (path[n] == '.');
    }
    return true;
}

double page_number(const char *json, const char *path)
{
    tni_json j;
    double   v = NAN;
    if (!CHECK(json && page_find(json, path, &j) && tni_json_double(&j, &v))) puts(path);
    return v;
}

const char *page_text(const char *json, const char *path)
{
    static char text[1 << 12];
    tni_json    j;
    text[0] = 0;
    if (!CHECK(json && page_find(json, path, &j) && j.kind == TNI_JSON_STRING &&
               tni_json_string(&j, text, sizeof text) >= 0))
        puts(path);
    return text;
}

int page_count(const char *json, const char *path)
{
    tni_json j;
    int      n = 0;
    if (!json || !page_find(json, path, &j) || j.kind != TNI_JSON_ARRAY) return -1;
    while (tni_json_next(&j) != TNI_JSON_ARRAY_END && tni_json_skip(&j)) n++;
    return n;
}
