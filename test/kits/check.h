// check.h: what a file of tests includes.
//
// A test is a static function whose name is a sentence. A failing check is recorded with its line
// and the test goes on; every check also returns whether it held, for a test that cannot go on:
//
//     if (!CHECK(x != NULL)) return;
//
// A file ends with its table, and tests.h names the table:
//
//     const test_case tests_math[] = { TEST(exp_of_zero_is_one), TEST_END };
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <stdbool.h>
#include <stdint.h>

// Whether the build has internal checks: freed objects and closed contexts then stay, so that stale
// handles can be told.
#ifdef TN_DEBUG
enum { TEST_DEBUG = 1 };
#else
enum { TEST_DEBUG = 0 };
#endif

// One test: its function, and the function's name as the runner prints and filters it.
typedef struct {
    const char *name;
    void (*run)(void);
} test_case;

// clang-format off
#define TEST(function) { #function, function }
#define TEST_END       { 0, 0 }
// clang-format on

#define CHECK(...)             test_check((__VA_ARGS__) ? true : false, __FILE__, __LINE__, #__VA_ARGS__)
#define CHECK_INT(a, b)        test_int((int64_t)(a), (int64_t)(b), __FILE__, __LINE__, #a)
#define CHECK_STR(a, b)        test_str((a), (b), __FILE__, __LINE__, #a)
#define CHECK_NEAR(a, b, tol)  test_near((a), (b), (tol), __FILE__, __LINE__, #a)
#define CHECK_STATUS(call, st) test_status((int)(call), (int)(st), __FILE__, __LINE__, #call, #st)

// Ends the test as skipped; the reason is a format with its arguments.
#define SKIP(...)               \
    do {                        \
        test_skip(__VA_ARGS__); \
        return;                 \
    } while (0)

#if defined(__GNUC__)
#define TEST_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define TEST_PRINTF(text, first)
#endif

// One case of a table-driven test. Cases are counted one by one; the text names a case that fails,
// and of one test the first 20 are printed.
bool test_case_result(bool ok, const char *fmt, ...) TEST_PRINTF(2, 3);

// How many cases a test of many draws: what TN_GRAPHS says, else as many as it normally does.
int test_draws(int normal);

// Whether every case of a large product is wanted (TN_TEST_LONG=1, as `make test-long` sets it). A
// plain run takes a sample: the same cases in every run, and every op with every dtype among them.
bool test_long(void);

// A check in words of its own, for a test over many files or names; not a case.
bool test_that(bool ok, const char *fmt, ...) TEST_PRINTF(2, 3);

bool test_check(bool ok, const char *file, int line, const char *text);
bool test_int(int64_t a, int64_t b, const char *file, int line, const char *text);
bool test_str(const char *a, const char *b, const char *file, int line, const char *text);
bool test_near(double a, double b, double tol, const char *file, int line, const char *text);
bool test_status(int a, int b, const char *file, int line, const char *text, const char *want);
void test_skip(const char *fmt, ...) TEST_PRINTF(1, 2);

#endif
