// model_run.c: `tenon run`, a model on given inputs, and `tenon compare`, two models on the same.
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tn_onnx_port port_of(tn_tensor *t)
{
    tn_onnx_port p = { .dtype = tn_dtype_of(t), .rank = tn_rank(t) };
    for (int i = 0; i < p.rank; i++) p.size[i] = tn_size(t, i);
    return p;
}

// ---- run ---------------------------------------------------------------------------------------

// Prints the largest elements of each row of y (N, classes), with the names of classes where the
// network has them.
static bool print_top(const cli_net *n, tn_tensor *y, int64_t top)
{
    int64_t  rows = tn_size(y, 0), k = top < tn_size(y, 1) ? top : tn_size(y, 1);
    double  *v    = cli_alloc(n->cx, rows * k, sizeof *v);
    int64_t *c    = cli_alloc(n->cx, rows * k, sizeof *c);
    tn_pair  best = v && c ? tn_topk(y, k, 1, true) : (tn_pair){ 0 };
    bool     ok   = best.values && tn_read(best.values, TN_F64, v, rows * k) == TN_OK &&
              tn_read(best.indices, TN_I64, c, rows * k) == TN_OK;
    for (int64_t i = 0; ok && i < rows; i++) {
        printf("  row %lld:", (long long)i);
        for (int64_t j = 0; j < k; j++)
            printf("%s %lld (%.4g)", j ? "," : "", (long long)c[i * k + j], v[i * k + j]);
        puts("");
    }
    free(v);
    free(c);
    return ok;
}

// Prints what an output is: dtype, shape, range, and of rows of classes the largest.
static bool print_output(const cli_net *n, const char *name, tn_tensor *y, int64_t top)
{
    char   shape[256];
    double lo = 0, hi = 0, mean = 0;
    cli_write_shape(shape, sizeof shape, port_of(y));
    printf("%s  %s", cli_shown(name), shape);
    if (tn_count(y) > 0) {
        tn_tensor *d = tn_cast(y, TN_F64);
        if (tn_read(tn_min_all(d), TN_F64, &lo, 1) != TN_OK ||
            tn_read(tn_max_all(d), TN_F64, &hi, 1) != TN_OK ||
            tn_read(tn_mean_all(d), TN_F64, &mean, 1) != TN_OK)
            return false;
        printf("  from %.6g to %.6g, mean %.6g", lo, hi, mean);
    }
    puts("");
    bool rows = tn_rank(y) == 2 && tn_size(y, 1) > 1 && tn_size(y, 0) <= 16 && tn_count(y) > 0;
    return !rows || print_top(n, y, top ? top : CLI_TOP);
}

// Writes the outputs that the line names, and prints the others.
static int give_outputs(cli_net *n, const cli_model_line *l, tn_tensor **y)
{
    for (int i = 0; i < n->outs; i++) {
        const char     *name = cli_net_output(n, i);
        const cli_pair *to   = cli_pair_find(l->output, l->outputs, name);
        bool ok = to ? tn_npy_write(y[i], to->value) == TN_OK : print_output(n, name, y[i], l->top);
        if (!ok) return cli_fail_of(n->cx);
        if (to) fprintf(stderr, "%s: %s\n", cli_shown(name), cli_shown(to->value));
    }
    return 0;
}

static bool outputs_exist(const cli_net *n, const cli_model_line *l)
{
    for (int k = 0; k < l->outputs; k++) {
        bool known = false;
        for (int i = 0; i < n->outs; i++)
            known = known || cli_pair_find(&l->output[k], 1, cli_net_output(n, i));
        if (!known)
            return cli_fail("the model has no output \"%.*s\"", (int)l->output[k].length,
                            l->output[k].name) == 0;
    }
    return true;
}

int cli_run_model(int argc, char **argv)
{
    cli_model_line l = { .uses = CLI_RUNS };
    cli_net        n;
    tn_tensor     *x[CLI_MOST_PORTS], *y[CLI_MOST_PORTS];
    if (!cli_model_line_parse(&l, argc, argv)) return 2;
    if (!cli_net_open(&n, NULL, &l, l.model[0])) return 1;
    int status = 1;
    if (outputs_exist(&n, &l) && cli_net_inputs(&n, &l, x))
        status = cli_net_run(&n, x, n.outs, NULL, y) == TN_OK ? give_outputs(&n, &l, y)
                                                              : cli_fail_of(n.cx);
    cli_net_close(&n, true);
    return status;
}

// ---- compare -----------------------------------------------------------------------------------

enum { MOST_VALUES = 4096 };  // that are compared layer by layer: all of them are in memory at once

// How far b is from a: the largest difference over the largest element of a, at least 1.
typedef struct {
    bool   same_shape;
    double most, scale;
} distance;

