// test_cudnn.c: attention by cuDNN, with a cuDNN that computes any graph in host memory: what its
// graphs compute, which engine is chosen and kept, and what happens if the library fails at any
// step.
#include "check.h"
#include "fake_clock.h"
#include "fake_cudnn_kit.h"
#include "host.h"
#include "scratch.h"
#include "tree.h"

#include "device/cuda/cuda_attention.h"
#include "device/cuda/dnn_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1 << 15, SCRATCH = 1 << 20 };

// ---- the library -------------------------------------------------------------------------------

// Whether the library is taken, in a process of its own: 0, or 1 with the reason in a file.
static int take_library(const char *wants)
{
    tni_text why = { "" };
    if (tni_cudnn_get(&why)) return strcmp(wants, "") ? 1 : 0;
    if (*wants && strstr(why.s, wants)) return 0;
    printf("not \"%s\": \"%s\"\n", wants, why.s);
    fflush(stdout);
    return 1;
}

static bool in_child(const char *wants)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(take_library(wants));
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

// Asks twice, and leaves what TN_LOG says in a file.
static int ask_twice(void)
{
    tni_text why = { "" };
    if (!freopen(scratch_path("log"), "w", stderr)) return 1;
    setenv("TN_LOG", "library", 1);
    bool taken = tni_cudnn_get(&why) || tni_cudnn_get(&why);
    fflush(stderr);
    return taken;
}

// Whether a library that is not used is told of in a single line, which has this part.
static bool in_child_once(const char *part)
{
    int   status = -1;
    pid_t pid    = fork();
    if (pid == 0) _exit(ask_twice());
    bool ok = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
              !WEXITSTATUS(status);
    size_t bytes = 0;
    char  *log   = scratch_read(scratch_path("log"), &bytes);
    ok           = ok && log && strstr(log, part) && strchr(log, '\n') == log + bytes - 1;
    free(log);
    return ok;
}

static void a_library_that_cannot_be_used_is_named(void)
{
    if (!CHECK(scratch_open()) || !fake_cudnn_compile("")) return;
    setenv("TN_CUDNN", scratch_path("libcudnn.so.9"), 1);
    CHECK(in_child(""));
    setenv("FAKE_CUDNN_VERSION", "91000", 1);
    CHECK(in_child("9.10.0"));
    setenv("FAKE_CUDNN_VERSION", "91002", 1);
    CHECK(in_child(""));
    setenv("FAKE_CUDNN_VERSION", "80900", 1);
    CHECK(in_child("9.6 or a later 9 is needed"));
    unsetenv("FAKE_CUDNN_VERSION");
    remove(scratch_path("libcublasLt.so.99"));
    CHECK(in_child("libcublasLt.so.99, which was not found"));
    CHECK(fake_cudnn_compile("-DcudnnBackendExecute=another"));
    CHECK(in_child("has no cudnnBackendExecute"));
    setenv("TN_CUDNN", "/nowhere/libcudnn.so.9", 1);
    CHECK(in_child("cannot be opened"));
    setenv("TN_CUDNN", scratch_path("text"), 1);
    CHECK(scratch_write(scratch_path("text"), "no library\n", 11));
    CHECK(in_child("cannot be opened"));
    CHECK(in_child_once("text"));
    setenv("TN_CUDNN", "none", 1);
    CHECK(in_child("TN_CUDNN=none"));
    unsetenv("TN_CUDNN");
    scratch_close();
}

static void versions_with_known_mistakes_are_left_out(void)
{
    CHECK(!tni_cudnn_version_is_used(91000) && !tni_cudnn_version_is_used(91001));
    CHECK(!tni_cudnn_version_is_used(90500) && !tni_cudnn_version_is_used(100000));
    CHECK(tni_cudnn_version_is_used(90600) && tni_cudnn_version_is_used(91400));
}

// ---- calls -------------------------------------------------------------------------------------

