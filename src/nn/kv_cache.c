// The cache of keys and values, and the pass of a network over the tokens that follow those in it.
//
// Each attention layer has a slot: its keys and its values, (batch, length, heads, width), the
// order in which a linear layer makes heads and in which attention reads them. A pass of T tokens
// writes them at places count .. count+T-1 of every row. That place is an argument of the run, not
// part of a plan, and nothing else holds the old value, so it is a write in place of T tokens, by
// the same plan for every place.
//
// Attention reads the places from 0 on, as many as the pass has filled rounded up to a step, so
// that a plan serves that many places; their number hides the rest. It is an element of a table 0,
// 1, 2, ... that the cache has, as are the positions: a pass computes neither. Rows of unequal
// lengths begin with padding, so that all rows are written at one place; then a mask hides both.
//
// B batch, T tokens of the pass, S places that are read, H heads, D width of a head
#include "nn/layer.h"

#include <string.h>

// Places that attention reads are a multiple of this. The cpu may convert all of them, so that more
// would be converted in vain; other devices look at those that count, and fewer would make more
// plans.
enum { CPU_STEP = 128, STEP = 1024 };

// The keys and values of one attention layer; owned.
typedef struct {
    tn_tensor *k, *v;
} cache_slot;

// `tokens`, `next` and the tensors at the end are those of the pass in progress. Invariant: places
// 0 .. count-1 of every slot hold tokens, unless `lost`: a step failed that had written some.
struct tn_cache {
    tni_owned  owned;  // first
    int64_t    batch, length, count;
    int64_t   *padding;  // of each row; NULL: none
    tn_tensor *table;    // 0 .. length, i32; owned, NULL before the first pass
    tn_tensor
        *column;  // the padding, i32 (B, 1); owned, NULL before the first pass and without padding
    bool lost;
    cache_slot *slot;
    size_t      slots, slot_cap;
    size_t      layers;  // that attended in the first pass, and have to in all others
    int64_t     tokens;  // of the pass
    size_t      next;    // the slot of the next layer that attends
    int64_t     most;    // tokens that the network takes, as far as its layers said (tn_layer_fits)
    bool        asked;   // a layer of the last pass asked for the number of tokens
    tn_tensor  *positions, *lengths,
        *mask;  // owned; lengths (1) how many places are seen, or a mask;
                // neither: the pass sees no other tokens than its own
};

// ---- making and freeing ------------------------------------------------------------------------

static void disown(tn_tensor **t)
{
    if (*t) tni_tensor_disown(*t);
    *t = NULL;
}

// Gives t to the cache, in which it outlives the call that made it. Returns t, or NULL for NULL.
static tn_tensor *own(tn_tensor *t)
{
    if (t) tni_tensor_own(t);
    return t;
}

static void free_cache(tni_owned *t)
{
    tn_cache *c = (tn_cache *)t;
    for (size_t i = 0; i < c->slots; i++) {
        disown(&c->slot[i].k);
        disown(&c->slot[i].v);
    }
    disown(&c->table);
    disown(&c->column);
    tni_free(&t->cx->heap, c->slot);
    tni_free(&t->cx->heap, c->padding);
    tni_free(&t->cx->heap, c);
}

// A failed step takes back what passes since the last one have written, which may be any number of
// tokens.
static void cache_rolled_back(tni_owned *t)
{
    ((tn_cache *)t)->lost = ((tn_cache *)t)->count > 0;
}

// Copies the padding of each row, unless there is none. False, reported, on failure.
static bool copy_padding(tn_cache *c, const int64_t *padding)
{
    tn_ctx *cx  = c->owned.cx;
    bool    any = false;
    for (int64_t i = 0; padding && i < c->batch; i++) {
        if (padding[i] < 0 || padding[i] >= c->length)
            return tni_refuse(cx, TN_EARG,
                              "cache_new: padding %lld of row %lld is not in 0 .. %lld",
                              (long long)padding[i], (long long)i, (long long)c->length - 1);
        any |= padding[i] > 0;
    }
    if (!any) return true;
    size_t bytes = (size_t)c->batch * sizeof *padding;
    if (!(c->padding = tni_alloc(&cx->heap, bytes))) return tni_no_memory(cx, "cache_new");
    memcpy(c->padding, padding, bytes);
    return true;
}

