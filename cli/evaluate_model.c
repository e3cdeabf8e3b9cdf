// evaluate_model.c: evaluation of a network on held-out data, and `tenon eval`.
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Sums over the batches.
typedef struct {
    double loss, items;       // the loss is weighted by items
    double hits, top5;        // correct classes, and those among the best five
    double squares;           // of errors, in units of the target
    double mean, deviations;  // of the targets: running mean, squared distances from it
    double bytes, tokens;     // of text

    cli_confusion *confusion;  // NULL: not counted
} sums;

// Adds squared errors, and the deviations of the targets by Welford's method, which is stable in
// one pass.
static tn_status add_numbers(sums *s, tn_tensor *y, tn_tensor *target)
{
    int64_t n = tn_count(y);
    double *p = cli_alloc(tn_ctx_of(y), 2 * n, sizeof *p);
    if (!p) return TN_EMEM;
    double   *t      = p + n;
    tn_status status = tn_read(y, TN_F64, p, n);
    if (status == TN_OK) status = tn_read(target, TN_F64, t, n);
    for (int64_t i = 0; status == TN_OK && i < n; i++) {
        double off = t[i] - s->mean;
        s->squares += (p[i] - t[i]) * (p[i] - t[i]);
        s->mean += off / (s->items + (double)i + 1);
        s->deviations += off * (t[i] - s->mean);
    }
    free(p);
    return status;
}

// Counts tokens and their bytes; without a tokenizer, a token is a byte.
static tn_status add_tokens(sums *s, tn_tokenizer *tokenizer, tn_tensor *target)
{
    int64_t n = tn_count(target), bytes = n;
    if (tokenizer) {
        int64_t  *ids    = cli_alloc(tn_ctx_of(target), n, sizeof *ids);
        tn_status status = ids ? tn_read(target, TN_I64, ids, n) : TN_EMEM;
        bytes            = status == TN_OK ? tn_tokenizer_decode(tokenizer, ids, n, NULL, 0) : -1;
        free(ids);
    }
    s->tokens += (double)n;
    s->bytes += (double)bytes;
    return bytes < 0 ? TN_EARG : TN_OK;
}

// Counts what the items of a batch were taken for.
static tn_status add_confusion(cli_confusion *c, tn_tensor *y, tn_tensor *target)
{
    int64_t   n      = tn_count(target);
    int64_t  *ids    = cli_alloc(tn_ctx_of(y), 2 * n, sizeof *ids);
    tn_status status = ids ? tn_read(tn_argmax(y, 1), TN_I64, ids, n) : TN_EMEM;
    if (status == TN_OK) status = tn_read(target, TN_I64, ids + n, n);
    for (int64_t i = 0; status == TN_OK && i < n; i++) {
        bool known = ids[n + i] >= 0 && ids[n + i] < c->classes && ids[i] < c->classes;
        if (known) c->count[ids[n + i] * c->classes + ids[i]]++;
    }
    free(ids);
    return status;
}

static tn_status add_batch(sums *s, tn_layer *net, const cli_source *d, tn_batch b)
{
    tn_status  status  = TN_OK;
    tn_tensor *y       = tn_forward(net, b.x);
    tn_tensor *loss    = cli_loss(net, &d->facts, y, b.y);
    bool       classes = d->facts.task == CLI_CLASSES;
    tn_tensor *hits    = classes ? cli_hits(y, b.y, 1) : NULL;
    bool       many    = classes && d->facts.outputs > CLI_FEW_CLASSES;
    tn_tensor *top5    = many ? cli_hits(y, b.y, CLI_TOP) : NULL;
    if (!loss) return TN_EARG;
    s->loss += tn_item(loss) * (double)b.count;
    if (hits) s->hits += tn_item(hits);
    if (top5) s->top5 += tn_item(top5);
    if (classes && s->confusion) status = add_confusion(s->confusion, y, b.y);
    if (d->facts.task == CLI_NUMBERS) status = add_numbers(s, y, b.y);
    if (d->facts.task == CLI_TOKENS) status = add_tokens(s, d->tokenizer, b.y);
    s->items += (double)b.count;
    return status;
}

