// tenon-onnx FOLDER [NAME]...: runs the cases that cases.py wrote below FOLDER, on the device of
// TN_DEVICE, and prints how many passed, failed and were refused, by operator. With names, only the
// cases whose path contains one of them, each with its result.
//
//   FOLDER/node/Add/test_add/model.onnx
//                            test_data_set_0/input_0.pb   output_0.pb       a TensorProto each
//
// Results are compared as onnx's own runner does it. Workers take cases in turn, each in a process
// of its own with one context; one that crashes or hangs costs the case it was at.
#include "export_zoo.h"
#include "onnx/onnx_run.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tenon.h>
#include <unistd.h>

// How many cases must pass where all of them run, with onnx 1.23.2 and ONNX Runtime 1.31.1.
enum { LEAST = 2796 };

enum { MOST_CASES = 8000, MOST_PORTS = 64, SECONDS = 60, WORKERS = 64 };

typedef enum { NOT_RUN, PASSED, FAILED, REFUSED, CRASHED } outcome;
static const char *const outcomes[] = { "not run", "passed", "failed", "refused", "crashed" };

// A case and what became of it. The table is memory that all workers share.
typedef struct {
    char    path[200];
    char    why[300];
    outcome result;
} test_case;

typedef struct {
    atomic_int next;
    int        count;
    int        at[WORKERS];  // the case each worker is at
    test_case  cases[MOST_CASES];
} table;

// ---- cases -------------------------------------------------------------------------------------

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static bool wanted(const char *path, int names, char **name)
{
    bool any = !names;
    for (int i = 0; i < names; i++) any = any || strstr(path, name[i]);
    return any;
}

// Lists folders that have a model, in order of their names.
static void find_cases(table *t, const char *folder, int names, char **name)
{
    char            path[4096];
    struct dirent **list;
    struct stat     st;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (stat(path, &st) == 0) {
        if (t->count < MOST_CASES && wanted(folder, names, name))
            snprintf(t->cases[t->count++].path, sizeof t->cases[0].path, "%s", folder);
        return;
    }
    int n = scandir(folder, &list, NULL, by_name);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            find_cases(t, path, names, name);
        free(list[i]);
    }
    if (n >= 0) free(list);
}

// The whole of a file; empty if there is none.
static tni_wire read_whole(const char *path)
{
    FILE          *f    = fopen(path, "rb");
    unsigned char *data = NULL;
    long           n    = 0;
    if (f && fseek(f, 0, SEEK_END) == 0 && (n = ftell(f)) >= 0 && (data = malloc((size_t)n + 1))) {
        rewind(f);
        if (fread(data, 1, (size_t)n, f) != (size_t)n) n = 0;
    }
    if (f) fclose(f);
    return data ? (tni_wire){ data, data + n } : (tni_wire){ 0 };
}

// The tensor of CASE/test_data_set_SET/KIND_I.pb, or NULL; *there: whether there is such a file.
static tn_tensor *read_tensor(tn_ctx *cx, const test_case *c, int set, const char *kind, int i,
                              bool *there)
{
    char           path[4096];
    tni_onnx_model none = { .cx = cx, .op = "test", .path = path };
    snprintf(path, sizeof path, "%s/test_data_set_%d/%s_%d.pb", c->path, set, kind, i);
    tni_wire w   = read_whole(path);
    *there       = w.at != NULL;
    tn_tensor *t = w.at ? tni_onnx_tensor(&none, cx, w) : NULL;
    free((void *)w.at);
    return t;
}

// ---- one case ----------------------------------------------------------------------------------

static outcome fail(test_case *c, outcome o, const char *why)
{
    snprintf(c->why, sizeof c->why, "%s", why);
    return o;
}

