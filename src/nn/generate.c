// tn_generate: continues prompts token by token. The tokens are chosen on the device and go
// straight into the next step. The host reads them some steps later, so that a GPU always has work:
// it finds stop tokens late, and leaves out what was generated after them. Once a few steps were
// recorded, they are repeated (engine/repeat.c).
//
// All tokens of the prompts but the last run in one pass, whose logits are not asked for. Every
// further step runs one token of each row, so all of them have one plan. Shorter prompts begin with
// padding.
//
// B rows, T tokens of the longest prompt, V vocabulary
#include "nn/layer.h"

#include <string.h>

// Steps that a GPU is ahead of the host. Recording a step takes less time than running it, so two
// would do; more of them hide a host that is interrupted.
enum { AHEAD = 4, MOST_ROWS = TNI_MOST_FETCHES / (AHEAD + 1) };

// One call. `token` has the tokens chosen by the last two steps, (B), by step modulo 2: the next
// step is to write where the older one is. `ticket` are the copies to the host of the newest steps,
// by step modulo AHEAD + 1, 0 if they are read by waiting.
typedef struct {
    tn_ctx          *cx;
    tn_layer        *net;
    tn_generate_opts o;
    int64_t          B, T, V;
    const tn_tokens *prompt;
    int64_t
        *host;  // (B, T + max_tokens): all tokens of each row, the shorter prompts padded in front
    int64_t    *padding, *ids, *count;
    bool       *done;  // of each row: it has met a stop token
    tn_cache   *cache;
    tn_tensor  *seen;  // with a penalty: which tokens each row has, bool (B, V)
    tn_tensor  *token[2];
    int64_t     ticket[AHEAD + 1][MOST_ROWS];
    int         ahead;
    tni_repeat *repeat;      // NULL: every step is recorded
    int64_t     made, read;  // steps recorded, and those whose tokens were read
} generation;

// ---- arguments ---------------------------------------------------------------------------------

// Whether every prompt has tokens, and the longest fits the cache with all new tokens.
static bool prompts_ok(generation *g)
{
    for (int64_t i = 0; i < g->B; i++) {
        const tn_tokens *p = &g->prompt[i];
        if (p->count < 1 || !p->ids)
            return tni_refuse(g->cx, TN_EARG, "generate: prompt %lld has no tokens", (long long)i);
        if (p->count > g->T) g->T = p->count;
    }
    // The last new token is never run.
    int64_t needed = g->T + g->o.max_tokens - 1;
    if (!g->o.length) g->o.length = needed;
    if (needed <= g->o.length) return true;
    return tni_refuse(g->cx, TN_ESHAPE,
                      "generate: a prompt of %lld tokens and %lld new ones are more than the "
                      "cache's %lld",
                      (long long)g->T, (long long)g->o.max_tokens, (long long)g->o.length);
}

static bool settings_ok(generation *g, int n)
{
    tn_generate_opts *o = &g->o;
    if (!o->max_tokens) o->max_tokens = 128;
    if (o->repetition_penalty == 0) o->repetition_penalty = 1;
    if (n < 1 || !g->prompt || !g->ids || !g->count)
        return tni_refuse(g->cx, TN_EARG, "generate: %d prompts, or NULL for prompts or results",
                          n);
    if (o->stops && !o->stop)
        return tni_refuse(g->cx, TN_EARG, "generate: stops is %d, and stop is NULL", o->stops);
    if (o->max_tokens < 1 || o->max_tokens > INT32_MAX || o->length < 0 || o->stops < 0)
        return tni_refuse(g->cx, TN_EARG,
                          "generate: max_tokens %lld, length %lld or stops %d is out of range",
                          (long long)o->max_tokens, (long long)o->length, o->stops);
    if (o->repetition_penalty > 0) return prompts_ok(g);
    return tni_refuse(g->cx, TN_EARG, "generate: repetition_penalty %g is not positive",
                      o->repetition_penalty);
}

// Finds the size of the vocabulary from the shape of a result, for which nothing is computed.
// False, reported, on failure.
static bool find_vocabulary(generation *g)
{
    tn_scope  *scope = tn_begin(g->cx);
    tn_tensor *x     = tn_zeros(g->cx, TN_I64, TN_SHAPE(g->B, 1));
    tn_tensor *y     = x ? tn_forward(g->net, x) : NULL;
    bool       ok    = y && tn_rank(y) == 3 && tn_size(y, 0) == g->B;
    if (ok) g->V = tn_size(y, 2);
    else if (y)
        tni_fail(g->cx, TN_ESHAPE, "generate: the network's result %s is not (B, T, V)",
                 tni_shape_of(y).s);
    tni_scope_close(scope);
    return ok;
}

