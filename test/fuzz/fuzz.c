// fuzz.c: the fuzzer. tenon-fuzz TARGET SECONDS [SEED] damages inputs and hands them to a target
// until the time is over. An input that comes to an outcome not seen before joins those that later
// ones are made from, so that a reader is entered deeper and deeper without help of the compiler.
//
// Targets run in a child process. The input under way lies in memory that both share: when the
// child dies or hangs, its parent writes that input to fuzz-TARGET-crash.bin, and
// tenon-fuzz TARGET --file fuzz-TARGET-crash.bin runs it again.
#include "fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TARGET(name) extern const fuzz_target fuzz_##name;
#include "targets.h"
#undef TARGET

#define TARGET(name) &fuzz_##name,
static const fuzz_target *const targets[] = {
#include "targets.h"
};
#undef TARGET

enum { TARGETS = sizeof targets / sizeof *targets };
enum { CORPUS = 1024, SEEN = 1 << 14, HANG_SECONDS = 60 };

typedef struct {
    unsigned char *data;
    size_t         n;
} input;

// Shared by the two processes: the input under way, and how far the child has come.
typedef struct {
    uint64_t      runs, outcomes;
    size_t        peak;
    size_t        n;
    unsigned char data[FUZZ_ROOM];
} progress;

// Of the child. seen is a hash table of outcomes, 0 where empty.
static input     corpus[CORPUS];
static size_t    corpus_count;
static uint64_t  seen[SEEN];
static progress *now;

// ---- the child

static void keep(const void *data, size_t n, size_t at)
{
    unsigned char *copy = malloc(n + 1);
    FUZZ_CHECK(copy != NULL);
    if (n) memcpy(copy, data, n);
    free(corpus[at].data);
    corpus[at] = (input){ copy, n };
    if (at == corpus_count) corpus_count++;
}

void fuzz_seed(const void *data, size_t n)
{
    FUZZ_CHECK(corpus_count < CORPUS / 2);
    keep(data, n < FUZZ_ROOM ? n : FUZZ_ROOM, corpus_count);
}

// Whether an outcome is new; it is not the next time. A full table has seen everything.
static bool is_new(uint64_t outcome)
{
    if (!outcome) outcome = 1;
    for (size_t i = 0; i < SEEN / 2; i++) {
        uint64_t *slot = &seen[(outcome + i) % SEEN];
        if (*slot == outcome) return false;
        if (*slot) continue;
        *slot = outcome;
        now->outcomes++;
        return true;
    }
    return false;
}

// Runs the input under way. The target gets a copy that ends where the memory does, so that a
// sanitizer sees a step too far.
static uint64_t run(const fuzz_target *t)
{
    unsigned char *exact = malloc(now->n ? now->n : 1);
    FUZZ_CHECK(exact != NULL);
    memcpy(exact, now->data, now->n);
    uint64_t outcome = t->run(exact, now->n);
    free(exact);
    now->runs++;
    now->peak = fuzz_peak();
    return outcome;
}

static void load(const input *from)
{
    now->n = from->n;
    memcpy(now->data, from->data, from->n);
}

static void fuzz(const fuzz_target *t, int seconds, uint64_t seed)
{
    fuzz_random r   = { seed };
    time_t      end = time(NULL) + seconds;
    t->seeds();
    FUZZ_CHECK(corpus_count > 0);
    size_t first = corpus_count;  // after the seeds, which stay
    for (size_t i = 0; i < first; i++) {
        load(&corpus[i]);
        is_new(run(t));
    }
    while (time(NULL) < end) {
        load(&corpus[fuzz_below(&r, corpus_count)]);
        const input *other = &corpus[fuzz_below(&r, corpus_count)];
        now->n             = fuzz_mutate(&r, now->data, now->n, other->data, other->n, t->tokens);
        if (!is_new(run(t))) continue;
        size_t full = first + fuzz_below(&r, CORPUS - first);
        keep(now->data, now->n, corpus_count < CORPUS ? corpus_count : full);
    }
    for (size_t i = 0; i < corpus_count; i++) free(corpus[i].data);
}

// ---- the parent

static void write_crash(const fuzz_target *t)
{
    char path[128];
    snprintf(path, sizeof path, "fuzz-%s-crash.bin", t->name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(now->data, 1, now->n, f) != now->n || fclose(f) != 0) perror(path);
    fprintf(stderr, "%s: a finding after %llu runs; again by: tenon-fuzz %s --file %s\n", t->name,
            (unsigned long long)now->runs, t->name, path);
}

// Waits for the child. One that does not end a run in time is killed. Returns whether all went
// well.
static bool watch(pid_t child)
{
    uint64_t runs = 0;
    int      status, quiet = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        struct timespec tenth = { .tv_nsec = 100000000 };
        nanosleep(&tenth, NULL);
        quiet = now->runs == runs ? quiet + 1 : 0;
        runs  = now->runs;
        if (quiet < HANG_SECONDS * 10) continue;
        fprintf(stderr, "an input takes more than %d s\n", HANG_SECONDS);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        return false;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int fuzz_watched(const fuzz_target *t, int seconds, uint64_t seed)
{
    fuzz_folder_make();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        fuzz(t, seconds, seed);
        exit(0);  // where a leak is told, with a sanitizer
    }
    bool ok = child > 0 && watch(child);
    fuzz_folder_remove();
    if (!ok) write_crash(t);
    printf("%-12s %9llu runs, %5llu outcomes, at most %zu KiB%s\n", t->name,
           (unsigned long long)now->runs, (unsigned long long)now->outcomes, now->peak >> 10,
           ok ? "" : ", A FINDING");
    return !ok;
}

// One input from a file, in this process, for a debugger.
static int run_file(const fuzz_target *t, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    now->n = fread(now->data, 1, FUZZ_ROOM, f);
    fclose(f);
    fuzz_folder_make();
    printf("%s: outcome %016llx\n", t->name, (unsigned long long)run(t));
    fuzz_folder_remove();
    return 0;
}

static const fuzz_target *find(const char *name)
{
    for (int i = 0; i < TARGETS; i++)
        if (strcmp(targets[i]->name, name) == 0) return targets[i];
    return NULL;
}

// Ends a process that read nothing: it has no leak to be told, and looking for one takes a
// sanitizer seconds on some processors.
_Noreturn static void end(int status)
{
    fflush(NULL);
    _exit(status);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < TARGETS; i++) puts(targets[i]->name);
        end(0);
    }
    const fuzz_target *t = argc > 2 ? find(argv[1]) : NULL;
    if (!t) {
        fprintf(stderr, "usage: tenon-fuzz TARGET SECONDS [SEED] | TARGET --file PATH | --list\n");
        return 2;
    }
    now = mmap(NULL, sizeof *now, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FUZZ_CHECK(now != MAP_FAILED);
    if (strcmp(argv[2], "--file") == 0) return argc > 3 ? run_file(t, argv[3]) : 2;
    end(fuzz_watched(t, atoi(argv[2]), argc > 3 ? strtoull(argv[3], NULL, 0) : 1));
}
