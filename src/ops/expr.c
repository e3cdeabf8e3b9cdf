// Parsing expressions of users' ops by precedence climbing, into a list of steps in postfix order,
// and recording such a list as ops. expr.h has the grammar.
#include "ops/expr.h"

#include <string.h>

// The parser: the text and how far it was read, the list it writes, and the depth of nesting, which
// is bounded because parsing recurses.
typedef struct {
    tni_expr_source *t;
    tni_expr        *f;
    int              depth;
} parser;

// In the place of a step: an error was reported, and every caller passes it on.
enum { FAILED = -1 };

static int32_t parse_choice(parser *r);

// ---- errors ------------------------------------------------------------------------------------

// Every message names the op, the field and the column, counted from 1.
static int32_t fail_at(const parser *r, size_t at, const char *what)
{
    const tni_expr_source *t = r->t;
    tni_fail(t->cx, TN_EARG, "%s: %s: column %zu: %s", t->op, t->field, at + 1, what);
    return FAILED;
}

static int32_t fail_word(const parser *r, size_t at, size_t length, const char *why)
{
    // Long words are cut: what was meant shows in their beginning.
    char word[24] = { 0 };
    memcpy(word, r->t->text + at, length < sizeof word ? length : sizeof word - 1);
    return fail_at(r, at, tni_text_of("%s %s", tni_quoted(word).s, why).s);
}

// ---- steps -------------------------------------------------------------------------------------

// Whether an op of numbers is computed while parsing: not an op of bits, since a number of an
// expression is a double.
static bool is_foldable(int op)
{
    return tni_op_table[op].rule != TNI_BITS && tni_op_table[op].rule != TNI_INTEGER;
}

// Appends a step and returns its index.
static int32_t push_step(parser *r, tni_expr_step s)
{
    tni_expr *f = r->f;
    if (f->count == INT32_MAX ||
        !tni_grow(&r->t->cx->heap, (void **)&f->step, &f->cap, f->count + 1, sizeof *f->step)) {
        tni_fail_memory(r->t->cx, r->t->op);
        return FAILED;
    }
    f->step[f->count] = s;
    return (int32_t)f->count++;
}

static int32_t push_number(parser *r, double v)
{
    return push_step(r, (tni_expr_step){ .op = TNI_EXPR_NUMBER, .number = v });
}

// An op of n steps. If all are numbers, they are the newest steps, and their result takes their
// place.
static int32_t push_op(parser *r, int op, int n, const int32_t *x)
{
    tni_expr_step s       = { .op = op, .x = { -1, -1, -1 } };
    double        v[3]    = { 0 };
    bool          numbers = true;
    for (int i = 0; i < n; i++) {
        if (x[i] == FAILED) return FAILED;
        s.x[i]                 = x[i];
        const tni_expr_step *a = &r->f->step[x[i]];
        numbers &= a->op == TNI_EXPR_NUMBER;
        v[i] = a->number;
    }
    if (!numbers || !is_foldable(op)) return push_step(r, s);
    // They are the newest steps, since each operand was just parsed and is a single step.
    r->f->count -= (size_t)n;
    return push_number(r, tni_map_f(op, v[0], v[1], v[2]));
}

// ---- words -------------------------------------------------------------------------------------

static char peek_char(const parser *r)
{
    return r->t->text[r->t->at];
}

// White space separates nothing: "a b" is an error of its own.
static void skip_expr_blanks(parser *r)
{
    while (peek_char(r) == ' ' || peek_char(r) == '\t' || peek_char(r) == '\n' ||
           peek_char(r) == '\r')
        r->t->at++;
}

// Skips blanks and takes c if it comes next.
static bool accept_char(parser *r, char c)
{
    skip_expr_blanks(r);
    if (peek_char(r) != c) return false;
    r->t->at++;
    return true;
}