// Whether all tokens of the prompts are in the vocabulary.
static bool tokens_ok(generation *g)
{
    if (!find_vocabulary(g)) return false;
    for (int64_t i = 0; i < g->B; i++)
        for (int64_t j = 0; j < g->prompt[i].count; j++) {
            int64_t id = g->prompt[i].ids[j];
            if (id < 0 || id >= g->V)
                return tni_refuse(g->cx, TN_EARG,
                                  "generate: token %lld of prompt %lld is %lld, not in 0 .. %lld",
                                  (long long)j, (long long)i, (long long)id, (long long)g->V - 1);
        }
    return true;
}

// ---- memory ------------------------------------------------------------------------------------

// Whether all layers with functions of their own may be left out when a step is repeated.
static bool is_repeatable(tn_layer *net)
{
    for (tn_layer *l = net; l; l = tni_layer_next(net, l))
        if ((l->forward || l->forward_n) && !l->builtin && !l->repeatable) return false;
    return true;
}

// Allocates the arrays and puts the prompts side by side, aligned at their ends.
static bool open_generation(generation *g)
{
    tni_heap *h    = &g->cx->heap;
    size_t    rows = (size_t)g->B, most = (size_t)(g->T + g->o.max_tokens);
    g->padding = tni_zalloc(h, rows * sizeof *g->padding);
    g->done    = tni_zalloc(h, rows * sizeof *g->done);
    g->host    = tni_zalloc(h, rows * most * sizeof *g->host);
    if (!g->padding || !g->done || !g->host) return tni_no_memory(g->cx, "generate");
    for (size_t i = 0; i < rows; i++) {
        const tn_tokens *p = &g->prompt[i];
        g->count[i]        = 0;
        g->padding[i]      = g->T - p->count;
        memcpy(g->host + i * most + g->padding[i], p->ids, (size_t)p->count * sizeof *p->ids);
    }
    tn_cache_opts o = { .padding = g->padding };
    if (!g->o.no_cache) g->cache = tn_cache_new(g->cx, g->B, g->o.length, o);
    bool late = g->cx->engine->events->fetch && g->cache && g->B <= MOST_ROWS;
    g->ahead  = late ? AHEAD : 0;
    if (g->cache && is_repeatable(g->net)) g->repeat = tni_repeat_new(g->cx);
    return g->cache || g->o.no_cache;
}

static void close_generation(generation *g)
{
    tni_heap *h = &g->cx->heap;
    tni_repeat_free(g->repeat);
    tn_cache_free(g->cache);
    tni_free(h, g->padding);
    tni_free(h, g->done);
    tni_free(h, g->host);
}

// ---- steps -------------------------------------------------------------------------------------

// Tokens from .. from+n-1 of all rows as a tensor (B, n), each row shifted by its entry of `shift`,
// if any. They were looked at: the network need not check them, and a pass that cannot fail writes
// to the cache in place also on devices that report errors late.
static tn_tensor *host_tokens(generation *g, int64_t from, int64_t n, const int64_t *shift)
{
    int64_t  most = g->T + g->o.max_tokens;
    int64_t *all  = tni_zalloc(&g->cx->heap, (size_t)(g->B * n) * sizeof *all);
    if (!all) return tni_fail_memory(g->cx, "generate");
    for (int64_t i = 0; i < g->B; i++) {
        int64_t begin = from + (shift ? shift[i] : 0);
        int64_t take  = n < most - begin ? n : most - begin;
        memcpy(all + i * n, g->host + i * most + begin, (size_t)take * sizeof *all);
    }
    tn_tensor *x = tn_from(g->cx, TN_I64, TN_SHAPE(g->B, n), all);
    tni_free(&g->cx->heap, all);
    tni_set_below(x, g->V);
    return x;
}

// Fills the cache with all tokens of the prompts but the last.
static bool run_prompts(generation *g)
{
    if (g->T == 1 || !g->cache) return true;
    tn_scope  *scope = tn_begin(g->cx);
    tn_tensor *x     = host_tokens(g, 0, g->T - 1, NULL);
    tn_tensor *y     = x ? tn_forward_cached(g->net, x, g->cache) : NULL;
    if (y) tn_drop(y);  // so that no logits are computed
    bool ok = y && tn_eval(g->cx) == TN_OK;
    tni_scope_close(scope);
    return ok;
}