// The sizes of a case. packed: q, k and v are parts of one tensor. masked: numbers (T, S) are
// added.
typedef struct {
    int64_t  B, H, Hk, T, S, D, E;
    bool     causal, packed;
    tn_dtype dtype;
    bool     masked;
} sizes;

enum { Q, K, V, MASK, O, G, DQ, DK, DV, BUFFERS };

// A call and its gradient over memory of their own.
typedef struct {
    sizes    n;
    tni_attr attr;
    tni_arg  in[7], lse, more[3];
    tni_call call;
    _Alignas(64) char data[BUFFERS][2 * MOST], lses[4 * MOST];
} attention_case;

static _Alignas(256) char scratch[SCRATCH];

static tni_arg arg_of(tn_dtype dt, const int64_t size[4], int64_t row, char *data)
{
    return (tni_arg){ .dtype  = dt,
                      .rank   = 4,
                      .size   = { size[0], size[1], size[2], size[3] },
                      .stride = { size[1] * row, row, size[3], 1 },
                      .data   = data };
}

// Fills memory with small numbers that repeat late.
static void fill(attention_case *c)
{
    for (int i = 0; i < BUFFERS; i++)
        for (int64_t k = 0; k < MOST; k++)
            host_put(c->n.dtype, c->data[i], k, ((k * 7 + i * 31 + k / 53) % 23 - 11) / 8.0, 0);
}

// A forward call; for the gradient the result and the log-sums of an earlier one are added.
static attention_case *case_of(sizes n)
{
    attention_case *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->n        = n;
    int64_t row = n.packed ? (n.H + n.Hk) * n.D + n.Hk * n.E : 0;
    char   *q   = c->data[Q];
    char   *k   = n.packed ? q + 2 * n.H * n.D : c->data[K];
    char   *v   = n.packed ? q + 2 * (n.H + n.Hk) * n.D : c->data[V];
    fill(c);
    c->in[0] = arg_of(n.dtype, (int64_t[]){ n.B, n.T, n.H, n.D }, row ? row : n.H * n.D, q);
    c->in[1] = arg_of(n.dtype, (int64_t[]){ n.B, n.S, n.Hk, n.D }, row ? row : n.Hk * n.D, k);
    c->in[2] = arg_of(n.dtype, (int64_t[]){ n.B, n.S, n.Hk, n.E }, row ? row : n.Hk * n.E, v);
    c->lse   = (tni_arg){ .dtype  = TN_F32,
                          .rank   = 3,
                          .size   = { n.B, n.H, n.T },
                          .stride = { n.H * n.T, n.T, 1 },
                          .data   = c->lses };
    if (n.masked) {
        c->in[3]                 = arg_of(n.dtype, (int64_t[]){ 1, 1, n.T, n.S }, 1, c->data[MASK]);
        c->in[3].stride[2]       = n.S;
        c->attr.attention.extras = 1;
    }
    c->attr.attention.scale  = 0.3;
    c->attr.attention.causal = n.causal;
    c->more[0]               = c->lse;
    c->call                  = (tni_call){ .session = &fake_session,
                                           .op      = TNI_attention,
                                           .nin     = n.masked ? 4 : 3,
                                           .in      = c->in,
                                           .out     = arg_of(n.dtype, (int64_t[]){ n.B, n.T, n.H, n.E }, n.H * n.E,
                                                             c->data[O]),
                                           .nmore   = 1,
                                           .more    = c->more,
                                           .attr    = &c->attr,
                                           .scratch = scratch };
    return c;
}

static void turn_to_gradient(attention_case *c)
{
    sizes n            = c->n;
    int   at           = c->call.nin;
    c->in[at]          = c->call.out;
    c->in[at + 1]      = c->lse;
    c->in[at + 2]      = c->call.out;
    c->in[at + 2].data = c->data[G];
    c->call.op         = TNI_attention_grad;
    c->call.nin        = at + 3;
    c->call.nmore      = n.masked ? 3 : 2;
    c->call.out        = arg_of(n.dtype, (int64_t[]){ n.B, n.T, n.H, n.D }, n.H * n.D, c->data[DQ]);
    c->more[0] = arg_of(n.dtype, (int64_t[]){ n.B, n.S, n.Hk, n.D }, n.Hk * n.D, c->data[DK]);
    c->more[1] = arg_of(n.dtype, (int64_t[]){ n.B, n.S, n.Hk, n.E }, n.Hk * n.E, c->data[DV]);
}

