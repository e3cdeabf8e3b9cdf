// tenon.hpp: a thin C++11 layer over tenon.h: contexts and scopes that close themselves, operators, and
// exceptions for errors, if wanted. It only adds types: a tenon::tensor is a tn_tensor * with operators, and
// every function and macro of tenon.h accepts it.
//
//     tenon::context cx("cpu");
//     tenon::scope   s(cx);
//     tenon::tensor  x = tn_randn(cx, TN_F32, TN_SHAPE(2, 3));
//     tenon::tensor  y = tn_relu(2 * x + 1);
//     std::printf("%g\n", tenon::tensor(tn_sum_all(y)).item());
#ifndef TENON_HPP
#define TENON_HPP

#include <exception>
#include <stdexcept>
#include <tenon.h>
#include <type_traits>
#include <vector>

namespace tenon
{

// Thrown by a failing call in a context with errors::exceptions. what() names the op, the argument and the
// shapes.
class error : public std::runtime_error
{
  public:
    explicit error(const tn_fault &f)
        : std::runtime_error(f.text), status_(f.code), file_(f.file), line_(f.line)
    {
    }
    error(tn_status status, const char *text) : std::runtime_error(text), status_(status) {}

    tn_status status() const noexcept
    {
        return status_;
    }
    const char *file() const noexcept
    {
        return file_;
    }  // of the call; "" if unknown
    int line() const noexcept
    {
        return line_;
    }

  private:
    tn_status   status_;
    const char *file_ = "";
    int         line_ = 0;
};

// How a context reports errors: by throwing tenon::error, or as values, as in C: a call returns NULL or a
// status, and tn_error_text returns the reason.
enum class errors { exceptions, values };

// Owns a context and closes it. Converts to tn_ctx *.
class context
{
  public:
    explicit context(const char *device = nullptr, errors how = errors::exceptions)
        : context(options(device), how)
    {
    }

    // With errors::exceptions, the handler of o is replaced.
    explicit context(tn_open_opts o, errors how = errors::exceptions) : cx_(tn_open_with(o))
    {
        if (how == errors::values) return;
        if (!cx_) throw error(tn_error(nullptr), tn_error_text(nullptr));
        tn_on_error(cx_, raise, nullptr);
    }

    ~context()
    {
        tn_close(cx_);
    }

    context(context &&other) noexcept : cx_(other.cx_)
    {
        other.cx_ = nullptr;
    }
    context(const context &)            = delete;
    context &operator=(const context &) = delete;
    context &operator=(context &&)      = delete;

    operator tn_ctx *() const noexcept
    {
        return cx_;
    }

  private:
    static tn_open_opts options(const char *device)
    {
        tn_open_opts o = tn_open_opts();
        o.device       = device;
        return o;
    }

    // Throwing is safe here: the handler is called as the last act of the call that failed.
    static void raise(tn_ctx *cx, const tn_fault *f, void *)
    {
        error e(*f);
        tn_error_clear(cx);
        throw e;
    }

    tn_ctx *cx_;
};

// Owns a scope and ends it: tensors made in it die, except those that tn_keep moved out. Scopes must end in
// reverse order, as C++ destroys them. Ending a scope may report an error of its work, such as an index out
// of range: the destructor then throws, unless another exception is being handled.
class scope
{
  public:
    explicit scope(tn_ctx *cx) : s_(tn_begin(cx)) {}
    ~scope() noexcept(false)
    {
        if (!unwinding()) {
            end();
            return;
        }
        try {
            end();
        } catch (const error &) {
        }
    }
    scope(const scope &)            = delete;
    scope &operator=(const scope &) = delete;

    void end()
    {
        tn_scope *s = s_;
        s_          = nullptr;
        if (s) tn_end(s);
    }

  private:
    // C++20 removed std::uncaught_exception.
    static bool unwinding() noexcept
    {
#if __cplusplus >= 201703L
        return std::uncaught_exceptions() > 0;
#else
        return std::uncaught_exception();
#endif
    }

    tn_scope *s_;
};

// Turns gradient mode off during its life, and then restores it.
class no_grad
{
  public:
    explicit no_grad(tn_ctx *cx) : cx_(cx), before_(tn_grad_mode(cx, false)) {}
    ~no_grad()
    {
        tn_grad_mode(cx_, before_);
    }
    no_grad(const no_grad &)            = delete;
    no_grad &operator=(const no_grad &) = delete;

