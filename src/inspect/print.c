// tn_print: a tensor in text, laid out as NumPy lays out an array.
//
// A number is written with the fewest digits that read back as the same number of its dtype, and no
// more than 8 behind the point. All numbers of a tensor share one form: plain, or with an exponent
// when the largest is too large for its dtype's digits, the smallest is below 1e-4, or they are
// more than a factor of 1000 apart. Columns line up, lines break before column 75, and of a tensor of
// more than 1000 elements only the first and last 3 along each axis are shown, and read.
#include "engine/engine.h"

#include "kernel/prelude.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 75, EDGE = 3, MOST = 1000, PLACES = 8, WORD = 64 };

// ---- digits ------------------------------------------------------------------------------------

// A finite number in decimal: digit[0].digit[1]... times ten to exp. No zeros at the end, but for
// the one digit of zero.
typedef struct {
    bool negative;
    int  count, exp;
    char digit[24];
} decimal;

#define AS_SELF(host, stem)  (host) v
#define AS_TRUTH(host, stem) v
#define AS_WRAP(host, stem)  v
#define AS_ROUND(host, stem) m_##stem##_to_float(m_double_to_##stem(v))

// A double rounded to a dtype, as a double.
static double rounded(tn_dtype dt, double v)
{
    switch (dt) {
// clang-format off
#define DTYPE(id, name, class, held, in, host, kernel, stem, ...) \
    case TN_##id: return AS_##held(host, stem);
#include "tensor/dtype.def"
        // clang-format on
    }
    return v;
}

// v to n digits, correctly rounded.
static decimal digits_of(double v, int n)
{
    char    text[48];
    decimal d = { .negative = signbit(v) != 0 };
    snprintf(text, sizeof text, "%.*e", n - 1, fabs(v));
    const char *s = text;
    for (; *s != 'e'; s++)  // the decimal point may be any character of the user's locale
        if (*s >= '0' && *s <= '9') d.digit[d.count++] = *s;
    d.exp = atoi(s + 1);
    while (d.count > 1 && d.digit[d.count - 1] == '0') d.count--;
    return d;
}

static bool reads_back(const decimal *d, tn_dtype dt, double v)
{
    char text[48];
    snprintf(text, sizeof text, "%.*se%d", d->count, d->digit, d->exp - d->count + 1);
    v = fabs(v);
    return dt == TN_F32 ? strtof(text, NULL) == (float)v : rounded(dt, strtod(text, NULL)) == v;
}

// The next larger number of n digits.
static void step_up(decimal *d, int n)
{
    while (d->count < n) d->digit[d->count++] = '0';
    while (d->count && d->digit[d->count - 1] == '9') d->count--;
    if (d->count) {
        d->digit[d->count - 1]++;
    } else {
        d->digit[d->count++] = '1';
        d->exp++;
    }
}

// The fewest digits that read back. Below a power of two numbers lie closer together than above,
// so there a number that is not the nearest of its length may be the one that reads back.
static decimal shortest(tn_dtype dt, double v)
{
    decimal d = { 0 };
    for (int n = 1; n <= 17; n++) {
        d = digits_of(v, n);
        if (reads_back(&d, dt, v)) break;
        decimal up = d;
        step_up(&up, n);
        if (reads_back(&up, dt, v)) return up;
    }
    return d;
}

// ---- one form for all numbers ------------------------------------------------------------------

// Widths of the parts of a number: before the point, behind it, and the digits of the exponent (0:
// none is written). whole is how wide a number is.
typedef struct {
    tn_dtype dtype;
    bool     exponent, single;  // single: the one number of a 0-d tensor
    int      left, right, exp_digits, whole;
} form;

// The digits shown of v.
static decimal shown(const form *f, double v)
{
    decimal d    = shortest(f->dtype, v);
    int     most = f->exponent ? PLACES + 1 : PLACES + 1 + d.exp;
    return f->single || d.count <= most ? d : digits_of(v, most);
}

static int left_of(const form *f, const decimal *d)
{
    return d->negative + (f->exponent || d->exp < 0 ? 1 : d->exp + 1);
}