static double get(const tni_arg *x, int64_t b, int64_t t, int64_t h, int64_t d)
{
    return host_get(x->dtype, x->data,
                    b * x->stride[0] + t * x->stride[1] + h * x->stride[2] + d * x->stride[3]);
}

// ---- what is right -----------------------------------------------------------------------------

// The weights of one query; their log-sum.
static double weigh(const attention_case *c, int64_t b, int64_t h, int64_t i, double *w)
{
    const sizes *n   = &c->n;
    double       sum = 0;
    for (int64_t j = 0; j < n->S; j++) {
        double s = 0;
        for (int64_t d = 0; d < n->D; d++)
            s += get(&c->in[0], b, i, h, d) * get(&c->in[1], b, j, h / (n->H / n->Hk), d);
        s *= c->attr.attention.scale;
        if (n->masked) s += host_get(n->dtype, c->data[MASK], i * n->S + j);
        w[j] = n->causal && j > i ? 0 : exp(s);
        sum += w[j];
    }
    for (int64_t j = 0; j < n->S; j++) w[j] /= sum;
    return log(sum);
}

// Whether two values are equal up to the rounding of 16 bits, of terms of this size.
static bool close_to(const attention_case *c, double a, double b, double size)
{
    return fabs(a - b) <= (c->n.dtype == TN_F16 ? 4e-3 : 3e-2) * (size + fabs(b));
}

static int wrong_results(const attention_case *c)
{
    const sizes *n     = &c->n;
    int          wrong = 0;
    double      *w     = malloc((size_t)n->S * sizeof *w);
    for (int64_t r = 0; r < n->B * n->H * n->T && w; r++) {
        int64_t i = r % n->T, h = r / n->T % n->H, b = r / n->T / n->H;
        double  lse = weigh(c, b, h, i, w);
        wrong += fabs(lse - ((const float *)(const void *)c->lses)[r]) > 1e-3;
        for (int64_t e = 0; e < n->E; e++) {
            double y = 0;
            for (int64_t j = 0; j < n->S; j++)
                y += w[j] * get(&c->in[2], b, j, h / (n->H / n->Hk), e);
            wrong += !close_to(c, get(&c->call.out, b, i, h, e), y, 1);
        }
    }
    free(w);
    return w ? wrong : -1;
}

// The gradients in f64: dq of the query, and dk and dv of the keys added up.
static void add_gradients(const attention_case *c, int64_t b, int64_t h, int64_t i, double *w,
                          double *dq, double *dk, double *dv)
{
    const sizes   *n     = &c->n;
    const tni_arg *g     = &c->in[c->call.nin - 1];
    int64_t        hk    = h / (n->H / n->Hk);
    double         delta = 0, *dp = w + n->S;
    weigh(c, b, h, i, w);
    for (int64_t j = 0; j < n->S; j++) {
        dp[j] = 0;
        for (int64_t e = 0; e < n->E; e++)
            dp[j] += get(g, b, i, h, e) * get(&c->in[2], b, j, hk, e);
        delta += w[j] * dp[j];
    }
    for (int64_t j = 0; j < n->S; j++) {
        double ds = w[j] * (dp[j] - delta) * c->attr.attention.scale;
        for (int64_t d = 0; d < n->D; d++) {
            dq[((b * n->T + i) * n->H + h) * n->D + d] += ds * get(&c->in[1], b, j, hk, d);
            dk[((b * n->S + j) * n->Hk + hk) * n->D + d] += ds * get(&c->in[0], b, i, h, d);
        }
        for (int64_t e = 0; e < n->E; e++)
            dv[((b * n->S + j) * n->Hk + hk) * n->E + e] += w[j] * get(g, b, i, h, e);
    }
}