// Compares an output with what it should be: shapes and dtypes are equal; |have - want| <= 1e-7 + r
// |want|, where r is 1e-3, or for bf16 two of its steps. Integers beyond what a double holds are
// compared as such.
static outcome compare(test_case *c, int i, tn_tensor *have, tn_tensor *want)
{
    bool same = tn_rank(have) == tn_rank(want) && tn_dtype_of(have) == tn_dtype_of(want);
    for (int k = 0; same && k < tn_rank(want); k++) same = tn_size(have, k) == tn_size(want, k);
    if (!same)
        return fail(c, FAILED,
                    tni_text_of("output %d is %s %s, not %s %s", i,
                                tn_dtype_name(tn_dtype_of(have)), tni_shape_of(have).s,
                                tn_dtype_name(tn_dtype_of(want)), tni_shape_of(want).s)
                        .s);
    char path[300];
    snprintf(path, sizeof path, "%s/random", c->path);
    if (access(path, F_OK) == 0) return PASSED;
    int64_t  n  = tn_count(want);
    tn_dtype dt = tn_dtype_of(want), as = dt == TN_I64 || dt == TN_U64 ? dt : TN_F64;
    double  *a = malloc((size_t)n * 8 + 8), *b = malloc((size_t)n * 8 + 8), r = 1e-3;
    outcome  o = PASSED;
    if (dt == TN_BF16) r = 1.0 / 64;
    if (tn_read(have, as, a, n) != TN_OK || tn_read(want, as, b, n) != TN_OK)
        o = fail(c, REFUSED, tn_error_text(tn_ctx_of(have)));
    else if (as != TN_F64 && memcmp(a, b, (size_t)n * 8) != 0)
        o = fail(c, FAILED, tni_text_of("output %d has other integers", i).s);
    for (int64_t k = 0; o == PASSED && as == TN_F64 && k < n; k++)
        if (!(a[k] == b[k] || (isnan(a[k]) && isnan(b[k])) ||
              fabs(a[k] - b[k]) <= 1e-7 + r * fabs(b[k])))
            o = fail(c, FAILED,
                     tni_text_of("output %d: element %lld is %.9g, not %.9g", i, (long long)k, a[k],
                                 b[k])
                         .s);
    free(a);
    free(b);
    return o;
}

// Runs a model on one set of inputs; NOT_RUN if there is no such set.
static outcome run_set(tn_ctx *cx, tn_onnx *m, test_case *c, int set)
{
    tn_tensor  *x[MOST_PORTS], *y[MOST_PORTS], *want[MOST_PORTS];
    const char *name[MOST_PORTS];
    int         nx = 0, ny = 0;
    bool        there = true;
    while (nx < MOST_PORTS && nx < tn_onnx_inputs(m)) {
        x[nx]    = read_tensor(cx, c, set, "input", nx, &there);
        name[nx] = tn_onnx_input(m, nx).name;
        if (!there) break;
        if (!x[nx]) return fail(c, REFUSED, tn_error_text(cx));
        nx++;
    }
    while (ny < MOST_PORTS && ny < tn_onnx_outputs(m)) {
        want[ny] = read_tensor(cx, c, set, "output", ny, &there);
        if (!there) break;
        if (!want[ny]) return fail(c, REFUSED, tn_error_text(cx));
        ny++;
    }
    if (!ny) return NOT_RUN;
    if (tn_onnx_run(m, nx, name, x, ny, NULL, y) != TN_OK)
        return fail(c, REFUSED, tn_error_text(cx));
    outcome o = PASSED;
    for (int i = 0; o == PASSED && i < ny; i++) o = compare(c, i, y[i], want[i]);
    return o;
}

static outcome run_case(tn_ctx *cx, test_case *c)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/model.onnx", c->path);
    tn_onnx *m = tn_onnx_open(cx, path);
    outcome  o = m ? PASSED : fail(c, REFUSED, tn_error_text(cx));
    for (int set = 0; o == PASSED; set++) {
        tn_scope *s  = tn_begin(cx);
        outcome this = run_set(cx, m, c, set);
        tn_end(s);
        if (this == NOT_RUN && set) break;
        o = this;
    }
    tn_onnx_close(m);
    tn_error_clear(cx);
    return o == NOT_RUN ? fail(c, FAILED, "it has no data") : o;
}

// ---- workers -----------------------------------------------------------------------------------

static table *shared;

// Ends early: cases that are running end, no other begins, and what there is is printed.
static void stop(int signal)
{
    (void)signal;
    atomic_store(&shared->next, MOST_CASES);
}

