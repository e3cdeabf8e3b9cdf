// runner_jobs.h: several processes of the runner at once.
#ifndef TEST_RUNNER_JOBS_H
#define TEST_RUNNER_JOBS_H

#include <stdbool.h>

// What is run: task(i) for every i below count that is wanted, each in a process of its own. What a
// process has printed comes out in one piece when it has ended, and then ended(i, status) is called
// in the process that called, with its status as of waitpid.
typedef struct {
    int count;
    bool (*wanted)(int i);
    void (*task)(int i);
    void (*ended)(int i, int status);
} jobs_work;

// Runs all, at most `most` at a time, begun in their order. False, with what went wrong on stderr,
// if one could not be begun; those that had been are waited for.
bool jobs_run(const jobs_work *w, int most);

// Makes this process, which `parent` has forked, end when that does, where the system can: so that
// who ends the runner alone leaves nothing running.
void jobs_end_with(int parent);

// How many run at once by default: TN_TEST_JOBS if set, else one for every two cores, two to eight.
int jobs_default(void);

#endif