// R2 is not finite if all targets are equal. The loss of text is per token, in nats.
static void score_of(const sums *s, cli_score *score)
{
    *score = (cli_score){
        .items         = (int64_t)s->items,
        .loss          = s->loss / s->items,
        .accuracy      = s->hits / s->items,
        .top5          = s->top5 / s->items,
        .rmse          = sqrt(s->squares / s->items),
        .r2            = 1 - s->squares / s->deviations,
        .bits_per_byte = s->loss / s->items * s->tokens / s->bytes / log(2),
    };
}

// Adds up what the ranks have. Squared distances from two means are joined by the distance between
// the means.
static tn_status join_ranks(tn_ctx *cx, tn_dist *dist, sums *s)
{
    enum { N = 9 };
    double mine[N] = { s->loss,   s->items,           s->hits, s->squares, s->bytes,
                       s->tokens, s->mean * s->items, 0,       s->top5 };
    double off     = s->mean;
    for (int pass = 0; pass < 2; pass++) {  // the second needs the mean of all
        tn_tensor *all = tn_from(cx, TN_F64, TN_SHAPE(N), mine);
        all            = tn_dist_all_reduce(dist, all, TN_REDUCE_SUM);
        double sum[N];
        if (!all || tn_read(all, TN_F64, sum, N) != TN_OK) return tn_error(cx);
        if (pass == 0) {
            double mean = sum[6] / sum[1];
            mine[7]     = s->deviations + s->items * (off - mean) * (off - mean);
            *s          = (sums){ sum[0], sum[1], sum[2], sum[8], sum[3],
                                  mean,   0,      sum[4], sum[5], s->confusion };
        } else s->deviations = sum[7];
    }
    return TN_OK;
}

// Adds up the matrices of the ranks.
static tn_status join_confusion(tn_ctx *cx, tn_dist *dist, cli_confusion *c)
{
    int64_t    n   = c->classes * c->classes;
    tn_tensor *all = tn_dist_all_reduce(dist, tn_from(cx, TN_I64, TN_SHAPE(n), c->count),
                                        TN_REDUCE_SUM);
    return all ? tn_read(all, TN_I64, c->count, n) : tn_error(cx);
}

// Makes an empty matrix; none if the task has no classes, or too many to look at.
static bool begin_confusion(tn_ctx *cx, const cli_facts *f, cli_confusion *c)
{
    int64_t n = f->task == CLI_CLASSES && f->outputs <= CLI_MOST_CLASSES ? f->outputs : 0;
    free(c->count);
    *c = (cli_confusion){ .classes = n,
                          .count   = n ? cli_alloc(cx, n * n, sizeof *c->count) : NULL };
    return c->count || !n;
}

// One more batch of the test.
static tn_status advance(sums *s, tn_layer *net, const cli_source *d, int64_t batch)
{
    tn_ctx   *cx     = tn_layer_ctx(net);
    tn_scope *scope  = tn_begin(cx);
    tn_status status = add_batch(s, net, d, tn_next(d->test, batch));
    return tn_end(scope) != TN_OK && status == TN_OK ? tn_error(cx) : status;
}

// A rest of fewer items than ranks cannot be divided: it is rank 0's.
static tn_status add_all(sums *s, tn_dist *dist, tn_layer *net, const cli_source *d, int64_t batch)
{
    int       rank = tn_dist_rank(dist), size = tn_dist_size(dist);
    int64_t   count = tn_data_count(d->test), each = batch * size, rest = count % each;
    tn_status status = tn_data_shard(d->test, rank, size);
    for (int64_t i = 0; status == TN_OK && i < count / each + (rest >= size && rest); i++)
        status = advance(s, net, d, each);
    if (status == TN_OK) status = tn_data_shard(d->test, 0, 1);
    if (status != TN_OK || !rest || rest >= size || rank != 0) return status;
    tn_cursor at = tn_data_cursor(d->test);
    at.epoch     = 0;
    at.index     = count - rest;
    status       = tn_data_seek(d->test, at);
    return status == TN_OK ? advance(s, net, d, rest) : status;
}

