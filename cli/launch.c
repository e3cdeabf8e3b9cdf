// launch.c: tenon launch, several ranks of a program on this machine. MPI's own launcher starts
// them, since only it can connect them on CPUs; between it and each rank is a process of ours,
// which prefixes the rank's output and, when the rank fails, waits until the others have ended
// before it says so, because the launcher may end them at once:
//
//   tenon launch -n 2 PROGRAM
//     mpiexec -n 2 tenon launch --rank PROGRAM
//       tenon launch --rank PROGRAM     rank 0: its output, prefixed
//         PROGRAM
//       tenon launch --rank PROGRAM     rank 1
//         PROGRAM
//
// Ranks on GPUs, which NCCL connects, need no launcher of MPI: the processes before them are
// started here, with the variables of torchrun.
#include "cli.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Time for the other ranks to find out and say which one failed, and how often is looked whether
// they have ended; in ms.
enum { GRACE = 3000, LOOK = 20 };

// The command line.
typedef struct {
    long        ranks, restarts;
    const char *engine;   // "mpi", "nccl"; NULL: by the device
    bool        is_rank;  // this is the process before one rank
    char      **program;  // and its arguments
} launch_line;

static int wrong(const char *what, const char *value)
{
    fprintf(stderr, "tenon launch: %s%s%s; see tenon help launch\n", what, value ? ": " : "",
            value ? cli_shown(value) : "");
    return 2;
}

// Reads a number from least to 1,000,000; -1 if the text is none.
static long read_number(const char *text, long least)
{
    char *end;
    long  n = strtol(text, &end, 10);
    return *text && !*end && n >= least && n <= 1000000 ? n : -1;
}

// Parses the options; the first word that is none begins the program. Returns 0, or the exit
// status.
static int parse(launch_line *l, int argc, char **argv)
{
    int i = 2;
    for (; i < argc && argv[i][0] == '-'; i++) {
        bool n = !strcmp(argv[i], "-n"), restarts = !strcmp(argv[i], "--restarts");
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        if (!strcmp(argv[i], "--rank")) l->is_rank = true;
        else if (!strcmp(argv[i], "--engine")) {
            l->engine = i + 1 < argc ? argv[++i] : "";
            if (strcmp(l->engine, "mpi") && strcmp(l->engine, "nccl"))
                return wrong("engines are mpi and nccl, not", l->engine);
        } else if (!n && !restarts) return wrong("there is no such option", argv[i]);
        else {
            long v = i + 1 < argc ? read_number(argv[i + 1], n) : -1;
            if (v < 0 && i + 1 < argc && n)
                return wrong("-n needs a number of ranks, not", argv[i + 1]);
            if (v < 0) return wrong("a number is needed after", argv[i]);
            *(n ? &l->ranks : &l->restarts) = v;
            i++;
        }
    }
    l->program = argv + i;
    if (!l->is_rank && !l->ranks) return wrong("the number of ranks is needed, -n N", NULL);
    return *l->program ? 0 : wrong("a program is needed", NULL);
}

// The exit status of a process that has ended, as a shell has it.
static int exit_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int wait_for(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return 1;
    return exit_of(status);
}

// ---- one rank ----------------------------------------------------------------------------------

// A stream of the rank: bytes of a line that has not ended yet.
typedef struct {
    int    from, to;
    size_t bytes;
    char   line[8192];
} stream;

static volatile sig_atomic_t rank_pid;

// A launcher that ends this process ends the rank.
static void end_rank(int signal_number)
{
    if (rank_pid > 0) kill(rank_pid, signal_number);
}

// Writes in one call, so that lines of several ranks do not mix.
static void print_line(const stream *s, size_t bytes, const char *rank)
{
    char   text[sizeof s->line + 32];
    size_t n = (size_t)snprintf(text, 24, "[%.20s] ", rank);
    memcpy(text + n, s->line, bytes);  // which may have bytes of any value
    text[n + bytes] = '\n';
    (void)!write(s->to, text, n + bytes + 1);
}