static int right_of(const form *f, const decimal *d)
{
    int n = f->exponent ? d->count - 1 : d->count - 1 - d->exp;
    return n < 0 || (d->count == 1 && d->digit[0] == '0') ? 0 : n;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

// From here on a dtype's digits do not reach down to the units, or past 8 places. All decimals of so
// many digits are numbers of the dtype; two are shown of any.
static double exponent_from(tn_dtype dt)
{
    int digits = (int)((tni_dtype_table[dt].digits - 1) * 0.30102999566398120);
    return pow(10, digits < 2 ? 2 : digits < PLACES ? digits : PLACES);
}

// Comparisons are those of the dtype: f32's 1e-4 is not below 1e-4.
static bool wants_exponent(tn_dtype dt, int64_t n, const double *x)
{
    double most = 0, least = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double v = fabs(x[i]);
        if (!isfinite(v) || v == 0) continue;
        if (v > most) most = v;
        if (v < least) least = v;
    }
    double limit = exponent_from(dt);
    return most > 0 &&
           (most >= limit || least < rounded(dt, 1e-4) || rounded(dt, most / least) > 1000);
}

static form float_form(tn_dtype dt, int64_t n, const double *x)
{
    form f         = { .dtype = dt, .exponent = wants_exponent(dt, n, x) };
    bool minus_inf = false, odd = false;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            odd = true;
            minus_inf |= x[i] < 0;
            continue;
        }
        decimal d    = shown(&f, x[i]);
        f.left       = larger(f.left, left_of(&f, &d));
        f.right      = larger(f.right, right_of(&f, &d));
        f.exp_digits = larger(f.exp_digits, !f.exponent ? 0 : abs(d.exp) > 99 ? 3 : 2);
    }
    int behind = f.right + 1 + (f.exponent && f.exp_digits ? f.exp_digits + 2 : 0);
    if (odd) f.left = larger(f.left, 3 + minus_inf - behind);
    f.whole = f.left + behind;
    return f;
}

static form int_form(tn_dtype dt, int64_t n, const int64_t *x)
{
    form f = { .dtype = dt, .whole = dt == TN_BOOL ? 5 : 0 };
    for (int64_t i = 0; i < n && dt != TN_BOOL; i++)
        f.whole = larger(f.whole,
                         snprintf(NULL, 0, dt == TN_U64 ? "%llu" : "%lld", (long long)x[i]));
    return f;
}

// ---- words -------------------------------------------------------------------------------------

// Text being built; what does not fit is cut.
typedef struct {
    char s[WORD];
    int  n;
} word;

static void put(word *w, int count, char c)
{
    for (; count > 0 && w->n < WORD - 1; count--) w->s[w->n++] = c;
    w->s[w->n] = 0;
}

// The digits of d from place `from` (its first is place 0) to before `to`; zeros around them.
static void put_digits(word *w, const decimal *d, int from, int to)
{
    for (int i = from; i < to; i++) put(w, 1, i >= 0 && i < d->count ? d->digit[i] : '0');
}

static word plain_word(const form *f, const decimal *d)
{
    word w     = { .n = 0 };
    int  right = right_of(f, d);
    put(&w, f->left - left_of(f, d), ' ');
    put(&w, d->negative, '-');
    if (d->exp < 0) put(&w, 1, '0');
    put_digits(&w, d, 0, d->exp + 1);
    put(&w, 1, '.');
    put_digits(&w, d, d->exp + 1, d->exp + 1 + right);
    put(&w, f->single ? right == 0 : 0, '0');
    put(&w, f->right - right, ' ');
    return w;
}

// All numbers have as many digits as the longest, true ones also where fewer would read back.
static word exponent_word(const form *f, double v)
{
    decimal  short_form = shown(f, v), long_form = digits_of(v, f->right + 1);
    decimal *d = short_form.count > f->right ? &short_form : &long_form;
    word     w = { .n = 0 };
    put(&w, f->left - left_of(f, d), ' ');
    put(&w, d->negative, '-');
    put_digits(&w, d, 0, 1);
    put(&w, !f->single || f->right > 0, '.');
    put_digits(&w, d, 1, 1 + f->right);
    w.n += snprintf(w.s + w.n, (size_t)(WORD - w.n), "e%c%0*d", d->exp < 0 ? '-' : '+',
                    f->exp_digits, abs(d->exp));
    return w;
}