// Of identifiers: letters and the underscore.
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Digits at the start of s.
static size_t count_digits(const char *s)
{
    size_t n = 0;
    while (tni_is_digit(s[n])) n++;
    return n;
}

// C's decimal floats, with an optional f at the end; a locale's decimal comma plays no part.
static int32_t parse_number(parser *r)
{
    const char *s     = r->t->text + r->t->at;
    size_t      whole = count_digits(s), n = whole, rest = 0;
    double      v;
    if (s[n] == '.') n += 1 + (rest = count_digits(s + n + 1));
    if (whole + rest == 0) return fail_at(r, r->t->at, "a value expected");
    if (s[n] == 'e' || s[n] == 'E') {
        size_t sign = s[n + 1] == '-' || s[n + 1] == '+', power = count_digits(s + n + 1 + sign);
        if (power) n += 1 + sign + power;
    }
    if (!tni_parse_double(s, n, &v)) return fail_at(r, r->t->at, "the number is too large");
    r->t->at += n;
    if (peek_char(r) == 'f' || peek_char(r) == 'F') r->t->at++;
    return push_number(r, v);
}

// The op that a function name stands for: the row of that name, or the row whose expression is that
// function of the math prelude, with or without m_. -1 if there is none. So the language grows with
// the table.
static int function_op(const char *s, size_t n)
{
    bool prefix = n > 2 && !memcmp(s, "m_", 2);
    for (int op = 0; op < TNI_OPS; op++) {
        const tni_op_facts *row = &tni_op_table[op];
        if (row->class > TNI_TERNARY) continue;
        if (strlen(row->name) == n && !memcmp(row->name, s, n)) return op;
        const char *bare = prefix ? s + 2 : s;
        size_t      size = prefix ? n - 2 : n;
        if (strncmp(row->expr, "m_", 2) || strlen(row->expr) <= size + 2) continue;
        if (!memcmp(row->expr + 2, bare, size) && row->expr[2 + size] == '(') return op;
    }
    return -1;
}

// Which name a word is; -1 if it is none.
static int name_index(const char *s, size_t n)
{
    if (n == 1 && s[0] >= 'a' && s[0] <= 'c') return s[0] - 'a';
    if (n == 1 && s[0] == 'g') return TNI_EXPR_G;
    if (n == 1 && s[0] == 'y') return TNI_EXPR_Y;
    if (n == 2 && s[0] == 'x' && s[1] >= '0' && s[1] < '0' + TNI_EXPR_INPUTS) return s[1] - '0';
    return -1;
}

// A word that no parenthesis follows: an input, or g and y in grad_expr. The message says what it
// could be.
static int32_t parse_name(parser *r, size_t at, size_t length)
{
    const tni_expr_source *t    = r->t;
    int                    name = name_index(t->text + at, length);
    if (name < 0 && function_op(t->text + at, length) >= 0)
        return fail_at(r, t->at, "\"(\" expected");
    if (name < 0) return fail_word(r, at, length, "is no input and no function");
    if (name >= TNI_EXPR_INPUTS && !t->grad)
        return fail_word(r, at, length, "is a name of grad_expr alone");
    if (name < TNI_EXPR_INPUTS && name >= t->nin)
        return fail_word(r, at, length, tni_text_of("is not an input: nin is %d", t->nin).s);
    r->f->names |= 1u << name;
    return push_step(r, (tni_expr_step){ .op = TNI_EXPR_NAME, .x = { name } });
}

// A function and its arguments; how many it takes is in the class of its op.
static int32_t parse_call(parser *r, size_t at, size_t length)
{
    int     op   = function_op(r->t->text + at, length);
    int     args = op < 0 ? 0 : (int)tni_op_table[op].class + 1;
    int32_t x[3];
    if (op < 0) return fail_word(r, at, length, "is no function");
    for (int i = 0; i < args; i++) {
        if (i > 0 && !accept_char(r, ',')) return fail_at(r, r->t->at, "\",\" expected");
        if ((x[i] = parse_choice(r)) == FAILED) return FAILED;
    }
    if (!accept_char(r, ')')) return fail_at(r, r->t->at, "\")\" expected");
    return push_op(r, op, args, x);
}