// Prints the lines that are complete, and one that is too long in pieces; at the end also the last.
static void print_lines(stream *s, const char *rank, bool end)
{
    char *line;
    while ((line = memchr(s->line, '\n', s->bytes)) != NULL || s->bytes == sizeof s->line ||
           (end && s->bytes)) {
        size_t n = line ? (size_t)(line - s->line) : s->bytes, used = n + (line != NULL);
        print_line(s, n, rank);
        s->bytes -= used;
        memmove(s->line, s->line + used, s->bytes);
    }
}

// Reads what there is. Returns false at the end of the stream.
static bool read_stream(stream *s, const char *rank)
{
    ssize_t n = read(s->from, s->line + s->bytes, sizeof s->line - s->bytes);
    if (n < 0 && errno == EINTR) return true;
    if (n > 0) s->bytes += (size_t)n;
    print_lines(s, rank, n <= 0);
    return n > 0;
}

// Nothing to do: it ends a wait.
static void note_child(int signal_number)
{
    (void)signal_number;
}

// Copies what the rank prints, and waits for its end. A process that the rank has started may have
// its streams for longer: what comes within a moment after the end is copied, the rest is not
// waited for. waits: the signals that are held back except in a wait. Returns the exit status.
static int copy_output(stream s[2], const char *rank, const sigset_t *waits)
{
    const struct timespec moment = { .tv_nsec = 100000000 };
    enum { MOST = 100 };  // reads after the end: a pipe has 64 KiB, 8 reads
    bool open[2] = { true, true }, ended = false;
    int  status = 0;
    for (int reads = 0; !ended || ((open[0] || open[1]) && reads < MOST); reads += ended) {
        struct pollfd p[2] = { { .fd = open[0] ? s[0].from : -1, .events = POLLIN },
                               { .fd = open[1] ? s[1].from : -1, .events = POLLIN } };
        if (!ended) ended = waitpid((pid_t)rank_pid, &status, WNOHANG) == rank_pid;
        int found = ppoll(p, 2, ended ? &moment : NULL, waits);
        if (found < 0 && errno != EINTR) break;
        if (found == 0 && ended) break;
        for (int i = 0; found > 0 && i < 2; i++)
            if (p[i].revents) open[i] = read_stream(&s[i], rank);
    }
    for (int i = 0; i < 2; i++) print_lines(&s[i], rank, true);
    return ended ? exit_of(status) : wait_for((pid_t)rank_pid);
}

// Starts the rank with its output in two pipes, and the signals as they were. It dies with this
// process.
static pid_t start_rank(char **program, int out[2], int err[2], const sigset_t *signals)
{
    pid_t parent = getpid(), child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(out[1], 1) < 0 || dup2(err[1], 2) < 0) _exit(126);
    for (int i = 0; i < 2; i++) {
        close(out[i]);
        close(err[i]);
    }
    sigprocmask(SIG_SETMASK, signals, NULL);
    signal(SIGUSR1, SIG_DFL);
    execvp(program[0], program);
    fprintf(stderr, "tenon launch: %s: %s\n", program[0], strerror(errno));
    _exit(127);
}

// Adds a rank's exit status to the file of them: launchers of MPI do not all pass on what a process
// before them ended with.
static void report_status(int status)
{
    const char *path = getenv("TN_LAUNCH_STATUS");
    FILE       *f    = path ? fopen(path, "a") : NULL;
    if (f) fprintf(f, "%d\n", status);
    if (f) fclose(f);
}

// The first status in the file that is not 0; *n: how many there are.
static int first_failure(const char *path, long *n)
{
    FILE *f = path ? fopen(path, "r") : NULL;
    int   status, first = 0;
    for (*n = 0; f && fscanf(f, "%d", &status) == 1; ++*n)
        if (!first) first = status;
    if (f) fclose(f);
    return first;
}

// Waits until all ranks have ended, but not for long.
static void give_grace(void)
{
    const char *path = getenv("TN_LAUNCH_STATUS"), *ranks = getenv("TN_LAUNCH_RANKS");
    long        n;
    for (int waited = 0; waited < GRACE; waited += LOOK) {
        first_failure(path, &n);
        if (ranks && n >= atol(ranks)) return;
        poll(NULL, 0, LOOK);
    }
}