tn_cache *tn_cache_new(tn_ctx *cx, int64_t batch, int64_t length, tn_cache_opts o)
{
    if (!tni_ctx_ok(cx, "cache_new")) return NULL;
    if (batch < 1 || length < 1 || length > INT32_MAX)
        return tni_fail(cx, TN_EARG, "cache_new: %lld rows of %lld tokens", (long long)batch,
                        (long long)length);
    tn_cache *c = tni_zalloc(&cx->heap, sizeof *c);
    if (!c) return tni_fail_memory(cx, "cache_new");
    c->batch  = batch;
    c->length = length;
    c->most   = INT64_MAX;
    tni_owned_add(cx, &c->owned, TNI_CACHE, free_cache);
    c->owned.rolled_back = cache_rolled_back;
    if (copy_padding(c, o.padding)) return c;
    tn_cache_free(c);
    return NULL;
}

void tn_cache_free(tn_cache *c)
{
    if (!c || !tni_owned_ok("cache_free", c, TNI_CACHE)) return;
    if (c->tokens) {
        tni_fail(c->owned.cx, TN_EARG, "cache_free: a call that uses the cache is in progress");
        return;
    }
    tni_owned_remove(&c->owned);
    free_cache(&c->owned);
}

void tn_cache_clear(tn_cache *c)
{
    if (!tni_owned_ok("cache_clear", c, TNI_CACHE)) return;
    c->count = 0;
    c->most  = INT64_MAX;
    c->lost  = false;
}

int64_t tn_cache_count(const tn_cache *c)
{
    return c ? c->count : 0;
}

// ---- a pass ------------------------------------------------------------------------------------

// Elements from .. from+n-1 of the table: numbers of the run that are not in its plan.
static tn_tensor *from_table(tn_cache *c, int64_t from, int64_t n)
{
    return tn_slice(c->table, 0, from, from + n, 1);
}

// Computes t at once and keeps it in *at. False, reported, on failure.
static bool keep_computed(tn_tensor **at, tn_tensor *t)
{
    if (t && tn_eval_of(t) == TN_OK) *at = own(t);
    return *at != NULL;
}

// Makes the table and the column of paddings in the first pass. False, reported, on failure.
static bool make_tables(tn_cache *c)
{
    tn_ctx *cx = c->owned.cx;
    if (!c->table && !keep_computed(&c->table, tn_arange_i64(cx, TN_I32, 0, c->length + 1, 1)))
        return false;
    if (!c->padding || c->column) return true;
    tn_tensor *p = tn_from(cx, TN_I64, TN_SHAPE(c->batch, 1), c->padding);
    return keep_computed(&c->column, p ? tn_cast(p, TN_I32) : NULL);
}

// Positions count from the first token after the padding; padding has position 0, which nothing
// sees. They are below the length by construction: tables of that length are read without a check.
static tn_tensor *make_positions(tn_cache *c)
{
    tn_tensor *p = from_table(c, c->count, c->tokens);
    if (c->padding) p = tn_maximum_i64(tn_sub(p, c->column), 0);
    if (p) p = tni_share(p, "forward_cached");
    tni_set_below(p, c->length);
    return p;
}

// The number of places that attention reads if there are that many tokens: a multiple of a step, or
// all.
static int64_t places_for(const tn_cache *c, int64_t tokens)
{
    int64_t step = c->owned.cx->engine->device->memory->host ? CPU_STEP : STEP;
    int64_t n    = (tokens + step - 1) / step * step;
    return n < c->length ? n : c->length;
}

// The number of places that attention reads in this pass.
static int64_t places_read(const tn_cache *c)
{
    return places_for(c, c->count + c->tokens);
}

// Which places a token of a row with padding sees: those up to its own, after the padding. (B, 1,
// T, S)
static tn_tensor *make_mask(tn_cache *c)
{
    tn_tensor *key   = from_table(c, 0, places_read(c));
    tn_tensor *seen  = tn_le(key, tn_unsqueeze(from_table(c, c->count, c->tokens), 1));
    tn_tensor *first = tn_reshape(c->column, TN_SHAPE(c->batch, 1, 1, 1));
    return tn_logical_and(seen, tn_ge(key, first));
}

// The mask of the pass within a window: places farther back than that are not seen either.
static tn_tensor *windowed_mask(tn_cache *c, int64_t window)
{
    if (window <= 0) return c->mask;
    tn_tensor *key   = from_table(c, 0, places_read(c));
    tn_tensor *since = tn_sub_i64(tn_unsqueeze(from_table(c, c->count, c->tokens), 1), window);
    return tn_logical_and(c->mask, tn_gt(key, since));
}