tn_status cli_evaluate(tn_dist *dist, tn_layer *net, const cli_source *d, int64_t batch,
                       cli_score *score, cli_confusion *confusion)
{
    tn_ctx *cx = tn_layer_ctx(net);
    sums    s  = { 0 };
    if (confusion && !begin_confusion(cx, &d->facts, confusion)) return TN_EMEM;
    if (confusion && confusion->count) s.confusion = confusion;
    tn_scope *all    = tn_begin(cx);
    tn_status status = tn_data_shuffle(d->test, false, 0);
    if (status == TN_OK) status = tn_data_rewind(d->test);
    tn_grad_mode(cx, false);
    tn_layer_train(net, false);
    if (status == TN_OK) status = add_all(&s, dist, net, d, batch);
    if (status == TN_OK && tn_dist_size(dist) > 1) status = join_ranks(cx, dist, &s);
    if (status == TN_OK && tn_dist_size(dist) > 1 && s.confusion)
        status = join_confusion(cx, dist, s.confusion);
    tn_layer_train(net, true);
    tn_end(all);
    score_of(&s, score);
    return status == TN_OK ? tn_error(cx) : status;
}

void cli_score_print(const cli_facts *f, const cli_score *score)
{
    cli_task task = f->task;
    printf("test loss %.4f\n", score->loss);
    if (task == CLI_CLASSES && f->outputs > CLI_FEW_CLASSES)
        printf("test accuracy of the best %d %.2f %%\n", CLI_TOP, 100 * score->top5);
    if (task == CLI_CLASSES) printf("test accuracy %.2f %%\n", 100 * score->accuracy);
    if (task == CLI_NUMBERS && isfinite(score->r2)) printf("test R2 %.4f\n", score->r2);
    else if (task == CLI_NUMBERS) puts("test R2 -");  // all targets are equal
    if (task == CLI_NUMBERS) printf("test rmse %.6g\n", score->rmse);
    if (task == CLI_TOKENS)
        printf("test perplexity %.3f\n"
               "test bits per byte %.4f\n",
               exp(score->loss), score->bits_per_byte);
}

// ---- the command

// Returns the part of the data to evaluate, --part or a default.
static cli_part part_of(const cli_settings *s, const cli_saved *f)
{
    if (!s->part) {
        // Rows of the training are no test, so of the training file only the held-out part counts;
        // another file counts as a whole.
        bool whole = !cli_source_has_test(s->data) &&
                     (f->foreign || !cli_source_same(s->data, f->data));
        return whole ? CLI_PART_ALL : CLI_PART_TEST;
    }
    if (!strcmp(s->part, "all")) return CLI_PART_ALL;
    return !strcmp(s->part, "train") ? CLI_PART_TRAIN : CLI_PART_TEST;
}

static bool facts_fit(const cli_facts *a, const cli_facts *b)
{
    char here[128], there[128];
    if (cli_facts_fit(a, b)) return true;
    cli_facts_write(a, here, sizeof here);
    cli_facts_write(b, there, sizeof there);
    return cli_fail("the data does not fit the network: it has %s, the network is for %s", here,
                    there),
           false;
}

// For a file of another program, the data determines the sizes of input and output.
static int evaluate(tn_ctx *cx, cli_settings *s, const cli_saved *f)
{
    cli_source d;
    cli_score  score;
    if (f->foreign) {
        cli_options_default(s, cli_source_defaults(s->data));
        cli_options_default(s, f->model->defaults);
        cli_options_default(s, "batch=64 seed=0");
    }
    if (!cli_options_fit(s)) return 2;
    if (!cli_source_open(cx, s, part_of(s, f), f->schema, &d)) return 1;
    cli_saved what = *f;
    // The vocabulary of a folder may be larger than its tokenizer's, to be a round number.
    bool padded = f->folder && d.facts.outputs < f->facts.outputs;
    if (padded) what.facts.outputs = d.facts.outputs;
    if (f->foreign) what.facts = d.facts;
    else if (!facts_fit(&d.facts, &what.facts)) return 1;
    tn_layer *net = cli_saved_build(cx, s, s->load, &what);
    if (!net) return 1;
    if (cli_evaluate(NULL, net, &d, s->batch, &score, NULL) != TN_OK) return cli_fail_of(cx);
    printf("%s, %lld item%s of %s\n", s->model, (long long)score.items, cli_s(score.items),
           cli_shown(s->data));
    cli_report_skipped(d.test);
    cli_score_print(&d.facts, &score);
    return 0;
}

int cli_eval(int argc, char **argv)
{
    return cli_with_saved(CLI_EVAL, argc, argv, evaluate);
}