// Runs one rank.
static int run_rank(char **program)
{
    static stream s[2];
    char          rank[16];
    int           out[2], err[2], place, size;
    sigset_t      child, before;
    if (!tn_dist_launched(&place, &size))
        return cli_fail("launch: --rank is for processes that mpiexec started");
    snprintf(rank, sizeof rank, "%d", place);
    if (pipe(out) != 0 || pipe(err) != 0) return cli_fail("launch: %s", strerror(errno));
    struct sigaction action = { .sa_handler = end_rank };
    sigaction(SIGTERM, &action, NULL);
    signal(SIGINT, SIG_IGN);   // of the terminal: the rank has it too
    signal(SIGUSR1, SIG_IGN);  // by which MPICH's launcher says that a rank has failed
    sigaction(SIGCHLD, &(struct sigaction){ .sa_handler = note_child }, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    rank_pid = start_rank(program, out, err, &before);
    if (rank_pid < 0) return cli_fail("launch: %s", strerror(errno));
    close(out[1]);
    close(err[1]);
    s[0]       = (stream){ .from = out[0], .to = 1 };
    s[1]       = (stream){ .from = err[0], .to = 2 };
    int status = copy_output(s, rank, &before);
    report_status(status);
    if (status > 128)
        fprintf(stderr, "[%s] tenon launch: ended by signal %d, %s\n", rank, status - 128,
                strsignal(status - 128));
    else if (status) fprintf(stderr, "[%s] tenon launch: ended with status %d\n", rank, status);
    if (status) give_grace();
    return status;
}

// ---- all ranks ---------------------------------------------------------------------------------

static volatile sig_atomic_t launcher_pid, stopped;

// Passes a signal on to the launcher, which ends the ranks.
static void pass_on(int signal_number)
{
    stopped = signal_number;
    if (launcher_pid > 0) kill(launcher_pid, SIGTERM);
}

// The mpiexec in PATH, which has options of its own.
typedef enum { NO_MPIEXEC, OTHER_MPIEXEC, OPEN_MPI, HYDRA } mpiexec_kind;

static mpiexec_kind find_mpiexec(void)
{
    char         line[256];
    mpiexec_kind found = NO_MPIEXEC;
    FILE        *f     = popen("mpiexec --version 2>/dev/null", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (!found) found = OTHER_MPIEXEC;
        if (strstr(line, "Open MPI") || strstr(line, "OpenRTE") || strstr(line, "open-mpi.org") ||
            strstr(line, "prte"))
            found = OPEN_MPI;
        if (!strncmp(line, "HYDRA", 5)) found = HYDRA;
    }
    if (f) pclose(f);
    return found;
}

// The tool itself as the launcher has to call it; inside Python it is a module.
static bool find_self(char *path, size_t size, bool *python)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n <= 0) return false;
    path[n]          = 0;
    const char *name = strrchr(path, '/');
    *python          = name && !strncmp(name, "/python", 7);
    return true;
}

// Makes the launcher's command line, in `argv`. More ranks than cores are allowed, and no rank is
// bound to one core, since each has threads. MPICH's would end all ranks as soon as one has left
// MPI without a word, before the others could say so.
static void make_command(const launch_line *l, mpiexec_kind kind, char *self, bool python,
                         char *ranks, char **argv)
{
    int n     = 0;
    argv[n++] = "mpiexec";
    if (kind == HYDRA) argv[n++] = "-disable-auto-cleanup";
    if (kind == OPEN_MPI && geteuid() == 0) argv[n++] = "--allow-run-as-root";
    if (kind == OPEN_MPI) {
        argv[n++] = "--oversubscribe";
        argv[n++] = "--bind-to";
        argv[n++] = "none";
        argv[n++] = "--quiet";
    }
    argv[n++] = "-n";
    argv[n++] = ranks;
    argv[n++] = self;
    if (python) {
        argv[n++] = "-m";
        argv[n++] = "tenon";
    }
    argv[n++] = "launch";
    argv[n++] = "--rank";
    argv[n++] = "--";
    for (int i = 0; l->program[i]; i++) argv[n++] = l->program[i];
    argv[n] = NULL;
}

