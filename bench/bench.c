// bench.c: one program, named cases.
//
//     tenon-bench [--json] [--quick] [--list] [--no-peers] [--threads N,N...] [--profile FOLDER] [case...]
//
// Prints an aligned table, or JSON. Times are medians of repeated runs on random data. --threads
// are the numbers of threads that training and inference are measured with, --profile the folder
// that gets the kernels of each of them.
#include "bench.h"

#include "base/pool.h"
#include "device/device.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name, *what;
    bench_case *run;
} cases[] = {
    { "record", "time to record a node", bench_record },
    { "chain_1m", "a million pending nodes: record, evaluate, free", bench_chain },
    { "loop", "100,000 steps of a small loop, and the memory they leave behind", bench_loop },
    { "instructions", "instructions per node, counted by valgrind", bench_instructions },
    { "matmul", "f32 products of 1024 x 1024, beside the BLAS itself", bench_matmul },
    { "bandwidth", "copy, add, exp, sums, softmax, layer_norm over 8192 x 1024 f32",
      bench_bandwidth },
    { "fused", "what is one kernel, beside a loop written by hand, beside PyTorch", bench_fused },
    { "training", "steps of MLPs and of lenet with Adam, beside PyTorch", bench_training },
    { "inference", "images through ResNets and MobileNetV2, beside PyTorch", bench_inference },
    { "pictures", "batches from a folder of JPEG files, beside torchvision", bench_pictures },
    { "decode", "tokens of a GPT-2 124M one by one on the cpu, beside PyTorch", bench_decode },
    { "cold", "the first step of a process, with nothing compiled on disk", bench_cold },
    { "gpu_ops", "single ops on a GPU, against what memory and matrix units allow", bench_gpu_ops },
    { "gpu_steps", "steps of an MLP with Adam on a GPU, and where their time goes",
      bench_gpu_steps },
    { "gpu_gpt2", "GPT-2 124M on a GPU: tokens a second, and gradients for a peer",
      bench_gpu_gpt2 },
    { "gpu_lm", "language models on a GPU in bf16: training, attention, generation", bench_gpu_lm },
    { "gpu_conv", "convolution networks on a GPU: training, inference, first steps",
      bench_gpu_conv },
    { "gpu_images", "60,000 images, 5 epochs, on a GPU, from process start", bench_gpu_images },
};

enum { CASES = sizeof cases / sizeof *cases };

// A row with its texts.
typedef struct {
    char         name[16], what[80], unit[16], of[96];
    double       value, ratio;
    bench_wanted wanted;
} kept_row;
static int         count;  // of rows in JSON
static bool        json, quick, no_peers;
static int         thread_counts[BENCH_THREAD_COUNTS];  // --threads, the first 0 if it is not given
static const char *profiles;                            // --profile
static int         sent_to = -1;  // in a process of bench_apart: where its rows go
static const char *self;

// ---- the result

bool bench_quick(void)
{
    return quick;
}

bool bench_peers(void)
{
    return !quick && !no_peers;
}

int bench_thread_counts(int counts[BENCH_THREAD_COUNTS], bool and_one)
{
    int n = 0, all = tni_threads_default();
    for (; n < BENCH_THREAD_COUNTS && thread_counts[n]; n++) counts[n] = thread_counts[n];
    if (n > 0) return n;
    if (and_one && all > 1) counts[n++] = 1;
    counts[n++] = all;
    return n;
}

bool bench_chosen(const char *name)
{
    const char *only = getenv("TN_BENCH_ONLY");
    char        texts[512], *rest;
    if (!only || !*only) return true;
    snprintf(texts, sizeof texts, "%s", only);
    for (char *text = strtok_r(texts, "|", &rest); text; text = strtok_r(NULL, "|", &rest))
        if (strstr(name, text)) return true;
    return false;
}

static bool misses(const kept_row *r)
{
    bench_wanted w = r->wanted;
    return (w.value > 0 && r->value > w.value) || (w.ratio > 0 && r->ratio > w.ratio);
}

// The numbers of a quick run are no answer to what is wanted.
static void print_wanted(const kept_row *r)
{
    bench_wanted w = r->wanted;
    if (w.value > 0) printf("  wanted: at most %.4g %s", w.value, r->unit);
    if (w.ratio > 0 && !isnan(r->ratio)) printf("  wanted: at most %.3g x", w.ratio);
    if (!quick && misses(r)) printf(", missed");
}

