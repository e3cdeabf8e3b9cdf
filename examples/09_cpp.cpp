// 09_cpp.cpp: the C++ layer: contexts and scopes that close themselves, operators, and errors as
// exceptions. Fits a line to noisy points by gradient descent.
//
//     c++ -std=c++11 examples/09_cpp.cpp -Iinclude -Lbuild -ltenon -Wl,-rpath,build -o line && ./line
#include <cstdio>
#include <tenon.hpp>

static void fit(tn_ctx *cx)
{
    tenon::scope  all(cx);
    tenon::tensor x = tn_want(tn_linspace(cx, TN_F32, -1, 1, 200));
    tenon::tensor y = tn_want(3 * x - 2 + 0.1 * tenon::tensor(tn_randn_like(x)));
    tenon::tensor w = tn_zeros(cx, TN_F32, TN_0D), b = tn_zeros(cx, TN_F32, TN_0D);
    tn_requires_grad(w, true);
    tn_requires_grad(b, true);

    for (int step = 0; step <= 60; step++) {
        tenon::scope  s(cx);
        tenon::tensor error = w * x + b - y;
        tenon::tensor loss  = tn_mean_all(error * error);
        tn_backward(loss, nullptr);
        {
            tenon::no_grad off(cx);
            tn_assign(w, w - 0.5 * tenon::tensor(tn_grad_of(w)));
            tn_assign(b, b - 0.5 * tenon::tensor(tn_grad_of(b)));
        }
        tn_zero_grad(w);
        tn_zero_grad(b);
        if (step % 20 == 0) std::printf("step %2d  loss %.4f\n", step, loss.item());
    }
    std::printf("y = %.1f x %+.1f\n", w.item(), b.item());
}

int main()
{
    try {
        tenon::context cx;
        fit(cx);
        tenon::scope  s(cx);
        tenon::tensor x = tn_ones(cx, TN_F32, TN_SHAPE(2, 3)), y = tn_ones(cx, TN_F32, TN_SHAPE(4));
        x + y;  // throws
    } catch (const tenon::error &e) {
        std::printf("line %d: %s\n", e.line(), e.what());
    }
}