static bool measure(tn_tensor *a, tn_tensor *b, distance *d)
{
    bool same = tn_rank(a) == tn_rank(b);
    for (int i = 0; same && i < tn_rank(a); i++) same = tn_size(a, i) == tn_size(b, i);
    *d = (distance){ .same_shape = same, .scale = 1 };
    if (!same || !tn_count(a)) return true;
    int64_t n  = tn_count(a);
    double *va = cli_alloc(tn_ctx_of(a), 2 * n, sizeof *va), *vb = va + n;
    bool    ok = va && tn_read(a, TN_F64, va, n) == TN_OK && tn_read(b, TN_F64, vb, n) == TN_OK;
    for (int64_t i = 0; ok && i < n; i++) {
        double off = va[i] == vb[i] || (isnan(va[i]) && isnan(vb[i])) ? 0 : fabs(va[i] - vb[i]);
        if (!(off <= d->most)) d->most = off;
        if (isfinite(va[i]) && fabs(va[i]) > d->scale) d->scale = fabs(va[i]);
    }
    free(va);
    return ok;
}

static bool is_within(distance d, double tolerance)
{
    return d.same_shape && d.most <= tolerance * d.scale;
}

static void print_distance(const char *what, const char *name, distance d, double tolerance)
{
    printf("%s %s: ", what, cli_shown(name));
    if (!d.same_shape) puts("the shapes differ");
    else
        printf("at most %.3g apart, of values up to %.3g: %s\n", d.most, d.scale,
               is_within(d, tolerance) ? "equal" : "different");
}

// Whether the second model has a value of that name.
static bool has_value(const cli_net *n, const char *name)
{
    int nodes = tn_onnx_nodes(n->onnx);
    for (int i = 0; i < nodes; i++) {
        tn_onnx_node d = tn_onnx_node_at(n->onnx, i);
        for (int k = 0; k < d.outs; k++)
            if (!strcmp(d.out[k], name)) return true;
    }
    return false;
}

// The values inside that both models name alike, in the order of the first.
static int common_values(const cli_net *a, const cli_net *b, const char **name)
{
    int count = 0, nodes = a->onnx && b->onnx ? tn_onnx_nodes(a->onnx) : 0;
    for (int i = 0; i < nodes && count < MOST_VALUES; i++) {
        tn_onnx_node d = tn_onnx_node_at(a->onnx, i);
        if (d.outs > 0 && *d.out[0] && has_value(b, d.out[0])) name[count++] = d.out[0];
    }
    return count;
}

// Runs both, and says of the values inside where the first difference is.
static int compare_inside(cli_net *n, const cli_model_line *l, tn_tensor **x)
{
    const char *name[MOST_VALUES];
    tn_tensor **y     = cli_alloc(n[0].cx, 2 * MOST_VALUES, sizeof(tn_tensor *));
    int         count = common_values(&n[0], &n[1], name);
    if (!y) return cli_fail_of(n[0].cx);
    if (count > n[0].outs) {
        bool ok = cli_net_run(&n[0], x, count, name, y) == TN_OK &&
                  cli_net_run(&n[1], x, count, name, y + count) == TN_OK;
        int i = 0;
        for (distance d; ok && i < count; i++) {
            ok = measure(y[i], y[count + i], &d);
            if (!ok || is_within(d, l->tolerance)) continue;
            print_distance("first difference, value", name[i], d, l->tolerance);
            break;
        }
        if (ok && i == count)
            printf("%d values inside have one name in both: all are equal\n", count);
        if (!ok) printf("values inside could not be compared: %s\n", tn_error_text(n[0].cx));
        tn_error_clear(n[0].cx);
    } else puts("no values inside have one name in both");
    free(y);
    return 0;
}

static int compare(cli_net *n, const cli_model_line *l)
{
    tn_tensor *x[CLI_MOST_PORTS], *ya[CLI_MOST_PORTS], *yb[CLI_MOST_PORTS];
    bool       equal = true;
    if (n[0].ins != n[1].ins || n[0].outs != n[1].outs)
        return cli_fail("the models have %d and %d inputs, %d and %d outputs", n[0].ins, n[1].ins,
                        n[0].outs, n[1].outs);
    if (!cli_net_inputs(&n[0], l, x)) return 1;
    if (cli_net_run(&n[0], x, n[0].outs, NULL, ya) != TN_OK ||
        cli_net_run(&n[1], x, n[1].outs, NULL, yb) != TN_OK)
        return cli_fail_of(n[0].cx);
    for (int i = 0; i < n[0].outs; i++) {
        distance d;
        if (!measure(ya[i], yb[i], &d)) return cli_fail_of(n[0].cx);
        print_distance("output", cli_net_output(&n[0], i), d, l->tolerance);
        equal = equal && is_within(d, l->tolerance);
    }
    if (n[0].onnx && n[1].onnx) compare_inside(n, l, x);
    return equal ? 0 : 1;
}

int cli_compare_models(int argc, char **argv)
{
    cli_model_line l = { .uses = CLI_COMPARES, .tolerance = 1e-4 };
    cli_net        n[2];
    int            status = 1;
    if (!cli_model_line_parse(&l, argc, argv)) return 2;
    if (!cli_net_open(&n[0], NULL, &l, l.model[0])) return 1;
    if (cli_net_open(&n[1], n[0].cx, &l, l.model[1])) {
        status = compare(n, &l);
        cli_net_close(&n[1], false);
    }
    cli_net_close(&n[0], true);
    return status;
}