static void print_row(const kept_row *r)
{
    char ratio[128] = "";
    if (!isnan(r->ratio)) snprintf(ratio, sizeof ratio, "  %7.3f x %s", r->ratio, r->of);
    printf("%-13s %-26s %12.4g %*s%s", r->name, r->what, r->value,
           *ratio || r->wanted.value > 0 ? -8 : 0, r->unit, ratio);
    print_wanted(r);
    printf("\n");
    fflush(stdout);
}

// ---- JSON: each row as it comes, so that a run that is ended has said what it knew. Names and
// texts of the rows hold nothing that would have to be escaped.

static void begin_json(void)
{
    printf("{\"version\": \"%s\", \"threads\": %d, \"results\": [", tn_version(),
           tni_threads_default());
}

static void print_json(const kept_row *r)
{
    bench_wanted w         = r->wanted;
    char         value[32] = "null";
    if (isfinite(r->value)) snprintf(value, sizeof value, "%.6g", r->value);
    printf("%s\n  {\"case\": \"%s\", \"what\": \"%s\", \"value\": %s, \"unit\": \"%s\"",
           count++ ? "," : "", r->name, r->what, value, r->unit);
    if (!isnan(r->ratio)) printf(", \"ratio\": %.6g, \"of\": \"%s\"", r->ratio, r->of);
    if (w.value > 0) printf(", \"wanted\": %.6g", w.value);
    if (w.ratio > 0) printf(", \"wanted_ratio\": %.6g", w.ratio);
    printf("}");
    fflush(stdout);
}

static void end_json(void)
{
    printf("\n]}\n");
}

// ---- rows and notes

static void add(const kept_row *r)
{
    if (json) print_json(r);
    else print_row(r);
}

void bench_add_wanted(bench_row r, bench_wanted w)
{
    kept_row k = { .value = r.value, .ratio = r.ratio, .wanted = w };
    snprintf(k.name, sizeof k.name, "%s", r.name);
    snprintf(k.what, sizeof k.what, "%s", r.what);
    snprintf(k.unit, sizeof k.unit, "%s", r.unit);
    snprintf(k.of, sizeof k.of, "%s", r.of && !isnan(r.ratio) ? r.of : "");
    if (sent_to < 0) add(&k);
    else if (write(sent_to, &k, sizeof k) != sizeof k) _exit(1);
}

void bench_add(bench_row r)
{
    bench_add_wanted(r, (bench_wanted){ 0 });
}

void bench_note(const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    FILE *f = json ? stderr : stdout;
    fprintf(f, "%-13s ", name);
    vfprintf(f, fmt, ap);
    fprintf(f, "\n");
    fflush(f);
    va_end(ap);
}

// ---- measuring

double bench_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_middle(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

double bench_median(void (*f)(void *arg), void *arg)
{
    enum { FEW = 3, LEAST = 7, MOST = 1000 };  // FEW: of calls that take seconds
    double took[MOST], start = bench_seconds(), limit = quick ? 0 : 0.35, longest = 2;
    int    n = 0;
    for (int i = 0; i < 2 || (i < 10 && bench_seconds() - start < 0.1); i++) f(arg);
    start = bench_seconds();
    while (n < FEW || (n < LEAST && bench_seconds() - start < longest) ||
           (n < MOST && bench_seconds() - start < limit)) {
        double before = bench_seconds();
        f(arg);
        took[n++] = bench_seconds() - before;
    }
    return bench_middle(took, n);
}

void bench_profile(tn_ctx *cx, const char *name, int threads, void (*f)(void *arg), void *arg)
{
    enum { RUNS = 5 };
    char   path[1024];
    double start = bench_seconds(), limit = 1;
    if (!profiles) return;
    snprintf(path, sizeof path, "%s/%s_%d.txt", profiles, name, threads);
    tn_profile_begin(cx);
    for (int i = 0; i < RUNS && bench_seconds() - start < limit; i++) f(arg);
    tn_profile_end(cx);
    if (tn_profile_write(cx, path) != TN_OK) bench_note(name, "no profile: %s", tn_error_text(cx));
    tn_error_clear(cx);
}

tn_ctx *bench_open(tn_open_opts o)
{
    if (!o.device) o.device = "cpu";
    tn_ctx *cx = tn_open_with(o);
    if (cx) return cx;
    fprintf(stderr, "tenon-bench: %s\n", tn_error_text(NULL));
    exit(1);
}

void bench_check(tn_ctx *cx)
{
    if (tn_error(cx) == TN_OK) return;
    fprintf(stderr, "tenon-bench: %s\n", tn_error_text(cx));
    exit(1);
}

double bench_child(const char *before, const char *arguments, const char *key)
{
    char command[2048], line[1024];
    snprintf(command, sizeof command, "%s '%s' %s 2>&1", before, self, arguments);
    fflush(stdout);
    FILE  *f = popen(command, "r");
    double v = NAN;
    if (!f) return NAN;
    while (fgets(line, sizeof line, f)) {
        char *at = strstr(line, key);
        if (at) v = strtod(at + strlen(key), NULL);
    }
    return pclose(f) == 0 ? v : NAN;
}

// ---- in a process of its own

// The rows of the process as they come, until it ends.
static void take_rows(int from)
{
    kept_row r;
    while (read(from, &r, sizeof r) == sizeof r) add(&r);
}

void bench_apart(const char *name, const char *what, int seconds, void (*f)(void *arg), void *arg)
{
    int ends[2], status = 0;
    fflush(NULL);
    if (pipe(ends)) return;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        sent_to = ends[1];
        alarm((unsigned)seconds);
        f(arg);
        fflush(NULL);
        _exit(0);
    }
    close(ends[1]);
    if (pid > 0) take_rows(ends[0]);
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) bench_note(name, "%s: could not run", what);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        bench_note(name, "%s: not done after %d s", what, seconds);
    else if (status) bench_note(name, "%s: ended with status %d", what, status);
}