// Finds a free port of this machine for rank 0 to listen at; 0 if there is none. Below those that
// systems give to whoever asks for any, as MPI does while the ranks start.
static int free_port(void)
{
    enum { FIRST = 20000, PORTS = 12000, TRIES = 100 };
    int port = 0;
    for (int i = 0; i < TRIES && !port; i++) {
        unsigned           draw = 0;
        int                fd   = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        (void)!getrandom(&draw, sizeof draw, 0);
        a.sin_port = htons((uint16_t)(FIRST + draw % PORTS));
        if (fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0) port = ntohs(a.sin_port);
        if (fd >= 0) close(fd);
    }
    return port;
}

// Removes what another launcher said of this process: the ranks have a world of their own.
static void leave_world(void)
{
    for (int i = 0; tn_dist_variable(i); i++) unsetenv(tn_dist_variable(i));
}

// Sets what ranks of one machine share: its cores, the device that their engine is for, and where
// they meet.
static void share_machine(long ranks, long restart, bool nccl)
{
    char text[32];
    long cores = sysconf(_SC_NPROCESSORS_ONLN), threads = cores / ranks;
    snprintf(text, sizeof text, "%ld", threads > 1 ? threads : 1);
    setenv("TN_NUM_THREADS", text, 0);
    setenv("TN_DEVICE", nccl ? "cuda" : "cpu", 0);
    snprintf(text, sizeof text, "%d", free_port());
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", text, 1);
    snprintf(text, sizeof text, "%ld", restart);
    setenv("TN_RESTART", text, 1);
    if (restart) return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, sizeof text, "%lld.%09ld", (long long)now.tv_sec, now.tv_nsec);
    setenv("TN_LAUNCHED", text, 1);
}

// Waits for the launcher. When a rank has failed, and the others had their time, it gets a signal
// to end, and is killed after as long again: it may wait for ranks that do not notice, or for what
// a rank has started.
static int wait_for_launcher(pid_t child, const char *path)
{
    enum { ALL = 2 * GRACE };
    int   status = 0;
    pid_t ended;
    long  n;
    for (int waited = 0; (ended = waitpid(child, &status, WNOHANG)) != child;) {
        if (ended < 0 && errno != EINTR) return 1;
        poll(NULL, 0, LOOK);
        if (!waited && !first_failure(path, &n)) continue;
        waited += LOOK;
        if (waited == ALL) kill(child, SIGTERM);
        if (waited == 2 * ALL) kill(child, SIGKILL);
    }
    return exit_of(status);
}

// Runs the launcher, and returns its status.
static int run_launcher(char **argv, const char *path)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() == parent) execvp(argv[0], argv);
        _exit(127);
    }
    if (child < 0) return cli_fail("launch: %s", strerror(errno));
    launcher_pid = child;
    int status   = wait_for_launcher(child, path);
    launcher_pid = 0;
    return status;
}

// The status of all ranks: the first of theirs that is not 0, else the launcher's, else 1 if one
// did not report any.
static int status_of_all(const char *path, long ranks, int launcher)
{
    long n;
    int  first = first_failure(path, &n);
    if (first || launcher || n == ranks || stopped) return first ? first : launcher;
    fprintf(stderr, "tenon launch: %ld of %ld ranks ended without a status\n", ranks - n, ranks);
    return 1;
}

// ---- all ranks without MPI ---------------------------------------------------------------------

static void set_number(const char *name, long n)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", n);
    setenv(name, text, 1);
}

// Starts the process before one rank.
static pid_t start_one(const launch_line *l, long rank)
{
    pid_t parent = getpid(), child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(126);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", l->ranks);
    set_number("LOCAL_WORLD_SIZE", l->ranks);
    _exit(run_rank(l->program));
}

static void signal_all(const pid_t *rank, long n, int signal_number)
{
    for (long i = 0; i < n; i++)
        if (rank[i] > 0) kill(rank[i], signal_number);
}

