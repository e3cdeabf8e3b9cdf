// Which variables launchers set.
#include "dist/place.h"
#include "tenon.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The variables of one launcher. `proof` must also be set, if it is named: a batch script of Slurm
// has a rank and a number of tasks without being one of them, and only a step has a number.
// `connects` is set where an MPI library can reach the launcher: "" is always.
typedef struct {
    const char *name, *rank, *size, *local_rank, *local_size, *proof, *connects;
} launcher;

// In the order in which they count: a launcher that runs inside another's job set its own variables
// last.
static const launcher launchers[] = {
    { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL, NULL },
    { "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, "" },
    { "MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, "" },
    { "Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_ID",
      "PMIX_RANK" },
};

enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

// What they set besides.
static const char *const others[] = {
    "MASTER_ADDR",      "MASTER_PORT",        "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
    "SLURM_JOB_ID",     "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST", "TN_PORT",
    "TN_LAUNCH_STATUS", "TN_LAUNCH_RANKS",
};

const char *tn_dist_variable(int i)
{
    enum { EACH = 6, OTHERS = sizeof others / sizeof *others };
    for (int k = 0; i >= 0 && k < LAUNCHERS * EACH; k++) {
        const launcher   *l      = &launchers[k / EACH];
        const char *const name[] = { l->rank,       l->size,  l->local_rank,
                                     l->local_size, l->proof, l->connects };
        const char       *v      = name[k % EACH];
        if (v && *v && i-- == 0) return v;
    }
    return i >= 0 && i < OTHERS ? others[i] : NULL;
}

// Returns the value of a variable if it is a whole number, -1 if it is not or there is none.
static int number_of(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    char       *end;
    if (!text || !tni_is_digit(*text)) return -1;
    long n = strtol(text, &end, 10);
    return *end || n > INT_MAX ? -1 : (int)n;
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
}

// Whether a launcher set all it has to.
static bool has_set(const launcher *l)
{
    return is_set(l->rank) && is_set(l->size) && (!l->proof || is_set(l->proof));
}

// Whether a launcher's place is that of another one.
static bool same_place(const launcher *a, const launcher *b)
{
    return number_of(a->rank) == number_of(b->rank) && number_of(a->size) == number_of(b->size);
}

// A rank and a size of torchrun's that are left in the environment would make a world of each
// process that mpiexec starts. Torchrun itself, which may be started by mpiexec once a machine,
// also says its run.
static bool is_left_over(const launcher *l, tni_text *why)
{
    const launcher *torchrun = &launchers[0];
    for (int i = 1; l == torchrun && !is_set("TORCHELASTIC_RUN_ID") && i < LAUNCHERS; i++) {
        const launcher *other = &launchers[i];
        if (other->proof || !has_set(other) || same_place(l, other)) continue;
        *why = tni_text_of(
            "%s %.12s of %s %.12s is not %s %.12s of %.12s: unset those of another run", l->rank,
            getenv(l->rank), l->size, getenv(l->size), other->rank, getenv(other->rank),
            getenv(other->size));
        return true;
    }
    return false;
}

// Takes the first launcher of the table that set all it has to.
bool tni_world_place_find(tni_world_place *p, tni_text *why)
{
    *p = (tni_world_place){ .size = 1, .local_size = 1 };
    for (int i = 0; i < LAUNCHERS; i++) {
        const launcher *l = &launchers[i];
        if (!has_set(l)) continue;
        if (is_left_over(l, why)) return false;
        *p = (tni_world_place){ .launcher   = l->name,
                                .mpi        = l->connects && (!*l->connects || is_set(l->connects)),
                                .rank       = number_of(l->rank),
                                .size       = number_of(l->size),
                                .local_rank = number_of(l->local_rank),
                                .local_size = number_of(l->local_size) };
        if (p->rank >= 0 && p->rank < p->size) return true;
        *why = tni_text_of("%s is %s and %s is %s, which is no rank of a world", l->rank,
                           tni_quoted(getenv(l->rank)).s, l->size, tni_quoted(getenv(l->size)).s);
        return false;
    }
    return true;
}

bool tn_dist_launched(int *rank, int *size)
{
    tni_world_place p;
    tni_text        why;
    bool            ok = tni_world_place_find(&p, &why) && p.launcher;
    if (rank) *rank = ok ? p.rank : 0;
    if (size) *size = ok ? p.size : 1;
    return ok;
}

// ---- where to meet -----------------------------------------------------------------------------

// Returns a variable, "" if it is not set.
static const char *text_of(const char *name)
{
    const char *text = getenv(name);
    return text ? text : "";
}

// Writes the first machine of a list of Slurm's: "node[003-007,9],x1" has node003.
static void first_machine(char *to, size_t size, const char *list)
{
    size_t n = strcspn(list, "[,");
    int    m = 0;
    if (list[n] == '[') m = (int)strcspn(list + n + 1, "-,]");
    snprintf(to, size, "%.*s%.*s", (int)n, list, m, m ? list + n + 1 : "");
}

// Torchrun listens at MASTER_PORT itself, for its own messages, where it says so; the next port is
// free then as well as any.
static int port_of(bool slurm)
{
    enum { FIRST = 20000, PORTS = 20000 };  // below those that systems give to clients
    int set = number_of("TN_PORT"), master = number_of("MASTER_PORT");
    if (set >= 0) return set;
    if (slurm) return FIRST + number_of("SLURM_JOB_ID") % PORTS;
    return master + !strcmp(text_of("TORCHELASTIC_USE_AGENT_STORE"), "True");
}

// The first host of the job and a port made of its number, by Slurm; else what torchrun and its kin
// set.
bool tni_meeting_place_find(const tni_world_place *p, tni_meeting_place *m, tni_text *why)
{
    const char *nodes  = is_set("SLURM_STEP_NODELIST") ? text_of("SLURM_STEP_NODELIST")
                                                       : text_of("SLURM_JOB_NODELIST");
    bool        master = is_set("MASTER_ADDR") && (is_set("MASTER_PORT") || is_set("TN_PORT"));
    bool        slurm  = !master && *nodes && number_of("SLURM_JOB_ID") >= 0;
    *m                 = (tni_meeting_place){ .port = 0 };
    if (!master && !slurm) {
        *why = tni_text_of("rank 0 is nowhere to be met: MASTER_ADDR and MASTER_PORT are not set");
        return false;
    }
    int port = port_of(slurm);
    if (port < 1 || port > 65535) {
        *why = tni_text_of("port %d is none: MASTER_PORT is %s, TN_PORT is %s", port,
                           tni_quoted(text_of("MASTER_PORT")).s, tni_quoted(text_of("TN_PORT")).s);
        return false;
    }
    m->port = (uint16_t)port;
    if (slurm) first_machine(m->host, sizeof m->host, nodes);
    else snprintf(m->host, sizeof m->host, "%s", text_of("MASTER_ADDR"));
    m->run = tni_text_of("%d %d %.40s %.40s %.20s %.10s %.10s", p->size, port,
                         text_of("TORCHELASTIC_RUN_ID"), text_of("SLURM_JOB_ID"),
                         text_of("SLURM_STEP_ID"), text_of("TORCHELASTIC_RESTART_COUNT"),
                         text_of("TN_RESTART"));
    return true;
}