static word float_word(const form *f, double v)
{
    if (isfinite(v)) {
        if (f->exponent) return exponent_word(f, v);
        decimal d = shown(f, v);
        return plain_word(f, &d);
    }
    word        w    = { .n = 0 };
    const char *name = isnan(v) ? "nan" : v < 0 ? "-inf" : "inf";
    w.n              = snprintf(w.s, WORD, "%*s", f->whole, name);
    return w;
}

static word int_word(const form *f, int64_t v)
{
    word w = { .n = 0 };
    if (f->dtype == TN_BOOL) w.n = snprintf(w.s, WORD, "%*s", f->whole, v ? "True" : "False");
    else w.n = snprintf(w.s, WORD, f->dtype == TN_U64 ? "%*llu" : "%*lld", f->whole, (long long)v);
    return w;
}

// A number alone keeps all its digits, and has an exponent below 1e-4 and from where its dtype's
// digits end.
static word single_float(tn_dtype dt, double v)
{
    double a = fabs(v), most = dt == TN_F64 ? 1e16 : exponent_from(dt);
    form   f   = { .dtype = dt, .single = true };
    f.exponent = a != 0 && !(a >= 1e-4 && a < most);
    if (f.exponent && isfinite(v)) {
        decimal d    = shown(&f, v);
        f.right      = right_of(&f, &d);
        f.exp_digits = 2;
    }
    return float_word(&f, v);
}

// ---- brackets and lines ------------------------------------------------------------------------

// The elements that are shown, row-major, and where the pen stands. Spaces are held back until
// something follows them, so that no line that breaks ends in one.
typedef struct {
    FILE    *out;
    form     form;
    int      rank;
    bool     cut[TN_MAX_RANK];    // along this axis only the edges are shown
    int64_t  count[TN_MAX_RANK];  // of shown elements
    double  *f;                   // floats, or
    int64_t *i;                   // the rest
    int      column, held;
} page;

static void write_text(page *p, const char *text, int n)
{
    for (; n > 0 && *text == ' '; text++, n--) p->held++, p->column++;
    if (n <= 0) return;
    int end = n;
    while (end > 0 && text[end - 1] == ' ') end--;
    fprintf(p->out, "%*s%.*s", p->held, "", end, text);
    p->held = n - end;
    p->column += n;
}

static void break_line(page *p, int indent)
{
    fputc('\n', p->out);
    p->column = p->held = indent;
}

// A word of a row, on a new line if it does not fit and a new line would help.
static void write_word(page *p, const char *text, int n, int indent, int width)
{
    if (p->column + n > width && p->column > indent) break_line(p, indent);
    write_text(p, text, n);
}

static word element(const page *p, int64_t at)
{
    return p->f ? float_word(&p->form, p->f[at]) : int_word(&p->form, p->i[at]);
}

static void write_row(page *p, int64_t first, int64_t n, int indent, int width, bool cut)
{
    for (int64_t i = 0; i < n; i++) {
        if (i) write_text(p, " ", 1);
        if (cut && i == EDGE) {
            write_word(p, "...", 3, indent, width);
            write_text(p, " ", 1);
        }
        word w = element(p, first + i);
        write_word(p, w.s, w.n, indent, width);
    }
}

// The part of the tensor with the axes before `axis` fixed; its elements begin at `first`.
static void write_axis(page *p, int axis, int64_t first)
{
    int     left = p->rank - axis;
    int64_t step = 1;
    for (int k = axis + 1; k < p->rank; k++) step *= p->count[k];
    write_text(p, "[", 1);
    if (left == 1) write_row(p, first, p->count[axis], axis + 1, LINE - axis - 1, p->cut[axis]);
    for (int64_t i = 0; left > 1 && i < p->count[axis]; i++) {
        for (int k = 1; i && k < left; k++) break_line(p, axis + 1);
        if (p->cut[axis] && i == EDGE) {
            write_text(p, "...", 3);
            for (int k = 1; k < left; k++) break_line(p, axis + 1);
        }
        write_axis(p, axis + 1, first + i * step);
    }
    write_text(p, "]", 1);
}

