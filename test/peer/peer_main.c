// peer_main.c: tenon-peer PROGRAMS SEED DEVICE runs random programs in Tenon
// and in PyTorch and compares what they give. A program that differs is made
// small and printed, as C and as Python. Program i has the seed SEED + i, so
// that tenon-peer 1 SEED runs one again. A fourth argument names ops, with
// spaces between, that no program has, and a fifth says how many processes
// share the work: on a GPU most of the time goes into compiling.
#include "peer.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Differing programs before it ends; more say little more.
enum { ENOUGH = 5, MORE = 8, HANG_SECONDS = 300 };

typedef struct {
    tn_ctx    *ref, *cx;
    peer_torch torch;
    uint64_t   refused, steps, programs;
    bool       shrinking;
    char       why[PEER_TEXT], refusal[PEER_TEXT];
} peers;

// What the command line says. every: how many processes there are; each takes
// every so many-th program.
typedef struct {
    uint64_t    programs, seed, every;
    const char *device;
} settings;

// ---- crashes

static volatile uint64_t now;  // the seed of the program under way

static void crashed(int number)
{
    char text[128];
    int  n = snprintf(text, sizeof text,
                      "tenon-peer: signal %d in the program of SEED=%" PRIu64 "\n", number, now);
    if (write(2, text, (size_t)n) < 0) _exit(3);
    _exit(2);
}

static void watch_crashes(void)
{
    const int numbers[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) signal(numbers[i], crashed);
    signal(SIGPIPE, SIG_IGN);
}

// ---- one program

// A program that ends PyTorch itself (a division by zero of its own, on x86) says nothing of Tenon:
// it is named, and counts as refused. False if PyTorch does not come back.
static bool start_again(peers *w, const peer_program *p, const char *why)
{
    if (!w->shrinking) {
        printf("SEED=%" PRIu64 ": %s; it is started again\n", p->seed, why);
        fflush(stdout);
        if (w->refused++ == 0) snprintf(w->refusal, sizeof w->refusal, "%s", why);
    }
    peer_torch_stop(&w->torch);
    return peer_torch_start(&w->torch);
}

// Whether both agree. PyTorch is asked twice where they do not: the second time it also says what
// errors it makes on data nearby, since it may have been lucky.
static bool agrees(peers *w, const peer_program *p)
{
    peer_result have;
    peer_truth  want;
    bool        ok = peer_run(p, w->cx, &have);
    if (!ok) snprintf(w->why, sizeof w->why, "Tenon: %.400s", have.error);
    for (int more = 0; more <= MORE; more += MORE) {
        char        why[PEER_TEXT];
        peer_answer told = peer_torch_ask(&w->torch, p, more, &want, why);
        if (told == PEER_REFUSED) {
            if (ok && !w->shrinking && w->refused++ == 0)
                snprintf(w->refusal, sizeof w->refusal, "%s", why);

            ok = true;
        } else if (told == PEER_GONE) {
            snprintf(w->why, sizeof w->why, "%s", why);
            ok = start_again(w, p, why);
        } else if (have.error[0] == 0) {
            ok = peer_agree(p, &have, &want, w->why);
        }
        peer_truth_free(&want);
        if (ok || told != PEER_TOLD || have.error[0]) break;
    }
    peer_free(&have);
    return ok;
}

static bool differs(const peer_program *p, void *user)
{
    alarm(HANG_SECONDS);
    return !agrees(user, p);
}

static void report(peers *w, peer_program *p, const char *device)
{
    printf("\nSEED=%" PRIu64 " DEVICE=%s: %s\n", p->seed, device, w->why);
    w->shrinking = true;
    peer_shrink(p, w->ref, differs, w);
    agrees(w, p);
    w->shrinking = false;
    printf("smallest: %s\n\n", w->why);
    peer_print_c(p, stdout);
    printf("\nimport sys; sys.path.insert(0, \"test/peer\")\nfrom torch_side "
           "import *\n");
    peer_print_python(p, stdout);
    fflush(stdout);
}