// ---- choosing

static int list(void)
{
    for (int i = 0; i < CASES; i++) printf("%-13s %s\n", cases[i].name, cases[i].what);
    return 0;
}

static int usage(const char *wrong)
{
    fprintf(stderr,
            "tenon-bench: %s\nusage: tenon-bench [--json] [--quick] [--list] [--no-peers] "
            "[--threads N,N...] [--profile FOLDER] [case...]\n",
            wrong);
    return 2;
}

// Whether the text is a list of thread counts, as "1,8,16", which it keeps.
static bool take_thread_counts(const char *text)
{
    int  n = 0;
    bool more;
    do {
        char *end;
        long  v = strtol(text, &end, 10);
        if (end == text || v < 1 || v > TNI_MAX_THREADS || n == BENCH_THREAD_COUNTS) return false;
        thread_counts[n++] = (int)v;
        more               = *end == ',';
        text               = end + more;
    } while (more);
    return !*text;
}

static bool known(const char *name)
{
    for (int i = 0; i < CASES; i++)
        if (!strcmp(cases[i].name, name)) return true;
    return false;
}

static bool selected(const char *name, char **names)
{
    if (!*names) return true;
    for (; *names; names++)
        if (!strcmp(*names, name)) return true;
    return false;
}

int main(int argc, char **argv)
{
    setenv("TN_COMPILE", "wait", 0);  // what runs for long runs compiled
    static char path[1024];
    ssize_t     n = readlink("/proc/self/exe", path, sizeof path - 1);
    self          = n > 0 ? path : argv[0];
    if (argc == 3 && !strcmp(argv[1], "--child")) {
        if (!strcmp(argv[2], "matmul")) bench_matmul_child();
        else if (!strcmp(argv[2], "cold")) bench_cold_child();
        else if (!strcmp(argv[2], "images")) bench_gpu_images_child();
        else if (!strcmp(argv[2], "gpu")) bench_gpu_child();
        else if (!strncmp(argv[2], "scaling:", 8)) {
            char *engine = strchr(argv[2] + 8, ':');  // scaling:mlp:mpi
            if (engine) *engine++ = 0;
            bench_scaling_child(argv[2] + 8, engine);
        } else bench_instructions_child(argv[2]);
        return 0;
    }
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--json")) json = true;
        else if (!strcmp(argv[i], "--quick")) quick = true;
        else if (!strcmp(argv[i], "--no-peers")) no_peers = true;
        else if (!strcmp(argv[i], "--list")) return list();
        else if (!strcmp(argv[i], "--profile") && i + 1 < argc) profiles = argv[++i];
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc) {
            if (!take_thread_counts(argv[++i])) return usage("--threads wants numbers as 1,8,16");
        } else return usage("an unknown option");
    }
    for (int k = i; k < argc; k++)
        if (!known(argv[k])) return usage("an unknown case; --list names them");
    if (json) begin_json();
    else {
        // Not by tn_device_info, which looks at every device: a case may run in a process that is
        // forked, and a GPU that was looked at before cannot be used there.
        tni_text cpu = { "" };
        tni_device_cpu.probe(&cpu);
        printf("tenon %s, %d threads, %s\n\n", tn_version(), tni_threads_default(), cpu.s);
        printf("%-13s %-26s %12s %s\n", "case", "what", "value", "unit");
    }
    for (int k = 0; k < CASES; k++)
        if (selected(cases[k].name, argv + i)) cases[k].run();
    if (json) end_json();
    return 0;
}
