// What the environment asks to see of plans: TN_EXPLAIN prints every plan that is built, and
// TN_LOG=plan says in a line why it was built. A loop that has settled builds none:
//
//   plan 5: new: size of axis 1 of randn at train.c:5 is 11, was 10
//
// The reason is found by comparing the new plan's key with the most similar one in the cache.
#include "base/page.h"
#include "inspect/explain.h"
#include "inspect/host_copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A path that is too long is ignored rather than cut.
void tni_plan_log_open(tni_inspect *x)
{
    const char *to = getenv("TN_EXPLAIN");
    x->log_plans   = tni_has_word(getenv("TN_LOG"), "plan");
    if (to && strcmp(to, "0") && strlen(to) < sizeof x->explain) strcpy(x->explain, to);
}

// ---- TN_EXPLAIN --------------------------------------------------------------------------------

static bool is_page(const char *to)
{
    size_t n = strlen(to);
    return n > 5 && !strcmp(to + n - 5, ".html");
}

// Plans of a page are kept until the context closes: the first of them, as much as people look at.
static void keep_plan(tni_graph *g, const tni_plan *p)
{
    enum { MOST_PLANS = 64, MOST_BYTES = 8 << 20 };
    tni_inspect    *x = g->cx->engine->inspect;
    tni_json_writer w = { .heap = &g->cx->heap };
    if (x->plans == MOST_PLANS || x->pages.bytes > MOST_BYTES) {
        x->left++;
        return;
    }
    tni_text title = tni_text_of("plan %lld", (long long)g->cx->stats.plans);
    if (x->plans) tni_json_put(&w, ",\n");
    if (tni_explain_json(g, p, title.s, &w)) {
        x->pages.heap = w.heap;
        tni_json_put(&x->pages, w.text);
        x->plans++;
    }
    tni_free(w.heap, w.text);
}

// Plans are written when all of them are known. Like a profile that the environment asks for, a
// page that cannot be written is no error of the program, but is reported.
void tni_plan_log_close(tn_ctx *cx)
{
    tni_inspect *x  = cx->engine->inspect;
    FILE        *f  = x->plans && !x->pages.full ? tni_page_open_next(x->explain) : NULL;
    bool         ok = f && tni_explain_pages(cx, x->pages.text, x->left, f);
    if (f && fclose(f) != 0) ok = false;
    if (x->plans && !ok)
        fprintf(stderr, "tenon: TN_EXPLAIN: %s could not be written: %s\n",
                tni_quoted(x->explain).s, x->pages.full ? "memory is out" : strerror(errno));
    tni_free(&cx->heap, x->pages.text);
    x->pages = (tni_json_writer){ 0 };
    x->plans = x->left = 0;
}

// "1" and "source" print to stderr; a name that ends in .html is a page; anything else is a file to
// append to.
static void explain_plan(tni_graph *g, const tni_plan *p)
{
    const char *to = g->cx->engine->inspect->explain;
    if (is_page(to)) {
        keep_plan(g, p);
        return;
    }
    bool  source = !strcmp(to, "source");
    FILE *f      = source || !strcmp(to, "1") ? stderr : fopen(to, "a");
    if (!f) {
        fprintf(stderr, "tenon: TN_EXPLAIN: %s could not be written: %s\n", tni_quoted(to).s,
                strerror(errno));
        f = stderr;
    }
    fprintf(f, "plan %lld: ", (long long)g->cx->stats.plans);
    tni_explain(g, p, f, (tn_explain_opts){ .source = source });
    if (f != stderr) fclose(f);
    else fflush(f);
}

// ---- TN_LOG ------------------------------------------------------------------------------------

// A plan beside the kept plan whose key is most like its own: they are equal up to byte `at`.
typedef struct {
    tni_graph      *g;
    const tni_plan *p, *other;
    size_t          at;
} difference;

static size_t common_bytes(const tni_plan *a, const tni_plan *b)
{
    size_t n = 0, most = a->key_bytes < b->key_bytes ? a->key_bytes : b->key_bytes;
    while (n < most && a->key[n] == b->key[n]) n++;
    return n;
}

// The plan with the longest common prefix: what differs first is the reason that the new one was
// built.
static difference nearest_plan(tni_graph *g, const tni_plan *p)
{
    const tni_plans *all = &g->cx->engine->plans;
    difference       d   = { .g = g, .p = p };
    for (int i = 0; i < all->count && p->key; i++) {
        if (all->plan[i] == p) continue;
        size_t n = common_bytes(p, all->plan[i]);
        if (d.other && n <= d.at) continue;
        d.other = all->plan[i];
        d.at    = n;
    }
    return d;
}

// Returns where in the key item i begins, by writing the key of a graph that ends before it.
static size_t key_start(const tni_graph *g, size_t i)
{
    tni_graph first = *g;
    size_t    bytes = 0;
    first.count     = i;
    first.inputs    = 0;
    char *key       = tni_key_write(&first, &bytes);
    tni_free(&g->cx->heap, key);
    return key ? bytes : SIZE_MAX;
}

