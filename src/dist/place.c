// Which variables launchers set.
#include "dist/place.h"

#include <limits.h>
#include <stdlib.h>

// The variables of one launcher. `proof` must also be set, if it is named: a batch script of Slurm has
// a rank and a number of tasks without being one of them, and only a step has a number. `connects` is
// set where an MPI library can reach the launcher: "" is always.
typedef struct {
    const char *name, *rank, *size, *local_rank, *local_size, *proof, *connects;
} launcher;

// In the order in which they count: a launcher that runs inside another's job set its own variables last.
static const launcher launchers[] = {
    { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL, NULL },
    { "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, "" },
    { "MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, "" },
    { "Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, "SLURM_STEP_ID",
      "PMIX_RANK" },
};

enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

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

// Takes the first launcher of the table that set all it has to.
bool tni_world_place_find(tni_world_place *p, tni_text *why)
{
    *p = (tni_world_place){ .size = 1, .local_size = 1 };
    for (int i = 0; i < LAUNCHERS; i++) {
        const launcher *l = &launchers[i];
        if (!is_set(l->rank) || !is_set(l->size) || (l->proof && !is_set(l->proof))) continue;
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
