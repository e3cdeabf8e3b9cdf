// Random programs on registers: the calls that all numbers take, and the loop that runs them.
#include "registers.h"
#include "table.h"

// A call of the machine's own is OWN and more.
enum {
    ADD,
    FLIP,
    LESS_SUM,
    CLONE,
    CUMSUM,
    JOIN,
    ASSIGN,
    ASSIGN_ROWS,
    ADD_COLUMN,
    SHIFT_COLUMNS,
    MUL_FLIPPED,
    FILL_DIAGONAL,
    SUB_COLUMNS,
    EVAL_ONE,
    EVAL_ALL,
    OWN
};

void registers_draw(const registers *m, int n, step *code)
{
    for (int i = 0; i < n; i++)
        code[i] = (step){ (int)draw_below(OWN + m->own_calls), (int)draw_below(m->registers),
                          (int)draw_below(m->registers), (int)draw_below(m->registers),
                          (int)draw_below(m->cols) };
}

static tn_tensor *rows_of(tn_tensor *x, int64_t from, int64_t to)
{
    return tn_slice(x, 0, from, to, 1);
}

// Calls that give register d a new handle.
static tn_tensor *make_value(const registers *m, const step *s, tn_tensor *a, tn_tensor *b)
{
    int64_t half = (m->rows + 1) / 2;
    switch (s->op) {
    case ADD: return tn_add(a, b);
    case FLIP: return tn_flip(a, s->k & 1);
    case LESS_SUM: return tn_sub(a, tn_sum_keep(b, s->k & 1));
    case CLONE: return tn_clone(a);
    case CUMSUM: return tn_cumsum(a, s->k & 1);
    case JOIN:
        return tn_concat(2, (tn_tensor *const[]){ rows_of(a, 0, half), rows_of(b, half, m->rows) },
                         0);
    default: return m->own(s->op - OWN, a, b, s->k);
    }
}

static tn_tensor *tamed(const registers *m, tn_tensor *x)
{
    return m->tame ? m->tame(x) : x;
}

// Calls that write through register d.
static tn_tensor *write_value(const registers *m, const step *s, tn_tensor *d, tn_tensor *a)
{
    int64_t half = (m->rows + 1) / 2, last = m->rows - 1;
    switch (s->op) {
    case ASSIGN: return tn_assign(d, tamed(m, a));
    case ASSIGN_ROWS: return tn_assign(rows_of(d, 1, 1 + half), rows_of(a, last - half, last));
    case ADD_COLUMN: return tn_add_(tn_select(d, 1, s->k), tn_select(a, 1, m->cols - 1 - s->k));
    case SHIFT_COLUMNS: return tn_assign(tn_slice(d, 1, 0, -1, 1), tn_slice(d, 1, 1, TN_TO_END, 1));
    case MUL_FLIPPED: return tn_mul_(d, tamed(m, tn_flip(d, 0)));
    case FILL_DIAGONAL: return tn_fill_(tn_diagonal(d, s->k - (int)m->rows / 2, 0, 1), s->k);
    default: return tn_sub_(tn_slice(d, 1, 0, TN_TO_END, 2), tn_slice(a, 1, 1, TN_TO_END, 2));
    }
}

static bool run_step(const registers *m, const step *s, tn_tensor **r)
{
    if (s->op >= ASSIGN && s->op <= SUB_COLUMNS) return write_value(m, s, r[s->d], r[s->a]) != NULL;
    if (s->op == EVAL_ONE) return tn_eval_of(r[s->a]) == TN_OK;
    if (s->op == EVAL_ALL) {
        for (int i = 0; i < m->registers; i++) tn_want(r[i]);
        return tn_eval(tn_ctx_of(r[0])) == TN_OK;
    }
    r[s->d] = make_value(m, s, r[s->a], r[s->b]);
    return r[s->d] != NULL;
}

bool registers_run(const registers *m, int n, const step *code, tn_tensor **r, bool eager)
{
    for (int i = 0; i < n; i++) {
        if (!run_step(m, &code[i], r)) return false;
        for (int k = 0; eager && k < m->registers; k++)
            if (tn_eval_of(r[k]) != TN_OK) return false;
    }
    return true;
}