// Returns the item that byte `at` of the key belongs to, by binary search; count if it is behind
// the last.
static size_t item_at(const tni_graph *g, size_t at)
{
    size_t low = 0, high = g->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (key_start(g, middle + 1) <= at) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int64_t word_at(const tni_plan *p, size_t at)
{
    int64_t v = 0;
    if (at + sizeof v <= p->key_bytes) memcpy(&v, p->key + at, sizeof v);
    return v;
}

// Returns "relu at train.c:12", or "exp of softmax at train.c:12" for an op of a composed call.
static tni_text item_text(const tni_graph *g, size_t i)
{
    const tni_node *n = g->item[i].n;
    tni_text        t = tni_node_name(n);
    if (n->site.line) tni_text_add(&t, " at %s", tni_site_text(&n->site).s);
    return t;
}

// Compares the first word of an item, which has its op, dtype, rank and whether it is stored: see
// tni_key_write.
static tni_text head_text(const tni_graph *g, size_t i, uint64_t old)
{
    const tni_node *n   = g->item[i].n;
    tni_text        who = item_text(g, i);
    if ((old & 255) < TNI_OPS && (old & 255) != n->op)
        return tni_text_of("%s, was %s", who.s, tni_op_table[old & 255].name);
    if ((old >> 8 & 255) != n->dtype)
        return tni_text_of("dtype of %s is %s, was %s", who.s, tn_dtype_name((tn_dtype)n->dtype),
                           tn_dtype_name((tn_dtype)(old >> 8 & 255)));
    if ((old >> 16 & 255) != n->rank)
        return tni_text_of("rank of %s is %d, was %d", who.s, n->rank, (int)(old >> 16 & 255));
    if ((old >> 24 & 1) != (g->item[i].why != 0))
        return tni_text_of("the value of %s is %s", who.s,
                           g->item[i].why ? "stored, was not" : "not stored, was");
    if (old >> 32 != n->nsrc)
        return tni_text_of("%s takes %u values, took %u", who.s, n->nsrc, (unsigned)(old >> 32));
    return tni_text_of("the sources of %s are kept, or no longer kept, for its gradient", who.s);
}

// Says what differs in item i. The words of an item follow one another as tni_key_write writes
// them: head, sizes, sources with their layouts, attributes.
static tni_text item_difference(const difference *d, size_t i)
{
    const tni_node *n     = d->g->item[i].n;
    size_t          start = key_start(d->g, i), word = (d->at - start) / 8;
    tni_text        who = item_text(d->g, i);
    if (word == 0) return head_text(d->g, i, (uint64_t)word_at(d->other, start));
    if (word <= n->rank)
        return tni_text_of("size of axis %zu of %s is %lld, was %lld", word - 1, who.s,
                           (long long)n->size[word - 1],
                           (long long)word_at(d->other, start + 8 * word));
    word -= 1 + n->rank;
    for (uint32_t s = 0; s < n->nsrc; s++) {
        const tni_node *src   = n->src[s];
        size_t          words = tni_key_source_words(src);
        if (word == 0) return tni_text_of("source %u of %s is another value", s, who.s);
        if (word < words)
            return tni_text_of("layout of source %u of %s differs: it is %s now", s, who.s,
                               tni_shape_text(src->rank, src->size).s);
        word -= words;
    }
    return tni_text_of("strides, axes or options of %s differ", who.s);
}

// Says what differs in an input: behind the items the key has two words for each, the first with
// the input that shares its buffer, whether it dies, and whether it may be overwritten (put_input
// of plan/key.c).
static tni_text input_difference(const difference *d)
{
    size_t start = key_start(d->g, d->g->count), k = (d->at - start) / 16;
    if (d->at < start || k >= d->g->inputs) return tni_text_of("it has more or fewer inputs");
    const tni_node *n   = d->g->input[k].n;
    uint64_t        old = (uint64_t)word_at(d->other, start + 16 * k);
    uint64_t        now = (uint64_t)word_at(d->p, start + 16 * k);
    const char     *is  = old / 4 != now / 4 ? "shares its buffer with another input than before"
                          : (old ^ now) & 2  ? (now & 2 ? "is used last in this step, was not"
                                                        : "is still held by the program, was not")
                          : (old ^ now) & 1  ? (now & 1 ? "has its buffer to itself, had not"
                                                        : "shares its buffer, did not")
                                             : NULL;
    tni_text        t   = tni_text_of("input %s of %s%s", tni_shape_text(n->rank, n->size).s,
                                      tn_dtype_name((tn_dtype)n->dtype), tni_node_line(n).s);
    if (is) tni_text_add(&t, " %s", is);
    else
        tni_text_add(&t, ", was of %s",
                     tn_dtype_name((tn_dtype)word_at(d->other, start + 16 * k + 8)));
    return t;
}

// Returns the reason for a new plan, as a phrase.
static tni_text reason_text(const difference *d)
{
    if (d->p->partition) return tni_text_of("its kernels were split: they spilled registers");
    if (!d->p->key) return tni_text_of("it is too large to be kept");
    if (!d->other) return tni_text_of("no plan is kept");
    if (d->at < 8)
        return tni_text_of("no plan of a %s is kept", d->g->mode == TNI_STEP   ? "step"
                                                      : d->g->mode == TNI_READ ? "read"
                                                                               : "flush");
    size_t i = item_at(d->g, d->at);
    if (i < d->g->count && d->at < d->other->key_bytes) return item_difference(d, i);
    if (i < d->g->count) return tni_text_of("%s and what follows it are new", item_text(d->g, i).s);
    return input_difference(d);
}

static void log_plan(tni_graph *g, const tni_plan *p)
{
    difference d = nearest_plan(g, p);
    fprintf(stderr, "plan %lld: new: %s\n", (long long)g->cx->stats.plans, reason_text(&d).s);
}

void tni_plan_log(tni_graph *g, const tni_plan *p)
{
    const tni_engine *e  = g->cx->engine;
    g->cx->stats.planned = p->arena;
    if (*e->inspect->explain) explain_plan(g, p);
    if (e->inspect->log_plans) log_plan(g, p);
}
