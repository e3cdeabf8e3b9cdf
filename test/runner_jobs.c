// Processes of the runner beside each other: see runner_jobs.h.
#include "runner_jobs.h"

#include "base/pool.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

// A process that runs a task. It prints into `out`, a file without a name; who forked it owns that.
typedef struct {
    pid_t pid;
    int   task;
    FILE *out;
} job;

#ifdef __linux__
void jobs_end_with(int parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) raise(SIGKILL);  // it was gone before
}
#else
void jobs_end_with(int parent)
{
    (void)parent;
}
#endif

// Some tests have a thread on each core, some a compiler beside them, so that one file for every
// two cores keeps them all busy; of two or three cores one file alone would leave one idle half of
// the time. More than MANY gain nothing: the longest file takes a fifth of the time of all.
int jobs_default(void)
{
    enum { CORES = 2, FEW = 2, MANY = 8 };
    const char *text  = getenv("TN_TEST_JOBS");
    int         cores = tni_threads_default(), n = cores / CORES;
    if (text && atoi(text) > 0) return atoi(text);
    if (n < FEW) n = cores < FEW ? cores : FEW;
    return n < MANY ? n : MANY;
}

// ---- one job -----------------------------------------------------------------------------------

static void be_job(const job *j, const jobs_work *w, int parent)
{
    jobs_end_with(parent);
    dup2(fileno(j->out), STDOUT_FILENO);
    dup2(fileno(j->out), STDERR_FILENO);
    w->task(j->task);
    fflush(NULL);
    _exit(0);
}

static bool begin(job *j, const jobs_work *w, int task)
{
    pid_t parent = getpid();
    *j           = (job){ .task = task, .out = tmpfile() };
    if (!j->out) return false;
    fcntl(fileno(j->out), F_SETFD, FD_CLOEXEC);  // of no matter to what the tests of others start
    fflush(NULL);
    j->pid = fork();
    if (j->pid == 0) be_job(j, w, (int)parent);
    if (j->pid < 0) fclose(j->out);
    return j->pid > 0;
}

static void end(job *j, const jobs_work *w, int status)
{
    char   block[4096];
    size_t n;
    rewind(j->out);
    while ((n = fread(block, 1, sizeof block, j->out)) > 0) fwrite(block, 1, n, stdout);
    fclose(j->out);
    w->ended(j->task, status);
    fflush(stdout);
}

// ---- all of them -------------------------------------------------------------------------------

// Waits for one of n jobs, which is then no longer among them.
static void wait_for_one(job *running, int *n, const jobs_work *w)
{
    int   status = 0;
    pid_t pid    = waitpid(-1, &status, 0);
    if (pid < 0) {
        perror("tenon-tests");
        exit(2);
    }
    for (int i = 0; i < *n; i++) {
        if (running[i].pid != pid) continue;
        end(&running[i], w, status);
        running[i] = running[--*n];
        return;
    }
}

bool jobs_run(const jobs_work *w, int most)
{
    job *running = calloc((size_t)w->count + 1, sizeof *running);
    int  n       = 0;
    bool ok      = running != NULL;
    for (int i = 0; ok && i < w->count; i++) {
        if (!w->wanted(i)) continue;
        while (n >= most) wait_for_one(running, &n, w);
        ok = begin(&running[n], w, i);
        n += ok;
    }
    if (!ok) perror("tenon-tests");
    while (n > 0) wait_for_one(running, &n, w);
    free(running);
    return ok;
}