// ---- expressions -------------------------------------------------------------------------------

// A parenthesis, a number, a name or a call.
static int32_t parse_value(parser *r)
{
    skip_expr_blanks(r);
    size_t at = r->t->at, length = 0;
    if (accept_char(r, '(')) {
        int32_t x = parse_choice(r);
        if (x != FAILED && !accept_char(r, ')')) return fail_at(r, r->t->at, "\")\" expected");
        return x;
    }
    if (tni_is_digit(peek_char(r)) || peek_char(r) == '.') return parse_number(r);
    if (!is_letter(peek_char(r))) return fail_at(r, at, "a value expected");
    while (is_letter(peek_char(r)) || tni_is_digit(peek_char(r))) r->t->at++;
    length = r->t->at - at;
    return accept_char(r, '(') ? parse_call(r, at, length) : parse_name(r, at, length);
}

// 64 levels are more than anybody writes, and far from the end of a stack.
static bool enter_nesting(parser *r)
{
    if (r->depth++ < TNI_EXPR_DEPTH) return true;
    fail_at(r, r->t->at, tni_text_of("nested deeper than %d", TNI_EXPR_DEPTH).s);
    return false;
}

// Signs nest to the right: !-a.
static int32_t parse_unary(parser *r)
{
    static const struct {
        char sign;
        int  op;
    } signs[] = { { '-', TNI_neg }, { '!', TNI_logical_not }, { '~', TNI_bit_not } };
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (!accept_char(r, signs[i].sign)) continue;
        if (!enter_nesting(r)) return FAILED;
        int32_t x = parse_unary(r);
        r->depth--;
        return push_op(r, signs[i].op, 1, &x);
    }
    return parse_value(r);
}

// An operator of two operands and the row it stands for; levels are C's.
typedef struct {
    char text[3];
    int  level;  // higher binds more
    int  op;
} sign;

// The operator at the parser's place; NULL if there is none. Longer ones stand first: <= before <.
static const sign *operator_at(parser *r)
{
    static const sign signs[] = {
        { "||", 1, TNI_logical_or }, { "&&", 2, TNI_logical_and }, { "==", 6, TNI_eq },
        { "!=", 6, TNI_ne },         { "<=", 7, TNI_le },          { ">=", 7, TNI_ge },
        { "|", 3, TNI_bit_or },      { "^", 4, TNI_bit_xor },      { "&", 5, TNI_bit_and },
        { "<", 7, TNI_lt },          { ">", 7, TNI_gt },           { "+", 8, TNI_add },
        { "-", 8, TNI_sub },         { "*", 9, TNI_mul },          { "/", 9, TNI_div },
        { "%", 9, TNI_remainder },
    };
    skip_expr_blanks(r);
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (!strncmp(r->t->text + r->t->at, signs[i].text, strlen(signs[i].text))) return &signs[i];
    return NULL;
}

// Precedence climbing: takes operators of at least this level; a right operand binds tighter, so
// that equal levels group to the left.
static int32_t parse_binary(parser *r, int level)
{
    int32_t x = parse_unary(r);
    while (x != FAILED) {
        const sign *s = operator_at(r);
        if (!s || s->level < level) break;
        r->t->at += strlen(s->text);
        int32_t pair[] = { x, parse_binary(r, s->level + 1) };
        x              = push_op(r, s->op, 2, pair);
    }
    return x;
}

