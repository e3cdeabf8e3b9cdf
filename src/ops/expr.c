// Reading formulas: precedence climbing into a list of steps.
#include "ops/expr.h"

#include <string.h>

typedef struct {
    tni_expr_source *t;
    tni_expr        *f;
    int              depth;
} reader;

enum { FAILED = -1 };  // no step: reported

static int32_t read_choice(reader *r);

// ---- errors ------------------------------------------------------------------------------------

static int32_t refuse(const reader *r, size_t at, const char *what)
{
    const tni_expr_source *t = r->t;
    tni_fail(t->cx, TN_EARG, "%s: %s: column %zu: %s", t->op, t->field, at + 1, what);
    return FAILED;
}

static int32_t refuse_word(const reader *r, size_t at, size_t length, const char *why)
{
    char word[24] = { 0 };
    memcpy(word, r->t->text + at, length < sizeof word ? length : sizeof word - 1);
    return refuse(r, at, tni_text_of("%s %s", tni_quoted(word).s, why).s);
}

// ---- steps -------------------------------------------------------------------------------------

// Whether an op of numbers is a number: not of bits, which numbers of a formula do not have.
static bool folds(int op)
{
    return tni_op_table[op].rule != TNI_BITS && tni_op_table[op].rule != TNI_INTEGER;
}

static int32_t push(reader *r, tni_expr_step s)
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

static int32_t push_number(reader *r, double v)
{
    return push(r, (tni_expr_step){ .op = TNI_EXPR_NUMBER, .number = v });
}

// An op of n steps. Numbers alone are the newest steps, and their result takes their place.
static int32_t push_op(reader *r, int op, int n, const int32_t *x)
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
    if (!numbers || !folds(op)) return push(r, s);
    r->f->count -= (size_t)n;
    return push_number(r, tni_map_f(op, v[0], v[1], v[2]));
}

// ---- words -------------------------------------------------------------------------------------

static char look(const reader *r)
{
    return r->t->text[r->t->at];
}

static void skip_space(reader *r)
{
    while (look(r) == ' ' || look(r) == '\t' || look(r) == '\n' || look(r) == '\r') r->t->at++;
}

static bool take(reader *r, char c)
{
    skip_space(r);
    if (look(r) != c) return false;
    r->t->at++;
    return true;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static size_t count_digits(const char *s)
{
    size_t n = 0;
    while (tni_is_digit(s[n])) n++;
    return n;
}

static int32_t read_number(reader *r)
{
    const char *s     = r->t->text + r->t->at;
    size_t      whole = count_digits(s), n = whole, rest = 0;
    double      v;
    if (s[n] == '.') n += 1 + (rest = count_digits(s + n + 1));
    if (whole + rest == 0) return refuse(r, r->t->at, "a value expected");
    if (s[n] == 'e' || s[n] == 'E') {
        size_t sign = s[n + 1] == '-' || s[n + 1] == '+', power = count_digits(s + n + 1 + sign);
        if (power) n += 1 + sign + power;
    }
    if (!tni_parse_double(s, n, &v)) return refuse(r, r->t->at, "the number is too large");
    r->t->at += n;
    if (look(r) == 'f' || look(r) == 'F') r->t->at++;
    return push_number(r, v);
}

// The map whose expression is the function, m_exp(a) or exp, or whose name it is; -1 if none.
static int function_of(const char *s, size_t n)
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
static int name_of(const char *s, size_t n)
{
    if (n == 1 && s[0] >= 'a' && s[0] <= 'c') return s[0] - 'a';
    if (n == 1 && s[0] == 'g') return TNI_EXPR_G;
    if (n == 1 && s[0] == 'y') return TNI_EXPR_Y;
    if (n == 2 && s[0] == 'x' && s[1] >= '0' && s[1] < '0' + TNI_EXPR_INPUTS) return s[1] - '0';
    return -1;
}

static int32_t read_name(reader *r, size_t at, size_t length)
{
    const tni_expr_source *t    = r->t;
    int                    name = name_of(t->text + at, length);
    if (name < 0 && function_of(t->text + at, length) >= 0)
        return refuse(r, t->at, "\"(\" expected");
    if (name < 0) return refuse_word(r, at, length, "is no input and no function");
    if (name >= TNI_EXPR_INPUTS && !t->grad)
        return refuse_word(r, at, length, "is a name of grad_expr alone");
    if (name < TNI_EXPR_INPUTS && name >= t->nin)
        return refuse_word(r, at, length, tni_text_of("is not an input: nin is %d", t->nin).s);
    r->f->names |= 1u << name;
    return push(r, (tni_expr_step){ .op = TNI_EXPR_NAME, .x = { name } });
}

static int32_t read_call(reader *r, size_t at, size_t length)
{
    int     op   = function_of(r->t->text + at, length);
    int     args = op < 0 ? 0 : (int)tni_op_table[op].class + 1;
    int32_t x[3];
    if (op < 0) return refuse_word(r, at, length, "is no function");
    for (int i = 0; i < args; i++) {
        if (i > 0 && !take(r, ',')) return refuse(r, r->t->at, "\",\" expected");
        if ((x[i] = read_choice(r)) == FAILED) return FAILED;
    }
    if (!take(r, ')')) return refuse(r, r->t->at, "\")\" expected");
    return push_op(r, op, args, x);
}

// ---- expressions -------------------------------------------------------------------------------

static int32_t read_value(reader *r)
{
    skip_space(r);
    size_t at = r->t->at, length = 0;
    if (take(r, '(')) {
        int32_t x = read_choice(r);
        if (x != FAILED && !take(r, ')')) return refuse(r, r->t->at, "\")\" expected");
        return x;
    }
    if (tni_is_digit(look(r)) || look(r) == '.') return read_number(r);
    if (!is_letter(look(r))) return refuse(r, at, "a value expected");
    while (is_letter(look(r)) || tni_is_digit(look(r))) r->t->at++;
    length = r->t->at - at;
    return take(r, '(') ? read_call(r, at, length) : read_name(r, at, length);
}

static bool go_deeper(reader *r)
{
    if (r->depth++ < TNI_EXPR_DEPTH) return true;
    refuse(r, r->t->at, tni_text_of("nested deeper than %d", TNI_EXPR_DEPTH).s);
    return false;
}

static int32_t read_unary(reader *r)
{
    static const struct {
        char sign;
        int  op;
    } signs[] = { { '-', TNI_neg }, { '!', TNI_logical_not }, { '~', TNI_bit_not } };
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (!take(r, signs[i].sign)) continue;
        if (!go_deeper(r)) return FAILED;
        int32_t x = read_unary(r);
        r->depth--;
        return push_op(r, signs[i].op, 1, &x);
    }
    return read_value(r);
}

