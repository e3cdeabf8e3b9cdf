// tn_print: a tensor in text, laid out as NumPy lays out an array.
//
// A number is written with the fewest digits that read back as the same number of its dtype, and no
// more than 8 behind the point. All numbers of a tensor share one form: plain, or with an exponent
// when the largest is too large for its dtype's digits, the smallest is below 1e-4, or they are
// more than a factor of 1000 apart. Columns line up, lines break before column 75, and of a tensor
// of more than 1000 elements only the first and last 3 along each axis are shown, and read.
#include "engine/engine.h"

#include "kernel/prelude.h"

#include <stdlib.h>
#include <string.h>

// As NumPy's defaults: linewidth 75, edgeitems 3, threshold 1000, precision 8.
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
    default: return v;
        // clang-format on
    }
}

// Returns v to n digits, correctly rounded.
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

// Returns whether the digits, read as the dtype, give v again.
static bool reads_back(const decimal *d, tn_dtype dt, double v)
{
    char text[48];
    snprintf(text, sizeof text, "%.*se%d", d->count, d->digit, d->exp - d->count + 1);
    v = fabs(v);
    return dt == TN_F32 ? strtof(text, NULL) == (float)v : rounded(dt, strtod(text, NULL)) == v;
}

// Goes to the next larger number of n digits, carrying over nines.
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

// Returns the fewest digits that read back. Numbers just below a power of two are closer together
// than above it, so there a number that is not the nearest of its length may be the one that reads
// back.
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
    bool     plus;              // of imaginary parts: a sign is always written
    int      left, right, exp_digits, whole;
} form;

// Returns the digits of v that are shown, at most PLACES behind the point unless it is a single
// number.
static decimal shown_digits(const form *f, double v)
{
    decimal d    = shortest(f->dtype, v);
    int     most = f->exponent ? PLACES + 1 : PLACES + 1 + d.exp;
    return f->single || d.count <= most ? d : digits_of(v, most);
}

// Returns the width before the point, with the sign.
static int left_of(const form *f, const decimal *d)
{
    return (d->negative || f->plus) + (f->exponent || d->exp < 0 ? 1 : d->exp + 1);
}

