// tn_page_write: a page of a program's own, by the writer that the pages of the library use.
#include "inspect/inspect.h"

#include "base/json.h"
#include "base/page.h"

#include <errno.h>
#include <string.h>

// Returns what is wrong with a page's data, which has to be JSON; NULL if nothing is.
static const char *data_fault(const char *data)
{
    tni_json j;
    tni_json_open(&j, data, strlen(data));
    while (tni_json_next(&j) != TNI_JSON_END)
        if (j.kind == TNI_JSON_ERROR) return j.why;
    return NULL;
}

// Opens last what can fail for the reader's reasons: a page that is refused leaves an older file as
// it was.
tn_status tn_page_write(tn_ctx *cx, const char *path, tn_page page)
{
    if (!tni_ctx_ok(cx, "page_write")) return tni_failed();
    if (!path || !page.title || !page.data || !page.script)
        return tni_fail_status(cx, TN_EARG, "page_write: the path, title, data or script is NULL");
    const char *why = data_fault(page.data);
    if (why) return tni_fail_status(cx, TN_EARG, "page_write: the data is not JSON: %s", why);
    FILE *f  = fopen(path, "w");
    bool  ok = f && tni_page_write(f, &(tni_page){ page.title, page.note, page.data, page.script });
    int   no = errno;
    if (f && fclose(f) && ok) no = errno, ok = false;
    return ok ? TN_OK
              : tni_fail_status(cx, TN_EIO, "page_write: %s could not be written: %s",
                                tni_quoted(path).s, strerror(no));
}