static int wrong_values(const attention_case *c, const char *got, const double *want, int64_t count)
{
    int wrong = 0;
    for (int64_t i = 0; i < count; i++)
        wrong += !close_to(c, host_get(c->n.dtype, got, i), want[i], 3);
    return wrong;
}

static int wrong_gradients(const attention_case *c)
{
    const sizes *n  = &c->n;
    double      *dq = calloc(3 * MOST, sizeof *dq), *w = malloc(2 * (size_t)n->S * sizeof *w);
    int          wrong = -1;
    if (dq && w) {
        for (int64_t r = 0; r < n->B * n->H * n->T; r++)
            add_gradients(c, r / n->T / n->H, r / n->T % n->H, r % n->T, w, dq, dq + MOST,
                          dq + 2 * MOST);
        wrong = wrong_values(c, c->data[DQ], dq, n->B * n->T * n->H * n->D) +
                wrong_values(c, c->data[DK], dq + MOST, n->B * n->S * n->Hk * n->D) +
                wrong_values(c, c->data[DV], dq + 2 * MOST, n->B * n->S * n->Hk * n->E);
    }
    free(dq);
    free(w);
    return wrong;
}

// ---- numbers -----------------------------------------------------------------------------------

static tn_status run(attention_case *c, tni_text *why)
{
    c->call.why = why;
    if (tni_cuda_attention_declines(&c->call)) return TN_EARG;
    if (tni_cuda_attention_scratch(&c->call) > SCRATCH) return TN_EMEM;
    return tni_cuda_attention(&c->call);
}

static const sizes cases[] = {
    { 1, 1, 1, 4, 4, 8, 8, false, false, TN_BF16, false },
    { 2, 3, 3, 5, 5, 8, 16, true, false, TN_BF16, false },
    { 2, 2, 2, 6, 6, 16, 8, true, true, TN_F16, false },
    { 2, 2, 2, 3, 7, 8, 8, false, false, TN_BF16, false },
    { 1, 2, 2, 7, 3, 8, 8, true, false, TN_F16, false },
    { 2, 4, 2, 5, 5, 8, 8, true, false, TN_BF16, false },
    { 1, 4, 1, 4, 6, 16, 16, false, true, TN_BF16, false },
    { 40, 1, 1, 3, 3, 8, 8, true, false, TN_BF16, false },
    { 1, 1, 1, 128, 128, 8, 8, true, false, TN_BF16, false },
    { 1, 1, 1, 2, 128, 8, 8, false, false, TN_F16, false },
    { 2, 2, 2, 5, 8, 8, 8, false, false, TN_BF16, true },
    { 1, 2, 1, 8, 16, 8, 16, true, true, TN_F16, true },
};

static void graphs_compute_attention_and_its_gradient(void)
{
    if (!fake_cudnn_begin()) return;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        tni_text        why        = { "" };
        attention_case *c          = case_of(cases[i / 2]);
        fake_session.deterministic = i % 2;
        setenv("FAKE_CUDNN_VERSION", cases[i / 2].masked ? "91900" : "91400", 1);
        bool ok = c && run(c, &why) == TN_OK && wrong_results(c) == 0;
        if (c) turn_to_gradient(c);
        int wrong = ok && run(c, &why) == TN_OK ? wrong_gradients(c) : -1;
        test_case_result(ok && wrong == 0, "case %zu: forward %d, gradients %d: %s", i, ok, wrong,
                         why.s);
        free(c);
    }
    fake_cudnn_end();
    unsetenv("FAKE_CUDNN_VERSION");
}

