// test_page.c: pages hold their data whatever is in it, and refuse what is no page.
#include "check.h"
#include "page_kit.h"
#include "rules_kit.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>
#include <tenon.h>

static char *write_and_read(tn_ctx *cx, const char *title, const char *data)
{
    const char *path = scratch_path("page.html");
    tn_page     page = {
            .title = title, .note = "a & b", .data = data, .script = "facts(section('a'), {});"
    };
    CHECK_STATUS(tn_page_write(cx, path, page), TN_OK);
    return page_data(path);
}

// A name in a model or a path may hold anything, and must neither end the script nor start one.
static void data_cannot_leave_its_script(void)
{
    tn_ctx *cx = rules_open("cpu");
    if (!CHECK(scratch_open())) return;
    char *data = write_and_read(cx, "<script>alert(1)</script>\xff",
                                "{\"a\":[1,\"</script><b>\\\"\"],\"b\":2.5}");
    char *page = page_read(scratch_path("page.html"));
    CHECK_STR(page_text(data, "a.1"), "</script><b>\"");
    CHECK_NEAR(page_number(data, "b"), 2.5, 0);
    CHECK_INT(page_count(data, "a"), 2);
    CHECK(page && strstr(page, "&lt;script&gt;alert(1)&lt;/script&gt;?") != NULL);
    CHECK(page && strstr(page, "a &amp; b") && !strstr(page, "<script>alert"));
    free(page);
    free(data);
    scratch_close();
    tn_close(cx);
}

static void what_is_no_page_is_refused(void)
{
    tn_ctx *cx   = rules_open("cpu");
    tn_page page = { .title = "t", .data = "{\"a\":}", .script = "" };
    CHECK_STATUS(tn_page_write(cx, "/dev/null", page), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "page_write: the data is not JSON");
    page.data = "{}";
    CHECK_STATUS(tn_page_write(cx, NULL, page), TN_EARG);
    CHECK_FAILED(cx, TN_EARG, "page_write: the path");
    CHECK_STATUS(tn_page_write(cx, "/nowhere/at/all.html", page), TN_EIO);
    CHECK_FAILED(cx, TN_EIO, "page_write: \"/nowhere/at/all.html\" could not be written");
    CHECK_STATUS(tn_page_write(cx, "/dev/null", page), TN_OK);
    tn_close(cx);
}

const test_case tests_page[] = { TEST(data_cannot_leave_its_script),
                                 TEST(what_is_no_page_is_refused), TEST_END };
