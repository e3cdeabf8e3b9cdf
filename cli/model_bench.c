// model_bench.c: `tenon bench MODEL`, how long a model takes.
#include "cli.h"

#include <stdlib.h>
#include <sys/resource.h>

enum { WARM = 10, LEAST = 5, MOST = 1 << 20 };  // runs before timing, and timed ones

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// One run to its end, in seconds; below 0, with the error in the context, if it fails.
static double run_once(cli_net *n, tn_tensor *const *x)
{
    tn_tensor *y[CLI_MOST_PORTS];
    tn_scope  *s     = tn_begin(n->cx);
    double     began = cli_seconds();
    bool       ok    = cli_net_run(n, x, n->outs, NULL, y) == TN_OK;
    for (int i = 0; ok && i < n->outs; i++) tn_want(y[i]);
    ok           = ok && tn_eval(n->cx) == TN_OK && tn_sync(n->cx) == TN_OK;
    double taken = cli_seconds() - began;
    tn_end(s);
    return ok ? taken : -1;
}

// Runs for the time that is given, at least LEAST times. Returns how many, -1 on failure.
static int run_timed(cli_net *n, tn_tensor *const *x, double seconds, double *time)
{
    double began = cli_seconds();
    int    count = 0;
    while (count < MOST && (count < LEAST || cli_seconds() - began < seconds)) {
        if (cli_signals_asked()) break;
        time[count] = run_once(n, x);
        if (time[count++] < 0) return -1;
    }
    return count;
}

static double part(const double *sorted, int count, double share)
{
    int i = (int)(share * (double)(count - 1) + 0.5);
    return 1e3 * sorted[i];
}

static void print_times(const cli_net *n, tn_tensor *const *x, const double *time, int count,
                        tn_stats before)
{
    struct rusage use;
    char          peak[32], process[32];
    tn_stats      now    = tn_ctx_stats(n->cx);
    double        median = part(time, count, 0.5);
    int64_t       batch  = tn_rank(x[0]) ? tn_size(x[0], 0) : 1;
    getrusage(RUSAGE_SELF, &use);
    cli_write_bytes(peak, sizeof peak, now.peak);
    cli_write_bytes(process, sizeof process, (int64_t)use.ru_maxrss * 1024);
    printf("latency     median %.3f ms, least %.3f, 90 %% %.3f, 99 %% %.3f, most %.3f\n", median,
           part(time, count, 0), part(time, count, 0.9), part(time, count, 0.99),
           part(time, count, 1));
    printf("throughput  %.1f items a second, of %lld at a time\n", 1e3 * (double)batch / median,
           (long long)batch);
    printf("memory      %s of tensors, %s of the process, at most\n", peak, process);
    if (now.plans > before.plans)
        printf("note: %lld plan%s built while it was timed\n",
               (long long)(now.plans - before.plans), cli_s(now.plans - before.plans));
    if (part(time, count, 0.9) > 1.2 * median)
        puts("note: the times vary; other programs may be using the machine");
}

static int bench(cli_net *n, const cli_model_line *l)
{
    tn_tensor *x[CLI_MOST_PORTS];
    if (!cli_net_inputs(n, l, x)) return 1;
    int64_t warm  = l->warmup < 0 ? WARM : l->warmup;
    double  first = run_once(n, x), *time = cli_alloc(n->cx, MOST, sizeof *time);
    bool    ok = first >= 0 && time;
    for (int64_t i = 1; ok && i < warm; i++) ok = run_once(n, x) >= 0;
    tn_stats before = tn_ctx_stats(n->cx);
    cli_signals_begin(true, false);
    int count = ok ? run_timed(n, x, l->seconds, time) : -1;
    cli_signals_end();
    if (count > 0) {
        qsort(time, (size_t)count, sizeof *time, by_size);
        printf("opened in %.1f ms, first run %.1f ms; then %lld to warm up, %d timed\n",
               1e3 * n->seconds, 1e3 * first, (long long)(warm > 1 ? warm - 1 : 0), count);
        print_times(n, x, time, count, before);
    }
    free(time);
    return count > 0 ? 0 : count < 0 ? cli_fail_of(n->cx) : 1;
}

int cli_bench_model(int argc, char **argv)
{
    cli_model_line l = { .uses = CLI_TIMES, .seconds = 3, .warmup = -1 };
    cli_net        n;
    if (!cli_model_line_parse(&l, argc, argv)) return 2;
    setenv("TN_COMPILE", "wait", 0);
    if (!cli_net_open(&n, NULL, &l, l.model[0])) return 1;
    int status = bench(&n, &l);
    cli_net_close(&n, true);
    return status;
}