typedef struct {
    char text[3];
    int  level;  // higher binds more
    int  op;
} sign;

// The operator at the reader's place; NULL if there is none. Longer ones stand first.
static const sign *sign_at(reader *r)
{
    static const sign signs[] = {
        { "||", 1, TNI_logical_or }, { "&&", 2, TNI_logical_and }, { "==", 6, TNI_eq },
        { "!=", 6, TNI_ne },         { "<=", 7, TNI_le },          { ">=", 7, TNI_ge },
        { "|", 3, TNI_bit_or },      { "^", 4, TNI_bit_xor },      { "&", 5, TNI_bit_and },
        { "<", 7, TNI_lt },          { ">", 7, TNI_gt },           { "+", 8, TNI_add },
        { "-", 8, TNI_sub },         { "*", 9, TNI_mul },          { "/", 9, TNI_div },
        { "%", 9, TNI_remainder },
    };
    skip_space(r);
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (!strncmp(r->t->text + r->t->at, signs[i].text, strlen(signs[i].text))) return &signs[i];
    return NULL;
}

static int32_t read_binary(reader *r, int level)
{
    int32_t x = read_unary(r);
    while (x != FAILED) {
        const sign *s = sign_at(r);
        if (!s || s->level < level) break;
        r->t->at += strlen(s->text);
        int32_t pair[] = { x, read_binary(r, s->level + 1) };
        x              = push_op(r, s->op, 2, pair);
    }
    return x;
}

static int32_t read_choice(reader *r)
{
    if (!go_deeper(r)) return FAILED;
    int32_t x = read_binary(r, 1);
    if (x != FAILED && take(r, '?')) {
        int32_t part[] = { x, read_choice(r), FAILED };
        if (part[1] != FAILED && !take(r, ':')) return refuse(r, r->t->at, "\":\" expected");
        if (part[1] != FAILED) part[2] = read_choice(r);
        x = push_op(r, TNI_where, 3, part);
    }
    r->depth--;
    return x;
}

bool tni_expr_parse(tni_expr_source *t, tni_expr *f)
{
    reader r = { .t = t, .f = f };
    skip_space(&r);
    if (!look(&r) || look(&r) == ';') return true;
    if (read_choice(&r) == FAILED) return false;
    skip_space(&r);
    if (!look(&r) || look(&r) == ';') return true;
    refuse(&r, t->at, "an operator expected");
    return false;
}

// ---- recording ---------------------------------------------------------------------------------

// The dtype of what is computed from the names a formula uses.
static tn_dtype promoted(const tni_expr *f, tn_tensor *const *name)
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
// unless those are integers, which a number may not be.
static tn_tensor *firm(tn_tensor *x, tn_dtype dt)
{
    const tni_node *n = x->store->node;
    if (!n->weak || n->op != TNI_scalar || !tni_is_float(dt)) return x;
    tn_tensor *t = tni_number(x->cx, dt, n->attr.num);
    if (t) t->store->node->weak = false;
    return t;
}

static tn_tensor *record_choice(tn_dtype dt, tn_tensor *cond, tn_tensor *yes, tn_tensor *no)
{
    if (yes->store->node->weak && no->store->node->weak) {
        yes = firm(yes, dt);
        no  = firm(no, dt);
    }
    if (tn_dtype_of(cond) != TN_BOOL) cond = tn_ne_s(cond, 0);
    return tn_where(cond, yes, no);
}

static tn_tensor *record_step(const tni_expr *f, const tni_expr_step *s, tn_ctx *cx,
                              tn_tensor *const *name, tn_tensor **value)
{
    if (s->op == TNI_EXPR_NAME) return name[s->x[0]];
    if (s->op == TNI_EXPR_NUMBER) return tni_number(cx, TN_F32, tni_num_of(s->number));
    if (s->op == TNI_where)
        return record_choice(promoted(f, name), value[s->x[0]], value[s->x[1]], value[s->x[2]]);
    if (s->x[1] < 0) return tni_unary(s->op, value[s->x[0]]);
    return tni_binary(s->op, value[s->x[0]], value[s->x[1]]);
}

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
