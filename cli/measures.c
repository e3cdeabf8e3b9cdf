// measures.c: what was measured in a step, as named values. The log, TensorBoard and the report all
// have these.
#include "cli.h"

#include <math.h>

// The names of the values of a moment, in the order of the log. Those that are not `always` there
// were not measured if they are NaN.
static const struct {
    const char *name;
    size_t      at;
    int         digits;  // in the log
    bool        always;
} values[] = {
    { "loss", offsetof(cli_moment, loss), 9, true },
    { "accuracy", offsetof(cli_moment, accuracy), 9, false },
    { "lr", offsetof(cli_moment, lr), 9, true },
    { "grad_norm", offsetof(cli_moment, grad_norm), 9, false },
    { "samples_per_s", offsetof(cli_moment, rate), 6, true },
    { "time", offsetof(cli_moment, seconds), 9, true },
};

static void add(cli_measure *list, int *n, const char *name, double v, int digits)
{
    list[(*n)++] = (cli_measure){ .name = name, .v = v, .digits = digits };
}

int cli_measures(const cli_moment *m, cli_measure list[CLI_MEASURES])
{
    int              n = 0;
    const cli_score *s = m->score;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        double v = *(const double *)((const char *)m + values[i].at);
        if (values[i].always || !isnan(v)) add(list, &n, values[i].name, v, values[i].digits);
    }
    if (!s) return n;
    add(list, &n, "test_loss", s->loss, 9);
    if (m->task == CLI_CLASSES) add(list, &n, "test_accuracy", s->accuracy, 9);
    if (m->task == CLI_NUMBERS) add(list, &n, "test_rmse", s->rmse, 9);
    if (m->task == CLI_TOKENS) add(list, &n, "test_bits_per_byte", s->bits_per_byte, 9);
    return n;
}