// Whether x (B, T) goes into the cache; reports what is wrong otherwise.
static bool tokens_fit(tn_ctx *cx, const tn_cache *c, const tn_tensor *x)
{
    const char *op = "forward_cached";
    if (c->lost)
        return tni_refuse(cx, TN_EGONE, "%s: the cache lost tokens in a failed step: clear it", op);
    if (c->tokens)
        return tni_refuse(cx, TN_EARG, "%s: the cache is in use by a pass in progress", op);
    if (tn_rank(x) < 2 || tn_size(x, 0) != c->batch || tn_size(x, 1) < 1)
        return tni_refuse(cx, TN_ESHAPE, "%s: x %s is not (%lld, T)", op, tni_shape_of(x).s,
                          (long long)c->batch);
    if (tn_size(x, 1) <= c->length - c->count) return true;
    return tni_refuse(cx, TN_ESHAPE, "%s: %lld tokens after %lld are more than the cache's %lld",
                      op, (long long)tn_size(x, 1), (long long)c->count, (long long)c->length);
}

// Prepares the tensors that all layers of the pass share. False, reported, on failure.
static bool begin_cached_pass(tn_cache *c, int64_t T)
{
    c->tokens = T;
    c->next   = 0;
    c->asked  = false;
    if (!make_tables(c) || !(c->positions = own(make_positions(c)))) return false;
    // A first pass without padding is plain causal attention, of its own keys alone.
    if (c->count == 0 && !c->padding) return true;
    if (c->padding) return (c->mask = own(make_mask(c))) != NULL;
    return (c->lengths = own(from_table(c, c->count + T, 1))) != NULL;
}

static void end_cached_pass(tn_cache *c, bool ok)
{
    if (ok && !c->count) c->layers = c->next;
    if (ok) c->count += c->tokens;
    c->tokens = 0;
    disown(&c->positions);
    disown(&c->lengths);
    disown(&c->mask);
}

// Runs l with the cache in its tree's root, where the layers below find it. If the pass fails, what
// it has written lies behind the tokens that count.
tn_tensor *tn_forward_cached(tn_layer *l, tn_tensor *x, tn_cache *c)
{
    const char *op = "forward_cached";
    tn_ctx     *cx = tni_owned_ok(op, l, TNI_LAYER);
    if (!cx || !tni_owned_ok(op, c, TNI_CACHE) || !tni_arg1(op, x, "x")) return NULL;
    if (c->owned.cx != cx || x->cx != cx)
        return tni_fail(cx, TN_EARG, "%s: layer, x and cache are not of one context", op);
    tn_layer *root = tni_layer_root(l);
    if (root->cache) return tni_fail(cx, TN_EARG, "%s: the layer is running with a cache", op);
    if (!tokens_fit(cx, c, x)) return NULL;
    bool mode     = tn_grad_mode(cx, false);
    root->cache   = c;
    tn_tensor *y  = begin_cached_pass(c, tn_size(x, 1)) ? tn_forward(l, x) : NULL;
    root->cache   = NULL;
    cx->grad_mode = mode;
    if (y && !c->next)
        y = tni_fail(cx, TN_EARG, "%s: no layer of the network attends by tn_layer_attention", op);
    if (y && c->count && c->next != c->layers)
        y = tni_fail(cx, TN_EARG, "%s: %zu layers attend, but the cache was filled by %zu", op,
                     c->next, c->layers);
    end_cached_pass(c, y != NULL);
    return y;
}

// ---- passes that are repeated ------------------------------------------------------------------

bool tni_cache_repeats(const tn_cache *c)
{
    int64_t after = c->count + 1;
    if (c->lost || c->asked || after > c->length || after > c->most) return false;
    return places_for(c, after) == places_for(c, c->count);
}

void tni_cache_advance(tn_cache *c)
{
    c->count++;
}

// ---- what layers ask for -----------------------------------------------------------------------

// The cache that l is running with; NULL if there is none.
static tn_cache *cache_of(const tn_layer *l)
{
    return tni_layer_root((tn_layer *)l)->cache;
}

int64_t tn_layer_past(const tn_layer *l)
{
    tn_cache *c = l ? cache_of(l) : NULL;
    if (c) c->asked = true;
    return c ? c->count : 0;
}

bool tn_layer_fits(const tn_layer *l, int64_t tokens, int64_t context)
{
    tn_cache *c = l ? cache_of(l) : NULL;
    if (c && context < c->most) c->most = context;
    return (c ? c->count : 0) + tokens <= context;
}

tn_tensor *tn_layer_positions(tn_layer *l, int64_t T)
{
    tn_ctx *cx = tni_owned_ok("layer_positions", l, TNI_LAYER);
    if (!cx) return NULL;
    tn_cache *c = cache_of(l);
    if (!c) return tn_arange_i64(cx, TN_I64, 0, T, 1);
    if (T != c->tokens)
        return tni_fail(cx, TN_ESHAPE, "layer_positions: %lld of %lld tokens", (long long)T,
                        (long long)c->tokens);
    return tni_share(c->positions, "layer_positions");
}

// Keys or values (B, H, T, D) as the cache stores them, (B, T, H, D).
static tn_tensor *by_place(tn_tensor *x)
{
    return tn_transpose(x, 1, 2);
}

