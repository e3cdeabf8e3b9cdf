// The place of this process among those that a launcher started: its rank, and how many there are.
#ifndef TNI_DIST_PLACE_H
#define TNI_DIST_PLACE_H

#include "base/text.h"

// Read from the variables of a launcher. local: the place among the processes of this machine, -1
// where the launcher does not say.
typedef struct {
    const char *launcher;  // "torchrun", "Open MPI"; NULL: none
    bool        mpi;       // it starts processes that MPI can connect
    int         rank, size;
    int         local_rank, local_size;
} tni_world_place;

// Finds the place by the environment: rank 0 of 1 if no launcher set its variables. The first
// launcher whose rank and size are both set counts. False, with the reason, if they are no rank of
// a world.
bool tni_world_place_find(tni_world_place *p, tni_text *why);

// Where rank 0 can be met without an engine, as a launcher's variables say. run: a name of this
// start of the program, which no other one has.
typedef struct {
    char     host[256];
    uint16_t port;
    tni_text run;
} tni_meeting_place;

// Finds it: MASTER_ADDR and MASTER_PORT, or the first machine of a job of Slurm; TN_PORT is another
// port. False, with the reason, if there is none.
bool tni_meeting_place_find(const tni_world_place *p, tni_meeting_place *m, tni_text *why);

#endif