static void work(table *t, int worker)
{
    tn_ctx *cx = tn_open(NULL);
    if (!cx) {
        fprintf(stderr, "tenon-onnx: %s\n", tn_error_text(NULL));
        _exit(1);
    }
    tn_on_error(cx, NULL, NULL);
    for (;;) {
        int i = atomic_fetch_add(&t->next, 1);
        if (i >= t->count) break;
        t->at[worker] = i;
        alarm(SECONDS);
        t->cases[i].result = run_case(cx, &t->cases[i]);
        alarm(0);
        t->at[worker] = -1;
    }
    tn_close(cx);
    _exit(0);
}

static pid_t begin(table *t, int worker)
{
    t->at[worker] = -1;
    pid_t p       = fork();
    if (!p) work(t, worker);
    return p;
}

// Runs all cases on n workers. False if one could not begin.
static bool run_all(table *t, int n)
{
    pid_t pid[WORKERS];
    int   left = n, status;
    for (int i = 0; i < n; i++) pid[i] = begin(t, i);
    while (left) {
        pid_t p = wait(&status);
        int   k = 0;
        while (k < n && pid[k] != p) k++;
        if (p < 0 || k == n) return false;
        if (WIFEXITED(status) && WEXITSTATUS(status)) return false;
        left--;
        if (!WIFSIGNALED(status) || t->at[k] < 0) continue;
        test_case *c = &t->cases[t->at[k]];
        c->result    = fail(c, CRASHED,
                            tni_text_of("%s", WTERMSIG(status) == SIGALRM
                                                  ? "it took too long"
                                                  : strsignal(WTERMSIG(status)))
                                .s);
        pid[k]       = begin(t, k);
        left++;
    }
    return true;
}

// ---- what is printed ---------------------------------------------------------------------------

// The name of the folder that a case's folder is in, which is an operator: length and start.
static int operator_of(const char *path, const char **start)
{
    const char *end = strrchr(path, '/');
    const char *s   = end;
    while (s > path && s[-1] != '/') s--;
    *start = s;
    return (int)(end - s);
}

// A line for each operator with cases that did not pass, and under it those.
static void print_operators(const table *t)
{
    for (int i = 0, end; i < t->count; i = end) {
        const char *op, *other;
        int         n[5] = { 0 }, length = operator_of(t->cases[i].path, &op);
        for (end = i; end < t->count; end++) {
            if (operator_of(t->cases[end].path, &other) != length ||
                memcmp(op, other, (size_t)length))
                break;
            n[t->cases[end].result]++;
        }
        if (n[PASSED] == end - i) continue;
        printf("%-32.*s %4d passed %4d failed %4d refused %4d crashed\n", length, op, n[PASSED],
               n[FAILED], n[REFUSED], n[CRASHED]);
        for (int k = i; k < end; k++)
            if (t->cases[k].result != PASSED)
                printf("    %-8s %s: %s\n", outcomes[t->cases[k].result],
                       strrchr(t->cases[k].path, '/') + 1, t->cases[k].why);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: tenon-onnx FOLDER [NAME]... | --export FOLDER\n");
        return 2;
    }
    if (argc == 3 && !strcmp(argv[1], "--export")) return export_zoo(argv[2]);
    table *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t == MAP_FAILED) return 1;
    find_cases(t, argv[1], argc - 2, argv + 2);
    shared = t;
    signal(SIGTERM, stop);
    const char *jobs = getenv("TN_TEST_JOBS");
    int         n = jobs ? atoi(jobs) : (int)sysconf(_SC_NPROCESSORS_ONLN), sum[5] = { 0 };
    if (!run_all(t, n < 1 ? 1 : n > WORKERS ? WORKERS : n)) return 1;
    print_operators(t);
    for (int i = 0; i < t->count; i++) sum[t->cases[i].result]++;
    const char *device = getenv("TN_DEVICE");
    printf("%d cases on %s: %d passed, %d failed, %d refused, %d crashed\n", t->count,
           device ? device : "the default device", sum[PASSED], sum[FAILED], sum[REFUSED],
           sum[CRASHED]);
    if (argc > 2) return sum[PASSED] < t->count;
    if (sum[PASSED] < LEAST) printf("tenon-onnx: at least %d cases passed before\n", LEAST);
    return sum[PASSED] < LEAST;
}
