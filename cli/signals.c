// signals.c: stopping a training run. The first SIGINT or SIGTERM is a request: the run finishes
// its step and saves. The second ends the process at once, even if the step hangs in a library, a
// driver or a file. A command with nothing to save ends with the first signal, and leaves no
// incomplete file.
#include "cli.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// A signal within this time of the first counts as the same request: timeout(1) and some shells
// signal the process and then its group.
static const double AS_ONE_SECONDS = 0.2;

static const int stopping[] = { SIGINT, SIGTERM };
// Signals that end a process. SIGHUP is sent when its terminal closes.
static const int ending[] = { SIGINT, SIGTERM, SIGHUP };

// Written by the handler, and before it is installed. The messages are formatted beforehand, since
// a handler must not call printf.
static volatile sig_atomic_t asked;  // the first signal, or 0
static struct timespec       asked_at;
static char                  first[128], second[128];

static void write_all(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static bool is_same_request(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - asked_at.tv_sec) +
               1e-9 * (double)(now.tv_nsec - asked_at.tv_nsec) <
           AS_ONE_SECONDS;
}

// Ends the process by the default action of the signal, so that its parent sees the signal.
static void end_by(int signal_number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

// Makes only calls that POSIX allows in a handler: write, clock_gettime, signal, raise.
static void on_signal(int signal_number)
{
    if (!asked) {
        clock_gettime(CLOCK_MONOTONIC, &asked_at);
        asked = signal_number;
        write_all(first);
    } else if (!is_same_request()) {
        write_all(second);
        end_by(signal_number);
    }
}

void cli_signals_begin(bool quiet, bool bar)
{
    const char *line = bar ? "\r\033[0m\033[K" : "";  // erases the bar, which may be half drawn
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    asked                   = 0;
    snprintf(first, sizeof first, "%sstopping after this step; a second signal ends it at once\n",
             line);
    if (quiet) *first = 0;
    snprintf(second, sizeof second, "%stenon: ended at once; earlier saved files stay\n", line);
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 2; i++) sigaddset(&action.sa_mask, stopping[i]);
    for (int i = 0; i < 2; i++) sigaction(stopping[i], &action, NULL);
}

int cli_signals_asked(void)
{
    return asked;
}

void cli_signals_end(void)
{
    for (int i = 0; i < 2; i++) signal(stopping[i], SIG_DFL);
}

static const char *volatile unfinished;  // an incomplete file to remove; NULL: none

static void on_end(int signal_number)
{
    if (unfinished) unlink(unfinished);
    end_by(signal_number);
}

void cli_signals_remove(const char *path)
{
    struct sigaction action = { .sa_handler = path ? on_end : SIG_DFL }, now;
    unfinished              = path;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        sigaction(ending[i], NULL, &now);
        // A signal that is ignored, as by nohup(1), stays ignored.
        if (now.sa_handler != SIG_IGN) sigaction(ending[i], &action, NULL);
    }
}