// Waits for all ranks. When one has failed, it has given the others time to say so already; they
// are ended, and those that do not end are killed after as long again. Returns the first status
// that is not 0.
static int wait_for_ranks(pid_t *rank, long n)
{
    int  first = 0, waited = 0, status;
    bool ended = false;
    for (long left = n; left > 0;) {
        pid_t p = waitpid(-1, &status, WNOHANG);
        for (long i = 0; p > 0 && i < n; i++)
            if (rank[i] == p) {
                rank[i] = 0;
                left--;
                if (!first) first = exit_of(status);
            }
        if (p < 0 && errno != EINTR) break;
        if ((first || stopped) && !ended) {
            signal_all(rank, n, SIGTERM);
            ended = true;
        }
        if (p > 0) continue;
        poll(NULL, 0, LOOK);
        waited += ended ? LOOK : 0;
        if (waited > GRACE) signal_all(rank, n, SIGKILL);
    }
    return first;
}

// Starts all ranks once, without a launcher.
static int run_ranks_here(const launch_line *l)
{
    pid_t *rank   = calloc((size_t)l->ranks, sizeof *rank);
    int    status = 0;
    long   n      = 0;
    if (!rank) return cli_fail("launch: out of memory");
    while (n < l->ranks && (rank[n] = start_one(l, n)) > 0) n++;
    if (n < l->ranks) {
        status = cli_fail("launch: %s", strerror(errno));
        signal_all(rank, n, SIGTERM);
    }
    int ended = wait_for_ranks(rank, n);
    free(rank);
    return status ? status : ended;
}

// Starts all ranks once. command: of MPI's launcher; NULL: without one.
static int run_ranks(const launch_line *l, char **command)
{
    const char *folder = getenv("TMPDIR");
    char        path[PATH_MAX];
    snprintf(path, sizeof path, "%s/tenon-launch-XXXXXX", folder && *folder ? folder : "/tmp");
    int file = mkstemp(path);
    if (file < 0) return cli_fail("launch: %s: %s", path, strerror(errno));
    close(file);
    setenv("TN_LAUNCH_STATUS", path, 1);
    set_number("TN_LAUNCH_RANKS", l->ranks);
    int status = command ? run_launcher(command, path) : run_ranks_here(l);
    status     = status_of_all(path, l->ranks, status);
    unlink(path);
    return status;
}

// Whether ranks are on GPUs, where NCCL connects them: as the command line or TN_DEVICE says; if
// nothing does, where there is a GPU and no launcher of MPI.
static bool is_for_gpus(const launch_line *l, mpiexec_kind mpiexec)
{
    const char *device = getenv("TN_DEVICE");
    if (l->engine) return !strcmp(l->engine, "nccl");
    if (device && *device) return !strncmp(device, "cuda", 4);
    for (int i = 0; !mpiexec && tn_device_info(i).name; i++)
        if (!strcmp(tn_device_info(i).name, "cuda")) return tn_device_info(i).available;
    return false;
}

int cli_launch(int argc, char **argv)
{
    launch_line l      = { 0 };
    int         status = parse(&l, argc, argv), count = 0;
    char        self[PATH_MAX], ranks[32];
    bool        python;
    if (status) return status;
    if (l.is_rank) return run_rank(l.program);
    mpiexec_kind kind = find_mpiexec();
    bool         nccl = is_for_gpus(&l, kind);
    if (!kind && !nccl)
        return cli_fail("launch: there is no mpiexec in PATH; on Debian or Ubuntu: apt install "
                        "openmpi-bin");
    if (!find_self(self, sizeof self, &python)) return cli_fail("launch: %s", strerror(errno));
    while (l.program[count]) count++;
    char **command = calloc((size_t)count + 16, sizeof *command);
    if (!command) return cli_fail("launch: out of memory");
    snprintf(ranks, sizeof ranks, "%ld", l.ranks);
    make_command(&l, kind, self, python, ranks, command);
    struct sigaction action = { .sa_handler = pass_on };
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    leave_world();
    for (long i = 0; i <= l.restarts; i++) {
        share_machine(l.ranks, i, nccl);
        status = run_ranks(&l, nccl ? NULL : command);
        if (!status || stopped || i == l.restarts) break;
        fprintf(stderr, "tenon launch: the ranks ended with status %d; restart %ld of %ld\n",
                status, i + 1, l.restarts);
    }
    free(command);
    return status;
}