// Gradients of q, k and v that are parts of one tensor (B, T, 3 H, D) are written into it.
static void results_may_be_parts_of_one_tensor(void)
{
    tni_text why = { "" };
    if (!fake_cudnn_begin()) return;
    attention_case *c = case_of((sizes){ 2, 2, 2, 5, 5, 8, 8, true, false, TN_BF16, false });
    CHECK_INT(run(c, &why), TN_OK);
    turn_to_gradient(c);
    tni_arg *part[] = { &c->call.out, &c->more[0], &c->more[1] };
    for (int i = 0; i < 3; i++) {
        part[i]->stride[0] *= 3;
        part[i]->stride[1] *= 3;
        part[i]->data = c->data[K] + (int64_t)MOST + i * 2 * 2 * 8;
    }
    CHECK_INT(run(c, &why), TN_OK);
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < 2 * 5 * 2 * 8; k++)
            memcpy(c->data[DQ + i] + 2 * k, part[i]->data + 2 * (k / 16 * 48 + k % 16), 2);
    CHECK_INT(wrong_gradients(c), 0);
    free(c);
    fake_cudnn_end();
}

// Outputs that nobody reads are written elsewhere.
static void unwanted_outputs_are_left_out(void)
{
    tni_text why = { "" };
    if (!fake_cudnn_begin()) return;
    attention_case *c = case_of(cases[1]);
    c->more[0].data   = NULL;
    CHECK_INT(run(c, &why), TN_OK);
    c->more[0].data = c->lses;
    CHECK_INT(run(c, &why), TN_OK);
    CHECK_INT(wrong_results(c), 0);
    turn_to_gradient(c);
    c->more[0].data = NULL;
    CHECK_INT(run(c, &why), TN_OK);
    c->more[0].data = c->data[DK];
    CHECK_INT(run(c, &why), TN_OK);
    CHECK_INT(wrong_gradients(c), 0);
    free(c);
    for (int i = 0; i < fake_session.scratches; i++)
        fake_clock_driver.mem_free(fake_session.scratch[i]);
    fake_cudnn_end();
}

// ---- choosing ----------------------------------------------------------------------------------

static void the_fastest_engine_is_chosen_once_and_kept(void)
{
    tni_text why = { "" };
    if (!fake_cudnn_begin()) return;
    attention_case *c = case_of(cases[1]);
    CHECK_INT(run(c, &why), TN_OK);
    CHECK_STR(tni_cuda_attention_method(&c->call), "cuDNN");
    CHECK_INT(fake_cudnn->compiled, 3);
    CHECK_INT(fake_cudnn->last, 1);
    int runs = fake_cudnn->runs;
    CHECK_INT(run(c, &why), TN_OK);
    CHECK_INT(fake_cudnn->runs, runs + 1);
    fake_cudnn_forget();
    CHECK_INT(run(c, &why), TN_OK);
    CHECK_INT(fake_cudnn->compiled, 3);
    CHECK_INT(fake_cudnn->loaded, 1);
    CHECK_INT(fake_cudnn->last, 1);
    CHECK_INT(fake_cudnn->runs, runs + 2);
    CHECK_INT(wrong_results(c), 0);
    free(c);
    fake_cudnn_end();
}

static void nothing_is_timed_where_runs_must_be_equal(void)
{
    tni_text why = { "" };
    if (!fake_cudnn_begin()) return;
    fake_session.deterministic = true;
    attention_case *c          = case_of(cases[1]);
    CHECK_INT(run(c, &why), TN_OK);
    CHECK_INT(fake_cudnn->compiled, 1);
    CHECK_INT(fake_cudnn->runs, 1);
    CHECK_INT(fake_cudnn->last, 0);
    CHECK(tni_cuda_attention_varies(&c->call) == NULL);
    fake_session.deterministic = false;
    CHECK(tni_cuda_attention_varies(&c->call) != NULL);
    free(c);
    fake_cudnn_end();
}

// ---- failures ----------------------------------------------------------------------------------