// Without a cache: the logits (B, V) after the newest token of each row, from a run over all
// tokens. Rows begin with their prompts here, and what follows the newest token of a shorter one
// changes nothing before it.
static tn_tensor *uncached_logits(generation *g)
{
    int64_t     n   = g->T + g->made;
    tn_tensor  *x   = host_tokens(g, 0, n, g->padding);
    tn_tensor  *y   = x ? tn_forward(g->net, x) : NULL;
    tn_tensor **row = tni_alloc(&g->cx->heap, (size_t)g->B * sizeof *row);
    tn_tensor  *all = NULL;
    if (!row) tni_no_memory(g->cx, "generate");
    else if (y) {
        for (int64_t i = 0; i < g->B; i++)
            row[i] = tn_select(tn_select(y, 0, i), 0, n - 1 - g->padding[i]);
        all = tn_stack((int)g->B, row, 0);
    }
    tni_free(&g->cx->heap, row);
    return all;
}

// The logits (B, V) after the newest token of each row. The first step takes that from the prompts,
// all others from the step before.
static tn_tensor *next_logits(generation *g)
{
    if (!g->cache) return uncached_logits(g);
    tn_tensor *x = g->made ? g->token[(g->made - 1) % 2] : host_tokens(g, g->T - 1, 1, NULL);
    x            = x ? tn_reshape(x, TN_SHAPE(g->B, 1)) : NULL;
    tn_tensor *y = x ? tn_forward_cached(g->net, x, g->cache) : NULL;
    return y ? tn_select(y, 1, 0) : NULL;
}

// Makes `seen` from the tokens of the prompts. False, reported, on failure.
static bool mark_prompts(generation *g)
{
    bool *mark = tni_zalloc(&g->cx->heap, (size_t)(g->B * g->V));
    if (!mark) return tni_no_memory(g->cx, "generate");
    for (int64_t i = 0; i < g->B; i++)
        for (int64_t j = 0; j < g->prompt[i].count; j++)
            mark[i * g->V + g->prompt[i].ids[j]] = true;
    g->seen = tn_from(g->cx, TN_BOOL, TN_SHAPE(g->B, g->V), mark);
    if (g->seen) tni_tensor_own(g->seen);
    tni_free(&g->cx->heap, mark);
    return g->seen != NULL;
}

// Makes tokens that a row has less likely.
static tn_tensor *penalize(generation *g, tn_tensor *x)
{
    double p = g->o.repetition_penalty;
    if (!x || p == 1) return x;
    if (!g->seen && !mark_prompts(g)) return NULL;
    x               = tn_cast(x, TN_F32);
    tn_tensor *less = tn_where(tn_gt_s(x, 0), tn_div_s(x, p), tn_mul_s(x, p));
    return tn_where(g->seen, less, x);
}

// Notes the new tokens (B) of the rows in `seen`.
static bool mark_new(generation *g, tn_tensor *token)
{
    if (!g->seen) return true;
    tn_tensor *all = tn_arange_i64(g->cx, TN_I64, 0, g->V, 1);
    return tn_assign(g->seen, tn_logical_or(g->seen, tn_eq(all, tn_unsqueeze(token, 1)))) != NULL;
}

// Records one step, from the newest tokens to the next, and launches it. Only the tokens and what
// is written in place outlive the scope, so nothing else is stored.
static bool record_step(generation *g)
{
    tn_tensor **at    = &g->token[g->made % 2];
    tn_scope   *scope = tn_begin(g->cx);
    tn_tensor  *x     = penalize(g, next_logits(g));
    tn_tensor  *y     = x ? tn_sample(x, g->o.sample) : NULL;
    bool        ok    = y && mark_new(g, y);
    if (*at) tn_drop(*at);
    *at = ok ? tn_keep(y) : NULL;
    tni_scope_close(scope);
    if (!ok) return false;
    // A network in training is not repeated: the caller may end that at any time.
    bool watched = g->repeat && !tn_layer_training(g->net);
    return (watched ? tni_repeat_eval(g->repeat, *at) : tn_eval(g->cx)) == TN_OK;
}

// Launches the next step as the last ones were, with the copy of its tokens to the host, if it
// would be recorded like them.
static bool repeat_step(generation *g, int64_t *ticket, bool *ok)
{
    int n = g->ahead ? (int)g->B : 0;
    if (!g->repeat || !tni_repeat_settled(g->repeat)) return false;
    if (!tni_cache_repeats(g->cache) || tn_layer_training(g->net)) return false;
    *ok = tni_repeat_run(g->repeat, g->token[g->made % 2], n, ticket) == TN_OK;
    tni_cache_advance(g->cache);
    return true;
}

