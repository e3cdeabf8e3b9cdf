// test_line.c: the line between ranks, among processes of this one.
#include "rules_kit.h"
#include "dist/line.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LINE_RANKS = 4, VICTIM = 2 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// All but the victim come to a collective, and learn who has not.
static void miss_one(tni_line *l, int rank, atomic_int *checked)
{
    tni_line_item item = { .hash = 5, .what = "all_reduce" };
    tni_text      why  = { "" };
    bool          ok   = true;
    if (rank != VICTIM) {
        tni_line_begins(l, 1, &item);
        ok = !tni_line_agree(l, 1, &item, 0.3, &why);
        ok = ok && strstr(why.s, "within 0.3 seconds: missing are rank 2 (process ");
        if (!ok) fprintf(stderr, "rank %d: %s\n", rank, why.s);
        atomic_fetch_add(checked, 1);
    }
    for (double end = seconds() + 10; seconds() < end && atomic_load(checked) < LINE_RANKS - 1;)
        usleep(1000);
    _exit(ok ? 0 : 14);
}

// What a rank of the line does: opens it, then the victim ends in its way, and the others wait for
// the news. Exits with 0 if all is as it should be.
static void be_rank(int rank, const tni_line_address *a, int listening, char how,
                    atomic_int *checked)
{
    tni_text  why = { "" };
    char      died[64];
    tni_line *l = tni_line_open(rank, LINE_RANKS, a, listening, 20, &why);
    if (!l) _exit(10);
    bool victim = how == '0' ? rank == 0 : rank == VICTIM;
    if (how == 'm') miss_one(l, rank, checked);
    if (victim && how != 'l' && how != 'f' && how != 'o') raise(SIGKILL);
    if (victim || how == 'o')
        tni_line_leave(l, how == 'o' ? 7 : 5, how == 'f' ? "out of luck" : NULL);
    if (how == 'o') _exit(tni_line_close(l, true, 20) ? 0 : 11);
    if (victim) _exit(tni_line_close(l, how != 'f', 0.2) ? 12 : 0);
    double end = seconds() + 10;
    while (!tni_line_broken(l) && seconds() < end) usleep(1000);
    bool fifth = tni_line_up(l, 5, &why), sixth = tni_line_up(l, 6, &why);
    snprintf(died, sizeof died, "rank %d (process ", how == '0' ? 0 : VICTIM);
    const char *want = how == 'l'   ? "left after 5 collectives"
                       : how == 'f' ? "failed: out of luck"
                                    : "has died";
    bool        left = how == 'l' || how == 'f';
    bool ok = fifth == left && !sixth && !strncmp(why.s, died, strlen(died)) && strstr(why.s, want);
    if (!ok) fprintf(stderr, "rank %d: %s\n", rank, why.s);
    atomic_fetch_add(checked, 1);  // the end of any of them would be one more
    while (atomic_load(checked) < LINE_RANKS - 1 && seconds() < end) usleep(1000);
    _exit(ok ? 0 : 13);
}

// 'k': the victim is killed, '0': rank 0 is; 'l': it leaves early, 'f': with a reason; 'o': all
// leave in order; 'm': it does not come to a collective.
static void the_line_says_who_is_gone(void)
{
    atomic_int *checked = mmap(NULL, sizeof *checked, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(checked != MAP_FAILED)) return;
    for (const char *how = "k0lfom"; *how; how++) {
        tni_line_address a;
        tni_text         why;
        pid_t            rank[LINE_RANKS];
        int              listening = tni_line_listen(true, 0, &a, &why);
        if (!CHECK(listening >= 0)) return;
        atomic_store(checked, 0);
        for (int i = LINE_RANKS - 1; i >= 0; i--) {  // rank 0 comes last
            rank[i] = fork();
            if (rank[i] == 0) be_rank(i, &a, i ? -1 : listening, *how, checked);
        }
        close(listening);
        for (int i = LINE_RANKS - 1; i >= 0; i--) {
            int  status = 0;
            bool killed = (*how == 'k' && i == VICTIM) || (*how == '0' && i == 0);
            waitpid(rank[i], &status, 0);
            test_case_result(killed ? WIFSIGNALED(status) : status == 0, "%c: rank %d: status 0x%x",
                             *how, i, (unsigned)status);
        }
    }
}

static void the_line_opens_in_time_or_names_who_is_missing(void)
{
    tni_line_address a, other;
    tni_text         why;
    int              listening = tni_line_listen(true, 0, &a, &why);
    double           begin_at  = seconds();
    pid_t            stranger  = fork();
    if (stranger == 0) {  // with the token of another world
        other = a;
        other.token[3] ^= 1;
        _exit(tni_line_open(1, 3, &other, -1, 0.1, &why) ? 1 : 0);
    }
    CHECK(tni_line_open(0, 3, &a, listening, 0.3, &why) == NULL);
    CHECK_STR(why.s, "2 of 3 ranks have not come: 1 2");
    CHECK(tni_line_open(1, 3, &a, -1, 0.2, &why) == NULL);
    CHECK(strstr(why.s, "rank 0 does not answer at 127.0.0.1") != NULL);
    CHECK(seconds() - begin_at < 5);
    int status = 1;
    waitpid(stranger, &status, 0);
    CHECK_INT(status, 0);
}

const test_case tests_line[] = {
    TEST(the_line_says_who_is_gone),
    TEST(the_line_opens_in_time_or_names_who_is_missing),
    TEST_END,
};
