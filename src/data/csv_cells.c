// The cells of a CSV text, one by one and in place.
#include "data/csv.h"

#include <math.h>
#include <string.h>
#include <strings.h>

// ---- walking -----------------------------------------------------------------------------------

static const char *skip_blanks(const tni_csv_reader *r, const char *s)
{
    while (s < r->end && (*s == ' ' || *s == '\t') && *s != r->separator) s++;
    return s;
}

static bool ends_line(char c)
{
    return c == '\n' || c == '\r';
}

// Skips one end of a line: LF, CR or both.
static const char *skip_end(tni_csv_reader *r, const char *s)
{
    r->line++;
    return s + (*s == '\r' && s + 1 < r->end && s[1] == '\n' ? 2 : 1);
}

// Lines with only blanks are no rows.
bool tni_csv_row(tni_csv_reader *r)
{
    while (r->at < r->end) {
        const char *s = skip_blanks(r, r->at);
        if (s < r->end && !ends_line(*s)) return true;
        r->at = s < r->end ? skip_end(r, s) : s;
    }
    return false;
}

static bool fail_cell(tni_csv_reader *r, int64_t line, const char *why)
{
    r->line = line;
    r->why  = why;
    return false;
}

// Reads a cell at its opening quote. Line ends inside are part of the cell; blanks may follow the
// closing quote.
static bool read_quoted(tni_csv_reader *r, tni_csv_cell *c)
{
    const char *s = r->at + 1;
    c->text       = s;
    for (;;) {
        if (s == r->end) return fail_cell(r, c->line, "a quote has no end");
        if (ends_line(*s)) {
            s = skip_end(r, s);
        } else if (*s != '"') {
            s++;
        } else if (s + 1 < r->end && s[1] == '"') {
            c->doubled = true;
            s += 2;
        } else {
            break;
        }
    }
    c->length = (size_t)(s - c->text);
    r->at     = skip_blanks(r, s + 1);
    if (r->at == r->end || *r->at == r->separator || ends_line(*r->at)) return true;
    return fail_cell(r, r->line, "something follows a closing quote");
}

// Reads a cell without quotes; blanks at its end are not part of it.
static void read_plain(tni_csv_reader *r, tni_csv_cell *c)
{
    const char *s = r->at;
    c->text       = s;
    while (s < r->end && *s != r->separator && !ends_line(*s)) s++;
    r->at = s;
    while (s > c->text && (s[-1] == ' ' || s[-1] == '\t')) s--;
    c->length = (size_t)(s - c->text);
}

// The cell is a piece of the text: nothing is copied.
bool tni_csv_next(tni_csv_reader *r, tni_csv_cell *c)
{
    *c    = (tni_csv_cell){ .line = r->line };
    r->at = skip_blanks(r, r->at);
    if (r->at == r->end || *r->at != '"') read_plain(r, c);
    else if (!read_quoted(r, c)) return false;
    c->last = r->at == r->end || *r->at != r->separator;
    if (!c->last) r->at++;
    else if (r->at < r->end) r->at = skip_end(r, r->at);
    return true;
}

// Counts the candidates outside of quotes in the first line. A comma between two digits may be a
// decimal comma, and does not count if the line has semicolons or tabs.
char tni_csv_separator(const char *text, const char *end)
{
    static const char candidates[] = ",;\t";
    size_t            count[3] = { 0 }, decimal = 0, best = 0;
    bool              inside = false;
    while (text < end && ends_line(*text)) text++;
    for (const char *s = text; s < end && (inside || !ends_line(*s)); s++) {
        const char *found = *s ? strchr(candidates, *s) : NULL;
        if (*s == '"') inside = !inside;
        if (!found || inside) continue;
        count[found - candidates]++;
        decimal += *s == ',' && s > text && tni_is_digit(s[-1]) && s + 1 < end &&
                   tni_is_digit(s[1]);
    }
    if (count[1] || count[2]) count[0] -= decimal;
    for (size_t i = 1; i < 3; i++)
        if (count[i] > count[best]) best = i;
    return count[best] ? candidates[best] : 0;
}