// Zeros for keys or values like x, computed at once: a step that fails returns to them, and the
// first pass writes into them as later ones do.
static tn_tensor *new_store(tn_cache *c, tn_tensor *x)
{
    int64_t    H = tn_size(x, 1), D = tn_size(x, 3);
    tn_tensor *s = tn_zeros(c->owned.cx, tn_dtype_of(x), TN_SHAPE(c->batch, c->length, H, D));
    return s && tn_eval_of(s) == TN_OK ? own(s) : NULL;
}

// The slot of the layer that attends now, made in the first pass. NULL, reported, on failure.
static cache_slot *next_slot(tn_cache *c, tn_tensor *k, tn_tensor *v)
{
    tn_ctx *cx = c->owned.cx;
    if (c->next == c->slots) {
        if (!tni_grow(&cx->heap, (void **)&c->slot, &c->slot_cap, c->slots + 1, sizeof *c->slot))
            return tni_fail_memory(cx, "layer_attention");
        cache_slot s        = { new_store(c, k), new_store(c, v) };
        c->slot[c->slots++] = s;
        if (!s.k || !s.v) return NULL;
    }
    return &c->slot[c->next++];
}

// Whether x, of that name, is (B, H, T, D) for the cache. Reports what is wrong otherwise. Other
// heads or widths than in the pass before do not fit the slice that they are assigned to.
static bool slot_fits(const tn_cache *c, const char *name, const tn_tensor *x)
{
    tn_ctx *cx = c->owned.cx;
    if (tn_rank(x) == 4 && tn_size(x, 0) == c->batch && tn_size(x, 2) == c->tokens) return true;
    return tni_refuse(cx, TN_ESHAPE, "layer_attention: %s %s is not (%lld, H, %lld, D)", name,
                      tni_shape_of(x).s, (long long)c->batch, (long long)c->tokens);
}

// Part of another value as a value of its own; all of one as it is. NULL, reported, on failure.
static tn_tensor *as_value(tn_tensor *x)
{
    int64_t   skip;
    tni_node *n = tni_resolve(x, "layer_attention");
    if (!n || tni_node_count(tni_node_base(n, &skip)) == tni_node_count(n)) return n ? x : NULL;
    return tni_record(x->cx, TNI_copy, (tn_dtype)n->dtype, n->rank, n->size, 1, &n, NULL);
}

// Writes x behind the tokens of a slot's memory s, and returns the places that the pass reads, (B,
// H, S, D). In one row they are one run of memory, into which a value of its own is computed; the
// parts of a product for queries, keys and values become such values, keys and values in one
// kernel.
static tn_tensor *write_places(tn_cache *c, tn_tensor *s, tn_tensor *x)
{
    tn_tensor *to = tn_slice(s, 1, c->count, c->count + c->tokens, 1);
    x             = by_place(x);
    if (x && c->batch == 1) x = as_value(x);
    if (!tn_assign(to, x)) return NULL;
    return by_place(tn_slice(s, 1, 0, places_read(c), 1));
}

// A pass that sees no other keys than its own reads them where they were made.
tn_tensor *tn_layer_attention(tn_layer *l, tn_tensor *q, tn_tensor *k, tn_tensor *v,
                              tn_attention_opts o)
{
    static const char *const names[] = { "q", "k", "v" };
    const char              *op      = "layer_attention";
    tn_ctx                  *cx      = tni_args(op, 3, (tn_tensor *const[]){ q, k, v }, names);
    if (!cx || !tni_owned_ok(op, l, TNI_LAYER)) return NULL;
    if (l->owned.cx != cx)
        return tni_fail(cx, TN_EARG, "%s: the layer belongs to another context", op);
    tn_cache *c = cache_of(l);
    if (!c) return tn_attention(q, k, v, o);
    if (!o.causal || o.mask || o.lengths)
        return tni_fail(cx, TN_EARG,
                        "%s: with a cache, attention is causal and has no mask and no lengths", op);
    if (!slot_fits(c, "q", q) || !slot_fits(c, "k", k) || !slot_fits(c, "v", v)) return NULL;
    cache_slot *s    = next_slot(c, k, v);
    tn_tensor  *keys = s ? write_places(c, s->k, k) : NULL;
    tn_tensor  *vals = keys ? write_places(c, s->v, v) : NULL;
    if (!vals) return NULL;
    if (!c->mask && !c->lengths) return tn_attention(q, k, v, o);
    o.lengths = c->lengths;
    if (c->mask) {
        o.causal = false;
        o.mask   = windowed_mask(c, o.window);
        o.window = 0;
        if (!o.mask) return NULL;
    }
    return tn_attention(q, keys, vals, o);
}