// c ? x : y, right-associative; the loosest level, and what a parenthesis contains.
static int32_t parse_choice(parser *r)
{
    if (!enter_nesting(r)) return FAILED;
    int32_t x = parse_binary(r, 1);
    if (x != FAILED && accept_char(r, '?')) {
        int32_t part[] = { x, parse_choice(r), FAILED };
        if (part[1] != FAILED && !accept_char(r, ':'))
            return fail_at(r, r->t->at, "\":\" expected");
        if (part[1] != FAILED) part[2] = parse_choice(r);
        x = push_op(r, TNI_where, 3, part);
    }
    r->depth--;
    return x;
}

// An empty text is no steps: in grad_expr it means that nothing flows to that input.
bool tni_expr_parse(tni_expr_source *t, tni_expr *f)
{
    parser r = { .t = t, .f = f };
    skip_expr_blanks(&r);
    if (!peek_char(&r) || peek_char(&r) == ';') return true;
    if (parse_choice(&r) == FAILED) return false;
    skip_expr_blanks(&r);
    if (!peek_char(&r) || peek_char(&r) == ';') return true;
    fail_at(&r, t->at, "an operator expected");
    return false;
}

// ---- recording ---------------------------------------------------------------------------------

// The dtype that the names used by an expression promote to.
static tn_dtype promoted_names(const tni_expr *f, tn_tensor *const *name)
{
    tni_operand x[TNI_EXPR_NAMES];
    int         n = 0;
    for (int i = 0; i < TNI_EXPR_NAMES; i++) {
        if (!(f->names >> i & 1)) continue;
        bool weak = name[i]->store->node->weak;
        x[n++]    = (tni_operand){ tn_dtype_of(name[i]), weak ? 0 : tn_rank(name[i]) > 0 ? 2 : 1 };
    }
    return n ? tni_promote_all(n, x) : TN_F32;
}

// Two numbers to choose from have no tensor to take their dtype from: they take that of the names,
// unless those are integers, which a number need not be.
static tn_tensor *with_dtype(tn_tensor *x, tn_dtype dt)
{
    const tni_node *n = x->store->node;
    if (!n->weak || n->op != TNI_scalar || !tni_is_float(dt)) return x;
    tn_tensor *t = tni_number(x->cx, dt, n->attr.num);
    if (t) t->store->node->weak = false;
    return t;
}

// A condition may be any number: not 0 is true, as in C.
static tn_tensor *record_choice(tn_dtype dt, tn_tensor *cond, tn_tensor *yes, tn_tensor *no)
{
    if (yes->store->node->weak && no->store->node->weak) {
        yes = with_dtype(yes, dt);
        no  = with_dtype(no, dt);
    }
    if (tn_dtype_of(cond) != TN_BOOL) cond = tn_ne_s(cond, 0);
    return tn_where(cond, yes, no);
}

// A name, a number, a choice, or an op of one or two earlier steps.
static tn_tensor *record_step(const tni_expr *f, const tni_expr_step *s, tn_ctx *cx,
                              tn_tensor *const *name, tn_tensor **value)
{
    if (s->op == TNI_EXPR_NAME) return name[s->x[0]];
    if (s->op == TNI_EXPR_NUMBER) return tni_number(cx, TN_F32, tni_num_of(s->number));
    if (s->op == TNI_where)
        return record_choice(promoted_names(f, name), value[s->x[0]], value[s->x[1]],
                             value[s->x[2]]);
    if (s->x[1] < 0) return tni_unary(s->op, value[s->x[0]]);
    return tni_binary(s->op, value[s->x[0]], value[s->x[1]]);
}

// One op a step. Intermediate handles belong to the frame of the public call and die with it.
tn_tensor *tni_expr_record(const tni_expr *f, tn_ctx *cx, const char *op, tn_tensor *const *name)
{
    tn_tensor **value = tni_alloc(&cx->heap, f->count * sizeof *value), *y = NULL;
    if (!value) return tni_fail_memory(cx, op);
    for (size_t i = 0; i < f->count; i++) {
        y = value[i] = record_step(f, &f->step[i], cx, name, value);
        if (!y) break;
    }
    tni_free(&cx->heap, value);
    return y;
}