// Returns the full length, so that a caller sees that the text was cut.
size_t tni_csv_text(const tni_csv_cell *c, char *dst, size_t capacity)
{
    size_t n = 0;
    for (size_t i = 0; i < c->length; i++, n++) {
        if (n < capacity) dst[n] = c->text[i];
        if (c->doubled && c->text[i] == '"') i++;
    }
    return n;
}

// ---- numbers -----------------------------------------------------------------------------------

// A number being read: its digits without the point as an integer, as far as they fit exactly.
typedef struct {
    const char *at, *end;
    uint64_t    digits;
    int         tens;  // the power of ten that they are to be multiplied with
    bool        any, exact;
} number;

// Up to 2^53 the digits are exact as a double; beyond, tni_parse_double reads the number again.
static void read_digits(number *n, bool after_point)
{
    for (; n->at < n->end && tni_is_digit(*n->at); n->at++) {
        n->any = true;
        if (n->digits >= (uint64_t)1 << 49) n->exact = false;
        if (!n->exact) continue;
        n->digits = n->digits * 10 + (uint64_t)(*n->at - '0');
        n->tens -= after_point;
    }
}

// Reads what follows the e; false if it has no digits. Exponents are cut off where the result is 0
// or infinite anyway.
static bool read_exponent(number *n)
{
    int  e     = 0;
    bool minus = n->at < n->end && *n->at == '-';
    if (minus || (n->at < n->end && *n->at == '+')) n->at++;
    if (n->at == n->end) return false;
    for (; n->at < n->end && tni_is_digit(*n->at); n->at++)
        if (e < 10000) e = e * 10 + (*n->at - '0');
    n->tens += minus ? -e : e;
    return tni_is_digit(n->at[-1]);
}

// Reads s[0 .. length-1], without blanks, as a number; false if it is none. With few digits and a
// small power of ten, both exact as doubles, one multiplication or division rounds correctly, and
// most numbers in files are of that kind.
static bool read_number(const char *s, size_t length, double *v)
{
    static const double power[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    number              n       = { .at = s, .end = s + length, .exact = true };
    bool                minus   = length && *s == '-';
    if (minus || (length && *s == '+')) n.at++;
    read_digits(&n, false);
    if (n.at < n.end && *n.at == '.') {
        n.at++;
        read_digits(&n, true);
    }
    if (!n.any) return false;
    if (n.at < n.end && (*n.at == 'e' || *n.at == 'E')) {
        n.at++;
        if (!read_exponent(&n)) return false;
    }
    if (n.at < n.end) return false;

    if (n.exact && n.tens >= -22 && n.tens <= 22) {
        double whole = minus ? -(double)n.digits : (double)n.digits;
        *v           = n.tens < 0 ? whole / power[-n.tens] : whole * power[n.tens];
    } else if (!tni_parse_double(s, length, v)) {
        *v = minus ? -INFINITY : INFINITY;
    }
    return true;
}

// Recognizes nan and inf in any case and with a sign; a dataset refuses them, and says so.
static bool is_unbounded(const char *s, size_t n)
{
    static const char *const words[] = { "nan", "inf", "infinity" };
    if (n && (*s == '-' || *s == '+')) s++, n--;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && strncasecmp(s, words[i], n) == 0) return true;
    return false;
}

// Returns whether the text would be a number with a point for its comma. Points before the comma
// are taken for separators of thousands.
static bool has_decimal_comma(const char *s, const char *end)
{
    if (*s == '-' || *s == '+') s++;
    while (s < end && (tni_is_digit(*s) || *s == '.')) s++;
    if (s == end || *s++ != ',' || s == end) return false;
    while (s < end && tni_is_digit(*s)) s++;
    return s == end;
}

// Blanks inside quotes are kept in the cell and ignored here.
tni_csv_kind tni_csv_look(const tni_csv_cell *c, double *v)
{
    const char *s = c->text, *end = s + c->length;
    while (s < end && *s == ' ') s++;
    while (s < end && end[-1] == ' ') end--;
    size_t n = (size_t)(end - s);
    if (n == 0) return TNI_CSV_EMPTY;
    if (read_number(s, n, v)) return TNI_CSV_NUMBER;
    if (is_unbounded(s, n)) return TNI_CSV_UNBOUNDED;
    return has_decimal_comma(s, end) ? TNI_CSV_COMMA : TNI_CSV_TEXT;
}