// ---- reading -----------------------------------------------------------------------------------

// Reads the piece of t that has the low edge (or all) along axes whose bit is clear and the high
// edge along those whose bit is set, and puts its elements where they belong on the page.
static bool read_piece(tn_tensor *t, page *p, uint32_t high, void *room)
{
    tni_view v = tni_layout(t);
    int64_t  begin[TN_MAX_RANK], at[TN_MAX_RANK] = { 0 }, n = 1;
    for (int k = 0; k < v.rank; k++) {
        bool end = high >> k & 1;
        if (end) v.offset += (v.size[k] - EDGE) * v.stride[k];
        if (p->cut[k]) v.size[k] = EDGE;
        begin[k] = end ? EDGE : 0;
        n *= v.size[k];
    }
    tn_tensor *piece = tni_wrap_view(t, &v, NULL, NULL);
    if (!piece) return false;
    tn_status s = tn_read(piece, p->f ? TN_F64 : TN_I64, room, n);
    tni_tensor_free(piece);
    for (int64_t i = 0; s == TN_OK && i < n; i++) {
        int64_t to = 0;
        for (int k = 0; k < v.rank; k++) to = to * p->count[k] + begin[k] + at[k];
        if (p->f) p->f[to] = rounded(tn_dtype_of(t), ((double *)room)[i]);
        else p->i[to] = ((int64_t *)room)[i];
        for (int k = v.rank - 1; k >= 0 && ++at[k] == v.size[k]; k--) at[k] = 0;
    }
    return s == TN_OK;
}

static bool read_pieces(tn_tensor *t, page *p, void *room)
{
    uint32_t all = 0;
    for (int k = 0; k < p->rank; k++) all |= (uint32_t)p->cut[k] << k;
    for (uint32_t high = 0;; high = (high - all) & all) {
        if (!read_piece(t, p, high, room)) return false;
        if (high == all) return true;
    }
}

static int64_t lay_out(tn_tensor *t, page *p)
{
    bool    much = tn_count(t) > MOST;
    int64_t n    = 1;
    p->rank      = tn_rank(t);
    for (int k = 0; k < p->rank; k++) {
        p->count[k] = tn_size(t, k);
        p->cut[k]   = much && p->count[k] > 2 * EDGE;
        if (p->cut[k]) p->count[k] = 2 * EDGE;
        n *= p->count[k];
    }
    return n;
}

static void write_page(page *p, tn_dtype dt, int64_t n)
{
    if (p->rank == 0) {
        word w = p->f ? single_float(dt, p->f[0]) : int_word(&(form){ .dtype = dt }, p->i[0]);
        fprintf(p->out, "%s\n", w.s);
        return;
    }
    p->form = p->f ? float_form(dt, n, p->f) : int_form(dt, n, p->i);
    write_axis(p, 0, 0);
    fputc('\n', p->out);
}

void tn_print(tn_tensor *t, FILE *f)
{
    page    p  = { .out = f };
    tn_ctx *cx = tni_arg1("print", t, "t");
    if (!cx) return;
    if (!f) {
        tni_fail(cx, TN_EARG, "print: the file is NULL");
        return;
    }
    int64_t n = lay_out(t, &p);
    if (n == 0) {
        fputs("[]\n", f);
        return;
    }
    char *memory = tni_alloc(&cx->heap, (size_t)n * 16);  // 8 bytes on the page, 8 read
    if (!memory) {
        tni_fail_memory(cx, "print");
        return;
    }
    if (tni_is_float(tn_dtype_of(t))) p.f = (double *)memory;
    else p.i = (int64_t *)memory;
    if (read_pieces(t, &p, memory + n * 8)) write_page(&p, tn_dtype_of(t), n);
    tni_free(&cx->heap, memory);
}
