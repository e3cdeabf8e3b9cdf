// test_cli_pages.c: the tool writes pages of plans and profiles, sets two profiles beside each
// other, and tunes.
#include "cli_kit.h"
#include "page_kit.h"
#include "scratch.h"

#include <stdlib.h>

static void check_page(const char *name, const char *list)
{
    char *data = page_data(scratch_path(name));
    CHECK(page_count(data, list) >= 1);
    free(data);
}

static void cases_and_programs_are_shown_as_pages(void)
{
    if (!begin()) return;
    runs(0, "tenon profile softmax --steps 1 --html a.html && TN_PROFILE=b.html '" TN_BUILD_DIR
            "/tenon' explain mlp_step && tenon profile --html c.html -- '" TN_BUILD_DIR
            "/tenon' explain mlp_step");
    check_page("a.html", "rows");
    check_page("b.html", "rows");
    check_page("c.html", "rows");
    runs(0, "tenon explain softmax --html d.html && tenon explain --html e.html -- '" TN_BUILD_DIR
            "/tenon' profile mlp_step --steps 1");
    check_page("d.html", "plans.0.steps");
    check_page("e.html", "plans.0.steps");
    runs(1, "tenon explain softmax --html no/where.html 2>&1");
    prints("no/where.html");
    runs(0, "TN_EXPLAIN=no/where.html tenon profile softmax --steps 1 2>&1");
    prints(
        "tenon: TN_EXPLAIN: \"no/where.html\" could not be written: No such file or directory\n");
    runs(0, "tenon explain softmax --source --html f.html");
    prints(" bytes moved, ");
    prints("reduce max 0 over R");
    prints("page in f.html\n");
    check_page("f.html", "plans.0.steps");
    runs(2, "tenon explain --source --html g.html -- true 2>&1");
    prints("of a program, --source or --html, not both: the page has the texts of kernels");
    scratch_close();
}

static void two_traces_are_compared(void)
{
    if (!begin()) return;
    runs(
        0,
        "tenon profile softmax --steps 1 --trace a.json && tenon profile softmax --steps 2 --trace b.json && "
        "tenon compare a.json b.json --html=c.html");
    prints(" of the time of a\n");
    prints("page in c.html\n");
    check_page("c.html", "rows");
    runs(1, "tenon compare a.json absent.json 2>&1");
    prints("absent.json: No such file or directory");
    runs(1, "tenon compare absent.onnx a.json 2>&1");
    prints("absent.onnx: No such file or directory");
    runs(1, "echo x >model; tenon compare a.json model 2>&1");
    prints("a.json is the trace of a profile, model is a model: they cannot be compared");
    runs(2, "tenon compare a.json b.json --html x 2>&1");
    prints("--html is a file whose name ends in .html, not \"x\"");
    runs(2, "tenon compare a.json b.json --tolerance 1 2>&1");
    prints("tenon compare A B [--html FILE]");
    scratch_close();
}

// Winners of a case are kept in the folder of the cache, told of, and moved to another folder.
static void kernels_of_a_case_and_of_a_program_are_tuned(void)
{
    if (!begin()) return;
    runs(0, "TN_TUNE=0 TN_CACHE_DIR=a tenon tune softmax --seconds 0.5 2>&1");
    prints("tenon: tuned ROW (1024, 1024): ");
    prints(" results differ from the rule's; they are kept in a\n");
    runs(0, "TN_CACHE_DIR=a tenon tune --export /dev/stdout | tee w.txt | "
            "TN_CACHE_DIR=b tenon tune --import /dev/stdin && test -s w.txt && "
            "TN_CACHE_DIR=b tenon explain softmax");
    prints("s by the rule");
    runs(1, "TN_DETERMINISTIC=1 tenon tune softmax 2>&1");
    prints("tenon: TN_DETERMINISTIC=1 leaves all to the rules: nothing would be measured\n");
    runs(0, "TN_CACHE_DIR=c tenon tune --seconds 0.2 echo of a program");
    prints("of a program\n");
    scratch_close();
}

static void winners_that_are_moved_are_counted(void)
{
    if (!begin()) return;
    runs(
        0,
        "printf 'winner 1 2 3 4 5 unroll=2 chip x\nwinner 1 3 3 4 5 - chip x\n' >two.txt; "
        "export TN_CACHE_DIR=a; tenon tune --import two.txt 2>&1 && tenon tune --export w.txt 2>&1");
    prints("tenon: 2 winners read from two.txt\ntenon: 2 winners written to w.txt\n");
    runs(0, "TN_CACHE_DIR=b tenon tune --export none.txt 2>&1");
    prints("tenon: 0 winners written to none.txt\n");
    prints("run tenon tune CASE or PROGRAM");
    runs(1, "TN_CACHE_DIR=b tenon tune --export no/where.txt 2>&1");
    prints("cannot be written: No such file or directory");
    scratch_close();
}

static void a_bad_number_of_seconds_gets_a_warning(void)
{
    if (!begin()) return;
    runs(0, "TN_TUNE=abc tenon explain softmax 2>&1");
    prints("warning: open: TN_TUNE is \"abc\", not a number of seconds, and is ignored\n");
    runs(1, "{ TN_TUNE=0.0 tenon explain softmax && TN_TUNE=1e-3 tenon explain softmax; } 2>&1 | "
            "grep warning");
    scratch_close();
}

const test_case tests_cli_pages[] = {
    TEST(cases_and_programs_are_shown_as_pages),        TEST(two_traces_are_compared),
    TEST(kernels_of_a_case_and_of_a_program_are_tuned), TEST(winners_that_are_moved_are_counted),
    TEST(a_bad_number_of_seconds_gets_a_warning),       TEST_END
};
