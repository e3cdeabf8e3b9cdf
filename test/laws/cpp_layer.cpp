// cpp_layer.cpp: what tenon.hpp promises, checked by a program that test_install.c compiles and runs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tenon.hpp>
#include <utility>

#define CHECK(c)                                                \
    do {                                                        \
        if (!(c)) {                                             \
            std::printf("line %d: not so: %s\n", __LINE__, #c); \
            std::exit(3);                                       \
        }                                                       \
    } while (0)

static double first(tenon::tensor t)
{
    return t.read<double>()[0];
}

static void operators_are_those_of_c()
{
    tenon::context cx("cpu");
    tenon::scope   s(cx);
    tenon::tensor  x = tn_full(cx, TN_F32, TN_SHAPE(2, 3), 4),
                  y  = tn_full(cx, TN_F32, TN_SHAPE(3), 2);
    CHECK(first(x + y) == 6 && first(x - y) == 2 && first(x * y) == 8 && first(x / y) == 2);
    CHECK(first(x + 1) == 5 && first(1 + x) == 5 && first(x - 1) == 3 && first(1 - x) == -3);
    CHECK(first(x * 2.5f) == 10 && first(2 * x) == 8 && first(x / 8) == 0.5 && first(8 / x) == 2);
    CHECK(first(x < y) == 0 && first(x > y) == 1 && first(x <= 4) == 1 && first(4 >= x) == 1);
    CHECK(first(3 < x) == 1 && first(5L > x) == 1 && first(-x) == -4);
    CHECK(first(tn_relu(-x)) == 0);
    CHECK(x.rank() == 2 && x.size(-1) == 3 && x.count() == 6 && x.dtype() == TN_F32);
    CHECK(x.read<float>().size() == 6 && y.read<int64_t>()[2] == 2);
    CHECK(x && !tenon::tensor() && tenon::tensor(tn_sum_all(x)).item() == 24);
}

// The line of the operator, also where a number comes first.
static void errors_are_exceptions_with_their_line()
{
    tenon::context cx("cpu");
    tenon::scope   s(cx);
    tenon::tensor  x = tn_ones(cx, TN_F32, TN_SHAPE(2)), y = tn_ones(cx, TN_F32, TN_SHAPE(3));
    for (int i = 0; i < 3; i++) {
        int line = 0;
        try {
            line = __LINE__ + 1;
            x + y;
            CHECK(!"it throws");
        } catch (const tenon::error &e) {
            CHECK(e.status() == TN_ESHAPE && e.line() == line &&
                  std::strstr(e.file(), "cpp_layer"));
            CHECK(std::strstr(e.what(), "add: shapes (2,) and (3,)"));
        }
        CHECK(tn_error(cx) == TN_OK && first(x + 1) == 2);
    }
    try {
        tn_matmul(x, tn_reshape(y, TN_SHAPE(3, 1)));  // a call of C throws too
        CHECK(!"it throws");
    } catch (const tenon::error &e) {
        CHECK(std::strstr(e.what(), "matmul"));
    }
    try {
        tenon::context none("no device of this name");
        CHECK(!"it throws");
    } catch (const tenon::error &e) {
        CHECK(std::strstr(e.what(), "no device of this name"));
    }
}

static void errors_are_values_where_they_are_wanted()
{
    tenon::context cx("cpu", tenon::errors::values);
    tn_on_error(cx, nullptr, nullptr);
    tenon::scope  s(cx);
    tenon::tensor x = tn_ones(cx, TN_F32, TN_SHAPE(2)), y = tn_ones(cx, TN_F32, TN_SHAPE(3));
    CHECK(!(x + y) && tn_error(cx) == TN_ESHAPE);
    CHECK(!tenon::context("no device of this name", tenon::errors::values));
}

// Everything recorded in a scope is gone when an exception leaves it.
static void scopes_end_when_exceptions_leave_them()
{
    tenon::context cx("cpu");
    tenon::tensor  x = tn_ones(cx, TN_F32, TN_SHAPE(2));
    tn_eval(cx);
    int64_t before = tn_ctx_stats(cx).nodes;
    for (int i = 0; i < 10; i++) {
        try {
            tenon::scope  s(cx);
            tenon::tensor y = tn_exp(x);
            y + tn_ones(cx, TN_F32, TN_SHAPE(3));
        } catch (const tenon::error &) {
        }
    }
    CHECK(tn_ctx_stats(cx).nodes == before);
    tenon::context moved(std::move(cx));
    CHECK(first(x + 1) == 2 && !static_cast<tn_ctx *>(cx));
}

int main()
{
    operators_are_those_of_c();
    errors_are_exceptions_with_their_line();
    errors_are_values_where_they_are_wanted();
    scopes_end_when_exceptions_leave_them();
    std::printf("all of it\n");
}