// Launches one step and begins to copy its tokens to the host. If the device cannot, they are read
// by waiting from now on.
static bool run_step(generation *g)
{
    bool     ok, repeated;
    int64_t *ticket = g->ticket[g->made % (AHEAD + 1)];
    for (int i = 0; i < g->B && i < MOST_ROWS; i++) ticket[i] = 0;
    repeated = repeat_step(g, ticket, &ok);
    if (!repeated) ok = record_step(g);
    for (int i = 0; ok && i < g->B && g->ahead; i++) {
        if (!repeated) ticket[i] = tni_fetch_begin(g->token[g->made % 2], i);
        if (!ticket[i]) ticket[0] = g->ahead = 0;
    }
    g->made++;
    return ok;
}

// ---- reading -----------------------------------------------------------------------------------

// The tokens of the oldest step that was not read. False, reported, on failure.
static bool read_step(generation *g, int64_t *to)
{
    const int64_t *ticket = g->ticket[g->read % (AHEAD + 1)];
    if (!ticket[0]) return tn_read(g->token[g->read % 2], TN_I64, to, g->B) == TN_OK;
    for (int64_t i = 0; i < g->B; i++)
        if (!tni_fetch_end(g->cx, ticket[i], &to[i])) return false;
    return true;
}

static bool is_stop(const generation *g, int64_t token)
{
    for (int i = 0; i < g->o.stops; i++)
        if (g->o.stop[i] == token) return true;
    return false;
}

// Hands over the tokens of the oldest step that was not read. *ended: all rows have, or the caller
// wants no more.
static bool take_step(generation *g, bool *ended)
{
    int64_t most = g->T + g->o.max_tokens, *row = g->host + g->T + g->read;
    int64_t few[MOST_ROWS], *to                 = g->B <= MOST_ROWS ? few : NULL;
    if (!to) to = tni_alloc(&g->cx->heap, (size_t)g->B * sizeof *to);
    if (!to) return tni_no_memory(g->cx, "generate");
    bool ok = read_step(g, to), all = true;
    for (int64_t i = 0; ok && i < g->B && !*ended; i++) {
        row[i * most] = to[i];
        g->done[i] |= is_stop(g, to[i]);
        all &= g->done[i];
        if (g->done[i]) continue;
        g->ids[i * g->o.max_tokens + g->count[i]++] = to[i];
        if (g->o.on_token && !g->o.on_token((int)i, to[i], g->o.user)) *ended = true;
    }
    if (to != few) tni_free(&g->cx->heap, to);
    *ended |= all;
    g->read++;
    return ok;
}

static bool run_generation(generation *g)
{
    bool ended = false, ok = tokens_ok(g) && run_prompts(g);
    while (ok && !ended && g->read < g->o.max_tokens) {
        if (g->made < g->o.max_tokens) ok = run_step(g);
        while (ok && !ended && g->read < g->made &&
               (g->made - g->read > g->ahead || g->made == g->o.max_tokens))
            ok = take_step(g, &ended);
    }
    if (g->seen) tni_tensor_disown(g->seen);
    return ok;
}

// Everything that is made on the way dies with the scope. Modes are those of before afterwards.
tn_status tn_generate(tn_layer *net, int n, const tn_tokens *prompts, tn_generate_opts o,
                      int64_t *ids, int64_t *count)
{
    tn_ctx *cx = tni_owned_ok("generate", net, TNI_LAYER);
    if (!cx) return tni_failed();
    generation g = { .cx = cx, .net = net, .o = o, .B = n, .prompt = prompts, .ids = ids };
    g.count      = count;
    if (!settings_ok(&g, n)) return tni_failed();
    bool      training = tn_layer_training(net), mode = tn_grad_mode(cx, false);
    tn_scope *scope = tn_begin(cx);
    if (training) tn_layer_train(net, false);
    if (o.seed) tn_seed(cx, o.seed);
    tni_layer_hold(net);
    bool ok = scope && open_generation(&g) && run_generation(&g);
    tni_layer_let_go(net);
    close_generation(&g);
    if (training) tn_layer_train(net, true);
    if (scope) tni_scope_close(scope);
    cx->grad_mode = mode;
    return ok ? TN_OK : tni_failed();
}