// A step that fails, with either kind of status, leaves the call to other ops.
static void a_library_that_fails_is_declined(void)
{
    static const int kinds[] = {
        -1, TNI_DNN_TENSOR, TNI_DNN_OP_MATMUL, TNI_DNN_GRAPH, TNI_DNN_HEURISTIC, TNI_DNN_PLAN
    };
    static const int statuses[] = { 2000, 3000, 4001 };
    if (!fake_cudnn_begin()) return;
    for (int i = 0; i < 18; i++) {
        tni_text        why = { "" };
        attention_case *c   = case_of(cases[1]);
        fake_cudnn->fails   = kinds[i % 6];
        fake_cudnn->status  = statuses[i / 6];
        test_case_result(c && run(c, &why) == TN_EARG, "kind %d, status %d", kinds[i % 6],
                         fake_cudnn->status);
        fake_cudnn->fails = FAKE_NONE;
        fake_cudnn_forget();
        free(c);
    }
    fake_cudnn->engines = 0;
    tni_text        why = { "" };
    attention_case *c   = case_of(cases[1]);
    CHECK_INT(run(c, &why), TN_EARG);
    free(c);
    fake_cudnn_end();
}

// An engine that does not run is passed over; if none runs, the call says so.
static void an_engine_that_does_not_run_is_passed_over(void)
{
    tni_text why = { "" };
    if (!fake_cudnn_begin()) return;
    attention_case *c  = case_of(cases[1]);
    fake_cudnn->broken = 1;
    CHECK_INT(run(c, &why), TN_OK);
    CHECK_INT(fake_cudnn->last, 0);
    CHECK_INT(wrong_results(c), 0);
    fake_cudnn->no_run = true;
    CHECK_INT(run(c, &why), TN_EDEVICE);
    CHECK(strstr(why.s, "cuDNN") != NULL);
    free(c);
    fake_cudnn_end();
}

// A file on disk that the library no longer reads counts as absent.
static void a_plan_on_disk_that_does_not_load_is_made_again(void)
{
    tni_text why = { "" };
    if (!fake_cudnn_begin()) return;
    attention_case *c = case_of(cases[1]);
    CHECK_INT(run(c, &why), TN_OK);
    fake_cudnn_forget();
    fake_cudnn->fails  = TNI_DNN_PLAN;
    fake_cudnn->status = 1003;
    CHECK(tni_cuda_attention_declines(&c->call) != NULL);
    fake_cudnn_forget();
    fake_cudnn->fails = FAKE_NONE;
    CHECK_INT(run(c, &why), TN_OK);
    CHECK_INT(wrong_results(c), 0);
    free(c);
    fake_cudnn_end();
}

// What the library does not have, and what strides it cannot read.
static void other_forms_are_declined(void)
{
    if (!fake_cudnn_begin()) return;
    sizes n = cases[0];
    for (int i = 0; i < 5; i++) {
        sizes m = n;
        if (i == 0) m.dtype = TN_F32;
        if (i == 1) m.D = 12;
        if (i == 2) m.E = 264, m.S = 2, m.T = 2;
        attention_case *c = case_of(m);
        if (i == 3) c->in[1].stride[3] = 2;
        if (i == 4) c->in[2].stride[1] = 0;
        test_case_result(tni_cuda_attention_declines(&c->call) != NULL, "form %d", i);
        free(c);
    }
    CHECK_INT(fake_cudnn->runs, 0);
    fake_cudnn_end();
}

const test_case tests_cudnn[] = { TEST(a_library_that_cannot_be_used_is_named),
                                  TEST(versions_with_known_mistakes_are_left_out),
                                  TEST(graphs_compute_attention_and_its_gradient),
                                  TEST(results_may_be_parts_of_one_tensor),
                                  TEST(unwanted_outputs_are_left_out),
                                  TEST(the_fastest_engine_is_chosen_once_and_kept),
                                  TEST(nothing_is_timed_where_runs_must_be_equal),
                                  TEST(a_library_that_fails_is_declined),
                                  TEST(an_engine_that_does_not_run_is_passed_over),
                                  TEST(a_plan_on_disk_that_does_not_load_is_made_again),
                                  TEST(other_forms_are_declined),
                                  TEST_END };
