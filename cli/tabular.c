// tabular.c: networks for rows of a table. Columns differ in scale, so they are standardized first;
// means and deviations are part of the network and of its file.
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHUNK = 1024 };  // rows read at a time

// Relative to the squared mean: a variance below this is rounding of f32 (2^-24 squared is 4e-15),
// and the column counts as constant.
static const double LEAST_VARIANCE = 1e-14;

tn_layer *cli_tabular(tn_ctx *cx, const cli_facts *f, tn_layer *body)
{
    int64_t outputs = f->task == CLI_NUMBERS ? f->outputs : 0;
    return body ? tn_nn_standardize_nd(cx, 1, f->size, body,
                                       (tn_nn_standardize_opts){ .outputs = outputs })
                : NULL;
}

// Sums over the rows of one field, column by column.
typedef struct {
    int64_t columns;
    double *mean, *square;  // square: the mean squared distance from the mean
    float  *rows;
} sums;

// Two passes, first for the mean and then for the squares, since the difference of large sums would
// lose the digits of a small variance.
static void add_rows(sums *s, int64_t n, int64_t count, bool second)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < s->columns; k++) {
            double v = s->rows[i * s->columns + k];
            if (!second) s->mean[k] += v / (double)count;
            else s->square[k] += (v - s->mean[k]) * (v - s->mean[k]) / (double)count;
        }
}

// Adds all rows of x or (target) y.
static tn_status pass(sums *s, tn_data *data, bool target, bool second)
{
    int64_t   count  = tn_data_count(data);
    tn_status status = tn_data_rewind(data);
    for (int64_t done = 0, n; done < count && status == TN_OK; done += n) {
        tn_batch b = tn_next(data, CHUNK);
        n          = b.count;
        if (!b.x) return TN_EIO;
        status = tn_read(target ? b.y : b.x, TN_F32, s->rows, n * s->columns);
        tn_drop(b.x);
        tn_drop(b.y);
        add_rows(s, n, count, second);
    }
    return status;
}

// Warns of a constant target: a network can be trained on it, but the column is probably the wrong
// one.
static void say_constant(const char *name, double value)
{
    char number[32];
    snprintf(number, sizeof number, "%.6g", value);
    fprintf(stderr,
            "tenon: the target is %s%s%s in every training row, so there is nothing to "
            "learn; is it the right column?\n",
            name ? "\"" : "", name ? cli_shown(name) : number, name ? "\"" : "");
}

// Computes mean and deviation of each column and assigns them to two buffers of the network. A
// constant column gets deviation 1.
static tn_status fit(tn_layer *net, const char *mean, const char *std, tn_data *data, bool target,
                     int64_t columns)
{
    tn_ctx   *cx     = tn_layer_ctx(net);
    tn_status status = TN_EMEM;
    sums      s      = { columns, cli_alloc(cx, columns, sizeof *s.mean),
                         cli_alloc(cx, columns, sizeof *s.square),
                         cli_alloc(cx, columns * CHUNK, sizeof *s.rows) };
    if (s.mean && s.square && s.rows && (status = pass(&s, data, target, false)) == TN_OK &&
        (status = pass(&s, data, target, true)) == TN_OK) {
        for (int64_t k = 0; k < columns; k++) {
            bool constant = s.square[k] <= LEAST_VARIANCE * s.mean[k] * s.mean[k];
            s.square[k]   = constant ? 1 : sqrt(s.square[k]);
            if (constant && target) say_constant(NULL, s.mean[k]);
        }
        tn_assign(tn_layer_find(net, mean), tn_from(cx, TN_F64, TN_SHAPE(columns), s.mean));
        tn_assign(tn_layer_find(net, std), tn_from(cx, TN_F64, TN_SHAPE(columns), s.square));
        status = tn_eval(cx);
    }
    free(s.mean);
    free(s.square);
    free(s.rows);
    return status;
}

tn_status cli_tabular_fit(tn_layer *net, const cli_facts *f, tn_data *data)
{
    tn_scope *scope  = tn_begin(tn_layer_ctx(net));
    tn_status status = fit(net, "mean", "std", data, false, f->size[0]);
    if (status == TN_OK && f->task == CLI_NUMBERS)
        status = fit(net, "target_mean", "target_std", data, true, f->outputs);
    if (f->task == CLI_CLASSES && f->outputs == 1) say_constant(tn_data_class_name(data, 0), 0);
    if (status == TN_OK) status = tn_data_rewind(data);
    tn_status end = tn_end(scope);
    return status != TN_OK ? status : end;
}