// Returns the number of digits behind the point.
static int right_of(const form *f, const decimal *d)
{
    int n = f->exponent ? d->count - 1 : d->count - 1 - d->exp;
    return n < 0 || (d->count == 1 && d->digit[0] == '0') ? 0 : n;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

// Returns the magnitude from which numbers of a dtype are shown with an exponent: where its digits
// no longer reach the units, or after 8 places. At least two digits are shown of any dtype.
static double exponent_from(tn_dtype dt)
{
    int digits = (int)((tni_dtype_table[dt].digits - 1) * 0.30102999566398120);
    return pow(10, digits < 2 ? 2 : digits < PLACES ? digits : PLACES);
}

// Decides for all numbers together. Comparisons are made in the dtype: 1e-4 as f32 is not below
// 1e-4.
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

// Finds the widths that let all numbers line up at the point. nan and inf share the column.
static form float_form(tn_dtype dt, int64_t n, const double *x, bool plus)
{
    form f         = { .dtype = dt, .exponent = wants_exponent(dt, n, x), .plus = plus };
    bool minus_inf = false, odd = false;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            odd = true;
            minus_inf |= x[i] < 0 || plus;
            continue;
        }
        decimal d    = shown_digits(&f, x[i]);
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

static void put_chars(word *w, int count, char c)
{
    for (; count > 0 && w->n < WORD - 1; count--) w->s[w->n++] = c;
    w->s[w->n] = 0;
}

// The digits of d from place `from` (its first is place 0) to before `to`; zeros around them.
static void put_digits(word *w, const decimal *d, int from, int to)
{
    for (int i = from; i < to; i++) put_chars(w, 1, i >= 0 && i < d->count ? d->digit[i] : '0');
}

// The blanks before a number, and its sign.
static void put_sign(word *w, const form *f, const decimal *d)
{
    put_chars(w, f->left - left_of(f, d), ' ');
    put_chars(w, d->negative || f->plus, d->negative ? '-' : '+');
}

// Writes a number without exponent, padded on both sides so that points line up.
static word plain_word(const form *f, const decimal *d)
{
    word w     = { .n = 0 };
    int  right = right_of(f, d);
    put_sign(&w, f, d);
    if (d->exp < 0) put_chars(&w, 1, '0');
    put_digits(&w, d, 0, d->exp + 1);
    put_chars(&w, 1, '.');
    put_digits(&w, d, d->exp + 1, d->exp + 1 + right);
    put_chars(&w, f->single ? right == 0 : 0, '0');
    put_chars(&w, f->right - right, ' ');
    return w;
}

// Writes a number with an exponent. All have as many digits as the longest, real ones also where
// fewer would read back.
static word exponent_word(const form *f, double v)
{
    decimal  short_form = shown_digits(f, v), long_form = digits_of(v, f->right + 1);
    decimal *d = short_form.count > f->right ? &short_form : &long_form;
    word     w = { .n = 0 };
    put_sign(&w, f, d);
    put_digits(&w, d, 0, 1);
    put_chars(&w, !f->single || f->right > 0, '.');
    put_digits(&w, d, 1, 1 + f->right);
    w.n += snprintf(w.s + w.n, (size_t)(WORD - w.n), "e%c%0*d", d->exp < 0 ? '-' : '+',
                    f->exp_digits, abs(d->exp));
    return w;
}

static word float_word(const form *f, double v)
{
    if (isfinite(v)) {
        if (f->exponent) return exponent_word(f, v);
        decimal d = shown_digits(f, v);
        return plain_word(f, &d);
    }
    word        w    = { .n = 0 };
    const char *name = isnan(v) ? "+nan" : v < 0 ? "-inf" : "+inf";
    w.n              = snprintf(w.s, WORD, "%*s", f->whole, name + (*name == '+' && !f->plus));
    return w;
}

static word int_word(const form *f, int64_t v)
{
    word w = { .n = 0 };
    if (f->dtype == TN_BOOL) w.n = snprintf(w.s, WORD, "%*s", f->whole, v ? "True" : "False");
    else w.n = snprintf(w.s, WORD, f->dtype == TN_U64 ? "%*llu" : "%*lld", f->whole, (long long)v);
    return w;
}

// A single number keeps all its digits; it has an exponent below 1e-4 and from where its dtype's
// digits end.
static word single_float(tn_dtype dt, double v, bool plus)
{
    double a = fabs(v), most = dt == TN_F64 ? 1e16 : exponent_from(dt);
    form   f   = { .dtype = dt, .single = true, .plus = plus };
    f.exponent = a != 0 && !(a >= 1e-4 && a < most);
    if (f.exponent && isfinite(v)) {
        decimal d    = shown_digits(&f, v);
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
    double  *im;                  // of complex numbers: their imaginary parts; NULL: none
    form     im_form;
    int      column, held;
} page;

// Holds back spaces at the end, so that no line ends in one.
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

// Writes a word of a row, on a new line if it does not fit and a new line would help.
static void write_word(page *p, const char *text, int n, int indent, int width)
{
    if (p->column + n > width && p->column > indent) break_line(p, indent);
    write_text(p, text, n);
}

// Puts an imaginary part behind a real one: 1.+2.j, with the blanks of the number after the j.
static word with_imaginary(word w, word im)
{
    int end = im.n;
    while (end > 0 && im.s[end - 1] == ' ') end--;
    w.n += snprintf(w.s + w.n, (size_t)(WORD - w.n), "%.*sj%s", end, im.s, im.s + end);
    return w;
}

static word element_word(const page *p, int64_t at)
{
    if (p->im)
        return with_imaginary(float_word(&p->form, p->f[at]), float_word(&p->im_form, p->im[at]));
    return p->f ? float_word(&p->form, p->f[at]) : int_word(&p->form, p->i[at]);
}

// Writes one row; of a long one only the edges.
static void write_row(page *p, int64_t first, int64_t n, int indent, int width, bool cut)
{
    for (int64_t i = 0; i < n; i++) {
        if (i) write_text(p, " ", 1);
        if (cut && i == EDGE) {
            write_word(p, "...", 3, indent, width);
            write_text(p, " ", 1);
        }
        word w = element_word(p, first + i);
        write_word(p, w.s, w.n, indent, width);
    }
}

// Writes the part of the tensor with the axes before `axis` fixed, whose elements begin at `first`.
// Blank lines separate the parts of higher axes, as in NumPy.
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

// Reads the piece of t with the low edge (or everything) along axes whose bit is clear, and the
// high edge along those whose bit is set, and puts its elements where they belong on the page. So
// printing a huge tensor on a GPU copies a few elements.
static bool read_piece(tn_tensor *t, page *p, uint32_t high, void *buffer)
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
    tn_status s = tn_read(piece, p->f ? TN_F64 : TN_I64, buffer, n);
    tni_tensor_free(piece);
    for (int64_t i = 0; s == TN_OK && i < n; i++) {
        int64_t to = 0;
        for (int k = 0; k < v.rank; k++) to = to * p->count[k] + begin[k] + at[k];
        if (p->f) p->f[to] = rounded(tn_dtype_of(t), ((double *)buffer)[i]);
        else p->i[to] = ((int64_t *)buffer)[i];
        for (int k = v.rank - 1; k >= 0 && ++at[k] == v.size[k]; k--) at[k] = 0;
    }
    return s == TN_OK;
}

// Goes through all subsets of the axes that are cut.
static bool read_pieces(tn_tensor *t, page *p, void *buffer)
{
    uint32_t all = 0;
    for (int k = 0; k < p->rank; k++) all |= (uint32_t)p->cut[k] << k;
    for (uint32_t high = 0;; high = (high - all) & all) {
        if (!read_piece(t, p, high, buffer)) return false;
        if (high == all) return true;
    }
}

// Decides what is shown; returns how many elements that are.
static int64_t choose_shown(tn_tensor *t, page *p)
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

// The one complex number of a 0-d tensor as Python writes it, in parentheses and without .0:
// (1.5-2j).
static void write_complex(page *p, tn_dtype dt)
{
    word w[2] = { single_float(dt, p->f[0], false), single_float(dt, p->im[0], true) };
    for (int i = 0; i < 2; i++)
        if (w[i].n > 2 && strcmp(w[i].s + w[i].n - 2, ".0") == 0) w[i].s[w[i].n - 2] = 0;
    fprintf(p->out, "(%s%sj)\n", w[0].s, w[1].s);
}

// A tensor without axes is a number without brackets.
static void write_page(page *p, tn_dtype dt, int64_t n)
{
    if (p->rank == 0 && p->im) {
        write_complex(p, dt);
        return;
    }
    if (p->rank == 0) {
        word w = p->f ? single_float(dt, p->f[0], false)
                      : int_word(&(form){ .dtype = dt }, p->i[0]);
        fprintf(p->out, "%s\n", w.s);
        return;
    }
    p->form = p->f ? float_form(dt, n, p->f, false) : int_form(dt, n, p->i);
    if (p->im) p->im_form = float_form(dt, n, p->im, true);
    write_axis(p, 0, 0);
    fputc('\n', p->out);
}

// Decides what is shown, reads that alone, finds one form for all numbers, and writes.
void tn_print(tn_tensor *t, FILE *f)
{
    page    p  = { .out = f };
    tn_ctx *cx = tni_arg1_any("print", t, "t");
    if (!cx) return;
    if (!f) {
        tni_fail(cx, TN_EARG, "print: the file is NULL");
        return;
    }
    int64_t n = choose_shown(t, &p);
    if (n == 0) {
        fputs("[]\n", f);
        return;
    }
    char *memory = tni_alloc(&cx->heap,
                             (size_t)n * 24);  // 8 bytes on the page for each part, 8 read
    if (!memory) {
        tni_fail_memory(cx, "print");
        return;
    }
    tn_tensor *im = t->complex ? tn_imag(t) : NULL;
    bool       ok = !t->complex || im;
    if (im) {
        p.f  = (double *)(memory + n * 16);
        ok   = read_pieces(im, &p, memory + n * 8);
        p.im = p.f;
    }
    if (tni_is_float(tni_dtype(t))) p.f = (double *)memory;
    else p.i = (int64_t *)memory;
    if (im) t = ok ? tn_real(t) : NULL;
    if (ok && t && read_pieces(t, &p, memory + n * 8)) write_page(&p, tni_dtype(t), n);
    tni_free(&cx->heap, memory);
}