  private:
    tn_ctx *cx_;
    bool    before_;
};

// Computes products in 16 bits (tn_autocast) during its life, and then restores the mode.
class autocast
{
  public:
    explicit autocast(tn_ctx *cx, tn_dtype mode = TN_BF16)
        : cx_(cx), before_(tn_autocast(cx, mode))
    {
    }
    ~autocast()
    {
        tn_autocast(cx_, before_);
    }
    autocast(const autocast &)            = delete;
    autocast &operator=(const autocast &) = delete;

  private:
    tn_ctx  *cx_;
    tn_dtype before_;
};

// A tn_tensor * with operators. It owns nothing: the tensor lives as long as its scope, and copies refer to
// the same tensor.
class tensor
{
  public:
    tensor() noexcept = default;
    tensor(tn_tensor *t) noexcept : t_(t) {}

    // A template, so that the built-in operators of pointers do not apply.
    template <class T, class = typename std::enable_if<std::is_same<T, tn_tensor *>::value>::type>
    operator T() const noexcept
    {
        return t_;
    }
    tn_tensor *get() const noexcept
    {
        return t_;
    }
    explicit operator bool() const noexcept
    {
        return t_ != nullptr;
    }

    tn_dtype dtype() const
    {
        return tn_dtype_of(t_);
    }
    int rank() const
    {
        return tn_rank(t_);
    }
    int64_t size(int axis) const
    {
        return tn_size(t_, axis);
    }
    int64_t count() const
    {
        return tn_count(t_);
    }
    double item() const
    {
        return tn_item(t_);
    }

    // Returns the elements in row-major order, converted to a C++ type. Empty on error.
    template <class T> std::vector<T> read() const
    {
        std::vector<T> v(static_cast<std::size_t>(t_ ? tn_count(t_) : 0));
        if (tn_read(t_, dtype_of<T>(), v.data(), static_cast<int64_t>(v.size())) != TN_OK)
            v.clear();
        return v;
    }

  private:
    template <class T> static constexpr tn_dtype dtype_of()
    {
        static_assert(std::is_same<T, float>::value || std::is_same<T, double>::value ||
                          std::is_same<T, int32_t>::value || std::is_same<T, int64_t>::value ||
                          std::is_same<T, uint8_t>::value,
                      "read() gives float, double, int32_t, int64_t or uint8_t");
        return std::is_same<T, float>::value     ? TN_F32
               : std::is_same<T, double>::value  ? TN_F64
               : std::is_same<T, int32_t>::value ? TN_I32
               : std::is_same<T, int64_t>::value ? TN_I64
                                                 : TN_U8;
    }

    tn_tensor *t_ = nullptr;
};

// ---- operators ---------------------------------------------------------------------------------

// An operand of an operator: a tensor or a number, with the file and line of the operator for errors.
class operand
{
  public:
    operand(const tensor &t, const char *file = __builtin_FILE(), int line = __builtin_LINE())
        : t(t.get()), file(file), line(line)
    {
    }
    operand(tn_tensor *t, const char *file = __builtin_FILE(), int line = __builtin_LINE())
        : t(t), file(file), line(line)
    {
    }
    template <class T, class = typename std::enable_if<std::is_arithmetic<T>::value>::type>
    operand(T v, const char *file = __builtin_FILE(), int line = __builtin_LINE())
        : number(true), v(static_cast<double>(v)), file(file), line(line)
    {
    }

    tn_tensor  *t      = nullptr;
    bool        number = false;
    double      v      = 0;
    const char *file;
    int         line;
};

// At least one operand is a tensor: otherwise C++ uses the operator of numbers.
#define TENON_OPERATOR(sign, both, right, left)                     \
    inline tensor operator sign(const operand &a, const operand &b) \
    {                                                               \
        return b.number   ? right##_at(a.file, a.line, a.t, b.v)    \
               : a.number ? left##_at(a.file, a.line, b.t, a.v)     \
                          : both##_at(a.file, a.line, a.t, b.t);    \
    }
TENON_OPERATOR(+, tn_add, tn_add_s, tn_add_s)
TENON_OPERATOR(-, tn_sub, tn_sub_s, tn_rsub_s)
TENON_OPERATOR(*, tn_mul, tn_mul_s, tn_mul_s)
TENON_OPERATOR(/, tn_div, tn_div_s, tn_rdiv_s)
TENON_OPERATOR(<, tn_lt, tn_lt_s, tn_gt_s)
TENON_OPERATOR(<=, tn_le, tn_le_s, tn_ge_s)
TENON_OPERATOR(>, tn_gt, tn_gt_s, tn_lt_s)
TENON_OPERATOR(>=, tn_ge, tn_ge_s, tn_le_s)
#undef TENON_OPERATOR

inline tensor operator-(const operand &x)
{
    return tn_neg_at(x.file, x.line, x.t);
}

}  // namespace tenon

#endif