// A step that Tenon refuses on ref is the program's last. Whether PyTorch takes it.
static bool only_tenon_refuses(peers *w, peer_program *p)
{
    peer_truth t;
    char       why[PEER_TEXT];
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < PEER_OUTS; k++) p->step[i].wanted[k] = i == p->count - 1;
    peer_prune(p);
    peer_answer told = peer_torch_ask(&w->torch, p, 0, &t, why);
    peer_truth_free(&t);
    if (told == PEER_GONE) start_again(w, p, why);
    return told == PEER_TOLD;
}

static void report_refusal(const peer_program *p, const char *why)
{
    printf("\nSEED=%" PRIu64 ": Tenon refuses the last step: %s\n\n", p->seed, why);
    peer_print_c(p, stdout);
    fflush(stdout);
}

// ---- all of them

static void silent(tn_ctx *cx, const tn_fault *f, void *user)
{
    (void)cx, (void)f, (void)user;
}

static tn_ctx *open_on(const char *device)
{
    return tn_open_with((tn_open_opts){ .device = device, .handler = silent });
}

static int compare_all(peers *w, const settings *o, uint64_t first)
{
    int failures = 0;
    for (uint64_t i = first; i < o->programs && failures < ENOUGH; i += o->every) {
        static peer_program p;
        char                why[PEER_TEXT];
        now = o->seed + i;
        alarm(HANG_SECONDS);
        w->programs++;
        if (w->programs % 1000 == 0) printf("%" PRIu64 " done\n", w->programs), fflush(stdout);
        if (!peer_generate(&p, o->seed + i, w->ref, why)) {
            if (!only_tenon_refuses(w, &p)) continue;
            report_refusal(&p, why);
            failures++;
            continue;
        }
        w->steps += (uint64_t)p.count;
        if (agrees(w, &p)) continue;
        failures++;
        report(w, &p, o->device);
    }
    alarm(0);
    return failures;
}

// Opens what is compared, and compares: the programs first, first + every, ...
static int work(const settings *o, uint64_t first)
{
    static peers w;
    if (!peer_torch_start(&w.torch)) {
        if (first == 0)
            printf("tenon-peer: skipped, no Python with PyTorch was found (TN_PYTHON "
                   "names one)\n");
        return 0;
    }
    w.ref = open_on("ref");
    w.cx  = open_on(o->device);
    if (!w.ref || !w.cx) {
        fprintf(stderr, "tenon-peer: %s\n", tn_error_text(NULL));
        return 1;
    }
    if (first == 0)
        printf("%" PRIu64 " programs, SEED=%" PRIu64 ", DEVICE=%s, Python with %s\n", o->programs,
               o->seed, o->device, w.torch.version);
    fflush(stdout);
    time_t start    = time(NULL);
    int    failures = compare_all(&w, o, first);
    printf("%s%" PRIu64 " programs of %" PRIu64 " steps: %d differ, PyTorch refused %" PRIu64
           "%s%s; %lld seconds\n",
           failures ? "\n" : "", w.programs, w.steps, failures, w.refused,
           w.refused ? ", the first: " : "", w.refusal, (long long)(time(NULL) - start));
    fflush(stdout);
    peer_torch_stop(&w.torch);
    tn_close(w.cx);
    tn_close(w.ref);
    return failures ? 1 : 0;
}

// Every process has a Python and a context of its own, so it is forked before
// either is there.
static int work_together(const settings *o)
{
    int status = 0;
    for (uint64_t i = 1; i < o->every; i++)
        if (fork() == 0) _exit(work(o, i));
    int failed = work(o, 0);
    for (uint64_t i = 1; i < o->every; i++)
        if (wait(&status) > 0 && status != 0) failed = 1;
    return failed;
}

int main(int argc, char **argv)
{
    settings o = { .programs = argc > 1 && *argv[1] ? strtoull(argv[1], NULL, 0) : 1000,
                   .seed     = argc > 2 && *argv[2] ? strtoull(argv[2], NULL, 0)
                                                    : (uint64_t)time(NULL) << 20,
                   .device   = argc > 3 && *argv[3] ? argv[3] : "cpu",
                   .every    = argc > 5 && *argv[5] ? strtoull(argv[5], NULL, 0) : 1 };
    if (argc > 4) peer_leave_out(argv[4]);
    if (o.every < 1 || o.every > o.programs) o.every = 1;
    watch_crashes();
    return work_together(&o);
}
